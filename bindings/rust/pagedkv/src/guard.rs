// SPDX-License-Identifier: Apache-2.0
//! No panic leaves a function that C calls.

use std::{
    mem,
    panic::{catch_unwind, AssertUnwindSafe},
};

/// What a function of the program gives, or nothing if it panics. Rust's own message has been printed by then, as everywhere.
pub(crate) fn guard<R>(function: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(result) => Some(result),
        Err(payload) => {
            // Dropping what was thrown may throw, too.
            if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                mem::forget(again);
            }
            None
        }
    }
}
