// SPDX-License-Identifier: Apache-2.0
#include "table/table.h"

#include "core/status.h"
#include "tensor/kernels.h"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <new>

namespace pkv {
namespace {

constexpr uint64_t max_tokens = uint64_t{1} << 40;
constexpr size_t max_retention_ranges = 64;

} // namespace

uint64_t Table::next_version() {
    static std::atomic<uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

Table::Table(std::shared_ptr<Pool> pool)
    : pool_(std::move(pool)), version_(next_version()), sequence_(version_), page_tokens_(pool_->page_tokens()) {
    uint32_t layers = 0;
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
        first_layer_[group] = layers;
        layers += pool_->geometry(group).num_layers;
    }
    written_.resize(layers);
    copy_sources_.fill(PKV_NO_PAGE);
    pool_->count_table(1);
}

std::shared_ptr<Table> Table::make(std::shared_ptr<Pool> pool) {
    auto table = std::make_shared<Table>(std::move(pool));
    table->self_ = table;
    return table;
}

Table::~Table() {
    clear();
    pool_->count_table(-1);
}

pkv_status Table::check_open() const {
    if (pool_->closed()) return fail(PKV_ERR_CLOSED, "the table's pool was destroyed");
    return PKV_OK;
}

pkv_status Table::check_admitted() const {
    if (!admitted()) return fail(PKV_ERR_STATE, "the table has no sequence: pkv_table_admit comes first");
    if (lost_)
        return fail(PKV_ERR_LOST,
                    "blocks could not be loaded: the first %" PRIu64 " tokens are still valid, truncate to them",
                    valid_);
    return PKV_OK;
}

void Table::clear(const Fences &work) {
    note_leaving(work);
    drop_pending_copies();
    forget_absent_from(0);
    lost_ = false;
    pool_->release_sequence(lists_, frontier_, waits_);
    waits_ = {};
    stream_open_ = false;
    for (auto &list : lists_) list.clear();
    tokens_.clear();
    media_.clear();
    retention_.clear();
    passed_.fill(0);
    publish_again_ = 0;
    std::fill(written_.begin(), written_.end(), 0);
    committed_ = matched_ = 0;
    tail_private_ = share_ = false;
    version_ = sequence_ = next_version();
}

pkv_status Table::admit(const prefix::Prompt &prompt, const pkv_admit_options &options, pkv_match &match,
                        bool counted) {
    if (admitted()) return fail(PKV_ERR_STATE, "the table has a sequence of %zu tokens already", tokens_.size());
    const uint64_t num_tokens = prompt.tokens.size();
    if (options.reserve_tokens > max_tokens)
        return fail(PKV_ERR_LIMIT, "reserve_tokens is %" PRIu64 ", more than 2^40", options.reserve_tokens);

    Admission admission;
    admission.max_match = options.max_match;
    if (admission.max_match == 0) admission.max_match = num_tokens > 0 ? num_tokens - 1 : 0;
    if ((options.flags & PKV_ADMIT_NO_MATCH) != 0) admission.max_match = 0;
    admission.prompt_tokens = num_tokens;
    admission.reserve_tokens = options.reserve_tokens;
    admission.watermark = options.watermark;
    admission.counted = counted;
    admission.retry = (options.flags & PKV_ADMIT_RETRY) != 0;
    admission.partial = (options.flags & PKV_ADMIT_PARTIAL) != 0 && pool_->has_memory();
    admission.partial_pages.fill(PKV_NO_PAGE);
    admission.use_tiers = pool_->tiers() != nullptr && admission.max_match > 0;

    // What may throw comes before the pool changes; a failed admission leaves the table empty.
    std::vector<pkv_token> tokens(prompt.tokens.begin(), prompt.tokens.end());
    std::vector<prefix::Media> media = prompt.media;
    PKV_TRY(pool_->admit(prompt, admission, lists_, frontier_));
    waits_ = admission.waits;
    tokens_ = std::move(tokens);
    media_ = std::move(media);
    share_ = (options.flags & PKV_ADMIT_SHARE) != 0;
    tail_private_ = true; // whole blocks match: nothing after them is shared
    for (uint64_t i = 0; i < admission.absent.size(); ++i)
        absent_.emplace_hint(absent_.end(), admission.matched_blocks + i, admission.absent[i]);
    committed_ = (admission.matched_blocks + admission.absent.size()) * page_tokens_;
    if (const pkv_status status = take_partial_match(admission); status != PKV_OK) {
        clear();
        return status;
    }
    matched_ = committed_;
    match.tokens = matched_;
    match.blocks = blocks_for(matched_, page_tokens_);
    match.resident_tokens = matched_ - absent_.size() * page_tokens_;
    count_absent(match.tier_tokens);
    return PKV_OK;
}

/// Copies the tokens that matched inside the first new block.
pkv_status Table::take_partial_match(Admission &admission) {
    if (admission.partial_tokens == 0) return PKV_OK;
    Turn turn;
    Fences work;
    pkv_status status = PKV_OK;
    pool_->begin_unasked(turn);
    if (turn.on_device()) status = turn.after(waits_);
    for (uint32_t group = 0; group < pool_->num_groups() && status == PKV_OK; ++group)
        status = pool_->copy_page_bytes(group, admission.partial_pages[group], lists_[group][admission.matched_blocks],
                                        static_cast<uint32_t>(admission.partial_tokens), turn);
    if (turn.on_device() && status == PKV_OK) status = turn.point(work);
    waits_ |= work;
    pool_->release_pages(admission.partial_pages, work);
    if (status == PKV_OK) committed_ += admission.partial_tokens;
    return status;
}

pkv_status Table::reserve(uint64_t num_tokens) {
    PKV_TRY(check_admitted());
    if (num_tokens > max_tokens) return fail(PKV_ERR_LIMIT, "%" PRIu64 " tokens reserved, more than 2^40", num_tokens);
    if (num_tokens > committed_) PKV_TRY(check_tail_resident());
    const uint64_t blocks = std::max<uint64_t>(blocks_for(num_tokens, page_tokens_), num_blocks());
    const uint64_t grow = blocks - num_blocks();
    const uint32_t copy = num_tokens > committed_ ? shared_tail_groups() : 0;
    if (grow == 0 && copy == 0) return PKV_OK;
    Turn turn;
    if (copy != 0) pool_->begin_unasked(turn);
    return extend(grow, copy, turn);
}

// ---- tokens and publication ----------------------------------------------------------------------------------------

pkv_status Table::set_tokens(uint64_t position, std::span<const pkv_token> tokens) {
    PKV_TRY(check_admitted());
    const uint64_t named = tokens_.size();
    if (position > named)
        return fail(PKV_ERR_INVALID, "position %" PRIu64 " leaves a gap: %" PRIu64 " tokens are named", position,
                    named);
    if (tokens.size() > max_tokens - position)
        return fail(PKV_ERR_LIMIT, "position %" PRIu64 " + %zu tokens pass 2^40", position, tokens.size());
    const uint64_t known = std::min<uint64_t>(named - position, tokens.size());
    const auto difference = std::mismatch(tokens.begin(), tokens.begin() + static_cast<int64_t>(known),
                                          tokens_.begin() + static_cast<int64_t>(position))
                                .first;
    const auto equal = static_cast<uint64_t>(difference - tokens.begin());
    if (equal < known && position + equal < committed_)
        return fail(PKV_ERR_INVALID, "position %" PRIu64 " is committed as token %d and cannot become %d",
                    position + equal, tokens_[position + equal], *difference);
    if (equal == tokens.size()) return PKV_OK;
    // Another id: what was named behind it belonged to another continuation.
    const uint64_t end = position + tokens.size();
    if (end > tokens_.capacity()) tokens_.reserve(std::max<uint64_t>(end, tokens_.capacity() * 2));
    if (position + equal < named) {
        tokens_.resize(position + equal);
        drop_media_behind_names();
    }
    if (end - position - equal == 1)
        tokens_.push_back(*difference); // what a decode step adds, without memmove's overhead
    else
        tokens_.insert(tokens_.end(), difference, tokens.end());
    publish();
    return PKV_OK;
}

/// Media go with the names of their placeholders: what comes in their place later has no part in them.
void Table::drop_media_behind_names() {
    while (!media_.empty() && media_.back().position >= tokens_.size()) media_.pop_back();
}

pkv_status Table::commit(uint64_t num_tokens, const Fences &work) {
    PKV_TRY(check_admitted());
    if (num_tokens < committed_ || num_tokens > reserved())
        return fail(PKV_ERR_INVALID, "commit of %" PRIu64 " tokens: %" PRIu64 " are committed and %" PRIu64 " reserved",
                    num_tokens, committed_, reserved());
    if (num_tokens > committed_) PKV_TRY(check_tail_resident());
    if (num_tokens > committed_ && tail_is_shared())
        return fail(PKV_ERR_STATE,
                    "commit of %" PRIu64 " tokens: the block at token %" PRIu64
                    " is shared, so nothing can have been written there: reserve first",
                    num_tokens, committed_);
    if (num_tokens > committed_) PKV_TRY(check_copies_taken());
    if (num_tokens > committed_) drop_pending_copies();
    // A block after the old tail is room of this table's own.
    if (num_tokens / page_tokens_ != committed_ / page_tokens_) tail_private_ = true;
    if (!work.none()) {
        pool_->note_written(lists_, committed_ / page_tokens_, blocks_for(num_tokens, page_tokens_), work);
        waits_ |= work;
    }
    stream_open_ = false;
    committed_ = num_tokens;
    publish();
    return PKV_OK;
}

void Table::publish_blocks(uint64_t end, bool share) {
    if (!absent_.empty()) end = std::min(end, absent_.begin()->first); // what is not here cannot be found here
    if (frontier_.blocks >= end || end < publish_again_) return;
    try {
        bool replaced = false;
        const Publication result =
            pool_->publish_sequence(tokens_, media_, lists_, end, share, retention_, frontier_, replaced, waits_);
        if (replaced) version_ = next_version();
        // Each try hashes what is still to be published: after one in vain the next waits until that has doubled.
        if (result == Publication::full) publish_again_ = end + (end - frontier_.blocks);
        if (result == Publication::over) publish_again_ = UINT64_MAX;
    } catch (const std::bad_alloc &) {
        // The sequence itself is complete. Its blocks become findable with the next commit that finds memory.
    }
}

void Table::prefetch_commit(uint64_t num_tokens) const {
    const uint64_t next = (frontier_.blocks + 1) * page_tokens_;
    if (num_tokens >= next && tokens_.size() >= next) pool_->prefetch_publication(tokens_, media_, frontier_);
}

pkv_status Table::set_retention(const RetentionRange &range) {
    PKV_TRY(check_admitted());
    if (retention_.size() == max_retention_ranges)
        return fail(PKV_ERR_LIMIT, "the table has %zu retention ranges", retention_.size());
    retention_.reserve(retention_.size() + 1);
    pool_->set_sequence_retention(frontier_, tokens_, media_, range);
    retention_.push_back(range);
    return PKV_OK;
}

// ---- rows ----------------------------------------------------------------------------------------------------------

pkv_status Table::check_range(uint64_t position, uint64_t count, const char *what) const {
    if (position > reserved() || count > reserved() - position)
        return fail(PKV_ERR_INVALID, "%s of tokens %" PRIu64 " + %" PRIu64 ": %" PRIu64 " are reserved", what, position,
                    count, reserved());
    return PKV_OK;
}

pkv_slot Table::slot_of(uint32_t group, uint64_t position) const {
    const pkv_page page = lists_[group][position / page_tokens_];
    if (page == PKV_NO_PAGE) return PKV_NO_SLOT;
    return static_cast<pkv_slot>(page) * page_tokens_ + static_cast<pkv_slot>(position % page_tokens_);
}

void Table::fill_slots(uint32_t group, uint64_t position, uint64_t count, pkv_slot *out) const {
    for (uint64_t i = 0; i < count;) {
        const pkv_slot first = slot_of(group, position + i);
        const uint64_t run = std::min(count - i, page_tokens_ - (position + i) % page_tokens_);
        for (uint64_t j = 0; j < run; ++j) out[i + j] = first == PKV_NO_SLOT ? first : first + static_cast<pkv_slot>(j);
        i += run;
    }
}

pkv_status Table::slots(uint32_t group, uint64_t position, uint64_t count, pkv_slot *out) {
    PKV_TRY(check_admitted());
    PKV_TRY(check_range(position, count, "slots"));
    PKV_TRY(check_resident(position, count));
    if (count > 0 && position + count > committed_) {
        Turn turn;
        if (shared_tail_groups() != 0) pool_->begin_unasked(turn);
        PKV_TRY(make_tail_private(turn));
    }
    PKV_TRY(make_ready());
    fill_slots(group, position, count, out);
    return PKV_OK;
}

pkv_status Table::write(uint32_t group, uint32_t layer, uint64_t position, uint64_t count, const pkv_tensor *k,
                        const pkv_tensor *v, Turn &turn) {
    PKV_TRY(check_admitted());
    PKV_TRY(pool_->need_memory(group));
    if (position < committed_)
        return fail(PKV_ERR_INVALID,
                    "write at token %" PRIu64 ": %" PRIu64 " are committed and do not change (truncate first)",
                    position, committed_);
    PKV_TRY(check_range(position, count, "write"));
    CallerTensors rows;
    PKV_TRY(pool_->source_rows(group, k, v, count, rows));
    if (count == 0) return PKV_OK;
    PKV_TRY(check_tail_resident());
    scratch_.resize(count);
    if (position / page_tokens_ == committed_ / page_tokens_) PKV_TRY(make_tail_private(turn));
    fill_slots(group, position, count, scratch_.data());
    if (turn.on_device()) PKV_TRY(turn.after(waits()));
    PKV_TRY(pool_->write_rows(group, layer, scratch_, rows, turn));
    note_stream(turn);
    note_written(group, layer, position, count);
    return PKV_OK;
}

/// Pages are about to be given back: what may still use them besides `work`.
void Table::note_leaving(const Fences &work) {
    waits_ |= work;
    if (!stream_open_) return;
    stream_open_ = false;
    Device &device = *pool_->device();
    pkv_status status = PKV_ERR_NO_MEMORY;
    try {
        Fences rows;
        status = device.order().mark(stream_, rows);
        waits_ |= rows;
    } catch (const std::bad_alloc &) {
    }
    if (status != PKV_OK) (void)device.call("a stream", &pkv_device_table::wait_stream, stream_);
}

void Table::note_stream(const Turn &turn) {
    if (!turn.on_device() || turn.waits() || turn.captured()) return;
    stream_open_ = true;
    stream_ = turn.given();
}

uint64_t Table::readable(uint32_t group, uint32_t layer) const {
    return std::max(committed_, written_[first_layer_[group] + layer]);
}

void Table::note_written(uint32_t group, uint32_t layer, uint64_t position, uint64_t count) {
    const uint64_t end = readable(group, layer);
    if (position <= end) written(group, layer) = std::max(end, position + count);
}

pkv_status Table::check_readable(uint32_t group, uint32_t layer, uint64_t position, uint64_t count) const {
    PKV_TRY(check_admitted());
    const uint64_t end = readable(group, layer);
    if (position > end || count > end - position)
        return fail(PKV_ERR_INVALID,
                    "gather of tokens %" PRIu64 " + %" PRIu64 " of layer %u: %" PRIu64 " are written or committed",
                    position, count, layer, end);
    if (pool_->group(group).full() || count == 0) return PKV_OK;
    for (uint64_t block = position / page_tokens_; block <= (position + count - 1) / page_tokens_; ++block)
        if (lists_[group][block] == PKV_NO_PAGE && !absent_.contains(block))
            return fail(PKV_ERR_NOT_RESIDENT, "block %" PRIu64 " of group %u was dropped: the window has passed it",
                        block, group);
    return PKV_OK;
}

pkv_status Table::gather(uint32_t group, uint32_t layer, uint64_t position, uint64_t count, const pkv_tensor *k,
                         const pkv_tensor *v, Turn &turn) {
    PKV_TRY(pool_->need_memory(group));
    PKV_TRY(check_readable(group, layer, position, count));
    CallerTensors rows;
    PKV_TRY(pool_->target_rows(group, k, v, count, rows));
    if (turn.captured()) PKV_TRY(check_resident(position, count));
    PKV_TRY(make_resident(position, count));
    if (turn.on_device()) PKV_TRY(turn.after(waits()));
    return pool_->read_rows(group, layer, lists_[group].data(), position, count, rows, turn);
}

void Table::info(pkv_table_info &out) const {
    out.named = tokens_.size();
    out.reserved = reserved();
    out.committed = committed_;
    out.published = frontier_.blocks * page_tokens_;
    out.matched = matched_;
    out.valid = lost_ ? valid_ : committed_;
    out.absent_blocks = absent_.size();
    out.blocks = num_blocks();
    out.committed_blocks = blocks_for(committed_, page_tokens_);
}

} // namespace pkv
