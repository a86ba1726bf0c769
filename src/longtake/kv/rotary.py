"""Moving cached keys to other positions, as if they had been computed there."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn


class KeyRotation:
    """Re-rotates keys of any rotary kind through the model's own rotary module.

    A key is turned back by the very angles it was computed with, then turned by the angles of its new
    position, R(new) R(old)^T k, both as the module forms them. So the result equals the key computed at
    the new position up to rounding of the key itself, however large the positions are. (Rotating by the
    difference new - old would be off by the float32 error of the large angles: 2e-2 at position 128,000.)

    Start from the stored original position each time; turning a turned key adds its rounding again.

    Args:
        rotary: the text model's `rotary_emb`: `(x, position_ids) -> (cos, sin)`, each [1, n, rotary_dim].
        axes: 1 for plain rotary positions, 3 for M-RoPE (time, height, width).
    """

    def __init__(self, rotary: nn.Module, axes: int) -> None:
        self.rotary = rotary
        self.axes = axes
        # cos and sin come scaled (yarn); keys hold one factor of it already.
        self.scaling = float(getattr(rotary, "attention_scaling", 1.0))

    @torch.no_grad()
    def move(self, keys: Tensor, old: Tensor, new: Tensor) -> Tensor:
        """Keys [1, kv_heads, n, dim] computed at `old` [n, axes], as they would be at `new` [n, axes]."""
        work = keys.float()
        turned_back = self._turn(work, *self._angles(old, keys.device), sign=-1.0)
        return self._turn(turned_back, *self._angles(new, keys.device), sign=1.0).to(keys.dtype)

    @torch.no_grad()
    def shift(self, keys: Tensor, amount: int) -> Tensor:
        """Keys [1, kv_heads, n, dim] moved by the same amount on all axes, in exact angles.

        All axes share their frequencies, so one angle per frequency does; it is formed in float64, and is
        right for an amount of any size.
        """
        frequencies = cast(Tensor, self.rotary.inv_freq)
        angle = amount * frequencies.to(keys.device, torch.float64)
        cos, sin = (torch.cat((part, part)).float() for part in (angle.cos(), angle.sin()))
        return self._turn(keys.float(), cos, sin, sign=1.0).to(keys.dtype)

    def _angles(self, positions: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        ids = positions.T[:, None].to(device)  # [axes, 1, n]
        probe = torch.empty(0, dtype=torch.float32, device=device)
        cos, sin = self.rotary(probe, ids if self.axes > 1 else ids[0])
        return cos[:, None] / self.scaling, sin[:, None] / self.scaling

    @staticmethod
    def _turn(keys: Tensor, cos: Tensor, sin: Tensor, sign: float) -> Tensor:
        """Rotate the first rotary_dim features (pairs i, i + half), pass the rest."""
        width = cos.shape[-1]
        turning, passing = keys[..., :width], keys[..., width:]
        half = width // 2
        swapped = torch.cat((-turning[..., half:], turning[..., :half]), dim=-1)
        return torch.cat((turning * cos + sign * swapped * sin, passing), dim=-1)
