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

/// Unique over all tables, so that equal versions mean the same table.
uint64_t next_version() {
    static std::atomic<uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

} // namespace

Table::Table(std::shared_ptr<Pool> pool) : pool_(std::move(pool)), page_tokens_(pool_->page_tokens()), version_(next_version()) {
    pool_->count_table(1);
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
    return PKV_OK;
}

void Table::clear() {
    pool_->release_sequence(pages_, frontier_);
    pages_.clear();
    tokens_.clear();
    media_.clear();
    committed_ = matched_ = 0;
    tail_private_ = false;
    version_ = next_version();
}

pkv_status Table::admit(const prefix::Prompt &prompt, const pkv_admit_options &options, pkv_match &match) {
    if (admitted()) return fail(PKV_ERR_STATE, "the table has a sequence of %zu tokens already", tokens_.size());
    const uint64_t num_tokens = prompt.tokens.size();
    uint64_t max_match = options.max_match;
    if (max_match == 0) max_match = num_tokens > 0 ? num_tokens - 1 : 0;
    if ((options.flags & PKV_ADMIT_NO_MATCH) != 0) max_match = 0;
    if (options.reserve_tokens > max_tokens)
        return fail(PKV_ERR_LIMIT, "reserve_tokens is %" PRIu64 ", more than 2^40", options.reserve_tokens);

    Admission admission;
    admission.max_blocks = std::min(max_match, num_tokens) / page_tokens_;
    admission.prompt_tokens = num_tokens;
    admission.reserve_tokens = options.reserve_tokens;
    admission.watermark = options.watermark;
    admission.retry = (options.flags & PKV_ADMIT_RETRY) != 0;

    // What may throw comes before the pool changes; a failed admission leaves the table empty.
    std::vector<pkv_token> tokens(prompt.tokens.begin(), prompt.tokens.end());
    std::vector<prefix::Media> media = prompt.media;
    std::vector<uint64_t> written(pool_->geometry().num_layers);
    uint64_t blocks = 0;
    PKV_TRY(pool_->admit(prompt, admission, pages_, frontier_, blocks));
    tokens_ = std::move(tokens);
    media_ = std::move(media);
    matched_ = committed_ = blocks * page_tokens_;
    std::fill(written.begin(), written.end(), committed_);
    written_ = std::move(written);
    tail_private_ = true; // a match ends at a block boundary: nothing after it is shared
    match.tokens = matched_;
    match.blocks = blocks;
    return PKV_OK;
}

// ---- room ----------------------------------------------------------------------------------------------------------

bool Table::tail_is_shared() {
    if (tail_private_ || committed_ % page_tokens_ == 0) return false;
    tail_private_ = pool_->is_private(pages_[committed_ / page_tokens_]);
    return !tail_private_;
}

/// Copy-on-write: `fresh` takes the place of the page at `committed`. All rows are copied, since rows after `committed` may
/// have been written as well.
void Table::replace_tail(pkv_page fresh) {
    pkv_page &tail = pages_[committed_ / page_tokens_];
    pool_->copy_page_bytes(tail, fresh);
    pool_->release_held({&tail, 1});
    tail = fresh;
    tail_private_ = true;
    version_ = next_version();
    pool_->count_copies(1);
}

pkv_status Table::make_tail_private() {
    if (!tail_is_shared()) return PKV_OK;
    PKV_TRY(pool_->need_memory());
    pkv_page fresh = PKV_NO_PAGE;
    PKV_TRY(pool_->alloc(1, &fresh));
    replace_tail(fresh);
    return PKV_OK;
}

pkv_status Table::reserve(uint64_t num_tokens) {
    PKV_TRY(check_admitted());
    if (num_tokens > max_tokens)
        return fail(PKV_ERR_LIMIT, "%" PRIu64 " tokens reserved, more than 2^40", num_tokens);
    const uint64_t blocks = std::max<uint64_t>(blocks_for(num_tokens, page_tokens_), pages_.size());
    const uint64_t grow = blocks - pages_.size();
    const bool copy = num_tokens > committed_ && tail_is_shared();
    if (copy) PKV_TRY(pool_->need_memory());
    if (grow == 0) return copy ? make_tail_private() : PKV_OK;

    if (grow > pool_->geometry().num_pages) return pool_->alloc(grow, nullptr); // which says what is missing
    // One allocation for both, so that there is all or nothing. The copy's page comes first and is taken out again.
    const uint64_t had = pages_.size();
    if (pages_.capacity() < blocks + 1) pages_.reserve(std::max<uint64_t>(blocks + 1, pages_.capacity() * 2));
    pages_.resize(had + grow + (copy ? 1 : 0));
    if (const pkv_status status = pool_->alloc(pages_.size() - had, pages_.data() + had); status != PKV_OK) {
        pages_.resize(had);
        return status;
    }
    if (copy) {
        const pkv_page fresh = pages_.back();
        pages_.pop_back();
        replace_tail(fresh);
    }
    return PKV_OK;
}

// ---- tokens and publication ----------------------------------------------------------------------------------------

pkv_status Table::set_tokens(uint64_t position, std::span<const pkv_token> tokens) {
    PKV_TRY(check_admitted());
    const uint64_t named = tokens_.size();
    if (position > named)
        return fail(PKV_ERR_INVALID, "position %" PRIu64 " leaves a gap: %" PRIu64 " tokens are named", position, named);
    if (tokens.size() > max_tokens - position)
        return fail(PKV_ERR_LIMIT, "position %" PRIu64 " + %zu tokens pass 2^40", position, tokens.size());
    const uint64_t known = std::min<uint64_t>(named - position, tokens.size());
    const auto difference =
        std::mismatch(tokens.begin(), tokens.begin() + static_cast<int64_t>(known),
                      tokens_.begin() + static_cast<int64_t>(position))
            .first;
    const auto equal = static_cast<uint64_t>(difference - tokens.begin());
    if (equal < known && position + equal < committed_)
        return fail(PKV_ERR_INVALID, "position %" PRIu64 " is committed as token %d and cannot become %d", position + equal,
                    tokens_[position + equal], *difference);
    if (equal == tokens.size()) return PKV_OK;
    // Another id: what was named behind it belonged to another continuation.
    const uint64_t end = position + tokens.size();
    if (end > tokens_.capacity()) tokens_.reserve(std::max<uint64_t>(end, tokens_.capacity() * 2));
    tokens_.resize(position + equal);
    tokens_.insert(tokens_.end(), difference, tokens.end());
    publish();
    return PKV_OK;
}

pkv_status Table::commit(uint64_t num_tokens) {
    PKV_TRY(check_admitted());
    if (num_tokens < committed_ || num_tokens > reserved())
        return fail(PKV_ERR_INVALID, "commit of %" PRIu64 " tokens: %" PRIu64 " are committed and %" PRIu64 " reserved",
                    num_tokens, committed_, reserved());
    if (num_tokens > committed_ && tail_is_shared())
        return fail(PKV_ERR_STATE, "commit of %" PRIu64 " tokens: the block at token %" PRIu64
                    " is shared, so nothing can have been written there: reserve first", num_tokens, committed_);
    // A block after the old tail is room of this table's own.
    if (num_tokens / page_tokens_ != committed_ / page_tokens_) tail_private_ = true;
    committed_ = num_tokens;
    for (uint64_t &end : written_) end = std::max(end, num_tokens);
    publish();
    return PKV_OK;
}

void Table::publish() {
    const uint64_t end = std::min<uint64_t>(committed_, tokens_.size()) / page_tokens_;
    if (frontier_.blocks >= end) return;
    try {
        pool_->publish_sequence(tokens_, media_, pages_, end, frontier_);
    } catch (const std::bad_alloc &) {
        // The sequence itself is complete. Its blocks become findable with the next commit that finds memory.
    }
}

// ---- rows ----------------------------------------------------------------------------------------------------------

pkv_status Table::check_range(uint64_t position, uint64_t count, const char *what) const {
    if (position > reserved() || count > reserved() - position)
        return fail(PKV_ERR_INVALID, "%s of tokens %" PRIu64 " + %" PRIu64 ": %" PRIu64 " are reserved", what, position,
                    count, reserved());
    return PKV_OK;
}

void Table::fill_slots(uint64_t position, uint64_t count, pkv_slot *out) const {
    uint64_t block = position / page_tokens_;
    uint64_t offset = position % page_tokens_;
    for (uint64_t i = 0; i < count; ++i) {
        out[i] = static_cast<pkv_slot>(pages_[block]) * page_tokens_ + static_cast<pkv_slot>(offset);
        if (++offset == page_tokens_) {
            offset = 0;
            ++block;
        }
    }
}

pkv_status Table::slots(uint64_t position, uint64_t count, pkv_slot *out) {
    PKV_TRY(check_admitted());
    PKV_TRY(check_range(position, count, "slots"));
    if (count > 0 && position + count > committed_) PKV_TRY(make_tail_private());
    fill_slots(position, count, out);
    return PKV_OK;
}

pkv_status Table::write(uint32_t layer, uint64_t position, uint64_t count, const pkv_tensor *k, const pkv_tensor *v) {
    PKV_TRY(check_admitted());
    PKV_TRY(pool_->need_memory());
    if (position < committed_)
        return fail(PKV_ERR_INVALID, "write at token %" PRIu64 ": %" PRIu64 " are committed and do not change (truncate first)",
                    position, committed_);
    PKV_TRY(check_range(position, count, "write"));
    FlatRows k_rows;
    FlatRows v_rows;
    PKV_TRY(pool_->source_rows(k, v, count, k_rows, v_rows));
    if (count == 0) return PKV_OK;
    scratch_.resize(count);
    if (position / page_tokens_ == committed_ / page_tokens_) PKV_TRY(make_tail_private());
    fill_slots(position, count, scratch_.data());
    tensor::write_slots(pool_->memory().layer(layer), scratch_, k_rows, v_rows, pool_->workers());
    note_written(layer, position, count);
    return PKV_OK;
}

void Table::note_written(uint32_t layer, uint64_t position, uint64_t count) {
    uint64_t &end = written_[layer];
    if (position <= end) end = std::max(end, position + count);
}

pkv_status Table::check_readable(uint32_t layer, uint64_t position, uint64_t count) const {
    PKV_TRY(check_admitted());
    const uint64_t readable = written_[layer];
    if (position > readable || count > readable - position)
        return fail(PKV_ERR_INVALID,
                    "gather of tokens %" PRIu64 " + %" PRIu64 " of layer %u: %" PRIu64 " are written or committed", position,
                    count, layer, readable);
    return PKV_OK;
}

pkv_status Table::gather(uint32_t layer, uint64_t position, uint64_t count, const pkv_tensor *k, const pkv_tensor *v) {
    PKV_TRY(pool_->need_memory());
    PKV_TRY(check_readable(layer, position, count));
    FlatRows k_rows;
    FlatRows v_rows;
    PKV_TRY(pool_->target_rows(k, v, count, k_rows, v_rows));
    if (count == 0) return PKV_OK;
    tensor::gather_pages(pool_->memory().layer(layer), pages_.data(), position, count, k_rows, v_rows, pool_->workers());
    return PKV_OK;
}

// ---- fork and truncate ---------------------------------------------------------------------------------------------

pkv_status Table::fork(std::shared_ptr<Table> &out) {
    PKV_TRY(check_admitted());
    auto twin = std::make_shared<Table>(pool_);
    const uint64_t blocks = blocks_for(committed_, page_tokens_);
    twin->tokens_ = tokens_;
    twin->media_ = media_;
    twin->written_.assign(written_.size(), committed_);
    twin->pages_.assign(pages_.begin(), pages_.begin() + static_cast<int64_t>(blocks));
    pool_->retain_sequence(twin->pages_, frontier_);
    twin->frontier_ = frontier_;
    twin->committed_ = committed_;
    twin->matched_ = matched_;
    tail_private_ = committed_ % page_tokens_ == 0;
    twin->tail_private_ = tail_private_;
    out = std::move(twin);
    return PKV_OK;
}

void Table::truncate(uint64_t num_tokens) {
    const uint64_t blocks = std::min<uint64_t>(blocks_for(num_tokens, page_tokens_), pages_.size());
    const std::span<const pkv_page> dropped{pages_.data() + blocks, pages_.size() - blocks};
    // The frontier first: once its pages are released its node may go at any time.
    pool_->retreat(frontier_, num_tokens / page_tokens_);
    if (!dropped.empty()) pool_->release_held(dropped);
    if (!dropped.empty()) version_ = next_version();
    pages_.resize(blocks);
    if (num_tokens < tokens_.size()) tokens_.resize(num_tokens);
    while (!media_.empty() && media_.back().position >= tokens_.size()) media_.pop_back();
    for (uint64_t &end : written_) end = std::min(end, num_tokens);
    if (num_tokens < committed_) {
        committed_ = num_tokens;
        tail_private_ = false; // may now lie in a block that is published
    }
    matched_ = std::min(matched_, num_tokens);
}

void Table::info(pkv_table_info &out) const {
    out.named = tokens_.size();
    out.reserved = reserved();
    out.committed = committed_;
    out.published = frontier_.blocks * page_tokens_;
    out.matched = matched_;
    out.blocks = pages_.size();
    out.committed_blocks = blocks_for(committed_, page_tokens_);
}

} // namespace pkv
