// SPDX-License-Identifier: Apache-2.0
#include "directory/redis.h"

#include "core/plugin.h"

#include <dlfcn.h>
#include <mutex>
#include <new>
#include <vector>

namespace pkv::directory {
namespace {

constexpr uint64_t log_in_bytes = 16384; // of replies

} // namespace

pkv_status redis_plugin(const pkv_redis_table *&table) {
    static std::mutex mutex;
    static const pkv_redis_table *loaded = nullptr; // never unloaded
    const std::lock_guard lock(mutex);
    if (loaded == nullptr) {
        const std::string path = plugin_path(PKV_REDIS_PLUGIN);
        void *const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            const char *why = dlerror();
            return fail(PKV_ERR_UNSUPPORTED, "the plug-in for a directory, which hiredis has to be there for: %s",
                        why != nullptr ? why : path.c_str());
        }
        const auto entry = reinterpret_cast<pkv_redis_entry>(dlsym(library, PKV_REDIS_ENTRY));
        char why[256] = "it has no entry";
        const pkv_redis_table *const found = entry != nullptr ? entry(PKV_REDIS_VERSION, why, sizeof why) : nullptr;
        if (found == nullptr || found->version != PKV_REDIS_VERSION || found->struct_size < sizeof *found) {
            const pkv_status status =
                fail(PKV_ERR_UNSUPPORTED, "the plug-in %s is of another version: %s", path.c_str(), why);
            dlclose(library);
            return status;
        }
        loaded = found;
    }
    table = loaded;
    return PKV_OK;
}

std::string error_word(const pkv_redis_reply &reply) {
    std::string word;
    for (uint64_t i = 0; i < reply.bytes && i < 24 && reply.text[i] >= 'A' && reply.text[i] <= 'Z'; ++i)
        word += reply.text[i];
    return word.empty() ? "ERR" : word;
}

Line::~Line() { table_.close(line_); }

pkv_status Line::open(const Server &server, int wake_fd, uint64_t deadline_ns, std::unique_ptr<Line> &line) {
    const pkv_redis_table *table = nullptr;
    PKV_TRY(redis_plugin(table));
    pkv_redis_server where{};
    where.struct_size = sizeof where;
    where.host = server.host.c_str();
    where.port = server.port;
    where.tls = server.tls ? 1 : 0;
    where.wake_fd = wake_fd;
    pkv_redis_line *opened = nullptr;
    char why[256] = "";
    const pkv_status status = table->open(&where, deadline_ns, &opened, why, sizeof why);
    if (status != PKV_OK) return fail(status, "%s: %s", server.label.c_str(), why);
    std::unique_ptr<Line> fresh(new Line(*table, opened, server.label));
    PKV_TRY(fresh->log_in(server, deadline_ns));
    line = std::move(fresh);
    return PKV_OK;
}

pkv_status Line::log_in(const Server &server, uint64_t deadline_ns) {
    std::vector<const char *> steps;
    if (!server.password.empty()) {
        if (server.user.empty())
            add({"AUTH", server.password});
        else
            add({"AUTH", server.user, server.password});
        steps.push_back("AUTH");
    }
    if (server.database != 0) {
        add({"SELECT", std::to_string(server.database)});
        steps.push_back("SELECT");
    }
    add({"PING"});
    steps.push_back("PING");
    pkv_status refused = PKV_OK;
    const auto reply = [&](uint64_t number, const pkv_redis_reply &said) {
        if (said.kind == PKV_REDIS_STATUS || refused != PKV_OK) return;
        refused = fail(PKV_ERR_MISMATCH, "%s refuses %s: %s", label_.c_str(), steps[number],
                       said.kind == PKV_REDIS_ERROR ? error_word(said).c_str() : "no status");
    };
    PKV_TRY(run(log_in_bytes, deadline_ns, reply));
    return refused;
}

void Line::add(std::initializer_list<std::string_view> words) {
    constexpr size_t most_words = 8;
    const char *texts[most_words];
    size_t sizes[most_words];
    uint32_t count = 0;
    for (const std::string_view word : words) {
        texts[count] = word.data();
        sizes[count++] = word.size();
    }
    if (table_.append(line_, count, texts, sizes) != PKV_OK) throw std::bad_alloc();
    ++queued_;
}

pkv_status Line::run(uint64_t most_bytes, uint64_t deadline_ns,
                     const std::function<void(uint64_t, const pkv_redis_reply &)> &reply) {
    struct Call {
        const std::function<void(uint64_t, const pkv_redis_reply &)> &reply;
        bool threw = false;
    } call{reply};
    const auto each = [](void *user, uint64_t number, const pkv_redis_reply *said) {
        auto &to = *static_cast<Call *>(user);
        try {
            if (!to.threw) to.reply(number, *said);
        } catch (...) { // no memory
            to.threw = true;
        }
    };
    char why[256] = "";
    const uint64_t count = queued_;
    queued_ = 0;
    const pkv_status status = table_.exchange(line_, count, most_bytes, deadline_ns, each, &call, why, sizeof why);
    if (status != PKV_OK) return fail(status, "%s: %s", label_.c_str(), why);
    return call.threw ? fail(PKV_ERR_NO_MEMORY, "%s: no memory for its answers", label_.c_str()) : PKV_OK;
}

} // namespace pkv::directory
