"""LLaVA-OneVision and InternVL3: what both share, with the faults under which each law is seen to fail."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

from families import family_backbone, stock_family
from longtake.backbones.backbone import Backbone, Cursor, Segment
from longtake.backbones.frame_by_frame import FrameByFrame
from longtake.backbones.load import adopt
from longtake.engine import Engine
from longtake.errors import LongtakeError
from longtake.kv import attention
from longtake.kv.ledger import Kind
from longtake.video import Chunk, Frame
from models import noise, one_shot_logits
from test_families import QUESTION, TOLERANCE, streamed_logits
from test_invariants import (
    Fault,
    Scattered,
    check,
    eviction_equals_masking,
    ledger_left_behind,
    values_left_behind,
)

FAMILIES = ("llava_onevision", "internvl")
PATCHES = 9


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def chunk_of(times: list[float], index: int = 0, sizes: list[tuple[int, int]] | None = None) -> Chunk:
    sizes = sizes or [(30, 50)] * len(times)
    frames = (
        Frame(time, noise(1, seed=i, size=size)[0]) for i, (time, size) in enumerate(zip(times, sizes, strict=True))
    )
    return Chunk(tuple(frames), index)


# A stream in chunks of any size equals the library's one-shot forward ---------------------------------------


def chunks_equal_one_shot(family: str, chunks: list[int]) -> None:
    """The backbone is adopted here, so that a fault in the adoption shows."""
    model, processor = stock_family(family)
    backbone = adopt(copy.deepcopy(model), processor, family)
    frames, times = noise(sum(chunks), seed=70, size=(90, 130)), [i * 0.5 for i in range(sum(chunks))]
    expected = one_shot_logits(backbone, frames, times, QUESTION)
    assert expected.abs().max() > 1, "the weights are large enough for differences to show"
    assert torch.allclose(streamed_logits(backbone, frames, times, chunks), expected, atol=TOLERANCE)


def positions_restarted(patch: pytest.MonkeyPatch) -> None:
    """Each chunk at the positions of the first, as in a call of its own."""
    encode = FrameByFrame.encode

    def restarted(self: FrameByFrame, chunk: Chunk, cursor: Cursor) -> Segment:
        cursor.position = len(self.ids(self.prompt.opening))
        return encode(self, chunk, cursor)

    patch.setattr(FrameByFrame, "encode", restarted)


def positions_of_frames(patch: pytest.MonkeyPatch) -> None:
    """One position for all the visual tokens of a frame."""
    encode = FrameByFrame.encode

    def shared(self: FrameByFrame, chunk: Chunk, cursor: Cursor) -> Segment:
        segment = encode(self, chunk, cursor)
        visual = segment.rows.kind == Kind.VISUAL
        segment.rows.position[visual] -= segment.rows.patch[visual, None]
        return segment

    patch.setattr(FrameByFrame, "encode", shared)


def vision_tower_causal(patch: pytest.MonkeyPatch) -> None:
    """The attention set by a plain string, and without the guards that see it."""

    def unguarded(module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float, **more: Any) -> Any:
        if hasattr(module, "layer_idx"):
            return attention.attend(module, query, key, value, mask, scaling)
        output = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
        return output.transpose(1, 2).contiguous(), None

    def everywhere(model: Any) -> None:
        AttentionInterface.register("unguarded", unguarded)
        AttentionMaskInterface.register("unguarded", attention.refuse_padding)
        model.set_attn_implementation("unguarded")

    patch.setattr(attention, "install", everywhere)


@pytest.mark.parametrize("fault", [None, positions_restarted, positions_of_frames, vision_tower_causal])
@pytest.mark.parametrize("chunks", [[1, 3, 2, 5], [2, 1]])
def test_chunks_of_any_size_equal_the_one_shot_forward(
    family: str, chunks: list[int], fault: Fault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(chunks_equal_one_shot, fault, monkeypatch, family, chunks)


def test_a_vision_tower_with_the_text_models_attention_is_refused(family: str) -> None:
    backbone = family_backbone(family)
    model = copy.deepcopy(backbone.model)
    model.set_attn_implementation(attention.NAME)
    with pytest.raises(ValueError, match="no decoder layer"):
        type(backbone)(model, backbone.processor, family).encode(chunk_of([0.0]), Cursor())


def test_positions_moved_back_to_zero_change_nothing(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtake.retention.REBASE_AT", 40)
    backbone, frames = family_backbone(family), noise(12, seed=72)
    session = Engine(backbone).open("full", chunk_frames=3)
    for i, frame in enumerate(frames):
        session.push(frame, float(i))
    assert session.memory.ledger["position"].min() < 0
    expected = one_shot_logits(backbone, frames, [float(i) for i in range(12)], QUESTION)
    assert torch.allclose(session.logits(QUESTION), expected, atol=TOLERANCE)


# After an eviction, logits equal the full cache with the evicted keys masked out ----------------------------


@pytest.mark.parametrize("fault", [None, values_left_behind, ledger_left_behind])
@pytest.mark.parametrize("policy", ["recency", "scattered"])
def test_evicting_equals_masking_the_full_cache(
    family: str, policy: str, fault: Fault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = Scattered(60) if policy == "scattered" else policy
    check(eviction_equals_masking, fault, monkeypatch, family_backbone(family), chosen)


# Facts, sizes, precision ----------------------------------------------------------------------------------


def test_the_ledger_knows_frame_patch_and_time_of_every_visual_token(family: str) -> None:
    backbone = family_backbone(family)
    cursor = backbone.new_cursor()
    cursor.frames, cursor.position = 10, 500
    segment = backbone.encode(chunk_of([5.0, 5.5, 9.25], index=3), cursor)
    rows, visual = segment.rows, segment.rows.kind == Kind.VISUAL
    assert rows.frame[visual].tolist() == [10 + i for i in range(3) for _ in range(PATCHES)]
    assert rows.patch[visual].tolist() == [*range(PATCHES)] * 3
    assert rows.time.tolist() == [[5.0, 5.5, 9.25][frame - 10] for frame in rows.frame]
    assert (rows.chunk == 3).all()
    assert rows.position[:, 0].tolist() == [*range(500, 500 + len(segment))]
    assert (cursor.position, cursor.frames, cursor.time) == (500 + len(segment), 13, 9.25)


def test_a_question_adds_only_text_and_nothing_stays(family: str) -> None:
    backbone = family_backbone(family)
    assert (backbone.closing("what ?", backbone.new_cursor()).rows.kind == Kind.TEXT).all()
    session = Engine(backbone).open("full")
    for i, frame in enumerate(noise(3)):
        session.push(frame, float(i))
    session.ask("what ?", max_new_tokens=2)
    assert int((session.memory.ledger["kind"] == Kind.VISUAL).sum()) == 3 * PATCHES
    assert not (session.memory.ledger["kind"] == Kind.TEXT).any()


def test_frames_of_other_sizes_enter_at_the_one_size(family: str) -> None:
    backbone: Backbone = family_backbone(family)
    sizes = [(30, 50), (200, 20), (44, 44), (1, 1)]
    together = backbone.encode(chunk_of([0.0, 1.0, 2.0, 3.0], sizes=sizes), backbone.new_cursor())
    features = together.embeddings[0, together.rows.kind == Kind.VISUAL].view(4, PATCHES, -1)
    for i, size in enumerate(sizes):
        image = noise(1, seed=i, size=size)[0]
        alone = backbone.encode(Chunk((Frame(0.0, image),), 0), backbone.new_cursor())
        assert torch.allclose(alone.embeddings[0, alone.rows.kind == Kind.VISUAL], features[i], atol=1e-5)
        assert backbone.fit(*size) == backbone.fit(640, 480)


def test_half_precision_streams_within_its_own_rounding(family: str) -> None:
    model, processor = stock_family(family)
    half = adopt(copy.deepcopy(model).to(torch.bfloat16), processor, family)
    frames, times, chunks = noise(7, seed=71), [i * 0.5 for i in range(7)], [3, 1, 3]
    streamed = streamed_logits(half, frames, times, chunks)
    exact = one_shot_logits(family_backbone(family), frames, times, QUESTION)
    rounded = one_shot_logits(half, frames, times, QUESTION)
    assert (streamed - rounded).abs().max() <= (rounded - exact).abs().max()


@pytest.mark.parametrize("family", ["internvl"])
def test_a_question_with_a_placeholder_in_it_is_refused(family: str) -> None:
    session = Engine(family_backbone(family)).open("full")
    session.push(noise(1)[0], 0.0)
    with pytest.raises(LongtakeError, match="control token"):
        session.ask("what is <IMG_CONTEXT> ?")
