/* SPDX-License-Identifier: Apache-2.0 */
/* A node that serves in another process, which is killed, stopped and started again while this one reads from it: right bytes
 * or a miss, in time, and nothing is left behind. */
#include "node/left_behind.h"
#include "node/nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

enum { blocks = 64, tokens = blocks * tiered_page_tokens, tag = 3 };

static const char *program;

static int files_of_this_process(void) { return files_of(getpid(), false); }

/* ---- the other process */

typedef struct {
    pid_t pid;
    int input; /* closed: it ends */
    address at;
} server;

/* Serves a known sequence at an address until its input ends. */
static int serve(const char *provider, const char *listen) {
    test_provider = provider;
    pkv_tier *tier = host_tier(200);
    pkv_pool *pool = pool_on(2 * blocks, tier, PKV_TIER_WRITE_BACK);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    pkv_node_options options = node_options();
    options.listen = listen;
    options.tiers = &tier;
    options.num_tiers = 1;
    options.lease_ns = 2ull * one_second;
    pkv_node *node = open_node(&options);
    if (node == NULL) return 77;
    printf("%s\n", address_of(node).text);
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) continue;
    assert_ok(pkv_node_close(node));
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
    return 0;
}

static bool start_server(server *s, const char *listen) {
    int in[2], out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execl(program, program, "serve", test_provider, listen, (char *)NULL);
        _exit(126);
    }
    close(in[0]);
    close(out[1]);
    s->input = in[1];
    FILE *from = fdopen(out[0], "r");
    const bool there = fgets(s->at.text, sizeof s->at.text, from) != NULL && strncmp(s->at.text, "127.", 4) == 0;
    if (there) s->at.text[strcspn(s->at.text, "\n")] = 0;
    fclose(from);
    if (!there) {
        int status = 0;
        waitpid(s->pid, &status, 0);
        assert_int_equal(WEXITSTATUS(status), 77);
        close(s->input);
    }
    return there;
}

static void end_server(server *s, int signal_number) {
    if (signal_number != 0) kill(s->pid, signal_number);
    close(s->input);
    int status = 0;
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    if (signal_number == 0) assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    const int left = files_of(s->pid, true); /* one that is killed cannot remove its own */
    if (signal_number == 0) assert_int_equal(left, 0);
}

/* ---- this one */

static uint64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * one_second + (uint64_t)at.tv_nsec;
}

static pkv_node *open_reader(const server *s) {
    const pkv_node_options options = node_options();
    pkv_node *reader = open_node(&options);
    assert_ok(pkv_node_connect(reader, s->at.text, 5ull * one_second));
    return reader;
}

static void another_process_is_read_from(void **state) {
    (void)state;
    server s;
    if (!start_server(&s, "127.0.0.1:0")) skip();
    pkv_node *reader = open_reader(&s);
    pkv_pool *pool = pool_on_node(2 * blocks, reader);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    check_rows(table, 0, tokens, tag);
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_node_close(reader));
    end_server(&s, 0);
    assert_int_equal(files_of_this_process(), 0);
}

/* Field case N13: each read ends once, whenever the other side dies. */
static void case_N13_a_server_is_killed_during_reads(void **state) {
    (void)state;
    for (int round = 0; round < 6; ++round) {
        server s;
        if (!start_server(&s, "127.0.0.1:0")) skip();
        pkv_node *reader = open_reader(&s);
        pkv_pool *pool = pool_on_node(2 * blocks, reader);
        pkv_match match = PKV_MATCH_INIT;
        pkv_table *table = admit_again(pool, 1, tokens, &match);
        assert_int_equal(match.tokens, tokens);
        const pid_t killer = fork(); /* a little later, while reads are under way */
        if (killer == 0) {
            usleep((useconds_t)(200 * round));
            kill(s.pid, SIGKILL);
            _exit(0);
        }
        const uint64_t start = now_ns();
        const pkv_status status = pkv_table_restore(table, 0, UINT64_MAX, 5ull * one_second, NULL);
        assert_true(status == PKV_OK || status == PKV_ERR_LOST);
        assert_true(now_ns() - start < 8ull * one_second);
        waitpid(killer, NULL, 0);
        const uint64_t valid = info_of(table).valid;
        assert_ok(pkv_table_truncate(table, valid, NULL));
        check_rows(table, 0, valid, tag);
        end_table(table);
        end_server(&s, SIGKILL);
        end_pool(pool);
        assert_ok(pkv_node_close(reader));
        assert_int_equal(files_of_this_process(), 0);
    }
}

/* Field case M01, here with reads: what arrives late must not land in memory that is used for something else by then. */
static void case_M01_late_data_does_not_land_in_reused_memory(void **state) {
    (void)state;
    server s;
    if (!start_server(&s, "127.0.0.1:0")) skip();
    pkv_node *reader = open_reader(&s);
    pkv_tier *remote = tier_of_node(reader), *host = host_tier(200);
    pkv_tier_attachment at[2] = {attachment(host, PKV_TIER_WRITE_BACK), attachment(remote, PKV_TIER_READ_ONLY)};
    at[1].timeout_ns = one_second;
    pkv_pool *pool = pool_over(2 * blocks, at, 2);
    assert_ok(pkv_tier_close(remote));
    compute(pool, 90000, tokens, tag + 1); /* of our own, in the host tier */
    push_down(pool);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, tokens, &match);
    assert_int_equal(match.tokens, tokens);
    kill(s.pid, SIGSTOP);
    const uint64_t start = now_ns();
    const pkv_status status = pkv_table_restore(table, 0, UINT64_MAX, one_second, NULL);
    assert_true(status == PKV_ERR_TIMEOUT || status == PKV_ERR_LOST || status == PKV_OK);
    assert_true(now_ns() - start < 6ull * one_second);
    end_table(table);
    kill(s.pid, SIGCONT);
    for (int round = 0; round < 20; ++round) { /* the same staging memory, while late data arrives */
        pkv_table *own = admit_again(pool, 90000, tokens, &match);
        assert_int_equal(match.tokens, tokens);
        assert_ok(pkv_table_restore(own, 0, UINT64_MAX, 10ull * one_second, NULL));
        check_rows(own, 0, tokens, tag + 1);
        end_table(own);
        push_down(pool);
        usleep(5000);
    }
    assert_int_equal(tier_stats(host).checksum_failures, 0);
    end_pool(pool);
    assert_ok(pkv_tier_close(host));
    assert_ok(pkv_node_close(reader));
    end_server(&s, 0);
    assert_int_equal(files_of_this_process(), 0);
}

static void a_server_that_comes_back_is_found_again(void **state) {
    (void)state;
    server s;
    if (!start_server(&s, "127.0.0.1:0")) skip();
    const address at = s.at;
    pkv_node *reader = open_reader(&s);
    end_server(&s, SIGKILL);
    soon(node_stats(reader).connected_peers == 0);
    assert_true(start_server(&s, at.text));
    soon(node_stats(reader).connected_peers == 1);
    pkv_pool *pool = pool_on_node(2 * blocks, reader);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    check_rows(table, 0, tokens, tag);
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_node_close(reader));
    end_server(&s, 0);
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "serve") == 0) return serve(argv[2], argv[3]);
    program = argv[0];
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_process_is_read_from),
        cmocka_unit_test(case_N13_a_server_is_killed_during_reads),
        cmocka_unit_test(case_M01_late_data_does_not_land_in_reused_memory),
        cmocka_unit_test(a_server_that_comes_back_is_found_again),
    };
    return run_with_providers(tests, sizeof tests / sizeof *tests);
}
