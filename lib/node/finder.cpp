// SPDX-License-Identifier: Apache-2.0
#include "node/finder.h"

#include "core/clock.h"
#include "core/signals.h"
#include "core/wait.h"

#include <algorithm>
#include <system_error>

namespace pkv::node {
namespace {

constexpr uint64_t longest_ask_ns = 500'000'000;
constexpr uint64_t busy_ns = 60'000'000'000; // a peer that was named within this time gives way to no other

} // namespace

/// One lookup on its way through the directory.
struct Finder::Search {
    struct Part {
        std::vector<uint32_t> keys; // that this server was asked for
        directory::Answer answer;
    };
    struct Waiting {
        std::shared_ptr<Peer> peer;
        std::vector<uint32_t> keys;
    };
    OnPeer on_peer;
    OnEnd on_end;
    Peers asked;
    uint32_t num_keys = 0;
    uint64_t ask_until_ns = 0, connect_until_ns = 0;
    // The finder's thread's:
    bool followed = false;
    std::vector<Waiting> waiting;
    // The askers', too:
    std::mutex mutex;
    size_t open = 0; // servers that have not answered
    bool closed = false;
    std::vector<Part> parts;
};

Finder::~Finder() { stop(); }

pkv_status Finder::start() {
    stop_ = false;
    try {
        const BlockedSignals blocked;
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error &error) {
        stop_ = true;
        return fail(PKV_ERR_NO_MEMORY, "a thread for the directory: %s", error.what());
    }
    return PKV_OK;
}

void Finder::stop() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
        woken_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
    std::list<Found> found;
    Peers retired;
    {
        const std::lock_guard lock(mutex_);
        found.swap(found_);
        retired.swap(retired_);
    }
    for (const Found &each : found) each.peer->stop();
    for (const auto &peer : retired) peer->stop();
}

void Finder::wake() {
    const std::lock_guard lock(mutex_);
    wake_ = true;
    woken_.notify_all();
}

Finder::Peers Finder::peers() const {
    const std::lock_guard lock(mutex_);
    Peers all;
    for (const Found &each : found_) all.push_back(each.peer);
    return all;
}

std::shared_ptr<Peer> Finder::take(const std::string &address) {
    const std::lock_guard lock(mutex_);
    const auto at =
        std::find_if(found_.begin(), found_.end(), [&](const Found &each) { return each.peer->address() == address; });
    if (at == found_.end()) return nullptr;
    auto peer = std::move(at->peer);
    found_.erase(at);
    return peer;
}

// ---- questions

void Finder::find(std::span<const pkv_tier_key> keys, uint64_t deadline_ns, Peers asked, OnPeer on_peer, OnEnd on_end) {
    const uint64_t now = monotonic_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    const auto search = std::make_shared<Search>();
    search->on_peer = std::move(on_peer);
    search->on_end = std::move(on_end);
    search->asked = std::move(asked);
    search->num_keys = static_cast<uint32_t>(keys.size());
    search->ask_until_ns = now + std::min(left / 2, longest_ask_ns);
    search->connect_until_ns = deadline_ns - left / 4;
    directory::Client &client = *options_.client;
    std::vector<std::vector<pkv_tier_key>> questions(client.size());
    std::vector<std::vector<uint32_t>> numbers(client.size());
    for (uint32_t i = 0; i < keys.size(); ++i) {
        const size_t server = client.server_of(keys[i]);
        questions[server].push_back(keys[i]);
        numbers[server].push_back(i);
    }
    client.counters().lookups.fetch_add(keys.size(), std::memory_order_relaxed);
    search->open = 1;
    for (size_t server = 0; server < client.size(); ++server) {
        if (questions[server].empty()) continue;
        {
            const std::lock_guard lock(search->mutex);
            ++search->open;
        }
        auto done = [self = shared_from_this(), search, part = std::move(numbers[server])](directory::Answer answer) {
            {
                const std::lock_guard lock(search->mutex);
                try {
                    if (!search->closed) search->parts.push_back({part, std::move(answer)});
                } catch (const std::bad_alloc &) { // not answered
                }
                if (--search->open != 0) return;
            }
            self->wake();
        };
        if (client.ask(server, std::move(questions[server]), std::move(done))) continue;
        const std::lock_guard lock(search->mutex);
        --search->open;
    }
    {
        const std::lock_guard lock(search->mutex);
        --search->open;
    }
    std::list<std::shared_ptr<Search>> fresh{search};
    {
        const std::lock_guard lock(mutex_);
        if (!stop_) {
            searches_.splice(searches_.end(), fresh);
            wake_ = true;
            woken_.notify_all();
            return;
        }
    }
    search->on_end();
}

void Finder::run() {
    uint64_t next_ns = monotonic_ns();
    std::list<std::shared_ptr<Search>> searches;
    for (bool stopped = false; !stopped;) {
        {
            std::unique_lock lock(mutex_);
            wait_until(woken_, lock, next_ns, [this] { return wake_ || stop_; });
            wake_ = false;
            stopped = stop_;
            searches.splice(searches.end(), searches_);
        }
        const uint64_t now = monotonic_ns();
        next_ns = now + options_.heartbeat_ns;
        searches.remove_if([&](const auto &search) {
            if (!stopped && !step(*search, now, next_ns)) return false;
            search->on_end();
            return true;
        });
        sweep(now);
    }
}

/// True when nothing more will come of it; else `next_ns` is not after the time at which to look again.
bool Finder::step(Search &search, uint64_t now, uint64_t &next_ns) {
    try {
        if (!search.followed) {
            {
                const std::lock_guard lock(search.mutex);
                if (search.open != 0 && now < search.ask_until_ns) {
                    next_ns = std::min(next_ns, search.ask_until_ns);
                    return false;
                }
                search.closed = true;
            }
            search.followed = true;
            follow(search, now);
        }
        std::erase_if(search.waiting, [&](Search::Waiting &waiting) {
            std::string why;
            if (waiting.peer->connected())
                search.on_peer(waiting.peer, std::move(waiting.keys));
            else if (waiting.peer->last_status(why) == PKV_ERR_AGAIN)
                return false; // it is being connected to for the first time
            return true;
        });
    } catch (const std::exception &) { // no memory
        return true;
    }
    if (search.waiting.empty() || now >= search.connect_until_ns) return true;
    next_ns = std::min(next_ns, search.connect_until_ns);
    return false;
}

/// To those whom the directory has named.
void Finder::follow(Search &search, uint64_t now) {
    struct Node {
        std::shared_ptr<const directory::NodeAt> at;
        std::vector<uint32_t> keys;
    };
    std::vector<Node> nodes;
    std::vector<bool> answered(search.num_keys), named(search.num_keys);
    for (const Search::Part &part : search.parts) {
        if (part.answer.silent) continue;
        for (const uint32_t key : part.keys) answered[key] = true;
        for (const uint32_t key : part.answer.unanswered) answered[part.keys[key]] = false;
        for (const auto &[key, node] : part.answer.named) {
            auto at = std::find_if(nodes.begin(), nodes.end(),
                                   [&id = node->id](const Node &known) { return known.at->id == id; });
            if (at == nodes.end()) at = nodes.insert(nodes.end(), {node, {}});
            at->keys.push_back(part.keys[key]);
            named[part.keys[key]] = true;
        }
    }
    std::vector<uint32_t> unanswered;
    for (uint32_t i = 0; i < search.num_keys; ++i)
        if (!answered[i]) unanswered.push_back(i);
    auto &counters = options_.client->counters();
    counters.hits.fetch_add(static_cast<uint64_t>(std::count(named.begin(), named.end(), true)),
                            std::memory_order_relaxed);
    counters.failures.fetch_add(unanswered.size(), std::memory_order_relaxed);
    search.parts.clear();

    for (Node &node : nodes) {
        if (is_asked(search, *node.at) || node.at->address == options_.address)
            continue; // an earlier run of this node, too
        const auto peer = peer_at(*node.at, now);
        if (peer == nullptr) continue;
        if (peer->connected())
            search.on_peer(peer, std::move(node.keys));
        else
            search.waiting.push_back({peer, std::move(node.keys)});
    }
    if (unanswered.empty()) return;
    for (const auto &peer : peers())
        if (peer->connected()) search.on_peer(peer, unanswered);
}

// ---- peers

bool Finder::is_asked(const Search &search, const directory::NodeAt &node) const {
    return std::any_of(search.asked.begin(), search.asked.end(), [&](const auto &peer) {
        return peer->address() == node.address || (peer->connected() && peer->incarnation() == node.id);
    });
}

/// The peer for this node, which is made if there is none; nullptr: there are too many.
std::shared_ptr<Peer> Finder::peer_at(const directory::NodeAt &node, uint64_t now) {
    const std::lock_guard lock(mutex_);
    for (Found &each : found_)
        if (each.peer->address() == node.address || (each.peer->connected() && each.peer->incarnation() == node.id)) {
            each.named_ns = now;
            return each.peer;
        }
    if (stop_ || (found_.size() >= options_.most_peers && !make_room(now))) return nullptr;
    auto peer = std::make_shared<Peer>(options_.reader, node.address);
    peer->on_change([weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->wake();
    });
    found_.push_back({peer, now});
    try {
        peer->start();
    } catch (const std::system_error &) { // no thread
        found_.pop_back();
        return nullptr;
    }
    return peer;
}

/// One that is not connected gives way, or one that has not been named for long.
bool Finder::make_room(uint64_t now) {
    auto worst = found_.end();
    for (auto at = found_.begin(); at != found_.end(); ++at) {
        std::string why;
        if (at->peer->last_status(why) == PKV_ERR_AGAIN || (at->peer->connected() && now - at->named_ns < busy_ns))
            continue;
        if (worst == found_.end() || at->named_ns < worst->named_ns) worst = at;
    }
    if (worst == found_.end()) return false;
    retire(worst);
    return true;
}

void Finder::retire(std::list<Found>::iterator at) {
    at->peer->begin_stop();
    retired_.push_back(std::move(at->peer));
    found_.erase(at);
}

/// Lets go of nodes that are not connected and that nobody names any more.
void Finder::sweep(uint64_t now) {
    Peers ended;
    const std::lock_guard lock(mutex_);
    if (now < sweep_at_ns_) return;
    sweep_at_ns_ = now + options_.heartbeat_ns / 2;
    for (auto at = found_.begin(); at != found_.end();) {
        const auto next = std::next(at);
        if (!at->peer->connected() && now - at->named_ns > 3 * options_.heartbeat_ns) retire(at);
        at = next;
    }
    std::erase_if(retired_, [&](auto &peer) {
        if (!peer->ended()) return false;
        ended.push_back(std::move(peer)); // its thread has nothing more to do: gone with this scope
        return true;
    });
}

} // namespace pkv::node
