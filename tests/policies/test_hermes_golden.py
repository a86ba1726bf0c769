"""HERMES against arrays of its own code: the same tokens, keys, values and positions, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from longtake.kv.ledger import Kind, Rows
from longtake.kv.rotary import KeyRotation
from longtake.memory import FULL, Memory
from longtake.policies.hermes import HermesLlava

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
CASES = ("hermes_lazy_below_limit", "hermes_lazy_over_limit", "hermes_28_layers")
pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the reference arrays are not part of the project")


class Rotary(nn.Module):
    """Plain rotary angles of the reference's own base."""

    def __init__(self, base: float, dim: int) -> None:
        super().__init__()
        self.inv_freq = 1.0 / base ** (torch.arange(0, dim, 2).float() / dim)

    def forward(self, _: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        angles = ids[..., None].float() * self.inv_freq
        both = torch.cat((angles, angles), dim=-1)
        return both.cos(), both.sin()


class Recorded:
    """Stands for the model: hands out the recorded attention of the step."""

    def __init__(self, case: Any) -> None:
        self.case, self.step = case, 0
        self.longest = int(case["max_position"])
        self.memory: Memory | None = None

    def ids(self, text: str) -> list[int]:
        return [len(text)]

    def attention(self, prompts: list[list[int]], guidance: str) -> list[list[Tensor]]:
        """Means over heads and the prompt's rows of the columns held; the order of rows is the cache's by index."""
        assert self.memory is not None
        names = ("mixed", "global")
        found = []
        for layer, ledger in enumerate(self.memory.ledgers):
            order = torch.argsort(ledger["index"])
            looks = []
            for name in names[: len(prompts)]:
                attn = torch.from_numpy(self.case[f"s{self.step}_attn_{name}{layer}"])
                paid = torch.empty(len(ledger))
                paid[order] = attn.mean(dim=(0, 1))[: len(ledger)]
                looks.append(paid)
            found.append(looks)
        return found


def append(memory: Memory, layer: int, keys: Tensor, values: Tensor, position: Tensor, kind: Kind) -> None:
    """Rows of one layer alone: the recorded layers drift apart by a position or two."""
    count = len(position)
    none = torch.full((count,), -1)
    memory.slabs[layer].reserve(memory.slabs[layer].length + count)
    memory.slabs[layer].update(keys[None], values[None])
    rows = Rows(
        position[:, None], torch.zeros(count, dtype=torch.float64), none, none, none, torch.full((count,), int(kind))
    )
    memory.ledgers[layer].append(rows, memory._next_index)


def in_order(memory: Memory, layer: int) -> tuple[Tensor, Tensor, Tensor]:
    order = torch.argsort(memory.ledgers[layer]["index"])
    slab = memory.slabs[layer]
    return slab.keys[0][:, order], slab.values[0][:, order], memory.ledgers[layer]["position"][order, 0]


@pytest.mark.parametrize("name", CASES)
def test_every_step_is_that_of_the_reference_code(name: str) -> None:
    """Seen to fail with k_middle 0.6, with raw smoothing, with a summary of one position less, without compaction."""
    case = np.load(GOLDEN / f"{name}.npz")
    layers, prefix, steps = (int(case[key]) for key in ("layers", "prefix", "steps"))
    dim = case["s0_k0"].shape[-1]
    memory = Memory([FULL] * layers, 1, KeyRotation(Rotary(float(case["rope_base"]), dim), 1))
    memory.ledgers = [memory.ledgers[0].clone() for _ in range(layers)]
    policy, probe = HermesLlava(budget=int(case["budget"])), Recorded(case)
    probe.memory = memory
    policy.begin(memory, probe)  # type: ignore[arg-type]
    for step in range(steps):
        probe.step = step
        new = 0
        for layer in range(layers):
            k, v = (torch.from_numpy(case[f"s{step}_{part}{layer}"]) for part in ("k", "v"))
            position = torch.from_numpy(case[f"s{step}_pos{layer}"])
            held = memory.slabs[layer].length
            if step == 0:
                append(memory, layer, k[:, :prefix], v[:, :prefix], position[:prefix], Kind.SYSTEM)
                held = prefix
            append(memory, layer, k[:, held:], v[:, held:], position[held:], Kind.VISUAL)
            if step == 0:
                memory.ledgers[layer]["index"].copy_(torch.arange(len(position)))
            new = len(position) - (0 if step == 0 else held)
        memory.seen += new
        memory._next_index += new
        before = [torch.argsort(ledger["index"]) for ledger in memory.ledgers]
        keep = policy.keep(memory)
        assert keep is not None
        for layer, rows in enumerate(keep.layers):
            place = torch.empty_like(before[layer])
            place[before[layer]] = torch.arange(len(place))
            assert place[rows].sort().values.tolist() == case[f"s{step}_keep{layer}"].tolist()
        memory.evict(keep)
        positions = policy.positions(memory)
        if positions is not None:
            memory.reindex(positions)
        for layer in range(layers):
            keys, values, position = in_order(memory, layer)
            assert position.tolist() == case[f"s{step}_out_pos{layer}"].tolist()
            torch.testing.assert_close(keys, torch.from_numpy(case[f"s{step}_out_k{layer}"]), atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(values, torch.from_numpy(case[f"s{step}_out_v{layer}"]), atol=1e-5, rtol=1e-5)
