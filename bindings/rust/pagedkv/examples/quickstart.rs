// SPDX-License-Identifier: Apache-2.0
//! Two requests that share a prefix, and a fork of the second: the smallest tour of the library.

use pagedkv::{DType, GroupOptions, Pool, PoolOptions, Prompt, Result, Rows, RowsMut, Table, Token, NOW};

const LAYERS: u32 = 2;
const HEADS: usize = 2;
const HEAD_DIM: usize = 4;
const ROW: usize = HEADS * HEAD_DIM;
const PROMPT: usize = 40;
const TOTAL: usize = PROMPT + 1;

/// Stands in for the model: K and V of one token in one layer, which a real one computes from all tokens up to it.
fn model(token: Token, layer: u32) -> ([f32; ROW], [f32; ROW]) {
    let (mut k, mut v) = ([0.0; ROW], [0.0; ROW]);
    for i in 0..ROW {
        k[i] = (token * 16 + layer as i32 * 8 + i as i32) as f32;
        v[i] = -k[i];
    }
    (k, v)
}

/// Computes tokens from `first` on, in all layers, and says that they are complete.
fn compute(table: &mut Table, tokens: &[Token], first: usize) -> Result<()> {
    let end = tokens.len() as u64;
    for layer in 0..LAYERS {
        let (mut k, mut v) = (Vec::new(), Vec::new());
        for &token in &tokens[first..] {
            let rows = model(token, layer);
            k.extend(rows.0);
            v.extend(rows.1);
        }
        table.write(0, layer, first as u64..end, Rows::of(&k), Some(Rows::of(&v)), NOW)?;
    }
    table.commit(end, NOW)
}

/// Takes a sequence out again and compares every byte: returns how many tokens that were, or panics.
fn verify(table: &mut Table, tokens: &[Token]) -> Result<usize> {
    for layer in 0..LAYERS {
        let (mut k, mut v) = (vec![f32::NAN; tokens.len() * ROW], vec![f32::NAN; tokens.len() * ROW]);
        table.gather(0, layer, 0..tokens.len() as u64, Some(RowsMut::of(&mut k)), Some(RowsMut::of(&mut v)), NOW)?;
        for (t, &token) in tokens.iter().enumerate() {
            let want = model(token, layer);
            let good = k[t * ROW..][..ROW] == want.0 && v[t * ROW..][..ROW] == want.1;
            assert!(good, "token {} of layer {} has other bytes than were written", t, layer);
        }
    }
    Ok(tokens.len())
}

fn main() -> Result<()> {
    let first: Vec<Token> = (0..TOTAL as i32).map(|t| 1000 + t).collect();
    // The same system prompt, then another question.
    let second: Vec<Token> = (0..TOTAL as i32).map(|t| if t < 35 { 1000 + t } else { 2000 + t }).collect();

    // quickstart:begin
    let model = GroupOptions {
        num_pages: 64,
        num_layers: LAYERS, // the model: 2 layers, 2 KV heads of 4 floats
        num_kv_heads: HEADS as u32,
        k_head_dim: HEAD_DIM as u32,
        v_head_dim: HEAD_DIM as u32,
        dtype: DType::F32,
        ..Default::default()
    };
    let pool = Pool::new(&PoolOptions { page_tokens: 16, groups: vec![model], ..Default::default() })?;

    let mut tables = Vec::new();
    for (i, tokens) in [&first[..PROMPT], &second[..PROMPT]].into_iter().enumerate() {
        let mut table = pool.table()?; // request 2 begins with 35 tokens of request 1
        let found = table.admit(&Prompt::new(tokens), &Default::default())?; // takes what is cached, makes room for the rest
        println!("request {}: {} of {} tokens came from the cache", i + 1, found.tokens, PROMPT);
        compute(&mut table, tokens, found.tokens as usize)?; // Table::write layer by layer, Table::commit
        tables.push(table);
    }

    let mut fork = tables[1].fork(NOW)?; // another answer to request 2: all pages are shared
    fork.reserve(TOTAL as u64)?; // room for a token: the last block becomes private
    fork.set_tokens(PROMPT as u64, &second[PROMPT..])?;
    compute(&mut fork, &second, PROMPT)?;
    tables.push(fork);
    for (i, tokens) in [&first[..PROMPT], &second[..PROMPT], &second].into_iter().enumerate() {
        println!("table {}: {} tokens, every byte as written", i + 1, verify(&mut tables[i], tokens)?);
    }
    // quickstart:end

    let stats = pool.stats(0)?;
    let (held, copied) = (stats.held_pages, stats.copied_pages);
    println!("pool: 3 tables of 3 blocks hold {} pages; {} page was copied for the fork", held, copied);
    Ok(())
}
