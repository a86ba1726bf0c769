"""The memory as one object: what breaks a step leaves it as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from longtake.engine import Engine
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
