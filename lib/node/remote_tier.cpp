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
            log_message(PKV_LOG_WARNING, "staging memory of %llu bytes: %s", static_cast<unsigned long long>(bytes),
                        why);
            return;
        }
        const Lock lock(mutex_);
        regions_.push_back(std::move(region));
        return;
    }
    std::shared_ptr<Region> gone;
    const Lock lock(mutex_);
    const auto at =
        std::find_if(regions_.begin(), regions_.end(), [&](const auto &region) { return region->base() == base; });
    if (at == regions_.end()) return;
    gone = std::move(*at);
    regions_.erase(at);
}

// ---- lookups

/// The other side's lease begins later than it was asked for, and ends later.
RemoteTier::Lease RemoteTier::Lease::of(const Peer &peer, uint64_t place, uint64_t asked_ns) {
    const uint64_t length = peer.lease_ns();
    return {place, peer.connection(), asked_ns + std::min(length, UINT64_MAX - asked_ns), length, false};
}

/// One lookup in all peers; the arrays of the batch stay until its last item ends.
struct RemoteTier::LookupRun {
    std::shared_ptr<RemoteTier> tier;
    pkv_tier_request *request = nullptr;
    const pkv_tier_key *keys = nullptr;
    uint64_t num_items = 0;
    bool pin = false;
    uint64_t deadline_ns = 0;
    struct Where {
        std::shared_ptr<Peer> peer;
        uint64_t bytes = 0;
        Lease lease;
    };
    std::mutex mutex;
    std::vector<Where> where;
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
            keys, run->deadline_ns, named,
            [run](const auto &peer, std::vector<uint32_t> items) { ask(run, peer, items); }, [run] { leave(run); });
    }
    for (const auto &peer : named) ask(run, peer, all);
    leave(run);
}

/// Asks a peer for some of the items.
void RemoteTier::ask(const std::shared_ptr<LookupRun> &run, const std::shared_ptr<Peer> &peer,
                     std::span<const uint32_t> items) {
    for (size_t first = 0; first < items.size() && peer->connected(); first += most_items) {
        const auto part = items.subspan(first, std::min<size_t>(items.size() - first, most_items));
        std::vector<pkv_tier_key> keys;
        keys.reserve(part.size());
        for (const uint32_t item : part) keys.push_back(run->keys[item]);
        const uint64_t now = monotonic_ns();
        auto done = [run, peer, now, asked = std::vector<uint32_t>(part.begin(), part.end())](pkv_status status,
                                                                                              const Found &found) {
            std::vector<pkv_tier_key> twice; // pinned in a second node as well
            {
                const std::lock_guard lock(run->mutex);
                for (size_t i = 0; status == PKV_OK && i < found.bytes.size(); ++i) {
                    if (found.bytes[i] == 0) continue;
                    LookupRun::Where &where = run->where[asked[i]];
                    if (where.peer == nullptr) {
                        where.peer = peer;
                        where.bytes = found.bytes[i];
                        if (!found.places.empty()) where.lease = Lease::of(*peer, found.places[i], now);
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
            if (run.where[i].peer == nullptr) continue;
            Known &known = known_[run.keys[i]];
            if (known.bad) continue;
            good[i] = true;
            if (known.pins != 0 && !run.pin) continue; // it is leased, there
            known.peer = run.where[i].peer;
            known.lease = run.where[i].lease;
            known.pins += run.pin;
        }
    }
    for (uint64_t i = 0; i < run.num_items; ++i) {
        if (run.pin && !good[i] && run.where[i].peer != nullptr) run.where[i].peer->release({&run.keys[i], 1});
    }
    const uint64_t count = run.num_items; // the keys may go with the last item
    for (uint64_t i = 0; i < count; ++i)
        (void)pkv_tier_complete(run.request, i, good[i] ? PKV_OK : PKV_ERR_NOT_FOUND, good[i] ? run.where[i].bytes : 0);
}

// ---- loads

/// One item of a load: read where it lies if it is leased, and else tried in the node that is known to have it, then in the
/// others.
struct RemoteTier::LoadRun {
    std::shared_ptr<RemoteTier> tier;
    pkv_tier_request *request = nullptr;
    uint64_t item = 0;
    RangeRead read;
    std::shared_ptr<Region> own; // registered for this item alone
    std::shared_ptr<Peer> leased;
    Lease lease;
    bool bad = false;
    bool listed = false; // todo was filled in
    std::vector<std::shared_ptr<Peer>> todo;
    pkv_status status = PKV_ERR_NOT_FOUND;

    static void end(const std::shared_ptr<LoadRun> &run, pkv_status status) {
        if (status == PKV_OK || status == PKV_ERR_CANCELLED || status == PKV_ERR_TIMEOUT) {
            (void)pkv_tier_complete(run->request, run->item, status, status == PKV_OK ? run->read.range.bytes : 0);
            return;
        }
        if (run->status == PKV_ERR_NOT_FOUND) run->status = status;
        run->tier->try_next(run);
    }
};

void RemoteTier::load(const pkv_tier_batch &batch) {
    const uint64_t now = monotonic_ns();
    const uint64_t count = batch.num_items; // the batch may be gone with its last item
    for (uint64_t i = 0; i < count; ++i) {
        auto run = std::make_shared<LoadRun>();
        run->tier = shared_from_this();
        run->request = batch.request;
        run->item = i;
        run->read.range = {batch.keys[i], batch.offsets[i], batch.sizes[i]};
        run->read.data = batch.data[i];
        run->read.urgent = batch.urgent != 0;
        run->read.owner = batch.request;
        run->read.deadline_ns = batch.deadline_ns != 0 ? batch.deadline_ns : now + timeout_ns_;
        bool renewed = false;
        {
            const Lock lock(mutex_);
            for (const auto &region : regions_)
                if (region->holds(run->read.data, run->read.range.bytes)) run->read.target = region;
            const auto at = known_.find(batch.keys[i]);
            if (at != known_.end()) {
                Known &known = at->second;
                run->bad = known.bad;
                if (known.pins != 0 && known.lease.place != no_place) {
                    run->leased = known.peer.lock();
                    run->lease = known.lease;
                }
                if (run->leased != nullptr && !known.lease.renewing &&
                    now + known.lease.length_ns / 2 > known.lease.until_ns)
                    renewed = known.lease.renewing = true;
            }
        }
        if (renewed) renew(run->leased, batch.keys[i]);
        if (now >= run->lease.until_ns) run->leased = nullptr;
        try_next(run);
    }
}

void RemoteTier::try_next(const std::shared_ptr<LoadRun> &run) {
    if (run->read.target == nullptr && !run->bad) {
        if (Region::add(fabric_, run->read.data, run->read.range.bytes, false, run->own) != PKV_OK) {
            (void)pkv_tier_complete(run->request, run->item, PKV_ERR_AGAIN, 0);
            return;
        }
        run->read.target = run->own;
    }
    if (run->leased != nullptr && !run->bad) {
        const auto peer = std::move(run->leased);
        RangeRead read = run->read;
        read.place = run->lease.place;
        read.connection = run->lease.connection;
        read.done = [run](pkv_status status) {
            // Once the lease is over, something else may lie there.
            LoadRun::end(run, status == PKV_OK && monotonic_ns() >= run->lease.until_ns ? PKV_ERR_NOT_FOUND : status);
        };
        if (peer->read(std::move(read))) return;
    }
    if (!run->listed && !run->bad) run->todo = in_order(run->read.range.key);
    run->listed = true;
    while (!run->todo.empty()) {
        const auto peer = std::move(run->todo.back());
        run->todo.pop_back();
        RangeRead read = run->read;
        read.done = [run](pkv_status status) { LoadRun::end(run, status); };
        if (peer->read(std::move(read))) return;
    }
    // A node that is gone is no fault of the image, nor proof that it is bad.
    const pkv_status status = run->status == PKV_ERR_IO ? PKV_ERR_AGAIN : run->status;
    (void)pkv_tier_complete(run->request, run->item, status, 0);
}

/// All peers, the one last that is known to have the image.
std::vector<std::shared_ptr<Peer>> RemoteTier::in_order(const pkv_tier_key &key) const {
    auto all = peers();
    const Lock lock(mutex_);
    const auto at = known_.find(key);
    const auto first = at != known_.end() ? std::find(all.begin(), all.end(), at->second.peer.lock()) : all.end();
    if (first != all.end()) std::rotate(all.begin(), first, first + 1);
    std::reverse(all.begin(), all.end());
    return all;
}

/// Takes the lease of a pinned image once more, for as long again.
void RemoteTier::renew(const std::shared_ptr<Peer> &peer, const pkv_tier_key &key) {
    const uint64_t now = monotonic_ns();
    auto done = [self = shared_from_this(), peer, key, now](pkv_status status, const Found &found) {
        const bool there = status == PKV_OK && found.bytes[0] != 0 && !found.places.empty();
        bool twice = false; // the one before was still in force, so that it is leased twice now
        {
            const Lock lock(self->mutex_);
            Known &known = self->known_[key];
            known.lease.renewing = false;
            twice = known.pins == 0 || monotonic_ns() < known.lease.until_ns;
            if (there && known.pins != 0) known.lease = Lease::of(*peer, found.places[0], now);
        }
        if (there && twice) peer->release({&key, 1});
    };
    if (!peer->look_up({&key, 1}, true, now + timeout_ns_, done)) done(PKV_ERR_IO, {});
}

void RemoteTier::cancel(pkv_tier_request *request) {
    for (const auto &peer : peers()) peer->cancel_reads(request);
}

// ---- the rest

void RemoteTier::change(const pkv_tier_batch &batch) {
    std::vector<std::pair<std::shared_ptr<Peer>, std::vector<pkv_tier_key>>> released; // one message for each peer
    std::vector<pkv_status> statuses(batch.num_items, PKV_OK);
    {
        const Lock lock(mutex_);
        for (uint64_t i = 0; i < batch.num_items; ++i) {
            switch (batch.kind) {
            case PKV_TIER_STORE: statuses[i] = PKV_ERR_NO_SPACE; break; // others' images are theirs
            case PKV_TIER_UNPIN: {
                const auto at = known_.find(batch.keys[i]);
                if (at == known_.end() || at->second.pins == 0) {
                    statuses[i] = PKV_ERR_NOT_FOUND;
                    break;
                }
                --at->second.pins;
                const auto peer = at->second.peer.lock();
                if (peer == nullptr) break;
                if (released.empty() || released.back().first != peer || released.back().second.size() == most_items)
                    released.emplace_back(peer, std::vector<pkv_tier_key>());
                released.back().second.push_back(batch.keys[i]);
                break;
            }
            case PKV_TIER_REMOVE:
                if ((batch.flags & PKV_TIER_FORCE) != 0) known_[batch.keys[i]].bad = true;
                break;
            case PKV_TIER_RETAIN: statuses[i] = PKV_ERR_NOT_FOUND; break;
            default: break; // CLEAR: what other nodes hold is not forgotten from here
            }
        }
    }
    for (const auto &[peer, keys] : released) peer->release(keys);
    pkv_tier_request *const request = batch.request; // the batch may be gone with its last item
    for (uint64_t i = 0; i < statuses.size(); ++i) (void)pkv_tier_complete(request, i, statuses[i], 0);
}

} // namespace pkv::node
