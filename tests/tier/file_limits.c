/* SPDX-License-Identifier: Apache-2.0 */
/* A file tier where the system gives less than it might: no io_uring, no locked memory, few descriptors, no threads, no room;
 * and a file that others cut, remove or replace while it is open. Each limit is set in a process of its own. */
#include "tier/file_tier.h"

#include <dirent.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static uint64_t open_descriptors(void) {
    uint64_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL) return 0;
    while (readdir(folder) != NULL) ++count;
    closedir(folder);
    return count;
}

static void set_limit(int what, rlim_t value) {
    struct rlimit limit;
    if (getrlimit(what, &limit) != 0) exit(112);
    limit.rlim_cur = value < limit.rlim_max ? value : limit.rlim_max;
    if (setrlimit(what, &limit) != 0) exit(113);
}

/* ---- system calls that are refused ---- */

/* From now on a system call does `action`: SECCOMP_RET_ERRNO | errno, SECCOMP_RET_KILL_PROCESS. */
static void deny(long number, uint32_t action) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        exit(114);
}

/* Stores, loads, restarts, as if nothing was amiss. */
static void use_it(const char *path) {
    for (uint32_t life = 0; life < 3; ++life) {
        keyed k = keyed_in(path);
        assert_int_equal(tier_stats(k.tier).usage.recovered_images, life * 10);
        assert_ok(put(&k, life * 10, 10));
        assert_int_equal(get(&k, 0, 64, NULL), life * 10 + 10);
        assert_int_equal(tier_stats(k.tier).usage.io_errors, 0);
        end_keyed(&k);
    }
}

static int32_t engine_of(const char *path) {
    pkv_tier *tier = open_file(path);
    const int32_t engine = tier_stats(tier).usage.engine;
    assert_ok(pkv_tier_close(tier));
    return engine;
}

static const struct {
    const char *name;
    long call;
    int error;
    bool other_engine;
} denials[] = {
    {"io_uring_setup is not permitted", SYS_io_uring_setup, EPERM, true},
    {"io_uring_setup is unknown", SYS_io_uring_setup, ENOSYS, true},
    {"io_uring_setup has no memory", SYS_io_uring_setup, ENOMEM, true},
    {"io_uring_enter is not permitted", SYS_io_uring_enter, EPERM, true},
    {"io_uring_register is not permitted", SYS_io_uring_register, EPERM, false},
};

static int role_deny(char **words) {
    for (size_t i = 0; i < sizeof denials / sizeof *denials; ++i) {
        if (strcmp(denials[i].name, words[1]) != 0) continue;
        const int32_t usual = has_io_uring() ? PKV_IO_URING : PKV_IO_THREADS;
        deny(denials[i].call, SECCOMP_RET_ERRNO | (uint32_t)denials[i].error);
        use_it(words[0]);
        const int32_t engine = engine_of(words[0]), expected = denials[i].other_engine ? PKV_IO_THREADS : usual;
        if (engine != expected) return 100 + engine;
        pkv_file_tier_options options = file_options(words[0]);
        options.engine = PKV_IO_URING;
        const pkv_status status = try_open(&options);
        if (expected == PKV_IO_URING) return -status;
        return status == PKV_ERR_UNSUPPORTED && says("io_uring") ? 0 : 104;
    }
    return 105;
}

static void without_io_uring_threads_do_it(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof denials / sizeof *denials; ++i) {
        scratch s = begin_scratch();
        const int status = run_role("deny", s.path, denials[i].name);
        if (status != 0) fail_msg("%s: %d", denials[i].name, status);
        end_scratch(&s);
    }
}

static int role_full(char **words) {
    deny(SYS_fallocate, SECCOMP_RET_ERRNO | ENOSPC);
    pkv_file_tier_options options = file_options(words[0]);
    const uint64_t before = open_descriptors();
    refuse_open(&options, PKV_ERR_NO_SPACE, words[0]);
    options.flags = PKV_FILE_RESET;
    refuse_open(&options, PKV_ERR_NO_SPACE, "No space left on device");
    return open_descriptors() == before ? 0 : 106;
}

static void case_L10_a_file_that_cannot_be_preallocated_is_removed(void **state) {
    (void)state;
    scratch s = begin_scratch();
    assert_int_equal(run_role("full", s.path, NULL), 0);
    assert_false(file_is_there(s.path));
    use_it(s.path);
    end_scratch(&s);
}

static int role_no_fallocate(char **words) {
    deny(SYS_fallocate, SECCOMP_RET_ERRNO | EOPNOTSUPP);
    use_it(words[0]);
    return 0;
}

static void a_file_system_without_fallocate_will_do(void **state) {
    (void)state;
    scratch s = begin_scratch();
    assert_int_equal(run_role("no-fallocate", s.path, NULL), 0);
    pkv_tier *tier = open_file(s.path);
    assert_int_equal(tier_stats(tier).usage.recovered_images, 30);
    assert_ok(pkv_tier_close(tier));
    end_scratch(&s);
}

static int role_killed_making(char **words) {
    deny(SYS_fallocate, SECCOMP_RET_KILL_PROCESS);
    (void)open_file(words[0]);
    return 107;
}

static void case_L16_a_file_whose_maker_was_killed_is_made_again(void **state) {
    (void)state;
    scratch s = begin_scratch();
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(run_role("killed-making", s.path, NULL), 1000 + SIGSYS);
        struct stat info;
        assert_int_equal(stat(s.path, &info), 0);
        assert_true(info.st_size < file_payload + file_images * image_bytes);
    }
    use_it(s.path);
    end_scratch(&s);
}

static int role_no_lock(char **words) {
    deny(SYS_flock, SECCOMP_RET_ERRNO | ENOLCK);
    pkv_file_tier_options options = file_options(words[0]);
    refuse_open(&options, PKV_ERR_IO, "locking");
    return 0;
}

static void a_file_system_without_locks_is_refused(void **state) {
    (void)state;
    scratch s = begin_scratch();
    assert_int_equal(run_role("no-lock", s.path, NULL), 0);
    end_scratch(&s);
}

/* ---- resources ---- */

static int role_no_locked_memory(char **words) {
    set_limit(RLIMIT_MEMLOCK, 0);
    drop_root();
    use_it(words[0]);
    keyed k = keyed_in(words[0]);
    const pkv_tier_usage usage = tier_stats(k.tier).usage;
    end_keyed(&k);
    return usage.registered_buffers == 0 ? 0 : 108;
}

static void case_O05_without_locked_memory_buffers_are_plain(void **state) {
    (void)state;
    scratch s = begin_scratch();
    assert_int_equal(chmod(s.folder, 0777), 0);
    assert_int_equal(run_role("no-locked-memory", s.path, NULL), 0);
    end_scratch(&s);
}

static int role_no_threads(char **words) {
    drop_root();
    pkv_file_tier_options options = file_options(words[0]);
    assert_ok(try_open(&options));
    wait_closed(words[0]);
    const uint64_t before = open_descriptors();
    set_limit(RLIMIT_NPROC, 0);
    pkv_tier *tier = NULL;
    for (int i = 0; i < 20; ++i) assert_status(pkv_tier_open_file(&options, &tier), PKV_ERR_NO_MEMORY);
    options.engine = PKV_IO_THREADS;
    for (int i = 0; i < 20; ++i) assert_status(pkv_tier_open_file(&options, &tier), PKV_ERR_NO_MEMORY);
    if (!says("threads")) return 109;
    set_limit(RLIMIT_NPROC, 65536); /* for what ends the process, under a sanitizer */
    return open_descriptors() == before ? 0 : 106;
}

static void without_threads_there_is_no_tier(void **state) {
    (void)state;
    scratch s = begin_scratch();
    assert_int_equal(chmod(s.folder, 0777), 0);
    assert_int_equal(run_role("no-threads", s.path, NULL), 0);
    end_scratch(&s);
}

static int role_small_files(char **words) {
    set_limit(RLIMIT_FSIZE, 100000);
    pkv_file_tier_options options = file_options(words[0]);
    refuse_open(&options, PKV_ERR_LIMIT, "RLIMIT_FSIZE");
    return 0;
}

static void a_limit_of_the_file_size_is_an_error_and_no_signal(void **state) {
    (void)state;
    scratch s = begin_scratch();
    assert_int_equal(run_role("small-files", s.path, NULL), 0);
    assert_false(file_is_there(s.path));
    make_file(s.path, 4); /* one that is larger already */
    const snapshot good = read_file(s.path);
    assert_int_equal(run_role("small-files", s.path, NULL), 0);
    assert_file(s.path, &good);
    free(good.bytes);
    end_scratch(&s);
}

static int32_t cannot_read(void *user, pkv_file_event *event) {
    (void)user;
    if (!event->write) event->result = -EIO;
    return PKV_FAULT_NONE;
}

static int role_few_descriptors(char **words) {
    set_limit(RLIMIT_NOFILE, 64);
    char path[200];
    (void)snprintf(path, sizeof path, "%s", words[0]);
    make_file(path, 4);
    wait_closed(path);
    const uint64_t before = open_descriptors();
    pkv_file_tier_options options = file_options(path);
    pkv_tier *tier = NULL;
    for (int i = 0; i < 250; ++i) {
        options.path = path;
        options.capacity_bytes = 4096;
        assert_status(pkv_tier_open_file(&options, &tier), PKV_ERR_MISMATCH);
        options.path = "/proc/no such folder/images";
        assert_status(pkv_tier_open_file(&options, &tier), PKV_ERR_IO);
        options.path = "/dev/null";
        assert_status(pkv_tier_open_file(&options, &tier), PKV_ERR_INVALID);
        options.path = "/";
        assert_status(pkv_tier_open_file(&options, &tier), PKV_ERR_IO);
    }
    if (open_descriptors() != before) return 106;
    for (int i = 0; i < 30; ++i) make_file(path, 0);
    wait_closed(path);
    if (open_descriptors() != before) return 106;
    /* Loads that fail. */
    options = file_options(path);
    options.fault = cannot_read;
    keyed k = keyed_on(open_with(&options));
    const uint64_t open_now = open_descriptors();
    for (int i = 0; i < 250; ++i) assert_int_equal(get(&k, 0, 4, NULL), 0);
    if (open_descriptors() != open_now) return 106;
    end_keyed(&k);
    wait_closed(path);
    if (open_descriptors() != before) return 106;
    /* None left at all, at each place where one is needed. */
    bool worked = false;
    for (rlim_t more = 0; more < 12; ++more) {
        set_limit(RLIMIT_NOFILE, 3 + more);
        options = file_options(path);
        options.engine = more % 2 == 0 ? PKV_IO_AUTO : PKV_IO_THREADS;
        const pkv_status status = try_open(&options);
        if (status != PKV_OK && status != PKV_ERR_IO && status != PKV_ERR_NO_MEMORY) return 110;
        worked = status == PKV_OK;
        if (worked) wait_closed(path);
        set_limit(RLIMIT_NOFILE, 64);
        if (open_descriptors() != before) return 106;
    }
    return worked ? 0 : 111;
}

static void case_L19_no_path_leaks_descriptors(void **state) {
    (void)state;
    /* UBSan looks at objects through a pipe, and takes every virtual call for wrong when it gets no descriptors for one. */
    const char *variant = getenv("VARIANT");
    if (variant != NULL && strcmp(variant, "ubsan") == 0) skip();
    scratch s = begin_scratch();
    assert_int_equal(run_role("few-descriptors", s.path, NULL), 0);
    end_scratch(&s);
}

static const file_role roles[] = {{"deny", role_deny},
                                  {"full", role_full},
                                  {"no-fallocate", role_no_fallocate},
                                  {"killed-making", role_killed_making},
                                  {"no-lock", role_no_lock},
                                  {"no-locked-memory", role_no_locked_memory},
                                  {"no-threads", role_no_threads},
                                  {"small-files", role_small_files},
                                  {"few-descriptors", role_few_descriptors}};

/* ---- more at once than fits ---- */

static int32_t engines[] = {PKV_IO_THREADS, PKV_IO_URING};

static void case_O07_more_loads_than_the_depth_are_all_done(void **state) {
    const int32_t engine = *(const int32_t *)*state;
    if (engine == PKV_IO_URING && !has_io_uring()) skip();
    const uint32_t depths[] = {1, 4, 1024};
    for (int i = 0; i < 3; ++i) {
        scratch s = begin_scratch();
        pkv_file_tier_options options = file_options(s.path);
        options.capacity_bytes = 64 * image_bytes;
        options.max_images = 64;
        options.engine = engine;
        options.depth = depths[i];
        options.threads = depths[i] < 64 ? depths[i] : 64;
        keyed k = keyed_on(open_with(&options));
        assert_ok(put(&k, 0, 64));
        for (int turn = 0; turn < 4; ++turn) assert_int_equal(get(&k, 0, 64, NULL), 64);
        assert_int_equal(tier_stats(k.tier).loads, 256);
        assert_int_equal(tier_stats(k.tier).open_requests, 0);
        end_keyed(&k);
        end_scratch(&s);
    }
}

typedef struct {
    pkv_tier *tier;
    uint32_t first;
    int turns;
} reader;

static void *read_own(void *argument) {
    const reader *r = argument;
    keyed k = keyed_on(r->tier);
    for (int i = 0; i < r->turns; ++i) assert_int_equal(get(&k, r->first, 8, NULL), 8);
    release_pages(k.pool, k.pages, most_keys);
    assert_ok(pkv_pool_destroy(k.pool));
    return NULL;
}

static void case_L05_each_of_many_readers_gets_its_own_bytes(void **state) {
    const int32_t engine = *(const int32_t *)*state;
    if (engine == PKV_IO_URING && !has_io_uring()) skip();
    scratch s = begin_scratch();
    pkv_file_tier_options options = file_options(s.path);
    options.engine = engine;
    options.depth = 8;
    make_file(s.path, 32);
    pkv_tier *tier = open_with(&options);
    pthread_t threads[3];
    reader readers[4];
    for (uint32_t i = 0; i < 4; ++i) readers[i] = (reader){tier, i * 8, long_tests() ? 1250 : 40};
    for (int i = 0; i < 3; ++i) assert_int_equal(pthread_create(&threads[i], NULL, read_own, &readers[i]), 0);
    (void)read_own(&readers[3]);
    for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
    assert_int_equal(tier_stats(tier).loads, (uint64_t)(4 * 8 * readers[0].turns));
    assert_int_equal(tier_stats(tier).failed_loads, 0);
    assert_ok(pkv_tier_close(tier));
    end_scratch(&s);
}

/* ---- the file changes while it is open ---- */

static void case_L13_a_file_that_is_cut_while_open_gives_misses(void **state) {
    (void)state;
    const int64_t sizes[] = {file_payload + 10 * image_bytes, file_payload + 10 * image_bytes + 4100, 0};
    for (int i = 0; i < 3; ++i) {
        scratch s = begin_scratch();
        pkv_file_tier_options options = file_options(s.path);
        keyed k = keyed_on(open_with(&options));
        assert_ok(put(&k, 0, 20));
        assert_int_equal(truncate(s.path, sizes[i]), 0);
        uint64_t good = 0;
        for (uint32_t turn = 0; turn < 2; ++turn)
            for (uint32_t j = 0; j < 20; ++j) {
                const uint32_t n = j * 7 % 20; /* no eight failures in a row, where half of them are there */
                const pkv_status status = get_one(&k, n);
                assert_true(status == PKV_OK || status == PKV_ERR_IO || status == PKV_ERR_NOT_FOUND);
                if (turn == 1 && status == PKV_ERR_IO) fail_msg("image %u is still found", n);
                good += turn == 0 && status == PKV_OK;
            }
        assert_in_range(good, 0, 10);
        if (i < 2) assert_true(good > 0);
        assert_true(tier_stats(k.tier).usage.io_errors > 0);
        soon(tier_stats(k.tier).open_requests == 0);
        if (i < 2) assert_int_equal(tier_stats(k.tier).usage.images, good);
        assert_int_equal(tier_stats(k.tier).resting, i == 2);
        end_keyed(&k);
        /* Its length is wrong, but where it is all zeros. */
        options.flags = PKV_FILE_RESET;
        k = keyed_on(open_with(&options));
        assert_ok(put(&k, 0, 20));
        assert_int_equal(get(&k, 0, 20, NULL), 20);
        end_keyed(&k);
        end_scratch(&s);
    }
}

static void case_L13_a_file_that_is_removed_while_open_goes_on_and_is_gone_later(void **state) {
    (void)state;
    scratch s = begin_scratch();
    keyed k = keyed_in(s.path);
    assert_ok(put(&k, 0, 10));
    unlink(s.path);
    assert_int_equal(get(&k, 0, 10, NULL), 10);
    assert_ok(put(&k, 10, 10));
    assert_int_equal(get(&k, 0, 20, NULL), 20);
    keyed other = keyed_in(s.path); /* another file, of the same name */
    assert_int_equal(get(&other, 0, 20, NULL), 0);
    assert_ok(put(&other, 0, 3));
    end_keyed(&k);
    assert_int_equal(get(&other, 0, 20, NULL), 3);
    end_keyed(&other);
    other = keyed_in(s.path);
    assert_int_equal(get(&other, 0, 20, NULL), 3);
    end_keyed(&other);
    end_scratch(&s);
}

static void a_file_that_is_replaced_while_open_belongs_to_the_next(void **state) {
    (void)state;
    scratch s = begin_scratch();
    char second[200];
    (void)snprintf(second, sizeof second, "%s/second", s.folder);
    make_file(second, 5);
    wait_closed(second);
    keyed k = keyed_in(s.path);
    assert_ok(put(&k, 10, 10));
    assert_int_equal(rename(second, s.path), 0);
    assert_int_equal(get(&k, 10, 10, NULL), 10);
    keyed other = keyed_in(s.path);
    assert_int_equal(get(&other, 0, 20, NULL), 5);
    end_keyed(&k);
    end_keyed(&other);
    end_scratch(&s);
}

static void a_child_of_this_process_does_not_keep_the_file(void **state) {
    (void)state;
    scratch s = begin_scratch();
    keyed k = keyed_in(s.path);
    assert_ok(put(&k, 0, 4));
    (void)fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    while (child == 0) pause();
    end_keyed(&k);
    k = keyed_in(s.path);
    assert_int_equal(get(&k, 0, 4, NULL), 4);
    end_keyed(&k);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    end_scratch(&s);
}

static void buffers_of_pools_that_come_and_go_are_never_taken_for_each_others(void **state) {
    (void)state;
    scratch s = begin_scratch();
    keyed k = keyed_in(s.path);
    const pkv_tier_usage usage = tier_stats(k.tier).usage;
    print_message("engine %s, registered buffers: %s\n", usage.engine == PKV_IO_URING ? "io_uring" : "threads",
                  usage.registered_buffers ? "yes" : "no");
    if (usage.engine == PKV_IO_THREADS) assert_int_equal(usage.registered_buffers, 0);
    /* The first pool is the one whose memory is registered; then each next one is, at the same address as a rule. */
    release_pages(k.pool, k.pages, most_keys);
    end_pool(k.pool);
    for (uint32_t i = 0; i < 60; ++i) {
        keyed other = keyed_on(k.tier);
        assert_ok(put(&other, i % 30, 2));
        assert_int_equal(get(&other, i % 30, 2, NULL), 2);
        for (int page = 0; page < most_keys; ++page) soon(page_of(other.pool, other.pages[page]).count == 1);
        release_pages(other.pool, other.pages, most_keys);
        end_pool(other.pool);
    }
    assert_int_equal(tier_stats(k.tier).checksum_failures, 0);
    k = keyed_on(k.tier);
    assert_int_equal(get(&k, 0, 31, NULL), 31);
    end_keyed(&k);
    end_scratch(&s);
}

typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool reading, hold;
} gate;

static int32_t wait_at_gate(void *user, pkv_file_event *event) {
    gate *g = user;
    pthread_mutex_lock(&g->mutex);
    if (!event->write) g->reading = true;
    while (!event->write && g->hold) pthread_cond_wait(&g->changed, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
    return PKV_FAULT_NONE;
}

static bool is_reading(gate *g) {
    pthread_mutex_lock(&g->mutex);
    const bool reading = g->reading;
    pthread_mutex_unlock(&g->mutex);
    return reading;
}

static void buffers_of_a_pool_that_is_gone_are_registered_no_more_once_the_last_read_has_ended(void **state) {
    (void)state;
    scratch s = begin_scratch();
    gate g = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, true};
    pkv_file_tier_options options = file_options(s.path);
    options.fault = wait_at_gate;
    options.fault_user = &g;
    keyed k = keyed_on(open_with(&options));
    const int32_t registered = tier_stats(k.tier).usage.registered_buffers;
    assert_ok(put(&k, 0, 1));
    pkv_op *op = begin_get(&k, 0, 1, 0);
    soon(is_reading(&g));
    assert_ok(pkv_pool_destroy(k.pool));
    pthread_mutex_lock(&g.mutex);
    g.hold = false;
    pthread_cond_broadcast(&g.changed);
    pthread_mutex_unlock(&g.mutex);
    (void)pkv_op_wait(op, 60ull * one_second);
    assert_ok(pkv_op_close(op));
    soon(tier_stats(k.tier).open_requests == 0);
    int32_t left = registered;
    for (int i = 0; i < 2000 && left != 0; ++i) {
        left = tier_stats(k.tier).usage.registered_buffers;
        usleep(1000);
    }
    assert_ok(pkv_tier_close(k.tier));
    wait_closed(s.path);
    end_scratch(&s);
    if (!registered) skip(); /* the system registers none */
    assert_int_equal(left, 0);
}

#define on_both(test)                                                                                                  \
    {#test " (threads)", test, NULL, NULL, &engines[0]}, { #test " (io_uring)", test, NULL, NULL, &engines[1] }

int main(int argc, char **argv) {
    play_role(argc, argv, roles, sizeof roles / sizeof *roles);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_io_uring_threads_do_it),
        cmocka_unit_test(case_L10_a_file_that_cannot_be_preallocated_is_removed),
        cmocka_unit_test(a_file_system_without_fallocate_will_do),
        cmocka_unit_test(case_L16_a_file_whose_maker_was_killed_is_made_again),
        cmocka_unit_test(a_file_system_without_locks_is_refused),
        cmocka_unit_test(case_O05_without_locked_memory_buffers_are_plain),
        cmocka_unit_test(without_threads_there_is_no_tier),
        cmocka_unit_test(a_limit_of_the_file_size_is_an_error_and_no_signal),
        cmocka_unit_test(case_L19_no_path_leaks_descriptors),
        on_both(case_O07_more_loads_than_the_depth_are_all_done),
        on_both(case_L05_each_of_many_readers_gets_its_own_bytes),
        cmocka_unit_test(case_L13_a_file_that_is_cut_while_open_gives_misses),
        cmocka_unit_test(case_L13_a_file_that_is_removed_while_open_goes_on_and_is_gone_later),
        cmocka_unit_test(a_file_that_is_replaced_while_open_belongs_to_the_next),
        cmocka_unit_test(a_child_of_this_process_does_not_keep_the_file),
        cmocka_unit_test(buffers_of_pools_that_come_and_go_are_never_taken_for_each_others),
        cmocka_unit_test(buffers_of_a_pool_that_is_gone_are_registered_no_more_once_the_last_read_has_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
