// SPDX-License-Identifier: Apache-2.0
// Images and the pages they go to are cold: the time of a pass is that of the memory. So each line is loaded once, summed,
// and stored past the caches from the same registers (measured with 128 KiB and 1 MiB images outside of the caches, one core:
// 1.1 to 1.7 times memcpy, which fetches its destination first; sum and memcpy by turns, 4 KiB to whole slices: 0.6 to 0.8).
// That needs XXH3's inner loop here; its results are those of the library, which does the work on other machines.
#include "layout/image_slices.h"

#include <pagedkv/pool.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#if defined(__x86_64__)
// GCC takes the undefined operands in its own intrinsics for uninitialised variables (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#endif

namespace pkv {
namespace {

// ---- the sum -------------------------------------------------------------------------------------------------------

constexpr uint64_t line_bytes = 64;

#if defined(__x86_64__)

// XXH3-64 of long inputs without a seed, as the xxHash specification has it: eight accumulators take in stripes of 64 bytes,
// each under its place in the secret; after a block of 16 stripes they are scrambled.
constexpr uint64_t block_bytes = 1024;
constexpr uint64_t block_stripes = block_bytes / line_bytes;
constexpr uint64_t secret_bytes = 192;
constexpr uint64_t scramble_at = secret_bytes - 64; // of the secret
constexpr uint64_t last_stripe_at = scramble_at - 7;
constexpr uint64_t merge_at = 11;
constexpr uint64_t ahead = 1024; // how far in front of the loads the source is fetched
constexpr uint32_t prime32_1 = 0x9E3779B1U, prime32_2 = 0x85EBCA77U, prime32_3 = 0xC2B2AE3DU;
constexpr uint64_t prime64_1 = 0x9E3779B185EBCA87U, prime64_2 = 0xC2B2AE3D27D4EB4FU, prime64_3 = 0x165667B19E3779F9U,
                   prime64_4 = 0x85EBCA77C2B2AE63U, prime64_5 = 0x27D4EB2F165667C5U;

struct Secret {
    Secret() { XXH3_generateSecret_fromSeed(bytes, 0); } // seed 0: the secret of the sums without a seed
    alignas(64) std::byte bytes[secret_bytes];
};

const std::byte *secret() {
    static const Secret the_secret;
    return the_secret.bytes;
}

struct Accumulators {
    alignas(64) uint64_t lanes[8] = {prime32_3, prime64_1, prime64_2, prime64_3,
                                     prime64_4, prime32_2, prime64_5, prime32_1};
};

/// Takes in `blocks` blocks, and stores them at `dst`, aligned to a line, when `copy` is set. `ends`: the input ends here.
using SumBlocks = void (*)(Accumulators &, const std::byte *src, std::byte *dst, uint64_t blocks, bool ends);

template <bool copy>
void sum_sse2(Accumulators &sums, const std::byte *src, std::byte *dst, uint64_t blocks, bool ends) {
    const auto load = [](const void *at) { return _mm_loadu_si128(static_cast<const __m128i *>(at)); };
    const std::byte *const keys = secret();
    const __m128i prime = _mm_set1_epi32(static_cast<int>(prime32_1));
    __m128i sum[4] = {load(sums.lanes), load(sums.lanes + 2), load(sums.lanes + 4), load(sums.lanes + 6)};
    for (; blocks > 0; --blocks) {
        const bool last = ends && blocks == 1;
        for (uint64_t stripe = 0; stripe < block_stripes; ++stripe, src += line_bytes) {
            const std::byte *const key = keys + (last && stripe == block_stripes - 1 ? last_stripe_at : stripe * 8);
            __builtin_prefetch(src + ahead);
            for (int i = 0; i < 4; ++i) {
                const __m128i data = load(src + i * 16);
                const __m128i mixed = _mm_xor_si128(data, load(key + i * 16));
                const __m128i product = _mm_mul_epu32(mixed, _mm_shuffle_epi32(mixed, _MM_SHUFFLE(0, 3, 0, 1)));
                const __m128i crossed = _mm_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2));
                sum[i] = _mm_add_epi64(sum[i], _mm_add_epi64(product, crossed));
                if (copy) _mm_stream_si128(reinterpret_cast<__m128i *>(dst + i * 16), data);
            }
            if (copy) dst += line_bytes;
        }
        if (last) break;
        for (int i = 0; i < 4; ++i) {
            const __m128i folded = _mm_xor_si128(sum[i], _mm_srli_epi64(sum[i], 47));
            const __m128i mixed = _mm_xor_si128(folded, load(keys + scramble_at + i * 16));
            const __m128i high = _mm_mul_epu32(_mm_srli_epi64(mixed, 32), prime);
            sum[i] = _mm_add_epi64(_mm_mul_epu32(mixed, prime), _mm_slli_epi64(high, 32));
        }
    }
    for (int i = 0; i < 4; ++i) _mm_store_si128(reinterpret_cast<__m128i *>(sums.lanes + i * 2), sum[i]);
}

template <bool copy>
[[gnu::target("avx2")]] void sum_avx2(Accumulators &sums, const std::byte *src, std::byte *dst, uint64_t blocks,
                                      bool ends) {
    const std::byte *const keys = secret();
    const __m256i prime = _mm256_set1_epi32(static_cast<int>(prime32_1));
    auto *const lanes = reinterpret_cast<__m256i *>(sums.lanes);
    __m256i sum[2] = {_mm256_load_si256(lanes), _mm256_load_si256(lanes + 1)};
    for (; blocks > 0; --blocks) {
        const bool last = ends && blocks == 1;
        for (uint64_t stripe = 0; stripe < block_stripes; ++stripe, src += line_bytes) {
            const std::byte *const key = keys + (last && stripe == block_stripes - 1 ? last_stripe_at : stripe * 8);
            __builtin_prefetch(src + ahead);
            for (int i = 0; i < 2; ++i) {
                const __m256i data = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(src) + i);
                const __m256i mixed =
                    _mm256_xor_si256(data, _mm256_loadu_si256(reinterpret_cast<const __m256i *>(key) + i));
                const __m256i product = _mm256_mul_epu32(mixed, _mm256_srli_epi64(mixed, 32));
                const __m256i crossed = _mm256_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2));
                sum[i] = _mm256_add_epi64(sum[i], _mm256_add_epi64(product, crossed));
                if (copy) _mm256_stream_si256(reinterpret_cast<__m256i *>(dst) + i, data);
            }
            if (copy) dst += line_bytes;
        }
        if (last) break;
        for (int i = 0; i < 2; ++i) {
            const auto *const key = reinterpret_cast<const __m256i *>(keys + scramble_at) + i;
            const __m256i folded = _mm256_xor_si256(sum[i], _mm256_srli_epi64(sum[i], 47));
            const __m256i mixed = _mm256_xor_si256(folded, _mm256_loadu_si256(key));
            const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), prime);
            sum[i] = _mm256_add_epi64(_mm256_mul_epu32(mixed, prime), _mm256_slli_epi64(high, 32));
        }
    }
    for (int i = 0; i < 2; ++i) _mm256_store_si256(lanes + i, sum[i]);
}

template <bool copy>
[[gnu::target("avx512f")]] void sum_avx512(Accumulators &sums, const std::byte *src, std::byte *dst, uint64_t blocks,
                                           bool ends) {
    const std::byte *const keys = secret();
    const __m512i prime = _mm512_set1_epi32(static_cast<int>(prime32_1));
    __m512i sum = _mm512_load_si512(sums.lanes);
    for (; blocks > 0; --blocks) {
        const bool last = ends && blocks == 1;
        for (uint64_t stripe = 0; stripe < block_stripes; ++stripe, src += line_bytes) {
            const std::byte *const key = keys + (last && stripe == block_stripes - 1 ? last_stripe_at : stripe * 8);
            __builtin_prefetch(src + ahead);
            const __m512i data = _mm512_loadu_si512(src);
            const __m512i mixed = _mm512_xor_si512(data, _mm512_loadu_si512(key));
            const __m512i product = _mm512_mul_epu32(mixed, _mm512_srli_epi64(mixed, 32));
            const __m512i crossed = _mm512_shuffle_epi32(data, _MM_PERM_BADC);
            sum = _mm512_add_epi64(sum, _mm512_add_epi64(product, crossed));
            if (copy) {
                _mm512_stream_si512(reinterpret_cast<__m512i *>(dst), data);
                dst += line_bytes;
            }
        }
        if (last) break;
        const __m512i folded = _mm512_xor_si512(sum, _mm512_srli_epi64(sum, 47));
        const __m512i mixed = _mm512_xor_si512(folded, _mm512_loadu_si512(keys + scramble_at));
        const __m512i high = _mm512_mul_epu32(_mm512_srli_epi64(mixed, 32), prime);
        sum = _mm512_add_epi64(_mm512_mul_epu32(mixed, prime), _mm512_slli_epi64(high, 32));
    }
    _mm512_store_si512(sums.lanes, sum);
}

uint64_t merge(const Accumulators &sums, uint64_t total_bytes) {
    const auto key = [](uint64_t lane) {
        uint64_t value;
        std::memcpy(&value, secret() + merge_at + lane * sizeof value, sizeof value);
        return value;
    };
    uint64_t sum = total_bytes * prime64_1;
    for (uint64_t lane = 0; lane < 8; lane += 2) {
        const unsigned __int128 product =
            static_cast<unsigned __int128>(sums.lanes[lane] ^ key(lane)) * (sums.lanes[lane + 1] ^ key(lane + 1));
        sum += static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
    }
    sum ^= sum >> 37;
    sum *= 0x165667919E3779F9U;
    return sum ^ (sum >> 32);
}

struct SumKernels {
    SumBlocks sum;
    SumBlocks copy;
};

/// PKV_CPU_KERNELS means what it means for the copies of rows; nullptr: leave it to the library.
const SumKernels *choose_kernels() {
    static constexpr SumKernels sse2 = {sum_sse2<false>, sum_sse2<true>};
    static constexpr SumKernels avx2 = {sum_avx2<false>, sum_avx2<true>};
    static constexpr SumKernels avx512 = {sum_avx512<false>, sum_avx512<true>};
    __builtin_cpu_init();
    const bool runs_avx512 = __builtin_cpu_supports("avx512f") != 0;
    const bool runs_avx2 = __builtin_cpu_supports("avx2") != 0;
    if (const char *const wish = std::getenv("PKV_CPU_KERNELS")) {
        if (std::strcmp(wish, "portable") == 0) return nullptr;
        if (std::strcmp(wish, "sse2") == 0) return &sse2;
        if (std::strcmp(wish, "avx2") == 0 && runs_avx2) return &avx2;
        if (std::strcmp(wish, "avx512") == 0 && runs_avx512) return &avx512;
    }
    // Processors with AVX-512, but without VBMI2, lower their clock for 64-byte vectors.
    if (runs_avx512 && __builtin_cpu_supports("avx512vbmi2") != 0) return &avx512;
    return runs_avx2 ? &avx2 : &sse2;
}

#endif

/// XXH3-64 of a slice, which comes in pieces of whole multiples of slice_alignment.
class SliceSum {
  public:
    explicit SliceSum(uint64_t total_bytes) : total_(total_bytes) {
        if (by_library()) XXH3_64bits_reset(&state_);
    }

    /// The next `bytes` bytes. With `copy`, aligned to a line, they are written there, past the caches.
    void add(const std::byte *src, uint64_t bytes, std::byte *copy) {
        seen_ += bytes;
#if defined(__x86_64__)
        if (!by_library()) {
            (copy != nullptr ? kernels_->copy : kernels_->sum)(sums_, src, copy, bytes / block_bytes, seen_ == total_);
            return;
        }
#endif
        for (uint64_t at = 0; at < bytes; at += slice_alignment) {
            XXH3_64bits_update(&state_, src + at, slice_alignment);
            if (copy != nullptr) std::memcpy(copy + at, src + at, slice_alignment);
        }
    }

    uint64_t finish() const {
#if defined(__x86_64__)
        if (!by_library()) return merge(sums_, total_);
#endif
        return XXH3_64bits_digest(&state_);
    }

  private:
    [[maybe_unused]] uint64_t total_; // bytes
    uint64_t seen_ = 0;
#if defined(__x86_64__)
    bool by_library() const { return kernels_ == nullptr; }
    static const SumKernels *kernels() {
        static const SumKernels *const chosen = choose_kernels();
        return chosen;
    }
    const SumKernels *kernels_ = kernels();
    Accumulators sums_;
#else
    static constexpr bool by_library() { return true; }
#endif
    XXH3_state_t state_; // of the library; begun only if it does the work
};

// ---- rows ----------------------------------------------------------------------------------------------------------

/// Goes over the rows of a page, K and then V, in the order of an image, by runs of neighbouring bytes.
class Runs {
  public:
    Runs(const LayerRows &rows, pkv_page page, int32_t layout) {
        add_side(rows.k, page, layout);
        if (rows.v.row_bytes != 0) add_side(rows.v, page, layout);
        side_ = sides_;
        begin_run();
    }

    std::byte *at() const { return at_; }
    uint64_t left() const { return left_; } ///< bytes left in this run; 0 at the end

    void skip(uint64_t bytes) {
        at_ += bytes;
        left_ -= bytes;
        if (left_ == 0) next_run();
    }

  private:
    struct Side {
        std::byte *base;
        uint64_t run; // bytes
        uint64_t inner, inner_stride;
        uint64_t outer, outer_stride;
    };

    void add_side(const PagedRows &rows, pkv_page page, int32_t layout) {
        Side side;
        side.base = rows.row(static_cast<uint64_t>(page), 0, 0);
        side.run = rows.row_bytes;
        side.inner = rows.heads, side.inner_stride = rows.strides.head;
        side.outer = rows.page_tokens, side.outer_stride = rows.strides.token;
        if (layout == PKV_LAYOUT_HND) {
            std::swap(side.inner, side.outer);
            std::swap(side.inner_stride, side.outer_stride);
        }
        if (side.inner == 1 || side.inner_stride == side.run) {
            side.run *= side.inner;
            side.inner = side.outer, side.inner_stride = side.outer_stride;
            side.outer = 1;
        }
        if (side.outer == 1 && (side.inner == 1 || side.inner_stride == side.run)) {
            side.run *= side.inner;
            side.inner = 1;
        }
        Side &last = sides_[count_ > 0 ? count_ - 1 : 0];
        const bool one_run = side.inner == 1 && side.outer == 1;
        if (count_ > 0 && one_run && last.inner == 1 && last.outer == 1 && last.base + last.run == side.base)
            last.run += side.run; // V right behind K, as in a pool's own memory
        else
            sides_[count_++] = side;
    }

    void begin_run() {
        at_ = side_->base + outer_ * side_->outer_stride + inner_ * side_->inner_stride;
        left_ = side_->run;
    }

    void next_run() {
        if (++inner_ == side_->inner) {
            inner_ = 0;
            if (++outer_ == side_->outer) {
                outer_ = 0;
                if (++side_ == sides_ + count_) return;
            }
        }
        begin_run();
    }

    Side sides_[2];
    uint32_t count_ = 0;
    const Side *side_ = nullptr;
    uint64_t inner_ = 0;
    uint64_t outer_ = 0;
    std::byte *at_ = nullptr;
    uint64_t left_ = 0;
};

/// Up to a piece. Written out: of a size that it knows to be small GCC makes a string instruction, which takes as long to
/// begin as a row takes to copy.
void copy_cached(std::byte *dst, const std::byte *src, uint64_t bytes) {
    constexpr uint64_t step = 16;
    uint64_t at = 0;
    for (; at + step <= bytes; at += step) std::memcpy(dst + at, src + at, step);
    if (at == bytes) return;
    if (bytes >= step)
        std::memcpy(dst + bytes - step, src + bytes - step, step);
    else
        for (; at < bytes; ++at) dst[at] = src[at];
}

/// The same to cold memory: whole lines go past the caches.
void copy_cold(std::byte *dst, const std::byte *src, uint64_t bytes) {
#if defined(__x86_64__)
    if (reinterpret_cast<uintptr_t>(dst) % line_bytes == 0 && bytes % line_bytes == 0) {
        const auto *const from = reinterpret_cast<const __m128i *>(src);
        auto *const to = reinterpret_cast<__m128i *>(dst);
        for (uint64_t i = 0; i < bytes / sizeof(__m128i); ++i) _mm_stream_si128(to + i, _mm_loadu_si128(from + i));
        return;
    }
#endif
    copy_cached(dst, src, bytes);
}

/// What of the next bytes of a run is whole pieces.
uint64_t whole_pieces(const Runs &runs) { return runs.left() / slice_alignment * slice_alignment; }

} // namespace

uint64_t pack_slice(const LayerRows &rows, pkv_page page, int32_t layout, std::byte *slice, uint64_t bytes) {
    alignas(line_bytes) std::byte piece[slice_alignment];
    SliceSum sum(bytes);
    Runs runs(rows, page, layout);
    for (uint64_t at = 0; at < bytes;) {
        if (const uint64_t whole = whole_pieces(runs); whole != 0) {
            sum.add(runs.at(), whole, slice + at);
            runs.skip(whole);
            at += whole;
            continue;
        }
        uint64_t filled = 0;
        while (filled < slice_alignment && runs.left() != 0) {
            const uint64_t here = std::min(runs.left(), slice_alignment - filled);
            copy_cached(piece + filled, runs.at(), here);
            runs.skip(here);
            filled += here;
        }
        std::memset(piece + filled, 0, slice_alignment - filled);
        sum.add(piece, slice_alignment, slice + at);
        at += slice_alignment;
    }
    return sum.finish();
}

uint64_t unpack_slice(const std::byte *slice, uint64_t bytes, int32_t layout, const LayerRows &rows, pkv_page page) {
    SliceSum sum(bytes);
    Runs runs(rows, page, layout);
    for (uint64_t at = 0; at < bytes;) {
        const uint64_t whole = whole_pieces(runs);
        if (whole != 0 && reinterpret_cast<uintptr_t>(runs.at()) % line_bytes == 0) {
            sum.add(slice + at, whole, runs.at());
            runs.skip(whole);
            at += whole;
            continue;
        }
        sum.add(slice + at, slice_alignment, nullptr);
        for (uint64_t done = 0; done < slice_alignment && runs.left() != 0;) {
            const uint64_t here = std::min(runs.left(), slice_alignment - done);
            copy_cold(runs.at(), slice + at + done, here);
            runs.skip(here);
            done += here;
        }
        at += slice_alignment;
    }
    return sum.finish();
}

void drain_slices() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

uint64_t checksum64_of_two(const std::byte *first, uint64_t first_bytes, const std::byte *second,
                           uint64_t second_bytes) {
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, first, first_bytes);
    XXH3_64bits_update(&state, second, second_bytes);
    return XXH3_64bits_digest(&state);
}

} // namespace pkv
