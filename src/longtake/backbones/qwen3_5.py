"""Qwen3.5: Qwen3-VL's prompts and positions over a hybrid of gated-delta and full attention, 3:1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from longtake.backbones.qwen3_vl import Qwen3VL


class Qwen35(Qwen3VL):
    """As Qwen3-VL, but visual features enter the first layer alone, and rotary positions turn a part of each head."""

    family = "Qwen3.5"
    model_types = ("qwen3_5", "qwen3_5_moe")
    attention = "gated delta and full, 3:1"
    positions = "M-RoPE, interleaved, on a part of each head, timestamps as text"

    def _extras(self, vision: Any, visual: Tensor) -> Mapping[str, Any]:
        return {}
