/* SPDX-License-Identifier: Apache-2.0 */
/* Streams are queues. Their work is done by whoever waits for it, and by one thread that looks at them now and then. */
#include "device/fake/inside.h"

#include <time.h>

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;

static stream *streams; /* ended ones too: whoever uses one is found out */
static stream *legacy[most_devices];
static uint64_t last_id;
static uint64_t random_state;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t fake_random(void) {
    uint64_t mixed = random_state += UINT64_C(0x9E3779B97F4A7C15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ (mixed >> 31);
}

/* ---- streams ---- */

stream *fake_new_stream(int32_t device, bool librarys) {
    stream *s = calloc(1, sizeof *s);
    s->device = device;
    s->id = ++last_id;
    s->librarys = librarys;
    s->end = &s->first;
    s->next = streams;
    streams = s;
    if (librarys) ++fake_counts.streams;
    return s;
}

stream *fake_stream(int32_t device, void *handle) {
    if (handle == NULL) {
        if (legacy[device] == NULL) legacy[device] = fake_new_stream(device, false);
        return legacy[device];
    }
    for (stream *s = streams; s != NULL; s = s->next)
        if (s == handle) {
            if (s->dead) ++fake_counts.dead_streams;
            return s->dead ? NULL : s;
        }
    ++fake_counts.dead_streams;
    return NULL;
}

void fake_end_stream(stream *s) {
    s->dead = true; /* what is in it still runs */
    if (s->librarys) --fake_counts.streams;
}

/* ---- work ---- */

work *fake_work(size_t size, void (*run)(work *)) {
    work *w = calloc(1, size);
    w->run = run;
    w->users = 1;
    return w;
}

void fake_drop_point(point *p) {
    if (p != NULL && --p->users == 0) free(p);
}

static void drop_work(work *w) {
    if (--w->users != 0) return;
    fake_drop_point(w->records);
    fake_drop_point(w->awaits);
    free(w);
}

static void append(piece ***end, work *w) {
    piece *p = calloc(1, sizeof *p);
    p->what = w;
    **end = p;
    *end = &p->next;
}

void fake_put(stream *s, work *w) {
    if (s->capture != NULL)
        append(&s->capture->end, w);
    else
        append(&s->end, w);
    pthread_cond_broadcast(&fake_changed);
}

point *fake_record(stream *s) {
    point *p = calloc(1, sizeof *p);
    p->stream = s;
    p->users = 2;
    work *w = fake_work(sizeof *w, NULL);
    w->records = p;
    fake_put(s, w);
    return p;
}

void fake_await(stream *s, point *p) {
    if (p == NULL || p->passed) return;
    work *w = fake_work(sizeof *w, NULL);
    w->awaits = p;
    ++p->users;
    fake_put(s, w);
}

/* ---- what can run ---- */

static bool can_run(const stream *s) {
    if (s->first == NULL || s->held) return false;
    const work *w = s->first->what;
    if (w->awaits != NULL && !w->awaits->passed) return false;
    return w->word == NULL || __atomic_load_n(w->word, __ATOMIC_ACQUIRE) >= w->value;
}

static void run_first(stream *s) {
    piece *p = s->first;
    work *w = p->what;
    s->first = p->next;
    if (s->first == NULL) s->end = &s->first;
    if (w->run != NULL) w->run(w);
    if (w->records != NULL) {
        w->records->passed = true;
        w->records->time_ns = fake_settings.stopped_clock ? 0 : now_ns();
    }
    drop_work(w);
    free(p);
    pthread_cond_broadcast(&fake_changed);
}

/* One piece of work on the way to a point; false if none can run now. */
static bool run_toward(const point *p, int depth) {
    stream *s = p->stream;
    if (depth > 1000 || s->first == NULL || s->held) return false;
    if (can_run(s)) {
        run_first(s);
        return true;
    }
    const work *w = s->first->what;
    return w->awaits != NULL && !w->awaits->passed && run_toward(w->awaits, depth + 1);
}

static void wait_a_little(uint64_t started) {
    if (now_ns() - started > UINT64_C(60000000000)) {
        fprintf(stderr, "fake device: a thread has waited for a minute, and nothing can run\n");
        abort();
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 200000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        ++until.tv_sec;
    }
    pthread_cond_timedwait(&fake_changed, &fake_lock, &until);
}

void fake_wait(point *p) {
    ++p->users;
    for (const uint64_t started = now_ns(); !p->passed;)
        if (!run_toward(p, 0)) wait_a_little(started);
    fake_drop_point(p);
}

void fake_wait_stream(stream *s) {
    if (s->first == NULL) return;
    point *p = fake_record(s);
    fake_wait(p);
    fake_drop_point(p);
}

void fake_wait_all(void) {
    for (stream *s = streams; s != NULL; s = s->next) fake_wait_stream(s);
}

/* ---- the device's own thread ---- */

static void *work_now_and_then(void *unused) {
    (void)unused;
    pthread_mutex_lock(&fake_lock);
    for (;;) {
        uint64_t count = 0;
        for (stream *s = streams; s != NULL; s = s->next) count += can_run(s);
        if (count != 0) {
            uint64_t chosen = fake_random() % count;
            for (stream *s = streams; s != NULL; s = s->next)
                if (can_run(s) && chosen-- == 0) {
                    run_first(s);
                    break;
                }
        }
        const uint64_t pause = fake_settings.pace_ns != 0 ? fake_random() % fake_settings.pace_ns : 0;
        pthread_mutex_unlock(&fake_lock);
        const struct timespec length = {(time_t)(pause / 1000000000), (long)(pause % 1000000000)};
        nanosleep(&length, NULL);
        pthread_mutex_lock(&fake_lock);
        while (count == 0) {
            for (stream *s = streams; s != NULL; s = s->next) count += can_run(s);
            if (count == 0) { /* words are written without a sign */
                struct timespec until;
                clock_gettime(CLOCK_REALTIME, &until);
                until.tv_nsec += 500000;
                if (until.tv_nsec >= 1000000000) {
                    until.tv_nsec -= 1000000000;
                    ++until.tv_sec;
                }
                pthread_cond_timedwait(&fake_changed, &fake_lock, &until);
            }
        }
    }
    return NULL;
}

void fake_start_thread(void) {
    static bool started;
    if (started) return;
    started = true;
    pthread_t thread;
    if (pthread_create(&thread, NULL, work_now_and_then, NULL) != 0) abort();
    pthread_detach(thread);
}

static void drop_pieces(piece *p) {
    while (p != NULL) {
        piece *next = p->next;
        drop_work(p->what);
        free(p);
        p = next;
    }
}

/* Everything runs, and streams that have ended are forgotten. */
void fake_reset_streams(void) {
    for (stream *s = streams; s != NULL; s = s->next) s->held = false;
    fake_wait_all();
    for (stream **at = &streams; *at != NULL;) {
        stream *s = *at;
        if (s->librarys && !s->dead) {
            at = &s->next;
            continue;
        }
        if (s->capture != NULL) {
            drop_pieces(s->capture->first);
            free(s->capture);
        }
        *at = s->next;
        for (int i = 0; i < most_devices; ++i)
            if (legacy[i] == s) legacy[i] = NULL;
        free(s);
    }
    random_state = fake_settings.seed;
}

/* ---- graphs ---- */

static void begin_capture(void *handle) {
    pthread_mutex_lock(&fake_lock);
    stream *s = fake_stream(0, handle);
    s->capture = calloc(1, sizeof(graph));
    s->capture->end = &s->capture->first;
    pthread_mutex_unlock(&fake_lock);
}

static void *end_capture(void *handle) {
    pthread_mutex_lock(&fake_lock);
    stream *s = fake_stream(0, handle);
    graph *g = s->capture;
    s->capture = NULL;
    pthread_mutex_unlock(&fake_lock);
    return g;
}

static void launch(void *handle, void *to) {
    graph *g = handle;
    pthread_mutex_lock(&fake_lock);
    stream *s = fake_stream(0, to);
    for (piece *p = g->first; p != NULL; p = p->next) {
        ++p->what->users;
        fake_put(s, p->what);
    }
    pthread_mutex_unlock(&fake_lock);
}

static void end_graph(void *handle) {
    graph *g = handle;
    pthread_mutex_lock(&fake_lock);
    drop_pieces(g->first);
    free(g);
    pthread_mutex_unlock(&fake_lock);
}

/* ---- for programs ---- */

static void *make_stream(int32_t device) {
    pthread_mutex_lock(&fake_lock);
    fake_start_thread();
    stream *s = fake_new_stream(device, false);
    pthread_mutex_unlock(&fake_lock);
    return s;
}

static void end_stream(void *handle) {
    pthread_mutex_lock(&fake_lock);
    fake_end_stream(fake_stream(0, handle));
    pthread_mutex_unlock(&fake_lock);
}

static void set_held(void *handle, bool held) {
    pthread_mutex_lock(&fake_lock);
    fake_stream(0, handle)->held = held;
    pthread_cond_broadcast(&fake_changed);
    pthread_mutex_unlock(&fake_lock);
}
static void hold(void *handle) { set_held(handle, true); }
static void let_go(void *handle) { set_held(handle, false); }

static void finish(void *handle) {
    pthread_mutex_lock(&fake_lock);
    if (handle == NULL)
        fake_wait_all();
    else
        fake_wait_stream(fake_stream(0, handle));
    pthread_mutex_unlock(&fake_lock);
}

static bool idle(void *handle) {
    pthread_mutex_lock(&fake_lock);
    const bool nothing = fake_stream(0, handle)->first == NULL;
    pthread_mutex_unlock(&fake_lock);
    return nothing;
}

static void order(void *handle, void *after) {
    pthread_mutex_lock(&fake_lock);
    point *p = fake_record(fake_stream(0, after));
    fake_await(fake_stream(0, handle), p);
    fake_drop_point(p);
    pthread_mutex_unlock(&fake_lock);
}

static void *make_event(void) { return calloc(1, sizeof(struct pkv_device_event)); }

static void record(void *handle, void *to) {
    struct pkv_device_event *event = handle;
    pthread_mutex_lock(&fake_lock);
    fake_drop_point(event->last);
    event->last = fake_record(fake_stream(0, to));
    pthread_mutex_unlock(&fake_lock);
}

static void end_event(void *handle) {
    struct pkv_device_event *event = handle;
    pthread_mutex_lock(&fake_lock);
    fake_drop_point(event->last);
    pthread_mutex_unlock(&fake_lock);
    free(event);
}

static void *alloc(int32_t device, uint64_t bytes) {
    pthread_mutex_lock(&fake_lock);
    void *at = fake_alloc(device, bytes, false);
    pthread_mutex_unlock(&fake_lock);
    return at;
}

static void *alloc_pinned(uint64_t bytes) {
    pthread_mutex_lock(&fake_lock);
    void *at = fake_alloc_pinned(bytes, false);
    pthread_mutex_unlock(&fake_lock);
    return at;
}

static void free_memory(void *address) {
    pthread_mutex_lock(&fake_lock);
    fake_wait_all();
    if (!fake_free(address)) abort();
    pthread_mutex_unlock(&fake_lock);
}

static void read_memory(void *out, const void *address, uint64_t size) {
    pthread_mutex_lock(&fake_lock);
    memcpy(out, fake_view(address), size);
    pthread_mutex_unlock(&fake_lock);
}

static void write_memory(void *address, const void *bytes, uint64_t size) {
    pthread_mutex_lock(&fake_lock);
    memcpy(fake_view(address), bytes, size);
    pthread_mutex_unlock(&fake_lock);
}

enum way { from_host, to_host, on_device };

typedef struct {
    work base;
    enum way way;
    void *to;
    const void *from;
    uint64_t size;
    unsigned char bytes[]; /* from_host: taken when the work was put into the stream */
} move;

static void run_move(work *w) {
    move *m = (move *)w;
    memcpy(m->way == to_host ? m->to : fake_view(m->to), m->way == from_host ? m->bytes : fake_view(m->from), m->size);
}

static void put_move(void *handle, enum way way, void *to, const void *from, uint64_t size) {
    pthread_mutex_lock(&fake_lock);
    move *m = (move *)fake_work(sizeof *m + (way == from_host ? size : 0), run_move);
    m->way = way;
    m->to = to;
    m->from = from;
    m->size = size;
    if (way == from_host) memcpy(m->bytes, from, size);
    fake_put(fake_stream(0, handle), &m->base);
    pthread_mutex_unlock(&fake_lock);
}

static void put(void *handle, void *address, const void *bytes, uint64_t size) {
    put_move(handle, from_host, address, bytes, size);
}
static void take(void *handle, void *out, const void *address, uint64_t size) {
    put_move(handle, to_host, out, address, size);
}
static void copy(void *handle, void *to, const void *from, uint64_t size) {
    put_move(handle, on_device, to, from, size);
}

static void await_word(void *handle, const uint64_t *word) {
    pthread_mutex_lock(&fake_lock);
    work *w = fake_work(sizeof *w, NULL);
    w->word = word;
    w->value = 1;
    fake_put(fake_stream(0, handle), w);
    pthread_mutex_unlock(&fake_lock);
}

typedef struct {
    work base;
    void (*function)(void *);
    void *data;
} calling;

static void run_calling(work *w) {
    calling *c = (calling *)w;
    c->function(c->data);
}

static void call(void *handle, void (*function)(void *), void *data) {
    pthread_mutex_lock(&fake_lock);
    calling *c = (calling *)fake_work(sizeof *c, run_calling);
    c->function = function;
    c->data = data;
    fake_put(fake_stream(0, handle), &c->base);
    pthread_mutex_unlock(&fake_lock);
}

static struct fake_counts counts(void) {
    pthread_mutex_lock(&fake_lock);
    const struct fake_counts now = fake_counts;
    pthread_mutex_unlock(&fake_lock);
    return now;
}

static struct fake_settings get_settings(void) {
    pthread_mutex_lock(&fake_lock);
    const struct fake_settings now = fake_settings;
    pthread_mutex_unlock(&fake_lock);
    return now;
}

static void set_settings(const struct fake_settings *settings) {
    pthread_mutex_lock(&fake_lock);
    if (settings->seed != fake_settings.seed) random_state = settings->seed;
    fake_settings = *settings;
    pthread_mutex_unlock(&fake_lock);
}

static void reset(void) {
    pthread_mutex_lock(&fake_lock);
    fake_reset_streams();
    fake_reset_memory();
    fake_settings = (struct fake_settings){.devices = 2, .seed = 1, .pace_ns = 200000};
    random_state = 1;
    struct fake_counts *c = &fake_counts;
    *c = (struct fake_counts){.contexts = c->contexts,
                              .streams = c->streams,
                              .events = c->events,
                              .allocations = c->allocations,
                              .pinned = c->pinned,
                              .pins = c->pins,
                              .device_bytes = c->device_bytes};
    pthread_mutex_unlock(&fake_lock);
}

__attribute__((visibility("default"))) const struct fake_device *fake_device(void) {
    static const struct fake_device device = {
        get_settings,  set_settings, counts,      reset,       make_stream,  end_stream, hold,
        let_go,        finish,       idle,        order,       make_event,   record,     end_event,
        alloc,         alloc_pinned, free_memory, read_memory, write_memory, put,        take,
        begin_capture, end_capture,  launch,      end_graph,   await_word,   copy,       call,
    };
    return &device;
}
