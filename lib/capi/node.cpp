// SPDX-License-Identifier: Apache-2.0
// node.h: checks of handles and structs; the work is in node/.
#include "node/node.h"

#include "capi/boundary.h"
#include "core/blake2b.h"
#include "pool/pool.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <unistd.h>

using pkv::boundary;
using pkv::check_array;
using pkv::check_out_struct;
using pkv::fail;
using pkv::not_null;
using pkv::Pin;
using pkv::Pool;
using pkv::read_struct;
using pkv::Tier;
using pkv::write_struct;
using pkv::node::Node;
using pkv::node::NodeOptions;

namespace {

constexpr uint64_t largest_identity = 4096;
constexpr uint32_t most_pools = 64;
constexpr uint32_t most_found_peers = 1024;
constexpr size_t longest_prefix = 64;

std::string default_name() {
    char host[128] = "";
    if (gethostname(host, sizeof host - 1) != 0) host[0] = 0;
    return std::string(host) + "/" + std::to_string(getpid());
}

template <class T> T otherwise(T value, T fallback) { return value != 0 ? value : fallback; }

pkv_status read_time(uint64_t given, uint64_t otherwise, uint64_t most, const char *name, uint64_t &to) {
    to = given != 0 ? given : otherwise;
    if (to >= 1'000'000 && to <= most) return PKV_OK;
    return fail(PKV_ERR_INVALID, "%s is %" PRIu64 ", not between 1 millisecond and %" PRIu64 " seconds", name, given,
                most / 1'000'000'000);
}

pkv_status read_directory(const pkv_node_options &from, NodeOptions &to) {
    PKV_TRY(read_time(from.heartbeat_ns, 5'000'000'000, 3600ull * 1'000'000'000, "heartbeat_ns", to.heartbeat_ns));
    PKV_TRY(read_time(from.entry_ttl_ns, 600ull * 1'000'000'000, 30ull * 86400 * 1'000'000'000, "entry_ttl_ns",
                      to.entry_ttl_ns));
    to.max_found_peers = otherwise(from.directory_peers, 64u);
    if (to.max_found_peers > most_found_peers)
        return fail(PKV_ERR_LIMIT, "directory_peers is %u, more than %u", from.directory_peers, most_found_peers);
    to.directory_prefix = from.directory_prefix != nullptr ? from.directory_prefix : "pkv";
    const std::string &prefix = to.directory_prefix;
    const bool plain = std::all_of(prefix.begin(), prefix.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
               c == '-' || c == ':';
    });
    if (prefix.empty() || prefix.size() > longest_prefix || !plain)
        return fail(PKV_ERR_INVALID,
                    "directory_prefix has %zu bytes: it takes 1 to %zu letters, digits and . _ - :", prefix.size(),
                    longest_prefix);
    if (from.advertise != nullptr) to.advertise = from.advertise;
    return from.directory != nullptr ? pkv::directory::parse_servers(from.directory, to.directory) : PKV_OK;
}

pkv_status read_options(const pkv_node_options &from, NodeOptions &to) {
    if (from.cluster_key.size != PKV_CLUSTER_KEY_BYTES || from.cluster_key.data == nullptr)
        return fail(PKV_ERR_INVALID, "cluster_key has %" PRIu64 " bytes, not %d", from.cluster_key.size,
                    PKV_CLUSTER_KEY_BYTES);
    std::memcpy(to.key.data(), from.cluster_key.data, to.key.size());
    to.name = from.name != nullptr ? from.name : default_name();
    if (to.name.size() > pkv::node::longest_name) return fail(PKV_ERR_LIMIT, "name has %zu bytes", to.name.size());
    if (from.listen != nullptr) to.listen = from.listen;
    if (from.provider != nullptr) to.provider = from.provider;
    if (from.fabric_host != nullptr) {
        to.fabric_host = from.fabric_host;
    } else if (!to.listen.empty()) {
        std::string port;
        if (!pkv::node::split_address(to.listen, to.fabric_host, port))
            return fail(PKV_ERR_INVALID, "listen is \"%s\", not of the form host:port", to.listen.c_str());
    }
    if (from.num_tiers > PKV_MAX_TIERS)
        return fail(PKV_ERR_LIMIT, "num_tiers is %u, more than %d", from.num_tiers, PKV_MAX_TIERS);
    PKV_TRY(check_array(from.tiers, from.num_tiers, "tiers"));
    for (uint32_t i = 0; i < from.num_tiers; ++i) {
        Pin<Tier> pin;
        PKV_TRY(pin.acquire(from.tiers[i]));
        to.tiers.push_back(pin->shared_from_this());
    }
    if (from.num_pools > most_pools)
        return fail(PKV_ERR_LIMIT, "num_pools is %u, more than %u", from.num_pools, most_pools);
    PKV_TRY(check_array(from.pools, from.num_pools, "pools"));
    for (uint32_t i = 0; i < from.num_pools; ++i) {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(from.pools[i]));
        if (pin->tiers() == nullptr) return fail(PKV_ERR_STATE, "pools[%u] has no tiers: it has no images", i);
        for (uint32_t group = 0; group < pin->num_groups(); ++group)
            to.shapes.push_back(pin->group(group).image.shape());
    }
    if (to.shapes.size() > pkv::node::most_shapes)
        return fail(PKV_ERR_LIMIT, "pools have %zu layer groups", to.shapes.size());
    if (from.identity.size > largest_identity || (from.identity.size != 0 && from.identity.data == nullptr))
        return fail(PKV_ERR_LIMIT, "identity has %" PRIu64 " bytes", from.identity.size);
    pkv::Blake2b hash;
    hash.add("pagedkv node identity", 22);
    hash.add(from.identity.data, from.identity.size);
    hash.finish(to.identity.data());
    to.export_bytes = otherwise<uint64_t>(from.export_bytes, uint64_t{64} << 20);
    to.max_guests = otherwise(from.max_guests, 64u);
    to.max_leases = otherwise(from.max_leases, 65536u);
    to.lease_ns = otherwise<uint64_t>(from.lease_ns, 30'000'000'000);
    to.timeout_ns = otherwise<uint64_t>(from.timeout_ns, 5'000'000'000);
    if ((from.flags & ~(PKV_NODE_PROMOTE | PKV_NODE_COPY)) != 0)
        return fail(PKV_ERR_UNSUPPORTED, "flags are %#x", from.flags);
    to.flags = from.flags;
    return read_directory(from, to);
}

void copy_text(char *out, size_t capacity, const std::string &text) {
    std::memset(out, 0, capacity);
    std::memcpy(out, text.data(), std::min(text.size(), capacity - 1));
}

} // namespace

extern "C" {

pkv_status pkv_node_open(const pkv_node_options *options, pkv_node **node) {
    return boundary([&] {
        pkv_node_options how;
        PKV_TRY(read_struct(options, how, "options"));
        PKV_TRY(not_null(node, "node"));
        NodeOptions known;
        PKV_TRY(read_options(how, known));
        std::shared_ptr<Node> fresh;
        PKV_TRY(Node::open(std::move(known), fresh));
        return pkv::hand_out(std::move(fresh), node);
    });
}

pkv_status pkv_node_close(pkv_node *node) {
    return boundary([&] {
        Pin<Node> pin;
        PKV_TRY(pin.acquire(node));
        PKV_TRY(pin.close());
        pin->close();
        return PKV_OK;
    });
}

pkv_status pkv_node_address(pkv_node *node, char *buffer, uint64_t capacity, uint64_t *size) {
    return boundary([&] {
        Pin<Node> pin;
        PKV_TRY(pin.acquire(node));
        PKV_TRY(not_null(size, "size"));
        PKV_TRY(check_array(buffer, capacity, "buffer"));
        const std::string &address = pin->address();
        if (address.empty()) return fail(PKV_ERR_STATE, "the node does not listen");
        *size = address.size() + 1;
        if (capacity == 0) return PKV_OK;
        if (capacity < *size)
            return fail(PKV_ERR_NO_SPACE, "the address has %" PRIu64 " bytes, and the buffer %" PRIu64, *size,
                        capacity);
        std::memcpy(buffer, address.c_str(), *size);
        return PKV_OK;
    });
}

pkv_status pkv_node_connect(pkv_node *node, const char *address, uint64_t timeout_ns) {
    return boundary([&] {
        Pin<Node> pin;
        PKV_TRY(pin.acquire(node));
        PKV_TRY(not_null(address, "address"));
        return pin->connect(address, timeout_ns);
    });
}

pkv_status pkv_node_disconnect(pkv_node *node, const char *address) {
    return boundary([&] {
        Pin<Node> pin;
        PKV_TRY(pin.acquire(node));
        PKV_TRY(not_null(address, "address"));
        return pin->disconnect(address);
    });
}

pkv_status pkv_node_tier(pkv_node *node, pkv_tier **tier) {
    return boundary([&] {
        Pin<Node> pin;
        PKV_TRY(pin.acquire(node));
        PKV_TRY(not_null(tier, "tier"));
        return pkv::hand_out(pin->tier(), tier);
    });
}

pkv_status pkv_node_peers(pkv_node *node, pkv_node_peer *peers, uint64_t capacity, uint64_t *count) {
    return boundary([&] {
        Pin<Node> pin;
        PKV_TRY(pin.acquire(node));
        PKV_TRY(not_null(count, "count"));
        PKV_TRY(check_array(peers, capacity, "peers"));
        const auto all = pin->peers();
        *count = all.size();
        if (capacity == 0) return PKV_OK;
        if (capacity < all.size())
            return fail(PKV_ERR_NO_SPACE, "%zu peers, and room for %" PRIu64, all.size(), capacity);
        const size_t step = peers->struct_size;
        for (size_t i = 0; i < all.size(); ++i) {
            auto *const out = reinterpret_cast<pkv_node_peer *>(reinterpret_cast<char *>(peers) + i * step);
            out->struct_size = step;
            PKV_TRY(check_out_struct(out, "peers"));
            pkv_node_peer value = PKV_NODE_PEER_INIT;
            std::string why;
            value.status = all[i]->last_status(why);
            value.connected = value.status == PKV_OK ? 1 : 0;
            copy_text(value.address, sizeof value.address, all[i]->address());
            copy_text(value.name, sizeof value.name, all[i]->name());
            write_struct(out, value);
        }
        return PKV_OK;
    });
}

pkv_status pkv_node_get_stats(pkv_node *node, pkv_node_stats *stats) {
    return boundary([&] {
        Pin<Node> pin;
        PKV_TRY(pin.acquire(node));
        PKV_TRY(check_out_struct(stats, "stats"));
        pkv_node_stats value;
        pin->stats(value);
        write_struct(stats, value);
        return PKV_OK;
    });
}

} // extern "C"
