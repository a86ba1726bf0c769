"""What is learned in which order."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from longtake.toy.questions import KINDS

PLAIN: Final = ("colour", "first", "last", "seen", "now")
_LONG_FROM, _LONG_SHARE = 0.7, 0.3  # share of the steps after which the longest streams come, and how often
_REPLAY = 0.3  # share of steps on earlier grades


@dataclass(frozen=True, slots=True)
class Grade:
    """Streams of up to `chunks` seconds with `fewest` to `most` events, and the questions packed after one.

    Attributes:
        questions: at most so many in all.
        seen: up to so many of them ask whether a shape was shown, `absent` for the colour of one that was not.
        named: "was the X shown ?" is answered by the colour, or "nothing", in place of "yes" and "no".
        scene: what the streams show: "plain" shapes, "cards", shapes that come "again", or "all".
        asked: kinds of questions.
        kinds, passes, patience: the next grade begins when the smoothed accuracies of these kinds are above the one,
            or after so many steps.
        tokens: of one step, about.
    """

    chunks: int
    fewest: int
    most: int
    questions: int = 16
    seen: int = 4
    absent: int = 1
    named: bool = False
    scene: str = "all"
    asked: tuple[str, ...] = KINDS
    kinds: tuple[str, ...] = ("colour", "seen", "first", "last", "now", "number")
    passes: float = 0.85
    patience: int = 200
    tokens: int = 4000


# Whether a shape was shown is learned in four grades. From "yes" and "no" alone it stays a coin toss for thousands of
# questions: to read the answer the attention must look for the shape, and it will not before there is an answer to
# read. So the same words first ask for the colour, which makes them look; then, with one event and then with several,
# for shapes that were not there, which lets the attention rest where nothing was shown; and then "yes" and "no" are a
# matter of reading. Each of the other hard questions has its own grade, in which what answers the most (the only card,
# the first event, once) answers little; without it the model stays with that.
CURRICULUM: Final = (
    Grade(8, 1, 3, 10, 3, 0, True, "plain", PLAIN, ("colour", "named"), tokens=2000),
    Grade(6, 1, 1, 6, 2, 2, True, "plain", PLAIN, ("colour", "unnamed"), tokens=2000, patience=300),
    Grade(8, 1, 3, 10, 2, 1, True, "plain", PLAIN, ("colour", "unnamed"), tokens=2500, patience=350),
    Grade(8, 1, 3, 10, 3, 1, False, "plain", PLAIN, ("colour", "seen"), tokens=2500),
    Grade(16, 2, 5, 12, scene="cards", asked=("number", "first", "last"), kinds=("number",), tokens=2500, patience=400),
    Grade(32, 4, 8, 12, 0, 0, scene="plain", asked=("order", "first"), kinds=("order",), tokens=2500, patience=600),
    Grade(32, 4, 9, 12, 0, 0, scene="again", asked=("count", "order"), kinds=("count",), tokens=3000, patience=600),
    Grade(16, 1, 6, 14),
    Grade(32, 2, 10, 16, 3),
    Grade(64, 3, 20, 20, 2),
    Grade(128, 2, 28, 22, 2),
)
LONG: Final = (Grade(256, 4, 32, 22, 2), Grade(600, 10, 48, 26, 2))
"""Grades of the last third of the training, mixed into the last one of the curriculum."""


def draw_grade(number: int, done: float, rng: np.random.Generator) -> Grade:
    """The grade of one step, when the training has come to grade `number` and a share `done` of its steps."""
    if number == len(CURRICULUM) - 1 and done > _LONG_FROM and rng.random() < _LONG_SHARE:
        return LONG[int(rng.integers(len(LONG)))]
    # Grades that answer the same question otherwise are not gone back to.
    earlier = [old for old in CURRICULUM[:number] if old.named == CURRICULUM[number].named and old.asked != PLAIN]
    if earlier and rng.random() < _REPLAY:
        return earlier[int(rng.integers(len(earlier)))]
    return CURRICULUM[number]
