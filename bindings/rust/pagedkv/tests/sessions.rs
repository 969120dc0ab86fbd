// SPDX-License-Identifier: Apache-2.0
//! Prefetch sessions.

mod common;

use common::*;
use pagedkv::*;
use std::time::Duration;

/// Rows of a table in a view, token by token, compared with what was written.
fn compare(view: &LayerView<'_>, t: usize, tokens: &[Token]) -> u64 {
    let layout = view.layout();
    let (first, slices) = view.of_table(t);
    let mut seen = 0;
    for (i, &slice) in slices.iter().enumerate() {
        assert!(slice >= 0, "block {} is missing", first + i as u64);
        for offset in 0..PAGE_TOKENS {
            let token = (first + i as u64) * PAGE_TOKENS + offset;
            if token >= tokens.len() as u64 {
                break;
            }
            for (side, row_of) in [
                (0, LayerLayout::k_row as unsafe fn(&LayerLayout, Page, u32, u32) -> &'static [u8]),
                (1, LayerLayout::v_row),
            ] {
                let want = rows(tokens, token, token + 1, view.layer(), side);
                for head in 0..HEADS {
                    // Nobody writes: the step has the table, and pages of the pool are not written otherwise.
                    let row = unsafe { row_of(&layout, slice, offset as u32, head as u32) };
                    let want: Vec<u8> = want[head * DIM..][..DIM].iter().flat_map(|x| x.to_ne_bytes()).collect();
                    assert_eq!(row, want, "token {} of layer {}", token, view.layer());
                }
            }
            seen += 1;
        }
    }
    seen
}

struct Setup {
    _tier: Tier,
    pool: Pool,
}

/// A pool of few pages over a host tier of many images.
fn setup(pages: u64) -> Setup {
    let tier = host_tier(4 << 20);
    let pool = pool_over(pages, vec![attached(&tier)]);
    Setup { _tier: tier, pool }
}

#[test]
fn steps_show_every_row_of_sequences_larger_than_the_pool() {
    let setup = setup(16);
    let mut session =
        Session::open(&setup.pool, &SessionOptions { staging_pages: vec![6], ..Default::default() }).unwrap();
    // 30 blocks through 10 pages.
    let prompt = tokens(1, 480);
    let mut table = setup.pool.table().unwrap();
    table.admit(&Prompt::new(&prompt), &AdmitOptions { reserve_tokens: 64, ..Default::default() }).unwrap();
    for at in (0..480).step_by(64) {
        let end = (at + 64).min(480);
        table.reserve(end).unwrap();
        fill(&mut table, &prompt, at, end);
        table.spill(0..u64::MAX, NOW).unwrap();
    }
    for _ in 0..3 {
        let mut step = session.step([&mut table], None).unwrap();
        assert_eq!(step.tables().collect::<Vec<_>>(), [Ok(())]);
        assert_eq!(step.table(0).info().unwrap().committed, 480);
        for layer in 0..LAYERS {
            let (mut seen, mut ranges) = (0, 0);
            loop {
                let view = step.acquire(layer, LONG).unwrap();
                assert_eq!((view.index(), view.group(), view.layer()), (layer, 0, layer));
                assert_eq!(view.indptr().len(), 2);
                seen += compare(&view, 0, &prompt);
                ranges += 1;
                if view.last() {
                    break;
                }
            }
            assert_eq!(seen, 480);
            assert!(ranges > 1);
        }
        assert_eq!(step.end().unwrap(), [Ok(())]);
    }
    let stats = session.stats().unwrap();
    assert_eq!((stats.steps, stats.failed), (3, 0));
    assert_eq!(stats.needed, stats.on_time + stats.late + stats.on_demand);
    session.close(NOW).unwrap();
    drop(table);
    assert_nothing_held(&setup.pool);
}

#[test]
fn views_are_let_go_in_any_order() {
    let setup = setup(32);
    let mut session = Session::open(&setup.pool, &SessionOptions::default()).unwrap();
    let prompt = tokens(1, 40);
    let mut table = computed(&setup.pool, &prompt);
    let step = session.step([&mut table], None).unwrap();
    let stream = unsafe { When::cuda_stream(4096 as *mut _) };
    assert_eq!(status(step.acquire_in(0, LONG, stream)), Status::Unsupported); // a pool in host memory
    let first = step.acquire(0, LONG).unwrap();
    let second = step.acquire(1, LONG).unwrap();
    assert_eq!(compare(&second, 0, &prompt), 40);
    let failed = second.release(NOW).unwrap_err();
    assert_eq!(failed.error.status(), Status::State);
    drop(failed);
    assert_eq!(compare(&first, 0, &prompt), 40);
    first.release(NOW).unwrap();
    assert_eq!(status(step.acquire(0, LONG)), Status::State);
    assert_eq!(step.end().unwrap(), [Ok(())]);
    // Dropped in the middle, with a view that was leaked.
    let step = session.step([&mut table], None).unwrap();
    leak(step.acquire(0, LONG).unwrap());
    drop(step);
    let step = session.step([&mut table], None).unwrap();
    drop((step.acquire(0, LONG).unwrap(), step.acquire(1, LONG).unwrap()));
    step.end().unwrap();
}

#[test]
fn a_view_is_read_by_several_threads() {
    let setup = setup(32);
    let mut session = Session::open(&setup.pool, &SessionOptions::default()).unwrap();
    let lists = [tokens(1, 40), tokens(2, 70)];
    let mut tables: Vec<Table> = lists.iter().map(|list| computed(&setup.pool, list)).collect();
    let step = session.step(&mut tables, Some(&[40, 64])).unwrap();
    let view = step.acquire(0, LONG).unwrap();
    let data: &LayerData = &view;
    std::thread::scope(|scope| {
        let one = scope.spawn(|| data.of_table(0).1.len());
        let two = scope.spawn(|| data.of_table(1).1.len());
        assert_eq!((one.join().unwrap(), two.join().unwrap()), (3, 4));
    });
    assert_eq!(data.waited(), Duration::ZERO);
}

#[test]
fn a_step_that_was_leaked_is_said_to_be_under_way() {
    let setup = setup(32);
    let mut session = Session::open(&setup.pool, &SessionOptions::default()).unwrap();
    let mut table = computed(&setup.pool, &tokens(1, 40));
    leak(session.step([&mut table], None).unwrap());
    assert_eq!(status(session.step([&mut table], None)), Status::State);
    drop(table);
    drop(session);
    assert_nothing_held(&setup.pool);
}

#[test]
fn a_prompt_is_loaded_before_its_request() {
    let setup = setup(16);
    let mut session =
        Session::open(&setup.pool, &SessionOptions { staging_pages: vec![4], ..Default::default() }).unwrap();
    let prompt = tokens(1, 64);
    drop(computed(&setup.pool, &prompt));
    setup.pool.flush(LONG).unwrap();
    setup.pool.evict(0, u64::MAX).unwrap();
    let (found, op) = session.prompt(&Prompt::new(&prompt), &OpOptions::default()).unwrap();
    assert_eq!((found.tokens, found.resident_tokens), (64, 0));
    op.wait(LONG).unwrap();
    let queue = Queue::new().unwrap();
    let options = OpOptions { queue: Some(&queue), user: 5, ..Default::default() };
    let (found, _) = session.prompt(&Prompt::new(&prompt), &options).unwrap();
    assert_eq!(found.resident_tokens, 64);
    assert_eq!(queue.drain(4, LONG).unwrap()[0].user, 5);
    let mut table = setup.pool.table().unwrap();
    let found =
        table.admit(&Prompt::new(&prompt), &AdmitOptions { max_match: MATCH_ALL, ..Default::default() }).unwrap();
    assert_eq!(found.resident_tokens, 64);
    verify(&mut table, &prompt, 64);
    session.cancel().unwrap();
}

#[test]
fn predicted_blocks_are_ready_when_they_are_required() {
    let setup = setup(32);
    let options = SessionOptions {
        policy: Prediction::Hinted,
        max_lookahead: 2,
        max_block_pages: 8,
        staging_pages: vec![4],
        ..Default::default()
    };
    let mut session = Session::open(&setup.pool, &options).unwrap();
    let prompt = tokens(1, 160);
    let mut table = computed(&setup.pool, &prompt);
    table.spill(0..u64::MAX, NOW).unwrap();
    session.hint(&mut table, &[0.0, 5.0, 0.0, 7.0]).unwrap();
    assert_eq!(session.submit(&mut table, 160).unwrap(), 2);
    while session.stats().unwrap().good_loads < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let result = session.require(&mut table, 3..4, LONG).unwrap();
    assert_eq!((result.on_time, result.waited_ns), (1, 0));
    let result = session.require(&mut table, 0..u64::MAX, LONG).unwrap();
    assert_eq!((result.resident, result.on_time + result.late + result.on_demand), (1, 9));
    verify(&mut table, &prompt, 160);
    let failed = session.require(&mut table, 11..12, LONG).unwrap_err();
    assert_eq!(failed.error.status(), Status::Invalid);
    assert_eq!(Error::from(failed).status(), Status::Invalid);
    assert_eq!(status(session.submit(&mut table, 161)), Status::Invalid);
    assert_eq!(session.stats().unwrap().lookahead, 2);
}

#[test]
fn options_of_sessions_are_checked() {
    let plain = pool(8);
    assert_eq!(status(Session::open(&plain, &SessionOptions::default())), Status::State);
    let setup = setup(16);
    let open = |options: SessionOptions| status(Session::open(&setup.pool, &options));
    assert_eq!(open(SessionOptions { staging_pages: vec![1, 1], ..Default::default() }), Status::Invalid);
    assert_eq!(open(SessionOptions { staging_pages: vec![17], ..Default::default() }), Status::NoPages);
    assert_eq!(
        open(SessionOptions { layers: vec![LayerRef { group: 0, layer: 9 }], ..Default::default() }),
        Status::Invalid
    );
    let layers = vec![LayerRef { group: 0, layer: 1 }];
    let mut session = Session::open(&setup.pool, &SessionOptions { layers, ..Default::default() }).unwrap();
    let mut table = computed(&setup.pool, &tokens(1, 20));
    assert_eq!(status(session.step([&mut table], Some(&[1, 2]))), Status::Invalid);
    assert_eq!(status(session.step([&mut table], Some(&[999]))), Status::Invalid);
    let step = session.step([&mut table], None).unwrap();
    assert_eq!(step.acquire(0, LONG).unwrap().layer(), 1);
}

#[test]
fn numbers_of_a_session_are_for_any_thread() {
    let setup = setup(16);
    let session = Session::open(&setup.pool, &SessionOptions::default()).unwrap();
    let monitor = session.monitor();
    std::thread::spawn(move || monitor.stats().unwrap()).join().unwrap();
    drop(session);
    assert_eq!(status(monitor.stats()), Status::Handle);
}

#[test]
fn predictions_are_a_function() {
    let predictor = Predictor { policy: Prediction::Full, page_tokens: 16, recent_tokens: 20, ..Default::default() };
    assert_eq!(predictor.predict(80, 48, &[]).unwrap(), [1, 2, 0, 3, 4]);
    let hinted = Predictor { policy: Prediction::Hinted, page_tokens: 16, lookahead: 2, ..Default::default() };
    assert_eq!(hinted.predict(80, 0, &[1.0, f32::NAN, 3.0, 3.0]).unwrap(), [2, 3]);
    assert_eq!(hinted.predict(0, 0, &[]).unwrap(), []);
    assert_eq!(status(Predictor::default().predict(80, 0, &[])), Status::Invalid);
    assert_eq!(status(hinted.predict(1 << 41, 0, &[])), Status::Limit);
}
