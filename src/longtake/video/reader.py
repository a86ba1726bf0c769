"""Reading a video file from front to back."""

import math
import os
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain
from types import TracebackType
from typing import Self

import av

from longtake.errors import LongtakeError
from longtake.video.clock import Clock
from longtake.video.frame import Frame
from longtake.video.opening import open_video
from longtake.video.sampler import Sampler
from longtake.video.upright import upright_image, upright_size

_FAILURES_IN_A_ROW = 16  # unreadable places after which the rest of the file is given up
_SEEK_FROM_SECONDS = 2.0  # a shorter way is decoded: a seek would hardly save time
_PLAUSIBLE_FPS = 1000  # containers that know no frame rate state their time base instead


def read_video(
    path: str | os.PathLike[str], fps: float | None = None, *, start: float = 0.0, until: float | None = None
) -> "VideoReader":
    """Open a video file to iterate over its frames; see VideoReader."""
    return VideoReader(path, fps, start=start, until=until)


class VideoReader:
    """The frames of one video file, in order of time, read once.

    Decoding is sequential and holds one frame at a time (plus what the codec itself needs). Only frames that
    are yielded are converted to RGB. Times are seconds since the file's first frame. The file is closed when
    the iteration ends, stops early or fails, at the end of a `with` block, and by `close()`.

    path: a regular file.
    fps: frames per second to take, by time (see Sampler); None takes every frame.
    start: frames before this time, in seconds, are left out.
    until: frames after this time, in seconds, are left out; None reads to the end.

    Raises LongtakeError when the file cannot be read, has no video track or no frame that can be decoded,
    when an argument makes no sense, and during the iteration when `start` lies after the last frame.
    """

    width: int  # of the first frame, upright, in pixels; a stream may change its size on the way
    height: int
    duration: float | None  # seconds, as the container claims: a hint, often missing or wrong
    source_fps: float | None  # frames per second, as the container claims: a hint
    decode_errors: int  # packets that could not be read or decoded, and frames that came out damaged
    frames_decoded: int  # frames that came out of the decoder, taken or not

    def __init__(
        self,
        path: str | os.PathLike[str],
        fps: float | None = None,
        *,
        start: float = 0.0,
        until: float | None = None,
    ) -> None:
        if not (math.isfinite(start) and start >= 0):
            raise LongtakeError(f"The start must be a number of seconds from 0 on, not {start}.")
        if until is not None and not until >= start:
            raise LongtakeError(f"The end must not lie before the start ({start} s), but it is {until} s.")
        self.path = path
        self._sampler = None if fps is None else Sampler(fps)
        self._start = float(start)
        self._until = math.inf if until is None else until
        self._begun = False
        self._closed = False
        self._open()

    @property
    def pts_repaired(self) -> int:
        """Frames whose own time stamp was missing or did not go forward.

        An AVI's very last frames count here when its codec reorders frames: PyAV gives them no stamp.
        """
        return self._clock.repaired

    def __iter__(self) -> Iterator[Frame]:
        if self._begun:
            raise LongtakeError(f"{self.path} has already been read; open it again to read it once more.")
        self._begun = True
        return self._frames()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; call it from the thread that reads. Closing twice is fine.

        An iteration that has begun ends with the frames that are already decoded.
        """
        self._begun = self._closed = True
        self._container.close()

    def _open(self) -> None:
        """Open the file and decode its first frame: only then is it known to be a video, and how large."""
        self.decode_errors = 0
        self.frames_decoded = 0
        self._container, self._stream = open_video(self.path)
        try:
            # The times of AVI packets are those of decoding; taken as display times, they would jump about.
            self._stamped_by_dts = self._container.format.name == "avi"
            self._time_base = self._stream.time_base
            rate = self._stream.average_rate or self._stream.guessed_rate
            self._interval = 1 / rate if rate and 0 < rate <= _PLAUSIBLE_FPS else None
            self.source_fps = float(1 / self._interval) if self._interval else None
            length = self._container.duration
            self.duration = length / av.time_base if length and length > 0 else None
            self._clock = Clock(self._interval)
            self._pictures: Iterator[av.VideoFrame] = self._decode()
            first = next(self._pictures, None)
            if first is None:
                raise LongtakeError(
                    f"No frame of {self.path} could be decoded ({self.decode_errors} errors); "
                    "copy the file again or convert it."
                )
            self._first_stamp = self._stamp(first)
            self._pictures = chain([first], self._pictures)
            self.width, self.height = upright_size(first)
        except BaseException:
            self._container.close()
            raise

    def _frames(self) -> Iterator[Frame]:
        try:
            reached = False
            if self._start > _SEEK_FROM_SECONDS and not self._closed:
                self._seek()
            for picture in self._pictures:
                time = self._clock.read(self._stamp(picture))
                if time < self._start:
                    continue
                if time > self._until:
                    return
                reached = True
                if self._sampler is not None and not self._sampler.takes(time):
                    continue
                try:
                    image = upright_image(picture)
                except av.FFmpegError:
                    self.decode_errors += 1
                    continue
                yield Frame(time, image)
                del image  # Or this frame would be held while the next one is decoded.
            if not (reached or self._closed):
                raise LongtakeError(f"{self.path} ends before {self._start} s; give an earlier start.")
        finally:
            self.close()

    def _stamp(self, picture: av.VideoFrame) -> Fraction | None:
        """The frame's own time stamp in seconds."""
        ticks = picture.dts if self._stamped_by_dts else picture.pts
        return None if ticks is None or self._time_base is None else ticks * self._time_base

    def _seek(self) -> None:
        """Go to the last key frame before the start, or stay at the first frame if that cannot be trusted."""
        origin, base = self._first_stamp, self._time_base
        if origin is None or not base:
            return
        try:
            target = math.floor((origin + Fraction(self._start)) / base)
            self._container.seek(target, stream=self._stream)
            self._pictures = self._decode()
            landed = next(self._pictures, None)
        except (av.FFmpegError, OverflowError):
            landed = None
        stamp = None if landed is None else self._stamp(landed)
        if landed is None or stamp is None or stamp - origin > self._start:
            self._container.close()
            self._open()
            return
        self._pictures = chain([landed], self._pictures)
        self._clock = Clock(self._interval, origin)

    def _decode(self) -> Iterator[av.VideoFrame]:
        """Every frame that can be had from here on; what is broken is counted and passed over."""
        packets = self._container.demux(self._stream)
        failures = 0
        # PyAV crashes the process when a closed file is read on.
        while failures < _FAILURES_IN_A_ROW and not self._closed:
            try:
                packet = next(packets, None)
            except av.FFmpegError:
                self.decode_errors += 1
                failures += 1
                packets = self._container.demux(self._stream)
                continue
            if packet is None:
                return
            failures = 0
            yield from self._decode_packet(packet)
        if not self._closed:
            yield from self._decode_packet(None)

    def _decode_packet(self, packet: "av.Packet[av.VideoStream] | None") -> Iterator[av.VideoFrame]:
        try:
            pictures = self._stream.decode(packet)
        except av.FFmpegError:
            self.decode_errors += 1
            return
        for picture in pictures:
            self.frames_decoded += 1
            self.decode_errors += picture.is_corrupt
            yield picture
