/* SPDX-License-Identifier: Apache-2.0 */
/* The accesses that the device's kernels choose: 16 bytes where everything allows them, and no wider than the one
 * thing that does not; how arrays travel; launches; places past 2^32 bytes. Run on the host. Field cases G01 to G07,
 * H07 and H08. */
#include "tensor/cuda.h"

#include <sys/mman.h>

enum { tokens = 5, heads = 2, pages = 3, page_tokens = 4, row = 64, room = 1 << 16 };

/* All that has a say in the width of an access, in bytes. */
typedef struct {
    uint64_t base, page, token, head, flat_base, flat_token, flat_head, row;
} places;

static const places aligned = {16, 1024, 192, 80, 32, 176, 80, row};

static unsigned char *memory[2]; /* of pages, of rows; aligned */

static int set_up(void **state) {
    (void)state;
    for (int i = 0; i < 2; ++i) memory[i] = aligned_alloc(64, room);
    return 0;
}
static int tear_down(void **state) {
    (void)state;
    for (int i = 0; i < 2; ++i) free(memory[i]);
    return 0;
}

static pkv_device_layer layer_of(const places *p) {
    return (pkv_device_layer){.k = {memory[0] + p->base, p->page, p->token, p->head, p->row, NULL},
                              .page_tokens = page_tokens,
                              .heads = heads,
                              .dtype = PKV_DTYPE_OPAQUE,
                              .num_pages = pages};
}

/* A write and a gather: right, at addresses that a device takes, and with accesses of `unit` bytes. */
static void check_places(const places *p, uint32_t unit) {
    static const int64_t slots[tokens] = {11, 2, 5, 6, 0};
    static unsigned char expected[room];
    test_random random = {9};
    for (int i = 0; i < room; ++i) {
        memory[0][i] = expected[i] = 0xA5;
        memory[1][i] = (unsigned char)next_random(&random);
    }
    const pkv_device_layer layer = layer_of(p);
    const pkv_device_flat given = {memory[1] + p->flat_base, p->flat_token, p->flat_head};
    const pkv_device_write write = {sizeof write, 1, PKV_DTYPE_OPAQUE, &layer, &given, NULL, slots, tokens, 8, 0, 0, 0};
    for (uint64_t i = 0; i < tokens; ++i)
        for (uint64_t head = 0; head < heads; ++head)
            memcpy(expected + p->base + (uint64_t)slots[i] / page_tokens * p->page +
                       (uint64_t)slots[i] % page_tokens * p->token + head * p->head,
                   memory[1] + p->flat_base + i * p->flat_token + head * p->flat_head, p->row);
    assert_emulated(emulated_write(&write, emulated_grids[0]), PKV_OK);
    assert_int_equal(emulated_unit(), unit);
    assert_memory_equal(memory[0], expected, room);

    static const int32_t list[pages] = {2, 0, 1};
    static unsigned char rows[room];
    memset(expected, 0x3C, room);
    for (uint64_t i = 0; i < tokens; ++i)
        for (uint64_t head = 0; head < heads; ++head) {
            const uint64_t token = 1 + i;
            memcpy(expected + p->flat_base + i * p->flat_token + head * p->flat_head,
                   memory[0] + p->base + (uint64_t)list[token / page_tokens] * p->page +
                       token % page_tokens * p->token + head * p->head,
                   p->row);
        }
    memcpy(rows, memory[1], room);
    memset(memory[1], 0x3C, room);
    const pkv_device_gather gather = {.struct_size = sizeof gather,
                                      .num_layers = 1,
                                      .flat_dtype = PKV_DTYPE_OPAQUE,
                                      .layers = &layer,
                                      .k = &given,
                                      .pages = list,
                                      .num_pages = pages,
                                      .num_sequences = 1,
                                      .max_count = tokens,
                                      .first_token = 1};
    assert_emulated(emulated_gather(&gather, emulated_grids[0]), PKV_OK);
    assert_int_equal(emulated_unit(), unit);
    assert_memory_equal(memory[1], expected, room);
    assert_int_equal(emulated_misaligned(), 0);
}

static void accesses_are_as_wide_as_the_least_aligned_place_allows(void **state) {
    (void)state;
    check_places(&aligned, 16);
    for (uint32_t step = 1; step <= 8; step *= 2)
        for (size_t i = 0; i < sizeof aligned / sizeof(uint64_t); ++i) {
            places p = aligned;
            ((uint64_t *)&p)[i] += step;
            check_places(&p, step);
        }
}

/* Two pages from one pool to another, and a slice there and back, with accesses of `unit` bytes. */
static void check_pages(const places *from, const places *to, uint32_t unit) {
    static unsigned char expected[room], slice_bytes[page_tokens * heads * (row + 16)];
    test_random random = {10};
    for (int i = 0; i < room; ++i) {
        memory[0][i] = (unsigned char)next_random(&random);
        memory[1][i] = expected[i] = 0xA5;
    }
    const pkv_device_layer src = layer_of(from);
    pkv_device_layer dst = layer_of(to);
    dst.k.base = memory[1] + to->base;
    const int32_t pairs[2][2] = {{0, 2}, {1, 0}}; /* sources, targets */
    const uint32_t counts[2] = {page_tokens, 3};
    for (int i = 0; i < 2; ++i)
        for (uint64_t token = 0; token < counts[i]; ++token)
            for (uint64_t head = 0; head < heads; ++head)
                memcpy(expected + to->base + (uint64_t)pairs[1][i] * to->page + token * to->token + head * to->head,
                       memory[0] + from->base + (uint64_t)pairs[0][i] * from->page + token * from->token +
                           head * from->head,
                       from->row);
    assert_emulated(emulated_copy_between(&src, &dst, 1, 2, pairs[0], pairs[1], counts, emulated_grids[0]), PKV_OK);
    assert_int_equal(emulated_unit(), unit);
    assert_memory_equal(memory[1], expected, room);
    for (int layout = PKV_LAYOUT_NHD; layout <= PKV_LAYOUT_HND; ++layout) {
        const pkv_device_slice out = {0, 1, layout, page_tokens, slice_bytes, NULL},
                               in = {0, 2, layout, page_tokens, slice_bytes, NULL};
        assert_emulated(emulated_pack(&src, 1, &out, 1, emulated_grids[0]), PKV_OK);
        assert_emulated(emulated_unpack(&dst, 1, &in, 1, emulated_grids[0]), PKV_OK);
        for (uint64_t token = 0; token < page_tokens; ++token)
            for (uint64_t head = 0; head < heads; ++head)
                memcpy(expected + to->base + 2 * to->page + token * to->token + head * to->head,
                       memory[0] + from->base + from->page + token * from->token + head * from->head, from->row);
        assert_memory_equal(memory[1], expected, room);
    }
    assert_int_equal(emulated_misaligned(), 0);
}

static void pages_are_copied_with_accesses_that_both_sides_allow(void **state) {
    (void)state;
    check_pages(&aligned, &aligned, 16);
    for (uint32_t step = 1; step <= 8; step *= 2)
        for (size_t i = 0; i < 4; ++i) { /* base, page, token, head */
            places p = aligned;
            ((uint64_t *)&p)[i] += step;
            check_pages(&p, &aligned, step);
            check_pages(&aligned, &p, step);
        }
}

/* Slot 1 begins at byte 92, which is 12 past a multiple of 16. */
static void case_H08_rows_of_46_elements_take_accesses_of_4_bytes(void **state) {
    (void)state;
    const places p = {0, 92 * page_tokens * heads, 92 * heads, 92, 0, 92 * heads, 92, 92};
    check_places(&p, 8); /* both heads of a token make one run of 184 bytes */
    const places apart = {0, 92 * page_tokens * heads, 92, 92 * page_tokens, 0, 92 * heads, 92, 92};
    check_places(&apart, 4);
}

static void a_stride_that_is_never_stepped_has_no_say(void **state) {
    (void)state;
    places p = aligned;
    p.page = 1021; /* of one page */
    const pkv_device_layer one_page = {.k = {memory[0], p.page, p.token, p.head, p.row, NULL},
                                       .page_tokens = page_tokens,
                                       .heads = heads,
                                       .dtype = PKV_DTYPE_OPAQUE,
                                       .num_pages = 1};
    const pkv_device_flat given = {memory[1], 3, p.flat_head}; /* of one row */
    const int64_t slot = 3;
    const pkv_device_write write = {sizeof write, 1, PKV_DTYPE_OPAQUE, &one_page, &given, NULL, &slot, 1, 8, 1, 0, 0};
    assert_emulated(emulated_write(&write, emulated_grids[0]), PKV_OK);
    assert_int_equal(emulated_unit(), 16);
}

/* ---- conversions ---- */

static void conversions_take_16_bytes_of_the_longer_type_where_both_sides_allow(void **state) {
    (void)state;
    for (uint32_t shift = 0; shift < 2; ++shift)
        for (uint64_t dim = 60; dim <= 64; dim += 4) {
            const pkv_device_layer layer = {.k = {memory[0] + shift, dim * 8, dim * 2, dim, dim, NULL},
                                            .page_tokens = page_tokens,
                                            .heads = heads,
                                            .dtype = PKV_DTYPE_F8_E4M3,
                                            .num_pages = pages};
            const pkv_device_flat given = {memory[1], dim * 4, dim * 2};
            const int64_t slots[2] = {1, 4};
            memset(memory[1], 0, room);
            const pkv_device_write write = {sizeof write, 1, PKV_DTYPE_F16, &layer, &given, NULL, slots, 2, 8, 1, 0, 0};
            assert_emulated(emulated_write(&write, emulated_grids[0]), PKV_OK);
            /* Both heads make one run: 120 or 128 elements, 8 of which take 16 and 8 bytes. */
            assert_int_equal(emulated_unit(), shift == 0 ? 16 : 2);
        }
}

/* ---- launches, and how arrays travel ---- */

static void layers_of_one_shape_take_one_launch(void **state) {
    (void)state;
    enum { layers = 32 };
    pkv_device_layer list[layers];
    pkv_device_flat flats[layers];
    places p = aligned;
    for (uint32_t i = 0; i < layers; ++i) {
        list[i] = layer_of(&p);
        list[i].v = list[i].k;
        flats[i] = (pkv_device_flat){memory[1] + 4096, p.flat_token, p.flat_head};
    }
    int64_t slots[256];
    for (int i = 0; i < 256; ++i) slots[i] = i == 0 ? 3 : -1;
    pkv_device_write write = {sizeof write, layers, PKV_DTYPE_OPAQUE, list, flats, flats, slots, 8, 8, 1, 0, 0};
    assert_emulated(emulated_write(&write, emulated_grids[0]), PKV_OK);
    assert_int_equal(emulated_launches(), 1);
    assert_int_equal(emulated_staged_bytes(), 0);
    write.num_slots = PKV_DEVICE_INLINE_BYTES / 8;
    assert_emulated(emulated_write(&write, emulated_grids[0]), PKV_OK);
    assert_int_equal(emulated_staged_bytes(), 0);
    list[20].k.token_stride += 16; /* another shape in the middle */
    write.num_slots = 8;
    assert_emulated(emulated_write(&write, emulated_grids[0]), PKV_OK);
    assert_int_equal(emulated_launches(), 3);
}

static void arrays_that_are_too_long_for_parameters_are_staged(void **state) {
    (void)state;
    const pkv_device_layer layer = layer_of(&aligned);
    const pkv_device_flat given = {memory[1], aligned.flat_token, aligned.flat_head};
    int32_t slots[PKV_DEVICE_INLINE_BYTES / 4 + 1];
    for (size_t i = 0; i < sizeof slots / sizeof *slots; ++i) slots[i] = i % 100 == 0 ? (int32_t)(i / 100) : -1;
    pkv_device_write write = {
        sizeof write, 1, PKV_DTYPE_OPAQUE, &layer, &given, NULL, slots, PKV_DEVICE_INLINE_BYTES / 4, 4, 1, 0, 0};
    for (uint64_t i = 0; i < 2; ++i) {
        write.num_slots = PKV_DEVICE_INLINE_BYTES / 4 + i;
        unsigned char *const long_rows = calloc(write.num_slots, aligned.flat_token);
        const pkv_device_flat rows = {long_rows, aligned.flat_token, aligned.flat_head};
        write.k = &rows;
        assert_emulated(emulated_write(&write, emulated_grids[0]), PKV_OK);
        assert_int_equal(emulated_staged_bytes(), i == 0 ? 0 : PKV_DEVICE_INLINE_BYTES + 4);
        write.slots_on_host = 0; /* a device array travels as an address */
        assert_emulated(emulated_write(&write, emulated_grids[0]), PKV_OK);
        assert_int_equal(emulated_staged_bytes(), 0);
        write.slots_on_host = 1;
        free(long_rows);
    }
}

static void case_H07_nothing_to_do_launches_nothing(void **state) {
    (void)state;
    const pkv_device_layer layer = layer_of(&aligned);
    const pkv_device_flat given = {memory[1], aligned.flat_token, aligned.flat_head}, none = {NULL, 0, 0};
    const int64_t slot = 0;
    const int32_t page = 0;
    const uint64_t zero = 0;
    const uint32_t no_tokens = 0;
    pkv_device_write write = {sizeof write, 1, PKV_DTYPE_OPAQUE, &layer, &given, NULL, &slot, 0, 8, 1, 0, 0};
    assert_emulated(emulated_write(&write, emulated_grids[0]), PKV_OK);
    assert_int_equal(emulated_launches(), 0);
    write.num_slots = 1;
    write.k = &none; /* both sides are left out */
    assert_emulated(emulated_write(&write, emulated_grids[0]), PKV_OK);
    assert_int_equal(emulated_launches(), 0);
    write.num_layers = 0;
    assert_emulated(emulated_write(&write, emulated_grids[0]), PKV_OK);
    pkv_device_gather gather = {.struct_size = sizeof gather,
                                .num_layers = 1,
                                .flat_dtype = PKV_DTYPE_OPAQUE,
                                .layers = &layer,
                                .k = &given,
                                .pages = &page,
                                .num_pages = 1,
                                .first = &zero,
                                .counts = &zero,
                                .out_first = &zero,
                                .num_sequences = 1,
                                .arrays_on_host = 1};
    assert_emulated(emulated_gather(&gather, emulated_grids[0]), PKV_OK);
    assert_int_equal(emulated_launches(), 0);
    gather.max_count = 5; /* an upper bound: the sequence itself is empty */
    assert_emulated(emulated_gather(&gather, emulated_grids[0]), PKV_OK);
    gather.num_sequences = 0;
    assert_emulated(emulated_gather(&gather, emulated_grids[0]), PKV_OK);
    assert_int_equal(emulated_launches(), 0);
    assert_emulated(emulated_copy_pages(&layer, 1, 0, NULL, NULL, NULL, emulated_grids[0]), PKV_OK);
    assert_emulated(emulated_copy_pages(&layer, 1, 1, &page, &page, &no_tokens, emulated_grids[0]), PKV_OK);
    assert_emulated(emulated_pack(&layer, 1, NULL, 0, emulated_grids[0]), PKV_OK);
    assert_emulated(emulated_unpack(&layer, 1, NULL, 0, emulated_grids[0]), PKV_OK);
    assert_int_equal(emulated_launches(), 0);
}

/* ---- places past 2^32 bytes: address space of which few pages are touched ---- */

static unsigned char *reserve(uint64_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* One row there and back, in a pool of these strides and in rows of the caller's; nothing where 32 bits would put
 * it. */
static void far_row(uint64_t slot, uint32_t of_page, uint64_t page, uint64_t token, uint64_t row_bytes,
                    uint64_t flat_stride) {
    const uint64_t at = slot / of_page * page + slot % of_page * token, size = at + page + 4096,
                   rows = 3 * flat_stride + row_bytes;
    unsigned char *const pool = reserve(size), *const far = reserve(rows), one[2048] = {1, 2, 3}, back[2048];
    if (pool == NULL || far == NULL) {
        print_message("no address space for %llu and %llu bytes\n", (unsigned long long)size, (unsigned long long)rows);
        skip();
    }
    memcpy(far + 3 * flat_stride, one, row_bytes);
    const pkv_device_layer layer = {.k = {pool, page, token, row_bytes, row_bytes, NULL},
                                    .page_tokens = of_page,
                                    .heads = 1,
                                    .dtype = PKV_DTYPE_OPAQUE,
                                    .num_pages = slot / of_page + 1};
    const pkv_device_flat given = {far, flat_stride, row_bytes};
    const int64_t slots[4] = {-1, -1, -1, (int64_t)slot};
    const pkv_device_write write = {sizeof write, 1, PKV_DTYPE_OPAQUE, &layer, &given, NULL, slots, 4, 8, 1, 0, 0};
    assert_emulated(emulated_write(&write, emulated_grids[1]), PKV_OK);
    assert_memory_equal(pool + at, one, row_bytes);
    if (at >> 32 != 0) assert_int_equal(pool[at & 0xFFFFFFFF], 0);
    if (at >> 31 != 0) assert_int_equal(pool[at & 0x7FFFFFFF], 0);
    const int32_t list[1] = {(int32_t)(slot / of_page)};
    const uint64_t first = slot % of_page, count = 1, out_first = 2;
    const pkv_device_flat target = {far, flat_stride, row_bytes};
    const pkv_device_gather gather = {.struct_size = sizeof gather,
                                      .num_layers = 1,
                                      .flat_dtype = PKV_DTYPE_OPAQUE,
                                      .layers = &layer,
                                      .k = &target,
                                      .pages = list,
                                      .num_pages = 1,
                                      .first = &first,
                                      .counts = &count,
                                      .out_first = &out_first,
                                      .num_sequences = 1,
                                      .max_count = 1,
                                      .arrays_on_host = 1};
    assert_emulated(emulated_gather(&gather, emulated_grids[1]), PKV_OK);
    memcpy(back, far + 2 * flat_stride, row_bytes);
    assert_memory_equal(back, one, row_bytes);
    /* The page into a slice, and back into page 0. */
    unsigned char *const slice_bytes = calloc(of_page, row_bytes);
    pkv_device_slice slice = {0, list[0], PKV_LAYOUT_NHD, (uint32_t)first + 1, slice_bytes, NULL};
    if (of_page <= 64) {
        assert_emulated(emulated_pack(&layer, 1, &slice, 1, emulated_grids[0]), PKV_OK);
        assert_memory_equal(slice_bytes + first * row_bytes, one, row_bytes);
        const uint32_t num = (uint32_t)first + 1;
        const int32_t zero = 0;
        assert_emulated(emulated_copy_pages(&layer, 1, 1, list, &zero, &num, emulated_grids[0]), PKV_OK);
        assert_memory_equal(pool + first * token, one, row_bytes);
    }
    free(slice_bytes);
    munmap(pool, size);
    munmap(far, rows);
}

static void case_G01_page_65535_of_65536_elements(void **state) {
    (void)state;
    far_row(65535ull * 32, 32, 32 * 16 * 128 * 2, 16 * 128 * 2, 256, 4096);
    far_row(65535ull * 32 + 31, 32, 32 * 16 * 128 * 2, 16 * 128 * 2, 256, 4096);
}

static void case_G02_elements_2_to_the_31_and_the_next(void **state) {
    (void)state;
    for (uint64_t slot = (UINT64_C(1) << 31) - 1; slot <= (UINT64_C(1) << 31) + 1; ++slot)
        far_row(slot, 65536, 65536, 1, 1, 4096);
}

static void case_G04_page_262144_of_16384_is_not_page_0(void **state) {
    (void)state;
    far_row(262144ull * 16, 16, 16384, 1024, 1024, 4096);
}

static void case_G05_large_slots_of_576_elements(void **state) {
    (void)state;
    for (uint64_t element = 1; element <= 2; ++element) {
        far_row(3700000, 64, 64 * 576 * element, 576 * element, 576 * element, 4096);
        far_row(3730000, 64, 64 * 576 * element, 576 * element, 576 * element, 4096);
    }
}

static void case_G07_strides_past_2_to_the_32_on_both_sides(void **state) {
    (void)state;
    far_row(1994 * 16 + 15, 16, 1077120, 4096, 4096 / 4, 4096);
    far_row(2 * 16 + 3, 16, UINT64_C(0x500000000), UINT64_C(0x40000010), 1024, UINT64_C(0x140000020));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accesses_are_as_wide_as_the_least_aligned_place_allows),
        cmocka_unit_test(pages_are_copied_with_accesses_that_both_sides_allow),
        cmocka_unit_test(case_H08_rows_of_46_elements_take_accesses_of_4_bytes),
        cmocka_unit_test(a_stride_that_is_never_stepped_has_no_say),
        cmocka_unit_test(conversions_take_16_bytes_of_the_longer_type_where_both_sides_allow),
        cmocka_unit_test(layers_of_one_shape_take_one_launch),
        cmocka_unit_test(arrays_that_are_too_long_for_parameters_are_staged),
        cmocka_unit_test(case_H07_nothing_to_do_launches_nothing),
        cmocka_unit_test(case_G01_page_65535_of_65536_elements),
        cmocka_unit_test(case_G02_elements_2_to_the_31_and_the_next),
        cmocka_unit_test(case_G04_page_262144_of_16384_is_not_page_0),
        cmocka_unit_test(case_G05_large_slots_of_576_elements),
        cmocka_unit_test(case_G07_strides_past_2_to_the_32_on_both_sides),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
