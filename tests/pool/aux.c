/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of the caller's own beside each page. */
#include "support/support.h"

enum { page_tokens = 4 };

static pkv_pool *make_aux_pool(uint64_t num_pages, uint32_t aux_bytes, int32_t memory, uint32_t debug) {
    pkv_group_options group = small_group(num_pages);
    group.aux_bytes = aux_bytes;
    group.memory = memory;
    return make_pool_of(&group, page_tokens, debug);
}

static unsigned char *aux_of(pkv_pool *pool, pkv_page page) {
    void *address = NULL;
    assert_ok(pkv_pool_aux(pool, 0, page, &address));
    assert_non_null(address);
    return address;
}

static void aux_bytes_are_zero_at_the_start_and_do_not_overlap(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 7, 64, 4096, 1u << 20};
    for (int way = 0; way < 3; ++way)
        for (size_t s = 0; s < 5; ++s) {
            pkv_pool *pool = make_aux_pool(6, sizes[s], way == 1 ? PKV_MEMORY_NONE : PKV_MEMORY_POOL,
                                           way == 2 ? PKV_DEBUG_POISON : 0);
            for (pkv_page page = 0; page < 6; ++page) {
                unsigned char *aux = aux_of(pool, page);
                for (uint32_t i = 0; i < sizes[s]; ++i) assert_int_equal(aux[i], 0);
                memset(aux, 1 + page, sizes[s]);
            }
            for (pkv_page page = 0; page < 6; ++page) {
                const unsigned char *aux = aux_of(pool, page);
                assert_int_equal(aux[0], 1 + page);
                assert_int_equal(aux[sizes[s] - 1], 1 + page);
            }
            end_pool(pool);
        }
}

static void aux_bytes_are_no_page_bytes(void **state) {
    (void)state;
    pkv_pool *pool = make_aux_pool(4, 32, PKV_MEMORY_POOL, 0), *without = make_pool(4, page_tokens);
    assert_int_equal(stats_of(pool).page_bytes, stats_of(without).page_bytes);
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    assert_ok(pkv_pool_layout(pool, 0, 0, &layout));
    const unsigned char *k = layout.k_base;
    for (pkv_page page = 0; page < 4; ++page) memset(aux_of(pool, page), 0xCC, 32);
    for (uint64_t i = 0; i < 4 * stats_of(pool).page_bytes; ++i) assert_int_equal(k[i], 0);
    end_pool(pool);
    end_pool(without);
}

static void aux_bytes_stay_with_the_page_in_every_state(void **state) {
    (void)state;
    pkv_pool *pool = make_aux_pool(4, 16, PKV_MEMORY_POOL, PKV_DEBUG_POISON);
    pkv_token tokens[page_tokens];
    pkv_page page, found;
    count_up(tokens, page_tokens, 1);
    const pkv_prompt prompt = prompt_of(tokens, page_tokens);
    publish_held(pool, &prompt, &page);
    unsigned char *aux = aux_of(pool, page);
    memset(aux, 0x77, 16);
    release_pages(pool, &page, 1);
    assert_ptr_equal(aux_of(pool, page), aux);
    assert_int_equal(lookup_tokens(pool, &prompt, &found, 1), page_tokens);
    assert_int_equal(found, page);
    assert_int_equal(aux[15], 0x77);
    release_pages(pool, &page, 1);
    end_pool(pool);
}

static void copy_pages_copies_aux_bytes(void **state) {
    (void)state;
    pkv_pool *pool = make_aux_pool(4, 100, PKV_MEMORY_POOL, 0);
    pkv_page pages[4];
    assert_ok(pkv_pool_alloc(pool, 0, 4, pages));
    for (int i = 0; i < 4; ++i) memset(aux_of(pool, pages[i]), 10 + i, 100);
    assert_ok(pkv_pool_copy_pages(pool, 0, 2, (const pkv_page[]){0, 1}, (const pkv_page[]){3, 2}, NULL));
    static const unsigned char expected[4] = {10, 11, 11, 10};
    for (int i = 0; i < 4; ++i)
        for (int byte = 0; byte < 100; ++byte) assert_int_equal(aux_of(pool, i)[byte], expected[i]);
    release_pages(pool, pages, 4);
    end_pool(pool);
}

static void copy_on_write_copies_aux_bytes(void **state) {
    (void)state;
    pkv_pool *pool = make_aux_pool(8, 24, PKV_MEMORY_POOL, PKV_DEBUG_POISON);
    const pkv_prompt none = prompt_of(NULL, 0);
    pkv_table *table = admit(pool, &none, NULL);
    write_and_commit(table, 6, 1);
    memset(aux_of(pool, page_at(table, 0)), 0x10, 24);
    memset(aux_of(pool, page_at(table, 1)), 0x11, 24);
    pkv_table *fork = fork_of(table);
    write_and_commit(fork, 7, 2);
    assert_true(page_at(fork, 1) != page_at(table, 1));
    assert_int_equal(aux_of(pool, page_at(fork, 1))[0], 0x11);
    assert_int_equal(aux_of(pool, page_at(fork, 1))[23], 0x11);
    memset(aux_of(pool, page_at(fork, 1)), 0x22, 24);
    assert_int_equal(aux_of(pool, page_at(table, 1))[0], 0x11);
    end_table(fork);
    end_table(table);
    end_pool(pool);
}

static void aux_addresses_outlive_the_pool_as_long_as_a_table_does(void **state) {
    (void)state;
    pkv_pool *pool = make_aux_pool(8, 24, PKV_MEMORY_POOL, 0);
    const pkv_prompt none = prompt_of(NULL, 0);
    pkv_table *table = admit(pool, &none, NULL);
    unsigned char *aux = aux_of(pool, 3);
    memset(aux, 0x5A, 24);
    assert_ok(pkv_pool_destroy(pool));
    assert_int_equal(aux[23], 0x5A);
    end_table(table);
}

static void each_group_has_aux_bytes_of_its_own(void **state) {
    (void)state;
    pkv_group_options groups[3] = {small_group(4), small_group(2), small_group(4)};
    groups[0].aux_bytes = 8;
    groups[2].aux_bytes = 16;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = 3;
    options.groups = groups;
    pkv_pool *pool = NULL;
    void *address = NULL, *other = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    assert_ok(pkv_pool_aux(pool, 0, 3, &address));
    assert_ok(pkv_pool_aux(pool, 2, 3, &other));
    assert_ptr_not_equal(address, other);
    assert_status(pkv_pool_aux(pool, 1, 0, &address), PKV_ERR_INVALID);
    end_pool(pool);
}

static void wrong_arguments_are_refused(void **state) {
    (void)state;
    pkv_pool *pool = make_aux_pool(4, 8, PKV_MEMORY_POOL, 0), *without = make_pool(4, page_tokens);
    void *address = &address;
    static const pkv_page bad[] = {-1, 4, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; ++i) assert_status(pkv_pool_aux(pool, 0, bad[i], &address), PKV_ERR_INVALID);
    assert_status(pkv_pool_aux(pool, 1, 0, &address), PKV_ERR_INVALID);
    assert_status(pkv_pool_aux(without, 0, 0, &address), PKV_ERR_INVALID);
    assert_message("aux");
    assert_status(pkv_pool_aux(pool, 0, 0, NULL), PKV_ERR_INVALID);
    assert_status(pkv_pool_aux(NULL, 0, 0, &address), PKV_ERR_HANDLE);
    assert_ptr_equal(address, &address);
    end_pool(pool);
    end_pool(without);
    pkv_group_options group = small_group(4);
    group.aux_bytes = (1u << 20) + 1;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    assert_status(pkv_pool_create(&options, &pool), PKV_ERR_LIMIT);
    assert_message("aux_bytes");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aux_bytes_are_zero_at_the_start_and_do_not_overlap),
        cmocka_unit_test(aux_bytes_are_no_page_bytes),
        cmocka_unit_test(aux_bytes_stay_with_the_page_in_every_state),
        cmocka_unit_test(copy_pages_copies_aux_bytes),
        cmocka_unit_test(copy_on_write_copies_aux_bytes),
        cmocka_unit_test(aux_addresses_outlive_the_pool_as_long_as_a_table_does),
        cmocka_unit_test(each_group_has_aux_bytes_of_its_own),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
