/* SPDX-License-Identifier: Apache-2.0 */
/* Four hosts, each a network namespace of its own on one bridge: the directory, two nodes that serve and read, and
 * this process, which reads. Cables are pulled and put back.
 *
 * The bridge is in this process' own namespace, and so is one end of each cable; the others belong to its children,
 * which die with it. So nothing is made in the namespace that the test was started in, and nothing is left, however
 * it ends. */
#include "node/directories.h"

#include <sched.h>
#include <sys/stat.h>

static const char *program;

#define network "10.77.0."
enum { directory_host = 2, first_host = 3, second_host = 4 };

/* ---- hosts */

/* Runs ip with the words of a text; false when it fails. */
static bool ip(const char *format, ...) {
    char text[256];
    const char *words[24] = {"ip"};
    int count = 1;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) words[count++] = word;
    const pid_t pid = fork();
    if (pid == 0) {
        execvp("ip", (char *const *)words);
        _exit(127);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool write_file(const char *path, const char *text) {
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    const bool good = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    if (file >= 0) close(file);
    return good;
}

/* This process goes into a namespace of its own, as root or as root of a user namespace, and makes the bridge. */
static bool make_bridge(void) {
    const uid_t uid = getuid();
    const gid_t gid = getgid();
    if (unshare(CLONE_NEWNET) != 0) {
        char map[64];
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
        (void)write_file("/proc/self/setgroups", "deny");
        (void)snprintf(map, sizeof map, "0 %u 1", uid);
        if (!write_file("/proc/self/uid_map", map)) return false;
        (void)snprintf(map, sizeof map, "0 %u 1", gid);
        if (!write_file("/proc/self/gid_map", map)) return false;
    }
    return ip("link set lo up") && ip("link add bridge0 type bridge") && ip("addr add " network "1/24 dev bridge0") &&
           ip("link set bridge0 up");
}

typedef struct {
    pid_t pid;
    int number;
    FILE *to, *from; /* its input and output */
} host;

/* A process in a namespace of its own, with a cable to the bridge. It becomes the directory, or this program with
 * `role`. */
static bool start_host(host *h, int number, const char *role) {
    int in[2], out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
    h->number = number;
    h->pid = fork();
    assert_true(h->pid >= 0);
    if (h->pid == 0) {
        char byte = 'x', at[32];
        (void)snprintf(at, sizeof at, network "%d", number);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWNET) != 0 || write(out[1], &byte, 1) != 1 || read(in[0], &byte, 1) != 1) _exit(1);
        if (!ip("link set lo up") || !ip("addr add %s/24 dev eth0", at) || !ip("link set eth0 up")) _exit(2);
        if (role == NULL) redis_exec(6379, at, (const char *const[]){NULL});
        dup2(in[0], 0);
        dup2(out[1], 1);
        execl(program, program, role, at, (char *)NULL);
        _exit(126);
    }
    close(in[0]);
    close(out[1]);
    h->to = fdopen(in[1], "w");
    h->from = fdopen(out[0], "r");
    setvbuf(h->to, NULL, _IONBF, 0);
    if (fgetc(h->from) != 'x') return false;
    if (!ip("link add cable%d type veth peer name eth0 netns %d", number, (int)h->pid)) return false;
    if (!ip("link set cable%d master bridge0", number) || !ip("link set cable%d up", number)) return false;
    return fputc('y', h->to) != EOF;
}

static void end_host(host *h) {
    if (h->pid == 0) return;
    kill(h->pid, SIGKILL);
    waitpid(h->pid, NULL, 0);
    (void)ip("link del cable%d", h->number); /* a namespace goes a while after its last process */
    fclose(h->to);
    fclose(h->from);
    h->pid = 0;
}

static void pull_cable(const host *h) { assert_true(ip("link set cable%d down", h->number)); }
static void put_back(const host *h) { assert_true(ip("link set cable%d up", h->number)); }

/* ---- what runs on them */

static pkv_node_options network_options(const char *at) {
    pkv_node_options options = node_options();
    options.directory = "redis://" network "2";
    options.heartbeat_ns = one_second / 2;
    options.fabric_host = at;
    return options;
}

/* Each host has a sequence of its own. */
static pkv_token first_of(int number) { return 1 + 10000 * number; }
static uint64_t found_of(pkv_node *reader, int number) {
    const uint64_t start = now_ns();
    const uint64_t count = found_by(reader, first_of(number), tokens, (uint32_t)number);
    assert_true(now_ns() - start < 8ull * one_second);
    return count;
}

/* A node that serves its sequence, and reads that of the host that each line of its input names: it answers with what
 * it found in the end, or behind a minus at once. */
static int serve(const char *at) {
    char listen[64];
    (void)snprintf(listen, sizeof listen, "%s:4710", at);
    const int number = atoi(strrchr(at, '.') + 1);
    pkv_tier *tier = host_tier(200);
    pkv_pool *pool = pool_on(64, tier, PKV_TIER_WRITE_BACK);
    compute(pool, first_of(number), tokens, (uint32_t)number);
    push_down(pool);
    pkv_node_options options = network_options(at);
    options.listen = listen;
    options.tiers = &tier;
    options.num_tiers = 1;
    pkv_node *node = open_node(&options);
    if (node == NULL) return 77;
    soon(node_stats(node).directory_published >= blocks);
    printf("ready\n");
    fflush(stdout);
    for (char line[32]; fgets(line, sizeof line, stdin) != NULL;) {
        const int wanted = atoi(line);
        uint64_t count = 0;
        if (wanted > 0)
            soon((count = found_of(node, wanted)) == tokens);
        else
            count = found_of(node, -wanted);
        printf("%llu\n", (unsigned long long)count);
        fflush(stdout);
    }
    assert_ok(pkv_node_close(node));
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
    return 0;
}

static bool says(host *h, const char *text) {
    char line[64] = "";
    if (fgets(line, sizeof line, h->from) == NULL) return false;
    line[strcspn(line, "\n")] = 0;
    return strcmp(line, text) == 0;
}

typedef struct {
    redis r;
    host directory, first, second;
    pkv_node *reader;
} hosts;

static pkv_node *open_reader(void) {
    const pkv_node_options options = network_options(network "1");
    pkv_node *reader = open_node(&options);
    soon(node_stats(reader).directory_endpoints_up == 1);
    return reader;
}

static void end_hosts(hosts *h) {
    if (h->reader != NULL) assert_ok(pkv_node_close(h->reader));
    end_host(&h->second);
    end_host(&h->first);
    end_host(&h->directory);
}

static bool bridge, tools;

static bool start_hosts(hosts *h) {
    memset(h, 0, sizeof *h);
    if (!bridge || !tools) {
        print_message("%s\n", tools ? "no network namespaces here: they need root, or user namespaces"
                                    : "no ip, or no redis-server here");
        return false;
    }
    h->r.host = network "2";
    h->r.port = 6379;
    assert_true(start_host(&h->directory, directory_host, NULL));
    for (char *reply = NULL; reply == NULL || *reply != '+'; usleep(1000)) {
        free(reply);
        reply = redis_say(&h->r, "PING");
        if (reply != NULL && *reply == '+') {
            free(reply);
            break;
        }
        assert_int_equal(waitpid(h->directory.pid, NULL, WNOHANG), 0);
    }
    assert_true(start_host(&h->first, first_host, "serve"));
    assert_true(start_host(&h->second, second_host, "serve"));
    if (!says(&h->first, "ready") || !says(&h->second, "ready")) { /* no plug-in: open_node has said so */
        end_hosts(h);
        return false;
    }
    h->reader = open_reader();
    return true;
}

/* ---- tests */

static void pages_are_found_through_the_directory_and_read_from_other_hosts(void **state) {
    (void)state;
    hosts h;
    if (!start_hosts(&h)) skip();
    soon(found_of(h.reader, first_host) == tokens);
    soon(found_of(h.reader, second_host) == tokens);
    const pkv_node_stats stats = node_stats(h.reader);
    assert_int_equal(stats.directory_peers, 2);
    assert_true(stats.bytes_read >= 2 * blocks * image_bytes);
    assert_int_equal(found_of(h.reader, 9), 0);
    char all[8];
    (void)snprintf(all, sizeof all, "%d", (int)tokens);
    fprintf(h.first.to, "%d\n", second_host); /* they read from each other */
    assert_true(says(&h.first, all));
    fprintf(h.second.to, "%d\n", first_host);
    assert_true(says(&h.second, all));
    fprintf(h.second.to, "-%d\n", second_host); /* and not from themselves */
    assert_true(says(&h.second, "0"));
    end_hosts(&h);
}

static void a_host_whose_cable_is_pulled_costs_its_hits_until_it_is_back(void **state) {
    (void)state;
    hosts h;
    if (!start_hosts(&h)) skip();
    soon(found_of(h.reader, first_host) == tokens);
    soon(found_of(h.reader, second_host) == tokens);
    pull_cable(&h.first);
    assert_int_equal(found_of(h.reader, first_host), 0);
    soon(found_of(h.reader, second_host) == tokens);
    pkv_node *fresh = open_reader(); /* has never seen it */
    assert_int_equal(found_of(fresh, first_host), 0);
    soon(found_of(fresh, second_host) == tokens);
    soon(redis_names(&h.r, "pkv:n:*", NULL, 0) == 1); /* nor has the directory, by now */
    put_back(&h.first);
    soon(redis_names(&h.r, "pkv:n:*", NULL, 0) == 2);
    soon(found_of(fresh, first_host) == tokens);
    soon(found_of(h.reader, first_host) == tokens);
    assert_ok(pkv_node_close(fresh));
    end_hosts(&h);
}

static void a_cable_that_is_pulled_during_reads_loses_blocks_and_nothing_else(void **state) {
    (void)state;
    hosts h;
    if (!start_hosts(&h)) skip();
    pkv_pool *pool = pool_on_node(64, h.reader);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = NULL;
    for (int turn = 0; match.tokens != tokens; ++turn) {
        assert_true(turn < 20);
        if (table != NULL) end_table(table);
        table = admit_again(pool, first_of(first_host), tokens, &match);
    }
    pull_cable(&h.first);
    const uint64_t start = now_ns();
    const pkv_status status = pkv_table_restore(table, 0, UINT64_MAX, 2ull * one_second, NULL);
    assert_true(status == PKV_ERR_TIMEOUT || status == PKV_ERR_LOST);
    assert_true(now_ns() - start < 8ull * one_second);
    const uint64_t valid = info_of(table).valid;
    if (status == PKV_ERR_LOST) assert_ok(pkv_table_truncate(table, valid, NULL));
    end_table(table);
    put_back(&h.first);
    soon(found_of(h.reader, first_host) == tokens);
    end_pool(pool);
    end_hosts(&h);
}

static void a_directory_whose_cable_is_pulled_costs_hits_until_it_is_back(void **state) {
    (void)state;
    hosts h;
    if (!start_hosts(&h)) skip();
    soon(found_of(h.reader, first_host) == tokens);
    pkv_node *fresh = open_reader();
    pull_cable(&h.directory);
    assert_int_equal(found_of(fresh, first_host), 0);
    assert_true(node_stats(fresh).directory_failures > 0);
    soon(found_of(h.reader, first_host) == tokens); /* whom it knows it asks itself */
    soon(node_stats(fresh).directory_endpoints_up == 0);
    assert_int_equal(found_of(fresh, second_host), 0);
    put_back(&h.directory);
    soon(node_stats(fresh).directory_endpoints_up == 1);
    soon(found_of(fresh, first_host) == tokens);
    soon(found_of(fresh, second_host) == tokens);
    assert_ok(pkv_node_close(fresh));
    end_hosts(&h);
}

static void a_fabric_on_loopback_is_refused_by_other_hosts(void **state) {
    (void)state;
    hosts h;
    if (!start_hosts(&h)) skip();
    pkv_node_options options = node_options(); /* without fabric_host */
    pkv_node *reader = open_node(&options);
    assert_status(pkv_node_connect(reader, network "3:4710", 5ull * one_second), PKV_ERR_MISMATCH);
    assert_message("the fabric of this node is at an address that others do not reach");
    assert_message("fabric_host");
    assert_ok(pkv_node_close(reader));
    options.fabric_host = network "1";
    reader = open_node(&options);
    assert_ok(pkv_node_connect(reader, network "3:4710", 5ull * one_second));
    assert_int_equal(found_of(reader, first_host), tokens);
    assert_ok(pkv_node_close(reader));
    end_hosts(&h);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "serve") == 0) return serve(argv[2]);
    program = argv[0];
    signal(SIGPIPE, SIG_IGN);
    tools = system("(command -v redis-server || command -v valkey-server) > /dev/null 2>&1 && command -v ip > "
                   "/dev/null 2>&1") == 0;
    bridge = tools && make_bridge();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_found_through_the_directory_and_read_from_other_hosts),
        cmocka_unit_test(a_host_whose_cable_is_pulled_costs_its_hits_until_it_is_back),
        cmocka_unit_test(a_cable_that_is_pulled_during_reads_loses_blocks_and_nothing_else),
        cmocka_unit_test(a_directory_whose_cable_is_pulled_costs_hits_until_it_is_back),
        cmocka_unit_test(a_fabric_on_loopback_is_refused_by_other_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
