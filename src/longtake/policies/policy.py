"""The contract of a retention policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from longtake.errors import LongtakeError
from longtake.memory import Keep, Memory
from longtake.policies.positions import Compaction, by_grid, by_rank
from longtake.policies.signals.guidance import GLOBAL
from longtake.probe import Probe
from longtake.trace import Sight, Trace

Reindex = Literal["off", "lazy", "eager"]


@dataclass
class Policy(ABC):
    """Decides, after each chunk, which tokens stay. One instance serves one stream.

    A subclass is a dataclass of hyperparameters under their published names. The session calls `begin` once
    the opening of the prompt is held, then `observe`, `keep` and `positions` after each chunk, and `answered` after
    each answer; all but `keep` do what is here unless a subclass says otherwise.

    Attributes:
        budget: tokens per attention layer after a step, all tokens counted unless the subclass says
            otherwise; None is no bound.
        reindex: when positions are compacted after an eviction: "off" leaves them as the model wrote them, "lazy"
            waits until they come within `margin` of the model's limit, "eager" does it each time (HERMES, section 3.3).
        compaction: "rank" as in HERMES' appendix E, or "grid", which moves each grid of visual tokens as a whole.
        margin: 1,024 positions, as in HERMES' codes.
    """

    name: ClassVar[str]
    line: ClassVar[str]
    """One line for listings."""
    bounded: ClassVar[bool] = True
    default_budget: ClassVar[int] = 8192
    needs_recurrent_states: ClassVar[bool] = False

    budget: int | None = None
    reindex: Reindex = field(default="off", kw_only=True)
    compaction: Compaction = field(default="grid", kw_only=True)
    margin: int = field(default=1024, kw_only=True)

    def __post_init__(self) -> None:
        if self.margin < 0:
            raise LongtakeError("margin must be 0 or more.")

    def begin(self, memory: Memory, probe: Probe) -> None:
        """Called once, with the opening held and no frame yet. `probe` looks at what is held with the model's eyes."""
        self._probe = probe

    @property
    def sights(self) -> frozenset[Sight]:
        """What `observe` is to find in the trace of each chunk."""
        return frozenset()

    def observe(self, memory: Memory, chunk: int, trace: Trace) -> None:  # noqa: B027
        """Called after chunk number `chunk` came in, before `keep`. `memory.states_before` holds the states
        before it, `trace` what of `sights` was seen on its way."""

    @abstractmethod
    def keep(self, memory: Memory) -> Keep | None:
        """The rows that stay, or None when nothing is due."""

    def positions(self, memory: Memory) -> list[Tensor] | None:
        """New positions [n, axes] of the rows held, per attention layer, or None where they stay as they are."""
        if self.reindex == "off" or memory.reindexed == memory.evictions:
            return None
        if self.reindex == "lazy" and memory.span <= self._probe.longest - self.margin:
            return None
        if self.compaction == "rank":
            return memory.per_layer(by_rank)
        return memory.per_layer(lambda ledger: by_grid(ledger, self._probe.advancing_axes))

    def answered(self, question: str, answer: str) -> None:  # noqa: B027
        """Called after an answer was given whole. Whoever uses it lets questions leave a trace, and says so."""

    def settings(self) -> dict[str, Any]:
        """The hyperparameters that run, the budget aside; where nothing is compacted, how it would be is left out."""
        idle = {"budget", *(("compaction", "margin") if self.reindex == "off" else ())}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init and f.name not in idle}

    def chunk_frames(self) -> int | None:
        """Frames that the method prefills at once, None for what suits the model."""
        return None

    def layer_labels(self, layers: int) -> list[str]:
        """A word for the part that each of so many attention layers plays, from the lowest up; "" for no word."""
        return [""] * layers

    def guidance_prompts(self, layers: int) -> list[str]:
        """The text with which each of so many attention layers is asked what matters: HERMES' global one."""
        return [GLOBAL] * layers

    def held_at_most(self, opening_tokens: int, layers: int) -> list[int] | None:
        """Tokens that each of so many attention layers may hold after a step; None is no bound."""
        return None if self.budget is None else [self.budget] * layers

    def least_budget(self, chunk_tokens: int, opening_tokens: int, layers: int) -> int:
        """The smallest budget that works with chunks of this many tokens and so many attention layers."""
        return opening_tokens + chunk_tokens

    def check(self, chunk_tokens: int, opening_tokens: int, layers: int) -> None:
        """Raises LongtakeError, with the least that works, when the budget is too small."""
        if self.budget is None:
            return
        least = self.least_budget(chunk_tokens, opening_tokens, layers)
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
