"""Stage 2: the language model learns to answer about streams put together from the encoded chunks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from longtake.toy.scenery import DISTRACTORS, QUIET, Scenery
from longtake.toy.world import World
from longtake.training.curriculum import CURRICULUM, Grade, draw_grade
from longtake.training.lessons import by_colour, later, pick_questions, spoken
from longtake.training.streams import ChunkPool, Stream, chunk_times, embed, join, watch
from longtake.training.student import Student

_PEAK_RATE = 2e-3
_WARMUP = 60
_FLAT = 0.6  # share of the steps at the peak rate, before the cosine down to 3 %
_FINAL = 0.03
_SMOOTH = 0.08
_SCENES = {"plain": QUIET, "cards": Scenery(cards=True, shapes=False), "again": Scenery(repeats=True)}


@dataclass(frozen=True, slots=True)
class Progress:
    """What one step tells: its number, the grade, the loss, and smoothed accuracies by kind of question."""

    step: int
    grade: int
    loss: float
    smooth: dict[str, float]


def draw_stream(student: Student, pool: ChunkPool, grade: Grade, rng: np.random.Generator) -> tuple[Stream, list[str]]:
    """A random stream of the grade with its questions answered, and the kind of each question."""
    seconds = int(rng.integers(grade.chunks * 5 // 8, grade.chunks + 1))
    most = min(grade.most, (seconds - 1) // 3)
    count = int(rng.integers(min(grade.fewest, most), most + 1))
    cards, repeats, twins, wild = (rng.random(4) < (0.6, 0.6, 0.4, 0.5)).tolist()
    mixed = Scenery(cards=cards, repeats=repeats, twins=twins, distractors=DISTRACTORS if wild else ())
    scenery = {"all": mixed, **_SCENES}[grade.scene]
    world = World(int(rng.integers(1 << 40)), seconds, count, scenery)
    at = _moment(world, rng)
    features = watch(student.species, world, at, pool, int(rng.integers(len(pool.quiet))), rng)
    times = chunk_times(student.species, at)
    ahead = 0.0
    if rng.random() < 0.5:
        ahead = float(rng.uniform(0, 560) if rng.random() < 0.6 else np.exp(rng.uniform(0, np.log(6 * 3600))))
    skips = _skips(len(times), rng) if rng.random() < 0.3 else None
    kinds = [kind for kind in grade.asked if kind != "when" or (student.species.clock and skips is None)]
    questions = pick_questions(
        [moved for question in world.questions(at, kinds) if (moved := later(question, ahead))],
        grade.questions,
        grade.seen,
        grade.absent,
        rng,
        student.species.forks,
    )
    if grade.named:
        questions = [by_colour(question, world) if question.kind == "seen" else question for question in questions]
        questions = [question for question in questions if grade.absent or question.kind != "unnamed"]
    times = times + ahead
    if skips is not None:
        times = times + np.cumsum(skips[:-1]) // 9
    turns = [(spoken(question.text, rng), question.answer) for question in questions]
    return join(student, features, times, turns, skips), [question.kind for question in questions]


def train_language(
    student: Student,
    pool: ChunkPool,
    steps: int,
    seed: int,
    report: Callable[[Progress], None],
    state: dict[str, Any] | None = None,
) -> None:
    """Train everything but the tower and the decay rates. `state` takes the optimizer's state to go on from a step.

    Every step draws from its own generator, so a run that was interrupted goes on as if it had not been.
    """
    parameters = student.species.language(student.model)
    optimizer = torch.optim.AdamW(parameters, lr=_PEAK_RATE, weight_decay=0.05, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    start, grade, entered = 0, 0, 0
    smooth: dict[str, float] = {}
    if state and "step" in state:
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        start, grade, entered, smooth = (state[key] for key in ("step", "grade", "entered", "smooth"))
    for step in range(start, steps):
        rng = np.random.default_rng([seed, 7, step])
        chosen = draw_grade(grade, step / steps, rng)
        loss, hits = train_step(student, pool, chosen, rng)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        now = CURRICULUM[grade]
        if chosen is now:
            for kind in {kind for kind, _ in hits}:
                scores = [hit for name, hit in hits if name == kind]
                old = smooth.get(kind, 0.0)
                smooth[kind] = old + _SMOOTH * (sum(scores) / len(scores) - old)
        ripe = all(smooth.get(kind, 0.0) > now.passes for kind in now.kinds)
        if (ripe or step + 1 - entered >= now.patience) and grade < len(CURRICULUM) - 1:
            grade, entered, smooth = grade + 1, step + 1, {}
        if state is not None:
            state |= {"step": step + 1, "grade": grade, "entered": entered, "smooth": dict(smooth)}
            state |= {"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
        report(Progress(step, grade, loss.item(), dict(sorted(smooth.items()))))


def train_step(
    student: Student, pool: ChunkPool, grade: Grade, rng: np.random.Generator
) -> tuple[torch.Tensor, list[tuple[str, bool]]]:
    """The loss on answers and their ends over one batch, and of each question its kind and whether it was right."""
    streams: list[Stream] = []
    kinds: list[str] = []
    tokens = 0
    while tokens < grade.tokens:
        stream, asked = draw_stream(student, pool, grade, rng)
        streams.append(stream)
        kinds += asked
        tokens += len(stream.ids)
    hidden = student.species.hidden(student.model, *embed(student, streams))
    rows, columns, targets = [], [], []
    for row, stream in enumerate(streams):
        for mark in student.script.answer_positions(stream.ids.tolist()):
            rows += [row, row]
            columns += [mark, mark + 1]
            targets += stream.ids[mark + 1 : mark + 3].tolist()
    logits = student.model.lm_head(hidden[rows, columns])
    target = torch.tensor(targets)
    losses = F.cross_entropy(logits, target, reduction="none").view(-1, 2)
    # The end after the answer is easy; it must not drown the words.
    loss = (losses * torch.tensor([1.0, 0.1])).sum(dim=1).mean()
    hits = (logits.argmax(dim=-1) == target)[::2].tolist()
    return loss, list(zip(kinds, hits, strict=True))


def _rate(step: int, steps: int) -> float:
    if step < _WARMUP:
        return (step + 1) / _WARMUP
    late = max(0.0, (step / steps - _FLAT) / (1 - _FLAT))
    return _FINAL + (1 - _FINAL) * 0.5 * (1 + float(np.cos(np.pi * late)))


def _moment(world: World, rng: np.random.Generator) -> float:
    """When the questions come: at the end; a full second into a late event; or between the two frames of a chunk."""
    draw = rng.random()
    late = [event for event in world.events[-3:] if np.ceil(event.start) + 1 <= event.end]
    if draw < 0.35 and late:
        event = late[int(rng.integers(len(late)))]
        return float(np.ceil(event.start) + 1)
    if draw > 0.9 and world.seconds > 1:
        return world.seconds - 0.5
    return world.seconds


def _skips(chunks: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Position jumps as evicted chunks would leave them: before the first chunk, and at a few places in between."""
    skips = np.zeros(chunks + 1, dtype=np.int64)
    spots = rng.random(chunks + 1) < min(0.5, 6 / chunks)
    skips[spots] = np.exp(rng.uniform(0, np.log(1000), int(spots.sum()))).astype(np.int64)
    if rng.random() < 0.5:
        skips[0] = int(np.exp(rng.uniform(0, np.log(10_000))))
    skips[-1] = 0
    return skips
