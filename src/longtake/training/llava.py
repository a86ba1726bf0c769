"""The full-attention toy: a LLaVA-OneVision of about a million parameters, with the processor that feeds it."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
)

from longtake.training.species import HIDDEN, PATCH, SIDE, TOKENS, Species, token_id
from longtake.training.tokenizer import CHAT_TEMPLATE, build_tokenizer

_PLACEHOLDERS = ("<image>", "<video>")


class Llava(Species):
    """Four text layers, all with keys and values; a frame a second, and no words between the frames."""

    name = "toy-llava"
    frames = 1
    clock = False
    axes = 1
    forks = True
    steps = (3200, 5000)
    minutes = 110
    views: ClassVar = ((True,), (True,))

    def processor(self) -> LlavaOnevisionProcessor:
        tokenizer = build_tokenizer()
        tokenizer.add_special_tokens({"extra_special_tokens": list(_PLACEHOLDERS)})
        size = {"height": SIDE, "width": SIDE}
        return LlavaOnevisionProcessor(
            LlavaOnevisionImageProcessor(size=size),
            tokenizer,
            LlavaOnevisionVideoProcessor(size=size),
            num_image_tokens=(SIDE // PATCH) ** 2,
            vision_feature_select_strategy="full",
            chat_template=CHAT_TEMPLATE.replace("<|vision_start|><|video_pad|><|vision_end|>", "<video>"),
        )

    def model(self, tokenizer: Any, seed: int) -> LlavaOnevisionForConditionalGeneration:
        text: dict[str, Any] = {
            "model_type": "qwen2",
            "vocab_size": len(tokenizer),
            "hidden_size": HIDDEN,
            "intermediate_size": 256,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 1 << 20,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
            "tie_word_embeddings": True,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        }
        tower: dict[str, Any] = {
            "model_type": "siglip_vision_model",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "patch_size": PATCH,
            "image_size": SIDE,
            "vision_use_head": False,
        }
        torch.manual_seed(seed)
        special: dict[str, Any] = {
            "image_token_id": token_id(tokenizer, _PLACEHOLDERS[0]),
            "video_token_id": token_id(tokenizer, _PLACEHOLDERS[1]),
        }
        config = LlavaOnevisionConfig(
            text_config=text,
            vision_config=tower,
            **special,
            vision_feature_layer=-1,
            vision_feature_select_strategy="full",
            tie_word_embeddings=True,
        )
        model = LlavaOnevisionForConditionalGeneration(config)
        model.generation_config = GenerationConfig(
            do_sample=False, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
        )
        return model

    def encode(self, model: Any, processor: LlavaOnevisionProcessor, chunks: Tensor) -> Tensor:
        video = processor.video_processor
        pixels = video.rescale_and_normalize(
            chunks, True, video.rescale_factor, True, video.image_mean, video.image_std
        )
        features: Tensor = model.model.get_video_features(pixels).pooler_output
        return features[:, :TOKENS]  # the newline stands behind them

    def tower(self, model: Any) -> list[torch.nn.Parameter]:
        return [*model.model.vision_tower.parameters(), *model.model.multi_modal_projector.parameters()]

    def language(self, model: Any) -> list[torch.nn.Parameter]:
        return [*super().language(model), model.model.image_newline]

    def piece(self, processor: LlavaOnevisionProcessor, time: float) -> str:
        return str(processor.video_token) * TOKENS

    def positions(self, ids: Tensor, video_id: int, skips: Tensor) -> Tensor:
        steps = 1 + skips
        return (steps.cumsum(0) - steps)[None]

    def ending(self, model: Any) -> Tensor:
        newline: Tensor = model.model.image_newline
        return newline[None]

    def hidden(self, model: Any, embeddings: Tensor, positions: Tensor, branches: Tensor) -> Tensor:
        # Left to itself the library takes a jump in one-axis positions for the start of another sequence.
        length = branches.shape[1]
        seen = (branches[:, None, None] == 0) | (branches[:, None, None] == branches[:, None, :, None])
        seen &= torch.ones(length, length, dtype=torch.bool).tril()
        out: Tensor = model.model.language_model(
            inputs_embeds=embeddings,
            position_ids=positions[0],
            attention_mask={"full_attention": seen},
            use_cache=False,
        ).last_hidden_state
        return out
