"""Every family: a chunked stream equals the library's one-shot forward, to the last position."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clips import write_video
from families import FAMILIES, family_backbone, stock_family
from longtake.backbones.backbone import Backbone
from longtake.backbones.load import adopt
from longtake.engine import Engine
from longtake.errors import LongtakeError
from longtake.session import Session
from longtake.video import Chunk, Frame
from models import noise, one_shot, one_shot_logits
from test_invariants import Scattered, eviction_equals_masking

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


def test_evicting_equals_masking_in_every_family(family: Backbone) -> None:
    """The oracle of invariant 2; its planted faults are in tests/test_invariants.py."""
    eviction_equals_masking(family, "recency")


def test_layers_of_different_lengths_work_in_every_family(family: Backbone) -> None:
    eviction_equals_masking(family, Scattered(60))


def test_in_bfloat16_a_stream_is_within_the_models_own_rounding(family: Backbone) -> None:
    """Streamed against one-shot, both in bfloat16, beside bfloat16 against float32."""
    frames, times = noise(10, seed=92, size=(90, 130)), [i * 0.5 for i in range(10)]
    rounded = adopt(copy.deepcopy(family.model).to(torch.bfloat16), family.processor, "rounded")
    streamed = streamed_logits(rounded, frames, times, [4, 2, 4])
    one_shot_rounded = one_shot_logits(rounded, frames, times, QUESTION)
    exact = one_shot_logits(family, frames, times, QUESTION)
    noise_level = (one_shot_rounded - exact).abs()
    assert (streamed - one_shot_rounded).abs().max() <= 2 * noise_level.max()
    assert (streamed - exact).abs().mean() <= 1.5 * noise_level.mean()


def test_a_shift_of_cache_and_question_changes_nothing_in_any_family(family: Backbone) -> None:
    session = watched(family, 9)
    expected = session.logits(QUESTION)
    session.memory.shift(-700)
    assert not torch.allclose(session.logits(QUESTION), expected, atol=1e-3), "planted: a question left behind"
    family.shift(session._cursor, -700)
    assert torch.allclose(session.logits(QUESTION), expected, atol=5e-4)
    for i, frame in enumerate(noise(14, seed=91, size=(90, 130))[9:], 9):
        session.push(frame, i * 0.5)
    assert torch.allclose(session.logits(QUESTION), watched(family, 14).logits(QUESTION), atol=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_checkpoint_folder_of_each_family_answers_from_the_command_line(name: str, tmp_path: Path) -> None:
    model, processor = stock_family(name)
    model.save_pretrained(tmp_path / "model")
    processor.save_pretrained(tmp_path / "model")
    video = write_video(tmp_path / "clip.avi", 60, codec="mpeg4", size=(130, 90), rate=10)
    command = [
        sys.executable, "-m", "longtake", "ask", str(video), QUESTION, "--at", "3", "--model", str(tmp_path / "model"),
        "--policy", "recency", "--budget", "150", "--json", "--max-new-tokens", "4",
    ]  # fmt: skip
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    record = json.loads(run.stdout)
    assert record["family"] == family_backbone(name).family
    assert record["tokens_held"] <= 150


def test_a_question_with_any_control_token_of_the_checkpoint_is_refused(family: Backbone) -> None:
    """Seen to fail when only the tokenizer's named special tokens are looked at."""
    tokens = [str(token) for token in family.tokenizer.added_tokens_decoder.values() if token.special]
    assert len(tokens) > 2
    for token in tokens:
        with pytest.raises(LongtakeError, match="control token"):
            family.check_question(f"what {token} now?")
