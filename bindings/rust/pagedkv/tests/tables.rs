// SPDX-License-Identifier: Apache-2.0
//! Sequences.

mod common;

use common::*;
use pagedkv::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn a_second_request_takes_what_the_first_one_computed() {
    let pool = pool(16);
    let prompt = tokens(1, 40);
    let mut first = computed(&pool, &prompt);
    let mut second = prompt.clone();
    second[35] = -1;
    let mut table = pool.table().unwrap();
    let found = table.admit(&Prompt::new(&second), &Default::default()).unwrap();
    assert_eq!((found.tokens, found.blocks, found.resident_tokens), (32, 2, 32));
    fill(&mut table, &second, 32, 40);
    verify(&mut table, &second, 40);
    verify(&mut first, &prompt, 40);
    let (a, b) = (first.pages(0).unwrap(), table.pages(0).unwrap());
    assert_eq!(a[..2], b[..2]);
    assert_ne!(a[2], b[2]);
}

#[test]
fn forks_share_pages_until_one_writes() {
    let pool = pool(16);
    let mut prompt = tokens(1, 20);
    let mut table = computed(&pool, &prompt);
    let mut fork = table.fork(NOW).unwrap();
    assert_eq!(table.pages(0).unwrap(), fork.pages(0).unwrap());
    fork.reserve(21).unwrap();
    let mut own = prompt.clone();
    own.push(42);
    fork.set_tokens(20, &[42]).unwrap();
    fill(&mut fork, &own, 20, 21);
    prompt.push(43);
    table.reserve(21).unwrap();
    table.set_tokens(20, &[43]).unwrap();
    fill(&mut table, &prompt, 20, 21);
    verify(&mut fork, &own, 21);
    verify(&mut table, &prompt, 21);
    assert_eq!(pool.stats(0).unwrap().copied_pages, 1);
}

#[test]
fn drafts_are_accepted_and_taken_back() {
    let pool = pool(16);
    let prompt = tokens(1, 20);
    let mut table = computed(&pool, &prompt);
    table.reserve(26).unwrap();
    let drafts: Vec<Token> = prompt.iter().copied().chain(900..906).collect();
    for layer in 0..LAYERS {
        let (k, v) = (rows(&drafts, 20, 26, layer, 0), rows(&drafts, 20, 26, layer, 1));
        table.write(0, layer, 20..26, Rows::of(&k), Some(Rows::of(&v)), NOW).unwrap();
    }
    table.accept(&[21, 24], NOW).unwrap();
    let info = table.info().unwrap();
    assert_eq!((info.committed, info.named), (22, 20));
    table.set_tokens(20, &[901, 904]).unwrap();
    let mut k = vec![0.0f32; 2 * ROW];
    table.gather(0, 1, 20..22, Some(RowsMut::of(&mut k)), None, NOW).unwrap();
    assert_eq!(k[..ROW], rows(&drafts, 21, 22, 1, 0)[..]);
    assert_eq!(k[ROW..], rows(&drafts, 24, 25, 1, 0)[..]);
    table.truncate(16, NOW).unwrap();
    assert_eq!(table.info().unwrap().committed, 16);
    assert_eq!(status(table.accept(&[3, 2], NOW)), Status::Invalid);
    verify(&mut table, &prompt, 16);
    table.clear(NOW).unwrap();
    assert_nothing_free_is_lost(&pool);
    table.admit(&Prompt::new(&prompt), &AdmitOptions { retry: true, ..Default::default() }).unwrap();
    assert_eq!(pool.stats(0).unwrap().retries, 1);
}

fn assert_nothing_free_is_lost(pool: &Pool) {
    let stats = pool.stats(0).unwrap();
    assert_eq!((stats.held_pages, stats.free_pages + stats.cached_pages), (0, stats.num_pages));
}

#[test]
fn windows_pass_blocks() {
    let groups = vec![GroupOptions { attention: Attention::Window { window: 16, sinks: 1 }, ..group(16) }];
    let pool = Pool::new(&PoolOptions { groups, ..options(16) }).unwrap();
    let prompt = tokens(1, 80);
    let mut table = computed(&pool, &prompt);
    table.window(NOW).unwrap();
    let pages = table.pages(0).unwrap();
    assert_eq!(pages.iter().map(|&page| page == NO_PAGE).collect::<Vec<_>>(), [false, true, true, true, false]);
    use Residency::*;
    assert_eq!(table.residency(0, 0..5).unwrap(), [Resident, Dropped, Dropped, Dropped, Resident]);
    assert_eq!(table.slots(0, 15..17).unwrap(), [15, NO_SLOT]);
    let mut k = vec![0.0f32; 20 * ROW];
    assert_eq!(status(table.gather(0, 0, 60..80, Some(RowsMut::of(&mut k)), None, NOW)), Status::NotResident);
    assert_eq!(status(table.residency(0, 0..6)), Status::Invalid);
}

#[test]
fn a_sequence_goes_to_a_pool_with_other_pages() {
    let prompt = tokens(1, 50);
    let bytes = {
        let pool = pool(8);
        computed(&pool, &prompt).export().unwrap()
    };
    let groups = vec![GroupOptions { layout: Layout::Hnd, arrangement: Arrangement::LayerMajor, ..group(16) }];
    let pool = Pool::new(&PoolOptions { page_tokens: 5, groups, ..Default::default() }).unwrap();
    let mut table = pool.table().unwrap();
    table.import(&bytes).unwrap();
    verify(&mut table, &prompt, 50);
    let other = Pool::new(&PoolOptions {
        page_tokens: 16,
        groups: vec![GroupOptions { num_kv_heads: 1, ..group(8) }],
        ..Default::default()
    });
    let error = other.unwrap().table().unwrap().import(&bytes).unwrap_err();
    assert_eq!(error.status(), Status::Mismatch);
    assert!(error.message().contains("num_kv_heads"), "{}", error);
}

#[test]
fn a_pool_of_ids_says_what_to_copy() {
    let groups = vec![GroupOptions { memory: Memory::None, ..group(8) }];
    let pool = Pool::new(&PoolOptions { groups, ..options(8) }).unwrap();
    let mut table = pool.table().unwrap();
    table.admit(&Prompt::new(&tokens(1, 20)), &Default::default()).unwrap();
    table.commit(20, NOW).unwrap();
    let mut fork = table.fork(NOW).unwrap();
    fork.reserve(21).unwrap();
    let copies = fork.take_copies().unwrap();
    assert_eq!(copies, [PageCopy { group: 0, src: 1, dst: 2 }]);
    assert_eq!(fork.take_copies().unwrap(), []);
    assert!(pool.layout(0, 0).unwrap().k_base.is_null());
    assert_eq!(status(table.export()), Status::Unsupported);
}

#[test]
fn a_match_may_end_inside_a_block_and_duplicates_are_shared() {
    let pool = pool(16);
    let prompt = tokens(1, 32);
    let _first = computed(&pool, &prompt);
    let mut other = prompt.clone();
    other[20] = -1;
    let mut table = pool.table().unwrap();
    let found = table.admit(&Prompt::new(&other), &AdmitOptions { partial: true, ..Default::default() }).unwrap();
    assert_eq!(found.tokens, 20);
    verify(&mut table, &other, 20);
    let mut twin = pool.table().unwrap();
    twin.admit(&Prompt::new(&prompt), &AdmitOptions { no_match: true, share: true, ..Default::default() }).unwrap();
    fill(&mut twin, &prompt, 0, 32);
    assert_eq!(pool.stats(0).unwrap().shared_duplicates, 2);
    verify(&mut twin, &prompt, 32);
    table.set_retention(0..u64::MAX, &Retention { priority: 90, ..Default::default() }).unwrap();
}

#[test]
fn admission_keeps_a_watermark_and_counts_what_it_refuses() {
    let pool = pool(4);
    let prompt = tokens(1, 40);
    let mut table = pool.table().unwrap();
    let options = AdmitOptions { watermark: 2, ..Default::default() };
    assert_eq!(status(table.admit(&Prompt::new(&prompt), &options)), Status::NoPages);
    table.admit(&Prompt::new(&prompt), &AdmitOptions { reserve_tokens: 16, ..options }).unwrap();
    assert_eq!(table.info().unwrap().reserved, 16);
    assert_eq!(pool.stats(0).unwrap().refused, 1);
}

#[test]
fn buffers_for_pages_and_slots_are_checked() {
    let pool = pool(8);
    let mut table = computed(&pool, &tokens(1, 40));
    let mut pages = [0; 8];
    assert_eq!(table.pages_into(0, &mut pages).unwrap(), 3);
    assert_eq!(status(table.pages_into(0, &mut pages[..2])), Status::NoSpace);
    assert_eq!(status(table.pages_into(0, &mut [])), Status::NoSpace);
    assert_eq!(status(table.pages(1)), Status::Invalid);
    table.reserve(42).unwrap();
    let mut slots = [0; 2];
    table.slots_into(0, 40, &mut slots).unwrap();
    assert_eq!(slots, [40, 41]);
    assert_eq!(table.slots(0, 0..0).unwrap(), []);
    let empty = pool.table().unwrap();
    assert_eq!(empty.pages(0).unwrap(), []);
}

#[test]
fn a_write_waits_for_a_counter_of_another_thread() {
    let pool = pool(4);
    let prompt = tokens(1, 4);
    let mut table = pool.table().unwrap();
    table.admit(&Prompt::new(&prompt), &Default::default()).unwrap();
    let (counter, seen) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(5));
            seen.store(1, Ordering::SeqCst);
            counter.store(3, Ordering::Release);
        });
        let k = rows(&prompt, 0, 4, 0, 0);
        table.write(0, 0, 0..4, Rows::of(&k), Some(Rows::of(&k)), When::counter(&counter, 3, LONG)).unwrap();
        assert_eq!(seen.load(Ordering::SeqCst), 1);
    });
}
