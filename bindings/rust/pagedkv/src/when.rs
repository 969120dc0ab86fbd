// SPDX-License-Identifier: Apache-2.0
//! Order against work elsewhere.

use crate::text::nanoseconds;
use pagedkv_sys as sys;
use std::{fmt, marker::PhantomData, os::raw::c_void, ptr, sync::atomic::AtomicU64, time::Duration};

/// When a call may touch page bytes, or free pages that work under way may still use: [`NOW`], or after that work.
#[derive(Clone, Copy)]
pub struct When<'a> {
    raw: sys::pkv_sync,
    borrowed: PhantomData<&'a AtomicU64>,
}

/// At once: the bytes are ready, and the calling thread does the work.
pub const NOW: When<'static> = When { raw: sys::PKV_SYNC_INIT, borrowed: PhantomData };

// What it points to is an atomic, or known to a device by its name alone.
unsafe impl Send for When<'_> {}
unsafe impl Sync for When<'_> {}

impl<'a> When<'a> {
    /// After a counter has reached a value. The call itself waits, and gives `Status::Timeout`, with nothing changed, once
    /// `timeout` has passed; zero is one second.
    pub fn counter(counter: &'a AtomicU64, value: u64, timeout: Duration) -> Self {
        let mut raw = sys::PKV_SYNC_INIT;
        raw.kind = sys::PKV_SYNC_HOST_COUNTER;
        raw.handle = counter as *const AtomicU64 as *mut c_void;
        raw.value = value;
        raw.timeout_ns = nanoseconds(timeout);
        Self { raw, borrowed: PhantomData }
    }

    /// In order on a CUDA stream; for pools on a CUDA device. The call puts its work into the stream and returns.
    ///
    /// # Safety
    /// `stream` must be a stream of the CUDA runtime or driver that lives until what calls put into it is committed, or its pages were
    /// given back. Rows, slots and ids of pages that are passed with it must stay, and rows not be changed, until the stream has done
    /// the work.
    pub unsafe fn cuda_stream(stream: *mut c_void) -> When<'static> {
        let mut raw = sys::PKV_SYNC_INIT;
        raw.kind = sys::PKV_SYNC_CUDA_STREAM;
        raw.handle = stream;
        When { raw, borrowed: PhantomData }
    }

    /// After a CUDA event; for pools on a CUDA device.
    ///
    /// # Safety
    /// `event` must be an event of the CUDA runtime or driver that lives until the call returns.
    pub unsafe fn cuda_event(event: *mut c_void) -> When<'static> {
        let mut raw = sys::PKV_SYNC_INIT;
        raw.kind = sys::PKV_SYNC_CUDA_EVENT;
        raw.handle = event;
        When { raw, borrowed: PhantomData }
    }

    pub(crate) fn raw(&self) -> *const sys::pkv_sync {
        if self.raw.kind == sys::PKV_SYNC_NONE {
            ptr::null()
        } else {
            &self.raw
        }
    }
}

impl Default for When<'_> {
    fn default() -> Self {
        NOW
    }
}

impl fmt::Debug for When<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.raw.kind {
            sys::PKV_SYNC_NONE => f.write_str("NOW"),
            sys::PKV_SYNC_HOST_COUNTER => write!(f, "When::counter({:?}, {})", self.raw.handle, self.raw.value),
            sys::PKV_SYNC_CUDA_STREAM => write!(f, "When::cuda_stream({:?})", self.raw.handle),
            _ => write!(f, "When::cuda_event({:?})", self.raw.handle),
        }
    }
}
