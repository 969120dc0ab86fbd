/* SPDX-License-Identifier: Apache-2.0 */
/* The model's tables: the life of a sequence; see model.h. */
#include "support/model.h"

#include <string.h>

static uint64_t max_of(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t min_of(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t model_reserved(const model *m, const model_table *t) { return t->num_blocks * m->page_tokens; }

uint64_t model_row_tag(model *m, const model_table *t, uint32_t group, uint32_t layer, uint64_t position) {
    return model_tags(m, group, t->pages[group][position / m->page_tokens], layer)[position % m->page_tokens];
}

/* ---- admission ----------------------------------------------------------------------------------------------------- */

/* Whether each group has room for new pages besides the matched ones and the watermark. */
static bool has_room(const model *m, const int *nodes, uint64_t matched, uint64_t wanted, uint64_t watermark) {
    for (uint32_t group = 0; group < m->num_groups; ++group) {
        const model_group *g = &m->groups[group];
        uint64_t room = model_room(g);
        for (uint64_t i = 0; i < matched; ++i) {
            const pkv_page page = m->nodes[nodes[i]].pages[group];
            if (model_reaches(m, group, i, matched * m->page_tokens))
                room -= model_cached(g, page) && g->pages[page].list != list_pinned;
        }
        if (wanted > room || watermark > room - wanted) return false;
    }
    return true;
}

/* The block under `parent` that has most of the prompt's next tokens, among the youngest 8; -1: none. */
static int match_inside(const model *m, const model_prompt *prompt, int root, int parent, uint64_t begin,
                        uint64_t max_match, uint64_t *tokens) {
    uint64_t end = min_of(min_of(max_match, prompt->num_tokens), begin + m->page_tokens);
    for (int i = prompt->num_media; i-- > 0;) /* media count as a whole: nothing behind their beginning */
        if (prompt->media[i].position >= begin && prompt->media[i].position < end) end = prompt->media[i].position;
    int best = -1;
    *tokens = 0;
    uint64_t serial = UINT64_MAX;
    for (int i = 0; i < 8; ++i) {
        const int child = model_newest_child(m, root, parent, serial);
        if (child < 0) break;
        const model_node *node = &m->nodes[child];
        serial = node->serial;
        bool usable = node->num_media == 0;
        for (uint32_t group = 0; group < m->num_groups; ++group) usable = usable && node->pages[group] != PKV_NO_PAGE;
        uint64_t same = 0;
        while (begin + same < end && node->tokens[same] == prompt->tokens[begin + same]) ++same;
        if (!usable || same <= *tokens) continue;
        best = child;
        *tokens = same;
    }
    return best;
}

/* Holds the pages of the block that was found; not if they were room that is needed. */
static bool hold_inside(model *m, int node, uint64_t wanted, uint64_t watermark, pkv_page *pages) {
    for (uint32_t group = 0; group < m->num_groups; ++group) {
        const model_group *g = &m->groups[group];
        pages[group] = m->nodes[node].pages[group];
        const bool was_room = model_cached(g, pages[group]) && g->pages[pages[group]].list != list_pinned;
        if (was_room && model_room(g) < wanted + watermark + 1) return false;
    }
    for (uint32_t group = 0; group < m->num_groups; ++group) model_retain_page(m, group, pages[group]);
    return true;
}

static void copy_inside(model *m, model_table *t, uint64_t block, const pkv_page *pages, uint64_t tokens) {
    for (uint32_t group = 0; group < m->num_groups; ++group)
        for (uint32_t layer = 0; layer < model_layers; ++layer)
            memcpy(model_tags(m, group, t->pages[group][block], layer), model_tags(m, group, pages[group], layer),
                   tokens * sizeof(uint64_t));
    for (uint32_t group = 0; group < m->num_groups; ++group) {
        model_release_page(m, group, pages[group]);
        model_trim(m, group);
    }
}

pkv_status model_admit(model *m, model_table *t, const model_prompt *prompt, const pkv_admit_options *options) {
    if (t->admitted) return PKV_ERR_STATE;
    if (options->reserve_tokens > UINT64_C(1) << 40) return PKV_ERR_LIMIT;
    int nodes[model_max_pages];
    const bool no_match = (options->flags & PKV_ADMIT_NO_MATCH) != 0;
    const uint64_t matched = model_match(m, prompt, options->max_match, no_match ? 0 : UINT64_MAX, nodes);
    const uint64_t begin = matched * m->page_tokens;
    const uint64_t end = options->reserve_tokens != 0 ? begin + options->reserve_tokens : prompt->num_tokens;
    const uint64_t wanted = max_of(model_blocks(m, end), matched) - matched;
    if (!has_room(m, nodes, matched, wanted, options->watermark)) {
        ++m->stats.refused;
        return PKV_ERR_NO_PAGES;
    }
    model_table_create(t);
    t->admitted = true;
    t->share = (options->flags & PKV_ADMIT_SHARE) != 0;
    t->root = model_find_or_make_root(m, prompt->ns);
    ++m->roots[t->root].references;
    t->num_blocks = matched + wanted;
    for (uint32_t group = 0; group < m->num_groups; ++group)
        for (uint64_t i = 0; i < matched; ++i) {
            t->pages[group][i] = PKV_NO_PAGE;
            if (!model_reaches(m, group, i, begin)) continue;
            t->pages[group][i] = m->nodes[nodes[i]].pages[group];
            model_retain_page(m, group, t->pages[group][i]);
        }
    t->published = matched;
    t->node = matched > 0 ? nodes[matched - 1] : -1;
    t->node_serial = matched > 0 ? m->nodes[t->node].serial : 0;

    uint64_t inside = 0;
    pkv_page inside_pages[model_max_groups];
    if ((options->flags & PKV_ADMIT_PARTIAL) != 0 && model_has_bytes(m) && wanted > 0 && !no_match) {
        const uint64_t all_but_last = prompt->num_tokens > 0 ? prompt->num_tokens - 1 : 0;
        const uint64_t max_match = options->max_match == 0 ? all_but_last : options->max_match;
        const int node = match_inside(m, prompt, t->root, t->node, begin, max_match, &inside);
        if (node < 0 || !hold_inside(m, node, wanted, options->watermark, inside_pages)) inside = 0;
    }
    for (uint32_t group = 0; group < m->num_groups; ++group)
        for (uint64_t i = 0; i < wanted; ++i) t->pages[group][matched + i] = model_take_page(m, group);
    if (inside > 0) copy_inside(m, t, matched, inside_pages, inside);
    t->sequence = *prompt;
    t->named = prompt->num_tokens;
    t->committed = t->matched = begin + inside;
    m->stats.allocated_pages += wanted * m->num_groups;
    m->stats.partial_tokens += inside;
    if ((options->flags & PKV_ADMIT_RETRY) != 0) {
        ++m->stats.retries;
    } else {
        ++m->stats.requests;
        m->stats.asked_tokens += prompt->num_tokens;
        m->stats.hit_tokens += begin + inside;
    }
    return PKV_OK;
}

/* ---- room and names ------------------------------------------------------------------------------------------------ */

pkv_status model_reserve(model *m, model_table *t, uint64_t num_tokens) {
    if (!t->admitted) return PKV_ERR_STATE;
    if (num_tokens > UINT64_C(1) << 40) return PKV_ERR_LIMIT;
    const uint64_t blocks = max_of(model_blocks(m, num_tokens), t->num_blocks);
    const uint32_t copy = num_tokens > t->committed ? model_tail_shared(m, t) : 0;
    return blocks == t->num_blocks && copy == 0 ? PKV_OK : model_extend(m, t, blocks - t->num_blocks, copy);
}

/* Offers what is committed and named. */
void model_publish_table(model *m, model_table *t) {
    const uint64_t end = min_of(t->committed, t->named) / m->page_tokens;
    if (t->published >= end || m->roots[t->root].dead) return;
    if (t->published > 0 && !(m->nodes[t->node].used && m->nodes[t->node].serial == t->node_serial)) {
        t->published = 0; /* evicted meanwhile: from the start */
        t->node = -1;
    }
    while (t->published < end) {
        pkv_page pages[model_max_groups];
        for (uint32_t group = 0; group < m->num_groups; ++group) pages[group] = t->pages[group][t->published];
        const int node = model_publish_block(m, t->root, t->published > 0 ? t->node : -1, &t->sequence, t->published,
                                             pages, t->share, t->ranges, t->num_ranges);
        if (node < 0) return;
        for (uint32_t group = 0; group < m->num_groups; ++group) t->pages[group][t->published] = pages[group];
        ++t->published;
        t->node = node;
        t->node_serial = m->nodes[node].serial;
    }
}

void model_drop_media_from(model_prompt *sequence, uint64_t position) {
    while (sequence->num_media > 0 && sequence->media[sequence->num_media - 1].position >= position)
        --sequence->num_media;
}

pkv_status model_set_tokens(model *m, model_table *t, uint64_t position, uint64_t num_tokens, const pkv_token *tokens) {
    if (!t->admitted) return PKV_ERR_STATE;
    if (position > t->named) return PKV_ERR_INVALID;
    model_prompt *sequence = &t->sequence;
    uint64_t equal = 0; /* to the names there are */
    while (equal < num_tokens && position + equal < t->named && tokens[equal] == sequence->tokens[position + equal])
        ++equal;
    if (equal == num_tokens) return PKV_OK;
    const bool replaces = position + equal < t->named;
    if (replaces && position + equal < t->committed) return PKV_ERR_INVALID;
    if (replaces) model_drop_media_from(sequence, position + equal); /* another continuation */
    /* The true sequence stays what it is where the new names agree with it. */
    uint64_t agrees = position + equal;
    while (agrees < position + num_tokens && agrees < sequence->num_tokens &&
           sequence->tokens[agrees] == tokens[agrees - position])
        ++agrees;
    if (agrees < position + num_tokens) {
        memcpy(sequence->tokens + agrees, tokens + (agrees - position),
               (position + num_tokens - agrees) * sizeof *tokens);
        sequence->num_tokens = position + num_tokens;
    }
    model_tag(sequence);
    t->named = position + num_tokens;
    model_publish_table(m, t);
    return PKV_OK;
}

/* ---- rows ---------------------------------------------------------------------------------------------------------- */

uint64_t model_readable_end(const model_table *t, uint32_t group, uint32_t layer) {
    return max_of(t->committed, t->written[group][layer]);
}

pkv_status model_write(model *m, model_table *t, uint32_t group, uint32_t layer, uint64_t position, uint64_t num_tokens,
                       const uint64_t *tags) {
    if (!t->admitted) return PKV_ERR_STATE;
    if (!m->groups[group].bytes) return PKV_ERR_UNSUPPORTED;
    const uint64_t reserved = model_reserved(m, t);
    if (position < t->committed || position > reserved || num_tokens > reserved - position) return PKV_ERR_INVALID;
    if (num_tokens == 0) return PKV_OK;
    if (position / m->page_tokens == t->committed / m->page_tokens) {
        const pkv_status status = model_make_tail_private(m, t);
        if (status != PKV_OK) return status;
    }
    for (uint64_t i = 0; i < num_tokens; ++i) {
        const pkv_page page = t->pages[group][(position + i) / m->page_tokens];
        model_tags(m, group, page, layer)[(position + i) % m->page_tokens] = tags[i];
    }
    const uint64_t end = model_readable_end(t, group, layer);
    if (position <= end) t->written[group][layer] = max_of(end, position + num_tokens);
    return PKV_OK;
}

pkv_status model_commit(model *m, model_table *t, uint64_t num_tokens) {
    if (!t->admitted) return PKV_ERR_STATE;
    if (num_tokens < t->committed || num_tokens > model_reserved(m, t)) return PKV_ERR_INVALID;
    if (num_tokens > t->committed) {
        if (model_tail_shared(m, t) != 0) return PKV_ERR_STATE; /* nobody can have written there */
        if (t->num_copies > 0) return PKV_ERR_STATE;
        model_drop_copies(m, t);
    }
    t->committed = num_tokens;
    model_publish_table(m, t);
    return PKV_OK;
}

pkv_status model_readable(model *m, const model_table *t, uint32_t group, uint32_t layer, uint64_t position,
                          uint64_t num_tokens) {
    if (!m->groups[group].bytes) return PKV_ERR_UNSUPPORTED;
    if (!t->admitted) return PKV_ERR_STATE;
    if (position + num_tokens > model_readable_end(t, group, layer)) return PKV_ERR_INVALID;
    for (uint64_t i = position; i < position + num_tokens; ++i)
        if (t->pages[group][i / m->page_tokens] == PKV_NO_PAGE) return PKV_ERR_NOT_RESIDENT;
    return PKV_OK;
}

pkv_status model_slots(model *m, model_table *t, uint32_t group, uint64_t position, uint64_t num_tokens,
                       pkv_slot *slots) {
    if (!t->admitted) return PKV_ERR_STATE;
    const uint64_t reserved = model_reserved(m, t);
    if (position > reserved || num_tokens > reserved - position) return PKV_ERR_INVALID;
    if (num_tokens > 0 && position + num_tokens > t->committed) {
        const pkv_status status = model_make_tail_private(m, t);
        if (status != PKV_OK) return status;
    }
    for (uint64_t i = 0; i < num_tokens; ++i) {
        const pkv_page page = t->pages[group][(position + i) / m->page_tokens];
        slots[i] = page == PKV_NO_PAGE ? PKV_NO_SLOT
                                       : (pkv_slot)page * m->page_tokens + (pkv_slot)((position + i) % m->page_tokens);
    }
    return PKV_OK;
}

pkv_status model_table_set_retention(model *m, model_table *t, uint64_t first, uint64_t num_tokens,
                                     const pkv_retention *retention) {
    if (num_tokens == 0) return PKV_OK;
    if (!t->admitted) return PKV_ERR_STATE;
    if (t->num_ranges == model_max_ranges) return PKV_ERR_LIMIT;
    const uint64_t end = num_tokens > UINT64_MAX - first ? UINT64_MAX : first + num_tokens;
    t->ranges[t->num_ranges++] = (model_range){first, end, *retention};
    if (first / m->page_tokens >= t->published || m->roots[t->root].dead) return PKV_OK;
    if (!m->nodes[t->node].used || m->nodes[t->node].serial != t->node_serial) { /* its end went: what is left of it */
        const uint64_t published = t->published * m->page_tokens;
        model_set_retention(m, &t->sequence, first, min_of(end, published) - first, retention);
        return PKV_OK;
    }
    for (int node = t->node; node >= 0; node = m->nodes[node].parent) {
        const uint64_t begin = m->nodes[node].block * m->page_tokens;
        if (begin + m->page_tokens > first && begin < end) model_apply_retention(m, node, retention);
    }
    for (uint32_t group = 0; group < m->num_groups; ++group) model_trim(m, group);
    return PKV_OK;
}

/* ---- beginning and end --------------------------------------------------------------------------------------------- */

void model_table_create(model_table *t) {
    memset(t, 0, sizeof *t);
    t->alive = true;
    for (uint32_t group = 0; group < model_max_groups; ++group) t->copy_sources[group] = PKV_NO_PAGE;
}

void model_table_clear(model *m, model_table *t) {
    if (t->admitted) {
        model_drop_copies(m, t);
        model_release_blocks(m, t, 0);
        --m->roots[t->root].references;
        model_drop_root(m, t->root);
    }
    model_table_create(t);
}

void model_table_destroy(model *m, model_table *t) {
    model_table_clear(m, t);
    memset(t, 0, sizeof *t);
}
