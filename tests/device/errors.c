/* SPDX-License-Identifier: Apache-2.0 */
/* A device that fails: the call that needed it says so, with the device's reason, and changes nothing; the next one goes well. */
#include "device/device.h"

static void *streams[2];
static uint64_t failures; /* of the run under way */

/* A call that fails for want of the device is made again, once: nothing is as if it had not been made at all. */
#define again(call)                                                                                                    \
    do {                                                                                                               \
        pkv_status status_ = (call);                                                                                   \
        if (status_ == PKV_ERR_IO) {                                                                                   \
            assert_message("injected");                                                                                \
            ++failures;                                                                                                \
            status_ = (call);                                                                                          \
        }                                                                                                              \
        check_status(status_, PKV_OK, #call, __FILE__, __LINE__);                                                      \
    } while (0)

static void write_again(pkv_table *table, void *stream, uint64_t token, uint64_t num, uint32_t tag) {
    const pkv_sync sync = on(stream);
    for (uint32_t layer = 0; layer < 2; ++layer) {
        device_rows rows = make_rows(num);
        fill_rows(&rows, stream, tag, layer, token, num);
        again(pkv_table_write(table, 0, layer, token, num, &rows.tensor[0], &rows.tensor[1],
                              stream != NULL ? &sync : NULL));
    }
}

static void check_again(pkv_table *table, void *stream, uint64_t token, uint64_t num, uint32_t tag) {
    const pkv_sync sync = on(stream);
    for (uint32_t layer = 0; layer < 2; ++layer) {
        device_rows rows = make_rows(num);
        again(pkv_table_gather(table, 0, layer, token, num, &rows.tensor[0], &rows.tensor[1],
                               stream != NULL ? &sync : NULL));
        if (stream != NULL) fake()->finish(stream);
        assert_rows(&rows, tag, layer, token, num);
    }
}

/* A bit of everything, in two streams and in none. */
static void scenario(void) {
    const pkv_sync in_a = on(streams[0]), in_b = on(streams[1]);
    const pkv_group_options group = small_group(12);
    pkv_pool_options options = device_options(&group);
    options.debug = PKV_DEBUG_HOT_PAGES;
    pkv_pool *pool = NULL;
    again(pkv_pool_create(&options, &pool));

    pkv_page pages[2];
    again(pkv_pool_alloc(pool, 0, 2, pages));
    device_rows rows = make_rows(4), back = make_rows(4);
    fill_rows(&rows, NULL, 9, 0, 0, 4);
    const pkv_slot first = (pkv_slot)pages[0] * page_tokens, slots[4] = {first, first + 1, first + 2, first + 3};
    again(pkv_pool_write(pool, 0, 0, 4, slots, &rows.tensor[0], &rows.tensor[1], &in_a));
    again(pkv_pool_copy_pages(pool, 0, 1, &pages[0], &pages[1], &in_b));
    again(pkv_pool_gather(pool, 0, 0, 1, &pages[1], 0, 4, &back.tensor[0], &back.tensor[1], &in_a));
    fake()->finish(streams[0]);
    assert_rows(&back, 9, 0, 0, 4);
    again(pkv_pool_release(pool, 0, 2, pages, NULL, &in_a));

    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    pkv_prompt prompt = prompt_of(tokens, 6);
    pkv_table *table, *twin = NULL, *other;
    assert_ok(pkv_table_create(pool, &table));
    again(pkv_table_admit(table, &prompt, NULL, NULL));
    write_again(table, streams[0], 0, 6, 1);
    again(pkv_table_commit(table, 6, &in_a));
    again(pkv_table_fork(table, &in_a, &twin));
    again(pkv_table_reserve(twin, 12));
    write_again(twin, streams[1], 6, 6, 2);
    const uint64_t drafts[2] = {7, 10};
    again(pkv_table_accept(twin, 2, drafts, &in_b));
    check_again(twin, streams[0], 0, 6, 1);
    pkv_slot of_table[2];
    again(pkv_table_slots(table, 0, 6, 2, of_table));
    again(pkv_table_truncate(twin, 7, &in_b));
    tokens[2] = 77;
    prompt = prompt_of(tokens, 5);
    pkv_admit_options partial = PKV_ADMIT_OPTIONS_INIT;
    partial.flags = PKV_ADMIT_PARTIAL;
    assert_ok(pkv_table_create(pool, &other));
    pkv_match match = PKV_MATCH_INIT;
    again(pkv_table_admit(other, &prompt, &partial, &match));
    assert_int_equal(match.tokens, 2);
    check_again(other, NULL, 0, 2, 1);
    pkv_batch_options step = PKV_BATCH_OPTIONS_INIT;
    step.max_tables = step.max_tokens = 4;
    pkv_batch *batch;
    assert_ok(pkv_batch_create(pool, &step, &batch));
    pkv_table *tables[2] = {table, twin};
    const uint32_t one[2] = {1, 1};
    again(pkv_batch_reserve(batch, 2, tables, one, NULL));
    for (uint32_t layer = 0; layer < 2; ++layer) {
        device_rows new_rows = make_rows(2), gathered = make_rows(16);
        fill_rows(&new_rows, streams[1], 5, layer, 6, 2);
        again(pkv_batch_write(batch, 0, layer, &new_rows.tensor[0], &new_rows.tensor[1], &in_b));
        again(pkv_batch_gather(batch, 0, layer, NULL, 8, &gathered.tensor[0], &gathered.tensor[1], &in_b));
        fake()->finish(streams[1]);
        assert_true(are_rows(&gathered, 1, layer, 0, 0, 6));
        assert_true(are_rows(&gathered, 5, layer, 6, 6, 1));
        assert_true(are_rows(&gathered, 1, layer, 0, 8, 6));
        assert_true(are_rows(&gathered, 5, layer, 7, 15, 1));
    }
    again(pkv_batch_commit(batch, NULL, NULL, &in_b));
    assert_ok(pkv_batch_destroy(batch));
    check_again(table, streams[0], 6, 1, 5);
    again(pkv_pool_order(pool, &in_a));
    uint64_t size = 0;
    again(pkv_table_export(other, NULL, 0, &size));
    unsigned char *buffer = malloc(size);
    prompt = prompt_of(tokens, 2);
    again(pkv_table_truncate(other, 2, NULL));
    again(pkv_table_export(other, NULL, 0, &size));
    again(pkv_table_export(other, buffer, size, &size));
    pkv_table *imported;
    assert_ok(pkv_table_create(pool, &imported));
    again(pkv_table_import(imported, buffer, size));
    check_again(imported, NULL, 0, 2, 1);
    free(buffer);
    again(pkv_table_clear(imported, &in_a));
    again(pkv_table_destroy(imported, &in_a));
    again(pkv_table_destroy(table, &in_a));
    again(pkv_table_destroy(twin, &in_b));
    again(pkv_table_destroy(other, NULL));
    end_device_pool(pool);
}

/* Lets the n-th call of one of the device's functions fail, for every n that there is. */
static void fail_every(const char *function) {
    for (uint64_t after = 0;; ++after) {
        fake()->reset();
        for (int i = 0; i < 2; ++i) streams[i] = fake()->make_stream(0);
        with_fake(f, snprintf(f.fail, sizeof f.fail, "%s", function); f.fail_after = after; f.pace_ns = 20000);
        failures = 0;
        scenario();
        if (fake()->settings().fail[0] != 0) { /* it was not called so often */
            assert_true(after > 0);
            return;
        }
        if (failures > 1) fail_msg("one failure of %s was reported %d times", function, (int)failures);
    }
}

#define FAILS(function)                                                                                                \
    static void case_J19_a_failure_of_##function##_belongs_to_the_call_that_needed_it(void **state) {                  \
        (void)state;                                                                                                   \
        fail_every(#function);                                                                                         \
    }
FAILS(open)
FAILS(facts)
FAILS(alloc)
FAILS(alloc_pinned)
FAILS(address_kind)
FAILS(make_stream)
FAILS(capturing)
FAILS(wait_stream)
FAILS(make_event)
FAILS(record)
FAILS(order_after)
FAILS(fill)
FAILS(write)
FAILS(gather)
FAILS(copy_pages)

static void a_device_that_is_gone_is_said_by_every_call_and_ends_cleanly(void **state) {
    (void)state;
    pkv_pool *pool = device_pool(8);
    void *stream = fake()->make_stream(0);
    const pkv_sync sync = on(stream);
    pkv_table *table = new_table(pool, 1, 8);
    write_tokens(table, stream, 0, 8, 1);
    device_rows rows = make_rows(8);
    with_fake(f, strcpy(f.fail, "record"); f.fail_for_good = 1);
    for (int i = 0; i < 3; ++i) {
        assert_status(pkv_table_commit(table, 8, &sync), PKV_ERR_IO);
        assert_message("injected");
        assert_status(pkv_table_truncate(table, 0, &sync), PKV_ERR_IO);
        assert_status(pkv_table_destroy(table, &sync), PKV_ERR_IO);
        assert_int_equal(info_of(table).committed, 0);
    }
    with_fake(f, strcpy(f.fail, "gather"));
    assert_ok(pkv_table_commit(table, 8, &sync));
    assert_status(pkv_table_gather(table, 0, 0, 0, 8, &rows.tensor[0], &rows.tensor[1], &sync), PKV_ERR_IO);
    with_fake(f, f.fail[0] = 0; f.fail_for_good = 0);
    assert_tokens(table, stream, 0, 8, 1);
    end_table(table);
    end_device_pool(pool);
}

int main(void) {
#define TEST(function) device_test(case_J19_a_failure_of_##function##_belongs_to_the_call_that_needed_it)
    const struct CMUnitTest tests[] = {
        TEST(open),         TEST(facts),
        TEST(alloc),        TEST(alloc_pinned),
        TEST(address_kind), TEST(make_stream),
        TEST(capturing),    TEST(wait_stream),
        TEST(make_event),   TEST(record),
        TEST(order_after),  TEST(fill),
        TEST(write),        TEST(gather),
        TEST(copy_pages),   device_test(a_device_that_is_gone_is_said_by_every_call_and_ends_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
