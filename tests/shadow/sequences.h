/* SPDX-License-Identifier: Apache-2.0 */
/* Random prompts and tables of the shadow-model test: each operation asks the model first, then the library. */
#ifndef PKV_TESTS_SEQUENCES_H
#define PKV_TESTS_SEQUENCES_H

#include "shadow/compare.h"

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
    s->last_prompt = *prompt;
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
    model_table_create(&s->m->tables[index]);
}

static void clear_table(shadow *s, int index) {
    note(s, "clear table %d", index);
    assert_ok(pkv_table_clear(s->tables[index], NULL));
    model_table_clear(s->m, &s->m->tables[index]);
}

static void destroy_table(shadow *s, int index) {
    note(s, "destroy table %d", index);
    assert_ok(pkv_table_destroy(s->tables[index], NULL));
    model_table_destroy(s->m, &s->m->tables[index]);
}

/* What a table has got beyond its first blocks, and at `committed`, in the order in which pages were taken. */
static void hint_table(shadow *s, int index, uint64_t old_blocks) {
    const uint64_t tail = s->m->tables[index].committed / s->m->page_tokens;
    for (uint32_t group = 0; group < s->m->num_groups; ++group) {
        pkv_page pages[model_max_pages + 1];
        uint64_t num = 0;
        assert_ok(pkv_table_pages(s->tables[index], group, pages, model_max_pages + 1, &num));
        if (num > old_blocks) hint_pages(s, group, pages + old_blocks, num - old_blocks);
        if (tail < old_blocks && tail < num) hint_pages(s, group, pages + tail, 1);
    }
}

/* An empty table, or -1: then one is made, or room for one. */
static int empty_table(shadow *s) {
    const int index = pick_table(s, false);
    if (index >= 0 && !s->m->tables[index].admitted) return index;
    if (free_table_slot(s) >= 0)
        create_table(s);
    else if (index >= 0)
        clear_table(s, index);
    return -1;
}

static void admit_table(shadow *s) {
    int index = percent(s, 1) ? pick_table(s, true) : empty_table(s);
    if (index < 0) return;
    static model_prompt prompt;
    api_prompt api;
    note(s, "admit table %d", index);
    random_prompt(s, &prompt);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.max_match = random_max_match(s, prompt.num_tokens);
    if (percent(s, 30))
        options.reserve_tokens = 1 + below(s, percent(s, 80) ? 3 * s->m->page_tokens : s->max_tokens * 4);
    if (percent(s, 2)) options.reserve_tokens = (UINT64_C(1) << 40) + 1;
    if (percent(s, 20)) options.watermark = below(s, s->m->groups[0].num_pages + 2);
    if (percent(s, 10)) options.flags |= PKV_ADMIT_NO_MATCH;
    if (percent(s, 10)) options.flags |= PKV_ADMIT_RETRY;
    if (percent(s, 40)) options.flags |= PKV_ADMIT_PARTIAL;
    if (percent(s, 30)) options.flags |= PKV_ADMIT_SHARE;
    note(s, ", reserve %" PRIu64 ", watermark %" PRIu64 ", flags %u", options.reserve_tokens, options.watermark,
         options.flags);
    const bool defaults = percent(s, 20);
    if (defaults) options = (pkv_admit_options)PKV_ADMIT_OPTIONS_INIT;
    model_table *t = &s->m->tables[index];
    const bool before = t->admitted;
    pkv_match match = PKV_MATCH_INIT;
    const pkv_status got = pkv_table_admit(s->tables[index], to_api(&prompt, &api), defaults ? NULL : &options, &match);
    if (!before) hint_table(s, index, 0);
    same_status(s, got, model_admit(s->m, t, &prompt, &options), "admit");
    same_number(s, match.tokens, got == PKV_OK ? t->committed : 0, "tokens matched");
    same_number(s, match.blocks, got == PKV_OK ? model_blocks(s->m, t->committed) : 0, "blocks matched");
    note(s, " -> %" PRIu64 " matched", match.tokens);
}

static void reserve_table(shadow *s, int index, uint64_t num_tokens) {
    note(s, "reserve table %d for %" PRIu64, index, num_tokens);
    const uint64_t old_blocks = s->m->tables[index].num_blocks;
    const pkv_status got = pkv_table_reserve(s->tables[index], num_tokens);
    hint_table(s, index, old_blocks);
    same_status(s, got, model_reserve(s->m, &s->m->tables[index], num_tokens), "reserve");
}

static void reserve_some(shadow *s, int index) {
    const model_table *t = &s->m->tables[index];
    uint64_t num_tokens = t->committed + below(s, 2 * s->m->page_tokens + 1);
    if (percent(s, 10)) num_tokens = below(s, s->max_tokens * 2);
    if (percent(s, 3)) num_tokens = s->m->groups[0].num_pages * s->m->page_tokens + 1 + below(s, 1000);
    if (percent(s, 1)) num_tokens = (UINT64_C(1) << 40) + 1 + below(s, 2) * (UINT64_MAX / 2);
    reserve_table(s, index, num_tokens);
}

static void set_tokens(shadow *s, int index, uint64_t position, uint64_t num_tokens, const pkv_token *tokens) {
    note(s, " set_tokens of table %d, %" PRIu64 " + %" PRIu64, index, position, num_tokens);
    const pkv_status got = pkv_table_set_tokens(s->tables[index], position, num_tokens, tokens);
    same_status(s, got, model_set_tokens(s->m, &s->m->tables[index], position, num_tokens, tokens), "set_tokens");
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
    set_tokens(s, index, position, num_tokens, named.tokens + position);
}

/* ---- rows ---- */

static void write_tags(shadow *s, int index, uint32_t group, uint32_t layer, uint64_t position, uint64_t num_tokens,
                       const uint64_t *tags) {
    pkv_tensor tensors[2];
    memmove(s->row_tags, tags, num_tokens * sizeof *tags);
    make_rows(s, group, layer, num_tokens, true, tensors);
    if (num_tokens == 0 && percent(s, 50)) tensors[0].data = NULL;
    note(s, " [write %d/%u/%u %" PRIu64 " + %" PRIu64, index, group, layer, position, num_tokens);
    const pkv_status got = pkv_table_write(s->tables[index], group, layer, position, num_tokens, &tensors[0],
                                           v_of(s, group, tensors), NULL);
    hint_table(s, index, s->m->tables[index].num_blocks);
    same_status(s, got, model_write(s->m, &s->m->tables[index], group, layer, position, num_tokens, s->row_tags),
                "write");
    note(s, "]");
}

static void write_range(shadow *s, int index, uint32_t group, uint32_t layer, uint64_t position, uint64_t num_tokens) {
    model_prompt *sequence = &s->m->tables[index].sequence;
    if (sequence->num_tokens < position + num_tokens) extend(s, sequence, position + num_tokens);
    write_tags(s, index, group, layer, position, num_tokens, sequence->tags + position);
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
    write_range(s, index, any_group(s), (uint32_t)below(s, model_layers), position, num_tokens);
}

/* One row by way of slots(): through pkv_pool_write, or as an engine's kernel does it. */
static void write_slot(shadow *s, int index, uint32_t group, uint32_t layer, uint64_t position) {
    const shadow_group *g = &s->groups[group];
    model_table *t = &s->m->tables[index];
    pkv_slot slot = 0;
    pkv_slot expected_slot = 0;
    const pkv_status got = pkv_table_slots(s->tables[index], group, position, 1, &slot);
    same_status(s, got, model_slots(s->m, t, group, position, 1, &expected_slot), "slots");
    same_number(s, (uint64_t)slot, (uint64_t)expected_slot, "slot");
    const pkv_page page = (pkv_page)(slot / s->m->page_tokens);
    const uint64_t offset = (uint64_t)slot % s->m->page_tokens;
    const uint64_t tag = model_tags(s->m, group, page, layer)[offset] = t->sequence.tags[position];
    if (percent(s, 50)) {
        pkv_tensor tensors[2];
        s->row_tags[0] = tag;
        make_rows(s, group, layer, 1, true, tensors);
        assert_ok(pkv_pool_write(s->pool, group, layer, 1, &slot, &tensors[0], v_of(s, group, tensors), NULL));
        return;
    }
    for (int side = 0; side < 2; ++side)
        for (uint64_t head = 0; head < g->heads && g->row_bytes[side] > 0; ++head)
            model_row(row_address(s, group, layer, side, page, offset, head), g->row_bytes[side], tag,
                      group * model_layers + layer, side, head);
}

/* Puts the right KV where it is missing in [committed, end) of one layer; the tail is private. */
static void complete_layer(shadow *s, int index, uint32_t group, uint32_t layer, uint64_t end, bool by_slots) {
    const model_table *t = &s->m->tables[index];
    for (uint64_t begin = t->committed; begin < end;) {
        if (model_row_tag(s->m, t, group, layer, begin) == t->sequence.tags[begin]) {
            ++begin;
            continue;
        }
        const uint64_t limit = percent(s, 50) ? end : begin + 1 + below(s, s->m->page_tokens);
        uint64_t stop = begin + 1;
        while (stop < end && stop < limit && stop - begin < s->max_rows) ++stop;
        if (by_slots)
            for (uint64_t i = begin; i < stop; ++i) write_slot(s, index, group, layer, i);
        else
            write_range(s, index, group, layer, begin, stop - begin);
        begin = stop;
    }
}

static void complete_rows(shadow *s, int index, uint64_t end) {
    model_table *t = &s->m->tables[index];
    if (t->sequence.num_tokens < end) extend(s, &t->sequence, end);
    const bool by_slots = percent(s, 15);
    for (uint32_t group = 0; group < s->m->num_groups; ++group)
        for (uint32_t layer = 0; s->m->groups[group].bytes && layer < model_layers; ++layer)
            complete_layer(s, index, group, layer, end, by_slots);
}

/* Ids only: the copies on write that a table waits for, handed out once. */
static void take_copies(shadow *s, int index) {
    model_table *t = &s->m->tables[index];
    pkv_page_copy copies[model_max_groups];
    uint64_t count = 99;
    note(s, " take_copies of table %d", index);
    if (percent(s, 30)) {
        assert_ok(pkv_table_take_copies(s->tables[index], NULL, 0, &count));
        same_number(s, count, t->num_copies, "copies to be had");
    }
    if (t->num_copies > 1 && percent(s, 30))
        assert_status(pkv_table_take_copies(s->tables[index], copies, 1, &count), PKV_ERR_NO_SPACE);
    assert_ok(pkv_table_take_copies(s->tables[index], copies, model_max_groups, &count));
    same_number(s, count, t->num_copies, "copies to make");
    for (uint64_t i = 0; i < count; ++i)
        if (copies[i].group != t->copies[i].group || copies[i].src != t->copies[i].src ||
            copies[i].dst != t->copies[i].dst)
            mismatch(s, "copy %" PRIu64 " is of group %u, page %d to %d; the model says %u, %d to %d", i,
                     copies[i].group, copies[i].src, copies[i].dst, t->copies[i].group, t->copies[i].src,
                     t->copies[i].dst);
    t->num_copies = 0;
}

static void commit_table(shadow *s, int index, uint64_t end) {
    model_table *t = &s->m->tables[index];
    if (t->num_copies > 0 && percent(s, 80)) take_copies(s, index);
    if (t->admitted && end > t->committed && end <= model_reserved(s->m, t) && model_tail_shared(s->m, t) == 0) {
        if (end > s->max_tokens) end = t->committed > s->max_tokens ? t->committed : s->max_tokens;
        complete_rows(s, index, end);
    }
    note(s, " commit table %d to %" PRIu64, index, end);
    const pkv_status got = pkv_table_commit(s->tables[index], end, NULL);
    same_status(s, got, model_commit(s->m, t, end), "commit");
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
    if (model_reserved(s->m, t) < end || model_tail_shared(s->m, t) != 0) return;
    const bool name_first = percent(s, 50);
    for (int i = 0; i < 2; ++i) {
        if ((i == 0) != name_first) {
            commit_table(s, index, end);
        } else if (t->named < end && percent(s, 90)) {
            if (t->sequence.num_tokens < end) extend(s, &t->sequence, end);
            set_tokens(s, index, t->named, end - t->named, t->sequence.tokens + t->named);
        }
    }
}

static void gather_some(shadow *s, int index) {
    const model_table *t = &s->m->tables[index];
    const uint32_t group = any_group(s);
    const uint32_t layer = (uint32_t)below(s, model_layers);
    const uint64_t readable = model_readable_end(t, group, layer);
    uint64_t position = below(s, readable + 1);
    uint64_t num_tokens = below(s, readable - position + 1);
    if (percent(s, 10)) num_tokens = readable - position + 1 + below(s, 3);
    if (num_tokens > s->max_rows) num_tokens = s->max_rows;
    pkv_tensor tensors[2];
    make_rows(s, group, layer, num_tokens, false, tensors);
    note(s, "gather table %d/%u/%u %" PRIu64 " + %" PRIu64, index, group, layer, position, num_tokens);
    const pkv_status expected = model_readable(s->m, t, group, layer, position, num_tokens);
    same_status(s,
                pkv_table_gather(s->tables[index], group, layer, position, num_tokens, &tensors[0],
                                 v_of(s, group, tensors), NULL),
                expected, "gather");
    if (expected != PKV_OK) return;
    for (uint64_t i = 0; i < num_tokens; ++i) s->row_tags[i] = model_row_tag(s->m, t, group, layer, position + i);
    check_gathered(s, group, layer, num_tokens, "gather");
}

static void slots_of_table(shadow *s, int index) {
    const uint32_t group = any_group(s);
    const uint64_t reserved = model_reserved(s->m, &s->m->tables[index]);
    const uint64_t position = below(s, reserved + 2);
    uint64_t num_tokens = below(s, (reserved > position ? reserved - position : 0) + 2);
    if (num_tokens > 64) num_tokens = 64;
    pkv_slot got_slots[64] = {0};
    pkv_slot slots[64] = {0};
    note(s, "slots of table %d/%u, %" PRIu64 " + %" PRIu64, index, group, position, num_tokens);
    const pkv_status got = pkv_table_slots(s->tables[index], group, position, num_tokens, got_slots);
    hint_table(s, index, s->m->tables[index].num_blocks);
    same_status(s, got, model_slots(s->m, &s->m->tables[index], group, position, num_tokens, slots), "slots");
    for (uint64_t i = 0; i < num_tokens; ++i) same_number(s, (uint64_t)got_slots[i], (uint64_t)slots[i], "slot");
}

#endif
