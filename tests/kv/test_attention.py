"""The attention function against softmax written out."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from longtake.kv import attention
from models import FULL_ONLY, HYBRID, stock


def written_out(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float) -> torch.Tensor:
    groups = query.shape[1] // key.shape[1]
    rows, held = query.shape[2], key.shape[2]
    output = torch.zeros_like(query)
    for head in range(query.shape[1]):
        for row in range(rows):
            visible = held - rows + row + 1
            scores = key[0, head // groups, :visible] @ query[0, head, row] * scaling
            output[0, head, row] = scores.softmax(0) @ value[0, head // groups, :visible]
    return output.transpose(1, 2)


@pytest.mark.parametrize("folded", [0, 512])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize(("rows", "held"), [(1, 1), (1, 9), (5, 5), (5, 6), (3, 17), (7, 30)])
def test_it_is_right_aligned_causal_attention(
    rows: int, held: int, kv_heads: int, folded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail with `is_causal=True` for all shapes, which aligns to the left."""
    monkeypatch.setattr(attention, "FOLDED_ROWS", folded)
    generator = torch.Generator().manual_seed(rows * 100 + held)
    query = torch.randn(1, 4, rows, 8, generator=generator)
    key, value = torch.randn(2, 1, kv_heads, held, 8, generator=generator)
    module = SimpleNamespace(layer_idx=0)
    output, weights = attention.attend(module, query, key, value, None, scaling=0.3)  # type: ignore[arg-type]
    assert weights is None
    assert torch.allclose(output, written_out(query, key, value, 0.3), atol=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"query": torch.zeros(2, 2, 3, 4)}, "batch above one"),
        ({"attention_mask": torch.zeros(1, 1, 3, 3)}, "mask was passed"),
        ({"dropout": 0.1}, "dropout"),
        ({"module": SimpleNamespace(layer_idx=0, sliding_window=4)}, "sliding-window"),
        ({"module": SimpleNamespace()}, "no decoder layer"),
    ],
)
def test_what_it_cannot_do_is_refused_in_words(change: dict[str, Any], words: str) -> None:
    states = torch.zeros(1, 2, 3, 4)
    arguments = {"module": SimpleNamespace(layer_idx=0), "query": states, "key": states, "value": states}
    with pytest.raises(ValueError, match=words):
        attention.attend(**{**arguments, "attention_mask": None, **change})


def installed(layers: tuple[str, ...]) -> Any:
    model = copy.deepcopy(stock(layers)[0])
    attention.install(model)
    return model


@pytest.mark.parametrize("layers", [HYBRID, FULL_ONLY])
def test_padding_is_refused_where_the_library_would_ignore_it(layers: tuple[str, ...]) -> None:
    """Seen to fail without the registered mask function: the padded call then runs, wrong and silent."""
    model = installed(layers).model.language_model
    ids = torch.tensor([[5, 6, 7]])
    padded = torch.tensor([[0, 1, 1]])
    with pytest.raises(ValueError, match="padding"):
        model(input_ids=ids, attention_mask=padded)
    model(input_ids=ids, attention_mask=torch.ones_like(padded))
    with pytest.raises(ValueError, match="batch above one"):
        model(input_ids=ids.expand(2, -1))


def test_the_vision_tower_keeps_the_librarys_attention() -> None:
    model = installed(HYBRID)
    assert model.config.text_config._attn_implementation == attention.NAME
    assert model.config.vision_config._attn_implementation == "sdpa"
