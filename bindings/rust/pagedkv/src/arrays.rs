// SPDX-License-Identifier: Apache-2.0
//! Arrays that the library writes for as long as an object lives.

use crate::codes::Status;
use crate::error::{Error, Result};
use std::{fmt, marker::PhantomData, ptr, ptr::NonNull, slice};

/// Memory of the caller's for an array that the library fills, for example one that a device sees, too.
#[derive(Clone, Copy)]
pub struct Place<T> {
    at: NonNull<T>,
    own: PhantomData<*mut T>,
}

// An address; `new` says what has to hold of it.
unsafe impl<T: Send> Send for Place<T> {}
unsafe impl<T: Sync> Sync for Place<T> {}

impl<T> Place<T> {
    /// An address.
    ///
    /// # Safety
    /// There must be as many elements as the documentation of the array says, writable by the host, for as long as the object
    /// lives that is made with it, and nothing else may write them.
    pub unsafe fn new(at: NonNull<T>) -> Self {
        Self { at, own: PhantomData }
    }

    pub(crate) fn as_ptr(&self) -> *mut T {
        self.at.as_ptr()
    }
}

impl<T> fmt::Debug for Place<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({:?})", self.at)
    }
}

/// Where an array is, if it is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub enum Array<T> {
    /// It is not wanted
    #[default]
    None,
    /// In memory that the object has
    Own,
    /// In memory of the caller's
    At(Place<T>),
}

/// An array as the library has its address. It is written in calls that have the object for themselves, and read through slices
/// that borrow it.
#[derive(Debug)]
pub(crate) enum Storage<T> {
    None,
    Own { at: NonNull<T>, len: usize },
    At(Place<T>),
}

unsafe impl<T: Send> Send for Storage<T> {}
unsafe impl<T: Sync> Sync for Storage<T> {}

impl<T: Copy + 'static> Storage<T> {
    /// `len` may be too large for a number: None.
    pub(crate) fn new(array: &Array<T>, zero: T, len: Option<u64>, name: &str) -> Result<Self> {
        match array {
            Array::None => Ok(Self::None),
            Array::At(place) => Ok(Self::At(*place)),
            Array::Own => {
                let mut list = Vec::new();
                match len.and_then(|len| usize::try_from(len).ok()) {
                    Some(len) if list.try_reserve_exact(len).is_ok() => list.resize(len, zero),
                    _ => {
                        return Err(Error::new(
                            Status::NoMemory,
                            format!("no memory for {:?} entries of {}", len, name),
                        ))
                    }
                }
                let list: &'static mut [T] = Box::leak(list.into_boxed_slice());
                Ok(Self::Own { len: list.len(), at: NonNull::from(list).cast() })
            }
        }
    }

    pub(crate) fn as_ptr(&self) -> *mut T {
        match self {
            Self::None => ptr::null_mut(),
            Self::Own { at, .. } => at.as_ptr(),
            Self::At(place) => place.as_ptr(),
        }
    }

    /// None for memory of the caller's, too.
    pub(crate) fn slice(&self) -> Option<&[T]> {
        match self {
            Self::Own { at, len } => Some(unsafe { slice::from_raw_parts(at.as_ptr(), *len) }),
            _ => None,
        }
    }
}

impl<T> Drop for Storage<T> {
    fn drop(&mut self) {
        if let Self::Own { at, len } = self {
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(at.as_ptr(), *len)) });
        }
    }
}
