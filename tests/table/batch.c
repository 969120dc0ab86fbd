/* SPDX-License-Identifier: Apache-2.0 */
/* The step of many sequences: what the caller's arrays say, which rows fail alone, and what refuses a whole step. Rows
 * of K and V are in batch_rows.c. Field cases F, H. */
#include "support/support.h"

#include <sys/mman.h>

enum { page_tokens = 4, max_tables = 6, max_blocks = 5, max_tokens = 24, max_indices = 20, fill = -9 };

typedef struct {
    int32_t block_table[max_tables][max_blocks];
    int32_t indptr[max_tables + 1];
    int32_t indices[max_indices];
    int32_t last_page_len[max_tables];
    int32_t lengths[max_tables];
    int64_t slots[max_tokens];
} step_arrays;

/* The arrays of group 0; options that are made here point to it. */
static pkv_batch_arrays group_arrays;

static pkv_batch_options options_for(step_arrays *arrays) {
    const pkv_batch_arrays none = PKV_BATCH_ARRAYS_INIT;
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    group_arrays = none;
    options.num_arrays = 1;
    options.arrays = &group_arrays;
    options.max_tables = max_tables;
    options.max_tokens = max_tokens;
    group_arrays.max_blocks = max_blocks;
    group_arrays.max_indices = max_indices;
    group_arrays.block_table = &arrays->block_table[0][0];
    group_arrays.block_indptr = arrays->indptr;
    group_arrays.block_indices = arrays->indices;
    options.last_page_len = arrays->last_page_len;
    options.lengths = arrays->lengths;
    group_arrays.slot_mapping = arrays->slots;
    group_arrays.fill = fill;
    return options;
}

static pkv_batch *make_batch(pkv_pool *pool, step_arrays *arrays) {
    memset(arrays, 0x77, sizeof *arrays);
    const pkv_batch_options options = options_for(arrays);
    pkv_batch *batch = NULL;
    assert_ok(pkv_batch_create(pool, &options, &batch));
    return batch;
}

/* A sequence of `committed` tokens, none of them like another's. */
static pkv_table *sequence_of(pkv_pool *pool, uint64_t committed) {
    static pkv_token next = 1000;
    pkv_token tokens[64];
    count_up(tokens, committed, next += 100);
    const pkv_prompt prompt = prompt_of(tokens, committed);
    pkv_table *table = admit(pool, &prompt, NULL);
    assert_ok(pkv_table_reserve(table, committed));
    assert_ok(pkv_table_commit(table, committed, NULL));
    return table;
}

/* The arrays say of each row what its table says; a row with good[r] == false is empty. */
static void check_arrays(const step_arrays *arrays, uint32_t num, pkv_table *const *tables, const uint32_t *num_new,
                         const bool *good) {
    int32_t at = 0;
    uint32_t token = 0;
    for (uint32_t r = 0; r < max_tables; ++r) {
        const bool present = r < num && (good == NULL || good[r]);
        pkv_page pages[64];
        uint64_t blocks = 0, committed = 0, length = 0, used = 0;
        if (present) {
            committed = info_of(tables[r]).committed;
            length = committed + num_new[r];
            used = (length + page_tokens - 1) / page_tokens;
            assert_ok(pkv_table_pages(tables[r], 0, pages, 64, &blocks));
        }
        assert_int_equal(arrays->lengths[r], length);
        assert_int_equal(arrays->last_page_len[r], length == 0 ? 0 : (length - 1) % page_tokens + 1);
        assert_int_equal(arrays->indptr[r], at);
        for (uint64_t i = 0; i < max_blocks; ++i)
            assert_int_equal(arrays->block_table[r][i], i < used ? pages[i] : fill);
        for (uint64_t i = 0; i < used; ++i) assert_int_equal(arrays->indices[at++], pages[i]);
        for (uint32_t i = 0; r < num && i < num_new[r]; ++i, ++token) {
            const uint64_t position = committed + i;
            const int64_t slot =
                (int64_t)pages[position / page_tokens] * page_tokens + (int64_t)(position % page_tokens);
            assert_int_equal(arrays->slots[token], present ? slot : PKV_NO_SLOT);
        }
    }
    assert_int_equal(arrays->indptr[max_tables], at);
    for (; token < max_tokens; ++token) assert_int_equal(arrays->slots[token], PKV_NO_SLOT);
}

static void a_new_batch_describes_a_step_without_tables(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(16, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    check_arrays(&arrays, 0, NULL, NULL, NULL);
    assert_ok(pkv_batch_reserve(batch, 0, NULL, NULL, NULL));
    check_arrays(&arrays, 0, NULL, NULL, NULL);
    assert_ok(pkv_batch_set_tokens(batch, 0, NULL, NULL));
    assert_ok(pkv_batch_commit(batch, NULL, NULL, NULL));
    assert_ok(pkv_batch_destroy(batch));
    assert_status(pkv_batch_destroy(batch), PKV_ERR_HANDLE);
    end_pool(pool);
}

static void the_arrays_describe_every_row_of_every_step(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(32, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    pkv_table *tables[4] = {sequence_of(pool, 7), sequence_of(pool, 0), sequence_of(pool, 8), sequence_of(pool, 3)};
    const uint32_t steps[5][4] = {{1, 5, 0, 1}, {1, 1, 1, 1}, {4, 0, 0, 2}, {1, 3, 2, 0}, {0, 0, 0, 0}};
    for (int step = 0; step < 5; ++step) {
        assert_ok(pkv_batch_reserve(batch, 4, tables, steps[step], NULL));
        check_arrays(&arrays, 4, tables, steps[step], NULL);
        assert_ok(pkv_batch_commit(batch, NULL, NULL, NULL));
    }
    assert_int_equal(info_of(tables[0]).committed, 14);
    for (int i = 0; i < 4; ++i) end_table(tables[i]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void rows_that_left_are_emptied_and_rows_that_moved_follow_their_table(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(32, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    pkv_table *t[4] = {sequence_of(pool, 7), sequence_of(pool, 12), sequence_of(pool, 8), sequence_of(pool, 3)};
    pkv_table *rows[5][4] = {{t[0], t[1], t[2], NULL},
                             {t[2], t[0], NULL, NULL},
                             {t[3], t[2], t[1], t[0]},
                             {NULL, NULL, NULL, NULL},
                             {t[1], NULL, NULL, NULL}};
    const uint32_t num[5] = {3, 2, 4, 0, 1};
    const uint32_t num_new[4] = {1, 1, 1, 1};
    for (int step = 0; step < 5; ++step) {
        assert_ok(pkv_batch_reserve(batch, num[step], rows[step], num_new, NULL));
        check_arrays(&arrays, num[step], rows[step], num_new, NULL);
        assert_ok(pkv_batch_commit(batch, NULL, NULL, NULL));
    }
    /* One that was cut, cleared and admitted again has other pages in the same row. */
    assert_ok(pkv_table_truncate(t[1], 3, NULL));
    end_table(t[3]);
    assert_ok(pkv_batch_reserve(batch, 1, &t[1], num_new, NULL));
    check_arrays(&arrays, 1, &t[1], num_new, NULL);
    assert_ok(pkv_batch_commit(batch, NULL, NULL, NULL));
    assert_ok(pkv_table_clear(t[1], NULL));
    const pkv_prompt prompt = prompt_of(NULL, 0);
    assert_ok(pkv_table_admit(t[1], &prompt, NULL, NULL));
    assert_ok(pkv_batch_reserve(batch, 1, &t[1], num_new, NULL));
    check_arrays(&arrays, 1, &t[1], num_new, NULL);
    for (int i = 0; i < 3; ++i) end_table(t[i]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void a_step_that_changes_nothing_writes_nothing(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(32, page_tokens);
    step_arrays *arrays = mmap(NULL, sizeof *arrays, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(arrays, MAP_FAILED);
    pkv_batch *batch = make_batch(pool, arrays);
    pkv_table *tables[3] = {sequence_of(pool, 7), sequence_of(pool, 0), sequence_of(pool, 8)};
    const uint32_t num_new[3] = {1, 5, 0};
    assert_ok(pkv_batch_reserve(batch, 3, tables, num_new, NULL));
    assert_int_equal(mprotect(arrays, sizeof *arrays, PROT_READ), 0);
    assert_ok(pkv_batch_reserve(batch, 3, tables, num_new, NULL)); /* a write would end the program */
    assert_int_equal(mprotect(arrays, sizeof *arrays, PROT_READ | PROT_WRITE), 0);
    check_arrays(arrays, 3, tables, num_new, NULL);
    for (int i = 0; i < 3; ++i) end_table(tables[i]);
    assert_ok(pkv_batch_destroy(batch));
    munmap(arrays, sizeof *arrays);
    end_pool(pool);
}

static void a_row_that_grows_gets_its_new_entries_only(void **state) {
    (void)state;
    enum { canary = 0x5A5A5A };
    pkv_pool *pool = make_id_pool(32, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    pkv_table *tables[2] = {sequence_of(pool, 8), sequence_of(pool, 4)};
    const uint32_t num_new[2] = {4, 1};
    assert_ok(pkv_batch_reserve(batch, 2, tables, num_new, NULL));
    assert_ok(pkv_batch_commit(batch, NULL, NULL, NULL));
    arrays.block_table[0][0] = arrays.block_table[0][2] = arrays.block_table[0][4] = arrays.block_table[1][0] = canary;
    assert_ok(pkv_batch_reserve(batch, 2, tables, num_new, NULL));
    assert_int_equal(arrays.block_table[0][0], canary);
    assert_int_equal(arrays.block_table[0][2], canary);
    assert_int_equal(arrays.block_table[0][3], page_at(tables[0], 3));
    assert_int_equal(arrays.block_table[0][4], canary); /* fill before and after */
    assert_int_equal(arrays.block_table[1][0], canary);
    for (int i = 0; i < 2; ++i) end_table(tables[i]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void the_arrays_that_are_not_wanted_may_be_null(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(32, page_tokens);
    pkv_table *table = sequence_of(pool, 7);
    for (int which = 0; which < 6; ++which) {
        step_arrays arrays;
        memset(&arrays, 0x77, sizeof arrays);
        pkv_batch_options options = options_for(&arrays);
        if (which == 0 || which == 5) group_arrays.block_table = NULL;
        if (which == 1 || which == 5) group_arrays.block_indptr = group_arrays.block_indices = NULL;
        if (which == 2 || which == 5) options.last_page_len = NULL;
        if (which == 3 || which == 5) options.lengths = NULL;
        if (which == 4 || which == 5) group_arrays.slot_mapping = NULL;
        pkv_batch *batch = NULL;
        assert_ok(pkv_batch_create(pool, &options, &batch));
        const uint32_t one = 1;
        assert_ok(pkv_batch_reserve(batch, 1, &table, &one, NULL));
        if (which != 5) assert_true(which == 3 || arrays.lengths[0] == (int32_t)info_of(table).committed + 1);
        assert_ok(pkv_batch_commit(batch, NULL, NULL, NULL));
        assert_ok(pkv_batch_destroy(batch));
    }
    assert_int_equal(info_of(table).committed, 13);
    end_table(table);
    end_pool(pool);
}

static void options_that_cannot_be_are_refused(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, page_tokens);
    step_arrays arrays;
    const pkv_batch_options good = options_for(&arrays);
    pkv_batch *batch = NULL;
    pkv_batch_options options = good;
    options.max_tables = 0;
    assert_status(pkv_batch_create(pool, &options, &batch), PKV_ERR_INVALID);
    options = good;
    options.max_tables = 65537;
    assert_true(pkv_batch_create(pool, &options, &batch) != PKV_OK);
    options = good;
    group_arrays.group = 1;
    assert_status(pkv_batch_create(pool, &options, &batch), PKV_ERR_INVALID);
    options = good;
    group_arrays.block_indices = NULL;
    assert_status(pkv_batch_create(pool, &options, &batch), PKV_ERR_INVALID);
    assert_status(pkv_batch_create(NULL, &good, &batch), PKV_ERR_HANDLE);
    assert_null(batch);
    assert_status(pkv_batch_commit(NULL, NULL, NULL, NULL), PKV_ERR_HANDLE);
    end_pool(pool);
}

/* ---- rows that fail alone ---- */

static void a_row_without_pages_is_empty_and_the_others_go_on(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(6, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    pkv_table *tables[3] = {sequence_of(pool, 4), sequence_of(pool, 8), sequence_of(pool, 3)};
    const uint32_t num_new[3] = {2, 8, 1}; /* 2 pages are free: 1 for the first, not 2 for the second */
    const bool good[3] = {true, false, true};
    pkv_status statuses[3] = {99, 99, 99};
    assert_status(pkv_batch_reserve(batch, 3, tables, num_new, statuses), PKV_ERR_NO_PAGES);
    assert_int_equal(statuses[0], PKV_OK);
    assert_int_equal(statuses[1], PKV_ERR_NO_PAGES);
    assert_int_equal(statuses[2], PKV_OK);
    check_arrays(&arrays, 3, tables, num_new, good);
    assert_int_equal(info_of(tables[1]).reserved, 8);
    pkv_token tokens[11];
    count_up(tokens, 11, 1);
    assert_status(pkv_batch_set_tokens(batch, 11, tokens, statuses), PKV_ERR_NO_PAGES);
    assert_int_equal(statuses[1], PKV_ERR_NO_PAGES);
    assert_status(pkv_batch_commit(batch, NULL, statuses, NULL), PKV_ERR_NO_PAGES);
    assert_int_equal(info_of(tables[0]).committed, 6);
    assert_int_equal(info_of(tables[1]).committed, 8);
    assert_int_equal(info_of(tables[2]).committed, 4);
    end_table(tables[0]);
    assert_ok(pkv_batch_reserve(batch, 2, tables + 1, num_new + 1, statuses));
    check_arrays(&arrays, 2, tables + 1, num_new + 1, NULL);
    for (int i = 1; i < 3; ++i) end_table(tables[i]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void a_table_without_a_sequence_fails_alone(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    pkv_table *tables[2] = {NULL, sequence_of(pool, 3)};
    assert_ok(pkv_table_create(pool, &tables[0]));
    const uint32_t num_new[2] = {1, 2};
    const bool good[2] = {false, true};
    pkv_status statuses[2];
    assert_status(pkv_batch_reserve(batch, 2, tables, num_new, statuses), PKV_ERR_STATE);
    assert_int_equal(statuses[0], PKV_ERR_STATE);
    assert_int_equal(statuses[1], PKV_OK);
    check_arrays(&arrays, 2, tables, num_new, good);
    assert_status(pkv_batch_commit(batch, NULL, NULL, NULL), PKV_ERR_STATE);
    assert_int_equal(info_of(tables[1]).committed, 5);
    for (int i = 0; i < 2; ++i) end_table(tables[i]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void a_destroyed_handle_fails_alone(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    pkv_table *tables[3] = {sequence_of(pool, 4), sequence_of(pool, 3), NULL};
    end_table(tables[0]);
    const uint32_t num_new[3] = {1, 2, 1};
    const bool good[3] = {false, true, false};
    pkv_status statuses[3] = {99, 99, 99};
    assert_status(pkv_batch_reserve(batch, 3, tables, num_new, statuses), PKV_ERR_HANDLE);
    assert_int_equal(statuses[0], PKV_ERR_HANDLE);
    assert_int_equal(statuses[1], PKV_OK);
    assert_int_equal(statuses[2], PKV_ERR_HANDLE);
    check_arrays(&arrays, 3, tables, num_new, good);
    assert_status(pkv_batch_commit(batch, NULL, NULL, NULL), PKV_ERR_HANDLE);
    assert_int_equal(info_of(tables[1]).committed, 5);
    end_table(tables[1]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_batch_describes_a_step_without_tables),
        cmocka_unit_test(the_arrays_describe_every_row_of_every_step),
        cmocka_unit_test(rows_that_left_are_emptied_and_rows_that_moved_follow_their_table),
        cmocka_unit_test(a_step_that_changes_nothing_writes_nothing),
        cmocka_unit_test(a_row_that_grows_gets_its_new_entries_only),
        cmocka_unit_test(the_arrays_that_are_not_wanted_may_be_null),
        cmocka_unit_test(options_that_cannot_be_are_refused),
        cmocka_unit_test(a_row_without_pages_is_empty_and_the_others_go_on),
        cmocka_unit_test(a_table_without_a_sequence_fails_alone),
        cmocka_unit_test(a_destroyed_handle_fails_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
