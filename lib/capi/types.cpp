// SPDX-License-Identifier: Apache-2.0
// types.h
#include "capi/boundary.h"
#include "prefix/keys.h"

#include <pagedkv/types.h>

extern "C" {

int32_t pkv_version_number(void) { return PKV_VERSION_NUMBER; }

const char *pkv_version_string(void) { return PKV_VERSION_STRING; }

const char *pkv_status_string(pkv_status status) { return pkv::status_name(status); }

size_t pkv_last_error(char *buffer, size_t capacity) { return pkv::copy_last_error(buffer, capacity); }

void pkv_set_log(pkv_log_function function, void *user, int32_t max_level) { pkv::set_log(function, user, max_level); }

pkv_status pkv_digest(const pkv_bytes *parts, uint64_t num_parts, uint8_t *digest) {
    return pkv::boundary([&] {
        PKV_TRY(pkv::not_null(digest, "digest"));
        PKV_TRY(pkv::check_array(parts, num_parts, "parts"));
        for (uint64_t i = 0; i < num_parts; ++i)
            PKV_TRY(pkv::check_array(parts[i].data, parts[i].size, "parts[].data"));
        pkv::prefix::digest_parts({parts, num_parts}, digest);
        return PKV_OK;
    });
}

} // extern "C"
