// SPDX-License-Identifier: Apache-2.0
//! Nodes: page images of one process found and read by others.

use crate::error::{check, Failed, Result};
use crate::handle::Handle;
use crate::pool::filled;
use crate::text::{address, address_mut, bytes, c_string, c_string_or_null, count32, nanoseconds, text};
use crate::{NodePeer, NodeStats, Pool, Tier};
use pagedkv_sys as sys;
use std::{ffi::CString, fmt, os::raw::c_char, ptr, time::Duration};

/// What a node is made of.
#[derive(Clone, Default)]
pub struct NodeOptions<'a> {
    /// 32 random bytes, a secret that all nodes share
    pub cluster_key: Vec<u8>,
    /// For the others' statistics and messages, up to 256 bytes; none = "host/pid"
    pub name: Option<String>,
    /// "host:port" of the control connection, port 0 = any; none: serves nothing. Name the loopback address unless others shall
    /// come in
    pub listen: Option<String>,
    /// Of libfabric: "tcp", "net", "tcp;ofi_rxm", "shm" (one machine, one user), "verbs", "efa"; all nodes the same. None = the
    /// first that works of verbs, efa, net, tcp
    pub provider: Option<String>,
    /// Local address of the fabric, or the name of an interface; none = the host of `listen`, or loopback: who reads from other hosts
    /// over tcp or net, and does not listen, names one here
    pub fabric_host: Option<String>,
    /// What is served, the fastest first; up to 4. They stay open as long as the node
    pub tiers: Vec<&'a Tier>,
    /// Up to 64 pools whose geometry (layer groups, shard positions, element types ...) has to be that of the other node's;
    /// without pools any node is taken. Only looked at
    pub pools: Vec<&'a Pool>,
    /// Of the model, up to 4096 bytes, kept as a digest: nodes of another one are refused
    pub identity: Vec<u8>,
    /// Memory that others read from; 0 = 64 MiB
    pub export_bytes: u64,
    /// Connections of readers; 0 = 64
    pub max_guests: u32,
    /// Of one reader; 0 = 65536
    pub max_leases: u32,
    /// Zero = 30 seconds
    pub lease: Duration,
    /// Of connecting, and of answers and reads without a time of their own; zero = 5 seconds
    pub timeout: Duration,
    /// Servers of a directory, all nodes the same: `redis://[[user]:password@]host[:port][/database]`, several with commas
    /// between (up to 16); rediss:// with TLS. None: peers are named by [`Node::connect`]
    pub directory: Option<String>,
    /// "host:port", the address that the directory gives to others, port 0 = that of `listen`; a name is resolved once, here.
    /// None = the address of `listen`, which must not be a wildcard then
    pub advertise: Option<String>,
    /// Of names in the directory, up to 64 letters, digits and . _ - : (for access rules of the server; clusters and models are kept
    /// apart in any case); none = "pkv"
    pub directory_prefix: Option<String>,
    /// Nodes found through the directory that it is connected to, at most; 0 = 64
    pub directory_peers: u32,
    /// How often the address is written to the directory, where it stays for three times as long; zero = 5 seconds
    pub heartbeat: Duration,
    /// How long the directory keeps the word that a node has an image; a node renews it three times within that; zero = 10 minutes.
    /// Clocks of nodes must not differ by more
    pub entry_ttl: Duration,
    /// An image that a reader takes from a slower one of `tiers` is copied to the first, whatever it evicts there: a storage
    /// node's host memory then holds what is asked for. Copies are made in the background and belong to no namespace
    pub promote: bool,
    /// Images are copied for readers, into `export_bytes` of memory. Without it the memory of host tiers is opened to them as it is:
    /// readers, who have the cluster key, can read all that lies there, and do so without a copy and another message
    pub copy: bool,
}

impl fmt::Debug for NodeOptions<'_> {
    /// Without the cluster key and the directory's addresses, which have secrets in them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeOptions")
            .field("name", &self.name)
            .field("listen", &self.listen)
            .field("provider", &self.provider)
            .field("tiers", &self.tiers.len())
            .field("pools", &self.pools.len())
            .finish_non_exhaustive()
    }
}

/// A node. One that listens serves the images of the tiers that it is given. One that is connected to others has a tier of theirs
/// ([`Node::tier`]), which pools take like any other. One node may do both. It may be used from any thread.
///
/// Control is encrypted and authenticated under the cluster key; **page bytes are not encrypted** on the wire. No call waits longer
/// than the times given here. Nodes find each other through a directory, if they are given one. libfabric sits in a plug-in, which is loaded when the first node is opened.
///
/// When it is dropped it stops listening and ends all connections; its tier finds nothing from then on.
#[derive(Debug)]
pub struct Node {
    handle: Handle<sys::pkv_node>,
}

impl Node {
    /// Opens a node, and begins to listen if it shall.
    ///
    /// Servers of a directory are connected to in the background, and may come later.
    ///
    /// Fails with `Status::Unsupported` without a plug-in, the provider, or TLS for a directory; `Status::Io` when it cannot listen, with the system's
    /// reason; `Status::Limit` (memory that the system does not let be locked, too).
    pub fn open(options: &NodeOptions<'_>) -> Result<Self> {
        let own = |value: &Option<String>, name: &str| -> Result<Option<CString>> {
            value.as_ref().map(|value| c_string(value.as_str(), name)).transpose()
        };
        let (name, listen) = (own(&options.name, "name")?, own(&options.listen, "listen")?);
        let (provider, host) = (own(&options.provider, "provider")?, own(&options.fabric_host, "fabric_host")?);
        let (directory, advertise) = (own(&options.directory, "directory")?, own(&options.advertise, "advertise")?);
        let prefix = own(&options.directory_prefix, "directory_prefix")?;
        let tiers: Vec<_> = options.tiers.iter().map(|tier| tier.as_raw()).collect();
        let pools: Vec<_> = options.pools.iter().map(|pool| pool.as_raw()).collect();
        let mut raw = sys::PKV_NODE_OPTIONS_INIT;
        raw.cluster_key = bytes(&options.cluster_key);
        raw.name = c_string_or_null(&name);
        raw.listen = c_string_or_null(&listen);
        raw.provider = c_string_or_null(&provider);
        raw.fabric_host = c_string_or_null(&host);
        raw.tiers = address(&tiers);
        raw.num_tiers = count32(tiers.len(), "tiers")?;
        raw.num_pools = count32(pools.len(), "pools")?;
        raw.pools = address(&pools);
        raw.identity = bytes(&options.identity);
        raw.export_bytes = options.export_bytes;
        raw.max_guests = options.max_guests;
        raw.max_leases = options.max_leases;
        raw.lease_ns = nanoseconds(options.lease);
        raw.timeout_ns = nanoseconds(options.timeout);
        raw.directory = c_string_or_null(&directory);
        raw.advertise = c_string_or_null(&advertise);
        raw.directory_prefix = c_string_or_null(&prefix);
        raw.directory_peers = options.directory_peers;
        raw.heartbeat_ns = nanoseconds(options.heartbeat);
        raw.entry_ttl_ns = nanoseconds(options.entry_ttl);
        raw.flags |= if options.promote { sys::PKV_NODE_PROMOTE } else { 0 };
        raw.flags |= if options.copy { sys::PKV_NODE_COPY } else { 0 };
        Ok(Self { handle: Handle::made(|out| unsafe { sys::pkv_node_open(&raw, out) })? })
    }

    /// Takes over a handle, for example one that C code made.
    ///
    /// # Safety
    /// Nobody else closes it, and whoever else uses it keeps to the rules of threads. (A handle that is closed, or NULL, does no harm:
    /// everything but dropping answers `Status::Handle`.)
    pub unsafe fn from_raw(raw: *mut sys::pkv_node) -> Self {
        Self { handle: Handle::of(raw) }
    }

    /// The handle, which is somebody else's to close from now on.
    pub fn into_raw(mut self) -> *mut sys::pkv_node {
        self.handle.take()
    }

    /// The C API's handle, for calls that this crate does not have. It belongs to the node.
    pub fn as_raw(&self) -> *mut sys::pkv_node {
        self.handle.raw()
    }

    /// Closes the node, as dropping it does. Reads under way have ended when the call returns.
    pub fn close(self) -> std::result::Result<(), Failed<Self>> {
        self.handle.close(self, |raw| unsafe { sys::pkv_node_close(raw) }, |node| &mut node.handle)
    }

    /// The address at which others connect: "host:port".
    ///
    /// Fails with `Status::State` for a node that does not listen.
    pub fn address(&self) -> Result<String> {
        let mut size = 0;
        check(unsafe { sys::pkv_node_address(self.as_raw(), ptr::null_mut(), 0, &mut size) })?;
        let mut buffer: Vec<c_char> = filled(0, usize::try_from(size).ok(), "bytes")?;
        check(unsafe { sys::pkv_node_address(self.as_raw(), buffer.as_mut_ptr(), size, &mut size) })?;
        Ok(text(&buffer))
    }

    /// Adds a node to read from. A connection that ends, or does not come, is tried again, at longer and longer intervals up to ten
    /// seconds, until [`Node::disconnect`].
    ///
    /// * `peer`: "host:port"
    /// * `timeout`: longest wait for the first connection; zero = do not wait
    ///
    /// Fails with `Status::Timeout` (it is still being tried); `Status::Mismatch` when the other side refused, or is another model,
    /// geometry, protocol or cluster (the peer is not kept); `Status::State` when it is a peer already; `Status::Limit` at 1024 peers.
    pub fn connect(&self, peer: &str, timeout: Duration) -> Result<()> {
        let peer = c_string(peer, "address")?;
        check(unsafe { sys::pkv_node_connect(self.as_raw(), peer.as_ptr(), nanoseconds(timeout)) })
    }

    /// Removes a node to read from.
    pub fn disconnect(&self, peer: &str) -> Result<()> {
        let peer = c_string(peer, "address")?;
        check(unsafe { sys::pkv_node_disconnect(self.as_raw(), peer.as_ptr()) })
    }

    /// The images of the nodes it reads from, as a tier; the same one at each call. Attach it as
    /// [`TierAttachment::read_only`](crate::TierAttachment::read_only), after the pool's own tiers.
    pub fn tier(&self) -> Result<Tier> {
        Ok(Tier::of(Handle::made(|out| unsafe { sys::pkv_node_tier(self.as_raw(), out) })?))
    }

    /// The nodes it reads from.
    pub fn peers(&self) -> Result<Vec<NodePeer>> {
        loop {
            let mut count = 0;
            check(unsafe { sys::pkv_node_peers(self.as_raw(), ptr::null_mut(), 0, &mut count) })?;
            // There may be more by the time that they are asked for.
            let mut peers = filled(sys::PKV_NODE_PEER_INIT, usize::try_from(count).ok(), "peers")?;
            let (capacity, out) = (peers.len() as u64, address_mut(&mut peers));
            let status = unsafe { sys::pkv_node_peers(self.as_raw(), out, capacity, &mut count) };
            if status == sys::PKV_ERR_NO_SPACE || count > capacity {
                continue;
            }
            check(status)?;
            peers.truncate(count as usize);
            return Ok(peers.into_iter().map(NodePeer::from).collect());
        }
    }

    /// Numbers of the node.
    pub fn stats(&self) -> Result<NodeStats> {
        let mut raw = sys::PKV_NODE_STATS_INIT;
        check(unsafe { sys::pkv_node_get_stats(self.as_raw(), &mut raw) })?;
        Ok(raw.into())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !self.handle.is_closed() {
            unsafe { sys::pkv_node_close(self.as_raw()) };
        }
    }
}
