# SPDX-License-Identifier: Apache-2.0
"""Pools: pages of one geometry, the prefix index over them, eviction (pool.h)."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _core
from ._errors import InvalidError, PagedKVError, Status, fill
from ._handles import Owned
from ._tier import Attachment, Op, Queue, Tier, begin
from ._values import (
    FOREVER,
    ArrayLike,
    Group,
    Media,
    Namespace,
    Retention,
    Sync,
    choice,
    device_of,
    nanoseconds,
    prompt,
)

if TYPE_CHECKING:
    from ._batch import Batch
    from ._prefetch import PrefetchSession
    from ._table import Table

Prompts = Optional[Sequence[Union[Media, Tuple[int, int, bytes]]]]


class Match(NamedTuple):
    """How much of a prompt was found: tokens from the first, the blocks that hold them, those of the tokens that are in pages, and
    those in each tier."""

    tokens: int
    blocks: int
    resident_tokens: int
    tier_tokens: Tuple[int, ...]

    @classmethod
    def _of(cls, native: Any) -> "Match":
        tiers = tuple(native.get_tier_tokens(i) for i in range(_core.MAX_TIERS))
        return cls(native.tokens, native.blocks, native.resident_tokens, tiers)


class Event(NamedTuple):
    """A change of the prefix index: kind is "stored", "removed" or "cleared"; keys are 128-bit numbers."""

    sequence: int
    kind: str
    group: int
    key: int
    parent: int
    block: int


_KINDS = {_core.EVENT_STORED: "stored", _core.EVENT_REMOVED: "removed", _core.EVENT_CLEARED: "cleared"}


def _unpack(kind: str, memory: bytearray, at: int) -> int:
    return int(struct.unpack_from("=" + kind, memory, at)[0])


def _key(memory: bytearray, at: int) -> int:
    return _unpack("Q", memory, at) | _unpack("Q", memory, at + 8) << 64


class Pool(Owned):
    """Pages of one geometry, the prefix index over them, and eviction. May be used from any thread.

    groups: the layer groups; or the fields of a single one as keywords (Group). tiers: what is below it, the fastest first: a Tier,
    or an Attachment that says more. device: "host", or "cuda", "cuda:1" ...: where pages lie; in_place: cuda_stream() of the
    kernels that use pages in place (device.h). Other keywords are the fields of pkv_pool_options (page_tokens, seed ...).

        pool = Pool(page_tokens=16, num_pages=1024, num_layers=32, num_kv_heads=8, k_head_dim=128, v_head_dim=128)
    """

    def __init__(
        self,
        groups: Optional[Sequence[Group]] = None,
        *,
        page_tokens: int = 0,
        tiers: Sequence[Union[Tier, Attachment]] = (),
        seed: Optional[int] = None,
        copy_threads: Optional[int] = None,
        event_capacity: Optional[int] = None,
        huge_pages: Union[str, int] = "auto",
        keep_unstored: bool = False,
        clean_pages: Optional[int] = None,
        staging_bytes: Optional[int] = None,
        debug: Optional[int] = None,
        device: Union[str, int] = "host",
        in_place: Optional[Sync] = None,
        **fields: Any,
    ) -> None:
        options = _core.pool_options()
        own = {name: fields.pop(name) for name in list(fields) if hasattr(options, name)}
        if groups is None:
            groups = [Group(**fields)]
        elif fields:
            raise TypeError(f"Pool: with groups=, there is no option {next(iter(fields))!r}")
        if page_tokens == 0:
            page_tokens = max((getattr(group, "_tokens", 0) for group in groups), default=0)
        options.page_tokens = page_tokens
        options.huge_pages = choice("huge_pages", huge_pages)
        options.device, options.device_index = kind, index = device_of(device)
        self._on_device = kind != _core.DEVICE_HOST
        if in_place is not None:
            options.set_in_place(in_place)
        if keep_unstored:
            options.flags = _core.POOL_KEEP_UNSTORED
        given = dict(
            seed=seed,
            copy_threads=copy_threads,
            event_capacity=event_capacity,
            clean_pages=clean_pages,
            staging_bytes=staging_bytes,
            debug=debug,
            **own,
        )
        fill(options, given, "Pool")
        for group in groups:
            options.add_group(group._native)
        attachments = [tier if isinstance(tier, Attachment) else Attachment(tier) for tier in tiers]
        for attachment in attachments:
            options.add_tier(attachment._to_native())
        pins = [pin for group in groups for pin in group._pins]
        on_dlpack = (1, 0) if kind == _core.DEVICE_HOST else (2, index)
        for pin in pins:
            if pin.device != on_dlpack and (pin.device[0], kind) != (3, _core.DEVICE_HOST):
                where = f"on device {pin.device[0]}:{pin.device[1]}, the pool on {on_dlpack[0]}:{on_dlpack[1]}"
                raise InvalidError(Status.INVALID, f"an array under its pages is {where} (1 is the host, 2 is CUDA)")
        _core.pool_create(options, self)
        self._measure(pins or None, *on_dlpack)
        self._keep(attachments)  # a node's tier needs its node

    def close(self) -> None:
        """Closes the pool. Its tables live on, but raise ClosedError from now on, and the memory goes with the last of them.
        BusyError over arrays of the caller's, while something is at work on them: see quiesce()."""
        if not self.closed:
            _core.pool_destroy(self)

    # ---- what is made from it ----

    def table(self) -> "Table":
        """An empty sequence."""
        from ._table import Table

        return Table(self)

    def batch(self, **options: Any) -> "Batch":
        """The tables of a decode step (Batch)."""
        from ._batch import Batch

        return Batch(self, **options)

    def session(self, **options: Any) -> "PrefetchSession":
        """A prefetch session (PrefetchSession); the pool has to have tiers."""
        from ._prefetch import PrefetchSession

        return PrefetchSession(self, **options)

    # ---- pages ----

    @property
    def page_tokens(self) -> int:
        return self._page_tokens

    @property
    def num_groups(self) -> int:
        return len(self._groups())

    def alloc(self, num_pages: int, *, group: int = 0) -> "array[int]":
        """Takes pages from a group, all or none: their ids, each with a count of one that is the caller's to release."""
        pages = array("i", bytes(4 * num_pages))
        _core.pool_alloc(self, group, num_pages, pages)
        return pages

    def retain(self, pages: ArrayLike, *, group: int = 0) -> None:
        """Adds one to the count of each of the pages."""
        _core.pool_retain(self, group, len(pages), pages)

    def release(self, pages: ArrayLike, *, group: int = 0, sync: Optional[Sync] = None) -> None:
        """Gives back one count of each of the pages: all or none."""
        _core.pool_release(self, group, len(pages), pages, None, sync)

    def release_each(self, pages: ArrayLike, *, group: int = 0, sync: Optional[Sync] = None) -> List[Status]:
        """Gives back one count of each of the pages that can be: a status for each."""
        return list(map(Status, self._release_each(pages, group, sync)))

    def _release_each(self, pages: ArrayLike, group: int, sync: Optional[Sync]) -> "array[int]":
        statuses = array("i", [1]) * len(pages)
        try:
            _core.pool_release(self, group, len(pages), pages, statuses, sync)
        except PagedKVError:
            if len(statuses) == 0 or statuses[0] == 1:
                raise
        return statuses

    def page_info(self, page: int, *, group: int = 0) -> Any:
        """count, state (0 free, 1 held, 2 cached), published, block, priority, pinned of a page."""
        return _core.pool_page_info(self, group, page)

    def evict(self, num_pages: int, *, group: int = 0) -> int:
        """Frees up to so many cached pages: how many it was."""
        return int(_core.pool_evict(self, group, num_pages))

    def aux(self, page: int, *, group: int = 0, size: int) -> memoryview:
        """The first `size` of the aux_bytes of a page, in place."""
        address = _core.pool_aux(self, group, page)
        return memoryview(_core.memory(self, address, _core.DTYPE_OPAQUE, (size,), (1,), True, True))

    # ---- prefixes ----

    def lookup(
        self,
        tokens: ArrayLike,
        *,
        namespace: Optional[Namespace] = None,
        media: Prompts = None,
        max_match: int = 0,
        capacity: Optional[int] = None,
    ) -> Tuple[Match, List["array[int]"]]:
        """The longest cached prefix in whole blocks, and its pages in each group, with a count on each for the caller to release.
        max_match: at most so many tokens; 0 = all but the last one, MATCH_ALL = no bound."""
        if capacity is None:
            capacity = len(tokens) // max(1, self._page_tokens)
        groups = self.num_groups
        pages = array("i", bytes(4 * capacity * groups))
        native = _core.pool_lookup(self, prompt(tokens, namespace, media), max_match, pages, capacity)
        match = Match._of(native)
        return match, [pages[g * capacity : g * capacity + match.blocks] for g in range(groups)]

    def probe(
        self, tokens: ArrayLike, *, namespace: Optional[Namespace] = None, media: Prompts = None, max_match: int = 0
    ) -> Match:
        """As lookup(), but takes no page and changes nothing."""
        return Match._of(_core.pool_probe(self, prompt(tokens, namespace, media), max_match))

    def publish(
        self,
        tokens: ArrayLike,
        pages: ArrayLike,
        *,
        first_block: int = 0,
        group: int = 0,
        namespace: Optional[Namespace] = None,
        media: Prompts = None,
    ) -> "array[int]":
        """Makes pages that the caller holds findable as blocks of a prompt: the page under which each is published now."""
        owner = array("i", bytes(4 * len(pages)))
        given = prompt(tokens, namespace, media)
        _core.pool_publish(self, group, given, first_block, len(pages), pages, owner)
        return owner

    def set_retention(
        self,
        tokens: ArrayLike,
        retention: Retention,
        *,
        first_token: int = 0,
        num_tokens: int = FOREVER,
        namespace: Optional[Namespace] = None,
        media: Prompts = None,
    ) -> int:
        """Sets the retention of published blocks that hold tokens of a range: how many there were."""
        given = prompt(tokens, namespace, media)
        return int(_core.pool_set_retention(self, given, first_token, num_tokens, retention._to_native()))

    def set_namespace_retention(self, namespace: Optional[Namespace], retention: Optional[Retention]) -> None:
        """Sets the retention that blocks of a namespace get from now on; None = the default."""
        native = None if retention is None else retention._to_native()
        _core.pool_set_namespace_retention(self, None if namespace is None else namespace._native, native)

    def clear(self, namespace: Optional[Namespace] = None) -> Any:
        """Forgets all prefixes of a namespace, in the pool and its tiers: freed and held pages."""
        return _core.pool_clear(self, None if namespace is None else namespace._native)

    def clear_all(self) -> Any:
        """Forgets all prefixes of all namespaces."""
        return _core.pool_clear_all(self)

    def keys(self, tokens: ArrayLike, *, namespace: Optional[Namespace] = None, media: Prompts = None) -> List[int]:
        """Keys of the prompt's whole blocks, as events have them: 128-bit numbers."""
        given = prompt(tokens, namespace, media)
        count = _core.pool_keys(self, given, None, 0)
        memory = bytearray(count * _core.KEY_BYTES)
        _core.pool_keys(self, given, memory, count)
        return [_key(memory, i * _core.KEY_BYTES) for i in range(count)]

    def events(self, after: int = 0, capacity: int = 1024) -> Tuple[List[Event], int]:
        """What happened to the prefix index after event number `after`, and how many events came and went before it was asked."""
        memory = bytearray(capacity * _core.EVENT_BYTES)
        count, missed = _core.pool_events(self, after, memory, capacity)
        events = []
        for at in range(0, count * _core.EVENT_BYTES, _core.EVENT_BYTES):
            events.append(
                Event(
                    _unpack("Q", memory, at + _core.EVENT_AT_SEQUENCE),
                    _KINDS[_unpack("i", memory, at + _core.EVENT_AT_KIND)],
                    _unpack("I", memory, at + _core.EVENT_AT_GROUP),
                    _key(memory, at + _core.EVENT_AT_KEY),
                    _key(memory, at + _core.EVENT_AT_PARENT),
                    _unpack("Q", memory, at + _core.EVENT_AT_BLOCK),
                )
            )
        return events, missed

    # ---- bytes ----

    def write(
        self,
        layer: int,
        slots: ArrayLike,
        k: Optional[ArrayLike],
        v: Optional[ArrayLike] = None,
        *,
        group: int = 0,
        sync: Optional[Sync] = None,
    ) -> None:
        """Scatters rows of one layer to slots (page * page_tokens + offset; below 0: skipped). Rows are
        [slots, heads, elements], of the group's type or one that converts to it; strides are honoured."""
        _core.pool_write(self, group, layer, len(slots), slots, k, v, sync)

    def gather(
        self,
        layer: int,
        pages: ArrayLike,
        k: Optional[ArrayLike] = None,
        v: Optional[ArrayLike] = None,
        *,
        first_token: int = 0,
        num_tokens: int = FOREVER,
        group: int = 0,
        sync: Optional[Sync] = None,
    ) -> None:
        """Gathers rows of one layer through a block table into k and v, in place; num_tokens: as many as the arrays have."""
        _core.pool_gather(self, group, layer, len(pages), pages, first_token, num_tokens, k, v, sync)

    def copy_pages(self, src: ArrayLike, dst: ArrayLike, *, group: int = 0, sync: Optional[Sync] = None) -> None:
        """Copies whole pages, all layers, from src[i] to dst[i]."""
        if len(src) != len(dst):
            raise ValueError(f"{len(src)} sources, {len(dst)} destinations")
        _core.pool_copy_pages(self, group, len(src), src, dst, sync)

    def layout(self, layer: int = 0, *, group: int = 0) -> Any:
        """Addresses and strides of one layer, for kernels that read pages in place."""
        return _core.pool_layout(self, group, layer)

    def layer_arrays(self, layer: int = 0, *, group: int = 0) -> Tuple[_core.View, Optional[_core.View]]:
        """K and V of one layer as arrays [pages, page_tokens, heads, elements], in place: numpy.asarray(k), torch.from_dlpack(k).
        The memory stays as long as a view of it does. Elements of bf16 and fp8 are their bits in the buffer protocol."""
        layout = _core.pool_layout(self, group, layer)
        num_pages = int(_core.pool_get_stats(self, group).num_pages)
        return view_of(self, layout, num_pages, True)

    # ---- tiers ----

    def image_keys(
        self, tokens: ArrayLike, *, group: int = 0, namespace: Optional[Namespace] = None, media: Prompts = None
    ) -> List[bytes]:
        """Keys of the images of the prompt's whole blocks, for store() and load()."""
        given = prompt(tokens, namespace, media)
        count = _core.pool_image_keys(self, group, given, None, 0)
        memory = bytearray(count * _core.TIER_KEY_BYTES)
        _core.pool_image_keys(self, group, given, memory, count)
        return [bytes(memory[i : i + _core.TIER_KEY_BYTES]) for i in range(0, len(memory), _core.TIER_KEY_BYTES)]

    def store(
        self,
        keys: Sequence[bytes],
        pages: ArrayLike,
        *,
        group: int = 0,
        sync: Optional[Sync] = None,
        queue: Optional[Queue] = None,
        user: int = 0,
        timeout: Optional[float] = None,
    ) -> Op:
        """Begins to store images of pages that the caller holds in all tiers that take stores; their bytes must not change
        meanwhile."""
        return self._move(_core.pool_store, keys, pages, group, sync, queue, user, timeout)

    def load(
        self,
        keys: Sequence[bytes],
        pages: ArrayLike,
        *,
        group: int = 0,
        sync: Optional[Sync] = None,
        queue: Optional[Queue] = None,
        user: int = 0,
        timeout: Optional[float] = None,
    ) -> Op:
        """Begins to load images into pages that the caller holds, and nobody else uses until the operation has ended."""
        return self._move(_core.pool_load, keys, pages, group, sync, queue, user, timeout)

    def _move(
        self,
        function: Any,
        keys: Sequence[bytes],
        pages: ArrayLike,
        group: int,
        sync: Optional[Sync],
        queue: Optional[Queue],
        user: int,
        timeout: Optional[float],
    ) -> Op:
        packed = b"".join(keys)
        if any(len(key) != _core.TIER_KEY_BYTES for key in keys) or len(keys) < len(pages):
            raise ValueError(f"{len(keys)} keys of {_core.TIER_KEY_BYTES} bytes each are wanted, as many as pages")
        op: Op = begin(
            self, queue, user, timeout, lambda options, op: function(self, group, len(pages), packed, pages, sync, options, op)
        )
        return op

    def flush(self, timeout: Optional[float] = None) -> None:
        """Waits until what tiers are to have by their policies has been stored."""
        _core.pool_flush(self, nanoseconds(timeout))

    def order(self, sync: Optional[Sync] = None) -> None:
        """On a device: orders a stream (cuda_stream()) after the work that pages which calls have handed out may still be in; None
        waits for it."""
        _core.pool_order(self, sync)

    def quiesce(self, timeout: Optional[float] = None) -> None:
        """Waits until no call is at work on memory of the caller's."""
        _core.pool_quiesce(self, nanoseconds(timeout))

    def stats(self, *, group: int = 0) -> Any:
        """Counters and gauges (pkv_pool_stats); those of pages are of the group. as_dict() makes a dict of it."""
        return _core.pool_get_stats(self, group)


def view_of(handle: Any, layout: Any, entries: int, writable: bool) -> Tuple[_core.View, Optional[_core.View]]:
    """K and V of a layout as arrays [entries, page_tokens, heads, elements]."""

    def side(name: str) -> Optional[_core.View]:
        row = getattr(layout, name + "_row_bytes")
        address = getattr(layout, name + "_base_address")
        if row == 0:
            return None
        strides = tuple(getattr(layout, f"{name}_{what}_stride") for what in ("page", "token", "head"))
        size = _core.dtype_bytes(layout.dtype) or 1
        shape = (entries, layout.page_tokens, layout.num_kv_heads, row // size)
        return _core.memory(handle, address, layout.dtype, shape, strides + (size,), writable)  # type: ignore[no-any-return]

    k = side("k")
    assert k is not None
    return k, side("v")
