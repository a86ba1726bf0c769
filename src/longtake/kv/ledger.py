"""The ledger: one row of facts per cached token, moved whenever the tokens move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from longtake.kv.moves import Moves


class Kind(IntEnum):
    """What a token is; TIMESTAMP is all text inside a chunk: its time or frame number, and the wrapper of its grids."""

    SYSTEM = 0
    TIMESTAMP = 1
    VISUAL = 2
    TEXT = 3
    SUMMARY = 4


@dataclass(frozen=True, slots=True)
class Rows:
    """Facts of n new tokens, each a tensor with n rows.

    Attributes:
        position: int64 [n, axes], the rotary position on one axis or three (time, height, width).
        time: float64 [n], seconds of the stream.
        chunk, frame, patch: int64 [n], -1 where it does not apply; a visual token's frame is the first
            frame of its temporal patch, its patch the place in that frame's grid, row by row.
        kind: int64 [n], a `Kind`.
    """

    position: Tensor
    time: Tensor
    chunk: Tensor
    frame: Tensor
    patch: Tensor
    kind: Tensor

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """The rows of several segments, one after the other."""
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in cls.__slots__))


class Ledger:
    """A table on the CPU with a row per cached token, and score columns that policies add.

    Besides the facts of `Rows` there is `index`, the token's place in the stream (0, 1, 2, ...): rows are
    not kept in the order of time, `index` tells it. `home` [n, axes] is the position at which the original key was
    computed, `position` where its key stands now. `ledger["time"]` is a live view of the rows held.
    """

    def __init__(self, axes: int) -> None:
        self.length = 0
        self._capacity = 0
        self._columns: dict[str, Tensor] = {
            **{name: torch.empty((0, axes), dtype=torch.int64) for name in ("position", "home")},
            "time": torch.empty(0, dtype=torch.float64),
            **{name: torch.empty(0, dtype=torch.int64) for name in ("index", "chunk", "frame", "patch", "kind")},
        }
        self._defaults: dict[str, float] = {}

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, column: str) -> Tensor:
        return self._columns[column][: self.length]

    def __contains__(self, column: str) -> bool:
        return column in self._columns

    def append(self, rows: Rows, first_index: int) -> None:
        """Add rows of tokens that are the stream's `first_index`-th and following."""
        count, start = len(rows), self.length
        self._grow(start + count)
        for name in Rows.__slots__:
            self._columns[name][start : start + count] = getattr(rows, name)
        self._columns["home"][start : start + count] = rows.position
        self._columns["index"][start : start + count] = torch.arange(first_index, first_index + count)
        for name, default in self._defaults.items():
            self._columns[name][start : start + count] = default
        self.length = start + count

    def add_score(self, name: str, default: float) -> None:
        """Add a float64 column; rows held and rows to come start at `default`."""
        self._columns[name] = torch.full((self._capacity,), default, dtype=torch.float64)
        self._defaults[name] = default

    def move(self, moves: Moves) -> None:
        """Do to the rows what an eviction does to the tokens. Applying it twice changes nothing."""
        for column in self._columns.values():
            column[moves.target] = column[moves.source]
        self.length = moves.length

    def replace(self, row: int, facts: Rows, index: int) -> None:
        """Put another token's facts (of one row) in the place of a row; its scores are the defaults."""
        for name in Rows.__slots__:
            self._columns[name][row] = getattr(facts, name)[0]
        self._columns["home"][row] = facts.position[0]
        self._columns["index"][row] = index
        for name, default in self._defaults.items():
            self._columns[name][row] = default

    def truncate(self, length: int) -> None:
        """Forget the rows from `length` on."""
        self.length = length

    def clone(self) -> Ledger:
        """An independent copy, for layers that part."""
        twin = object.__new__(Ledger)
        twin.length, twin._capacity = self.length, self._capacity
        twin._columns = {name: column.clone() for name, column in self._columns.items()}
        twin._defaults = dict(self._defaults)
        return twin

    def _grow(self, needed: int) -> None:
        if needed <= self._capacity:
            return
        self._capacity = max(needed, self._capacity * 3 // 2)
        for name, column in self._columns.items():
            larger = torch.empty((self._capacity, *column.shape[1:]), dtype=column.dtype)
            larger[: self.length] = column[: self.length]
            self._columns[name] = larger
