# SPDX-License-Identifier: Apache-2.0
"""Values that go into calls: names of constants, namespaces, prompts, layer groups, retention, what to wait for."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from . import _core
from ._errors import InvalidError, Status, fill

FOREVER: int = _core.FOREVER
#: As max_match: the whole prompt may match.
MATCH_ALL: int = _core.MATCH_ALL

#: What has the buffer protocol or DLPack (numpy arrays, torch tensors, array.array, bytes ...), or a sequence of numbers.
ArrayLike = Any
Bytes = Union[bytes, bytearray, memoryview]

_DTYPES = {
    "f32": _core.DTYPE_F32,
    "float32": _core.DTYPE_F32,
    "f16": _core.DTYPE_F16,
    "float16": _core.DTYPE_F16,
    "bf16": _core.DTYPE_BF16,
    "bfloat16": _core.DTYPE_BF16,
    "f8e4m3": _core.DTYPE_F8_E4M3,
    "float8_e4m3fn": _core.DTYPE_F8_E4M3,
    "f8e5m2": _core.DTYPE_F8_E5M2,
    "float8_e5m2": _core.DTYPE_F8_E5M2,
    "i8": _core.DTYPE_I8,
    "int8": _core.DTYPE_I8,
    "opaque": _core.DTYPE_OPAQUE,
}
_CHOICES: Dict[str, Dict[str, int]] = {
    "dtype": _DTYPES,
    "layout": {"nhd": _core.LAYOUT_NHD, "hnd": _core.LAYOUT_HND},
    "arrangement": {"page_major": _core.PAGE_MAJOR, "layer_major": _core.LAYER_MAJOR},
    "attention": {"full": _core.ATTENTION_FULL, "window": _core.ATTENTION_WINDOW},
    "memory": {"pool": _core.MEMORY_POOL, "caller": _core.MEMORY_CALLER, "none": _core.MEMORY_NONE},
    "scales": {
        "none": _core.SCALES_NONE,
        "tensor": _core.SCALES_TENSOR,
        "head": _core.SCALES_HEAD,
        "token_head": _core.SCALES_TOKEN_HEAD,
    },
    "huge_pages": {
        "auto": _core.HUGE_PAGES_AUTO,
        "never": _core.HUGE_PAGES_NEVER,
        "require": _core.HUGE_PAGES_REQUIRE,
    },
    "engine": {"auto": _core.IO_AUTO, "uring": _core.IO_URING, "threads": _core.IO_THREADS},
    "policy": {
        "write_back": _core.TIER_WRITE_BACK,
        "write_through": _core.TIER_WRITE_THROUGH,
        "write_on_hits": _core.TIER_WRITE_ON_HITS,
        "demote": _core.TIER_DEMOTE,
        "read_only": _core.TIER_READ_ONLY,
    },
    "predict": {
        "sequential": _core.PREDICT_SEQUENTIAL,
        "full": _core.PREDICT_FULL,
        "hinted": _core.PREDICT_HINTED,
    },
}


def choice(kind: str, value: Union[str, int]) -> int:
    """The number of a constant, by its name or as it is."""
    if isinstance(value, str):
        names = _CHOICES[kind]
        if value not in names:
            raise InvalidError(Status.INVALID, f"{kind}: {value!r} is none of {', '.join(names)}")
        return names[value]
    return int(value)


def device_of(device: Union[str, int]) -> Tuple[int, int]:
    """PKV_DEVICE_* and index of "host", "cpu", "cuda", "cuda:1", or of what has that as its text (torch.device)."""
    kind, _, index = str(device).partition(":")
    kinds = {"host": _core.DEVICE_HOST, "cpu": _core.DEVICE_HOST, "cuda": _core.DEVICE_CUDA}
    if kind not in kinds or not (index.isdecimal() or index == "") or (kinds[kind] == _core.DEVICE_HOST and index):
        raise InvalidError(Status.INVALID, f"device: {device!r} is no host, cpu, cuda or cuda:N")
    return kinds[kind], int(index or 0)


def device_available(device: Union[str, int]) -> None:
    """Raises UnsupportedError, with the reason, where pools cannot be made on a device."""
    _core.device_available(*device_of(device))


def nanoseconds(seconds: Optional[float]) -> int:
    """A timeout in seconds, None = for ever, as the library wants it."""
    if seconds is None:
        return FOREVER
    if not seconds >= 0:
        raise InvalidError(Status.INVALID, f"timeout is {seconds!r}, below 0")
    return min(int(seconds * 1e9), FOREVER - 1) if seconds < 1.8e10 else FOREVER


def as_bytes(value: Union[str, Bytes]) -> Bytes:
    return value.encode() if isinstance(value, str) else value


def as_dict(value: Any) -> Dict[str, Any]:
    """The numbers of a result (statistics, infos) as a dict."""
    names = (name for name in dir(type(value)) if not name.startswith("_") and name not in ("this", "thisown"))
    return {name: got for name in names if not callable(got := getattr(value, name))}


class Namespace:
    """What else decides whether KV may be reused, besides the tokens: model, adapter, tenant.

    model: identity of model and weights; adapter: name of the adapter (LoRA); adapter_generation: raised when an adapter is
    loaded again under its name; salt: the tenant. Text or bytes. Immutable.
    """

    __slots__ = ("_native", "_parts")

    def __init__(
        self,
        model: Union[str, Bytes] = b"",
        *,
        adapter: Union[str, Bytes] = b"",
        adapter_id: int = 0,
        adapter_generation: int = 0,
        salt: Union[str, Bytes] = b"",
    ) -> None:
        native = _core.namespace()
        self._parts = (
            bytes(as_bytes(model)),
            bytes(as_bytes(adapter)),
            adapter_id,
            adapter_generation,
            bytes(as_bytes(salt)),
        )
        native.set_model(self._parts[0])
        native.set_adapter(self._parts[1])
        native.adapter_id = adapter_id
        native.adapter_generation = adapter_generation
        native.set_salt(self._parts[4])
        self._native = native

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Namespace) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    def __repr__(self) -> str:
        model, adapter, adapter_id, generation, salt = self._parts
        return (
            f"Namespace({model!r}, adapter={adapter!r}, adapter_id={adapter_id}, "
            f"adapter_generation={generation}, salt={salt!r})"
        )


@dataclasses.dataclass(frozen=True)
class Media:
    """An image, sound or other input behind placeholder tokens: its digest (1 to 256 bytes, see digest()) becomes part of the key
    of the block that `position` falls into, and of all blocks after it."""

    position: int
    num_tokens: int
    digest: Bytes


def prompt(
    tokens: ArrayLike, namespace: Optional[Namespace], media: Optional[Sequence[Union[Media, Tuple[int, int, Bytes]]]]
) -> Tuple[Any, Any, Any]:
    native = None if namespace is None else namespace._native
    if media is not None:
        media = [(m.position, m.num_tokens, m.digest) if isinstance(m, Media) else m for m in media]
    return (tokens, native, media)


@dataclasses.dataclass(frozen=True)
class Retention:
    """How long cached blocks are kept in comparison with others: priority 0 to 100; pinned ones are not evicted at all; after ttl
    seconds (None = never) both end."""

    priority: int = _core.PRIORITY_DEFAULT
    pin: bool = False
    ttl: Optional[float] = None

    def _to_native(self) -> Any:
        native = _core.retention()
        native.priority = self.priority
        native.pin = int(self.pin)
        native.ttl_ns = 0 if self.ttl is None else max(1, nanoseconds(self.ttl))
        return native


class Group:
    """The options of a layer group: layers that share geometry and attention kind.

    The fields of pkv_group_options by name (pool.h), those with names as text: dtype "f16", layout "nhd" ...
    Over the caller's own tensors: k_arrays and v_arrays, one array for each layer, [pages, page_tokens, heads, elements] or, with
    layout="hnd", [pages, heads, page_tokens, elements]. They are held as long as anything of the pool lives, and are neither
    resized nor freed meanwhile.
    """

    def __init__(
        self,
        *,
        num_pages: int = 0,
        num_layers: int = 0,
        num_kv_heads: int = 0,
        k_head_dim: int = 0,
        v_head_dim: int = 0,
        dtype: Union[str, int] = "f16",
        layout: Union[str, int] = "nhd",
        arrangement: Union[str, int] = "page_major",
        attention: Union[str, int] = "full",
        memory: Union[str, int, None] = None,
        scales: Union[str, int] = "none",
        k_scales: Optional[ArrayLike] = None,
        v_scales: Optional[ArrayLike] = None,
        k_arrays: Optional[Sequence[ArrayLike]] = None,
        v_arrays: Optional[Sequence[ArrayLike]] = None,
        **fields: Any,
    ) -> None:
        native = _core.group_options()
        self._pins: List[Any] = []
        native.num_layers = num_layers
        native.num_kv_heads = num_kv_heads
        native.k_head_dim = k_head_dim
        native.v_head_dim = v_head_dim
        native.dtype = choice("dtype", dtype)
        native.layout = choice("layout", layout)
        native.arrangement = choice("arrangement", arrangement)
        native.attention = choice("attention", attention)
        native.scales = choice("scales", scales)
        native.num_pages = num_pages
        fill(native, fields, "Group")
        for name, values in (("k_scales", k_scales), ("v_scales", v_scales)):
            if values is not None:
                values = _flat(values)
                getattr(native, "set_" + name)(values, len(values))
        if memory is None:
            memory = "pool" if k_arrays is None else "caller"
        native.memory = choice("memory", memory)
        if k_arrays is not None:
            self._place(native, "k", k_arrays)
        if v_arrays is not None:
            self._place(native, "v", v_arrays)
        self._native = native

    def _place(self, native: Any, side: str, arrays: Sequence[ArrayLike]) -> None:
        hnd = native.layout == _core.LAYOUT_HND
        heads, tokens = (1, 2) if hnd else (2, 1)
        if len(arrays) != native.num_layers:
            raise InvalidError(Status.INVALID, f"{side}_arrays: {len(arrays)} arrays, num_layers is {native.num_layers}")
        addresses, strides = [], None
        for i, array in enumerate(arrays):
            pin = _core.Pin(array, True, f"{side}_arrays[{i}]")
            self._pins.append(pin)
            shape, steps = pin.shape, pin.strides
            if len(shape) != 4:
                raise InvalidError(Status.INVALID, f"{side}_arrays[{i}]: {len(shape)} dimensions, 4 are wanted")
            if native.num_pages == 0:
                native.num_pages = shape[0]
            if shape[0] < native.num_pages or shape[heads] != native.num_kv_heads:
                raise InvalidError(
                    Status.INVALID,
                    f"{side}_arrays[{i}]: {shape[0]} pages of {shape[heads]} heads, "
                    f"{native.num_pages} of {native.num_kv_heads} are wanted",
                )
            row = pin.itemsize * shape[3]
            wanted = self._row_bytes(native, side)
            if row != wanted or (shape[3] > 1 and steps[3] != pin.itemsize):
                raise InvalidError(
                    Status.INVALID, f"{side}_arrays[{i}]: rows of {row} bytes, contiguous ones of {wanted} are wanted"
                )
            found = (steps[0], steps[tokens], steps[heads])
            if min(found) <= 0:
                raise InvalidError(Status.INVALID, f"{side}_arrays[{i}]: strides of {found} bytes have to be above 0")
            if strides is not None and found != strides:
                raise InvalidError(Status.INVALID, f"{side}_arrays[{i}]: strides of {found} bytes, those of layer 0 are {strides}")
            strides = found
            addresses.append(pin.address)
            self._page_tokens(shape[tokens])
        getattr(native, f"set_{side}_base")(addresses, len(addresses))
        if strides is not None:
            for name, stride in zip(("page", "token", "head"), strides):
                setattr(native, f"{side}_{name}_stride", stride)

    def _page_tokens(self, tokens: int) -> None:
        known = getattr(self, "_tokens", tokens)
        if known != tokens:
            raise InvalidError(Status.INVALID, f"arrays of {known} and of {tokens} tokens in a page")
        self._tokens = tokens

    @staticmethod
    def _row_bytes(native: Any, side: str) -> int:
        size = _core.dtype_bytes(native.dtype)
        if size == 0:
            return int(getattr(native, f"{side}_row_bytes"))
        return int(getattr(native, f"{side}_head_dim")) * int(size)


def _flat(values: ArrayLike) -> List[float]:
    """Scales: numbers, or lists of them for each layer."""
    out: List[float] = []
    for value in values:
        if hasattr(value, "__iter__"):
            out.extend(_flat(value))
        else:
            out.append(float(value))
    return out


class Sync(_core.sync):
    """When a call may touch page bytes: made by HostCounter.reached(), cuda_stream() or cuda_event()."""

    __slots__ = ("counter",)
    counter: Any


class HostCounter(_core.Counter):
    """A 64-bit counter that calls wait for: set `value` from any thread when the bytes are ready."""

    def reached(self, value: int, timeout: float = 1.0) -> Sync:
        """As `sync` of a call: it waits until the counter has reached `value`, or raises TimedOutError and has done nothing."""
        sync = Sync()
        sync.kind = _core.SYNC_HOST_COUNTER
        sync.handle_address = self.address
        sync.value = value
        sync.timeout_ns = max(1, nanoseconds(timeout))
        sync.counter = self
        return sync


def cuda_stream(stream: int) -> Sync:
    """As `sync` of a call on a pool on a CUDA device: in order on a stream, given by its address (torch:
    stream.cuda_stream)."""
    sync = Sync()
    sync.kind = _core.SYNC_CUDA_STREAM
    sync.handle_address = stream
    return sync


def cuda_event(event: int) -> Sync:
    """As `sync` of a call on a pool on a CUDA device: after an event, given by its address (torch: event.cuda_event)."""
    sync = Sync()
    sync.kind = _core.SYNC_CUDA_EVENT
    sync.handle_address = event
    return sync


def path_of(path: Union[str, bytes, "os.PathLike[Any]"]) -> Any:
    return os.fspath(path)
