"""What every command that watches a video takes, and how it opens its session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from longtake import LongtakeError
from longtake.cli.terminal import err, out

if TYPE_CHECKING:
    from longtake.policies.policy import Policy
    from longtake.session import Session

Video = Annotated[Path, typer.Argument(help="A video file.", show_default=False)]
Model = Annotated[str, typer.Option(help="'toy' (embedded), a checkpoint folder, or a hub id.")]
PolicyName = Annotated[str, typer.Option(help="What stays in memory; see `longtake policies`.")]
Budget = Annotated[int | None, typer.Option(help="Tokens per attention layer. Default: the policy's own.")]
Options = Annotated[
    list[str] | None, typer.Option("--option", "-o", metavar="NAME=VALUE", help="A hyperparameter of the policy.")
]
Fps = Annotated[float | None, typer.Option(help="Frames per second to watch. Default: the model's own.")]
ChunkFrames = Annotated[
    int | None, typer.Option(help="Frames taken in at once. Default: the policy's own, or one second of them.")
]
FramePixels = Annotated[int | None, typer.Option(help="Most pixels of a frame, chosen once per stream.")]
FrameTokens = Annotated[int | None, typer.Option(help="Most visual tokens of a temporal step, instead.")]
Dtype = Annotated[str, typer.Option(help="'auto' (the checkpoint's own), float32, bfloat16 or float16.")]
Device = Annotated[str | None, typer.Option(help="Where to run. Default: cuda if there is one, else cpu.")]
DeviceMap = Annotated[str | None, typer.Option(help="Spread layers over devices, e.g. 'auto'.")]
VisionAttention = Annotated[str | None, typer.Option(help="The vision tower's attention, e.g. sdpa.")]
Adapter = Annotated[str | None, typer.Option(help="Folder or hub id of a LoRA adapter.")]


def choose_policy(name: str, budget: int | None, pairs: list[str] | None) -> Policy:
    """The policy that the command line names, with its NAME=VALUE options."""
    from longtake.policies.registry import make_policy

    options = {}
    for pair in pairs or []:
        option, equals, value = pair.partition("=")
        if not equals:
            raise LongtakeError(f"An option of a policy is written NAME=VALUE, not '{pair}'.")
        options[option] = value
    return make_policy(name, budget, options)


def open_session(
    video: Path,
    chosen: Policy,
    *,
    model: str,
    fps: float | None,
    chunk_frames: int | None,
    frame_pixels: int | None,
    frame_tokens: int | None,
    **loading: str | None,
) -> Session:
    """A session on the model, once the video is known to be one: no model is loaded for a file that cannot be used.

    Args:
        loading: how the model is loaded, see `longtake.backbones.load.load`.
    """
    from longtake.engine import Engine
    from longtake.video.reader import read_video

    read_video(video, fps).close()
    engine = Engine.load(model, **loading)
    return engine.open(chosen, fps=fps, chunk_frames=chunk_frames, frame_pixels=frame_pixels, frame_tokens=frame_tokens)


def print_settings(model: str, policy: Policy, asked: int | None) -> None:
    """One line on what runs, and a warning where it is the toy. `asked` is the budget of the command line."""
    words = ", ".join(f"{name} {value}" for name, value in policy.settings().items())
    size = f"budget {policy.budget}" if policy.budget is not None else "no budget"
    if policy.budget is None and asked is not None:
        size += f" (--budget {asked} is not used: this policy keeps everything)"
    out.print(f"[dim]model {escape(model)}, policy {policy.name}: {size}{', ' if words else ''}{words}[/]")
    if model == "toy":
        err.print("[dim]The toy model knows only the shapes of its own world; elsewhere its words mean nothing.[/]")


def print_decode_errors(video: Path, errors: int) -> None:
    """A note where parts of the video could not be read."""
    if errors:
        err.print(f"Note: {errors} places of {escape(str(video))} could not be decoded.")
