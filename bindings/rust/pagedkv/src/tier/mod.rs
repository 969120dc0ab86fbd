// SPDX-License-Identifier: Apache-2.0
//! Tiers: places below a pool that keep page images.

mod custom;
mod file;

pub use custom::{Ask, MappedTier, RequestId, TierBackend, TierBatch, TierItem, Victim, TAG_ALL, TAG_PRIVATE};
pub use file::{FaultHook, FileEvent, FileTierOptions};

use crate::codes::HugePages;
use crate::error::{check, Failed, Result};
use crate::handle::Handle;
use crate::TierStats;
use pagedkv_sys as sys;
use std::fmt;

/// Names a page image: BLAKE2b-256 of the whole prefix up to the end of its block (namespace, media, tokens) and of the layer
/// group's shape; random for a block without a prefix key.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct TierKey(pub [u8; 32]);

impl fmt::Debug for TierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{:02x}", byte))
    }
}

/// What a tier of host memory is made of.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostTierOptions {
    /// Memory for page images, mapped at once, backed as it is touched
    pub capacity_bytes: u64,
    /// Whether in huge pages
    pub huge_pages: HugePages,
}

/// A tier. It may be used from any thread, and by several pools: images of one geometry and prefix are found by all of them,
/// others are kept apart by their keys. Pools that use a tier keep it alive when it is dropped; a file tier lets go of its file,
/// and a backend is dropped, when the last of them is gone and all requests have ended.
///
/// An image is used after its header, key, shape and checksums were compared in full; anything else is a miss, the image is
/// removed, and [`TierStats::checksum_failures`] counts it.
#[derive(Debug)]
pub struct Tier {
    handle: Handle<sys::pkv_tier>,
}

impl Tier {
    pub(crate) fn of(handle: Handle<sys::pkv_tier>) -> Self {
        Self { handle }
    }

    /// Makes a tier of host memory. It evicts by retention: lowest priority first, then least recently used; pinned images stay.
    pub fn open_host(options: &HostTierOptions) -> Result<Self> {
        let mut raw = sys::PKV_HOST_TIER_OPTIONS_INIT;
        raw.capacity_bytes = options.capacity_bytes;
        raw.huge_pages = options.huge_pages.code();
        Ok(Self::of(Handle::made(|out| unsafe { sys::pkv_tier_open_host(&raw, out) })?))
    }

    /// Makes a tier in a file, or finds one there: images that an earlier process stored are served again (warm restart).
    ///
    /// One process at a time: the file is locked as long as the tier is open. Killing the process at any moment costs images at
    /// most.
    ///
    /// Fails with `Status::Busy` when another process has the file; `Status::Mismatch` for a file that is none of ours, or of
    /// another version, identity or size (nothing is changed in it); `Status::NoSpace` when it cannot be preallocated;
    /// `Status::Io` with the system's reason; `Status::Limit`; `Status::Unsupported`.
    pub fn open_file(options: &FileTierOptions) -> Result<Self> {
        let handle = options.with_raw(|raw| Handle::made(|out| unsafe { sys::pkv_tier_open_file(raw, out) }))?;
        Ok(Self::of(handle))
    }

    /// Makes a tier of the caller's own. The backend is dropped when no pool uses the tier any more and no request is open.
    pub fn open(backend: impl TierBackend) -> Result<Self> {
        custom::open(backend).map(Self::of)
    }

    /// As [`Tier::open`], for one whose images lie in memory.
    pub fn open_mapped(backend: impl MappedTier) -> Result<Self> {
        custom::open_mapped(backend).map(Self::of)
    }

    /// Takes over a handle, for example one that C code made.
    ///
    /// # Safety
    /// Nobody else closes it, and whoever else uses it keeps to the rules of threads. (A handle that is closed, or NULL, does no harm:
    /// everything but dropping answers `Status::Handle`.)
    pub unsafe fn from_raw(raw: *mut sys::pkv_tier) -> Self {
        Self { handle: Handle::of(raw) }
    }

    /// The handle, which is somebody else's to close from now on.
    pub fn into_raw(mut self) -> *mut sys::pkv_tier {
        self.handle.take()
    }

    /// Closes the handle, as dropping it does.
    pub fn close(self) -> std::result::Result<(), Failed<Self>> {
        self.handle.close(self, |raw| unsafe { sys::pkv_tier_close(raw) }, |tier| &mut tier.handle)
    }

    /// The C API's handle, for calls that this crate does not have. It belongs to the tier.
    pub fn as_raw(&self) -> *mut sys::pkv_tier {
        self.handle.raw()
    }

    /// The tier's numbers: its own, and what pools did with it.
    pub fn stats(&self) -> Result<TierStats> {
        let mut raw = sys::PKV_TIER_STATS_INIT;
        check(unsafe { sys::pkv_tier_get_stats(self.as_raw(), &mut raw) })?;
        Ok(raw.into())
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        if !self.handle.is_closed() {
            unsafe { sys::pkv_tier_close(self.as_raw()) };
        }
    }
}
