"""A small LLaVA-OneVision of random weights as a checkpoint folder: `python -m benchmarks.random_llava FOLDER`.

It has layers enough for HERMES' three roles and knows nothing; pictures of what it holds show the rules at work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from transformers import (
    AutoModelForImageTextToText,
    LlavaOnevisionConfig,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
)

from longtake.training.tokenizer import CHAT_TEMPLATE, build_tokenizer

SIDE, PATCH = 48, 8
LARGER = 4.0
"""Factor on the library's initial weights, so that positions and pictures show in the attention."""


def build(layers: int, seed: int) -> tuple[Any, LlavaOnevisionProcessor]:
    """Model and processor: frames of 48 pixels in 3x3 visual tokens, the toy's words."""
    tokenizer = build_tokenizer()
    tokenizer.add_special_tokens({"extra_special_tokens": ["<image>", "<video>"]})
    size = {"height": SIDE, "width": SIDE}
    template = CHAT_TEMPLATE.replace("<|vision_start|><|video_pad|><|vision_end|>", "<video>")
    processor = LlavaOnevisionProcessor(
        LlavaOnevisionImageProcessor(size=size),
        tokenizer,
        LlavaOnevisionVideoProcessor(size=size),
        num_image_tokens=(SIDE // PATCH) ** 2,
        vision_feature_select_strategy="full",
        chat_template=template,
    )
    text: dict[str, Any] = {
        "model_type": "qwen2",
        "vocab_size": len(tokenizer),
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "eos_token_id": tokenizer.eos_token_id,
    }
    tower: dict[str, Any] = {
        "model_type": "siglip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "patch_size": PATCH,
        "image_size": SIDE,
        "vision_use_head": False,
    }
    torch.manual_seed(seed)
    config = LlavaOnevisionConfig(
        text_config=text,
        vision_config=tower,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        video_token_id=tokenizer.convert_tokens_to_ids("<video>"),
    )
    model = AutoModelForImageTextToText.from_config(config).eval()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim >= 2:
                weight.mul_(LARGER)
    return model, processor


def main(
    folder: Annotated[Path, typer.Argument(help="Where the checkpoint goes.")],
    layers: Annotated[int, typer.Option(min=1)] = 10,
    seed: int = 0,
) -> None:
    """Write the checkpoint."""
    model, processor = build(layers, seed)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    print(f"{layers} layers of random weights in {folder}")


if __name__ == "__main__":
    typer.run(main)
