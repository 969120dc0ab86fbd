// SPDX-License-Identifier: Apache-2.0
#include "directory/client.h"

#include "core/clock.h"

#include <algorithm>
#include <cstring>
#include <sodium.h>

namespace pkv::directory {
namespace {

constexpr uint64_t answer_ns = 1'000'000'000;
constexpr uint64_t withdraw_ns = 1'000'000'000;

uint64_t seed_of(const std::string &label) {
    uint8_t digest[16];
    crypto_generichash(digest, sizeof digest, reinterpret_cast<const uint8_t *>(label.data()), label.size(), nullptr,
                       0);
    uint64_t seed = 0;
    for (int i = 0; i < 8; ++i) seed |= uint64_t{digest[i]} << (8 * i);
    return seed;
}

/// A permutation whose output bits each depend on all of the input's (the finalizer of MurmurHash3).
uint64_t mix(uint64_t value) {
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCDu;
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53u;
    return value ^ value >> 33;
}

} // namespace

Client::Client(Options options) : options_(std::move(options)), counters_(std::make_shared<Counters>()) {}

Client::~Client() { close(); }

pkv_status Client::open(Options options, std::unique_ptr<Client> &client) {
    const pkv_redis_table *table = nullptr;
    PKV_TRY(redis_plugin(table));
    for (const auto &server : options.servers)
        if (server->tls && table->tls == 0)
            return fail(PKV_ERR_UNSUPPORTED,
                        "directory: rediss://%s: the plug-in was built with hiredis %s without TLS (hiredis_ssl)",
                        server->label.c_str(), table->hiredis);
    auto fresh = std::make_unique<Client>(std::move(options));
    PKV_TRY(fresh->start());
    client = std::move(fresh);
    return PKV_OK;
}

pkv_status Client::start() {
    const auto names = std::make_shared<const Names>(options_.scope, options_.prefix);
    sodium_memzero(options_.scope.cluster_key.data(), options_.scope.cluster_key.size());
    const bool publishes = !options_.address.empty() && !options_.tiers.empty();
    for (size_t i = 0; i < options_.servers.size(); ++i) {
        const auto &server = options_.servers[i];
        seeds_.push_back(seed_of(server->label));
        AskerOptions asker;
        asker.server = server;
        asker.names = names;
        asker.counters = counters_;
        asker.self = options_.self;
        asker.keep_ns = asker.idle_ns = options_.heartbeat_ns;
        asker.connect_ns = options_.timeout_ns;
        asker.answer_ns = answer_ns;
        askers_.push_back(std::make_unique<Asker>(std::move(asker)));
        if (!publishes) continue;
        PublisherOptions publisher;
        publisher.server = server;
        publisher.names = names;
        publisher.counters = counters_;
        publisher.self = options_.self;
        publisher.address = options_.address;
        publisher.tiers = options_.tiers;
        publisher.mine = [this, i](const pkv_tier_key &key) { return server_of(key) == i; };
        publisher.heartbeat_ns = options_.heartbeat_ns;
        publisher.entry_ttl_ns = options_.entry_ttl_ns;
        publisher.connect_ns = options_.timeout_ns;
        publisher.answer_ns = answer_ns;
        publisher.withdraw_ns = withdraw_ns;
        publishers_.push_back(std::make_unique<Publisher>(std::move(publisher)));
    }
    open_ = true;
    // Watched before the first walk: what comes after it is heard of.
    if (publishes)
        for (const auto &tier : options_.tiers) tier->watches().add(this);
    for (const auto &asker : askers_) PKV_TRY(asker->start());
    for (const auto &publisher : publishers_) PKV_TRY(publisher->start());
    return PKV_OK;
}

void Client::close() {
    if (!open_) return;
    open_ = false;
    if (!publishers_.empty())
        for (const auto &tier : options_.tiers) tier->watches().remove(this);
    for (const auto &publisher : publishers_) publisher->begin_end();
    for (const auto &asker : askers_) asker->stop();
    const uint64_t deadline = monotonic_ns() + withdraw_ns + withdraw_ns / 2;
    for (const auto &publisher : publishers_) publisher->end(deadline);
    options_.tiers.clear();
}

uint64_t Client::up() const {
    uint64_t count = 0;
    for (size_t i = 0; i < askers_.size(); ++i)
        count += askers_[i]->up() && (publishers_.empty() || publishers_[i]->up());
    return count;
}

size_t Client::server_of(const pkv_tier_key &key) const {
    if (seeds_.size() == 1) return 0;
    uint64_t words[4], sum = 0;
    std::memcpy(words, key.bytes, sizeof words);
    for (const uint64_t word : words) sum = mix(sum ^ word); // keys are digests, but a caller may have made up its own
    size_t best = 0;
    uint64_t most = 0;
    for (size_t i = 0; i < seeds_.size(); ++i) {
        const uint64_t weight = mix(sum ^ seeds_[i]);
        if (i != 0 && weight <= most) continue;
        best = i;
        most = weight;
    }
    return best;
}

void Client::changed(const pkv_tier_key &key) noexcept { publishers_[server_of(key)]->changed(key); }

} // namespace pkv::directory
