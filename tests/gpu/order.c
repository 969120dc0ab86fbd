/* SPDX-License-Identifier: Apache-2.0 */
/* Work in the order of its streams: nothing waits that need not, arrays keep their values while the device is late,
 * events and words order streams and threads, and errors and the current device are as before. Field cases H07, J01,
 * J04, J19 and J23. */
#include "gpu/rows.h"

#include <pthread.h>

static cudaStream_t make_cuda_stream(void) {
    cudaStream_t stream;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static void nothing_waits_for_the_device(void **state) {
    (void)state;
    needs_device();
    device_pool pool = make_device_pool(1, 4);
    device_rows rows = make_device_rows(4, 1);
    uint32_t *const word = pinned_bytes(64);
    const int64_t slots[4] = {3, 9, 31, 0};
    cudaStream_t const stream = make_cuda_stream();
    hold_stream(stream, word);
    assert_gpu(write_slots(&pool, stream, &rows, slots, 4, true), PKV_OK);
    const int32_t src = 0, dst = 2;
    const uint32_t tokens = 1;
    assert_gpu(gpu->copy_pages(context, stream, pool.layers, 1, 1, &src, &dst, &tokens, 0, WHY), PKV_OK);
    pkv_device_event *event;
    assert_gpu(gpu->make_event(context, 0, &event, WHY), PKV_OK);
    assert_gpu(gpu->query(context, event, WHY), PKV_OK); /* never recorded: it has passed */
    assert_gpu(gpu->record(context, event, stream, WHY), PKV_OK);
    assert_gpu(gpu->query(context, event, WHY), PKV_ERR_AGAIN); /* the calls came back before */
    *(volatile uint32_t *)word = 1;
    assert_gpu(gpu->wait_event(context, event, WHY), PKV_OK);
    assert_gpu(gpu->query(context, event, WHY), PKV_OK);
    check_slots(&pool, &rows, slots, 4);
    unsigned char copied[token_bytes];
    download(copied, pool.memory + place_of(&pool, 0, 1, 16), token_bytes);
    assert_memory_equal(copied, rows.host + 3 * token_bytes, token_bytes);
    gpu->end_event(context, event);
    assert_cuda(cudaStreamDestroy(stream));
    free_pinned(word);
    end_device_rows(&rows);
    free_bytes(pool.memory);
}

/* Arrays too long for parameters, one after another, while the device stands still: each keeps its values. */
static void case_J04_arrays_of_calls_keep_their_values_until_the_device_reads_them(void **state) {
    (void)state;
    needs_device();
    enum { rounds = 12, count = 600 };
    device_pool pool = make_device_pool(1, rounds * count / page_tokens + 1);
    device_rows rows = make_device_rows(count, 2);
    uint32_t *const word = pinned_bytes(64);
    cudaStream_t const stream = make_cuda_stream();
    int64_t slots[count], all[count];
    hold_stream(stream, word);
    for (int round = 0; round < rounds; ++round) {
        for (int i = 0; i < count; ++i) slots[i] = round * count + (count - 1 - i);
        assert_gpu(write_slots(&pool, stream, &rows, slots, count, true), PKV_OK);
        memset(slots, 0, sizeof slots); /* read already */
    }
    assert_cuda(cudaStreamQuery(stream) == cudaErrorNotReady ? cudaSuccess : cudaErrorUnknown);
    *(volatile uint32_t *)word = 1;
    assert_cuda(cudaStreamSynchronize(stream));
    for (int round = 0; round < rounds; ++round) {
        for (int i = 0; i < count; ++i) all[i] = round * count + (count - 1 - i);
        check_slots(&pool, &rows, all, count);
    }
    assert_cuda(cudaStreamDestroy(stream));
    free_pinned(word);
    end_device_rows(&rows);
    free_bytes(pool.memory);
}

static void case_J01_a_stream_that_is_ordered_after_an_event_sees_what_was_before_it(void **state) {
    (void)state;
    needs_device();
    device_pool pool = make_device_pool(1, 4);
    uint32_t *const word = pinned_bytes(64);
    unsigned char *const out = pinned_bytes(page_bytes());
    void *copies;
    assert_gpu(gpu->make_stream(context, 1, &copies, WHY), PKV_OK);
    pkv_device_event *event;
    assert_gpu(gpu->make_event(context, 0, &event, WHY), PKV_OK);
    for (int round = 0; round < 20; ++round) {
        device_rows rows = make_device_rows(page_tokens, 100 + (uint64_t)round);
        int64_t slots[page_tokens];
        for (int i = 0; i < page_tokens; ++i) slots[i] = 8 + i;
        cudaStream_t const stream = make_cuda_stream();
        *word = 0;
        hold_stream(stream, word);
        assert_gpu(write_slots(&pool, stream, &rows, slots, page_tokens, true), PKV_OK);
        if (round % 2 == 0) {
            assert_gpu(gpu->record(context, event, stream, WHY), PKV_OK);
            assert_gpu(gpu->order_after(context, copies, event, WHY), PKV_OK);
        } else { /* an event of the caller's */
            cudaEvent_t own;
            assert_cuda(cudaEventCreateWithFlags(&own, cudaEventDisableTiming));
            assert_cuda(cudaEventRecord(own, stream));
            assert_gpu(gpu->query_caller(context, own, WHY), PKV_ERR_AGAIN);
            assert_gpu(gpu->order_after_caller(context, copies, own, WHY), PKV_OK);
            assert_cuda(cudaEventDestroy(own));
        }
        const pkv_device_copy copy = {out, pool.memory + page_bytes(), page_bytes()};
        assert_gpu(gpu->copy(context, copies, PKV_DEVICE_TO_HOST, &copy, 1, WHY), PKV_OK);
        *(volatile uint32_t *)word = 1;
        assert_gpu(gpu->wait_stream(context, copies, WHY), PKV_OK);
        assert_memory_equal(out, rows.host, page_tokens * token_bytes);
        assert_cuda(cudaStreamSynchronize(stream));
        assert_cuda(cudaStreamDestroy(stream));
        end_device_rows(&rows);
    }
    gpu->end_event(context, event);
    gpu->end_stream(context, copies);
    free_pinned(word);
    free_pinned(out);
    free_bytes(pool.memory);
}

static void a_stream_waits_for_a_word_and_sets_one(void **state) {
    (void)state;
    needs_device();
    uint64_t *const words = pinned_bytes(64);
    uint32_t *const target = device_bytes(64);
    uint32_t got = 0;
    void *stream;
    assert_gpu(gpu->make_stream(context, 0, &stream, WHY), PKV_OK);
    pkv_device_facts facts = {.struct_size = sizeof facts};
    assert_gpu(gpu->facts(context, &facts, WHY), PKV_OK);
    if (!facts.waits_on_words) {
        assert_gpu(gpu->wait_word(context, stream, words, 1, WHY), PKV_ERR_UNSUPPORTED);
        gpu->end_stream(context, stream);
        skip();
    }
    words[0] = 4;
    assert_gpu(gpu->wait_word(context, stream, &words[0], 5, WHY), PKV_OK);
    assert_gpu(gpu->fill(context, stream, target, 0x11, 64, WHY), PKV_OK);
    assert_gpu(gpu->write_word(context, stream, &words[1], UINT64_C(0x123456789ABC), WHY), PKV_OK);
    const struct timespec pause = {0, 20000000};
    nanosleep(&pause, NULL);
    assert_int_equal(*(volatile uint64_t *)&words[1], 0); /* not before its time */
    assert_cuda(cudaStreamQuery(stream) == cudaErrorNotReady ? cudaSuccess : cudaErrorUnknown);
    __atomic_store_n(&words[0], 7, __ATOMIC_RELEASE); /* past it is as good */
    assert_gpu(gpu->wait_stream(context, stream, WHY), PKV_OK);
    assert_true(*(volatile uint64_t *)&words[1] == UINT64_C(0x123456789ABC));
    download(&got, target, sizeof got);
    assert_int_equal(got, 0x11111111);
    assert_gpu(gpu->wait_word(context, stream, (uint64_t *)((char *)words + 4), 1, WHY), PKV_ERR_INVALID);
    gpu->end_stream(context, stream);
    free_pinned(words);
    free_bytes(target);
}

static void time_between_events_is_the_devices(void **state) {
    (void)state;
    needs_device();
    uint32_t *const word = pinned_bytes(64);
    pkv_device_event *from, *to;
    void *stream;
    uint64_t ns = 0;
    assert_gpu(gpu->make_stream(context, 0, &stream, WHY), PKV_OK);
    assert_gpu(gpu->make_event(context, 1, &from, WHY), PKV_OK);
    assert_gpu(gpu->make_event(context, 1, &to, WHY), PKV_OK);
    assert_gpu(gpu->record(context, from, stream, WHY), PKV_OK);
    hold_stream(stream, word);
    assert_gpu(gpu->record(context, to, stream, WHY), PKV_OK);
    assert_gpu(gpu->elapsed_ns(context, from, to, &ns, WHY), PKV_ERR_AGAIN);
    const struct timespec pause = {0, 30000000};
    nanosleep(&pause, NULL);
    *(volatile uint32_t *)word = 1;
    assert_gpu(gpu->wait_event(context, to, WHY), PKV_OK);
    assert_gpu(gpu->elapsed_ns(context, from, to, &ns, WHY), PKV_OK);
    assert_true(ns >= 25000000);
    gpu->end_event(context, from);
    gpu->end_event(context, to);
    gpu->end_stream(context, stream);
    free_pinned(word);
}

/* ---- errors and the current device ---- */

static void case_J19_errors_of_others_are_neither_reported_nor_taken_away(void **state) {
    (void)state;
    needs_device();
    device_pool pool = make_device_pool(1, 4);
    device_rows rows = make_device_rows(2, 3);
    const int64_t slots[2] = {1, 2};
    (void)cudaGetLastError();
    void *nowhere = NULL;
    assert_int_equal(cudaMalloc(&nowhere, UINT64_C(1) << 60), cudaErrorMemoryAllocation); /* the caller's own error */
    assert_int_equal(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
    assert_gpu(write_slots(&pool, NULL, &rows, slots, 2, true), PKV_OK);
    assert_gpu(gpu->wait_stream(context, NULL, WHY), PKV_OK);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation); /* still there */
    check_slots(&pool, &rows, slots, 2);
    /* And the library's own stay with it. */
    assert_gpu(gpu->alloc(context, UINT64_C(1) << 60, &nowhere, WHY), PKV_ERR_NO_MEMORY);
    assert_null(nowhere);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    assert_gpu(gpu->alloc_pinned(context, UINT64_C(1) << 60, &nowhere, WHY), PKV_ERR_NO_MEMORY);
    assert_gpu(write_slots(&pool, NULL, &rows, slots, 2, true), PKV_OK); /* not told again */
    assert_gpu(gpu->wait_stream(context, NULL, WHY), PKV_OK);
    end_device_rows(&rows);
    free_bytes(pool.memory);
}

static void case_H07_a_call_with_nothing_to_do_leaves_no_error(void **state) {
    (void)state;
    needs_device();
    device_pool pool = make_device_pool(1, 4);
    const pkv_device_flat at = flat_of(pool.memory);
    const uint64_t zero = 0;
    const int32_t page = 0;
    (void)cudaGetLastError();
    const pkv_device_gather gather = {.struct_size = sizeof gather,
                                      .num_layers = 1,
                                      .flat_dtype = PKV_DTYPE_F16,
                                      .layers = pool.layers,
                                      .k = &at,
                                      .pages = &page,
                                      .num_pages = 1,
                                      .counts = &zero,
                                      .num_sequences = 1,
                                      .max_count = 8,
                                      .arrays_on_host = 1};
    assert_gpu(write_slots(&pool, NULL, &(device_rows){pool.memory, NULL, 0}, NULL, 0, true), PKV_OK);
    assert_gpu(gpu->gather(context, NULL, &gather, WHY), PKV_OK);
    assert_gpu(gpu->copy_pages(context, NULL, pool.layers, 1, 0, NULL, NULL, NULL, 0, WHY), PKV_OK);
    assert_gpu(gpu->pack(context, NULL, pool.layers, 1, NULL, 0, 0, WHY), PKV_OK);
    assert_gpu(gpu->copy(context, NULL, PKV_DEVICE_TO_HOST, NULL, 0, WHY), PKV_OK);
    assert_gpu(gpu->fill(context, NULL, NULL, 0, 0, WHY), PKV_OK);
    assert_cuda(cudaDeviceSynchronize());
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    free_bytes(pool.memory);
}

static void the_current_device_is_as_before(void **state) {
    (void)state;
    needs_device();
    int count = 0, current = -1;
    assert_cuda(cudaGetDeviceCount(&count));
    const int other = count > 1 ? (device_index == 0 ? 1 : 0) : device_index;
    assert_cuda(cudaSetDevice(other));
    void *address;
    assert_gpu(gpu->alloc(context, 4096, &address, WHY), PKV_OK);
    assert_gpu(gpu->fill(context, NULL, address, 1, 4096, WHY), PKV_OK);
    assert_gpu(gpu->wait_stream(context, NULL, WHY), PKV_OK);
    int32_t kind = -1;
    assert_gpu(gpu->address_kind(context, address, &kind, WHY), PKV_OK);
    assert_int_equal(kind, PKV_ADDRESS_DEVICE);
    gpu->free(context, address);
    assert_cuda(cudaGetDevice(&current));
    assert_int_equal(current, other);
    assert_cuda(cudaSetDevice(device_index));
}

/* ---- threads ---- */

enum { num_threads = 4, writes_of_thread = 200, slots_of_write = 300 };

typedef struct {
    device_pool *pool;
    device_rows *rows;
    int number;
    pkv_status status;
} writer;

static void *write_much(void *argument) {
    writer *const w = argument;
    char reason[256];
    void *stream = NULL;
    w->status = gpu->make_stream(context, w->number % 2, &stream, reason, sizeof reason);
    const pkv_device_flat at = flat_of(w->rows->device);
    for (int round = 0; round < writes_of_thread && w->status == PKV_OK; ++round) {
        int64_t slots[slots_of_write];
        for (int i = 0; i < slots_of_write; ++i) slots[i] = w->number * slots_of_write + (i + round) % slots_of_write;
        const pkv_device_write write = {
            sizeof write, 1, PKV_DTYPE_F16, w->pool->layers, &at, &at, slots, slots_of_write, 8, 1, 0, 0};
        w->status = gpu->write(context, stream, &write, reason, sizeof reason);
    }
    if (w->status == PKV_OK) w->status = gpu->wait_stream(context, stream, reason, sizeof reason);
    if (w->status != PKV_OK) print_error("thread %d: %s\n", w->number, reason);
    gpu->end_stream(context, stream);
    return NULL;
}

static void threads_with_streams_of_their_own_do_not_disturb_each_other(void **state) {
    (void)state;
    needs_device();
    device_pool pool = make_device_pool(1, num_threads * slots_of_write / page_tokens + 1);
    device_rows rows = make_device_rows(slots_of_write, 5);
    pthread_t threads[num_threads];
    writer writers[num_threads];
    for (int i = 0; i < num_threads; ++i) {
        writers[i] = (writer){&pool, &rows, i, PKV_OK};
        assert_int_equal(pthread_create(&threads[i], NULL, write_much, &writers[i]), 0);
    }
    for (int i = 0; i < num_threads; ++i) pthread_join(threads[i], NULL);
    for (int i = 0; i < num_threads; ++i) {
        int64_t slots[slots_of_write];
        assert_int_equal(writers[i].status, PKV_OK);
        for (int j = 0; j < slots_of_write; ++j)
            slots[j] = i * slots_of_write + (j + writes_of_thread - 1) % slots_of_write;
        check_slots(&pool, &rows, slots, slots_of_write);
    }
    end_device_rows(&rows);
    free_bytes(pool.memory);
}

static void streams_have_ids_of_their_own(void **state) {
    (void)state;
    needs_device();
    void *a, *b;
    assert_gpu(gpu->make_stream(context, 0, &a, WHY), PKV_OK);
    assert_gpu(gpu->make_stream(context, 0, &b, WHY), PKV_OK);
    const uint64_t first = gpu->stream_id(context, a);
    if (first != 0) {
        assert_true(first != gpu->stream_id(context, b));
        assert_true(first == gpu->stream_id(context, a));
        gpu->end_stream(context, a);
        assert_gpu(gpu->make_stream(context, 0, &a, WHY), PKV_OK); /* perhaps with the same handle */
        assert_true(first != gpu->stream_id(context, a));
    }
    gpu->end_stream(context, a);
    gpu->end_stream(context, b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_waits_for_the_device),
        cmocka_unit_test(case_J04_arrays_of_calls_keep_their_values_until_the_device_reads_them),
        cmocka_unit_test(case_J01_a_stream_that_is_ordered_after_an_event_sees_what_was_before_it),
        cmocka_unit_test(a_stream_waits_for_a_word_and_sets_one),
        cmocka_unit_test(time_between_events_is_the_devices),
        cmocka_unit_test(case_J19_errors_of_others_are_neither_reported_nor_taken_away),
        cmocka_unit_test(case_H07_a_call_with_nothing_to_do_leaves_no_error),
        cmocka_unit_test(the_current_device_is_as_before),
        cmocka_unit_test(threads_with_streams_of_their_own_do_not_disturb_each_other),
        cmocka_unit_test(streams_have_ids_of_their_own),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
