/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: the order of layers, numbers of tokens, and the memory of views. Field case J13. */
#include "prefetch/steps.h"

/* ---- order ---- */

static void layers_come_in_the_order_of_the_options(void **state) {
    (void)state;
    pkv_group_options groups[2] = {layers_group(16, 3), layers_group(16, 2)};
    world w = make_world(groups, 2);
    const uint32_t tag = 2;
    pkv_table *table = long_sequence(w.pool, 1, 40, 4, tag);
    const pkv_layer_ref order[] = {{1, 1}, {0, 2}, {0, 0}, {1, 0}};
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.layers = order;
    options.num_layers = 4;
    w.session = open_session(w.pool, &options);
    for (int step = 0; step < 3; ++step) {
        const uint64_t tokens = 40;
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
        for (uint32_t index = 0; index < 4; ++index) {
            uint64_t next = 0;
            pkv_layer_view view;
            do {
                view = acquired(w.session, index);
                assert_int_equal(view.group, order[index].group);
                assert_int_equal(view.layer, order[index].layer);
                check_view(&view, &tag, &tokens, &next);
                release(w.session, index);
            } while (!view.last);
            assert_int_equal(next, 10);
        }
        pkv_layer_view view = PKV_LAYER_VIEW_INIT;
        assert_status(pkv_prefetch_layer_acquire(w.session, 4, one_second, NULL, &view), PKV_ERR_INVALID);
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
    }
    end_table(table);
    end_world(&w);
}

static void layers_that_are_passed_over_are_not_loaded(void **state) {
    (void)state;
    const uint32_t flags[] = {PKV_PREFETCH_OFF, 0};
    for (int i = 0; i < 2; ++i) {
        world w = world_of_layers(32, 6);
        const uint32_t tag = 2;
        const uint64_t tokens = 40;
        pkv_table *table = long_sequence(w.pool, 1, tokens, 4, tag);
        w.session = open_with_buffers(w.pool, 2, flags[i], NULL);
        for (int step = 0; step < 2; ++step) {
            assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
            check_layers(w.session, 1, 2, 1, &tag, &tokens);
            check_layers(w.session, 4, 5, 1, &tag, &tokens);
            pkv_layer_view view = PKV_LAYER_VIEW_INIT;
            assert_status(pkv_prefetch_layer_acquire(w.session, 3, one_second, NULL, &view), PKV_ERR_STATE);
            assert_status(pkv_prefetch_layer_acquire(w.session, 4, one_second, NULL, &view), PKV_ERR_STATE);
            assert_ok(pkv_prefetch_step_end(w.session, NULL));
            check_session(w.session);
        }
        assert_int_equal(session_stats(w.session).needed, 2 * 2 * 9);
        if (flags[i] == PKV_PREFETCH_OFF) assert_int_equal(session_stats(w.session).loads, 2 * 2 * 9);
        check_step(w.session, 6, 1, &table, &tag);
        end_table(table);
        end_world(&w);
    }
}

static void the_rest_of_a_layer_may_be_passed_over(void **state) {
    (void)state;
    world w = world_of_layers(16, 3);
    const uint32_t tag = 2;
    const uint64_t tokens = 60, staging = 3;
    pkv_table *table = long_sequence(w.pool, 1, tokens, 4, tag);
    w.session = open_with_buffers(w.pool, 2, 0, &staging);
    for (int step = 0; step < 3; ++step) {
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
        const pkv_layer_view view = acquired(w.session, 0);
        assert_int_equal(view.last, 0);
        release(w.session, 0);
        check_layers(w.session, 1, 2, 1, &tag, &tokens);
        assert_ok(pkv_prefetch_step_end(w.session, NULL)); /* and so may layers at the end */
    }
    check_step(w.session, 3, 1, &table, &tag);
    end_table(table);
    end_world(&w);
}

static void several_layers_are_acquired_and_released_in_order(void **state) {
    (void)state;
    world w = world_of_layers(32, 6);
    const uint32_t tag = 2;
    const uint64_t tokens = 30;
    pkv_table *table = long_sequence(w.pool, 1, tokens, 4, tag); /* 7 absent blocks */
    const uint64_t staging = 4;
    w.session = open_with_buffers(w.pool, 3, 0, &staging);
    for (int step = 0; step < 2; ++step) {
        pkv_layer_view views[6], extra = PKV_LAYER_VIEW_INIT;
        assert_status(pkv_prefetch_layer_acquire(w.session, 0, one_second, NULL, &extra), PKV_ERR_STATE);
        assert_status(pkv_prefetch_layer_release(w.session, 0, NULL), PKV_ERR_STATE);
        assert_status(pkv_prefetch_step_end(w.session, NULL), PKV_ERR_STATE);
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
        assert_status(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL), PKV_ERR_STATE);
        assert_status(pkv_prefetch_layer_release(w.session, 0, NULL), PKV_ERR_STATE);
        for (uint32_t layer = 0; layer < 3; ++layer) views[layer] = acquired(w.session, layer);
        assert_status(pkv_prefetch_layer_acquire(w.session, 3, one_second, NULL, &extra), PKV_ERR_STATE);
        for (uint32_t layer = 0; layer < 3; ++layer) assert_int_equal(check_of_one(&views[layer], tag, tokens), tokens);
        assert_status(pkv_prefetch_layer_release(w.session, 1, NULL), PKV_ERR_STATE);
        assert_status(pkv_prefetch_layer_release(w.session, 2, NULL), PKV_ERR_STATE);
        assert_status(pkv_prefetch_step_end(w.session, NULL), PKV_ERR_STATE);
        for (uint32_t layer = 3; layer < 6; ++layer) {
            release(w.session, layer - 3);
            views[layer] = acquired(w.session, layer);
            for (uint32_t held = layer - 2; held <= layer; ++held) {
                assert_int_equal(check_of_one(&views[held], tag, tokens), tokens);
                if (held != layer) assert_true(views[held].buffer != views[layer].buffer);
            }
        }
        for (uint32_t layer = 3; layer < 6; ++layer) release(w.session, layer);
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
        check_session(w.session);
    }
    end_table(table);
    end_world(&w);
}

static void a_table_may_be_listed_once_only(void **state) {
    (void)state;
    world w = world_of_layers(32, 2);
    pkv_table *table = long_sequence(w.pool, 1, 20, 4, 1), *other = long_sequence(w.pool, 500, 20, 4, 2);
    w.session = open_session(w.pool, NULL);
    pkv_table *tables[] = {table, other, table};
    assert_status(pkv_prefetch_step_begin(w.session, 3, tables, NULL, NULL), PKV_ERR_INVALID);
    const uint32_t tags[] = {1, 2};
    check_step(w.session, 2, 2, tables, tags);
    end_table(table);
    end_table(other);
    end_world(&w);
}

static void a_table_of_another_pool_is_refused(void **state) {
    (void)state;
    world w = world_of_layers(32, 2), other = world_of_layers(32, 2);
    pkv_table *table = long_sequence(other.pool, 1, 20, 4, 1);
    w.session = open_session(w.pool, NULL);
    assert_status(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL), PKV_ERR_INVALID);
    end_table(table);
    pkv_table *gone = table;
    assert_status(pkv_prefetch_step_begin(w.session, 1, &gone, NULL, NULL), PKV_ERR_HANDLE);
    end_world(&w);
    end_world(&other);
}

static void more_tables_than_a_session_takes_are_refused(void **state) {
    (void)state;
    world w = world_of_layers(32, 2);
    pkv_table *tables[] = {long_sequence(w.pool, 1, 20, 4, 1), long_sequence(w.pool, 500, 20, 4, 2)};
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.max_tables = 1;
    w.session = open_session(w.pool, &options);
    assert_status(pkv_prefetch_step_begin(w.session, 2, tables, NULL, NULL), PKV_ERR_LIMIT);
    const uint32_t tags[] = {1, 2};
    check_step(w.session, 2, 1, tables, tags);
    check_step(w.session, 2, 1, tables + 1, tags + 1);
    for (int t = 0; t < 2; ++t) end_table(tables[t]);
    end_world(&w);
}

/* ---- numbers of tokens ---- */

static void a_step_attends_to_as_many_tokens_as_it_says(void **state) {
    (void)state;
    world w = world_of_layers(32, 2);
    const uint32_t tag = 5;
    pkv_table *table = long_sequence(w.pool, 1, 42, 8, tag);
    assert_ok(pkv_table_reserve(table, 50)); /* 52: in whole blocks */
    w.session = open_session(w.pool, NULL);
    const uint64_t counts[] = {42, 10, 1, 0, 44, 52, 33, 9, 41, 50, 42};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
        const uint64_t blocks = (counts[i] + 3) / 4, known = counts[i] < 42 ? counts[i] : 42;
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, &counts[i], NULL));
        for (uint32_t layer = 0; layer < 2; ++layer) {
            uint64_t next = 0, rows = 0;
            pkv_layer_view view;
            do {
                view = acquired(w.session, layer);
                rows += check_view(&view, &tag, &known, &next);
                release(w.session, layer);
            } while (!view.last);
            assert_int_equal(next, blocks);
            assert_int_equal(rows, known);
        }
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
        check_session(w.session);
    }
    const uint64_t too_many = 53;
    assert_status(pkv_prefetch_step_begin(w.session, 1, &table, &too_many, NULL), PKV_ERR_INVALID);
    check_step(w.session, 2, 1, &table, &tag);
    end_table(table);
    end_world(&w);
}

static void rows_that_are_written_in_a_step_are_in_its_views(void **state) {
    (void)state;
    world w = world_of_layers(32, 3);
    const uint32_t tag = 5;
    uint64_t committed = 42;
    pkv_table *table = long_sequence(w.pool, 1, committed, 8, tag);
    w.session = open_session(w.pool, NULL);
    for (int step = 0; step < 8; ++step) {
        const uint64_t tokens = committed + 3;
        assert_ok(pkv_table_reserve(table, tokens));
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, &tokens, NULL));
        put_rows(w.pool, table, 0, committed, 3, tag); /* all layers at once: who computes a layer writes its rows */
        check_layers(w.session, 0, 3, 1, &tag, &tokens);
        assert_ok(pkv_table_commit(table, tokens, NULL));
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
        committed = tokens;
        if (step % 3 == 2) assert_ok(pkv_table_spill(table, 0, committed / 4, NULL, NULL));
    }
    end_table(table);
    end_world(&w);
}

/* ---- memory of views ---- */

static void views_may_lie_in_memory_of_the_callers(void **state) {
    (void)state;
    enum { buffers = 3, slices = 40, tables_at_most = 2, guard = -77 };
    world w = world_of_layers(32, 4);
    int32_t *ids = malloc((buffers * slices + 1) * sizeof *ids);
    int32_t *indptr = malloc((buffers * (tables_at_most + 1) + 1) * sizeof *indptr);
    ids[buffers * slices] = indptr[buffers * (tables_at_most + 1)] = guard;
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.num_buffers = buffers;
    options.max_slices = slices;
    options.max_tables = tables_at_most;
    options.slices = ids;
    options.slice_indptr = indptr;
    w.session = open_session(w.pool, &options);
    pkv_table *tables[] = {long_sequence(w.pool, 1, 60, 4, 1), long_sequence(w.pool, 1000, 100, 4, 2)};
    const uint32_t tags[] = {1, 2};
    const uint64_t tokens[] = {60, 100};
    for (int step = 0; step < 3; ++step) {
        assert_ok(pkv_prefetch_step_begin(w.session, 2, tables, NULL, NULL));
        for (uint32_t layer = 0; layer < 4; ++layer) {
            uint64_t next[2] = {0};
            pkv_layer_view view;
            do {
                view = acquired(w.session, layer);
                assert_true(view.buffer < buffers);
                assert_ptr_equal(view.slices, ids + view.buffer * slices);
                assert_ptr_equal(view.indptr, indptr + view.buffer * (tables_at_most + 1));
                check_view(&view, tags, tokens, next);
                release(w.session, layer);
            } while (!view.last);
            assert_int_equal(next[0] + next[1], 40);
        }
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
    }
    assert_int_equal(ids[buffers * slices], guard);
    assert_int_equal(indptr[buffers * (tables_at_most + 1)], guard);
    for (int t = 0; t < 2; ++t) end_table(tables[t]);
    end_world(&w);
    free(ids);
    free(indptr);
}

static void two_and_sixteen_buffers_give_the_same_rows(void **state) {
    (void)state;
    const uint32_t buffers[] = {2, PKV_PREFETCH_MAX_BUFFERS};
    for (int i = 0; i < 2; ++i) {
        world w = world_of_layers(40, 5);
        pkv_table *tables[] = {long_sequence(w.pool, 1, 50, 4, 1), long_sequence(w.pool, 1000, 70, 4, 2)};
        const uint32_t tags[] = {1, 2};
        const uint64_t staging[] = {16};
        w.session = open_with_buffers(w.pool, buffers[i], 0, staging);
        for (int step = 0; step < 5; ++step) check_step(w.session, 5, 2, tables, tags);
        assert_true(session_stats(w.session).depth >= 2 && session_stats(w.session).depth <= buffers[i]);
        for (int t = 0; t < 2; ++t) end_table(tables[t]);
        end_world(&w);
    }
}

static void case_J13_a_buffer_in_use_is_not_loaded_anew(void **state) {
    (void)state;
    world w = world_of_layers(16, 3);
    const uint32_t tag = 2;
    const uint64_t tokens = 24, staging = 4; /* 6 slices a buffer */
    pkv_table *table = long_sequence(w.pool, 1, tokens, 4, tag);
    w.session = open_with_buffers(w.pool, 2, 0, &staging);
    for (int pass = 0; pass < 2; ++pass) {
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
        pkv_layer_view held = acquired(w.session, 0);
        for (uint32_t layer = 1; layer < 3; ++layer) {
            const pkv_layer_view view = acquired(w.session, layer);
            eventually(is_quiet(w.session));
            assert_true(view.buffer != held.buffer);
            assert_int_equal(check_of_one(&held, tag, tokens), tokens);
            assert_int_equal(check_of_one(&view, tag, tokens), tokens);
            release(w.session, layer - 1);
            held = view;
        }
        eventually(is_quiet(w.session)); /* layer 0 of the next pass is in the other buffer by now */
        assert_int_equal(check_of_one(&held, tag, tokens), tokens);
        release(w.session, 2);
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
    }
    end_table(table);
    end_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_come_in_the_order_of_the_options),
        cmocka_unit_test(layers_that_are_passed_over_are_not_loaded),
        cmocka_unit_test(the_rest_of_a_layer_may_be_passed_over),
        cmocka_unit_test(several_layers_are_acquired_and_released_in_order),
        cmocka_unit_test(a_table_may_be_listed_once_only),
        cmocka_unit_test(a_table_of_another_pool_is_refused),
        cmocka_unit_test(more_tables_than_a_session_takes_are_refused),
        cmocka_unit_test(a_step_attends_to_as_many_tokens_as_it_says),
        cmocka_unit_test(rows_that_are_written_in_a_step_are_in_its_views),
        cmocka_unit_test(views_may_lie_in_memory_of_the_callers),
        cmocka_unit_test(two_and_sixteen_buffers_give_the_same_rows),
        cmocka_unit_test(case_J13_a_buffer_in_use_is_not_loaded_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
