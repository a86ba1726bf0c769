"""What one second of video costs at a full memory: the product's step, and the library's plain loop beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, LinearAttentionLayer

from benchmarks.forward import bare, product_speed
from benchmarks.real_shape import Shapes, Slice, build, chunk_flop, parameters, second
from benchmarks.timing import Goal, Spread, Stopwatch, timed
from longtake.backbones.backbone import Cursor, Segment
from longtake.engine import Engine
from longtake.kv import attention
from longtake.kv.slab import SlabLayer
from longtake.kv.states import StateCopy
from longtake.memory import Memory
from longtake.retention import ROOM
from longtake.session import Session
from longtake.video.chunker import Chunk

WARM_UP = 2
"""Rounds that are run and not counted."""
ARMS = 3

# Goals of the project; the paper's own shares are 1.9 % and 6.0 % (its tables, on a GPU).
LOOP_GOAL, SIGNAL_GOAL, TOTAL_GOAL = 1.0, 0.5, 3.0


class _OpenCopy(StateCopy):
    """A state copy with a `__dict__`, so that its `save` can be watched."""


class PlainLoop:
    """The library's own way: `DynamicCache`, stock attention, explicit positions, and nothing is ever dropped.

    It starts from a copy of what a product's memory holds, on the same weights. `step` appends one chunk;
    `trim` cuts the keys and values back to the length they had, while the recurrent states go on.
    """

    def __init__(self, backbone: Slice, memory: Memory) -> None:
        self._backbone = backbone
        self._length = memory.held
        self.cache = DynamicCache(config=backbone.text_config)
        for number, layer in enumerate(memory.cache.layers):
            if isinstance(layer, LinearAttentionLayer):
                conv, recurrent = layer.conv_states[0], layer.recurrent_states[0]
                assert conv is not None
                assert recurrent is not None
                self.cache.update_conv_state(conv.clone(), number, conv_kernel_size=conv.shape[-1])
                self.cache.update_recurrent_state(recurrent.clone(), number)
            else:
                assert isinstance(layer, SlabLayer)
                self.cache.update(layer.keys.clone(), layer.values.clone(), number)

    def prepare(self) -> None:
        """Give the shared weights the stock attention."""
        self._backbone.model.set_attn_implementation({"text_config": "sdpa"})

    @torch.no_grad()
    def step(self, segment: Segment) -> torch.Tensor:
        hidden: torch.Tensor = self._backbone.language_model(
            inputs_embeds=segment.embeddings,
            position_ids=segment.rows.position.T[:, None],
            cache=self.cache,
            use_cache=True,
        ).last_hidden_state
        return hidden

    def trim(self) -> None:
        for layer in self.cache.layers:
            if isinstance(layer, DynamicLayer):
                layer.crop(self._length - layer.get_seq_length())
        attention.install(self._backbone.model)


@dataclass(frozen=True, slots=True)
class ChunkCost:
    """One interleaved run.

    Times are milliseconds per chunk; shares are percent of the bare forward of the same round. `step` is all that
    `Session.push` does for a second of video, `forward` the product's forward alone on the same memory, `plain`
    the library's loop. `agreement` is the largest difference of the last hidden states of the two forwards from
    equal caches, relative to their largest value.
    """

    model: str
    dtype: str
    layers: int
    parameters: int
    chunk_tokens: int
    budget: int
    held: int
    step_ms: Spread
    forward_ms: Spread
    plain_ms: Spread
    step_to_plain: Spread
    forward_to_plain: Spread
    copy_percent: Spread
    drift_percent: Spread
    selection_percent: Spread
    eviction_percent: Spread
    signal_percent: Spread
    total_percent: Spread
    pieces_ms: dict[str, Spread]
    agreement: float
    kv_bytes: int
    kv_bytes_reserved: int
    bytes_per_token: int

    @property
    def budget_bytes(self) -> int:
        """Budget times bytes per token, from the shapes."""
        return self.budget * self.bytes_per_token

    @property
    def reserved_budget_bytes(self) -> int:
        """The same with the room for a chunk, a question and its answer."""
        return (self.budget + self.chunk_tokens + ROOM) * self.bytes_per_token

    def goals(self) -> list[Goal]:
        return [
            Goal(
                f"a step takes no longer than the plain loop (ratio <= {LOOP_GOAL})",
                self.step_to_plain.text(3),
                self.step_to_plain.median <= LOOP_GOAL,
            ),
            Goal(
                f"signal <= {SIGNAL_GOAL} % of the forward",
                self.signal_percent.text(2, " %"),
                self.signal_percent.median <= SIGNAL_GOAL,
            ),
            Goal(
                f"signal + selection + eviction <= {TOTAL_GOAL} % of the forward",
                self.total_percent.text(2, " %"),
                self.total_percent.median <= TOTAL_GOAL,
            ),
            Goal(
                "bytes held = budget x bytes per token",
                f"{self.kv_bytes:,} of {self.budget_bytes:,}",
                self.kv_bytes == self.budget_bytes,
            ),
            Goal(
                f"bytes reserved = (budget + chunk + {ROOM}) x bytes per token",
                f"{self.kv_bytes_reserved:,} of {self.reserved_budget_bytes:,}",
                self.kv_bytes_reserved == self.reserved_budget_bytes,
            ),
        ]


def estimate_seconds(shapes: Shapes, layers: int, dtype: torch.dtype, rounds: int) -> float:
    """Roughly how long `measure` will take, from one matrix product of the model's own size on this machine."""
    speed = product_speed(shapes.chunk_tokens, shapes.hidden, shapes.intermediate, dtype)
    # The rest of a forward (small kernels, attention) takes about as long again as a third of its products.
    chunk = 4 / 3 * chunk_flop(shapes, layers) / speed + 2e-3 * layers
    return 15.0 + parameters(shapes, layers) / 5e7 + ((rounds + WARM_UP) * ARMS + 3) * chunk


def measure(
    shapes: Shapes,
    layers: int,
    dtype: torch.dtype,
    rounds: int,
    on_round: Callable[[int, int], None] = lambda done, of: None,
) -> ChunkCost:
    """Run the three in turns, `rounds` times, on one model and at one length of the cache.

    Args:
        on_round: called after each round with the rounds done and all rounds.
    """
    backbone = build(shapes, layers, dtype)
    session, number = full_session(backbone)
    memory = session.memory
    watch = Stopwatch()
    memory.states_before = _OpenCopy()
    watch.watch(memory.states_before, "save", "copy")
    watch.watch(session.policy, "observe", "drift")
    watch.watch(session.policy, "keep", "selection")
    watch.watch(memory, "evict", "eviction")
    plain = PlainLoop(backbone, memory)
    segment = coming_chunk(backbone, session, number)
    agreement = _agreement(memory, backbone, plain, segment)

    times: dict[str, list[float]] = {}
    for count in range(rounds + WARM_UP):
        segment = coming_chunk(backbone, session, number)
        taken: dict[str, float] = {}

        def step(segment: Segment = segment, number: int = number, taken: dict[str, float] = taken) -> None:
            backbone.ready = segment
            frames = second(number)
            watch.take()
            started = perf_counter()
            for frame in frames:
                session.push(frame.image, frame.time)
            taken["step"] = perf_counter() - started
            taken.update(watch.take())

        def forward(segment: Segment = segment, taken: dict[str, float] = taken) -> None:
            taken["forward"] = bare(memory, backbone, segment)[0]

        def loop(segment: Segment = segment, taken: dict[str, float] = taken) -> None:
            plain.prepare()
            taken["plain"] = timed(lambda: plain.step(segment))
            plain.trim()

        arms: list[Callable[[], None]] = [step, loop, forward]
        for arm in range(ARMS):  # each goes first as often as the others
            arms[(arm + count) % ARMS]()
        number += 1
        if count >= WARM_UP:
            for name, value in taken.items():
                times.setdefault(name, []).append(value)
            on_round(count + 1 - WARM_UP, rounds)

    signal = [a + b for a, b in zip(times["copy"], times["drift"], strict=True)]
    total = [a + b + c for a, b, c in zip(signal, times["selection"], times["eviction"], strict=True)]

    def milliseconds(name: str) -> Spread:
        return Spread.of([1e3 * value for value in times[name]])

    def percent(values: list[float]) -> Spread:
        return Spread.of_ratios(values, times["forward"], 100)

    pieces = ("copy", "drift", "selection", "eviction")
    return ChunkCost(
        model=backbone.name,
        dtype=str(dtype).removeprefix("torch."),
        layers=layers,
        parameters=parameters(shapes, layers),
        chunk_tokens=shapes.chunk_tokens,
        budget=shapes.budget,
        held=memory.held,
        step_ms=milliseconds("step"),
        forward_ms=milliseconds("forward"),
        plain_ms=milliseconds("plain"),
        step_to_plain=Spread.of_ratios(times["step"], times["plain"]),
        forward_to_plain=Spread.of_ratios(times["forward"], times["plain"]),
        copy_percent=percent(times["copy"]),
        drift_percent=percent(times["drift"]),
        selection_percent=percent(times["selection"]),
        eviction_percent=percent(times["eviction"]),
        signal_percent=percent(signal),
        total_percent=percent(total),
        pieces_ms={name: milliseconds(name) for name in pieces},
        agreement=agreement,
        kv_bytes=memory.kv_bytes,
        kv_bytes_reserved=memory.kv_bytes_reserved,
        bytes_per_token=shapes.bytes_per_token(layers, dtype),
    )


def full_session(backbone: Slice) -> tuple[Session, int]:
    """A session that has evicted about a budget of tokens, and the number of its next chunk."""
    session = Engine(backbone).open("deltas", backbone.shapes.budget)
    backbone.standing_in = True
    chunks = 2 * backbone.shapes.budget // backbone.shapes.chunk_tokens + 1
    for number in range(chunks):
        for frame in second(number):
            session.push(frame.image, frame.time)
    backbone.standing_in = False
    return session, chunks


def coming_chunk(backbone: Slice, session: Session, number: int) -> Segment:
    """The coming chunk, whose positions follow those of all that the session has seen."""
    position = int(session.memory.ledger["position"].max()) + 1
    cursor = Cursor(position=position, frames=session.frames, time=session.time)
    return backbone.noise(Chunk(second(number), number), cursor)


def _agreement(memory: Memory, backbone: Slice, plain: PlainLoop, segment: Segment) -> float:
    """That both do the same work: their results on equal caches."""
    ours = bare(memory, backbone, segment)[1]
    plain.prepare()
    theirs = plain.step(segment)
    plain.trim()
    return float((ours - theirs).abs().max() / theirs.abs().max())
