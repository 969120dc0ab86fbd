/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L

#include "progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH 40
#define REDRAW_SECONDS 0.1

double now_seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void progress_start(progress *bar, const char *label, uint64_t total) {
    bar->label = label;
    bar->total = total > 0 ? total : 1;
    bar->started = now_seconds();
    bar->drawn = bar->started;
    bar->shown = isatty(STDERR_FILENO) == 1;
}

void progress_update(progress *bar, uint64_t done) {
    const double now = bar->shown ? now_seconds() : 0;
    if (!bar->shown || now - bar->drawn < REDRAW_SECONDS) return;
    char cells[BAR_WIDTH + 1];
    const double part = (double)done / (double)bar->total;
    for (int i = 0; i < BAR_WIDTH; ++i) cells[i] = (double)i < part * BAR_WIDTH ? '#' : '.';
    cells[BAR_WIDTH] = '\0';
    const double left = part > 0 ? (now - bar->started) * (1 - part) / part : 0;
    fprintf(stderr, "\r\033[K%s [%s] %3.0f %%, %.0f s left", bar->label, cells, part * 100, left);
    (void)fflush(stderr);
    bar->drawn = now;
}

void progress_finish(progress *bar) {
    if (bar->shown) fprintf(stderr, "\r\033[K");
    bar->shown = false;
}
