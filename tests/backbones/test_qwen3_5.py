"""The Qwen3.5 family beyond the invariants: times, facts of the ledger, frame size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from longtake.backbones.backbone import FRAME_PIXELS
from longtake.backbones.qwen3_5 import Qwen35
from longtake.engine import Engine
from longtake.errors import LongtakeError
from longtake.kv.ledger import Kind
from longtake.video import Chunk, Frame
from models import QUESTION, noise, one_shot_logits, random_backbone

SIZE = (40, 56)


def chunk_of(times: list[float], index: int = 0, size: tuple[int, int] = SIZE) -> Chunk:
    frames = noise(len(times), seed=index, size=size)
    return Chunk(tuple(Frame(t, image) for t, image in zip(times, frames, strict=True)), index)


def spoken(backbone: Qwen35, times: list[float]) -> str:
    """The text of a chunk, as the model reads it."""
    words: list[str] = []
    embed = backbone.embed

    def listening(ids: torch.Tensor) -> torch.Tensor:
        words.append(backbone.tokenizer.decode(ids[0]))
        return embed(ids)

    backbone.embed = listening  # type: ignore[method-assign]
    try:
        backbone.encode(chunk_of(times), backbone.new_cursor())
    finally:
        del backbone.embed
    return words[0].replace(" ", "")


@pytest.fixture(scope="module")
def qwen() -> Qwen35:
    backbone = random_backbone()
    assert isinstance(backbone, Qwen35)
    return backbone


@pytest.mark.parametrize(
    ("times", "stamps"),
    [
        ([0.0, 0.5], ["<0.2seconds>"]),
        ([100.0, 100.5, 101.0, 101.5], ["<100.2seconds>", "<101.2seconds>"]),
        ([7.0], ["<7.0seconds>"]),  # a lone frame is padded by itself
        ([7.0, 7.5, 9.0], ["<7.2seconds>", "<9.0seconds>"]),
        ([1.0, 4.0], ["<2.5seconds>"]),  # irregular times are the frames' own
        ([86_400.0, 86_400.5], ["<86400.2seconds>"]),  # a day
    ],
)
def test_timestamps_are_the_mean_of_each_steps_own_times(qwen: Qwen35, times: list[float], stamps: list[str]) -> None:
    text = spoken(qwen, times)
    assert [piece.split("<|vision_start|>")[0] for piece in text.split("<|vision_end|>")[:-1]] == stamps


def test_irregular_times_equal_the_librarys_one_shot_forward(qwen: Qwen35) -> None:
    """Variable frame rate: seen to fail with times replaced by index / fps."""
    times = [0.0, 0.25, 1.5, 1.625, 4.0, 9.0, 9.125, 30.0, 61.5]
    frames = noise(len(times), seed=80)
    session = Engine(qwen).open("full", chunk_frames=4)
    for frame, time in zip(frames, times, strict=True):
        session.push(frame, time)
    assert torch.allclose(session.logits(QUESTION), one_shot_logits(qwen, frames, times, QUESTION), atol=5e-5)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_the_ledger_knows_frame_patch_time_and_kind_of_every_token(qwen: Qwen35, count: int) -> None:
    cursor = qwen.new_cursor()
    cursor.frames = 10
    times = [5.0 + i * 0.5 for i in range(count)]
    rows = qwen.encode(chunk_of(times, index=3), cursor).rows
    visual = rows.kind == Kind.VISUAL
    steps = -(-count // 2)
    area = int(visual.sum()) // steps
    assert rows.patch[visual].tolist() == list(range(area)) * steps
    assert rows.frame[visual].tolist() == [10 + 2 * s for s in range(steps) for _ in range(area)]
    assert (rows.patch[~visual] == -1).all()
    assert (rows.kind[~visual] == Kind.TIMESTAMP).all()
    assert (rows.chunk == 3).all()
    last = [times[min(2 * s + 1, count - 1)] for s in range(steps)]
    assert rows.time[visual].tolist() == [t for t in last for _ in range(area)]
    assert sorted(set(rows.time.tolist())) == last
    assert (cursor.frames, cursor.time) == (10 + count, times[-1])
    assert (rows.position[1:].max(dim=1).values >= rows.position[:-1, 0]).all(), "positions never go back"


def test_the_frame_size_does_not_depend_on_the_streams_length(qwen: Qwen35) -> None:
    """The processor's own resize would: it fits frames x height x width into its limit."""
    cursor = qwen.new_cursor()
    sizes = set()
    for frames in (2, 4, 16):
        segment = qwen.encode(chunk_of([i * 0.5 for i in range(frames)]), cursor)
        sizes.add(int((segment.rows.kind == Kind.VISUAL).sum()) * 2 // frames)
    assert len(sizes) == 1
    assert cursor.frame_size == qwen.fit(*SIZE)


@pytest.mark.parametrize("size", [(1, 1), (5, 900), (64, 64), (1080, 1920), (2160, 3840), (33, 31)])
def test_any_frame_size_is_fitted_below_the_limit(qwen: Qwen35, size: tuple[int, int]) -> None:
    height, width = qwen.fit(*size)
    grid = qwen.processor.video_processor.patch_size * qwen.processor.video_processor.merge_size
    assert height % grid == 0
    assert width % grid == 0
    limit = min(FRAME_PIXELS, qwen.processor.video_processor.size["longest_edge"] // 2)
    assert height * width <= max(limit, grid * max(height, width))
    session = Engine(qwen).open("recency", 100)
    for i in range(2):
        session.push(np.zeros((*size, 3), np.uint8), float(i))
    assert session.chunks == 1


def test_a_sliver_is_refused_in_words(qwen: Qwen35) -> None:
    session = Engine(qwen).open("full")
    session.push(np.zeros((2, 900, 3), np.uint8), 0.0)
    with pytest.raises(LongtakeError, match="900x2 pixels cannot be encoded"):
        session.push(np.zeros((2, 900, 3), np.uint8), 0.5)
