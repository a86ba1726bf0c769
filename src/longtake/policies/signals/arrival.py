"""Scores that see nothing of the content: the time of arrival, and chance."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from longtake.memory import Memory
from longtake.policies.signals.signal import Signal, WrittenOnce
from longtake.trace import Trace


@dataclass
class Recency(Signal):
    """The newer the better."""

    name: ClassVar[str] = "recency"
    line: ClassVar[str] = "the time of arrival"

    def score(self, memory: Memory) -> Tensor:
        return memory.ledger["index"].double()


@dataclass
class Chance(WrittenOnce):
    """One number for each chunk, drawn once, which makes what is held a reservoir sample.

    Attributes:
        seed: of the draws.
    """

    name: ClassVar[str] = "random"
    line: ClassVar[str] = "one random number per chunk, drawn once"

    seed: int = 0

    def judge(self, memory: Memory, chunk: int, trace: Trace) -> float:
        return permanent_priority(self.seed, chunk)


def permanent_priority(seed: int, chunk: int) -> float:
    """In [0, 1), always the same for the same seed and chunk."""
    return random.Random(f"{seed}:{chunk}").random()
