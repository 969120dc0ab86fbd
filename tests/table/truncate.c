/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting a sequence, and cuts, forks and appends in random order against a model. Field cases E. */
#include "support/support.h"

#include <time.h>

enum { page_tokens = 4 };

static pkv_table *sequence_of(pkv_pool *pool, uint64_t committed, uint32_t tag) {
    pkv_token *tokens = calloc(committed + 1, sizeof *tokens);
    count_up(tokens, committed, 1);
    const pkv_prompt prompt = prompt_of(tokens, committed);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, committed, tag);
    free(tokens);
    return table;
}

static void truncate_cuts_names_room_and_committed_tokens(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 15, 1);
    assert_ok(pkv_table_reserve(table, 20));
    assert_ok(pkv_table_truncate(table, 17, NULL)); /* room only */
    assert_int_equal(info_of(table).reserved, 20);
    assert_int_equal(info_of(table).committed, 15);
    assert_ok(pkv_table_truncate(table, 16, NULL));
    assert_int_equal(info_of(table).reserved, 16);
    assert_int_equal(info_of(table).committed, 15);
    assert_ok(pkv_table_truncate(table, 9, NULL));
    const pkv_table_info info = info_of(table);
    assert_int_equal(info.named, 9);
    assert_int_equal(info.reserved, 12);
    assert_int_equal(info.committed, 9);
    assert_int_equal(info.published, 8);
    assert_int_equal(info.blocks, 3);
    check_rows(table, 0, 9, 1);
    end_table(table);
    end_pool(pool);
}

static void truncate_to_nothing_leaves_an_empty_sequence(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 9, 1);
    assert_ok(pkv_table_truncate(table, 0, NULL));
    const pkv_table_info info = info_of(table);
    assert_int_equal(info.named + info.reserved + info.committed + info.published + info.blocks, 0);
    assert_int_equal(stats_of(pool).held_pages, 0);
    assert_int_equal(stats_of(pool).cached_pages, 2);
    pkv_token tokens[5];
    count_up(tokens, 5, 60);
    assert_ok(pkv_table_set_tokens(table, 0, 5, tokens));
    write_and_commit(table, 5, 2);
    const pkv_prompt prompt = prompt_of(tokens, 5);
    assert_int_equal(probe_tokens(pool, &prompt), 4);
    check_rows(table, 0, 5, 2);
    end_table(table);
    end_pool(pool);
}

static void truncate_to_more_than_there_is_does_nothing(void **state) {
    (void)state;
    static const uint64_t more[] = {12, 13, 1000, (UINT64_C(1) << 40) + 1, UINT64_MAX - 2, UINT64_MAX};
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 9, 1);
    for (size_t i = 0; i < sizeof more / sizeof more[0]; ++i) {
        assert_ok(pkv_table_truncate(table, more[i], NULL));
        const pkv_table_info info = info_of(table);
        assert_int_equal(info.reserved, 12);
        assert_int_equal(info.committed, 9);
        assert_int_equal(info.named, 9);
        check_rows(table, 0, 9, 1);
    }
    end_table(table);
    end_pool(pool);
}

static void a_cut_into_a_published_block_copies_it_before_the_next_write(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[8];
    count_up(tokens, 8, 1);
    const pkv_prompt prompt = prompt_of(tokens, 8);
    pkv_table *table = sequence_of(pool, 8, 1);
    const pkv_page published = page_at(table, 1);
    assert_ok(pkv_table_truncate(table, 6, NULL));
    assert_int_equal(info_of(table).published, 4);
    assert_int_equal(page_at(table, 1), published);
    write_and_commit(table, 7, 2);
    assert_int_not_equal(page_at(table, 1), published);
    assert_int_equal(stats_of(pool).copied_pages, 1);
    check_rows(table, 0, 6, 1);
    check_rows(table, 6, 1, 2);
    assert_int_equal(page_of(pool, published).state, PKV_PAGE_CACHED);
    pkv_page pages[2];
    pkv_match match = PKV_MATCH_INIT;
    assert_ok(pkv_pool_lookup(pool, &prompt, PKV_MATCH_ALL, pages, 2, &match));
    assert_int_equal(match.tokens, 8);
    assert_int_equal(pages[1], published);
    pkv_table *hit = NULL;
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.max_match = PKV_MATCH_ALL;
    assert_ok(pkv_table_create(pool, &hit));
    assert_ok(pkv_table_admit(hit, &prompt, &options, NULL));
    check_rows(hit, 0, 8, 1);
    assert_ok(pkv_pool_release(pool, 0, 2, pages, NULL, NULL));
    end_table(hit);
    end_table(table);
    end_pool(pool);
}

static void a_cut_into_a_matched_block_leaves_the_others_page_alone(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[9];
    count_up(tokens, 9, 1);
    const pkv_prompt prompt = prompt_of(tokens, 9);
    pkv_table *owner = sequence_of(pool, 9, 1), *table = admit(pool, &prompt, NULL);
    assert_int_equal(info_of(table).matched, 8);
    assert_ok(pkv_table_truncate(table, 5, NULL));
    write_and_commit(table, 8, 2);
    check_rows(table, 0, 5, 1);
    check_rows(table, 5, 3, 2);
    check_rows(owner, 0, 9, 1);
    assert_int_equal(stats_of(pool).copied_pages, 1);
    end_table(table);
    end_table(owner);
    end_pool(pool);
}

static void a_cut_and_the_same_ids_again_find_the_published_block(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[8];
    count_up(tokens, 8, 1);
    pkv_table *table = sequence_of(pool, 8, 1);
    assert_ok(pkv_table_truncate(table, 6, NULL));
    assert_ok(pkv_table_set_tokens(table, 6, 2, tokens + 6));
    write_and_commit(table, 8, 1);
    assert_int_equal(info_of(table).published, 8);
    assert_int_equal(stats_of(pool).index_blocks, 2);
    assert_int_equal(stats_of(pool).duplicate_blocks, 1);
    check_rules(pool);
    end_table(table);
    end_pool(pool);
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* The shortest of many cuts of 2 tokens off `tokens`. */
static uint64_t shortest_cut(pkv_table *table, uint64_t tokens) {
    uint64_t shortest = UINT64_MAX;
    for (int i = 0; i < 300; ++i) {
        assert_ok(pkv_table_reserve(table, tokens));
        assert_ok(pkv_table_commit(table, tokens, NULL));
        const uint64_t begin = now_ns();
        const pkv_status status = pkv_table_truncate(table, tokens - 2, NULL);
        const uint64_t time = now_ns() - begin;
        assert_int_equal(status, PKV_OK);
        if (time < shortest) shortest = time;
    }
    return shortest;
}

static void case_E17_a_cut_costs_what_it_drops_and_moves_no_bytes(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4096, 16);
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 1022, 1);
    const uint64_t at_1k = shortest_cut(table, 1024);
    write_and_commit(table, 32766, 1);
    const uint64_t at_32k = shortest_cut(table, 32768);
    assert_int_equal(stats_of(pool).copied_pages, 0);
    check_rows(table, 0, 32766, 1);
    /* Twice at most, and some room for the clock. */
    if (at_32k > 2 * at_1k + 2000)
        fail_msg("%llu ns at 1 k, %llu ns at 32 k", (unsigned long long)at_1k, (unsigned long long)at_32k);
    end_table(table);
    end_pool(pool);
}

/* ---- a model ---- */

enum { max_sequences = 8, max_length = 90 };

typedef struct {
    pkv_table *table;
    uint64_t length;
    uint32_t tags[max_length]; /* what each committed row was written with */
} sequence;

static void check_sequence(const sequence *s) {
    const pkv_table_info info = info_of(s->table);
    assert_int_equal(info.committed, s->length);
    for (uint64_t begin = 0; begin < s->length;) {
        uint64_t end = begin + 1;
        while (end < s->length && s->tags[end] == s->tags[begin]) ++end;
        check_rows(s->table, begin, end - begin, s->tags[begin]);
        begin = end;
    }
}

/* A page's count is the number of tables that list it, and nothing else holds any. */
static void check_counts(pkv_pool *pool, const sequence *sequences, uint64_t num_pages) {
    uint64_t *holders = calloc(num_pages, sizeof *holders);
    for (int i = 0; i < max_sequences; ++i) {
        pkv_page pages[max_length];
        uint64_t blocks = 0;
        if (sequences[i].table == NULL) continue;
        assert_ok(pkv_table_pages(sequences[i].table, 0, pages, max_length, &blocks));
        for (uint64_t block = 0; block < blocks; ++block) ++holders[pages[block]];
    }
    for (uint64_t page = 0; page < num_pages; ++page)
        assert_int_equal(page_of(pool, (pkv_page)page).count, holders[page]);
    free(holders);
    check_rules(pool);
}

static void random_steps(uint64_t seed, uint32_t tokens_of_page, uint64_t steps) {
    enum { num_pages = 40 };
    print_message("seed %llu, %u tokens a page\n", (unsigned long long)seed, tokens_of_page);
    test_random random = {seed};
    pkv_pool *pool = make_pool(num_pages, tokens_of_page);
    sequence *sequences = calloc(max_sequences, sizeof *sequences);
    for (uint32_t step = 1; step <= steps; ++step) {
        sequence *s = &sequences[random_below(&random, max_sequences)];
        const uint64_t what = random_below(&random, 10);
        if (s->table == NULL) {
            sequence *parent = &sequences[random_below(&random, max_sequences)];
            if (parent->table != NULL) {
                *s = *parent;
                s->table = fork_of(parent->table);
            } else {
                const pkv_prompt prompt = prompt_of(NULL, 0);
                s->length = 0;
                s->table = admit(pool, &prompt, NULL);
            }
        } else if (what < 6) {
            const uint64_t add = 1 + random_below(&random, 2 * tokens_of_page + 1);
            if (s->length + add > max_length) continue;
            pkv_token ids[max_length];
            for (uint64_t i = 0; i < add; ++i) ids[i] = (pkv_token)random_below(&random, 2);
            const pkv_status status = pkv_table_reserve(s->table, s->length + add);
            if (status != PKV_OK) {
                assert_int_equal(status, PKV_ERR_NO_PAGES);
            } else {
                /* Equal names with other rows do no harm here: nothing is matched. */
                if (what < 5 && info_of(s->table).named == s->length)
                    assert_ok(pkv_table_set_tokens(s->table, s->length, add, ids));
                write_rows(s->table, s->length, add, step);
                assert_ok(pkv_table_commit(s->table, s->length + add, NULL));
                for (uint64_t i = 0; i < add; ++i) s->tags[s->length + i] = step;
                s->length += add;
            }
        } else if (what < 9) {
            const uint64_t keep = random_below(&random, s->length + 2);
            assert_ok(pkv_table_truncate(s->table, keep, NULL));
            if (keep < s->length) s->length = keep;
        } else {
            end_table(s->table);
            s->table = NULL;
        }
        for (int i = 0; i < max_sequences; ++i)
            if (sequences[i].table != NULL && (step % 16 == 0 || &sequences[i] == s)) check_sequence(&sequences[i]);
        if (step % 4 == 0) check_counts(pool, sequences, num_pages);
    }
    for (int i = 0; i < max_sequences; ++i)
        if (sequences[i].table != NULL) end_table(sequences[i].table);
    free(sequences);
    end_pool(pool);
}

static void random_forks_cuts_and_appends_follow_the_model(void **state) {
    (void)state;
    static const uint32_t page_sizes[] = {1, 2, 3, 4, 5, 16};
    for (size_t i = 0; i < sizeof page_sizes / sizeof page_sizes[0]; ++i)
        for (uint64_t seed = 1; seed <= (long_tests() ? 20 : 1); ++seed)
            random_steps(seed * 1000 + i, page_sizes[i], long_tests() ? 20000 : 1500);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truncate_cuts_names_room_and_committed_tokens),
        cmocka_unit_test(truncate_to_nothing_leaves_an_empty_sequence),
        cmocka_unit_test(truncate_to_more_than_there_is_does_nothing),
        cmocka_unit_test(a_cut_into_a_published_block_copies_it_before_the_next_write),
        cmocka_unit_test(a_cut_into_a_matched_block_leaves_the_others_page_alone),
        cmocka_unit_test(a_cut_and_the_same_ids_again_find_the_published_block),
        cmocka_unit_test(case_E17_a_cut_costs_what_it_drops_and_moves_no_bytes),
        cmocka_unit_test(random_forks_cuts_and_appends_follow_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
