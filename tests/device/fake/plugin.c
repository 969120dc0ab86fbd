/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the fake device: what a plug-in gives to the core. */
#include "device/fake/inside.h"

#include "tensor/cuda/emulated.h"

#include <pagedkv/tensor.h>

#include <time.h>

struct fake_settings fake_settings = {.devices = 2, .seed = 1, .pace_ns = 200000};
struct fake_counts fake_counts;

/* For programs that know nothing of it: with PKV_FAKE_DEVICE=open in the environment the host reads and writes the device's memory,
 * and the device the host's; with "open unordered" what the library orders stays unordered, and a test has to fail. */
__attribute__((constructor)) static void read_environment(void) {
    const char *how = getenv("PKV_FAKE_DEVICE");
    if (how == NULL || strncmp(how, "open", 4) != 0) return;
    fake_settings.open_memory = fake_settings.all_pinned = 1;
    fake_settings.ignore_order = strcmp(how, "open unordered") == 0;
}

pkv_status fake_why(pkv_status status, char *why, size_t why_bytes, const char *text) {
    if (why_bytes != 0) snprintf(why, why_bytes, "%s", text);
    return status;
}

bool fake_fails(const char *function, pkv_status *status, char *why, size_t why_bytes) {
    if (fake_settings.fail[0] == 0 || strcmp(fake_settings.fail, function) != 0) return false;
    if (fake_settings.fail_after != 0) {
        --fake_settings.fail_after;
        return false;
    }
    if (!fake_settings.fail_for_good) fake_settings.fail[0] = 0;
    *status = fake_settings.fail_status != PKV_OK ? fake_settings.fail_status : PKV_ERR_IO;
    fake_why(*status, why, why_bytes, "injected");
    return true;
}

#define ENTER(name)                                                                                                    \
    pthread_mutex_lock(&fake_lock);                                                                                    \
    pkv_status status = PKV_OK;                                                                                        \
    if (fake_fails(name, &status, why, why_bytes)) goto out
#define LEAVE                                                                                                          \
    out:                                                                                                               \
    pthread_mutex_unlock(&fake_lock);                                                                                  \
    return status

/* ---- devices ---- */

static pkv_status available(int32_t index, char *why, size_t why_bytes) {
    pthread_mutex_lock(&fake_lock);
    const int32_t devices = fake_settings.devices;
    pthread_mutex_unlock(&fake_lock);
    if (devices == 0) return fake_why(PKV_ERR_UNSUPPORTED, why, why_bytes, "no driver");
    if (index >= devices) return fake_why(PKV_ERR_UNSUPPORTED, why, why_bytes, "no such device");
    return PKV_OK;
}

static int32_t count(void) { return fake_settings.devices; }

static pkv_status open_context(int32_t index, pkv_device_context **context, char *why, size_t why_bytes) {
    ENTER("open");
    fake_start_thread();
    *context = calloc(1, sizeof **context);
    (*context)->device = index;
    ++fake_counts.contexts;
    LEAVE;
}

static void close_context(pkv_device_context *context) {
    pthread_mutex_lock(&fake_lock);
    --fake_counts.contexts;
    pthread_mutex_unlock(&fake_lock);
    free(context);
}

static pkv_status facts(pkv_device_context *context, pkv_device_facts *out, char *why, size_t why_bytes) {
    (void)context;
    ENTER("facts");
    pkv_device_facts f = {.struct_size = out->struct_size,
                          .name = "host memory",
                          .memory_bytes = UINT64_C(1) << 34,
                          .multiprocessors = 4,
                          .compute = 90,
                          .waits_on_words = !fake_settings.no_words,
                          .batched_copies = 1};
    *out = f;
    LEAVE;
}

/* ---- memory ---- */

static pkv_status alloc(pkv_device_context *context, uint64_t bytes, void **address, char *why, size_t why_bytes) {
    ENTER("alloc");
    *address = fake_alloc(context->device, bytes, true);
    if (*address == NULL) status = fake_why(PKV_ERR_NO_MEMORY, why, why_bytes, "out of memory of the device");
    LEAVE;
}

static void free_memory(pkv_device_context *context, void *address) {
    (void)context;
    pthread_mutex_lock(&fake_lock);
    fake_wait_all(); /* so does the runtime's */
    if (!fake_free(address)) abort();
    pthread_mutex_unlock(&fake_lock);
}

static pkv_status alloc_pinned(pkv_device_context *context, uint64_t bytes, void **address, char *why,
                               size_t why_bytes) {
    (void)context;
    ENTER("alloc_pinned");
    *address = fake_alloc_pinned(bytes, true);
    LEAVE;
}

static pkv_status pin(pkv_device_context *context, void *address, uint64_t bytes, char *why, size_t why_bytes) {
    (void)context;
    ENTER("pin");
    if (fake_settings.refuse_pins || !fake_pin(address, bytes))
        status = fake_why(PKV_ERR_NO_MEMORY, why, why_bytes, "the memory cannot be pinned");
    LEAVE;
}

static void unpin(pkv_device_context *context, void *address) {
    (void)context;
    pthread_mutex_lock(&fake_lock);
    fake_wait_all();
    if (!fake_unpin(address)) abort();
    pthread_mutex_unlock(&fake_lock);
}

static pkv_status address_kind(pkv_device_context *context, const void *address, int32_t *kind, char *why,
                               size_t why_bytes) {
    ENTER("address_kind");
    *kind = fake_kind(context->device, address);
    LEAVE;
}

/* ---- streams and events ---- */

static pkv_status no_stream(char *why, size_t why_bytes) {
    return fake_why(PKV_ERR_INVALID, why, why_bytes, "no such stream");
}

static pkv_status end_of_capture(char *why, size_t why_bytes) {
    ++fake_counts.capture_faults;
    return fake_why(PKV_ERR_CAPTURE, why, why_bytes, "not possible in a stream that is being captured");
}

static pkv_status make_stream(pkv_device_context *context, int32_t urgent, void **out, char *why, size_t why_bytes) {
    (void)urgent;
    ENTER("make_stream");
    *out = fake_new_stream(context->device, true);
    LEAVE;
}

static void end_stream(pkv_device_context *context, void *handle) {
    pthread_mutex_lock(&fake_lock);
    stream *s = fake_stream(context->device, handle);
    if (s != NULL) fake_end_stream(s);
    pthread_mutex_unlock(&fake_lock);
}

static pkv_status capturing(pkv_device_context *context, void *handle, int32_t *out, char *why, size_t why_bytes) {
    ENTER("capturing");
    const stream *s = fake_stream(context->device, handle);
    if (s == NULL)
        status = no_stream(why, why_bytes);
    else
        *out = s->capture != NULL;
    LEAVE;
}

static pkv_status wait_stream(pkv_device_context *context, void *handle, char *why, size_t why_bytes) {
    ENTER("wait_stream");
    stream *s = fake_stream(context->device, handle);
    ++fake_counts.waits;
    if (s == NULL)
        status = no_stream(why, why_bytes);
    else if (s->capture != NULL)
        status = end_of_capture(why, why_bytes);
    else
        fake_wait_stream(s);
    LEAVE;
}

static pkv_status make_event(pkv_device_context *context, int32_t timed, pkv_device_event **event, char *why,
                             size_t why_bytes) {
    (void)context, (void)timed;
    ENTER("make_event");
    *event = calloc(1, sizeof **event);
    ++fake_counts.events;
    LEAVE;
}

static void end_event(pkv_device_context *context, pkv_device_event *event) {
    (void)context;
    pthread_mutex_lock(&fake_lock);
    fake_drop_point(event->last);
    --fake_counts.events;
    pthread_mutex_unlock(&fake_lock);
    free(event);
}

static pkv_status record(pkv_device_context *context, pkv_device_event *event, void *handle, char *why,
                         size_t why_bytes) {
    ENTER("record");
    stream *s = fake_stream(context->device, handle);
    if (s == NULL) {
        status = no_stream(why, why_bytes);
    } else if (s->capture != NULL) {
        status = end_of_capture(why, why_bytes);
    } else {
        fake_drop_point(event->last);
        event->last = fake_record(s);
        ++fake_counts.records;
    }
    LEAVE;
}

static pkv_status query(pkv_device_context *context, pkv_device_event *event, char *why, size_t why_bytes) {
    (void)context;
    ENTER("query");
    if (event->last != NULL && !event->last->passed) status = fake_why(PKV_ERR_AGAIN, why, why_bytes, "not yet");
    LEAVE;
}

static pkv_status wait_event(pkv_device_context *context, pkv_device_event *event, char *why, size_t why_bytes) {
    (void)context;
    ENTER("wait_event");
    ++fake_counts.waits;
    if (event->last != NULL) fake_wait(event->last);
    LEAVE;
}

static pkv_status order_after(pkv_device_context *context, void *handle, pkv_device_event *event, char *why,
                              size_t why_bytes) {
    ENTER("order_after");
    stream *s = fake_stream(context->device, handle);
    if (s == NULL) {
        status = no_stream(why, why_bytes);
    } else if (s->capture != NULL) {
        status = end_of_capture(why, why_bytes);
    } else {
        ++fake_counts.orders;
        if (!fake_settings.ignore_order) fake_await(s, event->last);
    }
    LEAVE;
}

static pkv_status order_after_caller(pkv_device_context *context, void *handle, void *event, char *why,
                                     size_t why_bytes) {
    return order_after(context, handle, event, why, why_bytes);
}

static pkv_status query_caller(pkv_device_context *context, void *event, char *why, size_t why_bytes) {
    return query(context, event, why, why_bytes);
}

static pkv_status elapsed_ns(pkv_device_context *context, pkv_device_event *from, pkv_device_event *to, uint64_t *ns,
                             char *why, size_t why_bytes) {
    (void)context;
    ENTER("elapsed_ns");
    if (from->last == NULL || to->last == NULL || !from->last->passed || !to->last->passed)
        status = fake_why(PKV_ERR_AGAIN, why, why_bytes, "not yet");
    else
        *ns = to->last->time_ns > from->last->time_ns ? to->last->time_ns - from->last->time_ns : 0;
    LEAVE;
}

static pkv_status wait_word(pkv_device_context *context, void *handle, const uint64_t *word, uint64_t value, char *why,
                            size_t why_bytes) {
    ENTER("wait_word");
    stream *s = fake_stream(context->device, handle);
    if (fake_settings.no_words) {
        status = fake_why(PKV_ERR_UNSUPPORTED, why, why_bytes, "streams do not wait for words here");
    } else if (s == NULL) {
        status = no_stream(why, why_bytes);
    } else if (s->capture != NULL) {
        status = end_of_capture(why, why_bytes);
    } else {
        work *w = fake_work(sizeof *w, NULL);
        w->word = fake_view(word);
        w->value = value;
        fake_put(s, w);
    }
    LEAVE;
}

typedef struct {
    work base;
    uint64_t *word;
    uint64_t value;
} set_work;

static void run_set(work *w) {
    const set_work *set = (set_work *)w;
    __atomic_store_n(set->word, set->value, __ATOMIC_RELEASE);
}

static pkv_status write_word(pkv_device_context *context, void *handle, uint64_t *word, uint64_t value, char *why,
                             size_t why_bytes) {
    ENTER("write_word");
    stream *s = fake_stream(context->device, handle);
    if (s == NULL) {
        status = no_stream(why, why_bytes);
    } else {
        set_work *w = (set_work *)fake_work(sizeof *w, run_set);
        w->word = fake_view(word);
        w->value = value;
        fake_put(s, &w->base);
    }
    LEAVE;
}

/* ---- bytes ---- */

static emulated_grid grid(uint32_t max_blocks) {
    const uint32_t blocks = 1 + (uint32_t)(fake_random() % 5);
    return (emulated_grid){max_blocks != 0 && max_blocks < blocks ? max_blocks : blocks, 32u << fake_random() % 3,
                           fake_random() | 1};
}

static void check(pkv_status status) {
    if (status == PKV_OK) return;
    fprintf(stderr, "fake device: a kernel gave %d: %s\n", status, emulated_why());
    abort();
}

typedef struct {
    work base;
    uint64_t num;
    pkv_device_copy list[];
} copy_work;

static void run_copies(work *w) {
    const copy_work *c = (copy_work *)w;
    for (uint64_t i = c->num; i-- > 0;) /* in another order than the list's: nobody promises one */
        memcpy(fake_view(c->list[i].dst), fake_view(c->list[i].src), c->list[i].bytes);
}

/* A host side that is not pinned is read, or written, by the call. */
static bool is_pageable(const pkv_device_context *context, const pkv_device_copy *copy, int32_t direction) {
    return (direction == PKV_HOST_TO_DEVICE && fake_kind(context->device, copy->src) == PKV_ADDRESS_HOST) ||
           (direction == PKV_DEVICE_TO_HOST && fake_kind(context->device, copy->dst) == PKV_ADDRESS_HOST);
}

static pkv_status copy(pkv_device_context *context, void *handle, int32_t direction, const pkv_device_copy *copies,
                       uint64_t num_copies, char *why, size_t why_bytes) {
    ENTER("copy");
    stream *s = fake_stream(context->device, handle);
    bool waits = false;
    for (uint64_t i = 0; i < num_copies; ++i) waits = waits || is_pageable(context, &copies[i], direction);
    if (s == NULL) {
        status = no_stream(why, why_bytes);
    } else if (waits) {
        status =
            fake_why(PKV_ERR_INVALID, why, why_bytes, "ordinary host memory in a copy: the library has none to give");
        ++fake_counts.faults;
    } else {
        copy_work *w = (copy_work *)fake_work(sizeof *w + num_copies * sizeof *copies, run_copies);
        w->num = num_copies;
        memcpy(w->list, copies, num_copies * sizeof *copies);
        fake_put(s, &w->base);
        ++fake_counts.launches;
        ++fake_counts.copies;
    }
    LEAVE;
}

typedef struct {
    work base;
    void *at;
    uint64_t bytes;
    uint8_t value;
} fill_work;

static void run_fill(work *w) {
    const fill_work *f = (fill_work *)w;
    memset(fake_view(f->at), f->value, f->bytes);
}

static pkv_status fill(pkv_device_context *context, void *handle, void *address, uint8_t value, uint64_t bytes,
                       char *why, size_t why_bytes) {
    ENTER("fill");
    stream *s = fake_stream(context->device, handle);
    if (s == NULL) {
        status = no_stream(why, why_bytes);
    } else {
        fill_work *f = (fill_work *)fake_work(sizeof *f, run_fill);
        f->at = address;
        f->value = value;
        f->bytes = bytes;
        fake_put(s, &f->base);
        ++fake_counts.launches;
        ++fake_counts.fills;
    }
    LEAVE;
}

/* ---- kernels ---- */

/* Arguments are kept as they were: the call reads host arrays before it returns. */
typedef struct {
    work base;
    uint32_t max_blocks;
    union {
        pkv_device_write write;
        pkv_device_gather gather;
    };
    pkv_device_layer *layers, *to;
    uint32_t num_layers;
    uint64_t num;
    int32_t *src, *dst;
    uint32_t *tokens;
    pkv_device_slice *slices;
    unsigned char *taken[2];
    unsigned char room[];
} kernel;

/* Takes pieces of a kernel's room. */
typedef struct {
    unsigned char *at;
} packer;

static void *pack_array(packer *p, const void *from, uint64_t bytes) {
    if (from == NULL) return NULL;
    void *at = p->at;
    memcpy(at, from, bytes);
    p->at += (bytes + 15) / 16 * 16;
    return at;
}

static void view_side(pkv_device_paged *side) {
    if (side->row_bytes == 0) return;
    side->base = fake_view(side->base);
    side->scales = fake_view(side->scales);
}

static pkv_device_layer *view_layers(const pkv_device_layer *layers, uint32_t num) {
    pkv_device_layer *seen = malloc((num + 1) * sizeof *seen);
    memcpy(seen, layers, num * sizeof *seen);
    for (uint32_t i = 0; i < num; ++i) {
        view_side(&seen[i].k);
        view_side(&seen[i].v);
    }
    return seen;
}

static pkv_device_flat *view_flats(const pkv_device_flat *flats, uint32_t num) {
    pkv_device_flat *seen = malloc((num + 1) * sizeof *seen);
    memcpy(seen, flats, num * sizeof *seen);
    for (uint32_t i = 0; i < num; ++i) seen[i].base = fake_view(seen[i].base);
    return seen;
}

/* Bytes from the first to the last row of a write's source. */
static uint64_t reach(const pkv_device_write *write, const pkv_device_flat *rows, const pkv_device_paged *side,
                      const pkv_device_layer *layer) {
    const uint64_t stored = pkv_dtype_bytes(layer->dtype), flat = pkv_dtype_bytes(write->flat_dtype);
    const uint64_t row =
        stored == 0 || write->flat_dtype == layer->dtype ? side->row_bytes : side->row_bytes / stored * flat;
    return (write->num_slots - 1) * rows->token_stride + (layer->heads - 1) * rows->head_stride + row;
}

/* Host memory of a program that knows nothing of devices: it will have other rows by the time that the kernel runs. */
static unsigned char *take_rows(const pkv_device_write *write, pkv_device_flat *rows, const pkv_device_paged *side,
                                const pkv_device_layer *layer) {
    if (rows->base == NULL || side->row_bytes == 0 || write->num_slots == 0 || fake_is_known(rows->base)) return NULL;
    const uint64_t bytes = reach(write, rows, side, layer);
    unsigned char *own = malloc(bytes + 64), *at = own + ((uintptr_t)rows->base - (uintptr_t)own) % 64;
    memcpy(at, rows->base, bytes);
    rows->base = at;
    return own;
}

static void run_write(work *w) {
    kernel *k = (kernel *)w;
    pkv_device_write write = k->write;
    pkv_device_layer *layers = view_layers(write.layers, write.num_layers);
    pkv_device_flat *rows_k = view_flats(write.k, write.num_layers), *rows_v = view_flats(write.v, write.num_layers);
    write.layers = layers;
    write.k = rows_k;
    write.v = rows_v;
    if (write.slots_on_host == 0) write.slots = fake_view(write.slots);
    check(emulated_write(&write, grid(write.max_blocks)));
    free(k->taken[0]);
    free(k->taken[1]);
    k->taken[0] = k->taken[1] = NULL;
    free(layers);
    free(rows_k);
    free(rows_v);
}

static pkv_status write_rows(pkv_device_context *context, void *handle, const pkv_device_write *write, char *why,
                             size_t why_bytes) {
    ENTER("write");
    stream *s = fake_stream(context->device, handle);
    if (s == NULL) {
        status = no_stream(why, why_bytes);
        goto out;
    }
    const uint64_t slots = write->slots_on_host ? write->num_slots * write->slot_bytes : 0;
    if (s->capture != NULL && slots > PKV_DEVICE_INLINE_BYTES) {
        status = end_of_capture(why, why_bytes);
        goto out;
    }
    const uint64_t per_layer = sizeof(pkv_device_layer) + 2 * sizeof(pkv_device_flat);
    kernel *k = (kernel *)fake_work(sizeof *k + write->num_layers * per_layer + slots + 64, run_write);
    packer p = {k->room};
    k->write = *write;
    k->write.layers = pack_array(&p, write->layers, write->num_layers * sizeof *write->layers);
    k->write.k = pack_array(&p, write->k, write->num_layers * sizeof *write->k);
    k->write.v = pack_array(&p, write->v, write->num_layers * sizeof *write->v);
    if (write->slots_on_host) k->write.slots = pack_array(&p, write->slots, slots);
    if (fake_settings.all_pinned && write->num_layers == 1) {
        k->taken[0] =
            take_rows(write, (pkv_device_flat *)(uintptr_t)k->write.k, &write->layers[0].k, &write->layers[0]);
        k->taken[1] =
            take_rows(write, (pkv_device_flat *)(uintptr_t)k->write.v, &write->layers[0].v, &write->layers[0]);
    }
    fake_put(s, &k->base);
    ++fake_counts.launches;
    ++fake_counts.writes;
    LEAVE;
}

static void run_gather(work *w) {
    kernel *k = (kernel *)w;
    pkv_device_gather gather = k->gather;
    pkv_device_layer *layers = view_layers(gather.layers, gather.num_layers);
    pkv_device_flat *rows_k = view_flats(gather.k, gather.num_layers),
                    *rows_v = view_flats(gather.v, gather.num_layers);
    gather.layers = layers;
    gather.k = rows_k;
    gather.v = rows_v;
    if (gather.arrays_on_host == 0) {
        gather.pages = fake_view(gather.pages);
        gather.indptr = fake_view(gather.indptr);
        gather.first = fake_view(gather.first);
        gather.counts = fake_view(gather.counts);
        gather.out_first = fake_view(gather.out_first);
    }
    check(emulated_gather(&gather, grid(gather.max_blocks)));
    free(layers);
    free(rows_k);
    free(rows_v);
}

static pkv_status gather_rows(pkv_device_context *context, void *handle, const pkv_device_gather *gather, char *why,
                              size_t why_bytes) {
    ENTER("gather");
    stream *s = fake_stream(context->device, handle);
    if (s == NULL) {
        status = no_stream(why, why_bytes);
        goto out;
    }
    const uint64_t sequences = gather->num_sequences;
    const uint64_t arrays =
        gather->arrays_on_host ? gather->num_pages * 4 + (sequences + 1) * 4 + sequences * 24 + 80 : 0;
    if (s->capture != NULL && arrays > PKV_DEVICE_INLINE_BYTES) {
        status = end_of_capture(why, why_bytes);
        goto out;
    }
    const uint64_t per_layer = sizeof(pkv_device_layer) + 2 * sizeof(pkv_device_flat);
    kernel *k = (kernel *)fake_work(sizeof *k + gather->num_layers * per_layer + arrays + 160, run_gather);
    packer p = {k->room};
    k->gather = *gather;
    k->gather.layers = pack_array(&p, gather->layers, gather->num_layers * sizeof *gather->layers);
    k->gather.k = pack_array(&p, gather->k, gather->num_layers * sizeof *gather->k);
    k->gather.v = pack_array(&p, gather->v, gather->num_layers * sizeof *gather->v);
    if (gather->arrays_on_host) {
        k->gather.pages = pack_array(&p, gather->pages, gather->num_pages * 4);
        k->gather.indptr = pack_array(&p, gather->indptr, (sequences + 1) * 4);
        k->gather.first = pack_array(&p, gather->first, sequences * 8);
        k->gather.counts = pack_array(&p, gather->counts, sequences * 8);
        k->gather.out_first = pack_array(&p, gather->out_first, sequences * 8);
    }
    fake_put(s, &k->base);
    ++fake_counts.launches;
    ++fake_counts.gathers;
    LEAVE;
}

static void run_page_copies(work *w) {
    kernel *k = (kernel *)w;
    pkv_device_layer *layers = view_layers(k->layers, k->num_layers);
    pkv_device_layer *to = k->to != NULL ? view_layers(k->to, k->num_layers) : NULL;
    if (to != NULL)
        check(emulated_copy_between(layers, to, k->num_layers, k->num, k->src, k->dst, k->tokens, grid(k->max_blocks)));
    else
        check(emulated_copy_pages(layers, k->num_layers, k->num, k->src, k->dst, k->tokens, grid(k->max_blocks)));
    free(layers);
    free(to);
}

static pkv_status put_page_copies(pkv_device_context *context, void *handle, const pkv_device_layer *from,
                                  const pkv_device_layer *to, uint32_t num_layers, uint64_t num, const int32_t *src,
                                  const int32_t *dst, const uint32_t *tokens, uint32_t max_blocks, char *why,
                                  size_t why_bytes) {
    ENTER("copy_pages");
    stream *s = fake_stream(context->device, handle);
    if (s == NULL) {
        status = no_stream(why, why_bytes);
        goto out;
    }
    kernel *k = (kernel *)fake_work(sizeof *k + 2 * num_layers * sizeof *from + num * 12 + 128, run_page_copies);
    packer p = {k->room};
    k->layers = pack_array(&p, from, num_layers * sizeof *from);
    k->to = pack_array(&p, to, num_layers * sizeof *from);
    k->src = pack_array(&p, src, num * sizeof *src);
    k->dst = pack_array(&p, dst, num * sizeof *dst);
    k->tokens = pack_array(&p, tokens, num * sizeof *tokens);
    k->num = num;
    k->num_layers = num_layers;
    k->max_blocks = max_blocks;
    fake_put(s, &k->base);
    ++fake_counts.launches;
    ++fake_counts.page_copies;
    LEAVE;
}

static pkv_status copy_pages(pkv_device_context *context, void *handle, const pkv_device_layer *layers,
                             uint32_t num_layers, uint64_t num, const int32_t *src, const int32_t *dst,
                             const uint32_t *tokens, uint32_t max_blocks, char *why, size_t why_bytes) {
    return put_page_copies(context, handle, layers, NULL, num_layers, num, src, dst, tokens, max_blocks, why,
                           why_bytes);
}

static pkv_status copy_between(pkv_device_context *context, void *handle, const pkv_device_layer *from,
                               const pkv_device_layer *to, uint32_t num_layers, uint64_t num, const int32_t *src,
                               const int32_t *dst, const uint32_t *tokens, uint32_t max_blocks, char *why,
                               size_t why_bytes) {
    return put_page_copies(context, handle, from, to, num_layers, num, src, dst, tokens, max_blocks, why, why_bytes);
}

static pkv_device_slice *view_slices(const kernel *k) {
    pkv_device_slice *seen = malloc((k->num + 1) * sizeof *seen);
    memcpy(seen, k->slices, k->num * sizeof *seen);
    for (uint64_t i = 0; i < k->num; ++i) {
        seen[i].bytes = fake_view(seen[i].bytes);
        seen[i].scales = fake_view(seen[i].scales);
    }
    return seen;
}

static void run_pack(work *w) {
    kernel *k = (kernel *)w;
    pkv_device_layer *layers = view_layers(k->layers, k->num_layers);
    pkv_device_slice *slices = view_slices(k);
    check(emulated_pack(layers, k->num_layers, slices, k->num, grid(k->max_blocks)));
    free(layers);
    free(slices);
}

static void run_unpack(work *w) {
    kernel *k = (kernel *)w;
    pkv_device_layer *layers = view_layers(k->layers, k->num_layers);
    pkv_device_slice *slices = view_slices(k);
    check(emulated_unpack(layers, k->num_layers, slices, k->num, grid(k->max_blocks)));
    free(layers);
    free(slices);
}

static pkv_status put_slices(const char *name, void (*run)(work *), uint64_t *counter, pkv_device_context *context,
                             void *handle, const pkv_device_layer *layers, uint32_t num_layers,
                             const pkv_device_slice *slices, uint64_t num_slices, uint32_t max_blocks, char *why,
                             size_t why_bytes) {
    ENTER(name);
    stream *s = fake_stream(context->device, handle);
    if (s == NULL) {
        status = no_stream(why, why_bytes);
        goto out;
    }
    kernel *k = (kernel *)fake_work(sizeof *k + num_layers * sizeof *layers + num_slices * sizeof *slices + 64, run);
    packer p = {k->room};
    k->layers = pack_array(&p, layers, num_layers * sizeof *layers);
    k->slices = pack_array(&p, slices, num_slices * sizeof *slices);
    k->num = num_slices;
    k->num_layers = num_layers;
    k->max_blocks = max_blocks;
    fake_put(s, &k->base);
    ++fake_counts.launches;
    ++*counter;
    fake_counts.last_blocks = max_blocks;
    LEAVE;
}

static pkv_status pack(pkv_device_context *context, void *handle, const pkv_device_layer *layers, uint32_t num_layers,
                       const pkv_device_slice *slices, uint64_t num_slices, uint32_t max_blocks, char *why,
                       size_t why_bytes) {
    return put_slices("pack", run_pack, &fake_counts.packs, context, handle, layers, num_layers, slices, num_slices,
                      max_blocks, why, why_bytes);
}

static pkv_status unpack(pkv_device_context *context, void *handle, const pkv_device_layer *layers, uint32_t num_layers,
                         const pkv_device_slice *slices, uint64_t num_slices, uint32_t max_blocks, char *why,
                         size_t why_bytes) {
    return put_slices("unpack", run_unpack, &fake_counts.unpacks, context, handle, layers, num_layers, slices,
                      num_slices, max_blocks, why, why_bytes);
}

static uint64_t stream_id(pkv_device_context *context, void *handle) {
    pthread_mutex_lock(&fake_lock);
    const stream *s = fake_settings.no_stream_ids ? NULL : fake_stream(context->device, handle);
    const uint64_t id = s != NULL ? s->id : 0;
    pthread_mutex_unlock(&fake_lock);
    return id;
}

__attribute__((visibility("default"))) const pkv_device_table *pkv_device_plugin(void) {
    static pkv_device_table table = {
        sizeof(pkv_device_table),
        PKV_DEVICE_VERSION,
        0,
        "cuda",
        available,
        count,
        open_context,
        close_context,
        facts,
        alloc,
        free_memory,
        alloc_pinned,
        free_memory,
        pin,
        unpin,
        address_kind,
        make_stream,
        end_stream,
        capturing,
        wait_stream,
        make_event,
        end_event,
        record,
        query,
        wait_event,
        order_after,
        order_after_caller,
        query_caller,
        elapsed_ns,
        wait_word,
        write_word,
        copy,
        fill,
        write_rows,
        gather_rows,
        copy_pages,
        copy_between,
        pack,
        unpack,
        stream_id,
    };
    /* Another plug-in than this one: of another version, or with fewer functions. */
    const char *version = getenv("PKV_FAKE_VERSION"), *size = getenv("PKV_FAKE_TABLE");
    if (version != NULL) table.version = (uint32_t)atoi(version);
    if (size != NULL && strcmp(size, "short") == 0) table.struct_size = offsetof(pkv_device_table, unpack);
    if (size != NULL && strcmp(size, "old") == 0) table.struct_size = offsetof(pkv_device_table, stream_id);
    return &table;
}
