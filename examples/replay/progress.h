/* SPDX-License-Identifier: Apache-2.0 */
/* A progress bar on stderr, if that is a terminal. */
#ifndef REPLAY_PROGRESS_H
#define REPLAY_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    const char *label;
    uint64_t total;
    double started;
    double drawn;
    bool shown;
} progress;

/* Seconds of the monotonic clock. */
double now_seconds(void);

void progress_start(progress *bar, const char *label, uint64_t total);
void progress_update(progress *bar, uint64_t done);
void progress_finish(progress *bar); /* removes the bar */

#endif
