"""Rules that turn scores into rows to keep."""

from __future__ import annotations

import torch
from torch import Tensor


def best_first(score: Tensor, index: Tensor) -> Tensor:
    """Row order [n] by falling score; among equals the newer (larger stream index) comes first."""
    newest_first = torch.argsort(index, descending=True)
    return newest_first[torch.argsort(score[newest_first], descending=True, stable=True)]


def equal_spans(time: Tensor, spans: int) -> Tensor:
    """The span number 0..spans-1 of each row [n], by cutting the rows' own range of time in equal parts."""
    start, end = time.min(), time.max()
    if end <= start:
        return torch.zeros(len(time), dtype=torch.int64)
    return ((time - start) / (end - start) * spans).long().clamp_(max=spans - 1)


def top_by_span(score: Tensor, index: Tensor, time: Tensor, spans: int, count: int) -> Tensor:
    """Mask [n] of `count` rows: the best of each equal span of time, an equal share for each.

    A span with fewer rows than its share leaves the rest to the best rows of all other spans; so does
    the remainder of the division.
    """
    order = best_first(score, index)
    span = equal_spans(time, spans)[order]
    quota = count // spans
    chosen = torch.zeros(len(score), dtype=torch.bool)
    for number in range(spans):
        chosen[order[span == number][:quota]] = True
    rest = order[~chosen[order]]
    chosen[rest[: count - int(chosen.sum())]] = True
    return chosen


def whole_chunks(chunk: Tensor, priority: Tensor, room: int) -> Tensor:
    """Mask [n] of the rows of the chunks with the highest priority that fit, whole, into `room` rows.

    Args:
        chunk: int64 [n], each row's chunk number.
        priority: float64 [n], one value per chunk, the same in all its rows.
    """
    numbers, which, sizes = torch.unique(chunk, return_inverse=True, return_counts=True)
    per_chunk = torch.empty(len(numbers), dtype=priority.dtype)
    per_chunk[which] = priority
    order = torch.argsort(per_chunk, descending=True, stable=True)
    fits = torch.cumsum(sizes[order], 0) <= room
    chosen = torch.zeros(len(numbers), dtype=torch.bool)
    chosen[order[fits]] = True
    return chosen[which]
