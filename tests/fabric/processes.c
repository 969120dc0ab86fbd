/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of another process, over every provider that this machine has: peers that are stopped, killed and closed. The peer
 * is this program again, so that no process forks after it has touched libfabric. */
#include "fabric/fabric.h"

#include <fcntl.h>
#include <sys/wait.h>

enum { peer_seed = 3 };
static const uint64_t memory_bytes = 16 << 20;

/* What each side tells the other of an endpoint. */
struct hello {
    size_t name_bytes;
    unsigned char name[PKV_FABRIC_MAX_NAME];
    uint32_t num_windows;
    pkv_fabric_window windows[4];
};

static bool send_all(int to, const void *data, size_t bytes) {
    return write(to, data, bytes) == (ssize_t)bytes; /* less than a pipe holds */
}

static bool receive_all(int from, void *data, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        const ssize_t got = read(from, (char *)data + at, bytes - at);
        if (got <= 0) return false;
        at += (size_t)got;
    }
    return true;
}

/* ---- the peer: lends its memory, through one endpoint after the other, until its standard input ends ---- */

static int serve(const char *provider) {
    struct node node;
    struct peer peer = {0};
    struct hello hello = {0}, other;
    if (!load_fabric() || !open_node(&node, provider, memory_bytes, peer_seed)) return 3;
    while (receive_all(STDIN_FILENO, &other, sizeof other)) {
        fabric->endpoint_close(peer.endpoint);
        open_peer(&node, &peer);
        if (fabric->endpoint_connect(peer.endpoint, other.name, other.name_bytes, why, sizeof why) != PKV_OK) return 4;
        hello.name_bytes = peer.name_bytes;
        memcpy(hello.name, peer.name, peer.name_bytes);
        hello.num_windows = node.num_windows;
        memcpy(hello.windows, node.windows, node.num_windows * sizeof node.windows[0]);
        if (!send_all(STDOUT_FILENO, &hello, sizeof hello)) return 5;
    }
    fabric->endpoint_close(peer.endpoint);
    close_node(&node);
    return 0;
}

/* ---- this side ---- */

struct remote {
    pid_t pid;
    int to, from;     /* pipes */
    struct node node; /* its windows only */
    struct peer peer; /* ours, to it */
};

static const char *program;

/* Starts the other process: that takes a while, mostly sleeping. */
static void start_remote(struct remote *remote, const char *provider) {
    int to[2], from[2];
    memset(remote, 0, sizeof *remote);
    assert_int_equal(pipe2(to, O_CLOEXEC), 0);
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    remote->pid = vfork();
    assert_true(remote->pid >= 0);
    if (remote->pid == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        execl(program, program, "serve", provider, (char *)NULL);
        _exit(9);
    }
    close(to[0]);
    close(from[1]);
    remote->to = to[1];
    remote->from = from[0];
}

/* Opens an endpoint on each side, which know each other then. */
static void meet_remote(struct remote *remote, struct node *here) {
    struct hello own = {0}, hello;
    open_peer(here, &remote->peer);
    own.name_bytes = remote->peer.name_bytes;
    memcpy(own.name, remote->peer.name, own.name_bytes);
    assert_true(send_all(remote->to, &own, sizeof own));
    assert_true(receive_all(remote->from, &hello, sizeof hello));
    remote->node.num_windows = hello.num_windows;
    memcpy(remote->node.windows, hello.windows, sizeof hello.windows);
    assert_fabric(fabric->endpoint_connect(remote->peer.endpoint, hello.name, hello.name_bytes, why, sizeof why),
                  PKV_OK);
}

/* The one that most tests share, started with those of all other providers. */
static struct remote *shared_remote(const char *provider) {
    static struct remote remotes[num_providers];
    struct remote *found = NULL;
    for (int i = 0; i < num_providers; ++i) {
        if (remotes[i].pid == 0 && is_another(i)) start_remote(&remotes[i], all_providers[i]);
        if (strcmp(all_providers[i], provider) == 0) found = &remotes[i];
    }
    return found;
}

static void leave_remote(struct remote *remote) {
    fabric->endpoint_close(remote->peer.endpoint);
    remote->peer.endpoint = NULL;
}

/* Ends the peer, as it is meant to end or, with a signal, not. Nothing of it is left in either case. */
static void end_remote(struct remote *remote, int signal_number) {
    int status = 0;
    if (signal_number != 0) kill(remote->pid, signal_number);
    close(remote->to);
    assert_int_equal(waitpid(remote->pid, &status, 0), remote->pid);
    close(remote->from);
    if (signal_number == 0) {
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    assert_int_equal(shm_files_of(remote->pid), 0);
}

static void reads_of_another_process_bring_the_right_bytes(void **state) {
    const char *provider = provider_of(state);
    static const uint64_t sizes[] = {1, 7, 64, 4095, 4096, 65536, 65537, 1000003, 5 << 20};
    struct node here;
    struct remote *remote = shared_remote(provider);
    assert_true(open_node(&here, provider, memory_bytes, 1));
    meet_remote(remote, &here);
    test_random random = {11};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
        for (int turn = 0; turn < 3; ++turn) {
            const uint64_t bytes = sizes[i], last = memory_bytes - bytes;
            const uint64_t offset = turn == 0 ? last : random_below(&random, last), at = random_below(&random, last);
            memset(here.data, 0xEE, here.bytes);
            assert_int_equal(read_now(&here, &remote->peer, &remote->node, at, bytes, offset), PKV_OK);
            assert_true(holds(here.data + at, bytes, peer_seed, offset));
            assert_true(all_are(here.data, at, 0xEE));
            assert_true(all_are(here.data + at + bytes, here.bytes - at - bytes, 0xEE));
        }
    }
    leave_remote(remote);
    close_node(&here);
}

enum { reads = 64 };
static const uint64_t read_bytes = 1 << 18;
static struct result results[reads];

static void begin_reads(struct node *here, struct remote *remote, uint64_t deadline_ns) {
    for (uint64_t i = 0; i < reads; ++i)
        assert_int_equal(begin_read(here, &remote->peer, &remote->node, i * read_bytes, read_bytes, i * read_bytes,
                                    deadline_ns, &results[i]),
                         PKV_OK);
}

static void many_reads_of_another_process_are_under_way_at_once(void **state) {
    const char *provider = provider_of(state);
    struct node here;
    struct remote *remote = shared_remote(provider);
    assert_true(open_node(&here, provider, memory_bytes, 1));
    meet_remote(remote, &here);
    for (int round = 0; round < 3; ++round) {
        memset(here.data, 0xEE, here.bytes);
        begin_reads(&here, remote, now_ns() + patience);
        for (int i = 0; i < reads; ++i) {
            assert_true(wait_for(&results[i]));
            assert_int_equal(results[i].status, PKV_OK);
        }
        assert_true(holds(here.data, reads * read_bytes, peer_seed, 0));
    }
    leave_remote(remote);
    close_node(&here);
}

/* After a deadline: the peer goes on, and `close` or not, what of the memory of its reads has changed since? */
static uint64_t late_bytes(struct node *here, struct remote *remote, bool close) {
    if (close) {
        const uint64_t begin = now_ns();
        leave_remote(remote);
        assert_true(now_ns() - begin < 20 * second);
    }
    memset(here->data, 0xEE, here->bytes);
    kill(remote->pid, SIGCONT);
    sleep_ms(100);
    uint64_t changed = 0;
    for (uint64_t i = 0; i < here->bytes; ++i) changed += here->data[i] != 0xEE;
    if (!close) leave_remote(remote);
    return changed;
}

/* A peer that stands still: reads end in time, and after the endpoint was closed their memory is the reader's again, even
 * when the peer goes on. */
static void a_peer_that_stands_still_is_left_in_time(void **state) {
    const char *provider = provider_of(state);
    struct node here;
    struct remote *remote = shared_remote(provider);
    assert_true(open_node(&here, provider, memory_bytes, 1));
    uint64_t left_open = 0;
    const int rounds = long_tests() ? 30 : 4;
    for (int round = 0; round < rounds; ++round) {
        meet_remote(remote, &here);
        /* In half of the rounds nothing was read before. */
        if (round % 2 == 0) assert_int_equal(read_now(&here, &remote->peer, &remote->node, 0, 4096, 0), PKV_OK);
        const bool first = round % 3 == 0; /* it stops before the reads, or in the middle of them */
        if (first) kill(remote->pid, SIGSTOP);
        const uint64_t begin = now_ns(), limit = second / 10;
        begin_reads(&here, remote, begin + limit);
        if (!first) {
            while (now_ns() < begin + (uint64_t)round * 500000) {
            }
            kill(remote->pid, SIGSTOP);
        }
        int in_time = 0;
        for (int i = 0; i < reads; ++i) {
            assert_true(wait_for(&results[i]));
            if (results[i].status == PKV_OK) {
                ++in_time;
                continue;
            }
            assert_int_equal(results[i].status, PKV_ERR_TIMEOUT);
            assert_true(results[i].at >= begin + limit && results[i].at < begin + limit + 20 * second);
        }
        struct result refused;
        if (in_time < reads)
            assert_int_equal(begin_read(&here, &remote->peer, &remote->node, 0, 1, 0, never, &refused), PKV_ERR_STATE);
        /* The third round shows what the others are there for. */
        const bool close = round % 6 != 2;
        const uint64_t late = late_bytes(&here, remote, close);
        if (close)
            assert_int_equal(late, 0);
        else
            left_open += late;
        for (int i = 0; i < reads; ++i) assert_int_equal(results[i].calls, 1);
    }
    print_message("[     INFO ] %s: %llu bytes landed late where the endpoint was not closed\n", provider,
                  (unsigned long long)left_open);
    close_node(&here);
}

/* A peer was killed while its memory was read, and what was under way hung for ever, or ended twice. */
static void case_N13_reads_of_a_killed_peer_end_once(void **state) {
    const char *provider = provider_of(state);
    enum { at_once = 5 }; /* processes: starting them is what takes the time */
    struct node here;
    struct remote remotes[at_once], *remote = remotes;
    assert_true(open_node(&here, provider, memory_bytes, 1));
    const int rounds = long_tests() ? 100 : at_once - 1;
    for (int round = 0; round <= rounds; ++round, ++remote) {
        if (round % at_once == 0) {
            remote = remotes;
            for (int i = 0; i < at_once && round + i <= rounds; ++i) start_remote(&remotes[i], provider);
        }
        meet_remote(remote, &here);
        if (round == rounds) break; /* the domain is as good as before */
        if (round % 2 == 0) assert_int_equal(read_now(&here, &remote->peer, &remote->node, 0, 4096, 0), PKV_OK);
        const uint64_t begin = now_ns();
        begin_reads(&here, remote, begin + second / 3);
        while (now_ns() < begin + (uint64_t)(round % 20) * 500000) {
        }
        end_remote(remote, SIGKILL);
        for (uint64_t i = 0; i < reads; ++i) {
            assert_true(wait_for(&results[i]));
            if (results[i].status == PKV_OK)
                assert_true(holds(here.data + i * read_bytes, read_bytes, peer_seed, i * read_bytes));
            else
                assert_true(results[i].status == PKV_ERR_IO || results[i].status == PKV_ERR_TIMEOUT);
            assert_true(results[i].at < begin + 20 * second);
        }
        leave_remote(remote);
        for (int i = 0; i < reads; ++i) assert_int_equal(results[i].calls, 1);
    }
    assert_int_equal(read_now(&here, &remote->peer, &remote->node, 0, 4096, 4096), PKV_OK);
    assert_true(holds(here.data, 4096, peer_seed, 4096));
    leave_remote(remote);
    end_remote(remote, 0);
    close_node(&here);
}

static void an_endpoint_is_closed_in_the_middle_of_reads(void **state) {
    const char *provider = provider_of(state);
    struct node here;
    struct remote *remote = shared_remote(provider);
    assert_true(open_node(&here, provider, memory_bytes, 1));
    const int rounds = long_tests() ? 60 : 8;
    for (int round = 0; round < rounds; ++round) {
        meet_remote(remote, &here);
        assert_int_equal(read_now(&here, &remote->peer, &remote->node, 0, 4096, 0), PKV_OK);
        begin_reads(&here, remote, never);
        const uint64_t begin = now_ns();
        while (now_ns() < begin + (uint64_t)(round % 20) * 400000) {
        }
        leave_remote(remote);
        for (uint64_t i = 0; i < reads; ++i) {
            assert_int_equal(results[i].calls, 1);
            if (results[i].status == PKV_OK)
                assert_true(holds(here.data + i * read_bytes, read_bytes, peer_seed, i * read_bytes));
            else
                assert_int_equal(results[i].status, PKV_ERR_CANCELLED);
        }
        memset(here.data, 0xEE, here.bytes);
        sleep_ms(30);
        assert_true(all_are(here.data, here.bytes, 0xEE));
    }
    close_node(&here);
}

static void both_sides_end_and_leave_nothing_in_dev_shm(void **state) {
    const char *provider = provider_of(state);
    end_remote(shared_remote(provider), 0);
    assert_int_equal(shm_files_of(getpid()), 0);
}

static const struct provider_test tests[] = {
    {"reads_of_another_process_bring_the_right_bytes", reads_of_another_process_bring_the_right_bytes},
    {"many_reads_of_another_process_are_under_way_at_once", many_reads_of_another_process_are_under_way_at_once},
    {"a_peer_that_stands_still_is_left_in_time", a_peer_that_stands_still_is_left_in_time},
    {"case_N13_reads_of_a_killed_peer_end_once", case_N13_reads_of_a_killed_peer_end_once},
    {"an_endpoint_is_closed_in_the_middle_of_reads", an_endpoint_is_closed_in_the_middle_of_reads},
    {"both_sides_end_and_leave_nothing_in_dev_shm", both_sides_end_and_leave_nothing_in_dev_shm},
};

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    program = argv[0];
    if (argc > 2 && strcmp(argv[1], "serve") == 0) return serve(argv[2]);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return run_with_every_provider(tests, sizeof tests / sizeof tests[0]);
}
