/* SPDX-License-Identifier: Apache-2.0 */
/* Prefetch sessions: their statistics as text for Prometheus, and what they leave in a trace. */
#include "telemetry/exposition.h"
#include "telemetry/trace.h"
#include "tier/faulty.h"

enum { tag = 7, blocks = 4, tokens = blocks * tiered_page_tokens };

static const uint64_t patience = 10ull * one_second;

#define SESSION(name, label, field, kind)                                                                              \
    { "pagedkv_prefetch_" name, label, offsetof(pkv_prefetch_stats, field), kind }

static const field session_fields[] = {
    SESSION("needed_total", "outcome=\"on_time\"", on_time, field_number),
    SESSION("needed_total", "outcome=\"late\"", late, field_number),
    SESSION("needed_total", "outcome=\"on_demand\"", on_demand, field_number),
    SESSION("failed_total", NULL, failed, field_number),
    SESSION("requests_total", NULL, requests, field_number),
    SESSION("ready_requests_total", NULL, ready_requests, field_number),
    SESSION("steps_total", NULL, steps, field_number),
    SESSION("ranges_total", NULL, ranges, field_number),
    SESSION("prompts_total", NULL, prompts, field_number),
    SESSION("io_seconds_total", "state=\"exposed\"", exposed_ns, field_ns),
    SESSION("io_seconds_total", "state=\"masked\"", masked_ns, field_ns),
    SESSION("other_wait_seconds_total", NULL, other_wait_ns, field_ns),
    SESSION("loads_total", NULL, loads, field_number),
    SESSION("ended_loads_total", "outcome=\"good\"", good_loads, field_number),
    SESSION("ended_loads_total", "outcome=\"failed\"", failed_loads, field_number),
    SESSION("ended_loads_total", "outcome=\"cancelled\"", cancelled_loads, field_number),
    SESSION("loaded_bytes_total", NULL, bytes_loaded, field_number),
    SESSION("used_bytes_total", NULL, bytes_used, field_number),
    SESSION("wasted_bytes_total", NULL, wasted_bytes, field_number),
    SESSION("checksum_failures_total", NULL, checksum_failures, field_number),
    SESSION("ready_bytes", NULL, ready_bytes, field_number),
    SESSION("in_flight_bytes", NULL, bytes_in_flight, field_number),
    SESSION("in_flight_loads", NULL, loads_in_flight, field_number),
    SESSION("depth_ranges", NULL, depth, field_number),
    SESSION("lookahead_blocks", NULL, lookahead, field_number),
    SESSION("block_pages", NULL, block_pages, field_number),
    SESSION("staging_pages", NULL, staging_pages, field_number),
    SESSION("buffer_slices", NULL, buffer_slices, field_number),
    SESSION("masking_efficiency_ratio", NULL, masking_efficiency, field_ratio),
};

static const field session_histograms[] = {
    SESSION("load_seconds", NULL, load, field_histogram),
    SESSION("queue_seconds", NULL, queue, field_histogram),
    SESSION("exposed_seconds", NULL, exposed, field_histogram),
};

enum {
    num_fields = sizeof session_fields / sizeof *session_fields,
    num_histograms = sizeof session_histograms / sizeof *session_histograms
};

/* All fields are in a table, but for needed and io_ns, which are the sums of a family. */
_Static_assert(sizeof(pkv_prefetch_stats) ==
                   sizeof(size_t) + 8 * (num_fields + 2) + num_histograms * sizeof(pkv_histogram),
               "a field of pkv_prefetch_stats is in no table");

static pkv_prefetch_stats session_stats(pkv_prefetch *session) {
    pkv_prefetch_stats stats = PKV_PREFETCH_STATS_INIT;
    assert_ok(pkv_prefetch_get_stats(session, &stats));
    return stats;
}

static void compare_session(const exposition *e, const char *name, const pkv_prefetch_stats *stats) {
    char labels[100];
    (void)snprintf(labels, sizeof labels, "session=\"%s\"", name);
    exposition_compare(e, session_fields, num_fields, labels, stats);
    exposition_compare(e, session_histograms, num_histograms, labels, stats);
}

static void every_number_of_a_session_is_there(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(32, f, PKV_TIER_WRITE_BACK, 0);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    pkv_prefetch *sessions[2] = {NULL, NULL};
    for (int i = 0; i < 2; ++i) assert_ok(pkv_prefetch_open(pool, NULL, &sessions[i]));

    /* One session loads a prompt, then blocks of a sequence; one of the loads is damaged. */
    pkv_token names[tokens];
    count_up(names, tokens, 1);
    const pkv_prompt prompt = prompt_of(names, tokens);
    pkv_op *op = NULL;
    assert_ok(pkv_prefetch_prompt(sessions[0], &prompt, NULL, NULL, &op));
    assert_ok(pkv_op_wait(op, patience));
    assert_ok(pkv_op_close(op));
    (void)evict_pages(pool, UINT32_MAX);
    faulty_script(f, PKV_TIER_LOAD, blocks - 1, 1, fault_flip, 100);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    assert_status(pkv_prefetch_require(sessions[0], table, 0, UINT64_MAX, patience, NULL), PKV_ERR_LOST);
    end_table(table);
    eventually(session_stats(sessions[0]).loads_in_flight == 0 && faulty_idle(f));

    const char *const session_names[2] = {"busy", "idle"};
    pkv_prometheus_sources sources = PKV_PROMETHEUS_SOURCES_INIT;
    sources.sessions = sessions;
    sources.num_sessions = 2;
    for (int named = 0; named < 2; ++named) {
        sources.session_names = named ? session_names : NULL;
        char *text = exposition_text(&sources);
        exposition e = exposition_parse(text);
        for (int i = 0; i < 2; ++i) {
            const pkv_prefetch_stats stats = session_stats(sessions[i]);
            compare_session(&e, named ? session_names[i] : i == 0 ? "0" : "1", &stats);
            assert_int_equal(stats.needed, stats.on_time + stats.late + stats.on_demand);
            assert_int_equal(stats.io_ns, stats.masked_ns + stats.exposed_ns);
        }
        exposition_free(&e);
        const char *copy = getenv("PKV_TEST_PROMETHEUS"); /* for promtool.sh */
        if (copy != NULL && named) {
            FILE *file = fopen(copy, "w");
            assert_non_null(file);
            assert_true(fputs(text, file) >= 0);
            assert_int_equal(fclose(file), 0);
        }
        free(text);
    }
    const pkv_prefetch_stats stats = session_stats(sessions[0]); /* the numbers compared were not all 0 */
    assert_true(stats.on_demand > 0 && stats.good_loads > 0 && stats.checksum_failures > 0 && stats.prompts > 0);
    assert_true(stats.load.count > 0 && stats.load.sum_ns > 0 && stats.exposed.count > 0 && stats.exposed_ns > 0);

    assert_ok(pkv_prefetch_close(sessions[1], NULL));
    uint64_t size = 77;
    assert_status(pkv_stats_prometheus(&sources, NULL, 0, &size), PKV_ERR_HANDLE);
    assert_int_equal(size, 77);
    assert_ok(pkv_prefetch_close(sessions[0], NULL));
    end_pool(pool);
    faulty_end(f);
}

static void acquire_and_release(pkv_prefetch *session, uint32_t layer) {
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    do {
        assert_ok(pkv_prefetch_layer_acquire(session, layer, patience, NULL, &view));
        assert_ok(pkv_prefetch_layer_release(session, layer, NULL));
    } while (!view.last);
}

static void a_step_shows_compute_and_loads(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(32, f, PKV_TIER_WRITE_BACK, 0);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    pkv_prefetch *session = NULL;
    assert_ok(pkv_prefetch_open(pool, NULL, &session));
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    trace_scratch s = begin_scratch();

    /* The trace begins and ends in the middle of computing a layer. */
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    assert_ok(pkv_prefetch_step_begin(session, 1, &table, NULL, NULL));
    assert_ok(pkv_prefetch_layer_acquire(session, 0, patience, NULL, &view));
    usleep(30000);
    assert_ok(pkv_trace_start(0));
    usleep(20000);
    assert_ok(pkv_prefetch_layer_release(session, 0, NULL));
    for (uint32_t layer = view.last ? 1 : 0; layer < 2; ++layer) acquire_and_release(session, layer);
    assert_ok(pkv_prefetch_step_end(session, NULL));
    eventually(session_stats(session).loads_in_flight == 0);
    (void)pkv_prefetch_cancel(session); /* what was loaded for the next step is loaded again */
    assert_ok(pkv_prefetch_step_begin(session, 1, &table, NULL, NULL));
    for (uint32_t layer = 0; layer < 2; ++layer) acquire_and_release(session, layer);
    assert_ok(pkv_prefetch_step_end(session, NULL));
    eventually(session_stats(session).loads_in_flight == 0);
    uint64_t dropped = 77;
    assert_ok(pkv_trace_stop(s.path, &dropped));
    assert_int_equal(dropped, 0);
    assert_ok(pkv_prefetch_close(session, NULL));

    trace t = trace_load(s.path);
    const trace_event *compute_span = NULL;
    assert_true(trace_in_lane(&t, "compute", &compute_span) >= 4);
    assert_int_equal(compute_span->begin, 0); /* what was before the trace is left out */
    assert_in_range(compute_span->end, 20000000, UINT64_MAX);
    assert_string_equal(compute_span->name, "compute");
    assert_int_equal(strncmp(compute_span->process_name, "prefetch session ", 17), 0);
    assert_true(trace_in_lane(&t, "loads from faulty", NULL) >= 1);
    assert_true(t.num_counters >= 2);
    assert_string_equal(t.counters[0].name, "bytes in flight");
    assert_int_equal(t.counters[t.num_counters - 1].value, 0);
    trace_end(&t);
    end_scratch(&s);
    end_table(table);
    end_pool(pool);
    faulty_end(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_a_session_is_there),
        cmocka_unit_test(a_step_shows_compute_and_loads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
