// SPDX-License-Identifier: Apache-2.0
// Blocks of tables: predicted, and required. prompts.cpp has the blocks of prompts.
#include "prefetch/blocks.h"

#include "core/clock.h"
#include "core/status.h"
#include "core/wait.h"
#include "layout/strides.h"
#include "prefetch/predictor.h"
#include "telemetry/histogram.h"
#include "telemetry/trace.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>

namespace pkv {
namespace {

constexpr double smoothing = 0.25;

void smooth(double &mean, double value) { mean = mean == 0 ? value : mean + smoothing * (value - mean); }

bool holds(const std::vector<std::shared_ptr<Part>> &parts, const std::shared_ptr<Part> &part) {
    return std::find(parts.begin(), parts.end(), part) != parts.end();
}

} // namespace

Blocks::Blocks(std::shared_ptr<Pool> pool, Loader &loader, KnownImages &images, const pkv_prefetch_options &options)
    : pool_(std::move(pool)), loader_(loader), images_(images), policy_(options.policy),
      off_((options.flags & PKV_PREFETCH_OFF) != 0), sink_tokens_(options.sink_tokens),
      recent_tokens_(options.recent_tokens), max_lookahead_(options.max_lookahead) {
    for (uint32_t group = 0; group < pool_->num_groups(); ++group)
        max_pages_[group] = options.max_block_pages != 0 ? options.max_block_pages
                                                         : std::max<uint64_t>(pool_->geometry(group).num_pages / 8, 1);
}

Blocks::~Blocks() {
    const Lock lock(loader_.mutex);
    for (const auto &[group, page] : pages_back_) pool_->release_page(group, page);
}

// ---- parts of blocks -----------------------------------------------------------------------------------------------

void Blocks::list_lacks(const Table &table, uint64_t block, const AbsentBlock &absent, std::vector<Lack> &lacks) {
    for (uint32_t group = 0; group < pool_->num_groups(); ++group)
        if ((absent.groups >> group & 1) != 0) lacks.push_back({block, images_.get(table, block, absent, group)});
}

/// The load of an image: the one that there is, or a new one, with a page. nullptr: there is no page for it. One that is
/// predicted has a page of its own: its table's owner may use what the table has kept for the block while it is loaded.
std::shared_ptr<Part> Blocks::want(const Table &table, const Lack &lack, bool predicted) {
    StoredImage &image = *lack.image;
    if (image.whole != nullptr && image.whole->state != PartState::failed) {
        ++image.whole->wanters;
        return image.whole;
    }
    auto part = std::make_shared<Part>();
    const uint32_t group = image.group;
    part->image = lack.image;
    part->page = predicted ? PKV_NO_PAGE : table.pages(group)[lack.block];
    part->own_page = part->page == PKV_NO_PAGE;
    if (part->own_page) {
        if (predicted && pages_[group] >= max_pages_[group]) return nullptr;
        if (pool_->alloc(group, 1, &part->page, part->after) != PKV_OK) return nullptr;
        ++pages_[group];
    } else {
        if (pool_->retain(group, {&part->page, 1}) != PKV_OK) return nullptr;
        part->kept_by = &table;
        part->after = pool_->before_writing(group, part->page);
    }
    part->wanted_ns = monotonic_ns();
    part->wanters = 1;
    part->on_end = [this, loading = part.get()]() PKV_REQUIRES(loader_.mutex) {
        smooth(load_ns_, static_cast<double>(monotonic_ns() - loading->begun_ns));
    };
    image.whole = part;
    return part;
}

void Blocks::take_page_back(const Part &part) {
    if (part.own_page) --pages_[part.image->group];
    pages_back_.emplace_back(part.image->group, part.page);
}

void Blocks::let_go(const std::shared_ptr<Part> &part) {
    if (part->state == PartState::dropped || --part->wanters != 0) return;
    if (part->image->whole == part) part->image->whole = nullptr;
    take_page_back(*part);
    loader_.drop(part);
}

/// Ends a load also for others who want it: its page is one that a table's owner may use again.
void Blocks::abandon(const std::shared_ptr<Part> &part) {
    if (part->state == PartState::dropped) return;
    part->wanters = 1;
    let_go(part);
}

void Blocks::let_go_of(Parts &parts) {
    for (const auto &part : parts) let_go(part);
    parts.clear();
}

/// Waits until no dropped part is being written, and releases their pages.
void Blocks::settle() {
    loader_.cancel_dropped();
    loader_.wait_idle();
    std::vector<std::pair<uint32_t, pkv_page>> pages;
    {
        const Lock lock(loader_.mutex);
        pages.swap(pages_back_);
    }
    for (const auto &[group, page] : pages) pool_->release_page(group, page);
    loader_.poke(); // what was dropped has made room for others
}

/// Loads that have failed need their pages no more.
void Blocks::drop_failed(Client &client) {
    std::erase_if(client.parts, [&](const std::shared_ptr<Part> &part) PKV_REQUIRES(loader_.mutex) {
        if (part->state == PartState::failed) let_go(part);
        return part->state == PartState::failed || part->state == PartState::dropped;
    });
}

/// Drops a client's loads of blocks that its table has not, or has in pages by now.
void Blocks::drop_stale(Client &client, const Table &table) {
    std::erase_if(client.parts, [&](const std::shared_ptr<Part> &part) PKV_REQUIRES(loader_.mutex) {
        const StoredImage &image = *part->image;
        const auto at = table.absent().find(image.block);
        if (at != table.absent().end() && (at->second.groups >> image.group & 1) != 0 &&
            images_.get(table, image.block, at->second, image.group).get() == &image)
            return false;
        let_go(part);
        return true;
    });
}

/// Drops a client's loads of images that are not in a list.
void Blocks::drop_unneeded(Client &client, const std::vector<Lack> &needed, bool idle_only) {
    const uint64_t mark = ++marks_;
    for (const Lack &lack : needed) lack.image->needed = mark;
    std::erase_if(client.parts, [&](const std::shared_ptr<Part> &part) PKV_REQUIRES(loader_.mutex) {
        if (part->state == PartState::dropped) return true; // taken
        if (part->state == PartState::failed) {
            let_go(part);
            return true;
        }
        if (part->image->needed == mark || (idle_only && part->state != PartState::idle)) return false;
        let_go(part);
        return true;
    });
}

/// Sequences that do not exist any more need nothing.
void Blocks::forget_gone() {
    for (auto at = clients_.begin(); at != clients_.end();) {
        if (!at->second.table.expired()) {
            ++at;
            continue;
        }
        let_go_of(at->second.parts);
        at = clients_.erase(at);
    }
}

// ---- prediction ----------------------------------------------------------------------------------------------------

void Blocks::hint(const std::shared_ptr<Table> &table, std::span<const float> scores) {
    std::vector<float> copy(scores.begin(), scores.end());
    {
        const Lock lock(loader_.mutex);
        forget_gone();
        Client &client = clients_[table.get()];
        client.table = table;
        client.scores = std::move(copy);
    }
    settle();
}

/// As many blocks as are required while one is loaded, and two for times that vary.
uint64_t Blocks::lookahead() const {
    if (policy_ != PKV_PREDICT_SEQUENTIAL || block_ns_ <= 0 || load_ns_ <= 0) return max_lookahead_;
    const double blocks = std::ceil(load_ns_ / block_ns_) + 2;
    return blocks < static_cast<double>(max_lookahead_) ? static_cast<uint64_t>(blocks) : max_lookahead_;
}

pkv_status Blocks::submit(const std::shared_ptr<Table> &table, uint64_t position, uint64_t &submitted) {
    submitted = 0;
    PKV_TRY(table->check_admitted());
    if (position > table->reserved())
        return fail(PKV_ERR_INVALID, "position %" PRIu64 ": the table has room for %" PRIu64 " tokens", position,
                    table->reserved());
    if (off_) return PKV_OK;
    {
        const Lock lock(loader_.mutex);
        forget_gone();
        Client &client = clients_[table.get()];
        client.table = table;
        pkv_predictor predictor = PKV_PREDICTOR_INIT;
        predictor.policy = policy_;
        predictor.page_tokens = pool_->page_tokens();
        predictor.sink_tokens = sink_tokens_;
        predictor.recent_tokens = recent_tokens_;
        predictor.lookahead = lookahead();
        std::vector<uint64_t> blocks;
        const bool hinted = policy_ == PKV_PREDICT_HINTED;
        predict(predictor, table->reserved(), position,
                hinted ? std::span<const float>(client.scores) : std::span<const float>(), blocks);
        std::vector<Lack> lacks;
        for (const uint64_t block : blocks)
            if (const auto at = table->absent().find(block); at != table->absent().end())
                list_lacks(*table, block, at->second, lacks);
        drop_stale(client, *table);
        drop_unneeded(client, lacks, true);
        client.waiting.clear();
        client.parts.reserve(client.parts.size() + lacks.size()); // a part that is in no list is never let go of
        bool made_room = false;
        for (size_t i = 0; i < lacks.size(); ++i) {
            std::shared_ptr<Part> part = lacks[i].image->whole;
            if (part == nullptr || part->state == PartState::failed || !holds(client.parts, part)) {
                part = want(*table, lacks[i], true);
                if (part == nullptr && !made_room) { // what was loaded for an earlier prediction goes first
                    made_room = true;
                    drop_unneeded(client, lacks, false);
                    part = want(*table, lacks[i], true);
                }
                if (part == nullptr) break;
                client.parts.push_back(part);
            }
            if (part->state == PartState::idle) client.waiting.push_back(part);
            if (i + 1 == lacks.size() || lacks[i + 1].block != lacks[i].block) ++submitted;
        }
    }
    settle();
    loader_.poke();
    return PKV_OK;
}

std::shared_ptr<Part> Blocks::next(bool urgent) {
    if (urgent) {
        while (!urgent_.empty() && urgent_.front()->state != PartState::idle) urgent_.pop_front();
        const auto first =
            std::find_if(urgent_.begin(), urgent_.end(), [this](const auto &part) PKV_REQUIRES(loader_.mutex) {
                return part->state == PartState::idle && loader_.may_begin(*part);
            });
        return first == urgent_.end() ? nullptr : *first;
    }
    // Each client in turn: the one whose turn it was passes it on once its part was begun.
    auto at = clients_.lower_bound(turn_);
    // Twice round, since clients that share a part all pass their turn on when it was begun.
    for (size_t looked = 0; looked < 2 * clients_.size(); ++looked) {
        if (at == clients_.end()) at = clients_.begin();
        auto &waiting = at->second.waiting;
        bool begun = false;
        while (!waiting.empty() && waiting.front()->state != PartState::idle) {
            begun = begun || waiting.front()->state != PartState::dropped;
            waiting.pop_front();
        }
        if (!waiting.empty() && (!begun || clients_.size() == 1) && loader_.may_begin(*waiting.front())) {
            turn_ = at->first;
            return waiting.front();
        }
        ++at;
    }
    return nullptr;
}

// ---- require -------------------------------------------------------------------------------------------------------

/// Not where bytes would have to be copied into a page that a device still works on: whoever waits for that waits alone.
bool Blocks::can_take(const Table &table, const Lack &lack) const {
    const Part &part = *lack.image->whole;
    if (pool_->device() == nullptr || part.kept_by == nullptr || part.kept_by == &table) return true;
    const uint32_t group = part.image->group;
    return pool_->device()->order().passed_by_now(pool_->before_writing(group, table.pages(group)[lack.block]));
}

/// A ready part's page goes to the table, or its bytes do.
void Blocks::take_page(const Table &table, const AbsentBlock &absent, const Lack &lack, Table::LoadedBlock &block) {
    const std::shared_ptr<Part> part = lack.image->whole;
    const uint32_t group = part->image->group;
    loader_.use(*part);
    if (!absent.is_private) block.from[group] = part->tier;
    if (part->kept_by != nullptr && part->kept_by != &table) {
        // Another table's block table has that page, still as an empty one: it stays there.
        block.pages[group] = table.pages(group)[lack.block];
        pool_->retain(group, {&block.pages[group], 1});
        copy_page(group, part->page, block.pages[group]);
        return;
    }
    block.pages[group] = part->page;
    lack.image->whole = nullptr;
    loader_.drop(part);
    if (part->own_page) --pages_[group];
}

/// On a device the copy is there when this returns.
void Blocks::copy_page(uint32_t group, pkv_page from, pkv_page to) const {
    Turn turn;
    pkv_status status = turn.begin(pool_->device(), nullptr);
    if (turn.on_device() && status == PKV_OK) status = turn.after(pool_->before_writing(group, to));
    if (status == PKV_OK) status = pool_->copy_page_bytes(group, from, to, pool_->page_tokens(), turn);
    if (status == PKV_OK) (void)turn.end();
}

void Blocks::take_ready(Table &table, uint64_t first, uint64_t end) {
    for (;;) {
        table.adopt_published(end);
        std::vector<Table::LoadedBlock> loaded;
        {
            const Lock lock(loader_.mutex);
            for (auto at = table.absent().lower_bound(first); at != table.absent().end() && at->first < end; ++at) {
                std::vector<Lack> lacks;
                list_lacks(table, at->first, at->second, lacks);
                const bool ready = std::all_of(lacks.begin(), lacks.end(), [&](const Lack &lack) {
                    return lack.image->whole != nullptr && lack.image->whole->state == PartState::ready &&
                           can_take(table, lack);
                });
                if (!ready) continue;
                Table::LoadedBlock block{at->first, {}, {}};
                block.pages.fill(PKV_NO_PAGE);
                block.from.fill(no_tier);
                for (const Lack &lack : lacks) take_page(table, at->second, lack, block);
                loaded.push_back(block);
            }
        }
        if (loaded.empty()) return;
        table.take_loaded(loaded);
    }
}

/// Sorts a range's absent blocks by what has become of them, and begins to load those that nobody loads.
pkv_status Blocks::want_now(const Table &table, uint64_t first, uint64_t end, Parts &parts,
                            pkv_require_result &result) {
    const Lock lock(loader_.mutex);
    pkv_require_result found = PKV_REQUIRE_RESULT_INIT;
    for (auto at = table.absent().lower_bound(first); at != table.absent().end() && at->first < end; ++at) {
        std::vector<Lack> lacks;
        list_lacks(table, at->first, at->second, lacks);
        parts.reserve(parts.size() + lacks.size());
        bool all_ready = true, all_begun = true;
        for (const Lack &lack : lacks) {
            const Part *known = lack.image->whole.get();
            const bool ready = known != nullptr && known->state == PartState::ready;
            all_ready = all_ready && ready;
            all_begun = all_begun && (ready || (known != nullptr && known->state == PartState::loading));
            auto part = want(table, lack, false);
            if (part == nullptr) {
                let_go_of(parts);
                return fail(PKV_ERR_NO_PAGES, "block %" PRIu64 ": the pool has no page for it", at->first);
            }
            parts.push_back(part);
            if (part->state == PartState::idle) urgent_.push_back(part);
        }
        ++(all_ready ? found.on_time : all_begun ? found.late : found.on_demand);
    }
    const uint64_t needed = found.on_time + found.late + found.on_demand;
    found.resident = end - first - needed;
    found.struct_size = result.struct_size;
    result = found;
    pkv_prefetch_stats &counters = loader_.counters();
    counters.needed += needed;
    counters.on_time += found.on_time;
    counters.late += found.late;
    counters.on_demand += found.on_demand;
    counters.requests += needed != 0;
    counters.ready_requests += needed != 0 && found.on_time == needed;
    const uint64_t now = monotonic_ns();
    if (needed != 0 && required_at_ns_ != 0)
        smooth(block_ns_, static_cast<double>(now - required_at_ns_) / static_cast<double>(needed));
    return PKV_OK;
}

pkv_status Blocks::require(const std::shared_ptr<Table> &table, uint64_t first, uint64_t count, uint64_t timeout_ns,
                           pkv_require_result &result) {
    PKV_TRY(table->check_admitted());
    if (first > table->num_blocks())
        return fail(PKV_ERR_INVALID, "block %" PRIu64 " of %" PRIu64, first, table->num_blocks());
    const uint64_t end = first + std::min(count, table->num_blocks() - first);
    const uint64_t deadline = deadline_after(timeout_ns);
    table->adopt_published(end);
    const auto some = table->absent().lower_bound(first);
    if (some == table->absent().end() || some->first >= end) {
        result.resident = end - first;
        return PKV_OK;
    }
    Parts parts;
    pkv_status status = want_now(*table, first, end, parts, result);
    if (status == PKV_ERR_NO_PAGES) { // what is loaded for others, or for later, goes first
        {
            const Lock lock(loader_.mutex);
            forget_gone();
            for (auto &[known, client] : clients_)
                if (known != table.get() && !is_prompt(known)) drop_unneeded(client, {}, false);
            std::vector<Lack> needed;
            for (auto at = table->absent().lower_bound(first); at != table->absent().end() && at->first < end; ++at)
                list_lacks(*table, at->first, at->second, needed);
            if (const auto own = clients_.find(table.get()); own != clients_.end())
                drop_unneeded(own->second, needed, false);
        }
        settle();
        status = want_now(*table, first, end, parts, result);
    }
    if (status != PKV_OK) {
        settle();
        return status;
    }
    const uint64_t start = monotonic_ns();
    size_t next = 0;
    const auto ended = [&] {
        while (next < parts.size() && (parts[next]->ended() || parts[next]->state == PartState::dropped)) ++next;
        return next == parts.size();
    };
    bool waits = false;
    {
        const Lock lock(loader_.mutex);
        waits = !ended();
        if (waits) loader_.clock().begin_wait(start);
    }
    bool in_time = true;
    if (waits) {
        loader_.poke();
        in_time = loader_.wait(deadline, ended);
    }
    take_ready(*table, first, end);
    {
        const Lock lock(loader_.mutex);
        for (const auto &part : parts)
            if (part->kept_by == table.get()) abandon(part);
        let_go_of(parts);
        if (const auto own = clients_.find(table.get()); own != clients_.end()) drop_failed(own->second);
    }
    settle();
    // What could not be loaded may be in another tier by now, or in a page; else the table is told that it is lost.
    const auto left = table->absent().lower_bound(first);
    const bool missing = left != table->absent().end() && left->first < end;
    if (missing && in_time) {
        const uint64_t now = monotonic_ns();
        uint64_t restored = 0;
        status = table->restore(first, end - first, now < deadline ? deadline - now : 0, restored);
    } else if (missing) {
        status = fail(PKV_ERR_TIMEOUT, "blocks are still being loaded after %" PRIu64 " ns", timeout_ns);
    }
    const Lock lock(loader_.mutex);
    const uint64_t now = monotonic_ns();
    for (auto at = table->absent().lower_bound(first); at != table->absent().end() && at->first < end; ++at)
        ++loader_.counters().failed;
    if (waits) {
        loader_.clock().end_wait(now);
        add_time(loader_.counters().exposed, now - start);
        trace::span(loader_.trace_process(), 0, "wait", start, now, {"block", first, nullptr, 0});
    }
    result.waited_ns = waits || missing ? now - start : 0;
    required_at_ns_ = now;
    return status;
}

// ---- ends ----------------------------------------------------------------------------------------------------------

void Blocks::cancel() {
    {
        const Lock lock(loader_.mutex);
        for (auto &[known, client] : clients_) {
            if (is_prompt(known)) continue;
            let_go_of(client.parts);
            client.waiting.clear();
        }
        for (const auto &prompt : prompts_)
            if (prompt->status == PKV_OK) prompt->status = PKV_ERR_CANCELLED;
        urgent_.clear();
    }
    settle();
    work();
}

void Blocks::fill_stats(pkv_prefetch_stats &stats) const {
    const Lock lock(loader_.mutex);
    stats.lookahead = off_ ? 0 : lookahead();
    stats.block_pages = 0;
    for (const uint64_t pages : pages_) stats.block_pages += pages;
}

} // namespace pkv
