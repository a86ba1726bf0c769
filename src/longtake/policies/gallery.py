"""Moments with what they look like, thinned so that those left lie as far apart as can be."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_NONE = -1
_TINY = 1e-12
_GROWTH = 1.25


class Gallery:
    """What is held, moment by moment: a signature and a time each.

    The distance of two moments is log(1 + |f - g|^2 / s) + spread * dt / T, s the geometric mean of the squared
    differences of moments that follow each other (what the camera's noise makes, however many events there are) and T
    the stream's length so far: far apart are moments that look different or lie long apart. `weakest` names the moment
    that can be spared best, the newer of the two closest. Each has its nearest neighbour noted, so that a moment that
    comes or goes costs one pass over all others; since T grows, all neighbours are looked up again each time it has
    grown by a quarter.

    Args:
        spread: how much time counts beside looks; 0 for not at all.
    """

    def __init__(self, spread: float) -> None:
        self._spread = spread
        self._count = 0
        self._keys = torch.zeros(0, dtype=torch.int64)
        self._signatures = torch.zeros(0, 0)
        self._times = torch.zeros(0, dtype=torch.float64)
        self._near = torch.zeros(0, dtype=torch.int64)  # place of the nearest neighbour
        self._looks = torch.zeros(0, dtype=torch.float64)  # squared difference from it
        self._newest = self._refreshed = 0.0
        self._last: Tensor | None = None
        self._steps, self._change = 0, 0.0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: int) -> bool:
        return bool((self.keys == key).any())

    @property
    def keys(self) -> Tensor:
        """The keys of all moments, int64 [n]."""
        return self._keys[: self._count]

    def add(self, key: int, signature: Tensor, time: float) -> None:
        """A moment, newer than all others. `key` names it, larger than all before; `signature` is float [d]."""
        signature = signature.detach().float().cpu()
        if self._last is not None:
            self._change += math.log(max(float((signature - self._last).square().sum()), _TINY))
            self._steps += 1
        self._last, self._newest = signature, time
        if time > _GROWTH * self._refreshed:
            self._refreshed = time
            for place in range(self._count):
                self._find(place)
        self._grow(len(signature))
        place = self._count
        self._keys[place], self._signatures[place], self._times[place] = key, signature, time
        self._count += 1
        self._find(place)
        if place:
            others = torch.arange(place)
            closer = self._distance(place)[:place] < self._nearest()[:place]
            closer |= self._near[:place] == _NONE
            self._near[others[closer]] = place
            self._looks[others[closer]] = self._difference(place)[:place][closer]

    def remove(self, key: int) -> None:
        """Forget a moment."""
        place = int((self._keys[: self._count] == key).nonzero()[0, 0])
        last = self._count - 1
        orphans = (self._near[: self._count] == place).nonzero().squeeze(1)
        for column in (self._keys, self._signatures, self._times, self._near, self._looks):
            column[place] = column[last]
        self._near[: self._count][self._near[: self._count] == last] = place
        self._count = last
        for orphan in orphans.tolist():
            moved = place if orphan == last else orphan
            if moved < self._count:
                self._find(moved)

    def weakest(self) -> int | None:
        """The key of the moment to go next: the newer of the closest two.

        Were the older one to go, the newest moment would take its place at every step, and nothing would ever settle.
        """
        if not self._count:
            return None
        first = int(self._nearest().argmin())
        second = int(self._near[first])
        return int(self._keys[[first, second] if second != _NONE else [first]].max())

    def _find(self, place: int) -> None:
        """Note the nearest neighbour of a moment."""
        self._near[place], self._looks[place] = _NONE, 0.0
        if self._count > 1:
            distance = self._distance(place)
            distance[place] = float("inf")
            self._near[place] = near = int(distance.argmin())
            self._looks[place] = self._difference(place)[near]

    def _nearest(self) -> Tensor:
        """The distance of each moment from its neighbour, with the stream as long as it is now."""
        near = self._near[: self._count]
        apart = self._times[: self._count] - self._times[near.clamp_min(0)]
        total = (self._looks[: self._count] / self._scale).log1p() + self._late(apart)
        return total.masked_fill(near == _NONE, float("inf"))

    def _distance(self, place: int) -> Tensor:
        apart = self._times[: self._count] - self._times[place]
        return (self._difference(place) / self._scale).log1p() + self._late(apart)

    def _difference(self, place: int) -> Tensor:
        signatures = self._signatures[: self._count]
        return (signatures - self._signatures[place]).square().sum(dim=1).double()

    def _late(self, apart: Tensor) -> Tensor:
        return self._spread * apart.abs() / max(self._newest, 1e-9)

    @property
    def _scale(self) -> float:
        return math.exp(self._change / max(self._steps, 1))

    def _grow(self, width: int) -> None:
        if self._count < len(self._keys):
            return
        room = max(64, len(self._keys) * 2)
        if not self._signatures.shape[1]:
            self._signatures = torch.zeros(0, width)
        for name in ("_keys", "_signatures", "_times", "_near", "_looks"):
            column = getattr(self, name)
            larger = column.new_zeros((room, *column.shape[1:]))
            larger[: self._count] = column[: self._count]
            setattr(self, name, larger)
