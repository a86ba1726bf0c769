"""A fixed camera that sees almost nothing: a quiet background, and now and then a coloured shape.

Everything follows from the seed. Frames are computed when asked for, so a world may last for days.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from longtake.errors import LongtakeError
from longtake.toy.shapes import COLOURS, SHAPES, draw

CANVAS: Final = 128
"""Height and width of a frame in pixels: four times what the toy model looks at, to survive a video codec."""

KINDS: Final = ("colour", "first", "last", "seen", "now")

_SHORTEST, _LONGEST = 1.0, 3.0  # seconds that a shape stays
_GAP = 1.0  # least seconds of nothing around a shape, so that no sampled pair of frames shows two
_SEEN_PAIRS = 4  # at most so many "yes" and as many "no" among the questions of kind "seen"


@dataclass(frozen=True, slots=True)
class Event:
    """One showing of one shape. Times are seconds from the stream's start, the centre and radius pixels."""

    start: float
    end: float
    shape: str
    colour: str
    x: float
    y: float
    radius: float


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its one-word answer, and the moments (seconds) at which the answer can be seen."""

    text: str
    answer: str
    kind: str
    ask_time: float
    evidence: tuple[float, ...]


class World:
    """A stream of `seconds` in which `events` shapes are shown, each for 1 to 3 seconds.

    In one world a shape always has the same colour. Up to 16 events are 16 different shapes; more events show the
    same objects again. Without `events` there is one every 8 seconds up to 12, then one every 50 seconds.
    """

    __slots__ = ("_background", "events", "noise", "seconds", "seed")

    def __init__(self, seed: int, seconds: float, events: int | None = None, *, noise: float = 3.0) -> None:
        if not (seconds > 0 and np.isfinite(seconds)):
            raise LongtakeError(f"A toy world needs a length above 0 seconds, not {seconds:g}.")
        count = max(min(12, int(seconds / 8)), int(seconds / 50)) if events is None else events
        if count < 0:
            raise LongtakeError(f"A toy world cannot show {count} shapes: ask for 0 or more.")
        self.seed, self.seconds, self.noise = seed, float(seconds), noise
        self.events = _schedule(np.random.default_rng([seed, 1]), self.seconds, count)
        self._background: NDArray[np.float32] | None = None

    def visible(self, time: float) -> Event | None:
        """What is on screen at `time`, if anything."""
        return next((e for e in self.events if e.start <= time < e.end), None)

    def frame(self, time: float) -> NDArray[np.uint8]:
        """The picture at `time` seconds: uint8 [128, 128, 3], RGB."""
        rng = np.random.default_rng([self.seed, 2, round(max(time, 0.0) * 10_000)])
        gain = 1.0 + 0.02 * float(np.clip(rng.standard_normal(), -2, 2))
        grain = rng.standard_normal((CANVAS, CANVAS, 3), dtype=np.float32) * np.float32(self.noise)
        return np.clip(self.clean_frame(self.visible(time)) * np.float32(gain) + grain, 0, 255).astype(np.uint8)

    def clean_frame(self, event: Event | None) -> NDArray[np.float32]:
        """The background, with the event's shape on it, before noise and flicker: float32 [128, 128, 3], 0 to 255."""
        if self._background is None:
            self._background = _background(np.random.default_rng([self.seed, 3]))
        canvas = self._background.copy()
        if event is not None:
            draw(canvas, event.shape, event.colour, event.x, event.y, event.radius)
        return canvas

    def questions(self, at: float, kinds: Sequence[str] = KINDS) -> list[Question]:
        """Every question of the given kinds that has one clear answer to a viewer who has watched up to `at`.

        A shape that came up less than a second ago may or may not have been sampled: what depends on it is not asked.
        """
        if unknown := set(kinds) - set(KINDS):
            raise LongtakeError(f"There is no question kind {sorted(unknown)[0]!r}: use {', '.join(KINDS)}.")
        started = [e for e in self.events if e.start < at]
        settled = [e for e in started if e.start <= at - 1.0]
        shown: dict[str, list[Event]] = {}
        for event in settled:
            shown.setdefault(event.shape, []).append(event)

        def moments(events: Sequence[Event]) -> tuple[float, ...]:
            return tuple((e.start + min(e.end, at)) / 2 for e in events)

        found: list[Question] = []

        def add(kind: str, text: str, answer: str, evidence: tuple[float, ...]) -> None:
            if kind in kinds:
                found.append(Question(text, answer, kind, at, evidence))

        for shape, events in shown.items():
            add("colour", f"what colour was the {shape} ?", events[0].colour, moments(events))
        if settled or not started:
            first = settled[:1]
            add("first", "what was shown first ?", first[0].shape if first else "nothing", moments(first))
        if len(started) == len(settled):
            last = settled[-1:]
            add("last", "what was shown last ?", last[0].shape if last else "nothing", moments(last))
        rng = np.random.default_rng([self.seed, 4, round(at * 1000)])
        unseen = [s for s in SHAPES if s not in {e.shape for e in started}]
        pairs = min(_SEEN_PAIRS, len(shown), len(unseen))
        for shape in rng.permutation(sorted(shown))[:pairs].tolist():
            add("seen", f"was the {shape} shown ?", "yes", moments(shown[shape]))
        for shape in rng.permutation(unseen)[:pairs].tolist():
            add("seen", f"was the {shape} shown ?", "no", ())
        present = [e for e in started if e.end > at - 1.0]
        if not present:
            add("now", "what is there now ?", "nothing", (max(at - 0.5, at / 2),))
        elif present[-1].start <= at - 1.0 and present[-1].end >= at:
            add("now", "what is there now ?", present[-1].shape, (at - 0.5,))
        return found


def place(rng: np.random.Generator) -> tuple[float, float, float]:
    """Centre x and y and radius of a shape, in pixels: around the middle, wholly inside."""
    x, y = (CANVAS / 2 + rng.uniform(-18, 18, 2)).tolist()
    return x, y, float(rng.uniform(34, 42))


def _schedule(rng: np.random.Generator, seconds: float, count: int) -> tuple[Event, ...]:
    lengths = rng.uniform(_SHORTEST, _LONGEST, count)
    spare = seconds - float(lengths.sum()) - _GAP * (count + 1)
    if spare < 0:
        # Tight streams get short showings before they are refused.
        lengths = np.full(count, _SHORTEST)
        spare = seconds - float(lengths.sum()) - _GAP * (count + 1)
    if spare < 0 and count:
        raise LongtakeError(
            f"{count} shapes do not fit into {seconds:g} seconds: allow 2 seconds for each and one more."
        )
    cuts = np.sort(rng.uniform(0, max(spare, 0.0), count))
    starts = cuts + np.concatenate([[0.0], np.cumsum(lengths + _GAP)[:-1]]) + _GAP if count else cuts
    shapes = rng.permutation(SHAPES)
    colours = rng.choice(list(COLOURS), len(SHAPES))
    order = np.arange(count)
    if count > len(SHAPES):
        order[len(SHAPES) :] = rng.integers(0, len(SHAPES), count - len(SHAPES))
    places = [place(rng) for _ in range(count)]
    return tuple(
        Event(
            start=round(float(starts[i]), 3),
            end=round(float(starts[i] + lengths[i]), 3),
            shape=str(shapes[order[i]]),
            colour=str(colours[order[i]]),
            x=places[i][0],
            y=places[i][1],
            radius=places[i][2],
        )
        for i in range(count)
    )


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
