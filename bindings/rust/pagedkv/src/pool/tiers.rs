// SPDX-License-Identifier: Apache-2.0
//! Pages by key: what moves between pages and tiers.

use super::prefixes::filled;
use super::Pool;
use crate::error::{check, invalid, Result};
use crate::op::{Op, OpOptions};
use crate::prompt::Prompt;
use crate::text::{address, address_mut, nanoseconds};
use crate::tier::TierKey;
use crate::when::When;
use crate::Page;
use pagedkv_sys as sys;
use std::time::Duration;

impl Pool {
    /// Keys of the images of a prompt's whole blocks in a layer group: what a scheduler that plans hands to the workers that hold
    /// the bytes.
    pub fn image_keys(&self, group: u32, prompt: &Prompt<'_>) -> Result<Vec<TierKey>> {
        let capacity = (prompt.num_tokens() / self.page_tokens()) as usize;
        let mut keys = filled(TierKey::default(), Some(capacity), "keys")?;
        let mut count = 0;
        check(unsafe {
            let out = address_mut(&mut keys) as *mut sys::pkv_tier_key;
            sys::pkv_pool_image_keys(self.as_raw(), group, prompt.raw(), out, capacity as u64, &mut count)
        })?;
        keys.truncate(count as usize);
        Ok(keys)
    }

    /// Begins to store images of pages that the caller holds in all tiers of the pool that take stores. The pages are held until
    /// the operation has ended; their bytes must not change meanwhile.
    ///
    /// Fails with `Status::State` for a pool without tiers or a page that nobody holds; `Status::Busy` when too many operations
    /// are under way; `Status::Unsupported` for a group without memory. Per item: ok when at least one tier has it.
    pub fn store(
        &self, group: u32, keys: &[TierKey], pages: &[Page], when: When<'_>, options: &OpOptions<'_>,
    ) -> Result<Op> {
        let count = same(keys, pages)?;
        let keys = address(keys) as *const sys::pkv_tier_key;
        Op::begin(options, |raw, out| unsafe {
            sys::pkv_pool_store(self.as_raw(), group, count, keys, address(pages), when.raw(), raw, out)
        })
    }

    /// Begins to load images into pages that the caller holds, each from the first tier that has it. Nothing is published. Nobody
    /// else may use the pages until the operation has ended. A page whose item fails keeps its old bytes, or part of the image:
    /// take its content for undefined.
    pub fn load(
        &self, group: u32, keys: &[TierKey], pages: &[Page], when: When<'_>, options: &OpOptions<'_>,
    ) -> Result<Op> {
        let count = same(keys, pages)?;
        let keys = address(keys) as *const sys::pkv_tier_key;
        Op::begin(options, |raw, out| unsafe {
            sys::pkv_pool_load(self.as_raw(), group, count, keys, address(pages), when.raw(), raw, out)
        })
    }

    /// Waits until what is to be stored by policy has been: evictable pages whose images are missing in a tier that wants them,
    /// and stores under way.
    pub fn flush(&self, timeout: Duration) -> Result<()> {
        check(unsafe { sys::pkv_pool_flush(self.as_raw(), nanoseconds(timeout)) })
    }
}

fn same(keys: &[TierKey], pages: &[Page]) -> Result<u64> {
    if keys.len() != pages.len() {
        return invalid(format!("{} keys for {} pages", keys.len(), pages.len()));
    }
    Ok(pages.len() as u64)
}
