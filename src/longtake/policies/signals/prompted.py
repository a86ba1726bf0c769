"""Where a text looks: the end of a turn (StreamMem, arXiv 2508.15717), or a guidance prompt (HERMES)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from longtake.memory import Memory
from longtake.policies.signals.guidance import GLOBAL
from longtake.policies.signals.signal import Signal


@dataclass
class Prompted(Signal):
    """The attention that a text pays to each token held, averaged over its tokens, heads and layers; read anew at
    every step, and rolled back."""

    @abstractmethod
    def ids(self) -> list[int]:
        """Token ids of the text."""

    def score(self, memory: Memory) -> Tensor:
        looks = self._probe.attention([self.ids()])
        return torch.stack([layer[0] for layer in looks]).mean(dim=0).double()


@dataclass
class Proxy(Prompted):
    """The chat template's own tokens from the end of the user's turn to the begin of the answer."""

    name: ClassVar[str] = "proxy"
    line: ClassVar[str] = "attention of the chat template's turn tokens (StreamMem)"

    def ids(self) -> list[int]:
        return self._probe.turn


@dataclass
class Guidance(Prompted):
    """HERMES' global guidance prompt."""

    name: ClassVar[str] = "guidance"
    line: ClassVar[str] = "attention of HERMES' global guidance prompt"

    def ids(self) -> list[int]:
        return self._probe.ids(GLOBAL)
