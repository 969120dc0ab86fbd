// SPDX-License-Identifier: Apache-2.0
// A block table: one sequence. See table.h (public) for what its four numbers mean.
//
//   table.cpp     the life of a sequence: admit, reserve, write, commit, gather
//   branches.cpp  fork, truncate, accept, window, and copy-on-write
//   transfer.cpp  export and import
//   handed.cpp    sequences that go to another pool, or come from one
//   residency.cpp blocks in tiers: spill, restore
//   loaded.cpp    blocks that a prefetch session has loaded
#pragma once

#include "core/handles.h"
#include "pool/pool.h"

#include <pagedkv/table.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace pkv {

class alignas(64) Table {
  public:
    static constexpr HandleKind handle_kind = HandleKind::table;

    static std::shared_ptr<Table> make(std::shared_ptr<Pool> pool);
    explicit Table(std::shared_ptr<Pool> pool);
    ~Table();
    Table(const Table &) = delete;
    Table &operator=(const Table &) = delete;

    Pool &pool() const { return *pool_; }
    std::shared_ptr<Table> shared() const { return self_.lock(); } ///< of one that make() made
    pkv_status check_open() const;
    pkv_status check_admitted() const;
    uint64_t committed() const { return committed_; }
    uint64_t reserved() const { return num_blocks() * page_tokens_; }
    uint64_t num_blocks() const { return lists_[0].size(); }
    std::span<const pkv_page> pages(uint32_t group) const { return lists_[group]; }

    /// With `counted` false the pool's statistics take no notice.
    pkv_status admit(const prefix::Prompt &prompt, const pkv_admit_options &options, pkv_match &match,
                     bool counted = true);
    void clear(const Fences &work =
                   {}); ///< on a device `work` may still use its pages: so here, and in truncate() and window()
    /// The same before the table goes with its last user.
    void end_after(const Fences &work) { waits_ |= work; }
    pkv_status reserve(uint64_t num_tokens);
    pkv_status set_tokens(uint64_t position, std::span<const pkv_token> tokens);
    pkv_status write(uint32_t group, uint32_t layer, uint64_t position, uint64_t count, const pkv_tensor *k,
                     const pkv_tensor *v, Turn &turn);
    /// On a device the KV is complete once `work` has passed.
    pkv_status commit(uint64_t num_tokens, const Fences &work = {});
    pkv_status gather(uint32_t group, uint32_t layer, uint64_t position, uint64_t count, const pkv_tensor *k,
                      const pkv_tensor *v, Turn &turn);
    pkv_status slots(uint32_t group, uint64_t position, uint64_t count, pkv_slot *out);
    void info(pkv_table_info &out) const;
    pkv_status set_retention(const RetentionRange &range);

    pkv_status fork(std::shared_ptr<Table> &out, const Fences &work);
    pkv_status truncate(uint64_t num_tokens, const Fences &work = {});
    pkv_status accept(std::span<const uint64_t> positions, Turn &turn);
    pkv_status window(const Fences &work);
    /// On a device: makes what the block table names ready for kernels of the caller's own.
    pkv_status make_ready() { return pool_->make_ready(waits_); }
    /// On a device: what uses of its pages come after, besides what the caller orders.
    const Fences &waits() {
        if (!waits_.none() && pool_->device()->order().passed(waits_)) waits_ = {};
        return waits_;
    }
    /// A library's write of rows that are not committed is in this stream.
    void note_stream(const Turn &turn);

    /// Moves committed blocks [first, first + count) into tiers, as far as nobody else has their pages.
    pkv_status spill(uint64_t first, uint64_t count, const Fences &work, pkv_spill_result &result);
    /// Brings absent blocks of a range back into pages. `call` is what waits, for traces.
    pkv_status restore(uint64_t first, uint64_t count, uint64_t timeout_ns, uint64_t &restored,
                       const char *call = "restore");
    pkv_status residency(uint32_t group, uint64_t first, std::span<int32_t> where) const;
    /// Whether all blocks are in pages.
    pkv_status check_resident() const { return absent_.empty() ? PKV_OK : refuse_absent(); }
    /// Adds up absent tokens by tier.
    void count_absent(std::span<uint64_t> tier_tokens) const;
    uint64_t absent_blocks() const { return absent_.size(); }
    std::span<const pkv_page_copy> copies() const { return {copies_.data(), num_copies_}; }
    void copies_taken() { num_copies_ = 0; }

    /// Writes into the buffer, or with an empty one only finds the size, which a second call has to be given again.
    pkv_status export_to(std::span<std::byte> buffer, uint64_t &size);
    pkv_status import_from(std::span<const std::byte> buffer);

    // For hand-overs.
    /// Whether a block of a group has rows.
    using HasBlock = std::function<bool(uint32_t group, uint64_t block)>;
    /// Another value once the committed tokens are others, or may become others: after clear(), and a truncate() that cut them.
    uint64_t sequence() const { return sequence_; }
    std::span<const pkv_token> tokens() const { return tokens_; }
    const std::vector<prefix::Media> &media() const { return media_; }
    std::span<const RetentionRange> retention() const { return retention_; }
    prefix::Digest namespace_digest() const { return pool_->namespace_of(frontier_); }
    /// Begins a sequence whose rows come from elsewhere: whole blocks that the pool has (with `match`), committed already, then
    /// pages for the blocks that `has` names, and none elsewhere. The tokens that are committed are the first to be left out.
    pkv_status admit_handed(prefix::Prompt &prompt, std::vector<pkv_token> tokens, bool match, const HasBlock &has);

    // For prefetch sessions.
    /// Another value once blocks became absent or ceased to be, or their pages changed.
    struct ResidencyMark {
        uint64_t version = 0;
        uint64_t absent = 0;
        bool operator==(const ResidencyMark &) const = default;
    };
    ResidencyMark residency_mark() const { return {version_, absent_.size()}; }
    const std::map<uint64_t, AbsentBlock> &absent() const { return absent_; }
    /// The tokens that the image of an absent block must have; empty when it may have others, or none.
    std::span<const pkv_token> image_tokens(uint64_t block, const AbsentBlock &absent) const;
    /// Takes pages of absent blocks before `end` that others have published by now; returns how many blocks.
    uint64_t adopt_published(uint64_t end);
    /// A block whose images were loaded: a page for each group that lacked one, with a count that goes to the table.
    struct LoadedBlock {
        uint64_t block;
        GroupPages pages;
        std::array<int8_t, PKV_MAX_GROUPS> from; ///< the tiers they came from
    };
    /// Puts blocks in, which must be absent, and publishes them.
    void take_loaded(std::span<const LoadedBlock> loaded);
    /// An absent block cannot be had any more. Returns PKV_ERR_LOST.
    pkv_status lose(uint64_t block);

    // For batches.
    /// A commit of this length comes soon: what a publication will look at should be on its way.
    void prefetch_commit(uint64_t num_tokens) const;
    /// Another value once entries of the block table change or go; growth alone keeps it. Unique over all tables.
    uint64_t version() const { return version_; }
    /// Whether the sequence still has so many committed tokens, and room for so many.
    bool stands_at(uint64_t committed, uint64_t length) const {
        return admitted() && committed_ == committed && reserved() >= length;
    }
    /// Whether the block at `committed` is partly committed and somebody else may see its pages.
    bool tail_is_shared() { return shared_tail_groups() != 0; }
    /// Sets a mark; false if it is set already. Tells a batch that a table is listed twice.
    bool mark(uint64_t value) { return std::exchange(mark_, value) != value; }
    /// Notes that rows [position, position + count) of a layer hold KV.
    void note_written(uint32_t group, uint32_t layer, uint64_t position, uint64_t count);
    /// Whether rows [position, position + count) of a layer are there and written or committed.
    pkv_status check_readable(uint32_t group, uint32_t layer, uint64_t position, uint64_t count) const;

  private:
    static uint64_t next_version();
    bool admitted() const { return frontier_.root != prefix::no_node; }
    pkv_status check_range(uint64_t position, uint64_t count, const char *what) const;
    uint64_t &written(uint32_t group, uint32_t layer) { return written_[first_layer_[group] + layer]; }
    uint64_t readable(uint32_t group, uint32_t layer) const;
    pkv_status take_partial_match(Admission &admission);
    void publish(bool share) { // mostly there is nothing new
        const uint64_t end = std::min<uint64_t>(committed_, tokens_.size()) / page_tokens_;
        if (frontier_.blocks < end) publish_blocks(end, share);
    }
    void publish() { publish(share_); }
    void publish_blocks(uint64_t end, bool share);

    static constexpr uint64_t demand_timeout_ns = 30'000'000'000; // of loads that a call needs on the spot
    pkv_status refuse_absent() const;
    pkv_status check_resident(uint64_t position, uint64_t count) const;
    uint64_t first_absent(uint64_t position, uint64_t count) const;
    /// For everything that goes on behind the committed tokens.
    pkv_status check_tail_resident() const {
        return absent_.empty() || committed_ % page_tokens_ == 0 ? PKV_OK : check_resident(committed_, 1);
    }
    pkv_status make_resident(uint64_t position, uint64_t count);
    void forget_absent_from(uint64_t block);
    void forget_passed(uint32_t group, uint64_t first, uint64_t end);
    pkv_status store_spilled(std::span<PageStore> stores);
    pkv_status take_pages_for(uint64_t first, uint64_t end);
    uint64_t adopt_resident(uint64_t end);
    pkv_status load_absent(uint64_t first, uint64_t end, uint64_t deadline, uint64_t &restored, pkv_tier_key &busy,
                           bool &waits);
    void add_loads(uint64_t block, const AbsentBlock &absent, InFlight &in_flight, std::vector<PageLoad> &loads,
                   std::vector<uint64_t> &blocks, pkv_tier_key &busy, bool &waits) const;
    void drop_media_behind_names();

    GroupPages tail_pages() const;
    uint32_t shared_tail_groups();
    pkv_status make_tail_private(Turn &turn);
    pkv_status extend(uint64_t num_blocks, uint32_t copy, Turn &turn);
    pkv_status copy_tail(uint32_t groups, const GroupPages &fresh, Turn &turn);
    pkv_status wait_for_rows(Turn &turn);
    void note_leaving(const Fences &work);
    pkv_status check_copies_taken() const;
    void replace_tail(uint32_t groups, const GroupPages &fresh, const Fences &work);
    void drop_pending_copies();
    template <class Record, class Take>
    pkv_status take_rows(const std::vector<Record> &records, std::span<pkv_slot> slots, Take &&take);
    pkv_status match_handed(const prefix::Prompt &prompt, uint64_t &blocks);
    void move_media(std::span<const uint64_t> positions);
    pkv_status move_rows(uint32_t group, std::span<const uint64_t> positions, Turn &turn);
    void fill_slots(uint32_t group, uint64_t position, uint64_t count, pkv_slot *out) const;
    pkv_slot slot_of(uint32_t group, uint64_t position) const;

    // What a decode step needs comes first, on neighbouring cache lines.
    std::shared_ptr<Pool> pool_;
    uint64_t mark_ = 0;
    uint64_t committed_ = 0;
    uint64_t version_;
    uint64_t sequence_;
    PageTokens page_tokens_;
    bool tail_private_ = false; // known: the block at `committed` is this table's alone
    bool share_ = false;        // PKV_ADMIT_SHARE
    bool holds_sources_ = false;
    bool stream_open_ = false; // device pools: writes that are not committed are in stream_
    uint32_t num_copies_ = 0;
    Fences waits_;                  // device pools: work on the pages that is not known to have passed
    std::vector<pkv_token> tokens_; // named tokens
    Frontier frontier_;
    uint64_t publish_again_ = 0;             // blocks from which on it is worth another try
    std::map<uint64_t, AbsentBlock> absent_; // by block
    BlockLists lists_;                       // block table of each group
    std::vector<prefix::Media> media_;
    std::vector<RetentionRange> retention_;
    std::vector<uint64_t> written_;                    // for each layer: rows up to here hold KV, beyond `committed`
    std::array<uint32_t, PKV_MAX_GROUPS> first_layer_; // of a group in written_
    std::array<uint64_t, PKV_MAX_GROUPS> passed_{};    // blocks below this one were looked at by window()
    std::vector<pkv_slot> scratch_;
    uint64_t matched_ = 0;
    void *stream_ = nullptr;
    bool lost_ = false; // a block could not be loaded: `valid_` tokens are left
    uint64_t valid_ = 0;
    // Pools without memory: copies for the caller to make, and the pages that they read, held until they are made.
    std::array<pkv_page_copy, PKV_MAX_GROUPS> copies_{};
    GroupPages copy_sources_;
    std::weak_ptr<Table> self_;
};

} // namespace pkv
