/* SPDX-License-Identifier: Apache-2.0 */
/* The comparison of library and model after each step of the shadow-model test. */
#ifndef PKV_TESTS_COMPARE_H
#define PKV_TESTS_COMPARE_H

#include "shadow/shadow.h"

static void check_stats(shadow *s, uint32_t group) {
    const pkv_pool_stats got = group_stats(s->pool, group);
    const pkv_pool_stats *expected = &s->m->stats;
#define SAME(field) same_number(s, got.field, expected->field, "stats." #field)
    SAME(num_pages);
    SAME(free_pages);
    SAME(held_pages);
    SAME(cached_pages);
    SAME(pinned_pages);
    SAME(quarantined_pages);
    SAME(tables);
    SAME(namespaces);
    SAME(index_blocks);
    SAME(requests);
    SAME(asked_tokens);
    SAME(hit_tokens);
    SAME(retries);
    SAME(refused);
    SAME(probes);
    SAME(allocated_pages);
    SAME(failed_allocations);
    SAME(evicted_pages);
    SAME(cleared_pages);
    SAME(published_blocks);
    SAME(unpublished_blocks);
    SAME(duplicate_blocks);
    SAME(copied_pages);
    SAME(partial_tokens);
    SAME(shared_duplicates);
    SAME(expired_blocks);
#undef SAME
    /* R15 */
    if (got.hit_tokens > got.asked_tokens) mismatch(s, "more hits than tokens asked for");
    if (got.key_collisions < s->last_stats.key_collisions) mismatch(s, "stats.key_collisions fell");
    if (!s->equal_keys) same_number(s, got.key_collisions, 0, "stats.key_collisions");
    s->last_stats = got;
    const model_group *g = &s->m->groups[group];
    if (g->max_cached != 0 && got.cached_pages > g->max_cached && got.cached_pages > got.pinned_pages)
        mismatch(s, "group %u: more pages cached than allowed", group);
}

static void check_page(shadow *s, uint32_t group, pkv_page page) {
    const model_page *expected = &s->m->groups[group].pages[page];
    const model_node *node = expected->node >= 0 ? &s->m->nodes[expected->node] : NULL;
    pkv_page_info got = PKV_PAGE_INFO_INIT;
    assert_ok(pkv_pool_page_info(s->pool, group, page, &got));
    const int32_t state = expected->count > 0 ? PKV_PAGE_HELD : node != NULL ? PKV_PAGE_CACHED : PKV_PAGE_FREE;
    if (got.count != expected->count || got.state != state || got.published != (node != NULL) ||
        got.block != (node != NULL ? node->block : 0))
        mismatch(s,
                 "group %u: page %d has count %" PRIu64 ", state %d, published %d, block %" PRIu64
                 "; the model says count %" PRIu64 ", state %d, published %d",
                 group, page, got.count, got.state, got.published, got.block, expected->count, state, node != NULL);
    if (node != NULL && (got.priority != node->priority || got.pinned != node->kept))
        mismatch(s, "group %u: page %d has priority %u, pinned %d; the model says %u, %d", group, page, got.priority,
                 got.pinned, node->priority, node->kept);
}

static void check_table(shadow *s, int index) {
    const model_table *t = &s->m->tables[index];
    const pkv_table_info got = info_of(s->tables[index]);
    const uint32_t page_tokens = s->m->page_tokens;
    char what[40];
    snprintf(what, sizeof what, "table %d", index);
    if (got.named != t->named || got.reserved != model_reserved(s->m, t) || got.committed != t->committed ||
        got.published != t->published * page_tokens || got.matched != t->matched || got.blocks != t->num_blocks ||
        got.committed_blocks != model_blocks(s->m, t->committed))
        mismatch(s,
                 "%s has named %" PRIu64 ", reserved %" PRIu64 ", committed %" PRIu64 ", published %" PRIu64
                 ", matched %" PRIu64 "; the model says %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64,
                 what, got.named, got.reserved, got.committed, got.published, got.matched, t->named,
                 model_reserved(s->m, t), t->committed, t->published * page_tokens, t->matched);
    for (uint32_t group = 0; group < s->m->num_groups; ++group) {
        pkv_page pages[model_max_pages + 1];
        uint64_t num_blocks = 0;
        assert_ok(pkv_table_pages(s->tables[index], group, pages, model_max_pages + 1, &num_blocks));
        same_number(s, num_blocks, t->num_blocks, what);
        same_pages(s, pages, t->pages[group], num_blocks, what);
        /* What is committed is the KV of exactly this sequence. */
        for (uint64_t i = 0; s->m->groups[group].bytes && i < t->committed; ++i)
            for (uint32_t layer = 0; t->pages[group][i / page_tokens] != PKV_NO_PAGE && layer < model_layers; ++layer)
                if (model_row_tag(s->m, t, group, layer, i) != t->sequence.tags[i])
                    mismatch(s, "%s: committed token %" PRIu64 " of group %u, layer %u has the KV of another prefix",
                             what, i, group, layer);
    }
}

/* The prompt that leads to a node. */
static void prompt_to(const shadow *s, const model_node *node, model_prompt *prompt) {
    const uint32_t page_tokens = s->m->page_tokens;
    prompt->ns = s->m->roots[node->root].ns;
    prompt->num_tokens = (node->block + 1) * page_tokens;
    prompt->num_media = 0;
    for (;; node = &s->m->nodes[node->parent]) {
        memcpy(prompt->tokens + node->block * page_tokens, node->tokens, page_tokens * sizeof(pkv_token));
        memmove(prompt->media + node->num_media, prompt->media, (size_t)prompt->num_media * sizeof(model_media));
        memcpy(prompt->media, node->media, (size_t)node->num_media * sizeof(model_media));
        for (int j = 0; j < node->num_media; ++j) prompt->media[j].position += node->block * page_tokens;
        prompt->num_media += node->num_media;
        if (node->parent < 0) return;
    }
}

/* Every block that the model says is published is found under its whole prefix, by a probe, as far as all groups have it. */
static void check_published(shadow *s) {
    static model_prompt prompt;
    const uint32_t page_tokens = s->m->page_tokens;
    for (int i = 0; i < s->m->num_nodes; ++i) {
        const model_node *leaf = &s->m->nodes[i];
        if (!leaf->used || s->m->roots[leaf->root].dead) continue;
        if (s->m->num_nodes > 40 && !percent(s, 10)) continue;
        prompt_to(s, leaf, &prompt);
        int nodes[model_max_pages];
        const uint64_t expected = model_match(s->m, &prompt, PKV_MATCH_ALL, UINT64_MAX, nodes) * page_tokens;
        api_prompt api;
        same_number(s, probe_tokens(s->pool, to_api(&prompt, &api)), expected, "tokens found of a published prefix");
        ++s->m->stats.probes;
        for (uint32_t group = 0; group < s->m->num_groups; ++group)
            for (uint32_t layer = 0; s->m->groups[group].bytes && layer < model_layers; ++layer)
                if (leaf->pages[group] != PKV_NO_PAGE &&
                    model_tags(s->m, group, leaf->pages[group], layer)[page_tokens - 1] != leaf->tag)
                    mismatch(s, "group %u: page %d is published under a prefix that is not its content's", group,
                             leaf->pages[group]);
    }
}

/* ---- events ---- */

/* Where the key of a tag is, or belongs. */
static uint64_t key_at(const shadow *s, uint64_t tag) {
    uint64_t at = tag % num_known_keys;
    while (s->known_keys[at].tag != 0 && s->known_keys[at].tag != tag) at = (at + 1) % num_known_keys;
    return at;
}

static bool key_known(const shadow *s, uint64_t tag) { return s->known_keys[key_at(s, tag)].tag == tag; }

static void know_key(shadow *s, uint64_t tag, pkv_key key) {
    if (s->num_known * 2 > num_known_keys) {
        memset(s->known_keys, 0, sizeof s->known_keys);
        s->num_known = 0;
    }
    if (!key_known(s, tag)) ++s->num_known;
    const uint64_t at = key_at(s, tag);
    s->known_keys[at].tag = tag;
    s->known_keys[at].key = key;
}

/* The keys of a prompt's blocks, if one of them is the wanted one. */
static void learn_keys(shadow *s, const model_prompt *prompt, uint64_t tag, uint64_t block) {
    pkv_key keys[model_max_pages];
    api_prompt api;
    uint64_t num = 0;
    const uint64_t last = (block + 1) * s->m->page_tokens - 1;
    if (prompt->num_tokens <= last || prompt->tags[last] != tag || key_known(s, tag)) return;
    assert_ok(pkv_pool_keys(s->pool, to_api(prompt, &api), keys, model_max_pages, &num));
    same_number(s, num, prompt->num_tokens / s->m->page_tokens, "keys of a prompt");
    for (uint64_t i = 0; i < num; ++i) know_key(s, prompt->tags[(i + 1) * s->m->page_tokens - 1], keys[i]);
}

static void check_key(shadow *s, uint64_t tag, pkv_key got, const char *what) {
    if (!key_known(s, tag)) know_key(s, tag, got);
    const pkv_key *expected = &s->known_keys[key_at(s, tag)].key;
    if (got.low != expected->low || got.high != expected->high) mismatch(s, "%s of an event has another key", what);
}

/* What the pool says has happened in this step is what the model did, in its order. */
static void check_events(shadow *s) {
    static pkv_event got[model_max_events];
    const uint64_t capacity = s->options.event_capacity;
    const uint64_t happened = s->m->num_events;
    s->m->num_events = 0;
    uint64_t count = 0;
    uint64_t missed = 0;
    if (capacity == 0) {
        assert_status(pkv_pool_events(s->pool, 0, got, 1, &count, &missed), PKV_ERR_STATE);
        return;
    }
    assert_ok(pkv_pool_events(s->pool, s->events_read, got, model_max_events, &count, &missed));
    same_number(s, missed, happened > capacity ? happened - capacity : 0, "events missed");
    same_number(s, count, happened - missed, "events to be read");
    for (uint64_t i = 0; i < count; ++i) {
        const model_event *expected = &s->m->events[missed + i];
        same_number(s, got[i].sequence, s->events_read + missed + i + 1, "sequence number of an event");
        same_number(s, (uint64_t)got[i].kind, (uint64_t)expected->kind, "kind of an event");
        same_number(s, got[i].group, expected->group, "group of an event");
        same_number(s, got[i].block, expected->block, "block of an event");
        if (expected->kind != PKV_EVENT_CLEARED) {
            for (int t = 0; t < s->max_tables; ++t)
                learn_keys(s, &s->m->tables[t].sequence, expected->tag, expected->block);
            learn_keys(s, &s->last_prompt, expected->tag, expected->block);
            check_key(s, expected->parent_tag, got[i].parent, "the parent");
        }
        check_key(s, expected->tag, got[i].key, "the block");
    }
    s->events_read += happened;
    same_number(s, group_stats(s->pool, 0).events, s->events_read, "stats.events");
}

static void check_everything(shadow *s) {
    check_events(s);
    for (int i = 0; i < s->max_tables; ++i)
        if (s->m->tables[i].alive) check_table(s, i);
    if (s->step % 64 == 63) check_published(s);
    for (uint32_t group = 0; group < s->m->num_groups; ++group) {
        const model_group *g = &s->m->groups[group];
        const bool all = g->num_pages <= 40 || s->step % 32 == 0;
        if (!model_gauges(s->m, group)) mismatch(s, "the model contradicts itself");
        check_stats(s, group);
        for (uint64_t i = 0; i < (all ? g->num_pages : 24); ++i)
            check_page(s, group, (pkv_page)(all ? i : below(s, g->num_pages)));
        if (!g->bytes) continue;
        if (s->step % 128 == 127)
            for (uint64_t page = 0; page < g->num_pages; ++page) check_page_bytes(s, group, (pkv_page)page);
        else
            check_page_bytes(s, group, (pkv_page)below(s, g->num_pages));
    }
}

#endif
