/* SPDX-License-Identifier: Apache-2.0 */
/* A reader that knows a pool by its events and keys alone has exactly its prefix index: random runs over a full group and
 * a window group, in two namespaces. */
#include "support/support.h"

enum { page_tokens = 2, depth = 5, window = 4, sinks = 1, full_pages = 24, window_pages = 20, num_tables = 4 };
enum { prompts = 1 << depth, namespaces = 2, most_entries = 256 };

typedef struct {
    uint32_t group;
    pkv_key key, parent;
    uint64_t block;
} entry;

/* What the reader knows. */
typedef struct {
    entry entries[most_entries];
    uint64_t count;
    uint64_t after;
} mirror;

typedef struct {
    pkv_pool *pool;
    pkv_namespace ns[namespaces];
    pkv_token tokens[prompts][depth * page_tokens];
    pkv_key keys[namespaces][prompts][depth];
    pkv_table *tables[num_tables];
    mirror reader;
    test_random random;
} world;

static bool same_key(pkv_key a, pkv_key b) { return a.low == b.low && a.high == b.high; }

static pkv_prompt prompt_at(const world *w, int ns, uint64_t index, uint64_t blocks) {
    pkv_prompt prompt = prompt_of(w->tokens[index], blocks * page_tokens);
    prompt.ns = &w->ns[ns];
    return prompt;
}

static int64_t find(const mirror *m, uint32_t group, pkv_key key) {
    for (uint64_t i = 0; i < m->count; ++i)
        if (m->entries[i].group == group && same_key(m->entries[i].key, key)) return (int64_t)i;
    return -1;
}

static bool has(const mirror *m, uint32_t group, pkv_key key) { return find(m, group, key) >= 0; }

static void forget(mirror *m, uint64_t index) { m->entries[index] = m->entries[--m->count]; }

/* All blocks under a namespace's root, children after parents. */
static void forget_below(mirror *m, pkv_key root) {
    pkv_key gone[most_entries];
    uint64_t num_gone = 1;
    gone[0] = root;
    for (uint64_t g = 0; g < num_gone; ++g)
        for (uint64_t i = 0; i < m->count;)
            if (same_key(m->entries[i].parent, gone[g])) {
                if (num_gone < most_entries) gone[num_gone++] = m->entries[i].key;
                forget(m, i);
            } else {
                ++i;
            }
}

static void apply(mirror *m, const pkv_event *event) {
    assert_int_equal(event->sequence, ++m->after);
    const int64_t at = find(m, event->group, event->key);
    if (event->kind == PKV_EVENT_STORED) {
        assert_true(at < 0);
        if (event->block > 0) assert_true(has(m, 0, event->parent) || has(m, 1, event->parent));
        m->entries[m->count++] = (entry){event->group, event->key, event->parent, event->block};
    } else if (event->kind == PKV_EVENT_REMOVED) {
        assert_true(at >= 0);
        assert_int_equal(m->entries[at].block, event->block);
        assert_true(same_key(m->entries[at].parent, event->parent));
        forget(m, (uint64_t)at);
    } else {
        assert_int_equal(event->kind, PKV_EVENT_CLEARED);
        assert_int_equal(event->group, 0);
        forget_below(m, event->key);
    }
}

static void poll(world *w) {
    const uint64_t piece = 1 + random_below(&w->random, 7);
    pkv_event events[8];
    uint64_t count = 1, missed = 0;
    while (count > 0) {
        assert_ok(pkv_pool_events(w->pool, w->reader.after, events, piece, &count, &missed));
        assert_int_equal(missed, 0);
        for (uint64_t i = 0; i < count; ++i) apply(&w->reader, &events[i]);
    }
}

/* The longest prefix that every group can serve, by what the reader knows and the rule in pool.h. */
static uint64_t expected_match(const mirror *m, const pkv_key *keys) {
    for (uint64_t blocks = depth; blocks > 0; --blocks) {
        const uint64_t tokens = blocks * page_tokens;
        bool whole = true;
        for (uint64_t i = 0; i < blocks; ++i) {
            const bool wanted = (i + 1) * page_tokens + window > tokens || i * page_tokens < sinks;
            whole = whole && has(m, 0, keys[i]) && (!wanted || has(m, 1, keys[i]));
        }
        if (whole) return tokens;
    }
    return 0;
}

static void compare(world *w) {
    const uint32_t num_pages[2] = {full_pages, window_pages};
    uint64_t published = 0;
    for (uint32_t group = 0; group < 2; ++group)
        for (uint32_t page = 0; page < num_pages[group]; ++page) {
            pkv_page_info info = PKV_PAGE_INFO_INIT;
            assert_ok(pkv_pool_page_info(w->pool, group, (pkv_page)page, &info));
            published += (uint64_t)info.published;
        }
    assert_int_equal(published, w->reader.count);
    for (int ns = 0; ns < namespaces; ++ns)
        for (uint64_t index = 0; index < prompts; ++index) {
            const pkv_prompt prompt = prompt_at(w, ns, index, depth);
            assert_int_equal(probe_tokens(w->pool, &prompt), expected_match(&w->reader, w->keys[ns][index]));
        }
}

/* ---- the run ---- */

static void begin_world(world *w, uint64_t seed) {
    memset(w, 0, sizeof *w);
    w->random.state = seed;
    pkv_group_options groups[2] = {small_group(full_pages), small_group(window_pages)};
    groups[0].memory = groups[1].memory = PKV_MEMORY_NONE;
    groups[1].attention = PKV_ATTENTION_WINDOW;
    groups[1].window = window;
    groups[1].sinks = sinks;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = 2;
    options.groups = groups;
    options.event_capacity = 4096;
    assert_ok(pkv_pool_create(&options, &w->pool));
    for (int ns = 0; ns < namespaces; ++ns) {
        w->ns[ns] = (pkv_namespace)PKV_NAMESPACE_INIT;
        w->ns[ns].adapter_id = (uint64_t)ns;
        for (uint64_t index = 0; index < prompts; ++index) {
            for (uint64_t t = 0; t < depth * page_tokens; ++t)
                w->tokens[index][t] = (pkv_token)(t % page_tokens == 0 ? index >> (t / page_tokens) & 1 : 7);
            const pkv_prompt prompt = prompt_at(w, ns, index, depth);
            uint64_t num_keys = 0;
            assert_ok(pkv_pool_keys(w->pool, &prompt, w->keys[ns][index], depth, &num_keys));
            assert_int_equal(num_keys, depth);
        }
    }
    for (int i = 0; i < num_tables; ++i) assert_ok(pkv_table_create(w->pool, &w->tables[i]));
}

/* A sequence computed by the lowest calls: published in the full group alone. */
static void publish_below(world *w, const pkv_prompt *prompt) {
    pkv_page pages[depth];
    const uint64_t blocks = prompt->num_tokens / page_tokens;
    if (pkv_pool_alloc(w->pool, 0, blocks, pages) != PKV_OK) return;
    assert_ok(pkv_pool_publish(w->pool, 0, prompt, 0, blocks, pages, NULL));
    release_pages(w->pool, pages, blocks);
}

static void step(world *w) {
    test_random *random = &w->random;
    pkv_table *table = w->tables[random_below(random, num_tables)];
    const int ns = (int)random_below(random, namespaces);
    const pkv_prompt prompt = prompt_at(w, ns, random_below(random, prompts), 1 + random_below(random, depth));
    const pkv_admit_options options = {.struct_size = sizeof options, .max_match = PKV_MATCH_ALL};
    const pkv_retention retention = {sizeof retention, (uint32_t)random_below(random, 101),
                                     random_below(random, 8) == 0, 0};
    switch (random_below(random, 16)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
        pkv_table_clear(table, NULL);
        pkv_table_admit(table, &prompt, &options, NULL);
        break;
    case 5:
    case 6:
    case 7:
    case 8: {
        pkv_table_info info = info_of(table);
        if (info.reserved > info.committed)
            pkv_table_commit(table, info.committed + 1 + random_below(random, info.reserved - info.committed), NULL);
        break;
    }
    case 9: pkv_table_window(table, NULL); break;
    case 10: pkv_table_truncate(table, random_below(random, depth * page_tokens), NULL); break;
    case 11: pkv_table_clear(table, NULL); break;
    case 12: pkv_pool_evict(w->pool, (uint32_t)random_below(random, 2), random_below(random, 4), NULL); break;
    case 13: pkv_pool_set_retention(w->pool, &prompt, random_below(random, 10), UINT64_MAX, &retention, NULL); break;
    case 14: publish_below(w, &prompt); break;
    default:
        if (random_below(random, 6) != 0) break;
        if (random_below(random, 4) == 0) {
            assert_ok(pkv_pool_clear_all(w->pool, NULL));
        } else {
            assert_ok(pkv_pool_clear(w->pool, &w->ns[ns], NULL));
        }
    }
}

static void a_reader_of_events_knows_the_index(void **state) {
    (void)state;
    const uint64_t seeds = long_tests() ? 200 : 6, steps = long_tests() ? 20000 : 3000;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
        static world w;
        begin_world(&w, seed);
        print_message("seed %llu\n", (unsigned long long)seed);
        for (uint64_t i = 0; i < steps; ++i) {
            step(&w);
            poll(&w);
            if (i % 8 == 0) compare(&w);
        }
        assert_int_equal(w.reader.after, stats_of(w.pool).events);
        for (int i = 0; i < num_tables; ++i) end_table(w.tables[i]);
        assert_ok(pkv_pool_destroy(w.pool));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_reader_of_events_knows_the_index)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
