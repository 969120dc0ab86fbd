/* SPDX-License-Identifier: Apache-2.0 */
/* Sliding windows: which prefixes a window group covers, what pkv_table_window drops, and how tables with dropped blocks go
 * on. Field case B05. */
#include "support/support.h"

enum { page_tokens = 4, max_blocks = 6 };

/* ---- the covering rule, beside a model that looks at every token ---- */

static bool covers(uint32_t mask, uint64_t length, const pkv_group_options *group, uint32_t page) {
    const bool full = group->attention == PKV_ATTENTION_FULL;
    for (uint64_t token = 0; token < length; ++token) {
        const bool wanted = full || token + group->window >= length || token < group->sinks;
        if (wanted && (mask >> token / page & 1) == 0) return false;
    }
    return true;
}

static uint64_t longest(const uint32_t *masks, const pkv_group_options *groups, uint32_t num_groups, uint32_t page) {
    for (uint64_t blocks = max_blocks; blocks > 0; --blocks) {
        bool good = true;
        for (uint32_t group = 0; group < num_groups; ++group)
            good = good && covers(masks[group], blocks * page, &groups[group], page);
        if (good) return blocks * page;
    }
    return 0;
}

/* Publishes the blocks of the masks, each group's one by one; blocks that no group has end the prefix. */
static void publish_masks(pkv_pool *pool, const pkv_prompt *prompt, uint32_t *masks, uint32_t num_groups,
                          pkv_page *pages) {
    for (uint64_t block = 0; block < max_blocks; ++block)
        for (uint32_t group = 0; group < num_groups; ++group) {
            pkv_page *page = &pages[group * max_blocks + block];
            *page = PKV_NO_PAGE;
            if ((masks[group] >> block & 1) == 0) continue;
            assert_ok(pkv_pool_alloc(pool, group, 1, page));
            const pkv_status status = pkv_pool_publish(pool, group, prompt, block, 1, page, NULL);
            if (status == PKV_OK) continue;
            assert_int_equal(status, PKV_ERR_NOT_FOUND);
            masks[group] &= ~(1u << block);
        }
}

static void compare_lookup(pkv_pool *pool, const pkv_prompt *prompt, const uint32_t *masks,
                           const pkv_group_options *groups, uint32_t num_groups, const pkv_page *pages, uint32_t page) {
    const uint64_t expected = longest(masks, groups, num_groups, page);
    if (probe_tokens(pool, prompt) != expected)
        fail_msg("%llu tokens match, not %llu: masks %02x %02x, windows %u %u, sinks %u %u, %u tokens a page",
                 (unsigned long long)probe_tokens(pool, prompt), (unsigned long long)expected, masks[0],
                 masks[num_groups - 1], groups[0].window, groups[num_groups - 1].window, groups[0].sinks,
                 groups[num_groups - 1].sinks, page);
    pkv_page found[2 * max_blocks];
    assert_int_equal(lookup_tokens(pool, prompt, found, max_blocks), expected);
    for (uint32_t group = 0; group < num_groups; ++group)
        for (uint64_t block = 0; block < expected / page; ++block) {
            /* Reached: without it the length would not be covered. */
            const bool reached = !covers(UINT32_MAX & ~(1u << block), expected, &groups[group], page);
            const pkv_page got = found[group * max_blocks + block];
            assert_int_equal(got, reached ? pages[group * max_blocks + block] : PKV_NO_PAGE);
            if (reached) assert_ok(pkv_pool_release(pool, group, 1, &got, NULL, NULL));
        }
}

/* All sets of blocks in a window group (or every set of both, when the first has a window too, by chance). */
static void check_covering(pkv_group_options *groups, uint32_t num_groups, uint32_t page, test_random *random) {
    for (uint32_t group = 0; group < num_groups; ++group) {
        groups[group].num_pages = 64 * max_blocks;
        groups[group].memory = PKV_MEMORY_NONE;
    }
    pkv_pool *pool = make_groups(groups, num_groups, page);
    for (uint32_t set = 0; set < 64; ++set) {
        pkv_token tokens[max_blocks * 16];
        count_up(tokens, max_blocks * page, (pkv_token)set * 1000);
        const pkv_prompt prompt = prompt_of(tokens, max_blocks * page);
        uint32_t masks[2] = {set, set};
        if (num_groups == 2 && groups[0].attention == PKV_ATTENTION_FULL)
            masks[0] = random_below(random, 4) == 0 ? (1u << random_below(random, max_blocks + 1)) - 1 : 63;
        else if (num_groups == 2)
            masks[0] = (uint32_t)random_below(random, 64);
        pkv_page pages[2 * max_blocks];
        publish_masks(pool, &prompt, masks, num_groups, pages);
        compare_lookup(pool, &prompt, masks, groups, num_groups, pages, page);
        for (uint32_t group = 0; group < num_groups; ++group)
            for (uint64_t block = 0; block < max_blocks; ++block)
                if (pages[group * max_blocks + block] != PKV_NO_PAGE)
                    assert_ok(pkv_pool_release(pool, group, 1, &pages[group * max_blocks + block], NULL, NULL));
    }
    end_groups(pool);
}

static void the_longest_covered_prefix_matches(void **state) {
    (void)state;
    static const uint32_t pages[] = {1, 3, 16};
    test_random random = {20240611};
    print_message("seed 20240611\n");
    for (int p = 0; p < 3; ++p) {
        const uint32_t page = pages[p];
        const uint32_t windows[] = {1, page, page + 1, 2 * page, 2 * page + page / 2, 5 * page - 1, 1000};
        const uint32_t sinks[] = {0, 1, page, page + 1, 3 * page};
        for (int w = 0; w < 7; ++w)
            for (int s = 0; s < 5; ++s) {
                pkv_group_options groups[2] = {small_group(1), window_group(1, windows[w], sinks[s])};
                check_covering(groups, 2, page, &random);
                pkv_group_options two[2] = {window_group(1, windows[(w + 3) % 7], sinks[(s + 2) % 5]), groups[1]};
                check_covering(two, 2, page, &random);
                check_covering(groups + 1, 1, page, &random);
            }
    }
}

static void max_match_bounds_the_length_before_the_window_is_looked_at(void **state) {
    (void)state;
    const pkv_group_options groups[2] = {small_group(8), window_group(8, 4, 0)};
    pkv_pool *pool = make_groups(groups, 2, page_tokens);
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    const pkv_prompt prompt = prompt_of(tokens, 16);
    pkv_page pages[2 * max_blocks];
    uint32_t masks[2] = {15, 8 | 2}; /* the window group has blocks 1 and 3 */
    publish_masks(pool, &prompt, masks, 2, pages);
    pkv_match match = PKV_MATCH_INIT;
    assert_ok(pkv_pool_probe(pool, &prompt, PKV_MATCH_ALL, &match));
    assert_int_equal(match.tokens, 16);
    assert_ok(pkv_pool_probe(pool, &prompt, 0, &match)); /* all but the last: 12 lacks its window, 8 has it */
    assert_int_equal(match.tokens, 8);
    assert_ok(pkv_pool_probe(pool, &prompt, 7, &match));
    assert_int_equal(match.tokens, 0);
    for (uint64_t block = 0; block < 4; ++block) assert_ok(pkv_pool_release(pool, 0, 1, &pages[block], NULL, NULL));
    assert_ok(pkv_pool_release(pool, 1, 1, &pages[max_blocks + 1], NULL, NULL));
    assert_ok(pkv_pool_release(pool, 1, 1, &pages[max_blocks + 3], NULL, NULL));
    end_groups(pool);
}

/* ---- what pkv_table_window drops ---- */

/* Full and window group; `length` tokens 1, 2, 3 ... committed step by step, the window dropped after each. */
static pkv_table *slide(pkv_pool *pool, uint64_t length, uint32_t tag) {
    pkv_token tokens[64];
    count_up(tokens, length, 1);
    const pkv_prompt prompt = prompt_of(tokens, length);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.reserve_tokens = 1;
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    assert_ok(pkv_table_admit(table, &prompt, &options, NULL));
    for (uint64_t end = info_of(table).committed; end < length;) {
        end = end + page_tokens < length ? end + page_tokens : length;
        put_and_commit(pool, table, end, tag);
        assert_ok(pkv_table_window(table, NULL));
    }
    return table;
}

static void window_drops_what_ends_before_it_and_holds_no_sink(void **state) {
    (void)state;
    static const struct {
        uint32_t window, sinks;
    } cases[] = {{1, 0}, {4, 0}, {5, 0}, {6, 1}, {8, 4}, {9, 5}, {100, 0}, {3, 100}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
        for (uint64_t length = 1; length <= 24; ++length) {
            const pkv_group_options groups[2] = {small_group(8), window_group(8, cases[i].window, cases[i].sinks)};
            pkv_pool *pool = make_groups(groups, 2, page_tokens);
            pkv_table *table = slide(pool, length, 1);
            for (uint64_t block = 0; block < info_of(table).blocks; ++block) {
                const uint64_t begin = block * page_tokens, end = begin + page_tokens;
                const bool dropped = end + cases[i].window <= length && begin >= cases[i].sinks;
                if ((page_in(table, 1, block) == PKV_NO_PAGE) != dropped)
                    fail_msg("window %u, sinks %u, %llu tokens: block %llu", cases[i].window, cases[i].sinks,
                             (unsigned long long)length, (unsigned long long)block);
                assert_int_not_equal(page_in(table, 0, block), PKV_NO_PAGE);
                if (!dropped) same_rows(pool, table, 1, begin, (end < length ? end : length) - begin, 1, begin);
            }
            same_rows(pool, table, 0, 0, length, 1, 0);
            end_table(table);
            end_groups(pool);
        }
}

static void a_sequence_needs_no_more_pages_than_its_window(void **state) {
    (void)state;
    const pkv_group_options groups[2] = {small_group(16), window_group(4, 8, 0)};
    pkv_pool *pool = make_groups(groups, 2, page_tokens);
    pkv_table *table = slide(pool, 60, 1);
    same_rows(pool, table, 1, 52, 8, 1, 52);
    end_table(table);
    /* Blocks long passed were evicted for later ones; the end of the prefix is whole, and so the prompt is found. */
    pkv_token tokens[64];
    count_up(tokens, 64, 1);
    const pkv_prompt prompt = prompt_of(tokens, 60), longer = prompt_of(tokens, 64);
    assert_int_equal(probe_tokens(pool, &prompt), 60);
    pkv_match match = PKV_MATCH_INIT;
    table = admit(pool, &longer, &match);
    assert_int_equal(match.tokens, 60);
    assert_int_equal(page_in(table, 1, 12), PKV_NO_PAGE);
    same_rows(pool, table, 0, 0, 60, 1, 0);
    same_rows(pool, table, 1, 52, 8, 1, 52);
    put_and_commit(pool, table, 64, 2);
    assert_ok(pkv_table_window(table, NULL));
    same_rows(pool, table, 1, 56, 4, 1, 56);
    same_rows(pool, table, 1, 60, 4, 2, 60);
    end_table(table);
    end_groups(pool);
}

static pkv_pool *make_sliding(uint64_t pages, uint32_t sinks) {
    const pkv_group_options groups[2] = {small_group(pages), window_group(pages, 6, sinks)};
    return make_groups(groups, 2, page_tokens);
}

static void dropped_blocks_have_no_page_no_slot_and_no_rows(void **state) {
    (void)state;
    pkv_pool *pool = make_sliding(8, 2);
    pkv_table *table = slide(pool, 21, 1); /* of 6 blocks, 1 and 2 are dropped */
    uint16_t data[21 * 8];
    pkv_tensor k = PKV_TENSOR_INIT;
    k.data = data;
    k.dtype = PKV_DTYPE_F16;
    k.num_tokens = 21;
    pkv_slot slots[21];
    assert_ok(pkv_table_slots(table, 1, 0, 21, slots));
    for (uint64_t token = 0; token < 21; ++token) {
        const pkv_page page = page_in(table, 1, token / page_tokens);
        const bool dropped = token >= 4 && token < 12;
        assert_int_equal(page == PKV_NO_PAGE, dropped);
        assert_true(slots[token] ==
                    (dropped ? PKV_NO_SLOT : page * (pkv_slot)page_tokens + (pkv_slot)(token % page_tokens)));
        assert_status(pkv_table_gather(table, 1, 0, token, 1, &k, NULL, NULL), dropped ? PKV_ERR_NOT_RESIDENT : PKV_OK);
    }
    assert_status(pkv_table_gather(table, 1, 0, 11, 2, &k, NULL, NULL), PKV_ERR_NOT_RESIDENT);
    assert_status(pkv_table_gather(table, 1, 0, 0, 21, &k, NULL, NULL), PKV_ERR_NOT_RESIDENT);
    assert_ok(pkv_table_gather(table, 0, 0, 0, 21, &k, NULL, NULL));
    assert_ok(pkv_table_slots(table, 0, 4, 1, slots));
    assert_true(slots[0] >= 0);
    end_table(table);
    end_groups(pool);
}

static void window_again_without_progress_does_nothing(void **state) {
    (void)state;
    pkv_pool *pool = make_sliding(8, 0);
    pkv_table *table = slide(pool, 21, 1);
    const pkv_pool_stats before = group_stats(pool, 1);
    assert_ok(pkv_table_window(table, NULL));
    const pkv_pool_stats after = group_stats(pool, 1);
    assert_same_stats(&before, &after);
    pkv_table *empty = NULL;
    assert_ok(pkv_table_create(pool, &empty));
    assert_status(pkv_table_window(empty, NULL), PKV_ERR_STATE);
    end_table(empty);
    end_table(table);
    end_groups(pool);
}

static void a_truncation_whose_window_reaches_dropped_blocks_is_refused(void **state) {
    (void)state;
    for (uint64_t length = 0; length <= 21; ++length) {
        pkv_pool *pool = make_sliding(8, 2);
        pkv_table *table = slide(pool, 21, 1);
        const pkv_pool_stats before[2] = {group_stats(pool, 0), group_stats(pool, 1)};
        const pkv_table_info info = info_of(table);
        bool needed = false; /* a dropped block, 1 or 2, in the window that ends at `length` */
        for (uint64_t token = length > 6 ? length - 6 : 0; token < length; ++token) needed |= token >= 4 && token < 12;
        assert_status(pkv_table_truncate(table, length, NULL), needed ? PKV_ERR_STATE : PKV_OK);
        if (needed) {
            const pkv_pool_stats after[2] = {group_stats(pool, 0), group_stats(pool, 1)};
            const pkv_table_info same = info_of(table);
            assert_same_stats(&before[0], &after[0]);
            assert_same_stats(&before[1], &after[1]);
            assert_memory_equal(&info, &same, sizeof info);
            same_rows(pool, table, 0, 0, 21, 1, 0);
            same_rows(pool, table, 1, 15, 6, 1, 15);
        } else {
            assert_int_equal(info_of(table).committed, length);
            put_and_commit(pool, table, length + 3, 2);
            const uint64_t first = length > 3 ? length - 3 : 0; /* of the window of 6 at length + 3 */
            same_rows(pool, table, 1, first, length - first, 1, first);
            same_rows(pool, table, 1, length, 3, 2, length);
        }
        end_table(table);
        end_groups(pool);
    }
}

static void case_B05_a_forked_table_with_dropped_blocks_gives_each_page_back_once(void **state) {
    (void)state;
    for (int first = 0; first < 2; ++first) {
        pkv_pool *pool = make_sliding(8, 2);
        pkv_table *tables[2] = {slide(pool, 19, 1)};
        tables[1] = fork_of(tables[0]);
        for (uint64_t block = 0; block < 5; ++block)
            for (uint32_t group = 0; group < 2; ++group) {
                const pkv_page page = page_in(tables[0], group, block);
                assert_int_equal(page_in(tables[1], group, block), page);
                if (page != PKV_NO_PAGE) assert_int_equal(group_page(pool, group, page).count, 2);
            }
        put_and_commit(pool, tables[1], 24, 2);
        assert_ok(pkv_table_window(tables[1], NULL));
        same_rows(pool, tables[0], 1, 13, 6, 1, 13); /* what the fork has passed is still the source's */
        same_rows(pool, tables[1], 1, 18, 1, 1, 18);
        same_rows(pool, tables[1], 1, 19, 5, 2, 19);
        end_table(tables[first]);
        end_table(tables[1 - first]);
        end_groups(pool);
    }
}

static void passed_blocks_are_evicted_before_anything_that_was_released_earlier(void **state) {
    (void)state;
    pkv_pool *pool = make_sliding(10, 0);
    pkv_token other[8];
    count_up(other, 8, 1000);
    const pkv_prompt old = prompt_of(other, 8);
    pkv_table *early = admit(pool, &old, NULL);
    put_and_commit(pool, early, 8, 9);
    const pkv_page early_pages[2] = {page_in(early, 1, 0), page_in(early, 1, 1)};
    end_table(early);
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    const pkv_prompt prompt = prompt_of(tokens, 16);
    pkv_table *table = admit(pool, &prompt, NULL);
    put_and_commit(pool, table, 16, 1);
    pkv_page pages[4];
    for (uint64_t block = 0; block < 4; ++block) pages[block] = page_in(table, 1, block);
    assert_ok(pkv_table_window(table, NULL)); /* the window begins at 10: blocks 0 and 1 */
    const pkv_page order[4] = {pages[0], pages[1], early_pages[0], early_pages[1]};
    for (int i = 0; i < 4; ++i) {
        uint64_t evicted = 0;
        assert_ok(pkv_pool_evict(pool, 1, 1, &evicted));
        assert_int_equal(evicted, 1);
        assert_int_equal(group_page(pool, 1, order[i]).state, PKV_PAGE_FREE);
        if (i < 3) assert_int_equal(group_page(pool, 1, order[i + 1]).state, PKV_PAGE_CACHED);
    }
    assert_int_equal(group_stats(pool, 0).cached_pages, 2); /* the early sequence's, in the full group */
    end_table(table);
    end_groups(pool);
}

static void sinks_stay_and_are_evicted_last(void **state) {
    (void)state;
    pkv_pool *pool = make_sliding(8, 5);
    pkv_table *table = slide(pool, 24, 1);
    assert_int_equal(page_in(table, 1, 2), PKV_NO_PAGE);
    const pkv_page order[4] = {page_in(table, 1, 4), page_in(table, 1, 5), page_in(table, 1, 1), page_in(table, 1, 0)};
    same_rows(pool, table, 1, 0, 8, 1, 0);
    end_table(table);
    uint64_t evicted = 0;
    assert_ok(pkv_pool_evict(pool, 1, 2, &evicted)); /* those that the window has passed */
    for (int i = 0; i < 4; ++i) {
        assert_int_equal(group_page(pool, 1, order[i]).state, PKV_PAGE_CACHED);
        assert_ok(pkv_pool_evict(pool, 1, 1, &evicted));
        assert_int_equal(group_page(pool, 1, order[i]).state, PKV_PAGE_FREE);
    }
    end_groups(pool);
}

static void batch_arrays_have_the_fill_where_a_block_was_dropped(void **state) {
    (void)state;
    pkv_pool *pool = make_sliding(16, 2);
    pkv_table *tables[2] = {slide(pool, 20, 1), NULL};
    tables[1] = fork_of(tables[0]);
    assert_ok(pkv_table_truncate(tables[1], 3, NULL));
    int32_t block_table[2][8], indptr[3], indices[16];
    int64_t slots[4];
    pkv_batch_arrays arrays = PKV_BATCH_ARRAYS_INIT;
    arrays.group = 1;
    arrays.fill = -5;
    arrays.max_blocks = 8;
    arrays.max_indices = 16;
    arrays.block_table = &block_table[0][0];
    arrays.block_indptr = indptr;
    arrays.block_indices = indices;
    arrays.slot_mapping = slots;
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = 2;
    options.num_arrays = 1;
    options.arrays = &arrays;
    options.max_tokens = 4;
    pkv_batch *batch = NULL;
    assert_ok(pkv_batch_create(pool, &options, &batch));
    const uint32_t num_new[2] = {2, 1};
    for (int step = 0; step < 3; ++step) {
        assert_ok(pkv_batch_reserve(batch, 2, tables, num_new, NULL));
        assert_int_equal(indptr[0], 0);
        int dropped = 0;
        for (int row = 0; row < 2; ++row) {
            const uint64_t blocks = (uint64_t)(indptr[row + 1] - indptr[row]);
            assert_int_equal(blocks, info_of(tables[row]).blocks);
            for (uint64_t block = 0; block < 8; ++block) {
                const pkv_page page = block < blocks ? page_in(tables[row], 1, block) : PKV_NO_PAGE;
                const int32_t expected = page == PKV_NO_PAGE ? -5 : page;
                dropped += block < blocks && page == PKV_NO_PAGE;
                assert_int_equal(block_table[row][block], expected);
                if (block < blocks) assert_int_equal(indices[indptr[row] + (int32_t)block], expected);
            }
        }
        assert_int_equal(dropped, step == 0 ? 2 : 3);
        for (int i = 0; i < 4; ++i) assert_true(i < 3 ? slots[i] >= 0 : slots[i] == PKV_NO_SLOT);
        assert_ok(pkv_batch_commit(batch, NULL, NULL, NULL));
        assert_ok(pkv_table_window(tables[0], NULL)); /* at 22 block 3 goes, too */
    }
    assert_ok(pkv_batch_destroy(batch));
    end_table(tables[0]);
    end_table(tables[1]);
    end_groups(pool);
}

static void a_pool_of_window_groups_alone_keeps_only_windows(void **state) {
    (void)state;
    const pkv_group_options groups[2] = {window_group(4, 6, 0), window_group(8, 14, 1)};
    pkv_pool *pool = make_groups(groups, 2, page_tokens);
    pkv_table *table = slide(pool, 24, 1);
    same_rows(pool, table, 0, 18, 6, 1, 18);
    same_rows(pool, table, 1, 10, 14, 1, 10);
    same_rows(pool, table, 1, 0, 1, 1, 0);
    end_table(table);
    pkv_token tokens[24];
    count_up(tokens, 24, 1);
    const pkv_prompt prompt = prompt_of(tokens, 24), shorter = prompt_of(tokens, 20);
    assert_int_equal(probe_tokens(pool, &prompt), 24);
    assert_int_equal(probe_tokens(pool, &shorter), 20); /* 4 pages: blocks 2 to 5 of the first group */
    uint64_t evicted = 0;
    assert_ok(pkv_pool_evict(pool, 0, 2, &evicted));
    assert_int_equal(probe_tokens(pool, &shorter), 0);
    assert_int_equal(probe_tokens(pool, &prompt), 24);
    assert_ok(pkv_pool_evict(pool, 0, 4, &evicted));
    assert_ok(pkv_pool_evict(pool, 1, 8, &evicted));
    assert_int_equal(group_stats(pool, 0).index_blocks, 0); /* blocks without a page in any group are gone */
    assert_int_equal(group_stats(pool, 0).namespaces, 0);
    end_groups(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_covered_prefix_matches),
        cmocka_unit_test(max_match_bounds_the_length_before_the_window_is_looked_at),
        cmocka_unit_test(window_drops_what_ends_before_it_and_holds_no_sink),
        cmocka_unit_test(a_sequence_needs_no_more_pages_than_its_window),
        cmocka_unit_test(dropped_blocks_have_no_page_no_slot_and_no_rows),
        cmocka_unit_test(window_again_without_progress_does_nothing),
        cmocka_unit_test(a_truncation_whose_window_reaches_dropped_blocks_is_refused),
        cmocka_unit_test(case_B05_a_forked_table_with_dropped_blocks_gives_each_page_back_once),
        cmocka_unit_test(passed_blocks_are_evicted_before_anything_that_was_released_earlier),
        cmocka_unit_test(sinks_stay_and_are_evicted_last),
        cmocka_unit_test(batch_arrays_have_the_fill_where_a_block_was_dropped),
        cmocka_unit_test(a_pool_of_window_groups_alone_keeps_only_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
