"""What the embedded model knows, from what: the figures that make it worth testing policies on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch

from longtake.backbones.backbone import Backbone
from longtake.demo import run_demo
from longtake.engine import Engine
from longtake.memory import Keep
from longtake.session import Session
from longtake.toy import Question, World, render


def watched(
    backbone: Backbone,
    folder: Path,
    seeds: range,
    seconds: float,
    kinds: tuple[str, ...] = ("colour",),
    *,
    policy: str = "full",
    budget: int | None = None,
) -> Iterator[tuple[Session, list[Question]]]:
    """Sessions at the end of real H.264 files of worlds that training never saw, and what to ask."""
    for seed in seeds:
        world = World(seed, seconds)
        video = folder / f"{seed}-{seconds:g}.mp4"
        if not video.exists():
            render(world, video)
        with Engine(backbone).open(policy, budget) as session:
            session.watch(video)
            yield session, world.questions(seconds, kinds)


def share_right(asked: Iterable[tuple[Session, list[Question]]]) -> float:
    right = [session.ask(q.text).text == q.answer for session, questions in asked for q in questions]
    return sum(right) / len(right)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worlds")


SEEDS = range(910_000, 910_008)
KINDS = ("colour", "first", "last", "seen", "now")


def test_what_is_known_lives_in_keys_and_values(toy: Backbone, folder: Path) -> None:
    """The other end: if the recurrent states held the colours, evicting keys and values would show nothing."""
    full: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    emptied: list[bool] = []
    for session, questions in watched(toy, folder, SEEDS, 64.0, KINDS):
        for q in questions:
            full[q.kind].append(session.ask(q.text).text == q.answer)
        session.memory.evict(Keep.shared(torch.empty(0, dtype=torch.int64)))
        emptied += [session.ask(q.text).text == q.answer for q in questions if q.kind == "colour"]
    shares = {kind: sum(right) / len(right) for kind, right in full.items()}
    assert shares["colour"] >= 0.95
    assert min(shares.values()) >= 0.85, shares
    assert sum(emptied) / len(emptied) <= 0.25


@pytest.mark.slow
def test_at_a_tenth_of_the_tokens_state_drift_is_worth_twice_recency(toy: Backbone, folder: Path) -> None:
    """Ten-minute streams: DeltaS against recency, and within reach of the full cache."""
    seeds, seconds = range(920_000, 920_002), 600.0
    with Engine(toy).open("full") as session:
        session.watch(render(World(seeds[0], seconds), folder / f"{seeds[0]}-{seconds:g}.mp4"))
        budget = session.memory.seen // 10
    figures = {
        policy: share_right(watched(toy, folder, seeds, seconds, policy=policy, budget=budget))
        for policy in ("full", "deltas", "recency")
    }
    assert figures["full"] >= 0.95
    assert figures["deltas"] >= 2 * figures["recency"]
    assert figures["deltas"] >= 0.75 * figures["full"]


def test_the_demonstration_finds_out_and_draws(toy: Backbone, tmp_path: Path) -> None:
    steps: list[tuple[str, float]] = []
    result = run_demo(
        Engine(toy), tmp_path, seconds=90.0, policies=("deltas", "recency"), on_step=lambda *step: steps.append(step)
    )
    full, deltas, recency = result.runs
    assert full.held == full.seen == deltas.seen
    assert deltas.budget == recency.budget == full.seen // 10
    assert deltas.held <= full.seen // 10
    assert full.right_of()[0] / full.right_of()[1] >= 0.9
    assert full.shares.min() > 0.7
    assert recency.shares[: len(recency.shares) // 2].max() < 0.5
    assert recency.shares[-1] > 0.9
    assert result.picture.stat().st_size > 1000
    assert result.video.with_suffix(".json").exists()
    assert {name for name, _ in steps} >= {"rendering the world", "watching with deltas, recency"}
