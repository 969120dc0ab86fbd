// SPDX-License-Identifier: Apache-2.0
//! Pages that the caller holds.

use super::Pool;
use crate::error::{check, Failed, Outcome, Result};
use crate::text::{address, address_mut, ended};
use crate::when::{When, NOW};
use crate::{Match, Page};
use pagedkv_sys as sys;
use std::{mem, ops::Deref};

/// Pages of one group, each with a count of one that is given back when this is dropped. Entries of a window group may be
/// [`NO_PAGE`](crate::NO_PAGE).
#[derive(Debug)]
pub struct HeldPages<'p> {
    pool: &'p Pool,
    group: u32,
    ids: Vec<Page>,
}

/// What a lookup found.
#[derive(Debug)]
#[non_exhaustive]
pub struct Lookup<'p> {
    /// How much of the prompt was found.
    pub found: Match,
    /// For each group, the pages in order of blocks.
    pub pages: Vec<HeldPages<'p>>,
}

impl<'p> HeldPages<'p> {
    pub(crate) fn new(pool: &'p Pool, group: u32, ids: Vec<Page>) -> Self {
        Self { pool, group, ids }
    }

    /// The layer group that they belong to.
    pub fn group(&self) -> u32 {
        self.group
    }

    /// Gives the pages back, after work that may still use them. When that fails they stay held.
    pub fn release(self, when: When<'_>) -> std::result::Result<(), Failed<Self>> {
        let held: Vec<Page> = self.real().collect();
        match self.pool.release(self.group, &held, when) {
            Ok(()) => {
                self.into_ids();
                Ok(())
            }
            Err(error) => Err(Failed { error, value: self }),
        }
    }

    /// The ids, still held: whoever has them gives them back with [`Pool::release`].
    pub fn into_ids(mut self) -> Vec<Page> {
        mem::take(&mut self.ids)
    }

    fn real(&self) -> impl Iterator<Item = Page> + '_ {
        self.ids.iter().copied().filter(|&page| page != crate::NO_PAGE)
    }
}

impl Deref for HeldPages<'_> {
    type Target = [Page];
    fn deref(&self) -> &[Page] {
        &self.ids
    }
}

impl Drop for HeldPages<'_> {
    fn drop(&mut self) {
        let held: Vec<Page> = self.real().collect();
        // Each by itself, whatever became of the others.
        let _ = self.pool.release_each(self.group, &held, NOW);
    }
}

impl Pool {
    /// Makes what [`HeldPages::into_ids`] gave up into something that is released when it is dropped.
    pub fn adopt(&self, group: u32, ids: Vec<Page>) -> HeldPages<'_> {
        HeldPages::new(self, group, ids)
    }

    /// Adds one to the count of each held page; a page listed twice gets two.
    ///
    /// Fails with `Status::Invalid` for an id out of range and `Status::State` for a page that nobody holds; no count is changed
    /// then. A cached page is taken with [`Pool::lookup`], which knows what it holds.
    pub fn retain(&self, group: u32, pages: &[Page]) -> Result<HeldPages<'_>> {
        check(unsafe { sys::pkv_pool_retain(self.as_raw(), group, pages.len() as u64, address(pages)) })?;
        Ok(HeldPages::new(self, group, pages.to_vec()))
    }

    /// Gives back one count of each page, or of none. A page whose count becomes 0 is cached if it is published and free
    /// otherwise. The list is taken from its end, so that of a prefix listed in order the tail is evicted first.
    pub fn release(&self, group: u32, pages: &[Page], when: When<'_>) -> Result<()> {
        let status = unsafe {
            sys::pkv_pool_release(
                self.as_raw(),
                group,
                pages.len() as u64,
                address(pages),
                std::ptr::null_mut(),
                when.raw(),
            )
        };
        check(status)
    }

    /// As [`Pool::release`], but good pages are released although others fail: what became of each.
    pub fn release_each(&self, group: u32, pages: &[Page], when: When<'_>) -> Result<Vec<Outcome>> {
        const UNTOUCHED: i32 = i32::MIN;
        let mut statuses = vec![UNTOUCHED; pages.len()];
        let status = unsafe {
            let out = address_mut(&mut statuses);
            sys::pkv_pool_release(self.as_raw(), group, pages.len() as u64, address(pages), out, when.raw())
        };
        if statuses.contains(&UNTOUCHED) || pages.is_empty() {
            check(status)?;
        }
        Ok(statuses.into_iter().map(ended).collect())
    }
}
