/* SPDX-License-Identifier: Apache-2.0 */
/* Random work on a pool over a host tier and a tier that fails now and then: what a worker does with sequences of its own. Every
 * row that is read is compared with the content that its prefix has. Runs on any thread: the first failure is kept, and ends the
 * worker. */
#ifndef PKV_TESTS_STORM_H
#define PKV_TESTS_STORM_H

#include "tier/faulty.h"

enum { storm_tables = 6, storm_families = 5, storm_branches = 3, storm_longest = 44, storm_row = 8, storm_layers = 2 };

typedef struct {
    pkv_table *table; /* NULL: none */
    int family, branch;
    uint64_t named, committed;
    bool lost;
} storm_sequence;

typedef struct {
    int number;
    pkv_pool *pool;
    test_random random;
    storm_sequence sequences[storm_tables];
    uint64_t rows_compared, restored, lost, timeouts, refused;
    char failure[400];
} storm_worker;

static inline bool storm_is(storm_worker *w, bool holds, const char *what, int line) {
    if (!holds && w->failure[0] == 0) {
        char message[200];
        pkv_last_error(message, sizeof message);
        snprintf(w->failure, sizeof w->failure, "storm.h:%d: %.180s (last error: %s)", line, what, message);
    }
    return holds;
}
#define STORM_IS(condition) storm_is(w, (condition), #condition, __LINE__)
#define STORM_OK(call) storm_is(w, (call) == PKV_OK, #call, __LINE__)

static inline uint64_t storm_below(storm_worker *w, uint64_t bound) { return random_below(&w->random, bound); }

/* The content of a sequence: branch 0 of a family, up to where another branch begins. */
static inline int storm_origin(int branch, uint64_t position) {
    return branch != 0 && position >= (uint64_t)branch * 7 ? branch : 0;
}
static inline pkv_token storm_token(int family, int branch, uint64_t position) {
    return (pkv_token)(family * 10000 + storm_origin(branch, position) * 1000 + (int)position);
}
static inline uint16_t storm_element(const storm_sequence *s, uint32_t layer, uint64_t position, int side, int index) {
    uint64_t mixed = (uint64_t)(s->family * storm_branches + storm_origin(s->branch, position));
    mixed = (((mixed * 8 + layer) * 4096 + position) * 2 + (uint64_t)side) * 16 + (uint64_t)index + 1;
    mixed *= UINT64_C(0x9E3779B97F4A7C15);
    return (uint16_t)((mixed >> 40) % 65535);
}

static inline pkv_tensor storm_tensor(uint16_t *data, uint64_t count) {
    pkv_tensor tensor = PKV_TENSOR_INIT;
    tensor.data = data;
    tensor.dtype = PKV_DTYPE_F16;
    tensor.num_tokens = count;
    return tensor;
}

static inline void storm_end_sequence(storm_worker *w, storm_sequence *s) {
    STORM_OK(pkv_table_destroy(s->table, NULL));
    memset(s, 0, sizeof *s);
}

/* What a call that may need pages, or bytes from tiers, may answer. */
static inline bool storm_may(storm_worker *w, storm_sequence *s, pkv_status status, const char *call, int line) {
    switch (status) {
    case PKV_OK: return true;
    case PKV_ERR_NO_PAGES:
    case PKV_ERR_AGAIN: ++w->refused; return false;
    case PKV_ERR_TIMEOUT: ++w->timeouts; return false;
    case PKV_ERR_LOST: {
        pkv_table_info info = PKV_TABLE_INFO_INIT;
        ++w->lost;
        s->lost = true;
        storm_is(w, pkv_table_get_info(s->table, &info) == PKV_OK && info.valid <= s->committed, "valid tokens", line);
        return false;
    }
    default: return storm_is(w, false, call, line);
    }
}
#define STORM_MAY(call) storm_may(w, s, (call), #call, __LINE__)

static inline void storm_admit(storm_worker *w, storm_sequence *s) {
    s->family = (int)storm_below(w, storm_families);
    s->branch = (int)storm_below(w, storm_branches);
    pkv_token tokens[storm_longest];
    const uint64_t count = 1 + storm_below(w, storm_longest - 1);
    for (uint64_t i = 0; i < count; ++i) tokens[i] = storm_token(s->family, s->branch, i);
    pkv_prompt prompt = prompt_of(tokens, count);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.max_match = storm_below(w, 3) != 0 ? PKV_MATCH_ALL : 0;
    options.reserve_tokens = 1 + storm_below(w, 8);
    if (storm_below(w, 4) == 0) options.flags |= PKV_ADMIT_PARTIAL;
    if (storm_below(w, 4) == 0) options.flags |= PKV_ADMIT_SHARE;
    pkv_match match = PKV_MATCH_INIT;
    if (!STORM_OK(pkv_table_create(w->pool, &s->table))) return;
    if (!STORM_MAY(pkv_table_admit(s->table, &prompt, &options, &match))) {
        storm_end_sequence(w, s);
        return;
    }
    s->named = count;
    s->committed = match.tokens;
    STORM_IS(match.tokens <= count);
    uint64_t in_tiers = match.resident_tokens;
    for (int i = 0; i < PKV_MAX_TIERS; ++i) in_tiers += match.tier_tokens[i];
    STORM_IS(in_tiers == match.tokens);
}

/* Gathers a range of committed rows, which may have to come up first, and compares them. */
static inline void storm_compare(storm_worker *w, storm_sequence *s, uint64_t position, uint64_t count) {
    uint16_t data[2][storm_longest * storm_row];
    for (uint32_t layer = 0; layer < storm_layers && count > 0; ++layer) {
        memset(data, 0xFF, sizeof data);
        const pkv_tensor k = storm_tensor(data[0], count), v = storm_tensor(data[1], count);
        if (!STORM_MAY(pkv_table_gather(s->table, 0, layer, position, count, &k, &v, NULL))) return;
        for (int side = 0; side < 2; ++side)
            for (uint64_t i = 0; i < count * storm_row; ++i) {
                const uint64_t at = position + i / storm_row;
                if (data[side][i] == storm_element(s, layer, at, side, (int)(i % storm_row))) continue;
                char what[160];
                pkv_page pages[storm_longest] = {0};
                pkv_page_info info = PKV_PAGE_INFO_INIT;
                uint64_t blocks = 0;
                const pkv_status found = pkv_table_pages(s->table, 0, pages, storm_longest, &blocks);
                const pkv_page page = pages[at / tiered_page_tokens];
                (void)pkv_pool_page_info(w->pool, 0, page, &info);
                snprintf(what, sizeof what,
                         "family %d branch %d token %d of %d layer %u side %d is %04x (page %d: %d, count %d, "
                         "published %d as %d)",
                         s->family, s->branch, (int)at, (int)s->committed, layer, side, data[side][i], page, found,
                         (int)info.count, info.published, (int)info.block);
                storm_is(w, false, what, __LINE__);
                return;
            }
    }
    w->rows_compared += count;
}

static inline void storm_extend(storm_worker *w, storm_sequence *s) {
    const uint64_t room = storm_longest - s->committed;
    if (room == 0) return;
    const uint64_t end = s->committed + 1 + storm_below(w, room < 9 ? room : 9), count = end - s->committed;
    const pkv_status status = pkv_table_reserve(s->table, end);
    if (status == PKV_ERR_NOT_RESIDENT) {
        STORM_IS(s->committed % tiered_page_tokens != 0);
        return;
    }
    if (!storm_may(w, s, status, "reserve", __LINE__)) return;
    pkv_token tokens[storm_longest];
    for (uint64_t i = 0; i < count; ++i) tokens[i] = storm_token(s->family, s->branch, s->committed + i);
    if (!STORM_OK(pkv_table_set_tokens(s->table, s->committed, count, tokens))) return;
    if (s->named < end) s->named = end;
    uint16_t data[2][storm_longest * storm_row];
    for (uint32_t layer = 0; layer < storm_layers; ++layer) {
        for (int side = 0; side < 2; ++side)
            for (uint64_t i = 0; i < count * storm_row; ++i)
                data[side][i] = storm_element(s, layer, s->committed + i / storm_row, side, (int)(i % storm_row));
        const pkv_tensor k = storm_tensor(data[0], count), v = storm_tensor(data[1], count);
        if (!STORM_OK(pkv_table_write(s->table, 0, layer, s->committed, count, &k, &v, NULL))) return;
    }
    if (STORM_OK(pkv_table_commit(s->table, end, NULL))) s->committed = end;
}

static inline void storm_truncate(storm_worker *w, storm_sequence *s, uint64_t length) {
    if (!STORM_OK(pkv_table_truncate(s->table, length, NULL))) return;
    if (s->committed > length) s->committed = length;
    if (s->named > length) s->named = length;
    s->lost = false;
    /* Sometimes it goes on as another branch that has the same tokens so far. */
    if (storm_below(w, 2) == 0) return;
    const int branch = (int)storm_below(w, storm_branches);
    for (uint64_t i = 0; i < s->committed; ++i)
        if (storm_origin(branch, i) != storm_origin(s->branch, i)) return;
    if (s->named > s->committed) {
        pkv_token token = storm_token(s->family, branch, s->committed);
        if (!STORM_OK(pkv_table_set_tokens(s->table, s->committed, 1, &token))) return;
        if (branch != s->branch) s->named = s->committed + 1;
    }
    s->branch = branch;
    /* Names behind are those of the old branch, where it has them: they are cut with it. */
    if (STORM_OK(pkv_table_truncate(s->table, s->committed, NULL))) s->named = s->committed;
}

static inline void storm_fork(storm_worker *w, storm_sequence *s) {
    for (int i = 0; i < storm_tables; ++i) {
        storm_sequence *other = &w->sequences[i];
        if (other->table != NULL) continue;
        pkv_table *fork = NULL;
        const pkv_status status = pkv_table_fork(s->table, NULL, &fork);
        if (status == PKV_ERR_NOT_RESIDENT) return;
        if (!storm_may(w, s, status, "fork", __LINE__)) return;
        *other = *s;
        other->table = fork;
        return;
    }
}

static inline void storm_spill(storm_worker *w, storm_sequence *s) {
    pkv_spill_result result = PKV_SPILL_RESULT_INIT;
    const uint64_t blocks = (s->committed + tiered_page_tokens - 1) / tiered_page_tokens;
    const uint64_t first = storm_below(w, blocks + 1);
    const pkv_status status =
        pkv_table_spill(s->table, first, storm_below(w, 2) == 0 ? UINT64_MAX : 1 + storm_below(w, 4), NULL, &result);
    STORM_IS(status == PKV_OK || status == PKV_ERR_NO_SPACE || status == PKV_ERR_IO || status == PKV_ERR_TIMEOUT);
}

static inline void storm_restore(storm_worker *w, storm_sequence *s) {
    uint64_t restored = 0;
    const bool all = storm_below(w, 2) == 0;
    const uint64_t first = all ? 0 : storm_below(w, 1 + s->committed / tiered_page_tokens);
    const bool good =
        STORM_MAY(pkv_table_restore(s->table, first, all ? UINT64_MAX : 1 + storm_below(w, 4), 20000000, &restored));
    w->restored += restored;
    pkv_table_info info = PKV_TABLE_INFO_INIT;
    STORM_OK(pkv_table_get_info(s->table, &info));
    if (good && all) STORM_IS(info.absent_blocks == 0);
    STORM_IS(info.committed == s->committed);
    STORM_IS(info.valid <= info.committed);
    STORM_IS(s->lost || info.valid == info.committed);
}

/* One step on one sequence of the worker. */
static inline void storm_step(storm_worker *w) {
    storm_sequence *s = &w->sequences[storm_below(w, storm_tables)];
    if (s->table == NULL) {
        storm_admit(w, s);
        return;
    }
    if (s->lost) {
        pkv_table_info info = PKV_TABLE_INFO_INIT;
        STORM_OK(pkv_table_get_info(s->table, &info));
        STORM_IS(pkv_table_reserve(s->table, storm_longest) == PKV_ERR_LOST);
        if (storm_below(w, 3) == 0)
            storm_end_sequence(w, s);
        else
            storm_truncate(w, s, info.valid - (info.valid != 0 ? storm_below(w, 2) : 0));
        return;
    }
    switch (storm_below(w, 20)) {
    case 0:
    case 1:
    case 2:
    case 3: storm_extend(w, s); break;
    case 4:
    case 5: storm_restore(w, s); break;
    case 6:
    case 7: {
        const uint64_t from = storm_below(w, s->committed + 1);
        storm_compare(w, s, from, storm_below(w, s->committed - from + 1));
        break;
    }
    case 8:
    case 9: storm_compare(w, s, 0, s->committed); break;
    case 10:
    case 11:
    case 12: storm_spill(w, s); break;
    case 13:
    case 14: storm_truncate(w, s, storm_below(w, s->committed + 1)); break;
    case 15:
    case 16: storm_fork(w, s); break;
    case 17: {
        pkv_retention retention = PKV_RETENTION_INIT;
        retention.priority = (uint32_t)storm_below(w, 101);
        const pkv_status status = pkv_table_set_retention(s->table, storm_below(w, 8), UINT64_MAX, &retention);
        STORM_IS(status == PKV_OK || status == PKV_ERR_LIMIT);
        break;
    }
    default: /* most sequences end after a few steps */ storm_compare(w, s, 0, s->committed); storm_end_sequence(w, s);
    }
}

static inline void storm_end(storm_worker *w) {
    for (int i = 0; i < storm_tables; ++i)
        if (w->sequences[i].table != NULL) storm_end_sequence(w, &w->sequences[i]);
}

/* Odds of a tier that fails now and then, out of 1000. */
static inline fault_rule storm_fault(faulty *f, int kind) {
    const uint64_t draw = random_below(&f->random, 1000);
    const int64_t byte = (int64_t)random_below(&f->random, image_bytes);
    if (kind == PKV_TIER_LOAD) {
        if (draw < 30) return (fault_rule){fault_flip, byte};
        if (draw < 50) return (fault_rule){fault_status, PKV_ERR_IO};
        if (draw < 60) return (fault_rule){fault_status, PKV_ERR_NOT_FOUND};
        if (draw < 80) return (fault_rule){fault_short, 1 + byte};
        if (draw < 90) return (fault_rule){fault_other, 0};
        if (draw < 100) return (fault_rule){fault_hold, 0};
        if (draw < 110) return (fault_rule){fault_refuse, PKV_ERR_BUSY};
    } else if (kind == PKV_TIER_STORE) {
        if (draw < 40) return (fault_rule){fault_status, PKV_ERR_IO};
        if (draw < 60) return (fault_rule){fault_status, PKV_ERR_NO_SPACE};
        if (draw < 70) return (fault_rule){fault_hold, 0};
        if (draw < 80) return (fault_rule){fault_linger, 0};
    } else if (kind == PKV_TIER_LOOKUP) {
        if (draw < 10) return (fault_rule){fault_status, PKV_ERR_NOT_FOUND};
        if (draw < 13) return (fault_rule){fault_hold, 0};
    }
    return (fault_rule){draw >= 960 ? fault_twice : fault_none, 0};
}

#endif
