// SPDX-License-Identifier: Apache-2.0
// Times counted in powers of two: pkv_histogram (stats.h). No lock: whoever owns a histogram guards it.
#pragma once

#include <pagedkv/stats.h>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace pkv {

constexpr size_t last_bucket = PKV_HISTOGRAM_BUCKETS - 1;

/// A time of so many significant bits; 0 has none.
constexpr size_t bucket_of(uint64_t ns) {
    const auto bits = static_cast<size_t>(std::bit_width(ns));
    return bits < last_bucket ? bits : last_bucket;
}

/// The longest time of a bucket; the last one has no bound.
constexpr uint64_t longest_of(size_t bucket) { return bucket < last_bucket ? (uint64_t{1} << bucket) - 1 : UINT64_MAX; }

static_assert(bucket_of(0) == 0 && bucket_of(1) == 1 && bucket_of(2) == 2 && bucket_of(3) == 2 && bucket_of(4) == 3);
static_assert(bucket_of(longest_of(46)) == 46 && bucket_of(longest_of(46) + 1) == 47 && bucket_of(UINT64_MAX) == 47);
static_assert(longest_of(0) == 0 && longest_of(1) == 1 && longest_of(10) == 1023);

inline void add_time(pkv_histogram &histogram, uint64_t ns) {
    ++histogram.count;
    histogram.sum_ns += ns;
    ++histogram.buckets[bucket_of(ns)];
}

} // namespace pkv
