/* SPDX-License-Identifier: Apache-2.0 */
/* What does not leave a pool, and what does not enter one: no room, no names, no bytes, another geometry, damage. */
#include "table/transfer.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static void seal(image *buffer) {
    const uint64_t sum = XXH3_64bits(buffer->data, buffer->size - 8);
    memcpy(buffer->data + buffer->size - 8, &sum, 8);
}

/* ---- no room, no names, no bytes ---- */

static void export_says_how_much_room_it_needs(void **state) {
    (void)state;
    question q;
    ask(&q);
    place p = make_place(plain, 0, 4);
    pkv_table *table = answer(&p, &q);
    image sent = export_of(table);
    unsigned char *few = malloc(sent.size);
    memset(few, 0xEE, sent.size);
    for (uint64_t capacity = 1; capacity < sent.size; capacity += 97) {
        uint64_t size = 0;
        assert_status(pkv_table_export(table, few, capacity, &size), PKV_ERR_NO_SPACE);
        assert_int_equal(size, sent.size);
    }
    for (uint64_t i = 0; i < sent.size; ++i) assert_int_equal(few[i], 0xEE);
    assert_status(pkv_table_export(table, few, sent.size, NULL), PKV_ERR_INVALID);
    assert_status(pkv_table_export(table, NULL, sent.size, &sent.size), PKV_ERR_INVALID);
    const uint64_t sum = XXH3_64bits(sent.data, sent.size - 8); /* as documented */
    assert_memory_equal(&sum, sent.data + sent.size - 8, 8);
    free(few);
    free(sent.data);
    end_table(table);
    end_place(&p);
}

static void export_needs_a_named_sequence_with_bytes(void **state) {
    (void)state;
    const pkv_group_options mixed[2] = {small_group(8), id_group(8)};
    pkv_pool *pools[2] = {make_groups(mixed, 1, 4), make_groups(mixed, 2, 4)};
    uint64_t size = 0;
    pkv_table *table = empty_table(pools[0]);
    assert_status(pkv_table_export(table, NULL, 0, &size), PKV_ERR_STATE);
    const pkv_token tokens[5] = {1, 2, 3, 4, 5};
    const pkv_prompt prompt = prompt_of(tokens, 5);
    assert_ok(pkv_table_admit(table, &prompt, NULL, NULL));
    put_and_commit(pools[0], table, 6, 1);
    assert_status(pkv_table_export(table, NULL, 0, &size), PKV_ERR_STATE); /* the sixth has no name */
    assert_ok(pkv_table_set_tokens(table, 5, 1, tokens));
    assert_ok(pkv_table_export(table, NULL, 0, &size));
    const image sent = export_of(table);
    assert_status(pkv_table_import(table, sent.data, sent.size), PKV_ERR_STATE); /* it has a sequence */
    same_rows(pools[0], table, 0, 0, 6, 1, 0);
    end_table(table);
    table = empty_table(pools[1]);
    assert_status(pkv_table_import(table, sent.data, sent.size), PKV_ERR_UNSUPPORTED);
    assert_ok(pkv_table_admit(table, &prompt, NULL, NULL));
    assert_status(pkv_table_export(table, NULL, 0, &size), PKV_ERR_UNSUPPORTED);
    free(sent.data);
    end_table(table);
    for (int i = 0; i < 2; ++i) end_groups(pools[i]);
}

static void import_without_pages_leaves_the_table_empty(void **state) {
    (void)state;
    question q;
    ask(&q);
    place from = make_place(sliding, 0, 4), to = make_place(sliding, 0, 4);
    pkv_table *source = answer(&from, &q), *table = empty_table(to.pool);
    const image sent = export_of(source);
    for (uint32_t group = 0; group < 2; ++group) {
        pkv_page taken[num_pages];
        assert_ok(pkv_pool_alloc(to.pool, group, num_pages - 4, taken)); /* 5 blocks do not fit */
        const pkv_pool_stats before = group_stats(to.pool, 1 - group);
        refused(table, sent.data, sent.size, PKV_ERR_NO_PAGES);
        pkv_pool_stats after = group_stats(to.pool, 1 - group);
        after.failed_allocations = before.failed_allocations;
        assert_same_stats(&before, &after);
        assert_ok(pkv_pool_release(to.pool, group, num_pages - 4, taken, NULL, NULL));
    }
    assert_ok(pkv_table_import(table, sent.data, sent.size));
    free(sent.data);
    end_table(source);
    end_table(table);
    end_place(&from);
    end_place(&to);
}

/* ---- buffers that are damaged, or forged ---- */

/* A small one: 5 tokens of one layer, with an image. */
static pkv_pool *make_small(pkv_table **table, image *sent) {
    pkv_group_options groups[2] = {small_group(16), window_group(16, 3, 0)};
    for (int i = 0; i < 2; ++i) groups[i].num_layers = groups[i].num_kv_heads = 1;
    pkv_pool *pool = make_groups(groups, 2, 2);
    const pkv_token tokens[7] = {1, 2, 3, 4, 5, 6, 7};
    const pkv_media media = {2, 1, bytes_of("image")};
    pkv_prompt prompt = prompt_of(tokens, 7);
    prompt.media = &media;
    prompt.num_media = 1;
    *table = admit(pool, &prompt, NULL);
    put_and_commit(pool, *table, 7, 7);
    assert_ok(pkv_table_window(*table, NULL));
    *sent = export_of(*table);
    end_table(*table);
    *table = empty_table(pool);
    return pool;
}

static void expect_damaged(pkv_table *table, const void *data, uint64_t size) {
    const pkv_status status = pkv_table_import(table, data, size);
    if (status != PKV_ERR_INVALID && status != PKV_ERR_MISMATCH) assert_status(status, PKV_ERR_INVALID);
    assert_int_equal(info_of(table).blocks, 0);
}

static void any_byte_that_changed_is_noticed(void **state) {
    (void)state;
    pkv_table *table;
    image sent;
    pkv_pool *pool = make_small(&table, &sent);
    const pkv_pool_stats before = stats_of(pool);
    for (uint64_t at = 0; at < sent.size; ++at)
        for (int bit = 0; bit < 8; ++bit) {
            sent.data[at] ^= (unsigned char)(1 << bit);
            expect_damaged(table, sent.data, sent.size);
            sent.data[at] ^= (unsigned char)(1 << bit);
        }
    const pkv_pool_stats after = stats_of(pool);
    assert_same_stats(&before, &after);
    assert_status(pkv_table_reserve(table, 1), PKV_ERR_STATE);
    assert_ok(pkv_table_import(table, sent.data, sent.size));
    free(sent.data);
    end_table(table);
    end_groups(pool);
}

static void a_buffer_of_any_other_length_is_refused(void **state) {
    (void)state;
    pkv_table *table;
    image sent;
    pkv_pool *pool = make_small(&table, &sent);
    for (uint64_t size = 0; size < sent.size; ++size) {
        unsigned char *cut = malloc(size + 1);
        memcpy(cut + 1, sent.data, size); /* at odd addresses, and nothing behind */
        refused(table, cut + 1, size, PKV_ERR_INVALID);
        free(cut);
    }
    unsigned char *longer = calloc(sent.size + 9, 1);
    memcpy(longer, sent.data, sent.size);
    refused(table, longer, sent.size + 1, PKV_ERR_INVALID);
    refused(table, longer, sent.size + 9, PKV_ERR_INVALID);
    assert_status(pkv_table_import(table, NULL, sent.size), PKV_ERR_INVALID);
    memcpy(longer + 1, sent.data, sent.size);
    assert_ok(pkv_table_import(table, longer + 1, sent.size)); /* alignment is no matter */
    same_rows(pool, table, 0, 0, 7, 7, 0);
    free(longer);
    free(sent.data);
    end_table(table);
    end_groups(pool);
}

/* The checksum keeps accidents out; whoever means harm computes it anew. Such a buffer may be taken for a sequence, but
 * what it makes can be used and ended like any other. */
static void a_forged_buffer_does_no_harm(void **state) {
    (void)state;
    const uint64_t seed = 424242;
    print_message("seed %llu\n", (unsigned long long)seed);
    test_random random = {seed};
    pkv_table *table;
    image sent;
    pkv_pool *pool = make_small(&table, &sent);
    const uint64_t odd[] = {
        0, 1, 2, 3, 4, 6, 7, 8, 16, 255, 256, UINT32_MAX, INT32_MAX, UINT64_MAX, UINT64_MAX / 2, 1ull << 40};
    const int rounds = long_tests() ? 2000000 : 60000;
    int taken = 0;
    for (int round = 0; round < rounds; ++round) {
        image forged = {malloc(sent.size + 64), sent.size};
        memset(forged.data, (int)random_below(&random, 2), sent.size + 64);
        memcpy(forged.data, sent.data, sent.size);
        if (random_below(&random, 4) == 0) { /* another size, and the header agrees */
            forged.size = 8 + random_below(&random, sent.size + 56);
            for (uint64_t at = 0; at + 8 <= 64 && at + 8 <= forged.size; at += 8)
                if (memcmp(forged.data + at, &sent.size, 8) == 0) memcpy(forged.data + at, &forged.size, 8);
        }
        for (uint64_t changes = random_below(&random, 3); changes > 0; --changes) {
            const uint64_t value =
                random_below(&random, 8) == 0 ? next_random(&random) : odd[random_below(&random, 16)];
            const uint64_t bytes = random_below(&random, 2) == 0 ? 4 : 8, words = forged.size / bytes;
            if (words > 1) memcpy(forged.data + random_below(&random, words - 1) * bytes, &value, bytes);
        }
        seal(&forged);
        unsigned char *exact = malloc(forged.size);
        memcpy(exact, forged.data, forged.size);
        if (pkv_table_import(table, exact, forged.size) == PKV_OK) {
            ++taken;
            const uint64_t end = info_of(table).committed;
            assert_ok(pkv_table_reserve(table, end + 3));
            for (uint32_t group = 0; group < 2; ++group) put_rows(pool, table, group, end, 3, 9);
            const uint64_t accepted[2] = {end, end + 2};
            assert_ok(pkv_table_accept(table, 2, accepted, NULL));
            assert_ok(pkv_table_window(table, NULL));
            same_rows(pool, table, 1, end, 1, 9, end);
            pkv_table *fork = fork_of(table);
            put_and_commit(pool, fork, end + 5, 8);
            end_table(fork);
            assert_ok(pkv_table_clear(table, NULL));
        }
        free(exact);
        free(forged.data);
    }
    assert_true(taken > 0);
    free(sent.data);
    end_table(table);
    end_groups(pool);
}

/* ---- another geometry ---- */

static void fixed_scales_that_differ_are_a_mismatch(void **state) {
    (void)state;
    float scales[2][4] = {{1, 2, 3, 4}, {1, 2, 3, 5}};
    pkv_group_options group = small_group(num_pages);
    group.dtype = PKV_DTYPE_I8;
    group.scales = PKV_SCALES_HEAD;
    group.v_scales = scales[0];
    pkv_pool *pools[3];
    for (int i = 0; i < 3; ++i) {
        group.k_scales = scales[i % 2];
        pools[i] = make_groups(&group, 1, 4);
    }
    question q;
    ask(&q);
    pkv_table *source = admit(pools[0], &q.prompt, NULL), *tables[2] = {empty_table(pools[1]), empty_table(pools[2])};
    put_and_commit(pools[0], source, num_tokens, 7);
    const image sent = export_of(source);
    assert_status(pkv_table_import(tables[0], sent.data, sent.size), PKV_ERR_MISMATCH);
    assert_message("scales");
    refused(tables[0], sent.data, sent.size, PKV_ERR_MISMATCH);
    assert_ok(pkv_table_import(tables[1], sent.data, sent.size));
    same_rows(pools[2], tables[1], 0, 0, num_tokens, 7, 0);
    free(sent.data);
    end_table(source);
    for (int i = 0; i < 2; ++i) end_table(tables[i]);
    for (int i = 0; i < 3; ++i) end_groups(pools[i]);
}

static void every_field_that_differs_is_named(void **state) {
    (void)state;
    enum { fields = 13 };
    static const char *const names[fields] = {
        "num_layers", "first_layer", "total_layers", "num_kv_heads", "first_head", "total_heads", "dtype",
        "attention",  "window",      "sinks",        "scales",       "k row",      "v row"};
    pkv_group_options group = window_group(16, 6, 2);
    group.total_layers = group.total_heads = 9;
    group.dtype = PKV_DTYPE_I8;
    const float scales[2] = {1, 2};
    pkv_pool *home = make_groups(&group, 1, 4);
    question q;
    ask(&q);
    pkv_table *source = admit(home, &q.prompt, NULL);
    put_and_commit(home, source, 9, 7);
    const image sent = export_of(source);
    for (int field = 0; field < fields; ++field) {
        pkv_group_options other = group;
        switch (field) {
        case 0: other.num_layers = 3; break;
        case 1: other.first_layer = 1; break;
        case 2: other.total_layers = 8; break;
        case 3: other.num_kv_heads = 1; break;
        case 4: other.first_head = 1; break;
        case 5: other.total_heads = 8; break;
        case 6: other.dtype = PKV_DTYPE_F8_E4M3; break;
        case 7: other.attention = PKV_ATTENTION_FULL, other.window = other.sinks = 0; break;
        case 8: other.window = 7; break;
        case 9: other.sinks = 3; break;
        case 10: other.scales = PKV_SCALES_TENSOR, other.k_scales = other.v_scales = scales; break;
        case 11: other.k_head_dim = 5; break;
        default: other.v_head_dim = 0; break;
        }
        pkv_pool *pool = make_groups(&other, 1, 4);
        pkv_table *table = empty_table(pool);
        assert_status(pkv_table_import(table, sent.data, sent.size), PKV_ERR_MISMATCH);
        assert_message(names[field]);
        refused(table, sent.data, sent.size, PKV_ERR_MISMATCH);
        assert_int_equal(stats_of(pool).free_pages, 16);
        end_table(table);
        end_groups(pool);
    }
    const pkv_group_options two[2] = {group, group};
    pkv_pool *pool = make_groups(two, 2, 4);
    pkv_table *table = empty_table(pool);
    assert_status(pkv_table_import(table, sent.data, sent.size), PKV_ERR_MISMATCH);
    assert_message("groups");
    end_table(table);
    end_groups(pool);
    free(sent.data);
    end_table(source);
    end_groups(home);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(export_says_how_much_room_it_needs),
        cmocka_unit_test(export_needs_a_named_sequence_with_bytes),
        cmocka_unit_test(import_without_pages_leaves_the_table_empty),
        cmocka_unit_test(any_byte_that_changed_is_noticed),
        cmocka_unit_test(a_buffer_of_any_other_length_is_refused),
        cmocka_unit_test(a_forged_buffer_does_no_harm),
        cmocka_unit_test(fixed_scales_that_differ_are_a_mismatch),
        cmocka_unit_test(every_field_that_differs_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
