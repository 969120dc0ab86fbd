/* SPDX-License-Identifier: Apache-2.0 */
/* What runtime.c needs of the CUDA runtime, over the fake device: so runtime.c, and what the tests of device/ do on a real device,
 * is tested without one, by the programs runtime_bytes and so on in build/tests/device. */
#include "gpu/device.h"

#include "device/fake/fake.h"

#include <dlfcn.h>
#include <unistd.h>

static const struct fake_device *device;
static int current;

/* Before the constructor of runtime.c: the plug-in is the fake one. */
__attribute__((constructor(200))) static void begin(void) {
    char folder[4096], path[4200];
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 8);
    if (length <= 0) abort();
    folder[length] = 0;
    strcpy(strrchr(folder, '/'), "/fake");
    setenv("PKV_PLUGIN_DIR", folder, 1);
    snprintf(path, sizeof path, "%s/libpagedkv-cuda.so", folder);
    void *plugin = dlopen(path, RTLD_NOW);
    fake_device_entry entry = NULL;
    if (plugin != NULL) *(void **)&entry = dlsym(plugin, FAKE_DEVICE_ENTRY);
    if (entry == NULL) {
        fprintf(stderr, "no fake device in %s\n", folder);
        exit(1);
    }
    device = entry();
}

/* An error of the device's is said by whoever waits for it next. */
static cudaError_t waited(void) {
    const struct fake_counts counts = device->counts();
    if (counts.dead_streams != 0) return cudaErrorInvalidResourceHandle;
    return counts.faults != 0 ? cudaErrorIllegalAddress : cudaSuccess;
}

/* ---- devices and memory ---- */

cudaError_t cudaGetDeviceCount(int *count) {
    *count = device->settings().devices;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int index) {
    current = index;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    device->finish(NULL);
    return waited();
}

cudaError_t cudaMalloc(void **address, size_t bytes) {
    *address = device->alloc(current, bytes);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned int flags) {
    (void)flags;
    *address = device->alloc_pinned(bytes);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *address, int value, size_t bytes) {
    unsigned char *filled = malloc(bytes);
    memset(filled, value, bytes);
    device->write(address, filled, bytes);
    free(filled);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    if (kind == cudaMemcpyHostToDevice)
        device->write(to, from, bytes);
    else
        device->read(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind; /* both are memory that the device can use */
    device->copy(stream, to, from, bytes);
    return cudaSuccess;
}

/* ---- streams and events ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
    (void)flags;
    *stream = device->make_stream(current);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    device->end_stream(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    device->finish(stream);
    return waited();
}

cudaError_t cudaStreamQuery(cudaStream_t stream) { return device->idle(stream) ? cudaSuccess : cudaErrorNotReady; }

/* The event is the latest that was recorded, in the stream that follows it: runtime.c has no other use for this. */
static cudaStream_t recorded_in;

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    (void)event, (void)flags;
    device->order(stream, recorded_in);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    (void)flags;
    *event = device->make_event();
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    device->record(event, stream);
    recorded_in = stream;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    device->end_event(event);
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
    device->call(stream, function, data);
    return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    (void)mode;
    device->begin_capture(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    *graph = device->end_capture(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    (void)stream; /* reset() of the fake device ends captures */
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    (void)mode;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long flags) {
    (void)flags;
    *made = (void *)graph;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    (void)graph; /* it is what was made of it */
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    device->launch(graph, stream);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    device->end_graph(graph);
    return cudaSuccess;
}

/* ---- errors, and kernels.cu ---- */

cudaError_t cudaPeekAtLastError(void) { return cudaSuccess; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorIllegalAddress ? "a kernel got an address that it cannot use" : "an error";
}

void stand(void *stream, const uint64_t *word, uint64_t *expired) {
    (void)expired; /* the fake device gives up after a minute */
    device->await(stream, word);
}

void copy_bytes(void *stream, void *to, const void *from, uint64_t bytes) {
    if (bytes != 0) device->copy(stream, to, from, bytes);
}
