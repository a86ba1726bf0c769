"""When something is shown, and what."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from longtake.errors import LongtakeError
from longtake.toy.scenery import CANVAS, Scenery
from longtake.toy.shapes import CARDS, COLOURS, SHAPES

CARD: Final = "card"

_SHORTEST, _LONGEST = 1.0, 3.0  # seconds that a thing stays
_GAP = 1.0  # least seconds of nothing around an event, so that no sampled pair of frames shows two
_TWINS = (
    *(("circle", "ring"), ("square", "frame"), ("star", "cross"), ("heart", "moon")),
    *(("triangle", "chevron"), ("diamond", "hourglass"), ("bar", "arrow"), ("pillar", "dice")),
)
# With repeats: the share of the objects that are never shown, of those shown that come once, and how many of the others
# come again and again when there are events to fill; the rest comes two to six times.
_ABSENT, _ONCE, _FILLERS = 1 / 6, 0.55, 4
MOST_COUNTED: Final = 6
"""How often objects come at most that come a few times."""


@dataclass(frozen=True, slots=True)
class Event:
    """One showing of one thing. Times are seconds from the stream's start, the centre and radius pixels.

    `shape` is the digit where it is a card.
    """

    start: float
    end: float
    shape: str
    colour: str
    x: float
    y: float
    radius: float

    @property
    def name(self) -> str:
        """What one calls it: the shape, or "card"."""
        return CARD if self.shape in CARDS else self.shape


def place(rng: np.random.Generator) -> tuple[float, float, float]:
    """Centre x and y and radius of a thing, in pixels: around the middle, wholly inside."""
    x, y = (CANVAS / 2 + rng.uniform(-18, 18, 2)).tolist()
    return x, y, float(rng.uniform(34, 42))


def schedule(rng: np.random.Generator, seconds: float, count: int, scenery: Scenery) -> tuple[Event, ...]:
    """`count` events at random moments.

    Raises:
        LongtakeError: when so many do not fit.
    """
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
    objects = _objects(rng, scenery)
    shown = _order(rng, len(objects), count, scenery.repeats)
    where = {shape: place(rng) for pair in _TWINS for shape in pair} if scenery.twins else {}
    for shape, twin in _TWINS if scenery.twins else ():
        where[twin] = where[shape]
    events = []
    for start, length, number in zip(starts, lengths, shown, strict=True):
        thing, colour = objects[number]
        x, y, radius = where.get(thing) or place(rng)
        start, end = round(float(start), 3), round(float(start + length), 3)
        events.append(Event(start, end, thing, colour, x, y, radius))
    return tuple(events)


def _objects(rng: np.random.Generator, scenery: Scenery) -> list[tuple[str, str]]:
    """(thing, colour) of all objects of a world in random order: every shape, and a card of every colour."""
    colours = dict(zip(SHAPES, rng.choice(list(COLOURS), len(SHAPES)).tolist(), strict=True))
    if scenery.twins:
        colours |= {twin: colours[shape] for shape, twin in _TWINS}
    objects = list(colours.items()) if scenery.shapes else []
    if scenery.cards:
        objects += zip(rng.choice(list(CARDS), len(COLOURS)).tolist(), COLOURS, strict=True)
    return [objects[i] for i in rng.permutation(len(objects))]


def _order(rng: np.random.Generator, objects: int, count: int, repeats: bool) -> list[int]:
    """The number of the object of each event."""
    if not repeats:  # all of them once, then again any
        again = rng.integers(0, objects, max(0, count - objects)).tolist()
        return [*range(min(count, objects)), *again]
    known = objects - int(objects * _ABSENT)
    once = min(count, max(1, round(_ONCE * min(count, known))))
    shown = list(range(once))
    thing = once
    while thing < known - _FILLERS and len(shown) < count:
        times = int(rng.integers(2, MOST_COUNTED + 1))
        shown += [thing] * min(times, count - len(shown))
        thing += 1
    shown += rng.integers(known - _FILLERS, known, max(0, count - len(shown))).tolist()
    return [shown[i] for i in rng.permutation(count)]
