"""A small random-weight model of every supported family: real classes, processors, vocabularies, special ids."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    GotOcr2ImageProcessor,
    InternVLProcessor,
    InternVLVideoProcessor,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from longtake.backbones.backbone import Backbone
from longtake.backbones.load import adopt
from models import enlarged
from vocabulary import chat_template, tokenizer

QWEN_VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"


@dataclass(frozen=True)
class Family:
    """One row of the families' test matrix.

    Attributes:
        model_type: of the checkpoint's config.
        build: (config as a dict for AutoConfig, processor).
    """

    model_type: str
    build: Callable[[], tuple[dict[str, Any], Any]]


def special(generation: str) -> dict[str, int]:
    """The special ids that Qwen configs name."""
    words = tokenizer(generation)
    return {
        "image_token_id": words.image_token_id,
        "video_token_id": words.video_token_id,
        "vision_start_token_id": words.vision_start_token_id,
        "vision_end_token_id": words.vision_end_token_id,
    }


def qwen3_vl_processor(generation: str) -> Any:
    """Patches of 8 instead of 16, so that small frames make several tokens; limits that a clip of frames hits."""
    patches = {"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2}
    video = Qwen3VLVideoProcessor(
        size={"shortest_edge": 256, "longest_edge": 12 * 48 * 48}, cap_pixels_per_frame=False, **patches
    )
    image = Qwen2VLImageProcessor(size={"shortest_edge": 256, "longest_edge": 48 * 48}, **patches)
    return Qwen3VLProcessor(image, tokenizer(generation), video, chat_template=chat_template(QWEN_VIDEO))


def vision(out: int, **more: Any) -> dict[str, Any]:
    return {
        "depth": 3,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "patch_size": 8,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": out,
        "num_position_embeddings": 64,
        **more,
    }


TEXT = {
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
EXPERTS = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}


def qwen3_vl(model_type: str) -> tuple[dict[str, Any], Any]:
    text = {
        **TEXT,
        "vocab_size": len(tokenizer("qwen2")),
        "num_hidden_layers": 4,
        "head_dim": 24,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [6, 3, 3],
                            "mrope_interleaved": True},
        **(EXPERTS if "moe" in model_type else {}),
    }  # fmt: skip
    config = {"text_config": text, "vision_config": vision(48, deepstack_visual_indexes=[0, 1]), **special("qwen2")}
    return config, qwen3_vl_processor("qwen2")


def qwen3_5(model_type: str) -> tuple[dict[str, Any], Any]:
    text = {
        **TEXT,
        "vocab_size": len(tokenizer("qwen3_5")),
        "num_hidden_layers": 5,
        "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention",
                        "full_attention"],
        "head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 12,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
                            "mrope_section": [4, 2, 2], "mrope_interleaved": True},
        **({**EXPERTS, "shared_expert_intermediate_size": 32} if "moe" in model_type else {}),
    }  # fmt: skip
    return {"text_config": text, "vision_config": vision(48), **special("qwen3_5")}, qwen3_vl_processor("qwen3_5")


def llava_onevision() -> tuple[dict[str, Any], Any]:
    """Patches of 8 in frames of 44 pixels: 5x5 with a rest, pooled to 3x3, as 27x27 are to 14x14."""
    words, size = tokenizer("llava_onevision"), {"height": 44, "width": 44}
    processor = LlavaOnevisionProcessor(
        LlavaOnevisionImageProcessor(size=size), words, LlavaOnevisionVideoProcessor(size=size), num_image_tokens=25,
        vision_feature_select_strategy="full", chat_template=chat_template("<video>\n"),
    )  # fmt: skip
    tower = {"model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
             "num_attention_heads": 2, "patch_size": 8, "image_size": 44, "vision_use_head": False}  # fmt: skip
    text = {**TEXT, "model_type": "qwen2", "vocab_size": len(words), "num_hidden_layers": 4}
    return {"text_config": text, "vision_config": tower}, processor


def internvl() -> tuple[dict[str, Any], Any]:
    """Patches of 8 in frames of 48 pixels: 6x6, shuffled to 3x3."""
    words, size = tokenizer("internvl"), {"height": 48, "width": 48}
    processor = InternVLProcessor(
        GotOcr2ImageProcessor(size=size), words, InternVLVideoProcessor(size=size), image_seq_length=9,
        chat_template=chat_template("<video>\n"),
    )  # fmt: skip
    tower = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 2,
             "patch_size": 8, "image_size": 48}  # fmt: skip
    text = {**TEXT, "model_type": "qwen2", "vocab_size": len(words), "num_hidden_layers": 4}
    return {"text_config": text, "vision_config": tower, "image_seq_length": 9}, processor


def qwen2_vl(model_type: str) -> tuple[dict[str, Any], Any]:
    """Windows of 2x2 merged patches, so that a frame of 2x3 has two; a grid of half seconds is two positions long."""
    patches = {"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2}
    size = {"shortest_edge": 256, "longest_edge": 48 * 48}
    kind = Qwen2_5_VLProcessor if model_type == "qwen2_5_vl" else Qwen2VLProcessor
    processor = kind(
        Qwen2VLImageProcessor(size=size, **patches), tokenizer("qwen2"), Qwen2VLVideoProcessor(size=size, **patches),
        chat_template=chat_template(QWEN_VIDEO),
    )  # fmt: skip
    tower = {key: value for key, value in vision(48).items() if key != "num_position_embeddings"}
    own = {
        "qwen2_vl": {"embed_dim": 32, "hidden_size": 48, "mlp_ratio": 2},
        "qwen2_5_vl": {"window_size": 32, "fullatt_block_indexes": [1], "tokens_per_second": 2},
    }[model_type]
    text = {
        **TEXT,
        "vocab_size": len(tokenizer("qwen2")),
        "num_hidden_layers": 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 2, 2]},
    }
    return {"text_config": text, "vision_config": {**tower, **own}, **special("qwen2")}, processor


FAMILIES = {
    name: Family(name, build)
    for name, build in {
        "qwen3_vl": lambda: qwen3_vl("qwen3_vl"),
        "qwen3_vl_moe": lambda: qwen3_vl("qwen3_vl_moe"),
        "qwen3_5": lambda: qwen3_5("qwen3_5"),
        "qwen3_5_moe": lambda: qwen3_5("qwen3_5_moe"),
        "qwen2_vl": lambda: qwen2_vl("qwen2_vl"),
        "qwen2_5_vl": lambda: qwen2_vl("qwen2_5_vl"),
        "llava_onevision": llava_onevision,
        "internvl": internvl,
    }.items()
}


@cache
def stock_family(name: str) -> tuple[Any, Any]:
    """(model, processor) of a family: random weights large enough that positions and features matter."""
    config, processor = FAMILIES[name].build()
    torch.manual_seed(13)
    model = AutoModelForImageTextToText.from_config(AutoConfig.for_model(name, **config)).eval()
    return enlarged(model), processor


@cache
def family_backbone(name: str, **options: Any) -> Backbone:
    """The stock model's twin as a backbone."""
    model, processor = stock_family(name)
    return adopt(copy.deepcopy(model), processor, name, **options)
