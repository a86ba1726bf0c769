"""DeltaS: state drift of the linear layers decides what the attention layers keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from longtake.errors import LongtakeError
from longtake.memory import Keep, Memory
from longtake.policies.policy import Policy, sinks_and_window
from longtake.policies.selection import top_by_span
from longtake.policies.signals.state_drift import state_drift
from longtake.probe import Probe

PUBLISHED_WINDOW = 1024
PUBLISHED_BUDGET = 8192
_COLUMN = "drift"


@dataclass
class DeltaS(Policy):
    """DeltaS (arXiv 2609.27470), algorithm 1, for models with gated-delta linear attention.

    After each chunk all its tokens get the chunk's state drift as their score, for good (equation 3). When
    more than `budget` tokens are held, those that stay are the first `sinks`, the newest `window`, and
    the rest of the budget by score within `spans` equal spans of arrival time, an equal share each.
    Positions stay as they were; questions leave no trace (the session rolls back).

    What the paper leaves open: a share that a span cannot fill, and the remainder of the division, go to
    the best tokens of the other spans; among equal scores the newer token stays; the spans cut the time
    range of the tokens that compete. The prompt's opening beyond the sinks competes like a chunk: it meets
    empty states and scores 1 (see `state_drift`).

    Attributes:
        budget: M, all tokens held per attention layer after a step, sinks and window included; the paper
            has 8,192 and 16,384.
        sinks: n_s = 4, the stream's first tokens.
        window: n_w = 1,024, the newest tokens. Below a budget of 8,192 the default is an eighth of the
            budget, the paper's own ratio at 8,192.
        spans: N = 4, equal spans of time.
    """

    name: ClassVar[str] = "deltas"
    line: ClassVar[str] = "chunks that changed the recurrent states most, spread over time spans (DeltaS)"
    needs_recurrent_states: ClassVar[bool] = True

    budget: int | None = PUBLISHED_BUDGET
    sinks: int = 4
    window: int | None = None
    spans: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sinks < 0 or self.spans < 1 or (self.window is not None and self.window < 0):
            raise LongtakeError("sinks and window must be 0 or more, spans 1 or more.")
        self._window_given = self.window is not None
        if self.window is None:
            self.window = _default_window(self.budget)

    def least_budget(self, chunk_tokens: int, opening_tokens: int, layers: int) -> int:
        """sinks + window + one chunk; a default window shrinks with the budget."""
        if self._window_given:
            return self.sinks + (self.window or 0) + chunk_tokens
        least = self.sinks + chunk_tokens
        while least < self.sinks + _default_window(least) + chunk_tokens:
            least += 1
        return least

    def begin(self, memory: Memory, probe: Probe) -> None:
        super().begin(memory, probe)
        memory.ledger.add_score(_COLUMN, state_drift(memory))

    def observe(self, memory: Memory, chunk: int) -> None:
        ledger = memory.ledger
        ledger[_COLUMN][ledger["chunk"] == chunk] = state_drift(memory)

    def keep(self, memory: Memory) -> Keep | None:
        if self.budget is None or self._fits(memory):
            return None
        ledger = memory.ledger
        sink, newest = sinks_and_window(ledger["index"], self.sinks, self.window or 0)
        rest = torch.nonzero(~(sink | newest)).squeeze(1)
        room = self.budget - int(sink.sum()) - int(newest.sum())
        best = top_by_span(ledger[_COLUMN][rest], ledger["index"][rest], ledger["time"][rest], self.spans, room)
        chosen = sink | newest
        chosen[rest[best]] = True
        return Keep.shared(torch.nonzero(chosen).squeeze(1))


def _default_window(budget: int | None) -> int:
    return PUBLISHED_WINDOW if budget is None or budget >= PUBLISHED_BUDGET else budget // 8
