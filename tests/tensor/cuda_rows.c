/* SPDX-License-Identifier: Apache-2.0 */
/* The device's kernels for rows of the stored type, run on the host over many grids: every byte is what the host
 * kernels make of it, in many geometries. Field cases E11, G, H, I01 and I02. */
#include "tensor/cuda.h"

static const paged_config small = {
    .dtype = PKV_DTYPE_F16, .k_row = 16, .v_row = 16, .heads = 2, .page_tokens = 4, .layers = 2, .pages = 6};

/* ---- write ---- */

/* Slots without equals: those of a device array must have none. */
static void random_slots(const paged *p, int64_t *slots, uint64_t count, test_random *random) {
    const uint64_t num_slots = p->config.pages * p->config.page_tokens;
    uint64_t step = 1 + random_below(random, num_slots);
    while (num_slots % step == 0 && step > 1) --step;
    if (random_below(random, 2) == 0) step = 1;
    for (uint64_t a = step, b = num_slots; step != 1;) { /* coprime, so that no slot comes twice */
        while (b != 0) {
            const uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) break;
        a = ++step;
        b = num_slots;
    }
    const uint64_t start = random_below(random, num_slots);
    for (uint64_t i = 0; i < count; ++i) {
        slots[i] = (int64_t)((start + i * step) % num_slots);
        if (random_below(random, 5) == 0) slots[i] = random_below(random, 2) == 0 ? PKV_NO_SLOT : -100;
    }
}

/* All layers in one call; the host writes them one by one. */
static void write_both(paged *host, paged *device, uint64_t count, test_random *random) {
    const paged_config *c = &host->config;
    const bool has_v = c->v_row != 0;
    pkv_device_layer layers[paged_max_layers];
    device_layers(device->pool, c->layers, c->pages, layers);
    int64_t *slots = calloc(count + 1, sizeof *slots);
    int32_t *narrow = calloc(count + 1, sizeof *narrow);
    random_slots(host, slots, count, random);
    for (uint64_t i = 0; i < count; ++i) narrow[i] = (int32_t)slots[i];
    flat k[paged_max_layers], v[paged_max_layers];
    pkv_device_flat k_at[paged_max_layers], v_at[paged_max_layers];
    const bool same = random_below(random, 2) == 0; /* all layers' rows in one shape */
    const int shape = (int)random_below(random, flat_shapes);
    for (uint32_t i = 0; i < c->layers; ++i) {
        k[i] = make_flat(host, 0, count, same ? shape : (int)random_below(random, flat_shapes), random);
        v[i] = make_flat(host, 1, count, same ? shape : (int)random_below(random, flat_shapes), random);
        k_at[i] = device_flat(&k[i]);
        v_at[i] = device_flat(&v[i]);
        paged_write(host, i, count, slots, &k[i], has_v ? &v[i] : NULL);
    }
    const bool wide = random_below(random, 2) == 0;
    const pkv_device_write write = {.struct_size = sizeof write,
                                    .num_layers = c->layers,
                                    .flat_dtype = c->dtype,
                                    .layers = layers,
                                    .k = k_at,
                                    .v = has_v ? v_at : NULL,
                                    .slots = wide ? (const void *)slots : narrow,
                                    .num_slots = count,
                                    .slot_bytes = wide ? 8 : 4,
                                    .slots_on_host = random_below(random, 2) == 0};
    assert_emulated(emulated_write(&write, any_grid(random)), PKV_OK);
    check_twins(host, device);
    for (uint32_t i = 0; i < c->layers; ++i) {
        end_flat(&k[i]);
        end_flat(&v[i]);
    }
    free(slots);
    free(narrow);
}

/* ---- gather ---- */

enum { most_sequences = 5, most_blocks = 6 };

/* A batch of sequences with blocks of all kinds, in one call; the host gathers one token after another. */
static void gather_both(paged *host, paged *device, test_random *random) {
    const paged_config *c = &host->config;
    const bool has_v = c->v_row != 0 && random_below(random, 4) != 0, has_k = !has_v || random_below(random, 4) != 0;
    const uint64_t sequences = 1 + random_below(random, most_sequences);
    const bool csr = random_below(random, 2) == 0, pad = random_below(random, 2) == 0,
               holes = random_below(random, 2) == 0;
    int32_t pages[most_sequences * most_blocks], indptr[most_sequences + 1] = {0};
    uint64_t first[most_sequences], counts[most_sequences], out_first[most_sequences], rows = 0, most = 0;
    for (uint64_t s = 0; s < sequences; ++s) {
        const uint64_t blocks = csr ? random_below(random, most_blocks + 1) : most_blocks;
        indptr[s + 1] = indptr[s] + (int32_t)blocks;
        for (uint64_t b = 0; b < blocks; ++b) {
            const uint64_t kind = holes ? random_below(random, 8) : 7;
            pages[(csr ? (uint64_t)indptr[s] : s * most_blocks) + b] = kind == 0   ? -1
                                                                       : kind == 1 ? (int32_t)c->pages
                                                                       : kind == 2
                                                                           ? INT32_MIN
                                                                           : (int32_t)random_below(random, c->pages);
        }
        first[s] = random_below(random, 3) == 0 ? 0 : random_below(random, blocks * c->page_tokens + 1);
        counts[s] = random_below(random, blocks * c->page_tokens - first[s] + 1);
        if (counts[s] > most) most = counts[s];
    }
    const uint64_t padded = pad ? random_below(random, most + 5) : 0;
    for (uint64_t s = 0; s < sequences; ++s) { /* with a gap here and there */
        rows += random_below(random, 3);
        out_first[s] = rows;
        rows += counts[s] > padded ? counts[s] : padded;
    }
    pkv_device_layer layers[paged_max_layers];
    device_layers(device->pool, c->layers, c->pages, layers);
    pkv_device_flat at[2][paged_max_layers];
    flat got[2][paged_max_layers], expected[2][paged_max_layers];
    for (int side = 0; side < 2; ++side) {
        const int shape = (int)random_below(random, flat_shapes);
        for (uint32_t i = 0; i < c->layers; ++i) {
            got[side][i] = make_flat(host, side, rows, shape, random);
            at[side][i] = device_flat(&got[side][i]);
            expected[side][i] = got[side][i];
            expected[side][i].memory = malloc(got[side][i].size);
            memcpy(expected[side][i].memory, got[side][i].memory, got[side][i].size);
        }
    }
    for (uint32_t i = 0; i < c->layers; ++i)
        for (uint64_t s = 0; s < sequences; ++s)
            for (uint64_t t = 0; t < (counts[s] > padded ? counts[s] : padded); ++t) {
                const uint64_t token = first[s] + t, row = out_first[s] + t;
                const pkv_page page =
                    t < counts[s] ? pages[(csr ? (uint64_t)indptr[s] : s * most_blocks) + token / c->page_tokens] : -1;
                pkv_tensor one[2];
                for (int side = 0; side < 2; ++side) {
                    one[side] = expected[side][i].tensor;
                    one[side].data = flat_row(&expected[side][i], row, 0);
                    one[side].num_tokens = 1;
                    for (uint64_t head = 0; head < c->heads; ++head)
                        if ((side == 0 ? has_k : has_v) && (page < 0 || page >= (pkv_page)c->pages))
                            memset(flat_row(&expected[side][i], row, head), 0, side == 0 ? c->k_row : c->v_row);
                }
                if (page >= 0 && page < (pkv_page)c->pages)
                    assert_ok(pkv_pool_gather(host->pool, 0, i, 1, &page, token % c->page_tokens, 1,
                                              has_k ? &one[0] : NULL, has_v ? &one[1] : NULL, NULL));
            }
    const pkv_device_gather gather = {.struct_size = sizeof gather,
                                      .num_layers = c->layers,
                                      .flat_dtype = c->dtype,
                                      .layers = layers,
                                      .k = has_k ? at[0] : NULL,
                                      .v = has_v ? at[1] : NULL,
                                      .pages = pages,
                                      .indptr = csr ? indptr : NULL,
                                      .pages_stride = most_blocks,
                                      .num_pages = csr ? (uint64_t)indptr[sequences] : sequences * most_blocks,
                                      .first = first,
                                      .counts = counts,
                                      .out_first = out_first,
                                      .num_sequences = sequences,
                                      .max_count = most + random_below(random, 2) * random_below(random, 10),
                                      .padded = padded,
                                      .arrays_on_host = random_below(random, 2) == 0};
    assert_emulated(emulated_gather(&gather, any_grid(random)), PKV_OK);
    for (int side = 0; side < 2; ++side)
        for (uint32_t i = 0; i < c->layers; ++i) {
            if (memcmp(got[side][i].memory, expected[side][i].memory, got[side][i].size) != 0)
                fail_msg("side %d of layer %u: gathered rows, or bytes around them, are not the host's (rows of %u and "
                         "%u bytes, "
                         "%u heads, %u tokens a page)",
                         side, i, c->k_row, c->v_row, c->heads, c->page_tokens);
            end_flat(&got[side][i]);
            free(expected[side][i].memory);
        }
}

static void exercise(const paged_config *config, uint64_t seed, int rounds) {
    test_random random = {seed};
    paged *host = make_paged(config), *device = make_paged(config);
    fill_twins(host, device, &random);
    for (int round = 0; round < rounds; ++round) {
        write_both(host, device, random_below(&random, 3 * config->page_tokens + 2), &random);
        gather_both(host, device, &random);
    }
    end_paged(host);
    end_twin(device);
}

static void rows_are_the_hosts_in_every_geometry(void **state) {
    (void)state;
    static const uint32_t dims[] = {1, 40, 46, 64, 80, 96, 100, 192, 576}, heads[] = {1, 2, 3, 8},
                          tokens[] = {1, 3, 8, 16};
    const uint64_t seed = 17;
    print_message("seed %llu\n", (unsigned long long)seed);
    test_random random = {seed};
    for (size_t d = 0; d < 9; ++d)
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
                    exercise(&config, next_random(&random), long_tests() ? 40 : 2);
                }
    assert_int_equal(emulated_misaligned(), 0);
}

static void rows_are_the_hosts_in_every_element_type(void **state) {
    (void)state;
    for (int32_t dtype = PKV_DTYPE_F32; dtype <= PKV_DTYPE_OPAQUE; ++dtype) {
        paged_config config = small;
        config.dtype = dtype;
        config.k_row = 4 * 10;
        config.v_row = 4 * 6;
        exercise(&config, (uint64_t)dtype, 6);
    }
    assert_int_equal(emulated_misaligned(), 0);
}

static void every_grid_does_all_of_the_work(void **state) {
    (void)state;
    paged_config config = small;
    config.k_row = config.v_row = 256;
    config.heads = 4;
    for (size_t g = 0; g < num_grids; ++g) {
        test_random random = {g};
        paged *host = make_paged(&config), *device = make_paged(&config);
        pkv_device_layer layers[paged_max_layers];
        device_layers(device->pool, config.layers, config.pages, layers);
        int64_t slots[24];
        for (int i = 0; i < 24; ++i) slots[i] = 23 - i;
        flat k = make_flat(host, 0, 24, flat_dense, &random), v = make_flat(host, 1, 24, flat_dense, &random);
        const pkv_device_flat k_at[2] = {device_flat(&k), device_flat(&k)},
                              v_at[2] = {device_flat(&v), device_flat(&v)};
        const pkv_device_write write = {sizeof write, 2, config.dtype, layers, k_at, v_at, slots, 24, 8, 0, 0, 0};
        for (uint32_t i = 0; i < 2; ++i) paged_write(host, i, 24, slots, &k, &v);
        assert_emulated(emulated_write(&write, emulated_grids[g]), PKV_OK);
        check_twins(host, device);
        end_flat(&k);
        end_flat(&v);
        end_paged(host);
        end_twin(device);
    }
}

/* ---- what is left out ---- */

static void case_H01_slots_below_0_and_past_the_pool_are_skipped(void **state) {
    (void)state;
    test_random random = {1};
    paged_config config = small;
    config.pages = 2;
    for (size_t g = 0; g < num_grids; ++g) {
        paged *host = make_paged(&config), *device = make_paged(&config);
        pkv_device_layer layers[2];
        device_layers(device->pool, 2, config.pages, layers);
        flat k = make_flat(host, 0, 8, flat_dense, &random), v = make_flat(host, 1, 8, flat_dense, &random);
        const pkv_device_flat k_at = device_flat(&k), v_at = device_flat(&v);
        const int64_t wide[8] = {0, -1, 8, INT64_MAX, INT64_MIN, -8, INT64_C(1) << 32, INT64_C(1) << 35};
        const int32_t narrow[8] = {0, -1, 8, INT32_MAX, INT32_MIN, -8, 9, 1 << 30};
        paged_write(host, 0, 1, (const pkv_slot[]){0}, &k, &v);
        for (int on_host = 0; on_host < 2; ++on_host)
            for (uint32_t slot_bytes = 4; slot_bytes <= 8; slot_bytes += 4) {
                const pkv_device_write write = {sizeof write,
                                                1,
                                                config.dtype,
                                                layers,
                                                &k_at,
                                                &v_at,
                                                slot_bytes == 8 ? (const void *)wide : narrow,
                                                8,
                                                slot_bytes,
                                                (uint32_t)on_host,
                                                0,
                                                0};
                assert_emulated(emulated_write(&write, emulated_grids[g]), PKV_OK);
                check_twins(host, device);
            }
        end_flat(&k);
        end_flat(&v);
        end_paged(host);
        end_twin(device);
    }
}

static void of_equal_slots_in_a_host_array_the_last_row_wins(void **state) {
    (void)state;
    test_random random = {5};
    for (size_t g = 0; g < num_grids; ++g)
        for (int round = 0; round < 20; ++round) {
            paged *host = make_paged(&small), *device = make_paged(&small);
            pkv_device_layer layers[2];
            device_layers(device->pool, 2, small.pages, layers);
            const uint64_t count = 1 + random_below(&random, 60);
            int64_t slots[60];
            for (uint64_t i = 0; i < count; ++i) slots[i] = (int64_t)random_below(&random, 13) - 1;
            flat k = make_flat(host, 0, count, flat_dense, &random), v = make_flat(host, 1, count, flat_dense, &random);
            const pkv_device_flat k_at = device_flat(&k), v_at = device_flat(&v);
            paged_write(host, 0, count, slots, &k, &v);
            const pkv_device_write write = {sizeof write, 1,     small.dtype, layers, &k_at, &v_at,
                                            slots,        count, 8,           1,      0,     0};
            assert_emulated(emulated_write(&write, emulated_grids[g]), PKV_OK);
            check_twins(host, device);
            end_flat(&k);
            end_flat(&v);
            end_paged(host);
            end_twin(device);
        }
}

static void case_I01_rows_of_padding_are_zero(void **state) {
    (void)state;
    paged *host = make_paged(&small);
    memset(host->bytes, 0xFF, host->size); /* NaN */
    memset(host->expected, 0xFF, host->size);
    pkv_device_layer layers[2];
    device_layers(host->pool, 2, small.pages, layers);
    for (size_t g = 0; g < num_grids; ++g)
        for (int on_host = 0; on_host < 2; ++on_host) {
            test_random random = {g};
            flat k = make_flat(host, 0, 16, flat_dense, &random);
            const pkv_device_flat k_at = device_flat(&k);
            const int32_t pages[4] = {3, 1, 2, 0};
            const uint64_t first = 0, count = 13, out = 0;
            const pkv_device_gather gather = {.struct_size = sizeof gather,
                                              .num_layers = 1,
                                              .flat_dtype = small.dtype,
                                              .layers = layers,
                                              .k = &k_at,
                                              .pages = pages,
                                              .num_pages = 4,
                                              .first = &first,
                                              .counts = &count,
                                              .out_first = &out,
                                              .num_sequences = 1,
                                              .max_count = 13,
                                              .padded = 16,
                                              .arrays_on_host = (uint32_t)on_host};
            assert_emulated(emulated_gather(&gather, emulated_grids[g]), PKV_OK);
            for (uint64_t row = 0; row < 16; ++row)
                for (uint64_t i = 0; i < 32; ++i) assert_int_equal(flat_row(&k, row, 0)[i], row < 13 ? 0xFF : 0);
            end_flat(&k);
        }
    end_paged(host);
}

/* What a captured gather has: a table on the device, and numbers. */
static void a_gather_without_arrays_takes_the_same_range_of_every_sequence(void **state) {
    (void)state;
    test_random random = {3};
    paged *host = make_paged(&small);
    test_random bytes = {4};
    for (uint64_t i = 0; i < host->size; ++i) host->bytes[i] = host->expected[i] = (unsigned char)next_random(&bytes);
    pkv_device_layer layers[2];
    device_layers(host->pool, 2, small.pages, layers);
    const int32_t pages[3][3] = {{5, 4, 3}, {0, -1, 2}, {1, 1, 0}};
    for (size_t g = 0; g < num_grids; ++g)
        for (int on_host = 0; on_host < 2; ++on_host)
            for (uint64_t padded = 0; padded <= 9; padded += 9) {
                const uint64_t first = 3, count = 7, stride = padded != 0 ? padded : count;
                flat k = make_flat(host, 0, 3 * stride, flat_dense, &random);
                const pkv_device_flat k_at = device_flat(&k);
                const pkv_device_gather gather = {.struct_size = sizeof gather,
                                                  .num_layers = 1,
                                                  .flat_dtype = small.dtype,
                                                  .layers = layers,
                                                  .k = &k_at,
                                                  .pages = &pages[0][0],
                                                  .pages_stride = 3,
                                                  .num_pages = 9,
                                                  .num_sequences = 3,
                                                  .max_count = count,
                                                  .padded = padded,
                                                  .arrays_on_host = (uint32_t)on_host,
                                                  .first_token = first};
                assert_emulated(emulated_gather(&gather, emulated_grids[g]), PKV_OK);
                for (uint64_t s = 0; s < 3; ++s)
                    for (uint64_t t = 0; t < stride; ++t)
                        for (uint64_t head = 0; head < small.heads; ++head) {
                            const int32_t page = t < count ? pages[s][(first + t) / 4] : -1;
                            static const unsigned char zeros[16];
                            assert_memory_equal(
                                flat_row(&k, s * stride + t, head),
                                page < 0 ? zeros
                                         : host->bytes + paged_at(host, 0, 0, (uint64_t)page, (first + t) % 4, head),
                                16);
                        }
                end_flat(&k);
            }
    end_paged(host);
}

/* A count that is wrong on the device reads no other sequence's pages, and no entry past the last. */
static void tokens_past_the_pages_of_a_sequence_are_zero(void **state) {
    (void)state;
    test_random random = {6};
    paged *host = make_paged(&small);
    memset(host->bytes, 0xFF, host->size);
    memset(host->expected, 0xFF, host->size);
    pkv_device_layer layers[2];
    device_layers(host->pool, 2, small.pages, layers);
    const int32_t pages[5] = {1, 2, 3, 0, 4}, indptr[3] = {0, 1, 3}; /* the last two entries are nobody's */
    for (size_t g = 0; g < num_grids; ++g)
        for (int csr = 0; csr < 2; ++csr)
            for (int on_host = 0; on_host < 2; ++on_host) {
                flat k = make_flat(host, 0, 32, flat_dense, &random);
                const pkv_device_flat k_at = device_flat(&k);
                const pkv_device_gather gather = {.struct_size = sizeof gather,
                                                  .num_layers = 1,
                                                  .flat_dtype = small.dtype,
                                                  .layers = layers,
                                                  .k = &k_at,
                                                  .pages = pages,
                                                  .indptr = csr ? indptr : NULL,
                                                  .pages_stride = 2,
                                                  .num_pages = csr ? 5 : 3,
                                                  .num_sequences = 2,
                                                  .max_count = 16,
                                                  .arrays_on_host = (uint32_t)on_host};
                assert_emulated(emulated_gather(&gather, emulated_grids[g]), PKV_OK);
                for (uint64_t row = 0; row < 32; ++row) {
                    const uint64_t sequence = row / 16, token = row % 16;
                    const uint64_t valid =
                        csr ? (sequence == 0 ? 4 : 8) : (sequence == 0 ? 12 : 4); /* without CSR the table's end */
                    for (uint64_t i = 0; i < 32; ++i)
                        assert_int_equal(flat_row(&k, row, 0)[i], token < valid ? 0xFF : 0);
                }
                end_flat(&k);
            }
    end_paged(host);
}

static void case_H22_sequences_of_all_lengths_equal_those_gathered_alone(void **state) {
    (void)state;
    paged_config config = small;
    config.page_tokens = 64;
    config.pages = 12;
    exercise(&config, 22, 12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_the_hosts_in_every_geometry),
        cmocka_unit_test(rows_are_the_hosts_in_every_element_type),
        cmocka_unit_test(every_grid_does_all_of_the_work),
        cmocka_unit_test(case_H01_slots_below_0_and_past_the_pool_are_skipped),
        cmocka_unit_test(of_equal_slots_in_a_host_array_the_last_row_wins),
        cmocka_unit_test(case_I01_rows_of_padding_are_zero),
        cmocka_unit_test(a_gather_without_arrays_takes_the_same_range_of_every_sequence),
        cmocka_unit_test(tokens_past_the_pages_of_a_sequence_are_zero),
        cmocka_unit_test(case_H22_sequences_of_all_lengths_equal_those_gathered_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
