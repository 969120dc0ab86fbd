/* SPDX-License-Identifier: Apache-2.0 */
/* Rows into pages, out of them and from page to page, byte by byte against a plain model, in many geometries, with every
 * set of kernels that this machine runs. Field cases E11, G, H and I10; large addresses are in addresses.c. */
#include "support/paged.h"

static const paged_config small = {
    .dtype = PKV_DTYPE_F16, .k_row = 16, .v_row = 16, .heads = 2, .page_tokens = 4, .layers = 2, .pages = 6};

static void random_slots(const paged *p, pkv_slot *slots, uint64_t count, test_random *random) {
    const uint64_t num_slots = p->config.pages * p->config.page_tokens;
    const uint64_t way = random_below(random, 3);
    const uint64_t start = random_below(random, num_slots);
    for (uint64_t i = 0; i < count; ++i) {
        if (way == 0)
            slots[i] = (pkv_slot)random_below(random, num_slots); /* any, some twice */
        else
            slots[i] = (pkv_slot)((start + i) % num_slots);
        if (way == 2 && random_below(random, 4) == 0) slots[i] = random_below(random, 2) == 0 ? PKV_NO_SLOT : -100;
    }
}

static void random_pages(const paged *p, pkv_page *pages, uint64_t count, test_random *random) {
    const uint64_t start = random_below(random, p->config.pages);
    const bool in_order = random_below(random, 2) == 0;
    for (uint64_t i = 0; i < count; ++i)
        pages[i] = (pkv_page)(in_order ? (start + i) % p->config.pages : random_below(random, p->config.pages));
}

/* Some writes, gathers and copies in one geometry. */
static void exercise(const paged_config *config, uint64_t seed, int rounds) {
    test_random random = {seed};
    paged *p = make_paged(config);
    const bool has_v = config->v_row != 0;
    for (int round = 0; round < rounds; ++round) {
        const uint32_t layer = (uint32_t)random_below(&random, config->layers);
        const uint64_t count = random_below(&random, 3 * config->page_tokens + 2);
        pkv_slot *slots = calloc(count + 1, sizeof *slots);
        random_slots(p, slots, count, &random);
        flat k = make_flat(p, 0, count, (int)random_below(&random, flat_shapes), &random);
        flat v = make_flat(p, 1, count, (int)random_below(&random, flat_shapes), &random);
        paged_write(p, layer, count, slots, &k, has_v ? &v : NULL);
        pkv_page pages[5];
        random_pages(p, pages, 5, &random);
        const uint64_t first = random_below(&random, 5 * config->page_tokens - count / 2);
        const uint64_t most = 5 * config->page_tokens - first;
        const uint64_t side = random_below(&random, 3);
        paged_gather(p, layer, 5, pages, first, count < most ? count : most, side == 1 ? NULL : &k,
                     side == 2 || !has_v ? NULL : &v);
        end_flat(&k);
        end_flat(&v);
        free(slots);
    }
    const pkv_page src[2] = {1, 0}, dst[2] = {4, 2};
    paged_copy(p, 2, src, dst);
    end_paged(p);
}

static void rows_are_right_in_every_geometry(void **state) {
    (void)state;
    static const uint32_t dims[] = {1, 40, 46, 80, 96, 100, 192, 576}, heads[] = {1, 2, 3, 8}, tokens[] = {1, 3, 8, 16};
    const uint64_t seed = 7;
    print_message("seed %llu\n", (unsigned long long)seed);
    test_random random = {seed};
    for (size_t d = 0; d < 8; ++d)
        for (size_t h = 0; h < 4; ++h)
            for (int layout = PKV_LAYOUT_NHD; layout <= PKV_LAYOUT_HND; ++layout)
                for (int place = 0; place < 3; ++place) { /* page-major, layer-major, the caller's */
                    paged_config config = {.dtype = d == 0 ? PKV_DTYPE_OPAQUE : PKV_DTYPE_F16,
                                           .heads = heads[h],
                                           .layers = 2,
                                           .pages = 5,
                                           .layout = layout};
                    config.k_row = config.v_row = d == 0 ? 1 : 2 * dims[d];
                    if (dims[d] == 576) config.v_row = random_below(&random, 2) == 0 ? 0 : 2 * 512;
                    config.arrangement = place == 1 ? PKV_LAYER_MAJOR : PKV_PAGE_MAJOR;
                    config.memory = place == 2 ? PKV_MEMORY_CALLER : PKV_MEMORY_POOL;
                    config.page_tokens = tokens[random_below(&random, 4)];
                    exercise(&config, next_random(&random), long_tests() ? 50 : 4);
                }
}

static void rows_are_right_in_every_element_type(void **state) {
    (void)state;
    for (int32_t dtype = PKV_DTYPE_F32; dtype <= PKV_DTYPE_OPAQUE; ++dtype) {
        paged_config config = small;
        config.dtype = dtype;
        config.k_row = 4 * 10;
        config.v_row = 4 * 6;
        exercise(&config, (uint64_t)dtype, 6);
    }
}

static void case_H01_a_slot_below_0_is_skipped(void **state) {
    (void)state;
    test_random random = {1};
    paged_config config = small;
    config.pages = 2;
    paged *p = make_paged(&config);
    flat k = make_flat(p, 0, 2, flat_dense, &random), v = make_flat(p, 1, 2, flat_dense, &random);
    paged_write(p, 0, 2, (const pkv_slot[]){0, -1}, &k, &v);
    assert_memory_equal(p->bytes + paged_at(p, 0, 0, 0, 0, 0), flat_row(&k, 0, 0), config.k_row);
    paged_write(p, 0, 2, (const pkv_slot[]){INT64_MIN, -8}, &k, &v);
    end_flat(&k);
    end_flat(&v);
    end_paged(p);
}

static void case_H02_the_number_of_slots_decides_how_many_rows_are_read(void **state) {
    (void)state;
    test_random random = {2};
    paged_config config = small;
    config.page_tokens = 16;
    config.pages = 32;
    paged *p = make_paged(&config);
    flat k = make_flat(p, 0, 512, flat_dense, &random), v = make_flat(p, 1, 512, flat_dense, &random);
    pkv_slot slots[512];
    for (int i = 0; i < 512; ++i) slots[i] = i < 509 ? i : 0; /* the last three are not the call's */
    paged_write(p, 1, 509, slots, &k, &v);
    assert_memory_equal(p->bytes + paged_at(p, 0, 1, 31, 12, 0), flat_row(&k, 508, 0), config.k_row);
    k.tensor.num_tokens = 508;
    assert_status(pkv_pool_write(p->pool, 0, 1, 509, slots, &k.tensor, &v.tensor, NULL), PKV_ERR_INVALID);
    end_flat(&k);
    end_flat(&v);
    end_paged(p);
}

static void case_H05_rows_behind_the_last_slot_are_not_written(void **state) {
    (void)state;
    test_random random = {3};
    paged *p = make_paged(&small);
    flat k = make_flat(p, 0, 4, flat_dense, &random), v = make_flat(p, 1, 4, flat_dense, &random);
    paged_write(p, 0, 3, (const pkv_slot[]){8, 9, 10}, &k, &v);
    end_flat(&k);
    end_flat(&v);
    end_paged(p);
}

static void case_H07_nothing_to_do_is_no_error(void **state) {
    (void)state;
    test_random random = {4};
    paged *p = make_paged(&small);
    flat k = make_flat(p, 0, 0, flat_dense, &random), v = make_flat(p, 1, 0, flat_dense, &random);
    paged_write(p, 0, 0, NULL, &k, &v);
    paged_gather(p, 0, 0, NULL, 0, 0, &k, &v);
    paged_copy(p, 0, NULL, NULL);
    const pkv_tensor nothing = {.struct_size = sizeof nothing, .dtype = small.dtype};
    assert_ok(pkv_pool_write(p->pool, 0, 0, 0, NULL, &nothing, &nothing, NULL));
    assert_ok(pkv_pool_gather(p->pool, 0, 0, 0, NULL, 0, 0, NULL, NULL, NULL));
    assert_ok(pkv_pool_gather(p->pool, 0, 0, 0, NULL, 0, 0, &nothing, NULL, NULL));
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_match match = PKV_MATCH_INIT;
    assert_ok(pkv_pool_lookup(p->pool, &prompt, PKV_MATCH_ALL, NULL, 0, &match));
    assert_int_equal(match.tokens, 0);
    end_flat(&k);
    end_flat(&v);
    end_paged(p);
}

static void case_H08_rows_of_92_bytes_are_right_at_every_alignment(void **state) {
    (void)state;
    test_random random = {5};
    paged_config config = small;
    config.heads = 1;
    config.k_row = config.v_row = 92;
    config.page_tokens = 17;
    for (int shape = 0; shape < flat_shapes; ++shape) {
        paged *p = make_paged(&config);
        flat k = make_flat(p, 0, 17, shape, &random), v = make_flat(p, 1, 17, shape, &random);
        pkv_slot slots[17];
        for (int i = 0; i < 17; ++i) slots[i] = i;
        paged_write(p, 0, 17, slots, &k, &v);
        for (int i = 0; i < 17; ++i) paged_write(p, 1, 1, &slots[i], &k, &v);
        const pkv_page page = 0;
        for (uint64_t first = 0; first < 17; ++first) paged_gather(p, 0, 1, &page, first, 17 - first, &k, &v);
        end_flat(&k);
        end_flat(&v);
        end_paged(p);
    }
}

static void case_H10_bytes_around_a_row_of_any_length_stay_as_they_are(void **state) {
    (void)state;
    for (uint32_t bytes = 1; bytes <= 300; bytes += bytes < 140 ? 1 : 7) {
        paged_config config = {.dtype = PKV_DTYPE_OPAQUE,
                               .k_row = bytes,
                               .v_row = bytes + 1,
                               .heads = 2,
                               .page_tokens = 3,
                               .layers = 1,
                               .pages = 5,
                               .memory = PKV_MEMORY_CALLER,
                               .layout = (int32_t)(bytes % 2)};
        exercise(&config, bytes, 3);
    }
}

static void case_H11_heads_and_pages_are_stepped_each_by_its_own_stride(void **state) {
    (void)state;
    test_random random = {6};
    for (int layout = PKV_LAYOUT_NHD; layout <= PKV_LAYOUT_HND; ++layout) {
        paged_config config = small;
        config.layout = layout;
        paged *p = make_paged(&config);
        flat k = make_flat(p, 0, 12, flat_dense, &random), v = make_flat(p, 1, 12, flat_dense, &random);
        pkv_slot slots[12];
        const pkv_page pages[3] = {4, 0, 3};
        for (int i = 0; i < 12; ++i) slots[i] = pages[i / 4] * 4 + i % 4;
        paged_write(p, 0, 12, slots, &k, &v);
        paged_gather(p, 0, 3, pages, 0, 12, &k, &v);
        paged_gather(p, 0, 3, pages, 3, 6, &k, NULL);
        paged_gather(p, 0, 3, (const pkv_page[]){PKV_NO_PAGE, 0, PKV_NO_PAGE}, 4, 4, NULL, &v);
        end_flat(&k);
        end_flat(&v);
        end_paged(p);
    }
}

static void case_I10_all_byte_codes_pass_unchanged(void **state) {
    (void)state;
    static const int32_t dtypes[] = {PKV_DTYPE_F8_E4M3, PKV_DTYPE_F8_E5M2, PKV_DTYPE_I8};
    for (int i = 0; i < 3; ++i) {
        test_random random = {7};
        paged_config config = small;
        config.dtype = dtypes[i];
        config.heads = 1;
        config.k_row = config.v_row = 256;
        paged *p = make_paged(&config);
        flat k = make_flat(p, 0, 1, flat_dense, &random), v = make_flat(p, 1, 1, flat_dense, &random);
        for (int code = 0; code < 256; ++code)
            flat_row(&k, 0, 0)[code] = flat_row(&v, 0, 0)[255 - code] = (unsigned char)code;
        paged_write(p, 0, 1, (const pkv_slot[]){5}, &k, &v);
        paged_gather(p, 0, 1, (const pkv_page[]){1}, 1, 1, &k, &v);
        for (int code = 0; code < 256; ++code) assert_int_equal(flat_row(&k, 0, 0)[code], code);
        for (int code = 0; code < 256; ++code) assert_int_equal(flat_row(&v, 0, 0)[255 - code], code);
        end_flat(&k);
        end_flat(&v);
        end_paged(p);
    }
}

static void case_E11_block_quantised_rows_are_moved_whole(void **state) {
    (void)state;
    test_random random = {8};
    /* 32 values in 4 bits and a 16-bit scale: 18 bytes; 5 blocks a row. */
    paged_config config = {
        .dtype = PKV_DTYPE_OPAQUE, .k_row = 90, .v_row = 90, .heads = 3, .page_tokens = 4, .layers = 3, .pages = 8};
    paged *p = make_paged(&config);
    flat k = make_flat(p, 0, 32, flat_dense, &random), v = make_flat(p, 1, 32, flat_dense, &random);
    pkv_slot slots[32];
    for (int i = 0; i < 32; ++i) slots[i] = i;
    for (uint32_t layer = 0; layer < 3; ++layer) paged_write(p, layer, 32, slots, &k, &v);
    const pkv_page from[3] = {7, 5, 6}, to[3] = {0, 1, 2};
    paged_copy(p, 3, from, to);
    for (uint32_t layer = 0; layer < 3; ++layer) paged_gather(p, layer, 3, to, 0, 12, &k, &v);
    end_flat(&k);
    end_flat(&v);
    end_paged(p);
}

static void large_copies_are_right_with_and_without_helper_threads(void **state) {
    (void)state;
    /* Both directions are past the size from which stores bypass the caches (16 MiB is the larger one). */
    static const struct {
        int shape, layout;
        uint32_t row, heads;
    } ways[] = {{flat_dense, PKV_LAYOUT_NHD, 256, 8},
                {flat_unaligned, PKV_LAYOUT_NHD, 92, 8},
                {flat_gaps, PKV_LAYOUT_HND, 192, 3},
                {flat_heads_first, PKV_LAYOUT_NHD, 1152, 2}};
    test_random random = {9};
    for (int way = 0; way < 4; ++way)
        for (uint32_t threads = way < 2 ? 0 : 3; threads <= 3; threads += 3) {
            paged_config config = small;
            config.layout = ways[way].layout;
            config.k_row = config.v_row = ways[way].row;
            config.heads = ways[way].heads;
            config.page_tokens = 16;
            config.layers = 1;
            const uint64_t token_bytes = 2 * (uint64_t)config.heads * config.k_row;
            const uint64_t count = (UINT64_C(17) << 20) / token_bytes;
            config.pages = count / 16 + 2;
            config.copy_threads = threads;
            paged *p = make_paged(&config);
            flat k = make_flat(p, 0, count, ways[way].shape, &random),
                 v = make_flat(p, 1, count, ways[way].shape, &random);
            pkv_slot *slots = calloc(count, sizeof *slots);
            for (uint64_t i = 0; i < count; ++i) {
                slots[i] = (pkv_slot)i + 5;
                if (way % 2 == 1 && random_below(&random, 3) == 0)
                    slots[i] = (pkv_slot)random_below(&random, config.pages * 16);
                if (random_below(&random, 50) == 0) slots[i] = PKV_NO_SLOT;
            }
            paged_write(p, 0, count, slots, &k, &v); /* of equal slots the later row wins */
            pkv_page *pages = calloc(config.pages, sizeof *pages);
            for (uint64_t i = 0; i < config.pages; ++i)
                pages[i] = (pkv_page)(way % 2 == 1 ? random_below(&random, config.pages) : i);
            paged_gather(p, 0, config.pages, pages, 7, count, &k, &v);
            end_flat(&k);
            end_flat(&v);
            free(slots);
            free(pages);
            end_paged(p);
        }
}

int main(int argc, char **argv) {
    (void)argc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_right_in_every_geometry),
        cmocka_unit_test(rows_are_right_in_every_element_type),
        cmocka_unit_test(case_H01_a_slot_below_0_is_skipped),
        cmocka_unit_test(case_H02_the_number_of_slots_decides_how_many_rows_are_read),
        cmocka_unit_test(case_H05_rows_behind_the_last_slot_are_not_written),
        cmocka_unit_test(case_H07_nothing_to_do_is_no_error),
        cmocka_unit_test(case_H08_rows_of_92_bytes_are_right_at_every_alignment),
        cmocka_unit_test(case_H10_bytes_around_a_row_of_any_length_stay_as_they_are),
        cmocka_unit_test(case_H11_heads_and_pages_are_stepped_each_by_its_own_stride),
        cmocka_unit_test(case_I10_all_byte_codes_pass_unchanged),
        cmocka_unit_test(case_E11_block_quantised_rows_are_moved_whole),
        cmocka_unit_test(large_copies_are_right_with_and_without_helper_threads),
    };
    return run_with_every_kernels(argv[0], tests, sizeof tests / sizeof *tests);
}
