/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and gathers in CUDA graphs: captured once with upper bounds, replayed with other slots, pages and rows on
 * the device; what a capture cannot hold is refused and leaves the capture whole. Field case J17 as far as memory
 * goes: what a graph reads besides its own parameters is the caller's. */
#include "gpu/rows.h"

enum { most_rows = 16, num_pages = 8 };

typedef struct {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
} captured;

static captured begin_capture(enum cudaStreamCaptureMode mode) {
    captured c = {0};
    assert_cuda(cudaStreamCreateWithFlags(&c.stream, cudaStreamNonBlocking));
    assert_cuda(cudaStreamBeginCapture(c.stream, mode));
    int32_t capturing = 0;
    assert_gpu(gpu->capturing(context, c.stream, &capturing, WHY), PKV_OK);
    assert_int_equal(capturing, 1);
    return c;
}

static void end_capture(captured *c) {
    assert_cuda(cudaStreamEndCapture(c->stream, &c->graph));
    assert_cuda(cudaGraphInstantiate(&c->exec, c->graph, 0));
    int32_t capturing = 1;
    assert_gpu(gpu->capturing(context, c->stream, &capturing, WHY), PKV_OK);
    assert_int_equal(capturing, 0);
}

static void replay(captured *c) {
    assert_cuda(cudaGraphLaunch(c->exec, c->stream));
    assert_cuda(cudaStreamSynchronize(c->stream));
}

static void end_captured(captured *c) {
    assert_cuda(cudaGraphExecDestroy(c->exec));
    assert_cuda(cudaGraphDestroy(c->graph));
    assert_cuda(cudaStreamDestroy(c->stream));
}

/* Write and gather in one graph. Each replay has other rows, other slots (some -1), another table and other counts. */
static void graphs_are_replayed_with_other_arrays(void **state) {
    (void)state;
    needs_device();
    for (uint32_t num_layers = 1; num_layers <= 3; num_layers += 2) {
        device_pool pool = make_device_pool(num_layers, num_pages);
        unsigned char *const model = malloc(pool.bytes);
        download(model, pool.memory, pool.bytes);
        unsigned char *const rows = device_bytes(most_rows * token_bytes), *const out = device_bytes(2 * most_rows *
                                                                                                     token_bytes);
        int64_t *const slots = device_bytes(most_rows * sizeof *slots);
        int32_t *const pages = device_bytes(2 * 2 * sizeof *pages);
        uint64_t *const numbers = device_bytes(6 * sizeof *numbers); /* first, counts, out_first of two sequences */
        pkv_device_flat in[3], out_at[3];
        for (int i = 0; i < 3; ++i) in[i] = flat_of(rows), out_at[i] = flat_of(out);
        const pkv_device_write write = {
            sizeof write, num_layers, PKV_DTYPE_F16, pool.layers, in, in, slots, most_rows, 8, 0, 0, 0};
        const pkv_device_gather gather = {.struct_size = sizeof gather,
                                          .num_layers = 1,
                                          .flat_dtype = PKV_DTYPE_F16,
                                          .layers = pool.layers,
                                          .k = out_at,
                                          .pages = pages,
                                          .pages_stride = 2,
                                          .num_pages = 4,
                                          .first = numbers,
                                          .counts = numbers + 2,
                                          .out_first = numbers + 4,
                                          .num_sequences = 2,
                                          .max_count = most_rows,
                                          .padded = most_rows};
        captured c = begin_capture(num_layers == 1 ? cudaStreamCaptureModeGlobal : cudaStreamCaptureModeThreadLocal);
        assert_gpu(gpu->write(context, c.stream, &write, WHY), PKV_OK);
        assert_gpu(gpu->gather(context, c.stream, &gather, WHY), PKV_OK);
        end_capture(&c);
        unsigned char *const all = malloc(pool.bytes);
        download(all, pool.memory, pool.bytes);
        assert_memory_equal(all, model, pool.bytes); /* captured is not done */
        test_random random = {num_layers};
        for (int round = 0; round < 10; ++round) {
            unsigned char row_values[most_rows * token_bytes], got[2 * most_rows * token_bytes];
            int64_t slot_values[most_rows];
            int32_t table[2][2];
            uint64_t values[6];
            for (size_t i = 0; i < sizeof row_values; ++i) row_values[i] = (unsigned char)next_random(&random);
            const uint64_t start = random_below(&random, num_pages * page_tokens);
            for (uint64_t i = 0; i < most_rows; ++i) {
                slot_values[i] =
                    (int64_t)((start + i * 3) % (num_pages * page_tokens - 1)); /* 63 and 3: no equals in 16 */
                if (random_below(&random, 3) == 0) slot_values[i] = -1;
                for (uint64_t j = 0; j < i; ++j)
                    if (slot_values[j] == slot_values[i]) slot_values[i] = -1;
                for (uint32_t layer = 0; slot_values[i] >= 0 && layer < num_layers; ++layer)
                    for (int side = 0; side < 2; ++side)
                        memcpy(model + place_of(&pool, layer, side, (uint64_t)slot_values[i]),
                               row_values + i * token_bytes, token_bytes);
            }
            for (int s = 0; s < 2; ++s) {
                for (int b = 0; b < 2; ++b) table[s][b] = (int32_t)random_below(&random, num_pages);
                values[s] = random_below(&random, 2 * page_tokens);
                values[2 + s] = random_below(&random, 2 * page_tokens - values[s] + 1);
                values[4 + s] = (uint64_t)s * most_rows;
            }
            upload(rows, row_values, sizeof row_values);
            upload(slots, slot_values, sizeof slot_values);
            upload(pages, table, sizeof table);
            upload(numbers, values, sizeof values);
            replay(&c);
            download(all, pool.memory, pool.bytes);
            assert_memory_equal(all, model, pool.bytes);
            download(got, out, sizeof got);
            for (uint64_t s = 0; s < 2; ++s)
                for (uint64_t t = 0; t < most_rows; ++t) {
                    static const unsigned char zeros[token_bytes];
                    const uint64_t token = values[s] + t;
                    const unsigned char *expected = zeros;
                    if (t < values[2 + s])
                        expected = model + place_of(&pool, 0, 0,
                                                    (uint64_t)table[s][token / page_tokens] * page_tokens +
                                                        token % page_tokens);
                    assert_memory_equal(got + (s * most_rows + t) * token_bytes, expected, token_bytes);
                }
        }
        end_captured(&c);
        free(all);
        free(model);
        free_bytes(pool.memory);
        free_bytes(rows);
        free_bytes(out);
        free_bytes(slots);
        free_bytes(pages);
        free_bytes(numbers);
    }
}

static void short_host_arrays_are_part_of_the_graph(void **state) {
    (void)state;
    needs_device();
    device_pool pool = make_device_pool(1, 4);
    device_rows rows = make_device_rows(3, 9);
    int64_t slots[3] = {5, 30, 2};
    const int64_t kept[3] = {5, 30, 2};
    captured c = begin_capture(cudaStreamCaptureModeGlobal);
    assert_gpu(write_slots(&pool, c.stream, &rows, slots, 3, true), PKV_OK);
    end_capture(&c);
    memset(slots, 0, sizeof slots);
    replay(&c);
    check_slots(&pool, &rows, kept, 3);
    end_captured(&c);
    end_device_rows(&rows);
    free_bytes(pool.memory);
}

static void long_host_arrays_are_refused_and_the_capture_goes_on(void **state) {
    (void)state;
    needs_device();
    enum { many = PKV_DEVICE_INLINE_BYTES / 8 + 1 };
    device_pool pool = make_device_pool(1, many / page_tokens + 1);
    device_rows rows = make_device_rows(many, 10);
    int64_t slots[many];
    for (int i = 0; i < many; ++i) slots[i] = i;
    captured c = begin_capture(cudaStreamCaptureModeGlobal);
    assert_gpu(write_slots(&pool, c.stream, &rows, slots, many, true), PKV_ERR_CAPTURE);
    assert_non_null(strstr(why, "captured"));
    assert_gpu(write_slots(&pool, c.stream, &rows, slots, many - 1, true), PKV_OK);
    end_capture(&c);
    replay(&c);
    check_slots(&pool, &rows, slots, many - 1);
    assert_gpu(write_slots(&pool, c.stream, &rows, slots, many, true), PKV_OK); /* not captured any more */
    assert_cuda(cudaStreamSynchronize(c.stream));
    check_slots(&pool, &rows, slots, many);
    end_captured(&c);
    end_device_rows(&rows);
    free_bytes(pool.memory);
}

/* Layers of two shapes, of which the second needs more than travels with a launch. */
static void of_a_call_that_is_refused_nothing_is_captured(void **state) {
    (void)state;
    needs_device();
    enum { entries = (PKV_DEVICE_INLINE_BYTES - 32) / 4, slices = 2 * PKV_DEVICE_INLINE_BYTES / 24 };
    device_pool pool = make_device_pool(2, 4);
    unsigned char *const out = device_bytes(16 * token_bytes), *const images = device_bytes(slices * page_bytes());
    pkv_device_flat at[2] = {flat_of(out), flat_of(out)};
    at[1].token_stride *= 2;
    int32_t pages[2 * entries] = {0};
    pkv_device_gather gather = {.struct_size = sizeof gather,
                                .num_layers = 2,
                                .flat_dtype = PKV_DTYPE_F16,
                                .layers = pool.layers,
                                .k = at,
                                .pages = pages,
                                .num_pages = 2 * entries,
                                .num_sequences = 1,
                                .max_count = 8,
                                .arrays_on_host = 1};
    pkv_device_slice list[slices];
    for (int i = 0; i < slices; ++i) /* one of the first layer, many of the second */
        list[i] = (pkv_device_slice){
            i == 0 ? 0 : 1, 1, PKV_LAYOUT_NHD, page_tokens, images + (uint64_t)i * page_bytes(), NULL};
    pool.layers[1].num_pages = 3; /* another shape */
    captured c = begin_capture(cudaStreamCaptureModeGlobal);
    assert_gpu(gpu->gather(context, c.stream, &gather, WHY), PKV_ERR_CAPTURE);
    assert_gpu(gpu->pack(context, c.stream, pool.layers, 2, list, slices, 0, WHY), PKV_ERR_CAPTURE);
    end_capture(&c);
    size_t nodes = 1;
    assert_cuda(cudaGraphGetNodes(c.graph, NULL, &nodes));
    assert_int_equal(nodes, 0);
    end_captured(&c);
    free_bytes(out);
    free_bytes(images);
    free_bytes(pool.memory);
}

/* The library's own work goes on while somebody else captures, in the strictest mode. */
static void work_on_other_streams_does_not_disturb_a_capture(void **state) {
    (void)state;
    needs_device();
    device_pool pool = make_device_pool(1, 200);
    device_rows rows = make_device_rows(1200, 11);
    int64_t slots[1200];
    for (int i = 0; i < 1200; ++i) slots[i] = 1199 - i;
    void *stream;
    assert_gpu(gpu->make_stream(context, 0, &stream, WHY), PKV_OK);
    launch_nothing(NULL, 1, 1); /* the test's own kernel is loaded when it is used first */
    assert_cuda(cudaDeviceSynchronize());
    captured c = begin_capture(cudaStreamCaptureModeGlobal);
    assert_gpu(write_slots(&pool, stream, &rows, slots, 1200, true), PKV_OK); /* staged: events, perhaps allocations */
    pkv_device_event *event;
    assert_gpu(gpu->make_event(context, 0, &event, WHY), PKV_OK);
    assert_gpu(gpu->record(context, event, stream, WHY), PKV_OK);
    assert_gpu(gpu->wait_event(context, event, WHY), PKV_OK);
    assert_gpu(gpu->query(context, event, WHY), PKV_OK);
    void *address;
    assert_gpu(gpu->alloc(context, 1 << 20, &address, WHY), PKV_OK);
    gpu->free(context, address);
    gpu->end_event(context, event);
    launch_nothing(c.stream, 1, 1);
    end_capture(&c);
    replay(&c);
    check_slots(&pool, &rows, slots, 1200);
    end_captured(&c);
    gpu->end_stream(context, stream);
    end_device_rows(&rows);
    free_bytes(pool.memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_are_replayed_with_other_arrays),
        cmocka_unit_test(short_host_arrays_are_part_of_the_graph),
        cmocka_unit_test(long_host_arrays_are_refused_and_the_capture_goes_on),
        cmocka_unit_test(of_a_call_that_is_refused_nothing_is_captured),
        cmocka_unit_test(work_on_other_streams_does_not_disturb_a_capture),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
