"""The core's figures, each from one interleaved run: `python -m benchmarks.core`.

Two parts. *slice*: layers in the shapes of Qwen3.5-9B at 8,192 tokens held; the product's step against the
library's plain loop, the share of DeltaS in it, and the bytes held. *toy*: hours of stream through the embedded
model; resident memory, slowing down, frames per second. Figures mean little while anything else runs.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import chunk_cost, soak
from benchmarks.chunk_cost import ChunkCost
from benchmarks.machine import Machine, available_bytes
from benchmarks.printing import GIB, Dtype, duration, figures, goals_table, heading, notes, shown
from benchmarks.real_shape import PERIOD, QWEN35_9B, TINY, layers_that_fit, needed_bytes
from benchmarks.soak import Soak
from benchmarks.timing import Goal
from longtake.backbones.backbone import Backbone
from longtake.backbones.load import load
from longtake.policies.deltas import DeltaS


class Part(StrEnum):
    SLICE = "slice"
    TOY = "toy"


def run_slice(quick: bool, layers: int | None, dtype: torch.dtype, memory_gib: float | None, rounds: int) -> ChunkCost:
    """The slice part, with its estimate told beforehand."""
    shapes = TINY if quick else QWEN35_9B
    limit = available_bytes() // 2 if memory_gib is None else int(memory_gib * GIB)
    layers = layers or layers_that_fit(shapes, dtype, limit, PERIOD if quick else 2 * PERIOD)
    if layers % PERIOD:
        raise typer.BadParameter(f"--layers must be a multiple of {PERIOD}, the model's period, not {layers}.")
    needed = needed_bytes(shapes, layers, dtype)
    seconds = chunk_cost.estimate_seconds(shapes, layers, dtype, rounds)
    notes.print(
        f"slice: {layers} layers of {shapes.name}, {needed / GIB:.1f} GiB of {limit / GIB:.1f} GiB allowed, "
        f"{rounds} rounds; takes about {duration(seconds)}."
    )
    if needed > limit:
        notes.print(f"slice: more than --memory-gib allows; {PERIOD} layers are the least.", style="yellow")
    with Progress(console=notes, transient=True) as progress:
        return chunk_cost.measure(shapes, layers, dtype, rounds, on_round=shown(progress, "slice"))


def run_toy(backbone: Backbone, budget: int, chunks: int, blocks: int, block: int = soak.BLOCK) -> Soak:
    """The toy part, with its estimate told beforehand."""
    seconds = soak.estimate_seconds(backbone, budget, chunks, blocks)
    notes.print(f"toy: {chunks:,} chunks after a budget of {budget:,} is full; takes about {duration(seconds)}.")
    with Progress(console=notes, transient=True) as progress:
        return soak.measure(backbone, budget, chunks, blocks, block=block, on_chunk=shown(progress, "toy"))


def slice_table(cost: ChunkCost) -> Table:
    """The slice's figures for reading."""
    table = figures(
        f"One second of video ({cost.chunk_tokens} tokens) at {cost.held:,} tokens held\n"
        f"{cost.model}, {cost.dtype}, {cost.parameters / 1e9:.2f} billion weights, "
        f"{cost.step_ms.rounds} rounds, the three in turns"
    )
    for name, spread in (
        ("A  longtake, full step", cost.step_ms),
        ("B  library's plain loop (DynamicCache, sdpa)", cost.plain_ms),
        ("C  longtake, forward alone", cost.forward_ms),
    ):
        table.add_row(name, spread.text(1, " ms"))
    table.add_row("A / B, per round", cost.step_to_plain.text(3))
    table.add_row("C / B, per round", cost.forward_to_plain.text(3))
    table.add_row("largest difference of B's and C's results", f"{cost.agreement:.1e} of the largest value")
    table.add_section()
    for name, piece, percent in (
        ("state copy", "copy", cost.copy_percent),
        ("state drift", "drift", cost.drift_percent),
        ("selection", "selection", cost.selection_percent),
        ("eviction", "eviction", cost.eviction_percent),
    ):
        table.add_row(f"{name}, share of C", f"{percent.text(3, ' %')}, {cost.pieces_ms[piece].median:.2f} ms")
    table.add_row("signal (copy + drift), share of C", cost.signal_percent.text(3, " %"))
    table.add_row("signal + selection + eviction, share of C", cost.total_percent.text(3, " %"))
    table.add_section()
    table.add_row("keys and values held", f"{cost.kv_bytes:,} bytes")
    table.add_row(
        "budget x bytes per token", f"{cost.budget:,} x {cost.bytes_per_token:,} = {cost.budget_bytes:,} bytes"
    )
    table.add_row("reserved, with room for chunk and question", f"{cost.kv_bytes_reserved:,} bytes")
    return table


def toy_table(run: Soak) -> Table:
    """The toy's figures for reading."""
    table = figures(
        f"{run.chunks:,} chunks of stream through {run.model} ({run.parameters / 1e6:.2f} million weights) "
        f"at {run.budget:,} tokens held, after the budget is full"
    )
    for threads, speed in run.frames_per_second.items():
        table.add_row(f"frames per second, torch threads {threads}", speed.text(1))
    table.add_row("two threads / one, blocks in turns", run.faster_with_two.text(2))
    table.add_section()
    table.add_row("chunk early in the soak", f"{run.early_ms.text(2, ' ms')}, {run.tokens_early} tokens")
    table.add_row("chunk late in the soak", f"{run.late_ms.text(2, ' ms')}, {run.tokens_late} tokens")
    table.add_row("late / early (medians)", f"{run.late_to_early:.3f}")
    table.add_row("after the soak / a young session, in turns", run.old_to_young.text(3))
    table.add_section()
    table.add_row("resident memory, MiB, along the soak", " ".join(f"{size / 2**20:.1f}" for size in run.resident))
    table.add_row("(most - least) / least", f"{run.growth_percent:.3f} %")
    table.add_row("last - first", f"{run.grown_kib:+,.0f} KiB")
    return table


def report(machine: Machine, cost: ChunkCost | None, run: Soak | None) -> dict[str, Any]:
    """Everything as plain values."""
    parts = {"slice": cost, "toy": run}
    return {
        "machine": asdict(machine),
        **{
            name: {**asdict(part), "goals": [asdict(goal) for goal in part.goals()]}
            for name, part in parts.items()
            if part is not None
        },
    }


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes, under a minute: shows that it works.")] = False,
    only: Annotated[Part | None, typer.Option(help="Run one part.")] = None,
    layers: Annotated[int | None, typer.Option(min=PERIOD, help="Of the slice; by default what fits, up to 8.")] = None,
    dtype: Annotated[Dtype, typer.Option(help="Of the slice.")] = Dtype.FLOAT32,
    memory_gib: Annotated[float | None, typer.Option(help="For the slice; by default half of what is free.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Of the slice.")] = 15,
    threads: Annotated[int | None, typer.Option(min=1, help="Torch threads of the slice.")] = None,
    budget: Annotated[int, typer.Option(min=1, help="Of the toy.")] = DeltaS.default_budget,
    soak_chunks: Annotated[int, typer.Option(min=20, help="Of the toy, once the budget is full.")] = 10_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of tables.")] = False,
) -> None:
    """Measure the core on this machine. Run it with nothing else running."""
    if threads is not None or quick:
        torch.set_num_threads(threads or 1)
    machine, cost, run = Machine.here(), None, None
    if only is not Part.TOY:
        cost = run_slice(quick, layers, getattr(torch, dtype), memory_gib, min(rounds, 5) if quick else rounds)
    if only is not Part.SLICE:
        small = (min(budget, 128), min(soak_chunks, 60), 2, 2) if quick else (budget, soak_chunks, 12)
        run = run_toy(load("toy"), *small)
    if as_json:
        print(json.dumps(report(machine, cost, run), indent=1))
        return
    console = Console(highlight=False)
    console.print(heading(machine, quick))
    goals: list[Goal] = []
    if cost is not None:
        console.print()
        console.print(slice_table(cost))
        goals += cost.goals()
    if run is not None:
        console.print()
        console.print(toy_table(run))
        goals += run.goals()
    console.print()
    console.print(goals_table(goals, quick))


if __name__ == "__main__":
    typer.run(main)
