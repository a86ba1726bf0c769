"""What a chunk showed on its way through the model, beside the keys and values that it left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from longtake.backbones.backbone import Backbone, Segment
from longtake.backbones.gates import Gates
from longtake.kv.ledger import Kind

Sight = Literal["features", "queries", "gates"]


@dataclass(slots=True)
class Trace:
    """Records of one prefill; empty but for what was asked for.

    Attributes:
        features: [visual tokens, hidden], what the vision tower made of the chunk.
        queries: per attention layer, from the lowest up, [heads, visual tokens, dim], turned to their positions.
        gates: per linear layer, from the lowest up, what its gates let in and out.
    """

    features: Tensor | None = None
    queries: list[Tensor] = field(default_factory=list)
    gates: list[Gates] = field(default_factory=list)

    @contextmanager
    def following(self, backbone: Backbone, segment: Segment, sights: frozenset[Sight]) -> Iterator[Segment]:
        """The segment to run in place of `segment`; when its forward is done the records are there."""
        visual = segment.rows.kind == int(Kind.VISUAL)
        if "features" in sights:
            self.features = segment.embeddings[0, visual.to(segment.embeddings.device)]
        heard: dict[int, Tensor] = {}
        if "queries" in sights:
            segment = Segment(segment.embeddings, segment.rows, {**segment.extras, "queries": heard})
        if "gates" in sights:
            with Gates.listening(backbone) as self.gates:
                yield segment
        else:
            yield segment
        self.queries = [heard[layer][:, visual.to(heard[layer].device)] for layer in sorted(heard)]
