/* SPDX-License-Identifier: Apache-2.0 */
/* One sequence from its first token to its last: reserve, write, commit, gather, and what each refuses. Field cases C
 * and E. Names and publication are in names.c, admission in admit.c. */
#include "support/support.h"

enum { page_tokens = 4 };

/* A sequence of `committed` tokens with ids 1, 2, 3 ... and rows of `tag`. */
static pkv_table *sequence_of(pkv_pool *pool, uint64_t committed, uint32_t tag) {
    pkv_token tokens[64];
    count_up(tokens, committed, 1);
    const pkv_prompt prompt = prompt_of(tokens, committed);
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

/* Writes zeros into one layer. */
static pkv_status write_zeros(pkv_table *table, uint32_t layer, uint64_t position, uint64_t count) {
    static uint16_t zeros[64 * 8];
    const pkv_tensor tensor = rows_at(zeros, count);
    return pkv_table_write(table, 0, layer, position, count, &tensor, &tensor, NULL);
}

/* Gathers one layer into memory that must stay as it is when the call fails. */
static pkv_status gather_layer(pkv_table *table, uint32_t layer, uint64_t position, uint64_t count) {
    uint16_t k[64 * 8], v[64 * 8];
    memset(k, 0x5A, sizeof k);
    memset(v, 0x5A, sizeof v);
    const pkv_tensor tensors[2] = {rows_at(k, 64), rows_at(v, 64)};
    const pkv_status status = pkv_table_gather(table, 0, layer, position, count, &tensors[0], &tensors[1], NULL);
    if (status != PKV_OK)
        for (size_t i = 0; i < 64 * 8; ++i) assert_true(k[i] == 0x5A5A && v[i] == 0x5A5A);
    return status;
}

static void a_table_before_admit_has_no_sequence(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, page_tokens);
    pkv_table *table = NULL, *fork = NULL;
    assert_ok(pkv_table_create(pool, &table));
    const pkv_token token = 1;
    pkv_slot slot;
    assert_status(pkv_table_reserve(table, 4), PKV_ERR_STATE);
    assert_status(pkv_table_set_tokens(table, 0, 1, &token), PKV_ERR_STATE);
    assert_status(pkv_table_commit(table, 0, NULL), PKV_ERR_STATE);
    assert_status(pkv_table_truncate(table, 0, NULL), PKV_ERR_STATE);
    assert_status(pkv_table_fork(table, NULL, &fork), PKV_ERR_STATE);
    assert_true(pkv_table_slots(table, 0, 0, 1, &slot) != PKV_OK);
    assert_true(write_zeros(table, 0, 0, 1) != PKV_OK);
    assert_true(gather_layer(table, 0, 0, 1) != PKV_OK);
    uint64_t blocks = 9;
    assert_ok(pkv_table_pages(table, 0, NULL, 0, &blocks));
    assert_int_equal(blocks, 0);
    assert_int_equal(info_of(table).reserved, 0);
    end_table(table);
    end_pool(pool);
}

static void rows_survive_from_write_to_gather_in_every_layer(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 7, 1);
    write_and_commit(table, 8, 1);
    write_and_commit(table, 15, 1);
    check_rows(table, 0, 15, 1);
    for (uint64_t position = 0; position < 15; ++position) check_rows(table, position, 15 - position, 1);
    end_table(table);
    end_pool(pool);
}

static void reserve_counts_from_the_start_and_repeats_without_harm(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 6, 1);
    assert_ok(pkv_table_reserve(table, 13));
    assert_int_equal(info_of(table).reserved, 16);
    assert_ok(pkv_table_reserve(table, 13));
    assert_ok(pkv_table_reserve(table, 2));
    assert_ok(pkv_table_reserve(table, 0));
    assert_int_equal(info_of(table).reserved, 16);
    assert_int_equal(stats_of(pool).held_pages, 4);
    assert_int_equal(stats_of(pool).allocated_pages, 4);
    end_table(table);
    end_pool(pool);
}

static void an_enormous_reserve_is_refused_and_changes_nothing(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 1);
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(pool, &prompt, NULL);
    assert_ok(pkv_table_reserve(table, 1));
    assert_status(pkv_table_reserve(table, (UINT64_C(1) << 40) + 1), PKV_ERR_LIMIT);
    assert_status(pkv_table_reserve(table, UINT64_MAX), PKV_ERR_LIMIT);
    assert_status(pkv_table_reserve(table, UINT64_C(1) << 40), PKV_ERR_NO_PAGES);
    assert_int_equal(info_of(table).reserved, 1);
    end_table(table);
    end_pool(pool);
}

static void case_C04_a_reserve_without_room_keeps_what_the_sequence_had(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, page_tokens);
    pkv_table *table = sequence_of(pool, 8, 1);
    const pkv_page pages[2] = {page_at(table, 0), page_at(table, 1)};
    assert_status(pkv_table_reserve(table, 20), PKV_ERR_NO_PAGES);
    assert_int_equal(info_of(table).blocks, 2);
    assert_int_equal(info_of(table).reserved, 8);
    assert_int_equal(stats_of(pool).free_pages, 2);
    assert_int_equal(page_at(table, 0), pages[0]);
    assert_int_equal(page_at(table, 1), pages[1]);
    check_rows(table, 0, 8, 1);
    write_and_commit(table, 16, 1);
    check_rows(table, 0, 16, 1);
    end_table(table);
    end_pool(pool);
}

static void case_C10_a_prompt_shorter_than_a_page_leaves_nothing_behind(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 16);
    for (int round = 0; round < 20; ++round) {
        pkv_table *table = sequence_of(pool, 3, 1);
        assert_int_equal(stats_of(pool).held_pages, 1);
        end_table(table);
        assert_int_equal(stats_of(pool).free_pages, 8);
        assert_int_equal(stats_of(pool).cached_pages, 0);
    }
    end_pool(pool);
}

static void case_C13_released_pages_count_as_cached_and_not_as_held(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 20, 1);
    assert_int_equal(info_of(table).published, 20);
    end_table(table);
    const pkv_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.held_pages, 0);
    assert_int_equal(stats.cached_pages, 5);
    assert_int_equal(stats.free_pages + stats.cached_pages, 8);
    end_pool(pool);
}

static void case_E13_one_reserve_takes_as_many_pages_as_it_needs(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 4, 1);
    assert_int_equal(info_of(table).blocks, 1);
    write_and_commit(table, 13, 1);
    assert_int_equal(info_of(table).blocks, 4);
    check_rows(table, 0, 13, 1);
    end_table(table);
    end_pool(pool);
}

static void case_E16_slots_follow_the_block_table(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_page all[8];
    assert_ok(pkv_pool_alloc(pool, 0, 8, all));
    const pkv_page first_used[2] = {7, 2}; /* the last one freed is given first, and a list is freed from its end */
    assert_ok(pkv_pool_release(pool, 0, 2, first_used, NULL, NULL));
    pkv_table *table = sequence_of(pool, 3, 1);
    assert_ok(pkv_table_reserve(table, 5));
    assert_int_equal(page_at(table, 0), 7);
    assert_int_equal(page_at(table, 1), 2);
    pkv_slot slots[2];
    assert_ok(pkv_table_slots(table, 0, 3, 2, slots));
    assert_int_equal(slots[0], 31);
    assert_int_equal(slots[1], 8);
    write_rows(table, 3, 2, 1);
    check_rows(table, 0, 5, 1);
    end_table(table);
    for (pkv_page page = 0; page < 8; ++page)
        if (page != 7 && page != 2) assert_ok(pkv_pool_release(pool, 0, 1, &page, NULL, NULL));
    end_pool(pool);
}

static void slots_lie_inside_the_reserved_room(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 6, 1);
    pkv_slot slots[9] = {-7, -7, -7, -7, -7, -7, -7, -7, -7};
    assert_status(pkv_table_slots(table, 0, 0, 9, slots), PKV_ERR_INVALID);
    assert_status(pkv_table_slots(table, 0, 8, 1, slots), PKV_ERR_INVALID);
    assert_status(pkv_table_slots(table, 0, UINT64_MAX, 2, slots), PKV_ERR_INVALID);
    assert_status(pkv_table_slots(table, 1, 0, 1, slots), PKV_ERR_INVALID);
    for (int i = 0; i < 9; ++i) assert_int_equal(slots[i], -7);
    assert_ok(pkv_table_slots(table, 0, 0, 8, slots));
    for (int i = 0; i < 8; ++i) assert_int_equal(slots[i], page_at(table, (uint64_t)i / 4) * 4 + i % 4);
    assert_ok(pkv_table_slots(table, 0, 8, 0, slots));
    end_table(table);
    end_pool(pool);
}

static void pages_says_how_many_there_are_when_they_do_not_fit(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 12, 1);
    pkv_page pages[4] = {-7, -7, -7, -7};
    uint64_t blocks = 0;
    assert_status(pkv_table_pages(table, 0, pages, 2, &blocks), PKV_ERR_NO_SPACE);
    assert_int_equal(blocks, 3);
    assert_int_equal(pages[0], -7);
    assert_ok(pkv_table_pages(table, 0, pages, 4, &blocks));
    assert_int_equal(blocks, 3);
    assert_int_equal(pages[3], -7);
    assert_status(pkv_table_pages(table, 1, pages, 4, &blocks), PKV_ERR_INVALID);
    assert_status(pkv_table_pages(table, 0, pages, 4, NULL), PKV_ERR_INVALID);
    end_table(table);
    end_pool(pool);
}

static void commit_goes_from_committed_to_reserved_and_no_further(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 6, 1);
    assert_status(pkv_table_commit(table, 5, NULL), PKV_ERR_INVALID);
    assert_status(pkv_table_commit(table, 9, NULL), PKV_ERR_INVALID);
    assert_status(pkv_table_commit(table, UINT64_MAX, NULL), PKV_ERR_INVALID);
    assert_int_equal(info_of(table).committed, 6);
    assert_ok(pkv_table_commit(table, 6, NULL));
    write_rows(table, 6, 2, 1);
    assert_ok(pkv_table_commit(table, 8, NULL));
    assert_int_equal(info_of(table).committed, 8);
    end_table(table);
    end_pool(pool);
}

static void a_write_to_committed_rows_is_refused_and_writes_nothing(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 6, 1);
    assert_ok(pkv_table_reserve(table, 8));
    assert_status(write_zeros(table, 0, 5, 1), PKV_ERR_INVALID);
    assert_status(write_zeros(table, 0, 5, 3), PKV_ERR_INVALID);
    assert_status(write_zeros(table, 0, 0, 8), PKV_ERR_INVALID);
    check_rows(table, 0, 6, 1);
    end_table(table);
    end_pool(pool);
}

static void a_write_past_the_reserved_room_is_refused_and_writes_nothing(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 5, 1);
    write_rows(table, 5, 3, 1);
    assert_status(write_zeros(table, 0, 5, 4), PKV_ERR_INVALID);
    assert_status(write_zeros(table, 0, 8, 1), PKV_ERR_INVALID);
    assert_status(write_zeros(table, 0, UINT64_MAX, 2), PKV_ERR_INVALID);
    assert_status(write_zeros(table, 2, 5, 1), PKV_ERR_INVALID);
    check_rows(table, 0, 8, 1);
    end_table(table);
    end_pool(pool);
}

static void uncommitted_rows_may_be_written_again(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 5, 1);
    assert_ok(pkv_table_reserve(table, 11));
    write_rows(table, 5, 6, 2);
    write_rows(table, 7, 4, 3);
    check_rows(table, 0, 5, 1);
    check_rows(table, 5, 2, 2);
    check_rows(table, 7, 4, 3);
    end_table(table);
    end_pool(pool);
}

static void rows_that_were_never_written_are_not_readable(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 5, 1);
    assert_ok(pkv_table_reserve(table, 12));
    assert_status(gather_layer(table, 0, 5, 1), PKV_ERR_INVALID);
    assert_status(gather_layer(table, 0, 0, 6), PKV_ERR_INVALID);
    assert_status(gather_layer(table, 0, 11, 1), PKV_ERR_INVALID);
    assert_status(gather_layer(table, 0, UINT64_MAX, 2), PKV_ERR_INVALID);
    assert_ok(write_zeros(table, 0, 5, 2));
    assert_ok(gather_layer(table, 0, 5, 2));
    assert_status(gather_layer(table, 0, 5, 3), PKV_ERR_INVALID);
    assert_status(gather_layer(table, 1, 5, 1), PKV_ERR_INVALID); /* the other layer is not written yet */
    assert_status(gather_layer(table, 2, 0, 1), PKV_ERR_INVALID);
    end_table(table);
    end_pool(pool);
}

static void rows_written_with_a_gap_before_them_are_readable_only_with_the_gap_filled(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 4, 1);
    assert_ok(pkv_table_reserve(table, 12));
    write_rows(table, 8, 4, 1);
    assert_status(gather_layer(table, 0, 8, 1), PKV_ERR_INVALID);
    assert_status(gather_layer(table, 0, 4, 1), PKV_ERR_INVALID);
    write_rows(table, 4, 4, 1);
    check_rows(table, 0, 8, 1);
    assert_ok(pkv_table_commit(table, 12, NULL));
    check_rows(table, 0, 12, 1);
    end_table(table);
    end_pool(pool);
}

static void rows_that_were_cut_off_are_not_readable_after_growing_again(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 5, 1);
    assert_ok(pkv_table_reserve(table, 8));
    write_rows(table, 5, 3, 1);
    assert_ok(pkv_table_truncate(table, 6, NULL));
    check_rows(table, 0, 6, 1);
    assert_ok(pkv_table_reserve(table, 8));
    assert_status(gather_layer(table, 0, 6, 1), PKV_ERR_INVALID);
    end_table(table);
    end_pool(pool);
}

static void rows_written_by_a_kernel_over_slots_are_committed_like_others(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(pool, &prompt, NULL);
    assert_ok(pkv_table_reserve(table, 6));
    pkv_slot slots[6];
    assert_ok(pkv_table_slots(table, 0, 0, 6, slots));
    for (uint32_t layer = 0; layer < 2; ++layer) {
        pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
        assert_ok(pkv_pool_layout(pool, 0, layer, &layout));
        for (uint16_t i = 0; i < 6; ++i)
            for (uint64_t head = 0; head < 2; ++head) {
                const uint64_t page = (uint64_t)slots[i] / page_tokens, offset = (uint64_t)slots[i] % page_tokens;
                char *k = (char *)layout.k_base + page * layout.k.page + offset * layout.k.token + head * layout.k.head;
                memset(k, i + 1, layout.k_row_bytes);
            }
    }
    assert_status(gather_layer(table, 0, 0, 1), PKV_ERR_INVALID);
    assert_ok(pkv_table_commit(table, 6, NULL));
    uint16_t rows[6 * 8];
    const pkv_tensor k = rows_at(rows, 6);
    assert_ok(pkv_table_gather(table, 0, 1, 0, 6, &k, NULL, NULL));
    for (uint16_t i = 0; i < 6 * 8; ++i) assert_int_equal(rows[i], (i / 8 + 1) * 0x0101);
    end_table(table);
    end_pool(pool);
}

static void case_E19_the_same_request_gives_the_same_rows_each_time(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[10];
    count_up(tokens, 10, 1);
    const pkv_prompt prompt = prompt_of(tokens, 10);
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    for (int round = 0; round < 3; ++round) {
        pkv_match match = PKV_MATCH_INIT;
        assert_ok(pkv_table_admit(table, &prompt, NULL, &match));
        assert_int_equal(match.tokens, round == 0 ? 0 : 8);
        assert_int_equal(info_of(table).committed, match.tokens);
        write_and_commit(table, 10, 1);
        check_rows(table, 0, 10, 1);
        write_and_commit(table, 13, 2 + (uint32_t)round); /* another answer each time */
        check_rows(table, 0, 10, 1);
        assert_ok(pkv_table_clear(table, NULL));
    }
    end_table(table);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_before_admit_has_no_sequence),
        cmocka_unit_test(rows_survive_from_write_to_gather_in_every_layer),
        cmocka_unit_test(reserve_counts_from_the_start_and_repeats_without_harm),
        cmocka_unit_test(an_enormous_reserve_is_refused_and_changes_nothing),
        cmocka_unit_test(case_C04_a_reserve_without_room_keeps_what_the_sequence_had),
        cmocka_unit_test(case_C10_a_prompt_shorter_than_a_page_leaves_nothing_behind),
        cmocka_unit_test(case_C13_released_pages_count_as_cached_and_not_as_held),
        cmocka_unit_test(case_E13_one_reserve_takes_as_many_pages_as_it_needs),
        cmocka_unit_test(case_E16_slots_follow_the_block_table),
        cmocka_unit_test(slots_lie_inside_the_reserved_room),
        cmocka_unit_test(pages_says_how_many_there_are_when_they_do_not_fit),
        cmocka_unit_test(commit_goes_from_committed_to_reserved_and_no_further),
        cmocka_unit_test(a_write_to_committed_rows_is_refused_and_writes_nothing),
        cmocka_unit_test(a_write_past_the_reserved_room_is_refused_and_writes_nothing),
        cmocka_unit_test(uncommitted_rows_may_be_written_again),
        cmocka_unit_test(rows_that_were_never_written_are_not_readable),
        cmocka_unit_test(rows_written_with_a_gap_before_them_are_readable_only_with_the_gap_filled),
        cmocka_unit_test(rows_that_were_cut_off_are_not_readable_after_growing_again),
        cmocka_unit_test(rows_written_by_a_kernel_over_slots_are_committed_like_others),
        cmocka_unit_test(case_E19_the_same_request_gives_the_same_rows_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
