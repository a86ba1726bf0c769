"""The toy checkpoint: a Qwen3.5 of under a million parameters, with the processor that feeds it."""

import math
from typing import Any, Final

import torch
from transformers import (
    GenerationConfig,
    Qwen2VLImageProcessor,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5Tokenizer,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from longtake.toy.tokenizer import CHAT_TEMPLATE, build_tokenizer

SIDE: Final = 32
"""Height and width in pixels that the vision tower sees."""
PATCH: Final = 8
MERGE: Final = 2
FRAMES: Final = 2
"""Frames in one temporal patch: a second of video at 2 frames per second is one chunk."""
TOKENS: Final = (SIDE // PATCH // MERGE) ** 2
"""Visual tokens of one chunk."""

# Decay rates of the recurrent states, drawn log-uniformly. Slower ones (0.001 to 0.1) let the states alone hold every
# colour, and then evicting keys and values would cost nothing and show nothing.
_SLOWEST_DECAY, _FASTEST_DECAY = 0.01, 4.0


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
    """Four text layers, three with a recurrent state and one with keys and values, and a vision tower of two."""

    def token(name: str) -> int:
        index = tokenizer.convert_tokens_to_ids(name)
        assert isinstance(index, int)
        return index

    text: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "full_attention_interval": 4,
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
            "rope_theta": 10_000.0,
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
