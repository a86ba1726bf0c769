"""The things that are shown: 16 shapes as inequalities, cards with a digit, 8 colours as RGB values."""

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Plane: TypeAlias = NDArray[np.float32]
Mask: TypeAlias = NDArray[np.bool_]

COLOURS: Final[dict[str, tuple[int, int, int]]] = {
    "red": (220, 40, 40),
    "green": (40, 170, 60),
    "blue": (50, 80, 230),
    "yellow": (240, 220, 50),
    "purple": (160, 50, 190),
    "cyan": (60, 210, 220),
    "white": (248, 248, 248),
    "black": (12, 12, 12),
}


def _star(u: Plane, v: Plane) -> Mask:
    fifth = 2 * np.pi / 5
    turn = np.mod(np.arctan2(v, u) + np.pi / 2, fifth) - fifth / 2
    inside: Mask = np.hypot(u, v) <= 0.42 + 0.58 * np.square(turn / (fifth / 2))
    return inside


def _heart(u: Plane, v: Plane) -> Mask:
    x, y = 1.2 * u, 0.12 - 1.2 * v
    inside: Mask = (x * x + y * y - 1) ** 3 - x * x * y**3 <= 0
    return inside


def _arrow(u: Plane, v: Plane) -> Mask:
    shaft = (np.abs(v) <= 0.24) & (u >= -1) & (u <= 0.1)
    return shaft | ((u >= 0) & (np.abs(v) <= 0.9 * (1 - u)))


# u grows to the right and v downwards; both run from -1 to 1 over a shape's box.
_INSIDE: Final[dict[str, Callable[[Plane, Plane], Mask]]] = {
    "circle": lambda u, v: u * u + v * v <= 0.9,
    "square": lambda u, v: np.maximum(np.abs(u), np.abs(v)) <= 0.82,
    "triangle": lambda u, v: (v <= 0.8) & (np.abs(u) <= 0.55 * (v + 1)),
    "diamond": lambda u, v: np.abs(u) + np.abs(v) <= 1,
    "star": _star,
    "heart": _heart,
    "moon": lambda u, v: (u * u + v * v <= 1) & ((u - 0.5) ** 2 + v * v > 0.56),
    "arrow": _arrow,
    "cross": lambda u, v: np.minimum(np.abs(u), np.abs(v)) <= 0.28,
    "ring": lambda u, v: (u * u + v * v <= 1) & (u * u + v * v >= 0.3),
    "frame": lambda u, v: np.maximum(np.abs(u), np.abs(v)) >= 0.58,
    "bar": lambda u, v: np.abs(v) <= 0.3,
    "pillar": lambda u, v: np.abs(u) <= 0.3,
    "hourglass": lambda u, v: (np.abs(u) <= np.abs(v)) & (np.abs(v) <= 0.92),
    "chevron": lambda u, v: np.abs(v + 0.3 - 0.9 * np.abs(u)) <= 0.36,
    "dice": lambda u, v: (np.abs(u) - 0.56) ** 2 + (np.abs(v) - 0.56) ** 2 <= 0.16,
}
SHAPES: Final[tuple[str, ...]] = tuple(_INSIDE)
CARDS: Final[tuple[str, ...]] = tuple("0123456789")
"""Cards are named by the digit that they bear."""
THINGS: Final[tuple[str, ...]] = (*SHAPES, *CARDS)

# Five rows of three cells for each digit.
_GLYPHS: Final[dict[str, str]] = {
    "0": "111101101101111",
    "1": "010110010010111",
    "2": "111001111100111",
    "3": "111001111001111",
    "4": "101101111001001",
    "5": "111100111001111",
    "6": "111100111101111",
    "7": "111001010010010",
    "8": "111101111101111",
    "9": "111101111001111",
}
_DARK: Final = 110  # mean level below which a card's digit is white, above which black


def draw(canvas: NDArray[np.float32], thing: str, colour: str, x: float, y: float, radius: float) -> None:
    """Paint one shape, or card, onto `canvas` [H, W, 3] in place; centre and radius are in pixels."""
    height, width = canvas.shape[:2]
    top, bottom = max(0, int(y - radius)), min(height, int(y + radius) + 2)
    left, right = max(0, int(x - radius)), min(width, int(x + radius) + 2)
    v, u = np.meshgrid(
        ((np.arange(top, bottom) - y) / radius).astype(np.float32),
        ((np.arange(left, right) - x) / radius).astype(np.float32),
        indexing="ij",
    )
    area = canvas[top:bottom, left:right]
    if thing in _INSIDE:
        area[_INSIDE[thing](u, v) & (np.maximum(np.abs(u), np.abs(v)) <= 1)] = COLOURS[colour]
        return
    area[(np.abs(u) <= 0.85) & (np.abs(v) <= 1)] = COLOURS[colour]
    cells = np.array([int(cell) for cell in _GLYPHS[thing]], dtype=bool).reshape(5, 3)
    row, column = (np.floor((axis / reach + 1) / 2 * n).astype(int) for axis, reach, n in ((v, 0.75, 5), (u, 0.55, 3)))
    within = (row >= 0) & (row < 5) & (column >= 0) & (column < 3)
    ink = within & cells[row.clip(0, 4), column.clip(0, 2)]
    area[ink] = 255 if np.mean(COLOURS[colour]) < _DARK else 0
