/* SPDX-License-Identifier: Apache-2.0 */
/* A device of host memory, as a plug-in: libpagedkv-cuda.so in a folder of its own. Its kernels are the real ones' bodies over an
 * emulated grid. What matters is when they run: nothing of what is put into a stream runs before a thread waits for it, or the
 * device's own thread comes along, which takes its time and takes streams in an order drawn from a seed. Whoever forgets to
 * order two streams sees old bytes.
 *
 * Memory of the device is mapped twice: at its address nobody can read or write it, so that a host that tries to is caught; the
 * kernels, and tests (read, write), go through another one. */
#ifndef PKV_TESTS_FAKE_DEVICE_H
#define PKV_TESTS_FAKE_DEVICE_H

#include <pagedkv/types.h>
#include <stdbool.h>

enum { fake_fail_name = 32 };

struct fake_settings {
    int devices;           /* 0: as without a driver */
    uint64_t seed;         /* of the order of streams, and of blocks and threads */
    uint64_t pace_ns;      /* longest pause of the device's own thread between two pieces of work */
    int open_memory;       /* memory of the device can be read and written at its address by the host, too */
    int all_pinned;        /* the device reads all host memory; rows to be written are taken from there at once */
    int no_words;          /* no wait_word() */
    int no_stream_ids;     /* no stream_id() */
    int ignore_order;      /* order_after() does nothing: what a library would do that forgets it */
    int refuse_pins;       /* pin() fails */
    int stopped_clock;     /* nothing takes any time between two events */
    uint64_t memory_limit; /* of a device; 0: none */
    /* One call fails: of the function of the table with this name, after so many that go well. */
    char fail[fake_fail_name];
    uint64_t fail_after;
    pkv_status fail_status;
    int fail_for_good; /* and all after it */
};

struct fake_counts {
    uint64_t contexts, streams, events, allocations, pinned, pins; /* of the library's, open now */
    uint64_t device_bytes;
    uint64_t launches; /* kernels, copies, fills put into streams */
    uint64_t writes, gathers, page_copies, packs, unpacks, copies, fills;
    uint64_t records, orders, waits; /* events recorded; streams ordered after one; waits of threads */
    uint64_t faults;                 /* addresses that the device cannot read, in a kernel */
    uint64_t capture_faults;         /* calls that end a capture, or that a captured stream does not take */
    uint64_t dead_streams;           /* uses of streams that had ended */
    uint64_t last_blocks;            /* max_blocks of the last transfer */
};

/* What a program asks of the device itself: what it would ask the runtime. tests/gpu/runtime.c asks the runtime. */
struct fake_device {
    struct fake_settings (*settings)(void);
    void (*set)(const struct fake_settings *settings);
    struct fake_counts (*counts)(void);
    void (*reset)(
        void); /* default settings, counts of events to 0; streams, events and memory of the program's are gone */

    void *(*make_stream)(int32_t device);
    void (*end_stream)(void *stream);
    void (*hold)(void *stream); /* nothing in it runs */
    void (*let_go)(void *stream);
    void (*finish)(void *stream); /* the thread waits for it; NULL: for everything */
    bool (*idle)(void *stream);
    void (*order)(void *stream, void *after); /* what is put into a stream comes after what another one has */
    void *(*make_event)(void);
    void (*record)(void *event, void *stream);
    void (*end_event)(void *event);

    void *(*alloc)(int32_t device, uint64_t bytes);
    void *(*alloc_pinned)(uint64_t bytes);
    void (*free)(void *address); /* of either */
    /* The host's own look at memory of the device, and its way to change it: at once, whatever streams have to do. */
    void (*read)(void *out, const void *address, uint64_t size);
    void (*write)(void *address, const void *bytes, uint64_t size);
    /* The program's own kernel: copies `bytes` of the host's, which are taken at once, to the device's memory. */
    void (*put)(void *stream, void *address, const void *bytes, uint64_t size);
    /* And one that takes memory of the device's as it is when it runs. */
    void (*take)(void *stream, void *out, const void *address, uint64_t size);

    void (*begin_capture)(void *stream);
    void *(*end_capture)(void *stream); /* a graph */
    void (*launch)(void *graph, void *stream);
    void (*end_graph)(void *graph);

    /* What a CUDA runtime is made of (gpu/stand_in.c): in a stream, the stream waits for a word that is not 0, copies between
     * addresses that the device can use, and calls a function. */
    void (*await)(void *stream, const uint64_t *word);
    void (*copy)(void *stream, void *to, const void *from, uint64_t size);
    void (*call)(void *stream, void (*function)(void *), void *data);
};

/* The plug-in has it under this name. */
#define FAKE_DEVICE_ENTRY "fake_device"
typedef const struct fake_device *(*fake_device_entry)(void);

#endif
