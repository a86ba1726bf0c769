"""VaN: tokens with large values (InfiniPot-V, arXiv 2506.15745)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from longtake.memory import Memory
from longtake.policies.signals.signal import Signal, over_heads


@dataclass
class ValueNorm(Signal):
    """||v||_2 of each token, per head. Values bear no position; an output gate (Qwen3.5) is not seen."""

    name: ClassVar[str] = "van"
    line: ClassVar[str] = "the norm of the values (VaN of InfiniPot-V)"

    def score(self, memory: Memory) -> Tensor:
        return over_heads([slab.values[0].float().norm(dim=-1) for slab in memory.slabs])
