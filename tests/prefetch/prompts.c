/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts that are brought up before their requests run. Field cases K01, K04, K05, K10, K11, P02. */
#include "prefetch/watch.h"

static const uint64_t ten_seconds = 10ull * one_second;

/* ---- words ---- */

typedef struct {
    faulty *tier;
    pkv_pool *pool;
    pkv_prefetch *session;
} world;

static world make_world(uint64_t num_pages, const pkv_prefetch_options *options) {
    world w = {watched_open(), NULL, NULL};
    const pkv_group_options group = layers_group(num_pages, 2);
    w.pool = pool_of_groups(&group, 1, w.tier->tier);
    w.session = open_session(w.pool, options);
    return w;
}

static pkv_prefetch_options one_load_at_a_time(void) {
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.max_bytes_in_flight = 1;
    return options;
}

static void end_world(world *w) {
    check_session(w->session);
    assert_ok(pkv_prefetch_close(w->session, NULL));
    end_pool(w->pool);
    faulty_end(w->tier);
}

static pkv_token first_token(int sequence) { return 10000 * sequence; }

/* A sequence that is in the tier alone, tagged with its number. */
static void put_below(world *w, int sequence, uint64_t blocks) {
    compute(w->pool, first_token(sequence), blocks * tiered_page_tokens, (uint32_t)sequence);
    push_down(w->pool);
    name_prompt(w->pool, sequence, first_token(sequence), blocks * tiered_page_tokens);
    forget_loads(w->tier);
}

typedef struct {
    pkv_token tokens[256];
    pkv_prompt prompt;
} named_prompt;

static void name_tokens(named_prompt *named, int sequence, uint64_t num_tokens) {
    count_up(named->tokens, num_tokens, first_token(sequence));
    named->prompt = prompt_of(named->tokens, num_tokens);
}

static uint64_t cached_tokens(pkv_pool *pool, int sequence, uint64_t num_tokens) {
    named_prompt named;
    name_tokens(&named, sequence, num_tokens);
    return probe_tokens(pool, &named.prompt);
}

static pkv_status try_prompt(pkv_prefetch *session, int sequence, uint64_t num_tokens, uint64_t timeout_ns,
                             pkv_match *match, pkv_op **op) {
    named_prompt named;
    name_tokens(&named, sequence, num_tokens);
    pkv_op_options options = PKV_OP_OPTIONS_INIT;
    options.timeout_ns = timeout_ns;
    return pkv_prefetch_prompt(session, &named.prompt, &options, match, op);
}

static pkv_op *begin_prompt(pkv_prefetch *session, int sequence, uint64_t num_tokens, pkv_match *match) {
    pkv_op *op = NULL;
    assert_ok(try_prompt(session, sequence, num_tokens, ten_seconds, match, &op));
    return op;
}

static pkv_op_info state_of(pkv_op *op) {
    pkv_op_info info = PKV_OP_INFO_INIT;
    assert_ok(pkv_op_poll(op, &info, NULL, 0));
    assert_int_equal(info.num_items, 1);
    return info;
}

static void end_op(pkv_op *op, pkv_status expected) {
    assert_status(pkv_op_wait(op, 2 * ten_seconds), expected);
    const pkv_op_info info = state_of(op);
    assert_int_equal(info.state, PKV_OP_ENDED);
    assert_int_equal(info.status, expected);
    assert_int_equal(info.done_items, 1);
    assert_int_equal(info.good_items, expected == PKV_OK);
    assert_int_equal(info.buffers_free, 1);
    assert_ok(pkv_op_close(op));
}

/* The request itself: everything that is cached of it is right. */
static void run_request(world *w, int sequence, uint64_t num_tokens, uint64_t resident) {
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(w->pool, first_token(sequence), num_tokens, &match);
    assert_int_equal(match.resident_tokens, resident);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, ten_seconds, NULL));
    check_rows(table, 0, match.tokens, (uint32_t)sequence);
    end_table(table);
}

/* ---- what is brought up ---- */

static void after_a_prompt_its_request_finds_everything_in_pages(void **state) {
    (void)state;
    world w = make_world(32, NULL);
    put_below(&w, 1, 9);
    pkv_match match = PKV_MATCH_INIT;
    pkv_op *op = begin_prompt(w.session, 1, 39, &match); /* three tokens that nobody has */
    assert_int_equal(match.tokens, 36);
    assert_int_equal(match.blocks, 9);
    assert_int_equal(match.resident_tokens, 0);
    assert_int_equal(match.tier_tokens[0], 36);
    end_op(op, PKV_OK);
    assert_int_equal(cached_tokens(w.pool, 1, 39), 36);
    assert_int_equal(stats_of(w.pool).held_pages, session_stats(w.session).staging_pages);
    assert_int_equal(stats_of(w.pool).cached_pages, 9);
    const uint64_t loads = num_loads(w.tier);
    assert_int_equal(loads, 9);
    run_request(&w, 1, 39, 36);
    assert_int_equal(num_loads(w.tier), loads);
    const pkv_prefetch_stats stats = session_stats(w.session);
    assert_int_equal(stats.prompts, 1);
    assert_int_equal(stats.needed, 0);
    assert_int_equal(stats.bytes_used, 9 * image_bytes);
    assert_int_equal(stats.block_pages, 0);
    end_world(&w);
}

static void only_what_is_not_in_pages_is_loaded(void **state) {
    (void)state;
    world w = make_world(32, NULL);
    put_below(&w, 1, 8);
    end_op(begin_prompt(w.session, 1, 32, NULL), PKV_OK);
    assert_int_equal(evict_pages(w.pool, 3), 3);
    pkv_match match = PKV_MATCH_INIT;
    pkv_op *op = begin_prompt(w.session, 1, 32, &match);
    assert_int_equal(match.tokens, 32);
    assert_int_equal(match.resident_tokens, 20);
    assert_int_equal(match.tier_tokens[0], 12);
    end_op(op, PKV_OK);
    assert_int_equal(num_loads(w.tier), 8 + 3);
    run_request(&w, 1, 32, 32);
    end_world(&w);
}

static void a_prompt_that_is_cached_or_unknown_ends_at_once(void **state) {
    (void)state;
    world w = make_world(32, NULL);
    put_below(&w, 1, 4);
    end_op(begin_prompt(w.session, 1, 16, NULL), PKV_OK);
    const uint64_t loads = num_loads(w.tier);
    pkv_match match = PKV_MATCH_INIT;
    end_op(begin_prompt(w.session, 1, 16, &match), PKV_OK);
    assert_int_equal(match.resident_tokens, 16);
    end_op(begin_prompt(w.session, 2, 16, &match), PKV_OK);
    assert_int_equal(match.tokens, 0);
    end_op(begin_prompt(w.session, 1, 3, &match), PKV_OK); /* no whole block */
    assert_int_equal(match.tokens, 0);
    end_op(begin_prompt(w.session, 1, 0, &match), PKV_OK);
    assert_int_equal(num_loads(w.tier), loads);
    assert_int_equal(session_stats(w.session).prompts, 5);
    run_request(&w, 1, 16, 16);
    end_world(&w);
}

static void the_longest_prefix_over_all_tiers_is_loaded(void **state) {
    (void)state;
    pkv_tier *upper = host_tier(3);
    faulty *lower = faulty_open();
    const pkv_tier_attachment tiers[] = {attachment(upper, PKV_TIER_WRITE_THROUGH),
                                         attachment(lower->tier, PKV_TIER_WRITE_THROUGH)};
    pkv_pool *pool = pool_over(32, tiers, 2);
    compute(pool, 1, 32, 7);
    push_down(pool);
    pkv_prefetch *session = open_session(pool, NULL);
    pkv_token tokens[32];
    count_up(tokens, 32, 1);
    const pkv_prompt prompt = prompt_of(tokens, 32);
    pkv_match match = PKV_MATCH_INIT;
    pkv_op *op = NULL;
    assert_ok(pkv_prefetch_prompt(session, &prompt, NULL, &match, &op));
    assert_int_equal(match.tokens, 32);
    assert_true(match.tier_tokens[0] > 0 && match.tier_tokens[1] > 0);
    assert_int_equal(match.tier_tokens[0] + match.tier_tokens[1], 32);
    end_op(op, PKV_OK);
    assert_int_equal(probe_tokens(pool, &prompt), 32);
    pkv_table *table = admit_again(pool, 1, 32, NULL);
    check_rows(table, 0, 32, 7);
    end_table(table);
    assert_ok(pkv_prefetch_close(session, NULL));
    end_pool(pool);
    assert_ok(pkv_tier_close(upper));
    faulty_end(lower);
}

static void prompts_of_several_groups_are_loaded_in_all_of_them(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(200);
    pkv_group_options groups[2] = {layers_group(32, 3), window_group(32, 8, 4)};
    pkv_pool *pool = pool_of_groups(groups, 2, tier);
    named_prompt named;
    name_tokens(&named, 1, 40);
    pkv_table *table = admit(pool, &named.prompt, NULL);
    put_and_commit(pool, table, 40, 5);
    end_table(table);
    flush(pool);
    uint64_t evicted = 0;
    for (uint32_t group = 0; group < 2; ++group) assert_ok(pkv_pool_evict(pool, group, UINT32_MAX, &evicted));
    pkv_prefetch *session = open_session(pool, NULL);
    pkv_match match = PKV_MATCH_INIT;
    pkv_op *op = NULL;
    assert_ok(pkv_prefetch_prompt(session, &named.prompt, NULL, &match, &op));
    assert_int_equal(match.tokens, 40);
    end_op(op, PKV_OK);
    table = admit_again(pool, first_token(1), 40, &match);
    assert_int_equal(match.resident_tokens, 40);
    same_rows(pool, table, 0, 0, 40, 5, 0);
    same_rows(pool, table, 1, 32, 8, 5, 32);
    end_table(table);
    assert_ok(pkv_prefetch_close(session, NULL));
    end_groups(pool);
    assert_ok(pkv_tier_close(tier));
}

static void other_namespaces_have_other_prompts(void **state) {
    (void)state;
    world w = make_world(32, NULL);
    put_below(&w, 1, 4);
    named_prompt named;
    name_tokens(&named, 1, 16);
    pkv_namespace ns = PKV_NAMESPACE_INIT;
    ns.salt = bytes_of("another tenant");
    named.prompt.ns = &ns;
    pkv_match match = PKV_MATCH_INIT;
    pkv_op *op = NULL;
    assert_ok(pkv_prefetch_prompt(w.session, &named.prompt, NULL, &match, &op));
    assert_int_equal(match.tokens, 0);
    end_op(op, PKV_OK);
    assert_int_equal(num_loads(w.tier), 0);
    end_world(&w);
}

/* ---- several at once ---- */

static void the_same_prefix_twice_at_once_is_loaded_once(void **state) {
    (void)state;
    world w = make_world(48, NULL);
    put_below(&w, 1, 6);
    faulty_always(w.tier, PKV_TIER_LOAD, fault_hold, 0);
    pkv_op *ops[3];
    const uint64_t tokens[] = {24, 24, 16};
    for (int i = 0; i < 3; ++i) ops[i] = begin_prompt(w.session, 1, tokens[i], NULL);
    eventually(faulty_held(w.tier) == 6);
    let_all_go(w.tier);
    for (int i = 0; i < 3; ++i) end_op(ops[i], PKV_OK);
    assert_int_equal(num_loads(w.tier), 6);
    assert_int_equal(stats_of(w.pool).cached_pages, 6);
    run_request(&w, 1, 24, 24);
    end_world(&w);
}

static void prompts_with_a_common_head_load_it_once(void **state) {
    (void)state;
    world w = make_world(64, NULL);
    put_below(&w, 1, 6);
    named_prompt other;
    name_tokens(&other, 1, 24);
    for (int i = 16; i < 24; ++i) other.tokens[i] += 500;
    pkv_table *table = admit(w.pool, &other.prompt, NULL);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, ten_seconds, NULL));
    write_and_commit(table, 24, 1);
    end_table(table);
    push_down(w.pool);
    forget_loads(w.tier);
    faulty_always(w.tier, PKV_TIER_LOAD, fault_hold, 0);
    pkv_op *first = begin_prompt(w.session, 1, 24, NULL), *second = NULL;
    pkv_match match = PKV_MATCH_INIT;
    assert_ok(pkv_prefetch_prompt(w.session, &other.prompt, NULL, &match, &second));
    assert_int_equal(match.tokens, 24);
    eventually(faulty_held(w.tier) == 8);
    let_all_go(w.tier);
    end_op(second, PKV_OK);
    end_op(first, PKV_OK);
    assert_int_equal(num_loads(w.tier), 8);
    assert_int_equal(probe_tokens(w.pool, &other.prompt), 24);
    run_request(&w, 1, 24, 24);
    end_world(&w);
}

static void prompts_and_predictions_share_their_loads(void **state) {
    (void)state;
    world w = make_world(64, NULL);
    put_below(&w, 1, 6);
    pkv_table *table = admit_again(w.pool, first_token(1), 24, NULL);
    faulty_always(w.tier, PKV_TIER_LOAD, fault_hold, 0);
    uint64_t submitted = 0;
    assert_ok(pkv_prefetch_submit(w.session, table, 0, &submitted));
    assert_int_equal(submitted, 6);
    pkv_op *op = begin_prompt(w.session, 1, 24, NULL);
    eventually(faulty_held(w.tier) == 6);
    let_all_go(w.tier);
    end_op(op, PKV_OK);
    assert_int_equal(cached_tokens(w.pool, 1, 24), 24);
    pkv_require_result result = PKV_REQUIRE_RESULT_INIT;
    assert_ok(pkv_prefetch_require(w.session, table, 0, UINT64_MAX, ten_seconds, &result));
    assert_int_equal(result.resident, 6);
    check_rows(table, 0, 24, 1);
    assert_int_equal(num_loads(w.tier), 6);
    end_table(table);
    end_world(&w);
}

static void a_prompt_whose_blocks_another_table_takes_ends_well(void **state) {
    (void)state;
    world w = make_world(64, NULL);
    put_below(&w, 1, 6);
    pkv_table *table = admit_again(w.pool, first_token(1), 24, NULL);
    fault_at(w.tier, 1004, 1, fault_hold, 0);
    pkv_op *op = begin_prompt(w.session, 1, 24, NULL);
    eventually(session_stats(w.session).good_loads == 5);
    assert_ok(pkv_prefetch_require(w.session, table, 0, 4, ten_seconds, NULL));
    check_rows(table, 0, 16, 1);
    assert_int_equal(state_of(op).state, PKV_OP_RUNNING);
    faulty_let_go(w.tier);
    end_op(op, PKV_OK);
    assert_int_equal(cached_tokens(w.pool, 1, 24), 24);
    assert_ok(pkv_prefetch_require(w.session, table, 0, UINT64_MAX, ten_seconds, NULL));
    check_rows(table, 0, 24, 1);
    end_table(table);
    end_world(&w);
}

static void a_request_that_does_not_wait_for_its_prompt_gets_the_same_rows(void **state) {
    (void)state;
    world w = make_world(64, NULL);
    put_below(&w, 1, 6);
    fault_at(w.tier, 1002, 1, fault_hold, 0);
    pkv_op *op = begin_prompt(w.session, 1, 24, NULL);
    eventually(session_stats(w.session).good_loads == 5);
    run_request(&w, 1, 24, 0);
    faulty_let_go(w.tier);
    end_op(op, PKV_OK);
    run_request(&w, 1, 24, 24);
    end_world(&w);
}

/* ---- ends ---- */

static void case_K01_a_prompt_that_has_not_begun_is_running(void **state) {
    (void)state;
    world w = make_world(32, NULL);
    put_below(&w, 1, 5);
    faulty_always(w.tier, PKV_TIER_LOAD, fault_hold, 0);
    pkv_op *op = begin_prompt(w.session, 1, 20, NULL);
    pkv_op_info info = state_of(op);
    assert_int_equal(info.state, PKV_OP_RUNNING);
    assert_int_equal(info.done_items, 0);
    assert_status(pkv_op_wait(op, 0), PKV_ERR_TIMEOUT);
    pkv_status status = PKV_OK;
    assert_ok(pkv_op_poll(op, &info, &status, 1));
    assert_int_equal(status, PKV_ERR_BUSY);
    eventually(faulty_held(w.tier) == 5);
    assert_int_equal(state_of(op).state, PKV_OP_RUNNING);
    let_all_go(w.tier);
    end_op(op, PKV_OK);
    end_world(&w);
}

static void case_K04_the_second_prompt_goes_on_when_the_first_is_cancelled(void **state) {
    (void)state;
    const pkv_prefetch_options options = one_load_at_a_time();
    world w = make_world(48, &options);
    put_below(&w, 1, 4);
    put_below(&w, 2, 4);
    fault_at(w.tier, 1000, 1, fault_hold, 0);
    pkv_op *first = begin_prompt(w.session, 1, 16, NULL);
    eventually(faulty_held(w.tier) == 1);
    pkv_op *second = begin_prompt(w.session, 2, 16, NULL);
    assert_int_equal(num_loads(w.tier), 1);
    assert_ok(pkv_op_cancel(first));
    end_op(first, PKV_ERR_CANCELLED);
    end_op(second, PKV_OK);
    run_request(&w, 2, 16, 16);
    faulty_let_go(w.tier);
    end_world(&w);
}

static void case_K05_a_prompt_cancelled_before_its_first_page_ends_well(void **state) {
    (void)state;
    world w = make_world(32, NULL);
    put_below(&w, 1, 5);
    const uint64_t free_pages = stats_of(w.pool).free_pages;
    faulty_always(w.tier, PKV_TIER_LOAD, fault_hold, 0);
    pkv_op *op = begin_prompt(w.session, 1, 20, NULL);
    assert_ok(pkv_op_cancel(op));
    end_op(op, PKV_ERR_CANCELLED);
    assert_int_equal(cached_tokens(w.pool, 1, 20), 0);
    assert_int_equal(stats_of(w.pool).free_pages, free_pages);
    let_all_go(w.tier);
    run_request(&w, 1, 20, 0);
    end_world(&w);
}

static void case_K11_a_prompt_cancelled_after_three_of_five_pages_caches_three(void **state) {
    (void)state;
    const pkv_prefetch_options options = one_load_at_a_time();
    world w = make_world(32, &options);
    put_below(&w, 1, 5);
    fault_at(w.tier, 1003, 1, fault_hold, 0);
    pkv_op *op = begin_prompt(w.session, 1, 20, NULL);
    eventually(faulty_held(w.tier) == 1);
    assert_int_equal(session_stats(w.session).good_loads, 3);
    assert_ok(pkv_op_cancel(op));
    end_op(op, PKV_ERR_CANCELLED);
    pkv_page pages[5];
    named_prompt named;
    name_tokens(&named, 1, 20);
    const uint64_t found = lookup_tokens(w.pool, &named.prompt, pages, 5);
    assert_true(found <= 12);
    release_pages(w.pool, pages, found / tiered_page_tokens);
    faulty_let_go(w.tier);
    run_request(&w, 1, 20, found);
    end_world(&w);
}

static void a_cancel_after_the_end_changes_nothing(void **state) {
    (void)state;
    world w = make_world(32, NULL);
    put_below(&w, 1, 5);
    pkv_op *op = begin_prompt(w.session, 1, 20, NULL);
    assert_ok(pkv_op_wait(op, ten_seconds));
    assert_ok(pkv_op_cancel(op));
    end_op(op, PKV_OK);
    run_request(&w, 1, 20, 20);
    end_world(&w);
}

static void a_cancelled_prompt_leaves_the_loads_to_others_who_want_them(void **state) {
    (void)state;
    world w = make_world(48, NULL);
    put_below(&w, 1, 5);
    faulty_always(w.tier, PKV_TIER_LOAD, fault_hold, 0);
    pkv_op *first = begin_prompt(w.session, 1, 20, NULL), *second = begin_prompt(w.session, 1, 20, NULL);
    eventually(faulty_held(w.tier) == 5);
    assert_ok(pkv_op_cancel(first));
    end_op(first, PKV_ERR_CANCELLED);
    assert_int_equal(state_of(second).state, PKV_OP_RUNNING);
    let_all_go(w.tier);
    end_op(second, PKV_OK);
    assert_int_equal(num_loads(w.tier), 5);
    run_request(&w, 1, 20, 20);
    end_world(&w);
}

static void a_prompt_ends_when_its_time_is_over(void **state) {
    (void)state;
    const pkv_prefetch_options options = one_load_at_a_time();
    world w = make_world(32, &options);
    put_below(&w, 1, 5);
    const uint64_t free_pages = stats_of(w.pool).free_pages;
    fault_at(w.tier, 1002, 1, fault_hold, 0);
    pkv_op *op = NULL;
    assert_ok(try_prompt(w.session, 1, 20, 200000000, NULL, &op));
    end_op(op, PKV_ERR_TIMEOUT);
    assert_true(cached_tokens(w.pool, 1, 20) <= 8);
    assert_int_equal(stats_of(w.pool).free_pages + stats_of(w.pool).cached_pages, free_pages);
    faulty_let_go(w.tier);
    end_op(begin_prompt(w.session, 1, 20, NULL), PKV_OK);
    run_request(&w, 1, 20, 20);
    end_world(&w);
}

static void a_load_that_takes_too_long_ends_its_prompt(void **state) {
    (void)state;
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.load_timeout_ns = 20000000;
    world w = make_world(32, &options);
    put_below(&w, 1, 5);
    fault_at(w.tier, 1002, 1, fault_hold, 0);
    end_op(begin_prompt(w.session, 1, 20, NULL), PKV_ERR_TIMEOUT);
    assert_int_equal(cached_tokens(w.pool, 1, 20), 8);
    faulty_let_go(w.tier);
    run_request(&w, 1, 20, 8);
    end_world(&w);
}

static void blocks_before_a_bad_image_are_cached(void **state) {
    (void)state;
    const struct {
        fault what;
        int64_t value;
    } faults[] = {{fault_flip, 5000},  {fault_status, PKV_ERR_IO},   {fault_status, PKV_ERR_NOT_FOUND},
                  {fault_short, 4096}, {fault_refuse, PKV_ERR_BUSY}, {fault_other, 0}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; ++i) {
        world w = make_world(32, NULL);
        put_below(&w, 1, 5);
        const uint64_t free_pages = stats_of(w.pool).free_pages;
        fault_at(w.tier, 1002, 1, faults[i].what, faults[i].value);
        end_op(begin_prompt(w.session, 1, 20, NULL), PKV_ERR_LOST);
        assert_int_equal(cached_tokens(w.pool, 1, 20), 8);
        assert_int_equal(stats_of(w.pool).cached_pages, 2);
        assert_int_equal(stats_of(w.pool).free_pages, free_pages - 2);
        assert_int_equal(session_stats(w.session).failed_loads, 1);
        /* Computed again, it is as good as any. */
        pkv_match match = PKV_MATCH_INIT;
        pkv_table *table = admit_again(w.pool, first_token(1), 20, &match);
        assert_int_equal(match.resident_tokens, 8);
        assert_ok(pkv_table_restore(table, 0, UINT64_MAX, ten_seconds, NULL));
        if (match.tokens < 20) write_and_commit(table, 20, 1);
        check_rows(table, 0, 20, 1);
        end_table(table);
        run_request(&w, 1, 20, 20);
        end_world(&w);
    }
}

static void without_pages_a_prompt_does_not_begin(void **state) {
    (void)state;
    world w = make_world(16, NULL); /* 4 for staging */
    put_below(&w, 1, 6);
    pkv_page taken[6];
    assert_ok(pkv_pool_alloc(w.pool, 0, 6, taken));
    pkv_op *op = NULL;
    assert_status(try_prompt(w.session, 1, 24, ten_seconds, NULL, &op), PKV_ERR_NO_PAGES);
    assert_null(op);
    assert_int_equal(stats_of(w.pool).free_pages, 6);
    assert_int_equal(num_loads(w.tier), 0);
    assert_int_equal(stats_of(w.pool).tables, 0);
    release_pages(w.pool, taken, 1); /* 6, and one more */
    end_op(begin_prompt(w.session, 1, 24, NULL), PKV_OK);
    release_pages(w.pool, taken + 1, 5);
    run_request(&w, 1, 24, 24);
    assert_int_equal(faulty_pins(w.tier), 0);
    end_world(&w);
}

static void a_queue_hears_of_the_end(void **state) {
    (void)state;
    world w = make_world(48, NULL);
    put_below(&w, 1, 4);
    put_below(&w, 2, 4);
    pkv_queue *queue = NULL;
    assert_ok(pkv_queue_create(&queue));
    named_prompt named;
    pkv_op_options options = PKV_OP_OPTIONS_INIT;
    options.queue = queue;
    fault_at(w.tier, 1002, 1, fault_status, PKV_ERR_IO);
    pkv_op *op = NULL;
    for (int sequence = 1; sequence <= 3; ++sequence) {
        name_tokens(&named, sequence, 16);
        options.user = (uint64_t)sequence;
        assert_ok(pkv_prefetch_prompt(w.session, &named.prompt, &options, NULL, sequence == 2 ? &op : NULL));
    }
    bool seen[4] = {false};
    for (int i = 0; i < 3; ++i) {
        pkv_completion done;
        uint64_t count = 0;
        assert_ok(pkv_queue_drain(queue, &done, 1, ten_seconds, &count));
        assert_int_equal(count, 1);
        assert_true(done.user >= 1 && done.user <= 3 && !seen[done.user]);
        seen[done.user] = true;
        assert_int_equal(done.status, done.user == 1 ? PKV_ERR_LOST : PKV_OK);
        if (done.user == 2) assert_ptr_equal(done.op, op);
        assert_ok(pkv_op_close(done.op));
    }
    assert_ok(pkv_queue_destroy(queue));
    run_request(&w, 2, 16, 16);
    end_world(&w);
}

static void an_operation_without_a_queue_needs_a_place_for_its_handle(void **state) {
    (void)state;
    world w = make_world(32, NULL);
    put_below(&w, 1, 4);
    assert_status(try_prompt(w.session, 1, 16, 0, NULL, NULL), PKV_ERR_INVALID);
    pkv_op *op = NULL;
    assert_status(pkv_prefetch_prompt(w.session, NULL, NULL, NULL, &op), PKV_ERR_INVALID);
    assert_status(try_prompt(NULL, 1, 16, 0, NULL, &op), PKV_ERR_HANDLE);
    assert_null(op);
    assert_int_equal(session_stats(w.session).prompts, 0);
    end_world(&w);
}

static void an_operation_that_was_closed_goes_on(void **state) {
    (void)state;
    world w = make_world(32, NULL);
    put_below(&w, 1, 4);
    fault_at(w.tier, 1001, 1, fault_hold, 0);
    pkv_op *op = begin_prompt(w.session, 1, 16, NULL);
    assert_ok(pkv_op_close(op));
    eventually(faulty_held(w.tier) == 1);
    faulty_let_go(w.tier);
    eventually(cached_tokens(w.pool, 1, 16) == 16);
    eventually(stats_of(w.pool).tables == 0);
    run_request(&w, 1, 16, 16);
    end_world(&w);
}

static void a_session_that_is_cancelled_or_closed_ends_its_prompts(void **state) {
    (void)state;
    for (int closed = 0; closed < 2; ++closed) {
        world w = make_world(48, NULL);
        put_below(&w, 1, 4);
        put_below(&w, 2, 4);
        faulty_always(w.tier, PKV_TIER_LOAD, fault_hold, 0);
        pkv_op *first = begin_prompt(w.session, 1, 16, NULL), *second = begin_prompt(w.session, 2, 16, NULL);
        eventually(faulty_held(w.tier) == 8);
        if (closed) {
            assert_ok(pkv_prefetch_close(w.session, NULL));
            assert_int_equal(stats_of(w.pool).held_pages, 0);
        } else {
            assert_ok(pkv_prefetch_cancel(w.session));
        }
        end_op(first, PKV_ERR_CANCELLED);
        end_op(second, PKV_ERR_CANCELLED);
        assert_int_equal(stats_of(w.pool).tables, 0);
        let_all_go(w.tier);
        if (closed) w.session = open_session(w.pool, NULL);
        end_op(begin_prompt(w.session, 1, 16, NULL), PKV_OK);
        run_request(&w, 1, 16, 16);
        end_world(&w);
    }
}

/* ---- limits and numbers ---- */

static void case_K10_more_than_1024_prompts_are_refused(void **state) {
    (void)state;
    enum { cap = 1024 };
    world w = make_world(3000, NULL);
    put_below(&w, 1, 1);
    fault_at(w.tier, 1000, 1, fault_hold, 0);
    pkv_op **ops = calloc(cap, sizeof *ops), *extra = NULL;
    for (int i = 0; i < cap; ++i) ops[i] = begin_prompt(w.session, 1, 4, NULL);
    assert_status(try_prompt(w.session, 1, 4, ten_seconds, NULL, &extra), PKV_ERR_BUSY);
    assert_status(try_prompt(w.session, 2, 4, ten_seconds, NULL, &extra), PKV_ERR_BUSY);
    assert_null(extra);
    assert_ok(pkv_op_cancel(ops[0]));
    end_op(ops[0], PKV_ERR_CANCELLED);
    ops[0] = begin_prompt(w.session, 1, 4, NULL);
    assert_int_equal(num_loads(w.tier), 1);
    faulty_let_go(w.tier);
    for (int i = 0; i < cap; ++i) end_op(ops[i], PKV_OK);
    free(ops);
    assert_int_equal(stats_of(w.pool).cached_pages, 1);
    run_request(&w, 1, 4, 4);
    end_world(&w);
}

static void case_P02_a_prefetched_prompt_counts_as_one_request(void **state) {
    (void)state;
    world w = make_world(32, NULL);
    put_below(&w, 1, 4);
    const pkv_pool_stats before = stats_of(w.pool);
    for (int i = 0; i < 5; ++i) end_op(begin_prompt(w.session, 1, 18, NULL), PKV_OK);
    pkv_pool_stats after = stats_of(w.pool);
    assert_int_equal(after.requests, before.requests);
    assert_int_equal(after.asked_tokens, before.asked_tokens);
    assert_int_equal(after.hit_tokens, before.hit_tokens);
    assert_int_equal(after.tier_hit_tokens, before.tier_hit_tokens);
    assert_int_equal(after.refused, before.refused);
    assert_int_equal(after.retries, before.retries);
    run_request(&w, 1, 18, 16);
    after = stats_of(w.pool);
    assert_int_equal(after.requests, before.requests + 1);
    assert_int_equal(after.asked_tokens, before.asked_tokens + 18);
    assert_int_equal(after.hit_tokens, before.hit_tokens + 16);
    assert_int_equal(after.tier_hit_tokens, before.tier_hit_tokens);
    end_world(&w);
}

static void a_refused_prompt_is_no_refused_request(void **state) {
    (void)state;
    world w = make_world(16, NULL);
    put_below(&w, 1, 6);
    pkv_page taken[6];
    assert_ok(pkv_pool_alloc(w.pool, 0, 6, taken));
    const pkv_pool_stats before = stats_of(w.pool);
    pkv_op *op = NULL;
    assert_status(try_prompt(w.session, 1, 24, ten_seconds, NULL, &op), PKV_ERR_NO_PAGES);
    assert_int_equal(stats_of(w.pool).refused, before.refused);
    assert_int_equal(stats_of(w.pool).requests, before.requests);
    release_pages(w.pool, taken, 6);
    end_world(&w);
}

static void what_a_prompt_brought_up_is_as_recently_used_as_any(void **state) {
    (void)state;
    world w = make_world(16, NULL);
    put_below(&w, 1, 3);
    put_below(&w, 2, 3);
    end_op(begin_prompt(w.session, 2, 12, NULL), PKV_OK);
    end_op(begin_prompt(w.session, 1, 12, NULL), PKV_OK);
    assert_int_equal(evict_pages(w.pool, 3), 3);
    assert_int_equal(cached_tokens(w.pool, 1, 12), 12);
    assert_int_equal(cached_tokens(w.pool, 2, 12), 0);
    end_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_a_prompt_its_request_finds_everything_in_pages),
        cmocka_unit_test(only_what_is_not_in_pages_is_loaded),
        cmocka_unit_test(a_prompt_that_is_cached_or_unknown_ends_at_once),
        cmocka_unit_test(the_longest_prefix_over_all_tiers_is_loaded),
        cmocka_unit_test(prompts_of_several_groups_are_loaded_in_all_of_them),
        cmocka_unit_test(other_namespaces_have_other_prompts),
        cmocka_unit_test(the_same_prefix_twice_at_once_is_loaded_once),
        cmocka_unit_test(prompts_with_a_common_head_load_it_once),
        cmocka_unit_test(prompts_and_predictions_share_their_loads),
        cmocka_unit_test(a_prompt_whose_blocks_another_table_takes_ends_well),
        cmocka_unit_test(a_request_that_does_not_wait_for_its_prompt_gets_the_same_rows),
        cmocka_unit_test(case_K01_a_prompt_that_has_not_begun_is_running),
        cmocka_unit_test(case_K04_the_second_prompt_goes_on_when_the_first_is_cancelled),
        cmocka_unit_test(case_K05_a_prompt_cancelled_before_its_first_page_ends_well),
        cmocka_unit_test(case_K11_a_prompt_cancelled_after_three_of_five_pages_caches_three),
        cmocka_unit_test(a_cancel_after_the_end_changes_nothing),
        cmocka_unit_test(a_cancelled_prompt_leaves_the_loads_to_others_who_want_them),
        cmocka_unit_test(a_prompt_ends_when_its_time_is_over),
        cmocka_unit_test(a_load_that_takes_too_long_ends_its_prompt),
        cmocka_unit_test(blocks_before_a_bad_image_are_cached),
        cmocka_unit_test(without_pages_a_prompt_does_not_begin),
        cmocka_unit_test(a_queue_hears_of_the_end),
        cmocka_unit_test(an_operation_without_a_queue_needs_a_place_for_its_handle),
        cmocka_unit_test(an_operation_that_was_closed_goes_on),
        cmocka_unit_test(a_session_that_is_cancelled_or_closed_ends_its_prompts),
        cmocka_unit_test(case_K10_more_than_1024_prompts_are_refused),
        cmocka_unit_test(case_P02_a_prefetched_prompt_counts_as_one_request),
        cmocka_unit_test(a_refused_prompt_is_no_refused_request),
        cmocka_unit_test(what_a_prompt_brought_up_is_as_recently_used_as_any),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
