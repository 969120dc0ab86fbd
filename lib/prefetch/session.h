// SPDX-License-Identifier: Apache-2.0
// A prefetch session: what prefetch.h (public) documents. Its parts:
//
//   predictor.cpp  which blocks a sequence needs next; pure
//   part.h         one load: an image, or a slice of one
//   loader.cpp     begins loads, verifies what arrives, puts it in place; counts
//   pipeline.cpp   steps over layers;  units.cpp: how they are cut into buffers;  slices.cpp: slice ids
//   blocks.cpp     blocks of tables, predicted or required;  prompts.cpp: blocks of prompts
#pragma once

#include "core/handles.h"
#include "prefetch/blocks.h"
#include "prefetch/images.h"
#include "prefetch/loader.h"
#include "prefetch/pipeline.h"

#include <pagedkv/prefetch.h>

#include <memory>
#include <span>
#include <vector>

namespace pkv {

class Session : public std::enable_shared_from_this<Session> {
  public:
    static constexpr HandleKind handle_kind = HandleKind::prefetch;

    /// `options` as the caller gave them; 0 becomes the default here.
    static pkv_status create(std::shared_ptr<Pool> pool, const pkv_prefetch_options &options,
                             std::vector<pkv_layer_ref> layers, std::vector<uint64_t> staging_pages,
                             std::shared_ptr<Session> &session);
    Session(std::shared_ptr<Pool> pool, const pkv_prefetch_options &options);
    ~Session();
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    Pool &pool() const { return *pool_; }
    pkv_status check_open() const;
    const std::shared_ptr<Device> &device() const { return pool_->device(); }
    pkv_status check_table(const Table &table) const;
    pkv_status check_tables(std::span<const std::shared_ptr<Table>> tables) const;

    pkv_status prompt(const prefix::Prompt &prompt, const std::shared_ptr<Op> &op, uint64_t timeout_ns,
                      pkv_match &match);
    Blocks &blocks() { return blocks_; }
    Pipeline &pipeline() { return pipeline_; }
    void cancel();
    void close(const Fences &work = {}); ///< later calls give PKV_ERR_HANDLE
    void stats(pkv_prefetch_stats &out);

  private:
    std::shared_ptr<Pool> pool_;
    KnownImages images_;
    Loader loader_;
    Pipeline pipeline_;
    Blocks blocks_;
    bool closed_ = false;
};

} // namespace pkv
