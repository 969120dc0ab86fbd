/* SPDX-License-Identifier: Apache-2.0 */
/* The tiers below the replay's pool: host memory, then a file that a later run finds again, then other processes' tiers. */
#ifndef REPLAY_TIERS_H
#define REPLAY_TIERS_H

#include "run.h"

#include <pagedkv/pagedkv.h>
#include <stdbool.h>
#include <stdint.h>

#define TIERS_MAX 3u

typedef struct tier_set {
    pkv_tier *tiers[TIERS_MAX]; /* in the order in which the pool asks them */
    run_place places[TIERS_MAX];
    uint32_t count;
    pkv_node *node; /* NULL: no other process is asked, or told anything */
} tier_set;

/* Bytes that the image of a page takes in a tier, at most. */
uint64_t tiers_image_bytes(const run_config *config);

/* Opens the tiers that the configuration asks for; none is fine. False: stderr says why, and nothing is open. */
bool tiers_open(const run_config *config, tier_set *set);
void tiers_close(tier_set *set);

/* What a pool is told of them: set->count attachments. */
void tiers_attach(const tier_set *set, pkv_tier_attachment *attachments);

/* Their numbers, into result->tiers[place]. */
bool tiers_read(const tier_set *set, const run_config *config, run_result *result);

#endif
