// SPDX-License-Identifier: Apache-2.0
//! Tiers: what comes back is what was stored, or an error.

mod backends;
mod common;

use backends::*;
use common::*;
use pagedkv::*;
use std::{
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc,
    },
    time::Duration,
};

/// Computes a sequence, lets the tiers have it and takes its pages away.
fn store_and_evict(pool: &Pool, prompt: &[Token]) {
    drop(computed(pool, prompt));
    pool.flush(LONG).unwrap();
    pool.evict(0, u64::MAX).unwrap();
}

fn admit_all(pool: &Pool, prompt: &[Token]) -> (Table, Match) {
    let mut table = pool.table().unwrap();
    let found =
        table.admit(&Prompt::new(prompt), &AdmitOptions { max_match: MATCH_ALL, ..Default::default() }).unwrap();
    (table, found)
}

fn comes_back(pool: &Pool, prompt: &[Token]) {
    let (mut table, found) = admit_all(pool, prompt);
    assert_eq!((found.tokens, found.resident_tokens, found.tier_tokens[0]), (32, 0, 32));
    assert_eq!(table.residency(0, 0..2).unwrap(), [Residency::Tier(0); 2]);
    assert_eq!(status(table.pages(0)), Status::NotResident);
    assert_eq!(table.restore(0..u64::MAX, LONG).unwrap(), 2);
    verify(&mut table, prompt, 32);
}

#[test]
fn a_host_tier_gives_back_what_was_evicted() {
    let tier = host_tier(1 << 20);
    let pool = pool_over(8, vec![attached(&tier)]);
    let prompt = tokens(1, 32);
    store_and_evict(&pool, &prompt);
    drop(tier);
    comes_back(&pool, &prompt);
    let stats = pool.stats(0).unwrap();
    assert_eq!((stats.loaded_blocks, stats.lost_blocks), (2, 0));
    assert!(stats.image_bytes > stats.page_bytes);
}

#[test]
fn a_file_tier_is_warm_after_a_restart_and_known_by_its_identity() {
    let path = Scratch(scratch("warm"));
    let options = FileTierOptions {
        path: path.0.clone(),
        capacity_bytes: 4 << 20,
        max_images: 64,
        identity: b"model".to_vec(),
        engine: IoEngine::Threads,
        ..Default::default()
    };
    let prompt = tokens(1, 32);
    {
        let tier = Tier::open_file(&options).unwrap();
        let pool = pool_over(8, vec![attached(&tier)]);
        store_and_evict(&pool, &prompt);
        let again = FileTierOptions { lock_timeout: Duration::from_millis(1), ..options.clone() };
        assert_eq!(status(Tier::open_file(&again)), Status::Busy);
    }
    let other = FileTierOptions { identity: b"another".to_vec(), ..options.clone() };
    assert_eq!(status(Tier::open_file(&other)), Status::Mismatch);
    let tier = Tier::open_file(&options).unwrap();
    let stats = tier.stats().unwrap();
    assert_eq!((stats.usage.recovered_images, stats.usage.engine), (2, IoEngine::Threads));
    let pool = pool_over(8, vec![TierAttachment { policy: WritePolicy::ReadOnly, ..attached(&tier) }]);
    comes_back(&pool, &prompt);
    drop((pool, tier));
    let tier = Tier::open_file(&FileTierOptions { reset: true, buffered: true, ..options }).unwrap();
    assert_eq!(tier.stats().unwrap().usage.images, 0);
}

static READS: AtomicU64 = AtomicU64::new(0);

fn spoil_reads(event: &mut FileEvent<'_>) -> Fault {
    if !event.is_write() && event.size() > 4096 {
        READS.fetch_add(1, Ordering::Relaxed);
        let middle = event.data().len() / 2;
        event.data()[middle] ^= 1;
    }
    Fault::None
}

fn panic_once(_: &mut FileEvent<'_>) -> Fault {
    panic!("a hook panics");
}

#[test]
fn bytes_that_are_not_the_image_are_a_miss() {
    let path = Scratch(scratch("spoiled"));
    let options = FileTierOptions {
        path: path.0.clone(),
        capacity_bytes: 4 << 20,
        max_images: 64,
        engine: IoEngine::Threads,
        fault: Some(FaultHook(spoil_reads)),
        ..Default::default()
    };
    let tier = Tier::open_file(&options).unwrap();
    let pool = pool_over(8, vec![attached(&tier)]);
    let prompt = tokens(1, 32);
    store_and_evict(&pool, &prompt);
    let (mut table, found) = admit_all(&pool, &prompt);
    assert_eq!(found.tokens, 32);
    assert_eq!(status(table.restore(0..u64::MAX, LONG)), Status::Lost);
    assert_eq!(table.info().unwrap().valid, 0);
    assert!(READS.load(Ordering::Relaxed) > 0);
    assert!(tier.stats().unwrap().checksum_failures > 0);
    table.truncate(0, NOW).unwrap();
    table.clear(NOW).unwrap();
}

#[test]
fn case_q16_a_hook_that_panics_changes_nothing() {
    let path = Scratch(scratch("panics"));
    let options = FileTierOptions {
        path: path.0.clone(),
        capacity_bytes: 4 << 20,
        max_images: 64,
        engine: IoEngine::Threads,
        fault: Some(FaultHook(panic_once)),
        ..Default::default()
    };
    let tier = Tier::open_file(&options).unwrap();
    let pool = pool_over(8, vec![attached(&tier)]);
    let prompt = tokens(1, 32);
    store_and_evict(&pool, &prompt);
    comes_back(&pool, &prompt);
}

#[test]
fn live_blocks_are_spilled_and_restored() {
    let tier = host_tier(1 << 20);
    let pool = pool_over(8, vec![attached(&tier)]);
    let prompt = tokens(1, 60);
    let mut table = computed(&pool, &prompt);
    let result = table.spill(0..3, NOW).unwrap();
    assert_eq!((result.spilled_blocks, result.shared_pages), (3, 0));
    assert_eq!(table.info().unwrap().absent_blocks, 3);
    assert_eq!(tier.stats().unwrap().usage.pinned_images, 3);
    assert_eq!(pool.stats(0).unwrap().held_pages, 1);
    assert_eq!(status(table.fork(NOW)), Status::NotResident);
    // A gather brings them back by itself.
    verify(&mut table, &prompt, 60);
    assert_eq!(table.info().unwrap().absent_blocks, 0);
    assert_eq!(status(pool_of_none().spill(0..1, NOW)), Status::State);
}

fn pool_of_none() -> Table {
    computed(&pool(8), &tokens(1, 20));
    let pool = pool(8);
    let table = computed(&pool, &tokens(1, 20));
    leak(pool); // the table is not closed
    table
}

#[test]
fn images_move_by_key_and_operations_end_once() {
    let tier = host_tier(1 << 20);
    let pool = pool_over(16, vec![attached(&tier)]);
    let prompt = tokens(1, 48);
    let keys = pool.image_keys(0, &Prompt::new(&prompt)).unwrap();
    assert_eq!(keys.len(), 3);
    let pages = pool.alloc(0, 3).unwrap();
    let slots: Vec<Slot> = (0..48).collect();
    let k = rows(&prompt, 0, 48, 0, 0);
    pool.write(0, 0, &slots, Rows::of(&k), Some(Rows::of(&k)), NOW).unwrap();
    let op = pool.store(0, &keys, &pages, NOW, &OpOptions::default()).unwrap();
    op.wait(LONG).unwrap();
    assert_eq!(op.items().unwrap(), [Ok(()); 3]);
    let info = op.poll().unwrap();
    assert_eq!((info.state, info.status, info.num_items, info.good_items), (OpState::Ended, Ok(()), 3, 3));
    let target = pool.alloc(0, 3).unwrap();
    let unknown = [keys[0], TierKey([7; 32]), keys[2]];
    let op = pool.load(0, &unknown, &target, NOW, &OpOptions::default()).unwrap();
    assert_eq!(status(op.wait(LONG)), Status::NotFound);
    assert_eq!(op.items().unwrap(), [Ok(()), Err(Status::NotFound), Ok(())]);
    op.cancel().unwrap();
    let mut back = vec![0.0f32; 16 * ROW];
    pool.gather(0, 0, &target[..1], 0..16, Some(RowsMut::of(&mut back)), None, NOW).unwrap();
    assert_eq!(back, k[..16 * ROW]);
    assert_eq!(status(pool.load(0, &keys, &target[..2], NOW, &OpOptions::default())), Status::Invalid);
    assert_eq!(status(pool.store(0, &keys[..1], &[15], NOW, &OpOptions::default())), Status::State);
}

#[test]
fn operations_end_in_a_queue_that_owns_them() {
    let tier = host_tier(1 << 20);
    let pool = pool_over(16, vec![attached(&tier)]);
    let keys = pool.image_keys(0, &Prompt::new(&tokens(1, 48))).unwrap();
    let pages = pool.alloc(0, 3).unwrap();
    let queue = Queue::new().unwrap();
    let ops: Vec<Op> = (0..3u64)
        .map(|i| {
            let at = i as usize..i as usize + 1;
            let options = OpOptions { queue: Some(&queue), user: 1 << 40 | i, ..Default::default() };
            pool.store(0, &keys[at.clone()], &pages[at], NOW, &options).unwrap()
        })
        .collect();
    let mut users = Vec::new();
    while users.len() < 3 {
        for completion in queue.drain(2, LONG).unwrap() {
            assert_eq!(completion.status, Ok(()));
            completion.op.wait(Duration::ZERO).unwrap();
            users.push(completion.user);
        }
    }
    users.sort_unstable();
    assert_eq!(users, [1 << 40, 1 << 40 | 1, 1 << 40 | 2]);
    assert_eq!(queue.drain(2, Duration::ZERO).unwrap().len(), 0);
    // Their handles went with the completions.
    assert_eq!(status(ops[0].poll()), Status::Handle);
    // And those of a queue that goes first with it.
    let left =
        pool.store(0, &keys[..1], &pages[..1], NOW, &OpOptions { queue: Some(&queue), ..Default::default() }).unwrap();
    assert_eq!(status(queue.drain(0, Duration::ZERO)), Status::Invalid);
    drop(queue);
    assert_eq!(status(left.wait(LONG)), Status::Handle);
}

#[test]
fn a_backend_in_a_thread_serves_and_ends() {
    let (backend, store) = Threaded::new();
    let tier = Tier::open(backend).unwrap();
    let pool = pool_over(8, vec![attached(&tier)]);
    assert_eq!(store.memory.load(Ordering::Relaxed), 1);
    let prompt = tokens(1, 32);
    store_and_evict(&pool, &prompt);
    let stats = tier.stats().unwrap();
    assert_eq!((stats.stores, stats.usage.images), (2, 2));
    drop(tier);
    comes_back(&pool, &prompt);
    pool.clear_all().unwrap();
    assert_eq!(admit_all(&pool, &prompt).1.tokens, 0);
    assert!(!store.dropped.load(Ordering::SeqCst));
    pool.close().unwrap();
    // Its close comes when all requests have ended, which may be a little later.
    for _ in 0..1000 {
        if store.dropped.load(Ordering::SeqCst) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(store.dropped.load(Ordering::SeqCst));
    assert_eq!(store.memory.load(Ordering::Relaxed), 0);
}

#[test]
fn a_backend_that_completes_at_once_serves() {
    let store = Arc::new(Store::default());
    let tier = Tier::open(Direct(Arc::clone(&store))).unwrap();
    let pool = pool_over(8, vec![TierAttachment { policy: WritePolicy::WriteThrough, ..attached(&tier) }]);
    let prompt = tokens(1, 32);
    store_and_evict(&pool, &prompt);
    comes_back(&pool, &prompt);
    assert!(store.served.load(Ordering::Relaxed) > 0);
    drop((pool, tier));
    assert!(store.dropped.load(Ordering::SeqCst));
}

#[test]
fn case_q16_a_backend_that_panics_or_forgets_costs_images_only() {
    let store = Arc::new(Store::default());
    let tier = Tier::open(Direct(Arc::clone(&store))).unwrap();
    let pool = pool_over(8, vec![attached(&tier)]);
    let prompt = tokens(1, 32);
    for panics in [true, false] {
        store.panic_on_store.store(panics, Ordering::Relaxed);
        store.drop_items.store(!panics, Ordering::Relaxed);
        let pages = pool.alloc(0, 2).unwrap();
        let keys = pool.image_keys(0, &Prompt::new(&prompt)).unwrap();
        let op = pool.store(0, &keys, &pages, NOW, &OpOptions::default()).unwrap();
        assert_eq!(status(op.wait(LONG)), Status::Io);
        assert_eq!(op.items().unwrap(), [Err(Status::Io); 2]);
    }
    store.drop_items.store(false, Ordering::Relaxed);
    assert!(tier.stats().unwrap().failed_stores >= 4);
}

#[test]
fn a_backend_with_other_bytes_is_found_out() {
    let (backend, store) = Threaded::new();
    let tier = Tier::open(backend).unwrap();
    let pool = pool_over(8, vec![attached(&tier)]);
    let prompt = tokens(1, 32);
    store_and_evict(&pool, &prompt);
    store.spoil.store(true, Ordering::Relaxed);
    let (mut table, _) = admit_all(&pool, &prompt);
    assert_eq!(status(table.restore(0..u64::MAX, LONG)), Status::Lost);
    assert!(tier.stats().unwrap().checksum_failures > 0);
}

#[test]
fn a_mapped_backend_is_read_in_place() {
    let (backend, store) = Mapped::new();
    let tier = Tier::open_mapped(backend).unwrap();
    let pool = pool_over(8, vec![attached(&tier)]);
    let prompt = tokens(1, 32);
    store_and_evict(&pool, &prompt);
    comes_back(&pool, &prompt);
    assert!(store.addresses.load(Ordering::Relaxed) > 0);
    pool.clear_all().unwrap();
    assert_eq!(admit_all(&pool, &prompt).1.tokens, 0);
}

#[test]
fn victims_of_a_mapped_backend_go_down_before_they_are_lost() {
    let (backend, store) = Mapped::new();
    let upper = Tier::open_mapped(backend).unwrap();
    let lower = host_tier(1 << 20);
    let below = TierAttachment { policy: WritePolicy::Demote, ..attached(&lower) };
    let pool = pool_over(8, vec![attached(&upper), below]);
    let prompt = tokens(1, 32);
    store_and_evict(&pool, &prompt);
    for _ in 0..1000 {
        if lower.stats().unwrap().usage.images == 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    store.forget_all();
    let (mut table, found) = admit_all(&pool, &prompt);
    assert_eq!((found.tokens, found.tier_tokens), (32, [0, 32, 0, 0]));
    assert_eq!(table.restore(0..u64::MAX, LONG).unwrap(), 2);
    verify(&mut table, &prompt, 32);
}

struct Named(&'static str);

impl TierBackend for Named {
    fn name(&self) -> &str {
        self.0
    }
    fn submit(&self, _: TierBatch) {}
}

#[test]
fn names_of_backends_are_checked() {
    assert_eq!(status(Tier::open(Named("a\0b"))), Status::Invalid);
    let tiers: Vec<Tier> = (0..3).map(|_| Tier::open(Named("mine")).unwrap()).collect();
    drop(tiers);
}
