// SPDX-License-Identifier: Apache-2.0
//! Operations of tiers, queues and asynchronous operations.

use crate::line::Line;
use crate::objects::{dead_queue, dead_tier, Case, Thing};
use crate::ops_pool::timeout;
use crate::{low, short_status, Ran};
use pagedkv::*;
use pagedkv_sys as sys;
use std::{ffi::CString, os::unix::ffi::OsStrExt, os::unix::io::AsRawFd, time::Duration};

pub fn run(case: &mut Case, line: &Line) -> Option<Ran> {
    Some(match &line.op[..] {
        "tier.host" => {
            let options = HostTierOptions { capacity_bytes: line.number("capacity", 0), ..Default::default() };
            case.keep(line, "tier", Tier::open_host(&options), dead_tier, Thing::Tier)
        }
        "tier.file" => file(case, line),
        "tier.close" => {
            let tier = case.tier(line);
            let raw = tier.as_raw();
            let closed = std::mem::replace(tier, unsafe { Tier::from_raw(raw) }).close();
            closed.map_err(|failed| {
                failed.value.into_raw();
                failed.error
            })
        }
        "tier.stats" => stats(case, line),
        "queue.create" => case.keep(line, "queue", Queue::new(), dead_queue, Thing::Queue),
        "queue.destroy" => {
            let queue = case.queue(line);
            let raw = queue.as_raw();
            let ran = std::mem::replace(queue, dead_queue()).close().map_err(|failed| failed.error);
            *queue = unsafe { Queue::from_raw(raw) };
            ran
        }
        "queue.handle" => {
            line.out("valid", u8::from(case.queue(line).as_raw_fd() >= 0));
            Ok(())
        }
        "queue.drain" => drain(case, line),
        "op.poll" => poll(case, line),
        "op.wait" => case.op(line).wait(timeout(line, u64::MAX)),
        "op.cancel" => case.op(line).cancel(),
        "op.close" => {
            let op = case.op(line);
            let raw = op.as_raw();
            std::mem::replace(op, unsafe { Op::from_raw(raw) }).close()
        }
        _ => return None,
    })
}

fn file(case: &mut Case, line: &Line) -> Ran {
    let flags = line.number32("flags");
    let options = FileTierOptions {
        path: case.scratch(line.text("path").unwrap_or("file")),
        capacity_bytes: line.number("capacity", 0),
        max_images: line.number("max_images", 0),
        identity: line.bytes("identity"),
        engine: engine(line),
        threads: line.number32("threads"),
        reset: flags & sys::PKV_FILE_RESET != 0,
        buffered: flags & sys::PKV_FILE_BUFFERED != 0,
        lock_timeout: Duration::from_nanos(line.number("lock_timeout", 0)),
        ..Default::default()
    };
    let made = if flags & !(sys::PKV_FILE_RESET | sys::PKV_FILE_BUFFERED) == 0 {
        Tier::open_file(&options)
    } else {
        file_with(&options, flags)
    };
    case.keep(line, "tier", made, dead_tier, Thing::Tier)
}

/// valgrind 3.19 hangs in io_uring.
fn engine(line: &Line) -> IoEngine {
    match IoEngine::from_code(line.name("engine", &["auto", "uring", "threads"], 0, 0)) {
        IoEngine::Auto if std::env::var_os("PAGEDKV_VALGRIND").is_some() => IoEngine::Threads,
        engine => engine,
    }
}

/// With bits that the safe crate has no names for.
fn file_with(options: &FileTierOptions, flags: u32) -> Result<Tier> {
    let path = CString::new(options.path.as_os_str().as_bytes()).expect("a path");
    let mut raw = sys::PKV_FILE_TIER_OPTIONS_INIT;
    raw.path = path.as_ptr();
    raw.capacity_bytes = options.capacity_bytes;
    raw.flags = flags;
    let mut tier = std::ptr::null_mut();
    low(unsafe { sys::pkv_tier_open_file(&raw, &mut tier) })?;
    Ok(unsafe { Tier::from_raw(tier) })
}

fn stats(case: &mut Case, line: &Line) -> Ran {
    let stats = case.tier(line).stats()?;
    macro_rules! fields {
        ($of:expr, $($name:ident)*) => { $(line.out(stringify!($name), $of.$name);)* };
    }
    fields!(stats, lookups hits loads failed_loads stores failed_stores bytes_loaded bytes_stored checksum_failures);
    fields!(stats.usage, capacity_bytes used_bytes images pinned_images evicted_images recovered_images io_errors);
    Ok(())
}

fn drain(case: &mut Case, line: &Line) -> Ran {
    let (capacity, longest) = (line.number("capacity", 16), timeout(line, 0));
    let completions = case.queue(line).drain(capacity as usize, longest)?;
    line.out_list("users", &completions.iter().map(|completion| completion.user).collect::<Vec<_>>());
    line.out_statuses("statuses", &completions.iter().map(|completion| completion.status).collect::<Vec<_>>());
    // The C API says that there was nothing; the safe crate gives an empty list.
    let ran = if completions.is_empty() { Err(Status::Timeout.into()) } else { Ok(()) };
    for completion in completions {
        // Its name was a reference so far, and owns the handle now, unless it was closed meanwhile.
        if let Some(op) = case.all_ops().find(|op| op.as_raw() == completion.op.as_raw()) {
            *op = completion.op;
        }
    }
    ran
}

fn poll(case: &mut Case, line: &Line) -> Ran {
    let op = case.op(line);
    let info = op.poll()?;
    line.out("state", info.state.code());
    line.out("result", short_status(&info.status));
    line.out("num_items", info.num_items);
    line.out("done_items", info.done_items);
    line.out("good_items", info.good_items);
    line.out_statuses("statuses", &op.items()?);
    Ok(())
}
