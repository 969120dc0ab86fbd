// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

namespace {

__global__ void hold(const volatile uint32_t *word) {
    const long long begin = clock64();
    while (*word == 0 && clock64() - begin < 20000000000ll) {
    }
}

__device__ unsigned long long now_ns() {
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

__global__ void stand_until(const volatile uint64_t *word, volatile uint64_t *expired) {
    const unsigned long long begin = now_ns();
    while (*word == 0) {
        if (now_ns() - begin > 10000000000ull) {
            *expired = 1;
            __threadfence_system();
            return;
        }
        __nanosleep(1000);
    }
}

__global__ void copy(unsigned char *to, const volatile unsigned char *from, uint64_t bytes) {
    for (uint64_t i = threadIdx.x; i < bytes; i += blockDim.x) to[i] = from[i];
}

__global__ void nothing() {}

struct Parameters {
    unsigned char bytes[3800];
};
__global__ void parameters(const __grid_constant__ Parameters given, unsigned char *never) {
    if (never != nullptr) *never = given.bytes[threadIdx.x];
}

} // namespace

extern "C" {

void hold_stream(void *stream, const volatile uint32_t *word) {
    hold<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(word);
}

void stand(void *stream, const uint64_t *word, uint64_t *expired) {
    stand_until<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(word, expired);
}

void copy_bytes(void *stream, void *to, const void *from, uint64_t bytes) {
    if (bytes == 0) return;
    copy<<<1, 128, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<unsigned char *>(to),
                                                           static_cast<const unsigned char *>(from), bytes);
}

void launch_nothing(void *stream, uint32_t blocks, uint32_t threads) {
    nothing<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>();
}

void launch_parameters(void *stream, uint32_t blocks, uint32_t threads) {
    parameters<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(Parameters{}, nullptr);
}
}
