"""The contract of a retention policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch

from longtake.errors import LongtakeError
from longtake.memory import Keep, Memory


@dataclass
class Policy(ABC):
    """Decides, after each chunk, which tokens stay. One instance serves one stream.

    A subclass is a dataclass of hyperparameters under their published names. The session calls `begin` once
    the opening of the prompt is held, then `observe` and `keep` after each chunk; the first two do nothing
    unless a subclass says otherwise.

    Attributes:
        budget: tokens per attention layer after a step, all tokens counted unless the subclass says
            otherwise; None is no bound.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for listings."""
    bounded: ClassVar[bool] = True
    needs_recurrent_states: ClassVar[bool] = False

    budget: int | None = None

    def begin(self, memory: Memory) -> None:  # noqa: B027
        """Called once, with the opening held and no frame yet."""

    def observe(self, memory: Memory, chunk: int) -> None:  # noqa: B027
        """Called after chunk number `chunk` came in, before `keep`. `memory.states_before` holds the states
        before it."""

    @abstractmethod
    def keep(self, memory: Memory) -> Keep | None:
        """The rows that stay, or None when nothing is due."""

    def least_budget(self, chunk_tokens: int, opening_tokens: int) -> int:
        """The smallest budget that works with chunks of this many tokens."""
        return opening_tokens + chunk_tokens

    def check(self, chunk_tokens: int, opening_tokens: int) -> None:
        """Raises LongtakeError, with the least that works, when the budget is too small."""
        if self.budget is None:
            return
        least = self.least_budget(chunk_tokens, opening_tokens)
        if self.budget < least:
            raise LongtakeError(
                f"A budget of {self.budget} tokens is too small for policy '{self.name}' with chunks of "
                f"{chunk_tokens} tokens; the least that works is {least}."
            )

    def _fits(self, memory: Memory) -> bool:
        return self.budget is None or memory.held <= self.budget


def sinks_and_window(index: torch.Tensor, sinks: int, window: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Masks [n] of the stream's first `sinks` tokens and of the newest `window` ones, by `index` [n]."""
    sink = index < sinks
    newest = torch.zeros_like(sink)
    newest[torch.topk(index, min(window, len(index))).indices] = True
    return sink, newest & ~sink
