// SPDX-License-Identifier: Apache-2.0

package pagedkv

// #include "shim.h"
import "C"

import (
	"math"
	"runtime"
	"time"
)

// UnlimitedPulls, as OfferOptions.MaxPulls: any number of times.
const UnlimitedPulls uint32 = math.MaxUint32

// AllGroups and AllLayers, of Offer.Ready: all of them.
const (
	AllGroups uint32 = math.MaxUint32
	AllLayers uint32 = math.MaxUint32
)

// OfferOptions is how a sequence is offered: pkv_offer_options (node.h).
type OfferOptions struct {
	NumTokens uint64        // 0 = those that are committed; more: those that are named already, whose rows come as Ready says
	Lifetime  time.Duration // of the ticket; 0 = 60 seconds
	Address   string        // "host:port" at which the puller reaches the node; "" = what it advertises, or listens at
	MaxPulls  uint32        // after so many that went well the offer has ended; 0 = 1
}

// Offer is a sequence that other nodes may pull, given its ticket. It holds the pages, whatever becomes of the table, until it has been
// pulled, is closed or expires.
type Offer struct {
	h     *C.pkv_offer
	table *Table
}

// Offer offers a table's sequence to be pulled; the table may go on, be truncated or closed. The operation ends when the offer has been
// pulled, withdrawn, or is over. nil = defaults.
func (n *Node) Offer(table *Table, options *OfferOptions, opOptions *OpOptions) (*Offer, *Op, error) {
	var a arena
	defer a.free()
	var with *C.pkv_offer_options
	if options != nil {
		c := (*C.pkv_offer_options)(a.alloc(C.sizeof_pkv_offer_options))
		*c = C.pkvgo_offer_options()
		c.num_tokens, c.lifetime_ns = C.uint64_t(options.NumTokens), nanoseconds(options.Lifetime)
		c.address, c.max_pulls = a.text(options.Address), C.uint32_t(options.MaxPulls)
		with = c
	}
	offer, op := &Offer{table: table}, &Op{}
	err := table.call(func() C.pkv_status { return C.pkv_table_offer(n.h, table.h, with, opOptions.c(&a), &offer.h, &op.h) })
	runtime.KeepAlive(n)
	runtime.KeepAlive(table)
	runtime.KeepAlive(opOptions)
	if err != nil {
		return nil, nil, err
	}
	runtime.SetFinalizer(offer, func(o *Offer) { _ = o.Close() })
	return offer, op.opened(), nil
}

func (o *Offer) call(f func() C.pkv_status) error {
	err := call(f)
	runtime.KeepAlive(o)
	return err
}

// Ticket is for the puller, to be sent with the request.
func (o *Offer) Ticket() ([]byte, error) {
	ticket := make([]byte, C.PKV_MAX_TICKET_BYTES)
	var size C.uint64_t
	err := o.call(func() C.pkv_status { return C.pkv_offer_ticket(o.h, pointer(ticket), C.uint64_t(len(ticket)), &size) })
	return ticket[:size], err
}

// Ready says that the rows of the first so many tokens are written, in a layer or in all of them, and will not change any more: pullers get
// them from now on. By the goroutine that has the table.
func (o *Offer) Ready(group, layer uint32, numTokens uint64, sync *Sync) error {
	ready := sync.with(func(s *C.pkv_sync) C.pkv_status {
		return C.pkv_offer_ready(o.h, C.uint32_t(group), C.uint32_t(layer), C.uint64_t(numTokens), s)
	})
	if o.table == nil {
		return o.call(ready)
	}
	err := o.table.call(ready)
	runtime.KeepAlive(o)
	return err
}

// OfferInfo is the state of an offer.
type OfferInfo struct {
	Status      Status // ErrBusy while it is open; OK when it was pulled as often as it may be
	Pulls       uint32 // that went well
	OpenPulls   uint32
	FailedPulls uint32
	NumTokens   uint64        // offered
	ReadyTokens uint64        // of them, ready in all layers
	Left        time.Duration // until it expires
}

// Info gives the state, without waiting.
func (o *Offer) Info() (OfferInfo, error) {
	c := C.pkvgo_offer_info()
	err := o.call(func() C.pkv_status { return C.pkv_offer_get_info(o.h, &c) })
	return OfferInfo{Status(c.status), uint32(c.pulls), uint32(c.open_pulls), uint32(c.failed_pulls), uint64(c.num_tokens),
		uint64(c.ready_tokens), time.Duration(c.left_ns)}, err
}

// Close withdraws the offer, unless it has ended.
func (o *Offer) Close() error {
	err := o.call(func() C.pkv_status { return C.pkv_offer_close(o.h) })
	if err == nil {
		runtime.SetFinalizer(o, nil)
	}
	return err
}

// Flags of PullOptions.
const (
	PullNoMatch     uint32 = 1 // transfers blocks that the pool has already, too
	PullNoRetention uint32 = 2 // leaves the giver's retention behind
)

// PullOptions is how a sequence is pulled: pkv_pull_options (node.h).
type PullOptions struct {
	Namespace *Namespace // that the sequence has to be of, or the pull ends with ErrMismatch; nil = whichever it is
	Groups    []uint32   // for each layer group of the pool, the givers' group that it is; nil = the one of the same number
	Flags     uint32
}

// Pull begins to pull a sequence into a pool, given tickets of Offer.Ticket: several, when only together they have all layers and heads
// of the pool. When the operation has ended well, Op.Table gives the sequence. nil = defaults.
func (n *Node) Pull(pool *Pool, tickets [][]byte, options *PullOptions, opOptions *OpOptions) (*Op, error) {
	var a arena
	defer a.free()
	list := make([]C.pkv_bytes, len(tickets))
	for i, ticket := range tickets {
		list[i] = a.bytes(ticket)
	}
	var with *C.pkv_pull_options
	if options != nil {
		c := (*C.pkv_pull_options)(a.alloc(C.sizeof_pkv_pull_options))
		*c = C.pkvgo_pull_options()
		c.ns, c.groups = options.Namespace.c(&a), (*C.uint32_t)(copied(&a, options.Groups))
		c.num_groups, c.flags = C.uint32_t(len(options.Groups)), C.uint32_t(options.Flags)
		with = c
	}
	op, err := newOp(func(op **C.pkv_op) error {
		return n.call(func() C.pkv_status {
			return C.pkv_table_pull(n.h, pool.h, C.uint32_t(len(list)), (*C.pkv_bytes)(copied(&a, list)), with, opOptions.c(&a), op)
		})
	})
	runtime.KeepAlive(pool)
	runtime.KeepAlive(opOptions)
	if err != nil {
		return nil, err
	}
	op.pool = pool
	return op, nil
}

// Table is the sequence that a Pull has brought, once: ErrBusy while it is under way; what it failed with; ErrState for an operation that
// is no pull, or whose table was taken.
func (o *Op) Table() (*Table, error) {
	t := &Table{pool: o.pool}
	err := call(func() C.pkv_status { return C.pkv_pull_table(o.h, &t.h) })
	runtime.KeepAlive(o)
	if err != nil {
		return nil, err
	}
	return t.opened(), nil
}
