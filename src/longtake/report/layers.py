"""The picture of what each attention layer holds, and of where a guidance prompt looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from os import PathLike
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from longtake.report.canvas import EMPTY, GRID, INK, PAPER, Box, clock, draw_strip, save, ticks
from longtake.report.holdings import Holdings, LayerHolding

WIDTH, MARGIN = 1400, 28
NUMBERS, ROLES = 74, 84
"""Pixels for the layers' numbers and for their roles, left of the strips."""
LOOKS, LARGEST, APART = 324, 64, 58
"""Pixels for the bars of attention, for the figure beside them, and between the strips and them."""
HEAD, FOOT, LINE = 112, 62, 24
ROWS, THINNEST, THICKEST, GAP, BREAK = 420, 18, 56, 4, 8
"""Pixels that all rows share, least and most of one, between two rows, and between two roles on top."""
CROWD = 200
"""Half diamonds side by side, in pixels, from which on a row's diamonds shrink so that the strip still shows."""
FOLDED, PAID, MUTED = (217, 95, 14), (86, 130, 100), (110, 117, 127)


def draw_layers(stock: Holdings, path: str | PathLike[str], title: str = "") -> Path:
    """Save a PNG: time across, one row per attention layer, the lowest at the top.

    Darker where more of a moment's tokens are held; a diamond for each summary token; at the right, where it was
    read, the mean attention that the guidance prompt pays a token, by age.

    Raises:
        LongtakeError: when the file cannot be written.
    """
    looked = any(layer.attention is not None for layer in stock.layers)
    roles = ROLES if any(layer.role for layer in stock.layers) else 0
    left = MARGIN + roles + NUMBERS
    right = WIDTH - MARGIN - (APART + LOOKS + LARGEST if looked else 12)
    rows, bottom = _rows(stock)
    items = list(_legend_items(stock, looked))
    legend = _Legend(bottom + FOOT)
    image = Image.new("RGB", (WIDTH, legend.place(items) + MARGIN - 6), PAPER)
    pen = ImageDraw.Draw(image)
    font = ImageFont.load_default(14)
    pen.text((MARGIN, MARGIN - 8), _shortened(title, 90), INK, ImageFont.load_default(19))
    pen.text((MARGIN, MARGIN + 22), _shortened(_facts(stock), 170), MUTED, font)
    pen.text((left, HEAD - 12), "visual tokens held of each moment", INK, font, anchor="ls")
    for role, group in groupby(zip(stock.layers, rows, strict=True), key=lambda pair: pair[0].role):
        spans = [span for _, span in group]
        if role:
            _draw_bracket(pen, role, spans[0][0], spans[-1][1], left - NUMBERS)
    for layer, (top, end) in zip(stock.layers, rows, strict=True):
        pen.text((left - 10, (top + end) / 2), f"layer {layer.number}", INK, font, anchor="rm")
        _draw_row(image, stock, layer, (left, top, right, end))
        if layer.attention is not None:
            _draw_attention(pen, layer.attention, (right + APART, top, right + APART + LOOKS, end))
    for tick in ticks(stock.seconds, 10 if looked else 12):
        x = left + (right - left) * tick / stock.seconds
        _draw_tick(pen, x, bottom, clock(tick))
    pen.text(((left + right) / 2, bottom + 30), "time in the stream", MUTED, font, anchor="ma")
    if looked:
        start = right + APART
        pen.text((start, HEAD - 12), "attention to a visual token, by age", INK, font, anchor="ls")
        pen.text((start + LOOKS + 8, HEAD - 12), "largest", MUTED, font, anchor="ls")
        for share in (0.0, 0.5, 1.0):
            word = f"-{clock(stock.seconds * share)}" if share else "now"
            _draw_tick(pen, start + LOOKS * share, bottom, word)
        pen.text((start + LOOKS / 2, bottom + 30), "age, from newest to oldest", MUTED, font, anchor="ma")
    legend.draw(image, items)
    return save(image, path)


def _rows(stock: Holdings) -> tuple[list[tuple[int, int]], int]:
    """Top and bottom of each layer's row, and where the last one ends."""
    pitch = min(max(ROWS // len(stock.layers), THINNEST), THICKEST)
    rows: list[tuple[int, int]] = []
    y = HEAD
    for number, layer in enumerate(stock.layers):
        if number and layer.role != stock.layers[number - 1].role:
            y += BREAK
        rows.append((y, y + pitch - GAP))
        y += pitch
    return rows, y - GAP


def _facts(stock: Holdings) -> str:
    """The line under the title: how long, how much, which model."""
    budget = "no budget" if stock.budget is None else f"budget {stock.budget:,} tokens per layer"
    most = max(layer.tokens for layer in stock.layers)
    return f"after {clock(stock.seconds)}; {budget}; {most:,} of {stock.tokens_seen:,} tokens held; model {stock.model}"


def _draw_bracket(pen: ImageDraw.ImageDraw, role: str, top: int, bottom: int, x: int) -> None:
    """The role's name beside a line along its layers."""
    pen.text((x - 12, (top + bottom) / 2), role, INK, ImageFont.load_default(14), anchor="rm")
    pen.line((x - 4, top, x - 4, bottom - 1), INK, 2)


def _draw_tick(pen: ImageDraw.ImageDraw, x: float, bottom: int, word: str) -> None:
    pen.line((x, bottom + 3, x, bottom + 9), INK, 1)
    pen.text((x, bottom + 12), word, INK, ImageFont.load_default(14), anchor="ma")


def _draw_row(image: Image.Image, stock: Holdings, layer: LayerHolding, box: Box) -> None:
    """One layer's strip, what has not come in yet, and its summary tokens."""
    left, top, right, bottom = box
    edges = np.array(stock.edges) / stock.seconds
    end = left + round((right - left) * min(edges[-1], 1.0))
    draw_strip(image, np.array(layer.shares), (left, top, end, bottom), edges / edges[-1])
    pen = ImageDraw.Draw(image)
    if end < right:
        _draw_hatch(pen, (end, top, right, bottom))
    size = min((bottom - top) / 2, 7.0, max(3.0, CROWD / max(len(layer.summaries), 1)))
    for time in layer.summaries:
        _draw_diamond(pen, left + (right - left) * time / stock.seconds, (top + bottom - 1) / 2, size)


def _draw_hatch(pen: ImageDraw.ImageDraw, box: Box) -> None:
    """A paler area with upright lines: frames that came but wait for their chunk to fill."""
    left, top, right, bottom = box
    for x in range(left + 2, right, 5):
        pen.line((x, top, x, bottom - 1), GRID, 1)


def _draw_diamond(pen: ImageDraw.ImageDraw, x: float, y: float, size: float) -> None:
    pen.polygon([(x - size, y), (x, y - size), (x + size, y), (x, y + size)], FOLDED, PAPER)


def _draw_attention(pen: ImageDraw.ImageDraw, attention: tuple[float | None, ...], box: Box) -> None:
    """Bars as high as the layer's largest allows, no ground where no visual token of that age is held."""
    left, top, right, bottom = box
    largest = max((paid for paid in attention if paid is not None), default=0.0)
    width = (right - left) / len(attention)
    for number, paid in enumerate(attention):
        if paid is None:
            continue
        start, end = round(left + number * width), round(left + (number + 1) * width) - 2
        pen.rectangle((start, top, end, bottom - 1), EMPTY)
        if largest > 0 and paid > 0:
            height = max(1, round((bottom - top) * paid / largest))
            pen.rectangle((start, bottom - height, end, bottom - 1), PAID)
    word = f"{largest:.1e}" if largest < 1e-4 else f"{largest:.4f}"
    pen.text((right + 8, (top + bottom) / 2), word, MUTED, ImageFont.load_default(14), anchor="lm")


Sign = Callable[[Image.Image, int, int], None]
"""Draws a legend's sign at x, with its middle at y."""


def _legend_items(stock: Holdings, looked: bool) -> Iterator[tuple[int, Sign, str]]:
    """(width of the sign, the sign, its words) for what this picture shows."""
    yield 120, _gradient_sign, "none to all of a moment's visual tokens"
    if stock.edges[-1] < stock.seconds - 1e-6:
        yield 30, _hatch_sign, "frames that wait for their chunk"
    if any(layer.summaries for layer in stock.layers):
        yield 16, _diamond_sign, "a summary token, at the mean time of the tokens it stands for"
    if looked:
        words = "mean attention of the guidance prompt, each layer to its own largest; blank where nothing is held"
        yield 22, _bars_sign, words


def _gradient_sign(image: Image.Image, x: int, y: int) -> None:
    draw_strip(image, np.arange(13) / 12, (x, y - 7, x + 120, y + 7))


def _hatch_sign(image: Image.Image, x: int, y: int) -> None:
    _draw_hatch(ImageDraw.Draw(image), (x, y - 7, x + 30, y + 7))


def _diamond_sign(image: Image.Image, x: int, y: int) -> None:
    _draw_diamond(ImageDraw.Draw(image), x + 8, y, 7)


def _bars_sign(image: Image.Image, x: int, y: int) -> None:
    pen = ImageDraw.Draw(image)
    for number, height in enumerate((14, 8, 4)):
        pen.rectangle((x + number * 8, y - 7, x + number * 8 + 5, y + 6), EMPTY)
        pen.rectangle((x + number * 8, y + 7 - height, x + number * 8 + 5, y + 6), PAID)


class _Legend:
    """Signs and words in lines that wrap within the picture's width, from `top` down."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._places: list[tuple[int, int]] = []

    def place(self, items: list[tuple[int, Sign, str]]) -> int:
        """Where the last line ends."""
        font = ImageFont.load_default(14)
        x, y = MARGIN, self._top + LINE // 2
        for sign, _, words in items:
            width = round(sign + 8 + font.getlength(words))
            if x > MARGIN and x + width > WIDTH - MARGIN:
                x, y = MARGIN, y + LINE
            self._places.append((x, y))
            x += width + 30
        return y + LINE // 2

    def draw(self, image: Image.Image, items: list[tuple[int, Sign, str]]) -> None:
        pen = ImageDraw.Draw(image)
        for (x, y), (width, sign, words) in zip(self._places, items, strict=True):
            sign(image, x, y)
            pen.text((x + width + 8, y), words, INK, ImageFont.load_default(14), anchor="lm")


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
