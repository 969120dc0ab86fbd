// SPDX-License-Identifier: Apache-2.0
//! Prefixes, retention, keys and events.

use super::{HeldPages, Lookup, Pool};
use crate::codes::Status;
use crate::error::{check, Error, Result};
use crate::prompt::{Namespace, Prompt, Retention};
use crate::text::{address, address_mut, span};
use crate::{ClearResult, Event, Key, Match, Page, NO_PAGE};
use pagedkv_sys as sys;
use std::{ops::Range, ptr};

/// What happened to a prefix index.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Events {
    /// Those that follow the last one read.
    pub events: Vec<Event>,
    /// How many of those that follow it are gone already: a reader with `missed > 0` starts anew from what is in the index now.
    pub missed: u64,
}

fn raw_or_null(namespace: Option<&Namespace<'_>>) -> *const sys::pkv_namespace {
    namespace.map_or(ptr::null(), Namespace::raw)
}

impl Pool {
    /// Finds the longest cached prefix of a prompt in whole blocks, and takes a count on each of its pages, so that nothing
    /// found can be evicted before use. A found block is believed only after its parent, its tokens and its media digests were
    /// compared in full.
    ///
    /// * `max_match`: at most this many tokens may match; 0 = all but the last token, so that at least one is left to compute;
    ///   [`MATCH_ALL`](crate::MATCH_ALL) = no bound
    pub fn lookup(&self, prompt: &Prompt<'_>, max_match: u64) -> Result<Lookup<'_>> {
        let groups = self.num_groups();
        let capacity = (prompt.num_tokens() / self.page_tokens()) as usize;
        let mut ids = filled(NO_PAGE, capacity.checked_mul(groups), "page ids")?;
        let mut found = sys::PKV_MATCH_INIT;
        check(unsafe {
            let out = address_mut(&mut ids);
            sys::pkv_pool_lookup(self.as_raw(), prompt.raw(), max_match, out, capacity as u64, &mut found)
        })?;
        let blocks = found.blocks as usize;
        let row = |group: usize| ids[group * capacity..][..blocks].to_vec();
        let pages = (0..groups).map(|group| HeldPages::new(self, group as u32, row(group))).collect();
        Ok(Lookup { found: found.into(), pages })
    }

    /// As [`Pool::lookup`], but takes no page, changes no eviction order and is not counted as a request.
    pub fn probe(&self, prompt: &Prompt<'_>, max_match: u64) -> Result<Match> {
        let mut found = sys::PKV_MATCH_INIT;
        check(unsafe { sys::pkv_pool_probe(self.as_raw(), prompt.raw(), max_match, &mut found) })?;
        Ok(found.into())
    }

    /// Makes pages that the caller holds findable as the blocks of a prompt from `first_block` on. Their bytes must be complete,
    /// and the blocks before must be published, in whichever group. Each group is published by a call of its own.
    ///
    /// A block that is published already keeps its page, unless nobody holds that one: then the caller's replaces it. Returns
    /// the page under which each block is published now.
    ///
    /// Fails with `Status::NotFound` when the blocks before are not published; `Status::Invalid` when tokens do not reach so
    /// far; `Status::State` for a page that is not held or published under another prefix; `Status::NoSpace` when the index is
    /// full.
    pub fn publish(&self, group: u32, prompt: &Prompt<'_>, first_block: u64, pages: &[Page]) -> Result<Vec<Page>> {
        let mut owners = filled(NO_PAGE, Some(pages.len()), "page ids")?;
        check(unsafe {
            let (count, out) = (pages.len() as u64, address_mut(&mut owners));
            sys::pkv_pool_publish(self.as_raw(), group, prompt.raw(), first_block, count, address(pages), out)
        })?;
        Ok(owners)
    }

    /// Frees up to so many cached pages, least recently used first, leaves before parents; returns how many that were. Pages in
    /// use do not count.
    pub fn evict(&self, group: u32, num_pages: u64) -> Result<u64> {
        let mut evicted = 0;
        check(unsafe { sys::pkv_pool_evict(self.as_raw(), group, num_pages, &mut evicted) })?;
        Ok(evicted)
    }

    /// Sets the retention of published blocks that hold tokens of a range of a prompt, and of their images in tiers; returns how
    /// many were found.
    pub fn set_retention(&self, prompt: &Prompt<'_>, tokens: Range<u64>, retention: &Retention) -> Result<u64> {
        let count = span(&tokens, "tokens")?;
        let mut blocks = 0;
        check(unsafe {
            sys::pkv_pool_set_retention(self.as_raw(), prompt.raw(), tokens.start, count, &retention.raw(), &mut blocks)
        })?;
        Ok(blocks)
    }

    /// Sets the retention that blocks of a namespace get when they are published from now on, unless their table says
    /// otherwise; none = back to the default. No namespace is the one whose parts are empty.
    pub fn set_namespace_retention(
        &self, namespace: Option<&Namespace<'_>>, retention: Option<&Retention>,
    ) -> Result<()> {
        let raw = retention.map(Retention::raw);
        let raw = raw.as_ref().map_or(ptr::null(), |raw| raw as *const sys::pkv_retention);
        check(unsafe { sys::pkv_pool_set_namespace_retention(self.as_raw(), raw_or_null(namespace), raw) })
    }

    /// Forgets all prefixes of a namespace, in the pool and in its tiers (images that other pools stored there included; live
    /// sequences whose blocks are still in a tier lose them). From then on none of them is found, and tables admitted before
    /// publish nothing more there: call it when weights change in place.
    pub fn clear(&self, namespace: Option<&Namespace<'_>>) -> Result<ClearResult> {
        let mut result = sys::PKV_CLEAR_RESULT_INIT;
        check(unsafe { sys::pkv_pool_clear(self.as_raw(), raw_or_null(namespace), &mut result) })?;
        Ok(result.into())
    }

    /// As [`Pool::clear`], for all namespaces, also those that only tiers know.
    pub fn clear_all(&self) -> Result<ClearResult> {
        let mut result = sys::PKV_CLEAR_RESULT_INIT;
        check(unsafe { sys::pkv_pool_clear_all(self.as_raw(), &mut result) })?;
        Ok(result.into())
    }

    /// Keys of a prompt's whole blocks, for routers that match them against events.
    pub fn keys(&self, prompt: &Prompt<'_>) -> Result<Vec<Key>> {
        let capacity = (prompt.num_tokens() / self.page_tokens()) as usize;
        let mut keys = filled(sys::pkv_key { low: 0, high: 0 }, Some(capacity), "keys")?;
        let mut count = 0;
        check(unsafe {
            sys::pkv_pool_keys(self.as_raw(), prompt.raw(), address_mut(&mut keys), capacity as u64, &mut count)
        })?;
        keys.truncate(count as usize);
        Ok(keys.into_iter().map(Key::from).collect())
    }

    /// What happened to the prefix index, in order, after a sequence number (0 = from the first); up to `capacity` events.
    ///
    /// Fails with `Status::State` for a pool made without `event_capacity`.
    pub fn events(&self, after: u64, capacity: usize) -> Result<Events> {
        let key = sys::pkv_key { low: 0, high: 0 };
        let none = sys::pkv_event { sequence: 0, kind: 0, group: 0, key, parent: key, block: 0 };
        let mut events = filled(none, Some(capacity), "events")?;
        let (mut count, mut missed) = (0, 0);
        check(unsafe {
            let out = address_mut(&mut events);
            sys::pkv_pool_events(self.as_raw(), after, out, capacity as u64, &mut count, &mut missed)
        })?;
        events.truncate(count as usize);
        Ok(Events { events: events.into_iter().map(Event::from).collect(), missed })
    }
}

/// A list to be filled in; `None` is a count that has no number.
pub(crate) fn filled<T: Clone>(value: T, count: Option<usize>, what: &str) -> Result<Vec<T>> {
    let mut list = Vec::new();
    match count {
        Some(count) if list.try_reserve_exact(count).is_ok() => list.resize(count, value),
        _ => return Err(Error::new(Status::NoMemory, format!("no memory for {:?} {}", count, what))),
    }
    Ok(list)
}
