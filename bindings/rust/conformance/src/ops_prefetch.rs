// SPDX-License-Identifier: Apache-2.0
//! Operations of prefetch sessions.

use crate::line::Line;
use crate::objects::{dead_op, dead_session, session_object, Case, SessionObject, Thing};
use crate::ops_pool::timeout;
use crate::ops_table::block_range;
use crate::rows::PromptParts;
use crate::{low, Ran};
use pagedkv::*;
use pagedkv_sys as sys;

pub fn run(case: &mut Case, line: &Line) -> Option<Ran> {
    Some(match &line.op[..] {
        "prefetch.open" => open(case, line),
        "prefetch.close" => {
            let when = case.when(line);
            let object = case.session(line);
            object.end_step();
            let raw = object.session.as_raw();
            let closed = std::mem::replace(&mut *object.session, unsafe { Session::from_raw(raw) }).close(when);
            closed.map_err(|failed| {
                failed.value.into_raw();
                failed.error
            })
        }
        "prefetch.cancel" => outside(case.session(line), line).cancel(),
        "prefetch.prompt" => prompt(case, line),
        "prefetch.hint" => {
            let scores: Vec<f32> = line.list("scores").into_iter().map(|score| score as f32).collect();
            let session = outside(case.session(line), line);
            case.with_table(line, |table| session.hint(table, &scores))
        }
        "prefetch.submit" => {
            let position = line.number("position", 0);
            let session = outside(case.session(line), line);
            let submitted = case.with_table(line, |table| session.submit(table, position));
            submitted.map(|submitted| line.out("submitted", submitted))
        }
        "prefetch.require" => require(case, line),
        "prefetch.step_begin" => step_begin(case, line),
        "prefetch.acquire" => acquire(case, line),
        "prefetch.release" => release(case, line),
        "prefetch.step_end" => step_end(case, line),
        "prefetch.stats" => stats(case, line),
        _ => return None,
    })
}

/// The session, which no step may have.
fn outside<'a>(object: &'a mut SessionObject, line: &Line) -> &'a mut Session {
    if object.step.is_some() {
        line.complain("the session is in a step");
        object.end_step();
    }
    &mut object.session
}

fn open(case: &mut Case, line: &Line) -> Ran {
    let flags = line.number32("flags");
    let options = SessionOptions {
        policy: Prediction::from_code(line.name("policy", &["sequential", "full", "hinted"], 0, 0)),
        off: flags & sys::PKV_PREFETCH_OFF != 0,
        whole_layers: flags & sys::PKV_PREFETCH_WHOLE_LAYERS != 0,
        sink_tokens: line.number("sink_tokens", 0),
        recent_tokens: line.number("recent_tokens", 0),
        max_lookahead: line.number("max_lookahead", 0),
        max_block_pages: line.number("max_block_pages", 0),
        num_buffers: line.number32("num_buffers"),
        max_tables: line.number32("max_tables"),
        staging_pages: line.list_u64("staging"),
        ..Default::default()
    };
    let pool = case.pool(line);
    let made = if flags & !(sys::PKV_PREFETCH_OFF | sys::PKV_PREFETCH_WHOLE_LAYERS) == 0 {
        Session::open(pool, &options)
    } else {
        // Bits that the safe crate has no names for.
        let (mut raw, mut session) = (sys::PKV_PREFETCH_OPTIONS_INIT, std::ptr::null_mut());
        raw.flags = flags;
        low(unsafe { sys::pkv_prefetch_open(pool.as_raw(), &raw, &mut session) })
            .map(|()| unsafe { Session::from_raw(session) })
    };
    case.keep(line, "session", made, dead_session, |session| Thing::Session(session_object(session)))
}

fn prompt(case: &mut Case, line: &Line) -> Ran {
    let queue = line.has("queue").then(|| &*case.queue(line));
    let options = OpOptions { queue, user: line.number("user", 0), ..Default::default() };
    let session = outside(case.session(line), line);
    let begun = PromptParts::of(line).with(|prompt, _| session.prompt(prompt, &options));
    let op = begun.map(|(found, op)| {
        line.out("match", found.tokens);
        line.out("resident", found.resident_tokens);
        op
    });
    case.keep(line, "op", op, dead_op, Thing::Op)
}

fn require(case: &mut Case, line: &Line) -> Ran {
    let (blocks, longest) = (block_range(line, u64::MAX), timeout(line, u64::MAX));
    let session = outside(case.session(line), line);
    let result = case.with_table(line, |table| session.require(table, blocks, longest))?;
    line.out("resident", result.resident);
    line.out("absent", result.on_time + result.late + result.on_demand);
    Ok(())
}

fn step_begin(case: &mut Case, line: &Line) -> Ran {
    let names: Vec<String> = line.text("tables").map_or(Vec::new(), |list| list.split(',').map(String::from).collect());
    let num_tokens = line.list_u64("num_tokens");
    let object = case.session(line);
    if object.step.is_some() {
        // The borrow checker would not have it.
        let tables: Vec<_> =
            names.iter().filter_map(|name| case.find_table(name)).map(|table| table.as_raw()).collect();
        let (raw, count, list) = (object.session.as_raw(), tables.len() as u32, tables.as_ptr());
        return low(unsafe { sys::pkv_prefetch_step_begin(raw, count, list, std::ptr::null(), std::ptr::null_mut()) });
    }
    for name in &names {
        case.end_steps_with(name);
    }
    let tables: Vec<&'static mut Table> = names.iter().filter_map(|name| case.find_table(name)).collect();
    // Lives until the step ends: see objects.rs.
    let session: &'static mut Session = unsafe { &mut *(&mut *object.session as *mut Session) };
    let step = session.step(tables, Some(&num_tokens[..]).filter(|list| !list.is_empty()))?;
    line.out_statuses("statuses", &step.tables().collect::<Vec<_>>());
    object.step = Some((Box::new(step), names));
    Ok(())
}

fn acquire(case: &mut Case, line: &Line) -> Ran {
    let (index, longest) = (line.number32("index"), timeout(line, u64::MAX));
    let object = case.session(line);
    let step: &'static LayerStep<'static> = match &object.step {
        // Lives until the step ends, and views go before it.
        Some((step, _)) => unsafe { &*(&**step as *const LayerStep<'static>) },
        None => {
            let mut view = sys::PKV_LAYER_VIEW_INIT;
            let raw = object.session.as_raw();
            return low(unsafe { sys::pkv_prefetch_layer_acquire(raw, index, 0, std::ptr::null(), &mut view) });
        }
    };
    let view = step.acquire(index, longest)?;
    line.out("group", view.group());
    line.out("layer", view.layer());
    line.out("num_tables", view.first_block().len());
    line.out("num_slices", view.slices().len());
    line.out("missing", view.slices().iter().filter(|&&slice| slice < 0).count());
    line.out("last", u8::from(view.last()));
    object.views.push_back((index, view));
    Ok(())
}

fn release(case: &mut Case, line: &Line) -> Ran {
    let (when, index) = (case.when(line), line.number32("index"));
    let object = case.session(line);
    match object.views.iter().position(|(of, _)| *of == index).and_then(|at| object.views.remove(at)) {
        Some((_, view)) => match view.release(when) {
            Ok(()) => Ok(()),
            Err(failed) => {
                object.views.push_front((index, failed.value));
                Err(failed.error)
            }
        },
        // There is no view to be released.
        None => low(unsafe { sys::pkv_prefetch_layer_release(object.session.as_raw(), index, std::ptr::null()) }),
    }
}

fn step_end(case: &mut Case, line: &Line) -> Ran {
    let object = case.session(line);
    if !object.views.is_empty() {
        // The borrow checker would not have it.
        return low(unsafe { sys::pkv_prefetch_step_end(object.session.as_raw(), std::ptr::null_mut()) });
    }
    match object.step.take() {
        Some((step, _)) => {
            let tables = step.end()?;
            line.out_statuses("statuses", &tables);
            tables.into_iter().collect::<std::result::Result<(), Status>>().map_err(Error::from)
        }
        None => low(unsafe { sys::pkv_prefetch_step_end(object.session.as_raw(), std::ptr::null_mut()) }),
    }
}

fn stats(case: &mut Case, line: &Line) -> Ran {
    let stats = case.session(line).session.stats()?;
    line.out("needed", stats.needed);
    line.out("failed", stats.failed);
    line.out("steps", stats.steps);
    line.out("ranges", stats.ranges);
    line.out("prompts", stats.prompts);
    line.out("staging_pages", stats.staging_pages);
    line.out("checksum_failures", stats.checksum_failures);
    line.out("balance", stats.needed - stats.on_time - stats.late - stats.on_demand);
    Ok(())
}
