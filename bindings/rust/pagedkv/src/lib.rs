// SPDX-License-Identifier: Apache-2.0
#![doc = include_str!("../README.md")]
//!
//! # Conventions
//!
//! * Names are those of the C API without `pkv_`: [`Pool::alloc`] is `pkv_pool_alloc`. The crate `pagedkv-sys` has that API as it
//!   is; `as_raw()` of each object leads there.
//! * Calls that can fail return an [`Error`] with a [`Status`] to decide by and a message with the values at fault. One that fails
//!   changes nothing unless its own text says otherwise.
//! * Options are structs with public fields and a default; zero means the library's default there.
//! * Objects may be dropped in any order: a child keeps what it needs of its parent. After its [`Pool`] was dropped a [`Table`],
//!   [`Batch`] or [`Session`] answers [`Status::Closed`].
//! * [`Pool`], [`Tier`], [`Node`], [`Queue`] and [`Op`] may be used from any thread; a [`Table`], a [`Batch`] or a [`Session`] from
//!   one thread at a time, different ones at the same time: they are [`Send`] and not [`Sync`].
//! * Rows and ids that are passed are borrowed for the call alone.
//! * In a process made by `fork()` objects of the parent answer [`Status::Forked`].
//!
//! # What the compiler refuses
//!
//! A table in two threads at once:
//!
//! ```compile_fail,E0277
//! fn shared<T: Sync>() {}
//! shared::<pagedkv::Table>();
//! ```
//!
//! The same for batches and sessions, and for a view, whose end is a call on its session:
//!
//! ```compile_fail,E0277
//! fn shared<T: Sync>() {}
//! shared::<pagedkv::Batch>();
//! ```
//!
//! ```compile_fail,E0277
//! fn shared<T: Sync>() {}
//! shared::<pagedkv::Session>();
//! ```
//!
//! ```compile_fail,E0277
//! fn sent<T: Send>() {}
//! sent::<pagedkv::LayerView<'static>>();
//! ```
//!
//! Use after close, and closing twice:
//!
//! ```compile_fail,E0382
//! # fn f(table: pagedkv::Table) {
//! let _ = table.close(pagedkv::NOW);
//! let _ = table.close(pagedkv::NOW);
//! # }
//! ```
//!
//! Pages that outlive their pool:
//!
//! ```compile_fail,E0505
//! # fn f(pool: pagedkv::Pool) -> pagedkv::Result<()> {
//! let pages = pool.alloc(0, 4)?;
//! drop(pool);
//! assert_eq!(pages.len(), 4);
//! # Ok(())
//! # }
//! ```
//!
//! A prompt that outlives its tokens:
//!
//! ```compile_fail,E0597
//! # use pagedkv::Prompt;
//! let prompt;
//! {
//!     let tokens = vec![1, 2, 3];
//!     prompt = Prompt::new(&tokens);
//! }
//! println!("{:?}", prompt);
//! ```
//!
//! A table that is used by itself while a step has it, or is in a step twice:
//!
//! ```compile_fail,E0499
//! # fn f(batch: &mut pagedkv::Batch, tables: &mut Vec<pagedkv::Table>) -> pagedkv::Result<()> {
//! let mut step = batch.reserve(tables.iter_mut(), &[1])?;
//! tables[0].reserve(100)?;
//! step.commit(None, pagedkv::NOW)?;
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0499
//! # fn f(batch: &mut pagedkv::Batch, table: &mut pagedkv::Table) -> pagedkv::Result<()> {
//! batch.reserve([&mut *table, &mut *table], &[1, 1])?;
//! # Ok(())
//! # }
//! ```
//!
//! A view that is used after its step, and a table that is written while a view is read:
//!
//! ```compile_fail,E0505
//! # fn f(session: &mut pagedkv::Session, tables: &mut [pagedkv::Table]) -> pagedkv::Result<()> {
//! let step = session.step(tables, None)?;
//! let view = step.acquire(0, std::time::Duration::MAX)?;
//! step.end()?;
//! println!("{:?}", view.slices());
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0502
//! # fn f(session: &mut pagedkv::Session, tables: &mut [pagedkv::Table]) -> pagedkv::Result<()> {
//! let mut step = session.step(tables, None)?;
//! let view = step.acquire(0, std::time::Duration::MAX)?;
//! step.table(0).reserve(100)?;
//! println!("{:?}", view.slices());
//! # Ok(())
//! # }
//! ```
//!
//! Rows that are gathered into while they are read:
//!
//! ```compile_fail,E0502
//! # use pagedkv::{Rows, RowsMut};
//! let mut rows = vec![0.0f32; 64];
//! let read = Rows::of(&rows);
//! let written = RowsMut::of(&mut rows);
//! println!("{:?} {:?}", read, written);
//! ```
//!
//! A backend for one thread only:
//!
//! ```compile_fail,E0277
//! struct Mine(std::rc::Rc<()>);
//! impl pagedkv::TierBackend for Mine {
//!     fn submit(&self, batch: pagedkv::TierBatch) {}
//! }
//! ```
#![warn(missing_docs)]

mod arrays;
mod batch;
#[rustfmt::skip]
mod codes;
mod device;
mod error;
mod guard;
mod handle;
mod handover;
mod node;
mod op;
mod pool;
mod prefetch;
mod prompt;
#[rustfmt::skip]
mod records;
mod rows;
mod table;
mod telemetry;
mod text;
mod tier;
mod when;

pub use arrays::{Array, Place};
pub use batch::{Batch, BatchOptions, GroupArrays, Step};
pub use codes::*;
pub use device::{Device, InPlace};
pub use error::{Error, Failed, Outcome, Result};
pub use handover::{Offer, OfferOptions, Pull, PullOptions};
pub use node::{Node, NodeOptions};
pub use op::{Completion, Op, OpOptions, Queue};
pub use pool::{
    Arrangement, Attention, CallerMemory, Events, GroupOptions, HeldPages, LayerLayout, Lookup, Memory, Pool,
    PoolOptions, Scales, TierAttachment,
};
pub use prefetch::{
    LayerData, LayerRef, LayerStep, LayerView, Monitor, Predictor, Session, SessionOptions, StreamView,
};
pub use prompt::{digest, Media, Namespace, Prompt, Retention};
pub use records::*;
pub use rows::{Bf16, Element, Rows, RowsMut, F16, F8E4M3, F8E5M2};
pub use table::{AdmitOptions, Residency, Table};
pub use telemetry::{clear_log, set_log, Prometheus, Trace};
pub use tier::{
    Ask, FaultHook, FileEvent, FileTierOptions, HostTierOptions, MappedTier, RequestId, Tier, TierBackend, TierBatch,
    TierItem, TierKey, Victim, TAG_ALL, TAG_PRIVATE,
};
pub use when::{When, NOW};

use pagedkv_sys as sys;
use std::ffi::CStr;

/// Page id in a layer group: 0 .. num_pages-1.
pub type Page = sys::pkv_page;
/// Token id; any value.
pub type Token = sys::pkv_token;
/// page * page_tokens + offset in the page; below 0: skip.
pub type Slot = sys::pkv_slot;

/// A block without a page.
pub const NO_PAGE: Page = sys::PKV_NO_PAGE;
/// Padding in a slot mapping.
pub const NO_SLOT: Slot = sys::PKV_NO_SLOT;
/// As `max_match`: the whole prompt may match.
pub const MATCH_ALL: u64 = sys::PKV_MATCH_ALL;
/// Of retention.
pub const PRIORITY_LOWEST: u32 = sys::PKV_PRIORITY_LOWEST as u32;
/// Of retention.
pub const PRIORITY_DEFAULT: u32 = sys::PKV_PRIORITY_DEFAULT as u32;
/// Of retention.
pub const PRIORITY_HIGHEST: u32 = sys::PKV_PRIORITY_HIGHEST as u32;

/// Version of the library that runs, for example "0.1.0".
pub fn version() -> &'static str {
    static_text(unsafe { sys::pkv_version_string() })
}

/// Name of the host kernels that this process runs: "avx512", "avx2", "neon" or "portable".
pub fn cpu_kernels() -> &'static str {
    static_text(unsafe { sys::pkv_cpu_kernels() })
}

fn static_text(text: *const std::os::raw::c_char) -> &'static str {
    // Static strings of ASCII.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("")
}
