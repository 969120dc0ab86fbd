/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences handed over at random: shards, page sizes, chunks, several pulls at a time, and givers and pullers that
 * change their minds at any moment. What arrives is right in every byte; what does not arrive leaves nothing behind. */
#include "node/handover.h"

enum { most_tokens = 120, most_pulls = 4, pages = 200 };

static shard random_shard(test_random *random, shard of) {
    shard s = of;
    const uint32_t heads = 1 + (uint32_t)random_below(random, of.heads),
                   layers = 1 + (uint32_t)random_below(random, of.layers);
    s = with_heads(s, of.first_head + (uint32_t)random_below(random, of.heads - heads + 1), heads);
    s = with_layers(s, of.first_layer + (uint32_t)random_below(random, of.layers - layers + 1), layers);
    s.page_tokens = 1 + (uint32_t)random_below(random, 9);
    s.layout = random_below(random, 2) == 0 ? PKV_LAYOUT_NHD : PKV_LAYOUT_HND;
    s.arrangement = random_below(random, 2) == 0 ? PKV_PAGE_MAJOR : PKV_LAYER_MAJOR;
    return s;
}

typedef struct {
    shard s;
    pkv_pool *pool;
    pkv_op *op;
    bool cancelled;
} puller;

static void begin_one(puller *p, test_random *random, const shard *of, pkv_node *node, const ticket *t, pkv_token first,
                      uint32_t tag) {
    p->s = random_shard(random, *of);
    p->pool = shard_pool(&p->s);
    p->cancelled = false;
    const uint64_t there = random_below(random, 40); /* some of it may be there already */
    if (there >= 20) end_table(computed(p->pool, &p->s, first, there, tag));
    p->op = begin_pull(node, p->pool, t);
}

/* Every pull ends once: with the sequence, or with what kept it from coming. */
static bool end_one(puller *p, uint64_t num_tokens, uint32_t tag, bool offer_went) {
    const pkv_status status = pkv_op_wait(p->op, 40ull * one_second);
    if (status == PKV_OK) {
        pkv_table *table = NULL;
        assert_ok(pkv_pull_table(p->op, &table));
        assert_int_equal(info_of(table).committed, num_tokens);
        same_tokens(table, &p->s, 0, num_tokens, tag);
        end_table(table);
    } else if (p->cancelled) {
        assert_int_equal(status, PKV_ERR_CANCELLED);
    } else {
        if (!offer_went) assert_status(status, PKV_OK); /* says why */
        assert_int_equal(status, PKV_ERR_NOT_FOUND);
    }
    assert_ok(pkv_op_close(p->op));
    all_released(p->pool);
    end_pool(p->pool);
    return status == PKV_OK;
}

static void one_round(nodes *n, test_random *random, uint32_t tag, uint64_t *asked, uint64_t *arrived) {
    const uint64_t num_tokens = 1 + random_below(random, most_tokens);
    const pkv_token first = (pkv_token)(tag * 1000);
    shard model = random_shard(random, whole_model(pages));
    pkv_pool *pool = shard_pool(&model);
    pkv_table *table = admit_counted(pool, first, num_tokens, 1 + random_below(random, num_tokens));
    const uint64_t before = random_below(random, num_tokens + 1);
    if (before != 0) put_tokens(table, &model, before, tag);
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.num_tokens = num_tokens;
    options.max_pulls = PKV_PULLS_UNLIMITED;
    pkv_offer *offer = offer_of(n->giver, table, &options);
    const ticket t = ticket_of(offer);

    puller pulls[most_pulls];
    uint32_t begun = 0, wanted = 1 + (uint32_t)random_below(random, most_pulls);
    pkv_table *fork = NULL;
    bool went = false;
    for (uint64_t done = before; done < num_tokens && !went;) {
        if (begun < wanted && random_below(random, 2) == 0)
            begin_one(&pulls[begun++], random, &model, n->puller, &t, first, tag);
        if (random_below(random, 4) == 0) {
            if (fork != NULL) end_table(fork);
            fork = fork_of(table); /* the last block is shared: it is copied when it is written */
        }
        const uint64_t chunk = 1 + random_below(random, 20),
                       chunk_end = done + chunk < num_tokens ? done + chunk : num_tokens;
        assert_ok(pkv_table_reserve(table, chunk_end));
        for (uint32_t layer = 0; layer < model.layers; ++layer) {
            put_layer(table, &model, layer, done, chunk_end - done, tag);
            if (random_below(random, 2) == 0) assert_ok(pkv_offer_ready(offer, 0, layer, chunk_end, NULL));
        }
        assert_ok(pkv_table_commit(table, chunk_end, NULL));
        assert_ok(pkv_offer_ready(offer, PKV_ALL_GROUPS, PKV_ALL_LAYERS, chunk_end, NULL));
        done = chunk_end;
        if (begun != 0 && random_below(random, 12) == 0) {
            puller *p = &pulls[random_below(random, begun)];
            assert_ok(pkv_op_cancel(p->op));
            p->cancelled = true;
        }
        went = random_below(random, 25) == 0; /* the giver gives up */
    }
    if (fork != NULL) end_table(fork);
    while (!went && begun < wanted) begin_one(&pulls[begun++], random, &model, n->puller, &t, first, tag);
    if (!went && random_below(random, 3) == 0) { /* the table goes on as another sequence */
        const uint64_t cut = random_below(random, num_tokens);
        assert_ok(pkv_table_truncate(table, cut, NULL));
        pkv_token others[30];
        count_up(others, 30, 900000);
        assert_ok(pkv_table_set_tokens(table, cut, 30, others));
        put_tokens(table, &model, cut + 30, tag + 500000);
    }
    if (went) assert_ok(pkv_offer_close(offer));
    if (random_below(random, 2) == 0) {
        end_table(table);
        table = NULL;
    }
    *asked += begun;
    for (uint32_t i = 0; i < begun; ++i) *arrived += end_one(&pulls[i], num_tokens, tag, went);
    if (!went) assert_ok(pkv_offer_close(offer));
    if (table != NULL) end_table(table);
    all_released(pool);
    end_pool(pool);
}

static void what_arrives_is_right_and_what_does_not_leaves_nothing(void **state) {
    (void)state;
    const uint64_t seed = long_tests() ? (uint64_t)getpid() : 20;
    const uint32_t rounds = long_tests() ? 2000 : 60;
    nodes n;
    pkv_node_options options = node_options();
    options.export_bytes = 256 << 10;
    if (!open_nodes_with(&n, options)) skip();
    print_message("seed %llu\n", (unsigned long long)seed);
    test_random random = {seed};
    uint64_t asked = 0, arrived = 0;
    for (uint32_t round = 1; round <= rounds; ++round) one_round(&n, &random, round, &asked, &arrived);
    assert_true(arrived >= rounds / 2); /* most of them: something was tested */
    const pkv_node_stats giver = node_stats(n.giver), taker = node_stats(n.puller);
    assert_true(taker.pulls >= arrived); /* a cancel may come when all is there */
    assert_int_equal(taker.pulls + taker.failed_pulls, asked);
    assert_int_equal(giver.open_offers, 0);
    assert_int_equal(giver.offers, rounds);
    assert_int_equal(giver.bad_messages, 0);
    assert_int_equal(taker.failed_reads, 0);
    close_nodes(&n);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_arrives_is_right_and_what_does_not_leaves_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
