"""Positions without the gaps that evicted tokens leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from longtake.kv.ledger import Kind, Ledger

Compaction = Literal["rank", "grid"]


def by_rank(ledger: Ledger) -> Tensor:
    """On each axis a position becomes its rank among those held, after the system prefix: [n, axes].

    HERMES' appendix E. The prefix stays. Rows and columns of a grid may move against each other and against time
    where evictions emptied one of them in every grid.
    """
    position, fixed, start = _parts(ledger)
    moved = position.clone()
    for axis in range(position.shape[1]):
        _, rank = torch.unique(position[~fixed, axis], return_inverse=True)
        moved[~fixed, axis] = start + rank
    return moved


def by_grid(ledger: Ledger, axes: Sequence[int]) -> Tensor:
    """Close the gaps between grids, each moved as a whole and by the same on all `axes`: [n, axes].

    Within a grid all stays as the model was trained to see it. Every token that belongs to no grid moves by itself.
    Grids that follow each other at more than one position (Qwen2.5-VL's clock) keep the smallest distance found.

    Args:
        axes: those on which the stream advances; on the others each grid begins anew and nothing moves.
    """
    position, fixed, start = _parts(ledger)
    rows = torch.nonzero(~fixed).squeeze(1)
    if not len(rows):
        return position.clone()
    index = ledger["index"][rows]
    grid = torch.where(ledger["patch"][rows] >= 0, ledger["frame"][rows], -2 - index)
    _, group = torch.unique(grid, return_inverse=True)
    count = int(group.max()) + 1
    moving = position[rows][:, list(axes)]
    low = _by_group(moving.amin(dim=1), group, count, "amin")
    high = _by_group(moving.amax(dim=1), group, count, "amax")
    order = torch.argsort(_by_group(index, group, count, "amin"))
    reached = torch.cummax(high[order], 0).values
    gaps = (low[order][1:] - reached[:-1] - 1).clamp(min=0)
    usual = int(gaps.min()) if len(gaps) else 0
    back = torch.empty(count, dtype=torch.int64)
    back[order] = torch.cat((low[order][:1] - start, gaps - usual)).cumsum(0)
    moved = position.clone()
    for axis in axes:
        moved[rows, axis] -= back[group]
    return moved


def _parts(ledger: Ledger) -> tuple[Tensor, Tensor, int]:
    """All positions, which rows are of the system prefix, and the first position after it."""
    position, fixed = ledger["position"], ledger["kind"] == int(Kind.SYSTEM)
    before = position[fixed] + 1 if bool(fixed.any()) else position[:1]
    return position, fixed, int(before.max())


def _by_group(value: Tensor, group: Tensor, count: int, how: str) -> Tensor:
    empty = torch.zeros(count, dtype=value.dtype)
    return empty.scatter_reduce(0, group, value, how, include_self=False)
