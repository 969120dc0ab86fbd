/* SPDX-License-Identifier: Apache-2.0 */
/* From reserve to commit: what refuses a whole step and leaves everything alone, accepted counts, copy-on-write, and
 * tables that change under a step. Field cases F and H. */
#include "support/support.h"

enum { page_tokens = 4, max_tables = 3, max_blocks = 4, max_tokens = 8, max_indices = 8 };

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

static pkv_batch *make_batch(pkv_pool *pool, step_arrays *arrays) {
    memset(arrays, 0, sizeof *arrays);
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
    pkv_batch *batch = NULL;
    assert_ok(pkv_batch_create(pool, &options, &batch));
    return batch;
}

static pkv_table *sequence_of(pkv_pool *pool, uint64_t committed, uint32_t tag) {
    pkv_token tokens[64];
    count_up(tokens, committed, 1000 * (pkv_token)tag);
    const pkv_prompt prompt = prompt_of(tokens, committed);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, committed, tag);
    return table;
}

static pkv_tensor zeros_of(uint64_t num_tokens) {
    static uint16_t zeros[64 * 8];
    pkv_tensor tensor = PKV_TENSOR_INIT;
    tensor.data = zeros;
    tensor.dtype = PKV_DTYPE_F16;
    tensor.num_tokens = num_tokens;
    return tensor;
}

/* What a step can be refused for. */
enum { listed_twice, of_another_pool, too_many_tables, too_many_tokens, too_many_blocks, too_many_indices, refusals };

typedef struct {
    pkv_pool *pool, *other;
    pkv_batch *batch;
    step_arrays arrays;
    pkv_table *tables[4], *foreign;
} fixture;

/* A step of two tables is under way. */
static fixture *begin(void) {
    fixture *f = calloc(1, sizeof *f);
    f->pool = make_pool(32, page_tokens);
    f->other = make_pool(4, page_tokens);
    f->batch = make_batch(f->pool, &f->arrays);
    const uint64_t lengths[4] = {7, 4, 10, 2};
    for (uint32_t i = 0; i < 4; ++i) f->tables[i] = sequence_of(f->pool, lengths[i], 1 + i);
    f->foreign = sequence_of(f->other, 3, 5);
    const uint32_t num_new[2] = {1, 1};
    assert_ok(pkv_batch_reserve(f->batch, 2, f->tables, num_new, NULL));
    return f;
}

static void end(fixture *f) {
    for (int i = 0; i < 4; ++i) end_table(f->tables[i]);
    end_table(f->foreign);
    assert_ok(pkv_batch_destroy(f->batch));
    end_pool(f->pool);
    end_pool(f->other);
    free(f);
}

/* Asks for a step that is refused. */
static void ask(fixture *f, int which) {
    pkv_table **t = f->tables;
    pkv_table *const lists[refusals][4] = {{t[2], t[3], t[2]}, {t[2], f->foreign}, {t[2], t[3], t[0], t[1]},
                                           {t[2], t[3], t[0]}, {t[3], t[2]},       {t[2], t[0], t[1]}};
    const uint32_t counts[refusals] = {3, 2, 4, 3, 2, 3};
    const uint32_t num_new[refusals][4] = {{1, 1, 1}, {1, 1}, {1, 1, 1, 1}, {3, 3, 3}, {1, 7}, {3, 2, 1}};
    pkv_table_info before[4];
    for (int i = 0; i < 4; ++i) before[i] = info_of(t[i]);
    const pkv_status expected = which <= of_another_pool ? PKV_ERR_INVALID : PKV_ERR_LIMIT;
    assert_status(pkv_batch_reserve(f->batch, counts[which], lists[which], num_new[which], NULL), expected);
    for (int i = 0; i < 4; ++i) {
        const pkv_table_info now = info_of(t[i]);
        assert_memory_equal(&now, &before[i], sizeof now);
    }
    assert_int_equal(info_of(f->foreign).reserved, 4);
}

static void refused(int which) {
    fixture *f = begin();
    ask(f, which);
    end(f);
}

static void a_table_listed_twice_refuses_the_step(void **state) {
    (void)state;
    refused(listed_twice);
}

static void a_table_of_another_pool_refuses_the_step(void **state) {
    (void)state;
    refused(of_another_pool);
}

static void more_tables_than_rows_refuse_the_step(void **state) {
    (void)state;
    refused(too_many_tables);
}

static void more_new_tokens_than_slots_refuse_the_step(void **state) {
    (void)state;
    refused(too_many_tokens);
}

static void case_H04_a_block_past_the_row_of_the_table_refuses_the_step(void **state) {
    (void)state;
    refused(too_many_blocks); /* width 4, P = 4: position 16 has no column */
}

static void more_blocks_than_indices_refuse_the_step(void **state) {
    (void)state;
    refused(too_many_indices);
}

static void a_refused_step_leaves_the_arrays_and_the_step_under_way_as_they_were(void **state) {
    (void)state;
    for (int which = 0; which < refusals; ++which) {
        fixture *f = begin();
        const step_arrays before = f->arrays;
        ask(f, which);
        assert_memory_equal(&f->arrays, &before, sizeof before);
        assert_ok(pkv_batch_commit(f->batch, NULL, NULL, NULL));
        assert_int_equal(info_of(f->tables[0]).committed, 8);
        end(f);
    }
}

static void a_refused_first_step_begins_none(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    pkv_table *tables[2] = {sequence_of(pool, 3, 1)};
    tables[1] = tables[0];
    const uint32_t num_new[2] = {1, 1};
    assert_status(pkv_batch_reserve(batch, 2, tables, num_new, NULL), PKV_ERR_INVALID);
    assert_status(pkv_batch_commit(batch, NULL, NULL, NULL), PKV_ERR_STATE);
    end_table(tables[0]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void outside_a_step_nothing_is_done(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    const pkv_token token = 1;
    const pkv_tensor rows = zeros_of(1);
    pkv_table *table = sequence_of(pool, 3, 1);
    const uint32_t one = 1;
    for (int round = 0; round < 2; ++round) {
        assert_status(pkv_batch_set_tokens(batch, 1, &token, NULL), PKV_ERR_STATE);
        assert_status(pkv_batch_write(batch, 0, 0, &rows, &rows, NULL), PKV_ERR_STATE);
        assert_status(pkv_batch_gather(batch, 0, 0, NULL, 0, &rows, NULL, NULL), PKV_ERR_STATE);
        assert_status(pkv_batch_commit(batch, NULL, NULL, NULL), PKV_ERR_STATE);
        if (round == 0) {
            assert_ok(pkv_batch_reserve(batch, 1, &table, &one, NULL));
            assert_ok(pkv_batch_commit(batch, NULL, NULL, NULL));
        }
    }
    end_table(table);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void another_number_of_tokens_than_the_step_has_is_refused(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    pkv_table *tables[2] = {sequence_of(pool, 3, 1), sequence_of(pool, 5, 2)};
    const uint32_t num_new[2] = {1, 3};
    pkv_token tokens[5];
    count_up(tokens, 5, 50);
    assert_ok(pkv_batch_reserve(batch, 2, tables, num_new, NULL));
    assert_status(pkv_batch_set_tokens(batch, 3, tokens, NULL), PKV_ERR_INVALID);
    assert_status(pkv_batch_set_tokens(batch, 5, tokens, NULL), PKV_ERR_INVALID);
    assert_int_equal(info_of(tables[0]).named, 3);
    assert_ok(pkv_batch_set_tokens(batch, 4, tokens, NULL));
    assert_int_equal(info_of(tables[0]).named, 4);
    assert_int_equal(info_of(tables[1]).named, 8);
    for (int i = 0; i < 2; ++i) end_table(tables[i]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void accepted_tokens_are_kept_and_the_others_forgotten(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    pkv_table *tables[3] = {sequence_of(pool, 7, 1), sequence_of(pool, 3, 2), sequence_of(pool, 4, 3)};
    const uint32_t num_new[3] = {2, 3, 2}, accepted[3] = {0, 1, 2}, too_many[3] = {0, 4, 2};
    pkv_token tokens[7];
    count_up(tokens, 7, 50);
    assert_ok(pkv_batch_reserve(batch, 3, tables, num_new, NULL));
    assert_ok(pkv_batch_set_tokens(batch, 7, tokens, NULL));
    assert_status(pkv_batch_commit(batch, too_many, NULL, NULL), PKV_ERR_INVALID);
    assert_int_equal(info_of(tables[0]).committed, 7);
    assert_ok(pkv_batch_commit(batch, accepted, NULL, NULL));
    const uint64_t expected[3] = {7, 4, 6};
    for (int i = 0; i < 3; ++i) {
        assert_int_equal(info_of(tables[i]).committed, expected[i]);
        assert_int_equal(info_of(tables[i]).named, expected[i]);
        assert_int_equal(info_of(tables[i]).published, expected[i] / 4 * 4);
        assert_int_equal(info_of(tables[i]).blocks, (expected[i] + 3) / 4);
    }
    for (int i = 0; i < 3; ++i) end_table(tables[i]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void full_named_blocks_are_published_by_the_commit_of_the_step(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    pkv_table *table = sequence_of(pool, 3, 1);
    pkv_token tokens[4];
    count_up(tokens, 4, 1000);
    const pkv_prompt prompt = prompt_of(tokens, 4);
    const uint32_t one = 1;
    assert_ok(pkv_batch_reserve(batch, 1, &table, &one, NULL));
    assert_ok(pkv_batch_set_tokens(batch, 1, &tokens[3], NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_ok(pkv_batch_commit(batch, NULL, NULL, NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 4);
    end_table(table);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void a_step_copies_shared_blocks_before_the_arrays_name_them(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    pkv_table *tables[3] = {sequence_of(pool, 6, 1)};
    tables[1] = fork_of(tables[0]);
    tables[2] = fork_of(tables[0]);
    const uint32_t num_new[3] = {1, 1, 0};
    assert_ok(pkv_batch_reserve(batch, 3, tables, num_new, NULL));
    assert_int_equal(stats_of(pool).copied_pages, 2); /* the last one writes nothing in this step */
    for (int r = 0; r < 3; ++r) {
        assert_int_equal(arrays.block_table[r][0], page_at(tables[0], 0));
        assert_int_equal(arrays.block_table[r][1], page_at(tables[r], 1));
        check_rows(tables[r], 0, 6, 1);
    }
    assert_int_not_equal(arrays.slots[0], arrays.slots[1]);
    assert_int_equal(arrays.slots[1], arrays.block_table[1][1] * page_tokens + 2);
    for (int i = 0; i < 3; ++i) end_table(tables[i]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

/* ---- tables that change under a step ---- */

static void a_table_destroyed_inside_a_step_is_gone_after_it(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    pkv_table *tables[2] = {sequence_of(pool, 3, 1), sequence_of(pool, 6, 2)};
    const uint32_t num_new[2] = {1, 1};
    const pkv_tensor rows = zeros_of(2);
    assert_ok(pkv_batch_reserve(batch, 2, tables, num_new, NULL));
    end_table(tables[0]);
    assert_status(pkv_table_destroy(tables[0], NULL), PKV_ERR_HANDLE);
    (void)pkv_batch_write(batch, 0, 0, &rows, &rows, NULL);
    pkv_status statuses[2];
    (void)pkv_batch_commit(batch, NULL, statuses, NULL);
    assert_int_equal(statuses[1], PKV_OK);
    assert_int_equal(info_of(tables[1]).committed, 7);
    assert_int_equal(stats_of(pool).tables, 1);
    check_rows(tables[1], 0, 6, 2);
    end_table(tables[1]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void a_batch_destroyed_inside_a_step_leaves_its_tables_alive(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    pkv_table *tables[2] = {sequence_of(pool, 3, 1), sequence_of(pool, 6, 2)};
    const uint32_t num_new[2] = {1, 1};
    assert_ok(pkv_batch_reserve(batch, 2, tables, num_new, NULL));
    const step_arrays before = arrays;
    assert_ok(pkv_batch_destroy(batch));
    write_and_commit(tables[0], 9, 1);
    check_rows(tables[0], 0, 9, 1);
    end_table(tables[0]);
    end_table(tables[1]);
    assert_memory_equal(&arrays, &before, sizeof arrays);
    end_pool(pool);
}

static void after_its_pool_a_batch_is_closed(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    pkv_table *table = sequence_of(pool, 3, 1);
    const uint32_t one = 1;
    assert_ok(pkv_batch_reserve(batch, 1, &table, &one, NULL));
    assert_ok(pkv_pool_destroy(pool));
    assert_status(pkv_batch_commit(batch, NULL, NULL, NULL), PKV_ERR_CLOSED);
    assert_status(pkv_batch_reserve(batch, 1, &table, &one, NULL), PKV_ERR_CLOSED);
    end_table(table);
    assert_ok(pkv_batch_destroy(batch));
}

static void a_table_cleared_inside_a_step_gives_its_pages_away_for_good(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(2, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    pkv_table *tables[2] = {sequence_of(pool, 3, 1), sequence_of(pool, 2, 2)};
    const uint32_t num_new[2] = {1, 1};
    assert_ok(pkv_batch_reserve(batch, 2, tables, num_new, NULL));
    assert_ok(pkv_table_clear(tables[0], NULL));
    pkv_table *heir = sequence_of(pool, 4, 3); /* has the page now */
    const pkv_tensor rows = zeros_of(2);
    (void)pkv_batch_write(batch, 0, 0, &rows, &rows, NULL);
    (void)pkv_batch_write(batch, 0, 1, &rows, &rows, NULL);
    check_rows(heir, 0, 4, 3);
    (void)pkv_batch_commit(batch, NULL, NULL, NULL);
    check_rows(heir, 0, 4, 3);
    end_table(heir);
    for (int i = 0; i < 2; ++i) end_table(tables[i]);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void rows_committed_inside_a_step_do_not_change_any_more(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    pkv_table *table = sequence_of(pool, 3, 1);
    const uint32_t one = 1;
    assert_ok(pkv_batch_reserve(batch, 1, &table, &one, NULL));
    write_and_commit(table, 4, 1);
    const pkv_tensor rows = zeros_of(1);
    (void)pkv_batch_write(batch, 0, 0, &rows, &rows, NULL);
    check_rows(table, 0, 4, 1);
    end_table(table);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

static void a_table_forked_inside_a_step_is_not_written_into(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    step_arrays arrays;
    pkv_batch *batch = make_batch(pool, &arrays);
    pkv_table *table = sequence_of(pool, 5, 1);
    const uint32_t one = 1;
    assert_ok(pkv_batch_reserve(batch, 1, &table, &one, NULL));
    pkv_table *fork = fork_of(table);
    const pkv_tensor rows = zeros_of(1);
    assert_status(pkv_batch_write(batch, 0, 0, &rows, &rows, NULL), PKV_ERR_STATE);
    assert_status(pkv_batch_commit(batch, NULL, NULL, NULL), PKV_ERR_STATE);
    assert_ok(pkv_batch_reserve(batch, 1, &table, &one, NULL));
    assert_ok(pkv_batch_write(batch, 0, 0, &rows, &rows, NULL));
    assert_ok(pkv_batch_commit(batch, NULL, NULL, NULL));
    check_rows(fork, 0, 5, 1);
    check_rows(table, 0, 5, 1);
    end_table(fork);
    end_table(table);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_listed_twice_refuses_the_step),
        cmocka_unit_test(a_table_of_another_pool_refuses_the_step),
        cmocka_unit_test(more_tables_than_rows_refuse_the_step),
        cmocka_unit_test(more_new_tokens_than_slots_refuse_the_step),
        cmocka_unit_test(case_H04_a_block_past_the_row_of_the_table_refuses_the_step),
        cmocka_unit_test(more_blocks_than_indices_refuse_the_step),
        cmocka_unit_test(a_refused_step_leaves_the_arrays_and_the_step_under_way_as_they_were),
        cmocka_unit_test(a_refused_first_step_begins_none),
        cmocka_unit_test(outside_a_step_nothing_is_done),
        cmocka_unit_test(another_number_of_tokens_than_the_step_has_is_refused),
        cmocka_unit_test(accepted_tokens_are_kept_and_the_others_forgotten),
        cmocka_unit_test(full_named_blocks_are_published_by_the_commit_of_the_step),
        cmocka_unit_test(a_step_copies_shared_blocks_before_the_arrays_name_them),
        cmocka_unit_test(a_table_destroyed_inside_a_step_is_gone_after_it),
        cmocka_unit_test(a_batch_destroyed_inside_a_step_leaves_its_tables_alive),
        cmocka_unit_test(after_its_pool_a_batch_is_closed),
        cmocka_unit_test(a_table_cleared_inside_a_step_gives_its_pages_away_for_good),
        cmocka_unit_test(rows_committed_inside_a_step_do_not_change_any_more),
        cmocka_unit_test(a_table_forked_inside_a_step_is_not_written_into),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
