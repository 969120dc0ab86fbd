// SPDX-License-Identifier: Apache-2.0
//! Where the rows of a layer lie.

use crate::codes::DType;
use crate::{Page, Strides};
use pagedkv_sys as sys;
use std::slice;

/// Where a layer's rows lie: the K row of (page, token offset, head) is at
/// `k_base + page * k.page + offset * k.token + head * k.head`, in 64-bit arithmetic, and V the same. Valid as long as the pool
/// or one of its tables lives; that of a view as long as its step, with slices in place of pages.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LayerLayout {
    /// NULL for `Memory::None`
    pub k_base: *mut u8,
    /// NULL without V
    pub v_base: *mut u8,
    /// Strides of K
    pub k: Strides,
    /// Strides of V
    pub v: Strides,
    /// Bytes of a K row
    pub k_row_bytes: u64,
    /// 0 without V
    pub v_row_bytes: u64,
    /// KV heads held here
    pub num_kv_heads: u32,
    /// Tokens of a page
    pub page_tokens: u32,
    /// Type of the elements
    pub dtype: DType,
    /// `PKV_SCALES_*` of the C API
    pub scales: i32,
    /// Tensor: one; head: `[heads]`; token and head: `[page, token, head]`, pages `scale_page_stride` bytes apart
    pub k_scales: *mut f32,
    /// NULL without V
    pub v_scales: *mut f32,
    /// Bytes; scales of token and head only, else 0
    pub scale_page_stride: u64,
}

// Addresses and numbers. Reading and writing there is unsafe.
unsafe impl Send for LayerLayout {}
unsafe impl Sync for LayerLayout {}

impl LayerLayout {
    pub(crate) fn of(raw: &sys::pkv_layer_layout) -> Self {
        Self {
            k_base: raw.k_base as *mut u8,
            v_base: raw.v_base as *mut u8,
            k: raw.k.into(),
            v: raw.v.into(),
            k_row_bytes: raw.k_row_bytes,
            v_row_bytes: raw.v_row_bytes,
            num_kv_heads: raw.num_kv_heads,
            page_tokens: raw.page_tokens,
            dtype: DType::from_code(raw.dtype),
            scales: raw.scales,
            k_scales: raw.k_scales,
            v_scales: raw.v_scales,
            scale_page_stride: raw.scale_page_stride,
        }
    }

    /// Address of a K row.
    pub fn k_address(&self, page: Page, offset: u32, head: u32) -> *mut u8 {
        Self::address(self.k_base, &self.k, page, offset, head)
    }

    /// Address of a V row.
    pub fn v_address(&self, page: Page, offset: u32, head: u32) -> *mut u8 {
        Self::address(self.v_base, &self.v, page, offset, head)
    }

    fn address(base: *mut u8, strides: &Strides, page: Page, offset: u32, head: u32) -> *mut u8 {
        let distance = (page as u64)
            .wrapping_mul(strides.page)
            .wrapping_add(u64::from(offset).wrapping_mul(strides.token))
            .wrapping_add(u64::from(head).wrapping_mul(strides.head));
        base.wrapping_add(distance as usize)
    }

    /// The bytes of a K row, in place.
    ///
    /// # Safety
    /// `page` must be one of the group (of a view: one of its slices, and not below 0), `offset` below `page_tokens`, `head`
    /// below `num_kv_heads`; the layout must be valid for `'a`, and nobody may write the row for so long.
    pub unsafe fn k_row<'a>(&self, page: Page, offset: u32, head: u32) -> &'a [u8] {
        slice::from_raw_parts(self.k_address(page, offset, head), self.k_row_bytes as usize)
    }

    /// The bytes of a V row, in place.
    ///
    /// # Safety
    /// As [`LayerLayout::k_row`], of a group that has V.
    pub unsafe fn v_row<'a>(&self, page: Page, offset: u32, head: u32) -> &'a [u8] {
        slice::from_raw_parts(self.v_address(page, offset, head), self.v_row_bytes as usize)
    }
}
