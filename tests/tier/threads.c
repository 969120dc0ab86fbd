/* SPDX-License-Identifier: Apache-2.0 */
/* Threads with sequences of their own over shared prompts, on a pool whose tiers are small and of which one fails now and then;
 * one that evicts, flushes and clears; and in the end nothing is held, pinned or under way. Meant for
 * `make check-tsan SUITE=tier`. */
#include "tier/storm.h"

#include <stdatomic.h>
#include <time.h>

enum { workers = 4, steps = 200000, time_limit_ms = 2000 };

static uint64_t deadline_ms;
static _Atomic int at_work;

static uint64_t now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

static void *work(void *context) {
    storm_worker *w = context;
    for (int step = 0; step < steps && w->failure[0] == 0 && (now_ms() < deadline_ms || w->rows_compared == 0); ++step)
        storm_step(w);
    storm_end(w);
    atomic_fetch_sub(&at_work, 1);
    return NULL;
}

struct disturber {
    storm_worker w;
    faulty *f;
};

static void *disturb(void *context) {
    struct disturber *d = context;
    storm_worker *w = &d->w;
    pkv_pool_stats stats = PKV_POOL_STATS_INIT;
    for (uint64_t round = 1; atomic_load(&at_work) != 0; ++round) {
        STORM_OK(pkv_pool_evict(w->pool, 0, 1 + storm_below(w, 4), NULL));
        if (round % 4 == 0) faulty_let_go(d->f);
        if (round % 8 == 0) (void)pkv_pool_flush(w->pool, 1000000);
        if (round % 64 == 0) STORM_OK(pkv_pool_clear(w->pool, NULL, NULL));
        STORM_OK(pkv_pool_get_stats(w->pool, 0, &stats));
        STORM_IS(stats.free_pages + stats.held_pages + stats.cached_pages == stats.num_pages);
        usleep(500);
    }
    return NULL;
}

static void threads_share_a_pool_over_tiers(void **state) {
    (void)state;
    deadline_ms = now_ms() + (long_tests() ? 30 * time_limit_ms : time_limit_ms);
    pkv_tier *host = host_tier(12);
    faulty *f = faulty_open();
    f->most_images = 48;
    f->decide = storm_fault;
    f->random.state = 1;
    pkv_tier_attachment tiers[2] = {attachment(host, PKV_TIER_WRITE_BACK), attachment(f->tier, PKV_TIER_WRITE_BACK)};
    for (int i = 0; i < 2; ++i) tiers[i].timeout_ns = 10000000;
    pkv_pool *pool = pool_over(64, tiers, 2);
    storm_worker all[workers] = {0};
    pthread_t threads[workers + 1];
    atomic_store(&at_work, workers);
    for (int i = 0; i < workers; ++i) {
        all[i].number = i;
        all[i].pool = pool;
        all[i].random.state = (uint64_t)i + 100;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &all[i]), 0);
    }
    struct disturber disturber = {.w = {.pool = pool, .random = {7}}, .f = f};
    assert_int_equal(pthread_create(&threads[workers], NULL, disturb, &disturber), 0);
    for (int i = 0; i <= workers; ++i) pthread_join(threads[i], NULL);
    for (int i = 0; i < workers; ++i)
        if (all[i].failure[0] != 0) fail_msg("worker %d: %s", i, all[i].failure);
    if (disturber.w.failure[0] != 0) fail_msg("%s", disturber.w.failure);
    faulty_end_faults(f);
    eventually(stats_of(pool).held_pages == 0);
    flush(pool);
    eventually(tier_stats(f->tier).open_requests == 0 && tier_stats(host).open_requests == 0);
    assert_int_equal(faulty_pins(f), 0);
    assert_int_equal(tier_stats(host).usage.pinned_images, 0);
    eventually(tier_stats(f->tier).open_requests == 0);
    for (int i = 0; i < workers; ++i) assert_true(all[i].rows_compared > 0);
    assert_true(tier_stats(host).loads > 0);
    end_pool(pool);
    faulty_end(f);
    assert_ok(pkv_tier_close(host));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_a_pool_over_tiers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
