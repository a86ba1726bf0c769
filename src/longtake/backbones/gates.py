"""The gates of gated-delta layers: what a forward wrote into their recurrent states, and what it let fade."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from longtake.backbones.backbone import Backbone
from longtake.memory import LINEAR


@dataclass(slots=True)
class Gates:
    """One linear layer's gates over the n tokens of a forward, formed as the library's layer forms them.

    S_t = alpha_t S_(t-1) + k_t u_t^T with u_t = beta_t (v_t - alpha_t S_(t-1)^T k_t): alpha lets fade, beta lets in,
    and v - alpha S^T k, the residual, is what the state did not know yet (DeltaS, section 3.1).
    """

    _layer: Any
    _heard: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def listening(cls, backbone: Backbone) -> Iterator[list[Gates]]:
        """The gates of all linear layers, from the lowest up, over the one forward that runs within."""
        layers = backbone.language_model.layers
        found = [cls(la.linear_attn) for la, kind in zip(layers, backbone.layer_types, strict=True) if kind == LINEAR]
        with ExitStack() as stack:
            for gates in found:
                for name in ("in_proj_qkv", "in_proj_a", "in_proj_b"):
                    handle = getattr(gates._layer, name).register_forward_hook(gates._listener(name))
                    stack.callback(handle.remove)
            yield found

    def _listener(self, name: str) -> Any:
        def hear(_: object, __: object, output: Tensor) -> None:
            self._heard[name] = output[0].detach()

        return hear

    @property
    def log_decay(self) -> Tensor:
        """log(alpha) [n, value heads] float32, 0 or less."""
        layer = self._layer
        decay: Tensor = -layer.A_log.float().exp() * F.softplus(self._heard["in_proj_a"].float() + layer.dt_bias)
        return decay

    @property
    def beta(self) -> Tensor:
        """The write gate [n, value heads], 0 to 1."""
        return self._heard["in_proj_b"].sigmoid()

    def keys_and_values(self, conv: Tensor | None) -> tuple[Tensor, Tensor]:
        """Unit keys [n, value heads, dk] and values [n, value heads, dv], float32.

        Args:
            conv: the convolution state [1, channels, kernel] from before the forward, None where there was none.
        """
        layer, mixed = self._layer, self._heard["in_proj_qkv"].T[None]
        count, kernel = mixed.shape[2], layer.conv_kernel_size
        past = mixed.new_zeros(1, mixed.shape[1], kernel) if conv is None else conv
        inputs = torch.cat((past, mixed), dim=2)[:, :, -(count + kernel - 1) :]
        turned = F.silu(F.conv1d(inputs, layer.conv1d.weight, layer.conv1d.bias, groups=layer.conv_dim))[0].T.float()
        _, key, value = turned.split((layer.key_dim, layer.key_dim, layer.value_dim), dim=1)
        key = key.view(count, layer.num_k_heads, layer.head_k_dim)
        key = key * torch.rsqrt((key * key).sum(dim=-1, keepdim=True) + 1e-6)
        return (
            key.repeat_interleave(layer.num_v_heads // layer.num_k_heads, dim=1),
            value.view(count, layer.num_v_heads, layer.head_v_dim),
        )

    @torch.no_grad()
    def writes(self, state: Tensor | None, conv: Tensor | None) -> Tensor:
        """beta * residual, u [n, value heads, dv] float32: what each token wrote, all in one triangular solve.

        Args:
            state: the recurrent state [1, value heads, dk, dv] from before the forward, None where it was empty.
            conv: see `keys_and_values`.
        """
        key, value = (x.transpose(0, 1) for x in self.keys_and_values(conv))  # [heads, n, d]
        beta = self.beta.float().T[..., None]
        fading = self.log_decay.T.cumsum(dim=1)
        count = key.shape[1]
        later = torch.ones(count, count, dtype=torch.bool, device=key.device).triu()
        between = (fading[:, :, None] - fading[:, None]).masked_fill(later, float("-inf")).exp()
        known = key.new_zeros(value.shape)
        if state is not None:
            known = (key * fading.exp()[..., None]) @ state[0].to(key)
        system = beta * (key @ key.transpose(1, 2)) * between
        solved: Tensor = torch.linalg.solve_triangular(system, beta * (value - known), upper=False, unitriangular=True)
        return solved.transpose(0, 1)
