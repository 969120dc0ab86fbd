// SPDX-License-Identifier: Apache-2.0
// Written by generate.py from the headers: not to be edited.
//! Conventions of the whole API, and what every other header needs: version, statuses, handles, ids,
//! `pkv_sync`.
//!
//! Conventions
//!
//! 1. A call that can fail returns a `pkv_status`: `PKV_OK` (0) or a negative `PKV_ERR_*`. The detail, with the
//!    values at fault, is in `pkv_last_error()`, per thread. A call that fails changes nothing unless its own
//!    text says otherwise.
//!
//! 2. A handle (`pkv_pool *`, `pkv_table *` ...) is a value, not an address: never dereference one. NULL,
//!    closed (also twice), foreign and stale handles give `PKV_ERR_HANDLE`. A handle that crossed a fork()
//!    gives `PKV_ERR_FORKED` in the child. Destroying an object while another thread is inside a call on it
//!    takes effect when that call leaves.
//!
//! 3. Objects may be destroyed in any order: a child keeps what it needs of its parent alive. After its pool
//!    was destroyed a table answers `PKV_ERR_CLOSED` to everything but its own destruction.
//!
//! 4. Structs that the library may extend begin with `size_t struct_size`; initialise them with their
//!    `PKV_*_INIT`. The library reads and writes at most struct_size bytes; non-zero bytes that it does not
//!    know are refused with `PKV_ERR_UNSUPPORTED`, a struct_size above 4096 with `PKV_ERR_INVALID`. In such a
//!    struct 0 means the default, unless the field says otherwise. In an array of such structs the first one's
//!    struct_size is the distance between elements.
//!
//! 5. Sizes and strides are bytes (uint64_t), times nanoseconds (uint64_t), token positions and counts
//!    uint64_t. Counts of 0 are no error: the call succeeds and does nothing.
//!
//! 6. Nothing that a caller passes is kept after the call returns, unless the text says so.
//!
//! 7. No exception, signal, abort or output to stdout/stderr leaves the library.
//!
//! 8. Thread-safety stands in each header: pools may be used from any thread; a table, a batch or a prefetch
//!    session from one thread at a time, different ones at the same time.

#[allow(unused_imports)]
use super::*;

/// Version of these headers; semantic versioning. While the major number is 0 a minor release may break the
/// ABI.
pub const PKV_VERSION_MAJOR: i32 = 0;

/// `PKV_VERSION_MINOR` of `types.h`.
pub const PKV_VERSION_MINOR: i32 = 1;

/// `PKV_VERSION_PATCH` of `types.h`.
pub const PKV_VERSION_PATCH: i32 = 0;

/// `PKV_VERSION_NUMBER` of `types.h`.
pub const PKV_VERSION_NUMBER: i32 = PKV_VERSION_MAJOR * 10000 + PKV_VERSION_MINOR * 100 + PKV_VERSION_PATCH;

/// `PKV_VERSION_STRING` of `types.h`.
pub const PKV_VERSION_STRING: &str = "0.1.0";

/// What a call came to. Names and numbers never change once released.
pub type pkv_status = i32;

/// Done
pub const PKV_OK: pkv_status = 0;

/// An argument is out of range or contradicts another
pub const PKV_ERR_INVALID: pkv_status = -1;

/// NULL, closed, foreign or stale handle
pub const PKV_ERR_HANDLE: pkv_status = -2;

/// The object's parent was destroyed
pub const PKV_ERR_CLOSED: pkv_status = -3;

/// The handle was made before fork() in the parent process
pub const PKV_ERR_FORKED: pkv_status = -4;

/// The operating system or the allocator gave no memory
pub const PKV_ERR_NO_MEMORY: pkv_status = -5;

/// The pool has too few pages that are free or may be evicted
pub const PKV_ERR_NO_PAGES: pkv_status = -6;

/// A caller's buffer or a tier is too small
pub const PKV_ERR_NO_SPACE: pkv_status = -7;

/// What was named does not exist
pub const PKV_ERR_NOT_FOUND: pkv_status = -8;

/// A block has no page in the pool
pub const PKV_ERR_NOT_RESIDENT: pkv_status = -9;

/// Blocks of a sequence could not be loaded and are gone
pub const PKV_ERR_LOST: pkv_status = -10;

/// The object or page is not in a state that allows this
pub const PKV_ERR_STATE: pkv_status = -11;

/// In use by an operation
pub const PKV_ERR_BUSY: pkv_status = -12;

/// Not now; a later try may succeed
pub const PKV_ERR_AGAIN: pkv_status = -13;

/// A deadline passed
pub const PKV_ERR_TIMEOUT: pkv_status = -14;

/// Cancelled by the caller
pub const PKV_ERR_CANCELLED: pkv_status = -15;

/// Not supported by this build, machine or object
pub const PKV_ERR_UNSUPPORTED: pkv_status = -16;

/// Geometry, identity or seed differs
pub const PKV_ERR_MISMATCH: pkv_status = -17;

/// Input or output failed
pub const PKV_ERR_IO: pkv_status = -18;

/// Larger than a documented limit
pub const PKV_ERR_LIMIT: pkv_status = -19;

/// Not possible while a stream is being captured
pub const PKV_ERR_CAPTURE: pkv_status = -20;

/// A fault of the library itself: please report it
pub const PKV_ERR_INTERNAL: pkv_status = -21;

/// Something failed that no call reports
pub const PKV_LOG_ERROR: i32 = 1;

/// The library goes on, but degraded (for example without huge pages)
pub const PKV_LOG_WARNING: i32 = 2;

/// What was chosen at creation
pub const PKV_LOG_INFO: i32 = 3;

/// Receives one message; `message` is valid during the call only. Called on the thread that is inside the
/// library, with no lock held; it must not call back into the library.
pub type pkv_log_function = Option<unsafe extern "C" fn(user: *mut c_void, level: i32, message: *const c_char)>;

/// Pages, prefix index, eviction: pool.h
#[repr(C)]
pub struct pkv_pool {
    _private: [u8; 0],
    _marker: Opaque,
}

/// One sequence: table.h
#[repr(C)]
pub struct pkv_table {
    _private: [u8; 0],
    _marker: Opaque,
}

/// The sequences of one decode step: batch.h
#[repr(C)]
pub struct pkv_batch {
    _private: [u8; 0],
    _marker: Opaque,
}

/// A place below pools that keeps page images: tier.h
#[repr(C)]
pub struct pkv_tier {
    _private: [u8; 0],
    _marker: Opaque,
}

/// One prefetch session: prefetch.h
#[repr(C)]
pub struct pkv_prefetch {
    _private: [u8; 0],
    _marker: Opaque,
}

/// What this process shares with others: node.h
#[repr(C)]
pub struct pkv_node {
    _private: [u8; 0],
    _marker: Opaque,
}

/// A sequence that others may pull: node.h
#[repr(C)]
pub struct pkv_offer {
    _private: [u8; 0],
    _marker: Opaque,
}

/// One asynchronous operation: tier.h
#[repr(C)]
pub struct pkv_op {
    _private: [u8; 0],
    _marker: Opaque,
}

/// Where operations end: tier.h
#[repr(C)]
pub struct pkv_queue {
    _private: [u8; 0],
    _marker: Opaque,
}

/// Page id in a layer group: 0 .. num_pages-1
pub type pkv_page = i32;

/// Token id; any value
pub type pkv_token = i32;

/// Page \* page_tokens + offset in the page; below 0: skip
pub type pkv_slot = i64;

/// A block without a page
pub const PKV_NO_PAGE: pkv_page = -1;

/// Padding in a slot mapping
pub const PKV_NO_SLOT: pkv_slot = -1;

/// A piece of memory of the caller's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_bytes {
    /// `data`.
    pub data: *const c_void,
    /// `size`.
    pub size: u64,
}

/// Now: the bytes are ready, the calling thread does the work
pub const PKV_SYNC_NONE: i32 = 0;

/// In order on a CUDA stream (`handle`); pools on a CUDA device
pub const PKV_SYNC_CUDA_STREAM: i32 = 1;

/// After a CUDA event (`handle`); pools on a CUDA device
pub const PKV_SYNC_CUDA_EVENT: i32 = 2;

/// After the uint64_t at `handle` has reached `value`
pub const PKV_SYNC_HOST_COUNTER: i32 = 3;

/// When a call may touch page bytes, or free pages that work under way may still use. A NULL pointer means
/// `PKV_SYNC_NONE`. With `PKV_SYNC_HOST_COUNTER` on a host pool the call itself waits (it reads the counter
/// with acquire order) and gives `PKV_ERR_TIMEOUT`, with nothing changed, once timeout_ns has passed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_sync {
    /// `struct_size`.
    pub struct_size: usize,
    /// `PKV_SYNC_*`
    pub kind: i32,
    /// 0
    pub reserved: i32,
    /// Stream, event, or address of an 8-byte aligned uint64_t
    pub handle: *mut c_void,
    /// `PKV_SYNC_HOST_COUNTER`: the value to wait for
    pub value: u64,
    /// `PKV_SYNC_HOST_COUNTER`: longest wait; 0 = one second
    pub timeout_ns: u64,
}

/// Initial value of [`pkv_sync`].
pub const PKV_SYNC_INIT: pkv_sync = pkv_sync { struct_size: size_of::<pkv_sync>(), kind: PKV_SYNC_NONE, reserved: 0, handle: ptr::null_mut(), value: 0, timeout_ns: 0 };

/// `PKV_DIGEST_BYTES` of `types.h`.
pub const PKV_DIGEST_BYTES: i32 = 32;

extern "C" {
    /// Version of the library that runs, as `PKV_VERSION_NUMBER`. Any thread. Since 0.1.
    pub fn pkv_version_number() -> i32;

    /// Version of the library that runs, for example "0.1.0"; a static string. Any thread. Since 0.1.
    pub fn pkv_version_string() -> *const c_char;

    /// The name of a status, for example "`PKV_ERR_NO_PAGES`"; "`PKV_ERR_UNKNOWN`" for a number that is none. A
    /// static string. Any thread. Since 0.1.
    pub fn pkv_status_string(status: pkv_status) -> *const c_char;

    /// The message of the last call that failed on this thread; successful calls leave it alone.
    ///
    /// * `buffer`: out, the message, cut to fit and always terminated; may be NULL when capacity is 0
    /// * `capacity`: bytes at buffer
    /// * Returns bytes that the whole message needs, the terminator included: more than capacity means it was cut
    ///
    /// Any thread. Since 0.1.
    pub fn pkv_last_error(buffer: *mut c_char, capacity: usize) -> usize;

    /// Sets the process-wide receiver of messages of `max_level` and below; NULL (as at start) turns messages off.
    /// A message already on its way may still reach the former receiver while this returns. Any thread. Since 0.1.
    pub fn pkv_set_log(function: pkv_log_function, user: *mut c_void, max_level: i32);

    /// BLAKE2b-256 (RFC 7693) of the number of parts and then of each part, preceded by its size (as uint64_t), so
    /// that ("ab", "c") and ("a", "bc") differ. Meant for what goes into a key besides tokens: for an image pass
    /// its decoded bytes and its shape, type and mode as parts of their own.
    ///
    /// * `parts`: `num_parts` pieces; data may be NULL where size is 0
    /// * `num_parts`: number of parts
    /// * `digest`: out, `PKV_DIGEST_BYTES` bytes
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID` on a NULL pointer
    ///
    /// Any thread. Since 0.1.
    pub fn pkv_digest(parts: *const pkv_bytes, num_parts: u64, digest: *mut u8) -> pkv_status;
}
