/* SPDX-License-Identifier: Apache-2.0 */
/* Whoever connects without the cluster's key, or sends what is no message: refused, counted, and nobody else notices. */
#include "node/nodes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

enum { blocks = 4, tokens = blocks * tiered_page_tokens, tag = 5 };

static int connect_raw(pkv_node *server) {
    const address at = address_of(server);
    struct sockaddr_in to = {0};
    to.sin_family = AF_INET;
    to.sin_port = htons((uint16_t)atoi(strchr(at.text, ':') + 1));
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    const int raw = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(raw, (struct sockaddr *)&to, sizeof to), 0);
    const struct timeval limit = {8, 0};
    setsockopt(raw, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return raw;
}

/* Reads until the other side closes; fails if it does not within the time limit. */
static void wait_closed(int raw) {
    char bytes[512];
    ssize_t got;
    while ((got = recv(raw, bytes, sizeof bytes, 0)) > 0) continue;
    assert_true(got == 0 || errno == ECONNRESET);
    close(raw);
}

static void still_serves(pkv_node *server) {
    const pkv_node_options options = node_options();
    pkv_node *reader = open_node(&options);
    assert_ok(pkv_node_connect(reader, address_of(server).text, 5ull * one_second));
    pkv_pool *pool = pool_on_node(16, reader);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    check_rows(table, 0, tokens, tag);
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_node_close(reader));
}

static pkv_node *serve(pkv_tier **tier, uint32_t max_guests) {
    *tier = host_tier(20);
    pkv_node_options options = node_options();
    options.max_guests = max_guests;
    pkv_node *server = open_server_with(options, *tier);
    if (server == NULL) {
        assert_ok(pkv_tier_close(*tier));
        return NULL;
    }
    pkv_pool *pool = pool_on(16, *tier, PKV_TIER_WRITE_BACK);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    end_pool(pool);
    return server;
}

static void bytes_that_are_no_greeting_are_refused(void **state) {
    (void)state;
    pkv_tier *tier;
    pkv_node *server = serve(&tier, 0);
    if (server == NULL) skip();
    test_random random = {42};
    for (int round = 0; round < 8; ++round) {
        const int raw = connect_raw(server);
        unsigned char bytes[4096];
        for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = (unsigned char)next_random(&random);
        (void)send(raw, bytes, 44 + random_below(&random, sizeof bytes - 44), MSG_NOSIGNAL);
        wait_closed(raw);
    }
    soon(node_stats(server).refused == 8);
    still_serves(server);
    assert_ok(pkv_node_close(server));
    assert_ok(pkv_tier_close(tier));
}

/* The greeting is right, and what follows was not made with the key. */
static void frames_of_another_key_are_refused(void **state) {
    (void)state;
    pkv_tier *tier;
    pkv_node *server = serve(&tier, 0);
    if (server == NULL) skip();
    static const uint32_t sizes[] = {0, 1, 17, 1000, 1u << 20, (1u << 20) + 18, UINT32_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        const int raw = connect_raw(server);
        unsigned char greeting[44] = {'P', 'K', 'V', 'N', 'O', 'D', 'E', '\n', 1, 0, 0, 0, 9};
        assert_int_equal(send(raw, greeting, sizeof greeting, MSG_NOSIGNAL), sizeof greeting);
        unsigned char rest[24 + 4 + 2000] = {1};
        memcpy(rest + 24, &sizes[i], 4); /* little-endian here */
        (void)send(raw, rest, sizeof rest, MSG_NOSIGNAL);
        shutdown(raw, SHUT_WR);
        wait_closed(raw);
    }
    soon(node_stats(server).refused == sizeof sizes / sizeof *sizes);
    assert_int_equal(node_stats(server).accepted, 0);
    still_serves(server);
    assert_ok(pkv_node_close(server));
    assert_ok(pkv_tier_close(tier));
}

static void another_version_of_the_protocol_is_refused(void **state) {
    (void)state;
    pkv_tier *tier;
    pkv_node *server = serve(&tier, 0);
    if (server == NULL) skip();
    const int raw = connect_raw(server);
    unsigned char greeting[44] = {'P', 'K', 'V', 'N', 'O', 'D', 'E', '\n', 2, 0, 0, 0, 9};
    assert_int_equal(send(raw, greeting, sizeof greeting, MSG_NOSIGNAL), sizeof greeting);
    wait_closed(raw);
    soon(node_stats(server).refused == 1);
    assert_ok(pkv_node_close(server));
    assert_ok(pkv_tier_close(tier));
}

/* A connection that says nothing holds a place for five seconds at most, and closing the node does not wait for more. */
static void a_silent_stranger_holds_up_nobody(void **state) {
    (void)state;
    pkv_tier *tier;
    pkv_node *server = serve(&tier, 0);
    if (server == NULL) skip();
    const int raw = connect_raw(server);
    still_serves(server);
    wait_closed(raw);
    assert_ok(pkv_node_close(server));
    assert_ok(pkv_tier_close(tier));
}

static void more_guests_than_allowed_are_turned_away(void **state) {
    (void)state;
    pkv_tier *tier;
    pkv_node *server = serve(&tier, 2);
    if (server == NULL) skip();
    const pkv_node_options options = node_options();
    pkv_node *first = open_node(&options), *second = open_node(&options), *third = open_node(&options);
    assert_ok(pkv_node_connect(first, address_of(server).text, 5ull * one_second));
    assert_ok(pkv_node_connect(second, address_of(server).text, 5ull * one_second));
    const pkv_status status = pkv_node_connect(third, address_of(server).text, one_second / 2);
    assert_true(status != PKV_OK);
    assert_int_equal(node_stats(server).guests, 2);
    assert_ok(pkv_node_close(first));
    assert_ok(pkv_node_close(second));
    assert_ok(pkv_node_close(third));
    assert_ok(pkv_node_close(server));
    assert_ok(pkv_tier_close(tier));
}

static void a_lease_that_ends_is_a_miss_or_the_right_bytes(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(blocks); /* room for this sequence, and no other */
    pkv_node_options options = node_options();
    options.lease_ns = one_second / 5;
    pkv_node *server = open_server_with(options, tier);
    if (server == NULL) skip();
    pkv_pool *pool = pool_on(16, tier, PKV_TIER_WRITE_BACK);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    options = node_options();
    pkv_node *reader = open_node(&options);
    assert_ok(pkv_node_connect(reader, address_of(server).text, 5ull * one_second));
    pkv_pool *far = pool_on_node(16, reader);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(far, 1, tokens, &match);
    assert_int_equal(match.tokens, tokens);
    soon(node_stats(server).expired_leases >= blocks);
    assert_int_equal(node_stats(server).leases, 0);
    compute(pool, 7000, tokens, tag + 1); /* what was leased goes */
    push_down(pool);
    const pkv_status status = pkv_table_restore(table, 0, UINT64_MAX, 5ull * one_second, NULL);
    assert_true(status == PKV_OK || status == PKV_ERR_LOST);
    const uint64_t valid = info_of(table).valid;
    assert_ok(pkv_table_truncate(table, valid, NULL));
    check_rows(table, 0, valid, tag);
    end_table(table);
    end_pool(far);
    assert_ok(pkv_node_close(reader));
    assert_ok(pkv_node_close(server));
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_that_are_no_greeting_are_refused),
        cmocka_unit_test(frames_of_another_key_are_refused),
        cmocka_unit_test(another_version_of_the_protocol_is_refused),
        cmocka_unit_test(a_silent_stranger_holds_up_nobody),
        cmocka_unit_test(more_guests_than_allowed_are_turned_away),
        cmocka_unit_test(a_lease_that_ends_is_a_miss_or_the_right_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
