"""The hybrid toy: a Qwen3.5 of about a million parameters, with the processor that feeds it."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import (
    GenerationConfig,
    Qwen2VLImageProcessor,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5Tokenizer,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)
from transformers.video_utils import VideoMetadata

from longtake.training.delta import fast_training
from longtake.training.species import HIDDEN, PATCH, SIDE, TOKENS, Species, token_id
from longtake.training.tokenizer import CHAT_TEMPLATE, build_tokenizer

MERGE: Final = 2
FRAMES: Final = 2
"""Frames in one temporal patch: a second of video at 2 frames per second is one chunk."""

# Decay rates of the recurrent states, drawn log-uniformly. Slower ones (0.001 to 0.1) let the states alone hold every
# colour, and then evicting keys and values would cost nothing and show nothing.
_SLOWEST_DECAY, _FASTEST_DECAY = 0.01, 4.0


class Hybrid(Species):
    """Six text layers of which the third and the sixth have keys and values, the others recurrent states."""

    name = "toy"
    frames = FRAMES
    clock = True
    axes = 3
    forks = False
    steps = (3200, 3500)
    minutes = 110
    views: ClassVar = ((True, True), (True, True), (True, False), (False, True))

    def processor(self) -> Qwen3VLProcessor:
        return build_processor()

    def model(self, tokenizer: Qwen3_5Tokenizer, seed: int) -> Qwen3_5ForConditionalGeneration:
        return build_model(tokenizer, seed)

    def tower(self, model: Qwen3_5ForConditionalGeneration) -> list[torch.nn.Parameter]:
        return list(model.model.visual.parameters())

    def language(self, model: Qwen3_5ForConditionalGeneration) -> list[torch.nn.Parameter]:
        # Trained decay rates could drift to where the recurrent states alone hold the colours.
        frozen = ("A_log", "dt_bias")
        return [p for name, p in model.model.language_model.named_parameters() if not name.endswith(frozen)]

    def piece(self, processor: Qwen3VLProcessor, time: float) -> str:
        grid = torch.tensor([[1, SIDE // PATCH, SIDE // PATCH]])
        metadata = VideoMetadata(total_num_frames=FRAMES, fps=1.0, frames_indices=[0] * FRAMES)
        piece = processor.replace_video_token({"video_grid_thw": grid, "video_metadata": [metadata]}, 0)
        return str(piece).replace("0.0", f"{time:.1f}")

    def positions(self, ids: Tensor, video_id: int, skips: Tensor) -> Tensor:
        """Text advances all axes by one. A chunk's 2x2 tokens share T and span two rows (H) and columns (W); then all
        axes go on two further."""
        side = round(TOKENS**0.5)
        pads = ids == video_id
        within = (pads.cumsum(0) - 1) % TOKENS
        advance = torch.where(pads, torch.where(within == TOKENS - 1, side, 0), 1) + skips
        start = advance.cumsum(0) - advance
        rows = torch.where(pads, within // side, 0)
        columns = torch.where(pads, within % side, 0)
        return torch.stack([start, start + rows, start + columns])

    def training(self) -> AbstractContextManager[None]:
        return fast_training()

    def shrink(self, processor: Qwen3VLProcessor, frames: Tensor) -> Tensor:
        video = processor.video_processor
        pairs = frames.unsqueeze(1).expand(-1, FRAMES, -1, -1, -1)
        size = {"factor": PATCH * MERGE, "temporal_factor": FRAMES, "cap_pixels_per_frame": False}
        small = video.resize(pairs, size=self.size(processor), resample=video.resample, **size)
        assert isinstance(small, Tensor)
        assert small.shape[-2:] == (SIDE, SIDE)
        return small[:, 0]

    def encode(self, model: Qwen3_5ForConditionalGeneration, processor: Qwen3VLProcessor, chunks: Tensor) -> Tensor:
        # The library's forward walks over the chunks one by one in Python.
        tower = model.model.visual
        flat = _patches(processor, chunks)
        count, length, _ = flat.shape
        order = _merge_order(length)
        hidden = tower.patch_embed(flat).view(count, length, -1) + tower.pos_embed.weight[order]
        side = round(length**0.5)
        rotary = tower.rotary_pos_emb(hidden, torch.stack([order // side, order % side], dim=1))
        cos, sin = rotary
        for block in tower.blocks:
            attention = block.attn
            qkv = attention.qkv(block.norm1(hidden)).view(count, length, 3, attention.num_heads, -1)
            query, key, value = qkv.permute(2, 0, 3, 1, 4)
            query, key = (x * cos + _turned(x) * sin for x in (query, key))
            mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(count, length, -1)
            hidden = hidden + attention.proj(mixed)
            hidden = hidden + block.mlp(block.norm2(hidden))
        merged = tower.merger(hidden)
        assert isinstance(merged, Tensor)
        return merged.view(count, length // TOKENS, -1)


def build_processor() -> Qwen3VLProcessor:
    """The library's own processor for this family, set so that two square frames become 32x32 pixels, four tokens."""
    tokenizer = build_tokenizer()
    shared: dict[str, Any] = {"patch_size": PATCH, "merge_size": MERGE, "temporal_patch_size": FRAMES}
    area = SIDE * SIDE
    video = Qwen3VLVideoProcessor(
        size={"shortest_edge": FRAMES * area, "longest_edge": FRAMES * area},
        fps=2,
        min_frames=FRAMES,
        cap_pixels_per_frame=False,
        **shared,
    )
    image = Qwen2VLImageProcessor(
        size={"shortest_edge": area, "longest_edge": area},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
        **shared,
    )
    return Qwen3VLProcessor(image, tokenizer, video, chat_template=CHAT_TEMPLATE)


def build_config(tokenizer: Qwen3_5Tokenizer) -> Qwen3_5Config:
    """Six text layers, four with a recurrent state and two with keys and values, and a vision tower of two."""

    def token(name: str) -> int:
        return token_id(tokenizer, name)

    text: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": HIDDEN,
        "intermediate_size": 256,
        "num_hidden_layers": 6,
        "full_attention_interval": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "max_position_embeddings": 1 << 20,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000_000.0,
            "partial_rotary_factor": 0.5,
            "mrope_section": [4, 2, 2],
            "mrope_interleaved": True,
        },
        "tie_word_embeddings": True,
        "pad_token_id": token("<|endoftext|>"),
        "eos_token_id": token("<|im_end|>"),
    }
    vision: dict[str, Any] = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 4,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": FRAMES,
        "out_hidden_size": text["hidden_size"],
        "num_position_embeddings": (SIDE // PATCH) ** 2,
    }
    special: dict[str, Any] = {
        "image_token_id": token("<|image_pad|>"),
        "video_token_id": token("<|video_pad|>"),
        "vision_start_token_id": token("<|vision_start|>"),
        "vision_end_token_id": token("<|vision_end|>"),
        "eos_token_id": text["eos_token_id"],
        "pad_token_id": text["pad_token_id"],
    }
    return Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=True, **special)


def build_model(tokenizer: Qwen3_5Tokenizer, seed: int) -> Qwen3_5ForConditionalGeneration:
    """Random weights that follow from the seed, with the decay rates that make the answers live in keys and values."""
    torch.manual_seed(seed)
    model = Qwen3_5ForConditionalGeneration(build_config(tokenizer))
    low, high = math.log(_SLOWEST_DECAY), math.log(_FASTEST_DECAY)
    for layer in model.model.language_model.layers:
        if layer.block_type == "linear_attention":
            with torch.no_grad():
                layer.linear_attn.A_log.uniform_(low, high)
    model.generation_config = GenerationConfig(
        do_sample=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return model


def _patches(processor: Qwen3VLProcessor, chunks: Tensor) -> Tensor:
    """uint8 chunks [n, 2, 3, 32, 32] to the tower's input, float32 [n, 16, 384]."""
    video = processor.video_processor
    scaled = video.rescale_and_normalize(chunks, True, video.rescale_factor, True, video.image_mean, video.image_std)
    flat, _, _, _ = video.patchify(scaled, patch_size=PATCH, merge_size=MERGE, temporal_patch_size=FRAMES)
    assert isinstance(flat, Tensor)
    return flat


def _merge_order(length: int) -> Tensor:
    """Row-major index of each patch in the order in which the tower gets them: merged 2x2 blocks together."""
    side = round(length**0.5)
    grid = torch.arange(length).view(side // 2, 2, side // 2, 2)
    return grid.permute(0, 2, 1, 3).reshape(-1)


def _turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)
