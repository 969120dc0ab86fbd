/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/device.h"

#include <dlfcn.h>
#include <unistd.h>

const pkv_device_table *gpu;
pkv_device_context *context;
int32_t device_index;
char why[512];

static const pkv_device_table *load_plugin(void) {
    char path[8192], self[4096];
    const char *folder = getenv("PKV_PLUGIN_DIR"), *build = getenv("BUILD");
    if (build == NULL) {
        const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
        if (length < 0) return NULL;
        self[length] = '\0';
        for (int i = 0; i < 3; ++i) *strrchr(self, '/') = '\0'; /* tests/gpu/program */
        build = self;
    }
    if (folder != NULL) /* where the library looks for it, too */
        snprintf(path, sizeof path, "%s/libpagedkv-cuda.so", folder);
    else
        snprintf(path, sizeof path, "%s/lib/pagedkv/libpagedkv-cuda.so", build);
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why, sizeof why, "%s", dlerror());
        return NULL;
    }
    pkv_device_entry entry;
    *(void **)&entry = dlsym(library, PKV_DEVICE_ENTRY);
    return entry == NULL ? NULL : entry();
}

int open_device(void **state) {
    (void)state;
    const char *const wish = getenv("PKV_TEST_DEVICE");
    device_index = wish != NULL ? atoi(wish) : 0;
    gpu = load_plugin();
    if (gpu == NULL || gpu->open(device_index, &context, why, sizeof why) != PKV_OK) {
        print_message("no device: %s\n", why);
        context = NULL;
    }
    if (getenv("PKV_TEST_PROBE") != NULL) exit(context != NULL ? 0 : 77); /* run.sh: is there one? */
    if (context == NULL) return 0;
    assert_cuda(cudaSetDevice(device_index));
    return 0;
}

int close_device(void **state) {
    (void)state;
    if (context != NULL) gpu->close(context);
    return 0;
}

void check_gpu(pkv_status got, pkv_status expected, const char *call, const char *file, int line) {
    if (got == expected) return;
    print_error("%s: %s, not %s: %s\n", call, pkv_status_string(got), pkv_status_string(expected), why);
    _fail(file, line);
}

void check_cuda(cudaError_t got, const char *call, const char *file, int line) {
    if (got == cudaSuccess) return;
    print_error("%s: %s\n", call, cudaGetErrorString(got));
    _fail(file, line);
}

void *device_bytes(uint64_t bytes) {
    void *address = NULL;
    assert_gpu(gpu->alloc(context, bytes, &address, WHY), PKV_OK);
    assert_int_equal((uintptr_t)address % 256, 0);
    assert_cuda(cudaMemset(address, 0xA5, bytes));
    assert_cuda(cudaDeviceSynchronize());
    return address;
}

void free_bytes(void *address) { gpu->free(context, address); }

void *pinned_bytes(uint64_t bytes) {
    void *address = NULL;
    assert_gpu(gpu->alloc_pinned(context, bytes, &address, WHY), PKV_OK);
    memset(address, 0, bytes);
    return address;
}

void free_pinned(void *address) { gpu->free_pinned(context, address); }

void upload(void *device, const void *host, uint64_t bytes) {
    if (bytes == 0) return;
    assert_cuda(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
    assert_cuda(cudaDeviceSynchronize());
}

void download(void *host, const void *device, uint64_t bytes) {
    assert_cuda(cudaDeviceSynchronize());
    if (bytes != 0) assert_cuda(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
}

void *upload_new(const void *host, uint64_t bytes) {
    void *const device = device_bytes(bytes == 0 ? 1 : bytes);
    upload(device, host, bytes);
    return device;
}
