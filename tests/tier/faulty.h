/* SPDX-License-Identifier: Apache-2.0 */
/* A tier in plain C whose behaviour a test writes down: a store of images, one thread that serves items in order, and rules
 * for what goes wrong. Without rules it is a good tier. */
#ifndef PKV_TESTS_FAULTY_H
#define PKV_TESTS_FAULTY_H

#include "tier/tiered.h"

#include <pthread.h>
#include <unistd.h>

/* What happens to an item. */
typedef enum {
    fault_none,
    fault_hold,   /* nothing, until faulty_let_go(): late, out of order, or never. With `value` 1 it lingers then */
    fault_linger, /* it is done, but its completion is held */
    fault_twice,  /* completed twice */
    fault_status, /* ends with status `value`; nothing is done */
    fault_short,  /* LOAD: `value` fewer bytes than were asked for */
    fault_flip,   /* LOAD: bit 0 of byte `value` of the image is another */
    fault_other,  /* LOAD: bytes of another image that the tier has */
    fault_refuse, /* the whole batch is refused with status `value` (looks at its first item) */
} fault;

typedef struct {
    fault what;
    int64_t value;
} fault_rule;

enum { faulty_most_images = 1024, faulty_most_rules = 8, faulty_kinds = 9 };

typedef struct {
    pkv_tier_key key;
    uint64_t bytes, tag, pins, used;
    pkv_retention retention;
    unsigned char *data; /* NULL: a free entry */
} faulty_image;

typedef struct faulty_item {
    struct faulty_item *next;
    pkv_tier_request *request;
    int kind;
    uint32_t flags;
    uint64_t item, offset, size, tag;
    pkv_tier_key key;
    unsigned char *data;
    pkv_retention retention;
    fault_rule fault;
    pkv_status status; /* of one that lingers */
    uint64_t value;
    bool done;
} faulty_item;

typedef struct {
    faulty_item *first, *last;
    uint64_t length;
} faulty_list;

typedef struct faulty {
    pkv_tier *tier;
    pthread_t worker;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    faulty_image images[faulty_most_images];
    uint64_t most_images; /* then those used least recently go */
    uint64_t clock;
    faulty_list waiting, held;
    bool blocked;          /* the thread does nothing */
    bool ending;           /* nothing is held any more */
    bool closed;           /* by the library */
    bool busy;             /* the thread is at an item */
    uint64_t backwards_at; /* so many held items are done at once, the last one first; 0 = never */
    struct {
        int kind; /* 0 = a free entry */
        uint64_t skip, times;
        fault_rule fault;
    } rules[faulty_most_rules];
    fault_rule (*decide)(struct faulty *tier, int kind);             /* instead of the rules; under the mutex */
    void (*watch)(struct faulty *tier, const pkv_tier_batch *batch); /* sees each batch first; under the mutex */
    test_random random;
    uint64_t seen[faulty_kinds]; /* items, by kind */
    const void *last_data;       /* where the last load put its bytes */
} faulty;

/* Waits for what happens on another thread; fails after 60 seconds. */
#define eventually(condition)                                                                                          \
    do {                                                                                                               \
        for (int waited_ = 0; !(condition); ++waited_) {                                                               \
            if (waited_ == 200000) fail_msg("never came true: %s", #condition);                                        \
            usleep(300);                                                                                               \
        }                                                                                                              \
    } while (0)

/* ---- the thread ---- */

static inline void faulty_append(faulty_list *list, faulty_item *item) {
    item->next = NULL;
    if (list->first == NULL)
        list->first = item;
    else
        list->last->next = item;
    list->last = item;
    ++list->length;
}

static inline faulty_item *faulty_take(faulty_list *list) {
    faulty_item *item = list->first;
    if (item == NULL) return NULL;
    list->first = item->next;
    --list->length;
    return item;
}

static inline faulty_image *faulty_find(faulty *f, const pkv_tier_key *key) {
    for (int i = 0; i < faulty_most_images; ++i)
        if (f->images[i].data != NULL && memcmp(&f->images[i].key, key, sizeof *key) == 0) return &f->images[i];
    return NULL;
}

static inline void faulty_forget(faulty_image *image) {
    free(image->data);
    memset(image, 0, sizeof *image);
}

static inline faulty_image *faulty_room(faulty *f) {
    uint64_t count = 0;
    faulty_image *empty = NULL, *oldest = NULL;
    for (int i = 0; i < faulty_most_images; ++i) {
        faulty_image *image = &f->images[i];
        if (image->data == NULL) {
            if (empty == NULL) empty = image;
            continue;
        }
        ++count;
        if (image->pins == 0 && (oldest == NULL || image->used < oldest->used)) oldest = image;
    }
    if (count < f->most_images) return empty;
    if (oldest != NULL) faulty_forget(oldest);
    return oldest;
}

static inline pkv_status faulty_store(faulty *f, const faulty_item *item) {
    faulty_image *image = faulty_find(f, &item->key);
    if (image == NULL) {
        image = faulty_room(f);
        if (image == NULL) return PKV_ERR_NO_SPACE;
        image->key = item->key;
        image->bytes = item->size;
        image->tag = item->tag;
        image->data = malloc(item->size);
        memcpy(image->data, item->data, item->size);
    }
    image->retention = item->retention;
    image->used = ++f->clock;
    image->pins += (item->flags & PKV_TIER_PIN) != 0;
    return PKV_OK;
}

static inline pkv_status faulty_load(faulty *f, faulty_item *item) {
    faulty_image *image = faulty_find(f, &item->key);
    if (image == NULL) return PKV_ERR_NOT_FOUND;
    for (int i = 0; item->fault.what == fault_other && i < faulty_most_images; ++i)
        if (f->images[i].data != NULL && &f->images[i] != image) {
            image = &f->images[i];
            break;
        }
    if (item->offset > image->bytes || item->size > image->bytes - item->offset) return PKV_ERR_INVALID;
    image->used = ++f->clock;
    f->last_data = item->data;
    item->value = item->size;
    const uint64_t byte = (uint64_t)item->fault.value; /* a load may be of a part of the image */
    if (item->fault.what == fault_short) item->value -= byte < item->size ? byte : item->size;
    memcpy(item->data, image->data + item->offset, item->value);
    if (item->fault.what == fault_flip && byte >= item->offset && byte - item->offset < item->size)
        item->data[byte - item->offset] ^= 1;
    return PKV_OK;
}

static inline pkv_status faulty_do(faulty *f, faulty_item *item) {
    if (item->fault.what == fault_status) return (pkv_status)item->fault.value;
    if (item->kind == PKV_TIER_STORE) return faulty_store(f, item);
    if (item->kind == PKV_TIER_LOAD) return faulty_load(f, item);
    if (item->kind == PKV_TIER_CLEAR) {
        for (int i = 0; i < faulty_most_images; ++i) {
            const bool named = item->tag == PKV_TIER_TAG_ALL ? f->images[i].tag != PKV_TIER_TAG_PRIVATE
                                                             : f->images[i].tag == item->tag;
            if (f->images[i].data != NULL && named) faulty_forget(&f->images[i]);
        }
        return PKV_OK;
    }
    faulty_image *image = faulty_find(f, &item->key);
    if (item->kind == PKV_TIER_REMOVE) {
        if (image != NULL && image->pins != 0 && (item->flags & PKV_TIER_FORCE) == 0) return PKV_ERR_BUSY;
        if (image != NULL) faulty_forget(image);
        return PKV_OK;
    }
    if (image == NULL) return PKV_ERR_NOT_FOUND;
    if (item->kind == PKV_TIER_UNPIN) {
        if (image->pins == 0) return PKV_ERR_NOT_FOUND;
        --image->pins;
    } else if (item->kind == PKV_TIER_RETAIN) {
        image->retention = item->retention;
    } else {
        item->value = image->bytes;
        if (item->kind == PKV_TIER_LOOKUP) image->used = ++f->clock;
        if (item->kind == PKV_TIER_LOOKUP) image->pins += (item->flags & PKV_TIER_PIN) != 0;
    }
    return PKV_OK;
}

/* Serves one item, with the mutex held but for its completion. */
static inline void faulty_serve(faulty *f, faulty_item *item) {
    if (!item->done) {
        item->status = faulty_do(f, item);
        item->done = true;
        if (item->fault.what == fault_linger && !f->ending) {
            item->fault.what = fault_none;
            faulty_append(&f->held, item);
            return;
        }
    }
    f->busy = true;
    pthread_mutex_unlock(&f->mutex);
    pkv_tier_complete(item->request, item->item, item->status, item->value);
    if (item->fault.what == fault_twice) pkv_tier_complete(item->request, item->item, PKV_ERR_IO, 1);
    free(item);
    pthread_mutex_lock(&f->mutex);
    f->busy = false;
}

static inline void faulty_serve_backwards(faulty *f) {
    faulty_item *reversed = NULL, *item;
    while ((item = faulty_take(&f->held)) != NULL) {
        item->next = reversed;
        reversed = item;
    }
    while ((item = reversed) != NULL) {
        reversed = item->next;
        faulty_serve(f, item);
    }
}

static inline void *faulty_run(void *context) {
    faulty *f = context;
    pthread_mutex_lock(&f->mutex);
    while (!f->closed) {
        faulty_item *item = f->blocked ? NULL : faulty_take(&f->waiting);
        if (item == NULL) {
            pthread_cond_wait(&f->changed, &f->mutex);
        } else if (item->fault.what == fault_hold && !f->ending) {
            item->fault.what = item->fault.value == 1 ? fault_linger : fault_none;
            faulty_append(&f->held, item);
            if (f->backwards_at != 0 && f->held.length >= f->backwards_at) faulty_serve_backwards(f);
        } else {
            faulty_serve(f, item);
        }
    }
    pthread_mutex_unlock(&f->mutex);
    return NULL;
}

/* ---- what the library calls ---- */

static inline fault_rule faulty_rule(faulty *f, int kind) {
    if (f->decide != NULL) return f->decide(f, kind);
    for (int i = 0; i < faulty_most_rules; ++i) {
        if (f->rules[i].kind != kind || f->rules[i].times == 0) continue;
        if (f->rules[i].skip > 0) {
            --f->rules[i].skip;
            continue;
        }
        if (--f->rules[i].times == 0) f->rules[i].kind = 0;
        return f->rules[i].fault;
    }
    return (fault_rule){fault_none, 0};
}

static inline pkv_status faulty_submit(void *context, const pkv_tier_batch *batch) {
    faulty *f = context;
    pthread_mutex_lock(&f->mutex);
    if (f->watch != NULL) f->watch(f, batch);
    for (uint64_t i = 0; i < batch->num_items; ++i) {
        const fault_rule rule = faulty_rule(f, batch->kind);
        ++f->seen[batch->kind];
        if (rule.what == fault_refuse && i == 0) {
            pthread_mutex_unlock(&f->mutex);
            return (pkv_status)rule.value;
        }
        faulty_item *item = calloc(1, sizeof *item);
        item->request = batch->request;
        item->kind = batch->kind;
        item->flags = batch->flags;
        item->item = i;
        item->fault = rule;
        if (batch->keys != NULL) item->key = batch->keys[i];
        if (batch->data != NULL) item->data = batch->data[i];
        if (batch->offsets != NULL) item->offset = batch->offsets[i];
        if (batch->sizes != NULL) item->size = batch->sizes[i];
        if (batch->retention != NULL) item->retention = batch->retention[i];
        if (batch->tags != NULL) item->tag = batch->tags[i];
        faulty_append(&f->waiting, item);
    }
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->mutex);
    return PKV_OK;
}

static inline void faulty_usage(void *context, pkv_tier_usage *usage) {
    faulty *f = context;
    pthread_mutex_lock(&f->mutex);
    usage->capacity_bytes = f->most_images * image_bytes;
    for (int i = 0; i < faulty_most_images; ++i) {
        usage->images += f->images[i].data != NULL;
        usage->pinned_images += f->images[i].pins != 0;
        usage->used_bytes += f->images[i].bytes;
    }
    pthread_mutex_unlock(&f->mutex);
}

static inline void faulty_close(void *context) {
    faulty *f = context;
    pthread_mutex_lock(&f->mutex);
    f->closed = true;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->mutex);
}

/* Valid while the image is pinned. */
static inline const void *faulty_address(void *context, const pkv_tier_key *key) {
    faulty *f = context;
    pthread_mutex_lock(&f->mutex);
    const faulty_image *image = faulty_find(f, key);
    const void *data = image != NULL ? image->data : NULL;
    pthread_mutex_unlock(&f->mutex);
    return data;
}

/* ---- for tests ---- */

static inline faulty *faulty_open_as(bool in_memory) {
    faulty *f = calloc(1, sizeof *f);
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->changed, NULL);
    f->most_images = faulty_most_images;
    pkv_tier_ops ops = {0};
    ops.struct_size = sizeof ops;
    ops.name = "faulty";
    ops.submit = faulty_submit;
    ops.usage = faulty_usage;
    ops.close = faulty_close;
    if (in_memory) ops.address = faulty_address;
    assert_int_equal(pthread_create(&f->worker, NULL, faulty_run, f), 0);
    assert_ok(pkv_tier_open(&ops, f, &f->tier));
    return f;
}

static inline faulty *faulty_open(void) { return faulty_open_as(false); }

/* After `skip` items of a kind, `times` of them go wrong. Rules are looked at in the order in which they were given. */
static inline void faulty_script(faulty *f, int kind, uint64_t skip, uint64_t times, fault what, int64_t value) {
    pthread_mutex_lock(&f->mutex);
    int i = 0;
    while (f->rules[i].kind != 0) assert_true(++i < faulty_most_rules);
    f->rules[i].kind = kind;
    f->rules[i].skip = skip;
    f->rules[i].times = times;
    f->rules[i].fault = (fault_rule){what, value};
    pthread_mutex_unlock(&f->mutex);
}

/* Every item of a kind, until faulty_behave(). */
static inline void faulty_always(faulty *f, int kind, fault what, int64_t value) {
    faulty_script(f, kind, 0, UINT64_MAX, what, value);
}

static inline void faulty_behave(faulty *f) {
    pthread_mutex_lock(&f->mutex);
    memset(f->rules, 0, sizeof f->rules);
    f->decide = NULL;
    pthread_mutex_unlock(&f->mutex);
}

static inline void faulty_block(faulty *f, bool blocked) {
    pthread_mutex_lock(&f->mutex);
    f->blocked = blocked;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->mutex);
}

/* What is held is done now, in order, before what waits. */
static inline void faulty_let_go(faulty *f) {
    pthread_mutex_lock(&f->mutex);
    if (f->held.first != NULL) {
        f->held.last->next = f->waiting.first;
        if (f->waiting.first == NULL) f->waiting.last = f->held.last;
        f->waiting.first = f->held.first;
        f->waiting.length += f->held.length;
        f->held = (faulty_list){NULL, NULL, 0};
    }
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->mutex);
}

/* From now on nothing is held, what waits with such a fault included, and no rule holds. */
static inline void faulty_end_faults(faulty *f) {
    faulty_behave(f);
    pthread_mutex_lock(&f->mutex);
    f->ending = true;
    f->blocked = false;
    pthread_mutex_unlock(&f->mutex);
    faulty_let_go(f);
}

static inline uint64_t faulty_held(faulty *f) {
    pthread_mutex_lock(&f->mutex);
    const uint64_t held = f->held.length;
    pthread_mutex_unlock(&f->mutex);
    return held;
}

static inline uint64_t faulty_waiting(faulty *f) {
    pthread_mutex_lock(&f->mutex);
    const uint64_t waiting = f->waiting.length;
    pthread_mutex_unlock(&f->mutex);
    return waiting;
}

static inline uint64_t faulty_seen(faulty *f, int kind) {
    pthread_mutex_lock(&f->mutex);
    const uint64_t seen = f->seen[kind];
    pthread_mutex_unlock(&f->mutex);
    return seen;
}

/* Nothing waits or is held. */
static inline bool faulty_idle(faulty *f) {
    pthread_mutex_lock(&f->mutex);
    const bool idle = f->waiting.first == NULL && f->held.first == NULL && !f->busy;
    pthread_mutex_unlock(&f->mutex);
    return idle;
}

static inline uint64_t faulty_images(faulty *f) {
    eventually(faulty_idle(f)); /* unpins and removals are not waited for */
    return tier_stats(f->tier).usage.images;
}

static inline uint64_t faulty_pins(faulty *f) {
    eventually(faulty_idle(f));
    uint64_t pins = 0;
    pthread_mutex_lock(&f->mutex);
    for (int i = 0; i < faulty_most_images; ++i) pins += f->images[i].pins;
    pthread_mutex_unlock(&f->mutex);
    return pins;
}

/* The tier after its pools are gone: lets go of what is held, waits for the library's close, frees all. `with_handle`: the
 * handle is still open; then nothing may be under way once all has been let go of. */
static inline void faulty_free(faulty *f, bool with_handle) {
    faulty_end_faults(f);
    if (with_handle) {
        eventually(tier_stats(f->tier).open_requests == 0);
        assert_ok(pkv_tier_close(f->tier));
    }
    for (int waited = 0;; ++waited) {
        pthread_mutex_lock(&f->mutex);
        const bool closed = f->closed;
        pthread_mutex_unlock(&f->mutex);
        if (closed) break;
        if (waited == 200000) fail_msg("the tier was not closed");
        usleep(300);
    }
    pthread_join(f->worker, NULL);
    for (int i = 0; i < faulty_most_images; ++i)
        if (f->images[i].data != NULL) faulty_forget(&f->images[i]);
    pthread_mutex_destroy(&f->mutex);
    pthread_cond_destroy(&f->changed);
    free(f);
}

static inline void faulty_end(faulty *f) { faulty_free(f, true); }

/* A pool over one faulty tier. */
static inline pkv_pool *pool_on_faulty(uint64_t num_pages, faulty *f, int32_t policy, uint64_t timeout_ns) {
    pkv_tier_attachment at = attachment(f->tier, policy);
    at.timeout_ns = timeout_ns;
    return pool_over(num_pages, &at, 1);
}

#endif
