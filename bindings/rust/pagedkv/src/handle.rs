// SPDX-License-Identifier: Apache-2.0
//! Handles of the library. Each is a value that the library checks; nothing here ever reads through one.

use crate::codes::Status;
use crate::error::{check, Error, Failed, Result};
use pagedkv_sys as sys;
use std::{fmt, ptr};

pub(crate) struct Handle<T>(*mut T);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

// A handle is a number.
unsafe impl<T> Send for Handle<T> {}
unsafe impl<T> Sync for Handle<T> {}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0 as usize)
    }
}

impl<T> Handle<T> {
    /// Takes what a function of the library that makes an object has written.
    pub(crate) fn made(make: impl FnOnce(*mut *mut T) -> sys::pkv_status) -> Result<Self> {
        let mut raw = ptr::null_mut();
        check(make(&mut raw))?;
        if raw.is_null() {
            return Err(Error::new(Status::Internal, "the library gave no handle"));
        }
        Ok(Self(raw))
    }

    pub(crate) fn of(raw: *mut T) -> Self {
        Self(raw)
    }

    /// Closes an object that `at` finds the handle in; what cannot be closed is handed back.
    pub(crate) fn close<O>(
        self, mut object: O, close: impl FnOnce(*mut T) -> sys::pkv_status, at: impl FnOnce(&mut O) -> &mut Self,
    ) -> std::result::Result<(), Failed<O>> {
        match check(close(self.0)) {
            Ok(()) => {
                at(&mut object).0 = ptr::null_mut();
                Ok(())
            }
            Err(error) => Err(Failed { error, value: object }),
        }
    }

    /// Gives it up: the object that had it does not close it.
    pub(crate) fn take(&mut self) -> *mut T {
        std::mem::replace(&mut self.0, ptr::null_mut())
    }

    /// Whether `close` has closed it, or `take` has taken it.
    pub(crate) fn is_closed(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn raw(self) -> *mut T {
        self.0
    }
}
