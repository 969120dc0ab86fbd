/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of nodes as text for Prometheus: every number, with the value that pkv_node_get_stats gives. */
#include "node/nodes.h"
#include "telemetry/exposition.h"

enum { blocks = 6, tokens = blocks * tiered_page_tokens, tag = 4 };

#define NODE(name, field)                                                                                              \
    { "pagedkv_node_" name, NULL, offsetof(pkv_node_stats, field), field_number }

static const field node_fields[] = {
    NODE("guests", guests),
    NODE("accepted_connections_total", accepted),
    NODE("refused_connections_total", refused),
    NODE("served_lookups_total", lookups_served),
    NODE("served_fetches_total", fetches_served),
    NODE("served_bytes_total", bytes_served),
    NODE("leases", leases),
    NODE("expired_leases_total", expired_leases),
    NODE("bad_messages_total", bad_messages),
    NODE("promoted_images_total", promoted),
    NODE("peers", peers),
    NODE("connected_peers", connected_peers),
    NODE("reads_total", reads),
    NODE("failed_reads_total", failed_reads),
    NODE("read_bytes_total", bytes_read),
    NODE("late_answers_total", late_answers),
    NODE("ended_connections_total", reconnects),
    NODE("open_offers", open_offers),
    NODE("offers_total", offers),
    NODE("expired_offers_total", expired_offers),
    NODE("served_pulls_total", pulls_served),
    NODE("failed_served_pulls_total", failed_pulls_served),
    NODE("handed_bytes_total", handed_bytes),
    NODE("pulls_total", pulls),
    NODE("failed_pulls_total", failed_pulls),
    NODE("pulled_bytes_total", pulled_bytes),
    NODE("directory_endpoints", directory_endpoints),
    NODE("directory_endpoints_up", directory_endpoints_up),
    NODE("directory_peers", directory_peers),
    NODE("directory_lookups_total", directory_lookups),
    NODE("directory_hits_total", directory_hits),
    NODE("directory_failures_total", directory_failures),
    NODE("directory_published_entries_total", directory_published),
    NODE("directory_dropped_changes_total", directory_dropped),
    NODE("directory_bad_entries_total", directory_bad_entries),
};

enum { num_fields = sizeof node_fields / sizeof *node_fields };

/* All fields are in the table, but the provider, which is a label. */
_Static_assert(sizeof(pkv_node_stats) == sizeof(size_t) + sizeof(((pkv_node_stats *)NULL)->provider) + 8 * num_fields,
               "a field of pkv_node_stats is in no table");

static void compare_node(const exposition *e, const char *name, pkv_node *node) {
    char labels[100];
    (void)snprintf(labels, sizeof labels, "node=\"%s\"", name);
    const pkv_node_stats stats = node_stats(node);
    exposition_compare(e, node_fields, num_fields, labels, &stats);
    (void)snprintf(labels, sizeof labels, "node=\"%s\",provider=\"%s\"", name, stats.provider);
    assert_string_equal(exposition_at(e, "pagedkv_node_info", labels), "1");
}

static void every_number_of_a_node_is_there(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(20);
    pkv_node_options serving = node_options();
    serving.flags = PKV_NODE_COPY; /* what is read where it lies, a server cannot count */
    pkv_node *nodes[2] = {open_server_with(serving, tier), NULL};
    if (nodes[0] == NULL) {
        assert_ok(pkv_tier_close(tier));
        skip();
    }
    pkv_node_options options = node_options();
    options.directory = "redis://127.0.0.1:1,redis://127.0.0.1:2"; /* where nobody is */
    if (pkv_node_open(&options, &nodes[1]) != PKV_OK) {
        options.directory = NULL; /* no hiredis */
        nodes[1] = open_node(&options);
    }
    assert_ok(pkv_node_connect(nodes[1], address_of(nodes[0]).text, 5ull * one_second));
    pkv_pool *pool = pool_on(16, tier, PKV_TIER_WRITE_BACK), *far = pool_on_node(16, nodes[1]);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    pkv_table *table = admit_again(far, 1, tokens, NULL);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    check_rows(table, 0, tokens, tag);
    end_table(table);
    soon(node_stats(nodes[0]).leases == 0);
    assert_true(node_stats(nodes[1]).bytes_read > 0);
    assert_true(node_stats(nodes[0]).bytes_served > 0);
    if (options.directory != NULL) {
        assert_int_equal(node_stats(nodes[1]).directory_endpoints, 2);
        assert_true(node_stats(nodes[1]).directory_failures > 0);
    }

    const char *const names[2] = {"server", "reader"};
    pkv_prometheus_sources sources = PKV_PROMETHEUS_SOURCES_INIT;
    sources.nodes = nodes;
    sources.num_nodes = 2;
    for (int named = 0; named < 2; ++named) {
        sources.node_names = named ? names : NULL;
        char *text = exposition_text(&sources);
        exposition e = exposition_parse(text);
        compare_node(&e, named ? "server" : "0", nodes[0]);
        compare_node(&e, named ? "reader" : "1", nodes[1]);
        exposition_free(&e);
        const char *copy = getenv("PKV_TEST_PROMETHEUS"); /* for promtool.sh */
        if (copy != NULL && named) {
            FILE *file = fopen(copy, "w");
            assert_non_null(file);
            assert_true(fputs(text, file) >= 0);
            assert_int_equal(fclose(file), 0);
        }
        free(text);
    }
    uint64_t size = 0;
    pkv_node *const closed = nodes[1];
    end_pool(far);
    end_pool(pool);
    assert_ok(pkv_node_close(nodes[1]));
    sources.nodes = &closed;
    sources.num_nodes = 1;
    assert_status(pkv_stats_prometheus(&sources, NULL, 0, &size), PKV_ERR_HANDLE);
    assert_ok(pkv_node_close(nodes[0]));
    assert_ok(pkv_tier_close(tier));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_number_of_a_node_is_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
