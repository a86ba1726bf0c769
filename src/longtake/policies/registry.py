"""The policies by name. A new method is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from longtake.errors import LongtakeError
from longtake.policies.deltas import DeltaS
from longtake.policies.full import Full
from longtake.policies.policy import Policy
from longtake.policies.random import Random
from longtake.policies.recency import Recency
from longtake.policies.uniform import Uniform

POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (DeltaS, Full, Recency, Uniform, Random)}
DEFAULT_BUDGET = 8192


def make_policy(name: str, budget: int | None = None, options: Mapping[str, Any] | None = None) -> Policy:
    """A fresh policy by name.

    Args:
        name: a key of `POLICIES`.
        budget: tokens per attention layer; by default 8,192 for bounded policies.
        options: hyperparameters by their published names; text values are read as the field's type.

    Raises:
        LongtakeError: for an unknown name or option, or a value that cannot be used.
    """
    if name not in POLICIES:
        raise LongtakeError(f"There is no policy '{name}'; there are {', '.join(POLICIES)}.")
    kind = POLICIES[name]
    if budget is not None and budget < 1:
        raise LongtakeError(f"The budget must be a positive number of tokens, not {budget}.")
    known = {f.name for f in fields(kind) if f.init} - {"budget"}
    values = {}
    for option, value in (options or {}).items():
        if option not in known:
            has = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise LongtakeError(f"Policy '{name}' has no option '{option}'; {has}.")
        values[option] = _read(kind, option, value)
    return kind(budget=(budget or DEFAULT_BUDGET) if kind.bounded else None, **values)


def _read(kind: type[Policy], option: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    hint = get_type_hints(kind)[option]
    try:
        return float(value) if hint is float else int(value)
    except ValueError as error:
        raise LongtakeError(f"Option {option} of policy '{kind.name}' takes a number, not '{value}'.") from error
