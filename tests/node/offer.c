/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences handed over from one node to another, both in this process, over loopback: whole, and between shards. */
#include "node/handover.h"

enum { tokens = given_tokens, tag = given_tag };

static void a_sequence_comes_over_with_its_partial_block(void **state) {
    (void)state;
    given g;
    if (!begin(&g)) skip();
    const shard model = whole_model(64);
    pkv_pool *pool = shard_pool(&model);
    pkv_table *table = pulled(begin_pull(g.at.puller, pool, &g.t));
    const pkv_table_info info = info_of(table);
    assert_int_equal(info.committed, tokens);
    assert_int_equal(info.named, tokens);
    assert_int_equal(info.published, 48);
    assert_int_equal(info.blocks, 13);
    same_tokens(table, &model, 0, tokens, tag);

    /* Its blocks are found as computed ones are, and it goes on. */
    pkv_token more[100];
    count_up(more, 100, 1);
    const pkv_prompt prompt = prompt_of(more, 100);
    assert_int_equal(probe_tokens(pool, &prompt), 48);
    assert_ok(pkv_table_reserve(table, 60));
    assert_ok(pkv_table_set_tokens(table, tokens, 9, &more[tokens]));
    put_tokens(table, &model, 60, tag);
    same_tokens(table, &model, 0, 60, tag);
    assert_int_equal(probe_tokens(pool, &prompt), 60);

    /* Pulled as often as it was meant to be: the giver's pages are its table's alone. */
    soon(offer_info(g.offer).status == PKV_OK);
    assert_int_equal(offer_info(g.offer).pulls, 1);
    assert_int_equal(page_of(g.pool, page_at(g.table, 0)).count, 1);
    const pkv_node_stats giver = node_stats(g.at.giver), puller = node_stats(g.at.puller);
    assert_int_equal(giver.offers, 1);
    assert_int_equal(giver.open_offers, 0);
    assert_int_equal(giver.pulls_served, 1);
    assert_int_equal(giver.failed_pulls_served, 0);
    assert_int_equal(puller.pulls, 1);
    assert_int_equal(puller.failed_pulls, 0);
    assert_int_equal(puller.pulled_bytes, tokens * 4 * 4 * 2 * row_elements * 2);
    assert_true(giver.handed_bytes >= puller.pulled_bytes);
    end_table(table);
    all_released(pool);
    end_pool(pool);
    end(&g);
}

static void what_was_pulled_cannot_be_pulled_again(void **state) {
    (void)state;
    given g;
    if (!begin(&g)) skip();
    pkv_pool *pool = shard_pool(&g.model);
    end_table(pulled(begin_pull(g.at.puller, pool, &g.t)));
    soon(offer_info(g.offer).status == PKV_OK);
    pull_fails(begin_pull(g.at.puller, pool, &g.t), PKV_ERR_NOT_FOUND, "no such offer");
    assert_int_equal(node_stats(g.at.puller).failed_pulls, 1);
    all_released(pool);
    end_pool(pool);
    end(&g);
}

static void an_offer_without_bound_is_pulled_by_many_at_once(void **state) {
    (void)state;
    enum { pullers = 12 };
    given g;
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.max_pulls = PKV_PULLS_UNLIMITED;
    if (!begin_with(&g, &options)) skip();
    pkv_pool *pools[pullers];
    pkv_op *ops[pullers];
    for (int i = 0; i < pullers; ++i) {
        pools[i] = shard_pool(&g.model);
        ops[i] = begin_pull(g.at.puller, pools[i], &g.t);
    }
    for (int i = 0; i < pullers; ++i) {
        pkv_table *table = pulled(ops[i]);
        same_tokens(table, &g.model, 0, tokens, tag);
        end_table(table);
        end_pool(pools[i]);
    }
    soon(offer_info(g.offer).pulls == pullers);
    assert_int_equal(offer_info(g.offer).status, PKV_ERR_BUSY);
    assert_int_equal(node_stats(g.at.giver).open_offers, 1);
    end(&g);
}

static void blocks_that_the_puller_has_are_not_transferred(void **state) {
    (void)state;
    given g;
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.max_pulls = 2;
    if (!begin_with(&g, &options)) skip();
    pkv_pool *pool = shard_pool(&g.model);
    end_table(computed(pool, &g.model, 1, 20, tag)); /* 5 blocks of it */
    pkv_table *table = pulled(begin_pull(g.at.puller, pool, &g.t));
    assert_int_equal(info_of(table).matched, 20);
    same_tokens(table, &g.model, 0, tokens, tag);
    const uint64_t token_bytes = 4 * 4 * 2 * row_elements * 2;
    assert_int_equal(node_stats(g.at.puller).pulled_bytes, (tokens - 20) * token_bytes);

    /* And all of them, if they are wanted. */
    pkv_pull_options all = PKV_PULL_OPTIONS_INIT;
    all.flags = PKV_PULL_NO_MATCH;
    pkv_table *twin = pulled(begin_pull_of(g.at.puller, pool, &g.t, 1, &all, 0));
    assert_int_equal(info_of(twin).matched, 0);
    same_tokens(twin, &g.model, 0, tokens, tag);
    assert_int_equal(node_stats(g.at.puller).pulled_bytes, (2 * tokens - 20) * token_bytes);
    end_table(table);
    end_table(twin);
    all_released(pool);
    end_pool(pool);
    end(&g);
}

static void a_sequence_that_is_there_already_takes_no_bytes(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    const shard model = whole_model(64);
    pkv_pool *from = shard_pool(&model), *to = shard_pool(&model);
    pkv_table *table = computed(from, &model, 1, 48, tag), *there = computed(to, &model, 1, 48, tag);
    pkv_offer *offer = offer_of(n.giver, table, NULL);
    const ticket t = ticket_of(offer);
    pkv_table *copy = pulled(begin_pull(n.puller, to, &t));
    assert_int_equal(info_of(copy).committed, 48);
    assert_int_equal(page_at(copy, 11), page_at(there, 11));
    assert_int_equal(node_stats(n.puller).pulled_bytes, 0);
    end_table(copy);
    end_table(there);
    end_table(table);
    assert_ok(pkv_offer_close(offer));
    end_pool(from);
    end_pool(to);
    close_nodes(&n);
}

/* Giver and puller are one node, and one pool: whole blocks are shared, and the last one is copied. */
static void a_node_pulls_from_itself(void **state) {
    (void)state;
    given g;
    if (!begin(&g)) skip();
    pkv_table *twin = pulled(begin_pull(g.at.giver, g.pool, &g.t));
    same_tokens(twin, &g.model, 0, tokens, tag);
    for (uint64_t block = 0; block < 12; ++block) assert_int_equal(page_at(twin, block), page_at(g.table, block));
    assert_true(page_at(twin, 12) != page_at(g.table, 12));
    assert_int_equal(node_stats(g.at.giver).pulled_bytes, 3 * 4 * 4 * 2 * row_elements * 2);
    end_table(twin);
    end(&g);
}

/* ---- shards */

static void two_shards_of_heads_pull_from_one_giver(void **state) {
    (void)state;
    given g;
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.max_pulls = 2;
    if (!begin_with(&g, &options)) skip();
    for (uint32_t rank = 0; rank < 2; ++rank) {
        shard half = with_heads(whole_model(64), rank * 2, 2);
        half.layout = rank == 0 ? PKV_LAYOUT_HND : PKV_LAYOUT_NHD;
        pkv_pool *pool = shard_pool(&half);
        pkv_table *table = pulled(begin_pull(g.at.puller, pool, &g.t));
        same_tokens(table, &half, 0, tokens, tag);
        end_table(table);
        end_pool(pool);
    }
    soon(offer_info(g.offer).status == PKV_OK);
    assert_int_equal(node_stats(g.at.puller).pulled_bytes, tokens * 4 * 4 * 2 * row_elements * 2);
    end(&g);
}

static void shards_of_layers_pull_from_one_giver(void **state) {
    (void)state;
    given g;
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.max_pulls = 3;
    if (!begin_with(&g, &options)) skip();
    static const uint32_t firsts[] = {0, 1, 3}, counts[] = {1, 2, 1};
    for (int i = 0; i < 3; ++i) {
        shard part = with_layers(whole_model(64), firsts[i], counts[i]);
        part.arrangement = PKV_LAYER_MAJOR;
        pkv_pool *pool = shard_pool(&part);
        pkv_table *table = pulled(begin_pull(g.at.puller, pool, &g.t));
        same_tokens(table, &part, 0, tokens, tag);
        end_table(table);
        end_pool(pool);
    }
    soon(offer_info(g.offer).status == PKV_OK);
    end(&g);
}

/* Four givers, each with half of the heads of half of the layers. */
static void one_pulls_from_several_that_have_it_together(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    pkv_pool *pools[4];
    pkv_table *tables[4];
    pkv_offer *offers[4];
    ticket tickets[4];
    for (uint32_t i = 0; i < 4; ++i) {
        const shard part = with_layers(with_heads(whole_model(64), i % 2 * 2, 2), i / 2 * 2, 2);
        pools[i] = shard_pool(&part);
        tables[i] = computed(pools[i], &part, 1, tokens, tag);
        offers[i] = offer_of(n.giver, tables[i], NULL);
        tickets[i] = ticket_of(offers[i]);
    }
    shard model = whole_model(64);
    model.page_tokens = 8;
    pkv_pool *pool = shard_pool(&model);
    pkv_table *table = pulled(begin_pull_of(n.puller, pool, tickets, 4, NULL, 0));
    same_tokens(table, &model, 0, tokens, tag);
    end_table(table);
    for (uint32_t i = 0; i < 4; ++i) {
        soon(offer_info(offers[i]).status == PKV_OK);
        assert_ok(pkv_offer_close(offers[i]));
        end_table(tables[i]);
        end_pool(pools[i]);
    }
    all_released(pool);
    end_pool(pool);
    close_nodes(&n);
}

/* Eight ranks of four heads: each head is there twice. */
static void case_H13_of_heads_that_two_givers_have_each_comes_once(void **state) {
    (void)state;
    enum { ranks = 8 };
    nodes n;
    if (!open_nodes(&n)) skip();
    pkv_pool *pools[ranks];
    pkv_table *tables[ranks];
    pkv_offer *offers[ranks];
    ticket tickets[ranks];
    for (uint32_t rank = 0; rank < ranks; ++rank) {
        const shard part = with_heads(whole_model(64), rank / 2, 1);
        pools[rank] = shard_pool(&part);
        tables[rank] = computed(pools[rank], &part, 1, tokens, tag);
        offers[rank] = offer_of(n.giver, tables[rank], NULL);
        tickets[rank] = ticket_of(offers[rank]);
    }
    const shard model = whole_model(64);
    pkv_pool *pool = shard_pool(&model);
    pkv_table *table = pulled(begin_pull_of(n.puller, pool, tickets, ranks, NULL, 0));
    same_tokens(table, &model, 0, tokens, tag);
    assert_int_equal(node_stats(n.puller).pulled_bytes, tokens * 4 * 4 * 2 * row_elements * 2);
    end_table(table);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
        assert_ok(pkv_offer_close(offers[rank]));
        end_table(tables[rank]);
        end_pool(pools[rank]);
    }
    end_pool(pool);
    close_nodes(&n);
}

static void case_H16_H17_more_ranks_than_heads_pull_a_head_each(void **state) {
    (void)state;
    enum { ranks = 8 };
    given g;
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.max_pulls = ranks;
    if (!begin_with(&g, &options)) skip();
    for (uint32_t rank = 0; rank < ranks; ++rank) {
        const shard part = with_heads(whole_model(64), rank / 2, 1);
        pkv_pool *pool = shard_pool(&part);
        pkv_table *table = pulled(begin_pull(g.at.puller, pool, &g.t));
        same_tokens(table, &part, 0, tokens, tag);
        end_table(table);
        end_pool(pool);
    }
    soon(offer_info(g.offer).status == PKV_OK);
    end(&g);
}

static void several_givers_must_have_one_sequence_and_all_of_it(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    pkv_pool *pools[2];
    pkv_table *tables[2];
    pkv_offer *offers[2];
    ticket tickets[2];
    for (uint32_t i = 0; i < 2; ++i) {
        const shard part = with_heads(whole_model(64), i * 2, 2);
        pools[i] = shard_pool(&part);
        tables[i] = computed(pools[i], &part, i == 0 ? 1 : 2, tokens, tag);
        offers[i] = offer_of(n.giver, tables[i], NULL);
        tickets[i] = ticket_of(offers[i]);
    }
    const shard model = whole_model(64);
    pkv_pool *pool = shard_pool(&model);
    pull_fails(begin_pull_of(n.puller, pool, tickets, 2, NULL, 0), PKV_ERR_MISMATCH, "another sequence");
    pull_fails(begin_pull(n.puller, pool, &tickets[0]), PKV_ERR_MISMATCH,
               "head 2 of the model is in none of the offers");
    all_released(pool);
    end_pool(pool);
    for (uint32_t i = 0; i < 2; ++i) {
        assert_int_equal(offer_info(offers[i]).status, PKV_ERR_BUSY);
        assert_ok(pkv_offer_close(offers[i]));
        end_table(tables[i]);
        end_pool(pools[i]);
    }
    close_nodes(&n);
}

static void case_H19_H20_pages_of_other_sizes_and_orders_take_the_same_rows(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 3, 16, 64};
    given g;
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.max_pulls = PKV_PULLS_UNLIMITED;
    if (!begin_with(&g, &options)) skip();
    for (size_t i = 0; i < 4; ++i) {
        shard other = whole_model(64);
        other.page_tokens = sizes[i];
        other.layout = i % 2 == 0 ? PKV_LAYOUT_HND : PKV_LAYOUT_NHD;
        other.arrangement = i < 2 ? PKV_LAYER_MAJOR : PKV_PAGE_MAJOR;
        pkv_pool *pool = shard_pool(&other);
        pkv_table *table = pulled(begin_pull(g.at.puller, pool, &g.t));
        same_tokens(table, &other, 0, tokens, tag);
        end_table(table);
        end_pool(pool);
    }
    end(&g);
}

static void latent_rows_come_over(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    shard model = with_heads(whole_model(64), 0, 1);
    model.total_heads = 1;
    model.latent = true;
    pkv_pool *from = shard_pool(&model), *to = shard_pool(&model);
    pkv_table *table = computed(from, &model, 1, tokens, tag);
    pkv_offer *offer = offer_of(n.giver, table, NULL);
    const ticket t = ticket_of(offer);
    pkv_table *copy = pulled(begin_pull(n.puller, to, &t));
    same_tokens(copy, &model, 0, tokens, tag);
    end_table(copy);
    end_table(table);
    assert_ok(pkv_offer_close(offer));
    end_pool(from);
    end_pool(to);
    close_nodes(&n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_comes_over_with_its_partial_block),
        cmocka_unit_test(what_was_pulled_cannot_be_pulled_again),
        cmocka_unit_test(an_offer_without_bound_is_pulled_by_many_at_once),
        cmocka_unit_test(blocks_that_the_puller_has_are_not_transferred),
        cmocka_unit_test(a_sequence_that_is_there_already_takes_no_bytes),
        cmocka_unit_test(a_node_pulls_from_itself),
        cmocka_unit_test(two_shards_of_heads_pull_from_one_giver),
        cmocka_unit_test(shards_of_layers_pull_from_one_giver),
        cmocka_unit_test(one_pulls_from_several_that_have_it_together),
        cmocka_unit_test(case_H13_of_heads_that_two_givers_have_each_comes_once),
        cmocka_unit_test(case_H16_H17_more_ranks_than_heads_pull_a_head_each),
        cmocka_unit_test(several_givers_must_have_one_sequence_and_all_of_it),
        cmocka_unit_test(case_H19_H20_pages_of_other_sizes_and_orders_take_the_same_rows),
        cmocka_unit_test(latent_rows_come_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
