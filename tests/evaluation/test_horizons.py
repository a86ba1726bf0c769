"""Half-lives are what the gates say, and the recurrence obeys."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from longtake.backbones.backbone import Backbone
from longtake.engine import Engine
from longtake.errors import LongtakeError
from longtake.evaluation.horizons import Horizons, measure, rank_correlations
from longtake.video.frame import Frame
from models import noise


def frames(count: int) -> list[Frame]:
    return [Frame(i / 2, image) for i, image in enumerate(noise(count, seed=9))]


def test_a_half_life_is_ln_2_over_the_mean_rate_of_the_gates(backbone: Backbone) -> None:
    """Hooked once more here, on the layers themselves, over one forward of the whole stream."""
    from longtake.policies.full import Full

    rates: list[torch.Tensor] = []
    layers = [la.linear_attn for la in backbone.language_model.layers if hasattr(la, "linear_attn")]
    sums = [torch.zeros(layer.num_v_heads, dtype=torch.float64) for layer in layers]

    def listen(number: int) -> object:
        def hear(_: object, __: object, output: torch.Tensor) -> None:
            layer = layers[number]
            gate = layer.A_log.exp() * torch.nn.functional.softplus(output[0] + layer.dt_bias)
            sums[number] += gate.sum(dim=0).double()

        return hear

    session = Engine(backbone).open(Full())
    handles = [layer.in_proj_a.register_forward_hook(listen(i)) for i, layer in enumerate(layers)]
    for frame in frames(16):
        session.push(frame.image, frame.time)
    for handle in handles:
        handle.remove()
    rates = [total / 8.0 for total in sums]
    found = measure(backbone, "noise", frames(16))
    assert found.seconds == 8.0
    assert found.half_life.shape == (len(layers), layers[0].num_v_heads)
    expected = [[math.log(2) / float(rate) for rate in layer] for layer in rates]
    assert np.allclose(found.half_life, expected, rtol=1e-4)
    assert not any(number in backbone.attention_layers for number in found.layers)


def test_ranks_alone_count() -> None:
    half = np.array([[1.0, 2.0], [3.0, 4.0]])
    one, scaled, turned = (Horizons(name, 1.0, (0, 1), h) for name, h in (("a", half), ("b", half**3), ("c", -half)))
    correlations = rank_correlations([one, scaled, turned])
    assert correlations["a", "b"] == pytest.approx(1.0)
    assert correlations["a", "c"] == pytest.approx(-1.0)


def test_what_has_no_horizon_is_told(toy: Backbone, full_attention: Backbone) -> None:
    with pytest.raises(LongtakeError, match="hybrid"):
        measure(full_attention, "noise", frames(4))
    with pytest.raises(LongtakeError, match="first second"):
        measure(toy, "noise", frames(1))
