// SPDX-License-Identifier: Apache-2.0
//! Devices: pools whose pages lie in the memory of a GPU.

use crate::error::{check, Result};
use pagedkv_sys as sys;
use std::os::raw::c_void;

/// Where the pages of a pool lie.
///
/// Rows of a pool on a GPU are there, too ([`Rows::at`](crate::Rows::at)), and calls that are given a stream
/// ([`When::cuda_stream`](crate::When::cuda_stream)) put their work into it and return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// Memory of the host
    #[default]
    Host,
    /// Memory of a GPU, as CUDA numbers them
    Cuda(i32),
}

impl Device {
    /// Whether pools can be made there. Loads the plug-in, but does not begin to use the device.
    ///
    /// Fails with `Status::Unsupported` and the reason: no plug-in, no driver, no such device, one that is too old.
    pub fn available(self) -> Result<()> {
        let (kind, index) = self.raw();
        check(unsafe { sys::pkv_device_available(kind, index) })
    }

    pub(crate) fn raw(self) -> (i32, i32) {
        match self {
            Self::Host => (sys::PKV_DEVICE_HOST, 0),
            Self::Cuda(index) => (sys::PKV_DEVICE_CUDA, index),
        }
    }
}

/// The stream in which kernels of the caller's own use the pages of a pool.
#[derive(Clone, Copy, Debug)]
pub struct InPlace {
    stream: *mut c_void,
}

// A name that CUDA knows.
unsafe impl Send for InPlace {}
unsafe impl Sync for InPlace {}

impl InPlace {
    /// * `stream`: what calls without a stream of their own hand out, and copy, is ready there, and the calls do not wait for it
    ///
    /// # Safety
    /// `stream` must be a stream of the CUDA runtime or driver that lives as long as the pool and its tables.
    pub unsafe fn cuda_stream(stream: *mut c_void) -> Self {
        Self { stream }
    }

    pub(crate) fn raw(&self) -> sys::pkv_sync {
        let mut raw = sys::PKV_SYNC_INIT;
        raw.kind = sys::PKV_SYNC_CUDA_STREAM;
        raw.handle = self.stream;
        raw
    }
}
