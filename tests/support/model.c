/* SPDX-License-Identifier: Apache-2.0 */
/* The model's pages and prefixes; see model.h. */
#include "support/model.h"

#include <stdlib.h>
#include <string.h>

model *model_create(uint64_t num_pages, uint32_t page_tokens, uint64_t max_cached, bool bytes) {
    model *m = calloc(1, sizeof *m);
    m->num_pages = num_pages;
    m->page_tokens = page_tokens;
    m->max_cached = max_cached;
    m->bytes = bytes;
    m->tags = calloc(num_pages * model_layers * page_tokens, sizeof *m->tags);
    for (uint64_t page = 0; page < num_pages; ++page) m->pages[page].node = -1;
    m->stats = (pkv_pool_stats)PKV_POOL_STATS_INIT;
    return m;
}

void model_destroy(model *m) {
    free(m->tags);
    free(m);
}

static uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t mixed = a * UINT64_C(0x9E3779B97F4A7C15) + b + 1;
    mixed = (mixed ^ (mixed >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed ^= mixed >> 32;
    return mixed != 0 ? mixed : 1; /* 0 is poison */
}

void model_tag(model_prompt *prompt) {
    uint64_t tag = mix(77, (uint64_t)prompt->ns);
    for (uint64_t i = 0; i < prompt->num_tokens; ++i) {
        for (int j = 0; j < prompt->num_media; ++j)
            if (prompt->media[j].position == i)
                tag = mix(tag, (uint64_t)(prompt->media[j].digest + 1) * 1000003 + prompt->media[j].num_tokens);
        tag = mix(tag, (uint32_t)prompt->tokens[i]);
        prompt->tags[i] = tag;
    }
}

void model_row(uint8_t *out, uint64_t bytes, uint64_t tag, uint32_t layer, int side, uint64_t head) {
    uint64_t state = tag ^ ((head * 2 + (uint64_t)side) * model_layers + layer) << 56;
    for (uint64_t i = 0; i < bytes; i += 8) {
        state = mix(state, i);
        const uint64_t word = tag == 0 ? UINT64_MAX : state;
        memcpy(out + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

/* ---- pages --------------------------------------------------------------------------------------------------------- */

static bool in_range(const model *m, pkv_page page) { return page >= 0 && (uint64_t)page < m->num_pages; }

bool model_cached(const model *m, pkv_page page) { return m->pages[page].count == 0 && m->pages[page].node >= 0; }

uint64_t model_num_free(const model *m) { return m->num_free_stack + (m->num_pages - m->fresh); }

uint64_t model_num_cached(const model *m) {
    uint64_t cached = 0;
    for (uint64_t page = 0; page < m->num_pages; ++page) cached += model_cached(m, (pkv_page)page);
    return cached;
}

uint64_t *model_tags(model *m, pkv_page page, uint32_t layer) {
    return m->tags + ((uint64_t)page * model_layers + layer) * m->page_tokens;
}

static void make_free(model *m, pkv_page page) {
    memset(model_tags(m, page, 0), 0, sizeof(uint64_t) * model_layers * m->page_tokens);
    m->free_stack[m->num_free_stack++] = page;
}

static void unpublish(model *m, int node) {
    model_node *gone = &m->nodes[node];
    m->pages[gone->page].node = -1;
    gone->used = false;
    ++m->stats.unpublished_blocks;
    model_drop_root(m, gone->root);
}

/* The child of a node, or of a root (parent -1), that was made last; -1: none. */
static int newest_child(const model *m, int root, int parent) {
    int newest = -1;
    for (uint64_t i = 0; i < m->num_pages; ++i) {
        const model_node *node = &m->nodes[i];
        if (!node->used || node->root != root || node->parent != parent) continue;
        if (newest < 0 || node->serial > m->nodes[newest].serial) newest = (int)i;
    }
    return newest;
}

/* Unpublishes all below a node or a root; cached pages among them become free, leaves first. */
static void drop_below(model *m, int root, int parent, pkv_clear_result *result) {
    for (int child = newest_child(m, root, parent); child >= 0; child = newest_child(m, root, parent)) {
        drop_below(m, root, child, result);
        const pkv_page page = m->nodes[child].page;
        const bool cached = model_cached(m, page);
        unpublish(m, child);
        if (cached) {
            make_free(m, page);
            ++result->freed;
        } else {
            ++result->held;
        }
    }
}

/* The cached page released first, of those without children or of all; PKV_NO_PAGE: none. */
static pkv_page oldest(const model *m, bool leaves) {
    pkv_page best = PKV_NO_PAGE;
    for (pkv_page page = 0; (uint64_t)page < m->num_pages; ++page) {
        if (!model_cached(m, page) || (best != PKV_NO_PAGE && m->pages[page].stamp > m->pages[best].stamp)) continue;
        const int node = m->pages[page].node;
        if (!leaves || newest_child(m, m->nodes[node].root, node) < 0) best = page;
    }
    return best;
}

/* Evicts the least recently released leaf. If all cached pages have blocks below them, which are held then, the least
 * recently released of them goes with all that is below. Returns how many pages became free. */
static uint64_t evict_one(model *m) {
    pkv_clear_result below = PKV_CLEAR_RESULT_INIT;
    pkv_page page = oldest(m, true);
    if (page == PKV_NO_PAGE) {
        page = oldest(m, false);
        const int node = m->pages[page].node;
        drop_below(m, m->nodes[node].root, node, &below);
    }
    unpublish(m, m->pages[page].node);
    make_free(m, page);
    m->stats.evicted_pages += 1 + below.freed;
    return 1 + below.freed;
}

pkv_page model_take_page(model *m) {
    if (model_num_free(m) == 0) evict_one(m);
    const pkv_page page = m->num_free_stack > 0 ? m->free_stack[--m->num_free_stack] : (pkv_page)m->fresh++;
    m->pages[page].count = 1;
    return page;
}

void model_retain_page(model *m, pkv_page page) { ++m->pages[page].count; }

void model_release_page(model *m, pkv_page page) {
    if (--m->pages[page].count > 0) return;
    if (m->pages[page].node < 0) {
        make_free(m, page);
        return;
    }
    m->pages[page].stamp = ++m->clock;
    while (m->max_cached != 0 && model_num_cached(m) > m->max_cached) evict_one(m);
}

pkv_status model_alloc(model *m, uint64_t num_pages, pkv_page *pages) {
    if (num_pages == 0) return PKV_OK;
    if (num_pages > model_num_free(m) + model_num_cached(m)) {
        ++m->stats.failed_allocations;
        return PKV_ERR_NO_PAGES;
    }
    for (uint64_t i = 0; i < num_pages; ++i) pages[i] = model_take_page(m);
    m->stats.allocated_pages += num_pages;
    return PKV_OK;
}

pkv_status model_retain(model *m, uint64_t num_pages, const pkv_page *pages) {
    for (uint64_t i = 0; i < num_pages; ++i) {
        if (!in_range(m, pages[i])) return PKV_ERR_INVALID;
        if (m->pages[pages[i]].count == 0) return PKV_ERR_STATE;
    }
    for (uint64_t i = 0; i < num_pages; ++i) {
        model_retain_page(m, pages[i]);
        ++m->pages[pages[i]].low;
    }
    return PKV_OK;
}

pkv_status model_release(model *m, uint64_t num_pages, const pkv_page *pages, pkv_status *statuses) {
    pkv_status first = PKV_OK;
    if (statuses == NULL) {
        for (uint64_t i = 0; i < num_pages; ++i) {
            if (!in_range(m, pages[i])) return PKV_ERR_INVALID;
            uint64_t listed = 0;
            for (uint64_t j = 0; j <= i; ++j) listed += pages[j] == pages[i];
            if (listed > m->pages[pages[i]].count) return PKV_ERR_STATE;
        }
    }
    for (uint64_t i = num_pages; i-- > 0;) {
        const pkv_page page = pages[i];
        const pkv_status status = !in_range(m, page)          ? PKV_ERR_INVALID
                                  : m->pages[page].count == 0 ? PKV_ERR_STATE
                                                              : PKV_OK;
        if (statuses != NULL) statuses[i] = status;
        if (status != PKV_OK) {
            first = status;
            continue;
        }
        --m->pages[page].low;
        model_release_page(m, page);
    }
    return first;
}

/* ---- prefixes ------------------------------------------------------------------------------------------------------ */

static int find_root(const model *m, int ns) {
    for (int root = 0; root < m->num_roots; ++root)
        if (m->roots[root].used && !m->roots[root].dead && m->roots[root].ns == ns) return root;
    return -1;
}

int model_find_or_make_root(model *m, int ns) {
    int root = find_root(m, ns);
    if (root >= 0) return root;
    root = m->num_free_roots > 0 ? m->free_roots[--m->num_free_roots] : m->num_roots++;
    m->roots[root] = (model_root){true, false, ns, 0};
    return root;
}

void model_drop_root(model *m, int root) {
    model_root *item = &m->roots[root];
    if (!item->used || item->references > 0 || newest_child(m, root, -1) >= 0) return;
    item->used = false;
    m->free_roots[m->num_free_roots++] = root;
}

/* The media that begin in a block. */
static int block_media(const model *m, const model_prompt *prompt, uint64_t block, model_media *out) {
    int num = 0;
    for (int i = 0; i < prompt->num_media; ++i) {
        if (prompt->media[i].position / m->page_tokens != block) continue;
        out[num] = prompt->media[i];
        out[num++].position -= block * m->page_tokens;
    }
    return num;
}

static bool same_media(const model_media *a, const model_media *b, int num) {
    for (int i = 0; i < num; ++i)
        if (a[i].position != b[i].position || a[i].num_tokens != b[i].num_tokens || a[i].digest != b[i].digest)
            return false;
    return true;
}

static int find_block(const model *m, int root, int parent, const model_prompt *prompt, uint64_t block) {
    model_media media[model_max_media];
    const int num_media = block_media(m, prompt, block, media);
    for (uint64_t i = 0; i < m->num_pages; ++i) {
        const model_node *node = &m->nodes[i];
        if (node->used && node->root == root && node->parent == parent && node->num_media == num_media &&
            memcmp(node->tokens, prompt->tokens + block * m->page_tokens, m->page_tokens * sizeof(pkv_token)) == 0 &&
            same_media(node->media, media, num_media))
            return (int)i;
    }
    return -1;
}

uint64_t model_match(const model *m, const model_prompt *prompt, uint64_t max_match, uint64_t capacity, int *nodes) {
    const int root = find_root(m, prompt->ns);
    uint64_t limit = max_match;
    if (limit == 0) limit = prompt->num_tokens > 0 ? prompt->num_tokens - 1 : 0;
    if (limit > prompt->num_tokens) limit = prompt->num_tokens;
    limit /= m->page_tokens;
    if (limit > capacity) limit = capacity;
    uint64_t found = 0;
    for (int parent = -1; root >= 0 && found < limit; ++found) {
        parent = find_block(m, root, parent, prompt, found);
        if (parent < 0) break;
        nodes[found] = parent;
    }
    return found;
}

uint64_t model_lookup(model *m, const model_prompt *prompt, uint64_t max_match, uint64_t capacity, pkv_page *pages) {
    int nodes[model_max_pages];
    const uint64_t found = model_match(m, prompt, max_match, capacity, nodes);
    for (uint64_t i = 0; i < found; ++i) {
        pages[i] = m->nodes[nodes[i]].page;
        model_retain_page(m, pages[i]);
        ++m->pages[pages[i]].low;
    }
    ++m->stats.requests;
    m->stats.asked_tokens += prompt->num_tokens;
    m->stats.hit_tokens += found * m->page_tokens;
    return found;
}

int model_publish_block(model *m, int root, int parent, const model_prompt *prompt, uint64_t block, pkv_page page) {
    int id = find_block(m, root, parent, prompt, block);
    if (id < 0) {
        if (m->pages[page].node >= 0) return -1;
        for (id = 0; m->nodes[id].used; ++id) {
        }
        model_node *node = &m->nodes[id];
        node->used = true;
        node->root = root;
        node->parent = parent;
        node->serial = ++m->last_serial;
        node->block = block;
        node->page = page;
        node->tag = prompt->tags[(block + 1) * m->page_tokens - 1];
        memcpy(node->tokens, prompt->tokens + block * m->page_tokens, m->page_tokens * sizeof(pkv_token));
        node->num_media = block_media(m, prompt, block, node->media);
        m->pages[page].node = id;
        ++m->stats.published_blocks;
        return id;
    }
    const pkv_page owner = m->nodes[id].page;
    if (owner == page) return id;
    ++m->stats.duplicate_blocks;
    if (m->pages[owner].count == 0 && m->pages[page].node < 0) {
        m->pages[owner].node = -1;
        make_free(m, owner);
        m->nodes[id].page = page;
        m->pages[page].node = id;
    }
    return id;
}

pkv_status model_publish(model *m, const model_prompt *prompt, uint64_t first_block, uint64_t num_pages,
                         const pkv_page *pages, pkv_page *owner) {
    const uint64_t blocks = prompt->num_tokens / m->page_tokens;
    if (first_block > blocks || num_pages > blocks - first_block) return PKV_ERR_INVALID;
    if (num_pages == 0) return PKV_OK;
    for (uint64_t i = 0; i < num_pages; ++i)
        for (uint64_t j = 0; j < i; ++j)
            if (pages[i] == pages[j]) return PKV_ERR_INVALID;
    for (uint64_t i = 0; i < num_pages; ++i) {
        if (!in_range(m, pages[i])) return PKV_ERR_INVALID;
        if (m->pages[pages[i]].count == 0) return PKV_ERR_STATE;
    }
    int root = find_root(m, prompt->ns);
    int parent = -1;
    bool there = root >= 0;
    int parent_of_first = -1;
    for (uint64_t block = 0; block < first_block + num_pages; ++block) {
        const int at = there ? find_block(m, root, parent, prompt, block) : -1;
        there = at >= 0;
        parent = at;
        if (block < first_block) {
            if (!there) return PKV_ERR_NOT_FOUND;
            parent_of_first = at;
        } else {
            const int node = m->pages[pages[block - first_block]].node;
            if (node >= 0 && node != at) return PKV_ERR_STATE;
        }
    }
    root = model_find_or_make_root(m, prompt->ns);
    parent = parent_of_first;
    for (uint64_t i = 0; i < num_pages; ++i) {
        parent = model_publish_block(m, root, parent, prompt, first_block + i, pages[i]);
        if (owner != NULL) owner[i] = m->nodes[parent].page;
    }
    return PKV_OK;
}

uint64_t model_evict(model *m, uint64_t num_pages) {
    uint64_t freed = 0;
    while (freed < num_pages && model_num_cached(m) > 0) freed += evict_one(m);
    return freed;
}

void model_clear(model *m, int ns, pkv_clear_result *result) {
    for (int root = 0; root < m->num_roots; ++root) {
        if (!m->roots[root].used || m->roots[root].dead || (ns >= 0 && m->roots[root].ns != ns)) continue;
        m->roots[root].dead = true;
        drop_below(m, root, -1, result);
        model_drop_root(m, root);
    }
    m->stats.cleared_pages += result->freed;
}

/* ---- gauges -------------------------------------------------------------------------------------------------------- */

bool model_gauges(model *m) {
    uint64_t holders[model_max_pages] = {0};
    pkv_pool_stats *stats = &m->stats;
    stats->num_pages = m->num_pages;
    stats->free_pages = model_num_free(m);
    stats->cached_pages = model_num_cached(m);
    stats->held_pages = stats->index_blocks = stats->tables = stats->namespaces = 0;
    for (int i = 0; i < model_max_tables; ++i) {
        const model_table *t = &m->tables[i];
        if (!t->alive) continue;
        ++stats->tables;
        for (uint64_t j = 0; j < t->num_pages; ++j) ++holders[t->pages[j]];
        if (t->copy_source != PKV_NO_PAGE) ++holders[t->copy_source];
    }
    for (int root = 0; root < m->num_roots; ++root) stats->namespaces += m->roots[root].used;
    bool right = true;
    for (uint64_t page = 0; page < m->num_pages; ++page) {
        stats->held_pages += m->pages[page].count > 0;
        stats->index_blocks += m->nodes[page].used;
        right = right && m->pages[page].count == holders[page] + m->pages[page].low;
        right = right && (m->pages[page].node < 0 || m->nodes[m->pages[page].node].page == (pkv_page)page);
    }
    return right && stats->free_pages + stats->held_pages + stats->cached_pages == m->num_pages;
}
