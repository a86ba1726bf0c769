"""The benchmark's own claims that do not depend on time, at sizes too small for the times to mean anything."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import pytest
import torch

from benchmarks import chunk_cost, core, soak
from benchmarks.chunk_cost import ChunkCost
from benchmarks.machine import Machine, available_bytes, resident_bytes
from benchmarks.printing import goals_table
from benchmarks.real_shape import PERIOD, QWEN35_9B, TINY, layers_that_fit, needed_bytes, parameters
from benchmarks.soak import Soak
from benchmarks.timing import Spread, Stopwatch
from models import random_backbone

ROUNDS = 3


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def cost(request: pytest.FixtureRequest) -> ChunkCost:
    return chunk_cost.measure(TINY, PERIOD, request.param, ROUNDS)


@pytest.fixture(scope="module")
def run() -> Soak:
    return soak.measure(random_backbone(), budget=128, chunks=20, blocks=1, frames=8, block=1, turns=2)


def _spreads(values: Any) -> list[dict[str, float]]:
    """All medians with their ranges in a report, however deep."""
    if not isinstance(values, dict):
        return []
    if "median" in values:
        return [values]
    return [spread for value in values.values() for spread in _spreads(value)]


def test_bytes_held_are_budget_times_bytes_per_token(cost: ChunkCost) -> None:
    # One attention layer: keys and values of two heads of 32.
    assert cost.bytes_per_token == 2 * 2 * 32 * (4 if cost.dtype == "float32" else 2)
    assert cost.held == TINY.budget
    assert cost.kv_bytes == TINY.budget * cost.bytes_per_token
    assert cost.kv_bytes_reserved == cost.reserved_budget_bytes


def test_both_arms_do_the_same_work(cost: ChunkCost) -> None:
    assert cost.agreement < (1e-4 if cost.dtype == "float32" else 5e-2)


def test_shares_are_positive_and_add_up(cost: ChunkCost) -> None:
    spreads = _spreads(asdict(cost))
    assert len(spreads) == 15
    for spread in spreads:
        assert 0 < spread["low"] <= spread["median"] <= spread["high"] < math.inf
        assert spread["rounds"] == ROUNDS
    assert cost.signal_percent.high <= cost.total_percent.high
    assert cost.copy_percent.low < cost.signal_percent.low
    assert cost.drift_percent.low < cost.signal_percent.low


def test_the_plain_loop_stays_at_its_length_and_uses_stock_attention() -> None:
    backbone = chunk_cost.build(TINY, PERIOD, torch.float32)
    session, number = chunk_cost.full_session(backbone)
    plain = chunk_cost.PlainLoop(backbone, session.memory)
    segment = chunk_cost.coming_chunk(backbone, session, number)
    attention = [i for i, kind in enumerate(backbone.text_config.layer_types) if kind == "full_attention"]
    for _ in range(2):
        plain.prepare()
        assert backbone.text_config._attn_implementation == "sdpa"
        plain.step(segment)
        assert plain.cache.get_seq_length(attention[0]) == TINY.budget + TINY.chunk_tokens
        plain.trim()
        assert plain.cache.get_seq_length(attention[0]) == TINY.budget
        assert backbone.text_config._attn_implementation == "longtake"


def test_soak_samples_memory_and_holds_the_budget(run: Soak) -> None:
    assert len(run.resident) == soak.SAMPLES
    assert min(run.resident) > 0
    assert run.growth_percent >= 0
    assert math.isfinite(run.late_to_early)
    assert run.tokens_late >= run.tokens_early > 0
    assert set(run.frames_per_second) == {1, 2}
    for spread in _spreads(asdict(run)):
        assert 0 < spread["low"] <= spread["high"] < math.inf
    # The random model has two attention layers, each with two heads of 32 in float32.
    assert run.kv_bytes == 128 * 2 * 2 * 2 * 32 * 4


def test_report_is_plain_json_and_tables_print(run: Soak, cost: ChunkCost) -> None:
    told = json.loads(json.dumps(core.report(Machine.here(), cost, run)))
    assert set(told) == {"machine", "slice", "toy"}
    assert len(told["slice"]["goals"]) == 5
    assert len(told["toy"]["goals"]) == 1
    assert {"promise", "found", "met"} == set(told["toy"]["goals"][0])
    assert told["machine"]["torch"] == torch.__version__
    assert core.slice_table(cost).row_count > 10
    assert core.toy_table(run).row_count > 5
    assert goals_table(cost.goals() + run.goals()).row_count == 6
    assert set(core.report(Machine.here(), None, run)) == {"machine", "toy"}


def test_real_shape_is_the_published_one() -> None:
    assert QWEN35_9B.chunk_tokens == 128
    # 24 linear and 8 attention layers, written out: the dense part, the projections, convolution, gates and norms.
    dense = 3 * 4096 * 12288 + 2 * 4096
    linear = 4096 * (2 * 2048 + 4096) + 2 * 4096 * 4096 + 2 * 32 * 4096 + 4 * 8192 + 2 * 32 + 128
    full = 4096 * 2 * 4096 + 2 * 4096 * 1024 + 4096 * 4096 + 2 * 256
    assert parameters(QWEN35_9B, 32) == 32 * dense + 24 * linear + 8 * full
    # The paper: about 256 MiB at 8,192 tokens in bfloat16.
    assert 8192 * QWEN35_9B.bytes_per_token(32, torch.bfloat16) == 256 * 2**20


def test_layers_are_chosen_by_memory() -> None:
    four, eight = (needed_bytes(QWEN35_9B, n, torch.float32) for n in (4, 8))
    assert layers_that_fit(QWEN35_9B, torch.float32, eight) == 8
    assert layers_that_fit(QWEN35_9B, torch.float32, eight - 1) == 4
    assert layers_that_fit(QWEN35_9B, torch.float32, four - 1) == 4
    assert available_bytes() > 0
    assert resident_bytes() > 0


def test_spread_pairs_rounds() -> None:
    spread = Spread.of_ratios([2.0, 40.0, 9.0], [1.0, 10.0, 3.0], 100)
    assert (spread.median, spread.low, spread.high, spread.rounds) == (300, 200, 400, 3)
    assert spread.text(1, " %") == "300.0 % (200.0 - 400.0)"


def test_stopwatch_adds_up_and_begins_anew() -> None:
    class Work:
        def do(self, value: int) -> int:
            return value + 1

    work, watch = Work(), Stopwatch()
    watch.watch(work, "do", "work")
    assert work.do(1) == 2
    first = watch.take()
    assert first["work"] > 0
    assert watch.take() == {}
