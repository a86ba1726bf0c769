"""The toy over hours of stream: does the process grow, does it slow down, how many frames per second does it take."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.machine import resident_bytes
from benchmarks.timing import Goal, Spread, timed
from longtake.backbones.backbone import Backbone
from longtake.engine import Engine
from longtake.session import Session
from longtake.toy.world import World

SAMPLES = 10
"""Points of the soak at which the resident memory is read, the first and the last included."""
GROWTH_GOAL = 1.0
BLOCK = 10
"""Chunks pushed in one go with the same number of threads."""
TURNS = 100


class Feed:
    """Pushes seconds of a toy world into a session, from frames rendered beforehand and shown in a loop."""

    def __init__(self, session: Session, frames: int, start: float = 0.0) -> None:
        world = World(seed=7, seconds=frames / session.fps)
        self._session = session
        self._frames = [world.frame(index / session.fps) for index in range(frames)]
        self._start = start
        self._pushed = 0

    def chunk(self, count: int = 1) -> None:
        """Push the frames of `count` chunks."""
        for _ in range(count * self._session.chunk_frames):
            time = self._start + self._pushed / self._session.fps
            self._session.push(self._frames[self._pushed % len(self._frames)], time)
            self._pushed += 1

    def fill(self) -> None:
        """Push chunks until the first tokens have been evicted."""
        while not self._session.tokens_evicted:
            self.chunk()


@dataclass(frozen=True, slots=True)
class Soak:
    """One session of the toy. Frames per second count `Session.push` alone: vision, text layers, eviction.

    Attributes:
        frames_per_second: by torch threads, in blocks that take turns.
        faster_with_two: frames per second with two threads to those with one, of neighbouring blocks.
        resident: bytes of the process at `SAMPLES` points; the first is the soak's start, at a full memory.
        growth_percent: (most - least) / least of them.
        early_ms, late_ms: per chunk with one thread, in the first and the last tenth of the soak.
        late_to_early: ratio of their medians; hours lie between them, and the machine may have changed its pace.
        old_to_young: time per chunk after the soak to that of a session whose budget has just filled, in turns.
        tokens_early, tokens_late: of a chunk at either end; timestamps get longer as the stream does.
    """

    model: str
    budget: int
    parameters: int
    frames_per_second: dict[int, Spread]
    faster_with_two: Spread
    chunks: int
    stream_seconds: float
    resident: list[int]
    growth_percent: float
    last_to_first: float
    early_ms: Spread
    late_ms: Spread
    late_to_early: float
    old_to_young: Spread
    tokens_early: int
    tokens_late: int
    kv_bytes: int
    kv_bytes_reserved: int

    @property
    def grown_kib(self) -> float:
        """From the soak's start to its end: the process is large, so that a share of it hides small growth."""
        return (self.resident[-1] - self.resident[0]) / 1024

    def goals(self) -> list[Goal]:
        return [
            Goal(
                f"resident memory flat within {GROWTH_GOAL:g} % over {self.chunks:,} chunks",
                f"{self.growth_percent:.2f} %, last/first {self.last_to_first:.4f}, {self.grown_kib:+,.0f} KiB",
                self.growth_percent <= GROWTH_GOAL,
            )
        ]


def estimate_seconds(backbone: Backbone, budget: int, chunks: int, blocks: int) -> float:
    """Roughly how long `measure` will take, from a few chunks on this machine."""
    session = Engine(backbone).open("deltas", budget)
    feed = Feed(session, 16)
    with _threads(1):
        feed.chunk()
        chunk = min(timed(feed.chunk) for _ in range(8))
    per_chunk = (session.memory.seen - len(backbone.opening(backbone.new_cursor()))) / session.chunks
    # Chunks get about twice as slow as the memory fills and eviction begins.
    return 5 + 2 * chunk * (2 * budget / per_chunk + 2 * blocks * BLOCK + 2 * TURNS + 1.1 * chunks)


def measure(
    backbone: Backbone,
    budget: int,
    chunks: int,
    blocks: int,
    frames: int = 256,
    block: int = BLOCK,
    turns: int = TURNS,
    on_chunk: Callable[[int, int], None] = lambda done, of: None,
) -> Soak:
    """Fill a session to its budget, time it with one and two threads, then let it run with one.

    Args:
        chunks: of the soak.
        blocks: for each number of threads.
        frames: rendered beforehand.
        block: chunks in one of them.
        turns: chunks of the session at the soak's end and of a young one, one by one.
        on_chunk: called after each chunk of the soak with the chunks done and all chunks.
    """
    session = Engine(backbone).open("deltas", budget)
    feed = Feed(session, frames)
    with _threads(1):
        feed.fill()
        speed = _speeds(feed, session.chunk_frames, blocks, block)
        feed.chunk(chunks // 10)  # the allocator has seen every size by then
        seconds, resident, tokens = _run(feed, session, chunks, on_chunk)
        # The same stream time, so that timestamps are as long.
        young = Feed(Engine(backbone).open("deltas", budget), frames, start=session.time + 1)
        young.fill()
        pairs = [(timed(feed.chunk), timed(young.chunk)) for _ in range(turns)]
    tenth = max(1, chunks // 10)
    early, late = Spread.of((1e3 * seconds[:tenth]).tolist()), Spread.of((1e3 * seconds[-tenth:]).tolist())
    return Soak(
        model=backbone.name,
        budget=budget,
        parameters=sum(weight.numel() for weight in backbone.model.parameters()),
        frames_per_second={count: Spread.of(values) for count, values in speed.items()},
        faster_with_two=Spread.of_ratios(speed[2], speed[1]),
        chunks=chunks,
        stream_seconds=session.time,
        resident=resident,
        growth_percent=100 * (max(resident) - min(resident)) / min(resident),
        last_to_first=resident[-1] / resident[0],
        early_ms=early,
        late_ms=late,
        late_to_early=late.median / early.median,
        old_to_young=Spread.of([old / new for old, new in pairs]),
        tokens_early=tokens[0],
        tokens_late=tokens[1],
        kv_bytes=session.memory.kv_bytes,
        kv_bytes_reserved=session.memory.kv_bytes_reserved,
    )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Torch with that many threads, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _speeds(feed: Feed, frames: int, blocks: int, block: int) -> dict[int, list[float]]:
    """Frames per second of each block, by threads; the blocks take turns."""
    speed: dict[int, list[float]] = {1: [], 2: []}
    for number in range(blocks + 1):
        for threads, values in speed.items():
            with _threads(threads):
                seconds = timed(lambda: feed.chunk(block))
            if number:  # the first of each starts the threads
                values.append(block * frames / seconds)
    return speed


def _run(
    feed: Feed, session: Session, chunks: int, on_chunk: Callable[[int, int], None]
) -> tuple[NDArray[np.float64], list[int], tuple[int, int]]:
    """Seconds of each chunk, resident bytes at the sampling points, tokens of the first and the last chunk."""
    seconds = np.ones(chunks)  # written once here, so that filling it takes no new pages
    points = {round(chunks * i / (SAMPLES - 1)) for i in range(1, SAMPLES)}
    seen = session.memory.seen
    gc.collect()
    resident = [resident_bytes()]
    first = last = 0
    for number in range(chunks):
        before = session.memory.seen
        started = perf_counter()
        feed.chunk()
        seconds[number] = perf_counter() - started
        last = session.memory.seen - before
        first = first or session.memory.seen - seen
        if number + 1 in points:
            resident.append(resident_bytes())
        on_chunk(number + 1, chunks)
    return seconds, resident, (first, last)
