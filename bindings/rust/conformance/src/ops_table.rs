// SPDX-License-Identifier: Apache-2.0
//! Operations of tables.

use crate::line::Line;
use crate::objects::{dead_table, Case, Thing};
use crate::ops_pool::{out_match, retention, timeout, token_range};
use crate::rows::{with_raw_prompt, PromptParts, RowBytes};
use crate::{low, Ran};
use pagedkv::*;
use pagedkv_sys as sys;

pub fn run(case: &mut Case, line: &Line) -> Option<Ran> {
    let tokens = || line.number("num_tokens", 0);
    Some(match &line.op[..] {
        "table.create" => {
            let made = Table::new(case.pool(line));
            case.keep(line, "table", made, dead_table, Thing::Table)
        }
        "table.destroy" => destroy(case, line),
        "table.clear" => {
            let when = case.when(line);
            case.with_table(line, |table| table.clear(when))
        }
        "table.admit" => admit(case, line),
        "table.reserve" => case.with_table(line, |table| table.reserve(tokens())),
        "table.set_tokens" => {
            let (position, list) = (line.number("position", 0), line.list32("tokens"));
            case.with_table(line, |table| table.set_tokens(position, &list))
        }
        "table.write" => write(case, line),
        "table.gather" => gather(case, line),
        "table.commit" => {
            let when = case.when(line);
            case.with_table(line, |table| table.commit(tokens(), when))
        }
        "table.fill" => fill(case, line),
        "table.fork" => {
            let when = case.when(line);
            let made = case.with_table(line, |table| table.fork(when));
            case.keep(line, "fork", made, dead_table, Thing::Table)
        }
        "table.truncate" => {
            let when = case.when(line);
            case.with_table(line, |table| table.truncate(tokens(), when))
        }
        "table.accept" => {
            let (when, positions) = (case.when(line), line.list_u64("positions"));
            case.with_table(line, |table| table.accept(&positions, when))
        }
        "table.window" => {
            let when = case.when(line);
            case.with_table(line, |table| table.window(when))
        }
        "table.set_retention" => {
            let (tokens, retention) = (token_range(line), retention(line));
            case.with_table(line, |table| table.set_retention(tokens, &retention))
        }
        "table.take_copies" => take_copies(case, line),
        "table.export" => export(case, line),
        "table.pages" => pages(case, line),
        "table.slots" => {
            let (group, position) = (line.number32("group"), line.number("position", 0));
            let slots = case.with_table(line, |table| table.slots(group, position..position.saturating_add(tokens())));
            slots.map(|slots| line.out_list("slots", &slots))
        }
        "table.residency" => residency(case, line),
        "table.spill" => {
            let (when, blocks) = (case.when(line), block_range(line, u64::MAX));
            let result = case.with_table(line, |table| table.spill(blocks, when));
            result.map(|result| {
                line.out("spilled", result.spilled_blocks);
                line.out("shared", result.shared_pages);
            })
        }
        "table.restore" => {
            let (blocks, longest) = (block_range(line, u64::MAX), timeout(line, u64::MAX));
            let restored = case.with_table(line, |table| table.restore(blocks, longest));
            restored.map(|restored| line.out("restored", restored))
        }
        "table.info" => info(case, line),
        _ => return None,
    })
}

pub fn block_range(line: &Line, otherwise: u64) -> std::ops::Range<u64> {
    let first = line.number("first_block", 0);
    first..first.saturating_add(line.number("num_blocks", otherwise))
}

fn destroy(case: &mut Case, line: &Line) -> Ran {
    let when = case.when(line);
    let name = line.text("table").unwrap_or("").to_string();
    case.end_steps_with(&name);
    let table = case.table(line);
    let raw = table.as_raw();
    let closed = std::mem::replace(table, dead_table()).close(when);
    // Its handle is closed, or the table lives on under it.
    let (back, ran) = match closed {
        Ok(()) => (unsafe { Table::from_raw(raw, &crate::objects::dead_pool()) }, Ok(())),
        Err(failed) => (failed.value, Err(failed.error)),
    };
    *table = back;
    ran
}

fn admit(case: &mut Case, line: &Line) -> Ran {
    let flags = line.number32("flags");
    let options = AdmitOptions {
        max_match: line.number("max_match", 0),
        reserve_tokens: line.number("reserve_tokens", 0),
        watermark: line.number("watermark", 0),
        no_match: flags & sys::PKV_ADMIT_NO_MATCH != 0,
        retry: flags & sys::PKV_ADMIT_RETRY != 0,
        partial: flags & sys::PKV_ADMIT_PARTIAL != 0,
        share: flags & sys::PKV_ADMIT_SHARE != 0,
    };
    let known = sys::PKV_ADMIT_NO_MATCH | sys::PKV_ADMIT_RETRY | sys::PKV_ADMIT_PARTIAL | sys::PKV_ADMIT_SHARE;
    if flags & !known != 0 {
        // Bits that the safe crate has no names for.
        return with_raw_prompt(line, |prompt| {
            let mut raw = sys::PKV_ADMIT_OPTIONS_INIT;
            raw.flags = flags;
            let table = case.table(line).as_raw();
            low(unsafe { sys::pkv_table_admit(table, prompt, &raw, std::ptr::null_mut()) })
        });
    }
    let parts = PromptParts::of(line);
    let found = case.with_table(line, |table| parts.with(|prompt, _| table.admit(prompt, &options)));
    found.map(|found| out_match(line, &found))
}

fn write(case: &mut Case, line: &Line) -> Ran {
    let (when, position, count) = (case.when(line), line.number("position", 0), line.number("num_tokens", 0));
    let (group, layer) = (line.number32("group"), line.number32("layer"));
    match RowBytes::new(line, case.pool(line), group, layer, position, count, true) {
        Some(rows) => case.with_table(line, |table| {
            table.write(group, layer, position..position.saturating_add(count), rows.k(), rows.v(), when)
        }),
        None => Ok(()),
    }
}

fn gather(case: &mut Case, line: &Line) -> Ran {
    let (when, position, count) = (case.when(line), line.number("position", 0), line.number("num_tokens", 0));
    let (group, layer) = (line.number32("group"), line.number32("layer"));
    if let Some(mut rows) = RowBytes::new(line, case.pool(line), group, layer, 0, count, false) {
        let (k, v) = rows.out();
        let tokens = position..position.saturating_add(count);
        case.with_table(line, |table| table.gather(group, layer, tokens, k, v, when))?;
        rows.digests(line);
    }
    Ok(())
}

fn fill(case: &mut Case, line: &Line) -> Ran {
    let (from, end) = (line.number("from", 0), line.number("num_tokens", 0));
    let pool = case.pool(line);
    for group in 0..pool.num_groups() as u32 {
        for layer in (0..).take_while(|&layer| pool.layout(group, layer).is_ok()) {
            if let Some(rows) = RowBytes::new(line, pool, group, layer, from, end - from, true) {
                case.with_table(line, |table| table.write(group, layer, from..end, rows.k(), rows.v(), NOW))?;
            }
        }
    }
    case.with_table(line, |table| table.commit(end, NOW))
}

fn take_copies(case: &mut Case, line: &Line) -> Ran {
    if line.number("capacity", 8) == 0 {
        // The safe crate has room for all of them.
        let (mut count, table) = (0, case.table(line).as_raw());
        let status = unsafe { sys::pkv_table_take_copies(table, std::ptr::null_mut(), 0, &mut count) };
        line.out("count", count);
        return low(status);
    }
    let copies = case.with_table(line, |table| table.take_copies())?;
    line.out("count", copies.len());
    line.out_pages("src", &copies.iter().map(|copy| copy.src).collect::<Vec<_>>());
    line.out_pages("dst", &copies.iter().map(|copy| copy.dst).collect::<Vec<_>>());
    Ok(())
}

fn export(case: &mut Case, line: &Line) -> Ran {
    if line.has("capacity") {
        // A buffer that the safe crate would not use.
        let (capacity, mut size, table) = (line.number("capacity", 0), 0, case.table(line).as_raw());
        let mut buffer = vec![0u8; capacity as usize];
        let status = unsafe { sys::pkv_table_export(table, buffer.as_mut_ptr() as *mut _, capacity, &mut size) };
        line.out("size", size);
        return low(status);
    }
    let mut bytes = case.with_table(line, |table| table.export())?;
    line.out("size", bytes.len());
    if line.has("damage") {
        bytes[line.number("damage", 0) as usize] ^= 1;
    }
    match line.text("into") {
        Some(name) => {
            let name = name.to_string();
            case.with_table_named(line, &name, |table| table.import(&bytes))
        }
        None => Ok(()),
    }
}

fn pages(case: &mut Case, line: &Line) -> Ran {
    let group = line.number32("group");
    if line.has("capacity") {
        let (capacity, mut count, table) = (line.number("capacity", 256), 0, case.table(line).as_raw());
        let mut pages = vec![0; capacity as usize + 1];
        let status = unsafe { sys::pkv_table_pages(table, group, pages.as_mut_ptr(), capacity, &mut count) };
        line.out("num_blocks", count);
        if status == sys::PKV_OK && capacity != 0 {
            line.out_pages("pages", &pages[..count as usize]);
        }
        return low(status);
    }
    let pages = case.with_table(line, |table| table.pages(group))?;
    line.out("num_blocks", pages.len());
    line.out_pages("pages", &pages);
    Ok(())
}

fn residency(case: &mut Case, line: &Line) -> Ran {
    let (group, blocks) = (line.number32("group"), block_range(line, 0));
    let places = case.with_table(line, |table| table.residency(group, blocks))?;
    let number = |place: &Residency| match place {
        Residency::Dropped => -1,
        Residency::Resident => 0,
        Residency::Tier(tier) => 1 + *tier as i32,
    };
    line.out_list("where", &places.iter().map(number).collect::<Vec<_>>());
    Ok(())
}

fn info(case: &mut Case, line: &Line) -> Ran {
    let info = case.with_table(line, |table| table.info())?;
    line.out("named", info.named);
    line.out("reserved", info.reserved);
    line.out("committed", info.committed);
    line.out("published", info.published);
    line.out("matched", info.matched);
    line.out("blocks", info.blocks);
    line.out("committed_blocks", info.committed_blocks);
    line.out("valid", info.valid);
    line.out("absent_blocks", info.absent_blocks);
    Ok(())
}
