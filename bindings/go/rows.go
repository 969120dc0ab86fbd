// SPDX-License-Identifier: Apache-2.0

package pagedkv

// #include "shim.h"
import "C"

import (
	"fmt"
	"math/bits"
	"unsafe"
)

// Rows are rows of K or V in a slice: element (token, head, i) lies TokenStride * token + HeadStride * head + i * element size bytes
// after the slice's first one. Rows{} stands for none.
type Rows struct {
	data        unsafe.Pointer
	bytes       uint64
	dtype       DType
	numTokens   uint64
	tokenStride uint64
	headStride  uint64
	given       bool
}

// Element is what slices of rows may be made of; their bytes count.
type Element interface {
	~float32 | ~uint32 | ~int32 | ~uint16 | ~int16 | ~uint8 | ~int8
}

// RowsOf has contiguous rows: [tokens, heads, row].
func RowsOf[E Element](data []E, dtype DType, numTokens uint64) Rows {
	return StridedRows(data, dtype, numTokens, 0, 0)
}

// StridedRows has distances in bytes; 0: as in contiguous ones.
func StridedRows[E Element](data []E, dtype DType, numTokens, tokenStride, headStride uint64) Rows {
	var one E
	return Rows{unsafe.Pointer(first(data)), uint64(len(data)) * uint64(unsafe.Sizeof(one)), dtype, numTokens, tokenStride, headStride, true}
}

// RowsAt has rows in memory that no slice describes: a device's, or C's. The caller answers for it: so many bytes at the address have to be
// there as long as calls use them.
func RowsAt(address uintptr, bytes uint64, dtype DType, numTokens, tokenStride, headStride uint64) Rows {
	r := Rows{nil, bytes, dtype, numTokens, tokenStride, headStride, true}
	*(*uintptr)(unsafe.Pointer(&r.data)) = address // no Go pointer
	return r
}

func (r Rows) c() C.pkvgo_rows {
	c := C.pkvgo_rows{data: r.data, num_tokens: C.uint64_t(r.numTokens), token_stride: C.uint64_t(r.tokenStride),
		head_stride: C.uint64_t(r.headStride), dtype: C.int32_t(r.dtype)}
	if r.given {
		c.given = 1
	}
	return c
}

// shape is what rows of a layer group look like.
type shape struct {
	heads     uint64
	kRowBytes uint64
	vRowBytes uint64
	dtype     DType
}

// check measures slices; a group that is none is for the library to refuse.
func (p *Pool) check(group uint32, k, v Rows) error {
	if uint64(group) >= uint64(len(p.geometry)) {
		return nil
	}
	shape := p.geometry[group]
	if err := k.check("k", shape, shape.kRowBytes); err != nil {
		return err
	}
	return v.check("v", shape, shape.vRowBytes)
}

func (r Rows) check(name string, of shape, row uint64) error {
	if from, to := of.dtype.Bytes(), r.dtype.Bytes(); from != 0 && to != 0 {
		row = row / from * to
	}
	if !r.given || r.numTokens == 0 || row == 0 {
		return nil
	}
	head, token := r.headStride, r.tokenStride
	if head == 0 {
		head = row
	}
	if token == 0 {
		token = of.heads * row
	}
	over1, tokens := bits.Mul64(r.numTokens-1, token)
	over2, heads := bits.Mul64(of.heads-1, head)
	sum, over3 := bits.Add64(tokens, heads, 0)
	needed, over4 := bits.Add64(sum, row, 0)
	if over1|over2|over3|over4 != 0 {
		needed = All
	}
	if needed > r.bytes {
		return fail(ErrInvalid, fmt.Sprintf("%s: rows of %d tokens and %d heads take %d bytes, the slice has %d", name, r.numTokens, of.heads,
			needed, r.bytes))
	}
	return nil
}
