"""Rendered files: what the truth says is there can be seen after the codec."""

import json
from pathlib import Path

import av
import numpy as np
import pytest

from longtake.errors import LongtakeError
from longtake.toy import World, render
from longtake.toy.shapes import COLOURS


def test_shapes_survive_the_codec(tmp_path: Path) -> None:
    world = World(7, 24, 6)
    path = render(world, tmp_path / "world.mp4", fps=4)
    with av.open(str(path)) as container:
        assert container.streams.video[0].codec_context.name == "h264"
        frames = [(float(frame.time), frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
    assert [time for time, _ in frames] == pytest.approx([index / 4 for index in range(96)])
    for event in world.events:
        shape = (world.clean_frame(event) != world.clean_frame(None)).any(axis=2)
        decoded = next(frame for time, frame in frames if event.start <= time < event.end)
        distance = {
            name: float(np.linalg.norm(np.median(decoded[shape], axis=0) - rgb)) for name, rgb in COLOURS.items()
        }
        assert min(distance, key=lambda name: distance[name]) == event.colour


def test_the_truth_lies_beside_the_video(tmp_path: Path) -> None:
    world = World(8, 20, 3)
    path = render(world, tmp_path / "deep" / "w.mp4")
    truth = json.loads(path.with_suffix(".json").read_text())
    assert (truth["seed"], truth["seconds"], truth["fps"]) == (8, 20.0, 4)
    assert [event["shape"] for event in truth["events"]] == [event.shape for event in world.events]
    assert len(truth["questions"]) == len(world.questions(20))
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["w.json", "w.mp4"]


def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: World, time: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(World, "frame", interrupted)
    with pytest.raises(KeyboardInterrupt):
        render(World(0, 8), tmp_path / "w.mp4")
    assert list(tmp_path.iterdir()) == []


def test_bad_targets_are_told_in_a_sentence(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(LongtakeError, match="could not be written"):
        render(World(0, 8), blocked / "w.mp4")
    with pytest.raises(LongtakeError, match="mp4"):
        render(World(0, 8), tmp_path / "w.json")
    with pytest.raises(LongtakeError, match="frame per second"):
        render(World(0, 8), tmp_path / "w.mp4", fps=0)
