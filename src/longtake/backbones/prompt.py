"""The text around a video, cut out of what the checkpoint's own chat template renders."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from longtake.errors import LongtakeError

_QUESTION = "\N{LEFT CEILING}question\N{RIGHT CEILING}"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A user turn with a video and a question, in three pieces of text.

    Attributes:
        opening: all before the video.
        before_question: between the video and the question.
        after_question: from the question's end to where the answer begins.
    """

    opening: str
    before_question: str
    after_question: str

    def around_video(self, start: str, end: str) -> Prompt:
        """The same with a token before the video, which the opening brings, and one after, which a question brings."""
        return replace(self, opening=self.opening + start, before_question=end + self.before_question)


def split_prompt(processor: Any, placeholder: str, name: str) -> Prompt:
    """Render the processor's chat template once and cut it at the video's placeholder and at the question.

    Raises:
        LongtakeError: when the checkpoint has no template, or one that does not place a video once.
    """
    template = getattr(processor, "chat_template", None)
    if not template:
        raise LongtakeError(
            f"{name} has no chat template; use an instruction-tuned checkpoint with its processor files."
        )
    # Answers come at once: where the template knows of thinking, it is switched off.
    quick = {"enable_thinking": False} if "enable_thinking" in str(template) else {}
    rendered: str = processor.apply_chat_template(
        [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": _QUESTION}]}],
        tokenize=False,
        add_generation_prompt=True,
        **quick,
    )
    parts = rendered.split(placeholder)
    if len(parts) != 2 or parts[1].count(_QUESTION) != 1:
        raise LongtakeError(
            f"The chat template of {name} does not place a video and a question after it; it cannot stream."
        )
    return Prompt(parts[0], *parts[1].split(_QUESTION))
