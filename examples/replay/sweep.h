/* SPDX-License-Identifier: Apache-2.0 */
/* The same trace at many capacities, without bytes. */
#ifndef REPLAY_SWEEP_H
#define REPLAY_SWEEP_H

#include "run.h"
#include "svg.h"

#define SWEEP_MAX_POINTS 48

typedef struct sweep {
    svg_point points[SWEEP_MAX_POINTS]; /* as svg_plot wants them */
    size_t num_points;
} sweep;

/* Replays the trace of `config` at round capacities, from its largest request's to one that never evicts. */
bool sweep_run(const run_config *config, const trace_totals *totals, sweep *out);

#endif
