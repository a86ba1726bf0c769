"""What the benchmarks' commands share in speaking: notes on the way, tables, and the goals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.machine import Machine
from benchmarks.timing import Goal

GIB = 2**30


class Dtype(StrEnum):
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


notes = Console(stderr=True, highlight=False)
"""Progress and estimates; standard output has the results alone."""


def heading(machine: Machine, quick: bool) -> str:
    """The machine, and how the tables are to be read."""
    return (
        f"{machine.cpu}, {machine.cores} cores, {machine.torch_threads} torch threads, {machine.memory_gib} GiB; "
        f"Python {machine.python}, torch {machine.torch}, transformers {machine.transformers}.\n"
        "Medians, with the least and the largest in brackets."
        + ("\nQuick run: sizes too small for the times to mean anything." if quick else "")
    )


def figures(title: str) -> Table:
    """An empty table of figures by name."""
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    return table


def goals_table(goals: Sequence[Goal], quick: bool = False) -> Table:
    """What was promised, and whether this run has it."""
    table = Table(
        title="Goals, at sizes for which they were not made" if quick else "Goals, by the medians",
        title_justify="left",
        title_style="bold",
    )
    table.add_column("goal")
    table.add_column("found")
    table.add_column("")
    for goal in goals:
        table.add_row(goal.promise, goal.found, "[green]met[/]" if goal.met else "[bold red]NOT met[/]")
    return table


def shown(progress: Progress, name: str) -> Callable[[int, int], None]:
    """A callback that moves a bar of that name."""
    task = progress.add_task(name)
    return lambda done, of: progress.update(task, completed=done, total=of)


def duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 90 else f"{seconds / 60:.0f} minutes"
