"""One moment of a video."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


# Compared by identity: comparing two pictures pixel by pixel is never what `==` should cost.
@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A picture and when it was seen.

    time: seconds since the start of its stream; along one stream it strictly increases.
    image: uint8 [height, width, 3], RGB, upright.
    """

    time: float
    image: npt.NDArray[np.uint8]
