"""The gated delta rule once more, for training: the library's version costs quadratic time in its backward pass.

It indexes each block of the sequence, and the gradient of every index is a zero tensor of the whole length. Here blocks
are taken apart and put together once. The result is the library's; see the test.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.models.qwen3_5 import modeling_qwen3_5

_BLOCK = 32


def gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    use_qk_l2norm_in_kernel: bool = True,
    **ignored: Any,
) -> tuple[Tensor, None]:
    """One pass over whole sequences from an empty state. query, key: [B, L, heads, dk]; value: [B, L, HV, dv]."""
    assert use_qk_l2norm_in_kernel
    assert ignored.get("initial_state") is None
    batch, length, key_heads, width = key.shape
    heads, value_width = value.shape[-2:]
    blocks = -(-length // _BLOCK)

    def arrange(x: Tensor) -> Tensor:
        """[B, L, HV, ...] to [B * HV, blocks, 32, ...], zeros after the end."""
        x = x.transpose(1, 2).flatten(0, 1)
        x = F.pad(x, (0, 0) * (x.ndim - 2) + (0, blocks * _BLOCK - length))
        return x.reshape(batch * heads, blocks, _BLOCK, *x.shape[2:])

    def unit(x: Tensor) -> Tensor:
        return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True) + 1e-6)

    share = heads // key_heads
    q = arrange((unit(query) * width**-0.5).repeat_interleave(share, dim=2))
    k = arrange(unit(key).repeat_interleave(share, dim=2))
    v = arrange(value)
    b = arrange(beta).unsqueeze(-1)
    decay = arrange(g).cumsum(dim=2)
    later = torch.ones(_BLOCK, _BLOCK, dtype=torch.bool).triu(1)
    pairwise = (decay.unsqueeze(3) - decay.unsqueeze(2)).masked_fill(later, float("-inf")).exp()
    grown = decay.exp().unsqueeze(-1)
    kb = k * b
    system = (kb @ k.transpose(-1, -2)) * pairwise
    # One triangular solve for the written values and for what the old state already predicts of them.
    solved = torch.linalg.solve_triangular(
        system, torch.cat((v * b, kb * grown), dim=-1), upper=False, unitriangular=True
    )
    written, predicted = solved.split((value_width, width), dim=-1)
    fading_keys = (k * (decay[..., -1:] - decay).exp().unsqueeze(-1)).transpose(-1, -2)
    carry = decay[..., -1].exp()[..., None, None]

    state = torch.zeros(batch * heads, width, value_width)
    states, news = [], []
    for w, p, f, c in zip(written.unbind(1), predicted.unbind(1), fading_keys.unbind(1), carry.unbind(1), strict=True):
        new = torch.baddbmm(w, p, state, alpha=-1)
        states.append(state)
        news.append(new)
        state = torch.baddbmm(state * c, f, new)
    attention = (q @ k.transpose(-1, -2)) * pairwise
    out = attention @ torch.stack(news, dim=1) + (q * grown) @ torch.stack(states, dim=1)
    out = out.reshape(batch, heads, blocks * _BLOCK, value_width)[:, :, :length]
    return out.transpose(1, 2).contiguous(), None


@contextmanager
def fast_training() -> Iterator[None]:
    """Within this block the library's linear layers train through the function above."""
    with mock.patch.object(modeling_qwen3_5, "torch_chunk_gated_delta_rule", gated_delta_rule):
        yield
