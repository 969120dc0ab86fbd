/* SPDX-License-Identifier: Apache-2.0 */
/* One step of the shadow-model test's batch: several tables together, with the caller's arrays. */
#ifndef PKV_TESTS_BATCH_STEP_H
#define PKV_TESTS_BATCH_STEP_H

#include "shadow/pages.h"

enum { batch_fill = -7 };

typedef struct {
    uint32_t num;
    int index[batch_rows + 1];
    uint32_t num_new[batch_rows + 1];
    uint64_t begin[batch_rows + 1];
    uint64_t total; /* new tokens, failed rows included */
    pkv_status status[batch_rows + 1];
    bool empty[batch_rows + 1]; /* failed at reserve */
} batch_step;

static void make_batch(shadow *s) {
    s->batch_tokens = 2 * (s->m->page_tokens + 2);
    s->batch_blocks = s->m->num_pages + 64; /* more than a step can get */
    s->block_table = calloc(batch_rows * s->batch_blocks, sizeof *s->block_table);
    s->block_indices = calloc(batch_rows * s->batch_blocks, sizeof *s->block_indices);
    s->slot_mapping = calloc(s->batch_tokens, sizeof *s->slot_mapping);
    pkv_batch_arrays arrays = PKV_BATCH_ARRAYS_INIT;
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.num_arrays = 1;
    options.arrays = &arrays;
    options.max_tables = batch_rows;
    options.max_tokens = s->batch_tokens;
    arrays.max_blocks = s->batch_blocks;
    arrays.max_indices = batch_rows * s->batch_blocks;
    arrays.block_table = s->block_table;
    arrays.block_indptr = s->block_indptr;
    arrays.block_indices = s->block_indices;
    options.last_page_len = s->last_page_len;
    options.lengths = s->lengths;
    arrays.slot_mapping = s->slot_mapping;
    arrays.fill = batch_fill;
    assert_ok(pkv_batch_create(s->pool, &options, &s->batch));
}

static void end_batch(shadow *s) {
    assert_ok(pkv_batch_destroy(s->batch));
    free(s->block_table);
    free(s->block_indices);
    free(s->slot_mapping);
}

static uint64_t row_length(const batch_step *b, uint32_t row) {
    return b->empty[row] ? 0 : b->begin[row] + b->num_new[row];
}

/* What a gather takes of a row: nothing once it failed. */
static uint64_t live_length(const batch_step *b, uint32_t row) {
    return b->status[row] == PKV_OK ? row_length(b, row) : 0;
}

static void check_arrays(shadow *s, const batch_step *b, uint32_t num_rows) {
    const uint64_t page_tokens = s->m->page_tokens;
    uint64_t indices = 0;
    uint64_t slots = 0;
    for (uint32_t row = 0; row < batch_rows; ++row) {
        const bool there = row < num_rows;
        const uint64_t length = there ? row_length(b, row) : 0;
        const uint64_t blocks = (length + page_tokens - 1) / page_tokens;
        const model_table *t = there ? &s->m->tables[b->index[row]] : NULL;
        same_number(s, (uint64_t)s->lengths[row], length, "lengths[]");
        same_number(s, (uint64_t)s->last_page_len[row], length == 0 ? 0 : (length - 1) % page_tokens + 1,
                    "last_page_len[]");
        same_number(s, (uint64_t)s->block_indptr[row], indices, "block_indptr[]");
        for (uint64_t i = 0; i < s->batch_blocks; ++i)
            same_number(s, (uint64_t)s->block_table[row * s->batch_blocks + i],
                        (uint64_t)(i < blocks ? t->pages[i] : batch_fill), "block_table[]");
        for (uint64_t i = 0; i < blocks; ++i)
            same_number(s, (uint64_t)s->block_indices[indices + i], (uint64_t)t->pages[i], "block_indices[]");
        indices += blocks;
        for (uint64_t i = 0; there && i < b->num_new[row]; ++i) {
            const uint64_t position = b->begin[row] + i;
            const pkv_slot slot = b->empty[row] ? PKV_NO_SLOT
                                                : (pkv_slot)t->pages[position / page_tokens] * (pkv_slot)page_tokens +
                                                      (pkv_slot)(position % page_tokens);
            same_number(s, (uint64_t)s->slot_mapping[slots++], (uint64_t)slot, "slot_mapping[]");
        }
    }
    same_number(s, (uint64_t)s->block_indptr[batch_rows], indices, "block_indptr[], last");
    for (; slots < s->batch_tokens; ++slots)
        same_number(s, (uint64_t)s->slot_mapping[slots], (uint64_t)PKV_NO_SLOT, "slot_mapping[], padding");
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

/* A digest of all arrays, to see that a refused call leaves them alone. */
static uint64_t arrays_digest(const shadow *s) {
    uint64_t digest = 0;
    for (uint64_t i = 0; i < batch_rows * s->batch_blocks; ++i)
        digest = digest * 31 + (uint64_t)s->block_table[i] * 7 + (uint64_t)s->block_indices[i];
    for (uint64_t i = 0; i < s->batch_tokens; ++i) digest = digest * 31 + (uint64_t)s->slot_mapping[i];
    for (int row = 0; row < batch_rows; ++row)
        digest = digest * 31 + (uint64_t)(s->lengths[row] * 7 + s->last_page_len[row] * 5 + s->block_indptr[row]);
    return digest * 31 + (uint64_t)s->block_indptr[batch_rows];
}

/* False: the step did not begin. */
static bool batch_reserve(shadow *s, batch_step *b) {
    pkv_table *tables[batch_rows + 1] = {NULL};
    pkv_status got[batch_rows + 1];
    bool twice = false;
    note(s, "batch:");
    b->num = 0;
    b->total = 0;
    for (uint64_t wanted = below(s, batch_rows + 1); b->num < wanted; ++b->num) {
        const int index = pick_table(s, percent(s, 95));
        if (index < 0) break;
        bool listed = false;
        for (uint32_t row = 0; row < b->num; ++row) listed = listed || b->index[row] == index;
        if (listed && !percent(s, 3)) break;
        twice = twice || listed;
        const model_table *t = &s->m->tables[index];
        uint64_t num_new = below(s, percent(s, 70) ? 3 : s->m->page_tokens + 3);
        if (t->committed + num_new > s->max_tokens) num_new = 0;
        b->index[b->num] = index;
        b->begin[b->num] = t->committed;
        b->num_new[b->num] = (uint32_t)num_new;
        b->total += num_new;
        tables[b->num] = s->tables[index];
        note(s, " %d+%" PRIu64, index, num_new);
    }
    const bool whole = twice || b->total > s->batch_tokens;
    for (uint32_t row = 0; row < b->num && !whole; ++row) {
        model_table *t = &s->m->tables[b->index[row]];
        b->status[row] = model_reserve(s->m, t, b->begin[row] + b->num_new[row]);
        b->empty[row] = b->status[row] != PKV_OK;
    }
    const bool each = percent(s, 70);
    const uint64_t before = arrays_digest(s);
    const pkv_status status = pkv_batch_reserve(s->batch, b->num, tables, b->num_new, each ? got : NULL);
    if (whole) {
        same_status(s, status, twice ? PKV_ERR_INVALID : PKV_ERR_LIMIT, "batch_reserve");
        same_number(s, arrays_digest(s), before, "the arrays after a refused step");
        return false;
    }
    same_statuses(s, b, status, each ? got : NULL, "batch_reserve");
    check_arrays(s, b, b->num);
    return true;
}

static void batch_set_tokens(shadow *s, batch_step *b) {
    static model_prompt sequence;
    pkv_token *tokens = calloc(b->total + 1, sizeof *tokens);
    pkv_status got[batch_rows + 1];
    uint64_t at = 0;
    look_at_tables(s, b);
    note(s, " set_tokens");
    if (percent(s, 5))
        same_status(s, pkv_batch_set_tokens(s->batch, b->total + 1, tokens, got), PKV_ERR_INVALID, "batch_set_tokens");
    for (uint32_t row = 0; row < b->num; ++row) {
        model_table *t = &s->m->tables[b->index[row]];
        const uint64_t num_new = b->num_new[row];
        if (b->status[row] == PKV_OK) {
            sequence = t->sequence;
            extend(s, &sequence, b->begin[row] + num_new);
            if (num_new > 0 && percent(s, 20)) sequence.tokens[b->begin[row] + below(s, num_new)] = 6;
            memcpy(tokens + at, sequence.tokens + b->begin[row], num_new * sizeof *tokens);
            b->status[row] = model_set_tokens(s->m, t, b->begin[row], num_new, tokens + at);
        }
        at += num_new;
    }
    const bool each = percent(s, 70);
    same_statuses(s, b, pkv_batch_set_tokens(s->batch, b->total, tokens, each ? got : NULL), each ? got : NULL,
                  "batch_set_tokens");
    free(tokens);
}

static void batch_write(shadow *s, batch_step *b, uint32_t layer) {
    pkv_status expected = PKV_OK;
    uint64_t at = 0;
    look_at_tables(s, b);
    note(s, " write %u", layer);
    for (uint32_t row = 0; row < b->num; ++row) {
        model_table *t = &s->m->tables[b->index[row]];
        const bool part = b->status[row] == PKV_OK;
        if (part && b->num_new[row] > 0 && model_tail_shared(s->m, t))
            expected = PKV_ERR_STATE; /* forked in the step */
        if (part) extend(s, &t->sequence, b->begin[row] + b->num_new[row]);
        for (uint64_t i = 0; i < b->num_new[row]; ++i)
            s->row_tags[at++] = part ? t->sequence.tags[b->begin[row] + i] : next_random(&s->random) | 1;
    }
    if (!s->m->bytes) expected = PKV_ERR_UNSUPPORTED;
    pkv_tensor tensors[2];
    make_rows(s, layer, b->total, true, tensors);
    same_status(s, pkv_batch_write(s->batch, 0, layer, &tensors[0], s->row_bytes[1] > 0 ? &tensors[1] : NULL, NULL),
                expected, "batch_write");
    for (uint32_t row = 0; row < b->num && expected == PKV_OK; ++row)
        if (b->status[row] == PKV_OK)
            same_status(s, PKV_OK,
                        model_write(s->m, &s->m->tables[b->index[row]], layer, b->begin[row], b->num_new[row]),
                        "the model's write");
}

/* A row of padding must be zero; it is filled in, so that the comparison of all rows finds what it expects. */
static void take_zero_row(shadow *s, uint32_t layer, uint64_t at, uint32_t table) {
    s->row_tags[at] = 1;
    for (int side = 0; side < 2; ++side) {
        const uint64_t bytes = s->row_bytes[side];
        uint8_t *row = s->rows[side] + at * s->heads * bytes;
        for (uint64_t i = 0; i < s->heads * bytes; ++i)
            if (row[i] != 0) mismatch(s, "batch_gather: padding behind row %u is not zero", table);
        for (uint64_t head = 0; head < s->heads; ++head) model_row(row + head * bytes, bytes, 1, layer, side, head);
    }
}

static void batch_gather(shadow *s, batch_step *b) {
    const uint32_t layer = (uint32_t)below(s, model_layers);
    uint64_t first[batch_rows + 1];
    look_at_tables(s, b);
    uint64_t longest = 0;
    uint64_t total = 0;
    for (uint32_t row = 0; row < b->num; ++row) {
        first[row] = b->status[row] == PKV_OK ? below(s, live_length(b, row) + 1) : 0;
        if (live_length(b, row) - first[row] > longest) longest = live_length(b, row) - first[row];
        total += live_length(b, row) - first[row];
    }
    const uint64_t padded = percent(s, 50) ? longest + below(s, 3) : 0;
    if (padded != 0) total = padded * b->num;
    if (total > s->max_rows) return;
    pkv_status expected = s->m->bytes ? PKV_OK : PKV_ERR_UNSUPPORTED;
    for (uint32_t row = 0; row < b->num && expected == PKV_OK; ++row)
        if (live_length(b, row) > first[row])
            expected =
                model_readable(s->m, &s->m->tables[b->index[row]], layer, first[row], live_length(b, row) - first[row]);
    pkv_tensor tensors[2];
    make_rows(s, layer, total, false, tensors);
    note(s, " gather %u, padded %" PRIu64, layer, padded);
    same_status(
        s,
        pkv_batch_gather(s->batch, 0, layer, first, padded, &tensors[0], s->row_bytes[1] > 0 ? &tensors[1] : NULL, NULL),
        expected, "batch_gather");
    if (expected != PKV_OK) return;
    uint64_t at = 0;
    for (uint32_t row = 0; row < b->num; ++row) {
        for (uint64_t position = first[row]; position < live_length(b, row); ++position)
            s->row_tags[at++] = model_row_tag(s->m, &s->m->tables[b->index[row]], layer, position);
        for (; padded != 0 && at < (row + 1) * padded; ++at) take_zero_row(s, layer, at, row);
    }
    check_gathered(s, layer, total, "batch_gather");
}

static void batch_commit(shadow *s, batch_step *b) {
    uint32_t accepted[batch_rows + 1];
    pkv_status got[batch_rows + 1];
    const bool all = percent(s, 50);
    look_at_tables(s, b);
    note(s, " commit");
    if (b->num > 0 && percent(s, 5)) {
        for (uint32_t row = 0; row < b->num; ++row) accepted[row] = b->num_new[row] + (row + 1 == b->num);
        same_status(s, pkv_batch_commit(s->batch, accepted, got, NULL), PKV_ERR_INVALID, "batch_commit of too many");
    }
    for (uint32_t row = 0; row < b->num; ++row) {
        accepted[row] = all ? b->num_new[row] : (uint32_t)below(s, b->num_new[row] + 1);
        note(s, " %u", accepted[row]);
        model_table *t = &s->m->tables[b->index[row]];
        if (b->status[row] == PKV_OK && t->copy_waits && percent(s, 80)) take_copies(s, b->index[row]);
        if (b->status[row] == PKV_OK && !model_tail_shared(s->m, t))
            complete_rows(s, b->index[row], b->begin[row] + accepted[row]);
    }
    for (uint32_t row = 0; row < b->num; ++row) {
        if (b->status[row] != PKV_OK) continue;
        model_table *t = &s->m->tables[b->index[row]];
        const uint64_t end = b->begin[row] + accepted[row];
        b->status[row] = model_commit(s->m, t, end);
        if (b->status[row] == PKV_OK && accepted[row] < b->num_new[row])
            same_status(s, PKV_OK, model_truncate(s->m, t, end), "the model's truncate");
    }
    const bool each = percent(s, 70);
    same_statuses(s, b, pkv_batch_commit(s->batch, all ? NULL : accepted, each ? got : NULL, NULL), each ? got : NULL,
                  "batch_commit");
}

/* A call of a table's own while a step is under way. */
static void change_inside(shadow *s, int index) {
    if (!s->m->tables[index].admitted) return;
    switch (below(s, 4)) {
    case 0: commit_some(s, index); break;
    case 1: truncate_table(s, index); break;
    case 2: clear_table(s, index); break;
    default: reserve_some(s, index); break;
    }
}

/* A step that is refused as a whole, while another is under way: neither it nor the arrays change. */
static void refuse_reserve(shadow *s, const batch_step *b) {
    const uint64_t before = arrays_digest(s);
    pkv_table *twice[2] = {b->num > 0 ? s->tables[b->index[0]] : NULL, b->num > 0 ? s->tables[b->index[0]] : NULL};
    const uint32_t num_new[2] = {b->num > 0 ? 0 : (uint32_t)s->batch_tokens + 1, 0};
    const pkv_status expected = b->num > 0 ? PKV_ERR_INVALID : PKV_ERR_LIMIT;
    note(s, " [refused reserve");
    same_status(s, pkv_batch_reserve(s->batch, 2, twice, num_new, NULL), expected, "batch_reserve");
    same_number(s, arrays_digest(s), before, "the arrays after a refused step");
    note(s, "]");
}

static void step_batch(shadow *s) {
    batch_step b;
    if (!batch_reserve(s, &b)) {
        same_status(s, pkv_batch_commit(s->batch, NULL, NULL, NULL), PKV_ERR_STATE, "batch_commit outside a step");
        return;
    }
    if (percent(s, 10)) evict_some(s);
    if (percent(s, 4) && b.num > 0 && s->m->tables[b.index[0]].admitted) fork_table(s, b.index[0]);
    if (percent(s, 6) && b.num > 0) change_inside(s, b.index[below(s, b.num)]);
    if (percent(s, 5)) refuse_reserve(s, &b);
    if (percent(s, 85)) batch_set_tokens(s, &b);
    for (uint32_t layer = 0; layer < model_layers; ++layer)
        if (percent(s, 90)) batch_write(s, &b, layer);
    if (percent(s, 30)) batch_gather(s, &b);
    if (percent(s, 95)) {
        batch_commit(s, &b);
    } else {
        note(s, " abandoned");
        assert_ok(pkv_batch_reserve(s->batch, 0, NULL, NULL, NULL));
        b.num = 0;
        check_arrays(s, &b, 0);
        assert_ok(pkv_batch_commit(s->batch, NULL, NULL, NULL));
    }
}

#endif
