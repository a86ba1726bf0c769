"""The picture of what is held."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from longtake.engine import Engine
from longtake.errors import LongtakeError
from longtake.report.timeline import EMPTY, HELD, Mark, draw_timeline, held_share
from models import noise, random_backbone


def test_shares_tell_which_chunks_are_held() -> None:
    session = Engine(random_backbone()).open("recency", 60)
    for i, frame in enumerate(noise(60, seed=70)):
        session.push(frame, i * 0.5)
    shares = held_share(session)
    assert len(shares) == session.chunks == 30
    ledger = session.memory.ledger
    assert {c for c in range(30) if shares[c] > 0} == set(ledger["chunk"][ledger["patch"] >= 0].tolist())
    assert shares[-1] > 0.8


def test_a_stream_that_forgot_nothing_is_whole_everywhere() -> None:
    """Seen to fail when timestamps count: their length grows with the time."""
    session = Engine(random_backbone()).open("full")
    for i, frame in enumerate(noise(24, seed=71)):
        session.push(frame, i * 100.0)
    assert held_share(session).tolist() == [1.0] * 12


@given(st.integers(1, 5000), st.data())
def test_a_lone_chunk_is_seen_however_long_the_stream(chunks: int, data: st.DataObject) -> None:
    """Seen to fail when columns show the last instead of the fullest of their chunks."""
    lone = data.draw(st.integers(0, chunks - 1))
    shares = np.zeros(chunks)
    shares[lone] = 1.0
    from longtake.report.timeline import _draw_strip

    image = Image.new("RGB", (700, 10))
    _draw_strip(image, shares, (0, 0, 700, 10))
    row = np.asarray(image)[5]
    dark = np.flatnonzero((row == HELD).all(axis=1))
    assert len(dark) >= 1
    assert abs(dark.mean() - (lone + 0.5) * 700 / chunks) <= 1.5 + 350 / chunks
    assert ((row == HELD).all(axis=1) | (row == EMPTY).all(axis=1)).all()


def test_a_picture_of_any_stream_can_be_drawn(tmp_path: Path) -> None:
    marks = [Mark(1.0, 2.0, "red circle", (255, 0, 0)), Mark(1.5, 2.5, "blue star", (0, 0, 255))]
    path = draw_timeline({"a": np.zeros(0), "b": np.ones(3)}, 3.0, tmp_path / "new" / "a.png", marks, "title")
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert (np.asarray(image) == (255, 0, 0)).all(axis=2).any(), "the mark bears its colour"


def test_a_picture_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LongtakeError, match="could not be written"):
        draw_timeline({"a": np.ones(1)}, 1.0, tmp_path / "file" / "a.png")
