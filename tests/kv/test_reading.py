"""The attention for packed prompts against softmax written out, block by block."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.kv.reading import Reading


def written_out(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, blocks: list[int], causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output [heads, Q, dim] and probabilities [heads, Q, K], row by row."""
    share, held = query.shape[1] // key.shape[1], key.shape[2] - query.shape[2]
    output, weights = torch.zeros_like(query[0]), torch.zeros(query.shape[1], query.shape[2], key.shape[2])
    start = 0
    for length in blocks:
        for row in range(start, start + length):
            last = row + 1 if causal else start + length
            visible = [*range(held), *range(held + start, held + last)]
            for head in range(query.shape[1]):
                scores = key[0, head // share, visible] @ query[0, head, row] * 0.3
                weights[head, row, visible] = scores.softmax(0)
                output[head, row] = scores.softmax(0) @ value[0, head // share, visible]
        start += length
    return output, weights


@settings(deadline=None, max_examples=40)
@given(
    blocks=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    held=st.integers(0, 9),
    kv_heads=st.sampled_from([1, 2, 4]),
    causal=st.booleans(),
)
def test_each_block_attends_as_if_alone(blocks: list[int], held: int, kv_heads: int, causal: bool) -> None:
    rows = sum(blocks)
    generator = torch.Generator().manual_seed(rows * 10 + held)
    query = torch.randn(1, 4, rows, 8, generator=generator)
    key, value = torch.randn(2, 1, kv_heads, held + rows, 8, generator=generator)
    prompts = [(sum(blocks[:i]), sum(blocks[: i + 1])) for i in range(len(blocks))] + [(0, 1)]
    reading = Reading(blocks, prompts, causal)
    output = reading.attend(7, query, key, value, 0.3)
    expected, weights = written_out(query, key, value, blocks, causal)
    torch.testing.assert_close(output[0], expected, atol=1e-5, rtol=0)
    for (start, end), seen in zip(prompts, reading.attention[7], strict=True):
        torch.testing.assert_close(seen, weights[:, start:end, :held].mean(dim=(0, 1)), atol=1e-6, rtol=0)


def test_other_rows_than_announced_are_refused() -> None:
    states = torch.zeros(1, 2, 5, 4)
    with pytest.raises(ValueError, match="5 new rows for blocks of 4"):
        Reading([4], [(0, 4)]).attend(0, states, states, states, None)
