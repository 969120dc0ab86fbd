/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of live sequences: predicted, loaded ahead, and put into the block table when they are required. Field case J20. */
#include "prefetch/watch.h"

static const uint64_t ten_seconds = 10ull * one_second;

/* ---- words ---- */

typedef struct {
    faulty *tier;
    pkv_pool *pool;
    pkv_prefetch *session;
} world;

/* Room for whatever a test predicts; with `one_at_a_time` the order in which loads come is that in which they were picked. */
static pkv_prefetch_options options_for(int32_t policy, uint64_t lookahead, bool one_at_a_time) {
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.policy = policy;
    options.max_lookahead = lookahead;
    options.max_block_pages = 32;
    options.max_bytes_in_flight = one_at_a_time ? 1 : 0;
    return options;
}

static world make_world(uint64_t num_pages) {
    world w = {watched_open(), NULL, NULL};
    const pkv_group_options group = layers_group(num_pages, 2);
    w.pool = pool_of_groups(&group, 1, w.tier->tier);
    return w;
}

/* Opens the session after the sequences were made: their loads are the only ones that are written down. */
static void begin(world *w, int32_t policy, uint64_t lookahead, bool one_at_a_time) {
    const pkv_prefetch_options options = options_for(policy, lookahead, one_at_a_time);
    w->session = open_session(w->pool, &options);
    forget_loads(w->tier);
}

static void end_world(world *w) {
    check_session(w->session);
    assert_ok(pkv_prefetch_close(w->session, NULL));
    end_pool(w->pool);
    faulty_end(w->tier);
}

static uint64_t submit(pkv_prefetch *session, pkv_table *table, uint64_t position) {
    uint64_t submitted = 0;
    assert_ok(pkv_prefetch_submit(session, table, position, &submitted));
    check_session(session);
    return submitted;
}

static pkv_require_result require(pkv_prefetch *session, pkv_table *table, uint64_t first, uint64_t count) {
    pkv_require_result result = PKV_REQUIRE_RESULT_INIT;
    assert_ok(pkv_prefetch_require(session, table, first, count, ten_seconds, &result));
    check_session(session);
    return result;
}

static void assert_result(const pkv_require_result *result, uint64_t resident, uint64_t on_time, uint64_t late,
                          uint64_t on_demand) {
    assert_int_equal(result->resident, resident);
    assert_int_equal(result->on_time, on_time);
    assert_int_equal(result->late, late);
    assert_int_equal(result->on_demand, on_demand);
}

/* So many loads have ended well, and none is under way. */
static bool loaded(pkv_prefetch *session, uint64_t good) {
    const pkv_prefetch_stats stats = session_stats(session);
    return stats.good_loads == good && stats.loads_in_flight == 0;
}

/* A sequence whose first `blocks` blocks were found in the tier by admission. */
static pkv_table *found_sequence(world *w, int sequence, uint64_t blocks) {
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(w->pool, 10000 * sequence, blocks * tiered_page_tokens, &match);
    assert_int_equal(match.tokens, blocks * tiered_page_tokens);
    return table;
}

static void put_below(world *w, int sequence, uint64_t blocks) {
    compute(w->pool, 10000 * sequence, blocks * tiered_page_tokens, (uint32_t)sequence);
    push_down(w->pool);
    name_prompt(w->pool, sequence, 10000 * sequence, blocks * tiered_page_tokens);
}

/* ---- what becomes of a required block ---- */

static void a_block_that_was_loaded_ahead_costs_no_wait(void **state) {
    (void)state;
    world w = make_world(32);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 8, 6);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 3, false);
    assert_int_equal(submit(w.session, table, 0), 3);
    eventually(loaded(w.session, 3));
    assert_int_equal(session_stats(w.session).block_pages, 3);
    assert_int_equal(session_stats(w.session).ready_bytes, 3 * image_bytes);
    assert_int_equal(info_of(table).absent_blocks, 6); /* loading changes no table */
    faulty_block(w.tier, true);
    const pkv_require_result result = require(w.session, table, 0, 3);
    faulty_block(w.tier, false);
    assert_result(&result, 0, 3, 0, 0);
    assert_int_equal(result.waited_ns, 0);
    assert_int_equal(info_of(table).absent_blocks, 3);
    check_rows(table, 0, 12, 1);
    const pkv_prefetch_stats stats = session_stats(w.session);
    assert_int_equal(stats.on_time, 3);
    assert_int_equal(stats.requests, 1);
    assert_int_equal(stats.ready_requests, 1);
    assert_int_equal(stats.exposed_ns, 0);
    assert_int_equal(stats.block_pages, 0);
    assert_int_equal(stats.bytes_used, 3 * image_bytes);
    end_table(table);
    end_world(&w);
}

static void a_block_that_is_on_its_way_is_waited_for(void **state) {
    (void)state;
    world w = make_world(32);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 8, 6);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 1, false);
    fault_at(w.tier, 1002, 1, fault_hold, 0);
    assert_int_equal(submit(w.session, table, 2 * tiered_page_tokens), 1);
    eventually(faulty_held(w.tier) == 1);
    later l;
    begin_later(&l, w.tier, 20);
    const pkv_require_result result = require(w.session, table, 2, 1);
    assert_true(end_later(&l));
    assert_result(&result, 0, 0, 1, 0);
    assert_true(result.waited_ns > 0);
    check_rows(table, 8, 4, 1);
    assert_int_equal(num_loads(w.tier), 1);
    const pkv_prefetch_stats stats = session_stats(w.session);
    assert_int_equal(stats.late, 1);
    assert_int_equal(stats.ready_requests, 0);
    assert_true(stats.exposed_ns > 0);
    end_table(table);
    end_world(&w);
}

static void a_block_that_nobody_predicted_is_loaded_on_demand(void **state) {
    (void)state;
    world w = make_world(32);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 8, 6);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 1, false);
    const pkv_require_result result = require(w.session, table, 3, 2);
    assert_result(&result, 0, 0, 0, 2);
    check_rows(table, 12, 8, 1);
    assert_int_equal(info_of(table).absent_blocks, 4);
    for (uint64_t i = 0; i < 2; ++i) assert_int_equal(load_at(w.tier, i).urgent, 1);
    end_table(table);
    end_world(&w);
}

static void resident_blocks_are_counted_as_such(void **state) {
    (void)state;
    world w = make_world(32);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 8, 6);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 2, false);
    submit(w.session, table, 0);
    eventually(loaded(w.session, 2));
    pkv_require_result result = require(w.session, table, 1, 2);
    assert_result(&result, 0, 1, 0, 1);
    result = require(w.session, table, 0, UINT64_MAX); /* two in pages from the start, two since then */
    assert_result(&result, 4, 1, 0, 3);
    result = require(w.session, table, 0, 8);
    assert_result(&result, 8, 0, 0, 0);
    assert_int_equal(result.waited_ns, 0);
    result = require(w.session, table, 8, 5);
    assert_result(&result, 0, 0, 0, 0);
    result = require(w.session, table, 2, 0);
    assert_result(&result, 0, 0, 0, 0);
    assert_status(pkv_prefetch_require(w.session, table, 9, 1, one_second, NULL), PKV_ERR_INVALID);
    check_rows(table, 0, 32, 1);
    assert_int_equal(session_stats(w.session).requests, 2);
    end_table(table);
    end_world(&w);
}

static void restored_blocks_are_published(void **state) {
    (void)state;
    world w = make_world(32);
    put_below(&w, 1, 6);
    pkv_table *table = found_sequence(&w, 1, 6);
    pkv_token tokens[24];
    count_up(tokens, 24, 10000);
    const pkv_prompt prompt = prompt_of(tokens, 24);
    assert_int_equal(probe_tokens(w.pool, &prompt), 0);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 2, false);
    submit(w.session, table, 0);
    eventually(loaded(w.session, 2));
    assert_int_equal(probe_tokens(w.pool, &prompt), 0); /* ready, and still nobody's */
    require(w.session, table, 0, 2);
    assert_int_equal(probe_tokens(w.pool, &prompt), 8);
    require(w.session, table, 3, 3);
    assert_int_equal(probe_tokens(w.pool, &prompt), 8);
    require(w.session, table, 2, 1);
    assert_int_equal(probe_tokens(w.pool, &prompt), 24);
    check_rows(table, 0, 24, 1);
    assert_int_equal(stats_of(w.pool).loaded_blocks, 6);
    end_table(table);
    table = admit_again(w.pool, 10000, 24, NULL);
    assert_int_equal(info_of(table).absent_blocks, 0);
    check_rows(table, 0, 24, 1);
    end_table(table);
    end_world(&w);
}

static void a_last_block_that_is_half_full_comes_back_and_goes_on(void **state) {
    (void)state;
    world w = make_world(32);
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(w.pool, &prompt, NULL);
    write_and_commit(table, 18, 1);
    spill_named(w.tier, table, 1, 0, 5);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 9, false);
    assert_int_equal(submit(w.session, table, 16), 1);
    eventually(loaded(w.session, 1));
    const pkv_require_result result = require(w.session, table, 4, 1);
    assert_result(&result, 0, 1, 0, 0);
    write_and_commit(table, 23, 1);
    require(w.session, table, 0, UINT64_MAX);
    check_rows(table, 0, 23, 1);
    end_table(table);
    end_world(&w);
}

/* ---- prediction ---- */

/* What is loaded for a sequence of 12 blocks, of which 10 are absent, at a position. */
static void assert_predicted(const pkv_prefetch_options *options, uint64_t num_scores, const float *scores,
                             uint64_t position, uint64_t count, const int *blocks) {
    world w = make_world(48);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 0, 12, 10);
    w.session = open_session(w.pool, options);
    forget_loads(w.tier);
    if (num_scores != 0) assert_ok(pkv_prefetch_hint(w.session, table, num_scores, scores));
    assert_int_equal(submit(w.session, table, position), count);
    eventually(loaded(w.session, count));
    assert_loads(w.tier, count, blocks);
    require(w.session, table, 0, UINT64_MAX);
    check_rows(table, 0, 48, 0);
    end_table(table);
    end_world(&w);
}

static void sequential_prediction_loads_from_the_position_on(void **state) {
    (void)state;
    pkv_prefetch_options options = options_for(PKV_PREDICT_SEQUENTIAL, 3, true);
    const int from_block_4[] = {4, 5, 6}, at_the_end[] = {8, 9};
    assert_predicted(&options, 0, NULL, 17, 3, from_block_4);
    assert_predicted(&options, 0, NULL, 32, 2, at_the_end); /* block 10 is in a page */
    assert_predicted(&options, 0, NULL, 48, 0, NULL);
    options.sink_tokens = 5;
    options.recent_tokens = 6;
    const int with_sinks[] = {0, 1, 3, 4, 5, 6, 7};
    assert_predicted(&options, 0, NULL, 20, 7, with_sinks);
}

static void full_prediction_loads_everything(void **state) {
    (void)state;
    pkv_prefetch_options options = options_for(PKV_PREDICT_FULL, 1, true);
    const int all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, sinks_first[] = {0, 4, 1, 2, 3, 5, 6, 7, 8, 9};
    assert_predicted(&options, 0, NULL, 17, 10, all);
    options.sink_tokens = options.recent_tokens = 4;
    assert_predicted(&options, 0, NULL, 20, 10, sinks_first);
}

static void hinted_prediction_loads_the_highest_scores(void **state) {
    (void)state;
    pkv_prefetch_options options = options_for(PKV_PREDICT_HINTED, 3, true);
    const float scores[] = {0, 3, 1, 9, 3, 0.5f};
    const int best[] = {3, 1, 4}, with_sinks[] = {0, 3, 1, 4};
    assert_predicted(&options, 6, scores, 20, 3, best);
    assert_predicted(&options, 0, NULL, 20, 0, NULL); /* no scores: no block by score */
    options.sink_tokens = 1;
    assert_predicted(&options, 6, scores, 20, 4, with_sinks);
}

static void new_scores_take_the_place_of_old_ones(void **state) {
    (void)state;
    world w = make_world(48);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 0, 12, 10);
    begin(&w, PKV_PREDICT_HINTED, 2, true);
    const float first[] = {1, 2, 3, 4}, second[] = {9, 1, 1, 1, 8};
    assert_ok(pkv_prefetch_hint(w.session, table, 4, first));
    assert_ok(pkv_prefetch_hint(w.session, table, 5, second));
    assert_int_equal(submit(w.session, table, 40), 2);
    eventually(loaded(w.session, 2));
    const int best[] = {0, 4};
    assert_loads(w.tier, 2, best);
    assert_ok(pkv_prefetch_hint(w.session, table, 0, NULL));
    assert_int_equal(submit(w.session, table, 40), 0);
    assert_status(pkv_prefetch_hint(w.session, table, 1, NULL), PKV_ERR_INVALID);
    end_table(table);
    end_world(&w);
}

static void loaded_blocks_take_no_more_pages_than_they_may(void **state) {
    (void)state;
    world w = make_world(32);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 10, 8);
    pkv_prefetch_options options = options_for(PKV_PREDICT_SEQUENTIAL, 8, false);
    options.max_block_pages = 3;
    w.session = open_session(w.pool, &options);
    const uint64_t free_pages = stats_of(w.pool).free_pages;
    assert_int_equal(submit(w.session, table, 0), 3);
    eventually(loaded(w.session, 3));
    assert_int_equal(session_stats(w.session).block_pages, 3);
    assert_int_equal(stats_of(w.pool).free_pages, free_pages - 3);
    assert_int_equal(submit(w.session, table, 0), 3);
    require(w.session, table, 0, 2);
    assert_int_equal(submit(w.session, table, 8), 3); /* goes on with the next call */
    eventually(loaded(w.session, 5));
    assert_int_equal(session_stats(w.session).block_pages, 3);
    require(w.session, table, 0, UINT64_MAX);
    check_rows(table, 0, 40, 1);
    assert_int_equal(session_stats(w.session).wasted_bytes, 0);
    end_table(table);
    end_world(&w);
}

static void loading_stops_without_an_error_where_the_pages_of_the_pool_end(void **state) {
    (void)state;
    world w = make_world(16);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 10, 8);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 8, false); /* 2 blocks, 4 staging pages */
    pkv_page taken[8];
    assert_ok(pkv_pool_alloc(w.pool, 0, 8, taken));
    assert_int_equal(submit(w.session, table, 0), 2);
    eventually(loaded(w.session, 2));
    assert_int_equal(stats_of(w.pool).free_pages, 0);
    release_pages(w.pool, taken, 8);
    assert_int_equal(submit(w.session, table, 0), 8);
    require(w.session, table, 0, UINT64_MAX);
    check_rows(table, 0, 40, 1);
    end_table(table);
    end_world(&w);
}

static void a_prediction_that_moves_on_drops_what_has_not_begun(void **state) {
    (void)state;
    world w = make_world(48);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 0, 12, 10);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 3, true);
    faulty_block(w.tier, true);
    assert_int_equal(submit(w.session, table, 0), 3);
    eventually(num_loads(w.tier) == 1);
    assert_int_equal(submit(w.session, table, 24), 3);
    assert_int_equal(session_stats(w.session).block_pages, 4); /* of block 0, and of the new ones */
    faulty_block(w.tier, false);
    eventually(loaded(w.session, 4));
    const int order[] = {0, 6, 7, 8};
    assert_loads(w.tier, 4, order);
    end_table(table);
    end_world(&w);
}

static void what_was_predicted_in_vain_makes_room_for_what_is_predicted_now(void **state) {
    (void)state;
    world w = make_world(48);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 0, 12, 10);
    pkv_prefetch_options options = options_for(PKV_PREDICT_SEQUENTIAL, 3, false);
    options.max_block_pages = 3;
    w.session = open_session(w.pool, &options);
    submit(w.session, table, 0);
    eventually(loaded(w.session, 3));
    assert_int_equal(submit(w.session, table, 24), 3);
    eventually(loaded(w.session, 6));
    assert_int_equal(session_stats(w.session).block_pages, 3);
    assert_int_equal(session_stats(w.session).wasted_bytes, 3 * image_bytes);
    const pkv_require_result result = require(w.session, table, 6, 3);
    assert_result(&result, 0, 3, 0, 0);
    end_table(table);
    end_world(&w);
}

static void submitting_again_loads_nothing_twice(void **state) {
    (void)state;
    world w = make_world(48);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 0, 12, 10);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 4, false);
    for (uint64_t position = 0; position < 20; ++position) {
        assert_int_equal(submit(w.session, table, position), 4);
        if (position % 4 == 3) eventually(loaded(w.session, 4 + position / 4));
    }
    const int order[] = {0, 1, 2, 3, 4, 5, 6, 7};
    assert_loads(w.tier, 8, order);
    end_table(table);
    end_world(&w);
}

/* ---- order ---- */

static void blocks_of_two_tables_take_turns(void **state) {
    (void)state;
    world w = make_world(48);
    pkv_table *first = spilled_sequence(w.pool, w.tier, 1, 5, 4), *second = spilled_sequence(w.pool, w.tier, 2, 5, 4);
    pkv_table *other = spilled_sequence(w.pool, w.tier, 3, 2, 1);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 4, true);
    faulty_block(w.tier, true);
    submit(w.session, other, 0); /* nothing else begins while this one is under way */
    eventually(num_loads(w.tier) == 1);
    submit(w.session, first, 0);
    submit(w.session, second, 0);
    faulty_block(w.tier, false);
    eventually(loaded(w.session, 9));
    int next[3] = {0, 0, 0};
    for (uint64_t i = 1; i < 9; ++i) {
        const int name = name_of_load(w.tier, i), sequence = name / table_step;
        assert_int_equal(name % table_step, next[sequence]++);
        if (i > 1) assert_int_not_equal(sequence, name_of_load(w.tier, i - 1) / table_step);
    }
    end_table(first);
    end_table(second);
    end_table(other);
    end_world(&w);
}

static void demand_overtakes_prediction(void **state) {
    (void)state;
    world w = make_world(48);
    pkv_table *first = spilled_sequence(w.pool, w.tier, 1, 6, 5), *second = spilled_sequence(w.pool, w.tier, 2, 5, 4);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 5, true);
    faulty_block(w.tier, true);
    submit(w.session, first, 0);
    eventually(num_loads(w.tier) == 1);
    later l;
    begin_later(&l, w.tier, 20);
    pkv_require_result result = require(w.session, second, 2, 1);
    assert_true(end_later(&l));
    assert_result(&result, 0, 0, 0, 1);
    check_rows(second, 8, 4, 2);
    eventually(loaded(w.session, 6));
    const int order[] = {1000, 2002, 1001, 1002, 1003, 1004};
    assert_loads(w.tier, 6, order);
    for (uint64_t i = 0; i < 6; ++i) assert_int_equal(load_at(w.tier, i).urgent, i == 1);
    end_table(first);
    end_table(second);
    end_world(&w);
}

static void a_predicted_block_that_is_required_overtakes_the_others(void **state) {
    (void)state;
    world w = make_world(48);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 6, 5);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 5, true);
    faulty_block(w.tier, true);
    submit(w.session, table, 0);
    eventually(num_loads(w.tier) == 1);
    later l;
    begin_later(&l, w.tier, 20);
    const pkv_require_result result = require(w.session, table, 3, 1);
    assert_true(end_later(&l));
    assert_result(&result, 0, 0, 0, 1); /* its load had not begun */
    eventually(loaded(w.session, 5));
    const int order[] = {1000, 1003, 1001, 1002, 1004};
    assert_loads(w.tier, 5, order);
    assert_int_equal(load_at(w.tier, 1).urgent, 1);
    end_table(table);
    end_world(&w);
}

/* ---- tables that share a prefix ---- */

static void two_tables_that_require_the_same_prefix_load_it_once(void **state) {
    (void)state;
    for (int submitted = 0; submitted < 3; ++submitted) {
        world w = make_world(48);
        put_below(&w, 1, 6);
        pkv_table *first = found_sequence(&w, 1, 6), *second = found_sequence(&w, 1, 6);
        begin(&w, PKV_PREDICT_SEQUENTIAL, 6, false);
        if (submitted > 0) submit(w.session, first, 0);
        if (submitted > 1) submit(w.session, second, 0);
        if (submitted > 0) eventually(loaded(w.session, 6));
        require(w.session, second, 0, UINT64_MAX);
        check_rows(second, 0, 24, 1);
        const pkv_require_result result = require(w.session, first, 0, UINT64_MAX);
        assert_result(&result, 6, 0, 0, 0);
        check_rows(first, 0, 24, 1);
        check_rows(second, 0, 24, 1);
        assert_int_equal(num_loads(w.tier), 6);
        end_table(second);
        check_rows(first, 0, 24, 1);
        end_table(first);
        end_world(&w);
    }
}

static void a_table_may_go_while_another_one_waits_for_its_blocks(void **state) {
    (void)state;
    world w = make_world(48);
    put_below(&w, 1, 6);
    pkv_table *first = found_sequence(&w, 1, 6), *second = found_sequence(&w, 1, 4);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 6, false);
    faulty_always(w.tier, PKV_TIER_LOAD, fault_hold, 0);
    submit(w.session, first, 0);
    submit(w.session, second, 0);
    eventually(faulty_held(w.tier) == 6);
    end_table(first);
    later l;
    begin_later(&l, w.tier, 5);
    require(w.session, second, 0, UINT64_MAX);
    (void)end_later(&l);
    check_rows(second, 0, 16, 1);
    end_table(second);
    end_world(&w);
}

/* ---- other tiers ---- */

static void a_block_comes_from_another_tier_when_the_first_fails(void **state) {
    (void)state;
    const struct {
        fault what;
        int64_t value;
    } faults[] = {{fault_status, PKV_ERR_IO},
                  {fault_flip, 5000},
                  {fault_status, PKV_ERR_NOT_FOUND},
                  {fault_refuse, PKV_ERR_BUSY}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; ++i)
        for (int ahead = 0; ahead < 2; ++ahead) {
            faulty *upper = faulty_open(), *lower = faulty_open();
            const pkv_tier_attachment tiers[] = {attachment(upper->tier, PKV_TIER_WRITE_THROUGH),
                                                 attachment(lower->tier, PKV_TIER_WRITE_THROUGH)};
            pkv_pool *pool = pool_over(32, tiers, 2);
            compute(pool, 1, 16, 7);
            push_down(pool);
            pkv_table *table = admit_again(pool, 1, 16, NULL);
            pkv_prefetch *session = open_session(pool, NULL);
            faulty_script(upper, PKV_TIER_LOAD, 1, 2, faults[i].what, faults[i].value);
            if (ahead) {
                submit(session, table, 0);
                eventually(loaded(session, 4));
            }
            require(session, table, 0, UINT64_MAX);
            check_rows(table, 0, 16, 7);
            assert_int_equal(faulty_seen(lower, PKV_TIER_LOAD), 2);
            assert_int_equal(session_stats(session).failed, 0);
            assert_int_equal(session_stats(session).checksum_failures, faults[i].what == fault_flip ? 2 : 0);
            assert_ok(pkv_prefetch_close(session, NULL));
            end_table(table);
            end_pool(pool);
            faulty_end(upper);
            faulty_end(lower);
        }
}

static void images_that_lie_in_memory_are_taken_from_there(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(64);
    const pkv_group_options group = layers_group(32, 2);
    pkv_pool *pool = pool_of_groups(&group, 1, tier);
    pkv_table *table = long_sequence(pool, 1, 40, 8, 3);
    pkv_prefetch *session = open_session(pool, NULL);
    assert_int_equal(submit(session, table, 0), 4); /* an eighth of the pool's pages */
    eventually(loaded(session, 4));
    pkv_require_result result = require(session, table, 0, 4);
    assert_result(&result, 0, 4, 0, 0);
    result = require(session, table, 0, UINT64_MAX);
    assert_result(&result, 6, 0, 0, 4);
    same_rows(pool, table, 0, 0, 40, 3, 0);
    assert_int_equal(tier_stats(tier).usage.images, 0); /* private images go when they have come up */
    assert_ok(pkv_prefetch_close(session, NULL));
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

static void a_block_of_several_groups_is_one_block(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(200);
    pkv_group_options groups[3] = {layers_group(32, 2), window_group(32, 12, 4), layers_group(24, 3)};
    groups[2].v_head_dim = 0;
    pkv_pool *pool = pool_of_groups(groups, 3, tier);
    pkv_table *table = long_sequence(pool, 1, 40, 8, 3);
    pkv_prefetch_options options = options_for(PKV_PREDICT_FULL, 0, false);
    pkv_prefetch *session = open_session(pool, &options);
    assert_int_equal(submit(session, table, 0), 8);
    eventually(loaded(session, 24));
    assert_int_equal(session_stats(session).block_pages, 24);
    const pkv_require_result result = require(session, table, 1, 4);
    assert_result(&result, 0, 4, 0, 0);
    require(session, table, 0, UINT64_MAX);
    for (uint32_t group = 0; group < 3; ++group) same_rows(pool, table, group, 0, 40, 3, 0);
    assert_int_equal(session_stats(session).needed, 8);
    assert_ok(pkv_prefetch_close(session, NULL));
    end_table(table);
    end_groups(pool);
    assert_ok(pkv_tier_close(tier));
}

/* ---- loads that fail ---- */

static void a_predicted_block_with_a_wrong_checksum_is_lost(void **state) {
    (void)state;
    for (int ahead = 0; ahead < 2; ++ahead) {
        world w = make_world(32);
        pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 8, 6);
        begin(&w, PKV_PREDICT_SEQUENTIAL, 6, false);
        fault_at(w.tier, 1002, 1, fault_flip, 5000);
        if (ahead) {
            submit(w.session, table, 0);
            eventually(loaded(w.session, 5));
            assert_int_equal(info_of(table).valid, 32); /* nobody has asked for it */
        }
        pkv_require_result result = PKV_REQUIRE_RESULT_INIT;
        assert_status(pkv_prefetch_require(w.session, table, 0, 6, ten_seconds, &result), PKV_ERR_LOST);
        assert_result(&result, 0, ahead ? 5 : 0, 0, ahead ? 1 : 6);
        assert_int_equal(info_of(table).valid, 8);
        assert_int_equal(session_stats(w.session).checksum_failures, 1);
        assert_int_equal(session_stats(w.session).failed, 1);
        assert_int_equal(session_stats(w.session).block_pages, 0);
        assert_int_equal(stats_of(w.pool).lost_blocks, 1);
        check_session(w.session);
        assert_status(pkv_prefetch_require(w.session, table, 0, 6, ten_seconds, NULL), PKV_ERR_LOST);
        assert_status(pkv_prefetch_submit(w.session, table, 0, NULL), PKV_ERR_LOST);
        assert_ok(pkv_table_truncate(table, 8, NULL));
        check_rows(table, 0, 8, 1);
        write_and_commit(table, 20, 1);
        check_rows(table, 0, 20, 1);
        end_table(table);
        end_world(&w);
    }
}

static void case_J20_a_failed_load_leaves_a_valid_prefix(void **state) {
    (void)state;
    for (int ahead = 0; ahead < 2; ++ahead) {
        world w = make_world(32);
        put_below(&w, 1, 4);
        pkv_table *table = found_sequence(&w, 1, 4);
        begin(&w, PKV_PREDICT_SEQUENTIAL, 4, false);
        fault_at(w.tier, 1002, 2, fault_status, PKV_ERR_IO);
        if (ahead) {
            submit(w.session, table, 0);
            eventually(loaded(w.session, 3));
        }
        assert_status(pkv_prefetch_require(w.session, table, 0, 4, ten_seconds, NULL), PKV_ERR_LOST);
        assert_int_equal(info_of(table).valid, 8);
        pkv_token tokens[16];
        count_up(tokens, 16, 10000);
        const pkv_prompt prompt = prompt_of(tokens, 16);
        assert_int_equal(probe_tokens(w.pool, &prompt), 8);
        assert_ok(pkv_table_truncate(table, 8, NULL));
        check_rows(table, 0, 8, 1);
        assert_ok(pkv_table_set_tokens(table, 8, 8, tokens + 8));
        write_and_commit(table, 16, 1); /* computed again */
        check_rows(table, 0, 16, 1);
        assert_int_equal(probe_tokens(w.pool, &prompt), 16);
        end_table(table);
        table = admit_again(w.pool, 10000, 16, NULL);
        require(w.session, table, 0, UINT64_MAX);
        check_rows(table, 0, 16, 1);
        end_table(table);
        end_world(&w);
    }
}

static void a_load_that_failed_ahead_of_time_is_tried_again(void **state) {
    (void)state;
    world w = make_world(32);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 8, 6);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 4, false);
    fault_at(w.tier, 1002, 1, fault_status, PKV_ERR_BUSY);
    submit(w.session, table, 0);
    eventually(loaded(w.session, 3));
    assert_int_equal(session_stats(w.session).failed_loads, 1);
    require(w.session, table, 0, 4);
    check_rows(table, 0, 16, 1);
    end_table(table);
    end_world(&w);
}

static void a_require_that_ran_out_of_time_may_be_repeated(void **state) {
    (void)state;
    for (int ahead = 0; ahead < 2; ++ahead) {
        world w = make_world(32);
        pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 8, 6);
        begin(&w, PKV_PREDICT_SEQUENTIAL, 3, false);
        faulty_always(w.tier, PKV_TIER_LOAD, fault_hold, 0);
        if (ahead) {
            submit(w.session, table, 0);
            eventually(faulty_held(w.tier) == 3);
        }
        const uint64_t free_pages = stats_of(w.pool).free_pages;
        const uint64_t timeouts[] = {0, 1000000, 5000000};
        for (int i = 0; i < 3; ++i) {
            pkv_require_result result = PKV_REQUIRE_RESULT_INIT;
            assert_status(pkv_prefetch_require(w.session, table, 0, 3, timeouts[i], &result), PKV_ERR_TIMEOUT);
            assert_result(&result, 0, 0, ahead ? 3 : 0, ahead ? 0 : 3);
            assert_true(result.waited_ns > 0);
            assert_int_equal(info_of(table).absent_blocks, 6);
            assert_int_equal(info_of(table).valid, 32);
            assert_int_equal(stats_of(w.pool).free_pages, free_pages);
            check_session(w.session);
        }
        let_all_go(w.tier);
        require(w.session, table, 0, 3);
        check_rows(table, 0, 12, 1);
        if (ahead) assert_int_equal(num_loads(w.tier), 3); /* what was predicted went on */
        end_table(table);
        end_world(&w);
    }
}

static void what_has_come_before_the_time_is_over_stays(void **state) {
    (void)state;
    world w = make_world(32);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 8, 6);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 3, false);
    fault_at(w.tier, 1001, 1, fault_hold, 0);
    submit(w.session, table, 0);
    eventually(session_stats(w.session).good_loads == 2);
    assert_status(pkv_prefetch_require(w.session, table, 0, 3, 1000000, NULL), PKV_ERR_TIMEOUT);
    assert_int_equal(info_of(table).absent_blocks, 4);
    check_rows(table, 0, 4, 1);
    check_rows(table, 8, 4, 1);
    faulty_let_go(w.tier);
    require(w.session, table, 0, 3);
    check_rows(table, 0, 12, 1);
    end_table(table);
    end_world(&w);
}

static void a_load_that_takes_too_long_may_come_later(void **state) {
    (void)state;
    world w = make_world(32);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 8, 6);
    pkv_prefetch_options options = options_for(PKV_PREDICT_SEQUENTIAL, 2, false);
    options.load_timeout_ns = 20000000;
    w.session = open_session(w.pool, &options);
    fault_at(w.tier, 1001, 1, fault_hold, 0);
    submit(w.session, table, 0);
    eventually(session_stats(w.session).failed_loads == 1);
    assert_true(tier_stats(w.tier->tier).timeouts > 0);
    require(w.session, table, 0, 2);
    faulty_let_go(w.tier); /* the late answer changes nothing */
    eventually(faulty_idle(w.tier));
    check_rows(table, 0, 8, 1);
    end_table(table);
    end_world(&w);
}

/* ---- pages ---- */

static void without_pages_nothing_changes(void **state) {
    (void)state;
    world w = make_world(16);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 8, 6);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 3, false);
    pkv_page taken[9]; /* of 16: 2 blocks, 4 for staging, one is left */
    assert_ok(pkv_pool_alloc(w.pool, 0, 9, taken));
    pkv_require_result result = PKV_REQUIRE_RESULT_INIT;
    assert_status(pkv_prefetch_require(w.session, table, 0, 2, ten_seconds, &result), PKV_ERR_NO_PAGES);
    assert_int_equal(info_of(table).absent_blocks, 6);
    assert_int_equal(stats_of(w.pool).free_pages, 1);
    assert_int_equal(num_loads(w.tier), 0);
    assert_int_equal(session_stats(w.session).needed, 0);
    assert_int_equal(session_stats(w.session).block_pages, 0);
    require(w.session, table, 3, 1);
    check_rows(table, 12, 4, 1);
    release_pages(w.pool, taken, 9);
    require(w.session, table, 0, UINT64_MAX);
    check_rows(table, 0, 32, 1);
    end_table(table);
    end_world(&w);
}

enum { whose_own, whose_other, whose_gone, whose_cleared, whose_all };

static void pages_that_predictions_hold_are_given_up_for_what_is_required(void **state) {
    (void)state;
    for (int whose = 0; whose < whose_all; ++whose) {
        world w = make_world(24);
        pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 8, 6),
                  *other = spilled_sequence(w.pool, w.tier, 2, 4, 3);
        begin(&w, PKV_PREDICT_SEQUENTIAL, 3, false);
        submit(w.session, whose == whose_own ? table : other, 0);
        eventually(loaded(w.session, 3));
        if (whose == whose_gone) end_table(other);
        if (whose == whose_cleared) assert_ok(pkv_table_clear(other, NULL));
        pkv_page taken[24];
        const uint64_t count = stats_of(w.pool).free_pages;
        assert_ok(pkv_pool_alloc(w.pool, 0, count, taken));
        const pkv_require_result result = require(w.session, table, 3, 3);
        assert_result(&result, 0, 0, 0, 3);
        check_rows(table, 12, 12, 1);
        assert_int_equal(session_stats(w.session).wasted_bytes, 3 * image_bytes);
        release_pages(w.pool, taken, count);
        require(w.session, table, 0, UINT64_MAX);
        check_rows(table, 0, 32, 1);
        if (whose == whose_own || whose == whose_other) {
            require(w.session, other, 0, UINT64_MAX);
            check_rows(other, 0, 16, 2);
        }
        if (whose != whose_gone) end_table(other);
        end_table(table);
        end_world(&w);
    }
}

/* ---- tables that change ---- */

static void a_block_that_its_table_restored_itself_was_loaded_in_vain(void **state) {
    (void)state;
    world w = make_world(32);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 8, 6);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 3, false);
    submit(w.session, table, 0);
    eventually(loaded(w.session, 3));
    assert_ok(pkv_table_restore(table, 0, 2, one_second, NULL));
    const pkv_require_result result = require(w.session, table, 0, 3);
    assert_result(&result, 2, 1, 0, 0);
    check_rows(table, 0, 12, 1);
    submit(w.session, table, 12);
    eventually(loaded(w.session, 6));
    assert_int_equal(session_stats(w.session).block_pages, 3); /* those loaded in vain are given up */
    require(w.session, table, 0, UINT64_MAX);
    check_rows(table, 0, 32, 1);
    end_table(table);
    end_world(&w);
}

/* The session may be at work on an image while the table's owner brings the block up by himself: what came to the table must
 * not be written again. */
static void a_late_and_damaged_load_does_not_reach_a_block_that_was_restored_meanwhile(void **state) {
    (void)state;
    for (int found = 0; found < 2; ++found) {
        world w = make_world(32);
        pkv_table *table = NULL;
        if (found) {
            put_below(&w, 1, 6);
            table = found_sequence(&w, 1, 6);
        } else {
            table = spilled_sequence(w.pool, w.tier, 1, 8, 6);
        }
        begin(&w, PKV_PREDICT_SEQUENTIAL, 1, false);
        fault_at(w.tier, 1000, 1, fault_hold, 0);
        submit(w.session, table, 0);
        eventually(faulty_held(w.tier) == 1);
        assert_ok(pkv_table_restore(table, 0, 1, ten_seconds, NULL));
        check_rows(table, 0, 4, 1);
        pthread_mutex_lock(&w.tier->mutex);
        /* Put back, so that there is something to load; and then all of the image but its end is good. */
        w.tier->held.first->fault = (fault_rule){found ? fault_flip : fault_none, 8200};
        pthread_mutex_unlock(&w.tier->mutex);
        faulty_let_go(w.tier);
        eventually(faulty_idle(w.tier) && session_stats(w.session).loads_in_flight == 0);
        check_rows(table, 0, 4, 1);
        require(w.session, table, 0, UINT64_MAX);
        check_rows(table, 0, 24, 1);
        end_table(table);
        end_world(&w);
    }
}

static void a_table_may_be_cut_and_grow_again_while_its_blocks_are_loaded(void **state) {
    (void)state;
    for (int found = 0; found < 2; ++found) {
        world w = make_world(48);
        pkv_table *table = NULL;
        if (found) {
            put_below(&w, 1, 6);
            table = found_sequence(&w, 1, 6);
        } else {
            table = spilled_sequence(w.pool, w.tier, 1, 6, 6);
        }
        begin(&w, PKV_PREDICT_FULL, 0, false);
        faulty_always(w.tier, PKV_TIER_LOAD, fault_hold, 0);
        submit(w.session, table, 0);
        eventually(faulty_held(w.tier) == 6);
        assert_ok(pkv_table_truncate(table, 12, NULL));
        write_and_commit(table, 28, 9);
        let_all_go(w.tier);
        eventually(session_stats(w.session).loads_in_flight == 0);
        check_rows(table, 12, 16, 9);
        require(w.session, table, 0, UINT64_MAX);
        check_rows(table, 0, 12, 1);
        check_rows(table, 12, 16, 9);
        submit(w.session, table, 0);
        assert_int_equal(session_stats(w.session).block_pages, 0);
        end_table(table);
        end_world(&w);
    }
}

static void a_block_that_is_spilled_again_is_loaded_again(void **state) {
    (void)state;
    world w = make_world(32);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 8, 6);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 8, false);
    for (int round = 0; round < 5; ++round) {
        submit(w.session, table, (uint64_t)round * 4);
        require(w.session, table, 0, 6);
        check_rows(table, 0, 32, 1);
        assert_ok(pkv_table_spill(table, (uint64_t)round % 3, 5, NULL, NULL));
    }
    end_table(table);
    end_world(&w);
}

static void a_cleared_table_takes_nothing_of_its_former_sequence(void **state) {
    (void)state;
    world w = make_world(32);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 8, 6);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 8, false);
    submit(w.session, table, 0);
    assert_ok(pkv_table_clear(table, NULL));
    assert_status(pkv_prefetch_submit(w.session, table, 0, NULL), PKV_ERR_STATE);
    assert_status(pkv_prefetch_require(w.session, table, 0, 1, 0, NULL), PKV_ERR_STATE);
    const pkv_prompt prompt = prompt_of(NULL, 0);
    assert_ok(pkv_table_admit(table, &prompt, NULL, NULL));
    write_and_commit(table, 24, 2);
    spill_named(w.tier, table, 2, 0, 5);
    submit(w.session, table, 0);
    require(w.session, table, 0, UINT64_MAX);
    check_rows(table, 0, 24, 2);
    end_table(table);
    end_world(&w);
}

/* ---- calls ---- */

static void a_session_that_is_off_loads_on_demand_only(void **state) {
    (void)state;
    world w = make_world(32);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 8, 6);
    pkv_prefetch_options options = options_for(PKV_PREDICT_FULL, 8, false);
    options.flags = PKV_PREFETCH_OFF;
    w.session = open_session(w.pool, &options);
    forget_loads(w.tier);
    assert_int_equal(submit(w.session, table, 0), 0);
    usleep(2000);
    assert_int_equal(num_loads(w.tier), 0);
    const pkv_require_result result = require(w.session, table, 0, UINT64_MAX);
    assert_result(&result, 2, 0, 0, 6);
    check_rows(table, 0, 32, 1);
    assert_int_equal(session_stats(w.session).masked_ns, 0);
    end_table(table);
    end_world(&w);
}

static void a_cancel_drops_what_was_loaded_ahead(void **state) {
    (void)state;
    world w = make_world(32);
    pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 8, 6);
    begin(&w, PKV_PREDICT_SEQUENTIAL, 4, true);
    const uint64_t free_pages = stats_of(w.pool).free_pages;
    fault_at(w.tier, 1002, 1, fault_hold, 0);
    submit(w.session, table, 0);
    eventually(faulty_held(w.tier) == 1); /* two are ready, one is under way, and one waits */
    assert_ok(pkv_prefetch_cancel(w.session));
    assert_int_equal(stats_of(w.pool).free_pages, free_pages);
    pkv_prefetch_stats stats = session_stats(w.session);
    assert_int_equal(stats.wasted_bytes, 2 * image_bytes);
    assert_int_equal(stats.cancelled_loads, 1);
    assert_int_equal(stats.block_pages + stats.ready_bytes + stats.bytes_in_flight + stats.loads_in_flight, 0);
    faulty_let_go(w.tier);
    const pkv_require_result result = require(w.session, table, 0, 4);
    assert_result(&result, 0, 0, 0, 4);
    check_rows(table, 0, 16, 1);
    end_table(table);
    end_world(&w);
}

static void a_session_may_be_closed_while_blocks_are_loaded(void **state) {
    (void)state;
    for (int found = 0; found < 2; ++found) {
        world w = make_world(32);
        pkv_table *table = NULL;
        if (found) {
            put_below(&w, 1, 6);
            table = found_sequence(&w, 1, 6);
        } else {
            table = spilled_sequence(w.pool, w.tier, 1, 8, 6);
        }
        const uint64_t free_pages = stats_of(w.pool).free_pages;
        begin(&w, PKV_PREDICT_SEQUENTIAL, 6, false);
        fault_at(w.tier, 1003, 1, fault_hold, 0);
        submit(w.session, table, 0);
        eventually(session_stats(w.session).good_loads == 5);
        assert_ok(pkv_prefetch_close(w.session, NULL));
        assert_int_equal(stats_of(w.pool).free_pages, free_pages);
        faulty_let_go(w.tier);
        assert_ok(pkv_table_restore(table, 0, UINT64_MAX, ten_seconds, NULL));
        check_rows(table, 0, 24, 1);
        end_table(table);
        begin(&w, PKV_PREDICT_SEQUENTIAL, 6, false);
        end_world(&w);
    }
}

static void positions_and_tables_are_checked(void **state) {
    (void)state;
    world w = make_world(32), other = {NULL, make_pool(8, 4), NULL};
    pkv_table *table = spilled_sequence(w.pool, w.tier, 1, 8, 6), *fresh = NULL;
    begin(&w, PKV_PREDICT_SEQUENTIAL, 6, false);
    assert_status(pkv_prefetch_submit(w.session, table, 33, NULL), PKV_ERR_INVALID);
    assert_int_equal(submit(w.session, table, 32), 0);
    assert_ok(pkv_table_create(w.pool, &fresh));
    assert_status(pkv_prefetch_submit(w.session, fresh, 0, NULL), PKV_ERR_STATE);
    assert_status(pkv_prefetch_require(w.session, fresh, 0, 1, 0, NULL), PKV_ERR_STATE);
    end_table(fresh);
    assert_status(pkv_prefetch_submit(w.session, fresh, 0, NULL), PKV_ERR_HANDLE);
    assert_status(pkv_prefetch_submit(NULL, table, 0, NULL), PKV_ERR_HANDLE);
    assert_ok(pkv_table_create(other.pool, &fresh));
    assert_status(pkv_prefetch_submit(w.session, fresh, 0, NULL), PKV_ERR_INVALID);
    assert_status(pkv_prefetch_require(w.session, fresh, 0, 1, 0, NULL), PKV_ERR_INVALID);
    assert_status(pkv_prefetch_hint(w.session, fresh, 0, NULL), PKV_ERR_INVALID);
    end_table(fresh);
    end_pool(other.pool);
    end_table(table);
    end_world(&w);
}

/* Blocks and steps of one session: each has pages of its own. */
static void blocks_may_be_required_between_and_inside_steps(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(200);
    const pkv_group_options group = layers_group(32, 3);
    pkv_pool *pool = pool_of_groups(&group, 1, tier);
    const uint32_t tag = 3;
    pkv_table *table = long_sequence(pool, 1, 60, 8, tag);
    pkv_prefetch *session = open_session(pool, NULL);
    for (uint64_t round = 0; round < 3; ++round) {
        submit(session, table, 16 * round);
        check_step(session, 3, 1, &table, &tag);
        require(session, table, 4 * round, 2);
        check_step(session, 3, 1, &table, &tag);
        assert_ok(pkv_prefetch_step_begin(session, 1, &table, NULL, NULL));
        for (uint32_t layer = 0; layer < 3; ++layer) {
            uint64_t next = 0, rows = 0;
            const uint64_t tokens = 60;
            pkv_layer_view view = PKV_LAYER_VIEW_INIT;
            do {
                assert_ok(pkv_prefetch_layer_acquire(session, layer, ten_seconds, NULL, &view));
                rows += check_view(&view, &tag, &tokens, &next);
                assert_ok(pkv_prefetch_layer_release(session, layer, NULL));
                require(session, table, 4 * round + layer, 1);
            } while (!view.last);
            assert_int_equal(rows, tokens);
        }
        assert_ok(pkv_prefetch_step_end(session, NULL));
        assert_ok(pkv_table_spill(table, 4 * round, 2, NULL, NULL));
        check_session(session);
    }
    assert_ok(pkv_prefetch_close(session, NULL));
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_that_was_loaded_ahead_costs_no_wait),
        cmocka_unit_test(a_block_that_is_on_its_way_is_waited_for),
        cmocka_unit_test(a_block_that_nobody_predicted_is_loaded_on_demand),
        cmocka_unit_test(resident_blocks_are_counted_as_such),
        cmocka_unit_test(restored_blocks_are_published),
        cmocka_unit_test(a_last_block_that_is_half_full_comes_back_and_goes_on),
        cmocka_unit_test(sequential_prediction_loads_from_the_position_on),
        cmocka_unit_test(full_prediction_loads_everything),
        cmocka_unit_test(hinted_prediction_loads_the_highest_scores),
        cmocka_unit_test(new_scores_take_the_place_of_old_ones),
        cmocka_unit_test(loaded_blocks_take_no_more_pages_than_they_may),
        cmocka_unit_test(loading_stops_without_an_error_where_the_pages_of_the_pool_end),
        cmocka_unit_test(a_prediction_that_moves_on_drops_what_has_not_begun),
        cmocka_unit_test(what_was_predicted_in_vain_makes_room_for_what_is_predicted_now),
        cmocka_unit_test(submitting_again_loads_nothing_twice),
        cmocka_unit_test(blocks_of_two_tables_take_turns),
        cmocka_unit_test(demand_overtakes_prediction),
        cmocka_unit_test(a_predicted_block_that_is_required_overtakes_the_others),
        cmocka_unit_test(two_tables_that_require_the_same_prefix_load_it_once),
        cmocka_unit_test(a_table_may_go_while_another_one_waits_for_its_blocks),
        cmocka_unit_test(a_block_comes_from_another_tier_when_the_first_fails),
        cmocka_unit_test(images_that_lie_in_memory_are_taken_from_there),
        cmocka_unit_test(a_block_of_several_groups_is_one_block),
        cmocka_unit_test(a_predicted_block_with_a_wrong_checksum_is_lost),
        cmocka_unit_test(case_J20_a_failed_load_leaves_a_valid_prefix),
        cmocka_unit_test(a_load_that_failed_ahead_of_time_is_tried_again),
        cmocka_unit_test(a_require_that_ran_out_of_time_may_be_repeated),
        cmocka_unit_test(what_has_come_before_the_time_is_over_stays),
        cmocka_unit_test(a_load_that_takes_too_long_may_come_later),
        cmocka_unit_test(without_pages_nothing_changes),
        cmocka_unit_test(pages_that_predictions_hold_are_given_up_for_what_is_required),
        cmocka_unit_test(a_block_that_its_table_restored_itself_was_loaded_in_vain),
        cmocka_unit_test(a_late_and_damaged_load_does_not_reach_a_block_that_was_restored_meanwhile),
        cmocka_unit_test(a_table_may_be_cut_and_grow_again_while_its_blocks_are_loaded),
        cmocka_unit_test(a_block_that_is_spilled_again_is_loaded_again),
        cmocka_unit_test(a_cleared_table_takes_nothing_of_its_former_sequence),
        cmocka_unit_test(a_session_that_is_off_loads_on_demand_only),
        cmocka_unit_test(a_cancel_drops_what_was_loaded_ahead),
        cmocka_unit_test(a_session_may_be_closed_while_blocks_are_loaded),
        cmocka_unit_test(positions_and_tables_are_checked),
        cmocka_unit_test(blocks_may_be_required_between_and_inside_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
