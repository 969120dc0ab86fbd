// SPDX-License-Identifier: Apache-2.0
//! Operations without an object, and those of pools.

use crate::line::Line;
use crate::objects::{dead_op, dead_pool, Case, Thing};
use crate::rows::{with_raw_prompt, PromptParts, RowBytes, DTYPES};
use crate::{low, Ran};
use pagedkv::*;
use pagedkv_sys as sys;
use std::{sync::atomic::Ordering, time::Duration};

pub fn run(case: &mut Case, line: &Line) -> Option<Ran> {
    Some(match &line.op[..] {
        "version" => {
            line.out("number", unsafe { sys::pkv_version_number() });
            line.out("text", version());
            Ok(())
        }
        "status_name" => status_name(line),
        "dtype_bytes" => {
            line.out("bytes", DType::from_code(line.name("dtype", &DTYPES, 1, 0)).bytes());
            Ok(())
        }
        "digest" => digest_of(line),
        "counter" => counter(case, line),
        "predict" => predict(line),
        "group" => {
            let group = group_args(line);
            case.make(line, "group", Thing::Group(group));
            Ok(())
        }
        "pool.create" => create(case, line),
        "pool.destroy" => destroy(case, line),
        "pool.quiesce" => case.pool(line).quiesce(timeout(line, 0)),
        "pool.flush" => case.pool(line).flush(timeout(line, 0)),
        "pool.layout" => layout(case, line),
        "pool.alloc" => {
            case.pool(line).alloc(line.number32("group"), line.number("num_pages", 0) as usize).map(|pages| {
                line.out_pages("pages", &pages);
                pages.into_ids();
            })
        }
        "pool.retain" => case.pool(line).retain(line.number32("group"), &line.list32("pages")).map(|pages| {
            pages.into_ids();
        }),
        "pool.release" => release(case, line),
        "pool.page_info" => page_info(case, line),
        "pool.lookup" => lookup(case, line),
        "pool.probe" => {
            let (pool, max_match) = (case.pool(line), line.number("max_match", 0));
            PromptParts::of(line).with(|prompt, _| pool.probe(prompt, max_match)).map(|found| out_match(line, &found))
        }
        "pool.publish" => {
            let (pool, group, pages) = (case.pool(line), line.number32("group"), line.list32("pages"));
            let first = line.number("first_block", 0);
            let owners = PromptParts::of(line).with(|prompt, _| pool.publish(group, prompt, first, &pages));
            owners.map(|owners| line.out_pages("owner", &owners))
        }
        "pool.evict" => {
            let evicted = case.pool(line).evict(line.number32("group"), line.number("num_pages", 0));
            evicted.map(|evicted| line.out("evicted", evicted))
        }
        "pool.set_retention" => {
            let (pool, retention, tokens) = (case.pool(line), retention(line), token_range(line));
            let blocks = PromptParts::of(line).with(|prompt, _| pool.set_retention(prompt, tokens, &retention));
            blocks.map(|blocks| line.out("blocks", blocks))
        }
        "pool.set_namespace_retention" => {
            let (pool, retention, none) = (case.pool(line), retention(line), line.number("none", 0) != 0);
            PromptParts::of(line).with(|_, ns| pool.set_namespace_retention(ns, Some(&retention).filter(|_| !none)))
        }
        "pool.clear" => {
            let (pool, all) = (case.pool(line), line.number("all", 0) != 0);
            let result = if all { pool.clear_all() } else { PromptParts::of(line).with(|_, ns| pool.clear(ns)) };
            result.map(|result| {
                line.out("freed", result.freed);
                line.out("held", result.held);
            })
        }
        "pool.keys" => keys(case, line),
        "pool.image_keys" => image_keys(case, line),
        "pool.events" => events(case, line),
        "pool.write" => write(case, line),
        "pool.gather" => gather(case, line),
        "pool.copy_pages" => {
            let when = case.when(line);
            case.pool(line).copy_pages(line.number32("group"), &line.list32("src"), &line.list32("dst"), when)
        }
        "pool.stats" => stats(case, line),
        "pool.store" | "pool.load" => store_or_load(case, line),
        _ => return None,
    })
}

pub fn timeout(line: &Line, otherwise: u64) -> Duration {
    match line.number("timeout", otherwise) {
        u64::MAX => Duration::MAX,
        nanoseconds => Duration::from_nanos(nanoseconds),
    }
}

pub fn retention(line: &Line) -> Retention {
    Retention {
        priority: line.number("priority", u64::from(PRIORITY_DEFAULT)) as u32,
        pin: line.number("pin", 0) != 0,
        ttl: Duration::from_nanos(line.number("ttl", 0)),
    }
}

/// first_token, and num_tokens that are all if nothing is said.
pub fn token_range(line: &Line) -> std::ops::Range<u64> {
    let first = line.number("first_token", 0);
    first..first.saturating_add(line.number("num_tokens", u64::MAX))
}

pub fn out_match(line: &Line, found: &Match) {
    line.out("match", found.tokens);
    line.out("blocks", found.blocks);
    line.out("resident", found.resident_tokens);
    line.out("tier0", found.tier_tokens[0]);
    line.out("tier1", found.tier_tokens[1]);
}

fn status_name(line: &Line) -> Ran {
    let number = line.number("number", 0) as i32;
    // PKV_OK is no Status.
    let name = if number == sys::PKV_OK { "PKV_OK".to_string() } else { Status::from_code(number).to_string() };
    line.out("name", name);
    Ok(())
}

fn digest_of(line: &Line) -> Ran {
    let parts: Vec<Vec<u8>> = line.text("parts").unwrap_or("").split(',').map(|part| line.bytes_of(part)).collect();
    let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
    let digest = digest(&parts)?;
    line.out("digest", digest.iter().map(|byte| format!("{:02x}", byte)).collect::<String>());
    Ok(())
}

fn counter(case: &mut Case, line: &Line) -> Ran {
    let value = line.number("value", 0);
    match line.text("counter").and_then(|name| case.find_counter(name)) {
        Some(counter) => counter.store(value, Ordering::Release),
        None => case.make(line, "counter", Thing::Counter(value.into())),
    }
    Ok(())
}

fn predict(line: &Line) -> Ran {
    let policy = Prediction::from_code(line.name("policy", &["sequential", "full", "hinted"], 0, 0));
    let predictor = Predictor {
        policy,
        page_tokens: line.number("page_tokens", 16) as u32,
        sink_tokens: line.number("sink_tokens", 0),
        recent_tokens: line.number("recent_tokens", 0),
        lookahead: line.number("lookahead", 0),
    };
    let scores: Vec<f32> = line.list("scores").into_iter().map(|score| score as f32).collect();
    let (num_tokens, position) = (line.number("num_tokens", 0), line.number("position", 0));
    if !line.has("capacity") {
        let blocks = predictor.predict(num_tokens, position, &scores)?;
        line.out("num_blocks", blocks.len());
        line.out_list("blocks", &blocks);
        return Ok(());
    }
    // The safe crate asks for the number, and has buffers of that size.
    let capacity = line.number("capacity", 64);
    let mut raw = sys::PKV_PREDICTOR_INIT;
    raw.policy = predictor.policy.code();
    raw.page_tokens = predictor.page_tokens;
    raw.sink_tokens = predictor.sink_tokens;
    raw.recent_tokens = predictor.recent_tokens;
    raw.lookahead = predictor.lookahead;
    let (mut blocks, mut count) = (vec![0u64; capacity as usize + 1], 0);
    let status = unsafe {
        let (num_scores, scores) = (scores.len() as u64, scores.as_ptr());
        sys::pkv_prefetch_predict(
            &raw,
            num_tokens,
            position,
            num_scores,
            scores,
            blocks.as_mut_ptr(),
            capacity,
            &mut count,
        )
    };
    line.out("num_blocks", count);
    if status == sys::PKV_OK && capacity != 0 {
        line.out_list("blocks", &blocks[..count as usize]);
    }
    low(status)
}

fn group_args(line: &Line) -> GroupOptions {
    let name = |key, names: &[&str]| line.name(key, names, 0, 0);
    let window = Attention::Window { window: line.number32("window"), sinks: line.number32("sinks") };
    GroupOptions {
        num_pages: line.number("num_pages", 0),
        num_layers: line.number32("num_layers"),
        first_layer: line.number32("first_layer"),
        total_layers: line.number32("total_layers"),
        num_kv_heads: line.number32("num_kv_heads"),
        first_head: line.number32("first_head"),
        total_heads: line.number32("total_heads"),
        k_head_dim: line.number32("k_head_dim"),
        v_head_dim: line.number32("v_head_dim"),
        dtype: DType::from_code(line.name("dtype", &DTYPES, 1, DType::F16.code())),
        k_row_bytes: line.number32("k_row_bytes"),
        v_row_bytes: line.number32("v_row_bytes"),
        layout: Layout::from_code(name("layout", &["nhd", "hnd"])),
        arrangement: match name("arrangement", &["page_major", "layer_major"]) {
            0 => Arrangement::PageMajor,
            _ => Arrangement::LayerMajor,
        },
        attention: if name("attention", &["full", "window"]) == 0 { Attention::Full } else { window },
        memory: if name("memory", &["pool", "caller", "none"]) == 2 { Memory::None } else { Memory::Pool },
        page_stride: line.number("k_page_stride", 0),
        max_cached_pages: line.number("max_cached_pages", 0),
        scales: match name("scales", &["none", "tensor", "head", "token_head"]) {
            3 => Scales::TokenHead,
            _ => Scales::None,
        },
        aux_bytes: line.number32("aux_bytes"),
    }
}

/// TIER:POLICY/...
fn attachments<'t>(case: &Case, line: &Line) -> Vec<TierAttachment<'t>> {
    const POLICIES: [&str; 5] = ["write_back", "write_through", "write_on_hits", "demote", "read_only"];
    let hits = line.number32("hits");
    let one = |one: &str| {
        let (name, policy) = one.split_once(':')?;
        let policy = WritePolicy::from_code(line.name_of(policy, &POLICIES, 0));
        Some(TierAttachment { policy, hits, ..TierAttachment::new(case.find_tier(name)?) })
    };
    let list = line.text("tiers").unwrap_or("").split('/').filter(|part| !part.is_empty());
    let tiers = list.map(|part| one(part).or_else(|| panic!("tiers={}", part)));
    tiers.flatten().collect()
}

fn create(case: &mut Case, line: &Line) -> Ran {
    let groups = match line.text("groups") {
        None => vec![group_args(line)],
        Some(names) => names.split(',').filter_map(|name| case.find_group(name)).map(|group| group.clone()).collect(),
    };
    let (debug, flags) = (line.number32("debug"), line.number32("flags"));
    let options = PoolOptions {
        page_tokens: line.number32("page_tokens"),
        groups,
        seed: line.number("seed", 0),
        debug_equal_keys: debug & sys::PKV_DEBUG_EQUAL_KEYS != 0,
        debug_poison: debug & sys::PKV_DEBUG_POISON != 0,
        event_capacity: line.number32("event_capacity"),
        copy_threads: line.number32("copy_threads"),
        keep_unstored: flags & sys::PKV_POOL_KEEP_UNSTORED != 0,
        clean_pages: line.number("clean_pages", 0),
        tiers: attachments(case, line),
        ..Default::default()
    };
    let known =
        debug & !(sys::PKV_DEBUG_EQUAL_KEYS | sys::PKV_DEBUG_POISON) == 0 && flags & !sys::PKV_POOL_KEEP_UNSTORED == 0;
    let made = if known { Pool::new(&options) } else { create_with(&options, debug, flags) };
    case.keep(line, "pool", made, dead_pool, Thing::Pool)
}

/// With bits that the safe crate has no names for.
fn create_with(options: &PoolOptions<'_>, debug: u32, flags: u32) -> Result<Pool> {
    let mut group = sys::PKV_GROUP_OPTIONS_INIT;
    let of = &options.groups[0];
    group.num_pages = of.num_pages;
    group.num_layers = of.num_layers;
    group.num_kv_heads = of.num_kv_heads;
    group.k_head_dim = of.k_head_dim;
    group.v_head_dim = of.v_head_dim;
    let mut raw = sys::PKV_POOL_OPTIONS_INIT;
    raw.page_tokens = options.page_tokens;
    raw.num_groups = 1;
    raw.groups = &group;
    raw.debug = debug;
    raw.flags = flags;
    let mut pool = std::ptr::null_mut();
    low(unsafe { sys::pkv_pool_create(&raw, &mut pool) })?;
    Ok(unsafe { Pool::from_raw(pool) })
}

fn destroy(case: &mut Case, line: &Line) -> Ran {
    let pool = case.pool(line);
    let raw = pool.as_raw();
    let ran = std::mem::replace(pool, dead_pool()).close();
    // Its handle is closed, or it never was one: who uses it is told.
    *pool = unsafe { Pool::from_raw(raw) };
    ran.map_err(|failed| {
        let error = failed.error.clone();
        failed.value.into_raw();
        error
    })
}

fn layout(case: &mut Case, line: &Line) -> Ran {
    let layout = case.pool(line).layout(line.number32("group"), line.number32("layer"))?;
    line.out("k_page_stride", layout.k.page);
    line.out("k_token_stride", layout.k.token);
    line.out("k_head_stride", layout.k.head);
    line.out("v_page_stride", layout.v.page);
    line.out("v_token_stride", layout.v.token);
    line.out("v_head_stride", layout.v.head);
    line.out("k_row_bytes", layout.k_row_bytes);
    line.out("v_row_bytes", layout.v_row_bytes);
    line.out("num_kv_heads", layout.num_kv_heads);
    line.out("page_tokens", layout.page_tokens);
    line.out("dtype", layout.dtype.code());
    line.out("scale_page_stride", layout.scale_page_stride);
    line.out("has_memory", u8::from(!layout.k_base.is_null()));
    Ok(())
}

fn release(case: &mut Case, line: &Line) -> Ran {
    let (when, pages, group) = (case.when(line), line.list32("pages"), line.number32("group"));
    let pool = case.pool(line);
    if line.number("each", 0) == 0 {
        return pool.release(group, &pages, when);
    }
    let each = pool.release_each(group, &pages, when)?;
    line.out_statuses("statuses", &each);
    each.into_iter().collect::<std::result::Result<(), Status>>().map_err(Error::from)
}

fn page_info(case: &mut Case, line: &Line) -> Ran {
    let info = case.pool(line).page_info(line.number32("group"), line.number("page", 0) as Page)?;
    line.out("count", info.count);
    line.out("state", info.state.code());
    line.out("published", u8::from(info.published));
    line.out("block", info.block);
    line.out("priority", info.priority);
    line.out("pinned", u8::from(info.pinned));
    Ok(())
}

fn lookup(case: &mut Case, line: &Line) -> Ran {
    let (pool, max_match, capacity) = (case.pool(line), line.number("max_match", 0), line.number("capacity", 16));
    let groups = line.number("groups", 1);
    let parts = PromptParts::of(line);
    let blocks = line.list("tokens").len() as u64 / pool.page_tokens();
    if capacity < blocks {
        // A buffer that the safe crate would not use.
        return with_raw_prompt(line, |prompt| {
            let (mut pages, mut found) = (vec![0; capacity as usize * 8], sys::PKV_MATCH_INIT);
            let raw = pool.as_raw();
            low(unsafe { sys::pkv_pool_lookup(raw, prompt, max_match, pages.as_mut_ptr(), capacity, &mut found) })?;
            out_match(line, &found.into());
            line.out_pages("pages", &pages[..found.blocks as usize]);
            Ok(())
        });
    }
    let lookup = parts.with(|prompt, _| pool.lookup(prompt, max_match))?;
    out_match(line, &lookup.found);
    for (group, pages) in lookup.pages.into_iter().enumerate() {
        let ids = pages.into_ids();
        match group {
            0 => line.out_pages("pages", &ids),
            1 if groups > 1 => line.out_pages("pages1", &ids),
            _ => {}
        }
    }
    Ok(())
}

fn keys(case: &mut Case, line: &Line) -> Ran {
    let pool = case.pool(line);
    if !line.has("capacity") {
        let keys = PromptParts::of(line).with(|prompt, _| pool.keys(prompt))?;
        line.out("num_keys", keys.len());
        let bytes: Vec<u8> =
            keys.iter().flat_map(|key| [key.low.to_ne_bytes(), key.high.to_ne_bytes()].concat()).collect();
        line.out_digest("digest", &bytes);
        return Ok(());
    }
    let (capacity, mut count) = (line.number("capacity", 0), 0);
    with_raw_prompt(line, |prompt| {
        let mut keys = vec![sys::pkv_key { low: 0, high: 0 }; capacity as usize + 1];
        let status = unsafe { sys::pkv_pool_keys(pool.as_raw(), prompt, keys.as_mut_ptr(), capacity, &mut count) };
        line.out("num_keys", count);
        low(status)
    })
}

fn image_keys(case: &mut Case, line: &Line) -> Ran {
    let (pool, group) = (case.pool(line), line.number32("group"));
    if !line.has("capacity") {
        let keys = PromptParts::of(line).with(|prompt, _| pool.image_keys(group, prompt))?;
        line.out("num_keys", keys.len());
        line.out_digest("digest", &keys.iter().flat_map(|key| key.0).collect::<Vec<u8>>());
        return Ok(());
    }
    let (capacity, mut count) = (line.number("capacity", 0), 0);
    with_raw_prompt(line, |prompt| {
        let mut keys = vec![sys::pkv_tier_key { bytes: [0; 32] }; capacity as usize + 1];
        let status =
            unsafe { sys::pkv_pool_image_keys(pool.as_raw(), group, prompt, keys.as_mut_ptr(), capacity, &mut count) };
        line.out("num_keys", count);
        low(status)
    })
}

fn events(case: &mut Case, line: &Line) -> Ran {
    let list = case.pool(line).events(line.number("after", 0), line.number("capacity", 64) as usize)?;
    line.out("count", list.events.len());
    line.out("missed", list.missed);
    line.out_list("kinds", &list.events.iter().map(|event| event.kind.code()).collect::<Vec<_>>());
    line.out_list("blocks", &list.events.iter().map(|event| event.block).collect::<Vec<_>>());
    line.out("last", list.events.last().map_or(0, |event| event.sequence));
    Ok(())
}

fn write(case: &mut Case, line: &Line) -> Ran {
    let (when, slots) = (case.when(line), line.list("slots"));
    let (group, layer, position) = (line.number32("group"), line.number32("layer"), line.number("position", 0));
    let pool = case.pool(line);
    match RowBytes::new(line, pool, group, layer, position, slots.len() as u64, true) {
        Some(rows) => pool.write(group, layer, &slots, rows.k(), rows.v(), when),
        None => Ok(()),
    }
}

fn gather(case: &mut Case, line: &Line) -> Ran {
    let (when, pages, count) = (case.when(line), line.list32("pages"), line.number("num_tokens", 0));
    let (group, layer, first) = (line.number32("group"), line.number32("layer"), line.number("first_token", 0));
    let pool = case.pool(line);
    if let Some(mut rows) = RowBytes::new(line, pool, group, layer, 0, count, false) {
        let (k, v) = rows.out();
        pool.gather(group, layer, &pages, first..first.saturating_add(count), k, v, when)?;
        rows.digests(line);
    }
    Ok(())
}

fn stats(case: &mut Case, line: &Line) -> Ran {
    let stats = case.pool(line).stats(line.number32("group"))?;
    macro_rules! fields {
        ($($name:ident)*) => { $(line.out(stringify!($name), stats.$name);)* };
    }
    fields!(num_pages free_pages held_pages cached_pages tables namespaces index_blocks page_bytes requests asked_tokens hit_tokens);
    fields!(retries refused probes allocated_pages failed_allocations evicted_pages cleared_pages published_blocks);
    fields!(unpublished_blocks duplicate_blocks key_collisions copied_pages partial_tokens shared_duplicates events pinned_pages);
    fields!(stored_images dropped_images loaded_blocks spilled_blocks lost_blocks tier_hit_tokens image_bytes);
    line.out("key_seed", stats.key_seed.code());
    Ok(())
}

/// Keys are those of the prompt's blocks, the first of them.
fn store_or_load(case: &mut Case, line: &Line) -> Ran {
    let (when, pages, group) = (case.when(line), line.list32("pages"), line.number32("group"));
    let queue = line.has("queue").then(|| &*case.queue(line));
    let options =
        OpOptions { queue, user: line.number("user", 0), timeout: Duration::from_nanos(line.number("timeout", 0)) };
    let pool = case.pool(line);
    let made = PromptParts::of(line).with(|prompt, _| pool.image_keys(group, prompt)).and_then(|keys| {
        let keys = &keys[..pages.len().min(keys.len())];
        if line.op == "pool.store" {
            pool.store(group, keys, &pages, when, &options)
        } else {
            pool.load(group, keys, &pages, when, &options)
        }
    });
    case.keep(line, "op", made, dead_op, Thing::Op)
}
