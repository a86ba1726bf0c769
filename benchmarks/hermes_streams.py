"""HERMES at work on memories that fill with noise, so that its step can be timed without running every chunk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil

import torch

from benchmarks.forward import bare
from benchmarks.llava_shape import Shapes, Slice
from benchmarks.timing import Stopwatch, timed
from longtake.memory import Memory
from longtake.policies.hermes import Hermes
from longtake.policies.signals.guidance import Prompts
from longtake.probe import Probe
from longtake.retention import ROOM, Retention

HYSTERESIS = 8
"""Chunks by which a layer may overflow where there is slack."""
PIECES = ("guidance", "scoring", "eviction", "rotation")
Taken = dict[str, float]
"""Seconds by name."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to run HERMES: tokens of budget and slack, frames of a chunk."""

    budget: int
    frames: int
    slack: int
    chunk_tokens: int

    @property
    def period(self) -> int:
        """Chunks from one eviction to the next."""
        return self.slack // self.chunk_tokens + 1

    @property
    def most(self) -> int:
        """Tokens for which a memory has room, the system prefix left out."""
        return self.budget + self.slack + self.chunk_tokens + ROOM


class Stream:
    """A memory that is filled with noise, chunk by chunk. The opening alone is really computed."""

    def __init__(self, backbone: Slice) -> None:
        self.backbone = backbone
        self.memory: Memory = backbone.memory()
        self.cursor = backbone.new_cursor()
        self.chunks = 0
        opening = backbone.opening(self.cursor)
        with self.memory.appending(opening.rows) as cache:
            backbone.forward(opening, cache)

    def append(self, frames: int) -> None:
        """A chunk comes in."""
        segment = self.backbone.noise(frames, self.chunks, self.cursor)
        with self.memory.appending(segment.rows) as cache:
            self.backbone.stand_in(segment, cache)
        self.chunks += 1

    @contextmanager
    def untraced(self) -> Iterator[None]:
        """What is appended inside is rolled back."""
        cursor, chunks = self.cursor, self.chunks
        self.cursor = replace(cursor)
        try:
            with self.memory.untraced():
                yield
        finally:
            self.cursor, self.chunks = cursor, chunks


class GuidanceArms:
    """The three prompts on a memory that overflows by a chunk, as it is when guidance is due."""

    def __init__(self, backbone: Slice) -> None:
        shapes, prompts = backbone.shapes, Prompts.after(None)
        stream = Stream(backbone)
        for _ in range(ceil(shapes.budgets[0] / shapes.frame_tokens) + shapes.long_chunk):
            stream.append(1)
        self.held = stream.memory.held
        self.ids = [backbone.ids(text) for text in (prompts.local, prompts.joined, prompts.overall)]
        self._probe = Probe(backbone, stream.memory, lambda: stream.cursor)

    def packed(self) -> list[torch.Tensor]:
        return [seen for layer in self._probe.attention(self.ids) for seen in layer]

    def passes(self) -> list[torch.Tensor]:
        alone = [self._probe.attention([ids]) for ids in self.ids]
        return [found[layer][0] for layer in range(len(alone[0])) for found in alone]

    def agreement(self) -> float:
        """That both find the same."""
        pairs = list(zip(self.packed(), self.passes(), strict=True))
        return max(float((a - b).abs().max() / b.max()) for a, b in pairs)


class HermesStream(Stream):
    """A stream with HERMES at work on it, which re-indexes after every eviction."""

    def __init__(self, backbone: Slice, setting: Setting) -> None:
        super().__init__(backbone)
        self.setting = setting
        self._watch = Stopwatch()
        layers = len(backbone.layer_types)
        shallow, _, deep = roles(layers)
        self.policy = _Watched(
            setting.budget,
            chunk=setting.frames,
            slack=setting.slack,
            shallow=shallow / layers,
            deep=deep / layers,
            rounding="nearest",
            reindex="eager",
        )
        self.policy.watch = self._watch
        self._watch.watch(self.policy, "keep", "keep")
        self._watch.watch(self.policy, "positions", "rotation")
        self._watch.watch(self.memory, "evict", "eviction")
        self._watch.watch(self.memory, "reindex", "rotation")
        self._opening_tokens = self.memory.held
        self._retention = Retention(backbone, self.policy, self.memory, lambda: self.cursor)
        self._retention.begin()
        self._retention.prepare(setting.chunk_tokens)
        while not self.memory.evictions:
            self.append(setting.frames)
            self._retention.decide(self.chunks)

    @property
    def reindex_every(self) -> int:
        """Chunks after which a lazy stream is re-indexed, counted from positions without gaps."""
        room = self.backbone.longest - self.policy.margin - self._opening_tokens - self.setting.budget
        return room // self.setting.chunk_tokens + 1

    def step(self) -> Taken:
        """One period: seconds per chunk of the pieces, and of the whole step with lazy and with eager rotation."""
        taken: Taken = defaultdict(float)
        self._watch.take()
        for _ in range(self.setting.period):
            self.append(self.setting.frames)
            taken["eager"] += timed(lambda: self._retention.decide(self.chunks))
        taken.update(self._watch.take())
        taken["scoring"] = taken.pop("keep") - taken["guidance"]
        taken["lazy"] = taken["eager"] - taken["rotation"] * (1 - self.setting.period / self.reindex_every)
        return {name: seconds / self.setting.period for name, seconds in taken.items()}

    def forward(self) -> Taken:
        """The bare forward of a chunk, midway through a period."""
        with self.untraced():
            for _ in range(self.setting.period // 2):
                self.append(self.setting.frames)
            segment = self.backbone.noise(self.setting.frames, self.chunks, self.cursor)
            return {"forward": bare(self.memory, self.backbone, segment)[0]}


class _Watched(Hermes):
    """HERMES whose looks through the model are timed."""

    watch: Stopwatch

    def begin(self, memory: Memory, probe: Probe) -> None:
        self.watch.watch(probe, "attention", "guidance")
        super().begin(memory, probe)


def roles(layers: int) -> tuple[int, int, int]:
    """Shallow, middle and deep layers of a slice: the published shares, but at least one of each."""
    shallow, deep = max(1, round(Hermes.shallow * layers)), max(1, round(Hermes.deep * layers))
    return shallow, layers - shallow - deep, deep


def settings(shapes: Shapes) -> list[Setting]:
    """Chunks as published; one-second chunks without slack, and with it."""
    found = []
    for frames, slack_chunks in ((shapes.long_chunk, 0), (1, 0), (1, HYSTERESIS)):
        tokens = frames * shapes.frame_tokens
        found += [Setting(budget, frames, slack_chunks * tokens, tokens) for budget in shapes.budgets]
    return found


def held_tokens(shapes: Shapes) -> list[int]:
    """Tokens for which each memory of a run has room."""
    guided = shapes.budgets[0] + (shapes.long_chunk + 1) * shapes.frame_tokens + ROOM
    return [setting.most for setting in settings(shapes)] + [guided * 3 // 2]
