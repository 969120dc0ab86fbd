// SPDX-License-Identifier: Apache-2.0

package pagedkv

// #include "shim.h"
import "C"

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// inUse tells whether a goroutine is in a call on an object that one at a time may use.
type inUse struct{ busy int32 }

func (u *inUse) enter(what string) error {
	if !atomic.CompareAndSwapInt32(&u.busy, 0, 1) {
		return fail(ErrBusy, "another goroutine is in a call on this "+what)
	}
	return nil
}

func (u *inUse) leave() { atomic.StoreInt32(&u.busy, 0) }

// Table is one sequence, from its prompt to its last token: table.h. One goroutine at a time.
type Table struct {
	h    *C.pkv_table
	pool *Pool
	inUse
}

// Table makes an empty table.
func (p *Pool) Table() (*Table, error) {
	t := &Table{pool: p}
	if err := p.call(func() C.pkv_status { return C.pkv_table_create(p.h, &t.h) }); err != nil {
		return nil, err
	}
	return t.opened(), nil
}

func (t *Table) opened() *Table {
	runtime.SetFinalizer(t, func(t *Table) { _ = t.Close() })
	return t
}

func (t *Table) call(f func() C.pkv_status) error {
	if err := t.enter("table"); err != nil {
		return err
	}
	defer t.leave()
	return call(f)
}

// check measures slices; a zero table has no pool, and is for the library to refuse.
func (t *Table) check(group uint32, k, v Rows) error {
	if t.pool == nil {
		return nil
	}
	return t.pool.check(group, k, v)
}

// Close releases all pages and the table. It may be called while another goroutine is in a call, and takes effect after it.
func (t *Table) Close() error { return t.CloseAfter(nil) }

// CloseAfter is Close after work that may still use the pages. ErrTimeout: it is still open.
func (t *Table) CloseAfter(sync *Sync) error {
	err := call(sync.with(func(s *C.pkv_sync) C.pkv_status { return C.pkv_table_destroy(t.h, s) }))
	if err == nil {
		runtime.SetFinalizer(t, nil)
	}
	runtime.KeepAlive(t)
	return err
}

// Clear releases all pages and forgets the sequence.
func (t *Table) Clear(sync *Sync) error {
	return t.call(sync.with(func(s *C.pkv_sync) C.pkv_status { return C.pkv_table_clear(t.h, s) }))
}

// Flags of AdmitOptions.
const (
	AdmitNoMatch uint32 = 1 // take nothing from the cache
	AdmitRetry   uint32 = 2 // the request was admitted before and is coming back
	AdmitPartial uint32 = 4 // a match may end inside a block
	AdmitShare   uint32 = 8 // take published pages in place of own ones with the same content
)

// AdmitOptions is how a table is admitted; nil = defaults.
type AdmitOptions struct {
	MaxMatch      uint64 // at most this many tokens may match; 0 = all but the last one, All = no bound
	ReserveTokens uint64 // room to make after the matched tokens; 0 = the rest of the prompt
	Watermark     uint64 // pages that must stay free or evictable afterwards
	Flags         uint32
}

// Admit begins a sequence: matches the longest cached prefix of the prompt and makes room for what follows.
func (t *Table) Admit(prompt *Prompt, options *AdmitOptions) (Match, error) {
	var a arena
	defer a.free()
	match := C.pkvgo_match()
	var with *C.pkv_admit_options
	if options != nil {
		c := C.pkvgo_admit_options()
		c.max_match, c.reserve_tokens = C.uint64_t(options.MaxMatch), C.uint64_t(options.ReserveTokens)
		c.watermark, c.flags = C.uint64_t(options.Watermark), C.uint32_t(options.Flags)
		with = &c
	}
	err := t.call(func() C.pkv_status { return C.pkv_table_admit(t.h, prompt.c(&a), with, &match) })
	return newMatch(&match), err
}

// Reserve makes room for the first so many tokens of the sequence in all.
func (t *Table) Reserve(numTokens uint64) error {
	return t.call(func() C.pkv_status { return C.pkv_table_reserve(t.h, C.uint64_t(numTokens)) })
}

// SetTokens names tokens.
func (t *Table) SetTokens(position uint64, tokens []int32) error {
	return t.call(func() C.pkv_status {
		return C.pkv_table_set_tokens(t.h, C.uint64_t(position), C.uint64_t(len(tokens)), i32(tokens))
	})
}

// Write puts rows of a layer in: row i belongs to position + i. Without V, v is Rows{}.
func (t *Table) Write(group, layer uint32, position, numTokens uint64, k, v Rows, sync *Sync) error {
	if err := t.check(group, k, v); err != nil {
		return err
	}
	return t.call(sync.with(func(s *C.pkv_sync) C.pkv_status {
		return C.pkvgo_table_write(t.h, C.uint32_t(group), C.uint32_t(layer), C.uint64_t(position), C.uint64_t(numTokens), k.c(), v.c(), s)
	}))
}

// Gather takes rows of a layer out: row i is token position + i. Rows{} for what is not wanted.
func (t *Table) Gather(group, layer uint32, position, numTokens uint64, k, v Rows, sync *Sync) error {
	if err := t.check(group, k, v); err != nil {
		return err
	}
	return t.call(sync.with(func(s *C.pkv_sync) C.pkv_status {
		return C.pkvgo_table_gather(t.h, C.uint32_t(group), C.uint32_t(layer), C.uint64_t(position), C.uint64_t(numTokens), k.c(), v.c(), s)
	}))
}

// Commit says that the KV of the first so many tokens is complete in all layers, and publishes blocks.
func (t *Table) Commit(numTokens uint64, sync *Sync) error {
	return t.call(sync.with(func(s *C.pkv_sync) C.pkv_status { return C.pkv_table_commit(t.h, C.uint64_t(numTokens), s) }))
}

// Fork makes a second table with the same committed tokens, sharing their pages.
func (t *Table) Fork(sync *Sync) (*Table, error) {
	fork := &Table{pool: t.pool}
	if err := t.call(sync.with(func(s *C.pkv_sync) C.pkv_status { return C.pkv_table_fork(t.h, s, &fork.h) })); err != nil {
		return nil, err
	}
	return fork.opened(), nil
}

// Truncate cuts the sequence.
func (t *Table) Truncate(numTokens uint64, sync *Sync) error {
	return t.call(sync.with(func(s *C.pkv_sync) C.pkv_status { return C.pkv_table_truncate(t.h, C.uint64_t(numTokens), s) }))
}

// Accept keeps the accepted ones of tree-drafted tokens: strictly ascending positions after the committed ones.
func (t *Table) Accept(positions []uint64, sync *Sync) error {
	return t.call(sync.with(func(s *C.pkv_sync) C.pkv_status {
		return C.pkv_table_accept(t.h, C.uint64_t(len(positions)), u64(positions), s)
	}))
}

// Window drops, in window groups, the blocks that no later token attends to.
func (t *Table) Window(sync *Sync) error {
	return t.call(sync.with(func(s *C.pkv_sync) C.pkv_status { return C.pkv_table_window(t.h, s) }))
}

// SetRetention sets the retention of blocks that hold tokens of a range; All = to the end, whatever it will be.
func (t *Table) SetRetention(firstToken, numTokens uint64, retention *Retention) error {
	return t.call(func() C.pkv_status {
		return C.pkv_table_set_retention(t.h, C.uint64_t(firstToken), C.uint64_t(numTokens), retention.c())
	})
}

// PageCopy: all rows of page Src are to be copied to page Dst.
type PageCopy struct {
	Group    uint32
	Src, Dst int32
}

// TakeCopies gives, in a pool without memory, the copies on write that have to be made before the next write.
func (t *Table) TakeCopies() ([]PageCopy, error) {
	copies := make([]PageCopy, C.PKV_MAX_GROUPS)
	count, err := t.takeCopies(copies)
	if err != nil {
		return nil, err
	}
	return copies[:count], nil
}

func (t *Table) takeCopies(copies []PageCopy) (uint64, error) {
	var count C.uint64_t
	err := t.call(func() C.pkv_status {
		return C.pkv_table_take_copies(t.h, (*C.pkv_page_copy)(unsafe.Pointer(first(copies))), C.uint64_t(len(copies)), &count)
	})
	return uint64(count), err
}

// Export gives the committed part of the sequence as bytes.
func (t *Table) Export() ([]byte, error) {
	size, err := t.ExportTo(nil)
	if err != nil {
		return nil, err
	}
	buffer := make([]byte, size)
	size, err = t.ExportTo(buffer)
	return buffer[:size], err
}

// ExportTo is the same, into a slice; it gives the size, that which is needed for an empty one.
func (t *Table) ExportTo(buffer []byte) (uint64, error) {
	var size C.uint64_t
	err := t.call(func() C.pkv_status { return C.pkv_table_export(t.h, pointer(buffer), C.uint64_t(len(buffer)), &size) })
	if err != nil {
		return uint64(size), err
	}
	return uint64(size), nil
}

// Import begins a sequence from what Export gave.
func (t *Table) Import(buffer []byte) error {
	return t.call(func() C.pkv_status { return C.pkv_table_import(t.h, pointer(buffer), C.uint64_t(len(buffer))) })
}

// Pages gives the block table of a group.
func (t *Table) Pages(group uint32) ([]int32, error) {
	count, err := t.pages(group, nil)
	if err != nil || count == 0 {
		return nil, err
	}
	pages := make([]int32, count)
	_, err = t.pages(group, pages)
	return pages, err
}

func (t *Table) pages(group uint32, pages []int32) (uint64, error) {
	var count C.uint64_t
	err := t.call(func() C.pkv_status {
		return C.pkv_table_pages(t.h, C.uint32_t(group), i32(pages), C.uint64_t(len(pages)), &count)
	})
	return uint64(count), err
}

// Slots gives the slots of a range of tokens.
func (t *Table) Slots(group uint32, position, numTokens uint64) ([]int64, error) {
	var slots []int64
	if makeable(numTokens) {
		slots = make([]int64, numTokens)
	}
	err := t.call(func() C.pkv_status {
		return C.pkv_table_slots(t.h, C.uint32_t(group), C.uint64_t(position), C.uint64_t(numTokens), (*C.pkv_slot)(unsafe.Pointer(first(slots))))
	})
	return slots, err
}

// Residency tells where blocks are: -1 dropped by a window, 0 in a page, 1 + i in tier i.
func (t *Table) Residency(group uint32, firstBlock, numBlocks uint64) ([]int32, error) {
	var where []int32
	if makeable(numBlocks) {
		where = make([]int32, numBlocks)
	}
	err := t.call(func() C.pkv_status {
		return C.pkv_table_residency(t.h, C.uint32_t(group), C.uint64_t(firstBlock), C.uint64_t(numBlocks), i32(where))
	})
	return where, err
}

// Spill moves committed blocks down into tiers and frees their pages.
func (t *Table) Spill(firstBlock, numBlocks uint64, sync *Sync) (SpillResult, error) {
	c := C.pkvgo_spill_result()
	err := t.call(sync.with(func(s *C.pkv_sync) C.pkv_status {
		return C.pkv_table_spill(t.h, C.uint64_t(firstBlock), C.uint64_t(numBlocks), s, &c)
	}))
	return newSpillResult(&c), err
}

// Restore brings absent blocks back into pages, and says how many.
func (t *Table) Restore(firstBlock, numBlocks uint64, timeout time.Duration) (uint64, error) {
	var restored C.uint64_t
	err := t.call(func() C.pkv_status {
		return C.pkv_table_restore(t.h, C.uint64_t(firstBlock), C.uint64_t(numBlocks), nanoseconds(timeout), &restored)
	})
	return uint64(restored), err
}

// Info gives the table's numbers.
func (t *Table) Info() (TableInfo, error) {
	c := C.pkvgo_table_info()
	err := t.call(func() C.pkv_status { return C.pkv_table_get_info(t.h, &c) })
	return newTableInfo(&c), err
}

func u64(from []uint64) *C.uint64_t { return (*C.uint64_t)(unsafe.Pointer(first(from))) }
