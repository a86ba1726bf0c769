"""Stage 2: the language model learns to answer about streams put together from the encoded chunks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from transformers import Qwen3_5ForConditionalGeneration

from longtake.toy.script import Script
from longtake.toy.streams import ChunkPool, Stream, by_colour, chunk_times, embed, join, pick_questions, watch
from longtake.toy.world import World

_TOKENS_PER_STEP = 4000
_PEAK_RATE = 2e-3
_WARMUP = 60
_FLAT = 0.6  # share of the steps at the peak rate, before the cosine down to 3 %
_FINAL = 0.03
_LONG_FROM, _LONG_SHARE = 0.7, 0.3  # share of the steps after which the longest streams come, and how often
_REPLAY = 0.3  # share of steps on earlier grades


@dataclass(frozen=True, slots=True)
class Grade:
    """Streams of up to `chunks` seconds with `fewest` to `most` events, and the questions packed after one.

    Attributes:
        questions: at most so many in all.
        seen: up to so many of them ask whether a shape was shown, `absent` for the colour of one that was not.
        named: "was the X shown ?" is answered by the colour, or "nothing", in place of "yes" and "no".
        passes, patience: the next grade begins when the smoothed accuracies of `kinds` are above the one, or after
            so many steps.
    """

    chunks: int
    fewest: int
    most: int
    questions: int = 12
    seen: int = 4
    absent: int = 1
    named: bool = False
    passes: float = 0.85
    patience: int = 150

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of questions that the grade is about."""
        return ("colour", "seen") if not self.named else ("colour", "unnamed" if self.absent else "named")


# Whether a shape was shown is learned in three grades. From "yes" and "no" alone it stays a coin toss for thousands of
# questions: to read the answer the attention must look for the shape, and it will not before there is an answer to
# read. So the same words first ask for the colour, which makes them look; then for shapes that were not there, which
# lets the attention rest where nothing was shown; and then "yes" and "no" are a matter of reading.
CURRICULUM: Final = (
    Grade(8, 1, 3, 10, 3, 0, named=True),
    Grade(8, 1, 3, 10, 2, 1, named=True, patience=350),
    Grade(8, 1, 3, 8, 3, 1, patience=300),
    Grade(16, 1, 6, 10),
    Grade(32, 2, 10),
    Grade(64, 3, 14, 14),
    Grade(128, 2, 16, 14),
)
LONG: Final = (Grade(256, 4, 16, 16), Grade(600, 10, 20, 16))
"""Grades of the last third of the training, mixed into the last one of the curriculum."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What one step tells: its number, the grade, the loss, and smoothed accuracies by kind of question."""

    step: int
    grade: int
    loss: float
    smooth: dict[str, float]


def draw_stream(script: Script, pool: ChunkPool, grade: Grade, rng: np.random.Generator) -> tuple[Stream, list[str]]:
    """A random stream of the grade with its questions answered, and the kind of each question."""
    seconds = int(rng.integers(grade.chunks * 5 // 8, grade.chunks + 1))
    most = min(grade.most, (seconds - 1) // 3)
    world = World(int(rng.integers(1 << 40)), seconds, int(rng.integers(min(grade.fewest, most), most + 1)))
    at = _moment(world, rng)
    features = watch(world, at, pool, int(rng.integers(len(pool.quiet))), rng)
    times = chunk_times(at)
    skips: NDArray[np.int64] | None = None
    if rng.random() < 0.5:
        times = times + float(np.exp(rng.uniform(0, np.log(5 * 3600))))
    if rng.random() < 0.3:
        skips = _skips(len(times), rng)
        times = times + np.cumsum(skips[:-1]) // 9
    questions = pick_questions(world.questions(at), grade.questions, grade.seen, grade.absent, rng)
    if grade.named:
        questions = [by_colour(question, world) if question.kind == "seen" else question for question in questions]
        questions = [question for question in questions if grade.absent or question.kind != "unnamed"]
    turns = [(_spoken(question.text, rng), question.answer) for question in questions]
    return join(script, features, times, turns, skips), [question.kind for question in questions]


def train_language(
    model: Qwen3_5ForConditionalGeneration,
    script: Script,
    pool: ChunkPool,
    steps: int,
    seed: int,
    report: Callable[[Progress], None],
    state: dict[str, Any] | None = None,
) -> None:
    """Train everything but the tower and the decay rates. `state` takes the optimizer's state to go on from a step.

    Every step draws from its own generator, so a run that was interrupted goes on as if it had not been.
    """
    parameters = _trainable(model)
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
        chosen = _grade(grade, step / steps, rng)
        loss, hits = train_step(model, script, pool, chosen, rng)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        now = CURRICULUM[grade]
        if chosen is now:
            for kind in now.kinds:
                if scores := [hit for name, hit in hits if name == kind]:
                    old = smooth.get(kind, 0.0)
                    smooth[kind] = old + 0.08 * (sum(scores) / len(scores) - old)
        ripe = all(smooth.get(kind, 0.0) > now.passes for kind in now.kinds)
        if (ripe or step + 1 - entered >= now.patience) and grade < len(CURRICULUM) - 1:
            grade, entered, smooth = grade + 1, step + 1, {}
        if state is not None:
            state |= {"step": step + 1, "grade": grade, "entered": entered, "smooth": dict(smooth)}
            state |= {"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
        report(Progress(step, grade, loss.item(), dict(smooth)))


def train_step(
    model: Qwen3_5ForConditionalGeneration,
    script: Script,
    pool: ChunkPool,
    grade: Grade,
    rng: np.random.Generator,
) -> tuple[torch.Tensor, list[tuple[str, bool]]]:
    """The loss on answers and their ends over one batch, and of each question its kind and whether it was right."""
    streams: list[Stream] = []
    kinds: list[str] = []
    tokens = 0
    while tokens < _TOKENS_PER_STEP:
        stream, asked = draw_stream(script, pool, grade, rng)
        streams.append(stream)
        kinds += asked
        tokens += len(stream.ids)
    embeddings, axes = embed(model, streams, script.video_id)
    hidden = model.model.language_model(inputs_embeds=embeddings, position_ids=axes, use_cache=False).last_hidden_state
    rows, columns, targets = [], [], []
    for row, stream in enumerate(streams):
        for mark in script.answer_positions(stream.ids.tolist()):
            rows += [row, row]
            columns += [mark, mark + 1]
            targets += stream.ids[mark + 1 : mark + 3].tolist()
    logits = model.lm_head(hidden[rows, columns])
    target = torch.tensor(targets)
    losses = F.cross_entropy(logits, target, reduction="none").view(-1, 2)
    # The end after the answer is easy; it must not drown the words.
    loss = (losses * torch.tensor([1.0, 0.1])).sum(dim=1).mean()
    hits = (logits.argmax(dim=-1) == target)[::2].tolist()
    return loss, list(zip(kinds, hits, strict=True))


def _trainable(model: Qwen3_5ForConditionalGeneration) -> list[torch.nn.Parameter]:
    # Trained decay rates could drift to where the recurrent states alone hold the colours.
    frozen = ("A_log", "dt_bias")
    return [p for name, p in model.model.language_model.named_parameters() if not name.endswith(frozen)]


def _rate(step: int, steps: int) -> float:
    if step < _WARMUP:
        return (step + 1) / _WARMUP
    late = max(0.0, (step / steps - _FLAT) / (1 - _FLAT))
    return _FINAL + (1 - _FINAL) * 0.5 * (1 + float(np.cos(np.pi * late)))


def _grade(grade: int, done: float, rng: np.random.Generator) -> Grade:
    if grade == len(CURRICULUM) - 1 and done > _LONG_FROM and rng.random() < _LONG_SHARE:
        return LONG[int(rng.integers(len(LONG)))]
    # Grades that answer the same question otherwise are not gone back to.
    earlier = [old for old in CURRICULUM[:grade] if old.named == CURRICULUM[grade].named]
    if earlier and rng.random() < _REPLAY:
        return earlier[int(rng.integers(len(earlier)))]
    return CURRICULUM[grade]


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


def _spoken(text: str, rng: np.random.Generator) -> str:
    """The question as people also write it."""
    if rng.random() < 0.2:
        text = text[0].upper() + text[1:]
    if rng.random() < 0.1:
        text = text.replace("colour", "color")
    if rng.random() < 0.1:
        text = text.removesuffix(" ?")
    return text
