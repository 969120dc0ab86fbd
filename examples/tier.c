/* SPDX-License-Identifier: Apache-2.0 */
/* A tier of one's own: page images in a hash table of malloc'ed memory, kept by a worker thread; and a small pool over it.
 *
 * This is a template. The library hands over batches (submit), and whoever keeps the images says for each item what became
 * of it (pkv_tier_complete), from any thread, once. Replace `serve` and what it calls by a network, a database, an object
 * store, something that compresses; what has to stay is that submit does not wait, and that every item of a batch that was
 * taken is completed.
 *
 * What a tier gives back is checked by the library. A fault here costs hits, and never makes a wrong result. */
#include <pagedkv/pagedkv.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the tier ---------------------------------------------------------------------------------------------------- */

enum { BUCKETS = 1024 };

typedef struct image {
    struct image *next; /* in its bucket */
    pkv_tier_key key;
    uint64_t tag;  /* its namespace, for PKV_TIER_CLEAR */
    uint64_t pins; /* above 0: a live sequence counts on it, so it must not be forgotten */
    uint64_t bytes;
    unsigned char *data;
} image;

/* A batch that waits for the worker. The library keeps the lists of a batch, and the memory that they point to, until its
 * last item was completed. The pkv_tier_batch itself it does not keep: that is copied. */
typedef struct job {
    struct job *next;
    pkv_tier_batch batch;
} job;

typedef struct store {
    pthread_t worker;
    pthread_mutex_t mutex;
    pthread_cond_t filled;
    /* under the mutex */
    job *first, **last; /* the queue */
    bool stop;
    pkv_tier_usage shown; /* `usage`, as of the last item */
    /* the worker's alone */
    pkv_tier_usage usage;
    image *buckets[BUCKETS];
    unsigned hand; /* the bucket where room was made last */
} store;

/* Where the pointer to the image of a key stands, or would. Keys are good hashes already. */
static image **find(store *s, const pkv_tier_key *key) {
    image **at = &s->buckets[(key->bytes[0] | key->bytes[1] << 8) % BUCKETS];
    while (*at != NULL && memcmp((*at)->key.bytes, key->bytes, sizeof key->bytes) != 0) at = &(*at)->next;
    return at;
}

static void pin(store *s, image *one) { s->usage.pinned_images += ++one->pins == 1; }

static void unpin(store *s, image *one) { s->usage.pinned_images -= --one->pins == 0; }

static void forget(store *s, image **at) {
    image *const one = *at;
    *at = one->next;
    s->usage.pinned_images -= one->pins > 0;
    s->usage.used_bytes -= one->bytes;
    --s->usage.images;
    free(one->data);
    free(one);
}

/* Any unpinned image may go, at any time. Here it is the next one, round and round; a tier for real use looks at retention
 * (pkv_tier_batch.retention, PKV_TIER_RETAIN) and at the last use (PKV_TIER_LOOKUP). */
static bool make_room(store *s, uint64_t bytes) {
    for (unsigned tried = 0; s->usage.used_bytes + bytes > s->usage.capacity_bytes && tried < BUCKETS;) {
        image **at = &s->buckets[s->hand];
        while (*at != NULL && (*at)->pins > 0) at = &(*at)->next;
        if (*at != NULL) {
            forget(s, at);
            ++s->usage.evicted_images;
        } else {
            s->hand = (s->hand + 1) % BUCKETS;
            ++tried;
        }
    }
    return s->usage.used_bytes + bytes <= s->usage.capacity_bytes;
}

static pkv_status keep(store *s, const pkv_tier_batch *batch, uint64_t i) {
    image **at = find(s, &batch->keys[i]);
    if (*at == NULL) { /* else it is kept as it is, and counts as stored */
        const uint64_t bytes = batch->sizes[i];
        if (!make_room(s, bytes)) return PKV_ERR_NO_SPACE;
        image *const one = calloc(1, sizeof *one);
        if (one != NULL) one->data = malloc(bytes);
        if (one == NULL || one->data == NULL) {
            free(one);
            return PKV_ERR_NO_MEMORY;
        }
        memcpy(one->data, batch->data[i], bytes);
        one->key = batch->keys[i];
        one->tag = batch->tags[i];
        one->bytes = bytes;
        at = find(s, &batch->keys[i]); /* make_room may have freed what `at` was part of */
        *at = one;
        s->usage.used_bytes += bytes;
        ++s->usage.images;
    }
    if ((batch->flags & PKV_TIER_PIN) != 0) pin(s, *at);
    return PKV_OK;
}

static void clear(store *s, uint64_t tag) {
    for (int bucket = 0; bucket < BUCKETS; ++bucket)
        for (image **at = &s->buckets[bucket]; *at != NULL;)
            if ((*at)->tag == tag || (tag == PKV_TIER_TAG_ALL && (*at)->tag != PKV_TIER_TAG_PRIVATE))
                forget(s, at);
            else
                at = &(*at)->next;
}

/* What becomes of item i: its status, and in *value what pkv_tier_complete is told besides. */
static pkv_status serve(store *s, const pkv_tier_batch *batch, uint64_t i, uint64_t *value) {
    if (batch->kind == PKV_TIER_CLEAR) { /* has tags, and no keys */
        clear(s, batch->tags[i]);
        return PKV_OK;
    }
    if (batch->kind == PKV_TIER_STORE) return keep(s, batch, i);
    image **const at = find(s, &batch->keys[i]);
    image *const one = *at;
    if (one == NULL) return batch->kind == PKV_TIER_REMOVE ? PKV_OK : PKV_ERR_NOT_FOUND;
    switch (batch->kind) {
    case PKV_TIER_LOOKUP:
        if ((batch->flags & PKV_TIER_PIN) != 0) pin(s, one);
        *value = one->bytes;
        return PKV_OK;
    case PKV_TIER_PROBE: *value = one->bytes; return PKV_OK;
    case PKV_TIER_LOAD: /* of the image, or of a part of it */
        if (batch->sizes[i] > one->bytes || batch->offsets[i] > one->bytes - batch->sizes[i]) return PKV_ERR_INVALID;
        memcpy(batch->data[i], one->data + batch->offsets[i], batch->sizes[i]);
        *value = batch->sizes[i];
        return PKV_OK;
    case PKV_TIER_REMOVE:
        if (one->pins > 0 && (batch->flags & PKV_TIER_FORCE) == 0) return PKV_ERR_BUSY;
        forget(s, at);
        return PKV_OK;
    case PKV_TIER_UNPIN:
        if (one->pins == 0) return PKV_ERR_NOT_FOUND;
        unpin(s, one);
        return PKV_OK;
    case PKV_TIER_RETAIN: return PKV_OK; /* see make_room */
    default: return PKV_ERR_UNSUPPORTED; /* kinds of later versions */
    }
}

static void *work(void *context) {
    store *const s = context;
    for (;;) {
        pthread_mutex_lock(&s->mutex);
        while (s->first == NULL && !s->stop) pthread_cond_wait(&s->filled, &s->mutex);
        job *const one = s->first;
        if (one != NULL && (s->first = one->next) == NULL) s->last = &s->first;
        pthread_mutex_unlock(&s->mutex);
        if (one == NULL) return NULL;
        const uint64_t count = one->batch.num_items;
        for (uint64_t i = 0; i < count; ++i) {
            uint64_t value = 0;
            const pkv_status status = serve(s, &one->batch, i, &value);
            pthread_mutex_lock(&s->mutex);
            s->shown = s->usage;
            pthread_mutex_unlock(&s->mutex);
            /* With no lock held: whoever waits for the item goes on at once, and may come back through submit. After the
             * last item the lists of the batch are gone. */
            (void)pkv_tier_complete(one->batch.request, i, status, value);
        }
        free(one);
    }
}

static pkv_status submit(void *context, const pkv_tier_batch *batch) {
    store *const s = context;
    job *const one = malloc(sizeof *one);
    if (one == NULL) return PKV_ERR_NO_MEMORY; /* nothing was taken: the library ends the items itself */
    one->next = NULL;
    one->batch = *batch;
    pthread_mutex_lock(&s->mutex);
    *s->last = one;
    s->last = &one->next;
    pthread_cond_signal(&s->filled);
    pthread_mutex_unlock(&s->mutex);
    return PKV_OK;
}

static void usage(void *context, pkv_tier_usage *usage) {
    store *const s = context;
    pthread_mutex_lock(&s->mutex);
    *usage = s->shown;
    pthread_mutex_unlock(&s->mutex);
}

/* Called once, when no pool uses the tier any more and no request is open. */
static void stop(void *context) {
    store *const s = context;
    pthread_mutex_lock(&s->mutex);
    s->stop = true;
    pthread_cond_signal(&s->filled);
    pthread_mutex_unlock(&s->mutex);
    (void)pthread_join(s->worker, NULL);
    for (int bucket = 0; bucket < BUCKETS; ++bucket)
        while (s->buckets[bucket] != NULL) forget(s, &s->buckets[bucket]);
    (void)pthread_cond_destroy(&s->filled);
    (void)pthread_mutex_destroy(&s->mutex);
    free(s);
}

static pkv_status open_tier(uint64_t capacity_bytes, pkv_tier **tier) {
    const pkv_tier_usage empty = PKV_TIER_USAGE_INIT;
    pkv_tier_ops ops; /* what stays NULL is not needed: nothing is cancelled, or looked at in place */
    memset(&ops, 0, sizeof ops);
    ops.struct_size = sizeof ops;
    ops.name = "example";
    ops.submit = submit;
    ops.usage = usage;
    ops.close = stop;
    store *const s = calloc(1, sizeof *s);
    if (s == NULL) return PKV_ERR_NO_MEMORY;
    s->last = &s->first;
    s->usage = empty;
    s->usage.capacity_bytes = capacity_bytes;
    s->shown = s->usage;
    (void)pthread_mutex_init(&s->mutex, NULL);
    (void)pthread_cond_init(&s->filled, NULL);
    if (pthread_create(&s->worker, NULL, work, s) != 0) {
        free(s);
        return PKV_ERR_NO_MEMORY;
    }
    const pkv_status status = pkv_tier_open(&ops, s, tier);
    if (status != PKV_OK) stop(s); /* the context is the library's only from here on */
    return status;
}

/* ---- a pool over it ---------------------------------------------------------------------------------------------- */

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        const pkv_status status_ = (call);                                                                             \
        char message_[256] = "";                                                                                       \
        if (status_ != PKV_OK) {                                                                                       \
            (void)pkv_last_error(message_, sizeof message_);                                                           \
            fprintf(stderr, "%s: %s: %s\n", #call, pkv_status_string(status_), message_);                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { LAYERS = 2, HEAD_DIM = 64, PAGE_TOKENS = 16, PAGES = 16, TOKENS = 240 };

static float rows[2][TOKENS * HEAD_DIM]; /* K and V of one layer */

/* Stands in for the model. */
static float model(uint32_t layer, int kind, uint64_t token, int element) {
    return (float)(token * 100 + layer * 10 + (uint64_t)kind) + (float)element / HEAD_DIM;
}

static pkv_tensor tensor(int kind) {
    pkv_tensor tensor = PKV_TENSOR_INIT;
    tensor.data = rows[kind];
    tensor.dtype = PKV_DTYPE_F32;
    tensor.num_tokens = TOKENS;
    return tensor;
}

static pkv_pool *make_pool(pkv_tier *tier) {
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = PAGES;
    group.num_layers = LAYERS;
    group.num_kv_heads = 1;
    group.k_head_dim = group.v_head_dim = HEAD_DIM;
    group.dtype = PKV_DTYPE_F32;
    pkv_tier_attachment below = PKV_TIER_ATTACHMENT_INIT;
    below.tier = tier;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = PAGE_TOKENS;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = &below;
    options.num_tiers = 1;
    pkv_pool *pool;
    CHECK(pkv_pool_create(&options, &pool));
    return pool;
}

static pkv_table *admit(pkv_pool *pool, pkv_match *match) {
    pkv_token tokens[TOKENS];
    for (int t = 0; t < TOKENS; ++t) tokens[t] = 1000 + t;
    pkv_prompt prompt = PKV_PROMPT_INIT;
    prompt.tokens = tokens;
    prompt.num_tokens = TOKENS;
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.max_match = PKV_MATCH_ALL;
    pkv_table *table;
    CHECK(pkv_table_create(pool, &table));
    CHECK(pkv_table_admit(table, &prompt, &options, match));
    return table;
}

/* Fills in the rows of a layer, or compares what was gathered with them: returns how many elements are wrong. */
static int each_element(uint32_t layer, bool compare) {
    int wrong = 0;
    for (int kind = 0; kind < 2; ++kind)
        for (int i = 0; i < TOKENS * HEAD_DIM; ++i) {
            const float value = model(layer, kind, (uint64_t)(i / HEAD_DIM), i % HEAD_DIM);
            if (!compare) rows[kind][i] = value;
            wrong += memcmp(&rows[kind][i], &value, sizeof value) != 0;
        }
    return wrong;
}

int main(void) {
    pkv_tier *tier;
    pkv_match match = PKV_MATCH_INIT;
    const pkv_tensor k = tensor(0), v = tensor(1);
    CHECK(open_tier(1 << 20, &tier));
    pkv_pool *const pool = make_pool(tier);

    /* A sequence is computed and ends; its pages are stored, and then wanted for something else. */
    pkv_table *table = admit(pool, &match);
    for (uint32_t layer = 0; layer < LAYERS; ++layer) {
        (void)each_element(layer, false);
        CHECK(pkv_table_write(table, 0, layer, 0, TOKENS, &k, &v, NULL));
    }
    CHECK(pkv_table_commit(table, TOKENS, NULL));
    CHECK(pkv_table_destroy(table, NULL));
    CHECK(pkv_pool_flush(pool, UINT64_C(10000000000)));
    uint64_t evicted = 0;
    CHECK(pkv_pool_evict(pool, 0, PAGES, &evicted));

    /* It comes back. */
    uint64_t restored = 0;
    int wrong = 0;
    table = admit(pool, &match);
    CHECK(pkv_table_restore(table, 0, UINT64_MAX, UINT64_C(10000000000), &restored));
    for (uint32_t layer = 0; layer < LAYERS; ++layer) {
        memset(rows, 0xff, sizeof rows);
        CHECK(pkv_table_gather(table, 0, layer, 0, TOKENS, &k, &v, NULL));
        wrong += each_element(layer, true);
    }

    pkv_tier_stats stats = PKV_TIER_STATS_INIT;
    CHECK(pkv_tier_get_stats(tier, &stats));
    printf("tokens found in the tier     %6d of %d\n", (int)match.tier_tokens[0], TOKENS);
    printf("pages evicted, restored      %6d, %d\n", (int)evicted, (int)restored);
    printf("images stored, loaded        %6d, %d\n", (int)stats.stores, (int)stats.loads);
    printf("bytes in the tier            %6d in %d images\n", (int)stats.usage.used_bytes, (int)stats.usage.images);
    printf("wrong elements               %6d\n", wrong);
    const bool good = wrong == 0 && match.tier_tokens[0] == TOKENS && restored == TOKENS / PAGE_TOKENS &&
                      stats.loads == restored && stats.checksum_failures == 0;

    /* In any order: the pool keeps the tier as long as it needs it. */
    CHECK(pkv_tier_close(tier));
    CHECK(pkv_table_destroy(table, NULL));
    CHECK(pkv_pool_destroy(pool));
    return good ? 0 : 1;
}
