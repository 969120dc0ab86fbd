/* SPDX-License-Identifier: Apache-2.0 */
/* Steps without much to do, and what sessions and views refuse. */
#include "prefetch/steps.h"

/* ---- tables that have no part in a step ---- */

static void a_table_before_its_admission_has_no_entries(void **state) {
    (void)state;
    world w = world_of_layers(32, 2);
    pkv_table *tables[2] = {NULL, long_sequence(w.pool, 1, 30, 4, 2)};
    assert_ok(pkv_table_create(w.pool, &tables[0]));
    w.session = open_session(w.pool, NULL);
    pkv_status statuses[2] = {1, 1};
    const uint64_t asked[] = {0, 30};
    const uint32_t tags[] = {1, 2};
    assert_ok(pkv_prefetch_step_begin(w.session, 2, tables, asked, statuses));
    assert_int_equal(statuses[0], PKV_ERR_STATE);
    assert_int_equal(statuses[1], PKV_OK);
    check_layers(w.session, 0, 2, 2, tags, asked);
    assert_status(pkv_prefetch_step_end(w.session, statuses), PKV_ERR_STATE);
    assert_int_equal(statuses[0], PKV_ERR_STATE);
    assert_int_equal(statuses[1], PKV_OK);
    for (int t = 0; t < 2; ++t) end_table(tables[t]);
    end_world(&w);
}

static void a_step_without_tables_has_empty_views(void **state) {
    (void)state;
    world w = world_of_layers(32, 2);
    w.session = open_session(w.pool, NULL);
    for (int step = 0; step < 2; ++step) {
        assert_ok(pkv_prefetch_step_begin(w.session, 0, NULL, NULL, NULL));
        for (uint32_t layer = 0; layer < 2; ++layer) {
            const pkv_layer_view view = acquired(w.session, layer);
            assert_int_equal(view.num_slices, 0);
            assert_int_equal(view.indptr[0], 0);
            assert_int_equal(view.last, 1);
            release(w.session, layer);
        }
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
    }
    end_world(&w);
}

static void a_resident_sequence_is_read_where_it_is(void **state) {
    (void)state;
    world w = world_of_layers(32, 3);
    const uint32_t tag = 4;
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(w.pool, &prompt, NULL);
    put_and_commit(w.pool, table, 30, tag);
    w.session = open_session(w.pool, NULL);
    assert_int_equal(check_step(w.session, 3, 1, &table, &tag), 3);
    const pkv_prefetch_stats stats = session_stats(w.session);
    assert_int_equal(stats.needed + stats.loads + stats.requests, 0);
    assert_int_equal(stats.ranges, 3);
    end_table(table);
    end_world(&w);
}

static void after_its_pool_a_session_ends_its_step_and_is_closed(void **state) {
    (void)state;
    world w = world_of_layers(32, 2);
    pkv_table *table = long_sequence(w.pool, 1, 30, 4, 2);
    w.session = open_session(w.pool, NULL);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
    (void)acquired(w.session, 0);
    release(w.session, 0);
    assert_ok(pkv_pool_destroy(w.pool));
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    assert_status(pkv_prefetch_layer_acquire(w.session, 1, one_second, NULL, &view), PKV_ERR_CLOSED);
    (void)pkv_prefetch_step_end(w.session, NULL);
    assert_status(pkv_prefetch_step_end(w.session, NULL), PKV_ERR_STATE);
    assert_status(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL), PKV_ERR_CLOSED);
    assert_ok(pkv_prefetch_close(w.session, NULL));
    end_table(table);
    assert_ok(pkv_tier_close(w.tier));
}

/* ---- options ---- */

static void default_options_do_for_a_tiny_pool(void **state) {
    (void)state;
    world w = world_of_layers(8, 2);
    const uint32_t tag = 4;
    pkv_table *table = long_sequence(w.pool, 1, 50, 4, tag);
    w.session = open_session(w.pool, NULL);
    assert_int_equal(session_stats(w.session).staging_pages, 4); /* one for each buffer */
    assert_int_equal(session_stats(w.session).buffer_slices, 2);
    for (int step = 0; step < 3; ++step) check_step(w.session, 2, 1, &table, &tag);
    end_table(table);
    end_world(&w);
}

static void refuse(pkv_pool *pool, const pkv_prefetch_options *options, pkv_status expected) {
    pkv_prefetch *session = NULL;
    const uint64_t free_pages = stats_of(pool).free_pages;
    assert_status(pkv_prefetch_open(pool, options, &session), expected);
    assert_null(session);
    assert_int_equal(stats_of(pool).free_pages, free_pages);
}

static void bad_options_are_refused(void **state) {
    (void)state;
    pkv_group_options groups[2] = {layers_group(16, 3), layers_group(8, 2)};
    world w = make_world(groups, 2);
    const pkv_prefetch_options good = PKV_PREFETCH_OPTIONS_INIT;
    pkv_prefetch_options o = good;
    o.policy = 3;
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o.policy = -1;
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o = good;
    o.num_buffers = 1;
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o.num_buffers = PKV_PREFETCH_MAX_BUFFERS + 1;
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o = good;
    o.flags = 4;
    refuse(w.pool, &o, PKV_ERR_UNSUPPORTED);
    o = good;
    o.reserved = 1;
    refuse(w.pool, &o, PKV_ERR_UNSUPPORTED);
    o = good;
    o.max_tables = 65537;
    refuse(w.pool, &o, PKV_ERR_LIMIT);
    o = good;
    const pkv_layer_ref twice[] = {{0, 1}, {1, 1}, {0, 1}}, no_group[] = {{2, 0}}, no_layer[] = {{0, 0}, {1, 2}};
    o.layers = twice;
    o.num_layers = 3;
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o.layers = no_group;
    o.num_layers = 1;
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o.layers = no_layer;
    o.num_layers = 2;
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o.layers = NULL;
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o = good;
    const uint64_t too_many[] = {4, 9}, too_few[] = {1, 4}, all[] = {16, 8};
    o.staging_pages = too_many;
    refuse(w.pool, &o, PKV_ERR_NO_PAGES);
    o.staging_pages = too_few; /* 3 slices for 4 buffers */
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o.staging_pages = all;
    pkv_page held;
    assert_ok(pkv_pool_alloc(w.pool, 1, 1, &held));
    refuse(w.pool, &o, PKV_ERR_NO_PAGES);
    assert_ok(pkv_pool_release(w.pool, 1, 1, &held, NULL, NULL));
    w.session = open_session(w.pool, &o);
    assert_int_equal(session_stats(w.session).staging_pages, 24);
    assert_int_equal(group_stats(w.pool, 1).free_pages, 0);
    pkv_prefetch *second = NULL;
    assert_status(pkv_prefetch_open(w.pool, NULL, &second), PKV_ERR_NO_PAGES);
    assert_status(pkv_prefetch_open(w.pool, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_prefetch_open(NULL, NULL, &second), PKV_ERR_HANDLE);
    end_world(&w);
}

static void an_unknown_field_that_is_not_zero_is_refused(void **state) {
    (void)state;
    world w = world_of_layers(16, 2);
    struct {
        pkv_prefetch_options known;
        uint64_t unknown;
    } longer;
    memset(&longer, 0, sizeof longer);
    longer.known.struct_size = sizeof longer;
    longer.unknown = 1;
    refuse(w.pool, &longer.known, PKV_ERR_UNSUPPORTED);
    longer.unknown = 0;
    w.session = open_session(w.pool, &longer.known);
    end_world(&w);
}

static void a_pool_without_tiers_has_no_sessions(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    refuse(pool, NULL, PKV_ERR_STATE);
    end_pool(pool);
}

static void groups_without_a_layer_in_the_order_give_no_staging_pages(void **state) {
    (void)state;
    pkv_group_options groups[2] = {layers_group(16, 2), layers_group(16, 2)};
    world w = make_world(groups, 2);
    const pkv_layer_ref order = {1, 1};
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.layers = &order;
    options.num_layers = 1;
    w.session = open_session(w.pool, &options);
    assert_int_equal(group_stats(w.pool, 0).free_pages, 16);
    assert_int_equal(group_stats(w.pool, 1).free_pages, 12);
    const uint32_t tag = 1;
    pkv_table *table = long_sequence(w.pool, 1, 30, 4, tag);
    const uint64_t tokens = 30;
    for (int step = 0; step < 2; ++step) {
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
        check_layers(w.session, 0, 1, 1, &tag, &tokens);
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
    }
    end_table(table);
    end_world(&w);
}

static void a_view_of_the_wrong_kind_is_refused(void **state) {
    (void)state;
    world w = world_of_layers(16, 2);
    pkv_table *table = long_sequence(w.pool, 1, 20, 4, 1);
    const uint64_t staging = 8;
    w.session = open_with_buffers(w.pool, 4, 0, &staging);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
    assert_status(pkv_prefetch_layer_acquire(w.session, 0, one_second, NULL, NULL), PKV_ERR_INVALID);
    uint64_t counter = 1;
    pkv_sync sync = PKV_SYNC_INIT;
    sync.kind = PKV_SYNC_HOST_COUNTER;
    sync.handle = &counter;
    sync.value = 1;
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    if (!runs_on_device()) /* there a view comes after what its sync names */
        assert_status(pkv_prefetch_layer_acquire(w.session, 0, one_second, &sync, &view), PKV_ERR_UNSUPPORTED);
    view = acquired(w.session, 0);
    sync.value = 2; /* whoever reads the view has not come so far: it stays acquired */
    sync.timeout_ns = 1000000;
    assert_status(pkv_prefetch_layer_release(w.session, 0, &sync), PKV_ERR_TIMEOUT);
    assert_status(pkv_prefetch_step_end(w.session, NULL), PKV_ERR_STATE);
    assert_int_equal(check_of_one(&view, 1, 20), 20);
    counter = 2;
    assert_ok(pkv_prefetch_layer_release(w.session, 0, &sync));
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    sync.value = 3;
    assert_status(pkv_prefetch_close(w.session, &sync), PKV_ERR_TIMEOUT);
    const uint32_t tag = 1;
    check_step(w.session, 2, 1, &table, &tag);
    end_table(table);
    end_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_before_its_admission_has_no_entries),
        cmocka_unit_test(a_step_without_tables_has_empty_views),
        cmocka_unit_test(a_resident_sequence_is_read_where_it_is),
        cmocka_unit_test(after_its_pool_a_session_ends_its_step_and_is_closed),
        cmocka_unit_test(default_options_do_for_a_tiny_pool),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(an_unknown_field_that_is_not_zero_is_refused),
        cmocka_unit_test(a_pool_without_tiers_has_no_sessions),
        cmocka_unit_test(groups_without_a_layer_in_the_order_give_no_staging_pages),
        cmocka_unit_test(a_view_of_the_wrong_kind_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
