"""Opening a video file, or saying in one sentence why it cannot be."""

import os
from pathlib import Path
from typing import Any, cast

import av
from av.container import InputContainer
from av.stream import Disposition
from av.video.stream import VideoStream

from longtake.errors import LongtakeError

# FFmpeg renders text files as pictures with these; nobody who passes a text file means that.
_TEXT_CODECS = frozenset({"ansi", "bintext", "idf", "xbin"})
_NOT_A_VIDEO_TRACK = Disposition.attached_pic | Disposition.timed_thumbnails


def open_video(path: str | os.PathLike[str]) -> tuple[InputContainer, VideoStream]:
    """The opened file and its video stream, set to decode on several threads; the caller closes the file.

    Raises LongtakeError for anything that is not a readable file with a video track.
    """
    file = Path(path)
    _check_file(file)
    try:
        # An absolute path is never read as a URL, and a playlist inside the file cannot reach the network.
        options = {"protocol_whitelist": "file"}
        container = av.open(str(file.absolute()), options=options, metadata_errors="replace")
    except PermissionError as error:
        raise LongtakeError(f"{file} may not be read; check its permissions.") from error
    except (av.FFmpegError, OSError, ValueError) as error:
        raise LongtakeError(f"{file} is not a readable video file; check it or convert it to MP4.") from error
    try:
        stream = _video_stream(container, file)
        stream.thread_type = cast(Any, "AUTO")
    except BaseException:
        container.close()
        raise
    return container, stream


def _check_file(file: Path) -> None:
    try:
        if not file.exists():
            raise LongtakeError(f"{file} does not exist; check the path.")
        if file.is_dir():
            raise LongtakeError(f"{file} is a directory; give the path of one video file.")
        # A pipe or a device would block, or never end.
        if not file.is_file():
            raise LongtakeError(f"{file} is not a regular file; give the path of one video file.")
        if file.stat().st_size == 0:
            raise LongtakeError(f"{file} is empty; copy or download it again.")
    except (OSError, ValueError) as error:
        raise LongtakeError(f"{str(file)!r} cannot be reached ({error}); check the path.") from error


def _video_stream(container: InputContainer, file: Path) -> VideoStream:
    """The main video track: FFmpeg's own choice when it is a real one, else the largest."""
    tracks = [stream for stream in container.streams.video if not stream.disposition & _NOT_A_VIDEO_TRACK]
    if not tracks:
        if container.streams.video:
            raise LongtakeError(f"{file} holds a cover picture but no video; give a file with a video track.")
        if container.streams.audio:
            raise LongtakeError(f"{file} holds only audio; give a file with a video track.")
        raise LongtakeError(f"{file} has no video track; give a file with one.")
    known = [track for track in tracks if track.codec_context is not None]
    if not known:
        raise LongtakeError(f"{file} uses a video codec that is not supported here; convert it to H.264.")
    if all(track.codec_context.name in _TEXT_CODECS for track in known):
        raise LongtakeError(f"{file} is a text file, not a video; give a video file.")
    best = container.streams.best("video")
    for track in known:
        if best is not None and track.index == best.index:
            return track
    return max(known, key=lambda track: track.width * track.height)
