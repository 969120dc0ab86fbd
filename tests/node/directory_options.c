/* SPDX-License-Identifier: Apache-2.0 */
/* How a node is told of its directory, and lets itself in there: what is refused, with which reason, and that a
 * password is in no message. */
#include "node/directories.h"

#include <pthread.h>

/* ---- logging in */

typedef struct {
    pthread_mutex_t mutex;
    char text[65536];
} log_text;
static log_text logged = {.mutex = PTHREAD_MUTEX_INITIALIZER, .text = ""};

static void write_log(void *user, int32_t level, const char *message) {
    (void)user;
    (void)level;
    pthread_mutex_lock(&logged.mutex);
    const size_t used = strlen(logged.text);
    (void)snprintf(logged.text + used, sizeof logged.text - used, "%s\n", message);
    pthread_mutex_unlock(&logged.mutex);
}
static bool log_has(const char *text) {
    pthread_mutex_lock(&logged.mutex);
    const bool has = strstr(logged.text, text) != NULL;
    pthread_mutex_unlock(&logged.mutex);
    return has;
}

static void clear_log(void) {
    pthread_mutex_lock(&logged.mutex);
    logged.text[0] = '\0';
    pthread_mutex_unlock(&logged.mutex);
}

/* A node with this URL; whether the server lets it in. */
static bool is_let_in(setup *s, const char *who, const char *prefix) {
    (void)snprintf(s->url, sizeof s->url, "redis://%s127.0.0.1:%u", who, s->r.port);
    pkv_node_options options = directory_options(s);
    options.directory_prefix = prefix;
    clear_log();
    s->tier = host_tier(20);
    s->server = open_server_with(options, s->tier);
    s->pool = pool_on(16, s->tier, PKV_TIER_WRITE_BACK);
    compute(s->pool, 1, tokens, tag);
    push_down(s->pool);
    char refused[64];
    (void)snprintf(refused, sizeof refused, "directory 127.0.0.1:%u refuses ", s->r.port);
    soon(node_stats(s->server).directory_endpoints_up == 1 || log_has(refused));
    const bool in = node_stats(s->server).directory_endpoints_up == 1;
    if (in)
        soon(node_stats(s->server).directory_published >= blocks || node_stats(s->server).directory_failures >= blocks);
    const bool told = node_stats(s->server).directory_published >= blocks;
    assert_ok(pkv_node_close(s->server));
    end_pool(s->pool);
    assert_ok(pkv_tier_close(s->tier));
    return in && told;
}

static void the_right_password_opens_and_a_wrong_one_costs_hits_only(void **state) {
    (void)state;
    setup s;
    memset(&s, 0, sizeof s);
    s.r.options[0] = "--requirepass";
    s.r.options[1] = s.r.password = "right, @:%/ and secret";
    const pkv_node_options options = node_options();
    pkv_node *node = open_node(&options);
    if (node == NULL || !redis_start(&s.r)) skip();
    assert_ok(pkv_node_close(node));
    pkv_set_log(write_log, NULL, PKV_LOG_INFO);
    assert_true(is_let_in(&s, ":right%2C%20%40%3A%25%2f and secret@", NULL));
    assert_true(is_let_in(&s, "default:right%2c @:%25%2F and secret@", NULL));
    assert_false(is_let_in(&s, ":wrong-and-secret@", NULL));
    assert_true(log_has("refuses AUTH: WRONGPASS"));
    assert_false(is_let_in(&s, "nobody:wrong-and-secret@", NULL));
    assert_false(log_has("secret"));
    assert_false(is_let_in(&s, "", NULL));
    assert_true(log_has("refuses PING: NOAUTH"));
    pkv_set_log(NULL, NULL, 0);
    redis_end(&s.r);
}

/* Servers repeat commands that they do not know, words and all. */
static void a_password_is_in_no_message_even_if_the_server_repeats_it(void **state) {
    (void)state;
    setup s;
    memset(&s, 0, sizeof s);
    s.r.options[0] = "--rename-command";
    s.r.options[1] = "AUTH";
    s.r.options[2] = "";
    const pkv_node_options options = node_options();
    pkv_node *node = open_node(&options);
    if (node == NULL || !redis_start(&s.r)) skip();
    assert_ok(pkv_node_close(node));
    char *reply = redis_say(&s.r, "AUTH", "very-secret");
    assert_non_null(strstr(reply, "very-secret")); /* it does */
    free(reply);
    pkv_set_log(write_log, NULL, PKV_LOG_INFO);
    assert_false(is_let_in(&s, "user:very-secret@", NULL));
    assert_true(log_has("refuses AUTH: ERR"));
    assert_false(log_has("very-secret"));
    pkv_set_log(NULL, NULL, 0);
    redis_end(&s.r);
}

/* What node.h says that a user has to be allowed, and no more. */
static void a_user_with_few_rights_is_enough(void **state) {
    (void)state;
    setup s;
    memset(&s, 0, sizeof s);
    const pkv_node_options options = node_options();
    pkv_node *node = open_node(&options);
    if (node == NULL || !redis_start(&s.r)) skip();
    assert_ok(pkv_node_close(node));
    redis_do(&s.r, "ACL", "SETUSER", "kv", "on", ">pw", "~mine:*", "-@all", "+auth", "+select", "+ping");
    redis_do(&s.r, "ACL", "SETUSER", "kv", "+multi", "+exec", "+set", "+del", "+getrange", "+zadd", "+zrem",
             "+zremrangebyscore", "+zrevrange", "+pexpire");
    pkv_set_log(write_log, NULL, PKV_LOG_INFO);
    assert_true(is_let_in(&s, "kv:pw@", "mine"));
    assert_false(log_has("refuse"));
    assert_false(is_let_in(&s, "kv:pw@", "others"));
    assert_true(log_has("refuses entries: NOPERM"));
    pkv_set_log(NULL, NULL, 0);
    redis_end(&s.r);
}

/* ---- options */

static void options_of_a_directory_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *directory;
        pkv_status status;
        const char *message;
    } cases[] = {
        {"", PKV_ERR_INVALID, "endpoint 0: it begins with neither"},
        {"localhost:6379", PKV_ERR_INVALID, "endpoint 0: it begins with neither"},
        {"http://secret@localhost", PKV_ERR_INVALID, "neither redis:// nor rediss://"},
        {"redis://", PKV_ERR_INVALID, "no host"},
        {"redis://:6379", PKV_ERR_INVALID, "no host"},
        {"redis://secret@host", PKV_ERR_INVALID, "a user without :password"},
        {"redis://secret:@host", PKV_ERR_INVALID, "an empty password"},
        {"redis://:secret%4@host", PKV_ERR_INVALID, "a % in user or password"},
        {"redis://:secret%zz@host", PKV_ERR_INVALID, "a % in user or password"},
        {"redis://:secret@host:0", PKV_ERR_INVALID, "no port between 1 and 65535"},
        {"redis://:secret@host:65536", PKV_ERR_INVALID, "no port between 1 and 65535"},
        {"redis://:secret@host:", PKV_ERR_INVALID, "no port between 1 and 65535"},
        {"redis://:secret@host:12x", PKV_ERR_INVALID, "no port between 1 and 65535"},
        {"redis://:secret@host/x", PKV_ERR_INVALID, "no database number"},
        {"redis://:secret@host/1/2", PKV_ERR_INVALID, "no database number"},
        {"redis://:secret@host/99999999999", PKV_ERR_INVALID, "no database number"},
        {"redis://:secret@ho st", PKV_ERR_INVALID, "no host"},
        {"redis://:secret@[::g]:1", PKV_ERR_INVALID, "no host"},
        {"redis://:secret@[::1:1", PKV_ERR_INVALID, "no host"},
        {"redis://:secret@h?x=1", PKV_ERR_INVALID, "no host"},
        {"redis://a,", PKV_ERR_INVALID, "endpoint 1: it begins with neither"},
        {"redis://a:6379,redis://:secret@A", PKV_ERR_INVALID, "names a:6379 twice"},
        {"redis://0,redis://1,redis://2,redis://3,redis://4,redis://5,redis://6,redis://7,redis://8,redis://9,redis://"
         "10,redis://11,"
         "redis://12,redis://13,redis://14,redis://15,redis://16",
         PKV_ERR_LIMIT, "more than 16 endpoints"},
    };
    pkv_node *node = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        pkv_node_options options = node_options();
        options.directory = cases[i].directory;
        assert_status(pkv_node_open(&options, &node), cases[i].status);
        assert_message(cases[i].message);
        char why[512];
        pkv_last_error(why, sizeof why);
        assert_null(strstr(why, "secret"));
    }
    pkv_node_options options = node_options();
    options.directory = "redis://127.0.0.1:1";
    options.heartbeat_ns = 999999;
    assert_status(pkv_node_open(&options, &node), PKV_ERR_INVALID);
    assert_message("heartbeat_ns is 999999");
    options.heartbeat_ns = 0;
    options.entry_ttl_ns = 1;
    assert_status(pkv_node_open(&options, &node), PKV_ERR_INVALID);
    assert_message("entry_ttl_ns is 1");
    options.entry_ttl_ns = 0;
    options.directory_peers = 1025;
    assert_status(pkv_node_open(&options, &node), PKV_ERR_LIMIT);
    options.directory_peers = 0;
    static const char *const prefixes[] = {"", "with space", "glob*",
                                           "12345678901234567890123456789012345678901234567890123456789012345"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; ++i) {
        options.directory_prefix = prefixes[i];
        assert_status(pkv_node_open(&options, &node), PKV_ERR_INVALID);
        assert_message("directory_prefix");
    }
}

static void an_address_that_others_cannot_use_is_refused(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(20);
    pkv_node *node = open_server(tier);
    if (node == NULL) {
        assert_ok(pkv_tier_close(tier));
        skip();
    }
    assert_ok(pkv_node_close(node));
    pkv_node_options options = node_options();
    options.directory = "redis://127.0.0.1:1";
    options.tiers = &tier;
    options.num_tiers = 1;
    options.fabric_host = "127.0.0.1";
    options.listen = "0.0.0.0:0";
    const pkv_status without = pkv_node_open(&options, &node);
    if (without == PKV_ERR_UNSUPPORTED) skip(); /* no hiredis */
    assert_int_equal(without, PKV_ERR_INVALID);
    assert_message("others cannot connect to \"0.0.0.0:");
    assert_message("advertise");
    static const char *const bad[] = {"no-port",      "127.0.0.1:x", "127.0.0.1:70000",  ":80",
                                      "224.0.0.1:80", "[::]:80",     "255.255.255.255:1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
        options.advertise = bad[i];
        assert_status(pkv_node_open(&options, &node), PKV_ERR_INVALID);
    }
    options.advertise = "no.such.host.invalid:1";
    assert_status(pkv_node_open(&options, &node), PKV_ERR_IO);
    options.advertise = "localhost:0"; /* a name, and the port that it listens on */
    assert_ok(pkv_node_open(&options, &node));
    assert_ok(pkv_node_close(node));
    assert_ok(pkv_tier_close(tier));
}

static void without_the_plugin_a_directory_is_unsupported_with_the_reason(void **state) {
    (void)state;
    const pkv_node_options plain = node_options(); /* libfabric's is loaded from where it is */
    pkv_node *node = open_node(&plain);
    if (node == NULL) skip();
    assert_ok(pkv_node_close(node));
    pkv_node_options options = node_options();
    options.directory = "redis://:secret@127.0.0.1:1";
    char *before = getenv("PKV_PLUGIN_DIR");
    before = before != NULL ? strdup(before) : NULL;
    setenv("PKV_PLUGIN_DIR", "/nowhere-at-all", 1);
    assert_status(pkv_node_open(&options, &node), PKV_ERR_UNSUPPORTED);
    assert_message("hiredis");
    assert_message("/nowhere-at-all/libpagedkv-redis.so");
    if (before != NULL)
        setenv("PKV_PLUGIN_DIR", before, 1);
    else
        unsetenv("PKV_PLUGIN_DIR");
    free(before);
}

static void tls_is_there_or_unsupported_with_the_reason(void **state) {
    (void)state;
    pkv_node_options options = node_options();
    options.directory = "redis://127.0.0.1:1";
    pkv_node *node = NULL;
    if (pkv_node_open(&options, &node) != PKV_OK) skip(); /* neither libfabric nor hiredis */
    assert_ok(pkv_node_close(node));
    options.directory = "redis://127.0.0.1:1,rediss://:secret@127.0.0.1:2/4";
    const pkv_status status = pkv_node_open(&options, &node);
    if (status == PKV_OK) {
        assert_ok(pkv_node_close(node));
        return;
    }
    assert_int_equal(status, PKV_ERR_UNSUPPORTED);
    assert_message("rediss://127.0.0.1:2/4");
    assert_message("without TLS");
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_the_plugin_a_directory_is_unsupported_with_the_reason),
        cmocka_unit_test(tls_is_there_or_unsupported_with_the_reason),
        cmocka_unit_test(options_of_a_directory_are_checked),
        cmocka_unit_test(an_address_that_others_cannot_use_is_refused),
        cmocka_unit_test(the_right_password_opens_and_a_wrong_one_costs_hits_only),
        cmocka_unit_test(a_password_is_in_no_message_even_if_the_server_repeats_it),
        cmocka_unit_test(a_user_with_few_rights_is_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
