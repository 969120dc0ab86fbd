/* SPDX-License-Identifier: Apache-2.0 */
/* What is part of a key: every part of a namespace, every token, every media digest. Field cases A. */
#include "support/support.h"

static pkv_namespace namespace_of(const char *model, const char *adapter, const char *salt) {
    pkv_namespace ns = PKV_NAMESPACE_INIT;
    ns.model = bytes_of(model);
    ns.adapter = bytes_of(adapter);
    ns.salt = bytes_of(salt);
    return ns;
}

/* Tokens found in `theirs` after 16 tokens were published in `ours`. */
static uint64_t found_across(const pkv_namespace *ours, const pkv_namespace *theirs) {
    pkv_pool *pool = make_id_pool(4, 4);
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    pkv_prompt prompt = prompt_of(tokens, 16);
    prompt.ns = ours;
    publish_cached(pool, &prompt);
    assert_int_equal(probe_tokens(pool, &prompt), 16);
    prompt.ns = theirs;
    const uint64_t found = probe_tokens(pool, &prompt);
    assert_int_equal(stats_of(pool).key_collisions, 0);
    end_pool(pool);
    return found;
}

static void case_A05_raising_one_token_by_the_base_and_lowering_its_neighbour_is_another_key(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 2);
    const pkv_token published[2] = {100, 200};
    const pkv_prompt prompt = prompt_of(published, 2);
    publish_cached(pool, &prompt);
    const pkv_token others[2][2] = {{131, 199}, {101, 169}}; /* equal for a polynomial hash of base 31 */
    for (int i = 0; i < 2; ++i) {
        const pkv_prompt other = prompt_of(others[i], 2);
        assert_int_equal(probe_tokens(pool, &other), 0);
    }
    assert_int_equal(stats_of(pool).key_collisions, 0);
    end_pool(pool);
}

static void case_A08_adapter_and_salt_of_one_name_are_two_namespaces(void **state) {
    (void)state;
    const pkv_namespace adapter = namespace_of("", "X", "");
    const pkv_namespace salt = namespace_of("", "", "X");
    const pkv_namespace model = namespace_of("X", "", "");
    assert_int_equal(found_across(&adapter, &salt), 0);
    assert_int_equal(found_across(&salt, &adapter), 0);
    assert_int_equal(found_across(&adapter, &model), 0);
    assert_int_equal(found_across(&adapter, NULL), 0);
}

static void case_A10_adapters_of_one_name_and_other_ids_are_two_namespaces(void **state) {
    (void)state;
    pkv_namespace one = namespace_of("m", "a", "");
    pkv_namespace two = one;
    one.adapter_id = 1;
    two.adapter_id = 2;
    assert_int_equal(found_across(&one, &two), 0);
}

static void case_A11_adapter_loaded_again_hits_nothing_old_and_the_old_pages_can_go(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 4);
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    pkv_namespace ns = namespace_of("m", "a", "");
    ns.adapter_generation = 1;
    pkv_prompt prompt = prompt_of(tokens, 16);
    prompt.ns = &ns;
    publish_cached(pool, &prompt);
    ns.adapter_generation = 2;
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    publish_cached(pool, &prompt); /* takes the room of the old ones */
    assert_int_equal(probe_tokens(pool, &prompt), 16);
    assert_int_equal(stats_of(pool).evicted_pages, 4);
    end_pool(pool);
}

static void case_A16_parts_are_kept_apart_by_length(void **state) {
    (void)state;
    const pkv_namespace one = namespace_of("ab", "c", "");
    const pkv_namespace two = namespace_of("a", "bc", "");
    assert_int_equal(found_across(&one, &two), 0);
    const pkv_bytes parts[2][2] = {{{"ab", 2}, {"c", 1}}, {{"a", 1}, {"bc", 2}}};
    uint8_t digests[2][PKV_DIGEST_BYTES];
    for (int i = 0; i < 2; ++i) assert_ok(pkv_digest(parts[i], 2, digests[i]));
    assert_memory_not_equal(digests[0], digests[1], PKV_DIGEST_BYTES);
}

static void case_A19_slash_and_its_replacement_are_two_models(void **state) {
    (void)state;
    const pkv_namespace one = namespace_of("org/m/n", "", "");
    const pkv_namespace two = namespace_of("org/m-SEP-n", "", "");
    assert_int_equal(found_across(&one, &two), 0);
    assert_int_equal(found_across(&two, &one), 0);
}

static void case_A23_tenants_do_not_see_each_other(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, 16);
    pkv_token tokens[32];
    count_up(tokens, 32, 1);
    const pkv_namespace tenants[2] = {namespace_of("m", "", "tenant-1"), namespace_of("m", "", "tenant-2")};
    pkv_prompt prompt = prompt_of(tokens, 32);
    prompt.ns = &tenants[0];
    publish_cached(pool, &prompt);
    prompt.ns = &tenants[1];
    pkv_page pages[2];
    assert_int_equal(lookup_tokens(pool, &prompt, pages, 2), 0);
    assert_int_equal(stats_of(pool).hit_tokens, 0);
    end_pool(pool);
}

enum { num_names = 10000 };

static int compare_names(const void *left, const void *right) {
    const pkv_bytes *a = left;
    const pkv_bytes *b = right;
    const int order = memcmp(a->data, b->data, a->size < b->size ? a->size : b->size);
    return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

/* The empty name, "..", and random ones of up to 300 bytes made of what has been mistaken for a separator. */
static uint64_t make_names(char *text, pkv_bytes *names) {
    static const char *const atoms[] = {"/",  "@",     "%",        "..",           "a", "b", "%2F",
                                        "@@", "-SEP-", "\xc3\xa9", "\xe6\xa8\xa1", " ", ":", "\\"};
    test_random random = {20};
    print_message("seed %d\n", 20);
    for (int i = 0; i < num_names; ++i) {
        char *name = text + i * 304;
        uint64_t size = 0;
        const uint64_t wanted = i == 0 ? 0 : i % 100 == 1 ? 300 : 1 + random_below(&random, 40);
        while (size < wanted) {
            const char *atom = atoms[random_below(&random, sizeof atoms / sizeof *atoms)];
            const uint64_t length = strlen(atom);
            memcpy(name + size, atom, length < wanted - size ? length : wanted - size);
            size += length < wanted - size ? length : wanted - size;
        }
        names[i] = (pkv_bytes){name, size};
    }
    names[1] = bytes_of("..");
    names[2] = bytes_of("a@b");
    qsort(names, num_names, sizeof *names, compare_names);
    uint64_t distinct = 1;
    for (int i = 1; i < num_names; ++i)
        if (compare_names(&names[i], &names[distinct - 1]) != 0) names[distinct++] = names[i];
    return distinct;
}

static void case_A20_ten_thousand_names_are_as_many_namespaces(void **state) {
    (void)state;
    char *text = calloc(num_names, 304);
    pkv_bytes *names = calloc(num_names, sizeof *names);
    pkv_page *pages = calloc(num_names, sizeof *pages);
    const uint64_t distinct = make_names(text, names);
    assert_true(distinct > num_names * 9 / 10);
    pkv_pool *pool = make_id_pool(distinct, 1);
    const pkv_token token = 5;
    pkv_namespace ns = PKV_NAMESPACE_INIT;
    pkv_prompt prompt = prompt_of(&token, 1);
    prompt.ns = &ns;
    for (uint64_t i = 0; i < distinct; ++i) {
        ns.model = names[i];
        assert_int_equal(probe_tokens(pool, &prompt), 0);
        publish_held(pool, &prompt, &pages[i]);
    }
    assert_int_equal(stats_of(pool).namespaces, distinct);
    assert_int_equal(stats_of(pool).published_blocks, distinct);
    for (uint64_t i = 0; i < distinct; ++i) {
        pkv_page page;
        ns.model = names[i];
        assert_int_equal(lookup_tokens(pool, &prompt, &page, 1), 1);
        assert_int_equal(page, pages[i]);
        release_pages(pool, &page, 1);
    }
    release_pages(pool, pages, distinct);
    end_pool(pool);
    free(pages);
    free(names);
    free(text);
}

/* ---- prompts that differ in one part only ---- */

enum {
    model = 1,
    adapter,
    adapter_id,
    adapter_generation,
    salt,
    first_token,
    last_token,
    token_sign,
    media_digest,
    media_position,
    num_parts
};

struct variant {
    pkv_namespace ns;
    pkv_token tokens[8];
    pkv_media media;
    pkv_prompt prompt;
};

static void make_variant(int part, struct variant *out) {
    out->ns = namespace_of("model", "adapter", "salt");
    out->ns.adapter_id = 7;
    out->ns.adapter_generation = 7;
    count_up(out->tokens, 8, 1);
    out->media = (pkv_media){1, 2, bytes_of("digest-of-the-image")};
    out->prompt = prompt_of(out->tokens, 8);
    out->prompt.ns = &out->ns;
    out->prompt.media = &out->media;
    out->prompt.num_media = 1;
    switch (part) {
    case model: out->ns.model = bytes_of("modem"); break;
    case adapter: out->ns.adapter = bytes_of("adapter2"); break;
    case adapter_id: out->ns.adapter_id = 7 | UINT64_C(1) << 63; break;
    case adapter_generation: out->ns.adapter_generation = 8; break;
    case salt: out->ns.salt = bytes_of("sal"); break;
    case first_token: out->tokens[0] = 0; break;
    case last_token: out->tokens[3] = 5; break; /* of the first block */
    case token_sign: out->tokens[2] = -3; break;
    case media_digest: out->media.digest = bytes_of("digest-of-the-imagf"); break;
    case media_position: out->media.position = 2; break;
    default: break;
    }
}

static void prompts_that_differ_in_one_part_share_no_block(void **state) {
    (void)state;
    for (int published = 0; published < num_parts; ++published) {
        struct variant variant;
        pkv_pool *pool = make_id_pool(4, 4);
        make_variant(published, &variant);
        publish_cached(pool, &variant.prompt);
        for (int part = 0; part < num_parts; ++part) {
            make_variant(part, &variant);
            const uint64_t found = probe_tokens(pool, &variant.prompt);
            if (found != (part == published ? 8u : 0u))
                fail_msg("part %d published, part %d found %llu tokens", published, part, (unsigned long long)found);
        }
        end_pool(pool);
    }
}

static void equal_block_under_another_parent_is_another_block(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, 2);
    const pkv_token one[4] = {1, 2, 7, 8};
    const pkv_token two[4] = {3, 4, 7, 8};
    const pkv_prompt first = prompt_of(one, 4);
    const pkv_prompt second = prompt_of(two, 4);
    const pkv_prompt second_head = prompt_of(two, 2);
    publish_cached(pool, &first);
    publish_cached(pool, &second_head);
    assert_int_equal(probe_tokens(pool, &second), 2);
    const pkv_prompt tail = prompt_of(one + 2, 2);
    assert_int_equal(probe_tokens(pool, &tail), 0);
    end_pool(pool);
}

static void null_namespace_is_the_one_with_empty_parts(void **state) {
    (void)state;
    const pkv_namespace empty = PKV_NAMESPACE_INIT;
    assert_int_equal(found_across(NULL, &empty), 16);
    assert_int_equal(found_across(&empty, NULL), 16);
    const pkv_namespace empty_strings = namespace_of("", "", "");
    assert_int_equal(found_across(&empty_strings, NULL), 16);
}

static void parts_may_hold_zero_bytes(void **state) {
    (void)state;
    pkv_namespace one = PKV_NAMESPACE_INIT;
    pkv_namespace two = PKV_NAMESPACE_INIT;
    one.model = (pkv_bytes){"a\0b", 3};
    two.model = (pkv_bytes){"a\0c", 3};
    assert_int_equal(found_across(&one, &two), 0);
    two.model = (pkv_bytes){"a", 1};
    assert_int_equal(found_across(&one, &two), 0);
}

static void a_part_without_data_is_invalid(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 4);
    const pkv_token token = 1;
    pkv_prompt prompt = prompt_of(&token, 1);
    pkv_match match = PKV_MATCH_INIT;
    for (int part = 0; part < 3; ++part) {
        pkv_namespace ns = PKV_NAMESPACE_INIT;
        *(part == 0 ? &ns.model : part == 1 ? &ns.adapter : &ns.salt) = (pkv_bytes){NULL, 1};
        prompt.ns = &ns;
        assert_status(pkv_pool_probe(pool, &prompt, 0, &match), PKV_ERR_INVALID);
        assert_status(pkv_pool_clear(pool, &ns, NULL), PKV_ERR_INVALID);
    }
    end_pool(pool);
}

static void case_A04_random_and_fixed_seeds_can_be_told_apart(void **state) {
    (void)state;
    const pkv_group_options group = small_group(4);
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = 4;
    options.num_groups = 1;
    options.groups = &group;
    pkv_pool *pools[3];
    for (int i = 0; i < 3; ++i) {
        options.seed = i == 2 ? 99 : 0;
        assert_ok(pkv_pool_create(&options, &pools[i]));
    }
    assert_int_equal(stats_of(pools[0]).key_seed, PKV_KEY_SEED_RANDOM);
    assert_int_equal(stats_of(pools[1]).key_seed, PKV_KEY_SEED_RANDOM);
    assert_int_equal(stats_of(pools[2]).key_seed, PKV_KEY_SEED_FIXED);
    pkv_token tokens[4];
    count_up(tokens, 4, 1);
    const pkv_prompt prompt = prompt_of(tokens, 4);
    publish_cached(pools[0], &prompt);
    assert_int_equal(probe_tokens(pools[0], &prompt), 4);
    assert_int_equal(probe_tokens(pools[1], &prompt), 0); /* what one pool has is its own */
    for (int i = 0; i < 3; ++i) end_pool(pools[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_A05_raising_one_token_by_the_base_and_lowering_its_neighbour_is_another_key),
        cmocka_unit_test(case_A08_adapter_and_salt_of_one_name_are_two_namespaces),
        cmocka_unit_test(case_A10_adapters_of_one_name_and_other_ids_are_two_namespaces),
        cmocka_unit_test(case_A11_adapter_loaded_again_hits_nothing_old_and_the_old_pages_can_go),
        cmocka_unit_test(case_A16_parts_are_kept_apart_by_length),
        cmocka_unit_test(case_A19_slash_and_its_replacement_are_two_models),
        cmocka_unit_test(case_A23_tenants_do_not_see_each_other),
        cmocka_unit_test(case_A20_ten_thousand_names_are_as_many_namespaces),
        cmocka_unit_test(prompts_that_differ_in_one_part_share_no_block),
        cmocka_unit_test(equal_block_under_another_parent_is_another_block),
        cmocka_unit_test(null_namespace_is_the_one_with_empty_parts),
        cmocka_unit_test(parts_may_hold_zero_bytes),
        cmocka_unit_test(a_part_without_data_is_invalid),
        cmocka_unit_test(case_A04_random_and_fixed_seeds_can_be_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
