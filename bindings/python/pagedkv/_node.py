# SPDX-License-Identifier: Apache-2.0
"""Nodes: page images of one process found and read by others, and running sequences handed over (node.h)."""

from __future__ import annotations

import struct
from typing import Any, List, NamedTuple, Optional, Sequence, Union

from . import _core
from ._errors import Status, fill
from ._handles import Owned
from ._pool import Pool
from ._table import Table
from ._tier import Op, Queue, Tier, begin
from ._values import Bytes, Namespace, Sync, as_bytes, nanoseconds


class Peer(NamedTuple):
    """A node that is read from."""

    address: str
    name: str
    connected: bool
    status: Status


class Offer(Owned):
    """A sequence that others may pull: send `ticket` with the request. Closing it withdraws it, unless it has ended."""

    op: Op

    def __init__(self) -> None:
        raise TypeError("Node.offer() makes offers")

    @property
    def ticket(self) -> bytes:
        buffer = bytearray(_core.offer_ticket(self, None, 0))
        size = _core.offer_ticket(self, buffer, len(buffer))
        return bytes(buffer[:size])

    def ready(self, num_tokens: int, *, group: Optional[int] = None, layer: Optional[int] = None, sync: Optional[Sync] = None) -> None:
        """Says that the rows of the first num_tokens tokens are written: in a layer, or (None) in all of them, of all groups. By the
        thread that has the table."""
        group = _core.ALL_GROUPS if group is None else group
        layer = _core.ALL_LAYERS if layer is None else layer
        _core.offer_ready(self, group, layer, num_tokens, sync)

    def info(self) -> Any:
        """status, pulls, open_pulls, failed_pulls, num_tokens, ready_tokens, left_ns."""
        return _core.offer_get_info(self)

    def close(self) -> None:
        if not self.op.closed:
            self.op.close()
        if not self.closed:
            _core.offer_close(self)


class Node(Owned):
    """What this process shares with others. May be used from any thread.

    cluster_key: 32 random bytes, a secret of all nodes. listen: "host:port" of the control connection (port 0: any); None serves
    nothing. tiers: what is served. pools: whose geometry others have to have. promote: images that are read from a slower tier are
    copied to the first. copy: images are copied for readers; otherwise host tiers' memory is opened to them. Other keywords are the fields of pkv_node_options
    (name, provider, fabric_host, export_bytes ...). Page bytes are not encrypted on the wire: see node.h.
    """

    def __init__(
        self,
        cluster_key: Bytes,
        *,
        listen: Optional[str] = None,
        tiers: Sequence[Tier] = (),
        pools: Sequence[Pool] = (),
        identity: Union[str, Bytes] = b"",
        lease: Optional[float] = None,
        timeout: Optional[float] = None,
        promote: bool = False,
        copy: bool = False,
        **fields: Any,
    ) -> None:
        options = _core.node_options()
        options.set_cluster_key(cluster_key)
        if listen is not None:
            options.set_listen(listen)
        for name in [name for name in fields if hasattr(options, "set_" + name)]:
            value = fields.pop(name)
            if value is not None:
                getattr(options, "set_" + name)(value)
        for tier in tiers:
            options.add_tier(tier)
        for pool in pools:
            options.add_pool(pool)
        options.set_identity(as_bytes(identity))
        if lease is not None:
            options.lease_ns = max(1, nanoseconds(lease))
        if timeout is not None:
            options.timeout_ns = max(1, nanoseconds(timeout))
        options.flags = (_core.NODE_PROMOTE if promote else 0) | (_core.NODE_COPY if copy else 0)
        fill(options, fields, "Node")
        _core.node_open(options, self)
        self._keep([list(tiers), list(pools)])

    def close(self) -> None:
        """Stops listening, ends all connections."""
        if not self.closed:
            _core.node_close(self)

    @property
    def address(self) -> str:
        """At which others connect: "host:port"."""
        return str(_core.node_address(self, _core.node_address(self, 0)))

    def connect(self, address: str, timeout: Optional[float] = 0) -> None:
        """Adds a node to read from, and waits up to `timeout` for the first connection (0: does not). TimedOutError: it is still
        being tried."""
        _core.node_connect(self, address, nanoseconds(timeout))

    def disconnect(self, address: str) -> None:
        _core.node_disconnect(self, address)

    def tier(self) -> Tier:
        """The images of the nodes it reads from, as a tier: attach it as "read_only", after the pool's own."""
        tier: Tier = Tier._new()
        _core.node_tier(self, tier)
        tier._adopt(self)
        return tier

    def peers(self) -> List[Peer]:
        """The nodes it reads from."""
        size = _core.NODE_PEER_BYTES
        count = _core.node_peers(self, None, 0)
        memory = bytearray(max(1, count + 4) * size)  # some may come meanwhile
        struct.pack_into("=Q", memory, 0, size)
        count = _core.node_peers(self, memory, len(memory) // size)

        def text(at: int, end: int) -> str:
            return bytes(memory[at:end]).split(b"\0", 1)[0].decode(errors="replace")

        out = []
        for at in range(0, count * size, size):
            (connected,) = struct.unpack_from("=i", memory, at + _core.NODE_PEER_AT_CONNECTED)
            (status,) = struct.unpack_from("=i", memory, at + _core.NODE_PEER_AT_STATUS)
            address = text(at + _core.NODE_PEER_AT_ADDRESS, at + _core.NODE_PEER_AT_NAME)
            name = text(at + _core.NODE_PEER_AT_NAME, at + _core.NODE_PEER_AT_CONNECTED)
            out.append(Peer(address, name, connected != 0, Status(status)))
        return out

    def stats(self) -> Any:
        return _core.node_get_stats(self)

    def offer(
        self,
        table: Table,
        *,
        num_tokens: int = 0,
        lifetime: Optional[float] = None,
        address: Optional[str] = None,
        max_pulls: int = 1,
        queue: Optional[Queue] = None,
        user: int = 0,
    ) -> Offer:
        """Offers a table's sequence to be pulled by another node; the offer's `op` ends when it has been."""
        options = _core.offer_options()
        options.num_tokens = num_tokens
        options.lifetime_ns = 0 if lifetime is None else max(1, nanoseconds(lifetime))
        options.max_pulls = max_pulls
        if address is not None:
            options.set_address(address)
        offer: Offer = Offer.__new__(Offer)
        offer.op = begin(
            self, queue, user, None, lambda op_options, op: _core.table_offer(self, table, options, op_options, offer, op)
        )
        offer._adopt(self)
        return offer

    def pull(
        self,
        pool: Pool,
        tickets: Union[Bytes, Sequence[Bytes]],
        *,
        namespace: Optional[Namespace] = None,
        groups: Optional[Sequence[int]] = None,
        match: bool = True,
        retention: bool = True,
        queue: Optional[Queue] = None,
        user: int = 0,
        timeout: Optional[float] = None,
    ) -> Op:
        """Begins to pull a sequence into a pool; when the operation has ended well, its table() is the sequence."""
        options = _core.pull_options()
        if namespace is not None:
            options.set_ns(namespace._native)
        if groups is not None:
            options.set_groups(groups, len(groups))
        options.flags = (0 if match else _core.PULL_NO_MATCH) | (0 if retention else _core.PULL_NO_RETENTION)
        if isinstance(tickets, (bytes, bytearray, memoryview)):
            tickets = [tickets]
        given = list(tickets)
        op: Op = begin(
            pool, queue, user, timeout, lambda op_options, op: _core.table_pull(self, pool, given, options, op_options, op)
        )
        return op
