"""A stream encoded once, to be watched again under any policy without its frames."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np
import torch

from longtake.backbones.backbone import Backbone, Cursor, Segment
from longtake.kv.ledger import Kind, Rows
from longtake.session import Session
from longtake.video.chunker import Chunk
from longtake.video.frame import Frame

_NOTHING = np.zeros((1, 1, 3), dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Recording:
    """What one model's vision tower made of a stream, temporal step by temporal step.

    Attributes:
        times: seconds of all frames.
        cursors: the stream's cursor before the first step and after each, as if nothing had ever moved.
        segments: of each step. Chunks of several steps are these one after the other.
    """

    backbone: Backbone
    times: tuple[float, ...]
    cursors: tuple[Cursor, ...]
    segments: tuple[Segment, ...]

    @classmethod
    def of(
        cls, backbone: Backbone, frames: Iterable[Frame], on_frame: Callable[[float], None] = lambda time: None
    ) -> Recording:
        """Encode frames, which may be made as they are asked for; a rest that fills no temporal step is left out."""
        cursor = backbone.new_cursor()
        backbone.opening(cursor)
        times: list[float] = []
        cursors, segments = [replace(cursor)], list[Segment]()
        waiting: list[Frame] = []
        for frame in frames:
            waiting.append(frame)
            on_frame(frame.time)
            if len(waiting) == backbone.frames_per_step:
                segments.append(backbone.encode(Chunk(tuple(waiting), len(segments)), cursor))
                cursors.append(replace(cursor))
                times += [shown.time for shown in waiting]
                waiting = []
        return cls(backbone, tuple(times), tuple(cursors), tuple(segments))

    @property
    def fps(self) -> float:
        """Frames per second."""
        return self.backbone.default_fps

    @property
    def tells_time(self) -> bool:
        """Whether the model is told in words when a frame was taken."""
        return bool(self.segments) and bool((self.segments[0].rows.kind == int(Kind.TIMESTAMP)).any())

    def knows(self, text: str) -> bool:
        """Whether the model has a token for each word of a text, as models of the toy world have; others have pieces of
        words and know all."""
        tokens = self.backbone.tokenizer.tokenize(text)
        return len(tokens) >= len(text.split())

    @property
    def tokens(self) -> int:
        """Tokens of the whole stream, the prompt's opening aside."""
        return sum(map(len, self.segments))

    def watched_by(self) -> Backbone:
        """The same model, for sessions that watch this recording: it takes chunks from here instead of encoding."""
        twin = copy.copy(self.backbone)
        twin.encode = self._encode  # type: ignore[method-assign]
        return twin

    def push_into(self, session: Session, on_frame: Callable[[float], None] = lambda time: None) -> None:
        """Let a session watch the recording from begin to end; its backbone must be `watched_by()`."""
        for time in self.times:
            session.push(_NOTHING, time)
            on_frame(time)

    def _encode(self, chunk: Chunk, cursor: Cursor) -> Segment:
        steps = self.backbone.frames_per_step
        first, last = cursor.frames // steps, (cursor.frames + len(chunk.frames)) // steps
        # Whatever moved positions since moved the whole stream.
        amount = cursor.position - self.cursors[first].position
        parts = []
        for before, after in pairwise(range(first, last + 1)):
            segment = self.segments[before]
            rows = replace(
                segment.rows,
                position=segment.rows.position + amount,
                chunk=torch.full_like(segment.rows.chunk, chunk.index),
            )
            parts.append(replace(segment, rows=rows))
            there = replace(self.cursors[before])
            self.backbone.shift(there, amount)
            if there != cursor:
                raise RuntimeError(f"the recording was made at {there}, the stream stands at {cursor}")
            for field in fields(cursor):
                setattr(cursor, field.name, getattr(self.cursors[after], field.name))
            self.backbone.shift(cursor, amount)
        if len(parts) == 1:
            return parts[0]
        if any(part.extras for part in parts):
            raise RuntimeError("a recording of features that enter several layers is watched step by step")
        return Segment(torch.cat([part.embeddings for part in parts], dim=1), Rows.joined([p.rows for p in parts]))
