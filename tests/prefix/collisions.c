/* SPDX-License-Identifier: Apache-2.0 */
/* Every key made equal: a collision is a miss and a counter, never another prompt's page. Field cases A01, A02, A07. */
#include "support/support.h"

static pkv_pool *make_equal_pool(uint64_t num_pages, uint32_t page_tokens) {
    pkv_group_options group = small_group(num_pages);
    group.memory = PKV_MEMORY_NONE;
    return make_pool_of(&group, page_tokens, PKV_DEBUG_EQUAL_KEYS);
}

static void fill(pkv_token *tokens, uint64_t num_tokens, pkv_token value) {
    for (uint64_t i = 0; i < num_tokens; ++i) tokens[i] = value;
}

static void case_A01_equal_hash_of_other_tokens_is_no_hit(void **state) {
    (void)state;
    pkv_pool *pool = make_equal_pool(4, 16);
    pkv_token ones[16];
    pkv_token twos[16];
    fill(ones, 16, 1);
    fill(twos, 16, 2);
    const pkv_prompt published = prompt_of(ones, 16);
    const pkv_prompt asked = prompt_of(twos, 16);
    publish_cached(pool, &published);
    const uint64_t before = stats_of(pool).key_collisions;
    pkv_page page;
    assert_int_equal(lookup_tokens(pool, &asked, &page, 1), 0);
    assert_int_equal(stats_of(pool).key_collisions, before + 1);
    assert_int_equal(lookup_tokens(pool, &published, &page, 1), 16);
    release_pages(pool, &page, 1);
    end_pool(pool);
}

static void case_A02_second_block_of_an_equal_key_never_takes_the_place_of_the_first(void **state) {
    (void)state;
    pkv_pool *pool = make_equal_pool(4, 4);
    const pkv_token tokens[2][4] = {{1, 2, 3, 4}, {1, 2, 3, 5}};
    pkv_page pages[2];
    pkv_prompt prompts[2];
    for (int i = 0; i < 2; ++i) {
        prompts[i] = prompt_of(tokens[i], 4);
        publish_held(pool, &prompts[i], &pages[i]);
    }
    assert_int_not_equal(pages[0], pages[1]);
    for (int i = 0; i < 2; ++i) {
        pkv_page page;
        assert_int_equal(lookup_tokens(pool, &prompts[i], &page, 1), 4);
        assert_int_equal(page, pages[i]);
        release_pages(pool, &page, 1);
    }
    release_pages(pool, pages, 2);
    end_pool(pool);
}

static void case_A07_no_hit_among_128_blocks_of_an_equal_key(void **state) {
    (void)state;
    pkv_pool *pool = make_equal_pool(128, 4);
    pkv_page pages[128];
    for (pkv_token i = 0; i < 128; ++i) {
        const pkv_token tokens[4] = {i, i, i, i};
        const pkv_prompt prompt = prompt_of(tokens, 4);
        publish_held(pool, &prompt, &pages[i]);
    }
    const uint64_t before = stats_of(pool).key_collisions;
    const pkv_token other[4] = {1, 1, 1, 2};
    const pkv_prompt asked = prompt_of(other, 4);
    pkv_page page = 77;
    assert_int_equal(lookup_tokens(pool, &asked, &page, 1), 0);
    assert_int_equal(page, 77);
    assert_int_equal(stats_of(pool).key_collisions - before, 1); /* one look that met keys of other blocks */
    for (pkv_token i = 0; i < 128; ++i) {
        const pkv_token tokens[4] = {i, i, i, i};
        const pkv_prompt prompt = prompt_of(tokens, 4);
        assert_int_equal(lookup_tokens(pool, &prompt, &page, 1), 4);
        assert_int_equal(page, pages[i]);
        release_pages(pool, &page, 1);
    }
    release_pages(pool, pages, 128);
    end_pool(pool);
}

static void equal_keys_do_not_mix_parents_namespaces_or_media(void **state) {
    (void)state;
    pkv_pool *pool = make_equal_pool(16, 2);
    const pkv_token tokens[2][4] = {{1, 2, 7, 8}, {3, 4, 7, 8}};
    pkv_namespace ns = PKV_NAMESPACE_INIT;
    ns.salt = bytes_of("s");
    const pkv_media media = {0, 1, {"d", 1}};
    pkv_prompt prompts[4] = {prompt_of(tokens[0], 4), prompt_of(tokens[1], 4), prompt_of(tokens[0], 4),
                             prompt_of(tokens[0], 4)};
    prompts[2].ns = &ns;
    prompts[3].media = &media;
    prompts[3].num_media = 1;
    pkv_page pages[4][2];
    for (int i = 0; i < 4; ++i) {
        assert_int_equal(probe_tokens(pool, &prompts[i]), 0);
        publish_held(pool, &prompts[i], pages[i]);
    }
    assert_int_equal(stats_of(pool).index_blocks, 8);
    for (int i = 0; i < 4; ++i) {
        pkv_page found[2];
        assert_int_equal(lookup_tokens(pool, &prompts[i], found, 2), 4);
        assert_memory_equal(found, pages[i], sizeof found);
        release_pages(pool, found, 2);
        release_pages(pool, pages[i], 2);
    }
    end_pool(pool);
}

/* What was published, found and evicted, in any order, under one key: compared with a list. */
static void random_steps_under_an_equal_key_agree_with_a_list(void **state) {
    (void)state;
    enum { num_prompts = 40, steps = 4000 };
    const uint64_t seed = 7001;
    print_message("seed %llu\n", (unsigned long long)seed);
    test_random random = {seed};
    pkv_pool *pool = make_equal_pool(24, 2);
    pkv_page page_for[num_prompts];
    bool held[num_prompts] = {false};
    for (int step = 0; step < steps; ++step) {
        const int i = (int)random_below(&random, num_prompts);
        const pkv_token tokens[2] = {i / 7, i % 7};
        const pkv_prompt prompt = prompt_of(tokens, 2);
        pkv_page page;
        if (held[i]) {
            assert_int_equal(lookup_tokens(pool, &prompt, &page, 1), 2);
            assert_int_equal(page, page_for[i]);
            const pkv_page twice[2] = {page, page};
            release_pages(pool, twice, 2);
            held[i] = false;
        } else if (lookup_tokens(pool, &prompt, &page, 1) == 2) { /* cached: the page it was published on */
            assert_int_equal(page, page_for[i]);
            held[i] = true;
        } else if (pkv_pool_alloc(pool, 0, 1, &page) == PKV_OK) {
            assert_ok(pkv_pool_publish(pool, 0, &prompt, 0, 1, &page, NULL));
            page_for[i] = page;
            held[i] = true;
        }
        if (step % 64 == 0) check_rules(pool);
    }
    assert_true(stats_of(pool).evicted_pages > 100);
    for (int i = 0; i < num_prompts; ++i)
        if (held[i]) release_pages(pool, &page_for[i], 1);
    end_pool(pool);
}

static void ordinary_keys_count_no_collision(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4096, 1);
    for (pkv_token token = 0; token < 4096; ++token) {
        const pkv_prompt prompt = prompt_of(&token, 1);
        publish_cached(pool, &prompt);
    }
    for (pkv_token token = -4096; token < 4096; ++token) {
        const pkv_prompt prompt = prompt_of(&token, 1);
        assert_int_equal(probe_tokens(pool, &prompt), token >= 0);
    }
    assert_int_equal(stats_of(pool).key_collisions, 0);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_A01_equal_hash_of_other_tokens_is_no_hit),
        cmocka_unit_test(case_A02_second_block_of_an_equal_key_never_takes_the_place_of_the_first),
        cmocka_unit_test(case_A07_no_hit_among_128_blocks_of_an_equal_key),
        cmocka_unit_test(equal_keys_do_not_mix_parents_namespaces_or_media),
        cmocka_unit_test(random_steps_under_an_equal_key_agree_with_a_list),
        cmocka_unit_test(ordinary_keys_count_no_collision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
