// SPDX-License-Identifier: Apache-2.0
#include "handover/offer.h"

#include "core/wait.h"
#include "handover/ticket.h"

#include <algorithm>
#include <cinttypes>
#include <sodium.h>

namespace pkv::handover {

// ---- what is offered

Offer::Offer(std::shared_ptr<Pool> pool, std::shared_ptr<Op> op, std::shared_ptr<node::Counters> counters)
    : pool_(std::move(pool)), op_(std::move(op)), counters_(std::move(counters)) {}

Offer::~Offer() = default;

Offer::Packing::~Packing() {
    {
        const std::lock_guard lock(offer_.mutex_);
        --offer_.packing_;
    }
    offer_.let_go_.notify_all();
}

Offer::Held::~Held() {
    for (uint32_t group = 0; group < pool->num_groups(); ++group)
        if (!replaced[group].empty()) (void)pool->release(group, replaced[group], nullptr);
    pool->release_blocks(lists, 0);
}

pkv_status Offer::make(Table &table, const OfferTerms &terms, std::shared_ptr<Op> op,
                       std::shared_ptr<node::Counters> counters, std::shared_ptr<Offer> &offer) {
    auto fresh = std::make_shared<Offer>(table.pool().shared_from_this(), std::move(op), std::move(counters));
    PKV_TRY(fresh->take(table, terms));
    offer = std::move(fresh);
    return PKV_OK;
}

pkv_status Offer::take(const Table &table, const OfferTerms &terms) {
    const uint64_t committed = table.committed();
    const uint64_t num_tokens = terms.num_tokens != 0 ? terms.num_tokens : committed;
    PKV_TRY(table.check_admitted());
    PKV_TRY(table.check_resident());
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) PKV_TRY(pool_->need_host_memory(group));
    if (num_tokens == 0) return fail(PKV_ERR_STATE, "no token is committed, and options.num_tokens is 0");
    if (table.tokens().size() < num_tokens)
        return fail(PKV_ERR_STATE, "%" PRIu64 " tokens are to be offered, but only %zu are named", num_tokens,
                    table.tokens().size());

    terms_.num_tokens = num_tokens;
    terms_.until_ns = deadline_after(terms.lifetime_ns);
    max_pulls_ = terms.max_pulls;
    sequence_ = table.sequence();
    table_ = table.shared();
    held_ = std::make_unique<Held>();
    held_->pool = pool_;
    const uint64_t ready = std::min(committed, num_tokens);
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
        first_layer_[group] = static_cast<uint32_t>(progress_.tokens.size());
        progress_.tokens.resize(progress_.tokens.size() + pool_->geometry(group).num_layers, ready);
        held_->lists[group].resize(blocks_for(num_tokens, pool_->page_tokens()), PKV_NO_PAGE);
    }
    progress_.version = 1;
    compared_ = ready;
    Front front;
    front.ns = table.namespace_digest();
    front.num_tokens = num_tokens;
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
        // Of what is complete, all that the table has; of what grows, what its windows will still reach at the end.
        PKV_TRY(take_pages(table, group, 0, blocks_for(ready, pool_->page_tokens()),
                           num_tokens <= committed ? 0 : num_tokens));
        groups_.push_back(describe(pool_->geometry(group)));
        set_range(group, groups_.back());
    }
    front.groups = groups_;
    tokens_.assign(table.tokens().begin(), table.tokens().begin() + static_cast<int64_t>(num_tokens));
    front.tokens = tokens_;
    for (const prefix::Media &media : table.media())
        if (media.position < num_tokens) front.media.push_back(media);
    front.retention.assign(table.retention().begin(), table.retention().end());
    front_ = encode(front);
    if (front_.size() > largest_front)
        return fail(PKV_ERR_LIMIT, "%" PRIu64 " tokens and their media make %zu bytes, more than %" PRIu64, num_tokens,
                    front_.size(), largest_front);
    terms_.front_bytes = front_.size();
    terms_.geometry = geometry_digest(groups_);
    return PKV_OK;
}

/// Takes counts of the table's pages of blocks [first, end): of those that a sequence of `length` tokens reaches, which have to
/// be there; with length 0, of those that are there, as far as every later token needs them.
pkv_status Offer::take_pages(const Table &table, uint32_t group, uint64_t first, uint64_t end, uint64_t length) {
    const std::span<const pkv_page> pages = table.pages(group);
    const Group &of = pool_->group(group);
    std::vector<pkv_page> fresh, replaced;
    std::vector<uint64_t> blocks;
    for (uint64_t block = first; block < end; ++block) {
        if (length != 0 && !of.reaches(block, length)) continue;
        const bool needed = of.reaches(block, terms_.num_tokens);
        const pkv_page page = block < pages.size() ? pages[block] : PKV_NO_PAGE;
        if (page == PKV_NO_PAGE && needed)
            return fail(PKV_ERR_NOT_RESIDENT, "block %" PRIu64 " of group %u has no page: %s", block, group,
                        block < pages.size() ? "its window has passed it" : "there is no room reserved for it");
        const pkv_page held = held_->lists[group][block];
        if (page == PKV_NO_PAGE || page == held) continue;
        fresh.push_back(page);
        blocks.push_back(block);
        if (held != PKV_NO_PAGE) replaced.push_back(held);
    }
    std::vector<pkv_page> &old = held_->replaced[group];
    old.reserve(old.size() + replaced.size());
    PKV_TRY(pool_->retain(group, fresh));
    for (size_t i = 0; i < blocks.size(); ++i) held_->lists[group][blocks[i]] = fresh[i];
    old.insert(old.end(), replaced.begin(), replaced.end());
    return PKV_OK;
}

/// Which tokens have, or will have, rows.
void Offer::set_range(uint32_t group, FrontGroup &described) const {
    const uint64_t page_tokens = pool_->page_tokens();
    const auto &list = held_->lists[group];
    const auto has = [&](uint64_t block) {
        return list[block] != PKV_NO_PAGE || pool_->group(group).reaches(block, terms_.num_tokens);
    };
    uint64_t head = 0;
    while (head < list.size() && has(head)) ++head;
    uint64_t tail = list.size();
    while (tail > head && has(tail - 1)) --tail;
    described.head_end = std::min(head * page_tokens, terms_.num_tokens);
    described.tail_begin = std::min(tail * page_tokens, terms_.num_tokens);
}

pkv_status Offer::publish(node::Node &node, const std::string &address) {
    const node::Reader &reader = *node.reader();
    randombytes_buf(id_.data(), id_.size());
    Ticket ticket;
    ticket.offer = id_;
    ticket.incarnation = reader.hello.incarnation;
    ticket.geometry = terms_.geometry;
    ticket.num_tokens = terms_.num_tokens;
    ticket.address = address.empty() ? node.reached_at() : address;
    if (std::string host, port;
        ticket.address.size() > node::longest_name || !node::split_address(ticket.address, host, port))
        return fail(PKV_ERR_INVALID, "\"%s\", at which pullers should reach the node, is not of the form host:port",
                    ticket.address.c_str());
    ticket_ = seal(ticket, reader.key);
    service_ = node.service();
    PKV_TRY(node.service()->offers.add(id_, shared_from_this()));
    counters_->offers.fetch_add(1, std::memory_order_relaxed);
    counters_->open_offers.fetch_add(1, std::memory_order_relaxed);
    return PKV_OK;
}

// ---- progress

pkv_status Offer::check_layer(uint32_t group, uint32_t layer) const {
    if (group == PKV_ALL_GROUPS) {
        if (layer == PKV_ALL_LAYERS) return PKV_OK;
        return fail(PKV_ERR_INVALID, "layer %u of all groups: all layers go with all groups", layer);
    }
    return layer == PKV_ALL_LAYERS ? pool_->check_group(group) : pool_->check_layer(group, layer);
}

pkv_status Offer::ready(uint32_t group, uint32_t layer, uint64_t num_tokens) {
    const uint32_t first_group = group == PKV_ALL_GROUPS ? 0 : group;
    const uint32_t end_group = group == PKV_ALL_GROUPS ? pool_->num_groups() : group + 1;
    if (num_tokens > terms_.num_tokens)
        return fail(PKV_ERR_INVALID, "%" PRIu64 " tokens are ready: %" PRIu64 " are offered", num_tokens,
                    terms_.num_tokens);
    const std::shared_ptr<Table> table = table_.lock();
    if (table == nullptr) return fail(PKV_ERR_STATE, "the table that was offered is gone");
    std::vector<Watcher> watchers;
    {
        const std::lock_guard lock(mutex_);
        PKV_TRY(ended());
        if (table->sequence() != sequence_)
            return fail(PKV_ERR_STATE, "the table has another sequence than was offered, or was cut");
        const std::span<const pkv_token> named = table->tokens();
        if (num_tokens > named.size())
            return fail(PKV_ERR_STATE, "%" PRIu64 " tokens are ready, %zu are named", num_tokens, named.size());
        // Names that were not committed may have been replaced since.
        const uint64_t from = std::min(compared_, num_tokens);
        if (!std::equal(named.begin() + static_cast<int64_t>(from), named.begin() + static_cast<int64_t>(num_tokens),
                        tokens_.begin() + static_cast<int64_t>(from)))
            return fail(PKV_ERR_STATE, "the tokens from %" PRIu64 " on are others than were offered", from);
        const uint64_t end = blocks_for(num_tokens, pool_->page_tokens());
        for (uint32_t g = first_group; g < end_group; ++g) {
            const uint32_t layers = pool_->geometry(g).num_layers;
            uint64_t least = num_tokens;
            for (uint32_t l = 0; l < layers; ++l)
                if (layer == PKV_ALL_LAYERS || l == layer) least = std::min(least, tokens_of(g, l));
            if (least < num_tokens)
                PKV_TRY(take_pages(*table, g, least / pool_->page_tokens(), end, terms_.num_tokens));
        }
        bool more = false;
        for (uint32_t g = first_group; g < end_group; ++g)
            for (uint32_t l = 0; l < pool_->geometry(g).num_layers; ++l) {
                if (layer != PKV_ALL_LAYERS && l != layer) continue;
                more = more || tokens_of(g, l) < num_tokens;
                tokens_of(g, l) = std::max(tokens_of(g, l), num_tokens);
            }
        if (!more) return PKV_OK;
        compared_ = std::max(compared_, std::min(num_tokens, table->committed()));
        ++progress_.version;
        watchers = due(0);
    }
    node::Progress now;
    {
        const std::lock_guard lock(mutex_);
        now = progress_;
    }
    for (const Watcher &watcher : watchers) watcher.answer(PKV_OK, now);
    return PKV_OK;
}

/// Takes out those who wait for what has come, or for longer than they wanted.
std::vector<Offer::Watcher> Offer::due(uint64_t now_ns) {
    std::vector<Watcher> list;
    std::erase_if(watchers_, [&](Watcher &watcher) {
        if (watcher.version == progress_.version && now_ns < watcher.until_ns) return false;
        list.push_back(std::move(watcher));
        return true;
    });
    return list;
}

void Offer::watch(uint64_t version, uint64_t until_ns, Answer answer) {
    pkv_status status = PKV_OK;
    node::Progress now;
    {
        const std::lock_guard lock(mutex_);
        status = ended();
        if (status == PKV_OK && version == progress_.version && watchers_.size() < most_watchers) {
            watchers_.push_back({version, until_ns, std::move(answer)});
            return;
        }
        now = progress_;
    }
    answer(status, now);
}

void Offer::tick(uint64_t now_ns) {
    std::vector<Watcher> watchers;
    node::Progress now;
    {
        const std::lock_guard lock(mutex_);
        watchers = due(now_ns);
        now = progress_;
    }
    for (const Watcher &watcher : watchers) watcher.answer(PKV_OK, now);
    if (pool_->closed())
        end(PKV_ERR_CLOSED);
    else if (now_ns >= terms_.until_ns)
        end(PKV_ERR_TIMEOUT);
}

// ---- pulls

/// PKV_OK while the offer is open; then PKV_ERR_STATE, with why it ended.
pkv_status Offer::ended() const {
    switch (status_) {
    case PKV_ERR_BUSY: return PKV_OK;
    case PKV_OK: return fail(PKV_ERR_STATE, "the offer was pulled as often as it was meant to be");
    case PKV_ERR_TIMEOUT: return fail(PKV_ERR_STATE, "the offer has expired");
    case PKV_ERR_CANCELLED: return fail(PKV_ERR_STATE, "the offer was withdrawn");
    default: return fail(PKV_ERR_STATE, "the offer has ended: the pool, or the node, was closed");
    }
}

pkv_status Offer::begin_pull() {
    const std::lock_guard lock(mutex_);
    PKV_TRY(ended());
    ++open_pulls_;
    return PKV_OK;
}

void Offer::end_pull(pkv_status status) {
    bool last = false;
    uint32_t number = 0;
    {
        const std::lock_guard lock(mutex_);
        --open_pulls_;
        if (status_ != PKV_ERR_BUSY) status = PKV_ERR_STATE;
        if (status == PKV_OK) {
            number = pulls_++;
            last = pulls_ == max_pulls_;
        } else {
            ++failed_pulls_;
        }
    }
    (status == PKV_OK ? counters_->pulls_served : counters_->failed_pulls_served)
        .fetch_add(1, std::memory_order_relaxed);
    if (status == PKV_OK && op_ != nullptr && max_pulls_ != PKV_PULLS_UNLIMITED && !last) op_->end_item(number, PKV_OK);
    if (last) end(PKV_OK);
}

bool Offer::has_rows(const FrontGroup &group, uint64_t first, uint64_t count) const {
    uint64_t end = 0;
    if (count == 0 || __builtin_add_overflow(first, count, &end) || end > terms_.num_tokens) return false;
    return end <= group.head_end || first >= group.tail_begin;
}

pkv_status Offer::check_piece(const node::Piece &piece) const {
    uint64_t end = 0;
    if (piece.group == node::Piece::front) {
        if (piece.count != 0 && !__builtin_add_overflow(piece.first, piece.count, &end) && end <= front_.size())
            return PKV_OK;
    } else if (piece.group < groups_.size()) {
        const FrontGroup &group = groups_[piece.group];
        const bool heads =
            piece.heads != 0 && piece.first_head < group.heads && piece.heads <= group.heads - piece.first_head;
        if (heads && piece.layer < group.num_layers && has_rows(group, piece.first, piece.count)) return PKV_OK;
    }
    return fail(PKV_ERR_INVALID,
                "group %u, layer %u, heads %u + %u, tokens %" PRIu64 " + %" PRIu64 " are no piece of what is offered",
                piece.group, piece.layer, piece.first_head, piece.heads, piece.first, piece.count);
}

pkv_status Offer::measure(const node::Piece &piece, uint64_t &bytes) const {
    PKV_TRY(check_piece(piece));
    const std::lock_guard lock(mutex_);
    PKV_TRY(ended());
    if (piece.group == node::Piece::front) {
        bytes = piece.count;
        return PKV_OK;
    }
    if (piece.first + piece.count > tokens_of(piece.group, piece.layer)) return PKV_ERR_AGAIN;
    bytes = row_bytes(pool_->geometry(piece.group), piece.heads, piece.count);
    return PKV_OK;
}

pkv_status Offer::pack(const node::Piece &piece, std::byte *out) const {
    if (piece.group == node::Piece::front) {
        std::copy_n(front_.begin() + static_cast<int64_t>(piece.first), piece.count, out);
        return PKV_OK;
    }
    const uint64_t page_tokens = pool_->page_tokens();
    std::vector<pkv_page> pages;
    std::unique_lock lock(mutex_);
    PKV_TRY(ended());
    const auto &list = held_->lists[piece.group];
    pages.assign(list.begin() + static_cast<int64_t>(piece.first / page_tokens),
                 list.begin() + static_cast<int64_t>((piece.first + piece.count - 1) / page_tokens + 1));
    const Packing packing(*this); // the offer may end meanwhile; its pages stay
    lock.unlock();
    const Pool::BytesInUse in_use(*pool_);
    if (pool_->closed()) return fail(PKV_ERR_STATE, "the offer has ended: its pool was destroyed");
    read_rows(*pool_, {piece.group, piece.layer, piece.first_head, piece.heads, piece.first, piece.count}, pages, out);
    return PKV_OK;
}

// ---- the end

/// Once it returns, on any thread, the offer has no pages.
void Offer::end(pkv_status status) {
    std::vector<Watcher> watchers;
    {
        std::unique_lock lock(mutex_);
        if (status_ != PKV_ERR_BUSY) return let_go_.wait(lock, [this] { return held_ == nullptr; });
        status_ = status;
        watchers.swap(watchers_);
        let_go_.wait(lock, [this] { return packing_ == 0; });
        held_ = nullptr;
    }
    let_go_.notify_all();
    counters_->open_offers.fetch_sub(1, std::memory_order_relaxed);
    if (status == PKV_ERR_TIMEOUT) counters_->expired_offers.fetch_add(1, std::memory_order_relaxed);
    pkv_status answer = PKV_OK;
    {
        const std::lock_guard lock(mutex_);
        answer = ended();
    }
    char why[256] = "";
    copy_last_error(why, sizeof why);
    for (const Watcher &watcher : watchers) {
        (void)fail(answer, "%s", why); // an answer may fail at something else
        watcher.answer(answer, {});
    }
    if (const auto service = service_.lock()) service->offers.remove(id_);
    if (op_ == nullptr) return;
    op_->explain(why);
    op_->free_buffers();
    const uint64_t items = max_pulls_ == PKV_PULLS_UNLIMITED ? 1 : max_pulls_;
    for (uint64_t item = 0; item < items; ++item) op_->end_item(item, status);
}

void Offer::info(pkv_offer_info &out) const {
    const uint64_t now = monotonic_ns();
    const std::lock_guard lock(mutex_);
    out.status = status_;
    out.pulls = pulls_;
    out.open_pulls = open_pulls_;
    out.failed_pulls = failed_pulls_;
    out.num_tokens = terms_.num_tokens;
    out.ready_tokens = *std::min_element(progress_.tokens.begin(), progress_.tokens.end());
    out.left_ns = status_ == PKV_ERR_BUSY && terms_.until_ns > now ? terms_.until_ns - now : 0;
}

} // namespace pkv::handover
