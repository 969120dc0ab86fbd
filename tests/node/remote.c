/* SPDX-License-Identifier: Apache-2.0 */
/* Images of one node, matched and read by another: both in this process, over loopback. */
#include "node/nodes.h"

enum { blocks = 12, tokens = blocks * tiered_page_tokens, tag = 9 };

/* A sequence computed in a pool over the host tier, and thrown out of the pool. */
typedef struct {
    pkv_tier *tier;
    pkv_pool *pool;
    pkv_node *server, *reader;
} pair;

static bool open_pair(pair *p) {
    memset(p, 0, sizeof *p);
    p->tier = host_tier(200);
    p->server = open_server(p->tier);
    if (p->server == NULL) {
        assert_ok(pkv_tier_close(p->tier));
        return false;
    }
    p->pool = pool_on(64, p->tier, PKV_TIER_WRITE_BACK);
    compute(p->pool, 1, tokens, tag);
    push_down(p->pool);
    const pkv_node_options options = node_options();
    p->reader = open_node(&options);
    assert_ok(pkv_node_connect(p->reader, address_of(p->server).text, 5ull * one_second));
    return true;
}

static void close_pair(pair *p) {
    assert_ok(pkv_node_close(p->reader));
    assert_ok(pkv_node_close(p->server));
    end_pool(p->pool);
    assert_int_equal(tier_stats(p->tier).usage.pinned_images, 0);
    assert_ok(pkv_tier_close(p->tier));
}

static void blocks_of_another_node_are_matched_and_read(void **state) {
    (void)state;
    pair p;
    if (!open_pair(&p)) skip();
    pkv_pool *pool = pool_on_node(64, p.reader);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, tokens, &match);
    assert_int_equal(match.tokens, tokens);
    assert_int_equal(match.tier_tokens[0], tokens);
    assert_true(node_stats(p.server).leases > 0);
    uint64_t restored = 0;
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, &restored));
    assert_int_equal(restored, blocks);
    check_rows(table, 0, tokens, tag);
    end_table(table);
    const pkv_node_stats stats = node_stats(p.reader);
    assert_int_equal(stats.reads, blocks);
    assert_int_equal(stats.bytes_read, blocks * image_bytes);
    assert_int_equal(stats.failed_reads, 0);
    soon(node_stats(p.server).leases == 0);
    end_pool(pool);
    close_pair(&p);
}

/* The images are in the slower tier only; a second reader takes them from the faster one. */
static void images_that_are_read_are_promoted(void **state) {
    (void)state;
    pkv_tier *fast = host_tier(200), *slow = host_tier(200), *tiers[] = {fast, slow};
    for (int promote = 0; promote < 2; ++promote) {
        pkv_node_options options = node_options();
        options.listen = "127.0.0.1:0";
        options.tiers = tiers;
        options.num_tiers = 2;
        options.flags = promote ? PKV_NODE_PROMOTE : PKV_NODE_COPY;
        pkv_node *server = open_node(&options);
        if (server == NULL) skip();
        pkv_pool *writer = pool_on(64, slow, PKV_TIER_WRITE_BACK);
        compute(writer, 1, tokens, tag);
        push_down(writer);
        end_pool(writer);
        for (int reader = 0; reader < 2; ++reader) {
            const uint64_t before = tier_stats(slow).bytes_loaded;
            options = node_options();
            pkv_node *node = open_node(&options);
            assert_ok(pkv_node_connect(node, address_of(server).text, 5ull * one_second));
            pkv_pool *pool = pool_on_node(64, node);
            pkv_table *table = admit_again(pool, 1, tokens, NULL);
            assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
            check_rows(table, 0, tokens, tag);
            end_table(table);
            if (promote) soon(node_stats(server).promoted == blocks);
            soon(node_stats(server).leases == 0);
            assert_int_equal(tier_stats(fast).usage.images, promote ? blocks : 0);
            assert_int_equal(tier_stats(slow).bytes_loaded - before, promote && reader == 1 ? 0 : blocks * image_bytes);
            end_pool(pool);
            assert_ok(pkv_node_close(node));
        }
        assert_ok(pkv_node_close(server));
    }
    assert_ok(pkv_tier_close(slow));
    assert_ok(pkv_tier_close(fast));
}

static void what_nobody_has_is_a_miss(void **state) {
    (void)state;
    pair p;
    if (!open_pair(&p)) skip();
    pkv_pool *pool = pool_on_node(64, p.reader);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 5000, tokens, &match);
    assert_int_equal(match.tokens, 0);
    end_table(table);
    end_pool(pool);
    close_pair(&p);
}

static void a_node_without_peers_finds_nothing(void **state) {
    (void)state;
    const pkv_node_options options = node_options();
    pkv_node *node = open_node(&options);
    if (node == NULL) skip();
    pkv_pool *pool = pool_on_node(64, node);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, tokens, &match);
    assert_int_equal(match.tokens, 0);
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_node_close(node));
}

static void another_cluster_key_is_refused(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(10);
    pkv_node *server = open_server(tier);
    if (server == NULL) skip();
    static const unsigned char other[PKV_CLUSTER_KEY_BYTES] = "another one";
    pkv_node_options options = node_options();
    options.cluster_key.data = other;
    pkv_node *reader = open_node(&options);
    assert_status(pkv_node_connect(reader, address_of(server).text, 5ull * one_second), PKV_ERR_MISMATCH);
    uint64_t count = 1;
    assert_ok(pkv_node_peers(reader, NULL, 0, &count));
    assert_int_equal(count, 0);
    soon(node_stats(server).refused == 1);
    assert_int_equal(node_stats(server).accepted, 0);
    assert_ok(pkv_node_close(reader));
    assert_ok(pkv_node_close(server));
    assert_ok(pkv_tier_close(tier));
}

static void another_model_is_refused_with_both_sides_named(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(10);
    pkv_node *server = open_server(tier);
    if (server == NULL) skip();
    pkv_node_options options = node_options();
    options.identity.data = "other";
    options.identity.size = 5;
    pkv_node *reader = open_node(&options);
    assert_status(pkv_node_connect(reader, address_of(server).text, 5ull * one_second), PKV_ERR_MISMATCH);
    assert_message("another model");
    assert_ok(pkv_node_close(reader));
    assert_ok(pkv_node_close(server));
    assert_ok(pkv_tier_close(tier));
}

static void another_geometry_is_refused(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(10), *none = host_tier(10);
    pkv_pool *here = pool_on(8, tier, PKV_TIER_WRITE_BACK);
    pkv_group_options group = small_group(8);
    group.num_layers = 3;
    pkv_tier_attachment at = attachment(none, PKV_TIER_WRITE_BACK);
    pkv_pool_options pool_options = PKV_POOL_OPTIONS_INIT;
    pool_options.page_tokens = tiered_page_tokens;
    pool_options.num_groups = 1;
    pool_options.groups = &group;
    pool_options.tiers = &at;
    pool_options.num_tiers = 1;
    pkv_pool *there = NULL;
    assert_ok(pkv_pool_create(&pool_options, &there));
    pkv_node_options options = node_options();
    options.pools = &here;
    options.num_pools = 1;
    pkv_node *server = open_server_with(options, tier);
    if (server != NULL) {
        options.pools = &there;
        pkv_node *reader = open_node(&options);
        assert_status(pkv_node_connect(reader, address_of(server).text, 5ull * one_second), PKV_ERR_MISMATCH);
        assert_message("geometry");
        assert_ok(pkv_node_close(reader));
        options.pools = &here;
        reader = open_node(&options);
        assert_ok(pkv_node_connect(reader, address_of(server).text, 5ull * one_second));
        assert_ok(pkv_node_close(reader));
        assert_ok(pkv_node_close(server));
    }
    end_pool(here);
    end_pool(there);
    assert_ok(pkv_tier_close(tier));
    assert_ok(pkv_tier_close(none));
    if (server == NULL) skip();
}

static void a_server_that_closes_in_mid_use_costs_hits_only(void **state) {
    (void)state;
    pair p;
    if (!open_pair(&p)) skip();
    pkv_pool *pool = pool_on_node(64, p.reader);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, tokens, &match);
    assert_int_equal(match.tokens, tokens);
    assert_ok(pkv_node_close(p.server));
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, 5ull * one_second, NULL), PKV_ERR_LOST);
    assert_int_equal(info_of(table).valid, 0);
    end_table(table);
    pkv_node_peer peer = PKV_NODE_PEER_INIT;
    uint64_t count = 0;
    assert_ok(pkv_node_peers(p.reader, &peer, 1, &count));
    assert_int_equal(count, 1);
    assert_int_equal(peer.connected, 0);
    end_pool(pool);
    assert_ok(pkv_node_close(p.reader));
    end_pool(p.pool);
    assert_int_equal(tier_stats(p.tier).usage.pinned_images, 0);
    assert_ok(pkv_tier_close(p.tier));
}

static void the_tier_outlives_its_node_and_finds_nothing(void **state) {
    (void)state;
    pair p;
    if (!open_pair(&p)) skip();
    pkv_pool *pool = pool_on_node(64, p.reader);
    assert_ok(pkv_node_close(p.reader));
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, tokens, &match);
    assert_int_equal(match.tokens, 0);
    end_table(table);
    end_pool(pool);
    const pkv_node_options options = node_options();
    p.reader = open_node(&options);
    close_pair(&p);
}

static void clearing_a_pool_leaves_what_other_nodes_have(void **state) {
    (void)state;
    pair p;
    if (!open_pair(&p)) skip();
    pkv_pool *pool = pool_on_node(64, p.reader);
    assert_ok(pkv_pool_clear(pool, NULL, NULL));
    assert_ok(pkv_pool_clear_all(pool, NULL));
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, tokens, &match);
    assert_int_equal(match.tokens, tokens);
    end_table(table);
    assert_ok(pkv_pool_clear_all(p.pool, NULL)); /* there, it ends for all */
    table = admit_again(pool, 1, tokens, &match);
    assert_int_equal(match.tokens, 0);
    end_table(table);
    end_pool(pool);
    close_pair(&p);
}

static void options_are_checked(void **state) {
    (void)state;
    pkv_node *node = NULL;
    pkv_node_options options = node_options();
    options.cluster_key.size = 31;
    assert_status(pkv_node_open(&options, &node), PKV_ERR_INVALID);
    options = node_options();
    options.listen = "nowhere";
    assert_status(pkv_node_open(&options, &node), PKV_ERR_INVALID);
    options = node_options();
    options.num_tiers = PKV_MAX_TIERS + 1;
    assert_status(pkv_node_open(&options, &node), PKV_ERR_LIMIT);
    assert_status(pkv_node_open(NULL, &node), PKV_ERR_INVALID);
    options = node_options();
    assert_status(pkv_node_open(&options, NULL), PKV_ERR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_another_node_are_matched_and_read),
        cmocka_unit_test(images_that_are_read_are_promoted),
        cmocka_unit_test(what_nobody_has_is_a_miss),
        cmocka_unit_test(a_node_without_peers_finds_nothing),
        cmocka_unit_test(another_cluster_key_is_refused),
        cmocka_unit_test(another_model_is_refused_with_both_sides_named),
        cmocka_unit_test(another_geometry_is_refused),
        cmocka_unit_test(a_server_that_closes_in_mid_use_costs_hits_only),
        cmocka_unit_test(the_tier_outlives_its_node_and_finds_nothing),
        cmocka_unit_test(clearing_a_pool_leaves_what_other_nodes_have),
        cmocka_unit_test(options_are_checked),
    };
    return run_with_providers(tests, sizeof tests / sizeof *tests);
}
