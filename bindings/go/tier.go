// SPDX-License-Identifier: Apache-2.0

package pagedkv

// #include "shim.h"
import "C"

import (
	"runtime"
	"time"
)

// Tier is a place below pools that keeps page images: tier.h. Pools that use it keep it alive.
type Tier struct{ h *C.pkv_tier }

func (t *Tier) opened() *Tier {
	runtime.SetFinalizer(t, func(t *Tier) { _ = t.Close() })
	return t
}

// HostTier is a tier of host memory.
func HostTier(capacityBytes uint64) (*Tier, error) { return HostTierIn(capacityBytes, 0) }

// HostTierIn is the same, in huge pages: 0 = where the kernel gives them, 1 = never, 2 = reserved ones only.
func HostTierIn(capacityBytes uint64, hugePages int32) (*Tier, error) {
	c := C.pkvgo_host_tier_options()
	c.capacity_bytes, c.huge_pages = C.uint64_t(capacityBytes), C.int32_t(hugePages)
	t := &Tier{}
	if err := call(func() C.pkv_status { return C.pkv_tier_open_host(&c, &t.h) }); err != nil {
		return nil, err
	}
	return t.opened(), nil
}

// IOEngine is how a file tier reads and writes.
type IOEngine int32

const (
	AutoEngine    IOEngine = 0 // io_uring where the system permits it, else threads
	URingEngine   IOEngine = 1
	ThreadsEngine IOEngine = 2
)

// Flags of FileTierOptions.
const (
	FileReset    uint32 = 1 // begin empty
	FileBuffered uint32 = 2 // through the page cache
)

// FileTierOptions is a tier in a file: pkv_file_tier_options (tier.h).
type FileTierOptions struct {
	Path          string
	CapacityBytes uint64
	MaxImages     uint64
	Identity      []byte
	Engine        IOEngine
	Depth         uint32
	Threads       uint32
	Flags         uint32
	LockTimeout   time.Duration
}

// FileTier is a tier in a file: a new one, or what an earlier process left there.
func FileTier(o FileTierOptions) (*Tier, error) {
	var a arena
	defer a.free()
	c := C.pkvgo_file_tier_options()
	c.path, c.capacity_bytes, c.max_images, c.identity = a.text(o.Path), C.uint64_t(o.CapacityBytes), C.uint64_t(o.MaxImages), a.bytes(o.Identity)
	c.engine, c.depth, c.threads, c.flags = C.int32_t(o.Engine), C.uint32_t(o.Depth), C.uint32_t(o.Threads), C.uint32_t(o.Flags)
	c.lock_timeout_ns = nanoseconds(o.LockTimeout)
	t := &Tier{}
	if err := call(func() C.pkv_status { return C.pkv_tier_open_file(&c, &t.h) }); err != nil {
		return nil, err
	}
	return t.opened(), nil
}

// Close closes the tier; pools that use it keep it.
func (t *Tier) Close() error {
	err := call(func() C.pkv_status { return C.pkv_tier_close(t.h) })
	if err == nil {
		runtime.SetFinalizer(t, nil)
	}
	return err
}

// Stats gives the tier's numbers.
func (t *Tier) Stats() (TierStats, error) {
	c := C.pkvgo_tier_stats()
	err := call(func() C.pkv_status { return C.pkv_tier_get_stats(t.h, &c) })
	runtime.KeepAlive(t)
	return newTierStats(&c), err
}

// Queue is where operations end.
type Queue struct{ h *C.pkv_queue }

// NewQueue makes a queue.
func NewQueue() (*Queue, error) {
	q := &Queue{}
	if err := call(func() C.pkv_status { return C.pkv_queue_create(&q.h) }); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(q, func(q *Queue) { _ = q.Close() })
	return q, nil
}

// Close closes the queue; operations under way go on, and end without being queued.
func (q *Queue) Close() error {
	err := call(func() C.pkv_status { return C.pkv_queue_destroy(q.h) })
	if err == nil {
		runtime.SetFinalizer(q, nil)
	}
	return err
}

// FD is the eventfd, readable while results wait; neither to be read nor closed.
func (q *Queue) FD() (int, error) {
	fd := C.int32_t(-1)
	err := call(func() C.pkv_status { return C.pkv_queue_handle(q.h, &fd) })
	runtime.KeepAlive(q)
	return int(fd), err
}

// Completion is an operation that has ended.
type Completion struct {
	User   uint64 // as given when it was begun
	Status Status
}

// Drain takes up to capacity results out, in the order in which the operations ended; ErrTimeout when there is none.
func (q *Queue) Drain(capacity int, timeout time.Duration) ([]Completion, error) {
	list := make([]C.pkv_completion, capacity)
	var count C.uint64_t
	err := call(func() C.pkv_status {
		return C.pkv_queue_drain(q.h, first(list), C.uint64_t(len(list)), nanoseconds(timeout), &count)
	})
	runtime.KeepAlive(q)
	completions := make([]Completion, count)
	for i := range completions {
		completions[i] = Completion{uint64(list[i].user), Status(list[i].status)}
	}
	return completions, err
}

// Op is an asynchronous operation; one that is closed goes on, unseen.
type Op struct {
	h    *C.pkv_op
	pool *Pool // of a pull
}

func newOp(begin func(**C.pkv_op) error) (*Op, error) {
	o := &Op{}
	if err := begin(&o.h); err != nil {
		return nil, err
	}
	return o.opened(), nil
}

func (o *Op) opened() *Op {
	runtime.SetFinalizer(o, func(o *Op) { _ = o.Close() })
	return o
}

// OpInfo is the state of an operation.
type OpInfo struct {
	Ended       bool
	Status      Status // of one that has ended
	NumItems    uint64
	DoneItems   uint64
	GoodItems   uint64
	BuffersFree bool     // nothing of it touches pages or buffers any more
	Statuses    []Status // of each item; ErrBusy while it is under way
}

// Poll gives the state, without waiting.
func (o *Op) Poll() (OpInfo, error) {
	c := C.pkvgo_op_info()
	poll := func(statuses []Status) error {
		return call(func() C.pkv_status { return C.pkv_op_poll(o.h, &c, cStatuses(statuses), C.uint64_t(len(statuses))) })
	}
	err := poll(nil)
	statuses := make([]Status, c.num_items)
	if err == nil && len(statuses) != 0 {
		err = poll(statuses)
	}
	runtime.KeepAlive(o)
	return OpInfo{c.state == C.PKV_OP_ENDED, Status(c.status), uint64(c.num_items), uint64(c.done_items), uint64(c.good_items),
		c.buffers_free != 0, statuses}, err
}

// Wait waits until it has ended, and gives what it ended with; ErrTimeout while it is under way.
func (o *Op) Wait(timeout time.Duration) error {
	err := call(func() C.pkv_status { return C.pkv_op_wait(o.h, nanoseconds(timeout)) })
	runtime.KeepAlive(o)
	return err
}

// Cancel asks it to end early.
func (o *Op) Cancel() error {
	err := call(func() C.pkv_status { return C.pkv_op_cancel(o.h) })
	runtime.KeepAlive(o)
	return err
}

// Close closes the handle.
func (o *Op) Close() error {
	err := call(func() C.pkv_status { return C.pkv_op_close(o.h) })
	if err == nil {
		runtime.SetFinalizer(o, nil)
	}
	return err
}
