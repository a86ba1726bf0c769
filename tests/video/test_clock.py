import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtake.video import Clock

STEP = Fraction(1, 25)
stamps = st.none() | st.fractions(-(10**6), 10**6, max_denominator=90000) | st.integers(-3, 3).map(Fraction)


def times(stamps: list[float | None], interval: Fraction | None = STEP) -> tuple[list[float], int]:
    clock = Clock(interval)
    read = [clock.read(None if stamp is None else Fraction(str(stamp))) for stamp in stamps]
    return read, clock.repaired


def test_good_stamps_are_kept_less_the_first() -> None:
    assert times([1.4, 1.44, 1.5, 9.0]) == ([0.0, 0.04, 0.1, 7.6], 0)


def test_a_missing_stamp_is_one_interval_later() -> None:
    assert times([0, None, None, 0.12]) == ([0.0, 0.04, 0.08, 0.12], 2)


def test_stamps_that_begin_late_do_not_jump() -> None:
    """Fault seen to fail: the first stamp taken as it is, so the time leapt to 5 s."""
    assert times([None, None, 5.0, 5.04]) == ([0.0, 0.04, 0.08, 0.12], 2)


def test_after_a_doubled_stamp_the_good_ones_count_again() -> None:
    """Fault seen to fail: a whole interval instead of half of one, which moves every later frame."""
    assert times([0, 0.04, 0.04, 0.08, 0.12]) == ([0.0, 0.04, 0.06, 0.08, 0.12], 1)


def test_a_restarted_timeline_goes_on_at_its_own_pace() -> None:
    """Fault seen to fail: no new origin, so half an interval was given to each of the frames after it."""
    assert times([0, 30, 60, 0, 0.5, 1.0]) == ([0.0, 30.0, 60.0, 60.04, 60.54, 61.04], 1)


def test_one_stamp_astray_does_not_move_those_after_it() -> None:
    """Fault seen to fail: the old origin forgotten, so 60.1 s became 120.04 s."""
    assert times([0, 60, 0, 60.1, 60.2]) == ([0.0, 60.0, 60.04, 60.1, 60.2], 1)


def test_without_a_rate_the_last_good_interval_is_used() -> None:
    assert times([0, 0.5, None], interval=None) == ([0.0, 0.5, 1.0], 1)


def test_a_given_origin_is_time_zero() -> None:
    assert Clock(STEP, origin=Fraction(10)).read(Fraction(12)) == 2.0


@pytest.mark.parametrize("interval", [None, STEP])
@given(stamps=st.lists(stamps, min_size=2, max_size=30))
def test_times_strictly_increase_whatever_the_stamps(interval: Fraction | None, stamps: list[Fraction | None]) -> None:
    """Fault seen to fail: stamps believed whatever they are (and no step to the next float)."""
    clock = Clock(interval)
    read = [clock.read(stamp) for stamp in stamps]
    assert all(earlier < later for earlier, later in itertools.pairwise(read))


def test_times_increase_even_where_floats_are_coarse() -> None:
    """Fault seen to fail: without the step to the next float, both times are 2e18."""
    clock = Clock(STEP)
    clock.read(Fraction(0))
    huge = clock.read(Fraction(2 * 10**18))
    assert clock.read(None) > huge
