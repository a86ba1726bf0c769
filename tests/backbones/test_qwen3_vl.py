"""The traps of the timestamped families (Qwen3-VL, Qwen3.5): each is a planted fault that must be seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from backbones.test_families import QUESTION, TOLERANCE, streamed_logits
from families import family_backbone
from longtake.backbones.backbone import Backbone, Cursor
from longtake.backbones.qwen3_vl import Qwen3VL
from longtake.errors import LongtakeError
from longtake.video import Chunk, Frame
from models import noise, one_shot_logits
from test_invariants import Fault, check


def stream_equals_one_shot(backbone: Backbone) -> None:
    frames = noise(14, seed=95, size=(90, 130))
    times = [i * 0.5 for i in range(14)]
    streamed = streamed_logits(backbone, frames, times, [6, 2, 6])
    assert torch.allclose(streamed, one_shot_logits(backbone, frames, times, QUESTION), atol=TOLERANCE)


def deepstack_left_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Qwen3VL, "_extras", lambda self, vision, visual: {})


def deepstack_on_the_wrong_tokens(patch: pytest.MonkeyPatch) -> None:
    """Features added one token too early."""
    extras = Qwen3VL._extras

    def early(self: Qwen3VL, vision: Any, visual: torch.Tensor) -> Any:
        return extras(self, vision, visual.roll(-1))

    patch.setattr(Qwen3VL, "_extras", early)


def outer_wrapper_dropped(patch: pytest.MonkeyPatch) -> None:
    """Without the outer <|vision_end|>, which only the processor's real output shows."""
    closing = Qwen3VL.closing

    def bare(self: Qwen3VL, question: str, cursor: Cursor) -> Any:
        prompt = self.prompt
        before = prompt.before_question.removeprefix(self.processor.vision_end_token)
        self.prompt = replace(prompt, before_question=before)
        try:
            return closing(self, question, cursor)
        finally:
            self.prompt = prompt

    patch.setattr(Qwen3VL, "closing", bare)


def size_from_each_chunk(patch: pytest.MonkeyPatch) -> None:
    """The processor's own resize, which shrinks frames by the number of frames it is given."""
    encode = Qwen3VL.encode

    def naive(self: Qwen3VL, chunk: Any, cursor: Cursor) -> Any:
        height, width = chunk.frames[0].image.shape[:2]
        cursor.frame_size = self.fit(height, width, 2304 * 4 // len(chunk.frames))  # begin_chunk then leaves it
        return encode(self, chunk, cursor)

    patch.setattr(Qwen3VL, "encode", naive)


def default_sampling(patch: pytest.MonkeyPatch) -> None:
    """Frames sampled again by the processor, as it does unless told otherwise."""

    class Sampling:
        def __init__(self, processor: Any) -> None:
            self.processor = processor

        def __getattr__(self, name: str) -> Any:
            return getattr(self.processor, name)

        def __call__(self, **arguments: Any) -> Any:
            return self.processor(**{**arguments, "do_sample_frames": True, "fps": 1})

    init = Qwen3VL.__init__

    def sampled(self: Qwen3VL, model: Any, processor: Any, name: str) -> None:
        init(self, model, Sampling(processor), name)

    patch.setattr(Qwen3VL, "__init__", sampled)


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen3_5"])
@pytest.mark.parametrize("fault", [None, outer_wrapper_dropped, size_from_each_chunk, default_sampling])
def test_the_traps_of_the_timestamped_families_are_seen(
    name: str, fault: Fault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = family_backbone(name)
    if fault is default_sampling:
        fault(monkeypatch)
        backbone = type(backbone)(backbone.model, backbone.processor, name)
        with pytest.raises((AssertionError, RuntimeError, ValueError)):
            stream_equals_one_shot(backbone)
        return
    check(stream_equals_one_shot, fault, monkeypatch, backbone)


@pytest.mark.parametrize("fault", [deepstack_left_out, deepstack_on_the_wrong_tokens])
@pytest.mark.parametrize("name", ["qwen3_vl", "qwen3_vl_moe"])
def test_the_traps_of_deepstack_are_seen(name: str, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check(stream_equals_one_shot, fault, monkeypatch, family_backbone(name))


def test_a_chunk_with_a_rest_can_only_be_the_last() -> None:
    """An odd chunk is padded; whatever came after it would be one frame off."""
    backbone, cursor = family_backbone("qwen3_vl"), Cursor()
    frames = [Frame(i * 0.5, image) for i, image in enumerate(noise(8))]
    backbone.encode(Chunk(tuple(frames[:3]), 0), cursor)
    with pytest.raises(LongtakeError, match="only the last chunk"):
        backbone.encode(Chunk(tuple(frames[3:]), 1), cursor)
