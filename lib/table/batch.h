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
    static pkv_status create(std::shared_ptr<Pool> pool, const pkv_batch_options &options, std::shared_ptr<Batch> &out);
    Batch(std::shared_ptr<Pool> pool, const pkv_batch_options &options);
    Batch(const Batch &) = delete;
    Batch &operator=(const Batch &) = delete;

    pkv_status check_open() const;
    pkv_status check_layer(uint32_t layer) const { return pool_->check_layer(options_.group, layer); }
    pkv_status reserve(std::span<pkv_table *const> tables, const uint32_t *num_new, pkv_status *statuses);
    pkv_status set_tokens(std::span<const pkv_token> tokens, pkv_status *statuses);
    pkv_status write(uint32_t layer, const pkv_tensor *k, const pkv_tensor *v);
    pkv_status gather(uint32_t layer, const uint64_t *first, uint64_t padded, const pkv_tensor *k, const pkv_tensor *v);
    pkv_status commit(const uint32_t *num_accepted, pkv_status *statuses);

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

    std::span<Row> step_rows() { return {rows_.data(), num_rows_}; }
    uint64_t blocks_of(uint64_t length) const { return blocks_for(length, pool_->page_tokens()); }
    pkv_status check_step() const;
    pkv_status pin_tables(std::span<pkv_table *const> tables, const uint32_t *num_new);
    pkv_status check_room();
    void end_step();
    pkv_status begin_step(std::span<pkv_table *const> tables, const uint32_t *num_new);
    void write_arrays(uint32_t previous_rows);
    void write_block_row(uint32_t index, Row &row);
    void write_csr();
    void write_slots();
    pkv_status report(pkv_status *statuses) const;
    pkv_status first_failure() const;

    std::shared_ptr<Pool> pool_;
    pkv_batch_options options_;
    std::vector<Row> rows_;
    std::vector<pkv_slot> slots_; // of the step, failed rows included as PKV_NO_SLOT
    uint64_t written_slots_ = 0;  // entries of slot_mapping that are not PKV_NO_SLOT padding
    uint32_t num_rows_ = 0;
    bool in_step_ = false;
};

} // namespace pkv
