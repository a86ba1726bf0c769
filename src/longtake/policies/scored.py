"""Any score under either of two rules, all else equal: the controlled comparison of DeltaS' table 2."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from longtake.errors import LongtakeError
from longtake.kv.ledger import Kind, Ledger
from longtake.memory import Keep, Memory
from longtake.policies.policy import Policy, sinks_and_window
from longtake.policies.selection import top_by_span
from longtake.policies.signals.shelf import SIGNALS
from longtake.policies.signals.signal import SETTLED, Signal
from longtake.probe import Probe
from longtake.trace import Sight, Trace

PUBLISHED_WINDOW = 1024
PUBLISHED_BUDGET = 8192


@dataclass
class Scored(Policy):
    """Keeps by a score what a rule lets compete.

    The first `sinks` tokens always stay. Rule "global": the best of all others. Rule "spans" (DeltaS, algorithm 1): the
    newest `window` stay, and of the rest the best within `spans` equal spans of arrival time, an equal share each; a
    share that a span cannot fill, and the remainder of the division, go to the best of the others. Among equal
    scores the newer token stays.

    Attributes:
        budget: M, all tokens held per attention layer after a step, sinks and window included.
        score: a name of `longtake.policies.signals.shelf.SIGNALS`.
        rule: "global" or "spans".
        sinks: 4, the stream's first tokens (StreamingLLM, DeltaS).
        window: 1,024, the newest tokens (DeltaS). Below a budget of 8,192 the default is an eighth of the budget,
            DeltaS' own ratio there.
        spans: 4, equal spans of time (DeltaS).
        words: "compete" for themselves, or "follow" the visual tokens of their chunk, whose mean score they get.
            Signals that have nothing to say about words let them follow in any case.
    """

    name: ClassVar[str] = "scored"
    line: ClassVar[str] = "any score under either rule: the controlled comparison (options score and rule)"

    budget: int | None = PUBLISHED_BUDGET
    score: Literal[
        "recency",
        "random",
        "van",
        "tar",
        "snapkv",
        "keydiff",
        "lagkv",
        "frames",
        "proxy",
        "guidance",
        "residual",
        "drift",
    ] = field(default="van", kw_only=True)
    rule: Literal["global", "spans"] = field(default="spans", kw_only=True)
    sinks: int = 4
    window: int | None = None
    spans: int = 4
    words: Literal["compete", "follow"] = field(default="follow", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sinks < 0 or self.spans < 1 or (self.window is not None and self.window < 0):
            raise LongtakeError("sinks and window must be 0 or more, spans 1 or more.")
        self._window_given = self.window is not None
        if self.window is None:
            self.window = _default_window(self.budget)
        self._signal: Signal = SIGNALS[self.score]()

    @property
    def needs_recurrent_states(self) -> bool:  # type: ignore[override]
        return self._signal.needs_recurrent_states

    @property
    def sights(self) -> frozenset[Sight]:
        return self._signal.sights

    def least_budget(self, chunk_tokens: int, opening_tokens: int, layers: int) -> int:
        """sinks + window + one chunk; a default window shrinks with the budget. Without a window, one chunk more for a
        signal that must let the newest one stay."""
        if self.rule == "global":
            return max(self.sinks, opening_tokens) + chunk_tokens
        if self._window_given:
            return self.sinks + (self.window or 0) + chunk_tokens
        least = self.sinks + chunk_tokens
        while least < self.sinks + _default_window(least) + chunk_tokens:
            least += 1
        return least

    def settings(self) -> dict[str, Any]:
        idle = ("window", "spans") if self.rule == "global" else ()
        return {name: value for name, value in super().settings().items() if name not in idle}

    def begin(self, memory: Memory, probe: Probe) -> None:
        super().begin(memory, probe)
        self._signal.begin(memory, probe)

    def observe(self, memory: Memory, chunk: int, trace: Trace) -> None:
        self._signal.observe(memory, chunk, trace)

    def keep(self, memory: Memory) -> Keep | None:
        if self.budget is None or self._fits(memory):
            return None
        ledger = memory.ledger
        window = (self.window or 0) if self.rule == "spans" else 0
        sink, newest = sinks_and_window(ledger["index"], self.sinks, window)
        rest = torch.nonzero(~(sink | newest)).squeeze(1)
        room = self.budget - int(sink.sum()) - int(newest.sum())
        score = _spoken_for(ledger, self._signal.score(memory), self.words == "follow")[rest]
        spans = self.spans if self.rule == "spans" else 1
        best = top_by_span(score, ledger["index"][rest], ledger["time"][rest], spans, room)
        chosen = sink | newest
        chosen[rest[best]] = True
        return Keep.shared(torch.nonzero(chosen).squeeze(1))


def _spoken_for(ledger: Ledger, score: Tensor, follow: bool) -> Tensor:
    """The scores with one for every row: words that follow get the mean of their chunk's visual tokens, the prompt's
    opening stays, and what nobody speaks for comes last."""
    words = ledger["kind"] == int(Kind.TIMESTAMP)
    silent = torch.isnan(score)
    lead = ledger["kind"] == int(Kind.VISUAL)
    score = torch.where(silent & (ledger["kind"] == int(Kind.SYSTEM)), SETTLED, score)
    following = words if follow else words & silent
    if following.any():
        chunk = ledger["chunk"].clamp_min(0)
        heard = lead & ~silent
        total = torch.zeros(int(chunk.max()) + 1, dtype=torch.float64)
        count = torch.zeros_like(total)
        total.index_add_(0, chunk[heard], score[heard])
        count.index_add_(0, chunk[heard], torch.ones_like(score[heard]))
        score = torch.where(following, (total / count)[chunk], score)
    return torch.where(torch.isnan(score), -SETTLED, score)


def _default_window(budget: int | None) -> int:
    return PUBLISHED_WINDOW if budget is None or budget >= PUBLISHED_BUDGET else budget // 8
