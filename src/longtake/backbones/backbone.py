"""The contract of a model family, and the parts that all families share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from longtake.backbones.kernels import linear_attention_kernels
from longtake.backbones.prompt import Prompt
from longtake.errors import LongtakeError
from longtake.kv.ledger import Kind, Rows
from longtake.kv.rotary import KeyRotation
from longtake.memory import FULL, LINEAR, Memory
from longtake.video.chunker import Chunk

FRAME_PIXELS = 128 * 32 * 32
"""Pixels of a frame at most, unless the checkpoint's own limit is lower: 128 tokens per temporal step at
patch 16 and merge 2 (Qwen3-VL, Qwen3.5), about what DeltaS uses (98-112 visual tokens per second), and 167 at
patch 14 (Qwen2-VL, Qwen2.5-VL)."""


@dataclass(slots=True)
class Cursor:
    """Where a stream stands in its model's positions. Copied at a checkpoint, never kept on the model.

    Attributes:
        position: next rotary position of a text token.
        frames: frames encoded so far.
        time: seconds of the newest frame encoded.
        frame_size: (height, width) in pixels at which this stream's frames are encoded, fixed by its first.
        frame_pixels: the most pixels a frame may have; a model with one fixed size does not ask.
    """

    position: int = 0
    frames: int = 0
    time: float = 0.0
    frame_size: tuple[int, int] | None = None
    frame_pixels: int = FRAME_PIXELS

    @property
    def reach(self) -> int:
        """The largest position that the stream has come to."""
        return self.position


@dataclass(frozen=True, slots=True)
class Segment:
    """What one call of the language model takes.

    Attributes:
        embeddings: [1, n, hidden].
        rows: facts of the n tokens; `rows.position` [n, axes] are the explicit rotary positions.
        extras: further arguments of the language model.
    """

    embeddings: Tensor
    rows: Rows
    extras: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)


class Backbone(ABC):
    """A loaded model, without any stream's state: one serves all sessions.

    Args:
        model: the library's conditional-generation model, in eval mode, with the project's attention.
        processor: the library's processor of the same checkpoint.
        name: what the user called it.
    """

    family: ClassVar[str]
    model_types: ClassVar[tuple[str, ...]]
    axes: ClassVar[int]
    attention: ClassVar[str] = "full"
    """Kinds of attention layers, in words."""
    positions: ClassVar[str]
    """Kind of rotary positions, in words."""
    verified: ClassVar[str] = "exact on random weights of the real classes; real weights not tried"
    frames_per_step: int
    """Frames that one temporal step of the vision tower takes; a chunk is a multiple of it."""
    default_fps: float
    prompt: Prompt
    """The text around the video, cut out of the checkpoint's chat template."""

    def __init__(self, model: Any, processor: Any, name: str) -> None:
        self.model, self.processor, self.name = model, processor, name
        self.tokenizer = processor.tokenizer
        self.language_model = model.model.language_model
        self.text_config = model.config.get_text_config()
        self.device = self.language_model.embed_tokens.weight.device
        self.rotation = KeyRotation(self.language_model.rotary_emb, self.axes)
        kind = str(getattr(self.language_model.rotary_emb, "rope_type", "default"))
        if "dynamic" in kind or kind == "longrope":
            raise LongtakeError(
                f"{name} has rotary positions of type '{kind}', whose frequencies change with the length of the "
                "prompt, so that cached keys would no longer fit; use a checkpoint with default, linear or yarn ones."
            )
        layers = self.text_config.num_hidden_layers
        self.layer_types = list(getattr(self.text_config, "layer_types", None) or [FULL] * layers)
        """Per decoder layer "full_attention" or "linear_attention"."""
        odd = sorted(set(self.layer_types) - {FULL, LINEAR})
        if odd:
            raise LongtakeError(
                f"{name} has {', '.join(odd)} layers; longtake needs full attention, alone or with linear attention."
            )

    # The pieces of a prompt -------------------------------------------------------------------------

    def opening(self, cursor: Cursor) -> Segment:
        """All that comes before the first frame."""
        return self.text(self.ids(self.prompt.opening), cursor, Kind.SYSTEM)

    @abstractmethod
    def fit(self, height: int, width: int, frame_pixels: int = FRAME_PIXELS) -> tuple[int, int]:
        """The (height, width) in pixels at which frames of that size are encoded.

        Raises:
            LongtakeError: for a size that the model cannot take.
        """

    @abstractmethod
    def encode(self, chunk: Chunk, cursor: Cursor) -> Segment:
        """The chunk's tokens. Advances the cursor; an unpaired last frame is padded as the processor does."""

    def closing(self, question: str, cursor: Cursor) -> Segment:
        """All that comes between the last frame and the first word of the answer. Advances the cursor."""
        return self.text(self.ids(self.prompt.before_question + question + self.prompt.after_question), cursor)

    def shift(self, cursor: Cursor, amount: int) -> None:
        """Move the cursor's positions, as `Memory.shift` moves what is held."""
        cursor.position += amount

    def resume(self, cursor: Cursor, reach: Tensor) -> None:
        """Go on right after the largest positions [axes] that are held, once tokens were moved or summed up."""
        cursor.position = int(reach.max()) + 1

    def text(self, ids: Sequence[int], cursor: Cursor, kind: Kind = Kind.TEXT) -> Segment:
        """Plain tokens, one position each on every axis. Advances the cursor."""
        count = len(ids)
        position = torch.arange(cursor.position, cursor.position + count)
        cursor.position += count
        none = torch.full((count,), -1)
        rows = Rows(
            position=position[:, None].expand(-1, self.axes),
            time=torch.full((count,), cursor.time, dtype=torch.float64),
            chunk=none,
            frame=none,
            patch=none,
            kind=torch.full((count,), int(kind)),
        )
        return Segment(self.embed(torch.tensor([list(ids)])), rows)

    def new_cursor(self) -> Cursor:
        """The cursor of a stream that has not begun; a family that needs more than `Cursor` has its own kind."""
        return Cursor()

    def ids(self, text: str) -> list[int]:
        """Token ids of a piece of the prompt, nothing added."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def words(self, ids: Sequence[int]) -> str:
        """The text of an answer's token ids, without control tokens."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def begin_chunk(self, chunk: Chunk, cursor: Cursor) -> tuple[int, int]:
        """The (height, width) at which this stream's frames are encoded; its first chunk fixes it.

        Raises:
            LongtakeError: after a chunk that ended within a temporal step, or for a size that cannot be encoded.
        """
        if cursor.frames % self.frames_per_step:
            raise LongtakeError(
                f"{self.name} pairs frames in steps of {self.frames_per_step}, and the last step was filled up by "
                "repeating its frame; only the last chunk of a stream may have a rest."
            )
        if cursor.frame_size is None:
            height, width = chunk.frames[0].image.shape[:2]
            cursor.frame_size = self.fit(height, width, cursor.frame_pixels)
        return cursor.frame_size

    # The model --------------------------------------------------------------------------------------

    def memory(self) -> Memory:
        """An empty memory in this model's shape."""
        return Memory(self.layer_types, self.axes, self.rotation)

    @torch.no_grad()
    def embed(self, ids: Tensor) -> Tensor:
        """Embeddings [1, n, hidden] of token ids [1, n]."""
        embedded: Tensor = self.language_model.embed_tokens(ids.to(self.device))
        return embedded

    @torch.no_grad()
    def forward(self, segment: Segment, cache: Cache) -> Tensor:
        """Run the language model on a segment, appending to the cache. Returns hidden states [1, n, hidden]."""
        output = self.language_model(
            inputs_embeds=segment.embeddings,
            position_ids=self._position_ids(segment),
            cache=cache,
            use_cache=True,
            **segment.extras,
        )
        hidden: Tensor = output.last_hidden_state
        return hidden

    @torch.no_grad()
    def look(self, segment: Segment, cache: Cache) -> None:
        """Run each attention layer by itself on the segment's embeddings, appending to the cache.

        No layer sees what those below it made of the prompt; only a `Reading` among the extras has use for this.
        """
        hidden = segment.embeddings
        turned = self.language_model.rotary_emb(hidden, self._position_ids(segment))
        for layer, kind in zip(self.language_model.layers, self.layer_types, strict=True):
            if kind == FULL:
                layer.self_attn(
                    hidden_states=layer.input_layernorm(hidden),
                    position_embeddings=turned,
                    attention_mask=None,
                    cache=cache,
                    **segment.extras,
                )

    def _position_ids(self, segment: Segment) -> Tensor:
        """[axes, 1, n], or [1, n] where there is one axis."""
        positions = segment.rows.position.T[:, None].to(self.device)
        return positions if self.axes > 1 else positions[0]

    @torch.no_grad()
    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits [vocabulary], float32, after the last of the hidden states [1, n, hidden]."""
        logits: Tensor = self.model.lm_head(hidden[:, -1])[0].float()
        return logits

    @property
    def has_recurrent_states(self) -> bool:
        return LINEAR in self.layer_types

    @property
    def longest(self) -> int:
        """Positions that the model was trained for (`max_position_embeddings`)."""
        return int(self.text_config.max_position_embeddings)

    @property
    def advancing_axes(self) -> Sequence[int]:
        """Position axes on which the stream advances; on others every grid begins anew."""
        return range(self.axes)

    @property
    def attention_layers(self) -> list[int]:
        """Decoder layers that hold keys and values, by number."""
        return [number for number, kind in enumerate(self.layer_types) if kind == FULL]

    @property
    def pixels_per_token(self) -> int | None:
        """Pixels of a frame behind one visual token; None where every frame is brought to one fixed size."""
        video = self.processor.video_processor
        patch, merge = getattr(video, "patch_size", None), getattr(video, "merge_size", None)
        return (patch * merge) ** 2 if isinstance(patch, int) and isinstance(merge, int) else None

    @property
    def dtype(self) -> str:
        """The weights' own dtype, e.g. "bfloat16"."""
        return str(self.language_model.embed_tokens.weight.dtype).removeprefix("torch.")

    @property
    def kernels(self) -> dict[str, str]:
        """What runs the linear-attention layers, by operation; empty for a model that has none."""
        return linear_attention_kernels() if self.has_recurrent_states else {}

    @property
    def stop_ids(self) -> frozenset[int]:
        """Token ids that end an answer: those of the generation settings and of the tokenizer."""
        configured = getattr(self.model.generation_config, "eos_token_id", None)
        ids = configured if isinstance(configured, list) else [configured]
        return frozenset(int(i) for i in [*ids, self.tokenizer.eos_token_id] if i is not None)

    def check_frame_pixels(self, frame_pixels: int) -> None:
        """Raises LongtakeError where a frame cannot have so few pixels, or has a size that cannot be chosen."""
        if self.pixels_per_token is None:
            raise LongtakeError(f"{self.name} takes frames of one fixed size; leave the frame size out.")
        if frame_pixels < self.pixels_per_token:
            raise LongtakeError(
                f"A frame of {self.name} needs {self.pixels_per_token} pixels or more, not {frame_pixels}."
            )

    def check_question(self, question: str) -> None:
        """Raises LongtakeError for an empty question or one with a control token of the model in it."""
        if not question.strip():
            raise LongtakeError("The question is empty; ask something in words.")
        # Named special tokens alone would miss those that a checkpoint adds, e.g. a video's placeholder.
        added = self.tokenizer.added_tokens_decoder.values()
        control = {*self.tokenizer.all_special_tokens, *(str(token) for token in added if token.special)}
        for token in sorted(control):
            if token in question:
                raise LongtakeError(f"The question contains {token}, a control token of the model; leave it out.")
