"""TaR: tokens whose keys differ from those at the same place in the newest frames (InfiniPot-V, arXiv 2506.15745)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from longtake.kv.ledger import Kind
from longtake.memory import Memory
from longtake.policies.signals.signal import SETTLED, Signal, over_heads


@dataclass
class KeyRedundancy(Signal):
    """TaR(f, j) = -(1 / r) sum over the newest r frames t of cos(k(f, j), k(t, j)), j a place in the grid.

    Keys as they were before rotation, since rotated ones tell how far apart frames are rather than how much alike. The
    newest frames themselves must stay. A place that none of them holds any more is not judged.

    Attributes:
        recent: r as a share of the frames held, 0.125 in the paper.
    """

    name: ClassVar[str] = "tar"
    line: ClassVar[str] = "keys unlike those at the same place in the newest frames (TaR of InfiniPot-V)"

    recent: float = 0.125

    def score(self, memory: Memory) -> Tensor:
        ledger = memory.ledger
        visual = ledger["kind"] == int(Kind.VISUAL)
        frames = torch.unique(ledger["frame"][visual])
        if not len(frames):
            return torch.full((len(ledger),), float("nan"), dtype=torch.float64)
        newest = frames[-max(1, round(self.recent * len(frames))) :]
        recent = visual & (ledger["frame"] >= newest[0])
        places, place = torch.unique(ledger["patch"], return_inverse=True)
        count = torch.zeros(len(places)).index_add_(0, place[recent], torch.ones(int(recent.sum())))
        layers = []
        for keys in memory.unturned_keys():
            unit = F.normalize(keys, dim=-1).cpu()
            # The mean of cosines is the cosine with the mean of unit keys.
            mean = unit.new_zeros(unit.shape[0], len(places), unit.shape[2])
            mean.index_add_(1, place[recent], unit[:, recent])
            mean = mean / count.clamp_min(1)[:, None]
            layers.append(-(unit * mean[:, place]).sum(dim=-1))
        judged = visual & ~recent & (count[place] > 0)
        score = over_heads(layers, judged) if judged.any() else torch.full((len(ledger),), float("nan")).double()
        score[recent] = SETTLED
        return score
