// SPDX-License-Identifier: Apache-2.0
#include "directory/publisher.h"

#include "core/clock.h"
#include "core/signals.h"
#include "core/wait.h"

#include <algorithm>
#include <chrono>
#include <sodium.h>
#include <span>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>
#include <unordered_set>

namespace pkv::directory {
namespace {

constexpr size_t most_changes = 65536;    // that wait
constexpr size_t entries_at_once = 512;   // of a transaction, which the server does in one go
constexpr uint64_t gather_ns = 5'000'000; // changes that come together go together
constexpr uint64_t reply_bytes = 65536 + entries_at_once * 3 * 256;
constexpr uint64_t renewals = 3; // of an entry within its time

uint64_t wall_ms() {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

std::string in_ms(uint64_t ns) { return std::to_string(std::max<uint64_t>(1, ns / 1'000'000)); }

} // namespace

Publisher::Publisher(PublisherOptions options) : options_(std::move(options)) {}

Publisher::~Publisher() {
    if (wake_ >= 0) close(wake_);
}

pkv_status Publisher::start() {
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0) return fail(PKV_ERR_LIMIT, "no eventfd for the directory");
    try {
        changes_.reserve(most_changes); // no growth while a tier waits; memory is backed as it is used
        taken_.reserve(most_changes);
        const BlockedSignals blocked;
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error &error) {
        return fail(PKV_ERR_NO_MEMORY, "a thread for %s: %s", options_.server->label.c_str(), error.what());
    }
    return PKV_OK;
}

void Publisher::begin_end() {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    woken_.notify_all();
}

void Publisher::end(uint64_t deadline_ns) {
    if (!thread_.joinable()) return;
    {
        std::unique_lock lock(mutex_);
        wait_until(woken_, lock, deadline_ns, [this] { return over_; });
    }
    (void)eventfd_write(wake_, 1);
    thread_.join();
}

void Publisher::changed(const pkv_tier_key &key) noexcept {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    if (changes_.size() < most_changes) {
        try {
            changes_.push_back(key);
            if (changes_.size() == 1) woken_.notify_all();
            return;
        } catch (const std::bad_alloc &) { // as if there were no room
        }
    }
    options_.counters->dropped.fetch_add(1, std::memory_order_relaxed);
}

// ---- the thread

/// The log hears of a trouble when it is a new one, and when it is over.
void Publisher::note(pkv_status status) {
    if (status == PKV_OK) {
        if (!trouble_.empty())
            log_message(PKV_LOG_INFO, "directory %s: told again what is here", options_.server->label.c_str());
        trouble_.clear();
        return;
    }
    char why[256] = "";
    copy_last_error(why, sizeof why);
    if (trouble_ == why) return;
    trouble_ = why;
    log_message(PKV_LOG_WARNING, "directory %s; it is told nothing until it is back", why);
}

/// The server is there, but does not take what it is told.
void Publisher::note_refusal(const std::string &word) {
    if (refusal_ == word) return;
    refusal_ = word;
    if (!word.empty())
        log_message(PKV_LOG_WARNING, "directory %s refuses entries: %s", options_.server->label.c_str(), word.c_str());
}

void Publisher::run() {
    Pause pause;
    for (bool stopped = false; !stopped;) {
        try {
            std::unique_ptr<Line> line;
            pkv_status status = Line::open(*options_.server, wake_, monotonic_ns() + options_.connect_ns, line);
            {
                const std::lock_guard lock(mutex_);
                stopped = stop_;
            }
            if (!stopped) note(status);
            if (status == PKV_OK) {
                pause.reset();
                walk_ = {};
                first_walk_ = true;
                walk_at_ns_ = walk_begun_ns_ = beat_at_ns_ = monotonic_ns();
                up_.store(true, std::memory_order_release);
                status = serve(*line);
                if (status == PKV_OK)
                    withdraw(*line);
                else
                    note(status);
            }
        } catch (const std::bad_alloc &) { // again, a little later
        }
        up_.store(false, std::memory_order_release);
        std::unique_lock lock(mutex_);
        stopped = wait_until(woken_, lock, stop_ ? 0 : monotonic_ns() + pause.next_ns(randombytes_random()),
                             [this] { return stop_; });
    }
    const std::lock_guard lock(mutex_);
    over_ = true;
    woken_.notify_all();
}

/// Tells what there is to tell, until the connection fails; PKV_OK when the publisher is to end.
pkv_status Publisher::serve(Line &line) {
    for (;;) {
        bool changes = false;
        {
            std::unique_lock lock(mutex_);
            const uint64_t next = std::min(beat_at_ns_, walk_at_ns_);
            if (next_ == taken_.size()) {
                wait_until(woken_, lock, next, [this] { return stop_ || !changes_.empty(); });
                if (!changes_.empty() && changes_.size() < entries_at_once)
                    wait_until(woken_, lock, monotonic_ns() + gather_ns, [this] { return stop_; });
                taken_.clear();
                next_ = 0;
                taken_.swap(changes_);
            }
            if (stop_) return PKV_OK;
            changes = next_ != taken_.size();
        }
        if (monotonic_ns() >= beat_at_ns_) PKV_TRY(beat(line));
        if (changes) PKV_TRY(tell_changes(line));
        if (monotonic_ns() >= walk_at_ns_) PKV_TRY(walk_on(line));
    }
}

pkv_status Publisher::beat(Line &line) {
    const uint64_t now = monotonic_ns();
    beat_at_ns_ = now + options_.heartbeat_ns;
    line.add({"SET", options_.names->of_node(options_.self), options_.names->record(options_.self, options_.address),
              "PX", in_ms(3 * options_.heartbeat_ns)});
    std::string refused;
    PKV_TRY(line.run(reply_bytes, now + options_.answer_ns, [&](uint64_t, const pkv_redis_reply &said) {
        if (said.kind == PKV_REDIS_ERROR) refused = error_word(said);
    }));
    if (refused.empty()) return PKV_OK;
    options_.counters->failures.fetch_add(1, std::memory_order_relaxed);
    note_refusal(refused);
    // A server that was a master and is none any more: its name may lead to another one by now.
    return refused == "READONLY" ? fail(PKV_ERR_IO, "%s refuses entries: READONLY", options_.server->label.c_str())
                                 : PKV_OK;
}

bool Publisher::there(const pkv_tier_key &key) const {
    return std::any_of(options_.tiers.begin(), options_.tiers.end(), [&](const auto &tier) { return tier->has(key); });
}

pkv_status Publisher::tell_changes(Line &line) {
    Entries entries;
    std::unordered_set<pkv_tier_key, TierKeyHash, TierKeyEqual> seen;
    const size_t end = std::min(taken_.size(), next_ + entries_at_once);
    for (const pkv_tier_key &key : std::span(taken_).subspan(next_, end - next_))
        if (seen.insert(key).second) (there(key) ? entries.there : entries.gone).push_back(key); // as it is by now
    next_ = end; // a failure loses them: what is here is told anew then, and what is not, ends
    return tell(line, entries, monotonic_ns() + options_.answer_ns);
}

// ---- walks

uint64_t Publisher::images() const {
    uint64_t sum = 0;
    for (const auto &tier : options_.tiers) sum += tier->usage().images;
    return sum;
}

/// Appends those of the next images of which this server is to know. Returns how many were looked at.
uint64_t Publisher::next_keys(Walk &walk, std::vector<pkv_tier_key> &keys) {
    if (walk.tier >= options_.tiers.size()) {
        walk.over = true;
        return 0;
    }
    std::vector<pkv_tier_key> some(entries_at_once);
    some.resize(options_.tiers[walk.tier]->list(walk.cursor, some));
    for (const pkv_tier_key &key : some)
        if (options_.mine(key)) keys.push_back(key);
    if (walk.cursor == 0 && ++walk.tier == options_.tiers.size()) walk.over = true;
    return some.size();
}

/// A step of the walk: at once when the server has been told of nothing yet, else so that the walk takes most of the
/// time that there is until the next one.
pkv_status Publisher::walk_on(Line &line) {
    const uint64_t period = options_.entry_ttl_ns / renewals;
    Entries entries;
    const uint64_t seen = next_keys(walk_, entries.there);
    PKV_TRY(tell(line, entries, monotonic_ns() + options_.answer_ns));
    const uint64_t now = monotonic_ns();
    if (walk_.over) {
        walk_at_ns_ =
            std::max(now, walk_begun_ns_ + period - period / 16 + randombytes_uniform(1000) * (period / 8000));
        walk_ = {};
        first_walk_ = false;
        walk_begun_ns_ = walk_at_ns_;
        return PKV_OK;
    }
    if (first_walk_) {
        walk_at_ns_ = now;
        return PKV_OK;
    }
    const double part = static_cast<double>(seen) / static_cast<double>(std::max<uint64_t>(images(), seen + 1));
    walk_at_ns_ = now + static_cast<uint64_t>(part * 0.75 * static_cast<double>(period));
    return PKV_OK;
}

// ---- what is said

/// One transaction: a connection that ends within it leaves no entry without an end.
pkv_status Publisher::tell(Line &line, const Entries &entries, uint64_t deadline_ns) {
    if (entries.there.empty() && entries.gone.empty()) return PKV_OK;
    const std::string_view self(reinterpret_cast<const char *>(options_.self.data()), options_.self.size());
    const uint64_t now = wall_ms(), ttl = std::max<uint64_t>(1, options_.entry_ttl_ns / 1'000'000);
    const std::string ends = std::to_string(now + ttl), length = std::to_string(ttl);
    const std::string long_ago = std::to_string(now > ttl ? now - ttl : 0); // clocks of nodes may differ by that much
    line.add({"MULTI"});
    for (const pkv_tier_key &key : entries.there) {
        const std::string name = options_.names->of_image(key);
        line.add({"ZADD", name, ends, self});
        line.add({"ZREMRANGEBYSCORE", name, "-inf", long_ago});
        line.add({"PEXPIRE", name, length});
    }
    for (const pkv_tier_key &key : entries.gone) line.add({"ZREM", options_.names->of_image(key), self});
    line.add({"EXEC"});
    const uint64_t last = 1 + 3 * entries.there.size() + entries.gone.size();
    std::string refused;
    uint64_t good = 0, failed = entries.there.size(), bad = 0;
    const auto reply = [&](uint64_t number, const pkv_redis_reply &said) {
        if (said.kind == PKV_REDIS_ERROR && refused.empty())
            refused = error_word(said); // the first says why, the last what came of it
        if (number != last || said.kind != PKV_REDIS_LIST) return;
        for (uint64_t i = 0; i < said.num_items; ++i) {
            if (said.items[i].kind == PKV_REDIS_ERROR)
                bad += i % 3 == 0 || i >= 3 * entries.there.size();
            else
                good += i % 3 == 0 && i < 3 * entries.there.size();
        }
        failed -= std::min(failed, good);
    };
    PKV_TRY(line.run(reply_bytes, deadline_ns, reply));
    options_.counters->published.fetch_add(good, std::memory_order_relaxed);
    options_.counters->failures.fetch_add(failed, std::memory_order_relaxed);
    options_.counters->bad_entries.fetch_add(bad, std::memory_order_relaxed);
    note_refusal(refused);
    return PKV_OK;
}

/// The address first: without it nobody is led here, whatever else is left.
void Publisher::withdraw(Line &line) {
    const uint64_t deadline = monotonic_ns() + options_.withdraw_ns;
    line.add({"DEL", options_.names->of_node(options_.self)});
    if (line.run(reply_bytes, deadline, [](uint64_t, const pkv_redis_reply &) {}) != PKV_OK) return;
    for (Walk walk; !walk.over && monotonic_ns() < deadline;) {
        Entries entries;
        next_keys(walk, entries.gone);
        if (tell(line, entries, deadline) != PKV_OK) return;
    }
}

} // namespace pkv::directory
