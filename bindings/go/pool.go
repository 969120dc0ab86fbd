// SPDX-License-Identifier: Apache-2.0

package pagedkv

// #include "shim.h"
import "C"

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"
)

// Pool has pages of one geometry, the prefix index over them, and evicts: pool.h.
type Pool struct {
	h        *C.pkv_pool
	geometry []shape
	auxBytes []uint32
}

// NewPool makes a pool.
func NewPool(options PoolOptions) (*Pool, error) {
	var a arena
	defer a.free()
	c := options.c(&a)
	p := &Pool{}
	if err := call(func() C.pkv_status { return C.pkv_pool_create(&c, &p.h) }); err != nil {
		return nil, err
	}
	runtime.KeepAlive(options)
	for g, group := range options.Groups {
		layout, err := p.Layout(uint32(g), 0)
		if err != nil {
			p.Close()
			return nil, err
		}
		p.geometry = append(p.geometry, shape{uint64(layout.NumKVHeads), layout.KRowBytes, layout.VRowBytes, layout.DType})
		p.auxBytes = append(p.auxBytes, group.AuxBytes)
	}
	runtime.SetFinalizer(p, func(p *Pool) { _ = p.Close() })
	return p, nil
}

func (p *Pool) call(f func() C.pkv_status) error {
	err := call(f)
	runtime.KeepAlive(p)
	return err
}

// Close closes the pool; its tables answer ErrClosed from now on. ErrBusy: memory of the caller's is in use, it is still open.
func (p *Pool) Close() error {
	err := p.call(func() C.pkv_status { return C.pkv_pool_destroy(p.h) })
	if err == nil {
		runtime.SetFinalizer(p, nil)
	}
	return err
}

// Quiesce waits until no call is at work on memory of the caller's.
func (p *Pool) Quiesce(timeout time.Duration) error {
	return p.call(func() C.pkv_status { return C.pkv_pool_quiesce(p.h, nanoseconds(timeout)) })
}

// Flush waits until what is to be stored in tiers by policy has been.
func (p *Pool) Flush(timeout time.Duration) error {
	return p.call(func() C.pkv_status { return C.pkv_pool_flush(p.h, nanoseconds(timeout)) })
}

// Order orders, on a device, a stream (CUDAStream) after the work that pages which calls have handed out may still be in; nil, or another
// kind: the call waits for it.
func (p *Pool) Order(sync *Sync) error {
	return p.call(sync.with(func(s *C.pkv_sync) C.pkv_status { return C.pkv_pool_order(p.h, s) }))
}

// LayerLayout is where a layer's rows lie: the K row of (page, token offset, head) is at KBase + page * K.Page + offset * K.Token +
// head * K.Head. Addresses are for native kernels.
type LayerLayout struct {
	KBase, VBase         uintptr
	K, V                 Strides
	KRowBytes, VRowBytes uint64
	NumKVHeads           uint32
	PageTokens           uint32
	DType                DType
	Scales               Scales
	KScales, VScales     uintptr
	ScalePageStride      uint64
}

func newLayout(c *C.pkv_layer_layout) LayerLayout {
	return LayerLayout{
		uintptr(c.k_base), uintptr(c.v_base),
		Strides{uint64(c.k.page), uint64(c.k.token), uint64(c.k.head)}, Strides{uint64(c.v.page), uint64(c.v.token), uint64(c.v.head)},
		uint64(c.k_row_bytes), uint64(c.v_row_bytes), uint32(c.num_kv_heads), uint32(c.page_tokens), DType(c.dtype), Scales(c.scales),
		uintptr(unsafe.Pointer(c.k_scales)), uintptr(unsafe.Pointer(c.v_scales)), uint64(c.scale_page_stride),
	}
}

// Layout gives addresses and strides of a layer, valid as long as the pool or one of its tables is open.
func (p *Pool) Layout(group, layer uint32) (LayerLayout, error) {
	c := C.pkvgo_layer_layout()
	if err := p.call(func() C.pkv_status { return C.pkv_pool_layout(p.h, C.uint32_t(group), C.uint32_t(layer), &c) }); err != nil {
		return LayerLayout{}, err
	}
	return newLayout(&c), nil
}

// Aux gives a copy of the aux bytes of a page.
func (p *Pool) Aux(group uint32, page int32) ([]byte, error) {
	var bytes []byte
	err := p.withAux(group, page, func(memory []byte) error {
		bytes = append(bytes, memory...)
		return nil
	})
	return bytes, err
}

// SetAux replaces the aux bytes of a page.
func (p *Pool) SetAux(group uint32, page int32, bytes []byte) error {
	return p.withAux(group, page, func(memory []byte) error {
		if len(bytes) != len(memory) {
			return fail(ErrInvalid, fmt.Sprintf("%d bytes for %d aux bytes", len(bytes), len(memory)))
		}
		copy(memory, bytes)
		return nil
	})
}

func (p *Pool) withAux(group uint32, page int32, f func([]byte) error) error {
	keep, err := p.Table() // keeps the memory, should somebody close the pool meanwhile
	if err != nil {
		return err
	}
	defer keep.Close()
	var address unsafe.Pointer
	if err := p.call(func() C.pkv_status { return C.pkv_pool_aux(p.h, C.uint32_t(group), C.pkv_page(page), &address) }); err != nil {
		return err
	}
	return f(unsafe.Slice((*byte)(address), p.auxBytes[group]))
}

// Alloc takes pages, each with a count of one that belongs to the caller, or none.
func (p *Pool) Alloc(group uint32, numPages uint64) ([]int32, error) {
	var pages []int32
	if makeable(numPages) {
		pages = make([]int32, numPages)
	}
	err := p.call(func() C.pkv_status {
		return C.pkv_pool_alloc(p.h, C.uint32_t(group), C.uint64_t(numPages), i32(pages))
	})
	if err != nil {
		return nil, err
	}
	return pages, nil
}

// Retain adds one to the count of each page.
func (p *Pool) Retain(group uint32, pages []int32) error {
	return p.call(func() C.pkv_status {
		return C.pkv_pool_retain(p.h, C.uint32_t(group), C.uint64_t(len(pages)), i32(pages))
	})
}

// Release gives back one count of each page: of all of them, or of none.
func (p *Pool) Release(group uint32, pages []int32, sync *Sync) error {
	return p.call(sync.with(func(s *C.pkv_sync) C.pkv_status {
		return C.pkv_pool_release(p.h, C.uint32_t(group), C.uint64_t(len(pages)), i32(pages), nil, s)
	}))
}

// ReleaseEach gives back one count of each page that has one, and says what became of each.
func (p *Pool) ReleaseEach(group uint32, pages []int32, sync *Sync) ([]Status, error) {
	statuses := make([]Status, len(pages))
	err := p.call(sync.with(func(s *C.pkv_sync) C.pkv_status {
		return C.pkv_pool_release(p.h, C.uint32_t(group), C.uint64_t(len(pages)), i32(pages), cStatuses(statuses), s)
	}))
	return statuses, itemsFailed(statuses, err)
}

// PageInfo gives the state of a page.
func (p *Pool) PageInfo(group uint32, page int32) (PageInfo, error) {
	c := C.pkvgo_page_info()
	err := p.call(func() C.pkv_status { return C.pkv_pool_page_info(p.h, C.uint32_t(group), C.pkv_page(page), &c) })
	return newPageInfo(&c), err
}

// CopyPages copies whole pages, all layers, from src[i] to dst[i].
func (p *Pool) CopyPages(group uint32, src, dst []int32, sync *Sync) error {
	if len(src) != len(dst) {
		return fail(ErrInvalid, fmt.Sprintf("%d sources, %d destinations", len(src), len(dst)))
	}
	return p.call(sync.with(func(s *C.pkv_sync) C.pkv_status {
		return C.pkv_pool_copy_pages(p.h, C.uint32_t(group), C.uint64_t(len(src)), i32(src), i32(dst), s)
	}))
}

// Lookup finds the longest cached prefix of a prompt, in at most capacity blocks, and takes a count on its pages: a row of them
// for each group. maxMatch: at most this many tokens; 0 = all but the last one, All = no bound.
func (p *Pool) Lookup(prompt *Prompt, maxMatch, capacity uint64) ([][]int32, Match, error) {
	var a arena
	defer a.free()
	groups := uint64(len(p.geometry))
	if groups == 0 {
		groups = 1
	}
	if !makeable(capacity) || !makeable(groups*capacity) {
		return nil, Match{}, fail(ErrLimit, fmt.Sprintf("%d blocks are more than a slice has", capacity))
	}
	pages := make([]int32, groups*capacity)
	c := C.pkvgo_match()
	err := p.call(func() C.pkv_status {
		return C.pkv_pool_lookup(p.h, prompt.c(&a), C.uint64_t(maxMatch), i32(pages), C.uint64_t(capacity), &c)
	})
	if err != nil {
		return nil, Match{}, err
	}
	match := newMatch(&c)
	rows := make([][]int32, groups)
	for g := range rows {
		rows[g] = pages[uint64(g)*capacity:][:match.Blocks]
	}
	return rows, match, nil
}

// Probe is as Lookup, but takes no page and changes no order.
func (p *Pool) Probe(prompt *Prompt, maxMatch uint64) (Match, error) {
	var a arena
	defer a.free()
	c := C.pkvgo_match()
	err := p.call(func() C.pkv_status { return C.pkv_pool_probe(p.h, prompt.c(&a), C.uint64_t(maxMatch), &c) })
	return newMatch(&c), err
}

// Publish makes pages that the caller holds findable as blocks of a prompt, and gives the page under which each is published now.
func (p *Pool) Publish(group uint32, prompt *Prompt, firstBlock uint64, pages []int32) ([]int32, error) {
	var a arena
	defer a.free()
	owner := make([]int32, len(pages))
	err := p.call(func() C.pkv_status {
		return C.pkv_pool_publish(p.h, C.uint32_t(group), prompt.c(&a), C.uint64_t(firstBlock), C.uint64_t(len(pages)), i32(pages), i32(owner))
	})
	return owner, err
}

// Evict frees cached pages, and says how many.
func (p *Pool) Evict(group uint32, numPages uint64) (uint64, error) {
	var evicted C.uint64_t
	err := p.call(func() C.pkv_status { return C.pkv_pool_evict(p.h, C.uint32_t(group), C.uint64_t(numPages), &evicted) })
	return uint64(evicted), err
}

// SetRetention sets the retention of published blocks that hold tokens of a range, and says how many there are.
func (p *Pool) SetRetention(prompt *Prompt, firstToken, numTokens uint64, retention *Retention) (uint64, error) {
	var a arena
	defer a.free()
	var blocks C.uint64_t
	err := p.call(func() C.pkv_status {
		return C.pkv_pool_set_retention(p.h, prompt.c(&a), C.uint64_t(firstToken), C.uint64_t(numTokens), retention.c(), &blocks)
	})
	return uint64(blocks), err
}

// SetNamespaceRetention sets the retention that blocks of a namespace get from now on; nil = the default.
func (p *Pool) SetNamespaceRetention(namespace *Namespace, retention *Retention) error {
	var a arena
	defer a.free()
	return p.call(func() C.pkv_status { return C.pkv_pool_set_namespace_retention(p.h, namespace.c(&a), retention.c()) })
}

// Clear forgets all prefixes of a namespace; nil = the one whose parts are empty.
func (p *Pool) Clear(namespace *Namespace) (ClearResult, error) {
	var a arena
	defer a.free()
	c := C.pkvgo_clear_result()
	err := p.call(func() C.pkv_status { return C.pkv_pool_clear(p.h, namespace.c(&a), &c) })
	return newClearResult(&c), err
}

// ClearAll forgets all prefixes of all namespaces.
func (p *Pool) ClearAll() (ClearResult, error) {
	c := C.pkvgo_clear_result()
	err := p.call(func() C.pkv_status { return C.pkv_pool_clear_all(p.h, &c) })
	return newClearResult(&c), err
}

// Key is a block's: it depends on all before it.
type Key struct{ Low, High uint64 }

// TierKey is that of an image.
type TierKey [32]byte

// Keys gives the keys of a prompt's whole blocks.
func (p *Pool) Keys(prompt *Prompt) ([]Key, error) {
	count, err := p.keys(prompt, nil)
	if err != nil || count == 0 {
		return nil, err
	}
	keys := make([]Key, count)
	_, err = p.keys(prompt, keys)
	return keys, err
}

func (p *Pool) keys(prompt *Prompt, keys []Key) (uint64, error) {
	var a arena
	defer a.free()
	var count C.uint64_t
	err := p.call(func() C.pkv_status {
		return C.pkv_pool_keys(p.h, prompt.c(&a), (*C.pkv_key)(unsafe.Pointer(first(keys))), C.uint64_t(len(keys)), &count)
	})
	return uint64(count), err
}

// ImageKeys gives the keys of the images of a prompt's whole blocks in a group.
func (p *Pool) ImageKeys(group uint32, prompt *Prompt) ([]TierKey, error) {
	count, err := p.imageKeys(group, prompt, nil)
	if err != nil || count == 0 {
		return nil, err
	}
	keys := make([]TierKey, count)
	_, err = p.imageKeys(group, prompt, keys)
	return keys, err
}

func (p *Pool) imageKeys(group uint32, prompt *Prompt, keys []TierKey) (uint64, error) {
	var a arena
	defer a.free()
	var count C.uint64_t
	err := p.call(func() C.pkv_status {
		return C.pkv_pool_image_keys(p.h, C.uint32_t(group), prompt.c(&a), (*C.pkv_tier_key)(unsafe.Pointer(first(keys))),
			C.uint64_t(len(keys)), &count)
	})
	return uint64(count), err
}

// Event is what happened to the prefix index: pkv_event (pool.h).
type Event struct {
	Sequence uint64
	Kind     int32 // 1 a block became findable, 2 it is not any more, 3 a namespace was cleared
	Group    uint32
	Key      Key
	Parent   Key
	Block    uint64
}

// Events gives up to capacity events that follow the one with the number after, and how many are gone already.
func (p *Pool) Events(after uint64, capacity int) (events []Event, missed uint64, err error) {
	list := make([]C.pkv_event, capacity)
	var count, gone C.uint64_t
	err = p.call(func() C.pkv_status {
		return C.pkv_pool_events(p.h, C.uint64_t(after), first(list), C.uint64_t(len(list)), &count, &gone)
	})
	for _, c := range list[:count] {
		events = append(events, Event{uint64(c.sequence), int32(c.kind), uint32(c.group), Key{uint64(c.key.low), uint64(c.key.high)},
			Key{uint64(c.parent.low), uint64(c.parent.high)}, uint64(c.block)})
	}
	return events, uint64(gone), err
}

// Write scatters rows of a layer to slots (page * page tokens + offset; below 0: skip). Without V, v is Rows{}.
func (p *Pool) Write(group, layer uint32, slots []int64, k, v Rows, sync *Sync) error {
	if err := p.check(group, k, v); err != nil {
		return err
	}
	return p.call(sync.with(func(s *C.pkv_sync) C.pkv_status {
		return C.pkvgo_pool_write(p.h, C.uint32_t(group), C.uint32_t(layer), C.uint64_t(len(slots)),
			(*C.pkv_slot)(unsafe.Pointer(first(slots))), k.c(), v.c(), s)
	}))
}

// Gather takes rows of a layer out through a block table; Rows{} for what is not wanted.
func (p *Pool) Gather(group, layer uint32, pages []int32, firstToken, numTokens uint64, k, v Rows, sync *Sync) error {
	if err := p.check(group, k, v); err != nil {
		return err
	}
	return p.call(sync.with(func(s *C.pkv_sync) C.pkv_status {
		return C.pkvgo_pool_gather(p.h, C.uint32_t(group), C.uint32_t(layer), C.uint64_t(len(pages)), i32(pages), C.uint64_t(firstToken),
			C.uint64_t(numTokens), k.c(), v.c(), s)
	}))
}

// Store begins to store images of pages that the caller holds.
func (p *Pool) Store(group uint32, keys []TierKey, pages []int32, sync *Sync, options *OpOptions) (*Op, error) {
	if len(keys) < len(pages) {
		return nil, fail(ErrInvalid, fmt.Sprintf("%d keys for %d pages", len(keys), len(pages)))
	}
	var a arena
	defer a.free()
	return newOp(func(op **C.pkv_op) error {
		return p.call(sync.with(func(s *C.pkv_sync) C.pkv_status {
			return C.pkv_pool_store(p.h, C.uint32_t(group), C.uint64_t(len(pages)), (*C.pkv_tier_key)(unsafe.Pointer(first(keys))), i32(pages), s,
				options.c(&a), op)
		}))
	})
}

// Load begins to load images into pages that the caller holds.
func (p *Pool) Load(group uint32, keys []TierKey, pages []int32, sync *Sync, options *OpOptions) (*Op, error) {
	if len(keys) < len(pages) {
		return nil, fail(ErrInvalid, fmt.Sprintf("%d keys for %d pages", len(keys), len(pages)))
	}
	var a arena
	defer a.free()
	return newOp(func(op **C.pkv_op) error {
		return p.call(sync.with(func(s *C.pkv_sync) C.pkv_status {
			return C.pkv_pool_load(p.h, C.uint32_t(group), C.uint64_t(len(pages)), (*C.pkv_tier_key)(unsafe.Pointer(first(keys))), i32(pages), s,
				options.c(&a), op)
		}))
	})
}

// Stats gives the pool's numbers; those of pages are of the group.
func (p *Pool) Stats(group uint32) (PoolStats, error) {
	c := C.pkvgo_pool_stats()
	err := p.call(func() C.pkv_status { return C.pkv_pool_get_stats(p.h, C.uint32_t(group), &c) })
	return newPoolStats(&c), err
}

func i32(from []int32) *C.int32_t { return (*C.int32_t)(unsafe.Pointer(first(from))) }

func cStatuses(from []Status) *C.pkv_status { return (*C.pkv_status)(unsafe.Pointer(first(from))) }
