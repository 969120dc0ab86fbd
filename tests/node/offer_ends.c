/* SPDX-License-Identifier: Apache-2.0 */
/* How offers and pulls end: well, at the giver's word or the puller's, and with tickets that are good for nothing. */
#include "node/handover.h"

enum { tokens = given_tokens, tag = given_tag };

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
    for (uint64_t i = 0; i + strlen(at.text) <= g.t.size; ++i)
        assert_true(memcmp(&g.t.bytes[i], at.text, strlen(at.text)) != 0);
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
    pkv_op *op =
        begin_pull_of(n.puller, to, &t, 1, NULL, how == runs_out_of_time ? one_second / 4 : 20ull * one_second);
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
