// SPDX-License-Identifier: Apache-2.0
// Where sequences part and meet: copy-on-write, fork, truncate, accepted drafts, sliding windows.
#include "core/status.h"
#include "layout/strides.h"
#include "table/table.h"

#include <algorithm>
#include <cinttypes>

namespace pkv {

// ---- copy-on-write -------------------------------------------------------------------------------------------------

GroupPages Table::tail_pages() const {
    GroupPages tail;
    tail.fill(PKV_NO_PAGE);
    const uint64_t block = committed_ / page_tokens_;
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) tail[group] = lists_[group][block];
    return tail;
}

/// Bit mask of the groups in which the block at `committed` is partly committed and visible to others.
uint32_t Table::shared_tail_groups() {
    if (tail_private_ || committed_ % page_tokens_ == 0) return 0;
    const GroupPages tail = tail_pages();
    const uint32_t shared = pool_->shared_groups(tail);
    tail_private_ = shared == 0;
    // On a device those who had it, too, may still be copying it.
    for (uint32_t group = 0; tail_private_ && pool_->device() != nullptr && group < pool_->num_groups(); ++group)
        if (tail[group] != PKV_NO_PAGE) waits_ |= pool_->before_writing(group, tail[group]);
    return shared;
}

pkv_status Table::make_tail_private(Turn &turn) {
    const uint32_t shared = shared_tail_groups();
    if (shared == 0) return PKV_OK;
    if (turn.captured())
        return fail(PKV_ERR_CAPTURE,
                    "the block at token %" PRIu64 " is shared: a copy on write cannot be captured, reserve first",
                    committed_);
    return extend(0, shared, turn);
}

/// Adds `num_blocks` blocks in every group and copies the block at `committed` in the groups of a bit mask: all or nothing.
pkv_status Table::extend(uint64_t num_blocks, uint32_t copy, Turn &turn) {
    GroupCounts wanted{};
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
        wanted[group] = num_blocks + (copy >> group & 1);
        // More than the group has will be refused, and needs no list first.
        const uint64_t size = lists_[group].size() + std::min(wanted[group], pool_->geometry(group).num_pages + 1);
        if (lists_[group].capacity() < size)
            lists_[group].reserve(std::max<uint64_t>(size, lists_[group].capacity() * 2));
    }
    const uint64_t before = lists_[0].size();
    PKV_TRY(pool_->extend(lists_, wanted, waits_));
    if (copy == 0) return PKV_OK;
    GroupPages fresh; // the last page of each list that is copied
    fresh.fill(PKV_NO_PAGE);
    for (uint32_t group = 0; group < pool_->num_groups(); ++group)
        if ((copy >> group & 1) != 0) {
            fresh[group] = lists_[group].back();
            lists_[group].pop_back();
        }
    const pkv_status status = copy_tail(copy, fresh, turn);
    if (status == PKV_OK) return PKV_OK;
    pool_->release_pages(fresh, waits_);
    pool_->release_blocks(lists_, before, waits_);
    for (auto &list : lists_) list.resize(std::min<uint64_t>(list.size(), before));
    return status;
}

/// Rows behind `committed` may be in a stream that this call's work does not come after by itself.
pkv_status Table::wait_for_rows(Turn &turn) {
    if (stream_open_) {
        Fences rows;
        PKV_TRY(pool_->device()->order().mark(stream_, rows));
        waits_ |= rows;
        stream_open_ = false;
    }
    return turn.after(waits());
}

/// Copies the pages at `committed`, all rows of them, since rows after `committed` may have been written as well, and puts
/// `fresh` in their place.
pkv_status Table::copy_tail(uint32_t groups, const GroupPages &fresh, Turn &turn) {
    Fences work;
    pkv_status status = turn.on_device() ? wait_for_rows(turn) : PKV_OK;
    for (uint32_t group = 0; group < pool_->num_groups() && status == PKV_OK; ++group)
        if ((groups >> group & 1) != 0 && pool_->memory(group).exists())
            status = pool_->copy_page_bytes(group, lists_[group][committed_ / page_tokens_], fresh[group], page_tokens_,
                                            turn);
    if (turn.on_device() && status == PKV_OK) status = turn.point(work);
    PKV_TRY(status);
    replace_tail(groups, fresh, work);
    return PKV_OK;
}

/// In a group without memory the caller makes the copy: until then the source stays held.
void Table::replace_tail(uint32_t groups, const GroupPages &fresh, const Fences &work) {
    drop_pending_copies();
    GroupPages old;
    old.fill(PKV_NO_PAGE);
    uint64_t copied = 0;
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
        if ((groups >> group & 1) == 0) continue;
        pkv_page &tail = lists_[group][committed_ / page_tokens_];
        if (pool_->memory(group).exists()) {
            old[group] = tail;
        } else {
            copies_[num_copies_++] = pkv_page_copy{group, tail, fresh[group]};
            copy_sources_[group] = tail;
            holds_sources_ = true;
        }
        tail = fresh[group];
        ++copied;
    }
    waits_ |= work;
    pool_->release_pages(old, waits_);
    pool_->count_copies(copied);
    tail_private_ = true;
    version_ = next_version();
}

pkv_status Table::check_copies_taken() const {
    if (num_copies_ == 0) return PKV_OK;
    return fail(PKV_ERR_STATE, "%u copies on write are outstanding: pkv_table_take_copies comes first", num_copies_);
}

void Table::drop_pending_copies() {
    if (!holds_sources_) return;
    num_copies_ = 0;
    holds_sources_ = false;
    pool_->release_pages(copy_sources_, waits_);
    copy_sources_.fill(PKV_NO_PAGE);
}

// ---- fork, truncate ------------------------------------------------------------------------------------------------

pkv_status Table::fork(std::shared_ptr<Table> &out, const Fences &work) {
    PKV_TRY(check_admitted());
    PKV_TRY(check_copies_taken());
    PKV_TRY(check_resident());
    auto twin = Table::make(pool_);
    const auto blocks = static_cast<int64_t>(blocks_for(committed_, page_tokens_));
    twin->tokens_ = tokens_;
    twin->media_ = media_;
    twin->retention_ = retention_;
    for (uint32_t group = 0; group < pool_->num_groups(); ++group)
        twin->lists_[group].assign(lists_[group].begin(), lists_[group].begin() + blocks);
    pool_->retain_sequence(twin->lists_, frontier_);
    twin->frontier_ = frontier_;
    twin->committed_ = committed_;
    twin->matched_ = matched_;
    twin->share_ = share_;
    twin->publish_again_ = publish_again_;
    tail_private_ = committed_ % page_tokens_ == 0;
    twin->tail_private_ = tail_private_;
    pool_->note_written(lists_, 0, static_cast<uint64_t>(blocks), work);
    waits_ |= work;
    twin->waits_ = waits_;
    out = std::move(twin);
    return PKV_OK;
}

pkv_status Table::truncate(uint64_t num_tokens, const Fences &work) {
    if (!lost_ || num_tokens > valid_) PKV_TRY(check_admitted());
    const uint64_t blocks = std::min<uint64_t>(blocks_for(num_tokens, page_tokens_), num_blocks());
    const uint64_t length = std::min(num_tokens, committed_);
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
        const uint64_t window = pool_->geometry(group).window;
        if (pool_->group(group).full() || length == 0) continue;
        for (uint64_t block = length > window ? (length - window) / page_tokens_ : 0;
             block <= (length - 1) / page_tokens_; ++block)
            if (lists_[group][block] == PKV_NO_PAGE && !absent_.contains(block))
                return fail(PKV_ERR_STATE,
                            "truncate to %" PRIu64 " tokens: the window of group %u would reach block %" PRIu64
                            ", which was dropped",
                            num_tokens, group, block);
    }
    note_leaving(work);
    if (blocks <= committed_ / page_tokens_) drop_pending_copies(); // the block that they were for goes
    forget_absent_from(blocks);
    lost_ = false;
    // The frontier first: once its pages are released its node may go at any time.
    pool_->retreat(frontier_, num_tokens / page_tokens_);
    if (blocks < num_blocks()) {
        pool_->release_blocks(lists_, blocks, waits_);
        for (auto &list : lists_) list.resize(std::min<uint64_t>(list.size(), blocks));
        version_ = next_version();
    }
    if (num_tokens < tokens_.size()) tokens_.resize(num_tokens);
    drop_media_behind_names();
    for (uint64_t &end : written_) end = std::min(end, num_tokens);
    if (num_tokens < committed_) {
        sequence_ = next_version();
        committed_ = num_tokens;
        tail_private_ = false; // may now lie in a block that is published
    }
    matched_ = std::min(matched_, num_tokens);
    for (uint64_t &passed : passed_) passed = std::min(passed, blocks);
    if (publish_again_ != UINT64_MAX) publish_again_ = 0;
    return PKV_OK;
}

// ---- drafts --------------------------------------------------------------------------------------------------------

pkv_status Table::accept(std::span<const uint64_t> positions, Turn &turn) {
    PKV_TRY(check_admitted());
    for (size_t i = 0; i < positions.size(); ++i)
        if (positions[i] < committed_ || positions[i] >= reserved() || (i > 0 && positions[i] <= positions[i - 1]))
            return fail(PKV_ERR_INVALID,
                        "positions[%zu] is %" PRIu64 ": not ascending from %" PRIu64 " committed to below %" PRIu64
                        " reserved",
                        i, positions[i], committed_, reserved());
    PKV_TRY(check_copies_taken());
    PKV_TRY(check_tail_resident());
    scratch_.reserve(2 * positions.size()); // nothing throws once a block was copied
    if (!positions.empty()) {
        if (!pool_->has_memory() && tail_is_shared())
            return fail(PKV_ERR_STATE, "the block at token %" PRIu64 " is shared: no rows can have been moved there",
                        committed_);
        PKV_TRY(make_tail_private(turn));
    }
    Fences work;
    if (turn.on_device()) PKV_TRY(wait_for_rows(turn));
    for (uint32_t group = 0; group < pool_->num_groups(); ++group)
        if (pool_->memory(group).exists()) PKV_TRY(move_rows(group, positions, turn));
    if (turn.on_device()) {
        PKV_TRY(turn.named(work));
        if (turn.waits()) PKV_TRY(turn.finish());
        pool_->note_written(lists_, committed_ / page_tokens_, blocks_for(committed_ + positions.size(), page_tokens_),
                            work);
        waits_ |= work;
    }
    drop_pending_copies();

    move_media(positions);
    const uint64_t end = committed_ + positions.size();
    uint64_t named = committed_;
    for (const uint64_t position : positions) {
        if (position >= tokens_.size()) break; // named later, at its new place
        tokens_[named++] = tokens_[position];
    }
    if (named < tokens_.size()) tokens_.resize(named);
    drop_media_behind_names();
    if (end / page_tokens_ != committed_ / page_tokens_) tail_private_ = true;
    committed_ = end;
    for (uint64_t &written : written_) written = std::min(written, end);
    publish();
    return PKV_OK;
}

/// Media among the drafts stay with the first of their tokens that is accepted, and go where none is.
void Table::move_media(std::span<const uint64_t> positions) {
    for (auto media = media_.begin(); media != media_.end();) {
        if (media->position < committed_) {
            ++media;
            continue;
        }
        uint64_t end = 0;
        if (__builtin_add_overflow(media->position, std::max<uint64_t>(media->num_tokens, 1), &end)) end = UINT64_MAX;
        const auto first = std::lower_bound(positions.begin(), positions.end(), media->position);
        const auto last = std::lower_bound(first, positions.end(), end);
        if (first == last) {
            media = media_.erase(media);
            continue;
        }
        media->position = committed_ + static_cast<uint64_t>(first - positions.begin());
        media->num_tokens = std::min<uint64_t>(media->num_tokens, static_cast<uint64_t>(last - first));
        ++media;
    }
}

/// Moves the rows at positions[i] to committed + i. Positions ascend and never lie before their targets.
pkv_status Table::move_rows(uint32_t group, std::span<const uint64_t> positions, Turn &turn) {
    size_t first = 0; // that moves: so do all after it
    while (first < positions.size() && positions[first] == committed_ + first) ++first;
    const size_t count = positions.size() - first;
    scratch_.resize(2 * count);
    for (size_t i = 0; i < count; ++i) {
        scratch_[i] = slot_of(group, positions[first + i]);
        scratch_[count + i] = slot_of(group, committed_ + first + i);
    }
    return pool_->move_rows(group, {scratch_.data(), count}, {scratch_.data() + count, count}, turn);
}

// ---- windows -------------------------------------------------------------------------------------------------------

pkv_status Table::window(const Fences &work) {
    PKV_TRY(check_admitted());
    note_leaving(work);
    const uint64_t committed_blocks = blocks_for(committed_, page_tokens_);
    GroupCounts first{};
    GroupCounts end{};
    BlockLists passed; // all of them before anything changes
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
        if (pool_->group(group).full()) continue;
        const uint64_t sinks = blocks_for(pool_->geometry(group).sinks, page_tokens_);
        first[group] = end[group] = std::max(passed_[group], sinks);
        for (; end[group] < committed_blocks && !pool_->group(group).reaches(end[group], committed_); ++end[group])
            if (lists_[group][end[group]] != PKV_NO_PAGE) passed[group].push_back(lists_[group][end[group]]);
    }
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
        if (pool_->group(group).full()) continue;
        passed_[group] = end[group];
        forget_passed(group, first[group], end[group]);
        if (passed[group].empty()) continue;
        pool_->release_passed(group, passed[group], waits_);
        std::fill(lists_[group].begin() + static_cast<int64_t>(first[group]),
                  lists_[group].begin() + static_cast<int64_t>(end[group]), PKV_NO_PAGE);
        version_ = next_version();
    }
    return PKV_OK;
}

} // namespace pkv
