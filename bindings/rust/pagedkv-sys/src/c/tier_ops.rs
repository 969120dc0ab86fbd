// SPDX-License-Identifier: Apache-2.0
// Written by generate.py from the headers: not to be edited.
//! What a tier is made of, for those who bring their own: a table of functions and a context. The built-in
//! tiers (tier.h) use the same table.
//!
//! A tier keeps page images by key. To it an image is a piece of memory of a known size, a multiple of
//! `PKV_IMAGE_ALIGNMENT`, and a key is 32 bytes that compare equal or not. It may forget what is not pinned at
//! any time. What it gives back is checked by the library (header, key and checksums of the image) before a
//! byte of it is used: a tier that returns other bytes causes a miss, the removal of that image and a counter,
//! never a wrong result.
//!
//! Requests come in batches through `submit`, which must not wait for them; each item of a batch ends with one
//! call of `pkv_tier_complete()`, from any thread, also from inside `submit`.

#[allow(unused_imports)]
use super::*;

/// Of image sizes, and of the memory and ranges of loads and stores
pub const PKV_IMAGE_ALIGNMENT: i32 = 4096;

/// Names a page image: BLAKE2b-256 of the whole prefix up to the end of its block (namespace, media, tokens)
/// and of the layer group's shape (its number in the pool, geometry, and place of its shard in the model);
/// random for a block without a prefix key.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_tier_key {
    /// `bytes`.
    pub bytes: [u8; 32],
}

/// `PKV_OK` and the image's size, or `PKV_ERR_NOT_FOUND`. With `PKV_TIER_PIN` an image that is found stays
/// until it is unpinned. Counts as a use of the image
pub const PKV_TIER_LOOKUP: i32 = 1;

/// `PKV_OK` once the image can be found; `PKV_ERR_NO_SPACE`; `PKV_ERR_IO` ... An image that is there already is
/// kept, and counts as stored. With `PKV_TIER_PIN` it is pinned, too
pub const PKV_TIER_STORE: i32 = 2;

/// `PKV_OK` once sizes\[i\] bytes from offsets\[i\] on stand at data\[i\]; `PKV_ERR_NOT_FOUND`; `PKV_ERR_IO`
/// ... Less than all of it is a failure
pub const PKV_TIER_LOAD: i32 = 3;

/// `PKV_OK`, also when it is not there. Not while it is pinned: `PKV_ERR_BUSY`; with `PKV_TIER_FORCE` also then
/// (the image is known to be bad)
pub const PKV_TIER_REMOVE: i32 = 4;

/// Takes one pin back: `PKV_OK`; `PKV_ERR_NOT_FOUND`
pub const PKV_TIER_UNPIN: i32 = 5;

/// Sets the retention of an image: `PKV_OK`; `PKV_ERR_NOT_FOUND`
pub const PKV_TIER_RETAIN: i32 = 6;

/// As `PKV_TIER_LOOKUP`, but is no use of the image and pins nothing
pub const PKV_TIER_PROBE: i32 = 7;

/// Forgets all images with one of the tags (num_items tags, no keys), pinned ones too; the tag
/// `PKV_TIER_TAG_ALL` stands for every image that is not private: `PKV_OK`
pub const PKV_TIER_CLEAR: i32 = 8;

/// Image of a block of one live sequence: no process finds it later, so that a restart need not keep it
pub const PKV_TIER_TAG_PRIVATE: i32 = 0;

/// CLEAR: all but private images
pub const PKV_TIER_TAG_ALL: u64 = u64::MAX;

/// LOOKUP, STORE: pin the image
pub const PKV_TIER_PIN: u32 = 1;

/// REMOVE: also what is pinned
pub const PKV_TIER_FORCE: u32 = 2;

/// One batch, as it lies with the library until its last item has ended: arrays of num_items. Byte ranges,
/// `data` and sizes are aligned to `PKV_IMAGE_ALIGNMENT`. Lists that a kind does not need are NULL.
#[repr(C)]
pub struct pkv_tier_request {
    _private: [u8; 0],
    _marker: Opaque,
}

/// See the functions that take a `pkv_tier_batch`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_tier_batch {
    /// `struct_size`.
    pub struct_size: usize,
    /// `PKV_TIER_*`
    pub kind: i32,
    /// `PKV_TIER_PIN`, `PKV_TIER_FORCE`
    pub flags: u32,
    /// `num_items`.
    pub num_items: u64,
    /// Every kind
    pub keys: *const pkv_tier_key,
    /// STORE: the image, to be read; LOAD: where its bytes go
    pub data: *const *mut c_void,
    /// LOAD: where the wanted range of the image begins
    pub offsets: *const u64,
    /// STORE: the image's bytes; LOAD: the range's
    pub sizes: *const u64,
    /// STORE, RETAIN: of each image
    pub retention: *const pkv_retention,
    /// STORE: the namespace of each image; CLEAR: the namespaces to forget
    pub tags: *const u64,
    /// On the clock of CLOCK_MONOTONIC: items not begun by then may end with `PKV_ERR_TIMEOUT`; 0 = none. A hint:
    /// the library watches the time itself
    pub deadline_ns: u64,
    /// 1: somebody waits for it; 0: work ahead of time
    pub urgent: i32,
    /// For `pkv_tier_complete()`
    pub request: *mut pkv_tier_request,
}

/// What a tier says of itself. All counters only grow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_tier_usage {
    /// `struct_size`.
    pub struct_size: usize,
    /// Room for images
    pub capacity_bytes: u64,
    /// Of it in use
    pub used_bytes: u64,
    /// Images that can be found
    pub images: u64,
    /// `pinned_images`.
    pub pinned_images: u64,
    /// Forgotten to make room
    pub evicted_images: u64,
    /// Found by a restart
    pub recovered_images: u64,
    /// Reads and writes that failed or came short
    pub io_errors: u64,
    /// `PKV_IO_*` of a file tier, else 0
    pub engine: i32,
    /// 1 if the engine reads and writes through registered buffers
    pub registered_buffers: i32,
}

/// Initial value of [`pkv_tier_usage`].
pub const PKV_TIER_USAGE_INIT: pkv_tier_usage = pkv_tier_usage { struct_size: size_of::<pkv_tier_usage>(), capacity_bytes: 0, used_bytes: 0, images: 0, pinned_images: 0, evicted_images: 0, recovered_images: 0, io_errors: 0, engine: 0, registered_buffers: 0 };

/// An image that is about to be evicted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_tier_victim {
    /// `key`.
    pub key: pkv_tier_key,
    /// `bytes`.
    pub bytes: u64,
    /// `tag`.
    pub tag: u64,
    /// `retention`.
    pub retention: pkv_retention,
}

/// See the functions that take a `pkv_tier_ops`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_tier_ops {
    /// `struct_size`.
    pub struct_size: usize,
    /// A static string, for messages and statistics
    pub name: *const c_char,
    /// Takes a batch. `PKV_OK`: every item is completed, once each, now or later. Another status: none was taken,
    /// and none is completed. From any thread, also from several at once.
    pub submit: Option<unsafe extern "C" fn(context: *mut c_void, batch: *const pkv_tier_batch) -> pkv_status>,
    /// NULL, or: what was submitted is not wanted any more. Its items are still completed, sooner if possible (with
    /// `PKV_ERR_CANCELLED`, or with what became of them).
    pub cancel: Option<unsafe extern "C" fn(context: *mut c_void, request: *mut pkv_tier_request)>,
    /// NULL, or: the image as it lies in memory; NULL if it is not there. Saves a copy. The memory stays readable
    /// as long as the tier lives; what stands there is the image as long as it is pinned and not cleared or removed
    /// by force (the library asks again after reading).
    pub address: Option<unsafe extern "C" fn(context: *mut c_void, key: *const pkv_tier_key) -> *const c_void>,
    /// NULL, or: up to `capacity` images that would be evicted next, unpinned ones, the first to go first. Returns
    /// how many. Tiers that have it, and `address`, can be drained into the tier below (`PKV_TIER_DEMOTE`).
    pub victims: Option<unsafe extern "C" fn(context: *mut c_void, victims: *mut pkv_tier_victim, capacity: u64) -> u64>,
    /// NULL, or: memory in which buffers of later batches lie, before the first of them (`add` 1), and after the
    /// last one (0). A tier may register it with a device; buffers elsewhere must work, too.
    pub memory: Option<unsafe extern "C" fn(context: *mut c_void, base: *mut c_void, bytes: u64, add: i32)>,
    /// NULL, or: fills in what is known.
    pub usage: Option<unsafe extern "C" fn(context: *mut c_void, usage: *mut pkv_tier_usage)>,
    /// NULL, or: the tier is not used any more and no request is open. Called once.
    pub close: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

extern "C" {
    /// Ends one item of a batch. The first call for an item counts; later ones change nothing (statistics count
    /// them).
    ///
    /// * `request`: the batch's; after its last item was completed it must not be used again
    /// * `item`: 0 .. num_items - 1
    /// * `status`: `PKV_OK` or `PKV_ERR_*`
    /// * `value`: LOOKUP, PROBE: the image's bytes; LOAD: bytes that stand at data\[item\]; else 0
    /// * Returns `PKV_OK`; `PKV_ERR_HANDLE` for a request that has ended; `PKV_ERR_STATE` for an item that has;
    ///   `PKV_ERR_INVALID` for an item out of range
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_tier_complete(request: *mut pkv_tier_request, item: u64, status: pkv_status, value: u64) -> pkv_status;
}
