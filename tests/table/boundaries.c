/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of pages: lengths just below, at and above a multiple of the page size, in every page size. Field cases F. */
#include "support/support.h"

static const uint32_t page_sizes[] = {1, 2, 3, 16, 64, 100};
enum { num_page_sizes = sizeof page_sizes / sizeof page_sizes[0] };

static pkv_token *ids_from(pkv_token first, uint64_t count) {
    pkv_token *tokens = calloc(count + 1, sizeof *tokens);
    count_up(tokens, count, first);
    return tokens;
}

static uint64_t admitted_match(pkv_pool *pool, const pkv_prompt *prompt, uint64_t max_match) {
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.max_match = max_match;
    assert_ok(pkv_table_admit(table, prompt, &options, NULL));
    const uint64_t matched = info_of(table).matched;
    assert_int_equal(info_of(table).committed, matched);
    end_table(table);
    return matched;
}

static uint64_t looked_up(pkv_pool *pool, const pkv_prompt *prompt, uint64_t max_match) {
    pkv_page pages[64];
    pkv_match match = PKV_MATCH_INIT;
    assert_ok(pkv_pool_lookup(pool, prompt, max_match, pages, 64, &match));
    assert_ok(pkv_pool_release(pool, 0, match.blocks, pages, NULL, NULL));
    return match.tokens;
}

static void case_F01_a_cached_prompt_leaves_a_token_to_compute(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 16);
    pkv_token *tokens = ids_from(1, 32);
    const pkv_prompt prompt = prompt_of(tokens, 32);
    publish_cached(pool, &prompt);
    assert_int_equal(looked_up(pool, &prompt, 0), 16);
    assert_int_equal(admitted_match(pool, &prompt, 0), 16);
    assert_int_equal(looked_up(pool, &prompt, PKV_MATCH_ALL), 32);
    assert_int_equal(admitted_match(pool, &prompt, PKV_MATCH_ALL), 32);
    free(tokens);
    end_pool(pool);
}

static void case_F04_holding_back_a_token_at_a_boundary_costs_one_page(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 32);
    pkv_token *tokens = ids_from(1, 64);
    const pkv_prompt prompt = prompt_of(tokens, 64);
    publish_cached(pool, &prompt);
    assert_int_equal(admitted_match(pool, &prompt, 0), 32);
    assert_int_equal(admitted_match(pool, &prompt, 63), 32);
    free(tokens);
    end_pool(pool);
}

static void case_F05_only_full_blocks_are_published(void **state) {
    (void)state;
    for (uint64_t length = 255; length <= 257; ++length) {
        pkv_pool *pool = make_pool(8, 256);
        pkv_token *tokens = ids_from(1, length);
        const pkv_prompt prompt = prompt_of(tokens, length);
        pkv_table *table = admit(pool, &prompt, NULL);
        write_and_commit(table, length, 1);
        assert_int_equal(info_of(table).published, length < 256 ? 0 : 256);
        assert_int_equal(stats_of(pool).index_blocks, length < 256 ? 0 : 1);
        assert_int_equal(info_of(table).blocks, length <= 256 ? 1 : 2);
        end_table(table);
        free(tokens);
        end_pool(pool);
    }
}

static void case_F07_leaving_out_the_last_tokens_happens_once(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 256);
    pkv_token *tokens = ids_from(1, 300);
    const pkv_prompt prompt = prompt_of(tokens, 300);
    publish_cached(pool, &prompt);
    assert_int_equal(admitted_match(pool, &prompt, 300 - 3), 256);
    assert_int_equal(looked_up(pool, &prompt, 300 - 3), 256);
    free(tokens);
    end_pool(pool);
}

static void case_F10_page_3_begins_3_pages_after_page_0(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 16);
    pkv_page pages[4];
    assert_ok(pkv_pool_alloc(pool, 0, 4, pages));
    assert_int_equal(pages[3], 3);
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    assert_ok(pkv_pool_layout(pool, 0, 0, &layout));
    assert_int_equal(layout.k.page, stats_of(pool).page_bytes);
    uint16_t data[16 * 8], back[16 * 8];
    for (uint16_t i = 0; i < 16 * 8; ++i) data[i] = i;
    pkv_tensor rows = PKV_TENSOR_INIT;
    rows.data = data;
    rows.dtype = PKV_DTYPE_F16;
    rows.num_tokens = 16;
    pkv_slot slots[16];
    for (int i = 0; i < 16; ++i) slots[i] = 3 * 16 + i;
    assert_ok(pkv_pool_write(pool, 0, 0, 16, slots, &rows, &rows, NULL));
    assert_memory_equal((char *)layout.k_base + 3 * stats_of(pool).page_bytes, data, sizeof data);
    rows.data = back;
    assert_ok(pkv_pool_gather(pool, 0, 0, 4, pages, 48, 16, &rows, NULL, NULL));
    assert_memory_equal(back, data, sizeof data);
    assert_ok(pkv_pool_release(pool, 0, 4, pages, NULL, NULL));
    end_pool(pool);
}

/* The same life with pages of any size: every number in tokens has to be what it is with another. */
static void live(uint32_t page_tokens, uint64_t length) {
    const uint64_t num_pages = 4 * (length + 8) / page_tokens + 12;
    pkv_pool *pool = make_pool(num_pages, page_tokens);
    pkv_token *tokens = ids_from(1, length + 8);
    const pkv_prompt prompt = prompt_of(tokens, length);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.reserve_tokens = length / 3 + 1;
    pkv_table *first = NULL;
    assert_ok(pkv_table_create(pool, &first));
    assert_ok(pkv_table_admit(first, &prompt, &options, NULL));
    write_and_commit(first, length / 3, 1);
    write_and_commit(first, length, 1);
    check_rows(first, 0, length, 1);
    assert_int_equal(info_of(first).published, length / page_tokens * page_tokens);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *second = admit(pool, &prompt, &match);
    assert_int_equal(match.tokens, (length - 1) / page_tokens * page_tokens);
    write_and_commit(second, length, 1);
    check_rows(second, 0, length, 1);
    pkv_table *fork = fork_of(second);
    assert_ok(pkv_table_truncate(fork, length / 2, NULL));
    write_and_commit(fork, length + 5, 2);
    write_and_commit(second, length + 3, 3);
    check_rows(fork, 0, length / 2, 1);
    check_rows(fork, length / 2, length + 5 - length / 2, 2);
    check_rows(second, 0, length, 1);
    check_rows(second, length, 3, 3);
    assert_ok(pkv_table_truncate(second, length - 1, NULL));
    write_and_commit(second, length, 4);
    check_rows(second, 0, length - 1, 1);
    check_rows(second, length - 1, 1, 4);
    check_rows(first, 0, length, 1);
    pkv_slot *slots = calloc(length, sizeof *slots);
    assert_ok(pkv_table_slots(first, 0, 0, length, slots));
    for (uint64_t i = 0; i < length; ++i)
        assert_int_equal(slots[i],
                         (pkv_slot)page_at(first, i / page_tokens) * page_tokens + (pkv_slot)(i % page_tokens));
    free(slots);
    end_table(first);
    end_table(fork);
    end_table(second);
    assert_int_equal(probe_tokens(pool, &prompt), length / page_tokens * page_tokens);
    free(tokens);
    end_pool(pool);
}

static void case_F11_the_life_of_a_sequence_is_the_same_in_every_page_size(void **state) {
    (void)state;
    for (int i = 0; i < num_page_sizes; ++i) {
        const uint32_t p = page_sizes[i];
        const uint64_t lengths[] = {2, 37, p > 1 ? p - 1 : 3, p, p + 1, 2 * p - 1, 2 * p, 2 * p + 1, 200};
        for (size_t j = 0; j < sizeof lengths / sizeof lengths[0]; ++j)
            if (lengths[j] >= 2) live(p, lengths[j]);
    }
}

static void case_F13_more_tokens_than_the_pages_hold_are_refused(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 16);
    pkv_page page;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &page));
    uint16_t data[17 * 8];
    memset(data, 0x5A, sizeof data);
    pkv_tensor rows = PKV_TENSOR_INIT;
    rows.data = data;
    rows.dtype = PKV_DTYPE_F16;
    rows.num_tokens = 17;
    assert_status(pkv_pool_gather(pool, 0, 0, 1, &page, 0, 17, &rows, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_pool_gather(pool, 0, 0, 1, &page, 16, 1, &rows, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_pool_gather(pool, 0, 0, 0, NULL, 0, 1, &rows, NULL, NULL), PKV_ERR_INVALID);
    for (int i = 0; i < 17 * 8; ++i) assert_int_equal(data[i], 0x5A5A);
    assert_ok(pkv_pool_release(pool, 0, 1, &page, NULL, NULL));
    end_pool(pool);
}

static void a_first_token_near_2_to_the_64_does_not_wrap_around(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 16);
    pkv_page page;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &page));
    uint16_t data[16 * 8];
    pkv_tensor rows = PKV_TENSOR_INIT;
    rows.data = data;
    rows.dtype = PKV_DTYPE_F16;
    rows.num_tokens = 16;
    for (uint64_t below = 0; below < 20; ++below)
        assert_status(pkv_pool_gather(pool, 0, 0, 1, &page, UINT64_MAX - below, 1, &rows, NULL, NULL), PKV_ERR_INVALID);
    assert_ok(pkv_pool_release(pool, 0, 1, &page, NULL, NULL));
    end_pool(pool);
}

static void case_F14_one_page_with_one_token_gives_one_row(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 16);
    pkv_token *tokens = ids_from(1, 1);
    const pkv_prompt prompt = prompt_of(tokens, 1);
    pkv_table *table = admit(pool, &prompt, NULL);
    assert_int_equal(info_of(table).blocks, 1);
    write_and_commit(table, 1, 1);
    check_rows(table, 0, 1, 1);
    uint16_t data[16 * 8];
    pkv_tensor rows = PKV_TENSOR_INIT;
    rows.data = data;
    rows.dtype = PKV_DTYPE_F16;
    rows.num_tokens = 16;
    assert_status(pkv_table_gather(table, 0, 0, 0, 2, &rows, NULL, NULL), PKV_ERR_INVALID);
    end_table(table);
    free(tokens);
    end_pool(pool);
}

/* A batch gather with these lengths out of one layer, all rows after each other. */
static void gather_step(pkv_pool *pool, pkv_table *const *tables, uint32_t num_tables, uint16_t *k, uint64_t rows) {
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = num_tables;
    pkv_batch *batch = NULL;
    assert_ok(pkv_batch_create(pool, &options, &batch));
    const uint32_t none[8] = {0};
    assert_ok(pkv_batch_reserve(batch, num_tables, tables, none, NULL));
    pkv_tensor tensor = PKV_TENSOR_INIT;
    tensor.data = k;
    tensor.dtype = PKV_DTYPE_F16;
    tensor.num_tokens = rows;
    assert_ok(pkv_batch_gather(batch, 0, 1, NULL, 0, &tensor, NULL, NULL));
    assert_ok(pkv_batch_commit(batch, NULL, NULL, NULL));
    assert_ok(pkv_batch_destroy(batch));
}

static void case_F16_cached_prefixes_around_one_page_give_the_uncached_rows(void **state) {
    (void)state;
    enum { p = 64, length = 100, num = 4 };
    static uint16_t rows[2][num * length * 8];
    static const uint64_t prefixes[num] = {p, p - 1, p + 1, 0};
    for (int cached = 0; cached < 2; ++cached) {
        pkv_pool *pool = make_pool(32, p);
        pkv_table *tables[num];
        for (int i = 0; i < num; ++i) {
            pkv_token *tokens = ids_from(1000 * i, length);
            const pkv_prompt head = prompt_of(tokens, prefixes[i]), prompt = prompt_of(tokens, length);
            if (cached == 1) {
                pkv_table *before = admit(pool, &head, NULL);
                write_and_commit(before, prefixes[i], 1 + (uint32_t)i);
                end_table(before);
            }
            tables[i] = admit(pool, &prompt, NULL);
            assert_int_equal(info_of(tables[i]).matched, cached == 1 ? prefixes[i] / p * p : 0);
            write_and_commit(tables[i], length, 1 + (uint32_t)i);
            free(tokens);
        }
        gather_step(pool, tables, num, rows[cached], num * length);
        for (int i = 0; i < num; ++i) end_table(tables[i]);
        end_pool(pool);
    }
    assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_F01_a_cached_prompt_leaves_a_token_to_compute),
        cmocka_unit_test(case_F04_holding_back_a_token_at_a_boundary_costs_one_page),
        cmocka_unit_test(case_F05_only_full_blocks_are_published),
        cmocka_unit_test(case_F07_leaving_out_the_last_tokens_happens_once),
        cmocka_unit_test(case_F10_page_3_begins_3_pages_after_page_0),
        cmocka_unit_test(case_F11_the_life_of_a_sequence_is_the_same_in_every_page_size),
        cmocka_unit_test(case_F13_more_tokens_than_the_pages_hold_are_refused),
        cmocka_unit_test(a_first_token_near_2_to_the_64_does_not_wrap_around),
        cmocka_unit_test(case_F14_one_page_with_one_token_gives_one_row),
        cmocka_unit_test(case_F16_cached_prefixes_around_one_page_give_the_uncached_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
