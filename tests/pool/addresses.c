/* SPDX-License-Identifier: Apache-2.0 */
/* Where rows lie: every layout and arrangement, gaps between pages, memory of the caller's, rows without V. */
#include "support/support.h"

enum { pages = 3, page_tokens = 4, layers = 2, heads = 3, k_dim = 5, v_dim = 2, element = 2 };
enum {
    k_row = k_dim * element,
    v_row = v_dim * element,
    k_slice = page_tokens * heads * k_row,
    v_slice = page_tokens * heads * v_row
};

static pkv_group_options odd_group(int32_t layout, int32_t arrangement) {
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = pages;
    group.num_layers = layers;
    group.num_kv_heads = heads;
    group.k_head_dim = k_dim;
    group.v_head_dim = v_dim;
    group.layout = layout;
    group.arrangement = arrangement;
    return group;
}

static pkv_layer_layout layout_of(pkv_pool *pool, uint32_t layer) {
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    assert_ok(pkv_pool_layout(pool, 0, layer, &layout));
    return layout;
}

static uint16_t value_of(uint32_t layer, uint64_t slot, uint32_t head, uint32_t index, int side) {
    return (uint16_t)((((layer * 100 + slot) * 10 + head) * 10 + index) * 2 + (uint32_t)side + 1);
}

/* Writes every slot of every layer through the library. */
static void write_all(pkv_pool *pool, bool with_v) {
    pkv_page all[pages];
    assert_ok(pkv_pool_alloc(pool, 0, pages, all));
    for (uint32_t layer = 0; layer < layers; ++layer) {
        uint16_t k[pages * page_tokens][heads][k_dim];
        uint16_t v[pages * page_tokens][heads][v_dim];
        pkv_slot slots[pages * page_tokens];
        for (uint32_t slot = 0; slot < pages * page_tokens; ++slot) {
            slots[slot] = slot;
            for (uint32_t head = 0; head < heads; ++head) {
                for (uint32_t i = 0; i < k_dim; ++i) k[slot][head][i] = value_of(layer, slot, head, i, 0);
                for (uint32_t i = 0; i < v_dim; ++i) v[slot][head][i] = value_of(layer, slot, head, i, 1);
            }
        }
        pkv_tensor k_tensor = PKV_TENSOR_INIT;
        k_tensor.data = k;
        k_tensor.dtype = PKV_DTYPE_F16;
        k_tensor.num_tokens = pages * page_tokens;
        pkv_tensor v_tensor = k_tensor;
        v_tensor.data = v;
        assert_ok(
            pkv_pool_write(pool, 0, layer, pages * page_tokens, slots, &k_tensor, with_v ? &v_tensor : NULL, NULL));
    }
    release_pages(pool, all, pages);
}

/* Reads every row where the layout says that it is. */
static void check_all(pkv_pool *pool, bool with_v) {
    for (uint32_t layer = 0; layer < layers; ++layer) {
        const pkv_layer_layout layout = layout_of(pool, layer);
        for (uint64_t slot = 0; slot < pages * page_tokens; ++slot)
            for (uint32_t head = 0; head < heads; ++head)
                for (int side = 0; side <= with_v; ++side) {
                    const pkv_strides *strides = side ? &layout.v : &layout.k;
                    const unsigned char *base = side ? layout.v_base : layout.k_base;
                    uint16_t row[k_dim];
                    const uint32_t dim = side ? v_dim : k_dim;
                    memcpy(row,
                           base + slot / page_tokens * strides->page + slot % page_tokens * strides->token +
                               head * strides->head,
                           dim * element);
                    for (uint32_t i = 0; i < dim; ++i) assert_int_equal(row[i], value_of(layer, slot, head, i, side));
                }
    }
}

static void strides_are_those_of_the_documented_order(void **state) {
    (void)state;
    for (int32_t layout = PKV_LAYOUT_NHD; layout <= PKV_LAYOUT_HND; ++layout)
        for (int32_t arrangement = PKV_PAGE_MAJOR; arrangement <= PKV_LAYER_MAJOR; ++arrangement) {
            const pkv_group_options group = odd_group(layout, arrangement);
            pkv_pool *pool = make_pool_of(&group, page_tokens, 0);
            const bool nhd = layout == PKV_LAYOUT_NHD;
            const uint64_t page = arrangement == PKV_PAGE_MAJOR ? layers * (k_slice + v_slice) : k_slice + v_slice;
            const pkv_strides k = {page, nhd ? heads * k_row : k_row, nhd ? k_row : page_tokens * k_row};
            const pkv_strides v = {page, nhd ? heads * v_row : v_row, nhd ? v_row : page_tokens * v_row};
            const unsigned char *first = layout_of(pool, 0).k_base;
            const uint64_t next_layer = arrangement == PKV_PAGE_MAJOR ? k_slice + v_slice : pages * page;
            for (uint32_t layer = 0; layer < layers; ++layer) {
                const pkv_layer_layout got = layout_of(pool, layer);
                assert_memory_equal(&got.k, &k, sizeof k);
                assert_memory_equal(&got.v, &v, sizeof v);
                assert_int_equal((const unsigned char *)got.k_base - first, layer * next_layer);
                assert_int_equal((const unsigned char *)got.v_base - first, layer * next_layer + k_slice);
                assert_int_equal(got.k_row_bytes, k_row);
                assert_int_equal(got.v_row_bytes, v_row);
                assert_int_equal(got.num_kv_heads, heads);
                assert_int_equal(got.page_tokens, page_tokens);
                assert_int_equal(got.dtype, PKV_DTYPE_F16);
            }
            end_pool(pool);
        }
}

static void rows_are_where_the_layout_says(void **state) {
    (void)state;
    for (int32_t layout = PKV_LAYOUT_NHD; layout <= PKV_LAYOUT_HND; ++layout)
        for (int32_t arrangement = PKV_PAGE_MAJOR; arrangement <= PKV_LAYER_MAJOR; ++arrangement) {
            const pkv_group_options group = odd_group(layout, arrangement);
            pkv_pool *pool = make_pool_of(&group, page_tokens, 0);
            write_all(pool, true);
            check_all(pool, true);
            end_pool(pool);
        }
}

static void a_new_pool_is_zeroed_and_gaps_between_pages_stay_so(void **state) {
    (void)state;
    for (int32_t arrangement = PKV_PAGE_MAJOR; arrangement <= PKV_LAYER_MAJOR; ++arrangement) {
        pkv_group_options group = odd_group(PKV_LAYOUT_HND, arrangement);
        const uint64_t dense = (k_slice + v_slice) * (arrangement == PKV_PAGE_MAJOR ? layers : 1);
        group.k_strides.page = dense + 48;
        pkv_pool *pool = make_pool_of(&group, page_tokens, 0);
        const pkv_layer_layout layout = layout_of(pool, 0);
        assert_int_equal(layout.k.page, dense + 48);
        assert_int_equal(layout.v.page, dense + 48);
        const unsigned char *bytes = layout.k_base;
        for (uint64_t i = 0; i < pages * (dense + 48); ++i) assert_int_equal(bytes[i], 0);
        write_all(pool, true);
        check_all(pool, true);
        for (uint64_t page = 0; page < pages; ++page)
            for (uint64_t i = dense; i < dense + 48; ++i) assert_int_equal(bytes[page * (dense + 48) + i], 0);
        assert_int_equal(stats_of(pool).page_bytes, layers * (k_slice + v_slice)); /* gaps are not counted */
        end_pool(pool);
    }
}

static void poison_leaves_the_gaps_alone(void **state) {
    (void)state;
    pkv_group_options group = odd_group(PKV_LAYOUT_NHD, PKV_PAGE_MAJOR);
    const uint64_t dense = layers * (k_slice + v_slice);
    group.k_strides.page = dense + 16;
    pkv_pool *pool = make_pool_of(&group, page_tokens, PKV_DEBUG_POISON);
    const unsigned char *bytes = layout_of(pool, 0).k_base;
    for (int round = 0; round < 2; ++round) {
        for (uint64_t page = 0; page < pages; ++page)
            for (uint64_t i = 0; i < dense + 16; ++i)
                assert_int_equal(bytes[page * (dense + 16) + i], i < dense ? 0xFF : 0);
        write_all(pool, true); /* released: free again, so filled again */
    }
    end_pool(pool);
}

static void latent_caches_have_no_v(void **state) {
    (void)state;
    pkv_group_options group = odd_group(PKV_LAYOUT_NHD, PKV_PAGE_MAJOR);
    group.v_head_dim = 0;
    pkv_pool *pool = make_pool_of(&group, page_tokens, 0);
    const pkv_layer_layout layout = layout_of(pool, 1);
    assert_null(layout.v_base);
    assert_int_equal(layout.v_row_bytes, 0);
    assert_int_equal(layout.v.page + layout.v.token + layout.v.head, 0);
    assert_int_equal(layout.k.page, layers * k_slice);
    write_all(pool, false);
    check_all(pool, false);
    end_pool(pool);
}

static void pools_without_bytes_have_no_addresses(void **state) {
    (void)state;
    pkv_group_options group = odd_group(PKV_LAYOUT_NHD, PKV_PAGE_MAJOR);
    group.memory = PKV_MEMORY_NONE;
    pkv_pool *pool = make_pool_of(&group, page_tokens, 0);
    assert_null(layout_of(pool, 0).k_base);
    assert_null(layout_of(pool, 0).v_base);
    assert_int_equal(layout_of(pool, 0).k_row_bytes, k_row);
    end_pool(pool);
}

static void layout_of_another_group_or_layer_is_invalid(void **state) {
    (void)state;
    const pkv_group_options group = odd_group(PKV_LAYOUT_NHD, PKV_PAGE_MAJOR);
    pkv_pool *pool = make_pool_of(&group, page_tokens, 0);
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    assert_status(pkv_pool_layout(pool, 1, 0, &layout), PKV_ERR_INVALID);
    assert_status(pkv_pool_layout(pool, 0, layers, &layout), PKV_ERR_INVALID);
    assert_status(pkv_pool_layout(pool, 0, 0, NULL), PKV_ERR_INVALID);
    end_pool(pool);
}

/* ---- memory of the caller's ---- */

struct tensors {
    unsigned char *bytes;
    void *k[layers];
    void *v[layers];
};

/* K and V of a layer side by side in each page, as [page, 2, ...] tensors have them. */
static struct tensors make_tensors(pkv_group_options *group, uint64_t page_stride) {
    struct tensors tensors = {calloc(layers, pages * page_stride), {0}, {0}};
    for (int i = 0; i < layers; ++i) {
        tensors.k[i] = tensors.bytes + i * pages * page_stride;
        tensors.v[i] = (unsigned char *)tensors.k[i] + k_slice;
    }
    group->memory = PKV_MEMORY_CALLER;
    group->k_strides = (pkv_strides){page_stride, heads * k_row, k_row};
    group->v_strides = (pkv_strides){page_stride, heads * v_row, v_row};
    return tensors;
}

static void tensors_of_the_caller_are_used_in_place(void **state) {
    (void)state;
    pkv_group_options group = odd_group(PKV_LAYOUT_NHD, PKV_PAGE_MAJOR);
    struct tensors tensors = make_tensors(&group, k_slice + v_slice + 8);
    void *k[layers], *v[layers];
    memcpy(k, tensors.k, sizeof k);
    memcpy(v, tensors.v, sizeof v);
    group.k_base = k;
    group.v_base = v;
    pkv_pool *pool = make_pool_of(&group, page_tokens, 0);
    k[0] = k[1] = v[0] = v[1] = NULL; /* the lists were copied */
    for (int i = 0; i < layers; ++i) {
        assert_ptr_equal(layout_of(pool, i).k_base, tensors.k[i]);
        assert_ptr_equal(layout_of(pool, i).v_base, tensors.v[i]);
    }
    write_all(pool, true);
    check_all(pool, true);
    assert_int_equal(stats_of(pool).memory_kind, PKV_MEMORY_KIND_CALLER);
    end_pool(pool);
    free(tensors.bytes); /* still the caller's */
}

static void dense_tensors_of_the_caller_need_no_strides(void **state) {
    (void)state;
    for (int32_t layout = PKV_LAYOUT_NHD; layout <= PKV_LAYOUT_HND; ++layout) {
        pkv_group_options group = odd_group(layout, PKV_PAGE_MAJOR);
        group.memory = PKV_MEMORY_CALLER;
        unsigned char *bytes = calloc(layers * pages, k_slice + v_slice);
        void *k[layers], *v[layers];
        for (int i = 0; i < layers; ++i) {
            k[i] = bytes + i * pages * k_slice;
            v[i] = bytes + layers * pages * k_slice + i * pages * v_slice;
        }
        group.k_base = k;
        group.v_base = v;
        pkv_pool *pool = make_pool_of(&group, page_tokens, 0);
        assert_int_equal(layout_of(pool, 0).k.page, k_slice);
        assert_int_equal(layout_of(pool, 0).v.page, v_slice);
        write_all(pool, true);
        check_all(pool, true);
        end_pool(pool);
        free(bytes);
    }
}

static void check_refused(const pkv_group_options *group, const char *text) {
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = 1;
    options.groups = group;
    pkv_pool *pool = NULL;
    assert_status(pkv_pool_create(&options, &pool), PKV_ERR_INVALID);
    assert_message(text);
    assert_null(pool);
}

static void strides_of_the_caller_that_make_rows_overlap_are_refused(void **state) {
    (void)state;
    const pkv_strides bad[] = {
        {k_slice, heads * k_row, k_row - 1},       /* heads overlap */
        {k_slice, heads * k_row - 1, k_row},       /* tokens overlap */
        {k_slice, k_row, page_tokens * k_row - 2}, /* the same, heads outside */
        {k_slice, k_row, k_row},
        {k_slice, 0, 0}, /* all three, or none */
        {k_slice, heads * k_row, 0},
        {0, heads * k_row, k_row},
        {k_row - 1, heads * k_row, k_row}, /* pages overlap */
        {k_slice - 1, heads * k_row, k_row},
        {k_row, heads * k_row, k_row},
        {heads * k_row, heads * k_row, k_row},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
        pkv_group_options group = odd_group(PKV_LAYOUT_NHD, PKV_PAGE_MAJOR);
        struct tensors tensors = make_tensors(&group, k_slice + v_slice);
        group.k_base = tensors.k;
        group.v_base = tensors.v;
        group.k_strides = bad[i];
        print_message("strides {%u, %u, %u}\n", (unsigned)bad[i].page, (unsigned)bad[i].token, (unsigned)bad[i].head);
        check_refused(&group, "k_strides");
        free(tensors.bytes);
    }
}

static void pages_inside_tokens_are_a_valid_order_of_the_callers(void **state) {
    (void)state;
    pkv_group_options group = odd_group(PKV_LAYOUT_NHD, PKV_PAGE_MAJOR); /* [token, page, head, dim] */
    struct tensors tensors = make_tensors(&group, k_slice + v_slice);
    group.v_head_dim = 0;
    group.v_strides = (pkv_strides){0, 0, 0};
    group.k_base = tensors.k;
    group.k_strides = (pkv_strides){heads * k_row, pages * heads * k_row, k_row};
    pkv_pool *pool = make_pool_of(&group, page_tokens, 0);
    write_all(pool, false);
    check_all(pool, false);
    end_pool(pool);
    free(tensors.bytes);
}

static void base_addresses_belong_to_memory_of_the_caller(void **state) {
    (void)state;
    pkv_group_options group = odd_group(PKV_LAYOUT_NHD, PKV_PAGE_MAJOR);
    struct tensors tensors = make_tensors(&group, k_slice + v_slice);
    check_refused(&group, "k_base");
    group.k_base = tensors.k;
    check_refused(&group, "v_base");
    group.v_base = tensors.v;
    tensors.v[1] = NULL;
    check_refused(&group, "layer 1");
    group.v_head_dim = 0;
    check_refused(&group, "v_base");
    group = odd_group(PKV_LAYOUT_NHD, PKV_PAGE_MAJOR);
    group.k_base = tensors.k;
    check_refused(&group, "k_base");
    free(tensors.bytes);
}

static void a_pools_own_memory_takes_the_page_stride_only(void **state) {
    (void)state;
    const uint64_t dense = layers * (k_slice + v_slice);
    pkv_group_options group = odd_group(PKV_LAYOUT_NHD, PKV_PAGE_MAJOR);
    group.k_strides.page = dense - 1;
    check_refused(&group, "k_strides.page is 335");
    group.k_strides = (pkv_strides){dense, heads * k_row, k_row};
    check_refused(&group, "strides");
    group.k_strides = (pkv_strides){0, 0, 0};
    group.v_strides.page = dense;
    check_refused(&group, "strides");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strides_are_those_of_the_documented_order),
        cmocka_unit_test(rows_are_where_the_layout_says),
        cmocka_unit_test(a_new_pool_is_zeroed_and_gaps_between_pages_stay_so),
        cmocka_unit_test(poison_leaves_the_gaps_alone),
        cmocka_unit_test(latent_caches_have_no_v),
        cmocka_unit_test(pools_without_bytes_have_no_addresses),
        cmocka_unit_test(layout_of_another_group_or_layer_is_invalid),
        cmocka_unit_test(tensors_of_the_caller_are_used_in_place),
        cmocka_unit_test(dense_tensors_of_the_caller_need_no_strides),
        cmocka_unit_test(strides_of_the_caller_that_make_rows_overlap_are_refused),
        cmocka_unit_test(pages_inside_tokens_are_a_valid_order_of_the_callers),
        cmocka_unit_test(base_addresses_belong_to_memory_of_the_caller),
        cmocka_unit_test(a_pools_own_memory_takes_the_page_stride_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
