"""A synthetic world whose truth is known, and a small model trained on it that watches it like a real one."""

from pathlib import Path
from typing import Final

from longtake.toy.events import Event
from longtake.toy.questions import Question
from longtake.toy.render import render
from longtake.toy.world import World

WEIGHTS: Final = Path(__file__).parent / "weights"
"""Folder of the shipped checkpoints: weights, tokenizer and processor of each in the library's own formats."""

__all__ = ["WEIGHTS", "Event", "Question", "World", "render"]
