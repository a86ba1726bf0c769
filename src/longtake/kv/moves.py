"""How an eviction is carried out: which surviving rows go into which holes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Moves:
    """Rows `source` are copied to rows `target`, then the table is cut to `length` rows.

    Sources lie at or beyond `length`, targets below it, so that the copy never overlaps, needs a buffer of
    the moved rows alone, and may be repeated without harm. An eviction of n rows moves at most n rows,
    however many are held: its cost does not grow with the budget. (A gather that keeps the order copies
    the whole tail each time.)
    """

    source: Tensor
    target: Tensor
    length: int

    @classmethod
    def filling_holes(cls, keep: Tensor, length: int) -> Moves:
        """The moves that leave exactly the rows `keep` (sorted, unique, int64 [m]) of a table of `length` rows."""
        kept = len(keep)
        if kept and (int(keep[0]) < 0 or int(keep[-1]) >= length or bool((keep[1:] <= keep[:-1]).any())):
            raise ValueError(f"rows to keep must be sorted, unique and within 0..{length - 1}")
        stays = torch.zeros(kept, dtype=torch.bool)
        inside = int(torch.searchsorted(keep, kept))
        stays[keep[:inside]] = True
        return cls(source=keep[inside:], target=torch.nonzero(~stays).squeeze(1), length=kept)
