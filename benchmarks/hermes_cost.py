"""What HERMES costs beside the forward of a chunk: its guidance, in one pass or in three, and its whole step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from benchmarks.forward import product_speed
from benchmarks.hermes_streams import PIECES, GuidanceArms, HermesStream, Setting, Taken, roles, settings
from benchmarks.llava_shape import (
    GLOBAL_TOKENS,
    JOINED_TOKENS,
    LOCAL_TOKENS,
    Shapes,
    build,
    forward_flop,
    parameters,
)
from benchmarks.timing import Goal, Spread, timed

TURNS = 3
"""Times that the cheap arms are run in a round, which has one forward of each kind; their medians are the round's."""
GUIDANCE_GOAL, STEP_GOAL = 0.55, 8.0


@dataclass(frozen=True, slots=True)
class GuidanceCost:
    """The three prompts at `held` tokens: milliseconds packed into one pass, and in a pass for each as published.

    Attributes:
        prompts: tokens of the local, joined and global prompt.
        agreement: the largest difference of what the two find, relative to its largest value.
    """

    held: int
    prompts: tuple[int, int, int]
    packed_ms: Spread
    passes_ms: Spread
    packed_to_passes: Spread
    agreement: float


@dataclass(frozen=True, slots=True)
class StepCost:
    """HERMES' step per chunk, on average over a period of `period` chunks in which it evicts once.

    Percents are of the bare forward of a chunk in the same round, with what the layers hold midway through a period.

    Attributes:
        reindex_every: chunks after which a stream comes near the model's last position and is re-indexed lazily.
        pieces_ms, pieces_percent: guidance; scoring and selection; gather and summary; rotation where every eviction
            is followed by re-indexing.
        lazy_percent: the whole step with one rotation in `reindex_every` chunks, as published for streams.
        eager_percent: the whole step with a rotation after every eviction.
    """

    setting: Setting
    period: int
    reindex_every: int
    forward_ms: Spread
    pieces_ms: dict[str, Spread]
    pieces_percent: dict[str, Spread]
    lazy_percent: Spread
    eager_percent: Spread


@dataclass(frozen=True, slots=True)
class HermesCost:
    """One interleaved run. `roles` counts the shallow, middle and deep layers."""

    model: str
    dtype: str
    layers: int
    roles: tuple[int, int, int]
    parameters: int
    rounds: int
    turns: int
    guidance: GuidanceCost
    steps: tuple[StepCost, ...]

    def goals(self) -> list[Goal]:
        ratio = self.guidance.packed_to_passes
        promised = [step for step in self.steps if step.setting.frames > 1 or step.setting.slack]
        return [
            Goal(
                f"packed guidance <= {GUIDANCE_GOAL} of the three passes",
                ratio.text(3),
                ratio.median <= GUIDANCE_GOAL,
            ),
            *(
                Goal(
                    f"whole step <= {STEP_GOAL:.0f} % of the forward, budget {step.setting.budget:,}, "
                    f"{step.setting.chunk_tokens:,} tokens a chunk{', with slack' if step.setting.slack else ''}",
                    step.lazy_percent.text(2, " %"),
                    step.lazy_percent.median <= STEP_GOAL,
                )
                for step in promised
            ),
        ]


def estimate_seconds(shapes: Shapes, layers: int, dtype: torch.dtype) -> tuple[float, float]:
    """Roughly how long `measure` takes before its rounds, and for each, from a product of the model's own size."""
    speed = product_speed(min(512, shapes.long_chunk * shapes.frame_tokens), shapes.hidden, shapes.intermediate, dtype)
    ways = settings(shapes)
    forwards = sum(forward_flop(shapes, layers, way.chunk_tokens, way.budget) for way in ways)
    alone = forward_flop(shapes, layers, JOINED_TOKENS + GLOBAL_TOKENS, shapes.budgets[-1])
    # Products of few rows run at about half the speed; three passes take about as long as two packed ones.
    turn = 2 * alone / speed * (3 + len(ways)) + 5e-2 * len(ways)
    # Beside its products a forward takes about as long again as a third of them.
    return 10.0 + parameters(shapes, layers) / 5e7 + 2 * turn, 4 / 3 * forwards / speed + TURNS * turn


def measure(
    shapes: Shapes,
    layers: int,
    dtype: torch.dtype,
    rounds: int,
    on_turn: Callable[[int, int], None] = lambda done, of: None,
) -> HermesCost:
    """Run all arms in turns, `rounds` times, on one model.

    Args:
        on_turn: called after each turn with the turns done and all turns.
    """
    backbone = build(shapes, layers, dtype)
    guidance = GuidanceArms(backbone)
    streams = [HermesStream(backbone, setting) for setting in settings(shapes)]
    agreement = guidance.agreement()
    streams[-1].forward()  # so that no first forward is counted

    cheap: dict[str, Callable[[], Taken]] = {
        "packed": lambda: {"seconds": timed(guidance.packed)},
        "passes": lambda: {"seconds": timed(guidance.passes)},
        **{f"step {number}": stream.step for number, stream in enumerate(streams)},
    }
    forwards = {f"forward {number}": stream.forward for number, stream in enumerate(streams)}
    found: list[dict[tuple[str, str], list[float]]] = []
    for count in range(rounds * TURNS):
        turn = count % TURNS
        if turn == 0:
            found.append(defaultdict(list))
        arms = {**cheap, **{name: arm for i, (name, arm) in enumerate(forwards.items()) if i % TURNS == turn}}
        names = list(arms)
        first = count % len(names)
        for name in names[first:] + names[:first]:
            for piece, seconds in arms[name]().items():
                found[-1][name, piece].append(seconds)
        on_turn(count + 1, rounds * TURNS)

    def of(name: str, piece: str = "seconds") -> list[float]:
        return [median(taken[name, piece]) for taken in found]

    def step_cost(number: int, stream: HermesStream) -> StepCost:
        forward = of(f"forward {number}", "forward")

        def percent(piece: str) -> Spread:
            return Spread.of_ratios(of(f"step {number}", piece), forward, 100)

        return StepCost(
            setting=stream.setting,
            period=stream.setting.period,
            reindex_every=stream.reindex_every,
            forward_ms=_milliseconds(forward),
            pieces_ms={piece: _milliseconds(of(f"step {number}", piece)) for piece in PIECES},
            pieces_percent={piece: percent(piece) for piece in PIECES},
            lazy_percent=percent("lazy"),
            eager_percent=percent("eager"),
        )

    return HermesCost(
        model=backbone.name,
        dtype=str(dtype).removeprefix("torch."),
        layers=layers,
        roles=roles(layers),
        parameters=parameters(shapes, layers),
        rounds=rounds,
        turns=TURNS,
        guidance=GuidanceCost(
            held=guidance.held,
            prompts=(LOCAL_TOKENS, JOINED_TOKENS, GLOBAL_TOKENS),
            packed_ms=_milliseconds(of("packed")),
            passes_ms=_milliseconds(of("passes")),
            packed_to_passes=Spread.of_ratios(of("packed"), of("passes")),
            agreement=agreement,
        ),
        steps=tuple(step_cost(number, stream) for number, stream in enumerate(streams)),
    )


def _milliseconds(seconds: Sequence[float]) -> Spread:
    return Spread.of([1e3 * value for value in seconds])
