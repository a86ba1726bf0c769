"""A taste of the training: a few steps go downhill, runs repeat, and weights that fail are not written."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longtake.errors import LongtakeError
from longtake.toy.questions import Question
from longtake.toy.scenery import BUSY
from longtake.toy.shapes import SHAPES, THINGS
from longtake.toy.world import World
from longtake.training import train as training
from longtake.training.curriculum import CURRICULUM
from longtake.training.frames import FramePool, build_frames
from longtake.training.language_stage import Progress, draw_stream, train_language
from longtake.training.lessons import by_colour, later, pick_questions
from longtake.training.streams import ChunkPool, encode_pool, watch
from longtake.training.student import Student
from longtake.training.vision_stage import train_vision, vision_accuracy


def reborn(student: Student) -> Student:
    return Student.new(student.species, 0)


@pytest.fixture(scope="module")
def frames(student: Student) -> FramePool:
    return build_frames(student, 5, 2)


@pytest.fixture(scope="module")
def pool(student: Student, frames: FramePool) -> ChunkPool:
    return encode_pool(student, frames, 0)


def test_a_few_vision_steps_reduce_the_loss(
    student: Student, frames: FramePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longtake.training.vision_stage._BATCH", 24)
    pupil = reborn(student)
    losses: list[float] = []
    train_vision(pupil, frames, 40, 0, lambda _, loss: losses.append(loss))
    assert np.mean(losses[-8:]) < 0.95 * np.mean(losses[:4])
    assert set(vision_accuracy(pupil, frames, 0, 32)) == {"thing", "colour"}


def test_language_steps_reduce_the_loss_and_go_on_where_they_stopped(
    student: Student, pool: ChunkPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tuple(replace(grade, tokens=250) for grade in CURRICULUM)
    for module in ("curriculum", "language_stage"):
        monkeypatch.setattr(f"longtake.training.{module}.CURRICULUM", small)
    pupil, resumed = reborn(student), reborn(student)
    losses: list[float] = []
    snapshot: dict[str, Any] = {}
    state: dict[str, Any] = {}

    def report(progress: Progress) -> None:
        losses.append(progress.loss)
        if progress.step == 5:
            snapshot["model"] = {name: tensor.clone() for name, tensor in pupil.model.state_dict().items()}
            snapshot["state"] = torch.load(_saved(state), weights_only=True)

    with student.species.training():
        train_language(pupil, pool, 24, 0, report, state)
        resumed.model.load_state_dict(snapshot["model"])
        train_language(resumed, pool, 24, 0, lambda _: None, snapshot["state"])
    assert np.mean(losses[-3:]) < 0.9 * np.mean(losses[:3])
    for ours, theirs in zip(pupil.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def _saved(state: dict[str, Any]) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return buffer


def test_streams_are_drawn_the_same_from_the_same_generator(student: Student, pool: ChunkPool) -> None:
    first, second = (draw_stream(student, pool, CURRICULUM[3], np.random.default_rng(3)) for _ in range(2))
    assert torch.equal(first[0].ids, second[0].ids)
    assert torch.equal(first[0].features, second[0].features)
    assert first[1] == second[1]
    alone = first[0].branches < 2
    assert (first[0].positions[0, alone].diff() >= 0).all()


def test_composed_streams_show_each_event_in_its_chunks(student: Student, pool: ChunkPool) -> None:
    world = World(4, 40, 6, BUSY)
    features = watch(student.species, world, 40, pool, 0, np.random.default_rng(0))
    quiet = pool.quiet[0]
    rate = student.species.frames
    for chunk, found in enumerate(features):
        shown = any(world.visible(chunk + frame / rate) for frame in range(rate))
        assert shown != any(torch.equal(found, empty) for empty in quiet)
    assert pool.events.shape[1] == len(THINGS)


def test_questions_of_one_stream_do_not_give_each_other_away() -> None:
    rng = np.random.default_rng(0)
    for seed in range(30):
        picked: list[Question] = pick_questions(World(seed, 90, 20, BUSY).questions(90), 16, 4, 1, rng)
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


def test_a_clock_that_is_ahead_moves_the_minute() -> None:
    world = World(3, 110, 8)
    for question in world.questions(110, ["when"]):
        assert later(question, 0.0) == question
        ahead = later(question, 180.0)
        if ahead is not None:
            assert int(ahead.answer) == int(question.evidence[0] + 180) // 60
        assert later(question, 3600.0) is None


@pytest.mark.parametrize(("full", "blind"), [(0.9, 0.1), (1.0, 0.5)])
def test_weights_that_fail_are_refused(full: float, blind: float) -> None:
    metrics = {"128 s, everything": {"all": full}, "128 s, keys and values dropped": {"colour": blind}}
    with pytest.raises(LongtakeError, match="not written"):
        training.require_both_ends(metrics)


def test_weights_appear_whole_and_as_evaluated(
    student: Student, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_TESTED", ((12.0, 1),))
    target = tmp_path / "weights"
    for seed in (0, 1):
        training.write(target, student, {"seed": seed, "metrics": {}}, check=False)
        written = (target / "training.json").read_text()
        assert f'"seed": {seed}' in written
        assert "12 s, everything" in written
        assert [entry.name for entry in tmp_path.iterdir()] == ["weights"]
        assert (target / "model.safetensors").exists()
    with pytest.raises(KeyError):
        training.write(target, student, {"seed": 2, "metrics": {}}, check=True)
    assert '"seed": 1' in (target / "training.json").read_text()
    assert [entry.name for entry in tmp_path.iterdir()] == ["weights"]
