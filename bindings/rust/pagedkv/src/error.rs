// SPDX-License-Identifier: Apache-2.0
//! Errors: a status of the library, and its message.

use crate::codes::Status;
use pagedkv_sys as sys;
use std::{ffi::CStr, fmt, os::raw::c_char, ptr};

/// Why a call failed: a status, and a message with the values at fault. A call that fails changes nothing unless its own
/// text says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: Status,
    message: String,
}

/// What fallible calls return.
pub type Result<T> = std::result::Result<T, Error>;

/// What became of one item, row or table of several.
pub type Outcome = std::result::Result<(), Status>;

impl Error {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// What a program decides by.
    pub fn status(&self) -> Status {
        self.status
    }

    /// What a person reads.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.as_str() {
            "" => self.status.fmt(f),
            message => write!(f, "{}: {}", self.status, message),
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Status {
    /// The name as in the C API, for example `PKV_ERR_NO_PAGES`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A static string, always.
        f.write_str(&unsafe { CStr::from_ptr(sys::pkv_status_string(self.code())) }.to_string_lossy())
    }
}

impl std::error::Error for Status {}

/// A call that failed, together with what it leaves behind: the object that it could not close, or a result that is filled in
/// all the same. Becomes an [`Error`] where `?` asks for one; the object is dropped then.
pub struct Failed<T> {
    /// Why.
    pub error: Error,
    /// What there is nevertheless.
    pub value: T,
}

impl<T> fmt::Debug for Failed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> fmt::Display for Failed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> std::error::Error for Failed<T> {}

impl<T> From<Failed<T>> for Error {
    fn from(failed: Failed<T>) -> Self {
        failed.error
    }
}

/// The result of a call that has just returned to this thread.
pub(crate) fn check(status: sys::pkv_status) -> Result<()> {
    if status == sys::PKV_OK {
        Ok(())
    } else {
        Err(last_error(status))
    }
}

#[cold]
fn last_error(status: sys::pkv_status) -> Error {
    let size = unsafe { sys::pkv_last_error(ptr::null_mut(), 0) };
    let mut message = vec![0u8; size.max(1)];
    // The message is this thread's: nothing changes it in between.
    unsafe { sys::pkv_last_error(message.as_mut_ptr() as *mut c_char, message.len()) };
    let end = message.iter().position(|&byte| byte == 0).unwrap_or(message.len());
    Error::new(Status::from_code(status), String::from_utf8_lossy(&message[..end]))
}

/// Refuses an argument that cannot be handed to the library.
pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::new(Status::Invalid, message))
}
