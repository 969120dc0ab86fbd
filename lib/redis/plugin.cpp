// SPDX-License-Identifier: Apache-2.0
// The plug-in's table: checks, the catch-all, nothing else.
//
//   line.cpp      a connection: deadlines, limits
//   replies.cpp   what the server says, as the table hands it out
//   tls.cpp       TLS, where hiredis has it
#include "core/why.h"
#include "redis/line.h"
#include "redis/tls.h"

#include <memory>
#include <new>

#define PKV_TEXT_OF(x) #x
#define PKV_TEXT(x) PKV_TEXT_OF(x)

using pkv::Why;

namespace {

/// Runs a function of the table: what the standard library throws ends here.
template <class Body> pkv_status guarded(const Why &why, Body body) noexcept {
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return why.fail(PKV_ERR_NO_MEMORY, "no memory");
    } catch (...) {
        return why.fail(PKV_ERR_INTERNAL, "an exception");
    }
}

pkv_status open_line(const pkv_redis_server *server, uint64_t deadline_ns, pkv_redis_line **line, char *why_text,
                     size_t why_bytes) {
    const Why why(why_text, why_bytes);
    if (server == nullptr || server->struct_size < sizeof *server || server->host == nullptr || line == nullptr)
        return why.fail(PKV_ERR_INVALID, "server, its host or line is NULL, or server is too small");
    *line = nullptr;
    return guarded(why, [&]() -> pkv_status {
        auto opened = std::make_unique<pkv_redis_line>();
        if (const pkv_status status = opened->open(*server, deadline_ns, why); status != PKV_OK) return status;
        *line = opened.release();
        return PKV_OK;
    });
}

pkv_status append_command(pkv_redis_line *line, uint32_t count, const char *const *words, const size_t *sizes) {
    if (line == nullptr || count == 0 || words == nullptr || sizes == nullptr) return PKV_ERR_INVALID;
    return line->append(count, words, sizes);
}

pkv_status exchange(pkv_redis_line *line, uint64_t count, uint64_t most_bytes, uint64_t deadline_ns,
                    void (*reply)(void *, uint64_t, const pkv_redis_reply *), void *user, char *why_text,
                    size_t why_bytes) {
    const Why why(why_text, why_bytes);
    if (line == nullptr || reply == nullptr) return why.fail(PKV_ERR_INVALID, "line or reply is NULL");
    return guarded(why, [&] { return line->exchange(count, most_bytes, deadline_ns, reply, user, why); });
}

void close_line(pkv_redis_line *line) { delete line; }

constexpr const char *version = PKV_TEXT(HIREDIS_MAJOR) "." PKV_TEXT(HIREDIS_MINOR) "." PKV_TEXT(HIREDIS_PATCH);

} // namespace

extern "C" [[gnu::visibility("default")]] const pkv_redis_table *pkv_redis_plugin(uint32_t wanted, char *why_text,
                                                                                  size_t why_bytes) {
    static const pkv_redis_table table = {sizeof table, PKV_REDIS_VERSION, pkv::redis::has_tls() ? 1u : 0u,
                                          version,      open_line,         append_command,
                                          exchange,     close_line};
    const Why why(why_text, why_bytes);
    if (wanted != PKV_REDIS_VERSION) {
        why.fail(PKV_ERR_UNSUPPORTED, "the plug-in speaks version %d, the library version %u", PKV_REDIS_VERSION,
                 wanted);
        return nullptr;
    }
    return &table;
}
