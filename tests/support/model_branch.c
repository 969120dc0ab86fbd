/* SPDX-License-Identifier: Apache-2.0 */
/* The model's tables where sequences part and meet; see model.h. */
#include "support/model.h"

#include <string.h>

static uint64_t min_of(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* ---- copy on write ------------------------------------------------------------------------------------------------- */

uint32_t model_tail_shared(const model *m, const model_table *t) {
    uint32_t shared = 0;
    if (t->committed % m->page_tokens == 0) return 0;
    for (uint32_t group = 0; group < m->num_groups; ++group) {
        const pkv_page page = t->pages[group][t->committed / m->page_tokens];
        if (page == PKV_NO_PAGE) continue;
        const model_page *tail = &m->groups[group].pages[page];
        if (tail->count > 1 || tail->node >= 0) shared |= 1u << group;
    }
    return shared;
}

void model_drop_copies(model *m, model_table *t) {
    t->num_copies = 0;
    for (uint32_t group = 0; group < m->num_groups; ++group) {
        if (t->copy_sources[group] == PKV_NO_PAGE) continue;
        model_release_page(m, group, t->copy_sources[group]);
        model_trim(m, group);
        t->copy_sources[group] = PKV_NO_PAGE;
    }
}

pkv_status model_extend(model *m, model_table *t, uint64_t num_blocks, uint32_t copy) {
    for (uint32_t group = 0; group < m->num_groups; ++group)
        if (num_blocks + (copy >> group & 1) > model_room(&m->groups[group])) {
            ++m->stats.failed_allocations;
            return PKV_ERR_NO_PAGES;
        }
    pkv_page fresh[model_max_groups];
    for (uint32_t group = 0; group < m->num_groups; ++group) {
        const bool copies = (copy >> group & 1) != 0;
        for (uint64_t i = 0; i < num_blocks; ++i) t->pages[group][t->num_blocks + i] = model_take_page(m, group);
        if (copies) fresh[group] = model_take_page(m, group);
        m->stats.allocated_pages += num_blocks + copies;
    }
    t->num_blocks += num_blocks;
    if (copy == 0) return PKV_OK;
    model_drop_copies(m, t);
    pkv_page old[model_max_groups];
    for (uint32_t group = 0; group < m->num_groups; ++group) {
        old[group] = PKV_NO_PAGE;
        if ((copy >> group & 1) == 0) continue;
        pkv_page *tail = &t->pages[group][t->committed / m->page_tokens];
        if (m->groups[group].bytes) {
            memcpy(model_tags(m, group, fresh[group], 0), model_tags(m, group, *tail, 0),
                   sizeof(uint64_t) * model_layers * m->page_tokens);
            old[group] = *tail;
        } else { /* the caller copies; until then the source is held */
            t->copies[t->num_copies++] = (pkv_page_copy){group, *tail, fresh[group]};
            t->copy_sources[group] = *tail;
        }
        *tail = fresh[group];
        ++m->stats.copied_pages;
    }
    for (uint32_t group = 0; group < m->num_groups; ++group) {
        if (old[group] == PKV_NO_PAGE) continue;
        model_release_page(m, group, old[group]);
        model_trim(m, group);
    }
    return PKV_OK;
}

pkv_status model_make_tail_private(model *m, model_table *t) {
    const uint32_t shared = model_tail_shared(m, t);
    return shared == 0 ? PKV_OK : model_extend(m, t, 0, shared);
}

/* ---- fork, truncate ------------------------------------------------------------------------------------------------ */

pkv_status model_fork(model *m, model_table *t, model_table *twin) {
    if (!t->admitted || t->num_copies > 0) return PKV_ERR_STATE;
    *twin = *t;
    for (uint32_t group = 0; group < model_max_groups; ++group) twin->copy_sources[group] = PKV_NO_PAGE;
    if (twin->sequence.num_tokens > t->committed)
        twin->sequence.num_tokens = t->named > t->committed ? t->named : t->committed;
    twin->num_blocks = model_blocks(m, t->committed);
    for (uint32_t group = 0; group < m->num_groups; ++group)
        for (uint64_t i = 0; i < twin->num_blocks; ++i)
            if (twin->pages[group][i] != PKV_NO_PAGE) model_retain_page(m, group, twin->pages[group][i]);
    memset(twin->written, 0, sizeof twin->written);
    ++m->roots[t->root].references;
    return PKV_OK;
}

/* In a full group from the end; in a window group from the head, and the sinks last, from their end. */
void model_release_blocks(model *m, model_table *t, uint64_t first) {
    for (uint32_t group = 0; group < m->num_groups; ++group) {
        const model_group *g = &m->groups[group];
        const uint64_t sinks = g->window == 0 ? t->num_blocks : min_of(model_blocks(m, g->sinks), t->num_blocks);
        for (uint64_t i = first > sinks ? first : sinks; i < t->num_blocks; ++i)
            if (t->pages[group][i] != PKV_NO_PAGE) model_release_page(m, group, t->pages[group][i]);
        for (uint64_t i = sinks; i-- > first;)
            if (t->pages[group][i] != PKV_NO_PAGE) model_release_page(m, group, t->pages[group][i]);
        model_trim(m, group);
    }
    t->num_blocks = min_of(t->num_blocks, first);
}

pkv_status model_truncate(model *m, model_table *t, uint64_t num_tokens) {
    if (!t->admitted) return PKV_ERR_STATE;
    const uint64_t length = min_of(num_tokens, t->committed);
    for (uint32_t group = 0; group < m->num_groups; ++group) /* the window of what is left has to be there */
        for (uint64_t i = 0; i < length; ++i)
            if (i + m->groups[group].window >= length && m->groups[group].window != 0 &&
                t->pages[group][i / m->page_tokens] == PKV_NO_PAGE)
                return PKV_ERR_STATE;
    const uint64_t blocks = min_of(model_blocks(m, num_tokens), t->num_blocks);
    if (blocks <= t->committed / m->page_tokens) model_drop_copies(m, t);
    /* Fewer blocks are offered; none any more if the last one is gone, since then it is not known which still are. */
    if (t->published > num_tokens / m->page_tokens) {
        const bool gone = !(m->nodes[t->node].used && m->nodes[t->node].serial == t->node_serial);
        for (; !gone && t->published > num_tokens / m->page_tokens; --t->published) t->node = m->nodes[t->node].parent;
        if (gone) t->published = 0;
        if (t->published > 0) t->node_serial = m->nodes[t->node].serial;
    }
    model_release_blocks(m, t, blocks);
    t->named = min_of(t->named, num_tokens);
    t->committed = min_of(t->committed, num_tokens);
    t->matched = min_of(t->matched, num_tokens);
    for (uint32_t group = 0; group < m->num_groups; ++group)
        for (uint32_t layer = 0; layer < model_layers; ++layer)
            t->written[group][layer] = min_of(t->written[group][layer], num_tokens);
    t->sequence.num_tokens = min_of(t->sequence.num_tokens, num_tokens);
    model_drop_media_from(&t->sequence, t->named);
    model_tag(&t->sequence);
    return PKV_OK;
}

/* ---- drafts -------------------------------------------------------------------------------------------------------- */

pkv_status model_accept(model *m, model_table *t, uint64_t num_positions, const uint64_t *positions,
                        const model_prompt *after) {
    if (!t->admitted) return PKV_ERR_STATE;
    for (uint64_t i = 0; i < num_positions; ++i)
        if (positions[i] < t->committed || positions[i] >= model_reserved(m, t) ||
            (i > 0 && positions[i] <= positions[i - 1]))
            return PKV_ERR_INVALID;
    if (t->num_copies > 0) return PKV_ERR_STATE;
    if (num_positions > 0) {
        if (!model_has_bytes(m) && model_tail_shared(m, t) != 0) return PKV_ERR_STATE;
        const pkv_status status = model_make_tail_private(m, t);
        if (status != PKV_OK) return status;
    }
    model_drop_copies(m, t);
    for (uint32_t group = 0; group < m->num_groups; ++group)
        for (uint32_t layer = 0; m->groups[group].bytes && layer < model_layers; ++layer)
            for (uint64_t i = 0; i < num_positions; ++i) {
                const uint64_t to = t->committed + i;
                const uint64_t tag = model_row_tag(m, t, group, layer, positions[i]);
                model_tags(m, group, t->pages[group][to / m->page_tokens], layer)[to % m->page_tokens] = tag;
            }
    uint64_t named = min_of(t->named, t->committed);
    for (uint64_t i = 0; i < num_positions && positions[i] < t->named; ++i) ++named;
    t->sequence = *after;
    t->named = named;
    t->committed += num_positions;
    for (uint32_t group = 0; group < m->num_groups; ++group)
        for (uint32_t layer = 0; layer < model_layers; ++layer)
            t->written[group][layer] = min_of(t->written[group][layer], t->committed);
    model_publish_table(m, t);
    return PKV_OK;
}

/* ---- windows ------------------------------------------------------------------------------------------------------- */

pkv_status model_window(model *m, model_table *t) {
    if (!t->admitted) return PKV_ERR_STATE;
    for (uint32_t group = 0; group < m->num_groups; ++group) {
        model_group *g = &m->groups[group];
        for (uint64_t i = 0; i < model_blocks(m, t->committed); ++i) {
            const pkv_page page = t->pages[group][i];
            if (page == PKV_NO_PAGE || model_reaches(m, group, i, t->committed)) continue;
            t->pages[group][i] = PKV_NO_PAGE;
            model_release_page(m, group, page);
            if (model_cached(g, page) && g->pages[page].list != list_pinned) g->pages[page].list = list_passed;
        }
        model_trim(m, group);
    }
    return PKV_OK;
}

/* ---- import -------------------------------------------------------------------------------------------------------- */

pkv_status model_import(model *m, model_table *t, const model_table *source) {
    if (t->admitted) return PKV_ERR_STATE;
    if (!model_has_bytes(m)) return PKV_ERR_UNSUPPORTED;
    const uint64_t blocks = model_blocks(m, source->committed);
    const int root = model_find_or_make_root(m, source->sequence.ns);
    for (uint32_t group = 0; group < m->num_groups; ++group) {
        uint64_t wanted = 0;
        for (uint64_t i = 0; i < blocks; ++i) wanted += source->pages[group][i] != PKV_NO_PAGE;
        if (wanted <= model_room(&m->groups[group])) continue;
        ++m->stats.failed_allocations;
        model_drop_root(m, root);
        return PKV_ERR_NO_PAGES;
    }
    model_table_create(t);
    t->admitted = true;
    t->root = root;
    ++m->roots[root].references;
    t->num_blocks = blocks;
    t->node = -1;
    for (uint32_t group = 0; group < m->num_groups; ++group)
        for (uint64_t i = 0; i < blocks; ++i) {
            t->pages[group][i] = PKV_NO_PAGE;
            if (source->pages[group][i] == PKV_NO_PAGE) continue;
            t->pages[group][i] = model_take_page(m, group);
            ++m->stats.allocated_pages;
        }
    /* The rows are those of the source: its pages stay as they are, being held. */
    for (uint32_t group = 0; group < m->num_groups; ++group)
        for (uint64_t i = 0; i < source->committed; ++i) {
            const pkv_page page = t->pages[group][i / m->page_tokens];
            for (uint32_t layer = 0; page != PKV_NO_PAGE && layer < model_layers; ++layer)
                model_tags(m, group, page, layer)[i % m->page_tokens] = model_row_tag(m, source, group, layer, i);
        }
    t->sequence = source->sequence;
    t->sequence.num_tokens = t->named = t->committed = source->committed;
    model_drop_media_from(&t->sequence, source->committed);
    model_publish_table(m, t);
    return PKV_OK;
}
