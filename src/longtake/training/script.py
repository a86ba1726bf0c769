"""The tokens of a stream and of its questions, cut from what the processor itself writes."""

from collections.abc import Sequence
from typing import Any

from longtake.training.species import Species


class Script:
    """Token ids of the pieces of a conversation about one video: opening, chunks, turns."""

    def __init__(self, species: Species, processor: Any, endings: int) -> None:
        self._species, self._processor = species, processor
        self._tokenizer = processor.tokenizer
        head, _ = self._around_video([("?", None)])
        self.opening = self._ids(head)
        self._chunks: dict[str, list[int]] = {}
        self.video_id: int = processor.video_token_id
        self.endings = endings
        """Placeholders that end the video, before the first question."""
        self._answer_mark: int = self._tokenizer.convert_tokens_to_ids("assistant")

    def chunk(self, time: float) -> list[int]:
        """One second of video whose frames are on average at `time`."""
        key = f"{time:.1f}" if self._species.clock else ""
        if key not in self._chunks:
            self._chunks[key] = self._ids(self._species.piece(self._processor, time))
        return self._chunks[key]

    def turns(self, turns: Sequence[tuple[str, str | None]]) -> list[int]:
        """From the end of the video on: questions with their answers. An answer of None opens one to be generated."""
        _, tail = self._around_video(turns)
        return [self.video_id] * self.endings + self._ids(tail)

    def branches(self, turns: Sequence[tuple[str, str | None]]) -> list[list[int]]:
        """Turns as one conversation; or, where questions can stand beside each other, each as if it were the only one,
        what ends the video before the first."""
        if not self._species.forks:
            return [self.turns(turns)]
        first, *others = (self.turns([turn]) for turn in turns)
        return [first, *(other[self.endings :] for other in others)]

    def answer_positions(self, ids: Sequence[int]) -> list[int]:
        """Indices in `ids` of the tokens from which an answer is predicted: each generation prompt's last."""
        return [index for index, token in enumerate(ids) if token == self._answer_mark]

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _around_video(self, turns: Sequence[tuple[str, str | None]]) -> tuple[str, str]:
        messages: list[Any] = []
        for number, (question, answer) in enumerate(turns):
            content = [{"type": "text", "text": question}]
            if number == 0:
                content.insert(0, {"type": "video"})
            messages.append({"role": "user", "content": content})
            if answer is not None:
                messages.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
        text = self._processor.apply_chat_template(messages, add_generation_prompt=turns[-1][1] is None, tokenize=False)
        head, tail = text.split(self._processor.video_token)
        return head, tail
