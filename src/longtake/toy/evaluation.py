"""How well the toy answers, and where its answers live: in keys and values, or in the recurrent states."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import Qwen3_5ForConditionalGeneration

from longtake.toy.cache import Held, answer, read
from longtake.toy.script import Script
from longtake.toy.streams import ChunkPool, chunk_times, join, watch
from longtake.toy.world import Question, World

_PINNED = 4  # tokens at the start that eviction never touches
_BUCKETS = 4


@dataclass(frozen=True, slots=True)
class Trial:
    """Streams of equal length that a model has read, with the questions at their end.

    events: bool [B, chunks], whether a chunk shows a shape in either frame.
    """

    held: Held
    questions: tuple[tuple[Question, ...], ...]
    events: Tensor


def prepare(
    model: Qwen3_5ForConditionalGeneration,
    script: Script,
    pool: ChunkPool,
    seconds: int,
    events: tuple[int, int],
    streams: int,
    seed: int,
    chunkwise: bool = False,
) -> Trial:
    """Read `streams` new worlds of `seconds`, each with a number of events in the given range.

    Every other one is chosen to end while a shape is there, so that both answers to "now" are asked for.
    """
    rng = np.random.default_rng([seed, 11, seconds])
    worlds = [_world(rng, seconds, events, busy=index % 2 == 1) for index in range(streams)]
    times = chunk_times(seconds)
    read_in = [
        join(script, watch(world, seconds, pool, index % len(pool.quiet), rng), times)
        for index, world in enumerate(worlds)
    ]
    shown = [[bool(w.visible(t) or w.visible(t + 0.5)) for t in range(seconds)] for w in worlds]
    return Trial(
        read(model, script, read_in, chunkwise),
        tuple(tuple(world.questions(seconds)) for world in worlds),
        torch.tensor(shown),
    )


def accuracy(
    model: Qwen3_5ForConditionalGeneration,
    script: Script,
    trial: Trial,
    keep: Callable[[int], Tensor] | None = None,
    zero_states: bool = False,
) -> dict[str, float]:
    """Share of right answers by kind and over all questions. `keep` gives the kept token indices of a stream."""
    right: dict[str, list[bool]] = defaultdict(list)
    for row, questions in enumerate(trial.questions):
        kept = None if keep is None else keep(row)
        words = answer(model, script, trial.held, row, [q.text for q in questions], kept, zero_states)
        for question, word in zip(questions, words, strict=True):
            right[question.kind].append(word == script.word(question.answer))
    scores = {kind: sum(hits) / len(hits) for kind, hits in sorted(right.items())}
    everything = [hit for hits in right.values() for hit in hits]
    return scores | {"all": sum(everything) / len(everything), "asked": float(len(everything))}


def nothing_kept(_: int) -> Tensor:
    """No keys and values at all: only the recurrent states answer."""
    return torch.zeros(0, dtype=torch.long)


def newest_kept(trial: Trial, budget: int) -> Callable[[int], Tensor]:
    """The first tokens and the newest ones."""
    total = trial.held.spans[-1][1]
    kept = torch.cat([torch.arange(_PINNED), torch.arange(total - budget + _PINNED, total)])
    return lambda _: kept


def drift_kept(trial: Trial, budget: int) -> Callable[[int], Tensor]:
    """The first tokens, the newest eighth of the budget, and from each quarter of the time what drifted most."""
    spans, total = trial.held.spans, trial.held.spans[-1][1]
    window = total - budget // 8

    def keep(row: int) -> Tensor:
        marked = torch.zeros(total, dtype=torch.bool)
        marked[:_PINNED] = True
        marked[window:] = True
        share = (budget - _PINNED - budget // 8) // _BUCKETS
        for bucket in np.array_split(np.arange(len(spans)), _BUCKETS):
            room = share
            for chunk in sorted(bucket.tolist(), key=lambda c: -float(trial.held.drift[row, c])):
                start, end = spans[chunk]
                if start >= window or end - start > room:
                    continue
                marked[start:end] = True
                room -= end - start
        return marked.nonzero().flatten()

    return keep


def separation(scores: Tensor, positive: Tensor) -> float:
    """AUC: the chance that a positive scores above a negative."""
    order = scores.flatten().argsort().argsort().double() + 1
    hits = positive.flatten()
    yes, no = int(hits.sum()), int((~hits).sum())
    return float((order[hits].sum() - yes * (yes + 1) / 2) / (yes * no))


def evaluate(
    model: Qwen3_5ForConditionalGeneration,
    script: Script,
    pool: ChunkPool,
    seed: int,
    lengths: Sequence[tuple[int, int]] = ((64, 32), (128, 24)),
    long_streams: int = 12,
) -> dict[str, dict[str, float]]:
    """Accuracies on new worlds over the given pool: with everything, without keys and values, without states.

    Then streams of ten minutes, once more with a tenth of the tokens kept by drift or by recency.
    """
    report: dict[str, dict[str, float]] = {}
    for seconds, streams in lengths:
        trial = prepare(model, script, pool, seconds, (4, min(16, seconds // 5)), streams, seed)
        report[f"{seconds} chunks, full"] = accuracy(model, script, trial)
        report[f"{seconds} chunks, no keys and values"] = accuracy(model, script, trial, nothing_kept)
        report[f"{seconds} chunks, no states"] = accuracy(model, script, trial, zero_states=True)
    if long_streams:
        report |= _long_streams(model, script, pool, seed, long_streams)
    return report


def _long_streams(
    model: Qwen3_5ForConditionalGeneration, script: Script, pool: ChunkPool, seed: int, streams: int
) -> dict[str, dict[str, float]]:
    trial = prepare(model, script, pool, 600, (16, 16), streams, seed, chunkwise=True)
    budget = trial.held.spans[-1][1] // 10
    after = torch.zeros_like(trial.events)
    after[:, 1:] = trial.events[:, :-1] & ~trial.events[:, 1:]
    rest = ~trial.events & ~after
    drift = trial.held.drift
    return {
        "600 chunks, full": accuracy(model, script, trial),
        "600 chunks, no keys and values": accuracy(model, script, trial, nothing_kept),
        "600 chunks, a tenth by drift": accuracy(model, script, trial, drift_kept(trial, budget)),
        "600 chunks, a tenth by recency": accuracy(model, script, trial, newest_kept(trial, budget)),
        "600 chunks, drift": {
            "event against all others (AUC)": separation(drift, trial.events),
            "mean of event chunks": float(drift[trial.events].mean()),
            "mean of the chunk after": float(drift[after].mean()),
            "mean of the rest": float(drift[rest].mean()),
        },
    }


def _world(rng: np.random.Generator, seconds: int, events: tuple[int, int], busy: bool) -> World:
    while True:
        count = int(rng.integers(events[0], events[1] + 1))
        world = World(int(rng.integers(1 << 40)), seconds + 1, count)
        now = world.questions(seconds, ["now"])
        if now and (now[0].answer != "nothing") == busy:
            return world
