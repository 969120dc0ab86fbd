// SPDX-License-Identifier: Apache-2.0
//! Declarations of [libpagedkv](https://github.com/pagedkv/pagedkv), a paged KV cache for LLM inference engines. The crate
//! `pagedkv` is the safe one; this one is the C API as it is, documentation included.
//!
//! Everything is written by a program from the headers of the library, and compared with them when the library is tested:
//! sizes, offsets, values and functions by a C compiler, too.
//!
//! ```
//! # unsafe fn example() {
//! let mut group = pagedkv_sys::PKV_GROUP_OPTIONS_INIT;
//! group.num_pages = 64;
//! // ...
//! # }
//! let version = unsafe { std::ffi::CStr::from_ptr(pagedkv_sys::pkv_version_string()) };
//! assert!(version.to_str().unwrap().starts_with("0.1."));
//! ```
#![allow(non_camel_case_types)]
#![warn(missing_docs)]

#[rustfmt::skip]
mod c;

pub use c::*;
