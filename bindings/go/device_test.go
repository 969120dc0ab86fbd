// SPDX-License-Identifier: Apache-2.0

package pagedkv

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"
)

func TestDeviceThatIsNotThere(t *testing.T) {
	check(t, Device{}.Available())
	none := Device{CUDADevice, 1000}
	err := none.Available()
	wants(t, err, ErrUnsupported)
	if err.(*Error).Detail == "" {
		t.Fatal("no reason")
	}
	_, err = NewPool(PoolOptions{PageTokens: 16, Groups: []GroupOptions{groupOf()}, Device: none})
	wants(t, err, ErrUnsupported)
	wants(t, Device{Kind: 7}.Available(), ErrInvalid)
	check(t, poolOf(t).Order(nil)) // a host pool has nothing to order
}

// memoryAt is memory at an address that is not Go's.
func memoryAt(address uintptr, count int) []float32 {
	return unsafe.Slice((*float32)(*(*unsafe.Pointer)(unsafe.Pointer(&address))), count)
}

// What is a device to the library, and memory to a test that knows it: rows go from another pool's pages to a pool's, and back. It runs in a
// process of its own, whose plug-in is that device.
func TestDevicePool(t *testing.T) {
	if os.Getenv("PKV_FAKE_DEVICE") == "" {
		folder := os.Getenv("PKV_TEST_DEVICE")
		if _, err := os.Stat(filepath.Join(folder, "libpagedkv-cuda.so")); folder == "" || err != nil {
			t.Skip("no GPU, and no device of host memory is built (PKV_TEST_DEVICE)")
		}
		again(t, "PKV_FAKE_DEVICE=open", "PKV_PLUGIN_DIR="+folder)
		return
	}
	device := Device{CUDADevice, 0}
	check(t, device.Available())
	stepOnDevice(t)
	options := PoolOptions{PageTokens: 16, Groups: []GroupOptions{groupOf()}, Device: device, TransferBlocks: 4}
	pool, other := must(NewPool(options)), must(NewPool(options))
	defer pool.Close()
	defer other.Close()
	at := must(other.Layout(0, 0)).KBase
	here := RowsAt(at, 20*row*4, F32, 20, 0, 0)
	for i, memory := 0, memoryAt(at, 20*row); i < len(memory); i++ {
		memory[i] = float32(i)
	}
	table := must(pool.Table())
	defer table.Close()
	must(table.Admit(&Prompt{Tokens: tokensFrom(1, 20)}, nil))
	for layer := uint32(0); layer < 2; layer++ {
		check(t, table.Write(0, layer, 0, 20, here, here, nil))
	}
	check(t, table.Commit(20, nil))
	check(t, pool.Order(nil))
	for i, memory := 0, memoryAt(at, 20*row); i < len(memory); i++ {
		memory[i] = 0
	}
	check(t, table.Gather(0, 1, 0, 20, here, Rows{}, nil))
	for i, value := range memoryAt(at, 20*row) {
		if value != float32(i) {
			t.Fatalf("element %d is %v", i, value)
		}
	}
	// Room is measured here as well.
	wants(t, table.Gather(0, 1, 0, 20, RowsAt(at, 19*row*4, F32, 20, 0, 0), Rows{}, nil), ErrInvalid, "bytes")
	counter := NewCounter()
	defer counter.Close()
	options.InPlace = AfterCount(counter, 1, 0)
	_, err := NewPool(options)
	wants(t, err, ErrInvalid, "in_place")
}

// A step over layers on the device of host memory, without a stream: the call waits, and the lists are there.
func stepOnDevice(t *testing.T) {
	tier := must(HostTier(8 << 20))
	defer tier.Close()
	pool := must(NewPool(PoolOptions{PageTokens: 16, Groups: []GroupOptions{groupOf()}, Device: Device{CUDADevice, 0}, Tiers: []TierAttachment{{Tier: tier}}}))
	defer pool.Close()
	memory := make([]float32, 100*row)
	for i := range memory {
		memory[i] = float32(i)
	}
	here := RowsOf(memory, F32, 100) // the device reads all memory of the host
	table := must(pool.Table())
	defer table.Close()
	must(table.Admit(&Prompt{Tokens: tokensFrom(1, 100)}, nil))
	for layer := uint32(0); layer < 2; layer++ {
		check(t, table.Write(0, layer, 0, 100, here, here, nil))
	}
	check(t, table.Commit(100, nil))
	if spilled := must(table.Spill(0, 4, nil)); spilled.SpilledBlocks != 4 {
		t.Fatal(spilled)
	}
	session := must(pool.Prefetch(&PrefetchOptions{NumBuffers: 2, MaxTables: 2, StagingPages: []uint64{16}}))
	defer session.Close()
	must(session.StepBegin([]*Table{table}, nil))
	seen := 0
	for last := false; !last; {
		view := must(session.AcquireIn(0, Forever, nil))
		for _, slice := range view.Slices {
			at := view.Layout.KBase + uintptr(slice)*uintptr(view.Layout.K.Page)
			if got := memoryAt(at, 1)[0]; got != float32(seen*16*row) {
				t.Fatal(seen, got)
			}
			seen++
		}
		if view.NumSlices != uint64(len(view.Slices)) || view.NumTables != 1 || view.SlicesAt == 0 || view.IndptrAt == 0 || view.FirstBlockAt == 0 {
			t.Fatal(view)
		}
		check(t, session.Release(0, nil))
		last = view.Last
	}
	if seen != 7 {
		t.Fatal(seen)
	}
	must(session.StepEnd())
}
