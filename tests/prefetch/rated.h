/* SPDX-License-Identifier: Apache-2.0 */
/* A tier in memory whose loads take the time that a test says: a latency, and the bytes' time on one wire that carries one
 * load after another. n loads of s bytes handed over at once have all arrived after latency + n * s / bandwidth. Stores,
 * lookups and the rest are done at once, before `submit` returns.
 *
 * Times on the wire are computed and not measured: a thread that wakes up late makes one load late, not those behind it. */
#ifndef PKV_TESTS_RATED_H
#define PKV_TESTS_RATED_H

#include "tier/tiered.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>

/* ---- what a test may ask for ---- */

typedef enum {
    rated_good,
    rated_fails, /* ends with status `value`, after its time */
    rated_flips, /* bit 0 of byte `value` of what was asked for is another */
    rated_never, /* is not answered until it is cancelled, or rated_let_go() */
} rated_what;

typedef struct {
    rated_what what;
    int64_t value;
} rated_fault;

/* A load, as it is shown to the function that decides about faults. */
typedef struct {
    const pkv_tier_key *key;
    uint64_t number; /* 0, 1, 2 ... in the order in which they are handed over */
    uint64_t offset, size;
    bool urgent;
} rated_load;

typedef rated_fault (*rated_decide)(void *user, const rated_load *load);

/* Counters, of one moment. */
typedef struct {
    uint64_t loads;     /* handed over */
    uint64_t urgent;    /* of them */
    uint64_t cancelled; /* of them, those that ended without their time on the wire */
    uint64_t carried;   /* loads whose time on the wire has begun */
    uint64_t bytes;     /* of these */
    uint64_t wire_ns;   /* and their time there */
    uint64_t waiting;   /* loads that wait for the wire now */
    uint64_t held;      /* loads that are not answered */
    uint64_t images;
} rated_counts;

/* ---- the tier ---- */

typedef struct rated_image {
    struct rated_image *next, *later; /* in its bucket; of all, in the order of their stores */
    pkv_tier_key key;
    uint64_t bytes, tag, pins;
    unsigned char *data;
} rated_image;

typedef struct {
    uint64_t left; /* items under way */
} rated_own;

typedef struct rated_item {
    struct rated_item *next;
    pkv_tier_request *request;
    rated_own *own; /* or who reads without the library */
    uint64_t item, offset, size, submitted_at, due;
    pkv_tier_key key;
    unsigned char *data;
    rated_fault fault;
    pkv_status status;
    bool urgent;
} rated_item;

typedef struct {
    rated_item *first, *last;
    uint64_t length;
} rated_list;

enum { rated_buckets = 1024, rated_spin_ns = 30000 };

typedef struct {
    pkv_tier *tier;
    pthread_t worker;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* for the worker */
    pthread_cond_t arrived; /* for rated_read() and rated_end() */
    uint64_t latency_ns;
    uint64_t bytes_per_second; /* 0: no time on the wire */
    rated_decide decide;
    void *user;
    bool deaf;   /* loads that are not answered are not answered when they are cancelled either */
    bool closed; /* by the library */
    rated_image *images[rated_buckets], *first_image, *last_image;
    rated_list urgent, ahead; /* wait for the wire */
    rated_list arriving;      /* on the wire or behind it, by due time */
    rated_list held;          /* never answered */
    rated_list ended;         /* answered as soon as the worker is there */
    uint64_t wire_free_at;
    rated_counts counts;
} rated;

static inline uint64_t rated_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * one_second + (uint64_t)now.tv_nsec;
}

static inline struct timespec rated_time(uint64_t ns) {
    const struct timespec time = {(time_t)(ns / one_second), (long)(ns % one_second)};
    return time;
}

/* Sleeps until a time of rated_now(). The end is waited for awake: timers come late by tens of microseconds. */
static inline void rated_sleep_until(uint64_t until) {
    if (rated_now() + rated_spin_ns < until) {
        const struct timespec time = rated_time(until - rated_spin_ns);
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0) {
        }
    }
    while (rated_now() < until) {
    }
}

static inline void rated_append(rated_list *list, rated_item *item) {
    item->next = NULL;
    if (list->first == NULL)
        list->first = item;
    else
        list->last->next = item;
    list->last = item;
    ++list->length;
}

static inline rated_item *rated_take(rated_list *list) {
    rated_item *item = list->first;
    if (item == NULL) return NULL;
    list->first = item->next;
    --list->length;
    return item;
}

/* Moves the items of a request, or all of them, from one list to the end of another, with a status. */
static inline void rated_move(rated_list *from, rated_list *to, const pkv_tier_request *request, pkv_status status) {
    rated_list kept = {NULL, NULL, 0};
    rated_item *item;
    while ((item = rated_take(from)) != NULL) {
        if (request != NULL && item->request != request) {
            rated_append(&kept, item);
            continue;
        }
        item->status = status;
        rated_append(to, item);
    }
    *from = kept;
}

static inline rated_image **rated_bucket(rated *r, const pkv_tier_key *key) {
    uint64_t number; /* keys are digests, or random: any part of one will do */
    memcpy(&number, key->bytes, sizeof number);
    return &r->images[number % rated_buckets];
}

static inline rated_image *rated_find(rated *r, const pkv_tier_key *key) {
    rated_image *image = *rated_bucket(r, key);
    while (image != NULL && memcmp(&image->key, key, sizeof *key) != 0) image = image->next;
    return image;
}

static inline void rated_forget(rated *r, rated_image *image) {
    rated_image **at = rated_bucket(r, &image->key);
    while (*at != image) at = &(*at)->next;
    *at = image->next;
    rated_image *before = NULL;
    for (rated_image *other = r->first_image; other != image; other = other->later) before = other;
    if (before == NULL)
        r->first_image = image->later;
    else
        before->later = image->later;
    if (r->last_image == image) r->last_image = before;
    --r->counts.images;
    free(image->data);
    free(image);
}

static inline void rated_store(rated *r, const pkv_tier_batch *batch, uint64_t i) {
    rated_image *image = rated_find(r, &batch->keys[i]);
    if (image == NULL) {
        image = calloc(1, sizeof *image);
        image->key = batch->keys[i];
        image->bytes = batch->sizes[i];
        image->tag = batch->tags != NULL ? batch->tags[i] : PKV_TIER_TAG_PRIVATE;
        image->data = malloc(image->bytes);
        memcpy(image->data, batch->data[i], image->bytes);
        rated_image **bucket = rated_bucket(r, &image->key);
        image->next = *bucket;
        *bucket = image;
        if (r->last_image == NULL)
            r->first_image = image;
        else
            r->last_image->later = image;
        r->last_image = image;
        ++r->counts.images;
    }
    image->pins += (batch->flags & PKV_TIER_PIN) != 0;
}

/* Every kind but loads. */
static inline pkv_status rated_do(rated *r, const pkv_tier_batch *batch, uint64_t i, uint64_t *value) {
    if (batch->kind == PKV_TIER_STORE) {
        rated_store(r, batch, i);
        return PKV_OK;
    }
    if (batch->kind == PKV_TIER_CLEAR) {
        for (rated_image *image = r->first_image, *later; image != NULL; image = later) {
            later = image->later;
            const bool named =
                batch->tags[i] == PKV_TIER_TAG_ALL ? image->tag != PKV_TIER_TAG_PRIVATE : image->tag == batch->tags[i];
            if (named) rated_forget(r, image);
        }
        return PKV_OK;
    }
    rated_image *image = rated_find(r, &batch->keys[i]);
    if (batch->kind == PKV_TIER_REMOVE) {
        if (image != NULL && image->pins != 0 && (batch->flags & PKV_TIER_FORCE) == 0) return PKV_ERR_BUSY;
        if (image != NULL) rated_forget(r, image);
        return PKV_OK;
    }
    if (image == NULL) return PKV_ERR_NOT_FOUND;
    if (batch->kind == PKV_TIER_UNPIN) {
        if (image->pins == 0) return PKV_ERR_NOT_FOUND;
        --image->pins;
    } else if (batch->kind == PKV_TIER_LOOKUP || batch->kind == PKV_TIER_PROBE) {
        *value = image->bytes;
        if (batch->kind == PKV_TIER_LOOKUP) image->pins += (batch->flags & PKV_TIER_PIN) != 0;
    }
    return PKV_OK; /* retention is nothing to a tier that does not evict */
}

/* Takes a load in, which the caller has filled in as far as it knows it; with the mutex held. */
static inline void rated_begin(rated *r, rated_item *item) {
    const rated_load load = {&item->key, r->counts.loads, item->offset, item->size, item->urgent};
    if (r->decide != NULL) item->fault = r->decide(r->user, &load);
    item->submitted_at = rated_now();
    ++r->counts.loads;
    r->counts.urgent += item->urgent;
    rated_append(item->fault.what == rated_never ? &r->held : item->urgent ? &r->urgent : &r->ahead, item);
}

/* Puts a load on the wire, which is free: its bytes are put in place and its end is known from here on. */
static inline void rated_carry(rated *r, rated_item *item) {
    const uint64_t begin = item->submitted_at > r->wire_free_at ? item->submitted_at : r->wire_free_at;
    const uint64_t time =
        r->bytes_per_second == 0 ? 0 : (uint64_t)((double)item->size / (double)r->bytes_per_second * 1e9);
    r->wire_free_at = begin + time;
    item->due = r->wire_free_at + r->latency_ns;
    ++r->counts.carried;
    r->counts.bytes += item->size;
    r->counts.wire_ns += time;

    const rated_image *image = rated_find(r, &item->key);
    if (item->fault.what == rated_fails) {
        item->status = (pkv_status)item->fault.value;
    } else if (image == NULL) {
        item->status = PKV_ERR_NOT_FOUND;
    } else if (item->offset > image->bytes || item->size > image->bytes - item->offset) {
        item->status = PKV_ERR_INVALID;
    } else {
        memcpy(item->data, image->data + item->offset, item->size);
        if (item->fault.what == rated_flips) item->data[(uint64_t)item->fault.value] ^= 1;
    }

    rated_item **at = &r->arriving.first; /* in front of what is due later: latencies may have changed */
    while (*at != NULL && (*at)->due <= item->due) at = &(*at)->next;
    item->next = *at;
    *at = item;
}

/* Answers one load, without the mutex: the library may call the tier from there. */
static inline void rated_answer(rated *r, rated_item *item) {
    if (item->own != NULL) {
        pthread_mutex_lock(&r->mutex);
        if (--item->own->left == 0) pthread_cond_broadcast(&r->arrived);
        pthread_mutex_unlock(&r->mutex);
    } else {
        pkv_tier_complete(item->request, item->item, item->status, item->status == PKV_OK ? item->size : 0);
    }
    free(item);
}

/* What comes next, if it is time: an item to be answered. Puts loads on the wire. Without one, *next is when to look again. */
static inline rated_item *rated_next(rated *r, uint64_t *next) {
    *next = UINT64_MAX;
    if (r->ended.first != NULL) return rated_take(&r->ended);
    const uint64_t now = rated_now();
    while ((r->urgent.first != NULL || r->ahead.first != NULL) && r->wire_free_at <= now)
        rated_carry(r, rated_take(r->urgent.first != NULL ? &r->urgent : &r->ahead));
    rated_item *item = r->arriving.first;
    if (item != NULL && item->due <= now) {
        r->arriving.first = item->next;
        return item;
    }
    if (item != NULL) *next = item->due;
    if ((r->urgent.first != NULL || r->ahead.first != NULL) && r->wire_free_at < *next) *next = r->wire_free_at;
    return NULL;
}

static inline void *rated_run(void *context) {
    rated *r = context;
    prctl(PR_SET_TIMERSLACK, 1ul); /* of this thread only */
    pthread_mutex_lock(&r->mutex);
    while (!r->closed) {
        uint64_t next;
        rated_item *item = rated_next(r, &next);
        if (item != NULL) {
            pthread_mutex_unlock(&r->mutex);
            rated_answer(r, item);
            pthread_mutex_lock(&r->mutex);
        } else if (next == UINT64_MAX) {
            pthread_cond_wait(&r->changed, &r->mutex);
        } else if (rated_now() + rated_spin_ns < next) {
            const struct timespec time = rated_time(next - rated_spin_ns);
            pthread_cond_timedwait(&r->changed, &r->mutex, &time);
        } else {
            pthread_mutex_unlock(&r->mutex);
            while (rated_now() < next) {
            }
            pthread_mutex_lock(&r->mutex);
        }
    }
    pthread_cond_broadcast(&r->arrived);
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

/* ---- what the library calls ---- */

static inline pkv_status rated_submit(void *context, const pkv_tier_batch *batch) {
    rated *r = context;
    pkv_tier_request *request = batch->request;
    const uint64_t num_items = batch->num_items; /* the batch goes with the answer to its last item */
    if (batch->kind != PKV_TIER_LOAD) {
        for (uint64_t i = 0; i < num_items; ++i) {
            uint64_t value = 0;
            pthread_mutex_lock(&r->mutex);
            const pkv_status status = rated_do(r, batch, i, &value);
            pthread_mutex_unlock(&r->mutex);
            pkv_tier_complete(request, i, status, value);
        }
        return PKV_OK;
    }
    pthread_mutex_lock(&r->mutex);
    for (uint64_t i = 0; i < num_items; ++i) {
        rated_item *item = calloc(1, sizeof *item);
        item->request = request;
        item->item = i;
        item->key = batch->keys[i];
        item->data = batch->data[i];
        item->offset = batch->offsets[i];
        item->size = batch->sizes[i];
        item->urgent = batch->urgent != 0;
        rated_begin(r, item);
    }
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->mutex);
    return PKV_OK;
}

/* What has begun on the wire arrives all the same. */
static inline void rated_cancel(void *context, pkv_tier_request *request) {
    rated *r = context;
    pthread_mutex_lock(&r->mutex);
    const uint64_t before = r->ended.length;
    rated_move(&r->urgent, &r->ended, request, PKV_ERR_CANCELLED);
    rated_move(&r->ahead, &r->ended, request, PKV_ERR_CANCELLED);
    if (!r->deaf) rated_move(&r->held, &r->ended, request, PKV_ERR_CANCELLED);
    r->counts.cancelled += r->ended.length - before;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->mutex);
}

static inline void rated_usage(void *context, pkv_tier_usage *usage) {
    rated *r = context;
    pthread_mutex_lock(&r->mutex);
    for (const rated_image *image = r->first_image; image != NULL; image = image->later) {
        ++usage->images;
        usage->pinned_images += image->pins != 0;
        usage->used_bytes += image->bytes;
    }
    usage->capacity_bytes = usage->used_bytes; /* there is no end to it */
    pthread_mutex_unlock(&r->mutex);
}

static inline void rated_close(void *context) {
    rated *r = context;
    pthread_mutex_lock(&r->mutex);
    r->closed = true;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->mutex);
}

/* ---- for tests ---- */

static inline rated *rated_open(uint64_t latency_ns, uint64_t bytes_per_second) {
    rated *r = calloc(1, sizeof *r);
    r->latency_ns = latency_ns;
    r->bytes_per_second = bytes_per_second;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->changed, &monotonic);
    pthread_cond_init(&r->arrived, NULL);
    pthread_condattr_destroy(&monotonic);
    pkv_tier_ops ops = {0};
    ops.struct_size = sizeof ops;
    ops.name = "rated";
    ops.submit = rated_submit;
    ops.cancel = rated_cancel;
    ops.usage = rated_usage;
    ops.close = rated_close;
    assert_int_equal(pthread_create(&r->worker, NULL, rated_run, r), 0);
    assert_ok(pkv_tier_open(&ops, r, &r->tier));
    return r;
}

/* For loads that are not on the wire yet. */
static inline void rated_set(rated *r, uint64_t latency_ns, uint64_t bytes_per_second) {
    pthread_mutex_lock(&r->mutex);
    r->latency_ns = latency_ns;
    r->bytes_per_second = bytes_per_second;
    pthread_mutex_unlock(&r->mutex);
}

/* From now on `decide` says what becomes of each load that is handed over. It is called with the tier's mutex held. NULL: all
 * go well. `deaf`: cancelling does not help loads that are not answered. */
static inline void rated_faults(rated *r, rated_decide decide, void *user, bool deaf) {
    pthread_mutex_lock(&r->mutex);
    r->decide = decide;
    r->user = user;
    r->deaf = deaf;
    pthread_mutex_unlock(&r->mutex);
}

/* Loads that were not answered end with PKV_ERR_CANCELLED. */
static inline void rated_let_go(rated *r) {
    pthread_mutex_lock(&r->mutex);
    r->counts.cancelled += r->held.length;
    rated_move(&r->held, &r->ended, NULL, PKV_ERR_CANCELLED);
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->mutex);
}

static inline rated_counts rated_count(rated *r) {
    pthread_mutex_lock(&r->mutex);
    rated_counts counts = r->counts;
    counts.waiting = r->urgent.length + r->ahead.length;
    counts.held = r->held.length;
    pthread_mutex_unlock(&r->mutex);
    return counts;
}

/* Reads the same range of every image, without the library, and waits for all of them: what a loader does that knows nothing
 * but this tier. The bytes stand one after another, in the order in which the images were stored. */
static inline void rated_read(rated *r, uint64_t offset, uint64_t size, unsigned char *data) {
    rated_own own = {0};
    pthread_mutex_lock(&r->mutex);
    for (const rated_image *image = r->first_image; image != NULL; image = image->later) {
        rated_item *item = calloc(1, sizeof *item);
        item->own = &own;
        item->key = image->key;
        item->offset = offset;
        item->size = size;
        item->data = data + own.left++ * size;
        item->urgent = true;
        rated_begin(r, item);
    }
    pthread_cond_signal(&r->changed);
    while (own.left != 0) pthread_cond_wait(&r->arrived, &r->mutex);
    pthread_mutex_unlock(&r->mutex);
}

/* The tier after its pools are gone: lets go of what is not answered, waits for the library's close, frees all. */
static inline void rated_end(rated *r) {
    rated_faults(r, NULL, NULL, false);
    rated_let_go(r);
    assert_ok(pkv_tier_close(r->tier));
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 60;
    pthread_mutex_lock(&r->mutex);
    int waited = 0;
    while (!r->closed && waited == 0) waited = pthread_cond_timedwait(&r->arrived, &r->mutex, &limit);
    const bool closed = r->closed;
    pthread_mutex_unlock(&r->mutex);
    if (!closed) fail_msg("the tier was not closed");
    pthread_join(r->worker, NULL);
    assert_true(r->urgent.first == NULL && r->ahead.first == NULL && r->arriving.first == NULL &&
                r->held.first == NULL && r->ended.first == NULL);
    while (r->first_image != NULL) rated_forget(r, r->first_image);
    pthread_mutex_destroy(&r->mutex);
    pthread_cond_destroy(&r->changed);
    pthread_cond_destroy(&r->arrived);
    free(r);
}

#endif
