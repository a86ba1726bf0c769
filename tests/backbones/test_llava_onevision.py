"""LLaVA-OneVision: the newline after the last frame, and nothing else between the frames."""

from __future__ import annotations

import pytest
import torch

from families import family_backbone
from longtake.backbones.backbone import Cursor, Segment
from longtake.backbones.frame_by_frame import FrameByFrame
from longtake.backbones.llava_onevision import LlavaOneVision
from longtake.kv.ledger import Kind, Rows
from longtake.video import Chunk
from test_frame_by_frame import PATCHES, chunk_of, chunks_equal_one_shot
from test_invariants import Fault, check


def then(first: Segment, second: Segment) -> Segment:
    facts = (torch.cat([getattr(part.rows, name) for part in (first, second)]) for name in Rows.__slots__)
    return Segment(torch.cat((first.embeddings, second.embeddings), dim=1), Rows(*facts))


def newline_after_every_chunk(patch: pytest.MonkeyPatch) -> None:
    """Each chunk as the library makes it of a video of its own."""
    encode = LlavaOneVision.encode

    def ended(self: LlavaOneVision, chunk: Chunk, cursor: Cursor) -> Segment:
        segment, newline = encode(self, chunk, cursor), self.text(self.end_ids, cursor)
        newline.embeddings[:] = self.model.model.image_newline
        return then(segment, newline)

    patch.setattr(LlavaOneVision, "encode", ended)


def newline_after_every_frame(patch: pytest.MonkeyPatch) -> None:
    """Features taken as the library returns them."""

    def uncut(self: LlavaOneVision, pixels: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.model.model.get_video_features(pixels[:, None]).pooler_output
        return features

    patch.setattr(LlavaOneVision, "features", uncut)


def newline_missing(patch: pytest.MonkeyPatch) -> None:
    def abrupt(self: LlavaOneVision, question: str, cursor: Cursor) -> Segment:
        return self.text(self.ids(self.prompt.before_question + question + self.prompt.after_question), cursor)

    patch.setattr(LlavaOneVision, "closing", abrupt)


def newline_not_learned(patch: pytest.MonkeyPatch) -> None:
    """The placeholder's own embedding in the newline's place."""
    patch.setattr(LlavaOneVision, "closing", FrameByFrame.closing)


@pytest.mark.parametrize(
    "fault", [None, newline_after_every_chunk, newline_after_every_frame, newline_missing, newline_not_learned]
)
def test_one_newline_ends_the_stream(fault: Fault | None, monkeypatch: pytest.MonkeyPatch) -> None:
    check(chunks_equal_one_shot, fault, monkeypatch, "llava_onevision", [2, 1, 4])


def test_a_chunk_is_visual_tokens_alone_and_the_newline_a_text_token_of_the_question() -> None:
    backbone = family_backbone("llava_onevision")
    cursor = backbone.new_cursor()
    segment = backbone.encode(chunk_of([0.0, 1.0]), cursor)
    assert len(segment) == 2 * PATCHES
    assert (segment.rows.kind == Kind.VISUAL).all()
    closing = backbone.closing("what ?", cursor)
    assert torch.equal(closing.embeddings[0, 0], backbone.model.model.image_newline)
    assert (int(closing.rows.kind[0]), int(closing.rows.patch[0])) == (Kind.TEXT, -1)
    assert int(closing.rows.position[0, 0]) == 2 * PATCHES


def test_the_placeholders_are_the_real_ones() -> None:
    words = family_backbone("llava_onevision").tokenizer
    assert words.convert_tokens_to_ids(["<image>", "<video>"]) == [151646, 151647]
