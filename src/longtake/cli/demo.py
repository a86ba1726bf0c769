"""`longtake demo`: what each policy remembers of the toy's world."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from longtake.cli.terminal import interruptible, out, progress


def demo(
    folder: Annotated[Path, typer.Option("--out", help="Folder for the video, its truth and the picture.")] = Path(
        "demo"
    ),
    seconds: Annotated[float, typer.Option(help="Length of the world, in seconds.")] = 600.0,
    seed: Annotated[int, typer.Option(help="Which world.")] = 2,
    budget: Annotated[int | None, typer.Option(help="Tokens. Default: a tenth of the stream's.")] = None,
) -> None:
    """Watch ten minutes of the toy's world with a small memory, and see what each policy remembers."""
    from longtake.demo import run_demo
    from longtake.engine import Engine

    engine = Engine.load("toy")
    with interruptible(), progress() as advance:
        result = run_demo(engine, folder, seconds=seconds, seed=seed, budget=budget, on_step=advance)
    full, *others = result.runs
    table = Table(title=f"Questions at the end of {seconds:g} s", title_justify="left", box=SIMPLE_HEAD)
    for column in ("moment", "question", "truth", *(run.policy for run in result.runs)):
        table.add_column(column)
    for number, asked in enumerate(full.asked):
        question = asked.question
        if question.ask_time < int(seconds):
            continue
        moment = f"{question.evidence[0]:.0f} s" if question.evidence else "-"
        answers = [run.asked[number] for run in result.runs]
        shown = [f"[{'green' if a.right else 'red'}]{escape(a.answer)}[/]" for a in answers]
        table.add_row(moment, question.text, question.answer, *shown)
    out.print(table, soft_wrap=False)
    summary = Table(
        title="Accuracy over all questions, asked at a third, at two thirds and at the end of the stream",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    for column in ("policy", "colours of past events", "all kinds", "tokens held / seen", "KV bytes"):
        summary.add_column(column)
    for run in result.runs:
        right, count = run.right_of("colour")
        all_right, all_count = run.right_of()
        summary.add_row(
            run.policy,
            f"{right} of {count} = {right / max(count, 1):.2f}",
            f"{all_right} of {all_count} = {all_right / max(all_count, 1):.2f}",
            f"{run.held} / {run.seen}",
            f"{run.kv_bytes:,}",
        )
    out.print(summary, soft_wrap=False)
    out.print(f"Budget: {others[0].budget if others else full.budget} tokens; full is the reference without one.")
    video, picture = escape(str(result.video)), escape(str(result.picture))
    out.print(f"Video {video}, picture of what is held {picture}; {result.seconds:.0f} s in all.")
