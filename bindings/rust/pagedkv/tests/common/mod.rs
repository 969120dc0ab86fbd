// SPDX-License-Identifier: Apache-2.0
//! What tests have in common: small pools, and rows whose bytes say where they belong.
#![allow(dead_code)]

use pagedkv::*;
use std::{path::PathBuf, time::Duration};

pub const LAYERS: u32 = 2;
pub const HEADS: usize = 2;
pub const DIM: usize = 4;
/// Elements of a token in a layer.
pub const ROW: usize = HEADS * DIM;
pub const PAGE_TOKENS: u64 = 16;
pub const LONG: Duration = Duration::from_secs(30);

pub fn group(num_pages: u64) -> GroupOptions {
    GroupOptions {
        num_pages,
        num_layers: LAYERS,
        num_kv_heads: HEADS as u32,
        k_head_dim: DIM as u32,
        v_head_dim: DIM as u32,
        dtype: DType::F32,
        ..Default::default()
    }
}

pub fn options<'a>(num_pages: u64) -> PoolOptions<'a> {
    PoolOptions { page_tokens: PAGE_TOKENS as u32, groups: vec![group(num_pages)], ..Default::default() }
}

pub fn pool(num_pages: u64) -> Pool {
    Pool::new(&options(num_pages)).unwrap()
}

pub fn pool_over(num_pages: u64, tiers: Vec<TierAttachment<'_>>) -> Pool {
    Pool::new(&PoolOptions { tiers, ..options(num_pages) }).unwrap()
}

/// A tier that is waited for as long as it takes, however busy the machine is.
pub fn attached(tier: &Tier) -> TierAttachment<'_> {
    TierAttachment { timeout: LONG, ..TierAttachment::new(tier) }
}

pub fn host_tier(bytes: u64) -> Tier {
    Tier::open_host(&HostTierOptions { capacity_bytes: bytes, ..Default::default() }).unwrap()
}

/// Tokens that no other sequence has.
pub fn tokens(sequence: i32, count: u64) -> Vec<Token> {
    (0..count as i32).map(|t| sequence * 100_000 + t).collect()
}

/// K (side 0) or V (side 1) of a range of tokens in a layer: a function of the token and its place.
pub fn rows(tokens: &[Token], first: u64, end: u64, layer: u32, side: u32) -> Vec<f32> {
    let mut out = Vec::with_capacity((end - first) as usize * ROW);
    for t in first..end {
        for i in 0..ROW {
            out.push(
                tokens[t as usize] as f32 + t as f32 * 0.5 + layer as f32 * 1000.0 + side as f32 * 100.0 + i as f32,
            );
        }
    }
    out
}

/// Writes a range in all layers and commits it.
pub fn fill(table: &mut Table, tokens: &[Token], first: u64, end: u64) {
    for layer in 0..LAYERS {
        let (k, v) = (rows(tokens, first, end, layer, 0), rows(tokens, first, end, layer, 1));
        table.write(0, layer, first..end, Rows::of(&k), Some(Rows::of(&v)), NOW).unwrap();
    }
    table.commit(end, NOW).unwrap();
}

/// Gathers the first tokens in all layers and compares every bit.
pub fn verify(table: &mut Table, tokens: &[Token], end: u64) {
    for layer in 0..LAYERS {
        let (mut k, mut v) = (vec![f32::NAN; end as usize * ROW], vec![f32::NAN; end as usize * ROW]);
        table.gather(0, layer, 0..end, Some(RowsMut::of(&mut k)), Some(RowsMut::of(&mut v)), NOW).unwrap();
        assert_eq!(k, rows(tokens, 0, end, layer, 0), "K of layer {}", layer);
        assert_eq!(v, rows(tokens, 0, end, layer, 1), "V of layer {}", layer);
    }
}

/// A sequence that is computed and published, but for what was found.
pub fn computed(pool: &Pool, tokens: &[Token]) -> Table {
    let mut table = pool.table().unwrap();
    let found =
        table.admit(&Prompt::new(tokens), &AdmitOptions { max_match: MATCH_ALL, ..Default::default() }).unwrap();
    let end = tokens.len() as u64;
    if found.tokens < end {
        fill(&mut table, tokens, found.tokens, end);
    }
    table
}

pub fn status<T>(result: Result<T>) -> Status {
    match result {
        Ok(_) => panic!("the call succeeded"),
        Err(error) => {
            assert!(!error.message().is_empty(), "{} without a message", error.status());
            error.status()
        }
    }
}

/// A path of this test's own; nothing is there.
pub fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{}", name, std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// Removes what a test leaves, also when it fails.
pub struct Scratch(pub PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// As `mem::forget`, but not a leak to those who look for leaks.
pub fn leak<T>(value: T) {
    static LEAKED: std::sync::Mutex<Vec<usize>> = std::sync::Mutex::new(Vec::new());
    LEAKED.lock().unwrap().push(Box::into_raw(Box::new(value)) as usize);
}

/// Under valgrind everything takes long, and a child has leaks of its own.
pub fn under_valgrind() -> bool {
    std::env::var_os("PAGEDKV_VALGRIND").is_some()
}

/// Nothing of a pool is in use any more.
pub fn assert_nothing_held(pool: &Pool) {
    let stats = pool.stats(0).unwrap();
    assert_eq!((stats.held_pages, stats.tables), (0, 0));
    assert_eq!(stats.free_pages + stats.cached_pages, stats.num_pages);
}
