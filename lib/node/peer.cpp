// SPDX-License-Identifier: Apache-2.0
#include "node/peer.h"

#include "core/clock.h"
#include "core/wait.h"
#include "node/guest.h"

#include <algorithm>
#include <chrono>

namespace pkv::node {
namespace {

constexpr uint64_t tick_ns = 200'000'000;
constexpr uint64_t first_pause_ns = 100'000'000; // between two tries to connect; doubled each time
constexpr uint64_t longest_pause_ns = 10'000'000'000;
constexpr uint64_t full_pause_ns = 2'000'000; // the other side had no room
constexpr uint64_t send_ns = 2'000'000'000;
constexpr size_t most_ranges = 64;    // of a fetch
constexpr size_t many_released = 512; // leases: fewer are told of now and then
constexpr uint64_t released_ns = 50'000'000;
constexpr uint64_t most_ahead =
    16 << 20; // bytes of reads in place that nobody waits for: one who does is not far behind them
constexpr uint64_t longest_idle_ns = 30'000'000'000; // of a connection that is made for one use

/// Over a fabric of sockets nothing arrives when one of two hosts names itself.
pkv_status check_reach(const Channel &channel, const std::string &ours, const std::string &theirs) {
    const bool here = is_own_name(ours);
    if ((!here && !is_own_name(theirs)) || !channel.leaves_host()) return PKV_OK;
    return fail(PKV_ERR_MISMATCH,
                "the fabric of %s node is at an address that others do not reach (loopback, or a wildcard): "
                "fabric_host of its options has to be one of its host's",
                here ? "this" : "the other");
}

} // namespace

Peer::Peer(std::shared_ptr<Reader> reader, std::string address, bool once)
    : reader_(std::move(reader)), address_(std::move(address)), once_(once) {}

Peer::~Peer() { stop(); }

void Peer::start() {
    thread_ = std::thread([this] { run(); });
}

void Peer::begin_stop() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
        if (channel_ != nullptr) channel_->shut_down();
    }
    changed_.notify_all();
}

void Peer::stop() {
    begin_stop();
    if (thread_.joinable()) thread_.join();
}

std::string Peer::name() const {
    const std::lock_guard lock(mutex_);
    return theirs_.name;
}

std::array<uint8_t, 16> Peer::incarnation() const {
    const std::lock_guard lock(mutex_);
    return theirs_.incarnation;
}

pkv_status Peer::last_status(std::string &why) const {
    const std::lock_guard lock(mutex_);
    why = why_;
    return connected() ? PKV_OK : status_;
}

pkv_status Peer::wait_connected(uint64_t deadline_ns) {
    std::unique_lock lock(mutex_);
    const bool done = wait_until(changed_, lock, deadline_ns, [this] {
        return stop_ || connected() || over() || status_ == PKV_ERR_MISMATCH || status_ == PKV_ERR_INVALID;
    });
    if (connected()) return PKV_OK;
    if (done && !stop_) return fail(status_, "%s: %s", address_.c_str(), why_.c_str());
    return fail(PKV_ERR_TIMEOUT, "%s is not connected: %s", address_.c_str(), why_.c_str());
}

// ---- the connection

void Peer::run() {
    uint64_t pause = first_pause_ns;
    for (;;) {
        const pkv_status status = connect();
        if (status == PKV_OK) {
            pause = first_pause_ns;
            changed_.notify_all();
            if (on_change_) on_change_();
            serve();
            end_connection();
            reader_->counters->reconnects.fetch_add(1, std::memory_order_relaxed);
        } else {
            char why[256] = "";
            copy_last_error(why, sizeof why);
            {
                const std::lock_guard lock(mutex_);
                status_ = status;
                why_ = why;
            }
            changed_.notify_all();
        }
        if (on_change_) on_change_();
        std::unique_lock lock(mutex_);
        if (once_) {
            over_.store(true, std::memory_order_release);
            changed_.notify_all();
            return;
        }
        wait_until(changed_, lock, monotonic_ns() + pause, [this] { return stop_; });
        if (stop_) break;
        pause = std::min(2 * pause, longest_pause_ns);
    }
    ended_.store(true, std::memory_order_release);
}

pkv_status Peer::connect() {
    const uint64_t deadline = monotonic_ns() + reader_->timeout_ns;
    std::unique_ptr<Channel> fresh;
    PKV_TRY(Channel::connect(address_, reader_->key, deadline, fresh));
    const std::shared_ptr<Channel> channel = std::move(fresh);
    std::shared_ptr<Endpoint> endpoint;
    PKV_TRY(Endpoint::open(reader_->fabric, endpoint));
    Hello ours = reader_->hello;
    ours.endpoint = endpoint->name();
    PKV_TRY(channel->send(encode(0, ours), deadline));
    std::vector<std::byte> message;
    pkv_status status = channel->receive(message, deadline);
    if (status == PKV_ERR_CLOSED)
        status = fail(PKV_ERR_MISMATCH, "the other side has closed the connection: another cluster key?");
    PKV_TRY(status);
    Head head;
    Hello theirs;
    Refused refused;
    if (decode_head(message, head) && head.kind == Kind::refused && decode(message, refused))
        return fail(PKV_ERR_MISMATCH, "refused: %s", refused.why.c_str());
    if (head.kind != Kind::hello || !decode(message, theirs))
        return fail(PKV_ERR_MISMATCH, "the other side's first message is no hello");
    PKV_TRY(compare_hellos(reader_->hello, theirs));
    PKV_TRY(check_reach(*channel, endpoint->name(), theirs.endpoint));
    PKV_TRY(endpoint->connect(theirs.endpoint, theirs.windows));
    const uint64_t room = theirs.room;
    const std::lock_guard lock(mutex_);
    if (stop_) return fail(PKV_ERR_CLOSED, "the node is being closed");
    channel_ = channel;
    endpoint_ = std::move(endpoint);
    theirs_ = std::move(theirs);
    room_ = room / 2; // others read there, too
    in_flight_ = in_place_in_flight_ = 0;
    connection_.fetch_add(1, std::memory_order_acq_rel);
    connected_.store(true, std::memory_order_release);
    return PKV_OK;
}

/// Takes answers until the connection ends.
void Peer::serve() {
    std::vector<std::byte> message;
    std::shared_ptr<Channel> channel;
    {
        const std::lock_guard lock(mutex_);
        channel = channel_;
    }
    uint64_t told_ns = 0;
    for (;;) {
        const pkv_status status = channel->receive(message, next_deadline());
        if (status != PKV_OK && status != PKV_ERR_TIMEOUT) return;
        if (status == PKV_OK) {
            Head head;
            if (!decode_head(message, head)) return;
            std::function<void(pkv_status, Kind, std::span<const std::byte>)> done;
            {
                const std::lock_guard lock(mutex_);
                const auto at = calls_.find(head.request);
                if (at != calls_.end()) {
                    done = std::move(at->second.done);
                    calls_.erase(at);
                }
            }
            if (done) done(PKV_OK, head.kind, message);
        }
        const uint64_t now = monotonic_ns();
        sweep(now);
        pump();
        if (now >= told_ns + released_ns) {
            tell_released(true);
            told_ns = now;
        }
        if (once_ && idle(monotonic_ns())) return;
    }
}

/// Whether nobody has used the connection for a while. Looked at now and then, which is enough.
bool Peer::idle(uint64_t now) {
    if (users_.load(std::memory_order_relaxed) != 0) {
        idle_since_ns_ = 0;
        return false;
    }
    if (idle_since_ns_ == 0) idle_since_ns_ = now;
    return now - idle_since_ns_ > longest_idle_ns;
}

uint64_t Peer::next_deadline() {
    const std::lock_guard lock(mutex_);
    uint64_t first = monotonic_ns() + tick_ns;
    for (const auto &[request, call] : calls_) first = std::min(first, call.deadline_ns);
    if (pump_at_ns_ != 0 && (!urgent_.empty() || !waiting_.empty())) first = std::min(first, pump_at_ns_);
    return first;
}

/// Ends calls, and reads that were not sent, whose time is over.
void Peer::sweep(uint64_t now) {
    std::vector<Call> late;
    std::vector<RangeRead> unsent;
    {
        const std::lock_guard lock(mutex_);
        for (auto at = calls_.begin(); at != calls_.end();) {
            if (now < at->second.deadline_ns) {
                ++at;
                continue;
            }
            late.push_back(std::move(at->second));
            at = calls_.erase(at);
        }
        for (auto *queue : {&urgent_, &waiting_, &in_place_})
            std::erase_if(*queue, [&](RangeRead &item) {
                if (now < item.deadline_ns) return false;
                unsent.push_back(std::move(item));
                return true;
            });
    }
    for (Call &call : late) {
        reader_->counters->late_answers.fetch_add(1, std::memory_order_relaxed);
        call.done(PKV_ERR_TIMEOUT, Kind::refused, {});
    }
    for (RangeRead &item : unsent) item.done(PKV_ERR_TIMEOUT);
}

/// The endpoint goes first: memory of reads that failed is in use until then.
void Peer::end_connection() {
    std::shared_ptr<Endpoint> endpoint;
    std::map<uint64_t, Call> calls;
    std::deque<RangeRead> reads;
    {
        const std::lock_guard lock(mutex_);
        connected_.store(false, std::memory_order_release);
        if (status_ == PKV_OK || status_ == PKV_ERR_AGAIN) status_ = PKV_ERR_IO;
        why_ = "the connection has ended";
        channel_->shut_down();
        channel_ = nullptr;
        endpoint = endpoint_;
        calls.swap(calls_);
        for (auto *queue : {&urgent_, &waiting_, &in_place_}) {
            std::move(queue->begin(), queue->end(), std::back_inserter(reads));
            queue->clear();
        }
        tickets_.clear();
        released_.clear();
        pump_at_ns_ = 0;
    }
    for (auto &[request, call] : calls) call.done(PKV_ERR_IO, Kind::refused, {});
    endpoint->close();
    std::vector<std::function<void()>> ends;
    {
        const std::lock_guard lock(mutex_);
        endpoint_ = nullptr;
        ends.swap(after_close_);
    }
    for (const auto &end : ends) end();
    for (RangeRead &item : reads) item.done(PKV_ERR_IO);
}

// ---- calls

bool Peer::send(uint64_t request, Call call, std::vector<std::byte> message) {
    std::shared_ptr<Channel> channel;
    {
        const std::lock_guard lock(mutex_);
        if (channel_ == nullptr) return false;
        channel = channel_;
        if (call.done) calls_.emplace(request, std::move(call));
    }
    // A failure ends the connection, and with it the call.
    (void)channel->send(message, monotonic_ns() + send_ns);
    return true;
}

bool Peer::look_up(std::span<const pkv_tier_key> keys, bool pin, uint64_t deadline_ns,
                   std::function<void(pkv_status, const Found &)> done) {
    uint64_t request = 0;
    {
        const std::lock_guard lock(mutex_);
        request = next_request_++;
    }
    const size_t count = keys.size();
    Call call{
        deadline_ns, [done = std::move(done), count](pkv_status status, Kind kind, std::span<const std::byte> message) {
            Found found;
            if (status == PKV_OK && (kind != Kind::found || !decode(message, found) || found.bytes.size() != count))
                status = PKV_ERR_IO;
            done(status, found);
        }};
    return send(request, std::move(call), encode(request, Lookup{pin, {keys.begin(), keys.end()}}));
}

bool Peer::ask(const std::function<std::vector<std::byte>(uint64_t)> &message, uint64_t deadline_ns, Answer answer) {
    uint64_t request = 0;
    {
        const std::lock_guard lock(mutex_);
        request = next_request_++;
    }
    return send(request, Call{deadline_ns, std::move(answer)}, message(request));
}

void Peer::tell(std::vector<std::byte> message) { send(0, {}, std::move(message)); }

void Peer::give_back(std::vector<uint64_t> tickets) {
    if (tickets.empty()) return;
    {
        const std::lock_guard lock(mutex_);
        tickets_.insert(tickets_.end(), tickets.begin(), tickets.end());
    }
    pump();
}

Hello Peer::theirs() const {
    const std::lock_guard lock(mutex_);
    return theirs_;
}

void Peer::read_place(RangeRead item, const Place &place) {
    {
        const std::lock_guard lock(mutex_);
        in_flight_ += item.range.bytes;
        item.counted = true;
    }
    begin_read(std::move(item), place);
}

void Peer::release(std::span<const pkv_tier_key> keys) {
    if (keys.empty()) return;
    {
        const std::lock_guard lock(mutex_);
        if (channel_ == nullptr) return; // with the connection they have ended
        released_.insert(released_.end(), keys.begin(), keys.end());
    }
    tell_released(false);
}

/// `all`: also few.
void Peer::tell_released(bool all) {
    for (;;) {
        Release release;
        {
            const std::lock_guard lock(mutex_);
            if (released_.empty() || (!all && released_.size() < many_released)) return;
            const size_t count = std::min<size_t>(released_.size(), most_items);
            release.keys.assign(released_.end() - static_cast<ptrdiff_t>(count), released_.end());
            released_.resize(released_.size() - count);
        }
        send(0, {}, encode(0, release));
    }
}

bool Peer::read(RangeRead item) {
    {
        const std::lock_guard lock(mutex_);
        if (channel_ == nullptr) return false;
        if (item.place == no_place) {
            (item.urgent ? urgent_ : waiting_).push_back(std::move(item));
        } else {
            if (item.connection != connection()) return false;
            item.urgent ? in_place_.push_front(std::move(item)) : in_place_.push_back(std::move(item));
        }
    }
    begin_in_place();
    pump();
    return true;
}

uint64_t Peer::lease_ns() const {
    const std::lock_guard lock(mutex_);
    return theirs_.lease_ns;
}

/// Of reads in place: under the mutex.
bool Peer::may_begin(const RangeRead &item) const {
    return item.urgent || in_place_in_flight_ == 0 || in_place_in_flight_ + item.range.bytes <= most_ahead;
}

/// Begins the reads in place that may begin; those that somebody waits for stand before the others.
void Peer::begin_in_place() {
    for (;;) {
        RangeRead item;
        {
            const std::lock_guard lock(mutex_);
            if (in_place_.empty() || !may_begin(in_place_.front())) return;
            item = std::move(in_place_.front());
            in_place_.pop_front();
            in_place_in_flight_ += item.range.bytes;
        }
        const Place place{PKV_OK, 0, item.place + item.range.offset};
        begin_read(std::move(item), place);
    }
}

/// What is not in flight any more: under the mutex.
void Peer::let_go(RangeRead &item) {
    if (item.counted) in_flight_ -= std::min(in_flight_, item.range.bytes);
    if (item.place != no_place) in_place_in_flight_ -= std::min(in_place_in_flight_, item.range.bytes);
    item.counted = false;
}

void Peer::cancel_reads(const void *owner) {
    std::vector<RangeRead> cancelled;
    {
        const std::lock_guard lock(mutex_);
        for (auto *queue : {&urgent_, &waiting_, &in_place_})
            std::erase_if(*queue, [&](RangeRead &item) {
                if (item.owner != owner) return false;
                cancelled.push_back(std::move(item));
                return true;
            });
    }
    for (RangeRead &item : cancelled) item.done(PKV_ERR_CANCELLED);
}

/// Sends fetches for what waits, as far as the other side should have room.
void Peer::pump() {
    for (;;) {
        {
            const std::lock_guard lock(mutex_);
            if (urgent_.empty() && waiting_.empty() && tickets_.empty()) return;
        }
        auto sent = std::make_shared<Sent>();
        uint64_t request = 0, deadline = no_deadline;
        Fetch fetch;
        std::vector<uint64_t> tickets;
        {
            const std::lock_guard lock(mutex_);
            if (channel_ == nullptr) return;
            if (monotonic_ns() >= pump_at_ns_) {
                pump_at_ns_ = 0;
                for (auto *queue : {&urgent_, &waiting_}) {
                    if (!sent->items.empty()) break;
                    while (!queue->empty() && sent->items.size() < most_ranges) {
                        const uint64_t bytes = queue->front().range.bytes;
                        if (in_flight_ != 0 && in_flight_ + bytes > room_) break;
                        in_flight_ += bytes;
                        queue->front().counted = true;
                        deadline = std::min(deadline, queue->front().deadline_ns);
                        fetch.urgent = queue->front().urgent;
                        fetch.ranges.push_back(queue->front().range);
                        sent->items.push_back(std::move(queue->front()));
                        queue->pop_front();
                    }
                }
            }
            tickets.swap(tickets_);
            if (!sent->items.empty()) request = next_request_++;
        }
        while (!tickets.empty()) { // places that were read: one message for many
            const size_t count = std::min<size_t>(tickets.size(), most_items);
            Release release;
            release.tickets.assign(tickets.end() - static_cast<ptrdiff_t>(count), tickets.end());
            tickets.resize(tickets.size() - count);
            send(0, {}, encode(0, release));
        }
        if (sent->items.empty()) return;
        Call call{deadline,
                  [self = weak_from_this(), sent](pkv_status status, Kind kind, std::span<const std::byte> message) {
                      if (const auto peer = self.lock()) peer->take_places(sent, status, kind, message);
                  }};
        if (!send(request, std::move(call), encode(request, fetch)))
            for (RangeRead &item : sent->items) fail_item(std::move(item), PKV_ERR_IO);
    }
}

void Peer::fail_item(RangeRead item, pkv_status status) {
    {
        const std::lock_guard lock(mutex_);
        let_go(item);
    }
    reader_->counters->failed_reads.fetch_add(1, std::memory_order_relaxed);
    item.done(status);
}

void Peer::take_places(std::shared_ptr<Sent> sent, pkv_status status, Kind kind, std::span<const std::byte> message) {
    Places places;
    Refused refused;
    if (status == PKV_OK && kind == Kind::refused) {
        status = decode(message, refused) && refused.status == PKV_ERR_BUSY ? PKV_ERR_BUSY : PKV_ERR_IO;
    } else if (status == PKV_OK &&
               (kind != Kind::places || !decode(message, places) || places.places.size() != sent->items.size())) {
        status = PKV_ERR_IO;
    }
    for (size_t i = 0; i < sent->items.size(); ++i) {
        RangeRead &item = sent->items[i];
        const pkv_status at = status != PKV_OK ? status : places.places[i].status;
        if (at == PKV_ERR_BUSY) { // no room there: again, a little later
            const std::lock_guard lock(mutex_);
            let_go(item);
            pump_at_ns_ = monotonic_ns() + full_pause_ns;
            (item.urgent ? urgent_ : waiting_).push_front(std::move(item));
        } else if (at != PKV_OK) {
            fail_item(std::move(item), at);
        } else {
            begin_read(std::move(item), places.places[i]);
        }
    }
}

void Peer::begin_read(RangeRead item, const Place &place) {
    std::shared_ptr<Endpoint> endpoint;
    {
        const std::lock_guard lock(mutex_);
        endpoint = endpoint_;
    }
    if (endpoint == nullptr) return fail_item(std::move(item), PKV_ERR_IO);
    if (endpoint->copies()) {
        const pkv_status status =
            endpoint->copy(item.target, item.data, item.range.bytes, place.offset, item.deadline_ns);
        return end_copy(std::move(item), status, place.ticket);
    }
    const auto shared = std::make_shared<RangeRead>(std::move(item));
    const pkv_status status =
        endpoint->read(shared->target, shared->data, shared->range.bytes, place.offset, shared->deadline_ns,
                       [self = shared_from_this(), shared, ticket = place.ticket](pkv_status ended, int32_t) {
                           self->end_read(*shared, ended, ticket);
                       });
    if (status != PKV_OK) fail_item(std::move(*shared), PKV_ERR_IO);
}

/// Of a read that was made at once: nothing arrives later, and whoever began it goes on.
void Peer::end_copy(RangeRead item, pkv_status status, uint64_t ticket) {
    if (status != PKV_OK) return fail_item(std::move(item), status == PKV_ERR_TIMEOUT ? PKV_ERR_TIMEOUT : PKV_ERR_IO);
    {
        const std::lock_guard lock(mutex_);
        let_go(item);
        if (ticket != 0) tickets_.push_back(ticket);
    }
    reader_->counters->reads.fetch_add(1, std::memory_order_relaxed);
    reader_->counters->bytes_read.fetch_add(item.range.bytes, std::memory_order_relaxed);
    item.done(PKV_OK);
}

/// On a thread of the fabric's. After a failure the memory may still be written to: the item ends when the endpoint has been
/// closed, which the end of the connection does.
void Peer::end_read(RangeRead &item, pkv_status status, uint64_t ticket) {
    {
        const std::lock_guard lock(mutex_);
        let_go(item);
        if (status == PKV_OK) {
            if (ticket != 0) tickets_.push_back(ticket); // none for what was read in place
        } else {
            reader_->counters->failed_reads.fetch_add(1, std::memory_order_relaxed);
            const pkv_status ended = status == PKV_ERR_TIMEOUT ? PKV_ERR_TIMEOUT : PKV_ERR_IO;
            after_close_.push_back([done = std::move(item.done), ended] { done(ended); });
            if (channel_ != nullptr) channel_->shut_down();
            return;
        }
    }
    reader_->counters->reads.fetch_add(1, std::memory_order_relaxed);
    reader_->counters->bytes_read.fetch_add(item.range.bytes, std::memory_order_relaxed);
    item.done(PKV_OK);
    begin_in_place();
    pump();
}

} // namespace pkv::node
