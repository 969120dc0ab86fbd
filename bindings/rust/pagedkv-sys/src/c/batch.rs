// SPDX-License-Identifier: Apache-2.0
// Written by generate.py from the headers: not to be edited.
//! The decode step: the tables of one step together, and the arrays that attention kernels read.
//!
//! The arrays belong to the caller, are named once at creation and stay where they are, so that captured graphs
//! may read them; the library writes only entries that changed since it last wrote them. Each layer group has
//! arrays of its own.
//!
//! ```text
//! reserve(tables, new tokens)   room for this step, private; rewrites the arrays
//! set_tokens(ids)               names this step's tokens, when they are known
//! write(layer, k, v) ...        or the engine's own kernel over slot_mapping
//! commit()                      the KV of this step is complete
//! ```
//!
//! A table that is destroyed inside a step keeps its pages until the step ends.
//!
//! Thread-safety: one thread at a time for a batch and the tables in it.

#[allow(unused_imports)]
use super::*;

/// The arrays of one layer group.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_batch_arrays {
    /// `struct_size`.
    pub struct_size: usize,
    /// Layer group that they describe
    pub group: u32,
    /// Stands in block_table and block_indices where a block has no page, and behind rows
    pub fill: i32,
    /// Entries of a row of block_table
    pub max_blocks: u64,
    /// Entries at block_indices
    pub max_indices: u64,
    /// \[max_tables, max_blocks\], row = table; or NULL
    pub block_table: *mut i32,
    /// CSR: \[max_tables + 1\], row r has entries block_indptr\[r\] .. block_indptr\[r+1\]-1 of block_indices; rows
    /// past the step's are empty; or NULL
    pub block_indptr: *mut i32,
    /// CSR: \[max_indices\]; or NULL
    pub block_indices: *mut i32,
    /// \[max_tokens\], slots of this step's new tokens, table after table, then `PKV_NO_SLOT`; or NULL
    pub slot_mapping: *mut i64,
}

/// Initial value of [`pkv_batch_arrays`].
pub const PKV_BATCH_ARRAYS_INIT: pkv_batch_arrays = pkv_batch_arrays { struct_size: size_of::<pkv_batch_arrays>(), group: 0, fill: 0, max_blocks: 0, max_indices: 0, block_table: ptr::null_mut(), block_indptr: ptr::null_mut(), block_indices: ptr::null_mut(), slot_mapping: ptr::null_mut() };

/// See the functions that take a `pkv_batch_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_batch_options {
    /// `struct_size`.
    pub struct_size: usize,
    /// Tables of a step, 1 .. 65536
    pub max_tables: u32,
    /// 0 .. `PKV_MAX_GROUPS`, one for each group at most
    pub num_arrays: u32,
    /// num_arrays of them; the structs are copied
    pub arrays: *const pkv_batch_arrays,
    /// New tokens of a step, over all tables
    pub max_tokens: u64,
    /// \[max_tables\], tokens of the sequence with this step's; 0 past the step's rows; or NULL
    pub lengths: *mut i32,
    /// \[max_tables\], tokens in the last block, 1 .. page_tokens, 0 for an empty row; or NULL
    pub last_page_len: *mut i32,
}

/// Initial value of [`pkv_batch_options`].
pub const PKV_BATCH_OPTIONS_INIT: pkv_batch_options = pkv_batch_options { struct_size: size_of::<pkv_batch_options>(), max_tables: 0, num_arrays: 0, arrays: ptr::null(), max_tokens: 0, lengths: ptr::null_mut(), last_page_len: ptr::null_mut() };

extern "C" {
    /// Makes a batch over a pool. The arrays are filled as for a step without tables.
    ///
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID`; `PKV_ERR_HANDLE`; `PKV_ERR_NO_MEMORY`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_batch_create(pool: *mut pkv_pool, options: *const pkv_batch_options, batch: *mut *mut pkv_batch) -> pkv_status;

    /// Ends a batch; its tables live on, its arrays are not touched any more. Since 0.1.
    pub fn pkv_batch_destroy(batch: *mut pkv_batch) -> pkv_status;

    /// Begins a step: row r is tables\[r\], which gets room for num_new\[r\] tokens after its committed ones. The
    /// arrays then describe all rows; a row that failed is empty (length 0, no slots), and takes no part in the
    /// rest of the step.
    ///
    /// * `num_tables`: at most max_tables
    /// * `tables`: tables of the batch's pool, each once
    /// * `num_new`: new tokens of each
    /// * `statuses`: out, one for each row: `PKV_OK`, or why it has no part in this step (`PKV_ERR_NO_PAGES`, ...);
    ///   NULL: the first failure is only returned
    /// * Returns `PKV_OK`; the first failed row's status, other rows go on; `PKV_ERR_INVALID` or `PKV_ERR_LIMIT`
    ///   for what concerns the whole batch (a table listed twice or of another pool, arrays too small): then no
    ///   table, no array and no step under way is changed
    ///
    /// Since 0.1.
    pub fn pkv_batch_reserve(batch: *mut pkv_batch, num_tables: u32, tables: *const *mut pkv_table, num_new: *const u32, statuses: *mut pkv_status) -> pkv_status;

    /// Names this step's tokens.
    ///
    /// * `num_tokens`: the new tokens of all rows that were given to `pkv_batch_reserve`, failed rows included
    /// * `tokens`: ids, table after table
    /// * `statuses`: out, one for each row, or NULL; rows that failed earlier keep their status. A row that fails
    ///   here, or whose table was changed by a call of its own meanwhile (`PKV_ERR_STATE`), has no part in the rest
    ///   of the step either; its entries in the arrays stay
    /// * Returns `PKV_OK`; the first row's failure; `PKV_ERR_INVALID` with nothing changed when num_tokens is
    ///   another number; `PKV_ERR_STATE` outside a step
    ///
    /// Since 0.1.
    pub fn pkv_batch_set_tokens(batch: *mut pkv_batch, num_tokens: u64, tokens: *const pkv_token, statuses: *mut pkv_status) -> pkv_status;

    /// Scatters one layer's rows of this step: row i of k and v goes to the i-th new token, table after table; rows
    /// of failed tables are skipped.
    ///
    /// * Returns as `pkv_pool_write`; `PKV_ERR_STATE` outside a step
    ///
    /// Since 0.1.
    pub fn pkv_batch_write(batch: *mut pkv_batch, group: u32, layer: u32, k: *const pkv_tensor, v: *const pkv_tensor, sync: *const pkv_sync) -> pkv_status;

    /// Gathers one layer of every row: tokens \[first\[r\], length of r) of table r. In a window group `first` has
    /// to lie after what the window has passed.
    ///
    /// * `first`: first token of each row; NULL = 0 for all
    /// * `padded`: 0: rows follow each other (ragged); else row r begins at r \* padded and what it does not fill
    ///   is zeroed; `PKV_ERR_INVALID` if a row is longer
    /// * `k`, `v`: out; either may be NULL
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID`; `PKV_ERR_STATE` outside a step
    ///
    /// Since 0.1.
    pub fn pkv_batch_gather(batch: *mut pkv_batch, group: u32, layer: u32, first: *const u64, padded: u64, k: *const pkv_tensor, v: *const pkv_tensor, sync: *const pkv_sync) -> pkv_status;

    /// Ends the step: the KV of the new tokens is complete; full, named blocks are published.
    ///
    /// * `num_accepted`: of each row's new tokens, the first so many are kept and the others forgotten; NULL = all
    /// * `statuses`: out, one for each row, or NULL
    /// * Returns `PKV_OK`; the first row's failure; `PKV_ERR_STATE` outside a step
    ///
    /// Since 0.1.
    pub fn pkv_batch_commit(batch: *mut pkv_batch, num_accepted: *const u32, statuses: *mut pkv_status, sync: *const pkv_sync) -> pkv_status;
}
