// SPDX-License-Identifier: Apache-2.0
//! Prediction, as a pure function.

use crate::codes::Prediction;
use crate::error::{check, Result};
use crate::pool::filled;
use crate::text::{address, address_mut};
use pagedkv_sys as sys;
use std::ptr;

/// What decides which blocks a sequence needs next.
///
/// ```
/// # use pagedkv::Predictor;
/// # fn main() -> pagedkv::Result<()> {
/// let predictor = Predictor { page_tokens: 16, sink_tokens: 4, lookahead: 2, ..Default::default() };
/// assert_eq!(predictor.predict(1600, 320, &[])?, [0, 20, 21]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Predictor {
    /// Which blocks
    pub policy: Prediction,
    /// Tokens of a block: 1 .. 65536
    pub page_tokens: u32,
    /// The first tokens of the sequence, which are always predicted (attention sinks)
    pub sink_tokens: u64,
    /// The last tokens before the position, which are always predicted
    pub recent_tokens: u64,
    /// `Prediction::Sequential`: blocks from that of the position on; `Prediction::Hinted`: blocks by score; `Prediction::Full`: not
    /// used
    pub lookahead: u64,
}

impl Predictor {
    /// Predicts which blocks of a sequence are needed next, in the order in which they should be loaded, each once: those of the
    /// sink tokens, those that hold recent tokens, then those that the policy says.
    ///
    /// * `num_tokens`: tokens of the sequence
    /// * `position`: the token to be computed next: 0 .. num_tokens
    /// * `scores`: `Prediction::Hinted`: score i is of block i; blocks without one, and those whose score is NaN, are not predicted
    ///   by score
    pub fn predict(&self, num_tokens: u64, position: u64, scores: &[f32]) -> Result<Vec<u64>> {
        let mut raw = sys::PKV_PREDICTOR_INIT;
        raw.policy = self.policy.code();
        raw.page_tokens = self.page_tokens;
        raw.sink_tokens = self.sink_tokens;
        raw.recent_tokens = self.recent_tokens;
        raw.lookahead = self.lookahead;
        let ask = |out: *mut u64, capacity: u64| -> Result<u64> {
            let mut count = 0;
            let list = address(scores);
            let scores = scores.len() as u64;
            check(unsafe {
                sys::pkv_prefetch_predict(&raw, num_tokens, position, scores, list, out, capacity, &mut count)
            })?;
            Ok(count)
        };
        let count = ask(ptr::null_mut(), 0)?;
        let mut blocks = filled(0, usize::try_from(count).ok(), "blocks")?;
        if count != 0 {
            ask(address_mut(&mut blocks), count)?;
        }
        Ok(blocks)
    }
}
