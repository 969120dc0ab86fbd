/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences handed over from one node to another, both in this process, over loopback. */
#include "node/handover.h"

enum { tokens = 51 /* 12 blocks of 4, and 3 in the last one */, tag = 7 };

/* What most tests begin with: a sequence of the whole model, offered. */
typedef struct {
    nodes at;
    shard model;
    pkv_pool *pool; /* the giver's */
    pkv_table *table;
    pkv_offer *offer;
    ticket t;
} given;

static bool begin_with(given *g, const pkv_offer_options *options) {
    memset(g, 0, sizeof *g);
    if (!open_nodes(&g->at)) return false;
    g->model = whole_model(64);
    g->pool = shard_pool(&g->model);
    g->table = computed(g->pool, &g->model, 1, tokens, tag);
    g->offer = offer_of(g->at.giver, g->table, options);
    g->t = ticket_of(g->offer);
    return true;
}
static bool begin(given *g) { return begin_with(g, NULL); }

static void end(given *g) {
    if (g->offer != NULL) assert_ok(pkv_offer_close(g->offer));
    if (g->table != NULL) end_table(g->table);
    all_released(g->pool);
    end_pool(g->pool);
    close_nodes(&g->at);
}

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
    pull_fails(begin_pull(n.puller, pool, &tickets[0]), PKV_ERR_MISMATCH, "head 2 of the model is in none of the offers");
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

static void pages_of_other_sizes_and_orders_take_the_same_rows(void **state) {
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

/* ---- while the giver computes */

static void layers_come_as_the_giver_says(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    const shard model = whole_model(64);
    pkv_pool *from = shard_pool(&model), *to = shard_pool(&model);
    pkv_table *table = admit_counted(from, 1, tokens, 0);
    put_tokens(table, &model, 22, tag); /* a chunk that ends inside a block */
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.num_tokens = tokens;
    pkv_offer *offer = offer_of(n.giver, table, &options);
    const ticket t = ticket_of(offer);
    assert_int_equal(offer_info(offer).ready_tokens, 22);
    pkv_op *op = begin_pull(n.puller, to, &t);
    soon(node_stats(n.puller).pulled_bytes == 22 * 4 * 4 * 2 * row_elements * 2);

    /* The second chunk, layer by layer: each ends its item as soon as it is there. */
    for (uint32_t layer = 0; layer < 4; ++layer) {
        put_layer(table, &model, layer, 22, tokens - 22, tag);
        assert_ok(pkv_offer_ready(offer, 0, layer, tokens, NULL));
        pkv_op_info info = PKV_OP_INFO_INIT;
        pkv_status statuses[4];
        do assert_ok(pkv_op_poll(op, &info, statuses, 4));
        while (info.done_items < layer + 1);
        assert_int_equal(info.num_items, 4);
        for (uint32_t l = 0; l < 4; ++l) assert_int_equal(statuses[l], l <= layer ? PKV_OK : PKV_ERR_BUSY);
    }
    assert_ok(pkv_table_commit(table, tokens, NULL));
    pkv_table *copy = pulled(op);
    same_tokens(copy, &model, 0, tokens, tag);
    same_tokens(table, &model, 0, tokens, tag);
    end_table(copy);
    end_table(table);
    assert_ok(pkv_offer_close(offer));
    all_released(from);
    end_pool(from);
    end_pool(to);
    close_nodes(&n);
}

/* Room is made for one chunk at a time, and chunks end inside blocks: the last block is shared then, and is copied when the next
 * chunk is written. */
static void chunks_come_as_room_is_made_for_them(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    const shard model = whole_model(64);
    for (uint64_t chunk = 1; chunk < 12; chunk += 2) {
        pkv_pool *from = shard_pool(&model), *to = shard_pool(&model);
        pkv_table *table = admit_counted(from, 1, tokens, 1);
        pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
        options.num_tokens = tokens;
        pkv_offer *offer = offer_of(n.giver, table, &options);
        const ticket t = ticket_of(offer);
        pkv_op *op = begin_pull(n.puller, to, &t);
        pkv_table *fork = NULL;
        for (uint64_t done = 0; done < tokens; done += chunk) {
            const uint64_t end_of_chunk = done + chunk < tokens ? done + chunk : tokens;
            if (fork != NULL) end_table(fork);
            fork = fork_of(table); /* somebody else sees the last block: it has to be copied before it is written */
            put_tokens(table, &model, end_of_chunk, tag);
            assert_ok(pkv_offer_ready(offer, PKV_ALL_GROUPS, PKV_ALL_LAYERS, end_of_chunk, NULL));
        }
        pkv_table *copy = pulled(op);
        same_tokens(copy, &model, 0, tokens, tag);
        end_table(copy);
        end_table(fork);
        end_table(table);
        assert_ok(pkv_offer_close(offer));
        all_released(from);
        end_pool(from);
        end_pool(to);
    }
    close_nodes(&n);
}

static void what_is_called_ready_is_checked(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    const shard model = whole_model(64);
    pkv_pool *from = shard_pool(&model);
    pkv_table *table = admit_counted(from, 1, tokens, 8);
    put_tokens(table, &model, 8, tag);
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.num_tokens = tokens;
    pkv_offer *offer = offer_of(n.giver, table, &options);
    assert_status(pkv_offer_ready(offer, 0, 0, tokens + 1, NULL), PKV_ERR_INVALID);
    assert_status(pkv_offer_ready(offer, 0, 4, 1, NULL), PKV_ERR_INVALID);
    assert_status(pkv_offer_ready(offer, 1, 0, 1, NULL), PKV_ERR_INVALID);
    assert_status(pkv_offer_ready(offer, PKV_ALL_GROUPS, 0, 1, NULL), PKV_ERR_INVALID);
    assert_status(pkv_offer_ready(offer, 0, 0, 9, NULL), PKV_ERR_NOT_RESIDENT);
    assert_ok(pkv_offer_ready(offer, 0, PKV_ALL_LAYERS, 3, NULL)); /* less than there is */
    assert_int_equal(offer_info(offer).ready_tokens, 8);
    const pkv_token other = 999;
    assert_ok(pkv_table_reserve(table, 20));
    assert_ok(pkv_table_set_tokens(table, 10, 1, &other));
    assert_ok(pkv_offer_ready(offer, 0, PKV_ALL_LAYERS, 10, NULL));
    assert_status(pkv_offer_ready(offer, 0, PKV_ALL_LAYERS, 11, NULL), PKV_ERR_STATE);
    assert_message("the tokens from 8 on are others");
    assert_ok(pkv_table_truncate(table, 4, NULL));
    assert_status(pkv_offer_ready(offer, 0, PKV_ALL_LAYERS, 10, NULL), PKV_ERR_STATE);
    assert_message("was cut");
    end_table(table);
    assert_status(pkv_offer_ready(offer, 0, PKV_ALL_LAYERS, 10, NULL), PKV_ERR_STATE);
    assert_message("gone");
    assert_ok(pkv_offer_close(offer));
    assert_status(pkv_offer_ready(offer, 0, PKV_ALL_LAYERS, 10, NULL), PKV_ERR_HANDLE);
    all_released(from);
    end_pool(from);
    close_nodes(&n);
}

/* The table is cut, written anew, and destroyed: what was offered stays what it was. */
static void the_table_may_go_while_it_is_offered(void **state) {
    (void)state;
    given g;
    if (!begin(&g)) skip();
    assert_ok(pkv_table_truncate(g.table, 10, NULL));
    pkv_token others[90];
    count_up(others, 90, 5000);
    assert_ok(pkv_table_set_tokens(g.table, 10, 90, others));
    put_tokens(g.table, &g.model, 100, tag + 1);
    pkv_pool *pool = shard_pool(&g.model);
    pkv_op *op = begin_pull(g.at.puller, pool, &g.t);
    end_table(g.table);
    g.table = NULL;
    pkv_table *busy = computed(g.pool, &g.model, 9000, 4 * 30, tag + 2); /* whatever was free is used */
    pkv_table *table = pulled(op);
    same_tokens(table, &g.model, 0, tokens, tag);
    end_table(busy);
    end_table(table);
    end_pool(pool);
    end(&g);
}

/* ---- tickets that are good for nothing */

static void a_ticket_is_its_own_cluster_s_and_as_it_was_made(void **state) {
    (void)state;
    given g;
    if (!begin(&g)) skip();
    pkv_pool *pool = shard_pool(&g.model);
    pkv_op *op = NULL;
    for (uint64_t at = 0; at < g.t.size; ++at)
        for (int bit = 0; bit < 8; ++bit) {
            ticket bad = g.t;
            bad.bytes[at] ^= (unsigned char)(1 << bit);
            const pkv_bytes bytes = {bad.bytes, bad.size};
            const pkv_status status = pkv_table_pull(g.at.puller, pool, 1, &bytes, NULL, NULL, &op);
            assert_true(status == PKV_ERR_INVALID || status == PKV_ERR_MISMATCH);
        }
    for (uint64_t size = 0; size < g.t.size; ++size) {
        const pkv_bytes bytes = {g.t.bytes, size};
        const pkv_status status = pkv_table_pull(g.at.puller, pool, 1, &bytes, NULL, NULL, &op);
        assert_true(status == PKV_ERR_INVALID || status == PKV_ERR_MISMATCH);
    }
    unsigned char other_key[PKV_CLUSTER_KEY_BYTES] = "another cluster's key, for tests";
    pkv_node_options options = node_options();
    options.cluster_key.data = other_key;
    pkv_node *stranger = open_node(&options);
    const pkv_bytes bytes = {g.t.bytes, g.t.size};
    assert_status(pkv_table_pull(stranger, pool, 1, &bytes, NULL, NULL, &op), PKV_ERR_MISMATCH);
    assert_message("cluster's key");
    assert_ok(pkv_node_close(stranger));
    assert_null(op);
    assert_int_equal(node_stats(g.at.giver).accepted, 0);

    /* Nothing of the address or the sequence is to be seen in it. */
    const address at = address_of(g.at.giver);
    for (uint64_t i = 0; i + strlen(at.text) <= g.t.size; ++i) assert_true(memcmp(&g.t.bytes[i], at.text, strlen(at.text)) != 0);
    end_pool(pool);
    end(&g);
}

static void a_withdrawn_offer_is_gone(void **state) {
    (void)state;
    given g;
    if (!begin(&g)) skip();
    pkv_pool *pool = shard_pool(&g.model);
    assert_int_equal(page_of(g.pool, page_at(g.table, 0)).count, 2);
    assert_ok(pkv_offer_close(g.offer));
    g.offer = NULL;
    assert_int_equal(page_of(g.pool, page_at(g.table, 0)).count, 1);
    pull_fails(begin_pull(g.at.puller, pool, &g.t), PKV_ERR_NOT_FOUND, "no such offer");
    all_released(pool);
    end_pool(pool);
    end(&g);
}

static void a_ticket_expires(void **state) {
    (void)state;
    given g;
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.lifetime_ns = one_second / 100;
    if (!begin_with(&g, &options)) skip();
    end_table(g.table);
    g.table = NULL;
    all_released(g.pool); /* at its end, without anybody's doing */
    assert_int_equal(offer_info(g.offer).status, PKV_ERR_TIMEOUT);
    soon(node_stats(g.at.giver).expired_offers == 1);
    pkv_pool *pool = shard_pool(&g.model);
    pull_fails(begin_pull(g.at.puller, pool, &g.t), PKV_ERR_NOT_FOUND, "expired");
    end_pool(pool);
    end(&g);
}

/* A giver that stops in the middle: in each case the pull waits for layers that never come. */
typedef enum { withdraws, expires, closes_its_node, closes_its_pool } way_out;

static void ends_in_mid_pull(way_out how, pkv_status expected, const char *message) {
    nodes n;
    if (!open_nodes(&n)) skip();
    const shard model = whole_model(64);
    pkv_pool *from = shard_pool(&model), *to = shard_pool(&model);
    pkv_table *table = admit_counted(from, 1, tokens, 0);
    put_tokens(table, &model, 22, tag);
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.num_tokens = tokens;
    if (how == expires) options.lifetime_ns = one_second / 2;
    pkv_offer *offer = offer_of(n.giver, table, &options);
    const ticket t = ticket_of(offer);
    const pkv_pool_stats before = stats_of(to);
    pkv_op *op = begin_pull(n.puller, to, &t);
    soon(node_stats(n.puller).pulled_bytes == 22 * 4 * 4 * 2 * row_elements * 2);
    assert_int_equal(offer_info(offer).open_pulls, 1);
    if (how == withdraws) assert_ok(pkv_offer_close(offer));
    if (how == closes_its_node) assert_ok(pkv_node_close(n.giver));
    if (how == closes_its_pool) assert_ok(pkv_pool_destroy(from));
    if (how == closes_its_node && pkv_op_wait(op, 30ull * one_second) == PKV_ERR_IO) { /* its connection went first */
        expected = PKV_ERR_IO;
        message = "gone";
    }
    pull_fails(op, expected, message);
    all_released(to);
    assert_int_equal(stats_of(to).free_pages, before.free_pages);
    assert_int_equal(node_stats(n.puller).failed_pulls, 1);
    if (how != withdraws) {
        assert_int_equal(offer_info(offer).status, how == expires ? PKV_ERR_TIMEOUT : PKV_ERR_CLOSED);
        assert_ok(pkv_offer_close(offer));
    }
    assert_ok(pkv_table_destroy(table, NULL));
    if (how != closes_its_pool) {
        all_released(from);
        end_pool(from);
    }
    end_pool(to);
    assert_ok(pkv_node_close(n.puller));
    if (how != closes_its_node) assert_ok(pkv_node_close(n.giver));
}

static void a_pull_ends_when_its_offer_is_withdrawn(void **state) {
    (void)state;
    ends_in_mid_pull(withdraws, PKV_ERR_NOT_FOUND, "withdrawn");
}
static void a_pull_ends_when_its_offer_expires(void **state) {
    (void)state;
    ends_in_mid_pull(expires, PKV_ERR_NOT_FOUND, "expired");
}
static void a_pull_ends_when_the_giver_s_node_closes(void **state) {
    (void)state;
    ends_in_mid_pull(closes_its_node, PKV_ERR_NOT_FOUND, "closed");
}
static void a_pull_ends_when_the_giver_s_pool_is_destroyed(void **state) {
    (void)state;
    ends_in_mid_pull(closes_its_pool, PKV_ERR_NOT_FOUND, "closed");
}

/* The puller's own side ends it, in the middle. */
typedef enum { cancels, runs_out_of_time, closes_node, destroys_pool } own_way_out;

static void is_ended_in_mid_pull(own_way_out how, pkv_status expected, const char *message) {
    nodes n;
    if (!open_nodes(&n)) skip();
    const shard model = whole_model(64);
    pkv_pool *from = shard_pool(&model), *to = shard_pool(&model);
    pkv_table *table = admit_counted(from, 1, tokens, 0);
    put_tokens(table, &model, 22, tag);
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.num_tokens = tokens;
    pkv_offer *offer = offer_of(n.giver, table, &options);
    const ticket t = ticket_of(offer);
    pkv_op *op = begin_pull_of(n.puller, to, &t, 1, NULL, how == runs_out_of_time ? one_second / 4 : 20ull * one_second);
    pkv_table *none = NULL;
    assert_status(pkv_pull_table(op, &none), PKV_ERR_BUSY);
    soon(node_stats(n.puller).pulled_bytes == 22 * 4 * 4 * 2 * row_elements * 2);
    if (how == cancels) assert_ok(pkv_op_cancel(op));
    if (how == closes_node) assert_ok(pkv_node_close(n.puller));
    if (how == destroys_pool) assert_ok(pkv_pool_destroy(to));
    pull_fails(op, expected, message);
    if (how != destroys_pool) {
        all_released(to);
        assert_int_equal(stats_of(to).free_pages, 64);
        end_pool(to);
    }
    soon(offer_info(offer).failed_pulls == 1); /* the giver hears of it, and still offers */
    assert_int_equal(offer_info(offer).status, PKV_ERR_BUSY);
    assert_int_equal(offer_info(offer).open_pulls, 0);
    end_table(table);
    assert_ok(pkv_offer_close(offer));
    all_released(from);
    end_pool(from);
    if (how != closes_node) assert_ok(pkv_node_close(n.puller));
    assert_ok(pkv_node_close(n.giver));
}

static void a_pull_can_be_cancelled(void **state) {
    (void)state;
    is_ended_in_mid_pull(cancels, PKV_ERR_CANCELLED, "cancelled");
}
static void a_pull_runs_out_of_time(void **state) {
    (void)state;
    is_ended_in_mid_pull(runs_out_of_time, PKV_ERR_TIMEOUT, "4 of 4 parts were missing");
}
static void a_pull_ends_with_its_node(void **state) {
    (void)state;
    is_ended_in_mid_pull(closes_node, PKV_ERR_CLOSED, "node is being closed");
}
static void a_pull_ends_with_its_pool(void **state) {
    (void)state;
    is_ended_in_mid_pull(destroys_pool, PKV_ERR_CLOSED, "pool was destroyed");
}

static void a_pull_that_failed_can_be_tried_again(void **state) {
    (void)state;
    given g;
    if (!begin(&g)) skip();
    const shard small = whole_model(12); /* 13 pages are needed */
    pkv_pool *pool = shard_pool(&small);
    pull_fails(begin_pull(g.at.puller, pool, &g.t), PKV_ERR_NO_PAGES, "13 pages wanted");
    all_released(pool);
    assert_int_equal(stats_of(pool).free_pages, 12);
    end_pool(pool);
    soon(offer_info(g.offer).failed_pulls == 1);
    pool = shard_pool(&g.model);
    pkv_table *table = pulled(begin_pull(g.at.puller, pool, &g.t));
    same_tokens(table, &g.model, 0, tokens, tag);
    end_table(table);
    end_pool(pool);
    soon(offer_info(g.offer).status == PKV_OK);
    end(&g);
}

static void an_operation_that_is_closed_takes_its_table_with_it(void **state) {
    (void)state;
    given g;
    if (!begin(&g)) skip();
    pkv_pool *pool = shard_pool(&g.model);
    pkv_op *op = begin_pull(g.at.puller, pool, &g.t);
    assert_ok(pkv_op_wait(op, 20ull * one_second));
    assert_int_equal(stats_of(pool).held_pages, 13);
    assert_ok(pkv_op_close(op));
    all_released(pool);
    assert_int_equal(stats_of(pool).cached_pages, 12); /* found again by its prompt */
    end_pool(pool);
    end(&g);
}

/* ---- operations */

static void both_sides_end_in_queues(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    const shard model = whole_model(64);
    pkv_pool *from = shard_pool(&model), *to = shard_pool(&model);
    pkv_table *table = computed(from, &model, 1, tokens, tag);
    pkv_queue *queue = NULL;
    assert_ok(pkv_queue_create(&queue));
    pkv_op_options how = PKV_OP_OPTIONS_INIT;
    how.queue = queue;
    how.user = 1;
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.max_pulls = 2;
    pkv_offer *offer = NULL;
    pkv_op *offered = NULL;
    assert_ok(pkv_table_offer(n.giver, table, &options, &how, &offer, &offered));
    const ticket t = ticket_of(offer);
    const pkv_bytes bytes = {t.bytes, t.size};
    for (int i = 0; i < 2; ++i) {
        pkv_op *op = NULL;
        how.user = 2;
        assert_ok(pkv_table_pull(n.puller, to, 1, &bytes, NULL, &how, &op));
        end_table(pulled(op));
        if (i == 0) soon(offer_info(offer).pulls == 1);
        pkv_op_info info = PKV_OP_INFO_INIT;
        pkv_status statuses[2];
        if (i == 0) {
            assert_ok(pkv_op_poll(offered, &info, statuses, 2));
            assert_int_equal(info.num_items, 2);
            assert_int_equal(statuses[0], PKV_OK);
            assert_int_equal(statuses[1], PKV_ERR_BUSY);
        }
    }
    assert_ok(pkv_op_wait(offered, 20ull * one_second));
    pkv_completion completions[4];
    uint64_t got = 0, sum = 0;
    while (got < 3) {
        uint64_t count = 0;
        assert_ok(pkv_queue_drain(queue, completions, 4, 20ull * one_second, &count));
        for (uint64_t i = 0; i < count; ++i) {
            assert_int_equal(completions[i].status, PKV_OK);
            sum += completions[i].user;
        }
        got += count;
    }
    assert_int_equal(sum, 5);
    pkv_table *none = NULL;
    assert_status(pkv_pull_table(offered, &none), PKV_ERR_STATE);
    assert_ok(pkv_op_close(offered));
    assert_ok(pkv_offer_close(offer));

    /* An offer is withdrawn through its operation, too. */
    how.queue = NULL;
    assert_ok(pkv_table_offer(n.giver, table, NULL, &how, &offer, &offered));
    assert_ok(pkv_op_cancel(offered));
    assert_status(pkv_op_wait(offered, one_second), PKV_ERR_CANCELLED);
    assert_message("withdrawn");
    assert_int_equal(offer_info(offer).status, PKV_ERR_CANCELLED);
    assert_int_equal(page_of(from, page_at(table, 0)).count, 1);
    assert_ok(pkv_op_close(offered));
    assert_ok(pkv_offer_close(offer));
    assert_ok(pkv_queue_destroy(queue));
    end_table(table);
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
        cmocka_unit_test(several_givers_must_have_one_sequence_and_all_of_it),
        cmocka_unit_test(pages_of_other_sizes_and_orders_take_the_same_rows),
        cmocka_unit_test(latent_rows_come_over),
        cmocka_unit_test(layers_come_as_the_giver_says),
        cmocka_unit_test(chunks_come_as_room_is_made_for_them),
        cmocka_unit_test(what_is_called_ready_is_checked),
        cmocka_unit_test(the_table_may_go_while_it_is_offered),
        cmocka_unit_test(a_ticket_is_its_own_cluster_s_and_as_it_was_made),
        cmocka_unit_test(a_withdrawn_offer_is_gone),
        cmocka_unit_test(a_ticket_expires),
        cmocka_unit_test(a_pull_ends_when_its_offer_is_withdrawn),
        cmocka_unit_test(a_pull_ends_when_its_offer_expires),
        cmocka_unit_test(a_pull_ends_when_the_giver_s_node_closes),
        cmocka_unit_test(a_pull_ends_when_the_giver_s_pool_is_destroyed),
        cmocka_unit_test(a_pull_can_be_cancelled),
        cmocka_unit_test(a_pull_runs_out_of_time),
        cmocka_unit_test(a_pull_ends_with_its_node),
        cmocka_unit_test(a_pull_ends_with_its_pool),
        cmocka_unit_test(a_pull_that_failed_can_be_tried_again),
        cmocka_unit_test(an_operation_that_is_closed_takes_its_table_with_it),
        cmocka_unit_test(both_sides_end_in_queues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
