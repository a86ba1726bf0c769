"""LagKV: tokens that stand out from the range of the tokens that follow (arXiv 2504.04704)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from longtake.memory import Memory
from longtake.policies.signals.signal import SETTLED, Signal
from longtake.probe import Probe
from longtake.trace import Trace


@dataclass
class Lag(Signal):
    """Each chunk is judged once, when the next one is there, as a token's rank within its chunk, 0 to 1.

    Keys and values are scaled per channel by the range that the next chunk spans; the deviation over channels, through
    a softmax over the chunk, is a head's score; keys and values, heads and layers are averaged. Ranks, as published,
    keep the same share of every chunk. Until the next chunk is there a chunk must stay.
    """

    name: ClassVar[str] = "lagkv"
    line: ClassVar[str] = "tokens outside the range of the next chunk's, ranked within their chunk (LagKV)"

    def begin(self, memory: Memory, probe: Probe) -> None:
        super().begin(memory, probe)
        memory.ledger.add_score(self.name, SETTLED)

    def observe(self, memory: Memory, chunk: int, trace: Trace) -> None:
        ledger = memory.ledger
        before, after = (ledger["chunk"] == chunk - 1, ledger["chunk"] == chunk)
        if chunk == 0 or not before.any():
            return
        heads = [
            lag_score(part[0].float()[:, before.to(part.device)], part[0].float()[:, after.to(part.device)]).mean(dim=0)
            for slab in memory.slabs
            for part in (slab.keys, slab.values)
        ]
        score = torch.stack([head.cpu() for head in heads]).mean(dim=0)
        ranks = score.argsort().argsort().double() / max(len(score) - 1, 1)
        ledger[self.name][before] = ranks

    def score(self, memory: Memory) -> Tensor:
        return memory.ledger[self.name]


def lag_score(states: Tensor, following: Tensor) -> Tensor:
    """[heads, n] of keys or values [heads, n, dim], given those [heads, m, dim] of the partition that follows."""
    low, high = following.amin(dim=1, keepdim=True), following.amax(dim=1, keepdim=True)
    scaled = (states - low) / (high - low).clamp_min(torch.finfo(states.dtype).tiny)
    return scaled.std(dim=-1).softmax(dim=-1)
