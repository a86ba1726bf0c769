"""What the embedded models have in common, and what training must know of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Final

import torch
from torch import Tensor
from transformers.image_utils import SizeDict

from longtake.toy import WEIGHTS

SIDE: Final = 32
"""Height and width in pixels that a vision tower sees."""
PATCH: Final = 8
TOKENS: Final = 4
"""Visual tokens of one second: what is merged or pooled from 4x4 patches."""
HIDDEN: Final = 128


class Species(ABC):
    """One of the library's model families, at toy size. One chunk of its stream is one second."""

    name: ClassVar[str]
    """What `longtake.open` calls it."""
    frames: ClassVar[int]
    """Frames in a chunk, so also per second."""
    clock: ClassVar[bool]
    """Whether words between the frames tell the time."""
    axes: ClassVar[int]
    forks: ClassVar[bool]
    """Whether several questions can be packed after one stream so that none sees another; recurrent states go on from
    one to the next."""
    steps: ClassVar[tuple[int, int]]
    """Training steps of the two stages."""
    minutes: ClassVar[int]
    """How long they take on one core."""
    views: ClassVar[tuple[tuple[bool, ...], ...]]
    """In which frames of a chunk a thing shows, for each kind of chunk that it can leave."""

    @property
    def weights(self) -> Path:
        """Folder of the shipped checkpoint, in the library's own formats."""
        return WEIGHTS / self.name

    @abstractmethod
    def processor(self) -> Any:
        """The library's own processor, set so that a frame becomes 32x32 pixels and a second four tokens."""

    @abstractmethod
    def model(self, tokenizer: Any, seed: int) -> Any:
        """Random weights that follow from the seed."""

    @abstractmethod
    def encode(self, model: Any, processor: Any, chunks: Tensor) -> Tensor:
        """The tower over many chunks at once: uint8 [n, frames, 3, 32, 32] to float32 [n, 4, 128].

        Same weights and result as the library's forward.
        """

    @abstractmethod
    def tower(self, model: Any) -> list[torch.nn.Parameter]:
        """The parameters of all that stands before the language model."""

    def language(self, model: Any) -> list[torch.nn.Parameter]:
        """The parameters that the second stage trains."""
        return list(model.model.language_model.parameters())

    @abstractmethod
    def piece(self, processor: Any, time: float) -> str:
        """The text of one chunk, placeholders for its visual tokens included; `time` is in seconds."""

    @abstractmethod
    def positions(self, ids: Tensor, video_id: int, skips: Tensor) -> Tensor:
        """Positions [axes, L] of a sequence [L]; `skips` [L] adds a jump after each token."""

    def ending(self, model: Any) -> Tensor:
        """Embeddings [n, 128] of placeholders that end a video when a question comes."""
        return torch.zeros(0, HIDDEN)

    def training(self) -> AbstractContextManager[None]:
        """What makes the second stage fast."""
        return nullcontext()

    def hidden(self, model: Any, embeddings: Tensor, positions: Tensor, branches: Tensor) -> Tensor:
        """Last hidden states [B, L, 128] of whole sequences.

        Args:
            positions: [axes, B, L].
            branches: int64 [B, L], 0 for what all see, else the number of the question.
        """
        out: Tensor = model.model.language_model(
            inputs_embeds=embeddings, position_ids=positions, use_cache=False
        ).last_hidden_state
        return out

    def shrink(self, processor: Any, frames: Tensor) -> Tensor:
        """uint8 [n, 3, 128, 128] to uint8 [n, 3, 32, 32], with the processor's own resize."""
        video = processor.video_processor
        small: Tensor = video.resize(frames, size=self.size(processor), resample=video.resample)
        assert small.shape[-2:] == (SIDE, SIDE)
        return small

    @staticmethod
    def size(processor: Any) -> SizeDict:
        """What the video processor resizes to."""
        return SizeDict(**dict(processor.video_processor.size))


def token_id(tokenizer: Any, name: str) -> int:
    """The id of a token that must be there."""
    index = tokenizer.convert_tokens_to_ids(name)
    assert isinstance(index, int)
    return index


def token_ids(tokenizer: Any, names: Sequence[str]) -> Tensor:
    """The ids of several."""
    return torch.tensor([token_id(tokenizer, name) for name in names])
