// SPDX-License-Identifier: Apache-2.0
// stats.h: checks of handles, structs and names; the text and the traces are made in telemetry/.
#include "capi/boundary.h"
#include "node/node.h"
#include "pool/pool.h"
#include "prefetch/session.h"
#include "telemetry/prometheus.h"
#include "telemetry/trace.h"
#include "telemetry/utf8.h"
#include "tier/tier.h"

#include <cinttypes>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <vector>

using pkv::boundary;
using pkv::fail;
using pkv::Pin;

namespace {

constexpr size_t max_name_bytes = 256;

/// The names of one kind of sources: those given, or numbers.
pkv_status read_names(const char *const *names, uint64_t count, const char *what, std::vector<std::string> &out) {
    std::set<std::string_view> known;
    out.reserve(count); // `known` looks at the strings where they stay
    for (uint64_t i = 0; i < count; ++i) {
        if (names == nullptr) {
            out.push_back(std::to_string(i));
            continue;
        }
        if (names[i] == nullptr) return fail(PKV_ERR_INVALID, "%s[%" PRIu64 "] is NULL", what, i);
        const std::string_view name(names[i], strnlen(names[i], max_name_bytes + 1));
        if (name.size() > max_name_bytes)
            return fail(PKV_ERR_INVALID, "%s[%" PRIu64 "] is longer than %zu bytes", what, i, max_name_bytes);
        if (!pkv::is_utf8(name)) return fail(PKV_ERR_INVALID, "%s[%" PRIu64 "] is not UTF-8", what, i);
        out.emplace_back(name);
        if (!known.insert(out.back()).second) // the same series twice: nobody could read the text
            return fail(PKV_ERR_INVALID, "%s[%" PRIu64 "] is '%s', as an earlier one", what, i, out.back().c_str());
    }
    return PKV_OK;
}

void take_stats(pkv::Pool &pool, pkv::NamedPool &out) {
    for (uint32_t group = 0; group < pool.num_groups(); ++group) {
        pkv_pool_stats stats = PKV_POOL_STATS_INIT;
        pool.stats(group, stats);
        out.groups.push_back(stats);
    }
}

void take_stats(const pkv::Tier &tier, pkv::NamedTier &out) { tier.stats(out.stats); }

void take_stats(pkv::Session &session, pkv::NamedSession &out) {
    out.stats = PKV_PREFETCH_STATS_INIT;
    session.stats(out.stats);
}

void take_stats(const pkv::node::Node &node, pkv::NamedNode &out) { node.stats(out.stats); }

/// Names and statistics of the sources of one kind.
template <class Object, class Handle, class Named>
pkv_status read_sources(Handle *const *handles, const char *const *names, uint64_t count, const char *what,
                        const char *what_names, std::vector<Named> &out) {
    PKV_TRY(pkv::check_array(handles, count, what));
    std::vector<std::string> known;
    PKV_TRY(read_names(names, count, what_names, known));
    out.resize(count);
    for (uint64_t i = 0; i < count; ++i) {
        Pin<Object> pin;
        PKV_TRY(pin.acquire(handles[i]));
        out[i].name = std::move(known[i]);
        take_stats(*pin, out[i]);
    }
    return PKV_OK;
}

} // namespace

extern "C" {

pkv_status pkv_pool_get_stats(pkv_pool *pool, uint32_t group, pkv_pool_stats *stats) {
    return boundary([&] {
        Pin<pkv::Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_group(group));
        PKV_TRY(pkv::check_out_struct(stats, "stats"));
        pkv_pool_stats value = PKV_POOL_STATS_INIT;
        pin->stats(group, value);
        pkv::write_struct(stats, value);
        return PKV_OK;
    });
}

pkv_status pkv_stats_prometheus(const pkv_prometheus_sources *sources, char *buffer, uint64_t capacity,
                                uint64_t *size) {
    return boundary([&] {
        pkv_prometheus_sources known;
        PKV_TRY(pkv::read_struct(sources, known, "sources"));
        PKV_TRY(pkv::not_null(size, "size"));
        PKV_TRY(pkv::check_array(buffer, capacity, "buffer"));
        std::vector<pkv::NamedPool> pools;
        std::vector<pkv::NamedTier> tiers;
        std::vector<pkv::NamedSession> sessions;
        PKV_TRY(read_sources<pkv::Pool>(known.pools, known.pool_names, known.num_pools, "pools", "pool_names", pools));
        PKV_TRY(read_sources<pkv::Tier>(known.tiers, known.tier_names, known.num_tiers, "tiers", "tier_names", tiers));
        PKV_TRY(read_sources<pkv::Session>(known.sessions, known.session_names, known.num_sessions, "sessions",
                                           "session_names", sessions));
        std::vector<pkv::NamedNode> nodes;
        PKV_TRY(read_sources<pkv::node::Node>(known.nodes, known.node_names, known.num_nodes, "nodes", "node_names",
                                              nodes));
        std::string text;
        pkv::write_prometheus(text, pools, tiers, sessions, nodes);
        *size = text.size() + 1;
        if (capacity == 0) return PKV_OK;
        if (capacity < *size)
            return fail(PKV_ERR_NO_SPACE, "the text takes %" PRIu64 " bytes, and there is room for %" PRIu64, *size,
                        capacity);
        std::memcpy(buffer, text.c_str(), *size);
        return PKV_OK;
    });
}

pkv_status pkv_trace_start(uint64_t max_events) {
    return boundary([&] { return pkv::trace::start(max_events); });
}

pkv_status pkv_trace_stop(const char *path, uint64_t *dropped) {
    return boundary([&] { return pkv::trace::stop(path, dropped); });
}

} // extern "C"
