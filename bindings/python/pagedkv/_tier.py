# SPDX-License-Identifier: Apache-2.0
"""Tiers below pools, and the operations that move pages (tier.h)."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Type, TypeVar, Union

from . import _core
from ._errors import PagedKVError, Status, TimedOutError, fill
from ._handles import Owned
from ._values import Bytes, as_bytes, choice, nanoseconds, path_of

if TYPE_CHECKING:
    from ._table import Table

T = TypeVar("T", bound="Tier")


class Tier(Owned):
    """A place below pools that keeps page images: Tier.host(), Tier.file(), Node.tier(). May be used from any thread, and by several
    pools. Pools keep it alive after it was closed."""

    def __init__(self) -> None:
        raise TypeError("Tier.host(), Tier.file() and Node.tier() make tiers")

    @classmethod
    def _new(cls: Type[T]) -> T:
        return cls.__new__(cls)

    @classmethod
    def host(cls: Type[T], capacity_bytes: int, *, huge_pages: Union[str, int] = "auto") -> T:
        """Host memory, mapped at once, backed as it is touched."""
        options = _core.host_tier_options()
        options.capacity_bytes = capacity_bytes
        options.huge_pages = choice("huge_pages", huge_pages)
        tier = cls._new()
        _core.tier_open_host(options, tier)
        return tier

    @classmethod
    def file(
        cls: Type[T],
        path: Any,
        capacity_bytes: int = 0,
        *,
        identity: Union[str, Bytes] = b"",
        engine: Union[str, int] = "auto",
        reset: bool = False,
        buffered: bool = False,
        lock_timeout: Optional[float] = None,
        **fields: Any,
    ) -> T:
        """A file, made if it is not there, found again if it is (a warm restart). Of one process at a time.

        capacity_bytes: 0 = that of the file there is. identity: what the images belong to; a file made with another one raises
        MismatchError. reset: begin empty. Other keywords are the fields of pkv_file_tier_options (max_images, depth, threads ...).
        """
        options = _core.file_tier_options()
        options.set_path(path_of(path))
        options.set_identity(as_bytes(identity))
        options.capacity_bytes = capacity_bytes
        options.engine = choice("engine", engine)
        options.flags = (_core.FILE_RESET if reset else 0) | (_core.FILE_BUFFERED if buffered else 0)
        if lock_timeout is not None:
            options.lock_timeout_ns = max(1, nanoseconds(lock_timeout))
        fill(options, fields, "Tier.file")
        tier = cls._new()
        _core.tier_open_file(options, tier)
        return tier

    def close(self) -> None:
        """Closes the handle; the tier itself goes with the last pool that uses it."""
        if not self.closed:
            _core.tier_close(self)

    def stats(self) -> Any:
        """What pools did with it (pkv_tier_stats); get_usage() of it says what the tier holds."""
        return _core.tier_get_stats(self)


class Attachment:
    """A tier of a pool, and when the pool stores images there.

    policy: "write_back" (before they are evicted), "write_through" (as they are published), "write_on_hits" (at the hits-th
    hit), "demote" (when the tier above evicts them), "read_only". exclusive: an image that was loaded leaves the tier. timeout:
    longest wait for an answer, where a call has none of its own; None = one second.
    """

    def __init__(
        self,
        tier: Tier,
        policy: Union[str, int] = "write_back",
        *,
        hits: int = 0,
        exclusive: bool = False,
        timeout: Optional[float] = None,
    ) -> None:
        self.tier = tier
        self.policy = choice("policy", policy)
        self.hits = hits
        self.exclusive = exclusive
        self.timeout = timeout

    def _to_native(self) -> Any:
        native = _core.tier_attachment()
        native.set_tier(self.tier)
        native.policy = self.policy
        native.hits = self.hits
        native.flags = _core.TIER_EXCLUSIVE if self.exclusive else 0
        native.timeout_ns = 0 if self.timeout is None else max(1, nanoseconds(self.timeout))
        return native


class OpInfo(NamedTuple):
    """State of an operation: ended, its status, items in all, ended and good ones, a status for each (BUSY: under way), and whether
    its pages and buffers are free again."""

    ended: bool
    status: Status
    num_items: int
    done_items: int
    good_items: int
    statuses: Tuple[int, ...]
    buffers_free: bool


class Op(Owned):
    """An asynchronous operation: wait for it, poll it, or take its end out of a Queue. May be used from any thread."""

    def __init__(self) -> None:
        raise TypeError("operations are made by what begins them")

    def close(self) -> None:
        """Closes the handle. An operation under way goes on, unseen."""
        if not self.closed:
            _core.op_close(self)

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until it has ended; raises what it failed with, or TimedOutError while it is under way."""
        _core.op_wait(self, nanoseconds(timeout))

    def poll(self) -> OpInfo:
        """Its state, without waiting."""
        info = _core.op_poll(self, None, 0)
        statuses = array("i", bytes(4 * info.num_items))
        if info.num_items > 0:
            info = _core.op_poll(self, statuses, len(statuses))
        return OpInfo(
            info.state == _core.OP_ENDED,
            Status(info.status),
            info.num_items,
            info.done_items,
            info.good_items,
            tuple(statuses),
            info.buffers_free != 0,
        )

    def cancel(self) -> None:
        """Asks it to end early; it still ends, once."""
        _core.op_cancel(self)

    def table(self) -> "Table":
        """The sequence that a Node.pull() has brought, once it has ended well."""
        from ._table import Table

        table: "Table" = Table.__new__(Table)
        _core.pull_table(self, table)
        table._adopt(self._parent)
        return table


class Completion(NamedTuple):
    """An operation that has ended: the user value it was begun with, its status, and the operation itself."""

    user: int
    status: Status
    op: Optional[Op]


class Queue(Owned):
    """Where operations end. May be used from any thread; fileno() is readable while results wait (select, asyncio)."""

    def __init__(self) -> None:
        self._ops: Dict[int, Op] = {}
        _core.queue_create(self)

    def close(self) -> None:
        """Closes the queue. Operations under way go on, and end without being queued."""
        if not self.closed:
            _core.queue_destroy(self)
        self._ops.clear()

    def fileno(self) -> int:
        return int(_core.queue_handle(self))

    def drain(self, capacity: int = 64, timeout: Optional[float] = 0) -> List[Completion]:
        """Takes results out, in the order in which operations ended, waiting up to `timeout` for the first one (None: for ever).
        An empty list when none came."""
        memory = bytearray(capacity * _core.COMPLETION_BYTES)
        try:
            count = _core.queue_drain(self, memory, capacity, nanoseconds(timeout))
        except TimedOutError:
            return []
        out = []
        for at in range(0, count * _core.COMPLETION_BYTES, _core.COMPLETION_BYTES):
            (user,) = struct.unpack_from("=Q", memory, at + _core.COMPLETION_AT_USER)
            (op,) = struct.unpack_from("=Q", memory, at + _core.COMPLETION_AT_OP)
            (status,) = struct.unpack_from("=i", memory, at + _core.COMPLETION_AT_STATUS)
            out.append(Completion(user, Status(status), self._ops.pop(op, None)))
        return out


def begin(
    parent: Any, queue: Optional[Queue], user: int, timeout: Optional[float], start: Callable[[Any, Op], Any]
) -> Any:
    """Begins an operation; what the call gave besides stands in `extra` of it."""
    options = _core.op_options()
    if queue is not None:
        options.set_queue(queue)
    options.user = user
    options.timeout_ns = 0 if timeout is None else max(1, nanoseconds(timeout))
    op: Op = Op.__new__(Op)
    extra = start(options, op)
    op._adopt(parent)
    if queue is not None:
        queue._ops[op._value] = op
    op.extra = extra  # type: ignore[attr-defined]
    return op
