"""What the benchmark of HERMES claims apart from times, at sizes too small for the times to mean anything."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import hermes, hermes_cost
from benchmarks.hermes_cost import HermesCost
from benchmarks.hermes_streams import PIECES, HermesStream, Setting, held_tokens, roles, settings
from benchmarks.llava_shape import LLAVA_7B, TINY, build, needed_bytes, parameters
from benchmarks.machine import Machine
from benchmarks.printing import goals_table
from longtake.kv.ledger import Kind
from longtake.policies.signals.guidance import Prompts

ROUNDS, LAYERS = 2, 3


@pytest.fixture(scope="module")
def cost() -> HermesCost:
    return hermes_cost.measure(TINY, LAYERS, torch.float32, ROUNDS)


def _spreads(values: Any) -> list[dict[str, float]]:
    """All medians with their ranges in a report, however deep."""
    if not isinstance(values, dict | tuple):
        return []
    if isinstance(values, dict) and "median" in values:
        return [values]
    inner = values.values() if isinstance(values, dict) else values
    return [spread for value in inner for spread in _spreads(value)]


def test_every_setting_is_measured_in_every_round(cost: HermesCost) -> None:
    spreads = _spreads(asdict(cost))
    assert len(spreads) == 3 + len(settings(TINY)) * (3 + 2 * len(PIECES))
    for spread in spreads:
        assert 0 < spread["low"] <= spread["median"] <= spread["high"] < math.inf
        assert spread["rounds"] == ROUNDS
    assert [step.period for step in cost.steps] == [1, 1, 1, 1, 9, 9]
    for step in cost.steps:
        assert step.lazy_percent.high < step.eager_percent.high
        assert step.pieces_percent["guidance"].low < step.lazy_percent.low


def test_both_ways_of_guidance_find_the_same(cost: HermesCost) -> None:
    assert cost.guidance.agreement < 1e-4
    assert cost.guidance.held > TINY.budgets[0] + TINY.long_chunk * TINY.frame_tokens


@pytest.mark.parametrize("setting", settings(TINY), ids=str)
def test_a_step_is_one_eviction_that_leaves_the_budget_and_a_summary(setting: Setting) -> None:
    stream = HermesStream(build(TINY, LAYERS, torch.float32), setting)
    memory, evictions = stream.memory, stream.memory.evictions
    assert set(stream.step()) == {*PIECES, "lazy", "eager"}
    assert memory.evictions == memory.reindexed == evictions + 1
    held = [int((ledger["kind"] != int(Kind.SYSTEM)).sum()) for ledger in memory.ledgers]
    assert held == [setting.budget] * LAYERS
    summaries = [int((ledger["kind"] == int(Kind.SUMMARY)).sum()) for ledger in memory.ledgers]
    assert summaries[:-1] == [0] * (LAYERS - 1)
    assert summaries[-1] >= 1
    before = stream.cursor.position, stream.chunks, memory.held
    stream.forward()
    assert (stream.cursor.position, stream.chunks, memory.held) == before


def test_a_lazy_stream_comes_to_its_limit_when_said() -> None:
    setting = settings(TINY)[0]
    stream = HermesStream(build(TINY, LAYERS, torch.float32), setting)
    limit = TINY.longest - stream.policy.margin
    stream.policy.reindex = "lazy"
    done, chunks = stream.memory.reindexed, 0
    while stream.memory.reindexed == done:
        assert stream.memory.span <= limit
        stream.step()
        chunks += 1
    # Each summary takes a position of its own.
    assert chunks == pytest.approx(stream.reindex_every, abs=1)


def test_every_role_has_a_layer() -> None:
    assert roles(3) == (1, 1, 1)
    assert roles(4) == (1, 2, 1)
    assert roles(10) == (1, 6, 3)
    stream = HermesStream(build(TINY, 4, torch.float32), settings(TINY)[0])
    assert stream.policy.parts(4) == ["shallow", "middle", "middle", "deep"]


def test_prompts_have_their_real_lengths() -> None:
    backbone, prompts = build(TINY, LAYERS, torch.float32), Prompts.after(None)
    local, joined, overall = (backbone.ids(text) for text in (prompts.local, prompts.joined, prompts.overall))
    assert [len(ids) for ids in (local, joined, overall)] == [21, 43, 21]
    assert joined[:21] == local != overall
    assert joined[21:] != overall


def test_real_shape_is_the_published_one() -> None:
    # A decoder layer of Qwen2-7B, written out: the dense part, projections with their biases, norms.
    dense = 3 * 3584 * 18944
    attention = 2 * 3584 * 3584 + 2 * 3584 * 512 + 3584 + 2 * 512
    assert parameters(LLAVA_7B, 28) == 28 * (dense + attention + 2 * 3584)
    assert LLAVA_7B.bytes_per_token(28, torch.bfloat16) == 56 * 2**10
    assert settings(LLAVA_7B)[0].chunk_tokens == 3136
    assert settings(LLAVA_7B)[-1].slack == 8 * 196
    held = held_tokens(LLAVA_7B)
    assert needed_bytes(LLAVA_7B, 3, torch.float32, held) > 4 * parameters(LLAVA_7B, 3)


def test_report_is_plain_json_and_tables_print(cost: HermesCost) -> None:
    told = json.loads(json.dumps(hermes.report(Machine.here(), cost)))
    assert set(told) == {"machine", "hermes"}
    assert len(told["hermes"]["steps"]) == len(settings(TINY))
    assert len(told["hermes"]["goals"]) == 5
    assert hermes.guidance_table(cost).row_count == 4
    assert all(hermes.step_table(cost, step).row_count == 7 for step in cost.steps)
    assert goals_table(cost.goals()).row_count == 5


def test_command_prints_tables_and_json(cost: HermesCost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hermes, "run", lambda *_: cost)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    command = CliRunner()
    app = hermes.typer.Typer()
    app.command()(hermes.main)
    tables = command.invoke(app, ["--quick"])
    assert tables.exit_code == 0
    assert "whole step" in tables.stdout
    assert "Goals" in tables.stdout
    told = json.loads(command.invoke(app, ["--quick", "--json"]).stdout)
    assert told["hermes"]["rounds"] == ROUNDS
