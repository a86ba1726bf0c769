"""One policy's way through one stream, and what it knows at the end."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longtake.engine import Engine
from longtake.evaluation.recording import Recording
from longtake.evaluation.streams import Stream
from longtake.kv.ledger import Kind, Ledger
from longtake.memory import Keep
from longtake.report.holdings import held_shares
from longtake.session import Session

MOMENTS = 100
"""Equal parts of a stream for which is told how much of them is held."""
FULL, EMPTIED = "full", "emptied"
"""No bound; and the full cache emptied before the questions, so that the recurrent states alone answer."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is tried.

    Attributes:
        policy: a name from `longtake policies`, or "emptied".
        options: hyperparameters as the command line writes them.
        percent: budget in percent of the stream's tokens; None for policies without one.
        chunk: seconds taken in at once; None for what the policy prefers.
    """

    policy: str
    options: tuple[tuple[str, str], ...] = ()
    percent: float | None = None
    chunk: float | None = 1.0

    @property
    def label(self) -> str:
        """How the command line writes it."""
        return ":".join([self.policy, *(f"{name}={value}" for name, value in self.options)])

    def budget(self, tokens: int) -> int | None:
        """Tokens per attention layer, for a stream of so many."""
        return None if self.percent is None else max(1, round(tokens * self.percent / 100))


@dataclass(frozen=True, slots=True)
class Asked:
    """One question and what came of it.

    Attributes:
        age: share of the stream that lies between the evidence that decides and the end; None without evidence.
        held: share of the evidence's moments of which a visual token is still held, mean over layers.
    """

    kind: str
    age: float | None
    held: float | None
    right: bool


def try_out(
    recording: Recording, stream: Stream, case: Case, on_frame: Callable[[float], None] = lambda time: None
) -> dict[str, Any]:
    """Watch the recording under the policy, ask everything, and tell all of it in values ready for JSON.

    Raises:
        LongtakeError: for a policy, option or budget that cannot be used.
    """
    engine = Engine(recording.watched_by())
    policy = FULL if case.policy == EMPTIED else case.policy
    budget = case.budget(recording.tokens)
    began = clock.perf_counter()
    frames = None if case.chunk is None else max(1, round(case.chunk * recording.fps))
    with engine.open(policy, budget, policy_options=dict(case.options), chunk_frames=frames) as session:
        recording.push_into(session, on_frame)
        watched = clock.perf_counter() - began
        shares = _shares(session)
        memory = session.memory
        facts: Mapping[str, Any] = {
            "tokens_seen": memory.seen,
            "tokens_held": memory.held,
            "kv_bytes": memory.kv_bytes,
            "state_bytes": memory.state_bytes,
            "chunks": session.chunks,
            "ms_per_chunk": round(1000 * watched / max(1, session.chunks), 3),
            "settings": session.policy.settings(),
            "budget_tokens": session.policy.budget,
        }
        if case.policy == EMPTIED:
            memory.evict(Keep.shared(torch.empty(0, dtype=torch.int64)))
        asked = [
            Asked(
                question.kind,
                None if (age := stream.age(question)) is None else round(age / stream.seconds, 4),
                _held(session, stream, question.evidence),
                session.ask(question.text, max_new_tokens=4).text == question.answer,
            )
            for question in stream.questions(recording.tells_time, recording.knows)
        ]
    return {
        **facts,
        "held_by_moment": [round(share, 4) for share in shares],
        "asked": [asdict(one) for one in asked],
    }


def _shares(session: Session) -> list[float]:
    """For each of `MOMENTS` parts of the stream the share of its visual tokens held, mean over layers."""
    chunks = held_shares(session).mean(axis=0)
    edges = np.linspace(0, len(chunks), MOMENTS + 1)
    parts = [chunks[int(start) : max(int(start) + 1, int(end))] for start, end in pairwise(edges)]
    return [float(part.mean()) for part in parts]


def _held(session: Session, stream: Stream, evidence: tuple[float, ...]) -> float | None:
    if not evidence:
        return None
    step = session.backbone.frames_per_step / session.fps
    spans = [stream.shows(moment) for moment in evidence]

    def share(ledger: Ledger) -> Tensor:
        # A temporal step bears the time of its last frame.
        time = ledger["time"][ledger["kind"] == int(Kind.VISUAL)]
        found = [bool(((time >= start - 1e-6) & (time < end + step)).any()) for start, end in spans]
        return torch.tensor(found).double().mean()

    return round(float(torch.stack(session.memory.per_layer(share)).mean()), 4)
