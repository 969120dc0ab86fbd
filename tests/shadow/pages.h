/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of the shadow-model test on pages without tables. Pages that it holds itself are counted in model_page.low. */
#ifndef PKV_TESTS_PAGES_H
#define PKV_TESTS_PAGES_H

#include "shadow/transfer.h"

static pkv_page any_page(shadow *s, uint32_t group) { return (pkv_page)below(s, s->m->groups[group].num_pages); }

/* Whether every table that has the page has committed it to its end, so that none will write into it as it is. */
static bool complete_everywhere(const shadow *s, uint32_t group, pkv_page page) {
    for (int i = 0; i < s->max_tables; ++i) {
        const model_table *t = &s->m->tables[i];
        if (t->alive && t->copy_sources[group] == page) return false;
        for (uint64_t block = t->committed / s->m->page_tokens; block < t->num_blocks; ++block)
            if (t->pages[group][block] == page) return false;
    }
    return true;
}

static pkv_page low_page(shadow *s, uint32_t group) {
    const model_group *g = &s->m->groups[group];
    const pkv_page start = any_page(s, group);
    for (uint64_t i = 0; i < g->num_pages; ++i) {
        const pkv_page page = (pkv_page)(((uint64_t)start + i) % g->num_pages);
        if (g->pages[page].low > 0) return page;
    }
    return PKV_NO_PAGE;
}

static bool exists(const shadow *s, uint32_t group, pkv_page page) {
    return page >= 0 && (uint64_t)page < s->m->groups[group].num_pages;
}

static pkv_page wrong_page(shadow *s, uint32_t group) {
    const pkv_page choices[] = {-1, (pkv_page)s->m->groups[group].num_pages, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 8; ++i) {
        const pkv_page page = any_page(s, group);
        if (s->m->groups[group].pages[page].count == 0) return page;
    }
    return choices[below(s, 4)];
}

static void note_pages(shadow *s, const pkv_page *pages, uint64_t num) {
    for (uint64_t i = 0; i < num && i < 8; ++i) note(s, " %d", pages[i]);
}

static void alloc_some(shadow *s) {
    const uint32_t group = any_group(s);
    model_group *g = &s->m->groups[group];
    pkv_page expected[model_max_pages + 2] = {0};
    pkv_page got[model_max_pages + 2] = {0};
    uint64_t num = below(s, 4);
    if (percent(s, 3)) num = model_room(g) + below(s, 2);
    note(s, "alloc %" PRIu64 " of group %u:", num, group);
    const pkv_status status = pkv_pool_alloc(s->pool, group, num, got);
    if (status == PKV_OK) hint_pages(s, group, got, num);
    same_status(s, status, model_alloc(s->m, group, num, expected), "alloc");
    if (status != PKV_OK) return;
    note_pages(s, got, num);
    same_pages(s, got, expected, num, "alloc");
    for (uint64_t i = 0; i < num; ++i) ++g->pages[got[i]].low;
}

static void retain_some(shadow *s) {
    const uint32_t group = any_group(s);
    pkv_page pages[4];
    uint64_t num = 0;
    for (uint64_t i = below(s, 4); i > 0; --i) {
        const pkv_page page = percent(s, 50) ? low_page(s, group) : any_page(s, group);
        if (page != PKV_NO_PAGE && s->m->groups[group].pages[page].count > 0 && complete_everywhere(s, group, page))
            pages[num++] = page;
    }
    if (percent(s, 8)) pages[num++] = wrong_page(s, group);
    note(s, "retain %u:", group);
    note_pages(s, pages, num);
    const pkv_status got = pkv_pool_retain(s->pool, group, num, pages);
    same_status(s, got, model_retain(s->m, group, num, pages), "retain");
}

static void release_some(shadow *s) {
    enum { most = 24 };
    const uint32_t group = any_group(s);
    const model_page *items = s->m->groups[group].pages;
    pkv_page pages[most];
    uint64_t num = 0;
    const uint64_t wanted = percent(s, 10) ? most - 6 : below(s, 5);
    while (num < wanted) {
        const pkv_page page = low_page(s, group);
        if (page == PKV_NO_PAGE) break;
        uint64_t listed = 0;
        for (uint64_t i = 0; i < num; ++i) listed += pages[i] == page;
        if (listed >= items[page].low) break;
        pages[num++] = page;
    }
    if (percent(s, 8)) pages[num++] = wrong_page(s, group);
    if (percent(s, 4) && num > 0) { /* too often; not at the cost of tables, since nobody could tell */
        const pkv_page page = pages[below(s, num)];
        if (exists(s, group, page) && items[page].count == items[page].low)
            for (uint64_t i = items[page].low + 1; i > 0 && num < most; --i) pages[num++] = page;
    }
    pkv_status got[most];
    pkv_status expected[most];
    const bool each = percent(s, 50);
    note(s, "release%s %u:", each ? " each" : "", group);
    note_pages(s, pages, num);
    const pkv_status status = pkv_pool_release(s->pool, group, num, pages, each ? got : NULL, NULL);
    same_status(s, status, model_release(s->m, group, num, pages, each ? expected : NULL), "release");
    for (uint64_t i = 0; each && i < num; ++i) same_status(s, got[i], expected[i], "one page of release");
}

static void evict_some(shadow *s) {
    const uint32_t group = any_group(s);
    const uint64_t num = percent(s, 90) ? below(s, 4) : below(s, s->m->groups[group].num_pages + 1);
    note(s, "evict %" PRIu64 " of group %u", num, group);
    uint64_t got = 0;
    assert_ok(pkv_pool_evict(s->pool, group, num, &got));
    same_number(s, got, model_evict(s->m, group, num), "pages evicted");
}

/* ---- bytes ---- */

static void write_slots(shadow *s, uint32_t group, uint32_t layer, uint64_t num, const pkv_slot *slots,
                        pkv_status expected) {
    pkv_tensor tensors[2];
    make_rows(s, group, layer, num, true, tensors);
    if (!s->m->groups[group].bytes) expected = PKV_ERR_UNSUPPORTED;
    same_status(s, pkv_pool_write(s->pool, group, layer, num, slots, &tensors[0], v_of(s, group, tensors), NULL),
                expected, "pool_write");
    for (uint64_t i = 0; expected == PKV_OK && i < num; ++i)
        if (slots[i] >= 0)
            model_tags(s->m, group, (pkv_page)(slots[i] / s->m->page_tokens), layer)[slots[i] % s->m->page_tokens] =
                s->row_tags[i];
}

/* Slots of pages that are ours and unpublished, and sometimes a slot that must not be written. */
static void pool_write_some(shadow *s) {
    const uint32_t group = any_group(s);
    const model_page *items = s->m->groups[group].pages;
    pkv_slot slots[8];
    uint64_t num = 0;
    pkv_status expected = PKV_OK;
    for (uint64_t wanted = below(s, 6); num < wanted; ++num) {
        const pkv_page page = low_page(s, group);
        slots[num] = PKV_NO_SLOT;
        if (page == PKV_NO_PAGE || items[page].node >= 0 || items[page].count != items[page].low) continue;
        slots[num] = (pkv_slot)page * s->m->page_tokens + (pkv_slot)below(s, s->m->page_tokens);
    }
    if (percent(s, 20)) {
        const pkv_page page = any_page(s, group);
        if (items[page].count == 0 || items[page].node >= 0) expected = PKV_ERR_STATE;
        if (expected == PKV_ERR_STATE) slots[num++] = (pkv_slot)page * s->m->page_tokens;
    } else if (percent(s, 5)) {
        slots[num++] = (pkv_slot)(s->m->groups[group].num_pages * s->m->page_tokens + below(s, 2));
        expected = PKV_ERR_INVALID;
    }
    for (uint64_t i = 0; i < num; ++i) s->row_tags[i] = next_random(&s->random) | 1;
    note(s, "pool_write %" PRIu64 " slots of group %u", num, group);
    write_slots(s, group, (uint32_t)below(s, model_layers), num, slots, expected);
}

static void copy_some(shadow *s) {
    const uint32_t group = any_group(s);
    const model_group *g = &s->m->groups[group];
    const pkv_page src = any_page(s, group);
    const pkv_page dst = percent(s, 60) ? low_page(s, group) : any_page(s, group);
    if (dst == PKV_NO_PAGE) return;
    const model_page *to = &g->pages[dst];
    if (to->count > 0 && to->node < 0 && to->count != to->low) return; /* a table's own business */
    pkv_status expected = PKV_OK;
    if (src == dst)
        expected = PKV_ERR_INVALID;
    else if (g->pages[src].count == 0 || to->count == 0 || to->node >= 0)
        expected = PKV_ERR_STATE;
    if (!g->bytes) expected = PKV_ERR_UNSUPPORTED;
    note(s, "copy page %d to %d of group %u", src, dst, group);
    same_status(s, pkv_pool_copy_pages(s->pool, group, 1, &src, &dst, NULL), expected, "copy_pages");
    if (expected == PKV_OK)
        memcpy(model_tags(s->m, group, dst, 0), model_tags(s->m, group, src, 0),
               sizeof(uint64_t) * model_layers * s->m->page_tokens);
}

static void pool_gather_some(shadow *s) {
    const uint64_t page_tokens = s->m->page_tokens;
    const uint32_t group = any_group(s);
    const uint32_t layer = (uint32_t)below(s, model_layers);
    pkv_page pages[3];
    for (int i = 0; i < 3; ++i) pages[i] = percent(s, 50) ? low_page(s, group) : any_page(s, group);
    const uint64_t first = below(s, 2 * page_tokens);
    uint64_t num = below(s, 2 * page_tokens);
    if (num > 3 * page_tokens - first) num = 3 * page_tokens - first;
    pkv_status expected = PKV_OK;
    for (uint64_t i = first; i < first + num && expected == PKV_OK; ++i) {
        const pkv_page page = pages[i / page_tokens];
        if (page == PKV_NO_PAGE)
            expected = PKV_ERR_INVALID;
        else if (s->m->groups[group].pages[page].count == 0)
            expected = PKV_ERR_STATE;
        else
            s->row_tags[i - first] = model_tags(s->m, group, page, layer)[i % page_tokens];
    }
    if (!s->m->groups[group].bytes) expected = PKV_ERR_UNSUPPORTED;
    pkv_tensor tensors[2];
    make_rows(s, group, layer, num, false, tensors);
    note(s, "pool_gather %" PRIu64 " + %" PRIu64 " of group %u", first, num, group);
    note_pages(s, pages, 3);
    same_status(
        s, pkv_pool_gather(s->pool, group, layer, 3, pages, first, num, &tensors[0], v_of(s, group, tensors), NULL),
        expected, "pool_gather");
    if (expected == PKV_OK) check_gathered(s, group, layer, num, "pool_gather");
}

#endif
