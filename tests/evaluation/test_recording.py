"""A recording is as good as the frames: whatever watches it holds and answers the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from families import FAMILIES, family_backbone
from longtake.backbones.backbone import Backbone
from longtake.engine import Engine
from longtake.evaluation.recording import Recording
from longtake.session import Session
from longtake.video.frame import Frame
from models import noise

POLICIES = {
    "full": {},
    "deltas": {},
    "recency": {"reindex": "eager"},
    "hermes": {"reindex": "eager"},
}


def frames_of(backbone: Backbone, count: int) -> list[Frame]:
    return [Frame(i / backbone.default_fps, image) for i, image in enumerate(noise(count, seed=5))]


def both(backbone: Backbone, policy: str, budget: int, options: dict[str, str], chunk: int) -> list[Session]:
    """Two sessions that watched the same: the frames, and a recording of them."""
    frames = frames_of(backbone, 24)
    recording = Recording.of(backbone, frames)
    watching = Engine(backbone).open(policy, budget, policy_options=options, chunk_frames=chunk)
    for frame in frames:
        watching.push(frame.image, frame.time)
    replaying = Engine(recording.watched_by()).open(policy, budget, policy_options=options, chunk_frames=chunk)
    recording.push_into(replaying)
    return [watching, replaying]


def assert_alike(watching: Session, replaying: Session) -> None:
    for one, two in zip(watching.memory.ledgers, replaying.memory.ledgers, strict=True):
        for column in ("index", "position", "time", "chunk", "frame", "patch", "kind"):
            assert torch.equal(one[column], two[column]), column
    question = "what colour was the circle ?"
    assert (watching.logits(question) - replaying.logits(question)).abs().max() < 1e-4
    assert watching._cursor == replaying._cursor


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_holds_the_same_of_it(backbone: Backbone, policy: str) -> None:
    assert_alike(*both(backbone, policy, 120, POLICIES[policy], 2))


def test_chunks_may_be_longer_than_what_was_recorded(backbone: Backbone) -> None:
    assert_alike(*both(backbone, "recency", 150, {}, 6))


def test_a_stream_that_is_moved_back_to_zero_is_followed(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtake.retention.REBASE_AT", 50)
    watching, replaying = both(backbone, "recency", 120, {}, 2)
    assert replaying._cursor.position < 60
    assert_alike(watching, replaying)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_recorded(family: str) -> None:
    backbone = family_backbone(family)
    assert_alike(*both(backbone, "recency", 400, {}, backbone.frames_per_step))


def test_a_recording_knows_its_size_and_clock(toy: Backbone, full_attention: Backbone) -> None:
    recording = Recording.of(toy, frames_of(toy, 9))
    with Engine(toy).open("full") as session:
        opening = session.memory.seen
        recording = Recording.of(toy, frames_of(toy, 9))
        replay = Engine(recording.watched_by()).open("full")
        recording.push_into(replay)
        assert replay.memory.seen == opening + recording.tokens
    assert len(recording.times) == 8  # the ninth frame waits for a partner
    assert recording.tells_time
    assert np.allclose(recording.times, [i / 2 for i in range(8)])


def test_sessions_of_one_recording_do_not_see_each_other(toy: Backbone) -> None:
    recording = Recording.of(toy, frames_of(toy, 24))
    alone, first, second = (Engine(recording.watched_by()).open("recency", 90) for _ in range(3))
    recording.push_into(alone)
    for time in recording.times:
        for session in (first, second):
            session.push(np.zeros((1, 1, 3), np.uint8), time)
    assert_alike(alone, first)
    assert_alike(alone, second)
