import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtake.errors import LongtakeError
from longtake.video import Chunk, Chunker, Frame

IMAGE = np.zeros((4, 6, 3), np.uint8)


def frame(time: float, image: Any = IMAGE) -> Frame:
    return Frame(time, image)


@given(size=st.integers(1, 7), times=st.lists(st.floats(-10, 1e6), unique=True, max_size=40).map(sorted))
def test_chunks_and_pending_frames_are_the_frames_pushed(size: int, times: list[float]) -> None:
    """Fault seen to fail: the frame that completes a chunk also kept as pending."""
    frames = [frame(time) for time in times]
    chunker = Chunker(size)
    chunks = [chunk for one in frames if (chunk := chunker.push(one)) is not None]
    assert [one for chunk in chunks for one in chunk.frames] + list(chunker.pending) == frames
    assert all(len(chunk.frames) == size for chunk in chunks)
    assert len(chunker.pending) < size
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))


def test_a_chunk_spans_its_first_to_its_last_frame() -> None:
    chunk = Chunk((frame(1.5), frame(2.0), frame(2.5)), index=3)
    assert (chunk.start, chunk.end, chunk.index) == (1.5, 2.5, 3)


@pytest.mark.parametrize(
    "bad",
    [
        frame(1.0),
        frame(0.5),
        frame(math.nan),
        frame(math.inf),
        frame(2.0, IMAGE.astype(np.float32)),
        frame(2.0, IMAGE[..., 0]),
        frame(2.0, IMAGE.transpose(2, 0, 1)),
        frame(2.0, np.zeros((0, 6, 3), np.uint8)),
        frame(2.0, IMAGE.tolist()),
    ],
    ids=["same time", "back", "nan", "inf", "float", "grey", "channels first", "no pixels", "list"],
)
def test_a_bad_frame_is_refused_and_changes_nothing(bad: Frame) -> None:
    """Fault seen to fail: the time noted before the image is checked, so 1.5 s then came too late."""
    chunker = Chunker(3)
    first = frame(1.0)
    chunker.push(first)
    with pytest.raises(LongtakeError) as refusal:
        chunker.push(bad)
    assert str(refusal.value).endswith(".")
    assert "\n" not in str(refusal.value)
    assert chunker.pending == (first,)
    second, third = frame(1.5), frame(1.75)
    assert chunker.push(second) is None
    assert chunker.push(third) == Chunk((first, second, third), 0)


def test_time_must_go_on_from_one_chunk_to_the_next() -> None:
    """Fault seen to fail: only pending frames compared, so a new chunk could start in the past."""
    chunker = Chunker(1)
    chunker.push(frame(1.0))
    with pytest.raises(LongtakeError, match="order of time"):
        chunker.push(frame(0.5))


@pytest.mark.parametrize("size", [0, -2, 1.5, True, "2", math.nan])
def test_a_chunk_size_that_is_no_count_is_refused(size: Any) -> None:
    with pytest.raises(LongtakeError, match="frames"):
        Chunker(size)
