"""`longtake horizons`: how long each head of a hybrid model's recurrent states remembers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from longtake.cli import watching
from longtake.cli.terminal import interruptible, out, progress


def horizons(
    videos: Annotated[list[Path] | None, typer.Argument(help="Video files. Default: toy worlds.")] = None,
    model: watching.Model = "toy",
    seeds: Annotated[str, typer.Option(help="Of the toy worlds, where no files are given.")] = "0,1,2",
    seconds: Annotated[float, typer.Option(help="Seconds of each stream.")] = 120.0,
    fps: watching.Fps = None,
    picture: Annotated[Path | None, typer.Option("--out", help="A PNG of the half-lives.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Read the decay gates while watching: half-lives per head, their spread, and their ranks across streams."""
    from longtake.engine import Engine
    from longtake.evaluation.horizons import measure, rank_correlations
    from longtake.evaluation.presets import parse_seeds
    from longtake.evaluation.streams import Stream
    from longtake.video.reader import read_video

    for video in videos or []:
        read_video(video, fps).close()
    worlds = [] if videos else [Stream(seconds, seed) for seed in parse_seeds(seeds)]
    backbone = Engine.load(model).backbone
    found = []
    with interruptible(), progress() as advance:
        for world in worlds:
            name = f"world {world.seed}"
            advance(name, 0.0)
            found.append(measure(backbone, name, world.frames(fps or backbone.default_fps), fps))
        for video in videos or []:
            advance(video.name, 0.0)
            with read_video(video, fps or backbone.default_fps) as reader:
                frames = (frame for frame in reader if frame.time < seconds)
                found.append(measure(backbone, video.name, frames, fps))
    correlations = rank_correlations(found)
    if picture is not None:
        from longtake.report.charts import draw_horizons

        draw_horizons({one.name: one.half_life for one in found}, found[0].layers, picture)
    if as_json:
        record = {
            "model": model,
            "streams": [
                {
                    "name": one.name,
                    "seconds": one.seconds,
                    "layers": one.layers,
                    "half_life_seconds": np.round(one.half_life, 4).tolist(),
                }
                for one in found
            ],
            "rank_correlations": [{"streams": pair, "rho": round(rho, 4)} for pair, rho in correlations.items()],
        }
        print(json.dumps(record))
        return
    for one in found:
        low, middle, high = np.quantile(one.half_life, [0.0, 0.5, 1.0])
        beyond = float((one.half_life > 60).mean())
        out.print(
            f"{one.name}: {one.half_life.size} heads in {len(one.layers)} layers over {one.seconds:g} s; half-lives "
            f"from {low:.2f} s over {middle:.2f} s (median) to {high:.1f} s; {beyond:.0%} hold for more than a minute"
        )
    for (first, second), rho in correlations.items():
        out.print(f"rank correlation of {first} and {second}: {rho:.3f}")
    if picture is not None:
        out.print(f"The half-lives are drawn in {picture}")
