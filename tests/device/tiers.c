/* SPDX-License-Identifier: Apache-2.0 */
/* Tiers below device pools: which work images come after, what of it the device does and how, and what happens when it fails. What
 * tiers do otherwise is tested by the tests of host pools, on the device (tiers.list). */
#include "device/device.h"

#include "tier/faulty.h"

static void *stream;

static int begin_tier_test(void **state) {
    begin_test(state);
    stream = fake()->make_stream(0);
    return 0;
}
#define tier_test(function) cmocka_unit_test_setup_teardown(function, begin_tier_test, end_test)

static pkv_pool *pool_with(const pkv_group_options *group, pkv_tier *tier, uint32_t debug, uint64_t staging_bytes,
                           uint32_t blocks) {
    const pkv_tier_attachment at = attachment(tier, PKV_TIER_WRITE_BACK);
    pkv_pool_options options = device_options(group);
    options.tiers = &at;
    options.num_tiers = 1;
    options.debug = debug;
    options.clean_pages = group->num_pages;
    options.staging_bytes = staging_bytes;
    options.transfer_blocks = blocks;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    return pool;
}

static pkv_pool *tiered_pool(uint64_t num_pages, pkv_tier *tier) {
    const pkv_group_options group = small_group(num_pages);
    return pool_with(&group, tier, 0, 0, 0);
}

/* A sequence of whole blocks, committed in the stream. */
static pkv_table *committed_table(pkv_pool *pool, pkv_token first, uint64_t num, uint32_t tag) {
    pkv_table *table = new_table(pool, first, num);
    const pkv_sync sync = on(stream);
    write_tokens(table, stream, 0, num, tag);
    assert_ok(pkv_table_commit(table, num, &sync));
    return table;
}

static void end_on(pkv_table *table, void *in) {
    const pkv_sync sync = on(in);
    assert_ok(pkv_table_destroy(table, &sync));
}

static void end_pool_and(pkv_pool *pool, pkv_tier *tier) {
    end_device_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

static void make_fail(const char *function, uint64_t after) {
    with_fake(f, strcpy(f.fail, function); f.fail_after = after; f.fail_status = PKV_ERR_IO; f.fail_for_good = 0);
}
static void make_well(void) { with_fake(f, f.fail[0] = 0); }

/* ---- order ---- */

static void case_J01_a_page_is_stored_after_the_commits_work(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(16);
    pkv_pool *pool = tiered_pool(8, tier);
    fake()->hold(stream);
    pkv_table *table = committed_table(pool, 1, 8, 1);
    end_on(table, stream);
    assert_status(pkv_pool_flush(pool, 30000000), PKV_ERR_TIMEOUT); /* what is not written yet is not stored */
    assert_int_equal(tier_stats(tier).usage.images, 0);
    fake()->let_go(stream);
    flush(pool);
    assert_int_equal(tier_stats(tier).usage.images, 2);
    assert_int_equal(evict_pages(pool, 8), 2);
    pkv_match match = PKV_MATCH_INIT;
    table = admit_again(pool, 1, 8, &match);
    assert_int_equal(match.tokens, 8);
    assert_int_equal(match.tier_tokens[0], 8);
    assert_tokens(table, stream, 0, 8, 1);
    end_on(table, stream);
    end_pool_and(pool, tier);
}

static void case_J01_a_spill_comes_after_what_its_sync_names(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(16);
    pkv_pool *pool = tiered_pool(8, tier);
    void *other = fake()->make_stream(0);
    fake()->hold(stream);
    pkv_table *table = committed_table(pool, 1, 7, 1); /* its last block is not full */
    const pthread_t thread = let_go_soon(stream);
    const pkv_sync sync = on(other);
    pkv_spill_result result = PKV_SPILL_RESULT_INIT;
    assert_ok(pkv_table_spill(table, 0, 2, &sync, &result));
    pthread_join(thread, NULL);
    assert_int_equal(result.spilled_blocks, 2);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    assert_tokens(table, other, 0, 7, 1);
    end_on(table, other);
    end_pool_and(pool, tier);
}

static void case_J02_poison_is_not_put_over_a_loaded_image(void **state) {
    (void)state;
    for (int ignore = 0; ignore <= is_fake; ++ignore) {
        fake()->reset();
        stream = fake()->make_stream(0);
        pkv_tier *tier = host_tier(16);
        const pkv_group_options group = small_group(2);
        pkv_pool *pool = pool_with(&group, tier, PKV_DEBUG_POISON | PKV_DEBUG_HOT_PAGES, 0, 0);
        pkv_table *table = committed_table(pool, 1, 8, 1);
        assert_ok(pkv_table_spill(table, 0, 2, NULL, NULL));
        void *held = fake()->make_stream(0);
        pkv_table *other = new_table(pool, 50, 8);
        fake()->finish(NULL);
        if (is_fake) /* nothing runs that nobody waits for */
            with_fake(f, f.ignore_order = ignore; f.pace_ns = UINT64_C(5000000000));
        end_on(other, held); /* its pages are to be poisoned */
        assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
        fake()->finish(NULL);
        assert_true(has_tokens(table, stream, 0, 8, 1) == (ignore == 0));
        end_on(table, stream);
        end_pool_and(pool, tier);
    }
}

/* Much more is loaded than there is staging memory, by a device that is slow. */
static void case_J14_staging_memory_is_not_loaded_anew_before_its_copy_was_made(void **state) {
    (void)state;
    faulty *f = faulty_open();
    const pkv_group_options group = small_group(64);
    pkv_pool *pool = pool_with(&group, f->tier, 0, 8 * image_bytes, 0);
    pkv_table *table = committed_table(pool, 1, 160, 3);
    for (int round = 0; round < 3; ++round) {
        assert_ok(pkv_table_spill(table, 0, 40, NULL, NULL));
        assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 30ull * one_second, NULL));
        assert_tokens(table, stream, 0, 160, 3);
    }
    end_on(table, stream);
    end_device_pool(pool);
    faulty_end(f);
}

static void an_image_is_loaded_after_the_work_of_those_who_had_its_page(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(16);
    const pkv_group_options group = small_group(2);
    pkv_pool *pool = pool_with(&group, tier, PKV_DEBUG_HOT_PAGES, 0, 0);
    pkv_table *table = committed_table(pool, 1, 8, 1);
    assert_ok(pkv_table_spill(table, 0, 2, NULL, NULL));
    void *held = fake()->make_stream(0);
    pkv_table *other = new_table(pool, 50, 8);
    fake()->hold(held);
    write_tokens(other, held, 0, 8, 2);
    end_on(other, held);
    const pthread_t thread = let_go_soon(held);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    pthread_join(thread, NULL);
    fake()->finish(NULL);
    assert_tokens(table, stream, 0, 8, 1);
    end_on(table, stream);
    end_pool_and(pool, tier);
}

static void calls_on_a_capturing_stream_are_refused_and_change_nothing(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(16);
    pkv_pool *pool = tiered_pool(8, tier);
    pkv_table *table = committed_table(pool, 1, 8, 1);
    fake()->finish(stream);
    const pkv_sync sync = on(stream);
    const pkv_page page = page_at(table, 0);
    const pkv_tier_key key = {{1}};
    pkv_op *op = NULL;
    pkv_spill_result result = PKV_SPILL_RESULT_INIT;
    fake()->begin_capture(stream);
    assert_status(pkv_table_spill(table, 0, 2, &sync, &result), PKV_ERR_CAPTURE);
    assert_status(pkv_pool_store(pool, 0, 1, &key, &page, &sync, NULL, &op), PKV_ERR_CAPTURE);
    assert_status(pkv_pool_load(pool, 0, 1, &key, &page, &sync, NULL, &op), PKV_ERR_CAPTURE);
    fake()->end_graph(fake()->end_capture(stream));
    assert_int_equal(result.spilled_blocks, 0);
    assert_int_equal(info_of(table).absent_blocks, 0);
    assert_null(op);
    assert_tokens(table, stream, 0, 8, 1);
    end_on(table, stream);
    end_pool_and(pool, tier);
}

/* ---- how images are moved ---- */

/* What a process has measured it knows: tests of measuring have layer counts that no other test has. */
static pkv_group_options group_of_layers(uint32_t num_layers) {
    pkv_group_options group = small_group(4);
    group.num_layers = num_layers;
    return group;
}

/* Packs, unpacks and copies so far. */
static uint64_t moves(void) {
    const struct fake_counts counts = fake()->counts();
    return counts.packs + counts.unpacks + counts.copies;
}

static pkv_status make_measured_pool(const pkv_group_options *group, pkv_tier *tier, int32_t device, pkv_pool **pool) {
    const pkv_tier_attachment at = attachment(tier, PKV_TIER_WRITE_BACK);
    pkv_pool_options options = device_options(group);
    options.device_index = device;
    options.tiers = &at;
    options.num_tiers = 1;
    return pkv_pool_create(&options, pool);
}

static pkv_pool *measured_pool(const pkv_group_options *group, pkv_tier *tier, int32_t device) {
    pkv_pool *pool = NULL;
    assert_ok(make_measured_pool(group, tier, device, &pool));
    return pool;
}

static void a_new_pool_measures_and_leaves_its_pages_as_they_were(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(16);
    const pkv_group_options group = group_of_layers(3);
    pkv_pool *pool = measured_pool(&group, tier, device_number(0));
    if (is_fake) {
        const struct fake_counts counts = fake()->counts();
        assert_true(counts.packs > 0 && counts.unpacks > 0 && counts.copies > 0);
    }
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    assert_ok(pkv_pool_layout(pool, 0, 0, &layout));
    fake()->finish(NULL);
    assert_true(are_bytes(layout.k_base, 0, page_tokens * row_bytes));
    end_pool_and(pool, tier);
}

static void pages_of_one_shape_are_measured_once_on_a_device(void **state) {
    (void)state;
    needs_fake();
    pkv_tier *tier = host_tier(64);
    pkv_group_options group = group_of_layers(5);
    pkv_pool *first = measured_pool(&group, tier, 0);
    const uint64_t one = moves();
    assert_true(one > 0);
    group.num_pages = 7; /* which says nothing about a page */
    pkv_pool *second = measured_pool(&group, tier, 0);
    assert_int_equal(moves(), one);
    end_device_pool(first);
    end_device_pool(second);
    assert_int_equal(fake()->counts().contexts, 0);
    first = measured_pool(&group, tier, 0); /* the device has been opened anew */
    assert_int_equal(moves(), one);
    second = measured_pool(&group, tier, 1); /* another device */
    assert_int_equal(moves(), 2 * one);
    end_device_pool(second);
    group.k_head_dim = group.v_head_dim = 8; /* another page */
    second = measured_pool(&group, tier, 0);
    assert_int_equal(moves(), 3 * one);
    end_device_pool(first);
    end_device_pool(second);
    assert_ok(pkv_tier_close(tier));
}

static void a_measurement_that_fails_fails_its_pool_and_is_made_again(void **state) {
    (void)state;
    needs_fake();
    pkv_tier *tier = host_tier(16);
    const pkv_group_options group = group_of_layers(7);
    pkv_pool *pool = NULL;
    make_fail("unpack", 2);
    assert_status(make_measured_pool(&group, tier, 0, &pool), PKV_ERR_IO);
    assert_message("injected");
    assert_null(pool);
    make_well();
    const uint64_t before = fake()->counts().unpacks;
    pool = measured_pool(&group, tier, 0);
    assert_true(fake()->counts().unpacks > before);
    end_pool_and(pool, tier);
}

typedef struct {
    pkv_tier *tier;
    pkv_pool *pool;
    pthread_t thread;
} pool_maker;

static void *make_one(void *arg) {
    pool_maker *m = arg;
    const pkv_group_options group = group_of_layers(9);
    if (make_measured_pool(&group, m->tier, 0, &m->pool) != PKV_OK) m->pool = NULL;
    return NULL;
}

static void pools_that_are_made_at_once_measure_once(void **state) {
    (void)state;
    needs_fake();
    enum { num = 4 };
    pool_maker makers[num] = {0};
    pkv_tier *tier = host_tier(64);
    for (int i = 0; i < num; ++i) makers[i].tier = tier;
    for (int i = 0; i < num; ++i) assert_int_equal(pthread_create(&makers[i].thread, NULL, make_one, &makers[i]), 0);
    for (int i = 0; i < num; ++i) pthread_join(makers[i].thread, NULL);
    for (int i = 0; i < num; ++i) assert_non_null(makers[i].pool);
    const uint64_t all = moves();
    pkv_group_options group = group_of_layers(9);
    pkv_pool *other = measured_pool(&group, tier, 1); /* so many are made for one */
    assert_int_equal(moves(), 2 * all);
    for (int i = 0; i < num; ++i) end_device_pool(makers[i].pool);
    end_device_pool(other);
    assert_ok(pkv_tier_close(tier));
}

/* A kernel where a page is no row of bytes as images have it, with the bound that the pool was given. */
static void tensors_of_the_engine_go_down_and_up_by_a_kernel_with_the_bound(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(16);
    enum { pages = 4, pitch = 32 /* a row of 16 bytes, and as much that is not the pool's */ };
    void *base[2][2];
    pkv_group_options group = small_group(pages);
    for (int side = 0; side < 2; ++side)
        for (int layer = 0; layer < 2; ++layer) {
            base[side][layer] = fake()->alloc(0, pages * page_tokens * pitch);
            fill_bytes(base[side][layer], 0x5A, pages * page_tokens * pitch);
        }
    group.memory = PKV_MEMORY_CALLER;
    group.k_base = base[0];
    group.v_base = base[1];
    group.k_strides = (pkv_strides){page_tokens * pitch, pitch, row_bytes / 2};
    group.v_strides = group.k_strides;
    pkv_pool *pool = pool_with(&group, tier, 0, 0, 3);
    assert_int_equal(counted(copies) + counted(packs), 0); /* nothing to choose */
    pkv_table *table = committed_table(pool, 1, 15, 1);
    assert_ok(pkv_table_spill(table, 0, 4, NULL, NULL));
    if (is_fake) assert_int_equal(fake()->counts().last_blocks, 3);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    if (is_fake) assert_true(fake()->counts().packs >= 4 && fake()->counts().unpacks >= 4);
    assert_tokens(table, stream, 0, 15, 1);
    for (int side = 0; side < 2; ++side)
        for (int layer = 0; layer < 2; ++layer)
            for (int row = 0; row < pages * page_tokens; ++row) /* G07: what is between rows stays */
                assert_true(
                    are_bytes((unsigned char *)base[side][layer] + row * pitch + row_bytes, 0x5A, pitch - row_bytes));
    end_on(table, stream);
    end_pool_and(pool, tier);
}

/* An image has the order of the pool that made it: a pool of the other order converts. */
static void case_H20_an_image_of_the_other_order_is_converted(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(16);
    pkv_group_options group = small_group(8);
    for (int round = 0; round < 2; ++round) { /* each order makes images for the other */
        group.layout = round == 0 ? PKV_LAYOUT_NHD : PKV_LAYOUT_HND;
        pkv_pool *maker = pool_with(&group, tier, 0, 0, 0);
        group.layout = round == 0 ? PKV_LAYOUT_HND : PKV_LAYOUT_NHD;
        pkv_pool *taker = pool_with(&group, tier, 0, 0, 0);
        const pkv_token first = (pkv_token)(1 + 100 * round);
        end_on(committed_table(maker, first, 8, 1), stream);
        flush(maker);
        pkv_match match = PKV_MATCH_INIT;
        pkv_table *table = admit_again(taker, first, 8, &match);
        assert_int_equal(match.tier_tokens[0], 8);
        assert_tokens(table, stream, 0, 8, 1);
        end_on(table, stream);
        end_device_pool(maker);
        end_device_pool(taker);
    }
    assert_ok(pkv_tier_close(tier));
}

static void memory_of_a_host_tier_is_pinned_while_a_pool_is_above_it(void **state) {
    (void)state;
    needs_fake();
    pkv_tier *tier = host_tier(16);
    pkv_pool *pool = tiered_pool(4, tier), *other = tiered_pool(4, tier);
    assert_int_equal(fake()->counts().pins, 1);
    end_device_pool(pool);
    assert_int_equal(fake()->counts().pins, 1);
    end_device_pool(other);
    assert_int_equal(fake()->counts().pins, 0);
    assert_ok(pkv_tier_close(tier));
}

static void count_warnings(void *user, int32_t level, const char *message) {
    if (level == PKV_LOG_WARNING && strstr(message, "not pinned") != NULL) ++*(int *)user;
}

static void case_O05_a_tier_that_cannot_be_pinned_works_and_the_log_says_so(void **state) {
    (void)state;
    needs_fake();
    int warnings = 0;
    pkv_set_log(count_warnings, &warnings, PKV_LOG_WARNING);
    with_fake(f, f.refuse_pins = 1);
    pkv_tier *tier = host_tier(16);
    pkv_pool *pool = tiered_pool(8, tier);
    assert_int_equal(warnings, 1);
    pkv_table *table = committed_table(pool, 1, 31, 1);
    assert_ok(pkv_table_spill(table, 0, 8, NULL, NULL));
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    assert_tokens(table, stream, 0, 31, 1);
    end_on(table, stream);
    pkv_set_log(NULL, NULL, 0);
    end_pool_and(pool, tier);
}

/* ---- what fails ---- */

/* Whether copies or a kernel: a bound makes it copies. */
static void case_L22_blocks_that_do_not_reach_the_device_are_lost_and_computed_anew(void **state) {
    (void)state;
    needs_fake();
    faulty *f = faulty_open();
    const pkv_group_options group = small_group(8);
    pkv_pool *pool = pool_with(&group, f->tier, 0, 0, 1);
    end_on(committed_table(pool, 1, 16, 1), stream);
    flush(pool);
    assert_int_equal(evict_pages(pool, 8), 4);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, 16, &match);
    assert_int_equal(match.tier_tokens[0], 16);
    uint64_t restored = 9;
    make_fail("copy", 2);
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, &restored), PKV_ERR_LOST);
    make_well();
    const uint64_t valid = info_of(table).valid;
    assert_true(valid <= 8 && valid % 4 == 0);                  /* the third block did not arrive */
    assert_int_equal(tier_stats(f->tier).checksum_failures, 0); /* it is no fault of the images': they stay */
    assert_int_equal(faulty_images(f), 4);
    device_rows back = make_rows(4);
    const pkv_sync sync = on(stream);
    assert_status(pkv_table_gather(table, 0, 0, 8, 4, &back.tensor[0], &back.tensor[1], &sync), PKV_ERR_LOST);
    pkv_table *other = admit_again(pool, 1, 16, &match); /* nobody finds the lost ones in pages */
    assert_true(match.resident_tokens <= valid);
    end_on(other, stream);
    assert_ok(pkv_table_truncate(table, valid, NULL));
    assert_ok(pkv_table_reserve(table, 16));
    write_tokens(table, stream, valid, 16 - valid, 1);
    assert_ok(pkv_table_commit(table, 16, &sync));
    assert_tokens(table, stream, 0, 16, 1);
    end_on(table, stream);
    end_device_pool(pool);
    faulty_end(f);
}

static void a_spill_that_the_device_fails_changes_nothing(void **state) {
    (void)state;
    needs_fake();
    pkv_tier *tier = host_tier(16);
    const pkv_group_options group = small_group(8);
    pkv_pool *pool = pool_with(&group, tier, 0, 0, 1);
    pkv_table *table = committed_table(pool, 1, 16, 1);
    make_fail("copy", 2);
    assert_status(pkv_table_spill(table, 0, 4, NULL, NULL), PKV_ERR_IO);
    make_well();
    assert_int_equal(info_of(table).absent_blocks, 0);
    eventually(tier_stats(tier).usage.images == 0);
    assert_tokens(table, stream, 0, 16, 1);
    end_on(table, stream);
    end_pool_and(pool, tier);
}

static void what_the_device_fails_to_give_is_not_stored_and_stays_in_its_page(void **state) {
    (void)state;
    needs_fake();
    pkv_tier *tier = host_tier(16);
    const pkv_group_options group = small_group(8);
    pkv_pool *pool = pool_with(&group, tier, 0, 0, 1);
    make_fail("copy", 0);
    end_on(committed_table(pool, 1, 4, 1), stream);
    eventually(stats_of(pool).failed_stores > 0);
    make_well();
    pkv_table *table = matching_table(pool, 1, 5, 4);
    assert_tokens(table, stream, 0, 4, 1);
    end_on(table, stream);
    end_pool_and(pool, tier);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        tier_test(case_J01_a_page_is_stored_after_the_commits_work),
        tier_test(case_J01_a_spill_comes_after_what_its_sync_names),
        tier_test(case_J02_poison_is_not_put_over_a_loaded_image),
        tier_test(case_J14_staging_memory_is_not_loaded_anew_before_its_copy_was_made),
        tier_test(an_image_is_loaded_after_the_work_of_those_who_had_its_page),
        tier_test(calls_on_a_capturing_stream_are_refused_and_change_nothing),
        tier_test(a_new_pool_measures_and_leaves_its_pages_as_they_were),
        tier_test(pages_of_one_shape_are_measured_once_on_a_device),
        tier_test(a_measurement_that_fails_fails_its_pool_and_is_made_again),
        tier_test(pools_that_are_made_at_once_measure_once),
        tier_test(tensors_of_the_engine_go_down_and_up_by_a_kernel_with_the_bound),
        tier_test(case_H20_an_image_of_the_other_order_is_converted),
        tier_test(memory_of_a_host_tier_is_pinned_while_a_pool_is_above_it),
        tier_test(case_O05_a_tier_that_cannot_be_pinned_works_and_the_log_says_so),
        tier_test(case_L22_blocks_that_do_not_reach_the_device_are_lost_and_computed_anew),
        tier_test(a_spill_that_the_device_fails_changes_nothing),
        tier_test(what_the_device_fails_to_give_is_not_stored_and_stays_in_its_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
