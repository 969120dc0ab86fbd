/* SPDX-License-Identifier: Apache-2.0 */
/* Hit rate against capacity, as a picture. */
#ifndef REPLAY_SVG_H
#define REPLAY_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct svg_point {
    uint64_t capacity; /* blocks */
    double hit_rate;
} svg_point;

typedef struct svg_plot {
    const char *title;
    const char *subtitle;
    const svg_point *points; /* ascending by capacity; the last one never evicts */
    size_t num_points;
    svg_point checked; /* the run whose bytes were checked */
} svg_plot;

/* False if the file could not be written. */
bool svg_write(FILE *file, const svg_plot *plot);

#endif
