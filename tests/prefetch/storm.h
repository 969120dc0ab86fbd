/* SPDX-License-Identifier: Apache-2.0 */
/* Random prefetch sessions over the sequences of tier/storm.h: steps of which every row of every view is compared, blocks that
 * are predicted and required, prompts, cancels, closes with loads under way. Runs on any thread, like the rest of a worker. */
#ifndef PKV_TESTS_PREFETCH_STORM_H
#define PKV_TESTS_PREFETCH_STORM_H

#include "tier/storm.h"

enum { storm_sessions = 2, storm_prompts = 4, storm_views = 16 };

typedef struct {
    pkv_prefetch *session; /* NULL: none */
    pkv_layer_ref layers[storm_layers];
    uint32_t num_layers, num_buffers, max_tables;
    bool off;
} storm_session;

typedef struct {
    pkv_op *op; /* NULL: none */
    int session;
    bool cancelled;
} storm_prompt;

typedef struct {
    storm_worker *w;
    uint64_t num_pages;
    storm_session sessions[storm_sessions];
    storm_prompt prompts[storm_prompts];
    uint64_t opened, steps, failed_tables, acquire_timeouts, required, require_failed, prompts_begun, prompts_good,
        held_rows;
    uint64_t loads, good_loads, wasted_bytes, checksum_failures; /* of sessions that were closed */
} storm_prefetch;

#define STORM_ANY(status, ...)                                                                                         \
    storm_one_of(w, (status), (const pkv_status[]){__VA_ARGS__},                                                       \
                 sizeof((pkv_status[]){__VA_ARGS__}) / sizeof(pkv_status), #status, __LINE__)
static inline bool storm_one_of(storm_worker *w, pkv_status status, const pkv_status *list, size_t count,
                                const char *what, int line) {
    for (size_t i = 0; i < count; ++i)
        if (list[i] == status) return true;
    char text[160];
    snprintf(text, sizeof text, "%.120s is %d", what, (int)status);
    return storm_is(w, false, text, line);
}

/* ---- tiers ---- */

/* A good tier, and one that fails now and then. */
typedef struct {
    pkv_tier *good;
    faulty *staged; /* it, when it is no host tier */
    faulty *bad;
    pkv_tier_attachment attachments[2];
} storm_tiers;

/* The good one's images lie in memory, and are read there. A sequence that ends takes its pins back while a session may still be
 * reading: the bytes are compared with their checksums, and the address is asked for again, but to ThreadSanitizer that is a
 * race. For it the good tier is one whose images are copied. */
#if defined(__SANITIZE_THREAD__)
enum { storm_in_memory = 0 };
#else
enum { storm_in_memory = 1 };
#endif

static inline storm_tiers storm_open_tiers(uint64_t good_images, uint64_t bad_images, uint64_t seed) {
    storm_tiers tiers = {0};
    if (storm_in_memory) {
        tiers.good = host_tier(good_images);
    } else {
        tiers.staged = faulty_open();
        tiers.staged->most_images = good_images;
        tiers.good = tiers.staged->tier;
    }
    tiers.bad = faulty_open();
    tiers.bad->random.state = seed;
    tiers.bad->most_images = bad_images;
    tiers.bad->decide = storm_fault;
    tiers.attachments[0] = attachment(tiers.good, PKV_TIER_WRITE_BACK);
    tiers.attachments[1] = attachment(tiers.bad->tier, PKV_TIER_WRITE_BACK);
    for (int i = 0; i < 2; ++i) tiers.attachments[i].timeout_ns = 5000000;
    return tiers;
}

/* When nobody uses the pool any more: nothing is held, pinned or under way. */
static inline void storm_settle_tiers(storm_tiers *tiers, pkv_pool *pool) {
    faulty_end_faults(tiers->bad);
    eventually(stats_of(pool).held_pages == 0); /* the cleaner may be reading one */
    flush(pool);
    eventually(tier_stats(tiers->bad->tier).open_requests == 0 && tier_stats(tiers->good).open_requests == 0);
    assert_int_equal(faulty_pins(tiers->bad), 0);
    assert_int_equal(tier_stats(tiers->good).usage.pinned_images, 0);
    assert_int_equal(tier_stats(tiers->good).checksum_failures, 0);
}

static inline void storm_close_tiers(storm_tiers *tiers) {
    faulty_end(tiers->bad);
    if (tiers->staged != NULL)
        faulty_end(tiers->staged);
    else
        assert_ok(pkv_tier_close(tiers->good));
}

/* ---- sessions ---- */

static inline void storm_check_session(storm_worker *w, pkv_prefetch *session) {
    pkv_prefetch_stats s = PKV_PREFETCH_STATS_INIT;
    if (!STORM_OK(pkv_prefetch_get_stats(session, &s))) return;
    STORM_IS(s.needed == s.on_time + s.late + s.on_demand);
    STORM_IS(s.io_ns == s.masked_ns + s.exposed_ns);
    STORM_IS(s.bytes_loaded == s.bytes_used + s.wasted_bytes + s.ready_bytes);
    STORM_IS(s.loads == s.good_loads + s.failed_loads + s.cancelled_loads + s.loads_in_flight);
    STORM_IS(s.ready_requests <= s.requests && s.failed <= s.needed);
    STORM_IS(s.load.count == s.good_loads && s.queue.count == s.loads);
    STORM_IS(s.bytes_in_flight == 0 || s.loads_in_flight != 0);
}

static inline void storm_open(storm_prefetch *p, storm_session *at) {
    storm_worker *w = p->w;
    memset(at, 0, sizeof *at);
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    at->num_buffers = 2 + (uint32_t)storm_below(w, storm_below(w, 4) == 0 ? 15 : 3);
    options.num_buffers = at->num_buffers;
    options.policy = (int32_t)storm_below(w, 3);
    if (storm_below(w, 8) == 0) options.flags |= PKV_PREFETCH_OFF;
    if (storm_below(w, 8) == 0) options.flags |= PKV_PREFETCH_WHOLE_LAYERS;
    at->off = (options.flags & PKV_PREFETCH_OFF) != 0;
    options.sink_tokens = storm_below(w, 10);
    options.recent_tokens = storm_below(w, 10);
    options.max_lookahead = storm_below(w, 8);
    options.max_block_pages = storm_below(w, 6);
    options.max_tables = at->max_tables = 2 + (uint32_t)storm_below(w, 5);
    options.max_slices = storm_below(w, 8) == 0 ? 20 + storm_below(w, 20) : 0;
    options.max_bytes_in_flight = storm_below(w, 2) == 0 ? 0 : 1 + storm_below(w, 40000);
    options.load_timeout_ns = 1000000 + storm_below(w, 10000000);
    const uint64_t staging = (at->num_buffers + 1) / 2 + storm_below(w, 4); /* a slice for each buffer at least */
    options.staging_pages = &staging;
    at->num_layers = storm_layers;
    const bool backwards = storm_below(w, 2) == 0;
    for (uint32_t i = 0; i < storm_layers; ++i)
        at->layers[i] = (pkv_layer_ref){0, backwards ? storm_layers - 1 - i : i};
    if (storm_below(w, 6) == 0) at->num_layers = 1;
    options.layers = at->layers;
    options.num_layers = at->num_layers;
    const pkv_status status = pkv_prefetch_open(w->pool, &options, &at->session);
    if (STORM_ANY(status, PKV_OK, PKV_ERR_NO_PAGES)) ++p->opened;
    if (status != PKV_OK) at->session = NULL;
}

static inline void storm_close(storm_prefetch *p, storm_session *at) {
    storm_worker *w = p->w;
    pkv_prefetch_stats s = PKV_PREFETCH_STATS_INIT;
    STORM_OK(pkv_prefetch_get_stats(at->session, &s));
    p->loads += s.loads;
    p->good_loads += s.good_loads;
    p->wasted_bytes += s.wasted_bytes;
    p->checksum_failures += s.checksum_failures;
    STORM_OK(pkv_prefetch_close(at->session, NULL));
    STORM_IS(pkv_prefetch_close(at->session, NULL) == PKV_ERR_HANDLE);
    at->session = NULL;
    /* Its prompts have ended by now. */
    for (int i = 0; i < storm_prompts; ++i) {
        storm_prompt *prompt = &p->prompts[i];
        if (prompt->op == NULL || prompt->session != (int)(at - p->sessions)) continue;
        pkv_op_info info = PKV_OP_INFO_INIT;
        STORM_OK(pkv_op_poll(prompt->op, &info, NULL, 0));
        STORM_IS(info.state == PKV_OP_ENDED);
    }
}

/* ---- prompts ---- */

static inline void storm_begin_prompt(storm_prefetch *p, int session) {
    storm_worker *w = p->w;
    int i = 0;
    while (i < storm_prompts && p->prompts[i].op != NULL) ++i;
    if (i == storm_prompts) return;
    storm_prompt *at = &p->prompts[i];
    const int family = (int)storm_below(w, storm_families), branch = (int)storm_below(w, storm_branches);
    pkv_token tokens[storm_longest];
    const uint64_t count = 1 + storm_below(w, storm_longest - 1);
    for (uint64_t t = 0; t < count; ++t) tokens[t] = storm_token(family, branch, t);
    const pkv_prompt prompt = prompt_of(tokens, count);
    pkv_op_options options = PKV_OP_OPTIONS_INIT;
    options.timeout_ns = storm_below(w, 3) == 0 ? 0 : 1 + storm_below(w, 20000000);
    pkv_match match = PKV_MATCH_INIT;
    const pkv_status status = pkv_prefetch_prompt(p->sessions[session].session, &prompt, &options,
                                                  storm_below(w, 4) == 0 ? NULL : &match, &at->op);
    if (!STORM_ANY(status, PKV_OK, PKV_ERR_NO_PAGES)) return;
    STORM_IS(match.tokens <= count);
    at->session = session;
    at->cancelled = false;
    if (status != PKV_OK)
        at->op = NULL;
    else
        ++p->prompts_begun;
}

/* Looks at a prompt's operation, or cancels it, waits for it, closes it at any moment. */
static inline void storm_watch_prompt(storm_prefetch *p, storm_prompt *at) {
    storm_worker *w = p->w;
    pkv_op_info info = PKV_OP_INFO_INIT;
    pkv_status item = PKV_OK;
    switch (storm_below(w, 5)) {
    case 0:
        at->cancelled = true;
        STORM_OK(pkv_op_cancel(at->op));
        break;
    case 1: (void)pkv_op_wait(at->op, storm_below(w, 5000000)); break;
    case 2:
        STORM_OK(pkv_op_close(at->op));
        at->op = NULL;
        return;
    default: break;
    }
    if (!STORM_OK(pkv_op_poll(at->op, &info, &item, 1))) return;
    if (info.state != PKV_OP_ENDED) return;
    STORM_IS(info.done_items == 1 && info.num_items == 1);
    if (STORM_ANY(item, PKV_OK, PKV_ERR_LOST, PKV_ERR_TIMEOUT, PKV_ERR_CANCELLED)) p->prompts_good += item == PKV_OK;
    STORM_OK(pkv_op_close(at->op));
    at->op = NULL;
}

/* ---- blocks ---- */

static inline void storm_hint(storm_prefetch *p, storm_session *at, storm_sequence *s) {
    storm_worker *w = p->w;
    float scores[12];
    const uint64_t count = storm_below(w, 13);
    for (uint64_t i = 0; i < count; ++i) scores[i] = (float)storm_below(w, 100);
    STORM_OK(pkv_prefetch_hint(at->session, s->table, count, scores));
}

static inline void storm_submit(storm_prefetch *p, storm_session *at, storm_sequence *s) {
    storm_worker *w = p->w;
    pkv_table_info info = PKV_TABLE_INFO_INIT;
    if (!STORM_OK(pkv_table_get_info(s->table, &info))) return;
    uint64_t submitted = 0;
    const pkv_status status = pkv_prefetch_submit(at->session, s->table, storm_below(w, info.reserved + 1), &submitted);
    STORM_IS(s->lost ? status == PKV_ERR_LOST : status == PKV_OK);
    STORM_IS(submitted <= info.absent_blocks);
}

static inline void storm_require(storm_prefetch *p, storm_session *at, storm_sequence *s) {
    storm_worker *w = p->w;
    pkv_table_info info = PKV_TABLE_INFO_INIT;
    if (!STORM_OK(pkv_table_get_info(s->table, &info))) return;
    const uint64_t first = storm_below(w, info.blocks + 1);
    const uint64_t asked = storm_below(w, 2) == 0 ? UINT64_MAX : 1 + storm_below(w, 4);
    const uint64_t count = asked < info.blocks - first ? asked : info.blocks - first;
    pkv_require_result result = PKV_REQUIRE_RESULT_INIT;
    ++p->required;
    if (!STORM_MAY(pkv_prefetch_require(at->session, s->table, first, asked, storm_below(w, 20000000), &result))) {
        ++p->require_failed;
        return;
    }
    STORM_IS(result.resident + result.on_time + result.late + result.on_demand == count);
    int32_t where[storm_longest];
    if (!STORM_OK(pkv_table_residency(s->table, 0, first, count, where))) return;
    for (uint64_t i = 0; i < count; ++i) STORM_IS(where[i] == PKV_BLOCK_RESIDENT);
}

/* ---- steps ---- */

typedef struct {
    uint32_t num_tables;
    storm_sequence *sequences[storm_tables];
    pkv_table *tables[storm_tables];
    uint64_t tokens[storm_tables];
    pkv_status statuses[storm_tables];
    uint64_t next[storm_tables]; /* block at which the next range of the layer begins */
    bool missing[storm_tables];  /* an entry was -1 */
    bool changed;                /* owners' calls may have changed blocks since the step began */
} storm_run;

static inline uint64_t storm_blocks(uint64_t tokens) { return (tokens + tiered_page_tokens - 1) / tiered_page_tokens; }

/* Compares what a view shows of the rows that are committed and belong to the step. */
static inline void storm_compare_view(storm_worker *w, const storm_run *run, const pkv_layer_view *view) {
    const pkv_layer_layout *l = &view->layout;
    for (uint32_t t = 0; t < run->num_tables; ++t) {
        const storm_sequence *s = run->sequences[t];
        if (s->table != run->tables[t]) continue; /* destroyed meanwhile */
        for (int64_t i = view->indptr[t]; i < view->indptr[t + 1]; ++i) {
            const int32_t slice = view->slices[i];
            const uint64_t block = view->first_block[t] + (uint64_t)(i - view->indptr[t]);
            for (uint32_t offset = 0; slice >= 0 && offset < tiered_page_tokens; ++offset) {
                const uint64_t token = block * tiered_page_tokens + offset;
                if (token >= s->committed || token >= run->tokens[t]) break;
                for (int side = 0; side < 2; ++side)
                    for (uint32_t index = 0; index < storm_row; ++index) {
                        const pkv_strides *strides = side == 0 ? &l->k : &l->v;
                        const unsigned char *row = (const unsigned char *)(side == 0 ? l->k_base : l->v_base) +
                                                   (uint64_t)slice * strides->page + offset * strides->token +
                                                   index / (storm_row / 2) * strides->head;
                        uint16_t element;
                        memcpy(&element, row + index % (storm_row / 2) * sizeof element, sizeof element);
                        if (element == storm_element(s, view->layer, token, side, (int)index)) continue;
                        char what[160];
                        snprintf(what, sizeof what,
                                 "family %d branch %d token %d of %d layer %u side %d is %04x (slice %d)", s->family,
                                 s->branch, (int)token, (int)s->committed, view->layer, side, element, slice);
                        storm_is(w, false, what, __LINE__);
                        return;
                    }
                ++w->rows_compared;
            }
        }
    }
}

/* The shape of a view: whose entries, from which block on. */
static inline void storm_check_view(storm_worker *w, const storm_session *at, storm_run *run,
                                    const pkv_layer_view *view, uint32_t index) {
    STORM_IS(view->index == index && view->group == 0 && view->layer == at->layers[index].layer);
    STORM_IS(view->buffer < at->num_buffers && view->num_tables == run->num_tables);
    STORM_IS(view->indptr[0] == 0 && (uint64_t)view->indptr[run->num_tables] == view->num_slices);
    for (uint32_t t = 0; t < run->num_tables; ++t) {
        STORM_IS(view->indptr[t] <= view->indptr[t + 1]);
        const uint64_t count = (uint64_t)(view->indptr[t + 1] - view->indptr[t]);
        for (uint64_t i = 0; i < count; ++i)
            if (view->slices[(uint64_t)view->indptr[t] + i] < 0) run->missing[t] = true;
        if (run->changed) continue;
        if (count != 0) STORM_IS(view->first_block[t] == run->next[t]);
        run->next[t] += count;
        if (view->last != 0) STORM_IS(run->next[t] == (run->statuses[t] == PKV_OK ? storm_blocks(run->tokens[t]) : 0));
    }
    if (view->last != 0) memset(run->next, 0, sizeof run->next);
}

static inline bool storm_acquire(storm_prefetch *p, storm_session *at, uint32_t index, pkv_layer_view *view) {
    storm_worker *w = p->w;
    *view = (pkv_layer_view)PKV_LAYER_VIEW_INIT;
    const uint64_t some[] = {0, 100000, 2000000};
    for (int tries = 0; tries < 3 && storm_below(w, 2) == 0; ++tries) {
        const pkv_status status = pkv_prefetch_layer_acquire(at->session, index, some[storm_below(w, 3)], NULL, view);
        if (status == PKV_OK) return true;
        if (!STORM_ANY(status, PKV_ERR_TIMEOUT)) return false;
        ++p->acquire_timeouts;
        if (storm_below(w, 4) == 0) STORM_OK(pkv_prefetch_cancel(at->session));
        if (storm_below(w, 8) == 0) return false;
    }
    return STORM_OK(pkv_prefetch_layer_acquire(at->session, index, 60ull * one_second, NULL, view));
}

/* What the owner of the tables may do in a step, and what takes effect with the next call. */
static inline void storm_inside(storm_prefetch *p, storm_session *at, storm_run *run, bool holds) {
    storm_worker *w = p->w;
    storm_sequence *s = &w->sequences[storm_below(w, storm_tables)];
    switch (storm_below(w, holds ? 3 : 12)) {
    case 0: STORM_OK(pkv_prefetch_cancel(at->session)); break;
    case 1: (void)pkv_pool_evict(w->pool, 0, 1 + storm_below(w, 4), NULL); break;
    case 2: storm_begin_prompt(p, (int)(at - p->sessions)); break;
    case 3:
    case 4:
        run->changed = true;
        storm_step(w);
        break;
    case 5:
        if (s->table != NULL && !s->lost) {
            run->changed = true;
            storm_require(p, at, s);
        }
        break;
    case 6:
        if (s->table != NULL) storm_submit(p, at, s);
        break;
    default: break;
    }
}

static inline void storm_session_step(storm_prefetch *p, storm_session *at) {
    storm_worker *w = p->w;
    storm_run run = {0};
    const uint32_t most = 1 + (uint32_t)storm_below(w, at->max_tables);
    const uint64_t from = storm_below(w, storm_tables);
    for (uint64_t i = 0; i < storm_tables && run.num_tables < most; ++i) {
        storm_sequence *s = &w->sequences[(from + i) % storm_tables];
        if (s->table == NULL) continue;
        run.sequences[run.num_tables] = s;
        run.tokens[run.num_tables] = s->committed;
        run.tables[run.num_tables++] = s->table;
    }
    /* Sometimes over a part of the tokens. */
    const bool part = storm_below(w, 4) == 0;
    if (part)
        for (uint32_t t = 0; t < run.num_tables; ++t) run.tokens[t] = storm_below(w, run.tokens[t] + 1);
    const pkv_status begun =
        pkv_prefetch_step_begin(at->session, run.num_tables, run.tables, part ? run.tokens : NULL, run.statuses);
    if (!STORM_ANY(begun, PKV_OK, PKV_ERR_NO_SPACE) || begun != PKV_OK) return;
    ++p->steps;
    pkv_status first[storm_tables];
    for (uint32_t t = 0; t < run.num_tables; ++t) {
        first[t] = run.statuses[t];
        STORM_IS(first[t] == (run.sequences[t]->lost ? PKV_ERR_LOST : PKV_OK));
    }
    pkv_layer_view views[storm_views];
    uint32_t held_from = 0, held_to = 0; /* acquired, not released; places modulo storm_views */
    uint32_t index = 0;
    bool open = false; /* the last range was not the last one of its layer */
    while (index < at->num_layers && w->failure[0] == 0) {
        if (storm_below(w, 40) == 0) { /* in the midst of it all */
            storm_close(p, at);
            return;
        }
        if (storm_below(w, 12) == 0) { /* the rest of the layer, or all of it, is passed over */
            ++index;
            open = false;
            memset(run.next, 0, sizeof run.next);
            continue;
        }
        if (storm_below(w, 30) == 0) break;
        const uint32_t held = held_to - held_from;
        storm_inside(p, at, &run, held != 0);
        if (held == at->num_buffers) {
            pkv_layer_view none = PKV_LAYER_VIEW_INIT;
            STORM_IS(pkv_prefetch_layer_acquire(at->session, index, 0, NULL, &none) == PKV_ERR_STATE);
        } else {
            pkv_layer_view *view = &views[held_to % storm_views];
            if (!storm_acquire(p, at, index, view)) break;
            ++held_to;
            storm_check_view(w, at, &run, view, index);
            storm_compare_view(w, &run, view);
            open = view->last == 0;
        }
        /* What is held stays what it is, whatever is loaded meanwhile. */
        if (held != 0 && !run.changed) {
            const uint64_t rows = w->rows_compared;
            storm_compare_view(w, &run, &views[held_from % storm_views]);
            p->held_rows += w->rows_compared - rows;
        }
        while (held_to != held_from && (held_to - held_from == at->num_buffers || storm_below(w, 3) != 0)) {
            STORM_OK(pkv_prefetch_layer_release(at->session, views[held_from % storm_views].index, NULL));
            ++held_from;
        }
        if (!open) ++index;
    }
    if (w->failure[0] != 0) return;
    if (held_from != held_to) STORM_IS(pkv_prefetch_step_end(at->session, NULL) == PKV_ERR_STATE);
    for (; held_from != held_to; ++held_from)
        STORM_OK(pkv_prefetch_layer_release(at->session, views[held_from % storm_views].index, NULL));
    const pkv_status ended = pkv_prefetch_step_end(at->session, run.statuses);
    pkv_status worst = PKV_OK;
    for (uint32_t t = 0; t < run.num_tables; ++t) {
        storm_sequence *s = run.sequences[t];
        STORM_ANY(run.statuses[t], PKV_OK, PKV_ERR_LOST, PKV_ERR_TIMEOUT, PKV_ERR_STATE);
        if (worst == PKV_OK) worst = run.statuses[t];
        if (run.statuses[t] != PKV_OK) ++p->failed_tables;
        if (run.missing[t]) STORM_IS(run.statuses[t] != PKV_OK);
        if (first[t] != PKV_OK && !run.changed) STORM_IS(run.statuses[t] == first[t]);
        if (s->table != run.tables[t]) continue;
        /* A table that lost blocks says so, unless they were not missed any more. */
        const pkv_status now = pkv_table_reserve(s->table, 0);
        STORM_ANY(now, PKV_OK, PKV_ERR_LOST);
        if (now == PKV_ERR_LOST && !s->lost) {
            s->lost = true;
            ++w->lost;
            STORM_IS(run.statuses[t] == PKV_ERR_LOST);
        }
        if (run.statuses[t] == PKV_ERR_LOST && !run.changed) STORM_IS(s->lost);
    }
    STORM_IS(ended == worst);
}

/* ---- all of it ---- */

static inline void storm_prefetch_step(storm_prefetch *p) {
    storm_worker *w = p->w;
    const int which = (int)storm_below(w, storm_sessions);
    storm_session *at = &p->sessions[which];
    storm_sequence *s = &w->sequences[storm_below(w, storm_tables)];
    if (s->table != NULL && !s->lost && storm_below(w, 2) == 0) storm_spill(w, s); /* much has to come up */
    if (at->session == NULL) {
        storm_open(p, at);
    } else {
        switch (storm_below(w, 16)) {
        case 0:
            if (storm_below(w, 3) == 0) storm_close(p, at);
            break;
        case 1: STORM_OK(pkv_prefetch_cancel(at->session)); break;
        case 2:
        case 3: storm_begin_prompt(p, which); break;
        case 4:
            if (s->table != NULL) storm_hint(p, at, s);
            break;
        case 5:
        case 6:
        case 7:
            if (s->table != NULL) storm_submit(p, at, s);
            break;
        case 8:
        case 9:
        case 10:
            if (s->table != NULL && !s->lost) storm_require(p, at, s);
            break;
        default: storm_session_step(p, at); break;
        }
    }
    if (at->session != NULL) storm_check_session(w, at->session);
    storm_prompt *prompt = &p->prompts[storm_below(w, storm_prompts)];
    if (prompt->op != NULL && storm_below(w, 2) == 0) storm_watch_prompt(p, prompt);
}

static inline void storm_prefetch_end(storm_prefetch *p) {
    storm_worker *w = p->w;
    for (int i = 0; i < storm_sessions; ++i)
        if (p->sessions[i].session != NULL) storm_close(p, &p->sessions[i]);
    for (int i = 0; i < storm_prompts; ++i)
        if (p->prompts[i].op != NULL) STORM_OK(pkv_op_close(p->prompts[i].op));
}

#endif
