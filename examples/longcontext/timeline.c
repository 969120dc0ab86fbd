/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline.h"

#include "trace_file.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define WIDTH 1120.0
#define LEFT 150.0
#define RIGHT 30.0
#define TOP 104.0
#define BOTTOM 56.0
#define COMPUTE_HEIGHT 30.0
#define LOADS_HEIGHT 16.0
#define STEP_GAP 26.0
#define MAX_STEPS 3u

#define COLOUR_COMPUTE "#2563eb"
#define COLOUR_COMPUTE_ODD "#60a5fa"
#define COLOUR_WAIT "#dc2626"
#define COLOUR_LOADS "#0d9488"

/* A step of the picture: the time from the end of the step before, or from its first span, to its last layer's end. */
typedef struct drawn_step {
    uint64_t number;
    double begin, end; /* ms since the trace began */
} drawn_step;

typedef struct picture {
    FILE *file;
    const trace_file *trace;
    drawn_step steps[MAX_STEPS];
    uint32_t num_steps;
    double length; /* ms that the axis spans */
    double tick;
} picture;

static double larger(double a, double b) { return a > b ? a : b; }

static double smaller(double a, double b) { return a < b ? a : b; }

/* ---- what is drawn ----------------------------------------------------------------------------------------------- */

/* The last steps. The i-th span of compute is the i-th range that the run acquired. */
static bool find_steps(picture *p, const run_config *config, const run_outputs *outputs) {
    const trace_file *const t = p->trace;
    const uint64_t first = config->steps > MAX_STEPS ? config->steps - MAX_STEPS : 0;
    uint64_t at = 0;
    double begin = t->num_spans > 0 ? t->spans[0].begin : 0;
    for (uint64_t step = 0; step < config->steps; ++step) {
        double end = begin;
        for (uint64_t range = 0; range < outputs->ranges[step]; ++at) {
            if (at == t->num_spans) return false;
            if (t->spans[at].kind != SPAN_COMPUTE) continue;
            end = t->spans[at].end;
            ++range;
        }
        if (step >= first) {
            p->steps[p->num_steps++] = (drawn_step){step, begin, end};
            p->length = larger(p->length, end - begin);
        }
        begin = end;
    }
    return p->length > 0;
}

/* The smallest round number of ms that makes at most ten ticks. */
static double tick_of(double length) {
    const double unit = pow(10, floor(log10(length / 10)));
    const double needed = length / 10 / unit;
    return unit * (needed <= 1 ? 1 : needed <= 2 ? 2 : needed <= 5 ? 5 : 10);
}

static double step_height(const picture *p) {
    return COMPUTE_HEIGHT + (p->trace->num_lanes - 1) * (LOADS_HEIGHT + 4) + STEP_GAP;
}

static double bottom_of(const picture *p) { return TOP + p->num_steps * step_height(p) - STEP_GAP + 8; }

static double x_of(const picture *p, double ms) { return LEFT + (WIDTH - LEFT - RIGHT) * ms / p->length; }

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

static void rectangle(FILE *f, double x, double y, double width, double height, const char *colour) {
    fprintf(f, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, width, height,
            colour);
}

static void label(FILE *f, double x, double y, const char *attributes, const char *text) {
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\"%s%s>%s</text>\n", x, y, *attributes != '\0' ? " " : "", attributes, text);
}

static void draw_head(const picture *p, const run_config *c, const pkv_prefetch_stats *stats) {
    FILE *const f = p->file;
    const double height = bottom_of(p) + BOTTOM;
    char text[200];
    run_geometry g;
    (void)run_shape(c, &g);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
            "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#1f2937\">\n",
            WIDTH, height, WIDTH, height);
    rectangle(f, 0, 0, WIDTH, height, "#ffffff");
    (void)snprintf(text, sizeof text, "Decode steps over a sequence %" PRIu64 " times as large as its pool", c->ratio);
    label(f, 24, 32, "font-size=\"18\" font-weight=\"bold\"", text);
    (void)snprintf(text, sizeof text,
                   "%" PRIu64 " tokens, %" PRIu64
                   " layers, %.0f MiB of KV; pool of %.0f MiB; exact attention; %.1f %% of I/O "
                   "time masked",
                   c->tokens, c->layers, (double)(g.sequence_pages * g.page_bytes) / 0x1p20,
                   (double)(g.pool_pages * g.page_bytes) / 0x1p20, 100 * stats->masking_efficiency);
    label(f, 24, 54, "fill=\"#6b7280\"", text);
}

static void draw_legend(FILE *f) {
    static const struct {
        const char *colours[2];
        const char *text;
    } entries[] = {{{COLOUR_COMPUTE, COLOUR_COMPUTE_ODD}, "compute, layer by layer"},
                   {{COLOUR_WAIT, COLOUR_WAIT}, "compute waits: exposed I/O"},
                   {{COLOUR_LOADS, COLOUR_LOADS}, "loads under way"}};
    double x = 24;
    for (int i = 0; i < 3; ++i) {
        rectangle(f, x, 70, 9, 12, entries[i].colours[0]);
        rectangle(f, x + 9, 70, 9, 12, entries[i].colours[1]);
        label(f, x + 26, 81, "", entries[i].text);
        x += 230;
    }
}

static void draw_axis(const picture *p) {
    const double bottom = bottom_of(p);
    char text[40];
    for (int i = 0; i * p->tick <= p->length; ++i) {
        const double x = x_of(p, i * p->tick);
        fprintf(p->file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e5e7eb\"/>\n", x, TOP - 8, x,
                bottom);
        (void)snprintf(text, sizeof text, "%.6g", i * p->tick);
        label(p->file, x, bottom + 18, "text-anchor=\"middle\"", text);
    }
    fprintf(p->file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#374151\"/>\n", LEFT, bottom,
            WIDTH - RIGHT, bottom);
    label(p->file, LEFT + (WIDTH - LEFT - RIGHT) / 2, bottom + 40, "text-anchor=\"middle\"", "ms since the step began");
}

/* A lane of a step, of one kind of spans. Spans that nobody could tell apart become one: there may be thousands. */
static void draw_spans(const picture *p, const drawn_step *step, uint32_t lane, span_kind kind, double y,
                       double height) {
    const trace_file *const t = p->trace;
    const double hair = p->length / (WIDTH - LEFT - RIGHT) / 3;
    span now = {0, 0, 0, lane, kind};
    bool any = false;
    for (uint64_t i = 0; i <= t->num_spans; ++i) {
        const span *const s = i < t->num_spans ? &t->spans[i] : NULL;
        if (s != NULL && (s->lane != lane || s->kind != kind || s->end <= step->begin || s->begin >= step->end))
            continue;
        const bool joins = any && s != NULL && s->layer == now.layer && s->begin - now.end < hair;
        if (joins) {
            now.end = larger(now.end, s->end);
            continue;
        }
        if (any) {
            const double from = x_of(p, larger(now.begin, step->begin) - step->begin);
            const double to = x_of(p, smaller(now.end, step->end) - step->begin);
            /* What is exposed has to be seen, however short it is. */
            rectangle(p->file, from, y, larger(to - from, kind == SPAN_WAIT ? 0.8 : 0.1), height,
                      kind == SPAN_WAIT    ? COLOUR_WAIT
                      : kind == SPAN_LOADS ? COLOUR_LOADS
                      : now.layer % 2 == 0 ? COLOUR_COMPUTE
                                           : COLOUR_COMPUTE_ODD);
        }
        if (s != NULL) now = *s;
        any = s != NULL;
    }
}

static void draw_step(const picture *p, uint32_t i) {
    const drawn_step *const step = &p->steps[i];
    double y = TOP + i * step_height(p);
    char text[48];
    (void)snprintf(text, sizeof text, "step %" PRIu64, step->number + 1);
    label(p->file, 24, y + 19.5, "font-weight=\"bold\"", text);
    label(p->file, LEFT - 8, y + 19.5, "text-anchor=\"end\" font-size=\"11\"", "compute");
    draw_spans(p, step, 0, SPAN_COMPUTE, y, COMPUTE_HEIGHT);
    draw_spans(p, step, 0, SPAN_WAIT, y, COMPUTE_HEIGHT);
    y += COMPUTE_HEIGHT + 4;
    for (uint32_t lane = 1; lane < p->trace->num_lanes; ++lane, y += LOADS_HEIGHT + 4) {
        label(p->file, LEFT - 8, y + 12, "text-anchor=\"end\" font-size=\"11\"", p->trace->lanes[lane].name);
        draw_spans(p, step, lane, SPAN_LOADS, y, LOADS_HEIGHT);
    }
}

bool timeline_draw(const char *trace_path, const char *svg_path, const run_config *config, const run_outputs *outputs,
                   const pkv_prefetch_stats *stats) {
    trace_file trace;
    picture p = {NULL, &trace, {{0, 0, 0}}, 0, 0, 0};
    if (!trace_file_read(trace_path, &trace)) return false;
    bool good = find_steps(&p, config, outputs);
    if (!good) fprintf(stderr, "longcontext: %s: the run's steps are not in it\n", trace_path);
    if (good && (p.file = fopen(svg_path, "w")) != NULL) {
        p.tick = tick_of(p.length);
        draw_head(&p, config, stats);
        draw_legend(p.file);
        draw_axis(&p);
        for (uint32_t i = 0; i < p.num_steps; ++i) draw_step(&p, i);
        fputs("</svg>\n", p.file);
        good = !ferror(p.file);
        good = fclose(p.file) == 0 && good;
    } else if (good) {
        good = false;
    }
    if (!good && p.length > 0) fprintf(stderr, "longcontext: %s: %s\n", svg_path, strerror(errno));
    trace_file_free(&trace);
    return good;
}
