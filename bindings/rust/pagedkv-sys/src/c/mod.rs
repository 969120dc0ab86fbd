// SPDX-License-Identifier: Apache-2.0
// Written by generate.py from the headers: not to be edited.
//! A module for each header; everything is also in the crate's root.

#[allow(unused_imports)]
use std::{
    mem::size_of,
    os::raw::{c_char, c_void},
    ptr,
};

/// What makes a type one of unknown size and use.
type Opaque = std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>;

pub mod batch;
pub mod device;
pub mod node;
pub mod pool;
pub mod prefetch;
pub mod stats;
pub mod table;
pub mod tensor;
pub mod tier;
pub mod tier_ops;
pub mod types;

pub use batch::*;
pub use device::*;
pub use node::*;
pub use pool::*;
pub use prefetch::*;
pub use stats::*;
pub use table::*;
pub use tensor::*;
pub use tier::*;
pub use tier_ops::*;
pub use types::*;
