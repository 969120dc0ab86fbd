/* SPDX-License-Identifier: Apache-2.0 */
/* A picture of the last steps of a run, drawn from the trace that the library wrote of it. */
#ifndef LONGCONTEXT_TIMELINE_H
#define LONGCONTEXT_TIMELINE_H

#include "run.h"

#include <stdbool.h>

/* Reads the trace at trace_path and writes an SVG file at svg_path. `outputs` are those of the run. False: stderr says
 * why. */
bool timeline_draw(const char *trace_path, const char *svg_path, const run_config *config, const run_outputs *outputs,
                   const pkv_prefetch_stats *stats);

#endif
