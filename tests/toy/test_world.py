"""The world: the same from the same seed, and true to its own account."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import LongtakeError
from longtake.toy import Event, World
from longtake.toy.shapes import COLOURS, SHAPES
from longtake.toy.world import KINDS

worlds = st.builds(
    lambda seed, seconds, share: World(seed, seconds, int(share * (seconds - 1) / 2)),
    st.integers(0, 2**40),
    st.integers(8, 300),
    st.floats(0, 1),
)


def test_the_same_seed_gives_the_same_world() -> None:
    first, second, other = World(3, 60), World(3, 60), World(4, 60)
    assert first.events == second.events
    assert first.events != other.events
    assert np.array_equal(first.frame(12.25), second.frame(12.25))
    assert not np.array_equal(first.frame(12.25), other.frame(12.25))
    assert first.questions(40) == second.questions(40)


def test_frames_do_not_depend_on_the_order_of_asking() -> None:
    world = World(3, 60)
    later = world.frame(50.0)
    world.frame(1.0)
    assert np.array_equal(world.frame(50.0), later)


def test_a_frame_is_a_canvas_of_bytes() -> None:
    frame = World(0, 10).frame(0.0)
    assert (frame.shape, frame.dtype) == ((128, 128, 3), np.uint8)


def test_a_week_costs_nothing_until_looked_at() -> None:
    world = World(0, 7 * 24 * 3600)
    assert world.events[-1].end <= world.seconds
    assert world.frame(500_000.5).any()


@settings(max_examples=60, deadline=None)
@given(worlds)
def test_events_are_apart_inside_and_between_one_and_three_seconds(world: World) -> None:
    ends = [0.0, *(event.end for event in world.events)]
    for before, event in zip(ends, world.events, strict=False):
        assert event.start - before >= 0.998
        assert 0.998 <= event.end - event.start <= 3.002
        assert event.end <= world.seconds


@settings(max_examples=60, deadline=None)
@given(worlds)
def test_an_object_keeps_its_colour_and_comes_back_only_after_all_were_seen(world: World) -> None:
    colours = {event.shape: event.colour for event in world.events}
    assert all(colours[event.shape] == event.colour for event in world.events)
    first = [event.shape for event in world.events[: len(SHAPES)]]
    assert len(set(first)) == len(first)


@settings(max_examples=60, deadline=None)
@given(worlds, st.floats(0.05, 1))
def test_answers_follow_from_the_events(world: World, share: float) -> None:
    at = world.seconds * share
    past = [event for event in world.events if event.start < at]
    for question in world.questions(at):
        assert question.ask_time == at
        assert all(0 <= moment <= at for moment in question.evidence)
        named = [word for word in question.text.split() if word in SHAPES]
        shown = [event for event in past if named and event.shape == named[0]]
        if question.kind == "colour":
            assert {event.colour for event in shown} == {question.answer}
        elif question.kind == "seen":
            assert question.answer == ("yes" if shown else "no")
        elif question.kind == "first":
            assert question.answer == (past[0].shape if past else "nothing")
        elif question.kind == "last":
            assert question.answer == (past[-1].shape if past else "nothing")
        else:
            seen = {world.visible(moment) for moment in np.linspace(max(at - 0.999, 0), at - 0.001, 9)}
            assert {event.shape if event else "nothing" for event in seen} == {question.answer}
        if question.answer not in ("no", "nothing"):
            visible = [world.visible(moment) for moment in question.evidence]
            assert visible
            assert all(event and question.answer in (event.shape, event.colour, "yes") for event in visible)


@settings(max_examples=40, deadline=None)
@given(worlds)
def test_seen_is_balanced(world: World) -> None:
    answers = [question.answer for question in world.questions(world.seconds, ["seen"])]
    assert answers.count("yes") == answers.count("no")


def test_kinds_can_be_chosen() -> None:
    world = World(5, 120)
    assert {question.kind for question in world.questions(120)} == set(KINDS)
    assert {question.kind for question in world.questions(120, ["first"])} == {"first"}
    with pytest.raises(LongtakeError, match="count"):
        world.questions(120, ["count"])


def test_a_shape_shows_its_colour() -> None:
    for seed in range(20):
        world = World(seed, 30, 3)
        for event in world.events:
            with_shape, without = world.clean_frame(event), world.clean_frame(None)
            changed = (with_shape != without).any(axis=2)
            assert 400 < changed.sum() < 8000
            assert np.allclose(with_shape[changed], COLOURS[event.colour])


def test_bad_requests_are_told_in_a_sentence() -> None:
    with pytest.raises(LongtakeError, match="do not fit"):
        World(0, 10, 9)
    with pytest.raises(LongtakeError, match="length"):
        World(0, 0)
    with pytest.raises(LongtakeError, match="0 or more"):
        World(0, 10, -1)


def test_a_tight_stream_still_fits() -> None:
    events: tuple[Event, ...] = World(0, 9, 4).events
    assert len(events) == 4
