"""Stage 1: the vision tower learns to name what a chunk shows, in the words of the vocabulary."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from longtake.toy.shapes import COLOURS, SHAPES, THINGS
from longtake.training.frames import FramePool, batches, weather
from longtake.training.species import TOKENS, Species, token_ids
from longtake.training.student import Student

_BATCH = 192
_PEAK_RATE = 3e-3
_SHARPNESS = 2.0
_TOKEN_SHARE = 0.3
_EMPTY = 0.06  # share of chunks that show nothing
_WILD = 0.5
_KINDS = ("shown", "card")  # a shape, a card


@dataclass(frozen=True, slots=True)
class Chunks:
    """Labelled chunks. frames: uint8 [n, F, 3, 32, 32]; thing and colour: int64 [n], one past the last for nothing."""

    frames: Tensor
    thing: Tensor
    colour: Tensor


def draw_chunks(species: Species, pool: FramePool, count: int, generator: torch.Generator) -> Chunks:
    """Random chunks: a thing in the frames that one of the species' views has it in, or an empty scene."""

    def pick(high: int) -> Tensor:
        return torch.randint(high, (count,), generator=generator)

    scene, thing, colour = pick(len(pool.quiet)), pick(len(THINGS)), pick(len(COLOURS))
    views = torch.tensor(species.views)[pick(len(species.views))]
    present = views & (torch.rand(count, 1, generator=generator) >= _EMPTY)
    event = pool.events[scene, thing, colour]
    empty = [pool.quiet[scene, pick(pool.quiet.shape[1])] for _ in range(species.frames)]
    frames = torch.where(present[:, :, None, None, None], event[:, None], torch.stack(empty, dim=1))
    shown = present.any(dim=1)
    return Chunks(
        weather(frames, generator, _WILD),
        torch.where(shown, thing, len(THINGS)),
        torch.where(shown, colour, len(COLOURS)),
    )


def train_vision(
    student: Student,
    pool: FramePool,
    steps: int,
    seed: int,
    report: Callable[[int, float], None],
) -> None:
    """Train tower and word embeddings together; the features end up near the words for what they show."""
    generator = torch.Generator().manual_seed(seed)
    embedding = _words(student)
    parameters = [*student.species.tower(student.model), embedding]
    optimizer = torch.optim.AdamW(parameters, lr=_PEAK_RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _PEAK_RATE, total_steps=steps, pct_start=0.2)
    things, colours, kinds = (_word_ids(student, words) for words in (THINGS, tuple(COLOURS), _KINDS))
    for step in range(steps):
        chunks = draw_chunks(student.species, pool, _BATCH, generator)
        features = student.encode(chunks.frames)
        loss = torch.zeros(())
        sorts = torch.where(chunks.thing < len(SHAPES), 0, torch.where(chunks.thing < len(THINGS), 1, 2))
        for words, target in ((things, chunks.thing), (colours, chunks.colour), (kinds, sorts)):
            scores = _SHARPNESS * features @ embedding[words].T
            loss = loss + F.cross_entropy(scores.mean(dim=1), target)
            loss = loss + _TOKEN_SHARE * F.cross_entropy(scores.flatten(0, 1), target.repeat_interleave(TOKENS))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        report(step, loss.item())


@torch.no_grad()
def vision_accuracy(student: Student, pool: FramePool, seed: int, count: int = 4096) -> dict[str, float]:
    """Share of `count` random chunks of `pool` whose thing and colour the features name."""
    chunks = draw_chunks(student.species, pool, count, torch.Generator().manual_seed(seed))
    embedding = _words(student)
    right = {"thing": 0, "colour": 0}
    for part in batches(len(chunks.frames), 512):
        features = student.encode(chunks.frames[part]).mean(dim=1)
        for name, words, target in (
            ("thing", THINGS, chunks.thing[part]),
            ("colour", tuple(COLOURS), chunks.colour[part]),
        ):
            guess = (features @ embedding[_word_ids(student, words)].T).argmax(dim=-1)
            right[name] += int((guess == target).sum())
    return {name: count / len(chunks.frames) for name, count in right.items()}


def _words(student: Student) -> torch.nn.Parameter:
    weight = student.model.get_input_embeddings().weight
    assert isinstance(weight, torch.nn.Parameter)
    return weight


def _word_ids(student: Student, words: tuple[str, ...]) -> Tensor:
    return token_ids(student.processor.tokenizer, [*words, "nothing"])
