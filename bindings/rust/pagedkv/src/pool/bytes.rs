// SPDX-License-Identifier: Apache-2.0
//! Page bytes.

use super::Pool;
use crate::error::{check, invalid, Result};
use crate::rows::{Rows, RowsMut, Sides};
use crate::text::{address, span};
use crate::when::When;
use crate::{Page, Slot};
use pagedkv_sys as sys;
use std::ops::Range;

impl Pool {
    /// Scatters K and V rows of one layer to slots: row i goes to page `slots[i] / page_tokens`, offset `slots[i] % page_tokens`.
    ///
    /// * `slots`: ids; below 0: the row is skipped. Two equal slots: the later row wins. Two calls at once on the same slots
    ///   leave either's bytes
    /// * `k`, `v`: rows of the group's type, or of f32, f16, bf16 where the group's type is one of these, fp8 or int8: then they
    ///   are converted; no `v` without V
    ///
    /// Fails, with nothing written, with `Status::Invalid` for a slot past the pages, or rows too few; `Status::State` for a slot
    /// in a page that is not held, or is published; `Status::Unsupported` for a type that does not convert, or a pool without
    /// memory.
    pub fn write(
        &self, group: u32, layer: u32, slots: &[Slot], k: Rows<'_>, v: Option<Rows<'_>>, when: When<'_>,
    ) -> Result<()> {
        let sides = Sides::read(self.shapes.group(group), k, v);
        check(unsafe {
            let count = slots.len() as u64;
            sys::pkv_pool_write(self.as_raw(), group, layer, count, address(slots), sides.k(), sides.v(), when.raw())
        })
    }

    /// Gathers rows of one layer through a block table: token i of the range, in page `pages[token / page_tokens]`, becomes row
    /// i of `k` and `v`; a side that is not wanted may be left out.
    ///
    /// Fails, with nothing written, with `Status::Invalid`; `Status::State` for a page that nobody holds; `Status::Unsupported`
    /// for a type that does not convert, or a pool without memory.
    #[allow(clippy::too_many_arguments)]
    pub fn gather(
        &self, group: u32, layer: u32, pages: &[Page], tokens: Range<u64>, k: Option<RowsMut<'_>>,
        v: Option<RowsMut<'_>>, when: When<'_>,
    ) -> Result<()> {
        let count = span(&tokens, "tokens")?;
        let sides = Sides::write(self.shapes.group(group), &k, &v);
        check(unsafe {
            let (list, num_pages) = (address(pages), pages.len() as u64);
            sys::pkv_pool_gather(
                self.as_raw(),
                group,
                layer,
                num_pages,
                list,
                tokens.start,
                count,
                sides.k(),
                sides.v(),
                when.raw(),
            )
        })
    }

    /// Copies whole pages, all layers, from `src[i]` to `dst[i]`.
    ///
    /// Fails with `Status::Invalid` for an id out of range, or a page that is both source and destination or twice a destination;
    /// `Status::State` for a source that nobody holds, or a destination that is not held, or is published;
    /// `Status::Unsupported` for a pool without memory.
    pub fn copy_pages(&self, group: u32, src: &[Page], dst: &[Page], when: When<'_>) -> Result<()> {
        if src.len() != dst.len() {
            return invalid(format!("{} pages to be copied to {}", src.len(), dst.len()));
        }
        check(unsafe {
            sys::pkv_pool_copy_pages(self.as_raw(), group, src.len() as u64, address(src), address(dst), when.raw())
        })
    }
}
