"""SnapKV with the newest visual tokens for an observation window (arXiv 2404.14469)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from longtake.kv.ledger import Kind
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
        index, newest = ledger["index"][order], ledger["chunk"][order] == self._chunk
        asking = index[newest & (ledger["kind"][order] == int(Kind.VISUAL))][-self.window :]
        looks = [
            window_attention(queries, slab.keys[0][:, order.to(slab.keys.device)], asking, index)[:, :, ~newest]
            for queries, slab in zip(self._queries, memory.slabs, strict=True)
        ]
        score = torch.full((len(ledger),), SETTLED, dtype=torch.float64)
        layers = [pooled(look.mean(dim=1), self.kernel).mean(dim=0).cpu() for look in looks]
        score[order[~newest]] = torch.stack(layers).mean(dim=0).double()
        return score


def window_attention(queries: Tensor, keys: Tensor, asking: Tensor, index: Tensor) -> Tensor:
    """Softmax attention [heads, w, n] of queries [heads, w, dim] to keys [kv_heads, n, dim], both turned.

    Args:
        asking, index: places in the stream of the queries [w] and of the keys [n]; no query sees what came later.
    """
    fold = queries.shape[0] // keys.shape[0]
    scores = (queries @ keys.repeat_interleave(fold, dim=0).transpose(1, 2)).float() * queries.shape[-1] ** -0.5
    later = (index[None] > asking[:, None]).to(scores.device)
    attention: Tensor = scores.masked_fill(later, float("-inf")).softmax(dim=-1)
    return attention


def pooled(scores: Tensor, kernel: int) -> Tensor:
    """Averages of [heads, n] over `kernel` neighbours; places outside count as 0, as the library's pooling has it."""
    return F.avg_pool1d(scores[None], kernel, stride=1, padding=kernel // 2)[0]
