/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a device and of the host, copies of many pieces, places past 2^32 bytes, and devices beside each other.
 * Field cases G01, G04, G07, J16 and O02. */
#include "gpu/rows.h"

#include <sys/mman.h>

static void the_facts_are_those_of_the_device(void **state) {
    (void)state;
    needs_device();
    struct cudaDeviceProp properties;
    assert_cuda(cudaGetDeviceProperties(&properties, device_index));
    pkv_device_facts facts = {.struct_size = sizeof facts};
    assert_gpu(gpu->facts(context, &facts, WHY), PKV_OK);
    print_message("%s, compute %u, %u multiprocessors, driver %d, runtime %d, words %u, batched copies %u\n",
                  facts.name, facts.compute, facts.multiprocessors, facts.driver, facts.runtime, facts.waits_on_words,
                  facts.batched_copies);
    assert_int_equal(strncmp(facts.name, properties.name, sizeof facts.name - 1), 0);
    assert_true(facts.memory_bytes == properties.totalGlobalMem);
    assert_int_equal(facts.compute, 10 * properties.major + properties.minor);
    assert_int_equal(facts.multiprocessors, properties.multiProcessorCount);
    pkv_device_facts part;
    memset(&part, 0x55, sizeof part);
    part.struct_size = offsetof(pkv_device_facts, memory_bytes);
    assert_gpu(gpu->facts(context, &part, WHY), PKV_OK); /* no more than it has room for */
    assert_string_equal(part.name, facts.name);
    assert_true(part.memory_bytes == UINT64_C(0x5555555555555555));
}

static void addresses_are_told_apart(void **state) {
    (void)state;
    needs_device();
    enum { bytes = 1 << 20 };
    int32_t kind = -1;
    void *const device = device_bytes(bytes), *const pinned = pinned_bytes(bytes);
    void *managed = NULL;
    void *const host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_cuda(cudaMallocManaged(&managed, bytes, cudaMemAttachGlobal));
    const struct {
        const void *address;
        int32_t kind;
    } cases[] = {{device, PKV_ADDRESS_DEVICE}, {(char *)device + 1000, PKV_ADDRESS_DEVICE},
                 {pinned, PKV_ADDRESS_PINNED}, {managed, PKV_ADDRESS_MANAGED},
                 {host, PKV_ADDRESS_HOST},     {&kind, PKV_ADDRESS_HOST}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        assert_gpu(gpu->address_kind(context, cases[i].address, &kind, WHY), PKV_OK);
        assert_int_equal(kind, cases[i].kind);
    }
    assert_gpu(gpu->pin(context, host, bytes, WHY), PKV_OK);
    assert_gpu(gpu->address_kind(context, (char *)host + 4096, &kind, WHY), PKV_OK);
    assert_int_equal(kind, PKV_ADDRESS_PINNED);
    assert_gpu(gpu->pin(context, host, bytes, WHY), PKV_ERR_INVALID); /* already */
    gpu->unpin(context, host);
    assert_gpu(gpu->address_kind(context, host, &kind, WHY), PKV_OK);
    assert_int_equal(kind, PKV_ADDRESS_HOST);
    assert_cuda(cudaFree(managed));
    munmap(host, bytes);
    free_bytes(device);
    free_pinned(pinned);
}

/* Pieces of all sizes, from pinned memory, from memory that was pinned, and from any. */
static void case_J16_copies_of_many_pieces_move_each_byte(void **state) {
    (void)state;
    needs_device();
    enum { pieces = 200, bytes = 4 << 20 };
    test_random random = {16};
    void *own;
    assert_gpu(gpu->make_stream(context, 0, &own, WHY), PKV_OK);
    cudaStream_t callers;
    assert_cuda(cudaStreamCreateWithFlags(&callers, cudaStreamNonBlocking));
    unsigned char *const device = device_bytes(bytes), *const second = device_bytes(bytes),
                         *const expected = malloc(bytes);
    unsigned char *const hosts[3] = {pinned_bytes(bytes),
                                     mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                                     malloc(bytes)};
    assert_gpu(gpu->pin(context, hosts[1], bytes, WHY), PKV_OK);
    void *const streams[3] = {own, callers, NULL};
    for (int h = 0; h < 3; ++h)
        for (int s = 0; s < 3; ++s) {
            unsigned char *const host = hosts[h];
            pkv_device_copy up[pieces], across[pieces], down[pieces];
            for (uint64_t i = 0; i < bytes; ++i) host[i] = (unsigned char)next_random(&random);
            memset(expected, 0xA5, bytes);
            assert_gpu(gpu->fill(context, streams[s], device, 0xA5, bytes, WHY), PKV_OK);
            assert_gpu(gpu->fill(context, streams[s], second, 0xA5, bytes, WHY), PKV_OK);
            uint64_t at = 0;
            for (int i = 0; i < pieces; ++i) {
                const uint64_t size = i % 7 == 0   ? 0
                                      : i % 5 == 0 ? 144
                                      : i % 3 == 0 ? 16384
                                                   : 1 + random_below(&random, 20000);
                at += random_below(&random, 3) == 0 ? 0 : random_below(&random, 500); /* some follow each other */
                up[i] = (pkv_device_copy){device + at, host + at, size};
                across[i] = (pkv_device_copy){second + at, device + at, size};
                down[i] = (pkv_device_copy){host + at, second + at, size};
                memcpy(expected + at, host + at, size);
                at += size;
            }
            assert_true(at <= bytes);
            assert_gpu(gpu->copy(context, streams[s], PKV_HOST_TO_DEVICE, up, pieces, WHY), PKV_OK);
            assert_gpu(gpu->copy(context, streams[s], PKV_DEVICE_TO_DEVICE, across, pieces, WHY), PKV_OK);
            assert_gpu(gpu->wait_stream(context, streams[s], WHY), PKV_OK);
            memset(host, 0xA5, bytes);
            assert_gpu(gpu->copy(context, streams[s], PKV_DEVICE_TO_HOST, down, pieces, WHY), PKV_OK);
            assert_gpu(gpu->wait_stream(context, streams[s], WHY), PKV_OK);
            assert_memory_equal(host, expected, bytes);
            download(host, second, bytes);
            assert_memory_equal(host, expected, bytes); /* and nothing between the pieces */
        }
    gpu->unpin(context, hosts[1]);
    free_pinned(hosts[0]);
    munmap(hosts[1], bytes);
    free(hosts[2]);
    free(expected);
    free_bytes(device);
    free_bytes(second);
    gpu->end_stream(context, own);
    assert_cuda(cudaStreamDestroy(callers));
}

/* Kernels read rows and slots from pinned memory of the host as from the device's. */
static void kernels_read_and_write_pinned_memory(void **state) {
    (void)state;
    needs_device();
    device_pool pool = make_device_pool(1, 4);
    unsigned char *const rows = pinned_bytes(4 * token_bytes), *const out = pinned_bytes(4 * token_bytes);
    int64_t *const slots = pinned_bytes(64);
    for (int i = 0; i < 4 * token_bytes; ++i) rows[i] = (unsigned char)(i * 7 + i / 256);
    for (int i = 0; i < 4; ++i) slots[i] = 8 + i;
    const pkv_device_flat in_at = flat_of(rows), out_at = flat_of(out);
    const pkv_device_write write = {sizeof write, 1, PKV_DTYPE_F16, pool.layers, &in_at, &in_at, slots, 4, 8, 0, 0, 0};
    assert_gpu(gpu->write(context, NULL, &write, WHY), PKV_OK);
    const int32_t page = 1;
    const pkv_device_gather gather = {.struct_size = sizeof gather,
                                      .num_layers = 1,
                                      .flat_dtype = PKV_DTYPE_F16,
                                      .layers = pool.layers,
                                      .v = &out_at,
                                      .pages = &page,
                                      .num_pages = 1,
                                      .num_sequences = 1,
                                      .max_count = 4,
                                      .arrays_on_host = 1};
    assert_gpu(gpu->gather(context, NULL, &gather, WHY), PKV_OK);
    assert_gpu(gpu->wait_stream(context, NULL, WHY), PKV_OK);
    assert_memory_equal(out, rows, 4 * token_bytes);
    free_pinned(rows);
    free_pinned(out);
    free_pinned(slots);
    free_bytes(pool.memory);
}

/* ---- places past 2^32 bytes ---- */

/* One row to a far slot, and nothing where 32 bits would put it; back through a gather, a copy of the page and a
 * slice. */
static void far_slot(uint64_t slot, uint32_t of_page, uint64_t page_stride, uint64_t token_stride) {
    enum { row = 256 };
    const uint64_t at = slot / of_page * page_stride + slot % of_page * token_stride,
                   size = at + of_page * token_stride + row;
    size_t free_memory = 0, total = 0;
    assert_cuda(cudaMemGetInfo(&free_memory, &total));
    if (free_memory < size + (UINT64_C(1) << 30)) {
        print_message("%zu bytes are free, %llu are needed\n", free_memory, (unsigned long long)size);
        skip();
    }
    unsigned char *const memory = device_bytes(size);
    unsigned char value[row], got[row], poison[row];
    memset(poison, 0xA5, row);
    for (int i = 0; i < row; ++i) value[i] = (unsigned char)(i * 3 + 1);
    unsigned char *const rows = upload_new(value, row), *const out = device_bytes(row),
                         *const slice_bytes = device_bytes((uint64_t)of_page * row);
    const pkv_device_layer layer = {.k = {memory, page_stride, token_stride, row, row, NULL},
                                    .page_tokens = of_page,
                                    .heads = 1,
                                    .dtype = PKV_DTYPE_F16,
                                    .num_pages = slot / of_page + 1};
    const pkv_device_flat in_at = {rows, row, row}, out_at = {out, row, row};
    const int64_t slots = (int64_t)slot;
    const pkv_device_write write = {sizeof write, 1, PKV_DTYPE_F16, &layer, &in_at, NULL, &slots, 1, 8, 1, 0, 0};
    assert_gpu(gpu->write(context, NULL, &write, WHY), PKV_OK);
    download(got, memory + at, row);
    assert_memory_equal(got, value, row);
    const uint64_t wrapped[2] = {at & 0xFFFFFFFF, at & 0x7FFFFFFF};
    for (int i = 0; i < 2; ++i) {
        download(got, memory + wrapped[i], row);
        if (wrapped[i] != at) assert_memory_equal(got, poison, row);
    }
    const int32_t page = (int32_t)(slot / of_page), zero = 0;
    const uint32_t tokens = (uint32_t)(slot % of_page) + 1;
    const pkv_device_gather gather = {.struct_size = sizeof gather,
                                      .num_layers = 1,
                                      .flat_dtype = PKV_DTYPE_F16,
                                      .layers = &layer,
                                      .k = &out_at,
                                      .pages = &page,
                                      .num_pages = 1,
                                      .num_sequences = 1,
                                      .max_count = 1,
                                      .arrays_on_host = 1,
                                      .first_token = slot % of_page};
    assert_gpu(gpu->gather(context, NULL, &gather, WHY), PKV_OK);
    download(got, out, row);
    assert_memory_equal(got, value, row);
    assert_gpu(gpu->copy_pages(context, NULL, &layer, 1, 1, &page, &zero, &tokens, 0, WHY), PKV_OK);
    download(got, memory + slot % of_page * token_stride, row);
    assert_memory_equal(got, value, row);
    const pkv_device_slice slice = {0, page, PKV_LAYOUT_NHD, tokens, slice_bytes, NULL};
    assert_gpu(gpu->pack(context, NULL, &layer, 1, &slice, 1, 0, WHY), PKV_OK);
    download(got, slice_bytes + slot % of_page * row, row);
    assert_memory_equal(got, value, row);
    free_bytes(memory);
    free_bytes(rows);
    free_bytes(out);
    free_bytes(slice_bytes);
}

static void case_G01_page_65535_of_65536_elements(void **state) {
    (void)state;
    needs_device();
    far_slot(65535ull * 32 + 31, 32, 32 * 16 * 128 * 2, 16 * 128 * 2);
}

static void case_G04_page_262144_of_16384_is_not_page_0(void **state) {
    (void)state;
    needs_device();
    far_slot(262144ull * 16 + 1, 16, 16384, 1024);
}

static void case_G07_a_stride_larger_than_the_page(void **state) {
    (void)state;
    needs_device();
    far_slot(1994 * 16 + 15, 16, 1077120 * 3, 512);
}

/* ---- several devices ---- */

static void devices_beside_each_other_keep_their_memory_apart(void **state) {
    (void)state;
    needs_device();
    const int32_t count = gpu->count();
    if (count < 2) skip();
    const int32_t other_index = device_index == 0 ? 1 : 0;
    pkv_device_context *other = NULL;
    void *there = NULL;
    int32_t kind = -1;
    assert_gpu(gpu->open(other_index, &other, WHY), PKV_OK);
    assert_gpu(gpu->alloc(other, 4096, &there, WHY), PKV_OK);
    assert_gpu(gpu->address_kind(other, there, &kind, WHY), PKV_OK);
    assert_int_equal(kind, PKV_ADDRESS_DEVICE);
    assert_gpu(gpu->address_kind(context, there, &kind, WHY), PKV_OK);
    assert_int_equal(kind, PKV_ADDRESS_OTHER);
    assert_gpu(gpu->fill(other, NULL, there, 0x77, 4096, WHY), PKV_OK);
    assert_gpu(gpu->wait_stream(other, NULL, WHY), PKV_OK);
    unsigned char got[4096];
    const pkv_device_copy copy = {got, there, 4096};
    assert_gpu(gpu->copy(other, NULL, PKV_DEVICE_TO_HOST, &copy, 1, WHY), PKV_OK);
    assert_gpu(gpu->wait_stream(other, NULL, WHY), PKV_OK);
    for (int i = 0; i < 4096; ++i) assert_int_equal(got[i], 0x77);
    int current = -1;
    assert_cuda(cudaGetDevice(&current));
    assert_int_equal(current, device_index);
    gpu->free(other, there);
    gpu->close(other);
}

static void a_device_is_opened_as_often_as_one_likes(void **state) {
    (void)state;
    needs_device();
    for (int i = 0; i < 5; ++i) {
        pkv_device_context *again = NULL;
        void *stream, *address;
        assert_gpu(gpu->open(device_index, &again, WHY), PKV_OK);
        assert_true(again != context);
        assert_gpu(gpu->make_stream(again, 0, &stream, WHY), PKV_OK); /* close() ends it */
        assert_gpu(gpu->alloc(again, 1 << 16, &address, WHY), PKV_OK);
        assert_gpu(gpu->fill(again, stream, address, 1, 1 << 16, WHY), PKV_OK);
        assert_gpu(gpu->wait_stream(again, stream, WHY), PKV_OK);
        gpu->free(again, address);
        gpu->close(again);
    }
    void *const still = device_bytes(4096); /* the first context is whole */
    free_bytes(still);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_facts_are_those_of_the_device),
        cmocka_unit_test(addresses_are_told_apart),
        cmocka_unit_test(case_J16_copies_of_many_pieces_move_each_byte),
        cmocka_unit_test(kernels_read_and_write_pinned_memory),
        cmocka_unit_test(case_G01_page_65535_of_65536_elements),
        cmocka_unit_test(case_G04_page_262144_of_16384_is_not_page_0),
        cmocka_unit_test(case_G07_a_stride_larger_than_the_page),
        cmocka_unit_test(devices_beside_each_other_keep_their_memory_apart),
        cmocka_unit_test(a_device_is_opened_as_often_as_one_likes),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
