"""Broken files, things that are no video, and the file's closing."""

import os
import random
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import av
import pytest

import longtake.video.reader as reader_module
from clips import cut, number_of, overwrite, packets, write_sound, write_video
from longtake.errors import LongtakeError
from longtake.video import read_video

FAST_START = {"movflags": "faststart"}
FRAGMENTS = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}


class Spied:
    """A container that counts its closings and can be told to misbehave."""

    def __init__(self, container: Any, breaks_after: int | None = None, overshoots: int = 0) -> None:
        self._container = container
        self.closed = 0
        self.demuxed = 0
        self._breaks_after = breaks_after
        self._overshoots = overshoots

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)

    def close(self) -> None:
        self.closed += 1
        self._container.close()

    def demux(self, stream: Any) -> Iterator[Any]:
        self.demuxed += 1
        assert self.demuxed < 1000, "demuxing is tried without end"
        if self._breaks_after is None:
            yield from self._container.demux(stream)
            return
        if self.demuxed == 1:
            yield from islice(self._container.demux(stream), self._breaks_after)
        raise av.error.InvalidDataError(-1094995529, "Invalid data found when processing input")

    def seek(self, offset: int, **options: Any) -> None:
        self._container.seek(offset + self._overshoots, backward=not self._overshoots, **options)


@pytest.fixture
def spies(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Wraps each file that a reader opens; `spies.how` is passed on to Spied."""
    original = reader_module.open_video

    class Spies(list[Spied]):
        how: dict[str, int] = {}  # noqa: RUF012

    opened = Spies()

    def open_spied(path: Any) -> Any:
        container, stream = original(path)
        opened.append(Spied(container, **opened.how))
        return opened[-1], stream

    monkeypatch.setattr(reader_module, "open_video", open_spied)
    return opened


def refusal(path: Path) -> str:
    """The sentence with which a path is refused."""
    with pytest.raises(LongtakeError) as refused:
        list(read_video(path))
    sentence = str(refused.value)
    assert path.name in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "none.mp4")
    assert "does not exist" in refusal(Path("http://localhost/none.mp4"))


def test_a_directory_is_told(tmp_path: Path) -> None:
    assert "directory" in refusal(tmp_path)


def test_an_empty_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.touch()
    assert "empty" in refusal(path)


@pytest.mark.parametrize("name", ["notes.txt", "notes.mp4", "notes.nfo", "notes", "list.m3u8"])
def test_a_text_file_is_told(tmp_path: Path, name: str) -> None:
    """Fault seen to fail: FFmpeg's rendering of .txt and .nfo files let through as video."""
    path = tmp_path / name
    path.write_text("#EXTM3U\nfirst line of the notes\nsecond line of the notes\n" * 20)
    assert "video" in refusal(path)


def test_random_bytes_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(random.Random(0).randbytes(20_000))
    assert "video" in refusal(path)


def test_a_pipe_is_told_instead_of_waited_for(tmp_path: Path) -> None:
    """Fault seen to fail (by waiting for ever): no check for a regular file."""
    path = tmp_path / "pipe.mp4"
    os.mkfifo(path)
    assert "not a regular file" in refusal(path)


def test_a_file_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal is the system's own error, raised by hand: root may read everything."""
    path = write_video(tmp_path / "a.mp4", 2)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(av, "open", refuse)
    assert "permissions" in refusal(path)


def test_a_path_that_no_system_call_takes_is_told() -> None:
    with pytest.raises(LongtakeError, match="check the path"):
        read_video("a\0.mp4")
    with pytest.raises(LongtakeError, match="check the path"):
        read_video("a" * 5000)


@pytest.mark.parametrize(("name", "codec"), [("a.m4a", "aac"), ("a.wav", "pcm_s16le"), ("a.mp3", "libmp3lame")])
def test_sound_without_a_picture_is_told(tmp_path: Path, name: str, codec: str) -> None:
    assert "only audio" in refusal(write_sound(tmp_path / name, codec))


@pytest.mark.parametrize(("name", "codec"), [("a.mp3", "libmp3lame"), ("a.mp4", "aac")])
def test_a_cover_picture_is_no_video(tmp_path: Path, name: str, codec: str) -> None:
    """Fault seen to fail: attached pictures counted as video tracks."""
    assert "cover picture" in refusal(write_sound(tmp_path / name, codec, cover=True))


def test_a_video_without_one_good_frame_is_told(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", 12)
    overwrite(path, packets(path))
    assert "No frame of" in refusal(path)


@pytest.mark.parametrize(
    ("name", "options"),
    [("a.mp4", FAST_START), ("b.mp4", FRAGMENTS), ("a.mkv", {}), ("a.ts", {}), ("a.avi", {})],
)
def test_a_truncated_file_gives_what_it_has(tmp_path: Path, name: str, options: dict[str, str]) -> None:
    path = write_video(tmp_path / name, 72, container_options=options, options={"g": "6"})
    cut(path, 0.6)
    read = [(round(frame.time, 6), number_of(frame)) for frame in read_video(path)]
    assert 20 < len(read) < 72
    # The last frame may be half a picture, and AVI counts the frames of its own last packets.
    assert read[:-3] == [(number / 25, number % 24) for number in range(len(read) - 3)]


def test_a_file_cut_before_its_index_is_told(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", 48)
    cut(path, 0.6)
    assert "not a readable video file" in refusal(path)


@pytest.mark.parametrize(("name", "options"), [("a.mp4", FAST_START), ("b.mp4", {}), ("a.avi", {})])
def test_broken_packets_are_counted_and_the_rest_is_read(tmp_path: Path, name: str, options: dict[str, str]) -> None:
    """Faults seen to fail: the reading ended at the first decode error; errors not counted."""
    path = write_video(tmp_path / name, 72, container_options=options, options={"g": "6"})
    overwrite(path, packets(path)[24:30])
    reader = read_video(path)
    read = [(round(frame.time, 6), number_of(frame)) for frame in reader]
    good = [(number / 25, number % 24) for number in range(72)]
    assert reader.decode_errors >= 1
    assert read[:18] == good[:18]
    if name != "a.avi":
        assert read[-30:] == good[-30:]
    assert len(read) >= 60


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.ts", "a.avi"])
@pytest.mark.parametrize("seed", range(4))
def test_noise_in_a_file_neither_hangs_nor_breaks_the_order(tmp_path: Path, name: str, seed: int) -> None:
    """Whatever the noise hits: frames in order of time, or one sentence."""
    path = write_video(tmp_path / name, 48, container_options=FAST_START if name == "a.mp4" else {})
    data = bytearray(path.read_bytes())
    dice = random.Random(seed)
    for _ in range(6):
        at = dice.randrange(len(data) // 8, len(data) - 40)
        data[at : at + 40] = dice.randbytes(40)
    path.write_bytes(data)
    try:
        times = [frame.time for frame in read_video(path)]
    except LongtakeError:
        return
    assert all(earlier < later for earlier, later in pairwise(times))
    assert len(times) <= 48 * 2


def test_a_frame_that_cannot_be_converted_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault seen to fail: PyAV's error let through."""
    original = reader_module.upright_image

    def fails_once(picture: av.VideoFrame) -> Any:
        if picture.pts == 0:
            raise av.error.InvalidDataError(-1094995529, "Invalid data found when processing input")
        return original(picture)

    monkeypatch.setattr(reader_module, "upright_image", fails_once)
    reader = read_video(write_video(tmp_path / "a.mp4", 4))
    assert [number_of(frame) for frame in reader] == [1, 2, 3]
    assert reader.decode_errors == 1


def test_a_file_that_cannot_be_read_on_is_given_up(tmp_path: Path, spies: Any) -> None:
    """Faults seen to fail: no bound on the tries; the decoder's last frames not asked for."""
    spies.how = {"breaks_after": 9}
    reader = read_video(write_video(tmp_path / "a.mp4", 24))
    assert [number_of(frame) for frame in reader] == list(range(9))
    assert reader.decode_errors == 16


def test_a_seek_that_lands_too_late_is_not_trusted(tmp_path: Path, spies: Any) -> None:
    """Fault seen to fail: wherever the seek lands taken as good, which lost the frames from 3 to 5 s."""
    path = write_video(tmp_path / "a.mp4", 200)
    spies.how = {"overshoots": 2 * 12800}
    reader = read_video(path, start=3.0)
    assert [round(frame.time, 6) for frame in reader] == [number / 25 for number in range(75, 200)]
    assert reader.frames_decoded == 200
    assert [spy.closed > 0 for spy in spies] == [True, True]


def test_the_file_is_closed_at_the_end(tmp_path: Path, spies: Any) -> None:
    list(read_video(write_video(tmp_path / "a.mp4", 3)))
    assert spies[0].closed


def test_the_file_is_closed_when_the_caller_stops_early(tmp_path: Path, spies: Any) -> None:
    """Fault seen to fail: closing after the loop instead of in `finally`."""
    for _ in read_video(write_video(tmp_path / "a.mp4", 30)):
        break
    assert spies[0].closed


def test_the_file_is_closed_when_the_caller_fails(tmp_path: Path, spies: Any) -> None:
    def fail_midway(path: Path) -> None:
        with read_video(path) as reader:
            for _ in reader:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_midway(write_video(tmp_path / "a.mp4", 30))
    assert spies[0].closed


def test_the_file_is_closed_when_it_holds_no_frame(tmp_path: Path, spies: Any) -> None:
    path = write_video(tmp_path / "a.mp4", 3)
    overwrite(path, packets(path))
    refusal(path)
    assert spies[0].closed


def test_the_file_is_closed_when_it_is_opened_but_not_read(tmp_path: Path, spies: Any) -> None:
    with read_video(write_video(tmp_path / "a.mp4", 3)):
        pass
    assert spies[0].closed


def test_a_reader_closed_midway_ends_its_iteration(tmp_path: Path) -> None:
    """Fault seen to fail (by a crash of the process): the file read on after its closing."""
    reader = read_video(write_video(tmp_path / "a.mp4", 60))
    frames = iter(reader)
    assert next(frames).time == 0.0
    reader.close()
    assert len(list(frames)) < 50


def test_a_reader_closed_before_its_first_frame_does_not_seek(tmp_path: Path) -> None:
    """Fault seen to fail: the seek tried on the closed file."""
    reader = read_video(write_video(tmp_path / "a.mp4", 60), start=2.2)
    frames = iter(reader)
    reader.close()
    assert list(frames) == []


def test_a_reader_reads_once(tmp_path: Path) -> None:
    reader = read_video(write_video(tmp_path / "a.mp4", 3))
    assert len(list(reader)) == 3
    with pytest.raises(LongtakeError, match="open it again"):
        list(reader)
