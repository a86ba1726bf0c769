"""What the commands print to: results, notes, a progress bar, and a word when interrupted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

# A pipe has no width of its own; tables get one that holds them.
out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 110)
err = Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def interruptible() -> Iterator[None]:
    """An interrupt ends the command with a word; what was printed stays."""
    try:
        yield
    except KeyboardInterrupt:
        err.print("Interrupted.")
        raise typer.Exit(130) from None


@contextmanager
def progress() -> Iterator[Any]:
    """A function (step, share done) that moves a bar on a terminal and does nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda step, done: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    # Where answers go to a pipe they must not take the bar's way to the terminal.
    shared = sys.stdout.isatty()
    with Progress(
        *columns, TimeRemainingColumn(), console=err, transient=True, redirect_stdout=shared, redirect_stderr=shared
    ) as bar:
        tasks: dict[str, Any] = {}

        def advance(step: str, done: float) -> None:
            if step not in tasks:
                tasks[step] = bar.add_task(step, total=1.0)
            bar.update(tasks[step], completed=min(done, 1.0))

        yield advance
