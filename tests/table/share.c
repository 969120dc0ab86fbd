/* SPDX-License-Identifier: Apache-2.0 */
/* Two sequences that computed the same blocks at once: with PKV_ADMIT_SHARE the later one takes the published pages, without
 * it page ids never change. */
#include "support/support.h"

enum { page_tokens = 4 };

static pkv_table *admit_with(pkv_pool *pool, const pkv_prompt *prompt, uint32_t flags, uint64_t max_match,
                             pkv_match *match) {
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.flags = flags;
    options.max_match = max_match;
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    assert_ok(pkv_table_admit(table, prompt, &options, match));
    return table;
}

/* Two tables that compute 1 ... 10 at once: neither finds anything of the other. */
static void admit_two(pkv_pool *pool, uint32_t flags, pkv_table **tables) {
    pkv_token tokens[10];
    count_up(tokens, 10, 1);
    const pkv_prompt prompt = prompt_of(tokens, 10);
    for (int i = 0; i < 2; ++i) tables[i] = admit_with(pool, &prompt, flags, 0, NULL);
    for (int i = 0; i < 2; ++i) write_rows(tables[i], 0, 10, 1);
}

static void a_duplicate_takes_the_published_page_and_frees_its_own(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_table *tables[2];
    admit_two(pool, PKV_ADMIT_SHARE, tables);
    for (int i = 0; i < 2; ++i) assert_ok(pkv_table_commit(tables[i], 10, NULL));
    assert_int_equal(stats_of(pool).shared_duplicates, 2);
    assert_int_equal(stats_of(pool).duplicate_blocks, 2);
    assert_int_equal(stats_of(pool).held_pages, 4);
    for (uint64_t block = 0; block < 2; ++block) {
        assert_int_equal(page_at(tables[0], block), page_at(tables[1], block));
        assert_int_equal(page_of(pool, page_at(tables[0], block)).count, 2);
    }
    assert_int_not_equal(page_at(tables[0], 2), page_at(tables[1], 2));
    for (int i = 0; i < 2; ++i) {
        check_rows(tables[i], 0, 10, 1);
        write_and_commit(tables[i], 13, 2 + (uint32_t)i);
    }
    check_rows(tables[0], 10, 3, 2);
    check_rows(tables[1], 10, 3, 3);
    end_table(tables[0]);
    check_rows(tables[1], 0, 10, 1);
    end_table(tables[1]);
    end_pool(pool);
}

static void without_the_flag_ids_never_change(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_table *tables[2];
    admit_two(pool, 0, tables);
    const pkv_page own[2] = {page_at(tables[1], 0), page_at(tables[1], 1)};
    for (int i = 0; i < 2; ++i) assert_ok(pkv_table_commit(tables[i], 10, NULL));
    assert_int_equal(stats_of(pool).shared_duplicates, 0);
    assert_int_equal(stats_of(pool).duplicate_blocks, 2);
    for (uint64_t block = 0; block < 2; ++block) {
        assert_int_equal(page_at(tables[1], block), own[block]);
        assert_int_equal(page_of(pool, own[block]).count, 1);
        assert_int_equal(page_of(pool, own[block]).published, 0);
    }
    end_table(tables[0]);
    end_table(tables[1]);
    end_pool(pool);
}

static void a_cached_page_is_taken_by_the_one_that_shares_and_given_up_for_another(void **state) {
    (void)state;
    for (uint32_t share = 0; share < 2; ++share) {
        pkv_pool *pool = make_pool(16, page_tokens);
        pkv_table *tables[2];
        admit_two(pool, share ? PKV_ADMIT_SHARE : 0, tables);
        const pkv_page own = page_at(tables[1], 0), theirs = page_at(tables[0], 0);
        assert_ok(pkv_table_commit(tables[0], 10, NULL));
        end_table(tables[0]);
        assert_ok(pkv_table_commit(tables[1], 10, NULL));
        assert_int_equal(page_at(tables[1], 0), share ? theirs : own);
        assert_int_equal(page_of(pool, share ? own : theirs).state, PKV_PAGE_FREE);
        assert_int_equal(page_of(pool, page_at(tables[1], 0)).published, 1);
        assert_int_equal(page_of(pool, page_at(tables[1], 0)).count, 1);
        assert_int_equal(stats_of(pool).cached_pages, 0);
        check_rows(tables[1], 0, 10, 1);
        end_table(tables[1]);
        end_pool(pool);
    }
}

static void a_duplicate_that_others_hold_too_stays(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_table *tables[2];
    admit_two(pool, PKV_ADMIT_SHARE, tables);
    const pkv_page own[2] = {page_at(tables[1], 0), page_at(tables[1], 1)};
    assert_ok(pkv_pool_retain(pool, 0, 1, own)); /* the caller reads block 0 */
    for (int i = 0; i < 2; ++i) assert_ok(pkv_table_commit(tables[i], 10, NULL));
    assert_int_equal(page_at(tables[1], 0), own[0]);
    assert_int_equal(page_of(pool, own[0]).count, 2);
    assert_int_equal(page_at(tables[1], 1), page_at(tables[0], 1));
    assert_ok(pkv_pool_release(pool, 0, 1, own, NULL, NULL));
    end_table(tables[0]);
    end_table(tables[1]);
    end_pool(pool);
}

static void duplicates_are_shared_in_every_group(void **state) {
    (void)state;
    const pkv_group_options groups[2] = {small_group(16), window_group(16, 3, 0)};
    pkv_pool *pool = make_groups(groups, 2, page_tokens);
    pkv_token tokens[10];
    count_up(tokens, 10, 1);
    const pkv_prompt prompt = prompt_of(tokens, 10);
    pkv_table *tables[2];
    for (int i = 0; i < 2; ++i) tables[i] = admit_with(pool, &prompt, PKV_ADMIT_SHARE, 0, NULL);
    for (int i = 0; i < 2; ++i) put_and_commit(pool, tables[i], 10, 1);
    for (uint32_t group = 0; group < 2; ++group) {
        assert_int_equal(group_stats(pool, group).held_pages, 4);
        for (uint64_t block = 0; block < 2; ++block)
            assert_int_equal(page_in(tables[0], group, block), page_in(tables[1], group, block));
        same_rows(pool, tables[1], group, 0, 10, 1, 0);
    }
    for (int i = 0; i < 2; ++i) assert_ok(pkv_table_window(tables[i], NULL));
    assert_int_equal(group_stats(pool, 1).held_pages, 3);
    end_table(tables[0]);
    end_table(tables[1]);
    end_groups(pool);
}

static void a_batch_sees_the_pages_that_were_taken(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_table *tables[2];
    admit_two(pool, PKV_ADMIT_SHARE, tables);
    int32_t block_table[2][4];
    int64_t slots[32];
    pkv_batch_arrays arrays = PKV_BATCH_ARRAYS_INIT;
    arrays.fill = -1;
    arrays.max_blocks = 4;
    arrays.block_table = &block_table[0][0];
    arrays.slot_mapping = slots;
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = 2;
    options.num_arrays = 1;
    options.arrays = &arrays;
    options.max_tokens = 32;
    pkv_batch *batch = NULL;
    assert_ok(pkv_batch_create(pool, &options, &batch));
    const uint32_t num_new[2] = {10, 10}, none[2] = {0, 0};
    assert_ok(pkv_batch_reserve(batch, 2, tables, num_new, NULL));
    assert_int_not_equal(block_table[0][0], block_table[1][0]);
    assert_ok(pkv_batch_commit(batch, NULL, NULL, NULL));
    assert_int_equal(page_at(tables[0], 0), page_at(tables[1], 0));
    assert_ok(pkv_batch_reserve(batch, 2, tables, none, NULL));
    for (int row = 0; row < 2; ++row)
        for (uint64_t block = 0; block < 3; ++block)
            assert_int_equal(block_table[row][block], page_at(tables[row], block));
    assert_ok(pkv_batch_commit(batch, NULL, NULL, NULL));
    check_rows(tables[1], 0, 10, 1);
    assert_ok(pkv_batch_destroy(batch));
    end_table(tables[0]);
    end_table(tables[1]);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_duplicate_takes_the_published_page_and_frees_its_own),
        cmocka_unit_test(without_the_flag_ids_never_change),
        cmocka_unit_test(a_cached_page_is_taken_by_the_one_that_shares_and_given_up_for_another),
        cmocka_unit_test(a_duplicate_that_others_hold_too_stays),
        cmocka_unit_test(duplicates_are_shared_in_every_group),
        cmocka_unit_test(a_batch_sees_the_pages_that_were_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
