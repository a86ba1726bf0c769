"""Everything stays: the reference that grows with the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from longtake.memory import Keep, Memory
from longtake.policies.policy import Policy


@dataclass
class Full(Policy):
    """Evicts nothing; memory grows with the stream. A budget is not used."""

    name: ClassVar[str] = "full"
    line: ClassVar[str] = "keeps every token; memory grows with the stream (the reference)"
    bounded: ClassVar[bool] = False

    def keep(self, memory: Memory) -> Keep | None:
        return None
