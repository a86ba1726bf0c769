"""Policies by name, and what is said about names and values that cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from longtake.errors import LongtakeError
from longtake.policies.registry import POLICIES, make_policy


def test_every_policy_has_a_name_and_one_line() -> None:
    assert set(POLICIES) == {
        "deltas",
        *("hermes", "hermes-llava", "hermes-qwen"),
        *("full", "recency", "uniform", "random"),
        *("landmarks", "scored"),
    }
    for name, policy in POLICIES.items():
        assert policy.name == name
        assert policy.line
        assert "\n" not in policy.line


def test_options_given_as_text_are_read_as_numbers() -> None:
    policy: Any = make_policy("deltas", 1000, {"window": "64", "spans": "2"})
    assert (policy.budget, policy.window, policy.spans) == (1000, 64, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("nope",),
            "there are deltas, hermes, hermes-llava, hermes-qwen, landmarks, full, recency",
        ),
        (("deltas", 0), "positive number of tokens"),
        (("deltas", 100, {"windows": 3}), "it has compaction, margin, reindex, sinks, spans, window"),
        (("full", None, {"sinks": 3}), "it has compaction, margin, reindex"),
        (("deltas", 100, {"window": "wide"}), "takes a number"),
        (("recency", 100, {"sinks": -2}), "0 or more"),
    ],
)
def test_what_cannot_be_used_is_told_in_a_sentence(
    arguments: tuple[str, int | None, Mapping[str, Any]], words: str
) -> None:
    with pytest.raises(LongtakeError, match=words):
        make_policy(*arguments)
