// SPDX-License-Identifier: Apache-2.0
//! Pools: pages of one geometry, the prefix index over them, and eviction.

mod bytes;
mod held;
mod layout;
mod options;
mod prefixes;
mod tiers;

pub use held::{HeldPages, Lookup};
pub use layout::LayerLayout;
pub use options::{Arrangement, Attention, CallerMemory, GroupOptions, Memory, PoolOptions, Scales, TierAttachment};
pub(crate) use prefixes::filled;
pub use prefixes::Events;

use crate::codes::{DType, Status};
use crate::error::{check, Error, Failed, Result};
use crate::handle::Handle;
use crate::rows::GroupShape;
use crate::text::{address_mut, nanoseconds};
use crate::when::When;
use crate::{Page, PageInfo, PoolStats, Table};
use pagedkv_sys as sys;
use std::{sync::Arc, time::Duration};

/// What rows of each group look like; known to all tables and batches of a pool.
#[derive(Debug)]
pub(crate) struct Shapes {
    pub page_tokens: u64,
    groups: Vec<GroupShape>,
}

impl Shapes {
    /// Of as many groups as there are; of none for a handle that is no good.
    fn of(pool: Handle<sys::pkv_pool>) -> Self {
        let mut shapes = Self { page_tokens: 1, groups: Vec::new() };
        let mut layout = sys::PKV_LAYER_LAYOUT_INIT;
        for group in 0..sys::PKV_MAX_GROUPS as u32 {
            if unsafe { sys::pkv_pool_layout(pool.raw(), group, 0, &mut layout) } != sys::PKV_OK {
                break;
            }
            shapes.page_tokens = u64::from(layout.page_tokens).max(1);
            shapes.groups.push(GroupShape {
                heads: u64::from(layout.num_kv_heads).max(1),
                k_row_bytes: layout.k_row_bytes,
                v_row_bytes: layout.v_row_bytes,
                dtype: DType::from_code(layout.dtype),
            });
        }
        shapes
    }

    /// None for a group that there is not: the library says so.
    pub(crate) fn group(&self, group: u32) -> Option<&GroupShape> {
        self.groups.get(group as usize)
    }

    pub(crate) fn num_groups(&self) -> usize {
        self.groups.len()
    }
}

/// A pool. It may be used from any thread. When it is dropped, tables and other children that still live answer
/// `Status::Closed` from then on.
///
/// A page is free (no content), held (by tables, callers and operations, each of which counts one) or cached (published under
/// a prefix, found by lookup, evictable). Free pages go before cached ones; those are evicted least recently released first,
/// leaves before parents.
///
/// ```
/// use pagedkv::{DType, GroupOptions, Pool, PoolOptions};
/// # fn main() -> pagedkv::Result<()> {
/// let model = GroupOptions {
///     num_pages: 64,
///     num_layers: 2,
///     num_kv_heads: 2,
///     k_head_dim: 4,
///     v_head_dim: 4,
///     dtype: DType::F32,
///     ..Default::default()
/// };
/// let pool = Pool::new(&PoolOptions { page_tokens: 16, groups: vec![model], ..Default::default() })?;
/// assert_eq!(pool.stats(0)?.free_pages, 64);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Pool {
    handle: Handle<sys::pkv_pool>,
    pub(crate) shapes: Arc<Shapes>,
}

impl Pool {
    /// Makes a pool. Memory of the pool's own is reserved at once and backed by the kernel as it is first touched.
    ///
    /// Fails with `Status::Invalid` or `Status::Limit` and the field and its value; `Status::NoMemory`;
    /// `Status::Unsupported`.
    pub fn new(options: &PoolOptions<'_>) -> Result<Self> {
        let handle = options.with_raw(|raw| Handle::made(|out| unsafe { sys::pkv_pool_create(raw, out) }))?;
        Ok(Self { handle, shapes: Arc::new(Shapes::of(handle)) })
    }

    /// Takes over a handle, for example one that C code made.
    ///
    /// # Safety
    /// Nobody else closes it, and whoever else uses it keeps to the rules of threads. (A handle that is closed, or NULL, does no harm:
    /// everything but dropping answers `Status::Handle`.)
    pub unsafe fn from_raw(raw: *mut sys::pkv_pool) -> Self {
        let handle = Handle::of(raw);
        Self { handle, shapes: Arc::new(Shapes::of(handle)) }
    }

    /// The handle, which is somebody else's to close from now on.
    pub fn into_raw(mut self) -> *mut sys::pkv_pool {
        self.handle.take()
    }

    /// The C API's handle, for calls that this crate does not have. It belongs to the pool.
    pub fn as_raw(&self) -> *mut sys::pkv_pool {
        self.handle.raw()
    }

    /// An empty table: [`Table::new`].
    pub fn table(&self) -> Result<Table> {
        Table::new(self)
    }

    /// Closes the pool, as dropping it does, but says if that cannot be: `Status::Busy` when the pool has memory of the
    /// caller's and a call on another thread, or a store or load in the background, is at work on its bytes. The pool is handed
    /// back then; see [`Pool::quiesce`].
    ///
    /// With tiers: what is not stored yet is lost ([`Pool::flush`]).
    pub fn close(self) -> std::result::Result<(), Failed<Self>> {
        self.handle.close(self, |raw| unsafe { sys::pkv_pool_destroy(raw) }, |pool| &mut pool.handle)
    }

    /// Waits until no call on any thread is at work on memory of the caller's. Others may begin right after: stop them first. A
    /// pool without such memory is quiet at once.
    pub fn quiesce(&self, timeout: Duration) -> Result<()> {
        check(unsafe { sys::pkv_pool_quiesce(self.handle.raw(), nanoseconds(timeout)) })
    }

    /// On a device: orders a stream ([`When::cuda_stream`]) after the work that pages which calls have handed out may still be in, for
    /// kernels of the caller's own in another stream than [`PoolOptions::in_place`], and before the launch of a graph. For another kind
    /// of `when` the call waits for that work. A host pool has nothing to order.
    ///
    /// Fails with `Status::Capture` for a stream that is being captured; `Status::Io` when the device fails.
    pub fn order(&self, when: When<'_>) -> Result<()> {
        check(unsafe { sys::pkv_pool_order(self.handle.raw(), when.raw()) })
    }

    /// Number of layer groups.
    pub fn num_groups(&self) -> usize {
        self.shapes.num_groups()
    }

    /// Tokens of a page.
    pub fn page_tokens(&self) -> u64 {
        self.shapes.page_tokens
    }

    /// Addresses and strides of one layer (which counts within this shard).
    pub fn layout(&self, group: u32, layer: u32) -> Result<LayerLayout> {
        let mut raw = sys::PKV_LAYER_LAYOUT_INIT;
        check(unsafe { sys::pkv_pool_layout(self.handle.raw(), group, layer, &mut raw) })?;
        Ok(LayerLayout::of(&raw))
    }

    /// Address of the `aux_bytes` of a page: bytes for the caller's own use, zero in a new pool, copied where the library copies
    /// a whole page (copy on write, [`Pool::copy_pages`]), not with a part of one. Valid as long as the pool or one of its
    /// tables lives.
    pub fn aux(&self, group: u32, page: Page) -> Result<*mut u8> {
        let mut address = std::ptr::null_mut();
        check(unsafe { sys::pkv_pool_aux(self.handle.raw(), group, page, &mut address) })?;
        Ok(address as *mut u8)
    }

    /// Takes pages from a group, or none; they are released when what this returns is dropped.
    ///
    /// Free pages go first; then cached pages are evicted, but only when the call is going to succeed. It never waits. The
    /// bytes of the pages are whatever they held before. Fails with `Status::NoPages` when too few are free or cached;
    /// `Status::Again` with [`PoolOptions::keep_unstored`].
    pub fn alloc(&self, group: u32, num_pages: usize) -> Result<HeldPages<'_>> {
        let mut ids: Vec<Page> = Vec::new();
        if ids.try_reserve_exact(num_pages).is_err() {
            return Err(Error::new(Status::NoMemory, format!("no memory for {} page ids", num_pages)));
        }
        ids.resize(num_pages, crate::NO_PAGE);
        check(unsafe { sys::pkv_pool_alloc(self.handle.raw(), group, num_pages as u64, address_mut(&mut ids)) })?;
        Ok(HeldPages::new(self, group, ids))
    }

    /// State of one page; the answer may be old when it arrives, unless the caller holds the page.
    pub fn page_info(&self, group: u32, page: Page) -> Result<PageInfo> {
        let mut raw = sys::PKV_PAGE_INFO_INIT;
        check(unsafe { sys::pkv_pool_page_info(self.handle.raw(), group, page, &mut raw) })?;
        Ok(raw.into())
    }

    /// Statistics, of one moment. Pages are those of the group; the other numbers are the pool's.
    pub fn stats(&self, group: u32) -> Result<PoolStats> {
        let mut raw = sys::PKV_POOL_STATS_INIT;
        check(unsafe { sys::pkv_pool_get_stats(self.handle.raw(), group, &mut raw) })?;
        Ok(raw.into())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.handle.is_closed() {
            return;
        }
        // Memory of the caller's may go as soon as this returns: it waits for those who are at work on it.
        while unsafe { sys::pkv_pool_destroy(self.handle.raw()) } == sys::PKV_ERR_BUSY {
            unsafe { sys::pkv_pool_quiesce(self.handle.raw(), 1_000_000_000) };
        }
    }
}
