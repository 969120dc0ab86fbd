/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of page images, as a tier of the caller's own sees them: where everything lies, sums computed a second time, and
 * images of which any byte is another, which no pool takes. */
#include "layout/image.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Offsets in the header. Everything is in the byte order of the machine. */
enum {
    at_magic = 0,
    at_version = 8,
    at_byte_order = 12,
    at_checksum = 16, /* XXH3-64 of the header with 0 here */
    at_image_bytes = 24,
    at_header_bytes = 32,
    at_slice_stride = 40,
    at_slice_bytes = 48,
    at_scale_bytes = 56,
    at_block = 64,
    at_num_slices = 72,
    at_aux_bytes = 76,
    at_layout = 80,
    at_num_tokens = 84,
    at_shape = 88,
    at_key = 120,
    at_sums = 152
};

/* ---- a tier that keeps what it is given, and gives back what a test says ---- */

enum { keeper_images = 64 };

typedef struct {
    pkv_tier *tier;
    pkv_tier_key keys[keeper_images];
    unsigned char *images[keeper_images];
    uint64_t bytes[keeper_images], tags[keeper_images];
    uint64_t count;
    bool misaligned;
    uint64_t removed;
    /* Loads: */
    unsigned char flip[keeper_images]; /* XORed to byte flip_at of this image; 0: none */
    uint64_t flip_at[keeper_images];
    uint64_t shorter; /* bytes that are not given */
} keeper;

static uint64_t find_kept(const keeper *k, const pkv_tier_key *key) {
    uint64_t i = 0;
    while (i < k->count && memcmp(&k->keys[i], key, sizeof *key) != 0) ++i;
    return i;
}

static pkv_status keeper_item(keeper *k, const pkv_tier_batch *batch, uint64_t item, uint64_t *value) {
    if (batch->kind == PKV_TIER_CLEAR) return PKV_OK;
    const uint64_t at = find_kept(k, &batch->keys[item]);
    if (batch->kind == PKV_TIER_STORE) {
        if (at < k->count) return PKV_OK;
        if (at == keeper_images) return PKV_ERR_NO_SPACE;
        const uint64_t bytes = batch->sizes[item];
        if ((uintptr_t)batch->data[item] % PKV_IMAGE_ALIGNMENT != 0 || bytes % PKV_IMAGE_ALIGNMENT != 0 || bytes == 0)
            k->misaligned = true;
        k->keys[at] = batch->keys[item];
        k->images[at] = malloc(bytes);
        memcpy(k->images[at], batch->data[item], bytes);
        k->bytes[at] = bytes;
        k->tags[at] = batch->tags[item];
        ++k->count;
        return PKV_OK;
    }
    if (batch->kind == PKV_TIER_REMOVE) {
        ++k->removed; /* but it stays, for the next test */
        return PKV_OK;
    }
    if (at == k->count) return PKV_ERR_NOT_FOUND;
    if (batch->kind != PKV_TIER_LOAD) {
        *value = k->bytes[at];
        return PKV_OK;
    }
    const uint64_t offset = batch->offsets[item], bytes = batch->sizes[item];
    if ((uintptr_t)batch->data[item] % PKV_IMAGE_ALIGNMENT != 0 || (offset | bytes) % PKV_IMAGE_ALIGNMENT != 0)
        k->misaligned = true;
    if (offset != 0 || bytes != k->bytes[at]) return PKV_ERR_INVALID;
    memcpy(batch->data[item], k->images[at], bytes - k->shorter);
    if (k->flip[at] != 0) ((unsigned char *)batch->data[item])[k->flip_at[at]] ^= k->flip[at];
    *value = bytes - k->shorter;
    return PKV_OK;
}

/* Everything is done at once. */
static pkv_status keeper_submit(void *context, const pkv_tier_batch *batch) {
    pkv_tier_request *const request = batch->request;
    for (uint64_t i = 0, items = batch->num_items; i < items; ++i) {
        uint64_t value = 0;
        const pkv_status status = keeper_item(context, batch, i, &value);
        pkv_tier_complete(request, i, status, value);
    }
    return PKV_OK;
}

static keeper *begin_keeper(void) {
    keeper *k = calloc(1, sizeof *k);
    pkv_tier_ops ops = {0};
    ops.struct_size = sizeof ops;
    ops.name = "keeper";
    ops.submit = keeper_submit;
    assert_ok(pkv_tier_open(&ops, k, &k->tier));
    return k;
}

static void end_keeper(keeper *k) {
    assert_false(k->misaligned);
    assert_ok(pkv_tier_close(k->tier));
    for (uint64_t i = 0; i < k->count; ++i) free(k->images[i]);
    free(k);
}

static uint64_t checksum_failures(const keeper *k) {
    pkv_tier_stats stats = PKV_TIER_STATS_INIT;
    assert_ok(pkv_tier_get_stats(k->tier, &stats));
    return stats.checksum_failures;
}

/* ---- fields ---- */

static uint64_t u64(const unsigned char *image, uint64_t at) {
    uint64_t value;
    memcpy(&value, image + at, 8);
    return value;
}

static uint32_t u32(const unsigned char *image, uint64_t at) {
    uint32_t value;
    memcpy(&value, image + at, 4);
    return value;
}

static uint64_t header_sum(const unsigned char *image) {
    const uint64_t bytes = u64(image, at_header_bytes);
    unsigned char *copy = malloc(bytes);
    memcpy(copy, image, bytes);
    memset(copy + at_checksum, 0, 8);
    const uint64_t sum = XXH3_64bits(copy, bytes);
    free(copy);
    return sum;
}

/* The header's own sum is right again. */
static void seal(unsigned char *image) {
    const uint64_t sum = header_sum(image);
    memcpy(image + at_checksum, &sum, 8);
}

static void seal_slice(unsigned char *image, uint32_t layer) {
    const uint64_t stride = u64(image, at_slice_stride);
    const uint64_t sum = XXH3_64bits(image + u64(image, at_header_bytes) + layer * stride, stride);
    memcpy(image + at_sums + 8 * layer, &sum, 8);
    seal(image);
}

static uint64_t whole_blocks(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

/* Every byte of an image, from what the pool was filled with. */
static void check_image(const shape *s, const unsigned char *image, uint64_t bytes, uint32_t number) {
    const uint64_t k_row = shape_row_bytes(s, 0), v_row = shape_row_bytes(s, 1);
    const uint64_t rows = (uint64_t)s->page_tokens * s->heads, slice = rows * (k_row + v_row);
    const uint64_t scales = s->scales == PKV_SCALES_TOKEN_HEAD ? rows * 4 * s->layers * (s->v_row != 0 ? 2 : 1) : 0;
    const uint64_t scales_at = at_sums + 8 * s->layers, aux_at = scales_at + scales, tokens_at = aux_at + s->aux_bytes;
    const uint64_t end = tokens_at + 4 * (uint64_t)s->page_tokens, header = whole_blocks(end);
    assert_memory_equal(image, "PKVPAG\r\n", 8);
    assert_int_equal(u32(image, at_version), 1);
    assert_int_equal(u32(image, at_byte_order), 0x01020304);
    assert_int_equal(u64(image, at_image_bytes), bytes);
    assert_int_equal(u64(image, at_header_bytes), header);
    assert_int_equal(u64(image, at_slice_stride), whole_blocks(slice));
    assert_int_equal(u64(image, at_slice_bytes), slice);
    assert_int_equal(u64(image, at_scale_bytes), scales);
    assert_int_equal(u32(image, at_num_slices), s->layers);
    assert_int_equal(u32(image, at_aux_bytes), s->aux_bytes);
    assert_int_equal(u32(image, at_layout), s->layout);
    const pkv_tier_key key = image_name(number);
    assert_memory_equal(image + at_key, &key, sizeof key);
    assert_int_equal(bytes, header + s->layers * whole_blocks(slice));
    assert_true(u64(image, at_checksum) == header_sum(image));
    for (uint64_t i = end; i < header; ++i) assert_int_equal(image[i], 0);
    const unsigned char *scale = image + scales_at;
    for (uint32_t layer = 0; layer < s->layers; ++layer) {
        const unsigned char *row = image + header + layer * whole_blocks(slice);
        assert_true(u64(image, at_sums + 8 * layer) == XXH3_64bits(row, whole_blocks(slice)));
        for (uint64_t i = slice; i < whole_blocks(slice); ++i) assert_int_equal(row[i], 0);
        for (int side = 0; side < (s->v_row != 0 ? 2 : 1); ++side)
            for (uint64_t i = 0; i < rows; ++i) {
                const bool tokens_first = s->layout == PKV_LAYOUT_NHD;
                const uint32_t token = (uint32_t)(tokens_first ? i / s->heads : i % s->page_tokens);
                const uint32_t head = (uint32_t)(tokens_first ? i % s->heads : i / s->page_tokens);
                const uint64_t row_bytes = side == 0 ? k_row : v_row;
                assert_true(
                    each_byte((unsigned char *)row, row_bytes, stream_of(number, layer, side, token, head), false));
                row += row_bytes;
                if (scales == 0) continue;
                /* Of token and head, in this order in every layout. */
                test_random random = stream_of(number, layer, side, (uint32_t)(i / s->heads), (uint32_t)(i % s->heads));
                random.state ^= 0xABCDEF;
                const float value = (float)(next_random(&random) % 100000) / 64.0f + 1.0f;
                assert_memory_equal(scale, &value, 4);
                scale += 4;
            }
    }
    assert_true(each_byte((unsigned char *)image + aux_at, s->aux_bytes, stream_of(number, 7, 3, 1, 1), false));
}

static const shape looked_at[] = {
    {.dtype = PKV_DTYPE_F16, .k_row = 4, .v_row = 4, .heads = 2, .page_tokens = 4, .layers = 2},
    {.dtype = PKV_DTYPE_F16, .k_row = 128, .v_row = 128, .heads = 2, .page_tokens = 8, .layers = 3},
    {.dtype = PKV_DTYPE_BF16, .k_row = 576, .heads = 1, .page_tokens = 16, .layers = 2},
    {.dtype = PKV_DTYPE_OPAQUE, .k_row = 37, .v_row = 11, .heads = 3, .page_tokens = 65, .layers = 2},
    {.dtype = PKV_DTYPE_OPAQUE, .k_row = 1, .heads = 1, .page_tokens = 1, .layers = 1},
    {.dtype = PKV_DTYPE_I8,
     .k_row = 8,
     .v_row = 24,
     .heads = 3,
     .page_tokens = 5,
     .layers = 2,
     .scales = PKV_SCALES_TOKEN_HEAD},
    {.dtype = PKV_DTYPE_I8,
     .k_row = 64,
     .heads = 8,
     .page_tokens = 300,
     .layers = 2,
     .scales = PKV_SCALES_TOKEN_HEAD,
     .aux_bytes = 77},
    {.dtype = PKV_DTYPE_F8_E4M3,
     .k_row = 8,
     .v_row = 8,
     .heads = 3,
     .page_tokens = 5,
     .layers = 2,
     .scales = PKV_SCALES_HEAD,
     .aux_bytes = 9000},
};

static void every_byte_of_an_image_is_where_it_belongs(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof looked_at / sizeof *looked_at; ++i)
        for (int32_t layout = PKV_LAYOUT_NHD; layout <= PKV_LAYOUT_HND; ++layout) {
            keeper *k = begin_keeper();
            shape s = looked_at[i];
            s.layout = layout;
            shaped p = make_shaped(&s, k->tier);
            for (uint32_t number = 0; number < 3; ++number) {
                fill_image(&p, number, number);
                assert_ok(store_image(&p, number, number));
                check_image(&s, k->images[number], k->bytes[number], number);
            }
            for (uint32_t number = 0; number < 3; ++number) {
                assert_ok(load_image(&p, 4, number));
                assert_true(is_image(&p, 4, number));
            }
            end_shaped(&p);
            end_keeper(k);
        }
}

static void an_image_of_a_prompts_block_names_its_tokens(void **state) {
    (void)state;
    keeper *k = begin_keeper();
    pkv_group_options group = small_group(8);
    pkv_tier_attachment at = PKV_TIER_ATTACHMENT_INIT;
    at.tier = k->tier;
    at.policy = PKV_TIER_WRITE_THROUGH;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = 4;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = &at;
    options.num_tiers = 1;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    pkv_token tokens[12];
    count_up(tokens, 12, 1000);
    const pkv_prompt prompt = prompt_of(tokens, 12);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 12, 7);
    end_table(table);
    assert_ok(pkv_pool_flush(pool, UINT64_C(10000000000)));
    pkv_tier_key keys[3];
    uint64_t count = 0;
    assert_ok(pkv_pool_image_keys(pool, 0, &prompt, keys, 3, &count));
    assert_int_equal(k->count, 3);
    for (uint64_t block = 0; block < 3; ++block) {
        const uint64_t i = find_kept(k, &keys[block]);
        assert_in_range(i, 0, 2);
        const unsigned char *image = k->images[i];
        assert_memory_equal(image + at_key, &keys[block], sizeof keys[block]);
        assert_int_equal(u64(image, at_block), block);
        assert_int_equal(u32(image, at_num_tokens), 4);
        assert_memory_equal(image + at_sums + 8 * 2, &tokens[4 * block], 4 * sizeof(pkv_token));
        assert_true(k->tags[i] != PKV_TIER_TAG_PRIVATE && k->tags[i] == k->tags[0]);
    }
    assert_memory_equal(k->images[0] + at_shape, k->images[1] + at_shape, 32);
    end_pool(pool);
    end_keeper(k);
}

/* ---- images that no pool may take ---- */

enum { small_bytes = 12288, small_header = 4096 };
static const shape small_shape = {
    .dtype = PKV_DTYPE_F16, .k_row = 4, .v_row = 4, .heads = 2, .page_tokens = 4, .layers = 2};

typedef struct {
    keeper *k;
    shaped p;
    unsigned char good[small_bytes];
} fixture;

static fixture begin(void) {
    fixture x;
    x.k = begin_keeper();
    x.p = make_shaped(&small_shape, x.k->tier);
    fill_image(&x.p, 0, 0);
    assert_ok(store_image(&x.p, 0, 0));
    assert_int_equal(x.k->bytes[0], small_bytes);
    memcpy(x.good, x.k->images[0], small_bytes);
    return x;
}

static void end(fixture *x) {
    end_shaped(&x->p);
    end_keeper(x->k);
}

/* What the tier has now is refused, and what it had before is taken: no eight failures in a row, after which it would rest. */
static void assert_refused(fixture *x, const char *what, uint64_t where) {
    unsigned char *image = x->k->images[0];
    const uint64_t failures = checksum_failures(x->k), removed = x->k->removed;
    const pkv_status status = load_image(&x->p, 1, 0);
    if (status != PKV_ERR_IO) fail_msg("%s, %llu: %d", what, (unsigned long long)where, status);
    assert_int_equal(checksum_failures(x->k), failures + (x->k->shorter == 0));
    assert_int_equal(x->k->removed, removed + 1);
    memcpy(image, x->good, small_bytes);
    x->k->shorter = 0;
    assert_ok(load_image(&x->p, 1, 0));
    assert_true(is_image(&x->p, 1, 0));
}

/* All bytes, 54 of them in one load: of every seven images six are damaged, each in one byte. */
static void no_byte_of_an_image_may_be_another(void **state) {
    (void)state;
    enum { items = 63 };
    keeper *k = begin_keeper();
    shaped p = make_shaped(&small_shape, k->tier);
    pkv_group_options group = small_group(items);
    pkv_tier_attachment at = PKV_TIER_ATTACHMENT_INIT;
    at.tier = k->tier;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = 4;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = &at;
    options.num_tiers = 1;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    pkv_page pages[items];
    pkv_tier_key keys[items];
    assert_ok(pkv_pool_alloc(pool, 0, items, pages));
    for (uint32_t i = 0; i < items; ++i) {
        keys[i] = image_name(i);
        fill_image(&p, 0, i);
        assert_ok(store_image(&p, 0, i));
    }
    uint64_t damaged = 0;
    for (uint64_t byte = 0; byte < small_bytes;) {
        uint64_t which[items];
        for (uint32_t i = 0; i < items; ++i) {
            const bool good = i % 7 == 6 || byte == small_bytes;
            k->flip[i] = good ? 0 : (unsigned char)(1 << (byte + i) % 8);
            k->flip_at[i] = which[i] = byte;
            if (!good) ++byte;
        }
        pkv_op *op = NULL;
        pkv_status statuses[items];
        assert_ok(pkv_pool_load(pool, 0, items, keys, pages, NULL, NULL, &op));
        (void)wait_op(op, statuses, items);
        for (uint32_t i = 0; i < items; ++i) {
            if (k->flip[i] != 0 && statuses[i] != PKV_ERR_IO)
                fail_msg("byte %llu may be another: %d", (unsigned long long)which[i], statuses[i]);
            if (k->flip[i] == 0) assert_int_equal(statuses[i], PKV_OK);
            damaged += k->flip[i] != 0;
        }
    }
    assert_int_equal(damaged, small_bytes);
    assert_int_equal(checksum_failures(k), small_bytes);
    memset(k->flip, 0, sizeof k->flip);
    for (uint32_t i = 0; i < items; ++i) {
        assert_ok(load_image(&p, 1, i));
        assert_true(is_image(&p, 1, i));
    }
    release_pages(pool, pages, items);
    end_pool(pool);
    end_shaped(&p);
    end_keeper(k);
}

static void no_bit_of_a_header_may_be_another(void **state) {
    (void)state;
    fixture x = begin();
    for (uint64_t bit = 0; bit < 8 * (at_sums + 2 * 8 + 4 * 4); ++bit) {
        x.k->images[0][bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_refused(&x, "bit", bit);
    }
    end(&x);
}

static void a_part_of_an_image_is_none(void **state) {
    (void)state;
    fixture x = begin();
    const uint64_t lengths[] = {0, 1, 8, 151, 152, 4095, 4096, 4097, 8191, 8192, 12287};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i) {
        x.k->shorter = small_bytes - lengths[i];
        assert_refused(&x, "length", lengths[i]);
        /* The whole of it is promised, but the end is zeros, or something else. */
        memset(x.k->images[0] + lengths[i], 0, small_bytes - lengths[i]);
        if (memcmp(x.k->images[0], x.good, small_bytes) != 0) assert_refused(&x, "zeros from", lengths[i]);
        memset(x.k->images[0] + lengths[i], 0xFF, small_bytes - lengths[i]);
        assert_refused(&x, "ones from", lengths[i]);
    }
    end(&x);
}

/* Headers with right sums that are not those of this image. */
static void a_header_that_contradicts_its_pool_is_refused(void **state) {
    (void)state;
    fixture x = begin();
    const uint64_t longs[] = {at_image_bytes, at_header_bytes, at_slice_stride, at_slice_bytes, at_scale_bytes};
    const uint64_t values[] = {0, 1, 4096, 8192, UINT64_MAX, UINT64_MAX - 4095, UINT64_C(1) << 63, UINT64_C(1) << 32};
    unsigned char *image = x.k->images[0];
    for (size_t i = 0; i < sizeof longs / sizeof *longs; ++i)
        for (size_t j = 0; j < sizeof values / sizeof *values; ++j) {
            const uint64_t header_bytes = u64(image, at_header_bytes);
            if (values[j] == u64(image, longs[i])) continue;
            memcpy(image + longs[i], &values[j], 8);
            /* Sealed over the header as it is, not as long as it says. */
            memset(image + at_checksum, 0, 8);
            const uint64_t sum = XXH3_64bits(image, header_bytes);
            memcpy(image + at_checksum, &sum, 8);
            assert_refused(&x, "field", longs[i]);
        }
    const uint64_t ints[] = {at_version, at_byte_order, at_num_slices, at_aux_bytes, at_layout, at_num_tokens};
    const uint32_t numbers[] = {3, 5, 0x04030201, UINT32_MAX, UINT32_C(1) << 31};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; ++i)
        for (size_t j = 0; j < sizeof numbers / sizeof *numbers; ++j) {
            memcpy(image + ints[i], &numbers[j], 4);
            seal(image);
            assert_refused(&x, "field", ints[i]);
        }
    for (uint64_t at = at_shape; at < at_sums; ++at) {
        image[at] ^= 1;
        seal(image);
        assert_refused(&x, "shape or key", at);
    }
    memcpy(image, "PKVPAG\n\n", 8); /* as text that was converted */
    seal(image);
    assert_refused(&x, "magic", 0);
    end(&x);
}

static void slices_in_each_others_place_are_refused(void **state) {
    (void)state;
    fixture x = begin();
    unsigned char *image = x.k->images[0];
    memcpy(image + small_header, x.good + small_header + 4096, 4096);
    memcpy(image + small_header + 4096, x.good + small_header, 4096);
    assert_refused(&x, "slices", 0);
    memcpy(image + at_sums, x.good + at_sums + 8, 8);
    memcpy(image + at_sums + 8, x.good + at_sums, 8);
    seal(image);
    assert_refused(&x, "sums", 0);
    end(&x);
}

static void another_images_bytes_are_refused(void **state) {
    (void)state;
    fixture x = begin();
    fill_image(&x.p, 2, 1);
    assert_ok(store_image(&x.p, 2, 1));
    memcpy(x.k->images[0], x.k->images[1], small_bytes);
    assert_refused(&x, "all of another", 0);
    memcpy(x.k->images[0] + small_header, x.k->images[1] + small_header, small_bytes - small_header);
    assert_refused(&x, "slices of another", 0);
    memcpy(x.k->images[0], x.k->images[1], small_header);
    assert_refused(&x, "header of another", 0);
    end(&x);
}

/* Whoever computes all sums can make an image: they are sums, no signatures. Shows that the tests above damage one thing. */
static void an_image_with_right_sums_is_taken(void **state) {
    (void)state;
    fixture x = begin();
    unsigned char *image = x.k->images[0];
    image[small_header + 4096 + 100] ^= 0xFF;
    seal_slice(image, 1);
    assert_ok(load_image(&x.p, 1, 0));
    assert_false(is_image(&x.p, 1, 0));
    image[small_header + 4096 + 100] ^= 0xFF;
    seal_slice(image, 1);
    assert_memory_equal(image, x.good, small_bytes);
    assert_ok(load_image(&x.p, 1, 0));
    assert_true(is_image(&x.p, 1, 0));
    end(&x);
}

int main(int argc, char **argv) {
    (void)argc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_of_an_image_is_where_it_belongs),
        cmocka_unit_test(an_image_of_a_prompts_block_names_its_tokens),
        cmocka_unit_test(no_byte_of_an_image_may_be_another),
        cmocka_unit_test(no_bit_of_a_header_may_be_another),
        cmocka_unit_test(a_part_of_an_image_is_none),
        cmocka_unit_test(a_header_that_contradicts_its_pool_is_refused),
        cmocka_unit_test(slices_in_each_others_place_are_refused),
        cmocka_unit_test(another_images_bytes_are_refused),
        cmocka_unit_test(an_image_with_right_sums_is_taken),
    };
    return run_with_every_kernels(argv[0], tests, sizeof tests / sizeof *tests);
}
