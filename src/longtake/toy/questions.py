"""What one may ask about a world, with the answers and the moments at which they can be seen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from longtake.errors import LongtakeError
from longtake.toy.events import CARD, MOST_COUNTED, Event
from longtake.toy.scenery import Scenery
from longtake.toy.shapes import SHAPES

KINDS: Final = ("colour", "number", "order", "first", "last", "count", "seen", "when", "now")

_PAIRS = 4  # at most so many "yes" and as many "no" among the questions of kind "seen", and so many of kind "order"
_MINUTES = 10  # a minute is answered in one digit
_MARGIN = 2.0  # seconds that an event must keep from a full minute to be asked for its minute


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its one-word answer, and the moments (seconds) at which the answer can be seen."""

    text: str
    answer: str
    kind: str
    ask_time: float
    evidence: tuple[float, ...]


def ask_all(
    events: Sequence[Event], at: float, scenery: Scenery, rng: np.random.Generator, kinds: Sequence[str] = KINDS
) -> list[Question]:
    """Every question of the given kinds that has one clear answer to a viewer who has watched up to `at`.

    `events` are those that began before `at`. A shape that came up less than a second ago may or may not have been
    sampled: what depends on it is not asked.

    Raises:
        LongtakeError: for a kind that there is not.
    """
    if unknown := set(kinds) - set(KINDS):
        raise LongtakeError(f"There is no question kind {sorted(unknown)[0]!r}: use {', '.join(KINDS)}.")
    past = _Past(events, at, scenery, rng)
    tasks = {
        "colour": past.colours,
        "number": past.numbers,
        "order": past.orders,
        "first": past.first,
        "last": past.last,
        "count": past.counts,
        "seen": past.seen,
        "when": past.minutes,
        "now": past.now,
    }
    return [
        Question(text, answer, kind, at, evidence)
        for kind, task in tasks.items()
        if kind in kinds
        for text, answer, evidence in task()
    ]


_Task = Iterator[tuple[str, str, tuple[float, ...]]]


class _Past:
    """All that was shown up to a moment."""

    def __init__(self, events: Sequence[Event], at: float, scenery: Scenery, rng: np.random.Generator) -> None:
        self.at, self.scenery, self.rng = at, scenery, rng
        self.started = events
        self.settled = [event for event in events if event.start <= at - 1.0]
        self.shown: dict[str, list[Event]] = {}
        for event in self.settled:
            if event.name != CARD:
                self.shown.setdefault(event.shape, []).append(event)
        unsettled = {event.shape for event in events if event.start > at - 1.0}
        self.clear = {shape: shows for shape, shows in self.shown.items() if shape not in unsettled}

    def colours(self) -> _Task:
        for shape, shows in self.shown.items():
            yield f"what colour was the {shape} ?", shows[0].colour, self._moments(shows)

    def numbers(self) -> _Task:
        cards: dict[str, list[Event]] = {}
        for event in self.settled:
            if event.name == CARD:
                cards.setdefault(event.colour, []).append(event)
        for colour, shows in cards.items():
            yield f"what number was on the {colour} card ?", shows[0].shape, self._moments(shows)

    def orders(self) -> _Task:
        once = [shows[0] for shows in self.clear.values() if len(shows) == 1]
        pairs = self.rng.permutation(len(once))[: 2 * _PAIRS]
        for one, two in zip(pairs[::2].tolist(), pairs[1::2].tolist(), strict=False):
            both = once[one], once[two]
            earlier = min(both, key=lambda event: event.start)
            text = f"which came first the {both[0].shape} or the {both[1].shape} ?"
            yield text, earlier.shape, self._moments(both)

    def first(self) -> _Task:
        if self.settled or not self.started:
            first = self.settled[:1]
            yield "what was shown first ?", first[0].name if first else "nothing", self._moments(first)

    def last(self) -> _Task:
        if len(self.started) == len(self.settled):
            last = self.settled[-1:]
            yield "what was shown last ?", last[0].name if last else "nothing", self._moments(last)

    def counts(self) -> _Task:
        if self.scenery.repeats:
            for shape, shows in self.clear.items():
                if len(shows) <= MOST_COUNTED:
                    yield f"how many times was the {shape} shown ?", str(len(shows)), self._moments(shows)

    def seen(self) -> _Task:
        unseen = [shape for shape in SHAPES if shape not in {event.shape for event in self.started}]
        pairs = min(_PAIRS, len(self.shown), len(unseen))
        for shape in self.rng.permutation(sorted(self.shown))[:pairs].tolist():
            yield f"was the {shape} shown ?", "yes", self._moments(self.shown[shape])
        for shape in self.rng.permutation(unseen)[:pairs].tolist():
            yield f"was the {shape} shown ?", "no", ()

    def minutes(self) -> _Task:
        for shape, shows in self.clear.items():
            start, end = shows[0].start, shows[0].end
            minute = int(start // 60)
            apart = min(start - 60 * minute, 60 * (minute + 1) - end) >= _MARGIN
            if len(shows) == 1 and minute < _MINUTES and (apart or (not minute and end < 60 - _MARGIN)):
                yield f"in which minute was the {shape} shown ?", str(minute), self._moments(shows)

    def now(self) -> _Task:
        present = [event for event in self.started if event.end > self.at - 1.0]
        if not present:
            yield "what is there now ?", "nothing", (max(self.at - 0.5, self.at / 2),)
        elif present[-1].start <= self.at - 1.0 and present[-1].end >= self.at:
            yield "what is there now ?", present[-1].name, (self.at - 0.5,)

    def _moments(self, events: Sequence[Event]) -> tuple[float, ...]:
        return tuple((event.start + min(event.end, self.at)) / 2 for event in events)
