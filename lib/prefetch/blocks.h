// SPDX-License-Identifier: Apache-2.0
// Whole blocks: those that tables are predicted to need, those that are required, and prompts. A block is loaded into pages of
// its own, or, once it is required, into those that its table has kept for it; the table takes them over when its owner asks.
#pragma once

#include "core/op.h"
#include "prefetch/images.h"
#include "prefetch/loader.h"

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace pkv {

class Blocks : public PartSource {
  public:
    Blocks(std::shared_ptr<Pool> pool, Loader &loader, KnownImages &images, const pkv_prefetch_options &options);
    ~Blocks() override;

    void hint(const std::shared_ptr<Table> &table, std::span<const float> scores);
    pkv_status submit(const std::shared_ptr<Table> &table, uint64_t position, uint64_t &submitted);
    pkv_status require(const std::shared_ptr<Table> &table, uint64_t first, uint64_t count, uint64_t timeout_ns,
                       pkv_require_result &result);
    /// The operation ends with the loads.
    pkv_status prompt(const prefix::Prompt &prompt, const std::shared_ptr<Op> &op, uint64_t timeout_ns,
                      pkv_match &match);

    /// Drops what is loaded for tables, and ends prompts.
    void cancel() PKV_EXCLUDES(loader_.mutex);
    void cancel_prompt(const Op &op) PKV_EXCLUDES(loader_.mutex);
    void fill_stats(pkv_prefetch_stats &stats) const PKV_EXCLUDES(loader_.mutex);

    std::shared_ptr<Part> next(bool urgent) override PKV_REQUIRES(loader_.mutex);
    bool has_work(uint64_t now) override PKV_REQUIRES(loader_.mutex);
    uint64_t work_by() override PKV_REQUIRES(loader_.mutex);
    void work() override PKV_EXCLUDES(loader_.mutex);

  private:
    using Parts = std::vector<std::shared_ptr<Part>>;
    /// A sequence that blocks are loaded for.
    struct Client {
        std::weak_ptr<Table> table;
        std::vector<float> scores;
        Parts parts;                               ///< wanted for it
        std::deque<std::shared_ptr<Part>> waiting; ///< of them, to be begun
    };
    /// A table of the session's own, which goes when the loads have ended and its blocks are published.
    struct Prompt {
        std::shared_ptr<Table> table;
        std::shared_ptr<Op> op;
        uint64_t deadline_ns = 0;
        Parts parts;
        size_t next = 0;            ///< parts before this one have ended
        bool claimed = false;       ///< a thread is ending it
        pkv_status status = PKV_OK; ///< another one: it ends without waiting
    };
    /// An image that a table lacks.
    struct Lack {
        uint64_t block;
        std::shared_ptr<StoredImage> image;
    };

    void list_lacks(const Table &table, uint64_t block, const AbsentBlock &absent, std::vector<Lack> &lacks)
        PKV_REQUIRES(loader_.mutex);
    std::shared_ptr<Part> want(const Table &table, const Lack &lack, bool predicted) PKV_REQUIRES(loader_.mutex);
    void let_go(const std::shared_ptr<Part> &part) PKV_REQUIRES(loader_.mutex);
    void abandon(const std::shared_ptr<Part> &part) PKV_REQUIRES(loader_.mutex);
    void let_go_of(Parts &parts) PKV_REQUIRES(loader_.mutex);
    void take_page_back(const Part &part) PKV_REQUIRES(loader_.mutex);
    void drop_stale(Client &client, const Table &table) PKV_REQUIRES(loader_.mutex);
    void drop_failed(Client &client) PKV_REQUIRES(loader_.mutex);
    void drop_unneeded(Client &client, const std::vector<Lack> &needed, bool idle_only) PKV_REQUIRES(loader_.mutex);
    void forget_gone() PKV_REQUIRES(loader_.mutex);
    /// Gives ready blocks of a range to the table.
    void take_ready(Table &table, uint64_t first, uint64_t end) PKV_EXCLUDES(loader_.mutex);
    bool can_take(const Table &table, const Lack &lack) const;
    void take_page(const Table &table, const AbsentBlock &absent, const Lack &lack, Table::LoadedBlock &block)
        PKV_REQUIRES(loader_.mutex);
    void copy_page(uint32_t group, pkv_page from, pkv_page to) const;
    pkv_status want_now(const Table &table, uint64_t first, uint64_t end, Parts &parts, pkv_require_result &result);
    void want_blocks(Prompt &prompt, Client &client) PKV_REQUIRES(loader_.mutex);
    pkv_status end_of(const Prompt &prompt) PKV_REQUIRES(loader_.mutex);
    void settle() PKV_EXCLUDES(loader_.mutex);
    bool is_prompt(const Table *table) const PKV_REQUIRES(loader_.mutex);
    uint64_t lookahead() const PKV_REQUIRES(loader_.mutex);

    std::shared_ptr<Pool> pool_;
    Loader &loader_;
    KnownImages &images_;
    // Fixed:
    int32_t policy_;
    bool off_;
    uint64_t sink_tokens_;
    uint64_t recent_tokens_;
    uint64_t max_lookahead_;
    std::array<uint64_t, PKV_MAX_GROUPS> max_pages_{};

    std::map<const Table *, Client> clients_ PKV_GUARDED_BY(loader_.mutex);
    const Table *turn_ PKV_GUARDED_BY(loader_.mutex) = nullptr; // whose part was begun last
    std::deque<std::shared_ptr<Part>> urgent_ PKV_GUARDED_BY(loader_.mutex);
    std::deque<std::shared_ptr<Prompt>> prompts_ PKV_GUARDED_BY(loader_.mutex);
    std::array<uint64_t, PKV_MAX_GROUPS> pages_ PKV_GUARDED_BY(loader_.mutex){}; // that parts hold
    std::vector<std::pair<uint32_t, pkv_page>>
        pages_back_ PKV_GUARDED_BY(loader_.mutex);      // to be released once nobody writes
    double block_ns_ PKV_GUARDED_BY(loader_.mutex) = 0; // between two blocks that are required, smoothed
    double load_ns_ PKV_GUARDED_BY(loader_.mutex) = 0;
    uint64_t marks_ PKV_GUARDED_BY(loader_.mutex) = 0; // for StoredImage::needed
    uint64_t required_at_ns_ = 0;                      // the caller's thread alone
};

} // namespace pkv
