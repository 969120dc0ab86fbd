// SPDX-License-Identifier: Apache-2.0
// Written by generate.py from the headers: not to be edited.
//! Element types, layouts, and the view through which rows of K and V enter and leave the pages.
//!
//! A row is what one head holds for one token: head_dim elements next to each other (or row_bytes bytes of an
//! opaque type). Everything above a row has a stride, so sources and destinations need not be contiguous.

#[allow(unused_imports)]
use super::*;

/// Element types.
pub const PKV_DTYPE_F32: i32 = 1;

/// Element types.
pub const PKV_DTYPE_F16: i32 = 2;

/// Element types.
pub const PKV_DTYPE_BF16: i32 = 3;

/// OCP E4M3 (finite range ±448, NaN 0x7f/0xff, no infinity)
pub const PKV_DTYPE_F8_E4M3: i32 = 4;

/// OCP E5M2
pub const PKV_DTYPE_F8_E5M2: i32 = 5;

/// Element types.
pub const PKV_DTYPE_I8: i32 = 6;

/// Rows of row_bytes bytes, for example of a block-quantised format
pub const PKV_DTYPE_OPAQUE: i32 = 7;

/// \[page_tokens, heads, head_dim\]
pub const PKV_LAYOUT_NHD: i32 = 0;

/// \[heads, page_tokens, head_dim\]
pub const PKV_LAYOUT_HND: i32 = 1;

/// \[page, layer, K then V, ...\]: a page is contiguous over its layers
pub const PKV_PAGE_MAJOR: i32 = 0;

/// \[layer, page, K then V, ...\]: one tensor a layer
pub const PKV_LAYER_MAJOR: i32 = 1;

/// Distances in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_strides {
    /// `page`.
    pub page: u64,
    /// `token`.
    pub token: u64,
    /// `head`.
    pub head: u64,
}

/// A caller's rows for a range of tokens: element (t, h, d) is at data + t \* token_stride + h \* head_stride +
/// d \* sizeof(element). The number of heads and the row's length come from the layer group.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_tensor {
    /// `struct_size`.
    pub struct_size: usize,
    /// Not written where the call only reads it
    pub data: *mut c_void,
    /// `PKV_DTYPE_*`; the group's, or one that converts to it
    pub dtype: i32,
    /// 0
    pub reserved: i32,
    /// Rows available at data; a call that needs more gives `PKV_ERR_INVALID`
    pub num_tokens: u64,
    /// 0 = heads \* row bytes (contiguous \[tokens, heads, head_dim\])
    pub token_stride: u64,
    /// 0 = row bytes
    pub head_stride: u64,
}

/// Initial value of [`pkv_tensor`].
pub const PKV_TENSOR_INIT: pkv_tensor = pkv_tensor { struct_size: size_of::<pkv_tensor>(), data: ptr::null_mut(), dtype: 0, reserved: 0, num_tokens: 0, token_stride: 0, head_stride: 0 };

extern "C" {
    /// Bytes of one element: 4, 2 or 1; 0 for `PKV_DTYPE_OPAQUE` and for numbers that are no type. Any thread.
    /// Since 0.1.
    pub fn pkv_dtype_bytes(dtype: i32) -> u64;

    /// Name of the host kernels that this process runs: "avx512", "avx2", "neon" or "portable"; a static string.
    /// The environment variable `PKV_CPU_KERNELS`, read once, forces one of them where the machine can run it. Any
    /// thread. Since 0.1.
    pub fn pkv_cpu_kernels() -> *const c_char;
}
