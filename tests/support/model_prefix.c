/* SPDX-License-Identifier: Apache-2.0 */
/* The model's prefixes and their retention; see model.h. */
#include "support/model.h"

#include <string.h>

/* ---- namespaces ---------------------------------------------------------------------------------------------------- */

static int find_root(const model *m, int ns) {
    for (int root = 0; root < m->num_roots; ++root)
        if (m->roots[root].used && !m->roots[root].dead && m->roots[root].ns == ns) return root;
    return -1;
}

int model_find_or_make_root(model *m, int ns) {
    int root = find_root(m, ns);
    if (root >= 0) return root;
    root = m->num_free_roots > 0 ? m->free_roots[--m->num_free_roots] : m->num_roots++;
    m->roots[root] = (model_root){true, false, ns, 0, false, PKV_RETENTION_INIT};
    return root;
}

void model_drop_root(model *m, int root) {
    model_root *item = &m->roots[root];
    if (!item->used || item->references > 0 || model_newest_child(m, root, -1, UINT64_MAX) >= 0) return;
    if (item->has_retention && !item->dead) return;
    item->used = false;
    m->free_roots[m->num_free_roots++] = root;
}

static void clear_root(model *m, int root, pkv_clear_result *result) {
    const model_root old = m->roots[root];
    m->events[m->num_events++] = (model_event){PKV_EVENT_CLEARED, 0, model_root_tag(old.ns), 0, 0};
    /* Tables keep the namespace that they know, and publish nothing more there; its retention goes on without them. */
    m->roots[root].dead = old.references > 0;
    if (old.references > 0 && old.has_retention) {
        const int fresh = model_find_or_make_root(m, old.ns);
        m->roots[fresh].has_retention = true;
        m->roots[fresh].retention = old.retention;
    }
    m->clearing = true;
    model_drop_below(m, root, -1, result);
    m->clearing = false;
    model_drop_root(m, root);
}

void model_clear(model *m, int ns, pkv_clear_result *result) {
    bool there[model_max_tables * 4] = {false};
    for (int root = 0; root < m->num_roots; ++root)
        there[root] = m->roots[root].used && !m->roots[root].dead && (ns < 0 || m->roots[root].ns == ns);
    for (int root = 0; root < model_max_tables * 4; ++root)
        if (there[root]) clear_root(m, root, result);
    m->stats.cleared_pages += result->freed;
}

/* ---- matching ------------------------------------------------------------------------------------------------------ */

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
    for (int i = 0; i < m->num_nodes; ++i) {
        const model_node *node = &m->nodes[i];
        if (node->used && node->root == root && node->parent == parent && node->num_media == num_media &&
            memcmp(node->tokens, prompt->tokens + block * m->page_tokens, m->page_tokens * sizeof(pkv_token)) == 0 &&
            same_media(node->media, media, num_media))
            return i;
    }
    return -1;
}

bool model_reaches(const model *m, uint32_t group, uint64_t block, uint64_t length) {
    const model_group *g = &m->groups[group];
    if (g->window == 0) return true;
    const uint64_t window_begin = length > g->window ? length - g->window : 0;
    return block * m->page_tokens < g->sinks || (block + 1) * m->page_tokens > window_begin;
}

/* Whether all groups have what a prefix of whole blocks needs. */
static bool covered(const model *m, const int *nodes, uint64_t blocks) {
    for (uint32_t group = 0; group < m->num_groups; ++group)
        for (uint64_t block = 0; block < blocks; ++block)
            if (model_reaches(m, group, block, blocks * m->page_tokens) &&
                m->nodes[nodes[block]].pages[group] == PKV_NO_PAGE)
                return false;
    return true;
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
    while (!covered(m, nodes, found)) --found;
    return found;
}

uint64_t model_lookup(model *m, const model_prompt *prompt, uint64_t max_match, uint64_t capacity, pkv_page *pages) {
    int nodes[model_max_pages];
    const uint64_t found = model_match(m, prompt, max_match, capacity, nodes);
    for (uint32_t group = 0; group < m->num_groups; ++group)
        for (uint64_t i = 0; i < found; ++i) {
            pkv_page *page = &pages[group * capacity + i];
            *page = PKV_NO_PAGE;
            if (!model_reaches(m, group, i, found * m->page_tokens)) continue;
            *page = m->nodes[nodes[i]].pages[group];
            model_retain_page(m, group, *page);
            ++m->groups[group].pages[*page].low;
        }
    ++m->stats.requests;
    m->stats.asked_tokens += prompt->num_tokens;
    m->stats.hit_tokens += found * m->page_tokens;
    return found;
}

/* ---- publishing ---------------------------------------------------------------------------------------------------- */

static int make_node(model *m, int root, int parent, const model_prompt *prompt, uint64_t block) {
    int id = 0;
    while (m->nodes[id].used) ++id;
    if (id >= m->num_nodes) m->num_nodes = id + 1;
    model_node *node = &m->nodes[id];
    memset(node, 0, sizeof *node);
    node->used = true;
    node->root = root;
    node->parent = parent;
    node->serial = ++m->last_serial;
    node->block = block;
    node->tag = prompt->tags[(block + 1) * m->page_tokens - 1];
    node->priority = PKV_PRIORITY_DEFAULT;
    for (uint32_t group = 0; group < model_max_groups; ++group) node->pages[group] = PKV_NO_PAGE;
    memcpy(node->tokens, prompt->tokens + block * m->page_tokens, m->page_tokens * sizeof(pkv_token));
    node->num_media = block_media(m, prompt, block, node->media);
    if (parent >= 0) ++m->nodes[parent].children;
    ++m->stats.published_blocks;
    return id;
}

static void publish_page(model *m, int id, uint32_t group, pkv_page *page, bool share) {
    model_group *g = &m->groups[group];
    const pkv_page owner = m->nodes[id].pages[group];
    if (owner == *page) return;
    if (owner != PKV_NO_PAGE) {
        ++m->stats.duplicate_blocks;
        if (share && g->pages[*page].count == 1) {
            ++m->stats.shared_duplicates;
            model_retain_page(m, group, owner);
            model_release_page(m, group, *page);
            *page = owner;
            return;
        }
        if (g->pages[owner].count > 0) return;
        model_detach(m, id, group);
        model_make_free(m, group, owner);
    }
    m->nodes[id].pages[group] = *page;
    g->pages[*page].node = id;
    model_record(m, PKV_EVENT_STORED, group, id);
}

int model_publish_block(model *m, int root, int parent, const model_prompt *prompt, uint64_t block, pkv_page *pages,
                        bool share, const model_range *ranges, int num_ranges) {
    int id = find_block(m, root, parent, prompt, block);
    for (uint32_t group = 0; group < m->num_groups; ++group) {
        const int name = pages[group] != PKV_NO_PAGE ? m->groups[group].pages[pages[group]].node : -1;
        if (name >= 0 && name != id) return -1;
    }
    const bool fresh = id < 0;
    if (fresh) id = make_node(m, root, parent, prompt, block);
    for (uint32_t group = 0; group < m->num_groups; ++group)
        if (pages[group] != PKV_NO_PAGE) publish_page(m, id, group, &pages[group], share);
    if (!fresh) return id;
    const uint64_t begin = block * m->page_tokens;
    for (int i = num_ranges; i-- > 0;)
        if (ranges[i].begin < begin + m->page_tokens && ranges[i].end > begin) {
            model_apply_retention(m, id, &ranges[i].retention);
            return id;
        }
    if (m->roots[root].has_retention) model_apply_retention(m, id, &m->roots[root].retention);
    return id;
}

pkv_status model_publish(model *m, uint32_t group, const model_prompt *prompt, uint64_t first_block, uint64_t num_pages,
                         const pkv_page *pages, pkv_page *owner) {
    const model_group *g = &m->groups[group];
    const uint64_t blocks = prompt->num_tokens / m->page_tokens;
    if (first_block > blocks || num_pages > blocks - first_block) return PKV_ERR_INVALID;
    if (num_pages == 0) return PKV_OK;
    for (uint64_t i = 0; i < num_pages; ++i)
        for (uint64_t j = 0; j < i; ++j)
            if (pages[i] == pages[j]) return PKV_ERR_INVALID;
    for (uint64_t i = 0; i < num_pages; ++i) {
        if (pages[i] < 0 || (uint64_t)pages[i] >= g->num_pages) return PKV_ERR_INVALID;
        if (g->pages[pages[i]].count == 0) return PKV_ERR_STATE;
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
            const int node = g->pages[pages[block - first_block]].node;
            if (node >= 0 && node != at) return PKV_ERR_STATE;
        }
    }
    root = model_find_or_make_root(m, prompt->ns);
    parent = parent_of_first;
    for (uint64_t i = 0; i < num_pages; ++i) {
        pkv_page one[model_max_groups] = {PKV_NO_PAGE, PKV_NO_PAGE, PKV_NO_PAGE};
        one[group] = pages[i];
        parent = model_publish_block(m, root, parent, prompt, first_block + i, one, false, NULL, 0);
        if (owner != NULL) owner[i] = m->nodes[parent].pages[group];
    }
    return PKV_OK;
}

/* ---- retention ----------------------------------------------------------------------------------------------------- */

static bool is_kept(const model *m, int node) {
    for (int below = 0; below < m->num_nodes; ++below) {
        if (!m->nodes[below].used || !m->nodes[below].pinned) continue;
        for (int at = below; at >= 0; at = m->nodes[at].parent)
            if (at == node) return true;
    }
    return false;
}

/* Cached pages of a block whose retention has changed. It counts as released now. What a window has passed
 * stays first, unless it is pinned. */
static void relist(model *m, int node) {
    const model_node *item = &m->nodes[node];
    for (uint32_t group = 0; group < m->num_groups; ++group) {
        if (item->pages[group] == PKV_NO_PAGE || !model_cached(&m->groups[group], item->pages[group])) continue;
        model_page *page = &m->groups[group].pages[item->pages[group]];
        if (item->kept) {
            page->list = list_pinned;
        } else if (page->list == list_pinned || (page->list != list_passed && page->priority != item->priority)) {
            page->list = list_ordinary;
            page->priority = item->priority;
            page->order = (int64_t)++m->clock;
            page->released = m->clock;
        }
    }
}

void model_set_pinned(model *m, int node, bool pinned) {
    if (m->nodes[node].pinned == pinned) return;
    m->nodes[node].pinned = pinned;
    for (int at = node; at >= 0 && is_kept(m, at) != m->nodes[at].kept; at = m->nodes[at].parent) {
        m->nodes[at].kept = !m->nodes[at].kept;
        relist(m, at);
    }
}

void model_apply_retention(model *m, int node, const pkv_retention *retention) {
    m->nodes[node].priority = retention->priority;
    model_set_pinned(m, node, retention->pin != 0);
    relist(m, node);
}

uint64_t model_set_retention(model *m, const model_prompt *prompt, uint64_t first, uint64_t num_tokens,
                             const pkv_retention *retention) {
    const uint64_t end = num_tokens > UINT64_MAX - first ? UINT64_MAX : first + num_tokens;
    const int root = find_root(m, prompt->ns);
    uint64_t set = 0;
    for (uint64_t block = 0, parent = 0; num_tokens > 0 && root >= 0 && block < prompt->num_tokens / m->page_tokens;
         ++block) {
        if (block * m->page_tokens >= end) break;
        const int node = find_block(m, root, block == 0 ? -1 : (int)parent, prompt, block);
        if (node < 0) break;
        parent = (uint64_t)node;
        if ((block + 1) * m->page_tokens <= first) continue;
        model_apply_retention(m, node, retention);
        ++set;
    }
    for (uint32_t group = 0; group < m->num_groups; ++group) model_trim(m, group); /* some may be pinned no more */
    return set;
}

void model_set_namespace_retention(model *m, int ns, const pkv_retention *retention) {
    if (retention == NULL && find_root(m, ns) < 0) return;
    const int root = model_find_or_make_root(m, ns);
    m->roots[root].has_retention = retention != NULL;
    if (retention != NULL) m->roots[root].retention = *retention;
    model_drop_root(m, root);
}
