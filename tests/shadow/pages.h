/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of the shadow-model test on pages and prefixes without tables. Pages that it holds itself are counted in
 * model_page.low. */
#ifndef PKV_TESTS_PAGES_H
#define PKV_TESTS_PAGES_H

#include "shadow/sequences.h"

static pkv_page any_page(shadow *s) { return (pkv_page)below(s, s->m->num_pages); }

/* Whether every table that has the page has committed it to its end, so that none will write into it as it is. */
static bool complete_everywhere(const shadow *s, pkv_page page) {
    for (int i = 0; i < s->max_tables; ++i) {
        const model_table *t = &s->m->tables[i];
        for (uint64_t block = t->committed / s->m->page_tokens; block < t->num_pages; ++block)
            if (t->pages[block] == page) return false;
    }
    return true;
}

static pkv_page low_page(shadow *s) {
    const pkv_page start = any_page(s);
    for (uint64_t i = 0; i < s->m->num_pages; ++i) {
        const pkv_page page = (pkv_page)(((uint64_t)start + i) % s->m->num_pages);
        if (s->m->pages[page].low > 0) return page;
    }
    return PKV_NO_PAGE;
}

static pkv_page wrong_page(shadow *s) {
    const pkv_page choices[] = {-1, (pkv_page)s->m->num_pages, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 8; ++i) {
        const pkv_page page = any_page(s);
        if (s->m->pages[page].count == 0) return page;
    }
    return choices[below(s, 4)];
}

static void note_pages(shadow *s, const pkv_page *pages, uint64_t num) {
    for (uint64_t i = 0; i < num && i < 8; ++i) note(s, " %d", pages[i]);
}

static void alloc_some(shadow *s) {
    pkv_page expected[model_max_pages + 2] = {0};
    pkv_page got[model_max_pages + 2] = {0};
    uint64_t num = below(s, 4);
    if (percent(s, 3)) num = model_num_free(s->m) + model_num_cached(s->m) + below(s, 2);
    note(s, "alloc %" PRIu64 ":", num);
    const pkv_status status = model_alloc(s->m, num, expected);
    same_status(s, pkv_pool_alloc(s->pool, 0, num, got), status, "alloc");
    if (status != PKV_OK) return;
    note_pages(s, got, num);
    same_pages(s, got, expected, num, "alloc");
    for (uint64_t i = 0; i < num; ++i) ++s->m->pages[got[i]].low;
}

static void retain_some(shadow *s) {
    pkv_page pages[4];
    uint64_t num = 0;
    for (uint64_t i = below(s, 4); i > 0; --i) {
        const pkv_page page = percent(s, 50) ? low_page(s) : any_page(s);
        if (page != PKV_NO_PAGE && s->m->pages[page].count > 0 && complete_everywhere(s, page)) pages[num++] = page;
    }
    if (percent(s, 8)) pages[num++] = wrong_page(s);
    note(s, "retain");
    note_pages(s, pages, num);
    const pkv_status expected = model_retain(s->m, num, pages);
    same_status(s, pkv_pool_retain(s->pool, 0, num, pages), expected, "retain");
}

static void release_some(shadow *s) {
    enum { most = 24 };
    pkv_page pages[most];
    uint64_t num = 0;
    const uint64_t wanted = percent(s, 10) ? most - 6 : below(s, 5);
    while (num < wanted) {
        const pkv_page page = low_page(s);
        if (page == PKV_NO_PAGE) break;
        uint64_t listed = 0;
        for (uint64_t i = 0; i < num; ++i) listed += pages[i] == page;
        if (listed >= s->m->pages[page].low) break;
        pages[num++] = page;
    }
    if (percent(s, 8)) pages[num++] = wrong_page(s);
    if (percent(s, 4) && num > 0) { /* too often; not at the cost of tables, since nobody could tell */
        const pkv_page page = pages[below(s, num)];
        if (page >= 0 && (uint64_t)page < s->m->num_pages && s->m->pages[page].count == s->m->pages[page].low)
            for (uint64_t i = s->m->pages[page].low + 1; i > 0 && num < most; --i) pages[num++] = page;
    }
    pkv_status got[most];
    pkv_status expected[most];
    const bool each = percent(s, 50);
    note(s, "release%s", each ? " each" : "");
    note_pages(s, pages, num);
    const pkv_status status = model_release(s->m, num, pages, each ? expected : NULL);
    same_status(s, pkv_pool_release(s->pool, 0, num, pages, each ? got : NULL, NULL), status, "release");
    for (uint64_t i = 0; each && i < num; ++i) same_status(s, got[i], expected[i], "one page of release");
}

static void lookup_some(shadow *s, bool probe) {
    static model_prompt prompt;
    api_prompt api;
    int nodes[model_max_pages];
    pkv_page expected[model_max_pages] = {0};
    pkv_page got[model_max_pages] = {0};
    pkv_match match = PKV_MATCH_INIT;
    note(s, probe ? "probe" : "lookup");
    random_prompt(s, &prompt);
    const uint64_t max_match = random_max_match(s, prompt.num_tokens);
    uint64_t blocks;
    if (probe) {
        blocks = model_match(s->m, &prompt, max_match, UINT64_MAX, nodes);
        ++s->m->stats.probes;
        assert_ok(pkv_pool_probe(s->pool, to_api(&prompt, &api), max_match, &match));
    } else {
        const uint64_t capacity = percent(s, 80) ? model_max_pages : below(s, 4);
        blocks = model_lookup(s->m, &prompt, max_match, capacity, expected);
        assert_ok(pkv_pool_lookup(s->pool, to_api(&prompt, &api), max_match, got, capacity, &match));
    }
    note(s, " -> %" PRIu64 " blocks:", blocks);
    same_number(s, match.blocks, blocks, "blocks found");
    same_number(s, match.tokens, blocks * s->m->page_tokens, "tokens found");
    if (probe) return;
    note_pages(s, got, blocks);
    same_pages(s, got, expected, blocks, "lookup");
    for (uint64_t i = 0; s->m->bytes && i < blocks; ++i)
        if (model_tags(s->m, got[i], 0)[s->m->page_tokens - 1] != prompt.tags[(i + 1) * s->m->page_tokens - 1])
            mismatch(s, "block %" PRIu64 " was found with the KV of another prefix", i);
}

static void write_slots(shadow *s, uint32_t layer, uint64_t num, const pkv_slot *slots, pkv_status expected) {
    pkv_tensor tensors[2];
    make_rows(s, layer, num, true, tensors);
    same_status(
        s, pkv_pool_write(s->pool, 0, layer, num, slots, &tensors[0], s->row_bytes[1] > 0 ? &tensors[1] : NULL, NULL),
        s->m->bytes ? expected : PKV_ERR_UNSUPPORTED, "pool_write");
    if (!s->m->bytes || expected != PKV_OK) return;
    for (uint64_t i = 0; i < num; ++i)
        if (slots[i] >= 0)
            model_tags(s->m, (pkv_page)(slots[i] / s->m->page_tokens), layer)[slots[i] % s->m->page_tokens] =
                s->row_tags[i];
}

/* Whether the page holds the KV of a block; writes it there if the page is only ours. */
static bool has_or_gets_block(shadow *s, pkv_page page, const model_prompt *prompt, uint64_t block) {
    const uint32_t page_tokens = s->m->page_tokens;
    const model_page *item = &s->m->pages[page];
    if (!s->m->bytes) return true;
    const uint64_t *tags = prompt->tags + block * page_tokens;
    bool right = true;
    for (uint32_t layer = 0; layer < model_layers; ++layer)
        right = right && memcmp(model_tags(s->m, page, layer), tags, page_tokens * sizeof *tags) == 0;
    if (right) return true;
    if (item->node >= 0 || item->low == 0 || item->count != item->low) return item->node >= 0; /* published: refused */
    pkv_slot slots[model_max_page_tokens];
    for (uint32_t i = 0; i < page_tokens; ++i) slots[i] = (pkv_slot)page * page_tokens + i;
    memcpy(s->row_tags, tags, page_tokens * sizeof *tags);
    for (uint32_t layer = 0; layer < model_layers; ++layer) write_slots(s, layer, page_tokens, slots, PKV_OK);
    return true;
}

static void publish_some(shadow *s) {
    static model_prompt prompt;
    api_prompt api;
    int nodes[model_max_pages];
    pkv_page pages[model_max_pages];
    pkv_page got[model_max_pages];
    pkv_page expected[model_max_pages];
    note(s, "publish");
    const int like = percent(s, 30) ? pick_table(s, true) : -1;
    if (like >= 0)
        prompt = s->m->tables[like].sequence; /* to find its pages complete under another holder, or as they are */
    else
        random_prompt(s, &prompt);
    const uint64_t blocks = prompt.num_tokens / s->m->page_tokens;
    const uint64_t published = model_match(s->m, &prompt, PKV_MATCH_ALL, UINT64_MAX, nodes);
    uint64_t first = below(s, published + 1);
    if (percent(s, 4)) first = below(s, blocks + 2);
    uint64_t num = 0;
    for (uint64_t wanted = below(s, 4); num < wanted; ++num) {
        pages[num] = low_page(s);
        if (like >= 0 && percent(s, 60) && first + num < s->m->tables[like].num_pages)
            pages[num] = s->m->tables[like].pages[first + num];
        if (percent(s, 2)) pages[num] = wrong_page(s);
        if (pages[num] == PKV_NO_PAGE) break;
        const bool real =
            pages[num] >= 0 && (uint64_t)pages[num] < s->m->num_pages && s->m->pages[pages[num]].count > 0;
        if (!real || first + num >= blocks) continue;
        if (!complete_everywhere(s, pages[num]) || !has_or_gets_block(s, pages[num], &prompt, first + num)) break;
    }
    note(s, " from block %" PRIu64 " of %" PRIu64 " (%" PRIu64 " published), pages", first, blocks, published);
    note_pages(s, pages, num);
    const pkv_status status = model_publish(s->m, &prompt, first, num, pages, expected);
    same_status(s, pkv_pool_publish(s->pool, 0, to_api(&prompt, &api), first, num, pages, got), status, "publish");
    if (status == PKV_OK) same_pages(s, got, expected, num, "owners");
}

static void evict_some(shadow *s) {
    const uint64_t num = percent(s, 90) ? below(s, 4) : below(s, s->m->num_pages + 1);
    uint64_t evicted = 0;
    note(s, "evict %" PRIu64, num);
    const uint64_t expected = model_evict(s->m, num);
    assert_ok(pkv_pool_evict(s->pool, 0, num, &evicted));
    same_number(s, evicted, expected, "pages evicted");
}

static void clear_some(shadow *s) {
    pkv_clear_result got = PKV_CLEAR_RESULT_INIT;
    pkv_clear_result expected = PKV_CLEAR_RESULT_INIT;
    const int ns = percent(s, 40) ? -1 : (int)below(s, num_namespaces);
    note(s, "clear namespace %d", ns);
    model_clear(s->m, ns, &expected);
    assert_ok(ns < 0 ? pkv_pool_clear_all(s->pool, &got) : pkv_pool_clear(s->pool, namespace_of(ns), &got));
    same_number(s, got.freed, expected.freed, "freed by clear");
    same_number(s, got.held, expected.held, "held after clear");
}

/* Slots of pages that are ours and unpublished, and sometimes a slot that must not be written. */
static void pool_write_some(shadow *s) {
    pkv_slot slots[6];
    uint64_t num = 0;
    pkv_status expected = PKV_OK;
    for (uint64_t wanted = below(s, 6); num < wanted; ++num) {
        const pkv_page page = low_page(s);
        slots[num] = PKV_NO_SLOT;
        if (page == PKV_NO_PAGE || s->m->pages[page].node >= 0 || s->m->pages[page].count != s->m->pages[page].low)
            continue;
        slots[num] = (pkv_slot)page * s->m->page_tokens + (pkv_slot)below(s, s->m->page_tokens);
    }
    if (percent(s, 20)) {
        const pkv_page page = any_page(s);
        if (s->m->pages[page].count == 0 || s->m->pages[page].node >= 0) expected = PKV_ERR_STATE;
        if (expected == PKV_ERR_STATE) slots[num++] = (pkv_slot)page * s->m->page_tokens;
    } else if (percent(s, 5)) {
        slots[num++] = (pkv_slot)(s->m->num_pages * s->m->page_tokens + below(s, 2));
        expected = PKV_ERR_INVALID;
    }
    for (uint64_t i = 0; i < num; ++i) s->row_tags[i] = next_random(&s->random) | 1;
    note(s, "pool_write %" PRIu64 " slots", num);
    write_slots(s, (uint32_t)below(s, model_layers), num, slots, expected);
}

static void copy_some(shadow *s) {
    const pkv_page src = any_page(s);
    const pkv_page dst = percent(s, 60) ? low_page(s) : any_page(s);
    if (dst == PKV_NO_PAGE) return;
    const model_page *to = &s->m->pages[dst];
    if (to->count > 0 && to->node < 0 && to->count != to->low) return; /* a table's own business */
    pkv_status expected = PKV_OK;
    if (src == dst)
        expected = PKV_ERR_INVALID;
    else if (s->m->pages[src].count == 0 || to->count == 0 || to->node >= 0)
        expected = PKV_ERR_STATE;
    if (!s->m->bytes) expected = PKV_ERR_UNSUPPORTED;
    note(s, "copy page %d to %d", src, dst);
    same_status(s, pkv_pool_copy_pages(s->pool, 0, 1, &src, &dst, NULL), expected, "copy_pages");
    if (expected == PKV_OK)
        memcpy(model_tags(s->m, dst, 0), model_tags(s->m, src, 0), sizeof(uint64_t) * model_layers * s->m->page_tokens);
}

static void pool_gather_some(shadow *s) {
    const uint64_t page_tokens = s->m->page_tokens;
    const uint32_t layer = (uint32_t)below(s, model_layers);
    pkv_page pages[3];
    for (int i = 0; i < 3; ++i) pages[i] = percent(s, 50) ? low_page(s) : any_page(s);
    const uint64_t first = below(s, 2 * page_tokens);
    uint64_t num = below(s, 2 * page_tokens);
    if (num > 3 * page_tokens - first) num = 3 * page_tokens - first;
    pkv_status expected = PKV_OK;
    for (uint64_t i = first; i < first + num && expected == PKV_OK; ++i) {
        const pkv_page page = pages[i / page_tokens];
        if (page == PKV_NO_PAGE)
            expected = PKV_ERR_INVALID;
        else if (s->m->pages[page].count == 0)
            expected = PKV_ERR_STATE;
        else
            s->row_tags[i - first] = model_tags(s->m, page, layer)[i % page_tokens];
    }
    if (!s->m->bytes) expected = PKV_ERR_UNSUPPORTED;
    pkv_tensor tensors[2];
    make_rows(s, layer, num, false, tensors);
    note(s, "pool_gather %" PRIu64 " + %" PRIu64 " of", first, num);
    note_pages(s, pages, 3);
    same_status(s,
                pkv_pool_gather(s->pool, 0, layer, 3, pages, first, num, &tensors[0],
                                s->row_bytes[1] > 0 ? &tensors[1] : NULL, NULL),
                expected, "pool_gather");
    if (expected == PKV_OK) check_gathered(s, layer, num, "pool_gather");
}

#endif
