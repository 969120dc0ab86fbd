// SPDX-License-Identifier: Apache-2.0
//! File tiers.

use crate::codes::{Fault, IoEngine};
use crate::error::Result;
use crate::guard::guard;
use crate::text::{bytes, c_string, nanoseconds};
use pagedkv_sys as sys;
use std::{
    fmt, marker::PhantomData, mem, os::raw::c_void, os::unix::ffi::OsStrExt, path::PathBuf, slice, time::Duration,
};

/// One read or write of a file tier that has ended, before the tier looks at it. For tests.
#[derive(Debug)]
pub struct FileEvent<'e> {
    raw: &'e mut sys::pkv_file_event,
    borrowed: PhantomData<&'e mut [u8]>,
}

impl FileEvent<'_> {
    /// Whether it was a write.
    pub fn is_write(&self) -> bool {
        self.raw.write != 0
    }

    /// Where in the file.
    pub fn offset(&self) -> u64 {
        self.raw.offset
    }

    /// Bytes asked for.
    pub fn size(&self) -> u64 {
        self.raw.size
    }

    /// Bytes done, or -errno.
    pub fn result(&self) -> i64 {
        self.raw.result
    }

    /// Makes the tier believe in another result.
    pub fn set_result(&mut self, result: i64) {
        self.raw.result = result;
    }

    /// The bytes that were read, which the hook may change; none of a write or of a read that failed.
    pub fn data(&mut self) -> &mut [u8] {
        if self.is_write() || self.raw.result <= 0 || self.raw.data.is_null() {
            return &mut [];
        }
        let done = (self.raw.result as u64).min(self.raw.size) as usize;
        unsafe { slice::from_raw_parts_mut(self.raw.data as *mut u8, done) }
    }
}

/// Called for each read and write that has ended. For tests of error paths.
#[derive(Clone, Copy)]
pub struct FaultHook(pub fn(&mut FileEvent<'_>) -> Fault);

impl fmt::Debug for FaultHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultHook")
    }
}

/// What a file tier is made of.
#[derive(Clone, Debug, Default)]
pub struct FileTierOptions {
    /// The file; made with mode 0600 if it is not there; its folder must be
    pub path: PathBuf,
    /// Room for page images; the file is preallocated. An existing file keeps its size: another one gives `Status::Mismatch`; 0 =
    /// the file's
    pub capacity_bytes: u64,
    /// Images it can hold at most; 0 = one for each 64 KiB of capacity: name it where images are smaller
    /// ([`PoolStats::image_bytes`](crate::PoolStats::image_bytes)). Each takes 128 bytes of the file besides. Fixed when the file
    /// is made
    pub max_images: u64,
    /// What the images belong to, up to 4096 bytes, kept as a digest: a file made with another one gives `Status::Mismatch`. Keys
    /// keep models apart in any case
    pub identity: Vec<u8>,
    /// How it reads and writes
    pub engine: IoEngine,
    /// Reads and writes under way at once: 1 .. 1024; 0 = 64
    pub depth: u32,
    /// `IoEngine::Threads`: 1 .. 64; 0 = 4
    pub threads: u32,
    /// Begin empty: what is in the file is forgotten, also when it is no file of ours or does not match
    pub reset: bool,
    /// Through the page cache. Without it O_DIRECT is used where the file system has it
    pub buffered: bool,
    /// How long to wait for another process to let go of the file; zero = 5 seconds
    pub lock_timeout: Duration,
    /// For tests of error paths
    pub fault: Option<FaultHook>,
}

impl FileTierOptions {
    pub(crate) fn with_raw<T>(&self, call: impl FnOnce(&sys::pkv_file_tier_options) -> Result<T>) -> Result<T> {
        let path = c_string(self.path.as_os_str().as_bytes(), "path")?;
        let mut raw = sys::PKV_FILE_TIER_OPTIONS_INIT;
        raw.path = path.as_ptr();
        raw.capacity_bytes = self.capacity_bytes;
        raw.max_images = self.max_images;
        raw.identity = bytes(&self.identity);
        raw.engine = self.engine.code();
        raw.depth = self.depth;
        raw.threads = self.threads;
        raw.flags |= if self.reset { sys::PKV_FILE_RESET } else { 0 };
        raw.flags |= if self.buffered { sys::PKV_FILE_BUFFERED } else { 0 };
        raw.lock_timeout_ns = nanoseconds(self.lock_timeout);
        if let Some(hook) = self.fault {
            raw.fault = Some(on_event);
            raw.fault_user = hook.0 as *mut c_void;
        }
        call(&raw)
    }
}

unsafe extern "C" fn on_event(user: *mut c_void, event: *mut sys::pkv_file_event) -> i32 {
    // A function of the program, so that it lives as long as anything does.
    let hook = mem::transmute::<*mut c_void, fn(&mut FileEvent<'_>) -> Fault>(user);
    let event = &mut *event;
    guard(|| hook(&mut FileEvent { raw: event, borrowed: PhantomData }).code()).unwrap_or(sys::PKV_FAULT_NONE)
}
