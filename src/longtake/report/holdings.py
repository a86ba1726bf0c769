"""What each attention layer holds of a stream, and where a guidance prompt looks, as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from longtake.errors import LongtakeError
from longtake.kv.ledger import Kind, Ledger
from longtake.session import Session

AGES = 20
"""Equal bins of age, from now back to the stream's start."""


@dataclass(frozen=True, slots=True)
class LayerHolding:
    """What one attention layer holds.

    Attributes:
        number: of the decoder layer, counted from 0 at the lowest.
        role: the policy's word for the layer, "" where it has none.
        tokens: all that it holds: the prompt's opening, words between frames and summaries included.
        visual: how many of them are visual.
        shares: for each chunk of the stream the share of its visual tokens held, 0 to 1.
        oldest: seconds of the oldest visual token held.
        summaries: seconds at which its summary tokens stand, in order.
        prompt: the text whose attention was read.
        attention: what that text pays a visual token, a mean for each bin of age, newest first; None where no visual
            token of that age is held.
    """

    number: int
    role: str
    tokens: int
    visual: int
    shares: tuple[float, ...]
    oldest: float | None
    summaries: tuple[float, ...]
    prompt: str | None = None
    attention: tuple[float | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a session holds at this moment.

    Attributes:
        seconds: length of the stream, up to where its newest frame ends.
        edges: seconds at which chunks begin, and at which the last one ends: [chunks + 1].
        layers: the attention layers, from the lowest up.
    """

    model: str
    policy: str
    options: dict[str, Any]
    budget: int | None
    seconds: float
    frames: int
    chunks: int
    tokens_seen: int
    edges: tuple[float, ...]
    layers: tuple[LayerHolding, ...]

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON, with the bounds of the bins of age in seconds before the stream's end."""
        record = asdict(self)
        layers = record.pop("layers")
        return {
            "model": record.pop("model"),
            "policy": record.pop("policy"),
            "policy_options": record.pop("options"),
            "budget": record.pop("budget"),
            "stream_seconds": record.pop("seconds"),
            **{name: value for name, value in record.items() if name != "edges"},
            "chunk_edges": self.edges,
            "age_edges": [self.seconds * i / AGES for i in range(AGES + 1)],
            "layers": [
                {
                    "layer": layer.pop("number"),
                    "role": layer.pop("role"),
                    "tokens": layer.pop("tokens"),
                    "visual_tokens": layer.pop("visual"),
                    "share_per_chunk": layer.pop("shares"),
                    "oldest_seconds": layer.pop("oldest"),
                    "summary_seconds": layer.pop("summaries"),
                    "prompt": layer.pop("prompt"),
                    "attention_by_age": layer.pop("attention"),
                }
                for layer in layers
            ],
        }


def held_shares(session: Session) -> NDArray[np.float64]:
    """For each attention layer and chunk so far, the share of the chunk's visual tokens still held: [layers, chunks].

    Visual tokens alone: their number is the same in every chunk of a stream, while timestamps grow by digits.
    """
    whole = (session.visual_tokens or 1) * session.chunk_frames // session.backbone.frames_per_step
    counts = session.memory.per_layer(
        lambda ledger: ledger["chunk"][ledger["patch"] >= 0].bincount(minlength=session.chunks)
    )
    return np.stack([count.numpy() for count in counts]) / whole


def take_stock(session: Session, times: Sequence[float] | None = None, *, attention: bool = True) -> Holdings:
    """What the session holds now. The stream itself is left as it is.

    Args:
        times: seconds of all frames so far; by default they are taken as equally far from each other.
        attention: whether guidance prompts are read on top of what is held: the policy's own where it has some,
            always by the model itself.

    Raises:
        LongtakeError: before the first chunk is full.
    """
    if not session.chunks:
        raise LongtakeError(
            f"The stream ended after {session.frames} frames, before the first chunk of {session.chunk_frames} was "
            "full: nothing is held yet; watch longer or give smaller chunks."
        )
    seconds = session.time + 1 / session.fps
    starts = [*(times if times is not None else np.arange(session.frames) / session.fps), seconds]
    edges = starts[:: session.chunk_frames][: session.chunks]
    ledgers = session.memory.ledgers
    prompts: Sequence[str | None] = [None] * len(ledgers)
    looks: Sequence[Tensor | None] = [None] * len(ledgers)
    if attention:
        prompts = texts = session.policy.guidance_prompts(len(ledgers))
        distinct = list(dict.fromkeys(texts))
        seen = session.attention(distinct)
        looks = [layer[distinct.index(text)] for layer, text in zip(seen, texts, strict=True)]
    facts = zip(
        session.backbone.attention_layers,
        session.policy.layer_labels(len(ledgers)),
        ledgers,
        held_shares(session),
        prompts,
        looks,
        strict=True,
    )
    return Holdings(
        model=session.backbone.name,
        policy=session.policy.name,
        options=session.policy.settings(),
        budget=session.policy.budget,
        seconds=seconds,
        frames=session.frames,
        chunks=session.chunks,
        tokens_seen=session.memory.seen,
        edges=(*map(float, edges), float(starts[session.chunks * session.chunk_frames])),
        layers=tuple(
            LayerHolding(
                number=number,
                role=role,
                tokens=len(ledger),
                visual=int((ledger["kind"] == int(Kind.VISUAL)).sum()),
                shares=tuple(shares.tolist()),
                oldest=min(ledger["time"][ledger["kind"] == int(Kind.VISUAL)].tolist(), default=None),
                summaries=tuple(sorted(ledger["time"][ledger["kind"] == int(Kind.SUMMARY)].tolist())),
                prompt=prompt,
                attention=None if look is None else _by_age(ledger, look, seconds),
            )
            for number, role, ledger, shares, prompt, look in facts
        ),
    )


def _by_age(ledger: Ledger, look: Tensor, seconds: float) -> tuple[float | None, ...]:
    """The mean of `look` [rows] over the visual tokens in each bin of age, newest first."""
    visual = ledger["kind"] == int(Kind.VISUAL)
    age = ((seconds - ledger["time"][visual]) / seconds * AGES).long().clamp(0, AGES - 1)
    paid = look[visual].double().numpy()
    sums, counts = np.bincount(age, paid, AGES), np.bincount(age, minlength=AGES)
    return tuple(float(total / count) if count else None for total, count in zip(sums, counts, strict=True))
