/* SPDX-License-Identifier: Apache-2.0 */
/* What is shown of the three runs. */
#ifndef LONGCONTEXT_REPORT_H
#define LONGCONTEXT_REPORT_H

#include "run.h"

#include <pagedkv/pagedkv.h>
#include <stdint.h>

/* A run over the small pool. */
typedef struct report_run {
    double seconds;
    uint64_t wrong_steps;
    pkv_prefetch_stats stats;
} report_run;

typedef struct report {
    run_config config;
    run_geometry geometry;
    uint64_t absent_blocks;
    int32_t engine; /* of the file: PKV_IO_* */
    uint64_t checksum_failures;
    double seconds;                   /* with everything in pages */
    uint8_t digest[PKV_DIGEST_BYTES]; /* of the last step's attention outputs */
    report_run off;
    report_run on;
} report;

void report_table(const report *r);
void report_json(const report *r);

#endif
