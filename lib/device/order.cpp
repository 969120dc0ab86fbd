// SPDX-License-Identifier: Apache-2.0
#include "device/order.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <utility>

namespace pkv {
namespace {

constexpr uint64_t per_thread_stream = 2; // cudaStreamPerThread: another stream in each thread

/// Calls a function of the table that says why it failed.
template <class Function, class... Arguments>
pkv_status ask(const char *what, Function function, Arguments... arguments) {
    char why[256] = "";
    const pkv_status status = function(arguments..., why, sizeof why);
    return status == PKV_OK ? PKV_OK : fail(status, "%s: %s", what, why);
}

} // namespace

/// Events that are not in use. It outlives the order: an event may be given back late, by a thread that waited for it.
struct Order::FreeEvents {
    const pkv_device_table &table;
    pkv_device_context *context;
    std::mutex mutex;
    std::vector<pkv_device_event *> list; // with room for all that were made
    size_t made = 0;

    FreeEvents(const pkv_device_table &of, pkv_device_context *in) : table(of), context(in) {}
    ~FreeEvents() { end(); }
    void end() {
        const std::lock_guard lock(mutex);
        for (pkv_device_event *event : list) table.end_event(context, event);
        list.clear();
    }
    FreeEvents(const FreeEvents &) = delete;
    FreeEvents &operator=(const FreeEvents &) = delete;
};

struct Order::Event {
    pkv_device_event *event = nullptr;
    std::shared_ptr<FreeEvents> home;

    Event(pkv_device_event *taken, std::shared_ptr<FreeEvents> from) : event(taken), home(std::move(from)) {}
    ~Event() {
        const std::lock_guard lock(home->mutex);
        home->list.push_back(event); // there is room: see take_event()
    }
    Event(const Event &) = delete;
    Event &operator=(const Event &) = delete;
};

Order::Order(const pkv_device_table &table, pkv_device_context *context)
    : table_(table), context_(context), free_events_(std::make_shared<FreeEvents>(table, context)) {
    for (auto &first : first_open_) first.store(nothing_open, std::memory_order_relaxed);
}

Order::~Order() = default;

void Order::end() {
    const Lock lock(mutex_);
    for (Stream &stream : streams_) stream.open.clear();
    for (auto &first : first_open_) first.store(nothing_open, std::memory_order_release);
    if (marker_ != nullptr) table_.end_stream(context_, marker_);
    marker_ = nullptr;
    free_events_->end();
}

uint64_t Order::identity_of(void *stream) const {
    if (table_.stream_id != nullptr)
        if (const uint64_t identity = table_.stream_id(context_, stream); identity != 0) return identity;
    const auto handle = reinterpret_cast<uint64_t>(stream);
    if (handle != per_thread_stream) return ~handle; // never 0: no stream has the last address
    static std::atomic<uint32_t> threads{0};
    static thread_local const uint32_t thread = threads.fetch_add(1) + 1;
    return uint64_t{1} << 62 | uint64_t{thread} << 8 | per_thread_stream;
}

pkv_status Order::number_of(void *stream, size_t &number) { return number_of_identity(identity_of(stream), number); }

pkv_status Order::number_of_identity(uint64_t identity, size_t &number) {
    size_t oldest = most_streams; // that nothing waits for
    size_t waited = 0;            // of the others
    for (number = 0; number < most_streams; ++number) {
        Stream &stream = streams_[number];
        if (stream.identity == identity) {
            stream.last_use = ++uses_;
            return PKV_OK;
        }
    }
    for (size_t i = 0; i < most_streams; ++i) {
        if (!streams_[i].open.empty()) look_at(i);
        if (streams_[i].open.empty() && (oldest == most_streams || streams_[i].last_use < streams_[oldest].last_use))
            oldest = i;
        if (streams_[i].last_use < streams_[waited].last_use) waited = i;
    }
    if (oldest == most_streams) {
        // 64 streams with work of this library under way: the one used longest ago has to end first. Others look meanwhile.
        const std::shared_ptr<Event> last = streams_[waited].open.back().event;
        mutex_.unlock();
        const pkv_status status = ask("a stream's work", table_.wait_event, context_, last->event);
        mutex_.lock();
        PKV_TRY(status);
        return number_of_identity(identity, number);
    }
    streams_[oldest] = Stream{};
    first_open_[oldest].store(nothing_open, std::memory_order_release);
    streams_[oldest].identity = identity;
    streams_[oldest].last_use = ++uses_;
    number = oldest;
    return PKV_OK;
}

void Order::look_at(size_t number) {
    Stream &stream = streams_[number];
    char why[1];
    while (!stream.open.empty() && table_.query(context_, stream.open.front().event->event, why, sizeof why) == PKV_OK)
        stream.open.pop_front();
    first_open_[number].store(stream.open.empty() ? nothing_open : stream.open.front().ticket,
                              std::memory_order_release);
}

void Order::look() {
    const Lock lock(mutex_);
    for (size_t i = 0; i < most_streams; ++i)
        if (!streams_[i].open.empty()) look_at(i);
}

pkv_status Order::take_event(std::shared_ptr<Event> &event) {
    pkv_device_event *taken = nullptr;
    {
        const std::lock_guard lock(free_events_->mutex);
        auto &list = free_events_->list;
        if (!list.empty()) {
            taken = list.back();
            list.pop_back();
        } else {
            if (free_events_->made == list.capacity()) list.reserve(std::max<size_t>(64, 2 * list.capacity()));
            ++free_events_->made;
        }
    }
    if (taken == nullptr) PKV_TRY(ask("an event", table_.make_event, context_, 0, &taken));
    try {
        event = std::make_shared<Event>(taken, free_events_);
    } catch (...) {
        table_.end_event(context_, taken);
        throw;
    }
    return PKV_OK;
}

pkv_status Order::mark_number(size_t number, void *stream, Fences &point) {
    Stream &at = streams_[number];
    if (!at.open.empty()) look_at(number);
    std::shared_ptr<Event> event;
    PKV_TRY(take_event(event));
    at.open.push_back({last_ticket_ + 1, event}); // may throw: before the event is recorded
    const pkv_status status = ask("an event", table_.record, context_, event->event, stream);
    if (status != PKV_OK) {
        at.open.pop_back();
        return status;
    }
    ++last_ticket_;
    if (at.open.size() == 1) first_open_[number].store(last_ticket_, std::memory_order_release);
    point = {uint64_t{1} << number, last_ticket_};
    return PKV_OK;
}

pkv_status Order::mark(void *stream, Fences &point) {
    const Lock lock(mutex_);
    size_t number = 0;
    PKV_TRY(number_of(stream, number));
    return mark_number(number, stream, point);
}

pkv_status Order::mark_event(void *event, Fences &point) {
    const Lock lock(mutex_);
    if (marker_ == nullptr) PKV_TRY(ask("a stream", table_.make_stream, context_, 1, &marker_));
    size_t number = 0;
    PKV_TRY(number_of(marker_, number));
    PKV_TRY(ask("sync: the event", table_.order_after_caller, context_, marker_, event));
    return mark_number(number, marker_, point);
}

const Order::Point *Order::last_point(const Stream &stream, uint64_t ticket) const {
    const auto behind = std::upper_bound(stream.open.begin(), stream.open.end(), ticket,
                                         [](uint64_t value, const Point &point) { return value < point.ticket; });
    return behind == stream.open.begin() ? nullptr : &*std::prev(behind);
}

pkv_status Order::order(void *stream, const Fences &after) {
    if (passed(after)) return PKV_OK;
    const Lock lock(mutex_);
    size_t self = 0;
    PKV_TRY(number_of(stream, self));
    for (uint64_t left = after.streams; left != 0; left &= left - 1) {
        const auto number = static_cast<size_t>(std::countr_zero(left));
        if (number == self) continue;
        const Point *const point = last_point(streams_[number], after.ticket);
        if (point == nullptr || streams_[self].behind[number] >= point->ticket) continue;
        PKV_TRY(ask("the order of two streams", table_.order_after, context_, stream, point->event->event));
        streams_[self].behind[number] = point->ticket;
    }
    return PKV_OK;
}

pkv_status Order::wait(const Fences &after) {
    if (passed(after)) return PKV_OK;
    for (uint64_t left = after.streams; left != 0; left &= left - 1) {
        const auto number = static_cast<size_t>(std::countr_zero(left));
        std::shared_ptr<Event> event;
        {
            const Lock lock(mutex_);
            if (const Point *const point = last_point(streams_[number], after.ticket); point != nullptr)
                event = point->event;
        }
        if (event != nullptr) PKV_TRY(ask("a stream's work", table_.wait_event, context_, event->event));
    }
    look();
    return PKV_OK;
}

} // namespace pkv
