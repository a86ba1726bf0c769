"""Pictures the way up that their camera meant."""

from typing import Any, cast

import av
import numpy as np
import numpy.typing as npt


def upright_size(picture: av.VideoFrame) -> tuple[int, int]:
    """Width and height of the picture once it is upright, in pixels."""
    swapped, _, _ = _orientation(picture)
    return (picture.height, picture.width) if swapped else (picture.width, picture.height)


def upright_image(picture: av.VideoFrame) -> npt.NDArray[np.uint8]:
    """The picture as uint8 [height, width, 3] RGB, turned and mirrored as its display matrix says.

    Pixels that are not square stay as they are stored. Raises av.FFmpegError if it cannot be converted.
    """
    image: npt.NDArray[Any] = picture.to_ndarray(format="rgb24")
    swapped, columns_reversed, rows_reversed = _orientation(picture)
    if swapped:
        image = image.transpose(1, 0, 2)
    if columns_reversed:
        image = image[:, ::-1]
    if rows_reversed:
        image = image[::-1]
    return np.ascontiguousarray(image, dtype=np.uint8)


def _orientation(picture: av.VideoFrame) -> tuple[bool, bool, bool]:
    """Whether rows and columns swap, and whether the columns and the rows then run backwards.

    FFmpeg's display matrix sends the stored point (x, y) to (a x + c y, b x + d y), y downwards, and holds
    a, b, _, c, d, ... as int32. PyAV's `rotation` is not enough: it is silent about mirrored pictures.
    """
    matrix = picture.side_data.get("DISPLAYMATRIX")
    if matrix is None:
        return False, False, False
    a, b, _, c, d = np.frombuffer(cast(Any, matrix), dtype=np.int32)[:5].tolist()
    # Turns that are no multiple of 90 degrees go to the nearest one.
    if abs(b) + abs(c) > abs(a) + abs(d):
        return True, c < 0, b < 0
    return False, a < 0, d < 0
