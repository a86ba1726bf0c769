"""Qwen2.5-VL and Qwen2-VL beyond the families' matrix: positions, text after the video, pairs of frames, evictions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.video_utils import VideoMetadata

from clips import write_video
from families import family_backbone, stock_family
from longtake.backbones.backbone import FRAME_PIXELS, Backbone
from longtake.backbones.load import load
from longtake.backbones.qwen2_5_vl import Qwen25VL
from longtake.backbones.qwen2_vl import GridCursor, Qwen2VL
from longtake.engine import Engine
from longtake.errors import LongtakeError
from longtake.kv.ledger import Kind, Rows
from longtake.video import Chunk, Frame
from models import noise, one_shot, one_shot_logits
from test_families import QUESTION, TOLERANCE, streamed_logits
from test_invariants import (
    Fault,
    Scattered,
    budget_larger_than_the_stream_is_one_shot,
    check,
    eviction_equals_masking,
    ledger_left_behind,
    moved_keys_equal_computed_keys,
    values_left_behind,
    whole_cache_can_be_shifted,
)

NAMES = ["qwen2_5_vl", "qwen2_vl"]
SIZE = (90, 130)
RATES = [0.5, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 23.976, 24, 25, 29.97, 30, 60]


def backbone_of(name: str, text_positions: str = "reference") -> Any:
    return family_backbone(name, text_positions=text_positions)


@pytest.fixture
def qwen() -> Any:
    return backbone_of("qwen2_5_vl")


def chunk_of(times: list[float], index: int = 0, size: tuple[int, int] = (24, 40)) -> Chunk:
    frames = noise(len(times), seed=index, size=size)
    return Chunk(tuple(Frame(t, image) for t, image in zip(times, frames, strict=True)), index)


# A chunked stream equals the one-shot forward, and each trap is seen to break it ---------------------------


def stream_equals_one_shot(name: str) -> None:
    frames, times = noise(17, seed=70, size=SIZE), [i * 0.5 for i in range(17)]
    expected = one_shot_logits(backbone_of(name), frames, times, QUESTION)
    assert torch.allclose(streamed_logits(backbone_of(name), frames, times, [2, 6, 4, 5]), expected, atol=TOLERANCE)


def flat_positions(patch: pytest.MonkeyPatch) -> None:
    """Visual tokens counted on one axis, like text."""
    lay_out = Qwen2VL._lay_out

    def flat(*arguments: Any) -> Rows:
        rows = lay_out(*arguments)
        rows.position[:] = rows.position.min() + torch.arange(len(rows))[:, None]
        return rows

    patch.setattr(Qwen2VL, "_lay_out", flat)


def bend_time(patch: pytest.MonkeyPatch, bend: Callable[..., tuple[Any, Any]]) -> None:
    """Temporal positions from other numbers and seconds than the true ones."""
    for kind in (Qwen2VL, Qwen25VL):
        temporal = kind._temporal
        patch.setattr(
            kind, "_temporal", lambda self, *true, temporal=temporal: temporal(self, *bend(*true)).long()
        )  # fmt: skip


def grids_counted_per_chunk(patch: pytest.MonkeyPatch) -> None:
    bend_time(patch, lambda number, seconds: (number - number[0], seconds - seconds[0]))


def spacing_of_missing_metadata(patch: pytest.MonkeyPatch) -> None:
    """24 frames per second, which the processor assumes when it is not told."""
    bend_time(patch, lambda number, seconds: (number, number * 2 / 24))


def spacing_of_each_chunk(patch: pytest.MonkeyPatch) -> None:
    """Frames per second taken as each chunk's frames over the seconds between its first and last."""
    bend_time(patch, lambda number, s: (number, number * (s[-1] - s[0]) / (number[-1] - number[0] + 1)))


def vision_end_missing(patch: pytest.MonkeyPatch) -> None:
    def closing(self: Qwen2VL, question: str, cursor: GridCursor) -> Any:
        before = self.prompt.before_question.removeprefix("<|vision_end|>")
        return self.text(self.ids(before + question + self.prompt.after_question), cursor)

    patch.setattr(Qwen2VL, "closing", closing)


FAULTS = [None, flat_positions, grids_counted_per_chunk, vision_end_missing]
CLOCK_FAULTS = [spacing_of_missing_metadata, spacing_of_each_chunk]


@pytest.mark.parametrize(
    ("name", "fault"),
    [*((name, fault) for name in NAMES for fault in FAULTS), *(("qwen2_5_vl", fault) for fault in CLOCK_FAULTS)],
)
def test_a_stream_in_chunks_equals_the_one_shot_forward(
    name: str, fault: Fault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(stream_equals_one_shot, fault, monkeypatch, name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 3, 13])  # less than a grid, a grid and a rest, more of both
def test_a_frame_without_its_pair_is_seen_by_a_question(name: str, count: int) -> None:
    budget_larger_than_the_stream_is_one_shot(backbone_of(name), "recency", count)


# Text after the video: two conventions ---------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("streamed", ["reference", "hf"])
@pytest.mark.parametrize("expected", ["reference", "hf"])
def test_text_goes_on_where_it_is_told_to(name: str, streamed: str, expected: str) -> None:
    """The planted fault is the other convention."""
    frames, times = noise(12, seed=71, size=SIZE), [i * 0.5 for i in range(12)]
    logits = streamed_logits(backbone_of(name, streamed), frames, times, [8, 4])
    reference = one_shot_logits(backbone_of(name, expected), frames, times, QUESTION)
    assert torch.allclose(logits, reference, atol=TOLERANCE) == (streamed == expected)


def hf_answer_equals_generate(name: str) -> None:
    """Logits of every decoded token, after a clip so long that its last grids are past the question."""
    backbone, frames = backbone_of(name, "hf"), noise(101, seed=72, size=SIZE)
    session = Engine(backbone).open("full", chunk_frames=10)
    for i, frame in enumerate(frames):
        session.push(frame, i * 0.5)
    heard: list[torch.Tensor] = []
    with pytest.MonkeyPatch.context() as spy:
        logits = backbone.logits
        spy.setattr(backbone, "logits", lambda hidden: heard.append(logits(hidden)) or heard[-1])
        session.ask(QUESTION, max_new_tokens=4)
    model, inputs = one_shot(backbone, frames, [i * 0.5 for i in range(101)], QUESTION)
    answer = model.generate(
        **inputs, max_new_tokens=4, do_sample=False, return_dict_in_generate=True, output_logits=True
    )
    assert torch.allclose(torch.stack(heard), torch.cat(answer.logits), atol=TOLERANCE)


def jump_before_the_answer(patch: pytest.MonkeyPatch) -> None:
    """Past all of the video, as the library's `forward` goes on from its `rope_deltas`; `generate` does not."""

    closing = Qwen2VL.closing

    def jump(self: Qwen2VL, question: str, cursor: GridCursor) -> Any:
        segment = closing(self, question, cursor)
        cursor.position = max(cursor.position, cursor.largest + 1)
        return segment

    patch.setattr(Qwen2VL, "closing", jump)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fault", [None, jump_before_the_answer])
def test_an_answer_among_the_videos_times_equals_generate(
    name: str, fault: Fault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(hf_answer_equals_generate, fault, monkeypatch, name)


def test_a_convention_that_does_not_exist_is_refused() -> None:
    with pytest.raises(LongtakeError, match="text_positions must be"):
        backbone_of("qwen2_5_vl", "mine")


# Positions -------------------------------------------------------------------------------------------------


def library_positions(backbone: Any, opening: int, count: int, closing: int, size: tuple[int, int], fps: float) -> Any:
    """[n, 3] of opening, a whole clip and closing by the library's get_rope_index."""
    video = backbone.processor.video_processor
    grid = torch.tensor([[-(-count // 2), size[0] // video.patch_size, size[1] // video.patch_size]])
    visual = int(grid.prod()) // video.merge_size**2
    kinds = torch.tensor([[0] * opening + [2] * visual + [0] * closing])
    spacing = torch.tensor([2 / VideoMetadata(count, fps=fps, frames_indices=list(range(count))).sampled_fps])
    positions, _ = backbone.model.model.get_rope_index(
        torch.zeros_like(kinds), kinds, video_grid_thw=grid, second_per_grid_ts=spacing
    )
    return positions[:, 0].T


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    pairs=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    odd=st.booleans(),
    fps=st.sampled_from(RATES),
    start=st.sampled_from([0.0, 7.3, 86_400.0]),
    size=st.sampled_from([(24, 40), (40, 24), (8, 8)]),
)
def test_positions_of_any_split_equal_those_of_the_whole_clip(
    name: str, pairs: list[int], odd: bool, fps: float, start: float, size: tuple[int, int]
) -> None:
    backbone = backbone_of(name, "hf")
    count = 2 * sum(pairs) - odd
    times = [start + i / fps for i in range(count)]
    cursor = backbone.new_cursor()
    segments = [backbone.opening(cursor)]
    for index, pair in enumerate(pairs):
        chunk, times = times[: 2 * pair], times[2 * pair :]
        segments.append(backbone.encode(chunk_of(chunk, index, size), cursor))
    segments.append(backbone.closing(QUESTION, cursor))
    streamed = torch.cat([segment.rows.position for segment in segments])
    whole = library_positions(backbone, len(segments[0]), count, len(segments[-1]), backbone.fit(*size), fps)
    assert torch.equal(streamed, whole)


@pytest.mark.parametrize("fps", RATES)
@pytest.mark.parametrize("tokens_per_second", [2, 4, 25])
def test_regular_times_give_the_librarys_float32_positions(
    qwen: Qwen25VL, fps: float, tokens_per_second: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours of grids: floor falls as the library's own rounding has it fall, whenever the stream began."""
    monkeypatch.setattr(qwen, "tokens_per_second", tokens_per_second)
    grids = 40_000
    spacing = torch.tensor([2 / fps])
    expected = qwen.model.model.get_vision_position_ids(
        0, torch.tensor([grids, 2, 2]), 1, 2, tokens_per_second * spacing
    )
    for start in (0.0, 7.3):
        first = torch.tensor([start + 2 * k / fps for k in range(40_000)], dtype=torch.float64)
        assert torch.equal(qwen._temporal(torch.arange(40_000), first - first[0]), expected[0])


def test_irregular_times_are_the_grids_own(qwen: Qwen25VL) -> None:
    """Variable frame rate, with a gap of an hour: two positions a second, from the first frame of each pair."""
    times = [5.0, 5.25, 6.5, 6.625, 9.0, 14.0, 14.125, 35.0, 3635.25, 3635.5]
    cursor = qwen.new_cursor()
    rows = [qwen.encode(chunk_of(times[i : i + 2], i // 2), cursor).rows for i in range(0, len(times), 2)]
    expected = [int(2 * Fraction(t - times[0])) for t in times[::2]]
    assert [int(r.position[0, 0]) - cursor.origin for r in rows] == expected == [0, 3, 8, 18, 7260]
    assert cursor.position == cursor.origin + 7261


@pytest.mark.parametrize(("source", "fps"), [(30, 2), (25, 5), (30, 3)])
def test_a_file_is_timed_by_the_rate_of_the_frames_taken(
    qwen: Qwen25VL, source: int, fps: float, tmp_path: Path
) -> None:
    session = Engine(qwen).open("full", fps=fps)
    session.watch(write_video(tmp_path / "clip.mp4", 6 * source, rate=source))
    ledger = session.memory.ledger
    held = ledger["position"][ledger["patch"] == 0, 0] - session._cursor.origin
    assert held.tolist() == [2 * 2 * k // fps for k in range(len(held))]
    assert len(held) == session.chunks * session.chunk_frames // 2 >= 5


def test_grids_faster_than_a_position_share_it_as_in_the_library(qwen: Qwen25VL) -> None:
    cursor = qwen.new_cursor()
    rows = qwen.encode(chunk_of([i / 30 for i in range(32)]), cursor).rows
    assert rows.position[rows.patch == 0, 0].tolist() == [0] * 8 + [1] * 7 + [2]


def test_qwen2_vl_counts_grids_whatever_their_times() -> None:
    backbone = backbone_of("qwen2_vl")
    rows = backbone.encode(chunk_of([0.0, 0.1, 9.0, 9.5, 100.0, 101.0]), backbone.new_cursor()).rows
    assert rows.position[rows.patch == 0, 0].tolist() == [0, 1, 2]


# Moving back to zero ---------------------------------------------------------------------------------------


def moved_stream_answers_the_same(name: str) -> None:
    plain, moved = Engine(backbone_of(name)).open("full"), Engine(backbone_of(name)).open("full")
    for i, frame in enumerate(noise(16, seed=73)):
        plain.push(frame, i * 0.5)
        with pytest.MonkeyPatch.context() as low:
            low.setattr("longtake.retention.REBASE_AT", 8)
            moved.push(frame, i * 0.5)
    assert moved._cursor.position < plain._cursor.position
    assert torch.allclose(moved.logits(QUESTION), plain.logits(QUESTION), atol=2e-4)


def origin_left_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Qwen2VL, "shift", Backbone.shift)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fault", [None, origin_left_behind])
def test_a_stream_that_was_moved_back_answers_the_same(
    name: str, fault: Fault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(moved_stream_answers_the_same, fault, monkeypatch, name)


@pytest.mark.parametrize("name", NAMES)
def test_keys_moved_to_a_position_equal_keys_computed_there(name: str) -> None:
    moved_keys_equal_computed_keys(backbone_of(name), 50_000)
    whole_cache_can_be_shifted(backbone_of(name), question_too=True)
    with pytest.raises(AssertionError):
        whole_cache_can_be_shifted(backbone_of(name), question_too=False)


# Evictions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("policy", ["recency", "scattered"])
@pytest.mark.parametrize("fault", [None, values_left_behind, ledger_left_behind])
def test_evicting_equals_masking_the_full_cache(
    name: str, policy: str, fault: Fault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = Scattered(60) if policy == "scattered" else policy
    check(eviction_equals_masking, fault, monkeypatch, backbone_of(name), chosen)


# Frames ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_only_the_last_chunk_may_be_odd(name: str) -> None:
    backbone = backbone_of(name)
    cursor = backbone.new_cursor()
    backbone.encode(chunk_of([0.0, 0.5, 1.0]), cursor)
    with pytest.raises(LongtakeError, match="pairs frames in steps of 2"):
        backbone.encode(chunk_of([1.5, 2.0, 2.5, 3.0, 3.5], 1), cursor)
    with pytest.raises(LongtakeError, match="multiple of 2 frames, not 3"):
        Engine(backbone).open("full", chunk_frames=3)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_the_ledger_knows_frame_patch_time_and_kind_of_every_token(qwen: Qwen25VL, count: int) -> None:
    cursor = qwen.new_cursor()
    cursor.frames = 10
    times = [5.0 + i * 0.5 for i in range(count)]
    rows = qwen.encode(chunk_of(times, index=3, size=SIZE), cursor).rows
    steps = -(-count // 2)
    area = len(rows) // steps
    assert area == 6
    assert rows.patch.tolist() == list(range(area)) * steps
    assert rows.frame.tolist() == [10 + 2 * s for s in range(steps) for _ in range(area)]
    assert rows.time.tolist() == [times[min(2 * s + 1, count - 1)] for s in range(steps) for _ in range(area)]
    assert (rows.kind == Kind.VISUAL).all()
    assert (rows.chunk == 3).all()
    assert (cursor.frames, cursor.time) == (10 + count, times[-1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(1, 1), (5, 900), (64, 64), (1080, 1920), (33, 31)])
def test_any_frame_size_is_fitted_below_the_limit(name: str, size: tuple[int, int]) -> None:
    backbone = backbone_of(name)
    video = backbone.processor.video_processor
    height, width = backbone.fit(*size)
    grid = video.patch_size * video.merge_size
    assert height % grid == width % grid == 0
    assert height * width <= max(min(FRAME_PIXELS, video.size["longest_edge"]), grid * max(height, width))
    cursor = backbone.new_cursor()
    lengths = {len(backbone.encode(chunk_of([2.0 * i, 2.0 * i + 1], i, size), cursor)) for i in range(3)}
    assert lengths == {height * width // grid**2}


def test_a_sliver_is_refused_in_words(qwen: Qwen25VL) -> None:
    with pytest.raises(LongtakeError, match="900x2 pixels cannot be encoded"):
        qwen.fit(2, 900)


@pytest.mark.slow
def test_a_checkpoint_folder_streams_like_the_model_it_holds(tmp_path: Path) -> None:
    for part in stock_family("qwen2_5_vl"):
        part.save_pretrained(tmp_path)
    loaded, original = load(str(tmp_path), text_positions="hf"), backbone_of("qwen2_5_vl", "hf")
    assert loaded.default_fps == 2
    frames, times = noise(6, size=SIZE), [i * 0.5 for i in range(6)]
    logits = [streamed_logits(backbone, frames, times, [4, 2]) for backbone in (loaded, original)]
    assert torch.allclose(*logits, atol=1e-5)
