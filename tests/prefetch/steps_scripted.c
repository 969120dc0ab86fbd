/* SPDX-License-Identifier: Apache-2.0 */
/* Steps over a tier that answers as a test tells it to: what comes late, never, or wrong. Field cases
 * J11, J23. */
#include "prefetch/steps.h"

/* ---- scripted tiers ---- */

typedef struct {
    faulty *tier;
    pkv_pool *pool;
    pkv_prefetch *session;
    pkv_table *table;
} scripted;

enum { scripted_tag = 8, scripted_tokens = 22, scripted_absent = 4, slice_stride = 4096 };

/* 4 absent blocks of 6, and as many layers as a test wants. */
static scripted make_scripted(uint32_t num_layers, const pkv_prefetch_options *options) {
    scripted s = {watched_open(), NULL, NULL, NULL};
    const pkv_group_options group = layers_group(32, num_layers);
    s.pool = pool_of_groups(&group, 1, s.tier->tier);
    const pkv_prompt prompt = prompt_of(NULL, 0);
    s.table = admit(s.pool, &prompt, NULL);
    put_and_commit(s.pool, s.table, scripted_tokens, scripted_tag);
    spill_named(s.tier, s.table, 0, 0, scripted_absent);
    assert_int_equal(info_of(s.table).absent_blocks, scripted_absent);
    forget_loads(s.tier);
    const pkv_prefetch_options defaults = PKV_PREFETCH_OPTIONS_INIT;
    pkv_prefetch_options with_room = options != NULL ? *options : defaults;
    const uint64_t staging = 16; /* each layer fits a buffer */
    with_room.staging_pages = &staging;
    s.session = open_session(s.pool, &with_room);
    return s;
}

static void end_scripted(scripted *s) {
    check_session(s->session);
    assert_ok(pkv_prefetch_close(s->session, NULL));
    end_table(s->table);
    end_pool(s->pool);
    faulty_end(s->tier);
}

static pkv_prefetch_options with_buffers(uint32_t num_buffers, uint32_t flags) {
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.num_buffers = num_buffers;
    options.flags = flags;
    return options;
}

static void case_J11_a_late_layer_is_waited_for(void **state) {
    (void)state;
    const uint32_t flags[] = {0, PKV_PREFETCH_OFF};
    for (int i = 0; i < 2; ++i) {
        const pkv_prefetch_options options = with_buffers(2, flags[i]);
        scripted s = make_scripted(3, &options);
        hold_offset(s.tier, slice_stride * 2); /* header, layer 0, layer 1 */
        assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
        pkv_layer_view view = acquired(s.session, 0);
        assert_int_equal(check_of_one(&view, scripted_tag, scripted_tokens), scripted_tokens);
        release(s.session, 0);
        later l;
        begin_later(&l, s.tier, 100);
        view = acquired(s.session, 1);
        assert_int_equal(check_of_one(&view, scripted_tag, scripted_tokens), scripted_tokens);
        assert_true(end_later(&l));
        assert_true(view.waited_ns > 0);
        release(s.session, 1);
        const uint64_t tokens = scripted_tokens;
        const uint32_t tag = scripted_tag;
        check_layers(s.session, 2, 3, 1, &tag, &tokens);
        assert_ok(pkv_prefetch_step_end(s.session, NULL));
        assert_true(session_stats(s.session).exposed_ns > 0);
        end_scripted(&s);
    }
}

static uint64_t loads_of_layer(faulty *f, uint32_t layer) {
    uint64_t count = 0;
    const uint64_t loads = num_loads(f);
    for (uint64_t i = 0; i < loads; ++i) {
        const watched_load load = load_at(f, i);
        const uint64_t slice = slice_stride * (layer + UINT64_C(1));
        count += load.offset <= slice && slice < load.offset + load.size;
    }
    return count;
}

static void case_J23_a_layer_waits_for_the_release_of_its_own_buffer_only(void **state) {
    (void)state;
    const pkv_prefetch_options options = with_buffers(2, 0);
    scripted s = make_scripted(3, &options);
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    /* Rounds 0 and 1 wait for no release. */
    const pkv_layer_view first = acquired(s.session, 0), second = acquired(s.session, 1);
    eventually(is_quiet(s.session));
    assert_int_equal(loads_of_layer(s.tier, 0), scripted_absent);
    assert_int_equal(loads_of_layer(s.tier, 1), scripted_absent);
    assert_int_equal(loads_of_layer(s.tier, 2), 0);
    assert_int_equal(check_of_one(&first, scripted_tag, scripted_tokens), scripted_tokens);
    release(s.session, 0);
    /* Round 2 waits for that of round 0, and not for that of round 1. */
    const pkv_layer_view third = acquired(s.session, 2);
    assert_int_equal(third.buffer, first.buffer);
    eventually(is_quiet(s.session));
    assert_int_equal(loads_of_layer(s.tier, 2), scripted_absent);
    assert_int_equal(check_of_one(&second, scripted_tag, scripted_tokens), scripted_tokens);
    assert_int_equal(check_of_one(&third, scripted_tag, scripted_tokens), scripted_tokens);
    assert_int_equal(loads_of_layer(s.tier, 0), scripted_absent); /* the next step's has no buffer yet */
    release(s.session, 1);
    eventually(loads_of_layer(s.tier, 0) == 2 * scripted_absent);
    release(s.session, 2);
    assert_ok(pkv_prefetch_step_end(s.session, NULL));
    end_scripted(&s);
}

static void without_prefetching_everything_is_loaded_on_demand(void **state) {
    (void)state;
    const pkv_prefetch_options options = with_buffers(4, PKV_PREFETCH_OFF);
    scripted s = make_scripted(3, &options);
    const uint32_t tag = scripted_tag;
    const uint64_t tokens = scripted_tokens;
    for (uint64_t step = 0; step < 2; ++step) {
        assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
        for (uint32_t layer = 0; layer < 3; ++layer) {
            assert_true(is_quiet(s.session));
            assert_int_equal(session_stats(s.session).loads, (3 * step + layer) * scripted_absent);
            check_layers(s.session, layer, layer + 1, 1, &tag, &tokens);
        }
        assert_ok(pkv_prefetch_step_end(s.session, NULL));
    }
    const pkv_prefetch_stats stats = session_stats(s.session);
    assert_int_equal(stats.needed, 2 * 3 * scripted_absent);
    assert_int_equal(stats.on_demand, stats.needed);
    assert_int_equal(stats.masked_ns, 0);
    assert_int_equal(stats.wasted_bytes, 0);
    assert_int_equal(stats.depth, 0);
    for (uint64_t i = 0; i < num_loads(s.tier); ++i) assert_int_equal(load_at(s.tier, i).urgent, 1);
    end_scripted(&s);
}

static void what_was_loaded_ahead_is_on_time(void **state) {
    (void)state;
    scripted s = make_scripted(3, NULL);
    const uint32_t tag = scripted_tag;
    const uint64_t tokens = scripted_tokens;
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    for (uint32_t layer = 0; layer < 3; ++layer) {
        eventually(session_stats(s.session).good_loads >= (layer + 1) * scripted_absent &&
                   session_stats(s.session).loads_in_flight == 0);
        check_layers(s.session, layer, layer + 1, 1, &tag, &tokens);
    }
    assert_ok(pkv_prefetch_step_end(s.session, NULL));
    const pkv_prefetch_stats stats = session_stats(s.session);
    assert_int_equal(stats.on_time, stats.needed);
    assert_int_equal(stats.exposed_ns, 0);
    assert_int_equal(stats.requests, 1);
    assert_int_equal(stats.ready_requests, 1);
    assert_int_equal(load_at(s.tier, 0).urgent, 0);
    end_scripted(&s);
}

static void the_first_layers_of_the_next_step_are_loaded_after_the_last_one(void **state) {
    (void)state;
    scripted s = make_scripted(2, NULL);
    const uint32_t tag = scripted_tag;
    check_step(s.session, 2, 1, &s.table, &tag);
    eventually(loads_of_layer(s.tier, 0) >= 2 * scripted_absent && session_stats(s.session).loads_in_flight == 0);
    assert_true(session_stats(s.session).ready_bytes > 0);
    const uint64_t on_time = session_stats(s.session).on_time;
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    const pkv_layer_view view = acquired(s.session, 0);
    assert_int_equal(view.waited_ns, 0);
    assert_int_equal(session_stats(s.session).on_time, on_time + scripted_absent);
    release(s.session, 0);
    assert_ok(pkv_prefetch_step_end(s.session, NULL));
    end_scripted(&s);
}

static void an_acquire_that_ran_out_of_time_may_be_repeated(void **state) {
    (void)state;
    scripted s = make_scripted(2, NULL);
    faulty_always(s.tier, PKV_TIER_LOAD, fault_hold, 0);
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    assert_status(pkv_prefetch_layer_acquire(s.session, 0, 0, NULL, &view), PKV_ERR_TIMEOUT);
    assert_status(pkv_prefetch_layer_acquire(s.session, 0, 1000000, NULL, &view), PKV_ERR_TIMEOUT);
    assert_null(view.slices);
    assert_status(pkv_prefetch_layer_release(s.session, 0, NULL), PKV_ERR_STATE);
    let_all_go(s.tier);
    view = acquired(s.session, 0);
    assert_int_equal(check_of_one(&view, scripted_tag, scripted_tokens), scripted_tokens);
    release(s.session, 0);
    const uint32_t tag = scripted_tag;
    const uint64_t tokens = scripted_tokens;
    check_layers(s.session, 1, 2, 1, &tag, &tokens);
    assert_ok(pkv_prefetch_step_end(s.session, NULL));
    assert_int_equal(session_stats(s.session).needed, 2 * scripted_absent);
    end_scripted(&s);
}

static void a_step_may_end_while_loads_are_under_way(void **state) {
    (void)state;
    scripted s = make_scripted(2, NULL);
    const uint32_t tag = scripted_tag;
    faulty_always(s.tier, PKV_TIER_LOAD, fault_hold, 0);
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    assert_status(pkv_prefetch_layer_acquire(s.session, 0, 1000000, NULL, &view), PKV_ERR_TIMEOUT);
    assert_ok(pkv_prefetch_step_end(s.session, NULL));
    let_all_go(s.tier);
    check_step(s.session, 2, 1, &s.table, &tag);
    end_scripted(&s);
}

/* One step in which the first load of block 2 goes wrong. */
static void one_bad_load(scripted *s, fault what, int64_t value, pkv_table *other, pkv_status expected) {
    fault_at(s->tier, 2, 1, what, value);
    pkv_table *tables[] = {s->table, other};
    const uint32_t num_tables = other != NULL ? 2 : 1;
    pkv_status statuses[2] = {1, 1};
    assert_ok(pkv_prefetch_step_begin(s->session, num_tables, tables, NULL, statuses));
    for (uint32_t t = 0; t < num_tables; ++t) assert_int_equal(statuses[t], PKV_OK);
    const uint32_t tags[] = {scripted_tag, 3};
    const uint64_t tokens[] = {scripted_tokens, 20};
    for (uint32_t layer = 0; layer < 2; ++layer) {
        const pkv_layer_view view = acquired(s->session, layer);
        const uint64_t rows = check_whole(&view, tags, tokens);
        if (layer == 0) assert_int_equal(view.slices[2], -1);
        const uint64_t all = tokens[0] + (other != NULL ? tokens[1] : 0);
        assert_int_equal(rows, all - (view.slices[2] == -1 ? 4 : 0));
        release(s->session, layer);
    }
    assert_status(pkv_prefetch_step_end(s->session, statuses), expected);
    assert_int_equal(statuses[0], expected);
    if (other != NULL) assert_int_equal(statuses[1], PKV_OK);
    check_session(s->session);
}

static void a_slice_with_a_wrong_checksum_loses_its_table_and_no_other(void **state) {
    (void)state;
    const pkv_prefetch_options options = with_buffers(4, PKV_PREFETCH_OFF);
    const int64_t bytes[] = {4100, 100}; /* of the slice, of the header */
    for (int i = 0; i < 2; ++i) {
        scripted s = make_scripted(2, &options);
        pkv_table *other = long_sequence(s.pool, 1000, 20, 4, 3);
        one_bad_load(&s, fault_flip, bytes[i], other, PKV_ERR_LOST);
        assert_int_equal(info_of(s.table).valid, 2 * tiered_page_tokens);
        assert_int_equal(session_stats(s.session).checksum_failures, 1);
        assert_int_equal(stats_of(s.pool).lost_blocks, 1);
        /* It is out of the following steps, until it is cut. */
        pkv_table *tables[] = {s.table, other};
        pkv_status statuses[2];
        const uint32_t tags[] = {scripted_tag, 3};
        uint64_t tokens[] = {0, 20};
        assert_ok(pkv_prefetch_step_begin(s.session, 2, tables, NULL, statuses));
        assert_int_equal(statuses[0], PKV_ERR_LOST);
        assert_int_equal(statuses[1], PKV_OK);
        check_layers(s.session, 0, 2, 2, tags, tokens);
        assert_status(pkv_prefetch_step_end(s.session, statuses), PKV_ERR_LOST);
        assert_ok(pkv_table_truncate(s.table, 2 * tiered_page_tokens, NULL));
        check_step(s.session, 2, 2, tables, tags);
        end_table(other);
        end_scripted(&s);
    }
}

static void a_slice_that_cannot_be_read_loses_its_table(void **state) {
    (void)state;
    const pkv_prefetch_options options = with_buffers(4, PKV_PREFETCH_OFF);
    const struct {
        fault what;
        int64_t value;
    } faults[] = {{fault_status, PKV_ERR_IO},
                  {fault_status, PKV_ERR_NOT_FOUND},
                  {fault_short, 4096},
                  {fault_refuse, PKV_ERR_IO},
                  {fault_other, 0}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; ++i) {
        scripted s = make_scripted(2, &options);
        one_bad_load(&s, faults[i].what, faults[i].value, NULL, PKV_ERR_LOST);
        assert_int_equal(info_of(s.table).valid, 2 * tiered_page_tokens);
        end_scripted(&s);
    }
}

static void a_load_that_takes_too_long_fails_and_may_come_later(void **state) {
    (void)state;
    pkv_prefetch_options options = with_buffers(4, PKV_PREFETCH_OFF);
    options.load_timeout_ns = 300000000;
    scripted s = make_scripted(2, &options);
    one_bad_load(&s, fault_hold, 0, NULL, PKV_ERR_TIMEOUT);
    assert_int_equal(info_of(s.table).valid, scripted_tokens);
    faulty_let_go(s.tier);
    const uint32_t tag = scripted_tag;
    check_step(s.session, 2, 1, &s.table, &tag);
    end_scripted(&s);
}

static void a_load_that_failed_ahead_of_time_is_tried_again(void **state) {
    (void)state;
    scripted s = make_scripted(2, NULL);
    faulty_script(s.tier, PKV_TIER_LOAD, 1, 2, fault_status, PKV_ERR_BUSY);
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    eventually(session_stats(s.session).failed_loads == 2); /* both ahead of time: the tries on demand shall be good */
    const uint32_t tag = scripted_tag;
    const uint64_t tokens = scripted_tokens;
    check_layers(s.session, 0, 2, 1, &tag, &tokens);
    assert_ok(pkv_prefetch_step_end(s.session, NULL));
    assert_int_equal(session_stats(s.session).failed, 0);
    end_scripted(&s);
}

/* Another pool, with another order in its pages, stores the images anew while a session knows their old headers. */
static void images_that_are_stored_anew_in_another_order_are_read_anew(void **state) {
    (void)state;
    enum { layers = 8, tokens = 4 * tiered_page_tokens };
    for (int copies = 0; copies < 2; ++copies) {
        faulty *f = copies ? faulty_open() : NULL;
        pkv_tier *tier = copies ? f->tier : host_tier(400);
        pkv_group_options group = layers_group(24, layers);
        group.layout = PKV_LAYOUT_NHD;
        pkv_pool *pool = pool_of_groups(&group, 1, tier);
        group.layout = PKV_LAYOUT_HND;
        pkv_pool *other = pool_of_groups(&group, 1, tier);
        const uint32_t tag = 7;
        const uint64_t count = tokens;
        put_below(pool, 1, tokens, tag);
        pkv_table *table = admit_again(pool, 1, tokens, NULL);
        const pkv_prefetch_options options = with_buffers(2, 0);
        pkv_prefetch *session = open_session(pool, &options);
        assert_ok(pkv_prefetch_step_begin(session, 1, &table, NULL, NULL));
        check_layers(session, 0, 1, 1, &tag, &count);
        eventually(is_quiet(session));
        assert_ok(pkv_pool_clear(pool, NULL, NULL));
        put_below(other, 1, tokens, tag);
        check_layers(session, 1, layers, 1, &tag, &count);
        assert_ok(pkv_prefetch_step_end(session, NULL));
        assert_int_equal(session_stats(session).failed, 0);
        assert_int_equal(session_stats(session).checksum_failures, 0);
        check_session(session);
        assert_ok(pkv_prefetch_close(session, NULL));
        end_table(table);
        end_pool(other);
        end_pool(pool);
        if (copies)
            faulty_end(f);
        else
            assert_ok(pkv_tier_close(tier));
    }
}

static void a_cancel_in_a_step_leaves_acquired_views_alone(void **state) {
    (void)state;
    scripted s = make_scripted(4, NULL);
    const uint32_t tag = scripted_tag;
    const uint64_t tokens = scripted_tokens;
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    const pkv_layer_view view = acquired(s.session, 0);
    eventually(session_stats(s.session).ready_bytes > 0);
    assert_ok(pkv_prefetch_cancel(s.session));
    assert_int_equal(session_stats(s.session).ready_bytes, 0);
    assert_true(session_stats(s.session).wasted_bytes > 0);
    assert_int_equal(check_of_one(&view, scripted_tag, scripted_tokens), scripted_tokens);
    release(s.session, 0);
    check_layers(s.session, 1, 2, 1, &tag, &tokens);
    assert_ok(pkv_prefetch_cancel(s.session));
    check_layers(s.session, 2, 4, 1, &tag, &tokens);
    assert_ok(pkv_prefetch_step_end(s.session, NULL));
    assert_ok(pkv_prefetch_cancel(s.session));
    for (int step = 0; step < 2; ++step) check_step(s.session, 4, 1, &s.table, &tag);
    end_scripted(&s);
}

static void a_cancel_ends_loads_that_are_held(void **state) {
    (void)state;
    scripted s = make_scripted(2, NULL);
    const uint32_t tag = scripted_tag;
    faulty_always(s.tier, PKV_TIER_LOAD, fault_hold, 0);
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    eventually(faulty_held(s.tier) > 0);
    assert_ok(pkv_prefetch_cancel(s.session));
    assert_int_equal(session_stats(s.session).loads_in_flight, 0);
    assert_int_equal(session_stats(s.session).bytes_in_flight, 0);
    assert_true(session_stats(s.session).cancelled_loads > 0);
    faulty_behave(s.tier);
    const uint64_t tokens = scripted_tokens;
    check_layers(s.session, 0, 2, 1, &tag, &tokens); /* the late answers come afterwards, and harm nobody */
    faulty_let_go(s.tier);
    assert_ok(pkv_prefetch_step_end(s.session, NULL));
    for (int step = 0; step < 2; ++step) check_step(s.session, 2, 1, &s.table, &tag);
    end_scripted(&s);
}

static void a_session_may_be_closed_in_a_step_with_loads_under_way(void **state) {
    (void)state;
    scripted s = make_scripted(3, NULL);
    const uint64_t free_before = stats_of(s.pool).free_pages + session_stats(s.session).staging_pages;
    hold_offset(s.tier, slice_stride * 3);
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    (void)acquired(s.session, 0);
    eventually(faulty_held(s.tier) > 0);
    assert_ok(pkv_prefetch_close(s.session, NULL));
    assert_int_equal(stats_of(s.pool).free_pages, free_before);
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    assert_status(pkv_prefetch_layer_acquire(s.session, 1, one_second, NULL, &view), PKV_ERR_HANDLE);
    let_all_go(s.tier);
    s.session = open_session(s.pool, NULL);
    const uint32_t tag = scripted_tag;
    check_step(s.session, 3, 1, &s.table, &tag);
    end_scripted(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_J11_a_late_layer_is_waited_for),
        cmocka_unit_test(case_J23_a_layer_waits_for_the_release_of_its_own_buffer_only),
        cmocka_unit_test(without_prefetching_everything_is_loaded_on_demand),
        cmocka_unit_test(what_was_loaded_ahead_is_on_time),
        cmocka_unit_test(the_first_layers_of_the_next_step_are_loaded_after_the_last_one),
        cmocka_unit_test(an_acquire_that_ran_out_of_time_may_be_repeated),
        cmocka_unit_test(a_step_may_end_while_loads_are_under_way),
        cmocka_unit_test(a_slice_with_a_wrong_checksum_loses_its_table_and_no_other),
        cmocka_unit_test(a_slice_that_cannot_be_read_loses_its_table),
        cmocka_unit_test(a_load_that_takes_too_long_fails_and_may_come_later),
        cmocka_unit_test(a_load_that_failed_ahead_of_time_is_tried_again),
        cmocka_unit_test(images_that_are_stored_anew_in_another_order_are_read_anew),
        cmocka_unit_test(a_cancel_in_a_step_leaves_acquired_views_alone),
        cmocka_unit_test(a_cancel_ends_loads_that_are_held),
        cmocka_unit_test(a_session_may_be_closed_in_a_step_with_loads_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
