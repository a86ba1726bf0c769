"""Turning a stream's own time stamps, sound or broken, into times that strictly increase."""

import math
from fractions import Fraction

_USUAL_INTERVAL = Fraction(1, 25)  # seconds; when nothing is known about the source
_RESTART_SECONDS = 1  # a stamp this far back is a timeline that began anew, not two frames swapped


class Clock:
    """Gives each frame of one stream a time in seconds since the stream's start.

    Good stamps are taken as they are, less the first one. A missing stamp becomes the last time plus the
    frame interval. A stamp that does not go forward becomes the last time plus half the interval, so that
    good stamps after it can take over again. A stamp far in the past is taken as a new start of the source's
    timeline (files joined end to end, a camera that restarted), which is then carried on from the last time;
    if the next stamp fits the old timeline after all, that one counts again. A stamp far in the future cannot
    be told from a gap and is believed.

    interval: seconds between frames, if the source says so; else the last good interval is used.
    origin: the stamp, in seconds, that counts as time 0; None to let the first stamp be it.
    """

    def __init__(self, interval: Fraction | None = None, origin: Fraction | None = None) -> None:
        self.repaired = 0
        self._learns = interval is None
        self._interval = interval or _USUAL_INTERVAL
        self._origin = origin
        self._former_origin: Fraction | None = None
        self._last: Fraction | None = None

    def read(self, stamp: Fraction | None) -> float:
        """The time of the next frame, in seconds; `stamp` is its own, in seconds, or None if it has none."""
        time = self._place(stamp)
        if self._last is not None and float(time) <= float(self._last):
            time = Fraction(math.nextafter(float(self._last), math.inf))
        self._last = time
        return float(time)

    def _place(self, stamp: Fraction | None) -> Fraction:
        last = self._last
        following = Fraction(0) if last is None else last + self._interval
        if stamp is None:
            self.repaired += 1
            return following
        if self._origin is None:
            self._origin = stamp - following
        if last is None:
            return stamp - self._origin
        if self._former_origin is not None and stamp - self._former_origin > last:
            self._origin, self._former_origin = self._former_origin, None
        time = stamp - self._origin
        if time > last:
            if self._learns:
                self._interval = time - last
            return time
        self.repaired += 1
        if last - time > _RESTART_SECONDS:
            self._former_origin, self._origin = self._origin, stamp - following
            return following
        return last + self._interval / 2
