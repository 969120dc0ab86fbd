// SPDX-License-Identifier: Apache-2.0
//! Handing a sequence over: one engine computes a prompt, another one goes on with it.

use crate::codes::Status;
use crate::error::{check, invalid, Error, Result};
use crate::handle::Handle;
use crate::node::Node;
use crate::op::{Op, OpOptions};
use crate::pool::{filled, Pool, Shapes};
use crate::prompt::Namespace;
use crate::text::{address, bytes, c_string, c_string_or_null, count32, nanoseconds};
use crate::when::When;
use crate::{OfferInfo, Table};
use pagedkv_sys as sys;
use std::{ops::Deref, os::raw::c_void, ptr, sync::Arc, time::Duration};

/// What an offer is made of.
#[derive(Clone, Debug, Default)]
pub struct OfferOptions {
    /// 0 = those that are committed. More: tokens that are named already; their rows come as [`Offer::ready`] says
    pub num_tokens: u64,
    /// Of the ticket: when it is over the pages are let go, pulls under way fail; zero = 60 seconds
    pub lifetime: Duration,
    /// "host:port" at which the puller reaches the node; none = [`Node::address`]
    pub address: Option<String>,
    /// After so many that went well the offer has ended: 2 if two shards pull it; 0 = 1; `u32::MAX` = unlimited
    pub max_pulls: u32,
}

/// A sequence that others may pull, given its ticket. Dropping it withdraws it, unless it has ended; pulls under way fail then.
///
/// What comes over: tokens, media, namespace, the rows of all layers with their scales, and the retention of its ranges. Both pools
/// may have other page sizes, layouts and arrangements, and may be other shards of the model. The offer holds the pages, whatever
/// becomes of the table. Whoever has the ticket and the cluster's key may pull.
#[derive(Debug)]
pub struct Offer {
    handle: Handle<sys::pkv_offer>,
    /// To know it by.
    table: Handle<sys::pkv_table>,
}

impl Offer {
    /// The ticket, for the puller, to be sent with the request.
    pub fn ticket(&self) -> Result<Vec<u8>> {
        let mut ticket = vec![0u8; sys::PKV_MAX_TICKET_BYTES as usize];
        let mut size = 0;
        check(unsafe {
            let (capacity, out) = (ticket.len() as u64, ticket.as_mut_ptr() as *mut c_void);
            sys::pkv_offer_ticket(self.handle.raw(), out, capacity, &mut size)
        })?;
        ticket.truncate(size as usize);
        Ok(ticket)
    }

    /// Says that the rows of the first so many tokens are written in a layer, and will not change any more: pullers get them from
    /// now on, before the tokens are committed. Counted from the start: repeating a call, or less than there is already, does
    /// nothing.
    ///
    /// * `table`: that was offered; another one gives `Status::Invalid`
    /// * `layer`: group, and layer of it; none: all of them
    ///
    /// Fails with `Status::Invalid` for more tokens than are offered, or no such layer; `Status::NotResident` when there is no page
    /// for them; `Status::State` once the offer has ended, or when the table has another sequence, other tokens, or was truncated
    /// below what was committed.
    pub fn ready(&self, table: &mut Table, layer: Option<(u32, u32)>, num_tokens: u64, when: When<'_>) -> Result<()> {
        // The library looks at the table, which is why this thread has to have it.
        if table.as_raw() != self.table.raw() {
            return invalid("the offer is of another table");
        }
        let (group, layer) = layer.unwrap_or((sys::PKV_ALL_GROUPS, sys::PKV_ALL_LAYERS));
        check(unsafe { sys::pkv_offer_ready(self.handle.raw(), group, layer, num_tokens, when.raw()) })
    }

    /// State of the offer: `Err(Status::Busy)` while it is open.
    pub fn info(&self) -> Result<OfferInfo> {
        let mut raw = sys::PKV_OFFER_INFO_INIT;
        check(unsafe { sys::pkv_offer_get_info(self.handle.raw(), &mut raw) })?;
        Ok(raw.into())
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        unsafe { sys::pkv_offer_close(self.handle.raw()) };
    }
}

/// How a sequence is pulled.
#[derive(Clone, Debug, Default)]
pub struct PullOptions<'a> {
    /// That the sequence has to be of, or `Status::Mismatch`; none = whichever it is
    pub namespace: Option<Namespace<'a>>,
    /// For each layer group of the pool, the givers' group that it is; none = the one of the same number
    pub groups: Vec<u32>,
    /// Transfers blocks that the pool has already, too
    pub no_match: bool,
    /// Leaves the giver's retention behind
    pub no_retention: bool,
}

/// A sequence on its way: an operation with an item for each layer of the pool, group after group. It ends when everything is there,
/// checked, committed and published; or it fails and leaves nothing in the pool.
#[derive(Debug)]
pub struct Pull {
    op: Op,
    shapes: Arc<Shapes>,
}

impl Pull {
    /// The table of a pull that has ended well, once. One that was begun with a queue has to be taken while the completion's own
    /// [`Op`] is there.
    ///
    /// Fails with `Status::Busy` while the pull is under way; what it failed with; `Status::State` when the table was taken.
    pub fn table(&self) -> Result<Table> {
        let handle = Handle::made(|out| unsafe { sys::pkv_pull_table(self.op.as_raw(), out) })?;
        Ok(Table::of(handle, Arc::clone(&self.shapes)))
    }
}

impl Deref for Pull {
    type Target = Op;
    fn deref(&self) -> &Op {
        &self.op
    }
}

impl Node {
    /// Offers a table's sequence to be pulled. Its pages have counts for the offer from now on; the table may go on, be truncated or
    /// dropped.
    ///
    /// Fails with `Status::State` for a node that does not listen, before admit, when offered tokens are not named, or none is
    /// committed and `num_tokens` is 0; `Status::NotResident` when blocks are in tiers, or a window has passed some that are needed;
    /// `Status::Unsupported` for a pool without memory; `Status::Limit` at 65536 open offers.
    pub fn offer(&self, table: &mut Table, options: &OfferOptions) -> Result<Offer> {
        Self::with_offer_options(options, |raw| {
            let handle = Handle::made(|out| unsafe {
                sys::pkv_table_offer(self.as_raw(), table.as_raw(), raw, ptr::null(), out, ptr::null_mut())
            })?;
            Ok(Offer { handle, table: Handle::of(table.as_raw()) })
        })
    }

    /// As [`Node::offer`], with an operation that reports the offer's end: it has `max_pulls` items (one if they are unlimited), each
    /// ends with a pull that went well. An offer that ends before gives the others `Status::Cancelled` when it was withdrawn,
    /// `Status::Timeout` when it expired, `Status::Closed` with its pool or node. Cancelling it withdraws the offer.
    pub fn offer_reported(&self, table: &mut Table, options: &OfferOptions, op: &OpOptions<'_>) -> Result<(Offer, Op)> {
        Self::with_offer_options(options, |raw| {
            let mut made = None;
            let op = Op::begin(op, |op_options, op| {
                let mut offer = ptr::null_mut();
                let status =
                    unsafe { sys::pkv_table_offer(self.as_raw(), table.as_raw(), raw, op_options, &mut offer, op) };
                if status == sys::PKV_OK {
                    made = Some(Offer { handle: Handle::of(offer), table: Handle::of(table.as_raw()) });
                }
                status
            })?;
            made.map(|offer| (offer, op)).ok_or_else(|| Error::new(Status::Internal, "the library gave no offer"))
        })
    }

    fn with_offer_options<T>(
        options: &OfferOptions, call: impl FnOnce(&sys::pkv_offer_options) -> Result<T>,
    ) -> Result<T> {
        let at = options.address.as_ref().map(|address| c_string(address.as_str(), "address")).transpose()?;
        let mut raw = sys::PKV_OFFER_OPTIONS_INIT;
        raw.num_tokens = options.num_tokens;
        raw.lifetime_ns = nanoseconds(options.lifetime);
        raw.address = c_string_or_null(&at);
        raw.max_pulls = options.max_pulls;
        call(&raw)
    }

    /// Begins to pull a sequence into a pool. Blocks that the pool has already are shared and not transferred.
    ///
    /// * `tickets`: 1 .. 64; several, when only together they have all layers and heads of the pool
    ///
    /// Fails with `Status::Invalid` for what is no ticket; `Status::Mismatch` for a ticket of another cluster's key, or that was
    /// changed; `Status::Unsupported` for a pool without memory; `Status::Busy` at 256 pulls under way. The operation:
    /// `Status::NotFound` when the giver has no such offer (any more); `Status::Io` when the giver is not reached, is gone, or its
    /// bytes were spoiled on the way; `Status::Mismatch` for another geometry, namespace, model, protocol or cluster key;
    /// `Status::NoPages`, `Status::Again` as [`Table::admit`]; `Status::Timeout`; `Status::Cancelled`; `Status::Closed`.
    pub fn pull(&self, pool: &Pool, tickets: &[&[u8]], options: &PullOptions<'_>, op: &OpOptions<'_>) -> Result<Pull> {
        if !options.groups.is_empty() && options.groups.len() != pool.num_groups() {
            return invalid(format!(
                "groups has {} entries, and the pool {} groups",
                options.groups.len(),
                pool.num_groups()
            ));
        }
        let mut list = filled(bytes(&[]), Some(tickets.len()), "tickets")?;
        for (at, ticket) in list.iter_mut().zip(tickets) {
            *at = bytes(ticket);
        }
        let mut raw = sys::PKV_PULL_OPTIONS_INIT;
        raw.ns = options.namespace.as_ref().map_or(ptr::null(), Namespace::raw);
        raw.groups = address(&options.groups);
        raw.num_groups = count32(options.groups.len(), "groups")?;
        raw.flags |= if options.no_match { sys::PKV_PULL_NO_MATCH } else { 0 };
        raw.flags |= if options.no_retention { sys::PKV_PULL_NO_RETENTION } else { 0 };
        let count = count32(list.len(), "tickets")?;
        let op = Op::begin(op, |op_options, out| unsafe {
            sys::pkv_table_pull(self.as_raw(), pool.as_raw(), count, address(&list), &raw, op_options, out)
        })?;
        Ok(Pull { op, shapes: Arc::clone(&pool.shapes) })
    }
}
