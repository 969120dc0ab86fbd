// SPDX-License-Identifier: Apache-2.0
//! The decode step: the tables of one step together, and the arrays that attention kernels read.

use crate::arrays::{Array, Storage};
use crate::codes::Status;
use crate::error::{check, invalid, Error, Failed, Outcome, Result};
use crate::handle::Handle;
use crate::pool::{Pool, Shapes};
use crate::rows::{Rows, RowsMut, Sides};
use crate::text::{address, address_mut, count32, ended};
use crate::when::When;
use crate::{Table, Token};
use pagedkv_sys as sys;
use std::{cell::Cell, fmt, marker::PhantomData, ptr, sync::Arc};

/// The arrays of one layer group.
#[derive(Clone, Debug, Default)]
pub struct GroupArrays {
    /// Layer group that they describe
    pub group: u32,
    /// Stands in `block_table` and `block_indices` where a block has no page, and behind rows
    pub fill: i32,
    /// Entries of a row of `block_table`
    pub max_blocks: u64,
    /// Entries of `block_indices`
    pub max_indices: u64,
    /// `[max_tables, max_blocks]`, row = table
    pub block_table: Array<i32>,
    /// CSR: `[max_tables + 1]`, row r has entries `block_indptr[r] .. block_indptr[r+1]` of `block_indices`; rows past the step's
    /// are empty
    pub block_indptr: Array<i32>,
    /// CSR: `[max_indices]`
    pub block_indices: Array<i32>,
    /// `[max_tokens]`, slots of this step's new tokens, table after table, then [`NO_SLOT`](crate::NO_SLOT)
    pub slot_mapping: Array<i64>,
}

/// What a batch is made of.
#[derive(Clone, Debug, Default)]
pub struct BatchOptions {
    /// Tables of a step, 1 .. 65536
    pub max_tables: u32,
    /// New tokens of a step, over all tables
    pub max_tokens: u64,
    /// One for each group at most
    pub arrays: Vec<GroupArrays>,
    /// `[max_tables]`, tokens of the sequence with this step's; 0 past the step's rows
    pub lengths: Array<i32>,
    /// `[max_tables]`, tokens in the last block, 1 .. page_tokens, 0 for an empty row
    pub last_page_len: Array<i32>,
}

#[derive(Debug)]
struct Group {
    block_table: Storage<i32>,
    block_indptr: Storage<i32>,
    block_indices: Storage<i32>,
    slot_mapping: Storage<i64>,
}

/// The sequences of one decode step after another. The arrays stay where they are, so that captured graphs may read them; only
/// entries that changed are rewritten. One thread at a time for a batch and the tables in it.
///
/// ```
/// # use pagedkv::*;
/// # fn main() -> pagedkv::Result<()> {
/// # let model = GroupOptions { num_pages: 64, num_layers: 1, num_kv_heads: 2, k_head_dim: 4, v_head_dim: 4,
/// #     dtype: DType::F32, ..Default::default() };
/// # let pool = Pool::new(&PoolOptions { page_tokens: 16, groups: vec![model], ..Default::default() })?;
/// let arrays = GroupArrays { max_blocks: 8, block_table: Array::Own, slot_mapping: Array::Own, ..Default::default() };
/// let options = BatchOptions { max_tables: 4, max_tokens: 4, arrays: vec![arrays], lengths: Array::Own, ..Default::default() };
/// let mut batch = Batch::new(&pool, &options)?;
/// let mut tables = vec![Table::new(&pool)?, Table::new(&pool)?];
/// for table in &mut tables {
///     table.admit(&Prompt::new(&[]), &Default::default())?;
/// }
/// let mut step = batch.reserve(&mut tables, &[1, 1])?; // makes room, rewrites the arrays
/// step.set_tokens(&[7, 8])?;
/// let (k, v) = ([1.0f32; 2 * 8], [2.0f32; 2 * 8]);
/// step.write(0, 0, Rows::of(&k), Some(Rows::of(&v)), NOW)?; // or a kernel at step.slot_mapping(0)
/// assert_eq!(step.slot_mapping(0), Some(&[0, 16, NO_SLOT, NO_SLOT][..]));
/// assert_eq!(step.lengths(), Some(&[1, 1, 0, 0][..]));
/// step.commit(None, NOW)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Batch {
    handle: Handle<sys::pkv_batch>,
    shapes: Arc<Shapes>,
    // After the handle's own drop nothing writes them.
    groups: Vec<Group>,
    lengths: Storage<i32>,
    last_page_len: Storage<i32>,
    one_thread: PhantomData<Cell<()>>,
}

impl Batch {
    /// Makes a batch over a pool. The arrays are filled as for a step without tables.
    pub fn new(pool: &Pool, options: &BatchOptions) -> Result<Self> {
        let tables = u64::from(options.max_tables);
        let mut groups = Vec::with_capacity(options.arrays.len());
        let mut raws = Vec::with_capacity(options.arrays.len());
        for arrays in &options.arrays {
            let group = Group {
                block_table: Storage::new(
                    &arrays.block_table,
                    0,
                    tables.checked_mul(arrays.max_blocks),
                    "block_table",
                )?,
                block_indptr: Storage::new(&arrays.block_indptr, 0, Some(tables + 1), "block_indptr")?,
                block_indices: Storage::new(&arrays.block_indices, 0, Some(arrays.max_indices), "block_indices")?,
                slot_mapping: Storage::new(&arrays.slot_mapping, 0, Some(options.max_tokens), "slot_mapping")?,
            };
            let mut raw = sys::PKV_BATCH_ARRAYS_INIT;
            raw.group = arrays.group;
            raw.fill = arrays.fill;
            raw.max_blocks = arrays.max_blocks;
            raw.max_indices = arrays.max_indices;
            raw.block_table = group.block_table.as_ptr();
            raw.block_indptr = group.block_indptr.as_ptr();
            raw.block_indices = group.block_indices.as_ptr();
            raw.slot_mapping = group.slot_mapping.as_ptr();
            groups.push(group);
            raws.push(raw);
        }
        let lengths = Storage::new(&options.lengths, 0, Some(tables), "lengths")?;
        let last_page_len = Storage::new(&options.last_page_len, 0, Some(tables), "last_page_len")?;
        let mut raw = sys::PKV_BATCH_OPTIONS_INIT;
        raw.max_tables = options.max_tables;
        raw.num_arrays = count32(raws.len(), "arrays")?;
        raw.arrays = address(&raws);
        raw.max_tokens = options.max_tokens;
        raw.lengths = lengths.as_ptr();
        raw.last_page_len = last_page_len.as_ptr();
        let handle = Handle::made(|out| unsafe { sys::pkv_batch_create(pool.as_raw(), &raw, out) })?;
        Ok(Self { handle, shapes: Arc::clone(&pool.shapes), groups, lengths, last_page_len, one_thread: PhantomData })
    }

    /// Ends the batch, as dropping it does; its tables live on.
    pub fn close(self) -> std::result::Result<(), Failed<Self>> {
        self.handle.close(self, |raw| unsafe { sys::pkv_batch_destroy(raw) }, |batch| &mut batch.handle)
    }

    /// The C API's handle, for calls that this crate does not have. It belongs to the batch.
    pub fn as_raw(&self) -> *mut sys::pkv_batch {
        self.handle.raw()
    }

    /// Begins a step: row r is the r-th table, which gets room for `num_new[r]` tokens after its committed ones. The arrays then
    /// describe all rows; a row that failed ([`Step::rows`]) is empty (length 0, no slots), and takes no part in the rest of the
    /// step.
    ///
    /// Fails with `Status::Invalid` or `Status::Limit` for what concerns the whole batch (a table of another pool, arrays too
    /// small): then no table and no array is changed.
    pub fn reserve<'s>(
        &'s mut self, tables: impl IntoIterator<Item = &'s mut Table>, num_new: &[u32],
    ) -> Result<Step<'s>> {
        let tables: Vec<&'s mut Table> = tables.into_iter().collect();
        if tables.len() != num_new.len() {
            return invalid(format!("{} tables, and num_new has {} entries", tables.len(), num_new.len()));
        }
        let raws: Vec<*mut sys::pkv_table> = tables.iter().map(|table| table.as_raw()).collect();
        let mut step = Step {
            statuses: vec![UNTOUCHED; tables.len()],
            batch: self,
            tables,
            num_new: num_new.to_vec(),
            open: false,
        };
        let status = unsafe {
            let (count, list, out) = (count32(raws.len(), "tables")?, address(&raws), address_mut(&mut step.statuses));
            sys::pkv_batch_reserve(step.batch.as_raw(), count, list, address(num_new), out)
        };
        step.check_rows(status)?;
        step.open = true;
        Ok(step)
    }

    /// `block_table` of the i-th arrays; none if it is not the batch's own.
    pub fn block_table(&self, i: usize) -> Option<&[i32]> {
        self.groups.get(i)?.block_table.slice()
    }

    /// `block_indptr` of the i-th arrays; none if it is not the batch's own.
    pub fn block_indptr(&self, i: usize) -> Option<&[i32]> {
        self.groups.get(i)?.block_indptr.slice()
    }

    /// `block_indices` of the i-th arrays; none if it is not the batch's own.
    pub fn block_indices(&self, i: usize) -> Option<&[i32]> {
        self.groups.get(i)?.block_indices.slice()
    }

    /// `slot_mapping` of the i-th arrays; none if it is not the batch's own.
    pub fn slot_mapping(&self, i: usize) -> Option<&[i64]> {
        self.groups.get(i)?.slot_mapping.slice()
    }

    /// `lengths`; none if it is not the batch's own.
    pub fn lengths(&self) -> Option<&[i32]> {
        self.lengths.slice()
    }

    /// `last_page_len`; none if it is not the batch's own.
    pub fn last_page_len(&self) -> Option<&[i32]> {
        self.last_page_len.slice()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if !self.handle.is_closed() {
            unsafe { sys::pkv_batch_destroy(self.as_raw()) };
        }
    }
}

/// No status has this number: the library has not written one.
const UNTOUCHED: sys::pkv_status = i32::MIN;

/// A step of a batch. It has the batch and the tables to itself. If it is dropped before [`Step::commit`], the step ends without
/// one: its tables keep the room, and nothing new is committed.
pub struct Step<'s> {
    batch: &'s mut Batch,
    tables: Vec<&'s mut Table>,
    num_new: Vec<u32>,
    statuses: Vec<sys::pkv_status>,
    open: bool,
}

impl<'s> Step<'s> {
    /// Rows that failed are no failure of the call: [`Step::rows`] has them.
    fn check_rows(&mut self, status: sys::pkv_status) -> Result<()> {
        if self.statuses.is_empty() || self.statuses.contains(&UNTOUCHED) {
            check(status)
        } else {
            Ok(())
        }
    }

    /// Calls something that writes a status for each row, if it gets so far.
    fn with_rows(
        &mut self, call: impl FnOnce(*mut sys::pkv_batch, *mut sys::pkv_status) -> sys::pkv_status,
    ) -> Result<()> {
        let mut fresh = vec![UNTOUCHED; self.statuses.len()];
        std::mem::swap(&mut fresh, &mut self.statuses);
        let status = call(self.batch.as_raw(), address_mut(&mut self.statuses));
        let result = self.check_rows(status);
        if result.is_err() {
            self.statuses = fresh;
        }
        result
    }

    /// What has become of each row so far. One that failed has no part in the rest of the step.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Outcome> + '_ {
        self.statuses.iter().map(|&status| ended(status))
    }

    /// Fails if a row has failed.
    pub fn all_rows(&self) -> Result<()> {
        match self.rows().position(|row| row.is_err()) {
            None => Ok(()),
            Some(i) => Err(Error::new(
                Status::from_code(self.statuses[i]),
                format!("row {} of {} failed", i, self.statuses.len()),
            )),
        }
    }

    /// The table of a row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn table(&mut self, row: usize) -> &mut Table {
        self.tables[row]
    }

    /// The batch, with its arrays.
    pub fn batch(&self) -> &Batch {
        self.batch
    }

    /// As [`Batch::block_table`].
    pub fn block_table(&self, i: usize) -> Option<&[i32]> {
        self.batch.block_table(i)
    }

    /// As [`Batch::slot_mapping`].
    pub fn slot_mapping(&self, i: usize) -> Option<&[i64]> {
        self.batch.slot_mapping(i)
    }

    /// As [`Batch::lengths`].
    pub fn lengths(&self) -> Option<&[i32]> {
        self.batch.lengths()
    }

    /// Names this step's tokens: the new ones of all rows, table after table, failed rows included. A row that fails here, or whose
    /// table was changed by a call of its own meanwhile, has no part in the rest of the step either; its entries in the arrays
    /// stay.
    ///
    /// Fails with `Status::Invalid`, and nothing changed, when the number of tokens is another one.
    pub fn set_tokens(&mut self, tokens: &[Token]) -> Result<()> {
        self.with_rows(|batch, out| unsafe {
            sys::pkv_batch_set_tokens(batch, tokens.len() as u64, address(tokens), out)
        })
    }

    /// Scatters one layer's rows of this step: row i of `k` and `v` goes to the i-th new token, table after table; rows of failed
    /// tables are skipped.
    pub fn write(&mut self, group: u32, layer: u32, k: Rows<'_>, v: Option<Rows<'_>>, when: When<'_>) -> Result<()> {
        let sides = Sides::read(self.batch.shapes.group(group), k, v);
        check(unsafe { sys::pkv_batch_write(self.batch.as_raw(), group, layer, sides.k(), sides.v(), when.raw()) })
    }

    /// Gathers one layer of every row: the tokens from `first[r]` on. In a window group `first` has to lie after what the window has
    /// passed.
    ///
    /// * `first`: first token of each row; none = 0 for all
    /// * `padded`: 0: rows follow each other (ragged); else row r begins at r * padded and what it does not fill is zeroed;
    ///   `Status::Invalid` if a row is longer
    /// * `k`, `v`: a side that is not wanted may be left out
    #[allow(clippy::too_many_arguments)]
    pub fn gather(
        &mut self, group: u32, layer: u32, first: Option<&[u64]>, padded: u64, k: Option<RowsMut<'_>>,
        v: Option<RowsMut<'_>>, when: When<'_>,
    ) -> Result<()> {
        if let Some(first) = first {
            if first.len() != self.statuses.len() {
                return invalid(format!("first has {} entries for {} rows", first.len(), self.statuses.len()));
            }
        }
        let sides = Sides::write(self.batch.shapes.group(group), &k, &v);
        check(unsafe {
            let first = first.map_or(ptr::null(), address);
            sys::pkv_batch_gather(self.batch.as_raw(), group, layer, first, padded, sides.k(), sides.v(), when.raw())
        })
    }

    /// Ends the step: the KV of the new tokens is complete; full, named blocks are published. Returns what became of each row. When
    /// it fails the step goes on.
    ///
    /// * `num_accepted`: of each row's new tokens, the first so many are kept and the others forgotten; none = all
    pub fn commit(&mut self, num_accepted: Option<&[u32]>, when: When<'_>) -> Result<Vec<Outcome>> {
        if let Some(accepted) = num_accepted {
            if accepted.len() != self.num_new.len() {
                return invalid(format!("num_accepted has {} entries for {} rows", accepted.len(), self.num_new.len()));
            }
        }
        self.with_rows(|batch, out| unsafe {
            sys::pkv_batch_commit(batch, num_accepted.map_or(ptr::null(), address), out, when.raw())
        })?;
        self.open = false;
        Ok(self.rows().collect())
    }
}

impl fmt::Debug for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("statuses", &self.statuses).field("open", &self.open).finish()
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if self.open {
            // A step over no tables: lets go of these.
            unsafe { sys::pkv_batch_reserve(self.batch.as_raw(), 0, ptr::null(), ptr::null(), ptr::null_mut()) };
        }
    }
}
