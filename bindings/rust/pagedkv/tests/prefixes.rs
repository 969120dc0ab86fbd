// SPDX-License-Identifier: Apache-2.0
//! Prefixes: who finds what.

mod common;

use common::*;
use pagedkv::*;
use std::time::Duration;

#[test]
fn a_prompt_finds_what_was_published_in_whole_blocks() {
    let pool = pool(8);
    let prompt = tokens(1, 40);
    let pages = pool.alloc(0, 2).unwrap();
    assert_eq!(pool.publish(0, &Prompt::new(&prompt), 0, &pages).unwrap(), &pages[..]);
    let first = pages.to_vec();
    drop(pages);
    let lookup = pool.lookup(&Prompt::new(&prompt), 0).unwrap();
    assert_eq!((lookup.found.tokens, lookup.found.blocks), (32, 2));
    assert_eq!(&lookup.pages[0][..], &first[..]);
    assert_eq!(pool.page_info(0, first[1]).unwrap().count, 1);
    drop(lookup);
    let info = pool.page_info(0, first[1]).unwrap();
    assert_eq!((info.state, info.published, info.block), (PageState::Cached, true, 1));
    // All but the last token, unless more is asked for.
    assert_eq!(pool.probe(&Prompt::new(&prompt[..32]), 0).unwrap().tokens, 16);
    assert_eq!(pool.probe(&Prompt::new(&prompt[..32]), MATCH_ALL).unwrap().tokens, 32);
    assert_eq!(pool.probe(&Prompt::new(&[]), MATCH_ALL).unwrap().tokens, 0);
    assert_eq!(pool.stats(0).unwrap().probes, 3);
}

#[test]
fn namespaces_and_media_keep_prefixes_apart() {
    let pool = pool(16);
    let prompt = tokens(1, 16);
    let mine = Namespace::new().model(b"m").adapter(b"lora", 3, 1).salt(b"tenant 1");
    let image = [Media::new(2, 4, b"digest")];
    let pages = pool.alloc(0, 1).unwrap();
    pool.publish(0, &Prompt::new(&prompt).namespace(&mine).media(&image), 0, &pages).unwrap();
    let found = |namespace: &Namespace<'_>, media: &[Media<'_>]| {
        pool.probe(&Prompt::new(&prompt).namespace(namespace).media(media), MATCH_ALL).unwrap().tokens
    };
    assert_eq!(found(&mine, &image), 16);
    assert_eq!(found(&mine, &[]), 0);
    assert_eq!(found(&mine, &[Media::new(2, 4, b"digest of another")]), 0);
    assert_eq!(found(&Namespace::new(), &image), 0);
    assert_eq!(found(&mine.salt(b"tenant 2"), &image), 0);
    assert_eq!(found(&mine.adapter(b"lora", 3, 2), &image), 0);
    assert_eq!(pool.clear(Some(&mine)).unwrap().held, 1);
    assert_eq!(found(&mine, &image), 0);
    let two = [Media::new(8, 1, b"a"), Media::new(2, 1, b"b")];
    assert_eq!(status(pool.probe(&Prompt::new(&prompt).media(&two), 0)), Status::Invalid);
}

#[test]
fn groups_are_published_and_found_by_themselves() {
    let groups = vec![group(8), GroupOptions { attention: Attention::Window { window: 16, sinks: 0 }, ..group(8) }];
    let pool = Pool::new(&PoolOptions { groups, ..options(8) }).unwrap();
    let prompt = tokens(1, 48);
    let (full, window) = (pool.alloc(0, 3).unwrap(), pool.alloc(1, 3).unwrap());
    pool.publish(0, &Prompt::new(&prompt), 0, &full).unwrap();
    pool.publish(1, &Prompt::new(&prompt), 0, &window).unwrap();
    drop(full);
    // The last one in a list is released first, and evicted first: the head.
    let reversed: Vec<Page> = window.into_ids().into_iter().rev().collect();
    pool.release(1, &reversed, NOW).unwrap();
    pool.evict(1, 1).unwrap();
    let lookup = pool.lookup(&Prompt::new(&prompt), MATCH_ALL).unwrap();
    assert_eq!(lookup.found.tokens, 48);
    assert_eq!(&lookup.pages[0][..], &[0, 1, 2]);
    assert!(lookup.pages[1].contains(&NO_PAGE));
    drop(lookup);
    assert_nothing_held(&pool);
    assert_eq!(pool.stats(1).unwrap().held_pages, 0);
}

#[test]
fn retention_decides_what_is_evicted() {
    let pool = pool(8);
    let keep = Retention { priority: PRIORITY_HIGHEST, ..Default::default() };
    let pin = Retention { pin: true, ttl: Duration::from_secs(3600), ..Default::default() };
    for i in 0..3 {
        drop(computed(&pool, &tokens(i, 16)));
    }
    assert_eq!(pool.set_retention(&Prompt::new(&tokens(0, 16)), 0..u64::MAX, &keep).unwrap(), 1);
    assert_eq!(pool.set_retention(&Prompt::new(&tokens(1, 16)), 0..16, &pin).unwrap(), 1);
    assert_eq!(pool.evict(0, 1).unwrap(), 1);
    let there = |i| pool.probe(&Prompt::new(&tokens(i, 16)), MATCH_ALL).unwrap().tokens == 16;
    assert_eq!((there(0), there(1), there(2)), (true, true, false));
    assert_eq!(pool.evict(0, 8).unwrap(), 1);
    assert_eq!((there(0), there(1)), (false, true));
    assert_eq!(pool.stats(0).unwrap().pinned_pages, 1);
    assert_eq!(
        status(pool.set_retention(&Prompt::new(&tokens(1, 16)), 0..1, &Retention { priority: 101, ..keep })),
        Status::Invalid
    );
    pool.set_namespace_retention(Some(&Namespace::new().salt(b"x")), Some(&keep)).unwrap();
    pool.set_namespace_retention(Some(&Namespace::new().salt(b"x")), None).unwrap();
    assert_eq!(pool.clear_all().unwrap().freed, 1);
}

#[test]
fn keys_of_one_seed_are_those_of_events() {
    let pool = Pool::new(&PoolOptions { seed: 7, event_capacity: 4, ..options(8) }).unwrap();
    let other = Pool::new(&PoolOptions { seed: 7, ..options(2) }).unwrap();
    let prompt = tokens(1, 40);
    drop(computed(&pool, &prompt));
    let keys = other.keys(&Prompt::new(&prompt)).unwrap();
    let events = pool.events(0, 16).unwrap();
    assert_eq!(events.missed, 0);
    assert_eq!(events.events.iter().map(|event| event.key).collect::<Vec<_>>(), keys);
    assert_eq!(events.events[1].parent, keys[0]);
    assert!(events.events.iter().all(|event| event.kind == EventKind::Stored));
    assert_eq!(pool.evict(0, 2).unwrap(), 2);
    drop(computed(&pool, &tokens(2, 16)));
    let late = pool.events(0, 16).unwrap();
    assert_eq!((late.missed, late.events.len()), (1, 4));
    assert_eq!(pool.events(late.events[3].sequence, 16).unwrap().events, []);
    assert_eq!(status(other.events(0, 1)), Status::State);
}

#[test]
fn collisions_of_keys_are_misses() {
    let pool = Pool::new(&PoolOptions { debug_equal_keys: true, debug_poison: true, ..options(8) }).unwrap();
    drop(computed(&pool, &tokens(1, 16)));
    assert_eq!(pool.probe(&Prompt::new(&tokens(2, 16)), MATCH_ALL).unwrap().tokens, 0);
    assert_eq!(pool.probe(&Prompt::new(&tokens(1, 16)), MATCH_ALL).unwrap().tokens, 16);
    assert!(pool.stats(0).unwrap().key_collisions > 0);
}

#[test]
fn digests_keep_parts_apart() {
    assert_ne!(digest(&[b"ab", b"c"]).unwrap(), digest(&[b"a", b"bc"]).unwrap());
    assert_eq!(digest(&[b"", b"x"]).unwrap(), digest(&[b"", b"x"]).unwrap());
    assert_ne!(digest(&[]).unwrap(), digest(&[b""]).unwrap());
}
