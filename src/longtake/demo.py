"""The demonstration: ten minutes of the toy's world under several policies, judged by what was really shown."""

from __future__ import annotations

import copy
import time as clock
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtake.backbones.backbone import Backbone, Cursor, Segment
from longtake.engine import Engine
from longtake.errors import LongtakeError
from longtake.report.timeline import Mark, draw_timeline, held_share
from longtake.schedule import Schedule
from longtake.toy import Question, World, render
from longtake.toy.shapes import COLOURS
from longtake.video import Chunk, read_video

POLICIES = ("deltas", "recency", "uniform", "random")
KINDS = ("colour", "first", "last", "seen", "now")
SHARE = 10
"""The budget is the stream's tokens divided by this."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question with its truth and what was answered."""

    question: Question
    answer: str

    @property
    def right(self) -> bool:
        return self.answer == self.question.answer


@dataclass(frozen=True, slots=True)
class Run:
    """One policy's way through the stream."""

    policy: str
    budget: int | None
    asked: tuple[Asked, ...]
    held: int
    seen: int
    kv_bytes: int
    shares: NDArray[np.float64]

    def right_of(self, kind: str | None = None) -> tuple[int, int]:
        """(right, asked) of one kind of question, or of all."""
        chosen = [a for a in self.asked if kind is None or a.question.kind == kind]
        return sum(a.right for a in chosen), len(chosen)


@dataclass(frozen=True, slots=True)
class Demo:
    """All that the demonstration found out. The first run is the full cache."""

    world: World
    video: Path
    picture: Path
    runs: tuple[Run, ...]
    seconds: float


def run_demo(
    engine: Engine,
    folder: Path,
    *,
    seconds: float = 600.0,
    seed: int = 2,
    policies: Sequence[str] = POLICIES,
    budget: int | None = None,
    on_step: Callable[[str, float], None] | None = None,
) -> Demo:
    """Render a world, watch it under each policy, ask about early, middle and late events, draw what is held.

    Questions are asked at a third, at two thirds and at the end of the stream.

    Args:
        folder: where the video, its truth and the picture go.
        budget: tokens for every policy but the full cache; by default a tenth of the stream's tokens.
        on_step: called with a step's name and the share of it that is done, 0 to 1.

    Raises:
        LongtakeError: for a value that cannot be used, or a file that cannot be written.
    """
    started = clock.perf_counter()
    if seconds < 30:
        raise LongtakeError(f"The demonstration needs a world of at least 30 seconds, not {seconds:g}.")
    tell = on_step or (lambda step, done: None)
    tell("rendering the world", 0.0)
    world = World(seed, seconds)
    video = render(world, folder / "world.mp4")
    tell("rendering the world", 1.0)
    questions = [q for part in (1 / 3, 2 / 3, 1.0) for q in world.questions(int(seconds * part), KINDS)]
    (full,) = _watch(engine, video, world, questions, ("full",), None, tell)
    tokens = budget or full.seen // SHARE
    runs = [full, *_watch(engine, video, world, questions, policies, tokens, tell)]
    strips = {f"{run.policy}\n{run.held} of {run.seen} tokens": run.shares for run in runs}
    marks = [Mark(e.start, e.end, f"{e.colour} {e.shape}", COLOURS[e.colour]) for e in world.events]
    title = f"What each policy still holds after {seconds:g} seconds"
    picture = draw_timeline(strips, seconds, folder / "memory.png", marks, title)
    return Demo(world, video, picture, tuple(runs), clock.perf_counter() - started)


def _watch(
    engine: Engine,
    video: Path,
    world: World,
    questions: Sequence[Question],
    policies: Sequence[str],
    budget: int | None,
    tell: Callable[[str, float], None],
) -> list[Run]:
    """Watch the video once with a session per policy, in step, so that each chunk is decoded and encoded once."""
    step = f"watching with {', '.join(policies)}"
    shared = Engine(_encoding_once(engine.backbone))
    ordered = sorted(questions, key=lambda question: question.ask_time)
    schedule = Schedule((question.ask_time, question.text) for question in ordered)
    with ExitStack() as stack:
        sessions = [stack.enter_context(shared.open(policy, budget)) for policy in policies]
        answers: list[list[str]] = [[] for _ in sessions]

        def ask(due: Iterator[str]) -> None:
            for text in due:
                for session, said in zip(sessions, answers, strict=True):
                    said.append(session.ask(text).text)

        for frame in stack.enter_context(read_video(video, sessions[0].fps)):
            ask(schedule.before(frame.time))
            for session in sessions:
                session.push(frame.image, frame.time)
            tell(step, frame.time / world.seconds)
        ask(schedule.rest())
        tell(step, 1.0)
        return [
            Run(
                policy=session.policy.name,
                budget=session.policy.budget,
                asked=tuple(Asked(q, text) for q, text in zip(ordered, said, strict=True)),
                held=session.memory.held,
                seen=session.memory.seen,
                kv_bytes=session.memory.kv_bytes,
                shares=held_share(session),
            )
            for session, said in zip(sessions, answers, strict=True)
        ]


def _encoding_once(backbone: Backbone) -> Backbone:
    """The same model for sessions that take the same frames in step: a chunk is encoded for the first of them."""
    twin = copy.copy(backbone)
    newest: dict[str, Any] = {}

    def encode(chunk: Chunk, cursor: Cursor) -> Segment:
        key = chunk.index, chunk.start, chunk.end, replace(cursor)
        if newest.get("key") != key:
            segment = backbone.encode(chunk, cursor)
            newest.update(key=key, segment=segment, after=replace(cursor))
        for field in fields(cursor):
            setattr(cursor, field.name, getattr(newest["after"], field.name))
        encoded: Segment = newest["segment"]
        return encoded

    twin.encode = encode  # type: ignore[method-assign]
    return twin
