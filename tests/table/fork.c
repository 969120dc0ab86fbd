/* SPDX-License-Identifier: Apache-2.0 */
/* Forks and copy-on-write: who shares a page, who copies it, and that nobody's rows change under another's writes. Field
 * cases E. */
#include "support/support.h"

enum { page_tokens = 4 };

/* A sequence of `committed` tokens with ids 1, 2, 3 ... and rows of `tag`; only the first `named` have names. */
static pkv_table *sequence_of(pkv_pool *pool, uint64_t committed, uint64_t named, uint32_t tag) {
    pkv_token tokens[64];
    count_up(tokens, named, 1);
    const pkv_prompt prompt = prompt_of(tokens, named);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, committed, tag);
    return table;
}

static void a_fork_has_the_committed_tokens_their_pages_and_the_names(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *source = sequence_of(pool, 6, 9, 1);
    assert_ok(pkv_table_reserve(source, 14));
    write_rows(source, 6, 3, 1);
    pkv_table *fork = fork_of(source);
    const pkv_table_info info = info_of(fork);
    assert_int_equal(info.named, 9);
    assert_int_equal(info.committed, 6);
    assert_int_equal(info.reserved, 8);
    assert_int_equal(info.blocks, 2);
    assert_int_equal(info.published, 4);
    assert_int_equal(info_of(source).blocks, 4);
    for (uint64_t block = 0; block < 2; ++block) {
        assert_int_equal(page_at(fork, block), page_at(source, block));
        assert_int_equal(page_of(pool, page_at(fork, block)).count, 2);
    }
    assert_int_equal(page_of(pool, page_at(source, 2)).count, 1);
    check_rows(fork, 0, 6, 1);
    uint16_t data[8];
    pkv_tensor rows = PKV_TENSOR_INIT;
    rows.data = data;
    rows.dtype = PKV_DTYPE_F16;
    rows.num_tokens = 1;
    assert_status(pkv_table_gather(fork, 0, 0, 6, 1, &rows, NULL, NULL),
                  PKV_ERR_INVALID); /* the source's, uncommitted */
    end_table(source);
    end_table(fork);
    end_pool(pool);
}

static void case_E01_the_last_page_is_copied_for_the_one_that_writes(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *a = sequence_of(pool, 6, 6, 1), *b = fork_of(a);
    const pkv_page first = page_at(a, 0), second = page_at(a, 1);
    write_and_commit(b, 7, 2);
    assert_int_equal(stats_of(pool).copied_pages, 1);
    assert_int_equal(page_at(b, 0), first);
    assert_int_not_equal(page_at(b, 1), second);
    assert_int_equal(page_at(a, 1), second);
    check_rows(b, 0, 6, 1);
    check_rows(b, 6, 1, 2);
    check_rows(a, 0, 6, 1);
    write_and_commit(a, 7, 3);
    assert_int_equal(stats_of(pool).copied_pages, 1);
    assert_int_equal(page_at(a, 1), second);
    check_rows(a, 6, 1, 3);
    check_rows(b, 6, 1, 2);
    assert_int_equal(page_of(pool, first).count, 2);
    assert_int_equal(page_of(pool, second).count, 1);
    end_table(a);
    assert_int_equal(page_of(pool, first).count, 1);
    assert_int_equal(page_of(pool, second).count, 0);
    end_table(b);
    end_pool(pool);
}

static void case_E02_the_last_holder_writes_in_place(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *a = sequence_of(pool, 6, 6, 1), *b = fork_of(a);
    const pkv_page page = page_at(b, 1);
    end_table(a);
    write_and_commit(b, 7, 2);
    assert_int_equal(stats_of(pool).copied_pages, 0);
    assert_int_equal(page_at(b, 1), page);
    assert_int_equal(page_of(pool, page).count, 1);
    check_rows(b, 0, 6, 1);
    check_rows(b, 6, 1, 2);
    end_table(b);
    end_pool(pool);
}

static void case_E04_a_copied_page_has_the_bytes_of_the_first(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *a = sequence_of(pool, 6, 6, 1), *b = fork_of(a);
    assert_ok(pkv_table_reserve(b, 7));
    check_rows(b, 0, 6, 1);
    const pkv_page pages[2] = {page_at(a, 1), page_at(b, 1)};
    for (uint32_t layer = 0; layer < 2; ++layer) {
        pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
        assert_ok(pkv_pool_layout(pool, 0, layer, &layout));
        const uint64_t bytes = 2 * 2 * layout.k_row_bytes; /* 2 tokens of 2 heads */
        for (int side = 0; side < 2; ++side) {
            const char *base = side == 0 ? layout.k_base : layout.v_base;
            assert_memory_equal(base + (uint64_t)pages[0] * layout.k.page, base + (uint64_t)pages[1] * layout.k.page,
                                bytes);
        }
    }
    end_table(a);
    end_table(b);
    end_pool(pool);
}

static void case_E05_beams_that_change_places_keep_their_rows(void **state) {
    (void)state;
    enum { width = 4, rounds = 100, prompt_tokens = 6 };
    static const int parents[width] = {2, 2, 0, 1};
    static uint32_t tags[width][prompt_tokens + rounds];
    pkv_pool *pool = make_pool(256, page_tokens);
    pkv_table *beams[width] = {sequence_of(pool, prompt_tokens, prompt_tokens, 1)};
    for (int i = 1; i < width; ++i) beams[i] = fork_of(beams[0]);
    for (int i = 0; i < width; ++i)
        for (int t = 0; t < prompt_tokens; ++t) tags[i][t] = 1;
    for (uint32_t round = 0; round < rounds; ++round) {
        pkv_table *next[width];
        static uint32_t next_tags[width][prompt_tokens + rounds];
        const uint64_t length = prompt_tokens + round;
        for (int i = 0; i < width; ++i) {
            next[i] = fork_of(beams[parents[i]]);
            memcpy(next_tags[i], tags[parents[i]], sizeof tags[i]);
            next_tags[i][length] = 100 + round * width + (uint32_t)i;
        }
        for (int i = 0; i < width; ++i) end_table(beams[i]);
        for (int i = 0; i < width; ++i) write_and_commit(next[i], length + 1, next_tags[i][length]);
        memcpy(beams, next, sizeof beams);
        memcpy(tags, next_tags, sizeof tags);
        for (int i = 0; i < width; ++i)
            for (uint64_t t = round % 10 == 9 ? 0 : length - 3; t <= length; ++t)
                check_rows(beams[i], t, 1, tags[i][t]);
        check_rules(pool);
    }
    for (int i = 0; i < width; ++i) end_table(beams[i]);
    end_pool(pool);
}

static void case_E08_no_handle_stands_for_all_sequences(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *tables[3] = {sequence_of(pool, 6, 6, 1), sequence_of(pool, 3, 0, 2), sequence_of(pool, 5, 0, 3)};
    pkv_table *const all = (pkv_table *)(intptr_t)-1; // NOLINT(performance-no-int-to-ptr)
    assert_status(pkv_table_truncate(all, 0, NULL), PKV_ERR_HANDLE);
    assert_status(pkv_table_clear(all, NULL), PKV_ERR_HANDLE);
    assert_status(pkv_table_destroy(all, NULL), PKV_ERR_HANDLE);
    assert_status(pkv_table_truncate(NULL, 0, NULL), PKV_ERR_HANDLE);
    check_rows(tables[0], 0, 6, 1);
    check_rows(tables[1], 0, 3, 2);
    check_rows(tables[2], 0, 5, 3);
    for (int i = 0; i < 3; ++i) end_table(tables[i]);
    end_pool(pool);
}

static void the_source_copies_too_when_it_writes_first(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *source = sequence_of(pool, 6, 6, 1), *fork = fork_of(source);
    const pkv_page page = page_at(source, 1);
    write_rows(source, 6, 2, 2); /* no reserve before: the room is there */
    assert_int_not_equal(page_at(source, 1), page);
    assert_int_equal(page_at(fork, 1), page);
    assert_int_equal(stats_of(pool).copied_pages, 1);
    check_rows(fork, 0, 6, 1);
    assert_ok(pkv_table_commit(source, 8, NULL));
    check_rows(source, 0, 6, 1);
    check_rows(source, 6, 2, 2);
    end_table(source);
    end_table(fork);
    end_pool(pool);
}

static void taking_slots_of_a_shared_block_copies_it(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *source = sequence_of(pool, 6, 6, 1), *fork = fork_of(source);
    pkv_slot slots[6];
    assert_ok(pkv_table_slots(fork, 0, 0, 6, slots)); /* committed tokens only: to read */
    assert_int_equal(stats_of(pool).copied_pages, 0);
    assert_ok(pkv_table_slots(fork, 0, 6, 1, slots));
    assert_int_equal(stats_of(pool).copied_pages, 1);
    assert_int_not_equal(page_at(fork, 1), page_at(source, 1));
    assert_int_equal(slots[0], page_at(fork, 1) * page_tokens + 2);
    end_table(source);
    end_table(fork);
    end_pool(pool);
}

static void a_fork_at_the_end_of_a_block_copies_nothing(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *source = sequence_of(pool, 8, 8, 1), *fork = fork_of(source);
    write_and_commit(source, 11, 2);
    write_and_commit(fork, 11, 3);
    assert_int_equal(stats_of(pool).copied_pages, 0);
    check_rows(source, 8, 3, 2);
    check_rows(fork, 8, 3, 3);
    check_rows(fork, 0, 8, 1);
    end_table(source);
    end_table(fork);
    end_pool(pool);
}

static void commit_of_a_shared_block_without_reserve_is_refused(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *source = sequence_of(pool, 5, 8, 1);
    write_rows(source, 5, 2, 2);
    pkv_table *fork = fork_of(source);
    assert_status(pkv_table_commit(fork, 6, NULL), PKV_ERR_STATE);
    assert_status(pkv_table_commit(source, 7, NULL), PKV_ERR_STATE);
    assert_ok(pkv_table_commit(source, 5, NULL));
    assert_int_equal(info_of(source).committed, 5);
    const pkv_page page = page_at(source, 1);
    assert_ok(pkv_table_reserve(source, 7)); /* copies what was written before the fork as well */
    assert_int_not_equal(page_at(source, 1), page);
    assert_ok(pkv_table_commit(source, 7, NULL));
    check_rows(source, 0, 5, 1);
    check_rows(source, 5, 2, 2);
    check_rows(fork, 0, 5, 1);
    end_table(source);
    end_table(fork);
    end_pool(pool);
}

static void forks_of_forks_may_be_destroyed_in_any_order(void **state) {
    (void)state;
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int order = 0; order < 6; ++order) {
        pkv_pool *pool = make_pool(16, page_tokens);
        pkv_table *tables[3] = {sequence_of(pool, 6, 6, 1)};
        tables[1] = fork_of(tables[0]);
        write_and_commit(tables[1], 10, 2);
        tables[2] = fork_of(tables[1]);
        write_and_commit(tables[2], 11, 3);
        for (int i = 0; i < 3; ++i) {
            for (int left = i; left < 3; ++left) {
                const int which = orders[order][left];
                check_rows(tables[which], 0, 6, 1);
                if (which > 0) check_rows(tables[which], 6, 4, 2);
                if (which > 1) check_rows(tables[which], 10, 1, 3);
            }
            end_table(tables[orders[order][i]]);
        }
        end_pool(pool);
    }
}

static void forks_publish_under_their_own_names(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_table *source = sequence_of(pool, 6, 6, 1), *fork = fork_of(source);
    pkv_token ours[8], theirs[8];
    count_up(ours, 8, 1);
    count_up(theirs, 8, 1);
    theirs[6] = 70;
    assert_ok(pkv_table_set_tokens(source, 6, 2, ours + 6));
    assert_ok(pkv_table_set_tokens(fork, 6, 2, theirs + 6));
    write_and_commit(source, 8, 2);
    write_and_commit(fork, 8, 3);
    const pkv_prompt prompts[2] = {prompt_of(ours, 8), prompt_of(theirs, 8)};
    pkv_page pages[2];
    for (int i = 0; i < 2; ++i) {
        pkv_match match = PKV_MATCH_INIT;
        assert_ok(pkv_pool_lookup(pool, &prompts[i], PKV_MATCH_ALL, pages, 2, &match));
        assert_int_equal(match.tokens, 8);
        assert_int_equal(pages[0], page_at(source, 0));
        assert_int_equal(pages[1], page_at(i == 0 ? source : fork, 1));
        assert_ok(pkv_pool_release(pool, 0, 2, pages, NULL, NULL));
    }
    end_table(source);
    end_table(fork);
    end_pool(pool);
}

static void without_a_page_for_the_copy_everything_stays_as_it_was(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(2, page_tokens);
    pkv_table *source = sequence_of(pool, 6, 6, 1), *fork = fork_of(source);
    uint16_t data[2 * 8] = {0};
    pkv_tensor rows = PKV_TENSOR_INIT;
    rows.data = data;
    rows.dtype = PKV_DTYPE_F16;
    rows.num_tokens = 2;
    pkv_slot slot = -7;
    assert_status(pkv_table_write(fork, 0, 0, 6, 2, &rows, &rows, NULL), PKV_ERR_NO_PAGES);
    assert_status(pkv_table_slots(fork, 0, 6, 1, &slot), PKV_ERR_NO_PAGES);
    assert_status(pkv_table_reserve(fork, 7), PKV_ERR_NO_PAGES);
    assert_status(pkv_table_reserve(source, 7), PKV_ERR_NO_PAGES);
    assert_int_equal(slot, -7);
    assert_int_equal(page_at(fork, 1), page_at(source, 1));
    assert_int_equal(page_of(pool, page_at(fork, 1)).count, 2);
    assert_int_equal(stats_of(pool).copied_pages, 0);
    check_rows(source, 0, 6, 1);
    check_rows(fork, 0, 6, 1);
    end_table(source);
    write_and_commit(fork, 8, 2);
    check_rows(fork, 6, 2, 2);
    end_table(fork);
    end_pool(pool);
}

static void a_reserve_with_pages_to_grow_but_none_to_copy_takes_none(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, page_tokens);
    pkv_table *source = sequence_of(pool, 6, 6, 1), *fork = fork_of(source);
    assert_status(pkv_table_reserve(fork, 16), PKV_ERR_NO_PAGES); /* 2 more and the copy */
    assert_int_equal(info_of(fork).blocks, 2);
    assert_int_equal(stats_of(pool).free_pages, 2);
    check_rows(fork, 0, 6, 1);
    assert_ok(pkv_table_reserve(fork, 12)); /* 1 more and the copy */
    assert_int_equal(stats_of(pool).free_pages, 0);
    assert_int_equal(stats_of(pool).copied_pages, 1);
    check_rows(fork, 0, 6, 1);
    end_table(source);
    end_table(fork);
    end_pool(pool);
}

static void case_E10_a_pool_without_bytes_hands_its_copies_to_the_caller(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, page_tokens);
    pkv_token tokens[8];
    count_up(tokens, 8, 1);
    const pkv_prompt prompt = prompt_of(tokens, 8);
    pkv_table *source = admit(pool, &prompt, NULL);
    assert_ok(pkv_table_commit(source, 6, NULL));
    pkv_table *fork = fork_of(source);
    const pkv_page shared = page_at(fork, 1);
    pkv_page_copy copy = {9, 9, 9};
    uint64_t count = 9;
    assert_ok(pkv_table_take_copies(fork, &copy, 1, &count));
    assert_int_equal(count, 0);
    assert_ok(pkv_table_reserve(fork, 7));
    assert_int_not_equal(page_at(fork, 1), shared);
    assert_int_equal(page_of(pool, shared).count, 2);              /* held until the copy is made */
    assert_status(pkv_table_commit(fork, 7, NULL), PKV_ERR_STATE); /* not made yet */
    assert_ok(pkv_table_take_copies(fork, NULL, 0, &count));
    assert_int_equal(count, 1);
    assert_ok(pkv_table_take_copies(fork, &copy, 1, &count));
    assert_int_equal(copy.group, 0);
    assert_int_equal(copy.src, shared);
    assert_int_equal(copy.dst, page_at(fork, 1));
    assert_int_equal(page_of(pool, shared).count, 2);
    assert_ok(pkv_table_take_copies(fork, &copy, 1, &count));
    assert_int_equal(count, 0); /* handed out once */
    assert_ok(pkv_table_commit(fork, 7, NULL));
    assert_int_equal(page_of(pool, shared).count, 1);
    end_table(source);
    end_table(fork);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fork_has_the_committed_tokens_their_pages_and_the_names),
        cmocka_unit_test(case_E01_the_last_page_is_copied_for_the_one_that_writes),
        cmocka_unit_test(case_E02_the_last_holder_writes_in_place),
        cmocka_unit_test(case_E04_a_copied_page_has_the_bytes_of_the_first),
        cmocka_unit_test(case_E05_beams_that_change_places_keep_their_rows),
        cmocka_unit_test(case_E08_no_handle_stands_for_all_sequences),
        cmocka_unit_test(the_source_copies_too_when_it_writes_first),
        cmocka_unit_test(taking_slots_of_a_shared_block_copies_it),
        cmocka_unit_test(a_fork_at_the_end_of_a_block_copies_nothing),
        cmocka_unit_test(commit_of_a_shared_block_without_reserve_is_refused),
        cmocka_unit_test(forks_of_forks_may_be_destroyed_in_any_order),
        cmocka_unit_test(forks_publish_under_their_own_names),
        cmocka_unit_test(without_a_page_for_the_copy_everything_stays_as_it_was),
        cmocka_unit_test(a_reserve_with_pages_to_grow_but_none_to_copy_takes_none),
        cmocka_unit_test(case_E10_a_pool_without_bytes_hands_its_copies_to_the_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
