"""One stream's state machine: frames come in, questions are answered, memory stays within the budget."""

from __future__ import annotations

import math
import threading
import time as clock
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
import torch

from longtake.answer import Answer, AnswerStream
from longtake.backbones.backbone import Backbone, Cursor, Segment
from longtake.decoding import Spelling, greedy
from longtake.errors import LongtakeError
from longtake.policies.policy import Policy
from longtake.retention import Retention
from longtake.schedule import Schedule
from longtake.video.chunker import Chunk, Chunker
from longtake.video.frame import Frame
from longtake.video.reader import VideoReader, read_video

MAX_NEW_TOKENS = 64


class Session:
    """Watches one stream and answers questions about it at any moment. Opened by `longtake.open` or an engine.

    Chunks of frames are prefilled into the memory, and the policy then decides which tokens stay, so that no
    attention layer ever holds more than budget + one chunk. A question is decoded from what is held and
    rolled back: it leaves no trace. Calls from several threads wait for each other.

    Args:
        backbone: the loaded model, shared with other sessions.
        policy: this stream's own policy.
        fps: frames per second that `watch` takes from a source; by default what the model was made for.
        chunk_frames: frames prefilled at once; by default one second of them. A multiple of the frames in
            one temporal step of the model.
        frame_pixels: the most pixels of a frame, chosen once for the stream, so that its tokens per frame do not
            depend on its length; by default about 128 tokens' worth, or the checkpoint's own limit if lower.
        device_lock: held while the model runs.
    """

    def __init__(
        self,
        backbone: Backbone,
        policy: Policy,
        *,
        fps: float | None = None,
        chunk_frames: int | None = None,
        frame_pixels: int | None = None,
        device_lock: threading.RLock | None = None,
    ) -> None:
        if policy.needs_recurrent_states and not backbone.has_recurrent_states:
            raise LongtakeError(
                f"Policy '{policy.name}' reads the recurrent states of linear-attention layers, and "
                f"{backbone.name} has none; choose another policy."
            )
        step = backbone.frames_per_step
        self.fps = backbone.default_fps if fps is None else float(fps)
        if not (math.isfinite(self.fps) and self.fps > 0):
            raise LongtakeError(f"fps must be a positive number of frames per second, not {fps}.")
        if chunk_frames is None:
            chunk_frames = policy.chunk_frames() or step * max(1, math.ceil(self.fps / step))
        self.chunk_frames = chunk_frames
        if self.chunk_frames % step or self.chunk_frames < 1:
            raise LongtakeError(f"A chunk of {backbone.name} takes a multiple of {step} frames, not {chunk_frames}.")
        self.backbone, self.policy = backbone, policy
        self.memory = backbone.memory()
        self.watch_seconds = 0.0
        """Seconds spent on taking frames in, decoding of the source included."""
        self._chunker = Chunker(self.chunk_frames)
        self._chunks = 0
        self._visual_tokens: int | None = None
        self._closed = False
        self._busy = threading.Lock()
        self._owner: int | None = None  # the thread that takes a frame in or reads an answer
        self._device_lock = device_lock or threading.RLock()
        self._cursor = backbone.new_cursor()
        if frame_pixels is not None:
            backbone.check_frame_pixels(frame_pixels)
            self._cursor.frame_pixels = frame_pixels
        self._retention = Retention(backbone, policy, self.memory, lambda: self._cursor)
        with self._device_lock:
            self._prefill(backbone.opening(self._cursor))
            self._retention.begin()

    # Frames -----------------------------------------------------------------------------------------

    def push(self, image: Any, time: float) -> None:
        """Take one frame of a live stream.

        Args:
            image: uint8 [height, width, 3] RGB, or a PIL image. Sizes may change on the way; all frames
                are encoded at the size chosen for the first.
            time: seconds since the stream's start; must grow.

        Raises:
            LongtakeError: for an image or a time that cannot be used, or a budget too small. The frame has
                not been taken then, and the session is as before.
        """
        started = clock.perf_counter()
        with self._ready():
            self._take(Frame(float(time), _rgb(image)))
        self.watch_seconds += clock.perf_counter() - started

    def watch(
        self,
        source: str | PathLike[str] | VideoReader,
        questions: Iterable[tuple[float | None, str]] = (),
        *,
        on_frame: Callable[[float], None] | None = None,
        on_answer: Callable[[Answer], None] | None = None,
        max_new_tokens: int = MAX_NEW_TOKENS,
    ) -> list[Answer]:
        """Watch a video file to its end, asking questions on the way.

        A file watched after other frames continues the stream, one frame interval after the last one.

        Args:
            source: path of a video file, or a reader already opened (its own sampling then holds).
            questions: (seconds of this file, question) pairs in any order; None, or a time past the end,
                asks at the end. A question is asked when all frames up to its time have been seen.
            on_frame: called after each frame with its time in this file.
            on_answer: called with each answer as it comes.
            max_new_tokens: limit of each answer.

        Returns:
            the answers in the order of their times.

        Raises:
            LongtakeError: for a file that cannot be read, or a question or budget that cannot be used.
        """
        schedule = Schedule(questions)
        for question in schedule:
            self.backbone.check_question(question)
        answers: list[Answer] = []

        def ask(due: Iterator[str]) -> None:
            for question in due:
                answers.append(self.ask(question, max_new_tokens=max_new_tokens))
                if on_answer is not None:
                    on_answer(answers[-1])

        mark = clock.perf_counter()
        offset = self.time + 1 / self.fps if self.frames else 0.0
        with source if isinstance(source, VideoReader) else read_video(source, self.fps) as reader:
            for frame in reader:
                self.watch_seconds += clock.perf_counter() - mark
                if self.frames:
                    ask(schedule.before(frame.time))
                mark = clock.perf_counter()
                with self._ready():
                    self._take(Frame(frame.time + offset, frame.image))
                if on_frame is not None:
                    on_frame(frame.time)
        self.watch_seconds += clock.perf_counter() - mark
        ask(schedule.rest())
        return answers

    @property
    def time(self) -> float:
        """Seconds of the newest frame; 0 before the first."""
        return self._chunker.time or 0.0

    @property
    def frames(self) -> int:
        """Frames taken so far, waiting ones included."""
        return self._chunks * self.chunk_frames + len(self._chunker.pending)

    @property
    def frame_size(self) -> tuple[int, int] | None:
        """(height, width) in pixels at which this stream's frames are encoded; None before the first chunk."""
        return self._cursor.frame_size

    @property
    def visual_tokens(self) -> int | None:
        """Visual tokens of a temporal step of this stream; None before the first chunk."""
        return self._visual_tokens

    @property
    def chunks(self) -> int:
        """Chunks prefilled so far."""
        return self._chunks

    @property
    def tokens_evicted(self) -> int:
        """Tokens of the stream that the fullest attention layer no longer holds."""
        return self.memory.evicted

    # Questions --------------------------------------------------------------------------------------

    def ask(self, question: str, *, max_new_tokens: int = MAX_NEW_TOKENS) -> Answer:
        """Answer a question about the stream so far, greedily, and forget that it was asked.

        Raises:
            LongtakeError: for an empty question, one with control tokens, or before the first frame.
        """
        with self.stream(question, max_new_tokens=max_new_tokens) as pieces:
            deque(pieces, maxlen=0)
        return pieces.answer

    def stream(self, question: str, *, max_new_tokens: int = MAX_NEW_TOKENS) -> AnswerStream:
        """Like `ask`, but gives the answer's text in pieces. The question is asked when the reading begins."""
        if max_new_tokens < 1:
            raise LongtakeError(f"An answer needs at least one new token, not {max_new_tokens}.")
        self.backbone.check_question(question)
        return AnswerStream(self._decode(question, max_new_tokens))

    def logits(self, question: str) -> torch.Tensor:
        """Logits [vocabulary] (float32) of the first token that would answer the question, which is then forgotten.

        Raises:
            LongtakeError: as `ask`.
        """
        self.backbone.check_question(question)
        with self._ready(), self.memory.untraced():
            return self._hear(question, replace(self._cursor))

    def attention(self, texts: Sequence[str]) -> list[list[torch.Tensor]]:
        """Where texts look in what is held, each for itself: for each attention layer and text [rows held] float32.

        As `Probe.attention`; the columns are the rows of the layers' ledgers. The texts are forgotten again.
        """
        with self._ready(), self._device_lock:
            probe = self._retention.probe
            return probe.attention([probe.ids(text) for text in texts])

    def close(self) -> None:
        """Free the stream's memory. Closing twice is fine; a closed session takes no frames and no questions."""
        with self._ready(closing=True):
            self._closed = True
            self.memory.release()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Inside -----------------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        chunk = self._chunker.push(frame)
        if chunk is None:
            return
        try:
            self._prefill_chunk(chunk)
        except BaseException:
            if self._chunks == chunk.index:  # it did not get in, so its last frame was not taken
                self._chunker.put_back(chunk)
            raise

    def _prefill_chunk(self, chunk: Chunk) -> None:
        with self._device_lock:
            cursor = replace(self._cursor)
            segment = self.backbone.encode(chunk, cursor)
            if self._chunks == 0:
                self._visual_tokens = int(segment.rows.patch.max()) + 1
                self._retention.prepare(len(segment))
            self._retention.prefill(segment)
            self._cursor, self._chunks = cursor, chunk.index + 1
            self._retention.decide(chunk.index)

    def _prefill(self, segment: Segment) -> torch.Tensor:
        with self.memory.appending(segment.rows) as cache:
            return self.backbone.forward(segment, cache)

    def _hear(self, question: str, cursor: Cursor) -> torch.Tensor:
        """Prefill the frames that wait for their chunk, and the question; logits of the answer's first token."""
        if not self.frames:
            raise LongtakeError("Nothing has been watched yet; push a frame or watch a video before asking.")
        with self._device_lock:
            if self._chunker.pending:
                waiting = Chunk(self._chunker.pending, self._chunks)
                self._prefill(self.backbone.encode(waiting, cursor))
            return self.backbone.logits(self._prefill(self.backbone.closing(question, cursor)))

    def _decode(self, question: str, max_new_tokens: int) -> Iterator[str | Answer]:
        asked = clock.perf_counter()
        with self._ready():
            backbone, memory = self.backbone, self.memory
            held, seen, evicted, kv_bytes = memory.held, memory.seen, memory.evicted, memory.kv_bytes
            cursor = replace(self._cursor)
            spelling = Spelling(backbone.words)

            def advance(token: int) -> torch.Tensor:
                with self._device_lock:
                    return backbone.logits(self._prefill(backbone.text([token], cursor)))

            with memory.untraced():
                logits = self._hear(question, cursor)
                ttft = clock.perf_counter() - asked
                for token in greedy(logits, advance, backbone.stop_ids, max_new_tokens):
                    yield from filter(None, [spelling.add(token)])
                yield from filter(None, [spelling.rest()])
            self.policy.answered(question, spelling.text.strip())
        yield Answer(
            question=question,
            text=spelling.text.strip(),
            stream_time=self.time,
            ttft=ttft,
            duration=clock.perf_counter() - asked,
            tokens=len(spelling.ids),
            finish_reason="stop" if spelling.ids[-1] in backbone.stop_ids else "length",
            policy=self.policy.name,
            budget=self.policy.budget,
            frames=self.frames,
            chunks=self._chunks,
            tokens_held=held,
            tokens_seen=seen,
            tokens_evicted=evicted,
            kv_bytes=kv_bytes,
            state_bytes=memory.state_bytes,
            watch_seconds=self.watch_seconds,
        )

    @contextmanager
    def _ready(self, *, closing: bool = False) -> Iterator[None]:
        """The session for this thread alone, with no step half done. Other threads wait."""
        if self._owner == threading.get_ident():
            raise LongtakeError("An answer is still being read; read it to its end or close it first.")
        with self._busy:
            self._owner = threading.get_ident()
            try:
                if self._closed and not closing:
                    raise LongtakeError("The session is closed; open another one.")
                if self._retention.unfinished:
                    with self._device_lock:
                        self._retention.decide()
                yield
            finally:
                self._owner = None


def _rgb(image: Any) -> np.ndarray[Any, Any]:
    """A pushed image as an array of our own, since cameras reuse theirs; the chunker checks type and shape."""
    convert = getattr(image, "convert", None)  # PIL
    return np.array(convert("RGB") if convert is not None else image)
