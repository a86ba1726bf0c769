"""Copies of the recurrent and convolution states of linear-attention layers.

The library writes these states in place, so that a reference taken before a chunk is the state after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers.cache_utils import LinearAttentionLayer


@dataclass(slots=True)
class _Saved:
    conv: Tensor
    recurrent: Tensor
    begun: bool


@dataclass(slots=True)
class StateCopy:
    """A copy of all linear layers' states, in buffers that are allocated once and used again.

    Linear layers hold `conv_states[0]` [1, conv_dim, kernel] in the model's dtype and `recurrent_states[0]`
    [1, value_heads, key_dim, value_dim] in float32; both are None before the first forward.
    """

    _saved: list[_Saved | None] = field(default_factory=list)

    def save(self, layers: Sequence[LinearAttentionLayer]) -> None:
        """Copy the states of `layers` as they are now."""
        if len(self._saved) != len(layers):
            self._saved = [None] * len(layers)
        for i, layer in enumerate(layers):
            conv, recurrent = layer.conv_states[0], layer.recurrent_states[0]
            if conv is None or recurrent is None:
                self._saved[i] = None
                continue
            saved = self._saved[i]
            if saved is None:
                self._saved[i] = _Saved(conv.clone(), recurrent.clone(), layer.has_previous_state[0])
            else:
                saved.conv.copy_(conv)
                saved.recurrent.copy_(recurrent)
                saved.begun = layer.has_previous_state[0]

    def restore(self, layers: Sequence[LinearAttentionLayer]) -> None:
        """Put the states of `layers` back, in place; a layer that had none becomes empty again."""
        for layer, saved in zip(layers, self._saved, strict=True):
            if saved is None:
                layer.reset()
            else:
                conv, recurrent = layer.conv_states[0], layer.recurrent_states[0]
                assert conv is not None
                assert recurrent is not None
                conv.copy_(saved.conv)
                recurrent.copy_(saved.recurrent)
                layer.has_previous_state[0] = saved.begun

    @property
    def conv(self) -> list[Tensor | None]:
        """The saved convolution state of each layer [1, channels, kernel]; None where it was empty."""
        return [None if saved is None or not saved.begun else saved.conv for saved in self._saved]

    @property
    def recurrent(self) -> list[Tensor | None]:
        """The saved recurrent state of each layer [1, value_heads, key_dim, value_dim]; None where it was empty."""
        return [None if saved is None or not saved.begun else saved.recurrent for saved in self._saved]


def recurrent_states(layers: Sequence[LinearAttentionLayer]) -> list[Tensor]:
    """The live recurrent states, each [1, value_heads, key_dim, value_dim] float32. The next forward changes them."""
    return [layer.recurrent_states[0] for layer in layers if layer.recurrent_states[0] is not None]


def state_bytes(layers: Sequence[LinearAttentionLayer]) -> int:
    """Bytes of all recurrent and convolution states; they do not grow with the stream."""
    tensors = [t for layer in layers for t in (layer.conv_states[0], layer.recurrent_states[0])]
    return sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))
