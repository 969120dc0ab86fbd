// SPDX-License-Identifier: Apache-2.0
#include "handover/pull.h"

#include "core/checksum.h"
#include "core/clock.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <exception>
#include <new>

namespace pkv::handover {
namespace {

constexpr uint64_t look_ns = 200'000'000;

} // namespace

Pull::Pull(PullRequest request, std::shared_ptr<PullTools> tools, std::shared_ptr<Op> op)
    : request_(std::move(request)), tools_(std::move(tools)), op_(std::move(op)),
      deadline_ns_(deadline_after(request_.timeout_ns)), sources_(request_.tickets.size()),
      table_(Table::make(request_.pool)) {
    for (size_t i = 0; i < sources_.size(); ++i) sources_[i].ticket = request_.tickets[i];
    for (uint32_t group = 0; group < request_.pool->num_groups(); ++group) {
        first_item_[group] = static_cast<uint32_t>(layer_parts_.size());
        layer_parts_.resize(layer_parts_.size() + request_.pool->geometry(group).num_layers, 0);
    }
}

Pull::~Pull() { inbox_->close(); }

void Pull::stop(pkv_status why) {
    pkv_status going = PKV_OK;
    why_stopped_.compare_exchange_strong(going, why);
    inbox_->wake();
}

void Pull::run() {
    pkv_status status = PKV_ERR_INTERNAL;
    char why[512] = "";
    try {
        status = work();
        if (status != PKV_OK) copy_last_error(why, sizeof why);
    } catch (const std::bad_alloc &) {
        status = PKV_ERR_NO_MEMORY;
        std::strcpy(why, "out of memory");
    } catch (const std::exception &error) {
        std::snprintf(why, sizeof why, "unexpected: %s", error.what());
    }
    inbox_->close();
    for (Source &source : sources_) {
        if (source.pull != 0 && source.link.peer() != nullptr)
            source.link->tell(encode(0, node::Finish{source.pull, status == PKV_OK ? PKV_OK : PKV_ERR_IO}));
        source.link.reset();
    }
    sources_.clear(); // slots, as far as no late read has them
    end(status, why);
}

void Pull::end(pkv_status status, const std::string &why) {
    node::Counters &counters = *tools_->counters;
    (status == PKV_OK ? counters.pulls : counters.failed_pulls).fetch_add(1, std::memory_order_relaxed);
    try {
        if (status == PKV_OK)
            op_->leave(std::make_shared<PulledTable>(table_));
        else
            op_->explain(why);
    } catch (const std::bad_alloc &) {
        if (status == PKV_OK) status = PKV_ERR_NO_MEMORY;
    }
    table_ = nullptr; // of one that failed the pages are free before anybody hears of it
    op_->free_buffers();
    for (uint64_t item = 0; item < layer_parts_.size(); ++item) op_->end_item(item, status);
}

/// Whether to go on: nobody has stopped it, and there is time left.
pkv_status Pull::check_going() const {
    const pkv_status stopped = why_stopped_.load(std::memory_order_acquire);
    if (stopped != PKV_OK)
        return fail(stopped, stopped == PKV_ERR_CANCELLED ? "the pull was cancelled" : "the node is being closed");
    if (request_.pool->closed()) return fail(PKV_ERR_CLOSED, "the pool was destroyed");
    if (monotonic_ns() >= deadline_ns_)
        return fail(PKV_ERR_TIMEOUT,
                    "the sequence had not arrived after %" PRIu64 " ns: %" PRIu64 " of %zu parts were missing",
                    request_.timeout_ns, parts_left_, parts_.size());
    return PKV_OK;
}

/// Waits for something to happen until `until_ns`, and deals with it.
pkv_status Pull::take_event(uint64_t until_ns) {
    PKV_TRY(check_going());
    const uint64_t now = monotonic_ns();
    std::shared_ptr<Event> event = inbox_->take(std::min({until_ns, deadline_ns_, now + look_ns}));
    for (; event != nullptr; event = inbox_->take(0)) event->run(*event);
    if (failure_ != PKV_OK) return fail(failure_, "%s", why_.c_str());
    return check_going();
}

void Pull::fault(pkv_status status) {
    if (failure_ != PKV_OK) return;
    char why[512] = "";
    copy_last_error(why, sizeof why);
    failure_ = status;
    why_ = why;
}

// ---- the course

pkv_status Pull::work() {
    for (Source &source : sources_) {
        pkv_status status = open(source);
        // A connection of before, that had ended; or one that ended in the middle of its first words, maybe with its node.
        const bool again =
            source.link.peer() != nullptr ? status == PKV_ERR_IO && source.broken : status == PKV_ERR_MISMATCH;
        if (again) status = reopen(source);
        PKV_TRY(status);
        PKV_TRY(read_front(source));
    }
    PKV_TRY(agree());
    std::vector<Front> fronts;
    uint64_t piece_bytes = Slots::slot_bytes;
    for (Source &source : sources_) {
        fronts.push_back(std::move(source.front));
        piece_bytes = std::min(piece_bytes, source.piece_bytes);
    }
    PKV_TRY(plan_parts(*request_.pool, fronts, request_.groups, piece_bytes, parts_));
    PKV_TRY(check_windows(*request_.pool, fronts, parts_));
    for (size_t i = 0; i < sources_.size(); ++i) sources_[i].front = std::move(fronts[i]);
    PKV_TRY(begin_table());
    while (parts_left_ != 0) {
        for (Source &source : sources_) PKV_TRY(pump(source));
        PKV_TRY(take_event(next_look()));
    }
    return finish();
}

pkv_status Pull::refused(const Source &source, std::span<const std::byte> message) const {
    node::Refused refused;
    const char *const address = source.ticket.address.c_str();
    if (!decode(message, refused)) return fail(PKV_ERR_IO, "the giver at %s does not make sense", address);
    pkv_status status = refused.status < 0 && refused.status >= PKV_ERR_INTERNAL ? refused.status : PKV_ERR_IO;
    if (status == PKV_ERR_STATE || status == PKV_ERR_CLOSED) status = PKV_ERR_NOT_FOUND; // there was an offer
    return fail(status, "the giver at %s: %s", address, refused.why.c_str());
}

/// Asks, and waits for the answer, which has to be of a kind. PKV_ERR_IO with source.broken: the connection has ended.
pkv_status Pull::ask(Source &source, const std::function<std::vector<std::byte>(uint64_t)> &message, node::Kind kind,
                     const char *what, std::vector<std::byte> &answer) {
    struct Box {
        bool there = false;
        pkv_status status = PKV_OK;
        node::Kind kind{};
        std::vector<std::byte> message;
    };
    const auto box = std::make_shared<Box>();
    const auto event = std::make_shared<Event>();
    event->run = [box](Event &posted) {
        box->there = true;
        box->status = posted.status;
        box->kind = posted.kind;
        box->message = std::move(posted.message);
    };
    const char *const address = source.ticket.address.c_str();
    const auto answered = [inbox = inbox_, event](pkv_status status, node::Kind of, std::span<const std::byte> bytes) {
        (void)deliver(*inbox, event, status, of, bytes);
    };
    if (!source.link->ask(message, deadline_ns_, answered)) {
        source.broken = true;
        return fail(PKV_ERR_IO, "the connection to the giver at %s has ended", address);
    }
    while (!box->there) PKV_TRY(take_event(deadline_ns_));
    if (box->status == PKV_ERR_TIMEOUT)
        return fail(PKV_ERR_TIMEOUT, "the giver at %s has not answered (%s)", address, what);
    if (box->status == PKV_ERR_NO_MEMORY) return fail(PKV_ERR_NO_MEMORY, "no memory for an answer of the giver's");
    if (box->status != PKV_OK) {
        source.broken = true;
        return fail(PKV_ERR_IO, "the connection to the giver at %s has ended (%s)", address, what);
    }
    if (box->kind == node::Kind::refused) return refused(source, box->message);
    if (box->kind != kind) return fail(PKV_ERR_IO, "the giver at %s does not make sense (%s)", address, what);
    answer = std::move(box->message);
    return PKV_OK;
}

/// Connects to a giver and opens its offer there.
pkv_status Pull::open(Source &source) {
    source.broken = false;
    source.pull = 0;
    source.connection = ++connections_;
    source.watching = false;
    source.progress.version = 0; // of the connection before: asked for anew
    source.link.reset();
    const char *const address = source.ticket.address.c_str();
    const pkv_status status = tools_->links.get(
        source.ticket.address, std::min(deadline_ns_, monotonic_ns() + tools_->timeout_ns),
        [this] { return stopped(); }, source.link);
    PKV_TRY(check_going());
    if (status == PKV_ERR_NOT_FOUND) { // its process is, whose memory was to be read
        char why[256] = "";
        copy_last_error(why, sizeof why);
        return fail(PKV_ERR_IO, "the giver at %s is gone: %s", address, why);
    }
    PKV_TRY(status);
    const node::Hello theirs = source.link->theirs();
    if (theirs.incarnation != source.ticket.incarnation)
        return fail(PKV_ERR_NOT_FOUND, "the node at %s is not the one that gave the ticket, or was started again since",
                    address);
    uint64_t room = 0;
    for (const node::Window &window : theirs.windows) room += std::min(window.bytes, Slots::slot_bytes * Slots::slots);
    source.piece_bytes = std::min(Slots::slot_bytes, room / 4);
    std::vector<std::byte> answer;
    PKV_TRY(ask(
        source, [&](uint64_t request) { return encode(request, node::Open{source.ticket.offer}); }, node::Kind::opened,
        "opening the offer", answer));
    node::Opened opened;
    if (!decode(answer, opened) || opened.pull == 0 || opened.front_bytes == 0 || opened.front_bytes > largest_front)
        return fail(PKV_ERR_IO, "the giver at %s does not make sense (opening the offer)", address);
    if (opened.geometry != source.ticket.geometry || opened.num_tokens != source.ticket.num_tokens)
        return fail(PKV_ERR_MISMATCH, "the giver at %s offers something else than the ticket says", address);
    source.pull = opened.pull;
    source.front_bytes = opened.front_bytes;
    return PKV_OK;
}

pkv_status Pull::read_front(Source &source) {
    std::vector<std::byte> bytes(source.front_bytes);
    if (source.piece_bytes == 0)
        return fail(PKV_ERR_LIMIT, "the giver at %s has no memory to read from", source.ticket.address.c_str());
    for (uint64_t first = 0; first < bytes.size();) {
        const uint64_t count = std::min(source.piece_bytes, bytes.size() - first);
        const pkv_status status = read_front_piece(source, first, count, bytes.data() + first);
        if (status == PKV_ERR_AGAIN) {
            PKV_TRY(take_event(monotonic_ns() + full_pause_ns));
            continue;
        }
        if (status == PKV_ERR_IO && source.broken) {
            PKV_TRY(reopen(source));
            continue;
        }
        PKV_TRY(status);
        first += count;
    }
    if (!decode(bytes, source.front) || geometry_digest(source.front.groups) != source.ticket.geometry ||
        source.front.num_tokens != source.ticket.num_tokens)
        return fail(PKV_ERR_MISMATCH,
                    "what the giver at %s says of the sequence is not what the ticket says, or of another version",
                    source.ticket.address.c_str());
    return PKV_OK;
}

/// PKV_ERR_AGAIN: there is no room at the moment, or what arrived was something else.
pkv_status Pull::read_front_piece(Source &source, uint64_t first, uint64_t count, std::byte *out) {
    const std::shared_ptr<std::byte> slot = tools_->slots.take(monotonic_ns() + full_pause_ns);
    if (slot == nullptr) return PKV_ERR_AGAIN;
    node::Pieces pieces;
    pieces.pull = source.pull;
    pieces.pieces.push_back({node::Piece::front, 0, 0, 0, first, count});
    std::vector<std::byte> answer;
    PKV_TRY(ask(
        source, [&](uint64_t request) { return encode(request, pieces); }, node::Kind::packed, "the front", answer));
    node::Packed packed;
    if (!decode(answer, packed) || packed.pieces.size() != 1 || packed.pieces[0].bytes != count)
        return fail(PKV_ERR_IO, "the giver at %s does not make sense (the front)", source.ticket.address.c_str());
    if (packed.pieces[0].place.status == PKV_ERR_BUSY) return PKV_ERR_AGAIN;
    if (packed.pieces[0].place.status != PKV_OK)
        return fail(PKV_ERR_IO, "the giver at %s does not give the front: %s", source.ticket.address.c_str(),
                    status_name(packed.pieces[0].place.status));
    struct Box {
        bool there = false;
        pkv_status status = PKV_OK;
    };
    const auto box = std::make_shared<Box>();
    const auto event = std::make_shared<Event>();
    event->run = [box](Event &posted) {
        box->there = true;
        box->status = posted.status;
    };
    node::RangeRead read;
    read.range.bytes = count;
    read.data = slot.get();
    read.target = tools_->slots.target();
    read.deadline_ns = deadline_ns_;
    read.done = [inbox = inbox_, event, slot](pkv_status status) {
        event->status = status;
        (void)inbox->post(event);
    };
    source.link->read_place(std::move(read), packed.pieces[0].place);
    while (!box->there) PKV_TRY(take_event(deadline_ns_));
    if (box->status == PKV_OK && checksum64({slot.get(), count}) != packed.pieces[0].sum &&
        ++source.bad_fronts < most_bad_pieces)
        return PKV_ERR_AGAIN;
    if (box->status != PKV_OK || source.bad_fronts >= most_bad_pieces) {
        source.broken = box->status != PKV_OK;
        return fail(PKV_ERR_IO, "the front could not be read from the giver at %s", source.ticket.address.c_str());
    }
    std::memcpy(out, slot.get(), count);
    return PKV_OK;
}

/// All givers have to offer the same sequence, and the one that is wanted.
pkv_status Pull::agree() const {
    const Front &first = sources_[0].front;
    if (request_.ns.has_value() && *request_.ns != first.ns)
        return fail(PKV_ERR_MISMATCH, "the sequence is of another namespace than options.ns");
    for (size_t i = 1; i < sources_.size(); ++i) {
        const Front &other = sources_[i].front;
        const bool media =
            other.media.size() == first.media.size() &&
            std::equal(other.media.begin(), other.media.end(), first.media.begin(), [](const auto &a, const auto &b) {
                return a.position == b.position && a.num_tokens == b.num_tokens && a.digest == b.digest;
            });
        if (other.ns != first.ns || other.tokens != first.tokens || !media)
            return fail(PKV_ERR_MISMATCH,
                        "ticket %zu is for another sequence than the first: namespace, tokens or media differ", i);
    }
    return PKV_OK;
}

/// Makes room, and works out what has to come.
pkv_status Pull::begin_table() {
    const Pool &pool = *request_.pool;
    for (uint32_t group = 0; group < pool.num_groups(); ++group) PKV_TRY(pool.need_host_memory(group));
    const uint64_t page_tokens = pool.page_tokens();
    Front &front = sources_[0].front;
    const uint64_t num_tokens = front.num_tokens;
    prefix::Prompt prompt;
    prompt.ns = front.ns;
    prompt.media = front.media;
    PKV_TRY(table_->admit_handed(
        prompt, front.tokens, (request_.flags & PKV_PULL_NO_MATCH) == 0,
        [&](uint32_t group, uint64_t block) { return needs_block(pool, group, block, num_tokens); }));
    const uint64_t first_block = table_->committed() / page_tokens;
    std::array<uint64_t, PKV_MAX_GROUPS> tokens{};
    for (uint32_t group = 0; group < pool.num_groups(); ++group) {
        const std::span<const pkv_page> pages = table_->pages(group);
        for (uint64_t block = first_block; block < pages.size(); ++block) {
            if (pages[block] == PKV_NO_PAGE) continue;
            const TokenRange range{block * page_tokens, std::min((block + 1) * page_tokens, num_tokens)};
            tokens[group] += range.end - range.begin;
            if (!ranges_[group].empty() && ranges_[group].back().end == range.begin)
                ranges_[group].back().end = range.end;
            else
                ranges_[group].push_back(range);
        }
    }
    states_.resize(parts_.size());
    for (size_t i = 0; i < parts_.size(); ++i) {
        ++layer_parts_[first_item_[parts_[i].group] + parts_[i].layer];
        states_[i].left = tokens[parts_[i].group];
        states_[i].next = ranges_[parts_[i].group].empty() ? 0 : ranges_[parts_[i].group][0].begin;
        sources_[parts_[i].source].parts.push_back(i);
    }
    parts_left_ = parts_.size();
    for (size_t i = 0; i < parts_.size(); ++i)
        if (states_[i].left == 0) part_arrived(parts_[i]); // all of it was there already
    return PKV_OK;
}

pkv_status Pull::finish() {
    const Front &front = sources_[0].front;
    if ((request_.flags & PKV_PULL_NO_RETENTION) == 0)
        for (const RetentionRange &range : front.retention) PKV_TRY(table_->set_retention(range));
    PKV_TRY(check_going());
    return table_->commit(front.num_tokens);
}

} // namespace pkv::handover
