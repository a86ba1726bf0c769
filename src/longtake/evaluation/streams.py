"""The streams of the retention benchmark: worlds that everything about is known of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from longtake.errors import LongtakeError
from longtake.toy.events import Event
from longtake.toy.questions import KINDS, Question
from longtake.toy.scenery import BUSY, QUIET
from longtake.toy.world import World
from longtake.video.frame import Frame

SCENERIES = {"busy": BUSY, "quiet": QUIET}
EVERY_NEEDED = frozenset({"order", "count"})
"""Kinds of questions that need all their evidence; of the others one moment is enough."""
_BEYOND = 60.0  # seconds by which a world goes on after the watching has ended


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream to be watched.

    Attributes:
        seconds: how long it is watched; the world goes on.
        seed: of the evaluation; each stream of it is another world.
        number: which of the seed's streams.
        every: seconds per event, on average.
        scenery: a name of `SCENERIES`.
    """

    seconds: float
    seed: int
    number: int = 0
    every: float = 30.0
    scenery: str = "busy"
    world: World = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.scenery not in SCENERIES:
            raise LongtakeError(f"There is no scenery '{self.scenery}'; there are {', '.join(SCENERIES)}.")
        if not self.seconds >= 10:
            raise LongtakeError(f"A stream of {self.seconds:g} seconds is too short; give at least 10.")
        if not self.every >= 4:
            raise LongtakeError(f"Events need 4 seconds each on average, not {self.every:g}.")
        length = self.seconds + _BEYOND
        draw = np.random.default_rng([3_000_000, self.seed, self.number, round(self.seconds)])
        # Seeds below 2^41 belong to training and tests.
        seed = (1 << 41) + int(draw.integers(1 << 40))
        object.__setattr__(
            self, "world", World(seed, length, max(1, round(length / self.every)), SCENERIES[self.scenery])
        )

    def frames(self, fps: float) -> Iterator[Frame]:
        """The frames of the stream, made as they are asked for."""
        for index in range(int(self.seconds * fps)):
            yield Frame(index / fps, self.world.frame(index / fps))

    def questions(self, clock: bool, knows: Callable[[str], bool] = lambda text: True) -> list[Question]:
        """All that can be asked at the end.

        Args:
            clock: without it nothing is asked about the time of day.
            knows: whether the model has words for a text; what it has none for is neither asked nor awaited.
        """
        kinds = [kind for kind in KINDS if kind != "when" or clock]
        asked = self.world.questions(self.seconds, kinds)
        return [question for question in asked if knows(question.text) and knows(question.answer)]

    def shows(self, moment: float) -> tuple[float, float]:
        """From when to when what is there at a moment can be seen."""
        event: Event | None = self.world.visible(moment)
        return (event.start, min(event.end, self.seconds)) if event else (moment, moment)

    def age(self, question: Question) -> float | None:
        """Seconds since the evidence that decides: the newest moment, or the oldest where every one is needed."""
        if not question.evidence:
            return None
        decisive = min(question.evidence) if question.kind in EVERY_NEEDED else max(question.evidence)
        return self.seconds - decisive
