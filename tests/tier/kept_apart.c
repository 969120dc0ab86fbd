/* SPDX-License-Identifier: Apache-2.0 */
/* Images over tiers that pools share: what has equal content is found by all, what has not is kept apart. */
#include "tier/faulty.h"

enum { tokens = 16 };

static const uint64_t capacity = UINT64_C(1) << 22;

static pkv_tier *big_tier(void) {
    pkv_host_tier_options options = PKV_HOST_TIER_OPTIONS_INIT;
    options.capacity_bytes = capacity;
    pkv_tier *tier = NULL;
    assert_ok(pkv_tier_open_host(&options, &tier));
    return tier;
}

static pkv_pool *groups_on(pkv_tier *tier, const pkv_group_options *groups, uint32_t num_groups, uint32_t page_tokens) {
    const pkv_tier_attachment at = attachment(tier, PKV_TIER_WRITE_BACK);
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = num_groups;
    options.groups = groups;
    options.tiers = &at;
    options.num_tiers = 1;
    options.clean_pages = groups->num_pages;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    return pool;
}

static pkv_table *admit_prompt(pkv_pool *pool, const pkv_prompt *prompt, pkv_match *match) {
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.max_match = PKV_MATCH_ALL;
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    assert_ok(pkv_table_admit(table, prompt, &options, match));
    return table;
}

/* Computes a prompt whose rows are tagged and stores it. */
static void put(pkv_pool *pool, const pkv_prompt *prompt, uint32_t tag) {
    pkv_table *table = admit_prompt(pool, prompt, NULL);
    assert_int_equal(info_of(table).matched, 0);
    put_and_commit(pool, table, prompt->num_tokens, tag);
    end_table(table);
    flush(pool);
    for (uint32_t group = 0; pkv_pool_evict(pool, group, UINT32_MAX, NULL) == PKV_OK; ++group) {
    }
}

/* Tokens found of a prompt, after their rows were compared. */
static uint64_t get(pkv_pool *pool, const pkv_prompt *prompt, uint32_t tag) {
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_prompt(pool, prompt, &match);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    if (match.tokens != 0) same_rows(pool, table, 0, 0, match.tokens, tag, 0);
    end_table(table);
    return match.tokens;
}

static pkv_token names[64];

static pkv_prompt sixteen(void) {
    count_up(names, 64, 1);
    return prompt_of(names, tokens);
}

static void namespaces_are_kept_apart(void **state) {
    (void)state;
    pkv_tier *tier = big_tier();
    const pkv_group_options group = small_group(32);
    pkv_pool *pool = groups_on(tier, &group, 1, 4), *other = groups_on(tier, &group, 1, 4);
    pkv_namespace ns[7];
    for (int i = 0; i < 7; ++i) ns[i] = (pkv_namespace)PKV_NAMESPACE_INIT;
    ns[1].model = bytes_of("x");
    ns[2].adapter = bytes_of("x");
    ns[3].salt = bytes_of("x");
    ns[4].adapter_id = 1;
    ns[5].adapter_generation = 1;
    ns[6].model = bytes_of("x");
    ns[6].salt = bytes_of("x");
    pkv_prompt prompt = sixteen();
    for (uint32_t i = 0; i < 7; ++i) {
        prompt.ns = &ns[i];
        assert_int_equal(get(other, &prompt, 0), 0);
        put(pool, &prompt, 100 + i);
    }
    for (uint32_t i = 0; i < 7; ++i) {
        prompt.ns = &ns[i];
        assert_int_equal(get(other, &prompt, 100 + i), tokens); /* two pools share the tier */
    }
    end_pool(pool);
    end_pool(other);
    assert_ok(pkv_tier_close(tier));
}

static void media_are_kept_apart(void **state) {
    (void)state;
    pkv_tier *tier = big_tier();
    const pkv_group_options group = small_group(32);
    pkv_pool *pool = groups_on(tier, &group, 1, 4), *other = groups_on(tier, &group, 1, 4);
    pkv_media media[4] = {
        {5, 2, bytes_of("cat")}, {5, 2, bytes_of("dog")}, {6, 2, bytes_of("cat")}, {9, 2, bytes_of("cat")}};
    pkv_prompt prompt = sixteen();
    put(pool, &prompt, 1);
    prompt.num_media = 1;
    for (uint32_t i = 0; i < 4; ++i) {
        prompt.media = &media[i];
        /* Blocks before the one with the media are the same prompt's, whose rows are those of tag 1. */
        pkv_match match = PKV_MATCH_INIT;
        pkv_table *table = admit_prompt(other, &prompt, &match);
        assert_int_equal(match.tokens, media[i].position / 4 * 4);
        same_rows(other, table, 0, 0, match.tokens, 1, 0);
        end_table(table);
    }
    prompt.num_media = 0;
    assert_int_equal(get(other, &prompt, 1), tokens);
    end_pool(pool);
    end_pool(other);
    assert_ok(pkv_tier_close(tier));
}

static void orders_of_tokens_are_kept_apart(void **state) {
    (void)state;
    pkv_tier *tier = big_tier();
    const pkv_group_options group = small_group(32);
    pkv_pool *pool = groups_on(tier, &group, 1, 4);
    pkv_prompt prompt = sixteen();
    put(pool, &prompt, 1);
    /* The second block's tokens first: same tokens in a block, another prefix. */
    pkv_token swapped[tokens];
    for (int i = 0; i < tokens; ++i) swapped[i] = names[(i + 4) % tokens];
    const pkv_prompt other = prompt_of(swapped, tokens);
    assert_int_equal(get(pool, &other, 0), 0);
    /* One token in the last block. */
    memcpy(swapped, names, sizeof swapped);
    ++swapped[15];
    assert_int_equal(get(pool, &other, 1), 12);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

static void geometries_are_kept_apart(void **state) {
    (void)state;
    enum { kinds = 17 };
    pkv_group_options groups[kinds];
    uint32_t page_tokens[kinds];
    for (int i = 0; i < kinds; ++i) {
        groups[i] = small_group(32);
        page_tokens[i] = 4;
    }
    page_tokens[1] = 2;
    page_tokens[2] = 8;
    groups[3].num_layers = 3;
    groups[4].num_layers = 1;
    groups[5].total_layers = 4; /* a shard of a model of four layers ... */
    groups[6].total_layers = 4; /* ... and the other one */
    groups[6].first_layer = 2;
    groups[7].total_heads = 4;
    groups[8].total_heads = 4;
    groups[8].first_head = 2;
    groups[9].num_kv_heads = 4;
    groups[10].dtype = PKV_DTYPE_BF16; /* rows of equal size */
    groups[11].k_head_dim = groups[11].v_head_dim = 8;
    groups[12].k_head_dim = 2; /* 2 + 6 elements: as many bytes */
    groups[12].v_head_dim = 6;
    groups[13].k_head_dim = 8;
    groups[13].v_head_dim = 0;
    groups[14].aux_bytes = 16;
    groups[15].dtype = PKV_DTYPE_OPAQUE;
    groups[15].k_head_dim = groups[15].v_head_dim = 0;
    groups[15].k_row_bytes = groups[15].v_row_bytes = 8;
    groups[16].attention = PKV_ATTENTION_WINDOW;
    groups[16].window = 64;
    pkv_tier *tier = big_tier();
    pkv_prompt prompt = sixteen();
    pkv_pool *pools[kinds];
    for (uint32_t i = 0; i < kinds; ++i) {
        pools[i] = groups_on(tier, &groups[i], 1, page_tokens[i]);
        assert_int_equal(get(pools[i], &prompt, 0), 0); /* of all that is there nothing is its own */
        put(pools[i], &prompt, 50 + i);
    }
    for (uint32_t i = 0; i < kinds; ++i) {
        assert_int_equal(get(pools[i], &prompt, 50 + i), tokens);
        pkv_pool *twin = groups_on(tier, &groups[i], 1, page_tokens[i]);
        assert_int_equal(get(twin, &prompt, 50 + i), tokens);
        end_groups(twin);
        end_groups(pools[i]);
    }
    assert_int_equal(tier_stats(tier).checksum_failures, 0); /* by their keys alone */
    assert_ok(pkv_tier_close(tier));
}

static void layout_arrangement_and_size_of_a_pool_do_not_matter(void **state) {
    (void)state;
    pkv_group_options groups[5];
    for (int i = 0; i < 5; ++i) groups[i] = small_group(32);
    groups[1].layout = PKV_LAYOUT_HND;
    groups[2].arrangement = PKV_LAYER_MAJOR;
    groups[3].layout = PKV_LAYOUT_HND;
    groups[3].arrangement = PKV_LAYER_MAJOR;
    groups[4].num_pages = 11;
    pkv_prompt prompt = sixteen();
    for (int writer = 0; writer < 5; ++writer) {
        pkv_tier *tier = big_tier();
        pkv_pool *pool = groups_on(tier, &groups[writer], 1, 4);
        put(pool, &prompt, 70 + (uint32_t)writer);
        for (int reader = 0; reader < 5; ++reader) {
            pkv_pool *other = groups_on(tier, &groups[reader], 1, 4);
            assert_int_equal(get(other, &prompt, 70 + (uint32_t)writer), tokens);
            end_pool(other);
        }
        end_pool(pool);
        assert_ok(pkv_tier_close(tier));
    }
}

static void images_of_larger_pages_are_converted_between_layouts(void **state) {
    (void)state;
    pkv_group_options nhd = small_group(16);
    nhd.num_kv_heads = 5;
    nhd.k_head_dim = 24;
    nhd.v_head_dim = 40;
    nhd.num_layers = 3;
    pkv_group_options hnd = nhd;
    hnd.layout = PKV_LAYOUT_HND;
    pkv_tier *tier = big_tier();
    pkv_pool *writer = groups_on(tier, &nhd, 1, 16), *reader = groups_on(tier, &hnd, 1, 16);
    count_up(names, 64, 1);
    const pkv_prompt prompt = prompt_of(names, 64);
    put(writer, &prompt, 5);
    assert_int_equal(get(reader, &prompt, 5), 64);
    end_pool(writer);
    end_pool(reader);
    assert_ok(pkv_tier_close(tier));
}

static void scales_and_aux_bytes_come_back(void **state) {
    (void)state;
    pkv_group_options group = small_group(16);
    group.dtype = PKV_DTYPE_I8;
    group.scales = PKV_SCALES_TOKEN_HEAD;
    group.k_head_dim = group.v_head_dim = 16;
    group.aux_bytes = 24;
    pkv_tier *tier = big_tier();
    for (int layout = 0; layout < 2; ++layout) {
        pkv_pool *writer = groups_on(tier, &group, 1, 4);
        pkv_namespace ns = PKV_NAMESPACE_INIT;
        ns.adapter_id = (uint64_t)layout;
        pkv_prompt prompt = sixteen();
        prompt.ns = &ns;
        float rows[2][tokens * 2 * 16], first[2][tokens * 2 * 16], back[2][tokens * 2 * 16];
        pkv_table *table = admit_prompt(writer, &prompt, NULL);
        for (uint32_t layer = 0; layer < 2; ++layer) {
            for (int side = 0; side < 2; ++side)
                for (int i = 0; i < tokens * 2 * 16; ++i)
                    rows[side][i] =
                        (float)((i * 37 + side * 11 + (int)layer * 5) % 91 - 45) * (float)(1 + i / 16) / 7.0f;
            pkv_tensor in[2] = {PKV_TENSOR_INIT, PKV_TENSOR_INIT};
            for (int side = 0; side < 2; ++side) {
                in[side].data = rows[side];
                in[side].dtype = PKV_DTYPE_F32;
                in[side].num_tokens = tokens;
            }
            assert_ok(pkv_table_write(table, 0, layer, 0, tokens, &in[0], &in[1], NULL));
        }
        for (uint64_t block = 0; block < 4; ++block) {
            void *aux = NULL;
            assert_ok(pkv_pool_aux(writer, 0, page_at(table, block), &aux));
            memset(aux, 0x40 + (int)block, 24);
        }
        assert_ok(pkv_table_commit(table, tokens, NULL));
        pkv_tensor out[2] = {PKV_TENSOR_INIT, PKV_TENSOR_INIT};
        for (int side = 0; side < 2; ++side) {
            out[side].data = first[side];
            out[side].dtype = PKV_DTYPE_F32;
            out[side].num_tokens = tokens;
        }
        assert_ok(pkv_table_gather(table, 0, 1, 0, tokens, &out[0], &out[1], NULL));
        end_table(table);
        push_down(writer);
        /* The other in-page order reads it. */
        pkv_group_options twin = group;
        twin.layout = layout == 0 ? PKV_LAYOUT_HND : PKV_LAYOUT_NHD;
        pkv_pool *reader = groups_on(tier, &twin, 1, 4);
        pkv_match match = PKV_MATCH_INIT;
        table = admit_prompt(reader, &prompt, &match);
        assert_int_equal(match.tokens, tokens);
        for (int side = 0; side < 2; ++side) out[side].data = back[side];
        assert_ok(pkv_table_gather(table, 0, 1, 0, tokens, &out[0], &out[1], NULL));
        assert_memory_equal(first, back, sizeof first);
        for (uint64_t block = 0; block < 4; ++block) {
            void *aux = NULL;
            assert_ok(pkv_pool_aux(reader, 0, page_at(table, block), &aux));
            for (int i = 0; i < 24; ++i) assert_int_equal(((unsigned char *)aux)[i], 0x40 + (int)block);
        }
        end_table(table);
        end_pool(reader);
        end_pool(writer);
        group.layout = PKV_LAYOUT_HND;
    }
    assert_ok(pkv_tier_close(tier));
}

static void fixed_scales_are_part_of_the_shape(void **state) {
    (void)state;
    pkv_group_options group = small_group(16);
    float scales[2] = {0.5f, 0.25f};
    group.dtype = PKV_DTYPE_F8_E4M3;
    group.scales = PKV_SCALES_TENSOR;
    group.k_scales = group.v_scales = scales;
    pkv_tier *tier = big_tier();
    pkv_prompt prompt = sixteen();
    pkv_pool *pool = groups_on(tier, &group, 1, 4);
    put(pool, &prompt, 9);
    const float others[2] = {0.5f, 0.125f};
    group.v_scales = others;
    pkv_pool *other = groups_on(tier, &group, 1, 4);
    assert_int_equal(get(other, &prompt, 9), 0);
    assert_int_equal(get(pool, &prompt, 9), tokens);
    end_pool(pool);
    end_pool(other);
    assert_ok(pkv_tier_close(tier));
}

/* ---- windows ---- */

static void a_window_group_hits_after_eviction_when_its_images_are_there(void **state) {
    (void)state;
    pkv_tier *tier = big_tier();
    const pkv_group_options groups[2] = {small_group(32), window_group(32, 8, 4)};
    pkv_pool *pool = groups_on(tier, groups, 2, 4);
    count_up(names, 64, 1);
    const pkv_prompt prompt = prompt_of(names, 32);
    put(pool, &prompt, 3);
    assert_int_equal(group_stats(pool, 0).cached_pages + group_stats(pool, 1).cached_pages, 0);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_prompt(pool, &prompt, &match);
    assert_int_equal(match.tokens, 32);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    same_rows(pool, table, 0, 0, 32, 3, 0);
    same_rows(pool, table, 1, 0, 4, 3, 0);   /* the sinks */
    same_rows(pool, table, 1, 24, 8, 3, 24); /* the window */
    /* Blocks that the window has passed were not brought up. */
    assert_int_equal(page_in(table, 1, 3), PKV_NO_PAGE);
    assert_int_equal(group_stats(pool, 1).held_pages, 3);
    put_and_commit(pool, table, 40, 3);
    same_rows(pool, table, 1, 32, 8, 3, 32);
    end_table(table);
    end_groups(pool);
    assert_int_equal(tier_stats(tier).usage.pinned_images, 0);
    assert_ok(pkv_tier_close(tier));
}

static void a_window_group_without_its_images_matches_as_far_as_they_reach(void **state) {
    (void)state;
    pkv_tier *tier = big_tier();
    const pkv_group_options groups[2] = {small_group(32), window_group(32, 8, 0)};
    pkv_pool *full = groups_on(tier, groups, 1, 4), *both = groups_on(tier, groups, 2, 4);
    count_up(names, 64, 1);
    pkv_prompt prompt = prompt_of(names, 32);
    put(full, &prompt, 3); /* images of the full group only */
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_prompt(both, &prompt, &match);
    assert_int_equal(match.tokens, 0);
    end_table(table);
    prompt.num_tokens = 16;
    put(both, &prompt, 3); /* and now of both, up to token 16 */
    prompt.num_tokens = 32;
    table = admit_prompt(both, &prompt, &match);
    assert_int_equal(match.tokens, 16);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    same_rows(both, table, 0, 0, 16, 3, 0);
    same_rows(both, table, 1, 8, 8, 3, 8);
    end_table(table);
    end_groups(full);
    end_groups(both);
    assert_int_equal(tier_stats(tier).usage.pinned_images, 0);
    assert_ok(pkv_tier_close(tier));
}

static void a_sequence_with_a_window_is_spilled_and_comes_back(void **state) {
    (void)state;
    pkv_tier *tier = big_tier();
    const pkv_group_options groups[2] = {small_group(32), window_group(32, 8, 4)};
    pkv_pool *pool = groups_on(tier, groups, 2, 4);
    const pkv_prompt none = prompt_of(NULL, 0);
    pkv_table *table = admit_prompt(pool, &none, NULL);
    put_and_commit(pool, table, 30, 6);
    assert_ok(pkv_table_window(table, NULL));
    assert_ok(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL));
    assert_int_equal(group_stats(pool, 0).held_pages, 0);
    assert_int_equal(group_stats(pool, 1).held_pages, 0);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    same_rows(pool, table, 0, 0, 30, 6, 0);
    same_rows(pool, table, 1, 0, 4, 6, 0);
    same_rows(pool, table, 1, 22, 8, 6, 22);
    assert_int_equal(tier_stats(tier).usage.images, 0);
    /* The window moves on over blocks that are in tiers: their images go. */
    assert_ok(pkv_table_spill(table, 5, 2, NULL, NULL));
    put_and_commit(pool, table, 44, 6);
    assert_ok(pkv_table_window(table, NULL));
    assert_int_equal(tier_stats(tier).usage.images, 2); /* those of the full group */
    same_rows(pool, table, 0, 0, 44, 6, 0);
    end_table(table);
    assert_int_equal(tier_stats(tier).usage.images, 0);
    end_groups(pool);
    assert_ok(pkv_tier_close(tier));
}

static void equal_groups_of_one_pool_are_kept_apart(void **state) {
    (void)state;
    pkv_tier *tier = big_tier();
    const pkv_group_options groups[2] = {small_group(32), small_group(32)};
    pkv_pool *pool = groups_on(tier, groups, 2, 4);
    pkv_prompt prompt = sixteen();
    put(pool, &prompt, 3);
    assert_int_equal(tier_stats(tier).usage.images, 8);
    pkv_table *table = admit_prompt(pool, &prompt, NULL);
    assert_int_equal(info_of(table).matched, tokens);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, one_second, NULL));
    for (uint32_t group = 0; group < 2; ++group) same_rows(pool, table, group, 0, tokens, 3, 0);
    end_table(table);
    end_groups(pool);
    assert_ok(pkv_tier_close(tier));
}

static void case_J16_images_of_several_sizes_are_moved_in_their_own_size(void **state) {
    (void)state;
    pkv_tier *tier = big_tier();
    pkv_group_options groups[2] = {small_group(32), small_group(32)};
    groups[1].num_layers = 5;
    pkv_pool *pool = groups_on(tier, groups, 2, 4);
    pkv_prompt prompt = sixteen();
    put(pool, &prompt, 3);
    const uint64_t bytes = 4 * (image_bytes + (1 + 5) * PKV_IMAGE_ALIGNMENT);
    assert_int_equal(tier_stats(tier).usage.used_bytes, bytes);
    assert_int_equal(tier_stats(tier).bytes_stored, bytes);
    pkv_table *table = admit_prompt(pool, &prompt, NULL);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    for (uint32_t group = 0; group < 2; ++group) same_rows(pool, table, group, 0, tokens, 3, 0);
    assert_int_equal(tier_stats(tier).bytes_loaded, bytes);
    end_table(table);
    end_groups(pool);
    assert_ok(pkv_tier_close(tier));
}

static void a_part_of_a_block_that_fails_loses_all_of_it(void **state) {
    (void)state;
    faulty *f = faulty_open();
    const pkv_group_options groups[2] = {small_group(32), window_group(32, 64, 0)};
    pkv_pool *pool = groups_on(f->tier, groups, 2, 4);
    pkv_prompt prompt = sixteen();
    put(pool, &prompt, 3);
    pkv_table *table = admit_prompt(pool, &prompt, NULL);
    faulty_script(f, PKV_TIER_LOAD, 5, 1, fault_flip, 4096); /* block 2, group 1 */
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL), PKV_ERR_LOST);
    assert_int_equal(info_of(table).valid, 8);
    assert_ok(pkv_table_truncate(table, 8, NULL));
    for (uint32_t group = 0; group < 2; ++group) same_rows(pool, table, group, 0, 8, 3, 0);
    end_table(table);
    assert_int_equal(faulty_pins(f), 0);
    end_groups(pool);
    faulty_end(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(namespaces_are_kept_apart),
        cmocka_unit_test(media_are_kept_apart),
        cmocka_unit_test(orders_of_tokens_are_kept_apart),
        cmocka_unit_test(geometries_are_kept_apart),
        cmocka_unit_test(layout_arrangement_and_size_of_a_pool_do_not_matter),
        cmocka_unit_test(images_of_larger_pages_are_converted_between_layouts),
        cmocka_unit_test(scales_and_aux_bytes_come_back),
        cmocka_unit_test(fixed_scales_are_part_of_the_shape),
        cmocka_unit_test(a_window_group_hits_after_eviction_when_its_images_are_there),
        cmocka_unit_test(a_window_group_without_its_images_matches_as_far_as_they_reach),
        cmocka_unit_test(a_sequence_with_a_window_is_spilled_and_comes_back),
        cmocka_unit_test(equal_groups_of_one_pool_are_kept_apart),
        cmocka_unit_test(case_J16_images_of_several_sizes_are_moved_in_their_own_size),
        cmocka_unit_test(a_part_of_a_block_that_fails_loses_all_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
