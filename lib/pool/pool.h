// SPDX-License-Identifier: Apache-2.0
// A pool: pages of its layer groups, prefix index, eviction, retention and page bytes. What pool.h (public) documents is
// done here; the public functions only check handles and structs.
//
//   pool.cpp       creation, alloc, retain, release, statistics
//   eviction.cpp   which cached page goes, and what goes with it
//   prefixes.cpp   match, lookup, publish, clear
//   admission.cpp  what block tables need: admission in one step, counts of whole sequences
//   retention.cpp  priorities, pins, timers
//   bytes.cpp      write, gather, copy
#pragma once

#include "core/handles.h"
#include "core/mutex.h"
#include "core/workers.h"
#include "pool/events.h"
#include "pool/group.h"
#include "prefix/index.h"
#include "prefix/keys.h"
#include "tensor/convert.h"

#include <pagedkv/pool.h>
#include <pagedkv/stats.h>

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

namespace pkv {

/// How far a sequence is published: where its next block goes in the index.
struct Frontier {
    prefix::NodeId root = prefix::no_node; ///< no_node: not admitted
    uint64_t blocks = 0;                   ///< blocks published, or found published
    prefix::Key key;                       ///< of the last of them; of the root when there is none
    prefix::NodeId node = prefix::no_node; ///< of the last of them
    uint32_t generation = 0;               ///< of `node`; another one means that the node is gone
};

/// A page for each layer group, PKV_NO_PAGE where there is none.
using GroupPages = std::array<pkv_page, PKV_MAX_GROUPS>;

using GroupCounts = std::array<uint64_t, PKV_MAX_GROUPS>;

/// The block tables of one sequence: one list a group, all of one length.
using BlockLists = std::array<std::vector<pkv_page>, PKV_MAX_GROUPS>;

/// How far Pool::publish_sequence() came.
enum class Publication {
    tried, ///< all of it, or up to a block whose page has another name
    full,  ///< up to where the index was full: worth another try later
    over,  ///< the namespace was cleared: nothing of the sequence will be found any more
};

/// What Pool::admit() was asked for, and what it found.
struct Admission {
    uint64_t max_match = 0; ///< tokens
    uint64_t prompt_tokens = 0;
    uint64_t reserve_tokens = 0; ///< room after the matched blocks; 0 = the rest of the prompt
    uint64_t watermark = 0;
    bool retry = false;
    bool partial = false;

    uint64_t matched_blocks = 0;
    uint64_t new_blocks = 0;
    uint64_t partial_tokens = 0; ///< tokens that matched in the block after
    GroupPages partial_pages{};  ///< where they lie, each with a count that the caller releases
};

/// A caller's K or V, checked.
struct CallerRows {
    FlatRows rows; ///< base nullptr: not given
    int32_t dtype = 0;
};
struct CallerTensors {
    CallerRows k;
    CallerRows v;
};

/// Retention of a range of tokens of one sequence.
struct RetentionRange {
    uint64_t begin = 0;
    uint64_t end = 0;
    pkv_retention retention{};
};

class Pool : public std::enable_shared_from_this<Pool> {
  public:
    static constexpr HandleKind handle_kind = HandleKind::pool;

    /// Everything that pkv_pool_create does but the handle.
    static pkv_status create(const pkv_pool_options &options, std::span<const pkv_group_options> groups,
                             std::shared_ptr<Pool> &pool);
    Pool() = default;
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    // Fixed after create(): no lock.
    uint32_t page_tokens() const { return page_tokens_; }
    uint32_t num_groups() const { return num_groups_; }
    const Geometry &geometry(uint32_t group) const { return groups_[group].geometry; }
    const Group &group(uint32_t group) const { return groups_[group]; }
    PageMemory &memory(uint32_t group) const { return groups_[group].memory; }
    Workers *workers() const { return workers_.get(); }
    pkv_status check_group(uint32_t group) const;
    pkv_status check_layer(uint32_t group, uint32_t layer) const;

    /// Called when the pool's handle is destroyed; tables see it. False, and nothing changed, while calls are at work on
    /// bytes of the caller's.
    bool close();
    bool closed() const {
        return closed_.load(std::memory_order_acquire) ||
               (caller_memory_ && (byte_calls_.load(std::memory_order_acquire) & closed_bit) != 0);
    }
    pkv_status quiesce(uint64_t timeout_ns) const;

    // ---- pages
    pkv_status alloc(uint32_t group, uint64_t num_pages, pkv_page *pages) PKV_EXCLUDES(mutex_);
    pkv_status retain(uint32_t group, std::span<const pkv_page> pages) PKV_EXCLUDES(mutex_);
    pkv_status release(uint32_t group, std::span<const pkv_page> pages, pkv_status *statuses) PKV_EXCLUDES(mutex_);
    pkv_status page_info(uint32_t group, pkv_page page, pkv_page_info &info) PKV_EXCLUDES(mutex_);
    uint64_t evict(uint32_t group, uint64_t num_pages) PKV_EXCLUDES(mutex_);
    void stats(uint32_t group, pkv_pool_stats &out) PKV_EXCLUDES(mutex_);

    // ---- prefixes
    /// Both return the blocks found.
    uint64_t lookup(const prefix::Prompt &prompt, uint64_t max_blocks, pkv_page *pages, uint64_t capacity)
        PKV_EXCLUDES(mutex_);
    uint64_t probe(const prefix::Prompt &prompt, uint64_t max_blocks) PKV_EXCLUDES(mutex_);
    pkv_status publish(uint32_t group, const prefix::Prompt &prompt, uint64_t first_block, std::span<const pkv_page> pages,
                       pkv_page *owner) PKV_EXCLUDES(mutex_);
    void clear(const prefix::Digest &digest, pkv_clear_result &result) PKV_EXCLUDES(mutex_);
    void clear_all(pkv_clear_result &result) PKV_EXCLUDES(mutex_);
    void block_keys(const prefix::Prompt &prompt, std::span<pkv_key> keys) const;
    pkv_status events(uint64_t after, pkv_event *events, uint64_t capacity, uint64_t &count, uint64_t &missed)
        PKV_EXCLUDES(mutex_);

    // ---- retention
    /// Returns the blocks found and set.
    uint64_t set_retention(const prefix::Prompt &prompt, uint64_t first_block, uint64_t end_block,
                           const pkv_retention &retention) PKV_EXCLUDES(mutex_);
    void set_namespace_retention(const prefix::Digest &digest, const pkv_retention *retention) PKV_EXCLUDES(mutex_);
    /// For the published blocks of a sequence that a range touches.
    void set_sequence_retention(const Frontier &frontier, std::span<const pkv_token> tokens,
                                std::span<const prefix::Media> media, const RetentionRange &range) PKV_EXCLUDES(mutex_);

    // ---- for tables
    /// Matches and reserves, or changes nothing. Appends the matched pages, then the new ones, to the (empty) `lists`.
    pkv_status admit(const prefix::Prompt &prompt, Admission &admission, BlockLists &lists, Frontier &frontier)
        PKV_EXCLUDES(mutex_);
    /// Begins a sequence of a namespace without blocks.
    Frontier open_namespace(const prefix::Digest &digest) PKV_EXCLUDES(mutex_);
    /// Appends so many new pages to each group's list, whose capacity is enough: all or nothing.
    pkv_status extend(BlockLists &lists, const GroupCounts &wanted) PKV_EXCLUDES(mutex_);
    /// Publishes blocks [frontier.blocks, end) of a sequence; moves the frontier. With `share`, pages of blocks that are
    /// published already are replaced by the published ones, and `replaced` says so.
    Publication publish_sequence(std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                                 BlockLists &lists, uint64_t end, bool share, std::span<const RetentionRange> retention,
                                 Frontier &frontier, bool &replaced) PKV_EXCLUDES(mutex_);
    /// Begins to load what publishing a sequence's next block will look at.
    void prefetch_publication(std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                              const Frontier &frontier) const;
    /// Moves a frontier back to its first `blocks` blocks.
    void retreat(Frontier &frontier, uint64_t blocks) PKV_EXCLUDES(mutex_);
    void retain_sequence(const BlockLists &lists, const Frontier &frontier) PKV_EXCLUDES(mutex_);
    /// Releases blocks from `first` on.
    void release_blocks(const BlockLists &lists, uint64_t first) PKV_EXCLUDES(mutex_);
    /// Releases all blocks, and the sequence's hold on its namespace.
    void release_sequence(const BlockLists &lists, Frontier &frontier) PKV_EXCLUDES(mutex_);
    void release_pages(const GroupPages &pages) PKV_EXCLUDES(mutex_);
    /// Releases pages of a window group that its window has passed.
    void release_passed(uint32_t group, std::span<const pkv_page> pages) PKV_EXCLUDES(mutex_);
    /// Bit mask of groups in which somebody else may see these pages.
    uint32_t shared_groups(const GroupPages &pages) PKV_EXCLUDES(mutex_);
    void count_copies(uint64_t pages) PKV_EXCLUDES(mutex_);
    void count_table(int64_t change) { tables_.fetch_add(static_cast<uint64_t>(change), std::memory_order_relaxed); }
    prefix::Digest namespace_of(const Frontier &frontier) PKV_EXCLUDES(mutex_);

    // ---- bytes
    pkv_status write(uint32_t group, uint32_t layer, std::span<const pkv_slot> slots, const pkv_tensor *k,
                     const pkv_tensor *v) PKV_EXCLUDES(mutex_);
    pkv_status gather(uint32_t group, uint32_t layer, std::span<const pkv_page> pages, uint64_t first, uint64_t count,
                      const pkv_tensor *k, const pkv_tensor *v) PKV_EXCLUDES(mutex_);
    pkv_status copy_pages(uint32_t group, std::span<const pkv_page> src, std::span<const pkv_page> dst)
        PKV_EXCLUDES(mutex_);
    pkv_status need_memory(uint32_t group) const;
    /// Checks both sides of the caller's rows against the geometry.
    pkv_status source_rows(uint32_t group, const pkv_tensor *k, const pkv_tensor *v, uint64_t count,
                           CallerTensors &out) const;
    pkv_status target_rows(uint32_t group, const pkv_tensor *k, const pkv_tensor *v, uint64_t count,
                           CallerTensors &out) const;
    /// Moves checked rows, converting where the types differ.
    void write_rows(uint32_t group, uint32_t layer, std::span<const pkv_slot> slots, const CallerTensors &rows) const;
    void read_rows(uint32_t group, uint32_t layer, const pkv_page *list, uint64_t first, uint64_t count,
                   const CallerTensors &rows) const;
    bool has_memory() const { return has_memory_; } ///< in every group
    /// Moves one token's rows, all layers, with their scales, from slot to slot.
    void move_row(uint32_t group, pkv_slot src, pkv_slot dst) const;
    /// Copies the first `tokens` tokens of all layers of one page; with all of them, its aux bytes too.
    void copy_page_bytes(uint32_t group, pkv_page src, pkv_page dst, uint32_t tokens) const;

    /// Marks a call that may touch page bytes, for close() and quiesce(). Look at closed() after making one.
    class BytesInUse {
      public:
        explicit BytesInUse(const Pool &pool) : pool_(pool) {
            if (pool_.caller_memory_) pool_.byte_calls_.fetch_add(1, std::memory_order_acq_rel);
        }
        ~BytesInUse() {
            if (pool_.caller_memory_) pool_.byte_calls_.fetch_sub(1, std::memory_order_release);
        }
        BytesInUse(const BytesInUse &) = delete;
        BytesInUse &operator=(const BytesInUse &) = delete;

      private:
        const Pool &pool_;
    };

  private:
    struct BlockToPublish;
    class BlocksToPublish;
    /// Blocks of a prompt that may be, and then those that are, in the index.
    struct Candidates {
        std::vector<prefix::Key> keys;
        std::vector<prefix::NodeId> nodes; // room for as many as there are keys
    };
    /// A retention that ends at a time. Stale when the node's timer has another value.
    struct Timer {
        uint64_t deadline_ns;
        prefix::NodeId node;
        uint32_t generation;
        uint32_t timer;
        bool operator>(const Timer &other) const { return deadline_ns > other.deadline_ns; }
    };

    PageSet &pages(uint32_t group) { return groups_[group].pages; }
    pkv_status check_slots(uint32_t group, std::span<const pkv_slot> slots) PKV_EXCLUDES(mutex_);
    tensor::Conversion conversion(uint32_t group, uint32_t layer, int32_t flat_dtype) const;
    pkv_status no_such_page(uint32_t group, pkv_page page) const;
    pkv_status no_pages(uint32_t group, uint64_t wanted) PKV_REQUIRES(mutex_);

    // Pages and eviction, under the lock.
    void release_one(uint32_t group, pkv_page page) PKV_REQUIRES(mutex_);
    void prefetch_pages(const BlockLists &lists, uint64_t first, uint64_t end) const;
    void prefetch_release(uint32_t group, pkv_page page) PKV_REQUIRES(mutex_);
    void release_list(uint32_t group, std::span<const pkv_page> list, uint64_t first) PKV_REQUIRES(mutex_);
    void cache_page(uint32_t group, pkv_page page) PKV_REQUIRES(mutex_);
    void trim_cached(uint32_t group) PKV_REQUIRES(mutex_);
    void trim_all() PKV_REQUIRES(mutex_) {
        for (uint32_t group = 0; group < num_groups_; ++group) trim_cached(group);
    }
    void make_free(uint32_t group, pkv_page page) PKV_REQUIRES(mutex_);
    pkv_page take_page(uint32_t group) PKV_REQUIRES(mutex_);
    pkv_page evict_one(uint32_t group) PKV_REQUIRES(mutex_);
    pkv_page parked_above(uint32_t group, prefix::NodeId node) PKV_REQUIRES(mutex_);
    void prefetch_victims(uint32_t group, pkv_page page) PKV_REQUIRES(mutex_);
    uint32_t list_for(const prefix::Node &node) const;
    /// A page loses its name; the node stays.
    void detach_page(prefix::NodeId node, uint32_t group) PKV_REQUIRES(mutex_);
    /// A page loses its name and, when nobody holds it, becomes free.
    void drop_page(prefix::NodeId node, uint32_t group, pkv_clear_result &result) PKV_REQUIRES(mutex_);
    /// Takes a childless node out, with what pages it has.
    void drop_node(prefix::NodeId node, pkv_clear_result &result) PKV_REQUIRES(mutex_);
    void remove_node(prefix::NodeId node) PKV_REQUIRES(mutex_);
    /// Takes out nodes from `node` upwards that have neither pages nor children.
    void prune(prefix::NodeId node) PKV_REQUIRES(mutex_);
    void drop_below(prefix::NodeId top, pkv_clear_result &result) PKV_REQUIRES(mutex_);

    // Prefixes.
    /// The prompt's blocks as far as the index may know them, without nodes; reads no guarded state.
    Candidates candidates(const prefix::Prompt &prompt, uint64_t max_blocks) const;
    void walk(const prefix::Prompt &prompt, Candidates &found) PKV_REQUIRES(mutex_);
    /// The walk, cut to the longest length that all groups cover; returns its blocks.
    uint64_t match(const prefix::Prompt &prompt, Candidates &found) PKV_REQUIRES(mutex_);
    uint64_t covered_blocks(std::span<const prefix::NodeId> nodes) PKV_REQUIRES(mutex_);
    pkv_status check_admission(std::span<const prefix::NodeId> nodes, uint64_t wanted, uint64_t watermark)
        PKV_REQUIRES(mutex_);
    void match_inside_block(const prefix::Prompt &prompt, prefix::NodeId parent, Admission &admission)
        PKV_REQUIRES(mutex_);
    prefix::NodeId find_or_make_root(const prefix::Digest &digest) PKV_REQUIRES(mutex_);
    prefix::NodeId publish_node(prefix::NodeId parent, const prefix::BlockName &name, prefix::Extras &extras,
                                uint64_t block, const GroupPages &list) PKV_REQUIRES(mutex_);
    void publish_page(prefix::NodeId node, uint32_t group, pkv_page &page, bool share) PKV_REQUIRES(mutex_);
    pkv_status check_publish(uint32_t group, const prefix::Prompt &prompt, uint64_t first_block,
                             std::span<const pkv_page> pages, BlocksToPublish &blocks,
                             prefix::NodeId &parent) PKV_REQUIRES(mutex_);
    BlocksToPublish name_blocks(std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                                const prefix::Key &parent, uint64_t first, uint64_t end) const;
    void clear_root(prefix::NodeId root, pkv_clear_result &result) PKV_REQUIRES(mutex_);
    void record(int32_t kind, uint32_t group, prefix::NodeId node) PKV_REQUIRES(mutex_);

    // Retention.
    void apply_retention(prefix::NodeId node, const pkv_retention &retention, uint64_t now_ns) PKV_REQUIRES(mutex_);
    void apply_published_retention(prefix::NodeId node, prefix::NodeId root, std::span<const RetentionRange> ranges)
        PKV_REQUIRES(mutex_);
    void set_pinned(prefix::NodeId node, bool pinned) PKV_REQUIRES(mutex_);
    void relist(prefix::NodeId node, bool new_priority) PKV_REQUIRES(mutex_);
    void reserve_timers(uint64_t more) PKV_REQUIRES(mutex_);
    bool is_stale(const Timer &timer) PKV_REQUIRES(mutex_);
    void expire() PKV_REQUIRES(mutex_);

    uint32_t page_tokens_ = 0;
    uint32_t num_groups_ = 0;
    std::unique_ptr<Group[]> groups_;
    bool has_memory_ = false;
    bool caller_memory_ = false;
    std::unique_ptr<Workers> workers_;
    prefix::KeyMaker keys_;
    int32_t key_seed_ = 0;
    bool poison_ = false;
    std::atomic<bool> closed_{false};
    // Over memory of the caller's: calls that may touch it, and closed_bit once none may any more. One word, so that closing
    // and entering cannot miss each other.
    static constexpr uint64_t closed_bit = uint64_t{1} << 63;
    mutable std::atomic<uint64_t> byte_calls_{0};
    std::atomic<uint64_t> tables_{0};

    // Guards the groups' pages, the index (but for likely() and prefetches), and what follows. It has cache lines of its own:
    // those who wait for it must not slow down the one who has it.
    alignas(128) Mutex mutex_;
    alignas(128) prefix::Index index_;
    EventRing events_ PKV_GUARDED_BY(mutex_);
    bool clearing_ PKV_GUARDED_BY(mutex_) = false; // one event stands for all blocks
    std::vector<Timer> timers_ PKV_GUARDED_BY(mutex_); // a heap, the earliest first
    pkv_pool_stats counters_ PKV_GUARDED_BY(mutex_) = PKV_POOL_STATS_INIT;
};

} // namespace pkv
