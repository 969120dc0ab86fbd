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

// PredictPolicy is which blocks are predicted to be needed next.
type PredictPolicy int32

const (
	Sequential PredictPolicy = 0 // those from the position on
	Full       PredictPolicy = 1 // all
	Hinted     PredictPolicy = 2 // those with the highest scores
)

// Predictor decides which blocks a sequence needs next: pkv_predictor (prefetch.h).
type Predictor struct {
	Policy       PredictPolicy
	PageTokens   uint32
	SinkTokens   uint64
	RecentTokens uint64
	Lookahead    uint64
}

// Predict gives the blocks that are needed next, in the order in which they should be loaded: a pure function.
func (p Predictor) Predict(numTokens, position uint64, scores []float32) ([]uint64, error) {
	count, err := p.predict(numTokens, position, scores, nil)
	if err != nil || count == 0 {
		return nil, err
	}
	if !makeable(count) {
		return nil, fail(ErrLimit, fmt.Sprintf("%d blocks are more than a slice has", count))
	}
	blocks := make([]uint64, count)
	_, err = p.predict(numTokens, position, scores, blocks)
	return blocks, err
}

func (p Predictor) predict(numTokens, position uint64, scores []float32, blocks []uint64) (uint64, error) {
	c := C.pkvgo_predictor()
	c.policy, c.page_tokens = C.int32_t(p.Policy), C.uint32_t(p.PageTokens)
	c.sink_tokens, c.recent_tokens, c.lookahead = C.uint64_t(p.SinkTokens), C.uint64_t(p.RecentTokens), C.uint64_t(p.Lookahead)
	var count C.uint64_t
	err := call(func() C.pkv_status {
		return C.pkv_prefetch_predict(&c, C.uint64_t(numTokens), C.uint64_t(position), C.uint64_t(len(scores)),
			(*C.float)(unsafe.Pointer(first(scores))), u64(blocks), C.uint64_t(len(blocks)), &count)
	})
	return uint64(count), err
}

// Flags of PrefetchOptions.
const (
	PrefetchOff         uint32 = 1 // nothing is loaded before it is needed, to compare
	PrefetchWholeLayers uint32 = 2 // steps whose layers do not fit a buffer are refused
)

// LayerRef is a layer of a pool.
type LayerRef struct{ Group, Layer uint32 }

// PrefetchOptions is how a session is opened: pkv_prefetch_options (prefetch.h).
type PrefetchOptions struct {
	Policy           PredictPolicy
	Flags            uint32
	SinkTokens       uint64
	RecentTokens     uint64
	MaxLookahead     uint64
	MaxBlockPages    uint64
	NumBuffers       uint32
	Layers           []LayerRef
	StagingPages     []uint64 // of each group; 0 = an eighth
	MaxTables        uint32
	MaxSlices        uint64
	MaxBytesInFlight uint64
	LoadTimeout      time.Duration

	// C memory in place of the session's own, for kernels that read the arrays of a view there: int32 [NumBuffers, MaxSlices] and
	// [NumBuffers, MaxTables + 1]. It outlives the session.
	Slices      uintptr
	SliceIndptr uintptr
}

// Session loads what is in tiers before it is needed: prefetch.h. One goroutine at a time for a session and its tables.
type Session struct {
	h    *C.pkv_prefetch
	step []*Table
	inUse
}

// Prefetch opens a session over the pool; nil = defaults.
func (p *Pool) Prefetch(o *PrefetchOptions) (*Session, error) {
	var a arena
	defer a.free()
	if o == nil {
		o = &PrefetchOptions{}
	}
	c := C.pkvgo_prefetch_options()
	c.policy, c.flags, c.num_buffers, c.max_tables = C.int32_t(o.Policy), C.uint32_t(o.Flags), C.uint32_t(o.NumBuffers), C.uint32_t(o.MaxTables)
	c.sink_tokens, c.recent_tokens = C.uint64_t(o.SinkTokens), C.uint64_t(o.RecentTokens)
	c.max_lookahead, c.max_block_pages, c.max_slices = C.uint64_t(o.MaxLookahead), C.uint64_t(o.MaxBlockPages), C.uint64_t(o.MaxSlices)
	c.max_bytes_in_flight, c.load_timeout_ns = C.uint64_t(o.MaxBytesInFlight), nanoseconds(o.LoadTimeout)
	c.layers, c.num_layers = (*C.pkv_layer_ref)(copied(&a, o.Layers)), C.uint32_t(len(o.Layers))
	c.staging_pages = (*C.uint64_t)(padded(&a, o.StagingPages, C.PKV_MAX_GROUPS))
	// No Go pointers: written as the numbers they are.
	*(*uintptr)(unsafe.Pointer(&c.slices)), *(*uintptr)(unsafe.Pointer(&c.slice_indptr)) = o.Slices, o.SliceIndptr
	s := &Session{}
	if err := p.call(func() C.pkv_status { return C.pkv_prefetch_open(p.h, &c, &s.h) }); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(s, func(s *Session) { _ = s.Close() })
	return s, nil
}

func (s *Session) call(tables []*Table, f func() C.pkv_status) error {
	if err := s.enter("session"); err != nil {
		return err
	}
	defer s.leave()
	return withTables(tables, func() error { return call(f) })
}

// Close closes the session; ErrBusy while another goroutine is in a call, which copies from its memory.
func (s *Session) Close() error { return s.CloseAfter(nil) }

// CloseAfter is Close after work that still reads views. ErrTimeout: it is still open.
func (s *Session) CloseAfter(sync *Sync) error {
	err := s.call(nil, sync.with(func(c *C.pkv_sync) C.pkv_status { return C.pkv_prefetch_close(s.h, c) }))
	if err == nil {
		runtime.SetFinalizer(s, nil)
	}
	return err
}

// Cancel drops everything that was loaded ahead, and cancels loads under way.
func (s *Session) Cancel() error {
	return s.call(nil, func() C.pkv_status { return C.pkv_prefetch_cancel(s.h) })
}

// Prompt finds the longest prefix of a prompt over all tiers and begins to load what is not in pages.
func (s *Session) Prompt(prompt *Prompt, options *OpOptions) (*Op, Match, error) {
	var a arena
	defer a.free()
	match := C.pkvgo_match()
	op, err := newOp(func(op **C.pkv_op) error {
		return s.call(nil, func() C.pkv_status { return C.pkv_prefetch_prompt(s.h, prompt.c(&a), options.c(&a), &match, op) })
	})
	runtime.KeepAlive(options)
	return op, newMatch(&match), err
}

// Hint keeps scores of a sequence's blocks for Hinted.
func (s *Session) Hint(table *Table, scores []float32) error {
	return s.call([]*Table{table}, func() C.pkv_status {
		return C.pkv_prefetch_hint(s.h, table.h, C.uint64_t(len(scores)), (*C.float)(unsafe.Pointer(first(scores))))
	})
}

// Submit predicts the blocks that a sequence needs at a position and begins to load those that are absent: how many.
func (s *Session) Submit(table *Table, position uint64) (uint64, error) {
	var submitted C.uint64_t
	err := s.call([]*Table{table}, func() C.pkv_status {
		return C.pkv_prefetch_submit(s.h, table.h, C.uint64_t(position), &submitted)
	})
	return uint64(submitted), err
}

// Require puts blocks into the block table: those loaded ahead at once, others when they are there.
func (s *Session) Require(table *Table, firstBlock, numBlocks uint64, timeout time.Duration) (RequireResult, error) {
	c := C.pkvgo_require_result()
	err := s.call([]*Table{table}, func() C.pkv_status {
		return C.pkv_prefetch_require(s.h, table.h, C.uint64_t(firstBlock), C.uint64_t(numBlocks), nanoseconds(timeout), &c)
	})
	return newRequireResult(&c), err
}

// StepBegin begins a step over tables; numTokens: of each, those that the step attends to; nil = the committed ones.
func (s *Session) StepBegin(tables []*Table, numTokens []uint64) ([]Status, error) {
	if numTokens != nil && len(numTokens) != len(tables) {
		return nil, fail(ErrInvalid, fmt.Sprintf("%d numbers for %d tables", len(numTokens), len(tables)))
	}
	handles, statuses := tableHandles(tables), make([]Status, len(tables))
	err := s.call(tables, func() C.pkv_status {
		return C.pkv_prefetch_step_begin(s.h, C.uint32_t(len(handles)), first(handles), u64(numTokens), cStatuses(statuses))
	})
	if err == nil {
		s.step = append([]*Table(nil), tables...)
	}
	return statuses, err
}

// LayerView is a layer of a step, or a range of it: pkv_layer_view (prefetch.h). The slices are copies; what Layout and the addresses lead
// to is valid until the release.
type LayerView struct {
	Index      uint32
	Group      uint32
	Layer      uint32
	Buffer     uint32
	Last       bool     // nothing of this layer comes after this range
	Slices     []int32  // slice ids; -1: dropped by a window, or not to be had
	Indptr     []int32  // table t has Slices[Indptr[t]:Indptr[t+1]]
	FirstBlock []uint64 // the block of each table's first entry
	Layout     LayerLayout
	Waited     time.Duration

	// Where the three lists are, for kernels: int32 [NumSlices], int32 [NumTables + 1], uint64 [NumTables].
	SlicesAt, IndptrAt, FirstBlockAt uintptr
	NumTables                        uint32
	NumSlices                        uint64
}

// Acquire gives the next range of a layer, and waits until its bytes are there.
func (s *Session) Acquire(index uint32, timeout time.Duration) (LayerView, error) {
	return s.AcquireIn(index, timeout, nil)
}

// AcquireIn is the same for a pool on a device. With a CUDAStream it does not wait, the stream does: the view's lists are not filled, since
// they are only read when the stream has come so far, and the addresses are for kernels in it. Release takes the stream, too.
func (s *Session) AcquireIn(index uint32, timeout time.Duration, sync *Sync) (LayerView, error) {
	var view LayerView
	if err := s.enter("session"); err != nil {
		return view, err
	}
	defer s.leave() // only now: until then nobody closes the session, whose memory is read here
	err := withTables(s.step, func() error {
		c := C.pkvgo_layer_view()
		err := call(sync.with(func(after *C.pkv_sync) C.pkv_status {
			return C.pkv_prefetch_layer_acquire(s.h, C.uint32_t(index), nanoseconds(timeout), after, &c)
		}))
		if err == nil {
			view = newView(&c, sync == nil || sync.kind != streamKind)
		}
		return err
	})
	return view, err
}

func newView(c *C.pkv_layer_view, ready bool) LayerView {
	view := LayerView{Index: uint32(c.index), Group: uint32(c.group), Layer: uint32(c.layer), Buffer: uint32(c.buffer), Last: c.last != 0,
		Layout: newLayout(&c.layout), Waited: time.Duration(c.waited_ns), SlicesAt: uintptr(unsafe.Pointer(c.slices)),
		IndptrAt: uintptr(unsafe.Pointer(c.indptr)), FirstBlockAt: uintptr(unsafe.Pointer(c.first_block)), NumTables: uint32(c.num_tables),
		NumSlices: uint64(c.num_slices)}
	if !ready {
		return view
	}
	view.Slices = append(view.Slices, unsafe.Slice((*int32)(unsafe.Pointer(c.slices)), c.num_slices)...)
	view.Indptr = append(view.Indptr, unsafe.Slice((*int32)(unsafe.Pointer(c.indptr)), c.num_tables+1)...)
	view.FirstBlock = append(view.FirstBlock, unsafe.Slice((*uint64)(unsafe.Pointer(c.first_block)), c.num_tables)...)
	return view
}

// Release ends the use of the oldest acquired range.
func (s *Session) Release(index uint32, sync *Sync) error {
	return s.call(nil, sync.with(func(c *C.pkv_sync) C.pkv_status { return C.pkv_prefetch_layer_release(s.h, C.uint32_t(index), c) }))
}

// StepEnd ends a step: what was computed for a table whose status is not OK is void.
func (s *Session) StepEnd() ([]Status, error) {
	statuses := make([]Status, len(s.step))
	err := s.call(s.step, func() C.pkv_status { return C.pkv_prefetch_step_end(s.h, cStatuses(statuses)) })
	if err = itemsFailed(statuses, err); err == nil {
		s.step = nil
	}
	return statuses, err
}

// Stats gives the session's numbers; any goroutine may ask.
func (s *Session) Stats() (PrefetchStats, error) {
	c := C.pkvgo_prefetch_stats()
	err := call(func() C.pkv_status { return C.pkv_prefetch_get_stats(s.h, &c) })
	runtime.KeepAlive(s)
	return newPrefetchStats(&c), err
}
