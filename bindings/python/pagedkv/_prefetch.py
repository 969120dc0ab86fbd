# SPDX-License-Identifier: Apache-2.0
"""Prefetch sessions: what is in tiers is loaded before it is needed (prefetch.h)."""

from __future__ import annotations

from array import array
from typing import Any, Iterator, List, Optional, Sequence, Tuple, Union

from . import _core
from ._errors import PagedKVError, Status, error_of, fill
from ._handles import Owned
from ._pool import Match, Pool, Prompts, view_of
from ._table import Table
from ._tier import Op, Queue, begin
from ._values import FOREVER, ArrayLike, Namespace, Sync, choice, nanoseconds, prompt


class LayerView:
    """A layer of a step, or a range of it; valid until its release.

    slices: int32 ids of [table after table]; -1: dropped by a window, or not to be had. indptr: table t has
    slices[indptr[t]:indptr[t + 1]]. first_block: the block of each table's first entry. k, v: the memory that ids index:
    k[slices[i]] is [page_tokens, heads, elements].

    Acquired with a CUDA stream, slices, indptr and first_block are None: they are to be read when the stream has come so far, by
    kernels in it, at slices_address (int32, num_slices of them), indptr_address (int32, num_tables + 1) and first_block_address
    (uint64, num_tables). layout says where rows are; there are no k and v.
    """

    slices: Any
    indptr: Any
    first_block: Any

    def __init__(self, session: "PrefetchSession", native: Any, sync: Optional[Sync]) -> None:
        self._session = session
        self._native = native
        self.index: int = native.index
        self.group: int = native.group
        self.layer: int = native.layer
        self.num_tables: int = native.num_tables
        self.last: bool = native.last != 0
        self.waited_ns: int = native.waited_ns
        self.num_slices: int = native.num_slices
        self.slices_address: int = native.slices_address
        self.indptr_address: int = native.indptr_address
        self.first_block_address: int = native.first_block_address
        if sync is not None and sync.kind == _core.SYNC_CUDA_STREAM:
            self.slices = self.indptr = self.first_block = None
        else:
            self.slices, self.indptr = session._lists(native)
            self.first_block = _numbers(native.first_block_address, native.num_tables, session)
        self._arrays: Optional[Tuple[Any, Any]] = None

    @property
    def layout(self) -> Any:
        """Addresses and strides, with slice ids in place of pages."""
        return self._native.get_layout()

    def _views(self) -> Tuple[Any, Any]:
        if self.slices is None:
            raise error_of(Status.STATE, "k and v: which slices there are is known in the stream; layout has the addresses")
        if self._arrays is None:
            entries = max(self.slices, default=-1) + 1
            self._arrays = view_of(self._session, self._native.get_layout(), entries, False)
        return self._arrays

    @property
    def k(self) -> Any:
        return self._views()[0]

    @property
    def v(self) -> Any:
        return self._views()[1]


def _numbers(address: int, count: int, session: "PrefetchSession", kind: str = "Q") -> "array[int]":
    """A copy of uint64 or int32 numbers of the session's own."""
    out = array(kind)
    if count:
        size = out.itemsize * count
        out.frombytes(memoryview(_core.memory(session, address, _core.DTYPE_OPAQUE, (size,), (1,), False, True)))
    return out


class Step:
    """A step over layers, from PrefetchSession.step(): layer(i) gives the ranges of a layer, one after the other.
    `statuses` has one for each table: of the beginning and, after the `with`, of the end. What was computed for a table with
    another status than 0 has to be discarded."""

    def __init__(self, session: "PrefetchSession", statuses: "array[int]") -> None:
        self._session = session
        self.statuses = statuses

    def layer(self, index: int, timeout: Optional[float] = None, sync: Optional[Sync] = None) -> Iterator[LayerView]:
        while True:
            view = self._session.layer_acquire(index, timeout, sync)
            try:
                yield view
            finally:
                self._session.layer_release(index, sync)
            if view.last:
                return

    def __enter__(self) -> "Step":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.statuses = self._session.step_end()


class PrefetchSession(Owned):
    """A prefetch session over a pool with tiers. From one thread at a time, together with the tables it is given.

    policy: "sequential", "full" or "hinted", of submit(). layers: the order of a step's layers, as (group, layer). staging_pages:
    pages of each group that it takes as staging memory. off: nothing is loaded ahead, to compare. whole_layers: every layer in one
    range, or the step is refused. Other keywords are the fields of pkv_prefetch_options.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        policy: Union[str, int] = "sequential",
        layers: Optional[Sequence[Tuple[int, int]]] = None,
        staging_pages: Optional[Sequence[int]] = None,
        off: bool = False,
        whole_layers: bool = False,
        num_buffers: int = 4,
        max_tables: int = 256,
        max_slices: Optional[int] = None,
        load_timeout: Optional[float] = None,
        flags: int = 0,
        **fields: Any,
    ) -> None:
        options = _core.prefetch_options()
        options.policy = choice("predict", policy)
        options.flags = flags | (_core.PREFETCH_OFF if off else 0) | (_core.PREFETCH_WHOLE_LAYERS if whole_layers else 0)
        options.num_buffers = num_buffers
        options.max_tables = max_tables
        for group, layer in layers or ():
            options.add_layer(group, layer)
        if staging_pages is not None:
            options.set_staging_pages(staging_pages, len(staging_pages))
        if load_timeout is not None:
            options.load_timeout_ns = max(1, nanoseconds(load_timeout))
        fill(options, fields, "PrefetchSession")
        if max_slices is None:
            pages = [int(pool.stats(group=g).num_pages) for g in range(pool.num_groups)]
            max_slices = max(65536, 4 * max(pages, default=0))
        options.max_slices = max_slices
        # Lists of views are memory of this object's, so that they outlive the session; on a device the session's, which kernels read.
        self._max_slices, self._max_indptr = max_slices, max_tables + 1
        self._slices = self._indptr = memoryview(b"").cast("i")
        self._copies = pool._on_device
        if not self._copies and 0 < num_buffers <= _core.PREFETCH_MAX_BUFFERS and 0 < max_tables <= 65536 and max_slices <= 1 << 32:
            self._slices = memoryview(bytearray(4 * num_buffers * max_slices)).cast("i")
            self._indptr = memoryview(bytearray(4 * num_buffers * self._max_indptr)).cast("i")
            pins = [_core.Pin(self._slices, True, "slices"), _core.Pin(self._indptr, True, "slice_indptr")]
            options.slices_address, options.slice_indptr_address = (pin.address for pin in pins)
            self._keep(pins)
        _core.prefetch_open(pool, options, self)
        self._adopt(pool)

    def _lists(self, native: Any) -> Tuple[memoryview, memoryview]:
        if self._copies:
            slices = _numbers(native.slices_address, native.num_slices, self, "i")
            indptr = _numbers(native.indptr_address, native.num_tables + 1, self, "i")
            return memoryview(slices).toreadonly(), memoryview(indptr).toreadonly()
        at, indptr_at = native.buffer * self._max_slices, native.buffer * self._max_indptr
        return (
            self._slices[at : at + native.num_slices].toreadonly(),
            self._indptr[indptr_at : indptr_at + native.num_tables + 1].toreadonly(),
        )

    def close(self, sync: Optional[Sync] = None) -> None:
        """Closes the session, in any state."""
        if not self.closed:
            _core.prefetch_close(self, sync)

    def cancel(self) -> None:
        """Drops everything that was loaded ahead and is not in use; the session goes on."""
        _core.prefetch_cancel(self)

    # ---- prompts ----

    def prompt(
        self,
        tokens: ArrayLike,
        *,
        namespace: Optional[Namespace] = None,
        media: Prompts = None,
        queue: Optional[Queue] = None,
        user: int = 0,
        timeout: Optional[float] = None,
    ) -> Op:
        """Finds the longest prefix of a prompt over all tiers and begins to load it: when the operation has ended, admit the request.
        `match` of the operation says what was found."""
        given = prompt(tokens, namespace, media)
        op: Op = begin(
            self, queue, user, timeout, lambda options, op: _core.prefetch_prompt(self, given, options, op)
        )
        op.match = Match._of(op.extra)  # type: ignore[attr-defined]
        return op

    # ---- blocks ----

    def hint(self, table: Table, scores: ArrayLike) -> None:
        """Keeps scores of a sequence's blocks for the policy "hinted"; an empty list forgets them."""
        _core.prefetch_hint(self, table, len(scores), scores)

    def submit(self, table: Table, position: int) -> int:
        """Predicts the blocks that a sequence needs at a position, and begins to load the absent ones: how many there are."""
        return int(_core.prefetch_submit(self, table, position))

    def require(
        self, table: Table, first_block: int = 0, num_blocks: int = FOREVER, timeout: Optional[float] = None
    ) -> Any:
        """Puts blocks into the block table: resident, on_time, late, on_demand ones, waited_ns."""
        return _core.prefetch_require(self, table, first_block, num_blocks, nanoseconds(timeout))

    # ---- steps ----

    def step(self, tables: Sequence[Table], num_tokens: Optional[ArrayLike] = None) -> Step:
        """Begins a step; use it in a `with`.

        with session.step(tables) as step:
            for layer in range(num_layers):
                for view in step.layer(layer):
                    attend(view)  # in place: view.k, view.slices ...; goes on from the ranges before
        """
        return Step(self, self.step_begin(tables, num_tokens))

    def step_begin(self, tables: Sequence[Table], num_tokens: Optional[ArrayLike] = None) -> "array[int]":
        """Begins a step over tables, attending to num_tokens of each (None: the committed ones). A status for each."""
        if num_tokens is not None and len(num_tokens) != len(tables):
            raise ValueError(f"{len(num_tokens)} entries in num_tokens, {len(tables)} tables")
        statuses = array("i", [1]) * len(tables)
        _core.prefetch_step_begin(self, len(tables), tables, num_tokens, statuses)
        return statuses

    def layer_acquire(self, index: int, timeout: Optional[float] = None, sync: Optional[Sync] = None) -> LayerView:
        """The next range of a layer, once its bytes are there. On a device, with sync=cuda_stream(), the stream waits for them and
        the call does not; release it in the same stream."""
        return LayerView(self, _core.prefetch_layer_acquire(self, index, nanoseconds(timeout), sync), sync)

    def layer_release(self, index: int, sync: Optional[Sync] = None) -> None:
        """Ends the use of the oldest acquired range, which has to be of this layer."""
        _core.prefetch_layer_release(self, index, sync)

    def step_end(self) -> "array[int]":
        """Ends a step: a status for each table."""
        statuses = array("i", [1]) * self._rows
        try:
            _core.prefetch_step_end(self, statuses)
        except PagedKVError:
            if len(statuses) == 0 or statuses[0] == 1:
                raise
        return statuses

    def stats(self) -> Any:
        """Counters, gauges and times (pkv_prefetch_stats). From any thread."""
        return _core.prefetch_get_stats(self)


def predict(
    *,
    page_tokens: int,
    num_tokens: int,
    position: int,
    policy: Union[str, int] = "sequential",
    sink_tokens: int = 0,
    recent_tokens: int = 0,
    lookahead: int = 0,
    scores: Sequence[float] = (),
) -> List[int]:
    """Which blocks of a sequence are needed next, in the order in which they should be loaded."""
    native = _core.predictor()
    native.policy = choice("predict", policy)
    native.page_tokens = page_tokens
    native.sink_tokens = sink_tokens
    native.recent_tokens = recent_tokens
    native.lookahead = lookahead
    count = _core.prefetch_predict(native, num_tokens, position, len(scores), scores, None, 0)
    blocks = array("Q", bytes(8 * count))
    if count:
        _core.prefetch_predict(native, num_tokens, position, len(scores), scores, blocks, count)
    return list(blocks)


__all__ = ["LayerView", "PrefetchSession", "Step", "predict", "Status"]
