"""Times of the product's own calls, taken where they are called, and what is said about many of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from statistics import median
from time import perf_counter
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some rounds, the least and the largest."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values), len(values))

    @classmethod
    def of_ratios(cls, above: Sequence[float], below: Sequence[float], scale: float = 1.0) -> Spread:
        """Of each round's own ratio: noise that lasts longer than a round hits both of its terms."""
        return cls.of([scale * a / b for a, b in zip(above, below, strict=True)])

    def text(self, digits: int = 2, unit: str = "") -> str:
        """`median unit (low - high)`."""
        return f"{self.median:.{digits}f}{unit} ({self.low:.{digits}f} - {self.high:.{digits}f})"


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure that was promised, and whether this run has it."""

    promise: str
    found: str
    met: bool


class Stopwatch:
    """Seconds spent in calls of chosen methods, by label, since the last `take`."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def watch(self, owner: Any, method: str, label: str) -> None:
        """Time every call of `owner.method` from now on; the method itself is not changed."""
        call: Callable[..., Any] = getattr(owner, method)

        @wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self._seconds[label] += perf_counter() - started

        setattr(owner, method, timed)

    def take(self) -> dict[str, float]:
        """The seconds by label, which begin anew."""
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds


def timed(call: Callable[[], Any]) -> float:
    """Seconds that one call takes."""
    started = perf_counter()
    call()
    return perf_counter() - started
