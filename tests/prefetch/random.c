/* SPDX-License-Identifier: Apache-2.0 */
/* Prefetch sessions with random options on a small pool over a small host tier and a tier that fails at random, in any order
 * with what else happens to the sequences: every row of every view is the right one, the rules hold after each step, and in the
 * end nothing is held, pinned or under way.
 *
 *   PKV_TEST_SEED=0x2a    runs this seed only
 *   PKV_TEST_STEPS=1000   steps of a run */
#include "prefetch/session.h"
#include "prefetch/storm.h"

#include <inttypes.h>

static struct {
    uint64_t seed, step;
    bool running;
} now;

/* Of all runs: that they did what they are for. */
static storm_prefetch total;
static uint64_t total_rows, total_lost;

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
    switch (storm_below(w, 16)) {
    case 0:
    case 1: (void)evict_pages(w->pool, 1 + storm_below(w, 6)); break;
    case 2: STORM_ANY(pkv_pool_flush(w->pool, 2000000), PKV_OK, PKV_ERR_TIMEOUT); break;
    case 3:
        if (storm_below(w, 8) == 0) STORM_OK(pkv_pool_clear(w->pool, NULL, NULL));
        break;
    case 4:
    case 5:
    case 6: faulty_let_go(f); break;
    default: break;
    }
}

static pkv_pool *random_pool(storm_worker *w, storm_tiers *t, uint64_t num_pages) {
    static const int32_t policies[] = {PKV_TIER_WRITE_BACK, PKV_TIER_WRITE_THROUGH};
    pkv_tier_attachment tiers[2] = {t->attachments[0], t->attachments[1]};
    if (storm_below(w, 4) == 0) { /* the bad tier first */
        tiers[0] = t->attachments[1];
        tiers[1] = t->attachments[0];
    }
    for (int i = 0; i < 2; ++i) {
        tiers[i].policy = policies[storm_below(w, 2)];
        if (storm_below(w, 6) == 0) tiers[i].flags = PKV_TIER_EXCLUSIVE;
    }
    pkv_group_options group = small_group(num_pages);
    group.layout = storm_below(w, 2) == 0 ? PKV_LAYOUT_NHD : PKV_LAYOUT_HND;
    group.arrangement = storm_below(w, 2) == 0 ? PKV_PAGE_MAJOR : PKV_LAYER_MAJOR;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = tiered_page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = tiers;
    options.num_tiers = 2;
    options.debug = PKV_DEBUG_POISON;
    options.clean_pages = storm_below(w, 2) == 0 ? 0 : num_pages;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    return pool;
}

static void run(uint64_t seed, uint64_t steps) {
    now.seed = seed;
    now.running = true;
    storm_worker w = {0};
    w.random.state = seed;
    storm_prefetch p = {.w = &w};
    p.num_pages = 16 + storm_below(&w, 33);
    const uint64_t good_images = 8 + storm_below(&w, 24), bad_images = 8 + storm_below(&w, 64);
    storm_tiers tiers = storm_open_tiers(good_images, bad_images, seed + 1);
    w.pool = random_pool(&w, &tiers, p.num_pages);
    for (now.step = 0; now.step < steps && w.failure[0] == 0; ++now.step) {
        if (storm_below(&w, 2) == 0)
            storm_step(&w);
        else
            storm_prefetch_step(&p);
        disturb(&w, tiers.bad);
        check_rules(w.pool);
    }
    if (w.failure[0] != 0) fail_msg("%s", w.failure);
    if (storm_below(&w, 2) == 0) { /* sequences before sessions, or after them */
        storm_end(&w);
        storm_prefetch_end(&p);
    } else {
        storm_prefetch_end(&p);
        storm_end(&w);
    }
    if (w.failure[0] != 0) fail_msg("%s", w.failure);
    storm_settle_tiers(&tiers, w.pool);
    total_rows += w.rows_compared;
    total_lost += w.lost;
    total.opened += p.opened;
    total.steps += p.steps;
    total.failed_tables += p.failed_tables;
    total.acquire_timeouts += p.acquire_timeouts;
    total.required += p.required;
    total.require_failed += p.require_failed;
    total.prompts_begun += p.prompts_begun;
    total.prompts_good += p.prompts_good;
    total.held_rows += p.held_rows;
    total.loads += p.loads;
    total.good_loads += p.good_loads;
    total.wasted_bytes += p.wasted_bytes;
    total.checksum_failures += p.checksum_failures;
    end_pool(w.pool);
    storm_close_tiers(&tiers);
    now.running = false;
}

static void every_row_of_every_view_is_right_whatever_a_tier_does(void **state) {
    (void)state;
    const uint64_t steps = number_from("PKV_TEST_STEPS", long_tests() ? 2000 : 3000);
    if (getenv("PKV_TEST_SEED") != NULL) {
        run(number_from("PKV_TEST_SEED", 0), steps);
        return;
    }
    const uint64_t runs = long_tests() ? 100 : 16;
    for (uint64_t i = 0; i < runs; ++i) run(i * 7919 + 1, steps);
    print_message("%" PRIu64 " rows (%" PRIu64 " of held views), %" PRIu64 " sessions, %" PRIu64 " steps, %" PRIu64
                  " tables failed, %" PRIu64 " times lost, %" PRIu64 " acquires late\n",
                  total_rows, total.held_rows, total.opened, total.steps, total.failed_tables, total_lost,
                  total.acquire_timeouts);
    print_message("%" PRIu64 " requires, %" PRIu64 " in vain, %" PRIu64 " prompts, %" PRIu64 " good, %" PRIu64
                  " loads, %" PRIu64 " good, %" PRIu64 " wrong\n",
                  total.required, total.require_failed, total.prompts_begun, total.prompts_good, total.loads,
                  total.good_loads, total.checksum_failures);
    print_message("seeds 0x1 to 0x%" PRIx64 ", %" PRIu64 " steps each\n", (runs - 1) * 7919 + 1, steps);
    assert_true(total.steps > runs && total.failed_tables > 0 && total_lost > 0 &&
                (runs_with_streams() || total.acquire_timeouts > 0) && total.held_rows > 0);
    assert_true(total.required > runs && total.require_failed > 0 && total.prompts_good > 0);
    assert_true(total.good_loads > 0 && total.good_loads < total.loads && total.checksum_failures > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_row_of_every_view_is_right_whatever_a_tier_does, report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
