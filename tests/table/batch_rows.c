/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of K and V through a batch: the same as through its tables one by one. Field cases H and I. */
#include "support/support.h"

enum { layers = 2, row_elements = 2 * 4, max_rows = 1024 };

static pkv_batch *make_batch(pkv_pool *pool, uint32_t max_tables) {
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = max_tables;
    pkv_batch *batch = NULL;
    assert_ok(pkv_batch_create(pool, &options, &batch));
    return batch;
}

/* A sequence without names whose first `committed` tokens have rows of `tag`. */
static pkv_table *sequence_of(pkv_pool *pool, uint64_t committed, uint32_t tag) {
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, committed, tag);
    return table;
}

static pkv_tensor rows_at(void *data, uint64_t num_tokens) {
    pkv_tensor tensor = PKV_TENSOR_INIT;
    tensor.data = data;
    tensor.dtype = PKV_DTYPE_F16;
    tensor.num_tokens = num_tokens;
    return tensor;
}

/* The i-th row's bytes of a step: never what poison or another row looks like. */
static void fill_rows(uint16_t *data, uint64_t num_tokens, uint32_t tag) {
    for (uint64_t i = 0; i < num_tokens * row_elements; ++i) data[i] = (uint16_t)((tag * 7919 + i * 31) % 65535);
}

/* Rows of one table, K then V, to compare with. */
static void rows_of(pkv_table *table, uint32_t layer, uint64_t first, uint64_t count, uint16_t *k, uint16_t *v) {
    const pkv_tensor tensors[2] = {rows_at(k, count), rows_at(v, count)};
    assert_ok(pkv_table_gather(table, 0, layer, first, count, &tensors[0], &tensors[1], NULL));
}

static uint16_t k_data[max_rows * row_elements], v_data[max_rows * row_elements];
static uint16_t k_back[max_rows * row_elements], v_back[max_rows * row_elements];
static uint16_t k_one[max_rows * row_elements], v_one[max_rows * row_elements];

static bool all_are(const uint16_t *data, uint64_t first_row, uint64_t num_rows, uint16_t value) {
    for (uint64_t i = first_row * row_elements; i < (first_row + num_rows) * row_elements; ++i)
        if (data[i] != value) return false;
    return true;
}

static void case_H22_mixed_lengths_give_the_rows_of_each_table_alone(void **state) {
    (void)state;
    enum { num = 6, total = 1 + 63 + 64 + 65 + 0 + 128 };
    static const uint64_t lengths[num] = {1, 63, 64, 65, 0, 128};
    pkv_pool *pool = make_pool(16, 64);
    pkv_batch *batch = make_batch(pool, num);
    pkv_table *tables[num];
    for (uint32_t i = 0; i < num; ++i) tables[i] = sequence_of(pool, lengths[i], 1 + i);
    const uint32_t none[num] = {0};
    assert_ok(pkv_batch_reserve(batch, num, tables, none, NULL));
    for (uint32_t layer = 0; layer < layers; ++layer) {
        const pkv_tensor k = rows_at(k_back, total), v = rows_at(v_back, total);
        memset(k_back, 0x5A, sizeof k_back);
        assert_ok(pkv_batch_gather(batch, 0, layer, NULL, 0, &k, &v, NULL));
        uint64_t at = 0;
        for (int i = 0; i < num; ++i) {
            rows_of(tables[i], layer, 0, lengths[i], k_one, v_one);
            assert_memory_equal(k_back + at * row_elements, k_one, lengths[i] * row_elements * 2);
            assert_memory_equal(v_back + at * row_elements, v_one, lengths[i] * row_elements * 2);
            at += lengths[i];
        }
        assert_true(all_are(k_back, total, 4, 0x5A5A));
    }
    assert_ok(pkv_batch_commit(batch, NULL, NULL, NULL));
    for (int i = 0; i < num; ++i) end_table(tables[i]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void case_H07_a_batch_with_empty_rows_is_no_error(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_batch *batch = make_batch(pool, 3);
    pkv_table *tables[3] = {sequence_of(pool, 0, 1), sequence_of(pool, 0, 1), sequence_of(pool, 0, 1)};
    const uint32_t num_new[3] = {0, 5, 0};
    fill_rows(k_data, 5, 1);
    fill_rows(v_data, 5, 2);
    const pkv_tensor k = rows_at(k_data, 5), v = rows_at(v_data, 5), back = rows_at(k_back, 5),
                     nothing = rows_at(NULL, 0);
    assert_ok(pkv_batch_reserve(batch, 3, tables, num_new, NULL));
    for (uint32_t layer = 0; layer < layers; ++layer) assert_ok(pkv_batch_write(batch, 0, layer, &k, &v, NULL));
    assert_ok(pkv_batch_gather(batch, 0, 1, NULL, 0, &back, NULL, NULL));
    assert_memory_equal(k_back, k_data, 5 * row_elements * 2);
    assert_ok(pkv_batch_commit(batch, NULL, NULL, NULL));
    assert_ok(pkv_batch_reserve(batch, 0, NULL, NULL, NULL));
    assert_ok(pkv_batch_write(batch, 0, 0, &nothing, &nothing, NULL));
    assert_ok(pkv_batch_gather(batch, 0, 0, NULL, 0, &nothing, &nothing, NULL));
    assert_ok(pkv_batch_gather(batch, 0, 0, NULL, 16, &nothing, &nothing, NULL));
    for (int i = 0; i < 3; ++i) end_table(tables[i]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void case_I01_padding_behind_a_row_is_zero_and_not_what_the_page_held(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4); /* poisoned */
    pkv_batch *batch = make_batch(pool, 2);
    pkv_table *tables[2] = {sequence_of(pool, 13, 1), sequence_of(pool, 3, 2)};
    const uint32_t none[2] = {0, 0};
    assert_ok(pkv_batch_reserve(batch, 2, tables, none, NULL));
    memset(k_back, 0x5A, sizeof k_back);
    memset(v_back, 0x5A, sizeof v_back);
    const pkv_tensor k = rows_at(k_back, 32), v = rows_at(v_back, 32);
    assert_ok(pkv_batch_gather(batch, 0, 0, NULL, 16, &k, &v, NULL));
    rows_of(tables[0], 0, 0, 13, k_one, v_one);
    assert_memory_equal(k_back, k_one, 13 * row_elements * 2);
    assert_memory_equal(v_back, v_one, 13 * row_elements * 2);
    rows_of(tables[1], 0, 0, 3, k_one, v_one);
    assert_memory_equal(k_back + 16 * row_elements, k_one, 3 * row_elements * 2);
    for (int side = 0; side < 2; ++side) {
        const uint16_t *data = side == 0 ? k_back : v_back;
        assert_true(all_are(data, 13, 3, 0));
        assert_true(all_are(data, 19, 13, 0));
        assert_true(all_are(data, 32, 4, 0x5A5A));
    }
    for (int i = 0; i < 2; ++i) end_table(tables[i]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void a_gather_that_cannot_be_writes_nothing(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, 4);
    pkv_batch *batch = make_batch(pool, 2);
    pkv_table *tables[2] = {sequence_of(pool, 13, 1), sequence_of(pool, 3, 2)};
    const uint32_t none[2] = {0, 0}, one[2] = {0, 1};
    const uint64_t past[2] = {0, 4};
    assert_ok(pkv_batch_reserve(batch, 2, tables, none, NULL));
    memset(k_back, 0x5A, sizeof k_back);
    const pkv_tensor k = rows_at(k_back, 32), few = rows_at(k_back, 15), few_padded = rows_at(k_back, 31);
    assert_status(pkv_batch_gather(batch, 0, 0, NULL, 12, &k, NULL, NULL), PKV_ERR_INVALID); /* 13 tokens */
    assert_status(pkv_batch_gather(batch, 0, 0, past, 0, &k, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_batch_gather(batch, 0, 0, NULL, 0, &few, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_batch_gather(batch, 0, 0, NULL, 16, &few_padded, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_batch_gather(batch, 0, 2, NULL, 0, &k, NULL, NULL), PKV_ERR_INVALID);
    assert_true(pkv_batch_gather(batch, 0, 0, NULL, UINT64_MAX, &k, NULL, NULL) != PKV_OK);
    assert_ok(pkv_batch_reserve(batch, 2, tables, one, NULL)); /* the new row is not written yet */
    assert_status(pkv_batch_gather(batch, 0, 0, NULL, 0, &k, NULL, NULL), PKV_ERR_INVALID);
    assert_true(all_are(k_back, 0, 40, 0x5A5A));
    for (int i = 0; i < 2; ++i) end_table(tables[i]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void gather_begins_at_the_first_token_of_each_row(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, 4);
    pkv_batch *batch = make_batch(pool, 3);
    pkv_table *tables[3] = {sequence_of(pool, 13, 1), sequence_of(pool, 3, 2), sequence_of(pool, 9, 3)};
    const uint32_t none[3] = {0, 0, 0};
    const uint64_t first[3] = {6, 3, 0}, counts[3] = {7, 0, 9};
    assert_ok(pkv_batch_reserve(batch, 3, tables, none, NULL));
    for (uint64_t padded = 0; padded <= 10; padded += 10) {
        memset(v_back, 0x5A, sizeof v_back);
        const pkv_tensor v = rows_at(v_back, 40);
        assert_ok(pkv_batch_gather(batch, 0, 1, first, padded, NULL, &v, NULL));
        uint64_t at = 0;
        for (uint64_t i = 0; i < 3; ++i) {
            if (padded != 0) at = i * padded;
            rows_of(tables[i], 1, first[i], counts[i], k_one, v_one);
            assert_memory_equal(v_back + at * row_elements, v_one, counts[i] * row_elements * 2);
            at += counts[i];
            if (padded != 0) assert_true(all_are(v_back, at, padded - counts[i], 0));
        }
    }
    for (int i = 0; i < 3; ++i) end_table(tables[i]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void rows_of_failed_tables_are_skipped(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 4);
    pkv_batch *batch = make_batch(pool, 3);
    pkv_table *tables[3] = {sequence_of(pool, 3, 1), sequence_of(pool, 4, 2), sequence_of(pool, 2, 3)};
    const uint32_t num_new[3] = {1, 5, 2};
    assert_status(pkv_batch_reserve(batch, 3, tables, num_new, NULL), PKV_ERR_NO_PAGES);
    fill_rows(k_data, 8, 1);
    fill_rows(v_data, 8, 2);
    const pkv_tensor k = rows_at(k_data, 8), v = rows_at(v_data, 8), few = rows_at(k_data, 7);
    assert_status(pkv_batch_write(batch, 0, 0, &few, &few, NULL), PKV_ERR_INVALID); /* their rows count all the same */
    for (uint32_t layer = 0; layer < layers; ++layer) assert_ok(pkv_batch_write(batch, 0, layer, &k, &v, NULL));
    const pkv_tensor back = rows_at(k_back, 24), v_tensor = rows_at(v_back, 24);
    memset(k_back, 0x5A, sizeof k_back);
    assert_ok(pkv_batch_gather(batch, 0, 0, NULL, 0, &back, NULL, NULL));
    assert_memory_equal(k_back + 3 * row_elements, k_data, row_elements * 2);
    assert_memory_equal(k_back + 6 * row_elements, k_data + 6 * row_elements, 2 * row_elements * 2);
    assert_true(all_are(k_back, 8, 4, 0x5A5A));
    assert_ok(pkv_batch_gather(batch, 0, 0, NULL, 8, &back, &v_tensor, NULL));
    assert_true(all_are(k_back, 8, 8, 0)); /* the failed row is empty */
    assert_true(all_are(v_back, 8, 8, 0));
    assert_status(pkv_batch_commit(batch, NULL, NULL, NULL), PKV_ERR_NO_PAGES);
    check_rows(tables[1], 0, 4, 2);
    for (int i = 0; i < 3; ++i) end_table(tables[i]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void a_row_whose_names_failed_is_not_written(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_batch *batch = make_batch(pool, 2);
    pkv_table *tables[2] = {sequence_of(pool, 2, 1), NULL}; /* committed without names: the next name leaves a gap */
    pkv_token named[2] = {1, 2};
    const pkv_prompt prompt = prompt_of(named, 2);
    tables[1] = admit(pool, &prompt, NULL);
    write_and_commit(tables[1], 2, 2);
    const uint32_t num_new[2] = {1, 1};
    pkv_status statuses[2];
    assert_ok(pkv_batch_reserve(batch, 2, tables, num_new, NULL));
    assert_status(pkv_batch_set_tokens(batch, 2, named, statuses), PKV_ERR_INVALID);
    assert_int_equal(statuses[0], PKV_ERR_INVALID);
    assert_int_equal(statuses[1], PKV_OK);
    fill_rows(k_data, 2, 1);
    const pkv_tensor k = rows_at(k_data, 2);
    assert_ok(pkv_batch_write(batch, 0, 0, &k, &k, NULL));
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    assert_ok(pkv_pool_layout(pool, 0, 0, &layout));
    const uint16_t *row =
        (const void *)((char *)layout.k_base + (uint64_t)page_at(tables[0], 0) * layout.k.page + 2 * layout.k.token);
    assert_true(all_are(row, 0, 1, 0xFFFF));
    assert_status(pkv_batch_commit(batch, NULL, NULL, NULL), PKV_ERR_INVALID);
    assert_int_equal(info_of(tables[0]).committed, 2);
    assert_int_equal(info_of(tables[1]).committed, 3);
    for (int i = 0; i < 2; ++i) end_table(tables[i]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void a_write_that_cannot_be_writes_nothing(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_batch *batch = make_batch(pool, 1);
    pkv_table *table = sequence_of(pool, 2, 1);
    const uint32_t num_new = 2;
    assert_ok(pkv_batch_reserve(batch, 1, &table, &num_new, NULL));
    write_rows(table, 2, 2, 9);
    fill_rows(k_data, 2, 1);
    const pkv_tensor k = rows_at(k_data, 2), few = rows_at(k_data, 1);
    assert_status(pkv_batch_write(batch, 0, 0, &k, &few, NULL), PKV_ERR_INVALID);
    assert_status(pkv_batch_write(batch, 0, 0, &k, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_batch_write(batch, 0, 0, NULL, &k, NULL), PKV_ERR_INVALID);
    assert_status(pkv_batch_write(batch, 0, 2, &k, &k, NULL), PKV_ERR_INVALID);
    check_rows(table, 2, 2, 9);
    end_table(table);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

/* ---- against the same steps one by one ---- */

enum { width = 5 };

typedef struct {
    pkv_pool *pool;
    pkv_table *tables[width];
} world;

static void compare(world *worlds) {
    for (int i = 0; i < width; ++i) {
        pkv_table_info infos[2] = {info_of(worlds[0].tables[i]), info_of(worlds[1].tables[i])};
        assert_memory_equal(&infos[0], &infos[1], sizeof infos[0]);
        for (uint32_t layer = 0; layer < layers; ++layer) {
            const uint64_t count = infos[0].committed;
            rows_of(worlds[0].tables[i], layer, 0, count, k_one, v_one);
            rows_of(worlds[1].tables[i], layer, 0, count, k_back, v_back);
            assert_memory_equal(k_one, k_back, count * row_elements * 2);
            assert_memory_equal(v_one, v_back, count * row_elements * 2);
        }
    }
    const pkv_pool_stats stats[2] = {stats_of(worlds[0].pool), stats_of(worlds[1].pool)};
    assert_int_equal(stats[0].held_pages, stats[1].held_pages);
    assert_int_equal(stats[0].cached_pages, stats[1].cached_pages);
    assert_int_equal(stats[0].published_blocks, stats[1].published_blocks);
    assert_int_equal(stats[0].copied_pages, stats[1].copied_pages);
}

static void step_one_by_one(world *w, const uint32_t *num_new, const uint32_t *accepted, const pkv_token *ids) {
    uint64_t begin[width], at = 0;
    bool good[width];
    for (int i = 0; i < width; ++i) {
        begin[i] = info_of(w->tables[i]).committed;
        good[i] = pkv_table_reserve(w->tables[i], begin[i] + num_new[i]) == PKV_OK;
    }
    for (int i = 0; i < width; at += num_new[i], ++i) {
        if (!good[i]) continue;
        assert_ok(pkv_table_set_tokens(w->tables[i], begin[i], num_new[i], ids + at));
        const pkv_tensor k = rows_at(k_data + at * row_elements, num_new[i]),
                         v = rows_at(v_data + at * row_elements, num_new[i]);
        for (uint32_t layer = 0; layer < layers; ++layer)
            assert_ok(pkv_table_write(w->tables[i], 0, layer, begin[i], num_new[i], &k, &v, NULL));
    }
    for (int i = 0; i < width; ++i) {
        if (!good[i]) continue;
        assert_ok(pkv_table_commit(w->tables[i], begin[i] + accepted[i], NULL));
        if (accepted[i] < num_new[i]) assert_ok(pkv_table_truncate(w->tables[i], begin[i] + accepted[i], NULL));
    }
}

static void random_steps(uint64_t seed, uint32_t page_tokens, int steps) {
    print_message("seed %llu, %u tokens a page\n", (unsigned long long)seed, page_tokens);
    test_random random = {seed};
    world worlds[2];
    const pkv_prompt empty = prompt_of(NULL, 0);
    for (int w = 0; w < 2; ++w) {
        worlds[w].pool = make_pool(400 / page_tokens + 4, page_tokens);
        for (int i = 0; i < width; ++i) worlds[w].tables[i] = admit(worlds[w].pool, &empty, NULL);
    }
    pkv_batch *batch = make_batch(worlds[0].pool, width);
    for (int step = 0; step < steps; ++step) {
        uint32_t num_new[width], accepted[width], total = 0;
        for (int i = 0; i < width; ++i) {
            num_new[i] = (uint32_t)random_below(&random, random_below(&random, 4) == 0 ? 30 : 3);
            accepted[i] =
                (uint32_t)random_below(&random, 2) == 0 ? num_new[i] : (uint32_t)random_below(&random, num_new[i] + 1);
            total += num_new[i];
        }
        pkv_token ids[width * 30];
        for (uint32_t i = 0; i < total; ++i) ids[i] = (pkv_token)random_below(&random, 2);
        fill_rows(k_data, total, (uint32_t)step * 2);
        fill_rows(v_data, total, (uint32_t)step * 2 + 1);
        const pkv_tensor k = rows_at(k_data, total), v = rows_at(v_data, total);
        pkv_status statuses[width];
        (void)pkv_batch_reserve(batch, width, worlds[0].tables, num_new, statuses);
        (void)pkv_batch_set_tokens(batch, total, ids, NULL);
        for (uint32_t layer = 0; layer < layers; ++layer) assert_ok(pkv_batch_write(batch, 0, layer, &k, &v, NULL));
        (void)pkv_batch_commit(batch, accepted, statuses, NULL);
        for (int i = 0; i < width; ++i) assert_true(statuses[i] == PKV_OK || statuses[i] == PKV_ERR_NO_PAGES);
        step_one_by_one(&worlds[1], num_new, accepted, ids);
        compare(worlds);
        /* Now and then one starts anew, as a fork of another or with nothing; in both worlds. */
        const uint64_t which = random_below(&random, width), source = random_below(&random, width);
        const uint64_t what = random_below(&random, 6);
        for (int w = 0; w < 2; ++w) {
            if (what == 0 && which != source) {
                end_table(worlds[w].tables[which]);
                worlds[w].tables[which] = fork_of(worlds[w].tables[source]);
            } else if (what == 1) {
                assert_ok(pkv_table_clear(worlds[w].tables[which], NULL));
                assert_ok(pkv_table_admit(worlds[w].tables[which], &empty, NULL, NULL));
            }
        }
    }
    for (int w = 0; w < 2; ++w) {
        for (int i = 0; i < width; ++i) end_table(worlds[w].tables[i]);
        check_rules(worlds[w].pool);
    }
    assert_ok(pkv_batch_destroy(batch));
    for (int w = 0; w < 2; ++w) end_pool(worlds[w].pool);
}

static void random_steps_equal_the_same_steps_one_by_one(void **state) {
    (void)state;
    static const uint32_t page_sizes[] = {1, 2, 3, 5, 16, 64};
    for (size_t i = 0; i < sizeof page_sizes / sizeof page_sizes[0]; ++i)
        for (uint64_t seed = 1; seed <= (long_tests() ? 50 : 1); ++seed)
            random_steps(seed * 100 + i, page_sizes[i], long_tests() ? 1000 : 300);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_H22_mixed_lengths_give_the_rows_of_each_table_alone),
        cmocka_unit_test(case_H07_a_batch_with_empty_rows_is_no_error),
        cmocka_unit_test(case_I01_padding_behind_a_row_is_zero_and_not_what_the_page_held),
        cmocka_unit_test(a_gather_that_cannot_be_writes_nothing),
        cmocka_unit_test(gather_begins_at_the_first_token_of_each_row),
        cmocka_unit_test(rows_of_failed_tables_are_skipped),
        cmocka_unit_test(a_row_whose_names_failed_is_not_written),
        cmocka_unit_test(a_write_that_cannot_be_writes_nothing),
        cmocka_unit_test(random_steps_equal_the_same_steps_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
