/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of several layer groups: one block of a sequence has a page in each, and a call does its work in all of them or in
 * none. Field cases C and R. */
#include "support/support.h"

enum { page_tokens = 4, num_groups = 3 };

/* A full group; a window group of the same rows; a full group of another geometry: 3 layers, 1 head, no V. */
static pkv_pool *make_three(uint64_t first, uint64_t second, uint64_t third) {
    pkv_group_options groups[num_groups] = {small_group(first), window_group(second, 6, 0), small_group(third)};
    groups[2].num_layers = 3;
    groups[2].num_kv_heads = 1;
    groups[2].k_head_dim = 12;
    groups[2].v_head_dim = 0;
    groups[2].dtype = PKV_DTYPE_F32;
    groups[2].layout = PKV_LAYOUT_HND;
    return make_groups(groups, num_groups, page_tokens);
}

static pkv_table *sequence_of(pkv_pool *pool, uint64_t committed, pkv_token first) {
    pkv_token tokens[64];
    count_up(tokens, committed, first);
    const pkv_prompt prompt = prompt_of(tokens, committed);
    pkv_table *table = admit(pool, &prompt, NULL);
    put_and_commit(pool, table, committed, (uint32_t)first);
    return table;
}

/* All that a call which failed must have left alone. */
typedef struct {
    pkv_pool_stats stats[num_groups];
    pkv_table_info info;
    pkv_page pages[num_groups][16];
} snapshot;

static snapshot snapshot_of(pkv_pool *pool, pkv_table *table) {
    snapshot s;
    memset(&s, 0, sizeof s);
    s.info = info_of(table);
    for (uint32_t group = 0; group < num_groups; ++group) {
        uint64_t blocks = 0;
        s.stats[group] = group_stats(pool, group);
        s.stats[group].failed_allocations = s.stats[group].refused = 0; /* these may count the failure */
        assert_ok(pkv_table_pages(table, group, s.pages[group], 16, &blocks));
    }
    return s;
}

static void assert_unchanged(pkv_pool *pool, pkv_table *table, const snapshot *before) {
    const snapshot after = snapshot_of(pool, table);
    assert_memory_equal(&after.info, &before->info, sizeof after.info);
    assert_memory_equal(after.pages, before->pages, sizeof after.pages);
    for (uint32_t group = 0; group < num_groups; ++group) assert_same_stats(&before->stats[group], &after.stats[group]);
}

static void a_block_has_a_page_in_each_group(void **state) {
    (void)state;
    pkv_pool *pool = make_three(8, 6, 5);
    pkv_page taken;
    assert_ok(pkv_pool_alloc(pool, 1, 1, &taken)); /* so that ids of the groups differ */
    pkv_table *table = sequence_of(pool, 10, 1);
    for (uint64_t block = 0; block < 3; ++block) {
        assert_int_equal(page_in(table, 0, block), block);
        assert_int_equal(page_in(table, 1, block), block + 1);
        assert_int_equal(page_in(table, 2, block), block);
    }
    assert_int_equal(info_of(table).blocks, 3);
    assert_int_equal(group_stats(pool, 0).held_pages, 3);
    assert_int_equal(group_stats(pool, 1).held_pages, 4);
    assert_int_equal(group_stats(pool, 2).free_pages, 2);
    uint64_t blocks = 0;
    assert_status(pkv_table_pages(table, num_groups, NULL, 0, &blocks), PKV_ERR_INVALID);
    assert_ok(pkv_pool_release(pool, 1, 1, &taken, NULL, NULL));
    end_table(table);
    end_groups(pool);
}

static void rows_of_the_groups_are_kept_apart(void **state) {
    (void)state;
    pkv_pool *pool = make_three(8, 6, 5);
    pkv_table *a = sequence_of(pool, 7, 100), *b = sequence_of(pool, 10, 200);
    for (uint32_t group = 0; group < num_groups; ++group) {
        same_rows(pool, a, group, 0, 7, 100, 0);
        same_rows(pool, b, group, 0, 10, 200, 0);
    }
    end_table(a);
    end_table(b);
    end_groups(pool);
}

static void layers_are_counted_in_each_group_from_0(void **state) {
    (void)state;
    pkv_pool *pool = make_three(8, 6, 5);
    pkv_table *table = sequence_of(pool, 7, 1);
    float data[12];
    pkv_tensor k = PKV_TENSOR_INIT;
    k.data = data;
    k.dtype = PKV_DTYPE_F32;
    k.num_tokens = 1;
    assert_ok(pkv_table_gather(table, 2, 2, 0, 1, &k, NULL, NULL));
    assert_status(pkv_table_gather(table, 2, 3, 0, 1, &k, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_table_gather(table, 0, 2, 0, 1, &k, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_table_gather(table, num_groups, 0, 0, 1, &k, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_table_gather(table, 2, 0, 0, 1, &k, &k, NULL), PKV_ERR_INVALID); /* has no V */
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    assert_ok(pkv_pool_layout(pool, 2, 2, &layout));
    assert_int_equal(layout.k_row_bytes, 48);
    assert_null(layout.v_base);
    assert_status(pkv_pool_layout(pool, 2, 3, &layout), PKV_ERR_INVALID);
    end_table(table);
    end_groups(pool);
}

static void rows_written_in_one_group_are_not_readable_in_another(void **state) {
    (void)state;
    pkv_pool *pool = make_three(8, 6, 5);
    pkv_table *table = sequence_of(pool, 5, 1);
    assert_ok(pkv_table_reserve(table, 8));
    put_rows(pool, table, 2, 5, 3, 9);
    same_rows(pool, table, 2, 5, 3, 9, 5);
    uint16_t data[8];
    pkv_tensor k = PKV_TENSOR_INIT;
    k.data = data;
    k.dtype = PKV_DTYPE_F16;
    k.num_tokens = 1;
    assert_status(pkv_table_gather(table, 0, 0, 5, 1, &k, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_table_gather(table, 1, 1, 5, 1, &k, NULL, NULL), PKV_ERR_INVALID);
    end_table(table);
    end_groups(pool);
}

static void case_C04_one_group_without_room_refuses_the_reserve_in_all(void **state) {
    (void)state;
    static const uint64_t sizes[3][num_groups] = {{3, 8, 8}, {8, 3, 8}, {8, 8, 3}};
    for (int i = 0; i < 3; ++i) {
        pkv_pool *pool = make_three(sizes[i][0], sizes[i][1], sizes[i][2]);
        pkv_table *table = sequence_of(pool, 6, 1);
        const snapshot before = snapshot_of(pool, table);
        assert_status(pkv_table_reserve(table, 13), PKV_ERR_NO_PAGES);
        assert_unchanged(pool, table, &before);
        assert_int_equal(group_stats(pool, 0).failed_allocations, 1);
        assert_ok(pkv_table_reserve(table, 12));
        for (uint32_t group = 0; group < num_groups; ++group) same_rows(pool, table, group, 0, 6, 1, 0);
        end_table(table);
        end_groups(pool);
    }
}

static void one_group_without_room_refuses_the_admission_in_all(void **state) {
    (void)state;
    static const uint64_t sizes[3][num_groups] = {{5, 8, 8}, {8, 5, 8}, {8, 8, 5}};
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    const pkv_prompt prompt = prompt_of(tokens, 16);
    for (int i = 0; i < 3; ++i) {
        pkv_pool *pool = make_three(sizes[i][0], sizes[i][1], sizes[i][2]);
        pkv_table *other = sequence_of(pool, 6, 100), *table = NULL;
        assert_ok(pkv_table_create(pool, &table));
        const snapshot before = snapshot_of(pool, other);
        assert_status(pkv_table_admit(table, &prompt, NULL, NULL), PKV_ERR_NO_PAGES);
        assert_unchanged(pool, other, &before);
        assert_int_equal(group_stats(pool, 0).refused, 1);
        assert_int_equal(info_of(table).blocks, 0);
        assert_status(pkv_table_reserve(table, 1), PKV_ERR_STATE);
        end_table(other);
        assert_ok(pkv_table_admit(table, &prompt, NULL, NULL));
        end_table(table);
        end_groups(pool);
    }
}

static void the_watermark_holds_in_every_group(void **state) {
    (void)state;
    pkv_pool *pool = make_three(20, 20, 5);
    pkv_token tokens[12];
    count_up(tokens, 12, 1);
    const pkv_prompt prompt = prompt_of(tokens, 12);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    options.watermark = 3;
    assert_status(pkv_table_admit(table, &prompt, &options, NULL), PKV_ERR_NO_PAGES);
    options.watermark = 2;
    assert_ok(pkv_table_admit(table, &prompt, &options, NULL));
    assert_int_equal(group_stats(pool, 2).free_pages, 2);
    end_table(table);
    end_groups(pool);
}

static void a_fork_shares_and_copies_in_every_group(void **state) {
    (void)state;
    pkv_pool *pool = make_three(8, 8, 8);
    pkv_table *source = sequence_of(pool, 6, 1), *fork = fork_of(source);
    for (uint32_t group = 0; group < num_groups; ++group)
        for (uint64_t block = 0; block < 2; ++block) {
            assert_int_equal(page_in(fork, group, block), page_in(source, group, block));
            assert_int_equal(group_page(pool, group, page_in(fork, group, block)).count, 2);
        }
    put_and_commit(pool, fork, 9, 2);
    assert_int_equal(group_stats(pool, 0).copied_pages, num_groups);
    put_and_commit(pool, source, 8, 3);
    for (uint32_t group = 0; group < num_groups; ++group) {
        assert_int_equal(page_in(fork, group, 0), page_in(source, group, 0));
        assert_int_not_equal(page_in(fork, group, 1), page_in(source, group, 1));
        same_rows(pool, fork, group, 0, 6, 1, 0);
        same_rows(pool, fork, group, 6, 3, 2, 6);
        same_rows(pool, source, group, 0, 6, 1, 0);
        same_rows(pool, source, group, 6, 2, 3, 6);
    }
    end_table(source);
    end_table(fork);
    end_groups(pool);
}

static void without_a_page_for_one_groups_copy_no_group_copies(void **state) {
    (void)state;
    static const uint64_t sizes[3][num_groups] = {{2, 8, 8}, {8, 2, 8}, {8, 8, 2}};
    for (int i = 0; i < 3; ++i) {
        pkv_pool *pool = make_three(sizes[i][0], sizes[i][1], sizes[i][2]);
        pkv_table *source = sequence_of(pool, 6, 1), *fork = fork_of(source);
        const snapshot before = snapshot_of(pool, fork);
        pkv_slot slot = -7;
        assert_status(pkv_table_reserve(fork, 7), PKV_ERR_NO_PAGES);
        assert_status(pkv_table_slots(fork, 0, 6, 1, &slot), PKV_ERR_NO_PAGES);
        assert_int_equal(slot, -7);
        assert_unchanged(pool, fork, &before);
        end_table(source);
        put_and_commit(pool, fork, 8, 2);
        for (uint32_t group = 0; group < num_groups; ++group) same_rows(pool, fork, group, 0, 6, 1, 0);
        end_table(fork);
        end_groups(pool);
    }
}

static void truncate_and_clear_release_in_every_group(void **state) {
    (void)state;
    pkv_pool *pool = make_three(8, 8, 8);
    pkv_table *table = sequence_of(pool, 14, 1);
    assert_ok(pkv_table_truncate(table, 5, NULL));
    for (uint32_t group = 0; group < num_groups; ++group) {
        assert_int_equal(group_stats(pool, group).held_pages, 2);
        assert_int_equal(group_stats(pool, group).cached_pages, 1); /* of 4 blocks 3 were full */
        same_rows(pool, table, group, 0, 5, 1, 0);
    }
    put_and_commit(pool, table, 9, 2); /* block 1 is published: copied before it is written */
    for (uint32_t group = 0; group < num_groups; ++group) {
        same_rows(pool, table, group, 0, 5, 1, 0);
        same_rows(pool, table, group, 5, 4, 2, 5);
    }
    assert_int_equal(group_stats(pool, 0).copied_pages, num_groups);
    assert_ok(pkv_table_clear(table, NULL));
    for (uint32_t group = 0; group < num_groups; ++group) {
        assert_int_equal(group_stats(pool, group).held_pages, 0);
        assert_int_equal(group_stats(pool, group).cached_pages, 3);
    }
    assert_int_equal(info_of(table).blocks, 0);
    end_table(table);
    end_groups(pool);
}

static void a_lookup_gives_a_row_of_pages_for_each_group(void **state) {
    (void)state;
    pkv_pool *pool = make_three(8, 8, 8);
    pkv_table *table = sequence_of(pool, 14, 1);
    pkv_token tokens[14];
    count_up(tokens, 14, 1);
    const pkv_prompt prompt = prompt_of(tokens, 14);
    enum { capacity = 5 };
    pkv_page pages[num_groups * capacity];
    for (int i = 0; i < num_groups * capacity; ++i) pages[i] = -7;
    assert_int_equal(lookup_tokens(pool, &prompt, pages, capacity), 12);
    for (uint32_t group = 0; group < num_groups; ++group)
        for (uint64_t block = 0; block < capacity; ++block) {
            const pkv_page page = pages[group * capacity + block];
            if (block >= 3) {
                assert_int_equal(page, -7);
            } else if (group == 1 && block == 0) {
                assert_int_equal(page, PKV_NO_PAGE); /* tokens 0 to 3: the window reaches from 6 */
            } else {
                assert_int_equal(page, page_in(table, group, block));
                assert_int_equal(group_page(pool, group, page).count, 2);
                assert_ok(pkv_pool_release(pool, group, 1, &page, NULL, NULL));
            }
        }
    pkv_page few[num_groups * 2];
    assert_int_equal(lookup_tokens(pool, &prompt, few, 2), 8); /* `capacity` bounds the blocks */
    for (uint32_t group = 0; group < num_groups; ++group)
        assert_ok(pkv_pool_release(pool, group, 2, few + group * 2, NULL, NULL));
    end_table(table);
    end_groups(pool);
}

static void each_group_is_published_by_a_call_of_its_own(void **state) {
    (void)state;
    const pkv_group_options groups[2] = {small_group(8), small_group(8)};
    pkv_pool *pool = make_groups(groups, 2, page_tokens);
    pkv_token tokens[12];
    count_up(tokens, 12, 1);
    const pkv_prompt prompt = prompt_of(tokens, 12);
    pkv_page pages[2][3], owner[3];
    for (uint32_t group = 0; group < 2; ++group) assert_ok(pkv_pool_alloc(pool, group, 3, pages[group]));
    assert_status(pkv_pool_publish(pool, 1, &prompt, 1, 1, pages[1] + 1, NULL), PKV_ERR_NOT_FOUND);
    assert_ok(pkv_pool_publish(pool, 0, &prompt, 0, 3, pages[0], owner));
    assert_int_equal(probe_tokens(pool, &prompt), 0); /* the second group has nothing yet */
    assert_ok(
        pkv_pool_publish(pool, 1, &prompt, 1, 1, pages[1] + 1, owner)); /* block 0 is there, if in another group */
    assert_int_equal(owner[0], pages[1][1]);
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_ok(pkv_pool_publish(pool, 1, &prompt, 0, 1, pages[1], NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 8);
    assert_ok(pkv_pool_publish(pool, 1, &prompt, 0, 3, pages[1], NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 12);
    assert_int_equal(group_stats(pool, 0).published_blocks, 3);
    assert_int_equal(group_stats(pool, 0).index_blocks, 3);
    assert_true(group_page(pool, 1, pages[1][2]).published == 1);
    assert_int_equal(group_page(pool, 1, pages[1][2]).block, 2);
    for (uint32_t group = 0; group < 2; ++group) assert_ok(pkv_pool_release(pool, group, 3, pages[group], NULL, NULL));
    end_groups(pool);
}

static void evicting_a_full_groups_page_takes_the_block_from_all_groups(void **state) {
    (void)state;
    for (uint32_t group = 0; group < num_groups; group += 2) {
        pkv_pool *pool = make_three(8, 8, 8);
        end_table(sequence_of(pool, 12, 1));
        uint64_t evicted = 0;
        assert_ok(pkv_pool_evict(pool, group, 1, &evicted));
        assert_int_equal(evicted, 1);
        for (uint32_t other = 0; other < num_groups; ++other) {
            assert_int_equal(group_stats(pool, other).cached_pages, 2);
            assert_int_equal(group_stats(pool, other).free_pages, 6);
            assert_int_equal(group_page(pool, other, 2).published, 0); /* the last block, by its leaf */
        }
        assert_int_equal(group_stats(pool, 0).index_blocks, 2);
        assert_int_equal(group_stats(pool, 0).evicted_pages, 3);
        end_groups(pool);
    }
}

static void evicting_a_window_groups_page_leaves_the_block_to_the_others(void **state) {
    (void)state;
    pkv_pool *pool = make_three(8, 8, 8);
    end_table(sequence_of(pool, 12, 1));
    pkv_token tokens[12];
    count_up(tokens, 12, 1);
    const pkv_prompt prompt = prompt_of(tokens, 12);
    uint64_t evicted = 0;
    assert_ok(pkv_pool_evict(pool, 1, 1, &evicted)); /* block 0, which no window from the end reaches */
    assert_int_equal(evicted, 1);
    assert_int_equal(group_page(pool, 1, 0).published, 0);
    assert_int_equal(group_stats(pool, 0).cached_pages, 3);
    assert_int_equal(group_stats(pool, 2).cached_pages, 3);
    assert_int_equal(group_stats(pool, 0).index_blocks, 3);
    assert_int_equal(probe_tokens(pool, &prompt), 12);
    pkv_prompt shorter = prompt_of(tokens, 8);
    assert_int_equal(probe_tokens(pool, &shorter), 0); /* a window of 6 tokens from 8 begins in block 0 */
    assert_ok(pkv_pool_evict(pool, 1, 8, &evicted));
    assert_int_equal(evicted, 2);
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_int_equal(group_stats(pool, 0).index_blocks, 3);
    end_groups(pool);
}

static void a_groups_limit_of_cached_pages_is_its_own(void **state) {
    (void)state;
    pkv_group_options groups[2] = {small_group(8), window_group(8, 100, 0)};
    groups[1].max_cached_pages = 2;
    pkv_pool *pool = make_groups(groups, 2, page_tokens);
    end_table(sequence_of(pool, 16, 1));
    assert_int_equal(group_stats(pool, 0).cached_pages, 4);
    assert_int_equal(group_stats(pool, 1).cached_pages, 2);
    end_groups(pool);
}

static void clear_frees_in_every_group(void **state) {
    (void)state;
    pkv_pool *pool = make_three(8, 8, 8);
    pkv_table *held = sequence_of(pool, 6, 100);
    end_table(sequence_of(pool, 12, 1));
    pkv_clear_result result = PKV_CLEAR_RESULT_INIT;
    assert_ok(pkv_pool_clear(pool, NULL, &result));
    assert_int_equal(result.freed, 9);
    assert_int_equal(result.held, 3);
    for (uint32_t group = 0; group < num_groups; ++group) {
        assert_int_equal(group_stats(pool, group).cached_pages, 0);
        same_rows(pool, held, group, 0, 6, 100, 0);
    }
    end_table(held);
    end_groups(pool);
}

static void a_group_without_memory_stands_beside_one_with_bytes(void **state) {
    (void)state;
    const pkv_group_options groups[2] = {id_group(8), small_group(4)};
    pkv_pool *pool = make_groups(groups, 2, page_tokens);
    pkv_table *table = sequence_of(pool, 10, 1);
    same_rows(pool, table, 1, 0, 10, 1, 0);
    uint16_t data[8] = {0};
    pkv_tensor k = PKV_TENSOR_INIT;
    k.data = data;
    k.dtype = PKV_DTYPE_F16;
    k.num_tokens = 1;
    assert_status(pkv_table_write(table, 0, 0, 10, 1, &k, &k, NULL), PKV_ERR_UNSUPPORTED);
    assert_status(pkv_table_gather(table, 0, 0, 0, 1, &k, NULL, NULL), PKV_ERR_UNSUPPORTED);
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    assert_ok(pkv_pool_layout(pool, 0, 0, &layout));
    assert_null(layout.k_base);
    assert_int_equal(group_stats(pool, 0).memory_kind, PKV_MEMORY_KIND_NONE);
    assert_int_not_equal(group_stats(pool, 1).memory_kind, PKV_MEMORY_KIND_NONE);
    assert_int_equal(group_stats(pool, 0).num_pages, 8);
    assert_int_equal(group_stats(pool, 1).num_pages, 4);
    end_table(table);
    end_groups(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_has_a_page_in_each_group),
        cmocka_unit_test(rows_of_the_groups_are_kept_apart),
        cmocka_unit_test(layers_are_counted_in_each_group_from_0),
        cmocka_unit_test(rows_written_in_one_group_are_not_readable_in_another),
        cmocka_unit_test(case_C04_one_group_without_room_refuses_the_reserve_in_all),
        cmocka_unit_test(one_group_without_room_refuses_the_admission_in_all),
        cmocka_unit_test(the_watermark_holds_in_every_group),
        cmocka_unit_test(a_fork_shares_and_copies_in_every_group),
        cmocka_unit_test(without_a_page_for_one_groups_copy_no_group_copies),
        cmocka_unit_test(truncate_and_clear_release_in_every_group),
        cmocka_unit_test(a_lookup_gives_a_row_of_pages_for_each_group),
        cmocka_unit_test(each_group_is_published_by_a_call_of_its_own),
        cmocka_unit_test(evicting_a_full_groups_page_takes_the_block_from_all_groups),
        cmocka_unit_test(evicting_a_window_groups_page_leaves_the_block_to_the_others),
        cmocka_unit_test(a_groups_limit_of_cached_pages_is_its_own),
        cmocka_unit_test(clear_frees_in_every_group),
        cmocka_unit_test(a_group_without_memory_stands_beside_one_with_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
