// SPDX-License-Identifier: Apache-2.0
// The reads of one endpoint on their way: accepted, cut into parts, posted, ended. All of it runs on the domain's thread,
// except where it says otherwise.
#pragma once

#include "core/mutex.h"
#include "fabric/memory.h"
#include "fabric/process.h"
#include "fabric/provider.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace pkv::fabric {

using Done = void (*)(void *user, pkv_status status, int32_t error);

/// Consecutive bytes of a peer's memory under one key.
struct Span {
    uint64_t address;
    uint64_t bytes;
    uint64_t key;
};

struct Read {
    char *data;
    uint64_t bytes;
    const pkv_fabric_region *target;
    pkv_fabric_endpoint *endpoint;
    std::vector<Span> spans;
    uint64_t deadline_ns;
    Done done;
    void *user;

    uint64_t posted = 0;      ///< bytes
    size_t span = 0;          ///< the one to post from next
    uint64_t span_offset = 0; ///< and where in it
    uint32_t parts = 0;       ///< with the provider
    bool ended = false;       ///< `done` was called; parts that are still out keep it here

    Read *before = nullptr;
    Read *after = nullptr;
};

/// A list of reads, in order, that owns them.
class ReadList {
  public:
    ReadList() = default;
    ~ReadList();
    ReadList(const ReadList &) = delete;
    ReadList &operator=(const ReadList &) = delete;

    Read *first() const { return first_; }
    bool empty() const { return first_ == nullptr; }
    void append(Read *read);
    void remove(Read *read);
    /// Takes the first one out; NULL when there is none.
    Read *take();
    /// Takes everything out of another one. This one is empty.
    void take_all(ReadList &other);

  private:
    Read *first_ = nullptr;
    Read *last_ = nullptr;
};

class Reads {
  public:
    explicit Reads(uint32_t max_in_flight, uint64_t max_message);

    /// Takes a read over; posts nothing yet.
    void accept(Read *read);
    /// Posts what the provider takes. True if it took anything.
    bool post(fid_ep *endpoint, fi_addr_t peer);
    /// The same where memory is copied: one part, which has ended, too. False: there was nothing to copy.
    bool copy(const PeerProcess &peer);
    /// A part has ended, with a negative error or 0. `context`: as libfabric gave it. An error without a part that is known
    /// is an error of all reads.
    void complete(void *context, int error, const char *text);
    /// No completion can be had any more.
    void fail_all(int error, const char *text);
    /// Ends the reads whose deadline has come.
    void expire(uint64_t now_ns);
    /// The provider is gone: ends everything that is left.
    void cancel_all();

    uint64_t next_deadline() const { return next_deadline_; }
    /// Parts are with the provider that somebody waits for.
    bool in_flight() const { return !posted_.empty() || (!waiting_.empty() && waiting_.first()->parts != 0); }
    /// The provider did not take a part, although it had been given no more than it said it takes.
    bool refused() const { return refused_; }
    /// A read has failed. Any thread.
    bool failed() const { return failed_.load(std::memory_order_acquire); }
    /// The first error that the provider reported, as text; empty if there was none. Any thread.
    size_t describe_failure(char *text, size_t bytes) const;

  private:
    struct Part {
        fi_context2 context; ///< the provider's while the part is out; first, so that its address is the part's
        Read *read;
        Part *next_free;
    };

    /// What one part can be: consecutive bytes on both sides.
    struct Piece {
        char *data;
        uint64_t bytes;
        void *descriptor;
        uint64_t address;
        uint64_t key;
    };
    Piece next_piece(const Read &read) const;
    /// A piece of a read is out, as this part.
    void begin_part(Part *part, Read *read, uint64_t bytes);
    Part *part_of(void *context);
    void note(int error, const char *text);
    void end(Read *read, pkv_status status, int32_t error);
    void end_waiting();

    uint64_t max_message_;
    uint32_t num_parts_;
    std::unique_ptr<Part[]> parts_;
    Part *free_ = nullptr;

    ReadList waiting_; ///< not posted to the end
    ReadList posted_;
    ReadList zombies_; ///< ended, with parts that are out
    uint64_t next_deadline_ = UINT64_MAX;
    bool refused_ = false;
    std::atomic<bool> failed_{false};
    /// What the provider reported first: as a rule later errors only follow from it. Written by the domain's thread.
    int32_t error_ = 0;
    mutable Mutex text_mutex_;
    char error_text_[256] PKV_GUARDED_BY(text_mutex_) = "";
};

} // namespace pkv::fabric
