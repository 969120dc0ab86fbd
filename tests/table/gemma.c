/* SPDX-License-Identifier: Apache-2.0 */
/* A model of five window layers to one full layer replays a recorded trace of conversations, beside a plain model of two
 * groups of blocks: every hit is the same, at any capacity. The model follows what pool.h promises, and three things more
 * that only matter where both groups are short of pages:
 *   - an admission takes its pages group by group, in order of the groups
 *   - a block that was computed again takes the place of the cached page that has its name, group by group
 *   - a sequence's blocks are published before its window drops them, and so they stay findable as long as they are cached
 * Requests come one after another: nothing but the current one is held.
 *
 * With PKV_TEST_LONG=1 the whole trace is replayed. Run from the folder above tests/. */
#include "support/support.h"

enum { hash_tokens = 512, window_tokens = 512, max_hashes = 1 << 18, max_requests = 12100, max_request = 300 };

typedef struct {
    uint32_t first, count; /* in trace.hashes */
} request;
static struct {
    request requests[max_requests];
    uint32_t num_requests, num_hashes;
    uint32_t hashes[400000];
    uint32_t parents[max_hashes]; /* + 1: a hash stands for all before it, too */
} trace;

/* The numbers in brackets behind "hash_ids" of each line. */
static void read_trace(uint32_t limit) {
    if (trace.num_requests >= limit) return;
    memset(&trace, 0, sizeof trace);
    FILE *file = fopen("examples/traces/conversation_trace.jsonl", "r");
    if (file == NULL) fail_msg("examples/traces/conversation_trace.jsonl cannot be read");
    static char line[1 << 16];
    while (trace.num_requests < limit && fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, "\"hash_ids\"");
        assert_non_null(at);
        at = strchr(at, '[');
        assert_non_null(at);
        request *r = &trace.requests[trace.num_requests++];
        r->first = trace.num_hashes;
        uint32_t parent = 0;
        while (*at != ']') {
            char *end = NULL;
            const uint32_t hash = (uint32_t)strtoul(at + 1, &end, 10);
            assert_true(end != at + 1 && hash < max_hashes);
            at = end;
            if (trace.parents[hash] == 0) trace.parents[hash] = parent + 1;
            assert_int_equal(trace.parents[hash], parent + 1);
            trace.hashes[trace.num_hashes++] = hash;
            parent = hash + 1;
        }
        r->count = trace.num_hashes - r->first;
        assert_true(r->count <= max_request);
    }
    fclose(file);
    assert_int_equal(trace.num_requests, limit);
}

/* ---- the model: a page is known by its block; nodes are hash * parts + part ---- */

enum { full, window, groups }; /* the two groups */
enum { nowhere, held, waiting, passed, lists };

typedef struct {
    uint32_t parts, page_tokens, window_blocks;
    uint64_t capacity[groups], used[groups], in_use[groups]; /* pages not free; of them, held ones */
    int32_t *older[groups], *newer[groups];                  /* - 1: none */
    uint8_t *list[groups];
    int32_t oldest[groups][lists], newest[groups][lists];
    uint32_t *children;
    uint64_t evicted;
} world;

static world *make_world(uint32_t page_tokens, uint64_t full_pages, uint64_t window_pages) {
    world *w = calloc(1, sizeof *w);
    w->page_tokens = page_tokens;
    w->parts = hash_tokens / page_tokens;
    w->window_blocks = (window_tokens + page_tokens - 1) / page_tokens;
    w->capacity[full] = full_pages;
    w->capacity[window] = window_pages;
    const size_t nodes = (size_t)max_hashes * w->parts;
    for (int g = 0; g < groups; ++g) {
        w->older[g] = malloc(nodes * sizeof(int32_t));
        w->newer[g] = malloc(nodes * sizeof(int32_t));
        w->list[g] = calloc(nodes, 1);
        for (int l = 0; l < lists; ++l) w->oldest[g][l] = w->newest[g][l] = -1;
    }
    w->children = calloc(nodes, sizeof(uint32_t));
    return w;
}

static void end_world(world *w) {
    for (int g = 0; g < groups; ++g) {
        free(w->older[g]);
        free(w->newer[g]);
        free(w->list[g]);
    }
    free(w->children);
    free(w);
}

static void take_out(world *w, int g, int32_t node) {
    const int list = w->list[g][node];
    const int32_t older = w->older[g][node], newer = w->newer[g][node];
    *(older < 0 ? &w->oldest[g][list] : &w->newer[g][older]) = newer;
    *(newer < 0 ? &w->newest[g][list] : &w->older[g][newer]) = older;
    w->list[g][node] = nowhere;
}

static void put_newest(world *w, int g, int32_t node, int list) {
    w->list[g][node] = (uint8_t)list;
    w->older[g][node] = w->newest[g][list];
    w->newer[g][node] = -1;
    *(w->newest[g][list] < 0 ? &w->oldest[g][list] : &w->newer[g][w->newest[g][list]]) = node;
    w->newest[g][list] = node;
}

static int32_t parent_of(const world *w, int32_t node) {
    if (node % (int32_t)w->parts != 0) return node - 1;
    const uint32_t parent = trace.parents[node / (int32_t)w->parts] - 1; /* + 1 again */
    return parent == 0 ? -1 : (int32_t)((parent - 1) * w->parts + w->parts - 1);
}

static void drop(world *w, int g, int32_t node) {
    take_out(w, g, node);
    --w->used[g];
    ++w->evicted;
}

static void evict(world *w, int g) {
    if (g == window) {
        drop(w, g, w->oldest[g][passed] >= 0 ? w->oldest[g][passed] : w->oldest[g][waiting]);
        return;
    }
    int32_t node = w->oldest[full][waiting];
    while (w->children[node] != 0) node = w->newer[full][node];
    drop(w, full, node);
    if (parent_of(w, node) >= 0) --w->children[parent_of(w, node)];
    if (w->list[window][node] > held) drop(w, window, node);
}

static bool take_pages(world *w, uint64_t wanted) {
    for (int g = 0; g < groups; ++g)
        if (wanted > w->capacity[g] - w->in_use[g]) return false;
    for (int g = 0; g < groups; ++g) {
        w->in_use[g] += wanted;
        for (uint64_t i = 0; i < wanted; ++i) {
            if (w->used[g] == w->capacity[g]) evict(w, g);
            ++w->used[g];
        }
    }
    return true;
}

static void hold(world *w, int g, int32_t node) {
    take_out(w, g, node);
    w->list[g][node] = held;
    ++w->in_use[g];
}

static void let_go(world *w, int g, int32_t node, int list) {
    put_newest(w, g, node, list);
    --w->in_use[g];
}

static void publish(world *w, int32_t node) {
    if (w->list[full][node] == nowhere && parent_of(w, node) >= 0) ++w->children[parent_of(w, node)];
    for (int g = 0; g < groups; ++g) {
        if (w->list[g][node] != nowhere) { /* the page in use takes over, the cached one is free */
            take_out(w, g, node);
            --w->used[g];
        }
        w->list[g][node] = held;
    }
}

static uint64_t match(const world *w, const int32_t *nodes, uint64_t blocks) {
    uint64_t best = 0, run = 0;
    for (uint64_t i = 0; i < blocks && w->list[full][nodes[i]] != nowhere; ++i) {
        run = w->list[window][nodes[i]] != nowhere ? run + 1 : 0;
        if (run == i + 1 || run >= w->window_blocks) best = i + 1;
    }
    return best;
}

/* ---- the replay ---- */

typedef struct {
    uint64_t asked, hit, refused;
} result;

/* One request in both: admit, compute in steps of `chunk` blocks (0: all at once), and end. */
static void serve(world *w, pkv_pool *pool, const request *r, uint64_t chunk, pkv_token *tokens, result *out) {
    static int32_t nodes[max_request * 4];
    static uint8_t own[max_request * 4]; /* has a page of the window group */
    const uint64_t blocks = (uint64_t)r->count * w->parts;
    for (uint64_t i = 0; i < blocks; ++i)
        nodes[i] = (int32_t)(trace.hashes[r->first + i / w->parts] * w->parts + i % w->parts);
    for (uint64_t i = 0; i < (uint64_t)r->count * hash_tokens; ++i)
        tokens[i] = (pkv_token)(trace.hashes[r->first + i / hash_tokens] * hash_tokens + i % hash_tokens);
    const pkv_prompt prompt = prompt_of(tokens, blocks * w->page_tokens);
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.max_match = PKV_MATCH_ALL;
    options.reserve_tokens = chunk * w->page_tokens;
    pkv_match found = PKV_MATCH_INIT;
    const pkv_status status = pkv_table_admit(table, &prompt, &options, &found);

    const uint64_t matched = match(w, nodes, blocks);
    const uint64_t reach = matched > w->window_blocks ? matched - w->window_blocks : 0;
    const uint64_t before[groups] = {w->in_use[full], w->in_use[window]};
    assert_true(before[full] == 0 && before[window] == 0);
    uint64_t room = matched + (chunk != 0 ? chunk : blocks - matched);
    const bool fits = room <= w->capacity[full] && room - reach <= w->capacity[window];
    if ((status == PKV_OK) != fits || (fits && found.tokens != matched * w->page_tokens))
        fail_msg("request %td: %s and %llu tokens, where the model has %d and %llu", r - trace.requests,
                 pkv_status_string(status), (unsigned long long)found.tokens, fits,
                 (unsigned long long)matched * w->page_tokens);
    out->refused += !fits;
    if (fits) {
        out->asked += blocks;
        out->hit += matched;
        for (uint64_t i = 0; i < matched; ++i) hold(w, full, nodes[i]);
        for (uint64_t i = reach; i < matched; ++i) hold(w, window, nodes[i]);
        for (uint64_t i = 0; i < blocks; ++i) own[i] = i >= reach;
        assert_true(take_pages(w, room - matched));
        uint64_t done = matched;
        while (done < blocks) {
            const uint64_t end = room < blocks ? room : blocks;
            assert_ok(pkv_table_commit(table, end * w->page_tokens, NULL));
            for (; done < end; ++done) publish(w, nodes[done]);
            if (chunk == 0) break;
            assert_ok(pkv_table_window(table, NULL));
            for (uint64_t i = 0; (i + 1) * w->page_tokens + window_tokens <= done * w->page_tokens; ++i) {
                if (own[i]) let_go(w, window, nodes[i], passed);
                own[i] = 0;
            }
            if (done == blocks) break;
            const bool more = take_pages(w, chunk);
            assert_status(pkv_table_reserve(table, (room + chunk) * w->page_tokens), more ? PKV_OK : PKV_ERR_NO_PAGES);
            if (!more) break;
            room += chunk;
        }
        for (uint64_t i = done; i-- > 0;) let_go(w, full, nodes[i], waiting);
        for (uint64_t i = 0; i < done; ++i)
            if (own[i]) let_go(w, window, nodes[i], waiting);
        for (int g = 0; g < groups; ++g) { /* room that was not used */
            w->used[g] -= w->in_use[g];
            w->in_use[g] = 0;
        }
    }
    end_table(table);
}

static result replay(uint32_t requests, uint32_t page_tokens, uint64_t full_pages, uint64_t window_pages,
                     uint64_t chunk) {
    read_trace(requests);
    pkv_group_options options[groups] = {id_group(full_pages), id_group(window_pages)};
    options[full].num_layers = 1;
    options[window].num_layers = 5;
    options[window].attention = PKV_ATTENTION_WINDOW;
    options[window].window = window_tokens;
    pkv_pool *pool = make_groups(options, groups, page_tokens);
    world *w = make_world(page_tokens, full_pages, window_pages);
    pkv_token *tokens = malloc(max_request * hash_tokens * sizeof *tokens);
    result out = {0};
    for (uint32_t i = 0; i < requests; ++i) {
        serve(w, pool, &trace.requests[i], chunk, tokens, &out);
        if (i % 64 != 0 && i + 1 != requests) continue;
        for (uint32_t g = 0; g < groups; ++g) assert_int_equal(group_stats(pool, g).cached_pages, w->used[g]);
    }
    assert_int_equal(group_stats(pool, 0).evicted_pages, w->evicted);
    assert_int_equal(group_stats(pool, 0).hit_tokens, out.hit * page_tokens);
    assert_int_equal(group_stats(pool, 0).refused, out.refused);
    print_message(
        "%u requests, %u tokens a page, %llu + %llu pages, chunks of %llu: %llu of %llu blocks hit, %llu refused\n",
        requests, page_tokens, (unsigned long long)full_pages, (unsigned long long)window_pages,
        (unsigned long long)chunk, (unsigned long long)out.hit, (unsigned long long)out.asked,
        (unsigned long long)out.refused);
    end_world(w);
    end_groups(pool);
    free(tokens);
    return out;
}

static uint32_t some(uint32_t requests) { return long_tests() ? 12031 : requests; }

/* Blocks of the longest prefix that was seen before, over all requests. */
static uint64_t plain_hits(uint32_t requests) {
    read_trace(requests);
    static uint8_t seen[max_hashes];
    memset(seen, 0, sizeof seen);
    uint64_t hits = 0;
    for (uint32_t i = 0; i < requests; ++i) {
        const uint32_t *hashes = &trace.hashes[trace.requests[i].first];
        uint32_t j = 0;
        while (j < trace.requests[i].count && seen[hashes[j]]) ++j;
        hits += j;
        for (j = 0; j < trace.requests[i].count; ++j) seen[hashes[j]] = 1;
    }
    return hits;
}

static void without_a_limit_all_that_was_seen_before_hits(void **state) {
    (void)state;
    const uint32_t requests = some(1200);
    const result r = replay(requests, 512, 300000, 300000, 0);
    assert_int_equal(r.hit, plain_hits(requests));
    assert_int_equal(r.asked, trace.num_hashes);
    assert_int_equal(r.refused, 0);
}

static void without_a_limit_dropped_windows_cost_no_hit(void **state) {
    (void)state;
    const uint32_t requests = some(300);
    const result r = replay(requests, 128, 1200000, 1200000, 16);
    assert_int_equal(r.hit, plain_hits(requests) * 4);
}

static void hits_are_the_models_when_both_groups_are_short(void **state) {
    (void)state;
    static const uint64_t pages[][2] = {{6000, 6000}, {3000, 3000}, {6000, 900}, {900, 6000}, {400, 400}, {220, 150}};
    for (int i = 0; i < 6; ++i) (void)replay(some(800), 512, pages[i][0], pages[i][1], 0);
}

static void hits_are_the_models_when_windows_are_dropped_on_the_way(void **state) {
    (void)state;
    static const uint64_t pages[][2] = {{6000, 600}, {3000, 60}, {3000, 17}, {260, 260}, {200, 30}};
    for (int i = 0; i < 5; ++i) (void)replay(some(600), 512, pages[i][0], pages[i][1], 4);
}

static void hits_are_the_models_with_pages_smaller_than_the_window(void **state) {
    (void)state;
    static const uint64_t pages[][3] = {{8000, 8000, 0}, {8000, 500, 6}, {1200, 40, 6}, {1000, 1000, 3}};
    for (int i = 0; i < 4; ++i) (void)replay(some(150), 128, pages[i][0], pages[i][1], pages[i][2]);
}

/* A block of 4 tokens for each hash: what hits has the rows that were put in under these hashes. */
static void what_hits_has_the_bytes_of_its_blocks(void **state) {
    (void)state;
    enum { page_tokens = 4, requests = 120 };
    read_trace(requests);
    pkv_group_options options[groups] = {small_group(400), window_group(300, 8, 0)};
    options[full].num_layers = 1;
    options[window].num_layers = 5;
    pkv_pool *pool = make_groups(options, groups, page_tokens);
    uint64_t hits = 0;
    for (uint32_t i = 0; i < requests; ++i) {
        const request *r = &trace.requests[i];
        const uint32_t *hashes = &trace.hashes[r->first];
        pkv_token tokens[max_request * page_tokens];
        for (uint32_t t = 0; t < r->count * page_tokens; ++t) tokens[t] = (pkv_token)hashes[t / page_tokens];
        const pkv_prompt prompt = prompt_of(tokens, r->count * page_tokens);
        pkv_match found = PKV_MATCH_INIT;
        pkv_table *table = admit(pool, &prompt, &found);
        hits += found.blocks;
        for (uint64_t block = 0; block < r->count; ++block)
            for (uint32_t g = 0; g < groups; ++g) {
                const uint64_t position = block * page_tokens;
                if (block >= found.blocks)
                    put_rows(pool, table, g, position, page_tokens, hashes[block]);
                else if (g == full || block + 2 >= found.blocks)
                    same_rows(pool, table, g, position, page_tokens, hashes[block], position);
            }
        assert_ok(pkv_table_commit(table, r->count * page_tokens, NULL));
        end_table(table);
    }
    assert_true(hits > requests / 2);
    end_groups(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_limit_all_that_was_seen_before_hits),
        cmocka_unit_test(without_a_limit_dropped_windows_cost_no_hit),
        cmocka_unit_test(hits_are_the_models_when_both_groups_are_short),
        cmocka_unit_test(hits_are_the_models_when_windows_are_dropped_on_the_way),
        cmocka_unit_test(hits_are_the_models_with_pages_smaller_than_the_window),
        cmocka_unit_test(what_hits_has_the_bytes_of_its_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
