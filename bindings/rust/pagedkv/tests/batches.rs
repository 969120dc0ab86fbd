// SPDX-License-Identifier: Apache-2.0
//! Decode steps.

mod common;

use common::*;
use pagedkv::*;
use std::ptr::NonNull;

fn arrays(max_tables: u32) -> BatchOptions {
    let group = GroupArrays {
        fill: -9,
        max_blocks: 4,
        max_indices: 16,
        block_table: Array::Own,
        block_indptr: Array::Own,
        block_indices: Array::Own,
        slot_mapping: Array::Own,
        ..Default::default()
    };
    BatchOptions { max_tables, max_tokens: 8, arrays: vec![group], lengths: Array::Own, last_page_len: Array::Own }
}

/// Sequences, each with its tokens.
fn sequences(pool: &Pool, lengths: &[u64]) -> Vec<(Table, Vec<Token>)> {
    let one = |(i, &length): (usize, &u64)| {
        let prompt = tokens(i as i32 + 1, length);
        (computed(pool, &prompt), prompt)
    };
    lengths.iter().enumerate().map(one).collect()
}

#[test]
fn steps_keep_arrays_and_rows() {
    let pool = pool(32);
    let mut batch = Batch::new(&pool, &arrays(4)).unwrap();
    let mut all = sequences(&pool, &[20, 16, 31]);
    for round in 0..20 {
        let new = [1u32, 2, 1];
        let mut next = Vec::new();
        for (i, (_, tokens)) in all.iter_mut().enumerate() {
            for n in 0..new[i] {
                tokens.push(500_000 + round * 10 + n as i32);
                next.push(*tokens.last().unwrap());
            }
        }
        let lists: Vec<Vec<Token>> = all.iter().map(|(_, tokens)| tokens.clone()).collect();
        let mut step = batch.reserve(all.iter_mut().map(|(table, _)| table), &new).unwrap();
        step.all_rows().unwrap();
        step.set_tokens(&next).unwrap();
        for layer in 0..LAYERS {
            let side = |side| -> Vec<f32> {
                let new_of = |(i, tokens): (usize, &Vec<Token>)| {
                    let end = tokens.len() as u64;
                    rows(tokens, end - u64::from(new[i]), end, layer, side)
                };
                lists.iter().enumerate().flat_map(new_of).collect()
            };
            let (k, v) = (side(0), side(1));
            step.write(0, layer, Rows::of(&k), Some(Rows::of(&v)), NOW).unwrap();
        }
        let lengths: Vec<i32> = lists.iter().map(|tokens| tokens.len() as i32).chain([0]).collect();
        assert_eq!(step.lengths().unwrap(), lengths);
        assert_eq!(step.slot_mapping(0).unwrap()[4..], [NO_SLOT; 4]);
        let outcome = step.commit(None, NOW).unwrap();
        assert_eq!(outcome, [Ok(()), Ok(()), Ok(())]);
        drop(step);
        let indptr = batch.block_indptr(0).unwrap();
        for (r, (table, _)) in all.iter().enumerate() {
            let pages = table.pages(0).unwrap();
            let row = &batch.block_table(0).unwrap()[r * 4..][..4];
            assert_eq!(row[..pages.len()], pages);
            assert!(row[pages.len()..].iter().all(|&page| page == -9));
            assert_eq!(batch.block_indices(0).unwrap()[indptr[r] as usize..indptr[r + 1] as usize], pages);
            assert_eq!(batch.last_page_len().unwrap()[r], (lengths[r] - 1) % 16 + 1);
        }
        if all[1].1.len() > 50 {
            break;
        }
    }
    for (table, tokens) in &mut all {
        verify(table, tokens, tokens.len() as u64);
    }
}

#[test]
fn a_row_without_room_sits_out() {
    let pool = pool(4);
    let mut all = sequences(&pool, &[16, 16]);
    let _rest = pool.alloc(0, 1).unwrap();
    let mut batch = Batch::new(&pool, &arrays(2)).unwrap();
    let mut step = batch.reserve(all.iter_mut().map(|(table, _)| table), &[1, 1]).unwrap();
    assert_eq!(step.rows().collect::<Vec<_>>(), [Ok(()), Err(Status::NoPages)]);
    assert_eq!(step.all_rows().unwrap_err().status(), Status::NoPages);
    step.set_tokens(&[7, 8]).unwrap();
    let k = [1.0f32; 2 * ROW];
    step.write(0, 0, Rows::of(&k), Some(Rows::of(&k)), NOW).unwrap();
    assert_eq!(status(step.write(0, 0, Rows::of(&k[..ROW]), Some(Rows::of(&k)), NOW)), Status::Invalid);
    assert_eq!(step.commit(None, NOW).unwrap(), [Ok(()), Err(Status::NoPages)]);
    assert_eq!(status(step.commit(None, NOW)), Status::State);
    drop(step);
    assert_eq!(all[0].0.info().unwrap().committed, 17);
    assert_eq!(all[1].0.info().unwrap().committed, 16);
}

#[test]
fn what_concerns_the_whole_batch_changes_nothing() {
    let (pool, other) = (pool(16), pool(16));
    let mut all = sequences(&pool, &[16]);
    let mut foreign = computed(&other, &tokens(1, 16));
    let mut batch = Batch::new(&pool, &arrays(1)).unwrap();
    assert_eq!(status(batch.reserve([&mut foreign], &[1])), Status::Invalid);
    assert_eq!(status(batch.reserve([&mut foreign], &[])), Status::Invalid);
    assert_eq!(status(batch.reserve([&mut all[0].0, &mut foreign], &[1, 1])), Status::Limit);
    assert_eq!(status(batch.reserve([&mut all[0].0], &[100])), Status::Limit);
    let mut step = batch.reserve([&mut all[0].0], &[2]).unwrap();
    assert_eq!(status(step.set_tokens(&[1])), Status::Invalid);
    assert_eq!(status(step.commit(Some(&[1, 1]), NOW)), Status::Invalid);
    assert_eq!(status(step.commit(Some(&[3]), NOW)), Status::Invalid);
    assert_eq!(status(step.gather(0, 0, Some(&[]), 0, None, None, NOW)), Status::Invalid);
    step.set_tokens(&[1, 2]).unwrap();
    step.commit(Some(&[1]), NOW).unwrap();
    drop(step);
    assert_eq!(all[0].0.info().unwrap().committed, 17);
    assert_eq!(status(Batch::new(&pool, &BatchOptions { max_tables: 0, ..arrays(1) })), Status::Invalid);
    let huge = GroupArrays { max_blocks: u64::MAX, block_table: Array::Own, ..Default::default() };
    assert_eq!(status(Batch::new(&pool, &BatchOptions { arrays: vec![huge], ..arrays(9) })), Status::NoMemory);
}

#[test]
fn an_abandoned_step_lets_go_of_its_tables() {
    let pool = pool(16);
    let mut batch = Batch::new(&pool, &arrays(2)).unwrap();
    let mut all = sequences(&pool, &[20]);
    let mut step = batch.reserve([&mut all[0].0], &[3]).unwrap();
    step.set_tokens(&[1, 2, 3]).unwrap();
    drop(step);
    let info = all[0].0.info().unwrap();
    assert_eq!((info.committed, info.named), (20, 23));
    assert_eq!(batch.lengths().unwrap(), [0, 0]);
    let (mut table, tokens) = all.pop().unwrap();
    std::thread::spawn(move || verify(&mut table, &tokens, 20)).join().unwrap();
    assert_nothing_held(&pool);
    // A step that was leaked does not stand in the way of the next one, or of anything else.
    let mut table = computed(&pool, &common::tokens(9, 20));
    leak(batch.reserve([&mut table], &[1]).unwrap());
    drop(table);
    let mut table = computed(&pool, &common::tokens(8, 20));
    let mut step = batch.reserve([&mut table], &[1]).unwrap();
    step.commit(None, NOW).unwrap();
    drop(step);
    drop((table, batch));
    assert_nothing_held(&pool);
}

#[test]
fn a_table_of_a_step_that_changes_by_itself_fails_its_row() {
    let pool = pool(16);
    let mut batch = Batch::new(&pool, &arrays(2)).unwrap();
    let mut all = sequences(&pool, &[20, 20]);
    let mut step = batch.reserve(all.iter_mut().map(|(table, _)| table), &[1, 1]).unwrap();
    step.table(1).truncate(10, NOW).unwrap();
    step.set_tokens(&[1, 2]).unwrap();
    assert_eq!(step.rows().collect::<Vec<_>>(), [Ok(()), Err(Status::State)]);
    assert_eq!(step.commit(None, NOW).unwrap()[1], Err(Status::State));
}

#[test]
fn gathers_are_ragged_or_padded() {
    let pool = pool(16);
    let mut batch = Batch::new(&pool, &arrays(2)).unwrap();
    let mut all = sequences(&pool, &[3, 5]);
    let lists: Vec<Vec<Token>> = all.iter().map(|(_, tokens)| tokens.clone()).collect();
    let mut step = batch.reserve(all.iter_mut().map(|(table, _)| table), &[0, 0]).unwrap();
    let mut ragged = vec![-1.0f32; 7 * ROW];
    step.gather(0, 1, Some(&[1, 0]), 0, Some(RowsMut::of(&mut ragged)), None, NOW).unwrap();
    assert_eq!(ragged[..2 * ROW], rows(&lists[0], 1, 3, 1, 0)[..]);
    assert_eq!(ragged[2 * ROW..], rows(&lists[1], 0, 5, 1, 0)[..]);
    let mut padded = vec![-1.0f32; 12 * ROW];
    step.gather(0, 0, None, 6, None, Some(RowsMut::of(&mut padded)), NOW).unwrap();
    assert_eq!(padded[..3 * ROW], rows(&lists[0], 0, 3, 0, 1)[..]);
    assert!(padded[3 * ROW..6 * ROW].iter().all(|&x| x == 0.0));
    assert_eq!(padded[6 * ROW..11 * ROW], rows(&lists[1], 0, 5, 0, 1)[..]);
    assert_eq!(status(step.gather(0, 0, None, 4, None, Some(RowsMut::of(&mut padded)), NOW)), Status::Invalid);
    let end = 12 * ROW - 1;
    assert_eq!(status(step.gather(0, 0, None, 6, None, Some(RowsMut::of(&mut padded[..end])), NOW)), Status::Invalid);
}

#[test]
fn arrays_may_be_in_memory_of_the_callers() {
    let pool = pool(16);
    let mut lengths = vec![-1i32; 3];
    let place = unsafe { Place::new(NonNull::new(lengths.as_mut_ptr()).unwrap()) };
    let options = BatchOptions { max_tables: 3, lengths: Array::At(place), ..Default::default() };
    let mut batch = Batch::new(&pool, &options).unwrap();
    assert!(batch.lengths().is_none());
    let mut all = sequences(&pool, &[20]);
    let mut step = batch.reserve([&mut all[0].0], &[2]).unwrap();
    step.commit(None, NOW).unwrap();
    drop(step);
    drop(batch);
    assert_eq!(lengths, [22, 0, 0]);
}
