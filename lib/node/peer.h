// SPDX-License-Identifier: Apache-2.0
// A node that this one reads from: a connection that is made, and made again when it ends, by a thread of its own. Fetches
// wait here until there is room on the other side; each ends once, with bytes in place or without.
#pragma once

#include "node/channel.h"
#include "node/counters.h"
#include "node/fabric.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <thread>

namespace pkv::node {

/// What all peers of a node share.
struct Reader {
    std::shared_ptr<Fabric> fabric;
    Hello hello; ///< but for the endpoint
    ClusterKey key{};
    uint64_t timeout_ns = 0; ///< of connecting
    std::shared_ptr<Counters> counters;
};

/// A range of an image to be read into memory.
struct RangeRead {
    Range range;
    void *data = nullptr;
    std::shared_ptr<Region> target;
    bool urgent = false;
    uint64_t deadline_ns = 0;
    const void *owner = nullptr; ///< for cancel_reads()
    uint64_t place = no_place;   ///< where the image lies, leased: read there, if the connection is still that one
    uint64_t connection = 0;
    bool counted = false;                 ///< the peer's own: in its sum of bytes in flight
    std::function<void(pkv_status)> done; ///< once, without a lock; must not throw
};

class Peer : public std::enable_shared_from_this<Peer> {
  public:
    /// `once`: for as long as it is used, and a while longer; a connection that ended, or did not come, is not made again.
    Peer(std::shared_ptr<Reader> reader, std::string address, bool once = false);
    ~Peer();
    Peer(const Peer &) = delete;
    Peer &operator=(const Peer &) = delete;

    /// Before start(): called, on the peer's thread, when a try to connect has ended or a connection has.
    void on_change(std::function<void()> function) { on_change_ = std::move(function); }
    void start();
    void stop();       ///< ends the connection and all calls; waits for the thread
    void begin_stop(); ///< the same, and does not wait
    bool ended() const { return ended_.load(std::memory_order_acquire); }
    /// Waits for the first connection. PKV_ERR_TIMEOUT, or why it does not come.
    pkv_status wait_connected(uint64_t deadline_ns);
    bool connected() const { return connected_.load(std::memory_order_acquire); }
    const std::string &address() const { return address_; }
    std::string name() const;
    std::array<uint8_t, 16> incarnation() const; ///< of the node there, when it was connected last
    /// PKV_OK when it is connected; PKV_ERR_AGAIN as long as that is being tried for the first time.
    pkv_status last_status(std::string &why) const;

    /// Asks for images; `done` with the answer, or a failure. False: not connected, and nothing will be called.
    bool look_up(std::span<const pkv_tier_key> keys, bool pin, uint64_t deadline_ns,
                 std::function<void(pkv_status, const Found &)> done);
    uint64_t connection() const {
        return connection_.load(std::memory_order_acquire);
    }                          ///< the number of this one, or the last
    uint64_t lease_ns() const; ///< from when it was asked for
    /// Leases are not needed any more. Told a little later, many at once.
    void release(std::span<const pkv_tier_key> keys);
    bool read(RangeRead item); ///< false as above
    void cancel_reads(const void *owner);

    // For what has messages of its own (sequences that are handed over).
    using Answer = std::function<void(pkv_status, Kind, std::span<const std::byte>)>;
    /// Sends a request, `message(number)`; `answer` with the answer of whatever kind, or a failure. False as above.
    bool ask(const std::function<std::vector<std::byte>(uint64_t)> &message, uint64_t deadline_ns, Answer answer);
    void tell(std::vector<std::byte> message); ///< what has no answer
    /// Reads what lies at a place that the other side has named (of `item.range` only the bytes count), and gives it back.
    void read_place(RangeRead item, const Place &place);
    void give_back(std::vector<uint64_t> tickets); ///< of places that are not read
    Hello theirs() const;                          ///< while connected
    void use(int change) { users_.fetch_add(change, std::memory_order_relaxed); }
    bool over() const { return over_.load(std::memory_order_acquire); } ///< of `once`: stop() does not wait

  private:
    struct Call {
        uint64_t deadline_ns;
        Answer done;
    };
    /// A fetch that was sent: its items in order.
    struct Sent {
        std::vector<RangeRead> items;
    };

    void run();
    pkv_status connect();
    void serve();
    bool idle(uint64_t now);
    void end_connection();
    void sweep(uint64_t now);
    uint64_t next_deadline();
    bool send(uint64_t request, Call call, std::vector<std::byte> message);
    void pump();
    void take_places(std::shared_ptr<Sent> sent, pkv_status status, Kind kind, std::span<const std::byte> message);
    void begin_read(RangeRead item, const Place &place);
    void end_read(RangeRead &item, pkv_status status, uint64_t ticket);
    void end_copy(RangeRead item, pkv_status status, uint64_t ticket);
    void fail_item(RangeRead item, pkv_status status);
    void let_go(RangeRead &item);
    bool may_begin(const RangeRead &item) const;
    void begin_in_place();
    void tell_released(bool all);

    std::shared_ptr<Reader> reader_;
    std::string address_;
    const bool once_;
    std::atomic<int> users_{0};
    uint64_t idle_since_ns_ = 0; // the thread's
    std::atomic<bool> over_{false};
    mutable std::mutex mutex_; // guards what follows
    std::condition_variable changed_;
    bool stop_ = false;
    pkv_status status_ = PKV_ERR_AGAIN; // of the last try to connect
    std::string why_;
    Hello theirs_;
    std::shared_ptr<Channel> channel_; // nullptr: not connected
    std::shared_ptr<Endpoint> endpoint_;
    uint64_t next_request_ = 1;
    std::map<uint64_t, Call> calls_;
    std::deque<RangeRead> urgent_, waiting_;
    std::deque<RangeRead> in_place_;  // that others are before
    uint64_t in_place_in_flight_ = 0; // bytes
    uint64_t in_flight_ = 0;          // bytes of places that were asked for
    uint64_t room_ = 0;               // bytes that the other side may have for us
    uint64_t pump_at_ns_ = 0;         // the other side was full: not before
    std::vector<uint64_t> tickets_;   // to be released
    std::vector<pkv_tier_key> released_;
    std::vector<std::function<void()>>
        after_close_; // reads that failed: their memory is free when the endpoint is closed
    std::atomic<bool> connected_{false};
    std::atomic<uint64_t> connection_{0};
    std::atomic<bool> ended_{false};
    std::function<void()> on_change_;
    std::thread thread_;
};

} // namespace pkv::node
