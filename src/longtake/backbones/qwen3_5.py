"""Qwen3.5: gated-delta and full attention 3:1, timestamps as text, interleaved M-RoPE on a part of each head."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.image_utils import SizeDict
from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize
from transformers.video_processing_utils import BaseVideoProcessor
from transformers.video_utils import VideoMetadata

from longtake.backbones.backbone import Backbone, Cursor, Segment
from longtake.errors import LongtakeError
from longtake.kv.ledger import Kind, Rows
from longtake.video.chunker import Chunk

TICKS = 1000
"""Frame times are told to the processor as frame indices at this many frames per second."""

FRAME_PIXELS = 128 * 32 * 32
"""Pixels of a frame at most, unless the checkpoint's own limit is lower: 128 tokens per temporal step at
patch 16 and merge 2, about what DeltaS uses (98-112 visual tokens per second)."""

_QUESTION = "\N{LEFT CEILING}question\N{RIGHT CEILING}"


class Qwen35(Backbone):
    """Chunk = temporal steps of two frames; each step is `<12.2 seconds>` and a grid of visual tokens.

    The prompt pieces come from the library: the chat template is rendered once and cut at the video, and
    each chunk's text (timestamp, wrapper, placeholders) is what the processor makes of that chunk. The
    frame size is fixed by the stream's first frame, since the processor's own resize depends on the number
    of frames; frames are never resampled, and timestamps are the frames' own.
    """

    family = "Qwen3.5"
    model_types = ("qwen3_5",)
    axes = 3

    def __init__(self, model: Any, processor: Any, name: str) -> None:
        super().__init__(model, processor, name)
        video = processor.video_processor
        self.frames_per_step = video.temporal_patch_size
        self.default_fps = float(video.fps or 2)
        self._wrapped = f"{processor.vision_start_token}{processor.video_token}{processor.vision_end_token}"
        before, after = self._chat(_QUESTION).split(self._wrapped)
        until_question, self._after_question = after.split(_QUESTION)
        self._opening_text = before + processor.vision_start_token
        self._closing_text = processor.vision_end_token + until_question

    def opening(self, cursor: Cursor) -> Segment:
        return self.text(self._ids(self._opening_text), cursor, Kind.SYSTEM)

    def closing(self, question: str, cursor: Cursor) -> Segment:
        self.check_question(question)
        return self.text(self._ids(self._closing_text + question + self._after_question), cursor)

    def fit(self, height: int, width: int) -> tuple[int, int]:
        """One temporal step is fitted, by the checkpoint's own rule, into the lower of its limit and ours."""
        video, steps = self.processor.video_processor, self.frames_per_step
        try:
            size: tuple[int, int] = smart_resize(
                num_frames=steps,
                height=height,
                width=width,
                temporal_factor=steps,
                factor=video.patch_size * video.merge_size,
                min_pixels=min(video.size["shortest_edge"], steps * FRAME_PIXELS),
                max_pixels=min(video.size["longest_edge"], steps * FRAME_PIXELS),
            )
        except ValueError as error:
            raise LongtakeError(f"Frames of {width}x{height} pixels cannot be encoded: {error}.") from error
        return size

    @torch.no_grad()
    def encode(self, chunk: Chunk, cursor: Cursor) -> Segment:
        frames = chunk.frames
        if cursor.frame_size is None:
            cursor.frame_size = self.fit(*frames[0].image.shape[:2])
        ticks = [round(frame.time * TICKS) for frame in frames]
        inputs = self.processor(
            text=[self._wrapped],
            videos=[self._resized(chunk, cursor.frame_size)],
            video_metadata=[VideoMetadata(total_num_frames=len(ticks), fps=TICKS, frames_indices=ticks)],
            do_sample_frames=False,
            do_resize=False,
            return_tensors="pt",
        )
        ids = inputs["input_ids"][:, 1:-1]  # without the outer wrapper, which encloses the whole stream
        features = self.model.model.get_video_features(
            inputs["pixel_values_videos"].to(self.device), inputs["video_grid_thw"].to(self.device)
        ).pooler_output
        visual = ids[0] == self.processor.video_token_id
        embeddings = self.embed(ids)
        embeddings[0, visual.to(self.device)] = torch.cat(tuple(features)).to(embeddings.dtype)
        merge = self.processor.video_processor.merge_size
        _, rows, columns = inputs["video_grid_thw"][0].tolist()
        facts = self._lay_out(visual, (rows // merge, columns // merge), chunk, cursor)
        cursor.frames += len(frames)
        cursor.time = frames[-1].time
        return Segment(embeddings, facts)

    def _lay_out(self, visual: Tensor, grid: tuple[int, int], chunk: Chunk, cursor: Cursor) -> Rows:
        """Positions and facts: text advances all axes by one, a grid by the larger of its sides.

        Within a grid time stands still, height and width count its rows and columns (the library's
        get_rope_index, with one running position instead of one pass over the whole prompt).
        """
        count, area = len(visual), grid[0] * grid[1]
        patch = torch.full((count,), -1)
        patch[visual] = torch.arange(int(visual.sum())) % area
        # A text token advances by one; the last token of a grid by the grid's larger side.
        advance = torch.where(visual, torch.where(patch == area - 1, max(grid), 0), 1)
        base = cursor.position + torch.cumsum(advance, 0) - advance
        inner = torch.stack((torch.zeros_like(patch), patch // grid[1], patch % grid[1]), dim=1)
        position = base[:, None] + torch.where(visual[:, None], inner, 0)
        cursor.position += int(advance.sum())

        # Each temporal step ends with the wrapper that closes its grid.
        ends = torch.cat((torch.zeros(1, dtype=torch.bool), (visual[:-1] & ~visual[1:])))
        step = torch.cumsum(ends, 0) - ends.long()
        step = step.clamp_(max=max(0, (len(chunk.frames) - 1) // self.frames_per_step))
        first = step * self.frames_per_step
        last = (first + self.frames_per_step - 1).clamp_(max=len(chunk.frames) - 1)
        times = torch.tensor([frame.time for frame in chunk.frames], dtype=torch.float64)
        return Rows(
            position=position,
            time=times[last],
            chunk=torch.full((count,), chunk.index),
            frame=cursor.frames + first,
            patch=patch,
            kind=torch.where(visual, int(Kind.VISUAL), int(Kind.TIMESTAMP)),
        )

    def _resized(self, chunk: Chunk, size: tuple[int, int]) -> Tensor:
        """Frames [n, 3, height, width] uint8, by the library's resize to a size that does not depend on n."""
        video = self.processor.video_processor
        resized = [
            BaseVideoProcessor.resize(
                video,
                torch.from_numpy(np.ascontiguousarray(frame.image)).permute(2, 0, 1)[None],
                size=SizeDict(height=size[0], width=size[1]),
                resample=video.resample,
            )
            for frame in chunk.frames
        ]
        return torch.cat(resized)

    def _chat(self, question: str) -> str:
        content = [{"type": "video"}, {"type": "text", "text": question}]
        # Answers come at once: where the template knows of thinking, it is switched off.
        quick = {"enable_thinking": False} if "enable_thinking" in str(self.processor.chat_template) else {}
        rendered: str = self.processor.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True, **quick
        )
        return rendered

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids
