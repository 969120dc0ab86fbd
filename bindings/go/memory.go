// SPDX-License-Identifier: Apache-2.0

package pagedkv

// #include <stdlib.h>
// #include <string.h>
// #include "shim.h"
import "C"

import (
	"math"
	"time"
	"unsafe"
)

// arena is C memory for the length of a call: what structs point to must not be Go's.
type arena struct{ pieces []unsafe.Pointer }

func (a *arena) alloc(size uintptr) unsafe.Pointer {
	piece := C.calloc(1, C.size_t(size)+1)
	if piece == nil {
		panic("pagedkv: out of memory")
	}
	a.pieces = append(a.pieces, piece)
	return piece
}

func (a *arena) free() {
	for _, piece := range a.pieces {
		C.free(piece)
	}
	a.pieces = nil
}

// copied gives a copy of a slice of numbers, nil for an empty one.
func copied[E any](a *arena, from []E) unsafe.Pointer {
	if len(from) == 0 {
		return nil
	}
	var one E
	to := a.alloc(uintptr(len(from)) * unsafe.Sizeof(one))
	copy(unsafe.Slice((*E)(to), len(from)), from)
	return to
}

func (a *arena) bytes(from []byte) C.pkv_bytes {
	return C.pkv_bytes{data: copied(a, from), size: C.uint64_t(len(from))}
}

// text gives a terminated copy, nil for "".
func (a *arena) text(from string) *C.char {
	if from == "" {
		return nil
	}
	return (*C.char)(copied(a, append([]byte(from), 0)))
}

// first gives the address of a slice's memory, nil for an empty one.
func first[E any](from []E) *E {
	if len(from) == 0 {
		return nil
	}
	return &from[0]
}

// All is the largest number: to the end, or without a bound.
const All uint64 = math.MaxUint64

// Forever, or anything below 0, is a timeout that never comes.
const Forever time.Duration = -1

func nanoseconds(d time.Duration) C.uint64_t {
	if d < 0 {
		return math.MaxUint64
	}
	return C.uint64_t(d)
}

func goText(from []C.char) string {
	return C.GoString(&from[0])
}

// makeable tells whether a slice of so many entries can be had.
func makeable(count uint64) bool { return count <= math.MaxInt32 }

func pointer(from []byte) unsafe.Pointer {
	if len(from) == 0 {
		return nil
	}
	return unsafe.Pointer(&from[0])
}

// texts gives terminated copies, "" as such.
func (a *arena) texts(from []string) **C.char {
	if len(from) == 0 {
		return nil
	}
	list := (**C.char)(a.alloc(uintptr(len(from)) * unsafe.Sizeof(uintptr(0))))
	entries := unsafe.Slice(list, len(from))
	for i, text := range from {
		entries[i] = (*C.char)(copied(a, append([]byte(text), 0)))
	}
	return list
}

// textOf asks for the size, then for the text, again if it has grown meanwhile.
func textOf(f func(buffer *C.char, capacity C.uint64_t, size *C.uint64_t) C.pkv_status) (string, error) {
	var size C.uint64_t
	if err := call(func() C.pkv_status { return f(nil, 0, &size) }); err != nil {
		return "", err
	}
	for {
		buffer := make([]C.char, size)
		if len(buffer) == 0 {
			return "", nil
		}
		err := call(func() C.pkv_status { return f(&buffer[0], C.uint64_t(len(buffer)), &size) })
		if err == nil {
			return goText(buffer), nil
		}
		if err.(*Error).Status != ErrNoSpace || int(size) <= len(buffer) {
			return "", err
		}
	}
}

type unsafePointer = unsafe.Pointer

// padded gives a copy with as many entries, nil for an empty one.
func padded[E any](a *arena, from []E, entries int) unsafe.Pointer {
	if len(from) == 0 {
		return nil
	}
	var one E
	to := a.alloc(uintptr(entries) * unsafe.Sizeof(one))
	copy(unsafe.Slice((*E)(to), entries), from)
	return to
}
