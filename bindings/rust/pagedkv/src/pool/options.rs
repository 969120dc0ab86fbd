// SPDX-License-Identifier: Apache-2.0
//! What a pool is made of.

use crate::codes::{DType, HugePages, Layout, WritePolicy};
use crate::device::{Device, InPlace};
use crate::error::{invalid, Result};
use crate::text::{address, count32, nanoseconds};
use crate::{Strides, Tier};
use pagedkv_sys as sys;
use std::{os::raw::c_void, ptr, time::Duration};

/// Order of the layers of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Arrangement {
    /// `[page, layer, K then V, ...]`: a page is contiguous over its layers
    #[default]
    PageMajor,
    /// `[layer, page, K then V, ...]`: one tensor a layer
    LayerMajor,
}

/// What the layers of a group attend to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Attention {
    /// All tokens
    #[default]
    Full,
    /// The last `window` tokens and the first `sinks`
    Window {
        /// Tokens of the window
        window: u32,
        /// First tokens that are always attended to
        sinks: u32,
    },
}

/// Where the bytes of pages are.
#[derive(Clone, Debug, Default)]
pub enum Memory {
    /// Allocated by the pool, zeroed
    #[default]
    Pool,
    /// The caller's tensors
    Caller(CallerMemory),
    /// Ids only: another process or device holds the bytes
    None,
}

/// Tensors of the caller's, as memory of a pool's pages.
#[derive(Clone, Debug)]
pub struct CallerMemory {
    k_base: Vec<*mut c_void>,
    v_base: Vec<*mut c_void>,
    k_strides: Strides,
    v_strides: Strides,
}

// Addresses; `new` says what has to hold of them.
unsafe impl Send for CallerMemory {}
unsafe impl Sync for CallerMemory {}

impl CallerMemory {
    /// * `k_base`: for each layer the address of page 0, token 0, head 0
    /// * `v_base`: the same for V; empty without V
    /// * `k_strides`, `v_strides`: all three, or none (all 0): dense
    ///
    /// # Safety
    /// The tensors must hold as many pages as the group has, at these addresses and distances, and must outlive the pool and
    /// its tables. Nobody else may write pages that the library reads, or read pages that it writes, at the same time.
    pub unsafe fn new(
        k_base: Vec<*mut c_void>, v_base: Vec<*mut c_void>, k_strides: Strides, v_strides: Strides,
    ) -> Self {
        Self { k_base, v_base, k_strides, v_strides }
    }
}

/// Factors that turn stored fp8 or int8 elements back: value = stored * scale.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Scales {
    /// Rows are stored as they come
    #[default]
    None,
    /// One for K and one for V of each layer
    Tensor {
        /// `[num_layers]`, above 0
        k: Vec<f32>,
        /// The same for V; empty without V
        v: Vec<f32>,
    },
    /// One for each head of each layer
    Head {
        /// `[num_layers, num_kv_heads]`, above 0
        k: Vec<f32>,
        /// The same for V; empty without V
        v: Vec<f32>,
    },
    /// One for each row, found while writing, kept beside the page
    TokenHead,
}

/// One layer group: layers that share geometry and attention kind.
#[derive(Clone, Debug, Default)]
pub struct GroupOptions {
    /// 1 .. 2^31-1
    pub num_pages: u64,
    /// Layers held here: 1 .. 4096
    pub num_layers: u32,
    /// The model's index of layer 0 of this shard (pipeline parallel)
    pub first_layer: u32,
    /// Layers of the group in the whole model; 0 = first_layer + num_layers
    pub total_layers: u32,
    /// KV heads held here: 1 .. 65536
    pub num_kv_heads: u32,
    /// The model's index of head 0 of this shard (tensor parallel)
    pub first_head: u32,
    /// KV heads of the whole model; 0 = first_head + num_kv_heads
    pub total_heads: u32,
    /// Elements of a K row; 0 with `DType::Opaque`
    pub k_head_dim: u32,
    /// Elements of a V row; 0 = no V (latent caches as in MLA)
    pub v_head_dim: u32,
    /// Type of the elements
    pub dtype: DType,
    /// `DType::Opaque`: bytes of a K row; else 0
    pub k_row_bytes: u32,
    /// `DType::Opaque`: bytes of a V row, 0 = no V; else 0
    pub v_row_bytes: u32,
    /// Order inside one layer of one page
    pub layout: Layout,
    /// Order of the layers; for `Memory::Pool` only
    pub arrangement: Arrangement,
    /// What the layers attend to
    pub attention: Attention,
    /// Where the bytes are
    pub memory: Memory,
    /// `Memory::Pool`: bytes from page to page, if more than dense: those between pages are never touched; 0 = dense
    pub page_stride: u64,
    /// At most this many cached pages, the rest is evicted at once; 0 = no limit
    pub max_cached_pages: u64,
    /// Only with fp8 and int8
    pub scales: Scales,
    /// Bytes of the caller's own beside each page ([`Pool::aux`](crate::Pool::aux)), up to 2^20; copied with it
    pub aux_bytes: u32,
}

impl GroupOptions {
    /// What points to this stays valid as long as it does.
    fn raw(&self, index: usize) -> Result<sys::pkv_group_options> {
        let mut raw = sys::PKV_GROUP_OPTIONS_INIT;
        raw.num_pages = self.num_pages;
        raw.num_layers = self.num_layers;
        raw.first_layer = self.first_layer;
        raw.total_layers = self.total_layers;
        raw.num_kv_heads = self.num_kv_heads;
        raw.first_head = self.first_head;
        raw.total_heads = self.total_heads;
        raw.k_head_dim = self.k_head_dim;
        raw.v_head_dim = self.v_head_dim;
        raw.dtype = self.dtype.code();
        raw.k_row_bytes = self.k_row_bytes;
        raw.v_row_bytes = self.v_row_bytes;
        raw.layout = self.layout.code();
        raw.arrangement = match self.arrangement {
            Arrangement::PageMajor => sys::PKV_PAGE_MAJOR,
            Arrangement::LayerMajor => sys::PKV_LAYER_MAJOR,
        };
        if let Attention::Window { window, sinks } = self.attention {
            raw.attention = sys::PKV_ATTENTION_WINDOW;
            raw.window = window;
            raw.sinks = sinks;
        }
        raw.k_strides.page = self.page_stride;
        self.fill_memory(&mut raw, index)?;
        raw.max_cached_pages = self.max_cached_pages;
        self.fill_scales(&mut raw, index)?;
        raw.aux_bytes = self.aux_bytes;
        Ok(raw)
    }

    fn has_v(&self) -> bool {
        self.v_head_dim != 0 || self.v_row_bytes != 0
    }

    fn fill_memory(&self, raw: &mut sys::pkv_group_options, index: usize) -> Result<()> {
        match &self.memory {
            Memory::Pool => {}
            Memory::None => raw.memory = sys::PKV_MEMORY_NONE,
            Memory::Caller(memory) => {
                let want_v = if self.has_v() { self.num_layers } else { 0 };
                self.check_length(index, "k_base", memory.k_base.len(), u64::from(self.num_layers))?;
                self.check_length(index, "v_base", memory.v_base.len(), u64::from(want_v))?;
                raw.memory = sys::PKV_MEMORY_CALLER;
                raw.k_base = address(&memory.k_base);
                raw.v_base = address(&memory.v_base);
                raw.k_strides = memory.k_strides.into();
                raw.v_strides = memory.v_strides.into();
            }
        }
        Ok(())
    }

    fn fill_scales(&self, raw: &mut sys::pkv_group_options, index: usize) -> Result<()> {
        let (kind, k, v, of_each) = match &self.scales {
            Scales::None => return Ok(()),
            Scales::TokenHead => {
                raw.scales = sys::PKV_SCALES_TOKEN_HEAD;
                return Ok(());
            }
            Scales::Tensor { k, v } => (sys::PKV_SCALES_TENSOR, k, v, 1),
            Scales::Head { k, v } => (sys::PKV_SCALES_HEAD, k, v, u64::from(self.num_kv_heads)),
        };
        let want = u64::from(self.num_layers) * of_each;
        self.check_length(index, "scales of K", k.len(), want)?;
        self.check_length(index, "scales of V", v.len(), if self.has_v() { want } else { 0 })?;
        raw.scales = kind;
        raw.k_scales = address(k);
        raw.v_scales = address(v);
        Ok(())
    }

    fn check_length(&self, index: usize, name: &str, have: usize, want: u64) -> Result<()> {
        if have as u64 == want {
            return Ok(());
        }
        invalid(format!("groups[{}]: {} has {} entries, not {}", index, name, have, want))
    }
}

/// A tier below a pool.
#[derive(Clone, Debug)]
pub struct TierAttachment<'a> {
    /// The tier. It stays open as long as the pool lives
    pub tier: &'a Tier,
    /// When images are stored in it
    pub policy: WritePolicy,
    /// `WritePolicy::WriteOnHits`: 1 .. 1000
    pub hits: u32,
    /// An image that was loaded into the pool is removed from the tier: it holds what the pool does not. Without it the image
    /// stays, and the page need not be stored again
    pub exclusive: bool,
    /// Longest wait for an answer of the tier, where a call has none of its own; zero = one second
    pub timeout: Duration,
}

impl<'a> TierAttachment<'a> {
    /// A tier, with the defaults of the rest.
    pub fn new(tier: &'a Tier) -> Self {
        Self { tier, policy: WritePolicy::default(), hits: 0, exclusive: false, timeout: Duration::ZERO }
    }

    /// A tier that is read and never written.
    pub fn read_only(tier: &'a Tier) -> Self {
        Self { policy: WritePolicy::ReadOnly, ..Self::new(tier) }
    }

    fn raw(&self) -> sys::pkv_tier_attachment {
        let mut raw = sys::PKV_TIER_ATTACHMENT_INIT;
        raw.tier = self.tier.as_raw();
        raw.policy = self.policy.code();
        raw.hits = self.hits;
        raw.flags = if self.exclusive { sys::PKV_TIER_EXCLUSIVE } else { 0 };
        raw.timeout_ns = nanoseconds(self.timeout);
        raw
    }
}

/// What a pool is made of; see [`Pool::new`](crate::Pool::new).
#[derive(Clone, Debug, Default)]
pub struct PoolOptions<'a> {
    /// Tokens of a page: 1 .. 65536
    pub page_tokens: u32,
    /// 1 .. 8 layer groups
    pub groups: Vec<GroupOptions>,
    /// Memory of the pool's own in huge pages
    pub huge_pages: HugePages,
    /// Helper threads for large writes and gathers, up to 256; 0 = the calling thread alone
    pub copy_threads: u32,
    /// Of the prefix keys; 0 = random, from the operating system
    pub seed: u64,
    /// For tests of an integration: every prefix key gets the same hash, which shows that collisions are only misses
    pub debug_equal_keys: bool,
    /// For tests of an integration: pages are filled with 0xFF when the pool is made and when they become free
    pub debug_poison: bool,
    /// For tests of an integration with a device: pages that work under a stream may still use are given out like others, instead of
    /// last, which shows that what uses them next is ordered after that work
    pub debug_hot_pages: bool,
    /// Events kept for [`Pool::events`](crate::Pool::events), up to 2^24; 0 = none are recorded
    pub event_capacity: u32,
    /// Tiers in the order in which they are asked, the fastest first; up to 4. Every group needs memory then
    pub tiers: Vec<TierAttachment<'a>>,
    /// With tiers: a cached page whose image is in no tier yet is not evicted: while one of the group waits to be stored, calls
    /// that would have to evict give `Status::Again`. Without it such pages are dropped and counted
    pub keep_unstored: bool,
    /// `WritePolicy::WriteBack`: pages of each group that the pool tries to have free, or cached with their images stored; 0 =
    /// a quarter of the group's. More makes evictions lose less, fewer makes fewer stores
    pub clean_pages: u64,
    /// Memory for images on their way; 0 = 32 MiB. At least 8 images
    pub staging_bytes: u64,
    /// Where pages lie: `Memory::Pool` is allocated there, `Memory::Caller` are tensors there
    pub device: Device,
    /// On a device: the stream of the kernels that use pages in place; none: calls that hand out ids wait, if they have to, until what
    /// they hand out is ready for everybody
    pub in_place: Option<InPlace>,
    /// Thread blocks that a transfer to or from tiers may take on the device, so that it leaves multiprocessors to others; 0 = no bound
    pub transfer_blocks: u32,
}

impl PoolOptions<'_> {
    /// Calls a function with what C takes, which lives that long.
    pub(crate) fn with_raw<T>(&self, call: impl FnOnce(&sys::pkv_pool_options) -> Result<T>) -> Result<T> {
        let groups = self.groups.iter().enumerate().map(|(i, group)| group.raw(i)).collect::<Result<Vec<_>>>()?;
        let tiers: Vec<_> = self.tiers.iter().map(TierAttachment::raw).collect();
        let mut raw = sys::PKV_POOL_OPTIONS_INIT;
        raw.page_tokens = self.page_tokens;
        raw.num_groups = count32(groups.len(), "groups")?;
        raw.groups = address(&groups);
        raw.huge_pages = self.huge_pages.code();
        raw.copy_threads = self.copy_threads;
        raw.seed = self.seed;
        raw.debug |= if self.debug_equal_keys { sys::PKV_DEBUG_EQUAL_KEYS } else { 0 };
        raw.debug |= if self.debug_poison { sys::PKV_DEBUG_POISON } else { 0 };
        raw.debug |= if self.debug_hot_pages { sys::PKV_DEBUG_HOT_PAGES } else { 0 };
        raw.event_capacity = self.event_capacity;
        raw.tiers = if tiers.is_empty() { ptr::null() } else { tiers.as_ptr() };
        raw.num_tiers = count32(tiers.len(), "tiers")?;
        raw.flags = if self.keep_unstored { sys::PKV_POOL_KEEP_UNSTORED } else { 0 };
        raw.clean_pages = self.clean_pages;
        raw.staging_bytes = self.staging_bytes;
        let (kind, index) = self.device.raw();
        raw.device = kind;
        raw.device_index = index;
        let stream = self.in_place.as_ref().map(InPlace::raw);
        raw.in_place = stream.as_ref().map_or(ptr::null(), |stream| stream);
        raw.transfer_blocks = self.transfer_blocks;
        call(&raw)
    }
}
