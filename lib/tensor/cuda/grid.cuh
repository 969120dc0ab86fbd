// SPDX-License-Identifier: Apache-2.0
// What the kernels' bodies stand on. A body is one thread's part of the work, an inline function for the device and for
// the host: there it is run over a grid of any shape (emulated.h), and compared with the host back end. So it knows
// where it stands from a Grid alone, talks to other threads through max_of_team() alone, and touches memory through
// load() and store() alone.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define PKV_HD __host__ __device__ __forceinline__
#else
#define PKV_HD inline
#endif

namespace pkv::cuda {

/// Where a thread stands.
struct Grid {
    uint32_t blocks;
    uint32_t threads; ///< of a block
    uint32_t block;
    uint32_t thread;
};

/// A team: the `lanes` neighbouring threads of a block that share one item; 2^lanes_log2. Threads of a block that are
/// too few for another team have no items.
struct Team {
    uint64_t first; ///< item
    uint64_t step;  ///< from item to item
    uint32_t lane;
    uint32_t lanes;

    PKV_HD Team(const Grid &grid, uint32_t lanes_log2) {
        const uint32_t of_block = grid.threads >> lanes_log2;
        const uint32_t team = grid.thread >> lanes_log2;
        lanes = uint32_t{1} << lanes_log2;
        lane = grid.thread & (lanes - 1);
        step = static_cast<uint64_t>(grid.blocks) * of_block;
        first = team < of_block ? static_cast<uint64_t>(grid.block) * of_block + team : UINT64_MAX;
    }
};

/// The largest of partial(lane) over the lanes of a team of 32 or fewer, all of which are here.
template <class Partial> PKV_HD uint32_t max_of_team(uint32_t lane, uint32_t lanes, const Partial &partial) {
#if defined(__CUDA_ARCH__)
    uint32_t most = partial(lane);
    const uint32_t mask =
        lanes == 32 ? ~uint32_t{0} : ((uint32_t{1} << lanes) - 1) << ((threadIdx.x & 31) & ~(lanes - 1));
    for (uint32_t apart = lanes / 2; apart > 0; apart /= 2) {
        const uint32_t other = __shfl_xor_sync(mask, most, apart);
        most = other > most ? other : most;
    }
    return most;
#else
    (void)lane;
    uint32_t most = 0;
    for (uint32_t i = 0; i < lanes; ++i) {
        const uint32_t other = partial(i);
        most = other > most ? other : most;
    }
    return most;
#endif
}

// ---- division by what a launch does not change ----------------------------------------------------------------------

PKV_HD uint64_t multiply_high(uint64_t a, uint64_t b) {
#if defined(__CUDA_ARCH__)
    return __umul64hi(a, b);
#else
    return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
#endif
}

PKV_HD uint32_t multiply_high(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    return __umulhi(a, b);
#else
    return static_cast<uint32_t>((static_cast<uint64_t>(a) * b) >> 32);
#endif
}

/// n / by for every n: the product with 1 / by, rounded down, is the quotient or one less.
template <class Number> struct Divider {
    Number by;
    Number inverse;

    PKV_HD Number divide(Number n, Number &rest) const {
        Number quotient = multiply_high(n, inverse);
        rest = n - quotient * by;
        if (rest >= by) {
            rest -= by;
            ++quotient;
        }
        return quotient;
    }
};
using Divider64 = Divider<uint64_t>;
using Divider32 = Divider<uint32_t>;

PKV_HD Divider64 divider64(uint64_t by) { return {by, UINT64_MAX / by}; }
PKV_HD Divider32 divider32(uint32_t by) { return {by, UINT32_MAX / by}; }

// ---- memory ---------------------------------------------------------------------------------------------------------

/// What one access moves: `bytes` bytes at an address that is a multiple of them.
template <int bytes> struct Unit;
template <> struct alignas(16) Unit<16> { uint32_t x, y, z, w; };
template <> struct alignas(8) Unit<8> { uint32_t x, y; };
template <> struct Unit<4> { uint32_t x; };
template <> struct Unit<2> { uint16_t x; };
template <> struct Unit<1> { uint8_t x; };

#if !defined(__CUDA_ARCH__)
/// An address that the device would not take: counted, and read or written all the same (emulated.cpp).
void misaligned(const void *address, int bytes);
#endif

template <int bytes> PKV_HD Unit<bytes> load(const void *address) {
#if defined(__CUDA_ARCH__)
    __builtin_assume(__isGlobal(address));
    return *static_cast<const Unit<bytes> *>(address);
#else
    if (reinterpret_cast<uintptr_t>(address) % bytes != 0) misaligned(address, bytes);
    Unit<bytes> unit;
    std::memcpy(&unit, address, bytes);
    return unit;
#endif
}

template <int bytes> PKV_HD void store(void *address, const Unit<bytes> &unit) {
#if defined(__CUDA_ARCH__)
    __builtin_assume(__isGlobal(address));
    *static_cast<Unit<bytes> *>(address) = unit;
#else
    if (reinterpret_cast<uintptr_t>(address) % bytes != 0) misaligned(address, bytes);
    std::memcpy(address, &unit, bytes);
#endif
}

/// The same at any address, byte by byte where it has to be.
template <int bytes> PKV_HD Unit<bytes> load_any(const void *address) {
    if (reinterpret_cast<uintptr_t>(address) % bytes == 0) return load<bytes>(address);
    uint32_t value = 0;
    for (int i = 0; i < bytes; ++i)
        value |= static_cast<uint32_t>(load<1>(static_cast<const uint8_t *>(address) + i).x) << (8 * i);
    Unit<bytes> unit;
    memcpy(&unit, &value, bytes);
    return unit;
}

template <int bytes> PKV_HD void store_any(void *address, const Unit<bytes> &unit) {
    if (reinterpret_cast<uintptr_t>(address) % bytes == 0) return store<bytes>(address, unit);
    uint32_t value = 0;
    memcpy(&value, &unit, bytes);
    for (int i = 0; i < bytes; ++i)
        store<1>(static_cast<uint8_t *>(address) + i, Unit<1>{static_cast<uint8_t>(value >> (8 * i))});
}

/// Units that a thread has under way at a time.
inline constexpr uint32_t batch_units = 4;

} // namespace pkv::cuda
