/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of the shadow-model test on tables that part and meet: fork, truncate, drafts, windows, retention, export and
 * import. */
#ifndef PKV_TESTS_BRANCHES_H
#define PKV_TESTS_BRANCHES_H

#include "shadow/sequences.h"

static void fork_table(shadow *s, int index) {
    const int twin = free_table_slot(s);
    if (twin < 0) return;
    if (s->m->tables[index].num_copies > 0 && percent(s, 80)) take_copies(s, index);
    note(s, "fork table %d to %d", index, twin);
    const pkv_status got = pkv_table_fork(s->tables[index], NULL, &s->tables[twin]);
    same_status(s, got, model_fork(s->m, &s->m->tables[index], &s->m->tables[twin]), "fork");
}

static void truncate_table(shadow *s, int index) {
    const uint64_t num_tokens = below(s, model_reserved(s->m, &s->m->tables[index]) + 3);
    note(s, "truncate table %d to %" PRIu64, index, num_tokens);
    const pkv_status got = pkv_table_truncate(s->tables[index], num_tokens, NULL);
    same_status(s, got, model_truncate(s->m, &s->m->tables[index], num_tokens), "truncate");
}

static void window_table(shadow *s, int index) {
    note(s, "window of table %d", index);
    const pkv_status got = pkv_table_window(s->tables[index], NULL);
    same_status(s, got, model_window(s->m, &s->m->tables[index]), "window");
}

/* ---- drafts ---- */

enum { most_drafts = 24 };

/* Media among the drafts stay with the first of their tokens that is accepted, and go where none is. */
static void move_media(const model_table *t, uint64_t num, const uint64_t *positions, model_prompt *after) {
    after->num_media = 0;
    for (int i = 0; i < t->sequence.num_media; ++i) {
        model_media media = t->sequence.media[i];
        uint64_t first = 0;
        uint64_t inside = 0;
        for (uint64_t j = num; j-- > 0;) {
            if (positions[j] < media.position || positions[j] - media.position >= media.num_tokens) continue;
            first = j;
            ++inside;
        }
        if (media.position >= t->committed) {
            if (inside == 0) continue;
            media.position = t->committed + first;
            media.num_tokens = inside;
        }
        after->media[after->num_media++] = media;
    }
}

/* What the sequence is once drafts are accepted: what is named of it comes with them, the rest is new. */
static void sequence_after(shadow *s, const model_table *t, uint64_t num, const uint64_t *positions,
                           model_prompt *after) {
    *after = t->sequence;
    uint64_t named = t->named < t->committed ? t->named : t->committed;
    for (uint64_t i = 0; i < num && positions[i] < t->named; ++i) {
        after->tokens[t->committed + i] = t->sequence.tokens[positions[i]];
        ++named;
    }
    if (after->num_tokens > t->committed) after->num_tokens = t->committed;
    if (after->num_tokens < named) after->num_tokens = named;
    move_media(t, num, positions, after);
    model_drop_media_from(after, named);
    model_tag(after);
    extend(s, after, t->committed + num);
}

/* Drafts a tree of tokens behind `committed`, writes the rows of those that will be accepted, and noise for the others, in
 * any order. */
static void write_drafts(shadow *s, int index, uint64_t num, const uint64_t *positions, uint64_t end,
                         const model_prompt *after) {
    const model_table *t = &s->m->tables[index];
    const uint64_t begin = t->committed;
    uint64_t tags[2 * most_drafts];
    for (uint32_t group = 0; group < s->m->num_groups; ++group)
        for (uint32_t layer = 0; s->m->groups[group].bytes && layer < model_layers; ++layer) {
            for (uint64_t i = begin; i < end; ++i) tags[i - begin] = next_random(&s->random) | 1;
            for (uint64_t i = 0; i < num; ++i) tags[positions[i] - begin] = after->tags[begin + i];
            const uint64_t cut = begin + below(s, end - begin + 1);
            const bool late_first = percent(s, 30);
            for (int part = 0; part < 2; ++part) {
                const uint64_t from = (part == 0) == late_first ? cut : begin;
                const uint64_t to = (part == 0) == late_first ? end : cut;
                if (to > from) write_tags(s, index, group, layer, from, to - from, tags + (from - begin));
            }
        }
}

static void accept_some(shadow *s, int index) {
    static model_prompt after;
    model_table *t = &s->m->tables[index];
    uint64_t positions[most_drafts];
    uint64_t num = 0;
    if (t->admitted && percent(s, 60)) reserve_table(s, index, t->committed + 1 + below(s, most_drafts - 1));
    if (t->num_copies > 0 && percent(s, 80)) take_copies(s, index);
    uint64_t end = model_reserved(s->m, t);
    if (end > s->max_tokens) end = s->max_tokens;
    if (end < t->committed) end = t->committed;
    if (end > t->committed + most_drafts) end = t->committed + most_drafts;
    if (t->admitted && end > t->named && percent(s, 40)) { /* the drafts' names are known */
        static model_prompt drafts;
        drafts = t->sequence;
        extend(s, &drafts, end);
        const uint64_t num_named = 1 + below(s, end - t->named);
        set_tokens(s, index, t->named, num_named, drafts.tokens + t->named);
    }
    const uint64_t chance = below(s, 3) * 50;
    for (uint64_t i = t->committed; i < end; ++i)
        if (percent(s, chance)) positions[num++] = i;
    bool wrong = !t->admitted;
    if (num > 0 && percent(s, 5)) {
        const uint64_t bad[] = {t->committed - 1, model_reserved(s->m, t), positions[0]};
        positions[num - 1] = bad[below(s, num > 1 ? 3 : 2)];
        wrong = true;
    }
    if (!wrong) sequence_after(s, t, num, positions, &after);
    if (!wrong && num > 0 && t->num_copies == 0) {
        if (model_has_bytes(s->m)) {
            write_drafts(s, index, num, positions, end, &after);
        } else if (model_tail_shared(s->m, t) == 0) {
            /* The caller of a pool without memory moves rows itself; rows of groups with bytes are the library's. */
            write_drafts(s, index, num, positions, end, &after);
        }
        if (model_tail_shared(s->m, t) != 0 && model_has_bytes(s->m)) return; /* no page for the copy */
    }
    note(s, " accept of table %d:", index);
    for (uint64_t i = 0; i < num; ++i) note(s, " %" PRIu64, positions[i]);
    const pkv_status got = pkv_table_accept(s->tables[index], num, positions, NULL);
    hint_table(s, index, t->num_blocks);
    same_status(s, got, model_accept(s->m, t, num, positions, &after), "accept");
}

/* ---- retention ---- */

static pkv_retention random_retention(shadow *s) {
    static const uint32_t priorities[] = {0, 1, 49, 50, 50, 51, 100};
    pkv_retention retention = PKV_RETENTION_INIT;
    retention.priority = priorities[below(s, 7)];
    retention.pin = percent(s, 30);
    if (percent(s, 20)) retention.ttl_ns = (percent(s, 50) ? UINT64_MAX : UINT64_C(1) << 62) - below(s, 1000);
    note(s, " priority %u%s", retention.priority, retention.pin != 0 ? ", pinned" : "");
    return retention;
}

/* Of the tokens that a length has, some. */
static void random_range(shadow *s, uint64_t length, uint64_t *first, uint64_t *num) {
    *first = percent(s, 40) ? 0 : below(s, length + 2);
    *num = percent(s, 40) ? UINT64_MAX : below(s, length + 2);
    note(s, " tokens %" PRIu64 " + %" PRId64, *first, (int64_t)*num);
}

static void retain_table(shadow *s, int index) {
    uint64_t first;
    uint64_t num;
    note(s, "retention of table %d", index);
    random_range(s, s->m->tables[index].committed, &first, &num);
    const pkv_retention retention = random_retention(s);
    const pkv_status got = pkv_table_set_retention(s->tables[index], first, num, &retention);
    same_status(s, got, model_table_set_retention(s->m, &s->m->tables[index], first, num, &retention), "set_retention");
}

static void retain_prompt(shadow *s) {
    static model_prompt prompt;
    api_prompt api;
    uint64_t first;
    uint64_t num;
    uint64_t blocks = 99;
    note(s, "retention of a prompt");
    random_prompt(s, &prompt);
    random_range(s, prompt.num_tokens, &first, &num);
    const pkv_retention retention = random_retention(s);
    assert_ok(pkv_pool_set_retention(s->pool, to_api(&prompt, &api), first, num, &retention, &blocks));
    same_number(s, blocks, model_set_retention(s->m, &prompt, first, num, &retention), "blocks retained");
}

static void retain_namespace(shadow *s) {
    const int ns = (int)below(s, num_namespaces);
    const bool back = percent(s, 50);
    note(s, "retention of namespace %d%s", ns, back ? ": default" : "");
    const pkv_retention retention = random_retention(s);
    assert_ok(pkv_pool_set_namespace_retention(s->pool, namespace_of(ns), back ? NULL : &retention));
    model_set_namespace_retention(s->m, ns, back ? NULL : &retention);
}

#endif
