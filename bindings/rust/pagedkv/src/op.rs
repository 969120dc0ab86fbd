// SPDX-License-Identifier: Apache-2.0
//! Asynchronous operations, and the queues where they end.

use crate::codes::Status;
use crate::error::{check, Error, Failed, Outcome, Result};
use crate::handle::Handle;
use crate::pool::filled;
use crate::text::{address_mut, ended, nanoseconds};
use crate::OpInfo;
use pagedkv_sys as sys;
use std::{
    collections::HashSet,
    os::unix::io::{AsFd, AsRawFd, BorrowedFd, RawFd},
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How an operation reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpOptions<'q> {
    /// Where its end is queued
    pub queue: Option<&'q Queue>,
    /// Returned with it
    pub user: u64,
    /// After so long it ends with `Status::Timeout` for what is not done; zero = 30 seconds
    pub timeout: Duration,
}

/// One asynchronous operation. Dropping it cancels nothing: an operation under way goes on, unseen.
///
/// Of one that was begun with a queue the queue's [`Completion`] has the handle: this is only a name for it then, good for
/// polling, waiting and cancelling as long as the completion's own [`Op`] was not dropped, and answers `Status::Handle`
/// afterwards.
#[derive(Debug)]
pub struct Op {
    handle: Handle<sys::pkv_op>,
    owned: bool,
}

impl Op {
    pub(crate) fn begin(
        options: &OpOptions<'_>,
        begin: impl FnOnce(*const sys::pkv_op_options, *mut *mut sys::pkv_op) -> sys::pkv_status,
    ) -> Result<Self> {
        let mut raw = sys::PKV_OP_OPTIONS_INIT;
        raw.user = options.user;
        raw.timeout_ns = nanoseconds(options.timeout);
        let queue = match options.queue {
            Some(queue) => queue,
            None => return Ok(Self { handle: Handle::made(|out| begin(&raw, out))?, owned: true }),
        };
        raw.queue = queue.handle.raw();
        // The operation may have ended, and been drained by another thread, before this one knows its handle: who drains
        // waits for the lock.
        let mut open = queue.open();
        let handle = Handle::made(|out| begin(&raw, out))?;
        open.insert(handle.raw() as usize);
        Ok(Self { handle, owned: false })
    }

    /// Takes over a handle, for example one that C code made.
    ///
    /// # Safety
    /// Nobody else closes it, and whoever else uses it keeps to the rules of threads. (A handle that is closed, or NULL, does no harm:
    /// everything but dropping answers `Status::Handle`.)
    pub unsafe fn from_raw(raw: *mut sys::pkv_op) -> Self {
        Self { handle: Handle::of(raw), owned: true }
    }

    /// The handle, which is somebody else's to close from now on.
    pub fn into_raw(mut self) -> *mut sys::pkv_op {
        self.owned = false;
        self.handle.raw()
    }

    /// The C API's handle, for calls that this crate does not have.
    pub fn as_raw(&self) -> *mut sys::pkv_op {
        self.handle.raw()
    }

    /// Closes the handle, also that of an operation whose completion has it. An operation under way goes on, unseen.
    pub fn close(mut self) -> Result<()> {
        self.owned = false;
        check(unsafe { sys::pkv_op_close(self.handle.raw()) })
    }

    /// State of the operation, without waiting.
    pub fn poll(&self) -> Result<OpInfo> {
        let mut info = sys::PKV_OP_INFO_INIT;
        check(unsafe { sys::pkv_op_poll(self.handle.raw(), &mut info, ptr::null_mut(), 0) })?;
        Ok(info.into())
    }

    /// What became of each item; `Err(Status::Busy)` for those under way.
    pub fn items(&self) -> Result<Vec<Outcome>> {
        let mut statuses = filled(sys::PKV_ERR_BUSY, usize::try_from(self.poll()?.num_items).ok(), "statuses")?;
        let mut info = sys::PKV_OP_INFO_INIT;
        check(unsafe {
            let (capacity, out) = (statuses.len() as u64, address_mut(&mut statuses));
            sys::pkv_op_poll(self.handle.raw(), &mut info, out, capacity)
        })?;
        Ok(statuses.into_iter().map(ended).collect())
    }

    /// Waits until the operation has ended; zero looks once, `Duration::MAX` is for ever. Fails as the operation did, or with
    /// `Status::Timeout` while it is under way.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        check(unsafe { sys::pkv_op_wait(self.handle.raw(), nanoseconds(timeout)) })
    }

    /// Asks the operation to end early. It ends exactly once all the same, with `Status::Cancelled` for the items that were not
    /// done; pages and buffers stay in use until [`OpInfo::buffers_free`].
    pub fn cancel(&self) -> Result<()> {
        check(unsafe { sys::pkv_op_cancel(self.handle.raw()) })
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        if self.owned {
            unsafe { sys::pkv_op_close(self.handle.raw()) };
        }
    }
}

/// An operation that has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completion {
    /// As given when the operation was begun
    pub user: u64,
    /// The operation itself
    pub op: Op,
    /// `Ok`, or that of the first item that failed
    pub status: Outcome,
}

/// Where operations end. Its file descriptor is readable while results wait, for poll, epoll or io_uring; do not read or close
/// it. Operations that are under way when it is dropped go on, and end without being queued.
///
/// ```
/// # fn main() -> pagedkv::Result<()> {
/// use std::os::unix::io::AsRawFd;
/// let queue = pagedkv::Queue::new()?;
/// assert!(queue.as_raw_fd() >= 0);
/// assert!(queue.drain(16, std::time::Duration::ZERO)?.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Queue {
    handle: Handle<sys::pkv_queue>,
    fd: RawFd,
    /// Operations that were begun with it and not drained.
    open: Mutex<HashSet<usize>>,
}

impl Queue {
    /// Makes an empty queue.
    pub fn new() -> Result<Self> {
        let handle = Handle::made(|out| unsafe { sys::pkv_queue_create(out) })?;
        let mut queue = Self { handle, fd: -1, open: Mutex::new(HashSet::new()) };
        check(unsafe { sys::pkv_queue_handle(handle.raw(), &mut queue.fd) })?;
        Ok(queue)
    }

    /// Takes over a handle, for example one that C code made.
    ///
    /// # Safety
    /// Nobody else closes it. (A handle that is closed, or NULL, does no harm: everything but dropping answers `Status::Handle`.)
    pub unsafe fn from_raw(raw: *mut sys::pkv_queue) -> Self {
        let mut queue = Self { handle: Handle::of(raw), fd: -1, open: Mutex::new(HashSet::new()) };
        sys::pkv_queue_handle(raw, &mut queue.fd);
        queue
    }

    /// The C API's handle, for calls that this crate does not have. It belongs to the queue.
    pub fn as_raw(&self) -> *mut sys::pkv_queue {
        self.handle.raw()
    }

    /// Closes the queue, as dropping it does.
    pub fn close(self) -> std::result::Result<(), Failed<Self>> {
        self.handle.close(self, |raw| unsafe { sys::pkv_queue_destroy(raw) }, |queue| &mut queue.handle)
    }

    fn open(&self) -> MutexGuard<'_, HashSet<usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up to `max` results out, in the order in which the operations ended, each once. Waits for the first one, at most
    /// `timeout` (zero = not at all, `Duration::MAX` = for ever); without one the list is empty.
    pub fn drain(&self, max: usize, timeout: Duration) -> Result<Vec<Completion>> {
        let none = sys::pkv_completion { user: 0, op: ptr::null_mut(), status: 0, reserved: 0 };
        let mut completions = filled(none, Some(max.min(1 << 16)), "completions")?;
        let mut count = 0;
        let result = check(unsafe {
            let (capacity, out) = (completions.len() as u64, address_mut(&mut completions));
            sys::pkv_queue_drain(self.handle.raw(), out, capacity, nanoseconds(timeout), &mut count)
        });
        match result {
            Err(error) if error.status() == Status::Timeout => return Ok(Vec::new()),
            other => other?,
        }
        completions.truncate(count as usize);
        let mut open = self.open();
        Ok(completions
            .into_iter()
            .map(|raw| {
                open.remove(&(raw.op as usize));
                Completion {
                    user: raw.user,
                    op: Op { handle: Handle::of(raw.op), owned: true },
                    status: ended(raw.status),
                }
            })
            .collect())
    }
}

impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // Open as long as the queue is.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.handle.is_closed() {
            unsafe { sys::pkv_queue_destroy(self.handle.raw()) };
        }
        for &op in self.open().iter() {
            unsafe { sys::pkv_op_close(op as *mut sys::pkv_op) };
        }
    }
}

impl From<Status> for Error {
    /// Without a message: what became of one item.
    fn from(status: Status) -> Self {
        Error::new(status, "")
    }
}
