"""Greedy decoding and text in pieces, without a model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from hypothesis import given
from hypothesis import strategies as st

from longtake.decoding import Spelling, greedy


def one_hot(token: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(token), 10).float()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 12))
def test_greedy_follows_the_largest_logit_until_it_stops(tokens: list[int], limit: int) -> None:
    """A model that says `tokens` in turn; 9 is the stop token."""
    taken: list[int] = []

    def advance(token: int) -> torch.Tensor:
        taken.append(token)
        return one_hot(tokens[len(taken)] if len(taken) < len(tokens) else 9)

    said = list(greedy(one_hot(tokens[0]), advance, {9}, limit))
    script = [*tokens, 9]
    expected = script[: script.index(9) + 1][:limit]
    assert said == expected
    assert taken == expected[:-1], "the last token is never fed back"


def from_bytes(ids: Sequence[int]) -> str:
    return bytes(ids).decode(errors="replace")


@given(st.text(max_size=12))
def test_pieces_are_whole_characters_and_add_up(text: str) -> None:
    """Seen to fail without holding back what ends in half a character."""
    spelling = Spelling(from_bytes)
    pieces = [spelling.add(byte) for byte in text.encode()] + [spelling.rest()]
    assert "".join(pieces) == text == spelling.text
    if "\N{REPLACEMENT CHARACTER}" not in text:
        assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)
