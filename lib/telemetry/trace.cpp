// SPDX-License-Identifier: Apache-2.0
// What is written is the JSON object form of the "Trace Event Format", a public document of the Chromium project
// (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU): complete events (ph "X") for spans,
// counter events ("C"), and metadata events ("M") that name processes and lanes. Times are microseconds.
#include "telemetry/trace.h"

#include "core/clock.h"
#include "core/mutex.h"
#include "telemetry/replace_file.h"
#include "telemetry/utf8.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <pthread.h>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace pkv::trace {

namespace detail {
std::atomic<bool> recording{false};
}

namespace {

constexpr uint32_t no_lane = UINT32_MAX; // of a counter

struct Event {
    uint32_t process;
    uint32_t lane;
    const char *name;
    uint64_t begin_ns;
    uint64_t end_ns; // of a counter its value
    const char *key1, *key2;
    uint64_t value1, value2;
};
// Memory for events is not touched before they are there.
static_assert(std::is_trivially_default_constructible_v<Event>);

struct Process {
    std::string name;
    std::map<uint32_t, std::string> lanes;
};

/// What was recorded.
struct Recording {
    std::unique_ptr<Event[]> events;
    uint64_t capacity = 0;
    uint64_t size = 0;
    uint64_t dropped = 0;
    uint64_t start_ns = 0;
};

class Recorder {
  public:
    Recorder() {
        if (pthread_atfork(lock_for_fork, unlock_after_fork, stop_in_child) != 0) throw std::bad_alloc();
    }

    uint32_t add_process(std::string name) PKV_EXCLUDES(mutex_) {
        const Lock lock(mutex_);
        if (processes_.size() == max_processes) return max_processes;
        const bool last = processes_.size() + 1 == max_processes;
        processes_.push_back({last ? "others" : std::move(name), {}});
        return static_cast<uint32_t>(processes_.size());
    }
    void name_lane(uint32_t process, uint32_t lane, std::string name) PKV_EXCLUDES(mutex_) {
        const Lock lock(mutex_);
        if (process == 0 || process > processes_.size()) return;
        auto &lanes = processes_[process - 1].lanes;
        if (lanes.size() < max_lanes || lanes.contains(lane)) lanes[lane] = std::move(name);
    }

    /// A copy; names may be added meanwhile.
    Process names_of(uint32_t process) PKV_EXCLUDES(mutex_) {
        const Lock lock(mutex_);
        return process != 0 && process <= processes_.size() ? processes_[process - 1] : Process{};
    }

    void add(Event event) PKV_EXCLUDES(mutex_) {
        const Lock lock(mutex_);
        if (!on()) return; // stopped meanwhile
        if (event.lane != no_lane) {
            if (event.end_ns < now_.start_ns) return;
            event.begin_ns = std::max(event.begin_ns, now_.start_ns);
            event.end_ns = std::max(event.end_ns, event.begin_ns);
        } else {
            event.begin_ns = std::max(event.begin_ns, now_.start_ns);
        }
        if (now_.size == now_.capacity)
            ++now_.dropped;
        else
            now_.events[now_.size++] = event;
    }
    void drop() PKV_EXCLUDES(mutex_) {
        const Lock lock(mutex_);
        if (on()) ++now_.dropped;
    }

    pkv_status start(uint64_t max_events) PKV_EXCLUDES(mutex_) {
        Recording fresh;
        fresh.events = std::make_unique_for_overwrite<Event[]>(max_events);
        fresh.capacity = max_events;
        const Lock lock(mutex_);
        if (on()) return fail(PKV_ERR_STATE, "a trace is being recorded already");
        std::swap(now_, fresh);
        now_.start_ns = monotonic_ns();
        detail::recording.store(true, std::memory_order_relaxed);
        return PKV_OK;
    }
    /// Ends the recording, and hands it out.
    pkv_status stop(Recording &ended) PKV_EXCLUDES(mutex_) {
        const Lock lock(mutex_);
        if (!on()) return fail(PKV_ERR_STATE, "no trace is being recorded");
        detail::recording.store(false, std::memory_order_relaxed);
        ended = std::exchange(now_, {});
        return PKV_OK;
    }

  private:
    // A child begins without a trace; a thread that it does not have must not leave it a locked mutex.
    static void lock_for_fork() PKV_THREAD_ANNOTATION(no_thread_safety_analysis);
    static void unlock_after_fork() PKV_THREAD_ANNOTATION(no_thread_safety_analysis);
    static void stop_in_child() PKV_THREAD_ANNOTATION(no_thread_safety_analysis);

    Mutex mutex_;
    std::vector<Process> processes_ PKV_GUARDED_BY(mutex_); // number 1 is the first
    Recording now_ PKV_GUARDED_BY(mutex_);                  // detail::recording is written with the lock held
};

/// Never destroyed: threads may still record while the program ends.
Recorder &recorder() {
    static Recorder &made = *new Recorder;
    return made;
}

void Recorder::lock_for_fork() { recorder().mutex_.lock(); }
void Recorder::unlock_after_fork() { recorder().mutex_.unlock(); }
void Recorder::stop_in_child() {
    detail::recording.store(false, std::memory_order_relaxed);
    recorder().mutex_.unlock();
}

// ---- JSON ----------------------------------------------------------------------------------------------------------

/// What is not UTF-8 becomes U+FFFD.
void append_string(std::string &out, std::string_view text) {
    out += '"';
    while (!text.empty()) {
        const size_t length = utf8_length(text);
        const auto byte = static_cast<unsigned char>(text[0]);
        if (length == 0) {
            out += "\\ufffd";
        } else if (byte < 0x20) {
            char escape[8];
            (void)std::snprintf(escape, sizeof escape, "\\u%04x", byte);
            out += escape;
        } else {
            if (byte == '"' || byte == '\\') out += '\\';
            out += text.substr(0, length);
        }
        text.remove_prefix(std::max<size_t>(length, 1));
    }
    out += '"';
}

/// `before`, then a number.
void append_number(std::string &out, const char *before, uint64_t value) {
    out += before;
    out += std::to_string(value);
}

/// `before`, then nanoseconds as microseconds.
void append_time(std::string &out, const char *before, uint64_t ns) {
    char text[32];
    (void)std::snprintf(text, sizeof text, "%" PRIu64 ".%03u", ns / 1000, static_cast<unsigned>(ns % 1000));
    out += before;
    out += text;
}

void append_arg(std::string &out, const char *key, uint64_t value, bool first) {
    if (!first) out += ',';
    append_string(out, key);
    append_number(out, ":", value);
}

void append_event(std::string &out, const Event &event, uint64_t start_ns) {
    out += "{\"name\":";
    append_string(out, event.name);
    append_number(out, ",\"pid\":", event.process);
    append_time(out, ",\"ts\":", event.begin_ns - start_ns);
    if (event.lane == no_lane) {
        append_number(out, ",\"ph\":\"C\",\"args\":{\"value\":", event.end_ns);
        out += "}}";
        return;
    }
    append_number(out, ",\"ph\":\"X\",\"tid\":", event.lane);
    append_time(out, ",\"dur\":", event.end_ns - event.begin_ns);
    out += ",\"args\":{";
    if (event.key1 != nullptr) append_arg(out, event.key1, event.value1, true);
    if (event.key2 != nullptr) append_arg(out, event.key2, event.value2, event.key1 == nullptr);
    out += "}}";
}

/// Names a process, or with a lane that lane.
void append_name(std::string &out, const char *what, uint32_t process, const uint32_t *lane, std::string_view name) {
    out += "{\"name\":\"";
    out += what;
    append_number(out, "\",\"ph\":\"M\",\"pid\":", process);
    append_number(out, ",\"tid\":", lane != nullptr ? *lane : 0);
    out += ",\"args\":{\"name\":";
    append_string(out, name);
    out += "}}";
}

void append_order(std::string &out, uint32_t process, uint32_t lane) {
    append_number(out, "{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":", process);
    append_number(out, ",\"tid\":", lane);
    append_number(out, ",\"args\":{\"sort_index\":", lane);
    out += "}}";
}

/// The lanes in which something happened; of a process that has only counters none.
std::map<uint32_t, std::set<uint32_t>> used_lanes(const Recording &recording) {
    std::map<uint32_t, std::set<uint32_t>> used;
    for (uint64_t i = 0; i < recording.size; ++i) {
        auto &lanes = used[recording.events[i].process];
        if (recording.events[i].lane != no_lane) lanes.insert(recording.events[i].lane);
    }
    return used;
}

pkv_status write(const Recording &recording, const char *path) {
    ReplaceFile file(path);
    PKV_TRY(file.open());
    std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
    const char *comma = "\n";
    auto next = [&] { text += std::exchange(comma, ",\n"); };
    for (const auto &[process, lanes] : used_lanes(recording)) {
        const Process names = recorder().names_of(process);
        next();
        append_name(text, "process_name", process, nullptr, names.name);
        for (const uint32_t lane : lanes) {
            if (const auto name = names.lanes.find(lane); name != names.lanes.end()) {
                next();
                append_name(text, "thread_name", process, &lane, name->second);
            }
            next();
            append_order(text, process, lane);
        }
    }
    for (uint64_t i = 0; i < recording.size; ++i) {
        next();
        append_event(text, recording.events[i], recording.start_ns);
        if (text.size() >= ReplaceFile::piece) PKV_TRY(file.write(text));
    }
    append_number(text, "\n],\"otherData\":{\"dropped_events\":", recording.dropped);
    text += "}}\n";
    PKV_TRY(file.write(text));
    return file.commit();
}

} // namespace

uint32_t new_process(std::string name) { return recorder().add_process(std::move(name)); }

void name_lane(uint32_t process, uint32_t lane, std::string name) {
    recorder().name_lane(process, lane, std::move(name));
}

void span(uint32_t process, uint32_t lane, const char *name, uint64_t begin_ns, uint64_t end_ns, Args args) {
    if (on()) recorder().add({process, lane, name, begin_ns, end_ns, args.key1, args.key2, args.value1, args.value2});
}

void counter(uint32_t process, const char *name, uint64_t at_ns, uint64_t value) {
    if (on()) recorder().add({process, no_lane, name, at_ns, value, nullptr, nullptr, 0, 0});
}

void drop() {
    if (on()) recorder().drop();
}

pkv_status start(uint64_t max_events) {
    if (max_events > most_events)
        return fail(PKV_ERR_LIMIT, "max_events is %" PRIu64 ", more than %" PRIu64, max_events, most_events);
    return recorder().start(max_events != 0 ? max_events : default_events);
}

pkv_status stop(const char *path, uint64_t *dropped) {
    Recording ended;
    PKV_TRY(recorder().stop(ended));
    if (dropped != nullptr) *dropped = ended.dropped;
    return path != nullptr ? write(ended, path) : PKV_OK;
}

} // namespace pkv::trace
