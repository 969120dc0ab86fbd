// SPDX-License-Identifier: Apache-2.0
// The C boundary: nothing that is thrown inside leaves the library.
#pragma once

#include "core/handles.h"
#include "core/options.h"
#include "core/status.h"

#include <exception>
#include <new>
#include <utility>

namespace pkv {

/// Runs the body of a public function.
template <class Body> pkv_status boundary(Body &&body) noexcept {
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return fail(PKV_ERR_NO_MEMORY, "out of memory");
    } catch (const std::exception &error) {
        return fail(PKV_ERR_INTERNAL, "unexpected: %s", error.what());
    } catch (...) {
        return fail(PKV_ERR_INTERNAL, "unexpected exception");
    }
}

/// Makes the handle of a new object, or fails when no handle is free.
template <class T, class Handle> pkv_status hand_out(std::shared_ptr<T> object, Handle **handle) {
    const uint64_t value = open_handle(T::handle_kind, std::move(object));
    if (value == 0) return PKV_ERR_LIMIT;
    *handle = reinterpret_cast<Handle *>(value);
    return PKV_OK;
}

inline pkv_status not_null(const void *pointer, const char *name) {
    return pointer != nullptr ? PKV_OK : fail(PKV_ERR_INVALID, "%s is NULL", name);
}

/// An array argument: NULL is fine when it is empty.
inline pkv_status check_array(const void *array, uint64_t count, const char *name) {
    if (array == nullptr && count != 0) return fail(PKV_ERR_INVALID, "%s is NULL", name);
    if (count > uint64_t{1} << 48)
        return fail(PKV_ERR_INVALID, "%s has %llu entries", name, static_cast<unsigned long long>(count));
    return PKV_OK;
}

} // namespace pkv
