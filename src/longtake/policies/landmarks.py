"""Landmarks: the moments that look unlike all others held, and lie apart in time. This project's own policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from longtake.errors import LongtakeError
from longtake.kv.ledger import Kind
from longtake.memory import Keep, Memory
from longtake.policies.gallery import Gallery
from longtake.policies.policy import Policy, sinks_and_window
from longtake.probe import Probe
from longtake.trace import Sight, Trace


@dataclass
class Landmarks(Policy):
    """Holds the first tokens, the newest ones, and a gallery of moments that are as different as can be.

    A moment is one temporal step of the vision tower; its signature is the mean of its visual features, as the language
    model gets them. When more than the budget is held, words between frames go first (`words`), then moments, one after
    the other: the newer of the two closest in the gallery (see `Gallery`). So an event
    that lasts leaves one moment instead of many, a quiet scene a few, spread over the stream, and an object that
    comes back is held again where it comes back late.

    Scores of drift kind compare with the moment before, and so mark the way back from an event as much as the event,
    and what repeats as much as what is new. Here everything is compared with everything that is still held.

    Attributes:
        budget: all tokens held per attention layer after a step, at most (moments are not split).
        sinks: 4, the stream's first tokens.
        window: the newest tokens, 0 for one chunk.
        spread: how much distance in time counts beside looks: moments that lie 1 / spread of the stream apart are as
            far from each other as those that follow each other usually look, about.
        words: "drop" those outside the window, or "keep" them with their moment.
    """

    name: ClassVar[str] = "landmarks"
    line: ClassVar[str] = "moments unlike all others held, apart in time (this project's own)"

    sinks: int = 4
    window: int = 0
    spread: float = 8.0
    words: Literal["drop", "keep"] = field(default="drop", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sinks < 0 or self.window < 0 or self.spread < 0:
            raise LongtakeError("sinks, window and spread must be 0 or more.")

    @property
    def sights(self) -> frozenset[Sight]:
        return frozenset({"features"})

    def least_budget(self, chunk_tokens: int, opening_tokens: int, layers: int) -> int:
        return max(self.sinks, opening_tokens) + max(self.window, chunk_tokens) + chunk_tokens

    def begin(self, memory: Memory, probe: Probe) -> None:
        super().begin(memory, probe)
        self._gallery = Gallery(self.spread)
        self._fresh: dict[int, tuple[Tensor, float]] = {}
        """Moments that are in the window still, by their frame."""

    def observe(self, memory: Memory, chunk: int, trace: Trace) -> None:
        assert trace.features is not None
        ledger = memory.ledger
        rows = ((ledger["chunk"] == chunk) & (ledger["kind"] == int(Kind.VISUAL))).nonzero().squeeze(1)
        rows = rows[ledger["index"][rows].argsort()]
        frames = ledger["frame"][rows]
        for frame in sorted(set(frames.tolist())):
            mine = frames == frame
            signature = trace.features[mine.to(trace.features.device)].mean(dim=0)
            self._fresh[frame] = signature, float(ledger["time"][rows[mine]][0])
        self._chunk_tokens = int((ledger["chunk"] == chunk).sum())

    def keep(self, memory: Memory) -> Keep | None:
        if self.budget is None or self._fits(memory):
            return None
        ledger = memory.ledger
        sink, newest = sinks_and_window(ledger["index"], self.sinks, max(self.window, self._chunk_tokens))
        fixed = sink | newest | (ledger["kind"] == int(Kind.SYSTEM))
        frame = ledger["frame"]
        going = torch.zeros_like(fixed)
        if self.words == "drop":
            going = ~fixed & (ledger["kind"] != int(Kind.VISUAL))
        for past in sorted(set(self._fresh) - set(frame[newest].tolist())):
            self._gallery.add(past, *self._fresh.pop(past))
        # A step that an interrupt broke off may have taken moments from the gallery already.
        going |= ~fixed & (ledger["kind"] == int(Kind.VISUAL)) & ~torch.isin(frame, self._gallery.keys)
        over = memory.held - int(going.sum()) - self.budget
        while over > 0 and (weakest := self._gallery.weakest()) is not None:
            mine = (frame == weakest) & ~going & ~fixed
            going |= mine
            over -= int(mine.sum())
            self._gallery.remove(weakest)
        return Keep.shared((~going).nonzero().squeeze(1))
