// SPDX-License-Identifier: Apache-2.0

package pagedkv

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"math/bits"
	"runtime"
	"unsafe"
)

// BatchArrays are the arrays of one layer group. They are C memory, which stays where it is and as it is until the batch is collected
// (Close does not free it): keep the batch (runtime.KeepAlive) as long as a slice of it is used.
type BatchArrays struct {
	Group      uint32
	Fill       int32  // stands where a block has no page, and behind rows
	MaxBlocks  uint64 // entries of a row of BlockTable; 0 = no block table
	MaxIndices uint64 // entries of BlockIndices; 0 = no compressed rows

	BlockTable   []int32 // out: [max tables, MaxBlocks]
	BlockIndptr  []int32 // out: [max tables + 1]
	BlockIndices []int32 // out: [MaxIndices]
	SlotMapping  []int64 // out: [max tokens]
}

// BatchOptions is how a batch is made.
type BatchOptions struct {
	MaxTables uint32
	MaxTokens uint64
	Arrays    []BatchArrays
}

// Batch is the tables of one decode step together, and the arrays that attention kernels read: batch.h. One goroutine at a time for
// a batch and the tables in it.
type Batch struct {
	Arrays      []BatchArrays // one for each of the options'
	Lengths     []int32       // [max tables]: tokens of each sequence with this step's
	LastPageLen []int32       // [max tables]: tokens in each last block

	h      *C.pkv_batch
	pool   *Pool
	step   []*Table
	memory *arena
	inUse
}

// array makes a slice of C memory, nil for one that cannot be had.
func array[E any](a *arena, rows, columns uint64) ([]E, error) {
	over, count := bits.Mul64(rows, columns)
	if over != 0 || count > 1<<32 {
		return nil, fail(ErrLimit, fmt.Sprintf("arrays of %d x %d entries", rows, columns))
	}
	var one E
	memory := C.calloc(C.size_t(count)+1, C.size_t(unsafe.Sizeof(one)))
	if memory == nil {
		return nil, fail(ErrNoMemory, fmt.Sprintf("arrays of %d x %d entries", rows, columns))
	}
	a.pieces = append(a.pieces, memory)
	return unsafe.Slice((*E)(memory), count), nil
}

func start32(from []int32) *C.int32_t { return (*C.int32_t)(unsafe.Pointer(first(from))) }

func (b *BatchArrays) make(a *arena, options *BatchOptions, c *C.pkv_batch_arrays) (err error) {
	*c = C.pkvgo_batch_arrays()
	c.group, c.fill, c.max_blocks, c.max_indices = C.uint32_t(b.Group), C.int32_t(b.Fill), C.uint64_t(b.MaxBlocks), C.uint64_t(b.MaxIndices)
	if b.SlotMapping, err = array[int64](a, options.MaxTokens, 1); err != nil {
		return err
	}
	c.slot_mapping = (*C.int64_t)(unsafe.Pointer(first(b.SlotMapping)))
	if b.MaxBlocks != 0 {
		if b.BlockTable, err = array[int32](a, uint64(options.MaxTables), b.MaxBlocks); err != nil {
			return err
		}
		c.block_table = start32(b.BlockTable)
	}
	if b.MaxIndices != 0 {
		if b.BlockIndptr, err = array[int32](a, uint64(options.MaxTables)+1, 1); err != nil {
			return err
		}
		if b.BlockIndices, err = array[int32](a, b.MaxIndices, 1); err != nil {
			return err
		}
		c.block_indptr, c.block_indices = start32(b.BlockIndptr), start32(b.BlockIndices)
	}
	return nil
}

// Batch makes a batch over the pool.
func (p *Pool) Batch(options BatchOptions) (*Batch, error) {
	b := &Batch{pool: p, memory: &arena{}}
	if err := b.open(&options); err != nil {
		b.memory.free()
		return nil, err
	}
	runtime.SetFinalizer(b, (*Batch).collected)
	return b, nil
}

func (b *Batch) open(options *BatchOptions) (err error) {
	var a arena
	defer a.free()
	c := C.pkvgo_batch_options()
	c.max_tables, c.max_tokens = C.uint32_t(options.MaxTables), C.uint64_t(options.MaxTokens)
	if b.Lengths, err = array[int32](b.memory, uint64(options.MaxTables), 1); err != nil {
		return err
	}
	if b.LastPageLen, err = array[int32](b.memory, uint64(options.MaxTables), 1); err != nil {
		return err
	}
	c.lengths, c.last_page_len = start32(b.Lengths), start32(b.LastPageLen)
	b.Arrays = append(b.Arrays, options.Arrays...)
	arrays := make([]C.pkv_batch_arrays, len(b.Arrays))
	for i := range b.Arrays {
		if err = b.Arrays[i].make(b.memory, options, &arrays[i]); err != nil {
			return err
		}
	}
	c.num_arrays, c.arrays = C.uint32_t(len(arrays)), (*C.pkv_batch_arrays)(copied(&a, arrays))
	return b.pool.call(func() C.pkv_status { return C.pkv_batch_create(b.pool.h, &c, &b.h) })
}

func (b *Batch) collected() { // nobody has it any more, so no call is under way
	_ = call(func() C.pkv_status { return C.pkv_batch_destroy(b.h) })
	b.memory.free()
}

// Close ends the batch; its tables live on, its arrays are not touched any more.
func (b *Batch) Close() error {
	err := call(func() C.pkv_status { return C.pkv_batch_destroy(b.h) })
	runtime.KeepAlive(b)
	return err
}

// call is for calls over the tables of a step: nobody else may be in one on any of them.
func (b *Batch) call(tables []*Table, f func() C.pkv_status) error {
	if err := b.enter("batch"); err != nil {
		return err
	}
	defer b.leave()
	return withTables(tables, func() error { return call(f) })
}

func withTables(tables []*Table, f func() error) error {
	for i, table := range tables {
		err := table.enter("table")
		if err == nil {
			defer table.leave()
			continue
		}
		for _, before := range tables[:i] {
			if before == table {
				return fail(ErrInvalid, fmt.Sprintf("table %d is in the list before", i))
			}
		}
		return err
	}
	return f()
}

func tableHandles(tables []*Table) []*C.pkv_table {
	handles := make([]*C.pkv_table, len(tables))
	for i, table := range tables {
		handles[i] = table.h
	}
	return handles
}

// Reserve begins a step: room for numNew[i] tokens in tables[i]. The statuses say why a table has no part in the step; an error is
// about the whole batch, and nothing is changed then.
func (b *Batch) Reserve(tables []*Table, numNew []uint32) ([]Status, error) {
	if len(tables) != len(numNew) {
		return nil, fail(ErrInvalid, fmt.Sprintf("%d tables, %d numbers", len(tables), len(numNew)))
	}
	handles, statuses := tableHandles(tables), make([]Status, len(tables))
	err := b.call(tables, func() C.pkv_status {
		return C.pkv_batch_reserve(b.h, C.uint32_t(len(handles)), first(handles), (*C.uint32_t)(unsafe.Pointer(first(numNew))),
			cStatuses(statuses))
	})
	if err = itemsFailed(statuses, err); err == nil {
		b.step = append([]*Table(nil), tables...)
	}
	return statuses, err
}

// SetTokens names this step's tokens: of all tables, one after another.
func (b *Batch) SetTokens(tokens []int32) ([]Status, error) {
	statuses := make([]Status, len(b.step))
	err := b.call(b.step, func() C.pkv_status {
		return C.pkv_batch_set_tokens(b.h, C.uint64_t(len(tokens)), i32(tokens), cStatuses(statuses))
	})
	return statuses, itemsFailed(statuses, err)
}

func (b *Batch) check(group uint32, k, v Rows) error {
	if b.pool == nil {
		return nil
	}
	return b.pool.check(group, k, v)
}

// Write scatters rows of a layer: row i goes to the i-th new token. Without V, v is Rows{}.
func (b *Batch) Write(group, layer uint32, k, v Rows, sync *Sync) error {
	if err := b.check(group, k, v); err != nil {
		return err
	}
	return b.call(b.step, sync.with(func(s *C.pkv_sync) C.pkv_status {
		return C.pkvgo_batch_write(b.h, C.uint32_t(group), C.uint32_t(layer), k.c(), v.c(), s)
	}))
}

// Gather gathers a layer of every table, from firstTokens on (nil: 0 for all). padded 0: rows follow each other; else table r's begin at
// r * padded, the rest is zeroed.
func (b *Batch) Gather(group, layer uint32, firstTokens []uint64, padded uint64, k, v Rows, sync *Sync) error {
	if firstTokens != nil && len(firstTokens) != len(b.step) {
		return fail(ErrInvalid, fmt.Sprintf("%d numbers for %d tables", len(firstTokens), len(b.step)))
	}
	if err := b.check(group, k, v); err != nil {
		return err
	}
	return b.call(b.step, sync.with(func(s *C.pkv_sync) C.pkv_status {
		return C.pkvgo_batch_gather(b.h, C.uint32_t(group), C.uint32_t(layer), u64(firstTokens), C.uint64_t(padded), k.c(), v.c(), s)
	}))
}

// Commit ends the step. Of each table's new tokens the first numAccepted[i] are kept; nil = all.
func (b *Batch) Commit(numAccepted []uint32, sync *Sync) ([]Status, error) {
	if numAccepted != nil && len(numAccepted) != len(b.step) {
		return nil, fail(ErrInvalid, fmt.Sprintf("%d numbers for %d tables", len(numAccepted), len(b.step)))
	}
	statuses := make([]Status, len(b.step))
	err := b.call(b.step, sync.with(func(s *C.pkv_sync) C.pkv_status {
		return C.pkv_batch_commit(b.h, (*C.uint32_t)(unsafe.Pointer(first(numAccepted))), cStatuses(statuses), s)
	}))
	if err = itemsFailed(statuses, err); err == nil {
		b.step = nil
	}
	return statuses, err
}
