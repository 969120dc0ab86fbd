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

pkv_status Batch::create(std::shared_ptr<Pool> pool, const pkv_batch_options &options,
                         std::span<const pkv_batch_arrays> arrays, std::shared_ptr<Batch> &out) {
    if (options.max_tables == 0 || options.max_tables > max_batch_tables)
        return fail(options.max_tables == 0 ? PKV_ERR_INVALID : PKV_ERR_LIMIT, "max_tables is %u, not 1 to %u",
                    options.max_tables, max_batch_tables);
    uint32_t seen = 0;
    for (const pkv_batch_arrays &item : arrays) {
        PKV_TRY(pool->check_group(item.group));
        if ((seen >> item.group & 1) != 0) return fail(PKV_ERR_INVALID, "group %u has arrays twice", item.group);
        seen |= 1u << item.group;
        if ((item.block_indptr == nullptr) != (item.block_indices == nullptr))
            return fail(PKV_ERR_INVALID, "block_indptr and block_indices go together");
        if (item.block_table != nullptr && item.max_blocks == 0)
            return fail(PKV_ERR_INVALID, "block_table has rows of max_blocks 0");
        if (item.max_indices > INT32_MAX)
            return fail(PKV_ERR_LIMIT, "max_indices is %" PRIu64 ", more than 2^31-1", item.max_indices);
    }
    out = std::make_shared<Batch>(std::move(pool), options, arrays);
    return PKV_OK;
}

Batch::Batch(std::shared_ptr<Pool> pool, const pkv_batch_options &options, std::span<const pkv_batch_arrays> arrays)
    : pool_(std::move(pool)), options_(options), rows_(options.max_tables), next_rows_(options.max_tables) {
    // From now on the arrays are known to hold what an empty step has, and only changes are written.
    for (const pkv_batch_arrays &item : arrays) {
        arrays_.push_back({item, 0});
        if (item.block_table != nullptr)
            std::fill_n(item.block_table, options_.max_tables * item.max_blocks, item.fill);
        if (item.block_indptr != nullptr) std::fill_n(item.block_indptr, options_.max_tables + 1, 0);
        if (item.slot_mapping != nullptr) std::fill_n(item.slot_mapping, options_.max_tokens, PKV_NO_SLOT);
    }
    if (options_.last_page_len != nullptr) std::fill_n(options_.last_page_len, options_.max_tables, 0);
    if (options_.lengths != nullptr) std::fill_n(options_.lengths, options_.max_tables, 0);
}

pkv_status Batch::check_open() const {
    if (pool_->closed()) return fail(PKV_ERR_CLOSED, "the batch's pool was destroyed");
    return PKV_OK;
}

pkv_status Batch::check_in_step() const {
    return in_step_ ? PKV_OK : fail(PKV_ERR_STATE, "no step is under way: pkv_batch_reserve begins one");
}

/// Whether a row has part in the step. A table may have been changed by calls of its own inside it: its row fails then.
bool Batch::stands(Row &row) {
    if (row.status != PKV_OK) return false;
    if (row.table->stands_at(row.begin, row.length)) return true;
    row.status = fail(PKV_ERR_STATE, "the table was changed inside the step");
    slots_group_ = UINT32_MAX;
    return false;
}

/// For the calls that need to know of all rows before they begin with one.
pkv_status Batch::check_step() {
    PKV_TRY(check_in_step());
    for (Row &row : step_rows()) (void)stands(row);
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

pkv_status Batch::pin_tables(std::span<pkv_table *const> tables, const uint32_t *num_new) {
    const uint64_t mark = next_mark();
    for (uint32_t i = 0; i < tables.size(); ++i) {
        Row &row = next_rows_[i];
        row.num_new = num_new[i];
        row.begin = row.length = 0;
        row.status = row.table.acquire(tables[i]);
        if (row.status != PKV_OK) continue;
        Table &table = *row.table;
        if (&table.pool() != pool_.get()) return fail(PKV_ERR_INVALID, "tables[%u] is of another pool", i);
        if (!table.mark(mark)) return fail(PKV_ERR_INVALID, "tables[%u] is listed twice", i);
        row.status = table.check_admitted();
        if (row.status == PKV_OK) row.status = table.check_resident();
        row.begin = table.committed();
        row.length = row.begin + row.num_new;
    }
    return PKV_OK;
}

/// Whether the arrays can describe the step.
pkv_status Batch::check_room(uint32_t num_rows) {
    uint64_t num_new = 0;
    uint64_t blocks = 0;
    uint64_t most_blocks = 0;
    for (uint32_t i = 0; i < num_rows; ++i) {
        const Row &row = next_rows_[i];
        if (row.length > INT32_MAX)
            return fail(PKV_ERR_LIMIT, "tables[%u] has %" PRIu64 " tokens, more than the int32 arrays can say", i,
                        row.length);
        num_new += row.num_new;
        const uint64_t of_row = blocks_of(row.length);
        blocks += of_row;
        most_blocks = std::max(most_blocks, of_row);
    }
    for (const Arrays &arrays : arrays_) {
        const pkv_batch_arrays &at = arrays.at;
        if (at.block_table != nullptr && most_blocks > at.max_blocks)
            return fail(PKV_ERR_LIMIT, "a table has %" PRIu64 " blocks, max_blocks is %" PRIu64, most_blocks,
                        at.max_blocks);
        if (at.block_indices != nullptr && blocks > at.max_indices)
            return fail(PKV_ERR_LIMIT, "%" PRIu64 " blocks, max_indices is %" PRIu64, blocks, at.max_indices);
        if (at.slot_mapping != nullptr && num_new > options_.max_tokens)
            return fail(PKV_ERR_LIMIT, "%" PRIu64 " new tokens, max_tokens is %" PRIu64, num_new, options_.max_tokens);
    }
    if (slots_.size() < num_new) slots_.resize(num_new);
    num_new_ = num_new; // nothing fails any more
    return PKV_OK;
}

pkv_status Batch::prepare_step(std::span<pkv_table *const> tables, const uint32_t *num_new) {
    PKV_TRY(pin_tables(tables, num_new));
    return check_room(static_cast<uint32_t>(tables.size()));
}

pkv_status Batch::reserve(std::span<pkv_table *const> tables, const uint32_t *num_new, pkv_status *statuses) {
    if (tables.size() > options_.max_tables)
        return fail(PKV_ERR_LIMIT, "%zu tables, max_tables is %u", tables.size(), options_.max_tables);
    if (const pkv_status status = catch_no_memory([&] { return prepare_step(tables, num_new); }); status != PKV_OK) {
        for (Row &row : next_rows_) row.table.reset();
        return status;
    }
    const uint32_t previous_rows = num_rows_;
    for (size_t i = 0; i < rows_.size(); ++i) {
        next_rows_[i].written_version = rows_[i].written_version;
        next_rows_[i].written_blocks = rows_[i].written_blocks;
        rows_[i].table.reset();
    }
    std::swap(rows_, next_rows_);
    num_rows_ = static_cast<uint32_t>(tables.size());
    slots_group_ = UINT32_MAX;
    for (Row &row : step_rows()) {
        if (row.status == PKV_OK) row.status = catch_no_memory([&] { return row.table->reserve(row.length); });
        if (row.status != PKV_OK) row.length = 0;
    }
    in_step_ = true;
    write_arrays(previous_rows);
    if (!arrays_.empty()) make_ready();
    return report(statuses);
}

/// Kernels of the caller's own may use what the arrays name. A row that cannot be made ready has no part in the step.
void Batch::make_ready() {
    if (pool_->device() == nullptr) return;
    Fences waits;
    for (Row &row : step_rows())
        if (row.status == PKV_OK) waits |= row.table->waits();
    const pkv_status status = pool_->make_ready(waits);
    for (Row &row : step_rows())
        if (row.status == PKV_OK) row.status = status;
}

pkv_status Batch::set_tokens(std::span<const pkv_token> tokens, pkv_status *statuses) {
    PKV_TRY(check_in_step());
    if (tokens.size() != num_new_)
        return fail(PKV_ERR_INVALID, "%zu tokens, but the step has %" PRIu64 " new ones", tokens.size(), num_new_);
    uint64_t at = 0;
    for (Row &row : step_rows()) {
        if (stands(row))
            row.status =
                catch_no_memory([&] { return row.table->set_tokens(row.begin, tokens.subspan(at, row.num_new)); });
        if (row.status == PKV_OK)
            row.table->prefetch_commit(row.begin + row.num_new);
        else
            slots_group_ = UINT32_MAX; // it is not written any more
        at += row.num_new;
    }
    return report(statuses);
}

pkv_status Batch::commit(const uint32_t *num_accepted, pkv_status *statuses, const Fences &work) {
    PKV_TRY(check_in_step());
    if (num_accepted != nullptr)
        for (uint32_t i = 0; i < num_rows_; ++i)
            if (num_accepted[i] > rows_[i].num_new)
                return fail(PKV_ERR_INVALID, "num_accepted[%u] is %u of %u new tokens", i, num_accepted[i],
                            rows_[i].num_new);
    for (uint32_t i = 0; i < num_rows_; ++i) {
        Row &row = rows_[i];
        if (stands(row)) {
            Table &table = *row.table;
            const uint64_t end = row.begin + (num_accepted != nullptr ? num_accepted[i] : row.num_new);
            row.status = table.commit(end, work);
            if (row.status == PKV_OK && end < row.length) row.status = table.truncate(end);
        }
        // While its cache lines are at hand; tables that were destroyed go when all are done.
        row.table.reset_unless_last();
    }
    for (Row &row : step_rows()) row.table.reset();
    in_step_ = false;
    return report(statuses);
}

// ---- arrays --------------------------------------------------------------------------------------------------------

/// The slots of the step's new tokens in a group; PKV_NO_SLOT for failed rows.
void Batch::find_slots(uint32_t group, pkv_slot *out) {
    const uint64_t page_tokens = pool_->page_tokens();
    for (const Row &row : step_rows()) {
        if (row.status != PKV_OK) {
            out = std::fill_n(out, row.num_new, PKV_NO_SLOT);
            continue;
        }
        const auto pages = row.table->pages(group);
        for (uint64_t position = row.begin; position < row.begin + row.num_new; ++position)
            *out++ = static_cast<pkv_slot>(static_cast<uint64_t>(pages[position / page_tokens]) * page_tokens +
                                           position % page_tokens);
    }
}

void Batch::write_slots(Arrays &arrays) {
    const uint64_t count = num_rows_ == 0 ? 0 : num_new_;
    if (arrays.at.slot_mapping != nullptr) {
        find_slots(arrays.at.group, slots_.data());
        slots_group_ = arrays.at.group;
        for (uint64_t i = 0; i < count; ++i) store<int64_t>(arrays.at.slot_mapping, i, slots_[i]);
        for (uint64_t i = count; i < arrays.written_slots; ++i) store<int64_t>(arrays.at.slot_mapping, i, PKV_NO_SLOT);
    }
    arrays.written_slots = count;
}

/// What stands in an array for a page.
static int32_t entry(pkv_page page, int32_t fill) { return page == PKV_NO_PAGE ? fill : page; }

void Batch::write_block_row(const pkv_batch_arrays &arrays, uint32_t index, const Row &row, uint64_t blocks) {
    int32_t *out = arrays.block_table + uint64_t{index} * arrays.max_blocks;
    // The same table whose old entries did not change needs its new entries only.
    const bool grown = blocks != 0 && row.table->version() == row.written_version;
    for (uint64_t i = grown ? row.written_blocks : 0; i < blocks; ++i)
        store(out, i, entry(row.table->pages(arrays.group)[i], arrays.fill));
    for (uint64_t i = blocks; i < row.written_blocks; ++i) store(out, i, arrays.fill);
}

void Batch::write_csr(const pkv_batch_arrays &arrays) {
    uint64_t at = 0;
    for (uint32_t r = 0; r < options_.max_tables; ++r) {
        store(arrays.block_indptr, r, static_cast<int32_t>(at));
        if (r >= num_rows_ || rows_[r].length == 0) continue;
        const auto pages = rows_[r].table->pages(arrays.group);
        const uint64_t blocks = blocks_of(rows_[r].length);
        for (uint64_t i = 0; i < blocks; ++i) store(arrays.block_indices, at + i, entry(pages[i], arrays.fill));
        at += blocks;
    }
    store(arrays.block_indptr, options_.max_tables, static_cast<int32_t>(at));
}

void Batch::write_arrays(uint32_t previous_rows) {
    const auto page_tokens = pool_->page_tokens();
    const uint32_t rows = std::max(previous_rows, num_rows_);
    for (uint32_t r = 0; r < rows; ++r) {
        Row &row = rows_[r];
        if (r >= num_rows_) row.length = 0;
        const uint64_t blocks = blocks_of(row.length);
        for (const Arrays &arrays : arrays_)
            if (arrays.at.block_table != nullptr) write_block_row(arrays.at, r, row, blocks);
        row.written_version = blocks != 0 ? row.table->version() : 0;
        row.written_blocks = blocks;
        store(options_.lengths, r, static_cast<int32_t>(row.length));
        store(options_.last_page_len, r,
              row.length == 0 ? 0 : static_cast<int32_t>((row.length - 1) % page_tokens + 1));
    }
    for (Arrays &arrays : arrays_) {
        if (arrays.at.block_indptr != nullptr) write_csr(arrays.at);
        write_slots(arrays);
    }
}

// ---- rows ----------------------------------------------------------------------------------------------------------

pkv_status Batch::write(uint32_t group, uint32_t layer, const pkv_tensor *k, const pkv_tensor *v, Turn &turn) {
    PKV_TRY(check_step());
    PKV_TRY(pool_->need_memory(group));
    CallerTensors rows;
    PKV_TRY(pool_->source_rows(group, k, v, num_new_, rows));
    for (uint32_t i = 0; i < num_rows_; ++i)
        if (rows_[i].status == PKV_OK && rows_[i].num_new > 0 && rows_[i].table->tail_is_shared())
            return fail(PKV_ERR_STATE, "tables[%u] was forked inside the step: its block is shared", i);
    for (const Row &row : step_rows()) // a page was copied on write inside the step
        if (row.status == PKV_OK && row.table->version() != row.written_version) slots_group_ = UINT32_MAX;
    if (slots_group_ != group) find_slots(group, slots_.data());
    slots_group_ = group;
    if (turn.on_device()) PKV_TRY(order_rows(turn));
    PKV_TRY(pool_->write_rows(group, layer, {slots_.data(), num_new_}, rows, turn));
    for (Row &row : step_rows()) {
        if (row.status != PKV_OK) continue;
        row.table->note_written(group, layer, row.begin, row.num_new);
        row.table->note_stream(turn);
    }
    return PKV_OK;
}

pkv_status Batch::order_rows(Turn &turn) {
    Fences waits;
    for (Row &row : step_rows())
        if (row.status == PKV_OK) waits |= row.table->waits();
    return turn.after(waits);
}

/// Whether every row can be read; `total` = rows that the targets need.
pkv_status Batch::check_gather(uint32_t group, uint32_t layer, const uint64_t *first, uint64_t padded,
                               uint64_t &total) {
    total = 0;
    for (uint32_t i = 0; i < num_rows_; ++i) {
        const Row &row = rows_[i];
        const uint64_t length = live_length(row);
        const uint64_t begin = first != nullptr && length > 0 ? first[i] : 0;
        if (begin > length)
            return fail(PKV_ERR_INVALID, "first[%u] is %" PRIu64 " of %" PRIu64 " tokens", i, begin, length);
        if (padded != 0 && length - begin > padded)
            return fail(PKV_ERR_INVALID, "tables[%u] has %" PRIu64 " tokens to gather, padded is %" PRIu64, i,
                        length - begin, padded);
        if (length > begin) PKV_TRY(row.table->check_readable(group, layer, begin, length - begin));
        total += length - begin;
    }
    if (padded != 0 && __builtin_mul_overflow(padded, num_rows_, &total))
        return fail(PKV_ERR_LIMIT, "padded %" PRIu64 " * %u rows pass 2^64", padded, num_rows_);
    return PKV_OK;
}

pkv_status Batch::gather(uint32_t group, uint32_t layer, const uint64_t *first, uint64_t padded, const pkv_tensor *k,
                         const pkv_tensor *v, Turn &turn) {
    PKV_TRY(check_step());
    PKV_TRY(pool_->need_memory(group));
    uint64_t total = 0;
    PKV_TRY(check_gather(group, layer, first, padded, total));
    CallerTensors rows;
    PKV_TRY(pool_->target_rows(group, k, v, total, rows));

    sequences_.clear();
    uint64_t at = 0;
    for (uint32_t i = 0; i < num_rows_; ++i) {
        const Row &row = rows_[i];
        const uint64_t length = live_length(row);
        const uint64_t begin = first != nullptr && length > 0 ? first[i] : 0;
        const pkv_page *const pages = length > 0 ? row.table->pages(group).data() : nullptr;
        sequences_.push_back({pages, begin, length - begin, padded != 0 ? i * padded : at});
        at += length - begin;
    }
    if (total == 0) return PKV_OK;
    if (turn.on_device()) PKV_TRY(order_rows(turn));
    return pool_->read_sequences(group, layer, sequences_, padded, rows, turn);
}

} // namespace pkv
