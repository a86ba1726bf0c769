"""LLaVA-OneVision: frames without words between them, and one learned newline after the last."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from longtake.backbones.backbone import Cursor, Segment
from longtake.backbones.frame_by_frame import FrameByFrame


class LlavaOneVision(FrameByFrame):
    """Visual tokens alone, pooled two by two, on running positions.

    The library ends the features of every call with the newline embedding. A stream ends only where a
    question cuts it, so the newline comes with the question and is rolled back with it.
    """

    family = "LLaVA-OneVision"
    model_types = ("llava_onevision",)

    def __init__(self, model: Any, processor: Any, name: str) -> None:
        super().__init__(model, processor, name)
        self.placeholder_id = processor.video_token_id
        self.end_ids = (self.placeholder_id,)

    def closing(self, question: str, cursor: Cursor) -> Segment:
        segment = super().closing(question, cursor)
        segment.embeddings[:, 0] = self.model.model.image_newline
        return segment

    def features(self, pixels: Tensor) -> Tensor:
        ended: Tensor = self.model.model.get_video_features(pixels[:, None]).pooler_output  # one video per frame
        return ended[:, :-1]
