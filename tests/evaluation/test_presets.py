"""From words on a command line to trials."""

from __future__ import annotations

from pathlib import Path

import pytest

from longtake.errors import LongtakeError
from longtake.evaluation.presets import (
    ABLATIONS,
    CHUNKS,
    CONTROLLED,
    NAMED,
    PRESETS,
    cases,
    choose,
    parse_policy,
    parse_seconds,
)
from longtake.training.zoo import ZOO


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("1d", 86400)])
def test_lengths_are_read(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "ten", "10 minutes"])
def test_other_lengths_are_refused(text: str) -> None:
    with pytest.raises(LongtakeError, match="10m"):
        parse_seconds(text)


def test_a_policy_may_bring_options() -> None:
    assert parse_policy("deltas:spans=2:window=8") == ("deltas", (("spans", "2"), ("window", "8")))
    for text, word in (("deltas:spans", "OPTION=VALUE"), ("nothing", "no policy"), ("deltas:span=2", "no option")):
        with pytest.raises(LongtakeError, match=word):
            parse_policy(text)


def test_policies_without_a_bound_are_tried_once() -> None:
    found = cases(["full", "emptied", "recency"], [2.0, 5.0])
    assert [(case.policy, case.percent) for case in found] == [
        *(("full", None), ("emptied", None), ("recency", 2.0), ("recency", 5.0))
    ]
    for percent in (0.0, -1.0, 101.0):
        with pytest.raises(LongtakeError, match="percent"):
            cases(["recency"], [percent])


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_can_be_made(preset: str) -> None:
    units = choose(preset)
    assert units
    assert [unit.stream.seconds for unit in units] == sorted((u.stream.seconds for u in units), reverse=True)
    assert all(len(set(unit.cases)) == len(unit.cases) for unit in units)


@pytest.mark.parametrize("ablation", [*ABLATIONS, "chunk"])
def test_every_ablation_can_be_made(ablation: str) -> None:
    units = choose("quick", ablation=ablation)
    if ablation == "chunk":
        assert {case.chunk for unit in units for case in unit.cases} == set(CHUNKS)
    else:
        assert {case.label for unit in units for case in unit.cases} == set(ABLATIONS[ablation])


def test_what_needs_recurrent_states_is_left_out_where_there_are_none(tmp_path: Path) -> None:
    llava = ZOO["toy-llava"]
    llava.model(llava.processor().tokenizer, 0).config.save_pretrained(tmp_path)
    hybrid, full = choose("quick", models=f"toy,{tmp_path}", seeds="0", policies="emptied,named,controlled")
    assert {case.label for case in hybrid.cases} >= {"emptied", "deltas", *NAMED, *CONTROLLED}
    assert "deltas" not in {case.policy for case in full.cases}
    assert not any("drift" in case.label or "residual" in case.label for case in full.cases)
    assert any("snapkv" in case.label for case in full.cases)


def test_a_comma_within_an_option_does_not_part() -> None:
    (unit,) = choose("quick", policies="hermes:weights=2,1,1,recency", seeds="0", budgets="5")
    assert [case.label for case in unit.cases] == ["hermes:weights=2,1,1", "recency"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"preset": "huge"}, "no preset"),
        ({"ablation": "colour"}, "no ablation"),
        ({"models": "qwen"}, "no model 'qwen' here"),
        ({"seeds": "one"}, "whole numbers"),
        ({"budgets": "a lot"}, "percent"),
        ({"scenery": "fog"}, "no scenery"),
        ({"lengths": "3"}, "too short"),
        ({"every": 1.0}, "4 seconds"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(options: dict[str, object], word: str) -> None:
    preset = str(options.pop("preset", "quick"))
    with pytest.raises(LongtakeError, match=word):
        choose(preset, **options)  # type: ignore[arg-type]
