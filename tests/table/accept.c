/* SPDX-License-Identifier: Apache-2.0 */
/* Tree drafts: rows and names of the accepted tokens move together, the rest is forgotten. Field cases E11 and E14. */
#include "support/support.h"

enum { page_tokens = 4 };

static pkv_table *sequence_of(pkv_pool *pool, uint64_t committed, uint64_t named) {
    pkv_token tokens[64];
    count_up(tokens, named, 1);
    const pkv_prompt prompt = prompt_of(tokens, named);
    pkv_table *table = admit(pool, &prompt, NULL);
    put_and_commit(pool, table, committed, 1);
    return table;
}

static void draft(pkv_pool *pool, pkv_table *table, uint64_t count, uint32_t tag) {
    const uint64_t begin = info_of(table).committed;
    assert_ok(pkv_table_reserve(table, begin + count));
    pkv_pool_stats stats = PKV_POOL_STATS_INIT;
    for (uint32_t group = 0; pkv_pool_get_stats(pool, group, &stats) == PKV_OK; ++group)
        put_rows(pool, table, group, begin, count, tag);
}

static pkv_status gather_one(pkv_table *table, uint64_t position) {
    uint16_t data[8];
    pkv_tensor k = PKV_TENSOR_INIT;
    k.data = data;
    k.dtype = PKV_DTYPE_F16;
    k.num_tokens = 1;
    return pkv_table_gather(table, 0, 0, position, 1, &k, NULL, NULL);
}

static void case_E14_drafts_of_which_none_is_accepted_are_not_published(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 7, 9);
    draft(pool, table, 2, 2);
    assert_ok(pkv_table_accept(table, 0, NULL, NULL));
    pkv_token tokens[9];
    count_up(tokens, 9, 1);
    const pkv_prompt prompt = prompt_of(tokens, 9);
    assert_int_equal(probe_tokens(pool, &prompt), 4);
    assert_int_equal(stats_of(pool).published_blocks, 1);
    const pkv_table_info info = info_of(table);
    assert_int_equal(info.committed, 7);
    assert_int_equal(info.named, 7);
    assert_int_equal(info.reserved, 12); /* the room stays */
    assert_status(gather_one(table, 7), PKV_ERR_INVALID);
    same_rows(pool, table, 0, 0, 7, 1, 0);
    end_table(table);
    end_pool(pool);
}

static void accepted_tokens_follow_the_committed_ones_in_all_layers(void **state) {
    (void)state;
    pkv_group_options groups[3] = {small_group(8), window_group(8, 5, 1), small_group(8)};
    groups[2].num_layers = 3;
    groups[2].layout = PKV_LAYOUT_HND;
    groups[2].v_head_dim = 0;
    pkv_pool *pool = make_groups(groups, 3, page_tokens);
    pkv_table *table = sequence_of(pool, 6, 6);
    draft(pool, table, 9, 2);
    const uint64_t accepted[4] = {6, 9, 10, 14};
    assert_ok(pkv_table_accept(table, 4, accepted, NULL));
    assert_int_equal(info_of(table).committed, 10);
    for (uint32_t group = 0; group < 3; ++group) {
        same_rows(pool, table, group, 0, 6, 1, 0);
        for (uint64_t i = 0; i < 4; ++i) same_rows(pool, table, group, 6 + i, 1, 2, accepted[i]);
    }
    assert_status(gather_one(table, 10), PKV_ERR_INVALID);
    put_and_commit(pool, table, 15, 3);
    same_rows(pool, table, 2, 9, 1, 2, 14);
    same_rows(pool, table, 2, 10, 5, 3, 10);
    end_table(table);
    end_groups(pool);
}

static void names_of_accepted_tokens_move_with_them_and_are_published(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 6, 6);
    const pkv_token drafts[6] = {60, 70, 80, 90, 100, 110};
    assert_ok(pkv_table_set_tokens(table, 6, 6, drafts));
    draft(pool, table, 8, 2);
    const uint64_t accepted[4] = {7, 8, 11, 13}; /* 13 has no name yet */
    assert_ok(pkv_table_accept(table, 4, accepted, NULL));
    assert_int_equal(info_of(table).named, 9);
    assert_int_equal(info_of(table).committed, 10);
    const pkv_token tokens[12] = {1, 2, 3, 4, 5, 6, 70, 80, 110, 5, 6, 7};
    const pkv_prompt prompt = prompt_of(tokens, 12);
    assert_int_equal(probe_tokens(pool, &prompt), 8);
    assert_int_equal(info_of(table).published, 8);
    assert_ok(pkv_table_set_tokens(table, 9, 3, tokens + 9));
    put_and_commit(pool, table, 12, 3);
    assert_int_equal(probe_tokens(pool, &prompt), 12);
    end_table(table);
    end_pool(pool);
}

/* A prompt of 12 tokens with an image behind 9 to 11; 4 are committed, the others drafts, of which some are accepted. Tokens
 * that the same tokens without the image then match. */
static uint64_t without_the_image(const uint64_t *accepted, uint64_t count) {
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[12], now[12];
    count_up(tokens, 12, 1);
    const pkv_media media = {9, 3, bytes_of("image")};
    pkv_prompt prompt = prompt_of(tokens, 12);
    prompt.media = &media;
    prompt.num_media = 1;
    pkv_table *table = admit(pool, &prompt, NULL);
    put_and_commit(pool, table, 4, 1);
    draft(pool, table, 8, 2);
    assert_ok(pkv_table_accept(table, count, accepted, NULL));
    memcpy(now, tokens, sizeof now);
    for (uint64_t i = 0; i < count; ++i) now[4 + i] = tokens[accepted[i]];
    const pkv_prompt without = prompt_of(now, 4 + count);
    const uint64_t found = probe_tokens(pool, &without);
    end_table(table);
    end_pool(pool);
    return found;
}

static void an_image_among_the_accepted_drafts_stays_part_of_the_key(void **state) {
    (void)state;
    assert_int_equal(without_the_image((const uint64_t[]){8, 9, 10, 11}, 4), 4);
    assert_int_equal(without_the_image((const uint64_t[]){4, 5, 6, 9}, 4), 4);
    assert_int_equal(without_the_image((const uint64_t[]){4, 5, 6, 7, 8, 9, 10, 11}, 8), 8);
    assert_int_equal(without_the_image((const uint64_t[]){4, 5, 6, 7}, 4), 8); /* nothing of it was accepted */
}

static void rows_of_an_image_without_its_first_are_not_found_without_it(void **state) {
    (void)state;
    assert_int_equal(without_the_image((const uint64_t[]){7, 8, 10, 11}, 4), 4);
}

static void wrong_positions_are_refused_and_change_nothing(void **state) {
    (void)state;
    static const struct {
        uint64_t count, positions[3];
    } wrong[] = {{2, {7, 7}},     {2, {8, 7}},    {1, {5}},          {1, {12}},
                 {3, {6, 7, 12}}, {3, {6, 8, 7}}, {1, {UINT64_MAX}}, {3, {0, 6, 7}}};
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 6, 10);
    draft(pool, table, 4, 2);
    const pkv_table_info before = info_of(table);
    const pkv_pool_stats stats = stats_of(pool);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
        assert_status(pkv_table_accept(table, wrong[i].count, wrong[i].positions, NULL), PKV_ERR_INVALID);
        const pkv_table_info after = info_of(table);
        assert_memory_equal(&before, &after, sizeof after);
    }
    assert_status(pkv_table_accept(table, 1, NULL, NULL), PKV_ERR_INVALID);
    const pkv_pool_stats after = stats_of(pool);
    assert_same_stats(&stats, &after);
    same_rows(pool, table, 0, 0, 6, 1, 0);
    same_rows(pool, table, 0, 6, 4, 2, 6); /* the drafts are still there */
    pkv_table *empty = NULL;
    assert_ok(pkv_table_create(pool, &empty));
    assert_status(pkv_table_accept(empty, 0, NULL, NULL), PKV_ERR_STATE);
    end_table(empty);
    end_table(table);
    end_pool(pool);
}

static void after_a_fork_the_shared_tail_is_copied_before_rows_move(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_table *table = sequence_of(pool, 5, 5);
    draft(pool, table, 5, 2);
    pkv_table *fork = fork_of(table);
    const pkv_page shared = page_at(table, 1);
    const uint64_t accepted[3] = {6, 7, 9};
    assert_ok(pkv_table_accept(table, 3, accepted, NULL));
    assert_int_not_equal(page_at(table, 1), shared);
    assert_int_equal(page_at(fork, 1), shared);
    assert_int_equal(stats_of(pool).copied_pages, 1);
    same_rows(pool, table, 0, 0, 5, 1, 0);
    for (uint64_t i = 0; i < 3; ++i) same_rows(pool, table, 0, 5 + i, 1, 2, accepted[i]);
    same_rows(pool, fork, 0, 0, 5, 1, 0);
    put_and_commit(pool, fork, 9, 3);
    same_rows(pool, fork, 0, 5, 4, 3, 5);
    same_rows(pool, table, 0, 7, 1, 2, 9);
    end_table(table);
    end_table(fork);
    end_pool(pool);
}

static void without_a_page_for_the_copy_nothing_is_accepted(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(3, page_tokens);
    pkv_table *table = sequence_of(pool, 5, 5);
    draft(pool, table, 5, 2);
    pkv_table *fork = fork_of(table);
    const pkv_table_info before = info_of(table);
    const uint64_t accepted[2] = {6, 9};
    assert_status(pkv_table_accept(table, 2, accepted, NULL), PKV_ERR_NO_PAGES);
    const pkv_table_info after = info_of(table);
    assert_memory_equal(&before, &after, sizeof after);
    same_rows(pool, table, 0, 0, 5, 1, 0);
    same_rows(pool, table, 0, 5, 5, 2, 5);
    assert_ok(pkv_table_accept(table, 0, NULL, NULL)); /* moves nothing, copies nothing */
    end_table(fork);
    draft(pool, table, 5, 3);
    assert_ok(pkv_table_accept(table, 2, accepted, NULL));
    same_rows(pool, table, 0, 6, 1, 3, 9);
    end_table(table);
    end_pool(pool);
}

static void case_E11_scales_of_quantised_rows_move_with_them(void **state) {
    (void)state;
    pkv_group_options group = small_group(8);
    group.dtype = PKV_DTYPE_I8;
    group.scales = PKV_SCALES_TOKEN_HEAD;
    pkv_pool *pool = make_pool_of(&group, page_tokens, PKV_DEBUG_POISON);
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(pool, &prompt, NULL);
    assert_ok(pkv_table_reserve(table, 10));
    enum { row = 2 * 4 };
    float data[10 * row], before[10 * row], after[3 * row];
    for (int i = 0; i < 10 * row; ++i)
        data[i] = (float)(i % 7 - 3) * (float)(1 << i / row); /* each token its own scale */
    pkv_tensor rows = PKV_TENSOR_INIT;
    rows.data = data;
    rows.dtype = PKV_DTYPE_F32;
    rows.num_tokens = 10;
    for (uint32_t layer = 0; layer < 2; ++layer) assert_ok(pkv_table_write(table, 0, layer, 0, 10, &rows, &rows, NULL));
    rows.data = before;
    assert_ok(pkv_table_gather(table, 0, 1, 0, 10, &rows, NULL, NULL));
    const uint64_t accepted[3] = {1, 5, 9};
    assert_ok(pkv_table_accept(table, 3, accepted, NULL));
    rows.data = after;
    for (int side = 0; side < 2; ++side) {
        assert_ok(pkv_table_gather(table, 0, 1, 0, 3, side == 0 ? &rows : NULL, side == 1 ? &rows : NULL, NULL));
        for (int i = 0; i < 3; ++i)
            assert_memory_equal(after + i * row, before + accepted[i] * row, row * sizeof(float));
    }
    end_table(table);
    end_pool(pool);
}

/* ---- against a model that knows for each token which draft it was ---- */

enum { longest = 160, tables = 3, model_groups = 2 };
typedef struct {
    uint64_t committed, named;
    uint32_t tags[longest];    /* of the committed and drafted tokens ... */
    uint64_t origins[longest]; /* ... and where they were put in */
    pkv_token names[longest];
} model;

/* A row has one name, whoever gives it: forks share rows that nobody has named yet. */
static pkv_token name_of(const model *m, uint64_t token) {
    return (pkv_token)(m->tags[token] * 1000 + (uint32_t)m->origins[token]);
}

static void check_model(pkv_pool *pool, pkv_table *table, const model *m, uint32_t page) {
    const pkv_table_info info = info_of(table);
    assert_int_equal(info.committed, m->committed);
    assert_int_equal(info.named, m->named);
    const uint64_t published = (m->named < m->committed ? m->named : m->committed) / page * page;
    assert_int_equal(info.published, published);
    const pkv_prompt prompt = prompt_of(m->names, published);
    assert_int_equal(probe_tokens(pool, &prompt), published);
    for (uint32_t group = 0; group < model_groups; ++group)
        for (uint64_t t = 0; t < m->committed; ++t) same_rows(pool, table, group, t, 1, m->tags[t], m->origins[t]);
}

static void random_drafts(uint64_t seed, uint32_t page, int rounds) {
    test_random random = {seed};
    pkv_group_options groups[model_groups] = {small_group(6 * longest), small_group(6 * longest)};
    groups[1].num_layers = 1;
    groups[1].num_kv_heads = 1;
    groups[1].v_head_dim = 0;
    pkv_pool *pool = make_groups(groups, model_groups, page);
    static model models[tables];
    memset(models, 0, sizeof models);
    pkv_table *all[tables];
    const pkv_prompt prompt = prompt_of(NULL, 0);
    for (int i = 0; i < tables; ++i) all[i] = admit(pool, &prompt, NULL);
    uint32_t tag = 0;
    for (int round = 0; round < rounds; ++round) {
        const int which = (int)random_below(&random, tables);
        model *m = &models[which];
        if (random_below(&random, 6) == 0 || m->committed > longest - 20) { /* a beam goes on from another */
            const int from = (int)random_below(&random, tables);
            pkv_table *old = all[which];
            if (from == which || models[from].committed > longest - 20) {
                assert_ok(pkv_table_truncate(old, m->committed / 2, NULL));
                m->committed /= 2;
                m->named = m->named < m->committed ? m->named : m->committed;
            } else {
                all[which] = fork_of(all[from]);
                end_table(old);
                *m = models[from];
            }
            continue;
        }
        const uint64_t width = random_below(&random, 18), begin = m->committed;
        draft(pool, all[which], width, ++tag);
        for (uint64_t t = begin; t < begin + width; ++t) {
            m->tags[t] = tag;
            m->origins[t] = t;
        }
        if (m->named >= begin) { /* names for some of the drafts, from the first */
            const uint64_t count = random_below(&random, width + 1);
            for (uint64_t t = begin; t < begin + count; ++t) m->names[t] = name_of(m, t);
            assert_ok(pkv_table_set_tokens(all[which], begin, count, m->names + begin));
            m->named = begin + count;
        } else if (random_below(&random, 2) == 0) { /* the names that were missing */
            const uint64_t first = m->named;
            for (; m->named < begin; ++m->named) m->names[m->named] = name_of(m, m->named);
            assert_ok(pkv_table_set_tokens(all[which], first, begin - first, m->names + first));
        }
        uint64_t accepted[18], count = 0;
        for (uint64_t t = begin; t < begin + width; ++t)
            if (random_below(&random, 2) == 0) accepted[count++] = t;
        assert_ok(pkv_table_accept(all[which], count, accepted, NULL));
        uint64_t named = begin;
        for (uint64_t i = 0; i < count; ++i) {
            m->tags[begin + i] = m->tags[accepted[i]];
            m->origins[begin + i] = m->origins[accepted[i]];
            if (accepted[i] < m->named) m->names[named++] = m->names[accepted[i]];
        }
        if (m->named > named) m->named = named;
        m->committed += count;
        check_model(pool, all[which], m, page);
    }
    for (int i = 0; i < tables; ++i) {
        check_model(pool, all[i], &models[i], page);
        end_table(all[i]);
    }
    end_groups(pool);
}

static void drafts_are_the_models_at_every_page_size(void **state) {
    (void)state;
    const uint64_t seed = 77001;
    print_message("seeds from %llu\n", (unsigned long long)seed);
    const int runs = long_tests() ? 40 : 1;
    for (int run = 0; run < runs; ++run)
        for (uint32_t page = 1; page <= 16; ++page) random_drafts(seed + (uint64_t)run * 16 + page, page, 60);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_E14_drafts_of_which_none_is_accepted_are_not_published),
        cmocka_unit_test(accepted_tokens_follow_the_committed_ones_in_all_layers),
        cmocka_unit_test(names_of_accepted_tokens_move_with_them_and_are_published),
        cmocka_unit_test(an_image_among_the_accepted_drafts_stays_part_of_the_key),
        cmocka_unit_test(rows_of_an_image_without_its_first_are_not_found_without_it),
        cmocka_unit_test(wrong_positions_are_refused_and_change_nothing),
        cmocka_unit_test(after_a_fork_the_shared_tail_is_copied_before_rows_move),
        cmocka_unit_test(without_a_page_for_the_copy_nothing_is_accepted),
        cmocka_unit_test(case_E11_scales_of_quantised_rows_move_with_them),
        cmocka_unit_test(drafts_are_the_models_at_every_page_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
