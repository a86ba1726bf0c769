"""Grouping frames into chunks of the size that a model takes in one step."""

import math
from dataclasses import dataclass

import numpy as np

from longtake.errors import LongtakeError
from longtake.video.frame import Frame


@dataclass(frozen=True, slots=True)
class Chunk:
    """Frames that enter the model together.

    frames: in order of time, at least one.
    index: how many chunks of the stream came before.
    """

    frames: tuple[Frame, ...]
    index: int

    @property
    def start(self) -> float:
        """Time of the first frame, in seconds."""
        return self.frames[0].time

    @property
    def end(self) -> float:
        """Time of the last frame, in seconds (when it was seen, not when it stopped being shown)."""
        return self.frames[-1].time


class Chunker:
    """Collects the frames of one stream and hands them out in chunks of `frames_per_chunk`.

    Raises LongtakeError when `frames_per_chunk` is not a whole number above 0.
    """

    def __init__(self, frames_per_chunk: int) -> None:
        whole = isinstance(frames_per_chunk, int) and not isinstance(frames_per_chunk, bool)
        if not whole or frames_per_chunk < 1:
            raise LongtakeError(f"A chunk must hold a whole number of frames above 0, not {frames_per_chunk!r}.")
        self.frames_per_chunk = frames_per_chunk
        self._pending: list[Frame] = []
        self._chunks = 0
        self._last: float | None = None
        self._chunk_end: float | None = None  # time of the last frame that went into a chunk
        self._before: float | None = None  # the same, before the newest chunk

    @property
    def time(self) -> float | None:
        """Time of the newest frame in seconds; None before the first."""
        return self._last

    @property
    def pending(self) -> tuple[Frame, ...]:
        """Frames that wait for their chunk to fill, oldest first."""
        return tuple(self._pending)

    def push(self, frame: Frame) -> Chunk | None:
        """Take one frame; return the chunk that it completes, if it does.

        Raises LongtakeError, changing nothing, when the time is not finite or not above the last one's,
        or when the image is not uint8 [height, width, 3].
        """
        _check_image(frame)
        if not math.isfinite(frame.time):
            raise LongtakeError(f"A frame's time must be a finite number of seconds, not {frame.time}.")
        if self._last is not None and frame.time <= self._last:
            raise LongtakeError(
                f"Frames must come in order of time, but one at {frame.time} s follows one at {self._last} s."
            )
        self._last = frame.time
        self._pending.append(frame)
        if len(self._pending) < self.frames_per_chunk:
            return None
        chunk = Chunk(tuple(self._pending), self._chunks)
        self._pending.clear()
        self._chunks += 1
        self._before, self._chunk_end = self._chunk_end, self._last
        return chunk

    def put_back(self, chunk: Chunk) -> None:
        """Undo the push that completed `chunk`, the newest: its last frame was not taken, the others wait."""
        self._pending = list(chunk.frames[:-1])
        self._chunks = chunk.index
        self._chunk_end = self._before
        self._last = self._pending[-1].time if self._pending else self._chunk_end


def _check_image(frame: Frame) -> None:
    image = frame.image
    if not isinstance(image, np.ndarray):
        raise LongtakeError(f"A frame's image must be a numpy array, not {type(image).__name__}.")
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise LongtakeError(
            "A frame's image must be uint8 with the shape [height, width, 3], "
            f"not {image.dtype} with the shape {list(image.shape)}."
        )
