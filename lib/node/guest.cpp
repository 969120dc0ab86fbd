// SPDX-License-Identifier: Apache-2.0
#include "node/guest.h"

#include "core/clock.h"
#include "core/wait.h"

#include <algorithm>

namespace pkv::node {
namespace {

constexpr uint64_t hello_ns = 5'000'000'000;
constexpr uint64_t tick_ns = 200'000'000;
constexpr uint64_t send_ns = 5'000'000'000;
constexpr size_t most_unsent = 4096; // messages: a peer that asks and does not listen is let go of
constexpr uint64_t most_open_fetches = 1024;

std::string hex(const uint8_t *bytes, size_t count) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (size_t i = 0; i < count; ++i) {
        text += digits[bytes[i] >> 4];
        text += digits[bytes[i] & 15];
    }
    return text;
}

} // namespace

pkv_status compare_hellos(const Hello &ours, const Hello &theirs) {
    if (theirs.protocol != ours.protocol)
        return fail(PKV_ERR_MISMATCH, "protocol version %u there, %u here", theirs.protocol, ours.protocol);
    if (theirs.image_format != ours.image_format)
        return fail(PKV_ERR_MISMATCH, "image format %u there, %u here", theirs.image_format, ours.image_format);
    if (theirs.identity != ours.identity)
        return fail(PKV_ERR_MISMATCH, "another model: identity %s... there, %s... here",
                    hex(theirs.identity.data(), 6).c_str(), hex(ours.identity.data(), 6).c_str());
    if (theirs.provider != ours.provider)
        return fail(PKV_ERR_MISMATCH, "fabric provider \"%s\" there, \"%s\" here", theirs.provider.c_str(),
                    ours.provider.c_str());
    if (ours.shapes.empty() || theirs.shapes.empty()) return PKV_OK;
    for (const Digest &shape : theirs.shapes)
        if (std::find(ours.shapes.begin(), ours.shapes.end(), shape) != ours.shapes.end()) return PKV_OK;
    return fail(PKV_ERR_MISMATCH,
                "no layer group of the same geometry: %zu there, %zu here, the first %s... there, %s... here",
                theirs.shapes.size(), ours.shapes.size(), hex(theirs.shapes[0].data(), 6).c_str(),
                hex(ours.shapes[0].data(), 6).c_str());
}

Guest::Guest(std::shared_ptr<Service> service, std::unique_ptr<Channel> channel)
    : service_(std::move(service)), channel_(std::move(channel)) {}

Guest::~Guest() = default;

// ---- the connection

pkv_status Guest::greet() {
    const uint64_t deadline = monotonic_ns() + hello_ns;
    PKV_TRY(Endpoint::open(service_->fabric, endpoint_));
    Hello ours = service_->hello;
    ours.endpoint = endpoint_->name();
    ours.windows = service_->exports.windows();
    for (const Window &window : ours.windows) ours.room += window.bytes;
    for (Window &window : service_->in_place.windows()) ours.windows.push_back(std::move(window));
    std::vector<std::byte> message;
    pkv_status status = channel_->receive(message, deadline);
    Head head;
    Hello theirs;
    if (status == PKV_OK && (!decode_head(message, head) || head.kind != Kind::hello || !decode(message, theirs)))
        status = fail(PKV_ERR_MISMATCH, "the other side's first message is no hello");
    PKV_TRY(status);
    status = compare_hellos(service_->hello, theirs);
    if (status != PKV_OK) { // whoever has the cluster's key may know why
        char why[256] = "";
        copy_last_error(why, sizeof why);
        (void)channel_->send(encode(head.request, Refused{status, why}), deadline);
        return fail(status, "%s", why);
    }
    PKV_TRY(endpoint_->connect(theirs.endpoint, theirs.windows));
    PKV_TRY(channel_->send(encode(head.request, ours), deadline));
    const std::lock_guard lock(mutex_);
    theirs_ = std::move(theirs);
    return PKV_OK;
}

void Guest::run(const std::atomic<bool> &stop) {
    Counters &counters = *service_->counters;
    if (greet() != PKV_OK) {
        char why[256] = "";
        copy_last_error(why, sizeof why);
        log_message(PKV_LOG_WARNING, "a peer was refused: %s", why);
        counters.refused.fetch_add(1, std::memory_order_relaxed);
    } else {
        counters.accepted.fetch_add(1, std::memory_order_relaxed);
        counters.guests.fetch_add(1, std::memory_order_relaxed);
        std::thread writer([this] { write(); });
        std::vector<std::byte> message;
        while (!stop.load(std::memory_order_acquire)) {
            pkv_status status = channel_->receive(message, monotonic_ns() + tick_ns);
            if (status == PKV_OK) status = handle(message);
            if (status != PKV_OK && status != PKV_ERR_TIMEOUT) break;
            expire(monotonic_ns(), false);
        }
        channel_->shut_down();
        {
            const std::lock_guard lock(mutex_);
            ending_ = true;
            posted_.notify_all();
        }
        writer.join(); // fetches that tiers have not answered keep what they write to alive, and end by themselves
        end_pulls();
        expire(monotonic_ns(), true);
        counters.guests.fetch_sub(1, std::memory_order_relaxed);
    }
    if (endpoint_ != nullptr) endpoint_->close();
}

pkv_status Guest::handle(std::span<const std::byte> message) {
    Head head;
    Lookup lookup;
    Fetch fetch;
    Release release;
    const bool known = decode_head(message, head);
    if (known && head.kind == Kind::lookup && decode(message, lookup)) {
        answer(head.request, lookup);
    } else if (known && head.kind == Kind::fetch && decode(message, fetch)) {
        answer(head.request, fetch);
    } else if (known && head.kind == Kind::release && decode(message, release)) {
        take_back(release);
    } else if (known && handle_pull(head, message)) {
        // done
    } else {
        service_->counters->bad_messages.fetch_add(1, std::memory_order_relaxed);
        return fail(PKV_ERR_MISMATCH, "a message of %zu bytes that is none", message.size());
    }
    const std::lock_guard lock(mutex_);
    return ending_ ? PKV_ERR_CLOSED : PKV_OK;
}

void Guest::post(std::vector<std::byte> message) {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    if (outbox_.size() >= most_unsent) {
        ending_ = true;
        channel_->shut_down();
    } else {
        outbox_.push_back(std::move(message));
    }
    posted_.notify_all();
}

void Guest::write() {
    for (;;) {
        std::vector<std::byte> message;
        {
            std::unique_lock lock(mutex_);
            posted_.wait(lock, [this] { return ending_ || !outbox_.empty(); });
            if (ending_) return;
            message = std::move(outbox_.front());
            outbox_.pop_front();
        }
        if (channel_->send(message, monotonic_ns() + send_ns) == PKV_OK) continue;
        const std::lock_guard lock(mutex_);
        ending_ = true;
        return;
    }
}

// ---- lookups and leases

void Guest::answer(uint64_t request, const Lookup &lookup) {
    Found found;
    found.bytes.assign(lookup.keys.size(), 0);
    bool room = true;
    if (lookup.pin) {
        const std::lock_guard lock(mutex_);
        room = pins_.size() + lookup.keys.size() <= service_->max_leases;
    }
    std::vector<int8_t> where(lookup.keys.size(), no_tier);
    if (room) service_->tiers.locate(lookup.keys, lookup.pin, where, found.bytes);
    service_->counters->lookups_served.fetch_add(lookup.keys.size(), std::memory_order_relaxed);
    if (lookup.pin) {
        found.places.assign(lookup.keys.size(), no_place);
        const std::lock_guard lock(mutex_);
        const uint64_t until = monotonic_ns() + service_->lease_ns;
        for (size_t i = 0; i < where.size(); ++i) {
            if (where[i] == no_tier) continue;
            PinnedImage &image = pins_[lookup.keys[i]];
            if (image.count != 0 && image.tier != where[i]) { // it has moved: one pin for each tier is enough to keep
                service_->tiers.unpin(static_cast<uint32_t>(where[i]), {&lookup.keys[i], 1});
            } else if (image.count != 0) {
                service_->tiers.unpin(static_cast<uint32_t>(where[i]), {&lookup.keys[i], 1});
            } else {
                image.tier = where[i];
                service_->counters->leases.fetch_add(1, std::memory_order_relaxed);
            }
            ++image.count;
            image.bytes = found.bytes[i];
            image.until_ns = until;
            found.places[i] = service_->in_place.find(service_->tiers, image.tier, lookup.keys[i], image.bytes);
        }
    }
    post(encode(request, found));
}

void Guest::take_back(const Release &release) {
    const std::lock_guard lock(mutex_);
    for (const uint64_t ticket : release.tickets) {
        const auto at = tickets_.find(ticket);
        if (at == tickets_.end()) continue;
        service_->exports.give_back(at->second.offset, at->second.bytes);
        tickets_.erase(at);
    }
    for (const pkv_tier_key &key : release.keys) {
        const auto at = pins_.find(key);
        if (at == pins_.end() || --at->second.count != 0) continue;
        service_->tiers.unpin(static_cast<uint32_t>(at->second.tier), {&key, 1});
        service_->counters->leases.fetch_sub(1, std::memory_order_relaxed);
        pins_.erase(at);
    }
}

void Guest::expire(uint64_t now, bool all) {
    const std::lock_guard lock(mutex_);
    std::erase_if(pins_, [&](const auto &item) {
        if (!all && now < item.second.until_ns) return false;
        service_->tiers.unpin(static_cast<uint32_t>(item.second.tier), {&item.first, 1});
        service_->counters->leases.fetch_sub(1, std::memory_order_relaxed);
        if (!all) service_->counters->expired_leases.fetch_add(1, std::memory_order_relaxed);
        return true;
    });
    std::erase_if(tickets_, [&](const auto &item) {
        if (!all && now < item.second.until_ns) return false;
        service_->exports.give_back(item.second.offset, item.second.bytes);
        if (!all) service_->counters->expired_leases.fetch_add(1, std::memory_order_relaxed);
        return true;
    });
}

// ---- fetches

/// One fetch on its way through the tiers.
struct Guest::FetchRun {
    std::shared_ptr<Guest> guest;
    uint64_t request = 0;
    Places places;
    std::vector<uint64_t> bytes;
    std::atomic<size_t> open{1}; // loads, and whoever begins them
};

void Guest::answer(uint64_t request, const Fetch &fetch) {
    auto run = std::make_shared<FetchRun>();
    run->guest = shared_from_this();
    run->request = request;
    run->places.places.resize(fetch.ranges.size());
    run->bytes.resize(fetch.ranges.size());
    std::vector<int8_t> where(fetch.ranges.size(), no_tier);
    std::vector<uint64_t> whole(fetch.ranges.size(), 0); // bytes of the image, of those that are to be promoted
    std::vector<pkv_tier_key> unknown;
    std::vector<size_t> unknown_at;
    size_t room = 0;
    bool busy = false;
    {
        const std::lock_guard lock(mutex_);
        busy = open_fetches_ >= most_open_fetches;
        if (!busy) ++open_fetches_;
        room = service_->max_leases - std::min<size_t>(service_->max_leases, tickets_.size());
        for (size_t i = 0; i < fetch.ranges.size(); ++i) {
            const auto at = pins_.find(fetch.ranges[i].key);
            if (at != pins_.end()) {
                where[i] = at->second.tier;
                if (service_->promote && where[i] > 0 && fetch.ranges[i].offset == 0) whole[i] = at->second.bytes;
                at->second.until_ns = monotonic_ns() + service_->lease_ns; // whoever reads renews
            } else {
                unknown.push_back(fetch.ranges[i].key);
                unknown_at.push_back(i);
            }
        }
    }
    if (busy) return post(encode(request, Refused{PKV_ERR_BUSY, "too many fetches are under way"}));
    if (!unknown.empty()) { // without a lease: maybe it is still there
        std::vector<int8_t> found(unknown.size(), no_tier);
        service_->tiers.locate(unknown, false, found);
        for (size_t i = 0; i < found.size(); ++i) where[unknown_at[i]] = found[i];
    }
    for (size_t i = 0; i < fetch.ranges.size(); ++i) {
        const Range &range = fetch.ranges[i];
        Place &place = run->places.places[i];
        place.status = PKV_ERR_NOT_FOUND;
        if (where[i] == no_tier) continue;
        const bool aligned =
            range.bytes != 0 && range.bytes % PKV_IMAGE_ALIGNMENT == 0 && range.offset % PKV_IMAGE_ALIGNMENT == 0;
        place.status = PKV_ERR_INVALID;
        if (!aligned) continue;
        place.status = PKV_ERR_BUSY;
        if (room == 0 || !service_->exports.take(range.bytes, place.offset)) continue;
        --room;
        run->bytes[i] = range.bytes;
        place.status = PKV_OK;
        run->open.fetch_add(1, std::memory_order_relaxed);
        // The place is given back by end_fetch() or a release, never before this load has ended; no owner is needed for it.
        const std::shared_ptr<std::byte> memory(service_->exports.at(place.offset),
                                                [keep = service_](std::byte *) { (void)keep; });
        service_->tiers.begin_load(
            static_cast<uint32_t>(where[i]), range.key, range.offset, range.bytes, memory, fetch.urgent,
            monotonic_ns() + service_->timeout_ns,
            [run, i, bytes = range.bytes, key = range.key, promote = whole[i] == range.bytes](Request &ended) {
                pkv_status status = ended.status(0);
                if (status == PKV_OK && ended.value(0) != bytes) status = PKV_ERR_IO;
                Place &to = run->places.places[i];
                if (status != PKV_OK) to.status = status;
                ended.tier().note_load(status, status == PKV_OK ? bytes : 0); // readers check what it is
                Service &service = *run->guest->service_;
                if (status == PKV_OK && promote)
                    service.promotion.offer(service.tiers, key, service.exports.at(to.offset), bytes, service.counters);
                if (run->open.fetch_sub(1, std::memory_order_acq_rel) == 1) run->guest->end_fetch(*run);
            });
    }
    if (run->open.fetch_sub(1, std::memory_order_acq_rel) == 1) end_fetch(*run);
}

void Guest::end_fetch(FetchRun &run) {
    {
        const std::lock_guard lock(mutex_);
        const uint64_t until = monotonic_ns() + service_->lease_ns;
        for (size_t i = 0; i < run.bytes.size(); ++i) {
            Place &place = run.places.places[i];
            if (run.bytes[i] == 0) continue;
            if (place.status != PKV_OK || ending_) {
                service_->exports.give_back(place.offset, run.bytes[i]);
                place.offset = 0;
                continue;
            }
            place.ticket = next_ticket_++;
            tickets_.emplace(place.ticket, Ticket{place.offset, run.bytes[i], until});
            service_->counters->bytes_served.fetch_add(run.bytes[i], std::memory_order_relaxed);
        }
        service_->counters->fetches_served.fetch_add(run.bytes.size(), std::memory_order_relaxed);
    }
    post(encode(run.request, run.places));
    const std::lock_guard lock(mutex_);
    --open_fetches_;
}

} // namespace pkv::node
