"""A fixed camera that sees almost nothing: a quiet background, and now and then a coloured shape.

Everything follows from the seed. Frames are computed when asked for, so a world may last for days.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from longtake.errors import LongtakeError
from longtake.toy.events import Event, schedule
from longtake.toy.questions import KINDS, Question, ask_all
from longtake.toy.scenery import QUIET, Camera, Scenery
from longtake.toy.shapes import draw


class World:
    """A stream of `seconds` in which `events` things are shown, each for 1 to 3 seconds.

    In one world a shape always has the same colour. Without `events` there is one every 8 seconds up to 12, then one
    every 50 seconds. `scenery` says what else there is: by default nothing but 16 different shapes, and beyond
    that number the same ones again.

    Raises:
        LongtakeError: for a length or a number of events that cannot be.
    """

    __slots__ = ("_camera", "_starts", "events", "scenery", "seconds", "seed")

    def __init__(self, seed: int, seconds: float, events: int | None = None, scenery: Scenery = QUIET) -> None:
        if not (seconds > 0 and np.isfinite(seconds)):
            raise LongtakeError(f"A toy world needs a length above 0 seconds, not {seconds:g}.")
        count = max(min(12, int(seconds / 8)), int(seconds / 50)) if events is None else events
        if count < 0:
            raise LongtakeError(f"A toy world cannot show {count} shapes: ask for 0 or more.")
        self.seed, self.seconds, self.scenery = seed, float(seconds), scenery
        self.events: tuple[Event, ...] = schedule(np.random.default_rng([seed, 1]), self.seconds, count, scenery)
        self._starts = [event.start for event in self.events]
        self._camera = Camera(seed, scenery.distractors)

    def visible(self, time: float) -> Event | None:
        """What is on screen at `time`, if anything."""
        before = bisect_right(self._starts, time)
        newest = self.events[before - 1] if before else None
        return newest if newest and time < newest.end else None

    def frame(self, time: float) -> NDArray[np.uint8]:
        """The picture at `time` seconds: uint8 [128, 128, 3], RGB."""
        rng = np.random.default_rng([self.seed, 2, round(max(time, 0.0) * 10_000)])
        lit = self._camera.exposed(self.clean_frame(self.visible(time), time), time, rng)
        grain = rng.standard_normal(lit.shape, dtype=np.float32) * np.float32(self.scenery.noise)
        return np.clip(lit + grain, 0, 255).astype(np.uint8)

    def clean_frame(self, event: Event | None, time: float | None = None) -> NDArray[np.float32]:
        """The scene, with the event's thing on it, before shake, light and noise: float32 [128, 128, 3], 0 to 255.

        With a time, what moves in the background is where it is then.
        """
        canvas = self._camera.background(time)
        if event is not None:
            draw(canvas, event.shape, event.colour, event.x, event.y, event.radius)
        return canvas

    def questions(self, at: float, kinds: Sequence[str] = KINDS) -> list[Question]:
        """Every question of the given kinds that has one clear answer to a viewer who has watched up to `at`."""
        rng = np.random.default_rng([self.seed, 4, round(at * 1000)])
        return ask_all(self.events[: bisect_left(self._starts, at)], at, self.scenery, rng, kinds)
