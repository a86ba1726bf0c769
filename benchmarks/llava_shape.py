"""A few layers in the shapes of LLaVA-OneVision-7B's language model with random weights, as a backbone.

Times of a matrix product do not depend on what the weights say, so no checkpoint is needed. No vision tower is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import AutoModelForImageTextToText, LlavaOnevisionConfig
from transformers.cache_utils import Cache

from longtake.backbones.backbone import Cursor, Segment
from longtake.backbones.llava_onevision import LlavaOneVision
from longtake.backbones.load import adopt
from longtake.kv.ledger import Kind
from longtake.policies.signals.guidance import Prompts
from longtake.training.hybrid import build_processor

VOCABULARY = 1024
"""Token ids; a forward up to the last hidden states does not depend on how many there are."""
LOCAL_TOKENS, GLOBAL_TOKENS, JOINED_TOKENS = 21, 21, 43
"""About the lengths of HERMES' published prompts in the vocabulary of Qwen2, the joined one with its "; "."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """Sizes of a language model of this family, of its chunks, and of the memories.

    Attributes:
        frame_tokens: visual tokens of a frame.
        long_chunk: frames of a chunk as published.
        longest: positions that the model was trained for.
        budgets: tokens of the stream per layer.
        roles: shallow, middle and deep layers of the whole model, with the published shares.
    """

    name: str
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    frame_tokens: int
    long_chunk: int
    longest: int
    budgets: tuple[int, ...]
    roles: tuple[int, int, int]

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    def bytes_per_token(self, layers: int, dtype: torch.dtype) -> int:
        """Bytes of one token's keys and values in all layers, from the shapes alone."""
        return layers * 2 * self.kv_heads * self.head_dim * dtype.itemsize


LLAVA_7B = Shapes(
    name="LLaVA-OneVision-7B",
    hidden=3584,
    intermediate=18944,
    heads=28,
    kv_heads=4,
    frame_tokens=196,
    long_chunk=16,
    longest=32768,
    budgets=(4000, 6000),
    roles=(2, 17, 9),
)
"""The decoder layers of Qwen2-7B, and 14 x 14 visual tokens per frame."""

TINY = Shapes(
    name="tiny",
    hidden=64,
    intermediate=128,
    heads=4,
    kv_heads=2,
    frame_tokens=6,
    long_chunk=16,
    longest=4096,
    budgets=(200, 300),
    roles=(2, 17, 9),
)
"""To see that everything runs."""


class Slice(LlavaOneVision):
    """The real-shape layers. Chunks are noise; the guidance prompts are random ids of their real lengths."""

    shapes: Shapes

    def ids(self, text: str) -> list[int]:
        """Random ids for the guidance prompts, the same each time, the joined one beginning with the local one."""
        prompts = Prompts.after(None)
        generator = torch.Generator().manual_seed(0)
        local, overall, rest = (
            torch.randint(VOCABULARY // 2, VOCABULARY, (count,), generator=generator).tolist()
            for count in (LOCAL_TOKENS, GLOBAL_TOKENS, JOINED_TOKENS - LOCAL_TOKENS)
        )
        known = {prompts.local: local, prompts.overall: overall, prompts.joined: local + rest}
        return known[text] if text in known else super().ids(text)

    def noise(self, frames: int, number: int, cursor: Cursor) -> Segment:
        """Chunk `number`, of random embeddings. Advances the cursor."""
        shown = torch.arange(frames).repeat_interleave(self.shapes.frame_tokens)
        plain = self.text([self.placeholder_id] * len(shown), cursor)
        rows = replace(
            plain.rows,
            time=cursor.time + shown.double(),
            chunk=torch.full_like(shown, number),
            frame=cursor.frames + shown,
            patch=torch.arange(self.shapes.frame_tokens).repeat(frames),
            kind=torch.full_like(shown, int(Kind.VISUAL)),
        )
        cursor.frames += frames
        cursor.time += frames
        generator = torch.Generator().manual_seed(number)
        embeddings = torch.randn(plain.embeddings.shape, generator=generator).to(plain.embeddings)
        return Segment(embeddings, rows)

    def stand_in(self, segment: Segment, cache: Cache) -> None:
        """Put noise into the cache in place of what `forward` would compute, to fill it in no time."""
        size = (1, self.shapes.kv_heads, len(segment), self.shapes.head_dim)
        for layer in range(len(self.layer_types)):
            keys, values = (torch.randn(size).to(segment.embeddings) for _ in range(2))
            cache.update(keys, values, layer)


def build(shapes: Shapes, layers: int, dtype: torch.dtype) -> Slice:
    """The backbone: real decoder layers, the smallest vision tower that the classes take, the toy's vocabulary."""
    torch.manual_seed(0)
    processor = build_processor()
    backbone = adopt(_model(shapes, layers, dtype), processor, f"{layers} layers of {shapes.name}", Slice)
    assert isinstance(backbone, Slice)
    backbone.shapes = shapes
    return backbone


def parameters(shapes: Shapes, layers: int) -> int:
    """Parameters of the decoder layers, counted on a model without storage."""
    with torch.device("meta"):
        model = _model(shapes, layers, torch.float32)
    return sum(weight.numel() for weight in model.model.language_model.layers.parameters())


def needed_bytes(shapes: Shapes, layers: int, dtype: torch.dtype, held: Sequence[int]) -> int:
    """Memory that a run takes: the weights, memories of `held` tokens each, and the work of one layer at a time.

    A memory has its keys twice, as they were computed and as they stand. Work is the dense part's products, and the
    attention's bias, once as it is formed and once per query head of a group.
    """
    chunk = shapes.long_chunk * shapes.frame_tokens
    dense = 4 * chunk * shapes.intermediate
    bias = (1 + shapes.heads // shapes.kv_heads) * chunk * (max(held) + chunk)
    memories = 3 * sum(held) * shapes.bytes_per_token(layers, dtype) // 2
    return memories + (parameters(shapes, layers) + dense + bias) * dtype.itemsize


def forward_flop(shapes: Shapes, layers: int, tokens: int, held: int) -> float:
    """Floating-point operations of `tokens` new ones: two per weight and token, and the attention over all."""
    attention = 4.0 * shapes.heads * shapes.head_dim * (held + tokens)
    return tokens * (2.0 * parameters(shapes, layers) + layers * attention)


def _model(shapes: Shapes, layers: int, dtype: torch.dtype) -> Any:
    text: dict[str, Any] = {
        "model_type": "qwen2",
        "vocab_size": VOCABULARY,
        "hidden_size": shapes.hidden,
        "intermediate_size": shapes.intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": shapes.heads,
        "num_key_value_heads": shapes.kv_heads,
        "max_position_embeddings": shapes.longest,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
        "tie_word_embeddings": True,
    }
    tower: dict[str, Any] = {
        "model_type": "siglip_vision_model",
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "patch_size": 8,
        "image_size": 16,
        "vision_use_head": False,
    }
    config = LlavaOnevisionConfig(text_config=text, vision_config=tower)
    return AutoModelForImageTextToText.from_config(config, dtype=dtype)  # type: ignore[no-untyped-call]
