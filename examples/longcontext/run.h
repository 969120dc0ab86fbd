/* SPDX-License-Identifier: Apache-2.0 */
/* One sequence, from its prompt to its last decode step, in a pool that holds all of it or a part. */
#ifndef LONGCONTEXT_RUN_H
#define LONGCONTEXT_RUN_H

#include <pagedkv/pagedkv.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct run_config {
    uint64_t tokens; /* of the prompt */
    uint64_t steps;
    uint64_t layers;
    uint64_t heads;
    uint64_t queries; /* query heads of a KV head */
    uint64_t head_dim;
    uint64_t page_tokens;
    uint64_t ratio; /* the sequence is so many times as large as the pool */
    uint64_t buffers;
    uint64_t seed;
} run_config;

/* What follows from it. */
typedef struct run_geometry {
    uint64_t page_bytes;
    uint64_t prompt_pages;
    uint64_t sequence_pages; /* with the tokens that are decoded */
    uint64_t pool_pages;     /* of the small pool */
    uint64_t staging_pages;  /* of them, the session's */
    uint64_t
        resident_pages;   /* of them, those that hold blocks of the prompt; the rest is for tokens that are decoded */
    uint64_t image_bytes; /* of a page in a tier, at most */
    uint64_t file_bytes;  /* for all pages that do not fit */
} run_geometry;

/* False: the pool is too small to work with. */
bool run_shape(const run_config *config, run_geometry *geometry);

/* What the steps gave. */
typedef struct run_outputs {
    uint64_t row;     /* floats of an output */
    float *values;    /* [steps, row]: the hidden state after the last layer */
    uint8_t *digests; /* [steps, PKV_DIGEST_BYTES]: of what the attention of each layer gave */
    double seconds;   /* all steps */
    uint64_t *ranges; /* [steps]: ranges in which the layers came */
} run_outputs;

bool run_outputs_init(const run_config *config, run_outputs *outputs);
void run_outputs_free(run_outputs *outputs);

/* Steps of which any byte differs. */
uint64_t run_compare(const run_config *config, const run_outputs *a, const run_outputs *b);

typedef struct run_sequence run_sequence;

/* Makes a pool and builds the prompt in it, in chunks. With a tier the pool is the small one, and what does not fit it is
 * spilled. NULL: stderr says why. */
run_sequence *run_build(const run_config *config, pkv_tier *tier);
void run_destroy(run_sequence *sequence);

uint64_t run_absent_blocks(const run_sequence *sequence);

/* Decodes config->steps tokens with everything in pages. False, here and below: stderr says why. */
bool run_resident(run_sequence *sequence, run_outputs *outputs);

/* Decodes them with a prefetch session, and takes them back: the sequence is as before.
 * flags: of pkv_prefetch_options */
bool run_session(run_sequence *sequence, uint32_t flags, run_outputs *outputs, pkv_prefetch_stats *stats);

#endif
