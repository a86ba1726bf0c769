"""Streams put together from encoded chunks: token for token what the runtime feeds, without rendering or encoding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtake.toy.shapes import COLOURS, THINGS
from longtake.toy.world import World
from longtake.training.frames import CALM, FramePool, batches, weather
from longtake.training.species import Species
from longtake.training.student import Student

CALM_COPIES: Final = 24
WILD_COPIES: Final = 40
_WILD_EVENTS = 0.4
_THING_INDEX = {name: index for index, name in enumerate(THINGS)}
_COLOUR_INDEX = {name: index for index, name in enumerate(COLOURS)}


@dataclass(frozen=True, slots=True)
class ChunkPool:
    """Features of chunks on `n` backgrounds.

    quiet: float32 [n, 64, 4, 128], draws of the empty scene: 24 with noise alone, then 40 disturbed.
    events: float32 [n, 26, 8, views, 4, 128], per thing and colour.
    """

    quiet: Tensor
    events: Tensor


@dataclass(frozen=True, slots=True)
class Stream:
    """ids [L], positions [axes, L], branches [L] (see `Species.hidden`), and the features [V, 128] that replace the V
    video tokens in order."""

    ids: Tensor
    positions: Tensor
    branches: Tensor
    features: Tensor


@torch.no_grad()
def encode_pool(student: Student, pool: FramePool, seed: int) -> ChunkPool:
    """Run the trained tower over every kind of chunk of the pool."""
    species = student.species
    generator = torch.Generator().manual_seed(seed)

    def features(frames: Tensor, wild: float) -> Tensor:
        parts = []
        for part in batches(len(frames), 1024):
            parts.append(student.encode(weather(frames[part], generator, wild)))
        return torch.cat(parts)

    def draws(views: Tensor, count: int) -> Tensor:
        return views[torch.randint(len(views), (count, species.frames), generator=generator)]

    quiet, events = [], []
    for empty, shown in zip(pool.quiet, pool.events, strict=True):
        calm = draws(empty[CALM : CALM + 1], CALM_COPIES)
        quiet.append(torch.cat([features(calm, 0.0), features(draws(empty, WILD_COPIES), 1.0)]))
        shown = shown.flatten(0, 1)
        views = []
        for view in species.views:
            beside = draws(empty, len(shown))
            frames = torch.where(torch.tensor(view)[:, None, None, None], shown[:, None], beside)
            views.append(features(frames, _WILD_EVENTS))
        events.append(torch.stack(views, dim=1).unflatten(0, (len(THINGS), len(COLOURS))))
    return ChunkPool(torch.stack(quiet), torch.stack(events))


def watch(species: Species, world: World, at: float, pool: ChunkPool, scene: int, rng: np.random.Generator) -> Tensor:
    """Features of all chunks sampled before `at`: [chunks, 4, 128].

    A last frame without a partner is doubled, as the runtime does when a question comes between the two.
    """
    rate = species.frames
    frames = np.full(int(np.ceil(at * rate)), -1)
    for index, event in enumerate(world.events):
        frames[int(np.ceil(event.start * rate)) : int(np.ceil(event.end * rate))] = index
    if len(frames) % rate:
        frames = np.append(frames, frames[-1])
    chunks = frames.reshape(-1, rate)
    copies = rng.integers(0, CALM_COPIES, len(chunks))
    if world.scenery.distractors:
        copies = CALM_COPIES + rng.integers(0, WILD_COPIES, len(chunks))
    found = pool.quiet[scene, torch.from_numpy(copies)]
    for chunk in np.flatnonzero((chunks >= 0).any(axis=1)):
        event = world.events[chunks[chunk].max()]
        shows = tuple((chunks[chunk] >= 0).tolist())
        fitting = [number for number, view in enumerate(species.views) if view == shows]
        view = fitting[int(rng.integers(len(fitting)))]
        found[chunk] = pool.events[scene, _THING_INDEX[event.shape], _COLOUR_INDEX[event.colour], view]
    return found


def chunk_times(species: Species, at: float) -> NDArray[np.float64]:
    """Timestamp of each chunk of `watch`: the mean of its frames' times, in seconds."""
    rate = species.frames
    frames = np.arange(int(np.ceil(at * rate))) / rate
    if len(frames) % rate:
        frames = np.append(frames, frames[-1])
    times: NDArray[np.float64] = frames.reshape(-1, rate).mean(axis=1)
    return times


def join(
    student: Student,
    features: Tensor,
    times: NDArray[np.float64],
    turns: Sequence[tuple[str, str | None]] = (),
    skips: NDArray[np.int64] | None = None,
) -> Stream:
    """One sequence: opening, chunks, turns.

    `skips` [chunks + 1] are position jumps before each chunk and after the last.
    """
    script = student.script
    ids = list(script.opening)
    jumps = [0] * (len(ids) - 1) + [0 if skips is None else int(skips[0])]
    for index, time in enumerate(times):
        piece = script.chunk(float(time))
        ids += piece
        jumps += [0] * (len(piece) - 1) + [0 if skips is None else int(skips[index + 1])]
    before = len(ids)
    first, *others = script.branches(turns) if turns else [[]]
    asked = before + script.endings if turns else before  # what ends the video is seen by all questions
    tokens = torch.tensor([*ids, *first])
    skipped = torch.tensor(jumps + [0] * len(first))
    places = [student.species.positions(tokens, script.video_id, skipped)]
    branches = [0] * asked + [1] * (len(tokens) - asked)
    for number, other in enumerate(others, 2):
        # Each question stands where the first does.
        places.append(places[0][:, asked : asked + 1] + torch.arange(len(other)))
        branches += [number] * len(other)
    return Stream(
        torch.cat([tokens, *(torch.tensor(other) for other in others)]),
        torch.cat(places, dim=1),
        torch.tensor(branches),
        features.reshape(-1, features.shape[-1]),
    )


def embed(student: Student, streams: Sequence[Stream]) -> tuple[Tensor, Tensor, Tensor]:
    """Right-padded embeddings [B, L, 128], positions [axes, B, L] and branches [B, L]. Causal layers never see the
    padding."""
    longest = max(len(stream.ids) for stream in streams)
    ids = torch.zeros(len(streams), longest, dtype=torch.long)
    axes = torch.zeros(student.species.axes, len(streams), longest, dtype=torch.long)
    branches = torch.zeros_like(ids)
    for row, stream in enumerate(streams):
        branches[row, : len(stream.ids)] = stream.branches
        ids[row, : len(stream.ids)] = stream.ids
        axes[:, row, : len(stream.ids)] = stream.positions
    embeddings = student.model.get_input_embeddings()(ids)
    mask = (ids == student.script.video_id).unsqueeze(-1)
    ending = student.species.ending(student.model)
    features = [part for stream in streams for part in (stream.features, ending)]
    return embeddings.masked_scatter(mask, torch.cat(features)), axes, branches
