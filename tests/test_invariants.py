"""The promises of the design, each with the faults under which its test is seen to fail.

Every law is a function; it is run as it is, and once more per planted fault, where it must raise.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from transformers import AttentionInterface

from longtake.backbones.backbone import Backbone, Cursor
from longtake.backbones.qwen3_5 import Qwen35
from longtake.engine import Engine
from longtake.errors import LongtakeError
from longtake.kv.ledger import Kind, Ledger, Rows
from longtake.kv.moves import Moves
from longtake.kv.rotary import KeyRotation
from longtake.kv.slab import SlabLayer
from longtake.kv.states import StateCopy
from longtake.memory import Keep, Memory
from longtake.policies.hermes import Hermes
from longtake.policies.policy import Policy
from longtake.policies.random import Random
from longtake.policies.registry import POLICIES, make_policy
from longtake.probe import Probe
from longtake.session import Session
from models import QUESTION, noise, one_shot_logits

TOLERANCE = 5e-5
ONE_SHOT = 2e-5
"""Three times what rounding comes to; the trained toy feels a grid laid flat by 5e-5 only."""
BOUNDED = [name for name, kind in POLICIES.items() if kind.bounded]
Fault = Callable[[pytest.MonkeyPatch], None]


def check(law: Callable[..., None], fault: Fault | None, patch: pytest.MonkeyPatch, *arguments: Any) -> None:
    """Run a law; under a planted fault it must fail."""
    if fault is None:
        law(*arguments)
        return
    fault(patch)
    with pytest.raises((AssertionError, RuntimeError, ValueError, OverflowError, IndexError, LongtakeError)):
        law(*arguments)


def open_session(backbone: Backbone, policy: str | Policy = "full", budget: int | None = None, **more: Any) -> Session:
    return Engine(backbone).open(policy, budget, **more)


def push_all(session: Session, frames: list[np.ndarray], start: int = 0) -> None:
    for i, frame in enumerate(frames, start):
        session.push(frame, i * 0.5)


# 1. With a budget larger than the stream, every policy gives the library's own one-shot logits -------------


def budget_larger_than_the_stream_is_one_shot(backbone: Backbone, policy: str, count: int) -> None:
    frames = noise(count)
    session = open_session(backbone, policy, 4096, chunk_frames=4)
    push_all(session, frames)
    expected = one_shot_logits(backbone, frames, [i * 0.5 for i in range(count)], QUESTION)
    assert torch.allclose(session.logits(QUESTION), expected, atol=ONE_SHOT, rtol=0)


def flat_positions(patch: pytest.MonkeyPatch) -> None:
    """Visual tokens all at their grid's first position."""
    lay_out = Qwen35._lay_out

    def flat(*arguments: Any) -> Rows:
        rows = lay_out(*arguments)
        rows.position[:] = rows.position[:, :1]
        return rows

    patch.setattr(Qwen35, "_lay_out", flat)


def advance_by_one(patch: pytest.MonkeyPatch) -> None:
    """A grid that advances the running position by one instead of its larger side."""
    lay_out = Qwen35._lay_out

    def narrow(self: Qwen35, visual: Any, grid: Any, chunk: Any, cursor: Cursor) -> Rows:
        rows = lay_out(self, visual, grid, chunk, cursor)
        cursor.position -= 1
        return rows

    patch.setattr(Qwen35, "_lay_out", narrow)


def timestamps_from_zero(patch: pytest.MonkeyPatch) -> None:
    """Each chunk's timestamps starting again at zero, as the processor does without metadata."""
    encode = Qwen35.encode

    def forgetful(self: Qwen35, chunk: Any, cursor: Cursor) -> Any:
        first = chunk.frames[0].time
        moved = tuple(type(f)(f.time - first, f.image) for f in chunk.frames)
        return encode(self, type(chunk)(moved, chunk.index), cursor)

    patch.setattr(Qwen35, "encode", forgetful)


def states_lost_between_chunks(patch: pytest.MonkeyPatch) -> None:
    """Recurrent states that start empty in each chunk, as in old versions of the library."""
    appending = Memory.appending

    @contextmanager
    def amnesic(self: Memory, rows: Rows) -> Iterator[Any]:
        for layer in self.linear:
            layer.reset()
        with appending(self, rows) as cache:
            yield cache

    patch.setattr(Memory, "appending", amnesic)


@pytest.mark.parametrize(
    "fault", [None, flat_positions, advance_by_one, timestamps_from_zero, states_lost_between_chunks]
)
def test_a_stream_within_the_budget_equals_the_librarys_one_shot_forward(
    backbone: Backbone, fault: Fault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(budget_larger_than_the_stream_is_one_shot, fault, monkeypatch, backbone, "full", 18)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("count", [1, 3, 13])  # less than a temporal step, less than a chunk, chunks and a rest
def test_every_policy_is_exact_within_the_budget_with_frames_left_over(
    backbone: Backbone, policy: str, count: int
) -> None:
    budget_larger_than_the_stream_is_one_shot(backbone, policy, count)


# 2. After any eviction, logits equal the full cache with the evicted keys masked out, layer by layer -------


@dataclass
class Scattered(Policy):
    """Keeps other random rows in each layer: layers of different lengths."""

    name: ClassVar[str] = "scattered"
    line: ClassVar[str] = "for tests"

    def begin(self, memory: Memory, probe: Probe) -> None:
        self.rng = np.random.default_rng(5)

    def keep(self, memory: Memory) -> Keep | None:
        layers = []
        for number, ledger in enumerate(memory.ledgers):
            kept = self.rng.random(len(ledger)) < 0.7 - 0.2 * number
            kept[-1] = True
            layers.append(torch.from_numpy(np.flatnonzero(kept)))
        return Keep(tuple(layers))


def held_by_layer(session: Session) -> list[set[int]]:
    return [set(ledger["index"].tolist()) for ledger in session.memory.ledgers]


def eviction_equals_masking(backbone: Backbone, policy: str | Policy) -> None:
    """The oracle holds everything, in order, and hides what the other one evicted by an explicit mask."""
    frames = noise(24, seed=3)
    evicting = open_session(backbone, policy, 60)
    held: list[set[int]] = []

    def masked(module: Any, query: Any, key: Any, value: Any, _: Any, scaling: float, **__: Any) -> Any:
        layer = attention_layers.index(module.layer_idx)
        rows, length = query.shape[2], key.shape[2]
        visible = torch.ones(rows, length, dtype=torch.bool).tril(length - rows)
        if held:
            gone = [i for i in range(length - rows) if i < oracle_seen[0] and i not in held[layer]]
            visible[:, gone] = False
        groups = query.shape[1] // key.shape[1]
        keys, values = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        scores = (query @ keys.transpose(2, 3) * scaling).masked_fill(~visible, -torch.inf)
        return (scores.softmax(-1) @ values).transpose(1, 2), None

    AttentionInterface.register("masked-oracle", masked)
    model = copy.deepcopy(backbone.model)
    model.set_attn_implementation({"text_config": "masked-oracle"})
    kinds = backbone.layer_types
    attention_layers = [i for i, kind in enumerate(kinds) if kind == "full_attention"]
    oracle = open_session(type(backbone)(model, backbone.processor, "oracle"), "full")
    oracle_seen = [0]
    for i, frame in enumerate(frames):
        evicting.push(frame, i * 0.5)
        oracle.push(frame, i * 0.5)
        if evicting.chunks > 0:
            held[:] = held_by_layer(evicting)
            oracle_seen[0] = evicting.memory.seen
    assert evicting.tokens_evicted > 0
    assert torch.allclose(evicting.logits(QUESTION), oracle.logits(QUESTION), atol=TOLERANCE)


def values_left_behind(patch: pytest.MonkeyPatch) -> None:
    """Keys that move without their values."""

    def keys_only(self: SlabLayer, moves: Moves) -> None:
        self._slabs[0].index_copy_(2, moves.target, self._slabs[0].index_select(2, moves.source))
        self.truncate(moves.length)

    patch.setattr(SlabLayer, "move", keys_only)


def ledger_left_behind(patch: pytest.MonkeyPatch) -> None:
    """A ledger that is cut but not moved."""
    patch.setattr(Ledger, "move", lambda self, moves: self.truncate(moves.length))


@pytest.mark.parametrize("fault", [None, values_left_behind, ledger_left_behind])
@pytest.mark.parametrize("policy", ["deltas", "recency", "uniform", "random", "scattered", "hermes"])
def test_evicting_equals_masking_the_full_cache(
    backbone: Backbone, policy: str, fault: Fault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"scattered": Scattered(60), "hermes": Hermes(60, chunk=2, summary=False, reindex="off")}
    check(eviction_equals_masking, fault, monkeypatch, backbone, own.get(policy, policy))


# 3. A question leaves no trace ----------------------------------------------------------------------------


def question_leaves_no_trace(backbone: Backbone) -> None:
    frames = noise(21, seed=1)
    silent, asked = open_session(backbone, "deltas", 60), open_session(backbone, "deltas", 60)
    push_all(silent, frames)
    for i, frame in enumerate(frames):
        asked.push(frame, i * 0.5)
        if i % 4 == 2:
            asked.ask(QUESTION, max_new_tokens=3)
            asked.logits("was the circle shown ?")
            with asked.stream(QUESTION) as pieces:
                next(iter(pieces), None)
    assert asked.memory.seen == silent.memory.seen
    assert torch.equal(asked.memory.ledger["drift"], silent.memory.ledger["drift"])
    for a, b in zip(asked.memory.slabs, silent.memory.slabs, strict=True):
        assert torch.equal(a.keys, b.keys)
        assert torch.equal(a.values, b.values)
    assert torch.equal(asked.logits(QUESTION), silent.logits(QUESTION))


def states_not_restored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StateCopy, "restore", lambda self, layers: None)


def states_by_reference(patch: pytest.MonkeyPatch) -> None:
    """A copy that is no copy: the library writes states in place."""
    patch.setattr(torch.Tensor, "clone", lambda self, **_: self)


def cache_not_cut(patch: pytest.MonkeyPatch) -> None:
    rollback = Memory.rollback

    def lazy(self: Memory, checkpoint: Any) -> None:
        lengths = [slab.length for slab in self.slabs]
        rollback(self, checkpoint)
        for slab, length in zip(self.slabs, lengths, strict=True):
            slab.truncate(length)

    patch.setattr(Memory, "rollback", lazy)


def cursor_shared(patch: pytest.MonkeyPatch) -> None:
    """Positions that run on through a question."""
    patch.setattr("longtake.session.replace", lambda cursor: cursor)


@pytest.mark.parametrize("fault", [None, states_not_restored, states_by_reference, cache_not_cut, cursor_shared])
def test_a_question_leaves_no_trace(backbone: Backbone, fault: Fault | None, monkeypatch: pytest.MonkeyPatch) -> None:
    check(question_leaves_no_trace, fault, monkeypatch, backbone)


# 4. No layer ever holds more than budget + one chunk; after a step no more than the budget -----------------


def budget_holds(backbone: Backbone, policy: str, budget: int) -> None:
    peak, largest = 0, 0
    session = open_session(backbone, policy, budget, chunk_frames=2)
    opening = session.memory.held
    appending = session.memory.appending

    @contextmanager
    def watched(rows: Rows) -> Iterator[Any]:
        nonlocal peak, largest
        with appending(rows) as cache:
            yield cache
            if not session.memory._open_checkpoints:  # guidance prompts come on top and go again, as questions do
                peak = max(peak, session.memory.held)
                largest = max(largest, len(rows))

    session.memory.appending = watched  # type: ignore[method-assign]
    # HERMES counts the tokens of the stream, the others all of them.
    bound = max(session.policy.held_at_most(opening, len(session.memory.slabs)) or [0])
    assert bound in (budget, budget + opening)
    for i, frame in enumerate(noise(60, seed=2)):
        session.push(frame, i * 0.5)
        assert session.memory.held <= bound
        lengths = [slab.length for slab in session.memory.slabs]
        assert [len(ledger) for ledger in session.memory.ledgers] == lengths
    assert session.tokens_evicted > 0
    assert peak <= bound + largest


def keep_one_more(patch: pytest.MonkeyPatch) -> None:
    """A policy that overshoots its budget by one token."""
    evict = Memory.evict

    def generous(self: Memory, keep: Keep) -> None:
        gone = sorted(set(range(self.held)) - set(keep.layers[0].tolist()))
        evict(self, Keep.shared(torch.tensor(sorted([*keep.layers[0].tolist(), gone[0]]))))

    patch.setattr(Memory, "evict", generous)


# Policies of whole chunks mostly have room for one token more, so that the fault would go unseen in them.
@pytest.mark.parametrize(
    ("policy", "fault"),
    [*((name, None) for name in BOUNDED), ("deltas", keep_one_more), ("recency", keep_one_more)],
)
@pytest.mark.parametrize("spare", [0, 37])
def test_no_layer_holds_more_than_the_budget_and_one_chunk(
    backbone: Backbone, policy: str, spare: int, fault: Fault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = open_session(backbone)
    push_all(probe, noise(2))
    opening = int((probe.memory.ledger["kind"] == Kind.SYSTEM).sum())
    chunk = probe.memory.held - opening
    least = make_policy(policy, 10).least_budget(chunk, opening, len(probe.memory.slabs))
    check(budget_holds, fault, monkeypatch, backbone, policy, least + spare)


# 5. Bytes held do not grow; an eviction costs no more than it evicts ---------------------------------------


def cost_is_flat(backbone: Backbone) -> None:
    session = open_session(backbone, "deltas", 120)
    moved: list[int] = []
    evict = session.memory.evict

    def counting(keep: Keep) -> None:
        moved.append(len(Moves.filling_holes(keep.layers[0], session.memory.held).source))
        evict(keep)

    session.memory.evict = counting  # type: ignore[method-assign]
    push_all(session, noise(40, seed=4))
    reserved, held, states = session.memory.kv_bytes_reserved, session.memory.kv_bytes, session.memory.state_bytes
    per_token = held // session.memory.held
    for i, frame in enumerate(noise(120, seed=6), 40):
        session.push(frame, i * 0.5)
        assert session.memory.kv_bytes == 120 * per_token
        assert session.memory.kv_bytes_reserved == reserved
        assert session.memory.state_bytes == states
    chunk = int((session.memory.ledger["chunk"] == session.chunks - 1).sum())
    assert len(moved) > 60
    assert max(moved) <= chunk


def slabs_grow(patch: pytest.MonkeyPatch) -> None:
    """Slabs that are made larger with every chunk."""
    update = SlabLayer.update

    def growing(self: SlabLayer, *states: Any, **more: Any) -> Any:
        self.reserve(self.capacity + 1)
        return update(self, *states, **more)

    patch.setattr(SlabLayer, "update", growing)


@pytest.mark.parametrize("fault", [None, slabs_grow])
def test_bytes_and_moved_rows_do_not_grow_with_the_stream(
    backbone: Backbone, fault: Fault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(cost_is_flat, fault, monkeypatch, backbone)


# 6. Keys moved to position q equal keys computed at q ------------------------------------------------------


def moved_keys_equal_computed_keys(backbone: Backbone, shift: int) -> None:
    frames = noise(6, seed=7)
    here, there = open_session(backbone), open_session(backbone)
    there._cursor.position += shift
    for session in (here, there):
        push_all(session, frames)
    rows = torch.nonzero(here.memory.ledger["chunk"] >= 0).squeeze(1)
    target = there.memory.ledger["position"][rows]
    assert (target - here.memory.ledger["position"][rows] == shift).all()
    first = here.memory.slabs[0].keys[:, :, rows]  # of the lowest attention layer
    moved = backbone.rotation.move(first, here.memory.ledger["position"][rows], target)
    isolated = backbone.rotation.move(moved, target, here.memory.ledger["position"][rows])
    assert torch.allclose(isolated, first, atol=1e-4)
    pure = torch.randn(1, 2, len(rows), first.shape[-1], generator=torch.Generator().manual_seed(0))
    at = {p: rotate_as_the_model(backbone, pure, p) for p in (0, 3, shift, 3 + shift)}
    for old, new in ((0, shift), (3, 3 + shift), (shift, 3)):
        moved = backbone.rotation.move(at[old], *(torch.full((len(rows), 3), p) for p in (old, new)))
        assert torch.allclose(moved, at[new], atol=2e-6)


def rotate_as_the_model(backbone: Backbone, keys: torch.Tensor, position: int) -> torch.Tensor:
    """The library's own rotation of raw keys."""
    from transformers.models.qwen3_5.modeling_qwen3_5 import apply_rotary_pos_emb

    ids = torch.full((3, 1, keys.shape[2]), position)
    cos, sin = backbone.language_model.rotary_emb(keys, ids)
    return apply_rotary_pos_emb(keys, keys, cos, sin)[1]


def turned_the_wrong_way(patch: pytest.MonkeyPatch) -> None:
    turn = KeyRotation._turn
    patch.setattr(KeyRotation, "_turn", staticmethod(lambda keys, cos, sin, sign: turn(keys, cos, sin, -sign)))


def turned_by_the_difference(patch: pytest.MonkeyPatch) -> None:
    """Rotation by new - old: off by the rounding of large float32 angles."""

    def naive(self: KeyRotation, keys: Any, old: Any, new: Any) -> Any:
        return self._turn(keys, *self._angles(new - old, keys.device), sign=1.0)

    patch.setattr(KeyRotation, "move", naive)


@pytest.mark.parametrize("fault", [None, turned_the_wrong_way, turned_by_the_difference])
def test_keys_moved_to_a_position_equal_keys_computed_there(
    backbone: Backbone, fault: Fault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(moved_keys_equal_computed_keys, fault, monkeypatch, backbone, 50_000)


def whole_cache_can_be_shifted(backbone: Backbone, question_too: bool) -> None:
    """Positions matter only by their differences: move all keys and the question by the same amount."""
    session = open_session(backbone)
    push_all(session, noise(10, seed=8))
    before = session.logits(QUESTION)
    session.memory.reindex([session.memory.ledger["position"] + 1000])
    if question_too:
        session._cursor.position += 1000
    assert torch.allclose(session.logits(QUESTION), before, atol=2e-4)


@pytest.mark.parametrize("question_too", [True, False])
def test_a_shift_of_cache_and_question_changes_nothing(backbone: Backbone, question_too: bool) -> None:
    """The planted fault is a question that is not shifted along."""
    if question_too:
        whole_cache_can_be_shifted(backbone, True)
    else:
        with pytest.raises(AssertionError):
            whole_cache_can_be_shifted(backbone, False)


# 7. The same stream, settings and seed give the same kept set and the same answer --------------------------


def runs_repeat(backbone: Backbone, policy: str) -> None:
    runs = []
    for _ in range(2):
        session = open_session(backbone, policy, 60)
        push_all(session, noise(30, seed=9))
        runs.append((session.memory.ledger["index"].tolist(), session.ask(QUESTION, max_new_tokens=4).text))
    assert runs[0] == runs[1]


def unseeded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Random, "priority", lambda self, chunk: float(np.random.default_rng().random()))


@pytest.mark.parametrize("policy", BOUNDED)
def test_the_same_stream_and_seed_keep_the_same_tokens(backbone: Backbone, policy: str) -> None:
    runs_repeat(backbone, policy)


def test_an_unseeded_policy_is_caught(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    check(runs_repeat, unseeded, monkeypatch, backbone, "random")


# 8. Two sessions on one model never see each other ---------------------------------------------------------


def sessions_are_apart(backbone: Backbone) -> None:
    engine = Engine(backbone)
    streams = {seed: noise(16, seed=seed) for seed in (20, 21)}
    alone = {}
    for seed, frames in streams.items():
        session = engine.open("deltas", 60)
        push_all(session, frames)
        alone[seed] = session.logits(QUESTION)
    together = {seed: engine.open("deltas", 60) for seed in streams}
    for i in range(16):
        for seed, session in together.items():
            session.push(streams[seed][i], i * 0.5)
            session.ask(QUESTION, max_new_tokens=2)
    for seed, session in together.items():
        assert torch.equal(session.logits(QUESTION), alone[seed])


def one_memory_for_all(patch: pytest.MonkeyPatch) -> None:
    memories: list[Memory] = []
    memory = Backbone.memory

    def shared(self: Backbone) -> Memory:
        memories.append(memories[0] if memories else memory(self))
        return memories[0]

    patch.setattr(Backbone, "memory", shared)


def one_cursor_for_all(patch: pytest.MonkeyPatch) -> None:
    """Positions kept on the model, as the library does."""
    cursor = Cursor()
    patch.setattr(Backbone, "new_cursor", lambda self: cursor)
    patch.setattr("longtake.session.replace", lambda cursor: cursor)


@pytest.mark.parametrize("fault", [None, one_memory_for_all, one_cursor_for_all])
def test_two_sessions_on_one_model_never_see_each_other(
    backbone: Backbone, fault: Fault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(sessions_are_apart, fault, monkeypatch, backbone)
