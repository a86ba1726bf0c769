"""The world: the same from the same seed, and true to its own account."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import LongtakeError
from longtake.toy import Event, World
from longtake.toy.questions import KINDS
from longtake.toy.scenery import BUSY, DISTRACTORS, QUIET, Scenery
from longtake.toy.shapes import CARDS, COLOURS, SHAPES


def worlds_of(*sceneries: Scenery) -> st.SearchStrategy[World]:
    return st.builds(
        lambda seed, seconds, share, scenery: World(seed, seconds, int(share * (seconds - 1) / 2), scenery),
        st.integers(0, 2**40),
        st.integers(8, 300),
        st.floats(0, 1),
        st.sampled_from(sceneries),
    )


worlds = worlds_of(QUIET, BUSY)


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
@given(worlds_of(QUIET))
def test_an_object_keeps_its_colour_and_comes_back_only_after_all_were_seen(world: World) -> None:
    colours = {event.shape: event.colour for event in world.events}
    assert all(colours[event.shape] == event.colour for event in world.events)
    first = [event.shape for event in world.events[: len(SHAPES)]]
    assert len(set(first)) == len(first)


@settings(max_examples=80, deadline=None)
@given(worlds, st.floats(0.05, 1))
def test_answers_follow_from_the_events(world: World, share: float) -> None:
    at = world.seconds * share
    past = [event for event in world.events if event.start < at]
    for question in world.questions(at):
        assert question.ask_time == at
        assert all(0 <= moment <= at for moment in question.evidence)
        seen = [world.visible(moment) for moment in question.evidence]
        named = [word for word in question.text.split() if word in SHAPES]
        shown = [event for event in past if event.shape in named]
        if question.kind == "colour":
            assert {event.colour for event in shown} == {question.answer}
        elif question.kind == "number":
            colour = next(word for word in question.text.split() if word in COLOURS)
            cards = [event for event in past if event.shape in CARDS and event.colour == colour]
            assert {event.shape for event in cards} == {question.answer}
        elif question.kind == "order":
            assert len(shown) == len(set(named)) == 2
            assert shown[0].shape == question.answer
        elif question.kind == "count":
            assert len(shown) == int(question.answer) <= 6
        elif question.kind == "when":
            assert {int(event.start // 60) for event in shown} == {int(event.end // 60) for event in shown}
            assert int(shown[0].start // 60) == int(question.answer)
        elif question.kind == "seen":
            assert question.answer == ("yes" if shown else "no")
        elif question.kind == "first":
            assert question.answer == (past[0].name if past else "nothing")
        elif question.kind == "last":
            assert question.answer == (past[-1].name if past else "nothing")
        else:
            around = {world.visible(moment) for moment in np.linspace(max(at - 0.999, 0), at - 0.001, 9)}
            assert {event.name if event else "nothing" for event in around} == {question.answer}
        if question.kind in ("colour", "count", "order", "when", "seen") and question.answer != "no":
            assert {event.shape for event in seen if event} == set(named)
            assert None not in seen


@settings(max_examples=40, deadline=None)
@given(worlds)
def test_seen_is_balanced(world: World) -> None:
    answers = [question.answer for question in world.questions(world.seconds, ["seen"])]
    assert answers.count("yes") == answers.count("no")


def test_kinds_can_be_chosen() -> None:
    world = World(5, 240, 24, BUSY)
    assert {question.kind for question in world.questions(235)} == set(KINDS)
    assert {question.kind for question in world.questions(120, ["first"])} == {"first"}
    with pytest.raises(LongtakeError, match="size"):
        world.questions(120, ["size"])


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


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**40), st.integers(12, 400))
def test_in_a_busy_world_some_things_come_once_some_a_few_times_and_some_never(seed: int, events: int) -> None:
    world = World(seed, 8.0 * events, events, BUSY)
    shows: dict[tuple[str, str], int] = {}
    for event in world.events:
        key = (event.name, event.colour)
        shows[key] = shows.get(key, 0) + 1
    assert sum(shows.values()) == events
    assert sum(count == 1 for count in shows.values()) >= min(events, 20) * 0.4
    assert len({event.shape for event in world.events if event.shape in SHAPES}) < len(SHAPES)
    if events > 60:
        assert any(2 <= count <= 6 for count in shows.values())
        assert max(shows.values()) > 6


def test_twins_share_colour_place_and_size() -> None:
    events = World(3, 900, 80, Scenery(twins=True)).events
    circle = next(event for event in events if event.shape == "circle")
    ring = next(event for event in events if event.shape == "ring")
    assert (circle.colour, circle.x, circle.y, circle.radius) == (ring.colour, ring.x, ring.y, ring.radius)


@pytest.mark.parametrize("distractor", DISTRACTORS)
def test_a_distractor_changes_pixels_and_no_event(distractor: str) -> None:
    still, disturbed = World(3, 300, 8), World(3, 300, 8, Scenery(distractors=(distractor,)))
    assert still.events == disturbed.events
    moments = np.linspace(0, 299, 40)
    changes = [
        float(np.abs(disturbed.frame(t).astype(int) - still.frame(t)).mean()) for t in moments if not still.visible(t)
    ]
    noise = float(np.abs(still.frame(0.0).astype(int) - still.frame(0.5)).mean())
    assert max(changes) > 1.2 * noise


def test_a_scenery_names_its_distractors() -> None:
    with pytest.raises(LongtakeError, match="fog"):
        Scenery(distractors=("fog",))


def test_a_card_bears_its_digit_in_ink_that_shows() -> None:
    for colour, rgb in COLOURS.items():
        drawn = World(1, 30, 0).clean_frame(Event(0, 1, "7", colour, 64, 64, 38))
        inks = {tuple(pixel) for pixel in drawn[40:90, 40:90].reshape(-1, 3).astype(int).tolist()}
        assert rgb in inks
        assert inks & {(0, 0, 0), (255, 255, 255)} - {rgb}
