"""Which rows an eviction moves."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longtake.kv.moves import Moves


def ordered_gather(table: list[int], keep: list[int]) -> list[int]:
    """The slow and obvious eviction."""
    return [table[i] for i in keep]


def carry_out(table: list[int], moves: Moves) -> list[int]:
    after = list(table)
    for source, target in zip(moves.source.tolist(), moves.target.tolist(), strict=True):
        after[target] = table[source]
    return after


@given(st.integers(1, 80).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_filling_holes_keeps_the_rows_that_a_gather_keeps(case: tuple[int, set[int]]) -> None:
    """Seen to fail with sources taken in front of the cut."""
    length, kept = case
    keep = sorted(kept)
    table = list(range(100, 100 + length))
    moves = Moves.filling_holes(torch.tensor(keep, dtype=torch.int64), length)
    after = carry_out(table, moves)
    assert sorted(after[: moves.length]) == ordered_gather(table, keep)
    assert carry_out(after, moves)[: moves.length] == after[: moves.length], "repeating the moves must change nothing"
    assert len(moves.source) <= length - len(keep), "no more rows are moved than are evicted"


@pytest.mark.parametrize("keep", [[1, 0], [2, 2], [0, 5], [-1, 2]])
def test_rows_that_are_unsorted_repeated_or_absent_are_refused(keep: list[int]) -> None:
    with pytest.raises(ValueError, match="sorted, unique and within"):
        Moves.filling_holes(torch.tensor(keep), 5)
