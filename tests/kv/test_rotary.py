"""Moving keys, for every rotary kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Qwen2Config, Qwen3_5TextConfig
from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding, apply_rotary_pos_emb
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextRotaryEmbedding

import longtake.retention
from longtake.engine import Engine
from longtake.kv.rotary import KeyRotation
from longtake.session import Session
from models import QUESTION, noise, random_backbone

KINDS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 1e4},
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
    "yarn": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 256},
    "llama3": {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    },
}  # fmt: skip


def rotation(kind: str) -> KeyRotation:
    """One axis, whole heads."""
    config = Qwen2Config(
        hidden_size=64, num_attention_heads=2, max_position_embeddings=1024, rope_parameters=KINDS[kind]
    )
    return KeyRotation(Qwen2RotaryEmbedding(config), axes=1)


def interleaved() -> KeyRotation:
    """Three interleaved axes, half of each head."""
    config = Qwen3_5TextConfig(
        hidden_size=64, num_attention_heads=2, head_dim=32, num_hidden_layers=1,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
                         "mrope_section": [4, 2, 2]},
    )  # fmt: skip
    return KeyRotation(Qwen3_5TextRotaryEmbedding(config), axes=3)


def computed_at(rotation: KeyRotation, raw: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """The library's own rotation of raw keys [1, heads, n, dim]; the rest of a partial head passes."""
    ids = position.T[:, None]
    cos, sin = rotation.rotary(raw, ids if rotation.axes > 1 else ids[0])
    width = cos.shape[-1]
    turned = apply_rotary_pos_emb(raw[..., :width], raw[..., :width], cos, sin)[1]
    return torch.cat((turned, raw[..., width:]), dim=-1)


CASES = [*KINDS, "interleaved"]


@pytest.mark.parametrize("case", CASES)
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1000), reach=st.sampled_from([10, 1000, 100_000, 10_000_000]))
def test_moved_keys_equal_keys_computed_there(case: str, seed: int, reach: int) -> None:
    """At any position, on each axis by itself. Seen to fail without dividing yarn's scaling out (error 2)."""
    moving = interleaved() if case == "interleaved" else rotation(case)
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randn(1, 2, 7, 32, generator=generator)
    old, new = torch.randint(-reach, reach, (2, 7, moving.axes), generator=generator)
    moved = moving.move(computed_at(moving, raw, old), old, new)
    assert torch.allclose(moved, computed_at(moving, raw, new), atol=5e-6)


@pytest.mark.parametrize("case", CASES)
@given(amount=st.integers(-(10**12), 10**12))
def test_shifting_there_and_back_changes_nothing(case: str, amount: int) -> None:
    moving = interleaved() if case == "interleaved" else rotation(case)
    keys = torch.randn(1, 2, 7, 32, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(moving.shift(moving.shift(keys, amount), -amount), keys, atol=3e-6)


@pytest.mark.parametrize("case", CASES)
def test_a_shift_equals_a_move_by_the_same_amount(case: str) -> None:
    """Where float32 angles are still right. Seen to fail with the sign turned."""
    moving = interleaved() if case == "interleaved" else rotation(case)
    old = torch.randint(0, 50, (7, moving.axes), generator=torch.Generator().manual_seed(2))
    raw = torch.randn(1, 2, 7, 32, generator=torch.Generator().manual_seed(3))
    keys = computed_at(moving, raw, old)
    assert torch.allclose(moving.shift(keys, 37), computed_at(moving, raw, old + 37), atol=2e-5)


def streamed(policy: str, count: int) -> Session:
    session = Engine(random_backbone()).open(policy, 60)
    for i, frame in enumerate(noise(count, seed=33)):
        session.push(frame, i * 0.5)
    return session


@pytest.mark.parametrize("policy", ["full", "deltas"])
def test_a_stream_that_is_moved_back_to_zero_answers_the_same(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rebased after every few chunks, as days of streaming would. Seen to fail when the cursor is not moved along."""
    expected = streamed(policy, 60)
    monkeypatch.setattr(longtake.retention, "REBASE_AT", 40)
    rebased = streamed(policy, 60)
    assert rebased._cursor.position <= 40 + 20 < expected._cursor.position
    assert torch.equal(rebased.memory.ledger["index"], expected.memory.ledger["index"])
    assert torch.allclose(rebased.logits(QUESTION), expected.logits(QUESTION), atol=2e-4)


@settings(deadline=None, max_examples=15)
@given(amounts=st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=4))
def test_a_shift_of_cache_and_question_by_any_amount_is_noise(amounts: list[int]) -> None:
    """Any number of shifts, of any size, as long as the stream ends near zero, where float32 angles are right."""
    session = streamed("full", 12)
    expected = session.logits(QUESTION)
    for amount in [*amounts, -sum(amounts)]:
        session.memory.shift(amount)
        session.backbone.shift(session._cursor, amount)
    assert torch.allclose(session.logits(QUESTION), expected, atol=2e-4)


def test_far_positions_without_rebasing_would_be_wrong() -> None:
    """Why streams are moved back: the library's angles at ten million are not those of the same distances near zero."""
    near, far = (Engine(random_backbone()).open("full") for _ in range(2))
    far._cursor.position += 10_000_000
    for i, frame in enumerate(noise(12, seed=34)):
        for session in (near, far):
            session.push(frame, i * 0.5)
            session._retention._due = None
    assert far._cursor.position < 1000, "the first chunk moved the stream back"
    assert not torch.allclose(near.logits(QUESTION), far.logits(QUESTION), atol=2e-4), "but the opening was far out"
