"""Every family: a chunked stream equals the library's one-shot forward, to the last position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from families import FAMILIES, family_backbone
from longtake.backbones.backbone import Backbone
from longtake.engine import Engine
from longtake.session import Session
from longtake.video import Chunk, Frame
from models import noise, one_shot, one_shot_logits

QUESTION = "What colour was the circle, and what is 12 + 30?"
TOLERANCE = 5e-5


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Backbone:
    return family_backbone(request.param)


def streamed_logits(
    backbone: Backbone, frames: Sequence[np.ndarray], times: Sequence[float], chunks: Sequence[int]
) -> Any:
    """Logits after the question, with the frames taken in chunks of the given sizes."""
    memory, cursor = backbone.memory(), backbone.new_cursor()

    def prefill(segment: Any) -> torch.Tensor:
        with memory.appending(segment.rows) as cache:
            return backbone.forward(segment, cache)

    prefill(backbone.opening(cursor))
    start = 0
    for index, size in enumerate(chunks):
        part = [Frame(t, f) for t, f in zip(times[start : start + size], frames[start : start + size], strict=True)]
        prefill(backbone.encode(Chunk(tuple(part), index), cursor))
        start += size
    assert start == len(frames)
    return backbone.logits(prefill(backbone.closing(QUESTION, cursor)))


@pytest.mark.parametrize("chunks", [[2, 4, 2, 6, 4], [8, 2, 2, 6], [6, 6, 5]])
def test_uneven_chunks_equal_the_one_shot_forward(family: Backbone, chunks: list[int]) -> None:
    """T beyond max(h, w), the processor's own resize limit hit, an odd last chunk. See also the planted faults."""
    frames = noise(sum(chunks), seed=90, size=(90, 130))
    times = [i * 0.5 for i in range(len(frames))]
    expected = one_shot_logits(family, frames, times, QUESTION)
    streamed = streamed_logits(family, frames, times, chunks)
    assert expected.abs().max() > 1, "the weights are large enough for differences to show"
    assert torch.allclose(streamed, expected, atol=TOLERANCE)


def watched(family: Backbone, count: int, policy: str = "full", budget: int | None = None) -> Session:
    session = Engine(family).open(policy, budget, chunk_frames=2 * family.frames_per_step)
    for i, frame in enumerate(noise(count, seed=91, size=(90, 130))):
        session.push(frame, i * 0.5)
    return session


def test_a_question_midstream_leaves_no_trace(family: Backbone) -> None:
    session, silent = watched(family, 7), watched(family, 14)
    session.ask(QUESTION, max_new_tokens=4)
    for i, frame in enumerate(noise(14, seed=91, size=(90, 130))[7:], 7):
        session.push(frame, i * 0.5)
    assert torch.equal(session.logits(QUESTION), silent.logits(QUESTION))


def test_greedy_answers_equal_generate(family: Backbone) -> None:
    session = watched(family, 9)
    answer = session.ask(QUESTION, max_new_tokens=8)
    model, inputs = one_shot(family, noise(9, seed=91, size=(90, 130)), [i * 0.5 for i in range(9)], QUESTION)
    ids = model.generate(**inputs, max_new_tokens=8, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    assert answer.text == family.words(ids.tolist()).strip()
