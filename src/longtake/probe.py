"""Looking at what a stream holds through the eyes of a text, without leaving a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor

from longtake.backbones.backbone import Backbone, Cursor, Segment
from longtake.kv.ledger import Rows
from longtake.kv.reading import Reading
from longtake.memory import Memory

Guidance = Literal["forward", "embedding"]


class Probe:
    """What a policy may ask of the model about one stream. Each look is rolled back.

    Args:
        backbone: the loaded model.
        memory: the stream's own.
        cursor: gives the stream's present cursor; a prompt stands where a question would begin.
    """

    def __init__(self, backbone: Backbone, memory: Memory, cursor: Callable[[], Cursor]) -> None:
        self._backbone, self._memory, self._cursor = backbone, memory, cursor

    @property
    def longest(self) -> int:
        """Positions that the model was trained for."""
        return self._backbone.longest

    @property
    def advancing_axes(self) -> Sequence[int]:
        """Position axes on which the stream advances."""
        return self._backbone.advancing_axes

    def ids(self, text: str) -> list[int]:
        """Token ids of a text."""
        return self._backbone.ids(text)

    @property
    def turn(self) -> list[int]:
        """Token ids of the chat template from the end of a question to the begin of its answer."""
        return self._backbone.ids(self._backbone.prompt.after_question)

    @torch.no_grad()
    def attention(self, prompts: Sequence[Sequence[int]], guidance: Guidance = "forward") -> list[list[Tensor]]:
        """Where prompts look: for each attention layer and prompt [rows held] float32, on the CPU.

        A softmax over all that the prompt sees, averaged over query heads and the prompt's tokens; the columns of
        the prompt itself are left out.

        Args:
            prompts: token ids of each. One with which another begins costs nothing beside that one.
            guidance: "forward" runs the model on the prompts, in one pass, or in one for each where recurrent
                states would carry one prompt into the next. "embedding" gives each attention layer the prompts' word
                embeddings instead of hidden states, and no causal order.
        """
        blocks, places = _pack(prompts) if guidance == "forward" else _apart(prompts)
        apart = guidance == "forward" and self._backbone.has_recurrent_states
        numbers = range(len(blocks))
        found: list[dict[int, Tensor]] = [{} for _ in self._memory.slabs]
        for together in [[number] for number in numbers] if apart else [numbers]:
            ends = accumulate(len(blocks[number]) for number in together)
            start = {number: end - len(blocks[number]) for number, end in zip(together, ends, strict=True)}
            ranges = {i: (start[b], start[b] + n) for i, (b, n) in enumerate(places) if b in start}
            pack = [blocks[number] for number in together]
            reading = Reading([len(block) for block in pack], list(ranges.values()), causal=guidance == "forward")
            self._run(pack, reading, guidance)
            for layer, number in zip(found, self._backbone.attention_layers, strict=True):
                layer.update(zip(ranges, (seen.cpu() for seen in reading.attention[number]), strict=True))
        return [[layer[i] for i in range(len(prompts))] for layer in found]

    def _run(self, pack: Sequence[Sequence[int]], reading: Reading, guidance: Guidance) -> None:
        parts = [self._backbone.text(block, replace(self._cursor())) for block in pack]
        rows = Rows.joined([part.rows for part in parts])
        segment = Segment(torch.cat([part.embeddings for part in parts], dim=1), rows, {"reading": reading})
        run = self._backbone.forward if guidance == "forward" else self._backbone.look
        with self._memory.untraced(), self._memory.appending(rows) as cache:
            run(segment, cache)


def _pack(prompts: Sequence[Sequence[int]]) -> tuple[list[Sequence[int]], list[tuple[int, int]]]:
    """The prompts that no other begins with, and of each prompt its block and its number of rows there."""
    blocks: list[Sequence[int]] = []
    for prompt in sorted(prompts, key=len, reverse=True):
        if not any(list(block[: len(prompt)]) == list(prompt) for block in blocks):
            blocks.append(prompt)
    home = [next(i for i, block in enumerate(blocks) if list(block[: len(p)]) == list(p)) for p in prompts]
    return blocks, [(block, len(prompt)) for block, prompt in zip(home, prompts, strict=True)]


def _apart(prompts: Sequence[Sequence[int]]) -> tuple[list[Sequence[int]], list[tuple[int, int]]]:
    return list(prompts), [(number, len(prompt)) for number, prompt in enumerate(prompts)]
