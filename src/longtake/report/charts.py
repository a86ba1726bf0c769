"""Pictures of the retention benchmark: accuracy against budget and against age, and what each policy holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtake.errors import LongtakeError
from longtake.report.retention import AGES, Trials, by_age, macro, spell

_MOST = 14  # policies in one picture, the best ones


def draw_all(trials: Trials, folder: Path) -> list[Path]:
    """Three PNGs for each model and length.

    Raises:
        LongtakeError: where matplotlib is missing or a file cannot be written.
    """
    _require_matplotlib()
    found = []
    for model in trials.values("model"):
        for seconds in trials.where(model=model).values("seconds"):
            some = trials.where(model=model, seconds=seconds)
            title = f"{model}, streams of {spell(seconds)}"
            stem = f"{model}-{spell(seconds).replace(' ', '')}"
            for kind, draw in (("budget", _against_budget), ("age", _against_age), ("held", _heat)):
                found.append(_saved(draw(some, title), folder / f"{stem}-{kind}.png"))
    return found


def draw_horizons(streams: Mapping[str, NDArray[np.float64]], layers: Sequence[int], path: Path) -> Path:
    """The half-lives of all heads, sorted as on the first stream, one mark per stream.

    Args:
        streams: by name [layers, heads] seconds.
        layers: numbers of the decoder layers.

    Raises:
        LongtakeError: where matplotlib is missing or the file cannot be written.
    """
    _require_matplotlib()
    figure, axes = _axes(
        "Half-life of each head's recurrent state", "head, by half-life on the first stream", "seconds"
    )
    first = next(iter(streams.values()))
    order = first.ravel().argsort()
    layer = np.repeat(layers, first.shape[1])[order]
    for (name, half_life), marker in zip(streams.items(), "ox+^v<>sd*" * len(streams), strict=False):
        axes.scatter(range(len(order)), half_life.ravel()[order], c=layer, marker=marker, s=22, label=name)
    axes.set_yscale("log")
    axes.autoscale(axis="y")
    axes.legend(fontsize=8, frameon=False)
    figure.colorbar(axes.collections[0], label="decoder layer", ticks=sorted(set(layer.tolist())))
    return _saved(figure, path)


def _require_matplotlib() -> None:
    try:
        import matplotlib
    except ImportError as error:
        raise LongtakeError("The plots need matplotlib: pip install 'longtake[plots]'.") from error
    matplotlib.use("Agg")


def _against_budget(trials: Trials, title: str) -> Any:
    figure, axes = _axes(title, "budget, % of the stream's tokens", "accuracy, mean over tasks")
    colours, bounded = _colours(trials), _bounded(trials)
    for policy in bounded[:_MOST]:
        points = [
            (percent, found)
            for percent in trials.values("percent")
            if percent is not None and (found := trials.where(policy=policy, percent=percent).figure(macro))
        ]
        mean = np.array([found.mean for _, found in points])
        half = np.array([found.half or 0.0 for _, found in points])
        where = [percent for percent, _ in points]
        axes.plot(where, mean, marker="o", markersize=3, label=policy, color=colours[policy])
        axes.fill_between(where, mean - half, mean + half, color=colours[policy], alpha=0.08, linewidth=0)
    for policy in (name for name in trials.policies() if name not in bounded):
        whole = trials.where(policy=policy).figure(macro)
        if whole:
            axes.axhline(whole.mean, color="black" if policy == "full" else "grey", linestyle=":", label=policy)
    axes.set_xscale("log")
    ticks = [percent for percent in trials.values("percent") if percent is not None]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def _against_age(trials: Trials, title: str) -> Any:
    figure, axes = _axes(title, "age of the evidence, tenths of the stream (newest left)", "accuracy")
    colours = _colours(trials)
    for policy in trials.policies()[:_MOST]:
        found = [trials.where(policy=policy).figure(by_age(tenth)) for tenth in range(AGES)]
        heights = [one.mean if one else float("nan") for one in found]
        axes.plot(range(AGES), heights, marker="o", markersize=3, label=policy, color=colours[policy])
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def _heat(trials: Trials, title: str) -> Any:
    from matplotlib import pyplot

    policies = _bounded(trials)[:_MOST]
    rows = [
        np.mean([r["held_by_moment"] for r in trials.where(policy=policy) if "error" not in r], axis=0)
        for policy in policies
    ]
    figure, axes = pyplot.subplots(figsize=(9, 0.9 + 0.32 * len(policies)), layout="constrained")
    image = axes.imshow(rows, aspect="auto", cmap="Blues", vmin=0, vmax=1, extent=(0, 1, len(policies) - 0.5, -0.5))
    axes.set_yticks(range(len(policies)), policies, fontsize=8)
    axes.set_xlabel("moment of the stream, 0 is its begin")
    axes.set_title(f"Share of visual tokens held, mean over budgets: {title}", fontsize=10)
    figure.colorbar(image)
    return figure


def _colours(trials: Trials) -> dict[str, Any]:
    """A colour for each policy, the same in every picture of the same policies."""
    from matplotlib import colormaps

    names = sorted(trials.policies())
    return {name: colormaps["tab20"](number % 20) for number, name in enumerate(names)}


def _bounded(trials: Trials) -> list[str]:
    return [policy for policy in trials.policies() if trials.where(policy=policy).values("percent") != [None]]


def _axes(title: str, across: str, up: str) -> tuple[Any, Any]:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    axes.set(title=title, xlabel=across, ylabel=up, ylim=(0, 1.02))
    axes.grid(alpha=0.25)
    return figure, axes


def _saved(figure: Any, path: Path) -> Path:
    from matplotlib import pyplot

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise LongtakeError(f"The picture {path} could not be written: {error}.") from error
    finally:
        pyplot.close(figure)
    return path
