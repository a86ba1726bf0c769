"""The embedded models by name."""

from __future__ import annotations

from typing import Final

from longtake.training.hybrid import Hybrid
from longtake.training.llava import Llava
from longtake.training.species import Species

ZOO: Final[dict[str, Species]] = {species.name: species for species in (Hybrid(), Llava())}
