// SPDX-License-Identifier: Apache-2.0

package pagedkv

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"
)

const row = 2 * 4 // elements of a token: two heads of four floats

func groupOf() GroupOptions {
	return GroupOptions{NumPages: 64, NumLayers: 2, NumKVHeads: 2, KHeadDim: 4, VHeadDim: 4, DType: F32}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func poolOf(t testing.TB) *Pool {
	pool := must(NewPool(PoolOptions{PageTokens: 16, Groups: []GroupOptions{groupOf()}}))
	t.Cleanup(func() { pool.Close() })
	return pool
}

func tokensFrom(from, count int) []int32 {
	tokens := make([]int32, count)
	for i := range tokens {
		tokens[i] = int32(from + i)
	}
	return tokens
}

func zeros(tokens int) Rows { return RowsOf(make([]float32, tokens*row), F32, uint64(tokens)) }

func filled(t testing.TB, pool *Pool, from, count int) *Table {
	table := must(pool.Table())
	found := int(must(table.Admit(&Prompt{Tokens: tokensFrom(from, count)}, nil)).Tokens)
	for layer := uint32(0); layer < 2; layer++ {
		check(t, table.Write(0, layer, uint64(found), uint64(count-found), zeros(count-found), zeros(count-found), nil))
	}
	check(t, table.Commit(uint64(count), nil))
	return table
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants wants an error of a status whose text has these parts.
func wants(t testing.TB, err error, status Status, parts ...string) {
	t.Helper()
	if !errors.Is(err, status) {
		t.Fatalf("%v in place of %v", err, status)
	}
	var detail *Error
	if !errors.As(err, &detail) || detail.Status != status {
		t.Fatalf("%v has no detail", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Fatalf("%q is not in %q", part, err)
		}
	}
}

func TestErrors(t *testing.T) {
	_, err := NewPool(PoolOptions{Groups: []GroupOptions{groupOf()}})
	wants(t, err, ErrInvalid, "page_tokens")
	_, err = NewPool(PoolOptions{PageTokens: 70000, Groups: []GroupOptions{groupOf()}})
	wants(t, err, ErrLimit, "70000", "LIMIT")
	if errors.Is(err, ErrInvalid) || errors.Is(err, os.ErrNotExist) {
		t.Fatal("another status")
	}
	for status := ErrInternal; status < OK; status++ {
		if name := status.Name(); name == "UNKNOWN" || status.Error() != "pagedkv: "+name {
			t.Fatal(status, name)
		}
	}
	path := "/nowhere/é中😀/" + strings.Repeat("x", 200)
	_, err = FileTier(FileTierOptions{Path: path, CapacityBytes: 1 << 20})
	wants(t, err, ErrIO, path)
}

func TestCaseQ04CloseTwiceAndUseAfter(t *testing.T) {
	pool := poolOf(t)
	table := filled(t, pool, 1, 20)
	check(t, table.Close())
	wants(t, table.Close(), ErrHandle)
	_, err := table.Info()
	wants(t, err, ErrHandle)
	wants(t, table.Write(0, 0, 0, 1, zeros(1), zeros(1), nil), ErrHandle)
	_, err = table.Fork(nil)
	wants(t, err, ErrHandle)
	check(t, pool.Close())
	wants(t, pool.Close(), ErrHandle)
	_, err = pool.Table()
	wants(t, err, ErrHandle)
	_, err = pool.Aux(0, 0)
	wants(t, err, ErrHandle)
	var none Table
	wants(t, none.Reserve(1), ErrHandle)
	wants(t, none.Write(0, 0, 0, 1, zeros(1), zeros(1), nil), ErrHandle)
}

func TestCaseQ05ParentsFirst(t *testing.T) {
	pool := poolOf(t)
	table := filled(t, pool, 1, 20)
	fork := must(table.Fork(nil))
	batch := must(pool.Batch(BatchOptions{MaxTables: 2, MaxTokens: 2, Arrays: []BatchArrays{{MaxBlocks: 4}}}))
	check(t, pool.Close())
	_, err := table.Info()
	wants(t, err, ErrClosed)
	_, err = batch.Reserve([]*Table{table}, []uint32{1})
	wants(t, err, ErrClosed)
	check(t, batch.Close())
	wants(t, batch.Close(), ErrHandle)
	check(t, table.Close())
	check(t, fork.Close())

	tier := must(HostTier(1 << 20))
	tiered := must(NewPool(PoolOptions{PageTokens: 16, Groups: []GroupOptions{groupOf()}, Tiers: []TierAttachment{{Tier: tier}}}))
	check(t, tier.Close())
	session := must(tiered.Prefetch(nil))
	check(t, tiered.Close())
	wants(t, session.Cancel(), ErrClosed)
	check(t, session.Close())
	wants(t, session.Close(), ErrHandle)
}

// What is not closed is closed when it is collected, and keeps what it needs.
func TestCollected(t *testing.T) {
	pool := poolOf(t)
	for i := 0; i < 1000; i++ {
		must(pool.Table())
		if i%100 == 0 {
			batch := must(pool.Batch(BatchOptions{MaxTables: 1000, MaxTokens: 1000, Arrays: []BatchArrays{{MaxBlocks: 100}}}))
			batch.Lengths[999] = 1
		}
	}
	for i := 0; must(pool.Stats(0)).Tables != 0; i++ {
		if i == 500 {
			t.Fatal(must(pool.Stats(0)).Tables, "tables are left of those that were not closed")
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	child := filled(t, must(NewPool(PoolOptions{PageTokens: 16, Groups: []GroupOptions{groupOf()}})), 1, 20)
	runtime.GC()
	runtime.GC()
	if must(child.Info()).Committed != 20 {
		t.Fatal("a table keeps its pool")
	}
	child.Close()
}

// The last use of a table, and of slices, is the call.
func TestCaseQ01CollectorDuringCalls(t *testing.T) {
	pool := poolOf(t)
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		for {
			select {
			case <-stop:
				close(stopped)
				return
			default:
				runtime.GC()
			}
		}
	}()
	for i := 0; i < 1000; i++ {
		table := must(pool.Table())
		check(t, func() error { _, err := table.Admit(&Prompt{Tokens: tokensFrom(i*100, 20)}, nil); return err }())
		check(t, table.Write(0, 0, must(table.Info()).Committed, 1, zeros(1), zeros(1), nil))
		if i%2 == 0 {
			check(t, table.Close())
		}
		if i%16 == 0 {
			must(must(NewQueue()).FD())
			runtime.Gosched()
		}
		for must(pool.Stats(0)).FreePages < 8 {
			time.Sleep(time.Millisecond)
		}
	}
	close(stop)
	<-stopped
}

func TestSlicesAreMeasured(t *testing.T) {
	pool := poolOf(t)
	table := must(pool.Table())
	defer table.Close()
	must(table.Admit(&Prompt{Tokens: tokensFrom(1, 20)}, nil))
	short := RowsOf(make([]float32, 20*row-1), F32, 20)
	wants(t, table.Write(0, 0, 0, 20, short, zeros(20), nil), ErrInvalid, "k:", "640", "636")
	wants(t, table.Write(0, 0, 0, 20, zeros(20), short, nil), ErrInvalid, "v:")
	wants(t, table.Gather(0, 0, 0, 0, short, Rows{}, nil), ErrInvalid)
	wants(t, table.Write(0, 0, 0, 20, zeros(19), zeros(20), nil), ErrInvalid)
	wants(t, table.Write(0, 0, 0, 1, RowsOf(make([]byte, row*4), F32, All), zeros(1), nil), ErrInvalid)
	wants(t, table.Write(0, 0, 0, 1, StridedRows(make([]byte, row*4), F32, 3, 1<<63, 0), zeros(1), nil), ErrInvalid)
	wants(t, table.Write(0, 0, 0, 1, StridedRows(make([]byte, row*4), F32, 1, 0, All), zeros(1), nil), ErrInvalid)
	wants(t, table.Write(0, 0, 0, 1, RowsOf([]float32{}, F32, 1), zeros(1), nil), ErrInvalid)
	wants(t, table.Write(9, 0, 0, 1, zeros(1), zeros(1), nil), ErrInvalid)
	_, err := pool.Store(0, make([]TierKey, 1), []int32{0, 1}, nil, nil)
	wants(t, err, ErrInvalid, "1 keys for 2 pages")
	wants(t, pool.CopyPages(0, []int32{0}, nil, nil), ErrInvalid)
}

func TestCaseQ13Strides(t *testing.T) {
	pool := poolOf(t)
	table := must(pool.Table())
	defer table.Close()
	must(table.Admit(&Prompt{Tokens: tokensFrom(1, 20)}, nil))
	const token, head = 12, 20 * 12 // elements: a gap after each token, heads far apart
	from := make([]float32, 2*head)
	for n := 0; n < 20; n++ {
		for h := 0; h < 2; h++ {
			for i := 0; i < 4; i++ {
				from[n*token+h*head+i] = float32(100*n + 10*h + i)
			}
		}
	}
	rows := StridedRows(from, F32, 20, token*4, head*4)
	for layer := uint32(0); layer < 2; layer++ {
		check(t, table.Write(0, layer, 0, 20, rows, rows, nil))
	}
	check(t, table.Commit(20, nil))
	dense := make([]float32, 20*row+1)
	check(t, table.Gather(0, 1, 0, 20, RowsOf(dense[1:], F32, 20), Rows{}, nil))
	for n := 0; n < 20; n++ {
		for h := 0; h < 2; h++ {
			for i := 0; i < 4; i++ {
				if dense[1+n*row+h*4+i] != float32(100*n+10*h+i) {
					t.Fatal("row", n, "of head", h)
				}
			}
		}
	}
	if dense[0] != 0 {
		t.Fatal("something before the slice was written")
	}
	exact := 2*head - (token - 4)
	check(t, table.Gather(0, 0, 0, 20, StridedRows(from[:exact], F32, 20, token*4, head*4), Rows{}, nil))
	wants(t, table.Gather(0, 0, 0, 20, StridedRows(from[:exact-1], F32, 20, token*4, head*4), Rows{}, nil), ErrInvalid)
}

func TestLargeNumbers(t *testing.T) {
	group := groupOf()
	group.NumPages, group.NumLayers, group.KStrides.Page = 3, 1, 8<<30 // only what is touched takes memory
	wide, err := NewPool(PoolOptions{PageTokens: 16, Groups: []GroupOptions{group}})
	if errors.Is(err, ErrNoMemory) {
		t.Log("no address space for pages 8 GiB apart:", err)
	} else {
		check(t, err)
		defer wide.Close()
		must(wide.Alloc(0, 3))
		data, back := []float32{1, 2, 3, 4, 5, 6, 7, 8}, make([]float32, row)
		check(t, wide.Write(0, 0, []int64{2*16 + 15}, RowsOf(data, F32, 1), RowsOf(data, F32, 1), nil))
		check(t, wide.Gather(0, 0, []int32{2}, 2*0+15, 1, RowsOf(back, F32, 1), Rows{}, nil))
		if fmt.Sprint(back) != fmt.Sprint(data) {
			t.Fatal(back)
		}
	}
	pool := poolOf(t)
	table := must(pool.Table())
	defer table.Close()
	must(table.Admit(&Prompt{Tokens: []int32{1, 2, 3}}, nil))
	wants(t, table.Reserve(1<<32+7), ErrNoPages)
	wants(t, table.Reserve(All), ErrLimit, "18446744073709551615")
	_, err = table.Slots(0, 0, 1<<32+7)
	wants(t, err, ErrInvalid)
	wants(t, table.Gather(0, 0, 1<<33, 1, zeros(1), Rows{}, nil), ErrInvalid)
	check(t, table.Truncate(All, nil))
	far := StridedRows(make([]float32, row), F32, 1, 5<<30, 0) // above 2^32, of one token
	check(t, table.Write(0, 0, 0, 1, far, far, nil))
	wants(t, table.Write(0, 0, 0, 1, RowsOf(make([]float32, row), F32, 1<<31+1), zeros(1), nil), ErrInvalid)
	_, _, err = pool.Lookup(&Prompt{Tokens: []int32{1}}, 0, 1<<40)
	wants(t, err, ErrLimit)
	blocks := must(Predictor{PageTokens: 1, Lookahead: 3}.Predict(1<<40, 1<<40-5, nil))
	if len(blocks) != 3 || blocks[0] != 1<<40-5 {
		t.Fatal(blocks)
	}
	_, err = Predictor{Policy: Full, PageTokens: 1}.Predict(1<<40, 0, nil)
	wants(t, err, ErrLimit)
	_, err = pool.Batch(BatchOptions{MaxTables: 1 << 31, MaxTokens: 1, Arrays: []BatchArrays{{MaxBlocks: 1 << 62}}})
	wants(t, err, ErrLimit)
}

func TestAsynchronous(t *testing.T) {
	tier, queue := must(HostTier(1<<20)), must(NewQueue())
	defer tier.Close()
	defer queue.Close()
	pool := must(NewPool(PoolOptions{PageTokens: 16, Groups: []GroupOptions{groupOf()}, Tiers: []TierAttachment{{Tier: tier, Policy: WriteThrough}}}))
	defer pool.Close()
	pages := must(pool.Alloc(0, 2))
	keys := must(pool.ImageKeys(0, &Prompt{Tokens: tokensFrom(0, 32)}))
	data := make([]float32, row)
	data[3] = 42
	check(t, pool.Write(0, 1, []int64{int64(pages[1]) * 16}, RowsOf(data, F32, 1), RowsOf(data, F32, 1), nil))
	store := must(pool.Store(0, keys, pages, nil, &OpOptions{Queue: queue, User: All - 1}))
	keys = nil
	runtime.GC() // nothing of Go's is used after the call
	ended := must(queue.Drain(4, Forever))
	if len(ended) != 1 || ended[0].User != All-1 || ended[0].Status != OK {
		t.Fatal(ended)
	}
	check(t, store.Wait(0))
	info := must(store.Poll())
	if !info.Ended || info.GoodItems != 2 || len(info.Statuses) != 2 || !info.BuffersFree {
		t.Fatal(info)
	}
	check(t, store.Close())
	wants(t, store.Close(), ErrHandle)
	fresh := must(pool.Alloc(0, 2))
	load := must(pool.Load(0, must(pool.ImageKeys(0, &Prompt{Tokens: tokensFrom(0, 32)})), fresh, nil, nil))
	check(t, load.Wait(Forever))
	back := make([]float32, row)
	check(t, pool.Gather(0, 1, fresh, 16, 1, RowsOf(back, F32, 1), Rows{}, nil))
	if back[3] != 42 {
		t.Fatal(back)
	}
	_, err := queue.Drain(1, time.Millisecond)
	wants(t, err, ErrTimeout)
}

func TestManyGoroutines(t *testing.T) {
	group := groupOf()
	group.NumPages = 512
	pool := must(NewPool(PoolOptions{PageTokens: 16, Groups: []GroupOptions{group}}))
	defer pool.Close()
	var all sync.WaitGroup
	failures := make(chan error, 64)
	for n := 0; n < 32; n++ {
		all.Add(1)
		go func(from int) {
			defer all.Done()
			for i := 0; i < 30; i++ {
				if err := sequence(pool, from); err != nil {
					failures <- err
					return
				}
			}
		}(n * 1000)
	}
	all.Wait()
	select {
	case err := <-failures:
		t.Fatal(err)
	default:
	}
	if must(pool.Stats(0)).HeldPages != 0 {
		t.Fatal("pages are left")
	}
}

func sequence(pool *Pool, from int) error {
	table, err := pool.Table()
	if err != nil {
		return err
	}
	defer table.Close()
	match, err := table.Admit(&Prompt{Tokens: tokensFrom(from, 20)}, nil)
	if err != nil {
		return err
	}
	data, back := make([]float32, 20*row), make([]float32, 20*row)
	for i := range data {
		data[i] = float32(from + i)
	}
	for layer := uint32(0); layer < 2; layer++ {
		rest := RowsOf(data[match.Tokens*row:], F32, 20-match.Tokens)
		if err := table.Write(0, layer, match.Tokens, 20-match.Tokens, rest, rest, nil); err != nil {
			return err
		}
	}
	if err := table.Commit(20, nil); err != nil {
		return err
	}
	if err := table.Gather(0, 1, 0, 20, RowsOf(back, F32, 20), Rows{}, nil); err != nil {
		return err
	}
	if !bytes.Equal(memoryOf(data), memoryOf(back)) {
		return errors.New("other bytes than were written")
	}
	// The text is that of this goroutine's failure, whatever others on the same thread do.
	_, err = table.Slots(0, uint64(from), uint64(1000000+from))
	runtime.Gosched()
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprint(from)) {
		return fmt.Errorf("%v has no %d in it", err, from)
	}
	return nil
}

func TestOneGoroutineATable(t *testing.T) {
	pool := poolOf(t)
	table := filled(t, pool, 1, 20)
	defer table.Close()
	counter := NewCounter()
	defer counter.Close()
	done := make(chan error)
	go func() {
		err := error(ErrBusy)
		for errors.Is(err, ErrBusy) { // of the looks at it below
			err = table.Commit(20, AfterCount(counter, 1, 20*time.Second))
		}
		done <- err
	}()
	for {
		if _, err := table.Info(); err != nil {
			wants(t, err, ErrBusy)
			break
		}
		time.Sleep(100 * time.Microsecond)
	}
	batch := must(pool.Batch(BatchOptions{MaxTables: 2, MaxTokens: 2}))
	defer batch.Close()
	_, err := batch.Reserve([]*Table{table}, []uint32{1})
	wants(t, err, ErrBusy)
	counter.Set(1)
	check(t, <-done)
	_, err = batch.Reserve([]*Table{table, table}, []uint32{1, 1})
	wants(t, err, ErrInvalid)
	if must(table.Info()).Committed != 20 {
		t.Fatal("usable again")
	}
}

func TestCaseQ23ClosedWhileInUse(t *testing.T) {
	for i := 0; i < 30; i++ {
		pool := poolOf(t)
		var all sync.WaitGroup
		failures := make(chan error, 8)
		for n := 0; n < 4; n++ {
			all.Add(1)
			go func(from int) {
				defer all.Done()
				for {
					if err := sequence(pool, from); err != nil {
						failures <- err
						return
					}
				}
			}(n * 100)
		}
		time.Sleep(time.Duration(i%5) * time.Millisecond)
		check(t, pool.Close())
		all.Wait()
		for n := 0; n < 4; n++ {
			err := <-failures
			if !errors.Is(err, ErrClosed) && !errors.Is(err, ErrHandle) && !strings.Contains(err.Error(), "CLOSED") && !strings.Contains(err.Error(), "HANDLE") {
				t.Fatal(err)
			}
		}
	}
}

func TestBatch(t *testing.T) {
	pool := poolOf(t)
	a, b := filled(t, pool, 1, 20), filled(t, pool, 500, 33)
	defer a.Close()
	defer b.Close()
	batch := must(pool.Batch(BatchOptions{4, 8, []BatchArrays{{MaxBlocks: 4, Fill: -9, MaxIndices: 16}}}))
	statuses := must(batch.Reserve([]*Table{a, b}, []uint32{1, 2}))
	runtime.GC()
	arrays := &batch.Arrays[0]
	if fmt.Sprint(statuses) != fmt.Sprint([]Status{OK, OK}) || fmt.Sprint(batch.Lengths) != "[21 35 0 0]" {
		t.Fatal(statuses, batch.Lengths)
	}
	if arrays.BlockTable[0] != must(a.Pages(0))[0] || arrays.BlockTable[3] != -9 || arrays.BlockIndptr[2] != 5 {
		t.Fatal(arrays)
	}
	if arrays.SlotMapping[0] != must(a.Slots(0, 20, 1))[0] || arrays.SlotMapping[3] != -1 {
		t.Fatal(arrays.SlotMapping)
	}
	must(batch.SetTokens([]int32{7, 8, 9}))
	for layer := uint32(0); layer < 2; layer++ {
		check(t, batch.Write(0, layer, zeros(3), zeros(3), nil))
	}
	_, err := batch.Commit([]uint32{1}, nil)
	wants(t, err, ErrInvalid)
	wants(t, batch.Gather(0, 0, []uint64{1}, 0, zeros(60), zeros(60), nil), ErrInvalid)
	must(batch.Commit([]uint32{1, 1}, nil))
	if must(a.Info()).Committed != 21 || must(b.Info()).Committed != 34 {
		t.Fatal("committed")
	}
	check(t, batch.Close())
	if batch.Lengths[0] < 0 { // memory that is still there
		t.Fatal(batch.Lengths)
	}
	runtime.KeepAlive(batch)
}

func TestExport(t *testing.T) {
	pool := poolOf(t)
	table := filled(t, pool, 1, 20)
	defer table.Close()
	image := must(table.Export())
	other := must(poolOf(t).Table())
	defer other.Close()
	check(t, other.Import(image))
	if must(other.Info()).Committed != 20 {
		t.Fatal("imported")
	}
	_, err := table.ExportTo(make([]byte, 100))
	wants(t, err, ErrNoSpace)
	image[50] ^= 1
	wants(t, must(poolOf(t).Table()).Import(image), ErrInvalid)
}

func TestAux(t *testing.T) {
	group := groupOf()
	group.AuxBytes = 5
	pool := must(NewPool(PoolOptions{PageTokens: 16, Groups: []GroupOptions{group}}))
	defer pool.Close()
	check(t, pool.SetAux(0, 3, []byte("hello")))
	if string(must(pool.Aux(0, 3))) != "hello" {
		t.Fatal("aux bytes")
	}
	wants(t, pool.SetAux(0, 3, []byte("hello!")), ErrInvalid)
	_, err := pool.Aux(0, 64)
	wants(t, err, ErrInvalid)
}

func TestTexts(t *testing.T) {
	pool := poolOf(t)
	text := must(Prometheus(Sources{Pools: map[string]*Pool{"a\"bé": pool}}))
	if !strings.Contains(text, `pool="a\"bé"`) {
		t.Fatal(text[:300])
	}
	if Version() == "" || VersionNumber() <= 0 || CPUKernels() == "" {
		t.Fatal("versions")
	}
	path := filepath.Join(t.TempDir(), "trace.json")
	check(t, StartTrace(1000))
	must(StopTrace(path))
	if content := must(os.ReadFile(path)); !strings.ContainsAny(string(content[:1]), "{[") {
		t.Fatal(string(content))
	}
	if Digest([]byte("ab"), []byte("c")) == Digest([]byte("a"), []byte("bc")) || Digest() != Digest() {
		t.Fatal("digests")
	}
}

func TestNodes(t *testing.T) {
	key := Digest([]byte("secret"))
	store := must(HostTier(4 << 20))
	defer store.Close()
	giver, err := NewNode(NodeOptions{ClusterKey: key[:], Listen: "127.0.0.1:0", Provider: "tcp", Name: "giver é", Tiers: []*Tier{store}})
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	check(t, err)
	defer giver.Close()
	options := PoolOptions{PageTokens: 16, Seed: 5, Groups: []GroupOptions{groupOf()}, Tiers: []TierAttachment{{Tier: store, Policy: WriteThrough}}}
	pool := must(NewPool(options))
	defer pool.Close()
	check(t, filled(t, pool, 1, 48).Close())
	check(t, pool.Flush(10*time.Second))
	taker := must(NewNode(NodeOptions{ClusterKey: key[:], Provider: "tcp"}))
	defer taker.Close()
	address := must(giver.Address())
	check(t, taker.Connect(address, 10*time.Second))
	peers := must(taker.Peers())
	if len(peers) != 1 || !peers[0].Connected || peers[0].Name != "giver é" || peers[0].Address != address {
		t.Fatal(peers)
	}
	remote := must(taker.Tier())
	defer remote.Close()
	options.Tiers = []TierAttachment{{Tier: remote, Policy: ReadOnly}}
	other := must(NewPool(options))
	defer other.Close()
	table := must(other.Table())
	defer table.Close()
	if match := must(table.Admit(&Prompt{Tokens: tokensFrom(1, 49)}, nil)); match.Tokens != 48 {
		t.Fatal(match)
	}
	if must(table.Restore(0, All, 10*time.Second)) != 3 {
		t.Fatal("restored")
	}
	text := must(Prometheus(Sources{Tiers: map[string]*Tier{"store": store}, Nodes: map[string]*Node{"reader": taker}}))
	if !strings.Contains(text, `node="reader"`) || !strings.Contains(text, `tier="store"`) {
		t.Fatal(text)
	}
	_, err = taker.Address()
	wants(t, err, ErrState)
	check(t, taker.Disconnect(address))
	wants(t, taker.Disconnect(address), ErrNotFound)
}

// A node may bring libraries in that take signals; the runtime's have to be there afterwards.
func TestSignalsAreTheRuntimes(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("a nil pointer is a panic")
		}
	}()
	var none *Error
	_ = none.Detail
}

// again runs a test in a process of its own, with more in its environment.
func again(t *testing.T, environment ...string) {
	t.Helper()
	command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	command.Env = append(os.Environ(), environment...)
	out, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
}

// One arena for all threads: what several of them keep for themselves would look like growth.
func TestNoLeak(t *testing.T) {
	if os.Getenv("MALLOC_ARENA_MAX") != "1" {
		again(t, "MALLOC_ARENA_MAX=1")
		return
	}
	resident := func() (kilobytes int) {
		for _, line := range strings.Split(string(must(os.ReadFile("/proc/self/status"))), "\n") {
			fmt.Sscanf(line, "VmRSS: %d", &kilobytes)
		}
		return kilobytes
	}
	// What leaks grows in every window; what the runtimes keep for themselves does not.
	const window, most = 600, 512 // rounds, and KiB that they may add
	var sizes []int
	for len(sizes) < 10 {
		for i := 0; i < window; i++ {
			cycle(t)
		}
		debug.FreeOSMemory()
		sizes = append(sizes, resident())
		if last := len(sizes) - 1; last > 0 && sizes[last]-sizes[last-1] < most {
			return
		}
	}
	t.Fatalf("the process grew with every %d rounds: %d KiB", window, sizes)
}

func cycle(t *testing.T) {
	tier := must(HostTier(1 << 20))
	pool := must(NewPool(PoolOptions{PageTokens: 16, Groups: []GroupOptions{groupOf()}, Tiers: []TierAttachment{{Tier: tier}}}))
	table := must(pool.Table())
	batch := must(pool.Batch(BatchOptions{MaxTables: 1000, MaxTokens: 1000, Arrays: []BatchArrays{{MaxBlocks: 10}}}))
	prompt := &Prompt{tokensFrom(0, 512), &Namespace{Model: make([]byte, 4096), Salt: []byte("tenant")}, []Media{{3, 2, make([]byte, 200)}}}
	must(table.Admit(prompt, nil))
	must(pool.Keys(prompt))
	must(pool.ImageKeys(0, prompt))
	must(Prometheus(Sources{Pools: map[string]*Pool{"p": pool}, Tiers: map[string]*Tier{"t": tier}}))
	wants(t, table.Commit(1<<41, nil), ErrInvalid)
	check(t, batch.Close())
	check(t, table.Close())
	check(t, pool.Close())
	check(t, tier.Close())
}
