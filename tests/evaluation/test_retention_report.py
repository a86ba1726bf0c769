"""Tables and plots say what the results say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from longtake.report.charts import draw_all
from longtake.report.retention import AGES, Figure, Trials, by_age, evidence_held, macro, markdown, spell, task


def result(policy: str, percent: float | None, seed: int, right: list[bool], **other: Any) -> dict[str, Any]:
    asked = [
        {"kind": "colour", "age": 0.05, "held": 1.0, "right": right[0]},
        {"kind": "colour", "age": 0.95, "held": 0.5, "right": right[1]},
        {"kind": "seen", "age": None, "held": None, "right": right[2]},
    ]
    return {
        "model": "toy",
        "seconds": 600.0,
        "seed": seed,
        "number": 0,
        "every": 30.0,
        "scenery": "busy",
        "policy": policy,
        "percent": percent,
        "chunk": 1.0,
        "tokens_held": 100,
        "tokens_seen": 1000,
        "kv_bytes": 51200,
        "state_bytes": 12000,
        "ms_per_chunk": 9.5,
        "held_by_moment": [0.5] * 100,
        "asked": asked,
        **other,
    }


@pytest.fixture
def trials() -> Trials:
    return Trials(
        [
            result("recency", 5.0, 0, [True, False, True]),
            result("recency", 5.0, 1, [True, False, False]),
            result("recency", 10.0, 0, [True, True, True]),
            result("recency", 10.0, 1, [True, False, True]),
            result("full", None, 0, [True, True, True]),
            result("full", None, 1, [True, True, True]),
        ]
    )


def test_the_mean_over_tasks_weighs_tasks_alike(trials: Trials) -> None:
    assert macro(trials.where(policy="recency", percent=5.0, seed=0).results[0]) == pytest.approx((0.5 + 1.0) / 2)
    assert macro(trials.where(policy="recency", percent=5.0, seed=1).results[0]) == pytest.approx((0.5 + 0.0) / 2)


def test_a_figure_has_student_s_interval_over_streams(trials: Trials) -> None:
    figure = trials.where(policy="recency", percent=5.0).figure(macro)
    assert figure is not None
    assert figure.mean == pytest.approx(0.5)
    assert figure.half == pytest.approx(12.706 * math.sqrt(0.125) / math.sqrt(2), rel=1e-3)
    single = Figure.of([0.4])
    assert single is not None
    assert (single.half, str(single)) == (None, "0.400")
    assert Figure.of([]) is None


def test_a_stream_counts_once_however_many_budgets_were_tried_on_it(trials: Trials) -> None:
    figure = trials.where(policy="recency").figure(task("seen"))
    assert figure is not None
    assert figure.mean == pytest.approx((1.0 + 0.5) / 2)


def test_ages_and_evidence(trials: Trials) -> None:
    one = trials.where(policy="recency", percent=5.0, seed=0).results[0]
    assert by_age(0)(one) == 1.0
    assert by_age(AGES - 1)(one) == 0.0
    assert by_age(4)(one) is None
    assert evidence_held(one) == 0.75


def test_the_tables_have_every_policy_the_best_first(trials: Trials) -> None:
    text = markdown(trials)
    assert text.index("| full") < text.index("| recency")
    assert "toy, streams of 10 min (2 of them)" in text
    assert "0.500 ± 3.176" in text
    assert "51,200" in text


def test_the_tables_do_not_depend_on_the_order_of_the_results(trials: Trials) -> None:
    assert markdown(Trials(reversed(trials.results))) == markdown(trials)


def test_what_could_not_be_tried_is_told() -> None:
    broken = result("deltas", 2.0, 0, [True, True, True])
    text = markdown(
        Trials([result("recency", 2.0, 0, [True, True, True]), {**broken, "error": "A budget of 3 is too small."}])
    )
    assert "Not tried: A budget of 3 is too small." in text
    assert "| deltas" in text


def test_plots_are_drawn_for_each_model_and_length(trials: Trials, tmp_path: Path) -> None:
    pictures = draw_all(trials, tmp_path)
    assert {path.name for path in pictures} == {f"toy-10min-{kind}.png" for kind in ("budget", "age", "held")}
    assert all(path.stat().st_size > 5000 for path in pictures)


def test_lengths_are_spelled_as_people_do() -> None:
    assert [spell(s) for s in (45.0, 90.0, 600.0, 3600.0, 21600.0)] == ["45 s", "90 s", "10 min", "1 h", "6 h"]
