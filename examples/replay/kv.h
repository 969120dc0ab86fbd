/* SPDX-License-Identifier: Apache-2.0 */
/* What a model would compute, replaced by a function that is cheap and known: token ids from (hash id, place in the
 * block), and KV bytes from (hash id, layer, K or V, place in the block). A hash id stands for a whole prefix, so two
 * requests expect equal bytes exactly where their prefixes are equal. */
#ifndef REPLAY_KV_H
#define REPLAY_KV_H

#include "trace.h"

#include <pagedkv/pagedkv.h>
#include <stdint.h>

enum { KV_K = 0, KV_V = 1 };

/* The namespace of this "model": another name when the functions below change, so that no tier gives back what an older
 * program computed. */
#define KV_MODEL "pagedkv replay 1"

/* The TRACE_BLOCK_TOKENS token ids of a block. */
void kv_tokens(uint64_t id, pkv_token *out);

/* The KV of a block is one stream of 8-byte words, in order of tokens, heads and elements. Writes `words` of them, from
 * `first`, to out. */
void kv_fill(uint64_t id, uint32_t layer, int kind, uint64_t first, uint64_t words, uint64_t *out);

/* Compares every byte at `got` with the same words: returns how many bytes differ, *offset being the first of them. */
uint64_t kv_wrong_bytes(uint64_t id, uint32_t layer, int kind, uint64_t first, uint64_t words, const uint64_t *got,
                        uint64_t *offset);

#endif
