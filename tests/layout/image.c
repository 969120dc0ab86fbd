/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that become images and pages again, in every geometry, and in pools of another in-page order and arrangement. */
#include "layout/image.h"

static pkv_tier *make_tier(void) {
    pkv_host_tier_options options = PKV_HOST_TIER_OPTIONS_INIT;
    options.capacity_bytes = 48 << 20;
    options.huge_pages = PKV_HUGE_PAGES_NEVER;
    pkv_tier *tier = NULL;
    assert_ok(pkv_tier_open_host(&options, &tier));
    return tier;
}

static const shape shapes[] = {
    /* f16, K and V alike, with rows that fill a slice exactly, nearly and not at all */
    {.dtype = PKV_DTYPE_F16, .k_row = 64, .v_row = 64, .heads = 2, .page_tokens = 8, .layers = 2},
    {.dtype = PKV_DTYPE_F16, .k_row = 128, .v_row = 128, .heads = 8, .page_tokens = 16, .layers = 3},
    {.dtype = PKV_DTYPE_BF16, .k_row = 1, .v_row = 1, .heads = 1, .page_tokens = 1, .layers = 1},
    {.dtype = PKV_DTYPE_F32, .k_row = 80, .v_row = 96, .heads = 3, .page_tokens = 17, .layers = 2},
    /* K only; K larger than V and the other way round */
    {.dtype = PKV_DTYPE_BF16, .k_row = 576, .heads = 1, .page_tokens = 64, .layers = 2},
    {.dtype = PKV_DTYPE_F8_E4M3, .k_row = 192, .v_row = 128, .heads = 4, .page_tokens = 5, .layers = 1},
    {.dtype = PKV_DTYPE_I8, .k_row = 16, .v_row = 48, .heads = 2, .page_tokens = 1, .layers = 6},
    /* opaque rows of any size */
    {.dtype = PKV_DTYPE_OPAQUE, .k_row = 1, .heads = 1, .page_tokens = 1, .layers = 1},
    {.dtype = PKV_DTYPE_OPAQUE, .k_row = 37, .v_row = 11, .heads = 3, .page_tokens = 7, .layers = 2},
    {.dtype = PKV_DTYPE_OPAQUE, .k_row = 3, .v_row = 5, .heads = 13, .page_tokens = 129, .layers = 2},
    {.dtype = PKV_DTYPE_OPAQUE, .k_row = 4095, .v_row = 4097, .heads = 1, .page_tokens = 3, .layers = 1},
    {.dtype = PKV_DTYPE_OPAQUE, .k_row = 656, .heads = 1, .page_tokens = 64, .layers = 2},
    /* scales of every kind */
    {.dtype = PKV_DTYPE_F8_E4M3,
     .k_row = 32,
     .v_row = 32,
     .heads = 2,
     .page_tokens = 4,
     .layers = 2,
     .scales = PKV_SCALES_TENSOR},
    {.dtype = PKV_DTYPE_F8_E5M2,
     .k_row = 32,
     .v_row = 16,
     .heads = 3,
     .page_tokens = 4,
     .layers = 2,
     .scales = PKV_SCALES_HEAD},
    {.dtype = PKV_DTYPE_I8,
     .k_row = 24,
     .v_row = 24,
     .heads = 3,
     .page_tokens = 5,
     .layers = 3,
     .scales = PKV_SCALES_TOKEN_HEAD},
    {.dtype = PKV_DTYPE_F8_E4M3,
     .k_row = 64,
     .heads = 8,
     .page_tokens = 128,
     .layers = 2,
     .scales = PKV_SCALES_TOKEN_HEAD},
    /* aux bytes: few, odd, more than a header has room for; beside scales */
    {.dtype = PKV_DTYPE_F16, .k_row = 8, .v_row = 8, .heads = 1, .page_tokens = 4, .layers = 1, .aux_bytes = 1},
    {.dtype = PKV_DTYPE_F16, .k_row = 8, .v_row = 8, .heads = 2, .page_tokens = 4, .layers = 2, .aux_bytes = 5003},
    {.dtype = PKV_DTYPE_I8,
     .k_row = 8,
     .v_row = 8,
     .heads = 2,
     .page_tokens = 4,
     .layers = 2,
     .scales = PKV_SCALES_TOKEN_HEAD,
     .aux_bytes = 13},
};
enum { num_shapes = sizeof shapes / sizeof *shapes };

/* Where and how the pages of a pool lie. */
enum { page_major, page_major_gaps, layer_major, callers, places };

static shape placed(const shape *s, int place, int32_t layout) {
    shape p = *s;
    p.layout = layout;
    p.arrangement = place == layer_major ? PKV_LAYER_MAJOR : PKV_PAGE_MAJOR;
    p.memory = place == callers ? PKV_MEMORY_CALLER : PKV_MEMORY_POOL;
    p.gap = place == page_major_gaps ? 40 : 0;
    return p;
}

/* What lies between rows of the caller's was not touched: without the rows, all is as it was. */
static void check_gaps(shaped *p) {
    if (p->own == NULL) return;
    unsigned char *copy = malloc(p->own_bytes);
    memcpy(copy, p->own, p->own_bytes);
    const shape *s = &p->shape;
    for (uint32_t layer = 0; layer < s->layers; ++layer) {
        pkv_layer_layout l = PKV_LAYER_LAYOUT_INIT;
        assert_ok(pkv_pool_layout(p->pool, 0, layer, &l));
        for (int side = 0; side < (s->v_row != 0 ? 2 : 1); ++side)
            for (int page = 0; page < shaped_pages; ++page)
                for (uint32_t token = 0; token < s->page_tokens; ++token)
                    for (uint32_t head = 0; head < s->heads; ++head)
                        memset(copy + (row_of(&l, side, p->pages[page], token, head) - p->own), untouched,
                               shape_row_bytes(s, side));
    }
    for (uint64_t i = 0; i < p->own_bytes; ++i)
        if (copy[i] != untouched) fail_msg("byte %llu is none of a row's, and was written", (unsigned long long)i);
    free(copy);
}

/* Three images from one pool to another, into other pages; the neighbours stay. */
static void move(const shape *from_shape, const shape *to_shape) {
    pkv_tier *tier = make_tier();
    shaped from = make_shaped(from_shape, tier), to = make_shaped(to_shape, tier);
    for (uint32_t i = 0; i < shaped_pages; ++i) {
        fill_image(&from, i, i);
        fill_image(&to, i, 100 + i);
    }
    for (uint32_t i = 0; i < 3; ++i) assert_ok(store_image(&from, i, i));
    for (uint32_t i = 0; i < 3; ++i) {
        assert_ok(load_image(&to, 3 - i, i));
        if (!is_image(&to, 3 - i, i))
            fail_msg("image %u: rows of %u and %u, %u heads, %u tokens, %u layers, order %d to %d, arrangement %d to "
                     "%d, memory %d "
                     "to %d",
                     i, from_shape->k_row, from_shape->v_row, from_shape->heads, from_shape->page_tokens,
                     from_shape->layers, from_shape->layout, to_shape->layout, from_shape->arrangement,
                     to_shape->arrangement, from_shape->memory, to_shape->memory);
    }
    assert_true(is_image(&to, 0, 100) && is_image(&to, 4, 104));
    for (uint32_t i = 0; i < shaped_pages; ++i) assert_true(is_image(&from, i, i));
    check_gaps(&from);
    check_gaps(&to);
    pkv_tier_stats stats = PKV_TIER_STATS_INIT;
    assert_ok(pkv_tier_get_stats(tier, &stats));
    assert_int_equal(stats.loads, 3);
    assert_int_equal(stats.checksum_failures, 0);
    end_shaped(&from);
    end_shaped(&to);
    assert_ok(pkv_tier_close(tier));
}

static void case_L23_every_geometry_comes_back_as_it_was(void **state) {
    (void)state;
    for (int i = 0; i < num_shapes; ++i)
        for (int32_t layout = PKV_LAYOUT_NHD; layout <= PKV_LAYOUT_HND; ++layout)
            for (int place = 0; place < places; ++place) {
                const shape s = placed(&shapes[i], place, layout);
                move(&s, &s);
            }
}

static void the_other_in_page_order_is_converted(void **state) {
    (void)state;
    for (int i = 0; i < num_shapes; ++i)
        for (int from = 0; from < places; ++from) {
            const int to = (from + i) % places;
            const shape nhd = placed(&shapes[i], from, PKV_LAYOUT_NHD), hnd = placed(&shapes[i], to, PKV_LAYOUT_HND);
            move(from % 2 == 0 ? &nhd : &hnd, from % 2 == 0 ? &hnd : &nhd);
            if (from == page_major) move(&hnd, &nhd);
        }
}

static void another_arrangement_and_memory_are_no_other_image(void **state) {
    (void)state;
    for (int i = 0; i < num_shapes; ++i)
        for (int from = 0; from < places; ++from) {
            const shape a = placed(&shapes[i], from, PKV_LAYOUT_NHD),
                        b = placed(&shapes[i], (from + 1) % places, PKV_LAYOUT_NHD);
            move(&a, &b);
        }
}

static void case_L08_a_slice_that_ends_within_a_block_is_exact(void **state) {
    (void)state;
    /* 3098112 bytes, which is no multiple of 4096. */
    const shape s = {.dtype = PKV_DTYPE_OPAQUE, .k_row = 24204, .heads = 8, .page_tokens = 16, .layers = 1};
    move(&s, &s);
}

static void random_geometries_come_back(void **state) {
    (void)state;
    test_random random = {20261203};
    print_message("seed %llu\n", (unsigned long long)random.state);
    for (int turn = 0; turn < (long_tests() ? 2000 : 30); ++turn) {
        shape s = {.dtype = PKV_DTYPE_OPAQUE,
                   .k_row = 1 + (uint32_t)random_below(&random, 300),
                   .v_row = (uint32_t)random_below(&random, 200),
                   .heads = 1 + (uint32_t)random_below(&random, 9),
                   .page_tokens = 1 + (uint32_t)random_below(&random, 40),
                   .layers = 1 + (uint32_t)random_below(&random, shaped_max_layers),
                   .aux_bytes = (uint32_t)random_below(&random, 3) * (uint32_t)random_below(&random, 3000)};
        const shape a = placed(&s, (int)random_below(&random, places), (int32_t)random_below(&random, 2));
        const shape b = placed(&s, (int)random_below(&random, places), (int32_t)random_below(&random, 2));
        move(&a, &b);
    }
}

/* Anything in which two pools differ, but for the order of their pages' bytes, makes the image useless to the other. */
static void pools_of_another_geometry_refuse_the_image(void **state) {
    (void)state;
    const shape base = {
        .dtype = PKV_DTYPE_F8_E4M3, .k_row = 32, .v_row = 32, .heads = 2, .page_tokens = 4, .layers = 2};
    shape others[11];
    for (int i = 0; i < 11; ++i) others[i] = base;
    others[0].dtype = PKV_DTYPE_F8_E5M2;
    others[1].dtype = PKV_DTYPE_I8;
    others[2].k_row = 31;
    others[3].v_row = 33;
    others[4].v_row = 0;
    others[5].heads = 1;
    others[6].page_tokens = 2;
    others[7].layers = 1;
    others[8].scales = PKV_SCALES_TENSOR;
    others[9].aux_bytes = 4;
    others[10].dtype = PKV_DTYPE_OPAQUE;
    for (int i = 0; i < 11; ++i) {
        pkv_tier *tier = make_tier();
        shaped from = make_shaped(&base, tier), to = make_shaped(&others[i], tier);
        fill_image(&from, 0, 1);
        fill_image(&to, 1, 2);
        assert_ok(store_image(&from, 0, 1));
        const pkv_status status = load_image(&to, 0, 1);
        if (status != PKV_ERR_IO && status != PKV_ERR_NOT_FOUND) fail_msg("geometry %d: %d", i, status);
        assert_true(is_image(&to, 1, 2));
        end_shaped(&from);
        end_shaped(&to);
        assert_ok(pkv_tier_close(tier));
    }
}

int main(int argc, char **argv) {
    (void)argc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_L23_every_geometry_comes_back_as_it_was),
        cmocka_unit_test(the_other_in_page_order_is_converted),
        cmocka_unit_test(another_arrangement_and_memory_are_no_other_image),
        cmocka_unit_test(case_L08_a_slice_that_ends_within_a_block_is_exact),
        cmocka_unit_test(random_geometries_come_back),
        cmocka_unit_test(pools_of_another_geometry_refuse_the_image),
    };
    return run_with_every_kernels(argv[0], tests, sizeof tests / sizeof *tests);
}
