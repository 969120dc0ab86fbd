/* SPDX-License-Identifier: Apache-2.0 */
/* A process that stores into a file tier is killed at random moments; after each time everything is read back: each image is
 * right, or a miss. The file goes on from life to life, with more keys than it has room for, so that slots are used again. */
#include "tier/tiered.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Under a sanitizer a life takes longer to begin: fewer of them. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { lives = 20 };
#else
enum { lives = 200 };
#endif
enum { pages = 16, keys_in_all = 256, capacity_images = 160, longest_life_us = 12000 };

static const char *program;

static pkv_tier *open_file(const char *path, uint32_t flags) {
    pkv_file_tier_options options = PKV_FILE_TIER_OPTIONS_INIT;
    options.path = path;
    options.capacity_bytes = (uint64_t)capacity_images * image_bytes;
    options.max_images = capacity_images;
    options.flags = flags;
    pkv_tier *tier = NULL;
    assert_ok(pkv_tier_open_file(&options, &tier));
    return tier;
}

static pkv_tier_key key_of(uint32_t number) {
    test_random random = {number + 1};
    pkv_tier_key key;
    for (int i = 0; i < 4; ++i) {
        const uint64_t word = next_random(&random);
        memcpy(key.bytes + 8 * i, &word, 8);
    }
    return key;
}

/* The bytes of a page, over its layers, are a function of the key's number. */
static unsigned char *page_bytes(pkv_pool *pool, pkv_page page, uint64_t *bytes) {
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    assert_ok(pkv_pool_layout(pool, 0, 0, &layout));
    *bytes = layout.k.page;
    return (unsigned char *)layout.k_base + (uint64_t)page * layout.k.page;
}

static void fill(pkv_pool *pool, pkv_page page, uint32_t number) {
    uint64_t bytes = 0;
    unsigned char *at = page_bytes(pool, page, &bytes);
    test_random random = {number + 77};
    for (uint64_t i = 0; i < bytes; ++i) at[i] = (unsigned char)next_random(&random);
}

static bool is_right(pkv_pool *pool, pkv_page page, uint32_t number) {
    uint64_t bytes = 0;
    const unsigned char *at = page_bytes(pool, page, &bytes);
    test_random random = {number + 77};
    for (uint64_t i = 0; i < bytes; ++i)
        if (at[i] != (unsigned char)next_random(&random)) return false;
    return true;
}

/* The process that is killed: stores keys in random order, as fast as it can, for ever. */
static _Noreturn void store_until_killed(const char *path, uint64_t seed) {
    pkv_tier *tier = open_file(path, 0);
    pkv_pool *pool = pool_on(pages, tier, PKV_TIER_WRITE_THROUGH);
    pkv_page held[pages];
    assert_ok(pkv_pool_alloc(pool, 0, pages, held));
    test_random random = {seed};
    (void)!write(STDOUT_FILENO, "r", 1); /* ready */
    for (;;) {
        pkv_tier_key keys[pages];
        for (int i = 0; i < pages; ++i) {
            const uint32_t number = (uint32_t)random_below(&random, keys_in_all);
            keys[i] = key_of(number);
            fill(pool, held[i], number);
        }
        pkv_op *op = NULL;
        assert_ok(pkv_pool_store(pool, 0, pages, keys, held, NULL, NULL, &op));
        (void)pkv_op_wait(op, UINT64_MAX);
        assert_ok(pkv_op_close(op));
    }
}

/* Starts it, lets it live for so long, kills it. */
static void one_life(const char *path, uint64_t seed, uint64_t life_us) {
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char text[32];
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
        dup2(ready[1], STDOUT_FILENO);
        execl(program, program, "store", path, text, (char *)NULL);
        _exit(127);
    }
    close(ready[1]);
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    const struct timespec life = {0, (long)life_us * 1000};
    nanosleep(&life, NULL);
    kill(child, SIGKILL);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(ready[0]);
}

/* Reads all keys; counts those that are there. */
static void read_back(const char *path, uint64_t *right, uint64_t *missing, uint64_t *recovered) {
    pkv_tier *tier = open_file(path, 0);
    pkv_pool *pool = pool_on(pages, tier, PKV_TIER_READ_ONLY);
    pkv_page held[pages];
    assert_ok(pkv_pool_alloc(pool, 0, pages, held));
    for (uint32_t first = 0; first < keys_in_all; first += pages) {
        pkv_tier_key keys[pages];
        for (uint32_t i = 0; i < pages; ++i) keys[i] = key_of(first + i);
        pkv_op *op = NULL;
        pkv_op_info info = PKV_OP_INFO_INIT;
        pkv_status statuses[pages];
        assert_ok(pkv_pool_load(pool, 0, pages, keys, held, NULL, NULL, &op));
        (void)pkv_op_wait(op, UINT64_MAX);
        assert_ok(pkv_op_poll(op, &info, statuses, pages));
        assert_ok(pkv_op_close(op));
        for (uint32_t i = 0; i < pages; ++i) {
            if (statuses[i] == PKV_OK) {
                assert_true(is_right(pool, held[i], first + i));
                ++*right;
            } else {
                ++*missing;
            }
        }
    }
    const pkv_tier_stats stats = tier_stats(tier);
    assert_true(stats.usage.recovered_images <= capacity_images);
    *recovered += stats.usage.recovered_images;
    release_pages(pool, held, pages);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

static void after_a_kill_at_any_moment_each_image_is_right_or_a_miss(void **state) {
    (void)state;
    char path[] = "/tmp/pkv-killed-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_ok(pkv_tier_close(open_file(path, PKV_FILE_RESET)));
    test_random random = {20261130};
    uint64_t right = 0, missing = 0, recovered = 0;
    for (int life = 0; life < lives; ++life) {
        one_life(path, next_random(&random), random_below(&random, longest_life_us));
        read_back(path, &right, &missing, &recovered);
    }
    printf("%d lives: %llu images read back right, %llu misses, %llu recovered\n", lives, (unsigned long long)right,
           (unsigned long long)missing, (unsigned long long)recovered);
    assert_true(right > 0);
    unlink(path);
}

int main(int argc, char **argv) {
    program = argv[0];
    if (argc == 4 && strcmp(argv[1], "store") == 0) store_until_killed(argv[2], strtoull(argv[3], NULL, 10));
    const struct CMUnitTest tests[] = {cmocka_unit_test(after_a_kill_at_any_moment_each_image_is_right_or_a_miss)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
