"""Qwen2-VL: one run of visual tokens for the whole stream, without timestamps; M-RoPE counts its grids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import smart_resize

from longtake.backbones.backbone import FRAME_PIXELS, Backbone, Cursor, Segment
from longtake.backbones.frames import resized
from longtake.backbones.prompt import split_prompt
from longtake.errors import LongtakeError
from longtake.kv.ledger import Kind, Rows
from longtake.video.chunker import Chunk

TextPositions = Literal["reference", "hf"]


@dataclass(slots=True)
class GridCursor(Cursor):
    """A cursor that also knows where the video began, since every grid is placed from there.

    Attributes:
        origin: position of the first visual token, where the rows and columns of each grid begin.
        time_origin: temporal position from which grids are counted; apart from `origin` once tokens were moved.
        newest: temporal position of the newest grid.
        start_time: seconds of the first frame.
        largest: largest position of a visual token so far, on any axis.
    """

    origin: int = 0
    time_origin: int = 0
    newest: int = 0
    start_time: float = 0.0
    largest: int = -1

    @property
    def reach(self) -> int:
        return max(self.position, self.largest)


class Qwen2VL(Backbone):
    """Chunk = grids of two frames; all grids lie side by side between one `<|vision_start|>` and one `<|vision_end|>`.

    The opening ends with the start, every closing begins with the end. A visual token stands at the video's
    origin plus (time, row, column), time being the number of its grid; frames are never resampled, and
    their size is fixed by the stream's first.

    Args:
        text_positions: where text goes on after the video. "reference", as in the models' first code: after
            the largest position so far. "hf", as the library's `generate` has it today: after the larger side
            of a grid, so that question and answer stand among the video's own times.
    """

    family = "Qwen2-VL"
    model_types = ("qwen2_vl",)
    axes = 3
    positions = "M-RoPE, time by the number of the grid"

    def __init__(self, model: Any, processor: Any, name: str, text_positions: TextPositions = "reference") -> None:
        super().__init__(model, processor, name)
        if text_positions not in get_args(TextPositions):
            raise LongtakeError(f"text_positions must be 'reference' or 'hf', not {text_positions!r}.")
        self.text_positions = text_positions
        video = processor.video_processor
        self.frames_per_step = video.temporal_patch_size
        self.default_fps = float(getattr(video, "fps", None) or 2)
        # Where the processor has this option, leaving it open makes it warn.
        self._uncapped = {"cap_pixels_per_frame": False} if hasattr(video, "cap_pixels_per_frame") else {}
        start, end = self.tokenizer.convert_ids_to_tokens(
            [model.config.vision_start_token_id, model.config.vision_end_token_id]
        )
        self.prompt = split_prompt(processor, f"{start}{processor.video_token}{end}", name).around_video(start, end)

    def new_cursor(self) -> GridCursor:
        return GridCursor()

    def shift(self, cursor: Cursor, amount: int) -> None:
        assert isinstance(cursor, GridCursor)
        super().shift(cursor, amount)
        cursor.origin += amount
        cursor.time_origin += amount
        cursor.newest += amount
        cursor.largest += amount

    def resume(self, cursor: Cursor, reach: Tensor) -> None:
        """The next grid is as far from the latest time held as it would have been from the newest grid."""
        assert isinstance(cursor, GridCursor)
        cursor.time_origin += int(reach[0]) - cursor.newest
        cursor.newest, cursor.largest = int(reach[0]), int(reach.max())
        if self.text_positions == "reference":
            cursor.position = cursor.largest + 1

    @property
    def advancing_axes(self) -> Sequence[int]:
        return (0,)

    def fit(self, height: int, width: int, frame_pixels: int = FRAME_PIXELS) -> tuple[int, int]:
        """One frame is fitted, by the checkpoint's own rule, into the lower of its limit and `frame_pixels`."""
        video = self.processor.video_processor
        try:
            size: tuple[int, int] = smart_resize(
                height,
                width,
                factor=video.patch_size * video.merge_size,
                min_pixels=min(video.size["shortest_edge"], frame_pixels),
                max_pixels=min(video.size["longest_edge"], frame_pixels),
            )
        except ValueError as error:
            raise LongtakeError(f"Frames of {width}x{height} pixels cannot be encoded: {error}.") from error
        return size

    @torch.no_grad()
    def encode(self, chunk: Chunk, cursor: Cursor) -> Segment:
        assert isinstance(cursor, GridCursor)
        frames, video = chunk.frames, self.processor.video_processor
        size = self.begin_chunk(chunk, cursor)
        if cursor.frames == 0:
            cursor.origin = cursor.time_origin = cursor.position
            cursor.start_time = frames[0].time
        inputs = video(
            videos=[resized(chunk, size, video)],
            do_sample_frames=False,
            do_resize=False,
            return_tensors="pt",
            **self._uncapped,
        )
        grid = inputs["video_grid_thw"]
        vision = self.model.model.get_video_features(
            inputs["pixel_values_videos"].to(self.device), grid.to(self.device)
        )
        embeddings = torch.cat(tuple(vision.pooler_output))[None].to(self.language_model.embed_tokens.weight.dtype)
        steps, rows, columns = grid[0].tolist()
        facts = self._lay_out((steps, rows // video.merge_size, columns // video.merge_size), chunk, cursor)
        cursor.frames += len(frames)
        cursor.time = frames[-1].time
        return Segment(embeddings, facts)

    def _temporal(self, number: Tensor, seconds: Tensor) -> Tensor:
        """Temporal positions [n], from the origin, of grids with these numbers and seconds since the first frame.

        Here time is a mere count: the model has no other notion of it, whatever the frame rate.
        """
        return number

    def _lay_out(self, grid: tuple[int, int, int], chunk: Chunk, cursor: GridCursor) -> Rows:
        """Positions and facts of a chunk's grids [steps, rows, columns], and where text would go on after them."""
        height, width = grid[1:]
        step, row, column = torch.cartesian_prod(*(torch.arange(side) for side in grid)).unbind(1)
        first = step * self.frames_per_step
        last = (first + self.frames_per_step - 1).clamp_(max=len(chunk.frames) - 1)
        times = torch.tensor([frame.time for frame in chunk.frames], dtype=torch.float64)
        number = cursor.frames // self.frames_per_step + step
        temporal = self._temporal(number, times[first] - cursor.start_time)
        place = torch.stack((temporal, row, column), dim=1)
        position = place + torch.tensor([cursor.time_origin, cursor.origin, cursor.origin])
        cursor.newest = int(position[:, 0].max())
        cursor.largest = max(cursor.largest, int(position.max()))
        resume = {"reference": cursor.largest + 1, "hf": cursor.origin + max(height, width)}
        cursor.position = resume[self.text_positions]
        count = len(step)
        return Rows(
            position=position,
            time=times[last],
            chunk=torch.full((count,), chunk.index),
            frame=cursor.frames + first,
            patch=row * width + column,
            kind=torch.full((count,), int(Kind.VISUAL)),
        )
