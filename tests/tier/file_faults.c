/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes of a file tier that go wrong, by the fault hook, on both engines: no wrong byte, no hang, no page that
 * stays taken, and counters that are right. */
#include "tier/file_tier.h"

#include <pthread.h>

/* ---- the hook ---- */

/* What happens to a read or write. */
typedef enum {
    result_is,   /* its result is `value` */
    result_past, /* as result_is, but only where more than 4096 bytes were asked for */
    flip,        /* a bit of byte `value` of the image is another */
    other_image, /* the bytes of the image that was written first */
    keep_back,   /* held until let_go() */
    verdict_is,  /* PKV_FAULT_* in `value` */
} fault_kind;

typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int write; /* of these: 1, 0 */
    uint64_t skip, times;
    fault_kind kind;
    int64_t value;
    uint64_t reads, writes, hits, held;
    bool hold;
    uint64_t last_offset, last_size;
    const void *last_data;
    unsigned char first_written[image_bytes];
    bool misshapen; /* an event that does not look as it should */
} hook;

static int32_t on_event(void *user, pkv_file_event *event) {
    hook *h = user;
    pthread_mutex_lock(&h->mutex);
    if (event->struct_size != sizeof *event || event->data == NULL || event->size == 0 ||
        event->offset % PKV_IMAGE_ALIGNMENT != 0 || event->size % PKV_IMAGE_ALIGNMENT != 0 ||
        (uintptr_t)event->data % PKV_IMAGE_ALIGNMENT != 0)
        h->misshapen = true;
    ++*(event->write ? &h->writes : &h->reads);
    if (event->write && h->writes == 1) memcpy(h->first_written, event->data, image_bytes);
    h->last_offset = event->offset;
    h->last_size = event->size;
    h->last_data = event->data;
    int32_t verdict = PKV_FAULT_NONE;
    if (h->times != 0 && event->write == h->write && (h->skip == 0 || h->skip-- == 0)) {
        if (h->times != UINT64_MAX) --h->times;
        ++h->hits;
        switch (h->kind) {
        case result_is: event->result = h->value; break;
        case result_past:
            if (event->size > PKV_IMAGE_ALIGNMENT) event->result = h->value;
            break;
        case flip: ((unsigned char *)event->data)[h->value] ^= 8; break;
        case other_image: memcpy(event->data, h->first_written, image_bytes); break;
        case keep_back:
            ++h->held;
            while (h->hold) pthread_cond_wait(&h->changed, &h->mutex);
            --h->held;
            break;
        case verdict_is: verdict = (int32_t)h->value; break;
        }
    }
    pthread_mutex_unlock(&h->mutex);
    return verdict;
}

typedef struct {
    scratch at;
    hook *hook;
    keyed k;
} fixture;

static fixture begin(void **state) {
    const int32_t engine = *(const int32_t *)*state;
    if (engine == PKV_IO_URING && !has_io_uring()) skip();
    fixture x;
    x.at = begin_scratch();
    x.hook = calloc(1, sizeof *x.hook);
    pthread_mutex_init(&x.hook->mutex, NULL);
    pthread_cond_init(&x.hook->changed, NULL);
    pkv_file_tier_options options = file_options(x.at.path);
    options.engine = engine;
    options.fault = on_event;
    options.fault_user = x.hook;
    x.k = keyed_on(open_with(&options));
    assert_int_equal(tier_stats(x.k.tier).usage.engine, engine);
    return x;
}

static void end_hook(hook *h) {
    assert_false(h->misshapen);
    pthread_mutex_destroy(&h->mutex);
    pthread_cond_destroy(&h->changed);
    free(h);
}

/* Nothing is left under way. */
static void end_idle(fixture *x) {
    soon(tier_stats(x->k.tier).open_requests == 0);
    const pkv_tier_usage usage = tier_stats(x->k.tier).usage;
    assert_int_equal(usage.used_bytes, usage.images * image_bytes);
    assert_int_equal(usage.pinned_images, 0);
    end_keyed(&x->k);
}

/* The same for one in which other pools had images, too. */
static void end_shared(fixture *x) {
    end_idle(x);
    wait_closed(x->at.path);
    end_hook(x->hook);
    end_scratch(&x->at);
}

/* What is in the file is right. */
static void end(fixture *x) {
    soon(tier_stats(x->k.tier).open_requests == 0);
    const pkv_tier_usage usage = tier_stats(x->k.tier).usage;
    end_idle(x);
    keyed k = keyed_in(x->at.path);
    assert_int_equal(tier_stats(k.tier).usage.recovered_images, usage.images);
    assert_int_equal(get(&k, 0, most_keys, NULL), usage.images);
    end_keyed(&k);
    end_hook(x->hook);
    end_scratch(&x->at);
}

/* After `skip` reads or writes, `times` of them go wrong. */
static void go_wrong(fixture *x, int write, uint64_t skip, uint64_t times, fault_kind kind, int64_t value) {
    hook *h = x->hook;
    pthread_mutex_lock(&h->mutex);
    h->write = write;
    h->skip = skip;
    h->times = times;
    h->kind = kind;
    h->value = value;
    h->reads = h->writes = h->hits = 0;
    h->hold = true;
    pthread_mutex_unlock(&h->mutex);
}

static void let_go(fixture *x) {
    pthread_mutex_lock(&x->hook->mutex);
    x->hook->times = 0;
    x->hook->hold = false;
    pthread_cond_broadcast(&x->hook->changed);
    pthread_mutex_unlock(&x->hook->mutex);
}

static uint64_t number(fixture *x, const uint64_t *of) {
    pthread_mutex_lock(&x->hook->mutex);
    const uint64_t value = *of;
    pthread_mutex_unlock(&x->hook->mutex);
    return value;
}
#define count_of(x, field) number((x), &(x)->hook->field)

static void nothing_more(fixture *x) {
    go_wrong(x, 0, 0, 0, result_is, 0);
    let_go(x);
}

enum { read_fault = 0, write_fault = 1 };

/* ---- short transfers ---- */

static void case_L01_a_short_read_goes_on_and_its_neighbours_are_right(void **state) {
    fixture x = begin(state);
    assert_ok(put(&x.k, 0, 16));
    for (uint64_t i = 0; i < 16; i += 5) {
        go_wrong(&x, read_fault, i, 1, result_is, 100); /* less than a block: that read begins anew */
        assert_int_equal(get(&x.k, 0, 16, NULL), 16);
        assert_int_equal(count_of(&x, hits), 1);
        assert_int_equal(count_of(&x, reads), 17);
    }
    assert_int_equal(tier_stats(x.k.tier).failed_loads, 0);
    assert_int_equal(tier_stats(x.k.tier).usage.io_errors, 0);
    end(&x);
}

static void case_L02_a_short_read_goes_on_from_an_aligned_place(void **state) {
    fixture x = begin(state);
    assert_ok(put(&x.k, 0, 1));
    const int64_t results[] = {1, 511, 4096, 4608, 5000, 8191, 8192, image_bytes - 1};
    for (size_t i = 0; i < sizeof results / sizeof *results; ++i) {
        go_wrong(&x, read_fault, 0, 1, result_is, results[i]);
        assert_int_equal(get_one(&x.k, 0), PKV_OK);
        assert_int_equal(count_of(&x, reads), 2);
        assert_int_equal(count_of(&x, last_size), image_bytes - results[i] / 4096 * 4096);
    }
    /* Every time. */
    go_wrong(&x, read_fault, 0, UINT64_MAX, result_past, 4097);
    assert_int_equal(get_one(&x.k, 0), PKV_OK);
    assert_int_equal(count_of(&x, reads), 3);
    nothing_more(&x);
    end(&x);
}

static void case_L02_a_short_write_goes_on_from_an_aligned_place(void **state) {
    fixture x = begin(state);
    const int64_t results[] = {1, 511, 4096, 5000, 8191, image_bytes - 1};
    for (uint32_t i = 0; i < sizeof results / sizeof *results; ++i) {
        go_wrong(&x, write_fault, 0, 1, result_is, results[i]);
        assert_ok(put(&x.k, i, 1));
        assert_int_equal(count_of(&x, writes), 2);
    }
    nothing_more(&x);
    assert_int_equal(get(&x.k, 0, 6, NULL), 6);
    assert_int_equal(tier_stats(x.k.tier).failed_stores, 0);
    end(&x);
}

static void transfers_that_get_nowhere_end(void **state) {
    fixture x = begin(state);
    assert_ok(put(&x.k, 0, 4));
    const int64_t results[] = {100, -EAGAIN, -EINTR};
    for (uint32_t i = 0; i < 3; ++i) {
        go_wrong(&x, read_fault, 0, UINT64_MAX, result_is, results[i]);
        assert_int_equal(get_one(&x.k, i), PKV_ERR_IO);
        assert_in_range(count_of(&x, reads), 2, 100);
        go_wrong(&x, write_fault, 0, UINT64_MAX, result_is, results[i]);
        assert_int_equal(put(&x.k, 10, 1), PKV_ERR_IO);
        assert_in_range(count_of(&x, writes), 2, 100);
        nothing_more(&x);
        assert_int_equal(get_one(&x.k, 3), PKV_OK);
    }
    assert_int_equal(tier_stats(x.k.tier).usage.io_errors, 6);
    assert_int_equal(get_one(&x.k, 10), PKV_ERR_NOT_FOUND);
    end(&x);
}

static void an_interrupted_transfer_is_begun_again(void **state) {
    fixture x = begin(state);
    const int64_t results[] = {-EINTR, -EAGAIN};
    for (uint32_t i = 0; i < 2; ++i) {
        go_wrong(&x, write_fault, 0, 3, result_is, results[i]);
        assert_ok(put(&x.k, i, 1));
        go_wrong(&x, read_fault, 0, 3, result_is, results[i]);
        assert_int_equal(get_one(&x.k, i), PKV_OK);
        assert_int_equal(count_of(&x, reads), 4);
    }
    assert_int_equal(tier_stats(x.k.tier).usage.io_errors, 0);
    end(&x);
}

static void case_L05_an_invalid_transfer_fails_once(void **state) {
    fixture x = begin(state);
    assert_ok(put(&x.k, 0, 2));
    go_wrong(&x, read_fault, 0, UINT64_MAX, result_is, -EINVAL);
    assert_int_equal(get_one(&x.k, 0), PKV_ERR_IO);
    assert_int_equal(count_of(&x, reads), 1);
    nothing_more(&x);
    assert_int_equal(get_one(&x.k, 1), PKV_OK);
    end(&x);
}

/* ---- failures ---- */

static void case_J22_an_image_that_cannot_be_read_is_forgotten(void **state) {
    fixture x = begin(state);
    /* An error of the device, the end of the file, and results that no read has. */
    const int64_t results[] = {-EIO, 0, -ENODATA, image_bytes + 1, INT64_MAX, INT64_MIN, -100000};
    enum { bad = sizeof results / sizeof *results };
    assert_ok(put(&x.k, 0, 16));
    for (uint32_t i = 0; i < bad; ++i) {
        go_wrong(&x, read_fault, 0, 1, result_is, results[i]);
        assert_int_equal(get_one(&x.k, i), PKV_ERR_IO);
        assert_int_equal(get_one(&x.k, i), PKV_ERR_NOT_FOUND);
        assert_int_equal(count_of(&x, reads), 1);
        assert_int_equal(get_one(&x.k, 15), PKV_OK);
    }
    const pkv_tier_stats stats = tier_stats(x.k.tier);
    assert_int_equal(stats.failed_loads, 2 * bad);
    assert_int_equal(stats.checksum_failures, 0);
    assert_int_equal(stats.usage.io_errors, bad);
    assert_int_equal(stats.usage.images, 16 - bad);
    assert_int_equal(stats.usage.used_bytes, (16 - bad) * image_bytes);
    /* Its room is used again, and it can be stored again. */
    assert_ok(put(&x.k, 0, bad));
    assert_int_equal(get(&x.k, 0, 16, NULL), 16);
    end(&x);
}

static void case_L22_blocks_before_a_failed_one_stay_and_the_rest_is_lost(void **state) {
    fixture x = begin(state);
    pkv_pool *pool = pool_on(16, x.k.tier, PKV_TIER_WRITE_BACK);
    compute(pool, 1, 16, 7);
    push_down(pool);
    pkv_table *table = admit_again(pool, 1, 16, NULL);
    assert_ok(pkv_table_restore(table, 0, 1, 10ull * one_second, NULL));
    go_wrong(&x, read_fault, 0, 1, result_is, -EIO);
    assert_status(pkv_table_restore(table, 1, 1, 10ull * one_second, NULL), PKV_ERR_LOST);
    assert_int_equal(info_of(table).valid, 4);
    assert_ok(pkv_table_truncate(table, 4, NULL));
    check_rows(table, 0, 4, 7);
    end_table(table);
    pkv_match match = PKV_MATCH_INIT;
    table = admit_again(pool, 1, 16, &match); /* block 0 is resident, block 1 is nowhere */
    assert_int_equal(match.tokens, 4);
    write_and_commit(table, 16, 7);
    check_rows(table, 0, 16, 7);
    end_table(table);
    push_down(pool);
    table = admit_again(pool, 1, 16, &match);
    assert_int_equal(match.tokens, 16);
    check_rows(table, 0, 16, 7);
    end_table(table);
    assert_int_equal(stats_of(pool).lost_blocks, 1);
    assert_int_equal(tier_stats(x.k.tier).usage.io_errors, 1);
    end_pool(pool);
    end_shared(&x);
}

static void fail_a_write(void **state, int64_t result, pkv_status expected) {
    fixture x = begin(state);
    assert_ok(put(&x.k, 0, 2));
    go_wrong(&x, write_fault, 1, 1, result_is, result);
    assert_int_equal(put(&x.k, 10, 3), expected);
    nothing_more(&x);
    pkv_tier_stats stats = tier_stats(x.k.tier);
    assert_int_equal(stats.failed_stores, 1);
    assert_int_equal(stats.stores, 4);
    assert_int_equal(stats.usage.io_errors, 1);
    assert_int_equal(stats.usage.images, 4);
    assert_int_equal(stats.usage.used_bytes, 4 * image_bytes);
    assert_int_equal(get(&x.k, 10, 3, NULL), 2);
    assert_int_equal(get(&x.k, 0, 2, NULL), 2);
    assert_ok(put(&x.k, 10, 3));
    assert_int_equal(get(&x.k, 10, 3, NULL), 3);
    stats = tier_stats(x.k.tier);
    assert_int_equal(stats.usage.images, 5);
    assert_int_equal(stats.breaker_trips, 0);
    end(&x);
}

static void a_write_that_fails_leaves_no_image(void **state) { fail_a_write(state, -EIO, PKV_ERR_IO); }
static void a_write_of_nothing_leaves_no_image(void **state) { fail_a_write(state, 0, PKV_ERR_IO); }
static void a_write_of_more_than_was_asked_leaves_no_image(void **state) {
    fail_a_write(state, 2 * image_bytes, PKV_ERR_IO);
}
static void case_L10_a_full_disk_leaves_no_image(void **state) { fail_a_write(state, -ENOSPC, PKV_ERR_NO_SPACE); }
static void a_quota_leaves_no_image(void **state) { fail_a_write(state, -EDQUOT, PKV_ERR_NO_SPACE); }

static void case_L10_a_disk_that_stays_full_makes_no_rest_and_old_images_are_read(void **state) {
    fixture x = begin(state);
    assert_ok(put(&x.k, 0, 4));
    go_wrong(&x, write_fault, 0, UINT64_MAX, result_is, -ENOSPC);
    assert_int_equal(put(&x.k, 10, 20), PKV_ERR_NO_SPACE);
    const pkv_tier_stats stats = tier_stats(x.k.tier);
    assert_int_equal(stats.failed_stores, 20);
    assert_int_equal(stats.breaker_trips, 0);
    assert_int_equal(stats.resting, 0);
    assert_int_equal(stats.usage.images, 4);
    assert_int_equal(get(&x.k, 0, 30, NULL), 4);
    nothing_more(&x);
    end(&x);
}

static void pages_stay_when_their_stores_fail(void **state) {
    fixture x = begin(state);
    pkv_pool *pool = pool_on(16, x.k.tier, PKV_TIER_WRITE_BACK);
    go_wrong(&x, write_fault, 0, UINT64_MAX, result_is, -EIO);
    compute(pool, 1, 16, 7);
    flush(pool);
    assert_int_equal(stats_of(pool).cached_pages, 4);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, 16, &match);
    assert_int_equal(match.resident_tokens, 16);
    check_rows(table, 0, 16, 7);
    end_table(table);
    assert_int_equal(tier_stats(x.k.tier).usage.images, 0);
    nothing_more(&x);
    end_pool(pool);
    end_shared(&x);
}

/* ---- wrong bytes ---- */

static void a_flipped_bit_is_a_miss(void **state) {
    fixture x = begin(state);
    /* Front, sums, padding of the header; slices and their padding. */
    const int64_t places[] = {0, 13, 77, 160, 4000, 4096, 4223, 4224, 8191, 8192, image_bytes - 1};
    enum { bad = sizeof places / sizeof *places };
    assert_ok(put(&x.k, 0, 16));
    for (uint32_t i = 0; i < bad; ++i) {
        go_wrong(&x, read_fault, 0, 1, flip, places[i]);
        assert_int_equal(get_one(&x.k, i), PKV_ERR_IO);
        soon(tier_stats(x.k.tier).usage.images == 15 - i);
        assert_int_equal(get_one(&x.k, i), PKV_ERR_NOT_FOUND);
        assert_int_equal(tier_stats(x.k.tier).checksum_failures, i + 1);
        assert_int_equal(get_one(&x.k, 15), PKV_OK);
    }
    assert_int_equal(tier_stats(x.k.tier).usage.io_errors, 0);
    end(&x);
}

static void the_bytes_of_another_image_are_a_miss(void **state) {
    fixture x = begin(state);
    assert_ok(put(&x.k, 0, 1));
    assert_ok(put(&x.k, 1, 3));
    go_wrong(&x, read_fault, 0, 1, other_image, 0);
    assert_int_equal(get_one(&x.k, 2), PKV_ERR_IO);
    assert_int_equal(tier_stats(x.k.tier).checksum_failures, 1);
    soon(tier_stats(x.k.tier).usage.images == 3);
    assert_int_equal(get(&x.k, 0, 4, NULL), 3);
    end(&x);
}

/* ---- completions that are late, early, missing or come twice ---- */

static void completions_in_any_order_give_each_its_own_bytes(void **state) {
    fixture x = begin(state);
    go_wrong(&x, write_fault, 0, UINT64_MAX, verdict_is, PKV_FAULT_LATE);
    assert_ok(put(&x.k, 0, 32));
    go_wrong(&x, read_fault, 0, UINT64_MAX, verdict_is, PKV_FAULT_LATE);
    assert_int_equal(get(&x.k, 0, 32, NULL), 32);
    assert_int_equal(count_of(&x, hits), 32);
    test_random random = {20261201};
    print_message("seed %llu\n", (unsigned long long)random.state);
    for (int turn = 0; turn < 20; ++turn) {
        go_wrong(&x, read_fault, random_below(&random, 16), 1 + random_below(&random, 8), verdict_is, PKV_FAULT_LATE);
        const uint32_t first = (uint32_t)random_below(&random, 16);
        assert_int_equal(get(&x.k, first, 16, NULL), 16);
    }
    assert_int_equal(tier_stats(x.k.tier).double_completions, 0);
    assert_int_equal(tier_stats(x.k.tier).failed_loads, 0);
    nothing_more(&x);
    end(&x);
}

static void a_completion_that_comes_twice_counts_once(void **state) {
    fixture x = begin(state);
    go_wrong(&x, write_fault, 0, UINT64_MAX, verdict_is, PKV_FAULT_TWICE);
    assert_ok(put(&x.k, 0, 8));
    go_wrong(&x, read_fault, 0, UINT64_MAX, verdict_is, PKV_FAULT_TWICE);
    assert_int_equal(get(&x.k, 0, 8, NULL), 8);
    nothing_more(&x);
    soon(tier_stats(x.k.tier).open_requests == 0);
    const pkv_tier_stats stats = tier_stats(x.k.tier);
    assert_int_equal(stats.loads, 8);
    assert_int_equal(stats.stores, 8);
    assert_int_equal(stats.usage.images, 8);
    assert_int_equal(stats.failed_loads + stats.failed_stores, 0);
    end(&x);
}

static void case_L14_an_image_is_not_found_before_it_is_written(void **state) {
    fixture x = begin(state);
    go_wrong(&x, write_fault, 0, 1, verdict_is, PKV_FAULT_LATE); /* 50 ms */
    pkv_op *op = begin_put(&x.k, 0, 1, 0);
    soon(count_of(&x, writes) == 1);
    assert_int_equal(tier_stats(x.k.tier).usage.images, 0);
    assert_ok(end_op(op, NULL, 0));
    assert_int_equal(get_one(&x.k, 0), PKV_OK);
    end(&x);
}

/* A tier that never hears of a read stays open for it, and so does its file: what these tests leave behind is the process's. */
static void abandon(fixture *x) {
    end_keyed(&x->k);
    pkv_file_tier_options options = file_options(x->at.path);
    options.lock_timeout_ns = 1000000;
    refuse_open(&options, PKV_ERR_BUSY, "in use");
    end_scratch(&x->at); /* not the hook: the tier still knows it */
}

static void a_load_whose_completion_never_comes_times_out(void **state) {
    fixture x = begin(state);
    assert_ok(put(&x.k, 0, 3));
    go_wrong(&x, read_fault, 1, 1, verdict_is, PKV_FAULT_DROP);
    pkv_status statuses[3];
    assert_int_equal(end_op(begin_get(&x.k, 0, 3, 50000000), statuses, 3), PKV_ERR_TIMEOUT);
    int good = 0;
    for (uint32_t i = 0; i < 3; ++i) {
        if (statuses[i] == PKV_OK)
            assert_page(&x.k, i, i);
        else
            assert_int_equal(statuses[i], PKV_ERR_TIMEOUT);
        good += statuses[i] == PKV_OK;
    }
    assert_int_equal(good, 2);
    assert_int_equal(tier_stats(x.k.tier).timeouts, 1);
    assert_int_equal(tier_stats(x.k.tier).open_requests, 1);
    assert_int_equal(get(&x.k, 0, 3, NULL), 3);
    abandon(&x);
}

static void memory_of_a_load_that_never_ends_is_not_used_again(void **state) {
    fixture x = begin(state);
    assert_ok(put(&x.k, 0, 8));
    go_wrong(&x, read_fault, 0, 1, verdict_is, PKV_FAULT_DROP);
    assert_int_equal(end_op(begin_get(&x.k, 0, 1, 20000000), NULL, 0), PKV_ERR_TIMEOUT);
    const void *lost = x.hook->last_data;
    for (int i = 0; i < 100; ++i) {
        assert_int_equal(get_one(&x.k, (uint32_t)i % 8), PKV_OK);
        assert_ptr_not_equal(x.hook->last_data, lost);
    }
    assert_int_equal(tier_stats(x.k.tier).open_requests, 1);
    abandon(&x);
}

static void a_store_whose_completion_never_comes_times_out(void **state) {
    fixture x = begin(state);
    go_wrong(&x, write_fault, 0, 1, verdict_is, PKV_FAULT_DROP);
    assert_int_equal(end_op(begin_put(&x.k, 0, 1, 50000000), NULL, 0), PKV_ERR_TIMEOUT);
    assert_int_equal(tier_stats(x.k.tier).usage.images, 0);
    assert_int_equal(get_one(&x.k, 0), PKV_ERR_NOT_FOUND);
    assert_ok(put(&x.k, 1, 5));
    assert_int_equal(get(&x.k, 0, 6, NULL), 5);
    abandon(&x);
}

static void a_table_is_usable_after_a_restore_that_timed_out(void **state) {
    fixture x = begin(state);
    pkv_pool *pool = pool_on(16, x.k.tier, PKV_TIER_WRITE_BACK);
    compute(pool, 1, 16, 7);
    push_down(pool);
    pkv_table *table = admit_again(pool, 1, 16, NULL);
    go_wrong(&x, read_fault, 2, 1, verdict_is, PKV_FAULT_DROP);
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, 50000000, NULL), PKV_ERR_TIMEOUT);
    assert_int_equal(info_of(table).valid, 16);
    assert_int_equal(info_of(table).absent_blocks, 1);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    check_rows(table, 0, 16, 7);
    end_table(table);
    soon(stats_of(pool).held_pages == 0);
    soon(stats_of(pool).quarantined_pages == 0);
    end_pool(pool);
    assert_int_equal(tier_stats(x.k.tier).timeouts, 1);
    assert_int_equal(tier_stats(x.k.tier).usage.pinned_images, 0);
    abandon(&x);
}

static void a_cancelled_load_frees_its_pages_before_the_read_ends(void **state) {
    fixture x = begin(state);
    assert_ok(put(&x.k, 0, 4));
    go_wrong(&x, read_fault, 0, 1, keep_back, 0);
    pkv_op *op = begin_get(&x.k, 0, 1, 0);
    soon(count_of(&x, held) == 1);
    assert_ok(pkv_op_cancel(op));
    assert_int_equal(end_op(op, NULL, 0), PKV_ERR_CANCELLED);
    fill_page(&x.k, 0, 99);
    let_go(&x);
    soon(tier_stats(x.k.tier).open_requests == 0);
    assert_page(&x.k, 0, 99);
    assert_int_equal(get(&x.k, 0, 4, NULL), 4);
    end(&x);
}

static void a_pool_is_destroyed_while_a_read_is_under_way(void **state) {
    fixture x = begin(state);
    assert_ok(put(&x.k, 0, 4));
    go_wrong(&x, read_fault, 0, 1, keep_back, 0);
    pkv_op *op = begin_get(&x.k, 0, 4, 0);
    soon(count_of(&x, held) == 1);
    assert_ok(pkv_pool_destroy(x.k.pool));
    assert_ok(pkv_tier_close(x.k.tier));
    let_go(&x);
    (void)pkv_op_wait(op, 60ull * one_second);
    assert_ok(pkv_op_close(op));
    wait_closed(x.at.path);
    keyed k = keyed_in(x.at.path);
    assert_int_equal(get(&k, 0, 4, NULL), 4);
    end_keyed(&k);
    end_hook(x.hook);
    end_scratch(&x.at);
}

/* ---- the breaker ---- */

static void repeated_failures_make_the_tier_rest(void **state) {
    fixture x = begin(state);
    pkv_pool *pool = pool_on(16, x.k.tier, PKV_TIER_WRITE_BACK);
    compute(pool, 1, 8, 7);
    compute(pool, 1000, 8, 9);
    push_down(pool);
    pkv_table *live = admit_again(pool, 1, 8, NULL); /* before the rest: its blocks are in the tier only */
    assert_ok(put(&x.k, 0, 12));
    go_wrong(&x, read_fault, 0, UINT64_MAX, result_is, -ENXIO); /* no word about the bytes: they stay */
    for (uint32_t i = 0; i < 8; ++i) assert_int_equal(get_one(&x.k, i), PKV_ERR_IO);
    nothing_more(&x);
    pkv_tier_stats stats = tier_stats(x.k.tier);
    assert_int_equal(stats.breaker_trips, 1);
    assert_int_equal(stats.resting, 1);
    assert_int_equal(stats.usage.io_errors, 8);
    /* Lookups are misses, and nothing is read. */
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *other = admit_again(pool, 1000, 8, &match);
    assert_int_equal(match.tokens, 0);
    end_table(other);
    assert_int_equal(get_one(&x.k, 9), PKV_ERR_NOT_FOUND);
    assert_int_equal(count_of(&x, reads), 0);
    /* But what a live sequence has nowhere else is asked for; that it comes ends the rest. */
    assert_ok(pkv_table_restore(live, 0, UINT64_MAX, 10ull * one_second, NULL));
    check_rows(live, 0, 8, 7);
    end_table(live);
    assert_int_equal(tier_stats(x.k.tier).resting, 0);
    assert_int_equal(get_one(&x.k, 9), PKV_OK);
    other = admit_again(pool, 1000, 8, &match);
    assert_int_equal(match.tokens, 8);
    check_rows(other, 0, 8, 9);
    end_table(other);
    end_pool(pool);
    end_shared(&x);
}

/* ---- spills ---- */

static void fail_a_spill(void **state, int64_t result, pkv_status expected) {
    fixture x = begin(state);
    pkv_pool *pool = pool_on(8, x.k.tier, PKV_TIER_WRITE_BACK);
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 18, 3);
    go_wrong(&x, write_fault, 0, UINT64_MAX, result_is, result);
    assert_status(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL), expected);
    assert_int_equal(info_of(table).absent_blocks, 0);
    assert_int_equal(stats_of(pool).held_pages, 5);
    check_rows(table, 0, 18, 3);
    soon(tier_stats(x.k.tier).usage.images == 0);
    assert_int_equal(tier_stats(x.k.tier).usage.used_bytes, 0);
    /* One of five. */
    go_wrong(&x, write_fault, 3, 1, result_is, result);
    pkv_spill_result spilled = PKV_SPILL_RESULT_INIT;
    const pkv_status status = pkv_table_spill(table, 0, UINT64_MAX, NULL, &spilled);
    assert_true(status == PKV_OK || status == expected);
    assert_int_equal(info_of(table).absent_blocks, spilled.spilled_blocks);
    assert_int_equal(info_of(table).valid, 18);
    nothing_more(&x);
    check_rows(table, 0, 18, 3);
    assert_ok(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL));
    assert_int_equal(stats_of(pool).held_pages, 0);
    go_wrong(&x, read_fault, 0, UINT64_MAX, result_past, 5000);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    nothing_more(&x);
    check_rows(table, 0, 18, 3);
    assert_int_equal(stats_of(pool).lost_blocks, 0);
    end_table(table);
    soon(tier_stats(x.k.tier).usage.images == 0);
    end_pool(pool);
    end(&x);
}

static void a_spill_whose_writes_fail_loses_nothing(void **state) { fail_a_spill(state, -EIO, PKV_ERR_IO); }
static void a_spill_to_a_full_disk_loses_nothing(void **state) { fail_a_spill(state, -ENOSPC, PKV_ERR_NO_SPACE); }

/* ---- any of them, at random ---- */

static int32_t at_random(void *user, pkv_file_event *event) {
    hook *h = user;
    pthread_mutex_lock(&h->mutex);
    test_random random = {h->reads + h->writes + (uint64_t)h->value};
    const uint64_t dice = random_below(&random, 40);
    ++*(event->write ? &h->writes : &h->reads);
    pthread_mutex_unlock(&h->mutex);
    if (dice == 0) event->result = -EIO;
    if (dice == 1) event->result = (int64_t)random_below(&random, event->size);
    if (dice == 2) event->result = -EAGAIN;
    if (dice == 3 && event->result > 0)
        ((unsigned char *)event->data)[random_below(&random, (uint64_t)event->result)] ^= 32;
    if (dice == 4) event->result = -ENOSPC;
    if (dice == 5) return PKV_FAULT_TWICE;
    if (dice == 6) return PKV_FAULT_LATE;
    return PKV_FAULT_NONE;
}

static void nothing_wrong_comes_of_any_mixture_of_faults(void **state) {
    const int32_t engine = *(const int32_t *)*state;
    if (engine == PKV_IO_URING && !has_io_uring()) skip();
    const uint64_t seed = 20261202 + (uint64_t)engine;
    print_message("seed %llu\n", (unsigned long long)seed);
    scratch s = begin_scratch();
    hook *h = calloc(1, sizeof *h);
    pthread_mutex_init(&h->mutex, NULL);
    pthread_cond_init(&h->changed, NULL);
    h->value = (int64_t)(seed << 20);
    pkv_file_tier_options options = file_options(s.path);
    options.engine = engine;
    options.fault = at_random;
    options.fault_user = h;
    keyed k = keyed_on(open_with(&options));
    test_random random = {seed};
    uint64_t good = 0;
    const int turns = long_tests() ? 5000 : 60;
    for (int turn = 0; turn < turns; ++turn) {
        const uint64_t count = 1 + random_below(&random, 24);
        const uint32_t first = (uint32_t)random_below(&random, 48 - count);
        if (random_below(&random, 2) == 0)
            (void)put(&k, first, count);
        else
            good += get(&k, first, count, NULL);
        const pkv_tier_usage usage = tier_stats(k.tier).usage;
        assert_true(usage.used_bytes <= usage.capacity_bytes && usage.images <= file_images);
    }
    assert_true(good > 0);
    soon(tier_stats(k.tier).open_requests == 0);
    end_keyed(&k);
    k = keyed_in(s.path);
    for (uint32_t i = 0; i < 48; ++i)
        (void)get_one(&k, i); /* right or a miss: bytes that were damaged on their way down, too */
    end_keyed(&k);
    wait_closed(s.path);
    end_hook(h);
    end_scratch(&s);
}

static int32_t engines[] = {PKV_IO_THREADS, PKV_IO_URING};
#define on_both(test)                                                                                                  \
    {#test " (threads)", test, NULL, NULL, &engines[0]}, { #test " (io_uring)", test, NULL, NULL, &engines[1] }

int main(void) {
    const struct CMUnitTest tests[] = {
        on_both(case_L01_a_short_read_goes_on_and_its_neighbours_are_right),
        on_both(case_L02_a_short_read_goes_on_from_an_aligned_place),
        on_both(case_L02_a_short_write_goes_on_from_an_aligned_place),
        on_both(transfers_that_get_nowhere_end),
        on_both(an_interrupted_transfer_is_begun_again),
        on_both(case_L05_an_invalid_transfer_fails_once),
        on_both(case_J22_an_image_that_cannot_be_read_is_forgotten),
        on_both(case_L22_blocks_before_a_failed_one_stay_and_the_rest_is_lost),
        on_both(a_write_that_fails_leaves_no_image),
        on_both(a_write_of_nothing_leaves_no_image),
        on_both(a_write_of_more_than_was_asked_leaves_no_image),
        on_both(case_L10_a_full_disk_leaves_no_image),
        on_both(a_quota_leaves_no_image),
        on_both(case_L10_a_disk_that_stays_full_makes_no_rest_and_old_images_are_read),
        on_both(pages_stay_when_their_stores_fail),
        on_both(a_flipped_bit_is_a_miss),
        on_both(the_bytes_of_another_image_are_a_miss),
        on_both(completions_in_any_order_give_each_its_own_bytes),
        on_both(a_completion_that_comes_twice_counts_once),
        on_both(case_L14_an_image_is_not_found_before_it_is_written),
        on_both(a_load_whose_completion_never_comes_times_out),
        on_both(memory_of_a_load_that_never_ends_is_not_used_again),
        on_both(a_store_whose_completion_never_comes_times_out),
        on_both(a_table_is_usable_after_a_restore_that_timed_out),
        on_both(a_cancelled_load_frees_its_pages_before_the_read_ends),
        on_both(a_pool_is_destroyed_while_a_read_is_under_way),
        on_both(repeated_failures_make_the_tier_rest),
        on_both(a_spill_whose_writes_fail_loses_nothing),
        on_both(a_spill_to_a_full_disk_loses_nothing),
        on_both(nothing_wrong_comes_of_any_mixture_of_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
