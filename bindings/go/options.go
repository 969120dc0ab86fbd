// SPDX-License-Identifier: Apache-2.0

package pagedkv

// #include "shim.h"
import "C"

import "time"

// DType is a type of elements; 0 is F16. Conversions: tensor.h.
type DType int32

const (
	F32     DType = 1
	F16     DType = 2
	BF16    DType = 3
	F8E4M3  DType = 4
	F8E5M2  DType = 5
	I8      DType = 6
	Opaque  DType = 7 // rows of a given number of bytes
	asGiven DType = 0
)

// Bytes is the size of an element, 0 for Opaque.
func (d DType) Bytes() uint64 { return uint64(C.pkv_dtype_bytes(C.int32_t(d))) }

// Layout is the order inside one layer of one page.
type Layout int32

const (
	NHD Layout = 0 // [tokens, heads, elements]
	HND Layout = 1 // [heads, tokens, elements]
)

// Arrangement is the order of the layers of a pool.
type Arrangement int32

const (
	PageMajor  Arrangement = 0
	LayerMajor Arrangement = 1
)

// Attention is what the layers of a group attend to.
type Attention int32

const (
	FullAttention   Attention = 0
	WindowAttention Attention = 1
)

// Memory is whose memory the pages are in.
type Memory int32

const (
	PoolMemory   Memory = 0 // the pool's
	CallerMemory Memory = 1 // the caller's: KBase, VBase
	NoMemory     Memory = 2 // nobody's here: ids only
)

// Scales are factors that turn stored fp8 or int8 elements back.
type Scales int32

const (
	NoScales        Scales = 0
	TensorScales    Scales = 1
	HeadScales      Scales = 2
	TokenHeadScales Scales = 3
)

// Strides are distances in bytes.
type Strides struct{ Page, Token, Head uint64 }

// GroupOptions is one layer group; pkv_group_options (pool.h) says more about each field.
type GroupOptions struct {
	NumPages       uint64
	NumLayers      uint32
	FirstLayer     uint32
	TotalLayers    uint32
	NumKVHeads     uint32
	FirstHead      uint32
	TotalHeads     uint32
	KHeadDim       uint32
	VHeadDim       uint32 // 0 = no V
	DType          DType
	KRowBytes      uint32 // Opaque
	VRowBytes      uint32
	Layout         Layout
	Arrangement    Arrangement
	Attention      Attention
	Window         uint32
	Sinks          uint32
	Memory         Memory
	KBase          []uintptr // CallerMemory: for each layer an address of C memory, which outlives the pool and its tables
	VBase          []uintptr
	KStrides       Strides
	VStrides       Strides
	MaxCachedPages uint64
	Scales         Scales
	KScales        []float32
	VScales        []float32
	AuxBytes       uint32
}

// TierPolicy is when a pool stores page images in a tier.
type TierPolicy int32

const (
	WriteBack    TierPolicy = 0 // in the background, before pages are evicted
	WriteThrough TierPolicy = 1 // in the background, as soon as blocks are published
	WriteOnHits  TierPolicy = 2 // in the background, at the n-th hit
	Demote       TierPolicy = 3 // when the tier above evicts them
	ReadOnly     TierPolicy = 4 // never
)

// TierAttachment is a tier below a pool.
type TierAttachment struct {
	Tier      *Tier
	Policy    TierPolicy
	Hits      uint32
	Exclusive bool          // an image that was loaded is removed from the tier
	Timeout   time.Duration // longest wait for an answer where a call has none of its own; 0 = one second
}

// KeepUnstored, of PoolOptions.Flags: cached pages whose image is in no tier yet are not evicted.
const KeepUnstored uint32 = 1

// PoolOptions is how a pool is made: pkv_pool_options (pool.h).
type PoolOptions struct {
	PageTokens    uint32
	Groups        []GroupOptions
	HugePages     int32
	CopyThreads   uint32
	Seed          uint64
	Debug         uint32
	EventCapacity uint32
	Tiers         []TierAttachment
	Flags         uint32
	CleanPages    uint64
	StagingBytes  uint64

	Device         Device
	InPlace        *Sync  // on a device: the CUDAStream of the kernels that use pages in place; it exists as long as the pool and its tables
	TransferBlocks uint32 // thread blocks that a transfer to or from tiers may take on the device; 0 = no bound
}

func (o *GroupOptions) fill(a *arena, c *C.pkv_group_options) {
	*c = C.pkvgo_group_options()
	c.num_pages = C.uint64_t(o.NumPages)
	c.num_layers, c.first_layer, c.total_layers = C.uint32_t(o.NumLayers), C.uint32_t(o.FirstLayer), C.uint32_t(o.TotalLayers)
	c.num_kv_heads, c.first_head, c.total_heads = C.uint32_t(o.NumKVHeads), C.uint32_t(o.FirstHead), C.uint32_t(o.TotalHeads)
	c.k_head_dim, c.v_head_dim = C.uint32_t(o.KHeadDim), C.uint32_t(o.VHeadDim)
	if o.DType != asGiven {
		c.dtype = C.int32_t(o.DType)
	}
	c.k_row_bytes, c.v_row_bytes = C.uint32_t(o.KRowBytes), C.uint32_t(o.VRowBytes)
	c.layout, c.arrangement, c.attention = C.int32_t(o.Layout), C.int32_t(o.Arrangement), C.int32_t(o.Attention)
	c.window, c.sinks, c.memory = C.uint32_t(o.Window), C.uint32_t(o.Sinks), C.int32_t(o.Memory)
	c.k_strides, c.v_strides = o.KStrides.c(), o.VStrides.c()
	c.max_cached_pages, c.scales, c.aux_bytes = C.uint64_t(o.MaxCachedPages), C.int32_t(o.Scales), C.uint32_t(o.AuxBytes)
	// The library reads as many as these; what is missing is 0, which it refuses.
	layers := clamp(o.NumLayers, C.PKV_MAX_LAYERS)
	scales := layers
	if o.Scales == HeadScales {
		scales *= clamp(o.NumKVHeads, C.PKV_MAX_HEADS)
	}
	c.k_base = (*unsafePointer)(padded(a, o.KBase, layers))
	c.v_base = (*unsafePointer)(padded(a, o.VBase, layers))
	c.k_scales = (*C.float)(padded(a, o.KScales, scales))
	c.v_scales = (*C.float)(padded(a, o.VScales, scales))
}

func clamp(count uint32, most int) int {
	if uint64(count) > uint64(most) {
		return most
	}
	return int(count)
}

func (s Strides) c() C.pkv_strides {
	return C.pkv_strides{page: C.uint64_t(s.Page), token: C.uint64_t(s.Token), head: C.uint64_t(s.Head)}
}

func (o *PoolOptions) c(a *arena) C.pkv_pool_options {
	c := C.pkvgo_pool_options()
	c.page_tokens, c.huge_pages, c.copy_threads = C.uint32_t(o.PageTokens), C.int32_t(o.HugePages), C.uint32_t(o.CopyThreads)
	c.seed, c.debug, c.event_capacity = C.uint64_t(o.Seed), C.uint32_t(o.Debug), C.uint32_t(o.EventCapacity)
	c.flags, c.clean_pages, c.staging_bytes = C.uint32_t(o.Flags), C.uint64_t(o.CleanPages), C.uint64_t(o.StagingBytes)
	c.device, c.device_index, c.transfer_blocks = C.int32_t(o.Device.Kind), C.int32_t(o.Device.Index), C.uint32_t(o.TransferBlocks)
	if o.InPlace != nil {
		in := (*C.pkv_sync)(a.alloc(C.sizeof_pkv_sync))
		o.InPlace.fill(in)
		c.in_place = in
	}
	if len(o.Groups) != 0 {
		groups := make([]C.pkv_group_options, len(o.Groups))
		for i := range o.Groups {
			o.Groups[i].fill(a, &groups[i])
		}
		c.num_groups, c.groups = C.uint32_t(len(groups)), (*C.pkv_group_options)(copied(a, groups))
	}
	if len(o.Tiers) != 0 {
		tiers := make([]C.pkv_tier_attachment, len(o.Tiers))
		for i, from := range o.Tiers {
			tiers[i] = C.pkvgo_tier_attachment()
			if from.Tier != nil {
				tiers[i].tier = from.Tier.h
			}
			tiers[i].policy, tiers[i].hits, tiers[i].timeout_ns = C.int32_t(from.Policy), C.uint32_t(from.Hits), nanoseconds(from.Timeout)
			if from.Exclusive {
				tiers[i].flags = C.PKV_TIER_EXCLUSIVE
			}
		}
		c.num_tiers, c.tiers = C.uint32_t(len(tiers)), (*C.pkv_tier_attachment)(copied(a, tiers))
	}
	return c
}

// Retention is how long cached blocks are kept in comparison with others.
type Retention struct {
	Priority uint32 // 0 .. 100; of blocks about which nothing is said: 50
	Pin      bool   // not evicted at all
	TTL      time.Duration
}

func (r *Retention) c() *C.pkv_retention {
	if r == nil {
		return nil
	}
	c := C.pkvgo_retention()
	c.priority, c.ttl_ns = C.uint32_t(r.Priority), nanoseconds(r.TTL)
	if r.Pin {
		c.pin = 1
	}
	return &c
}

// Namespace is what else decides whether KV may be reused, besides the tokens.
type Namespace struct {
	Model             []byte
	Adapter           []byte
	AdapterID         uint64
	AdapterGeneration uint64
	Salt              []byte
}

func (n *Namespace) c(a *arena) *C.pkv_namespace {
	if n == nil {
		return nil
	}
	c := (*C.pkv_namespace)(a.alloc(C.sizeof_pkv_namespace))
	*c = C.pkvgo_namespace()
	c.model, c.adapter, c.salt = a.bytes(n.Model), a.bytes(n.Adapter), a.bytes(n.Salt)
	c.adapter_id, c.adapter_generation = C.uint64_t(n.AdapterID), C.uint64_t(n.AdapterGeneration)
	return c
}

// Media is an image or other input behind placeholder tokens.
type Media struct {
	Position  uint64
	NumTokens uint64
	Digest    []byte // 1 .. 256 bytes: Digest
}

// Prompt is tokens, and what else decides their keys.
type Prompt struct {
	Tokens    []int32
	Namespace *Namespace
	Media     []Media
}

func (p *Prompt) c(a *arena) *C.pkv_prompt {
	c := (*C.pkv_prompt)(a.alloc(C.sizeof_pkv_prompt))
	*c = C.pkvgo_prompt()
	if p == nil {
		return c
	}
	c.ns = p.Namespace.c(a)
	c.tokens, c.num_tokens = (*C.pkv_token)(copied(a, p.Tokens)), C.uint64_t(len(p.Tokens))
	media := make([]C.pkv_media, len(p.Media))
	for i, from := range p.Media {
		media[i] = C.pkv_media{position: C.uint64_t(from.Position), num_tokens: C.uint64_t(from.NumTokens), digest: a.bytes(from.Digest)}
	}
	c.media, c.num_media = (*C.pkv_media)(copied(a, media)), C.uint64_t(len(media))
	return c
}

// Match is how much of a prompt was found, in tokens from the first.
type Match struct {
	Tokens         uint64
	Blocks         uint64
	ResidentTokens uint64    // of them, in pages
	TierTokens     [4]uint64 // of them, in each tier
}

func newMatch(c *C.pkv_match) Match {
	m := Match{Tokens: uint64(c.tokens), Blocks: uint64(c.blocks), ResidentTokens: uint64(c.resident_tokens)}
	for i := range m.TierTokens {
		m.TierTokens[i] = uint64(c.tier_tokens[i])
	}
	return m
}

// OpOptions is how an operation reports; nil = defaults.
type OpOptions struct {
	Queue   *Queue
	User    uint64
	Timeout time.Duration // 0 = 30 seconds
}

func (o *OpOptions) c(a *arena) *C.pkv_op_options {
	if o == nil {
		return nil
	}
	c := (*C.pkv_op_options)(a.alloc(C.sizeof_pkv_op_options))
	*c = C.pkvgo_op_options()
	if o.Queue != nil {
		c.queue = o.Queue.h
	}
	c.user, c.timeout_ns = C.uint64_t(o.User), nanoseconds(o.Timeout)
	return c
}
