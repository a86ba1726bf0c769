"""The checkpoints walk the library's own path, and training feeds exactly what that path makes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    LlavaOnevisionForConditionalGeneration,
    Qwen3_5ForConditionalGeneration,
)
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.video_utils import VideoMetadata

from longtake.toy import World
from longtake.training.delta import fast_training, gated_delta_rule
from longtake.training.species import TOKENS
from longtake.training.streams import chunk_times, embed, join
from longtake.training.student import Student

TURNS = [("what colour was the circle ?", "red"), ("was the star shown ?", "no")]


def clip(frames: int, fps: int) -> Tensor:
    """uint8 [frames, 3, 128, 128]."""
    world = World(1, frames + 4, 1)
    return torch.from_numpy(np.stack([world.frame(index / fps) for index in range(frames)])).permute(0, 3, 1, 2)


def turns_of(student: Student) -> list[tuple[str, str]]:
    """A conversation; where questions are packed side by side the processor has only the first to compare with."""
    return TURNS[:1] if student.species.forks else TURNS


def conversation(student: Student) -> str:
    messages: list[dict[str, object]] = []
    for question, reply in turns_of(student):
        messages.append({"role": "user", "content": [{"type": "text", "text": question}]})
        messages.append({"role": "assistant", "content": reply})
    messages[0]["content"] = [{"type": "video"}, {"type": "text", "text": TURNS[0][0]}]
    return str(student.processor.apply_chat_template(messages, tokenize=False))


def processed(student: Student, frames: Tensor) -> dict[str, Tensor]:
    """What the library's processor makes of a conversation about the clip."""
    options: dict[str, object] = {}
    if student.species.name == "toy":
        # The bound on the pixels is for the whole clip, so a longer clip is resized as its pairs of frames would be.
        options["size"] = {"shortest_edge": len(frames) * 32 * 32, "longest_edge": len(frames) * 32 * 32}
        fps = float(student.species.frames)
        options["video_metadata"] = [
            VideoMetadata(total_num_frames=len(frames), fps=fps, frames_indices=list(range(len(frames))))
        ]
    text = [conversation(student)]
    inputs = student.processor(text=text, videos=[frames], do_sample_frames=False, return_tensors="pt", **options)
    return dict(inputs)


def test_the_auto_classes_load_it_without_network(
    folder: Path, student: Student, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    loaded = AutoProcessor.from_pretrained(folder)
    model = AutoModelForImageTextToText.from_pretrained(folder)
    kinds = {"toy": Qwen3_5ForConditionalGeneration, "toy-llava": LlavaOnevisionForConditionalGeneration}
    assert isinstance(model, kinds[student.species.name])
    assert type(loaded) is type(student.processor)
    assert 4 * sum(parameter.numel() for parameter in model.parameters()) < 10e6
    end = loaded.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert model.generation_config.eos_token_id == end


def test_every_word_of_the_world_is_one_token(folder: Path) -> None:
    tokenizer = AutoProcessor.from_pretrained(folder).tokenizer
    text = "<|im_start|>user\nwhat number was on the red card ?<|im_end|>\n"
    assert tokenizer.tokenize(text) == [
        *("<|im_start|>", "user", "what", "number", "was", "on", "the", "red", "card", "?", "<|im_end|>")
    ]
    assert tokenizer.tokenize("What was nowhere?") == ["What", "was", "?"]
    known = {tokenizer.unk_token_id, None}
    world = World(1, 300, 20)
    for question in world.questions(300):
        words = question.text.split()
        assert len(tokenizer.tokenize(question.text)) == len(words), question.text
        (index,) = tokenizer(question.answer)["input_ids"]
        assert index not in known
        assert tokenizer.decode([index, tokenizer.eos_token_id], skip_special_tokens=True) == question.answer


def test_timestamps_cost_one_token_per_digit_and_two_more(hybrid: Student) -> None:
    tokenizer = hybrid.processor.tokenizer
    assert tokenizer.tokenize("<12.2 seconds>") == ["<", "1", "2", ".2 seconds>"]
    assert tokenizer.tokenize("<0.0 seconds><|vision_start|>") == ["<", "0", ".0 seconds>", "<|vision_start|>"]


def test_training_feeds_what_the_processor_makes(student: Student) -> None:
    species, model = student.species, student.model
    frames = clip(13 * species.frames, species.frames)
    inputs = processed(student, frames)
    small = species.shrink(student.processor, frames).view(13, species.frames, 3, 32, 32)
    with torch.no_grad():
        stream = join(student, student.encode(small), chunk_times(species, 13), turns_of(student))
        assert stream.ids.tolist() == inputs["input_ids"][0].tolist()
        ours = model.lm_head(species.hidden(model, *embed(student, [stream])))
        if species.axes > 1:
            expected, _ = model.model.get_rope_index(
                inputs["input_ids"], inputs["mm_token_type_ids"], video_grid_thw=inputs["video_grid_thw"]
            )
            assert torch.equal(stream.positions, expected[:, 0])
            model.model.rope_deltas = None
        library = model(**inputs).logits
    assert (ours - library).abs().max() < 1e-5


def test_questions_side_by_side_are_each_as_if_alone(student: Student) -> None:
    if not student.species.forks:
        assert student.script.branches(TURNS) == [student.script.turns(TURNS)]
        return
    torch.manual_seed(0)
    features, times = torch.randn(6, TOKENS, 128), chunk_times(student.species, 6)
    with torch.no_grad():
        packed = join(student, features, times, TURNS)
        together = student.species.hidden(student.model, *embed(student, [packed]))[0]
        for number, turn in enumerate(TURNS, 1):
            lone = join(student, features, times, [turn])
            alone = student.species.hidden(student.model, *embed(student, [lone]))[0]
            mine = (packed.branches == number).nonzero().squeeze(1)
            theirs = (lone.branches == 1).nonzero().squeeze(1)
            assert (together[mine] - alone[theirs]).abs().max() < 1e-5
            assert torch.equal(packed.positions[:, mine], lone.positions[:, theirs])


def test_a_jump_in_the_positions_hides_nothing(student: Student) -> None:
    """The library takes a jump in one-axis positions for another sequence, unless it is told not to."""
    species = student.species
    torch.manual_seed(0)
    features = torch.randn(1, 9, TOKENS, 128).expand(2, -1, -1, -1).clone()
    features[1, 0] += 1
    skips = np.zeros(10, dtype=np.int64)
    skips[5] = 40
    streams = [join(student, one, chunk_times(species, 9), TURNS, skips) for one in features]
    with torch.no_grad():
        hidden = species.hidden(student.model, *embed(student, streams))
    assert (hidden[0, -1] - hidden[1, -1]).abs().max() > 1e-4


def test_an_odd_frame_is_doubled_as_the_processor_does(hybrid: Student) -> None:
    inputs = processed(hybrid, clip(5, 2))
    stream = join(hybrid, torch.zeros(3, TOKENS, 128), chunk_times(hybrid.species, 2.5), TURNS)
    assert stream.ids.tolist() == inputs["input_ids"][0].tolist()


def test_answers_are_marked(student: Student) -> None:
    ids = student.script.turns(TURNS)
    marks = student.script.answer_positions(ids)
    words = [student.processor.tokenizer.convert_ids_to_tokens(ids[mark + 1 : mark + 3]) for mark in marks]
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
