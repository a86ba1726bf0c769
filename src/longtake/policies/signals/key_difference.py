"""KeyDiff: tokens whose keys differ from the mean key (arXiv 2504.15364)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from longtake.memory import Memory
from longtake.policies.signals.signal import Signal, over_heads


@dataclass
class KeyDifference(Signal):
    """-cos(k, mean of the unit keys held), per head, of keys as they were before rotation."""

    name: ClassVar[str] = "keydiff"
    line: ClassVar[str] = "keys unlike the mean of all keys held (KeyDiff)"

    def score(self, memory: Memory) -> Tensor:
        return over_heads([key_difference(keys) for keys in memory.unturned_keys()])


def key_difference(keys: Tensor) -> Tensor:
    """[heads, n] of keys [heads, n, dim]."""
    anchor = F.normalize(keys, dim=-1).mean(dim=1, keepdim=True)
    return -F.cosine_similarity(keys, anchor, dim=-1)
