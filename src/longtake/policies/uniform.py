"""True uniform: at any moment the chunks held are spread evenly over the whole stream so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from longtake.policies.priority import PriorityPolicy


@dataclass
class Uniform(PriorityPolicy):
    """Keeps chunks at an even stride over all that was seen, by dyadic decimation.

    A chunk that was dropped cannot come back, so that the stride can only grow by dropping. The priority
    of chunk i is 1 minus the radical inverse of i in base two (its bits mirrored behind the point): the
    chunks above any threshold 1 - 2^-s are exactly the multiples of 2^s, and between two powers of two
    the chunks that go are spread evenly too. (Striding over what is left at each cut, as some published
    code does, is recency in disguise.)
    """

    name: ClassVar[str] = "uniform"
    line: ClassVar[str] = "chunks spread evenly over the whole stream so far (a control)"

    def priority(self, chunk: int) -> float:
        mirrored, scale = 0.0, 0.5
        while chunk:
            mirrored += scale * (chunk & 1)
            chunk >>= 1
            scale /= 2
        return 1.0 - mirrored
