"""What families share whose vision tower sees each frame alone, at one size, and whose positions have one axis."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from longtake.backbones.backbone import FRAME_PIXELS, Backbone, Cursor, Segment
from longtake.backbones.frames import resized
from longtake.backbones.prompt import split_prompt
from longtake.kv.ledger import Kind
from longtake.video.chunker import Chunk


class FrameByFrame(Backbone):
    """Chunk = any number of frames; each is a fixed number of visual tokens, with words around them or without.

    Frames are stretched to the checkpoint's one size by the library's resize, whatever their shape. The
    rotary position counts every token, so it grows as fast as the stream's tokens do.
    """

    axes = 1
    positions = "one axis"
    frames_per_step = 1
    placeholder_id: int
    """The token in whose place a visual feature stands."""
    end_ids: Sequence[int] = ()
    """Tokens that end the video; a question brings them along, since until then it goes on."""

    def __init__(self, model: Any, processor: Any, name: str) -> None:
        super().__init__(model, processor, name)
        # These processors name no rate; one frame a second, then, is our choice.
        self.default_fps = float(processor.video_processor.fps or 1)
        self.prompt = split_prompt(processor, processor.video_token, name)

    @abstractmethod
    def features(self, pixels: Tensor) -> Tensor:
        """Visual tokens [frames, n, hidden] of normalized pixels [frames, 3, height, width]."""

    def around(self, number: int) -> tuple[Sequence[int], Sequence[int]]:
        """Token ids before and after the visual tokens of the stream's frame `number`, counted from 0."""
        return (), ()

    def closing(self, question: str, cursor: Cursor) -> Segment:
        words = self.ids(self.prompt.before_question + question + self.prompt.after_question)
        return self.text([*self.end_ids, *words], cursor)

    def fit(self, height: int, width: int, frame_pixels: int = FRAME_PIXELS) -> tuple[int, int]:
        """The one size that the vision tower takes."""
        size = self.processor.video_processor.size
        return size["height"], size["width"]

    @torch.no_grad()
    def encode(self, chunk: Chunk, cursor: Cursor) -> Segment:
        video, count = self.processor.video_processor, len(chunk.frames)
        pictures = resized(chunk, self.begin_chunk(chunk, cursor), video)
        pixels = video(videos=[pictures], do_resize=False, do_sample_frames=False, return_tensors="pt")
        features = self.features(pixels["pixel_values_videos"][0].to(self.device))
        patches = range(features.shape[1])
        ids: list[int] = []
        places: list[tuple[int, int]] = []  # of each token: frame of the chunk, patch
        for i in range(count):
            before, after = self.around(cursor.frames + i)
            ids += [*before, *(self.placeholder_id for _ in patches), *after]
            places += [(i, patch) for patch in (*(-1 for _ in before), *patches, *(-1 for _ in after))]
        frame, patch = torch.tensor(places).T
        visual = patch >= 0
        plain = self.text(ids, cursor)
        plain.embeddings[0, visual.to(self.device)] = features.flatten(0, 1).to(plain.embeddings.dtype)
        rows = replace(
            plain.rows,
            time=torch.tensor([shown.time for shown in chunk.frames], dtype=torch.float64)[frame],
            chunk=torch.full_like(frame, chunk.index),
            frame=cursor.frames + frame,
            patch=patch,
            kind=torch.where(visual, int(Kind.VISUAL), int(Kind.TIMESTAMP)),
        )
        cursor.frames += count
        cursor.time = chunk.end
        return Segment(plain.embeddings, rows)
