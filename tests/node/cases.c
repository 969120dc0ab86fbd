/* SPDX-License-Identifier: Apache-2.0 */
/* Field cases of what nodes say to each other: batches with gaps, more keys than a message holds, equal numbers of two peers,
 * bytes that come one at a time. */
#include "node/nodes.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>

enum { blocks = 12, tokens = blocks * tiered_page_tokens, tag = 51 };

static pkv_tier *tier_with_sequence(pkv_token first, uint32_t of_tag) {
    pkv_tier *tier = host_tier(100);
    pkv_pool *writer = pool_on(64, tier, PKV_TIER_WRITE_BACK);
    compute(writer, first, tokens, of_tag);
    push_down(writer);
    end_pool(writer);
    return tier;
}

static pkv_node *open_reader_of(const char *at) {
    const pkv_node_options options = node_options();
    pkv_node *reader = open_node(&options);
    assert_ok(pkv_node_connect(reader, at, 10ull * one_second));
    return reader;
}

static void read_sequence(pkv_pool *pool, pkv_token first, uint32_t of_tag) {
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, first, tokens, &match);
    assert_int_equal(match.tokens, tokens);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    check_rows(table, 0, tokens, of_tag);
    end_table(table);
}

/* Field case M07: one key that was missing hid the others of its batch. */
static void case_M07_what_is_missing_hides_nothing_else(void **state) {
    (void)state;
    pkv_tier *tier = tier_with_sequence(1, tag);
    pkv_node *server = open_server(tier);
    if (server == NULL) skip();
    pkv_node *reader = open_reader_of(address_of(server).text);
    pkv_pool *pool = pool_on_node(64, reader);
    pkv_token sequence[tokens];
    count_up(sequence, tokens, 1);
    const pkv_prompt prompt = prompt_of(sequence, tokens);
    pkv_tier_key keys[blocks];
    uint64_t count = 0;
    assert_ok(pkv_pool_image_keys(pool, 0, &prompt, keys, blocks, &count));
    assert_int_equal(count, blocks);
    for (int i = 1; i < blocks; i += 2) keys[i].bytes[7] ^= 0x55;
    pkv_page pages[blocks];
    assert_ok(pkv_pool_alloc(pool, 0, blocks, pages));
    pkv_op *op = NULL;
    pkv_status statuses[blocks];
    assert_ok(pkv_pool_load(pool, 0, blocks, keys, pages, NULL, NULL, &op));
    (void)pkv_op_wait(op, 10ull * one_second);
    pkv_op_info info = PKV_OP_INFO_INIT;
    (void)pkv_op_poll(op, &info, statuses, blocks);
    for (int i = 0; i < blocks; ++i) assert_int_equal(statuses[i], i % 2 == 0 ? PKV_OK : PKV_ERR_NOT_FOUND);
    assert_ok(pkv_op_close(op));
    assert_ok(pkv_pool_release(pool, 0, blocks, pages, NULL, NULL));
    end_pool(pool);
    assert_ok(pkv_node_close(reader));
    assert_ok(pkv_node_close(server));
    assert_ok(pkv_tier_close(tier));
}

/* Field case M13: requests of two peers with one number were taken for one another. Both number their places from 1. */
static void case_M13_two_peers_may_use_the_same_numbers(void **state) {
    (void)state;
    pkv_tier *tiers[2];
    pkv_node *servers[2];
    pkv_node_options options = node_options();
    options.flags = PKV_NODE_COPY;
    for (int i = 0; i < 2; ++i) {
        tiers[i] = tier_with_sequence(1 + 5000 * i, tag + (uint32_t)i);
        servers[i] = open_server_with(options, tiers[i]);
        if (servers[i] == NULL) {
            assert_ok(pkv_tier_close(tiers[i]));
            skip();
        }
    }
    pkv_node *reader = open_reader_of(address_of(servers[0]).text);
    assert_ok(pkv_node_connect(reader, address_of(servers[1]).text, 10ull * one_second));
    pkv_pool *pool = pool_on_node(64, reader);
    pkv_table *tables[2];
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 2; ++i) tables[i] = admit_again(pool, 1 + 5000 * i, tokens, NULL);
        for (uint64_t block = 0; block < blocks; ++block) /* by turns */
            for (int i = 0; i < 2; ++i) assert_ok(pkv_table_restore(tables[i], block, 1, 10ull * one_second, NULL));
        for (int i = 0; i < 2; ++i) {
            check_rows(tables[i], 0, tokens, tag + (uint32_t)i);
            end_table(tables[i]);
        }
        (void)evict_pages(pool, UINT32_MAX);
    }
    for (int i = 0; i < 2; ++i) assert_int_equal(node_stats(servers[i]).fetches_served, 3 * blocks);
    end_pool(pool);
    assert_ok(pkv_node_close(reader));
    for (int i = 0; i < 2; ++i) {
        assert_ok(pkv_node_close(servers[i]));
        assert_ok(pkv_tier_close(tiers[i]));
    }
}

/* Field case M14: a message above the limit was lost. A lookup holds 4096 keys. */
static void case_M14_more_keys_than_a_message_holds_are_asked_for_in_several(void **state) {
    (void)state;
    enum { many = 5000, many_tokens = many * tiered_page_tokens };
    pkv_tier *tier = host_tier(many + 100);
    pkv_node *server = open_server(tier);
    if (server == NULL) skip();
    pkv_pool *writer = pool_on(many, tier, PKV_TIER_WRITE_BACK);
    compute(writer, 1, many_tokens, tag);
    push_down(writer);
    end_pool(writer);
    pkv_node *reader = open_reader_of(address_of(server).text);
    pkv_pool *pool = pool_on_node(many, reader);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, many_tokens, &match);
    assert_int_equal(match.tokens, many_tokens);
    assert_true(node_stats(server).lookups_served >= many);
    assert_int_equal(node_stats(server).leases, many);
    end_table(table);
    soon(node_stats(server).leases == 0);
    end_pool(pool);
    assert_ok(pkv_node_close(reader));
    assert_ok(pkv_node_close(server));
    assert_ok(pkv_tier_close(tier));
}

/* ---- a connection that hands on one byte at a time ---- */

typedef struct {
    int listener;
    struct sockaddr_in to;
    atomic_bool stop;
    atomic_ullong bytes;
} drip;

static void *drip_on(void *context) {
    drip *d = context;
    struct pollfd waiting = {d->listener, POLLIN, 0};
    while (!d->stop && poll(&waiting, 1, 20) == 0) continue;
    if (d->stop) return NULL;
    const int ends[2] = {accept(d->listener, NULL, NULL), socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    bool open = connect(ends[1], (const struct sockaddr *)&d->to, sizeof d->to) == 0;
    while (open && !d->stop) {
        struct pollfd both[2] = {{ends[0], POLLIN, 0}, {ends[1], POLLIN, 0}};
        if (poll(both, 2, 20) <= 0) continue;
        for (int i = 0; i < 2 && open; ++i) {
            char byte;
            if ((both[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
            open = recv(ends[i], &byte, 1, 0) == 1 && send(ends[1 - i], &byte, 1, MSG_NOSIGNAL) == 1;
            ++d->bytes;
        }
    }
    close(ends[0]);
    close(ends[1]);
    return NULL;
}

/* Field case M20: what came in pieces was taken for whole. */
static void case_M20_messages_may_come_a_byte_at_a_time(void **state) {
    (void)state;
    pkv_tier *tier = tier_with_sequence(1, tag);
    pkv_node *server = open_server(tier);
    if (server == NULL) skip();
    drip d = {.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    d.to.sin_family = AF_INET;
    d.to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct sockaddr_in own = d.to;
    socklen_t size = sizeof own;
    assert_int_equal(bind(d.listener, (struct sockaddr *)&own, size), 0);
    assert_int_equal(getsockname(d.listener, (struct sockaddr *)&own, &size), 0);
    assert_int_equal(listen(d.listener, 4), 0);
    d.to.sin_port = htons((uint16_t)atoi(strrchr(address_of(server).text, ':') + 1));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, drip_on, &d), 0);
    char at[64];
    snprintf(at, sizeof at, "127.0.0.1:%d", ntohs(own.sin_port));
    pkv_node *reader = open_reader_of(at);
    pkv_pool *pool = pool_on_node(64, reader);
    read_sequence(pool, 1, tag);
    assert_true(d.bytes > 500);
    end_pool(pool);
    assert_ok(pkv_node_close(reader));
    d.stop = true;
    pthread_join(thread, NULL);
    close(d.listener);
    assert_ok(pkv_node_close(server));
    assert_ok(pkv_tier_close(tier));
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_M07_what_is_missing_hides_nothing_else),
        cmocka_unit_test(case_M13_two_peers_may_use_the_same_numbers),
        cmocka_unit_test(case_M14_more_keys_than_a_message_holds_are_asked_for_in_several),
        cmocka_unit_test(case_M20_messages_may_come_a_byte_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
