// SPDX-License-Identifier: Apache-2.0

// Package pagedkv is libpagedkv: a paged KV cache for LLM inference engines.
//
// Objects have a Close; one that is not closed is when it is collected. Closing twice, and use after Close, give ErrHandle; objects
// may be closed in any order. Pools, tiers, queues, operations and nodes may be used by any number of goroutines; a table, a batch
// or a session by one at a time, which is checked (ErrBusy). Slices are the caller's: checked before each call, and not kept
// after it. The numbers and what they mean are those of the C headers.
package pagedkv

// #cgo pkg-config: pagedkv
// #cgo CFLAGS: -std=c11
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"bytes"
	"os"
	"runtime"
)

func init() {
	if int(C.pkv_version_number())/100 != C.PKV_VERSION_NUMBER/100 {
		panic("pagedkv: built for version " + C.PKV_VERSION_STRING + " of libpagedkv, this is " + Version())
	}
	// libfabric, which the first node loads, may bring libinfinipath in, and that takes signals that the runtime lives by, unless
	// it is told not to.
	if _, set := os.LookupEnv("IPATH_NO_BACKTRACE"); !set {
		os.Setenv("IPATH_NO_BACKTRACE", "1")
	}
}

// Version is that of the library that runs, for example "0.1.0".
func Version() string { return C.GoString(C.pkv_version_string()) }

// VersionNumber is the same as a number: major * 10000 + minor * 100 + patch.
func VersionNumber() int { return int(C.pkv_version_number()) }

// CPUKernels is the name of the host kernels that this process runs.
func CPUKernels() string { return C.GoString(C.pkv_cpu_kernels()) }

// Digest is BLAKE2b-256 of the parts, each preceded by its size.
func Digest(parts ...[]byte) [32]byte {
	sizes := make([]C.uint64_t, len(parts)+1)
	for i, part := range parts {
		sizes[i] = C.uint64_t(len(part))
	}
	all := append(bytes.Join(parts, nil), 0)
	var digest [32]C.uint8_t
	if err := call(func() C.pkv_status {
		return C.pkvgo_digest(pointer(all), &sizes[0], C.uint64_t(len(parts)), &digest[0])
	}); err != nil {
		panic(err) // no memory
	}
	var out [32]byte
	for i := range digest {
		out[i] = byte(digest[i])
	}
	return out
}

// Sources are what Prometheus writes about; the keys become labels.
type Sources struct {
	Pools    map[string]*Pool
	Tiers    map[string]*Tier
	Sessions map[string]*Session
	Nodes    map[string]*Node
}

// Prometheus gives statistics in Prometheus' text format.
func Prometheus(from Sources) (string, error) {
	var a arena
	defer a.free()
	sources := C.pkvgo_prometheus_sources()
	pools, tiers, sessions, nodes := []*C.pkv_pool{}, []*C.pkv_tier{}, []*C.pkv_prefetch{}, []*C.pkv_node{}
	var names [4][]string
	for name, pool := range from.Pools {
		pools, names[0] = append(pools, pool.h), append(names[0], name)
	}
	for name, tier := range from.Tiers {
		tiers, names[1] = append(tiers, tier.h), append(names[1], name)
	}
	for name, session := range from.Sessions {
		sessions, names[2] = append(sessions, session.h), append(names[2], name)
	}
	for name, node := range from.Nodes {
		nodes, names[3] = append(nodes, node.h), append(names[3], name)
	}
	sources.nodes, sources.num_nodes = (**C.pkv_node)(copied(&a, nodes)), C.uint64_t(len(nodes))
	sources.node_names = a.texts(names[3])
	sources.pools, sources.num_pools = (**C.pkv_pool)(copied(&a, pools)), C.uint64_t(len(pools))
	sources.tiers, sources.num_tiers = (**C.pkv_tier)(copied(&a, tiers)), C.uint64_t(len(tiers))
	sources.sessions, sources.num_sessions = (**C.pkv_prefetch)(copied(&a, sessions)), C.uint64_t(len(sessions))
	sources.pool_names, sources.tier_names, sources.session_names = a.texts(names[0]), a.texts(names[1]), a.texts(names[2])
	text, err := textOf(func(buffer *C.char, capacity C.uint64_t, size *C.uint64_t) C.pkv_status {
		return C.pkv_stats_prometheus(&sources, buffer, capacity, size)
	})
	runtime.KeepAlive(from)
	return text, err
}

// StartTrace begins to record a trace.
func StartTrace(maxEvents uint64) error {
	return call(func() C.pkv_status { return C.pkv_trace_start(C.uint64_t(maxEvents)) })
}

// StopTrace ends the recording, writes it ("": does not), and says how many events found no room.
func StopTrace(path string) (dropped uint64, err error) {
	var a arena
	defer a.free()
	var count C.uint64_t
	err = call(func() C.pkv_status { return C.pkv_trace_stop(a.text(path), &count) })
	return uint64(count), err
}
