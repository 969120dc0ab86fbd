/* SPDX-License-Identifier: Apache-2.0 */
/* Other processes: what the tiers here hold is theirs to read, and the other way round. */
#ifndef REPLAY_SHARE_H
#define REPLAY_SHARE_H

#include "run.h"

#include <pagedkv/pagedkv.h>
#include <stdbool.h>
#include <stdint.h>

/* Opens a node that serves `tiers` if the configuration says so, and connects it to its peers. False: stderr says why. */
bool share_open(const run_config *config, pkv_tier *const *tiers, uint32_t num_tiers, pkv_node **node);

/* The node's numbers and address. */
bool share_read(pkv_node *node, run_result *result);

/* Serves until the process is told to end (SIGTERM, SIGINT). */
bool share_wait(const char *address);

#endif
