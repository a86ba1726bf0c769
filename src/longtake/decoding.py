"""From logits to words: greedy decoding, and text in pieces that never have to be taken back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from torch import Tensor


def greedy(first: Tensor, advance: Callable[[int], Tensor], stop_ids: Collection[int], limit: int) -> Iterator[int]:
    """Token ids of the most probable continuation, the stop token included, `limit` at most.

    Args:
        first: logits [vocabulary] of the first token.
        advance: takes a token in and returns the logits [vocabulary] after it. Not called after the last one.
    """
    logits = first
    for count in range(1, limit + 1):
        token = int(logits.argmax())
        yield token
        if token in stop_ids or count == limit:
            return
        logits = advance(token)


class Spelling:
    """Turns token ids into text piece by piece.

    Args:
        words: the text of a sequence of ids, control tokens left out.
    """

    def __init__(self, words: Callable[[Sequence[int]], str]) -> None:
        self.ids: list[int] = []
        self._words = words
        self._said = ""

    def add(self, token: int) -> str:
        """The text that is certain with this token; empty while a character's bytes are not all there."""
        self.ids.append(token)
        text = self._words(self.ids)
        if text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        return self._say(text)

    def rest(self) -> str:
        """What is left to say when no token follows."""
        return self._say(self._words(self.ids))

    @property
    def text(self) -> str:
        """All that was said."""
        return self._said

    def _say(self, text: str) -> str:
        piece, self._said = text[len(self._said) :], text
        return piece
