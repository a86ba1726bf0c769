"""A synthetic world whose truth is known, and a small model trained on it that watches it like a real one."""

from pathlib import Path
from typing import Final

from longtake.toy.render import render
from longtake.toy.world import Event, Question, World

WEIGHTS: Final = Path(__file__).parent / "weights"
"""Folder of the shipped checkpoint: weights, tokenizer and processor in the library's own formats."""

__all__ = ["WEIGHTS", "Event", "Question", "World", "render"]
