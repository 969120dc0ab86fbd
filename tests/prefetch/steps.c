/* SPDX-License-Identifier: Apache-2.0 */
/* Steps over the layers of sequences that lie in tiers: groups, tiers, ranges, and tables that change. */
#include "prefetch/steps.h"
#include "tier/file_tier.h"

/* ---- several groups ---- */

static void groups_of_different_shapes_are_read_one_after_the_other(void **state) {
    (void)state;
    pkv_group_options groups[3] = {layers_group(16, 2), layers_group(24, 3), layers_group(16, 1)};
    groups[1].num_kv_heads = 3;
    groups[1].layout = PKV_LAYOUT_HND;
    groups[2].v_head_dim = 0;
    groups[2].dtype = PKV_DTYPE_F32;
    world w = make_world(groups, 3);
    read_all(&w, 6);
    end_world(&w);
}

static void blocks_that_a_window_has_dropped_are_minus_one(void **state) {
    (void)state;
    enum { tokens = 60, window = 10, sinks = 6 };
    pkv_group_options groups[2] = {layers_group(24, 2), window_group(24, window, sinks)};
    world w = make_world(groups, 2);
    const uint32_t tag = 3;
    const uint64_t all = tokens;
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(w.pool, &prompt, NULL);
    put_and_commit(w.pool, table, tokens, tag);
    assert_ok(pkv_table_window(table, NULL));
    assert_ok(pkv_table_spill(table, 0, 14, NULL, NULL));
    w.session = open_session(w.pool, NULL);
    for (int step = 0; step < 3; ++step) {
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
        for (uint32_t index = 0; index < 4; ++index) {
            uint64_t blocks = 0, next = 0;
            pkv_layer_view view;
            do {
                view = acquired(w.session, index);
                assert_int_equal(view.group, index / 2);
                (void)check_view(&view, &tag, &all, &next);
                for (uint64_t i = 0; i < view.num_slices; ++i, ++blocks) {
                    const bool dropped = index >= 2 && (blocks + 1) * 4 <= tokens - window && blocks * 4 >= sinks;
                    if ((view.slices[i] == -1) != dropped)
                        fail_msg("block %llu of group %u has %d", (unsigned long long)blocks, view.group,
                                 view.slices[i]);
                }
                release(w.session, index);
            } while (!view.last);
            assert_int_equal(blocks, 15);
        }
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
        check_session(w.session);
    }
    end_table(table);
    end_world(&w);
}

static void sinks_that_are_in_tiers_stay_when_the_window_moves_on(void **state) {
    (void)state;
    pkv_group_options groups[2] = {layers_group(24, 2), window_group(24, 10, 6)};
    world w = make_world(groups, 2);
    pkv_table *table = long_sequence(w.pool, 1, 60, 4, 3);
    assert_ok(pkv_table_window(table, NULL));
    int32_t where[3];
    assert_ok(pkv_table_residency(table, 1, 0, 3, where));
    assert_int_equal(where[0], PKV_BLOCK_TIER);
    assert_int_equal(where[1], PKV_BLOCK_TIER);
    assert_int_equal(where[2], PKV_BLOCK_DROPPED);
    assert_ok(pkv_table_restore(table, 0, 2, one_second, NULL));
    same_rows(w.pool, table, 1, 0, 8, 3, 0);
    end_table(table);
    end_world(&w);
}

/* ---- other tiers ---- */

static void a_sequence_in_a_file_is_read(void **state) {
    (void)state;
    const int32_t engines[] = {PKV_IO_AUTO, PKV_IO_THREADS};
    for (int i = 0; i < 2; ++i) {
        scratch s = begin_scratch();
        pkv_file_tier_options options = file_options(s.path);
        options.capacity_bytes = 64 * 20480;
        options.max_images = 64;
        options.engine = engines[i];
        world w = {open_with(&options), NULL, NULL};
        const pkv_group_options group = layers_group(16, 4);
        w.pool = pool_of_groups(&group, 1, w.tier);
        read_all(&w, 4);
        end_world(&w);
        wait_closed(s.path);
        end_scratch(&s);
    }
}

static void blocks_that_lie_in_two_tiers_are_read_from_both(void **state) {
    (void)state;
    pkv_tier *small = host_tier(9); /* 20480 bytes each: five images */
    faulty *f = faulty_open();
    const pkv_tier_attachment tiers[] = {attachment(small, PKV_TIER_WRITE_BACK),
                                         attachment(f->tier, PKV_TIER_WRITE_BACK)};
    const pkv_group_options group = layers_group(16, 4);
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = tiered_page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = tiers;
    options.num_tiers = 2;
    options.debug = PKV_DEBUG_POISON;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    const uint32_t tag = 4;
    pkv_table *table = long_sequence(pool, 1, 64, 4, tag);
    int32_t where[16];
    assert_ok(pkv_table_residency(table, 0, 0, 16, where));
    assert_int_equal(where[0], PKV_BLOCK_TIER);
    assert_int_equal(where[10], PKV_BLOCK_TIER + 1);
    pkv_prefetch *session = open_session(pool, NULL);
    for (int step = 0; step < 4; ++step) check_step(session, 4, 1, &table, &tag);
    assert_ok(pkv_prefetch_close(session, NULL));
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(small));
    faulty_end(f);
}

/* ---- ranges ---- */

static void a_layer_larger_than_a_buffer_comes_in_ranges_in_order(void **state) {
    (void)state;
    world w = world_of_layers(16, 4);
    const uint32_t tag = 9;
    pkv_table *table = long_sequence(w.pool, 1, 100, 4, tag); /* 24 absent blocks */
    const uint64_t staging[] = {3, 5, 8};
    for (int i = 0; i < 3; ++i) {
        w.session = open_with_buffers(w.pool, 2 + (uint32_t)i, 0, &staging[i]);
        const uint64_t capacity = session_stats(w.session).buffer_slices;
        assert_int_equal(capacity, staging[i] * 4 / (2 + (uint64_t)i));
        assert_int_equal(session_stats(w.session).staging_pages, staging[i]);
        for (int step = 0; step < 3; ++step)
            assert_int_equal(check_step(w.session, 4, 1, &table, &tag), 4 * ((24 + capacity - 1) / capacity));
        assert_ok(pkv_prefetch_close(w.session, NULL));
    }
    w.session = NULL;
    end_table(table);
    end_world(&w);
}

static void a_range_ends_inside_one_table_and_the_next_begins_there(void **state) {
    (void)state;
    world w = world_of_layers(32, 2);
    const uint32_t tags[] = {1, 2, 3};
    const uint64_t tokens[] = {20, 40, 12};
    pkv_table *tables[3];
    for (int t = 0; t < 3; ++t) tables[t] = long_sequence(w.pool, 1000 * (t + 1), tokens[t], 4, tags[t]);
    const uint64_t staging = 6; /* 12 slices for 2 buffers: 4 + 2, 6, 1 + 2 absent blocks */
    w.session = open_with_buffers(w.pool, 2, 0, &staging);
    const int32_t entries[3][3] = {{5, 2, 0}, {0, 6, 0}, {0, 2, 3}};
    for (int step = 0; step < 2; ++step) {
        assert_ok(pkv_prefetch_step_begin(w.session, 3, tables, NULL, NULL));
        for (uint32_t layer = 0; layer < 2; ++layer) {
            uint64_t next[3] = {0}, rows = 0;
            for (int range = 0; range < 3; ++range) {
                const pkv_layer_view view = acquired(w.session, layer);
                for (int t = 0; t < 3; ++t) assert_int_equal(view.indptr[t + 1] - view.indptr[t], entries[range][t]);
                assert_int_equal(view.last, range == 2);
                rows += check_view(&view, tags, tokens, next);
                release(w.session, layer);
            }
            assert_int_equal(rows, 72);
        }
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
    }
    for (int t = 0; t < 3; ++t) end_table(tables[t]);
    end_world(&w);
}

static void a_session_of_whole_layers_refuses_steps_that_need_ranges(void **state) {
    (void)state;
    world w = world_of_layers(16, 2);
    const uint32_t tag = 9;
    pkv_table *table = long_sequence(w.pool, 1, 32, 4, tag); /* 7 absent blocks */
    const uint64_t staging = 6;                              /* 6 slices a buffer */
    w.session = open_with_buffers(w.pool, 2, PKV_PREFETCH_WHOLE_LAYERS, &staging);
    assert_status(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL), PKV_ERR_NO_SPACE);
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    assert_status(pkv_prefetch_layer_acquire(w.session, 0, one_second, NULL, &view), PKV_ERR_STATE);
    assert_status(pkv_prefetch_step_end(w.session, NULL), PKV_ERR_STATE);
    assert_ok(pkv_table_restore(table, 3, 1, one_second, NULL));
    for (int step = 0; step < 3; ++step) assert_int_equal(check_step(w.session, 2, 1, &table, &tag), 2);
    assert_ok(pkv_table_spill(table, 3, 1, NULL, NULL));
    assert_status(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL), PKV_ERR_NO_SPACE);
    const uint64_t fewer = 6 * tiered_page_tokens;
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, &fewer, NULL));
    assert_int_equal(check_layers(w.session, 0, 2, 1, &tag, &fewer), 2);
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    end_table(table);
    end_world(&w);
}

static void a_step_with_more_blocks_than_a_view_has_entries_is_refused(void **state) {
    (void)state;
    world w = world_of_layers(16, 2);
    const uint32_t tags[] = {1, 2};
    pkv_table *tables[] = {long_sequence(w.pool, 1, 20, 4, 1), long_sequence(w.pool, 500, 20, 4, 2)};
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.max_slices = 9;
    w.session = open_session(w.pool, &options);
    assert_status(pkv_prefetch_step_begin(w.session, 2, tables, NULL, NULL), PKV_ERR_NO_SPACE);
    check_step(w.session, 2, 1, &tables[1], &tags[1]);
    const uint64_t tokens[] = {20, 16};
    assert_ok(pkv_prefetch_step_begin(w.session, 2, tables, tokens, NULL));
    check_layers(w.session, 0, 2, 2, tags, tokens);
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    assert_status(pkv_prefetch_step_begin(w.session, 2, tables, NULL, NULL),
                  PKV_ERR_NO_SPACE); /* of known tables, too */
    for (int t = 0; t < 2; ++t) end_table(tables[t]);
    end_world(&w);
}

/* ---- tables that change ---- */

static void tables_come_and_go_between_steps(void **state) {
    (void)state;
    world w = world_of_layers(40, 3);
    w.session = open_session(w.pool, NULL);
    pkv_table *tables[4];
    const uint32_t tags[] = {1, 2, 3, 4};
    for (int t = 0; t < 4; ++t) tables[t] = long_sequence(w.pool, 1000 * (t + 1), 30 + 7 * (uint64_t)t, 4, tags[t]);
    check_step(w.session, 3, 2, tables, tags);
    check_step(w.session, 3, 4, tables, tags);
    check_step(w.session, 3, 1, tables + 2, tags + 2);
    pkv_table *swapped[] = {tables[3], tables[0]};
    const uint32_t swapped_tags[] = {4, 1};
    check_step(w.session, 3, 2, swapped, swapped_tags);
    end_table(tables[3]);
    tables[3] = long_sequence(w.pool, 9000, 50, 4, 8);
    swapped[0] = tables[3];
    const uint32_t other_tags[] = {8, 1};
    check_step(w.session, 3, 2, swapped, other_tags);
    check_step(w.session, 3, 0, tables, tags);
    check_step(w.session, 3, 3, tables, tags);
    for (int t = 0; t < 4; ++t) end_table(tables[t]);
    end_world(&w);
}

static void views_follow_what_happens_to_tables_between_steps(void **state) {
    (void)state;
    world w = world_of_layers(32, 3);
    pkv_table *tables[] = {long_sequence(w.pool, 1, 50, 12, 1), long_sequence(w.pool, 1000, 40, 8, 2)};
    const uint32_t tags[] = {1, 2};
    w.session = open_session(w.pool, NULL);
    check_step(w.session, 3, 2, tables, tags);
    assert_ok(pkv_table_spill(tables[0], 0, UINT64_MAX, NULL, NULL));
    check_step(w.session, 3, 2, tables, tags);
    assert_ok(pkv_table_restore(tables[0], 2, 5, one_second, NULL));
    check_step(w.session, 3, 2, tables, tags);
    assert_ok(pkv_table_spill(tables[0], 3, 1, NULL, NULL));
    check_step(w.session, 3, 2, tables, tags);
    assert_ok(pkv_table_restore(tables[0], 12, 1, one_second, NULL));
    put_and_commit(w.pool, tables[0], 57, 1);
    check_step(w.session, 3, 2, tables, tags);
    put_and_commit(w.pool, tables[1], 41, 2);
    check_step(w.session, 3, 2, tables, tags);
    assert_ok(pkv_table_truncate(tables[0], 24, NULL));
    check_step(w.session, 3, 2, tables, tags);
    put_and_commit(w.pool, tables[0], 38, 1);
    check_step(w.session, 3, 2, tables, tags);
    assert_ok(pkv_table_clear(tables[1], NULL));
    const pkv_prompt prompt = prompt_of(NULL, 0);
    assert_ok(pkv_table_admit(tables[1], &prompt, NULL, NULL));
    put_and_commit(w.pool, tables[1], 9, 2);
    assert_ok(pkv_table_spill(tables[1], 0, 2, NULL, NULL));
    check_step(w.session, 3, 2, tables, tags);
    for (int t = 0; t < 2; ++t) end_table(tables[t]);
    end_world(&w);
}

static void views_follow_what_happens_to_tables_inside_a_step(void **state) {
    (void)state;
    const uint64_t stagings[] = {4, 2};
    for (int i = 0; i < 2; ++i) {
        world w = world_of_layers(32, 8);
        pkv_table *tables[] = {long_sequence(w.pool, 1, 50, 12, 1), long_sequence(w.pool, 1000, 40, 8, 2)};
        const uint32_t tags[] = {1, 2};
        uint64_t tokens[] = {50, 40};
        w.session = open_with_buffers(w.pool, 2, 0, &stagings[i]);
        for (int step = 0; step < 2; ++step) {
            assert_ok(pkv_prefetch_step_begin(w.session, 2, tables, tokens, NULL));
            check_layers(w.session, 0, 1, 2, tags, tokens);
            assert_ok(pkv_table_restore(tables[0], 1, 4, one_second, NULL));
            check_layers(w.session, 1, 2, 2, tags, tokens);
            assert_ok(pkv_table_spill(tables[1], 0, UINT64_MAX, NULL, NULL));
            check_layers(w.session, 2, 3, 2, tags, tokens);
            assert_ok(pkv_table_spill(tables[0], 0, 10, NULL, NULL));
            check_layers(w.session, 3, 4, 2, tags, tokens);
            assert_ok(pkv_table_restore(tables[1], 9, 1, one_second, NULL));
            put_and_commit(w.pool, tables[1], 46, 2); /* the step goes on to attend to 40 */
            check_layers(w.session, 4, 5, 2, tags, tokens);
            assert_ok(pkv_table_truncate(tables[1], 33, NULL)); /* within a block: rows behind it are not compared */
            tokens[1] = 33;
            check_layers(w.session, 5, 6, 2, tags, tokens);
            assert_ok(pkv_table_truncate(tables[1], 16, NULL));
            tokens[1] = 16;
            check_layers(w.session, 6, 8, 2, tags, tokens);
            assert_ok(pkv_prefetch_step_end(w.session, NULL));
            check_session(w.session);
            put_and_commit(w.pool, tables[1], 40, 2);
            tokens[1] = 40;
        }
        for (int t = 0; t < 2; ++t) end_table(tables[t]);
        end_world(&w);
    }
}

static void a_table_that_changes_between_two_ranges_of_a_layer_goes_on_where_it_was(void **state) {
    (void)state;
    world w = world_of_layers(24, 2);
    const uint32_t tag = 3;
    const uint64_t tokens = 64, staging = 4; /* 4 slices a buffer, and 15 absent blocks */
    pkv_table *table = long_sequence(w.pool, 1, tokens, 4, tag);
    w.session = open_with_buffers(w.pool, 2, 0, &staging);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
    uint64_t next = 0, rows = 0;
    pkv_layer_view view = acquired(w.session, 0);
    rows += check_view(&view, &tag, &tokens, &next);
    release(w.session, 0);
    assert_int_equal(next, 4);
    assert_ok(pkv_table_restore(table, 2, 5, one_second, NULL));
    do {
        view = acquired(w.session, 0);
        rows += check_view(&view, &tag, &tokens, &next);
        release(w.session, 0);
    } while (!view.last);
    assert_int_equal(rows, tokens);
    check_layers(w.session, 1, 2, 1, &tag, &tokens);
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    end_table(table);
    end_world(&w);
}

static void a_table_that_is_destroyed_in_a_step_leaves_the_others_alone(void **state) {
    (void)state;
    world w = world_of_layers(32, 3);
    pkv_table *tables[] = {long_sequence(w.pool, 1, 50, 12, 1), long_sequence(w.pool, 1000, 40, 8, 2)};
    w.session = open_session(w.pool, NULL);
    assert_ok(pkv_prefetch_step_begin(w.session, 2, tables, NULL, NULL));
    const uint32_t tags[] = {1, 2};
    const uint64_t both[] = {50, 40}, second[] = {0, 40};
    check_layers(w.session, 0, 1, 2, tags, both);
    assert_ok(pkv_table_clear(tables[0], NULL));
    check_layers(w.session, 1, 2, 2, tags, second);
    end_table(tables[0]);
    check_layers(w.session, 2, 3, 2, tags, second);
    pkv_status statuses[2];
    assert_true(pkv_prefetch_step_end(w.session, statuses) != PKV_OK);
    assert_true(statuses[0] != PKV_OK);
    assert_int_equal(statuses[1], PKV_OK);
    end_table(tables[1]);
    end_world(&w);
}

/* ---- blocks that were found in tiers ---- */

static void blocks_that_an_admission_found_in_tiers_are_read(void **state) {
    (void)state;
    world w = world_of_layers(32, 3);
    put_below(w.pool, 1, 40, 6);
    pkv_table *table = admit_again(w.pool, 1, 40, NULL);
    assert_int_equal(info_of(table).absent_blocks, 10);
    w.session = open_session(w.pool, NULL);
    const uint32_t tag = 6;
    for (int step = 0; step < 2; ++step) check_step(w.session, 3, 1, &table, &tag);
    assert_int_equal(info_of(table).absent_blocks, 10); /* reading is not restoring */
    assert_ok(pkv_table_restore(table, 0, 4, one_second, NULL));
    check_step(w.session, 3, 1, &table, &tag);
    end_table(table);
    end_world(&w);
}

static void absent_blocks_that_two_tables_share_are_loaded_once(void **state) {
    (void)state;
    const uint32_t flags[] = {PKV_PREFETCH_OFF, 0};
    for (int i = 0; i < 2; ++i) {
        world w = world_of_layers(32, 3);
        put_below(w.pool, 1, 32, 6);
        pkv_table *tables[] = {admit_again(w.pool, 1, 32, NULL), admit_again(w.pool, 1, 24, NULL)};
        const uint32_t tags[] = {6, 6};
        const uint64_t staging = 12;
        w.session = open_with_buffers(w.pool, 0, flags[i], &staging);
        assert_int_equal(check_step(w.session, 3, 2, tables, tags), 3);
        assert_int_equal(session_stats(w.session).needed, 3 * (8 + 6));
        if (flags[i] == PKV_PREFETCH_OFF) assert_int_equal(session_stats(w.session).loads, 3 * 8);
        for (int t = 0; t < 2; ++t) end_table(tables[t]);
        end_world(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_of_different_shapes_are_read_one_after_the_other),
        cmocka_unit_test(blocks_that_a_window_has_dropped_are_minus_one),
        cmocka_unit_test(sinks_that_are_in_tiers_stay_when_the_window_moves_on),
        cmocka_unit_test(a_sequence_in_a_file_is_read),
        cmocka_unit_test(blocks_that_lie_in_two_tiers_are_read_from_both),
        cmocka_unit_test(a_layer_larger_than_a_buffer_comes_in_ranges_in_order),
        cmocka_unit_test(a_range_ends_inside_one_table_and_the_next_begins_there),
        cmocka_unit_test(a_session_of_whole_layers_refuses_steps_that_need_ranges),
        cmocka_unit_test(a_step_with_more_blocks_than_a_view_has_entries_is_refused),
        cmocka_unit_test(tables_come_and_go_between_steps),
        cmocka_unit_test(views_follow_what_happens_to_tables_between_steps),
        cmocka_unit_test(views_follow_what_happens_to_tables_inside_a_step),
        cmocka_unit_test(a_table_that_changes_between_two_ranges_of_a_layer_goes_on_where_it_was),
        cmocka_unit_test(a_table_that_is_destroyed_in_a_step_leaves_the_others_alone),
        cmocka_unit_test(blocks_that_an_admission_found_in_tiers_are_read),
        cmocka_unit_test(absent_blocks_that_two_tables_share_are_loaded_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
