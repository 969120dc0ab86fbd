// SPDX-License-Identifier: Apache-2.0
// The decode step of many tables, and the caller's arrays that describe it. See batch.h (public).
#pragma once

#include "core/handles.h"
#include "table/table.h"

#include <pagedkv/batch.h>

#include <memory>
#include <span>
#include <vector>

namespace pkv {

class Batch {
  public:
    static constexpr HandleKind handle_kind = HandleKind::batch;

    /// Checks the options; throws std::bad_alloc.
    static pkv_status create(std::shared_ptr<Pool> pool, const pkv_batch_options &options,
                             std::span<const pkv_batch_arrays> arrays, std::shared_ptr<Batch> &out);
    Batch(std::shared_ptr<Pool> pool, const pkv_batch_options &options, std::span<const pkv_batch_arrays> arrays);
    Pool &pool() const { return *pool_; }
    Batch(const Batch &) = delete;
    Batch &operator=(const Batch &) = delete;

    pkv_status check_open() const;
    pkv_status reserve(std::span<pkv_table *const> tables, const uint32_t *num_new, pkv_status *statuses);
    pkv_status set_tokens(std::span<const pkv_token> tokens, pkv_status *statuses);
    pkv_status write(uint32_t group, uint32_t layer, const pkv_tensor *k, const pkv_tensor *v, Turn &turn);
    pkv_status gather(uint32_t group, uint32_t layer, const uint64_t *first, uint64_t padded, const pkv_tensor *k,
                      const pkv_tensor *v, Turn &turn);
    /// On a device the KV is complete once `work` has passed.
    pkv_status commit(const uint32_t *num_accepted, pkv_status *statuses, const Fences &work);

  private:
    /// One table of the step, and what the arrays say about its row since earlier steps.
    struct Row {
        Pin<Table> table; // pinned from reserve to commit
        pkv_status status = PKV_OK;
        uint64_t begin = 0; // committed tokens when the step began
        uint32_t num_new = 0;
        uint64_t length = 0; // with the new tokens; 0 for a failed row
        // The row of block_table as it was written last. Versions are unique over all tables; 0 is none's.
        uint64_t written_version = 0;
        uint64_t written_blocks = 0;
    };

    /// The arrays of one group.
    struct Arrays {
        pkv_batch_arrays at;
        uint64_t written_slots = 0; // entries of slot_mapping that are not padding
    };

    std::span<Row> step_rows() { return {rows_.data(), num_rows_}; }
    static uint64_t live_length(const Row &row) { return row.status == PKV_OK ? row.length : 0; }
    uint64_t blocks_of(uint64_t length) const { return blocks_for(length, pool_->page_tokens()); }
    pkv_status check_in_step() const;
    pkv_status check_step();
    bool stands(Row &row);
    pkv_status pin_tables(std::span<pkv_table *const> tables, const uint32_t *num_new);
    pkv_status check_room(uint32_t num_rows);
    pkv_status prepare_step(std::span<pkv_table *const> tables, const uint32_t *num_new);
    void write_arrays(uint32_t previous_rows);
    void write_block_row(const pkv_batch_arrays &arrays, uint32_t index, const Row &row, uint64_t blocks);
    void write_csr(const pkv_batch_arrays &arrays);
    void write_slots(Arrays &arrays);
    void find_slots(uint32_t group, pkv_slot *out);
    pkv_status check_gather(uint32_t group, uint32_t layer, const uint64_t *first, uint64_t padded, uint64_t &total);
    void make_ready();
    pkv_status order_rows(Turn &turn);
    pkv_status report(pkv_status *statuses) const;
    pkv_status first_failure() const;

    std::shared_ptr<Pool> pool_;
    pkv_batch_options options_;
    std::vector<Row> rows_;
    std::vector<Row> next_rows_; // a step that is being prepared, so that one that is refused leaves the other alone
    std::vector<Arrays> arrays_;
    std::vector<SequenceRows> sequences_; // scratch
    std::vector<pkv_slot> slots_;         // of one group, failed rows included as PKV_NO_SLOT
    uint64_t num_new_ = 0;                // new tokens of the step
    uint32_t slots_group_ = UINT32_MAX;   // the group that slots_ holds
    uint32_t num_rows_ = 0;
    bool in_step_ = false;
};

} // namespace pkv
