"""`longtake memory`: a picture of what each attention layer holds of a video."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from longtake import LongtakeError
from longtake.cli import watching
from longtake.cli.terminal import interruptible, out, progress

if TYPE_CHECKING:
    from longtake.report.holdings import Holdings


def memory(
    video: watching.Video,
    picture: Annotated[
        Path, typer.Option("--out", help="The picture, a PNG; the same content goes into a JSON file beside it.")
    ] = Path("memory.png"),
    at: Annotated[float | None, typer.Option(help="Stop watching at this second. Default: the end.")] = None,
    attention: Annotated[
        bool, typer.Option("--attention/--no-attention", help="Read where the guidance prompt looks, or leave it out.")
    ] = True,
    model: watching.Model = "toy",
    policy: watching.PolicyName = "deltas",
    budget: watching.Budget = None,
    option: watching.Options = None,
    fps: watching.Fps = None,
    chunk_frames: watching.ChunkFrames = None,
    frame_pixels: watching.FramePixels = None,
    frame_tokens: watching.FrameTokens = None,
    dtype: watching.Dtype = "auto",
    device: watching.Device = None,
    device_map: watching.DeviceMap = None,
    vision_attention: watching.VisionAttention = None,
    adapter: watching.Adapter = None,
) -> None:
    """Watch VIDEO and draw what each attention layer still holds of it, and where a guidance prompt looks."""
    from longtake.report.canvas import require_writable
    from longtake.report.holdings import take_stock
    from longtake.report.layers import draw_layers
    from longtake.video.reader import read_video

    if picture.suffix.lower() != ".png":
        raise LongtakeError(f"The picture is a PNG and the JSON stands beside it; {picture} does not end in .png.")
    if at is not None and not at >= 0:
        raise LongtakeError(f"The time to stop at must be 0 seconds or later, not {at}.")
    chosen = watching.choose_policy(policy, budget, option)
    facts = picture.with_suffix(".json")
    # An hour of watching is not to end in a place where nothing can be written.
    for target in (picture, facts):
        require_writable(target)
    opened = watching.open_session(
        video,
        chosen,
        model=model,
        fps=fps,
        chunk_frames=chunk_frames,
        frame_pixels=frame_pixels,
        frame_tokens=frame_tokens,
        dtype=dtype,
        device=device,
        device_map=device_map,
        vision_attention=vision_attention,
        adapter=adapter,
    )
    with interruptible(), opened as session, read_video(video, session.fps, until=at) as reader:
        watching.print_settings(model, chosen, budget)
        length = min(filter(None, (reader.duration, at)), default=None)
        times: list[float] = []
        with progress() as advance:

            def on_frame(time: float) -> None:
                times.append(time)
                advance("watching", time / length if length else 0.0)

            session.watch(reader, on_frame=on_frame)
            advance("looking at what is held", 0.0)
            stock = take_stock(session, times, attention=attention)
        draw_layers(stock, picture, f"What {policy} holds of {video.name}")
        record = {"video": str(video), **stock.as_dict()}
        try:
            facts.write_text(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        except OSError as error:
            raise LongtakeError(f"The facts {facts} could not be written: {error}.") from error
        _print_table(stock)
        out.print(
            f"{stock.frames} frames in {stock.chunks} chunks, {stock.tokens_seen} tokens seen; "
            f"watched in {session.watch_seconds:.1f} s."
        )
        out.print(f"Picture {escape(str(picture))}, the same as JSON {escape(str(facts))}.")
        watching.print_decode_errors(video, reader.decode_errors)


def _print_table(stock: Holdings) -> None:
    roles = any(layer.role for layer in stock.layers)
    table = Table(title=f"Held after {stock.seconds:g} s", title_justify="left", box=SIMPLE_HEAD)
    for column in ("layer", *(["role"] if roles else []), "tokens", "visual", "oldest moment", "summaries"):
        table.add_column(column, justify="left" if column == "role" else "right")
    for layer in stock.layers:
        oldest = "-" if layer.oldest is None else f"{layer.oldest:.1f} s"
        role = [layer.role] if roles else []
        table.add_row(str(layer.number), *role, str(layer.tokens), str(layer.visual), oldest, str(len(layer.summaries)))
    out.print(table, soft_wrap=False)
