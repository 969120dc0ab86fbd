/* SPDX-License-Identifier: Apache-2.0 */
/* A small pool over a small host tier and a tier that fails at random, driven with random operations: every row that is read is
 * the right one, the rules hold after each step, and in the end nothing is held, pinned or under way.
 *
 *   PKV_TEST_SEED=0x2a    runs this seed only
 *   PKV_TEST_STEPS=1000   steps of a run */
#include "tier/storm.h"

#include <inttypes.h>

static struct {
    uint64_t seed, step;
    bool running;
} now;

/* Of all runs: that they did what they are for. */
static struct { uint64_t rows, restored, lost, timeouts, refused, dropped; } total;

static uint64_t number_from(const char *variable, uint64_t otherwise) {
    const char *value = getenv(variable);
    return value != NULL ? strtoull(value, NULL, 0) : otherwise;
}

static int report(void **state) {
    (void)state;
    if (now.running) print_error("PKV_TEST_SEED=0x%" PRIx64 " PKV_TEST_STEPS=%" PRIu64 "\n", now.seed, now.step + 1);
    now.running = false;
    return 0;
}

/* What other users of the pool do meanwhile. */
static void disturb(storm_worker *w, faulty *f) {
    switch (storm_below(w, 24)) {
    case 0:
    case 1: (void)evict_pages(w->pool, 1 + storm_below(w, 6)); break;
    case 2: {
        const pkv_status status = pkv_pool_flush(w->pool, 5000000);
        STORM_IS(status == PKV_OK || status == PKV_ERR_TIMEOUT);
        break;
    }
    case 3: {
        pkv_retention retention = PKV_RETENTION_INIT;
        retention.priority = (uint32_t)storm_below(w, 101);
        STORM_OK(pkv_pool_set_namespace_retention(w->pool, NULL, &retention));
        break;
    }
    case 4:
        if (storm_below(w, 8) == 0) STORM_OK(pkv_pool_clear(w->pool, NULL, NULL));
        break;
    case 5:
    case 6: faulty_let_go(f); break;
    default: break;
    }
}

static void run(uint64_t seed, uint64_t steps) {
    now.seed = seed;
    now.running = true;
    storm_worker w = {0};
    w.random.state = seed;
    const uint64_t num_pages = 12 + storm_below(&w, 29);
    pkv_tier *host = host_tier(4 + storm_below(&w, 20));
    faulty *f = faulty_open_as(storm_below(&w, 4) == 0);
    f->random.state = seed + 1;
    f->most_images = 8 + storm_below(&w, 64);
    f->decide = storm_fault;
    static const int32_t first[] = {PKV_TIER_WRITE_BACK, PKV_TIER_WRITE_THROUGH};
    static const int32_t second[] = {PKV_TIER_WRITE_BACK, PKV_TIER_WRITE_THROUGH, PKV_TIER_DEMOTE,
                                     PKV_TIER_WRITE_ON_HITS};
    const bool turned = storm_below(&w, 4) == 0; /* the bad tier first */
    pkv_tier_attachment tiers[2] = {attachment(turned ? f->tier : host, first[storm_below(&w, 2)]),
                                    attachment(turned ? host : f->tier, second[storm_below(&w, turned ? 2 : 4)])};
    for (int i = 0; i < 2; ++i) {
        tiers[i].timeout_ns = 10000000;
        if (tiers[i].policy == PKV_TIER_WRITE_ON_HITS) tiers[i].hits = 1;
        if (storm_below(&w, 4) == 0) tiers[i].flags = PKV_TIER_EXCLUSIVE;
    }
    const pkv_group_options group = small_group(num_pages);
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = tiered_page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = tiers;
    options.num_tiers = 2;
    options.debug = PKV_DEBUG_POISON;
    options.clean_pages = storm_below(&w, 2) == 0 ? 0 : num_pages;
    if (storm_below(&w, 4) == 0) options.flags = PKV_POOL_KEEP_UNSTORED;
    assert_ok(pkv_pool_create(&options, &w.pool));
    for (now.step = 0; now.step < steps && w.failure[0] == 0; ++now.step) {
        storm_step(&w);
        disturb(&w, f);
        check_rules(w.pool);
    }
    if (w.failure[0] != 0) fail_msg("%s", w.failure);
    storm_end(&w);
    faulty_end_faults(f);
    eventually(stats_of(w.pool).held_pages == 0); /* the cleaner may be reading one */
    flush(w.pool);
    eventually(tier_stats(f->tier).open_requests == 0 && tier_stats(host).open_requests == 0);
    assert_int_equal(faulty_pins(f), 0);
    assert_int_equal(tier_stats(host).usage.pinned_images, 0);
    assert_true(tier_stats(f->tier).hits <= tier_stats(f->tier).lookups);
    assert_int_equal(tier_stats(host).checksum_failures, 0);
    assert_true(w.rows_compared > 0 || steps < 100);
    total.rows += w.rows_compared;
    total.restored += stats_of(w.pool).loaded_blocks;
    total.lost += w.lost;
    total.timeouts += w.timeouts;
    total.refused += w.refused;
    total.dropped += stats_of(w.pool).dropped_images;
    end_pool(w.pool);
    faulty_end(f);
    assert_ok(pkv_tier_close(host));
    now.running = false;
}

static void every_row_is_right_whatever_a_tier_does(void **state) {
    (void)state;
    const uint64_t steps = number_from("PKV_TEST_STEPS", long_tests() ? 20000 : 2000);
    if (getenv("PKV_TEST_SEED") != NULL) {
        run(number_from("PKV_TEST_SEED", 0), steps);
        return;
    }
    const uint64_t runs = long_tests() ? 200 : 24;
    for (uint64_t i = 0; i < runs; ++i) run(i * 7919 + 1, steps);
    assert_true(total.restored > runs && total.lost > 0 && total.timeouts > 0 && total.refused > 0);
    print_message("%" PRIu64 " rows, %" PRIu64 " blocks loaded, %" PRIu64 " times lost, %" PRIu64 " timeouts, %" PRIu64
                  " refused, %" PRIu64 " dropped\n",
                  total.rows, total.restored, total.lost, total.timeouts, total.refused, total.dropped);
    print_message("seeds 0x1 to 0x%" PRIx64 ", %" PRIu64 " steps each\n", (runs - 1) * 7919 + 1, steps);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_row_is_right_whatever_a_tier_does, report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
