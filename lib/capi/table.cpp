// SPDX-License-Identifier: Apache-2.0
// table.h: checks of handles and structs; the work is in table/.
#include "table/table.h"

#include "capi/boundary.h"
#include "capi/retention.h"
#include "device/turn.h"

#include <algorithm>
#include <cinttypes>
#include <optional>

using pkv::boundary;
using pkv::check_array;
using pkv::check_out_struct;
using pkv::fail;
using pkv::not_null;
using pkv::Pin;
using pkv::Pool;
using pkv::read_struct;
using pkv::Table;
using pkv::write_struct;

namespace {

/// A table for a call: an open handle whose pool is open, and stays so, for bytes of the caller's, until the call leaves.
class TableCall {
  public:
    pkv_status acquire(pkv_table *table) {
        PKV_TRY(pin_.acquire(table));
        in_use_.emplace(pin_->pool());
        return pin_->check_open();
    }
    Table *operator->() const { return &*pin_; }

  private:
    Pin<Table> pin_;
    std::optional<Pool::BytesInUse> in_use_; // ends before the pin
};

/// Of a call that moves no bytes: the work that its sync names.
class Named {
  public:
    pkv_status read(const Pool &pool, const pkv_sync *sync) {
        pkv::Turn turn;
        PKV_TRY(turn.begin(pool.device(), sync));
        return turn.named(work_);
    }
    const pkv::Fences &operator*() const { return work_; }

  private:
    pkv::Fences work_;
};

pkv_status read_retention(const pkv_retention *retention, uint64_t first_token, uint64_t num_tokens,
                          pkv::RetentionRange &range) {
    PKV_TRY(pkv::read_retention(retention, range.retention));
    range.begin = first_token;
    if (__builtin_add_overflow(first_token, num_tokens, &range.end)) range.end = UINT64_MAX;
    return PKV_OK;
}

} // namespace

extern "C" {

pkv_status pkv_table_create(pkv_pool *pool, pkv_table **table) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(not_null(table, "table"));
        return pkv::hand_out(Table::make(pin->shared_from_this()), table);
    });
}

pkv_status pkv_table_destroy(pkv_table *table, const pkv_sync *sync) {
    return boundary([&] {
        Pin<Table> pin;
        PKV_TRY(pin.acquire(table));
        Named work;
        PKV_TRY(work.read(pin->pool(), sync));
        pin->end_after(*work);
        return pin.close(); // the pages go with the last pin
    });
}

pkv_status pkv_table_clear(pkv_table *table, const pkv_sync *sync) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        Named work;
        PKV_TRY(work.read(call->pool(), sync));
        call->clear(*work);
        return PKV_OK;
    });
}

pkv_status pkv_table_admit(pkv_table *table, const pkv_prompt *prompt, const pkv_admit_options *options,
                           pkv_match *match) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        pkv::prefix::Prompt known;
        PKV_TRY(pkv::prefix::read_prompt(prompt, known));
        pkv_admit_options how = PKV_ADMIT_OPTIONS_INIT;
        if (options != nullptr) PKV_TRY(read_struct(options, how, "options"));
        if ((how.flags & ~(PKV_ADMIT_NO_MATCH | PKV_ADMIT_RETRY | PKV_ADMIT_PARTIAL | PKV_ADMIT_SHARE)) != 0 ||
            how.reserved != 0)
            return fail(PKV_ERR_UNSUPPORTED, "options: flags 0x%x have unknown bits, or reserved is not 0", how.flags);
        if (match != nullptr) PKV_TRY(check_out_struct(match, "match"));
        pkv_match found = PKV_MATCH_INIT;
        PKV_TRY(call->admit(known, how, found));
        if (match != nullptr) write_struct(match, found);
        return PKV_OK;
    });
}

pkv_status pkv_table_reserve(pkv_table *table, uint64_t num_tokens) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        return call->reserve(num_tokens);
    });
}

pkv_status pkv_table_set_tokens(pkv_table *table, uint64_t position, uint64_t num_tokens, const pkv_token *tokens) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        PKV_TRY(check_array(tokens, num_tokens, "tokens"));
        return call->set_tokens(position, {tokens, num_tokens});
    });
}

pkv_status pkv_table_write(pkv_table *table, uint32_t group, uint32_t layer, uint64_t position, uint64_t num_tokens,
                           const pkv_tensor *k, const pkv_tensor *v, const pkv_sync *sync) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        PKV_TRY(call->pool().check_layer(group, layer));
        pkv::Turn turn;
        PKV_TRY(turn.begin_work(call->pool().device(), sync));
        PKV_TRY(call->write(group, layer, position, num_tokens, k, v, turn));
        return turn.end();
    });
}

pkv_status pkv_table_commit(pkv_table *table, uint64_t num_tokens, const pkv_sync *sync) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        Named work;
        PKV_TRY(work.read(call->pool(), sync));
        return call->commit(num_tokens, *work);
    });
}

pkv_status pkv_table_gather(pkv_table *table, uint32_t group, uint32_t layer, uint64_t position, uint64_t num_tokens,
                            const pkv_tensor *k, const pkv_tensor *v, const pkv_sync *sync) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        PKV_TRY(call->pool().check_layer(group, layer));
        pkv::Turn turn;
        PKV_TRY(turn.begin_work(call->pool().device(), sync));
        PKV_TRY(call->gather(group, layer, position, num_tokens, k, v, turn));
        return turn.end();
    });
}

pkv_status pkv_table_fork(pkv_table *table, const pkv_sync *sync, pkv_table **fork) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        PKV_TRY(not_null(fork, "fork"));
        Named work;
        PKV_TRY(work.read(call->pool(), sync));
        std::shared_ptr<Table> twin;
        PKV_TRY(call->fork(twin, *work));
        return pkv::hand_out(std::move(twin), fork);
    });
}

pkv_status pkv_table_truncate(pkv_table *table, uint64_t num_tokens, const pkv_sync *sync) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        Named work;
        PKV_TRY(work.read(call->pool(), sync));
        return call->truncate(num_tokens, *work);
    });
}

pkv_status pkv_table_accept(pkv_table *table, uint64_t num_positions, const uint64_t *positions, const pkv_sync *sync) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        PKV_TRY(check_array(positions, num_positions, "positions"));
        pkv::Turn turn;
        PKV_TRY(turn.begin(call->pool().device(), sync));
        PKV_TRY(call->accept({positions, num_positions}, turn));
        return turn.end();
    });
}

pkv_status pkv_table_window(pkv_table *table, const pkv_sync *sync) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        Named work;
        PKV_TRY(work.read(call->pool(), sync));
        return call->window(*work);
    });
}

pkv_status pkv_table_set_retention(pkv_table *table, uint64_t first_token, uint64_t num_tokens,
                                   const pkv_retention *retention) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        pkv::RetentionRange range;
        PKV_TRY(read_retention(retention, first_token, num_tokens, range));
        return num_tokens == 0 ? PKV_OK : call->set_retention(range);
    });
}

pkv_status pkv_table_take_copies(pkv_table *table, pkv_page_copy *copies, uint64_t capacity, uint64_t *count) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        PKV_TRY(check_array(copies, capacity, "copies"));
        PKV_TRY(not_null(count, "count"));
        const auto pending = call->copies();
        *count = pending.size();
        if (capacity == 0) return PKV_OK;
        if (capacity < pending.size())
            return fail(PKV_ERR_NO_SPACE, "%zu copies are outstanding, capacity is %" PRIu64, pending.size(), capacity);
        std::copy(pending.begin(), pending.end(), copies);
        call->copies_taken();
        return PKV_OK;
    });
}

pkv_status pkv_table_export(pkv_table *table, void *buffer, uint64_t capacity, uint64_t *size) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        PKV_TRY(check_array(buffer, capacity, "buffer"));
        PKV_TRY(not_null(size, "size"));
        uint64_t needed = 0;
        PKV_TRY(call->export_to({}, needed));
        *size = needed;
        if (capacity == 0) return PKV_OK;
        if (capacity < needed)
            return fail(PKV_ERR_NO_SPACE, "the sequence takes %" PRIu64 " bytes, capacity is %" PRIu64, needed,
                        capacity);
        return call->export_to({static_cast<std::byte *>(buffer), needed}, needed);
    });
}

pkv_status pkv_table_import(pkv_table *table, const void *buffer, uint64_t size) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        PKV_TRY(check_array(buffer, size, "buffer"));
        return call->import_from({static_cast<const std::byte *>(buffer), size});
    });
}

pkv_status pkv_table_pages(pkv_table *table, uint32_t group, pkv_page *pages, uint64_t capacity, uint64_t *num_blocks) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        PKV_TRY(call->pool().check_group(group));
        PKV_TRY(check_array(pages, capacity, "pages"));
        PKV_TRY(not_null(num_blocks, "num_blocks"));
        PKV_TRY(call->check_resident());
        const auto blocks = call->pages(group);
        *num_blocks = blocks.size();
        if (capacity == 0) return PKV_OK;
        if (capacity < blocks.size())
            return fail(PKV_ERR_NO_SPACE, "the sequence has %zu blocks, capacity is %" PRIu64, blocks.size(), capacity);
        PKV_TRY(call->make_ready());
        std::copy(blocks.begin(), blocks.end(), pages);
        return PKV_OK;
    });
}

pkv_status pkv_table_slots(pkv_table *table, uint32_t group, uint64_t position, uint64_t num_tokens, pkv_slot *slots) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        PKV_TRY(call->pool().check_group(group));
        PKV_TRY(check_array(slots, num_tokens, "slots"));
        return call->slots(group, position, num_tokens, slots);
    });
}

pkv_status pkv_table_residency(pkv_table *table, uint32_t group, uint64_t first_block, uint64_t num_blocks,
                               int32_t *where) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        PKV_TRY(call->pool().check_group(group));
        PKV_TRY(check_array(where, num_blocks, "where"));
        return call->residency(group, first_block, {where, num_blocks});
    });
}

pkv_status pkv_table_spill(pkv_table *table, uint64_t first_block, uint64_t num_blocks, const pkv_sync *sync,
                           pkv_spill_result *result) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        if (result != nullptr) PKV_TRY(check_out_struct(result, "result"));
        Named work;
        PKV_TRY(work.read(call->pool(), sync));
        pkv_spill_result value = PKV_SPILL_RESULT_INIT;
        PKV_TRY(call->spill(first_block, num_blocks, *work, value));
        if (result != nullptr) write_struct(result, value);
        return PKV_OK;
    });
}

pkv_status pkv_table_restore(pkv_table *table, uint64_t first_block, uint64_t num_blocks, uint64_t timeout_ns,
                             uint64_t *restored) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        uint64_t value = 0;
        const pkv_status status = call->restore(first_block, num_blocks, timeout_ns, value);
        if (restored != nullptr) *restored = value;
        return status;
    });
}

pkv_status pkv_table_get_info(pkv_table *table, pkv_table_info *info) {
    return boundary([&] {
        TableCall call;
        PKV_TRY(call.acquire(table));
        PKV_TRY(check_out_struct(info, "info"));
        pkv_table_info value = PKV_TABLE_INFO_INIT;
        call->info(value);
        write_struct(info, value);
        return PKV_OK;
    });
}

} // extern "C"
