"""Choosing frames by their time, so that an irregular source is sampled as truly as a regular one."""

import math

from longtake.errors import LongtakeError

# Containers round times (Matroska to whole milliseconds), so a frame may seem to come this much too early.
_EARLY_SECONDS = 1e-3
_EARLY_SHARE = 0.25  # of the sampling interval, for rates so high that a millisecond is most of it


class Sampler:
    """Takes at most `fps` frames a second from one stream.

    A frame is taken when it is the first to reach the moment that is due. The moments are k / fps seconds;
    the first frame is always taken. A source slower than `fps` loses no frame. After a gap in the source the
    moments inside the gap are forgotten, so no burst of frames makes up for them.
    Any span of W seconds holds fewer than W * fps + 2.25 taken frames.

    Raises LongtakeError when `fps` is not a finite number above 0.
    """

    def __init__(self, fps: float) -> None:
        if not (math.isfinite(fps) and fps > 0):
            raise LongtakeError(f"The sampling rate must be above 0 frames per second, not {fps}.")
        self.fps = float(fps)
        self._early = min(_EARLY_SECONDS, _EARLY_SHARE / self.fps)
        self._due: int | None = None  # number k of the next due moment; None before the first frame

    def takes(self, time: float) -> bool:
        """Whether to take the frame at `time` (seconds); a frame that is taken moves the due moment on.

        Raises LongtakeError, changing nothing, when `time` is not finite.
        """
        if not math.isfinite(time):
            raise LongtakeError(f"A frame's time must be a finite number of seconds, not {time}.")
        if self._due is None:
            self._due = math.floor(time * self.fps) + 1
            return True
        if time < self._due / self.fps - self._early:
            return False
        self._due = max(self._due, math.floor(time * self.fps)) + 1
        return True
