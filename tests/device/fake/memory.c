/* SPDX-License-Identifier: Apache-2.0 */
#include "device/fake/inside.h"

#include <sys/mman.h>
#include <unistd.h>

typedef struct range {
    unsigned char *at;
    uint64_t bytes, mapped;
    unsigned char *view; /* the same memory for kernels */
    int32_t kind;        /* PKV_ADDRESS_DEVICE or PINNED */
    int32_t device;
    bool librarys, foreign; /* foreign: pinned, not allocated */
    struct range *next;
} range;

static range *ranges;

static range *find(const void *address) {
    for (range *r = ranges; r != NULL; r = r->next)
        if ((const unsigned char *)address >= r->at && (const unsigned char *)address < r->at + r->bytes) return r;
    return NULL;
}

static range *add(void *at, uint64_t bytes, int32_t kind, int32_t device, bool librarys) {
    range *r = calloc(1, sizeof *r);
    *r = (range){at, bytes, bytes, at, kind, device, librarys, false, ranges};
    ranges = r;
    return r;
}

static uint64_t rounded(uint64_t bytes) {
    const uint64_t page = 4096;
    return (bytes + page - 1) / page * page;
}

void *fake_alloc(int32_t device, uint64_t bytes, bool librarys) {
    const uint64_t size = rounded(bytes);
    if (fake_settings.memory_limit != 0 && fake_counts.device_bytes + size > fake_settings.memory_limit) return NULL;
    const int file = memfd_create("device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)size) != 0) abort();
    const int access = fake_settings.open_memory ? PROT_READ | PROT_WRITE : PROT_NONE;
    unsigned char *at = mmap(NULL, size, access, MAP_SHARED, file, 0);
    unsigned char *view = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED || view == MAP_FAILED) abort();
    memset(view, 0xDB, size); /* as of somebody before */
    range *r = add(at, bytes, PKV_ADDRESS_DEVICE, device, librarys);
    r->mapped = size;
    r->view = fake_settings.open_memory ? at : view;
    if (fake_settings.open_memory) munmap(view, size);
    fake_counts.device_bytes += size;
    if (librarys) ++fake_counts.allocations;
    return at;
}

void *fake_alloc_pinned(uint64_t bytes, bool librarys) {
    unsigned char *at = mmap(NULL, rounded(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) abort();
    range *r = add(at, bytes, PKV_ADDRESS_PINNED, 0, librarys);
    r->mapped = rounded(bytes);
    memset(at, 0xDC, bytes);
    if (librarys) ++fake_counts.pinned;
    return at;
}

static void release(range *r) {
    for (range **at = &ranges; *at != NULL; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    if (!r->foreign) {
        if (r->view != r->at) munmap(r->view, r->mapped);
        munmap(r->at, r->mapped);
        if (r->kind == PKV_ADDRESS_DEVICE) fake_counts.device_bytes -= r->mapped;
        if (r->librarys) --*(r->kind == PKV_ADDRESS_DEVICE ? &fake_counts.allocations : &fake_counts.pinned);
    } else {
        --fake_counts.pins;
    }
    free(r);
}

bool fake_free(void *address) {
    range *r = find(address);
    if (r == NULL || r->at != address || r->foreign) return false;
    release(r);
    return true;
}

bool fake_pin(void *address, uint64_t bytes) {
    for (range *r = ranges; r != NULL; r = r->next) /* a range that touches another one cannot be pinned */
        if ((unsigned char *)address < r->at + r->bytes && r->at < (unsigned char *)address + bytes) return false;
    range *r = add(address, bytes, PKV_ADDRESS_PINNED, 0, true);
    r->foreign = true;
    ++fake_counts.pins;
    return true;
}

bool fake_unpin(void *address) {
    range *r = find(address);
    if (r == NULL || r->at != address || !r->foreign) return false;
    release(r);
    return true;
}

int32_t fake_kind(int32_t device, const void *address) {
    const range *r = find(address);
    if (r == NULL) return fake_settings.all_pinned ? PKV_ADDRESS_PINNED : PKV_ADDRESS_HOST;
    if (r->kind == PKV_ADDRESS_DEVICE && r->device != device) return PKV_ADDRESS_OTHER;
    return r->kind;
}

bool fake_is_known(const void *address) { return find(address) != NULL; }

void *fake_view(const void *address) {
    if (address == NULL) return NULL;
    const range *r = find(address);
    if (r != NULL) return r->view + ((const unsigned char *)address - r->at);
    if (!fake_settings.all_pinned) {
        ++fake_counts.faults;
        fprintf(stderr, "fake device: a kernel got the address %p, which it cannot read\n", address);
    }
    return (void *)(uintptr_t)address;
}

void fake_reset_memory(void) {
    for (range *r = ranges, *next; r != NULL; r = next) {
        next = r->next;
        if (!r->librarys) release(r);
    }
}
