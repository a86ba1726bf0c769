"""Qwen2.5-VL: Qwen2-VL's prompt, with temporal positions that follow the clock."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from longtake.backbones.qwen2_vl import Qwen2VL, TextPositions


class Qwen25VL(Qwen2VL):
    """As Qwen2-VL, but a grid's temporal position is its first frame's time at the checkpoint's `tokens_per_second`.

    It is rounded down, so grids that come faster share a position, as they do in the library: above
    `temporal_patch_size * tokens_per_second` frames a second the model cannot tell such moments apart.
    """

    family = "Qwen2.5-VL"
    model_types = ("qwen2_5_vl",)
    positions = "M-RoPE, time by the frames' own times"

    def __init__(self, model: Any, processor: Any, name: str, text_positions: TextPositions = "reference") -> None:
        super().__init__(model, processor, name, text_positions)
        self.tokens_per_second = model.config.vision_config.tokens_per_second

    def _temporal(self, number: Tensor, seconds: Tensor) -> Tensor:
        """floor(number * (tokens_per_second * seconds per grid)), in float32 as the library rounds it.

        The library knows one spacing per clip, from a nominal rate. A stream's grids have times, so the
        spacing is the mean up to each grid: for regular frames that is the library's own number, and for
        irregular ones number times mean is the grid's true time. A chunk's frames never set it alone.
        """
        spacing = (seconds / number.clamp(min=1)).float()
        position: Tensor = (number * (self.tokens_per_second * spacing)).long()
        return position
