"""The memory as one object: what breaks a step leaves it as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from longtake.engine import Engine
from longtake.kv.ledger import Kind, Ledger
from longtake.kv.rotary import KeyRotation
from longtake.kv.slab import SlabLayer
from longtake.memory import Keep, Memory
from longtake.session import Session
from models import QUESTION, noise, random_backbone


def session_of(policy: str = "deltas", budget: int | None = 40) -> Session:
    return Engine(random_backbone()).open(policy, budget)


def pushed(session: Session, count: int, first: int = 0) -> Session:
    for i, frame in enumerate(noise(first + count, seed=30)[first:], first):
        session.push(frame, i * 0.5)
    return session


class Stop(BaseException):
    """Stands for a keyboard interrupt."""


@pytest.mark.parametrize("layer", range(5))
def test_an_interrupt_in_any_layer_of_a_forward_leaves_the_stream_as_it_was(layer: int) -> None:
    """Seen to fail without the copy of the states, and without the truncation."""
    session, undisturbed = pushed(session_of(), 15), pushed(session_of(), 15)
    decoder = session.backbone.language_model.layers[layer]

    def stop(*_: Any) -> None:
        raise Stop

    hook = decoder.register_forward_hook(stop)
    with pytest.raises(Stop):
        session.push(noise(16, seed=30)[15], 7.5)
    hook.remove()
    assert session.frames == 15
    pushed(session, 5, first=15)
    pushed(undisturbed, 5, first=15)
    assert torch.equal(session.logits(QUESTION), undisturbed.logits(QUESTION))


@pytest.mark.parametrize("slab", range(2))
def test_an_interrupted_eviction_is_carried_out_in_the_next_step(slab: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail when the unsettled moves are dropped."""
    session, undisturbed = pushed(session_of(), 15), pushed(session_of(), 15)
    victim = session.memory.slabs[slab]
    move = victim.move

    def stop_halfway(moves: Any) -> None:
        monkeypatch.setattr(victim, "move", move)
        move(moves)
        raise Stop

    monkeypatch.setattr(victim, "move", stop_halfway)
    with pytest.raises(Stop):
        session.push(noise(16, seed=30)[15], 7.5)
    assert session.frames == 16, "the chunk came in before the interrupt"
    pushed(session, 4, first=16)
    pushed(undisturbed, 5, first=15)
    assert torch.equal(session.logits(QUESTION), undisturbed.logits(QUESTION))


def test_an_interrupt_while_answering_leaves_no_trace() -> None:
    session, undisturbed = pushed(session_of(), 15), pushed(session_of(), 15)

    def stop(*_: Any) -> None:
        raise Stop

    hook = session.backbone.language_model.layers[3].register_forward_hook(stop)
    with pytest.raises(Stop):
        session.ask(QUESTION)
    hook.remove()
    assert torch.equal(session.logits(QUESTION), undisturbed.logits(QUESTION))


def test_a_forward_that_appends_other_tokens_than_announced_is_undone() -> None:
    session = pushed(session_of("full", None), 4)
    held = session.memory.held
    cursor = session.backbone.new_cursor()
    segment = session.backbone.text([5, 6, 7], cursor)
    short = session.backbone.text([5, 6], cursor)
    with pytest.raises(RuntimeError, match="announced"), session.memory.appending(segment.rows) as cache:
        session.backbone.forward(short, cache)
    assert session.memory.held == held == len(session.memory.ledger)


def test_eviction_inside_a_checkpoint_is_refused() -> None:
    memory: Memory = pushed(session_of("full", None), 6).memory
    checkpoint = memory.checkpoint()
    with pytest.raises(RuntimeError, match="inside a checkpoint"):
        memory.evict(Keep.shared(torch.arange(3)))
    memory.rollback(checkpoint)
    memory.evict(Keep.shared(torch.arange(3)))
    assert memory.held == 3


def test_layers_that_parted_have_their_own_ledgers() -> None:
    memory = pushed(session_of("full", None), 6).memory
    memory.evict(Keep((torch.arange(3), torch.tensor([1, 4]))))
    assert [ledger["index"].tolist() for ledger in memory.ledgers] == [[0, 1, 2], [4, 1]]
    with pytest.raises(RuntimeError, match="different rows"):
        _ = memory.ledger
    with pytest.raises(ValueError, match="for each"):
        memory.evict(Keep.shared(torch.arange(1)))


def test_a_question_before_any_state_exists_rolls_back_to_empty() -> None:
    backbone = random_backbone()
    memory, fresh = backbone.memory(), backbone.memory()
    checkpoint = memory.checkpoint()
    ids = [5, 6, 7, 8]
    for target in (memory, fresh):
        segment = backbone.text(ids, backbone.new_cursor())
        with target.appending(segment.rows) as cache:
            first = backbone.forward(segment, cache)
    memory.rollback(checkpoint)
    segment = backbone.text(ids, backbone.new_cursor())
    with memory.appending(segment.rows) as cache:
        again = backbone.forward(segment, cache)
    assert torch.equal(first, again)


def folding(session: Session) -> Keep:
    """Every other row stays; the rest of the last attention layer becomes one token."""
    held = session.memory.held
    rows = torch.arange(0, held, 2)
    layers = len(session.memory.slabs)
    place = session.memory.reach.max() + 1
    return Keep((rows,) * layers, (None,) * (layers - 1) + (place.expand(session.backbone.axes),))


def test_a_summary_is_the_mean_of_what_goes_at_one_position() -> None:
    session = pushed(session_of("full", None), 12)
    memory, rotation = session.memory, session.backbone.rotation
    keep = folding(session)
    gone = torch.arange(1, memory.held, 2)
    keys, values = memory.slabs[-1].keys[:, :, gone].clone(), memory.slabs[-1].values[:, :, gone].clone()
    facts = {name: memory.ledger[name][gone].clone() for name in ("position", "time")}
    place, seen, newest = keep.folds[-1], memory.seen, int(memory.ledger["index"].max())
    assert place is not None
    memory.evict(keep)
    ledger = memory.ledgers[-1]
    (row,) = torch.nonzero(ledger["kind"] == int(Kind.SUMMARY)).flatten().tolist()
    moved = rotation.move(keys, facts["position"], place.expand(len(gone), -1))
    torch.testing.assert_close(memory.slabs[-1].keys[:, :, row], moved.mean(dim=2))
    torch.testing.assert_close(memory.slabs[-1].values[:, :, row], values.mean(dim=2))
    assert ledger["position"][row].tolist() == ledger["home"][row].tolist() == place.tolist()
    assert float(ledger["time"][row]) == pytest.approx(float(facts["time"].mean()))
    assert int(ledger["index"][row]) == newest + 1
    assert len(ledger) == len(memory.ledgers[0]) + 1 == memory.slabs[-1].length
    assert memory.seen == seen
    assert memory.evicted == seen - len(memory.ledgers[0]), "a summary is no token of the stream"


def test_a_single_token_is_let_go_without_a_summary() -> None:
    session = pushed(session_of("full", None), 12)
    layers = len(session.memory.slabs)
    rows = torch.arange(1, session.memory.held)
    place = torch.tensor([500] * session.backbone.axes)
    session.memory.evict(Keep((rows,) * layers, (place,) * layers))
    assert all(not (ledger["kind"] == int(Kind.SUMMARY)).any() for ledger in session.memory.ledgers)


@pytest.mark.parametrize("stop_in", ["overwrite", "move", "replace"])
def test_an_interrupted_fold_is_carried_out_in_the_next_step(stop_in: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail when a summary is written again after the rows have moved."""
    session, undisturbed = pushed(session_of("full", None), 12), pushed(session_of("full", None), 12)
    undisturbed.memory.evict(folding(undisturbed))
    keep = folding(session)
    kind: Any = Ledger if stop_in == "replace" else SlabLayer
    whole = getattr(kind, stop_in)

    def stop(self: Any, *arguments: Any) -> None:
        monkeypatch.setattr(kind, stop_in, whole)
        whole(self, *arguments)
        raise Stop

    monkeypatch.setattr(kind, stop_in, stop)
    with pytest.raises(Stop):
        session.memory.evict(keep)
    pushed(session, 4, first=12)
    pushed(undisturbed, 4, first=12)
    for one, other in zip(session.memory.slabs, undisturbed.memory.slabs, strict=True):
        assert torch.equal(one.keys, other.keys)
        assert torch.equal(one.values, other.values)
    assert torch.equal(session.logits(QUESTION), undisturbed.logits(QUESTION))


def test_an_interrupted_reindexing_can_be_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    session, undisturbed = pushed(session_of("full", None), 12), pushed(session_of("full", None), 12)
    target = session.memory.ledger["position"] + 100
    undisturbed.memory.reindex([target])
    move, calls = KeyRotation.move, []

    def stop_at_the_second(self: KeyRotation, *arguments: Any) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise Stop
        return move(self, *arguments)

    monkeypatch.setattr(KeyRotation, "move", stop_at_the_second)
    with pytest.raises(Stop):
        session.memory.reindex([target])
    session.memory.reindex([target])
    session.memory.reindex([target])
    for one, other in zip(session.memory.slabs, undisturbed.memory.slabs, strict=True):
        assert torch.equal(one.keys, other.keys)
    assert torch.equal(session.memory.ledger["position"], target)


def test_originals_cost_half_as_much_again_and_follow_every_move() -> None:
    session = pushed(session_of("full", None), 12)
    memory = session.memory
    plain = memory.kv_bytes
    home = memory.ledger["position"].clone()
    memory.reindex([home + 7])
    assert memory.kv_bytes == plain * 3 // 2
    memory.shift(-20)
    memory.evict(Keep.shared(torch.arange(0, memory.held, 3)))
    pushed(session, 4, first=12)
    for slab in memory.slabs:
        expected = session.backbone.rotation.move(slab.originals, memory.ledger["home"], memory.ledger["position"])
        torch.testing.assert_close(slab.keys, expected, atol=2e-4, rtol=0)
    memory.release()
    assert memory.kv_bytes == memory.seen == memory.held == 0
