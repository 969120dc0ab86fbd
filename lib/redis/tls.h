// SPDX-License-Identifier: Apache-2.0
// TLS for a connection of hiredis, where it was built with it.
#pragma once

#include "core/why.h"

#include <hiredis/hiredis.h>

namespace pkv::redis {

bool has_tls();

/// Before the first byte: the connection talks TLS from then on, and believes no server whose certificate is not one for this
/// host that the system trusts.
pkv_status begin_tls(redisContext &context, const char *host, const Why &why);

} // namespace pkv::redis
