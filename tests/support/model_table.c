/* SPDX-License-Identifier: Apache-2.0 */
/* The model's tables; see model.h. */
#include "support/model.h"

#include <string.h>

static uint64_t max_of(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t min_of(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t blocks_of(const model *m, uint64_t tokens) {
    return tokens / m->page_tokens + (tokens % m->page_tokens != 0 ? 1 : 0);
}

uint64_t model_reserved(const model *m, const model_table *t) { return t->num_pages * m->page_tokens; }

bool model_tail_shared(const model *m, const model_table *t) {
    if (t->committed % m->page_tokens == 0) return false;
    const model_page *tail = &m->pages[t->pages[t->committed / m->page_tokens]];
    return tail->count > 1 || tail->node >= 0;
}

uint64_t model_row_tag(model *m, const model_table *t, uint32_t layer, uint64_t position) {
    return model_tags(m, t->pages[position / m->page_tokens], layer)[position % m->page_tokens];
}

pkv_status model_admit(model *m, model_table *t, const model_prompt *prompt, const pkv_admit_options *options,
                       uint64_t *matched_blocks) {
    if (t->admitted) return PKV_ERR_STATE;
    if (options->reserve_tokens > UINT64_C(1) << 40) return PKV_ERR_LIMIT;
    int nodes[model_max_pages];
    const bool no_match = (options->flags & PKV_ADMIT_NO_MATCH) != 0;
    const uint64_t matched = model_match(m, prompt, options->max_match, no_match ? 0 : UINT64_MAX, nodes);
    const uint64_t begin = matched * m->page_tokens;
    const uint64_t end = options->reserve_tokens != 0 ? begin + options->reserve_tokens : prompt->num_tokens;
    const uint64_t wanted = max_of(blocks_of(m, end), matched) - matched;
    uint64_t room = model_num_free(m) + model_num_cached(m);
    for (uint64_t i = 0; i < matched; ++i) room -= model_cached(m, m->nodes[nodes[i]].page);
    if (wanted > room || options->watermark > room - wanted) {
        ++m->stats.refused;
        return PKV_ERR_NO_PAGES;
    }
    t->admitted = true;
    t->root = model_find_or_make_root(m, prompt->ns);
    ++m->roots[t->root].references;
    t->num_pages = matched + wanted;
    for (uint64_t i = 0; i < matched; ++i) {
        t->pages[i] = m->nodes[nodes[i]].page;
        model_retain_page(m, t->pages[i]);
    }
    t->published = matched;
    t->node = matched > 0 ? nodes[matched - 1] : -1;
    t->node_serial = matched > 0 ? m->nodes[t->node].serial : 0;
    for (uint64_t i = 0; i < wanted; ++i) t->pages[matched + i] = model_take_page(m);
    t->sequence = *prompt;
    t->named = prompt->num_tokens;
    t->committed = t->matched = begin;
    for (uint32_t layer = 0; layer < model_layers; ++layer) t->written[layer] = begin;
    m->stats.allocated_pages += wanted;
    if ((options->flags & PKV_ADMIT_RETRY) != 0) {
        ++m->stats.retries;
    } else {
        ++m->stats.requests;
        m->stats.asked_tokens += prompt->num_tokens;
        m->stats.hit_tokens += begin;
    }
    *matched_blocks = matched;
    return PKV_OK;
}

static void drop_copy(model *m, model_table *t) {
    t->copy_waits = false;
    if (t->copy_source != PKV_NO_PAGE) model_release_page(m, t->copy_source);
    t->copy_source = PKV_NO_PAGE;
}

static void copy_tail(model *m, model_table *t, pkv_page fresh) {
    pkv_page *tail = &t->pages[t->committed / m->page_tokens];
    drop_copy(m, t);
    if (m->bytes) {
        memcpy(model_tags(m, fresh, 0), model_tags(m, *tail, 0), sizeof(uint64_t) * model_layers * m->page_tokens);
        model_release_page(m, *tail);
    } else {
        t->copy_source = *tail;
        t->copy_target = fresh;
        t->copy_waits = true;
    }
    *tail = fresh;
    ++m->stats.copied_pages;
}

static pkv_status make_tail_private(model *m, model_table *t) {
    if (!model_tail_shared(m, t)) return PKV_OK;
    pkv_page fresh;
    const pkv_status status = model_alloc(m, 1, &fresh);
    if (status == PKV_OK) copy_tail(m, t, fresh);
    return status;
}

pkv_status model_reserve(model *m, model_table *t, uint64_t num_tokens) {
    if (!t->admitted) return PKV_ERR_STATE;
    if (num_tokens > UINT64_C(1) << 40) return PKV_ERR_LIMIT;
    const uint64_t blocks = max_of(blocks_of(m, num_tokens), t->num_pages);
    const bool copy = num_tokens > t->committed && model_tail_shared(m, t);
    if (blocks == t->num_pages) return copy ? make_tail_private(m, t) : PKV_OK;
    /* All or nothing: one allocation for the new blocks and, last, for the copy. */
    const uint64_t wanted = blocks - t->num_pages + copy;
    pkv_page *fresh = t->pages + t->num_pages;
    const pkv_status status = model_alloc(m, wanted, fresh);
    if (status != PKV_OK) return status;
    if (copy) copy_tail(m, t, fresh[wanted - 1]);
    t->num_pages = blocks;
    return PKV_OK;
}

/* Offers what is committed and named. */
static void publish(model *m, model_table *t) {
    const uint64_t end = min_of(t->committed, t->named) / m->page_tokens;
    if (t->published >= end || m->roots[t->root].dead) return;
    if (t->published > 0 && !(m->nodes[t->node].used && m->nodes[t->node].serial == t->node_serial)) {
        t->published = 0; /* evicted meanwhile: from the start */
        t->node = -1;
    }
    while (t->published < end) {
        const int node = model_publish_block(m, t->root, t->published > 0 ? t->node : -1, &t->sequence, t->published,
                                             t->pages[t->published]);
        if (node < 0) return;
        ++t->published;
        t->node = node;
        t->node_serial = m->nodes[node].serial;
    }
}

static void drop_media_from(model_prompt *sequence, uint64_t position) {
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
    if (replaces) drop_media_from(sequence, position + equal); /* another continuation */
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
    publish(m, t);
    return PKV_OK;
}

pkv_status model_write(model *m, model_table *t, uint32_t layer, uint64_t position, uint64_t num_tokens) {
    if (!t->admitted) return PKV_ERR_STATE;
    if (!m->bytes) return PKV_ERR_UNSUPPORTED;
    const uint64_t reserved = model_reserved(m, t);
    if (position < t->committed || position > reserved || num_tokens > reserved - position) return PKV_ERR_INVALID;
    if (num_tokens == 0) return PKV_OK;
    if (position / m->page_tokens == t->committed / m->page_tokens) {
        const pkv_status status = make_tail_private(m, t);
        if (status != PKV_OK) return status;
    }
    for (uint64_t i = position; i < position + num_tokens; ++i)
        model_tags(m, t->pages[i / m->page_tokens], layer)[i % m->page_tokens] = t->sequence.tags[i];
    if (position <= t->written[layer]) t->written[layer] = max_of(t->written[layer], position + num_tokens);
    return PKV_OK;
}

pkv_status model_commit(model *m, model_table *t, uint64_t num_tokens) {
    if (!t->admitted) return PKV_ERR_STATE;
    if (num_tokens < t->committed || num_tokens > model_reserved(m, t)) return PKV_ERR_INVALID;
    if (num_tokens > t->committed && model_tail_shared(m, t)) return PKV_ERR_STATE; /* nobody can have written there */
    if (num_tokens > t->committed && t->copy_waits) return PKV_ERR_STATE;
    if (num_tokens > t->committed) drop_copy(m, t);
    t->committed = num_tokens;
    for (uint32_t layer = 0; layer < model_layers; ++layer) t->written[layer] = max_of(t->written[layer], num_tokens);
    publish(m, t);
    return PKV_OK;
}

pkv_status model_readable(model *m, const model_table *t, uint32_t layer, uint64_t position, uint64_t num_tokens) {
    if (!m->bytes) return PKV_ERR_UNSUPPORTED;
    if (!t->admitted) return PKV_ERR_STATE;
    return position + num_tokens > t->written[layer] ? PKV_ERR_INVALID : PKV_OK;
}

pkv_status model_fork(model *m, model_table *t, model_table *twin) {
    if (!t->admitted || t->copy_waits) return PKV_ERR_STATE;
    *twin = *t;
    twin->copy_source = PKV_NO_PAGE;
    twin->sequence.num_tokens = max_of(t->named, t->committed);
    twin->num_pages = blocks_of(m, t->committed);
    for (uint64_t i = 0; i < twin->num_pages; ++i) model_retain_page(m, twin->pages[i]);
    for (uint32_t layer = 0; layer < model_layers; ++layer) twin->written[layer] = t->committed;
    ++m->roots[t->root].references;
    return PKV_OK;
}

pkv_status model_truncate(model *m, model_table *t, uint64_t num_tokens) {
    if (!t->admitted) return PKV_ERR_STATE;
    if (min_of(blocks_of(m, num_tokens), t->num_pages) <= t->committed / m->page_tokens) drop_copy(m, t);
    /* Fewer blocks are offered; none any more if the last one is gone, since then it is not known which still are. */
    if (t->published > num_tokens / m->page_tokens) {
        const bool gone = !(m->nodes[t->node].used && m->nodes[t->node].serial == t->node_serial);
        for (; !gone && t->published > num_tokens / m->page_tokens; --t->published) t->node = m->nodes[t->node].parent;
        if (gone) t->published = 0;
        if (t->published > 0) t->node_serial = m->nodes[t->node].serial;
    }
    const uint64_t blocks = min_of(blocks_of(m, num_tokens), t->num_pages);
    while (t->num_pages > blocks) model_release_page(m, t->pages[--t->num_pages]);
    t->named = min_of(t->named, num_tokens);
    t->committed = min_of(t->committed, num_tokens);
    t->matched = min_of(t->matched, num_tokens);
    for (uint32_t layer = 0; layer < model_layers; ++layer) t->written[layer] = min_of(t->written[layer], num_tokens);
    t->sequence.num_tokens = min_of(t->sequence.num_tokens, num_tokens);
    drop_media_from(&t->sequence, t->named);
    model_tag(&t->sequence);
    return PKV_OK;
}

pkv_status model_slots(model *m, model_table *t, uint64_t position, uint64_t num_tokens, pkv_slot *slots) {
    if (!t->admitted) return PKV_ERR_STATE;
    const uint64_t reserved = model_reserved(m, t);
    if (position > reserved || num_tokens > reserved - position) return PKV_ERR_INVALID;
    if (num_tokens > 0 && position + num_tokens > t->committed) {
        const pkv_status status = make_tail_private(m, t);
        if (status != PKV_OK) return status;
    }
    for (uint64_t i = 0; i < num_tokens; ++i)
        slots[i] = (pkv_slot)t->pages[(position + i) / m->page_tokens] * m->page_tokens +
                   (pkv_slot)((position + i) % m->page_tokens);
    return PKV_OK;
}

static void release_all(model *m, model_table *t) {
    drop_copy(m, t);
    while (t->num_pages > 0) model_release_page(m, t->pages[--t->num_pages]);
    if (!t->admitted) return;
    --m->roots[t->root].references;
    model_drop_root(m, t->root);
}

void model_table_clear(model *m, model_table *t) {
    release_all(m, t);
    memset(t, 0, sizeof *t);
    t->alive = true;
    t->copy_source = PKV_NO_PAGE;
}

void model_table_destroy(model *m, model_table *t) {
    release_all(m, t);
    memset(t, 0, sizeof *t);
}
