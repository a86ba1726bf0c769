"""Streams put together from encoded chunks: token for token what the runtime feeds, without rendering or encoding."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import Qwen3_5ForConditionalGeneration, Qwen3VLProcessor

from longtake.toy.frames import FramePool, batches, patches, weather
from longtake.toy.model import TOKENS
from longtake.toy.script import Script, positions
from longtake.toy.shapes import COLOURS, SHAPES
from longtake.toy.vision_stage import encode
from longtake.toy.world import Question, World

_QUIET_COPIES = 24
_SHAPE_INDEX = {name: index for index, name in enumerate(SHAPES)}
_COLOUR_INDEX = {name: index for index, name in enumerate(COLOURS)}


@dataclass(frozen=True, slots=True)
class ChunkPool:
    """Features of chunks on `n` backgrounds.

    quiet: float32 [n, 24, 4, 128], draws of noise on the empty scene.
    events: float32 [n, 16, 8, 4, 4, 128], per shape and colour: in both frames (two draws), the first, the second.
    """

    quiet: Tensor
    events: Tensor


@dataclass(frozen=True, slots=True)
class Stream:
    """ids [L], positions [3, L], and the features [V, 128] that replace the V video tokens in order."""

    ids: Tensor
    positions: Tensor
    features: Tensor


@torch.no_grad()
def encode_pool(
    model: Qwen3_5ForConditionalGeneration, processor: Qwen3VLProcessor, pool: FramePool, seed: int
) -> ChunkPool:
    """Run the trained tower over every kind of chunk of the pool."""
    generator = torch.Generator().manual_seed(seed)

    def features(first: Tensor, second: Tensor) -> Tensor:
        parts = []
        for part in batches(len(first), 1024):
            frames = weather(torch.stack([first[part], second[part]], dim=1), generator)
            parts.append(encode(model, patches(processor, frames)))
        return torch.cat(parts)

    quiet, events = [], []
    kinds = len(SHAPES) * len(COLOURS)
    for empty, shown in zip(pool.quiet, pool.events, strict=True):
        still = empty.expand(_QUIET_COPIES, -1, -1, -1)
        quiet.append(features(still, still))
        shown = shown.flatten(0, 1)
        empty = empty.expand(kinds, -1, -1, -1)
        pairs = [(shown, shown), (shown, shown), (shown, empty), (empty, shown)]
        stacked = torch.stack([features(a, b) for a, b in pairs], dim=1)
        events.append(stacked.view(len(SHAPES), len(COLOURS), *stacked.shape[1:]))
    return ChunkPool(torch.stack(quiet), torch.stack(events))


def watch(world: World, at: float, pool: ChunkPool, scene: int, rng: np.random.Generator) -> Tensor:
    """Features of all chunks sampled before `at` at two frames per second: [chunks, 4, 128].

    A last frame without a partner is doubled, as the runtime does when a question comes between the two.
    """
    frames = np.full(int(np.ceil(at * 2)), -1)
    for index, event in enumerate(world.events):
        frames[int(np.ceil(event.start * 2)) : int(np.ceil(event.end * 2))] = index
    if len(frames) % 2:
        frames = np.append(frames, frames[-1])
    chunks = frames.reshape(-1, 2)
    copies = rng.integers(0, _QUIET_COPIES, len(chunks))
    found = pool.quiet[scene, torch.from_numpy(copies)]
    for chunk in np.flatnonzero((chunks >= 0).any(axis=1)):
        first, second = chunks[chunk]
        event = world.events[max(first, second)]
        variant = int(rng.integers(2)) if first == second else 2 if first >= 0 else 3
        found[chunk] = pool.events[scene, _SHAPE_INDEX[event.shape], _COLOUR_INDEX[event.colour], variant]
    return found


def chunk_times(at: float, offset: float = 0.0) -> NDArray[np.float64]:
    """Timestamp of each chunk of `watch`: the mean of its two frame times, in seconds."""
    frames = int(np.ceil(at * 2))
    times = np.arange(0, frames - 1, 2) / 2 + 0.25
    if frames % 2:
        times = np.append(times, (frames - 1) / 2)
    return times + offset


def join(
    script: Script,
    features: Tensor,
    times: NDArray[np.float64],
    turns: Sequence[tuple[str, str | None]] = (),
    skips: NDArray[np.int64] | None = None,
) -> Stream:
    """One sequence: opening, timestamped chunks, turns.

    `skips` [chunks + 1] are position jumps before each chunk and after the last.
    """
    ids = list(script.opening)
    jumps = [0] * (len(ids) - 1) + [0 if skips is None else int(skips[0])]
    for index, time in enumerate(times):
        piece = script.chunk(float(time))
        ids += piece
        jumps += [0] * (len(piece) - 1) + [0 if skips is None else int(skips[index + 1])]
    if turns:
        ids += script.turns(turns)
        jumps += [0] * (len(ids) - len(jumps))
    tokens = torch.tensor(ids)
    return Stream(
        tokens,
        positions(tokens, script.video_id, torch.tensor(jumps)),
        features.reshape(-1, features.shape[-1]),
    )


def embed(model: Qwen3_5ForConditionalGeneration, streams: Sequence[Stream], video_id: int) -> tuple[Tensor, Tensor]:
    """Right-padded embeddings [B, L, 128] and positions [3, B, L]. Causal layers never see the padding."""
    longest = max(len(stream.ids) for stream in streams)
    ids = torch.zeros(len(streams), longest, dtype=torch.long)
    axes = torch.zeros(3, len(streams), longest, dtype=torch.long)
    for row, stream in enumerate(streams):
        ids[row, : len(stream.ids)] = stream.ids
        axes[:, row, : len(stream.ids)] = stream.positions
    embeddings = model.get_input_embeddings()(ids)
    mask = (ids == video_id).unsqueeze(-1)
    return embeddings.masked_scatter(mask, torch.cat([stream.features for stream in streams])), axes


def pick_questions(
    questions: Sequence[Question], count: int, seen: int, absent: int, rng: np.random.Generator
) -> list[Question]:
    """Up to `count` questions in random order, no shape named twice: a named one would give away that it was shown.

    Up to `seen` ask whether a shape was shown, each with a fair coin for an answer; `absent` of them ask for the colour
    of a shape that was not, which is "nothing"; the rest is drawn from the others.
    """
    yes, no, others = (
        [questions[i] for i in rng.permutation(len(questions)) if group(questions[i])]
        for group in (
            lambda q: q.kind == "seen" and q.answer == "yes",
            lambda q: q.kind == "seen" and q.answer == "no",
            lambda q: q.kind != "seen",
        )
    )
    drawn = [yes.pop() if rng.random() < 0.5 else no.pop() for _ in range(min(seen, len(yes), len(no)))]
    for question in no[:absent]:
        text = f"what colour was the {_shape_in(question)} ?"
        drawn.append(replace(question, text=text, answer="nothing", kind="absent"))
    weight = {"colour": 1.0, "first": 3.0, "last": 3.0, "now": 3.0}
    others.sort(key=lambda question: rng.random() ** (1 / weight[question.kind]), reverse=True)
    named: set[str] = set()
    chosen: list[Question] = []
    for question in [*drawn, *others]:
        shape = _shape_in(question)
        if shape not in named and len(chosen) < count:
            chosen.append(question)
            named |= {shape} - {""}
    return [chosen[i] for i in rng.permutation(len(chosen))]


def by_colour(question: Question, world: World) -> Question:
    """A question of kind "seen" answered by the shape's colour ("named"), or "nothing" ("unnamed")."""
    colours = {event.shape: event.colour for event in world.events}
    known = question.answer == "yes"
    return replace(
        question, answer=colours[_shape_in(question)] if known else "nothing", kind="named" if known else "unnamed"
    )


def _shape_in(question: Question) -> str:
    return next((word for word in question.text.split() if word in SHAPES), "")


assert TOKENS == 4
