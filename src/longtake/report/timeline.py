"""Which moments of a stream are still held, as numbers and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from longtake.report.canvas import GRID, INK, PAPER, clock, draw_strip, save, ticks
from longtake.report.holdings import held_shares
from longtake.session import Session

WIDTH, MARGIN, STRIP, GAP, LABEL = 1200, 28, 54, 22, 190
OVERHANG, SPACING = 100, 18
"""Pixels for slanted labels above and beside the strips, and between two of them."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened: shown above the strips."""

    start: float
    end: float
    label: str
    colour: tuple[int, int, int]


def held_share(session: Session) -> NDArray[np.float64]:
    """For each chunk of the stream so far, the share of its visual tokens still held, mean over layers: [chunks]."""
    mean: NDArray[np.float64] = held_shares(session).mean(axis=0)
    return mean


def draw_timeline(
    strips: Mapping[str, NDArray[np.float64]],
    seconds: float,
    path: str | PathLike[str],
    marks: Sequence[Mark] = (),
    title: str = "",
) -> Path:
    """Save a PNG: time across, one strip per name, darker where more of a moment's tokens are held.

    Args:
        strips: name (a second line after a newline is allowed) to shares [chunks], 0 to 1.
        seconds: length of the stream.
        marks: moments worth naming, drawn above the strips.

    Raises:
        LongtakeError: when the file cannot be written.
    """
    left, right = MARGIN + LABEL, WIDTH - MARGIN - (OVERHANG if marks else 0)
    top = MARGIN + 34 + (OVERHANG if marks else 0)
    height = top + len(strips) * (STRIP + GAP) + 34
    image = Image.new("RGB", (WIDTH, height), PAPER)
    pen = ImageDraw.Draw(image)
    font, bold = ImageFont.load_default(14), ImageFont.load_default(17)
    pen.text((MARGIN, MARGIN - 8), title, INK, bold)

    def across(time: float) -> float:
        return left + (right - left) * min(max(time / seconds, 0.0), 1.0)

    bottom = top + len(strips) * (STRIP + GAP) - GAP
    _draw_marks(image, [(across((mark.start + mark.end) / 2), mark) for mark in marks], top, bottom)
    for row, (name, shares) in enumerate(strips.items()):
        y = top + row * (STRIP + GAP)
        pen.multiline_text((MARGIN, y + 8), name, INK, font, spacing=4)
        draw_strip(image, shares, (left, y, right, y + STRIP))
    for tick in ticks(seconds):
        x = across(tick)
        pen.line((x, bottom + 3, x, bottom + 9), INK, 1)
        pen.text((x, bottom + 11), clock(tick), INK, font, anchor="ma")
    return save(image, path)


def _draw_marks(image: Image.Image, marks: Sequence[tuple[float, Mark]], top: int, bottom: int) -> None:
    """For each (x, mark) a line down the strips, a square above them, and a label that keeps clear of the last."""
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(14)
    free = 0.0
    for x, mark in sorted(marks, key=lambda pair: pair[0]):
        pen.line((x, top - 14, x, bottom), GRID, 1)
        pen.rectangle((x - 4, top - 14, x + 4, top - 5), mark.colour, INK)
        foot = max(x, free)
        free = foot + SPACING
        pen.line((x, top - 14, foot, top - 24), GRID, 1)
        word = Image.new("RGBA", (round(font.getlength(mark.label)) + 4, 20), (255, 255, 255, 0))
        ImageDraw.Draw(word).text((0, 0), mark.label, INK, font)
        turned = word.rotate(45, expand=True, resample=Image.Resampling.BICUBIC)
        image.paste(turned, (round(foot) - 8, top - 18 - turned.height), turned)
