/* SPDX-License-Identifier: Apache-2.0 */
/* The device's kernels for pages, run on the host over many grids: pages to pages of one pool and of another order,
 * and to slices of page images and back, with their scales. The host's kernels do the same beside them. Field cases
 * E11, H08, H10, H11 and I08. */
#include "tensor/convert.h"
#include "tensor/cuda.h"

enum { most_pairs = 4 };

static uint32_t any_tokens(uint32_t page_tokens, test_random *random) {
    return random_below(random, 2) == 0 ? page_tokens : (uint32_t)random_below(random, page_tokens + 1);
}

/* ---- pages of one pool ---- */

static void copy_both(paged *host, paged *device, test_random *random) {
    const paged_config *c = &host->config;
    pkv_device_layer layers[paged_max_layers];
    device_layers(device->pool, c->layers, c->pages, layers);
    int32_t src[2], dst[2]; /* the first half of the pages to the second */
    uint32_t tokens[2];
    const uint64_t half = c->pages / 2, count = random_below(random, 3);
    const bool whole = random_below(random, 2) == 0;
    for (uint64_t i = 0; i < 2; ++i) {
        src[i] = (int32_t)random_below(random, half);
        dst[i] = (int32_t)(half + i);
        tokens[i] = whole ? c->page_tokens : any_tokens(c->page_tokens, random);
    }
    if (whole) {
        paged_copy(host, count, src, dst);
    } else {
        for (uint64_t i = 0; i < count; ++i)
            for (uint32_t layer = 0; layer < c->layers; ++layer)
                for (int side = 0; side < (c->v_row != 0 ? 2 : 1); ++side)
                    for (uint64_t token = 0; token < tokens[i]; ++token)
                        for (uint64_t head = 0; head < c->heads; ++head) {
                            const uint64_t to = paged_at(host, side, layer, (uint64_t)dst[i], token, head),
                                           from = paged_at(host, side, layer, (uint64_t)src[i], token, head);
                            memcpy(host->bytes + to, host->bytes + from, side == 0 ? c->k_row : c->v_row);
                            memcpy(host->expected + to, host->bytes + from, side == 0 ? c->k_row : c->v_row);
                        }
    }
    assert_emulated(emulated_copy_pages(layers, c->layers, count, src, dst, tokens, any_grid(random)), PKV_OK);
    check_twins(host, device);
}

/* ---- pages of another order, and slices ---- */

/* Where a row is in a slice: K rows, then V rows, dense. */
static uint64_t in_slice(const paged_config *c, int side, int32_t layout, uint64_t token, uint64_t head) {
    const uint64_t row = side == 0 ? c->k_row : c->v_row;
    const uint64_t number = layout == PKV_LAYOUT_NHD ? token * c->heads + head : head * c->page_tokens + token;
    return (side == 0 ? 0 : (uint64_t)c->page_tokens * c->heads * c->k_row) + number * row;
}

static void rows_between(const paged *from, uint64_t src, paged *to, uint64_t dst, uint32_t tokens) {
    const paged_config *c = &from->config;
    for (uint32_t layer = 0; layer < c->layers; ++layer)
        for (int side = 0; side < (c->v_row != 0 ? 2 : 1); ++side)
            for (uint64_t token = 0; token < tokens; ++token)
                for (uint64_t head = 0; head < c->heads; ++head)
                    memcpy(to->expected + paged_at(to, side, layer, dst, token, head),
                           from->bytes + paged_at(from, side, layer, src, token, head),
                           side == 0 ? c->k_row : c->v_row);
}

static void copy_to_another(const paged *from, paged *to, test_random *random) {
    const paged_config *c = &from->config;
    pkv_device_layer src_layers[paged_max_layers], dst_layers[paged_max_layers];
    device_layers(from->pool, c->layers, c->pages, src_layers);
    device_layers(to->pool, c->layers, to->config.pages, dst_layers);
    int32_t src[most_pairs], dst[most_pairs];
    uint32_t tokens[most_pairs];
    const uint64_t count = random_below(random, most_pairs + 1);
    for (uint64_t i = 0; i < count; ++i) {
        src[i] = (int32_t)random_below(random, c->pages);
        dst[i] = (int32_t)i;
        tokens[i] = any_tokens(c->page_tokens, random);
        rows_between(from, (uint64_t)src[i], to, (uint64_t)dst[i], tokens[i]);
    }
    assert_emulated(emulated_copy_between(src_layers, dst_layers, c->layers, count, src, dst, tokens, any_grid(random)),
                    PKV_OK);
    check_paged(to);
}

/* Slices of some pages, in both orders, and back into another pool. */
static void slices_there_and_back(const paged *from, paged *to, test_random *random) {
    enum { num_slices = 6, guard = 0x3C };
    const paged_config *c = &from->config;
    pkv_device_layer src_layers[paged_max_layers], dst_layers[paged_max_layers];
    device_layers(from->pool, c->layers, c->pages, src_layers);
    device_layers(to->pool, c->layers, to->config.pages, dst_layers);
    const uint64_t bytes = (uint64_t)c->page_tokens * c->heads * (c->k_row + c->v_row), step = bytes + 29;
    const uint64_t shift =
        random_below(random, 3) == 0 ? random_below(random, 16) : 0; /* mostly as aligned as a tier's */
    unsigned char *const memory = aligned_alloc(64, (num_slices * step + 128) / 64 * 64 + 64);
    memset(memory, guard, num_slices * step + 64);
    unsigned char *const expected = malloc(num_slices * step + 64);
    memset(expected, guard, num_slices * step + 64);
    pkv_device_slice slices[num_slices];
    uint64_t at = shift;
    for (uint32_t i = 0; i < num_slices; ++i, at += shift == 0 ? step / 16 * 16 : step) {
        slices[i] = (pkv_device_slice){.layer = (uint32_t)random_below(random, c->layers),
                                       .page = (int32_t)random_below(random, c->pages),
                                       .layout = (int32_t)random_below(random, 2),
                                       .tokens = any_tokens(c->page_tokens, random),
                                       .bytes = memory + at};
        memset(expected + at, 0, bytes);
        for (int side = 0; side < (c->v_row != 0 ? 2 : 1); ++side)
            for (uint64_t token = 0; token < slices[i].tokens; ++token)
                for (uint64_t head = 0; head < c->heads; ++head)
                    memcpy(expected + at + in_slice(c, side, slices[i].layout, token, head),
                           from->bytes + paged_at(from, side, slices[i].layer, (uint64_t)slices[i].page, token, head),
                           side == 0 ? c->k_row : c->v_row);
    }
    assert_emulated(emulated_pack(src_layers, c->layers, slices, num_slices, any_grid(random)), PKV_OK);
    for (uint64_t i = 0; i < num_slices * step + 64; ++i)
        if (memory[i] != expected[i])
            fail_msg("byte %llu of the slices is %02x, not %02x", (unsigned long long)i, memory[i], expected[i]);
    bool seen[paged_max_layers][8] = {{false}};
    uint64_t some = 0;
    for (uint32_t i = 0; i < num_slices; ++i) { /* no target twice */
        slices[some] = slices[i];
        slices[some].page = (int32_t)random_below(random, to->config.pages);
        slices[some].layer = (uint32_t)random_below(random, c->layers);
        if (seen[slices[some].layer][slices[some].page]) continue;
        seen[slices[some].layer][slices[some].page] = true;
        for (int side = 0; side < (c->v_row != 0 ? 2 : 1); ++side)
            for (uint64_t token = 0; token < slices[some].tokens; ++token)
                for (uint64_t head = 0; head < c->heads; ++head)
                    memcpy(to->expected +
                               paged_at(to, side, slices[some].layer, (uint64_t)slices[some].page, token, head),
                           (unsigned char *)slices[some].bytes + in_slice(c, side, slices[some].layout, token, head),
                           side == 0 ? c->k_row : c->v_row);
        ++some;
    }
    assert_emulated(emulated_unpack(dst_layers, c->layers, slices, some, any_grid(random)), PKV_OK);
    check_paged(to);
    free(memory);
    free(expected);
}

static void exercise(const paged_config *config, uint64_t seed, int rounds) {
    test_random random = {seed};
    paged *host = make_paged(config), *device = make_paged(config);
    paged_config other_config = *config;
    other_config.layout = (int32_t)random_below(&random, 2);
    other_config.memory = random_below(&random, 3) == 0 ? PKV_MEMORY_CALLER : PKV_MEMORY_POOL;
    other_config.arrangement =
        other_config.memory == PKV_MEMORY_CALLER ? PKV_PAGE_MAJOR : (int32_t)random_below(&random, 2);
    paged *other = make_paged(&other_config);
    fill_twins(host, device, &random);
    for (int round = 0; round < rounds; ++round) {
        copy_both(host, device, &random);
        copy_to_another(host, other, &random);
        slices_there_and_back(host, other, &random);
    }
    end_paged(host);
    end_twin(device);
    end_paged(other);
}

static void pages_are_right_in_every_geometry(void **state) {
    (void)state;
    static const uint32_t dims[] = {1, 8, 40, 46, 64, 100, 576}, heads[] = {1, 2, 3, 8}, tokens[] = {1, 3, 8, 16};
    const uint64_t seed = 31;
    print_message("seed %llu\n", (unsigned long long)seed);
    test_random random = {seed};
    for (size_t d = 0; d < 7; ++d)
        for (size_t h = 0; h < 4; ++h)
            for (int layout = PKV_LAYOUT_NHD; layout <= PKV_LAYOUT_HND; ++layout)
                for (int place = 0; place < 3; ++place) {
                    paged_config config = {.dtype = d == 0 ? PKV_DTYPE_OPAQUE : PKV_DTYPE_F16,
                                           .heads = heads[h],
                                           .layers = 3,
                                           .pages = 5,
                                           .layout = layout};
                    config.k_row = config.v_row = d == 0 ? 1 : 2 * dims[d];
                    if (dims[d] == 576) config.v_row = random_below(&random, 2) == 0 ? 0 : 2 * 512;
                    config.arrangement = place == 1 ? PKV_LAYER_MAJOR : PKV_PAGE_MAJOR;
                    config.memory = place == 2 ? PKV_MEMORY_CALLER : PKV_MEMORY_POOL;
                    config.page_tokens = tokens[random_below(&random, 4)];
                    exercise(&config, next_random(&random), long_tests() ? 40 : 3);
                }
    assert_int_equal(emulated_misaligned(), 0);
}

static void whole_pages_of_a_dense_pool_are_few_runs(void **state) {
    (void)state;
    for (int layout = PKV_LAYOUT_NHD; layout <= PKV_LAYOUT_HND; ++layout) {
        const paged_config config = {.dtype = PKV_DTYPE_BF16,
                                     .k_row = 256,
                                     .v_row = 256,
                                     .heads = 4,
                                     .page_tokens = 16,
                                     .layers = 2,
                                     .pages = 4,
                                     .layout = layout};
        exercise(&config, 5, 20);
    }
}

/* ---- scales of token and head ---- */

static void fill_memory_of(quantised *q, test_random *random) {
    for (int side = 0; side < 2; ++side)
        for (uint32_t layer = 0; layer < q->c.layers; ++layer)
            for (uint64_t slot = 0; slot < q->c.pages * q->c.page_tokens; ++slot)
                for (uint32_t head = 0; head < q->c.heads; ++head) {
                    for (uint32_t i = 0; i < q->c.dim[side]; ++i)
                        stored_at(q, side, layer, slot, head)[i] = (unsigned char)next_random(random);
                    float *const scales = side == 0 ? q->at[layer].k_scales : q->at[layer].v_scales;
                    const float scale = (float)random_below(random, 1000) + 0.5f;
                    memcpy((char *)scales + slot / q->c.page_tokens * q->at[layer].scale_page_stride +
                               ((slot % q->c.page_tokens) * q->c.heads + head) * sizeof(float),
                           &scale, sizeof scale);
                }
}

static void same_row(const quantised *a, uint64_t a_slot, const quantised *b, uint64_t b_slot, uint32_t layer) {
    for (int side = 0; side < 2; ++side)
        for (uint32_t head = 0; head < a->c.heads; ++head) {
            assert_memory_equal(stored_at(a, side, layer, a_slot, head), stored_at(b, side, layer, b_slot, head),
                                a->c.dim[side]);
            assert_true(scale_at(a, side, layer, a_slot, head) == scale_at(b, side, layer, b_slot, head));
        }
}

static void case_I08_scales_of_token_and_head_go_where_rows_go(void **state) {
    (void)state;
    test_random random = {8};
    for (int layout = PKV_LAYOUT_NHD; layout <= PKV_LAYOUT_HND; ++layout)
        for (size_t g = 0; g < num_grids; ++g) {
            enum { tokens_of_page = 5, row_heads = 3 };
            const quantised_config config = {.stored = PKV_DTYPE_I8,
                                             .scales = PKV_SCALES_TOKEN_HEAD,
                                             .layout = layout,
                                             .heads = row_heads,
                                             .dim = {16, 16},
                                             .page_tokens = tokens_of_page,
                                             .layers = 2,
                                             .pages = 4};
            quantised_config other_config = config;
            other_config.layout = 1 - layout;
            other_config.arrangement = PKV_LAYER_MAJOR;
            quantised from = make_quantised(&config), to = make_quantised(&other_config);
            fill_memory_of(&from, &random);
            fill_memory_of(&to, &random);
            quantised before = make_quantised(&other_config); /* what `to` holds now */
            pkv_device_layer src[2], dst[2], old[2];
            device_layers(from.pool, 2, 4, src);
            device_layers(to.pool, 2, 4, dst);
            device_layers(before.pool, 2, 4, old);
            const int32_t all[4] = {0, 1, 2, 3};
            const uint32_t whole[4] = {5, 5, 5, 5};
            assert_emulated(emulated_copy_between(dst, old, 2, 4, all, all, whole, emulated_grids[g]), PKV_OK);
            for (uint64_t slot = 0; slot < 4 * tokens_of_page; ++slot)
                for (uint32_t layer = 0; layer < 2; ++layer) same_row(&to, slot, &before, slot, layer);

            assert_emulated(
                emulated_copy_between(src, dst, 2, 1, &(int32_t){2}, &(int32_t){1}, &(uint32_t){3}, emulated_grids[g]),
                PKV_OK);
            for (uint64_t token = 0; token < tokens_of_page; ++token)
                for (uint32_t layer = 0; layer < 2; ++layer)
                    same_row(&to, tokens_of_page + token, token < 3 ? &from : &before,
                             (token < 3 ? 2 : 1) * tokens_of_page + token, layer);

            /* A slice whose scales stand apart: k and then v, [page_tokens, heads]. */
            unsigned char bytes[2 * tokens_of_page * row_heads * 16];
            float scales[2 * tokens_of_page * row_heads];
            memset(bytes, 1, sizeof bytes);
            for (int i = 0; i < 2 * tokens_of_page * row_heads; ++i) scales[i] = -1;
            pkv_device_slice slice = {1, 3, PKV_LAYOUT_NHD, 4, bytes, scales};
            assert_emulated(emulated_pack(src, 2, &slice, 1, emulated_grids[g]), PKV_OK);
            for (int side = 0; side < 2; ++side)
                for (uint64_t token = 0; token < tokens_of_page; ++token)
                    for (uint32_t head = 0; head < row_heads; ++head)
                        assert_true(scales[(side * tokens_of_page + (int)token) * row_heads + (int)head] ==
                                    (token < 4 ? scale_at(&from, side, 1, 3 * tokens_of_page + token, head) : 0));
            slice.page = 0;
            slice.layer = 0;
            slice.tokens = 2;
            assert_emulated(emulated_unpack(dst, 2, &slice, 1, emulated_grids[g]), PKV_OK);
            for (uint64_t token = 0; token < tokens_of_page; ++token)
                for (int side = 0; side < 2; ++side)
                    for (uint32_t head = 0; head < row_heads; ++head) {
                        const quantised *q = token < 2 ? &from : &before;
                        const uint64_t slot = (token < 2 ? 3 * tokens_of_page : 0) + token;
                        const uint32_t layer = token < 2 ? 1 : 0;
                        assert_memory_equal(stored_at(&to, side, 0, token, head), stored_at(q, side, layer, slot, head),
                                            16);
                        assert_true(scale_at(&to, side, 0, token, head) == scale_at(q, side, layer, slot, head));
                    }
            end_quantised(&from);
            end_quantised(&to);
            end_quantised(&before);
        }
    assert_int_equal(emulated_misaligned(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_right_in_every_geometry),
        cmocka_unit_test(whole_pages_of_a_dense_pool_are_few_runs),
        cmocka_unit_test(case_I08_scales_of_token_and_head_go_where_rows_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
