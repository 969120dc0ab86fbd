/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a prompt's blocks, as routers compute them. Which prompts are the same is tested in prefix/keys.c; here, that
 * pkv_pool_keys shows it. */
#include "support/support.h"

enum { page_tokens = 4, num_tokens = 18, num_blocks = 4 };

static pkv_pool *make_seeded(uint64_t seed, uint64_t num_pages, uint32_t debug) {
    pkv_group_options group = small_group(num_pages);
    group.memory = PKV_MEMORY_NONE;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.seed = seed;
    options.debug = debug;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    return pool;
}

static void keys_of(pkv_pool *pool, const pkv_prompt *prompt, pkv_key *keys) {
    uint64_t num_keys = 0;
    assert_ok(pkv_pool_keys(pool, prompt, keys, num_blocks, &num_keys));
    assert_int_equal(num_keys, prompt->num_tokens / page_tokens);
}

static bool same_key(pkv_key a, pkv_key b) { return a.low == b.low && a.high == b.high; }

/* Keys before block `first` are equal, and from there on all differ. */
static void check_parting(const pkv_key *a, const pkv_key *b, uint64_t first) {
    for (uint64_t i = 0; i < num_blocks; ++i) assert_int_equal(same_key(a[i], b[i]), i < first);
}

static void the_number_can_be_asked_for_and_too_little_room_writes_nothing(void **state) {
    (void)state;
    pkv_pool *pool = make_seeded(0, 8, 0);
    pkv_token tokens[num_tokens];
    count_up(tokens, num_tokens, 1);
    const pkv_prompt prompt = prompt_of(tokens, num_tokens), brief = prompt_of(tokens, 3), none = prompt_of(NULL, 0);
    const pkv_pool_stats before = stats_of(pool);
    pkv_key keys[6], guard;
    memset(keys, 0x5A, sizeof keys);
    memset(&guard, 0x5A, sizeof guard);
    uint64_t num_keys = 77;
    assert_ok(pkv_pool_keys(pool, &prompt, NULL, 0, &num_keys));
    assert_int_equal(num_keys, num_blocks);
    for (uint64_t capacity = 1; capacity < num_blocks; ++capacity) {
        assert_status(pkv_pool_keys(pool, &prompt, keys, capacity, &num_keys), PKV_ERR_NO_SPACE);
        assert_message("4");
        for (int i = 0; i < 6; ++i) assert_true(same_key(keys[i], guard));
    }
    assert_ok(pkv_pool_keys(pool, &prompt, keys, 6, &num_keys));
    assert_int_equal(num_keys, num_blocks);
    assert_false(same_key(keys[3], guard));
    assert_true(same_key(keys[4], guard));
    assert_ok(pkv_pool_keys(pool, &brief, keys, 6, &num_keys));
    assert_int_equal(num_keys, 0);
    assert_ok(pkv_pool_keys(pool, &none, keys, 6, &num_keys));
    assert_int_equal(num_keys, 0);
    const pkv_pool_stats after = stats_of(pool);
    assert_same_stats(&before, &after); /* a router's question is no request */
    end_pool(pool);
}

static void pools_of_one_seed_give_equal_keys(void **state) {
    (void)state;
    pkv_token tokens[num_tokens];
    count_up(tokens, num_tokens, 1);
    const pkv_prompt prompt = prompt_of(tokens, num_tokens);
    pkv_pool *one = make_seeded(12345, 8, 0), *two = make_seeded(12345, 100, 0), *other = make_seeded(12346, 8, 0),
             *random = make_seeded(0, 8, 0), *also_random = make_seeded(0, 8, 0);
    pkv_key keys[5][num_blocks];
    publish_cached(two, &prompt); /* what is in the index does not matter */
    keys_of(one, &prompt, keys[0]);
    keys_of(two, &prompt, keys[1]);
    keys_of(other, &prompt, keys[2]);
    keys_of(random, &prompt, keys[3]);
    keys_of(also_random, &prompt, keys[4]);
    check_parting(keys[0], keys[1], num_blocks);
    check_parting(keys[0], keys[2], 0);
    check_parting(keys[0], keys[3], 0);
    check_parting(keys[3], keys[4], 0);
    end_pool(one);
    end_pool(two);
    end_pool(other);
    end_pool(random);
    end_pool(also_random);
}

static void a_token_counts_from_its_own_block_on(void **state) {
    (void)state;
    pkv_pool *pool = make_seeded(1, 8, 0);
    pkv_token tokens[num_tokens];
    pkv_key keys[num_blocks], others[num_blocks];
    count_up(tokens, num_tokens, 1);
    const pkv_prompt prompt = prompt_of(tokens, num_tokens);
    keys_of(pool, &prompt, keys);
    for (uint64_t i = 0; i < num_tokens; ++i) {
        tokens[i] = -7;
        keys_of(pool, &prompt, others);
        check_parting(keys, others, i / page_tokens < num_blocks ? i / page_tokens : num_blocks);
        tokens[i] = 1 + (pkv_token)i;
    }
    for (uint64_t length = page_tokens; length < num_tokens; ++length) {
        const pkv_prompt head = prompt_of(tokens, length);
        keys_of(pool, &head, others);
        for (uint64_t i = 0; i < length / page_tokens; ++i) assert_true(same_key(keys[i], others[i]));
    }
    end_pool(pool);
}

static void each_part_of_the_namespace_counts(void **state) {
    (void)state;
    pkv_pool *pool = make_seeded(1, 8, 0);
    pkv_token tokens[num_tokens];
    count_up(tokens, num_tokens, 1);
    enum { ways = 7 };
    pkv_key keys[ways][num_blocks];
    for (int way = 0; way < ways; ++way) {
        pkv_namespace ns = PKV_NAMESPACE_INIT;
        if (way == 1) ns.model = bytes_of("x");
        if (way == 2) ns.adapter = bytes_of("x");
        if (way == 3) ns.salt = bytes_of("x");
        if (way == 4) ns.adapter_id = 1;
        if (way == 5) ns.adapter_generation = 1;
        if (way == 6) ns.salt = bytes_of("xx");
        pkv_prompt prompt = prompt_of(tokens, num_tokens);
        prompt.ns = &ns;
        keys_of(pool, &prompt, keys[way]);
        for (int before = 0; before < way; ++before) check_parting(keys[way], keys[before], 0);
    }
    const pkv_prompt prompt = prompt_of(tokens, num_tokens);
    pkv_key plain[num_blocks];
    keys_of(pool, &prompt, plain);
    check_parting(plain, keys[0], num_blocks);
    end_pool(pool);
}

static void media_count_from_their_block_on(void **state) {
    (void)state;
    pkv_pool *pool = make_seeded(1, 8, 0);
    pkv_token tokens[num_tokens];
    pkv_key plain[num_blocks], keys[num_blocks], others[num_blocks];
    count_up(tokens, num_tokens, 1);
    pkv_media media = {5, 2, bytes_of("an image")};
    pkv_prompt prompt = prompt_of(tokens, num_tokens);
    keys_of(pool, &prompt, plain);
    prompt.media = &media;
    prompt.num_media = 1;
    keys_of(pool, &prompt, keys);
    check_parting(plain, keys, 1);
    media.digest = bytes_of("an other");
    keys_of(pool, &prompt, others);
    check_parting(keys, others, 1);
    media = (pkv_media){6, 2, bytes_of("an image")};
    keys_of(pool, &prompt, others);
    check_parting(keys, others, 1);
    media = (pkv_media){17, 1, bytes_of("an image")}; /* behind the whole blocks */
    keys_of(pool, &prompt, others);
    check_parting(plain, others, num_blocks);
    end_pool(pool);
}

static void ten_thousand_prompts_have_as_many_keys(void **state) {
    (void)state;
    enum { many = 10000 };
    pkv_pool *pool = make_seeded(1, 8, 0);
    pkv_key *keys = calloc(many, sizeof *keys);
    for (int i = 0; i < many; ++i) {
        const pkv_token tokens[page_tokens] = {i % 10, i / 10 % 10, i / 100 % 10, i / 1000};
        const pkv_prompt prompt = prompt_of(tokens, page_tokens);
        keys_of(pool, &prompt, &keys[i]);
    }
    for (int i = 1; i < many; ++i)
        for (int j = i > 200 ? i - 200 : 0; j < i; ++j) assert_false(same_key(keys[i], keys[j]));
    uint64_t low[2] = {0, 0}; /* and every half of a key has bits that change */
    for (int i = 1; i < many; ++i) {
        low[0] |= keys[i].low ^ keys[0].low;
        low[1] |= keys[i].high ^ keys[0].high;
    }
    assert_true(low[0] == UINT64_MAX && low[1] == UINT64_MAX);
    free(keys);
    end_pool(pool);
}

static void equal_keys_for_debugging_are_equal_here_too(void **state) {
    (void)state;
    pkv_pool *pool = make_seeded(1, 8, PKV_DEBUG_EQUAL_KEYS);
    pkv_token tokens[num_tokens];
    pkv_key keys[num_blocks];
    count_up(tokens, num_tokens, 1);
    const pkv_prompt prompt = prompt_of(tokens, num_tokens);
    keys_of(pool, &prompt, keys);
    for (int i = 1; i < num_blocks; ++i) assert_true(same_key(keys[0], keys[i]));
    end_pool(pool);
}

static void wrong_arguments_are_refused(void **state) {
    (void)state;
    pkv_pool *pool = make_seeded(1, 8, 0);
    pkv_token tokens[num_tokens];
    pkv_key keys[num_blocks];
    count_up(tokens, num_tokens, 1);
    pkv_prompt prompt = prompt_of(tokens, num_tokens);
    uint64_t num_keys = 77;
    assert_status(pkv_pool_keys(pool, NULL, keys, num_blocks, &num_keys), PKV_ERR_INVALID);
    assert_status(pkv_pool_keys(pool, &prompt, NULL, num_blocks, &num_keys), PKV_ERR_INVALID);
    assert_status(pkv_pool_keys(pool, &prompt, keys, num_blocks, NULL), PKV_ERR_INVALID);
    prompt.tokens = NULL;
    assert_status(pkv_pool_keys(pool, &prompt, keys, num_blocks, &num_keys), PKV_ERR_INVALID);
    assert_int_equal(num_keys, 77);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_number_can_be_asked_for_and_too_little_room_writes_nothing),
        cmocka_unit_test(pools_of_one_seed_give_equal_keys),
        cmocka_unit_test(a_token_counts_from_its_own_block_on),
        cmocka_unit_test(each_part_of_the_namespace_counts),
        cmocka_unit_test(media_count_from_their_block_on),
        cmocka_unit_test(ten_thousand_prompts_have_as_many_keys),
        cmocka_unit_test(equal_keys_for_debugging_are_equal_here_too),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
