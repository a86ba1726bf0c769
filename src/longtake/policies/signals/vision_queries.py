"""SnapKV with the newest visual tokens for an observation window (arXiv 2404.14469)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from longtake.memory import Memory
from longtake.policies.signals.signal import SETTLED, Signal
from longtake.trace import Trace


@dataclass
class VisionQueries(Signal):
    """Where the newest visual tokens look: softmax attention to all that is held, averaged over the window's queries,
    smoothed along the stream, averaged over heads and layers. Judged anew at every step.

    SnapKV reads the attention of a prompt's last tokens; where the question is not known yet, its window is the last
    visual tokens. The window itself, the newest chunk, must stay.

    Attributes:
        window: at most so many queries, of the newest chunk alone; 64 as in kvpress.
        kernel: 5, tokens over which scores are averaged, as in kvpress.
    """

    name: ClassVar[str] = "snapkv"
    line: ClassVar[str] = "attention of the newest visual tokens (SnapKV)"
    sights: ClassVar = frozenset({"queries"})

    window: int = 64
    kernel: int = 5

    def observe(self, memory: Memory, chunk: int, trace: Trace) -> None:
        self._queries, self._chunk = [queries[:, -self.window :] for queries in trace.queries], chunk

    def score(self, memory: Memory) -> Tensor:
        ledger = memory.ledger
        order = torch.argsort(ledger["index"])
        newest = ledger["chunk"] == self._chunk
        looks = [
            window_attention(queries, slab.keys[0], ~newest[order], order)
            for queries, slab in zip(self._queries, memory.slabs, strict=True)
        ]
        smooth = pooled(torch.cat([look.mean(dim=1) for look in looks]), self.kernel).mean(dim=0)
        score = torch.full((len(ledger),), SETTLED, dtype=torch.float64)
        score[order[~newest[order]]] = smooth.cpu().double()
        return score


def window_attention(queries: Tensor, keys: Tensor, seen: Tensor, order: Tensor) -> Tensor:
    """Softmax attention [heads, w, seen] of queries [heads, w, dim] to keys [kv_heads, n, dim], both turned.

    Over all keys, those after the window's own queries aside for the few tokens of the window itself: that part is
    left out of the result and of the softmax.

    Args:
        seen: mask [n] over `order` of the columns that are wanted.
        order: rows of the keys in the order of the columns.
    """
    heads, groups = queries.shape[0], keys.shape[0]
    past = keys[:, order[seen].to(keys.device)].repeat_interleave(heads // groups, dim=0)
    scores: Tensor = (queries @ past.transpose(1, 2)).float() * queries.shape[-1] ** -0.5
    return scores.softmax(dim=-1)


def pooled(scores: Tensor, kernel: int) -> Tensor:
    """Averages [heads, n] over `kernel` neighbours; the ends count places outside as 0, as the library's pooling."""
    return F.avg_pool1d(scores[None], kernel, stride=1, padding=kernel // 2)[0][:, : scores.shape[1]]
