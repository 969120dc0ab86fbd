# SPDX-License-Identifier: Apache-2.0
"""Statistics as text, traces, the log (stats.h, types.h)."""

from __future__ import annotations

import atexit
import contextlib
import logging
from typing import Any, Callable, Iterator, Mapping, Optional, Union

from . import _core
from ._errors import NoSpaceError
from ._values import Bytes, as_bytes, path_of

LOG_ERROR: int = _core.LOG_ERROR
LOG_WARNING: int = _core.LOG_WARNING
LOG_INFO: int = _core.LOG_INFO


def version() -> str:
    """Version of the library that runs."""
    return str(_core.version_string())


def cpu_kernels() -> str:
    """Name of the host kernels that this process runs."""
    return str(_core.cpu_kernels())


def digest(*parts: Union[str, Bytes]) -> bytes:
    """BLAKE2b-256 of the parts, kept apart from each other: for media, of its decoded bytes and of its shape, type and mode."""
    out = bytearray(_core.DIGEST_BYTES)
    _core.digest([as_bytes(part) for part in parts], out)
    return bytes(out)


def prometheus(
    *,
    pools: Mapping[str, Any] = {},
    tiers: Mapping[str, Any] = {},
    sessions: Mapping[str, Any] = {},
    nodes: Mapping[str, Any] = {},
) -> str:
    """Statistics in the text format of Prometheus; the keys become labels."""
    sources = _core.prometheus_sources()
    for name, pool in pools.items():
        sources.add_pool(pool, name)
    for name, tier in tiers.items():
        sources.add_tier(tier, name)
    for name, session in sessions.items():
        sources.add_session(session, name)
    for name, node in nodes.items():
        sources.add_node(node, name)
    while True:
        try:
            return str(_core.stats_prometheus(sources, _core.stats_prometheus(sources, 0) + 4096))
        except NoSpaceError:  # numbers have grown meanwhile
            continue


def trace_start(max_events: int = 0) -> None:
    """Begins to record what prefetch sessions, and loads that calls wait for, do in time; 0 keeps 2^20 events."""
    _core.trace_start(max_events)


def trace_stop(path: Optional[Any]) -> int:
    """Ends the recording and writes it to a file that https://ui.perfetto.dev loads: how many events found no room."""
    return int(_core.trace_stop(None if path is None else path_of(path)))


@contextlib.contextmanager
def trace(path: Any, max_events: int = 0) -> Iterator[None]:
    """Records while the `with` lasts."""
    trace_start(max_events)
    try:
        yield
    finally:
        trace_stop(path)


def set_log(receiver: Union[Callable[[int, str], Any], logging.Logger, None], level: int = LOG_WARNING) -> None:
    """Sets who gets the library's messages of `level` and more severe ones: a function of (level, message), called from any thread,
    which must not call the library; or a logger. None turns them off."""
    if isinstance(receiver, logging.Logger):
        logger = receiver
        levels = {LOG_ERROR: logging.ERROR, LOG_WARNING: logging.WARNING}

        def receiver(level: int, message: str) -> None:
            logger.log(levels.get(level, logging.INFO), "%s", message)

    _core.set_log(receiver, level)


# No message may come once the interpreter goes: taken back before, and waited for.
atexit.register(_core.end_log)
