// SPDX-License-Identifier: Apache-2.0
#include "table/batch.h"

#include "core/options.h"
#include "core/status.h"
#include "tensor/kernels.h"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstring>
#include <new>

namespace pkv {
namespace {

constexpr uint32_t max_batch_tables = 65536;

/// A value for Table::mark() that no step had before.
uint64_t next_mark() {
    static std::atomic<uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

/// One row's lack of memory must not stop the others.
template <class Function> pkv_status catch_no_memory(Function &&function) {
    try {
        return function();
    } catch (const std::bad_alloc &) {
        return fail(PKV_ERR_NO_MEMORY, "no memory for the step");
    }
}

/// Stores only what changed, so that readers' caches, and copies to a device, see only changes.
template <class T> void store(T *array, uint64_t index, T value) {
    if (array != nullptr && array[index] != value) array[index] = value;
}

} // namespace

pkv_status Batch::create(std::shared_ptr<Pool> pool, const pkv_batch_options &options, std::shared_ptr<Batch> &out) {
    PKV_TRY(pool->check_group(options.group));
    if (options.max_tables == 0 || options.max_tables > max_batch_tables)
        return fail(options.max_tables == 0 ? PKV_ERR_INVALID : PKV_ERR_LIMIT, "max_tables is %u, not 1 to %u",
                    options.max_tables, max_batch_tables);
    if ((options.block_indptr == nullptr) != (options.block_indices == nullptr))
        return fail(PKV_ERR_INVALID, "block_indptr and block_indices go together");
    if (options.block_table != nullptr && options.max_blocks == 0)
        return fail(PKV_ERR_INVALID, "block_table has rows of max_blocks 0");
    if (options.max_indices > INT32_MAX)
        return fail(PKV_ERR_LIMIT, "max_indices is %" PRIu64 ", more than 2^31-1", options.max_indices);
    if (options.reserved != 0) return fail(PKV_ERR_INVALID, "reserved is not 0");
    out = std::make_shared<Batch>(std::move(pool), options);
    return PKV_OK;
}

Batch::Batch(std::shared_ptr<Pool> pool, const pkv_batch_options &options)
    : pool_(std::move(pool)), options_(options), rows_(options.max_tables) {
    // From now on the arrays are known to hold what an empty step has, and only changes are written.
    if (options_.block_table != nullptr)
        std::fill_n(options_.block_table, options_.max_tables * options_.max_blocks, options_.fill);
    if (options_.block_indptr != nullptr) std::fill_n(options_.block_indptr, options_.max_tables + 1, 0);
    if (options_.last_page_len != nullptr) std::fill_n(options_.last_page_len, options_.max_tables, 0);
    if (options_.lengths != nullptr) std::fill_n(options_.lengths, options_.max_tables, 0);
    if (options_.slot_mapping != nullptr) std::fill_n(options_.slot_mapping, options_.max_tokens, PKV_NO_SLOT);
}

pkv_status Batch::check_open() const {
    if (pool_->closed()) return fail(PKV_ERR_CLOSED, "the batch's pool was destroyed");
    return PKV_OK;
}

pkv_status Batch::check_step() const {
    if (!in_step_) return fail(PKV_ERR_STATE, "no step is under way: pkv_batch_reserve begins one");
    return PKV_OK;
}

pkv_status Batch::first_failure() const {
    for (uint32_t i = 0; i < num_rows_; ++i)
        if (rows_[i].status != PKV_OK) return rows_[i].status;
    return PKV_OK;
}

pkv_status Batch::report(pkv_status *statuses) const {
    if (statuses != nullptr)
        for (uint32_t i = 0; i < num_rows_; ++i) statuses[i] = rows_[i].status;
    return first_failure();
}

// ---- the step ------------------------------------------------------------------------------------------------------

void Batch::end_step() {
    for (Row &row : step_rows()) row.table.reset();
    in_step_ = false;
}

pkv_status Batch::pin_tables(std::span<pkv_table *const> tables, const uint32_t *num_new) {
    const uint64_t mark = next_mark();
    num_rows_ = static_cast<uint32_t>(tables.size());
    for (uint32_t i = 0; i < num_rows_; ++i) {
        Row &row = rows_[i];
        PKV_TRY(row.table.acquire(tables[i]));
        Table &table = *row.table;
        if (&table.pool() != pool_.get()) return fail(PKV_ERR_INVALID, "tables[%u] is of another pool", i);
        if (!table.mark(mark)) return fail(PKV_ERR_INVALID, "tables[%u] is listed twice", i);
        row.begin = table.committed();
        row.num_new = num_new[i];
        row.length = row.begin + row.num_new;
        row.status = table.check_admitted();
    }
    return PKV_OK;
}

/// Whether the arrays can describe the step.
pkv_status Batch::check_room() {
    uint64_t tokens = 0;
    uint64_t indices = 0;
    for (uint32_t i = 0; i < num_rows_; ++i) {
        const Row &row = rows_[i];
        if (row.length > INT32_MAX)
            return fail(PKV_ERR_LIMIT, "tables[%u] has %" PRIu64 " tokens, more than the int32 arrays can say", i, row.length);
        const uint64_t blocks = blocks_of(row.length);
        if (options_.block_table != nullptr && blocks > options_.max_blocks)
            return fail(PKV_ERR_LIMIT, "tables[%u] has %" PRIu64 " blocks, max_blocks is %" PRIu64, i, blocks,
                        options_.max_blocks);
        tokens += row.num_new;
        indices += blocks;
    }
    if (options_.slot_mapping != nullptr && tokens > options_.max_tokens)
        return fail(PKV_ERR_LIMIT, "%" PRIu64 " new tokens, max_tokens is %" PRIu64, tokens, options_.max_tokens);
    if (options_.block_indices != nullptr && indices > options_.max_indices)
        return fail(PKV_ERR_LIMIT, "%" PRIu64 " blocks, max_indices is %" PRIu64, indices, options_.max_indices);
    slots_.resize(tokens);
    return PKV_OK;
}

pkv_status Batch::reserve(std::span<pkv_table *const> tables, const uint32_t *num_new, pkv_status *statuses) {
    if (tables.size() > options_.max_tables)
        return fail(PKV_ERR_LIMIT, "%zu tables, max_tables is %u", tables.size(), options_.max_tables);
    const uint32_t previous_rows = num_rows_;
    end_step();
    if (const pkv_status status = catch_no_memory([&] { return begin_step(tables, num_new); }); status != PKV_OK) {
        end_step();
        num_rows_ = 0;
        write_arrays(previous_rows);
        return status;
    }
    for (Row &row : step_rows()) {
        if (row.status == PKV_OK)
            row.status = catch_no_memory([&] { return row.table->reserve(row.length); });
        if (row.status != PKV_OK) row.length = 0;
    }
    in_step_ = true;
    write_slots();
    write_arrays(previous_rows);
    return report(statuses);
}

pkv_status Batch::begin_step(std::span<pkv_table *const> tables, const uint32_t *num_new) {
    PKV_TRY(pin_tables(tables, num_new));
    return check_room();
}

pkv_status Batch::set_tokens(std::span<const pkv_token> tokens, pkv_status *statuses) {
    PKV_TRY(check_step());
    if (tokens.size() != slots_.size())
        return fail(PKV_ERR_INVALID, "%zu tokens, but the step has %zu new ones", tokens.size(), slots_.size());
    uint64_t at = 0;
    for (Row &row : step_rows()) {
        if (row.status == PKV_OK)
            row.status = catch_no_memory([&] { return row.table->set_tokens(row.begin, tokens.subspan(at, row.num_new)); });
        at += row.num_new;
    }
    return report(statuses);
}

pkv_status Batch::commit(const uint32_t *num_accepted, pkv_status *statuses) {
    PKV_TRY(check_step());
    if (num_accepted != nullptr)
        for (uint32_t i = 0; i < num_rows_; ++i)
            if (num_accepted[i] > rows_[i].num_new)
                return fail(PKV_ERR_INVALID, "num_accepted[%u] is %u of %u new tokens", i, num_accepted[i], rows_[i].num_new);
    for (uint32_t i = 0; i < num_rows_; ++i) {
        Row &row = rows_[i];
        if (row.status != PKV_OK) continue;
        Table &table = *row.table;
        const uint64_t end = row.begin + (num_accepted != nullptr ? num_accepted[i] : row.num_new);
        row.status = table.commit(end);
        if (row.status == PKV_OK && end < row.length) table.truncate(end);
    }
    const pkv_status status = report(statuses);
    end_step();
    return status;
}

// ---- arrays --------------------------------------------------------------------------------------------------------

void Batch::write_slots() {
    const auto page_tokens = static_cast<pkv_slot>(pool_->page_tokens());
    uint64_t at = 0;
    for (const Row &row : step_rows()) {
        for (uint32_t i = 0; i < row.num_new; ++i, ++at) {
            const auto position = static_cast<pkv_slot>(row.begin + i);
            slots_[at] = PKV_NO_SLOT;
            if (row.status == PKV_OK)
                slots_[at] = static_cast<pkv_slot>(row.table->pages()[static_cast<uint64_t>(position / page_tokens)]) * page_tokens +
                             position % page_tokens;
        }
    }
}

void Batch::write_block_row(uint32_t index, Row &row) {
    int32_t *out = options_.block_table + uint64_t{index} * options_.max_blocks;
    const uint64_t blocks = row.length == 0 ? 0 : blocks_of(row.length);
    const Table *table = blocks == 0 ? nullptr : &*row.table;
    // The same table whose old entries did not change needs its new entries only.
    const bool grown = table != nullptr && table->version() == row.written_version;
    for (uint64_t i = grown ? row.written_blocks : 0; i < blocks; ++i) store(out, i, table->pages()[i]);
    for (uint64_t i = blocks; i < row.written_blocks; ++i) store(out, i, options_.fill);
    row.written_version = table != nullptr ? table->version() : 0;
    row.written_blocks = blocks;
}

void Batch::write_csr() {
    uint64_t at = 0;
    for (uint32_t r = 0; r < options_.max_tables; ++r) {
        store(options_.block_indptr, r, static_cast<int32_t>(at));
        if (r >= num_rows_ || rows_[r].length == 0) continue;
        const uint64_t blocks = blocks_of(rows_[r].length);
        for (uint64_t i = 0; i < blocks; ++i) store(options_.block_indices, at + i, rows_[r].table->pages()[i]);
        at += blocks;
    }
    store(options_.block_indptr, options_.max_tables, static_cast<int32_t>(at));
}

void Batch::write_arrays(uint32_t previous_rows) {
    const auto page_tokens = pool_->page_tokens();
    const uint32_t rows = std::max(previous_rows, num_rows_);
    for (uint32_t r = 0; r < rows; ++r) {
        Row &row = rows_[r];
        if (r >= num_rows_) row.length = 0;
        if (options_.block_table != nullptr) write_block_row(r, row);
        store(options_.lengths, r, static_cast<int32_t>(row.length));
        store(options_.last_page_len, r,
              row.length == 0 ? 0 : static_cast<int32_t>((row.length - 1) % page_tokens + 1));
    }
    if (options_.block_indptr != nullptr) write_csr();
    const uint64_t num_slots = num_rows_ == 0 ? 0 : slots_.size();
    if (options_.slot_mapping != nullptr) {
        for (uint64_t i = 0; i < num_slots; ++i) store<int64_t>(options_.slot_mapping, i, slots_[i]);
        for (uint64_t i = num_slots; i < written_slots_; ++i) store<int64_t>(options_.slot_mapping, i, PKV_NO_SLOT);
    }
    written_slots_ = num_slots;
}

// ---- rows ----------------------------------------------------------------------------------------------------------

pkv_status Batch::write(uint32_t layer, const pkv_tensor *k, const pkv_tensor *v) {
    PKV_TRY(check_step());
    PKV_TRY(pool_->need_memory());
    FlatRows k_rows;
    FlatRows v_rows;
    PKV_TRY(pool_->source_rows(k, v, slots_.size(), k_rows, v_rows));
    for (uint32_t i = 0; i < num_rows_; ++i)
        if (rows_[i].status == PKV_OK && rows_[i].num_new > 0 && rows_[i].table->tail_is_shared())
            return fail(PKV_ERR_STATE, "tables[%u] was forked inside the step: its block is shared", i);
    if (slots_.empty()) return PKV_OK;
    tensor::write_slots(pool_->memory().layer(layer), slots_, k_rows, v_rows, pool_->workers());
    for (Row &row : step_rows())
        if (row.status == PKV_OK) row.table->note_written(layer, row.begin, row.num_new);
    return PKV_OK;
}

namespace {

/// `count` rows of a caller's tensor from row `first` on.
pkv_tensor rows_of(const pkv_tensor &tensor, uint64_t first, uint64_t count, uint64_t token_stride) {
    pkv_tensor part = tensor;
    part.data = static_cast<std::byte *>(tensor.data) + first * token_stride;
    part.num_tokens = count;
    return part;
}

void zero_rows(const FlatRows &rows, uint64_t first, uint64_t end, uint32_t heads, uint64_t row_bytes) {
    if (rows.base == nullptr) return;
    for (uint64_t token = first; token < end; ++token)
        for (uint32_t head = 0; head < heads; ++head)
            std::memset(rows.base + token * rows.token_stride + head * rows.head_stride, 0, row_bytes);
}

} // namespace

pkv_status Batch::gather(uint32_t layer, const uint64_t *first, uint64_t padded, const pkv_tensor *k, const pkv_tensor *v) {
    PKV_TRY(check_step());
    PKV_TRY(pool_->need_memory());
    uint64_t total = 0;
    for (uint32_t i = 0; i < num_rows_; ++i) {
        const uint64_t begin = first != nullptr && rows_[i].status == PKV_OK ? first[i] : 0;
        if (begin > rows_[i].length)
            return fail(PKV_ERR_INVALID, "first[%u] is %" PRIu64 " of %" PRIu64 " tokens", i, begin, rows_[i].length);
        if (padded != 0 && rows_[i].length - begin > padded)
            return fail(PKV_ERR_INVALID, "tables[%u] has %" PRIu64 " tokens to gather, padded is %" PRIu64, i,
                        rows_[i].length - begin, padded);
        total += rows_[i].length - begin;
    }
    if (padded != 0 && __builtin_mul_overflow(padded, num_rows_, &total))
        return fail(PKV_ERR_LIMIT, "padded %" PRIu64 " * %u rows pass 2^64", padded, num_rows_);
    FlatRows k_rows;
    FlatRows v_rows;
    PKV_TRY(pool_->target_rows(k, v, total, k_rows, v_rows));

    for (const bool check : {true, false}) { // first see that all rows can be read, then write
        uint64_t at = 0;
        for (uint32_t i = 0; i < num_rows_; ++i) {
            const Row &row = rows_[i];
            const uint64_t begin = first != nullptr && row.status == PKV_OK ? first[i] : 0;
            const uint64_t count = row.length - begin;
            const uint64_t begin_row = padded != 0 ? i * padded : at;
            if (count > 0) {
                Table &table = *row.table;
                if (check) {
                    PKV_TRY(table.check_readable(layer, begin, count));
                } else {
                    const pkv_tensor k_part = k != nullptr ? rows_of(*k, begin_row, count, k_rows.token_stride) : pkv_tensor{};
                    const pkv_tensor v_part = v != nullptr ? rows_of(*v, begin_row, count, v_rows.token_stride) : pkv_tensor{};
                    PKV_TRY(table.gather(layer, begin, count, k != nullptr ? &k_part : nullptr, v != nullptr ? &v_part : nullptr));
                }
            }
            if (!check && padded != 0) {
                const Geometry &geometry = pool_->geometry();
                zero_rows(k_rows, begin_row + count, begin_row + padded, geometry.heads, geometry.k_row_bytes);
                zero_rows(v_rows, begin_row + count, begin_row + padded, geometry.heads, geometry.v_row_bytes);
            }
            at += count;
        }
    }
    return PKV_OK;
}

} // namespace pkv
