// SPDX-License-Identifier: Apache-2.0
//! Rows: what reaches memory of the caller's is right, and nothing past its end is read or written.

mod common;

use common::*;
use pagedkv::*;
use std::{ptr, slice};

#[test]
fn rows_come_back_as_they_were_written() {
    let pool = pool(8);
    let pages = pool.alloc(0, 2).unwrap();
    let all = tokens(3, 20);
    let slots: Vec<Slot> = (0..20).map(|i| (1 - i / 16) * 16 + i % 16).collect();
    for layer in 0..LAYERS {
        let (k, v) = (rows(&all, 0, 20, layer, 0), rows(&all, 0, 20, layer, 1));
        pool.write(0, layer, &slots, Rows::of(&k), Some(Rows::of(&v)), NOW).unwrap();
    }
    let (mut k, mut v) = (vec![0.0f32; 7 * ROW], vec![0.0f32; 7 * ROW]);
    pool.gather(0, 1, &[pages[1], pages[0]], 13..20, Some(RowsMut::of(&mut k)), Some(RowsMut::of(&mut v)), NOW)
        .unwrap();
    assert_eq!(k, rows(&all, 13, 20, 1, 0));
    assert_eq!(v, rows(&all, 13, 20, 1, 1));
}

#[test]
fn memory_that_is_too_short_is_refused_before_a_byte_is_touched() {
    let pool = pool(8);
    let mut table = computed(&pool, &tokens(1, 20));
    let mut short = vec![-1.0f32; 20 * ROW - 1];
    assert_eq!(status(table.gather(0, 0, 0..20, Some(RowsMut::of(&mut short)), None, NOW)), Status::Invalid);
    assert!(short.iter().all(|&x| x == -1.0));
    let mut few = vec![-1.0f32; 20 * ROW];
    assert_eq!(status(table.gather(0, 0, 0..20, Some(RowsMut::of(&mut few).tokens(19)), None, NOW)), Status::Invalid);
    assert_eq!(status(table.gather(0, 0, 0..20, Some(RowsMut::of::<f32>(&mut [])), None, NOW)), Status::Invalid);
    table.reserve(21).unwrap();
    let k = [0.0f32; ROW - 1];
    assert_eq!(status(table.write(0, 0, 20..21, Rows::of(&k), Some(Rows::of(&[0.0f32; ROW])), NOW)), Status::Invalid);
    assert_eq!(
        status(pool.write(0, 0, &[0, 1], Rows::of(&[0.0f32; ROW]), Some(Rows::of(&[0.0f32; 2 * ROW])), NOW)),
        Status::Invalid
    );
    pool.write(0, 0, &[-1, -1], Rows::of(&[0.0f32; 2 * ROW]), Some(Rows::of(&[0.0f32; 2 * ROW])), NOW).unwrap();
}

#[test]
fn case_q13_strides_are_honoured_and_what_lies_between_is_not_touched() {
    let pool = pool(8);
    let prompt = tokens(2, 20);
    let mut table = computed(&pool, &prompt);
    // [heads, tokens, dim] with a gap of one element behind each row.
    let (token_stride, head_stride) = ((DIM + 1) * 4, 20 * (DIM + 1) * 4);
    let mut out = vec![-7.0f32; HEADS * 20 * (DIM + 1)];
    let view = RowsMut::of(&mut out).strides(token_stride as u64, head_stride as u64);
    table.gather(0, 1, 0..20, Some(view), None, NOW).unwrap();
    let want = rows(&prompt, 0, 20, 1, 0);
    for t in 0..20 {
        for h in 0..HEADS {
            let at = (h * 20 + t) * (DIM + 1);
            assert_eq!(out[at..at + DIM], want[t * ROW + h * DIM..][..DIM]);
            assert_eq!(out[at + DIM], -7.0);
        }
    }
    // And in again.
    let mut other = pool.table().unwrap();
    other.admit(&Prompt::new(&prompt), &AdmitOptions { no_match: true, ..Default::default() }).unwrap();
    let view = Rows::of(&out).strides(token_stride as u64, head_stride as u64);
    other.write(0, 1, 0..20, view, Some(Rows::of(&want)), NOW).unwrap();
    let mut back = vec![0.0f32; 20 * ROW];
    other.gather(0, 1, 0..20, Some(RowsMut::of(&mut back)), None, NOW).unwrap();
    assert_eq!(back, want);
    // The last row would end one element behind the end.
    let cut = out.len() - 2;
    let view = Rows::of(&out[..cut]).strides(token_stride as u64, head_stride as u64);
    assert_eq!(status(other.write(0, 1, 0..20, view, Some(Rows::of(&want)), NOW)), Status::Invalid);
}

#[test]
fn strides_without_a_number_are_refused() {
    let pool = pool(8);
    let mut table = computed(&pool, &tokens(1, 4));
    let mut k = vec![0.0f32; 64];
    for (token, head) in [(u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX), (1 << 63, 1 << 63)] {
        let view = RowsMut::of(&mut k).strides(token, head);
        let result = table.gather(0, 0, 0..4, Some(view), None, NOW);
        assert_eq!(status(result), Status::Invalid, "{} {}", token, head);
    }
}

extern "C" {
    fn mmap(at: *mut u8, bytes: usize, protection: i32, flags: i32, fd: i32, offset: i64) -> *mut u8;
    fn munmap(at: *mut u8, bytes: usize) -> i32;
}

/// Memory that is backed where it is touched.
struct Sparse(*mut u8, usize);

impl Sparse {
    fn new(bytes: usize) -> Self {
        const READ_WRITE: i32 = 3;
        const PRIVATE_ANONYMOUS_NORESERVE: i32 = 0x4022;
        let at = unsafe { mmap(ptr::null_mut(), bytes, READ_WRITE, PRIVATE_ANONYMOUS_NORESERVE, -1, 0) };
        assert_ne!(at as isize, -1);
        Self(at, bytes)
    }

    fn bytes(&mut self) -> &mut [u8] {
        unsafe { slice::from_raw_parts_mut(self.0, self.1) }
    }
}

impl Drop for Sparse {
    fn drop(&mut self) {
        unsafe { munmap(self.0, self.1) };
    }
}

#[test]
fn strides_above_32_bits_reach_their_rows() {
    const STRIDE: u64 = (1 << 32) + (1 << 20);
    let pool = pool(8);
    let prompt = tokens(5, 3);
    let mut table = computed(&pool, &prompt);
    let mut memory = Sparse::new(2 * STRIDE as usize + ROW * 4);
    let view = RowsMut::of_bytes(DType::F32, memory.bytes()).strides(STRIDE, 0);
    table.gather(0, 0, 0..3, Some(view), None, NOW).unwrap();
    let want = rows(&prompt, 0, 3, 0, 0);
    for t in 0..3 {
        let row = &memory.bytes()[t * STRIDE as usize..][..ROW * 4];
        let row: Vec<f32> = row.chunks(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect();
        assert_eq!(row, want[t * ROW..][..ROW]);
    }
    let length = memory.bytes().len() - 1;
    let view = RowsMut::of_bytes(DType::F32, &mut memory.bytes()[..length]).strides(STRIDE, 0);
    assert_eq!(status(table.gather(0, 0, 0..3, Some(view), None, NOW)), Status::Invalid);
}

#[test]
fn case_g01_pages_above_32_bits_have_their_addresses() {
    const STRIDE: u64 = (1 << 32) + (1 << 21);
    let groups = vec![GroupOptions { page_stride: STRIDE, ..group(3) }];
    let pool = match Pool::new(&PoolOptions { groups, huge_pages: HugePages::Never, ..options(3) }) {
        Err(error) if error.status() == Status::NoMemory => return println!("SKIP  no address space: {}", error),
        other => other.unwrap(),
    };
    let _pages = pool.alloc(0, 3).unwrap();
    let (k, v) = ([5.0f32; ROW], [6.0f32; ROW]);
    pool.write(0, 0, &[2 * PAGE_TOKENS as Slot + 3], Rows::of(&k), Some(Rows::of(&v)), NOW).unwrap();
    let layout = pool.layout(0, 0).unwrap();
    assert_eq!(layout.k.page, STRIDE);
    assert_eq!(layout.k_address(2, 0, 0) as u64 - layout.k_base as u64, 2 * STRIDE);
    // Nobody else uses the pool.
    let (k_row, v_row) = unsafe { (layout.k_row(2, 3, 1), layout.v_row(2, 3, 1)) };
    assert_eq!(k_row, 5.0f32.to_ne_bytes().repeat(DIM));
    assert_eq!(v_row, 6.0f32.to_ne_bytes().repeat(DIM));
}

#[test]
fn rows_convert_and_lengths_follow_their_own_type() {
    let groups = vec![GroupOptions { dtype: DType::F16, ..group(4) }];
    let pool = Pool::new(&PoolOptions { groups, ..options(4) }).unwrap();
    let mut table = pool.table().unwrap();
    table.admit(&Prompt::new(&[1, 2]), &Default::default()).unwrap();
    let k: Vec<f32> = (0..2 * ROW).map(|i| i as f32 / 4.0).collect();
    table.write(0, 0, 0..2, Rows::of(&k), Some(Rows::of(&k)), NOW).unwrap();
    let mut bits = vec![F16(0); 2 * ROW];
    table.gather(0, 0, 0..2, Some(RowsMut::of(&mut bits)), None, NOW).unwrap();
    assert_eq!((bits[0], bits[2], bits[4]), (F16(0), F16(0x3800), F16(0x3c00))); // 0, 0.5 and 1
    let mut wide = vec![0.0f32; 2 * ROW];
    table.gather(0, 0, 0..2, Some(RowsMut::of(&mut wide)), None, NOW).unwrap();
    assert_eq!(wide, k);
    let mut bf = vec![Bf16(0); 2 * ROW];
    table.gather(0, 0, 0..2, None, Some(RowsMut::of(&mut bf)), NOW).unwrap();
    assert_eq!(bf[4], Bf16(0x3f80));
    assert_eq!(status(table.gather(0, 0, 0..2, Some(RowsMut::of(&mut bits[..ROW])), None, NOW)), Status::Invalid);
    let mut bytes = vec![0i8; 2 * ROW];
    assert_eq!(status(table.gather(0, 0, 0..2, Some(RowsMut::of(&mut bytes)), None, NOW)), Status::Unsupported);
}

#[test]
fn fp8_and_int8_keep_scales() {
    let groups = vec![GroupOptions { dtype: DType::F8E4M3, scales: Scales::TokenHead, ..group(4) }];
    let pool = Pool::new(&PoolOptions { groups, ..options(4) }).unwrap();
    let mut table = pool.table().unwrap();
    table.admit(&Prompt::new(&[1]), &Default::default()).unwrap();
    let k = [448.0f32, -224.0, 0.0, 112.0, 1.0, 0.5, 0.25, -1.0];
    table.write(0, 0, 0..1, Rows::of(&k), Some(Rows::of(&k)), NOW).unwrap();
    let mut back = [0.0f32; ROW];
    table.gather(0, 0, 0..1, Some(RowsMut::of(&mut back)), None, NOW).unwrap();
    assert_eq!(back, k);
    assert_eq!(
        status(table.write(0, 0, 0..1, Rows::of(&[F8E4M3(0); ROW]), Some(Rows::of(&[F8E4M3(0); ROW])), NOW)),
        Status::Unsupported
    );
}

#[test]
fn groups_without_v_take_none() {
    let groups = vec![GroupOptions { v_head_dim: 0, ..group(4) }];
    let pool = Pool::new(&PoolOptions { groups, ..options(4) }).unwrap();
    let mut table = pool.table().unwrap();
    table.admit(&Prompt::new(&[1]), &Default::default()).unwrap();
    let k = [1.5f32; ROW];
    table.write(0, 0, 0..1, Rows::of(&k), None, NOW).unwrap();
    assert_eq!(status(table.write(0, 0, 0..1, Rows::of(&k), Some(Rows::of(&k)), NOW)), Status::Invalid);
    assert_eq!(pool.layout(0, 0).unwrap().v_row_bytes, 0);
}

#[test]
fn opaque_rows_are_bytes() {
    let of = GroupOptions {
        num_pages: 2,
        num_layers: 1,
        num_kv_heads: 3,
        dtype: DType::Opaque,
        k_row_bytes: 18,
        v_row_bytes: 10,
        ..Default::default()
    };
    let pool = Pool::new(&PoolOptions { page_tokens: 4, groups: vec![of], ..Default::default() }).unwrap();
    let _page = pool.alloc(0, 1).unwrap();
    let k: Vec<u8> = (0..2 * 3 * 18).collect();
    let v: Vec<u8> = (100..100 + 2 * 3 * 10).collect();
    pool.write(0, 0, &[3, 1], Rows::of_bytes(DType::Opaque, &k), Some(Rows::of_bytes(DType::Opaque, &v)), NOW).unwrap();
    let mut back = vec![0u8; 3 * 10];
    pool.gather(0, 0, &[0], 1..2, None, Some(RowsMut::of_bytes(DType::Opaque, &mut back)), NOW).unwrap();
    assert_eq!(back, v[30..]);
}

#[test]
fn unaligned_rows_are_fine() {
    let pool = pool(4);
    let prompt = tokens(6, 5);
    let mut table = computed(&pool, &prompt);
    let mut bytes = [0u8; 5 * ROW * 4 + 1];
    table.gather(0, 0, 0..5, Some(RowsMut::of_bytes(DType::F32, &mut bytes[1..])), None, NOW).unwrap();
    let want: Vec<u8> = rows(&prompt, 0, 5, 0, 0).iter().flat_map(|x| x.to_ne_bytes()).collect();
    assert_eq!(bytes[1..], want[..]);
    let mut other = pool.table().unwrap();
    other.admit(&Prompt::new(&[9; 5]), &Default::default()).unwrap();
    let view = Rows::of_bytes(DType::F32, &bytes[1..]);
    other.write(0, 0, 0..5, view, Some(view), NOW).unwrap();
    let mut back = vec![0.0f32; 5 * ROW];
    other.gather(0, 0, 0..5, None, Some(RowsMut::of(&mut back)), NOW).unwrap();
    assert_eq!(back, rows(&prompt, 0, 5, 0, 0));
}

#[test]
fn pages_are_copied_and_aux_bytes_go_with_them() {
    let groups = vec![GroupOptions { aux_bytes: 8, ..group(4) }];
    let pool = Pool::new(&PoolOptions { groups, ..options(4) }).unwrap();
    let pages = pool.alloc(0, 2).unwrap();
    pool.write(0, 0, &[2], Rows::of(&[3.0f32; ROW]), Some(Rows::of(&[4.0f32; ROW])), NOW).unwrap();
    unsafe { pool.aux(0, pages[0]).unwrap().write(77) };
    pool.copy_pages(0, &pages[..1], &pages[1..], NOW).unwrap();
    assert_eq!(unsafe { pool.aux(0, pages[1]).unwrap().read() }, 77);
    let mut k = [0.0f32; ROW];
    pool.gather(0, 0, &pages[1..], 2..3, Some(RowsMut::of(&mut k)), None, NOW).unwrap();
    assert_eq!(k, [3.0; ROW]);
    assert_eq!(status(pool.copy_pages(0, &pages, &pages[1..], NOW)), Status::Invalid);
    assert_eq!(status(pool.copy_pages(0, &pages[..1], &[3], NOW)), Status::State);
}
