// SPDX-License-Identifier: Apache-2.0

package pagedkv

// #include "shim.h"
import "C"

import (
	"runtime"
	"strings"
	"unsafe"
)

// Status is what a call came to. Those that are failures are errors, for errors.Is:
//
//	if errors.Is(err, pagedkv.ErrNoPages) { ... }
type Status int32

// OK is what a call came to that was done; it is never an error.
const OK Status = 0

// Failures; types.h says more about each.
const (
	ErrInvalid     Status = -1  // an argument is out of range or contradicts another
	ErrHandle      Status = -2  // a closed object, or a zero one
	ErrClosed      Status = -3  // the object's parent was closed
	ErrForked      Status = -4  // the handle was made before fork() in the parent process
	ErrNoMemory    Status = -5  // the operating system or the allocator gave no memory
	ErrNoPages     Status = -6  // the pool has too few pages that are free or may be evicted
	ErrNoSpace     Status = -7  // a buffer or a tier is too small
	ErrNotFound    Status = -8  // what was named does not exist
	ErrNotResident Status = -9  // a block has no page in the pool
	ErrLost        Status = -10 // blocks of a sequence could not be loaded and are gone
	ErrState       Status = -11 // the object or page is not in a state that allows this
	ErrBusy        Status = -12 // in use by an operation, or by a call of another goroutine
	ErrAgain       Status = -13 // not now; a later try may succeed
	ErrTimeout     Status = -14 // a deadline passed
	ErrCancelled   Status = -15 // cancelled by the caller
	ErrUnsupported Status = -16 // not supported by this build, machine or object
	ErrMismatch    Status = -17 // geometry, identity or seed differs
	ErrIO          Status = -18 // input or output failed
	ErrLimit       Status = -19 // larger than a documented limit
	ErrCapture     Status = -20 // not possible while a stream is being captured
	ErrInternal    Status = -21 // a fault of the library itself: please report it
)

// fullName is that of the C constant.
func fullName(s Status) string { return C.GoString(C.pkv_status_string(C.pkv_status(s))) }

// Name is that of the C constant without its prefix: "NO_PAGES", "OK".
func (s Status) Name() string {
	return strings.TrimPrefix(strings.TrimPrefix(fullName(s), "PKV_"), "ERR_")
}

func (s Status) Error() string { return "pagedkv: " + s.Name() }

// Error is a call that failed: why, and the library's text with the values at fault.
type Error struct {
	Status Status
	Detail string
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Status.Error()
	}
	return e.Status.Error() + ": " + e.Detail
}

// Unwrap gives the status, so that errors.Is finds it.
func (e *Error) Unwrap() error { return e.Status }

// call calls into the library, and takes the text of a failure on the thread that it happened on.
func call(f func() C.pkv_status) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	status := f()
	if status == C.PKV_OK {
		return nil
	}
	buffer := make([]byte, 512)
	for {
		size := int(C.pkv_last_error((*C.char)(unsafe.Pointer(&buffer[0])), C.size_t(len(buffer))))
		if size <= len(buffer) {
			return &Error{Status(status), C.GoString((*C.char)(unsafe.Pointer(&buffer[0])))}
		}
		buffer = make([]byte, size)
	}
}

func fail(status Status, detail string) error { return &Error{status, detail} }

// itemsFailed is what a call over several items came to: nil when the failure is that of an item, which has it in its status.
func itemsFailed(statuses []Status, err error) error {
	for _, status := range statuses {
		if status != OK {
			return nil
		}
	}
	return err
}
