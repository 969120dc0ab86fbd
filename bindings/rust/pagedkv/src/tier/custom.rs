// SPDX-License-Identifier: Apache-2.0
//! Tiers of one's own.

use super::TierKey;
use crate::codes::{Status, TierRequestKind};
use crate::error::{check, Result};
use crate::guard::guard;
use crate::handle::Handle;
use crate::prompt::Retention;
use crate::text::c_string;
use crate::TierUsage;
use pagedkv_sys as sys;
use std::{
    ffi::CStr,
    fmt,
    mem::{size_of, MaybeUninit},
    os::raw::c_void,
    ptr::{self, NonNull},
    slice,
    sync::{Mutex, PoisonError},
};

/// Tag of images of blocks of one live sequence: no process finds them later, so that a restart need not keep them.
pub const TAG_PRIVATE: u64 = sys::PKV_TIER_TAG_PRIVATE as u64;
/// Tag that stands for every image that is not private, where images are cleared.
pub const TAG_ALL: u64 = sys::PKV_TIER_TAG_ALL;

/// What keeps page images by key. To it an image is a piece of memory of a known size, a multiple of 4096 bytes, and a key is 32
/// bytes that compare equal or not. It may forget what is not pinned at any time. What it gives back is checked by the library:
/// a tier that returns other bytes causes a miss, the removal of that image and a counter, never a wrong result.
///
/// Functions are called from any thread, also from several at once. A panic in one is caught; items of a batch that it drops on
/// its way end with `Status::Io`. See `tests/backends/mod.rs` for one that works.
pub trait TierBackend: Send + Sync + 'static {
    /// For messages and statistics.
    fn name(&self) -> &str {
        "custom"
    }

    /// Takes a batch, and does not wait for it: every [`TierItem`] is completed, now or later, from any thread. What is dropped
    /// instead ends with `Status::Io`.
    fn submit(&self, batch: TierBatch);

    /// What was submitted is not wanted any more. Its items are still completed, sooner if possible (with `Status::Cancelled`, or
    /// with what became of them).
    fn cancel(&self, _request: RequestId) {}

    /// Memory in which buffers of later batches lie, before the first of them (`added`), and after the last one. A tier may
    /// register it with a device; buffers elsewhere must work, too.
    fn memory(&self, _base: *mut u8, _bytes: u64, _added: bool) {}

    /// What is known; all counters only grow.
    fn usage(&self) -> TierUsage {
        TierUsage::default()
    }
}

/// A backend whose images lie in memory: saves a copy, and can be drained into the tier below
/// ([`WritePolicy::Demote`](crate::WritePolicy::Demote)).
///
/// # Safety
/// What [`address`](MappedTier::address) returns must be as many bytes as the image has, readable as long as the backend lives,
/// also after the image is gone. What stands there is the image as long as it is pinned and not cleared or removed by force.
pub unsafe trait MappedTier: TierBackend {
    /// The image as it lies in memory; none if it is not there.
    fn address(&self, key: &TierKey) -> Option<NonNull<u8>>;

    /// Up to `max` images that would be evicted next, unpinned ones, the first to go first.
    fn victims(&self, max: usize) -> Vec<Victim>;
}

/// An image that is about to be evicted.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    /// Its key
    pub key: TierKey,
    /// Its size
    pub bytes: u64,
    /// Its namespace
    pub tag: u64,
    /// Its retention
    pub retention: Retention,
}

/// Tells batches apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(usize);

/// A batch: items of one kind. It is an iterator over them; items that are not taken out of it end with `Status::Io` when it is
/// dropped.
pub struct TierBatch {
    raw: sys::pkv_tier_batch,
    next: u64,
}

// The library keeps what it points to until the last item was completed; from any thread.
unsafe impl Send for TierBatch {}
unsafe impl Send for TierItem {}

impl TierBatch {
    unsafe fn copy(batch: *const sys::pkv_tier_batch) -> Self {
        let mut raw = MaybeUninit::<sys::pkv_tier_batch>::zeroed();
        let known = (*batch).struct_size.min(size_of::<sys::pkv_tier_batch>());
        ptr::copy_nonoverlapping(batch as *const u8, raw.as_mut_ptr() as *mut u8, known);
        // Numbers and addresses: zeros are values of them.
        Self { raw: raw.assume_init(), next: 0 }
    }

    /// What it asks.
    pub fn kind(&self) -> TierRequestKind {
        TierRequestKind::from_code(self.raw.kind)
    }

    /// Lookups and stores: whether images are to be pinned.
    pub fn pin(&self) -> bool {
        self.raw.flags & sys::PKV_TIER_PIN != 0
    }

    /// Removals: whether also of what is pinned.
    pub fn force(&self) -> bool {
        self.raw.flags & sys::PKV_TIER_FORCE != 0
    }

    /// Whether somebody waits for it; otherwise it is work ahead of time.
    pub fn urgent(&self) -> bool {
        self.raw.urgent != 0
    }

    /// On the clock of CLOCK_MONOTONIC: items not begun by then may end with `Status::Timeout`; 0 = none. A hint: the library
    /// watches the time itself.
    pub fn deadline_ns(&self) -> u64 {
        self.raw.deadline_ns
    }

    /// For [`TierBackend::cancel`].
    pub fn request(&self) -> RequestId {
        RequestId(self.raw.request as usize)
    }
}

impl Iterator for TierBatch {
    type Item = TierItem;

    fn next(&mut self) -> Option<TierItem> {
        if self.next == self.raw.num_items {
            return None;
        }
        // This item is not completed yet, so that the lists are there.
        let (raw, i) = (&self.raw, self.next as usize);
        self.next += 1;
        fn at<T: Copy>(list: *const T, i: usize, otherwise: T) -> T {
            if list.is_null() {
                otherwise
            } else {
                unsafe { *list.add(i) }
            }
        }
        Some(TierItem {
            request: raw.request,
            index: i as u64,
            kind: raw.kind,
            flags: raw.flags,
            key: TierKey(at(raw.keys, i, sys::pkv_tier_key { bytes: [0; 32] }).bytes),
            data: at(raw.data, i, ptr::null_mut()),
            offset: at(raw.offsets, i, 0),
            size: at(raw.sizes, i, 0),
            retention: at(raw.retention, i, sys::PKV_RETENTION_INIT),
            tag: at(raw.tags, i, TAG_PRIVATE),
            open: true,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.raw.num_items - self.next) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for TierBatch {}

impl Drop for TierBatch {
    fn drop(&mut self) {
        for item in self {
            drop(item);
        }
    }
}

impl fmt::Debug for TierBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TierBatch({:?}, {} of {} items left)", self.kind(), self.len(), self.raw.num_items)
    }
}

/// One item of a batch. If it is dropped, it ends with `Status::Io`.
pub struct TierItem {
    request: *mut sys::pkv_tier_request,
    index: u64,
    kind: i32,
    flags: u32,
    key: TierKey,
    data: *mut c_void,
    offset: u64,
    size: u64,
    retention: sys::pkv_retention,
    tag: u64,
    open: bool,
}

/// What an item asks, and what [`TierItem::complete`] is told.
#[derive(Debug)]
#[non_exhaustive]
pub enum Ask<'i> {
    /// The image's size, or `Status::NotFound`. With `pin` an image that is found stays until it is unpinned. Counts as a use of
    /// the image
    Lookup {
        /// It is to be pinned
        pin: bool,
    },
    /// 0 once the image can be found; `Status::NoSpace`; `Status::Io` ... An image that is there already is kept, and counts as
    /// stored. With `pin` it is pinned, too
    Store {
        /// Its bytes
        image: &'i [u8],
        /// Its retention
        retention: Retention,
        /// Its namespace
        tag: u64,
        /// It is to be pinned
        pin: bool,
    },
    /// The number of bytes, once all of `into` was filled from `offset` of the image on; `Status::NotFound`; `Status::Io` ...
    Load {
        /// Where the wanted range begins
        offset: u64,
        /// Where its bytes go
        into: &'i mut [u8],
    },
    /// 0, also when it is not there. Not while it is pinned: `Status::Busy`; with `force` also then
    Remove {
        /// The image is known to be bad
        force: bool,
    },
    /// Takes one pin back: 0; `Status::NotFound`
    Unpin,
    /// Sets the retention of an image: 0; `Status::NotFound`
    Retain {
        /// From now on
        retention: Retention,
    },
    /// As `Lookup`, but is no use of the image and pins nothing
    Probe,
    /// Forgets all images with a tag, pinned ones too ([`TAG_ALL`]: all that are not private); there is no key: 0
    Clear {
        /// A namespace
        tag: u64,
    },
    /// Something of a later version of the library: `Status::Unsupported`
    Other(i32),
}

impl TierItem {
    /// Names the image.
    pub fn key(&self) -> TierKey {
        self.key
    }

    /// The batch's.
    pub fn request(&self) -> RequestId {
        RequestId(self.request as usize)
    }

    /// What is asked.
    pub fn ask(&mut self) -> Ask<'_> {
        let size = self.size as usize;
        let retention = Retention::from_raw(&self.retention);
        let pin = self.flags & sys::PKV_TIER_PIN != 0;
        match TierRequestKind::from_code(self.kind) {
            TierRequestKind::Lookup => Ask::Lookup { pin },
            TierRequestKind::Store => {
                let image = unsafe { slice::from_raw_parts(self.data as *const u8, size) };
                Ask::Store { image, retention, tag: self.tag, pin }
            }
            TierRequestKind::Load => {
                let into = unsafe { slice::from_raw_parts_mut(self.data as *mut u8, size) };
                Ask::Load { offset: self.offset, into }
            }
            TierRequestKind::Remove => Ask::Remove { force: self.flags & sys::PKV_TIER_FORCE != 0 },
            TierRequestKind::Unpin => Ask::Unpin,
            TierRequestKind::Retain => Ask::Retain { retention },
            TierRequestKind::Probe => Ask::Probe,
            TierRequestKind::Clear => Ask::Clear { tag: self.tag },
            TierRequestKind::Other(kind) => Ask::Other(kind),
        }
    }

    /// Ends the item. With no lock held that `submit` takes: whoever waits for the item goes on at once, and may come back.
    ///
    /// Fails with `Status::Handle` or `Status::State` when the library has ended it by itself meanwhile.
    pub fn complete(mut self, outcome: std::result::Result<u64, Status>) -> Result<()> {
        self.end(outcome)
    }

    fn end(&mut self, outcome: std::result::Result<u64, Status>) -> Result<()> {
        self.open = false;
        let (status, value) = match outcome {
            Ok(value) => (sys::PKV_OK, value),
            Err(status) => (status.code(), 0),
        };
        check(unsafe { sys::pkv_tier_complete(self.request, self.index, status, value) })
    }
}

impl Drop for TierItem {
    fn drop(&mut self) {
        if self.open {
            let _ = self.end(Err(Status::Io));
        }
    }
}

impl fmt::Debug for TierItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TierItem({:?}, {:?}, {} bytes)", TierRequestKind::from_code(self.kind), self.key, self.size)
    }
}

// ---- what C calls: the context is a Box<T>, which close() drops

unsafe fn backend<'a, T>(context: *mut c_void) -> &'a T {
    &*(context as *const T)
}

unsafe extern "C" fn submit<T: TierBackend>(
    context: *mut c_void, batch: *const sys::pkv_tier_batch,
) -> sys::pkv_status {
    let backend = backend::<T>(context);
    let batch = TierBatch::copy(batch);
    // It has the batch: items that a panic drops are completed on its way.
    guard(|| backend.submit(batch));
    sys::PKV_OK
}

unsafe extern "C" fn cancel<T: TierBackend>(context: *mut c_void, request: *mut sys::pkv_tier_request) {
    guard(|| backend::<T>(context).cancel(RequestId(request as usize)));
}

unsafe extern "C" fn memory<T: TierBackend>(context: *mut c_void, base: *mut c_void, bytes: u64, add: i32) {
    guard(|| backend::<T>(context).memory(base as *mut u8, bytes, add != 0));
}

unsafe extern "C" fn usage<T: TierBackend>(context: *mut c_void, out: *mut sys::pkv_tier_usage) {
    if let Some(usage) = guard(|| backend::<T>(context).usage()) {
        let mut raw: sys::pkv_tier_usage = usage.into();
        raw.struct_size = (*out).struct_size;
        let known = raw.struct_size.min(size_of::<sys::pkv_tier_usage>());
        ptr::copy_nonoverlapping(&raw as *const sys::pkv_tier_usage as *const u8, out as *mut u8, known);
    }
}

unsafe extern "C" fn close<T: TierBackend>(context: *mut c_void) {
    guard(|| drop(Box::from_raw(context as *mut T)));
}

unsafe extern "C" fn find_address<T: MappedTier>(context: *mut c_void, key: *const sys::pkv_tier_key) -> *const c_void {
    let key = TierKey((*key).bytes);
    let found = guard(|| backend::<T>(context).address(&key)).flatten();
    found.map_or(ptr::null(), |at| at.as_ptr() as *const c_void)
}

unsafe extern "C" fn victims<T: MappedTier>(
    context: *mut c_void, out: *mut sys::pkv_tier_victim, capacity: u64,
) -> u64 {
    let list = guard(|| backend::<T>(context).victims(capacity as usize)).unwrap_or_default();
    let mut count = 0;
    for victim in list.iter().take(capacity as usize) {
        let (key, retention) = (sys::pkv_tier_key { bytes: victim.key.0 }, victim.retention.raw());
        out.add(count).write(sys::pkv_tier_victim { key, bytes: victim.bytes, tag: victim.tag, retention });
        count += 1;
    }
    count as u64
}

/// A terminated string that stays: the library wants a static one. There is one for each name that was ever used.
fn name(text: &str) -> Result<&'static CStr> {
    static NAMES: Mutex<Vec<&'static CStr>> = Mutex::new(Vec::new());
    let own = c_string(text, "name")?;
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.iter().find(|known| **known == own.as_c_str()) {
        return Ok(known);
    }
    let fresh: &'static CStr = Box::leak(own.into_boxed_c_str());
    names.push(fresh);
    Ok(fresh)
}

fn ops<T: TierBackend>(backend: &T) -> Result<sys::pkv_tier_ops> {
    Ok(sys::pkv_tier_ops {
        struct_size: size_of::<sys::pkv_tier_ops>(),
        name: name(backend.name())?.as_ptr(),
        submit: Some(submit::<T>),
        cancel: Some(cancel::<T>),
        address: None,
        victims: None,
        memory: Some(memory::<T>),
        usage: Some(usage::<T>),
        close: Some(close::<T>),
    })
}

fn open_with<T: TierBackend>(ops: &sys::pkv_tier_ops, backend: T) -> Result<Handle<sys::pkv_tier>> {
    let context = Box::into_raw(Box::new(backend));
    let made = Handle::made(|out| unsafe { sys::pkv_tier_open(ops, context as *mut c_void, out) });
    if made.is_err() {
        // The library has not taken it.
        drop(unsafe { Box::from_raw(context) });
    }
    made
}

pub(super) fn open<T: TierBackend>(backend: T) -> Result<Handle<sys::pkv_tier>> {
    open_with(&ops(&backend)?, backend)
}

pub(super) fn open_mapped<T: MappedTier>(backend: T) -> Result<Handle<sys::pkv_tier>> {
    let mut ops = ops(&backend)?;
    ops.address = Some(find_address::<T>);
    ops.victims = Some(victims::<T>);
    open_with(&ops, backend)
}
