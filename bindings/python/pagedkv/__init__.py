# SPDX-License-Identifier: Apache-2.0
"""libpagedkv: a paged KV cache for LLM inference engines.

Pool has the pages, Table is one sequence, Batch the sequences of a decode step, Tier what is below a pool, PrefetchSession
loads before use, Node shares with other processes; PagedCache makes a pool with tiers and a session in one call. The words are those
of the C headers (include/pagedkv/), whose documentation is the reference; tokens and bytes are counted as there, timeouts are
seconds, None = for ever. Calls that may wait or copy run without the interpreter lock.
"""

from ._batch import Batch, BatchArrays
from ._cache import PagedCache
from ._core import View
from ._errors import *  # noqa: F401,F403
from ._errors import __all__ as _error_names
from ._errors import error_of
from ._node import Node, Offer, Peer
from ._pool import Event, Match, Pool
from ._prefetch import LayerView, PrefetchSession, Step, predict
from ._table import PageCopy, Table
from ._telemetry import (
    LOG_ERROR,
    LOG_INFO,
    LOG_WARNING,
    cpu_kernels,
    digest,
    prometheus,
    set_log,
    trace,
    trace_start,
    trace_stop,
    version,
)
from ._tier import Attachment, Completion, Op, OpInfo, Queue, Tier
from ._values import (
    FOREVER,
    MATCH_ALL,
    Group,
    HostCounter,
    Media,
    Namespace,
    Retention,
    Sync,
    as_dict,
    cuda_event,
    cuda_stream,
    device_available,
)

__version__ = version()

__all__ = [
    *_error_names,
    "Attachment",
    "Batch",
    "BatchArrays",
    "Completion",
    "Event",
    "FOREVER",
    "Group",
    "HostCounter",
    "LOG_ERROR",
    "LOG_INFO",
    "LOG_WARNING",
    "LayerView",
    "MATCH_ALL",
    "Match",
    "Media",
    "Namespace",
    "Node",
    "Offer",
    "Op",
    "OpInfo",
    "PageCopy",
    "PagedCache",
    "Peer",
    "Pool",
    "PrefetchSession",
    "Queue",
    "Retention",
    "Step",
    "Sync",
    "Table",
    "Tier",
    "View",
    "as_dict",
    "cpu_kernels",
    "cuda_event",
    "cuda_stream",
    "device_available",
    "digest",
    "error_of",
    "predict",
    "prometheus",
    "set_log",
    "trace",
    "trace_start",
    "trace_stop",
    "version",
]
