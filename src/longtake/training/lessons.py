"""The questions of one training stream: which ones, how they are worded, and how often each answer comes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from longtake.toy.questions import Question
from longtake.toy.shapes import SHAPES
from longtake.toy.world import World

_WEIGHT = {"order": 5.0, "first": 2.5, "last": 2.5, "count": 2.5, "now": 2.5}
_ONCE_WEIGHT = 0.25  # of questions whose answer is that something was shown once


def pick_questions(
    questions: Sequence[Question], count: int, seen: int, absent: int, rng: np.random.Generator, apart: bool = False
) -> list[Question]:
    """Up to `count` questions in random order.

    Unless none can see another (`apart`) no shape is named twice: a named one would give away that it was shown.

    Up to `seen` ask whether a shape was shown, each with a fair coin for an answer; `absent` of them ask for the colour
    of a shape that was not, which is "nothing"; the rest is drawn from the others.
    """
    yes, no, others = (
        [questions[i] for i in rng.permutation(len(questions)) if group(questions[i])]
        for group in (
            lambda q: q.kind == "seen" and q.answer == "yes",
            lambda q: q.kind == "seen" and q.answer == "no",
            lambda q: q.kind != "seen",
        )
    )
    drawn = [yes.pop() if rng.random() < 0.5 else no.pop() for _ in range(min(seen, len(yes), len(no)))]
    for question in no[:absent]:
        (shape,) = shapes_in(question)
        drawn.append(replace(question, text=f"what colour was the {shape} ?", answer="nothing", kind="absent"))
    others.sort(key=lambda question: rng.random() ** (1 / _weight(question)), reverse=True)
    named: set[str] = set()
    chosen: list[Question] = []
    for question in [*drawn, *others]:
        shapes = shapes_in(question)
        if (apart or not shapes & named) and len(chosen) < count:
            chosen.append(question)
            named |= shapes
    return [chosen[i] for i in rng.permutation(len(chosen))]


def by_colour(question: Question, world: World) -> Question:
    """A question of kind "seen" answered by the shape's colour ("named"), or "nothing" ("unnamed")."""
    colours = {event.shape: event.colour for event in world.events}
    known = question.answer == "yes"
    (shape,) = shapes_in(question)
    return replace(question, answer=colours[shape] if known else "nothing", kind="named" if known else "unnamed")


def later(question: Question, seconds: float) -> Question | None:
    """The same question where the stream's clock is ahead by so much; None when its minute is not sure or too late."""
    if question.kind != "when" or not seconds:
        return question
    (moment,) = question.evidence
    minutes = {int((moment + seconds + margin) // 60) for margin in (-3.5, 3.5)}
    minute = minutes.pop()
    return replace(question, answer=str(minute)) if not minutes and minute < 10 else None


def spoken(text: str, rng: np.random.Generator) -> str:
    """The question as people also write it."""
    if rng.random() < 0.2:
        text = text[0].upper() + text[1:]
    if rng.random() < 0.1:
        text = text.replace("colour", "color")
    if rng.random() < 0.1:
        text = text.removesuffix(" ?")
    return text


def shapes_in(question: Question) -> set[str]:
    """The shapes that a question names."""
    return set(question.text.split()) & set(SHAPES)


def _weight(question: Question) -> float:
    if question.kind == "count" and question.answer == "1":
        return _ONCE_WEIGHT
    return _WEIGHT.get(question.kind, 1.0)
