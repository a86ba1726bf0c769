"""Questions waiting for their moment in a stream."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from longtake.errors import LongtakeError


class Schedule:
    """Questions in the order of their times; equal times keep the order given.

    Args:
        questions: (seconds, question) pairs; None is the end of the stream.

    Raises:
        LongtakeError: for a time that is negative or not a number.
    """

    def __init__(self, questions: Iterable[tuple[float | None, str]]) -> None:
        timed = [(math.inf if at is None else float(at), question) for at, question in questions]
        for at, _ in timed:
            if not at >= 0:
                raise LongtakeError(f"A question's time must be 0 seconds or later, not {at}.")
        self._waiting = sorted(timed, key=lambda pair: pair[0])

    def __iter__(self) -> Iterator[str]:
        """All questions that wait, without taking them."""
        return iter([question for _, question in self._waiting])

    def before(self, moment: float) -> Iterator[str]:
        """Take the questions whose time lies before `moment`, one by one."""
        while self._waiting and self._waiting[0][0] < moment:
            yield self._waiting.pop(0)[1]

    def rest(self) -> Iterator[str]:
        """Take all that are left: the stream has ended."""
        while self._waiting:
            yield self._waiting.pop(0)[1]
