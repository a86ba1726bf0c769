"""`longtake eval`, `longtake report` and `longtake horizons`, as a user calls them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import commands
from longtake.toy import World, render
from longtake.training.student import Student
from longtake.training.zoo import ZOO


def longtake(*arguments: object) -> int:
    """The exit code; what was printed goes on to the test."""
    run = commands.longtake(*arguments)
    print(run.stdout, end="")
    print(run.stderr, end="", file=sys.stderr)
    return run.returncode


QUICK = ("--lengths", "20s", "--seeds", "0,1", "--budgets", "40", "--policies", "full,recency", "--every", "6")


def test_results_become_tables_and_plots(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "results.jsonl"
    assert longtake("eval", "toy", *QUICK, "--out", file) == 0
    shown = capfd.readouterr()
    assert "4 trials on 2 streams; about" in shown.err
    assert shown.err.count("left") == 4
    assert str(file) in shown.out
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert {record["policy"] for record in records} == {"full", "recency"}
    for record in records:
        assert record["versions"]["torch"]
        assert record["settings"] is not None
        assert record["asked"]
    assert longtake("report", file) == 0
    table = capfd.readouterr().out
    assert "## toy, streams of 20 s (2 of them)" in table
    assert "| recency" in table
    folder = tmp_path / "report"
    assert longtake("report", file, "--out", folder) == 0
    assert (folder / "report.md").read_text() == table.removesuffix("\n")
    assert len(list(folder.glob("*.png"))) == 3


def test_a_second_call_has_nothing_left_to_do(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "results.jsonl"
    longtake("eval", "toy", *QUICK, "--out", file)
    before = file.read_text()
    capfd.readouterr()
    assert longtake("eval", "toy", *QUICK, "--out", file) == 0
    assert "left" not in capfd.readouterr().err
    assert file.read_text() == before


def test_the_time_is_told_beforehand(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "results.jsonl"
    assert longtake("eval", "toy", *QUICK, "--estimate", "--out", file) == 0
    assert "about" in capfd.readouterr().err
    assert not file.exists()


def test_ablations_are_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert longtake("eval", "toy", "--ablation", "list") == 0
    assert "deltas:spans=8" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--policies", "nothing"), "no policy"),
        (("--lengths", "soon"), "10m"),
        (("--budgets", "0"), "percent"),
        (("--models", "qwen"), "qwen"),
        (("--ablation", "colour"), "no ablation"),
        (("--preset", "huge"), "no preset"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: tuple[str, str], word: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert longtake("eval", "toy", *arguments, "--out", tmp_path / "r") == 2
    said = capfd.readouterr().err
    assert said.startswith("Error:")
    assert word in said
    assert not (tmp_path / "r").exists()


def test_results_that_are_none_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").write_text("")
    for name, word in (("empty", "no results"), ("missing", "cannot be read")):
        assert longtake("report", tmp_path / name) == 2
        assert word in capfd.readouterr().err


def test_horizons_are_read_drawn_and_compared(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "horizons.png"
    assert longtake("horizons", "--seeds", "0,1", "--seconds", "12", "--out", picture) == 0
    shown = capfd.readouterr().out
    assert "rank correlation of world 0 and world 1" in shown
    assert picture.stat().st_size > 5000
    video = render(World(3, 12.0), tmp_path / "world.mp4")
    assert longtake("horizons", video, "--seconds", "6", "--json") == 0
    record = json.loads(capfd.readouterr().out)
    (stream,) = record["streams"]
    assert stream["seconds"] == 6.0
    assert len(stream["half_life_seconds"]) == len(stream["layers"])
    assert all(value > 0 for layer in stream["half_life_seconds"] for value in layer)


def test_a_model_without_states_has_no_horizons(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    student = Student.new(ZOO["toy-llava"], 0)
    student.model.save_pretrained(tmp_path)
    student.processor.save_pretrained(tmp_path)
    assert longtake("horizons", "--model", tmp_path, "--seeds", "0", "--seconds", "12") == 2
    assert "hybrid" in capfd.readouterr().err
