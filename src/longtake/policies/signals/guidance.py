"""HERMES' guidance prompts: pseudo-questions that stand for those to come (appendix B)."""

from __future__ import annotations

import re
from dataclasses import dataclass

LOCAL = (
    "Describe the current scene in detail, focusing on specific objects, fine-grained actions, and spatial "
    "relationships."
)
GLOBAL = (
    "Summarize the video narrative, identifying main characters, key events, timeline changes, and the overall theme."
)
_OPTION = re.compile(r"(?:^|\s)\(?([A-Z])[.):]\s*(.+?)(?=\s+\(?[A-Z][.):]\s|\s*$)", re.DOTALL)
_LETTER = re.compile(r"\(?([A-Z])\)?[.):]?(?:\s|$)")


@dataclass(frozen=True, slots=True)
class Prompts:
    """One text for each kind of layer: shallow layers are given the local one, deep ones the global one, middle
    ones both joined."""

    local: str
    joined: str
    overall: str

    @classmethod
    def after(cls, conversation: str | None) -> Prompts:
        """The published wording, with the last conversation in it when there is one."""
        if conversation is None:
            local, overall = LOCAL, GLOBAL
        else:
            local = f"Find recent details related to: {conversation}. {LOCAL}"
            overall = f"Context summary: {conversation}. {GLOBAL}"
        return cls(local, f"{local}; {overall}", overall)


def conversation(question: str, answer: str) -> str:
    """A question and the model's own answer as one line; an answer that is an option's letter becomes its text.

    Options are what a question lists as "A. ...", "B) ...", "(C) ...". They are left out of the line themselves.
    """
    options = {letter: text.strip() for letter, text in _OPTION.findall(question)}
    if len(options) > 1:
        question = question[: _OPTION.search(question).start()]  # type: ignore[union-attr]
        picked = _LETTER.match(answer.strip())
        answer = options.get(picked.group(1), answer) if picked else answer
    return f"{question.strip()} {answer.strip()}".strip().rstrip(".")
