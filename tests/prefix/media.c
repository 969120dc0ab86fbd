/* SPDX-License-Identifier: Apache-2.0 */
/* Media digests: bound to the place of their first placeholder, part of its block's key and of all later ones. */
#include "support/support.h"

enum { page_tokens = 4, num_tokens = 16 };

static pkv_token tokens[num_tokens];

static pkv_prompt with_media(const pkv_media *media, uint64_t num_media) {
    count_up(tokens, num_tokens, 1);
    pkv_prompt prompt = prompt_of(tokens, num_tokens);
    prompt.media = media;
    prompt.num_media = num_media;
    return prompt;
}

/* Tokens of `asked` found after `published`. */
static uint64_t found(const pkv_media *published, uint64_t num_published, const pkv_media *asked, uint64_t num_asked) {
    pkv_pool *pool = make_id_pool(8, page_tokens);
    pkv_prompt prompt = with_media(published, num_published);
    publish_cached(pool, &prompt);
    assert_int_equal(probe_tokens(pool, &prompt), num_tokens);
    prompt = with_media(asked, num_asked);
    const uint64_t matched = probe_tokens(pool, &prompt);
    end_pool(pool);
    return matched;
}

static void case_A13_digests_equal_in_some_bytes_are_two_digests(void **state) {
    (void)state;
    uint8_t digest[32];
    memset(digest, 0xA5, sizeof digest);
    const pkv_media media = {0, 4, {digest, sizeof digest}};
    for (size_t byte = 0; byte < sizeof digest; ++byte) {
        uint8_t other[32];
        memcpy(other, digest, sizeof other);
        other[byte] ^= 1;
        const pkv_media others = {0, 4, {other, sizeof other}};
        assert_int_equal(found(&media, 1, &others, 1), 0);
    }
    uint8_t low_equal[32];
    memset(low_equal, 0x5A, sizeof low_equal);
    low_equal[0] = low_equal[1] = low_equal[30] = low_equal[31] = 0xA5;
    const pkv_media other = {0, 4, {low_equal, sizeof low_equal}};
    assert_int_equal(found(&media, 1, &other, 1), 0);
}

static void case_A14_same_bytes_in_another_shape_are_another_image(void **state) {
    (void)state;
    uint8_t *pixels = calloc(4500, 1);
    for (int i = 0; i < 4500; ++i) pixels[i] = (uint8_t)(i * 7);
    const uint32_t shapes[2][2] = {{30, 150}, {150, 30}};
    uint8_t digests[2][PKV_DIGEST_BYTES];
    for (int i = 0; i < 2; ++i) {
        const pkv_bytes parts[2] = {{pixels, 4500}, {shapes[i], sizeof shapes[i]}};
        assert_ok(pkv_digest(parts, 2, digests[i]));
    }
    const pkv_media one = {0, 4, {digests[0], PKV_DIGEST_BYTES}};
    const pkv_media two = {0, 4, {digests[1], PKV_DIGEST_BYTES}};
    assert_int_equal(found(&one, 1, &two, 1), 0);
    free(pixels);
}

static void digest_counts_from_its_own_block_on(void **state) {
    (void)state;
    for (uint64_t position = 0; position < num_tokens; ++position) {
        const pkv_media one = {position, 1, bytes_of("one")};
        const pkv_media two = {position, 1, bytes_of("two")};
        assert_int_equal(found(&one, 1, &one, 1), num_tokens);
        assert_int_equal(found(&one, 1, &two, 1), position / page_tokens * page_tokens);
        assert_int_equal(found(&one, 1, NULL, 0), position / page_tokens * page_tokens);
        assert_int_equal(found(NULL, 0, &one, 1), position / page_tokens * page_tokens);
    }
}

static void one_digest_at_two_positions_is_two_prompts(void **state) {
    (void)state;
    const pkv_media at5 = {5, 2, bytes_of("image")};
    const pkv_media at6 = {6, 2, bytes_of("image")};
    const pkv_media at9 = {9, 2, bytes_of("image")};
    assert_int_equal(found(&at5, 1, &at6, 1), 4);
    assert_int_equal(found(&at5, 1, &at9, 1), 4);
    assert_int_equal(found(&at9, 1, &at5, 1), 4);
}

static void order_and_split_of_several_digests_count(void **state) {
    (void)state;
    const pkv_media both[2] = {{1, 1, {"a", 1}}, {2, 1, {"b", 1}}};
    const pkv_media swapped[2] = {{1, 1, {"b", 1}}, {2, 1, {"a", 1}}};
    const pkv_media first[1] = {{1, 1, {"a", 1}}};
    const pkv_media joined[1] = {{1, 1, {"ab", 2}}};
    const pkv_media left[2] = {{1, 1, {"ab", 2}}, {2, 1, {"c", 1}}};
    const pkv_media right[2] = {{1, 1, {"a", 1}}, {2, 1, {"bc", 2}}};
    assert_int_equal(found(both, 2, both, 2), num_tokens);
    assert_int_equal(found(both, 2, swapped, 2), 0);
    assert_int_equal(found(both, 2, first, 1), 0);
    assert_int_equal(found(first, 1, both, 2), 0);
    assert_int_equal(found(both, 2, joined, 1), 0);
    assert_int_equal(found(left, 2, right, 2), 0);
}

static void later_media_do_not_touch_earlier_blocks(void **state) {
    (void)state;
    const pkv_media one[2] = {{0, 4, {"a", 1}}, {13, 2, {"b", 1}}};
    const pkv_media two[2] = {{0, 4, {"a", 1}}, {13, 2, {"c", 1}}};
    assert_int_equal(found(one, 2, two, 2), 12);
    assert_int_equal(found(one, 2, one, 1), 12);
}

static void placeholders_may_run_over_several_blocks(void **state) {
    (void)state;
    const pkv_media one = {2, 12, {"a", 1}};
    const pkv_media two = {2, 12, {"b", 1}};
    assert_int_equal(found(&one, 1, &one, 1), num_tokens);
    assert_int_equal(found(&one, 1, &two, 1), 0);
}

static void all_256_bytes_of_the_longest_digest_count(void **state) {
    (void)state;
    uint8_t one[PKV_MAX_MEDIA_DIGEST] = {0};
    uint8_t two[PKV_MAX_MEDIA_DIGEST] = {0};
    two[PKV_MAX_MEDIA_DIGEST - 1] = 1;
    const pkv_media media[2] = {{0, 1, {one, sizeof one}}, {0, 1, {two, sizeof two}}};
    const pkv_media shorter = {0, 1, {one, sizeof one - 1}};
    assert_int_equal(found(&media[0], 1, &media[0], 1), num_tokens);
    assert_int_equal(found(&media[0], 1, &media[1], 1), 0);
    assert_int_equal(found(&media[0], 1, &shorter, 1), 0);
}

static void tables_publish_and_match_under_their_media(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    const pkv_media media[2] = {{5, 1, {"a", 1}}, {5, 1, {"b", 1}}};
    const pkv_prompt one = with_media(&media[0], 1);
    const pkv_prompt two = with_media(&media[1], 1);
    pkv_table *table = admit(pool, &one, NULL);
    write_and_commit(table, num_tokens, 1);
    assert_int_equal(probe_tokens(pool, &one), num_tokens);
    assert_int_equal(probe_tokens(pool, &two), 4);
    assert_ok(pkv_table_destroy(table, NULL));
    end_pool(pool);
}

static void media_in_a_partial_block_wait_for_it(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, page_tokens);
    const pkv_media media = {5, 1, {"a", 1}};
    pkv_prompt prompt = with_media(&media, 1);
    prompt.num_tokens = 7; /* one whole block, without media */
    publish_cached(pool, &prompt);
    const pkv_prompt plain = with_media(NULL, 0);
    assert_int_equal(probe_tokens(pool, &plain), 4);
    end_pool(pool);
}

static void bad_media_are_refused(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, page_tokens);
    uint8_t bytes[PKV_MAX_MEDIA_DIGEST + 1] = {0};
    const pkv_media bad[][2] = {
        {{num_tokens, 1, {"a", 1}}, {num_tokens, 1, {"a", 1}}}, /* past the prompt */
        {{UINT64_MAX, 1, {"a", 1}}, {UINT64_MAX, 1, {"a", 1}}},
        {{5, 1, {"a", 1}}, {4, 1, {"a", 1}}}, /* not in order */
        {{0, 1, {"a", 0}}, {1, 1, {"a", 1}}},
        {{0, 1, {bytes, sizeof bytes}}, {1, 1, {"a", 1}}},
        {{0, 1, {NULL, 1}}, {1, 1, {"a", 1}}},
    };
    pkv_table *table;
    assert_ok(pkv_table_create(pool, &table));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
        const pkv_prompt prompt = with_media(bad[i], 2);
        pkv_match match = PKV_MATCH_INIT;
        pkv_page page;
        assert_status(pkv_pool_probe(pool, &prompt, 0, &match), PKV_ERR_INVALID);
        assert_status(pkv_pool_lookup(pool, &prompt, 0, &page, 1, &match), PKV_ERR_INVALID);
        assert_status(pkv_table_admit(table, &prompt, NULL, NULL), PKV_ERR_INVALID);
    }
    const pkv_prompt missing = with_media(NULL, 1);
    pkv_match match = PKV_MATCH_INIT;
    assert_status(pkv_pool_probe(pool, &missing, 0, &match), PKV_ERR_INVALID);
    assert_int_equal(stats_of(pool).probes + stats_of(pool).requests, 0);
    assert_ok(pkv_table_destroy(table, NULL));
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_A13_digests_equal_in_some_bytes_are_two_digests),
        cmocka_unit_test(case_A14_same_bytes_in_another_shape_are_another_image),
        cmocka_unit_test(digest_counts_from_its_own_block_on),
        cmocka_unit_test(one_digest_at_two_positions_is_two_prompts),
        cmocka_unit_test(order_and_split_of_several_digests_count),
        cmocka_unit_test(later_media_do_not_touch_earlier_blocks),
        cmocka_unit_test(placeholders_may_run_over_several_blocks),
        cmocka_unit_test(all_256_bytes_of_the_longest_digest_count),
        cmocka_unit_test(tables_publish_and_match_under_their_media),
        cmocka_unit_test(media_in_a_partial_block_wait_for_it),
        cmocka_unit_test(bad_media_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
