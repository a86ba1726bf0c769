"""One stream's memory: slabs, recurrent states and the ledger as one object that cannot come apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.cache_utils import Cache, LinearAttentionLayer

from longtake.kv.ledger import Kind, Ledger, Rows
from longtake.kv.moves import Moves
from longtake.kv.rotary import KeyRotation
from longtake.kv.slab import SlabLayer
from longtake.kv.states import StateCopy, recurrent_states, state_bytes

FULL, LINEAR = "full_attention", "linear_attention"


@dataclass(frozen=True, slots=True)
class Keep:
    """Which rows stay.

    Attributes:
        layers: sorted row indices (int64), for all attention layers alike or one tensor per layer.
        folds: per layer the position [axes] of one summary token that takes the place of all that go (its value is
            the mean of theirs, its key the mean of theirs moved to that position), or None to let them go.
    """

    layers: tuple[Tensor, ...]
    folds: tuple[Tensor | None, ...] = ()

    @classmethod
    def shared(cls, rows: Tensor) -> Keep:
        """The same rows in every attention layer."""
        return cls((rows,))


@dataclass(frozen=True, slots=True)
class _Summary:
    """A summary token ([1, kv_heads, dim] each) and the row of an evicted token that it takes over."""

    row: int
    key: Tensor
    value: Tensor
    facts: Rows
    index: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a rollback needs: the length of each attention layer and a copy of the recurrent states."""

    lengths: tuple[int, ...]
    states: StateCopy
    seen: int
    next_index: int
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
        self._layer_types, self._axes, self._rotation = list(layer_types), axes, rotation
        self._start()

    def _start(self) -> None:
        layer_types = self._layer_types
        self.slabs = [SlabLayer() for kind in layer_types if kind == FULL]
        """The attention layers, from the lowest up."""
        self.linear = [LinearAttentionLayer() for kind in layer_types if kind == LINEAR]
        slabs, linear = iter(self.slabs), iter(self.linear)
        self.cache = Cache(layers=[next(slabs) if kind == FULL else next(linear) for kind in layer_types])
        self.ledgers: list[Ledger] = [Ledger(self._axes)] * len(self.slabs)
        self.states_before = StateCopy()
        """The recurrent states as they were before the newest chunk."""
        self.seen = 0
        """Tokens that ever came in and were not rolled back."""
        self.evictions = 0
        """How often tokens were evicted."""
        self.reindexed = 0
        """After how many evictions positions were last changed."""
        self._bounded = False
        self._originals = False
        self._next_index = 0  # the stream index of the next token; summaries take one, too
        self._unsettled: list[tuple[Moves, _Summary | None]] | None = None
        self._open_checkpoints = 0

    def release(self) -> None:
        """Let go of everything: as new."""
        self._start()

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
    def evicted(self) -> int:
        """Tokens of the stream that the fullest attention layer no longer holds; its summaries hold none."""
        fullest = max(self.ledgers, key=len)
        return self.seen - int((fullest["kind"] != int(Kind.SUMMARY)).sum())

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

    def unturned_keys(self) -> list[Tensor]:
        """Per attention layer the keys held as they were before rotation, [kv_heads, n, dim] float32."""
        return [
            self._rotation.move(slab.keys.float(), ledger["position"], torch.zeros_like(ledger["position"]))[0]
            for slab, ledger in zip(self.slabs, self.ledgers, strict=True)
        ]

    # Tokens come in ---------------------------------------------------------------------------------

    def reserve(self, tokens: Sequence[int]) -> None:
        """Make room for so many tokens in each attention layer, and from now on grow only by need."""
        self._bounded = True
        for slab, count in zip(self.slabs, tokens, strict=True):
            slab.reserve(count)

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
                ledger.append(rows, self._next_index)
            self.seen += len(rows)
            self._next_index += len(rows)
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

        Where `keep` says so the rows dropped from a layer become one summary token, the newest one there.

        Raises:
            RuntimeError: inside a checkpoint, whose rollback would bring back other rows.
            ValueError: for rows that are unsorted, repeated or not there.
        """
        if self._open_checkpoints:
            raise RuntimeError("eviction inside a checkpoint; roll back first")
        self.settle()
        shared = len(keep.layers) == 1 and not keep.folds
        if not shared and len(self._distinct(self.ledgers)) == 1:
            self.ledgers = [self.ledgers[0].clone() for _ in self.slabs]
        if shared and len(self._distinct(self.ledgers)) > 1:
            raise ValueError("the attention layers hold different rows; say which to keep for each")
        layers = keep.layers * len(self.slabs) if len(keep.layers) == 1 else keep.layers
        folds = keep.folds or (None,) * len(self.slabs)
        steps: list[tuple[Moves, _Summary | None]] = []
        for slab, ledger, rows, position in zip(self.slabs, self.ledgers, layers, folds, strict=True):
            summary = None if position is None else self._summarize(slab, ledger, rows, position)
            if summary is not None:
                rows = torch.cat((rows, torch.tensor([summary.row]))).sort().values
            steps.append(steps[-1] if shared and steps else (Moves.filling_holes(rows, len(ledger)), summary))
        self._unsettled = steps
        self.settle()

    def settle(self) -> None:
        """Carry out an eviction that an interrupt broke off: what was done may be done again. Else nothing."""
        if self._unsettled is None:
            return
        for slab, (moves, summary) in zip(self.slabs, self._unsettled, strict=True):
            if slab.length != moves.length:
                if summary is not None:
                    slab.overwrite(summary.row, summary.key, summary.value)
                slab.move(moves)
        for ledger, (moves, summary) in zip(self.ledgers, self._unsettled, strict=True):
            if len(ledger) != moves.length:
                if summary is not None:
                    ledger.replace(summary.row, summary.facts, summary.index)
                ledger.move(moves)
        if any(summary is not None for _, summary in self._unsettled):
            self._next_index += 1
        self.evictions += 1
        self._unsettled = None

    def _summarize(self, slab: SlabLayer, ledger: Ledger, keep: Tensor, position: Tensor) -> _Summary | None:
        """One token for all rows that go, or None where that would be a token for one."""
        going = torch.ones(len(ledger), dtype=torch.bool)
        going[keep] = False
        rows = torch.nonzero(going).squeeze(1)
        if len(rows) < 2:
            return None
        there = rows.to(slab.keys.device)
        moved = self._rotation.move(
            slab.originals[:, :, there].float(), ledger["home"][rows], position.expand(len(rows), -1)
        )
        none = torch.tensor([-1])
        facts = Rows(
            position=position[None],
            time=ledger["time"][rows].mean()[None],
            chunk=none,
            frame=none,
            patch=none,
            kind=torch.tensor([int(Kind.SUMMARY)]),
        )
        key, value = moved.mean(dim=2), slab.values[:, :, there].float().mean(dim=2)
        return _Summary(int(rows[0]), key, value, facts, self._next_index)

    # Tokens move ------------------------------------------------------------------------------------

    def shift(self, amount: int) -> None:
        """Move everything held by `amount` positions on all axes, so that a stream's positions can stay small."""
        for slab in self.slabs:
            slab.keys.copy_(self._rotation.shift(slab.keys, amount))
        for ledger in self._distinct(self.ledgers):
            ledger["position"].add_(amount)
            if not self._originals:
                ledger["home"].add_(amount)

    def reindex(self, layers: Sequence[Tensor]) -> None:
        """Put the rows at other positions [n, axes] (per layer, or one tensor for all), keys turned accordingly.

        From the first time on each key is also held as it was computed, half as many bytes again, since moving a
        moved key would round it twice. Doing the same again changes nothing.

        Raises:
            RuntimeError: inside a checkpoint.
        """
        if self._open_checkpoints:
            raise RuntimeError("positions are changed inside a checkpoint; roll back first")
        self.settle()
        wanted = list(layers) * len(self.slabs) if len(layers) == 1 else list(layers)
        self._originals = True
        for slab, ledger, position in zip(self.slabs, self.ledgers, wanted, strict=True):
            slab.keep_originals()
            rows = torch.nonzero((position != ledger["position"]).any(dim=1)).squeeze(1)
            there = rows.to(slab.keys.device)
            slab.keys[:, :, there] = self._rotation.move(
                slab.originals[:, :, there], ledger["home"][rows], position[rows]
            )
        for ledger, position in zip(self.ledgers, wanted, strict=True):
            ledger["position"].copy_(position)
        self.reindexed = self.evictions

    @property
    def reach(self) -> Tensor:
        """The largest position held in any layer, on each axis: int64 [axes]."""
        return torch.stack([ledger["position"].amax(dim=0) for ledger in self._distinct(self.ledgers)]).amax(dim=0)

    @property
    def span(self) -> int:
        """From the smallest position held to the largest, over all layers and axes."""
        low = min(int(ledger["position"].min()) for ledger in self._distinct(self.ledgers))
        return int(self.reach.max()) - low

    def per_layer(self, value: Callable[[Ledger], Tensor]) -> list[Tensor]:
        """A value for each attention layer; layers that share a ledger share it."""
        found = {id(ledger): value(ledger) for ledger in self._distinct(self.ledgers)}
        return [found[id(ledger)] for ledger in self.ledgers]

    # Back to an earlier moment ----------------------------------------------------------------------

    def checkpoint(self) -> Checkpoint:
        """Remember this moment. Until `rollback`, tokens may be appended but none evicted."""
        self.settle()
        states = StateCopy()
        states.save(self.linear)
        self._open_checkpoints += 1
        return Checkpoint(
            tuple(slab.length for slab in self.slabs), states, self.seen, self._next_index, self.evictions
        )

    def rollback(self, checkpoint: Checkpoint) -> None:
        """Return to the checkpoint: as if nothing had been appended since."""
        if checkpoint.evictions != self.evictions:
            raise RuntimeError("tokens were evicted since the checkpoint; it cannot be restored")
        for slab, ledger, length in zip(self.slabs, self.ledgers, checkpoint.lengths, strict=True):
            slab.truncate(length)
            ledger.truncate(length)
        checkpoint.states.restore(self.linear)
        self.seen, self._next_index = checkpoint.seen, checkpoint.next_index
        self._open_checkpoints -= 1

    @contextmanager
    def untraced(self) -> Iterator[None]:
        """What is appended inside is rolled back, whatever happens there."""
        checkpoint = self.checkpoint()
        try:
            yield
        finally:
            self.rollback(checkpoint)

    @staticmethod
    def _distinct(ledgers: list[Ledger]) -> list[Ledger]:
        return list({id(ledger): ledger for ledger in ledgers}.values())
