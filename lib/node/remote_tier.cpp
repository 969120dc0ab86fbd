// SPDX-License-Identifier: Apache-2.0
#include "node/remote_tier.h"

#include "core/clock.h"
#include "core/wait.h"

#include <algorithm>
#include <numeric>

namespace pkv::node {
namespace {

constexpr size_t most_known = 1u << 20; // images remembered; pinned ones stay

} // namespace

void RemoteTier::add(std::shared_ptr<Peer> peer) {
    const Lock lock(mutex_);
    peers_.push_back(std::move(peer));
}

void RemoteTier::remove(const std::shared_ptr<Peer> &peer) {
    const Lock lock(mutex_);
    std::erase(peers_, peer);
}

std::vector<std::shared_ptr<Peer>> RemoteTier::added() const {
    const Lock lock(mutex_);
    return peers_;
}

std::shared_ptr<Finder> RemoteTier::finder() const {
    const Lock lock(mutex_);
    return finder_;
}

void RemoteTier::find_with(std::shared_ptr<Finder> finder) {
    const Lock lock(mutex_);
    finder_ = std::move(finder);
}

std::vector<std::shared_ptr<Peer>> RemoteTier::peers() const {
    auto all = added();
    if (const auto finder = this->finder()) {
        const auto found = finder->peers();
        all.insert(all.end(), found.begin(), found.end());
    }
    return all;
}

void RemoteTier::close() {
    std::shared_ptr<Finder> finder; // ended outside of the lock
    const Lock lock(mutex_);
    peers_.clear();
    finder.swap(finder_);
}

pkv_status RemoteTier::submit(const pkv_tier_batch &batch) {
    switch (batch.kind) {
    case PKV_TIER_LOOKUP:
    case PKV_TIER_PROBE: look_up(batch); break;
    case PKV_TIER_LOAD: load(batch); break;
    default: change(batch); break;
    }
    return PKV_OK;
}

void RemoteTier::memory(void *base, uint64_t bytes, bool add) {
    if (add) {
        std::shared_ptr<Region> region;
        if (Region::add(fabric_, base, bytes, false, region) != PKV_OK) { // loads register what they need, then
            char why[256] = "";
            copy_last_error(why, sizeof why);
            log_message(PKV_LOG_WARNING, "staging memory of %llu bytes: %s", static_cast<unsigned long long>(bytes), why);
            return;
        }
        const Lock lock(mutex_);
        regions_.push_back(std::move(region));
        return;
    }
    std::shared_ptr<Region> gone;
    const Lock lock(mutex_);
    const auto at = std::find_if(regions_.begin(), regions_.end(), [&](const auto &region) { return region->base() == base; });
    if (at == regions_.end()) return;
    gone = std::move(*at);
    regions_.erase(at);
}

// ---- lookups

/// One lookup in all peers; the arrays of the batch stay until its last item ends.
struct RemoteTier::LookupRun {
    std::shared_ptr<RemoteTier> tier;
    pkv_tier_request *request = nullptr;
    const pkv_tier_key *keys = nullptr;
    uint64_t num_items = 0;
    bool pin = false;
    uint64_t deadline_ns = 0;
    std::mutex mutex;
    std::vector<uint64_t> bytes;
    std::vector<std::shared_ptr<Peer>> where;
    size_t open = 1; // answers to come, and whoever asks
};

void RemoteTier::look_up(const pkv_tier_batch &batch) {
    auto run = std::make_shared<LookupRun>();
    run->tier = shared_from_this();
    run->request = batch.request;
    run->keys = batch.keys;
    run->num_items = batch.num_items;
    run->pin = batch.kind == PKV_TIER_LOOKUP && (batch.flags & PKV_TIER_PIN) != 0;
    run->deadline_ns = batch.deadline_ns != 0 ? batch.deadline_ns : monotonic_ns() + timeout_ns_;
    run->bytes.resize(batch.num_items);
    run->where.resize(batch.num_items);
    const std::span keys(batch.keys, batch.num_items);
    std::vector<uint32_t> all(batch.num_items);
    std::iota(all.begin(), all.end(), 0);
    const auto named = added();
    if (const auto finder = this->finder()) {
        {
            const std::lock_guard lock(run->mutex);
            ++run->open;
        }
        finder->find(
            keys, run->deadline_ns, named, [run](const auto &peer, std::vector<uint32_t> items) { ask(run, peer, items); },
            [run] { leave(run); });
    }
    for (const auto &peer : named) ask(run, peer, all);
    leave(run);
}

/// Asks a peer for some of the items.
void RemoteTier::ask(const std::shared_ptr<LookupRun> &run, const std::shared_ptr<Peer> &peer, std::span<const uint32_t> items) {
    for (size_t first = 0; first < items.size() && peer->connected(); first += most_items) {
        const auto part = items.subspan(first, std::min<size_t>(items.size() - first, most_items));
        std::vector<pkv_tier_key> keys;
        keys.reserve(part.size());
        for (const uint32_t item : part) keys.push_back(run->keys[item]);
        auto done = [run, peer, asked = std::vector<uint32_t>(part.begin(), part.end())](pkv_status status, const Found &found) {
            std::vector<pkv_tier_key> twice; // pinned in a second node as well
            {
                const std::lock_guard lock(run->mutex);
                for (size_t i = 0; status == PKV_OK && i < found.bytes.size(); ++i) {
                    if (found.bytes[i] == 0) continue;
                    if (run->where[asked[i]] == nullptr) {
                        run->where[asked[i]] = peer;
                        run->bytes[asked[i]] = found.bytes[i];
                    } else if (run->pin) {
                        twice.push_back(run->keys[asked[i]]);
                    }
                }
            }
            peer->release(twice);
            leave(run);
        };
        {
            const std::lock_guard lock(run->mutex);
            ++run->open;
        }
        if (!peer->look_up(keys, run->pin, run->deadline_ns, done)) done(PKV_ERR_IO, {});
    }
}

/// One of those who keep the lookup open has done what it could.
void RemoteTier::leave(const std::shared_ptr<LookupRun> &run) {
    {
        const std::lock_guard lock(run->mutex);
        if (--run->open != 0) return;
    }
    run->tier->end_lookup(*run);
}

void RemoteTier::end_lookup(LookupRun &run) {
    std::vector<bool> good(run.num_items);
    {
        const Lock lock(mutex_);
        if (known_.size() > most_known) std::erase_if(known_, [](const auto &item) { return item.second.pins == 0; });
        for (uint64_t i = 0; i < run.num_items; ++i) {
            if (run.where[i] == nullptr) continue;
            Known &known = known_[run.keys[i]];
            if (known.bad) continue;
            known.peer = run.where[i];
            known.pins += run.pin;
            good[i] = true;
        }
    }
    for (uint64_t i = 0; i < run.num_items; ++i) {
        if (run.pin && !good[i] && run.where[i] != nullptr) run.where[i]->release({&run.keys[i], 1});
    }
    const uint64_t count = run.num_items; // the keys may go with the last item
    for (uint64_t i = 0; i < count; ++i)
        (void)pkv_tier_complete(run.request, i, good[i] ? PKV_OK : PKV_ERR_NOT_FOUND, good[i] ? run.bytes[i] : 0);
}

// ---- loads

/// One item of a load: tried in the node that is known to have it, then in the others.
struct RemoteTier::LoadRun {
    std::shared_ptr<RemoteTier> tier;
    pkv_tier_request *request = nullptr;
    uint64_t item = 0;
    RangeRead read;
    std::shared_ptr<Region> own; // registered for this item alone
    std::vector<std::shared_ptr<Peer>> todo;
    pkv_status status = PKV_ERR_NOT_FOUND;
};

std::shared_ptr<Region> RemoteTier::region_for(void *data, uint64_t bytes, std::shared_ptr<Region> &own) {
    {
        const Lock lock(mutex_);
        for (const auto &region : regions_)
            if (region->holds(data, bytes)) return region;
    }
    if (Region::add(fabric_, data, bytes, false, own) != PKV_OK) return nullptr;
    return own;
}

void RemoteTier::load(const pkv_tier_batch &batch) {
    const auto all = peers();
    for (uint64_t i = 0; i < batch.num_items; ++i) {
        auto run = std::make_shared<LoadRun>();
        run->tier = shared_from_this();
        run->request = batch.request;
        run->item = i;
        run->read.range = {batch.keys[i], batch.offsets[i], batch.sizes[i]};
        run->read.data = batch.data[i];
        run->read.urgent = batch.urgent != 0;
        run->read.owner = batch.request;
        run->read.deadline_ns = batch.deadline_ns != 0 ? batch.deadline_ns : monotonic_ns() + timeout_ns_;
        run->todo = all;
        bool bad = false;
        {
            const Lock lock(mutex_);
            const auto at = known_.find(batch.keys[i]);
            if (at != known_.end()) {
                bad = at->second.bad;
                const auto first = std::find(run->todo.begin(), run->todo.end(), at->second.peer.lock());
                if (first != run->todo.end()) std::rotate(run->todo.begin(), first, first + 1);
            }
        }
        if (bad) run->todo.clear();
        std::reverse(run->todo.begin(), run->todo.end()); // the next one is the last
        if (!run->todo.empty()) run->read.target = region_for(run->read.data, run->read.range.bytes, run->own);
        if (run->read.target == nullptr && !run->todo.empty()) {
            run->todo.clear();
            run->status = PKV_ERR_IO;
        }
        try_next(run);
    }
}

void RemoteTier::try_next(const std::shared_ptr<LoadRun> &run) {
    while (!run->todo.empty()) {
        const auto peer = std::move(run->todo.back());
        run->todo.pop_back();
        RangeRead read = run->read;
        read.done = [run](pkv_status status) {
            if (status == PKV_OK || status == PKV_ERR_CANCELLED || status == PKV_ERR_TIMEOUT) {
                (void)pkv_tier_complete(run->request, run->item, status, status == PKV_OK ? run->read.range.bytes : 0);
                return;
            }
            if (run->status == PKV_ERR_NOT_FOUND) run->status = status;
            run->tier->try_next(run);
        };
        if (peer->read(std::move(read))) return;
    }
    // A node that is gone is no fault of the image, nor proof that it is bad.
    const pkv_status status = run->status == PKV_ERR_IO ? PKV_ERR_AGAIN : run->status;
    (void)pkv_tier_complete(run->request, run->item, status, 0);
}

void RemoteTier::cancel(pkv_tier_request *request) {
    for (const auto &peer : peers()) peer->cancel_reads(request);
}

// ---- the rest

void RemoteTier::change(const pkv_tier_batch &batch) {
    for (uint64_t i = 0; i < batch.num_items; ++i) {
        pkv_status status = PKV_OK;
        std::shared_ptr<Peer> release;
        switch (batch.kind) {
        case PKV_TIER_STORE: status = PKV_ERR_NO_SPACE; break; // others' images are theirs
        case PKV_TIER_UNPIN: {
            const Lock lock(mutex_);
            const auto at = known_.find(batch.keys[i]);
            if (at == known_.end() || at->second.pins == 0) {
                status = PKV_ERR_NOT_FOUND;
            } else {
                --at->second.pins;
                release = at->second.peer.lock();
            }
            break;
        }
        case PKV_TIER_REMOVE:
            if ((batch.flags & PKV_TIER_FORCE) != 0) {
                const Lock lock(mutex_);
                known_[batch.keys[i]].bad = true;
            }
            break;
        case PKV_TIER_RETAIN: status = PKV_ERR_NOT_FOUND; break;
        default: break; // CLEAR: what other nodes hold is not forgotten from here
        }
        if (release != nullptr) release->release({&batch.keys[i], 1});
        (void)pkv_tier_complete(batch.request, i, status, 0);
    }
}

} // namespace pkv::node
