/* SPDX-License-Identifier: Apache-2.0 */
/* Names of tokens and publication: what is findable, when, and under which page. Field cases D29 and E14. */
#include "support/support.h"

#include <pthread.h>
#include <time.h>

enum { page_tokens = 4 };

static pkv_table *unnamed(pkv_pool *pool) {
    const pkv_prompt prompt = prompt_of(NULL, 0);
    return admit(pool, &prompt, NULL);
}

static void case_D29_reserved_blocks_that_were_never_written_are_not_found(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    const pkv_prompt prompt = prompt_of(tokens, 16);
    pkv_table *table = admit(pool, &prompt, NULL);
    assert_int_equal(info_of(table).blocks, 4);
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    end_table(table);
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_int_equal(stats_of(pool).free_pages, 8);
    end_pool(pool);
}

static void written_blocks_are_found_only_once_they_are_committed(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[12];
    count_up(tokens, 12, 1);
    const pkv_prompt prompt = prompt_of(tokens, 12);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_rows(table, 0, 12, 1);
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_ok(pkv_table_commit(table, 7, NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 4);
    assert_ok(pkv_table_commit(table, 12, NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 12);
    assert_int_equal(info_of(table).published, 12);
    end_table(table);
    end_pool(pool);
}

static void committed_tokens_are_published_when_they_are_named_later(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[12];
    count_up(tokens, 12, 1);
    const pkv_prompt prompt = prompt_of(tokens, 12);
    pkv_table *table = unnamed(pool);
    write_and_commit(table, 10, 1);
    assert_int_equal(info_of(table).published, 0);
    assert_int_equal(stats_of(pool).index_blocks, 0);
    assert_ok(pkv_table_set_tokens(table, 0, 7, tokens));
    assert_int_equal(info_of(table).published, 4);
    assert_int_equal(probe_tokens(pool, &prompt), 4);
    assert_ok(pkv_table_set_tokens(table, 7, 5, tokens + 7));
    assert_int_equal(info_of(table).published, 8);
    assert_int_equal(probe_tokens(pool, &prompt), 8);
    write_and_commit(table, 12, 1);
    assert_int_equal(probe_tokens(pool, &prompt), 12);
    end_table(table);
    end_pool(pool);
}

static void names_leave_no_gap(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[8];
    count_up(tokens, 8, 1);
    pkv_table *table = unnamed(pool);
    assert_status(pkv_table_set_tokens(table, 1, 1, tokens), PKV_ERR_INVALID);
    assert_ok(pkv_table_set_tokens(table, 0, 3, tokens));
    assert_status(pkv_table_set_tokens(table, 4, 1, tokens), PKV_ERR_INVALID);
    assert_status(pkv_table_set_tokens(table, UINT64_MAX, 1, tokens), PKV_ERR_INVALID);
    assert_int_equal(info_of(table).named, 3);
    assert_ok(pkv_table_set_tokens(table, 3, 1, tokens));
    assert_ok(pkv_table_set_tokens(table, 4, 0, NULL));
    assert_int_equal(info_of(table).named, 4);
    end_table(table);
    end_pool(pool);
}

static void committed_ids_are_replaced_only_by_themselves(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[8];
    count_up(tokens, 8, 1);
    const pkv_prompt prompt = prompt_of(tokens, 8);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 6, 1);
    pkv_token changed[8];
    count_up(changed, 8, 1);
    changed[5] = 99;
    assert_status(pkv_table_set_tokens(table, 4, 4, changed + 4), PKV_ERR_INVALID);
    assert_status(pkv_table_set_tokens(table, 5, 1, changed + 5), PKV_ERR_INVALID);
    assert_int_equal(info_of(table).named, 8);
    assert_ok(pkv_table_set_tokens(table, 0, 8, tokens));
    assert_ok(pkv_table_set_tokens(table, 2, 2, tokens + 2));
    assert_int_equal(info_of(table).named, 8);
    write_and_commit(table, 8, 1);
    assert_int_equal(probe_tokens(pool, &prompt), 8);
    end_table(table);
    end_pool(pool);
}

static void a_replaced_id_forgets_the_names_behind_it(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[12], other = 77;
    count_up(tokens, 12, 1);
    const pkv_prompt prompt = prompt_of(tokens, 12);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 6, 1);
    assert_ok(pkv_table_set_tokens(table, 6, 1, &other));
    assert_int_equal(info_of(table).named, 7);
    write_and_commit(table, 12, 1);
    assert_int_equal(info_of(table).published, 4);
    assert_ok(pkv_table_set_tokens(table, 7, 5, tokens + 7));
    assert_int_equal(probe_tokens(pool, &prompt), 4);
    tokens[6] = other;
    assert_int_equal(probe_tokens(pool, &prompt), 12);
    end_table(table);
    end_pool(pool);
}

static void ids_set_again_keep_the_names_behind_them(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[12];
    count_up(tokens, 12, 1);
    const pkv_prompt prompt = prompt_of(tokens, 12);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 6, 1);
    assert_ok(pkv_table_set_tokens(table, 6, 2, tokens + 6));
    assert_int_equal(info_of(table).named, 12);
    end_table(table);
    end_pool(pool);
}

static void more_than_2_to_the_40_names_are_refused(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, page_tokens);
    pkv_table *table = unnamed(pool);
    const pkv_token token = 1;
    assert_status(pkv_table_set_tokens(table, 0, (UINT64_C(1) << 40) + 1, &token), PKV_ERR_LIMIT);
    assert_int_equal(info_of(table).named, 0);
    end_table(table);
    end_pool(pool);
}

static void case_E14_rejected_drafts_are_not_published(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[9];
    count_up(tokens, 9, 1);
    const pkv_prompt prompt = prompt_of(tokens, 7), drafted = prompt_of(tokens, 9);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 7, 1);
    assert_ok(pkv_table_reserve(table, 9));
    assert_ok(pkv_table_set_tokens(table, 7, 2, tokens + 7));
    write_rows(table, 7, 2, 1);
    assert_ok(pkv_table_truncate(table, 7, NULL));
    assert_ok(pkv_table_commit(table, 7, NULL));
    assert_int_equal(stats_of(pool).index_blocks, 1);
    assert_int_equal(info_of(table).published, 4);
    assert_int_equal(info_of(table).named, 7);
    assert_int_equal(info_of(table).blocks, 2);
    assert_int_equal(probe_tokens(pool, &drafted), 4);
    end_table(table);
    end_pool(pool);
}

static void other_ids_after_rejected_drafts_are_what_is_published(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[8];
    count_up(tokens, 8, 1);
    const pkv_prompt drafted = prompt_of(tokens, 8), prompt = prompt_of(tokens, 7);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 7, 1);
    assert_ok(pkv_table_set_tokens(table, 7, 1, tokens + 7));
    assert_ok(pkv_table_truncate(table, 7, NULL));
    pkv_token real[8];
    count_up(real, 8, 1);
    real[7] = 50;
    assert_ok(pkv_table_set_tokens(table, 7, 1, real + 7));
    write_and_commit(table, 8, 1);
    const pkv_prompt kept = prompt_of(real, 8);
    assert_int_equal(probe_tokens(pool, &drafted), 4);
    assert_int_equal(probe_tokens(pool, &kept), 8);
    end_table(table);
    end_pool(pool);
}

static void commit_never_changes_page_ids(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_token tokens[20];
    count_up(tokens, 20, 1);
    const pkv_prompt prompt = prompt_of(tokens, 20);
    pkv_table *first = admit(pool, &prompt, NULL), *second = admit(pool, &prompt, NULL);
    write_and_commit(first, 20, 1);
    pkv_page before[5], after[5];
    uint64_t blocks = 0;
    assert_ok(pkv_table_pages(second, 0, before, 5, &blocks));
    for (uint64_t end = 1; end <= 20; ++end) {
        write_and_commit(second, end, 1);
        assert_ok(pkv_table_pages(second, 0, after, 5, &blocks));
        assert_memory_equal(before, after, sizeof before);
    }
    end_table(first);
    end_table(second);
    end_pool(pool);
}

static void two_sequences_that_compute_the_same_keep_their_own_pages(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_token tokens[9];
    count_up(tokens, 9, 1);
    const pkv_prompt prompt = prompt_of(tokens, 9);
    pkv_table *first = admit(pool, &prompt, NULL), *second = admit(pool, &prompt, NULL);
    write_and_commit(first, 9, 1);
    write_and_commit(second, 9, 1);
    assert_int_not_equal(page_at(first, 0), page_at(second, 0));
    pkv_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.published_blocks, 2);
    assert_int_equal(stats.duplicate_blocks, 2);
    assert_int_equal(info_of(second).published, 8);
    pkv_table *third = admit(pool, &prompt, NULL);
    assert_int_equal(info_of(third).matched, 8);
    assert_int_equal(page_at(third, 0), page_at(first, 0));
    check_rows(third, 0, 8, 1);
    end_table(first);
    end_table(third);
    end_table(second); /* its own two were not published */
    stats = stats_of(pool);
    assert_int_equal(stats.cached_pages, 2);
    assert_int_equal(stats.free_pages, 14);
    end_pool(pool);
}

static void a_page_in_use_takes_the_name_of_one_that_nobody_holds(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_token tokens[9];
    count_up(tokens, 9, 1);
    const pkv_prompt prompt = prompt_of(tokens, 9);
    pkv_table *first = admit(pool, &prompt, NULL), *second = admit(pool, &prompt, NULL);
    write_and_commit(first, 9, 1);
    end_table(first);
    write_and_commit(second, 9, 1);
    const pkv_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.cached_pages, 0);
    assert_int_equal(stats.held_pages, 3);
    assert_int_equal(page_of(pool, page_at(second, 0)).published, 1);
    pkv_table *third = admit(pool, &prompt, NULL);
    assert_int_equal(page_at(third, 1), page_at(second, 1));
    check_rows(third, 0, 8, 1);
    end_table(second);
    end_table(third);
    end_pool(pool);
}

static void a_sequence_publishes_on_although_the_page_of_its_name_was_evicted(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_token tokens[13];
    count_up(tokens, 13, 1);
    const pkv_prompt prompt = prompt_of(tokens, 13);
    pkv_table *first = admit(pool, &prompt, NULL), *second = admit(pool, &prompt, NULL);
    write_and_commit(first, 9, 1);
    write_and_commit(second, 9, 1);
    end_table(first);
    assert_ok(pkv_pool_evict(pool, 0, 16, NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    write_and_commit(second, 13, 1);
    assert_int_equal(probe_tokens(pool, &prompt), 12);
    pkv_table *third = admit(pool, &prompt, NULL);
    check_rows(third, 0, 12, 1);
    end_table(second);
    end_table(third);
    end_pool(pool);
}

static void a_table_admitted_before_a_clear_publishes_nothing_more(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_token tokens[13];
    count_up(tokens, 13, 1);
    const pkv_prompt prompt = prompt_of(tokens, 13);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 8, 1);
    assert_ok(pkv_pool_clear(pool, NULL, NULL));
    write_and_commit(table, 13, 1);
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    check_rows(table, 0, 13, 1);
    end_table(table);
    assert_int_equal(stats_of(pool).free_pages, 16);
    end_pool(pool);
}

/* ---- work elsewhere ---- */

static pkv_sync after(uint64_t *counter, uint64_t value, uint64_t timeout_ns) {
    pkv_sync sync = PKV_SYNC_INIT;
    sync.kind = PKV_SYNC_HOST_COUNTER;
    sync.handle = counter;
    sync.value = value;
    sync.timeout_ns = timeout_ns;
    return sync;
}

static void a_counter_that_does_not_come_leaves_the_sequence_as_it_was(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[8];
    count_up(tokens, 8, 1);
    const pkv_prompt prompt = prompt_of(tokens, 8);
    pkv_table *table = admit(pool, &prompt, NULL), *fork = NULL;
    write_and_commit(table, 5, 1);
    write_rows(table, 5, 3, 1);
    _Alignas(8) uint64_t counter = 6;
    const pkv_sync late = after(&counter, 7, 1000000);
    uint16_t data[3 * 8] = {0};
    pkv_tensor rows = PKV_TENSOR_INIT;
    rows.data = data;
    rows.dtype = PKV_DTYPE_F16;
    rows.num_tokens = 3;
    assert_status(pkv_table_commit(table, 8, &late), PKV_ERR_TIMEOUT);
    assert_status(pkv_table_truncate(table, 2, &late), PKV_ERR_TIMEOUT);
    assert_status(pkv_table_write(table, 0, 0, 5, 3, &rows, &rows, &late), PKV_ERR_TIMEOUT);
    assert_status(pkv_table_gather(table, 0, 0, 0, 3, &rows, NULL, &late), PKV_ERR_TIMEOUT);
    assert_status(pkv_table_fork(table, &late, &fork), PKV_ERR_TIMEOUT);
    assert_status(pkv_table_clear(table, &late), PKV_ERR_TIMEOUT);
    assert_status(pkv_table_destroy(table, &late), PKV_ERR_TIMEOUT);
    assert_null(fork);
    assert_int_equal(data[0], 0);
    assert_int_equal(info_of(table).committed, 5);
    assert_int_equal(info_of(table).published, 4);
    check_rows(table, 0, 8, 1);
    counter = 7;
    assert_ok(pkv_table_commit(table, 8, &late));
    assert_ok(pkv_table_destroy(table, &late));
    end_pool(pool);
}

static void *raise_counter(void *counter) {
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    __atomic_store_n((uint64_t *)counter, 3, __ATOMIC_RELEASE);
    return NULL;
}

static void nothing_is_findable_before_the_counter_is_reached(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[8];
    count_up(tokens, 8, 1);
    const pkv_prompt prompt = prompt_of(tokens, 8);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_rows(table, 0, 8, 1);
    _Alignas(8) uint64_t counter = 0;
    const pkv_sync sync = after(&counter, 3, UINT64_C(10000000000));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, raise_counter, &counter), 0);
    assert_ok(pkv_table_commit(table, 8, &sync));
    assert_int_equal(__atomic_load_n(&counter, __ATOMIC_ACQUIRE), 3);
    assert_int_equal(probe_tokens(pool, &prompt), 8);
    pthread_join(thread, NULL);
    end_table(table);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_D29_reserved_blocks_that_were_never_written_are_not_found),
        cmocka_unit_test(written_blocks_are_found_only_once_they_are_committed),
        cmocka_unit_test(committed_tokens_are_published_when_they_are_named_later),
        cmocka_unit_test(names_leave_no_gap),
        cmocka_unit_test(committed_ids_are_replaced_only_by_themselves),
        cmocka_unit_test(a_replaced_id_forgets_the_names_behind_it),
        cmocka_unit_test(ids_set_again_keep_the_names_behind_them),
        cmocka_unit_test(more_than_2_to_the_40_names_are_refused),
        cmocka_unit_test(case_E14_rejected_drafts_are_not_published),
        cmocka_unit_test(other_ids_after_rejected_drafts_are_what_is_published),
        cmocka_unit_test(commit_never_changes_page_ids),
        cmocka_unit_test(two_sequences_that_compute_the_same_keep_their_own_pages),
        cmocka_unit_test(a_page_in_use_takes_the_name_of_one_that_nobody_holds),
        cmocka_unit_test(a_sequence_publishes_on_although_the_page_of_its_name_was_evicted),
        cmocka_unit_test(a_table_admitted_before_a_clear_publishes_nothing_more),
        cmocka_unit_test(a_counter_that_does_not_come_leaves_the_sequence_as_it_was),
        cmocka_unit_test(nothing_is_findable_before_the_counter_is_reached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
