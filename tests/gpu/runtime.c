/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/runtime.h"

#include "gpu/device.h"

#include <pthread.h>
#include <unistd.h>

/* Memory of the tests lies in one piece for each kind: no call of a test allocates or frees, which may wait for the device. */
enum { arena_bytes = 32 << 20, guard_bytes = 256, max_streams = 256, max_ranges = 1 << 16, longest_wait_s = 60 };
enum { untouched = 0xDB };

typedef struct {
    unsigned char *base;
    uint64_t used;
    uint32_t num_ranges;
    struct {
        uint64_t at, bytes;
    } ranges[max_ranges]; /* what is between them stays as it was */
} arena;

typedef struct {
    cudaStream_t handle; /* NULL: a free entry */
    uint64_t *word;      /* of its hold; NULL: it was never held */
} stream_entry;

static struct {
    pthread_mutex_t mutex; /* a test may let a stream go on another thread */
    int32_t number[2];
    int num_devices;
    bool words;
    arena memory[2], pinned;
    stream_entry streams[max_streams];
    uint64_t *expired;     /* pinned: a stream that was held went on by itself */
    unsigned char *bounce; /* pinned */
    cudaStream_t aside;    /* for the host's own looks; of the test */
    bool broken;           /* memory that belongs to nobody was written */
} the = {.mutex = PTHREAD_MUTEX_INITIALIZER};

enum { bounce_bytes = 1 << 20 };

/* ---- begin ---- */

/* What the program does while a stream of its own is captured is no part of the graph. */
static enum cudaStreamCaptureMode relax(void) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    assert_cuda(cudaThreadExchangeStreamCaptureMode(&mode));
    return mode;
}
static void restore(enum cudaStreamCaptureMode mode) { assert_cuda(cudaThreadExchangeStreamCaptureMode(&mode)); }

static void find_devices(void) {
    int count = 0;
    assert_cuda(cudaGetDeviceCount(&count));
    the.number[0] = device_index;
    the.number[1] = device_index == 0 ? 1 : 0;
    the.num_devices = count > 1 && gpu->available(the.number[1], WHY) == PKV_OK ? 2 : 1;
    pkv_device_facts facts = {.struct_size = sizeof facts};
    assert_gpu(gpu->facts(context, &facts, WHY), PKV_OK);
    the.words = facts.waits_on_words != 0;
}

static void make_memory(void) {
    for (int i = the.num_devices - 1; i >= 0; --i) {
        assert_cuda(cudaSetDevice(the.number[i]));
        assert_cuda(cudaMalloc((void **)&the.memory[i].base, arena_bytes));
        assert_cuda(cudaMemset(the.memory[i].base, untouched, arena_bytes));
        assert_cuda(cudaDeviceSynchronize());
    }
    assert_cuda(cudaHostAlloc((void **)&the.pinned.base, arena_bytes, cudaHostAllocPortable));
    memset(the.pinned.base, untouched, arena_bytes);
    assert_cuda(cudaHostAlloc((void **)&the.bounce, bounce_bytes, cudaHostAllocPortable));
    assert_cuda(cudaHostAlloc((void **)&the.expired, sizeof *the.expired, cudaHostAllocPortable));
    *the.expired = 0;
    assert_cuda(cudaStreamCreateWithFlags(&the.aside, cudaStreamNonBlocking));
}

/* Each kernel once: the first launch of one may wait for all that the device has to do. */
static void load_kernels(void) {
    uint64_t *word = (uint64_t *)the.bounce;
    *word = 1;
    stand(the.aside, word, the.expired);
    copy_bytes(the.aside, the.bounce, the.memory[0].base, 16);
    assert_cuda(cudaStreamSynchronize(the.aside));
    assert_cuda(cudaGetLastError());
}

/* Before main: the tests know of no other device than a fake one. */
__attribute__((constructor)) static void begin(void) {
    /* Streams that share one of the device's queues wait for each other, and more than the default are in use. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (open_device(NULL) != 0 || context == NULL) {
        printf("SKIP no device: %s\n", why);
        exit(77);
    }
    find_devices();
    make_memory();
    load_kernels();
    (void)close_device(NULL); /* the library opens it for itself */
    context = NULL;
    unsetenv("PKV_TEST_DEVICE"); /* it says something else to support/on_device.c */
}

int num_devices(void) { return the.num_devices; }
int32_t device_number(int32_t index) { return the.number[index]; }
bool device_waits_on_words(void) { return the.words; }

static struct fake_settings settings(void) {
    fail_msg("a real device has no settings");
    return (struct fake_settings){0};
}
static void set(const struct fake_settings *unused) {
    (void)unused;
    fail_msg("a real device has no settings");
}
static struct fake_counts counts(void) {
    fail_msg("a real device counts nothing");
    return (struct fake_counts){0};
}

/* ---- memory ---- */

static unsigned char *take_room(arena *a, uint64_t bytes) {
    pthread_mutex_lock(&the.mutex);
    const uint64_t at = a->used;
    const bool fits = bytes < arena_bytes && at + bytes + 2 * guard_bytes <= arena_bytes && a->num_ranges < max_ranges;
    if (fits) {
        a->ranges[a->num_ranges].at = at;
        a->ranges[a->num_ranges++].bytes = bytes;
        a->used = (at + bytes + 2 * guard_bytes - 1) / guard_bytes * guard_bytes;
    }
    pthread_mutex_unlock(&the.mutex);
    if (!fits) fail_msg("a test wants more memory than there is: %llu bytes", (unsigned long long)bytes);
    return a->base + at;
}

static void *alloc(int32_t device, uint64_t bytes) { return take_room(&the.memory[device], bytes); }
static void *alloc_pinned(uint64_t bytes) { return take_room(&the.pinned, bytes); }
static void free_memory(void *address) { (void)address; } /* with the test */

static void read_memory(void *out, const void *address, uint64_t size) {
    const enum cudaStreamCaptureMode mode = relax();
    for (uint64_t at = 0; at < size; at += bounce_bytes) {
        const uint64_t piece = size - at < bounce_bytes ? size - at : bounce_bytes;
        assert_cuda(cudaMemcpyAsync(the.bounce, (const char *)address + at, piece, cudaMemcpyDeviceToHost, the.aside));
        assert_cuda(cudaStreamSynchronize(the.aside));
        memcpy((char *)out + at, the.bounce, piece);
    }
    restore(mode);
}

static void write_memory(void *address, const void *bytes, uint64_t size) {
    const enum cudaStreamCaptureMode mode = relax();
    for (uint64_t at = 0; at < size; at += bounce_bytes) {
        const uint64_t piece = size - at < bounce_bytes ? size - at : bounce_bytes;
        memcpy(the.bounce, (const char *)bytes + at, piece);
        assert_cuda(cudaMemcpyAsync((char *)address + at, the.bounce, piece, cudaMemcpyHostToDevice, the.aside));
        assert_cuda(cudaStreamSynchronize(the.aside));
    }
    restore(mode);
}

/* What lies between the pieces that were given out, of a copy. */
static bool is_untouched(const arena *a, const unsigned char *bytes) {
    for (uint32_t i = 0; i < a->num_ranges; ++i) {
        const uint64_t end = i + 1 < a->num_ranges ? a->ranges[i + 1].at : a->used;
        for (uint64_t at = a->ranges[i].at + a->ranges[i].bytes; at < end; ++at)
            if (bytes[at] != untouched) {
                print_error("byte %llu behind %llu bytes of a test's was written\n",
                            (unsigned long long)(at - a->ranges[i].at - a->ranges[i].bytes + 1),
                            (unsigned long long)a->ranges[i].bytes);
                return false;
            }
    }
    return true;
}

static void empty(arena *a, bool of_device) {
    if (a->used == 0) return;
    if (of_device) {
        unsigned char *copy = malloc(a->used);
        read_memory(copy, a->base, a->used);
        the.broken = the.broken || !is_untouched(a, copy);
        memset(copy, untouched, a->used);
        write_memory(a->base, copy, a->used);
        free(copy);
    } else {
        the.broken = the.broken || !is_untouched(a, a->base);
        memset(a->base, untouched, a->used);
    }
    a->used = a->num_ranges = 0;
}

/* ---- streams ---- */

static stream_entry *entry_of(const void *handle) { /* under the lock */
    for (int i = 0; i < max_streams; ++i)
        if (the.streams[i].handle == handle) return &the.streams[i];
    return NULL;
}

static void *make_stream(int32_t device) {
    cudaStream_t made = NULL;
    assert_cuda(cudaSetDevice(the.number[device]));
    assert_cuda(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    assert_cuda(cudaSetDevice(the.number[0]));
    pthread_mutex_lock(&the.mutex);
    stream_entry *entry = entry_of(NULL);
    if (entry != NULL) *entry = (stream_entry){made, NULL};
    pthread_mutex_unlock(&the.mutex);
    if (entry == NULL) fail_msg("a test has more than %d streams", max_streams);
    return made;
}

static void end_stream(void *handle) {
    pthread_mutex_lock(&the.mutex);
    stream_entry *entry = entry_of(handle);
    if (entry != NULL) entry->handle = NULL;
    pthread_mutex_unlock(&the.mutex);
    assert_cuda(cudaStreamDestroy(handle)); /* what is in it still runs */
}

static void let_go(void *handle) {
    pthread_mutex_lock(&the.mutex);
    stream_entry *entry = entry_of(handle);
    if (entry != NULL && entry->word != NULL) __atomic_store_n(entry->word, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&the.mutex);
}

/* What is put into it from now on does not run. */
static void hold(void *handle) {
    uint64_t *word = alloc_pinned(sizeof *word);
    *word = 0;
    let_go(handle);
    pthread_mutex_lock(&the.mutex);
    stream_entry *entry = entry_of(handle);
    if (entry != NULL) entry->word = word;
    pthread_mutex_unlock(&the.mutex);
    assert_non_null(entry);
    stand(handle, word, the.expired);
    assert_cuda(cudaPeekAtLastError());
}

/* The thread waits; for a minute at most: then the process is stopped. */
static void finish(void *handle) {
    const enum cudaStreamCaptureMode mode = relax();
    cudaError_t error = cudaSuccess;
    (void)alarm(longest_wait_s);
    if (handle != NULL) error = cudaStreamSynchronize(handle);
    for (int i = the.num_devices - 1; i >= 0 && handle == NULL && error == cudaSuccess; --i) {
        error = cudaSetDevice(the.number[i]);
        if (error == cudaSuccess) error = cudaDeviceSynchronize();
    }
    (void)alarm(0);
    assert_cuda(error);
    assert_cuda(cudaPeekAtLastError()); /* nobody has left one */
    restore(mode);
}

/* A stream may be said to be at work for a moment after the last of its events has passed. */
static bool idle(void *handle) {
    for (int i = 0; i < 20; ++i) {
        const cudaError_t error = cudaStreamQuery(handle);
        if (error == cudaSuccess) return true;
        if (error != cudaErrorNotReady) assert_cuda(error);
        (void)cudaGetLastError();
        usleep(100);
    }
    return false;
}

static void *make_event(void) {
    cudaEvent_t event = NULL;
    assert_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}
static void record(void *event, void *handle) { assert_cuda(cudaEventRecord(event, handle)); }
static void end_event(void *event) { assert_cuda(cudaEventDestroy(event)); }

static void order(void *handle, void *after) {
    void *event = make_event();
    record(event, after);
    assert_cuda(cudaStreamWaitEvent(handle, event, 0));
    end_event(event);
}

/* ---- the program's own kernels ---- */

static void put(void *handle, void *address, const void *bytes, uint64_t size) {
    unsigned char *taken = alloc_pinned(size);
    memcpy(taken, bytes, size);
    copy_bytes(handle, address, taken, size);
    assert_cuda(cudaPeekAtLastError());
}

typedef struct {
    void *out;
    const void *bytes;
    uint64_t size;
} taking;

static void hand_over(void *data) {
    taking *t = data;
    memcpy(t->out, t->bytes, t->size);
    free(t);
}

static void take(void *handle, void *out, const void *address, uint64_t size) {
    taking *t = malloc(sizeof *t);
    unsigned char *found = alloc_pinned(size);
    *t = (taking){out, found, size};
    copy_bytes(handle, found, address, size);
    assert_cuda(cudaPeekAtLastError());
    assert_cuda(cudaLaunchHostFunc(handle, hand_over, t));
}

/* ---- graphs ---- */

static void begin_capture(void *handle) { assert_cuda(cudaStreamBeginCapture(handle, cudaStreamCaptureModeGlobal)); }

static void *end_capture(void *handle) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t made = NULL;
    assert_cuda(cudaStreamEndCapture(handle, &graph)); /* fails if a call has ended it before */
    assert_cuda(cudaGraphInstantiate(&made, graph, 0));
    assert_cuda(cudaGraphDestroy(graph));
    return made;
}

static void launch(void *graph, void *handle) { assert_cuda(cudaGraphLaunch(graph, handle)); }
static void end_graph(void *graph) { assert_cuda(cudaGraphExecDestroy(graph)); }

/* ---- end ---- */

static void reset(void) {
    for (int i = 0; i < max_streams; ++i) /* a test that failed may have left anything */
        if (the.streams[i].handle != NULL) {
            enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
            cudaGraph_t graph = NULL;
            let_go(the.streams[i].handle);
            (void)cudaStreamIsCapturing(the.streams[i].handle, &status);
            if (status == cudaStreamCaptureStatusNone) continue;
            (void)cudaStreamEndCapture(the.streams[i].handle, &graph);
            if (graph != NULL) (void)cudaGraphDestroy(graph);
            (void)cudaGetLastError();
        }
    finish(NULL);
    for (int i = 0; i < max_streams; ++i)
        if (the.streams[i].handle != NULL) end_stream(the.streams[i].handle);
    for (int i = 0; i < the.num_devices; ++i) empty(&the.memory[i], true);
    empty(&the.pinned, false);
    /* Streams that are made one after another are in different queues of the device; those of a test, and the library's, are few. */
    assert_cuda(cudaStreamDestroy(the.aside));
    assert_cuda(cudaStreamCreateWithFlags(&the.aside, cudaStreamNonBlocking));
}

int check_runtime(void) {
    const bool expired = __atomic_exchange_n(the.expired, 0, __ATOMIC_ACQ_REL) != 0, broken = the.broken;
    the.broken = false;
    if (expired) print_error("a stream that was held was not let go for so long that it went on: somebody waited\n");
    return expired || broken ? -1 : 0;
}

const struct fake_device *fake(void) {
    static const struct fake_device device = {
        .settings = settings,
        .set = set,
        .counts = counts,
        .reset = reset,
        .make_stream = make_stream,
        .end_stream = end_stream,
        .hold = hold,
        .let_go = let_go,
        .finish = finish,
        .idle = idle,
        .order = order,
        .make_event = make_event,
        .record = record,
        .end_event = end_event,
        .alloc = alloc,
        .alloc_pinned = alloc_pinned,
        .free = free_memory,
        .read = read_memory,
        .write = write_memory,
        .put = put,
        .take = take,
        .begin_capture = begin_capture,
        .end_capture = end_capture,
        .launch = launch,
        .end_graph = end_graph,
    };
    return &device;
}
