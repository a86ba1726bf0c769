"""DeltaS: state drift of the linear layers decides what the attention layers keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from longtake.policies.scored import PUBLISHED_BUDGET, Scored


@dataclass
class DeltaS(Scored):
    """DeltaS (arXiv 2609.27470), algorithm 1, for models with gated-delta linear attention.

    After each chunk all its tokens get the chunk's state drift as their score, for good (equation 3). When
    more than `budget` tokens are held, those that stay are the first `sinks`, the newest `window`, and
    the rest of the budget by score within `spans` equal spans of arrival time, an equal share each.
    Positions stay as they were; questions leave no trace (the session rolls back).

    What the paper leaves open: a share that a span cannot fill, and the remainder of the division, go to
    the best tokens of the other spans; among equal scores the newer token stays; the spans cut the time
    range of the tokens that compete. The prompt's opening beyond the sinks competes like a chunk: it meets
    empty states and scores 1 (see `state_drift`).

    Attributes:
        budget: M, all tokens held per attention layer after a step, sinks and window included; the paper
            has 8,192 and 16,384.
        sinks: n_s = 4, the stream's first tokens.
        window: n_w = 1,024, the newest tokens. Below a budget of 8,192 the default is an eighth of the
            budget, the paper's own ratio at 8,192.
        spans: N = 4, equal spans of time.
    """

    name: ClassVar[str] = "deltas"
    line: ClassVar[str] = "chunks that changed the recurrent states most, spread over time spans (DeltaS)"

    budget: int | None = PUBLISHED_BUDGET
    score: Literal["drift"] = field(default="drift", init=False)
    rule: Literal["spans"] = field(default="spans", init=False)
    words: Literal["compete"] = field(default="compete", init=False)
