/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: what a new sequence takes from the cache, the room it gets, and what is left when there is none. */
#include "support/support.h"

enum { page_tokens = 4 };

static pkv_table *new_table(pkv_pool *pool) {
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    return table;
}

/* Computes a prompt and forgets the sequence: its whole blocks stay cached. */
static void compute(pkv_pool *pool, const pkv_prompt *prompt, uint32_t tag) {
    pkv_table *table = admit(pool, prompt, NULL);
    write_and_commit(table, prompt->num_tokens, tag);
    end_table(table);
}

static void check_empty(pkv_table *table) {
    const pkv_table_info info = info_of(table);
    assert_int_equal(info.named + info.reserved + info.committed + info.published + info.matched + info.blocks, 0);
}

static void admit_names_the_prompt_and_makes_room_for_it(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[10];
    count_up(tokens, 10, 1);
    const pkv_prompt prompt = prompt_of(tokens, 10);
    pkv_table *table = admit(pool, &prompt, NULL);
    const pkv_table_info info = info_of(table);
    assert_int_equal(info.named, 10);
    assert_int_equal(info.reserved, 12);
    assert_int_equal(info.committed, 0);
    assert_int_equal(info.published, 0);
    assert_int_equal(info.matched, 0);
    assert_int_equal(info.blocks, 3);
    assert_int_equal(info.committed_blocks, 0);
    assert_int_equal(stats_of(pool).held_pages, 3);
    assert_int_equal(stats_of(pool).tables, 1);
    end_table(table);
    end_pool(pool);
}

static void an_empty_prompt_is_a_sequence_without_pages(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit(pool, &prompt, &match);
    assert_int_equal(match.tokens, 0);
    check_empty(table);
    write_and_commit(table, 3, 1);
    check_rows(table, 0, 3, 1);
    end_table(table);
    end_pool(pool);
}

static void the_tokens_of_the_prompt_are_copied(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[8];
    count_up(tokens, 8, 1);
    const pkv_prompt prompt = prompt_of(tokens, 8);
    pkv_table *table = admit(pool, &prompt, NULL);
    memset(tokens, 0, sizeof tokens);
    write_and_commit(table, 8, 1);
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    count_up(tokens, 8, 1);
    assert_int_equal(probe_tokens(pool, &prompt), 8);
    end_table(table);
    end_pool(pool);
}

static void a_match_shares_pages_and_is_committed_and_readable(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[10];
    count_up(tokens, 10, 1);
    const pkv_prompt prompt = prompt_of(tokens, 10);
    pkv_table *first = admit(pool, &prompt, NULL);
    write_and_commit(first, 10, 7);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *second = admit(pool, &prompt, &match);
    assert_int_equal(match.tokens, 8);
    assert_int_equal(match.blocks, 2);
    const pkv_table_info info = info_of(second);
    assert_int_equal(info.matched, 8);
    assert_int_equal(info.committed, 8);
    assert_int_equal(info.published, 8);
    assert_int_equal(info.committed_blocks, 2);
    assert_int_equal(info.blocks, 3);
    for (uint64_t block = 0; block < 2; ++block) {
        assert_int_equal(page_at(second, block), page_at(first, block));
        assert_int_equal(page_of(pool, page_at(first, block)).count, 2);
    }
    assert_int_not_equal(page_at(second, 2), page_at(first, 2));
    check_rows(second, 0, 8, 7);
    end_table(first);
    check_rows(second, 0, 8, 7);
    end_table(second);
    end_pool(pool);
}

static uint64_t matched_with(pkv_pool *pool, const pkv_prompt *prompt, uint64_t max_match, uint32_t flags) {
    pkv_table *table = new_table(pool);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.max_match = max_match;
    options.flags = flags;
    pkv_match match = PKV_MATCH_INIT;
    assert_ok(pkv_table_admit(table, prompt, &options, &match));
    assert_int_equal(info_of(table).matched, match.tokens);
    end_table(table);
    return match.tokens;
}

static void max_match_bounds_what_is_taken_from_the_cache(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_token tokens[12];
    count_up(tokens, 12, 1);
    const pkv_prompt prompt = prompt_of(tokens, 12);
    compute(pool, &prompt, 1);
    assert_int_equal(matched_with(pool, &prompt, 0, 0), 8);
    assert_int_equal(matched_with(pool, &prompt, PKV_MATCH_ALL, 0), 12);
    assert_int_equal(matched_with(pool, &prompt, 12, 0), 12);
    assert_int_equal(matched_with(pool, &prompt, 11, 0), 8);
    assert_int_equal(matched_with(pool, &prompt, 3, 0), 0);
    end_pool(pool);
}

static void no_match_takes_nothing_from_the_cache(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_token tokens[12];
    count_up(tokens, 12, 1);
    const pkv_prompt prompt = prompt_of(tokens, 12);
    compute(pool, &prompt, 1);
    assert_int_equal(matched_with(pool, &prompt, PKV_MATCH_ALL, PKV_ADMIT_NO_MATCH), 0);
    assert_int_equal(probe_tokens(pool, &prompt), 12);
    end_pool(pool);
}

static void a_sequence_that_matched_completely_has_no_room_until_it_reserves(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[8];
    count_up(tokens, 8, 1);
    const pkv_prompt prompt = prompt_of(tokens, 8);
    compute(pool, &prompt, 3);
    pkv_table *table = new_table(pool);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.max_match = PKV_MATCH_ALL;
    assert_ok(pkv_table_admit(table, &prompt, &options, NULL));
    assert_int_equal(info_of(table).reserved, 8);
    write_and_commit(table, 9, 4);
    check_rows(table, 0, 8, 3);
    check_rows(table, 8, 1, 4);
    end_table(table);
    end_pool(pool);
}

static void reserve_tokens_counts_from_the_end_of_the_match(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_token tokens[30];
    count_up(tokens, 30, 1);
    const pkv_prompt head = prompt_of(tokens, 8);
    compute(pool, &head, 1);
    const pkv_prompt prompt = prompt_of(tokens, 30);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.reserve_tokens = 6;
    pkv_table *chunked = new_table(pool);
    assert_ok(pkv_table_admit(chunked, &prompt, &options, NULL));
    assert_int_equal(info_of(chunked).matched, 8);
    assert_int_equal(info_of(chunked).reserved, 16);
    assert_int_equal(info_of(chunked).named, 30);
    options.reserve_tokens = 40;
    pkv_table *ahead = new_table(pool);
    assert_ok(pkv_table_admit(ahead, &prompt, &options, NULL));
    assert_int_equal(info_of(ahead).reserved, 48);
    end_table(chunked);
    end_table(ahead);
    end_pool(pool);
}

static void a_prompt_computed_in_chunks_equals_one_computed_at_once(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(32, page_tokens);
    pkv_token tokens[30];
    count_up(tokens, 30, 1);
    const pkv_prompt prompt = prompt_of(tokens, 30);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.reserve_tokens = 7;
    pkv_table *chunked = new_table(pool);
    assert_ok(pkv_table_admit(chunked, &prompt, &options, NULL));
    for (uint64_t end = 7; end < 30; end += 7) {
        write_and_commit(chunked, end, 2);
        assert_int_equal(info_of(chunked).published, end / page_tokens * page_tokens);
        assert_int_equal(probe_tokens(pool, &prompt), end / page_tokens * page_tokens);
    }
    write_and_commit(chunked, 30, 2);
    check_rows(chunked, 0, 30, 2);
    assert_int_equal(info_of(chunked).blocks, 8);
    end_table(chunked);
    end_pool(pool);
}

static void the_watermark_must_stay_available_afterwards(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    const pkv_prompt prompt = prompt_of(tokens, 16);
    pkv_table *table = new_table(pool);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.watermark = 5;
    assert_status(pkv_table_admit(table, &prompt, &options, NULL), PKV_ERR_NO_PAGES);
    check_empty(table);
    assert_int_equal(stats_of(pool).free_pages, 8);
    options.watermark = 4;
    assert_ok(pkv_table_admit(table, &prompt, &options, NULL));
    end_table(table);
    end_pool(pool);
}

static void cached_pages_count_for_the_watermark_and_matched_ones_do_not(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[16], others[16];
    count_up(tokens, 16, 1);
    count_up(others, 16, 100);
    const pkv_prompt prompt = prompt_of(tokens, 16), other = prompt_of(others, 16);
    compute(pool, &prompt, 1);
    compute(pool, &other, 2);
    assert_int_equal(stats_of(pool).cached_pages, 8);
    pkv_table *table = new_table(pool);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.max_match = 12; /* 3 pages match, 1 more is wanted, 4 are left */
    options.watermark = 5;
    assert_status(pkv_table_admit(table, &prompt, &options, NULL), PKV_ERR_NO_PAGES);
    assert_int_equal(probe_tokens(pool, &prompt), 16);
    assert_int_equal(probe_tokens(pool, &other), 16);
    options.watermark = 4;
    assert_ok(pkv_table_admit(table, &prompt, &options, NULL));
    check_rows(table, 0, 12, 1);
    end_table(table);
    end_pool(pool);
}

static void an_admission_without_room_leaves_table_and_pool_as_they_were(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, page_tokens);
    pkv_token tokens[20];
    count_up(tokens, 20, 1);
    const pkv_prompt head = prompt_of(tokens, 8), prompt = prompt_of(tokens, 20);
    compute(pool, &head, 1);
    pkv_table *table = new_table(pool);
    pkv_match match = PKV_MATCH_INIT;
    match.tokens = 99;
    assert_status(pkv_table_admit(table, &prompt, NULL, &match), PKV_ERR_NO_PAGES);
    assert_int_equal(match.tokens, 99);
    check_empty(table);
    const pkv_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.cached_pages, 2);
    assert_int_equal(stats.free_pages, 2);
    assert_int_equal(stats.refused, 1);
    assert_int_equal(stats.evicted_pages, 0);
    assert_status(pkv_table_reserve(table, 4), PKV_ERR_STATE);
    assert_ok(pkv_table_admit(table, &head, NULL, NULL));
    end_table(table);
    end_pool(pool);
}

static void an_enormous_admission_is_refused_for_want_of_pages(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 1);
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = new_table(pool);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.reserve_tokens = UINT64_C(1) << 40;
    assert_status(pkv_table_admit(table, &prompt, &options, NULL), PKV_ERR_NO_PAGES);
    options.reserve_tokens = (UINT64_C(1) << 40) + 1;
    assert_status(pkv_table_admit(table, &prompt, &options, NULL), PKV_ERR_LIMIT);
    options.reserve_tokens = 0;
    options.watermark = UINT64_MAX;
    assert_status(pkv_table_admit(table, &prompt, &options, NULL), PKV_ERR_NO_PAGES);
    check_empty(table);
    end_table(table);
    end_pool(pool);
}

static void a_table_with_a_sequence_cannot_be_admitted_again_until_cleared(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[8], others[6];
    count_up(tokens, 8, 1);
    count_up(others, 6, 50);
    const pkv_prompt prompt = prompt_of(tokens, 8), other = prompt_of(others, 6);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 8, 1);
    assert_status(pkv_table_admit(table, &other, NULL, NULL), PKV_ERR_STATE);
    check_rows(table, 0, 8, 1);
    assert_ok(pkv_table_clear(table, NULL));
    check_empty(table);
    assert_int_equal(stats_of(pool).held_pages, 0);
    assert_status(pkv_table_reserve(table, 4), PKV_ERR_STATE);
    assert_ok(pkv_table_clear(table, NULL));
    assert_ok(pkv_table_admit(table, &other, NULL, NULL));
    write_and_commit(table, 6, 2);
    check_rows(table, 0, 6, 2);
    assert_int_equal(info_of(table).published, 4);
    end_table(table);
    end_pool(pool);
}

static void a_preempted_sequence_comes_back_with_the_same_rows(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(6, page_tokens);
    pkv_token tokens[18], others[12];
    count_up(tokens, 18, 1);
    count_up(others, 12, 100);
    const pkv_prompt prompt = prompt_of(tokens, 18), other = prompt_of(others, 12);
    pkv_table *victim = admit(pool, &prompt, NULL);
    write_and_commit(victim, 18, 1);
    pkv_table *urgent = new_table(pool);
    assert_status(pkv_table_admit(urgent, &other, NULL, NULL), PKV_ERR_NO_PAGES);
    assert_ok(pkv_table_clear(victim, NULL));
    assert_ok(pkv_table_admit(urgent, &other, NULL, NULL));
    write_and_commit(urgent, 12, 2);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.flags = PKV_ADMIT_RETRY;
    assert_status(pkv_table_admit(victim, &prompt, &options, NULL), PKV_ERR_NO_PAGES);
    check_rows(urgent, 0, 12, 2);
    end_table(urgent);
    pkv_match match = PKV_MATCH_INIT;
    assert_ok(pkv_table_admit(victim, &prompt, &options, &match));
    assert_int_equal(match.tokens, 12); /* the urgent one took 2 free pages and the last cached one */
    check_rows(victim, 0, 12, 1);
    write_and_commit(victim, 18, 1);
    check_rows(victim, 0, 18, 1);
    end_table(victim);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(admit_names_the_prompt_and_makes_room_for_it),
        cmocka_unit_test(an_empty_prompt_is_a_sequence_without_pages),
        cmocka_unit_test(the_tokens_of_the_prompt_are_copied),
        cmocka_unit_test(a_match_shares_pages_and_is_committed_and_readable),
        cmocka_unit_test(max_match_bounds_what_is_taken_from_the_cache),
        cmocka_unit_test(no_match_takes_nothing_from_the_cache),
        cmocka_unit_test(a_sequence_that_matched_completely_has_no_room_until_it_reserves),
        cmocka_unit_test(reserve_tokens_counts_from_the_end_of_the_match),
        cmocka_unit_test(a_prompt_computed_in_chunks_equals_one_computed_at_once),
        cmocka_unit_test(the_watermark_must_stay_available_afterwards),
        cmocka_unit_test(cached_pages_count_for_the_watermark_and_matched_ones_do_not),
        cmocka_unit_test(an_admission_without_room_leaves_table_and_pool_as_they_were),
        cmocka_unit_test(an_enormous_admission_is_refused_for_want_of_pages),
        cmocka_unit_test(a_table_with_a_sequence_cannot_be_admitted_again_until_cleared),
        cmocka_unit_test(a_preempted_sequence_comes_back_with_the_same_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
