"""Sinks and a sliding window: the first tokens and the newest ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from longtake.errors import LongtakeError
from longtake.memory import Keep, Memory
from longtake.policies.policy import Policy, sinks_and_window


@dataclass
class Recency(Policy):
    """Keeps the first `sinks` tokens and, with the rest of the budget, the newest ones.

    The eviction rule of StreamingLLM (arXiv 2309.17453), here with original positions kept: the paper
    renumbers positions inside the cache.

    Attributes:
        budget: all tokens held per attention layer after a step.
        sinks: attention sinks at the start of the stream; 4 as in StreamingLLM and DeltaS.
    """

    name: ClassVar[str] = "recency"
    line: ClassVar[str] = "first tokens (sinks) and the newest ones; what serving engines do"

    sinks: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sinks < 0:
            raise LongtakeError("sinks must be 0 or more.")

    def least_budget(self, chunk_tokens: int, opening_tokens: int, layers: int) -> int:
        return self.sinks + chunk_tokens

    def keep(self, memory: Memory) -> Keep | None:
        if self.budget is None or self._fits(memory):
            return None
        sink, newest = sinks_and_window(memory.ledger["index"], self.sinks, self.budget - self.sinks)
        return Keep.shared(torch.nonzero(sink | newest).squeeze(1))
