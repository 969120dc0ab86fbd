/* SPDX-License-Identifier: Apache-2.0 */
/* One step of the shadow-model test's batch: several tables together, with the caller's arrays. The model does the same
 * step table by table. */
#ifndef PKV_TESTS_BATCH_STEP_H
#define PKV_TESTS_BATCH_STEP_H

#include "shadow/prefixes.h"

enum { batch_fill = -7 };

typedef struct {
    uint32_t num;
    int index[batch_rows + 1]; /* -1: no table at all */
    uint32_t num_new[batch_rows + 1];
    uint64_t begin[batch_rows + 1];
    uint64_t total; /* new tokens, failed rows included */
    pkv_status status[batch_rows + 1];
    bool empty[batch_rows + 1];     /* failed at reserve */
    bool destroyed[batch_rows + 1]; /* inside the step; it lives until the step ends */
} batch_step;

static void make_batch(shadow *s) {
    s->batch_tokens = 2 * (s->m->page_tokens + 2);
    s->batch_blocks = s->m->groups[0].num_pages + 64; /* more than a step can get */
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    pkv_batch_arrays arrays[model_max_groups];
    options.max_tables = batch_rows;
    options.max_tokens = s->batch_tokens;
    options.last_page_len = s->last_page_len;
    options.lengths = s->lengths;
    options.num_arrays = s->m->num_groups;
    options.arrays = arrays;
    for (uint32_t i = 0; i < s->m->num_groups; ++i) {
        shadow_group *g = &s->groups[i];
        g->block_table = calloc(batch_rows * s->batch_blocks, sizeof *g->block_table);
        g->block_indices = calloc(batch_rows * s->batch_blocks, sizeof *g->block_indices);
        g->slot_mapping = calloc(s->batch_tokens, sizeof *g->slot_mapping);
        pkv_batch_arrays *at = &arrays[s->m->num_groups - 1 - i];
        *at = (pkv_batch_arrays)PKV_BATCH_ARRAYS_INIT;
        at->group = i;
        at->fill = batch_fill;
        at->max_blocks = s->batch_blocks;
        at->max_indices = batch_rows * s->batch_blocks;
        at->block_table = g->block_table;
        at->block_indptr = g->block_indptr;
        at->block_indices = g->block_indices;
        at->slot_mapping = g->slot_mapping;
    }
    assert_ok(pkv_batch_create(s->pool, &options, &s->batch));
}

static void end_batch(shadow *s) {
    assert_ok(pkv_batch_destroy(s->batch));
    for (uint32_t i = 0; i < s->m->num_groups; ++i) {
        free(s->groups[i].block_table);
        free(s->groups[i].block_indices);
        free(s->groups[i].slot_mapping);
    }
}

static uint64_t row_length(const batch_step *b, uint32_t row) {
    return b->empty[row] ? 0 : b->begin[row] + b->num_new[row];
}

/* What a gather takes of a row: nothing once it failed. */
static uint64_t live_length(const batch_step *b, uint32_t row) {
    return b->status[row] == PKV_OK ? row_length(b, row) : 0;
}

static void check_group_arrays(shadow *s, const batch_step *b, uint32_t group) {
    const shadow_group *g = &s->groups[group];
    const uint64_t page_tokens = s->m->page_tokens;
    uint64_t indices = 0;
    uint64_t slots = 0;
    for (uint32_t row = 0; row < batch_rows; ++row) {
        const uint64_t blocks = row < b->num ? model_blocks(s->m, row_length(b, row)) : 0;
        const pkv_page *pages = blocks > 0 ? s->m->tables[b->index[row]].pages[group] : NULL;
        same_number(s, (uint64_t)g->block_indptr[row], indices, "block_indptr[]");
        for (uint64_t i = 0; i < s->batch_blocks; ++i) {
            const int32_t expected = i < blocks && pages[i] != PKV_NO_PAGE ? pages[i] : batch_fill;
            if (g->block_table[row * s->batch_blocks + i] != expected)
                same_number(s, (uint64_t)g->block_table[row * s->batch_blocks + i], (uint64_t)expected,
                            "block_table[]");
            if (i < blocks)
                same_number(s, (uint64_t)g->block_indices[indices + i], (uint64_t)expected, "block_indices[]");
        }
        indices += blocks;
        for (uint64_t i = 0; row < b->num && i < b->num_new[row]; ++i) {
            const uint64_t position = b->begin[row] + i;
            pkv_slot slot = PKV_NO_SLOT;
            if (!b->empty[row])
                slot = (pkv_slot)pages[position / page_tokens] * (pkv_slot)page_tokens +
                       (pkv_slot)(position % page_tokens);
            same_number(s, (uint64_t)g->slot_mapping[slots++], (uint64_t)slot, "slot_mapping[]");
        }
    }
    same_number(s, (uint64_t)g->block_indptr[batch_rows], indices, "block_indptr[], last");
    for (; slots < s->batch_tokens; ++slots)
        same_number(s, (uint64_t)g->slot_mapping[slots], (uint64_t)PKV_NO_SLOT, "slot_mapping[], padding");
}

static void check_arrays(shadow *s, const batch_step *b) {
    for (uint32_t row = 0; row < batch_rows; ++row) {
        const uint64_t length = row < b->num ? row_length(b, row) : 0;
        same_number(s, (uint64_t)s->lengths[row], length, "lengths[]");
        same_number(s, (uint64_t)s->last_page_len[row], length == 0 ? 0 : (length - 1) % s->m->page_tokens + 1,
                    "last_page_len[]");
    }
    for (uint32_t group = 0; group < s->m->num_groups; ++group) check_group_arrays(s, b, group);
}

/* A number for all arrays, to see that a refused call leaves them alone. */
static uint64_t arrays_digest(const shadow *s) {
    uint64_t digest = 0;
    for (int row = 0; row < batch_rows; ++row)
        digest = digest * 31 + (uint64_t)(s->lengths[row] * 7 + s->last_page_len[row]);
    for (uint32_t group = 0; group < s->m->num_groups; ++group) {
        const shadow_group *g = &s->groups[group];
        for (uint64_t i = 0; i < batch_rows * s->batch_blocks; ++i)
            digest = digest * 31 + (uint64_t)g->block_table[i] * 7 + (uint64_t)g->block_indices[i];
        for (uint64_t i = 0; i < s->batch_tokens; ++i) digest = digest * 31 + (uint64_t)g->slot_mapping[i];
        for (int row = 0; row <= batch_rows; ++row) digest = digest * 31 + (uint64_t)g->block_indptr[row];
    }
    return digest;
}

static void same_statuses(shadow *s, const batch_step *b, pkv_status got, const pkv_status *each, const char *call) {
    pkv_status first = PKV_OK;
    for (uint32_t row = b->num; row-- > 0;)
        if (b->status[row] != PKV_OK) first = b->status[row];
    same_status(s, got, first, call);
    for (uint32_t row = 0; each != NULL && row < b->num; ++row) same_status(s, each[row], b->status[row], call);
}

/* A table that calls of its own have changed inside the step has no part in the rest of it. */
static void look_at_tables(shadow *s, batch_step *b) {
    for (uint32_t row = 0; row < b->num; ++row) {
        if (b->status[row] != PKV_OK) continue;
        const model_table *t = &s->m->tables[b->index[row]];
        if (!t->admitted || t->committed != b->begin[row] || model_reserved(s->m, t) < row_length(b, row))
            b->status[row] = PKV_ERR_STATE;
    }
}

/* ---- reserve ---- */

/* Which tables, and how many new tokens; false when the step will be refused because a table is listed twice. */
static bool choose_rows(shadow *s, batch_step *b, pkv_table **tables) {
    bool twice = false;
    for (uint64_t wanted = below(s, batch_rows + 1); b->num < wanted; ++b->num) {
        const int index = percent(s, 3) ? -1 : pick_table(s, percent(s, 95));
        uint64_t num_new = below(s, percent(s, 70) ? 3 : s->m->page_tokens + 3);
        bool listed = false;
        for (uint32_t row = 0; row < b->num; ++row) listed = listed || (index >= 0 && b->index[row] == index);
        if (listed && !percent(s, 3)) break;
        twice = twice || listed;
        const uint64_t committed = index >= 0 ? s->m->tables[index].committed : 0;
        if (committed + num_new > s->max_tokens) num_new = 0;
        b->index[b->num] = index;
        b->begin[b->num] = committed;
        b->num_new[b->num] = (uint32_t)num_new;
        b->total += num_new;
        tables[b->num] = index >= 0 ? s->tables[index] : NULL;
        note(s, " %d+%" PRIu64, index, num_new);
    }
    return !twice;
}

/* False: the step did not begin. */
static bool batch_reserve(shadow *s, batch_step *b) {
    pkv_table *tables[batch_rows + 1] = {NULL};
    pkv_status got[batch_rows + 1];
    note(s, "batch:");
    memset(b, 0, sizeof *b);
    const bool once = choose_rows(s, b, tables);
    const bool each = percent(s, 70);
    const uint64_t before = arrays_digest(s);
    const pkv_status status = pkv_batch_reserve(s->batch, b->num, tables, b->num_new, each ? got : NULL);
    if (!once || b->total > s->batch_tokens) {
        same_status(s, status, once ? PKV_ERR_LIMIT : PKV_ERR_INVALID, "batch_reserve");
        same_number(s, arrays_digest(s), before, "the arrays after a refused step");
        return false;
    }
    for (uint32_t row = 0; row < b->num; ++row)
        if (b->index[row] >= 0) hint_table(s, b->index[row], s->m->tables[b->index[row]].num_blocks);
    for (uint32_t row = 0; row < b->num; ++row) {
        model_table *t = &s->m->tables[b->index[row] >= 0 ? b->index[row] : 0];
        b->status[row] = b->index[row] >= 0 ? model_reserve(s->m, t, b->begin[row] + b->num_new[row]) : PKV_ERR_HANDLE;
        b->empty[row] = b->status[row] != PKV_OK;
    }
    same_statuses(s, b, status, each ? got : NULL, "batch_reserve");
    check_arrays(s, b);
    return true;
}

/* A step that is refused as a whole, while another is under way: neither it nor the arrays change. */
static void refuse_reserve(shadow *s, const batch_step *b) {
    const uint64_t before = arrays_digest(s);
    const bool twice = b->num > 0 && b->index[0] >= 0 && !b->destroyed[0];
    pkv_table *table = twice ? s->tables[b->index[0]] : NULL;
    pkv_table *tables[2] = {table, table};
    const uint32_t num_new[2] = {twice ? 0 : (uint32_t)s->batch_tokens + 1, 0};
    note(s, " [refused reserve");
    same_status(s, pkv_batch_reserve(s->batch, 2, tables, num_new, NULL), twice ? PKV_ERR_INVALID : PKV_ERR_LIMIT,
                "batch_reserve");
    same_number(s, arrays_digest(s), before, "the arrays after a refused step");
    note(s, "]");
}

/* A call of a table's own while a step is under way. */
static void change_inside(shadow *s, batch_step *b) {
    const uint32_t row = (uint32_t)below(s, b->num);
    const int index = b->index[row];
    if (index < 0 || !s->m->tables[index].admitted || b->destroyed[row]) return;
    note(s, " [");
    switch (below(s, 7)) {
    case 0: commit_some(s, index); break;
    case 1: truncate_table(s, index); break;
    case 2: clear_table(s, index); break;
    case 3: fork_table(s, index); break;
    case 4: window_table(s, index); break;
    case 5:
        note(s, "destroy table %d", index);
        assert_ok(pkv_table_destroy(s->tables[index], NULL));
        b->destroyed[row] = true;
        break;
    default: reserve_some(s, index); break;
    }
    note(s, "]");
}

/* ---- inside the step ---- */

static void batch_set_tokens(shadow *s, batch_step *b) {
    static model_prompt sequence;
    pkv_token *tokens = calloc(b->total + 1, sizeof *tokens);
    pkv_status got[batch_rows + 1];
    uint64_t at = 0;
    look_at_tables(s, b);
    note(s, " set_tokens");
    if (percent(s, 5))
        same_status(s, pkv_batch_set_tokens(s->batch, b->total + 1, tokens, got), PKV_ERR_INVALID, "batch_set_tokens");
    for (uint32_t row = 0; row < b->num; at += b->num_new[row++]) {
        if (b->status[row] != PKV_OK) continue;
        sequence = s->m->tables[b->index[row]].sequence;
        extend(s, &sequence, row_length(b, row));
        if (b->num_new[row] > 0 && percent(s, 20)) sequence.tokens[b->begin[row] + below(s, b->num_new[row])] = 6;
        memcpy(tokens + at, sequence.tokens + b->begin[row], b->num_new[row] * sizeof *tokens);
    }
    const bool each = percent(s, 70);
    const pkv_status status = pkv_batch_set_tokens(s->batch, b->total, tokens, each ? got : NULL);
    at = 0;
    for (uint32_t row = 0; row < b->num; at += b->num_new[row++])
        if (b->status[row] == PKV_OK)
            b->status[row] =
                model_set_tokens(s->m, &s->m->tables[b->index[row]], b->begin[row], b->num_new[row], tokens + at);
    same_statuses(s, b, status, each ? got : NULL, "batch_set_tokens");
    free(tokens);
}

static void batch_write(shadow *s, batch_step *b, uint32_t group, uint32_t layer) {
    pkv_status expected = PKV_OK;
    uint64_t at = 0;
    look_at_tables(s, b);
    note(s, " write %u/%u", group, layer);
    for (uint32_t row = 0; row < b->num; ++row) {
        const bool part = b->status[row] == PKV_OK;
        model_table *t = &s->m->tables[part ? b->index[row] : 0];
        if (part && b->num_new[row] > 0 && model_tail_shared(s->m, t) != 0)
            expected = PKV_ERR_STATE; /* forked in the step */
        if (part) extend(s, &t->sequence, b->begin[row] + b->num_new[row]);
        for (uint64_t i = 0; i < b->num_new[row]; ++i)
            s->row_tags[at++] = part ? t->sequence.tags[b->begin[row] + i] : next_random(&s->random) | 1;
    }
    if (!s->m->groups[group].bytes) expected = PKV_ERR_UNSUPPORTED;
    pkv_tensor tensors[2];
    make_rows(s, group, layer, b->total, true, tensors);
    same_status(s, pkv_batch_write(s->batch, group, layer, &tensors[0], v_of(s, group, tensors), NULL), expected,
                "batch_write");
    at = 0;
    for (uint32_t row = 0; row < b->num && expected == PKV_OK; at += b->num_new[row++])
        if (b->status[row] == PKV_OK)
            same_status(s, PKV_OK,
                        model_write(s->m, &s->m->tables[b->index[row]], group, layer, b->begin[row], b->num_new[row],
                                    s->row_tags + at),
                        "the model's write");
}

/* A row of padding must be zero; it is filled in, so that the comparison of all rows finds what it expects. */
static void take_zero_row(shadow *s, uint32_t group, uint32_t layer, uint64_t at, uint32_t table) {
    const shadow_group *g = &s->groups[group];
    s->row_tags[at] = 1;
    for (int side = 0; side < 2; ++side) {
        const uint64_t bytes = g->row_bytes[side];
        uint8_t *row = s->rows[side] + at * g->heads * bytes;
        for (uint64_t i = 0; i < g->heads * bytes; ++i)
            if (row[i] != 0) mismatch(s, "batch_gather: padding behind row %u is not zero", table);
        for (uint64_t head = 0; head < g->heads; ++head)
            model_row(row + head * bytes, bytes, 1, group * model_layers + layer, side, head);
    }
}

static void batch_gather(shadow *s, batch_step *b) {
    const uint32_t group = any_group(s);
    const uint32_t layer = (uint32_t)below(s, model_layers);
    uint64_t first[batch_rows + 1];
    uint64_t longest = 0;
    uint64_t total = 0;
    look_at_tables(s, b);
    for (uint32_t row = 0; row < b->num; ++row) {
        first[row] = below(s, live_length(b, row) + 1);
        if (live_length(b, row) - first[row] > longest) longest = live_length(b, row) - first[row];
        total += live_length(b, row) - first[row];
    }
    const uint64_t padded = percent(s, 50) ? longest + below(s, 3) : 0;
    if (padded != 0) total = padded * b->num;
    if (total > s->max_rows) return;
    pkv_status expected = s->m->groups[group].bytes ? PKV_OK : PKV_ERR_UNSUPPORTED;
    for (uint32_t row = 0; row < b->num && expected == PKV_OK; ++row)
        if (live_length(b, row) > first[row])
            expected = model_readable(s->m, &s->m->tables[b->index[row]], group, layer, first[row],
                                      live_length(b, row) - first[row]);
    pkv_tensor tensors[2];
    make_rows(s, group, layer, total, false, tensors);
    note(s, " gather %u/%u, padded %" PRIu64, group, layer, padded);
    same_status(s, pkv_batch_gather(s->batch, group, layer, first, padded, &tensors[0], v_of(s, group, tensors), NULL),
                expected, "batch_gather");
    if (expected != PKV_OK) return;
    uint64_t at = 0;
    for (uint32_t row = 0; row < b->num; ++row) {
        for (uint64_t position = first[row]; position < live_length(b, row); ++position)
            s->row_tags[at++] = model_row_tag(s->m, &s->m->tables[b->index[row]], group, layer, position);
        for (; padded != 0 && at < (row + 1) * padded; ++at) take_zero_row(s, group, layer, at, row);
    }
    check_gathered(s, group, layer, total, "batch_gather");
}

/* ---- commit ---- */

/* Tables that were destroyed inside the step go when it lets go of them. */
static void end_destroyed(shadow *s, batch_step *b) {
    for (uint32_t row = 0; row < b->num; ++row)
        if (b->destroyed[row]) model_table_destroy(s->m, &s->m->tables[b->index[row]]);
}

/* Whether all layers hold the KV of a table up to a token. */
static bool rows_complete(shadow *s, int index, uint64_t end) {
    const model_table *t = &s->m->tables[index];
    for (uint32_t group = 0; group < s->m->num_groups; ++group)
        for (uint32_t layer = 0; s->m->groups[group].bytes && layer < model_layers; ++layer)
            for (uint64_t i = t->committed; i < end; ++i)
                if (i >= t->sequence.num_tokens || model_row_tag(s->m, t, group, layer, i) != t->sequence.tags[i])
                    return false;
    return true;
}

static void batch_commit(shadow *s, batch_step *b) {
    uint32_t accepted[batch_rows + 1];
    pkv_status got[batch_rows + 1];
    bool all = percent(s, 50);
    for (uint32_t row = 0; row < b->num; ++row) all = all && !b->destroyed[row];
    look_at_tables(s, b);
    note(s, " commit");
    if (b->num > 0 && percent(s, 5)) {
        for (uint32_t row = 0; row < b->num; ++row) accepted[row] = b->num_new[row] + (row + 1 == b->num);
        same_status(s, pkv_batch_commit(s->batch, accepted, got, NULL), PKV_ERR_INVALID, "batch_commit of too many");
    }
    for (uint32_t row = 0; row < b->num; ++row) {
        accepted[row] = all ? b->num_new[row] : (uint32_t)below(s, b->num_new[row] + 1);
        note(s, " %u", accepted[row]);
        if (b->status[row] != PKV_OK) continue;
        const model_table *t = &s->m->tables[b->index[row]];
        if (!b->destroyed[row] && t->num_copies > 0 && percent(s, 80)) take_copies(s, b->index[row]);
        if (model_tail_shared(s->m, t) != 0) continue;
        if (b->destroyed[row]) /* nobody can write its rows any more: only what is there already may be committed */
            while (accepted[row] > 0 && !rows_complete(s, b->index[row], b->begin[row] + accepted[row]))
                --accepted[row];
        else
            complete_rows(s, b->index[row], b->begin[row] + accepted[row]);
    }
    const bool each = percent(s, 70);
    const pkv_status status = pkv_batch_commit(s->batch, all ? NULL : accepted, each ? got : NULL, NULL);
    for (uint32_t row = 0; row < b->num; ++row) {
        if (b->status[row] != PKV_OK) continue;
        model_table *t = &s->m->tables[b->index[row]];
        const uint64_t end = b->begin[row] + accepted[row];
        b->status[row] = model_commit(s->m, t, end);
        if (b->status[row] == PKV_OK && accepted[row] < b->num_new[row]) b->status[row] = model_truncate(s->m, t, end);
    }
    same_statuses(s, b, status, each ? got : NULL, "batch_commit");
    end_destroyed(s, b);
}

static void step_batch(shadow *s) {
    batch_step b;
    if (!batch_reserve(s, &b)) {
        same_status(s, pkv_batch_commit(s->batch, NULL, NULL, NULL), PKV_ERR_STATE, "batch_commit outside a step");
        return;
    }
    if (percent(s, 10)) evict_some(s);
    if (percent(s, 12) && b.num > 0) change_inside(s, &b);
    if (percent(s, 5)) refuse_reserve(s, &b);
    if (percent(s, 85)) batch_set_tokens(s, &b);
    if (percent(s, 6) && b.num > 0) change_inside(s, &b);
    for (uint32_t group = 0; group < s->m->num_groups; ++group)
        for (uint32_t layer = 0; layer < model_layers; ++layer)
            if (percent(s, 90)) batch_write(s, &b, group, layer);
    if (percent(s, 30)) batch_gather(s, &b);
    if (percent(s, 95)) {
        batch_commit(s, &b);
        return;
    }
    note(s, " abandoned");
    assert_ok(pkv_batch_reserve(s->batch, 0, NULL, NULL, NULL));
    end_destroyed(s, &b);
    b.num = 0;
    check_arrays(s, &b);
    assert_ok(pkv_batch_commit(s->batch, NULL, NULL, NULL));
}

#endif
