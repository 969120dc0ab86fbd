// SPDX-License-Identifier: Apache-2.0

package pagedkv

import (
	"runtime"
	"testing"
	"time"
	"unsafe"
)

// What a call was given is overwritten, and collected, as soon as the call has returned, while the operation goes on.
func TestCaseQ02NothingOfTheCallersIsUsedAfterACall(t *testing.T) {
	tier, queue := must(HostTier(8<<20)), must(NewQueue())
	defer tier.Close()
	defer queue.Close()
	pool := must(NewPool(PoolOptions{PageTokens: 16, Groups: []GroupOptions{groupOf()}, Tiers: []TierAttachment{{Tier: tier, Policy: WriteThrough}}}))
	defer pool.Close()
	held := must(pool.Alloc(0, 32))
	for i, page := range held {
		data := make([]float32, row)
		data[0] = float32(i)
		rows := RowsOf(data, F32, 1)
		check(t, pool.Write(0, 1, []int64{int64(page) * 16}, rows, rows, nil))
	}
	prompt := &Prompt{Tokens: tokensFrom(0, 32*16)}
	begin := func(begin func(uint32, []TierKey, []int32, *Sync, *OpOptions) (*Op, error), pages []int32) {
		given, keys := append([]int32(nil), pages...), must(pool.ImageKeys(0, prompt))
		op := must(begin(0, keys, given, nil, &OpOptions{Queue: queue}))
		for i := range given {
			given[i] = -1
		}
		for i := range keys {
			keys[i] = TierKey{}
		}
		given, keys = nil, nil
		runtime.GC()
		if ended := must(queue.Drain(1, Forever)); ended[0].Status != OK {
			t.Fatal(ended)
		}
		if info := must(op.Poll()); info.GoodItems != 32 {
			t.Fatal(info)
		}
		check(t, op.Close())
	}
	begin(pool.Store, held)
	fresh := must(pool.Alloc(0, 32))
	begin(pool.Load, fresh)
	for i := range fresh {
		back := make([]float32, row)
		check(t, pool.Gather(0, 1, fresh, uint64(i)*16, 1, RowsOf(back, F32, 1), Rows{}, nil))
		if back[0] != float32(i) {
			t.Fatal(i, back)
		}
	}
}

// With one thread for all goroutines: a call that waits in the library leaves it to others.
func TestCaseQ10OthersRunWhileACallWaits(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	queue := must(NewQueue())
	defer queue.Close()
	done := make(chan error, 1)
	go func() {
		_, err := queue.Drain(1, 300*time.Millisecond)
		done <- err
	}()
	for count := 0; ; count++ {
		select {
		case err := <-done:
			wants(t, err, ErrTimeout)
			if count < 10000 {
				t.Fatal(count, "turns while a call waited")
			}
			return
		default:
			runtime.Gosched()
		}
	}
}

func TestArraysOfTheCallersForViews(t *testing.T) {
	var a arena
	defer a.free()
	slices, indptr := a.alloc(2*64*4), a.alloc(2*3*4)
	tier := must(HostTier(8 << 20))
	defer tier.Close()
	pool := must(NewPool(PoolOptions{PageTokens: 16, Groups: []GroupOptions{groupOf()}, Tiers: []TierAttachment{{Tier: tier}}}))
	defer pool.Close()
	table := filled(t, pool, 1, 100)
	defer table.Close()
	if spilled := must(table.Spill(0, 4, nil)); spilled.SpilledBlocks != 4 {
		t.Fatal(spilled)
	}
	session := must(pool.Prefetch(&PrefetchOptions{NumBuffers: 2, MaxSlices: 64, MaxTables: 2, StagingPages: []uint64{16},
		Slices: uintptr(slices), SliceIndptr: uintptr(indptr)}))
	defer session.Close()
	must(session.StepBegin([]*Table{table}, nil))
	_, err := session.AcquireIn(0, Forever, CUDAStream(4096)) // a host pool
	wants(t, err, ErrUnsupported)
	for layer := uint32(0); layer < 2; layer++ {
		for seen := 0; ; {
			view := must(session.Acquire(layer, Forever))
			at := unsafe.Slice((*int32)(slices), 2*64)[view.Buffer*64:]
			for i, slice := range view.Slices {
				if at[i] != slice {
					t.Fatal(at[:len(view.Slices)], view.Slices)
				}
			}
			if ends := unsafe.Slice((*int32)(indptr), 2*3)[view.Buffer*3:]; ends[1] != view.Indptr[1] {
				t.Fatal(ends[:2], view.Indptr)
			}
			seen += len(view.Slices)
			check(t, session.Release(layer, nil))
			if view.Last {
				if seen != 7 {
					t.Fatal(seen)
				}
				break
			}
		}
	}
	must(session.StepEnd())
}
