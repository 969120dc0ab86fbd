/* SPDX-License-Identifier: Apache-2.0 */
/* Export and import in the shadow-model test: into a table of the same pool, and into another pool of other pages. */
#ifndef PKV_TESTS_TRANSFER_H
#define PKV_TESTS_TRANSFER_H

#include "shadow/branches.h"

/* What a table of another pool has must be what this one has: every row that both keep. */
static void compare_rows(shadow *s, const model_table *t, pkv_table *table) {
    for (uint32_t group = 0; group < s->m->num_groups; ++group)
        for (uint32_t layer = 0; layer < model_layers; ++layer)
            for (uint64_t block = 0; block < model_blocks(s->m, t->committed); ++block) {
                if (t->pages[group][block] == PKV_NO_PAGE) continue;
                const uint64_t begin = block * s->m->page_tokens;
                uint64_t num = t->committed - begin;
                if (num > s->m->page_tokens) num = s->m->page_tokens;
                pkv_tensor tensors[2];
                make_rows(s, group, layer, num, false, tensors);
                assert_ok(
                    pkv_table_gather(table, group, layer, begin, num, &tensors[0], v_of(s, group, tensors), NULL));
                memcpy(s->row_tags, t->sequence.tags + begin, num * sizeof *s->row_tags);
                check_gathered(s, group, layer, num, "an imported sequence");
            }
}

/* Whether a window was cut at tokens that pages of another size have no boundary at. */
static bool cut_elsewhere(const shadow *s, const model_table *t, uint32_t page_tokens) {
    for (uint32_t group = 0; group < s->m->num_groups; ++group) {
        const uint64_t blocks = model_blocks(s->m, t->committed);
        for (uint64_t block = 0; block < blocks; ++block) {
            const bool here = t->pages[group][block] != PKV_NO_PAGE;
            const bool before = block == 0 || t->pages[group][block - 1] != PKV_NO_PAGE;
            if (here != before && block * s->m->page_tokens % page_tokens != 0) return true;
        }
    }
    return false;
}

static void import_elsewhere(shadow *s, int index, const uint8_t *buffer, uint64_t size) {
    static const uint32_t sizes[] = {1, 2, 4, 7, 16, 50};
    const model_table *t = &s->m->tables[index];
    pkv_pool_options options = s->options;
    pkv_group_options groups[model_max_groups];
    options.groups = groups;
    options.page_tokens = percent(s, 30) ? s->m->page_tokens : sizes[below(s, 6)];
    options.event_capacity = 0;
    for (uint32_t group = 0; group < s->m->num_groups; ++group) {
        groups[group] = s->group_options[group];
        groups[group].num_pages = t->committed / options.page_tokens + 1 + below(s, 3);
        groups[group].max_cached_pages = 0;
        groups[group].layout = percent(s, 50) ? PKV_LAYOUT_NHD : PKV_LAYOUT_HND;
        groups[group].arrangement = percent(s, 50) ? PKV_PAGE_MAJOR : PKV_LAYER_MAJOR;
    }
    const bool mismatched = percent(s, 5);
    if (mismatched) ++groups[0].num_kv_heads;
    pkv_pool *pool = NULL;
    pkv_table *table = NULL;
    note(s, " to pages of %u", options.page_tokens);
    assert_ok(pkv_pool_create(&options, &pool));
    assert_ok(pkv_table_create(pool, &table));
    const bool fits = !mismatched && !cut_elsewhere(s, t, options.page_tokens);
    const pkv_status got = pkv_table_import(table, buffer, size);
    same_status(s, got, fits ? PKV_OK : PKV_ERR_MISMATCH, "import");
    same_number(s, info_of(table).committed, fits ? t->committed : 0, "committed tokens of an import");
    if (fits) {
        api_prompt api;
        static model_prompt whole;
        compare_rows(s, t, table);
        whole = t->sequence;
        whole.num_tokens = t->committed;
        model_drop_media_from(&whole, t->committed);
        uint64_t expected = t->committed / options.page_tokens * options.page_tokens;
        for (uint32_t group = 0; group < s->m->num_groups; ++group) /* a window that was cut serves its end at most */
            if (t->committed > 0 && s->m->groups[group].window != 0) expected = 0;
        if (probe_tokens(pool, to_api(&whole, &api)) < expected) mismatch(s, "an imported sequence is not published");
        assert_ok(pkv_table_destroy(table, NULL));
    } else {
        assert_ok(pkv_table_destroy(table, NULL));
    }
    end_groups(pool);
}

static void import_damaged(shadow *s, int empty, uint8_t *buffer, uint64_t size) {
    const uint64_t at = below(s, size);
    const bool cut = percent(s, 30);
    note(s, " damaged at %" PRIu64, at);
    if (!cut) buffer[at] ^= (uint8_t)(1 + below(s, 255));
    const pkv_status got = pkv_table_import(s->tables[empty], buffer, cut ? at : size);
    if (got != PKV_ERR_INVALID && got != PKV_ERR_MISMATCH)
        mismatch(s, "a damaged buffer was taken: %s", pkv_status_string(got));
}

static void transfer_some(shadow *s, int index) {
    const model_table *t = &s->m->tables[index];
    pkv_status expected = PKV_OK;
    if (!t->admitted || t->named < t->committed)
        expected = PKV_ERR_STATE;
    else if (!model_has_bytes(s->m))
        expected = PKV_ERR_UNSUPPORTED;
    uint64_t size = 0;
    note(s, "export table %d", index);
    same_status(s, pkv_table_export(s->tables[index], NULL, 0, &size), expected, "export");
    if (expected != PKV_OK) return;
    uint8_t *buffer = calloc(size + 1, 1);
    uint64_t written = 0;
    if (percent(s, 10)) assert_status(pkv_table_export(s->tables[index], buffer, size - 1, &written), PKV_ERR_NO_SPACE);
    assert_ok(pkv_table_export(s->tables[index], buffer, size + 1, &written));
    same_number(s, written, size, "bytes exported");
    same_number(s, buffer[size], 0, "the byte behind an export");
    const int empty = percent(s, 5) ? pick_table(s, true) : empty_table(s);
    if (empty >= 0 && !s->m->tables[empty].admitted && percent(s, 15)) {
        import_damaged(s, empty, buffer, size);
    } else if (empty >= 0 && percent(s, 80)) {
        model_table *to = &s->m->tables[empty];
        const bool before = to->admitted;
        note(s, " to table %d", empty);
        const pkv_status got = pkv_table_import(s->tables[empty], buffer, size);
        if (!before) hint_table(s, empty, 0);
        same_status(s, got, model_import(s->m, to, t), "import");
    } else if (s->m->tables[index].admitted) {
        import_elsewhere(s, index, buffer, size);
    }
    free(buffer);
}

#endif
