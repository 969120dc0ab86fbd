// SPDX-License-Identifier: Apache-2.0
// Every instance of the bodies, for those that make something of each: the kernels of the device, and the emulated
// ones.
#pragma once

#include "tensor/cuda/copy.cuh"
#include "tensor/cuda/gather.cuh"
#include "tensor/cuda/kernel.h"
#include "tensor/cuda/slices.cuh"
#include "tensor/cuda/write.cuh"

namespace pkv::cuda {

// A body as a type: its parameters and its work.
template <int bytes> struct WriteOf {
    using Params = WriteParams;
    static PKV_HD void work(const Params &p, const Grid &grid) { write_body<bytes>(p, grid); }
};
template <int from, int to, int count> struct WriteConvertedOf {
    using Params = WriteParams;
    static PKV_HD void work(const Params &p, const Grid &grid) { write_converted_body<from, to, count>(p, grid); }
};
template <int bytes> struct GatherOf {
    using Params = GatherParams;
    static PKV_HD void work(const Params &p, const Grid &grid) { gather_body<bytes>(p, grid); }
};
template <int from, int to, int count> struct GatherConvertedOf {
    using Params = GatherParams;
    static PKV_HD void work(const Params &p, const Grid &grid) { gather_converted_body<from, to, count>(p, grid); }
};
template <int bytes> struct CopyOf {
    using Params = CopyParams;
    static PKV_HD void work(const Params &p, const Grid &grid) { copy_body<bytes>(p, grid); }
};
template <int bytes> struct SlicesOf {
    using Params = SliceParams;
    static PKV_HD void work(const Params &p, const Grid &grid) { slices_body<bytes>(p, grid); }
};

/// Make<Body>::value for the instance of Body that moves units of `unit` bytes; Value{} for none.
template <template <class> class Make, template <int> class Body, class Value> Value moving(uint32_t unit) {
    switch (unit) {
    case 16: return Make<Body<16>>::value();
    case 8: return Make<Body<8>>::value();
    case 4: return Make<Body<4>>::value();
    case 2: return Make<Body<2>>::value();
    case 1: return Make<Body<1>>::value();
    default: return Value{};
    }
}

template <template <class> class Make, template <int, int, int> class Body, class Value, int from, int to>
Value converting_pair(bool vector) {
    if constexpr (from == to || (is_byte(from) && is_byte(to))) {
        return Value{};
    } else {
        return vector ? Make<Body<from, to, elements_at_once(from, to)>>::value() : Make<Body<from, to, 1>>::value();
    }
}

template <template <class> class Make, template <int, int, int> class Body, class Value, int from>
Value converting_from(int to, bool vector) {
    switch (to) {
    case PKV_DTYPE_F32: return converting_pair<Make, Body, Value, from, PKV_DTYPE_F32>(vector);
    case PKV_DTYPE_F16: return converting_pair<Make, Body, Value, from, PKV_DTYPE_F16>(vector);
    case PKV_DTYPE_BF16: return converting_pair<Make, Body, Value, from, PKV_DTYPE_BF16>(vector);
    case PKV_DTYPE_F8_E4M3: return converting_pair<Make, Body, Value, from, PKV_DTYPE_F8_E4M3>(vector);
    case PKV_DTYPE_F8_E5M2: return converting_pair<Make, Body, Value, from, PKV_DTYPE_F8_E5M2>(vector);
    case PKV_DTYPE_I8: return converting_pair<Make, Body, Value, from, PKV_DTYPE_I8>(vector);
    default: return Value{};
    }
}

/// Written rows come from f32, f16 and bf16.
template <template <class> class Make, class Value> Value writing(const Kernel &kernel) {
    switch (kernel.from) {
    case PKV_DTYPE_F32: return converting_from<Make, WriteConvertedOf, Value, PKV_DTYPE_F32>(kernel.to, kernel.vector);
    case PKV_DTYPE_F16: return converting_from<Make, WriteConvertedOf, Value, PKV_DTYPE_F16>(kernel.to, kernel.vector);
    case PKV_DTYPE_BF16:
        return converting_from<Make, WriteConvertedOf, Value, PKV_DTYPE_BF16>(kernel.to, kernel.vector);
    default: return Value{};
    }
}

/// Gathered rows become one of these.
template <template <class> class Make, class Value, int from> Value gathering_from(int to, bool vector) {
    switch (to) {
    case PKV_DTYPE_F32: return converting_pair<Make, GatherConvertedOf, Value, from, PKV_DTYPE_F32>(vector);
    case PKV_DTYPE_F16: return converting_pair<Make, GatherConvertedOf, Value, from, PKV_DTYPE_F16>(vector);
    case PKV_DTYPE_BF16: return converting_pair<Make, GatherConvertedOf, Value, from, PKV_DTYPE_BF16>(vector);
    default: return Value{};
    }
}

template <template <class> class Make, class Value> Value gathering(const Kernel &kernel) {
    switch (kernel.from) {
    case PKV_DTYPE_F32: return gathering_from<Make, Value, PKV_DTYPE_F32>(kernel.to, kernel.vector);
    case PKV_DTYPE_F16: return gathering_from<Make, Value, PKV_DTYPE_F16>(kernel.to, kernel.vector);
    case PKV_DTYPE_BF16: return gathering_from<Make, Value, PKV_DTYPE_BF16>(kernel.to, kernel.vector);
    case PKV_DTYPE_F8_E4M3: return gathering_from<Make, Value, PKV_DTYPE_F8_E4M3>(kernel.to, kernel.vector);
    case PKV_DTYPE_F8_E5M2: return gathering_from<Make, Value, PKV_DTYPE_F8_E5M2>(kernel.to, kernel.vector);
    case PKV_DTYPE_I8: return gathering_from<Make, Value, PKV_DTYPE_I8>(kernel.to, kernel.vector);
    default: return Value{};
    }
}

} // namespace pkv::cuda
