# SPDX-License-Identifier: Apache-2.0
"""What all objects with a handle share."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Optional, Type, TypeVar

from . import _core

Self = TypeVar("Self", bound="Owned")


class Owned(_core.Handle):
    """An object of the library: close it, or use it in a `with`. Closing twice is harmless; what is used after it was closed raises
    HandleError. Objects may be closed in any order; one that is still open when it is collected is closed, with a
    ResourceWarning."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} belongs to its process: it cannot be pickled or copied")
