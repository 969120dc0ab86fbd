/* SPDX-License-Identifier: Apache-2.0 */
/* Single faults of sessions, and of those who use a pool beside them. Field cases J08, J10, J16, J19, J22, K07, K08. */
#include "prefetch/session.h"
#include "tier/faulty.h"

#include <signal.h>

static const uint64_t ten_seconds = 10ull * one_second, a_minute = 60ull * one_second;

/* ---- a time limit for each test: what hangs says so ---- */

static int guard(void **state) {
    (void)state;
    alarm(200);
    return 0;
}
static int unguard(void **state) {
    (void)state;
    alarm(0);
    return 0;
}

/* ---- words ---- */

static pkv_pool *pool_of_layers(uint64_t num_pages, uint32_t num_layers, pkv_tier *tier) {
    const pkv_group_options group = layers_group(num_pages, num_layers);
    return pool_of_groups(&group, 1, tier);
}

/* A prompt of tokens first, first + 1 ... */
typedef struct {
    pkv_token tokens[64];
    uint64_t count;
} known_prompt;

static known_prompt known(pkv_token first, uint64_t count) {
    known_prompt prompt = {.count = count};
    count_up(prompt.tokens, count, first);
    return prompt;
}

static pkv_op *begin_prompt(pkv_prefetch *session, const known_prompt *known, uint64_t expected_match) {
    const pkv_prompt prompt = prompt_of(known->tokens, known->count);
    pkv_match match = PKV_MATCH_INIT;
    pkv_op *op = NULL;
    assert_ok(pkv_prefetch_prompt(session, &prompt, NULL, &match, &op));
    assert_int_equal(match.tokens, expected_match);
    return op;
}

static void end_prompt(pkv_op *op, pkv_status expected) {
    pkv_op_info info = PKV_OP_INFO_INIT;
    assert_status(pkv_op_wait(op, a_minute), expected);
    assert_ok(pkv_op_poll(op, &info, NULL, 0));
    assert_int_equal(info.state, PKV_OP_ENDED);
    assert_int_equal(info.done_items, 1);
    assert_int_equal(info.buffers_free, 1);
    assert_ok(pkv_op_close(op));
}

/* Nothing is held, pinned or under way. */
static void end_all(pkv_pool *pool, faulty *f) {
    faulty_behave(f);
    faulty_block(f, false);
    eventually((faulty_let_go(f), tier_stats(f->tier).open_requests == 0));
    eventually(stats_of(pool).held_pages == 0);
    assert_int_equal(faulty_pins(f), 0);
    end_groups(pool);
    faulty_end(f);
}

/* Flips a bit of every image that a tier has, behind the header. */
static void spoil_images(faulty *f) {
    pthread_mutex_lock(&f->mutex);
    for (int i = 0; i < faulty_most_images; ++i)
        if (f->images[i].data != NULL) f->images[i].data[PKV_IMAGE_ALIGNMENT + 3] ^= 1;
    pthread_mutex_unlock(&f->mutex);
}

static void forget_images(faulty *f) {
    pthread_mutex_lock(&f->mutex);
    for (int i = 0; i < faulty_most_images; ++i)
        if (f->images[i].data != NULL) faulty_forget(&f->images[i]);
    pthread_mutex_unlock(&f->mutex);
}

/* ---- cancel ---- */

static void case_K07_a_cancelled_prompt_ends_though_its_tier_is_frozen(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_of_layers(16, 2, f->tier);
    compute(pool, 500, 16, 1);
    push_down(pool);
    pkv_prefetch *session = open_session(pool, NULL);
    const uint64_t held = stats_of(pool).held_pages;
    const known_prompt prompt = known(500, 16);
    faulty_always(f, PKV_TIER_LOAD, fault_hold, 0); /* handed over, and never answered */
    pkv_op *op = begin_prompt(session, &prompt, 16);
    eventually(session_stats(session).loads_in_flight > 0);
    assert_true(stats_of(pool).held_pages > held);
    assert_ok(pkv_op_cancel(op));
    end_prompt(op, PKV_ERR_CANCELLED);
    eventually(stats_of(pool).held_pages == held); /* what it held is free, with the answers still outstanding */
    assert_true(tier_stats(f->tier).open_requests > 0);
    assert_int_equal(session_stats(session).loads_in_flight, 0);
    /* The late answers change nothing. */
    faulty_behave(f);
    faulty_let_go(f);
    eventually(tier_stats(f->tier).open_requests == 0);
    assert_int_equal(stats_of(pool).held_pages, held);
    op = begin_prompt(session, &prompt, 16);
    end_prompt(op, PKV_OK);
    check_session(session);
    assert_ok(pkv_prefetch_close(session, NULL));
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 500, 16, &match);
    assert_int_equal(match.resident_tokens, 16);
    check_rows(table, 0, 16, 1);
    end_table(table);
    end_all(pool, f);
}

static void case_K07_cancelled_blocks_give_their_pages_back_though_the_tier_is_frozen(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_of_layers(32, 2, f->tier);
    const uint32_t tag = 2;
    pkv_table *table = long_sequence(pool, 100, 10 * tiered_page_tokens, tiered_page_tokens, tag);
    pkv_prefetch *session = open_session(pool, NULL);
    const uint64_t held = stats_of(pool).held_pages;
    faulty_always(f, PKV_TIER_LOAD, fault_hold, 0);
    uint64_t submitted = 0;
    assert_ok(pkv_prefetch_submit(session, table, 0, &submitted));
    assert_true(submitted > 0);
    assert_true(stats_of(pool).held_pages > held);
    eventually(session_stats(session).loads_in_flight > 0);
    assert_ok(pkv_prefetch_cancel(session));
    assert_int_equal(stats_of(pool).held_pages, held);
    assert_int_equal(session_stats(session).block_pages, 0);
    faulty_behave(f);
    faulty_let_go(f);
    check_step(session, 2, 1, &table, &tag);
    assert_ok(pkv_prefetch_close(session, NULL));
    end_table(table);
    end_all(pool, f);
}

static void case_K08_an_operation_may_be_closed_as_soon_as_it_comes_out_of_its_queue(void **state) {
    (void)state;
    enum { prompts = 12 };
    faulty *f = faulty_open();
    pkv_pool *pool = pool_of_layers(80, 2, f->tier);
    for (int i = 0; i < prompts; ++i) compute(pool, 1000 * (i + 1), 8, (uint32_t)i);
    push_down(pool);
    pkv_prefetch *session = open_session(pool, NULL);
    pkv_queue *queue = NULL;
    assert_ok(pkv_queue_create(&queue));
    pkv_op *ops[prompts];
    faulty_block(f, false);
    for (int i = 0; i < prompts; ++i) {
        const known_prompt prompt = known(1000 * (i + 1), 8);
        const pkv_prompt of = prompt_of(prompt.tokens, prompt.count);
        pkv_op_options options = PKV_OP_OPTIONS_INIT;
        options.queue = queue;
        options.user = (uint64_t)i;
        assert_ok(pkv_prefetch_prompt(session, &of, &options, NULL, i % 2 == 0 ? &ops[i] : NULL));
        if (i % 6 == 4) assert_ok(pkv_op_close(ops[i])); /* while it is under way, or has just ended */
    }
    uint32_t seen = 0;
    for (int ended = 0; ended < prompts;) {
        pkv_completion done[4];
        uint64_t count = 0;
        assert_ok(pkv_queue_drain(queue, done, 4, a_minute, &count));
        for (uint64_t i = 0; i < count; ++i) {
            assert_int_equal(done[i].status, PKV_OK);
            assert_int_equal(seen >> done[i].user & 1, 0);
            seen |= 1u << done[i].user;
            if (done[i].user % 6 == 4) {
                assert_status(pkv_op_close(done[i].op), PKV_ERR_HANDLE);
            } else {
                assert_ok(pkv_op_close(done[i].op));
                assert_status(pkv_op_cancel(done[i].op), PKV_ERR_HANDLE);
            }
        }
        ended += (int)count;
    }
    assert_int_equal(seen, (1u << prompts) - 1);
    assert_int_equal(session_stats(session).prompts, prompts);
    assert_ok(pkv_prefetch_close(session, NULL));
    assert_ok(pkv_queue_destroy(queue));
    end_all(pool, f);
}

/* ---- images while they are loaded ---- */

static void case_J08_an_image_stays_until_its_load_has_ended(void **state) {
    (void)state;
    faulty *f = faulty_open();
    f->most_images = 8;
    pkv_pool *pool = pool_of_layers(32, 2, f->tier);
    compute(pool, 500, 16, 1); /* 4 images */
    push_down(pool);
    pkv_prefetch *session = open_session(pool, NULL);
    const known_prompt prompt = known(500, 16);
    faulty_always(f, PKV_TIER_LOAD, fault_hold, 0);
    pkv_op *op = begin_prompt(session, &prompt, 16);
    eventually(faulty_held(f) == 4);
    /* Others need the room: what is pinned stays. */
    for (int i = 0; i < 6; ++i) {
        compute(pool, 2000 + 100 * i, 16, 2);
        push_down(pool);
    }
    faulty_behave(f);
    faulty_let_go(f);
    end_prompt(op, PKV_OK);
    eventually(faulty_pins(f) == 0); /* and not longer */
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 500, 16, &match);
    assert_int_equal(match.resident_tokens, 16);
    check_rows(table, 0, 16, 1);
    end_table(table);
    assert_ok(pkv_prefetch_close(session, NULL));
    end_all(pool, f);
}

static void case_J10_blocks_filled_with_their_own_id_go_down_and_up_1000_times(void **state) {
    (void)state;
    enum { tables = 3, blocks = 7 };
    faulty *f = faulty_open();
    pkv_tier *host = host_tier(12);
    const pkv_tier_attachment tiers[2] = {attachment(host, PKV_TIER_WRITE_BACK),
                                          attachment(f->tier, PKV_TIER_WRITE_BACK)};
    pkv_pool *pool = pool_over(40, tiers, 2);
    pkv_prefetch *session = open_session(pool, NULL);
    pkv_table *list[tables];
    uint32_t tags[tables];
    for (int i = 0; i < tables; ++i) {
        tags[i] = 10 + (uint32_t)i;
        list[i] = long_sequence(pool, 1000 * i, blocks * tiered_page_tokens, blocks * tiered_page_tokens, tags[i]);
    }
    test_random random = {42};
    for (int cycle = 0; cycle < 1000; ++cycle) {
        const uint64_t i = random_below(&random, tables), first = random_below(&random, blocks);
        const uint64_t count = 1 + random_below(&random, blocks);
        assert_ok(pkv_table_spill(list[i], first, count, NULL, NULL));
        if (random_below(&random, 2) == 0) assert_ok(pkv_prefetch_submit(session, list[i], 4 * first, NULL));
        if (random_below(&random, 4) == 0) check_step(session, 2, tables, list, tags);
        if (random_below(&random, 2) == 0) {
            assert_ok(pkv_prefetch_require(session, list[i], first, count, a_minute, NULL));
            same_rows(pool, list[i], 0, 4 * first, 4, tags[i], 4 * first);
        }
        check_session(session);
    }
    for (int i = 0; i < tables; ++i) {
        assert_ok(pkv_prefetch_require(session, list[i], 0, UINT64_MAX, a_minute, NULL));
        assert_int_equal(info_of(list[i]).absent_blocks, 0);
        same_rows(pool, list[i], 0, 0, blocks * tiered_page_tokens, tags[i], 0);
        end_table(list[i]);
    }
    assert_int_equal(session_stats(session).failed, 0);
    assert_ok(pkv_prefetch_close(session, NULL));
    eventually(tier_stats(host).open_requests == 0);
    end_all(pool, f);
    assert_ok(pkv_tier_close(host));
}

static void case_J16_items_of_several_sizes_are_moved_in_their_own_size(void **state) {
    (void)state;
    enum { blocks = 8, resident = 2, absent = blocks - resident };
    faulty *f = faulty_open();
    pkv_group_options groups[2] = {layers_group(40, 2), layers_group(40, 3)};
    groups[1].num_kv_heads = 4;
    groups[1].k_head_dim = 96; /* a slice of two pieces */
    groups[1].v_head_dim = 64;
    pkv_pool *pool = pool_of_groups(groups, 2, f->tier);
    const uint32_t tag = 6;
    pkv_table *table = long_sequence(pool, 100, blocks * tiered_page_tokens, resident * tiered_page_tokens, tag);
    assert_int_equal(info_of(table).absent_blocks, absent);
    const uint64_t small = 4096 + 2 * 4096, large = 4096 + 3 * 8192;
    assert_int_equal(group_stats(pool, 0).image_bytes, small);
    assert_int_equal(group_stats(pool, 1).image_bytes, large);
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.flags = PKV_PREFETCH_OFF; /* so that it loads what is asked for, and no more */
    pkv_prefetch *session = open_session(pool, &options);
    /* Slices: each of the step's layers once, and a header for each image. */
    check_step(session, 5, 1, &table, &tag);
    pkv_prefetch_stats stats = session_stats(session);
    assert_int_equal(stats.bytes_loaded, absent * (small + large));
    assert_int_equal(stats.good_loads, absent * 5);
    assert_int_equal(stats.bytes_used, stats.bytes_loaded);
    assert_int_equal(stats.bytes_in_flight, 0);
    assert_int_equal(tier_stats(f->tier).bytes_loaded, stats.bytes_loaded);
    /* Whole images; one comes short, and counts neither as bytes nor as a block. */
    faulty_script(f, PKV_TIER_LOAD, 2, 1, fault_short, 1);
    pkv_require_result result = PKV_REQUIRE_RESULT_INIT;
    assert_status(pkv_prefetch_require(session, table, 0, 3, a_minute, &result), PKV_ERR_LOST);
    assert_int_equal(result.on_demand, 3);
    stats = session_stats(session);
    assert_int_equal(stats.failed_loads, 1);
    assert_int_equal(stats.failed, 1);
    assert_int_equal(stats.good_loads, absent * 5 + 5);
    const uint64_t both = absent * (small + large) + 3 * (small + large);
    assert_true(stats.bytes_loaded == both - small || stats.bytes_loaded == both - large);
    assert_ok(pkv_prefetch_close(session, NULL));
    end_table(table);
    end_all(pool, f);
}

static void case_J19_a_failed_load_is_told_to_its_own_table_only(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_of_layers(48, 2, f->tier);
    pkv_table *tables[2];
    const uint32_t tags[2] = {1, 2};
    tables[0] = long_sequence(pool, 100, 8 * tiered_page_tokens, tiered_page_tokens, tags[0]);
    forget_images(f); /* of the first one only */
    tables[1] = long_sequence(pool, 3000, 8 * tiered_page_tokens, tiered_page_tokens, tags[1]);
    pkv_prefetch *session = open_session(pool, NULL);
    pkv_status statuses[2];
    const uint64_t tokens[2] = {8 * tiered_page_tokens, 8 * tiered_page_tokens};
    assert_ok(pkv_prefetch_step_begin(session, 2, tables, NULL, statuses));
    assert_int_equal(statuses[0], PKV_OK);
    uint64_t missing = 0;
    for (uint32_t layer = 0; layer < 2; ++layer) {
        uint64_t next[2] = {0, 0};
        pkv_layer_view view = PKV_LAYER_VIEW_INIT;
        do {
            assert_ok(pkv_prefetch_layer_acquire(session, layer, a_minute, NULL, &view));
            check_view(&view, tags, tokens, next);
            for (int64_t i = view.indptr[0]; i < view.indptr[1]; ++i) missing += view.slices[i] < 0;
            for (int64_t i = view.indptr[1]; i < view.indptr[2]; ++i) assert_true(view.slices[i] >= 0);
            assert_ok(pkv_prefetch_layer_release(session, layer, NULL));
        } while (view.last == 0);
    }
    assert_int_equal(missing, 2 * 7);
    /* Calls that have nothing to do with it. */
    pkv_page page;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &page));
    release_pages(pool, &page, 1);
    assert_ok(pkv_prefetch_require(session, tables[1], 0, 1, a_minute, NULL));
    assert_status(pkv_prefetch_step_end(session, statuses), PKV_ERR_LOST);
    assert_int_equal(statuses[0], PKV_ERR_LOST);
    assert_int_equal(statuses[1], PKV_OK);
    assert_int_equal(info_of(tables[0]).valid, 0);
    assert_int_equal(info_of(tables[1]).valid, info_of(tables[1]).committed);
    check_step(session, 2, 1, &tables[1], &tags[1]);
    assert_ok(pkv_prefetch_require(session, tables[1], 0, UINT64_MAX, a_minute, NULL));
    assert_status(pkv_prefetch_require(session, tables[0], 0, UINT64_MAX, a_minute, NULL), PKV_ERR_LOST);
    same_rows(pool, tables[1], 0, 0, 8 * tiered_page_tokens, tags[1], 0);
    assert_ok(pkv_prefetch_close(session, NULL));
    end_table(tables[0]);
    end_table(tables[1]);
    end_all(pool, f);
}

static void case_J22_a_truncated_image_is_found_once(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_of_layers(32, 2, f->tier);
    compute(pool, 500, 4, 1);
    push_down(pool);
    pkv_prefetch *session = open_session(pool, NULL);
    const known_prompt prompt = known(500, 4);
    assert_int_equal(faulty_images(f), 1);
    faulty_always(f, PKV_TIER_LOAD, fault_short, 4096);
    end_prompt(begin_prompt(session, &prompt, 4), PKV_ERR_LOST);
    assert_int_equal(faulty_images(f), 0);
    end_prompt(begin_prompt(session, &prompt, 0), PKV_OK);
    const pkv_prefetch_stats stats = session_stats(session);
    assert_int_equal(stats.failed_loads, 1);
    assert_int_equal(stats.bytes_loaded, 0);
    assert_ok(pkv_prefetch_close(session, NULL));
    end_all(pool, f);
}

/* ---- others beside a session ---- */

/* A table's owner brings a block up by himself while the session loads the same block ahead. What comes late, and is spoiled, must
 * not get into a page that is in use by then. */
static void a_late_load_does_not_touch_a_page_that_was_restored_meanwhile(void **state) {
    (void)state;
    for (int how = 0; how < 2; ++how) {
        faulty *f = faulty_open();
        pkv_pool *pool = pool_of_layers(32, 2, f->tier);
        compute(pool, 500, 16, 1);
        push_down(pool);
        pkv_prefetch *session = open_session(pool, NULL), *other = open_session(pool, NULL);
        pkv_table *table = admit_again(pool, 500, 16, NULL);
        assert_int_equal(info_of(table).absent_blocks, 4);
        faulty_always(f, PKV_TIER_LOAD, fault_hold, 0);
        uint64_t submitted = 0;
        assert_ok(pkv_prefetch_submit(session, table, 0, &submitted));
        assert_int_equal(submitted, 4);
        eventually(faulty_held(f) == 4);
        faulty_behave(f);
        if (how == 0)
            assert_ok(pkv_table_restore(table, 0, UINT64_MAX, ten_seconds, NULL));
        else
            assert_ok(pkv_prefetch_require(other, table, 0, UINT64_MAX, ten_seconds, NULL));
        check_rows(table, 0, 16, 1);
        spoil_images(f);
        faulty_let_go(f);
        eventually(session_stats(session).loads_in_flight == 0);
        check_rows(table, 0, 16, 1);
        end_table(table);
        assert_ok(pkv_prefetch_close(session, NULL));
        assert_ok(pkv_prefetch_close(other, NULL));
        end_all(pool, f);
    }
}

/* Blocks of a window group that are dropped while they are in a tier are not missed. */
static void a_window_may_pass_blocks_that_are_in_tiers_between_two_steps(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_group_options groups[2] = {layers_group(40, 1), layers_group(40, 1)};
    groups[1].attention = PKV_ATTENTION_WINDOW;
    groups[1].window = 8;
    pkv_pool *pool = pool_of_groups(groups, 2, f->tier);
    const uint32_t tag = 3;
    const uint64_t tokens = 10 * tiered_page_tokens;
    pkv_table *table = long_sequence(pool, 100, tokens, tiered_page_tokens, tag);
    pkv_prefetch *session = open_session(pool, NULL);
    check_step(session, 2, 1, &table, &tag);
    assert_ok(pkv_table_window(table, NULL));
    for (int step = 0; step < 2; ++step) {
        assert_ok(pkv_prefetch_step_begin(session, 1, &table, NULL, NULL));
        for (uint32_t layer = 0; layer < 2; ++layer) {
            pkv_layer_view view = PKV_LAYER_VIEW_INIT;
            uint64_t next = 0;
            do {
                assert_ok(pkv_prefetch_layer_acquire(session, layer, a_minute, NULL, &view));
                check_view(&view, &tag, &tokens, &next);
                for (int64_t i = 0; i < view.indptr[1]; ++i) {
                    const bool dropped =
                        layer == 1 && (view.first_block[0] + (uint64_t)i + 1) * tiered_page_tokens + 8 <= tokens;
                    assert_int_equal(view.slices[i] < 0, dropped);
                }
                assert_ok(pkv_prefetch_layer_release(session, layer, NULL));
            } while (view.last == 0);
        }
        assert_ok(pkv_prefetch_step_end(session, NULL));
    }
    assert_int_equal(info_of(table).valid, tokens);
    assert_ok(pkv_prefetch_close(session, NULL));
    end_table(table);
    end_all(pool, f);
}

static void *let_go_soon(void *context) {
    usleep(30000);
    faulty_let_go(context);
    return NULL;
}

/* The pool's staging memory is in use by others: whoever requires blocks goes on as soon as some of it is free, though nobody tells
 * him. */
static void a_wait_for_staging_memory_ends_when_others_give_it_back(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_tier_attachment at = attachment(f->tier, PKV_TIER_WRITE_BACK);
    at.timeout_ns = ten_seconds;
    const pkv_group_options group = layers_group(64, 2);
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = tiered_page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = &at;
    options.num_tiers = 1;
    options.staging_bytes = 1; /* the least: 8 images */
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    pkv_table *table = long_sequence(pool, 100, 10 * tiered_page_tokens, tiered_page_tokens, 4);
    pkv_prefetch *session = open_session(pool, NULL);
    faulty_always(f, PKV_TIER_LOAD, fault_hold, 0); /* loads that come late keep their memory */
    eventually(
        (assert_status(pkv_table_restore(table, 0, UINT64_MAX, 20000000, NULL), PKV_ERR_TIMEOUT), faulty_held(f) == 8));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, let_go_soon, f), 0);
    faulty_behave(f);
    assert_ok(pkv_prefetch_require(session, table, 0, UINT64_MAX, UINT64_MAX, NULL));
    pthread_join(thread, NULL);
    faulty_let_go(f);
    same_rows(pool, table, 0, 0, 10 * tiered_page_tokens, 4, 0);
    assert_ok(pkv_prefetch_close(session, NULL));
    end_table(table);
    end_all(pool, f);
}

/* A tier that never answers keeps the staging memory of its loads. When it has all of it, loads that cannot even begin fail, too. */
static void a_dead_tier_that_keeps_all_staging_memory_makes_nobody_wait_for_ever(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_of_layers(32, 2, f->tier);
    const uint32_t tag = 5;
    pkv_table *table = long_sequence(pool, 100, 14 * tiered_page_tokens, tiered_page_tokens, tag);
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.max_bytes_in_flight = 65536; /* 8 slots */
    options.load_timeout_ns = 20000000;
    pkv_prefetch *session = open_session(pool, &options);
    faulty_always(f, PKV_TIER_LOAD, fault_hold, 0);
    assert_ok(pkv_prefetch_step_begin(session, 1, &table, NULL, NULL));
    for (uint32_t layer = 0; layer < 2; ++layer) {
        pkv_layer_view view = PKV_LAYER_VIEW_INIT;
        do {
            assert_ok(pkv_prefetch_layer_acquire(session, layer, UINT64_MAX, NULL, &view));
            assert_ok(pkv_prefetch_layer_release(session, layer, NULL));
        } while (view.last == 0);
    }
    assert_status(pkv_prefetch_step_end(session, NULL), PKV_ERR_TIMEOUT);
    check_session(session);
    faulty_behave(f);
    faulty_let_go(f);
    eventually(tier_stats(f->tier).open_requests == 0);
    assert_ok(pkv_prefetch_cancel(session));
    /* The table has lost nothing. */
    check_step(session, 2, 1, &table, &tag);
    assert_ok(pkv_prefetch_close(session, NULL));
    end_table(table);
    end_all(pool, f);
}

/* Loads that were dropped make room for those of others, who are told: nothing else wakes them. */
static void a_prompt_goes_on_when_the_load_in_its_way_is_dropped(void **state) {
    (void)state;
    for (int of_a_step = 0; of_a_step < 2; ++of_a_step) {
        faulty *f = faulty_open();
        pkv_pool *pool = pool_of_layers(32, 2, f->tier);
        compute(pool, 5000, 8, 9);
        push_down(pool);
        pkv_table *gone = long_sequence(pool, 100, 4 * tiered_page_tokens, tiered_page_tokens, 4);
        pkv_table *table = long_sequence(pool, 1000, 4 * tiered_page_tokens, tiered_page_tokens, 5);
        pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
        options.max_bytes_in_flight = 1; /* one load at a time */
        options.load_timeout_ns = 10 * a_minute;
        pkv_prefetch *session = open_session(pool, &options);
        faulty_script(f, PKV_TIER_LOAD, 0, 1, fault_hold, 0); /* never answered */
        if (of_a_step != 0) {
            assert_ok(pkv_prefetch_step_begin(session, 1, &gone, NULL, NULL));
            assert_ok(pkv_prefetch_step_end(session, NULL));
        } else {
            assert_ok(pkv_prefetch_submit(session, gone, 0, NULL));
        }
        eventually(faulty_held(f) == 1);
        const known_prompt prompt = known(5000, 8);
        pkv_op *op = begin_prompt(session, &prompt, 8);
        usleep(50000); /* the session's thread sleeps */
        end_table(gone);
        if (of_a_step != 0) { /* another step, which needs nothing */
            assert_ok(pkv_prefetch_step_begin(session, 0, NULL, NULL, NULL));
            assert_ok(pkv_prefetch_step_end(session, NULL));
        } else { /* a call that looks whose tables are gone */
            const float score = 1;
            assert_ok(pkv_prefetch_hint(session, table, 1, &score));
        }
        end_prompt(op, PKV_OK);
        assert_int_equal(faulty_held(f), 1);
        assert_ok(pkv_prefetch_close(session, NULL));
        end_table(table);
        end_all(pool, f);
    }
}

/* ---- a tier whose submit comes back late ---- */

static pkv_status slow_submit(void *context, const pkv_tier_batch *batch) {
    const bool load = batch->kind == PKV_TIER_LOAD; /* the batch may be gone when the call is back */
    const pkv_status status = faulty_submit(context, batch);
    if (load) usleep(2000);
    return status;
}

/* Loads end, are used and are dropped while the thread that began them is still in the tier. */
static void loads_may_end_before_the_tier_is_back_from_submit(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_tier_ops ops = {0};
    ops.struct_size = sizeof ops;
    ops.name = "slow";
    ops.submit = slow_submit;
    pkv_tier *slow = NULL;
    assert_ok(pkv_tier_open(&ops, f, &slow));
    const pkv_group_options group = layers_group(32, 3);
    pkv_pool *pool = pool_of_groups(&group, 1, slow);
    const uint32_t tag = 5;
    pkv_table *table = long_sequence(pool, 100, 6 * tiered_page_tokens, tiered_page_tokens, tag);
    pkv_layer_ref backwards[3] = {{0, 2}, {0, 1}, {0, 0}}; /* headers come without the first layer's slice */
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.layers = backwards;
    options.num_layers = 3;
    pkv_prefetch *session = open_session(pool, &options);
    for (int round = 0; round < 20; ++round) {
        check_step(session, 3, 1, &table, &tag);
        assert_ok(pkv_prefetch_submit(session, table, 0, NULL));
        if (round % 2 == 0) usleep((useconds_t)(round * 100));
        assert_ok(pkv_prefetch_cancel(session));
        check_session(session);
    }
    assert_ok(pkv_prefetch_close(session, NULL));
    end_table(table);
    eventually(tier_stats(slow).open_requests == 0);
    assert_ok(pkv_tier_close(slow));
    end_all(pool, f);
}

int main(void) {
#define GUARDED(test) cmocka_unit_test_setup_teardown(test, guard, unguard)
    const struct CMUnitTest tests[] = {
        GUARDED(case_K07_a_cancelled_prompt_ends_though_its_tier_is_frozen),
        GUARDED(case_K07_cancelled_blocks_give_their_pages_back_though_the_tier_is_frozen),
        GUARDED(case_K08_an_operation_may_be_closed_as_soon_as_it_comes_out_of_its_queue),
        GUARDED(case_J08_an_image_stays_until_its_load_has_ended),
        GUARDED(case_J10_blocks_filled_with_their_own_id_go_down_and_up_1000_times),
        GUARDED(case_J16_items_of_several_sizes_are_moved_in_their_own_size),
        GUARDED(case_J19_a_failed_load_is_told_to_its_own_table_only),
        GUARDED(case_J22_a_truncated_image_is_found_once),
        GUARDED(a_late_load_does_not_touch_a_page_that_was_restored_meanwhile),
        GUARDED(a_window_may_pass_blocks_that_are_in_tiers_between_two_steps),
        GUARDED(a_wait_for_staging_memory_ends_when_others_give_it_back),
        GUARDED(a_dead_tier_that_keeps_all_staging_memory_makes_nobody_wait_for_ever),
        GUARDED(a_prompt_goes_on_when_the_load_in_its_way_is_dropped),
        GUARDED(loads_may_end_before_the_tier_is_back_from_submit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
