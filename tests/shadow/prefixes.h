/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of the shadow-model test on prefixes without tables. */
#ifndef PKV_TESTS_PREFIXES_H
#define PKV_TESTS_PREFIXES_H

#include "shadow/pages.h"

static void probe_some(shadow *s) {
    static model_prompt prompt;
    api_prompt api;
    int nodes[model_max_pages];
    pkv_match match = PKV_MATCH_INIT;
    note(s, "probe");
    random_prompt(s, &prompt);
    const uint64_t max_match = random_max_match(s, prompt.num_tokens);
    assert_ok(pkv_pool_probe(s->pool, to_api(&prompt, &api), max_match, &match));
    same_number(s, match.blocks, model_match(s->m, &prompt, max_match, UINT64_MAX, nodes), "blocks found");
    same_number(s, match.tokens, match.blocks * s->m->page_tokens, "tokens found");
    ++s->m->stats.probes;
}

static void lookup_some(shadow *s) {
    static model_prompt prompt;
    api_prompt api;
    pkv_page expected[model_max_groups * model_max_pages];
    pkv_page got[model_max_groups * model_max_pages];
    pkv_match match = PKV_MATCH_INIT;
    note(s, "lookup");
    random_prompt(s, &prompt);
    const uint64_t max_match = random_max_match(s, prompt.num_tokens);
    const uint64_t capacity = percent(s, 80) ? model_max_pages : below(s, 4);
    for (uint64_t i = 0; i < model_max_groups * model_max_pages; ++i) got[i] = expected[i] = -99;
    assert_ok(pkv_pool_lookup(s->pool, to_api(&prompt, &api), max_match, got, capacity, &match));
    const uint64_t blocks = model_lookup(s->m, &prompt, max_match, capacity, expected);
    note(s, " -> %" PRIu64 " blocks:", match.blocks);
    note_pages(s, got, blocks);
    same_number(s, match.blocks, blocks, "blocks found");
    same_number(s, match.tokens, blocks * s->m->page_tokens, "tokens found");
    same_pages(s, got, expected, model_max_groups * model_max_pages, "lookup");
    for (uint32_t group = 0; group < s->m->num_groups; ++group)
        for (uint64_t i = 0; s->m->groups[group].bytes && i < blocks; ++i) {
            const pkv_page page = got[group * capacity + i];
            if (page != PKV_NO_PAGE &&
                model_tags(s->m, group, page, 0)[s->m->page_tokens - 1] != prompt.tags[(i + 1) * s->m->page_tokens - 1])
                mismatch(s, "block %" PRIu64 " of group %u was found with the KV of another prefix", i, group);
        }
}

/* Whether the page holds the KV of a block; writes it there if the page is only ours. */
static bool has_or_gets_block(shadow *s, uint32_t group, pkv_page page, const model_prompt *prompt, uint64_t block) {
    const uint32_t page_tokens = s->m->page_tokens;
    const model_page *item = &s->m->groups[group].pages[page];
    if (!s->m->groups[group].bytes) return true;
    const uint64_t *tags = prompt->tags + block * page_tokens;
    bool right = true;
    for (uint32_t layer = 0; layer < model_layers; ++layer)
        right = right && memcmp(model_tags(s->m, group, page, layer), tags, page_tokens * sizeof *tags) == 0;
    if (right) return true;
    if (item->node >= 0 || item->low == 0 || item->count != item->low) return item->node >= 0; /* published: refused */
    pkv_slot slots[model_max_page_tokens];
    for (uint32_t i = 0; i < page_tokens; ++i) slots[i] = (pkv_slot)page * page_tokens + i;
    memcpy(s->row_tags, tags, page_tokens * sizeof *tags);
    for (uint32_t layer = 0; layer < model_layers; ++layer) write_slots(s, group, layer, page_tokens, slots, PKV_OK);
    return true;
}

/* Blocks that hang on window pages alone, of which the model has room for as many as there are such pages. */
static bool room_for_blocks(const shadow *s, uint64_t more) {
    uint64_t alone = 0;
    uint64_t room = 0;
    for (uint32_t group = 0; group < s->m->num_groups; ++group)
        if (s->m->groups[group].window != 0) room += s->m->groups[group].num_pages;
    for (int i = 0; i < s->m->num_nodes; ++i) {
        bool full = false;
        for (uint32_t group = 0; group < s->m->num_groups; ++group)
            full = full || (s->m->groups[group].window == 0 && s->m->nodes[i].pages[group] != PKV_NO_PAGE);
        alone += s->m->nodes[i].used && !full;
    }
    return alone + more <= room;
}

static void publish_some(shadow *s) {
    static model_prompt prompt;
    api_prompt api;
    int nodes[model_max_pages];
    pkv_page pages[model_max_pages];
    pkv_page got[model_max_pages];
    pkv_page expected[model_max_pages];
    const uint32_t group = any_group(s);
    const model_group *g = &s->m->groups[group];
    note(s, "publish %u", group);
    const int like = percent(s, 30) ? pick_table(s, true) : -1;
    if (like >= 0)
        prompt = s->m->tables[like].sequence; /* to find its pages complete under another holder, or as they are */
    else
        random_prompt(s, &prompt);
    s->last_prompt = prompt;
    const uint64_t blocks = prompt.num_tokens / s->m->page_tokens;
    const uint64_t published = model_match(s->m, &prompt, PKV_MATCH_ALL, UINT64_MAX, nodes);
    uint64_t first = below(s, published + 1);
    if (percent(s, 20)) first = below(s, blocks + 2);
    uint64_t num = 0;
    for (uint64_t wanted = below(s, 4); num < wanted; ++num) {
        pages[num] = low_page(s, group);
        if (like >= 0 && percent(s, 60) && first + num < s->m->tables[like].num_blocks)
            pages[num] = s->m->tables[like].pages[group][first + num];
        if (percent(s, 2)) pages[num] = wrong_page(s, group);
        if (pages[num] == PKV_NO_PAGE) break;
        if (!exists(s, group, pages[num]) || g->pages[pages[num]].count == 0 || first + num >= blocks) continue;
        if (!complete_everywhere(s, group, pages[num]) ||
            !has_or_gets_block(s, group, pages[num], &prompt, first + num))
            break;
    }
    if (g->window != 0 && !room_for_blocks(s, num)) return;
    note(s, " from block %" PRIu64 " of %" PRIu64 " (%" PRIu64 " published), pages", first, blocks, published);
    note_pages(s, pages, num);
    const pkv_status status = pkv_pool_publish(s->pool, group, to_api(&prompt, &api), first, num, pages, got);
    same_status(s, status, model_publish(s->m, group, &prompt, first, num, pages, expected), "publish");
    if (status == PKV_OK) same_pages(s, got, expected, num, "owners");
}

static void clear_namespaces(shadow *s, int ns) {
    pkv_clear_result got = PKV_CLEAR_RESULT_INIT;
    pkv_clear_result expected = PKV_CLEAR_RESULT_INIT;
    note(s, "clear namespace %d", ns);
    assert_ok(ns < 0 ? pkv_pool_clear_all(s->pool, &got) : pkv_pool_clear(s->pool, namespace_of(ns), &got));
    model_clear(s->m, ns, &expected);
    same_number(s, got.freed, expected.freed, "freed by clear");
    same_number(s, got.held, expected.held, "held after clear");
}

static void clear_some(shadow *s) { clear_namespaces(s, percent(s, 40) ? -1 : (int)below(s, num_namespaces)); }

#endif
