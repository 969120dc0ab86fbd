// SPDX-License-Identifier: Apache-2.0
// Written by generate.py from the headers: not to be edited.
//! Numbers of the C API that stand for something.

use pagedkv_sys as sys;

/// Why a call failed. Names and numbers never change once released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// An argument is out of range or contradicts another
    Invalid,
    /// NULL, closed, foreign or stale handle
    Handle,
    /// The object's parent was destroyed
    Closed,
    /// The handle was made before fork() in the parent process
    Forked,
    /// The operating system or the allocator gave no memory
    NoMemory,
    /// The pool has too few pages that are free or may be evicted
    NoPages,
    /// A caller's buffer or a tier is too small
    NoSpace,
    /// What was named does not exist
    NotFound,
    /// A block has no page in the pool
    NotResident,
    /// Blocks of a sequence could not be loaded and are gone
    Lost,
    /// The object or page is not in a state that allows this
    State,
    /// In use by an operation
    Busy,
    /// Not now; a later try may succeed
    Again,
    /// A deadline passed
    Timeout,
    /// Cancelled by the caller
    Cancelled,
    /// Not supported by this build, machine or object
    Unsupported,
    /// Geometry, identity or seed differs
    Mismatch,
    /// Input or output failed
    Io,
    /// Larger than a documented limit
    Limit,
    /// Not possible while a stream is being captured
    Capture,
    /// A fault of the library itself: please report it
    Internal,
    /// A number that this version of the crate does not know.
    Other(i32),
}

impl Status {
    /// The number, as in the C API.
    pub fn code(self) -> i32 {
        match self {
            Self::Invalid => sys::PKV_ERR_INVALID,
            Self::Handle => sys::PKV_ERR_HANDLE,
            Self::Closed => sys::PKV_ERR_CLOSED,
            Self::Forked => sys::PKV_ERR_FORKED,
            Self::NoMemory => sys::PKV_ERR_NO_MEMORY,
            Self::NoPages => sys::PKV_ERR_NO_PAGES,
            Self::NoSpace => sys::PKV_ERR_NO_SPACE,
            Self::NotFound => sys::PKV_ERR_NOT_FOUND,
            Self::NotResident => sys::PKV_ERR_NOT_RESIDENT,
            Self::Lost => sys::PKV_ERR_LOST,
            Self::State => sys::PKV_ERR_STATE,
            Self::Busy => sys::PKV_ERR_BUSY,
            Self::Again => sys::PKV_ERR_AGAIN,
            Self::Timeout => sys::PKV_ERR_TIMEOUT,
            Self::Cancelled => sys::PKV_ERR_CANCELLED,
            Self::Unsupported => sys::PKV_ERR_UNSUPPORTED,
            Self::Mismatch => sys::PKV_ERR_MISMATCH,
            Self::Io => sys::PKV_ERR_IO,
            Self::Limit => sys::PKV_ERR_LIMIT,
            Self::Capture => sys::PKV_ERR_CAPTURE,
            Self::Internal => sys::PKV_ERR_INTERNAL,
            Self::Other(code) => code,
        }
    }

    /// What a number of the C API stands for.
    pub fn from_code(code: i32) -> Self {
        match code {
            sys::PKV_ERR_INVALID => Self::Invalid,
            sys::PKV_ERR_HANDLE => Self::Handle,
            sys::PKV_ERR_CLOSED => Self::Closed,
            sys::PKV_ERR_FORKED => Self::Forked,
            sys::PKV_ERR_NO_MEMORY => Self::NoMemory,
            sys::PKV_ERR_NO_PAGES => Self::NoPages,
            sys::PKV_ERR_NO_SPACE => Self::NoSpace,
            sys::PKV_ERR_NOT_FOUND => Self::NotFound,
            sys::PKV_ERR_NOT_RESIDENT => Self::NotResident,
            sys::PKV_ERR_LOST => Self::Lost,
            sys::PKV_ERR_STATE => Self::State,
            sys::PKV_ERR_BUSY => Self::Busy,
            sys::PKV_ERR_AGAIN => Self::Again,
            sys::PKV_ERR_TIMEOUT => Self::Timeout,
            sys::PKV_ERR_CANCELLED => Self::Cancelled,
            sys::PKV_ERR_UNSUPPORTED => Self::Unsupported,
            sys::PKV_ERR_MISMATCH => Self::Mismatch,
            sys::PKV_ERR_IO => Self::Io,
            sys::PKV_ERR_LIMIT => Self::Limit,
            sys::PKV_ERR_CAPTURE => Self::Capture,
            sys::PKV_ERR_INTERNAL => Self::Internal,
            _ => Self::Other(code),
        }
    }
}

/// Type of the elements of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DType {
    /// `PKV_DTYPE_F32`.
    F32,
    /// `PKV_DTYPE_F16`.
    #[default]
    F16,
    /// `PKV_DTYPE_BF16`.
    Bf16,
    /// OCP E4M3 (finite range ±448, NaN 0x7f/0xff, no infinity)
    F8E4M3,
    /// OCP E5M2
    F8E5M2,
    /// `PKV_DTYPE_I8`.
    I8,
    /// Rows of row_bytes bytes, for example of a block-quantised format
    Opaque,
    /// A number that this version of the crate does not know.
    Other(i32),
}

impl DType {
    /// The number, as in the C API.
    pub fn code(self) -> i32 {
        match self {
            Self::F32 => sys::PKV_DTYPE_F32,
            Self::F16 => sys::PKV_DTYPE_F16,
            Self::Bf16 => sys::PKV_DTYPE_BF16,
            Self::F8E4M3 => sys::PKV_DTYPE_F8_E4M3,
            Self::F8E5M2 => sys::PKV_DTYPE_F8_E5M2,
            Self::I8 => sys::PKV_DTYPE_I8,
            Self::Opaque => sys::PKV_DTYPE_OPAQUE,
            Self::Other(code) => code,
        }
    }

    /// What a number of the C API stands for.
    pub fn from_code(code: i32) -> Self {
        match code {
            sys::PKV_DTYPE_F32 => Self::F32,
            sys::PKV_DTYPE_F16 => Self::F16,
            sys::PKV_DTYPE_BF16 => Self::Bf16,
            sys::PKV_DTYPE_F8_E4M3 => Self::F8E4M3,
            sys::PKV_DTYPE_F8_E5M2 => Self::F8E5M2,
            sys::PKV_DTYPE_I8 => Self::I8,
            sys::PKV_DTYPE_OPAQUE => Self::Opaque,
            _ => Self::Other(code),
        }
    }
}

/// Order inside one layer of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Layout {
    /// \[page_tokens, heads, head_dim\]
    #[default]
    Nhd,
    /// \[heads, page_tokens, head_dim\]
    Hnd,
    /// A number that this version of the crate does not know.
    Other(i32),
}

impl Layout {
    /// The number, as in the C API.
    pub fn code(self) -> i32 {
        match self {
            Self::Nhd => sys::PKV_LAYOUT_NHD,
            Self::Hnd => sys::PKV_LAYOUT_HND,
            Self::Other(code) => code,
        }
    }

    /// What a number of the C API stands for.
    pub fn from_code(code: i32) -> Self {
        match code {
            sys::PKV_LAYOUT_NHD => Self::Nhd,
            sys::PKV_LAYOUT_HND => Self::Hnd,
            _ => Self::Other(code),
        }
    }
}

/// Memory in huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum HugePages {
    /// Transparent huge pages where the kernel gives them
    #[default]
    Auto,
    /// Ordinary pages
    Never,
    /// Reserved huge pages (hugetlb), or `Status::NoMemory`
    Require,
    /// A number that this version of the crate does not know.
    Other(i32),
}

impl HugePages {
    /// The number, as in the C API.
    pub fn code(self) -> i32 {
        match self {
            Self::Auto => sys::PKV_HUGE_PAGES_AUTO,
            Self::Never => sys::PKV_HUGE_PAGES_NEVER,
            Self::Require => sys::PKV_HUGE_PAGES_REQUIRE,
            Self::Other(code) => code,
        }
    }

    /// What a number of the C API stands for.
    pub fn from_code(code: i32) -> Self {
        match code {
            sys::PKV_HUGE_PAGES_AUTO => Self::Auto,
            sys::PKV_HUGE_PAGES_NEVER => Self::Never,
            sys::PKV_HUGE_PAGES_REQUIRE => Self::Require,
            _ => Self::Other(code),
        }
    }
}

/// What a page is at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum PageState {
    /// `PKV_PAGE_FREE`.
    #[default]
    Free,
    /// `PKV_PAGE_HELD`.
    Held,
    /// `PKV_PAGE_CACHED`.
    Cached,
    /// A number that this version of the crate does not know.
    Other(i32),
}

impl PageState {
    /// The number, as in the C API.
    pub fn code(self) -> i32 {
        match self {
            Self::Free => sys::PKV_PAGE_FREE,
            Self::Held => sys::PKV_PAGE_HELD,
            Self::Cached => sys::PKV_PAGE_CACHED,
            Self::Other(code) => code,
        }
    }

    /// What a number of the C API stands for.
    pub fn from_code(code: i32) -> Self {
        match code {
            sys::PKV_PAGE_FREE => Self::Free,
            sys::PKV_PAGE_HELD => Self::Held,
            sys::PKV_PAGE_CACHED => Self::Cached,
            _ => Self::Other(code),
        }
    }
}

/// What the pages of a group lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Ids only
    #[default]
    None,
    /// The caller's
    Caller,
    /// Ordinary pages
    Pages,
    /// Transparent huge pages asked for, the kernel decides
    TransparentHuge,
    /// Reserved huge pages
    Hugetlb,
    /// Of a device, the pool's own
    Device,
    /// A number that this version of the crate does not know.
    Other(i32),
}

impl MemoryKind {
    /// The number, as in the C API.
    pub fn code(self) -> i32 {
        match self {
            Self::None => sys::PKV_MEMORY_KIND_NONE,
            Self::Caller => sys::PKV_MEMORY_KIND_CALLER,
            Self::Pages => sys::PKV_MEMORY_KIND_PAGES,
            Self::TransparentHuge => sys::PKV_MEMORY_KIND_TRANSPARENT_HUGE,
            Self::Hugetlb => sys::PKV_MEMORY_KIND_HUGETLB,
            Self::Device => sys::PKV_MEMORY_KIND_DEVICE,
            Self::Other(code) => code,
        }
    }

    /// What a number of the C API stands for.
    pub fn from_code(code: i32) -> Self {
        match code {
            sys::PKV_MEMORY_KIND_NONE => Self::None,
            sys::PKV_MEMORY_KIND_CALLER => Self::Caller,
            sys::PKV_MEMORY_KIND_PAGES => Self::Pages,
            sys::PKV_MEMORY_KIND_TRANSPARENT_HUGE => Self::TransparentHuge,
            sys::PKV_MEMORY_KIND_HUGETLB => Self::Hugetlb,
            sys::PKV_MEMORY_KIND_DEVICE => Self::Device,
            _ => Self::Other(code),
        }
    }
}

/// Where the seed of a pool's prefix keys comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum KeySeed {
    /// From the operating system, differs for each pool
    #[default]
    Random,
    /// Given in the options
    Fixed,
    /// A number that this version of the crate does not know.
    Other(i32),
}

impl KeySeed {
    /// The number, as in the C API.
    pub fn code(self) -> i32 {
        match self {
            Self::Random => sys::PKV_KEY_SEED_RANDOM,
            Self::Fixed => sys::PKV_KEY_SEED_FIXED,
            Self::Other(code) => code,
        }
    }

    /// What a number of the C API stands for.
    pub fn from_code(code: i32) -> Self {
        match code {
            sys::PKV_KEY_SEED_RANDOM => Self::Random,
            sys::PKV_KEY_SEED_FIXED => Self::Fixed,
            _ => Self::Other(code),
        }
    }
}

/// What happened to a block of the prefix index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum EventKind {
    /// A block became findable in a group
    #[default]
    Stored,
    /// A block's page of a group is not findable any more
    Removed,
    /// A namespace was cleared: `key` is its root's, the parent of its first blocks
    Cleared,
    /// A number that this version of the crate does not know.
    Other(i32),
}

impl EventKind {
    /// The number, as in the C API.
    pub fn code(self) -> i32 {
        match self {
            Self::Stored => sys::PKV_EVENT_STORED,
            Self::Removed => sys::PKV_EVENT_REMOVED,
            Self::Cleared => sys::PKV_EVENT_CLEARED,
            Self::Other(code) => code,
        }
    }

    /// What a number of the C API stands for.
    pub fn from_code(code: i32) -> Self {
        match code {
            sys::PKV_EVENT_STORED => Self::Stored,
            sys::PKV_EVENT_REMOVED => Self::Removed,
            sys::PKV_EVENT_CLEARED => Self::Cleared,
            _ => Self::Other(code),
        }
    }
}

/// How a file tier reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum IoEngine {
    /// io_uring where the system permits it, else threads
    #[default]
    Auto,
    /// io_uring, or `Status::Unsupported`
    Uring,
    /// pread and pwrite in threads
    Threads,
    /// A number that this version of the crate does not know.
    Other(i32),
}

impl IoEngine {
    /// The number, as in the C API.
    pub fn code(self) -> i32 {
        match self {
            Self::Auto => sys::PKV_IO_AUTO,
            Self::Uring => sys::PKV_IO_URING,
            Self::Threads => sys::PKV_IO_THREADS,
            Self::Other(code) => code,
        }
    }

    /// What a number of the C API stands for.
    pub fn from_code(code: i32) -> Self {
        match code {
            sys::PKV_IO_AUTO => Self::Auto,
            sys::PKV_IO_URING => Self::Uring,
            sys::PKV_IO_THREADS => Self::Threads,
            _ => Self::Other(code),
        }
    }
}

/// Which blocks of a sequence are predicted to be needed next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Prediction {
    /// The blocks from the position on
    #[default]
    Sequential,
    /// Every block: exact attention
    Full,
    /// The blocks with the highest scores: sparse attention
    Hinted,
    /// A number that this version of the crate does not know.
    Other(i32),
}

impl Prediction {
    /// The number, as in the C API.
    pub fn code(self) -> i32 {
        match self {
            Self::Sequential => sys::PKV_PREDICT_SEQUENTIAL,
            Self::Full => sys::PKV_PREDICT_FULL,
            Self::Hinted => sys::PKV_PREDICT_HINTED,
            Self::Other(code) => code,
        }
    }

    /// What a number of the C API stands for.
    pub fn from_code(code: i32) -> Self {
        match code {
            sys::PKV_PREDICT_SEQUENTIAL => Self::Sequential,
            sys::PKV_PREDICT_FULL => Self::Full,
            sys::PKV_PREDICT_HINTED => Self::Hinted,
            _ => Self::Other(code),
        }
    }
}

/// How serious a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LogLevel {
    /// Something failed that no call reports
    Error,
    /// The library goes on, but degraded (for example without huge pages)
    Warning,
    /// What was chosen at creation
    Info,
    /// A number that this version of the crate does not know.
    Other(i32),
}

impl LogLevel {
    /// The number, as in the C API.
    pub fn code(self) -> i32 {
        match self {
            Self::Error => sys::PKV_LOG_ERROR,
            Self::Warning => sys::PKV_LOG_WARNING,
            Self::Info => sys::PKV_LOG_INFO,
            Self::Other(code) => code,
        }
    }

    /// What a number of the C API stands for.
    pub fn from_code(code: i32) -> Self {
        match code {
            sys::PKV_LOG_ERROR => Self::Error,
            sys::PKV_LOG_WARNING => Self::Warning,
            sys::PKV_LOG_INFO => Self::Info,
            _ => Self::Other(code),
        }
    }
}

/// Whether an operation is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OpState {
    /// `PKV_OP_RUNNING`.
    #[default]
    Running,
    /// `PKV_OP_ENDED`.
    Ended,
    /// A number that this version of the crate does not know.
    Other(i32),
}

impl OpState {
    /// The number, as in the C API.
    pub fn code(self) -> i32 {
        match self {
            Self::Running => sys::PKV_OP_RUNNING,
            Self::Ended => sys::PKV_OP_ENDED,
            Self::Other(code) => code,
        }
    }

    /// What a number of the C API stands for.
    pub fn from_code(code: i32) -> Self {
        match code {
            sys::PKV_OP_RUNNING => Self::Running,
            sys::PKV_OP_ENDED => Self::Ended,
            _ => Self::Other(code),
        }
    }
}

/// What a fault hook asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Fault {
    /// Go on, with \*result as the hook left it
    #[default]
    None,
    /// As if the completion never came
    Drop,
    /// Deliver the completion twice
    Twice,
    /// Deliver it after the next one (or after 50 ms, whichever is first)
    Late,
    /// A number that this version of the crate does not know.
    Other(i32),
}

impl Fault {
    /// The number, as in the C API.
    pub fn code(self) -> i32 {
        match self {
            Self::None => sys::PKV_FAULT_NONE,
            Self::Drop => sys::PKV_FAULT_DROP,
            Self::Twice => sys::PKV_FAULT_TWICE,
            Self::Late => sys::PKV_FAULT_LATE,
            Self::Other(code) => code,
        }
    }

    /// What a number of the C API stands for.
    pub fn from_code(code: i32) -> Self {
        match code {
            sys::PKV_FAULT_NONE => Self::None,
            sys::PKV_FAULT_DROP => Self::Drop,
            sys::PKV_FAULT_TWICE => Self::Twice,
            sys::PKV_FAULT_LATE => Self::Late,
            _ => Self::Other(code),
        }
    }
}

/// What a batch asks of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TierRequestKind {
    /// `Ok` and the image's size, or `Status::NotFound`. With `TierBatch::pin` an image that is found stays until
    /// it is unpinned. Counts as a use of the image
    #[default]
    Lookup,
    /// `Ok` once the image can be found; `Status::NoSpace`; `Status::Io` ... An image that is there already is
    /// kept, and counts as stored. With `TierBatch::pin` it is pinned, too
    Store,
    /// `Ok` once sizes\[i\] bytes from offsets\[i\] on stand at data\[i\]; `Status::NotFound`; `Status::Io` ...
    /// Less than all of it is a failure
    Load,
    /// `Ok`, also when it is not there. Not while it is pinned: `Status::Busy`; with `TierBatch::force` also then
    /// (the image is known to be bad)
    Remove,
    /// Takes one pin back: `Ok`; `Status::NotFound`
    Unpin,
    /// Sets the retention of an image: `Ok`; `Status::NotFound`
    Retain,
    /// As `TierRequestKind::Lookup`, but is no use of the image and pins nothing
    Probe,
    /// Forgets all images with one of the tags (num_items tags, no keys), pinned ones too; the tag `TAG_ALL` stands
    /// for every image that is not private: `Ok`
    Clear,
    /// A number that this version of the crate does not know.
    Other(i32),
}

impl TierRequestKind {
    /// The number, as in the C API.
    pub fn code(self) -> i32 {
        match self {
            Self::Lookup => sys::PKV_TIER_LOOKUP,
            Self::Store => sys::PKV_TIER_STORE,
            Self::Load => sys::PKV_TIER_LOAD,
            Self::Remove => sys::PKV_TIER_REMOVE,
            Self::Unpin => sys::PKV_TIER_UNPIN,
            Self::Retain => sys::PKV_TIER_RETAIN,
            Self::Probe => sys::PKV_TIER_PROBE,
            Self::Clear => sys::PKV_TIER_CLEAR,
            Self::Other(code) => code,
        }
    }

    /// What a number of the C API stands for.
    pub fn from_code(code: i32) -> Self {
        match code {
            sys::PKV_TIER_LOOKUP => Self::Lookup,
            sys::PKV_TIER_STORE => Self::Store,
            sys::PKV_TIER_LOAD => Self::Load,
            sys::PKV_TIER_REMOVE => Self::Remove,
            sys::PKV_TIER_UNPIN => Self::Unpin,
            sys::PKV_TIER_RETAIN => Self::Retain,
            sys::PKV_TIER_PROBE => Self::Probe,
            sys::PKV_TIER_CLEAR => Self::Clear,
            _ => Self::Other(code),
        }
    }
}

/// When a pool stores images of published blocks in a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum WritePolicy {
    /// In the background, before they are evicted: see `PoolOptions::clean_pages`
    #[default]
    WriteBack,
    /// In the background, as soon as they are published
    WriteThrough,
    /// In the background, at the block's `hits`-th hit (lookup, admission)
    WriteOnHits,
    /// When the tier above is about to evict them (a host tier above it); what the tier above cannot hold back is
    /// dropped
    Demote,
    /// Never
    ReadOnly,
    /// A number that this version of the crate does not know.
    Other(i32),
}

impl WritePolicy {
    /// The number, as in the C API.
    pub fn code(self) -> i32 {
        match self {
            Self::WriteBack => sys::PKV_TIER_WRITE_BACK,
            Self::WriteThrough => sys::PKV_TIER_WRITE_THROUGH,
            Self::WriteOnHits => sys::PKV_TIER_WRITE_ON_HITS,
            Self::Demote => sys::PKV_TIER_DEMOTE,
            Self::ReadOnly => sys::PKV_TIER_READ_ONLY,
            Self::Other(code) => code,
        }
    }

    /// What a number of the C API stands for.
    pub fn from_code(code: i32) -> Self {
        match code {
            sys::PKV_TIER_WRITE_BACK => Self::WriteBack,
            sys::PKV_TIER_WRITE_THROUGH => Self::WriteThrough,
            sys::PKV_TIER_WRITE_ON_HITS => Self::WriteOnHits,
            sys::PKV_TIER_DEMOTE => Self::Demote,
            sys::PKV_TIER_READ_ONLY => Self::ReadOnly,
            _ => Self::Other(code),
        }
    }
}
