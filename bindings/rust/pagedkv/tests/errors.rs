// SPDX-License-Identifier: Apache-2.0
//! Errors: the right status, a message with the values at fault, and nothing changed.

mod common;

use common::*;
use pagedkv::*;
use std::{sync::atomic::AtomicU64, time::Duration};

#[test]
fn options_out_of_range_name_the_field_and_the_value() {
    let error = Pool::new(&PoolOptions { page_tokens: 70_000, ..options(8) }).unwrap_err();
    assert_eq!(error.status(), Status::Limit);
    assert!(error.message().contains("page_tokens") && error.message().contains("70000"), "{}", error);
    assert!(error.to_string().starts_with("PKV_ERR_LIMIT: "), "{}", error);
}

#[test]
fn pools_without_groups_or_pages_are_refused() {
    assert_eq!(status(Pool::new(&PoolOptions { groups: Vec::new(), ..options(8) })), Status::Invalid);
    assert_eq!(status(Pool::new(&options(0))), Status::Invalid);
    assert_eq!(status(Pool::new(&PoolOptions { groups: vec![group(8); 9], ..options(8) })), Status::Limit);
}

#[test]
fn lists_of_scales_and_bases_must_be_as_long_as_the_library_reads() {
    let of = |scales| {
        Pool::new(&PoolOptions { groups: vec![GroupOptions { dtype: DType::I8, scales, ..group(4) }], ..options(4) })
    };
    let error = of(Scales::Tensor { k: vec![1.0], v: vec![1.0; 2] }).unwrap_err();
    assert_eq!(error.status(), Status::Invalid);
    assert_eq!(error.message(), "groups[0]: scales of K has 1 entries, not 2");
    assert_eq!(status(of(Scales::Head { k: vec![1.0; 4], v: vec![1.0; 3] })), Status::Invalid);
    of(Scales::Head { k: vec![1.0; 4], v: vec![1.0; 4] }).unwrap();
    // Never read: the lists are too short.
    let memory =
        unsafe { CallerMemory::new(vec![std::ptr::null_mut()], Vec::new(), Strides::default(), Strides::default()) };
    let groups = vec![GroupOptions { memory: Memory::Caller(memory), ..group(4) }];
    assert_eq!(status(Pool::new(&PoolOptions { groups, ..options(4) })), Status::Invalid);
}

#[test]
fn numbers_that_are_none_are_refused_by_the_library() {
    let groups = vec![GroupOptions { dtype: DType::Other(99), ..group(8) }];
    assert_eq!(status(Pool::new(&PoolOptions { groups, ..options(8) })), Status::Invalid);
    let error = Tier::open_host(&HostTierOptions { capacity_bytes: 1, ..Default::default() }).unwrap_err();
    assert_eq!(error.status(), Status::Invalid);
}

#[test]
fn too_few_pages_change_nothing() {
    let pool = pool(4);
    let held = pool.alloc(0, 3).unwrap();
    assert_eq!(status(pool.alloc(0, 2)), Status::NoPages);
    assert_eq!(pool.stats(0).unwrap().free_pages, 1);
    assert_eq!(status(pool.alloc(1, 1)), Status::Invalid);
    drop(held);
    assert_nothing_held(&pool);
}

#[test]
fn case_g14_more_pages_than_a_number_has_are_an_error() {
    let pool = pool(4);
    assert_eq!(status(pool.alloc(0, usize::MAX)), Status::NoMemory);
    assert!(matches!(status(pool.alloc(0, 1 << 20)), Status::NoPages));
}

#[test]
fn tables_say_what_they_are_not_ready_for() {
    let pool = pool(4);
    let mut table = pool.table().unwrap();
    assert_eq!(status(table.reserve(1)), Status::State);
    let prompt = tokens(1, 20);
    table.admit(&Prompt::new(&prompt), &Default::default()).unwrap();
    assert_eq!(status(table.admit(&Prompt::new(&prompt), &Default::default())), Status::State);
    assert_eq!(status(table.commit(33, NOW)), Status::Invalid);
    assert_eq!(status(table.set_tokens(21, &[1])), Status::Invalid);
    assert_eq!(status(table.reserve(1 << 41)), Status::Limit);
    assert_eq!(status(table.slots(0, 0..u64::MAX)), Status::Invalid);
    assert_eq!(table.info().unwrap().named, 20);
}

#[test]
fn ranges_that_end_before_they_begin_are_refused() {
    let pool = pool(4);
    let mut table = computed(&pool, &tokens(1, 20));
    let mut k = vec![0.0f32; ROW];
    #[allow(clippy::reversed_empty_ranges)]
    let error = table.gather(0, 0, 5..3, Some(RowsMut::of(&mut k)), None, NOW).unwrap_err();
    assert_eq!((error.status(), error.message()), (Status::Invalid, "tokens 5..3 ends before it begins"));
}

#[test]
fn strings_with_a_zero_byte_are_refused() {
    let options = FileTierOptions { path: "a\0b".into(), capacity_bytes: 1 << 20, ..Default::default() };
    let error = Tier::open_file(&options).unwrap_err();
    assert_eq!((error.status(), error.message()), (Status::Invalid, "path has a zero byte at 1"));
}

#[test]
fn files_that_cannot_be_made_say_why() {
    let options =
        FileTierOptions { path: "/nonexistent/folder/kv".into(), capacity_bytes: 1 << 20, ..Default::default() };
    let error = Tier::open_file(&options).unwrap_err();
    assert_eq!(error.status(), Status::Io);
    assert!(error.message().contains("/nonexistent/folder/kv"), "{}", error);
}

#[test]
fn a_counter_that_does_not_come_is_a_timeout_and_changes_nothing() {
    let pool = pool(4);
    let prompt = tokens(1, 8);
    let mut table = pool.table().unwrap();
    table.admit(&Prompt::new(&prompt), &Default::default()).unwrap();
    let counter = AtomicU64::new(1);
    let late = When::counter(&counter, 2, Duration::from_millis(1));
    let k = rows(&prompt, 0, 8, 0, 0);
    assert_eq!(status(table.write(0, 0, 0..8, Rows::of(&k), Some(Rows::of(&k)), late)), Status::Timeout);
    assert_eq!(status(table.commit(8, late)), Status::Timeout);
    assert_eq!(table.info().unwrap().committed, 0);
    // The table is handed back.
    let failed = table.close(late).unwrap_err();
    assert_eq!(failed.error.status(), Status::Timeout);
    failed.value.close(When::counter(&counter, 1, Duration::ZERO)).unwrap();
    assert_nothing_held(&pool);
}

#[test]
fn streams_on_pools_in_host_memory_are_unsupported() {
    let pool = pool(4);
    let stream = unsafe { When::cuda_stream(8 as *mut _) };
    assert_eq!(status(pool.release(0, &[], stream)), Status::Unsupported);
    let event = unsafe { When::cuda_event(8 as *mut _) };
    assert_eq!(status(pool.table().unwrap().clear(event)), Status::Unsupported);
}

#[test]
fn a_damaged_export_is_refused_and_the_table_stays_empty() {
    let pool = pool(8);
    let prompt = tokens(1, 40);
    let good = computed(&pool, &prompt).export().unwrap();
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    let mut table = pool.table().unwrap();
    assert_eq!(status(table.import(&bad)), Status::Invalid);
    assert_eq!(status(table.import(&good[..good.len() - 1])), Status::Invalid);
    assert_eq!(status(table.import(&[])), Status::Invalid);
    assert_eq!(table.info().unwrap().named, 0);
    table.import(&good).unwrap();
    verify(&mut table, &prompt, 40);
}

#[test]
fn errors_are_values_that_compare_and_travel() {
    fn travels<T: Send + Sync + 'static + std::error::Error>(_: &T) {}
    let error = Pool::new(&options(0)).unwrap_err();
    travels(&error);
    assert_eq!(error, error.clone());
    let boxed: Box<dyn std::error::Error + Send + Sync> = error.into();
    assert!(boxed.to_string().contains("num_pages"));
}

#[test]
fn statuses_have_the_numbers_and_names_of_the_library() {
    for code in -21..0 {
        let status = Status::from_code(code);
        assert!(!matches!(status, Status::Other(_)), "{}", code);
        assert_eq!(status.code(), code);
        assert!(status.to_string().starts_with("PKV_ERR_"));
    }
    assert_eq!(Status::NoPages.to_string(), "PKV_ERR_NO_PAGES");
    assert_eq!(Status::from_code(-4711).to_string(), "PKV_ERR_UNKNOWN");
}

#[test]
fn a_message_is_that_of_the_thread_that_failed() {
    let pool = pool(4);
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let pool = &pool;
            scope.spawn(move || {
                for i in 0..200 {
                    let page = 1000 + (thread * 1000 + i) as i32;
                    let error = pool.page_info(0, page).unwrap_err();
                    assert!(error.message().contains(&page.to_string()), "{}", error);
                }
            });
        }
    });
}
