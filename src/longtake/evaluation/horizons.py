"""How long recurrent states remember: per-head half-lives, read from the decay gates while a stream is watched."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtake.backbones.backbone import Backbone
from longtake.engine import Engine
from longtake.errors import LongtakeError
from longtake.memory import Memory
from longtake.policies.recency import Recency
from longtake.trace import Sight, Trace
from longtake.video.frame import Frame

_BUDGET = 2048


@dataclass(frozen=True, slots=True)
class Horizons:
    """The half-lives on one stream.

    Attributes:
        name: of the stream.
        seconds: its length.
        layers: numbers of the decoder layers, one per row.
        half_life: [layers, heads], seconds after which half of what a head's state held is left, on average over the
            stream: ln 2 over the mean rate at which it fades. What later tokens overwrite is not in it.
    """

    name: str
    seconds: float
    layers: tuple[int, ...]
    half_life: NDArray[np.float64]


@dataclass
class _Meter(Recency):
    """Adds up how much every head lets fade, and otherwise forgets what is old."""

    name: ClassVar[str] = "meter"
    budget: int | None = _BUDGET
    faded: list[Tensor] = field(default_factory=list, init=False)

    @property
    def sights(self) -> frozenset[Sight]:
        return frozenset({"gates"})

    def observe(self, memory: Memory, chunk: int, trace: Trace) -> None:
        now = [gates.log_decay.sum(dim=0).double().cpu() for gates in trace.gates]
        self.faded = [sum_ + new for sum_, new in zip(self.faded, now, strict=True)] if self.faded else now


def measure(backbone: Backbone, name: str, frames: Iterable[Frame], fps: float | None = None) -> Horizons:
    """Watch a stream in a small memory and read the gates of every token.

    Raises:
        LongtakeError: for a model without recurrent states, or a stream of less than one chunk.
    """
    if not backbone.has_recurrent_states:
        raise LongtakeError(f"{backbone.name} has no recurrent states, so no horizons; take a hybrid model.")
    meter = _Meter()
    with Engine(backbone).open(meter, fps=fps) as session:
        for frame in frames:
            session.push(frame.image, frame.time)
        seconds = session.chunks * session.chunk_frames / session.fps
    if not meter.faded:
        raise LongtakeError(f"{name} ended before the first second of it was full; watch something longer.")
    rate = -torch.stack(meter.faded) / seconds
    layers = [number for number in range(len(backbone.layer_types)) if number not in backbone.attention_layers]
    return Horizons(name, seconds, tuple(layers), (math.log(2) / rate).numpy())


def rank_correlations(found: Sequence[Horizons]) -> dict[tuple[str, str], float]:
    """Spearman's rho between the half-lives of all heads, for each pair of streams."""
    ranks = [one.half_life.ravel().argsort().argsort() for one in found]
    return {
        (found[a].name, found[b].name): float(np.corrcoef(ranks[a], ranks[b])[0, 1])
        for a, b in combinations(range(len(found)), 2)
    }
