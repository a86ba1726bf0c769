"""Reservoir random: every chunk of the stream so far is held with the same probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from longtake.policies.priority import PriorityPolicy
from longtake.policies.signals.arrival import permanent_priority


@dataclass
class Random(PriorityPolicy):
    """Keeps the chunks with the highest of permanent random priorities: a reservoir sample.

    Attributes:
        seed: of the priorities; the same seed keeps the same chunks.
    """

    name: ClassVar[str] = "random"
    line: ClassVar[str] = "a reservoir sample of all chunks so far (a control)"

    seed: int = 0

    def priority(self, chunk: int) -> float:
        return permanent_priority(self.seed, chunk)
