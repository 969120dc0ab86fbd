/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences handed over between processes, with each provider of libfabric that is there; givers and pullers that
 * are killed and stopped in the middle: right bytes or a failure in time, and nothing is left behind. */
#include "node/handover.h"
#include "node/left_behind.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

enum { layers = 8, page_tokens = 16, tokens = 200 /* 12 blocks, and 8 tokens */, pages = 14, half = 104, tag = 11 };

static const char *program;

static uint64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * one_second + (uint64_t)at.tv_nsec;
}

/* 32 KiB a token. */
static pkv_pool *large_pool(int32_t layout) {
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = 2 * pages;
    group.num_layers = layers;
    group.num_kv_heads = 8;
    group.k_head_dim = group.v_head_dim = 128;
    group.layout = layout;
    return make_pool_of(&group, page_tokens, 0);
}

/* Rows of one layer, which put_rows() would put into all of them. */
static void put_one_layer(pkv_table *table, uint32_t layer, uint64_t position, uint64_t count) {
    enum { row = 8 * 128 * 2 };
    unsigned char *rows[2] = {malloc(count * row), malloc(count * row)};
    for (int side = 0; side < 2; ++side)
        for (uint64_t i = 0; i < count; ++i) known_row(rows[side] + i * row, row, tag, 0, layer, position + i, side);
    const pkv_tensor k = rows_tensor(rows[0], count), v = rows_tensor(rows[1], count);
    assert_ok(pkv_table_write(table, 0, layer, position, count, &k, &v, NULL));
    free(rows[0]);
    free(rows[1]);
}

static void print_ticket(const ticket *t) {
    for (uint64_t i = 0; i < t->size; ++i) printf("%02x", t->bytes[i]);
    printf("\n");
    fflush(stdout);
}
static bool read_ticket(const char *text, ticket *t) {
    unsigned byte;
    for (t->size = 0; t->size < sizeof t->bytes && sscanf(text + 2 * t->size, "%2x", &byte) == 1; ++t->size)
        t->bytes[t->size] = (unsigned char)byte;
    return t->size != 0;
}

/* ---- the other process */

typedef struct {
    pid_t pid;
    int input; /* closed: it ends */
    FILE *output;
    ticket whole, growing;
} other;

/* Offers a sequence, and one of which the first half is computed, layer after layer of the rest as its input says. */
static int give(const char *provider) {
    test_provider = provider;
    pkv_node_options options = node_options();
    options.listen = "127.0.0.1:0";
    pkv_node *node = open_node(&options);
    if (node == NULL) return 77;
    pkv_pool *pool = large_pool(PKV_LAYOUT_NHD);
    pkv_table *whole = admit_counted(pool, 1, tokens, 0), *growing = admit_counted(pool, 100000, tokens, 0);
    put_and_commit(pool, whole, tokens, tag);
    put_rows(pool, growing, 0, 0, half, tag);
    assert_ok(pkv_table_commit(growing, half, NULL));
    pkv_offer_options terms = PKV_OFFER_OPTIONS_INIT;
    terms.max_pulls = PKV_PULLS_UNLIMITED;
    pkv_offer *offers[2];
    offers[0] = offer_of(node, whole, &terms);
    terms.num_tokens = tokens;
    offers[1] = offer_of(node, growing, &terms);
    for (int i = 0; i < 2; ++i) {
        const ticket t = ticket_of(offers[i]);
        print_ticket(&t);
    }
    uint32_t layer = 0;
    for (char byte; read(0, &byte, 1) > 0; ++layer) {
        if (layer >= layers) return 1;
        put_one_layer(growing, layer, half, tokens - half);
        assert_ok(pkv_offer_ready(offers[1], 0, layer, tokens, NULL));
    }
    assert_ok(pkv_offer_close(offers[0]));
    assert_ok(pkv_offer_close(offers[1]));
    end_table(whole);
    end_table(growing);
    end_pool(pool);
    assert_ok(pkv_node_close(node));
    return 0;
}

/* Pulls, and says so when some of it is there. */
static int pull(const char *provider, const char *text) {
    test_provider = provider;
    ticket t;
    if (!read_ticket(text, &t)) return 1;
    const pkv_node_options options = node_options();
    pkv_node *node = open_node(&options);
    if (node == NULL) return 77;
    pkv_pool *pool = large_pool(PKV_LAYOUT_HND);
    pkv_op *op = begin_pull(node, pool, &t);
    soon(node_stats(node).pulled_bytes != 0);
    printf("some\n");
    fflush(stdout);
    return pkv_op_wait(op, 60ull * one_second) == PKV_OK ? 0 : 1; /* it is killed before */
}

static void spawn(other *o, const char *what, const char *argument) {
    int in[2], out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
    o->pid = fork();
    assert_true(o->pid >= 0);
    if (o->pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execl(program, program, what, test_provider, argument, (char *)NULL);
        _exit(126);
    }
    close(in[0]);
    close(out[1]);
    o->input = in[1];
    o->output = fdopen(out[0], "r");
}

static bool start_giver(other *o) {
    spawn(o, "give", "");
    char line[2 * PKV_MAX_TICKET_BYTES + 2];
    ticket *const tickets[2] = {&o->whole, &o->growing};
    for (int i = 0; i < 2; ++i) {
        if (fgets(line, sizeof line, o->output) != NULL && read_ticket(line, tickets[i])) continue;
        int status = 0;
        waitpid(o->pid, &status, 0);
        assert_int_equal(WEXITSTATUS(status), 77);
        close(o->input);
        fclose(o->output);
        return false;
    }
    return true;
}

static void end_other(other *o, int signal_number) {
    if (signal_number != 0) kill(o->pid, signal_number);
    close(o->input);
    int status = 0;
    assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
    fclose(o->output);
    if (signal_number == 0) assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    const int left = files_of(o->pid, true); /* one that is killed cannot remove its own */
    if (signal_number == 0) assert_int_equal(left, 0);
}

/* ---- this one */

static void another_process_hands_over(void **state) {
    (void)state;
    other giver;
    if (!start_giver(&giver)) skip();
    const pkv_node_options options = node_options();
    pkv_node *node = open_node(&options);
    pkv_pool *pool = large_pool(PKV_LAYOUT_HND);
    pkv_table *table = pulled(begin_pull(node, pool, &giver.whole));
    same_rows(pool, table, 0, 0, tokens, tag, 0);
    assert_int_equal(node_stats(node).failed_reads, 0);
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_node_close(node));
    end_other(&giver, 0);
    assert_int_equal(files_of(getpid(), false), 0);
}

static void layers_come_as_another_process_says(void **state) {
    (void)state;
    other giver;
    if (!start_giver(&giver)) skip();
    const pkv_node_options options = node_options();
    pkv_node *node = open_node(&options);
    pkv_pool *pool = large_pool(PKV_LAYOUT_NHD);
    pkv_op *op = begin_pull(node, pool, &giver.growing);
    soon(node_stats(node).pulled_bytes == (uint64_t)half * 32768);
    for (uint32_t layer = 0; layer < layers; ++layer) {
        assert_int_equal(write(giver.input, "l", 1), 1);
        soon(node_stats(node).pulled_bytes == (uint64_t)half * 32768 + (layer + 1) * (uint64_t)(tokens - half) * 4096);
    }
    pkv_table *table = pulled(op);
    same_rows(pool, table, 0, 0, tokens, tag, 0);
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_node_close(node));
    end_other(&giver, 0);
    assert_int_equal(files_of(getpid(), false), 0);
}

/* Field case N13: the pull ends once, whenever the giver dies; M10: and says so. */
static void case_N13_a_giver_is_killed_in_mid_pull(void **state) {
    (void)state;
    enum { rounds = 3 };
    for (int round = 0; round < rounds; ++round) {
        other giver;
        if (!start_giver(&giver)) skip();
        const pkv_node_options options = node_options();
        pkv_node *node = open_node(&options);
        pkv_pool *pool = large_pool(PKV_LAYOUT_NHD);
        const bool waiting = round == rounds - 1; /* for layers that never come */
        const uint64_t start = now_ns();
        pkv_op *op = begin_pull(node, pool, waiting ? &giver.growing : &giver.whole);
        if (waiting) soon(node_stats(node).pulled_bytes == (uint64_t)half * 32768);
        usleep((useconds_t)(2000 * round));
        kill(giver.pid, SIGKILL);
        const pkv_status status = pkv_op_wait(op, 30ull * one_second);
        assert_true(status == PKV_ERR_IO || (status == PKV_OK && !waiting));
        assert_true(now_ns() - start < 15ull * one_second);
        if (status == PKV_OK) {
            pkv_table *table = pulled(op);
            same_rows(pool, table, 0, 0, tokens, tag, 0);
            end_table(table);
        } else {
            pull_fails(op, PKV_ERR_IO, "127.0.0.1");
            assert_int_equal(stats_of(pool).free_pages, 2 * pages);
        }
        all_released(pool);
        end_pool(pool);
        assert_int_equal(node_stats(node).pulls + node_stats(node).failed_pulls, 1);
        assert_ok(pkv_node_close(node));
        end_other(&giver, SIGKILL);
        assert_int_equal(files_of(getpid(), false), 0);
    }
}

/* Waits until bytes of a pull are there; false: it ended without. */
static bool has_begun(pkv_node *node, pkv_op *op) {
    pkv_op_info info = PKV_OP_INFO_INIT;
    while (node_stats(node).pulled_bytes == 0) {
        assert_ok(pkv_op_poll(op, &info, NULL, 0));
        if (info.state == PKV_OP_ENDED) return node_stats(node).pulled_bytes != 0;
        usleep(100);
    }
    return true;
}

/* Field case M01, here with reads: what arrives late must not land in memory that is used for something else by
 * then. */
static void case_M01_a_giver_that_was_stopped_spoils_no_other_pull(void **state) {
    (void)state;
    other stopped, good;
    if (!start_giver(&stopped)) skip();
    assert_true(start_giver(&good));
    const pkv_node_options options = node_options();
    pkv_node *node = open_node(&options);
    pkv_pool *pool = large_pool(PKV_LAYOUT_NHD);
    uint64_t limit = one_second / 2;
    pkv_op *op = begin_pull_of(node, pool, &stopped.whole, 1, NULL, limit);
    while (!has_begun(node, op)) {
        assert_ok(pkv_op_close(op));
        limit *= 2; /* it took too long to begin with */
        assert_true(limit < 20ull * one_second);
        op = begin_pull_of(node, pool, &stopped.whole, 1, NULL, limit);
    }
    kill(stopped.pid, SIGSTOP);
    const uint64_t start = now_ns();
    const pkv_status status = pkv_op_wait(op, limit + 20ull * one_second);
    assert_true(status == PKV_ERR_TIMEOUT || status == PKV_ERR_IO || status == PKV_OK);
    assert_true(now_ns() - start < limit + 5ull * one_second);
    assert_ok(pkv_op_close(op));
    all_released(pool);
    pkv_pull_options all = PKV_PULL_OPTIONS_INIT;
    all.flags = PKV_PULL_NO_MATCH;
    kill(stopped.pid, SIGCONT);
    for (int round = 0; round < 3; ++round) { /* the same memory, while late data arrives */
        pkv_table *table = pulled(begin_pull_of(node, pool, &good.whole, 1, &all, 0));
        same_rows(pool, table, 0, 0, tokens, tag, 0);
        end_table(table);
    }
    end_pool(pool);
    assert_ok(pkv_node_close(node));
    end_other(&good, 0);
    end_other(&stopped, 0);
    assert_int_equal(files_of(getpid(), false), 0);
}

static void a_puller_that_dies_leaves_the_offer_open(void **state) {
    (void)state;
    pkv_node_options options = node_options();
    options.listen = "127.0.0.1:0";
    pkv_node *node = open_node(&options);
    if (node == NULL) skip();
    pkv_pool *pool = large_pool(PKV_LAYOUT_NHD);
    pkv_table *table = admit_counted(pool, 1, tokens, 0);
    put_rows(pool, table, 0, 0, half, tag);
    assert_ok(pkv_table_commit(table, half, NULL));
    pkv_offer_options terms = PKV_OFFER_OPTIONS_INIT;
    terms.num_tokens = tokens;
    pkv_offer *offer = offer_of(node, table, &terms);
    const ticket t = ticket_of(offer);
    char text[2 * PKV_MAX_TICKET_BYTES + 1];
    for (uint64_t i = 0; i < t.size; ++i) snprintf(text + 2 * i, 3, "%02x", t.bytes[i]);
    other puller;
    spawn(&puller, "pull", text);
    char line[16] = "";
    assert_non_null(fgets(line, sizeof line, puller.output));
    assert_int_equal(offer_info(offer).open_pulls, 1);
    end_other(&puller, SIGKILL);
    soon(offer_info(offer).open_pulls == 0);
    assert_int_equal(offer_info(offer).failed_pulls, 1);
    assert_int_equal(offer_info(offer).status, PKV_ERR_BUSY);
    assert_int_equal(node_stats(node).failed_pulls_served, 1);
    assert_ok(pkv_offer_close(offer));
    end_table(table);
    all_released(pool);
    end_pool(pool);
    assert_ok(pkv_node_close(node));
    assert_int_equal(files_of(getpid(), false), 0);
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "give") == 0) return give(argv[2]);
    if (argc == 4 && strcmp(argv[1], "pull") == 0) return pull(argv[2], argv[3]);
    program = argv[0];
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_process_hands_over),
        cmocka_unit_test(layers_come_as_another_process_says),
        cmocka_unit_test(case_N13_a_giver_is_killed_in_mid_pull),
        cmocka_unit_test(case_M01_a_giver_that_was_stopped_spoils_no_other_pull),
        cmocka_unit_test(a_puller_that_dies_leaves_the_offer_open),
    };
    return run_with_providers(tests, sizeof tests / sizeof *tests);
}
