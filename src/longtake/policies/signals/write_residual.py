"""The write residual: how much each single token wrote into the recurrent states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from longtake.memory import Memory
from longtake.policies.signals.signal import WrittenOnce
from longtake.trace import Trace


@dataclass
class WriteResidual(WrittenOnce):
    """Mean over all linear layers of ||beta_t e_t||_2 / ||S_before||_F, e_t = v_t - alpha_t S_(t-1)^T k_t, all heads
    together: state drift (equation 3 of DeltaS) taken token by token, before anything fades or cancels out."""

    name: ClassVar[str] = "residual"
    line: ClassVar[str] = "what each token wrote into the recurrent states, beta times the residual"
    sights: ClassVar = frozenset({"gates"})
    needs_recurrent_states: ClassVar[bool] = True

    def judge(self, memory: Memory, chunk: int, trace: Trace) -> Tensor:
        before = memory.states_before
        layers = []
        for gates, state, conv in zip(trace.gates, before.recurrent, before.conv, strict=True):
            written = gates.writes(state, conv).flatten(1).norm(dim=1)
            layers.append((written if state is None else written / state.norm().clamp_min(1e-12)).cpu())
        return torch.stack(layers).mean(dim=0).double()
