"""The policies by name. A new method is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from longtake.errors import LongtakeError
from longtake.policies.deltas import DeltaS
from longtake.policies.full import Full
from longtake.policies.hermes import Hermes, HermesLlava, HermesQwen
from longtake.policies.landmarks import Landmarks
from longtake.policies.policy import Policy
from longtake.policies.random import Random
from longtake.policies.recency import Recency
from longtake.policies.scored import Scored
from longtake.policies.uniform import Uniform

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        *(DeltaS, Hermes, HermesLlava, HermesQwen, Landmarks),
        *(Full, Recency, Uniform, Random, Scored),
    )
}

_YES_NO = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def make_policy(name: str, budget: int | None = None, options: Mapping[str, Any] | None = None) -> Policy:
    """A fresh policy by name.

    Args:
        name: a key of `POLICIES`.
        budget: tokens per attention layer; by default the method's own (`default_budget`) where it is bounded.
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
    return kind(budget=(budget or kind.default_budget) if kind.bounded else None, **values)


def _read(kind: type[Policy], option: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    hint = get_type_hints(kind)[option]
    try:
        return _parse(hint, value)
    except (ValueError, KeyError) as error:
        raise LongtakeError(f"Option {option} of policy '{kind.name}' takes {_wanted(hint)}, not '{value}'.") from error


def _parse(hint: Any, text: str) -> Any:
    if get_origin(hint) is Literal:
        return {str(choice): choice for choice in get_args(hint)}[text]
    if get_origin(hint) is tuple:
        return tuple(float(part) for part in text.split(","))
    if hint is bool:
        return _YES_NO[text.lower()]
    return float(text) if hint is float else int(text)


def _wanted(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        return "numbers with commas between them"
    return "true or false" if hint is bool else "a number"
