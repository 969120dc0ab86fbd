// SPDX-License-Identifier: Apache-2.0

package pagedkv

// #include "shim.h"
import "C"

import (
	"runtime"
	"time"
)

// Flags of NodeOptions.
const (
	NodePromote uint32 = 1 // an image that a reader takes from a slower tier is copied to the first one
	NodeCopy    uint32 = 2 // images are copied for readers, in place of opening the memory of host tiers to them
)

// NodeOptions is how a node is opened: pkv_node_options (node.h).
type NodeOptions struct {
	ClusterKey  []byte // 32 random bytes, a secret that all nodes share
	Name        string
	Listen      string // "host:port", port 0 = any; "" serves nothing
	Provider    string
	FabricHost  string
	Tiers       []*Tier // what is served, the fastest first
	Pools       []*Pool // whose geometry has to be that of the other nodes
	Identity    []byte
	ExportBytes uint64
	MaxGuests   uint32
	MaxLeases   uint32
	Lease       time.Duration
	Timeout     time.Duration
	Flags       uint32

	Directory       string // "redis://host:port,..."
	Advertise       string
	DirectoryPrefix string
	DirectoryPeers  uint32
	Heartbeat       time.Duration
	EntryTTL        time.Duration
}

// Node has page images of this process for others, and those of others for it: node.h.
type Node struct{ h *C.pkv_node }

// NewNode opens a node, and begins to listen if it shall.
func NewNode(o NodeOptions) (*Node, error) {
	var a arena
	defer a.free()
	c := C.pkvgo_node_options()
	c.cluster_key, c.identity = a.bytes(o.ClusterKey), a.bytes(o.Identity)
	c.name, c.listen, c.provider, c.fabric_host = a.text(o.Name), a.text(o.Listen), a.text(o.Provider), a.text(o.FabricHost)
	c.directory, c.advertise, c.directory_prefix = a.text(o.Directory), a.text(o.Advertise), a.text(o.DirectoryPrefix)
	c.directory_peers, c.heartbeat_ns, c.entry_ttl_ns = C.uint32_t(o.DirectoryPeers), nanoseconds(o.Heartbeat), nanoseconds(o.EntryTTL)
	tiers, pools := make([]*C.pkv_tier, len(o.Tiers)), make([]*C.pkv_pool, len(o.Pools))
	for i, tier := range o.Tiers {
		tiers[i] = tier.h
	}
	for i, pool := range o.Pools {
		pools[i] = pool.h
	}
	c.tiers, c.num_tiers = (**C.pkv_tier)(copied(&a, tiers)), C.uint32_t(len(tiers))
	c.pools, c.num_pools = (**C.pkv_pool)(copied(&a, pools)), C.uint32_t(len(pools))
	c.export_bytes, c.max_guests, c.max_leases = C.uint64_t(o.ExportBytes), C.uint32_t(o.MaxGuests), C.uint32_t(o.MaxLeases)
	c.lease_ns, c.timeout_ns, c.flags = nanoseconds(o.Lease), nanoseconds(o.Timeout), C.uint32_t(o.Flags)
	n := &Node{}
	if err := call(func() C.pkv_status { return C.pkv_node_open(&c, &n.h) }); err != nil {
		return nil, err
	}
	runtime.KeepAlive(o)
	runtime.SetFinalizer(n, func(n *Node) { _ = n.Close() })
	return n, nil
}

func (n *Node) call(f func() C.pkv_status) error {
	err := call(f)
	runtime.KeepAlive(n)
	return err
}

// Close stops listening and ends all connections.
func (n *Node) Close() error {
	err := n.call(func() C.pkv_status { return C.pkv_node_close(n.h) })
	if err == nil {
		runtime.SetFinalizer(n, nil)
	}
	return err
}

// Address is "host:port" at which others connect.
func (n *Node) Address() (string, error) {
	text, err := textOf(func(buffer *C.char, capacity C.uint64_t, size *C.uint64_t) C.pkv_status {
		return C.pkv_node_address(n.h, buffer, capacity, size)
	})
	runtime.KeepAlive(n)
	return text, err
}

// Connect adds a node to read from; a timeout of 0 does not wait for the first connection.
func (n *Node) Connect(address string, timeout time.Duration) error {
	var a arena
	defer a.free()
	return n.call(func() C.pkv_status { return C.pkv_node_connect(n.h, a.text(address), nanoseconds(timeout)) })
}

// Disconnect removes a node to read from.
func (n *Node) Disconnect(address string) error {
	var a arena
	defer a.free()
	return n.call(func() C.pkv_status { return C.pkv_node_disconnect(n.h, a.text(address)) })
}

// Tier is the images of the nodes it reads from, to be attached as ReadOnly.
func (n *Node) Tier() (*Tier, error) {
	t := &Tier{}
	if err := n.call(func() C.pkv_status { return C.pkv_node_tier(n.h, &t.h) }); err != nil {
		return nil, err
	}
	return t.opened(), nil
}

// Peer is a node to read from: connected, or why not.
type Peer struct {
	Address   string
	Name      string
	Connected bool
	Status    Status
}

// Peers gives the nodes it reads from.
func (n *Node) Peers() ([]Peer, error) {
	var count C.uint64_t
	if err := n.call(func() C.pkv_status { return C.pkv_node_peers(n.h, nil, 0, &count) }); err != nil {
		return nil, err
	}
	for {
		list := make([]C.pkv_node_peer, count+4) // some may come meanwhile
		for i := range list {
			list[i] = C.pkvgo_node_peer()
		}
		err := n.call(func() C.pkv_status { return C.pkv_node_peers(n.h, &list[0], C.uint64_t(len(list)), &count) })
		if err == nil {
			peers := make([]Peer, count)
			for i := range peers {
				c := &list[i]
				peers[i] = Peer{goText(c.address[:]), goText(c.name[:]), c.connected != 0, Status(c.status)}
			}
			return peers, nil
		}
		if err.(*Error).Status != ErrNoSpace || int(count) <= len(list) {
			return nil, err
		}
	}
}

// Stats gives the node's numbers.
func (n *Node) Stats() (NodeStats, error) {
	c := C.pkvgo_node_stats()
	err := n.call(func() C.pkv_status { return C.pkv_node_get_stats(n.h, &c) })
	return newNodeStats(&c), err
}
