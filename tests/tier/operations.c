/* SPDX-License-Identifier: Apache-2.0 */
/* Pages by key: operations that end once, whatever the tier does; queues that hand each end out once; pages that stay in use
 * until nothing writes them any more. */
#include "tier/faulty.h"

enum { tag = 7, blocks = 5, tokens = blocks * tiered_page_tokens };

static const uint64_t long_time = UINT64_C(300) * one_second; /* longer than eventually() waits */

typedef struct {
    faulty *f;
    pkv_pool *pool;
    pkv_queue *queue;
    pkv_page pages[blocks]; /* held; where the images go */
    pkv_tier_key keys[blocks];
} fixture;

/* Five images below a pool, and five pages to load them into. */
static fixture begin(void) {
    fixture x;
    x.f = faulty_open();
    x.pool = pool_on_faulty(16, x.f, PKV_TIER_WRITE_BACK, 0);
    compute(x.pool, 1, tokens, tag);
    push_down(x.pool);
    assert_ok(pkv_pool_alloc(x.pool, 0, blocks, x.pages));
    pkv_token names[tokens];
    count_up(names, tokens, 1);
    const pkv_prompt prompt = prompt_of(names, tokens);
    uint64_t count = 0;
    assert_ok(pkv_pool_image_keys(x.pool, 0, &prompt, x.keys, blocks, &count));
    assert_int_equal(count, blocks);
    assert_ok(pkv_queue_create(&x.queue));
    return x;
}

static void end(fixture *x) {
    release_pages(x->pool, x->pages, blocks);
    eventually(stats_of(x->pool).held_pages == 0);
    end_pool(x->pool);
    assert_ok(pkv_queue_destroy(x->queue));
    faulty_end(x->f);
}

static pkv_op *load(fixture *x, uint64_t count, uint64_t user, uint64_t timeout_ns) {
    pkv_op_options options = PKV_OP_OPTIONS_INIT;
    options.queue = x->queue;
    options.user = user;
    options.timeout_ns = timeout_ns;
    pkv_op *op = NULL;
    assert_ok(pkv_pool_load(x->pool, 0, count, x->keys, x->pages, NULL, &options, &op));
    return op;
}

static pkv_op_info op_info(pkv_op *op) {
    pkv_op_info info = PKV_OP_INFO_INIT;
    assert_ok(pkv_op_poll(op, &info, NULL, 0));
    return info;
}

static void check_one_completion(fixture *x, uint64_t user, pkv_op *op, pkv_status status) {
    pkv_completion completions[4];
    uint64_t count = 0;
    assert_ok(pkv_queue_drain(x->queue, completions, 4, 60ull * one_second, &count));
    assert_int_equal(count, 1);
    assert_int_equal(completions[0].user, user);
    assert_ptr_equal(completions[0].op, op);
    assert_int_equal(completions[0].status, status);
    assert_status(pkv_queue_drain(x->queue, completions, 4, 0, &count), PKV_ERR_TIMEOUT);
}

/* Publishes the loaded pages as another prompt's, and compares their rows. */
static void check_loaded(fixture *x, uint64_t count) {
    for (uint64_t block = 0; block < count; ++block) {
        uint16_t data[2][32];
        pkv_tensor rows[2] = {PKV_TENSOR_INIT, PKV_TENSOR_INIT};
        for (int i = 0; i < 2; ++i) {
            rows[i].data = data[i];
            rows[i].dtype = PKV_DTYPE_F16;
            rows[i].num_tokens = 4;
        }
        uint16_t expected[2][32];
        for (uint32_t layer = 0; layer < 2; ++layer) {
            assert_ok(pkv_pool_gather(x->pool, 0, layer, 1, &x->pages[block], 0, 4, &rows[0], &rows[1], NULL));
            memcpy(expected, data, sizeof data);
            /* The same rows as a sequence that has the prompt from below. */
            pkv_table *table = admit_again(x->pool, 1, tokens, NULL);
            assert_ok(pkv_table_gather(table, 0, layer, block * 4, 4, &rows[0], &rows[1], NULL));
            assert_memory_equal(expected, data, sizeof data);
            check_rows(table, 0, tokens, tag);
            end_table(table);
        }
    }
}

static void images_are_loaded_into_pages_of_the_callers(void **state) {
    (void)state;
    fixture x = begin();
    pkv_op *op = load(&x, blocks, 11, 0);
    assert_ok(pkv_op_wait(op, 60ull * one_second));
    eventually(op_info(op).buffers_free == 1);
    assert_int_equal(op_info(op).state, PKV_OP_ENDED);
    assert_int_equal(op_info(op).good_items, blocks);
    check_one_completion(&x, 11, op, PKV_OK);
    assert_ok(pkv_op_close(op));
    check_loaded(&x, blocks);
    end(&x);
}

static void each_item_has_a_status_of_its_own(void **state) {
    (void)state;
    fixture x = begin();
    memset(&x.keys[1], 0xAB, sizeof x.keys[1]);
    faulty_script(x.f, PKV_TIER_LOAD, 2, 1, fault_status, PKV_ERR_IO);
    faulty_script(x.f, PKV_TIER_LOAD, 2, 1, fault_flip, 5000);
    pkv_op *op = load(&x, blocks, 1, 0);
    assert_status(pkv_op_wait(op, 60ull * one_second), PKV_ERR_NOT_FOUND);
    pkv_op_info info = PKV_OP_INFO_INIT;
    pkv_status statuses[blocks];
    assert_ok(pkv_op_poll(op, &info, statuses, blocks));
    const pkv_status expected[blocks] = {PKV_OK, PKV_ERR_NOT_FOUND, PKV_ERR_IO, PKV_ERR_IO, PKV_OK};
    assert_memory_equal(statuses, expected, sizeof expected);
    assert_int_equal(info.done_items, blocks);
    assert_int_equal(info.good_items, 2);
    assert_int_equal(info.status, PKV_ERR_NOT_FOUND);
    check_one_completion(&x, 1, op, PKV_ERR_NOT_FOUND);
    assert_ok(pkv_op_close(op));
    end(&x);
}

static void case_K01_an_operation_that_has_not_begun_is_running(void **state) {
    (void)state;
    fixture x = begin();
    faulty_block(x.f, true);
    pkv_op *op = load(&x, blocks, 1, long_time);
    pkv_op_info info = PKV_OP_INFO_INIT;
    pkv_status statuses[blocks];
    assert_ok(pkv_op_poll(op, &info, statuses, blocks));
    assert_int_equal(info.state, PKV_OP_RUNNING);
    assert_int_equal(info.num_items, blocks);
    assert_int_equal(info.done_items, 0);
    assert_int_equal(info.buffers_free, 0);
    for (int i = 0; i < blocks; ++i) assert_int_equal(statuses[i], PKV_ERR_BUSY);
    assert_status(pkv_op_wait(op, 0), PKV_ERR_TIMEOUT);
    faulty_block(x.f, false);
    assert_ok(pkv_op_wait(op, 60ull * one_second));
    assert_ok(pkv_op_close(op));
    end(&x);
}

static void case_K07_a_cancelled_load_ends_once_and_says_when_its_pages_are_free(void **state) {
    (void)state;
    fixture x = begin();
    faulty_block(x.f, true);
    pkv_op *op = load(&x, blocks, 5, long_time);
    eventually(faulty_waiting(x.f) == blocks);
    assert_ok(pkv_op_cancel(op));
    assert_ok(pkv_op_cancel(op));
    assert_status(pkv_op_wait(op, 60ull * one_second), PKV_ERR_CANCELLED);
    check_one_completion(&x, 5, op, PKV_ERR_CANCELLED);
    assert_int_equal(op_info(op).done_items, blocks);
    eventually(op_info(op).buffers_free == 1);
    eventually(page_of(x.pool, x.pages[0]).count == 1);
    /* The tier answers now: what it writes is not in these pages any more. */
    pkv_slot slots[4];
    for (int i = 0; i < 4; ++i) slots[i] = x.pages[0] * 4 + i;
    uint16_t data[32], back[32];
    memset(data, 0x11, sizeof data);
    pkv_tensor rows = PKV_TENSOR_INIT, out = PKV_TENSOR_INIT;
    rows.data = data;
    out.data = back;
    rows.dtype = out.dtype = PKV_DTYPE_F16;
    rows.num_tokens = out.num_tokens = 4;
    assert_ok(pkv_pool_write(x.pool, 0, 0, 4, slots, &rows, &rows, NULL));
    faulty_block(x.f, false);
    eventually(tier_stats(x.f->tier).open_requests == 0);
    assert_ok(pkv_pool_gather(x.pool, 0, 0, 1, x.pages, 0, 4, &out, NULL, NULL));
    assert_memory_equal(data, back, sizeof data);
    assert_ok(pkv_op_close(op));
    end(&x);
}

static void case_K07_a_cancelled_store_ends_once_too(void **state) {
    (void)state;
    fixture x = begin();
    for (int i = 0; i < blocks; ++i) x.keys[i].bytes[0] ^= 0xFF;
    faulty_block(x.f, true);
    pkv_op_options options = PKV_OP_OPTIONS_INIT;
    options.queue = x.queue;
    options.timeout_ns = long_time;
    pkv_op *op = NULL;
    assert_ok(pkv_pool_store(x.pool, 0, blocks, x.keys, x.pages, NULL, &options, &op));
    eventually(faulty_waiting(x.f) == blocks);
    assert_ok(pkv_op_cancel(op));
    assert_status(pkv_op_wait(op, 60ull * one_second), PKV_ERR_CANCELLED);
    check_one_completion(&x, 0, op, PKV_ERR_CANCELLED);
    eventually(op_info(op).buffers_free == 1);
    assert_ok(pkv_op_close(op));
    end(&x);
}

static void case_K11_what_was_loaded_before_a_cancel_is_good_and_nothing_is_published(void **state) {
    (void)state;
    fixture x = begin();
    faulty_script(x.f, PKV_TIER_LOAD, 3, 2, fault_hold, 0);
    pkv_op *op = load(&x, blocks, 1, long_time);
    eventually(faulty_held(x.f) == 2);
    eventually(tier_stats(x.f->tier).loads == 3);
    assert_ok(pkv_op_cancel(op));
    assert_status(pkv_op_wait(op, 60ull * one_second), PKV_ERR_CANCELLED);
    pkv_op_info info = PKV_OP_INFO_INIT;
    pkv_status statuses[blocks];
    assert_ok(pkv_op_poll(op, &info, statuses, blocks));
    const pkv_status expected[blocks] = {PKV_OK, PKV_OK, PKV_OK, PKV_ERR_CANCELLED, PKV_ERR_CANCELLED};
    assert_memory_equal(statuses, expected, sizeof expected);
    pkv_token names[tokens];
    count_up(names, tokens, 1);
    const pkv_prompt prompt = prompt_of(names, tokens);
    assert_int_equal(probe_tokens(x.pool, &prompt), 0);
    faulty_let_go(x.f);
    check_loaded(&x, 3);
    assert_ok(pkv_op_close(op));
    end(&x);
}

static void a_load_that_is_not_answered_times_out(void **state) {
    (void)state;
    fixture x = begin();
    faulty_script(x.f, PKV_TIER_LOAD, 1, 1, fault_hold, 0);
    pkv_op *op = load(&x, 3, 2, 800000000);
    assert_status(pkv_op_wait(op, 60ull * one_second), PKV_ERR_TIMEOUT);
    check_one_completion(&x, 2, op, PKV_ERR_TIMEOUT);
    assert_int_equal(op_info(op).good_items, 2);
    assert_int_equal(tier_stats(x.f->tier).timeouts, 1);
    eventually(op_info(op).buffers_free == 1);
    assert_ok(pkv_op_close(op));
    end(&x);
}

static void case_K04_the_second_operation_goes_on_when_the_first_is_cancelled(void **state) {
    (void)state;
    fixture x = begin();
    faulty_script(x.f, PKV_TIER_LOAD, 0, 2, fault_hold, 0);
    pkv_op *first = load(&x, 2, 1, long_time), *second = load(&x, blocks, 2, long_time);
    eventually(faulty_held(x.f) == 2);
    assert_ok(pkv_op_cancel(first));
    assert_status(pkv_op_wait(first, 60ull * one_second), PKV_ERR_CANCELLED);
    assert_ok(pkv_op_wait(second, 60ull * one_second));
    faulty_let_go(x.f);
    check_loaded(&x, blocks);
    assert_ok(pkv_op_close(first));
    assert_ok(pkv_op_close(second));
    end(&x);
}

static void an_operation_that_waits_behind_another_can_be_cancelled(void **state) {
    (void)state;
    fixture x = begin();
    faulty_block(x.f, true);
    pkv_op *first = load(&x, 2, 1, long_time), *second = load(&x, 2, 2, long_time);
    assert_ok(pkv_op_cancel(second));
    assert_status(pkv_op_wait(second, 60ull * one_second), PKV_ERR_CANCELLED);
    check_one_completion(&x, 2, second, PKV_ERR_CANCELLED);
    assert_int_equal(op_info(first).state, PKV_OP_RUNNING);
    faulty_block(x.f, false);
    assert_ok(pkv_op_wait(first, 60ull * one_second));
    assert_ok(pkv_op_close(first));
    assert_ok(pkv_op_close(second));
    end(&x);
}

static void the_longest_time_limit_is_no_limit(void **state) {
    (void)state;
    fixture x = begin();
    pkv_op *op = load(&x, 2, 1, UINT64_MAX);
    assert_ok(pkv_op_wait(op, 60ull * one_second));
    assert_ok(pkv_op_close(op));
    end(&x);
}

static void an_operation_that_waits_behind_another_times_out(void **state) {
    (void)state;
    fixture x = begin();
    faulty_block(x.f, true);
    pkv_op *first = load(&x, 2, 1, long_time), *second = load(&x, 2, 2, 20000000);
    assert_status(pkv_op_wait(second, 5ull * one_second), PKV_ERR_TIMEOUT);
    assert_int_equal(op_info(second).state, PKV_OP_ENDED);
    faulty_block(x.f, false);
    assert_ok(pkv_op_wait(first, 60ull * one_second));
    assert_ok(pkv_op_close(first));
    assert_ok(pkv_op_close(second));
    end(&x);
}

static void case_C05_operations_cancelled_at_once_leave_nothing_behind(void **state) {
    (void)state;
    fixture x = begin();
    for (uint64_t i = 0; i < 100; ++i) {
        pkv_op *op = load(&x, 2, i, long_time);
        assert_ok(pkv_op_cancel(op));
        assert_ok(pkv_op_close(op));
    }
    pkv_op *op = load(&x, blocks, 100, 0);
    assert_ok(pkv_op_wait(op, 60ull * one_second));
    assert_ok(pkv_op_close(op));
    uint64_t ends[101] = {0}, sum = 0;
    while (sum < 101) {
        pkv_completion completions[7];
        uint64_t count = 0;
        assert_ok(pkv_queue_drain(x.queue, completions, 7, 60ull * one_second, &count));
        for (uint64_t i = 0; i < count; ++i) ++ends[completions[i].user];
        sum += count;
    }
    for (int i = 0; i <= 100; ++i) assert_int_equal(ends[i], 1);
    for (int i = 0; i < blocks; ++i) eventually(page_of(x.pool, x.pages[i]).count == 1);
    end(&x);
}

static void case_K05_a_load_cancelled_before_its_first_page_ends_well(void **state) {
    (void)state;
    fixture x = begin();
    faulty_block(x.f, true);
    pkv_op *op = load(&x, blocks, 1, long_time);
    assert_ok(pkv_op_cancel(op));
    assert_status(pkv_op_wait(op, 60ull * one_second), PKV_ERR_CANCELLED);
    assert_int_equal(op_info(op).good_items, 0);
    assert_ok(pkv_op_close(op));
    faulty_block(x.f, false);
    end(&x);
}

static void case_C01_pages_come_back_although_an_answer_never_does(void **state) {
    (void)state;
    fixture x = begin();
    faulty_script(x.f, PKV_TIER_LOAD, 0, blocks, fault_hold, 0);
    pkv_op *op = load(&x, blocks, 1, long_time);
    eventually(faulty_held(x.f) == blocks);
    assert_ok(pkv_op_cancel(op));
    assert_ok(pkv_op_close(op));
    release_pages(x.pool, x.pages, blocks);
    eventually(stats_of(x.pool).free_pages == 16);
    /* case C02: the completions that come after that change nothing. */
    faulty_let_go(x.f);
    eventually(tier_stats(x.f->tier).open_requests == 0);
    assert_int_equal(stats_of(x.pool).free_pages, 16);
    assert_ok(pkv_pool_alloc(x.pool, 0, blocks, x.pages));
    end(&x);
}

static void case_K10_too_many_operations_are_refused(void **state) {
    (void)state;
    fixture x = begin();
    for (int i = 0; i < blocks; ++i) x.keys[i].bytes[0] ^= 0xFF;
    faulty_block(x.f, true);
    pkv_op_options options = PKV_OP_OPTIONS_INIT;
    options.queue = x.queue;
    options.timeout_ns = long_time;
    uint64_t begun = 0;
    for (; begun < 10000; ++begun) {
        options.user = begun;
        const pkv_status status = pkv_pool_store(x.pool, 0, 1, x.keys, x.pages, NULL, &options, NULL);
        if (status == PKV_ERR_BUSY) break;
        assert_int_equal(status, PKV_OK);
    }
    assert_in_range(begun, 1024, 1100);
    assert_in_range(page_of(x.pool, x.pages[0]).count, 1, begun + 1);
    faulty_block(x.f, false);
    uint8_t *ends = calloc(begun, 1);
    for (uint64_t sum = 0; sum < begun;) {
        pkv_completion completions[64];
        uint64_t count = 0;
        assert_ok(pkv_queue_drain(x.queue, completions, 64, 60ull * one_second, &count));
        sum += count;
        for (uint64_t i = 0; i < count; ++i) {
            assert_int_equal(completions[i].status, PKV_OK);
            ++ends[completions[i].user];
            assert_ok(pkv_op_close(completions[i].op));
        }
    }
    for (uint64_t i = 0; i < begun; ++i) assert_int_equal(ends[i], 1);
    free(ends);
    pkv_completion completion;
    uint64_t count = 0;
    assert_status(pkv_queue_drain(x.queue, &completion, 1, 0, &count), PKV_ERR_TIMEOUT);
    pkv_op *op = NULL; /* a later try succeeds */
    assert_ok(pkv_pool_store(x.pool, 0, 1, x.keys, x.pages, NULL, NULL, &op));
    assert_ok(pkv_op_wait(op, 60ull * one_second));
    assert_ok(pkv_op_close(op));
    end(&x);
}

static void case_C08_storing_a_page_often_leaves_its_count(void **state) {
    (void)state;
    fixture x = begin();
    x.keys[0].bytes[0] ^= 0xFF;
    for (int i = 0; i < 10; ++i) {
        pkv_op *op = NULL;
        assert_ok(pkv_pool_store(x.pool, 0, 1, x.keys, x.pages, NULL, NULL, &op));
        assert_ok(pkv_op_wait(op, 60ull * one_second));
        assert_ok(pkv_op_close(op));
    }
    eventually(page_of(x.pool, x.pages[0]).count == 1);
    assert_int_equal(faulty_images(x.f), blocks + 1);
    end(&x);
}

static void an_operation_may_outlive_its_handle_and_its_queue(void **state) {
    (void)state;
    fixture x = begin();
    faulty_block(x.f, true);
    pkv_op *op = load(&x, blocks, 1, long_time), *other = load(&x, 2, 2, long_time);
    assert_ok(pkv_op_close(op)); /* case K08: closed while it is under way */
    assert_status(pkv_op_wait(op, 0), PKV_ERR_HANDLE);
    faulty_block(x.f, false);
    assert_ok(pkv_op_wait(other, 60ull * one_second));
    assert_ok(pkv_op_close(other));
    faulty_block(x.f, true);
    op = load(&x, blocks, 3, long_time);
    assert_ok(pkv_queue_destroy(x.queue));
    faulty_block(x.f, false);
    assert_ok(pkv_op_wait(op, 60ull * one_second));
    assert_ok(pkv_op_close(op));
    assert_ok(pkv_queue_create(&x.queue));
    end(&x);
}

static void a_pool_destroyed_ends_its_operations(void **state) {
    (void)state;
    fixture x = begin();
    faulty_block(x.f, true);
    pkv_op *ops[4];
    for (uint64_t i = 0; i < 3; ++i) ops[i] = load(&x, 2, i, long_time);
    pkv_op_options options = PKV_OP_OPTIONS_INIT;
    options.queue = x.queue;
    options.user = 3;
    options.timeout_ns = long_time;
    x.keys[0].bytes[0] ^= 0xFF;
    assert_ok(pkv_pool_store(x.pool, 0, 1, x.keys, x.pages, NULL, &options, &ops[3]));
    assert_ok(pkv_pool_destroy(x.pool)); /* the tier is still blocked */
    uint64_t ends[4] = {0};
    for (uint64_t sum = 0; sum < 4;) {
        pkv_completion completions[4];
        uint64_t count = 0;
        assert_ok(pkv_queue_drain(x.queue, completions, 4, 60ull * one_second, &count));
        sum += count;
        for (uint64_t i = 0; i < count; ++i) {
            ++ends[completions[i].user];
            assert_int_equal(completions[i].status, PKV_ERR_CANCELLED);
        }
    }
    for (int i = 0; i < 4; ++i) {
        assert_int_equal(ends[i], 1);
        assert_int_equal(op_info(ops[i]).state, PKV_OP_ENDED);
        assert_int_equal(op_info(ops[i]).buffers_free, 1);
        assert_ok(pkv_op_close(ops[i]));
    }
    assert_ok(pkv_queue_destroy(x.queue));
    faulty_end(x.f);
}

static void wrong_arguments_begin_nothing(void **state) {
    (void)state;
    fixture x = begin();
    pkv_op *op = NULL;
    assert_status(pkv_pool_load(x.pool, 0, 1, x.keys, x.pages, NULL, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_pool_load(x.pool, 1, 1, x.keys, x.pages, NULL, NULL, &op), PKV_ERR_INVALID);
    assert_status(pkv_pool_load(x.pool, 0, 1, NULL, x.pages, NULL, NULL, &op), PKV_ERR_INVALID);
    pkv_page stranger = x.pages[blocks - 1] == 15 ? 14 : 15; /* nobody holds it */
    assert_status(pkv_pool_load(x.pool, 0, 1, x.keys, &stranger, NULL, NULL, &op), PKV_ERR_STATE);
    stranger = 16;
    assert_status(pkv_pool_load(x.pool, 0, 1, x.keys, &stranger, NULL, NULL, &op), PKV_ERR_INVALID);
    assert_null(op);
    assert_ok(pkv_pool_load(x.pool, 0, 0, NULL, NULL, NULL, NULL, &op)); /* nothing to do: ends at once, well */
    assert_ok(pkv_op_wait(op, 60ull * one_second));
    assert_ok(pkv_op_close(op));
    pkv_pool *plain = make_pool(4, 4);
    pkv_page page;
    assert_ok(pkv_pool_alloc(plain, 0, 1, &page));
    assert_status(pkv_pool_store(plain, 0, 1, x.keys, &page, NULL, NULL, &op), PKV_ERR_STATE);
    assert_ok(pkv_pool_release(plain, 0, 1, &page, NULL, NULL));
    end_pool(plain);
    end(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_are_loaded_into_pages_of_the_callers),
        cmocka_unit_test(each_item_has_a_status_of_its_own),
        cmocka_unit_test(case_K01_an_operation_that_has_not_begun_is_running),
        cmocka_unit_test(case_K07_a_cancelled_load_ends_once_and_says_when_its_pages_are_free),
        cmocka_unit_test(case_K07_a_cancelled_store_ends_once_too),
        cmocka_unit_test(case_K11_what_was_loaded_before_a_cancel_is_good_and_nothing_is_published),
        cmocka_unit_test(a_load_that_is_not_answered_times_out),
        cmocka_unit_test(case_K04_the_second_operation_goes_on_when_the_first_is_cancelled),
        cmocka_unit_test(an_operation_that_waits_behind_another_can_be_cancelled),
        cmocka_unit_test(an_operation_that_waits_behind_another_times_out),
        cmocka_unit_test(the_longest_time_limit_is_no_limit),
        cmocka_unit_test(case_C05_operations_cancelled_at_once_leave_nothing_behind),
        cmocka_unit_test(case_K05_a_load_cancelled_before_its_first_page_ends_well),
        cmocka_unit_test(case_C01_pages_come_back_although_an_answer_never_does),
        cmocka_unit_test(case_K10_too_many_operations_are_refused),
        cmocka_unit_test(case_C08_storing_a_page_often_leaves_its_count),
        cmocka_unit_test(an_operation_may_outlive_its_handle_and_its_queue),
        cmocka_unit_test(a_pool_destroyed_ends_its_operations),
        cmocka_unit_test(wrong_arguments_begin_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
