"""The checkpoint walks the library's own path, and training feeds exactly what that path makes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    Qwen3_5ForConditionalGeneration,
    Qwen3VLProcessor,
)
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.video_utils import VideoMetadata

from longtake.toy import World
from longtake.toy.cache import answer, read
from longtake.training.delta import fast_training, gated_delta_rule
from longtake.training.frames import patches, shrink
from longtake.training.hybrid import TOKENS
from longtake.training.script import Script
from longtake.training.streams import chunk_times, embed, join
from longtake.training.vision_stage import encode

TURNS = [("what colour was the circle ?", "red"), ("was the star shown ?", "no")]


def clip(frames: int) -> Tensor:
    """uint8 [frames, 3, 128, 128] at two frames per second."""
    world = World(1, frames + 4, 1)
    return torch.from_numpy(np.stack([world.frame(index / 2) for index in range(frames)])).permute(0, 3, 1, 2)


def conversation(processor: Qwen3VLProcessor) -> str:
    messages: list[dict[str, object]] = []
    for question, reply in TURNS:
        messages.append({"role": "user", "content": [{"type": "text", "text": question}]})
        messages.append({"role": "assistant", "content": reply})
    messages[0]["content"] = [{"type": "video"}, {"type": "text", "text": TURNS[0][0]}]
    return str(processor.apply_chat_template(messages, tokenize=False))


def processed(processor: Qwen3VLProcessor, frames: Tensor, text: str) -> dict[str, Tensor]:
    metadata = VideoMetadata(total_num_frames=len(frames), fps=2.0, frames_indices=list(range(len(frames))))
    # The bound on the pixels is for the whole clip, so a longer clip is resized as its pairs of frames would be.
    area = {"shortest_edge": len(frames) * 32 * 32, "longest_edge": len(frames) * 32 * 32}
    return dict(
        processor(
            text=[text],
            videos=[frames],
            video_metadata=[metadata],
            do_sample_frames=False,
            size=area,
            return_tensors="pt",
        )
    )


def test_the_auto_classes_load_it_without_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    loaded = AutoProcessor.from_pretrained(folder)
    assert type(loaded).__name__ == "Qwen3VLProcessor"
    assert type(loaded.video_processor).__name__ == "Qwen3VLVideoProcessor"
    model = AutoModelForImageTextToText.from_pretrained(folder)
    assert isinstance(model, Qwen3_5ForConditionalGeneration)
    assert 0.7e6 < sum(parameter.numel() for parameter in model.parameters()) < 1.5e6
    end = loaded.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert model.generation_config.eos_token_id == model.config.text_config.eos_token_id == end


def test_a_chunk_is_four_tokens(processor: Qwen3VLProcessor) -> None:
    out = processor.video_processor(videos=[clip(2)], do_sample_frames=False, return_tensors="pt")
    assert out["video_grid_thw"].tolist() == [[1, 4, 4]]
    assert TOKENS == 4


def test_timestamps_cost_one_token_per_digit_and_two_more(folder: Path) -> None:
    tokenizer = AutoProcessor.from_pretrained(folder).tokenizer
    assert tokenizer.tokenize("<12.2 seconds>") == ["<", "1", "2", ".2 seconds>"]
    assert tokenizer.tokenize("<0.0 seconds><|vision_start|>") == [
        "<",
        "0",
        ".0 seconds>",
        "<|vision_start|>",
    ]
    assert tokenizer.tokenize("<|im_start|>user\nwhat colour was the ring ?<|im_end|>\n") == [
        *("<|im_start|>", "user", "what", "colour", "was", "the", "ring", "?", "<|im_end|>")
    ]
    assert tokenizer.tokenize("What was nowhere?") == ["What", "was", "?"]
    for word in ("red", "nothing", "yes", "hourglass"):
        (index,) = tokenizer(word)["input_ids"]
        assert tokenizer.decode([index, tokenizer.eos_token_id], skip_special_tokens=True) == word


def test_training_feeds_what_the_processor_makes(
    model: Qwen3_5ForConditionalGeneration, processor: Qwen3VLProcessor, script: Script
) -> None:
    frames = clip(26)
    inputs = processed(processor, frames, conversation(processor))
    small = shrink(processor, frames).view(13, 2, 3, 32, 32)
    with torch.no_grad():
        features = encode(model, patches(processor, small))
        stream = join(script, features, chunk_times(13), TURNS)
        assert stream.ids.tolist() == inputs["input_ids"][0].tolist()
        expected, _ = model.model.get_rope_index(
            inputs["input_ids"], inputs["mm_token_type_ids"], video_grid_thw=inputs["video_grid_thw"]
        )
        assert torch.equal(stream.positions, expected[:, 0])
        embeddings, axes = embed(model, [stream], script.video_id)
        ours = model.lm_head(model.model.language_model(inputs_embeds=embeddings, position_ids=axes).last_hidden_state)
        model.model.rope_deltas = None
        library = model(**inputs).logits
    assert (ours - library).abs().max() < 1e-5


def test_an_odd_frame_is_doubled_as_the_processor_does(processor: Qwen3VLProcessor, script: Script) -> None:
    inputs = processed(processor, clip(5), conversation(processor))
    stream = join(script, torch.zeros(3, TOKENS, 128), chunk_times(2.5), TURNS)
    assert stream.ids.tolist() == inputs["input_ids"][0].tolist()


def test_answers_are_marked(processor: Qwen3VLProcessor, script: Script) -> None:
    ids = script.turns(TURNS)
    marks = script.answer_positions(ids)
    words = [processor.tokenizer.convert_ids_to_tokens(ids[mark + 1 : mark + 3]) for mark in marks]
    assert words == [["red", "<|im_end|>"], ["no", "<|im_end|>"]]


def test_the_fast_delta_rule_is_the_library_s() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 2, 75, 2, 16)
    value, beta = torch.randn(2, 75, 4, 16), torch.rand(2, 75, 4)
    g = -3 * torch.rand(2, 75, 4)
    library, _ = modeling_qwen3_5.torch_chunk_gated_delta_rule(
        query, key, value, g=g, beta=beta, use_qk_l2norm_in_kernel=True
    )
    ours, _ = gated_delta_rule(query, key, value, g=g, beta=beta)
    assert (ours - library).abs().max() < 1e-5
    original = modeling_qwen3_5.torch_chunk_gated_delta_rule
    with fast_training():
        assert modeling_qwen3_5.torch_chunk_gated_delta_rule is gated_delta_rule
    assert modeling_qwen3_5.torch_chunk_gated_delta_rule is original


def test_reading_by_chunks_and_asking_equals_one_pass(model: Qwen3_5ForConditionalGeneration, script: Script) -> None:
    torch.manual_seed(0)
    features = torch.randn(2, 9, TOKENS, 128)
    streams = [join(script, one, chunk_times(9)) for one in features]
    questions = ["what was shown first ?", "what colour was the moon ?"]
    whole, chunked = (read(model, script, streams, chunkwise) for chunkwise in (False, True))
    assert chunked.drift.shape == (2, 9)
    assert (chunked.drift > 0).all()
    for row, one in enumerate(features):
        joined = [join(script, one, chunk_times(9), [(question, None)]) for question in questions]
        with torch.no_grad():
            expected = [
                int(
                    model.lm_head(
                        model.model.language_model(
                            inputs_embeds=embed(model, [stream], script.video_id)[0],
                            position_ids=embed(model, [stream], script.video_id)[1],
                        ).last_hidden_state[0, -1]
                    ).argmax()
                )
                for stream in joined
            ]
        assert answer(model, script, whole, row, questions) == expected
        assert answer(model, script, chunked, row, questions) == expected
        every = torch.arange(chunked.spans[-1][1])
        assert answer(model, script, chunked, row, questions, keep=every) == expected
