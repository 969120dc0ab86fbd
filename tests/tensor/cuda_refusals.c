/* SPDX-License-Identifier: Apache-2.0 */
/* What the device's functions refuse before anything is launched: with a reason that holds the values, and nothing
 * written. Run on the host: the checks are the plug-in's own. */
#include "tensor/cuda.h"

enum { rows_bytes = 4096 };

static unsigned char pool[rows_bytes], rows[rows_bytes];
static float scales[64];

static pkv_device_layer good_layer(void) {
    return (pkv_device_layer){.k = {pool, 256, 64, 32, 32, scales},
                              .v = {pool + 2048, 256, 64, 32, 32, scales},
                              .page_tokens = 4,
                              .heads = 2,
                              .dtype = PKV_DTYPE_I8,
                              .num_pages = 4};
}

/* The call failed with this status, said `words`, launched nothing and touched nothing. */
static void check_refused(pkv_status got, pkv_status expected, const char *words) {
    check_emulated(got, expected, "the call", __FILE__, __LINE__);
    if (strstr(emulated_why(), words) == NULL) fail_msg("\"%s\" is not in \"%s\"", words, emulated_why());
    assert_int_equal(emulated_launches(), 0);
    for (int i = 0; i < rows_bytes; ++i) {
        assert_int_equal(pool[i], 0x5A);
        assert_int_equal(rows[i], 0x3C);
    }
}

static int set_up(void **state) {
    (void)state;
    memset(pool, 0x5A, sizeof pool);
    memset(rows, 0x3C, sizeof rows);
    return 0;
}

/* One field of a layer that is wrong, through every function that takes layers. */
typedef struct {
    void (*spoil)(pkv_device_layer *layer);
    pkv_status status;
    const char *words;
} spoiled;

static void no_page_tokens(pkv_device_layer *layer) { layer->page_tokens = 0; }
static void no_heads(pkv_device_layer *layer) { layer->heads = 0; }
static void no_k(pkv_device_layer *layer) { layer->k.row_bytes = 0; }
static void no_k_base(pkv_device_layer *layer) { layer->k.base = NULL; }
static void no_v_base(pkv_device_layer *layer) { layer->v.base = NULL; }
static void no_dtype(pkv_device_layer *layer) { layer->dtype = 8; }
static void no_scale_kind(pkv_device_layer *layer) { layer->scales = 4; }
static void scales_of_f16(pkv_device_layer *layer) { layer->dtype = PKV_DTYPE_F16, layer->scales = PKV_SCALES_HEAD; }
static void no_scales(pkv_device_layer *layer) { layer->scales = PKV_SCALES_HEAD, layer->v.scales = NULL; }
static void odd_scales(pkv_device_layer *layer) {
    layer->scales = PKV_SCALES_TENSOR, layer->k.scales = (float *)((char *)scales + 2);
}
static void half_an_element(pkv_device_layer *layer) { layer->dtype = PKV_DTYPE_F16, layer->k.row_bytes = 31; }
static void endless_rows(pkv_device_layer *layer) { layer->k.row_bytes = UINT64_C(1) << 31; }
static void too_many_pages(pkv_device_layer *layer) { layer->num_pages = UINT64_C(1) << 32; }

static const spoiled layers_spoiled[] = {
    {no_page_tokens, PKV_ERR_INVALID, "page_tokens 0"},
    {no_heads, PKV_ERR_INVALID, "heads 0"},
    {no_k, PKV_ERR_INVALID, "row_bytes 0"},
    {no_k_base, PKV_ERR_INVALID, "k has no address"},
    {no_v_base, PKV_ERR_INVALID, "v has no address"},
    {no_dtype, PKV_ERR_INVALID, "dtype 8"},
    {no_scale_kind, PKV_ERR_INVALID, "scales 4"},
    {scales_of_f16, PKV_ERR_INVALID, "dtype 2 has none"},
    {no_scales, PKV_ERR_INVALID, "scales of v"},
    {odd_scales, PKV_ERR_INVALID, "scales of k"},
    {half_an_element, PKV_ERR_INVALID, "31 bytes"},
    {endless_rows, PKV_ERR_LIMIT, "2147483648 bytes"},
    {too_many_pages, PKV_ERR_INVALID, "4294967296 pages"},
};

static void layers_that_contradict_themselves_are_refused(void **state) {
    (void)state;
    const emulated_grid grid = {0, 0, 0};
    const pkv_device_flat given = {rows, 64, 32};
    const int64_t slot = 0;
    const int32_t page = 0, other = 1;
    const uint32_t tokens = 4;
    for (size_t i = 0; i < sizeof layers_spoiled / sizeof *layers_spoiled; ++i) {
        const spoiled *s = &layers_spoiled[i];
        pkv_device_layer layer = good_layer();
        s->spoil(&layer);
        const pkv_device_write write = {sizeof write, 1, layer.dtype, &layer, &given, &given, &slot, 1, 8, 1, 0, 0};
        check_refused(emulated_write(&write, grid), s->status, s->words);
        const pkv_device_gather gather = {.struct_size = sizeof gather,
                                          .num_layers = 1,
                                          .flat_dtype = layer.dtype,
                                          .layers = &layer,
                                          .k = &given,
                                          .v = &given,
                                          .pages = &page,
                                          .num_pages = 1,
                                          .num_sequences = 1,
                                          .max_count = 1,
                                          .arrays_on_host = 1};
        check_refused(emulated_gather(&gather, grid), s->status, s->words);
        check_refused(emulated_copy_pages(&layer, 1, 1, &page, &other, &tokens, grid), s->status, s->words);
        const pkv_device_slice slice = {0, 0, PKV_LAYOUT_NHD, 4, rows, scales};
        check_refused(emulated_pack(&layer, 1, &slice, 1, grid), s->status, s->words);
        check_refused(emulated_unpack(&layer, 1, &slice, 1, grid), s->status, s->words);
    }
}

static void writes_that_cannot_be_are_refused(void **state) {
    (void)state;
    const emulated_grid grid = {0, 0, 0};
    pkv_device_layer layer = good_layer();
    const pkv_device_flat given = {rows, 64, 32};
    const int64_t slot = 0;
    const pkv_device_write good = {sizeof good, 1, PKV_DTYPE_I8, &layer, &given, &given, &slot, 1, 8, 1, 0, 0};
    pkv_device_write write = good;
    write.struct_size = 16;
    check_refused(emulated_write(&write, grid), PKV_ERR_INVALID, "struct_size is 16");
    write = good;
    write.slot_bytes = 2;
    check_refused(emulated_write(&write, grid), PKV_ERR_INVALID, "slot_bytes is 2");
    write = good;
    write.slots = NULL;
    check_refused(emulated_write(&write, grid), PKV_ERR_INVALID, "NULL");
    write = good;
    write.num_slots = UINT64_C(1) << 41;
    write.slots_on_host = 0;
    check_refused(emulated_write(&write, grid), PKV_ERR_LIMIT, "2199023255552 slots");
    write = good;
    write.flat_dtype = PKV_DTYPE_F8_E4M3; /* a byte type becomes no other */
    check_refused(emulated_write(&write, grid), PKV_ERR_UNSUPPORTED, "dtype 4 do not become dtype 6");
    write.flat_dtype = PKV_DTYPE_OPAQUE;
    check_refused(emulated_write(&write, grid), PKV_ERR_UNSUPPORTED, "dtype 7");
    layer.scales = PKV_SCALES_TOKEN_HEAD;
    check_refused(emulated_write(&good, grid), PKV_ERR_UNSUPPORTED, "without the scales");
}

static void gathers_that_cannot_be_are_refused(void **state) {
    (void)state;
    const emulated_grid grid = {0, 0, 0};
    const pkv_device_layer layer = good_layer();
    const pkv_device_flat given = {rows, 64, 32};
    const int32_t page = 0;
    const uint64_t counts[2] = {1, 5};
    const pkv_device_gather good = {.struct_size = sizeof good,
                                    .num_layers = 1,
                                    .flat_dtype = PKV_DTYPE_I8,
                                    .layers = &layer,
                                    .k = &given,
                                    .pages = &page,
                                    .num_pages = 1,
                                    .counts = counts,
                                    .num_sequences = 2,
                                    .max_count = 4,
                                    .arrays_on_host = 1};
    check_refused(emulated_gather(&good, grid), PKV_ERR_INVALID, "counts[1] is 5, above max_count 4");
    pkv_device_gather gather = good;
    gather.struct_size = 8;
    check_refused(emulated_gather(&gather, grid), PKV_ERR_INVALID, "struct_size is 8");
    gather = good;
    gather.pages = NULL;
    check_refused(emulated_gather(&gather, grid), PKV_ERR_INVALID, "pages is NULL");
    gather = good;
    gather.layers = NULL;
    check_refused(emulated_gather(&gather, grid), PKV_ERR_INVALID, "layers is NULL");
    gather = good;
    gather.padded = UINT64_C(1) << 41;
    check_refused(emulated_gather(&gather, grid), PKV_ERR_LIMIT, "padded to 2199023255552");
    gather = good;
    gather.flat_dtype = PKV_DTYPE_F8_E5M2;
    check_refused(emulated_gather(&gather, grid), PKV_ERR_UNSUPPORTED, "dtype 6 do not become dtype 5");
}

static void pages_and_slices_that_are_not_there_are_refused(void **state) {
    (void)state;
    const emulated_grid grid = {0, 0, 0};
    const pkv_device_layer layer = good_layer();
    static const int32_t wrong[] = {-1, 4, INT32_MAX};
    const int32_t right = 1;
    const uint32_t tokens = 4, too_many = 5;
    for (int i = 0; i < 3; ++i) {
        char words[64];
        snprintf(words, sizeof words, "page %d", wrong[i]);
        check_refused(emulated_copy_pages(&layer, 1, 1, &wrong[i], &right, &tokens, grid), PKV_ERR_INVALID, words);
        check_refused(emulated_copy_pages(&layer, 1, 1, &right, &wrong[i], &tokens, grid), PKV_ERR_INVALID, words);
        const pkv_device_slice slice = {0, wrong[i], PKV_LAYOUT_NHD, 4, rows, NULL};
        check_refused(emulated_pack(&layer, 1, &slice, 1, grid), PKV_ERR_INVALID, words);
        check_refused(emulated_unpack(&layer, 1, &slice, 1, grid), PKV_ERR_INVALID, words);
    }
    check_refused(emulated_copy_pages(&layer, 1, 1, &right, &right, &too_many, grid), PKV_ERR_INVALID, "5 tokens");
    check_refused(emulated_copy_pages(&layer, 1, 1, NULL, &right, &tokens, grid), PKV_ERR_INVALID, "NULL");
    const pkv_device_slice slices[] = {{1, 0, PKV_LAYOUT_NHD, 4, rows, NULL},
                                       {0, 0, 2, 4, rows, NULL},
                                       {0, 0, PKV_LAYOUT_NHD, 5, rows, NULL},
                                       {0, 0, PKV_LAYOUT_NHD, 4, NULL, NULL}};
    static const char *const words[] = {"layer 1 of 1", "layout 2", "5 tokens", "bytes is NULL"};
    for (int i = 0; i < 4; ++i) check_refused(emulated_pack(&layer, 1, &slices[i], 1, grid), PKV_ERR_INVALID, words[i]);
    pkv_device_layer scaled = layer;
    scaled.scales = PKV_SCALES_TOKEN_HEAD;
    scaled.scale_page_stride = 32;
    const pkv_device_slice without = {0, 0, PKV_LAYOUT_NHD, 4, rows, NULL};
    check_refused(emulated_unpack(&scaled, 1, &without, 1, grid), PKV_ERR_INVALID, "scales is NULL");
}

static void pools_that_differ_are_not_copied_between(void **state) {
    (void)state;
    const emulated_grid grid = {0, 0, 0};
    const pkv_device_layer layer = good_layer();
    const int32_t page = 1, target = 2;
    const uint32_t tokens = 4;
    for (int i = 0; i < 5; ++i) {
        pkv_device_layer other = layer;
        switch (i) {
        case 0: other.dtype = PKV_DTYPE_F8_E4M3; break;
        case 1: other.heads = 1; break;
        case 2: other.page_tokens = 8; break;
        case 3: other.v.row_bytes = 16; break;
        default: other.scales = PKV_SCALES_TOKEN_HEAD; break;
        }
        check_refused(emulated_copy_between(&layer, &other, 1, 1, &page, &target, &tokens, grid), PKV_ERR_INVALID,
                      "layer 0");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_that_contradict_themselves_are_refused),
        cmocka_unit_test(writes_that_cannot_be_are_refused),
        cmocka_unit_test(gathers_that_cannot_be_are_refused),
        cmocka_unit_test(pages_and_slices_that_are_not_there_are_refused),
        cmocka_unit_test(pools_that_differ_are_not_copied_between),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
