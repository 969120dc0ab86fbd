# SPDX-License-Identifier: Apache-2.0
"""Statuses of the library as exceptions: one class for each, all of them PagedKVError."""

from __future__ import annotations

import enum
from typing import Any, Dict, Type

from . import _core

__all__ = [
    "Status",
    "PagedKVError",
    "InvalidError",
    "HandleError",
    "ClosedError",
    "ForkedError",
    "NoMemoryError",
    "NoPagesError",
    "NoSpaceError",
    "NotFoundError",
    "NotResidentError",
    "LostError",
    "StateError",
    "BusyError",
    "AgainError",
    "TimedOutError",
    "CancelledError",
    "UnsupportedError",
    "MismatchError",
    "IOFailedError",
    "LimitError",
    "CaptureError",
    "InternalError",
]


class Status(enum.IntEnum):
    """What a call came to: PKV_OK and PKV_ERR_* without their prefix."""

    OK = 0
    INVALID = _core.ERR_INVALID
    HANDLE = _core.ERR_HANDLE
    CLOSED = _core.ERR_CLOSED
    FORKED = _core.ERR_FORKED
    NO_MEMORY = _core.ERR_NO_MEMORY
    NO_PAGES = _core.ERR_NO_PAGES
    NO_SPACE = _core.ERR_NO_SPACE
    NOT_FOUND = _core.ERR_NOT_FOUND
    NOT_RESIDENT = _core.ERR_NOT_RESIDENT
    LOST = _core.ERR_LOST
    STATE = _core.ERR_STATE
    BUSY = _core.ERR_BUSY
    AGAIN = _core.ERR_AGAIN
    TIMEOUT = _core.ERR_TIMEOUT
    CANCELLED = _core.ERR_CANCELLED
    UNSUPPORTED = _core.ERR_UNSUPPORTED
    MISMATCH = _core.ERR_MISMATCH
    IO = _core.ERR_IO
    LIMIT = _core.ERR_LIMIT
    CAPTURE = _core.ERR_CAPTURE
    INTERNAL = _core.ERR_INTERNAL


class PagedKVError(Exception):
    """A call that failed. A failed call has changed nothing, unless its documentation says otherwise.

    status: the Status, or a plain number that this version does not know.
    detail: what was wrong, with the values at fault.
    """

    status: int
    detail: str

    def __init__(self, status: int, detail: str = "") -> None:
        try:
            status = Status(status)
        except ValueError:
            pass
        super().__init__(status, detail)
        self.status = status
        self.detail = detail

    def __str__(self) -> str:
        name = self.status.name if isinstance(self.status, Status) else str(self.status)
        return f"{name}: {self.detail}" if self.detail else name


class InvalidError(PagedKVError, ValueError):
    """An argument is out of range or contradicts another."""


class HandleError(PagedKVError):
    """The object is closed, or was never opened."""


class ClosedError(PagedKVError):
    """The object's parent was closed."""


class ForkedError(PagedKVError):
    """The object was made before fork() in the parent process."""


class NoMemoryError(PagedKVError, MemoryError):
    """The operating system or the allocator gave no memory."""


class NoPagesError(PagedKVError):
    """The pool has too few pages that are free or may be evicted."""


class NoSpaceError(PagedKVError):
    """A caller's buffer or a tier is too small."""


class NotFoundError(PagedKVError, LookupError):
    """What was named does not exist."""


class NotResidentError(PagedKVError):
    """A block has no page in the pool."""


class LostError(PagedKVError):
    """Blocks of a sequence could not be loaded and are gone: Table.info().valid tokens are left."""


class StateError(PagedKVError):
    """The object or page is not in a state that allows this."""


class BusyError(PagedKVError):
    """In use: by an operation, or by another thread (tables, batches and sessions take one thread at a time)."""


class AgainError(PagedKVError):
    """Not now; a later try may succeed."""


class TimedOutError(PagedKVError, TimeoutError):
    """A deadline passed."""


class CancelledError(PagedKVError):
    """Cancelled by the caller."""


class UnsupportedError(PagedKVError):
    """Not supported by this build, machine or object."""


class MismatchError(PagedKVError):
    """Geometry, identity or seed differs."""


class IOFailedError(PagedKVError):
    """Input or output failed."""


class LimitError(PagedKVError, ValueError):
    """Larger than a documented limit."""


class CaptureError(PagedKVError):
    """Not possible while a stream is being captured."""


class InternalError(PagedKVError):
    """A fault of the library itself: please report it."""


_classes: Dict[int, Type[PagedKVError]] = {
    0: PagedKVError,
    Status.INVALID: InvalidError,
    Status.HANDLE: HandleError,
    Status.CLOSED: ClosedError,
    Status.FORKED: ForkedError,
    Status.NO_MEMORY: NoMemoryError,
    Status.NO_PAGES: NoPagesError,
    Status.NO_SPACE: NoSpaceError,
    Status.NOT_FOUND: NotFoundError,
    Status.NOT_RESIDENT: NotResidentError,
    Status.LOST: LostError,
    Status.STATE: StateError,
    Status.BUSY: BusyError,
    Status.AGAIN: AgainError,
    Status.TIMEOUT: TimedOutError,
    Status.CANCELLED: CancelledError,
    Status.UNSUPPORTED: UnsupportedError,
    Status.MISMATCH: MismatchError,
    Status.IO: IOFailedError,
    Status.LIMIT: LimitError,
    Status.CAPTURE: CaptureError,
    Status.INTERNAL: InternalError,
}
_core.set_errors({int(status): cls for status, cls in _classes.items()})


def error_of(status: int, detail: str = "") -> PagedKVError:
    """The exception of a status, of an item that failed for example."""
    return _classes.get(int(status), PagedKVError)(status, detail)


def fill(options: Any, fields: Dict[str, Any], where: str) -> Any:
    """Sets the fields of an options struct that were given; one that it does not have is a TypeError."""
    for name, value in fields.items():
        if value is None:
            continue
        if name.startswith("_") or name in ("this", "thisown") or not hasattr(options, name) or callable(getattr(options, name)):
            raise TypeError(f"{where}: there is no option {name!r}")
        setattr(options, name, value)
    return options
