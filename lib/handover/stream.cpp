// SPDX-License-Identifier: Apache-2.0
#include "handover/pull.h"
#include "handover/rows.h"

#include "core/checksum.h"
#include "core/clock.h"

#include <algorithm>
#include <cinttypes>
#include <new>

namespace pkv::handover {
namespace {

constexpr uint64_t most_flying = 16;         // pieces of one pull
constexpr uint64_t least_flying = 2;         // from one giver
constexpr uint64_t message_bytes = 2u << 20; // that one request asks for: others can be read while these are packed
constexpr uint64_t watch_ns = 1'000'000'000;
constexpr uint32_t most_connections = 4; // to one giver
constexpr uint64_t connect_pause_ns = 50'000'000;

/// Places that nobody will read.
void give_back(const std::shared_ptr<node::Peer> &peer, std::span<const std::byte> message) {
    node::Packed packed;
    if (peer == nullptr || !decode(message, packed)) return;
    std::vector<uint64_t> tickets;
    for (const node::PackedPiece &piece : packed.pieces)
        if (piece.place.status == PKV_OK) tickets.push_back(piece.place.ticket);
    peer->give_back(std::move(tickets));
}

} // namespace

/// Tokens of a part that its giver has.
uint64_t Pull::ready_tokens(const Source &source, const Part &part) const {
    uint64_t index = part.their_layer;
    for (uint32_t group = 0; group < part.their_group; ++group) index += source.front.groups[group].num_layers;
    return index < source.progress.tokens.size() ? std::min(source.progress.tokens[index], source.front.num_tokens) : 0;
}

/// What is to be asked for next; false when nothing is, for now.
bool Pull::next_wanted(Source &source, Wanted &wanted) {
    if (!source.again.empty()) {
        if (monotonic_ns() < source.again_at_ns) return false;
        wanted = source.again.front();
        source.again.pop_front();
        return true;
    }
    for (size_t i = source.first_part; i < source.parts.size(); ++i) {
        const Part &part = parts_[source.parts[i]];
        PartState &state = states_[source.parts[i]];
        const auto &ranges = ranges_[part.group];
        if (state.range == ranges.size()) {
            if (i == source.first_part) ++source.first_part;
            continue;
        }
        const uint64_t end = std::min(ranges[state.range].end, ready_tokens(source, part));
        if (state.next >= end) continue;
        const uint64_t fit = source.piece_bytes / row_bytes(request_.pool->geometry(part.group), part.heads, 1);
        wanted = {source.parts[i], state.next, std::min(end - state.next, std::max<uint64_t>(fit, 1)), 0};
        state.next += wanted.count;
        if (state.next == ranges[state.range].end && ++state.range < ranges.size())
            state.next = ranges[state.range].begin;
        return true;
    }
    return false;
}

/// Asks for as much as is there and may fly.
pkv_status Pull::pump(Source &source) {
    if (source.broken) PKV_TRY(reopen(source));
    std::vector<uint64_t> numbers;
    uint64_t bytes = 0;
    while (source.flying.size() < share() && !source.broken) {
        std::shared_ptr<std::byte> slot = tools_->slots.take(0);
        starved_ = slot == nullptr;
        Wanted wanted;
        if (starved_ || !next_wanted(source, wanted)) break;
        const Part &part = parts_[wanted.part];
        const uint64_t number = source.next_number++;
        Flying &piece = source.flying[number];
        piece = {wanted, row_bytes(request_.pool->geometry(part.group), part.heads, wanted.count), 0, std::move(slot)};
        numbers.push_back(number);
        bytes += piece.bytes;
        if (bytes < message_bytes && numbers.size() < node::most_pieces) continue;
        ask_for(source, std::move(numbers));
        numbers.clear();
        bytes = 0;
    }
    if (!numbers.empty() && !source.broken) ask_for(source, std::move(numbers));
    watch(source);
    return PKV_OK;
}

/// Has the giver say when there is more, unless all of it is there.
void Pull::watch(Source &source) {
    if (source.watching || source.broken) return;
    const uint64_t num_tokens = source.front.num_tokens;
    const bool all = std::all_of(source.parts.begin(), source.parts.end(),
                                 [&](size_t i) { return ready_tokens(source, parts_[i]) == num_tokens; });
    if (all && source.progress.version != 0) return;
    const auto event = std::make_shared<Event>();
    event->run = [this, &source, connection = source.connection](Event &posted) {
        if (connection != source.connection) return;
        source.watching = false;
        node::Progress progress;
        if (posted.status == PKV_ERR_TIMEOUT) return; // the pull's time is over: check_going() says so
        if (posted.status != PKV_OK) {
            break_off(source);
        } else if (posted.kind == node::Kind::refused) {
            fault(refused(source, posted.message));
        } else if (posted.kind != node::Kind::progress || !decode(posted.message, progress) || progress.version == 0) {
            fault(fail(PKV_ERR_IO, "the giver at %s does not make sense (progress)", source.ticket.address.c_str()));
        } else {
            source.progress = std::move(progress);
        }
    };
    const node::Watch message{source.pull, source.progress.version, watch_ns};
    source.watching =
        source.link->ask([&](uint64_t request) { return encode(request, message); }, deadline_ns_,
                         [inbox = inbox_, event](pkv_status status, node::Kind kind, std::span<const std::byte> bytes) {
                             deliver(*inbox, event, status, kind, bytes);
                         });
    if (!source.watching) break_off(source);
}

void Pull::ask_for(Source &source, std::vector<uint64_t> numbers) {
    node::Pieces message;
    message.pull = source.pull;
    for (const uint64_t number : numbers) {
        const Wanted &wanted = source.flying[number].wanted;
        const Part &part = parts_[wanted.part];
        message.pieces.push_back(
            {part.their_group, part.their_layer, part.their_first_head, part.heads, wanted.first, wanted.count});
    }
    const auto event = std::make_shared<Event>();
    event->run = [this, &source, connection = source.connection, numbers](Event &posted) {
        if (connection == source.connection) take_packed(source, numbers, posted);
    };
    const bool asked =
        source.link->ask([&](uint64_t request) { return encode(request, message); }, deadline_ns_,
                         [inbox = inbox_, event, peer = std::weak_ptr(source.link.peer())](
                             pkv_status status, node::Kind kind, std::span<const std::byte> bytes) {
                             if (deliver(*inbox, event, status, kind, bytes) || kind != node::Kind::packed) return;
                             give_back(peer.lock(), bytes); // nobody waits any more
                         });
    if (!asked) break_off(source);
}

/// The pieces lie at the giver's, or do not.
void Pull::take_packed(Source &source, const std::vector<uint64_t> &numbers, Event &event) {
    const char *const address = source.ticket.address.c_str();
    node::Packed packed;
    if (event.status == PKV_ERR_TIMEOUT) return; // as above
    if (event.status != PKV_OK) return break_off(source);
    if (event.kind == node::Kind::refused) return fault(refused(source, event.message));
    if (event.kind != node::Kind::packed || !decode(event.message, packed) || packed.pieces.size() != numbers.size())
        return fault(fail(PKV_ERR_IO, "the giver at %s does not make sense (pieces)", address));
    for (size_t i = 0; i < numbers.size(); ++i) {
        const auto at = source.flying.find(numbers[i]);
        if (at == source.flying.end()) continue;
        Flying &piece = at->second;
        const node::PackedPiece &there = packed.pieces[i];
        if (there.place.status == PKV_ERR_BUSY || there.place.status == PKV_ERR_AGAIN) {
            const Wanted wanted = piece.wanted;
            source.flying.erase(at);
            put_back(source, wanted, full_pause_ns);
            continue;
        }
        if (there.place.status != PKV_OK || there.bytes != piece.bytes) {
            fault(fail(PKV_ERR_IO, "the giver at %s has %" PRIu64 " bytes of a piece of %" PRIu64 ": %s", address,
                       there.bytes, piece.bytes, status_name(there.place.status)));
            continue;
        }
        piece.sum = there.sum;
        const auto arrival = std::make_shared<Event>();
        arrival->run = [this, &source, connection = source.connection, number = numbers[i]](Event &posted) {
            if (connection == source.connection) take_arrival(source, number, posted.status);
        };
        node::RangeRead read;
        read.range.bytes = piece.bytes;
        read.data = piece.slot.get();
        read.target = tools_->slots.target();
        read.deadline_ns = deadline_ns_;
        read.done = [inbox = inbox_, arrival, slot = piece.slot](pkv_status status) {
            arrival->status = status;
            (void)inbox->post(arrival);
        };
        source.link->read_place(std::move(read), there.place);
    }
}

void Pull::take_arrival(Source &source, uint64_t number, pkv_status status) {
    const auto at = source.flying.find(number);
    if (at == source.flying.end()) return;
    if (status == PKV_ERR_TIMEOUT) return; // as above
    if (status != PKV_OK) return break_off(source);
    const Flying piece = std::move(at->second);
    source.flying.erase(at);
    if (checksum64({piece.slot.get(), piece.bytes}) == piece.sum) {
        source.tries = 0;
        return write(piece);
    }
    // Bytes of something else: the place was given to others before it was read, or somebody has spoiled them.
    Wanted wanted = piece.wanted;
    if (++wanted.tries == most_bad_pieces)
        return fault(fail(PKV_ERR_IO, "the bytes read from the giver at %s are not those that it packed, %u times",
                          source.ticket.address.c_str(), wanted.tries));
    tools_->counters->failed_reads.fetch_add(1, std::memory_order_relaxed);
    put_back(source, wanted, 0);
}

void Pull::write(const Flying &piece) {
    const Part &part = parts_[piece.wanted.part];
    const Pool &pool = *request_.pool;
    const uint64_t first = piece.wanted.first / pool.page_tokens();
    const uint64_t end = (piece.wanted.first + piece.wanted.count - 1) / pool.page_tokens() + 1;
    {
        const Pool::BytesInUse in_use(pool);
        if (pool.closed()) return; // check_going() says so
        write_rows(pool, {part.group, part.layer, part.first_head, part.heads, piece.wanted.first, piece.wanted.count},
                   table_->pages(part.group).subspan(first, end - first), piece.slot.get());
    }
    tools_->counters->pulled_bytes.fetch_add(piece.bytes, std::memory_order_relaxed);
    PartState &state = states_[piece.wanted.part];
    state.left -= piece.wanted.count;
    if (state.left == 0) part_arrived(part);
}

/// A layer whose parts are all there has ended; the last one does so with the pull.
void Pull::part_arrived(const Part &part) {
    --parts_left_;
    const uint64_t item = first_item_[part.group] + part.layer;
    if (--layer_parts_[item] != 0) return;
    if (parts_left_ != 0) op_->end_item(item, PKV_OK);
}

void Pull::put_back(Source &source, Wanted wanted, uint64_t pause_ns) {
    if (pause_ns != 0) source.again_at_ns = monotonic_ns() + pause_ns;
    source.again.push_back(wanted);
}

/// What was on its way over a connection that has ended is asked for anew.
void Pull::break_off(Source &source) {
    source.broken = true;
    source.connection = 0;
    source.watching = false;
    for (auto &[number, piece] : source.flying) source.again.push_back(piece.wanted);
    source.flying.clear();
    source.again_at_ns = 0;
}

/// A connection in place of one that has ended.
pkv_status Pull::reopen(Source &source) {
    char why[256] = "connections to it end again and again";
    for (;;) {
        if (++source.tries == most_connections)
            return fail(PKV_ERR_IO, "the giver at %s is gone: %s", source.ticket.address.c_str(), why);
        if (source.tries > 1) PKV_TRY(take_event(monotonic_ns() + connect_pause_ns));
        const pkv_status status = open(source);
        const bool strangers = status == PKV_ERR_MISMATCH && source.link.peer() == nullptr && source.tries == 1;
        if (status != PKV_ERR_IO && !strangers) return status;
        copy_last_error(why, sizeof why);
    }
}

/// Pieces that may fly from one giver.
uint64_t Pull::share() const { return std::max(most_flying / sources_.size(), least_flying); }

/// When to look again, whatever happens.
uint64_t Pull::next_look() const {
    // Other pulls have all the slots; nobody says when one comes free.
    if (starved_) return monotonic_ns() + full_pause_ns;
    uint64_t at = UINT64_MAX;
    for (const Source &source : sources_) {
        if (source.broken) return 0;
        if (!source.again.empty() && source.flying.size() < share()) at = std::min(at, source.again_at_ns);
    }
    return at;
}

} // namespace pkv::handover
