/* SPDX-License-Identifier: Apache-2.0 */
/* Copies on write that the caller has to make, in pools and groups without memory: what is handed out, once, and how long
 * its sources are held. Field cases E01 and E10. */
#include "support/support.h"

enum { page_tokens = 4 };

static pkv_table *sequence_of(pkv_pool *pool, uint64_t committed) {
    pkv_token tokens[64];
    count_up(tokens, committed, 1);
    const pkv_prompt prompt = prompt_of(tokens, committed);
    pkv_table *table = admit(pool, &prompt, NULL);
    put_and_commit(pool, table, committed, 1);
    return table;
}

static uint64_t outstanding(pkv_table *table) {
    uint64_t count = 99;
    assert_ok(pkv_table_take_copies(table, NULL, 0, &count));
    return count;
}

/* A source of 6 tokens, and a fork that is about to write: its tail, `shared` so far, has to be copied. */
typedef struct {
    pkv_pool *pool;
    pkv_table *source, *fork;
    pkv_page shared;
} pair;

static pair make_pair(uint64_t num_pages) {
    pair p = {.pool = make_id_pool(num_pages, page_tokens)};
    p.source = sequence_of(p.pool, 6);
    p.fork = fork_of(p.source);
    p.shared = page_at(p.fork, 1);
    return p;
}

static void end_pair(pair *p) {
    end_table(p->source);
    end_table(p->fork);
    end_pool(p->pool);
}

static void a_copy_is_decided_by_reserve_or_slots(void **state) {
    (void)state;
    for (int by_slots = 0; by_slots < 2; ++by_slots) {
        pair p = make_pair(8);
        assert_int_equal(outstanding(p.fork), 0);
        pkv_slot slot = 0;
        if (by_slots)
            assert_ok(pkv_table_slots(p.fork, 0, 6, 1, &slot));
        else
            assert_ok(pkv_table_reserve(p.fork, 7));
        assert_int_equal(outstanding(p.fork), 1);
        assert_int_equal(outstanding(p.source), 0);
        pkv_page_copy copy = {9, 9, 9};
        uint64_t count = 0;
        assert_ok(pkv_table_take_copies(p.fork, &copy, 1, &count));
        assert_int_equal(count, 1);
        assert_int_equal(copy.group, 0);
        assert_int_equal(copy.src, p.shared);
        assert_int_equal(copy.dst, page_at(p.fork, 1));
        assert_int_equal(page_at(p.source, 1), p.shared);
        assert_int_equal(stats_of(p.pool).copied_pages, 1);
        if (by_slots) assert_int_equal(slot, copy.dst * page_tokens + 2);
        end_pair(&p);
    }
}

static void copies_are_handed_out_once_and_the_next_reserve_decides_on_none(void **state) {
    (void)state;
    pair p = make_pair(8);
    pkv_page_copy copies[2];
    uint64_t count = 0;
    assert_ok(pkv_table_reserve(p.fork, 7));
    assert_ok(pkv_table_reserve(p.fork, 12));
    assert_int_equal(outstanding(p.fork), 1);
    assert_ok(pkv_table_take_copies(p.fork, copies, 2, &count));
    assert_int_equal(count, 1);
    assert_int_equal(outstanding(p.fork), 0);
    assert_ok(pkv_table_reserve(p.fork, 16));
    assert_int_equal(outstanding(p.fork), 0);
    end_pair(&p);
}

static void too_small_an_array_takes_nothing(void **state) {
    (void)state;
    const pkv_group_options groups[2] = {id_group(8), id_group(8)};
    pkv_pool *pool = make_groups(groups, 2, page_tokens);
    pkv_table *source = sequence_of(pool, 6), *fork = fork_of(source);
    assert_ok(pkv_table_reserve(fork, 7));
    pkv_page_copy copies[3] = {{7, 7, 7}, {7, 7, 7}, {7, 7, 7}};
    uint64_t count = 0;
    assert_status(pkv_table_take_copies(fork, copies, 1, &count), PKV_ERR_NO_SPACE);
    assert_int_equal(count, 2);
    assert_int_equal(copies[0].group, 7);
    assert_status(pkv_table_take_copies(fork, NULL, 2, &count), PKV_ERR_INVALID);
    assert_status(pkv_table_take_copies(fork, copies, 2, NULL), PKV_ERR_INVALID);
    assert_int_equal(outstanding(fork), 2);
    assert_ok(pkv_table_take_copies(fork, copies, 3, &count));
    assert_int_equal(count, 2);
    for (uint32_t group = 0; group < 2; ++group) {
        const pkv_page_copy *copy = &copies[copies[0].group == group ? 0 : 1];
        assert_int_equal(copy->group, group);
        assert_int_equal(copy->src, page_in(source, group, 1));
        assert_int_equal(copy->dst, page_in(fork, group, 1));
    }
    assert_int_equal(copies[2].group, 7);
    end_table(source);
    end_table(fork);
    assert_status(pkv_table_take_copies(fork, copies, 3, &count), PKV_ERR_HANDLE);
    end_groups(pool);
}

static void a_source_is_held_until_commit_truncate_clear_or_destruction(void **state) {
    (void)state;
    for (int end = 0; end < 4; ++end) {
        pair p = make_pair(8);
        assert_ok(pkv_table_reserve(p.fork, 7));
        assert_int_equal(page_of(p.pool, p.shared).count, 2);
        pkv_page_copy copy;
        uint64_t count = 0;
        assert_ok(pkv_table_take_copies(p.fork, &copy, 1, &count));
        assert_ok(pkv_table_clear(p.source, NULL)); /* the source lets go: only the copy holds its page */
        assert_int_equal(page_of(p.pool, p.shared).count, 1);
        assert_int_equal(page_of(p.pool, p.shared).state, PKV_PAGE_HELD);
        switch (end) {
        case 0: assert_ok(pkv_table_commit(p.fork, 7, NULL)); break;
        case 1: assert_ok(pkv_table_truncate(p.fork, 4, NULL)); break;
        case 2: assert_ok(pkv_table_clear(p.fork, NULL)); break;
        default: end_table(p.fork); break;
        }
        assert_int_equal(page_of(p.pool, p.shared).count, 0);
        end_table(p.source);
        if (end != 3) end_table(p.fork);
        end_pool(p.pool);
    }
}

static void a_copy_that_was_not_taken_stops_the_commit(void **state) {
    (void)state;
    pair p = make_pair(8);
    assert_ok(pkv_table_reserve(p.fork, 8));
    const pkv_table_info before = info_of(p.fork);
    assert_status(pkv_table_commit(p.fork, 7, NULL), PKV_ERR_STATE);
    const pkv_table_info after = info_of(p.fork);
    assert_memory_equal(&before, &after, sizeof after);
    assert_ok(pkv_table_commit(p.fork, 6, NULL)); /* nothing to do */
    assert_int_equal(outstanding(p.fork), 1);
    pkv_page_copy copy;
    uint64_t count = 0;
    assert_ok(pkv_table_take_copies(p.fork, &copy, 1, &count));
    assert_ok(pkv_table_commit(p.fork, 7, NULL));
    assert_int_equal(page_at(p.fork, 1), copy.dst);
    end_pair(&p);
}

static void a_copy_goes_with_the_block_that_it_was_for(void **state) {
    (void)state;
    for (uint64_t length = 3; length <= 6; ++length) {
        pair p = make_pair(8);
        assert_ok(pkv_table_reserve(p.fork, 7));
        assert_ok(pkv_table_truncate(p.fork, length, NULL));
        assert_int_equal(outstanding(p.fork), length > 4 ? 1 : 0);
        if (length > 4) { /* the block is still there, and so is the page that its rows are in */
            pkv_page_copy copy;
            uint64_t count = 0;
            assert_true(page_of(p.pool, p.shared).count >= 1);
            assert_ok(pkv_table_take_copies(p.fork, &copy, 1, &count));
            assert_int_equal(copy.src, p.shared);
            assert_int_equal(copy.dst, page_at(p.fork, 1));
        }
        end_pair(&p);
    }
}

static void without_a_page_there_is_no_copy(void **state) {
    (void)state;
    pair p = make_pair(2);
    assert_status(pkv_table_reserve(p.fork, 7), PKV_ERR_NO_PAGES);
    assert_int_equal(outstanding(p.fork), 0);
    assert_int_equal(page_at(p.fork, 1), p.shared);
    assert_int_equal(page_of(p.pool, p.shared).count, 2);
    end_pair(&p);
}

static void the_last_holder_has_nothing_to_copy(void **state) {
    (void)state;
    pair p = make_pair(8);
    assert_ok(pkv_table_clear(p.source, NULL));
    assert_ok(pkv_table_reserve(p.fork, 8));
    assert_int_equal(outstanding(p.fork), 0);
    assert_int_equal(page_at(p.fork, 1), p.shared);
    assert_ok(pkv_table_commit(p.fork, 8, NULL));
    end_pair(&p);
}

static void a_cut_into_a_published_block_is_copied_by_the_caller(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 8);
    const pkv_page published = page_at(table, 1);
    assert_ok(pkv_table_truncate(table, 6, NULL));
    assert_ok(pkv_table_reserve(table, 7));
    pkv_page_copy copy;
    uint64_t count = 0;
    assert_ok(pkv_table_take_copies(table, &copy, 1, &count));
    assert_int_equal(count, 1);
    assert_int_equal(copy.src, published);
    assert_int_equal(page_of(pool, published).count, 1); /* not evicted before it was read */
    assert_ok(pkv_table_commit(table, 7, NULL));
    assert_int_equal(page_of(pool, published).state, PKV_PAGE_CACHED);
    end_table(table);
    end_pool(pool);
}

static void a_pool_with_memory_has_no_copies_to_make(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *source = sequence_of(pool, 6), *fork = fork_of(source);
    assert_ok(pkv_table_reserve(fork, 7));
    assert_int_equal(stats_of(pool).copied_pages, 1);
    assert_int_equal(outstanding(fork), 0);
    end_table(source);
    end_table(fork);
    end_pool(pool);
}

static void of_mixed_groups_only_those_without_memory_are_the_callers(void **state) {
    (void)state;
    pkv_group_options groups[3] = {small_group(8), window_group(8, 6, 0), small_group(8)};
    groups[1].memory = PKV_MEMORY_NONE;
    groups[2].layout = PKV_LAYOUT_HND;
    pkv_pool *pool = make_groups(groups, 3, page_tokens);
    pkv_table *source = sequence_of(pool, 6), *fork = fork_of(source);
    const pkv_page shared = page_in(source, 1, 1);
    assert_ok(pkv_table_reserve(fork, 8));
    for (uint32_t group = 0; group < 3; group += 2) same_rows(pool, fork, group, 0, 6, 1, 0); /* copied already */
    pkv_page_copy copies[3];
    uint64_t count = 0;
    assert_ok(pkv_table_take_copies(fork, copies, 3, &count));
    assert_int_equal(count, 1);
    assert_int_equal(copies[0].group, 1);
    assert_int_equal(copies[0].src, shared);
    assert_int_equal(copies[0].dst, page_in(fork, 1, 1));
    assert_int_equal(group_page(pool, 1, shared).count, 2);
    put_and_commit(pool, fork, 8, 2);
    assert_int_equal(group_page(pool, 1, shared).count, 1);
    for (uint32_t group = 0; group < 3; group += 2) {
        same_rows(pool, fork, group, 0, 6, 1, 0);
        same_rows(pool, fork, group, 6, 2, 2, 6);
        same_rows(pool, source, group, 0, 6, 1, 0);
    }
    assert_int_equal(group_stats(pool, 0).copied_pages, 3);
    end_table(source);
    end_table(fork);
    end_groups(pool);
}

static void a_batch_leaves_the_copies_to_be_taken_from_its_tables(void **state) {
    (void)state;
    pair p = make_pair(8);
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = 2;
    options.max_tokens = 4;
    pkv_batch *batch = NULL;
    assert_ok(pkv_batch_create(p.pool, &options, &batch));
    pkv_table *const tables[2] = {p.source, p.fork};
    const uint32_t num_new[2] = {1, 1};
    assert_ok(pkv_batch_reserve(batch, 2, tables, num_new, NULL));
    /* One of the two copies, and then the other is the last holder. */
    assert_int_equal(outstanding(p.source) + outstanding(p.fork), stats_of(p.pool).copied_pages);
    assert_int_not_equal(page_at(p.source, 1), page_at(p.fork, 1));
    for (int i = 0; i < 2; ++i) {
        pkv_page_copy copy;
        uint64_t count = 0;
        assert_ok(pkv_table_take_copies(tables[i], &copy, 1, &count));
        if (count == 1) assert_int_equal(copy.src, p.shared);
        if (count == 1) assert_int_equal(copy.dst, page_at(tables[i], 1));
    }
    assert_ok(pkv_batch_commit(batch, NULL, NULL, NULL));
    assert_int_equal(info_of(p.source).committed, 7);
    assert_int_equal(info_of(p.fork).committed, 7);
    assert_ok(pkv_batch_destroy(batch));
    end_pair(&p);
}

static void accepting_drafts_without_memory_names_them_and_moves_nothing(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 6);
    const pkv_token drafts[4] = {60, 70, 80, 90};
    assert_ok(pkv_table_reserve(table, 10));
    assert_ok(pkv_table_set_tokens(table, 6, 4, drafts));
    const uint64_t accepted[2] = {7, 9};
    assert_ok(pkv_table_accept(table, 2, accepted, NULL)); /* the caller has moved the rows */
    const pkv_token tokens[8] = {1, 2, 3, 4, 5, 6, 70, 90};
    const pkv_prompt prompt = prompt_of(tokens, 8);
    assert_int_equal(probe_tokens(pool, &prompt), 8);
    assert_int_equal(outstanding(table), 0);
    end_table(table);
    end_pool(pool);
}

/* Beams over a pool without memory: a caller that makes the copies as told, with one number for each row in arrays of its
 * own, never sees another beam's rows. */
static void case_E05_a_caller_that_makes_the_copies_keeps_every_beam_apart(void **state) {
    (void)state;
    enum { width = 4, rounds = 200, pages = 512, longest = 6 + rounds };
    static const int parents[width] = {2, 2, 0, 1};
    static uint32_t rows[pages][page_tokens], expected[width][longest], before[width][longest];
    pkv_pool *pool = make_id_pool(pages, page_tokens);
    pkv_table *beams[width] = {sequence_of(pool, 6)}, *next[width];
    for (uint64_t t = 0; t < 6; ++t) rows[page_at(beams[0], t / page_tokens)][t % page_tokens] = 1;
    for (int i = 1; i < width; ++i) beams[i] = fork_of(beams[0]);
    for (int i = 0; i < width; ++i)
        for (int t = 0; t < 6; ++t) expected[i][t] = 1;
    for (uint32_t round = 0; round < rounds; ++round) {
        const uint64_t length = 6 + round;
        memcpy(before, expected, sizeof before);
        for (int i = 0; i < width; ++i) next[i] = fork_of(beams[parents[i]]);
        for (int i = 0; i < width; ++i) end_table(beams[i]);
        for (int i = 0; i < width; ++i) {
            memcpy(expected[i], before[parents[i]], sizeof expected[i]);
            pkv_slot slot;
            assert_ok(pkv_table_reserve(next[i], length + 1));
            assert_ok(pkv_table_slots(next[i], 0, length, 1, &slot));
            pkv_page_copy copy;
            uint64_t count = 0;
            assert_ok(pkv_table_take_copies(next[i], &copy, 1, &count));
            if (count == 1) memcpy(rows[copy.dst], rows[copy.src], sizeof rows[0]);
            rows[slot / page_tokens][slot % page_tokens] = expected[i][length] = 100 + round * width + (uint32_t)i;
            assert_ok(pkv_table_commit(next[i], length + 1, NULL));
        }
        memcpy(beams, next, sizeof beams);
        for (int i = 0; i < width; ++i) {
            pkv_page list[longest];
            uint64_t blocks = 0;
            assert_ok(pkv_table_pages(beams[i], 0, list, longest, &blocks));
            for (uint64_t t = 0; t <= length; ++t)
                assert_int_equal(rows[list[t / page_tokens]][t % page_tokens], expected[i][t]);
        }
        check_rules(pool);
    }
    for (int i = 0; i < width; ++i) end_table(beams[i]);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_is_decided_by_reserve_or_slots),
        cmocka_unit_test(copies_are_handed_out_once_and_the_next_reserve_decides_on_none),
        cmocka_unit_test(too_small_an_array_takes_nothing),
        cmocka_unit_test(a_source_is_held_until_commit_truncate_clear_or_destruction),
        cmocka_unit_test(a_copy_that_was_not_taken_stops_the_commit),
        cmocka_unit_test(a_copy_goes_with_the_block_that_it_was_for),
        cmocka_unit_test(without_a_page_there_is_no_copy),
        cmocka_unit_test(the_last_holder_has_nothing_to_copy),
        cmocka_unit_test(a_cut_into_a_published_block_is_copied_by_the_caller),
        cmocka_unit_test(a_pool_with_memory_has_no_copies_to_make),
        cmocka_unit_test(of_mixed_groups_only_those_without_memory_are_the_callers),
        cmocka_unit_test(a_batch_leaves_the_copies_to_be_taken_from_its_tables),
        cmocka_unit_test(accepting_drafts_without_memory_names_them_and_moves_nothing),
        cmocka_unit_test(case_E05_a_caller_that_makes_the_copies_keeps_every_beam_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
