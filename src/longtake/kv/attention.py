"""The one attention function: right-aligned causal over whatever rows each layer holds."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from longtake.kv.reading import Reading

NAME = "longtake"
"""The name under which the function is registered with the library."""
FOLDED_ROWS = 512
"""Up to so many rows the query heads of a group are folded on the CPU; beyond, the bias of the fold costs more time
than reading the keys once saves, and much memory."""


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    reading: Reading | None = None,
    queries: dict[int, Tensor] | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Softmax attention of the newest Q rows over all K rows held, causal among the newest.

    The last Q of the K rows are the queries' own; each query sees all older rows, the own rows before it,
    and itself. K may differ from layer to layer, and no mask tensor is passed along. The order of the
    older rows does not matter.

    Args:
        query: [1, heads, Q, dim]. key, value: [1, kv_heads, K, dim], K >= Q, keys already rotated.
        reading: records where packed prompts look, and has its own rule of which of the newest rows see each other.
        queries: takes down the queries [heads, Q, dim] of each decoder layer.

    Returns:
        ([1, Q, heads, dim], None), as the library expects.

    Raises:
        ValueError: for a batch above one, a mask, a sliding window, dropout, or a module that is not a
            decoder layer (a vision tower must keep its own attention: this one is causal).
    """
    if not hasattr(module, "layer_idx"):
        raise ValueError(f"{type(module).__name__} is no decoder layer; set '{NAME}' on the text model alone")
    if query.shape[0] != 1:
        raise ValueError("one stream per call: a batch above one would need padding, which is not supported")
    if attention_mask is not None:
        raise ValueError("an attention mask was passed; a stream is never padded and needs none")
    if getattr(module, "sliding_window", None) is not None:
        raise ValueError("sliding-window attention is not supported; which rows stay is the policy's decision")
    if dropout:
        raise ValueError("dropout in attention is for training; put the model into eval mode")
    if queries is not None:
        queries[cast(int, module.layer_idx)] = query[0]
    grouped = query.shape[1] != key.shape[1]
    rows, held = query.shape[2], key.shape[2]
    if reading is not None:
        output = reading.attend(cast(int, module.layer_idx), query, key, value, scaling)
    elif grouped and rows < held and rows <= FOLDED_ROWS and query.device.type == "cpu":
        output = _attend_grouped(query, key, value, scaling)
    else:
        output = scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=causal_lower_right(rows, held) if 1 < rows < held else None,
            is_causal=1 < rows == held,
            scale=scaling,
            enable_gqa=grouped,
        )
    return output.transpose(1, 2).contiguous(), None


def _attend_grouped(query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
    """The same for grouped query heads on the CPU, whose kernel would read each key once per query head.

    The query heads of a group become rows of one head, so that keys and values are read once per group.
    """
    (_, heads, rows, dim), (groups, held) = query.shape, key.shape[1:3]
    bias = None
    if rows > 1:
        bias = query.new_zeros(rows, held)
        bias[:, held - rows :].masked_fill_(torch.ones(rows, rows, dtype=torch.bool).triu(1), float("-inf"))
        bias = bias.repeat(heads // groups, 1)
    folded = query.reshape(1, groups, heads // groups * rows, dim)
    output = scaled_dot_product_attention(folded, key, value, attn_mask=bias, scale=scaling)
    return output.reshape(1, heads, rows, dim)


def refuse_padding(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> None:
    """The mask that goes with `attend`: none at all.

    Registered because the library would otherwise skip mask making and drop a padding mask in silence.

    Raises:
        ValueError: when a 2-D mask [batch, n] marks any token as padding.
    """
    if attention_mask is not None and not bool(attention_mask.all()):
        raise ValueError("the attention mask marks padding; a stream takes one unpadded sequence per call")


def install(model: PreTrainedModel) -> None:
    """Give the text model of `model` this attention; the vision tower keeps the library's own."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, refuse_padding)
    model.set_attn_implementation({"text_config": NAME})
    vision = getattr(model.config, "vision_config", None)
    if vision is not None and vision._attn_implementation == NAME:
        raise RuntimeError("the vision tower was switched to causal attention; the library's rules have changed")
