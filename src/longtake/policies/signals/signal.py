"""The contract of a signal, and how the many heads of a model come to one score per token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from longtake.memory import Memory
from longtake.probe import Probe
from longtake.trace import Sight, Trace

SETTLED = float("inf")
"""The score of what must stay: the prompt's opening, and what cannot be judged yet."""


@dataclass
class Signal(ABC):
    """What a token is worth; which tokens stay is a rule's matter. One instance serves one stream.

    All attention layers hold the same rows and get one score per token. Where a signal is a matter of heads, each
    head's scores are brought to mean 0 and deviation 1 over the tokens held, and averaged over heads and layers.
    """

    name: ClassVar[str]
    line: ClassVar[str]
    """One line for listings."""
    sights: ClassVar[frozenset[Sight]] = frozenset()
    needs_recurrent_states: ClassVar[bool] = False

    def begin(self, memory: Memory, probe: Probe) -> None:
        """Called once, with the opening held and no frame yet."""
        self._probe = probe

    def observe(self, memory: Memory, chunk: int, trace: Trace) -> None:  # noqa: B027
        """Called after chunk number `chunk` came in."""

    @abstractmethod
    def score(self, memory: Memory) -> Tensor:
        """float64 [rows held] on the CPU, larger is better; nan for rows that the signal has nothing to say about."""


class WrittenOnce(Signal):
    """A signal that is final when a chunk comes in, and kept in a column of the ledger."""

    def begin(self, memory: Memory, probe: Probe) -> None:
        super().begin(memory, probe)
        memory.ledger.add_score(self.name, self.opening(memory))

    def opening(self, memory: Memory) -> float:
        """The score of the prompt's opening, which is held, and nothing else yet."""
        return SETTLED

    def observe(self, memory: Memory, chunk: int, trace: Trace) -> None:
        ledger = memory.ledger
        ledger[self.name][ledger["chunk"] == chunk] = self.judge(memory, chunk, trace)

    @abstractmethod
    def judge(self, memory: Memory, chunk: int, trace: Trace) -> float | Tensor:
        """The score of the chunk, or of each of its tokens in order."""

    def score(self, memory: Memory) -> Tensor:
        return memory.ledger[self.name]


def over_heads(layers: Sequence[Tensor], among: Tensor | None = None) -> Tensor:
    """One float64 score per token [n] from each layer's scores of its heads [heads, n].

    Args:
        among: mask [n] of the tokens that are compared; the others become nan.
    """
    scores = torch.cat([layer.cpu().double() for layer in layers])
    if among is None:
        among = torch.ones(scores.shape[1], dtype=torch.bool)
    compared = scores[:, among]
    spread = compared.std(dim=1, correction=0, keepdim=True).clamp_min(1e-12)
    result = torch.full((scores.shape[1],), float("nan"), dtype=torch.float64)
    result[among] = ((compared - compared.mean(dim=1, keepdim=True)) / spread).mean(dim=0)
    return result
