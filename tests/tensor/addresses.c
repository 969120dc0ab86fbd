/* SPDX-License-Identifier: Apache-2.0 */
/* Rows whose place in memory is past 2^31 and 2^32 bytes or elements. The pools are gigabytes of address space, of which
 * few pages are touched. Field cases G. */
#include "support/paged.h"

static void write_one(paged *p, uint32_t layer, pkv_slot slot, flat *k, flat *v) {
    assert_ok(pkv_pool_write(p->pool, 0, layer, 1, &slot, &k->tensor, v != NULL ? &v->tensor : NULL, NULL));
}

/* The row is where the model says, in 64 bits, and nothing is where 31 or 32 bits would put it. */
static void check_one(const paged *p, uint32_t layer, pkv_slot slot, const flat *k) {
    const uint64_t page = (uint64_t)slot / p->config.page_tokens, token = (uint64_t)slot % p->config.page_tokens;
    for (uint64_t head = 0; head < p->config.heads; ++head) {
        const uint64_t at = paged_at(p, 0, layer, page, token, head);
        assert_memory_equal(p->bytes + at, flat_row(k, 0, head), p->config.k_row);
        const uint64_t wrapped[2] = {at & 0xFFFFFFFF, at & 0x7FFFFFFF};
        for (int i = 0; i < 2; ++i)
            if (wrapped[i] != at) assert_int_equal(p->bytes[wrapped[i]], 0);
    }
}

/* Writes the row of a slot, looks for it with the model's address, and gathers it back. */
static void there_and_back(paged *p, pkv_slot slot, uint64_t seed) {
    test_random random = {seed};
    const bool has_v = p->config.v_row != 0;
    flat k = make_flat(p, 0, 1, flat_dense, &random), v = make_flat(p, 1, 1, flat_dense, &random);
    flat k_back = make_flat(p, 0, 1, flat_dense, &random), v_back = make_flat(p, 1, 1, flat_dense, &random);
    for (uint64_t head = 0; head < p->config.heads; ++head) flat_row(&k, 0, head)[0] |= 1; /* not 0 */
    write_one(p, 0, slot, &k, has_v ? &v : NULL);
    check_one(p, 0, slot, &k);
    const pkv_page page = (pkv_page)((uint64_t)slot / p->config.page_tokens);
    assert_ok(pkv_pool_gather(p->pool, 0, 0, 1, &page, (uint64_t)slot % p->config.page_tokens, 1, &k_back.tensor,
                              has_v ? &v_back.tensor : NULL, NULL));
    for (uint64_t head = 0; head < p->config.heads; ++head) {
        assert_memory_equal(flat_row(&k_back, 0, head), flat_row(&k, 0, head), p->config.k_row);
        if (has_v) assert_memory_equal(flat_row(&v_back, 0, head), flat_row(&v, 0, head), p->config.v_row);
    }
    end_flat(&k);
    end_flat(&v);
    end_flat(&k_back);
    end_flat(&v_back);
}

static void case_G01_page_65535_of_65536_elements(void **state) {
    (void)state;
    for (int layout = PKV_LAYOUT_NHD; layout <= PKV_LAYOUT_HND; ++layout) {
        const paged_config config = {.dtype = PKV_DTYPE_F16,
                                     .k_row = 2 * 128,
                                     .heads = 16,
                                     .page_tokens = 32,
                                     .layers = 1,
                                     .pages = 65536,
                                     .layout = layout};
        paged *p = make_sparse(&config);
        assert_true(paged_at(p, 0, 0, 65535, 0, 0) / 2 == UINT64_C(4294901760));
        there_and_back(p, 65535 * 32, 1);
        there_and_back(p, 65535 * 32 + 31, 2);
        there_and_back(p, 32768 * 32, 3); /* element 2^31 */
        end_sparse(p);
    }
}

static void case_G02_elements_2_to_the_31_and_the_next(void **state) {
    (void)state;
    const paged_config config = {
        .dtype = PKV_DTYPE_I8, .k_row = 1, .heads = 1, .page_tokens = 65536, .layers = 1, .pages = 32769};
    paged *p = make_sparse(&config);
    there_and_back(p, INT64_C(1) << 31, 1);
    there_and_back(p, (INT64_C(1) << 31) + 1, 2);
    there_and_back(p, (INT64_C(1) << 31) - 1, 3);
    end_sparse(p);
}

static void case_G04_page_262144_of_16384_is_not_page_0(void **state) {
    (void)state;
    for (uint32_t element = 1; element <= 2; ++element) {
        const paged_config config = {.dtype = element == 1 ? PKV_DTYPE_I8 : PKV_DTYPE_F16,
                                     .k_row = element * 128,
                                     .heads = 8,
                                     .page_tokens = 16,
                                     .layers = 1,
                                     .pages = 262145};
        paged *p = make_sparse(&config);
        assert_true(paged_at(p, 0, 0, 262144, 0, 0) == element * (UINT64_C(1) << 32));
        there_and_back(p, INT64_C(262144) * 16, 1);
        assert_int_equal(p->bytes[0], 0);
        end_sparse(p);
    }
}

static void case_G05_large_slots_of_576_elements(void **state) {
    (void)state;
    for (uint32_t element = 1; element <= 2; ++element) {
        const paged_config config = {.dtype = element == 1 ? PKV_DTYPE_F8_E4M3 : PKV_DTYPE_BF16,
                                     .k_row = element * 576,
                                     .heads = 1,
                                     .page_tokens = 64,
                                     .layers = 1,
                                     .pages = 58282};
        paged *p = make_sparse(&config);
        there_and_back(p, 3700000, 1);
        there_and_back(p, 3730000, 2);
        end_sparse(p);
    }
}

static void case_G07_a_stride_larger_than_the_page_leaves_the_gap_alone(void **state) {
    (void)state;
    for (int arrangement = PKV_PAGE_MAJOR; arrangement <= PKV_LAYER_MAJOR; ++arrangement)
        for (uint32_t factor = 1; factor <= 2; ++factor) {
            const paged_config config = {.dtype = PKV_DTYPE_F16,
                                         .k_row = 256,
                                         .v_row = 256,
                                         .heads = 8,
                                         .page_tokens = 16,
                                         .layers = 2,
                                         .pages = 1995,
                                         .arrangement = arrangement,
                                         .page_stride = 1077120 * factor};
            paged *p = make_sparse(&config);
            const uint64_t at = paged_at(p, 0, 0, 1994, 0, 0), before = paged_at(p, 0, 0, 1993, 0, 0);
            assert_true(at == factor * UINT64_C(2147777280));
            const uint64_t page_bytes = stats_of(p->pool).page_bytes / (arrangement == PKV_PAGE_MAJOR ? 1 : 2);
            memset(p->bytes + before + page_bytes, 0x3C, config.page_stride - page_bytes);
            memset(p->bytes + at + page_bytes, 0x3C, config.page_stride - page_bytes);
            there_and_back(p, 1994 * 16 + 15, 1);
            there_and_back(p, 1993 * 16 + 15, 2);
            const pkv_page src = 1994, dst = 1992;
            assert_ok(pkv_pool_copy_pages(p->pool, 0, 1, &src, &dst, NULL));
            assert_memory_equal(p->bytes + paged_at(p, 0, 0, 1992, 0, 0), p->bytes + at, page_bytes);
            for (uint64_t i = page_bytes; i < config.page_stride; ++i) {
                assert_int_equal(p->bytes[before + i], 0x3C);
                assert_int_equal(p->bytes[at + i], 0x3C);
            }
            end_sparse(p);
        }
}

static void layers_that_lie_gigabytes_apart(void **state) {
    (void)state;
    test_random random = {1};
    const paged_config config = {.dtype = PKV_DTYPE_F16,
                                 .k_row = 256,
                                 .v_row = 256,
                                 .heads = 8,
                                 .page_tokens = 16,
                                 .layers = 4,
                                 .pages = 80000,
                                 .arrangement = PKV_LAYER_MAJOR};
    paged *p = make_sparse(&config); /* 20 GiB */
    flat k = make_flat(p, 0, 1, flat_dense, &random), v = make_flat(p, 1, 1, flat_dense, &random);
    for (uint32_t layer = 0; layer < 4; ++layer) {
        flat_row(&k, 0, 0)[0] = (unsigned char)(layer + 1);
        write_one(p, layer, 79999 * 16 + 15, &k, &v);
        const uint64_t at = paged_at(p, 0, layer, 79999, 15, 0);
        assert_memory_equal(p->bytes + at, flat_row(&k, 0, 0), config.k_row);
    }
    for (uint32_t layer = 0; layer < 4; ++layer)
        assert_int_equal(p->bytes[paged_at(p, 0, layer, 79999, 15, 0)], layer + 1);
    end_flat(&k);
    end_flat(&v);
    end_sparse(p);
}

static void a_pool_past_the_limit_of_addresses_is_refused(void **state) {
    (void)state;
    pkv_group_options group = small_group(INT32_MAX);
    group.k_strides.page = UINT64_MAX / 2;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = 16;
    options.num_groups = 1;
    options.groups = &group;
    pkv_pool *pool = NULL;
    assert_status(pkv_pool_create(&options, &pool), PKV_ERR_LIMIT);
    group.k_strides.page = UINT64_C(1) << 33; /* times 2^31 is 2^64 */
    assert_status(pkv_pool_create(&options, &pool), PKV_ERR_LIMIT);
    assert_null(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_G01_page_65535_of_65536_elements),
        cmocka_unit_test(case_G02_elements_2_to_the_31_and_the_next),
        cmocka_unit_test(case_G04_page_262144_of_16384_is_not_page_0),
        cmocka_unit_test(case_G05_large_slots_of_576_elements),
        cmocka_unit_test(case_G07_a_stride_larger_than_the_page_leaves_the_gap_alone),
        cmocka_unit_test(layers_that_lie_gigabytes_apart),
        cmocka_unit_test(a_pool_past_the_limit_of_addresses_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
