// SPDX-License-Identifier: Apache-2.0
// A block table: one sequence. See table.h (public) for what its four numbers mean.
#pragma once

#include "core/handles.h"
#include "pool/pool.h"

#include <pagedkv/table.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace pkv {

class Table {
  public:
    static constexpr HandleKind handle_kind = HandleKind::table;

    explicit Table(std::shared_ptr<Pool> pool);
    ~Table();
    Table(const Table &) = delete;
    Table &operator=(const Table &) = delete;

    Pool &pool() const { return *pool_; }
    const std::shared_ptr<Pool> &shared_pool() const { return pool_; }
    pkv_status check_open() const;
    uint64_t named() const { return tokens_.size(); }
    uint64_t committed() const { return committed_; }
    uint64_t reserved() const { return pages_.size() * page_tokens_; }
    std::span<const pkv_page> pages() const { return pages_; }

    pkv_status admit(const prefix::Prompt &prompt, const pkv_admit_options &options, pkv_match &match);
    void clear();
    pkv_status reserve(uint64_t num_tokens);
    pkv_status set_tokens(uint64_t position, std::span<const pkv_token> tokens);
    pkv_status write(uint32_t layer, uint64_t position, uint64_t count, const pkv_tensor *k, const pkv_tensor *v);
    pkv_status commit(uint64_t num_tokens);
    pkv_status gather(uint32_t layer, uint64_t position, uint64_t count, const pkv_tensor *k, const pkv_tensor *v);
    pkv_status fork(std::shared_ptr<Table> &out);
    void truncate(uint64_t num_tokens);
    pkv_status slots(uint64_t position, uint64_t count, pkv_slot *out);
    void info(pkv_table_info &out) const;

    pkv_status check_admitted() const;
    /// Whether rows [position, position + count) of a layer are written or committed.
    pkv_status check_readable(uint32_t layer, uint64_t position, uint64_t count) const;
    /// Another value once entries of the block table change or go; growth alone keeps it. Unique over all tables.
    uint64_t version() const { return version_; }
    /// Whether the block at `committed` is partly committed and somebody else may see its page.
    bool tail_is_shared();
    /// Sets a mark; false if it is set already. Tells a batch that a table is listed twice.
    bool mark(uint64_t value) { return std::exchange(mark_, value) != value; }
    /// Notes that rows [position, position + count) of a layer hold KV.
    void note_written(uint32_t layer, uint64_t position, uint64_t count);

  private:
    bool admitted() const { return frontier_.root != prefix::no_node; }
    pkv_status check_range(uint64_t position, uint64_t count, const char *what) const;
    pkv_status make_tail_private();
    void replace_tail(pkv_page fresh);
    void fill_slots(uint64_t position, uint64_t count, pkv_slot *out) const;
    void publish();

    std::shared_ptr<Pool> pool_;
    uint32_t page_tokens_;
    std::vector<pkv_token> tokens_; // named tokens
    std::vector<prefix::Media> media_;
    std::vector<pkv_page> pages_;   // block table
    std::vector<uint64_t> written_; // for each layer: rows [0, n) hold KV of this sequence
    std::vector<pkv_slot> scratch_;
    uint64_t committed_ = 0;
    uint64_t matched_ = 0;
    Frontier frontier_;
    uint64_t version_;
    uint64_t mark_ = 0;
    bool tail_private_ = false; // known: the block at `committed` is this table's alone
};

} // namespace pkv
