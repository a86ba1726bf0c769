"""Compaction of positions: order is kept, gaps go, and a grid stays as the model was trained to see it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from families import FAMILIES, family_backbone
from longtake.backbones.backbone import Backbone
from longtake.engine import Engine
from longtake.kv.ledger import Kind, Ledger
from longtake.memory import Keep
from longtake.policies.positions import by_grid, by_rank
from longtake.policies.registry import make_policy
from longtake.session import Session
from models import noise

QUESTION = "What colour was the circle?"


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Backbone:
    return family_backbone(request.param)


def watched(backbone: Backbone, policy: Any = "full", frames: int = 20) -> Session:
    session = Engine(backbone).open(policy, chunk_frames=2 * backbone.frames_per_step)
    for i, frame in enumerate(noise(frames, seed=73, size=(60, 90))):
        session.push(frame, i * 0.5)
    return session


def thinned(session: Session, seed: int, share: float) -> Ledger:
    """The ledger of a stream from which random tokens after the prefix were evicted."""
    ledger = session.memory.ledger.clone()
    kept = torch.rand(len(ledger), generator=torch.Generator().manual_seed(seed)) < share
    kept |= ledger["kind"] == int(Kind.SYSTEM)
    for name in ("position", "index", "kind", "frame", "patch"):
        column = ledger[name][kept].clone()
        ledger._columns[name] = column
    ledger.length = int(kept.sum())
    return ledger


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), share=st.floats(0.05, 1.0), name=st.sampled_from(sorted(FAMILIES)))
def test_both_ways_keep_the_order_on_every_axis(seed: int, share: float, name: str) -> None:
    backbone = family_backbone(name)
    ledger = thinned(watched(backbone), seed, share)
    old = ledger["position"]
    for new in (by_rank(ledger), by_grid(ledger, backbone.advancing_axes)):
        assert new.shape == old.shape
        for axis in range(backbone.axes):
            order = torch.argsort(old[:, axis], stable=True)
            assert bool((torch.diff(new[order, axis]) >= 0).all())
            assert bool((new[:, axis] <= old[:, axis]).all()), "nothing moves away from the prefix"
        prefix = ledger["kind"] == int(Kind.SYSTEM)
        assert torch.equal(new[prefix], old[prefix])


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), share=st.floats(0.05, 1.0), name=st.sampled_from(sorted(FAMILIES)))
def test_a_grid_moves_as_a_whole(seed: int, share: float, name: str) -> None:
    """One shift per grid, the same on every axis on which the stream advances, none on the others."""
    backbone = family_backbone(name)
    ledger = thinned(watched(backbone), seed, share)
    moved = by_grid(ledger, backbone.advancing_axes) - ledger["position"]
    grids = ledger["frame"][ledger["patch"] >= 0].unique()
    for frame in grids.tolist():
        rows = (ledger["frame"] == frame) & (ledger["patch"] >= 0)
        advancing = moved[rows][:, list(backbone.advancing_axes)]
        assert len(advancing.unique()) == 1
    still = [axis for axis in range(backbone.axes) if axis not in backbone.advancing_axes]
    assert not moved[:, still].any()


def test_ranks_are_those_of_the_appendix() -> None:
    """By hand: a prefix of two, then three grids of 2x2 from which tokens are missing."""
    ledger = Ledger(3)
    position = torch.tensor([[0, 0, 0], [1, 1, 1], [2, 2, 2], [2, 3, 3], [6, 2, 3], [9, 3, 2]])
    ledger._columns["position"] = position
    ledger._columns["kind"] = torch.tensor([0, 0, 2, 2, 2, 2])
    ledger.length = 6
    expected = [[0, 0, 0], [1, 1, 1], [2, 2, 2], [2, 3, 3], [3, 2, 3], [4, 3, 2]]
    assert by_rank(ledger).tolist() == expected


def test_a_stream_that_lost_nothing_keeps_its_positions_by_grid(family: Backbone) -> None:
    """Also where grids follow each other at two positions (Qwen2.5-VL's clock), which ranks would close."""
    ledger = watched(family).memory.ledger
    assert torch.equal(by_grid(ledger, family.advancing_axes), ledger["position"])


@pytest.mark.parametrize("compaction", ["rank", "grid"])
def test_any_policy_can_compact_its_positions(family: Backbone, compaction: str) -> None:
    room = 60 if family.family.startswith("Qwen2") else 110
    compact: Any = make_policy("recency", room, {"reindex": "eager", "compaction": compaction})
    session, plain = watched(family, compact, 40), watched(family, make_policy("recency", room), 40)
    assert session.memory.reindexed == session.memory.evictions > 2
    assert session.memory.span < plain.memory.span
    assert torch.equal(session.memory.ledger["index"], plain.memory.ledger["index"])
    assert session.logits(QUESTION).isfinite().all()


def test_a_compacted_stream_answers_as_one_computed_at_those_positions(full_attention: Backbone) -> None:
    """Keys moved and questions asked at compacted positions equal keys turned by hand. One axis of time apart."""
    session = watched(full_attention)
    ledger = session.memory.ledger
    kept = torch.nonzero((ledger["chunk"] < 1) | (ledger["chunk"] > 3)).squeeze(1)
    session.memory.evict(Keep.shared(kept))
    before: list[Tensor] = [slab.keys.clone() for slab in session.memory.slabs]
    old = session.memory.ledger["position"].clone()
    new = by_grid(session.memory.ledger, full_attention.advancing_axes)
    assert (new != old).any()
    session.memory.reindex([new])
    full_attention.resume(session._cursor, session.memory.reach)
    for slab, keys in zip(session.memory.slabs, before, strict=True):
        torch.testing.assert_close(slab.keys, full_attention.rotation.move(keys, old, new), atol=1e-5, rtol=0)
    assert session._cursor.position == int(new.max()) + 1
