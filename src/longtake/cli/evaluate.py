"""`longtake eval`: what each policy remembers, measured on streams whose truth is known."""

from __future__ import annotations

import sys
import time as clock
from pathlib import Path
from typing import Annotated

import typer

from longtake import LongtakeError
from longtake.cli.terminal import err, interruptible, out, progress

app = typer.Typer(no_args_is_help=True, help="Measure what policies remember, on streams whose truth is known.")


@app.callback()
def root() -> None:
    """Keeps `toy` a command of its own beside those to come."""


@app.command()
def toy(
    policies: Annotated[
        str | None,
        typer.Option(help="Comma-separated; options as NAME:OPTION=VALUE. 'named' and 'controlled' are sets."),
    ] = None,
    budgets: Annotated[str | None, typer.Option(help="Percent of a stream's tokens, comma-separated.")] = None,
    lengths: Annotated[str | None, typer.Option(help="Lengths of streams, e.g. 10m,1h.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, comma-separated.")] = "0,1,2",
    models: Annotated[str | None, typer.Option(help="toy, or folders of models that know its world.")] = None,
    streams: Annotated[int | None, typer.Option(min=1, help="Streams for each length and seed.")] = None,
    preset: Annotated[
        str, typer.Option(help="What the options above are where they are not given: quick, full or long.")
    ] = "quick",
    ablation: Annotated[str | None, typer.Option(help="A set of variants instead of policies, or 'list'.")] = None,
    every: Annotated[float, typer.Option(help="Seconds per event, on average.")] = 30.0,
    scenery: Annotated[str, typer.Option(help="busy (with distractors, repeats, twins, cards) or quiet.")] = "busy",
    chunk: Annotated[float, typer.Option(help="Seconds taken in at once.")] = 1.0,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    file: Annotated[Path, typer.Option("--out", help="Where results go, and are taken up again.")] = Path(
        "results.jsonl"
    ),
    estimate_only: Annotated[bool, typer.Option("--estimate", help="Say how long it will take, and leave.")] = False,
) -> None:
    """Watch worlds under each policy, ask everything at the end, and keep the answers in a file."""
    from longtake.evaluation import presets

    if ablation == "list":
        for name, variants in presets.ABLATIONS.items():
            out.print(f"{name:<8}  {' '.join(variants)}")
        return
    units = presets.choose(
        preset,
        policies=policies,
        ablation=ablation,
        budgets=budgets,
        lengths=lengths,
        seeds=seeds,
        models=models,
        streams=streams,
        every=every,
        scenery=scenery,
        chunk=chunk,
    )
    from longtake.evaluation.results import Results
    from longtake.evaluation.runner import estimate, run

    results = Results(file)
    trials = sum(len(unit.cases) for unit in units)
    with interruptible():
        seconds = estimate(units, results, workers)
        err.print(f"{trials} trials on {len(units)} streams; about {_spell(seconds)} from here.")
        if estimate_only:
            return
        began = clock.monotonic()
        with progress() as advance:

            def tell(word: str, done: float) -> None:
                advance("watching", done)
                if not sys.stderr.isatty():
                    left = (clock.monotonic() - began) * (1 / done - 1)
                    err.print(f"{done:5.1%}  {word}  about {_spell(left)} left")

            run(units, results, workers, tell)
    out.print(f"The results are in {file}; `longtake report {file}` makes tables and plots of them.")


def report(
    files: Annotated[list[Path], typer.Argument(help="Results of `longtake eval`.", show_default=False)],
    folder: Annotated[Path | None, typer.Option("--out", help="Folder for report.md and the plots.")] = None,
) -> None:
    """Turn results into tables, and into plots where a folder is given."""
    from longtake.evaluation.results import read
    from longtake.report.retention import Trials, markdown

    trials = Trials(result for file in files for result in read(file))
    if not trials:
        raise LongtakeError(f"There are no results in {', '.join(map(str, files))}.")
    text = markdown(trials)
    if folder is None:
        print(text)
        return
    from longtake.report.charts import draw_all

    pictures = draw_all(trials, folder)
    try:
        (folder / "report.md").write_text(text, encoding="utf-8")
    except OSError as error:
        raise LongtakeError(f"The report could not be written to {folder}: {error}.") from error
    for path in (folder / "report.md", *pictures):
        out.print(str(path))


def _spell(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
