/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <inttypes.h>
#include <pagedkv/pagedkv.h>
#include <string.h>

const char *grouped(uint64_t n) {
    static char buffers[4][32];
    static int next;
    char *const begin = buffers[next++ % 4];
    char *at = begin + sizeof buffers[0] - 1;
    int digits = 0;
    *at = '\0';
    do {
        if (digits > 0 && digits % 3 == 0) *--at = ',';
        *--at = (char)('0' + n % 10);
        ++digits;
    } while ((n /= 10) > 0);
    return at;
}

const char *base_name(const char *path) {
    const char *const slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static double percent(uint64_t part, uint64_t whole) { return whole > 0 ? 100 * (double)part / (double)whole : 0; }

static double per_second(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

static void row(const char *name, const char *value, const char *remark) {
    printf("  %-24s %16s%s%s\n", name, value, *remark != '\0' ? "  " : "", remark);
}

static void print_throughput(const run_result *r) {
    char value[32];
    (void)snprintf(value, sizeof value, "%.2f", r->seconds);
    row("seconds", value, "");
    (void)snprintf(value, sizeof value, "%.2f", per_second((double)r->tokens, r->seconds) * 1e-6);
    row("throughput", value, "million tokens a second");
    (void)snprintf(value, sizeof value, "%.2f",
                   per_second((double)(r->bytes_written + r->bytes_checked), r->seconds) * 1e-9);
    row("", value, "GB a second, generated and written, or gathered and checked");
}

static bool has_tiers(const run_result *r) {
    return r->tiers[PLACE_HOST].exists || r->tiers[PLACE_FILE].exists || r->tiers[PLACE_REMOTE].exists;
}

/* Of all tiers together. */
static run_tier tier_sums(const run_result *r) {
    run_tier sums = {.exists = has_tiers(r)};
    for (int place = PLACE_HOST; place < PLACES; ++place) {
        sums.recovered_images += r->tiers[place].recovered_images;
        sums.bytes_loaded += r->tiers[place].bytes_loaded;
        sums.bytes_stored += r->tiers[place].bytes_stored;
        sums.checksum_failures += r->tiers[place].checksum_failures;
        if (r->tiers[place].exists && (sums.image_bytes == 0 || r->tiers[place].images > 0))
            sums.image_bytes = r->tiers[place].image_bytes;
    }
    return sums;
}

static uint64_t recovered_blocks(const run_config *config, const run_result *r) {
    return tier_sums(r).recovered_images / (TRACE_BLOCK_TOKENS / config->page_tokens);
}

static double gib(uint64_t bytes) { return (double)bytes / (1u << 30); }

static void print_place(const run_result *r, const char *name, uint64_t blocks, const run_tier *tier) {
    printf("  %-24s %16s %9.1f %%", name, grouped(blocks), percent(blocks, r->blocks));
    if (tier != NULL)
        printf(" %11s %11s %8.2f %8.2f %6s", grouped(tier->images), grouped(tier->evicted_images),
               gib(tier->bytes_loaded), gib(tier->bytes_stored), grouped(tier->checksum_failures));
    printf("\n");
}

static void print_tiers(const run_config *config, const run_result *r) {
    char name[96];
    const run_tier *const host = &r->tiers[PLACE_HOST], *const file = &r->tiers[PLACE_FILE];
    printf("\n  %-24s %16s %11s %11s %11s %8s %8s %6s\n", "prompts came from", "blocks", "share", "images", "evicted",
           "GiB up", "GiB down", "bad");
    (void)snprintf(name, sizeof name, "pool, %.2f GiB",
                   gib(run_num_pages(config) * config->page_tokens * run_token_bytes(config)));
    print_place(r, name, r->place_blocks[PLACE_POOL], NULL);
    (void)snprintf(name, sizeof name, "host, %.2f GiB", gib(host->capacity_bytes));
    if (host->exists) print_place(r, name, r->place_blocks[PLACE_HOST], host);
    (void)snprintf(name, sizeof name, "file, %.2f GiB, %s", gib(file->capacity_bytes),
                   file->engine == PKV_IO_URING ? "io_uring" : "threads");
    if (file->exists) print_place(r, name, r->place_blocks[PLACE_FILE], file);
    (void)snprintf(name, sizeof name, "%s nodes, %s", grouped(r->connected_peers), r->provider);
    if (r->tiers[PLACE_REMOTE].exists) print_place(r, name, r->place_blocks[PLACE_REMOTE], &r->tiers[PLACE_REMOTE]);
    print_place(r, "computed", r->blocks - r->hit_blocks, NULL);
    printf("\n");

    char text[160];
    (void)snprintf(text, sizeof text, "of a page of %s bytes", grouped(config->page_tokens * run_token_bytes(config)));
    row("bytes an image", grouped(tier_sums(r).image_bytes), text);
    (void)snprintf(text, sizeof text, "%s images that an earlier run left in the file",
                   grouped(file->recovered_images));
    if (file->exists) row("blocks recovered", grouped(recovered_blocks(config, r)), text);
    row("blocks lost", grouped(r->lost_blocks), "found, but not to be had from a tier: computed again");
    (void)snprintf(text, sizeof text, "%.2f", r->load_seconds);
    row("waited for loads", text, "seconds");
    (void)snprintf(text, sizeof text, "%.2f", r->store_seconds);
    row("waited for stores", text, "seconds, the flush at the end included");
    if (r->address[0] != '\0') row("served at", r->address, "");
}

void report_table(const run_config *config, const run_result *r, const sweep *points) {
    char text[160];
    printf("%s, least recently used, %s blocks of %u tokens\n", base_name(config->trace), grouped(config->capacity),
           TRACE_BLOCK_TOKENS);
    (void)snprintf(text, sizeof text, "%s refused: larger than the cache", grouped(r->refused));
    row("requests", grouped(r->requests), r->refused > 0 ? text : "");
    row("tokens", grouped(r->tokens), "of prompts, filled up to whole blocks");
    row("blocks", grouped(r->blocks), "");
    row("hit blocks", grouped(r->hit_blocks), "");
    char rate[16];
    (void)snprintf(rate, sizeof rate, "%.4f", run_hit_rate(r));
    row("hit rate", rate, "");
    (void)snprintf(text, sizeof text, "%.1f %%", percent(r->hit_tokens, r->tokens));
    row("tokens not recomputed", grouped(r->hit_tokens), text);
    row("pages evicted", grouped(r->evicted_pages), "");
    (void)snprintf(text, sizeof text, "of %u tokens: %u layers x %u heads x %u f16 elements, %s bytes a token",
                   config->page_tokens, config->layers, config->heads, config->head_dim,
                   grouped(run_token_bytes(config)));
    row("pages", grouped(run_num_pages(config)), text);
    row("bytes checked", grouped(r->bytes_checked), "K and V of all layers and tokens of every request");
    row("wrong bytes", grouped(r->wrong_bytes), "");
    print_throughput(r);
    if (has_tiers(r)) print_tiers(config, r);
    if (points == NULL) return;
    printf("\n  %-24s %16s\n", "capacity", "hit rate");
    for (size_t i = 0; i < points->num_points; ++i)
        printf("  %-24s %16.4f%s\n", grouped(points->points[i].capacity), points->points[i].hit_rate,
               i + 1 == points->num_points ? "  never evicts" : "");
}

static void print_json_tiers(const run_config *config, const run_result *r) {
    const run_tier sums = tier_sums(r);
    printf(", \"resident_hit_blocks\": %" PRIu64 ", \"host_hit_blocks\": %" PRIu64 ", \"file_hit_blocks\": %" PRIu64
           ", \"recovered_blocks\": %" PRIu64 ", \"recovered_images\": %" PRIu64 ", \"lost_blocks\": %" PRIu64
           ", \"checksum_failures\": %" PRIu64,
           r->place_blocks[PLACE_POOL], r->place_blocks[PLACE_HOST], r->place_blocks[PLACE_FILE],
           recovered_blocks(config, r), sums.recovered_images, r->lost_blocks, sums.checksum_failures);
    printf(", \"image_bytes\": %" PRIu64 ", \"host_images\": %" PRIu64 ", \"file_images\": %" PRIu64
           ", \"bytes_loaded\": %" PRIu64 ", \"bytes_stored\": %" PRIu64 ", \"dropped_pages\": %" PRIu64
           ", \"load_seconds\": %.3f, \"store_seconds\": %.3f",
           sums.image_bytes, r->tiers[PLACE_HOST].images, r->tiers[PLACE_FILE].images, sums.bytes_loaded,
           sums.bytes_stored, r->dropped_pages, r->load_seconds, r->store_seconds);
    if (r->tiers[PLACE_REMOTE].exists)
        printf(", \"remote_hit_blocks\": %" PRIu64 ", \"remote_bytes_loaded\": %" PRIu64
               ", \"remote_failed_loads\": %" PRIu64 ", \"connected_peers\": %" PRIu64,
               r->place_blocks[PLACE_REMOTE], r->tiers[PLACE_REMOTE].bytes_loaded, r->tiers[PLACE_REMOTE].failed_loads,
               r->connected_peers);
    if (r->address[0] != '\0') printf(", \"address\": \"%s\"", r->address);
}

void report_json(const run_config *config, const run_result *r, const sweep *points) {
    printf("{\"requests\": %" PRIu64 ", \"refused\": %" PRIu64 ", \"tokens\": %" PRIu64 ", \"hit_tokens\": %" PRIu64
           ", \"blocks\": %" PRIu64 ", \"hit_blocks\": %" PRIu64 ", \"hit_rate\": %.6f, ",
           r->requests, r->refused, r->tokens, r->hit_tokens, r->blocks, r->hit_blocks, run_hit_rate(r));
    printf("\"capacity\": %" PRIu64 ", \"pages\": %" PRIu64 ", \"evicted_pages\": %" PRIu64 ", \"page_tokens\": %u, "
           "\"layers\": %u, \"heads\": %u, \"head_dim\": %u, \"token_bytes\": %" PRIu64 ", ",
           config->capacity, run_num_pages(config), r->evicted_pages, config->page_tokens, config->layers,
           config->heads, config->head_dim, run_token_bytes(config));
    printf("\"bytes_written\": %" PRIu64 ", \"bytes_checked\": %" PRIu64 ", \"wrong_bytes\": %" PRIu64
           ", \"seconds\": %.3f",
           r->bytes_written, r->bytes_checked, r->wrong_bytes, r->seconds);
    if (has_tiers(r)) print_json_tiers(config, r);
    if (points != NULL) {
        printf(", \"sweep\": [");
        for (size_t i = 0; i < points->num_points; ++i)
            printf("%s{\"capacity\": %" PRIu64 ", \"hit_rate\": %.6f}", i > 0 ? ", " : "", points->points[i].capacity,
                   points->points[i].hit_rate);
        printf("]");
    }
    printf("}\n");
}
