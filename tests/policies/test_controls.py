"""The controls: recency, true uniform, reservoir random, and the full cache."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtake.engine import Engine
from longtake.policies.random import Random
from longtake.policies.uniform import Uniform
from longtake.session import Session
from models import noise, random_backbone


def streamed(policy: str, budget: int | None, count: int = 80, **options: int) -> Session:
    session = Engine(random_backbone()).open(policy, budget, policy_options=options)
    for i, frame in enumerate(noise(count, seed=40)):
        session.push(frame, i * 0.5)
    return session


def test_recency_holds_the_first_tokens_and_the_newest() -> None:
    session = streamed("recency", 50, sinks=6)
    seen = session.memory.seen
    expected = [*range(6), *range(seen - 44, seen)]
    assert sorted(session.memory.ledger["index"].tolist()) == expected


@given(st.integers(2, 3000), st.integers(2, 200))
def test_uniform_is_even_over_the_whole_stream_at_any_moment(length: int, held: int) -> None:
    """The largest gap between neighbours kept is at most twice the smallest, up to the power of two between them.

    Seen to fail when every second of the chunks left is dropped at each cut (recency in disguise).
    """
    uniform = Uniform(budget=1)
    priority = [uniform.priority(chunk) for chunk in range(length)]
    kept = sorted(sorted(range(length), key=lambda c: -priority[c])[: min(held, length)])
    gaps = np.diff([*kept, length])
    assert kept[0] == 0
    assert len(set(priority)) == length
    stride = length / len(kept)
    assert gaps.max() <= 2 * stride + 1


def test_uniform_holds_whole_chunks_from_the_whole_stream() -> None:
    session = streamed("uniform", 70)
    ledger = session.memory.ledger
    chunks, sizes = np.unique(ledger["chunk"][ledger["chunk"] >= 0].numpy(), return_counts=True)
    assert chunks[0] == 0
    assert np.diff(chunks).max() <= 2 * session.chunks / len(chunks) + 1
    assert sizes.min() >= sizes.max() - 1, "chunks are not split (timestamps differ by a digit)"
    assert (ledger["chunk"] == -1).sum() > 0, "the opening of the prompt stays"


def test_random_is_a_reservoir_flat_in_time() -> None:
    """Over many seeds each chunk is kept equally often, however old. Seen to fail with fresh draws at each cut."""
    length, held, seeds = 64, 16, 400
    kept = np.zeros(length)
    for seed in range(seeds):
        policy = Random(budget=1, seed=seed)
        alive: list[int] = []
        for chunk in range(length):
            alive.append(chunk)
            alive.sort(key=policy.priority, reverse=True)
            del alive[held:]
        kept[alive] += 1
    share = kept.reshape(4, -1).sum(axis=1) / (seeds * length / 4)
    assert np.abs(share - held / length).max() < 0.03  # five standard errors


def test_another_seed_keeps_other_chunks() -> None:
    kept = [set(streamed("random", 70, seed=seed).memory.ledger["chunk"].tolist()) for seed in (0, 1)]
    assert kept[0] != kept[1]


@pytest.mark.parametrize("budget", [None, 10])
def test_full_keeps_everything_whatever_the_budget(budget: int | None) -> None:
    session = streamed("full", budget)
    assert session.tokens_evicted == 0
    assert session.policy.budget is None
