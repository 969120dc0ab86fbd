/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the fake device share. Everything is guarded by one lock, which is also held while a kernel runs. */
#ifndef PKV_TESTS_FAKE_INSIDE_H
#define PKV_TESTS_FAKE_INSIDE_H

#include "device/fake/fake.h"
#include "tensor/device_table.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { most_devices = 4 };

struct pkv_device_context {
    int32_t device;
};

/* A place in a stream that has been passed, or not. */
typedef struct point {
    struct stream *stream;
    bool passed;
    uint64_t time_ns;
    uint64_t users;
} point;

struct pkv_device_event {
    point *last; /* NULL: never recorded */
};

/* What a piece of work needs, shared with the graphs that repeat it. */
typedef struct work {
    void (*run)(struct work *); /* NULL: only a record or a wait */
    uint64_t users;
    point *records, *awaits;
    const uint64_t *word; /* awaits */
    uint64_t value;
} work;

typedef struct piece {
    work *what;
    struct piece *next;
} piece;

typedef struct graph {
    piece *first, **end;
} graph;

typedef struct stream {
    int32_t device;
    uint64_t id;
    bool held, dead, librarys;
    piece *first, **end;
    graph *capture;
    struct stream *next;
} stream;

extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed;
extern struct fake_settings fake_settings;
extern struct fake_counts fake_counts;

uint64_t fake_random(void);
pkv_status fake_why(pkv_status status, char *why, size_t why_bytes, const char *text);
/* Whether this call of a function is the one that fails. */
bool fake_fails(const char *function, pkv_status *status, char *why, size_t why_bytes);

/* ---- streams.c; under the lock ---- */
stream *fake_stream(int32_t device, void *handle); /* NULL: there is none */
stream *fake_new_stream(int32_t device, bool librarys);
void fake_end_stream(stream *s);
void fake_put(stream *s, work *w);    /* takes w over */
point *fake_record(stream *s);        /* a new point at the end of a stream */
void fake_await(stream *s, point *p); /* work behind waits; NULL: no wait */
void fake_drop_point(point *p);
void fake_wait(point *p); /* the thread waits, and works meanwhile */
void fake_wait_stream(stream *s);
void fake_wait_all(void);
void fake_start_thread(void);
void fake_reset_streams(void);
work *fake_work(size_t size, void (*run)(work *));

/* ---- memory.c; under the lock ---- */
void *fake_alloc(int32_t device, uint64_t bytes, bool librarys);
void *fake_alloc_pinned(uint64_t bytes, bool librarys);
bool fake_free(void *address); /* false: it is none */
bool fake_pin(void *address, uint64_t bytes);
bool fake_unpin(void *address);
int32_t fake_kind(int32_t device, const void *address);
bool fake_is_known(const void *address); /* allocated, or pinned */
/* Where a kernel finds an address; NULL stays NULL. An address that the device cannot read is a fault. */
void *fake_view(const void *address);
void fake_reset_memory(void);

#endif
