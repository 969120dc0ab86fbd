// SPDX-License-Identifier: Apache-2.0
// Steps as their caller sees them: begin, acquire, release, end. units.cpp makes the units.
#include "prefetch/pipeline.h"

#include "core/clock.h"
#include "core/status.h"
#include "layout/strides.h"
#include "telemetry/histogram.h"
#include "telemetry/trace.h"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cmath>
#include <utility>

namespace pkv {
namespace {

constexpr uint64_t no_wait_ns =
    10'000;                        // what two points in a stream with a wait between them are apart when there is none
constexpr double smoothing = 0.25; // of measured times: the last four or so count

void smooth(double &mean, uint64_t value) {
    mean = mean == 0 ? static_cast<double>(value) : mean + smoothing * (static_cast<double>(value) - mean);
}

/// The part of `total` staging pages' slices that one of `buffers` buffers has.
uint64_t capacity_of(const SliceMap &map, uint64_t pages, uint32_t layers, uint32_t buffers) {
    return map.covers_all_layers() ? pages * layers / buffers : pages / buffers;
}

} // namespace

Pipeline::Pipeline(std::shared_ptr<Pool> pool, Loader &loader, KnownImages &images)
    : pool_(std::move(pool)), loader_(loader), images_(images) {}

Pipeline::~Pipeline() {
    Fences work;
    {
        const Lock lock(loader_.mutex); // nobody else has the session; said for the checker
        for (const Fences &after : buffer_after_) work |= after;
    }
    for (uint32_t group = 0; group < staging_.size(); ++group)
        for (const pkv_page page : staging_[group].pages) pool_->release_page(group, page, work);
    views_.end(work);
}

pkv_status Pipeline::create(const pkv_prefetch_options &options, std::vector<pkv_layer_ref> layers,
                            std::span<const uint64_t> staging_pages) {
    layers_ = std::move(layers);
    num_buffers_ = options.num_buffers;
    max_tables_ = options.max_tables;
    max_slices_ = options.max_slices;
    off_ = (options.flags & PKV_PREFETCH_OFF) != 0;
    whole_layers_ = (options.flags & PKV_PREFETCH_WHOLE_LAYERS) != 0;
    {
        const Lock lock(loader_.mutex); // nobody else knows the session yet; said for the checker
        depth_ = num_buffers_;
        buffer_after_.resize(num_buffers_);
    }
    slices_ = options.slices;
    indptr_ = options.slice_indptr;
    if (pool_->device() != nullptr) {
        PKV_TRY(check_writable(slices_, "slices"));
        PKV_TRY(check_writable(indptr_, "slice_indptr"));
        views_.create(pool_->device(), num_buffers_, max_tables_);
    } else if ((slices_ == nullptr && !own_slices_.reserve(num_buffers_ * max_slices_)) ||
               (indptr_ == nullptr && !own_indptr_.reserve(uint64_t{num_buffers_} * (max_tables_ + 1))) ||
               !first_blocks_.reserve(uint64_t{num_buffers_} * max_tables_))
        return fail(PKV_ERR_NO_MEMORY, "views of %" PRIu64 " slices", max_slices_);
    if (slices_ == nullptr) slices_ = own_slices_.data(); // on a device: none
    if (indptr_ == nullptr) indptr_ = own_indptr_.data();
    staging_.resize(pool_->num_groups());
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
        GroupStaging &staging = staging_[group];
        const Geometry &geometry = pool_->geometry(group);
        if (std::none_of(layers_.begin(), layers_.end(), [&](const pkv_layer_ref &at) { return at.group == group; }))
            continue;
        staging.map.create(geometry, pool_->memory(group));
        const uint64_t pages = staging_pages[group];
        staging.capacity = capacity_of(staging.map, pages, geometry.num_layers, num_buffers_);
        if (staging.capacity == 0)
            return fail(PKV_ERR_INVALID, "group %u: %" PRIu64 " staging pages of %u layers are too few for %u buffers",
                        group, pages, geometry.num_layers, num_buffers_);
        std::vector<pkv_page> taken(pages);
        Fences waits;
        PKV_TRY(pool_->alloc(group, pages, taken.data(), waits));
        staging.pages = std::move(taken);
        const Lock lock(loader_.mutex);
        for (Fences &after : buffer_after_) after |= waits;
    }
    return PKV_OK;
}

uint64_t Pipeline::slice_bytes() const {
    uint64_t most = PKV_IMAGE_ALIGNMENT;
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
        const ImageFormat &format = pool_->group(group).image;
        most = std::max(most, format.header_bytes() + format.slice_stride());
    }
    return most;
}

// ---- begin ---------------------------------------------------------------------------------------------------------

uint64_t Pipeline::absent_in(const StepTable &table, uint32_t group) const {
    return static_cast<uint64_t>(std::count_if(table.absent.begin(), table.absent.end(),
                                               [&](const AbsentImages &at) { return at.images[group] != nullptr; }));
}

pkv_status Pipeline::check_room(std::span<const StepTable> tables) const {
    uint64_t blocks = 0;
    for (const StepTable &table : tables) blocks += table.num_blocks;
    if (blocks > max_slices_)
        return fail(PKV_ERR_NO_SPACE, "the step has %" PRIu64 " blocks, and views %" PRIu64 " entries (max_slices)",
                    blocks, max_slices_);
    for (uint32_t group = 0; whole_layers_ && group < pool_->num_groups(); ++group) {
        uint64_t absent = 0;
        for (const StepTable &table : tables) absent += absent_in(table, group);
        if (absent > staging_[group].capacity && !staging_[group].pages.empty())
            return fail(PKV_ERR_NO_SPACE,
                        "group %u: %" PRIu64 " blocks are absent, and a buffer holds %" PRIu64 " slices", group, absent,
                        staging_[group].capacity);
    }
    return PKV_OK;
}

/// Whether what is known of a table is still so.
bool Pipeline::still_holds(const StepTable &table, const Table &now, uint64_t num_blocks) {
    if (table.known != &now || !(table.mark == now.residency_mark())) return false;
    return num_blocks >= table.num_blocks ? !table.cut || num_blocks == table.num_blocks
                                          : table.absent.empty() || table.absent.back().block < num_blocks;
}

/// Lists the absent blocks of a table's first num_blocks.
void Pipeline::look_at(StepTable &table) {
    const Table &now = *table.table;
    table.absent.clear();
    table.cut = false;
    table.known = &now;
    table.mark = now.residency_mark();
    for (const auto &[block, absent] : now.absent()) {
        if (block >= table.num_blocks) {
            table.cut = true;
            break;
        }
        AbsentImages item;
        item.block = block;
        for (uint32_t group = 0; group < pool_->num_groups(); ++group)
            if ((absent.groups >> group & 1) != 0) item.images[group] = images_.get(now, block, absent, group);
        table.absent.push_back(std::move(item));
    }
}

bool Pipeline::at_start_of(uint64_t step) const {
    if (units_.empty()) return next_step_ == step && next_index_ == 0 && next_begin_ == Position{};
    const Unit &first = *units_.front();
    return first.step == step && first.index == 0 && first.begin == Position{};
}

pkv_status Pipeline::begin_step(std::vector<std::shared_ptr<Table>> tables, std::span<const uint64_t> num_tokens,
                                std::span<pkv_status> statuses) {
    if (in_step_) return fail(PKV_ERR_STATE, "a step is under way: pkv_prefetch_step_end comes first");
    if (tables.size() > max_tables_)
        return fail(PKV_ERR_LIMIT, "%zu tables in a step, and the session takes %u (max_tables)", tables.size(),
                    max_tables_);
    const uint32_t page_tokens = pool_->page_tokens();
    bool changed = false;
    {
        const Lock lock(loader_.mutex);
        bool same = tables.size() == tables_.size();
        std::vector<uint64_t> blocks(tables.size());
        std::vector<pkv_status> state(tables.size());
        for (size_t i = 0; i < tables.size(); ++i) {
            Table &table = *tables[i];
            state[i] = table.check_open();
            if (state[i] == PKV_OK) state[i] = table.check_admitted();
            const uint64_t tokens = num_tokens.empty() ? table.committed() : num_tokens[i];
            if (state[i] == PKV_OK && tokens > table.reserved())
                return fail(PKV_ERR_INVALID, "num_tokens[%zu] is %" PRIu64 ", and the table has room for %" PRIu64, i,
                            tokens, table.reserved());
            if (state[i] == PKV_OK) blocks[i] = blocks_for(tokens, page_tokens);
            same = same && still_holds(tables_[i], table, blocks[i]);
        }
        if (same) {
            uint64_t sum = 0;
            for (const uint64_t count : blocks) sum += count;
            if (sum > max_slices_) // absent blocks are those of the last step, which had room
                return fail(PKV_ERR_NO_SPACE,
                            "the step has %" PRIu64 " blocks, and views %" PRIu64 " entries (max_slices)", sum,
                            max_slices_);
        } else {
            std::vector<StepTable> fresh(tables.size());
            for (size_t i = 0; i < tables.size(); ++i) {
                fresh[i].table = tables[i];
                fresh[i].num_blocks = blocks[i];
                look_at(fresh[i]);
            }
            PKV_TRY(check_room(fresh));
            tables_.swap(fresh);
            changed = true;
        }
        for (size_t i = 0; i < tables.size(); ++i) {
            StepTable &at = tables_[i];
            at.table = std::move(tables[i]);
            at.num_blocks = blocks[i];
            at.status = state[i];
            at.lost_block = UINT64_MAX;
            at.needed = at.waited = false;
        }
        ++step_;
        ++loader_.counters().steps;
        if (changed || !at_start_of(step_)) {
            plan_anew(step_, 0, {});
            changed = true;
        }
        if (!off_) extend(depth_);
        if (!changed) wake(); // after a cancel
        for (size_t i = 0; i < statuses.size(); ++i) statuses[i] = state[i];
    }
    in_step_ = true;
    num_tables_ = static_cast<uint32_t>(tables.size());
    any_acquired_ = layer_open_ = false;
    acquired_at_ns_ = held_since_ns_ = 0;
    if (changed) settle();
    return PKV_OK;
}

// ---- acquire -------------------------------------------------------------------------------------------------------

/// The owner's calls may have changed tables since the step began. True if absent blocks are others now.
bool Pipeline::refresh() {
    bool changed = false;
    for (StepTable &table : tables_) {
        const Table &now = *table.table;
        if (table.mark == now.residency_mark()) continue;
        const bool stands = now.check_admitted() == PKV_OK;
        if (!stands && table.status == PKV_OK) table.status = now.check_admitted();
        table.num_blocks = stands ? std::min(table.num_blocks, now.num_blocks()) : 0;
        look_at(table);
        changed = true;
    }
    return changed;
}

pkv_status Pipeline::check_writable(const void *array, const char *what) const {
    int32_t kind = PKV_ADDRESS_HOST;
    if (array != nullptr) PKV_TRY(pool_->device()->kind_of(array, kind));
    if (kind != PKV_ADDRESS_DEVICE && kind != PKV_ADDRESS_OTHER) return PKV_OK;
    return fail(PKV_ERR_INVALID,
                "%s is device memory; views are written by the host (pinned memory kernels can read, too)", what);
}

/// What a unit has of a table's blocks.
Pipeline::Range Pipeline::range_of(const Unit &unit, uint32_t table) const {
    if (table < unit.begin.table || table > unit.end.table) return {0, 0};
    const uint64_t from = table == unit.begin.table ? unit.begin.block : 0;
    const uint64_t to = table < unit.end.table ? tables_[table].num_blocks : unit.end.block;
    return {std::min(from, to), to};
}

/// On a device: where the view of a unit goes. Arrays of the caller's are waited for until nobody reads them.
pkv_status Pipeline::find_view(uint64_t slices, const Fences &buffer, Views::View *&view) {
    if (slices_ != nullptr || indptr_ != nullptr) PKV_TRY(pool_->device()->order().wait(buffer));
    return views_.find(slices_ == nullptr ? slices : 0, view);
}

Pipeline::Arrays Pipeline::arrays_of(const Unit &unit, Views::View *view) {
    const uint64_t buffer = buffer_of(unit);
    Arrays arrays{slices_ + buffer * max_slices_, indptr_ + buffer * (max_tables_ + 1), nullptr};
    if (view == nullptr) {
        arrays.first_block = first_blocks_.data() + buffer * max_tables_;
        return arrays;
    }
    if (slices_ == nullptr) arrays.slices = view->slices;
    if (indptr_ == nullptr) arrays.indptr = view->indptr;
    arrays.first_block = view->first_block;
    return arrays;
}

/// The turn's stream waits until the loads of a unit have ended.
pkv_status Pipeline::wait_on_word(Unit &unit, Views::View &view, Turn &turn) {
    void *stream = nullptr;
    PKV_TRY(turn.stream(stream));
    const Device &device = *pool_->device();
    take_time(view);
    if (view.timer.begin(pool_->device(), stream) != PKV_OK)
        log_message(PKV_LOG_WARNING, "a wait of a stream is not timed");
    PKV_TRY(device.call("a wait of the stream", &pkv_device_table::wait_word, stream,
                        static_cast<const uint64_t *>(view.word), view.turn + 1));
    ++view.turn;
    (void)view.timer.end(stream);
    if (const pkv_status status = turn.named(unit.waits); status != PKV_OK) {
        std::atomic_ref(*view.word).store(view.turn, std::memory_order_release);
        (void)turn.finish(); // nobody waits for the word any more
        return status;
    }
    unit.on_word = unit.late = true;
    view.late = std::exchange(unit.late_parts, 0);
    view.on_demand = std::exchange(unit.demanded_parts, 0);
    return PKV_OK;
}

/// The loads of a unit have ended, or nobody is to wait for them: what is not there is taken out of the view first.
void Pipeline::end_word(Unit &unit) {
    if (!unit.on_word) return;
    unit.on_word = false;
    const Arrays arrays = arrays_of(unit, unit.view);
    for (const Entry &entry : unit.entries)
        if (unit.parts[entry.part]->state != PartState::ready)
            std::atomic_ref(arrays.slices[entry.position]).store(-1, std::memory_order_relaxed);
    std::atomic_ref(*unit.view->word).store(unit.view->turn, std::memory_order_release);
}

/// How long a stream has waited. It may have come long after the call: what was there by then was on time.
void Pipeline::take_time(Views::View &view) {
    uint64_t ns = 0;
    if (!view.timer.take(ns)) return;
    count_missing(view.late, view.on_demand, ns > no_wait_ns);
    view.late = view.on_demand = 0;
    if (ns <= no_wait_ns) return;
    exposed_ns_ += ns;
    add_time(loader_.counters().exposed, ns);
}

pkv_status Pipeline::acquire(uint32_t index, uint64_t deadline_ns, Turn &turn, pkv_layer_view &view) {
    if (!in_step_) return fail(PKV_ERR_STATE, "no step is under way: pkv_prefetch_step_begin comes first");
    if (index >= layers_.size()) return fail(PKV_ERR_INVALID, "layer %u: the session has %zu", index, layers_.size());
    const uint32_t expected = !any_acquired_ ? 0 : layer_open_ ? layer_ : layer_ + 1;
    if (index < expected) return fail(PKV_ERR_STATE, "layer %u has passed: the next one is %u", index, expected);
    const uint64_t start = monotonic_ns();
    bool changed = false;
    {
        const Lock lock(loader_.mutex);
        if (acquired_ == num_buffers_)
            return fail(PKV_ERR_STATE, "all %u buffers are acquired: pkv_prefetch_layer_release comes first",
                        num_buffers_);
        retire();
        changed = refresh();
        const bool pass_over = index > (ahead() != 0 ? units_[first_ahead()]->index : next_index_);
        if (changed || pass_over) {
            const Position begin = ahead() != 0 ? units_[first_ahead()]->begin : next_begin_;
            plan_anew(step_, index, pass_over ? Position{} : begin);
            changed = true;
        }
    }
    if (changed) settle();
    const bool device = turn.on_device();
    const bool streams = device && !turn.waits();
    const bool words = streams && pool_->device()->facts().waits_on_words != 0;
    uint64_t waits_since = 0, waited = 0, num_slices = 0;
    Fences writes, buffer;       // on pages of the tables; of the buffer
    const Unit *asked = nullptr; // plans change by calls of this thread alone
    {
        const Lock lock(loader_.mutex);
        if (ahead() == 0) extend(1);
        Unit &unit = *units_[first_ahead()];
        asked = &unit;
        for (uint32_t t = 0; device && t < tables_.size(); ++t) {
            const Range range = range_of(unit, t);
            num_slices += range.to - range.from;
            writes |= tables_[t].table->waits();
        }
        buffer = buffer_after_[buffer_of(unit)];
        if (!unit.counted && acquired_at_ns_ != 0) smooth(compute_ns_, start - acquired_at_ns_);
        acquired_at_ns_ = 0;
        count_needs(unit);
        if (!words) count_missing(std::exchange(unit.late_parts, 0), std::exchange(unit.demanded_parts, 0), true);
        if (unit.open != 0 && !words) {
            waiting_ = true;
            waits_since = monotonic_ns();
            loader_.clock().begin_wait(waits_since);
        }
    }
    if (held_since_ns_ != 0) trace::span(loader_.trace_process(), 0, "compute", held_since_ns_, start);
    held_since_ns_ = 0;
    bool ready = true;
    if (waits_since != 0) {
        loader_.poke();
        ready = loader_.wait(deadline_ns, [asked] { return asked->open == 0; });
    }
    Views::View *place = nullptr;
    pkv_status status = PKV_OK;
    if (device && ready) {
        status = streams ? turn.after(writes) : pool_->device()->order().wait(writes);
        if (status == PKV_OK) status = find_view(num_slices, buffer, place);
    }
    const Lock lock(loader_.mutex);
    if (waits_since != 0) {
        const uint64_t now = monotonic_ns();
        loader_.clock().end_wait(now);
        waiting_ = false;
        waited = now - waits_since;
        add_time(loader_.counters().exposed, waited);
        trace::span(loader_.trace_process(), 0, "wait", waits_since, now, {"layer", index, nullptr, 0});
    }
    if (!ready) return fail(PKV_ERR_TIMEOUT, "layer %u: loads are still under way after %" PRIu64 " ns", index, waited);
    PKV_TRY(status);
    Unit &unit = *units_[first_ahead()];
    fill_view(unit, arrays_of(unit, place), view);
    if (unit.open != 0) {
        PKV_TRY(wait_on_word(unit, *place, turn));
    } else {
        count_missing(std::exchange(unit.late_parts, 0), std::exchange(unit.demanded_parts, 0), false);
        note_failures(unit);
    }
    for (const auto &part : unit.parts) loader_.use(*part);
    unit.view = place;
    if (place != nullptr) place->taken = true;
    view.waited_ns = waited;
    ++acquired_;
    ++loader_.counters().ranges;
    layer_ = index;
    layer_open_ = !unit.last;
    any_acquired_ = true;
    adapt_depth();
    if (!off_) extend(depth_);
    if (!off_ || unit.on_word) wake();
    acquired_at_ns_ = held_since_ns_ = monotonic_ns();
    return PKV_OK;
}

/// Sorts the parts of a unit by what had become of them when they were asked for, once.
void Pipeline::count_needs(Unit &unit) {
    if (unit.counted) return;
    unit.counted = true;
    pkv_prefetch_stats &counters = loader_.counters();
    for (auto &part : unit.parts)
        if (part->state == PartState::failed) { // ahead of time: it is worth another try
            auto again = make_part(part->image, unit, part->slot);
            loader_.drop(part);
            part = std::move(again);
            unit.next = 0;
        }
    for (const Entry &entry : unit.entries) {
        tables_[entry.table].needed = true;
        switch (unit.parts[entry.part]->state) {
        case PartState::ready: ++counters.needed, ++counters.on_time; continue;
        case PartState::loading: ++unit.late_parts; break;
        default: ++unit.demanded_parts; break;
        }
        tables_[entry.table].waited = true;
    }
}

/// What was missing when it was asked for counts once it is known whether somebody waited for it.
void Pipeline::count_missing(uint64_t late, uint64_t demanded, bool waited) {
    pkv_prefetch_stats &counters = loader_.counters();
    counters.needed += late + demanded;
    counters.late += waited ? late : 0;
    counters.on_demand += waited ? demanded : 0;
    counters.on_time += waited ? 0 : late + demanded;
}

/// What could not be had is its table's failure.
void Pipeline::note_failures(const Unit &unit) {
    for (const Entry &entry : unit.entries) {
        const Part &part = *unit.parts[entry.part];
        if (part.state == PartState::ready) continue;
        ++loader_.counters().failed;
        StepTable &table = tables_[entry.table];
        const bool lost = part.status != PKV_ERR_TIMEOUT && part.status != PKV_ERR_NO_MEMORY && !part.device_failed;
        if (lost) table.lost_block = std::min(table.lost_block, entry.block);
        if (table.status == PKV_OK || (lost && table.status != PKV_ERR_LOST))
            table.status = lost ? PKV_ERR_LOST : part.status;
    }
}

/// Loads have to begin as long before their use as they take: so many units of compute, and two for times that vary.
void Pipeline::adapt_depth() {
    size_t wanted = num_buffers_;
    if (compute_ns_ > 0 && load_ns_ < compute_ns_ * static_cast<double>(num_buffers_))
        wanted = static_cast<size_t>(std::ceil(load_ns_ / compute_ns_)) + 2;
    depth_ = std::clamp<size_t>(wanted, 2, num_buffers_);
}

/// What is not loaded yet is taken to come: else see end_word().
void Pipeline::fill_view(Unit &unit, const Arrays &arrays, pkv_layer_view &view) {
    const pkv_layer_ref &layer = layers_[unit.index];
    const GroupStaging &staging = staging_[layer.group];
    int32_t *const slices = arrays.slices;
    const int32_t first = staging.map.first(layer.layer), step = staging.map.page_step();
    uint64_t count = 0;
    size_t entry = 0;
    for (uint32_t t = 0; t < tables_.size(); ++t) {
        const StepTable &table = tables_[t];
        const auto [from, to] = range_of(unit, t);
        arrays.indptr[t] = static_cast<int32_t>(count);
        arrays.first_block[t] = from;
        const auto pages = table.table->pages(layer.group);
        for (uint64_t block = from; block < to; ++block) {
            const pkv_page page = pages[block];
            slices[count + block - from] = page == PKV_NO_PAGE ? -1 : first + page * step;
        }
        for (; entry < unit.entries.size() && unit.entries[entry].table == t; ++entry) {
            const Part &part = *unit.parts[unit.entries[entry].part];
            const uint64_t position = count + unit.entries[entry].block - from;
            unit.entries[entry].position = position;
            slices[position] = part.state != PartState::failed ? staging.map.id(part.to_layer, part.page) : -1;
        }
        count += to - from;
    }
    arrays.indptr[tables_.size()] = static_cast<int32_t>(count);
    view.index = unit.index;
    view.group = layer.group;
    view.layer = layer.layer;
    view.buffer = buffer_of(unit);
    view.num_tables = static_cast<uint32_t>(tables_.size());
    view.last = unit.last ? 1 : 0;
    view.num_slices = count;
    view.slices = slices;
    view.indptr = arrays.indptr;
    view.first_block = arrays.first_block;
    view.layout = pool_->layer_layout(layer.group, layer.layer);
    staging.map.set_layout(view.layout);
}

// ---- release and end -----------------------------------------------------------------------------------------------

pkv_status Pipeline::check_release(uint32_t index) const {
    const Lock lock(loader_.mutex);
    if (acquired_ == 0) return fail(PKV_ERR_STATE, "layer %u: nothing is acquired", index);
    const Unit &oldest = *units_[released_];
    if (oldest.index != index)
        return fail(PKV_ERR_STATE, "layer %u: the oldest acquired one is %u", index, oldest.index);
    return PKV_OK;
}

void Pipeline::release(const Fences &work) {
    const uint64_t now = monotonic_ns();
    if (held_since_ns_ != 0)
        trace::span(loader_.trace_process(), 0, "compute", held_since_ns_, now, {"layer", layer_, nullptr, 0});
    const Lock lock(loader_.mutex);
    Unit &unit = *units_[released_];
    if (unit.view != nullptr) {
        unit.waits |= work;
        buffer_after_[buffer_of(unit)] |= unit.waits;
        unit.view->until = unit.waits;
        unit.view->taken = false;
    }
    ++released_;
    --acquired_;
    retire();
    held_since_ns_ = acquired_ != 0 ? now : 0;
    if (off_) return;
    extend(depth_);
    wake();
}

/// Units that are released, and whose loads have ended, are over.
void Pipeline::retire() {
    for (; released_ != 0 && units_.front()->open == 0; --released_) {
        if (units_.front()->late) note_failures(*units_.front());
        recycle(std::move(units_.front()));
        units_.pop_front();
    }
}

void Pipeline::wake() {
    for (size_t i = 0; i < units_.size(); ++i)
        if (units_[i]->next < units_[i]->parts.size()) return loader_.poke();
}

pkv_status Pipeline::end_step(std::span<pkv_status> statuses) {
    if (!in_step_) return fail(PKV_ERR_STATE, "no step is under way");
    pkv_status result = PKV_OK;
    bool changed = false;
    std::vector<std::pair<std::shared_ptr<Table>, uint64_t>> ended; // with the block that each has lost
    ended.reserve(num_tables_);
    {
        const Lock lock(loader_.mutex);
        if (acquired_ != 0) return fail(PKV_ERR_STATE, "layer %u is acquired", units_[released_]->index);
    }
    for (;;) { // loads that streams wait for
        const Unit *oldest = nullptr;
        {
            const Lock lock(loader_.mutex);
            retire();
            if (released_ == 0) break;
            oldest = units_.front().get(); // it stays: this thread alone retires units
        }
        loader_.wait(no_deadline, [oldest] { return oldest->open == 0; });
    }
    {
        const Lock lock(loader_.mutex);
        for (const auto &view : views_.all()) take_time(*view);
        pkv_prefetch_stats &counters = loader_.counters();
        for (size_t i = 0; i < tables_.size(); ++i) {
            StepTable &table = tables_[i];
            counters.requests += table.needed;
            counters.ready_requests += table.needed && !table.waited;
            if (i < statuses.size()) statuses[i] = table.status;
            if (result == PKV_OK) result = table.status;
            ended.emplace_back(std::move(table.table), table.lost_block);
        }
        if (!at_start_of(step_ + 1)) { // layers were left out at the end
            plan_anew(step_ + 1, 0, {});
            changed = true;
        }
        if (!off_) {
            extend(depth_);
            wake();
        }
    }
    if (changed) settle();
    in_step_ = false;
    // The owner's call tells the tables, without the lock.
    for (const auto &[table, block] : ended) {
        if (block == UINT64_MAX || !table->absent().contains(block) || table->check_admitted() != PKV_OK) continue;
        pool_->count(&pkv_pool_stats::lost_blocks, 1);
        table->lose(block);
    }
    if (result != PKV_OK) fail(result, "a table's blocks could not be had: see the statuses");
    return result;
}

void Pipeline::settle() {
    loader_.cancel_dropped();
    loader_.wait_idle();
    {
        const Lock lock(loader_.mutex);
        settling_ = false;
        wake();
    }
}

void Pipeline::cancel() {
    {
        const Lock lock(loader_.mutex);
        if (ahead() != 0) { // they are made again when they are asked for
            const Unit &first = *units_[first_ahead()];
            next_number_ = first.number;
            next_step_ = first.step;
            next_index_ = first.index;
            next_begin_ = first.begin;
        }
        while (ahead() != 0) {
            drop_unit(*units_.back());
            recycle(std::move(units_.back()));
            units_.pop_back();
        }
    }
    settle();
}

void Pipeline::close(const Fences &work) {
    {
        const Lock lock(loader_.mutex);
        for (auto &unit : units_) {
            end_word(*unit);
            buffer_after_[buffer_of(*unit)] |= unit->waits;
            drop_unit(*unit);
        }
        for (Fences &after : buffer_after_) after |= work;
        units_.clear();
        acquired_ = released_ = 0;
        tables_.clear();
    }
    settle();
}

void Pipeline::fill_stats(pkv_prefetch_stats &stats) {
    const Lock lock(loader_.mutex);
    for (const auto &view : views_.all()) take_time(*view);
    stats.exposed = loader_.counters().exposed;
    stats.exposed_ns = std::min(stats.io_ns, stats.exposed_ns + exposed_ns_);
    stats.masked_ns = stats.io_ns - stats.exposed_ns;
    if (stats.io_ns != 0)
        stats.masking_efficiency = static_cast<double>(stats.masked_ns) / static_cast<double>(stats.io_ns);
    stats.depth = off_ ? 0 : depth_;
    stats.staging_pages = 0;
    for (const GroupStaging &staging : staging_) stats.staging_pages += staging.pages.size();
    stats.buffer_slices = staging_.empty() ? 0 : staging_[0].capacity;
}

} // namespace pkv
