/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of single loads share: a faulty tier whose batches are written down, so that a test can say in which order
 * the loads of which blocks came, and sequences whose images have names. */
#ifndef PKV_TESTS_WATCH_H
#define PKV_TESTS_WATCH_H

#include "prefetch/session.h"
#include "tier/faulty.h"

enum { most_watched = 4096, table_step = 1000 /* block b of sequence s is named s * table_step + b */ };

typedef struct {
    pkv_tier_key key;
    uint64_t offset, size;
    int urgent;
} watched_load;

/* Of one tier at a time. */
static struct {
    watched_load loads[most_watched];
    uint64_t num_loads;
    pkv_tier_key last_store; /* of a private image */
    struct {
        pkv_tier_key key;
        int name;
    } names[most_watched];
    uint64_t num_names;
    uint64_t hold_offset; /* loads that begin there are held; UINT64_MAX: none */
    int fault_name;       /* loads of that block go wrong, `fault_times` more times */
    uint64_t fault_times;
    fault_rule fault;
    fault_rule this_batch;
} watched;

static inline int watched_name(const pkv_tier_key *key) {
    for (uint64_t i = watched.num_names; i > 0; --i)
        if (memcmp(&watched.names[i - 1].key, key, sizeof *key) == 0) return watched.names[i - 1].name;
    return -1;
}

/* Under the tier's mutex, before the batch's items are made. */
static inline void watch_batch(faulty *f, const pkv_tier_batch *batch) {
    (void)f;
    watched.this_batch = (fault_rule){fault_none, 0};
    if (batch->kind == PKV_TIER_STORE && batch->tags != NULL &&
        batch->tags[batch->num_items - 1] == PKV_TIER_TAG_PRIVATE)
        watched.last_store = batch->keys[batch->num_items - 1];
    for (uint64_t i = 0; batch->kind == PKV_TIER_LOAD && i < batch->num_items; ++i) {
        if (watched.num_loads == most_watched) break; /* on a thread where nothing may fail */
        watched.loads[watched.num_loads++] =
            (watched_load){batch->keys[i], batch->offsets[i], batch->sizes[i], batch->urgent};
        if (batch->offsets[i] == watched.hold_offset) watched.this_batch = (fault_rule){fault_hold, 0};
        if (watched.fault_times != 0 && watched_name(&batch->keys[i]) == watched.fault_name) {
            --watched.fault_times;
            watched.this_batch = watched.fault;
        }
    }
}

/* Loads come one in a batch. */
static inline fault_rule decide_watched(faulty *f, int kind) {
    (void)f;
    return kind == PKV_TIER_LOAD ? watched.this_batch : (fault_rule){fault_none, 0};
}

static inline faulty *watched_open(void) {
    memset(&watched, 0, sizeof watched);
    watched.hold_offset = UINT64_MAX;
    faulty *f = faulty_open();
    f->watch = watch_batch;
    return f;
}

/* From now on loads that begin at an offset of their image are held. */
static inline void hold_offset(faulty *f, uint64_t offset) {
    pthread_mutex_lock(&f->mutex);
    watched.hold_offset = offset;
    f->decide = decide_watched;
    pthread_mutex_unlock(&f->mutex);
}

/* The next `times` loads of a block go wrong. Which load comes first is not said where several threads begin them. */
static inline void fault_at(faulty *f, int name, uint64_t times, fault what, int64_t value) {
    pthread_mutex_lock(&f->mutex);
    watched.fault_name = name;
    watched.fault_times = times;
    watched.fault = (fault_rule){what, value};
    f->decide = decide_watched;
    pthread_mutex_unlock(&f->mutex);
}

static inline void forget_loads(faulty *f) {
    pthread_mutex_lock(&f->mutex);
    watched.num_loads = 0;
    pthread_mutex_unlock(&f->mutex);
}

static inline uint64_t num_loads(faulty *f) {
    pthread_mutex_lock(&f->mutex);
    const uint64_t count = watched.num_loads;
    pthread_mutex_unlock(&f->mutex);
    return count;
}

static inline watched_load load_at(faulty *f, uint64_t index) {
    pthread_mutex_lock(&f->mutex);
    assert_true(index < watched.num_loads);
    const watched_load load = watched.loads[index];
    pthread_mutex_unlock(&f->mutex);
    return load;
}

static inline void name_image(const pkv_tier_key *key, int name) {
    assert_true(watched.num_names < most_watched);
    watched.names[watched.num_names].key = *key;
    watched.names[watched.num_names++].name = name;
}

/* The block whose image a load asked for; -1: none that has a name. */
static inline int name_of_load(faulty *f, uint64_t index) {
    const watched_load load = load_at(f, index);
    return watched_name(&load.key);
}

/* The loads since forget_loads() were those of these blocks, in this order. */
static inline void assert_loads(faulty *f, uint64_t count, const int *names) {
    assert_int_equal(num_loads(f), count);
    for (uint64_t i = 0; i < count; ++i)
        if (name_of_load(f, i) != names[i])
            fail_msg("load %llu is of %d, not %d", (unsigned long long)i, name_of_load(f, i), names[i]);
}

/* Moves blocks of a sequence down, and names their images. */
static inline void spill_named(faulty *f, pkv_table *table, int sequence, uint64_t first, uint64_t count) {
    for (uint64_t block = first; block < first + count; ++block) {
        pkv_spill_result result = PKV_SPILL_RESULT_INIT;
        assert_ok(pkv_table_spill(table, block, 1, NULL, &result));
        assert_int_equal(result.spilled_blocks, 1);
        pthread_mutex_lock(&f->mutex);
        name_image(&watched.last_store, sequence * table_step + (int)block);
        pthread_mutex_unlock(&f->mutex);
    }
}

/* A sequence of whole blocks without names, so that nothing of it is ever published, whose first `absent` blocks are spilled. */
static inline pkv_table *spilled_sequence(pkv_pool *pool, faulty *f, int sequence, uint64_t blocks, uint64_t absent) {
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(pool, &prompt, NULL);
    assert_ok(pkv_table_reserve(table, blocks * tiered_page_tokens));
    write_and_commit(table, blocks * tiered_page_tokens, (uint32_t)sequence);
    spill_named(f, table, sequence, 0, absent);
    return table;
}

/* Names the images of a prompt's blocks: tokens first, first + 1 ... */
static inline void name_prompt(pkv_pool *pool, int sequence, pkv_token first, uint64_t num_tokens) {
    pkv_token tokens[256];
    pkv_tier_key keys[64];
    uint64_t count = 0;
    count_up(tokens, num_tokens, first);
    const pkv_prompt prompt = prompt_of(tokens, num_tokens);
    assert_ok(pkv_pool_image_keys(pool, 0, &prompt, keys, 64, &count));
    for (uint64_t i = 0; i < count; ++i) name_image(&keys[i], sequence * table_step + (int)i);
}

/* From now on loads go well, and those that were to be held end, too: also those that have not got so far yet. */
static inline void let_all_go(faulty *f) {
    faulty_behave(f);
    faulty_block(f, false);
    while (faulty_waiting(f) != 0) usleep(300);
    faulty_let_go(f);
}

/* Lets go of what is held, or unblocks the worker, on another thread and some time later. */
typedef struct {
    pthread_t thread;
    faulty *tier;
    unsigned milliseconds;
    bool done;
} later;

static inline void *let_go_later(void *context) {
    later *l = context;
    usleep(1000 * l->milliseconds);
    __atomic_store_n(&l->done, true, __ATOMIC_RELEASE);
    let_all_go(l->tier);
    return NULL;
}

static inline void begin_later(later *l, faulty *f, unsigned milliseconds) {
    l->tier = f;
    l->milliseconds = milliseconds;
    l->done = false;
    assert_int_equal(pthread_create(&l->thread, NULL, let_go_later, l), 0);
}

/* True if it had happened by now. */
static inline bool end_later(later *l) {
    const bool done = __atomic_load_n(&l->done, __ATOMIC_ACQUIRE);
    pthread_join(l->thread, NULL);
    return done;
}

#endif
