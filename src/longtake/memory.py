"""One stream's memory: slabs, recurrent states and the ledger as one object that cannot come apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor
from transformers.cache_utils import Cache, LinearAttentionLayer

from longtake.kv.ledger import Ledger, Rows
from longtake.kv.moves import Moves
from longtake.kv.rotary import KeyRotation
from longtake.kv.slab import SlabLayer
from longtake.kv.states import StateCopy, recurrent_states, state_bytes

FULL, LINEAR = "full_attention", "linear_attention"


@dataclass(frozen=True, slots=True)
class Keep:
    """Rows to keep: sorted row indices (int64), for all attention layers alike or one tensor per layer."""

    layers: tuple[Tensor, ...]

    @classmethod
    def shared(cls, rows: Tensor) -> Keep:
        """The same rows in every attention layer."""
        return cls((rows,))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a rollback needs: the length of each attention layer and a copy of the recurrent states."""

    lengths: tuple[int, ...]
    states: StateCopy
    seen: int
    evictions: int


class Memory:
    """The only owner of a stream's keys, values, recurrent states and ledger.

    A token comes in through `appending`, goes through `evict` or `rollback`, and the ledger follows. While
    all attention layers keep the same rows they share one ledger; `evict` with rows per layer parts them.

    Args:
        layer_types: per decoder layer "full_attention" or "linear_attention".
        axes: axes of a rotary position, 1 or 3.
        rotation: how keys move to other positions.
    """

    def __init__(self, layer_types: Sequence[str], axes: int, rotation: KeyRotation) -> None:
        self.slabs = [SlabLayer() for kind in layer_types if kind == FULL]
        """The attention layers, from the lowest up."""
        self.linear = [LinearAttentionLayer() for kind in layer_types if kind == LINEAR]
        slabs, linear = iter(self.slabs), iter(self.linear)
        self.cache = Cache(layers=[next(slabs) if kind == FULL else next(linear) for kind in layer_types])
        self.ledgers: list[Ledger] = [Ledger(axes)] * len(self.slabs)
        self.states_before = StateCopy()
        """The recurrent states as they were before the newest chunk."""
        self.seen = 0
        """Tokens that ever came in and were not rolled back."""
        self._rotation = rotation
        self._bounded = False
        self._evictions = 0
        self._unsettled: list[Moves] | None = None
        self._open_checkpoints = 0

    # What is held -----------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """The ledger that all attention layers share.

        Raises:
            RuntimeError: when they hold different rows; ask `ledgers` for each layer's own.
        """
        if any(ledger is not self.ledgers[0] for ledger in self.ledgers):
            raise RuntimeError("the attention layers hold different rows; use memory.ledgers")
        return self.ledgers[0]

    @property
    def held(self) -> int:
        """Tokens held by the attention layer that holds most."""
        return max(slab.length for slab in self.slabs)

    @property
    def kv_bytes(self) -> int:
        """Bytes of the keys and values held, over all attention layers."""
        return sum(slab.bytes_held for slab in self.slabs)

    @property
    def kv_bytes_reserved(self) -> int:
        """Bytes allocated for keys and values, filled or not."""
        return sum(slab.bytes_reserved for slab in self.slabs)

    @property
    def state_bytes(self) -> int:
        """Bytes of the recurrent and convolution states."""
        return state_bytes(self.linear)

    def recurrent_states(self) -> list[Tensor]:
        """Live recurrent states, each [1, value_heads, key_dim, value_dim] float32."""
        return recurrent_states(self.linear)

    # Tokens come in ---------------------------------------------------------------------------------

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` tokens in all, in every attention layer, and from now on grow only by need."""
        self._bounded = True
        for slab in self.slabs:
            slab.reserve(tokens)

    @contextmanager
    def appending(self, rows: Rows) -> Iterator[Cache]:
        """The cache for one forward that appends `rows`; the ledger follows when it succeeds.

        Whatever breaks the forward, an interrupt included, leaves the memory as it was before.

        Raises:
            RuntimeError: when a layer did not take exactly these tokens.
        """
        self.settle()
        lengths = [slab.length for slab in self.slabs]
        for slab in self.slabs:
            needed = slab.length + len(rows)
            if needed > slab.capacity:
                # Without a bound slabs grow by half, so that growing stays cheap on average.
                slab.reserve(needed if self._bounded else max(needed, slab.capacity * 3 // 2))
        guarded = self._open_checkpoints == 0  # inside a checkpoint its rollback is the guard
        if guarded:
            self.states_before.save(self.linear)
        try:
            yield self.cache
            grown = {slab.length - length for slab, length in zip(self.slabs, lengths, strict=True)}
            if grown != {len(rows)}:
                raise RuntimeError(f"the forward appended {sorted(grown)} tokens, {len(rows)} were announced")
            for ledger in self._distinct(self.ledgers):
                ledger.append(rows, self.seen)
            self.seen += len(rows)
        except BaseException:
            for slab, length in zip(self.slabs, lengths, strict=True):
                slab.truncate(length)
            for ledger, length in zip(self.ledgers, lengths, strict=True):
                ledger.truncate(length)
            if guarded:
                self.states_before.restore(self.linear)
            raise

    # Tokens go --------------------------------------------------------------------------------------

    def evict(self, keep: Keep) -> None:
        """Drop all rows but those of `keep`, in place. Recurrent states cannot forget and stay as they are.

        Raises:
            RuntimeError: inside a checkpoint, whose rollback would bring back other rows.
            ValueError: for rows that are unsorted, repeated or not there.
        """
        if self._open_checkpoints:
            raise RuntimeError("eviction inside a checkpoint; roll back first")
        self.settle()
        if len(keep.layers) > 1 and len(self._distinct(self.ledgers)) == 1:
            self.ledgers = [self.ledgers[0].clone() for _ in self.slabs]
        if len(keep.layers) == 1 and len(self._distinct(self.ledgers)) > 1:
            raise ValueError("the attention layers hold different rows; say which to keep for each")
        if len(keep.layers) == 1:
            moves = [Moves.filling_holes(keep.layers[0], len(self.ledgers[0]))] * len(self.slabs)
        else:
            pairs = zip(keep.layers, self.ledgers, strict=True)
            moves = [Moves.filling_holes(rows, len(ledger)) for rows, ledger in pairs]
        self._unsettled = moves
        self.settle()

    def settle(self) -> None:
        """Carry out an eviction that an interrupt broke off: moves may be repeated. Else nothing."""
        if self._unsettled is None:
            return
        for slab, moves in zip(self.slabs, self._unsettled, strict=True):
            slab.move(moves)
        for ledger, moves in zip(self.ledgers, self._unsettled, strict=True):
            if len(ledger) != moves.length:
                ledger.move(moves)
        self._evictions += 1
        self._unsettled = None

    def shift(self, amount: int) -> None:
        """Move everything held by `amount` positions on all axes, so that a stream's positions can stay small."""
        for slab in self.slabs:
            slab.keys.copy_(self._rotation.shift(slab.keys, amount))
        for ledger in self._distinct(self.ledgers):
            ledger["position"].add_(amount)

    # Back to an earlier moment ----------------------------------------------------------------------

    def checkpoint(self) -> Checkpoint:
        """Remember this moment. Until `rollback`, tokens may be appended but none evicted."""
        self.settle()
        states = StateCopy()
        states.save(self.linear)
        self._open_checkpoints += 1
        return Checkpoint(tuple(slab.length for slab in self.slabs), states, self.seen, self._evictions)

    def rollback(self, checkpoint: Checkpoint) -> None:
        """Return to the checkpoint: as if nothing had been appended since."""
        if checkpoint.evictions != self._evictions:
            raise RuntimeError("tokens were evicted since the checkpoint; it cannot be restored")
        for slab, ledger, length in zip(self.slabs, self.ledgers, checkpoint.lengths, strict=True):
            slab.truncate(length)
            ledger.truncate(length)
        checkpoint.states.restore(self.linear)
        self.seen = checkpoint.seen
        self._open_checkpoints -= 1

    @staticmethod
    def _distinct(ledgers: list[Ledger]) -> list[Ledger]:
        return list({id(ledger): ledger for ledger in ledgers}.values())
