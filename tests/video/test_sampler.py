import math
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtake.errors import LongtakeError
from longtake.video import Sampler

rates = st.floats(0.05, 120)
starts = st.floats(0, 10_000)


def taken(fps: float, times: list[float]) -> list[float]:
    sampler = Sampler(fps)
    return [time for time in times if sampler.takes(time)]


def test_the_first_frame_to_reach_a_due_moment_is_taken() -> None:
    """Fault seen to fail: every n-th frame taken by its index."""
    assert taken(2, [0.0, 0.3, 0.49, 0.55, 0.9, 1.02, 1.1, 1.4, 1.6]) == [0.0, 0.55, 1.02, 1.6]


def test_a_gap_is_not_followed_by_a_burst() -> None:
    """Fault seen to fail: the due moment moved on by 1 / fps only, so 5.1 to 5.4 were all taken."""
    times = [0.0, 0.5, 5.0, 5.1, 5.2, 5.3, 5.4, 5.5, 6.0]
    assert taken(2, times) == [0.0, 0.5, 5.0, 5.5, 6.0]


@pytest.mark.parametrize("rate", [24, 25, 30, 50, 60])
def test_times_rounded_to_milliseconds_lose_no_frame(rate: int) -> None:
    """Fault seen to fail: no tolerance, which loses a third of the frames of a 30 fps Matroska file."""
    times = [round(number / rate, 3) for number in range(10 * rate)]
    assert taken(rate, times) == times


def test_a_regular_source_is_thinned_to_the_rate() -> None:
    times = [number / 30 for number in range(30 * 60)]
    assert len(taken(4, times)) == 240
    assert len(taken(29.97, times)) == pytest.approx(29.97 * 60, abs=2)


def test_a_stream_may_start_at_any_time() -> None:
    assert taken(1, [7.3, 7.9, 8.0, 8.5, 9.0]) == [7.3, 8.0, 9.0]


@given(fps=rates, start=starts, steps=st.lists(st.floats(1e-4, 3), max_size=60))
def test_no_span_of_time_holds_more_than_the_rate_allows(fps: float, start: float, steps: list[float]) -> None:
    """Fault seen to fail: the due moment moved on by 1 / fps only."""
    times = list(accumulate(steps, initial=start))
    chosen = taken(fps, times)
    assert chosen[0] == start
    assert all(earlier < later for earlier, later in pairwise(chosen))
    for first, opening in enumerate(chosen):
        for last in range(first, len(chosen)):
            assert last - first + 1 < (chosen[last] - opening) * fps + 2.25 + 1e-6


@given(fps=rates, start=starts, waits=st.lists(st.floats(1.0, 5.0), max_size=60))
def test_a_source_slower_than_the_rate_loses_no_frame(fps: float, start: float, waits: list[float]) -> None:
    """Fault seen to fail: the next due moment rounded up from the frame's time, a moment too late."""
    times = list(accumulate((wait / fps for wait in waits), initial=start))
    assert taken(fps, times) == times


@pytest.mark.parametrize("fps", [0, -1, math.nan, math.inf])
def test_a_rate_that_is_no_rate_is_refused(fps: float) -> None:
    with pytest.raises(LongtakeError, match="frames per second"):
        Sampler(fps)


def test_a_time_that_is_no_time_is_refused_and_changes_nothing() -> None:
    sampler = Sampler(1)
    with pytest.raises(LongtakeError, match="finite"):
        sampler.takes(math.nan)
    assert sampler.takes(0.0)
