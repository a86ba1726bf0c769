"""InternVL3: frames numbered in words, and the numbers run on through the stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from families import family_backbone, stock_family
from longtake.backbones.backbone import Backbone, Cursor, Segment
from longtake.backbones.frame_by_frame import FrameByFrame
from longtake.backbones.internvl import InternVL
from longtake.errors import LongtakeError
from longtake.kv.ledger import Kind
from longtake.video import Chunk
from test_frame_by_frame import PATCHES, chunk_of, chunks_equal_one_shot
from test_invariants import Fault, check


def numbers_restarted(patch: pytest.MonkeyPatch) -> None:
    """Each chunk numbered from 1, as the processor does in a call of its own."""
    encode = FrameByFrame.encode

    def restarted(self: InternVL, chunk: Chunk, cursor: Cursor) -> Segment:
        cursor.frames = 0
        return encode(self, chunk, cursor)

    patch.setattr(InternVL, "encode", restarted)


def numbers_one_ahead(patch: pytest.MonkeyPatch) -> None:
    around = InternVL.around
    patch.setattr(InternVL, "around", lambda self, number: around(self, number + 1))


def line_break_missing(patch: pytest.MonkeyPatch) -> None:
    def joined(self: InternVL, number: int) -> Any:
        before, after = around(self, number)
        return before[1:] if number else before, after

    around = InternVL.around
    patch.setattr(InternVL, "around", joined)


def class_token_kept(patch: pytest.MonkeyPatch) -> None:
    """Features moved by one patch, as with the tower's class token among them."""
    features = InternVL.features
    patch.setattr(InternVL, "features", lambda self, pixels: features(self, pixels).roll(1, dims=1))


@pytest.mark.parametrize("fault", [None, numbers_restarted, numbers_one_ahead, line_break_missing, class_token_kept])
def test_frame_numbers_run_on_through_the_stream(fault: Fault | None, monkeypatch: pytest.MonkeyPatch) -> None:
    check(chunks_equal_one_shot, fault, monkeypatch, "internvl", [2, 9, 1])


def spoken(backbone: Backbone, chunks: list[int]) -> str:
    """The text of a stream's frames, as the model reads it."""
    words: list[str] = []
    embed, cursor = backbone.embed, backbone.new_cursor()

    def listening(ids: torch.Tensor) -> torch.Tensor:
        words.append(backbone.tokenizer.decode(ids[0]))
        return embed(ids)

    backbone.embed = listening  # type: ignore[method-assign]
    try:
        for index, count in enumerate(chunks):
            backbone.encode(chunk_of([cursor.frames + float(i) for i in range(count)], index), cursor)
    finally:
        del backbone.embed
    return "".join(words)


@pytest.mark.parametrize("chunks", [[101], [1] * 12, [9, 1, 91]])
def test_the_words_are_the_processors_own(chunks: list[int]) -> None:
    backbone = family_backbone("internvl")
    clip = {"pixel_values_videos": [torch.empty(sum(chunks), 0)]}
    assert spoken(backbone, chunks) == backbone.processor.replace_video_token(clip, 0)


def test_the_words_around_a_frame_are_told_from_its_visual_tokens() -> None:
    backbone = family_backbone("internvl")
    rows = backbone.encode(chunk_of([0.0, 1.0]), backbone.new_cursor()).rows
    words = rows.kind == Kind.TIMESTAMP
    assert int((~words).sum()) == 2 * PATCHES
    assert (rows.patch[words] == -1).all()
    assert rows.frame.diff().min() == 0


@pytest.mark.parametrize(
    "wording",
    [
        lambda count, tile: "",
        lambda count, tile: tile,
        lambda count, tile: "".join(f"{i}.0 s: {tile}" for i in range(count)),
        lambda count, tile: "".join(f"Frame{i + 1}: {tile} of {count}\n" for i in range(count)),
    ],
    ids=["nothing", "one tile", "from zero", "the total told"],
)
def test_a_processor_that_words_frames_otherwise_is_refused(
    wording: Callable[[int, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, processor = stock_family("internvl")
    tile = processor.image_token * processor.image_seq_length
    monkeypatch.setattr(
        processor, "replace_video_token", lambda clip, _: wording(len(clip["pixel_values_videos"][0]), tile)
    )
    with pytest.raises(LongtakeError, match="number frames one by one"):
        InternVL(model, processor, "other")


def test_the_control_tokens_are_the_real_ones() -> None:
    words = family_backbone("internvl").tokenizer
    assert words.convert_tokens_to_ids(["<img>", "</img>", "<IMG_CONTEXT>"]) == [151665, 151666, 151667]
