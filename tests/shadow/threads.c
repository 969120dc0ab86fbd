/* SPDX-License-Identifier: Apache-2.0 */
/* Threads on one pool: tables and batches of their own over shared and private prefixes, callers of low-level pages, and one
 * that evicts, clears and counts. Every row that is read is compared with the KV of exactly its prefix; in the end no page is
 * held and none is lost. Meant for `make check-tsan SUITE=shadow`. */
#include "support/support.h"

#include "support/model.h"

#include <inttypes.h>
#include <pthread.h>
#include <time.h>

enum {
    page_tokens = 4,
    num_pages = 96,
    num_table_threads = 4,
    num_low_threads = 2,
    num_threads = num_table_threads + num_low_threads + 1,
    tables_each = 4,
    max_length = 40,
    heads = 2,
    row_bytes = 8,
    rounds = 20000,
    time_limit_ms = 2500, /* of one run, for slow builds */
};

typedef struct {
    pkv_table *table;
    bool admitted;
    uint64_t committed;
    model_prompt sequence; /* all of it is named */
} tracked;

typedef struct {
    int number;
    pkv_pool *pool;
    test_random random;
    uint64_t deadline;
    pkv_batch *batch;
    tracked tables[tables_each];
    uint64_t verified; /* rows */
    char failure[256];
    uint8_t rows[2][max_length * tables_each * heads * row_bytes];
} worker;

static uint64_t now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* cmocka's asserts belong to the main thread: the first failure of a worker is kept, and ends it. */
static bool is(worker *w, bool holds, const char *what) {
    if (!holds && w->failure[0] == 0) {
        char message[160];
        pkv_last_error(message, sizeof message);
        snprintf(w->failure, sizeof w->failure, "%.80s (last error: %s)", what, message);
    }
    return holds;
}
#define IS(condition) is(w, (condition), #condition)
#define OK(call) is(w, (call) == PKV_OK, #call)

/* True for PKV_OK, false for PKV_ERR_NO_PAGES, which may happen; else a failure. */
static bool got_pages(worker *w, pkv_status status, const char *call) {
    is(w, status == PKV_OK || status == PKV_ERR_NO_PAGES, call);
    return status == PKV_OK;
}

static uint64_t below(worker *w, uint64_t bound) { return random_below(&w->random, bound); }

/* ---- sequences ---- */

static pkv_namespace namespace_of(int ns) {
    static const char *const salts[] = {"", "0", "1", "2", "3", "4", "5", "6"};
    pkv_namespace out = PKV_NAMESPACE_INIT;
    out.salt = (pkv_bytes){salts[ns], ns == 0 ? 0 : 1};
    return out;
}

static void extend(worker *w, model_prompt *sequence, uint64_t length) {
    for (; sequence->num_tokens < length; ++sequence->num_tokens)
        sequence->tokens[sequence->num_tokens] = below(w, 8) == 0 ? 2 : 1;
    model_tag(sequence);
}

/* Namespace 0 is everybody's, the worker's own number + 1 is private. */
static void random_prompt(worker *w, model_prompt *out) {
    out->ns = below(w, 4) == 0 ? w->number + 1 : 0;
    out->num_tokens = 0;
    out->num_media = 0;
    extend(w, out, 1 + below(w, max_length / 2));
}

static void make_tensors(worker *w, uint64_t num, pkv_tensor tensors[2]) {
    for (int side = 0; side < 2; ++side) {
        tensors[side] = (pkv_tensor)PKV_TENSOR_INIT;
        tensors[side].data = w->rows[side];
        tensors[side].dtype = PKV_DTYPE_F16;
        tensors[side].num_tokens = num;
    }
}

/* Rows of a sequence in the worker's buffers, from row `at` on. */
static void fill_rows(worker *w, uint32_t layer, const uint64_t *tags, uint64_t num, uint64_t at) {
    for (int side = 0; side < 2; ++side)
        for (uint64_t i = 0; i < num * heads; ++i)
            model_row(w->rows[side] + (at * heads + i) * row_bytes, row_bytes, tags[i / heads], layer, side, i % heads);
}

static bool rows_are(worker *w, uint32_t layer, const uint64_t *tags, uint64_t num) {
    uint8_t expected[row_bytes];
    for (int side = 0; side < 2; ++side)
        for (uint64_t i = 0; i < num * heads; ++i) {
            model_row(expected, row_bytes, tags[i / heads], layer, side, i % heads);
            if (!IS(memcmp(expected, w->rows[side] + i * row_bytes, row_bytes) == 0)) return false;
        }
    w->verified += num;
    return true;
}

/* ---- tables ---- */

static void verify(worker *w, const tracked *s) {
    for (uint32_t layer = 0; layer < model_layers; ++layer) {
        pkv_tensor tensors[2];
        make_tensors(w, s->committed, tensors);
        memset(w->rows, 0xEE, sizeof w->rows);
        if (!OK(pkv_table_gather(s->table, 0, layer, 0, s->committed, &tensors[0], &tensors[1], NULL))) return;
        if (!rows_are(w, layer, s->sequence.tags, s->committed)) return;
    }
}

static void admit_sequence(worker *w, tracked *s) {
    random_prompt(w, &s->sequence);
    const pkv_namespace ns = namespace_of(s->sequence.ns);
    pkv_prompt prompt = prompt_of(s->sequence.tokens, s->sequence.num_tokens);
    prompt.ns = &ns;
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.max_match = below(w, 2) == 0 ? 0 : PKV_MATCH_ALL;
    options.reserve_tokens = below(w, 3) == 0 ? 1 + below(w, page_tokens) : 0;
    options.watermark = below(w, 4);
    pkv_match match = PKV_MATCH_INIT;
    s->admitted = got_pages(w, pkv_table_admit(s->table, &prompt, &options, &match), "admit");
    s->committed = match.tokens;
    if (s->admitted) verify(w, s);
}

static void grow_sequence(worker *w, tracked *s, uint64_t num) {
    const uint64_t begin = s->committed;
    const uint64_t end = begin + num < max_length ? begin + num : max_length;
    if (end == begin || !got_pages(w, pkv_table_reserve(s->table, end), "reserve")) return;
    const uint64_t named = s->sequence.num_tokens;
    if (named < end) {
        extend(w, &s->sequence, end);
        OK(pkv_table_set_tokens(s->table, named, end - named, s->sequence.tokens + named));
    }
    for (uint32_t layer = 0; layer < model_layers; ++layer) {
        pkv_tensor tensors[2];
        make_tensors(w, end - begin, tensors);
        fill_rows(w, layer, s->sequence.tags + begin, end - begin, 0);
        OK(pkv_table_write(s->table, 0, layer, begin, end - begin, &tensors[0], &tensors[1], NULL));
    }
    OK(pkv_table_commit(s->table, end, NULL));
    s->committed = end;
}

static void clear_sequence(worker *w, tracked *s) {
    OK(pkv_table_clear(s->table, NULL));
    s->admitted = false;
    s->committed = 0;
}

static void fork_sequence(worker *w, tracked *s) {
    tracked *twin = &w->tables[below(w, tables_each)];
    if (twin == s) return;
    OK(pkv_table_destroy(twin->table, NULL));
    *twin = *s;
    OK(pkv_table_fork(s->table, NULL, &twin->table));
}

static void truncate_sequence(worker *w, tracked *s) {
    const uint64_t length = below(w, s->committed + 1);
    OK(pkv_table_truncate(s->table, length, NULL));
    s->committed = length;
    if (s->sequence.num_tokens > length) s->sequence.num_tokens = length;
}

/* One token for each table that has room. */
static void decode_step(worker *w) {
    pkv_table *tables[tables_each];
    tracked *rows[tables_each];
    uint32_t num_new[tables_each];
    uint32_t accepted[tables_each];
    pkv_token tokens[tables_each * 2];
    pkv_status statuses[tables_each];
    uint32_t num = 0;
    uint64_t total = 0;
    for (int i = 0; i < tables_each; ++i) {
        tracked *s = &w->tables[i];
        if (!s->admitted || s->committed + 2 > max_length || s->sequence.num_tokens < s->committed) continue;
        tables[num] = s->table;
        rows[num] = s;
        num_new[num] = 1 + (uint32_t)below(w, 2);
        total += num_new[num++];
    }
    const pkv_status status = pkv_batch_reserve(w->batch, num, tables, num_new, statuses);
    got_pages(w, status, "batch_reserve");
    uint64_t at = 0;
    for (uint32_t row = 0; row < num; ++row) {
        tracked *s = rows[row];
        if (statuses[row] == PKV_OK) extend(w, &s->sequence, s->committed + num_new[row]);
        for (uint64_t i = 0; i < num_new[row]; ++i)
            tokens[at++] = statuses[row] == PKV_OK ? s->sequence.tokens[s->committed + i] : 0;
    }
    IS(pkv_batch_set_tokens(w->batch, total, tokens, NULL) == status);
    for (uint32_t layer = 0; layer < model_layers; ++layer) {
        pkv_tensor tensors[2];
        make_tensors(w, total, tensors);
        at = 0;
        for (uint32_t row = 0; row < num; at += num_new[row++])
            if (statuses[row] == PKV_OK)
                fill_rows(w, layer, rows[row]->sequence.tags + rows[row]->committed, num_new[row], at);
        OK(pkv_batch_write(w->batch, 0, layer, &tensors[0], &tensors[1], NULL));
    }
    for (uint32_t row = 0; row < num; ++row) accepted[row] = num_new[row] - (uint32_t)below(w, 2);
    IS(pkv_batch_commit(w->batch, accepted, NULL, NULL) == status);
    for (uint32_t row = 0; row < num; ++row) {
        if (statuses[row] != PKV_OK) continue;
        rows[row]->committed += accepted[row];
        if (accepted[row] < num_new[row]) rows[row]->sequence.num_tokens = rows[row]->committed;
    }
}

static void *run_tables(void *argument) {
    worker *w = argument;
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = tables_each;
    OK(pkv_batch_create(w->pool, &options, &w->batch));
    for (int i = 0; i < tables_each; ++i) OK(pkv_table_create(w->pool, &w->tables[i].table));
    for (int round = 0; round < rounds && w->failure[0] == 0 && now_ms() < w->deadline; ++round) {
        tracked *s = &w->tables[below(w, tables_each)];
        if (!s->admitted) {
            admit_sequence(w, s);
            continue;
        }
        switch (below(w, 10)) {
        case 0: clear_sequence(w, s); break;
        case 1: fork_sequence(w, s); break;
        case 2: truncate_sequence(w, s); break;
        case 3: verify(w, s); break;
        case 4:
        case 5: decode_step(w); break;
        default: grow_sequence(w, s, 1 + below(w, 2 * page_tokens)); break;
        }
    }
    for (int i = 0; i < tables_each; ++i) {
        if (w->tables[i].admitted && w->failure[0] == 0) verify(w, &w->tables[i]);
        OK(pkv_table_destroy(w->tables[i].table, NULL));
    }
    OK(pkv_batch_destroy(w->batch));
    return NULL;
}

/* ---- low-level pages ---- */

static void publish_fresh(worker *w, const pkv_prompt *prompt, const model_prompt *content) {
    pkv_page pages[max_length / page_tokens];
    const uint64_t blocks = content->num_tokens / page_tokens;
    if (!got_pages(w, pkv_pool_alloc(w->pool, 0, blocks, pages), "alloc")) return;
    pkv_slot slots[max_length];
    for (uint64_t i = 0; i < blocks * page_tokens; ++i)
        slots[i] = (pkv_slot)pages[i / page_tokens] * page_tokens + (pkv_slot)(i % page_tokens);
    for (uint32_t layer = 0; layer < model_layers; ++layer) {
        pkv_tensor tensors[2];
        make_tensors(w, blocks * page_tokens, tensors);
        fill_rows(w, layer, content->tags, blocks * page_tokens, 0);
        OK(pkv_pool_write(w->pool, 0, layer, blocks * page_tokens, slots, &tensors[0], &tensors[1], NULL));
    }
    OK(pkv_pool_publish(w->pool, 0, prompt, 0, blocks, pages, NULL));
    OK(pkv_pool_release(w->pool, 0, blocks, pages, NULL, NULL));
}

static void look_up(worker *w, const pkv_prompt *prompt, const model_prompt *content) {
    pkv_page pages[max_length / page_tokens];
    pkv_match match = PKV_MATCH_INIT;
    if (!OK(pkv_pool_lookup(w->pool, prompt, PKV_MATCH_ALL, pages, max_length / page_tokens, &match))) return;
    OK(pkv_pool_retain(w->pool, 0, match.blocks, pages));
    OK(pkv_pool_release(w->pool, 0, match.blocks, pages, NULL, NULL));
    for (uint32_t layer = 0; layer < model_layers; ++layer) {
        pkv_tensor tensors[2];
        make_tensors(w, match.tokens, tensors);
        OK(pkv_pool_gather(w->pool, 0, layer, match.blocks, pages, 0, match.tokens, &tensors[0], &tensors[1], NULL));
        rows_are(w, layer, content->tags, match.tokens);
    }
    pkv_status statuses[max_length / page_tokens];
    OK(pkv_pool_release(w->pool, 0, match.blocks, pages, statuses, NULL));
}

static void *run_low(void *argument) {
    worker *w = argument;
    model_prompt *content = &w->tables[0].sequence;
    for (int round = 0; round < rounds && w->failure[0] == 0 && now_ms() < w->deadline; ++round) {
        random_prompt(w, content);
        const pkv_namespace ns = namespace_of(content->ns);
        pkv_prompt prompt = prompt_of(content->tokens, content->num_tokens);
        prompt.ns = &ns;
        if (below(w, 2) == 0)
            publish_fresh(w, &prompt, content);
        else
            look_up(w, &prompt, content);
    }
    return NULL;
}

/* ---- eviction, clearing, counting ---- */

static void *run_others(void *argument) {
    worker *w = argument;
    pkv_pool_stats last = PKV_POOL_STATS_INIT;
    for (int round = 0; round < rounds && w->failure[0] == 0 && now_ms() < w->deadline; ++round) {
        pkv_pool_stats stats = PKV_POOL_STATS_INIT;
        OK(pkv_pool_get_stats(w->pool, 0, &stats));
        IS(stats.free_pages + stats.held_pages + stats.cached_pages == num_pages);
        IS(stats.cached_pages <= stats.index_blocks && stats.hit_tokens <= stats.asked_tokens);
        IS(stats.published_blocks == stats.unpublished_blocks + stats.index_blocks);
        IS(stats.allocated_pages >= last.allocated_pages && stats.evicted_pages >= last.evicted_pages);
        last = stats;
        pkv_page_info info = PKV_PAGE_INFO_INIT;
        OK(pkv_pool_page_info(w->pool, 0, (pkv_page)below(w, num_pages), &info));
        IS(info.state == (info.count > 0 ? PKV_PAGE_HELD : info.published ? PKV_PAGE_CACHED : PKV_PAGE_FREE));
        if (below(w, 4) == 0) {
            uint64_t evicted = 0;
            OK(pkv_pool_evict(w->pool, 0, 1 + below(w, 3), &evicted));
        }
        if (below(w, 50) == 0) {
            const pkv_namespace ns = namespace_of((int)below(w, num_threads));
            pkv_clear_result result = PKV_CLEAR_RESULT_INIT;
            OK(below(w, 4) == 0 ? pkv_pool_clear_all(w->pool, &result) : pkv_pool_clear(w->pool, &ns, &result));
        }
    }
    return NULL;
}

/* ---- the test ---- */

static void run_threads(uint32_t debug, uint64_t max_cached, uint64_t seed) {
    pkv_group_options group = small_group(num_pages);
    group.max_cached_pages = max_cached;
    pkv_pool *pool = make_pool_of(&group, page_tokens, PKV_DEBUG_POISON | debug);
    worker *workers = calloc(num_threads, sizeof *workers);
    pthread_t threads[num_threads];
    const uint64_t deadline = now_ms() + time_limit_ms * (long_tests() ? 10 : 1);
    for (int i = 0; i < num_threads; ++i) {
        workers[i].number = i;
        workers[i].pool = pool;
        workers[i].random.state = seed + (uint64_t)i;
        workers[i].deadline = deadline;
        void *(*run)(void *) = i < num_table_threads ? run_tables : i < num_threads - 1 ? run_low : run_others;
        assert_int_equal(pthread_create(&threads[i], NULL, run, &workers[i]), 0);
    }
    uint64_t verified = 0;
    for (int i = 0; i < num_threads; ++i) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        verified += workers[i].verified;
    }
    for (int i = 0; i < num_threads; ++i)
        if (workers[i].failure[0] != 0) fail_msg("thread %d: %s", i, workers[i].failure);
    print_message("%" PRIu64 " rows verified, %" PRIu64 " hits of %" PRIu64 " tokens\n", verified,
                  stats_of(pool).hit_tokens, stats_of(pool).asked_tokens);
    check_rules(pool);
    for (pkv_page page = 0; page < num_pages; ++page) assert_int_equal(page_of(pool, page).count, 0);
    assert_ok(pkv_pool_clear_all(pool, NULL));
    assert_int_equal(stats_of(pool).free_pages, num_pages);
    assert_int_equal(stats_of(pool).namespaces, 0);
    free(workers);
    end_pool(pool);
}

static void threads_read_only_the_kv_of_their_prefixes(void **state) {
    (void)state;
    run_threads(0, 0, 0x5eed);
}

static void the_same_with_equal_keys_and_few_cached_pages(void **state) {
    (void)state;
    run_threads(PKV_DEBUG_EQUAL_KEYS, 16, 0x5eee);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_read_only_the_kv_of_their_prefixes),
        cmocka_unit_test(the_same_with_equal_keys_and_few_cached_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
