// SPDX-License-Identifier: Apache-2.0
//! Views of a caller's rows of K or V.

use crate::codes::DType;
use pagedkv_sys as sys;
use std::{fmt, marker::PhantomData, mem::size_of_val, os::raw::c_void};

/// An element of rows.
///
/// # Safety
/// The type must have the size and the bits of `DTYPE`, and every pattern of bits must be a value of it.
pub unsafe trait Element: Copy + 'static {
    /// What it is to the library.
    const DTYPE: DType;
}

macro_rules! bits {
    ($(#[$doc:meta])* $name:ident($bits:ty) = $dtype:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $bits);

        unsafe impl Element for $name {
            const DTYPE: DType = $dtype;
        }
    };
}

bits!(/// The bits of an IEEE half.
    F16(u16) = DType::F16);
bits!(/// The bits of a bfloat16.
    Bf16(u16) = DType::Bf16);
bits!(/// The bits of an OCP E4M3 number.
    F8E4M3(u8) = DType::F8E4M3);
bits!(/// The bits of an OCP E5M2 number.
    F8E5M2(u8) = DType::F8E5M2);

unsafe impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
unsafe impl Element for i8 {
    const DTYPE: DType = DType::I8;
}

/// What the library knows of the rows of one layer group: shapes of rows follow from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupShape {
    pub heads: u64,
    pub k_row_bytes: u64,
    /// 0 without V.
    pub v_row_bytes: u64,
    pub dtype: DType,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Side {
    K,
    V,
}

#[derive(Clone, Copy)]
struct Strided {
    data: *mut c_void,
    bytes: u64,
    dtype: DType,
    num_tokens: u64,
    token_stride: u64,
    head_stride: u64,
}

impl Strided {
    fn new(data: *mut c_void, bytes: usize, dtype: DType) -> Self {
        Self { data, bytes: bytes as u64, dtype, num_tokens: u64::MAX, token_stride: 0, head_stride: 0 }
    }

    /// Says how many tokens the memory holds, so that the library refuses what would reach past its end.
    fn raw(&self, shape: Option<&GroupShape>, side: Side) -> sys::pkv_tensor {
        let mut raw = sys::PKV_TENSOR_INIT;
        raw.data = self.data;
        raw.dtype = self.dtype.code();
        if let Some(shape) = shape {
            let row = self.row_bytes(shape, side);
            raw.head_stride = if self.head_stride != 0 { self.head_stride } else { row };
            raw.token_stride = if self.token_stride != 0 { self.token_stride } else { shape.heads.saturating_mul(row) };
            // From the first byte of a token to behind its last.
            let span = (shape.heads - 1).checked_mul(raw.head_stride).and_then(|heads| heads.checked_add(row));
            raw.num_tokens = match span {
                Some(span) if span <= self.bytes => {
                    self.num_tokens.min(1 + (self.bytes - span) / raw.token_stride.max(1))
                }
                _ => 0,
            };
        }
        raw
    }

    /// Of this view's own type, which may be another one than the group's.
    fn row_bytes(&self, shape: &GroupShape, side: Side) -> u64 {
        let row = if side == Side::K { shape.k_row_bytes } else { shape.v_row_bytes };
        match (shape.dtype.bytes(), self.dtype.bytes()) {
            (0, _) | (_, 0) => row, // what does not convert is refused by the library
            (theirs, ours) => row / theirs * ours,
        }
    }
}

/// Rows to be read: element (t, h, d) is at byte `t * token_stride + h * head_stride + d * size of an element`, where the number
/// of heads and the row's length come from the layer group. Without strides they lie next to each other,
/// `[tokens, heads, head_dim]`.
///
/// ```
/// # use pagedkv::Rows;
/// let k = vec![0.0f32; 40 * 8 * 128]; // 40 tokens, 8 heads of 128
/// let rows = Rows::of(&k);
/// ```
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    inner: Strided,
    borrowed: PhantomData<&'a [u8]>,
}

/// Rows to be written, as [`Rows`].
pub struct RowsMut<'a> {
    inner: Strided,
    borrowed: PhantomData<&'a mut [u8]>,
}

// Borrows of plain numbers.
unsafe impl Send for Rows<'_> {}
unsafe impl Sync for Rows<'_> {}
unsafe impl Send for RowsMut<'_> {}
unsafe impl Sync for RowsMut<'_> {}

impl<'a> Rows<'a> {
    /// Rows in memory that no slice describes: that of a device.
    ///
    /// # Safety
    /// So many bytes at `address` must be there for `'a`, and, in the memory of a device, until work that calls have put into streams
    /// is done; nobody may write them meanwhile.
    pub unsafe fn at(dtype: DType, address: *const c_void, bytes: usize) -> Self {
        Self { inner: Strided::new(address as *mut c_void, bytes, dtype), borrowed: PhantomData }
    }

    /// Rows of a type of elements.
    pub fn of<T: Element>(elements: &'a [T]) -> Self {
        let inner = Strided::new(elements.as_ptr() as *mut c_void, size_of_val(elements), T::DTYPE);
        Self { inner, borrowed: PhantomData }
    }

    /// Rows of any type, as bytes.
    pub fn of_bytes(dtype: DType, bytes: &'a [u8]) -> Self {
        Self { inner: Strided::new(bytes.as_ptr() as *mut c_void, bytes.len(), dtype), borrowed: PhantomData }
    }

    /// Distances in bytes from token to token and from head to head; 0 = next to each other.
    pub fn strides(mut self, token_stride: u64, head_stride: u64) -> Self {
        self.inner.token_stride = token_stride;
        self.inner.head_stride = head_stride;
        self
    }

    /// No more than so many tokens, although there may be memory for more.
    pub fn tokens(mut self, num_tokens: u64) -> Self {
        self.inner.num_tokens = num_tokens;
        self
    }

    pub(crate) fn raw(&self, shape: Option<&GroupShape>, side: Side) -> sys::pkv_tensor {
        self.inner.raw(shape, side)
    }
}

impl<'a> RowsMut<'a> {
    /// Rows in memory that no slice describes: that of a device.
    ///
    /// # Safety
    /// As [`Rows::at`], and nobody may read them meanwhile either.
    pub unsafe fn at(dtype: DType, address: *mut c_void, bytes: usize) -> Self {
        Self { inner: Strided::new(address, bytes, dtype), borrowed: PhantomData }
    }

    /// Rows of a type of elements.
    pub fn of<T: Element>(elements: &'a mut [T]) -> Self {
        let inner = Strided::new(elements.as_mut_ptr() as *mut c_void, size_of_val(elements), T::DTYPE);
        Self { inner, borrowed: PhantomData }
    }

    /// Rows of any type, as bytes.
    pub fn of_bytes(dtype: DType, bytes: &'a mut [u8]) -> Self {
        Self { inner: Strided::new(bytes.as_mut_ptr() as *mut c_void, bytes.len(), dtype), borrowed: PhantomData }
    }

    /// Distances in bytes from token to token and from head to head; 0 = next to each other.
    pub fn strides(mut self, token_stride: u64, head_stride: u64) -> Self {
        self.inner.token_stride = token_stride;
        self.inner.head_stride = head_stride;
        self
    }

    /// No more than so many tokens, although there may be memory for more.
    pub fn tokens(mut self, num_tokens: u64) -> Self {
        self.inner.num_tokens = num_tokens;
        self
    }

    pub(crate) fn raw(&self, shape: Option<&GroupShape>, side: Side) -> sys::pkv_tensor {
        self.inner.raw(shape, side)
    }
}

impl fmt::Debug for Rows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rows({:?}, {} bytes)", self.inner.dtype, self.inner.bytes)
    }
}

impl fmt::Debug for RowsMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowsMut({:?}, {} bytes)", self.inner.dtype, self.inner.bytes)
    }
}

impl DType {
    /// Bytes of one element: 4, 2 or 1; 0 for `DType::Opaque` and for numbers that are no type.
    pub fn bytes(self) -> u64 {
        unsafe { sys::pkv_dtype_bytes(self.code()) }
    }
}

/// K and V of a call, as C takes them.
pub(crate) struct Sides {
    pub k: Option<sys::pkv_tensor>,
    pub v: Option<sys::pkv_tensor>,
}

impl Sides {
    pub(crate) fn read(shape: Option<&GroupShape>, k: Rows<'_>, v: Option<Rows<'_>>) -> Self {
        Self { k: Some(k.raw(shape, Side::K)), v: v.map(|v| v.raw(shape, Side::V)) }
    }

    pub(crate) fn write(shape: Option<&GroupShape>, k: &Option<RowsMut<'_>>, v: &Option<RowsMut<'_>>) -> Self {
        Self { k: k.as_ref().map(|k| k.raw(shape, Side::K)), v: v.as_ref().map(|v| v.raw(shape, Side::V)) }
    }

    pub(crate) fn k(&self) -> *const sys::pkv_tensor {
        self.k.as_ref().map_or(std::ptr::null(), |k| k)
    }

    pub(crate) fn v(&self) -> *const sys::pkv_tensor {
        self.v.as_ref().map_or(std::ptr::null(), |v| v)
    }
}
