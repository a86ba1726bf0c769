"""An answer, whole or as it is being said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered, when, and from how much.

    Attributes:
        question, text: the words, without control tokens.
        stream_time: seconds of the newest frame seen when the question was asked.
        ttft: seconds from the question to the first token of the answer (time to first token).
        duration: seconds from the question to the end of the answer.
        tokens: tokens of the answer, the one that ended it included.
        finish_reason: "stop" when the model ended the answer, "length" at the limit of new tokens.
        policy, budget: what decided on the cache; budget None is no bound.
        frames, chunks: of the stream so far; frames that wait for their chunk to fill are counted.
        tokens_held: tokens in the attention layer that holds most, before the question came.
        tokens_seen: tokens of the stream so far. tokens_evicted: those of them no longer held.
        kv_bytes: bytes of the keys and values held. state_bytes: of recurrent and convolution states.
        watch_seconds: spent on taking the stream in so far, decoding of the source included.
    """

    question: str
    text: str
    stream_time: float
    ttft: float
    duration: float
    tokens: int
    finish_reason: str
    policy: str
    budget: int | None
    frames: int
    chunks: int
    tokens_held: int
    tokens_seen: int
    tokens_evicted: int
    kv_bytes: int
    state_bytes: int
    watch_seconds: float

    def as_dict(self) -> dict[str, Any]:
        """All fields by name, ready for JSON."""
        return asdict(self)


class AnswerStream:
    """An answer in pieces of text, as they are decoded.

    Iterate over it, then read `answer`. Until it is exhausted or closed the session takes no frames and no
    other question; closing it early gives the answer so far up. Use it in a `with` block where the reading
    may break off.
    """

    def __init__(self, pieces: Iterator[str | Answer]) -> None:
        self._pieces = pieces
        self._answer: Answer | None = None

    def __iter__(self) -> Iterator[str]:
        for piece in self._pieces:
            if isinstance(piece, Answer):
                self._answer = piece
            else:
                yield piece

    @property
    def answer(self) -> Answer:
        """The whole answer.

        Raises:
            RuntimeError: before the stream was read to its end.
        """
        if self._answer is None:
            raise RuntimeError("the answer is not complete; read the stream to its end first")
        return self._answer

    def close(self) -> None:
        """Stop decoding and free the session. Closing twice is fine."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
