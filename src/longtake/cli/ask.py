"""`longtake ask`: questions to a video, each at its time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from longtake import LongtakeError
from longtake.cli import watching
from longtake.cli.terminal import interruptible, out, progress

if TYPE_CHECKING:
    from longtake.answer import Answer
    from longtake.session import Session


def ask(
    video: watching.Video,
    questions: Annotated[list[str], typer.Argument(help="One question or more.", show_default=False)],
    at: Annotated[
        list[float] | None,
        typer.Option(help="Seconds at which to ask: once for all questions, or once per question. Default: the end."),
    ] = None,
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
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 64,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per answer, a line each.")] = False,
) -> None:
    """Watch VIDEO once and answer each question when the stream reaches its time."""
    from longtake.video.reader import read_video

    moments: list[float | None] = [*at] if at else [None]
    if len(moments) not in (1, len(questions)):
        raise LongtakeError(
            f"There are {len(questions)} questions and {len(moments)} times; give --at once, or once per question."
        )
    moments = moments * len(questions) if len(moments) == 1 else moments
    chosen = watching.choose_policy(policy, budget, option)
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
    with interruptible(), opened as session, read_video(video, session.fps) as reader:
        waiting = sorted(
            ((float("inf") if moment is None else moment, moment) for moment in moments), key=lambda pair: pair[0]
        )
        if not as_json:
            watching.print_settings(model, chosen, budget)

        def show(answer: Answer) -> None:
            asked_at = waiting.pop(0)[1]
            past_end = asked_at is not None and answer.stream_time + 1 / session.fps < asked_at
            if as_json:
                _print_json(answer, session, chosen.settings(), asked_at, past_end)
                return
            note = f" (asked at {asked_at:g} s, past the end of the video)" if past_end else ""
            out.print(
                f"[dim]{answer.stream_time:8.1f} s[/]  {escape(answer.question)}  [bold]{escape(answer.text)}[/]{note}"
            )

        with progress() as advance:
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
        watching.print_decode_errors(video, reader.decode_errors)


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
