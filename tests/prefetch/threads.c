/* SPDX-License-Identifier: Apache-2.0 */
/* Threads with sequences and prefetch sessions of their own over shared prompts, on one pool whose tiers are small and of which
 * one fails now and then; one that evicts, flushes and clears; and in the end nothing is held, pinned or under way. Meant for
 * `make check-tsan SUITE=prefetch`. */
#include "prefetch/session.h"
#include "prefetch/storm.h"

#include <stdatomic.h>
#include <time.h>

enum { workers = 3, steps = 200000, time_limit_ms = 2000, pool_pages = 96 };

static uint64_t deadline_ms;
static _Atomic int at_work;

static uint64_t now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

typedef struct {
    storm_worker w;
    storm_prefetch p;
} worker;

static void *work(void *context) {
    worker *at = context;
    storm_worker *w = &at->w;
    at->p.w = w;
    for (int step = 0;
         step < steps && w->failure[0] == 0 && (now_ms() < deadline_ms || w->rows_compared == 0 || at->p.steps == 0);
         ++step)
        if (storm_below(w, 2) == 0)
            storm_step(w);
        else
            storm_prefetch_step(&at->p);
    storm_prefetch_end(&at->p);
    storm_end(w);
    atomic_fetch_sub(&at_work, 1);
    return NULL;
}

/* What happens to the pool meanwhile. */
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

static void threads_with_sessions_share_a_pool(void **state) {
    (void)state;
    deadline_ms = now_ms() + (long_tests() ? 30 * time_limit_ms : time_limit_ms);
    storm_tiers tiers = storm_open_tiers(16, 48, 1);
    pkv_pool *pool = pool_over(pool_pages, tiers.attachments, 2);
    static worker all[workers];
    memset(all, 0, sizeof all);
    pthread_t threads[workers + 1];
    atomic_store(&at_work, workers);
    for (int i = 0; i < workers; ++i) {
        all[i].w.number = i;
        all[i].w.pool = pool;
        all[i].w.random.state = (uint64_t)i + 100;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &all[i]), 0);
    }
    struct disturber disturber = {.w = {.pool = pool, .random = {7}}, .f = tiers.bad};
    assert_int_equal(pthread_create(&threads[workers], NULL, disturb, &disturber), 0);
    for (int i = 0; i <= workers; ++i) pthread_join(threads[i], NULL);
    for (int i = 0; i < workers; ++i)
        if (all[i].w.failure[0] != 0) fail_msg("worker %d: %s", i, all[i].w.failure);
    if (disturber.w.failure[0] != 0) fail_msg("%s", disturber.w.failure);
    storm_settle_tiers(&tiers, pool);
    for (int i = 0; i < workers; ++i) assert_true(all[i].w.rows_compared > 0 && all[i].p.steps > 0);
    end_pool(pool);
    storm_close_tiers(&tiers);
}

/* ---- numbers from any thread ---- */

static void *read_stats(void *context) {
    pkv_prefetch *session = context;
    uint64_t loads = 0;
    for (;;) {
        pkv_prefetch_stats s = PKV_PREFETCH_STATS_INIT;
        const pkv_status status = pkv_prefetch_get_stats(session, &s);
        if (status == PKV_ERR_HANDLE) return NULL; /* it was closed */
        const bool holds =
            status == PKV_OK && s.needed == s.on_time + s.late + s.on_demand && s.io_ns == s.masked_ns + s.exposed_ns &&
            s.bytes_loaded == s.bytes_used + s.wasted_bytes + s.ready_bytes &&
            s.loads == s.good_loads + s.failed_loads + s.cancelled_loads + s.loads_in_flight && s.loads >= loads;
        if (!holds) return session;
        loads = s.loads;
    }
}

static void numbers_hold_on_any_thread_until_the_session_is_closed(void **state) {
    (void)state;
    faulty *f = faulty_open();
    const pkv_group_options group = layers_group(32, 2);
    pkv_pool *pool = pool_of_groups(&group, 1, f->tier);
    pkv_table *table = long_sequence(pool, 100, 12 * tiered_page_tokens, tiered_page_tokens, 5);
    const uint32_t tag = 5;
    for (int round = 0; round < 8; ++round) {
        pkv_prefetch *session = open_session(pool, NULL);
        pthread_t threads[2];
        for (int i = 0; i < 2; ++i) assert_int_equal(pthread_create(&threads[i], NULL, read_stats, session), 0);
        for (int step = 0; step < 4; ++step) {
            check_step(session, 2, 1, &table, &tag);
            assert_ok(pkv_prefetch_cancel(session));
        }
        assert_ok(pkv_prefetch_close(session, NULL));
        for (int i = 0; i < 2; ++i) {
            void *failed = NULL;
            pthread_join(threads[i], &failed);
            assert_null(failed);
        }
    }
    end_table(table);
    eventually(stats_of(pool).held_pages == 0);
    end_pool(pool);
    faulty_end(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_with_sessions_share_a_pool),
        cmocka_unit_test(numbers_hold_on_any_thread_until_the_session_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
