"""State drift: how much a chunk changed the recurrent states (DeltaS, equation 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from longtake.memory import Memory
from longtake.policies.signals.signal import WrittenOnce
from longtake.trace import Trace


@dataclass
class StateDrift(WrittenOnce):
    """One score per chunk, see `state_drift`. The prompt's opening beyond the sinks competes like a chunk: it meets
    empty states and scores 1."""

    name: ClassVar[str] = "drift"
    line: ClassVar[str] = "how much each chunk changed the recurrent states (DeltaS)"
    needs_recurrent_states: ClassVar[bool] = True

    def opening(self, memory: Memory) -> float:
        return state_drift(memory)

    def judge(self, memory: Memory, chunk: int, trace: Trace) -> float:
        return state_drift(memory)


@torch.no_grad()
def state_drift(memory: Memory) -> float:
    """Mean over all linear layers of ||S_after - S_before||_F / ||S_before||_F for the newest chunk.

    S is a layer's whole recurrent state, all heads together; S_before is the copy that the memory took
    before the chunk. Where a state was empty (before the very first tokens of a stream, or exactly zero)
    the quotient is undefined; such a layer counts as 1, its change being all there is.
    """
    drifts = []
    for before, after in zip(memory.states_before.recurrent, memory.recurrent_states(), strict=True):
        if before is None:
            drifts.append(torch.ones((), device=after.device))
            continue
        scale = torch.linalg.vector_norm(before)
        change = torch.linalg.vector_norm(after - before)
        drifts.append(torch.where(scale > 0, change / scale, 1.0))
    # Layers may live on different devices.
    return float(torch.stack([drift.to(drifts[0].device) for drift in drifts]).mean())
