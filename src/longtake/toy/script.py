"""The tokens of a stream and of its questions, cut from what the processor itself writes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3VLProcessor
from transformers.video_utils import VideoMetadata

from longtake.toy.model import FRAMES, MERGE, PATCH, SIDE, TOKENS


class Script:
    """Token ids of the pieces of a conversation about one video: opening, chunks, turns."""

    def __init__(self, processor: Qwen3VLProcessor) -> None:
        self._processor = processor
        self._tokenizer = processor.tokenizer
        head, _ = self._around_video([("?", None)])
        self.opening = self._ids(head)
        grid = torch.tensor([[1, SIDE // PATCH, SIDE // PATCH]])
        assert grid.prod() == TOKENS * MERGE**2
        metadata = VideoMetadata(total_num_frames=FRAMES, fps=1.0, frames_indices=[0] * FRAMES)
        piece = processor.replace_video_token({"video_grid_thw": grid, "video_metadata": [metadata]}, 0)
        self._before_time, self._after_time = piece.split("0.0")
        self._chunks: dict[str, list[int]] = {}
        self.video_id: int = processor.video_token_id
        self._answer_mark: int = self._tokenizer.convert_tokens_to_ids("assistant")

    def chunk(self, time: float) -> list[int]:
        """One second of video whose two frames are on average at `time`."""
        key = f"{time:.1f}"
        if key not in self._chunks:
            self._chunks[key] = self._ids(self._before_time + key + self._after_time)
        return self._chunks[key]

    def turns(self, turns: Sequence[tuple[str, str | None]]) -> list[int]:
        """From the end of the video on: questions with their answers. An answer of None opens one to be generated."""
        _, tail = self._around_video(turns)
        return self._ids(tail)

    def answer_positions(self, ids: Sequence[int]) -> list[int]:
        """Indices in `ids` of the tokens from which an answer is predicted: each generation prompt's last."""
        return [index for index, token in enumerate(ids) if token == self._answer_mark]

    def word(self, word: str) -> int:
        """The id of a one-token word."""
        (index,) = self._ids(word)
        return index

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


def positions(ids: Tensor, video_id: int, skips: Tensor | None = None) -> Tensor:
    """Three-axis positions of a sequence: [L] to [3, L].

    Text advances all axes by one. A chunk's 2x2 tokens share T and span two rows (H) and columns (W); then all axes
    go on two further. `skips` [L] adds a jump after each token.
    """
    side = round(TOKENS**0.5)
    pads = ids == video_id
    within = (pads.cumsum(0) - 1) % TOKENS
    advance = torch.where(pads, torch.where(within == TOKENS - 1, side, 0), 1)
    if skips is not None:
        advance = advance + skips
    start = advance.cumsum(0) - advance
    rows = torch.where(pads, within // side, 0)
    columns = torch.where(pads, within % side, 0)
    return torch.stack([start, start + rows, start + columns])
