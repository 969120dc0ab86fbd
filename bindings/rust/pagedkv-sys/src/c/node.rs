// SPDX-License-Identifier: Apache-2.0
// Written by generate.py from the headers: not to be edited.
//! Nodes: page images of one process found and read by others.
//!
//! A node that listens serves the images of the tiers that it is given. A node that is connected to others has
//! a tier of theirs (`pkv_node_tier`), which pools take like any other (`pkv_pool_options.tiers`): matches,
//! restores and prefetch sessions read through it. One node may do both. Nodes store nothing in each other.
//!
//! Control (who has what, where it lies) runs over a TCP connection for each pair, encrypted and authenticated
//! under the cluster key: X25519, BLAKE2b and XChaCha20-Poly1305 of libsodium. Page bytes move one-sided over
//! libfabric, into the reader's staging memory; only reads are ever opened to others, so that no peer can write
//! into this process. PAGE BYTES ARE NOT ENCRYPTED on the wire, and who can see or forge packets of the fabric
//! network can see or spoil them (spoiled ones are detected: every image is checked in full). Keep the fabric
//! on a network of its own, or run it inside a tunnel.
//!
//! An image that is found is leased to the reader: it stays for that long. A lease that ends, a peer that dies,
//! bytes that do not arrive in time or are not the image: each is a miss, and counted. No call waits longer
//! than the times given here.
//!
//! Clearing a pool (`pkv_pool_clear`) reaches its own tiers, and with them what its node serves; what other
//! nodes have stays, and is found again. When weights change in place, clear the pools of every node, or give
//! what is computed from then on another namespace (`pkv_namespace.adapter_generation`, or another model).
//!
//! Nodes find each other through a directory, if they are given one: Redis or Valkey servers, each of which
//! knows of a part of all images. A node that listens writes there where it is
//! (`pkv_node_options.heartbeat_ns`) and which images its tiers have (entry_ttl_ns), as they come and go, and
//! takes it back when it is closed. A lookup in the node's tier asks the directory who has the images, in one
//! round trip, and connects to those nodes. A server that is down, stopped or full of rubbish costs hits, and
//! nothing else: no wait for it is longer than half of the lookup's time or half a second; nothing that it says
//! is believed: addresses are proven under the cluster key, nodes show that they have it, and what they have
//! they are asked themselves. The names of entries are keyed digests: who reads the server learns how many
//! images there are, not what they are of. The servers need no persistence. They are Redis or Valkey 5 or
//! later, each by itself (not of a Redis Cluster); what a user of theirs needs to be allowed is AUTH, SELECT,
//! PING, MULTI, EXEC, SET, DEL, GETRANGE, ZADD, ZREM, ZREMRANGEBYSCORE, ZREVRANGE and PEXPIRE on names that
//! begin with directory_prefix.
//!
//! libfabric sits in a plug-in, libpagedkv-fabric.so, in the folder pagedkv/ beside the library (or
//! `PKV_PLUGIN_DIR`); it is loaded when the first node is opened. Without it `pkv_node_open` gives
//! `PKV_ERR_UNSUPPORTED` with the reason; so it does for a node with a directory without libpagedkv-redis.so,
//! which has hiredis in it.
//!
//! Thread-safety: every call here, from any thread.

#[allow(unused_imports)]
use super::*;

/// `PKV_CLUSTER_KEY_BYTES` of `node.h`.
pub const PKV_CLUSTER_KEY_BYTES: i32 = 32;

/// An image that a reader takes from a slower one of `tiers` is copied to the first, whatever it evicts there:
/// a storage node's host memory then holds what is asked for. Copies are made in the background, at most 64 MiB
/// at a time, and others are not made. They belong to no namespace: `pkv_pool_clear` of one leaves them
pub const PKV_NODE_PROMOTE: u32 = 1;

/// Images are copied for readers, into export_bytes of memory. Without it the memory of host tiers is opened to
/// them as it is: readers, who have the cluster key, can read all that lies there, and do so without a copy and
/// another message; over RDMA it is locked. What cannot be opened is copied in any case
pub const PKV_NODE_COPY: u32 = 2;

/// See the functions that take a `pkv_node_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_node_options {
    /// `struct_size`.
    pub struct_size: usize,
    /// `PKV_CLUSTER_KEY_BYTES` random bytes, a secret that all nodes share; copied
    pub cluster_key: pkv_bytes,
    /// For the others' statistics and messages, up to 256 bytes; NULL = "host/pid"
    pub name: *const c_char,
    /// "host:port" of the control connection, port 0 = any; NULL: serves nothing. Name the loopback address unless
    /// others shall come in
    pub listen: *const c_char,
    /// Of libfabric: "tcp", "net", "tcp;ofi_rxm", "shm" (one machine, one user), "verbs", "efa"; all nodes the
    /// same. NULL = the first that works of verbs, efa, net, tcp
    pub provider: *const c_char,
    /// Local address of the fabric, or the name of an interface; NULL = the host of `listen`, or loopback: who
    /// reads from other hosts over tcp or net, and does not listen, names one here
    pub fabric_host: *const c_char,
    /// num_tiers of them: what is served, the fastest first. They stay open as long as the node
    pub tiers: *const *mut pkv_tier,
    /// 0 .. `PKV_MAX_TIERS`
    pub num_tiers: u32,
    /// 0 .. 64
    pub num_pools: u32,
    /// num_pools of them: whose geometry (layer groups, shard positions, element types ...) has to be that of the
    /// other node's; without pools any node is taken. Only looked at
    pub pools: *const *mut pkv_pool,
    /// Of the model, up to 4096 bytes, kept as a digest: nodes of another one are refused
    pub identity: pkv_bytes,
    /// Memory into which images are copied that others read; 0 = 64 MiB
    pub export_bytes: u64,
    /// Connections of readers; 0 = 64
    pub max_guests: u32,
    /// Of one reader; 0 = 65536
    pub max_leases: u32,
    /// 0 = 30 seconds
    pub lease_ns: u64,
    /// Of connecting, and of answers and reads without a time of their own; 0 = 5 seconds
    pub timeout_ns: u64,
    /// `PKV_NODE_*`
    pub flags: u32,
    /// Nodes found through the directory that it is connected to, at most; 0 = 64
    pub directory_peers: u32,
    /// Servers, all nodes the same: "redis://\[\[user\]:password@\]host\[:port\]\[/database\]", several with commas
    /// between (up to 16); rediss:// with TLS. NULL: none, peers are named by `pkv_node_connect`
    pub directory: *const c_char,
    /// "host:port", the address that the directory gives to others, port 0 = that of `listen`; a name is resolved
    /// once, here. NULL = the address of `listen`, which must not be a wildcard then
    pub advertise: *const c_char,
    /// Of names in the directory, up to 64 letters, digits and . _ - : (for access rules of the server; clusters
    /// and models are kept apart in any case); NULL = "pkv"
    pub directory_prefix: *const c_char,
    /// How often the address is written to the directory, where it stays for three times as long; 1 ms .. 1 hour; 0
    /// = 5 seconds
    pub heartbeat_ns: u64,
    /// How long the directory keeps the word that a node has an image; a node renews it three times within that; 1
    /// ms .. 30 days; 0 = 10 minutes. Clocks of nodes must not differ by more
    pub entry_ttl_ns: u64,
}

/// Initial value of [`pkv_node_options`].
pub const PKV_NODE_OPTIONS_INIT: pkv_node_options = pkv_node_options { struct_size: size_of::<pkv_node_options>(), cluster_key: pkv_bytes { data: ptr::null(), size: 0 }, name: ptr::null(), listen: ptr::null(), provider: ptr::null(), fabric_host: ptr::null(), tiers: ptr::null(), num_tiers: 0, num_pools: 0, pools: ptr::null(), identity: pkv_bytes { data: ptr::null(), size: 0 }, export_bytes: 0, max_guests: 0, max_leases: 0, lease_ns: 0, timeout_ns: 0, flags: 0, directory_peers: 0, directory: ptr::null(), advertise: ptr::null(), directory_prefix: ptr::null(), heartbeat_ns: 0, entry_ttl_ns: 0 };

/// See the functions that take a `pkv_node_peer`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_node_peer {
    /// `struct_size`.
    pub struct_size: usize,
    /// `address`.
    pub address: [c_char; 264],
    /// As the peer calls itself; empty before the first connection
    pub name: [c_char; 264],
    /// 1 or 0
    pub connected: i32,
    /// `PKV_OK`, or why it is not connected
    pub status: pkv_status,
}

/// Initial value of [`pkv_node_peer`].
pub const PKV_NODE_PEER_INIT: pkv_node_peer = pkv_node_peer { struct_size: size_of::<pkv_node_peer>(), address: [0; 264], name: [0; 264], connected: 0, status: 0 };

/// See the functions that take a `pkv_node_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_node_stats {
    /// `struct_size`.
    pub struct_size: usize,
    /// Of libfabric that is used
    pub provider: [c_char; 64],
    /// Gauge: readers that are connected
    pub guests: u64,
    /// Connections that came to be
    pub accepted: u64,
    /// That did not: another key, protocol, model, geometry; or too many
    pub refused: u64,
    /// Keys asked for
    pub lookups_served: u64,
    /// Ranges of images that readers had copied: of others they only ask where they lie
    pub fetches_served: u64,
    /// Of them
    pub bytes_served: u64,
    /// Gauge: images that are leased
    pub leases: u64,
    /// `expired_leases`.
    pub expired_leases: u64,
    /// Each ended its connection
    pub bad_messages: u64,
    /// Gauge: nodes to read from
    pub peers: u64,
    /// Gauge
    pub connected_peers: u64,
    /// Ranges of images read
    pub reads: u64,
    /// `failed_reads`.
    pub failed_reads: u64,
    /// `bytes_read`.
    pub bytes_read: u64,
    /// `late_answers`.
    pub late_answers: u64,
    /// Connections that ended
    pub reconnects: u64,
    /// Images copied to the first tier (`PKV_NODE_PROMOTE`)
    pub promoted: u64,
    /// Gauge
    pub open_offers: u64,
    /// Made
    pub offers: u64,
    /// `expired_offers`.
    pub expired_offers: u64,
    /// Of our offers, to the end
    pub pulls_served: u64,
    /// That ended before
    pub failed_pulls_served: u64,
    /// Of sequences, put where pullers read them
    pub handed_bytes: u64,
    /// Of ours, that ended well
    pub pulls: u64,
    /// Cancelled ones, too
    pub failed_pulls: u64,
    /// Of rows, checked and written into pages
    pub pulled_bytes: u64,
    /// Gauge: servers
    pub directory_endpoints: u64,
    /// Gauge: of them connected
    pub directory_endpoints_up: u64,
    /// Gauge: of `peers`, those that it has led to
    pub directory_peers: u64,
    /// Images asked for
    pub directory_lookups: u64,
    /// Of them, those of which it named another node
    pub directory_hits: u64,
    /// Of them, those of which nothing was heard in time; entries that it refused
    pub directory_failures: u64,
    /// Entries written, renewals too
    pub directory_published: u64,
    /// Changes of tiers that could not wait until they are written (65,536 for each server that is slow or down):
    /// made up for by the next renewal
    pub directory_dropped: u64,
    /// Read there, and written by no node of this cluster; names that something else has
    pub directory_bad_entries: u64,
}

/// Initial value of [`pkv_node_stats`].
pub const PKV_NODE_STATS_INIT: pkv_node_stats = pkv_node_stats { struct_size: size_of::<pkv_node_stats>(), provider: [0; 64], guests: 0, accepted: 0, refused: 0, lookups_served: 0, fetches_served: 0, bytes_served: 0, leases: 0, expired_leases: 0, bad_messages: 0, peers: 0, connected_peers: 0, reads: 0, failed_reads: 0, bytes_read: 0, late_answers: 0, reconnects: 0, promoted: 0, open_offers: 0, offers: 0, expired_offers: 0, pulls_served: 0, failed_pulls_served: 0, handed_bytes: 0, pulls: 0, failed_pulls: 0, pulled_bytes: 0, directory_endpoints: 0, directory_endpoints_up: 0, directory_peers: 0, directory_lookups: 0, directory_hits: 0, directory_failures: 0, directory_published: 0, directory_dropped: 0, directory_bad_entries: 0 };

/// `PKV_MAX_TICKET_BYTES` of `node.h`.
pub const PKV_MAX_TICKET_BYTES: i32 = 512;

/// Of one pull
pub const PKV_MAX_TICKETS: i32 = 64;

/// `PKV_PULLS_UNLIMITED` of `node.h`.
pub const PKV_PULLS_UNLIMITED: u32 = u32::MAX;

/// `PKV_ALL_GROUPS` of `node.h`.
pub const PKV_ALL_GROUPS: u32 = u32::MAX;

/// `PKV_ALL_LAYERS` of `node.h`.
pub const PKV_ALL_LAYERS: u32 = u32::MAX;

/// See the functions that take a `pkv_offer_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_offer_options {
    /// `struct_size`.
    pub struct_size: usize,
    /// 0 = those that are committed. More: tokens that are named already; their rows come as `pkv_offer_ready` says
    pub num_tokens: u64,
    /// Of the ticket: when it is over the pages are let go, pulls under way fail; 0 = 60 seconds
    pub lifetime_ns: u64,
    /// "host:port" at which the puller reaches the node; NULL = `pkv_node_options.advertise`, or the address of
    /// `listen`
    pub address: *const c_char,
    /// After so many that went well the offer has ended: 2 if two shards pull it; 0 = 1; `PKV_PULLS_UNLIMITED`
    pub max_pulls: u32,
    /// 0
    pub reserved: u32,
}

/// Initial value of [`pkv_offer_options`].
pub const PKV_OFFER_OPTIONS_INIT: pkv_offer_options = pkv_offer_options { struct_size: size_of::<pkv_offer_options>(), num_tokens: 0, lifetime_ns: 0, address: ptr::null(), max_pulls: 0, reserved: 0 };

/// See the functions that take a `pkv_offer_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_offer_info {
    /// `struct_size`.
    pub struct_size: usize,
    /// `PKV_ERR_BUSY` while it is open; `PKV_OK`: pulled max_pulls times; `PKV_ERR_TIMEOUT`: expired;
    /// `PKV_ERR_CLOSED`: its pool or node was closed; `PKV_ERR_CANCELLED`: withdrawn
    pub status: pkv_status,
    /// That went well
    pub pulls: u32,
    /// Under way
    pub open_pulls: u32,
    /// `failed_pulls`.
    pub failed_pulls: u32,
    /// Offered
    pub num_tokens: u64,
    /// Of them, ready in all layers
    pub ready_tokens: u64,
    /// Until it expires
    pub left_ns: u64,
}

/// Initial value of [`pkv_offer_info`].
pub const PKV_OFFER_INFO_INIT: pkv_offer_info = pkv_offer_info { struct_size: size_of::<pkv_offer_info>(), status: 0, pulls: 0, open_pulls: 0, failed_pulls: 0, num_tokens: 0, ready_tokens: 0, left_ns: 0 };

/// Transfers blocks that the pool has already, too
pub const PKV_PULL_NO_MATCH: u32 = 1;

/// Leaves the giver's retention behind
pub const PKV_PULL_NO_RETENTION: u32 = 2;

/// See the functions that take a `pkv_pull_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_pull_options {
    /// `struct_size`.
    pub struct_size: usize,
    /// That the sequence has to be of, or `PKV_ERR_MISMATCH`; NULL = whichever it is
    pub ns: *const pkv_namespace,
    /// num_groups of them: for each layer group of the pool, the givers' group that it is; NULL = the one of the
    /// same number
    pub groups: *const u32,
    /// 0, or as many as the pool has
    pub num_groups: u32,
    /// `PKV_PULL_*`
    pub flags: u32,
}

/// Initial value of [`pkv_pull_options`].
pub const PKV_PULL_OPTIONS_INIT: pkv_pull_options = pkv_pull_options { struct_size: size_of::<pkv_pull_options>(), ns: ptr::null(), groups: ptr::null(), num_groups: 0, flags: 0 };

extern "C" {
    /// Opens a node, and begins to listen if it shall. Servers of a directory are connected to in the background,
    /// and may come later.
    ///
    /// * Returns `PKV_OK`; `PKV_ERR_UNSUPPORTED` without a plug-in, the provider, or TLS for a directory;
    ///   `PKV_ERR_IO` when it cannot listen, or resolve `advertise`, with the system's reason; `PKV_ERR_INVALID`;
    ///   `PKV_ERR_LIMIT` (memory that the system does not let be locked, too); `PKV_ERR_NO_MEMORY`;
    ///   `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_node_open(options: *const pkv_node_options, node: *mut *mut pkv_node) -> pkv_status;

    /// Closes a node: stops listening, ends all connections. Its tier finds nothing from now on; reads under way
    /// have ended when the call returns.
    ///
    /// * Returns `PKV_OK`; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_node_close(node: *mut pkv_node) -> pkv_status;

    /// The address at which others connect: "host:port".
    ///
    /// * `buffer`: out, terminated; may be NULL when capacity is 0
    /// * `capacity`: bytes at buffer; 0 asks for the size only
    /// * `size`: out, bytes with the terminator
    /// * Returns `PKV_OK`; `PKV_ERR_STATE` for a node that does not listen; `PKV_ERR_NO_SPACE`; `PKV_ERR_INVALID`;
    ///   `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_node_address(node: *mut pkv_node, buffer: *mut c_char, capacity: u64, size: *mut u64) -> pkv_status;

    /// Adds a node to read from. A connection that ends, or does not come, is tried again, at longer and longer
    /// intervals up to ten seconds, until `pkv_node_disconnect`.
    ///
    /// * `address`: "host:port"
    /// * `timeout_ns`: longest wait for the first connection; 0 = do not wait
    /// * Returns `PKV_OK`; `PKV_ERR_TIMEOUT` (it is still being tried); `PKV_ERR_MISMATCH` when the other side
    ///   refused, or is another model, geometry, protocol or cluster, or on another host while one of the two has
    ///   its fabric on loopback (the peer is not kept); `PKV_ERR_STATE` when it is a peer already (one that the
    ///   directory has led to stays from now on, and gives `PKV_OK`); `PKV_ERR_INVALID`; `PKV_ERR_LIMIT` at 1024
    ///   peers; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_node_connect(node: *mut pkv_node, address: *const c_char, timeout_ns: u64) -> pkv_status;

    /// Removes a node to read from; a directory may lead to it again.
    ///
    /// * Returns `PKV_OK`; `PKV_ERR_NOT_FOUND`; `PKV_ERR_HANDLE`. Thread-safe.
    ///
    /// Since 0.1.
    pub fn pkv_node_disconnect(node: *mut pkv_node, address: *const c_char) -> pkv_status;

    /// The images of the nodes it reads from, as a tier; the same one at each call, with a handle to be closed for
    /// each. Attach it as `PKV_TIER_READ_ONLY`, after the pool's own tiers.
    ///
    /// * Returns `PKV_OK`; `PKV_ERR_LIMIT`; `PKV_ERR_HANDLE`; `PKV_ERR_INVALID`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_node_tier(node: *mut pkv_node, tier: *mut *mut pkv_tier) -> pkv_status;

    /// The nodes it reads from, those that a directory has led to included.
    ///
    /// * `peers`: out; the first one's struct_size is the distance between elements
    /// * `capacity`: entries at peers; 0 asks for the number only
    /// * `count`: out
    /// * Returns `PKV_OK`; `PKV_ERR_NO_SPACE`; `PKV_ERR_INVALID`; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_node_peers(node: *mut pkv_node, peers: *mut pkv_node_peer, capacity: u64, count: *mut u64) -> pkv_status;

    /// * Returns `PKV_OK`; `PKV_ERR_INVALID`; `PKV_ERR_HANDLE`. Thread-safe. Since 0.1.
    pub fn pkv_node_get_stats(node: *mut pkv_node, stats: *mut pkv_node_stats) -> pkv_status;

    /// Offers a table's sequence to be pulled. Its pages have counts for the offer from now on; the table may go
    /// on, be truncated or destroyed.
    ///
    /// * `options`: NULL = defaults
    /// * `op_options`: how the offer's end is reported (timeout_ns is not used), or NULL. Its operation has
    ///   max_pulls items (one if they are unlimited), each ends with a pull that went well; an offer that ends
    ///   before gives the others `PKV_ERR_CANCELLED` when it was closed, `PKV_ERR_TIMEOUT` when it expired,
    ///   `PKV_ERR_CLOSED` with its pool or node
    /// * `offer`: out: `pkv_offer_close`
    /// * `op`: out: `pkv_op_close` (`pkv_op_cancel` withdraws the offer); NULL = not wanted
    /// * Returns `PKV_OK`; `PKV_ERR_STATE` for a node that does not listen, before admit, when offered tokens are
    ///   not named, or none is committed and options-\>num_tokens is 0; `PKV_ERR_NOT_RESIDENT` when blocks are in
    ///   tiers, or a window has passed some that are needed; `PKV_ERR_UNSUPPORTED` for a pool without memory, or in
    ///   a device's; `PKV_ERR_LIMIT` at 65536 open offers, or above 2^28 bytes of tokens and media;
    ///   `PKV_ERR_INVALID`; `PKV_ERR_CLOSED`; `PKV_ERR_NO_MEMORY`; `PKV_ERR_HANDLE`
    ///
    /// The node: thread-safe; the table: as in table.h. Since 0.1.
    pub fn pkv_table_offer(node: *mut pkv_node, table: *mut pkv_table, options: *const pkv_offer_options, op_options: *const pkv_op_options, offer: *mut *mut pkv_offer, op: *mut *mut pkv_op) -> pkv_status;

    /// The offer's ticket: bytes for the puller, to be sent with the request.
    ///
    /// * `buffer`: out; may be NULL when capacity is 0
    /// * `capacity`: bytes at buffer; `PKV_MAX_TICKET_BYTES` is enough; 0 asks for the size only
    /// * `size`: out
    /// * Returns `PKV_OK`; `PKV_ERR_NO_SPACE`; `PKV_ERR_INVALID`; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_offer_ticket(offer: *mut pkv_offer, buffer: *mut c_void, capacity: u64, size: *mut u64) -> pkv_status;

    /// Says that the rows of the first `num_tokens` tokens are written in a layer, and will not change any more:
    /// pullers get them from now on, before the tokens are committed. Room for them is reserved (a copy on write of
    /// the last block is noticed). What was committed when the offer was made is ready by itself. Counted from the
    /// start: repeating a call, or less than there is already, does nothing.
    ///
    /// * `group`: `PKV_ALL_GROUPS`: all of them
    /// * `layer`: of the group; `PKV_ALL_LAYERS`: all of them (always, with `PKV_ALL_GROUPS`)
    /// * `sync`: work that still writes the rows; NULL = none
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID` for more tokens than are offered, or no such layer;
    ///   `PKV_ERR_NOT_RESIDENT` when there is no page for them; `PKV_ERR_STATE` once the offer has ended, or when
    ///   the table is gone, has another sequence, other tokens, or was truncated below what was committed;
    ///   `PKV_ERR_TIMEOUT`; `PKV_ERR_HANDLE`
    ///
    /// By the thread that has the table. Since 0.1.
    pub fn pkv_offer_ready(offer: *mut pkv_offer, group: u32, layer: u32, num_tokens: u64, sync: *const pkv_sync) -> pkv_status;

    /// * Returns `PKV_OK`; `PKV_ERR_INVALID`; `PKV_ERR_HANDLE`. Thread-safe. Since 0.1.
    pub fn pkv_offer_get_info(offer: *mut pkv_offer, info: *mut pkv_offer_info) -> pkv_status;

    /// Withdraws the offer, unless it has ended, and closes its handle. Pulls under way fail. When it returns the
    /// offer holds no pages.
    ///
    /// * Returns `PKV_OK`; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_offer_close(offer: *mut pkv_offer) -> pkv_status;

    /// Begins to pull a sequence. The operation has an item for each layer of the pool, group after group: one that
    /// has ended well has all its rows in pages. It ends when everything is there, checked, committed and
    /// published, and `pkv_pull_table` gives the table; or it fails, with a message in `pkv_op_wait` and
    /// `pkv_pull_table`, and leaves nothing in the pool (what was evicted to make room is gone). A connection that
    /// breaks is made again a few times.
    ///
    /// * `pool`: where the sequence shall go
    /// * `num_tickets`: 1 .. `PKV_MAX_TICKETS`; several, when only together they have all layers and heads of the
    ///   pool
    /// * `tickets`: copied
    /// * `options`: NULL = defaults
    /// * `op_options`: NULL = defaults; timeout_ns counts in all, waiting for the giver's layers included
    /// * `op`: out: poll, wait, cancel, `pkv_pull_table`, close. NULL only with a queue
    /// * Returns `PKV_OK` when it has begun; `PKV_ERR_INVALID` for what is no ticket; `PKV_ERR_MISMATCH` for a
    ///   ticket of another cluster's key, or that was changed; `PKV_ERR_UNSUPPORTED` for a pool without memory, or
    ///   in a device's; `PKV_ERR_BUSY` at 256 pulls under way; `PKV_ERR_CLOSED`; `PKV_ERR_LIMIT`;
    ///   `PKV_ERR_NO_MEMORY`; `PKV_ERR_HANDLE` Of the operation: `PKV_OK`; `PKV_ERR_NOT_FOUND` when the giver has
    ///   no such offer (any more): expired, withdrawn, pulled, or the giver was started again; `PKV_ERR_IO` when
    ///   the giver is not reached, is gone, or its bytes were spoiled on the way; `PKV_ERR_MISMATCH` for another
    ///   geometry, namespace, model, protocol or cluster key, with both sides' values; `PKV_ERR_NO_PAGES`,
    ///   `PKV_ERR_AGAIN` as `pkv_table_admit`; `PKV_ERR_TIMEOUT`; `PKV_ERR_CANCELLED`; `PKV_ERR_CLOSED`;
    ///   `PKV_ERR_LIMIT` for rows of more than 2^20 bytes, or than a quarter of the giver's export_bytes;
    ///   `PKV_ERR_NO_MEMORY`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_table_pull(node: *mut pkv_node, pool: *mut pkv_pool, num_tickets: u32, tickets: *const pkv_bytes, options: *const pkv_pull_options, op_options: *const pkv_op_options, op: *mut *mut pkv_op) -> pkv_status;

    /// Takes the table out of a pull that has ended well; `pkv_table_destroy` it. An operation that is closed
    /// before takes its table with it (its blocks stay cached).
    ///
    /// * `table`: out
    /// * Returns `PKV_OK`; `PKV_ERR_BUSY` while the pull is under way; what it failed with; `PKV_ERR_STATE` for an
    ///   operation that is no pull, or whose table was taken; `PKV_ERR_LIMIT`; `PKV_ERR_INVALID`; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pull_table(op: *mut pkv_op, table: *mut *mut pkv_table) -> pkv_status;
}
