/* SPDX-License-Identifier: Apache-2.0 */
/* Rows with scales of their own on the move: copied on write, copied by page, accepted, matched in part, exported and
 * imported. And rows that do not convert. Field cases E11 and I08. */
#include "tensor/convert.h"

#include <math.h>

enum { heads = 2, dim = 8, page_tokens = 4, row_elements = heads * dim, most_tokens = 64 };

static quantised_config config_of(int32_t stored, int32_t scales) {
    static const float fixed[4] = {0.5f, 7.5f, 2.0f, 3.0f};
    const bool has_fixed = scales == PKV_SCALES_TENSOR || scales == PKV_SCALES_HEAD;
    const quantised_config config = {.stored = stored,
                                     .scales = scales,
                                     .heads = heads,
                                     .dim = {dim, dim},
                                     .page_tokens = page_tokens,
                                     .layers = 2,
                                     .pages = 24,
                                     .fixed = {has_fixed ? fixed : NULL, has_fixed ? fixed : NULL}};
    return config;
}

/* A pool whose pages nobody holds, poisoned. */
static pkv_pool *make_free(const quantised_config *config) {
    const pkv_group_options group = quantised_group(config);
    return make_pool_of(&group, config->page_tokens, PKV_DEBUG_POISON);
}

static pkv_tensor floats(float *data, uint64_t tokens) {
    pkv_tensor tensor = PKV_TENSOR_INIT;
    tensor.data = data;
    tensor.dtype = PKV_DTYPE_F32;
    tensor.num_tokens = tokens;
    return tensor;
}

/* A value of each row, side and layer, of another size in each row. */
static void fill_values(float *data, uint64_t tokens, uint64_t first, int side, uint32_t layer) {
    for (uint64_t i = 0; i < tokens * row_elements; ++i) {
        const uint64_t token = first + i / row_elements;
        data[i] = (float)((int64_t)((token * 31 + i * 7 + (uint64_t)side * 3 + layer * 5) % 23) - 11) *
                  (float)pow(3, (double)((token * 5 + i / dim + layer) % 9));
    }
}

static void write_values(pkv_table *table, uint64_t position, uint64_t tokens, uint64_t first) {
    static float data[2][most_tokens * row_elements];
    for (uint32_t layer = 0; layer < 2; ++layer) {
        for (int side = 0; side < 2; ++side) fill_values(data[side], tokens, first, side, layer);
        const pkv_tensor k = floats(data[0], tokens), v = floats(data[1], tokens);
        assert_ok(pkv_table_write(table, 0, layer, position, tokens, &k, &v, NULL));
    }
}

typedef struct {
    float rows[2][2][most_tokens * row_elements]; /* [layer][K, V] */
} values;

static values *read_values(pkv_table *table, uint64_t tokens) {
    values *out = calloc(1, sizeof *out);
    for (uint32_t layer = 0; layer < 2; ++layer) {
        const pkv_tensor k = floats(out->rows[layer][0], tokens), v = floats(out->rows[layer][1], tokens);
        assert_ok(pkv_table_gather(table, 0, layer, 0, tokens, &k, &v, NULL));
    }
    return out;
}

/* Row `at` of one is row `origin` of the other, bit by bit. */
static void same_row(const values *one, uint64_t at, const values *other, uint64_t origin) {
    for (int layer = 0; layer < 2; ++layer)
        for (int side = 0; side < 2; ++side)
            for (uint64_t i = 0; i < row_elements; ++i) {
                const float a = one->rows[layer][side][at * row_elements + i],
                            b = other->rows[layer][side][origin * row_elements + i];
                assert_true(a == a); /* poison would be NaN */
                assert_int_equal(reference_bits(a), reference_bits(b));
            }
}

static pkv_token ids[most_tokens];

static pkv_table *make_sequence(pkv_pool *pool, uint64_t tokens) {
    count_up(ids, most_tokens, 1);
    const pkv_prompt prompt = prompt_of(ids, tokens);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_values(table, 0, tokens, 0);
    assert_ok(pkv_table_commit(table, tokens, NULL));
    return table;
}

/* What each test is done with: a scale for each row in every type, and the other kinds in one. */
static const struct {
    int32_t stored, scales;
} kinds[] = {{PKV_DTYPE_F8_E4M3, PKV_SCALES_TOKEN_HEAD}, {PKV_DTYPE_F8_E5M2, PKV_SCALES_TOKEN_HEAD},
             {PKV_DTYPE_I8, PKV_SCALES_TOKEN_HEAD},      {PKV_DTYPE_I8, PKV_SCALES_HEAD},
             {PKV_DTYPE_F8_E4M3, PKV_SCALES_TENSOR},     {PKV_DTYPE_F8_E5M2, PKV_SCALES_NONE}};

#define EACH_KIND(pool)                                                                                                \
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; ++kind)                                                 \
        for (quantised_config config = config_of(kinds[kind].stored, kinds[kind].scales), *once = &config;             \
             once != NULL; once = NULL)                                                                                \
            for (pkv_pool *pool = make_free(&config); pool != NULL; end_pool(pool), pool = NULL)

static void a_copy_on_write_takes_the_scales_along(void **state) {
    (void)state;
    EACH_KIND(pool) {
        pkv_table *table = make_sequence(pool, 7);
        values *before = read_values(table, 7);
        pkv_table *fork = fork_of(table);
        assert_ok(pkv_table_reserve(fork, 8));
        assert_true(page_at(fork, 1) != page_at(table, 1));
        write_values(fork, 7, 1, 33);
        assert_ok(pkv_table_commit(fork, 8, NULL));
        values *source = read_values(table, 7), *copy = read_values(fork, 8);
        for (uint64_t i = 0; i < 7; ++i) same_row(source, i, before, i);
        for (uint64_t i = 0; i < 7; ++i) same_row(copy, i, before, i);
        free(before);
        free(source);
        free(copy);
        end_table(fork);
        end_table(table);
    }
}

static void copied_pages_take_their_scales_along(void **state) {
    (void)state;
    EACH_KIND(pool) {
        pkv_table *table = make_sequence(pool, 8);
        const pkv_page src[2] = {page_at(table, 1), page_at(table, 0)};
        pkv_page dst[2];
        assert_ok(pkv_pool_alloc(pool, 0, 2, dst));
        assert_ok(pkv_pool_copy_pages(pool, 0, 2, src, dst, NULL));
        values *original = read_values(table, 8), *copy = calloc(1, sizeof *copy);
        for (uint32_t layer = 0; layer < 2; ++layer) {
            const pkv_tensor k = floats(copy->rows[layer][0], 8), v = floats(copy->rows[layer][1], 8);
            assert_ok(pkv_pool_gather(pool, 0, layer, 2, dst, 0, 8, &k, &v, NULL));
        }
        for (uint64_t i = 0; i < 8; ++i) same_row(copy, i, original, (i + 4) % 8);
        free(original);
        free(copy);
        release_pages(pool, dst, 2);
        end_table(table);
    }
}

static void accepted_drafts_take_their_scales_along(void **state) {
    (void)state;
    EACH_KIND(pool) {
        pkv_table *table = make_sequence(pool, 6);
        assert_ok(pkv_table_reserve(table, 16));
        write_values(table, 6, 10, 6);
        values *drafts = read_values(table, 16);
        const uint64_t positions[4] = {6, 9, 11, 14};
        assert_ok(pkv_table_accept(table, 4, positions, NULL));
        values *kept = read_values(table, 10);
        for (uint64_t i = 0; i < 6; ++i) same_row(kept, i, drafts, i);
        for (uint64_t i = 0; i < 4; ++i) same_row(kept, 6 + i, drafts, positions[i]);
        free(drafts);
        free(kept);
        end_table(table);
    }
}

static void a_match_inside_a_block_takes_its_scales_along(void **state) {
    (void)state;
    EACH_KIND(pool) {
        pkv_table *table = make_sequence(pool, 8);
        values *original = read_values(table, 8);
        end_table(table);
        const pkv_prompt prompt = prompt_of(ids, 7);
        const pkv_admit_options options = {
            .struct_size = sizeof options, .max_match = PKV_MATCH_ALL, .flags = PKV_ADMIT_PARTIAL};
        pkv_match match = PKV_MATCH_INIT;
        assert_ok(pkv_table_create(pool, &table));
        assert_ok(pkv_table_admit(table, &prompt, &options, &match));
        assert_int_equal(match.tokens, 7);
        values *copy = read_values(table, 7);
        for (uint64_t i = 0; i < 7; ++i) same_row(copy, i, original, i);
        free(original);
        free(copy);
        end_table(table);
    }
}

static void case_I08_an_exported_sequence_comes_back_with_its_scales(void **state) {
    (void)state;
    EACH_KIND(pool) {
        pkv_table *table = make_sequence(pool, 23);
        values *original = read_values(table, 23);
        uint64_t size = 0, written = 0;
        assert_ok(pkv_table_export(table, NULL, 0, &size));
        unsigned char *buffer = malloc(size);
        assert_ok(pkv_table_export(table, buffer, size, &written));
        assert_int_equal(written, size);
        end_table(table);
        for (int place = 0; place < 4; ++place) { /* another order of everything that may differ */
            quantised_config other = config;
            other.page_tokens = place == 3 ? 5 : place == 2 ? 1 : 16;
            other.layout = place % 2;
            other.arrangement = place == 1 ? PKV_LAYER_MAJOR : PKV_PAGE_MAJOR;
            pkv_pool *target = make_free(&other);
            pkv_table *copy;
            assert_ok(pkv_table_create(target, &copy));
            assert_ok(pkv_table_import(copy, buffer, size));
            assert_int_equal(info_of(copy).committed, 23);
            values *back = read_values(copy, 23);
            for (uint64_t i = 0; i < 23; ++i) same_row(back, i, original, i);
            free(back);
            end_table(copy);
            end_pool(target);
        }
        /* Scales are part of the geometry. */
        for (int way = 0; way < 2; ++way) {
            const float others[4] = {0.5f, 7.5f, 2.0f, 3.5f};
            quantised_config other = config;
            if (way == 0)
                other.scales = config.scales == PKV_SCALES_NONE ? PKV_SCALES_TOKEN_HEAD : PKV_SCALES_NONE,
                other.fixed[0] = other.fixed[1] = NULL;
            if (way == 1 && config.scales != PKV_SCALES_HEAD) continue;
            if (way == 1) other.fixed[1] = others;
            pkv_pool *target = make_free(&other);
            pkv_table *copy;
            assert_ok(pkv_table_create(target, &copy));
            assert_status(pkv_table_import(copy, buffer, size), PKV_ERR_MISMATCH);
            assert_message("scales");
            end_table(copy);
            end_pool(target);
        }
        free(original);
        free(buffer);
    }
}

/* ---- what does not convert ---- */

static void check_refused(const quantised_config *config, int32_t dtype, pkv_status write, pkv_status gather) {
    pkv_group_options group = quantised_group(config);
    if (config->stored == PKV_DTYPE_OPAQUE) {
        group.k_head_dim = group.v_head_dim = 0;
        group.k_row_bytes = group.v_row_bytes = 16;
    }
    pkv_pool *pool = make_pool_of(&group, config->page_tokens, PKV_DEBUG_POISON);
    unsigned char data[2][64 * row_elements];
    memset(data, 0x11, sizeof data);
    pkv_tensor k = PKV_TENSOR_INIT;
    k.data = data[0];
    k.dtype = dtype;
    k.num_tokens = 4;
    pkv_page page;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &page));
    const pkv_slot slots[2] = {(pkv_slot)page * page_tokens, (pkv_slot)page * page_tokens + 1};
    pkv_layer_layout at = PKV_LAYER_LAYOUT_INIT;
    assert_ok(pkv_pool_layout(pool, 0, 0, &at));
    assert_status(pkv_pool_write(pool, 0, 0, 2, slots, &k, &k, NULL), write);
    if (write != PKV_OK)
        for (uint64_t i = 0; i < 16; ++i)
            assert_int_equal(((unsigned char *)at.k_base + (uint64_t)page * at.k.page)[i], 0xFF);
    assert_status(pkv_pool_gather(pool, 0, 0, 1, &page, 0, 2, &k, NULL, NULL), gather);
    if (gather != PKV_OK)
        for (uint64_t i = 0; i < sizeof data[0]; ++i) assert_int_equal(data[0][i], 0x11);
    release_pages(pool, &page, 1);
    const pkv_prompt none = prompt_of(NULL, 0);
    pkv_table *table = admit(pool, &none, NULL);
    assert_ok(pkv_table_reserve(table, 4));
    assert_status(pkv_table_write(table, 0, 0, 0, 4, &k, &k, NULL), write);
    assert_ok(pkv_table_commit(table, 4, NULL));
    assert_status(pkv_table_gather(table, 0, 0, 0, 4, &k, NULL, NULL), gather);
    end_table(table);
    end_pool(pool);
}

static void only_what_is_documented_converts(void **state) {
    (void)state;
    for (int32_t stored = PKV_DTYPE_F32; stored <= PKV_DTYPE_OPAQUE; ++stored)
        for (int32_t dtype = PKV_DTYPE_F32; dtype <= PKV_DTYPE_OPAQUE; ++dtype)
            for (int32_t scales = PKV_SCALES_NONE; scales <= PKV_SCALES_TOKEN_HEAD; scales += PKV_SCALES_TOKEN_HEAD) {
                const bool scaled = stored >= PKV_DTYPE_F8_E4M3 && stored <= PKV_DTYPE_I8;
                if (scales != PKV_SCALES_NONE && !scaled) continue;
                const bool good = stored == dtype || (dtype <= PKV_DTYPE_BF16 && stored != PKV_DTYPE_OPAQUE);
                const bool raw = stored == dtype && scales == PKV_SCALES_TOKEN_HEAD;
                quantised_config config = config_of(stored, scales);
                check_refused(&config, dtype, good && !raw ? PKV_OK : PKV_ERR_UNSUPPORTED,
                              good ? PKV_OK : PKV_ERR_UNSUPPORTED);
            }
}

static void k_and_v_may_come_in_two_types(void **state) {
    (void)state;
    const quantised_config config = config_of(PKV_DTYPE_F8_E4M3, PKV_SCALES_TENSOR);
    quantised q = make_quantised(&config);
    for (int32_t dtype = PKV_DTYPE_F32; dtype <= PKV_DTYPE_F8_E4M3; ++dtype)
        for (int32_t other = PKV_DTYPE_F32; other <= PKV_DTYPE_F8_E4M3; ++other) {
            flat_rows k = make_rows(heads, dim, dtype, 2, 0), v = make_rows(heads, dim, other, 2, 1);
            const pkv_slot slots[2] = {9, 10};
            const uint64_t order[2] = {9, 10};
            const pkv_page page = 2;
            assert_ok(pkv_pool_write(q.pool, 0, 0, 2, slots, &k.tensor, &v.tensor, NULL));
            if (dtype != config.stored) check_stored_row(&q, 0, 0, 10, &k, 1, 1);
            if (other != config.stored) check_stored_row(&q, 1, 0, 10, &v, 1, 1);
            assert_ok(pkv_pool_gather(q.pool, 0, 0, 1, &page, 1, 2, &k.tensor, &v.tensor, NULL));
            check_gathered(&q, 0, 0, order, &k, 0, 2);
            check_gathered(&q, 1, 0, order, &v, 0, 2);
            end_rows(&k);
            end_rows(&v);
        }
    end_quantised(&q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_on_write_takes_the_scales_along),
        cmocka_unit_test(copied_pages_take_their_scales_along),
        cmocka_unit_test(accepted_drafts_take_their_scales_along),
        cmocka_unit_test(a_match_inside_a_block_takes_its_scales_along),
        cmocka_unit_test(case_I08_an_exported_sequence_comes_back_with_its_scales),
        cmocka_unit_test(only_what_is_documented_converts),
        cmocka_unit_test(k_and_v_may_come_in_two_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
