# SPDX-License-Identifier: Apache-2.0
"""A pool with its tiers and a prefetch session, from one call."""

from __future__ import annotations

from types import TracebackType
from typing import Any, List, Optional, Type, Union

from ._errors import LostError, PagedKVError
from ._pool import Pool, Prompts
from ._prefetch import PrefetchSession
from ._table import Table
from ._tier import Attachment, Op, Tier
from ._values import ArrayLike, Bytes, Namespace


class PagedCache:
    """A paged KV cache: a pool, host memory and a file below it, and a prefetch session over them.

        cache = PagedCache(
            model="llama-3-8b", page_tokens=16, num_pages=4096, num_layers=32, num_kv_heads=8, k_head_dim=128, v_head_dim=128,
            host_bytes=8 << 30, file="/var/cache/engine/kv", file_bytes=200 << 30,
        )
        with cache.begin(tokens) as sequence:  # what was computed before is there already
            for layer in range(32):
                sequence.write(layer, sequence.info().committed, k[layer], v[layer])
            sequence.commit(len(tokens))

    model: whose KV it is, part of every key, and of the file's identity. host_bytes: 0 = no host memory. file: None = no file;
    file_bytes: 0 = the size of the file there is. prefetch: whether there is a session (with tiers only). Other keywords are those of
    Pool. `pool`, `host`, `file`, `session` and `namespace` are there for what this class does not do.
    """

    def __init__(
        self,
        *,
        model: Union[str, Bytes] = b"",
        host_bytes: int = 0,
        file: Optional[Any] = None,
        file_bytes: int = 0,
        policy: Union[str, int] = "write_back",
        prefetch: bool = True,
        **options: Any,
    ) -> None:
        self.namespace = Namespace(model)
        self.host: Optional[Tier] = None
        self.file: Optional[Tier] = None
        self.session: Optional[PrefetchSession] = None
        opened: List[Any] = []
        try:
            if host_bytes:
                self.host = Tier.host(host_bytes)
                opened.append(self.host)
            if file is not None:
                self.file = Tier.file(file, file_bytes, identity=model)
                opened.append(self.file)
            self.pool = Pool(tiers=[Attachment(tier, policy) for tier in opened], **options)
            opened.append(self.pool)
            if prefetch and len(opened) > 1:
                self.session = PrefetchSession(self.pool)
                opened.append(self.session)
        except BaseException:
            for one in reversed(opened):
                one.close()
            raise
        self._opened = opened

    def begin(
        self,
        tokens: ArrayLike,
        *,
        namespace: Optional[Namespace] = None,
        media: Prompts = None,
        timeout: Optional[float] = None,
        **options: Any,
    ) -> Table:
        """A table admitted with a prompt, and what was found brought into pages: info().committed tokens are there. What a tier cannot
        give back any more is not. Other keywords are those of Table.admit()."""
        table = self.pool.table()
        try:
            given = self.namespace if namespace is None else namespace
            table.admit(tokens, namespace=given, media=media, **options)
            while table.info().absent_blocks:
                try:
                    self._restore(table, timeout)
                except LostError:
                    # As far as it is still there, the rest is computed again.
                    valid = table.info().valid
                    table.clear()
                    again = {**options, "retry": True, "max_match": valid, "match": valid > 0}
                    table.admit(tokens, namespace=given, media=media, **again)
        except BaseException:
            table.close()
            raise
        return table

    def _restore(self, table: Table, timeout: Optional[float]) -> None:
        if self.session is not None:
            self.session.require(table, timeout=timeout)
        else:
            table.restore(timeout=timeout)

    def prefetch(
        self, tokens: ArrayLike, *, namespace: Optional[Namespace] = None, media: Prompts = None, timeout: Optional[float] = None
    ) -> Optional[Op]:
        """Begins to load what tiers have of a prompt, for a request that will begin soon. None without a session."""
        if self.session is None:
            return None
        given = self.namespace if namespace is None else namespace
        return self.session.prompt(tokens, namespace=given, media=media, timeout=timeout)

    def flush(self, timeout: Optional[float] = None) -> None:
        """Waits until tiers have what they are to have."""
        self.pool.flush(timeout)

    def close(self, flush_timeout: float = 10.0) -> None:
        """Stores what waits to be stored, as far as the time allows, and closes everything."""
        if self.pool.closed:
            return
        try:
            if self.host is not None or self.file is not None:
                self.pool.flush(flush_timeout)
        except PagedKVError:
            pass  # what could not be stored is computed again one day
        for one in reversed(self._opened):
            one.close()

    def __enter__(self) -> "PagedCache":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        self.close()
