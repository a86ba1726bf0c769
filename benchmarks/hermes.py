"""HERMES' figures, from one interleaved run: `python -m benchmarks.hermes`.

Layers in the shapes of LLaVA-OneVision-7B's language model: the guidance prompts in one pass against the published
three, and the whole step in percent of the bare forward of a chunk, for chunks of 16 frames and of one second. A
forward of 16 frames takes long, so a round has one of each and the rest several times, its median counting. Figures
mean little while anything else runs.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import hermes_cost
from benchmarks.hermes_cost import HermesCost, StepCost
from benchmarks.hermes_streams import held_tokens
from benchmarks.llava_shape import LLAVA_7B, TINY, needed_bytes
from benchmarks.machine import Machine, available_bytes
from benchmarks.printing import GIB, Dtype, duration, figures, goals_table, heading, notes, shown

LAYERS = 3
"""One of each role; a third of them deep, as 9 of the model's 28 are. Shares of time hardly depend on the number."""
FEW_ROUNDS, MOST_ROUNDS = 3, 9
SECONDS = 600.0
"""What a run may take where the number of rounds is not given."""


def run(quick: bool, layers: int, dtype: torch.dtype, memory_gib: float | None, rounds: int | None) -> HermesCost:
    """The measurement, with its estimate told beforehand."""
    shapes = TINY if quick else LLAVA_7B
    limit = available_bytes() // 2 if memory_gib is None else int(memory_gib * GIB)
    needed = needed_bytes(shapes, layers, dtype, held_tokens(shapes))
    before, each = hermes_cost.estimate_seconds(shapes, layers, dtype)
    if rounds is None:
        rounds = min(max(int((SECONDS - before) / each), 1), FEW_ROUNDS if quick else MOST_ROUNDS)
    notes.print(
        f"{layers} layers of {shapes.name}, {needed / GIB:.1f} GiB of {limit / GIB:.1f} GiB allowed, {rounds} "
        f"round{'s' * (rounds > 1)} of {hermes_cost.TURNS} turns; takes about {duration(before + rounds * each)}."
    )
    if rounds < FEW_ROUNDS:
        notes.print(
            f"Too few rounds to tell a spread; --rounds {FEW_ROUNDS} takes {duration(before + FEW_ROUNDS * each)}.",
            style="yellow",
        )
    if needed > limit:
        notes.print(f"More than --memory-gib allows; {LAYERS} layers are the least.", style="yellow")
    with Progress(console=notes, transient=True) as progress:
        return hermes_cost.measure(shapes, layers, dtype, rounds, on_turn=shown(progress, "hermes"))


def guidance_table(cost: HermesCost) -> Table:
    """The guidance's figures for reading."""
    guidance = cost.guidance
    local, joined, overall = guidance.prompts
    table = figures(
        f"Guidance prompts of {local}, {joined} and {overall} tokens at {guidance.held:,} tokens held\n{_model(cost)}"
    )
    table.add_row("A  packed, one pass", guidance.packed_ms.text(1, " ms"))
    table.add_row("B  published, a pass for each", guidance.passes_ms.text(1, " ms"))
    table.add_row("A / B, per round", guidance.packed_to_passes.text(3))
    table.add_row("largest difference of what they find", f"{guidance.agreement:.1e} of the largest value")
    return table


def step_table(cost: HermesCost, step: StepCost) -> Table:
    """One setting's figures for reading."""
    setting = step.setting
    often = f"in {step.period} chunks, averages per chunk" if step.period > 1 else "per chunk"
    table = figures(
        f"Step at a budget of {setting.budget:,}, {setting.frames} frame{'s' * (setting.frames > 1)} "
        f"({setting.chunk_tokens:,} tokens) a chunk, slack {setting.slack:,}: one eviction {often}\n{_model(cost)}"
    )
    table.add_row("bare forward of a chunk", step.forward_ms.text(1, " ms"))
    for piece, name in (
        ("guidance", "guidance"),
        ("scoring", "scoring and selection"),
        ("eviction", "eviction with summary"),
        ("rotation", "rotation, if eager"),
    ):
        percent, times = step.pieces_percent[piece], step.pieces_ms[piece]
        table.add_row(f"{name}, share of it", f"{percent.text(3, ' %')}, {times.median:.2f} ms")
    table.add_section()
    table.add_row(f"whole step, lazy: a rotation in {step.reindex_every} chunks", step.lazy_percent.text(2, " %"))
    table.add_row("whole step, eager: a rotation after every eviction", step.eager_percent.text(2, " %"))
    return table


def report(machine: Machine, cost: HermesCost) -> dict[str, Any]:
    """Everything as plain values."""
    return {"machine": asdict(machine), "hermes": {**asdict(cost), "goals": [asdict(goal) for goal in cost.goals()]}}


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes, under a minute: shows that it works.")] = False,
    layers: Annotated[int, typer.Option(min=LAYERS, help="More take longer; shares of time hardly change.")] = LAYERS,
    dtype: Annotated[Dtype, typer.Option()] = Dtype.FLOAT32,
    memory_gib: Annotated[float | None, typer.Option(help="By default half of what is free.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="By default what fits into ten minutes, 1 to 9.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Torch threads.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of tables.")] = False,
) -> None:
    """Measure HERMES on this machine. Run it with nothing else running."""
    if threads is not None or quick:
        torch.set_num_threads(threads or 1)
    machine = Machine.here()
    cost = run(quick, layers, getattr(torch, dtype), memory_gib, rounds)
    if as_json:
        print(json.dumps(report(machine, cost), indent=1))
        return
    console = Console(highlight=False)
    console.print(heading(machine, quick))
    shallow, middle, deep = cost.roles
    whole = LLAVA_7B.roles
    console.print(
        f"Of the layers {shallow} shallow, {middle} middle, {deep} deep; of the whole model's {sum(whole)} "
        f"{whole[0]}, {whole[1]}, {whole[2]}.\nIn each round every bare forward ran once and everything else "
        f"{cost.turns} times, in turns; of those a round counts the median."
    )
    for table in (guidance_table(cost), *(step_table(cost, step) for step in cost.steps)):
        console.print()
        console.print(table)
    console.print()
    console.print(goals_table(cost.goals(), quick))


def _model(cost: HermesCost) -> str:
    return f"{cost.model}, {cost.dtype}, {cost.parameters / 1e9:.2f} billion weights, {cost.rounds} rounds"


if __name__ == "__main__":
    typer.run(main)
