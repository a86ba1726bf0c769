"""The command line as a user meets it: real processes, real files."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clips import write_sound, write_video
from commands import longtake, spawned
from longtake.cli import app
from longtake.policies.registry import POLICIES, make_policy
from longtake.toy import World, render

KEYS = {
    "question", "answer", "stream_time", "policy", "budget", "frames", "chunks", "tokens_held", "tokens_seen",
    "tokens_evicted", "kv_bytes", "state_bytes", "ttft_ms", "watch_s",
}  # fmt: skip
POSITIONS = {"reindex": "off"}
CLIPS = sorted((Path(__file__).parents[1] / "../shared/clips").resolve().glob("*.[am][vp][i4]"))


@pytest.fixture(scope="module")
def world() -> World:
    return World(6, 40.0)


@pytest.fixture(scope="module")
def clip(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render(world, tmp_path_factory.mktemp("clip") / "world.mp4")


def test_questions_are_answered_in_one_pass_at_their_times(clip: Path, world: World) -> None:
    questions = [q for at in (20.0, 40.0) for q in world.questions(at, ("colour", "first"))]
    words = [part for q in questions for part in ("--at", q.ask_time)]
    run = spawned("ask", clip, *(q.text for q in questions), *words, "--json")
    assert run.returncode == 0, run.stderr
    records = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(records) == len(questions) > 3
    for record, question in zip(records, questions, strict=True):
        assert set(record) >= KEYS
        assert record["question"] == question.text
        assert record["stream_time"] == pytest.approx(min(question.ask_time, 39.5), abs=0.3)
        assert record["policy_options"] == {**POSITIONS, "sinks": 4, "window": 1024, "spans": 4}
    right = [r["answer"] == q.answer for r, q in zip(records, questions, strict=True)]
    assert sum(right) >= len(right) - 1


def test_an_answer_in_words_shows_the_settings_that_ran(clip: Path) -> None:
    run = longtake("ask", clip, "what was shown first ?", "--budget", 80)
    assert run.returncode == 0, run.stderr
    assert "policy deltas: budget 80, reindex off, sinks 4, window 10, spans 4" in run.stdout
    assert "what was shown first ?" in run.stdout
    assert "80 of" in run.stdout
    assert "mean nothing" in run.stderr
    assert "\x1b" not in run.stdout + run.stderr, "no colours and no bar in a pipe"


def test_a_time_past_the_end_is_answered_at_the_end_and_said_so(clip: Path) -> None:
    run = longtake("ask", clip, "what is there now ?", "--at", 500)
    assert "past the end of the video" in run.stdout
    record = json.loads(longtake("ask", clip, "what is there now ?", "--at", 500, "--json").stdout)
    assert record["past_end"] is True
    assert record["stream_time"] == pytest.approx(39.5, abs=0.3)


def test_hyperparameters_are_options(clip: Path) -> None:
    run = longtake("ask", clip, "what is there now ?", "--budget", 90, "-o", "window=40", "-o", "spans=2", "--json")
    assert json.loads(run.stdout)["policy_options"] == {**POSITIONS, "sinks": 4, "window": 40, "spans": 2}


def test_a_budget_that_full_does_not_use_is_said(clip: Path) -> None:
    run = longtake("ask", clip, "what is there now ?", "--policy", "full", "--budget", 100)
    assert run.returncode == 0
    assert "--budget 100 is not used" in run.stdout


def test_bad_input_ends_a_process_with_code_2(tmp_path: Path) -> None:
    run = spawned("ask", tmp_path / "missing.mp4", "q ?")
    assert (run.returncode, run.stdout) == (2, "")
    assert "does not exist" in run.stderr
    assert "Traceback" not in run.stderr


def test_policies_are_listed_with_one_line_each() -> None:
    run = longtake("policies")
    assert [line.split()[0] for line in run.stdout.splitlines()] == list(POLICIES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{missing}", "q ?"), "does not exist"),
        (("{folder}", "q ?"), "is a directory"),
        (("{text}", "q ?"), "not"),
        (("{sound}", "q ?"), "only audio"),
        (
            ("{clip}", "q ?", "--policy", "nope"),
            "there are deltas, hermes, hermes-llava, hermes-qwen, landmarks, full, recency, uniform, random, scored",
        ),
        (("{clip}", "q ?", "--model", "nope"), "give 'toy'"),
        (("{clip}", "q ?", "--budget", 7), "the least that works is"),
        (("{clip}", "q ?", "--budget", 0), "positive number of tokens"),
        (("{clip}", "q ?", "--option", "window"), "NAME=VALUE"),
        (("{clip}", "q ?", "--option", "width=3"), "it has compaction, margin, reindex, sinks, spans, window"),
        (("{clip}", " "), "question is empty"),
        (("{clip}", "q ?", "r ?", "s ?", "--at", 1, "--at", 2), "3 questions and 2 times"),
        (("{clip}", "q ?", "--at", -1), "0 seconds or later"),
        (("{clip}", "q ?", "--fps", 0), "above 0"),
        (("{clip}", "q ?", "--max-new-tokens", 0), "at least one new token"),
        (("{clip}",), "Missing argument"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: tuple[object, ...], words: str, clip: Path, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("no video here\n" * 50)
    places = {
        "{missing}": tmp_path / "missing.mp4",
        "{folder}": tmp_path,
        "{text}": tmp_path / "notes.txt",
        "{sound}": write_sound(tmp_path / "a.wav", "pcm_s16le"),
        "{clip}": clip,
    }
    run = longtake("ask", *(places.get(str(a), a) for a in arguments))
    assert run.returncode == 2
    assert words in run.stderr
    assert "Traceback" not in run.stderr
    assert run.stdout.count("\n") <= 1, "at most the settings were printed"


def test_the_least_budget_named_in_the_message_works(clip: Path) -> None:
    message = longtake("ask", clip, "what is there now ?", "--budget", 7).stderr
    least = int(message.rstrip().rstrip(".").split()[-1])
    run = longtake("ask", clip, "what is there now ?", "--budget", least, "--json")
    assert json.loads(run.stdout)["tokens_held"] <= least


def test_an_interrupt_ends_without_a_traceback(tmp_path: Path) -> None:
    video = render(World(6, 900.0), tmp_path / "long.mp4")
    process = subprocess.Popen(
        [sys.executable, "-m", "longtake", "ask", str(video), "what is there now ?", "--at", "2", "--at", "890",
         "what is there now ?", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # What runs in the background of a script has interrupts switched off, and its children with it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(first)["stream_time"] == pytest.approx(2.0, abs=0.5), "what was answered stays answered"
    assert rest == ""
    assert "Interrupted" in errors
    assert "Traceback" not in errors


def test_a_terminal_gets_a_progress_bar(clip: Path) -> None:
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "longtake", "ask", str(clip), "what is there now ?", "--json"],
        stdout=subprocess.PIPE, stderr=follower, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(follower)
    shown, end = b"", time.monotonic() + 90
    while time.monotonic() < end:
        if select.select([leader], [], [], 0.2)[0]:
            try:
                shown += os.read(leader, 65536)
            except OSError:
                break
        elif process.poll() is not None:
            break
    out, _ = process.communicate(timeout=60)
    os.close(leader)
    assert b"watching" in shown
    assert json.loads(out)["answer"]


@pytest.mark.slow
@pytest.mark.parametrize("clip", CLIPS, ids=lambda p: p.name)
@pytest.mark.parametrize("policy", POLICIES)
def test_real_clips_go_through_every_policy_within_the_budget(
    clip: Path, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The toy's words about these mean nothing; that they are said, and from how much, is what counts."""
    for budget in (60, 300, 8192):
        command = ["ask", clip, "what is there now ?", "what was shown first ?", "--policy", policy]
        settings = ["--budget", str(budget), "--chunk-frames", "2", "--at", "3", "--json"]
        app([*map(str, command), *settings], standalone_mode=False)
        # HERMES has the prompt's opening, three tokens here, on top of its budget.
        (most,) = make_policy(policy, budget).held_at_most(3, 1) or [0]
        records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert len(records) == 2
        for record in records:
            assert record["frames"] > 3
            if policy != "full":
                assert record["tokens_held"] <= most
                assert record["kv_bytes"] <= most * 512


def test_a_generated_camera_file_goes_through(tmp_path: Path) -> None:
    """An odd size, another codec and container, and no clip from elsewhere needed."""
    video = write_video(tmp_path / "camera.avi", 80, codec="mpeg4", size=(98, 66), rate=10)
    run = longtake("ask", video, "what is there now ?", "--json", "--budget", 60)
    assert run.returncode == 0, run.stderr


def test_model_families_are_listed() -> None:
    from longtake.backbones.load import FAMILIES

    run = longtake("models")
    assert run.returncode == 0, run.stderr
    for family in FAMILIES:
        assert family.family in run.stdout
        assert all(kind in run.stdout for kind in family.model_types)
    assert "real weights" in run.stdout, "what was not verified is said"


def test_the_frame_size_is_chosen_and_reported(clip: Path) -> None:
    run = longtake("ask", clip, "what is there now ?", "--frame-tokens", 1, "--json")
    record = json.loads(run.stdout)
    assert (record["frame_size"], record["visual_tokens"]) == ([16, 16], 1)
    assert record["kernels"] == {"gated delta rule": "torch reference", "causal convolution": "torch reference"}
    run = longtake("ask", clip, "what is there now ?")
    assert "frames of 32x32 pixels, 4 visual tokens per temporal step; float32" in run.stdout
