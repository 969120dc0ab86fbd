// SPDX-License-Identifier: Apache-2.0
// Reading and writing of structs that begin with struct_size, at sizes that the caller's headers had.
#pragma once

#include "core/status.h"

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

namespace pkv {

constexpr size_t max_struct_size = 4096;

/// Copies a caller's struct of any age into `out`. Fields that the caller does not have stay 0; bytes that this library
/// does not know must be 0.
template <class T> pkv_status read_struct(const T *in, T &out, const char *name) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (in == nullptr) return fail(PKV_ERR_INVALID, "%s is NULL", name);
    const size_t size = in->struct_size;
    if (size < sizeof(size_t) || size > max_struct_size)
        return fail(PKV_ERR_INVALID, "%s: struct_size is %zu, not between %zu and %zu (use its PKV_..._INIT)", name,
                    size, sizeof(size_t), max_struct_size);
    const auto *bytes = reinterpret_cast<const unsigned char *>(in);
    for (size_t i = sizeof(T); i < size; ++i)
        if (bytes[i] != 0)
            return fail(PKV_ERR_UNSUPPORTED, "%s: byte %zu is set, but this library knows only %zu bytes of it", name,
                        i, sizeof(T));
    out = T{};
    std::memcpy(static_cast<void *>(&out), in, size < sizeof(T) ? size : sizeof(T));
    out.struct_size = sizeof(T);
    return PKV_OK;
}

/// Copies an array of such structs: the first one's struct_size is the distance between elements.
template <class T> pkv_status read_struct_array(const T *in, uint64_t count, std::vector<T> &out, const char *name) {
    out.resize(count);
    for (uint64_t i = 0; i < count; ++i) {
        const auto *item =
            reinterpret_cast<const T *>(reinterpret_cast<const unsigned char *>(in) + i * in->struct_size);
        PKV_TRY(read_struct(item, out[i], name));
        if (item->struct_size != in->struct_size)
            return fail(PKV_ERR_INVALID, "%s[%llu].struct_size is %zu, but that of the first is %zu", name,
                        static_cast<unsigned long long>(i), item->struct_size, in->struct_size);
    }
    return PKV_OK;
}

/// Checks that `out` can be written with write_struct.
template <class T> pkv_status check_out_struct(const T *out, const char *name) {
    if (out == nullptr) return fail(PKV_ERR_INVALID, "%s is NULL", name);
    if (out->struct_size < sizeof(size_t) || out->struct_size > max_struct_size)
        return fail(PKV_ERR_INVALID, "%s: struct_size is %zu, not between %zu and %zu (use its PKV_..._INIT)", name,
                    out->struct_size, sizeof(size_t), max_struct_size);
    return PKV_OK;
}

/// Writes as much of `value` as the caller has room for; what the caller has beyond that is zeroed.
template <class T> void write_struct(T *out, const T &value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const size_t size = out->struct_size;
    const size_t known = size < sizeof(T) ? size : sizeof(T);
    auto *bytes = reinterpret_cast<unsigned char *>(out);
    std::memcpy(bytes + sizeof(size_t), reinterpret_cast<const unsigned char *>(&value) + sizeof(size_t),
                known - sizeof(size_t));
    if (size > known) std::memset(bytes + known, 0, size - known);
}

} // namespace pkv
