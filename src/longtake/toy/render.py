"""A world as a video file, with its ground truth beside it."""

import json
import os
from contextlib import suppress
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import av

from longtake.errors import LongtakeError
from longtake.toy.scenery import CANVAS
from longtake.toy.world import World


def render(world: World, path: Path, fps: int = 4) -> Path:
    """Write `world` as an H.264 file at `path` and its truth as JSON at the same path with suffix `.json`.

    Frame k shows the world at k / fps seconds. Frames are encoded as they are made, so memory does not grow. Both
    files appear under their names only when complete, the truth first.
    """
    path = Path(path)
    if fps < 1:
        raise LongtakeError(f"A video needs at least 1 frame per second, not {fps}.")
    truth = path.with_suffix(".json")
    if truth == path:
        raise LongtakeError("The video cannot end in .json, because the truth is written there: use .mp4.")
    video_part, truth_part = (p.with_name(f".{p.stem}.part-{os.getpid()}{p.suffix}") for p in (path, truth))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _encode(world, video_part, fps)
        truth_part.write_text(json.dumps(_truth(world, path.name, fps), indent=1) + "\n", encoding="utf-8")
        truth_part.replace(truth)
        video_part.replace(path)
    except (OSError, av.FFmpegError) as error:
        raise LongtakeError(f"The toy video {path} could not be written: {error}.") from error
    finally:
        for part in (video_part, truth_part):
            with suppress(OSError):
                part.unlink()
    return path


def _encode(world: World, path: Path, fps: int) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=fps, options={"preset": "veryfast", "crf": "24"})
        stream.width = stream.height = CANVAS
        stream.pix_fmt = "yuv420p"
        stream.time_base = Fraction(1, fps)
        for index in range(max(1, round(world.seconds * fps))):
            frame = av.VideoFrame.from_ndarray(world.frame(index / fps), format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, fps)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def _truth(world: World, name: str, fps: int) -> dict[str, Any]:
    return {
        "video": name,
        "seed": world.seed,
        "seconds": world.seconds,
        "fps": fps,
        "events": [asdict(event) for event in world.events],
        "questions": [asdict(question) for question in world.questions(world.seconds)],
    }
