"""InternVL3: frames that are numbered in words, `Frame7: <img>...</img>`, each one tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from longtake.backbones.frame_by_frame import FrameByFrame
from longtake.errors import LongtakeError

SAMPLES = (12, 3)
"""Frames of the clips from which the wording is learnt and checked: numbers of two digits, another length."""


@dataclass(frozen=True, slots=True)
class Wording:
    """The words around a stream's frames.

    Attributes:
        first: before the first frame; the 1 in it is the frame's number.
        between: from the end of one frame to the words before the next.
        after: after every frame.
    """

    first: str
    between: str
    after: str

    @classmethod
    def learn(cls, processor: Any, name: str) -> Wording:
        """From what the processor makes of short clips, since it numbers the frames of every call from 1.

        Raises:
            LongtakeError: when the frames' numbers are not all that changes.
        """
        texts = [processor.replace_video_token({"pixel_values_videos": [torch.empty(n, 0)]}, 0) for n in SAMPLES]
        tile = processor.image_token * processor.image_seq_length
        first, _, rest = texts[0].partition(tile)
        second, after = rest.partition(tile)[0], texts[0].rpartition(tile)[2]
        wording = cls(first, second.removeprefix(after).removesuffix(first.replace("1", "2")), after)
        if texts != ["".join(wording.before(i) + tile + after for i in range(n)) for n in SAMPLES]:
            raise LongtakeError(f"The processor of {name} does not number frames one by one; it cannot stream.")
        return wording

    def before(self, number: int) -> str:
        """The words before frame `number` of the stream, counted from 0."""
        return (self.between if number else "") + self.first.replace("1", str(number + 1))


class InternVL(FrameByFrame):
    """Visual tokens after pixel shuffle, on running positions; frame numbers run on through the stream."""

    family = "InternVL3"
    model_types = ("internvl",)
    positions = "one axis, frame numbers as text"

    def __init__(self, model: Any, processor: Any, name: str) -> None:
        super().__init__(model, processor, name)
        self.placeholder_id = processor.image_token_id
        self._wording = Wording.learn(processor, name)
        self._after = self.ids(self._wording.after)
        opening, first = self.prompt.opening, self._wording.before(0)
        if self.ids(opening + first) != self.ids(opening) + self.ids(first):
            raise LongtakeError(f"The tokenizer of {name} joins the prompt and the first frame; it cannot stream.")

    def around(self, number: int) -> tuple[Sequence[int], Sequence[int]]:
        return self.ids(self._wording.before(number)), self._after

    def features(self, pixels: Tensor) -> Tensor:
        features: Tensor = self.model.model.get_image_features(pixels).pooler_output
        return features
