/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* "16,384", in one of a few buffers that take turns */
static const char *grouped(uint64_t n) {
    static char buffers[8][32];
    static unsigned turn;
    char *at = buffers[turn++ % 8] + sizeof buffers[0] - 1;
    *at = '\0';
    for (int digits = 0; digits == 0 || n > 0; ++digits, n /= 10) {
        if (digits > 0 && digits % 3 == 0) *--at = ',';
        *--at = (char)('0' + n % 10);
    }
    return at;
}

static double gib(uint64_t bytes) { return (double)bytes / (double)(1u << 30); }

/* One cell of the table. */
typedef struct cell {
    char text[24];
} cell;

__attribute__((format(printf, 1, 2))) static cell cell_of(const char *format, ...) {
    cell c;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(c.text, sizeof c.text, format, args);
    va_end(args);
    return c;
}

/* "1.002 GiB", "130.0 MiB" */
static cell size_of(uint64_t bytes) {
    return bytes >> 30 > 0 ? cell_of("%.3f GiB", gib(bytes)) : cell_of("%.2f MiB", gib(bytes) * 1024);
}

static double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

static double bandwidth(const pkv_prefetch_stats *s) { return ratio((double)s->bytes_loaded, (double)s->io_ns); }

static void row(const char *name, cell pages, cell off, cell on, const char *remark) {
    printf("  %-20s %14s %14s %14s%s%s\n", name, pages.text, off.text, on.text, *remark != '\0' ? "  " : "", remark);
}

static void count_row(const char *name, uint64_t off, uint64_t on, const char *remark) {
    row(name, cell_of("%s", ""), cell_of("%s", grouped(off)), cell_of("%s", grouped(on)), remark);
}

static void number_row(const char *name, double off, double on, const char *remark) {
    row(name, cell_of("%s", ""), cell_of("%.2f", off), cell_of("%.2f", on), remark);
}

static void print_shapes(const report *r) {
    const run_config *const c = &r->config;
    const run_geometry *const g = &r->geometry;
    printf("One sequence of %s tokens: %s layers x %s KV heads x %s f16 elements, %s query heads for each KV head\n",
           grouped(c->tokens), grouped(c->layers), grouped(c->heads), grouped(c->head_dim), grouped(c->queries));
    printf("  sequence  %14s  %s pages of %s bytes\n", size_of(g->sequence_pages * g->page_bytes).text,
           grouped(g->sequence_pages), grouped(g->page_bytes));
    printf("  pool      %14s  %s pages, %s of them staging memory for %s buffers\n",
           size_of(g->pool_pages * g->page_bytes).text, grouped(g->pool_pages), grouped(g->staging_pages),
           grouped(c->buffers));
    printf("  file      %14s  %s of the prompt's %s blocks; %s\n\n", size_of(r->absent_blocks * g->page_bytes).text,
           grouped(r->absent_blocks), grouped(g->prompt_pages), r->engine == PKV_IO_URING ? "io_uring" : "threads");
}

void report_table(const report *r) {
    const pkv_prefetch_stats *const off = &r->off.stats, *const on = &r->on.stats;
    const uint64_t steps = r->config.steps;
    const double each = 1e3 / (double)steps;
    print_shapes(r);
    row("", cell_of("all in pages"), cell_of("prefetch off"), cell_of("prefetch on"), "");
    row("steps", cell_of("%s", grouped(steps)), cell_of("%s", grouped(steps)), cell_of("%s", grouped(steps)), "");
    count_row("identical", steps - r->off.wrong_steps, steps - r->on.wrong_steps, "bit for bit, every layer");
    row("seconds", cell_of("%.2f", r->seconds), cell_of("%.2f", r->off.seconds), cell_of("%.2f", r->on.seconds), "");
    row("ms a step", cell_of("%.1f", r->seconds * each), cell_of("%.1f", r->off.seconds * each),
        cell_of("%.1f", r->on.seconds * each), "");
    number_row("I/O, seconds", (double)off->io_ns * 1e-9, (double)on->io_ns * 1e-9, "a load was under way");
    number_row("exposed, seconds", (double)off->exposed_ns * 1e-9, (double)on->exposed_ns * 1e-9,
               "of them, compute waited");
    row("masked", cell_of("%s", ""), cell_of("%.1f %%", 100 * off->masking_efficiency),
        cell_of("%.1f %%", 100 * on->masking_efficiency), "of I/O time");
    count_row("slices on time", off->on_time, on->on_time, "loaded before they were needed");
    count_row("late", off->late, on->late, "under way");
    count_row("on demand", off->on_demand, on->on_demand, "not begun");
    number_row("GiB loaded", gib(off->bytes_loaded), gib(on->bytes_loaded), "");
    number_row("GB/s", bandwidth(off), bandwidth(on), "while a load was under way");
    count_row("wasted bytes", off->wasted_bytes, on->wasted_bytes, "loaded and not used");
}

static void print_run(const report_run *run, const char *suffix) {
    const pkv_prefetch_stats *const s = &run->stats;
    printf(", \"seconds%s\": %.6f, \"wrong_steps%s\": %" PRIu64 ", \"io_ns%s\": %" PRIu64 ", \"exposed_ns%s\": %" PRIu64
           ", \"other_wait_ns%s\": %" PRIu64 ", \"masking_efficiency%s\": %.6f",
           *suffix != '\0' ? suffix : "_on", run->seconds, *suffix != '\0' ? suffix : "_on", run->wrong_steps, suffix,
           s->io_ns, suffix, s->exposed_ns, suffix, s->other_wait_ns, suffix, s->masking_efficiency);
    printf(", \"needed%s\": %" PRIu64 ", \"on_time%s\": %" PRIu64 ", \"late%s\": %" PRIu64 ", \"on_demand%s\": %" PRIu64
           ", \"failed%s\": %" PRIu64 ", \"ranges%s\": %" PRIu64,
           suffix, s->needed, suffix, s->on_time, suffix, s->late, suffix, s->on_demand, suffix, s->failed, suffix,
           s->ranges);
    printf(", \"loads%s\": %" PRIu64 ", \"bytes_loaded%s\": %" PRIu64 ", \"bytes_used%s\": %" PRIu64
           ", \"wasted_bytes%s\": %" PRIu64 ", \"ready_bytes%s\": %" PRIu64,
           suffix, s->loads, suffix, s->bytes_loaded, suffix, s->bytes_used, suffix, s->wasted_bytes, suffix,
           s->ready_bytes);
}

void report_json(const report *r) {
    const run_config *const c = &r->config;
    const run_geometry *const g = &r->geometry;
    const uint64_t wrong = r->off.wrong_steps + r->on.wrong_steps;
    printf("{\"steps\": %" PRIu64 ", \"identical\": %s, \"wrong_steps\": %" PRIu64 ", \"tokens\": %" PRIu64
           ", \"layers\": %" PRIu64 ", \"heads\": %" PRIu64 ", \"queries\": %" PRIu64 ", \"head_dim\": %" PRIu64
           ", \"page_tokens\": %" PRIu64 ", \"buffers\": %" PRIu64 ", \"seed\": %" PRIu64,
           c->steps, wrong == 0 ? "true" : "false", wrong, c->tokens, c->layers, c->heads, c->queries, c->head_dim,
           c->page_tokens, c->buffers, c->seed);
    printf(", \"sequence_bytes\": %" PRIu64 ", \"pool_bytes\": %" PRIu64 ", \"pool_pages\": %" PRIu64
           ", \"staging_pages\": %" PRIu64 ", \"absent_blocks\": %" PRIu64 ", \"checksum_failures\": %" PRIu64
           ", \"seconds_reference\": %.6f",
           g->sequence_pages * g->page_bytes, g->pool_pages * g->page_bytes, g->pool_pages, g->staging_pages,
           r->absent_blocks, r->checksum_failures, r->seconds);
    print_run(&r->on, "");
    print_run(&r->off, "_off");
    printf(", \"digest\": \"");
    for (int i = 0; i < PKV_DIGEST_BYTES; ++i) printf("%02x", r->digest[i]);
    printf("\"}\n");
}
