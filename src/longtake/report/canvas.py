"""What all pictures share: colours, strips of moments, the ticks of a clock, and saving."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from longtake.errors import LongtakeError

INK, PAPER, EMPTY, HELD, GRID = (38, 44, 52), (255, 255, 255), (238, 240, 243), (24, 95, 165), (205, 209, 215)
FAINTEST = 0.15
"""Depth of colour of the smallest share above none, so that one token of many can still be seen."""

Box = tuple[int, int, int, int]


def draw_strip(
    image: Image.Image, shares: NDArray[np.float64], box: Box, edges: NDArray[np.float64] | None = None
) -> None:
    """A strip that is darker where a chunk's share (0 to 1) is larger.

    Each pixel column shows the fullest of the chunks that fall on it, so that no lone chunk is lost.

    Args:
        edges: [chunks + 1], where chunks begin and the last one ends, 0 to 1 across the box; by default all alike.
    """
    left, top, right, bottom = box
    width = right - left
    columns = np.zeros(width)
    if len(shares):
        places = np.arange(len(shares) + 1) / len(shares) if edges is None else edges
        # A hair to the right, so that 0.3 of 10 pixels is pixel 3 however it was rounded.
        pixels = np.clip((places * width + 1e-6).astype(int), 0, width)
        first = np.minimum(pixels[:-1], width - 1)
        last = np.maximum(pixels[1:], first + 1)
        for share, start, end in zip(shares, first, last, strict=True):
            columns[start:end] = np.maximum(columns[start:end], share)
    depth = np.where(columns > 0, FAINTEST + (1 - FAINTEST) * columns, 0.0)
    shade = np.array(EMPTY) + (np.array(HELD) - np.array(EMPTY)) * depth[:, None]
    block = np.broadcast_to(shade.round().astype(np.uint8), (bottom - top, width, 3))
    image.paste(Image.fromarray(np.ascontiguousarray(block)), (left, top))


def ticks(seconds: float, most: int = 12) -> list[float]:
    """Round times from 0 to `seconds`, about `most` of them at the most."""
    steps: Sequence[float] = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
    step = next((s for s in steps if seconds / s <= most), seconds / 10)
    return [k * step for k in range(int(seconds / step) + 1)]


def clock(seconds: float) -> str:
    """Minutes and seconds, from an hour on with hours."""
    whole = round(seconds)
    return (
        f"{whole // 60}:{whole % 60:02d}"
        if whole < 3600
        else f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    )


def require_writable(path: str | PathLike[str]) -> None:
    """Make the file's folder and see that something can be written there; the file itself is not touched.

    Raises:
        LongtakeError: when it cannot.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise LongtakeError(f"The file {target} could not be written: {error}.") from error
    if target.is_dir():
        raise LongtakeError(f"The file {target} could not be written: it is a folder.")


def save(image: Image.Image, path: str | PathLike[str]) -> Path:
    """Save as a PNG.

    Raises:
        LongtakeError: when the file cannot be written.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        image.save(target, "PNG")
    except OSError as error:
        raise LongtakeError(f"The picture {target} could not be written: {error}.") from error
    return target
