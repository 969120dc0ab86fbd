# SPDX-License-Identifier: Apache-2.0
# The low layer, written by SWIG from the C headers: pkv_table_write is table_write, pkv_pool_options is pool_options. Its
# functions take what core.i says; the classes of the package are what programs are written with.
from typing import Any, Callable, Optional, Tuple

class Handle:
    closed: bool
    _value: int
    _rows: int
    _page_tokens: int
    _parent: Any
    def _adopt(self, parent: Any) -> None: ...
    def _measure(self, keep: Any, device_type: int = ..., device_id: int = ...) -> None: ...
    def _keep(self, objects: Any) -> None: ...
    def _groups(self) -> Tuple[Tuple[int, int, int, int], ...]: ...

class Counter:
    value: int
    address: int

class View:
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    address: int
    dtype: int
    def __buffer__(self, flags: int) -> memoryview: ...
    def __dlpack__(self, *, stream: Any = ..., max_version: Any = ..., dl_device: Any = ..., copy: Any = ...) -> Any: ...
    def __dlpack_device__(self) -> Tuple[int, int]: ...

class sync:
    kind: int
    handle_address: int
    value: int
    timeout_ns: int

def set_log(function: Optional[Callable[[int, str], Any]], max_level: int) -> None: ...
def __getattr__(name: str) -> Any: ...
