"""Random-weight models of the real classes, and the library's own one-shot forward as the reference."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from transformers import Qwen3_5ForConditionalGeneration
from transformers.image_utils import SizeDict
from transformers.video_processing_utils import BaseVideoProcessor
from transformers.video_utils import VideoMetadata

from longtake.backbones.backbone import Backbone
from longtake.backbones.load import adopt
from longtake.training.hybrid import build_config, build_processor

QUESTION = "what colour was the circle ?"
HYBRID = ("linear_attention", "linear_attention", "full_attention", "linear_attention", "full_attention")
FULL_ONLY = ("full_attention", "full_attention")


@torch.no_grad()
def enlarged(model: Any) -> Any:
    """The model with weights so large that positions, features and states all show in its logits."""
    for name, weight in model.named_parameters():
        if weight.ndim >= 2:
            weight.mul_(10 if "embed_tokens" in name else 4)
    return model


@cache
def stock(layers: tuple[str, ...] = HYBRID) -> tuple[Any, Any]:
    """(model, processor): random weights large enough that positions, features and states all matter."""
    processor = build_processor()
    config = build_config(processor.tokenizer)
    text = config.text_config
    text.num_hidden_layers, text.layer_types = len(layers), list(layers)
    text.num_attention_heads, text.num_key_value_heads = 6, 2
    text.linear_num_key_heads, text.linear_num_value_heads = 2, 6
    torch.manual_seed(11)
    model = Qwen3_5ForConditionalGeneration(config).eval()
    return enlarged(model), processor


@cache
def random_backbone(layers: tuple[str, ...] = HYBRID) -> Backbone:
    """The stock model's twin as a backbone."""
    model, processor = stock(layers)
    return adopt(copy.deepcopy(model), processor, "random")


def noise(count: int, seed: int = 0, size: tuple[int, int] = (40, 56)) -> list[np.ndarray]:
    """Random frames [height, width, 3]: every one changes every visual token."""
    return list(np.random.default_rng(seed).integers(0, 256, (count, *size, 3), dtype=np.uint8))


Prepare = Callable[[Any, Backbone, Sequence[np.ndarray], Sequence[float], str], Any]
"""(model, backbone, frames, times, prompt) -> inputs of the model's own forward."""


def one_shot(
    backbone: Backbone, frames: Sequence[np.ndarray], times: Sequence[float], question: str
) -> tuple[Any, Any]:
    """(model, inputs) for the library alone: its attention, its template, its processor."""
    model = copy.deepcopy(backbone.model)
    model.set_attn_implementation("sdpa")
    content = [{"type": "video"}, {"type": "text", "text": question}]
    prompt = backbone.processor.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    return model, PREPARE[backbone.family](model, backbone, frames, times, prompt)


def prepare_timestamped(
    model: Any, backbone: Backbone, frames: Sequence[np.ndarray], times: Sequence[float], prompt: str
) -> Any:
    """Qwen3-VL, Qwen3.5. The frames are resized beforehand: the processor's own resize depends on their number."""
    processor = backbone.processor
    height, width = backbone.fit(*frames[0].shape[:2])
    video = torch.cat(
        [
            BaseVideoProcessor.resize(
                processor.video_processor,
                torch.from_numpy(frame).permute(2, 0, 1)[None],
                size=SizeDict(height=height, width=width),
                resample=processor.video_processor.resample,
            )
            for frame in frames
        ]
    )
    inputs = processor(
        text=[prompt],
        videos=[video],
        # Frame indices at 8 frames per second: the tests' times are multiples of an eighth.
        video_metadata=[
            VideoMetadata(total_num_frames=len(times), fps=8, frames_indices=[round(time * 8) for time in times])
        ],
        do_sample_frames=False,
        do_resize=False,
        return_tensors="pt",
    )
    model.model.rope_deltas = None
    return inputs


def prepare_frame_by_frame(
    model: Any, backbone: Backbone, frames: Sequence[np.ndarray], times: Sequence[float], prompt: str
) -> Any:
    """LLaVA-OneVision, InternVL3. The processor alone: its size is fixed, and it asks for no times."""
    video = torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2)
    return backbone.processor(text=[prompt], videos=[video], do_sample_frames=False, return_tensors="pt")


def prepare_grids(
    model: Any, backbone: Backbone, frames: Sequence[np.ndarray], times: Sequence[float], prompt: str
) -> Any:
    """Qwen2-VL, Qwen2.5-VL. The processor's own resize, and its own spacing from a source of 8 frames per second.

    The library has text go on after the larger side of a grid. Where the backbone has it go on after all
    positions so far, the library is given those positions.
    """
    every = round((times[1] - times[0]) * 8) if len(times) > 1 else 1
    inputs = backbone.processor(
        text=[prompt],
        videos=[torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2)],
        video_metadata=[
            VideoMetadata(
                total_num_frames=every * len(times), fps=8, frames_indices=[every * i for i in range(len(times))]
            )
        ],
        do_sample_frames=False,
        cap_pixels_per_frame=False,
        return_tensors="pt",
    )
    if backbone.text_positions == "reference":
        position, _ = model.model.get_rope_index(**inputs)
        after = int(torch.nonzero(inputs["mm_token_type_ids"][0]).max()) + 1
        rest = position.shape[2] - after
        position[:, :, after:] = torch.arange(rest) + position[:, :, :after].max() + 1
        inputs["position_ids"] = position
    model.model.rope_deltas = None
    return inputs


PREPARE: dict[str, Prepare] = {
    "Qwen2-VL": prepare_grids,
    "Qwen2.5-VL": prepare_grids,
    "Qwen3-VL": prepare_timestamped,
    "Qwen3.5": prepare_timestamped,
    "LLaVA-OneVision": prepare_frame_by_frame,
    "InternVL3": prepare_frame_by_frame,
}


@torch.no_grad()
def one_shot_logits(
    backbone: Backbone, frames: Sequence[np.ndarray], times: Sequence[float], question: str
) -> torch.Tensor:
    """Logits after the question by one `model.forward` of the library."""
    model, inputs = one_shot(backbone, frames, times, question)
    return model(**inputs).logits[0, -1].float()
