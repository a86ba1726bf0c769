"""Frames unlike the one before, by what the vision tower made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from longtake.memory import Memory
from longtake.policies.signals.signal import WrittenOnce
from longtake.probe import Probe
from longtake.trace import Trace


@dataclass
class FrameRedundancy(WrittenOnce):
    """1 - cos(mean feature of the chunk, mean feature of the newest chunk before it that is still held), one score per
    chunk."""

    name: ClassVar[str] = "frames"
    line: ClassVar[str] = "chunks whose features differ from those of the chunk held before"
    sights: ClassVar = frozenset({"features"})

    def begin(self, memory: Memory, probe: Probe) -> None:
        super().begin(memory, probe)
        self._features: dict[int, Tensor] = {}  # of the newest chunks, by number

    def judge(self, memory: Memory, chunk: int, trace: Trace) -> float:
        assert trace.features is not None
        held = set(memory.ledger["chunk"].tolist())
        before = max((number for number in self._features if number < chunk and number in held), default=None)
        feature = trace.features.float().mean(dim=0)
        if before is None:
            self._features = {chunk: feature}
            return 1.0
        self._features = {before: self._features[before], chunk: feature}
        return 1.0 - float(torch.clamp(F.cosine_similarity(feature, self._features[before], dim=0), -1, 1))
