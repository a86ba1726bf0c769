"""Qwen3-VL: timestamps as text, interleaved M-RoPE, visual features that enter several layers (deepstack)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize
from transformers.video_utils import VideoMetadata

from longtake.backbones.backbone import FRAME_PIXELS, Backbone, Cursor, Segment
from longtake.backbones.frames import resized
from longtake.backbones.prompt import split_prompt
from longtake.errors import LongtakeError
from longtake.kv.ledger import Kind, Rows
from longtake.video.chunker import Chunk

TICKS = 1000
"""Frame times are told to the processor as frame indices at this many frames per second."""


class Qwen3VL(Backbone):
    """Chunk = temporal steps of two frames; each step is `<12.2 seconds>` and a grid of visual tokens.

    The prompt pieces come from the library: the chat template is rendered once and cut at the video, and
    each chunk's text (timestamp, wrapper, placeholders) is what the processor makes of that chunk. The
    frame size is fixed by the stream's first frame, since the processor's own resize depends on the number
    of frames; frames are never resampled, and timestamps are the frames' own.
    """

    family = "Qwen3-VL"
    model_types = ("qwen3_vl", "qwen3_vl_moe")
    axes = 3
    positions = "M-RoPE, interleaved, timestamps as text"

    def __init__(self, model: Any, processor: Any, name: str) -> None:
        super().__init__(model, processor, name)
        video = processor.video_processor
        self.frames_per_step = video.temporal_patch_size
        self.default_fps = float(video.fps or 2)
        self._wrapped = f"{processor.vision_start_token}{processor.video_token}{processor.vision_end_token}"
        # The processor replaces only the inner placeholder, so the outer wrapper encloses the whole stream.
        around = processor.vision_start_token, processor.vision_end_token
        self.prompt = split_prompt(processor, self._wrapped, name).around_video(*around)

    def fit(self, height: int, width: int, frame_pixels: int = FRAME_PIXELS) -> tuple[int, int]:
        """One temporal step is fitted, by the checkpoint's own rule, into the lower of its limit and `frame_pixels`."""
        video, steps = self.processor.video_processor, self.frames_per_step
        try:
            size: tuple[int, int] = smart_resize(
                num_frames=steps,
                height=height,
                width=width,
                temporal_factor=steps,
                factor=video.patch_size * video.merge_size,
                min_pixels=min(video.size["shortest_edge"], steps * frame_pixels),
                max_pixels=min(video.size["longest_edge"], steps * frame_pixels),
            )
        except ValueError as error:
            raise LongtakeError(f"Frames of {width}x{height} pixels cannot be encoded: {error}.") from error
        return size

    @torch.no_grad()
    def encode(self, chunk: Chunk, cursor: Cursor) -> Segment:
        frames, size = chunk.frames, self.begin_chunk(chunk, cursor)
        ticks = [round(frame.time * TICKS) for frame in frames]
        inputs = self.processor(
            text=[self._wrapped],
            videos=[resized(chunk, size, self.processor.video_processor)],
            video_metadata=[VideoMetadata(total_num_frames=len(ticks), fps=TICKS, frames_indices=ticks)],
            do_sample_frames=False,
            do_resize=False,
            return_tensors="pt",
        )
        ids = inputs["input_ids"][:, 1:-1]  # without the outer wrapper
        vision = self.model.model.get_video_features(
            inputs["pixel_values_videos"].to(self.device), inputs["video_grid_thw"].to(self.device)
        )
        visual = ids[0] == self.processor.video_token_id
        embeddings = self.embed(ids)
        embeddings[0, visual.to(self.device)] = torch.cat(tuple(vision.pooler_output)).to(embeddings.dtype)
        merge = self.processor.video_processor.merge_size
        _, rows, columns = inputs["video_grid_thw"][0].tolist()
        facts = self._lay_out(visual, (rows // merge, columns // merge), chunk, cursor)
        cursor.frames += len(frames)
        cursor.time = frames[-1].time
        return Segment(embeddings, facts, self._extras(vision, visual))

    def _extras(self, vision: Any, visual: Tensor) -> Mapping[str, Any]:
        """Deepstack: features that are added to the visual tokens after the first decoder layers."""
        levels = [torch.cat(tuple(level)) for level in vision.deepstack_features]
        return {"visual_pos_masks": visual[None].to(self.device), "deepstack_visual_embeds": levels}

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
