"""Reading the attention that prompts pay to what is held, while a forward runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Reading:
    """Attention for one forward over packed prompts, which records where they look.

    The forward's Q new rows are blocks, one after the other. A row sees all rows held before, and the own block up to
    itself; blocks do not see each other, so several prompts go through the model in one pass as if each were alone.
    A prompt is a range of new rows; a prompt with which another begins needs no block of its own.

    Args:
        blocks: rows of each block.
        prompts: [start, end) rows of each prompt, each within a block.
        causal: without it a row sees its whole block.
    """

    def __init__(self, blocks: Sequence[int], prompts: Sequence[tuple[int, int]], causal: bool = True) -> None:
        number = torch.repeat_interleave(torch.arange(len(blocks)), torch.tensor(blocks))
        self._hidden = number[:, None] != number[None]
        if causal:
            self._hidden |= torch.ones_like(self._hidden).triu(1)
        self._prompts = prompts
        self.attention: dict[int, list[Tensor]] = {}
        """By decoder layer: for each prompt [K] float32, softmax probabilities of the K rows held before, averaged over
        query heads and the prompt's rows. They are a part of the whole: the rest went to the prompt itself."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """The attention's output [1, heads, Q, dim]. Takes what `longtake.kv.attention.attend` takes.

        Raises:
            ValueError: when Q is not the number of rows of all blocks.
        """
        (_, heads, rows, dim), (groups, total) = query.shape, key.shape[1:3]
        if rows != len(self._hidden):
            raise ValueError(f"{rows} new rows for blocks of {len(self._hidden)} rows in all")
        held, fold = total - rows, heads // groups
        scale = dim**-0.5 if scaling is None else scaling
        hidden = self._hidden.to(query.device)
        seen = query.new_zeros(len(self._prompts), held, dtype=torch.float32)
        output = torch.empty_like(query)
        # One group of query heads at a time, so that the scores of one are all that is in memory.
        for group in range(groups):
            mine = slice(group * fold, (group + 1) * fold)
            scores = ((query[0, mine] * scale) @ key[0, group].T).float()
            scores[..., held:].masked_fill_(hidden, float("-inf"))
            weights = scores.softmax(dim=-1)
            together = weights[..., :held].sum(dim=0)
            for number, (start, end) in enumerate(self._prompts):
                seen[number] += together[start:end].sum(dim=0) / (heads * (end - start))
            output[0, mine] = weights.to(value.dtype) @ value[0, group]
        self.attention[layer] = list(seen)
        return output
