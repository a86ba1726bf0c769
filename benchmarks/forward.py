"""The model's forward alone, which shares of time refer to, and how fast this machine is at its products."""

from __future__ import annotations

from time import perf_counter

import torch

from benchmarks.timing import timed
from longtake.backbones.backbone import Backbone, Segment
from longtake.memory import Memory


def bare(memory: Memory, backbone: Backbone, segment: Segment) -> tuple[float, torch.Tensor]:
    """Seconds and hidden states of the product's forward alone, which leaves the memory as it was.

    Inside a checkpoint the memory takes no copy of the states.
    """
    with memory.untraced():
        started = perf_counter()
        with memory.appending(segment.rows) as cache:
            hidden = backbone.forward(segment, cache)
        return perf_counter() - started, hidden


def product_speed(rows: int, inner: int, outer: int, dtype: torch.dtype) -> float:
    """Floating-point operations per second of a product [rows, inner] x [inner, outer], the best of three."""
    left, right = torch.randn(rows, inner).to(dtype), torch.randn(inner, outer).to(dtype)
    return 2.0 * rows * right.numel() / max(min(timed(lambda: left @ right) for _ in range(3)), 1e-6)
