// SPDX-License-Identifier: Apache-2.0
//! Operations of batches.

use crate::line::Line;
use crate::objects::{BatchObject, Case, Thing};
use crate::rows::RowBytes;
use crate::{low, Ran};
use pagedkv::*;
use pagedkv_sys as sys;

pub fn run(case: &mut Case, line: &Line) -> Option<Ran> {
    Some(match &line.op[..] {
        "batch.create" => create(case, line),
        "batch.destroy" => destroy(case, line),
        "batch.arrays" => arrays(case, line),
        "batch.reserve" => reserve(case, line),
        "batch.set_tokens" => set_tokens(case, line),
        "batch.write" => write(case, line),
        "batch.gather" => gather(case, line),
        "batch.commit" => commit(case, line),
        _ => return None,
    })
}

fn create(case: &mut Case, line: &Line) -> Ran {
    let arrays = GroupArrays {
        group: line.number32("group"),
        fill: line.number("fill", 0) as i32,
        max_blocks: line.number("max_blocks", 0),
        block_table: Array::Own,
        slot_mapping: Array::Own,
        ..Default::default()
    };
    let options = BatchOptions {
        max_tables: line.number("max_tables", 1) as u32,
        max_tokens: line.number("max_tokens", 0),
        arrays: vec![arrays],
        lengths: Array::Own,
        last_page_len: Array::Own,
    };
    let (batch, ran) = match Batch::new(case.pool(line), &options) {
        Ok(batch) => (Some(Box::new(batch)), Ok(())),
        Err(error) => (None, Err(error)),
    };
    let raw = batch.as_ref().map_or(std::ptr::null_mut(), |batch| batch.as_raw());
    case.make(line, "batch", Thing::Batch(BatchObject { step: None, batch, raw }));
    ran
}

fn destroy(case: &mut Case, line: &Line) -> Ran {
    let object = case.batch(line);
    object.step = None;
    match object.batch.take() {
        Some(batch) => batch.close().map_err(|failed| failed.error),
        None => low(unsafe { sys::pkv_batch_destroy(object.raw) }),
    }
}

fn arrays(case: &mut Case, line: &Line) -> Ran {
    let object = case.batch(line);
    let batch = match (&object.step, &object.batch) {
        (Some((step, _)), _) => step.batch(),
        (None, Some(batch)) => batch,
        (None, None) => return Err(Status::Handle.into()),
    };
    line.out_pages("block_table", batch.block_table(0).unwrap_or(&[]));
    line.out_list("slot_mapping", batch.slot_mapping(0).unwrap_or(&[]));
    line.out_pages("lengths", batch.lengths().unwrap_or(&[]));
    line.out_pages("last_page_len", batch.last_page_len().unwrap_or(&[]));
    Ok(())
}

/// The first row's failure, as the C API says it.
fn out_rows(line: &Line, rows: &[Outcome]) -> Ran {
    line.out_statuses("statuses", rows);
    rows.iter().copied().collect::<std::result::Result<(), Status>>().map_err(Error::from)
}

fn reserve(case: &mut Case, line: &Line) -> Ran {
    let names: Vec<String> = line.text("tables").map_or(Vec::new(), |list| list.split(',').map(String::from).collect());
    let num_new: Vec<u32> = line.list("num_new").into_iter().map(|count| count as u32).collect();
    let object = case.batch(line);
    let twice = names.iter().enumerate().any(|(i, name)| names[..i].contains(name));
    let raw = object.raw;
    if twice || object.batch.is_none() {
        // The borrow checker would not have it.
        let tables: Vec<_> =
            names.iter().filter_map(|name| case.find_table(name)).map(|table| table.as_raw()).collect();
        let mut statuses = vec![0; tables.len()];
        return low(unsafe {
            sys::pkv_batch_reserve(raw, tables.len() as u32, tables.as_ptr(), num_new.as_ptr(), statuses.as_mut_ptr())
        });
    }
    for name in &names {
        case.end_steps_with(name);
    }
    object.step = None;
    let tables: Vec<&'static mut Table> = names.iter().filter_map(|name| case.find_table(name)).collect();
    if tables.len() != names.len() {
        line.complain("there is no such table");
    }
    // Lives until the step ends: see objects.rs.
    let batch: &'static mut Batch = match &mut object.batch {
        Some(batch) => unsafe { &mut *(&mut **batch as *mut Batch) },
        None => unreachable!(),
    };
    let step = batch.reserve(tables, &num_new)?;
    let rows: Vec<Outcome> = step.rows().collect();
    object.step = Some((step, names));
    out_rows(line, &rows)
}

fn set_tokens(case: &mut Case, line: &Line) -> Ran {
    let tokens = line.list32("tokens");
    let object = case.batch(line);
    match &mut object.step {
        Some((step, _)) => {
            step.set_tokens(&tokens)?;
            let rows: Vec<Outcome> = step.rows().collect();
            out_rows(line, &rows)
        }
        None => low(unsafe {
            sys::pkv_batch_set_tokens(object.raw, tokens.len() as u64, tokens.as_ptr(), std::ptr::null_mut())
        }),
    }
}

fn write(case: &mut Case, line: &Line) -> Ran {
    let (when, group, layer) = (case.when(line), line.number32("group"), line.number32("layer"));
    let rows = RowBytes::new(line, case.pool(line), group, layer, 0, line.number("num_tokens", 0), true);
    let object = case.batch(line);
    match (&mut object.step, rows) {
        (Some((step, _)), Some(rows)) => step.write(group, layer, rows.k(), rows.v(), when),
        (None, Some(_)) => without_step(object, group, layer, false),
        (_, None) => Ok(()),
    }
}

/// Without a step there is nothing to call.
fn without_step(object: &BatchObject, group: u32, layer: u32, gather: bool) -> Ran {
    let (none, now) = (std::ptr::null(), std::ptr::null());
    low(unsafe {
        if gather {
            sys::pkv_batch_gather(object.raw, group, layer, std::ptr::null(), 0, none, none, now)
        } else {
            sys::pkv_batch_write(object.raw, group, layer, none, none, now)
        }
    })
}

fn gather(case: &mut Case, line: &Line) -> Ran {
    let (when, group, layer) = (case.when(line), line.number32("group"), line.number32("layer"));
    let (first, padded) = (line.list_u64("first"), line.number("padded", 0));
    let rows = RowBytes::new(line, case.pool(line), group, layer, 0, line.number("num_tokens", 0), false);
    let object = case.batch(line);
    match (&mut object.step, rows) {
        (Some((step, _)), Some(mut rows)) => {
            let first = Some(&first[..]).filter(|first| !first.is_empty());
            let (k, v) = rows.out();
            step.gather(group, layer, first, padded, k, v, when)?;
            rows.digests(line);
            Ok(())
        }
        (None, Some(_)) => without_step(object, group, layer, true),
        (_, None) => Ok(()),
    }
}

fn commit(case: &mut Case, line: &Line) -> Ran {
    let when = case.when(line);
    let accepted: Vec<u32> = line.list("num_accepted").into_iter().map(|count| count as u32).collect();
    let object = case.batch(line);
    match &mut object.step {
        Some((step, _)) => {
            let rows = step.commit(Some(&accepted[..]).filter(|accepted| !accepted.is_empty()), when)?;
            out_rows(line, &rows)
        }
        None => {
            low(unsafe { sys::pkv_batch_commit(object.raw, std::ptr::null(), std::ptr::null_mut(), std::ptr::null()) })
        }
    }
}
