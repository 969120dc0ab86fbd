// SPDX-License-Identifier: Apache-2.0
//! The objects of a case.
//!
//! They are boxed, and handed out as exclusive references that live as long as the case: steps borrow batches, sessions and tables over
//! several lines. That is sound because each line uses an object at most once at a time, tables of a step are reached through the step
//! (`with_table`), and steps go before what they borrow.

use crate::line::Line;
use pagedkv::*;
use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

pub struct BatchObject {
    /// The step under way, or the last one, and the names of its tables.
    pub step: Option<(Step<'static>, Vec<String>)>,
    /// None once it was destroyed, or if it could not be made.
    pub batch: Option<Box<Batch>>,
    pub raw: *mut pagedkv_sys::pkv_batch,
}

pub struct SessionObject {
    /// Ranges that are acquired, the oldest first.
    pub views: VecDeque<(u32, LayerView<'static>)>,
    pub step: Option<(Box<LayerStep<'static>>, Vec<String>)>,
    pub session: Box<Session>,
}

pub enum Thing {
    Pool(Pool),
    Table(Table),
    Batch(BatchObject),
    Tier(Tier),
    Queue(Queue),
    Op(Op),
    Session(SessionObject),
    Counter(AtomicU64),
    Group(GroupOptions),
}

#[derive(Default)]
pub struct Case {
    objects: Vec<(String, *mut Thing)>,
    folder: Option<PathBuf>,
    paths: Vec<PathBuf>,
    /// Objects that a line named and that are not there: handles that are NULL.
    strangers: Vec<*mut Thing>,
}

macro_rules! finder {
    ($find:ident, $arg:ident, $variant:ident, $type:ty, $key:expr, $dead:expr) => {
        pub fn $find(&self, name: &str) -> Option<&'static mut $type> {
            self.objects.iter().rev().find_map(|(other, thing)| match unsafe { &mut **thing } {
                Thing::$variant(found) if other == name => Some(found),
                _ => None,
            })
        }

        /// The one that the line names; if there is none, a complaint and one that is closed.
        #[allow(dead_code)]
        pub fn $arg(&mut self, line: &Line) -> &'static mut $type {
            let name = line.text($key).unwrap_or("");
            if let Some(found) = self.$find(name) {
                return found;
            }
            line.complain(&format!("{}={}: there is no such object", $key, name));
            let thing = Box::into_raw(Box::new(Thing::$variant($dead)));
            self.strangers.push(thing);
            match unsafe { &mut *thing } {
                Thing::$variant(found) => found,
                _ => unreachable!(),
            }
        }
    };
}

impl Case {
    finder!(find_pool, pool, Pool, Pool, "pool", dead_pool());
    finder!(find_table, table, Table, Table, "table", dead_table());
    finder!(
        find_batch,
        batch,
        Batch,
        BatchObject,
        "batch",
        BatchObject { step: None, batch: None, raw: std::ptr::null_mut() }
    );
    finder!(find_tier, tier, Tier, Tier, "tier", dead_tier());
    finder!(find_queue, queue, Queue, Queue, "queue", dead_queue());
    finder!(find_op, op, Op, Op, "op", dead_op());
    finder!(find_session, session, Session, SessionObject, "session", session_object(dead_session()));
    finder!(find_counter, counter, Counter, AtomicU64, "counter", AtomicU64::new(0));
    finder!(find_group, group, Group, GroupOptions, "group", GroupOptions::default());

    pub fn all_ops(&self) -> impl Iterator<Item = &'static mut Op> + '_ {
        self.objects.iter().filter_map(|(_, thing)| match unsafe { &mut **thing } {
            Thing::Op(op) => Some(op),
            _ => None,
        })
    }

    /// Keeps an object under the name that the line gives it.
    pub fn make(&mut self, line: &Line, key: &str, thing: Thing) {
        match line.text(key) {
            Some(name) => self.objects.push((name.to_string(), Box::into_raw(Box::new(thing)))),
            None => line.complain(&format!("{}= names no new object", key)),
        }
    }

    /// What was made, or a handle that is NULL where that failed.
    pub fn keep<T>(
        &mut self, line: &Line, key: &str, made: Result<T>, dead: fn() -> T, thing: fn(T) -> Thing,
    ) -> crate::Ran {
        let (value, ran) = match made {
            Ok(value) => (value, Ok(())),
            Err(error) => (dead(), Err(error)),
        };
        self.make(line, key, thing(value));
        ran
    }

    /// Calls something with a table, through the step that has it if there is one.
    pub fn with_table<R>(&mut self, line: &Line, call: impl FnOnce(&mut Table) -> R) -> R {
        let name = line.text("table").unwrap_or("").to_string();
        self.with_table_named(line, &name, call)
    }

    pub fn with_table_named<R>(&mut self, line: &Line, name: &str, call: impl FnOnce(&mut Table) -> R) -> R {
        for (_, thing) in &self.objects {
            let place = |names: &[String]| names.iter().position(|other| other == name);
            match unsafe { &mut **thing } {
                Thing::Batch(BatchObject { step: Some((step, names)), .. }) => {
                    if let Some(at) = place(names) {
                        return call(step.table(at));
                    }
                }
                Thing::Session(SessionObject { step: Some((step, names)), views, .. }) => {
                    if let Some(at) = place(names) {
                        if !views.is_empty() {
                            line.complain("the table has views");
                        }
                        return call(step.table(at));
                    }
                }
                _ => {}
            }
        }
        match self.find_table(name) {
            Some(table) => call(table),
            None => {
                line.complain(&format!("there is no table {}", name));
                call(&mut dead_table())
            }
        }
    }

    /// Ends steps that have a table, so that it can go.
    pub fn end_steps_with(&mut self, name: &str) {
        for (_, thing) in &self.objects {
            let has = |names: &[String]| names.iter().any(|other| other == name);
            match unsafe { &mut **thing } {
                Thing::Batch(batch) if batch.step.as_ref().map_or(false, |(_, names)| has(names)) => batch.step = None,
                Thing::Session(session) if session.step.as_ref().map_or(false, |(_, names)| has(names)) => {
                    session.end_step()
                }
                _ => {}
            }
        }
    }

    /// sync=COUNTER:VALUE
    pub fn when(&self, line: &Line) -> When<'static> {
        let value = match line.text("sync") {
            None => return NOW,
            Some(value) => value,
        };
        let parts =
            value.split_once(':').and_then(|(name, wanted)| Some((self.find_counter(name)?, wanted.parse().ok()?)));
        match parts {
            Some((counter, wanted)) => {
                When::counter(counter, wanted, Duration::from_nanos(line.number("sync_timeout", 1_000_000)))
            }
            None => {
                line.complain(&format!("sync={} is no COUNTER:VALUE", value));
                NOW
            }
        }
    }

    /// A file in a folder of the case's own.
    pub fn scratch(&mut self, name: &str) -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let folder = self.folder.get_or_insert_with(|| {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let folder = std::env::temp_dir().join(format!("pkv-rust-cases.{}.{}", std::process::id(), number));
            std::fs::create_dir_all(&folder).expect("a folder can be made");
            folder
        });
        let path = folder.join(name);
        if !self.paths.contains(&path) {
            self.paths.push(path.clone());
        }
        path
    }

    /// Closes everything: steps, then objects, the last one first; then removes files.
    pub fn end(&mut self) {
        for (_, thing) in &self.objects {
            match unsafe { &mut **thing } {
                Thing::Batch(batch) => batch.step = None,
                Thing::Session(session) => session.end_step(),
                _ => {}
            }
        }
        let things = std::mem::take(&mut self.objects).into_iter().rev().map(|(_, thing)| thing);
        for thing in things.chain(std::mem::take(&mut self.strangers)) {
            drop(unsafe { Box::from_raw(thing) });
        }
        for path in self.paths.drain(..) {
            let _ = std::fs::remove_file(path);
        }
        if let Some(folder) = self.folder.take() {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        self.end();
    }
}

impl SessionObject {
    /// Views go before the step, which goes before the session.
    pub fn end_step(&mut self) {
        self.views.clear();
        self.step = None;
    }
}

impl Drop for SessionObject {
    fn drop(&mut self) {
        self.end_step();
    }
}

pub fn session_object(session: Session) -> SessionObject {
    SessionObject { views: VecDeque::new(), step: None, session: Box::new(session) }
}

// Handles that are NULL, and those that were closed: whatever is asked of them answers PKV_ERR_HANDLE.

pub fn dead_pool() -> Pool {
    unsafe { Pool::from_raw(std::ptr::null_mut()) }
}

pub fn dead_table() -> Table {
    unsafe { Table::from_raw(std::ptr::null_mut(), &dead_pool()) }
}

pub fn dead_tier() -> Tier {
    unsafe { Tier::from_raw(std::ptr::null_mut()) }
}

pub fn dead_queue() -> Queue {
    unsafe { Queue::from_raw(std::ptr::null_mut()) }
}

pub fn dead_op() -> Op {
    unsafe { Op::from_raw(std::ptr::null_mut()) }
}

pub fn dead_session() -> Session {
    unsafe { Session::from_raw(std::ptr::null_mut()) }
}
