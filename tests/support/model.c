/* SPDX-License-Identifier: Apache-2.0 */
/* The model's pages: who holds them, and which cached one goes first; see model.h. */
#include "support/model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

model *model_create(uint32_t page_tokens, uint32_t num_groups) {
    model *m = calloc(1, sizeof *m);
    m->page_tokens = page_tokens;
    m->num_groups = num_groups;
    m->stats = (pkv_pool_stats)PKV_POOL_STATS_INIT;
    return m;
}

void model_begin(model *m) {
    for (uint32_t group = 0; group < m->num_groups; ++group) {
        model_group *g = &m->groups[group];
        g->tags = calloc(g->num_pages * model_layers * m->page_tokens, sizeof *g->tags);
        for (uint64_t page = 0; page < g->num_pages; ++page) g->pages[page].node = -1;
    }
}

void model_destroy(model *m) {
    for (uint32_t group = 0; group < m->num_groups; ++group) free(m->groups[group].tags);
    free(m);
}

static uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t mixed = a * UINT64_C(0x9E3779B97F4A7C15) + b + 1;
    mixed = (mixed ^ (mixed >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed ^= mixed >> 32;
    return mixed != 0 ? mixed : 1; /* 0 is poison */
}

uint64_t model_root_tag(int ns) { return mix(77, (uint64_t)ns); }

void model_tag(model_prompt *prompt) {
    uint64_t tag = model_root_tag(prompt->ns);
    for (uint64_t i = 0; i < prompt->num_tokens; ++i) {
        for (int j = 0; j < prompt->num_media; ++j)
            if (prompt->media[j].position == i)
                tag = mix(tag, (uint64_t)(prompt->media[j].digest + 1) * 1000003 + prompt->media[j].num_tokens);
        tag = mix(tag, (uint32_t)prompt->tokens[i]);
        prompt->tags[i] = tag;
    }
}

void model_row(uint8_t *out, uint64_t bytes, uint64_t tag, uint32_t layer, int side, uint64_t head) {
    uint64_t state = tag ^ ((head * 2 + (uint64_t)side) * 16 + layer) << 48;
    for (uint64_t i = 0; i < bytes; i += 8) {
        state = mix(state, i);
        const uint64_t word = tag == 0 ? UINT64_MAX : state;
        memcpy(out + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

uint64_t model_blocks(const model *m, uint64_t tokens) {
    return tokens / m->page_tokens + (tokens % m->page_tokens != 0 ? 1 : 0);
}

bool model_has_bytes(const model *m) {
    for (uint32_t group = 0; group < m->num_groups; ++group)
        if (!m->groups[group].bytes) return false;
    return true;
}

uint64_t *model_tags(model *m, uint32_t group, pkv_page page, uint32_t layer) {
    return m->groups[group].tags + ((uint64_t)page * model_layers + layer) * m->page_tokens;
}

/* ---- states -------------------------------------------------------------------------------------------------------- */

static bool in_range(const model_group *g, pkv_page page) { return page >= 0 && (uint64_t)page < g->num_pages; }

bool model_cached(const model_group *g, pkv_page page) { return g->pages[page].count == 0 && g->pages[page].node >= 0; }

uint64_t model_num_free(const model_group *g) { return g->num_free_stack + (g->num_pages - g->fresh); }

static uint64_t num_pinned(const model_group *g) {
    uint64_t pinned = 0;
    for (pkv_page page = 0; g->num_cached > 0 && (uint64_t)page < g->num_pages; ++page)
        pinned += model_cached(g, page) && g->pages[page].list == list_pinned;
    return pinned;
}

uint64_t model_room(const model_group *g) { return model_num_free(g) + g->num_cached - num_pinned(g); }

void model_make_free(model *m, uint32_t group, pkv_page page) {
    memset(model_tags(m, group, page, 0), 0, sizeof(uint64_t) * model_layers * m->page_tokens);
    m->groups[group].free_stack[m->groups[group].num_free_stack++] = page;
}

void model_retain_page(model *m, uint32_t group, pkv_page page) {
    model_group *g = &m->groups[group];
    if (model_cached(g, page)) --g->num_cached;
    ++g->pages[page].count;
}

void model_release_page(model *m, uint32_t group, pkv_page page) {
    model_group *g = &m->groups[group];
    model_page *item = &g->pages[page];
    if (--item->count > 0) return;
    if (item->node < 0) {
        model_make_free(m, group, page);
        return;
    }
    const model_node *node = &m->nodes[item->node];
    item->list = node->kept ? list_pinned : list_ordinary;
    item->priority = node->priority;
    item->released = ++m->clock;
    item->order = (int64_t)m->clock;
    ++g->num_cached;
}

/* ---- names that go ------------------------------------------------------------------------------------------------- */

void model_record(model *m, int32_t kind, uint32_t group, int node) {
    if (m->clearing) return;
    assert(m->num_events < model_max_events);
    const model_node *item = &m->nodes[node];
    const uint64_t parent = item->parent >= 0 ? m->nodes[item->parent].tag : model_root_tag(m->roots[item->root].ns);
    m->events[m->num_events++] = (model_event){kind, group, item->tag, parent, item->block};
}

/* A page loses its name. */
void model_detach(model *m, int node, uint32_t group) {
    model_group *g = &m->groups[group];
    const pkv_page page = m->nodes[node].pages[group];
    if (model_cached(g, page)) --g->num_cached;
    g->pages[page].node = -1;
    m->nodes[node].pages[group] = PKV_NO_PAGE;
    model_record(m, PKV_EVENT_REMOVED, group, node);
}

static void drop_pages(model *m, int node, pkv_clear_result *result) {
    for (uint32_t group = 0; group < m->num_groups; ++group) {
        const pkv_page page = m->nodes[node].pages[group];
        if (page == PKV_NO_PAGE) continue;
        const bool cached = model_cached(&m->groups[group], page);
        model_detach(m, node, group);
        if (cached) model_make_free(m, group, page);
        ++*(cached ? &result->freed : &result->held);
    }
}

static void remove_node(model *m, int node) {
    model_set_pinned(m, node, false);
    m->nodes[node].used = false;
    if (m->nodes[node].parent >= 0) --m->nodes[m->nodes[node].parent].children;
    ++m->stats.unpublished_blocks;
}

static bool has_pages(const model *m, int node) {
    for (uint32_t group = 0; group < m->num_groups; ++group)
        if (m->nodes[node].pages[group] != PKV_NO_PAGE) return true;
    return false;
}

/* From a node upwards: blocks without pages and without blocks below are no blocks any more. */
static void prune(model *m, int node) {
    const int root = m->nodes[node].root;
    while (node >= 0) {
        if (m->nodes[node].children > 0) return;
        if (has_pages(m, node)) {
            for (uint32_t group = 0; group < m->num_groups; ++group) {
                const pkv_page page = m->nodes[node].pages[group];
                if (page == PKV_NO_PAGE || !model_cached(&m->groups[group], page)) continue;
                model_page *item = &m->groups[group].pages[page];
                if (item->list != list_parked) continue;
                item->list = list_ordinary;
                item->priority = m->nodes[node].priority;
                item->order = -(int64_t)++m->clock; /* before all others */
            }
            return;
        }
        const int parent = m->nodes[node].parent;
        remove_node(m, node);
        node = parent;
    }
    model_drop_root(m, root);
}

int model_newest_child(const model *m, int root, int parent, uint64_t before) {
    int newest = -1;
    for (int i = 0; i < m->num_nodes; ++i) {
        const model_node *node = &m->nodes[i];
        if (!node->used || node->root != root || node->parent != parent || node->serial >= before) continue;
        if (newest < 0 || node->serial > m->nodes[newest].serial) newest = i;
    }
    return newest;
}

/* All below a node or a root (parent -1) goes, leaves first; cached pages among it become free. */
void model_drop_below(model *m, int root, int parent, pkv_clear_result *result) {
    if (parent >= 0 && m->nodes[parent].children == 0) return;
    for (int child; (child = model_newest_child(m, root, parent, UINT64_MAX)) >= 0;) {
        model_drop_below(m, root, child, result);
        drop_pages(m, child, result);
        remove_node(m, child);
    }
}

/* ---- eviction ------------------------------------------------------------------------------------------------------ */

static bool goes_before(const model_page *a, const model_page *b) {
    if (a->list != b->list) return a->list == list_passed;
    if (a->list == list_ordinary && a->priority != b->priority) return a->priority < b->priority;
    return a->order < b->order;
}

/* The next one for eviction, parked and pinned ones aside. */
static pkv_page victim(const model_group *g) {
    pkv_page best = PKV_NO_PAGE;
    for (pkv_page page = 0; (uint64_t)page < g->num_pages; ++page) {
        const model_page *item = &g->pages[page];
        if (!model_cached(g, page) || item->list == list_parked || item->list == list_pinned) continue;
        if (best == PKV_NO_PAGE || goes_before(item, &g->pages[best])) best = page;
    }
    return best;
}

/* Whether a page may be the next victim: no leaf that is evictable comes before it by priority, and then by age. */
static void look_at_order(model *m, uint32_t group, pkv_page page) {
    const model_group *g = &m->groups[group];
    const uint32_t priority = m->nodes[g->pages[page].node].priority;
    if (g->window != 0) return;
    for (pkv_page other = 0; (uint64_t)other < g->num_pages; ++other) {
        if (!model_cached(g, other)) continue;
        const model_node *node = &m->nodes[g->pages[other].node];
        if (node->children > 0 || node->kept || node->priority > priority) continue;
        if (node->priority < priority || g->pages[other].released < g->pages[page].released) m->wrong_victim = true;
    }
}

static bool is_above(const model *m, int node, int below) {
    for (int at = m->nodes[below].parent; at >= 0; at = m->nodes[at].parent)
        if (at == node) return true;
    return false;
}

/* Where all cached pages have blocks below them that somebody holds: the ones with no cached page below. */
static pkv_page choose_parked(model *m, uint32_t group) {
    const model_group *g = &m->groups[group];
    pkv_page legal[model_max_pages];
    uint64_t num = 0;
    for (pkv_page page = 0; (uint64_t)page < g->num_pages; ++page) {
        if (!model_cached(g, page) || g->pages[page].list == list_pinned) continue;
        bool last = true;
        for (pkv_page other = 0; last && (uint64_t)other < g->num_pages; ++other)
            last = !model_cached(g, other) || !is_above(m, g->pages[page].node, g->pages[other].node);
        if (last) legal[num++] = page;
    }
    return num == 1 ? legal[0] : m->choose(m->user, group, legal, num);
}

/* A cached page loses its name and all lists; the caller has to make it free. */
static pkv_page evict_one(model *m, uint32_t group) {
    model_group *g = &m->groups[group];
    pkv_clear_result more = PKV_CLEAR_RESULT_INIT;
    pkv_page page;
    while ((page = victim(g)) != PKV_NO_PAGE && g->window == 0 && m->nodes[g->pages[page].node].children > 0)
        g->pages[page].list = list_parked;
    if (page != PKV_NO_PAGE) look_at_order(m, group, page);
    const bool fallback = page == PKV_NO_PAGE;
    if (fallback) page = choose_parked(m, group);
    const int node = g->pages[page].node;
    if (fallback) model_drop_below(m, m->nodes[node].root, node, &more);
    model_detach(m, node, group);
    if (g->window == 0) drop_pages(m, node, &more); /* without it no prefix reaches further: in no group */
    prune(m, node);
    m->stats.evicted_pages += 1 + more.freed;
    return page;
}

pkv_page model_take_page(model *m, uint32_t group) {
    model_group *g = &m->groups[group];
    if (model_num_free(g) == 0) model_make_free(m, group, evict_one(m, group));
    const pkv_page page = g->num_free_stack > 0 ? g->free_stack[--g->num_free_stack] : (pkv_page)g->fresh++;
    g->pages[page].count = 1;
    return page;
}

void model_trim(model *m, uint32_t group) {
    const model_group *g = &m->groups[group];
    while (g->max_cached != 0 && g->num_cached > g->max_cached && g->num_cached > num_pinned(g))
        model_make_free(m, group, evict_one(m, group));
}

uint64_t model_evict(model *m, uint32_t group, uint64_t num_pages) {
    const model_group *g = &m->groups[group];
    uint64_t evicted = 0;
    for (; evicted < num_pages && g->num_cached > num_pinned(g); ++evicted)
        model_make_free(m, group, evict_one(m, group));
    return evicted;
}

/* ---- alloc, retain, release ---------------------------------------------------------------------------------------- */

pkv_status model_alloc(model *m, uint32_t group, uint64_t num_pages, pkv_page *pages) {
    if (num_pages == 0) return PKV_OK;
    if (num_pages > model_room(&m->groups[group])) {
        ++m->stats.failed_allocations;
        return PKV_ERR_NO_PAGES;
    }
    for (uint64_t i = 0; i < num_pages; ++i) pages[i] = model_take_page(m, group);
    m->stats.allocated_pages += num_pages;
    return PKV_OK;
}

pkv_status model_retain(model *m, uint32_t group, uint64_t num_pages, const pkv_page *pages) {
    model_group *g = &m->groups[group];
    for (uint64_t i = 0; i < num_pages; ++i) {
        if (!in_range(g, pages[i])) return PKV_ERR_INVALID;
        if (g->pages[pages[i]].count == 0) return PKV_ERR_STATE;
    }
    for (uint64_t i = 0; i < num_pages; ++i) {
        model_retain_page(m, group, pages[i]);
        ++g->pages[pages[i]].low;
    }
    return PKV_OK;
}

pkv_status model_release(model *m, uint32_t group, uint64_t num_pages, const pkv_page *pages, pkv_status *statuses) {
    model_group *g = &m->groups[group];
    pkv_status first = PKV_OK;
    if (statuses == NULL) {
        for (uint64_t i = 0; i < num_pages; ++i) {
            if (!in_range(g, pages[i])) return PKV_ERR_INVALID;
            uint64_t listed = 0;
            for (uint64_t j = 0; j <= i; ++j) listed += pages[j] == pages[i];
            if (listed > g->pages[pages[i]].count) return PKV_ERR_STATE;
        }
    }
    for (uint64_t i = num_pages; i-- > 0;) {
        const pkv_page page = pages[i];
        const pkv_status status = !in_range(g, page)          ? PKV_ERR_INVALID
                                  : g->pages[page].count == 0 ? PKV_ERR_STATE
                                                              : PKV_OK;
        if (statuses != NULL) statuses[i] = status;
        if (status != PKV_OK) {
            first = status;
            continue;
        }
        --g->pages[page].low;
        model_release_page(m, group, page);
    }
    model_trim(m, group);
    return first;
}

/* ---- gauges -------------------------------------------------------------------------------------------------------- */

bool model_gauges(model *m, uint32_t group) {
    const model_group *g = &m->groups[group];
    uint64_t holders[model_max_pages] = {0};
    pkv_pool_stats *stats = &m->stats;
    stats->num_pages = g->num_pages;
    stats->free_pages = model_num_free(g);
    stats->pinned_pages = num_pinned(g);
    stats->cached_pages = stats->held_pages = stats->index_blocks = stats->tables = stats->namespaces = 0;
    for (int i = 0; i < model_max_tables; ++i) {
        const model_table *t = &m->tables[i];
        if (!t->alive) continue;
        ++stats->tables;
        for (uint64_t j = 0; j < t->num_blocks; ++j)
            if (t->pages[group][j] != PKV_NO_PAGE) ++holders[t->pages[group][j]];
        if (t->copy_sources[group] != PKV_NO_PAGE) ++holders[t->copy_sources[group]];
    }
    for (int root = 0; root < m->num_roots; ++root) stats->namespaces += m->roots[root].used;
    for (int node = 0; node < m->num_nodes; ++node) stats->index_blocks += m->nodes[node].used;
    bool right = !m->wrong_victim;
    for (uint64_t page = 0; page < g->num_pages; ++page) {
        const model_page *item = &g->pages[page];
        stats->held_pages += item->count > 0;
        stats->cached_pages += model_cached(g, (pkv_page)page);
        right = right && item->count == holders[page] + item->low;
        right = right && (item->node < 0 || m->nodes[item->node].pages[group] == (pkv_page)page);
    }
    right = right && stats->cached_pages == g->num_cached;
    return right && stats->free_pages + stats->held_pages + stats->cached_pages == g->num_pages;
}
