"""DeltaS against a literal reading of equation 3 and algorithm 1."""

from __future__ import annotations

import pytest
import torch

from longtake.engine import Engine
from longtake.errors import LongtakeError
from longtake.kv.states import StateCopy
from longtake.policies.deltas import DeltaS
from longtake.policies.signals.state_drift import state_drift
from models import noise, random_backbone
from policies.test_selection import literal_top_by_span


def literal_drift(before: list[torch.Tensor], after: list[torch.Tensor]) -> float:
    """Equation 3, entry by entry of the formula."""
    drifts = [
        ((b.double() - a.double()) ** 2).sum().sqrt() / (b.double() ** 2).sum().sqrt()
        for b, a in zip(before, after, strict=True)
    ]
    return float(sum(drifts) / len(drifts))


def test_each_chunk_bears_its_state_drift_and_what_stays_is_algorithm_1() -> None:
    """Seen to fail with drift taken from a state that is not copied, and with a window of chunks instead of tokens."""
    budget, sinks, window, spans = 90, 4, 20, 3
    backbone = random_backbone()
    session = Engine(backbone).open("deltas", budget, policy_options={"window": window, "spans": spans})
    score: dict[int, float] = dict.fromkeys(session.memory.ledger["index"].tolist(), 1.0)  # the opening
    time = dict.fromkeys(score, 0.0)
    held = set(score)
    for i, frame in enumerate(noise(70, seed=50)):
        before = [state.clone() for state in session.memory.recurrent_states()]
        first, chunks = session.memory.seen, session.chunks
        session.push(frame, i * 0.5)
        if session.chunks == chunks:
            continue
        drift = literal_drift(before, session.memory.recurrent_states())
        new = range(first, session.memory.seen)
        score.update(dict.fromkeys(new, drift))
        time.update(dict.fromkeys(new, i * 0.5))
        held |= set(new)
        ledger = session.memory.ledger
        newest = ledger["chunk"] == session.chunks - 1
        assert ledger["drift"][newest].tolist() == pytest.approx([drift] * int(newest.sum()), rel=1e-5)
        assert ledger["time"][newest].tolist() == [i * 0.5] * int(newest.sum())
        if len(held) > budget:
            by_arrival = sorted(held)
            fixed = set(by_arrival[:sinks]) | set(by_arrival[-window:])
            rest = [t for t in by_arrival if t not in fixed]
            best = literal_top_by_span(
                [score[t] for t in rest], rest, [time[t] for t in rest], spans, budget - len(fixed)
            )
            held = fixed | {rest[i] for i in best}
        assert set(ledger["index"].tolist()) == held
    assert session.tokens_evicted > 0


def test_positions_of_what_stays_do_not_change() -> None:
    backbone = random_backbone()
    full, evicting = Engine(backbone).open("full"), Engine(backbone).open("deltas", 60)
    for i, frame in enumerate(noise(40, seed=51)):
        full.push(frame, i * 0.5)
        evicting.push(frame, i * 0.5)
    ledger = evicting.memory.ledger
    assert torch.equal(ledger["position"], full.memory.ledger["position"][ledger["index"]])


def test_an_empty_state_counts_as_one() -> None:
    """The first tokens of a stream meet empty states: ||S_before|| is zero."""
    backbone = random_backbone()
    memory = backbone.memory()
    segment = backbone.text([5, 6, 7], backbone.new_cursor())
    with memory.appending(segment.rows) as cache:
        backbone.forward(segment, cache)
    assert state_drift(memory) == 1.0
    for layer in memory.linear:
        layer.recurrent_states[0].zero_()
    memory.states_before.save(memory.linear)
    assert state_drift(memory) == 1.0, "a state that is exactly zero counts as empty"


def test_a_reference_instead_of_a_copy_would_see_no_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trap: states are written in place. With the planted reference drift is zero, with the copy it is not."""
    backbone = random_backbone()

    def drift_of_one_chunk() -> float:
        session = Engine(backbone).open("full")
        for i, frame in enumerate(noise(4, seed=52)):
            session.push(frame, i * 0.5)
        return state_drift(session.memory)

    assert drift_of_one_chunk() > 0.01
    save = StateCopy.save

    def by_reference(self: StateCopy, layers: list) -> None:
        save(self, layers)
        for saved, layer in zip(self._saved, layers, strict=True):
            if saved is not None:
                saved.recurrent = layer.recurrent_states[0]

    monkeypatch.setattr(StateCopy, "save", by_reference)
    assert drift_of_one_chunk() == 0.0


@pytest.mark.parametrize(
    ("budget", "window"), [(16384, 1024), (8192, 1024), (8191, 1023), (4096, 512), (100, 12), (None, 1024)]
)
def test_the_default_window_is_the_papers_or_an_eighth(budget: int | None, window: int) -> None:
    assert DeltaS(budget=budget).window == window


@pytest.mark.parametrize("options", [{}, {"window": 30}, {"window": 0, "sinks": 0}, {"sinks": 9}])
@pytest.mark.parametrize("chunk", [11, 128])
def test_the_least_budget_is_the_least(options: dict[str, int], chunk: int) -> None:
    def works(budget: int) -> bool:
        policy = DeltaS(budget=budget, **options)
        assert policy.window is not None
        return budget >= policy.sinks + policy.window + chunk

    least = DeltaS(budget=500, **options).least_budget(chunk, 3, 2)
    assert works(least)
    assert not works(least - 1)
    with pytest.raises(LongtakeError, match=f"the least that works is {least}"):
        DeltaS(budget=least - 1, **options).check(chunk, 3, 2)
    DeltaS(budget=least, **options).check(chunk, 3, 2)


@pytest.mark.parametrize("options", [{"sinks": -1}, {"window": -1}, {"spans": 0}])
def test_values_without_sense_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(LongtakeError):
        DeltaS(**options)
