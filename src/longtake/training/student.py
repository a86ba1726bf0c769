"""A model in training, with all that belongs to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from longtake.training.script import Script
from longtake.training.species import Species


@dataclass(frozen=True, slots=True)
class Student:
    """A model of one species, its processor, and the tokens in which it is spoken to."""

    species: Species
    model: Any
    processor: Any
    script: Script

    @classmethod
    def new(cls, species: Species, seed: int) -> Student:
        """Random weights that follow from the seed."""
        processor = species.processor()
        model = species.model(processor.tokenizer, seed)
        return cls(species, model, processor, Script(species, processor, len(species.ending(model))))

    def encode(self, chunks: Tensor) -> Tensor:
        """uint8 chunks [n, frames, 3, 32, 32] to features [n, 4, 128]."""
        return self.species.encode(self.model, self.processor, chunks)
