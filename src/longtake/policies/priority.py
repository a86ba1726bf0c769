"""Permanent priorities: the rule behind the two honest controls, `uniform` and `random`."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch

from longtake.memory import Keep, Memory
from longtake.policies.policy import Policy
from longtake.policies.selection import whole_chunks
from longtake.probe import Probe
from longtake.trace import Trace

_COLUMN = "priority"


@dataclass
class PriorityPolicy(Policy):
    """Each chunk gets one priority for good when it arrives; the chunks with the highest ones stay, whole.

    Because priorities are never drawn again, what is held depends on the stream's length alone and not on
    how often was cut: repeated fresh draws (or repeated striding of what is left) would thin old chunks
    geometrically and be recency in disguise. The opening of the prompt always stays.

    Attributes:
        budget: all tokens held per attention layer after a step, at most (chunks are not split).
    """

    @abstractmethod
    def priority(self, chunk: int) -> float:
        """The priority of chunk number `chunk` (0, 1, 2, ...), in (0, 1)."""

    def begin(self, memory: Memory, probe: Probe) -> None:
        super().begin(memory, probe)
        memory.ledger.add_score(_COLUMN, 2.0)  # the opening comes before every chunk

    def observe(self, memory: Memory, chunk: int, trace: Trace) -> None:
        ledger = memory.ledger
        ledger[_COLUMN][ledger["chunk"] == chunk] = self.priority(chunk)

    def keep(self, memory: Memory) -> Keep | None:
        if self.budget is None or self._fits(memory):
            return None
        ledger = memory.ledger
        chosen = whole_chunks(ledger["chunk"], ledger[_COLUMN], self.budget)
        return Keep.shared(torch.nonzero(chosen).squeeze(1))
