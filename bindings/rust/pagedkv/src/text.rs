// SPDX-License-Identifier: Apache-2.0
//! Small conversions between Rust's values and C's.

use crate::codes::Status;
use crate::error::{invalid, Outcome, Result};
use pagedkv_sys as sys;
use std::{
    ffi::CString,
    os::raw::{c_char, c_void},
    ptr,
    time::Duration,
};

/// A terminated string in a fixed array.
pub(crate) fn text(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn ended(status: sys::pkv_status) -> Outcome {
    match status {
        sys::PKV_OK => Ok(()),
        other => Err(Status::from_code(other)),
    }
}

pub(crate) fn c_string(value: impl Into<Vec<u8>>, name: &str) -> Result<CString> {
    match CString::new(value) {
        Ok(string) => Ok(string),
        Err(error) => invalid(format!("{} has a zero byte at {}", name, error.nul_position())),
    }
}

pub(crate) fn c_string_or_null(string: &Option<CString>) -> *const c_char {
    string.as_ref().map_or(ptr::null(), |string| string.as_ptr())
}

/// What is too long for 64 bits is for ever.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn bytes(slice: &[u8]) -> sys::pkv_bytes {
    sys::pkv_bytes {
        data: if slice.is_empty() { ptr::null() } else { slice.as_ptr() as *const c_void },
        size: slice.len() as u64,
    }
}

/// The address of a slice; NULL for an empty one, whose address would not be one.
pub(crate) fn address<T>(slice: &[T]) -> *const T {
    if slice.is_empty() {
        ptr::null()
    } else {
        slice.as_ptr()
    }
}

pub(crate) fn address_mut<T>(slice: &mut [T]) -> *mut T {
    if slice.is_empty() {
        ptr::null_mut()
    } else {
        slice.as_mut_ptr()
    }
}

/// A count that C takes as 32 bits.
pub(crate) fn count32(count: usize, name: &str) -> Result<u32> {
    match u32::try_from(count) {
        Ok(count) => Ok(count),
        Err(_) => invalid(format!("{} {}", count, name)),
    }
}

/// The number of things in a range; one that ends at u64::MAX has no end.
pub(crate) fn span(range: &std::ops::Range<u64>, name: &str) -> Result<u64> {
    if range.end == u64::MAX {
        return Ok(u64::MAX);
    }
    match range.end.checked_sub(range.start) {
        Some(count) => Ok(count),
        None => invalid(format!("{} {}..{} ends before it begins", name, range.start, range.end)),
    }
}
