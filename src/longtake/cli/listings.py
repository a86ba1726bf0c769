"""`longtake models` and `longtake policies`."""

from __future__ import annotations

from longtake.cli.terminal import out


def models() -> None:
    """List the model families that can watch."""
    from longtake.backbones.load import FAMILIES

    width = max(len(family.family) for family in FAMILIES)
    for family in FAMILIES:
        kinds = ", ".join(family.model_types)
        facts = f"model_type {kinds}; attention {family.attention}; positions {family.positions}; {family.verified}"
        out.print(f"{family.family:<{width}}  {facts}")
    out.print("The embedded model 'toy' is a Qwen3.5 of 0.8 million parameters that knows its own world only.")


def policies() -> None:
    """List the retention policies."""
    from longtake.policies.registry import POLICIES

    width = max(map(len, POLICIES))
    for name, policy in POLICIES.items():
        out.print(f"{name:<{width}}  {policy.line}")
