/* SPDX-License-Identifier: Apache-2.0 */
#include "sweep.h"

#include <inttypes.h>

static bool run_point(const run_config *config, const trace_totals *totals, uint64_t capacity, svg_point *point,
                      uint64_t *distinct) {
    char label[48];
    run_result result;
    run_config ids = *config;
    ids.capacity = capacity;
    ids.ids_only = true;
    ids.tiers = NULL;
    ids.page_tokens = TRACE_BLOCK_TOKENS; /* the page size decides nothing here, and large pages are fast */
    (void)snprintf(label, sizeof label, "capacity %" PRIu64, capacity);
    if (!run_trace(&ids, totals, label, &result)) return false;
    *point = (svg_point){capacity, run_hit_rate(&result)};
    if (distinct != NULL) *distinct = result.distinct_pages;
    return true;
}

bool sweep_run(const run_config *config, const trace_totals *totals, sweep *out) {
    static const uint64_t digits[] = {1, 2, 3, 5};
    svg_point unlimited;
    uint64_t distinct = 0;
    out->num_points = 0;
    /* Room for every block of the trace: how many are distinct is seen then. */
    if (!run_point(config, totals, totals->blocks, &unlimited, &distinct)) return false;
    for (uint64_t decade = 1; decade < distinct; decade *= 10) {
        for (size_t i = 0; i < sizeof digits / sizeof *digits; ++i) {
            const uint64_t capacity = decade * digits[i];
            /* Below the largest request some would be refused, and the points would be of different work. */
            if (capacity < totals->max_blocks || capacity >= distinct || out->num_points + 1 == SWEEP_MAX_POINTS)
                continue;
            if (!run_point(config, totals, capacity, &out->points[out->num_points], NULL)) return false;
            ++out->num_points;
        }
    }
    out->points[out->num_points++] = (svg_point){distinct, unlimited.hit_rate};
    return true;
}
