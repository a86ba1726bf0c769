"""Qwen3.5: Qwen3-VL's prompts and positions over a hybrid of gated-delta and full attention, 3:1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache

from longtake.backbones.backbone import Segment
from longtake.backbones.kernels import REFERENCE
from longtake.backbones.qwen3_vl import Qwen3VL

_REFERENCE_BLOCK = 64  # tokens to which the library's reference of the delta rule fills a sequence up


class Qwen35(Qwen3VL):
    """As Qwen3-VL, but visual features enter the first layer alone, and rotary positions turn a part of each head."""

    family = "Qwen3.5"
    model_types = ("qwen3_5", "qwen3_5_moe")
    attention = "gated delta and full, 3:1"
    positions = "M-RoPE, interleaved, on a part of each head, timestamps as text"

    def __init__(self, model: Any, processor: Any, name: str) -> None:
        super().__init__(model, processor, name)
        self._reference = self.kernels.get("gated delta rule") == REFERENCE

    def forward(self, segment: Segment, cache: Cache) -> Tensor:
        if self._reference and len(segment) < _REFERENCE_BLOCK:
            # The library's reference takes a step in Python for each token of a block, filled up or not.
            segment = replace(segment, extras={**segment.extras, "chunk_size": len(segment)})
        return super().forward(segment, cache)

    def _extras(self, vision: Any, visual: Tensor) -> Mapping[str, Any]:
        return {}
