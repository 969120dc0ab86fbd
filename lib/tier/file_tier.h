// SPDX-License-Identifier: Apache-2.0
// The file tier's inside. The directory (directory.h) says where each image lies; the engine moves bytes; a record in the
// file for each directory entry says what the directory says, so that a restart can fill it again.
//
// Order of writes. A record is written after its image; space is given to another image after the record of the one before
// was cleared. Both are calls that reach the page cache in that order, so that killing the process at any moment leaves no
// record that leads to another image. After a power failure some may: what is loaded is checked in any case.
//
// Locks: records_mutex_, then mutex_; neither is held while the engine or a request is called.
#pragma once

#include "core/mutex.h"
#include "core/virtual_array.h"
#include "tier/directory.h"
#include "tier/file_disk.h"
#include "tier/file_io.h"

#include <pagedkv/tier.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace pkv {

class FileTier final : public FileIoSink {
  public:
    /// May throw std::bad_alloc.
    static pkv_status open(const pkv_file_tier_options &options, std::unique_ptr<FileTier> &out);
    ~FileTier();
    FileTier(const FileTier &) = delete;
    FileTier &operator=(const FileTier &) = delete;

    // pkv_tier_ops
    pkv_status submit(const pkv_tier_batch &batch);
    void cancel(pkv_tier_request *request);
    uint64_t victims(std::span<pkv_tier_victim> victims);
    void memory(void *base, uint64_t bytes, bool add) { engine_->memory(base, bytes, add); }
    pkv_tier_usage usage();

    // TierInside
    TierWatches &watches() { return watches_; }
    bool has(const pkv_tier_key &key);
    uint64_t list(uint64_t &cursor, std::span<pkv_tier_key> keys);

  private:
    struct Batch;
    /// One load or store, in its batch.
    struct Transfer : FileIo {
        Batch *batch = nullptr;
        uint64_t item = 0;
        uint32_t entry = Directory::no_entry;
        bool pin = false;
        bool cleared = false;                     ///< a store whose image is to be forgotten
        bool at_once = false;                     ///< needs no read or write
        pkv_status status = PKV_OK;               ///< of one that is done at once
        Transfer *next_writing = nullptr;         ///< in writing_
        Transfer *joined = nullptr;               ///< of a store: others of its key, linked by this
        const pkv_retention *retention = nullptr; ///< of a store
        pkv_tier_key key;
    };
    struct Batch {
        pkv_tier_request *request = nullptr;
        std::atomic<uint64_t> open{0}; ///< transfers that have not ended, and the call of submit()
        std::unique_ptr<Transfer[]> transfers;
    };
    struct Result {
        pkv_status status;
        uint64_t value;
    };

    FileTier() = default;

    // file.cpp
    pkv_status submit_transfers(const pkv_tier_batch &batch);
    pkv_status submit_others(const pkv_tier_batch &batch);
    bool begin_store(Transfer &transfer, const pkv_tier_batch &batch) PKV_REQUIRES(mutex_);
    bool begin_load(Transfer &transfer, const pkv_tier_batch &batch) PKV_REQUIRES(mutex_);
    pkv_status clear(uint64_t tag) PKV_REQUIRES(mutex_);
    Result do_other(const pkv_tier_batch &batch, uint64_t item) PKV_REQUIRES(mutex_);
    void ended(FileIo &io) override;
    Transfer *end_store(Transfer &transfer, pkv_status &status) PKV_REQUIRES(mutex_);
    void end_load(Transfer &transfer) PKV_REQUIRES(mutex_);
    void complete(Transfer &transfer, pkv_status status);
    void note_error(const Transfer &transfer);
    static void release(Batch *batch);

    static constexpr uint32_t writing_buckets = 1024;
    void unlink_writing(const Transfer &transfer) PKV_REQUIRES(mutex_);
    void renew(uint32_t id, const Transfer &transfer) PKV_REQUIRES(mutex_);
    Transfer **writing_place(const pkv_tier_key &key) PKV_REQUIRES(mutex_);

    // file_records.cpp
    pkv_status create_records(uint64_t max_images);
    void use(uint32_t id) PKV_REQUIRES(mutex_);
    void mark(uint32_t id) PKV_REQUIRES(mutex_);
    void mark_some_used() PKV_REQUIRES(mutex_);
    void mark_all_used() PKV_REQUIRES(mutex_);
    FileRecord record(uint32_t id) PKV_REQUIRES(mutex_);
    void write_marked();

    // file_open.cpp
    pkv_status restore();
    pkv_status fill_directory(uint64_t &unsound);
    pkv_status make_engine(const pkv_file_tier_options &options);

    TierWatches watches_;
    Mutex mutex_;
    Directory directory_ PKV_GUARDED_BY(mutex_);
    std::array<Transfer *, writing_buckets> writing_ PKV_GUARDED_BY(mutex_){}; // stores under way, by key
    std::vector<uint32_t> evicted_ PKV_GUARDED_BY(mutex_);
    VirtualArray<uint64_t> last_use_ PKV_GUARDED_BY(mutex_);
    VirtualArray<uint64_t> used_ PKV_GUARDED_BY(mutex_);   // a bit for each entry whose record has an older last use
    VirtualArray<uint32_t> marked_ PKV_GUARDED_BY(mutex_); // links entries whose records are to be written; 0 = is not
    uint32_t first_marked_ PKV_GUARDED_BY(mutex_) = end_of_marked;
    uint64_t uses_ PKV_GUARDED_BY(mutex_) = 0;
    uint64_t next_used_word_ PKV_GUARDED_BY(mutex_) = 0;
    uint64_t next_used_ns_ PKV_GUARDED_BY(mutex_) = 0;
    static constexpr uint32_t end_of_marked = UINT32_MAX;

    std::mutex records_mutex_; // the order of writes to the records
    DiskFile disk_;
    std::unique_ptr<FileEngine> engine_;
    std::atomic<uint64_t> io_errors_{0};
    std::atomic<bool> closing_{false};
    uint64_t recovered_ = 0;
};

} // namespace pkv
