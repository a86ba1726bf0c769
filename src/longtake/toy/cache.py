"""A stream in the library's plain cache, and answers from it with parts of it taken away. For evaluation only."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, Qwen3_5ForConditionalGeneration

from longtake.toy.script import Script
from longtake.toy.streams import Stream, embed


@dataclass(frozen=True, slots=True)
class Held:
    """What the model holds of B streams of equal layout.

    next_position: where the next token goes, on all axes. spans: the [start, end) token indices of each chunk.
    drift [B, chunks]: how far each chunk moved the recurrent states, relative to their size, averaged over layers;
    empty when the stream was read in one go.
    """

    cache: DynamicCache
    next_position: int
    spans: tuple[tuple[int, int], ...]
    drift: Tensor


@torch.no_grad()
def read(
    model: Qwen3_5ForConditionalGeneration, script: Script, streams: Sequence[Stream], chunkwise: bool = False
) -> Held:
    """Fill a cache with streams that have the same tokens (not the same features), whole or chunk by chunk."""
    embeddings, axes = embed(model, streams, script.video_id)
    ids = streams[0].ids
    ends = ((ids[:-1] == script.video_id) & (ids[1:] != script.video_id)).nonzero().flatten() + 2
    starts = [len(script.opening), *ends[:-1].tolist()]
    spans = tuple(zip(starts, ends.tolist(), strict=True))
    cache = DynamicCache(config=model.config.get_text_config())
    cuts = [(0, starts[0]), *spans] if chunkwise else [(0, len(ids))]
    drift = []
    for start, end in cuts:
        before = [state.clone() for state in _states(cache)]
        model.model.language_model(
            inputs_embeds=embeddings[:, start:end],
            position_ids=axes[:, :, start:end],
            cache=cache,
            use_cache=True,
        )
        if before:
            moves = [
                (new - old).flatten(1).norm(dim=1) / old.flatten(1).norm(dim=1).clamp_min(1e-6)
                for old, new in zip(before, _states(cache), strict=True)
            ]
            drift.append(torch.stack(moves).mean(dim=0))
    empty = torch.zeros(len(streams), 0)
    return Held(cache, int(axes[:, 0].max()) + 1, spans, torch.stack(drift, dim=1) if drift else empty)


@torch.no_grad()
def answer(
    model: Qwen3_5ForConditionalGeneration,
    script: Script,
    held: Held,
    row: int,
    questions: Sequence[str],
    keep: Tensor | None = None,
    zero_states: bool = False,
) -> list[int]:
    """The word (its id) that the model answers to each question about stream `row`, asked on its own.

    keep: indices of the tokens whose keys and values remain, None for all. zero_states: forget the recurrent states.
    """
    pieces = [script.turns([(question, None)]) for question in questions]
    longest = max(len(piece) for piece in pieces)
    ids = torch.tensor([piece + [0] * (longest - len(piece)) for piece in pieces])
    place = (torch.arange(longest) + held.next_position).expand(3, len(pieces), -1)
    cache = _fork(model, held.cache, row, len(pieces), keep, zero_states)
    hidden = model.model.language_model(
        inputs_embeds=model.get_input_embeddings()(ids), position_ids=place, cache=cache, use_cache=True
    ).last_hidden_state
    last = torch.tensor([len(piece) - 1 for piece in pieces])
    words = model.lm_head(hidden[torch.arange(len(pieces)), last]).argmax(dim=-1)
    return [int(word) for word in words]


def _states(cache: DynamicCache) -> list[Tensor]:
    layers: Iterator[Any] = (layer for layer in cache.layers if hasattr(layer, "recurrent_states"))
    return [layer.recurrent_states[0] for layer in layers if layer.recurrent_states[0] is not None]


def _fork(
    model: Qwen3_5ForConditionalGeneration,
    cache: DynamicCache,
    row: int,
    copies: int,
    keep: Tensor | None,
    zero_states: bool,
) -> DynamicCache:
    fork = DynamicCache(config=model.config.get_text_config())
    rows = torch.full((copies,), row)
    old: Any
    new: Any
    for old, new in zip(cache.layers, fork.layers, strict=True):
        if hasattr(old, "recurrent_states"):
            conv, state = (x[0].index_select(0, rows) for x in (old.conv_states, old.recurrent_states))
            factor = 0.0 if zero_states else 1.0
            new.update_conv_state(conv * factor, conv_kernel_size=conv.shape[-1])
            new.update_recurrent_state(state * factor)
        else:
            keys, values = (x[row : row + 1] for x in (old.keys, old.values))
            if keep is not None:
                keys, values = keys[:, :, keep], values[:, :, keep]
            new.update(keys.expand(copies, -1, -1, -1), values.expand(copies, -1, -1, -1))
    return fork
