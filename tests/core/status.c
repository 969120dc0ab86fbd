/* SPDX-License-Identifier: Apache-2.0 */
/* Statuses, the last error of a thread, versions, the log, digests. */
#include "support/support.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Takes the place of the C library's: refuses transparent huge pages while this is set, so that there is a warning. */
static bool refuse_huge_pages;

int madvise(void *address, size_t length, int advice) {
    if (refuse_huge_pages && advice == MADV_HUGEPAGE) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, address, length, advice);
}

static void every_status_has_its_name(void **state) {
    (void)state;
    const struct {
        pkv_status status;
        const char *name;
    } all[] = {
#define STATUS(name) {name, #name}
        STATUS(PKV_OK),
        STATUS(PKV_ERR_INVALID),
        STATUS(PKV_ERR_HANDLE),
        STATUS(PKV_ERR_CLOSED),
        STATUS(PKV_ERR_FORKED),
        STATUS(PKV_ERR_NO_MEMORY),
        STATUS(PKV_ERR_NO_PAGES),
        STATUS(PKV_ERR_NO_SPACE),
        STATUS(PKV_ERR_NOT_FOUND),
        STATUS(PKV_ERR_NOT_RESIDENT),
        STATUS(PKV_ERR_LOST),
        STATUS(PKV_ERR_STATE),
        STATUS(PKV_ERR_BUSY),
        STATUS(PKV_ERR_AGAIN),
        STATUS(PKV_ERR_TIMEOUT),
        STATUS(PKV_ERR_CANCELLED),
        STATUS(PKV_ERR_UNSUPPORTED),
        STATUS(PKV_ERR_MISMATCH),
        STATUS(PKV_ERR_IO),
        STATUS(PKV_ERR_LIMIT),
        STATUS(PKV_ERR_CAPTURE),
        STATUS(PKV_ERR_INTERNAL),
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        assert_int_equal(all[i].status, -(int)i); /* numbers never change */
        assert_string_equal(pkv_status_string(all[i].status), all[i].name);
    }
    const pkv_status none[] = {1, INT32_MAX, INT32_MIN, PKV_ERR_INTERNAL - 1};
    for (size_t i = 0; i < sizeof none / sizeof *none; ++i)
        assert_string_equal(pkv_status_string(none[i]), "PKV_ERR_UNKNOWN");
}

static void library_and_headers_are_of_one_version(void **state) {
    (void)state;
    assert_int_equal(pkv_version_number(), PKV_VERSION_NUMBER);
    assert_string_equal(pkv_version_string(), PKV_VERSION_STRING);
    char built[32];
    snprintf(built, sizeof built, "%d.%d.%d", PKV_VERSION_MAJOR, PKV_VERSION_MINOR, PKV_VERSION_PATCH);
    assert_string_equal(pkv_version_string(), built);
}

/* ---- last error ---- */

static void fail_with_page(pkv_pool *pool, pkv_page page) {
    assert_status(pkv_pool_retain(pool, 0, 1, &page), PKV_ERR_INVALID);
}

static void the_message_stays_until_the_next_failure(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 4);
    fail_with_page(pool, 1234);
    assert_message("1234");
    stats_of(pool);
    assert_int_equal(evict_pages(pool, 1), 0);
    assert_message("1234");
    fail_with_page(pool, 5678);
    assert_message("5678");
    end_pool(pool);
    assert_message("5678"); /* outlives the pool */
}

static void a_message_is_cut_to_fit_and_its_length_told(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 4);
    fail_with_page(pool, 1234);
    char whole[512];
    const size_t needed = pkv_last_error(whole, sizeof whole);
    assert_int_equal(needed, strlen(whole) + 1);
    assert_int_equal(pkv_last_error(NULL, 0), needed);
    for (size_t capacity = 0; capacity <= needed + 1; ++capacity) {
        char buffer[520];
        memset(buffer, 'x', sizeof buffer);
        assert_int_equal(pkv_last_error(buffer, capacity), needed);
        for (size_t i = capacity; i < sizeof buffer; ++i) assert_int_equal(buffer[i], 'x');
        if (capacity == 0) continue;
        const size_t kept = capacity < needed ? capacity - 1 : needed - 1;
        assert_memory_equal(buffer, whole, kept);
        assert_int_equal(buffer[kept], '\0');
    }
    end_pool(pool);
}

static void *fail_elsewhere(void *argument) {
    char message[64];
    if (pkv_last_error(message, sizeof message) != 1 || message[0] != '\0') return (void *)"a new thread has a message";
    const pkv_page page = 777;
    if (pkv_pool_retain(argument, 0, 1, &page) != PKV_ERR_INVALID) return (void *)"no failure";
    pkv_last_error(message, sizeof message);
    return strstr(message, "777") != NULL ? NULL : (void *)"not this thread's message";
}

static void each_thread_has_a_message_of_its_own(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 4);
    fail_with_page(pool, 1234);
    pthread_t thread;
    void *problem;
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, pool), 0);
    pthread_join(thread, &problem);
    assert_null(problem);
    assert_message("1234");
    end_pool(pool);
}

/* ---- log ---- */

struct log {
    int messages[4];
    char last[512];
};

static void receive(void *user, int32_t level, const char *message) {
    struct log *log = user;
    if (level >= 1 && level <= 3) ++log->messages[level];
    snprintf(log->last, sizeof log->last, "%s", message);
}

/* A pool that wants huge pages and does not get any: one warning. */
static struct log log_of_a_degraded_pool(pkv_log_function function, int32_t max_level) {
    struct log log = {{0}, ""};
    pkv_set_log(function, &log, max_level);
    const pkv_group_options group = small_group(65536); /* 16 MiB */
    refuse_huge_pages = true;
    pkv_pool *pool = make_pool_of(&group, 4, 0);
    refuse_huge_pages = false;
    assert_int_equal(stats_of(pool).memory_kind, PKV_MEMORY_KIND_PAGES);
    pkv_set_log(NULL, NULL, 0);
    end_pool(pool);
    return log;
}

static void a_pool_without_huge_pages_logs_a_warning(void **state) {
    (void)state;
    const struct log log = log_of_a_degraded_pool(receive, PKV_LOG_WARNING);
    assert_int_equal(log.messages[PKV_LOG_WARNING], 1);
    assert_int_equal(log.messages[PKV_LOG_ERROR] + log.messages[PKV_LOG_INFO], 0);
    assert_non_null(strstr(log.last, "huge pages"));
    assert_null(strchr(log.last, '\n'));
}

static void messages_above_the_level_are_not_sent(void **state) {
    (void)state;
    const struct log log = log_of_a_degraded_pool(receive, PKV_LOG_ERROR);
    assert_int_equal(log.messages[PKV_LOG_WARNING] + log.messages[PKV_LOG_INFO], 0);
    const struct log none = log_of_a_degraded_pool(receive, 0);
    assert_int_equal(none.messages[PKV_LOG_WARNING] + none.messages[PKV_LOG_ERROR], 0);
}

static void what_was_chosen_at_creation_is_logged_as_information(void **state) {
    (void)state;
    struct log log = {{0}, ""};
    pkv_set_log(receive, &log, PKV_LOG_INFO);
    pkv_pool *pool = make_pool(4, 4);
    end_pool(pool);
    pkv_set_log(NULL, NULL, 0);
    assert_true(log.messages[PKV_LOG_INFO] > 0);
}

static void without_a_receiver_there_is_no_message(void **state) {
    (void)state;
    const struct log log = log_of_a_degraded_pool(NULL, PKV_LOG_INFO);
    assert_string_equal(log.last, "");
}

static void nothing_is_printed(void **state) {
    (void)state;
    fflush(NULL);
    const int saved[2] = {dup(1), dup(2)};
    FILE *file = tmpfile();
    assert_non_null(file);
    dup2(fileno(file), 1);
    dup2(fileno(file), 2);
    log_of_a_degraded_pool(NULL, 0);
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    pkv_pool *pool;
    const pkv_status status = pkv_pool_create(&options, &pool);
    pkv_pool_destroy(NULL);
    fflush(NULL);
    dup2(saved[0], 1);
    dup2(saved[1], 2);
    close(saved[0]);
    close(saved[1]);
    fseek(file, 0, SEEK_END);
    assert_int_equal(ftell(file), 0);
    fclose(file);
    assert_int_equal(status, PKV_ERR_INVALID);
}

/* ---- digests ---- */

static void digest_of(const pkv_bytes *parts, uint64_t num_parts, uint8_t *digest) {
    uint8_t guarded[PKV_DIGEST_BYTES + 8];
    memset(guarded, 0xAB, sizeof guarded);
    assert_ok(pkv_digest(parts, num_parts, guarded));
    for (int i = PKV_DIGEST_BYTES; i < PKV_DIGEST_BYTES + 8; ++i) assert_int_equal(guarded[i], 0xAB);
    memcpy(digest, guarded, PKV_DIGEST_BYTES);
}

static void digests_of_other_lists_differ(void **state) {
    (void)state;
    const pkv_bytes lists[][3] = {
        {{"ab", 2}, {"c", 1}, {NULL, 0}},   {{"a", 1}, {"bc", 2}, {NULL, 0}}, {{"abc", 3}, {NULL, 0}, {NULL, 0}},
        {{NULL, 0}, {"abc", 3}, {NULL, 0}}, {{"c", 1}, {"ab", 2}, {NULL, 0}}, {{"ab", 2}, {"d", 1}, {NULL, 0}},
    };
    enum { lists_count = sizeof lists / sizeof *lists, count = lists_count + 4 };
    uint8_t digests[count][PKV_DIGEST_BYTES];
    for (int i = 0; i < lists_count; ++i) digest_of(lists[i], 3, digests[i]);
    digest_of(lists[0], 2, digests[lists_count]); /* one part less, an empty one */
    digest_of(lists[0], 1, digests[lists_count + 1]);
    digest_of(NULL, 0, digests[lists_count + 2]);
    digest_of(&lists[3][0], 1, digests[lists_count + 3]); /* one empty part */
    for (int i = 0; i < count; ++i)
        for (int j = 0; j < i; ++j) assert_memory_not_equal(digests[i], digests[j], PKV_DIGEST_BYTES);
    uint8_t again[PKV_DIGEST_BYTES];
    digest_of(lists[0], 3, again);
    assert_memory_equal(again, digests[0], PKV_DIGEST_BYTES);
}

static void every_byte_of_a_part_counts(void **state) {
    (void)state;
    enum { size = 1000 };
    uint8_t bytes[size] = {0};
    uint8_t plain[PKV_DIGEST_BYTES];
    uint8_t changed[PKV_DIGEST_BYTES];
    const pkv_bytes part = {bytes, size};
    digest_of(&part, 1, plain);
    for (int i = 0; i < size; ++i) {
        bytes[i] = 0x80;
        digest_of(&part, 1, changed);
        bytes[i] = 0;
        assert_memory_not_equal(plain, changed, PKV_DIGEST_BYTES);
    }
}

static void null_pointers_to_digest_are_invalid(void **state) {
    (void)state;
    uint8_t digest[PKV_DIGEST_BYTES];
    const pkv_bytes good = {"a", 1};
    const pkv_bytes bad[2] = {{"a", 1}, {NULL, 1}};
    assert_status(pkv_digest(&good, 1, NULL), PKV_ERR_INVALID);
    assert_status(pkv_digest(NULL, 1, digest), PKV_ERR_INVALID);
    assert_status(pkv_digest(bad, 2, digest), PKV_ERR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_name),
        cmocka_unit_test(library_and_headers_are_of_one_version),
        cmocka_unit_test(the_message_stays_until_the_next_failure),
        cmocka_unit_test(a_message_is_cut_to_fit_and_its_length_told),
        cmocka_unit_test(each_thread_has_a_message_of_its_own),
        cmocka_unit_test(a_pool_without_huge_pages_logs_a_warning),
        cmocka_unit_test(messages_above_the_level_are_not_sent),
        cmocka_unit_test(what_was_chosen_at_creation_is_logged_as_information),
        cmocka_unit_test(without_a_receiver_there_is_no_message),
        cmocka_unit_test(nothing_is_printed),
        cmocka_unit_test(digests_of_other_lists_differ),
        cmocka_unit_test(every_byte_of_a_part_counts),
        cmocka_unit_test(null_pointers_to_digest_are_invalid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
