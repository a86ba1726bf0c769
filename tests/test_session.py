"""The session's own rules: frames, questions, streams of text, threads and errors."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from clips import write_video
from longtake.backbones.backbone import Backbone
from longtake.engine import Engine
from longtake.errors import LongtakeError
from longtake.session import Session
from models import QUESTION, noise, one_shot, random_backbone


def fresh(policy: str = "full", budget: int | None = None, **more: object) -> Session:
    return Engine(random_backbone()).open(policy, budget, **more)  # type: ignore[arg-type]


def push(session: Session, count: int, first: int = 0) -> Session:
    for i, frame in enumerate(noise(first + count, seed=60)[first:], first):
        session.push(frame, i * 0.5)
    return session


def test_greedy_answers_equal_the_librarys_generate(backbone: Backbone) -> None:
    """Seen to fail with a decoded token that does not advance the cursor."""
    session = push(Engine(backbone).open("full"), 9)
    answer = session.ask(QUESTION, max_new_tokens=8)
    model, inputs = one_shot(backbone, noise(9, seed=60), [i * 0.5 for i in range(9)], QUESTION)
    ids = model.generate(**inputs, max_new_tokens=8, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    assert answer.text == backbone.words(ids.tolist()).strip()
    assert answer.tokens == len(ids)


def test_an_answer_says_what_it_rests_on() -> None:
    session = push(fresh("deltas", 60), 21)
    answer = session.ask(QUESTION, max_new_tokens=3)
    assert (answer.question, answer.stream_time, answer.frames, answer.chunks) == (QUESTION, 10.0, 21, 10)
    assert answer.tokens_held == 60
    assert answer.tokens_seen == session.memory.seen
    assert answer.tokens_evicted == answer.tokens_seen - 60
    assert answer.kv_bytes == session.memory.kv_bytes
    assert answer.state_bytes == session.memory.state_bytes > 0
    assert (answer.policy, answer.budget) == ("deltas", 60)
    assert 0 < answer.ttft <= answer.duration
    assert answer.tokens <= 3
    assert answer.as_dict()["text"] == answer.text


def test_streamed_pieces_add_up_to_the_answer() -> None:
    session = push(fresh(), 8)
    with session.stream(QUESTION, max_new_tokens=5) as stream:
        pieces = list(stream)
    assert "".join(pieces).strip() == stream.answer.text == session.ask(QUESTION, max_new_tokens=5).text


def test_an_unread_answer_is_no_answer() -> None:
    stream = push(fresh(), 4).stream(QUESTION)
    with pytest.raises(RuntimeError, match="not complete"):
        _ = stream.answer


def test_a_stream_that_breaks_off_frees_the_session_and_leaves_no_trace() -> None:
    session = push(fresh(), 8)
    expected = session.logits(QUESTION)
    stream = session.stream(QUESTION, max_new_tokens=9)
    next(iter(stream))
    with pytest.raises(LongtakeError, match="still being read"):
        session.push(noise(1)[0], 99.0)
    with pytest.raises(LongtakeError, match="still being read"):
        session.ask(QUESTION)
    stream.close()
    stream.close()
    assert torch.equal(session.logits(QUESTION), expected)
    push(session, 1, first=8)


def test_a_stream_that_is_never_read_holds_nothing_up() -> None:
    session = push(fresh(), 4)
    session.stream(QUESTION)
    push(session, 1, first=4)


def test_another_thread_waits_until_the_answer_is_read() -> None:
    session = push(fresh(), 4)
    stream = session.stream(QUESTION, max_new_tokens=4)
    reading = iter(stream)
    next(reading)
    pusher = threading.Thread(target=push, args=(session, 2, 4))
    pusher.start()
    pusher.join(0.2)
    assert pusher.is_alive()
    assert session.frames == 4
    list(reading)
    pusher.join(30)
    assert session.frames == 6


def test_two_threads_can_push_and_ask_at_will() -> None:
    engine = Engine(random_backbone())
    sessions = [engine.open("deltas", 60) for _ in range(2)]
    failures: list[BaseException] = []

    def run(session: Session) -> None:
        try:
            for i, frame in enumerate(noise(12, seed=61)):
                session.push(frame, i * 0.5)
                session.ask(QUESTION, max_new_tokens=2)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(session,)) for session in sessions for _ in range(1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert torch.equal(sessions[0].logits(QUESTION), sessions[1].logits(QUESTION))


@pytest.mark.parametrize(
    ("image", "time", "words"),
    [
        (np.zeros((8, 8), np.uint8), 9.0, "uint8 with the shape"),
        (np.zeros((8, 8, 3), np.float32), 9.0, "uint8 with the shape"),
        (np.zeros((0, 8, 3), np.uint8), 9.0, "uint8 with the shape"),
        (np.zeros((8, 8, 3), np.uint8), 1.0, "in order of time"),
        (np.zeros((8, 8, 3), np.uint8), float("nan"), "finite"),
    ],
)
def test_a_frame_that_cannot_be_used_is_refused_and_nothing_is_lost(image: np.ndarray, time: float, words: str) -> None:
    session = push(fresh(), 5)
    with pytest.raises(LongtakeError, match=words):
        session.push(image, time)
    assert session.frames == 5
    undisturbed = push(fresh(), 9)
    assert torch.equal(push(session, 4, first=5).logits(QUESTION), undisturbed.logits(QUESTION))


def test_a_budget_too_small_is_told_at_the_first_chunk_with_the_least_that_works() -> None:
    session = fresh("deltas", 5)
    session.push(noise(1)[0], 0.0)
    with pytest.raises(LongtakeError, match="the least that works is") as caught:
        session.push(noise(1)[0], 0.5)
    assert session.frames == 1
    least = int(str(caught.value).rstrip(".").split()[-1])
    push(fresh("deltas", least), 30).ask(QUESTION, max_new_tokens=1)
    with pytest.raises(LongtakeError, match=f"least that works is {least}"):
        push(fresh("deltas", least - 1), 2)


@pytest.mark.parametrize(
    ("question", "words"), [("", "empty"), ("  \n", "empty"), ("what <|im_end|> now ?", "control token")]
)
def test_a_question_that_cannot_be_asked_is_refused(question: str, words: str) -> None:
    session = push(fresh(), 4)
    for call in (session.ask, session.stream, session.logits):
        with pytest.raises(LongtakeError, match=words):
            call(question)


def test_nothing_can_be_asked_before_the_first_frame() -> None:
    session = fresh()
    for call in (session.ask, session.logits):
        with pytest.raises(LongtakeError, match="Nothing has been watched"):
            call(QUESTION)
    push(session, 1)
    session.ask(QUESTION, max_new_tokens=1)


def test_an_answer_ends_at_its_limit() -> None:
    session = push(fresh(), 4)
    answer = session.ask(QUESTION, max_new_tokens=2)
    assert (answer.tokens, answer.finish_reason) == (2, "length") or answer.finish_reason == "stop"
    with pytest.raises(LongtakeError, match="at least one"):
        session.ask(QUESTION, max_new_tokens=0)


def test_a_closed_session_takes_nothing_more() -> None:
    with push(fresh(), 4) as session:
        pass
    session.close()
    for call in (lambda: session.push(noise(1)[0], 50.0), lambda: session.ask(QUESTION)):
        with pytest.raises(LongtakeError, match="closed"):
            call()
    assert session.memory.kv_bytes == 0


def test_pictures_of_pil_are_frames_too() -> None:
    arrays, pictures = fresh(), fresh()
    for i, frame in enumerate(noise(6, seed=62)):
        arrays.push(frame, i * 0.5)
        pictures.push(Image.fromarray(frame), i * 0.5)
    assert torch.equal(arrays.logits(QUESTION), pictures.logits(QUESTION))


def test_frames_may_change_their_size_on_the_way() -> None:
    session = push(fresh(), 4)
    session.push(noise(1, size=(90, 33))[0], 2.0)
    session.push(noise(1, size=(17, 200))[0], 2.5)
    sizes = np.bincount(session.memory.ledger["chunk"][session.memory.ledger["chunk"] >= 0].numpy())
    assert len(set(sizes.tolist())) == 1


def test_a_model_without_recurrent_states_is_told_to_take_another_policy(full_attention: Backbone) -> None:
    with pytest.raises(LongtakeError, match="recurrent states"):
        Engine(full_attention).open("deltas")
    session = push(Engine(full_attention).open("recency", 60), 30)
    assert session.memory.state_bytes == 0
    assert session.ask(QUESTION, max_new_tokens=2).tokens_held == 60


@pytest.mark.parametrize(
    ("options", "words"),
    [({"chunk_frames": 3}, "multiple of 2"), ({"chunk_frames": -2}, "multiple of 2"), ({"fps": 0.0}, "positive"),
     ({"fps": float("nan")}, "positive")],
)  # fmt: skip
def test_settings_without_sense_are_refused(options: dict[str, float], words: str) -> None:
    with pytest.raises(LongtakeError, match=words):
        fresh(**options)


# Watching files -------------------------------------------------------------------------------------------


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """Six seconds at 10 frames per second."""
    return write_video(tmp_path / "clip.mp4", 60, rate=10)


def test_watching_a_file_is_pushing_its_sampled_frames(clip: Path) -> None:
    from longtake.video import read_video

    watched, by_hand = fresh(), fresh()
    watched.watch(clip)
    for frame in read_video(clip, 2.0):
        by_hand.push(frame.image, frame.time)
    assert watched.frames == by_hand.frames == 12
    assert torch.equal(watched.logits(QUESTION), by_hand.logits(QUESTION))


def test_questions_are_asked_when_the_stream_reaches_their_time(clip: Path) -> None:
    session, seen = fresh("deltas", 60), []
    times: list[float | None] = [4.0, None, 0.0, 99.0, 2.2]
    answers = session.watch(clip, [(at, QUESTION) for at in times], on_answer=seen.append, max_new_tokens=2)
    assert [answer.stream_time for answer in answers] == pytest.approx([0.0, 2.0, 4.0, 5.5, 5.5], abs=0.06)
    assert seen == answers
    for at, answer in zip((0.0, 2.2, 4.0), answers, strict=False):
        alone = fresh("deltas", 60)
        from longtake.video import read_video

        for frame in read_video(clip, 2.0, until=at):
            alone.push(frame.image, frame.time)
        assert alone.ask(QUESTION, max_new_tokens=2).text == answer.text
    assert session.watch_seconds > 0


def test_a_second_file_continues_the_stream(clip: Path) -> None:
    session = fresh()
    session.watch(clip)
    end = session.time
    answers = session.watch(clip, [(1.0, QUESTION)], max_new_tokens=1)
    assert answers[0].stream_time == pytest.approx(end + 0.5 + 1.0)
    assert session.frames == 24


def test_a_bad_question_is_told_before_anything_is_watched(clip: Path) -> None:
    session = fresh()
    for questions in ([(1.0, "")], [(-1.0, QUESTION)], [(float("nan"), QUESTION)]):
        with pytest.raises(LongtakeError):
            session.watch(clip, questions)
    assert session.frames == 0


# The frame size --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "tokens"), [({}, 2), ({"frame_pixels": 512}, 2), ({"frame_tokens": 1}, 1), ({"frame_tokens": 400}, 2)]
)
def test_the_frame_size_is_chosen_once_from_a_budget_of_pixels_or_tokens(options: dict[str, int], tokens: int) -> None:
    """The random model's checkpoint takes at most 32x32 pixels, in tokens of 16x16: two for a frame twice as wide."""
    session = fresh(**options)
    assert session.frame_size is None
    for i, frame in enumerate(noise(8, size=(64, 128))):
        session.push(frame, i * 0.5)
    assert session.visual_tokens == tokens
    assert session.frame_size is not None
    assert session.frame_size[0] * session.frame_size[1] == tokens * 256
    chunk = session.memory.ledger["chunk"]
    patch = session.memory.ledger["patch"]
    assert [int((patch[chunk == c] >= 0).sum()) for c in range(4)] == [tokens] * 4


@pytest.mark.parametrize(
    ("options", "words"),
    [({"frame_pixels": 255}, "256 pixels or more"), ({"frame_tokens": 0}, "256 pixels or more"),
     ({"frame_tokens": 3, "frame_pixels": 999}, "not both")],
)  # fmt: skip
def test_a_frame_size_without_sense_is_refused(options: dict[str, int], words: str) -> None:
    with pytest.raises(LongtakeError, match=words):
        fresh(**options)
