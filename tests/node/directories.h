/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of directories share: a redis-server, a node that it is told of, and a node that finds that one. */
#ifndef PKV_TESTS_DIRECTORIES_H
#define PKV_TESTS_DIRECTORIES_H

#include "node/nodes.h"
#include "node/redis.h"

#include <time.h>

enum { blocks = 12, tokens = blocks * tiered_page_tokens, tag = 9 };

/* A server of the directory, a node that serves a host tier with a sequence in it, and a node that knows of nobody. */
typedef struct {
    redis r;
    char url[200];
    pkv_tier *tier;
    pkv_pool *pool;
    pkv_node *server, *reader;
} setup;

static inline pkv_node_options directory_options(const setup *s) {
    pkv_node_options options = node_options();
    options.directory = s->url;
    options.heartbeat_ns = one_second / 5;
    return options;
}

static inline void name_url(setup *s) { (void)snprintf(s->url, sizeof s->url, "redis://127.0.0.1:%u", s->r.port); }

static inline uint64_t images_of(pkv_tier *tier) { return tier_stats(tier).usage.images; }

/* The directory has an entry for each image of the tier. */
static inline void wait_told(const setup *s) {
    soon(redis_names(&s->r, "pkv:k:*", NULL, 0) == (int)images_of(s->tier));
    soon(redis_names(&s->r, "pkv:n:*", NULL, 0) == 1);
}

static inline bool begin_with(setup *s, pkv_node_options *options) {
    s->tier = host_tier(200);
    s->server = open_server_with(*options, s->tier);
    if (s->server == NULL) {
        assert_ok(pkv_tier_close(s->tier));
        redis_end(&s->r);
        return false;
    }
    s->pool = pool_on(64, s->tier, PKV_TIER_WRITE_BACK);
    compute(s->pool, 1, tokens, tag);
    push_down(s->pool);
    assert_int_equal(images_of(s->tier), blocks);
    return true;
}

static inline bool begin(setup *s) {
    memset(s, 0, sizeof *s);
    if (!redis_start(&s->r)) return false;
    name_url(s);
    pkv_node_options options = directory_options(s);
    if (!begin_with(s, &options)) return false;
    wait_told(s);
    s->reader = open_node(&options);
    soon(node_stats(s->reader).directory_endpoints_up == 1);
    return true;
}

static inline void end(setup *s) {
    if (s->reader != NULL) assert_ok(pkv_node_close(s->reader));
    if (s->server != NULL) assert_ok(pkv_node_close(s->server));
    end_pool(s->pool);
    assert_int_equal(tier_stats(s->tier).usage.pinned_images, 0);
    assert_ok(pkv_tier_close(s->tier));
    redis_end(&s->r);
}

/* Tokens that a fresh pool over a node's tier matches; those that match are read, and have to be right. */
static inline uint64_t found_by(pkv_node *reader, pkv_token first, uint64_t num_tokens, uint32_t row_tag) {
    pkv_pool *pool = pool_on_node(64, reader);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, first, num_tokens, &match);
    if (match.tokens != 0) {
        assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
        check_rows(table, 0, match.tokens, row_tag);
    }
    end_table(table);
    end_pool(pool);
    return match.tokens;
}
static inline uint64_t found(pkv_node *reader) { return found_by(reader, 1, tokens, tag); }

static inline uint64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * one_second + (uint64_t)at.tv_nsec;
}

/* As found(), within a time that is far above what it takes, and far below for ever. */
static inline uint64_t found_soon(pkv_node *reader) {
    const uint64_t start = now_ns();
    const uint64_t count = found(reader);
    assert_true(now_ns() - start < 8ull * one_second);
    return count;
}

static inline pkv_node *fresh_reader(const setup *s) {
    const pkv_node_options options = directory_options(s);
    return open_node(&options);
}

/* One that does not forget within the test whom it could not connect to. */
static inline pkv_node *patient_reader(const setup *s) {
    pkv_node_options options = directory_options(s);
    options.heartbeat_ns = 60ull * one_second;
    pkv_node *reader = open_node(&options);
    soon(node_stats(reader).directory_endpoints_up == 1);
    return reader;
}

#endif
