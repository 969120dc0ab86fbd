/* SPDX-License-Identifier: Apache-2.0 */
/* Images in memory of the node that has them: read where they lie, as long as they are leased, and copied where that is asked
 * for or cannot be. */
#include "node/nodes.h"
#include "prefetch/session.h"

#include <sys/wait.h>

enum { blocks = 12, tokens = blocks * tiered_page_tokens, tag = 21 };

typedef struct {
    pkv_tier *tier;
    pkv_node *server, *reader;
    pkv_pool *pool; /* over the reader's tier */
} pair;

/* A sequence in a host tier, served with the options given, and a pool that reads it from another node. */
static bool open_pair(pair *p, pkv_node_options options) {
    memset(p, 0, sizeof *p);
    p->tier = host_tier(200);
    p->server = open_server_with(options, p->tier);
    if (p->server == NULL) {
        assert_ok(pkv_tier_close(p->tier));
        return false;
    }
    pkv_pool *writer = pool_on(64, p->tier, PKV_TIER_WRITE_BACK);
    compute(writer, 1, tokens, tag);
    push_down(writer);
    end_pool(writer);
    options = node_options();
    p->reader = open_node(&options);
    assert_ok(pkv_node_connect(p->reader, address_of(p->server).text, 5ull * one_second));
    p->pool = pool_on_node(64, p->reader);
    return true;
}

static void close_pair(pair *p) {
    end_pool(p->pool);
    assert_ok(pkv_node_close(p->reader));
    assert_ok(pkv_node_close(p->server));
    assert_int_equal(tier_stats(p->tier).usage.pinned_images, 0);
    assert_ok(pkv_tier_close(p->tier));
}

static pkv_table *matched(pair *p) {
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(p->pool, 1, tokens, &match);
    assert_int_equal(match.tokens, tokens);
    return table;
}

static void restore_all(pkv_table *table) {
    uint64_t restored = 0;
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, &restored));
    assert_int_equal(restored, blocks);
    check_rows(table, 0, tokens, tag);
}

static void images_in_memory_are_read_where_they_lie(void **state) {
    (void)state;
    pair p;
    if (!open_pair(&p, node_options())) skip();
    pkv_table *table = matched(&p);
    restore_all(table);
    assert_int_equal(node_stats(p.server).fetches_served, 0);
    assert_int_equal(node_stats(p.reader).reads, blocks);
    assert_int_equal(node_stats(p.reader).bytes_read, blocks * image_bytes);
    end_table(table);
    soon(node_stats(p.server).leases == 0); /* what is not needed any more is given back, without being asked for */
    close_pair(&p);
}

static void images_are_copied_if_that_is_asked_for(void **state) {
    (void)state;
    pair p;
    pkv_node_options options = node_options();
    options.flags = PKV_NODE_COPY;
    if (!open_pair(&p, options)) skip();
    pkv_table *table = matched(&p);
    restore_all(table);
    assert_int_equal(node_stats(p.server).fetches_served, blocks);
    assert_int_equal(node_stats(p.server).bytes_served, blocks * image_bytes);
    end_table(table);
    close_pair(&p);
}

/* Without a lease nobody keeps an image where it lay: it is asked for anew. */
static void after_the_lease_images_are_asked_for_anew(void **state) {
    (void)state;
    pair p;
    pkv_node_options options = node_options();
    options.lease_ns = one_second / 5;
    if (!open_pair(&p, options)) skip();
    pkv_table *table = matched(&p);
    soon(node_stats(p.server).expired_leases >= blocks);
    restore_all(table);
    assert_int_equal(node_stats(p.server).fetches_served, blocks);
    end_table(table);
    close_pair(&p);
}

/* Blocks that are read in every step, for longer than the first lease: it is taken again before it ends. */
static void leases_of_images_that_are_read_are_renewed(void **state) {
    (void)state;
    pair p;
    pkv_node_options options = node_options();
    options.lease_ns = one_second;
    if (!open_pair(&p, options)) skip();
    pkv_pool *writer = pool_on(64, p.tier, PKV_TIER_WRITE_BACK); /* rows as the session's helpers know them */
    pkv_token sequence[tokens];
    count_up(sequence, tokens, 7000);
    const pkv_prompt prompt = prompt_of(sequence, tokens);
    pkv_table *table = admit(writer, &prompt, NULL);
    put_and_commit(writer, table, tokens, tag);
    end_table(table);
    push_down(writer);
    end_pool(writer);
    table = admit_again(p.pool, 7000, tokens, NULL);
    uint64_t staging[1] = {3}; /* pages: too few to keep what was read */
    pkv_prefetch_options how = PKV_PREFETCH_OPTIONS_INIT;
    how.staging_pages = staging;
    pkv_prefetch *session = open_session(p.pool, &how);
    const uint32_t tags[1] = {tag};
    const uint64_t asked = node_stats(p.server).lookups_served;
    soon((check_step(session, 2, 1, &table, tags), node_stats(p.server).lookups_served >= asked + blocks));
    check_step(session, 2, 1, &table, tags);
    assert_ok(pkv_prefetch_close(session, NULL));
    end_table(table);
    close_pair(&p);
}

/* Cleared while it is leased: right bytes, or none. */
static void images_that_are_cleared_while_they_are_leased_are_right_or_lost(void **state) {
    (void)state;
    pair p;
    if (!open_pair(&p, node_options())) skip();
    pkv_table *table = matched(&p);
    pkv_pool *writer = pool_on(64, p.tier, PKV_TIER_WRITE_BACK);
    assert_ok(pkv_pool_clear_all(writer, NULL));
    compute(writer, 5000, tokens, tag + 1); /* lies where the others lay */
    push_down(writer);
    end_pool(writer);
    const pkv_status status = pkv_table_restore(table, 0, UINT64_MAX, 5ull * one_second, NULL);
    assert_true(status == PKV_OK || status == PKV_ERR_LOST);
    const uint64_t valid = info_of(table).valid;
    assert_ok(pkv_table_truncate(table, valid, NULL));
    check_rows(table, 0, valid, tag);
    end_table(table);
    close_pair(&p);
}

/* The other side has gone and come again: where things lay before means nothing any more. */
static void places_end_with_their_connection(void **state) {
    (void)state;
    pair p;
    if (!open_pair(&p, node_options())) skip();
    const address at = address_of(p.server);
    pkv_table *table = matched(&p);
    assert_ok(pkv_node_close(p.server));
    soon(node_stats(p.reader).connected_peers == 0);
    pkv_node_options options = node_options();
    options.listen = at.text;
    options.tiers = &p.tier;
    options.num_tiers = 1;
    p.server = open_node(&options);
    soon(node_stats(p.reader).connected_peers == 1);
    restore_all(table);
    assert_int_equal(node_stats(p.server).fetches_served, blocks);
    end_table(table);
    close_pair(&p);
}

/* Field case N16: a process that forked after it had opened a node hung in the child, or was damaged. */
static void case_N16_the_child_of_a_fork_has_no_node_and_the_parent_is_unharmed(void **state) {
    (void)state;
    pair p;
    if (!open_pair(&p, node_options())) skip();
    pkv_table *table = matched(&p);
    const pid_t child = fork();
    if (child == 0) {
        pkv_node_stats stats = PKV_NODE_STATS_INIT;
        pkv_tier *tier = NULL;
        char text[280];
        uint64_t size = 0;
        int wrong = pkv_node_get_stats(p.reader, &stats) != PKV_ERR_FORKED;
        wrong |= pkv_node_tier(p.reader, &tier) != PKV_ERR_FORKED;
        wrong |= pkv_node_address(p.server, text, sizeof text, &size) != PKV_ERR_FORKED;
        wrong |= pkv_node_connect(p.reader, "127.0.0.1:1", 0) != PKV_ERR_FORKED;
        wrong |= pkv_node_close(p.reader) != PKV_ERR_FORKED;
        wrong |= pkv_node_close(p.server) != PKV_ERR_FORKED;
        _exit(wrong);
    }
    int status = 0;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    restore_all(table);
    end_table(table);
    close_pair(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_in_memory_are_read_where_they_lie),
        cmocka_unit_test(images_are_copied_if_that_is_asked_for),
        cmocka_unit_test(after_the_lease_images_are_asked_for_anew),
        cmocka_unit_test(leases_of_images_that_are_read_are_renewed),
        cmocka_unit_test(images_that_are_cleared_while_they_are_leased_are_right_or_lost),
        cmocka_unit_test(places_end_with_their_connection),
        cmocka_unit_test(case_N16_the_child_of_a_fork_has_no_node_and_the_parent_is_unharmed),
    };
    return run_with_providers(tests, sizeof tests / sizeof *tests);
}
