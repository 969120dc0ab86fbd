// SPDX-License-Identifier: Apache-2.0
// A pool: pages, prefix index, eviction and page bytes of one geometry. What pool.h (public) documents is done here; the
// public functions only check handles and structs.
#pragma once

#include "core/handles.h"
#include "core/mutex.h"
#include "core/workers.h"
#include "layout/geometry.h"
#include "layout/memory.h"
#include "pool/page_set.h"
#include "prefix/index.h"
#include "prefix/keys.h"

#include <pagedkv/pool.h>
#include <pagedkv/stats.h>

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

/// What Pool::admit() was asked for.
struct Admission {
    uint64_t max_blocks = 0;     ///< blocks that may match
    uint64_t prompt_tokens = 0;
    uint64_t reserve_tokens = 0; ///< room after the match; 0 = the rest of the prompt
    uint64_t watermark = 0;
    bool retry = false;
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
    uint32_t num_groups() const { return 1; }
    pkv_status check_group(uint32_t group) const;
    pkv_status check_layer(uint32_t group, uint32_t layer) const;
    const Geometry &geometry() const { return geometry_; }
    const PageMemory &memory() const { return memory_; }
    Workers *workers() const { return workers_.get(); }

    /// Called when the pool's handle is destroyed; tables see it.
    void close() { closed_.store(true, std::memory_order_release); }
    bool closed() const { return closed_.load(std::memory_order_acquire); }

    // ---- pages (pool.cpp)
    pkv_status alloc(uint64_t num_pages, pkv_page *pages) PKV_EXCLUDES(mutex_);
    pkv_status retain(std::span<const pkv_page> pages) PKV_EXCLUDES(mutex_);
    pkv_status release(std::span<const pkv_page> pages, pkv_status *statuses) PKV_EXCLUDES(mutex_);
    /// Releases pages that are known to be held, from the end of the list.
    void release_held(std::span<const pkv_page> pages) PKV_EXCLUDES(mutex_);
    pkv_status page_info(pkv_page page, pkv_page_info &info) PKV_EXCLUDES(mutex_);
    uint64_t evict(uint64_t num_pages) PKV_EXCLUDES(mutex_);
    void stats(pkv_pool_stats &out) PKV_EXCLUDES(mutex_);

    // ---- prefixes (prefixes.cpp)
    pkv_status lookup(const prefix::Prompt &prompt, uint64_t max_blocks, pkv_page *pages, uint64_t &blocks)
        PKV_EXCLUDES(mutex_);
    pkv_status probe(const prefix::Prompt &prompt, uint64_t max_blocks, uint64_t &blocks) PKV_EXCLUDES(mutex_);
    pkv_status publish(const prefix::Prompt &prompt, uint64_t first_block, std::span<const pkv_page> pages,
                       pkv_page *owner) PKV_EXCLUDES(mutex_);
    void clear(const prefix::Digest &digest, pkv_clear_result &result) PKV_EXCLUDES(mutex_);
    void clear_all(pkv_clear_result &result) PKV_EXCLUDES(mutex_);

    // ---- for tables (admission.cpp)
    /// Matches and reserves, or changes nothing. Appends the matched pages, then the new ones, to `pages`.
    pkv_status admit(const prefix::Prompt &prompt, const Admission &admission, std::vector<pkv_page> &pages,
                     Frontier &frontier, uint64_t &matched_blocks) PKV_EXCLUDES(mutex_);
    /// Publishes blocks [frontier.blocks, end) of a sequence; moves the frontier.
    void publish_sequence(std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                          std::span<const pkv_page> pages, uint64_t end, Frontier &frontier) PKV_EXCLUDES(mutex_);
    /// Moves a frontier back to its first `blocks` blocks.
    void retreat(Frontier &frontier, uint64_t blocks) PKV_EXCLUDES(mutex_);
    void retain_sequence(std::span<const pkv_page> pages, const Frontier &frontier) PKV_EXCLUDES(mutex_);
    void release_sequence(std::span<const pkv_page> pages, Frontier &frontier) PKV_EXCLUDES(mutex_);
    /// Whether nobody but one holder can see this page's bytes.
    bool is_private(pkv_page page) PKV_EXCLUDES(mutex_);
    void count_copies(uint64_t pages) PKV_EXCLUDES(mutex_);
    void count_table(int64_t change) { tables_.fetch_add(static_cast<uint64_t>(change), std::memory_order_relaxed); }

    // ---- bytes (bytes.cpp)
    pkv_status write(uint32_t layer, std::span<const pkv_slot> slots, const pkv_tensor *k, const pkv_tensor *v)
        PKV_EXCLUDES(mutex_);
    pkv_status gather(uint32_t layer, std::span<const pkv_page> pages, uint64_t first, uint64_t count,
                      const pkv_tensor *k, const pkv_tensor *v) PKV_EXCLUDES(mutex_);
    pkv_status copy_pages(std::span<const pkv_page> src, std::span<const pkv_page> dst) PKV_EXCLUDES(mutex_);
    /// Checks both sides of the caller's rows against the geometry.
    pkv_status source_rows(const pkv_tensor *k, const pkv_tensor *v, uint64_t count, FlatRows &k_rows,
                           FlatRows &v_rows) const;
    pkv_status target_rows(const pkv_tensor *k, const pkv_tensor *v, uint64_t count, FlatRows &k_rows,
                           FlatRows &v_rows) const;
    pkv_status need_memory() const;
    /// Copies all layers of one page; both are the caller's by some count.
    void copy_page_bytes(pkv_page src, pkv_page dst) const;

  private:
    struct BlockToPublish;

    bool in_range(pkv_page page) const { return page >= 0 && static_cast<uint64_t>(page) < pages_.size(); }
    pkv_status no_such_page(pkv_page page) const;

    // Pages and eviction, under the lock (pool.cpp).
    void release_one(pkv_page page) PKV_REQUIRES(mutex_);
    void make_free(pkv_page page) PKV_REQUIRES(mutex_);
    pkv_page take_page() PKV_REQUIRES(mutex_);
    pkv_page evict_one() PKV_REQUIRES(mutex_);
    void prefetch_victims(pkv_page page) const PKV_REQUIRES(mutex_);
    /// Takes a childless block out of the index; its page stays as it is, without a name.
    void unpublish(prefix::NodeId node) PKV_REQUIRES(mutex_);
    /// Unpublishes all blocks below `top`; cached pages among them become free. Returns how many did.
    void drop_below(prefix::NodeId top, pkv_clear_result &result) PKV_REQUIRES(mutex_);

    // Prefixes (prefixes.cpp).
    /// Keys of the prompt's blocks as far as the index may know them; reads no guarded state.
    void likely_keys(const prefix::Prompt &prompt, uint64_t max_blocks, std::vector<prefix::Key> &keys) const;
    uint64_t match(const prefix::Prompt &prompt, std::span<const prefix::Key> keys, std::vector<prefix::NodeId> &nodes)
        PKV_REQUIRES(mutex_);
    prefix::NodeId find_or_make_root(const prefix::Digest &digest) PKV_REQUIRES(mutex_);
    prefix::NodeId publish_block(prefix::NodeId parent, const prefix::BlockName &name, prefix::Extras &extras,
                                 uint64_t block, pkv_page page) PKV_REQUIRES(mutex_);
    pkv_status check_publish(const prefix::Prompt &prompt, uint64_t first_block, std::span<const pkv_page> pages,
                             std::span<const BlockToPublish> blocks, prefix::NodeId &parent) PKV_REQUIRES(mutex_);
    std::vector<BlockToPublish> name_blocks(std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                                            const prefix::Key &parent, uint64_t first, uint64_t end) const;
    void clear_root(prefix::NodeId root, pkv_clear_result &result) PKV_REQUIRES(mutex_);

    uint32_t page_tokens_ = 0;
    Geometry geometry_;
    PageMemory memory_;
    std::unique_ptr<Workers> workers_;
    prefix::KeyMaker keys_;
    int32_t key_seed_ = 0;
    bool poison_ = false;
    std::atomic<bool> closed_{false};
    std::atomic<uint64_t> tables_{0};

    Mutex mutex_;
    PageSet pages_; // guarded, but its size() is fixed and read without the lock
    prefix::Index index_; // guarded, but for likely() and the prefetches
    pkv_pool_stats counters_ PKV_GUARDED_BY(mutex_) = PKV_POOL_STATS_INIT;
};

} // namespace pkv
