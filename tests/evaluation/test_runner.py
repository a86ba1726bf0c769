"""Trials are made once, kept as they come, and the same again from the same seeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longtake.backbones.backbone import Backbone
from longtake.engine import Engine
from longtake.errors import LongtakeError
from longtake.evaluation.presets import choose
from longtake.evaluation.recording import Recording
from longtake.evaluation.results import Results, read
from longtake.evaluation.runner import estimate, run
from longtake.evaluation.streams import Stream
from longtake.evaluation.trial import EMPTIED, MOMENTS, Case, _held, try_out
from longtake.memory import Keep

UNITS = choose("quick", policies="full,emptied,recency,uniform", lengths="24s", seeds="0,1", budgets="30", every=6.0)
VOLATILE = ("ms_per_chunk",)


def found(path: Path) -> list[dict[str, object]]:
    return [{k: v for k, v in one.items() if k not in VOLATILE} for one in read(path)]


def silent(word: str, done: float) -> None:
    assert 0 < done <= 1.0001


def test_the_same_seeds_give_the_same_results(tmp_path: Path) -> None:
    for name in ("one", "two"):
        run(UNITS, Results(tmp_path / name), 1, silent)
    assert found(tmp_path / "one") == found(tmp_path / "two")
    assert len(found(tmp_path / "one")) == sum(len(unit.cases) for unit in UNITS)


def test_workers_find_the_same(tmp_path: Path) -> None:
    run(UNITS, Results(tmp_path / "one"), 1, silent)
    run(UNITS, Results(tmp_path / "two"), 2, silent)
    one, two = (sorted(json.dumps(result, sort_keys=True) for result in found(tmp_path / n)) for n in ("one", "two"))
    assert one == two


def test_a_run_goes_on_where_it_was_torn(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"

    def stop(word: str, done: float) -> None:
        if done > 0.3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(UNITS, Results(path), 1, stop)
    kept = path.read_text()
    path.write_text(kept + '{"model": "toy", "seco')
    assert len(list(read(path))) == kept.count("\n")
    said: list[str] = []
    run(UNITS, Results(path), 1, lambda word, done: said.append(word))
    assert path.read_text().startswith(kept)
    assert len(said) == sum(len(unit.cases) for unit in UNITS) - kept.count("\n")
    whole = tmp_path / "whole"
    run(UNITS, Results(whole), 1, silent)
    assert found(path) == found(whole)
    run(UNITS, Results(path), 1, lambda word, done: pytest.fail("nothing was left to do"))
    assert estimate(UNITS, Results(path), 1) == 0.0


def test_an_estimate_grows_with_the_work(tmp_path: Path) -> None:
    short, long = (
        choose("quick", policies="recency", lengths=length, seeds="0", budgets="30") for length in ("1m", "1h")
    )
    results = Results(tmp_path / "none")
    assert 0 < estimate(short, results, 1) < estimate(long, results, 1)


def test_a_budget_too_small_is_a_result_that_says_so(tmp_path: Path) -> None:
    units = choose("quick", policies="recency", lengths="24s", seeds="0", budgets="1")
    run(units, Results(tmp_path / "r"), 1, silent)
    (result,) = read(tmp_path / "r")
    assert "too small" in result["error"]


@pytest.mark.parametrize("text", ["not json\n{}\n", '{"model": "toy"}\n{"model": "toy"}\n'])
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other"
    path.write_text(text)
    with pytest.raises(LongtakeError, match="not a result"):
        list(read(path))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(LongtakeError, match="cannot be read"):
        list(read(tmp_path / "nowhere"))


@pytest.fixture(scope="module")
def stream() -> Stream:
    return Stream(40.0, 0, every=8.0, scenery="quiet")


@pytest.fixture(scope="module")
def recording(toy: Backbone, stream: Stream) -> Recording:
    return Recording.of(toy, stream.frames(toy.default_fps))


def test_with_everything_kept_all_evidence_is_held(recording: Recording, stream: Stream) -> None:
    result = try_out(recording, stream, Case("full"))
    assert {one["held"] for one in result["asked"]} <= {1.0, None}
    assert result["tokens_held"] == result["tokens_seen"]
    assert len(result["held_by_moment"]) == MOMENTS
    assert result["held_by_moment"] == [1.0] * MOMENTS
    right = [one["right"] for one in result["asked"] if one["kind"] == "colour"]
    assert sum(right) / len(right) >= 0.8


def test_emptied_answers_from_the_states_alone(recording: Recording, stream: Stream) -> None:
    result = try_out(recording, stream, Case(EMPTIED))
    assert {one["held"] for one in result["asked"]} <= {0.0, None}
    assert not any(one["right"] for one in result["asked"] if one["kind"] == "colour")


def test_what_is_held_is_told_truly(recording: Recording, stream: Stream) -> None:
    """Recency holds the end of the stream: recent evidence yes, old evidence no."""
    result = try_out(recording, stream, Case("recency", percent=40.0))
    assert result["budget_tokens"] == round(recording.tokens * 0.4) == result["tokens_held"]
    shares = result["held_by_moment"]
    assert max(shares[:50]) == 0.0
    assert min(shares[70:]) == 1.0
    for one, question in zip(result["asked"], stream.questions(True, recording.knows), strict=True):
        if question.evidence:
            moments = [stream.shows(moment) for moment in question.evidence]
            expected = sum(end > 0.7 * 40 for _, end in moments) / len(moments)
            if all(end > 0.7 * 40 or end < 0.5 * 40 for _, end in moments):
                assert one["held"] == pytest.approx(expected)


def test_evidence_is_held_when_something_of_its_own_moments_is(recording: Recording, stream: Stream) -> None:
    event = stream.world.events[2]
    moment = ((event.start + event.end) / 2,)
    for low, high, expected in (
        (0.0, event.start - 0.5, 0.0),
        (event.start, event.end, 1.0),
        (event.end + 1.1, 99, 0.0),
    ):
        with Engine(recording.watched_by()).open("full") as session:
            recording.push_into(session)
            time = session.memory.ledger["time"]
            session.memory.evict(Keep.shared(((time >= low) & (time <= high)).nonzero().squeeze(1)))
            assert _held(session, stream, moment) == expected


def test_a_stream_says_how_old_its_evidence_is(stream: Stream) -> None:
    for question in stream.questions(True):
        age = stream.age(question)
        if age is not None:
            oldest = question.kind in ("order", "count")
            assert age == 40.0 - (min if oldest else max)(question.evidence)
    assert not any(question.kind == "when" for question in stream.questions(False))


def test_streams_of_different_seeds_numbers_and_lengths_are_different_worlds() -> None:
    seeds = {
        Stream(seconds, seed, number).world.seed for seconds in (60.0, 600.0) for seed in (0, 1) for number in (0, 1)
    }
    assert len(seeds) == 8
    assert Stream(60.0, 0).world.events == Stream(60.0, 0).world.events


def test_questions_leave_the_session_as_it_was(recording: Recording, stream: Stream) -> None:
    with Engine(recording.watched_by()).open("deltas", 150) as session:
        recording.push_into(session)
        before = session.logits("what was shown first ?")
        for question in stream.questions(True)[:4]:
            session.ask(question.text, max_new_tokens=4)
        assert (session.logits("what was shown first ?") - before).abs().max() == 0
