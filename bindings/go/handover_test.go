// SPDX-License-Identifier: Apache-2.0

package pagedkv

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// nodesOf gives two nodes of a cluster, of which the second reads from the first.
func nodesOf(t *testing.T) (giver, taker *Node) {
	key := Digest([]byte("secret"))
	giver, err := NewNode(NodeOptions{ClusterKey: key[:], Listen: "127.0.0.1:0", Provider: "tcp"})
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	check(t, err)
	t.Cleanup(func() { giver.Close() })
	taker = must(NewNode(NodeOptions{ClusterKey: key[:], Provider: "tcp"}))
	t.Cleanup(func() { taker.Close() })
	return giver, taker
}

// patterned writes rows that tell tokens and layers apart, and gives those of K.
func patterned(t *testing.T, table *Table, layer uint32, from, to int) []float32 {
	k := make([]float32, (to-from)*row)
	for i := range k {
		k[i] = float32(int(layer)*100000 + from*row + i)
	}
	rows := RowsOf(k, F32, uint64(to-from))
	check(t, table.Write(0, layer, uint64(from), uint64(to-from), rows, rows, nil))
	return k
}

func sameRows(t *testing.T, table *Table, layer uint32, want []float32) {
	t.Helper()
	got := make([]float32, len(want))
	check(t, table.Gather(0, layer, 0, uint64(len(want)/row), RowsOf(got, F32, uint64(len(want)/row)), Rows{}, nil))
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("layer %d, element %d: %v in place of %v", layer, i, got[i], want[i])
		}
	}
}

func TestHandOver(t *testing.T) {
	giver, taker := nodesOf(t)
	pool, other := poolOf(t), poolOf(t)
	table := must(pool.Table())
	must(table.Admit(&Prompt{Tokens: tokensFrom(1, 41), Namespace: &Namespace{Salt: []byte("tenant")}}, nil))
	want := [2][]float32{}
	for layer := range want {
		want[layer] = patterned(t, table, uint32(layer), 0, 41)
	}
	check(t, table.Commit(41, nil))
	offer, offered, err := giver.Offer(table, nil, nil)
	check(t, err)
	if info := must(offer.Info()); info.Status != ErrBusy || info.NumTokens != 41 || info.ReadyTokens != 41 || info.Left <= 0 || info.Left > time.Minute {
		t.Fatal(info)
	}
	check(t, table.Close()) // the offer has the pages
	ticket := must(offer.Ticket())
	op := must(taker.Pull(other, [][]byte{ticket}, &PullOptions{Namespace: &Namespace{Salt: []byte("tenant")}, Groups: []uint32{0}}, nil))
	check(t, op.Wait(30*time.Second))
	pulled := must(op.Table())
	_, err = op.Table()
	wants(t, err, ErrState)
	check(t, op.Close())
	if info := must(pulled.Info()); info.Committed != 41 {
		t.Fatal(info)
	}
	for layer, rows := range want {
		sameRows(t, pulled, uint32(layer), rows)
	}
	check(t, pulled.Close())
	check(t, offered.Wait(10*time.Second))
	if info := must(offer.Info()); info.Status != OK || info.Pulls != 1 {
		t.Fatal(info)
	}
	check(t, offer.Close())
	wants(t, offer.Close(), ErrHandle)
	_, err = offer.Ticket()
	wants(t, err, ErrHandle)
	if stats := must(taker.Stats()); stats.Pulls != 1 || stats.PulledBytes == 0 {
		t.Fatal(stats)
	}
}

func TestHandOverLayerByLayer(t *testing.T) {
	giver, taker := nodesOf(t)
	pool, other := poolOf(t), poolOf(t)
	table := must(pool.Table())
	defer table.Close()
	must(table.Admit(&Prompt{Tokens: tokensFrom(1, 40)}, nil))
	_, _, err := giver.Offer(table, nil, nil) // nothing is committed
	wants(t, err, ErrState)
	offer, offered, err := giver.Offer(table, &OfferOptions{NumTokens: 40, Lifetime: time.Minute}, nil)
	check(t, err)
	defer offered.Close()
	queue := must(NewQueue())
	defer queue.Close()
	op := must(taker.Pull(other, [][]byte{must(offer.Ticket())}, nil, &OpOptions{Queue: queue, User: 7, Timeout: 30 * time.Second}))
	defer op.Close()
	_, err = op.Table()
	wants(t, err, ErrBusy)
	first := patterned(t, table, 0, 0, 40)
	check(t, offer.Ready(0, 0, 40, nil))
	wants(t, offer.Ready(0, 9, 40, nil), ErrInvalid)
	wants(t, offer.Ready(AllGroups, AllLayers, 41, nil), ErrInvalid)
	second := patterned(t, table, 1, 0, 40)
	check(t, offer.Ready(AllGroups, AllLayers, 40, nil))
	if ended := must(queue.Drain(1, 30*time.Second)); ended[0] != (Completion{7, OK}) {
		t.Fatal(ended)
	}
	pulled := must(op.Table())
	defer pulled.Close()
	sameRows(t, pulled, 0, first)
	sameRows(t, pulled, 1, second)
	check(t, offer.Close())
}

func TestHandOverRefused(t *testing.T) {
	giver, taker := nodesOf(t)
	pool, other := poolOf(t), poolOf(t)
	table := filled(t, pool, 1, 20)
	defer table.Close()
	_, _, err := taker.Offer(table, nil, nil) // listens at nothing
	wants(t, err, ErrState)
	_, err = taker.Pull(other, [][]byte{bytes.Repeat([]byte{1}, 100)}, nil, nil)
	wants(t, err, ErrInvalid)
	_, err = taker.Pull(other, nil, nil, nil)
	wants(t, err, ErrInvalid)
	offer, offered, err := giver.Offer(table, &OfferOptions{MaxPulls: UnlimitedPulls}, nil)
	check(t, err)
	ticket := must(offer.Ticket())
	op := must(taker.Pull(other, [][]byte{ticket}, &PullOptions{Namespace: &Namespace{Salt: []byte("another")}}, nil))
	wants(t, op.Wait(30*time.Second), ErrMismatch)
	_, err = op.Table()
	wants(t, err, ErrMismatch)
	check(t, op.Close())
	check(t, offer.Close())
	wants(t, offered.Wait(10*time.Second), ErrCancelled)
	op = must(taker.Pull(other, [][]byte{ticket}, nil, nil))
	wants(t, op.Wait(30*time.Second), ErrNotFound)
	check(t, op.Close())
	if stats := must(other.Stats(0)); stats.HeldPages != 0 || stats.CachedPages != 0 {
		t.Fatal(stats)
	}
}
