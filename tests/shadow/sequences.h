/* SPDX-License-Identifier: Apache-2.0 */
/* Random prompts and tables of the shadow-model test: each operation asks the model first, then the library. */
#ifndef PKV_TESTS_SEQUENCES_H
#define PKV_TESTS_SEQUENCES_H

#include "shadow/shadow.h"

/* Makes a sequence longer. Few kinds of blocks, which differ in their first or last token only: prefixes meet often. */
static void extend(shadow *s, model_prompt *sequence, uint64_t num_tokens) {
    const uint32_t page_tokens = s->m->page_tokens;
    assert_true(num_tokens <= model_max_tokens);
    uint64_t kind = below(s, 3);
    for (uint64_t i = sequence->num_tokens; i < num_tokens; ++i) {
        if (i % page_tokens == 0) kind = below(s, 3);
        sequence->tokens[i] = kind == 1 && i % page_tokens == page_tokens - 1 ? 6
                              : kind == 2 && i % page_tokens == 0             ? -7
                                                                              : 5;
    }
    if (num_tokens > sequence->num_tokens) sequence->num_tokens = num_tokens;
    model_tag(sequence);
}

static uint64_t random_length(shadow *s) {
    const uint64_t page_tokens = s->m->page_tokens;
    const uint64_t length = below(s, s->max_tokens + 1);
    return percent(s, 40) ? length / page_tokens * page_tokens : length;
}

/* A table in the wanted state, or any when there is none; -1: there are no tables. */
static int pick_table(shadow *s, bool admitted) {
    const int start = (int)below(s, (uint64_t)s->max_tables);
    int any = -1;
    for (int i = 0; i < s->max_tables; ++i) {
        const int index = (start + i) % s->max_tables;
        const model_table *t = &s->m->tables[index];
        if (!t->alive) continue;
        if (t->admitted == admitted) return index;
        any = index;
    }
    return any;
}

static void random_prompt(shadow *s, model_prompt *prompt) {
    const int like = percent(s, 40) ? pick_table(s, true) : -1;
    prompt->num_tokens = 0;
    prompt->num_media = 0;
    prompt->ns = percent(s, 60) ? 0 : (int)below(s, num_namespaces);
    if (like >= 0) { /* begins as another sequence, in the same namespace mostly */
        const model_prompt *other = &s->m->tables[like].sequence;
        const uint64_t length = percent(s, 50) ? other->num_tokens : below(s, other->num_tokens + 1);
        const int ns = prompt->ns;
        *prompt = *other;
        if (percent(s, 10)) prompt->ns = ns;
        prompt->num_tokens = length;
        while (prompt->num_media > 0 && prompt->media[prompt->num_media - 1].position >= length) --prompt->num_media;
        if (percent(s, 50)) extend(s, prompt, length);
    }
    if (like < 0 || percent(s, 60)) {
        const uint64_t length = random_length(s);
        if (length > prompt->num_tokens) extend(s, prompt, length);
    }
    if (prompt->num_tokens > 0 && percent(s, 30)) {
        const uint64_t places[] = {0, s->m->page_tokens - 1, s->m->page_tokens, below(s, prompt->num_tokens)};
        uint64_t position = places[below(s, 4)];
        for (int i = 0; i < 2 && prompt->num_media < model_max_media && position < prompt->num_tokens; ++i) {
            if (prompt->num_media > 0 && prompt->media[prompt->num_media - 1].position >= position) break;
            prompt->media[prompt->num_media++] = (model_media){position, 1 + below(s, 2), (int)below(s, num_digests)};
            position += below(s, 2 * s->m->page_tokens);
            if (percent(s, 60)) break;
        }
    }
    model_tag(prompt);
    note(s, " ns %d, %" PRIu64 " tokens, %d media", prompt->ns, prompt->num_tokens, prompt->num_media);
}

static uint64_t random_max_match(shadow *s, uint64_t num_tokens) {
    const uint64_t choices[] = {0, PKV_MATCH_ALL, PKV_MATCH_ALL, below(s, num_tokens + 3)};
    const uint64_t chosen = choices[below(s, 4)];
    note(s, ", max_match %" PRId64, (int64_t)chosen);
    return chosen;
}

/* ---- tables ---- */

static int free_table_slot(const shadow *s) {
    for (int i = 0; i < s->max_tables; ++i)
        if (!s->m->tables[i].alive) return i;
    return -1;
}

static void create_table(shadow *s) {
    const int index = free_table_slot(s);
    note(s, "create table %d", index);
    if (index < 0) return;
    assert_ok(pkv_table_create(s->pool, &s->tables[index]));
    s->m->tables[index].alive = true;
    s->m->tables[index].copy_source = PKV_NO_PAGE;
}

static void clear_table(shadow *s, int index);

static void admit_table(shadow *s) {
    const int index = pick_table(s, percent(s, 3));
    if (index < 0 || (s->m->tables[index].admitted && percent(s, 90))) { /* none is empty: make room for one */
        if (free_table_slot(s) >= 0)
            create_table(s);
        else
            clear_table(s, index);
        return;
    }
    static model_prompt prompt;
    api_prompt api;
    note(s, "admit table %d", index);
    random_prompt(s, &prompt);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.max_match = random_max_match(s, prompt.num_tokens);
    if (percent(s, 30))
        options.reserve_tokens = 1 + below(s, percent(s, 80) ? 3 * s->m->page_tokens : s->max_tokens * 4);
    if (percent(s, 2)) options.reserve_tokens = (UINT64_C(1) << 40) + 1;
    if (percent(s, 20)) options.watermark = below(s, s->m->num_pages + 2);
    if (percent(s, 10)) options.flags |= PKV_ADMIT_NO_MATCH;
    if (percent(s, 10)) options.flags |= PKV_ADMIT_RETRY;
    note(s, ", reserve %" PRIu64 ", watermark %" PRIu64 ", flags %u", options.reserve_tokens, options.watermark,
         options.flags);
    const bool defaults = percent(s, 20);
    if (defaults) options = (pkv_admit_options)PKV_ADMIT_OPTIONS_INIT;
    uint64_t blocks = 0;
    pkv_match match = PKV_MATCH_INIT;
    const pkv_status expected = model_admit(s->m, &s->m->tables[index], &prompt, &options, &blocks);
    const pkv_status got = pkv_table_admit(s->tables[index], to_api(&prompt, &api), defaults ? NULL : &options, &match);
    same_status(s, got, expected, "admit");
    same_number(s, match.blocks, blocks, "blocks matched");
    same_number(s, match.tokens, blocks * s->m->page_tokens, "tokens matched");
    note(s, " -> %" PRIu64 " matched", blocks);
}

static void reserve_table(shadow *s, int index, uint64_t num_tokens) {
    note(s, "reserve table %d for %" PRIu64, index, num_tokens);
    const pkv_status expected = model_reserve(s->m, &s->m->tables[index], num_tokens);
    same_status(s, pkv_table_reserve(s->tables[index], num_tokens), expected, "reserve");
}

static void reserve_some(shadow *s, int index) {
    const model_table *t = &s->m->tables[index];
    uint64_t num_tokens = t->committed + below(s, 2 * s->m->page_tokens + 1);
    if (percent(s, 10)) num_tokens = below(s, s->max_tokens * 2);
    if (percent(s, 3)) num_tokens = s->m->num_pages * s->m->page_tokens + 1 + below(s, 1000);
    if (percent(s, 1)) num_tokens = (UINT64_C(1) << 40) + 1 + below(s, 2) * (UINT64_MAX / 2);
    reserve_table(s, index, num_tokens);
}

/* Names tokens: as the sequence goes on, or others where that is still allowed, or wrongly. */
static void name_tokens(shadow *s, int index) {
    model_table *t = &s->m->tables[index];
    static model_prompt named;
    uint64_t position = t->named;
    if (percent(s, 30)) position = below(s, t->named + 1);
    if (percent(s, 3)) position += 1 + below(s, 3);
    uint64_t num_tokens = below(s, 2 * s->m->page_tokens + 2);
    if (percent(s, 30) && t->committed > position) num_tokens = t->committed - position;
    if (position >= s->max_tokens) return;
    if (num_tokens > s->max_tokens - position) num_tokens = s->max_tokens - position;
    named = t->sequence;
    extend(s, &named, position + num_tokens);
    if (num_tokens > 0 && percent(s, 25)) {
        const uint64_t change = position + below(s, num_tokens);
        if (change >= t->committed || change < t->named) named.tokens[change] = percent(s, 50) ? 6 : 8;
    }
    note(s, "set_tokens of table %d, %" PRIu64 " + %" PRIu64, index, position, num_tokens);
    const pkv_status expected = model_set_tokens(s->m, t, position, num_tokens, named.tokens + position);
    const pkv_status got = pkv_table_set_tokens(s->tables[index], position, num_tokens, named.tokens + position);
    same_status(s, got, expected, "set_tokens");
}

static void write_range(shadow *s, int index, uint32_t layer, uint64_t position, uint64_t num_tokens) {
    model_table *t = &s->m->tables[index];
    pkv_tensor tensors[2];
    if (t->sequence.num_tokens < position + num_tokens) extend(s, &t->sequence, position + num_tokens);
    memcpy(s->row_tags, t->sequence.tags + position, num_tokens * sizeof *s->row_tags);
    make_rows(s, layer, num_tokens, true, tensors);
    note(s, " [write table %d layer %u %" PRIu64 " + %" PRIu64, index, layer, position, num_tokens);
    const pkv_status expected = model_write(s->m, t, layer, position, num_tokens);
    same_status(s,
                pkv_table_write(s->tables[index], 0, layer, position, num_tokens, &tensors[0],
                                s->row_bytes[1] > 0 ? &tensors[1] : NULL, NULL),
                expected, "write");
    note(s, "]");
}

/* Ids only: the copy on write that this table waits for, once. */
static void take_copies(shadow *s, int index) {
    model_table *t = &s->m->tables[index];
    pkv_page_copy copy = {9, 9, 9};
    uint64_t count = 9;
    note(s, " take_copies of table %d", index);
    assert_ok(pkv_table_take_copies(s->tables[index], &copy, 1, &count));
    same_number(s, count, t->copy_waits, "copies to make");
    if (count == 0) return;
    same_pages(s, &copy.src, &t->copy_source, 1, "source of a copy");
    same_pages(s, &copy.dst, &t->copy_target, 1, "target of a copy");
    t->copy_waits = false;
}

static void write_some(shadow *s, int index) {
    const model_table *t = &s->m->tables[index];
    const uint64_t reserved = model_reserved(s->m, t);
    const uint64_t room = reserved - t->committed;
    uint64_t position = t->committed + (percent(s, 70) ? 0 : below(s, room + 1));
    uint64_t num_tokens = below(s, reserved > position ? reserved - position + 1 : 1);
    if (percent(s, 5) && position > 0) position -= 1 + below(s, position);
    if (percent(s, 3)) num_tokens = reserved - position + 1;
    if (num_tokens > 2 * s->m->page_tokens) num_tokens = 1 + below(s, 2 * s->m->page_tokens);
    if (position > s->max_tokens || num_tokens > s->max_tokens - position) return;
    write_range(s, index, (uint32_t)below(s, model_layers), position, num_tokens);
}

/* One row by way of slots(): through pkv_pool_write, or as an engine's kernel does it. */
static void write_slot(shadow *s, int index, uint32_t layer, uint64_t position) {
    model_table *t = &s->m->tables[index];
    pkv_slot slot = 0;
    pkv_slot expected_slot = 0;
    const pkv_status expected = model_slots(s->m, t, position, 1, &expected_slot);
    same_status(s, pkv_table_slots(s->tables[index], 0, position, 1, &slot), expected, "slots");
    same_number(s, (uint64_t)slot, (uint64_t)expected_slot, "slot");
    const pkv_page page = (pkv_page)(slot / s->m->page_tokens);
    const uint64_t offset = (uint64_t)slot % s->m->page_tokens;
    const uint64_t tag = model_tags(s->m, page, layer)[offset] = t->sequence.tags[position];
    if (percent(s, 50)) {
        pkv_tensor tensors[2];
        s->row_tags[0] = tag;
        make_rows(s, layer, 1, true, tensors);
        assert_ok(
            pkv_pool_write(s->pool, 0, layer, 1, &slot, &tensors[0], s->row_bytes[1] > 0 ? &tensors[1] : NULL, NULL));
        return;
    }
    for (int side = 0; side < 2; ++side)
        for (uint64_t head = 0; head < s->heads && s->row_bytes[side] > 0; ++head)
            model_row(row_address(s, layer, side, page, offset, head), s->row_bytes[side], tag, layer, side, head);
}

/* Puts the right KV where it is missing in [committed, end); the tail is private. */
static void complete_rows(shadow *s, int index, uint64_t end) {
    model_table *t = &s->m->tables[index];
    if (t->sequence.num_tokens < end) extend(s, &t->sequence, end);
    if (!s->m->bytes) return;
    const bool by_slots = percent(s, 15);
    for (uint32_t layer = 0; layer < model_layers; ++layer)
        for (uint64_t begin = t->committed; begin < end;) {
            if (model_row_tag(s->m, t, layer, begin) == t->sequence.tags[begin]) {
                ++begin;
                continue;
            }
            const uint64_t limit = percent(s, 50) ? end : begin + 1 + below(s, s->m->page_tokens);
            uint64_t stop = begin + 1;
            while (stop < end && stop < limit && stop - begin < s->max_rows) ++stop;
            if (by_slots)
                for (uint64_t i = begin; i < stop; ++i) write_slot(s, index, layer, i);
            else
                write_range(s, index, layer, begin, stop - begin);
            begin = stop;
        }
}

static void commit_table(shadow *s, int index, uint64_t end) {
    model_table *t = &s->m->tables[index];
    if (t->admitted && end > t->committed && end <= model_reserved(s->m, t) && !model_tail_shared(s->m, t)) {
        if (end > s->max_tokens) end = t->committed > s->max_tokens ? t->committed : s->max_tokens;
        complete_rows(s, index, end);
    }
    if (t->copy_waits && percent(s, 80)) take_copies(s, index);
    note(s, " commit table %d to %" PRIu64, index, end);
    const pkv_status expected = model_commit(s->m, t, end);
    same_status(s, pkv_table_commit(s->tables[index], end, NULL), expected, "commit");
}

static void commit_some(shadow *s, int index) {
    const model_table *t = &s->m->tables[index];
    const uint64_t reserved = model_reserved(s->m, t);
    uint64_t end = percent(s, 40) ? reserved : t->committed + below(s, reserved - t->committed + 1);
    if (percent(s, 4)) end = reserved + 1 + below(s, 9);
    if (percent(s, 4) && t->committed > 0) end = below(s, t->committed);
    commit_table(s, index, end);
}

/* A chunk of prefill or a step of decoding. */
static void advance(shadow *s, int index) {
    model_table *t = &s->m->tables[index];
    uint64_t end = t->committed + 1 + below(s, 2 * s->m->page_tokens);
    if (end > s->max_tokens) end = s->max_tokens;
    if (!t->admitted || end <= t->committed) return;
    reserve_table(s, index, end);
    if (model_reserved(s->m, t) < end || model_tail_shared(s->m, t)) return;
    if (t->copy_waits) take_copies(s, index);
    const bool name_first = percent(s, 50);
    for (int i = 0; i < 2; ++i) {
        if ((i == 0) != name_first) {
            commit_table(s, index, end);
        } else if (t->named < end && percent(s, 90)) {
            if (t->sequence.num_tokens < end) extend(s, &t->sequence, end);
            const uint64_t position = t->named;
            const pkv_token *tokens = t->sequence.tokens + position;
            const pkv_status expected = model_set_tokens(s->m, t, position, end - position, tokens);
            same_status(s, pkv_table_set_tokens(s->tables[index], position, end - position, tokens), expected,
                        "set_tokens");
        }
    }
}

static void gather_some(shadow *s, int index) {
    const model_table *t = &s->m->tables[index];
    const uint32_t layer = (uint32_t)below(s, model_layers);
    const uint64_t readable = t->written[layer];
    uint64_t position = below(s, readable + 1);
    uint64_t num_tokens = below(s, readable - position + 1);
    if (percent(s, 10)) num_tokens = readable - position + 1 + below(s, 3);
    if (num_tokens > s->max_rows) num_tokens = s->max_rows;
    pkv_tensor tensors[2];
    make_rows(s, layer, num_tokens, false, tensors);
    note(s, "gather table %d layer %u %" PRIu64 " + %" PRIu64, index, layer, position, num_tokens);
    const pkv_status expected = model_readable(s->m, t, layer, position, num_tokens);
    same_status(s,
                pkv_table_gather(s->tables[index], 0, layer, position, num_tokens, &tensors[0],
                                 s->row_bytes[1] > 0 ? &tensors[1] : NULL, NULL),
                expected, "gather");
    if (expected != PKV_OK) return;
    for (uint64_t i = 0; i < num_tokens; ++i) s->row_tags[i] = model_row_tag(s->m, t, layer, position + i);
    check_gathered(s, layer, num_tokens, "gather");
}

static int fork_table(shadow *s, int index) {
    const int twin = free_table_slot(s);
    if (twin < 0) return -1;
    note(s, "fork table %d to %d", index, twin);
    if (s->m->tables[index].copy_waits && percent(s, 80)) take_copies(s, index);
    const pkv_status expected = model_fork(s->m, &s->m->tables[index], &s->m->tables[twin]);
    same_status(s, pkv_table_fork(s->tables[index], NULL, &s->tables[twin]), expected, "fork");
    return twin;
}

static void truncate_table(shadow *s, int index) {
    const uint64_t num_tokens = below(s, model_reserved(s->m, &s->m->tables[index]) + 3);
    note(s, "truncate table %d to %" PRIu64, index, num_tokens);
    const pkv_status expected = model_truncate(s->m, &s->m->tables[index], num_tokens);
    same_status(s, pkv_table_truncate(s->tables[index], num_tokens, NULL), expected, "truncate");
}

static void clear_table(shadow *s, int index) {
    note(s, "clear table %d", index);
    model_table_clear(s->m, &s->m->tables[index]);
    assert_ok(pkv_table_clear(s->tables[index], NULL));
}

static void destroy_table(shadow *s, int index) {
    note(s, "destroy table %d", index);
    model_table_destroy(s->m, &s->m->tables[index]);
    assert_ok(pkv_table_destroy(s->tables[index], NULL));
}

static void slots_of_table(shadow *s, int index) {
    const uint64_t reserved = model_reserved(s->m, &s->m->tables[index]);
    const uint64_t position = below(s, reserved + 2);
    uint64_t num_tokens = below(s, (reserved > position ? reserved - position : 0) + 2);
    if (num_tokens > 64) num_tokens = 64;
    pkv_slot got[64] = {0};
    pkv_slot expected_slots[64] = {0};
    note(s, "slots of table %d, %" PRIu64 " + %" PRIu64, index, position, num_tokens);
    const pkv_status expected = model_slots(s->m, &s->m->tables[index], position, num_tokens, expected_slots);
    same_status(s, pkv_table_slots(s->tables[index], 0, position, num_tokens, got), expected, "slots");
    for (uint64_t i = 0; i < num_tokens; ++i) same_number(s, (uint64_t)got[i], (uint64_t)expected_slots[i], "slot");
}

#endif
