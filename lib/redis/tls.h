// SPDX-License-Identifier: Apache-2.0
// TLS for a connection of hiredis, where it was built with it.
#pragma once

#include "core/why.h"

#include <hiredis/hiredis.h>

namespace pkv::redis {

bool has_tls();

/// Before the first byte: the connection talks TLS from then on, and believes no server whose certificate is not one
/// for this host that the system trusts.
pkv_status begin_tls(redisContext &context, const char *host, void *&session, const Why &why);

/// What is to be written has to wait until something was read.
bool tls_wants_read(void *session);
/// Why the session that begin_tls() gave has failed; nullptr: for no reason of TLS.
const char *tls_failure(void *session);

} // namespace pkv::redis
