# SPDX-License-Identifier: Apache-2.0
"""Tables: one sequence each, from its prompt to its last token (table.h)."""

from __future__ import annotations

import struct
from array import array
from typing import Any, List, NamedTuple, Optional, Tuple

from . import _core
from ._handles import Owned
from ._pool import Match, Pool, Prompts
from ._values import FOREVER, ArrayLike, Bytes, Namespace, Retention, Sync, nanoseconds, prompt


class PageCopy(NamedTuple):
    """A copy that the caller of a pool without memory has to make."""

    group: int
    src: int
    dst: int


class Table(Owned):
    """One sequence. From one thread at a time: a call while another thread is in one raises BusyError.

    Numbers of tokens count from the start of the sequence: named (ids are known), reserved (there is room), committed (KV is
    complete), published (others can find it).
    """

    def __init__(self, pool: Pool) -> None:
        _core.table_create(pool, self)
        self._adopt(pool)

    def close(self, sync: Optional[Sync] = None) -> None:
        """Releases all pages and the table. Works also after its pool was closed."""
        if not self.closed:
            _core.table_destroy(self, sync)

    def clear(self, sync: Optional[Sync] = None) -> None:
        """Releases all pages and forgets the sequence: the table can be admitted again."""
        _core.table_clear(self, sync)

    def admit(
        self,
        tokens: ArrayLike,
        *,
        namespace: Optional[Namespace] = None,
        media: Prompts = None,
        max_match: int = 0,
        reserve_tokens: int = 0,
        watermark: int = 0,
        match: bool = True,
        partial: bool = False,
        share: bool = False,
        retry: bool = False,
    ) -> Match:
        """Begins a sequence: takes the longest cached prefix and makes room for the rest, or changes nothing.

        max_match: at most so many tokens may match; 0 = all but the last one. reserve_tokens: room after the matched tokens; 0 =
        the rest of the prompt. watermark: pages that must stay free or evictable. match=False: take nothing from the cache.
        partial: a match may end inside a block. share: give up own pages for those published already. retry: it was admitted before,
        and is coming back.
        """
        options = None
        flags = (
            (0 if match else _core.ADMIT_NO_MATCH)
            | (_core.ADMIT_PARTIAL if partial else 0)
            | (_core.ADMIT_SHARE if share else 0)
            | (_core.ADMIT_RETRY if retry else 0)
        )
        if flags or max_match or reserve_tokens or watermark:
            options = _core.admit_options()
            options.max_match = max_match
            options.reserve_tokens = reserve_tokens
            options.watermark = watermark
            options.flags = flags
        return Match._of(_core.table_admit(self, prompt(tokens, namespace, media), options))

    def reserve(self, num_tokens: int) -> None:
        """Makes room for the first num_tokens tokens in all, private where it will be written."""
        _core.table_reserve(self, num_tokens)

    def set_tokens(self, position: int, tokens: ArrayLike) -> None:
        """Names the tokens from `position` on."""
        _core.table_set_tokens(self, position, len(tokens), tokens)

    def write(
        self,
        layer: int,
        position: int,
        k: Optional[ArrayLike],
        v: Optional[ArrayLike] = None,
        *,
        group: int = 0,
        num_tokens: int = FOREVER,
        sync: Optional[Sync] = None,
    ) -> None:
        """Puts rows of one layer in: row i belongs to position + i. [tokens, heads, elements], of the group's type or one that converts
        to it, from where they lie; strides are honoured. num_tokens: as many as k has."""
        _core.table_write(self, group, layer, position, num_tokens, k, v, sync)

    def gather(
        self,
        layer: int,
        position: int,
        k: Optional[ArrayLike] = None,
        v: Optional[ArrayLike] = None,
        *,
        group: int = 0,
        num_tokens: int = FOREVER,
        sync: Optional[Sync] = None,
    ) -> None:
        """Takes rows of one layer out, into k and v, in place. Blocks that are in tiers are loaded, and waited for."""
        _core.table_gather(self, group, layer, position, num_tokens, k, v, sync)

    def commit(self, num_tokens: int, sync: Optional[Sync] = None) -> None:
        """Says that the KV of the first num_tokens tokens is complete in all layers; whole, named blocks are published."""
        _core.table_commit(self, num_tokens, sync)

    def fork(self, sync: Optional[Sync] = None) -> "Table":
        """A second table with the same committed tokens, sharing their pages."""
        fork: "Table" = type(self).__new__(type(self))
        _core.table_fork(self, sync, fork)
        fork._adopt(self._parent)
        return fork

    def truncate(self, num_tokens: int, sync: Optional[Sync] = None) -> None:
        """Cuts the sequence to num_tokens tokens."""
        _core.table_truncate(self, num_tokens, sync)

    def accept(self, positions: ArrayLike, sync: Optional[Sync] = None) -> None:
        """Keeps the accepted ones of drafted tokens, in order, after the committed ones."""
        _core.table_accept(self, len(positions), positions, sync)

    def window(self, sync: Optional[Sync] = None) -> None:
        """Drops, in window groups, the blocks that no later token attends to."""
        _core.table_window(self, sync)

    def set_retention(self, retention: Retention, *, first_token: int = 0, num_tokens: int = FOREVER) -> None:
        """Sets the retention of blocks that hold tokens of a range, now and later."""
        _core.table_set_retention(self, first_token, num_tokens, retention._to_native())

    def take_copies(self) -> List[PageCopy]:
        """In a pool without memory: the copies on write that have to be made before the next write."""
        memory = bytearray(_core.MAX_GROUPS * _core.PAGE_COPY_BYTES)
        count = _core.table_take_copies(self, memory, _core.MAX_GROUPS)
        out = []
        for at in range(0, count * _core.PAGE_COPY_BYTES, _core.PAGE_COPY_BYTES):
            (group,) = struct.unpack_from("=I", memory, at + _core.PAGE_COPY_AT_GROUP)
            (src,) = struct.unpack_from("=i", memory, at + _core.PAGE_COPY_AT_SRC)
            (dst,) = struct.unpack_from("=i", memory, at + _core.PAGE_COPY_AT_DST)
            out.append(PageCopy(group, src, dst))
        return out

    def export_bytes(self) -> bytearray:
        """The committed part of the sequence, with its KV, under a checksum."""
        buffer = bytearray(_core.table_export(self, None, 0))
        size = _core.table_export(self, buffer, len(buffer))
        del buffer[size:]
        return buffer

    def import_bytes(self, data: Bytes) -> None:
        """Begins a sequence from what export_bytes() gave, in a pool of equal geometry."""
        _core.table_import(self, data)

    def pages(self, *, group: int = 0, out: Optional[ArrayLike] = None) -> Any:
        """The block table of a group: page ids, -1 where a window has passed. `out`, if given, is written instead (int32), and the
        number of blocks returned."""
        if out is not None:
            return _core.table_pages(self, group, out, len(out))
        count = _core.table_pages(self, group, None, 0)
        pages = array("i", bytes(4 * count))
        if count:
            _core.table_pages(self, group, pages, count)
        return pages

    def slots(self, position: int, num_tokens: int, *, group: int = 0) -> "array[int]":
        """The slots of tokens [position, position + num_tokens), which may be written then."""
        # What is no range of the table is refused before memory is taken for it.
        slots = array("q", bytes(8 * num_tokens)) if num_tokens <= 1 << 32 else array("q")
        _core.table_slots(self, group, position, num_tokens, slots)
        return slots

    def residency(self, first_block: int = 0, num_blocks: Optional[int] = None, *, group: int = 0) -> "array[int]":
        """Where blocks are: -1 dropped by a window, 0 in a page, 1 + i in tier i."""
        if num_blocks is None:
            num_blocks = max(0, int(self.info().blocks) - first_block)
        where = array("i", bytes(4 * num_blocks))
        _core.table_residency(self, group, first_block, num_blocks, where)
        return where

    def spill(self, first_block: int = 0, num_blocks: int = FOREVER, sync: Optional[Sync] = None) -> Any:
        """Moves committed blocks down and frees their pages: spilled_blocks, and shared_pages that stayed."""
        return _core.table_spill(self, first_block, num_blocks, sync)

    def restore(self, first_block: int = 0, num_blocks: int = FOREVER, timeout: Optional[float] = None) -> int:
        """Brings absent blocks back into pages: how many there were. LostError: info().valid tokens are left."""
        return int(_core.table_restore(self, first_block, num_blocks, nanoseconds(timeout)))

    def info(self) -> Any:
        """named, reserved, committed, published, matched, valid tokens; blocks, committed_blocks, absent_blocks."""
        return _core.table_get_info(self)

    @property
    def pool(self) -> Pool:
        parent: Pool = self._parent
        return parent
