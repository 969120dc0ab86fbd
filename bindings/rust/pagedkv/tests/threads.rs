// SPDX-License-Identifier: Apache-2.0
//! Many threads over one pool.

mod common;

use common::*;
use pagedkv::*;
use std::sync::{atomic::AtomicBool, atomic::Ordering, mpsc};

const THREADS: i32 = 8;

fn rounds() -> i32 {
    if under_valgrind() {
        10
    } else {
        150
    }
}

#[test]
fn threads_with_tables_of_their_own_share_a_pool() {
    let tier = host_tier(4 << 20);
    let pool = pool_over(48, vec![attached(&tier)]);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..rounds() {
                    // Some prompts are those of other threads.
                    let prompt = tokens((thread + round) % 12, 20 + (round % 3) as u64 * 16);
                    let mut table = pool.table().unwrap();
                    let options = AdmitOptions { max_match: MATCH_ALL, ..Default::default() };
                    match table.admit(&Prompt::new(&prompt), &options) {
                        Err(error) if error.status() == Status::NoPages => continue,
                        other => {
                            let found = other.unwrap();
                            match table.restore(0..u64::MAX, LONG) {
                                Err(error) if matches!(error.status(), Status::Lost | Status::NoPages) => continue,
                                other => other.unwrap(),
                            };
                            let end = prompt.len() as u64;
                            if found.tokens < end {
                                fill(&mut table, &prompt, found.tokens, end);
                            }
                        }
                    }
                    verify(&mut table, &prompt, prompt.len() as u64);
                    let _ = pool.evict(0, 1);
                }
            });
        }
    });
    assert_nothing_held(&pool);
    assert_eq!(tier.stats().unwrap().checksum_failures, 0);
}

#[test]
fn tables_travel_between_threads() {
    let pool = pool(64);
    let (sender, receiver) = mpsc::sync_channel::<(Table, Vec<Token>)>(4);
    std::thread::scope(|scope| {
        let pool = &pool;
        scope.spawn(move || {
            for i in 0..rounds() {
                let prompt = tokens(i, 40);
                sender.send((computed(pool, &prompt), prompt)).unwrap();
            }
        });
        for (mut table, prompt) in receiver {
            verify(&mut table, &prompt, 40);
        }
    });
    assert_nothing_held(&pool);
}

#[test]
fn numbers_are_read_while_others_work() {
    let pool = pool(16);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let stats = pool.stats(0).unwrap();
                    assert_eq!(stats.free_pages + stats.held_pages + stats.cached_pages, 16);
                    Prometheus::new().pool("p", &pool).render().unwrap();
                }
            });
        }
        for i in 0..rounds() {
            drop(computed(&pool, &tokens(i, 33)));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_pool_is_dropped_while_its_tables_work() {
    for _ in 0..20 {
        let pool = pool(16);
        let tables: Vec<Table> = (0..4).map(|i| computed(&pool, &tokens(i, 20))).collect();
        std::thread::scope(|scope| {
            for mut table in tables {
                scope.spawn(move || loop {
                    match table.reserve(33).and_then(|()| table.truncate(20, NOW)) {
                        Ok(()) => {}
                        Err(error) => return assert_eq!(error.status(), Status::Closed),
                    }
                });
            }
            scope.spawn(move || drop(pool));
        });
    }
}
