/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of nodes share: a node that serves a host tier, and one that reads from it, on loopback. */
#ifndef PKV_TESTS_NODES_H
#define PKV_TESTS_NODES_H

#include "tier/tiered.h"

#include <pagedkv/node.h>
#include <unistd.h>

/* Waits for what happens on another thread; fails after 20 seconds. */
#define soon(condition)                                                                                                \
    do {                                                                                                               \
        for (int waited_ = 0; !(condition); ++waited_) {                                                               \
            if (waited_ == 120000) fail_msg("never came true: %s", #condition);                                        \
            usleep(1000);                                                                                              \
        }                                                                                                              \
    } while (0)

static const unsigned char test_cluster_key[PKV_CLUSTER_KEY_BYTES] = "only for tests: nobody's secret";

/* The provider of libfabric that the tests run with at present. */
static const char *test_provider = "tcp";

static inline pkv_node_options node_options(void) {
    pkv_node_options options = PKV_NODE_OPTIONS_INIT;
    options.cluster_key.data = test_cluster_key;
    options.cluster_key.size = sizeof test_cluster_key;
    options.provider = test_provider;
    options.timeout_ns = 2ull * one_second;
    return options;
}

/* NULL: there is no plug-in, and the test is to be skipped. */
static inline pkv_node *open_node(const pkv_node_options *options) {
    pkv_node *node = NULL;
    const pkv_status status = pkv_node_open(options, &node);
    if (status == PKV_ERR_UNSUPPORTED) {
        char why[512];
        pkv_last_error(why, sizeof why);
        print_message("no nodes here: %s\n", why);
        return NULL;
    }
    assert_ok(status);
    return node;
}

static inline pkv_node *open_server_with(pkv_node_options options, pkv_tier *tier) {
    options.listen = "127.0.0.1:0";
    options.tiers = &tier;
    options.num_tiers = 1;
    return open_node(&options);
}
static inline pkv_node *open_server(pkv_tier *tier) { return open_server_with(node_options(), tier); }

typedef struct {
    char text[280];
} address;

static inline address address_of(pkv_node *node) {
    address at;
    uint64_t size = 0;
    assert_ok(pkv_node_address(node, at.text, sizeof at.text, &size));
    assert_int_equal(size, strlen(at.text) + 1);
    return at;
}

static inline pkv_node_stats node_stats(pkv_node *node) {
    pkv_node_stats stats = PKV_NODE_STATS_INIT;
    assert_ok(pkv_node_get_stats(node, &stats));
    return stats;
}

static inline pkv_tier *tier_of_node(pkv_node *node) {
    pkv_tier *tier = NULL;
    assert_ok(pkv_node_tier(node, &tier));
    return tier;
}

/* A pool of `num_pages` whose only tier is what other nodes have. */
static inline pkv_pool *pool_on_node(uint64_t num_pages, pkv_node *node) {
    pkv_tier *tier = tier_of_node(node);
    pkv_pool *pool = pool_on(num_pages, tier, PKV_TIER_READ_ONLY);
    assert_ok(pkv_tier_close(tier));
    return pool;
}

/* For a main: runs the tests with each provider that is to be had here. */
static inline int run_with_providers(const struct CMUnitTest *tests, size_t num_tests) {
    static const char *const providers[] = {"tcp", "tcp;ofi_rxm", "net", "shm"};
    char names[sizeof providers / sizeof *providers][64] = {""};
    int failed = 0;
    for (size_t i = 0; i < sizeof providers / sizeof *providers; ++i) {
        test_provider = providers[i];
        const pkv_node_options options = node_options();
        pkv_node *node = NULL;
        if (i != 0 && pkv_node_open(&options, &node) != PKV_OK) {
            print_message("not here: %s\n", test_provider);
            continue;
        }
        bool again = false; /* the same under another name: "tcp" was "tcp;ofi_rxm" once */
        if (node != NULL || pkv_node_open(&options, &node) == PKV_OK) {
            memcpy(names[i], node_stats(node).provider, sizeof names[i]);
            assert_ok(pkv_node_close(node));
            for (size_t j = 0; j < i; ++j) again = again || strcmp(names[i], names[j]) == 0;
        }
        if (again) continue;
        print_message("provider %s\n", test_provider);
        failed += _cmocka_run_group_tests("tests", tests, num_tests, NULL, NULL);
    }
    return failed;
}

#endif
