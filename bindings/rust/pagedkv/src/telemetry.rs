// SPDX-License-Identifier: Apache-2.0
//! Statistics as text, traces, and messages of the library.

use crate::codes::LogLevel;
use crate::error::{check, Result};
use crate::guard::guard;
use crate::pool::filled;
use crate::prefetch::Monitor;
use crate::text::{address, c_string};
use crate::{Node, Pool, Tier};
use pagedkv_sys as sys;
use std::{
    ffi::{CStr, CString},
    marker::PhantomData,
    os::raw::{c_char, c_void},
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr,
    sync::{Arc, PoisonError, RwLock},
};

/// Statistics in the text format of Prometheus (version 0.0.4): names begin with pagedkv_, counters end in _total, times are
/// seconds, sizes bytes. The names given here become labels.
///
/// ```
/// # use pagedkv::*;
/// # fn main() -> pagedkv::Result<()> {
/// # let model = GroupOptions { num_pages: 64, num_layers: 1, num_kv_heads: 1, k_head_dim: 4, ..Default::default() };
/// # let pool = Pool::new(&PoolOptions { page_tokens: 16, groups: vec![model], ..Default::default() })?;
/// let text = Prometheus::new().pool("main", &pool).render()?;
/// assert!(text.contains("pagedkv_pool_pages{pool=\"main\""));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Prometheus<'a> {
    pools: Vec<(String, *mut sys::pkv_pool)>,
    tiers: Vec<(String, *mut sys::pkv_tier)>,
    sessions: Vec<(String, *mut sys::pkv_prefetch)>,
    nodes: Vec<(String, *mut sys::pkv_node)>,
    borrowed: PhantomData<&'a Pool>,
}

/// Handles and names, each in a list of its own.
type Lists<T> = (Vec<*mut T>, Vec<CString>);

impl<'a> Prometheus<'a> {
    /// About nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// About a pool, too.
    pub fn pool(mut self, name: impl Into<String>, pool: &'a Pool) -> Self {
        self.pools.push((name.into(), pool.as_raw()));
        self
    }

    /// About a tier, too.
    pub fn tier(mut self, name: impl Into<String>, tier: &'a Tier) -> Self {
        self.tiers.push((name.into(), tier.as_raw()));
        self
    }

    /// About a session, too.
    pub fn session(mut self, name: impl Into<String>, session: Monitor) -> Self {
        self.sessions.push((name.into(), session.raw()));
        self
    }

    /// About a node, too.
    pub fn node(mut self, name: impl Into<String>, node: &'a Node) -> Self {
        self.nodes.push((name.into(), node.as_raw()));
        self
    }

    fn lists<T>(of: &[(String, *mut T)]) -> Result<Lists<T>> {
        let names = of.iter().map(|(name, _)| c_string(name.as_str(), "name")).collect::<Result<_>>()?;
        Ok((of.iter().map(|&(_, raw)| raw).collect(), names))
    }

    /// The text.
    ///
    /// Fails with `Status::Invalid` for names longer than 256 bytes.
    pub fn render(&self) -> Result<String> {
        let (pools, pool_names) = Self::lists(&self.pools)?;
        let (tiers, tier_names) = Self::lists(&self.tiers)?;
        let (sessions, session_names) = Self::lists(&self.sessions)?;
        let (nodes, node_names) = Self::lists(&self.nodes)?;
        let pointers = |names: &[CString]| names.iter().map(|name| name.as_ptr()).collect::<Vec<_>>();
        let names = [&pool_names, &tier_names, &session_names, &node_names].map(|names| pointers(names));
        let mut raw = sys::PKV_PROMETHEUS_SOURCES_INIT;
        raw.pools = address(&pools);
        raw.pool_names = address(&names[0]);
        raw.num_pools = pools.len() as u64;
        raw.tiers = address(&tiers);
        raw.tier_names = address(&names[1]);
        raw.num_tiers = tiers.len() as u64;
        raw.sessions = address(&sessions);
        raw.session_names = address(&names[2]);
        raw.num_sessions = sessions.len() as u64;
        raw.nodes = address(&nodes);
        raw.node_names = address(&names[3]);
        raw.num_nodes = nodes.len() as u64;
        let mut size = 0;
        check(unsafe { sys::pkv_stats_prometheus(&raw, ptr::null_mut(), 0, &mut size) })?;
        loop {
            // Numbers grow between two calls.
            let mut buffer = filled(0u8, usize::try_from(size + 256).ok(), "bytes")?;
            let (capacity, out) = (buffer.len() as u64, buffer.as_mut_ptr() as *mut c_char);
            match unsafe { sys::pkv_stats_prometheus(&raw, out, capacity, &mut size) } {
                sys::PKV_ERR_NO_SPACE => continue,
                status => check(status)?,
            }
            buffer.truncate((size as usize).saturating_sub(1));
            return Ok(String::from_utf8_lossy(&buffer).into_owned());
        }
    }
}

/// A recording of what prefetch sessions, and loads that calls wait for, do in time. There is one at a time in a process. It ends,
/// and nothing is written, when it is dropped.
#[derive(Debug)]
pub struct Trace(());

impl Trace {
    /// Begins to record.
    ///
    /// * `max_events`: events kept, 1 .. 2^24; 0 = 2^20. Later ones are dropped and counted
    ///
    /// Fails with `Status::State` while one is recorded; `Status::Limit`.
    pub fn start(max_events: u64) -> Result<Self> {
        check(unsafe { sys::pkv_trace_start(max_events) })?;
        Ok(Self(()))
    }

    /// Ends the recording and writes it: JSON in the Trace Event Format, which <https://ui.perfetto.dev> loads. Returns how many
    /// events found no room.
    ///
    /// Fails with `Status::Io` and the system's reason; the recording has ended all the same.
    pub fn stop(self, path: impl AsRef<Path>) -> Result<u64> {
        let path = c_string(path.as_ref().as_os_str().as_bytes(), "path")?;
        std::mem::forget(self);
        let mut dropped = 0;
        check(unsafe { sys::pkv_trace_stop(path.as_ptr(), &mut dropped) })?;
        Ok(dropped)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        unsafe { sys::pkv_trace_stop(ptr::null(), ptr::null_mut()) };
    }
}

type Receiver = dyn Fn(LogLevel, &str) + Send + Sync;

static RECEIVER: RwLock<Option<Arc<Receiver>>> = RwLock::new(None);

/// Sets the process-wide receiver of messages of `max_level` and more serious ones. It is called on the thread that is inside the
/// library and must not call back into it; a panic in it is caught. A message already on its way may still reach the former
/// receiver while this returns.
pub fn set_log(max_level: LogLevel, receiver: impl Fn(LogLevel, &str) + Send + Sync + 'static) {
    let former = RECEIVER.write().unwrap_or_else(PoisonError::into_inner).replace(Arc::new(receiver));
    unsafe { sys::pkv_set_log(Some(on_message), ptr::null_mut(), max_level.code()) };
    drop(former);
}

/// Turns messages off, as at start.
pub fn clear_log() {
    unsafe { sys::pkv_set_log(None, ptr::null_mut(), 0) };
    let former = RECEIVER.write().unwrap_or_else(PoisonError::into_inner).take();
    drop(former);
}

unsafe extern "C" fn on_message(_user: *mut c_void, level: i32, message: *const c_char) {
    let message = CStr::from_ptr(message).to_string_lossy();
    guard(|| {
        // Called with no lock held, so that it may set another receiver.
        let receiver = RECEIVER.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(receiver) = receiver {
            receiver(LogLevel::from_code(level), &message);
        }
    });
}
