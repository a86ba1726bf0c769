"""A preallocated attention layer of the cache: append in place, evict in place, truncate for nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin

from longtake.kv.moves import Moves


class SlabLayer(CacheLayerMixin):
    """Keys and values of one attention layer, in slabs of fixed capacity.

    `keys` and `values` are live views [1, kv_heads, length, dim] of the slabs: clone what you store.
    Rows need not lie in the order of time: attention reads the position from the (rotated) key, and the
    ledger knows when each row arrived. Only rows appended by the running forward lie at the end, in order.
    Keys that are to move keep their original beside them in a third slab, so that every move starts from it.

    Args:
        capacity: rows to allocate at the first update.
    """

    is_sliding = False
    is_croppable = True

    def __init__(self, capacity: int = 0) -> None:
        super().__init__()
        self.capacity = capacity
        self.length = 0
        self.keys: Tensor
        self.values: Tensor
        self._slabs: list[Tensor] = []  # keys, values and, if they are kept, original keys
        self._originals = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate both slabs in the shape, dtype and device of the first states [1, kv_heads, n, dim]."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self._slabs = [self._allocate(key_states), self._allocate(value_states)]
        if self._originals:
            self._slabs.append(self._allocate(key_states))
        self.is_initialized = True
        self._refresh()

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append states [1, kv_heads, n, dim]; return views of all rows held.

        Raises:
            ValueError: for a batch other than one.
            OverflowError: when the rows do not fit. Nothing has been written then.
        """
        if key_states.shape[0] != 1:
            raise ValueError("a stream's cache holds one sequence; run each stream by itself (batch of one)")
        end = self.length + key_states.shape[2]
        if end > self.capacity:
            raise OverflowError(
                f"slab holds {self.length} of {self.capacity} rows and cannot take "
                f"{key_states.shape[2]} more; reserve room before the forward"
            )
        if not self._slabs:
            self.lazy_initialization(key_states, value_states)
        for slab, states in zip(self._slabs, (key_states, value_states, key_states), strict=False):
            slab[:, :, self.length : end].copy_(states)
        self.truncate(end)
        return self.keys, self.values

    def reserve(self, capacity: int) -> None:
        """Make room for `capacity` rows in all, copying the rows held into larger slabs if need be."""
        if capacity <= self.capacity:
            return
        self.capacity = capacity
        larger = [self._allocate(slab) for slab in self._slabs]
        for slab, old in zip(larger, self._slabs, strict=True):
            slab[:, :, : self.length].copy_(old[:, :, : self.length])
        self._slabs = larger
        self._refresh()

    def keep_originals(self) -> None:
        """From now on hold each key also as it was computed (or as it is now, for the rows held)."""
        if not self._originals:
            self._originals = True
            if self._slabs:
                self._slabs.append(self._slabs[0].clone())

    @property
    def originals(self) -> Tensor:
        """Keys as they were computed, a live view like `keys`; `keys` itself where none are kept."""
        return self._slabs[2][:, :, : self.length] if self._originals and self._slabs else self.keys

    def move(self, moves: Moves) -> None:
        """Evict: copy the surviving tail rows into the holes and cut. Applying it twice changes nothing."""
        if self._slabs and len(moves.source):
            source = moves.source.to(self._slabs[0].device)
            target = moves.target.to(self._slabs[0].device)
            for slab in self._slabs:
                slab.index_copy_(2, target, slab.index_select(2, source))
        self.truncate(moves.length)

    def truncate(self, length: int) -> None:
        """Forget the rows from `length` on. Costs nothing; the bytes stay allocated."""
        self.length = length
        self._refresh()

    def overwrite(self, row: int, key: Tensor, value: Tensor) -> None:
        """Put another token, [1, kv_heads, dim] each, in the place of a row."""
        for slab, state in zip(self._slabs, (key, value, key), strict=False):
            slab[:, :, row].copy_(state)

    def reset(self) -> None:
        self.truncate(0)

    def crop(self, tokens_to_remove: int) -> None:
        """The library's spelling of truncate: a negative number of rows to drop from the end."""
        if tokens_to_remove > 0:
            raise ValueError("crop takes the number of rows to remove as a negative number")
        self.truncate(self.length + tokens_to_remove)

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    @property
    def bytes_held(self) -> int:
        """Bytes of the rows held: length x kv_heads x dim x 2 x element size (x 3 with original keys)."""
        return self.length * self._bytes_per_row

    @property
    def bytes_reserved(self) -> int:
        """Bytes of the slabs, filled or not."""
        return self.capacity * self._bytes_per_row

    @property
    def _bytes_per_row(self) -> int:
        return sum(slab.shape[1] * slab.shape[3] * slab.element_size() for slab in self._slabs)

    def _allocate(self, like: Tensor) -> Tensor:
        _, heads, _, dim = like.shape
        return torch.empty((1, heads, self.capacity, dim), dtype=like.dtype, device=like.device)

    def _refresh(self) -> None:
        if self._slabs:
            self.keys, self.values = (slab[:, :, : self.length] for slab in self._slabs[:2])
