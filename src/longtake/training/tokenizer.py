"""A word-level vocabulary in the family's own tokenizer class, and its chat template.

The library loads every checkpoint of this family with one tokenizer class, whose byte-level pieces are fixed. The toy's
words are therefore added tokens, which that class matches first; of single characters it knows digits, "<" and "?".
Everything else, white space included, is dropped.
"""

from typing import Final

from tokenizers import AddedToken
from transformers import Qwen3_5Tokenizer

from longtake.toy.shapes import COLOURS, SHAPES

SPECIAL_TOKENS: Final = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_CHARACTERS: Final = ("<", "?", *"0123456789")
_ROLES: Final = ("user", "assistant", "system")
_QUESTION_WORDS: Final = (
    *("What", "Was", "what", "was", "is", "colour", "color"),
    *("the", "shown", "first", "last", "there", "now"),
    *("Which", "which", "came", "or", "How", "how", "many", "times"),
    *("In", "in", "minute", "number", "on", "card"),
)
_ANSWERS: Final = ("yes", "no", "nothing")
# The tail of a timestamp is one token, so "<12.2 seconds>" costs four: "<", "1", "2", ".2 seconds>".
_TIME_TAILS: Final = tuple(f".{digit} seconds>" for digit in range(10))

CHAT_TEMPLATE: Final = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\n' -}}"
    "{%- if message.content is string -%}{{- message.content -}}{%- else -%}"
    "{%- for part in message.content -%}"
    "{%- if part.type == 'video' -%}{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}"
    "{%- elif part.type == 'image' -%}{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}"
    "{%- elif 'text' in part -%}{{- part.text -}}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}"
    "{{- '<|im_end|>\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)


def build_tokenizer() -> Qwen3_5Tokenizer:
    """The toy's whole language: about 90 tokens."""
    known = (*SPECIAL_TOKENS, *_CHARACTERS)
    tokenizer = Qwen3_5Tokenizer(
        vocab={token: index for index, token in enumerate(known)},
        merges=[],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=list(SPECIAL_TOKENS[1:]),
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
    words = (*_ROLES, *_QUESTION_WORDS, *_ANSWERS, *COLOURS, *SHAPES)
    tokenizer.add_tokens([AddedToken(word, single_word=True, normalized=False) for word in words])
    tokenizer.add_tokens([AddedToken(tail, normalized=False) for tail in _TIME_TAILS])
    return tokenizer
