/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations that fail when a test says so. A program that includes this defines the C library's allocation functions,
 * which the library then uses too. Where a tool has put its own in their place (sanitizers, valgrind) nothing fails: ask
 * hooks_work(), and skip. */
#ifndef PKV_TESTS_ALLOCATION_H
#define PKV_TESTS_ALLOCATION_H

#include "support/support.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t countdown = UINT64_MAX; /* allocations that still succeed */
static bool fail_once;                  /* only the next one fails, or all from then on */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { have_hooks = 0 };
#else
enum { have_hooks = 1 };

/* Whether this allocation fails. One thread at a time allocates here while a failure is armed. */
static bool out_of_memory(void) {
    if (countdown == UINT64_MAX) return false;
    if (countdown > 0) {
        --countdown;
        return false;
    }
    if (fail_once) countdown = UINT64_MAX;
    errno = ENOMEM;
    return true;
}

/* The function that stood there before. Its name and ours are the same. */
#define REAL(name)                                                                                                     \
    static __typeof__(name) *real;                                                                                     \
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, #name)

void *malloc(size_t size) {
    REAL(malloc);
    return out_of_memory() ? NULL : real(size);
}

void *calloc(size_t count, size_t size) {
    REAL(calloc);
    return out_of_memory() ? NULL : real(count, size);
}

void *realloc(void *old, size_t size) {
    REAL(realloc);
    return out_of_memory() ? NULL : real(old, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    REAL(aligned_alloc);
    return out_of_memory() ? NULL : real(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
    REAL(posix_memalign);
    return out_of_memory() ? ENOMEM : real(out, alignment, size);
}

void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset) {
    return out_of_memory() ? MAP_FAILED : (void *)syscall(SYS_mmap, address, length, protection, flags, file, offset);
}

static bool no_threads;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    REAL(pthread_create);
    return no_threads ? EAGAIN : real(thread, attributes, start, argument);
}
#endif

static bool hooks_work(void) {
    void *(*volatile allocate)(size_t) = malloc;
    countdown = 0;
    fail_once = true;
    void *memory = allocate(16);
    countdown = UINT64_MAX;
    free(memory);
    return have_hooks && memory == NULL;
}

#endif
