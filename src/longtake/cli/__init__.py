"""The command line: `longtake demo`, `longtake ask`, `longtake memory`, `longtake policies`, `longtake models`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.markup import escape

from longtake import LongtakeError, __version__
from longtake.cli import ask, demo, evaluate, horizons, listings, memory
from longtake.cli.terminal import err, out

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Watch video in a fixed memory and answer questions about it at any moment.",
)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
    if version:
        out.print(__version__)
        raise typer.Exit


app.add_typer(evaluate.app, name="eval")
for command in (
    ask.ask,
    memory.memory,
    demo.demo,
    evaluate.report,
    horizons.horizons,
    listings.models,
    listings.policies,
):
    app.command()(command)


def main() -> None:
    """The entry point: bad input is one sentence and exit code 2."""
    # The library's notes on missing kernels are for those who load models by hand.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        app()
    except LongtakeError as error:
        err.print(f"[bold red]Error:[/] {escape(str(error))}")
        sys.exit(2)
