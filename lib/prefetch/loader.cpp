// SPDX-License-Identifier: Apache-2.0
#include "prefetch/loader.h"

#include "core/clock.h"
#include "core/status.h"
#include "pool/device_images.h"
#include "telemetry/histogram.h"
#include "telemetry/trace.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>

namespace pkv {
namespace {

constexpr uint64_t min_slots = 8;
constexpr uint64_t max_slots = 4096;
constexpr uint64_t starved_poll_ns = 1'000'000; // without a free slot
constexpr uint64_t held_back_poll_ns = 100'000; // while a device is to get on first: see may_begin()
constexpr uint64_t longest_span_ns = 2'000'000; // of a lane in a trace: one that never rests is still drawn

/// Of a status that came before and one that came later: "not found" says the least.
pkv_status worse(pkv_status known, pkv_status later) { return known == PKV_ERR_NOT_FOUND ? later : known; }

} // namespace

Loader::Loader(std::shared_ptr<Pool> pool, const Limits &limits) : pool_(std::move(pool)), limits_(limits) {}

uint32_t Loader::trace_process() {
    if (trace::on())
        std::call_once(traced_, [this] {
            static std::atomic<uint32_t> sessions{0};
            trace_process_ = trace::new_process("prefetch session " + std::to_string(sessions.fetch_add(1) + 1));
            trace::name_lane(trace_process_, 0, "compute");
            for (uint32_t tier = 0; tier < pool_->tiers()->size(); ++tier)
                trace::name_lane(trace_process_, tier + 1,
                                 std::string("loads from ") + (*pool_->tiers())[tier].tier->name());
        });
    return trace_process_;
}

Loader::~Loader() { stop(); }

pkv_status Loader::start(std::vector<PartSource *> sources) {
    std::vector<std::weak_ptr<Tier>> told;
    TierStack &tiers = *pool_->tiers();
    for (uint32_t tier = 0; tier < tiers.size(); ++tier) told.push_back(tiers[tier].tier);
    auto on_gone = [told](void *memory, uint64_t bytes) {
        for (const auto &tier : told)
            if (const auto alive = tier.lock()) alive->memory(memory, bytes, false);
    };
    const uint64_t slots = std::clamp(limits_.bytes_in_flight / limits_.slice_bytes, min_slots, max_slots);
    PKV_TRY(slices_.create(limits_.slice_bytes, slots, pool_->staging_supply(), on_gone));
    for (uint32_t tier = 0; tier < tiers.size(); ++tier)
        tiers[tier].tier->memory(slices_.memory(), slices_.memory_bytes(), true);
    sources_ = std::move(sources);
    thread_ = std::thread([this] { run_thread(); });
    return PKV_OK;
}

void Loader::run_thread() {
    for (;;) {
        try {
            wait(no_deadline, [this]() PKV_REQUIRES(mutex) { return stop_; });
            return;
        } catch (const std::bad_alloc &) {
            log_message(PKV_LOG_WARNING, "no memory to prefetch: waiting");
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }
}

void Loader::stop() {
    {
        const Lock lock(mutex);
        stop_ = true;
    }
    poke();
    if (thread_.joinable()) thread_.join();
}

// ---- tasks ---------------------------------------------------------------------------------------------------------

bool Loader::take(Task &task) {
    bool found = false;
    {
        const Lock lock(mutex);
        if (stop_) return false;
        end_late();
        found = take_arrived(task) || take_work(task) || take_next(task);
    }
    cancel_dropped();
    return found;
}

bool Loader::take_arrived(Task &task) {
    while (auto part = inbox_->take()) {
        if (part->state != PartState::loading) { // dropped, or too late
            part->request = nullptr;
            part->memory = nullptr;
            continue;
        }
        ++part->busy;
        task.asks = ++part->asks;
        task.arrived = true;
        task.known = part->image->head;
        task.urgent = part->urgent;
        task.tier = part->tier;
        task.home = part->image->tier;
        task.status = part->status;
        task.deadline_ns = deadline_of(*part);
        task.part = std::move(part);
        return true;
    }
    return false;
}

bool Loader::take_work(Task &task) {
    const uint64_t now = monotonic_ns();
    for (PartSource *source : sources_)
        if (source->has_work(now)) {
            task.source = source;
            return true;
        }
    return false;
}

/// What is to be begun next: demand first, and within it, and within the rest, the sources in order.
std::shared_ptr<Part> Loader::next_part() {
    if (!again_.empty()) return again_.front();
    for (const bool urgent : {true, false})
        for (PartSource *source : sources_)
            if (auto part = source->next(urgent)) {
                part->urgent = urgent;
                return part;
            }
    return nullptr;
}

bool Loader::take_next(Task &task) {
    held_back_ = false;
    while (std::shared_ptr<Part> part = next_part()) {
        const bool again = !again_.empty();
        if (again && part->state != PartState::loading) { // dropped meanwhile, or too late
            again_.pop_front();
            continue;
        }
        const StoredImage &image = *part->image;
        const ImageFormat &format = pool_->group(image.group).image;
        const int8_t tier = again ? part->tier : image.tier;
        const bool whole = part->layer == all_layers;
        if (!(*pool_->tiers())[static_cast<uint32_t>(tier)].tier->has_address() && part->memory == nullptr) {
            uint64_t bytes = whole ? format.image_bytes() : format.slice_stride();
            if (!whole && image.head == nullptr) bytes += format.header_bytes();
            uint64_t &in_flight = counters_.bytes_in_flight;
            if (in_flight != 0 && in_flight + bytes > limits_.bytes_in_flight) return false;
            Staging &images = pool_->tiers()->staging();
            // The pool's staging memory is also for those who wait without a session: half of it is left to them.
            if (whole && !part->urgent && whole_in_flight_ >= images.slots() / 2) return false;
            part->memory = whole ? images.acquire(0) : slices_.acquire(0);
            if (part->memory == nullptr) {
                if (starve(*part, tier)) continue;
                return false;
            }
            starved_since_ns_ = 0;
            if (!again) order_.push_back(part); // the last step that may throw
            part->in_flight = bytes;
            in_flight += bytes;
            whole_in_flight_ += whole && !part->urgent;
        } else if (!again) {
            order_.push_back(part);
        }
        if (again)
            again_.pop_front();
        else
            begin_part(*part, tier, monotonic_ns());
        ++part->busy;
        task.asks = ++part->asks;
        task.arrived = false;
        task.known = image.head;
        task.urgent = part->urgent;
        task.tier = tier;
        task.home = image.tier;
        task.status = part->status;
        task.deadline_ns = deadline_of(*part);
        task.part = std::move(part);
        return true;
    }
    starved_since_ns_ = 0;
    return false;
}

void Loader::begin_part(Part &part, int8_t tier, uint64_t now) {
    part.state = PartState::loading;
    part.status = PKV_ERR_NOT_FOUND;
    part.begun_ns = now;
    part.tier = tier;
    clock_.begin_load(now);
    note_lane(tier, true, now);
    add_time(counters_.queue, now - std::min(now, part.wanted_ns));
    ++counters_.loads;
    ++counters_.loads_in_flight;
}

/// There is no slot for a part: others have them, or tiers that never answer. Nobody says when one is free again: it is looked
/// for now and then, and a part that would wait for longer than a load may take has failed. True: it has.
bool Loader::starve(Part &part, int8_t tier) {
    const uint64_t now = monotonic_ns();
    if (starved_since_ns_ == 0) starved_since_ns_ = now;
    if (part.state == PartState::loading || now - starved_since_ns_ < limits_.timeout_ns) return false;
    begin_part(part, tier, now);
    part.status = PKV_ERR_TIMEOUT;
    end_part(part, PartState::failed, now);
    poke();
    return true;
}

void Loader::run(Task &task) {
    if (task.source != nullptr) {
        task.source->work();
        return;
    }
    try {
        if (task.arrived)
            take_answer(task);
        else
            attempt(task, task.tier);
    } catch (const std::bad_alloc &) {
        task.status = PKV_ERR_NO_MEMORY;
    }
}

/// Asks one tier after the other, as TierStack::load does.
void Loader::attempt(Task &task, int first_tier) {
    TierStack &tiers = *pool_->tiers();
    for (int tier = first_tier; tier < static_cast<int>(tiers.size()); ++tier) {
        Tier &from = *tiers[static_cast<uint32_t>(tier)].tier;
        // A tier that rests is asked only for what it is known to have: nobody else does.
        if (tier != task.home && !from.available()) continue;
        task.tier = static_cast<int8_t>(tier);
        if (!from.has_address()) {
            if (!ask(task, task.tier)) task.stuck = true;
            return;
        }
        const pkv_status status = load_in_place(task, task.tier);
        if (status == PKV_OK) {
            task.status = task.device;
            return;
        }
        task.status = worse(task.status, status);
    }
}

/// Begins a request for what is still missing; false without memory for it.
bool Loader::ask(Task &task, int8_t tier) {
    const std::shared_ptr<Part> &part = task.part;
    const ImageFormat &format = pool_->group(part->image->group).image;
    if (part->memory == nullptr) return false;
    uint64_t offset = 0;
    if (part->layer == all_layers) {
        part->asked_head = part->asked_slice = true;
        part->asked_bytes = format.image_bytes();
    } else {
        const bool head = task.needs_head();
        part->asked_head = head;
        part->asked_slice = !head || part->layer == 0; // the first slice lies behind the header
        if (!head) offset = format.slice_offset(part->layer);
        part->asked_bytes = (head ? format.header_bytes() : 0) + (part->asked_slice ? format.slice_stride() : 0);
    }
    task.request = pool_->tiers()->begin_load(static_cast<uint32_t>(tier), part->image->key, offset, part->asked_bytes,
                                              part->memory, task.urgent, task.deadline_ns,
                                              [part, inbox = inbox_](Request &request) {
                                                  part->answer = request.status(0);
                                                  part->answered_bytes = request.value(0);
                                                  inbox->arrive(part);
                                              });
    return true;
}

void Loader::take_answer(Task &task) {
    Part &part = *task.part;
    pkv_status status = part.answer;
    if (status == PKV_OK && part.answered_bytes != part.asked_bytes) status = PKV_ERR_IO; // came short
    const bool good = status == PKV_OK && put_in_place(task, part.memory.get(), part.memory, part.asked_head,
                                                       part.asked_slice, part.asked_bytes);
    if (status == PKV_OK && !good && !part.asked_head && is_stale(task) && ask(task, task.tier)) return;
    task.no_image = status == PKV_OK && !good;
    status =
        pool_->tiers()->note_load(static_cast<uint32_t>(task.tier), part.image->key, status, good, part.asked_bytes);
    if (status == PKV_OK) {
        task.loaded += part.asked_bytes;
        if (part.asked_slice) {
            task.status = task.device;
            return;
        }
        keep_head(task); // whoever takes the slice needs it, and may come before this call is back from the tier
        ask(task, task.tier);
        return;
    }
    task.status = worse(task.status, status);
    attempt(task, task.tier + 1);
}

void Loader::keep_head(Task &task) {
    const Lock lock(mutex);
    task.part->image->head = task.known = task.head;
    task.part->bytes += task.loaded; // now: whoever takes the slice adds them up when the part is ready
    task.loaded = 0;
}

/// A slice is not the one that a header tells of which was read before: maybe the image was stored anew since, by a pool with
/// another order in its pages. True, once for each part: the header is to be read again.
bool Loader::is_stale(Task &task) {
    Part &part = *task.part;
    if (part.layer == all_layers || part.head_again || task.known == nullptr || task.head != nullptr) return false;
    part.head_again = true;
    task.known = nullptr;
    return true;
}

pkv_status Loader::load_in_place(Task &task, int8_t tier) {
    const StoredImage &image = *task.part->image;
    const ImageFormat &format = pool_->group(image.group).image;
    const Tier &from = *(*pool_->tiers())[static_cast<uint32_t>(tier)].tier;
    const Tier::InPlace in_place(from, image.key);
    const std::byte *const bytes = in_place.data();
    bool good = false;
    pkv_status status = PKV_ERR_NOT_FOUND;
    uint64_t size = 0;
    if (bytes != nullptr) {
        const bool whole = task.part->layer == all_layers;
        status = PKV_OK;
        if (whole) {
            size = format.image_bytes();
            good = put_in_place(task, bytes, nullptr, true, true, size);
        } else {
            do {
                const bool head = task.needs_head();
                size = format.slice_stride() + (head ? format.header_bytes() : 0);
                good = (!head || put_in_place(task, bytes, nullptr, true, false, format.header_bytes())) &&
                       put_in_place(task, bytes + format.slice_offset(task.part->layer), nullptr, false, true,
                                    format.slice_stride());
            } while (!good && is_stale(task));
            if (task.stuck) return PKV_OK;
        }
        // A clear, or the end of its sequence, takes images away although they are pinned: what was read may have been
        // something else in part.
        if (!in_place.holds()) {
            good = false;
            status = PKV_ERR_NOT_FOUND;
        }
    }
    task.no_image = task.no_image || (status == PKV_OK && !good);
    status = pool_->tiers()->note_load(static_cast<uint32_t>(tier), image.key, status, good, size);
    if (status == PKV_OK) task.loaded += size;
    return status;
}

bool Loader::put_in_place(Task &task, const std::byte *bytes, const std::shared_ptr<std::byte> &slot, bool with_head,
                          bool with_slice, uint64_t size) {
    const Part &part = *task.part;
    const StoredImage &image = *part.image;
    const ImageFormat &format = pool_->group(image.group).image;
    const ImageName name{image.key, image.block, image.tokens};
    const char *why = nullptr;
    bool good = true;
    {
        const Pool::BytesInUse in_use(*pool_);
        if (pool_->closed()) return true; // nobody sees the page any more
        PageMemory &memory = pool_->memory(image.group);
        if (pool_->device() != nullptr) {
            good = put_on_device(task, bytes, slot, with_head, with_slice, size, &why);
        } else if (part.layer == all_layers) {
            good = format.unpack(bytes, size, name, memory, part.page, &why);
        } else {
            if (with_head) good = read_head(task, bytes, name, &why);
            if (good && with_slice) {
                const ImageHead &head = task.head_to_use();
                good = format.unpack_layer(bytes + (with_head ? format.header_bytes() : 0), head, part.layer, memory,
                                           part.to_layer, part.page);
                if (!good) why = "checksum of a slice";
            }
        }
    }
    if (!good) log_message(PKV_LOG_WARNING, "a page image was refused: %s", why);
    return good;
}

bool Loader::read_head(Task &task, const std::byte *bytes, const ImageName &name, const char **why) const {
    auto head = std::make_shared<ImageHead>();
    if (!pool_->group(task.part->image->group).image.read_head(bytes, name, *head, why)) return false;
    task.head = std::move(head);
    return true;
}

/// The same on a device: it is in place when this returns, or task.device says why not.
bool Loader::put_on_device(Task &task, const std::byte *bytes, const std::shared_ptr<std::byte> &slot, bool with_head,
                           bool with_slice, uint64_t size, const char **why) {
    const Part &part = *task.part;
    const StoredImage &image = *part.image;
    const ImageName name{image.key, image.block, image.tokens};
    if (part.layer == all_layers) {
        DeviceImages images(*pool_);
        images.come_after(part.after);
        const bool good = images.add(image.group, part.page, name, bytes, size, slot, task.deadline_ns, why);
        task.device = images.end();
        return good;
    }
    if (with_head && !read_head(task, bytes, name, why)) return false;
    return !with_slice || put_slice_on_device(task, bytes, slot, with_head, why);
}

/// The device reads slice and scales where they lie: in a slot, where the scales take the place that the header has or would
/// have, or in a tier's memory, if that is pinned. Else a slot is taken for them, and what is checked is the copy.
bool Loader::put_slice_on_device(Task &task, const std::byte *bytes, const std::shared_ptr<std::byte> &slot,
                                 bool with_head, const char **why) {
    const Part &part = *task.part;
    const uint32_t group = part.image->group;
    const ImageFormat &format = pool_->group(group).image;
    const uint64_t scale_bytes = format.scale_bytes() / pool_->geometry(group).num_layers;
    const ImageHead &head = task.head_to_use();
    const std::byte *const known_scales = scale_bytes != 0 ? head.scales.data() + part.layer * scale_bytes : nullptr;
    const std::byte *slice = bytes + (with_head ? format.header_bytes() : 0);
    const void *scales = nullptr;
    std::shared_ptr<std::byte> own = slot;
    if (slot == nullptr) {
        const std::byte *const image = slice - format.slice_offset(part.layer);
        int32_t kind = PKV_ADDRESS_HOST;
        const bool readable = pool_->device()->kind_of(image, kind) == PKV_OK && kind == PKV_ADDRESS_PINNED;
        scales = format.scales(const_cast<std::byte *>(image), part.layer);
        if (!readable || (scale_bytes != 0 && std::memcmp(scales, known_scales, scale_bytes) != 0)) {
            own = slices_.acquire(monotonic_ns() + starved_poll_ns);
            if (own == nullptr) { // maybe this thread is to empty one
                task.stuck = true;
                return true;
            }
            std::memcpy(own.get(), slice, format.slice_stride());
            slice = own.get();
        }
    }
    if (!format.check_slice(slice, head, part.layer)) {
        *why = "checksum of a slice";
        return false;
    }
    if (scale_bytes != 0 && own != nullptr) {
        std::byte *const room = with_head && slot != nullptr ? slot.get() : own.get() + format.slice_stride();
        std::memcpy(room, known_scales, scale_bytes);
        scales = room;
    }
    task.device = pool_->unpack_slice_on_device(group, part.page, part.to_layer, slice,
                                                static_cast<const float *>(scales), head.layout, part.after);
    return true;
}

void Loader::finish(Task &task) {
    if (task.part == nullptr) return;
    bool changed = false;
    {
        const Lock lock(mutex);
        Part &part = *task.part;
        const uint64_t now = monotonic_ns();
        --part.busy;
        part.bytes += task.loaded;
        counters_.checksum_failures += task.no_image;
        if (task.head != nullptr) part.image->head = std::move(task.head);
        if (part.state == PartState::dropped) {
            if (task.request != nullptr && !task.request->ended()) to_cancel_.push_back(std::move(task.request));
            if (part.busy == 0) --busy_dropped_;
            changed = true;
        } else if (part.state == PartState::loading && task.asks == part.asks) {
            // Else what this task asked for has been answered, and another one is at work on the part.
            if (task.tier != part.tier) {
                note_lane(part.tier, false, now);
                note_lane(task.tier, true, now);
                part.tier = task.tier;
            }
            if (task.stuck) {
                part.status = task.status;
                again_.push_back(task.part);
            } else if (task.request != nullptr) {
                part.status = task.status;
                part.request = std::move(task.request);
            } else {
                part.status = task.status;
                part.device_failed = task.device != PKV_OK;
                end_part(part, task.status == PKV_OK ? PartState::ready : PartState::failed, now);
                changed = true;
            }
        }
    }
    cancel_dropped();
    if (changed) poke();
}

// ---- ends ----------------------------------------------------------------------------------------------------------

/// The part is not outstanding any more.
void Loader::end_load(Part &part, uint64_t now) {
    clock_.end_load(now);
    counters_.bytes_in_flight -= part.in_flight;
    note_lane(part.tier, false, now); // shows that number
    if (part.in_flight != 0 && part.layer == all_layers && !part.urgent) --whole_in_flight_;
    part.in_flight = 0;
    --counters_.loads_in_flight;
}

void Loader::end_part(Part &part, PartState state, uint64_t now) {
    end_load(part, now);
    part.state = state;
    part.request = nullptr;
    part.memory = nullptr;
    if (state == PartState::ready) {
        ++counters_.good_loads;
        counters_.bytes_loaded += part.bytes;
        counters_.ready_bytes += part.bytes;
        add_time(counters_.load, now - part.begun_ns);
    } else {
        ++counters_.failed_loads;
    }
    if (part.on_end) part.on_end();
}

void Loader::drop(const std::shared_ptr<Part> &part) {
    switch (part->state) {
    case PartState::loading:
        end_load(*part, monotonic_ns());
        ++counters_.cancelled_loads;
        if (part->request != nullptr) to_cancel_.push_back(std::move(part->request));
        part->request = nullptr;
        poke(); // there is room for another one
        break;
    case PartState::ready:
        if (part->used) break;
        counters_.ready_bytes -= part->bytes;
        counters_.wasted_bytes += part->bytes;
        break;
    default: break;
    }
    // Also of one that has ended: whoever handed it to its tier may not be back from there.
    if (part->busy != 0) ++busy_dropped_;
    part->state = PartState::dropped;
    part->on_end = nullptr;
}

void Loader::use(Part &part) {
    if (part.used || part.state != PartState::ready) return;
    part.used = true;
    counters_.ready_bytes -= part.bytes;
    counters_.bytes_used += part.bytes;
}

void Loader::cancel_dropped() {
    std::vector<std::shared_ptr<Request>> requests;
    {
        const Lock lock(mutex);
        if (to_cancel_.empty()) return;
        requests.swap(to_cancel_);
    }
    for (const auto &request : requests)
        if (!request->ended()) request->tier().cancel(*request);
}

void Loader::wait_idle() {
    wait(no_deadline, [this]() PKV_REQUIRES(mutex) { return busy_dropped_ == 0; });
}

/// Fails loads whose time is over; the tier may answer later, into memory that is then nobody's.
void Loader::end_late() {
    while (!order_.empty()) {
        const std::shared_ptr<Part> part = order_.front();
        if (part->state == PartState::loading) {
            const uint64_t now = monotonic_ns();
            if (part->busy != 0 || now - part->begun_ns < limits_.timeout_ns) return;
            if (part->request != nullptr) {
                (*pool_->tiers())[static_cast<uint32_t>(part->tier)].tier->note_timeout();
                to_cancel_.push_back(part->request);
            }
            part->status = PKV_ERR_TIMEOUT;
            end_part(*part, PartState::failed, now);
            poke();
        }
        order_.pop_front();
    }
}

uint64_t Loader::next_deadline() {
    const Lock lock(mutex);
    if (stop_) return 0;
    while (!order_.empty() && order_.front()->state != PartState::loading) order_.pop_front();
    uint64_t first = no_deadline;
    for (PartSource *source : sources_) first = std::min(first, source->work_by());
    if (starved_since_ns_ != 0) first = std::min(first, monotonic_ns() + starved_poll_ns);
    if (held_back_) first = std::min(first, monotonic_ns() + held_back_poll_ns);
    return order_.empty() ? first : std::min(first, deadline_of(*order_.front()));
}

// ---- numbers -------------------------------------------------------------------------------------------------------

void Loader::note_lane(int8_t tier, bool begins, uint64_t now) {
    TierLane &lane = lanes_[static_cast<size_t>(tier)];
    if (begins && lane.loads++ == 0) lane.since_ns = now;
    if (!begins) {
        --lane.loads;
        if (trace::on() && (lane.loads == 0 || now - lane.since_ns > longest_span_ns)) {
            trace::span(trace_process(), static_cast<uint32_t>(tier) + 1, "loads", lane.since_ns, now,
                        {"outstanding", lane.loads + 1, nullptr, 0});
            lane.since_ns = now;
        }
    }
    if (trace::on()) trace::counter(trace_process(), "bytes in flight", now, counters_.bytes_in_flight);
}

void Loader::fill_stats(pkv_prefetch_stats &stats) {
    const Lock lock(mutex);
    clock_.advance(monotonic_ns());
    stats = counters_;
    stats.struct_size = sizeof stats;
    stats.io_ns = clock_.io_ns();
    stats.exposed_ns = clock_.exposed_ns();
    stats.masked_ns = stats.io_ns - stats.exposed_ns;
    stats.other_wait_ns = clock_.other_wait_ns();
    stats.masking_efficiency =
        stats.io_ns != 0 ? static_cast<double>(stats.masked_ns) / static_cast<double>(stats.io_ns) : 0.0;
}

} // namespace pkv
