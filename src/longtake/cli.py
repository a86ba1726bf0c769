"""The command line: `longtake demo`, `longtake ask`, `longtake policies`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from longtake import LongtakeError, __version__

if TYPE_CHECKING:
    from longtake.answer import Answer
    from longtake.session import Session

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Watch video in a fixed memory and answer questions about it at any moment.",
)
# A pipe has no width of its own; tables get one that holds them.
out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 110)
err = Console(stderr=True, highlight=False, soft_wrap=True)

Model = Annotated[str, typer.Option(help="'toy' (embedded), a checkpoint folder, or a hub id.")]


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
    if version:
        out.print(__version__)
        raise typer.Exit


@app.command()
def ask(
    video: Annotated[Path, typer.Argument(help="A video file.", show_default=False)],
    questions: Annotated[list[str], typer.Argument(help="One question or more.", show_default=False)],
    at: Annotated[
        list[float] | None,
        typer.Option(help="Seconds at which to ask: once for all questions, or once per question. Default: the end."),
    ] = None,
    model: Model = "toy",
    policy: Annotated[str, typer.Option(help="What stays in memory; see `longtake policies`.")] = "deltas",
    budget: Annotated[int | None, typer.Option(help="Tokens per attention layer. Default: 8192.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", metavar="NAME=VALUE", help="A hyperparameter of the policy.")
    ] = None,
    fps: Annotated[float | None, typer.Option(help="Frames per second to watch. Default: the model's own.")] = None,
    frame_pixels: Annotated[int | None, typer.Option(help="Most pixels of a frame, chosen once per stream.")] = None,
    frame_tokens: Annotated[int | None, typer.Option(help="Most visual tokens of a temporal step, instead.")] = None,
    dtype: Annotated[str, typer.Option(help="'auto' (the checkpoint's own), float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str | None, typer.Option(help="Where to run. Default: cuda if there is one, else cpu.")] = None,
    device_map: Annotated[str | None, typer.Option(help="Spread layers over devices, e.g. 'auto'.")] = None,
    vision_attention: Annotated[str | None, typer.Option(help="The vision tower's attention, e.g. sdpa.")] = None,
    adapter: Annotated[str | None, typer.Option(help="Folder or hub id of a LoRA adapter.")] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 64,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per answer, a line each.")] = False,
) -> None:
    """Watch VIDEO once and answer each question when the stream reaches its time."""
    from longtake.engine import Engine
    from longtake.policies.registry import make_policy
    from longtake.video.reader import read_video

    moments: list[float | None] = [*at] if at else [None]
    if len(moments) not in (1, len(questions)):
        raise LongtakeError(
            f"There are {len(questions)} questions and {len(moments)} times; give --at once, or once per question."
        )
    moments = moments * len(questions) if len(moments) == 1 else moments
    # Cheap checks come first: nothing is loaded for a policy or a file that cannot be used.
    chosen = make_policy(policy, budget, _options(option))
    read_video(video, fps).close()
    engine = Engine.load(
        model, dtype=dtype, device=device, device_map=device_map, vision_attention=vision_attention, adapter=adapter
    )
    opened = engine.open(chosen, fps=fps, frame_pixels=frame_pixels, frame_tokens=frame_tokens)
    with _interruptible(), opened as session, read_video(video, session.fps) as reader:
        waiting = sorted(
            ((float("inf") if moment is None else moment, moment) for moment in moments), key=lambda pair: pair[0]
        )
        settings = {k: v for k, v in asdict(chosen).items() if k != "budget"}
        if not as_json:
            _print_settings(model, policy, chosen.budget, settings, budget)

        def show(answer: Answer) -> None:
            asked_at = waiting.pop(0)[1]
            past_end = asked_at is not None and answer.stream_time + 1 / session.fps < asked_at
            if as_json:
                _print_json(answer, session, settings, asked_at, past_end)
                return
            note = f" (asked at {asked_at:g} s, past the end of the video)" if past_end else ""
            out.print(
                f"[dim]{answer.stream_time:8.1f} s[/]  {escape(answer.question)}  [bold]{escape(answer.text)}[/]{note}"
            )

        with _progress() as advance:
            session.watch(
                reader,
                list(zip(moments, questions, strict=True)),
                on_frame=lambda time: advance("watching", time / reader.duration if reader.duration else 0.0),
                on_answer=show,
                max_new_tokens=max_new_tokens,
            )
        if not as_json:
            memory = session.memory
            out.print(
                f"[dim]{session.frames} frames in {session.chunks} chunks; {memory.held} of {memory.seen} tokens held, "
                f"{memory.kv_bytes:,} bytes of keys and values, {memory.state_bytes:,} of recurrent states; "
                f"watched in {session.watch_seconds:.1f} s[/]"
            )
            height, width = session.frame_size or (0, 0)
            kernels = "".join(f", {operation} by {package}" for operation, package in session.backbone.kernels.items())
            out.print(
                f"[dim]frames of {width}x{height} pixels, {session.visual_tokens} visual tokens per temporal step; "
                f"{session.backbone.dtype}{kernels}[/]"
            )
        if reader.decode_errors:
            err.print(f"Note: {reader.decode_errors} places of {escape(str(video))} could not be decoded.")


@app.command()
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
    with _interruptible(), _progress() as advance:
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


@app.command()
def models() -> None:
    """List the model families that can watch."""
    from longtake.backbones.load import FAMILIES

    width = max(len(family.family) for family in FAMILIES)
    for family in FAMILIES:
        kinds = ", ".join(family.model_types)
        facts = f"model_type {kinds}; attention {family.attention}; positions {family.positions}; {family.verified}"
        out.print(f"{family.family:<{width}}  {facts}")
    out.print("The embedded model 'toy' is a Qwen3.5 of 0.8 million parameters that knows its own world only.")


@app.command()
def policies() -> None:
    """List the retention policies."""
    from longtake.policies.registry import POLICIES

    width = max(map(len, POLICIES))
    for name, policy in POLICIES.items():
        out.print(f"{name:<{width}}  {policy.summary}")


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


@contextmanager
def _interruptible() -> Iterator[None]:
    """An interrupt ends the command with a word; what was printed stays."""
    try:
        yield
    except KeyboardInterrupt:
        err.print("Interrupted.")
        raise typer.Exit(130) from None


def _options(pairs: list[str] | None) -> dict[str, str]:
    options = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise LongtakeError(f"An option of a policy is written NAME=VALUE, not '{pair}'.")
        options[name] = value
    return options


def _print_settings(model: str, policy: str, used: int | None, settings: dict[str, Any], asked: int | None) -> None:
    words = ", ".join(f"{name} {value}" for name, value in settings.items())
    size = f"budget {used}" if used is not None else "no budget"
    if used is None and asked is not None:
        size += f" (--budget {asked} is not used: this policy keeps everything)"
    out.print(f"[dim]model {escape(model)}, policy {policy}: {size}{', ' if words else ''}{words}[/]")
    if model == "toy":
        err.print("[dim]The toy model knows only the shapes of its own world; elsewhere its words mean nothing.[/]")


def _print_json(
    answer: Answer, session: Session, settings: dict[str, Any], asked_at: float | None, past_end: bool
) -> None:
    facts = answer.as_dict()
    record = {
        "question": facts.pop("question"),
        "answer": facts.pop("text"),
        "asked_at": asked_at,
        "past_end": past_end,
        "stream_time": facts.pop("stream_time"),
        "model": session.backbone.name,
        "family": session.backbone.family,
        "dtype": session.backbone.dtype,
        "kernels": session.backbone.kernels,
        "frame_size": session.frame_size,
        "visual_tokens": session.visual_tokens,
        "policy": facts.pop("policy"),
        "policy_options": settings,
        "ttft_ms": round(facts.pop("ttft") * 1000, 3),
        "answer_ms": round(facts.pop("duration") * 1000, 3),
        "watch_s": round(facts.pop("watch_seconds"), 3),
        **facts,
    }
    print(json.dumps(record, ensure_ascii=False), flush=True)


@contextmanager
def _progress() -> Iterator[Any]:
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


if __name__ == "__main__":
    main()
