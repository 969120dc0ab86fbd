/* SPDX-License-Identifier: Apache-2.0 */
/* A directory that is killed, stopped or full, and nodes that die: hits are lost while it lasts, no call hangs, and
 * afterwards all is as before. */
#include "node/directories.h"

static const char *program;

/* ---- the server of the directory */

static void a_directory_that_is_killed_costs_hits_until_it_is_back(void **state) {
    (void)state;
    setup s;
    if (!begin(&s)) skip();
    soon(found(s.reader) == tokens);
    redis_end(&s.r);
    soon(node_stats(s.reader).directory_endpoints_up == 0);
    soon(node_stats(s.server).directory_endpoints_up == 0);
    pkv_node *fresh = fresh_reader(&s);
    assert_int_equal(found_soon(fresh), 0); /* it knows of nobody */
    assert_true(node_stats(fresh).directory_failures > 0);
    soon(found_soon(s.reader) == tokens); /* it is connected already, and asks all whom it knows */
    compute(s.pool, 5000, tokens, tag);   /* and nobody is told of this, now */
    push_down(s.pool);
    assert_true(redis_start(&s.r)); /* with nothing in it */
    wait_told(&s);
    soon(node_stats(fresh).directory_endpoints_up == 1);
    soon(found_soon(fresh) == tokens);
    soon(found_by(fresh, 5000, tokens, tag) == tokens);
    assert_ok(pkv_node_close(fresh));
    end(&s);
}

static void a_directory_that_comes_later_is_found(void **state) {
    (void)state;
    setup s;
    memset(&s, 0, sizeof s);
    if (!redis_start(&s.r)) skip();
    name_url(&s);
    redis_end(&s.r);
    pkv_node_options options = directory_options(&s);
    if (!begin_with(&s, &options)) skip();
    s.reader = open_node(&options);
    assert_int_equal(found_soon(s.reader), 0);
    assert_true(redis_start(&s.r));
    wait_told(&s);
    soon(node_stats(s.reader).directory_endpoints_up == 1);
    soon(found_soon(s.reader) == tokens);
    end(&s);
}

/* It takes connections and commands, and does not answer: worse than one that is gone. */
static void a_directory_that_stops_answering_holds_up_nobody(void **state) {
    (void)state;
    setup s;
    if (!begin(&s)) skip();
    pkv_node *fresh = fresh_reader(&s);
    soon(node_stats(fresh).directory_endpoints_up == 1);
    kill(s.r.pid, SIGSTOP);
    assert_int_equal(found_soon(fresh), 0);
    assert_true(node_stats(fresh).directory_failures > 0);
    soon(node_stats(fresh).directory_endpoints_up == 0);
    assert_int_equal(found_soon(fresh), 0);
    pkv_node *late = fresh_reader(&s); /* is in the middle of connecting when it is closed */
    const uint64_t start = now_ns();
    assert_ok(pkv_node_close(late));
    assert_true(now_ns() - start < 5ull * one_second);
    kill(s.r.pid, SIGCONT);
    soon(node_stats(fresh).directory_endpoints_up == 1);
    soon(found_soon(fresh) == tokens);
    assert_ok(pkv_node_close(fresh));
    end(&s);
}

static void closing_a_node_does_not_wait_for_a_directory_that_stopped(void **state) {
    (void)state;
    setup s;
    if (!begin(&s)) skip();
    kill(s.r.pid, SIGSTOP);
    compute(s.pool, 5000, tokens, tag); /* something to tell */
    push_down(s.pool);
    const uint64_t start = now_ns();
    assert_ok(pkv_node_close(s.server));
    s.server = NULL;
    assert_true(now_ns() - start < 8ull * one_second);
    kill(s.r.pid, SIGCONT);
    end(&s);
}

/* A server that is full, or reads only, says so at each command. */
static void a_directory_that_takes_no_entries_costs_hits(void **state) {
    (void)state;
    setup s;
    memset(&s, 0, sizeof s);
    if (!redis_start(&s.r)) skip();
    name_url(&s);
    redis_do(&s.r, "CONFIG", "SET", "maxmemory", "1");
    pkv_node_options options = directory_options(&s);
    options.entry_ttl_ns = 2ull * one_second;
    if (!begin_with(&s, &options)) skip();
    soon(node_stats(s.server).directory_failures > blocks);
    assert_int_equal(node_stats(s.server).directory_published, 0);
    assert_int_equal(node_stats(s.server).directory_endpoints_up, 1);
    assert_int_equal(redis_number(&s.r, "DBSIZE"), 0);
    redis_do(&s.r, "CONFIG", "SET", "maxmemory", "0");
    wait_told(&s); /* with the next renewal */
    s.reader = open_node(&options);
    soon(node_stats(s.reader).directory_endpoints_up == 1);
    soon(found_soon(s.reader) == tokens);
    end(&s);
}

/* What waits for a server that is slow has a bound: the rest is dropped, and told at the next renewal. */
static void changes_that_find_no_room_are_dropped_and_made_up_for(void **state) {
    (void)state;
    setup s;
    memset(&s, 0, sizeof s);
    if (!redis_start(&s.r)) skip();
    name_url(&s);
    pkv_node_options options = directory_options(&s);
    options.entry_ttl_ns = 2ull * one_second;
    if (!begin_with(&s, &options)) skip();
    wait_told(&s);
    kill(s.r.pid, SIGSTOP);
    /* Each sequence that is computed puts another one out of the tier: two changes for each block. */
    for (pkv_token first = 1000000; node_stats(s.server).directory_dropped == 0; first += 1000) {
        assert_true(first < 30000000);
        compute(s.pool, first, tokens, tag);
        push_down(s.pool);
    }
    kill(s.r.pid, SIGCONT);
    compute(s.pool, 1, tokens, tag);
    push_down(s.pool);
    wait_told(&s); /* what is not there any more has ended by itself */
    s.reader = fresh_reader(&s);
    soon(node_stats(s.reader).directory_endpoints_up == 1);
    soon(found_soon(s.reader) == tokens);
    end(&s);
}

/* ---- several servers */

static void one_of_several_servers_that_is_down_costs_its_keys_only(void **state) {
    (void)state;
    setup s;
    memset(&s, 0, sizeof s);
    redis other = {0}, third = {0};
    if (!redis_start(&s.r) || !redis_start(&other) || !redis_start(&third)) skip();
    (void)snprintf(s.url, sizeof s.url, "redis://127.0.0.1:%u,redis://127.0.0.1:%u,redis://127.0.0.1:%u", s.r.port,
                   other.port, third.port);
    pkv_node_options options = directory_options(&s);
    if (!begin_with(&s, &options)) skip();
    enum { sequences = 8 };
    for (int i = 1; i < sequences; ++i) compute(s.pool, 1 + 1000 * i, tokens, tag);
    push_down(s.pool);
    const int all = (int)images_of(s.tier);
    assert_true(all > 4 * blocks);
    soon(redis_names(&s.r, "pkv:k:*", NULL, 0) + redis_names(&other, "pkv:k:*", NULL, 0) +
             redis_names(&third, "pkv:k:*", NULL, 0) ==
         all);
    const int lost = redis_names(&other, "pkv:k:*", NULL, 0);
    assert_true(lost > 0 && lost < all); /* each has a part */
    assert_true(redis_names(&s.r, "pkv:k:*", NULL, 0) > 0 && redis_names(&third, "pkv:k:*", NULL, 0) > 0);
    /* The same servers in another order are the same directory. */
    (void)snprintf(s.url, sizeof s.url, "redis://127.0.0.1:%u,redis://127.0.0.1:%u,redis://127.0.0.1:%u", third.port,
                   s.r.port, other.port);
    s.reader = fresh_reader(&s);
    soon(node_stats(s.reader).directory_endpoints_up == 3);
    assert_int_equal(node_stats(s.reader).directory_endpoints, 3);
    soon(found_soon(s.reader) == tokens);
    assert_true(node_stats(s.reader).directory_hits >= blocks);

    redis_end(&other);
    soon(node_stats(s.reader).directory_endpoints_up == 2);
    soon(node_stats(s.server).directory_endpoints_up == 2);
    pkv_node *fresh = fresh_reader(&s);
    soon(node_stats(fresh).directory_endpoints_up == 2);
    (void)found_soon(fresh); /* up to the first block that nobody can say anything about */
    pkv_node_stats stats = node_stats(fresh);
    assert_int_equal(stats.directory_hits + stats.directory_failures, stats.directory_lookups);
    assert_true(stats.directory_hits > 0);
    soon(found_soon(fresh) == tokens); /* the rest is asked of those who were found for the first part */
    /* Its keys have gone to no other server; when it is back, it is told again. */
    assert_int_equal(redis_names(&s.r, "pkv:k:*", NULL, 0) + redis_names(&third, "pkv:k:*", NULL, 0), all - lost);
    assert_true(redis_start(&other));
    soon(redis_names(&other, "pkv:k:*", NULL, 0) == lost);
    soon(node_stats(fresh).directory_endpoints_up == 3);
    assert_ok(pkv_node_close(fresh));
    redis_end(&other);
    redis_end(&third);
    end(&s);
}

/* ---- nodes that die */

/* Serves a sequence, and its first half with another tag nowhere, until its input ends. */
static int serve(const char *url, const char *listen) {
    setup s;
    memset(&s, 0, sizeof s);
    (void)snprintf(s.url, sizeof s.url, "%s", url);
    pkv_node_options options = directory_options(&s);
    s.tier = host_tier(200);
    options.listen = listen;
    options.tiers = &s.tier;
    options.num_tiers = 1;
    s.server = open_node(&options);
    if (s.server == NULL) return 77;
    s.pool = pool_on(64, s.tier, PKV_TIER_WRITE_BACK);
    compute(s.pool, 1, tokens, tag);
    push_down(s.pool);
    soon(node_stats(s.server).directory_published >= blocks);
    printf("%s\n", address_of(s.server).text);
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) continue;
    end(&s);
    return 0;
}

typedef struct {
    pid_t pid;
    int input;
    address at;
} process;

static bool start_process(process *p, const char *url, const char *listen) {
    int in[2], out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
    p->pid = fork();
    if (p->pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execl(program, program, "serve", url, listen, (char *)NULL);
        _exit(126);
    }
    close(in[0]);
    close(out[1]);
    p->input = in[1];
    FILE *from = fdopen(out[0], "r");
    const bool there = fgets(p->at.text, sizeof p->at.text, from) != NULL;
    p->at.text[strcspn(p->at.text, "\n")] = 0;
    fclose(from);
    return there;
}

static void end_process(process *p, int signal_number) {
    if (signal_number != 0) kill(p->pid, signal_number);
    close(p->input);
    int status = 0;
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    if (signal_number == 0) assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_node_that_was_killed_is_forgotten_and_found_when_it_is_back(void **state) {
    (void)state;
    setup s;
    memset(&s, 0, sizeof s);
    if (!redis_start(&s.r)) skip();
    name_url(&s);
    s.reader = fresh_reader(&s);
    if (s.reader == NULL) {
        redis_end(&s.r);
        skip();
    }
    soon(node_stats(s.reader).directory_endpoints_up == 1);
    process p;
    assert_true(start_process(&p, s.url, "127.0.0.1:0"));
    const address at = p.at;
    soon(found_soon(s.reader) == tokens);
    end_process(&p, SIGKILL);
    assert_int_equal(redis_names(&s.r, "pkv:k:*", NULL, 0), blocks); /* nobody has taken them back */
    soon(redis_names(&s.r, "pkv:n:*", NULL, 0) == 0);                /* but where it was is not known any more */
    const uint64_t hits = node_stats(s.reader).directory_hits;
    soon(node_stats(s.reader).peers == 0);
    assert_int_equal(found_soon(s.reader), 0);
    assert_int_equal(node_stats(s.reader).directory_hits, hits);
    assert_int_equal(node_stats(s.reader).peers, 0);
    /* Another run at the same address is another node. */
    assert_true(start_process(&p, s.url, at.text));
    assert_string_equal(p.at.text, at.text);
    soon(found_soon(s.reader) == tokens);
    end_process(&p, 0);
    char name[128];
    assert_int_equal(redis_names(&s.r, "pkv:k:*", name, sizeof name), blocks); /* the killed one's, until they end */
    assert_int_equal(redis_number(&s.r, "ZCARD", name), 1);
    assert_ok(pkv_node_close(s.reader));
    redis_end(&s.r);
}

/* It is alive for the directory, and for nobody else: those who are led there wait once, and not for long. */
static void a_node_that_cannot_be_reached_costs_its_hits(void **state) {
    (void)state;
    setup s;
    memset(&s, 0, sizeof s);
    if (!redis_start(&s.r)) skip();
    name_url(&s);
    pkv_node_options options = directory_options(&s);
    /* A listener that takes connections, and says nothing. */
    const int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    assert_int_equal(bind(silent, (struct sockaddr *)&at, size) | listen(silent, 16) |
                         getsockname(silent, (struct sockaddr *)&at, &size),
                     0);
    char elsewhere[64];
    (void)snprintf(elsewhere, sizeof elsewhere, "127.0.0.1:%u", ntohs(at.sin_port));
    options.advertise = elsewhere;
    if (!begin_with(&s, &options)) skip();
    wait_told(&s);
    s.reader = patient_reader(&s);
    assert_int_equal(found_soon(s.reader), 0);
    assert_int_equal(node_stats(s.reader).directory_peers, 1);
    assert_int_equal(node_stats(s.reader).connected_peers, 0);
    for (int i = 0; i < 5; ++i) assert_int_equal(found_soon(s.reader), 0);
    assert_int_equal(node_stats(s.reader).peers, 1);
    /* Another node that has the same is found all the same. */
    pkv_tier *other = host_tier(200);
    const pkv_node_options good = directory_options(&s);
    pkv_node *second = open_server_with(good, other);
    pkv_pool *pool = pool_on(64, other, PKV_TIER_WRITE_BACK);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    soon(node_stats(second).directory_published >= blocks);
    soon(found_soon(s.reader) == tokens);
    assert_ok(pkv_node_close(second));
    end_pool(pool);
    assert_ok(pkv_tier_close(other));
    close(silent);
    end(&s);
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "serve") == 0) return serve(argv[2], argv[3]);
    program = argv[0];
    signal(SIGPIPE, SIG_DFL); /* no call, and no thread of the library, ends the process by one */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_directory_that_is_killed_costs_hits_until_it_is_back),
        cmocka_unit_test(a_directory_that_comes_later_is_found),
        cmocka_unit_test(a_directory_that_stops_answering_holds_up_nobody),
        cmocka_unit_test(closing_a_node_does_not_wait_for_a_directory_that_stopped),
        cmocka_unit_test(a_directory_that_takes_no_entries_costs_hits),
        cmocka_unit_test(changes_that_find_no_room_are_dropped_and_made_up_for),
        cmocka_unit_test(one_of_several_servers_that_is_down_costs_its_keys_only),
        cmocka_unit_test(a_node_that_was_killed_is_forgotten_and_found_when_it_is_back),
        cmocka_unit_test(a_node_that_cannot_be_reached_costs_its_hits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
