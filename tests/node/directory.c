/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that find each other through a real redis-server: what is told, found, renewed and taken back. */
#include "node/directories.h"
#include "tier/faulty.h"

/* ---- finding */

static void nodes_find_each_other_without_being_told(void **state) {
    (void)state;
    setup s;
    if (!begin(&s)) skip();
    assert_int_equal(node_stats(s.reader).peers, 0);
    soon(found(s.reader) == tokens);
    const pkv_node_stats stats = node_stats(s.reader);
    assert_int_equal(stats.peers, 1);
    assert_int_equal(stats.directory_peers, 1);
    assert_true(stats.directory_hits >= blocks);
    assert_true(stats.directory_hits + stats.directory_failures <= stats.directory_lookups);
    assert_int_equal(stats.directory_bad_entries, 0);
    assert_int_equal(stats.directory_endpoints, 1);
    assert_int_equal(stats.directory_published, 0); /* it serves nothing */
    soon(found(s.reader) == tokens);                /* again, over the connection that is there now */
    assert_int_equal(node_stats(s.reader).peers, 1);
    assert_int_equal(found_by(s.reader, 5000, tokens, tag), 0); /* what nobody has */
    assert_true(node_stats(s.server).directory_published >= blocks);
    end(&s);
}

static void two_nodes_with_different_images_are_both_read_from(void **state) {
    (void)state;
    setup s;
    if (!begin(&s)) skip();
    pkv_tier *other = host_tier(200);
    const pkv_node_options options = directory_options(&s);
    pkv_node *second = open_server_with(options, other);
    pkv_pool *pool = pool_on(64, other, PKV_TIER_WRITE_BACK);
    compute(pool, 9000, tokens, tag + 1);
    push_down(pool);
    soon(redis_names(&s.r, "pkv:k:*", NULL, 0) == 2 * blocks);
    soon(found(s.reader) == tokens);
    assert_int_equal(node_stats(s.reader).peers, 1); /* the other one has none of it */
    soon(found_by(s.reader, 9000, tokens, tag + 1) == tokens);
    assert_int_equal(node_stats(s.reader).connected_peers, 2);
    /* Servers read from each other, too: they find others, and never themselves. */
    soon(found(second) == tokens);
    assert_int_equal(found_by(second, 9000, tokens, tag + 1), 0);
    assert_int_equal(node_stats(second).peers, 1);
    assert_ok(pkv_node_close(second));
    end_pool(pool);
    assert_ok(pkv_tier_close(other));
    end(&s);
}

static void a_peer_that_was_found_can_be_made_one_that_stays(void **state) {
    (void)state;
    setup s;
    if (!begin(&s)) skip();
    soon(found(s.reader) == tokens);
    const address at = address_of(s.server);
    assert_ok(pkv_node_connect(s.reader, at.text, 5ull * one_second));
    assert_int_equal(node_stats(s.reader).peers, 1);
    assert_int_equal(node_stats(s.reader).directory_peers, 0);
    assert_status(pkv_node_connect(s.reader, at.text, 0), PKV_ERR_STATE);
    soon(found(s.reader) == tokens); /* it was asked anyway: the directory leads nowhere else */
    assert_int_equal(node_stats(s.reader).peers, 1);
    assert_ok(pkv_node_disconnect(s.reader, at.text));
    assert_int_equal(node_stats(s.reader).peers, 0);
    soon(found(s.reader) == tokens);
    assert_int_equal(node_stats(s.reader).directory_peers, 1);
    assert_ok(pkv_node_disconnect(s.reader, at.text)); /* one that was found */
    assert_int_equal(node_stats(s.reader).peers, 0);
    assert_status(pkv_node_disconnect(s.reader, at.text), PKV_ERR_NOT_FOUND);
    end(&s);
}

static void no_more_nodes_are_connected_to_than_allowed(void **state) {
    (void)state;
    setup s;
    if (!begin(&s)) skip();
    pkv_tier *other = host_tier(200);
    pkv_node_options options = directory_options(&s);
    pkv_node *second = open_server_with(options, other);
    pkv_pool *pool = pool_on(64, other, PKV_TIER_WRITE_BACK);
    compute(pool, 9000, tokens, tag + 1);
    push_down(pool);
    soon(redis_names(&s.r, "pkv:k:*", NULL, 0) == 2 * blocks);
    options.directory_peers = 1;
    pkv_node *narrow = open_node(&options);
    soon(node_stats(narrow).directory_endpoints_up == 1);
    soon(found(narrow) == tokens);
    assert_int_equal(found_by(narrow, 9000, tokens, tag + 1), 0); /* the first one is in use */
    assert_int_equal(node_stats(narrow).peers, 1);
    soon(found(narrow) == tokens);
    /* Once that one is gone, there is a place. */
    assert_ok(pkv_node_close(s.server));
    s.server = NULL;
    soon(node_stats(narrow).connected_peers == 0);
    soon(found_by(narrow, 9000, tokens, tag + 1) == tokens);
    assert_int_equal(node_stats(narrow).peers, 1);
    assert_ok(pkv_node_close(narrow));
    assert_ok(pkv_node_close(second));
    end_pool(pool);
    assert_ok(pkv_tier_close(other));
    end(&s);
}

/* Nodes that could not read from each other do not even meet. */
static void other_clusters_and_models_do_not_mix(void **state) {
    (void)state;
    setup s;
    if (!begin(&s)) skip();
    static const unsigned char other_key[PKV_CLUSTER_KEY_BYTES] = "another cluster's";
    for (int i = 0; i < 2; ++i) {
        pkv_node_options options = directory_options(&s);
        if (i == 0) {
            options.cluster_key.data = other_key;
        } else {
            options.identity.data = "another model";
            options.identity.size = 13;
        }
        pkv_node *stranger = open_node(&options);
        soon(node_stats(stranger).directory_endpoints_up == 1);
        assert_int_equal(found(stranger), 0);
        const pkv_node_stats stats = node_stats(stranger);
        assert_int_equal(stats.directory_hits, 0);
        assert_int_equal(stats.directory_failures, 0);
        assert_int_equal(stats.peers, 0);
        assert_ok(pkv_node_close(stranger));
    }
    assert_int_equal(node_stats(s.server).refused, 0);
    end(&s);
}

static void a_directory_may_be_shared_under_a_prefix(void **state) {
    (void)state;
    setup s;
    memset(&s, 0, sizeof s);
    if (!redis_start(&s.r)) skip();
    (void)snprintf(s.url, sizeof s.url, "redis://127.0.0.1:%u/3", s.r.port);
    pkv_node_options options = directory_options(&s);
    options.directory_prefix = "team:a-1_x.";
    if (!begin_with(&s, &options)) skip();
    soon(node_stats(s.server).directory_published >= blocks);
    s.reader = open_node(&options);
    soon(node_stats(s.reader).directory_endpoints_up == 1);
    soon(found(s.reader) == tokens);
    assert_int_equal(redis_number(&s.r, "DBSIZE"), 0); /* database 3 it is */
    end(&s);
}

/* ---- what is told */

/* The sorted set of each image has one member: this node. */
static void entries_come_and_go_with_the_images(void **state) {
    (void)state;
    setup s;
    if (!begin(&s)) skip();
    char name[128];
    assert_int_equal(redis_names(&s.r, "pkv:k:*", name, sizeof name), blocks);
    assert_int_equal(strlen(name), strlen("pkv:k:") + 32);
    assert_int_equal(redis_number(&s.r, "ZCARD", name), 1);
    assert_int_equal(redis_names(&s.r, "*", NULL, 0), blocks + 1); /* and the node's address: nothing else */
    compute(s.pool, 5000, tokens, tag);
    push_down(s.pool);
    assert_int_equal(images_of(s.tier), 2 * blocks);
    wait_told(&s);
    for (int i = 0; i < 20; ++i) { /* more than there is room for */
        compute(s.pool, 20000 + 1000 * i, tokens, tag);
        push_down(s.pool);
    }
    assert_true(tier_stats(s.tier).usage.evicted_images > 0);
    wait_told(&s);
    assert_int_equal(found(s.reader), 0); /* evicted long ago */
    assert_ok(pkv_pool_clear_all(s.pool, NULL));
    assert_int_equal(images_of(s.tier), 0);
    wait_told(&s);
    end(&s);
}

static void a_node_that_is_closed_takes_back_what_it_told(void **state) {
    (void)state;
    setup s;
    if (!begin(&s)) skip();
    soon(found(s.reader) == tokens);
    assert_ok(pkv_node_close(s.server));
    s.server = NULL;
    assert_int_equal(redis_number(&s.r, "DBSIZE"), 0);
    soon(node_stats(s.reader).peers == 0); /* nobody names it any more */
    assert_int_equal(found(s.reader), 0);
    end(&s);
}

static void what_a_file_held_before_is_told(void **state) {
    (void)state;
    setup s;
    memset(&s, 0, sizeof s);
    if (!redis_start(&s.r)) skip();
    name_url(&s);
    char path[64];
    (void)snprintf(path, sizeof path, "/tmp/pkv-directory-%d.pkv", (int)getpid());
    pkv_file_tier_options file = PKV_FILE_TIER_OPTIONS_INIT;
    file.path = path;
    file.capacity_bytes = 64 * image_bytes;
    file.max_images = 64;
    assert_ok(pkv_tier_open_file(&file, &s.tier));
    s.pool = pool_on(64, s.tier, PKV_TIER_WRITE_BACK);
    compute(s.pool, 1, tokens, tag);
    push_down(s.pool);
    end_pool(s.pool);
    assert_ok(pkv_tier_close(s.tier));
    assert_ok(pkv_tier_open_file(&file, &s.tier)); /* as after a restart */
    assert_int_equal(tier_stats(s.tier).usage.recovered_images, blocks);
    const pkv_node_options options = directory_options(&s);
    s.server = open_server_with(options, s.tier);
    s.pool = pool_on(64, s.tier, PKV_TIER_WRITE_BACK);
    if (s.server == NULL) {
        end(&s);
        unlink(path);
        skip();
    }
    wait_told(&s);
    s.reader = open_node(&options);
    soon(node_stats(s.reader).directory_endpoints_up == 1);
    soon(found(s.reader) == tokens);
    end(&s);
    unlink(path);
}

/* A tier of somebody else's, of which the library sees what is stored and removed, and no more: here it forgets
 * without a word. */
static void images_of_a_callers_own_tier_are_told_and_asked_after(void **state) {
    (void)state;
    setup s;
    memset(&s, 0, sizeof s);
    if (!redis_start(&s.r)) skip();
    name_url(&s);
    faulty *f = faulty_open();
    pkv_node_options options = directory_options(&s);
    options.entry_ttl_ns = one_second;
    s.server = open_server_with(options, f->tier);
    if (s.server == NULL) {
        faulty_end(f);
        redis_end(&s.r);
        skip();
    }
    s.pool = pool_on(64, f->tier, PKV_TIER_WRITE_BACK);
    compute(s.pool, 1, tokens, tag);
    push_down(s.pool);
    soon(redis_names(&s.r, "pkv:k:*", NULL, 0) == blocks);
    s.reader = open_node(&options);
    soon(node_stats(s.reader).directory_endpoints_up == 1);
    soon(found(s.reader) == tokens);
    const uint64_t told = node_stats(s.server).directory_published;
    soon(node_stats(s.server).directory_published >= told + blocks); /* renewed */
    pthread_mutex_lock(&f->mutex);
    for (int i = 0; i < faulty_most_images; ++i)
        if (f->images[i].data != NULL) faulty_forget(&f->images[i]);
    pthread_mutex_unlock(&f->mutex);
    soon(redis_names(&s.r, "pkv:k:*", NULL, 0) == 0);
    assert_true(node_stats(s.server).directory_published < told + 100 * blocks);
    assert_ok(pkv_node_close(s.reader));
    assert_ok(pkv_node_close(s.server));
    end_pool(s.pool);
    faulty_end(f);
    redis_end(&s.r);
}

static void entries_are_renewed_before_they_end(void **state) {
    (void)state;
    setup s;
    memset(&s, 0, sizeof s);
    if (!redis_start(&s.r)) skip();
    name_url(&s);
    pkv_node_options options = directory_options(&s);
    options.entry_ttl_ns = 3ull * one_second / 4;
    if (!begin_with(&s, &options)) skip();
    wait_told(&s);
    char name[128];
    (void)redis_names(&s.r, "pkv:k:*", name, sizeof name);
    const long long left = redis_number(&s.r, "PTTL", name);
    assert_true(left > 0 && left <= 750);
    assert_true(redis_number(&s.r, "PTTL", (redis_names(&s.r, "pkv:n:*", name, sizeof name), name)) <= 600);
    /* Six times over each entry was written anew: it has never ended meanwhile, or some would be missing now and
     * then. */
    while (node_stats(s.server).directory_published < 7 * blocks) {
        assert_int_equal(redis_names(&s.r, "pkv:k:*", NULL, 0), blocks);
        usleep(20000);
    }
    end(&s);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_find_each_other_without_being_told),
        cmocka_unit_test(two_nodes_with_different_images_are_both_read_from),
        cmocka_unit_test(a_peer_that_was_found_can_be_made_one_that_stays),
        cmocka_unit_test(no_more_nodes_are_connected_to_than_allowed),
        cmocka_unit_test(other_clusters_and_models_do_not_mix),
        cmocka_unit_test(a_directory_may_be_shared_under_a_prefix),
        cmocka_unit_test(entries_come_and_go_with_the_images),
        cmocka_unit_test(a_node_that_is_closed_takes_back_what_it_told),
        cmocka_unit_test(what_a_file_held_before_is_told),
        cmocka_unit_test(images_of_a_callers_own_tier_are_told_and_asked_after),
        cmocka_unit_test(entries_are_renewed_before_they_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
