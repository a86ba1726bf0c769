"""Sound files: which frames come out, when, and which way up."""

import weakref
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longtake.video.reader as reader_module
from clips import SHADES, number_of, packets, quarters, set_matrix, write_sound, write_video
from longtake.errors import LongtakeError
from longtake.video import read_video

REAL = sorted((Path(__file__).parents[2] / "../shared/clips").glob("*.[am][vp][i4]"))


def seen(path: Path, **options: Any) -> list[tuple[float, int]]:
    """Time (to the microsecond) and number of each frame that is read."""
    return [(round(frame.time, 6), number_of(frame)) for frame in read_video(path, **options)]


def at_25_fps(frames: int) -> list[tuple[float, int]]:
    return [(number / 25, number % SHADES) for number in range(frames)]


@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("h264.mp4", "libx264", {}),
        ("h264-b-frames.mp4", "libx264", {"preset": "medium", "bf": "3"}),
        ("h264.mkv", "libx264", {}),
        ("h264.ts", "libx264", {}),
        ("h264-b-frames.avi", "libx264", {"preset": "medium", "bf": "3"}),
        ("h264-without-stamps.h264", "libx264", {}),
        ("mpeg4.avi", "mpeg4", {"q": "2"}),
        ("mpeg4-b-frames.avi", "mpeg4", {"bf": "2"}),
        ("mjpeg.avi", "mjpeg", {}),
        ("ffv1.mkv", "ffv1", {}),
        ("vp9.webm", "libvpx-vp9", {"deadline": "realtime", "cpu-used": "8"}),
        ("hevc.mp4", "libx265", {"preset": "ultrafast", "x265-params": "log-level=none:pools=1"}),
        ("av1.mp4", "libsvtav1", {"preset": "12", "svtav1-params": "lp=1"}),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value else "",
)
def test_every_frame_comes_once_in_order_at_its_time(
    tmp_path: Path, name: str, codec: str, options: dict[str, str]
) -> None:
    """Faults seen to fail: the decoder not flushed at the end; AVI times taken from pts (see reader)."""
    pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
    path = write_video(tmp_path / name, 12, codec=codec, options=options, pix_fmt=pix_fmt)
    reader = read_video(path)
    assert [(round(frame.time, 6), number_of(frame)) for frame in reader] == at_25_fps(12)
    assert (reader.frames_decoded, reader.decode_errors) == (12, 0)
    assert (reader.width, reader.height, reader.source_fps) == (96, 64, 25.0)


def test_frames_are_contiguous_rgb_bytes(tmp_path: Path) -> None:
    image = next(iter(read_video(write_video(tmp_path / "a.mp4", 2, image=quarters())))).image
    assert (image.dtype, image.shape, image.flags.c_contiguous) == (np.uint8, (64, 96, 3), True)
    assert np.abs(image.astype(int) - quarters()).mean() < 8


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv"])
def test_an_irregular_source_keeps_its_own_times(tmp_path: Path, name: str) -> None:
    """Fault seen to fail: times counted as index / frame rate."""
    ticks = [0, 33, 40, 200, 1000, 1001, 1500, 4000]
    path = write_video(tmp_path / name, ticks=ticks, tick=Fraction(1, 1000))
    assert seen(path) == [(tick / 1000, number) for number, tick in enumerate(ticks)]


def test_an_irregular_source_is_sampled_by_time(tmp_path: Path) -> None:
    ticks = [0, 100, 200, 300, 2000, 2100, 2900, 3050, 3100]
    path = write_video(tmp_path / "a.mkv", ticks=ticks, tick=Fraction(1, 1000))
    assert seen(path, fps=1) == [(0.0, 0), (2.0, 4), (3.05, 7)]


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.ts"])
def test_a_source_that_starts_late_starts_at_zero(tmp_path: Path, name: str) -> None:
    """Fault seen to fail: the first stamp not taken off."""
    path = write_video(tmp_path / name, ticks=range(250, 262), tick=Fraction(1, 25))
    assert [time for time, _ in seen(path)] == [number / 25 for number in range(12)]


def test_doubled_stamps_in_a_file_are_repaired_and_counted(tmp_path: Path) -> None:
    """Fault seen to fail: stamps used as they are."""
    path = write_video(tmp_path / "a.mkv", 6, codec="mjpeg", pix_fmt="yuvj420p")
    data = bytearray(path.read_bytes())
    third = packets(path)[2][0]
    at = data.index((80).to_bytes(2, "big"), third)  # a block's time in ms, just before its flags
    data[at : at + 2] = (40).to_bytes(2, "big")
    path.write_bytes(data)
    reader = read_video(path)
    assert [round(frame.time, 6) for frame in reader] == [0.0, 0.04, 0.06, 0.12, 0.16, 0.2]
    assert reader.pts_repaired == 1


def test_files_joined_end_to_end_play_on_in_their_own_sizes(tmp_path: Path) -> None:
    first = write_video(tmp_path / "1.ts", 50)
    second = write_video(tmp_path / "2.ts", 50, size=(64, 48))
    first.write_bytes(first.read_bytes() + second.read_bytes())
    frames = list(read_video(first))
    assert [frame.image.shape for frame in frames] == [(64, 96, 3)] * 50 + [(48, 64, 3)] * 50
    assert [round(frame.time, 6) for frame in frames] == [number / 25 for number in range(100)]


def turned(quarter_turns: int) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    return lambda image: np.rot90(image, quarter_turns)  # counter-clockwise


@pytest.mark.parametrize(
    ("matrix", "meant"),
    [
        ((1, 0, 0, 1), turned(0)),
        ((0, 1, -1, 0), turned(-1)),
        ((-1, 0, 0, -1), turned(2)),
        ((0, -1, 1, 0), turned(1)),
        ((-1, 0, 0, 1), np.fliplr),
        ((1, 0, 0, -1), np.flipud),
        ((0, 1, 1, 0), lambda image: image.transpose(1, 0, 2)),
    ],
    ids=["as it is", "clockwise", "upside down", "counter-clockwise", "mirrored", "flipped", "transposed"],
)
@pytest.mark.parametrize("codec", ["libx264", "mpeg4"])
def test_pictures_are_upright(
    tmp_path: Path, codec: str, matrix: tuple[int, int, int, int], meant: Callable[[Any], Any]
) -> None:
    """Faults seen to fail: no turn at all; PyAV's `rotation` counted clockwise; mirrors left out."""
    path = write_video(tmp_path / "a.mp4", 3, codec=codec, image=quarters())
    set_matrix(path, *matrix)
    reader = read_video(path)
    expected = meant(quarters())
    for frame in reader:
        assert (reader.height, reader.width) == frame.image.shape[:2] == expected.shape[:2]
        assert frame.image.flags.c_contiguous
        assert np.abs(frame.image.astype(int) - expected).mean() < 8


@pytest.mark.parametrize(
    ("name", "codec", "pix_fmt", "size"),
    [
        ("a.mp4", "libx264", "yuv444p", (129, 67)),
        ("a.avi", "mpeg4", "yuv420p", (129, 67)),
        ("b.avi", "mjpeg", "yuvj420p", (31, 17)),
        ("a.mkv", "ffv1", "yuv420p", (65, 9)),
    ],
)
def test_odd_sizes_are_read(tmp_path: Path, name: str, codec: str, pix_fmt: str, size: tuple[int, int]) -> None:
    path = write_video(tmp_path / name, 4, codec=codec, pix_fmt=pix_fmt, size=size)
    reader = read_video(path)
    assert (reader.width, reader.height) == size
    assert [frame.image.shape for frame in reader] == [(size[1], size[0], 3)] * 4


def test_a_file_of_one_frame_is_a_video(tmp_path: Path) -> None:
    assert seen(write_video(tmp_path / "a.mp4", 1), fps=2) == [(0.0, 0)]


def test_the_film_is_read_and_not_the_cover(tmp_path: Path) -> None:
    """Fault seen to fail: the largest picture track taken, covers included."""
    path = write_sound(tmp_path / "a.mp4", "aac", cover=True, video=True)
    reader = read_video(path)
    assert (reader.width, reader.height) == (96, 64)
    assert [number_of(frame) for frame in reader] == list(range(12))


def test_only_frames_that_are_taken_are_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault seen to fail: the sampler asked after the conversion."""
    converted = []
    original = reader_module.upright_image
    monkeypatch.setattr(
        reader_module, "upright_image", lambda picture: (converted.append(picture.pts), original(picture))[1]
    )
    reader = read_video(write_video(tmp_path / "a.mp4", 60), fps=1)
    assert len(list(reader)) == len(converted) == 3
    assert reader.frames_decoded == 60


def test_no_frame_is_kept_once_the_caller_has_let_go(tmp_path: Path) -> None:
    """Fault seen to fail: the frames that were yielded kept in a list."""
    images: list[weakref.ref[Any]] = []
    most = 0
    for frame in read_video(write_video(tmp_path / "a.mp4", 30)):
        images.append(weakref.ref(frame.image))
        del frame
        most = max(most, sum(image() is not None for image in images))
    assert len(images) == 30
    assert most <= 1


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.ts", "a.avi"])
def test_a_late_start_gives_the_frames_that_reading_on_would_give(tmp_path: Path, name: str) -> None:
    """Fault seen to fail: times after a seek counted from the frame that it landed on."""
    path = write_video(tmp_path / name, 150, options={"bf": "0" if name == "a.avi" else "2"})
    for start in (0.1, 2.0, 3.02, 5.96):
        assert seen(path, start=start) == [one for one in at_25_fps(150) if one[0] >= start]


def test_a_late_start_does_not_decode_all_that_lies_before(tmp_path: Path) -> None:
    """Fault seen to fail: no seek, 200 frames decoded."""
    reader = read_video(write_video(tmp_path / "a.mp4", 200), start=7.0)
    assert len(list(reader)) == 25
    assert reader.frames_decoded < 60


def test_the_reading_stops_after_the_end_that_is_asked_for(tmp_path: Path) -> None:
    """Fault seen to fail: frames after the end skipped, but decoded to the end of the file."""
    path = write_video(tmp_path / "a.mp4", 200)
    reader = read_video(path, until=1.0)
    assert [round(frame.time, 6) for frame in reader] == [number / 25 for number in range(26)]
    assert reader.frames_decoded < 60
    assert seen(path, start=3.0, until=3.0) == [(3.0, 75 % SHADES)]


def test_a_start_after_the_last_frame_is_told(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", 12)
    for start in (1.0, 5.0):
        with pytest.raises(LongtakeError, match=r"a\.mp4 ends before .* earlier start"):
            list(read_video(path, start=start))


@pytest.mark.parametrize(
    "options",
    [{"start": -1.0}, {"start": float("nan")}, {"start": 2.0, "until": 1.0}, {"until": float("nan")}],
)
def test_times_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, float]) -> None:
    path = write_video(tmp_path / "a.mp4", 2)
    with pytest.raises(LongtakeError, match="start"):
        read_video(path, **options)


def test_a_rate_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LongtakeError, match="frames per second"):
        read_video(write_video(tmp_path / "a.mp4", 2), fps=0)


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_real_clips_are_read_as_their_containers_say(path: Path) -> None:
    reader = read_video(path, fps=2, until=4.0)
    frames = list(reader)
    assert reader.source_fps is not None
    assert [frame.time for frame in frames] == pytest.approx(
        [number / 2 for number in range(len(frames))], abs=1 / reader.source_fps
    )
    assert len(frames) in (8, 9)
    assert all(frame.image.shape == (reader.height, reader.width, 3) for frame in frames)
    assert (reader.decode_errors, reader.pts_repaired) == (0, 0)
