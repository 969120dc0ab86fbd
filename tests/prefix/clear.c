/* SPDX-License-Identifier: Apache-2.0 */
/* Forgetting prefixes: what is freed, what is reported as held, and that nothing comes back. Field case A22. */
#include "support/support.h"

enum { page_tokens = 16 };

static pkv_token tokens[128];

static pkv_clear_result clear_of(pkv_pool *pool, const pkv_namespace *ns) {
    pkv_clear_result result = PKV_CLEAR_RESULT_INIT;
    assert_ok(pkv_pool_clear(pool, ns, &result));
    return result;
}

static pkv_prompt prompt_in(const pkv_namespace *ns, uint64_t num_tokens) {
    count_up(tokens, 128, 1);
    pkv_prompt prompt = prompt_of(tokens, num_tokens);
    prompt.ns = ns;
    return prompt;
}

static void case_A22_clear_reports_what_is_held_and_nothing_is_found_from_then_on(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, page_tokens);
    const pkv_prompt prompt = prompt_in(NULL, 64);
    publish_cached(pool, &prompt);
    const pkv_prompt head = prompt_in(NULL, 16);
    pkv_page held;
    assert_int_equal(lookup_tokens(pool, &head, &held, 1), 16);
    const pkv_clear_result result = clear_of(pool, NULL);
    assert_int_equal(result.held, 1);
    assert_int_equal(result.freed, 3);
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_int_equal(page_of(pool, held).count, 1);
    assert_int_equal(page_of(pool, held).published, 0);
    release_pages(pool, &held, 1);
    assert_int_equal(stats_of(pool).free_pages, 8);
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_int_equal(stats_of(pool).cleared_pages, 3);
    assert_int_equal(stats_of(pool).namespaces, 0);
    end_pool(pool);
}

static void case_A22_table_admitted_before_publishes_nothing_more(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(16, page_tokens);
    pkv_prompt prompt = prompt_in(NULL, 64);
    pkv_table *table = admit(pool, &prompt, NULL);
    assert_ok(pkv_table_commit(table, 32, NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 32);
    const pkv_clear_result result = clear_of(pool, NULL);
    assert_int_equal(result.held, 2);
    assert_int_equal(result.freed, 0);
    assert_ok(pkv_table_commit(table, 64, NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_ok(pkv_table_truncate(table, 20, NULL)); /* back before what it had published */
    assert_ok(pkv_table_set_tokens(table, 20, 44, tokens + 20));
    assert_ok(pkv_table_reserve(table, 64));
    assert_ok(pkv_table_commit(table, 64, NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    pkv_table *fork;
    assert_ok(pkv_table_fork(table, NULL, &fork));
    assert_ok(pkv_table_set_tokens(fork, 64, 16, tokens + 64));
    assert_ok(pkv_table_reserve(fork, 80));
    assert_ok(pkv_table_commit(fork, 80, NULL));
    prompt = prompt_in(NULL, 80);
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_ok(pkv_table_destroy(table, NULL));
    assert_ok(pkv_table_destroy(fork, NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_int_equal(stats_of(pool).free_pages, 16);
    end_pool(pool);
}

static void case_A22_table_admitted_afterwards_publishes_as_ever(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(16, page_tokens);
    pkv_prompt prompt = prompt_in(NULL, 32);
    pkv_table *before = admit(pool, &prompt, NULL);
    clear_of(pool, NULL);
    pkv_table *after = admit(pool, &prompt, NULL);
    assert_int_equal(stats_of(pool).namespaces, 2); /* the old one lives as long as its table */
    assert_ok(pkv_table_commit(before, 32, NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_ok(pkv_table_commit(after, 32, NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 32);
    assert_ok(pkv_table_destroy(before, NULL));
    assert_int_equal(stats_of(pool).namespaces, 1);
    assert_int_equal(probe_tokens(pool, &prompt), 32);
    assert_ok(pkv_table_destroy(after, NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 32);
    end_pool(pool);
}

static void a_cleared_table_can_begin_anew_and_publish(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(16, page_tokens);
    const pkv_prompt prompt = prompt_in(NULL, 32);
    pkv_table *table = admit(pool, &prompt, NULL);
    clear_of(pool, NULL);
    assert_ok(pkv_table_clear(table, NULL));
    assert_ok(pkv_table_admit(table, &prompt, NULL, NULL));
    assert_ok(pkv_table_commit(table, 32, NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 32);
    assert_ok(pkv_table_destroy(table, NULL));
    end_pool(pool);
}

static void low_level_holders_may_publish_again_after_a_clear(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, page_tokens);
    const pkv_prompt prompt = prompt_in(NULL, 32);
    pkv_page pages[2];
    publish_held(pool, &prompt, pages);
    assert_int_equal(clear_of(pool, NULL).held, 2);
    assert_ok(pkv_pool_publish(pool, 0, &prompt, 0, 2, pages, NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 32);
    release_pages(pool, pages, 2);
    end_pool(pool);
}

static void clear_is_for_one_namespace(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(16, page_tokens);
    pkv_namespace tenants[3] = {PKV_NAMESPACE_INIT, PKV_NAMESPACE_INIT, PKV_NAMESPACE_INIT};
    tenants[1].salt = bytes_of("1");
    tenants[2].salt = bytes_of("2");
    pkv_prompt prompts[3];
    for (int i = 0; i < 3; ++i) {
        prompts[i] = prompt_in(&tenants[i], 32);
        publish_cached(pool, &prompts[i]);
    }
    assert_int_equal(clear_of(pool, &tenants[1]).freed, 2);
    assert_int_equal(probe_tokens(pool, &prompts[0]), 32);
    assert_int_equal(probe_tokens(pool, &prompts[1]), 0);
    assert_int_equal(probe_tokens(pool, &prompts[2]), 32);
    assert_int_equal(stats_of(pool).namespaces, 2);
    end_pool(pool);
}

static void clear_of_an_unknown_namespace_is_no_error(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, page_tokens);
    pkv_namespace ns = PKV_NAMESPACE_INIT;
    ns.model = bytes_of("never seen");
    const pkv_prompt prompt = prompt_in(NULL, 32);
    publish_cached(pool, &prompt);
    const pkv_pool_stats before = stats_of(pool);
    const pkv_clear_result result = clear_of(pool, &ns);
    assert_int_equal(result.freed, 0);
    assert_int_equal(result.held, 0);
    assert_ok(pkv_pool_clear(pool, &ns, NULL));
    const pkv_pool_stats after = stats_of(pool);
    assert_same_stats(&before, &after);
    end_pool(pool);
}

static void clear_all_forgets_every_namespace(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(64, page_tokens);
    pkv_namespace ns = PKV_NAMESPACE_INIT;
    pkv_prompt prompt = prompt_in(&ns, 32);
    for (ns.adapter_id = 0; ns.adapter_id < 20; ++ns.adapter_id) publish_cached(pool, &prompt);
    pkv_table *table = admit(pool, &prompt, NULL); /* in a namespace without blocks */
    pkv_page held[2];
    ns.adapter_id = 7;
    assert_int_equal(lookup_tokens(pool, &prompt, held, 2), 32);
    pkv_clear_result result = PKV_CLEAR_RESULT_INIT;
    assert_ok(pkv_pool_clear_all(pool, &result));
    assert_int_equal(result.freed, 38);
    assert_int_equal(result.held, 2);
    for (ns.adapter_id = 0; ns.adapter_id <= 20; ++ns.adapter_id) assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_ok(pkv_table_commit(table, 32, NULL));
    ns.adapter_id = 20;
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_int_equal(stats_of(pool).index_blocks, 0);
    assert_int_equal(stats_of(pool).cleared_pages, 38);
    assert_ok(pkv_pool_clear_all(pool, NULL));
    release_pages(pool, held, 2);
    assert_ok(pkv_table_destroy(table, NULL));
    assert_int_equal(stats_of(pool).namespaces, 0);
    assert_int_equal(stats_of(pool).free_pages, 64);
    publish_cached(pool, &prompt);
    assert_int_equal(probe_tokens(pool, &prompt), 32);
    end_pool(pool);
}

static void branches_and_long_chains_are_forgotten_whole(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4096, 1);
    test_random random = {5};
    for (int i = 0; i < 300; ++i) {
        pkv_token branch[12];
        for (int j = 0; j < 12; ++j) branch[j] = (pkv_token)random_below(&random, 3);
        const pkv_prompt prompt = prompt_of(branch, 12);
        publish_cached(pool, &prompt);
    }
    const uint64_t blocks = stats_of(pool).index_blocks;
    assert_int_equal(stats_of(pool).cached_pages, blocks);
    assert_int_equal(clear_of(pool, NULL).freed, blocks);
    assert_int_equal(stats_of(pool).free_pages, 4096);
    end_pool(pool);
}

static void bad_arguments_clear_nothing(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, page_tokens);
    const pkv_prompt prompt = prompt_in(NULL, 32);
    publish_cached(pool, &prompt);
    pkv_clear_result no_size = {0, 7, 7};
    assert_status(pkv_pool_clear(pool, NULL, &no_size), PKV_ERR_INVALID);
    assert_status(pkv_pool_clear_all(pool, &no_size), PKV_ERR_INVALID);
    pkv_namespace ns = PKV_NAMESPACE_INIT;
    ns.struct_size = 1;
    assert_status(pkv_pool_clear(pool, &ns, NULL), PKV_ERR_INVALID);
    assert_int_equal(probe_tokens(pool, &prompt), 32);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_A22_clear_reports_what_is_held_and_nothing_is_found_from_then_on),
        cmocka_unit_test(case_A22_table_admitted_before_publishes_nothing_more),
        cmocka_unit_test(case_A22_table_admitted_afterwards_publishes_as_ever),
        cmocka_unit_test(a_cleared_table_can_begin_anew_and_publish),
        cmocka_unit_test(low_level_holders_may_publish_again_after_a_clear),
        cmocka_unit_test(clear_is_for_one_namespace),
        cmocka_unit_test(clear_of_an_unknown_namespace_is_no_error),
        cmocka_unit_test(clear_all_forgets_every_namespace),
        cmocka_unit_test(branches_and_long_chains_are_forgotten_whole),
        cmocka_unit_test(bad_arguments_clear_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
