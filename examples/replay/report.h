/* SPDX-License-Identifier: Apache-2.0 */
/* What a replay came to, on stdout. */
#ifndef REPLAY_REPORT_H
#define REPLAY_REPORT_H

#include "run.h"
#include "sweep.h"

/* `points` may be NULL: no sweep was made. */
void report_table(const run_config *config, const run_result *result, const sweep *points);
void report_json(const run_config *config, const run_result *result, const sweep *points);

/* "1,234,567", in one of a few static buffers that are used in turn: at most four results live in one expression. */
const char *grouped(uint64_t n);

/* The part of a path after its last slash. */
const char *base_name(const char *path);

#endif
