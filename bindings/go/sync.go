// SPDX-License-Identifier: Apache-2.0

package pagedkv

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Counter is a number that calls can wait for; it has to be closed, when no call waits for it any more.
type Counter struct{ at *uint64 }

// NewCounter makes a counter that stands at 0.
func NewCounter() *Counter {
	at := (*uint64)(C.calloc(1, 8))
	if at == nil {
		panic("pagedkv: out of memory")
	}
	return &Counter{at}
}

// Set lets calls go on that wait for this value, or a smaller one.
func (c *Counter) Set(value uint64) { atomic.StoreUint64(c.at, value) }

// Close frees the counter.
func (c *Counter) Close() {
	C.free(unsafe.Pointer(c.at))
	c.at = nil
}

// Sync says when a call may touch page bytes, or free pages that work under way may still use. nil: now.
type Sync struct {
	kind    int32
	handle  uintptr
	counter *Counter
	value   uint64
	timeout time.Duration
}

const streamKind = 1

// CUDAStream is in order on a CUDA stream.
func CUDAStream(stream uintptr) *Sync { return &Sync{kind: streamKind, handle: stream} }

// CUDAEvent is after a CUDA event.
func CUDAEvent(event uintptr) *Sync { return &Sync{kind: 2, handle: event} }

// AfterCount is after a counter has reached a value; a timeout of 0 is one second.
func AfterCount(counter *Counter, value uint64, timeout time.Duration) *Sync {
	return &Sync{kind: 3, counter: counter, value: value, timeout: timeout}
}

func (s *Sync) fill(c *C.pkv_sync) {
	*c = C.pkvgo_sync()
	c.kind = C.int32_t(s.kind)
	// A number of the caller's, or C memory: written as a number, since it is no Go pointer.
	address := s.handle
	if s.counter != nil {
		address = uintptr(unsafe.Pointer(s.counter.at))
	}
	*(*uintptr)(unsafe.Pointer(&c.handle)) = address
	c.value = C.uint64_t(s.value)
	c.timeout_ns = nanoseconds(s.timeout)
}

// with calls f with the C struct, or with nil.
func (s *Sync) with(f func(*C.pkv_sync) C.pkv_status) func() C.pkv_status {
	return func() C.pkv_status {
		if s == nil {
			return f(nil)
		}
		var c C.pkv_sync
		s.fill(&c)
		status := f(&c)
		runtime.KeepAlive(s)
		return status
	}
}
