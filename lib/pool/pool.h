// SPDX-License-Identifier: Apache-2.0
// A pool: pages of its layer groups, prefix index, eviction, retention and page bytes. What pool.h (public) documents is
// done here; the public functions only check handles and structs.
//
//   pool.cpp       creation, alloc, retain, release, statistics
//   eviction.cpp   which cached page goes, and what goes with it
//   prefixes.cpp   match, lookup, clear
//   publication.cpp  how blocks become findable
//   admission.cpp  what block tables need: admission in one step, counts of whole sequences
//   retention.cpp  priorities, pins, timers
//   bytes.cpp      write, gather, copy
//   device.cpp     memory of a device pool, and what its callers come after; device_bytes.cpp, device_images.cpp: bytes and page
//                  images there; transfers.cpp: how images are moved fastest, once measured
//   tiers.cpp      what is found in the tiers below, and comes up from there
//   stores.cpp     pages on their way down; cleaner.cpp is the thread that sends them
//   moves.cpp      pages moved by key; mover.cpp is the thread that does it
#pragma once

#include "core/handles.h"
#include "core/mutex.h"
#include "core/workers.h"
#include "device/turn.h"
#include "layout/page_tokens.h"
#include "pool/blocks.h"
#include "pool/events.h"
#include "pool/group.h"
#include "pool/moves.h"
#include "prefix/index.h"
#include "prefix/keys.h"
#include "tensor/convert.h"
#include "tier/stack.h"

#include <pagedkv/pool.h>
#include <pagedkv/stats.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace pkv {

class Cleaner;
class Mover;
class Op;

class Pool : public std::enable_shared_from_this<Pool> {
  public:
    static constexpr HandleKind handle_kind = HandleKind::pool;

    /// Everything that pkv_pool_create does but the handle.
    static pkv_status create(const pkv_pool_options &options, std::span<const pkv_group_options> groups,
                             std::vector<Attachment> tiers, std::shared_ptr<Pool> &pool);
    Pool();
    ~Pool();
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    // Fixed after create(): no lock.
    PageTokens page_tokens() const { return page_tokens_; }
    uint32_t num_groups() const { return num_groups_; }
    const Geometry &geometry(uint32_t group) const { return groups_[group].geometry; }
    const Group &group(uint32_t group) const { return groups_[group]; }
    pkv_layer_layout layer_layout(uint32_t group, uint32_t layer) const; ///< addresses NULL without memory
    PageMemory &memory(uint32_t group) const { return groups_[group].memory; }
    Workers *workers() const { return workers_.get(); }
    const std::shared_ptr<Device> &device() const { return device_; } ///< nullptr: host memory
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
    /// On a device, uses of the pages come after `waits`; the other one makes them ready.
    pkv_status alloc(uint32_t group, uint64_t num_pages, pkv_page *pages, Fences &waits) PKV_EXCLUDES(mutex_);
    pkv_status retain(uint32_t group, std::span<const pkv_page> pages) PKV_EXCLUDES(mutex_);
    /// On a device `work` may still use them.
    pkv_status release(uint32_t group, std::span<const pkv_page> pages, pkv_status *statuses, const Fences &work = {})
        PKV_EXCLUDES(mutex_);
    pkv_status page_info(uint32_t group, pkv_page page, pkv_page_info &info) PKV_EXCLUDES(mutex_);
    uint64_t evict(uint32_t group, uint64_t num_pages) PKV_EXCLUDES(mutex_);
    void stats(uint32_t group, pkv_pool_stats &out) PKV_EXCLUDES(mutex_);

    // ---- prefixes
    /// Both find blocks: their number.
    pkv_status lookup(const prefix::Prompt &prompt, uint64_t max_blocks, pkv_page *pages, uint64_t capacity,
                      uint64_t &blocks) PKV_EXCLUDES(mutex_);
    uint64_t probe(const prefix::Prompt &prompt, uint64_t max_blocks) PKV_EXCLUDES(mutex_);
    pkv_status publish(uint32_t group, const prefix::Prompt &prompt, uint64_t first_block,
                       std::span<const pkv_page> pages, pkv_page *owner) PKV_EXCLUDES(mutex_);
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
    /// Appends so many new pages to each group's list, whose capacity is enough: all or nothing. On a device, uses of them come
    /// after `waits`.
    pkv_status extend(BlockLists &lists, const GroupCounts &wanted, Fences &waits) PKV_EXCLUDES(mutex_);
    /// Publishes blocks [frontier.blocks, end) of a sequence; moves the frontier. With `share`, pages of blocks that are
    /// published already are replaced by the published ones, and `replaced` says so; uses of those come after `waits`.
    Publication publish_sequence(std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                                 BlockLists &lists, uint64_t end, bool share, std::span<const RetentionRange> retention,
                                 Frontier &frontier, bool &replaced, Fences &waits) PKV_EXCLUDES(mutex_);
    /// Begins to load what publishing a sequence's next block will look at.
    void prefetch_publication(std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                              const Frontier &frontier) const;
    /// Moves a frontier back to its first `blocks` blocks.
    void retreat(Frontier &frontier, uint64_t blocks) PKV_EXCLUDES(mutex_);
    void retain_sequence(const BlockLists &lists, const Frontier &frontier) PKV_EXCLUDES(mutex_);
    /// Releases blocks from `first` on. Here, and in all that follow: on a device `work` may still use them.
    void release_blocks(const BlockLists &lists, uint64_t first, const Fences &work = {}) PKV_EXCLUDES(mutex_);
    /// Releases all blocks, and the sequence's hold on its namespace.
    void release_sequence(const BlockLists &lists, Frontier &frontier, const Fences &work) PKV_EXCLUDES(mutex_);
    void release_pages(const GroupPages &pages, const Fences &work) PKV_EXCLUDES(mutex_);
    /// Releases pages of a window group that its window has passed.
    void release_passed(uint32_t group, std::span<const pkv_page> pages, const Fences &work) PKV_EXCLUDES(mutex_);
    /// Bit mask of groups in which somebody else may see these pages.
    uint32_t shared_groups(const GroupPages &pages) PKV_EXCLUDES(mutex_);
    void count_copies(uint64_t pages) PKV_EXCLUDES(mutex_);
    void count_table(int64_t change) { tables_.fetch_add(static_cast<uint64_t>(change), std::memory_order_relaxed); }
    prefix::Digest namespace_of(const Frontier &frontier) PKV_EXCLUDES(mutex_);

    // ---- tiers
    TierStack *tiers() const { return tiers_.get(); }
    pkv_tier_key image_key(uint32_t group, const prefix::Digest &digest) const {
        return groups_[group].image.key(digest);
    }
    void image_keys(uint32_t group, const prefix::Prompt &prompt, std::span<pkv_tier_key> keys) const;
    /// Takes pins of a block's images back; images of its own are removed.
    void forget_absent(const AbsentBlock &block, uint32_t groups) const;
    /// A block is in pages again: pins of its images go back, and a tier that holds only what the pool does not lets go of
    /// them.
    void forget_resident(const AbsentBlock &block) const;
    /// Loads images into pages that the caller holds.
    void load_pages(std::span<PageLoad> loads, uint64_t deadline_ns, const std::function<bool()> &cancelled = {});
    void store_pages(std::span<PageStore> stores, uint64_t deadline_ns, const std::function<bool()> &cancelled = {});
    uint32_t writable_tiers() const; ///< bit mask
    /// If the sequence's next block, after its frontier, has pages by now: takes a count of each page that `needed` asks for
    /// (a bit mask of groups), and moves the frontier.
    bool adopt_block(Frontier &frontier, std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                     uint32_t needed, GroupPages &pages, Fences &waits) PKV_EXCLUDES(mutex_);
    /// Says that a tier has the image of a page, if the page is published.
    void note_image(uint32_t group, pkv_page page, int8_t tier) PKV_EXCLUDES(mutex_);
    /// Releases a page that lost its use before anything was in it, or was loaded for nothing.
    void release_page(uint32_t group, pkv_page page, const Fences &work = {}) PKV_EXCLUDES(mutex_);
    /// Bit mask of groups in which a page has counts of others.
    bool is_shared(uint32_t group, pkv_page page) PKV_EXCLUDES(mutex_);
    /// Makes the image of a page in a staging slot; on a device after `after`.
    pkv_status pack(uint32_t group, pkv_page page, const ImageName &name, std::byte *image, const Fences &after) const {
        if (device_ != nullptr) return pack_on_device(group, page, name, image, after);
        groups_[group].image.pack(groups_[group].memory, page, name, image);
        return PKV_OK;
    }
    /// Puts a slice of an image, in memory that the device reads, into a page of it, and waits.
    pkv_status unpack_slice_on_device(uint32_t group, pkv_page page, uint32_t layer, const std::byte *slice,
                                      const float *scales, int32_t layout, const Fences &after) const;
    Staging::Supply staging_supply() const; ///< of memory that the pool's device reads; none for a host pool
    // ---- order of work, on a device
    /// Makes what a call has handed out ready for the stream of in-place kernels, or for everybody.
    pkv_status make_ready(const Fences &waits) const;
    /// pkv_pool_order().
    pkv_status order(Turn &turn) PKV_EXCLUDES(mutex_);
    /// A turn for a call without a sync, in the stream of in-place kernels if there is one.
    void begin_unasked(Turn &turn) const { turn.begin_unasked(device_, has_in_place_ ? &in_place_ : nullptr); }
    /// Blocks [first, end) were written by this work: who finds them comes after.
    void note_written(const BlockLists &lists, uint64_t first, uint64_t end, const Fences &work) PKV_EXCLUDES(mutex_);
    /// What writing into a page comes after.
    Fences before_writing(uint32_t group, pkv_page page) PKV_EXCLUDES(mutex_);

    /// Adds to a counter of pkv_pool_stats.
    void count(uint64_t pkv_pool_stats::*counter, uint64_t value) PKV_EXCLUDES(mutex_);
    pkv_status begin_store(uint32_t group, std::span<const pkv_tier_key> keys, std::span<const pkv_page> pages,
                           std::shared_ptr<Op> op, uint64_t timeout_ns, const Fences &after);
    pkv_status begin_load(uint32_t group, std::span<const pkv_tier_key> keys, std::span<const pkv_page> pages,
                          std::shared_ptr<Op> op, uint64_t timeout_ns, const Fences &after);
    pkv_status flush(uint64_t timeout_ns);

    // For the cleaner.
    /// The next page to store; its bytes may be read until end_read(). False: none waits, or (`postponed`) those that do are
    /// still being written by a device.
    bool next_store(StoreWork &work, bool all, bool &postponed) PKV_EXCLUDES(mutex_);
    /// Its bytes are not read any more. False: it lost its name meanwhile, and somebody may have written into it.
    bool end_read(const StoreWork &work) PKV_EXCLUDES(mutex_);
    /// What became of it in the tiers of two bit masks. True: the image is not wanted any more, and has to be removed.
    bool end_store(const StoreWork &work, uint32_t stored, uint32_t failed) PKV_EXCLUDES(mutex_);
    /// The store is over, and so is the removal of its image, if there had to be one.
    void forget_store(const StoreWork &work) PKV_EXCLUDES(mutex_);
    bool pages_wait(bool all) PKV_EXCLUDES(mutex_);  ///< whether next_store() would find one
    bool stores_wait(bool all) PKV_EXCLUDES(mutex_); ///< or a store is under way, or a use to be told
    /// Takes cached pages whose tiers are to be told that they were in use; returns how many.
    size_t next_used(std::span<UsedPage> out) PKV_EXCLUDES(mutex_);
    /// Their images that tiers have lost are wanted again.
    void end_used(std::span<const UsedPage> pages) PKV_EXCLUDES(mutex_);
    void expire_moves() const; ///< ends operations whose time is over

    // ---- bytes
    // Those that move bytes do so when it is their turn; on a device, what comes before pages of a table is its table's to say.
    pkv_status write(uint32_t group, uint32_t layer, std::span<const pkv_slot> slots, const pkv_tensor *k,
                     const pkv_tensor *v, Turn &turn) PKV_EXCLUDES(mutex_);
    pkv_status gather(uint32_t group, uint32_t layer, std::span<const pkv_page> pages, uint64_t first, uint64_t count,
                      const pkv_tensor *k, const pkv_tensor *v, Turn &turn) PKV_EXCLUDES(mutex_);
    pkv_status copy_pages(uint32_t group, std::span<const pkv_page> src, std::span<const pkv_page> dst, Turn &turn)
        PKV_EXCLUDES(mutex_);
    pkv_status need_memory(uint32_t group) const;
    pkv_status need_host_memory(uint32_t group) const;
    /// Checks both sides of the caller's rows against the geometry.
    pkv_status source_rows(uint32_t group, const pkv_tensor *k, const pkv_tensor *v, uint64_t count,
                           CallerTensors &out) const;
    pkv_status target_rows(uint32_t group, const pkv_tensor *k, const pkv_tensor *v, uint64_t count,
                           CallerTensors &out) const;
    /// Moves checked rows, converting where the types differ.
    pkv_status write_rows(uint32_t group, uint32_t layer, std::span<const pkv_slot> slots, const CallerTensors &rows,
                          Turn &turn) const;
    pkv_status read_rows(uint32_t group, uint32_t layer, const pkv_page *list, uint64_t first, uint64_t count,
                         const CallerTensors &rows, Turn &turn) const;
    /// Tokens of many sequences, on a device at once. Behind the rows of each, up to `padded` of them are zeroed.
    pkv_status read_sequences(uint32_t group, uint32_t layer, std::span<const SequenceRows> sequences, uint64_t padded,
                              const CallerTensors &rows, Turn &turn) const;
    bool has_memory() const { return has_memory_; } ///< in every group
    /// Moves the rows of tokens, all layers, with their scales, from src[i] to dst[i], which never lies behind it.
    pkv_status move_rows(uint32_t group, std::span<const pkv_slot> src, std::span<const pkv_slot> dst,
                         Turn &turn) const;
    /// Copies the first `tokens` tokens of all layers of one page; with all of them, its aux bytes too.
    pkv_status copy_page_bytes(uint32_t group, pkv_page src, pkv_page dst, uint32_t tokens, Turn &turn) const;
    /// Rows of K or V in the group's own type, dense, and their scales (nullptr without), of tokens of a block table, to and from
    /// host memory. They wait. `slots`: room for `count`.
    pkv_status take_out(uint32_t group, uint32_t layer, bool is_k, const pkv_page *list, uint64_t first, uint64_t count,
                        std::byte *rows, std::byte *scales, Turn &turn) const;
    pkv_status put_in(uint32_t group, uint32_t layer, bool is_k, const pkv_page *list, uint64_t first, uint64_t count,
                      const std::byte *rows, const std::byte *scales, std::span<pkv_slot> slots, Turn &turn) const;

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
    friend class DeviceImages;
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
    pkv_status check_slots(uint32_t group, std::span<const pkv_slot> slots, Fences &waits) PKV_EXCLUDES(mutex_);
    void move_row(uint32_t group, pkv_slot src, pkv_slot dst) const;
    void zero_rows(uint32_t group, const CallerTensors &rows, uint64_t first, uint64_t end) const;
    // On a device.
    pkv_status open_device(const pkv_pool_options &options);
    pkv_status create_device_memory(Group &group);
    pkv_status place_device_scales(Group &group);
    pkv_status write_slots_on_device(uint32_t group, uint32_t layer, std::span<const pkv_slot> slots,
                                     const CallerTensors &rows, Turn &turn) PKV_EXCLUDES(mutex_);
    pkv_status gather_by_device_list(uint32_t group, uint32_t layer, std::span<const pkv_page> list, uint64_t first,
                                     uint64_t count, const CallerTensors &rows, Turn &turn) const;
    pkv_status copy_pages_on_device(uint32_t group, std::span<const pkv_page> src, std::span<const pkv_page> dst,
                                    const Fences &waits, Turn &turn) PKV_EXCLUDES(mutex_);
    pkv_status copy_on_device(uint32_t group, std::span<const pkv_page> src, std::span<const pkv_page> dst,
                              uint32_t tokens, Turn &turn) const;
    /// Whether a list of ids is read by the host, now, or by kernels, when they run.
    pkv_status is_on_host(const void *list, const Turn &turn, bool &on_host) const;
    void fill_slots(const pkv_page *list, uint64_t first, std::span<pkv_slot> slots) const;
    pkv_status write_on_device(uint32_t group, uint32_t layer, const pkv_slot *slots, uint64_t count, bool on_host,
                               const CallerTensors &rows, Turn &turn) const;
    pkv_status read_on_device(uint32_t group, uint32_t layer, pkv_device_gather gather, const CallerTensors &rows,
                              Turn &turn) const;
    pkv_status pack_on_device(uint32_t group, pkv_page page, const ImageName &name, std::byte *image,
                              const Fences &after) const;
    pkv_status copy_image(uint32_t group, pkv_page page, std::byte *image, bool to_page, void *stream) const;
    pkv_status launch_image(uint32_t group, pkv_page page, std::byte *image, int32_t layout, uint32_t tokens,
                            bool to_page, void *stream) const;
    pkv_status choose_transfer(uint32_t group);
    pkv_status measure_transfer(uint32_t group, std::byte *image, bool &by_copies) const;
    void pin_arenas();
    Fences before_reading(uint32_t group, pkv_page page) PKV_EXCLUDES(mutex_);
    pkv_status move_rows_on_device(uint32_t group, std::span<const pkv_slot> src, std::span<const pkv_slot> dst,
                                   Turn &turn) const;
    pkv_status check_rows_on_device(const CallerTensors &rows) const;
    void move_host_scales(uint32_t group, uint32_t layer, bool is_k, const pkv_page *list, uint64_t first,
                          uint64_t count, std::byte *flat, bool to_pages) const;
    pkv_status move_device_scales(uint32_t group, uint32_t layer, bool is_k, const pkv_page *list, uint64_t first,
                                  uint64_t count, std::byte *pinned, bool to_pages, Turn &turn) const;
    pkv_status take_out_of_device(uint32_t group, uint32_t layer, bool is_k, const pkv_page *list, uint64_t first,
                                  uint64_t count, std::byte *rows, std::byte *scales, Turn &turn) const;
    pkv_status put_into_device(uint32_t group, uint32_t layer, bool is_k, const pkv_page *list, uint64_t first,
                               uint64_t count, const std::byte *rows, const std::byte *scales,
                               std::span<pkv_slot> slots, Turn &turn) const;
    pkv_status take_bounce(uint64_t token_bytes) const;
    /// Memory of the device for a call, and the work of the one before.
    struct Scratch {
        std::unique_ptr<DeviceMemory> memory;
        Fences used;
    };
    pkv_status take_scratch(uint64_t bytes, Scratch &out) const;
    void poison_on_device(uint32_t group, pkv_page page) PKV_REQUIRES(mutex_);
    /// Whether work may still be in a page that is about to become free.
    bool is_in_use(uint32_t group, pkv_page page) PKV_REQUIRES(mutex_);
    void end_quarantine() PKV_REQUIRES(mutex_);
    tensor::Conversion conversion(uint32_t group, uint32_t layer, int32_t flat_dtype) const;
    pkv_status no_such_page(uint32_t group, pkv_page page) const;
    pkv_status no_pages(uint32_t group, uint64_t wanted) PKV_REQUIRES(mutex_);

    // Pages and eviction, under the lock.
    void release_one(uint32_t group, pkv_page page, const Fences &work = {}) PKV_REQUIRES(mutex_);
    void prefetch_pages(const BlockLists &lists, uint64_t first, uint64_t end) const;
    void prefetch_release(uint32_t group, pkv_page page) PKV_REQUIRES(mutex_);
    void release_list(uint32_t group, std::span<const pkv_page> list, uint64_t first, const Fences &work)
        PKV_REQUIRES(mutex_);
    void cache_page(uint32_t group, pkv_page page) PKV_REQUIRES(mutex_);
    void trim_cached(uint32_t group) PKV_REQUIRES(mutex_);
    void trim_all() PKV_REQUIRES(mutex_) {
        for (uint32_t group = 0; group < num_groups_; ++group) trim_cached(group);
    }
    void make_free(uint32_t group, pkv_page page) PKV_REQUIRES(mutex_);
    void poison(uint32_t group, pkv_page page) PKV_REQUIRES(mutex_);
    pkv_page take_page(uint32_t group, Fences &waits) PKV_REQUIRES(mutex_);
    pkv_page evict_one(uint32_t group) PKV_REQUIRES(mutex_); ///< PKV_NO_PAGE: only a borrowed page is left
    bool wait_for_borrowed(uint32_t group, uint64_t wanted) PKV_REQUIRES(mutex_);
    pkv_status check_stored(uint32_t group, uint64_t wanted) PKV_REQUIRES(mutex_);
    void note_hit(uint32_t group, pkv_page page) PKV_REQUIRES(mutex_);
    bool wants_cleaning(uint32_t group, bool all) PKV_REQUIRES(mutex_);
    bool page_waits(uint32_t group, bool all) PKV_REQUIRES(mutex_); ///< to be stored
    /// Whether the page still has the name under which it was taken (StoreWork, UsedPage).
    template <class Taken> bool is_same(const Taken &taken) PKV_REQUIRES(mutex_) {
        return index_.node(taken.node).generation == taken.generation &&
               index_.page(taken.node, taken.group) == taken.page;
    }
    template <class Item>
    pkv_status begin_move(uint32_t group, std::span<const pkv_page> list, const std::shared_ptr<Op> &op,
                          uint64_t deadline_ns, std::vector<Item> items,
                          std::function<void(std::span<Item>, const std::function<bool()> &)> job);
    /// What admit() finds in tiers: pinned until it is taken over or given back.
    struct TierHits {
        uint64_t first = 0; // block
        uint64_t clear_generation = 0;
        std::vector<AbsentBlock> blocks;
    };
    TierHits find_in_tiers(const prefix::Prompt &prompt, Candidates &found, uint64_t max_blocks) PKV_EXCLUDES(mutex_);
    /// Gives back pins of what was found and is not used: all of `hits` but what is in `used`.
    void unpin_unused(const TierHits &hits, std::span<const AbsentBlock> used, uint64_t first_used) const;
    /// A sequence of a namespace before its first block.
    Frontier root_frontier(prefix::NodeId root) const PKV_REQUIRES(mutex_);
    pkv_status create_tiers(const pkv_pool_options &options, std::vector<Attachment> tiers);
    pkv_page parked_above(uint32_t group, prefix::NodeId node) PKV_REQUIRES(mutex_);
    void prefetch_victims(uint32_t group, pkv_page page) PKV_REQUIRES(mutex_);
    uint32_t list_for(const prefix::Node &node) const;
    void note_dropped(uint32_t group, pkv_page page) PKV_REQUIRES(mutex_);
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
    uint64_t lookup(const prefix::Prompt &prompt, uint64_t max_blocks, pkv_page *pages, uint64_t capacity,
                    Fences &waits) PKV_EXCLUDES(mutex_);
    uint64_t covered_blocks(std::span<const prefix::NodeId> nodes, std::span<const AbsentBlock> absent = {})
        PKV_REQUIRES(mutex_);
    pkv_status check_admission(std::span<const prefix::NodeId> nodes, uint64_t matched, const GroupCounts &wanted,
                               uint64_t watermark) PKV_REQUIRES(mutex_);
    void match_inside_block(const prefix::Prompt &prompt, prefix::NodeId parent, Admission &admission)
        PKV_REQUIRES(mutex_);
    prefix::NodeId find_or_make_root(const prefix::Digest &digest) PKV_REQUIRES(mutex_);
    prefix::NodeId publish_node(prefix::NodeId parent, const prefix::BlockName &name, prefix::Extras &extras,
                                uint64_t block, const GroupPages &list) PKV_REQUIRES(mutex_);
    void publish_page(prefix::NodeId node, uint32_t group, pkv_page &page, bool share, Fences &waits)
        PKV_REQUIRES(mutex_);
    pkv_status check_publish(uint32_t group, const prefix::Prompt &prompt, uint64_t first_block,
                             std::span<const pkv_page> pages, BlocksToPublish &blocks, prefix::NodeId &parent)
        PKV_REQUIRES(mutex_);
    BlocksToPublish name_blocks(std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                                const Frontier &from, uint64_t end) const;
    pkv_status admit_found(const prefix::Prompt &prompt, Candidates &found, const TierHits &hits, Admission &admission,
                           BlockLists &lists, Frontier &frontier) PKV_EXCLUDES(mutex_);
    /// Drops hits from the first image on that a clear has overtaken on its way into a tier: it goes when it arrives.
    void drop_overtaken(std::vector<AbsentBlock> &absent) PKV_REQUIRES(mutex_);
    uint64_t cut_to_covered(Candidates &found, std::vector<AbsentBlock> &absent) PKV_REQUIRES(mutex_);
    void prefetch_found(const Candidates &found) PKV_REQUIRES(mutex_);
    void advance(Frontier &frontier, const prefix::Key &key, prefix::NodeId node, uint64_t blocks) const
        PKV_REQUIRES(mutex_);
    void clear_tiers(uint64_t tag) PKV_EXCLUDES(mutex_);
    void end_clear() PKV_REQUIRES(mutex_);
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

    PageTokens page_tokens_;
    uint32_t num_groups_ = 0;
    std::shared_ptr<Device> device_;
    std::unique_ptr<Group[]> groups_;
    bool has_in_place_ = false; // in_place_ is a stream of the caller's
    void *in_place_ = nullptr;
    void *poison_stream_ = nullptr;
    mutable std::mutex bounce_mutex_;  // taken alone; bounce_ is in use while it is held
    mutable PinnedMemory bounce_;      // what take_out() and put_in() pass through
    mutable std::mutex scratch_mutex_; // taken alone
    mutable std::vector<Scratch> scratch_;
    uint32_t transfer_blocks_ = 0;
    bool has_memory_ = false;
    bool caller_memory_ = false;
    std::unique_ptr<Workers> workers_;
    prefix::KeyMaker keys_;
    int32_t key_seed_ = 0;
    bool poison_ = false;
    bool hot_pages_ = false;
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
    bool clearing_ PKV_GUARDED_BY(mutex_) = false;     // one event stands for all blocks
    std::vector<Timer> timers_ PKV_GUARDED_BY(mutex_); // a heap, the earliest first
    pkv_pool_stats counters_ PKV_GUARDED_BY(mutex_) = PKV_POOL_STATS_INIT;
    uint64_t clear_generation_ PKV_GUARDED_BY(mutex_) = 0; // raised before and after tiers forget a namespace
    uint32_t clears_ PKV_GUARDED_BY(mutex_) = 0;           // under way
    struct OpenStore {
        pkv_tier_key key;
        uint64_t clear_generation;
    };
    std::vector<OpenStore> open_stores_ PKV_GUARDED_BY(mutex_); // of the cleaner
    uint32_t borrow_waiters_ PKV_GUARDED_BY(mutex_) = 0;        // in wait_for_borrowed()
    Fences handed_out_ PKV_GUARDED_BY(mutex_);                  // what pages that were handed out come after
    bool condemned_ PKV_GUARDED_BY(mutex_) = false; // the page that the cleaner reads is free once it has been read

    // Tiers. Fixed after create().
    std::unique_ptr<TierStack> tiers_;
    std::vector<PinnedRange> pinned_arenas_; // of its tiers
    bool keep_unstored_ = false;
    uint64_t clean_pages_ = 0; // 0 = a quarter
    uint32_t through_ = 0;     // bit masks of tiers by policy
    uint32_t on_hits_ = 0;
    // Their threads use all of the above, and end first.
    std::unique_ptr<Cleaner> cleaner_;
    std::unique_ptr<Mover> mover_;
};

} // namespace pkv
