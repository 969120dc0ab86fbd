/* SPDX-License-Identifier: Apache-2.0 */
/* Matches that end inside a block (PKV_ADMIT_PARTIAL). Field cases E01 and F01. */
#include "support/support.h"

enum { page_tokens = 4 };

static pkv_table *sequence_of(pkv_pool *pool, const pkv_token *tokens, uint64_t length, uint32_t tag) {
    const pkv_prompt prompt = prompt_of(tokens, length);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.flags = PKV_ADMIT_NO_MATCH;
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    assert_ok(pkv_table_admit(table, &prompt, &options, NULL));
    write_and_commit(table, length, tag);
    return table;
}

/* A cached sequence 1, 2, 3 ... of `length` tokens, with rows of tag 1. */
static void cache_sequence(pkv_pool *pool, uint64_t length) {
    pkv_token tokens[64];
    count_up(tokens, length, 1);
    end_table(sequence_of(pool, tokens, length, 1));
}

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

/* Tokens that an admission of 1, 2 ... same, then others, matches. */
static uint64_t partial_match(pkv_pool *pool, uint64_t same, uint64_t length, uint32_t flags, uint64_t max_match) {
    pkv_token tokens[64];
    count_up(tokens, length, 1);
    for (uint64_t i = same; i < length; ++i) tokens[i] += 1000;
    const pkv_prompt prompt = prompt_of(tokens, length);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_with(pool, &prompt, flags, max_match, &match);
    const pkv_table_info info = info_of(table);
    assert_int_equal(info.matched, match.tokens);
    assert_int_equal(info.committed, match.tokens);
    assert_int_equal(match.blocks, (match.tokens + page_tokens - 1) / page_tokens);
    check_rows(table, 0, match.tokens, 1);
    end_table(table);
    return match.tokens;
}

static void a_match_ends_where_the_tokens_part(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    cache_sequence(pool, 16);
    for (uint64_t same = 0; same <= 16; ++same) {
        const uint64_t expected = same == 16 ? 15 : same; /* one token at least is left */
        assert_int_equal(partial_match(pool, same, 16, PKV_ADMIT_PARTIAL, 0), expected);
        assert_int_equal(partial_match(pool, same, 16, 0, 0), expected / page_tokens * page_tokens);
        if (same < 16) assert_int_equal(partial_match(pool, same, 16, PKV_ADMIT_PARTIAL, PKV_MATCH_ALL), same);
        assert_int_equal(partial_match(pool, same, 16, PKV_ADMIT_PARTIAL | PKV_ADMIT_NO_MATCH, 0), 0);
    }
    end_pool(pool);
}

static void case_E01_the_page_that_matched_in_part_is_copied_and_stays_findable(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_token tokens[12];
    count_up(tokens, 12, 1);
    pkv_table *source = sequence_of(pool, tokens, 8, 1);
    pkv_token mine[12];
    memcpy(mine, tokens, sizeof mine);
    mine[6] = 77;
    const pkv_prompt prompt = prompt_of(mine, 12), theirs = prompt_of(tokens, 8);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_with(pool, &prompt, PKV_ADMIT_PARTIAL, 0, &match);
    assert_int_equal(match.tokens, 6);
    assert_int_equal(match.blocks, 2);
    assert_int_equal(page_at(table, 0), page_at(source, 0));
    assert_int_not_equal(page_at(table, 1), page_at(source, 1));
    assert_int_equal(page_of(pool, page_at(source, 1)).count, 1);
    assert_int_equal(page_of(pool, page_at(table, 1)).published, 0);
    assert_int_equal(info_of(table).published, 4);
    const pkv_page own = page_at(table, 1);
    write_and_commit(table, 12, 2); /* goes on in the middle of the block */
    assert_int_equal(page_at(table, 1), own);
    check_rows(table, 0, 6, 1);
    check_rows(table, 6, 6, 2);
    check_rows(source, 0, 8, 1);
    assert_int_equal(probe_tokens(pool, &theirs), 8);
    assert_int_equal(probe_tokens(pool, &prompt), 12);
    end_table(source);
    end_table(table);
    end_pool(pool);
}

static void max_match_bounds_a_partial_match_to_the_token(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    cache_sequence(pool, 12);
    for (uint64_t bound = 1; bound <= 13; ++bound)
        assert_int_equal(partial_match(pool, 12, 13, PKV_ADMIT_PARTIAL, bound), bound < 12 ? bound : 12);
    end_pool(pool);
}

static void case_F01_of_a_prompt_that_is_cached_whole_all_but_the_last_token_match(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    cache_sequence(pool, 8);
    assert_int_equal(partial_match(pool, 8, 8, PKV_ADMIT_PARTIAL, 0), 7);
    assert_int_equal(partial_match(pool, 8, 8, PKV_ADMIT_PARTIAL, PKV_MATCH_ALL), 8);
    assert_int_equal(partial_match(pool, 1, 1, PKV_ADMIT_PARTIAL, 0), 0);
    end_pool(pool);
}

static void media_inside_the_part_end_the_match_before_them(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    cache_sequence(pool, 12);
    for (uint64_t position = 0; position < 12; ++position) {
        pkv_token tokens[12];
        count_up(tokens, 12, 1);
        pkv_media media = {position, 1, bytes_of("image")};
        pkv_prompt prompt = prompt_of(tokens, 12);
        prompt.media = &media;
        prompt.num_media = 1;
        pkv_match match = PKV_MATCH_INIT;
        pkv_table *table = admit_with(pool, &prompt, PKV_ADMIT_PARTIAL, PKV_MATCH_ALL, &match);
        assert_int_equal(match.tokens, position);
        check_rows(table, 0, position, 1);
        end_table(table);
    }
    end_pool(pool);
}

static void a_published_block_with_media_never_matches_beyond_them(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_token tokens[9];
    count_up(tokens, 9, 1);
    const pkv_media media = {5, 2, bytes_of("image")};
    pkv_prompt with = prompt_of(tokens, 8);
    with.media = &media;
    with.num_media = 1;
    pkv_table *table = admit(pool, &with, NULL);
    write_and_commit(table, 8, 1);
    end_table(table);
    const uint64_t found = partial_match(pool, 9, 9, PKV_ADMIT_PARTIAL, 0); /* the same tokens without the image */
    assert_in_range(found, 4, 5);
    end_pool(pool);
}

static void the_longest_of_a_few_siblings_is_taken(void **state) {
    (void)state;
    static const uint64_t same[] = {1, 3, 2}; /* tokens in common with the prompt, in the second block */
    for (int first = 0; first < 3; ++first) {
        pkv_pool *pool = make_pool(32, page_tokens);
        pkv_token tokens[9];
        for (int i = 0; i < 3; ++i) {
            count_up(tokens, 8, 1);
            for (uint64_t t = 4 + same[(first + i) % 3]; t < 8; ++t) tokens[t] = 100 * (i + 1) + (pkv_token)t;
            end_table(sequence_of(pool, tokens, 8, 1));
        }
        assert_int_equal(partial_match(pool, 9, 9, PKV_ADMIT_PARTIAL, 0), 7);
        end_pool(pool);
    }
}

static void among_many_siblings_a_partial_match_is_right_if_not_the_longest(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(300, page_tokens);
    for (int i = 0; i < 100; ++i) {
        pkv_token tokens[8] = {1, 2, 3, 4, 5, 6, 7, 1000 + i};
        if (i % 3 != 0) tokens[5 + i % 3 - 1] = -i;
        end_table(sequence_of(pool, tokens, 8, 1));
    }
    assert_in_range(partial_match(pool, 9, 9, PKV_ADMIT_PARTIAL, 0), 5, 7);
    end_pool(pool);
}

static void without_room_for_the_source_beside_the_new_pages_whole_blocks_match(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(3, page_tokens);
    cache_sequence(pool, 8);
    /* Needs 2 pages besides block 0; 1 is free, the other is the one to copy from. */
    assert_int_equal(partial_match(pool, 6, 12, PKV_ADMIT_PARTIAL, 0), 4);
    end_pool(pool);
    pool = make_pool(4, page_tokens);
    cache_sequence(pool, 8);
    assert_int_equal(partial_match(pool, 6, 12, PKV_ADMIT_PARTIAL, 0), 6);
    end_pool(pool);
}

static void an_admission_that_is_refused_leaves_the_part_alone(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(3, page_tokens);
    cache_sequence(pool, 8);
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    tokens[6] = 77;
    const pkv_prompt prompt = prompt_of(tokens, 16), theirs = prompt_of(tokens, 4);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.flags = PKV_ADMIT_PARTIAL;
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    const pkv_pool_stats before = stats_of(pool);
    assert_status(pkv_table_admit(table, &prompt, &options, NULL), PKV_ERR_NO_PAGES);
    pkv_pool_stats after = stats_of(pool);
    assert_int_equal(after.refused, 1);
    after.refused = 0;
    assert_same_stats(&before, &after);
    assert_int_equal(probe_tokens(pool, &theirs), 4);
    end_table(table);
    end_pool(pool);
}

static void room_to_reserve_counts_from_the_end_of_the_whole_blocks(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    cache_sequence(pool, 8);
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    tokens[7] = 77;
    const pkv_prompt prompt = prompt_of(tokens, 16);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.flags = PKV_ADMIT_PARTIAL;
    options.reserve_tokens = 5;
    pkv_table *table = NULL;
    pkv_match match = PKV_MATCH_INIT;
    assert_ok(pkv_table_create(pool, &table));
    assert_ok(pkv_table_admit(table, &prompt, &options, &match));
    assert_int_equal(match.tokens, 7);
    assert_int_equal(info_of(table).reserved, 12);
    check_rows(table, 0, 7, 1);
    end_table(table);
    end_pool(pool);
}

static void partial_tokens_are_counted_among_the_hits(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    cache_sequence(pool, 8);
    const pkv_pool_stats before = stats_of(pool);
    assert_int_equal(partial_match(pool, 7, 10, PKV_ADMIT_PARTIAL, 0), 7);
    const pkv_pool_stats after = stats_of(pool);
    assert_int_equal(after.hit_tokens - before.hit_tokens, 7);
    assert_int_equal(after.asked_tokens - before.asked_tokens, 10);
    assert_int_equal(after.partial_tokens - before.partial_tokens, 3);
    assert_int_equal(after.copied_pages, before.copied_pages);
    end_pool(pool);
}

static void a_pool_without_memory_matches_whole_blocks(void **state) {
    (void)state;
    const pkv_group_options groups[2] = {small_group(8), id_group(8)};
    for (uint32_t num_groups = 1; num_groups <= 2; ++num_groups) { /* nor does one with a group without */
        pkv_pool *pool = make_groups(groups + 2 - num_groups, num_groups, page_tokens);
        pkv_token tokens[10];
        count_up(tokens, 10, 1);
        pkv_prompt prompt = prompt_of(tokens, 8);
        pkv_table *table = admit(pool, &prompt, NULL);
        assert_ok(pkv_table_commit(table, 8, NULL));
        end_table(table);
        tokens[6] = 77;
        prompt.num_tokens = 10;
        pkv_match match = PKV_MATCH_INIT;
        table = admit_with(pool, &prompt, PKV_ADMIT_PARTIAL, 0, &match);
        assert_int_equal(match.tokens, 4);
        end_table(table);
        end_groups(pool);
    }
}

static void a_partial_match_copies_in_every_group(void **state) {
    (void)state;
    const pkv_group_options groups[2] = {small_group(8), window_group(8, 5, 0)};
    pkv_pool *pool = make_groups(groups, 2, page_tokens);
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    pkv_prompt prompt = prompt_of(tokens, 12);
    pkv_table *table = admit(pool, &prompt, NULL);
    put_and_commit(pool, table, 12, 1);
    end_table(table);
    tokens[11] = 77;
    prompt.num_tokens = 16;
    pkv_match match = PKV_MATCH_INIT;
    table = admit_with(pool, &prompt, PKV_ADMIT_PARTIAL, 0, &match);
    assert_int_equal(match.tokens, 11);
    same_rows(pool, table, 0, 0, 11, 1, 0);
    same_rows(pool, table, 1, 6, 5, 1, 6);
    put_and_commit(pool, table, 16, 2);
    same_rows(pool, table, 0, 11, 5, 2, 11);
    end_table(table);
    end_groups(pool);
}

static void scales_of_the_rows_that_matched_are_copied_with_them(void **state) {
    (void)state;
    pkv_group_options group = small_group(8);
    group.dtype = PKV_DTYPE_I8;
    group.scales = PKV_SCALES_TOKEN_HEAD;
    pkv_pool *pool = make_pool_of(&group, page_tokens, PKV_DEBUG_POISON);
    enum { row = 2 * 4 };
    pkv_token tokens[9];
    count_up(tokens, 9, 1);
    pkv_prompt prompt = prompt_of(tokens, 8);
    pkv_table *source = admit(pool, &prompt, NULL);
    float data[8 * row], expected[7 * row], got[7 * row];
    for (int i = 0; i < 8 * row; ++i)
        data[i] = (float)(i % 7 - 3) * (float)(1 << i / row); /* each token its own scale */
    pkv_tensor rows = PKV_TENSOR_INIT;
    rows.data = data;
    rows.dtype = PKV_DTYPE_F32;
    rows.num_tokens = 8;
    for (uint32_t layer = 0; layer < 2; ++layer) assert_ok(pkv_table_write(source, 0, layer, 0, 8, &rows, &rows, NULL));
    assert_ok(pkv_table_commit(source, 8, NULL));
    tokens[7] = 77;
    prompt.num_tokens = 9;
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_with(pool, &prompt, PKV_ADMIT_PARTIAL, 0, &match);
    assert_int_equal(match.tokens, 7);
    for (uint32_t layer = 0; layer < 2; ++layer)
        for (int side = 0; side < 2; ++side) {
            rows.data = expected;
            assert_ok(
                pkv_table_gather(source, 0, layer, 0, 7, side == 0 ? &rows : NULL, side == 1 ? &rows : NULL, NULL));
            rows.data = got;
            assert_ok(
                pkv_table_gather(table, 0, layer, 0, 7, side == 0 ? &rows : NULL, side == 1 ? &rows : NULL, NULL));
            assert_memory_equal(got, expected, sizeof got);
        }
    end_table(source);
    end_table(table);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_match_ends_where_the_tokens_part),
        cmocka_unit_test(case_E01_the_page_that_matched_in_part_is_copied_and_stays_findable),
        cmocka_unit_test(max_match_bounds_a_partial_match_to_the_token),
        cmocka_unit_test(case_F01_of_a_prompt_that_is_cached_whole_all_but_the_last_token_match),
        cmocka_unit_test(media_inside_the_part_end_the_match_before_them),
        cmocka_unit_test(a_published_block_with_media_never_matches_beyond_them),
        cmocka_unit_test(the_longest_of_a_few_siblings_is_taken),
        cmocka_unit_test(among_many_siblings_a_partial_match_is_right_if_not_the_longest),
        cmocka_unit_test(without_room_for_the_source_beside_the_new_pages_whole_blocks_match),
        cmocka_unit_test(an_admission_that_is_refused_leaves_the_part_alone),
        cmocka_unit_test(room_to_reserve_counts_from_the_end_of_the_whole_blocks),
        cmocka_unit_test(partial_tokens_are_counted_among_the_hits),
        cmocka_unit_test(a_pool_without_memory_matches_whole_blocks),
        cmocka_unit_test(a_partial_match_copies_in_every_group),
        cmocka_unit_test(scales_of_the_rows_that_matched_are_copied_with_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
