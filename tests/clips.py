"""Small video files, made on the spot. Frame i is one flat grey, so that it can be told in any codec."""

import struct
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
from av.stream import Disposition

from longtake.video import Frame

SHADES = 24
STEP = 10  # grey levels between neighbouring shades: far more than any codec here is off
X264 = {"preset": "ultrafast", "g": "12", "threads": "1"}


def require_encoder(codec: str) -> None:
    """Fails where PyAV was built without the encoder: its wheels have them all."""
    av.codec.Codec(codec, "w")


def grey(number: int, width: int, height: int) -> npt.NDArray[np.uint8]:
    return np.full((height, width, 3), 10 + STEP * (number % SHADES), np.uint8)


def number_of(frame: Frame) -> int:
    """The number (mod SHADES) of a frame that `grey` drew."""
    return round((float(frame.image.mean()) - 10) / STEP)


def quarters(width: int = 96, height: int = 64) -> npt.NDArray[np.uint8]:
    """Red and green above, blue and white below: no turn and no mirror leaves it as it is."""
    image = np.zeros((height, width, 3), np.uint8)
    image[: height // 2, : width // 2] = (255, 0, 0)
    image[: height // 2, width // 2 :] = (0, 255, 0)
    image[height // 2 :, : width // 2] = (0, 0, 255)
    image[height // 2 :, width // 2 :] = (255, 255, 255)
    return image


def write_video(
    path: Path,
    frames: int = 24,
    *,
    codec: str = "libx264",
    size: tuple[int, int] = (96, 64),
    pix_fmt: str = "yuv420p",
    rate: int = 25,
    ticks: Sequence[int] | None = None,
    tick: Fraction | None = None,
    options: dict[str, str] | None = None,
    container_options: dict[str, str] | None = None,
    image: npt.NDArray[np.uint8] | None = None,
) -> Path:
    """Write `frames` frames at `rate`, or one at each of `ticks` (in units of `tick` seconds)."""
    require_encoder(codec)
    stamps = list(range(frames)) if ticks is None else list(ticks)
    unit = tick or Fraction(1, rate)
    with av.open(str(path), "w", options=container_options or {}) as container:
        stream = container.add_stream(codec, rate=rate, options=X264 if codec == "libx264" else {})
        if options:
            stream.options = {**stream.options, **options}
        stream.width, stream.height = size
        stream.pix_fmt = pix_fmt
        stream.codec_context.time_base = unit
        for number, stamp in enumerate(stamps):
            picture = av.VideoFrame.from_ndarray(grey(number, *size) if image is None else image, format="rgb24")
            picture.pts, picture.time_base = stamp, unit
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    return path


def write_sound(path: Path, codec: str, *, cover: bool = False, video: bool = False) -> Path:
    """Half a second of silence, on request with a large cover picture before it and a real video after it."""
    require_encoder(codec)
    with av.open(str(path), "w") as container:
        picture = None
        if cover:
            picture = container.add_stream("mjpeg", rate=1)
            picture.width, picture.height, picture.pix_fmt = 320, 240, "yuvj420p"
            picture.disposition = Disposition.attached_pic.value  # PyAV 15 takes numbers only
        sound = container.add_stream(codec, rate=44100)
        film = None
        if video:
            film = container.add_stream("libx264", rate=25, options=X264)
            film.width, film.height, film.pix_fmt = 96, 64, "yuv420p"
        if picture is not None:
            still = av.VideoFrame.from_ndarray(grey(0, 320, 240), format="rgb24").reformat(format="yuvj420p")
            still.pts, still.time_base = 0, Fraction(1)
            container.mux(picture.encode(still))
            container.mux(picture.encode(None))
        silence = av.AudioFrame(format="s16", layout="stereo", samples=22050)
        silence.planes[0].update(bytes(silence.planes[0].buffer_size))
        silence.sample_rate, silence.pts = 44100, 0
        resampler = av.AudioResampler(sound.format, sound.layout, 44100, frame_size=sound.frame_size or None)
        for block in [*resampler.resample(silence), *resampler.resample(None)]:
            container.mux(sound.encode(block))
        container.mux(sound.encode(None))
        if film is not None:
            for number in range(12):
                shown = av.VideoFrame.from_ndarray(grey(number, 96, 64), format="rgb24")
                shown.pts, shown.time_base = number, Fraction(1, 25)
                container.mux(film.encode(shown))
            container.mux(film.encode(None))
    return path


def set_matrix(path: Path, a: int, b: int, c: int, d: int) -> None:
    """Write the turn into an MP4's track header: the standard sends (x, y) to (a x + c y, b x + d y)."""
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 44  # past the name, version, dates, id, duration, layer, group and volume
    one = 1 << 16
    data[at : at + 36] = struct.pack(">9i", a * one, b * one, 0, c * one, d * one, 0, 0, 0, 1 << 30)
    path.write_bytes(data)


def packets(path: Path) -> list[tuple[int, int]]:
    """Position and size in bytes of each video packet."""
    with av.open(str(path)) as container:
        return [(packet.pos or 0, packet.size) for packet in container.demux(video=0) if packet.size]


def overwrite(path: Path, spans: Sequence[tuple[int, int]], value: int = 0xFF) -> None:
    """Overwrite each (position, size) with one byte value."""
    data = bytearray(path.read_bytes())
    for position, size in spans:
        data[position : position + size] = bytes([value]) * size
    path.write_bytes(data)


def cut(path: Path, share: float) -> None:
    """Keep only the first part of a file."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
