// SPDX-License-Identifier: Apache-2.0
// Written by generate.py from the headers: not to be edited.
//! Devices: pools whose pages lie in the memory of a GPU (`pkv_pool_options.device`).
//!
//! CUDA sits in a plug-in, libpagedkv-cuda.so, in the folder pagedkv/ beside the library (or `PKV_PLUGIN_DIR`);
//! it is loaded when it is first asked for. The library itself needs no CUDA, and runs where there is none.
//!
//! Order. A call on a device pool that is given a stream (`PKV_SYNC_CUDA_STREAM`) puts its work into that
//! stream and returns; it never waits for the device. Without a sync, with an event or with a host counter the
//! work goes into a stream of the library's, after what the sync names, and the call returns when it is done.
//!
//! What the library orders by itself, whatever streams its callers use:
//!
//! - rows that a commit covers: who reads them later, in another stream, comes after the work that the commit's
//!   sync named; so do copies on write, and images that are stored in tiers
//!
//! - pages that were given back under a sync: in the stream of that sync they can be used again at once; what
//!   is put into another stream, and loads into such a page, come after the work that the sync named
//!
//! - its own copies and loads What callers order: rows that are not committed yet, and kernels of their own,
//!   which the library does not see. Those find what calls have handed out (ids of pages, slots, matched
//!   blocks) ready in the stream that the pool was made with (`pkv_pool_options.in_place`); before kernels in
//!   another stream use it, `pkv_pool_order()` orders that stream. Without such a stream calls that hand out
//!   ids wait, if they have to, until what they hand out is ready for everybody.
//!
//! Graphs. `pkv_pool_write`, `pkv_pool_gather` and their tables' and batches' forms may be captured. Nothing is
//! ordered then: `pkv_pool_order()` before each launch does it. Slots, and pages to gather from, in memory that
//! the device reads are read by the kernels when the graph runs: the counts given are upper bounds, entries
//! below 0 are padding, and entries past the pool's end are skipped (a gather gives rows of zeros for them).
//! Other calls give `PKV_ERR_CAPTURE`, and change nothing.
//!
//! Tiers. Page images pass through memory of the host that the device reads (`pkv_pool_options.staging_bytes`
//! of it), in streams of the library's own: those of pages that a device still writes are stored once it has,
//! and no call waits for that but spills and stores by key. Whether copies or a kernel
//! (`pkv_pool_options.transfer_blocks`) move pages faster is found out with a few transfers of a page when a
//! process makes its first pool with such pages on a device; later ones know. The memory of host tiers is made
//! readable for the device when a pool is made, which takes all of it from the system at once; where that is
//! refused the log says so, and their images pass through the memory above.
//!
//! Prefetch sessions. `pkv_prefetch_layer_acquire` with a stream does not wait for loads: the stream does, see
//! there. With CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment, where all streams share a queue of the device,
//! the call waits in its place.
//!
//! Streams of the library's own have the greatest priority, so that none of them queues behind a stream of the
//! program's that waits for it. A program's streams of that priority should be no more than the device has
//! queues for them.
//!
//! A stream has to exist until what was put into it by calls is committed, or its pages were given back. Aux
//! bytes are host memory in every pool.

#[allow(unused_imports)]
use super::*;

/// Memory of the host
pub const PKV_DEVICE_HOST: i32 = 0;

/// Memory of a GPU, by CUDA
pub const PKV_DEVICE_CUDA: i32 = 1;

extern "C" {
    /// Whether pools can be made on a device. Loads the plug-in, but does not begin to use the device.
    ///
    /// * `kind`: `PKV_DEVICE_*`
    /// * `index`: 0 .. ; of CUDA, as CUDA numbers them (CUDA_VISIBLE_DEVICES included)
    /// * Returns `PKV_OK`; `PKV_ERR_UNSUPPORTED` with the reason in `pkv_last_error()`: no plug-in, a plug-in of
    ///   another version, no driver, no such device, a device that is too old; `PKV_ERR_INVALID`
    ///
    /// Any thread. Since 0.1.
    pub fn pkv_device_available(kind: i32, index: i32) -> pkv_status;
}
