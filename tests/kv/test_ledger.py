"""The ledger against a list of rows."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.kv.ledger import Kind, Ledger, Rows
from longtake.kv.moves import Moves


def rows(count: int, first: int) -> Rows:
    """Facts that all spell the token's number."""
    number = torch.arange(first, first + count)
    return Rows(
        position=torch.stack([number, number + 1, number + 2], dim=1),
        time=number.double(),
        chunk=number // 3,
        frame=number // 2,
        patch=number % 5,
        kind=torch.full((count,), int(Kind.VISUAL)),
    )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_column_moves_with_its_token(data: st.DataObject) -> None:
    """Seen to fail with a column left out of `move`."""
    ledger, first = Ledger(3), 0
    ledger.add_score("score", -1.0)
    for _ in range(data.draw(st.integers(1, 10))):
        count = data.draw(st.integers(1, 7))
        ledger.append(rows(count, first), first)
        assert (ledger["score"][-count:] == -1.0).all(), "new rows start at the column's default"
        ledger["score"][-count:] = ledger["time"][-count:] * 2
        first += count
        keep = sorted(data.draw(st.sets(st.integers(0, len(ledger) - 1), min_size=1)))
        kept = set(ledger["index"][keep].tolist())
        moves = Moves.filling_holes(torch.tensor(keep), len(ledger))
        ledger.move(moves)
        ledger.move(moves)
        index = ledger["index"]
        assert set(index.tolist()) == kept
        expected = rows(first, 0)
        for name in Rows.__slots__:
            assert torch.equal(ledger[name], getattr(expected, name)[index]), name
        assert torch.equal(ledger["score"], index.double() * 2)


def test_a_clone_goes_its_own_way() -> None:
    ledger = Ledger(3)
    ledger.append(rows(4, 0), 0)
    twin = ledger.clone()
    twin.truncate(2)
    twin["time"][:] = -5.0
    assert ledger["time"].tolist() == [0, 1, 2, 3]
