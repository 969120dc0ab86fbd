// SPDX-License-Identifier: Apache-2.0
//! Steps over layers.

use super::Session;
use crate::error::{check, invalid, Failed, Outcome, Result};
use crate::pool::LayerLayout;
use crate::text::{address, address_mut, count32, ended, nanoseconds};
use crate::when::{When, NOW};
use crate::Table;
use pagedkv_sys as sys;
use std::{cell::RefCell, collections::VecDeque, fmt, mem, ops::Deref, ptr, slice, time::Duration};

/// A step over the layers of a session. It has the session and the tables to itself; it ends when it is dropped, too.
pub struct LayerStep<'s> {
    session: &'s mut Session,
    tables: Vec<&'s mut Table>,
    statuses: Vec<sys::pkv_status>,
    /// Ranges acquired and not released, the oldest first; also makes this something for one thread.
    acquired: RefCell<Acquired>,
    ended: bool,
}

#[derive(Debug, Default)]
struct Acquired {
    /// Of the first in the list.
    number: u64,
    ranges: VecDeque<Range>,
}

#[derive(Debug)]
struct Range {
    /// Place of the layer.
    index: u32,
    /// Whether its view was dropped.
    gone: bool,
    /// Where it was acquired, and is released.
    when: When<'static>,
}

impl<'s> LayerStep<'s> {
    pub(super) fn begin(
        session: &'s mut Session, tables: Vec<&'s mut Table>, num_tokens: Option<&[u64]>,
    ) -> Result<Self> {
        if let Some(num_tokens) = num_tokens {
            if num_tokens.len() != tables.len() {
                return invalid(format!("{} tables, and num_tokens has {} entries", tables.len(), num_tokens.len()));
            }
        }
        let raws: Vec<_> = tables.iter().map(|table| table.as_raw()).collect();
        let count = count32(raws.len(), "tables")?;
        let mut statuses = vec![sys::PKV_OK; raws.len()];
        check(unsafe {
            let (list, tokens, out) =
                (address(&raws), num_tokens.map_or(ptr::null(), address), address_mut(&mut statuses));
            sys::pkv_prefetch_step_begin(session.as_raw(), count, list, tokens, out)
        })?;
        Ok(Self { session, tables, statuses, acquired: RefCell::default(), ended: false })
    }

    /// What each table began the step with; one that failed has no entries in it.
    pub fn tables(&self) -> impl ExactSizeIterator<Item = Outcome> + '_ {
        self.statuses.iter().map(|&status| ended(status))
    }

    /// A table of the step, which may be written and committed; whatever else changes its blocks takes effect at the next step or
    /// the next [`LayerStep::acquire`].
    ///
    /// # Panics
    /// If there is no such table.
    pub fn table(&mut self, t: usize) -> &mut Table {
        self.tables[t]
    }

    /// Gives the next range of a layer, and waits until its bytes are there. Several may be acquired at once, as many as there are
    /// buffers.
    ///
    /// * `index`: place in the session's order: that of the last range acquired (if it was not the last one of its layer), or a
    ///   later one; layers that are passed over are not loaded
    /// * `timeout`: longest wait; `Duration::MAX` = for ever. The session's `load_timeout` ends loads in any case
    ///
    /// Bytes of a table that could not be had are no failure: its entries are -1 then. Fails with `Status::Timeout` (nothing is
    /// acquired; a later call may succeed); `Status::State` for a layer that has passed, or while every buffer is acquired.
    pub fn acquire(&self, index: u32, timeout: Duration) -> Result<LayerView<'_>> {
        let (raw, number) = self.acquire_raw(index, timeout, NOW)?;
        Ok(LayerView { step: self, number, data: LayerData { raw } })
    }

    /// As [`LayerStep::acquire`], on a pool on a device: with a stream ([`When::cuda_stream`]) it does not wait, the stream does. What
    /// comes in it afterwards finds the view's lists and the bytes ready; the host must not read them before, and gets addresses.
    ///
    /// Fails with `Status::Unsupported` for a pool in host memory; `Status::Capture` for a stream that is being captured;
    /// `Status::Io` when the device fails.
    pub fn acquire_in(&self, index: u32, timeout: Duration, stream: When<'static>) -> Result<StreamView<'_>> {
        let (raw, number) = self.acquire_raw(index, timeout, stream)?;
        Ok(StreamView { step: self, number, raw })
    }

    fn acquire_raw(&self, index: u32, timeout: Duration, when: When<'static>) -> Result<(sys::pkv_layer_view, u64)> {
        let mut raw = sys::PKV_LAYER_VIEW_INIT;
        check(unsafe {
            sys::pkv_prefetch_layer_acquire(self.session.as_raw(), index, nanoseconds(timeout), when.raw(), &mut raw)
        })?;
        let mut acquired = self.acquired.borrow_mut();
        acquired.ranges.push_back(Range { index, gone: false, when });
        Ok((raw, acquired.number + acquired.ranges.len() as u64 - 1))
    }

    /// Releases ranges whose views are gone, as far as they are the oldest ones.
    fn let_go(&self, number: u64) {
        let mut acquired = self.acquired.borrow_mut();
        let at = (number - acquired.number) as usize;
        acquired.ranges[at].gone = true;
        while let Some(&Range { index, gone: true, when }) = acquired.ranges.front() {
            unsafe { sys::pkv_prefetch_layer_release(self.session.as_raw(), index, when.raw()) };
            acquired.ranges.pop_front();
            acquired.number += 1;
        }
    }

    /// Ends the step. The session goes on to load the first layers of the next one, which it takes to be over the same tables.
    ///
    /// Returns what became of each table: `Status::Lost` when blocks are gone (the table says so from now on); `Status::Timeout`,
    /// `Status::Io`, `Status::NoMemory` when they could not be loaded now; or what the step began with. What was computed for a
    /// table that failed has to be discarded.
    pub fn end(mut self) -> Result<Vec<Outcome>> {
        self.release_all();
        self.ended = true;
        const UNTOUCHED: sys::pkv_status = i32::MIN;
        let mut statuses = vec![UNTOUCHED; self.tables.len()];
        let status = unsafe { sys::pkv_prefetch_step_end(self.session.as_raw(), address_mut(&mut statuses)) };
        if statuses.is_empty() || statuses.contains(&UNTOUCHED) {
            check(status)?;
        }
        Ok(statuses.into_iter().map(ended).collect())
    }

    /// No view lives any more, but one may have been leaked.
    fn release_all(&mut self) {
        for Range { index, when, .. } in self.acquired.get_mut().ranges.drain(..) {
            unsafe { sys::pkv_prefetch_layer_release(self.session.as_raw(), index, when.raw()) };
        }
    }
}

impl fmt::Debug for LayerStep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerStep").field("statuses", &self.statuses).field("acquired", &self.acquired).finish()
    }
}

impl Drop for LayerStep<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.release_all();
            unsafe { sys::pkv_prefetch_step_end(self.session.as_raw(), ptr::null_mut()) };
        }
    }
}

/// A layer of a step, or a range of it, until it is dropped. Buffers are loaded anew in the order in which they were acquired: one
/// that is dropped before an older one stays until that is dropped, too.
pub struct LayerView<'v> {
    step: &'v LayerStep<'v>,
    number: u64,
    data: LayerData,
}

impl LayerView<'_> {
    /// Ends the use of the range, after work that still reads it; it has to be the oldest acquired one. Otherwise, with
    /// `Status::State`, and with `Status::Timeout` it is handed back.
    #[allow(clippy::result_large_err)] // it is handed back
    pub fn release(self, when: When<'_>) -> std::result::Result<(), Failed<Self>> {
        let step = self.step;
        if step.acquired.borrow().number != self.number {
            let error = crate::Error::new(crate::Status::State, "an older range is still acquired");
            return Err(Failed { error, value: self });
        }
        match check(unsafe { sys::pkv_prefetch_layer_release(step.session.as_raw(), self.data.raw.index, when.raw()) })
        {
            Ok(()) => {
                mem::forget(self);
                let mut acquired = step.acquired.borrow_mut();
                acquired.ranges.pop_front();
                acquired.number += 1;
                let next = acquired.ranges.front().map_or(false, |range| range.gone).then(|| acquired.number);
                drop(acquired);
                if let Some(next) = next {
                    step.let_go(next);
                }
                Ok(())
            }
            Err(error) => Err(Failed { error, value: self }),
        }
    }
}

impl Deref for LayerView<'_> {
    type Target = LayerData;
    fn deref(&self) -> &LayerData {
        &self.data
    }
}

impl fmt::Debug for LayerView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.data.fmt(f)
    }
}

impl Drop for LayerView<'_> {
    fn drop(&mut self) {
        self.step.let_go(self.number);
    }
}

/// A layer of a step, or a range of it, for kernels in a stream, until it is dropped: the stream lets go of it then. Addresses and numbers
/// are those of `pkv_layer_view`.
pub struct StreamView<'v> {
    step: &'v LayerStep<'v>,
    number: u64,
    raw: sys::pkv_layer_view,
}

impl StreamView<'_> {
    /// Place of the layer in the session's order.
    pub fn index(&self) -> u32 {
        self.raw.index
    }

    /// Layer group.
    pub fn group(&self) -> u32 {
        self.raw.group
    }

    /// Layer within the group.
    pub fn layer(&self) -> u32 {
        self.raw.layer
    }

    /// 0 .. num_buffers - 1: whose slices and indptr these are.
    pub fn buffer(&self) -> u32 {
        self.raw.buffer
    }

    /// Nothing of this layer comes after this range.
    pub fn last(&self) -> bool {
        self.raw.last != 0
    }

    /// `[num_slices]`: slice ids; -1: dropped by a window, or not to be had.
    pub fn slices(&self) -> *const i32 {
        self.raw.slices
    }

    /// Entries at `slices`.
    pub fn num_slices(&self) -> u64 {
        self.raw.num_slices
    }

    /// `[num_tables + 1]`: table t has the slices from `indptr[t]` to `indptr[t + 1]`.
    pub fn indptr(&self) -> *const i32 {
        self.raw.indptr
    }

    /// `[num_tables]`: the block of each table's first entry.
    pub fn first_block(&self) -> *const u64 {
        self.raw.first_block
    }

    /// Of the step.
    pub fn num_tables(&self) -> u32 {
        self.raw.num_tables
    }

    /// Where rows lie, with slice ids in place of pages. The same in every step.
    pub fn layout(&self) -> LayerLayout {
        LayerLayout::of(&self.raw.layout)
    }
}

impl fmt::Debug for StreamView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "layer {} of group {} in a stream, last: {}", self.layer(), self.group(), self.last())
    }
}

impl Drop for StreamView<'_> {
    fn drop(&mut self) {
        self.step.let_go(self.number);
    }
}

/// What a view shows. It may be shared with threads that compute parts of the layer.
pub struct LayerData {
    raw: sys::pkv_layer_view,
}

// Lists that nobody writes while the view lives.
unsafe impl Send for LayerData {}
unsafe impl Sync for LayerData {}

impl LayerData {
    /// Place of the layer in the session's order.
    pub fn index(&self) -> u32 {
        self.raw.index
    }

    /// Layer group.
    pub fn group(&self) -> u32 {
        self.raw.group
    }

    /// Layer within the group.
    pub fn layer(&self) -> u32 {
        self.raw.layer
    }

    /// 0 .. num_buffers - 1: whose slices and indptr these are.
    pub fn buffer(&self) -> u32 {
        self.raw.buffer
    }

    /// Nothing of this layer comes after this range.
    pub fn last(&self) -> bool {
        self.raw.last != 0
    }

    /// Slice ids; -1: dropped by a window, or not to be had (see [`LayerStep::end`]).
    pub fn slices(&self) -> &[i32] {
        list(self.raw.slices, self.raw.num_slices as usize)
    }

    /// `[num_tables + 1]`: table t has `slices[indptr[t]..indptr[t + 1]]`.
    pub fn indptr(&self) -> &[i32] {
        list(self.raw.indptr, self.raw.num_tables as usize + 1)
    }

    /// `[num_tables]`: the block of each table's first entry.
    pub fn first_block(&self) -> &[u64] {
        list(self.raw.first_block, self.raw.num_tables as usize)
    }

    /// The entries of a table: its first block, and the slice ids from there on.
    ///
    /// # Panics
    /// If there is no such table.
    pub fn of_table(&self, t: usize) -> (u64, &[i32]) {
        let indptr = self.indptr();
        (self.first_block()[t], &self.slices()[indptr[t] as usize..indptr[t + 1] as usize])
    }

    /// Where rows lie, with slice ids in place of pages. The same in every step.
    pub fn layout(&self) -> LayerLayout {
        LayerLayout::of(&self.raw.layout)
    }

    /// Time that the acquisition waited for loads.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.raw.waited_ns)
    }
}

fn list<'a, T>(at: *const T, count: usize) -> &'a [T] {
    if at.is_null() || count == 0 {
        return &[];
    }
    unsafe { slice::from_raw_parts(at, count) }
}

impl fmt::Debug for LayerData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "layer {} of group {}, {} slices, last: {}",
            self.layer(),
            self.group(),
            self.slices().len(),
            self.last()
        )
    }
}
