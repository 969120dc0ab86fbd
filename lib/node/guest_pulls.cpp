// SPDX-License-Identifier: Apache-2.0
// What a guest pulls of the sequences that are offered: it asks how far they are, and for pieces of them, which are packed
// where it reads them.
#include "node/guest.h"

#include "core/checksum.h"
#include "core/clock.h"

#include <algorithm>
#include <new>

namespace pkv::node {
namespace {

constexpr size_t most_pulls = 1024; // of one guest
constexpr uint64_t longest_watch_ns = 10'000'000'000;

std::string last_error() {
    char why[longest_name] = "";
    copy_last_error(why, sizeof why);
    return why;
}

} // namespace

/// True for a message of this kind that was understood.
bool Guest::handle_pull(const Head &head, std::span<const std::byte> message) try {
    Open open;
    Watch watch;
    Pieces pieces;
    Finish finish;
    if (head.kind == Kind::open && decode(message, open)) {
        begin_pull(head.request, open);
    } else if (head.kind == Kind::watch && decode(message, watch)) {
        watch_pull(head.request, watch);
    } else if (head.kind == Kind::pieces && decode(message, pieces)) {
        pack_pieces(head.request, pieces);
    } else if (head.kind == Kind::finish && decode(message, finish)) {
        end_pull(finish.pull, finish.status == PKV_OK ? PKV_OK : PKV_ERR_IO);
    } else {
        return false;
    }
    return true;
} catch (const std::bad_alloc &) {
    return false; // ends the connection, and not the process
}

void Guest::refuse(uint64_t request, pkv_status status) { post(encode(request, Refused{status, last_error()})); }

void Guest::begin_pull(uint64_t request, const Open &open) {
    const std::shared_ptr<Offered> offered = service_->offers.find(open.offer);
    if (offered == nullptr)
        return refuse(request, fail(PKV_ERR_NOT_FOUND,
                                    "there is no such offer: it has expired, was withdrawn or pulled, or never was"));
    Opened opened;
    {
        const std::lock_guard lock(mutex_);
        if (pulls_.size() >= most_pulls) opened.pull = UINT64_MAX;
    }
    if (opened.pull != 0)
        return refuse(request, fail(PKV_ERR_BUSY, "%zu sequences are being pulled over this connection", most_pulls));
    if (const pkv_status status = offered->begin_pull(); status != PKV_OK) return refuse(request, status);
    const Offered::Terms terms = offered->terms();
    const uint64_t now = monotonic_ns();
    {
        const std::lock_guard lock(mutex_);
        opened.pull = next_pull_++;
        pulls_.emplace(opened.pull, Pull{offered, std::make_shared<std::atomic<bool>>(false)});
    }
    opened.left_ns = terms.until_ns > now ? terms.until_ns - now : 0;
    opened.num_tokens = terms.num_tokens;
    opened.front_bytes = terms.front_bytes;
    opened.geometry = terms.geometry;
    post(encode(request, opened));
}

Guest::Pull Guest::find_pull(uint64_t number) const {
    const std::lock_guard lock(mutex_);
    const auto at = pulls_.find(number);
    if (at != pulls_.end()) return at->second;
    fail(PKV_ERR_NOT_FOUND, "no pull has the number %llu", static_cast<unsigned long long>(number));
    return {};
}

void Guest::watch_pull(uint64_t request, const Watch &watch) {
    const Pull pull = find_pull(watch.pull);
    if (pull.offered == nullptr) return refuse(request, PKV_ERR_NOT_FOUND);
    if (pull.watched->exchange(true)) return refuse(request, fail(PKV_ERR_BUSY, "the pull is being watched already"));
    const uint64_t until = monotonic_ns() + std::min(watch.wait_ns, longest_watch_ns);
    pull.offered->watch(
        watch.version, until,
        [self = weak_from_this(), request, watched = pull.watched](pkv_status status, const Progress &progress) {
            watched->store(false);
            const auto guest = self.lock();
            if (guest == nullptr) return;
            if (status == PKV_OK) return guest->post(encode(request, progress));
            guest->refuse(request, status);
        });
}

void Guest::pack_pieces(uint64_t request, const Pieces &asked) {
    const Pull pull = find_pull(asked.pull);
    if (pull.offered == nullptr) return refuse(request, PKV_ERR_NOT_FOUND);
    Packed packed;
    packed.pieces.resize(asked.pieces.size());
    for (size_t i = 0; i < asked.pieces.size(); ++i) {
        PackedPiece &to = packed.pieces[i];
        to.place.status = pull.offered->measure(asked.pieces[i], to.bytes);
        if (to.place.status == PKV_OK) to.place.status = take_place(asked.pull, to.bytes, to.place);
        if (to.place.status != PKV_OK) continue;
        std::byte *const out = service_->exports.at(to.place.offset);
        to.place.status = pull.offered->pack(asked.pieces[i], out);
        if (to.place.status != PKV_OK) {
            Release back;
            back.tickets.push_back(to.place.ticket);
            take_back(back);
            to.place.ticket = to.place.offset = 0;
            continue;
        }
        to.sum = checksum64({out, to.bytes});
        service_->counters->handed_bytes.fetch_add(to.bytes, std::memory_order_relaxed);
    }
    // An offer that has ended has nothing more to give: one answer says it, with the reason.
    for (const PackedPiece &piece : packed.pieces)
        if (piece.place.status != PKV_OK && piece.place.status != PKV_ERR_BUSY && piece.place.status != PKV_ERR_AGAIN) {
            const std::string why = last_error();
            Release back;
            for (const PackedPiece &other : packed.pieces)
                if (other.place.ticket != 0) back.tickets.push_back(other.place.ticket);
            take_back(back);
            return post(encode(request, Refused{piece.place.status, why}));
        }
    post(encode(request, packed));
}

/// A place where the guest may read. PKV_ERR_BUSY: there is no room.
pkv_status Guest::take_place(uint64_t pull, uint64_t bytes, Place &place) {
    const std::lock_guard lock(mutex_);
    if (tickets_.size() >= service_->max_leases || !service_->exports.take(bytes, place.offset)) return PKV_ERR_BUSY;
    place.ticket = next_ticket_++;
    tickets_.emplace(place.ticket, Ticket{place.offset, bytes, monotonic_ns() + service_->lease_ns, pull});
    return PKV_OK;
}

void Guest::end_pull(uint64_t number, pkv_status status) {
    Pull pull;
    {
        const std::lock_guard lock(mutex_);
        const auto at = pulls_.find(number);
        if (at == pulls_.end()) return;
        pull = std::move(at->second);
        pulls_.erase(at);
        // What is still being read may become something else: nobody looks at it any more.
        std::erase_if(tickets_, [&](const auto &item) {
            if (item.second.pull != number) return false;
            service_->exports.give_back(item.second.offset, item.second.bytes);
            return true;
        });
    }
    pull.offered->end_pull(status);
}

void Guest::end_pulls() {
    std::unordered_map<uint64_t, Pull> pulls;
    {
        const std::lock_guard lock(mutex_);
        pulls.swap(pulls_);
    }
    for (const auto &[number, pull] : pulls) pull.offered->end_pull(PKV_ERR_IO);
}

} // namespace pkv::node
