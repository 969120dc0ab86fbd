# SPDX-License-Identifier: Apache-2.0
"""The decode step: the tables of one step together, and the arrays that attention kernels read (batch.h)."""

from __future__ import annotations

from array import array
from typing import Any, List, Optional, Sequence

from . import _core
from ._errors import InvalidError, PagedKVError, Status
from ._handles import Owned
from ._pool import Pool
from ._table import Table
from ._values import ArrayLike, Sync


class BatchArrays:
    """The arrays of one layer group, which the batch writes: the caller's (int32 and, for slot_mapping, int64; contiguous,
    writable, held as long as the batch), or, where none is given but max_blocks or max_indices is, arrays of its own.

    block_table: [max_tables, max_blocks]. block_indptr, block_indices: the same as CSR. slot_mapping: [max_tokens].
    fill: stands where a block has no page, and behind rows.
    """

    def __init__(
        self,
        *,
        group: int = 0,
        fill: int = 0,
        max_blocks: int = 0,
        max_indices: int = 0,
        block_table: Optional[ArrayLike] = None,
        block_indptr: Optional[ArrayLike] = None,
        block_indices: Optional[ArrayLike] = None,
        slot_mapping: Optional[ArrayLike] = None,
    ) -> None:
        self.group = group
        self.fill = fill
        self.max_blocks = max_blocks
        self.max_indices = max_indices
        self.block_table = block_table
        self.block_indptr = block_indptr
        self.block_indices = block_indices
        self.slot_mapping = slot_mapping


def _own(count: int, itemsize: int) -> Any:
    return memoryview(array("i" if itemsize == 4 else "q", bytes(itemsize * count)))


def _pinned(pins: List[Any], value: ArrayLike, name: str, itemsize: int, entries: int) -> int:
    pin = _core.Pin(value, True, name)
    if pin.kind != "i" or pin.itemsize != itemsize or pin.device[0] not in (1, 3):
        raise InvalidError(Status.INVALID, f"{name}: an array of int{8 * itemsize} in host memory is wanted")
    expected = itemsize
    count = 1
    for size, stride in zip(reversed(pin.shape), reversed(pin.strides)):
        if size > 1 and stride != expected:
            raise InvalidError(Status.INVALID, f"{name}: written in place, so it has to be contiguous")
        expected *= size
        count *= size
    if count < entries:
        raise InvalidError(Status.INVALID, f"{name}: {count} entries, {entries} are needed")
    pins.append(pin)
    return int(pin.address)


class Batch(Owned):
    """The tables of one step. From one thread at a time, together with its tables.

    max_tables, max_tokens: of a step, new tokens over all tables. max_blocks: of a row of block_table; then there is a block table
    and a slot mapping for each layer group. arrays: which arrays there are, in more detail. lengths and last_page_len are
    [max_tables], int32.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        max_tables: int,
        max_tokens: int,
        max_blocks: int = 0,
        fill: int = 0,
        arrays: Optional[Sequence[BatchArrays]] = None,
        lengths: Optional[ArrayLike] = None,
        last_page_len: Optional[ArrayLike] = None,
    ) -> None:
        if arrays is None:
            arrays = [BatchArrays(group=g, fill=fill, max_blocks=max_blocks) for g in range(pool.num_groups)]
        options = _core.batch_options()
        options.max_tables = max_tables
        options.max_tokens = max_tokens
        if max_tables > 1 << 20 or max_tokens > 1 << 40:
            max_tables, max_tokens = min(max_tables, 1), min(max_tokens, 1)  # refused by the call
        pins: List[Any] = []
        for one in arrays:
            native = _core.batch_arrays()
            native.group = one.group
            native.fill = one.fill
            native.max_blocks = one.max_blocks
            native.max_indices = one.max_indices
            if one.block_table is None and one.max_blocks:
                one.block_table = _own(max_tables * one.max_blocks, 4)
            if one.block_indices is None and one.max_indices:
                one.block_indices = _own(one.max_indices, 4)
            if one.block_indptr is None and one.max_indices:
                one.block_indptr = _own(max_tables + 1, 4)
            if one.slot_mapping is None:
                one.slot_mapping = _own(max_tokens, 8)
            for name, itemsize, entries in (
                ("block_table", 4, max_tables * one.max_blocks),
                ("block_indptr", 4, max_tables + 1),
                ("block_indices", 4, one.max_indices),
                ("slot_mapping", 8, max_tokens),
            ):
                value = getattr(one, name)
                if value is not None:
                    setattr(native, name + "_address", _pinned(pins, value, name, itemsize, entries))
            options.add_arrays(native)
        self.lengths = _own(max_tables, 4) if lengths is None else lengths
        self.last_page_len = _own(max_tables, 4) if last_page_len is None else last_page_len
        options.lengths_address = _pinned(pins, self.lengths, "lengths", 4, max_tables)
        options.last_page_len_address = _pinned(pins, self.last_page_len, "last_page_len", 4, max_tables)
        self.arrays = list(arrays)
        self._keep(pins)
        _core.batch_create(pool, options, self)
        self._adopt(pool)

    def close(self) -> None:
        """Ends the batch; its tables live on, its arrays are not touched any more."""
        if not self.closed:
            _core.batch_destroy(self)

    @property
    def block_table(self) -> Any:
        """That of the first of `arrays`."""
        return self.arrays[0].block_table

    @property
    def slot_mapping(self) -> Any:
        """That of the first of `arrays`."""
        return self.arrays[0].slot_mapping

    def reserve(self, tables: Sequence[Table], num_new: ArrayLike) -> "array[int]":
        """Begins a step: row r is tables[r], with room for num_new[r] tokens after its committed ones. A status for each row: 0, or why
        it has no part in this step. What concerns the whole batch is an exception."""
        if len(num_new) != len(tables):
            raise ValueError(f"{len(num_new)} entries in num_new, {len(tables)} tables")
        statuses = array("i", [1]) * len(tables)
        return self._rows_of(statuses, _core.batch_reserve, len(tables), tables, num_new, statuses)

    def set_tokens(self, tokens: ArrayLike) -> "array[int]":
        """Names this step's tokens, table after table. A status for each row."""
        statuses = array("i", [1]) * self._rows
        return self._rows_of(statuses, _core.batch_set_tokens, len(tokens), tokens, statuses)

    def _rows_of(self, statuses: "array[int]", function: Any, *args: Any) -> "array[int]":
        try:
            function(self, *args)
        except PagedKVError:
            if len(statuses) == 0 or statuses[0] == 1:
                raise
        return statuses

    def write(
        self,
        layer: int,
        k: Optional[ArrayLike],
        v: Optional[ArrayLike] = None,
        *,
        group: int = 0,
        sync: Optional[Sync] = None,
    ) -> None:
        """Scatters one layer's rows of this step: row i goes to the i-th new token."""
        _core.batch_write(self, group, layer, k, v, sync)

    def gather(
        self,
        layer: int,
        k: Optional[ArrayLike] = None,
        v: Optional[ArrayLike] = None,
        *,
        first: Optional[ArrayLike] = None,
        padded: int = 0,
        group: int = 0,
        sync: Optional[Sync] = None,
    ) -> None:
        """Gathers one layer of every row: tokens [first[r], length of r), one after the other, or each row at r * padded."""
        _core.batch_gather(self, group, layer, first, padded, k, v, sync)

    def commit(self, num_accepted: Optional[ArrayLike] = None, sync: Optional[Sync] = None) -> "array[int]":
        """Ends the step: the KV of the new tokens is complete. num_accepted: of each row's, so many are kept. A status for each
        row."""
        statuses = array("i", [1]) * self._rows
        return self._rows_of(statuses, _core.batch_commit, num_accepted, statuses, sync)
