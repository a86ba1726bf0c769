"""HERMES: a layer's place in the stack decides whether its tokens stay for being new or for being looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from longtake.errors import LongtakeError
from longtake.kv.ledger import Kind, Ledger
from longtake.memory import Keep, Memory
from longtake.policies.policy import Policy, Reindex
from longtake.policies.positions import Compaction
from longtake.policies.selection import best_first
from longtake.policies.signals.guidance import Prompts, conversation
from longtake.policies.signals.roles import Normalisation, normalised, recency, smoothed
from longtake.probe import Guidance

Role = Literal["shallow", "middle", "deep"]
_PROMPT_OF = {"shallow": "local", "middle": "joined", "deep": "overall"}


@dataclass
class Hermes(Policy):
    """HERMES (arXiv 2601.14724) as the paper has it; `hermes-llava` and `hermes-qwen` are its two codes.

    When a layer holds more than its budget, each of its tokens is scored: in shallow layers by recency (equation 1),
    in deep ones by the attention that a guidance prompt pays it (equation 2), in middle ones by a blend that goes from
    the one to the other with depth (equations 3, 4). Scores are smoothed across layers (equation 5), the best
    `budget` stay (equation 6), and in deep layers those that go become one summary token (algorithm 1). On models
    with recurrent states all this concerns the attention layers alone, whose depth is counted among themselves.

    Every token after the system prefix competes, words between frames included; the prefix stays, on top of the
    budget. The guidance prompts contain the last question and the model's answer (`history`), so that with it a
    question does steer what is kept later.

    Attributes:
        budget: |M|, tokens of the stream per attention layer after a step, the summary included, the system prefix
            on top. Published: 4K (4,000, the paper's best rows) and 6K (6,000, its ablations and the code's script).
        chunk: 16 frames are prefilled at once (8 in the paper's study of layers), unless the session says otherwise.
        roles: "depth" as published; "shallow" or "deep" gives every layer that role (the part switched off).
        shallow, deep: 0.1 and 0.3, the shares of the layers that are shallow and deep (section 4.1).
        rounding: "floor" as in the code, int(0.1 L) and int(0.7 L); "nearest" comes closer to the shares.
        omega_0, gamma: 0.75 and 0.6, the weight of recency in middle layers, omega_0 - gamma p (equation 3).
        k: 20, forgetting rate of shallow layers. The paper gives none; this is both codes'.
        k_middle: 8, what k falls to across the middle layers. Not in the paper; the code for Qwen, whose omega the
            paper shares.
        normalisation: alpha; "min-max" within a layer as in the code, or "sum", or "none".
        smoothing: "raw" (equation 5), "cascade" (both codes) or "off".
        lambda_shallow, lambda_middle, lambda_deep: 0.1, 0.3 and 0.4 (appendix C).
        weights: of the budgets of shallow, middle and deep layers, e.g. "2,1,1" (table 5); the sum over all layers
            stays. Published default: equal.
        summary: whether the tokens that leave deep layers become one.
        summary_position: "last" is one after the last token kept (the LLaVA code), "largest" one after the largest
            position kept (the Qwen code). The paper leaves it open.
        guidance: "forward" lets the model read the prompts; "embedding" is the code's shortcut where it runs with
            sdpa or flash attention, see `Probe.attention`.
        history: whether the prompts contain the last question and answer of the session (appendix B).
        slack: tokens by which a layer may overflow before it is brought back to its budget; ours, 0 as published.
        reindex, compaction, margin: see `Policy`. Published: "lazy" for streams, "eager" for files watched to their
            end (section 4.4), by rank (appendix E), 1,024 below the model's limit (both codes).
    """

    name: ClassVar[str] = "hermes"
    line: ClassVar[str] = "recency in shallow layers, guidance attention in deep ones, summaries (HERMES, the paper)"
    default_budget: ClassVar[int] = 4000
    reindex: Reindex = field(default="lazy", kw_only=True)
    compaction: Compaction = field(default="rank", kw_only=True)

    chunk: int = 16
    roles: Literal["depth", "shallow", "deep"] = "depth"
    shallow: float = 0.1
    deep: float = 0.3
    rounding: Literal["floor", "nearest"] = "floor"
    omega_0: float = 0.75
    gamma: float = 0.6
    k: float = 20.0
    k_middle: float = 8.0
    normalisation: Normalisation = "min-max"
    smoothing: Literal["raw", "cascade", "off"] = "raw"
    lambda_shallow: float = 0.1
    lambda_middle: float = 0.3
    lambda_deep: float = 0.4
    weights: tuple[float, ...] = (1.0, 1.0, 1.0)
    summary: bool = True
    summary_position: Literal["last", "largest"] = "last"
    guidance: Guidance = "forward"
    history: bool = True
    slack: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.shallow >= 0 and self.deep >= 0 and self.shallow + self.deep <= 1):
            raise LongtakeError("shallow and deep are shares of the layers: 0 or more each, at most 1 together.")
        if len(self.weights) != 3 or min(self.weights) <= 0:
            raise LongtakeError("weights takes three numbers above 0, for shallow, middle and deep layers.")
        if self.chunk < 1 or self.slack < 0 or self.k < 0 or self.k_middle < 0:
            raise LongtakeError("chunk must be 1 or more; slack, k and k_middle 0 or more.")
        self._conversation: str | None = None

    # What the session asks ----------------------------------------------------------------------------

    def chunk_frames(self) -> int | None:
        return self.chunk

    def answered(self, question: str, answer: str) -> None:
        self._conversation = conversation(question, answer)

    def held_at_most(self, opening_tokens: int, layers: int) -> list[int] | None:
        return [opening_tokens + budget + self.slack for budget in self.budgets(layers)]

    def least_budget(self, chunk_tokens: int, opening_tokens: int, layers: int) -> int:
        """One chunk in the layer that is given least."""
        least = chunk_tokens
        while min(self._shared_out(least, layers)) < chunk_tokens:
            least += 1
        return least

    def layer_labels(self, layers: int) -> list[str]:
        return [*self.parts(layers)]

    def guidance_prompts(self, layers: int) -> list[str]:
        prompts = self._prompts()
        return [getattr(prompts, _PROMPT_OF[part]) for part in self.parts(layers)]

    def keep(self, memory: Memory) -> Keep | None:
        layers = [_stream_rows(ledger) for ledger in memory.ledgers]
        budgets, parts = self.budgets(len(layers)), self.parts(len(layers))
        if all(len(rows) <= budget + self.slack for rows, budget in zip(layers, budgets, strict=True)):
            return None
        attention = self._attention(memory, parts, layers)
        scores = self.scores(attention, parts)
        keeps, folds = [], []
        for ledger, rows, score, budget, part in zip(memory.ledgers, layers, scores, budgets, parts, strict=True):
            fold = self.summary and part == "deep" and len(rows) > budget
            best = best_first(score, ledger["index"][rows])[: budget - 1 if fold else budget].sort().values
            prefix = torch.nonzero(ledger["kind"] == int(Kind.SYSTEM)).squeeze(1)
            keeps.append(torch.cat((prefix, rows[best])).sort().values)
            folds.append(self._summary_position(ledger, rows[best], prefix) if fold else None)
        return Keep(tuple(keeps), tuple(folds))

    # Its parts ----------------------------------------------------------------------------------------

    def parts(self, layers: int) -> list[Role]:
        """The role of each of so many attention layers, from the lowest up (section 4.1)."""
        if self.roles != "depth":
            return [self.roles] * layers
        low, high = self._boundaries(layers)
        return ["shallow" if i < low else "middle" if i < high else "deep" for i in range(layers)]

    def budgets(self, layers: int) -> list[int]:
        """Tokens of the stream that each layer may hold: |M| times its role's weight, the sum unchanged (table 5)."""
        assert self.budget is not None
        return self._shared_out(self.budget, layers)

    def scores(self, attention: Sequence[Tensor], parts: Sequence[Role]) -> list[Tensor]:
        """Importance of each layer's tokens, oldest first (equations 1 to 5).

        Args:
            attention: per layer [n], what its guidance prompt pays each token; of shallow layers only n counts.
        """
        low, high = self._boundaries(len(parts))
        scores = []
        for layer, (paid, part) in enumerate(zip(attention, parts, strict=True)):
            p = (layer - low) / (high - low) if part == "middle" else 0.0
            omega = {"shallow": 1.0, "middle": self.omega_0 - self.gamma * p, "deep": 0.0}[part]
            k = self.k - (self.k - self.k_middle) * p
            new, looked_at = (normalised(score, self.normalisation) for score in (recency(len(paid), k), paid))
            scores.append(omega * new + (1 - omega) * looked_at)
        if self.smoothing == "off":
            return scores
        weight = {"shallow": self.lambda_shallow, "middle": self.lambda_middle, "deep": self.lambda_deep}
        return smoothed(scores, [weight[part] for part in parts], self.smoothing == "cascade")

    def _boundaries(self, layers: int) -> tuple[int, int]:
        """The first middle layer and the first deep one."""
        turn = int if self.rounding == "floor" else round
        return turn(self.shallow * layers), turn((1 - self.deep) * layers)

    def _shared_out(self, budget: int, layers: int) -> list[int]:
        weight = dict(zip(("shallow", "middle", "deep"), self.weights, strict=True))
        shares = torch.tensor([weight[part] for part in self.parts(layers)], dtype=torch.float64)
        ends = (shares.cumsum(0) / shares.sum() * budget * layers).round().long()
        return torch.diff(ends, prepend=torch.zeros(1, dtype=torch.int64)).tolist()

    def _attention(self, memory: Memory, parts: Sequence[Role], layers: Sequence[Tensor]) -> list[Tensor]:
        """What each layer's own prompt pays to its rows, oldest first."""
        prompts = self._prompts()
        needed = [name for part, name in _PROMPT_OF.items() if part in parts and part != "shallow"]
        if not needed:
            return [torch.zeros(len(rows)) for rows in layers]
        seen = self._probe.attention([self._probe.ids(getattr(prompts, name)) for name in needed], self.guidance)
        return [
            looks[needed.index(_PROMPT_OF[part])][rows] if part != "shallow" else torch.zeros(len(rows))
            for looks, part, rows in zip(seen, parts, layers, strict=True)
        ]

    def _prompts(self) -> Prompts:
        return Prompts.after(self._conversation if self.history else None)

    def _summary_position(self, ledger: Ledger, kept: Tensor, prefix: Tensor) -> Tensor:
        """Where the summary of all others stands, on every axis alike."""
        newest = kept[-1:] if len(kept) else prefix
        among = newest if self.summary_position == "last" else torch.cat((prefix, kept))
        place = ledger["position"][among].max() + 1 if len(among) else torch.tensor(0)
        return place.expand(ledger["position"].shape[1])


@dataclass
class HermesLlava(Hermes):
    """HERMES as its code for LLaVA-OneVision has it (commit b505d95).

    It differs from the paper in omega (1 - 0.9 p) and in smoothing over scores already smoothed. Two things of that
    code are not followed: it lets each layer count its own positions on, here all layers go on after the largest one;
    and where it runs with sdpa or flash attention its guidance is what `guidance="embedding"` does here.

    Attributes:
        budget: 6,000, as in its script.
        omega_0, gamma: 1.0 and 0.9.
        k_middle: 0.5.
    """

    name: ClassVar[str] = "hermes-llava"
    line: ClassVar[str] = "HERMES with the constants and the smoothing of its LLaVA-OneVision code"
    default_budget: ClassVar[int] = 6000

    omega_0: float = 1.0
    gamma: float = 0.9
    k_middle: float = 0.5
    smoothing: Literal["raw", "cascade", "off"] = "cascade"


@dataclass
class HermesQwen(Hermes):
    """HERMES as its code for Qwen2.5-VL has it.

    Attributes:
        budget: 6,000, as in its script.
        omega_0, gamma: 0.75 and 0.6, as in the paper.
        k_middle: 8.
        summary_position: "largest".
    """

    name: ClassVar[str] = "hermes-qwen"
    line: ClassVar[str] = "HERMES with the constants and the smoothing of its Qwen2.5-VL code"
    default_budget: ClassVar[int] = 6000

    smoothing: Literal["raw", "cascade", "off"] = "cascade"
    summary_position: Literal["last", "largest"] = "largest"


def _stream_rows(ledger: Ledger) -> Tensor:
    """Rows of all but the system prefix, oldest first."""
    rows = torch.nonzero(ledger["kind"] != int(Kind.SYSTEM)).squeeze(1)
    return rows[torch.argsort(ledger["index"][rows])]
