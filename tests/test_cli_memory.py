"""`longtake memory`: a picture and the same as JSON. In this process, since a new one would load the library anew."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from longtake.backbones.backbone import Backbone
from longtake.cli import app, main
from longtake.engine import Engine
from longtake.policies.registry import POLICIES
from longtake.report.holdings import AGES
from longtake.toy import World, render

SECONDS = 24.0


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render(World(5, SECONDS), tmp_path_factory.mktemp("clip") / "world.mp4")


def memory(clip: Path, picture: Path, *arguments: object) -> dict[str, Any]:
    """Run the command and read the JSON that it wrote."""
    app(["memory", str(clip), "--out", str(picture), *map(str, arguments)], standalone_mode=False)
    with Image.open(picture) as image:
        assert image.format == "PNG"
        image.verify()
    record: dict[str, Any] = json.loads(picture.with_suffix(".json").read_text())
    return record


def test_picture_and_json_tell_what_the_ledgers_hold(
    clip: Path, toy: Backbone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "new" / "held.png"
    record = memory(clip, picture, "--policy", "hermes", "--budget", 90, "-o", "chunk=8")
    with Engine(toy).open("hermes", 90, policy_options={"chunk": 8}) as session:
        session.watch(clip)
        (ledger,) = session.memory.ledgers
        kinds, times, chunks = (ledger[name].tolist() for name in ("kind", "time", "chunk"))
        assert session.visual_tokens is not None
        whole = session.visual_tokens * 4
        (layer,) = record["layers"]
        visual = [(time, chunk) for kind, time, chunk in zip(kinds, times, chunks, strict=True) if kind == 2]
        assert (layer["layer"], layer["role"]) == (3, "deep")
        assert layer["tokens"] == len(ledger) < session.memory.seen == record["tokens_seen"]
        assert layer["visual_tokens"] == len(visual)
        assert layer["share_per_chunk"] == [[c for _, c in visual].count(i) / whole for i in range(session.chunks)]
        assert layer["oldest_seconds"] == min(time for time, _ in visual)
        assert layer["summary_seconds"] == sorted(t for k, t in zip(kinds, times, strict=True) if k == 4)
        assert len(layer["summary_seconds"]) >= 1
        assert len(layer["attention_by_age"]) == AGES
        assert any(paid for paid in layer["attention_by_age"])
    assert record["policy_options"]["chunk"] == 8
    assert (record["policy"], record["budget"], record["model"]) == ("hermes", 90, "toy")
    assert record["stream_seconds"] == pytest.approx(SECONDS)
    assert len(record["chunk_edges"]) == len(layer["share_per_chunk"]) + 1 == 7
    assert record["chunk_edges"] == pytest.approx([4.0 * i for i in range(7)], abs=0.3)
    assert record["age_edges"][-1] == pytest.approx(SECONDS)
    shown = capsys.readouterr().out
    row = next(line.split() for line in shown.splitlines() if line.split()[:2] == ["3", "deep"])
    assert row == ["3", "deep", str(layer["tokens"]), str(layer["visual_tokens"]),
                   f"{layer['oldest_seconds']:.1f}", "s", str(len(layer["summary_seconds"]))]  # fmt: skip
    assert str(picture) in shown
    assert str(picture.with_suffix(".json")) in shown


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_can_be_looked_at(policy: str, clip: Path, tmp_path: Path) -> None:
    record = memory(clip, tmp_path / "a.png", "--policy", policy, "--budget", 100, "--chunk-frames", 4)
    (layer,) = record["layers"]
    assert record["chunks"] == 12, "the chunk's size on the command line goes before the policy's own"
    if POLICIES[policy].bounded:
        assert layer["visual_tokens"] < 192
        assert min(layer["share_per_chunk"]) < 1.0
    else:
        assert layer["share_per_chunk"] == [1.0] * 12
    held = [paid for paid in layer["attention_by_age"] if paid is not None]
    assert 0 < sum(held) < 1
    assert layer["prompt"]


def test_watching_stops_where_it_is_told(clip: Path, tmp_path: Path) -> None:
    record = memory(clip, tmp_path / "a.png", "--at", 7, "--budget", 60, "--no-attention")
    assert record["stream_seconds"] == pytest.approx(7.25, abs=0.3)
    assert record["layers"][0]["attention_by_age"] is None


def test_questions_take_the_chunks_size_too(clip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["ask", str(clip), "what is there now ?", "--at", "9", "--chunk-frames", "4", "--json"]
    app(command, standalone_mode=False)
    record = json.loads(capsys.readouterr().out)
    assert record["chunks"] == record["frames"] // 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{missing}",), "does not exist"),
        (("{clip}", "--policy", "nope"), "There is no policy 'nope'"),
        (("{clip}", "--out", "{file}/a.png"), "could not be written"),
        (("{clip}", "--out", "{folder}/taken.png"), "it is a folder"),
        (("{clip}", "--out", "{folder}/a.jpg"), "does not end in .png"),
        (("{clip}", "--at", "-1"), "0 seconds or later"),
        (("{clip}", "--at", "2", "--policy", "hermes", "--budget", "100"), "before the first chunk of 16"),
        (("{clip}", "--chunk-frames", "0"), "multiple of 2 frames, not 0"),
        (("{clip}", "--budget", "7"), "the least that works is"),
        (("{clip}", "-o", "window"), "NAME=VALUE"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: tuple[str, ...],
    words: str,
    clip: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "taken.png").mkdir()
    monkeypatch.chdir(tmp_path)
    filled = [
        part.replace("{clip}", str(clip))
        .replace("{missing}", str(tmp_path / "missing.mp4"))
        .replace("{file}", str(tmp_path / "file"))
        .replace("{folder}", str(tmp_path))
        for part in arguments
    ]
    monkeypatch.setattr(sys, "argv", ["longtake", "memory", *filled])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert not (tmp_path / "memory.png").exists()
    assert not (tmp_path / "memory.json").exists()
