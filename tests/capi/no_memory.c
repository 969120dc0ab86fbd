/* SPDX-License-Identifier: Apache-2.0 */
/* Field case Q14: memory runs out inside each entry. For every call the n-th allocation fails, for n = 0, 1, 2 ... until the
 * call needs no more: it gives PKV_ERR_NO_MEMORY with nothing changed, or PKV_OK. */
#include "capi/allocation.h"

/* ---- what calls work on ---- */

enum { num_tokens = 40, page_tokens = 4 };

struct fixture {
    pkv_pool *pool;
    pkv_namespace ns;
    pkv_media media[2];
    pkv_token tokens[num_tokens];
    pkv_prompt prompt; /* 40 tokens with media; 5 blocks of them are cached */
    pkv_table *table;  /* admitted with the prompt, 6 tokens committed beyond the match */
    pkv_table *empty;
    pkv_batch *batch;
    pkv_page pages[4]; /* held, not published */
    uint16_t rows[num_tokens * 8];
    pkv_tensor tensor;
    pkv_pool *new_pool;
    pkv_table *new_table;
    pkv_batch *new_batch;
    unsigned char exported[8192]; /* the table's committed part */
    uint64_t exported_size;
};

static pkv_status make_fresh_pool(struct fixture *f, uint32_t copy_threads, uint32_t events) {
    const pkv_group_options group = small_group(64);
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.copy_threads = copy_threads;
    options.event_capacity = events;
    return pkv_pool_create(&options, &f->new_pool);
}

static void begin(struct fixture *f) {
    memset(f, 0, sizeof *f);
    f->pool = make_pool(64, page_tokens);
    count_up(f->tokens, num_tokens, 1);
    f->ns = (pkv_namespace)PKV_NAMESPACE_INIT;
    f->ns.salt = bytes_of("tenant");
    f->media[0] = (pkv_media){3, 2, bytes_of("a digest that is longer than short strings are")};
    f->media[1] = (pkv_media){29, 2, bytes_of("another digest that is longer than short strings are")};
    f->prompt = prompt_of(f->tokens, num_tokens);
    f->prompt.ns = &f->ns;
    f->prompt.media = f->media;
    f->prompt.num_media = 2;
    pkv_prompt head = f->prompt;
    head.num_tokens = 20;
    head.num_media = 1;
    publish_cached(f->pool, &head);
    f->table = admit(f->pool, &f->prompt, NULL);
    write_and_commit(f->table, 26, 1);
    assert_ok(pkv_table_create(f->pool, &f->empty));
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = 1;
    assert_ok(pkv_batch_create(f->pool, &options, &f->batch));
    assert_ok(pkv_pool_alloc(f->pool, 0, 4, f->pages));
    f->tensor = (pkv_tensor)PKV_TENSOR_INIT;
    f->tensor.data = f->rows;
    f->tensor.dtype = PKV_DTYPE_F16;
    f->tensor.num_tokens = num_tokens;
    assert_ok(pkv_table_export(f->table, f->exported, sizeof f->exported, &f->exported_size));
}

static void end(struct fixture *f) {
    if (f->new_table != NULL) assert_ok(pkv_table_destroy(f->new_table, NULL));
    if (f->new_batch != NULL) assert_ok(pkv_batch_destroy(f->new_batch));
    if (f->new_pool != NULL) end_pool(f->new_pool);
    assert_ok(pkv_batch_destroy(f->batch));
    assert_ok(pkv_table_destroy(f->table, NULL));
    assert_ok(pkv_table_destroy(f->empty, NULL));
    pkv_page taken[10];
    pkv_page_info info = page_of(f->pool, f->pages[0]);
    if (info.count > 0) release_pages(f->pool, f->pages, 4);
    /* What a lookup took: the blocks of the prompt, found again. */
    while (stats_of(f->pool).held_pages > 0) {
        const uint64_t blocks = lookup_tokens(f->pool, &f->prompt, taken, 10) / page_tokens;
        release_pages(f->pool, taken, blocks);
        release_pages(f->pool, taken, blocks);
    }
    end_pool(f->pool);
}

/* ---- the calls ---- */

static pkv_status call_pool_create(struct fixture *f) { return make_fresh_pool(f, 0, 0); }
static pkv_status call_pool_create_with_threads(struct fixture *f) { return make_fresh_pool(f, 2, 0); }
static pkv_status call_pool_create_with_events(struct fixture *f) { return make_fresh_pool(f, 0, 100); }
static pkv_status call_lookup(struct fixture *f) {
    pkv_page pages[10];
    pkv_match match = PKV_MATCH_INIT;
    return pkv_pool_lookup(f->pool, &f->prompt, PKV_MATCH_ALL, pages, 10, &match);
}
static pkv_status call_probe(struct fixture *f) {
    pkv_match match = PKV_MATCH_INIT;
    return pkv_pool_probe(f->pool, &f->prompt, PKV_MATCH_ALL, &match);
}
static pkv_status call_publish(struct fixture *f) {
    return pkv_pool_publish(f->pool, 0, &f->prompt, 5, 4, f->pages, NULL);
}
static pkv_status call_publish_in_a_new_namespace(struct fixture *f) {
    f->ns.salt = bytes_of("another tenant");
    const pkv_status status = pkv_pool_publish(f->pool, 0, &f->prompt, 0, 4, f->pages, NULL);
    f->ns.salt = bytes_of("tenant");
    return status;
}
static pkv_status call_copy_pages(struct fixture *f) {
    return pkv_pool_copy_pages(f->pool, 0, 2, f->pages, f->pages + 2, NULL);
}
static pkv_status call_pool_write(struct fixture *f) {
    const pkv_slot slots[2] = {(pkv_slot)f->pages[0] * page_tokens, (pkv_slot)f->pages[1] * page_tokens};
    return pkv_pool_write(f->pool, 0, 0, 2, slots, &f->tensor, &f->tensor, NULL);
}
static pkv_status call_pool_gather(struct fixture *f) {
    return pkv_pool_gather(f->pool, 0, 0, 4, f->pages, 1, 14, &f->tensor, NULL, NULL);
}
static pkv_status call_table_create(struct fixture *f) { return pkv_table_create(f->pool, &f->new_table); }
static pkv_status call_many_tables(struct fixture *f) { /* past the room that handles have */
    pkv_status status = PKV_OK;
    pkv_table *tables[1100];
    uint64_t made = 0;
    while (made < 1100 && status == PKV_OK) {
        status = pkv_table_create(f->pool, &tables[made]);
        made += status == PKV_OK;
    }
    while (made > 0) pkv_table_destroy(tables[--made], NULL);
    return status;
}
static pkv_status call_admit(struct fixture *f) { return pkv_table_admit(f->empty, &f->prompt, NULL, NULL); }
static pkv_status call_admit_in_a_new_namespace(struct fixture *f) {
    f->ns.salt = bytes_of("another tenant");
    const pkv_status status = pkv_table_admit(f->empty, &f->prompt, NULL, NULL);
    f->ns.salt = bytes_of("tenant");
    return status;
}
static pkv_status call_reserve(struct fixture *f) { return pkv_table_reserve(f->table, 100); }
static pkv_status call_set_tokens(struct fixture *f) {
    return pkv_table_set_tokens(f->table, 40, num_tokens, f->tokens);
}
static pkv_status call_table_write(struct fixture *f) {
    return pkv_table_write(f->table, 0, 0, 26, 14, &f->tensor, &f->tensor, NULL);
}
static pkv_status call_commit(struct fixture *f) { return pkv_table_commit(f->table, 40, NULL); }
static pkv_status call_table_gather(struct fixture *f) {
    return pkv_table_gather(f->table, 0, 0, 0, 26, &f->tensor, NULL, NULL);
}
static pkv_status call_slots(struct fixture *f) {
    pkv_slot slots[14];
    return pkv_table_slots(f->table, 0, 26, 14, slots);
}
static pkv_status call_fork(struct fixture *f) { return pkv_table_fork(f->table, NULL, &f->new_table); }
static pkv_status call_batch_create(struct fixture *f) {
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = 7;
    return pkv_batch_create(f->pool, &options, &f->new_batch);
}
static pkv_status call_batch_reserve(struct fixture *f) {
    const uint32_t num_new = 60;
    return pkv_batch_reserve(f->batch, 1, &f->table, &num_new, NULL);
}

/* A pin that ends: takes a timer for each block. */
static const pkv_retention brief = {sizeof brief, 90, 1, UINT64_C(3600000000000)};

static pkv_status call_set_retention(struct fixture *f) {
    return pkv_pool_set_retention(f->pool, &f->prompt, 0, UINT64_MAX, &brief, NULL);
}
static pkv_status call_set_namespace_retention(struct fixture *f) {
    const pkv_retention *const retention = &brief;
    f->ns.salt = bytes_of("another tenant");
    const pkv_status status = pkv_pool_set_namespace_retention(f->pool, &f->ns, retention);
    f->ns.salt = bytes_of("tenant");
    return status;
}
static pkv_status call_keys(struct fixture *f) {
    pkv_key keys[10];
    uint64_t num_keys;
    return pkv_pool_keys(f->pool, &f->prompt, keys, 10, &num_keys);
}
static pkv_status call_table_set_retention(struct fixture *f) {
    return pkv_table_set_retention(f->table, 0, UINT64_MAX, &brief);
}
static pkv_status call_accept(struct fixture *f) {
    const uint64_t positions[3] = {27, 29, 30};
    return pkv_table_accept(f->table, 3, positions, NULL);
}
static pkv_status call_export(struct fixture *f) {
    return pkv_table_export(f->table, f->exported, sizeof f->exported, &f->exported_size);
}
static pkv_status call_import(struct fixture *f) { return pkv_table_import(f->empty, f->exported, f->exported_size); }

static const struct entry {
    const char *name;
    pkv_status (*call)(struct fixture *f);
    bool allocates;
} entries[] = {
    {"pkv_pool_create", call_pool_create, true},
    {"pkv_pool_create with threads", call_pool_create_with_threads, true},
    {"pkv_pool_create with events", call_pool_create_with_events, true},
    {"pkv_pool_lookup", call_lookup, true},
    {"pkv_pool_probe", call_probe, true},
    {"pkv_pool_publish", call_publish, true},
    {"pkv_pool_publish in a new namespace", call_publish_in_a_new_namespace, true},
    {"pkv_pool_copy_pages", call_copy_pages, false},
    {"pkv_pool_write", call_pool_write, false},
    {"pkv_pool_gather", call_pool_gather, false},
    {"pkv_table_create", call_table_create, true},
    {"1100 x pkv_table_create", call_many_tables, true},
    {"pkv_table_admit", call_admit, true},
    {"pkv_table_admit in a new namespace", call_admit_in_a_new_namespace, true},
    {"pkv_table_reserve", call_reserve, true},
    {"pkv_table_set_tokens", call_set_tokens, true},
    {"pkv_table_write", call_table_write, false},
    {"pkv_table_commit", call_commit, false},
    {"pkv_table_gather", call_table_gather, false},
    {"pkv_table_slots", call_slots, false},
    {"pkv_table_fork", call_fork, true},
    {"pkv_batch_create", call_batch_create, true},
    {"pkv_batch_reserve", call_batch_reserve, true},
    {"pkv_pool_set_retention", call_set_retention, true},
    {"pkv_pool_set_namespace_retention in a new namespace", call_set_namespace_retention, true},
    {"pkv_pool_keys", call_keys, true},
    {"pkv_table_set_retention", call_table_set_retention, true},
    {"pkv_table_accept", call_accept, false},
    {"pkv_table_export", call_export, true},
    {"pkv_table_import", call_import, true},
};

/* The call with its n-th allocation failing. */
static pkv_status call_without_memory(const struct entry *entry, struct fixture *f, uint64_t n, bool once) {
    fail_once = once;
    countdown = n;
    const pkv_status status = entry->call(f);
    countdown = UINT64_MAX;
    return status;
}

static void check_entry(const struct entry *entry, bool once) {
    uint64_t n = 0;
    for (pkv_status status = PKV_ERR_NO_MEMORY; status != PKV_OK; ++n) {
        struct fixture f;
        begin(&f);
        const pkv_pool_stats before = stats_of(f.pool);
        const pkv_table_info info = info_of(f.table);
        status = call_without_memory(entry, &f, n, once);
        if (status != PKV_OK && status != PKV_ERR_NO_MEMORY)
            fail_msg("%s, allocation %llu failing, gave %s", entry->name, (unsigned long long)n,
                     pkv_status_string(status));
        if (status == PKV_ERR_NO_MEMORY) {
            const pkv_pool_stats after = stats_of(f.pool);
            const pkv_table_info info_after = info_of(f.table);
            assert_same_stats(&before, &after);
            assert_memory_equal(&info, &info_after, sizeof info);
            assert_null(f.new_pool);
            assert_null(f.new_table);
            assert_null(f.new_batch);
            if (n == 0) assert_message("memory");
            const pkv_status again = entry->call(&f); /* with memory it works */
            if (again != PKV_OK) fail_msg("%s, tried again, gave %s", entry->name, pkv_status_string(again));
        }
        end(&f);
        assert_true(n < 5000);
    }
    print_message("%s: %llu allocations\n", entry->name, (unsigned long long)n - 1);
    if (entry->allocates && n == 1 && !once) fail_msg("%s allocated nothing: is this test still of use?", entry->name);
}

static void case_Q14_first_pool_of_the_process_without_memory(void **state) {
    (void)state;
    if (!hooks_work()) skip();
    for (uint64_t n = 0;; ++n) { /* before anything else was made */
        struct fixture f = {0};
        fail_once = true;
        countdown = n;
        const pkv_status status = make_fresh_pool(&f, 0, 0);
        countdown = UINT64_MAX;
        if (status == PKV_OK) {
            end_pool(f.new_pool);
            assert_true(n > 0);
            return;
        }
        assert_int_equal(status, PKV_ERR_NO_MEMORY);
        assert_null(f.new_pool);
    }
}

static void case_Q14_each_entry_with_its_nth_allocation_failing(void **state) {
    (void)state;
    if (!hooks_work()) skip();
    for (size_t i = 0; i < sizeof entries / sizeof *entries; ++i) check_entry(&entries[i], true);
}

static void case_Q14_each_entry_with_all_allocations_failing_from_the_nth_on(void **state) {
    (void)state;
    if (!hooks_work()) skip();
    for (size_t i = 0; i < sizeof entries / sizeof *entries; ++i) check_entry(&entries[i], false);
}

static void what_gives_things_back_needs_no_memory(void **state) {
    (void)state;
    if (!hooks_work()) skip();
    struct fixture f;
    begin(&f);
    const uint32_t num_new = 1;
    assert_ok(pkv_batch_reserve(f.batch, 1, &f.table, &num_new, NULL));
    pkv_pool_stats stats = PKV_POOL_STATS_INIT;
    pkv_clear_result result = PKV_CLEAR_RESULT_INIT;
    pkv_page page;
    pkv_status status[14];
    fail_once = false;
    countdown = 0;
    status[0] = pkv_batch_commit(f.batch, NULL, NULL, NULL);
    status[1] = pkv_batch_destroy(f.batch);
    status[2] = pkv_table_truncate(f.table, 9, NULL);
    status[3] = pkv_table_clear(f.table, NULL);
    status[4] = pkv_table_destroy(f.table, NULL);
    status[5] = pkv_table_destroy(f.empty, NULL);
    status[6] = pkv_pool_retain(f.pool, 0, 4, f.pages);
    status[7] = pkv_pool_release(f.pool, 0, 4, f.pages, NULL, NULL);
    status[8] = pkv_pool_release(f.pool, 0, 4, f.pages, NULL, NULL);
    status[9] = pkv_pool_evict(f.pool, 0, 1, NULL);
    status[10] = pkv_pool_alloc(f.pool, 0, 1, &page);
    status[11] = pkv_pool_release(f.pool, 0, 1, &page, NULL, NULL);
    status[12] = pkv_pool_clear(f.pool, &f.ns, &result);
    status[13] = pkv_pool_get_stats(f.pool, 0, &stats);
    countdown = UINT64_MAX;
    for (int i = 0; i < 14; ++i)
        if (status[i] != PKV_OK) fail_msg("call %d gave %s", i, pkv_status_string(status[i]));
    assert_int_equal(stats.free_pages, 64);
    end_pool(f.pool);
}

static void a_commit_that_found_no_memory_to_publish_is_made_up_for_by_the_next(void **state) {
    (void)state;
    if (!hooks_work()) skip();
    struct fixture f;
    begin(&f);
    fail_once = false;
    countdown = 0;
    const pkv_status status = pkv_table_commit(f.table, 40, NULL);
    countdown = UINT64_MAX;
    assert_true(status == PKV_OK || status == PKV_ERR_NO_MEMORY);
    assert_int_equal(info_of(f.table).committed, status == PKV_OK ? 40 : 26);
    assert_ok(pkv_table_commit(f.table, 40, NULL));
    assert_int_equal(info_of(f.table).published, 40);
    assert_int_equal(probe_tokens(f.pool, &f.prompt), 40);
    end(&f);
}

static void helper_threads_that_cannot_be_had_are_no_fault_of_the_library(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#else
    struct fixture f = {0};
    no_threads = true;
    const pkv_status status = make_fresh_pool(&f, 2, 0);
    no_threads = false;
    assert_null(f.new_pool);
    assert_int_equal(status, PKV_ERR_NO_MEMORY); /* "the operating system gave none" */
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_Q14_first_pool_of_the_process_without_memory),
        cmocka_unit_test(case_Q14_each_entry_with_its_nth_allocation_failing),
        cmocka_unit_test(case_Q14_each_entry_with_all_allocations_failing_from_the_nth_on),
        cmocka_unit_test(what_gives_things_back_needs_no_memory),
        cmocka_unit_test(a_commit_that_found_no_memory_to_publish_is_made_up_for_by_the_next),
        cmocka_unit_test(helper_threads_that_cannot_be_had_are_no_fault_of_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
