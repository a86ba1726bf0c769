"""Tables of the retention benchmark, from its results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from longtake.toy.questions import KINDS

Result = dict[str, Any]
AGES: Final = 10
# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
_T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over streams, and half the width of its 95 % confidence interval (Student's t over the streams; None for a
    single stream)."""

    mean: float
    half: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure | None:
        """None without values."""
        count = len(values)
        if not count:
            return None
        mean = sum(values) / count
        if count == 1:
            return cls(mean, None)
        spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
        return cls(mean, _T95[min(count - 1, len(_T95)) - 1] * spread / math.sqrt(count))

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if self.half is None else f"{self.mean:.3f} ± {self.half:.3f}"


class Trials:
    """The results of one or several runs, in a fixed order whatever the order they came in."""

    def __init__(self, results: Iterable[Result]) -> None:
        every = {_key(result): result for result in results}
        self.results = [every[key] for key in sorted(every)]

    def where(self, **wanted: Any) -> Trials:
        """Those with these values."""
        return Trials(r for r in self.results if all(r[name] == value for name, value in wanted.items()))

    def values(self, name: str) -> list[Any]:
        """The distinct values of one field, in order; None last."""
        found = {result[name] for result in self.results}
        return [*sorted(found - {None}), *([None] if None in found else [])]

    def policies(self) -> list[str]:
        """Names with their options, the best on average first."""
        names = list(dict.fromkeys(result["policy"] for result in self.results))
        means = {name: self.where(policy=name).figure(macro) for name in names}
        return sorted(names, key=lambda name: (-(figure.mean if (figure := means[name]) else -1.0), name))

    def figure(self, value: Callable[[Result], float | None]) -> Figure | None:
        """A value of each stream: one per world, whatever else varies within it is averaged first."""
        streams: dict[Any, list[float]] = {}
        for result in self.results:
            if "error" not in result and (found := value(result)) is not None:
                streams.setdefault((result["model"], result["seconds"], result["seed"], result["number"]), []).append(
                    found
                )
        return Figure.of([sum(values) / len(values) for values in streams.values()])

    @property
    def errors(self) -> list[str]:
        """Why trials could not be made, each once."""
        return list(dict.fromkeys(result["error"] for result in self.results if "error" in result))

    def __bool__(self) -> bool:
        return bool(self.results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)


def macro(result: Result) -> float | None:
    """Mean over the tasks of the share of right answers."""
    shares = [share for kind in KINDS if (share := task(kind)(result)) is not None]
    return sum(shares) / len(shares) if shares else None


def task(kind: str) -> Callable[[Result], float | None]:
    """The share of right answers to one kind of question."""
    return lambda result: _mean([one["right"] for one in result["asked"] if one["kind"] == kind])


def by_age(tenth: int) -> Callable[[Result], float | None]:
    """The share of right answers whose deciding evidence is so old: 0 is the newest tenth of the stream."""
    return lambda result: _mean(
        [one["right"] for one in result["asked"] if one["age"] is not None and min(int(one["age"] * AGES), 9) == tenth]
    )


def evidence_held(result: Result) -> float | None:
    """The share of the questions' evidence of which something is still held."""
    return _mean([one["held"] for one in result["asked"] if one["held"] is not None])


def markdown(trials: Trials) -> str:
    """All tables, as Markdown."""
    parts = []
    for model in trials.values("model"):
        for seconds in trials.where(model=model).values("seconds"):
            some = trials.where(model=model, seconds=seconds)
            streams = len({(result["seed"], result["number"]) for result in some})
            title = f"{model}, streams of {spell(seconds)} ({streams} of them)"
            parts += [f"## {title}\n", "Accuracy, mean over tasks:\n", budget_table(some, macro)]
            parts += ["Accuracy by task, mean over budgets:\n", task_table(some)]
            parts += ["Accuracy by age of the evidence, in tenths of the stream, mean over budgets:\n", age_table(some)]
            parts += ["Share of the evidence still held:\n", budget_table(some, evidence_held)]
            parts += ["What it costs, at each budget:\n", cost_table(some)]
            parts += [f"Not tried: {error}\n" for error in some.errors]
    return "\n".join(parts)


def budget_table(trials: Trials, value: Callable[[Result], float | None]) -> str:
    """A row per policy, a column per budget, and the mean over budgets."""
    budgets = [percent for percent in trials.values("percent") if percent is not None]
    rows = []
    for policy in trials.policies():
        mine = trials.where(policy=policy)
        cells = [mine.where(percent=percent).figure(value) for percent in budgets]
        rows.append([policy, *map(_cell, cells), _cell(mine.figure(value))])
    return table(["policy", *(f"{percent:g} %" for percent in budgets), "mean"], rows)


def task_table(trials: Trials) -> str:
    """A row per policy, a column per task."""
    kinds = [kind for kind in KINDS if trials.figure(task(kind))]
    rows = [
        [policy, *(_short(trials.where(policy=policy).figure(task(kind))) for kind in kinds)]
        for policy in trials.policies()
    ]
    return table(["policy", *kinds], rows)


def age_table(trials: Trials) -> str:
    """A row per policy, a column per tenth of the stream, newest first."""
    rows = [
        [policy, *(_short(trials.where(policy=policy).figure(by_age(tenth))) for tenth in range(AGES))]
        for policy in trials.policies()
    ]
    return table(["policy", *(f"{tenth * 10}-{tenth * 10 + 10} %" for tenth in range(AGES))], rows)


def cost_table(trials: Trials) -> str:
    """Tokens and bytes held, and the time of a chunk, of each policy and budget."""
    rows = []
    for policy in trials.policies():
        for percent in trials.values("percent"):
            mine = [r for r in trials.where(policy=policy, percent=percent) if "error" not in r]
            if mine:
                held, seen, size, states, time = (
                    sum(r[name] for r in mine) / len(mine)
                    for name in ("tokens_held", "tokens_seen", "kv_bytes", "state_bytes", "ms_per_chunk")
                )
                budget = "-" if percent is None else f"{percent:g} %"
                row = [policy, budget, f"{held:,.0f} of {seen:,.0f}", f"{size:,.0f}", f"{states:,.0f}", f"{time:.1f}"]
                rows.append(row)
    heads = ["policy", "budget", "tokens held", "bytes of keys and values", "bytes of states", "ms per chunk"]
    return table(heads, rows)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with its columns in line."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [heads, ["-" * width for width in widths], *rows]
    aligned = (" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "".join(f"| {line} |\n" for line in aligned)


def spell(seconds: float) -> str:
    """A length as people write it."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def _cell(figure: Figure | None) -> str:
    return "-" if figure is None else str(figure)


def _short(figure: Figure | None) -> str:
    return "-" if figure is None else f"{figure.mean:.3f}"


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _key(result: Result) -> tuple[Any, ...]:
    percent = -1.0 if result["percent"] is None else result["percent"]
    stream = (result["model"], result["seconds"], result["seed"], result["number"], result["every"], result["scenery"])
    return *stream, result["policy"], percent, -1.0 if result["chunk"] is None else result["chunk"]
