"""Which policies are tried at which budgets on which streams."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from longtake.backbones.load import has_recurrent_states
from longtake.errors import LongtakeError
from longtake.evaluation.streams import Stream
from longtake.evaluation.trial import EMPTIED, Case
from longtake.policies.registry import POLICIES, make_policy
from longtake.policies.signals.shelf import SIGNALS

MINUTE, HOUR = 60.0, 3600.0
BUDGETS: Final = (2.0, 5.0, 10.0, 25.0)
"""Percent of a stream's tokens."""
NAMED: Final = ("landmarks", "deltas", "hermes", "recency", "uniform", "random")
CONTROLLED: Final = tuple(f"scored:score={score}:rule={rule}" for score in SIGNALS for rule in ("global", "spans"))
"""Every score under either rule, all else equal (DeltaS, table 2)."""
ABLATIONS: Final[dict[str, tuple[str, ...]]] = {
    "spans": tuple(f"deltas:spans={n}" for n in (1, 2, 4, 8)),
    "window": tuple(f"deltas:window={n}" for n in (0, 16, 32, 64)),
    "sinks": tuple(f"deltas:sinks={n}" for n in (0, 4, 16)),
    "hermes": (
        "hermes",
        "hermes:roles=shallow",
        "hermes:roles=deep",
        "hermes:smoothing=off",
        "hermes:guidance=embedding",
        "hermes-llava",
        "hermes-qwen",
    ),
    "summary": ("hermes", "hermes:summary=off"),
    "reindex": tuple(f"{policy}:reindex={how}" for policy in ("hermes", "deltas") for how in ("off", "lazy", "eager")),
    "weights": ("hermes", *(f"hermes:weights={w}" for w in ("2,1,1", "1,2,1", "1,1,2"))),
}
CHUNKS: Final = (1.0, 2.0, 4.0, 8.0)
"""Seconds taken in at once: the ablation "chunk"."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A stream that is encoded once, and all that is tried on it."""

    model: str
    stream: Stream
    cases: tuple[Case, ...]


def parse_policy(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Name and options of NAME or NAME:OPTION=VALUE:OPTION=VALUE.

    Raises:
        LongtakeError: for anything else, or a policy or option that there is not.
    """
    name, *pairs = text.split(":")
    options = []
    for pair in pairs:
        option, equals, value = pair.partition("=")
        if not equals:
            raise LongtakeError(f"A policy with options is written NAME:OPTION=VALUE, not '{text}'.")
        options.append((option, value))
    if name != EMPTIED:
        make_policy(name, None, dict(options))
    return name, tuple(options)


def parse_seconds(text: str) -> float:
    """Seconds of "90", "90s", "10m", "6h", "1d".

    Raises:
        LongtakeError: for anything else.
    """
    units = {"s": 1.0, "m": MINUTE, "h": HOUR, "d": 24 * HOUR}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        return float(number) * unit
    except ValueError:
        raise LongtakeError(f"A length is written like 90s, 10m, 6h or 1d, not '{text}'.") from None


def parse_seeds(text: str) -> list[int]:
    """Whole numbers between commas.

    Raises:
        LongtakeError: for anything else.
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise LongtakeError(f"Seeds are whole numbers with commas between them, not '{text}'.") from None


def cases(policies: Iterable[str], budgets: Sequence[float], chunk: float | None = 1.0) -> tuple[Case, ...]:
    """Each policy at each budget; policies without a bound once.

    Raises:
        LongtakeError: for a policy or a budget that cannot be.
    """
    for percent in budgets:
        if not 0 < percent <= 100:
            raise LongtakeError(f"Budgets are percent of a stream's tokens, above 0 and up to 100, not {percent:g}.")
    found = []
    for text in policies:
        name, options = parse_policy(text)
        bounded = name != EMPTIED and POLICIES[name].bounded
        found += [Case(name, options, percent, chunk) for percent in (budgets if bounded else (None,))]
    return tuple(dict.fromkeys(found))


def units(
    models: Sequence[str], streams: Sequence[Stream], tried: Sequence[Case], recurrent: frozenset[str]
) -> list[Unit]:
    """One unit per model and stream, the longest streams first; what needs recurrent states is left out on models that
    have none (all but those of `recurrent`)."""
    found = []
    for stream in sorted(streams, key=lambda stream: -stream.seconds):
        for model in models:
            fitting = tuple(case for case in tried if model in recurrent or not _needs_states(case))
            found.append(Unit(model, stream, fitting))
    return found


def _needs_states(case: Case) -> bool:
    return case.policy == EMPTIED or bool(make_policy(case.policy, None, dict(case.options)).needs_recurrent_states)


@dataclass(frozen=True, slots=True)
class Preset:
    """What is run where the command line says nothing else."""

    models: str
    lengths: str
    budgets: str
    policies: str
    streams: int


PRESETS: Final = {
    "quick": Preset("toy", "4m", "5,10", "full,emptied,named", 1),
    "full": Preset("toy", "10m,1h", "2,5,10,25", "full,emptied,named,controlled", 2),
    "long": Preset("toy", "6h", "2,5,10,25", "named", 1),
}
_SETS: Final = {"named": NAMED, "controlled": CONTROLLED}


def choose(
    preset: str,
    *,
    policies: str | None = None,
    ablation: str | None = None,
    budgets: str | None = None,
    lengths: str | None = None,
    seeds: str = "0,1,2",
    models: str | None = None,
    streams: int | None = None,
    every: float = 30.0,
    scenery: str = "busy",
    chunk: float = 1.0,
) -> list[Unit]:
    """The units that a command line asks for; what it leaves open is the preset's.

    Raises:
        LongtakeError: for a name or a number that cannot be used.
    """
    if preset not in PRESETS:
        raise LongtakeError(f"There is no preset '{preset}'; there are {', '.join(PRESETS)}.")
    base = PRESETS[preset]
    names = _split(policies or base.policies)
    chunks: Sequence[float] = (chunk,)
    if ablation is not None:
        if ablation not in (*ABLATIONS, "chunk"):
            raise LongtakeError(f"There is no ablation '{ablation}'; there are {', '.join((*ABLATIONS, 'chunk'))}.")
        names = list(ABLATIONS.get(ablation, names))
        chunks = CHUNKS if ablation == "chunk" else chunks
    wanted = [policy for name in names for policy in _SETS.get(name, (name,))]
    percents = [_number(text, "A budget is a number of percent") for text in _split(budgets or base.budgets)]
    tried = [case for seconds in chunks for case in cases(wanted, percents, seconds)]
    chosen = _split(models or base.models)
    recurrent = frozenset(name for name in chosen if has_recurrent_states(name))
    everything = [
        Stream(parse_seconds(length), seed, number, every, scenery)
        for length in _split(lengths or base.lengths)
        for seed in parse_seeds(seeds)
        for number in range(streams or base.streams)
    ]
    return units(chosen, everything, tried, recurrent)


def _split(text: str) -> list[str]:
    """Parts between commas; a comma within an option's value (":weights=2,1,1") does not part."""
    parts: list[str] = []
    for part in text.split(","):
        if parts and ":" in parts[-1] and part.replace(".", "", 1).isdigit():
            parts[-1] += f",{part}"
        elif part.strip():
            parts.append(part.strip())
    return parts


def _number(text: str, rule: str) -> float:
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        raise LongtakeError(f"{rule}, not '{text}'.") from None
