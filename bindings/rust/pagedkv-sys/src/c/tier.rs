// SPDX-License-Identifier: Apache-2.0
// Written by generate.py from the headers: not to be edited.
//! Tiers: places below a pool that keep page images, and the operations that move pages to and from them.
//!
//! A tier is made once (`pkv_tier_open_host`, `pkv_tier_open_file`, `pkv_tier_open` for one of the caller's
//! own) and named when a pool is made (`pkv_pool_options.tiers`), in the order in which it is asked, the
//! fastest first. Several pools may use one tier: images of one geometry and prefix are found by all of them,
//! others are kept apart by their keys.
//!
//! Page image: the bytes of one page in a tier. A header (magic, version, byte order, key, the group's shape,
//! in-page order, tokens, scales, aux bytes, an XXH3-64 checksum for each layer and one of the header itself),
//! then one slice for each layer, each at a multiple of 4096 bytes. An image is used after all of that was
//! compared; anything else is a miss, the image is removed, and `pkv_tier_stats.checksum_failures` counts it.
//!
//! Thread-safety: every call here, from any thread.

#[allow(unused_imports)]
use super::*;

/// See the functions that take a `pkv_host_tier_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_host_tier_options {
    /// `struct_size`.
    pub struct_size: usize,
    /// Memory for page images, mapped at once, backed as it is touched
    pub capacity_bytes: u64,
    /// `PKV_HUGE_PAGES_*`
    pub huge_pages: i32,
    /// 0
    pub reserved: u32,
}

/// Initial value of [`pkv_host_tier_options`].
pub const PKV_HOST_TIER_OPTIONS_INIT: pkv_host_tier_options = pkv_host_tier_options { struct_size: size_of::<pkv_host_tier_options>(), capacity_bytes: 0, huge_pages: PKV_HUGE_PAGES_AUTO, reserved: 0 };

/// io_uring where the system permits it, else threads
pub const PKV_IO_AUTO: i32 = 0;

/// io_uring, or `PKV_ERR_UNSUPPORTED`
pub const PKV_IO_URING: i32 = 1;

/// pread and pwrite in threads
pub const PKV_IO_THREADS: i32 = 2;

/// Go on, with \*result as the hook left it
pub const PKV_FAULT_NONE: i32 = 0;

/// As if the completion never came
pub const PKV_FAULT_DROP: i32 = 1;

/// Deliver the completion twice
pub const PKV_FAULT_TWICE: i32 = 2;

/// Deliver it after the next one (or after 50 ms, whichever is first)
pub const PKV_FAULT_LATE: i32 = 3;

/// One read or write of a file tier that has ended, before the tier looks at it. For tests.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_file_event {
    /// `struct_size`.
    pub struct_size: usize,
    /// 1 for a write, 0 for a read
    pub write: i32,
    /// `reserved`.
    pub reserved: i32,
    /// In the file
    pub offset: u64,
    /// The bytes read, or those that were written
    pub data: *mut c_void,
    /// Asked for
    pub size: u64,
    /// Bytes done, or -errno; the hook may change it
    pub result: i64,
}

/// A function of the caller.
pub type pkv_file_fault = Option<unsafe extern "C" fn(user: *mut c_void, event: *mut pkv_file_event) -> i32>;

/// See the functions that take a `pkv_file_tier_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_file_tier_options {
    /// `struct_size`.
    pub struct_size: usize,
    /// The file; made with mode 0600 if it is not there; its folder must be
    pub path: *const c_char,
    /// Room for page images; the file is preallocated. An existing file keeps its size: another one gives
    /// `PKV_ERR_MISMATCH`; 0 = the file's
    pub capacity_bytes: u64,
    /// Images it can hold at most; 0 = one for each 64 KiB of capacity: name it where images are smaller
    /// (`pkv_pool_stats.image_bytes`). Each takes 128 bytes of the file besides. Fixed when the file is made
    pub max_images: u64,
    /// What the images belong to, up to 4096 bytes, kept as a digest: a file made with another one gives
    /// `PKV_ERR_MISMATCH`. Keys keep models apart in any case
    pub identity: pkv_bytes,
    /// `PKV_IO_*`
    pub engine: i32,
    /// Reads and writes under way at once: 1 .. 1024; 0 = 64
    pub depth: u32,
    /// `PKV_IO_THREADS`: 1 .. 64; 0 = 4
    pub threads: u32,
    /// `PKV_FILE_*`
    pub flags: u32,
    /// How long to wait for another process to let go of the file; 0 = 5 seconds
    pub lock_timeout_ns: u64,
    /// NULL; for tests of error paths
    pub fault: pkv_file_fault,
    /// `fault_user`.
    pub fault_user: *mut c_void,
}

/// Initial value of [`pkv_file_tier_options`].
pub const PKV_FILE_TIER_OPTIONS_INIT: pkv_file_tier_options = pkv_file_tier_options { struct_size: size_of::<pkv_file_tier_options>(), path: ptr::null(), capacity_bytes: 0, max_images: 0, identity: pkv_bytes { data: ptr::null(), size: 0 }, engine: PKV_IO_AUTO, depth: 0, threads: 0, flags: 0, lock_timeout_ns: 0, fault: None, fault_user: ptr::null_mut() };

/// Begin empty: what is in the file is forgotten, also when it is no file of ours or does not match
pub const PKV_FILE_RESET: u32 = 1;

/// Through the page cache. Without it O_DIRECT is used where the file system has it
pub const PKV_FILE_BUFFERED: u32 = 2;

/// A tier's numbers: its own (`usage`), and what pools did with it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_tier_stats {
    /// `struct_size`.
    pub struct_size: usize,
    /// `usage`.
    pub usage: pkv_tier_usage,
    /// Images asked for
    pub lookups: u64,
    /// Of them found
    pub hits: u64,
    /// Images loaded and verified
    pub loads: u64,
    /// Loads that gave no image, for whatever reason
    pub failed_loads: u64,
    /// Images stored
    pub stores: u64,
    /// `failed_stores`.
    pub failed_stores: u64,
    /// Of images, verified ones
    pub bytes_loaded: u64,
    /// `bytes_stored`.
    pub bytes_stored: u64,
    /// Loads whose bytes were not the image asked for: each was removed
    pub checksum_failures: u64,
    /// Requests whose deadline passed
    pub timeouts: u64,
    /// Items completed more than once
    pub double_completions: u64,
    /// Batches under way
    pub open_requests: u64,
    /// Times that repeated failures made the tier rest
    pub breaker_trips: u64,
    /// 1 while it rests: lookups are misses, nothing is stored
    pub resting: i32,
    /// `reserved`.
    pub reserved: i32,
}

/// Initial value of [`pkv_tier_stats`].
pub const PKV_TIER_STATS_INIT: pkv_tier_stats = pkv_tier_stats { struct_size: size_of::<pkv_tier_stats>(), usage: PKV_TIER_USAGE_INIT, lookups: 0, hits: 0, loads: 0, failed_loads: 0, stores: 0, failed_stores: 0, bytes_loaded: 0, bytes_stored: 0, checksum_failures: 0, timeouts: 0, double_completions: 0, open_requests: 0, breaker_trips: 0, resting: 0, reserved: 0 };

/// Where operations end: a queue of their results with one native wait handle.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_completion {
    /// As given when the operation was begun
    pub user: u64,
    /// Its handle: still to be closed
    pub op: *mut pkv_op,
    /// `PKV_OK`, or that of the first item that failed
    pub status: pkv_status,
    /// `reserved`.
    pub reserved: i32,
}

/// `pkv_op_info.state`
pub const PKV_OP_RUNNING: i32 = 0;

/// `pkv_op_info.state`
pub const PKV_OP_ENDED: i32 = 1;

/// See the functions that take a `pkv_op_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_op_info {
    /// `struct_size`.
    pub struct_size: usize,
    /// `PKV_OP_*`
    pub state: i32,
    /// Of an operation that has ended: `PKV_OK`, or that of its first item that failed; `PKV_ERR_CANCELLED` when a
    /// cancel came before all items were done
    pub status: pkv_status,
    /// `num_items`.
    pub num_items: u64,
    /// Items that have ended
    pub done_items: u64,
    /// Of them with `PKV_OK`
    pub good_items: u64,
    /// 1 once nothing of the operation touches pages or buffers any more
    pub buffers_free: i32,
    /// `reserved`.
    pub reserved: i32,
}

/// Initial value of [`pkv_op_info`].
pub const PKV_OP_INFO_INIT: pkv_op_info = pkv_op_info { struct_size: size_of::<pkv_op_info>(), state: 0, status: 0, num_items: 0, done_items: 0, good_items: 0, buffers_free: 0, reserved: 0 };

/// How an operation reports.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_op_options {
    /// `struct_size`.
    pub struct_size: usize,
    /// Where its end is queued, or NULL
    pub queue: *mut pkv_queue,
    /// Returned with it
    pub user: u64,
    /// After so long it ends with `PKV_ERR_TIMEOUT` for what is not done; 0 = 30 seconds
    pub timeout_ns: u64,
}

/// Initial value of [`pkv_op_options`].
pub const PKV_OP_OPTIONS_INIT: pkv_op_options = pkv_op_options { struct_size: size_of::<pkv_op_options>(), queue: ptr::null_mut(), user: 0, timeout_ns: 0 };

extern "C" {
    /// Makes a tier of host memory. Below a device pool all of it is pinned, for as long as there is such a pool
    /// (device.h). It evicts by retention: lowest priority first, then least recently used; pinned images stay.
    ///
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID`; `PKV_ERR_NO_MEMORY`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_tier_open_host(options: *const pkv_host_tier_options, tier: *mut *mut pkv_tier) -> pkv_status;

    /// Makes a tier in a file, or finds one there: images that an earlier process stored are served again (warm
    /// restart).
    ///
    /// One process at a time: the file is locked (flock) as long as the tier is open. Killing the process at any
    /// moment costs images at most. Byte order is the machine's; a file of another byte order or format version
    /// gives `PKV_ERR_MISMATCH`.
    ///
    /// * Returns `PKV_OK`; `PKV_ERR_BUSY` when another process has the file; `PKV_ERR_MISMATCH` for a file that is
    ///   none of ours, or of another version, identity or size (nothing is changed in it); `PKV_ERR_NO_SPACE` when
    ///   it cannot be preallocated; `PKV_ERR_IO` with the system's reason; `PKV_ERR_INVALID`; `PKV_ERR_LIMIT`;
    ///   `PKV_ERR_UNSUPPORTED`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_tier_open_file(options: *const pkv_file_tier_options, tier: *mut *mut pkv_tier) -> pkv_status;

    /// Makes a tier of the caller's own.
    ///
    /// * `ops`: copied
    /// * `context`: passed to each function; must live until ops-\>close was called
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID` without a submit function; `PKV_ERR_NO_MEMORY`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_tier_open(ops: *const pkv_tier_ops, context: *mut c_void, tier: *mut *mut pkv_tier) -> pkv_status;

    /// Closes the handle. Pools that use the tier keep it alive; its close function is called when the last of them
    /// is gone and all requests have ended, which may be a little after this call (a file tier lets go of its file
    /// then).
    ///
    /// * Returns `PKV_OK`; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_tier_close(tier: *mut pkv_tier) -> pkv_status;

    /// * Returns `PKV_OK`; `PKV_ERR_HANDLE`; `PKV_ERR_INVALID`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_tier_get_stats(tier: *mut pkv_tier, stats: *mut pkv_tier_stats) -> pkv_status;

    /// * `queue`: out
    /// * Returns `PKV_OK`; `PKV_ERR_NO_MEMORY`; `PKV_ERR_IO` when the system gives no eventfd
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_queue_create(queue: *mut *mut pkv_queue) -> pkv_status;

    /// Closes the queue. Operations under way go on, and end without being queued. Thread-safe. Since 0.1.
    pub fn pkv_queue_destroy(queue: *mut pkv_queue) -> pkv_status;

    /// The queue's eventfd, for poll, epoll or io_uring: readable while results wait. Do not read or close it;
    /// valid until the queue is destroyed. Thread-safe. Since 0.1.
    pub fn pkv_queue_handle(queue: *mut pkv_queue, fd: *mut i32) -> pkv_status;

    /// Takes results out, in the order in which the operations ended, each once.
    ///
    /// * `completions`: out
    /// * `capacity`: entries at completions
    /// * `timeout_ns`: longest wait for the first one; 0 = none, UINT64_MAX = for ever
    /// * `count`: out, entries written
    /// * Returns `PKV_OK`; `PKV_ERR_TIMEOUT` with count 0; `PKV_ERR_INVALID`; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_queue_drain(queue: *mut pkv_queue, completions: *mut pkv_completion, capacity: u64, timeout_ns: u64, count: *mut u64) -> pkv_status;

    /// State of an operation, without waiting.
    ///
    /// * `statuses`: out, one for each item, or NULL; `PKV_ERR_BUSY` for items under way
    /// * `capacity`: entries at statuses; fewer than items: the first ones
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_op_poll(op: *mut pkv_op, info: *mut pkv_op_info, statuses: *mut pkv_status, capacity: u64) -> pkv_status;

    /// Waits until the operation has ended.
    ///
    /// * `timeout_ns`: 0 = look once, UINT64_MAX = for ever
    /// * Returns the operation's status; `PKV_ERR_TIMEOUT` while it is under way
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_op_wait(op: *mut pkv_op, timeout_ns: u64) -> pkv_status;

    /// Asks an operation to end early. It ends exactly once all the same, with `PKV_ERR_CANCELLED` for the items
    /// that were not done; pages and buffers stay in use until buffers_free.
    ///
    /// * Returns `PKV_OK`, also when it has ended already; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_op_cancel(op: *mut pkv_op) -> pkv_status;

    /// Closes the handle. An operation under way goes on, unseen. Thread-safe. Since 0.1.
    pub fn pkv_op_close(op: *mut pkv_op) -> pkv_status;

    /// Keys of the images of a prompt's whole blocks in a layer group: what a scheduler that plans hands to the
    /// workers that hold the bytes.
    ///
    /// * `keys`: out
    /// * `capacity`: entries at keys; 0 asks for the number only
    /// * `num_keys`: out, whole blocks of the prompt
    /// * Returns `PKV_OK`; `PKV_ERR_NO_SPACE` when capacity is neither 0 nor enough; `PKV_ERR_INVALID`;
    ///   `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_image_keys(pool: *mut pkv_pool, group: u32, prompt: *const pkv_prompt, keys: *mut pkv_tier_key, capacity: u64, num_keys: *mut u64) -> pkv_status;

    /// Stores images of pages that the caller holds in all tiers of the pool that take stores. The pages are held
    /// until the operation has ended; their bytes must not change meanwhile.
    ///
    /// * `keys`: num_pages of them
    /// * `pages`: num_pages held pages of the group
    /// * `sync`: work that still writes the pages; NULL = none
    /// * `options`: NULL = defaults
    /// * `op`: out: poll, wait, cancel, close. NULL only with a queue
    /// * Returns `PKV_OK` when it has begun; `PKV_ERR_STATE` for a pool without tiers or a page that nobody holds;
    ///   `PKV_ERR_BUSY` when too many operations are under way (a later try may succeed); `PKV_ERR_UNSUPPORTED` for
    ///   a group without memory; `PKV_ERR_CAPTURE` for a stream that is being captured; `PKV_ERR_INVALID`;
    ///   `PKV_ERR_NO_MEMORY`; `PKV_ERR_HANDLE` Per item: `PKV_OK` when at least one tier has it;
    ///   `PKV_ERR_NO_SPACE`; `PKV_ERR_IO`; `PKV_ERR_TIMEOUT`; `PKV_ERR_CANCELLED`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_store(pool: *mut pkv_pool, group: u32, num_pages: u64, keys: *const pkv_tier_key, pages: *const pkv_page, sync: *const pkv_sync, options: *const pkv_op_options, op: *mut *mut pkv_op) -> pkv_status;

    /// Loads images into pages that the caller holds, each from the first tier that has it. Nothing is published. A
    /// page whose item fails keeps its old bytes, or part of the image: take its content for undefined.
    ///
    /// * `pages`: num_pages held pages of the group, which nobody else may use until the operation has ended
    /// * `sync`: work that still uses the pages; NULL = none
    /// * Returns as `pkv_pool_store`. Per item: `PKV_OK`; `PKV_ERR_NOT_FOUND`; `PKV_ERR_IO`; `PKV_ERR_TIMEOUT`;
    ///   `PKV_ERR_CANCELLED`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_load(pool: *mut pkv_pool, group: u32, num_pages: u64, keys: *const pkv_tier_key, pages: *const pkv_page, sync: *const pkv_sync, options: *const pkv_op_options, op: *mut *mut pkv_op) -> pkv_status;

    /// Waits until what is to be stored by policy has been: evictable pages whose images are missing in a tier that
    /// wants them, and stores under way.
    ///
    /// * `timeout_ns`: longest wait
    /// * Returns `PKV_OK`; `PKV_ERR_TIMEOUT`; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_flush(pool: *mut pkv_pool, timeout_ns: u64) -> pkv_status;
}
