"""A few layers in the shapes of Qwen3.5-9B with random weights, as a backbone for the product's own session.

Times of a matrix product do not depend on what the weights say, so no checkpoint is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForImageTextToText, Qwen3_5Config
from transformers.cache_utils import Cache, LinearAttentionLayer

from longtake.backbones.backbone import Cursor, Segment
from longtake.backbones.load import adopt
from longtake.backbones.qwen3_5 import Qwen35
from longtake.kv.slab import SlabLayer
from longtake.retention import ROOM
from longtake.training.hybrid import build_config, build_processor
from longtake.video.chunker import Chunk
from longtake.video.frame import Frame

PERIOD = 4
"""Layers after which the pattern repeats: three with a recurrent state, one with keys and values."""
_FRAME = np.zeros((2, 2, 3), dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Shapes:
    """Sizes of a text model of this family, of its chunks, and of the memory.

    Attributes:
        grid: rows and columns of the visual tokens of one second.
        words: the text tokens around them (timestamp and wrapper).
        sections: of the interleaved rotary positions, time, height and width.
    """

    name: str
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    linear_key_heads: int
    linear_value_heads: int
    linear_dim: int
    sections: tuple[int, int, int]
    grid: tuple[int, int]
    words: int
    budget: int

    @property
    def chunk_tokens(self) -> int:
        return self.grid[0] * self.grid[1] + self.words

    def bytes_per_token(self, layers: int, dtype: torch.dtype) -> int:
        """Bytes of one token's keys and values in all attention layers, from the shapes alone."""
        return layers // PERIOD * 2 * self.kv_heads * self.head_dim * dtype.itemsize


QWEN35_9B = Shapes(
    name="Qwen3.5-9B",
    hidden=4096,
    intermediate=12288,
    heads=16,
    kv_heads=4,
    head_dim=256,
    linear_key_heads=16,
    linear_value_heads=32,
    linear_dim=128,
    sections=(11, 11, 10),
    grid=(9, 12),
    words=20,
    budget=8192,
)
"""The text layers of the published config; one second as in the DeltaS paper (98-112 visual tokens and 20 others)."""

TINY = Shapes(
    name="tiny",
    hidden=64,
    intermediate=128,
    heads=4,
    kv_heads=2,
    head_dim=32,
    linear_key_heads=2,
    linear_value_heads=4,
    linear_dim=16,
    sections=(2, 1, 1),
    grid=(2, 3),
    words=6,
    budget=256,
)
"""To see that everything runs."""


class Slice(Qwen35):
    """The real-shape layers. Frames are not looked at: a chunk is noise in the layout of a chunk.

    Attributes:
        shapes: set by `build`.
        standing_in: while true, `forward` puts noise into the cache in place of what the layers would compute,
            so that a memory of thousands of tokens fills in seconds.
        ready: what `encode` returns for the coming chunk, once, so that making it is no part of a step.
    """

    shapes: Shapes
    standing_in = False
    ready: Segment | None = None

    def encode(self, chunk: Chunk, cursor: Cursor) -> Segment:
        ready, self.ready = self.ready, None
        return ready or self.noise(chunk, cursor)

    def noise(self, chunk: Chunk, cursor: Cursor) -> Segment:
        """A chunk of random embeddings. Advances the cursor."""
        visual = torch.ones(self.shapes.chunk_tokens, dtype=torch.bool)
        visual[: self.shapes.words - 1] = False
        visual[-1] = False
        rows = self._lay_out(visual, self.shapes.grid, chunk, cursor)
        cursor.frames += len(chunk.frames)
        cursor.time = chunk.end
        weight = self.language_model.embed_tokens.weight
        generator = torch.Generator().manual_seed(chunk.index)
        embeddings = torch.randn(1, len(rows), weight.shape[1], generator=generator).to(weight)
        return Segment(embeddings, rows)

    @torch.no_grad()
    def forward(self, segment: Segment, cache: Cache) -> Tensor:
        if not self.standing_in:
            return super().forward(segment, cache)
        for number, layer in enumerate(cache.layers):
            if isinstance(layer, LinearAttentionLayer):
                state = layer.recurrent_states[0]
                assert state is not None
                # States move by more or less, so that chunks get different scores and evictions leave holes.
                cache.update_recurrent_state(torch.lerp(state, _like(state), float(torch.rand(())) / 2), number)
            else:
                assert isinstance(layer, SlabLayer)
                size = (1, layer.keys.shape[1], len(segment), layer.keys.shape[3])
                keys, values = (torch.randn(size).to(layer.keys) for _ in range(2))
                cache.update(keys, values, number)
        return segment.embeddings


def build(shapes: Shapes, layers: int, dtype: torch.dtype) -> Slice:
    """The backbone: real text layers, the smallest vision tower and vocabulary that the classes take."""
    processor = build_processor()
    torch.manual_seed(0)
    model = _model(_config(shapes, layers, processor), dtype)
    backbone = adopt(model, processor, f"{layers} layers of {shapes.name}", Slice)
    assert isinstance(backbone, Slice)
    backbone.shapes = shapes
    return backbone


def second(number: int) -> tuple[Frame, Frame]:
    """The two frames of one second; their picture does not matter."""
    return Frame(number + 0.25, _FRAME), Frame(number + 0.75, _FRAME)


def parameters(shapes: Shapes, layers: int) -> int:
    """Parameters of the text layers, counted on a model without storage."""
    with torch.device("meta"):
        model = _model(_config(shapes, layers, build_processor()), torch.float32)
    return sum(weight.numel() for weight in model.model.language_model.layers.parameters())


def needed_bytes(shapes: Shapes, layers: int, dtype: torch.dtype) -> int:
    """Memory that a run takes: the weights, what is held, and the work of one layer at a time.

    Held are the product's slabs, and the plain cache twice, since each of its steps copies what it holds. Work is
    what the stock attention spreads (each key and value once per query head), or the dense part's products and
    the linear rule's float32 tensors of the values' size (at most about 16 at a time), whichever is more.
    """
    tokens = shapes.budget + shapes.chunk_tokens
    held = (3 * tokens + ROOM) * shapes.bytes_per_token(layers, dtype)
    states = 4 * layers * shapes.linear_value_heads * shapes.linear_dim**2 * 4  # live and saved, for both caches
    spread = 2 * shapes.heads * tokens * shapes.head_dim * dtype.itemsize
    values = shapes.linear_value_heads * shapes.linear_dim
    dense = shapes.chunk_tokens * (4 * shapes.intermediate * dtype.itemsize + 16 * values * 4)
    return parameters(shapes, layers) * dtype.itemsize + held + states + max(spread, dense)


def layers_that_fit(shapes: Shapes, dtype: torch.dtype, limit: int, most: int = 2 * PERIOD) -> int:
    """Whole periods of layers, `most` at most, that a run can hold in `limit` bytes; one if none fits."""
    fitting = [n for n in range(PERIOD, most + 1, PERIOD) if needed_bytes(shapes, n, dtype) <= limit]
    return max(fitting, default=PERIOD)


def chunk_flop(shapes: Shapes, layers: int) -> float:
    """Floating-point operations of one chunk: two per weight and token, and the attention over what is held."""
    attention = 4.0 * shapes.heads * shapes.head_dim * (shapes.budget + shapes.chunk_tokens)
    return shapes.chunk_tokens * (2.0 * parameters(shapes, layers) + layers // PERIOD * attention)


def _model(config: Qwen3_5Config, dtype: torch.dtype) -> Any:
    return AutoModelForImageTextToText.from_config(config, dtype=dtype)  # type: ignore[no-untyped-call]


def _config(shapes: Shapes, layers: int, processor: Any) -> Qwen3_5Config:
    config = build_config(processor.tokenizer).to_dict()
    config["vision_config"] |= {"depth": 1, "out_hidden_size": shapes.hidden}
    text: dict[str, Any] = {
        "vocab_size": len(processor.tokenizer),
        "hidden_size": shapes.hidden,
        "intermediate_size": shapes.intermediate,
        "num_hidden_layers": layers,
        "full_attention_interval": PERIOD,
        "num_attention_heads": shapes.heads,
        "num_key_value_heads": shapes.kv_heads,
        "head_dim": shapes.head_dim,
        "linear_num_key_heads": shapes.linear_key_heads,
        "linear_num_value_heads": shapes.linear_value_heads,
        "linear_key_head_dim": shapes.linear_dim,
        "linear_value_head_dim": shapes.linear_dim,
        "linear_conv_kernel_dim": 4,
        "max_position_embeddings": 1 << 18,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000_000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": list(shapes.sections),
            "mrope_interleaved": True,
        },
        "tie_word_embeddings": True,
    }
    return Qwen3_5Config(**config | {"text_config": text})


def _like(state: Tensor) -> Tensor:
    """Noise of the same size."""
    return torch.randn_like(state) * state.std().clamp_min(1e-3)
