/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests on a real device share: the plug-in, one device that is in use, memory with known bytes, and
 * kernels of the tests' own. Without a device every test is skipped, with the reason said once. */
#ifndef PKV_TESTS_GPU_DEVICE_H
#define PKV_TESTS_GPU_DEVICE_H

#include "tensor/device_table.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
#include <cstdio>
#include <cstdlib>
#include <cstring>
extern "C" {
#endif

#include "support/support.h"

extern const pkv_device_table *gpu;
extern pkv_device_context *context; /* of device PKV_TEST_DEVICE, 0 by default; NULL: there is none */
extern int32_t device_index;
extern char why[512];

/* Setup and teardown of a group. */
int open_device(void **state);
int close_device(void **state);
#define needs_device()                                                                                                 \
    if (context == NULL) skip()

/* A status of the table, with its reason if it is another one; and of the runtime. */
#define assert_gpu(call, expected) check_gpu((call), (expected), #call, __FILE__, __LINE__)
void check_gpu(pkv_status got, pkv_status expected, const char *call, const char *file, int line);
#define assert_cuda(call) check_cuda((call), #call, __FILE__, __LINE__)
void check_cuda(cudaError_t got, const char *call, const char *file, int line);
#define WHY why, sizeof why

/* ---- memory; of the device it is poisoned ---- */
void *device_bytes(uint64_t bytes);
void free_bytes(void *address);
void *pinned_bytes(uint64_t bytes); /* zeros */
void free_pinned(void *address);
void upload(void *device, const void *host, uint64_t bytes);   /* done when it returns */
void download(void *host, const void *device, uint64_t bytes); /* after all work of the device */
void *upload_new(const void *host, uint64_t bytes);

/* ---- kernels.cu ---- */

/* The stream stands still until the word, in pinned memory, is not 0; for ten seconds at most. */
void hold_stream(void *stream, const volatile uint32_t *word);
/* The same, while the word is 0; if it is still 0 after ten seconds, `expired`, in pinned memory, becomes 1. */
void stand(void *stream, const uint64_t *word, uint64_t *expired);
/* Copies bytes between addresses that the device can use. */
void copy_bytes(void *stream, void *to, const void *from, uint64_t bytes);
/* An empty launch of as many threads; and one with parameters as large as the plug-in's. */
void launch_nothing(void *stream, uint32_t blocks, uint32_t threads);
void launch_parameters(void *stream, uint32_t blocks, uint32_t threads);

#ifdef __cplusplus
}
#endif

#endif
