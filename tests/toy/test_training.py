"""A taste of the training: a few steps go downhill, runs repeat, and weights that fail are not written."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen3VLProcessor

from longtake.errors import LongtakeError
from longtake.toy import train as training
from longtake.training.delta import fast_training
from longtake.toy.evaluation import separation
from longtake.training.frames import FramePool, build_frames
from longtake.training.language_stage import CURRICULUM, Progress, draw_stream, train_language
from longtake.training.hybrid import build_model
from longtake.training.script import Script
from longtake.toy.shapes import SHAPES
from longtake.training.streams import ChunkPool, by_colour, encode_pool, pick_questions
from longtake.training.vision_stage import train_vision, vision_accuracy
from longtake.toy.world import Question, World


@pytest.fixture(scope="module")
def frames(processor: Qwen3VLProcessor) -> FramePool:
    return build_frames(processor, 5, 2)


@pytest.fixture(scope="module")
def pool(processor: Qwen3VLProcessor, frames: FramePool) -> ChunkPool:
    return encode_pool(build_model(processor.tokenizer, 0), processor, frames, 0)


def test_a_few_vision_steps_reduce_the_loss(
    processor: Qwen3VLProcessor, frames: FramePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longtake.training.vision_stage._BATCH", 24)
    model = build_model(processor.tokenizer, 0)
    losses: list[float] = []
    train_vision(model, processor, frames, 40, 0, lambda _, loss: losses.append(loss))
    assert np.mean(losses[-8:]) < 0.95 * np.mean(losses[:4])
    assert set(vision_accuracy(model, processor, frames, 0, 32)) == {"shape", "colour"}


def test_language_steps_reduce_the_loss_and_go_on_where_they_stopped(
    processor: Qwen3VLProcessor, script: Script, pool: ChunkPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longtake.training.language_stage._TOKENS_PER_STEP", 250)
    model, resumed = build_model(processor.tokenizer, 0), build_model(processor.tokenizer, 0)
    losses: list[float] = []
    snapshot: dict[str, Any] = {}
    state: dict[str, Any] = {}

    def report(progress: Progress) -> None:
        losses.append(progress.loss)
        if progress.step == 5:
            snapshot["model"] = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            snapshot["state"] = torch.load(_saved(state), weights_only=True)

    with fast_training():
        train_language(model, script, pool, 24, 0, report, state)
        resumed.load_state_dict(snapshot["model"])
        train_language(resumed, script, pool, 24, 0, lambda _: None, snapshot["state"])
    assert np.mean(losses[-3:]) < 0.9 * np.mean(losses[:3])
    for ours, theirs in zip(model.parameters(), resumed.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def _saved(state: dict[str, Any]) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return buffer


def test_streams_are_drawn_the_same_from_the_same_generator(script: Script, pool: ChunkPool) -> None:
    first, second = (draw_stream(script, pool, CURRICULUM[2], np.random.default_rng(3)) for _ in range(2))
    assert torch.equal(first[0].ids, second[0].ids)
    assert torch.equal(first[0].features, second[0].features)
    assert first[1] == second[1]
    assert (first[0].positions.diff(dim=1)[0] >= 0).all()


def test_questions_of_one_stream_do_not_give_each_other_away() -> None:
    rng = np.random.default_rng(0)
    for seed in range(30):
        picked: list[Question] = pick_questions(World(seed, 60, 12).questions(60), 12, 4, 1, rng)
        named = [word for question in picked for word in question.text.split() if word in SHAPES]
        assert len(named) == len(set(named))


def test_whether_a_shape_was_seen_is_a_fair_coin_and_absent_shapes_have_no_colour() -> None:
    """An answer that could be guessed from how often it is right would be learned in place of the question."""
    rng = np.random.default_rng(0)
    answers: list[str] = []
    for seed in range(300):
        world = World(seed, 60, 6)
        shown = {event.shape for event in world.events}
        picked = pick_questions(world.questions(60), 12, 3, 1, rng)
        answers += [question.answer for question in picked if question.kind == "seen"]
        absent = [question for question in picked if question.kind == "absent"]
        assert [question.answer for question in absent] == ["nothing"]
        assert not shown & set(absent[0].text.split())
    assert 0.45 < answers.count("yes") / len(answers) < 0.55


def test_the_first_grades_answer_whether_a_shape_was_seen_by_its_colour() -> None:
    world = World(3, 60, 6)
    colours = {event.shape: event.colour for event in world.events}
    for question in world.questions(60, ["seen"]):
        shape = next(word for word in question.text.split() if word in SHAPES)
        named = by_colour(question, world)
        assert named.answer == colours.get(shape, "nothing")
        assert named.kind == ("named" if shape in colours else "unnamed")
        assert named.text == question.text


def test_separation_is_the_area_under_the_curve() -> None:
    positive = torch.tensor([False, True, False, True])
    assert separation(torch.tensor([0.1, 0.9, 0.2, 0.8]), positive) == 1.0
    assert separation(torch.tensor([0.1, 0.15, 0.2, 0.8]), positive) == 0.75


@pytest.mark.parametrize(("full", "blind"), [(0.9, 0.1), (1.0, 0.5)])
def test_weights_that_fail_are_refused(full: float, blind: float) -> None:
    metrics = {"128 chunks, full": {"colour": full}, "128 chunks, no keys and values": {"colour": blind}}
    with pytest.raises(LongtakeError, match="not written"):
        training.require_both_ends(metrics)


def test_weights_appear_whole(processor: Qwen3VLProcessor, tmp_path: Path) -> None:
    target = tmp_path / "weights"
    for seed in (0, 1):
        training.write(target, build_model(processor.tokenizer, seed), processor, {"seed": seed})
        assert f'"seed": {seed}' in (target / "training.json").read_text()
        assert [entry.name for entry in tmp_path.iterdir()] == ["weights"]
        assert (target / "model.safetensors").exists()
