/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of file tiers share: a scratch folder, the file's bytes, pages by numbered keys with known bytes, and processes
 * of the same program in another role. */
#ifndef PKV_TESTS_FILE_TIER_H
#define PKV_TESTS_FILE_TIER_H

#include "tier/tiered.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    file_header = 4096, /* header of the file; the records follow */
    file_record = 128,
    file_images = 32,     /* that the usual file has room for */
    file_payload = 65536, /* where images begin, for up to 480 of them */
    most_keys = 64        /* pages of the pool that is used by keys */
};

/* Waits for what happens on another thread or in another process; fails after 60 seconds. */
#define soon(condition)                                                                                                \
    do {                                                                                                               \
        for (int waited_ = 0; !(condition); ++waited_) {                                                               \
            if (waited_ == 200000) fail_msg("never came true: %s", #condition);                                        \
            usleep(300);                                                                                               \
        }                                                                                                              \
    } while (0)

/* ---- a scratch folder ---- */

typedef struct {
    char folder[128];
    char path[160]; /* of a file in it that is not there yet */
} scratch;

static inline scratch begin_scratch(void) {
    scratch s;
    const char *base = getenv("TMPDIR");
    if (base == NULL || base[0] == '\0' || strlen(base) > 90 || access(base, W_OK) != 0) base = "/tmp";
    (void)snprintf(s.folder, sizeof s.folder, "%s/pkv-file-XXXXXX", base);
    assert_non_null(mkdtemp(s.folder));
    (void)snprintf(s.path, sizeof s.path, "%s/images", s.folder);
    return s;
}

/* Only the file at `path` may be in it. */
static inline void end_scratch(scratch *s) {
    (void)unlink(s->path);
    assert_int_equal(rmdir(s->folder), 0);
}

/* ---- the file's bytes: of a file that no tier has open any more ---- */

/* A tier that was closed may end a little later, on a thread of its own: it has the file's lock until then. */
static inline int open_closed(const char *path, int flags) {
    const int fd = open(path, flags | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    soon(flock(fd, LOCK_EX | LOCK_NB) == 0);
    return fd;
}

static inline void wait_closed(const char *path) { close(open_closed(path, O_RDONLY)); }

typedef struct {
    unsigned char *bytes;
    size_t size;
} snapshot;

static inline snapshot read_file(const char *path) {
    snapshot copy = {NULL, 0};
    const int fd = open_closed(path, O_RDONLY);
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    copy.size = (size_t)info.st_size;
    copy.bytes = malloc(copy.size + 1);
    for (size_t done = 0; done < copy.size;) {
        const ssize_t got = pread(fd, copy.bytes + done, copy.size - done, (off_t)done);
        assert_true(got > 0);
        done += (size_t)got;
    }
    close(fd);
    return copy;
}

static inline void write_file(const char *path, const void *bytes, size_t size) {
    const int fd = open_closed(path, O_RDWR | O_CREAT);
    assert_int_equal(ftruncate(fd, 0), 0);
    for (size_t done = 0; done < size;) {
        const ssize_t put = pwrite(fd, (const char *)bytes + done, size - done, (off_t)done);
        assert_true(put > 0);
        done += (size_t)put;
    }
    close(fd);
}

static inline void patch_file(const char *path, uint64_t offset, const void *bytes, size_t size) {
    const int fd = open_closed(path, O_RDWR);
    assert_int_equal(pwrite(fd, bytes, size, (off_t)offset), size);
    close(fd);
}

static inline void assert_file(const char *path, const snapshot *expected) {
    const snapshot now = read_file(path);
    assert_int_equal(now.size, expected->size);
    assert_memory_equal(now.bytes, expected->bytes, now.size);
    free(now.bytes);
}

static inline bool file_is_there(const char *path) { return access(path, F_OK) == 0; }

/* ---- tiers and pools ---- */

static inline pkv_file_tier_options file_options(const char *path) {
    pkv_file_tier_options options = PKV_FILE_TIER_OPTIONS_INIT;
    options.path = path;
    options.capacity_bytes = (uint64_t)file_images * image_bytes;
    options.max_images = file_images;
    return options;
}

static inline pkv_tier *open_with(const pkv_file_tier_options *options) {
    pkv_tier *tier = NULL;
    assert_ok(pkv_tier_open_file(options, &tier));
    return tier;
}

static inline pkv_tier *open_file(const char *path) {
    const pkv_file_tier_options options = file_options(path);
    return open_with(&options);
}

/* Refused with this status and a message that has this text. */
static inline void refuse_open(const pkv_file_tier_options *options, pkv_status expected, const char *text) {
    pkv_tier *tier = NULL;
    assert_status(pkv_tier_open_file(options, &tier), expected);
    assert_null(tier);
    assert_message(text);
}

/* An open that may be refused or not: the status. */
static inline pkv_status try_open(const pkv_file_tier_options *options) {
    pkv_tier *tier = NULL;
    const pkv_status status = pkv_tier_open_file(options, &tier);
    if (status == PKV_OK) assert_ok(pkv_tier_close(tier));
    return status;
}

static inline bool has_io_uring(void) {
    scratch s = begin_scratch();
    pkv_file_tier_options options = file_options(s.path);
    options.engine = PKV_IO_URING;
    const pkv_status status = try_open(&options);
    assert_true(status == PKV_OK || status == PKV_ERR_UNSUPPORTED);
    end_scratch(&s);
    return status == PKV_OK;
}

/* ---- images by number ---- */

/* A tier, and a pool over it whose pages are all held: where images of numbered keys come from and go to. */
typedef struct {
    pkv_tier *tier;
    pkv_pool *pool;
    pkv_page pages[most_keys];
} keyed;

static inline pkv_tier_key key_of(uint32_t number) {
    test_random random = {number + 1};
    pkv_tier_key key;
    for (int i = 0; i < 4; ++i) {
        const uint64_t word = next_random(&random);
        memcpy(key.bytes + 8 * i, &word, 8);
    }
    return key;
}

static inline keyed keyed_on(pkv_tier *tier) {
    keyed k = {tier, pool_on(most_keys, tier, PKV_TIER_WRITE_BACK), {0}};
    assert_ok(pkv_pool_alloc(k.pool, 0, most_keys, k.pages));
    return k;
}

static inline keyed keyed_in(const char *path) { return keyed_on(open_file(path)); }

/* Nothing is under way, and no page is held by anybody else. */
static inline void end_keyed(keyed *k) {
    for (int i = 0; i < most_keys; ++i) soon(page_of(k->pool, k->pages[i]).count == 1);
    release_pages(k->pool, k->pages, most_keys);
    end_pool(k->pool);
    assert_ok(pkv_tier_close(k->tier));
}

/* The bytes of a page of the small geometry, all layers. */
static inline unsigned char *bytes_of_page(keyed *k, uint64_t page, uint64_t *bytes) {
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    assert_ok(pkv_pool_layout(k->pool, 0, 0, &layout));
    *bytes = layout.k.page;
    return (unsigned char *)layout.k_base + (uint64_t)k->pages[page] * layout.k.page;
}

static inline void fill_page(keyed *k, uint64_t page, uint32_t number) {
    uint64_t bytes = 0;
    unsigned char *at = bytes_of_page(k, page, &bytes);
    test_random random = {number + 77};
    for (uint64_t i = 0; i < bytes; ++i) at[i] = (unsigned char)next_random(&random);
}

static inline void assert_page(keyed *k, uint64_t page, uint32_t number) {
    uint64_t bytes = 0;
    const unsigned char *at = bytes_of_page(k, page, &bytes);
    test_random random = {number + 77};
    for (uint64_t i = 0; i < bytes; ++i)
        if (at[i] != (unsigned char)next_random(&random))
            fail_msg("byte %llu of image %u is wrong", (unsigned long long)i, number);
}

static inline pkv_status end_op(pkv_op *op, pkv_status *statuses, uint64_t count) {
    const pkv_status status = pkv_op_wait(op, 60ull * one_second);
    pkv_op_info info = PKV_OP_INFO_INIT;
    do {
        assert_ok(pkv_op_poll(op, &info, statuses, count));
        assert_int_equal(info.state, PKV_OP_ENDED);
    } while (info.buffers_free == 0 && usleep(200) == 0);
    assert_int_equal(info.status, status);
    assert_int_equal(info.done_items, info.num_items);
    assert_ok(pkv_op_close(op));
    return status;
}

/* Begins to store images [first, first + count). */
static inline pkv_op *begin_put(keyed *k, uint32_t first, uint64_t count, uint64_t timeout_ns) {
    pkv_tier_key keys[most_keys];
    assert_true(count <= most_keys);
    for (uint64_t i = 0; i < count; ++i) {
        keys[i] = key_of(first + (uint32_t)i);
        fill_page(k, i, first + (uint32_t)i);
    }
    pkv_op_options options = PKV_OP_OPTIONS_INIT;
    options.timeout_ns = timeout_ns;
    pkv_op *op = NULL;
    assert_ok(pkv_pool_store(k->pool, 0, count, keys, k->pages, NULL, &options, &op));
    return op;
}

static inline pkv_op *begin_get(keyed *k, uint32_t first, uint64_t count, uint64_t timeout_ns) {
    pkv_tier_key keys[most_keys];
    assert_true(count <= most_keys);
    for (uint64_t i = 0; i < count; ++i) {
        uint64_t bytes = 0;
        keys[i] = key_of(first + (uint32_t)i);
        unsigned char *at = bytes_of_page(k, i, &bytes);
        memset(at, 0xEE, bytes);
    }
    pkv_op_options options = PKV_OP_OPTIONS_INIT;
    options.timeout_ns = timeout_ns;
    pkv_op *op = NULL;
    assert_ok(pkv_pool_load(k->pool, 0, count, keys, k->pages, NULL, &options, &op));
    return op;
}

/* Stores images; the status of the first one that failed. */
static inline pkv_status put(keyed *k, uint32_t first, uint64_t count) {
    pkv_status statuses[most_keys];
    return end_op(begin_put(k, first, count, 0), statuses, count);
}

/* Loads images, compares every byte of those that come; returns how many did. `statuses` may be NULL. */
static inline uint64_t get(keyed *k, uint32_t first, uint64_t count, pkv_status *statuses) {
    pkv_status own[most_keys];
    if (statuses == NULL) statuses = own;
    (void)end_op(begin_get(k, first, count, 0), statuses, count);
    uint64_t good = 0;
    for (uint64_t i = 0; i < count; ++i)
        if (statuses[i] == PKV_OK) {
            assert_page(k, i, first + (uint32_t)i);
            ++good;
        }
    return good;
}

static inline pkv_status get_one(keyed *k, uint32_t number) {
    pkv_status status = PKV_OK;
    (void)get(k, number, 1, &status);
    return status;
}

/* Makes a file with images [0, count), and closes it. */
static inline void make_file(const char *path, uint64_t count) {
    keyed k = keyed_in(path);
    if (count > 0) assert_ok(put(&k, 0, count));
    end_keyed(&k);
}

/* ---- the same program in another role ----
 *
 * main() calls play_role() first, with its roles. A role gets the words after its name, and its result is the exit status:
 * 0 is good, a status of the library is given as -status. */

typedef struct {
    const char *name;
    int (*play)(char **words);
} file_role;

static const char *role_program;

static inline void play_role(int argc, char **argv, const file_role *roles, size_t num_roles) {
    role_program = argv[0];
    if (argc < 2) return;
    for (size_t i = 0; i < num_roles; ++i)
        if (strcmp(argv[1], roles[i].name) == 0) exit(roles[i].play(argv + 2));
    fprintf(stderr, "no role %s\n", argv[1]);
    exit(120);
}

typedef struct {
    pid_t child;
    int ready;
} role_process;

/* In a role: the other process may go on. */
static inline void say_ready(void) { (void)!write(STDOUT_FILENO, "r", 1); }

static inline role_process begin_role(const char *name, const char *word, const char *second) {
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    (void)fflush(NULL);
    const role_process role = {fork(), ends[0]};
    assert_true(role.child >= 0);
    if (role.child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl(role_program, role_program, name, word, second, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    return role;
}

static inline void wait_ready(const role_process *role) {
    char byte = 0;
    assert_int_equal(read(role->ready, &byte, 1), 1);
}

/* Its exit status; 1000 and more: a signal. */
static inline int end_role(role_process *role) {
    int status = 0;
    close(role->ready);
    assert_int_equal(waitpid(role->child, &status, 0), role->child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static inline int run_role(const char *name, const char *word, const char *second) {
    role_process role = begin_role(name, word, second);
    return end_role(&role);
}

static inline void kill_role(role_process *role) {
    assert_int_equal(kill(role->child, SIGKILL), 0);
    assert_int_equal(end_role(role), 1000 + SIGKILL);
}

/* In a role: root becomes nobody. */
static inline void drop_root(void) {
    if (geteuid() != 0) return;
    if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) exit(121);
}

static inline bool says(const char *text) {
    char message[512];
    pkv_last_error(message, sizeof message);
    return strstr(message, text) != NULL;
}

#endif
