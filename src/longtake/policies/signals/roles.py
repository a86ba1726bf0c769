"""HERMES' importance scores: what a layer's place in the stack makes of recency and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Normalisation = Literal["min-max", "sum", "none"]
_EPSILON = 1e-6


def normalised(score: Tensor, how: Normalisation) -> Tensor:
    """alpha of equations 1 and 2, which the paper leaves open; the code has min-max: (x - min) / (max - min + 1e-6)."""
    if how == "min-max":
        return (score - score.min()) / (score.max() - score.min() + _EPSILON)
    return score / (score.sum() + _EPSILON) if how == "sum" else score


def recency(count: int, k: float) -> Tensor:
    """e^(-k dt) [count], oldest first (equation 1). dt is a share of the tokens held, (count - 1 - i) / (count - 1),
    as in the code; the paper counts tokens and gives no k."""
    age = torch.arange(count - 1, -1, -1, dtype=torch.float32) / max(count - 1, 1)
    return torch.exp(-k * age)


def smoothed(scores: Sequence[Tensor], weight: Sequence[float], cascade: bool) -> list[Tensor]:
    """Each layer's score blended with that of the layer above it, (1 - w) S(l) + w S(l + 1) (equation 5).

    The paper takes S(l + 1) as it was scored. The code goes from the deepest layer down and takes it as already
    smoothed (`cascade`). Scores meet at the same place in the cache; where the layer above holds another number of
    tokens its scores are interpolated linearly, as in the code. The deepest layer stays as it is.
    """
    result = list(scores)
    for layer in range(len(scores) - 2, -1, -1):
        above = result[layer + 1] if cascade else scores[layer + 1]
        own = scores[layer]
        if len(above) != len(own) and len(above) and len(own):
            above = torch.nn.functional.interpolate(
                above[None, None], size=len(own), mode="linear", align_corners=False
            )[0, 0]
        result[layer] = (1 - weight[layer]) * own + weight[layer] * above
    return result
