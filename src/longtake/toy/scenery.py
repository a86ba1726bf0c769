"""What a world is made of beside its plain events, and what changes its pixels and means nothing."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from longtake.errors import LongtakeError

CANVAS: Final = 128
"""Height and width of a frame in pixels: four times what the toy models look at, to survive a video codec."""

DISTRACTORS: Final = ("light", "flicker", "shake", "motion")
"""Slow changes of the light, jumps of it from frame to frame, a shaking camera, a patch that wanders about."""

_SHAKE = 6  # pixels at most in each direction
_LIGHT = 0.3  # the light wanders between 1 - 0.3 and 1 + 0.3


@dataclass(frozen=True, slots=True)
class Scenery:
    """What a world shows.

    Attributes:
        cards, shapes: whether cards with a digit, each of another colour, and shapes are among the events.
        repeats: some objects come back, two to six times, and some again and again.
        twins: pairs of shapes that look alike have the same colour, place and size, so that frames nearly repeat.
        distractors: any of `DISTRACTORS`.
        noise: standard deviation of the grain, in levels of 0 to 255.
    """

    cards: bool = False
    shapes: bool = True
    repeats: bool = False
    twins: bool = False
    distractors: tuple[str, ...] = ()
    noise: float = 3.0

    def __post_init__(self) -> None:
        if not (self.cards or self.shapes):
            raise LongtakeError("A scenery needs shapes or cards to show.")
        if unknown := set(self.distractors) - set(DISTRACTORS):
            raise LongtakeError(f"There is no distractor {sorted(unknown)[0]!r}: use {', '.join(DISTRACTORS)}.")


QUIET: Final = Scenery()
BUSY: Final = Scenery(cards=True, repeats=True, twins=True, distractors=DISTRACTORS)


class Camera:
    """The place that a world looks at, as it is at any moment, without noise. Everything follows from the seed."""

    __slots__ = ("_background", "_distractors", "_patch", "_seed", "_waves")

    def __init__(self, seed: int, distractors: tuple[str, ...]) -> None:
        self._seed, self._distractors = seed, frozenset(distractors)
        self._background: NDArray[np.float32] | None = None
        rng = np.random.default_rng([seed, 6])
        # Two slow waves of light, and two for each direction of the wandering patch: period in seconds, phase.
        self._waves = np.stack([rng.uniform(25, 240, 6), rng.uniform(0, 2 * np.pi, 6)])
        self._patch = rng.uniform([0.15, 75, -30, -30, -30], [0.4, 180, 30, 30, 30])

    def background(self, time: float | None = None) -> NDArray[np.float32]:
        """The empty scene, float32 [128, 128, 3] in 0 to 255; with a time, with what moves about in it then."""
        if self._background is None:
            self._background = _background(np.random.default_rng([self._seed, 3]))
        canvas = self._background.copy()
        if time is not None and "motion" in self._distractors:
            across, down = (0.9 * (self._wave(time, i) + self._wave(time, i + 1)) / 2 for i in (2, 4))
            axis = np.linspace(-1, 1, CANVAS, dtype=np.float32)
            away = np.hypot(axis[None, :] - across, axis[:, None] - down) / self._patch[0]
            weight = (0.8 * np.exp(-(away**4))).astype(np.float32)[..., None]
            canvas = canvas * (1 - weight) + (self._patch[1] + self._patch[2:]).astype(np.float32) * weight
        return canvas

    def exposed(self, canvas: NDArray[np.float32], time: float, rng: np.random.Generator) -> NDArray[np.float32]:
        """What reaches the sensor at `time`: shaken, and under the light of the moment."""
        gain = 1.0 + 0.02 * float(np.clip(rng.standard_normal(), -2, 2))
        if "light" in self._distractors:
            gain *= 1.0 + _LIGHT * (self._wave(time, 0) + self._wave(time, 1)) / 2
        if "flicker" in self._distractors:
            gain *= 1.0 + 0.08 * float(np.clip(rng.standard_normal(), -2, 2))
        if "shake" in self._distractors:
            canvas = self.shaken(canvas, rng)
        return canvas * np.float32(gain)

    def shaken(self, canvas: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """Moved by a few pixels; what comes in from outside repeats the edge."""
        across, down = rng.integers(-_SHAKE, _SHAKE + 1, 2).tolist()
        rows = np.clip(np.arange(CANVAS) + down, 0, CANVAS - 1)
        columns = np.clip(np.arange(CANVAS) + across, 0, CANVAS - 1)
        moved: NDArray[np.float32] = canvas[rows][:, columns]
        return moved

    def _wave(self, time: float, number: int) -> float:
        period, phase = self._waves[:, number]
        return float(np.sin(2 * np.pi * time / period + phase))


def _background(rng: np.random.Generator) -> NDArray[np.float32]:
    """Muted mid-tones, so that each of the eight colours stands out: a gradient, soft blobs and a coarse texture."""
    axis = np.linspace(-1, 1, CANVAS, dtype=np.float32)
    y, x = np.meshgrid(axis, axis, indexing="ij")

    def tone() -> NDArray[np.float32]:
        grey = rng.uniform(85, 170)
        return np.asarray(grey + rng.uniform(-22, 22, 3), dtype=np.float32)

    angle = rng.uniform(0, 2 * np.pi)
    ramp = ((x * np.cos(angle) + y * np.sin(angle)) / 2.83 + 0.5).astype(np.float32)[..., None]
    canvas = tone() * (1 - ramp) + tone() * ramp
    for _ in range(int(rng.integers(4, 15))):
        centre, size = rng.uniform(-1.1, 1.1, 2), rng.uniform(0.08, 0.6, 2)
        bump = np.square((x - centre[0]) / size[0]) + np.square((y - centre[1]) / size[1])
        # A high power makes a flat patch with a soft edge, a low one a glow.
        weight = (rng.uniform(0.2, 0.9) * np.exp(-(bump ** rng.uniform(0.7, 4.0)))).astype(np.float32)[..., None]
        canvas = canvas * (1 - weight) + tone() * weight
    cells = int(rng.choice([4, 8, 16, 32]))
    texture = rng.normal(0, rng.uniform(0, 12), (cells, cells, 1)).astype(np.float32)
    canvas = canvas + np.kron(texture, np.ones((CANVAS // cells, CANVAS // cells, 1), dtype=np.float32))
    muted: NDArray[np.float32] = np.clip(canvas, 68, 188).astype(np.float32)
    return muted
