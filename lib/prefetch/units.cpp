// SPDX-License-Identifier: Apache-2.0
// How steps are cut into units, and what becomes of those made ahead when a plan changes.
#include "core/clock.h"
#include "prefetch/pipeline.h"

#include <algorithm>

namespace pkv {

/// Where a slot of a buffer lies in the staging pages.
void Pipeline::place(Part &part, uint32_t buffer) const {
    const GroupStaging &staging = staging_[part.image->group];
    const uint64_t slot = buffer * staging.capacity + part.slot;
    if (staging.map.covers_all_layers()) {
        const uint32_t layers = pool_->geometry(part.image->group).num_layers;
        part.page = staging.pages[slot / layers];
        part.to_layer = static_cast<uint32_t>(slot % layers);
    } else {
        part.page = staging.pages[slot];
        part.to_layer = part.layer;
    }
}

std::shared_ptr<Part> Pipeline::make_part(const std::shared_ptr<StoredImage> &image, Unit &unit, uint32_t slot) {
    auto part = std::make_shared<Part>();
    part->image = image;
    part->layer = layers_[unit.index].layer;
    part->slot = slot;
    part->wanted_ns = monotonic_ns();
    part->after = buffer_after_[buffer_of(unit)];
    place(*part, buffer_of(unit));
    bind(*part, unit);
    return part;
}

/// The unit hears of the part's end.
void Pipeline::bind(Part &part, Unit &unit) {
    ++unit.open;
    part.on_end = [this, &unit, ended = &part]() PKV_REQUIRES(loader_.mutex) {
        if (unit.late) loader_.use(*ended);
        if (--unit.open != 0) return;
        end_word(unit);
        const uint64_t took = monotonic_ns() - unit.begun_ns;
        load_ns_ = load_ns_ == 0 ? static_cast<double>(took) : load_ns_ + 0.25 * (static_cast<double>(took) - load_ns_);
    };
}

/// Lists what the unit needs, from its begin up to what its buffer can hold. Parts of `old`, which was to be in its place, are
/// taken over where they are still needed, and dropped otherwise.
void Pipeline::fill_unit(Unit &unit, Unit *old) {
    const pkv_layer_ref &layer = layers_[unit.index];
    const uint64_t capacity = staging_[layer.group].capacity;
    const uint64_t mark = ++marks_;
    std::vector<bool> used;
    if (old != nullptr && old->number == unit.number && layers_[old->index].group == layer.group &&
        layers_[old->index].layer == layer.layer) {
        used.resize(capacity);
        for (const auto &part : old->parts)
            if (part->state != PartState::failed) part->image->carried = part;
    }
    unit.end = end_position();
    unit.last = true;
    for (uint32_t t = unit.begin.table; t < tables_.size() && unit.last; ++t) {
        const StepTable &table = tables_[t];
        auto at = table.absent.begin();
        if (t == unit.begin.table)
            at = std::lower_bound(at, table.absent.end(), unit.begin.block,
                                  [](const AbsentImages &item, uint64_t block) { return item.block < block; });
        for (; at != table.absent.end(); ++at) {
            const auto &image = at->images[layer.group];
            if (image == nullptr) continue;
            if (image->unit != mark) {
                if (unit.parts.size() == capacity) {
                    unit.end = {t, at->block};
                    unit.last = false;
                    break;
                }
                image->unit = mark;
                image->unit_part = static_cast<uint32_t>(unit.parts.size());
                if (image->carried != nullptr) {
                    used[image->carried->slot] = true;
                    unit.parts.push_back(std::move(image->carried));
                    image->carried = nullptr;
                    if (!unit.parts.back()->ended()) bind(*unit.parts.back(), unit);
                } else {
                    unit.parts.push_back(nullptr);
                    fresh_.push_back(image);
                }
            }
            unit.entries.push_back({t, at->block, image->unit_part});
        }
    }
    uint32_t slot = 0;
    size_t next_fresh = 0;
    for (auto &part : unit.parts) {
        if (part != nullptr) continue;
        while (slot < used.size() && used[slot]) ++slot;
        part = make_part(fresh_[next_fresh++], unit, slot++);
    }
    fresh_.clear();
    if (old == nullptr) return;
    if (old->step == unit.step && old->index == unit.index && old->begin == unit.begin) {
        unit.begun_ns = old->begun_ns;
        unit.counted = old->counted;
    }
    for (auto &part : old->parts) {
        if (part == nullptr) continue;
        const bool taken = part->image->unit == mark && unit.parts[part->image->unit_part] == part;
        part->image->carried = nullptr;
        if (taken) continue;
        settling_ = settling_ || part->busy != 0;
        loader_.drop(part);
    }
    old->parts.clear();
}

void Pipeline::add_unit(Unit *old) {
    std::unique_ptr<Unit> unit;
    if (!spare_.empty()) {
        unit = std::move(spare_.back());
        spare_.pop_back();
    } else {
        unit = std::make_unique<Unit>();
    }
    unit->number = next_number_++;
    unit->step = next_step_;
    unit->index = next_index_;
    unit->begin = next_begin_;
    fill_unit(*unit, old);
    next_begin_ = unit->last ? Position{} : unit->end;
    if (unit->last && ++next_index_ == layers_.size()) {
        next_index_ = 0;
        ++next_step_;
    }
    units_.push_back(std::move(unit));
}

/// Makes units until so many are ahead of the caller, not past the end of the next step: a model with fewer layers than there
/// are buffers would load the same slices twice.
void Pipeline::extend(size_t ahead_wanted) {
    while (ahead() < ahead_wanted && units_.size() - released_ < num_buffers_ && next_step_ <= step_ + 1)
        add_unit(nullptr);
}

void Pipeline::drop_unit(Unit &unit) {
    for (const auto &part : unit.parts) {
        settling_ = settling_ || part->busy != 0;
        loader_.drop(part);
    }
    unit.parts.clear();
    unit.entries.clear();
    unit.open = 0;
}

void Pipeline::recycle(std::unique_ptr<Unit> unit) {
    unit->entries.clear();
    unit->parts.clear();
    unit->next = 0;
    unit->open = 0;
    unit->begun_ns = 0;
    unit->counted = false;
    unit->late_parts = unit->demanded_parts = 0;
    unit->view = nullptr;
    unit->on_word = unit->late = false;
    unit->waits = {};
    spare_.push_back(std::move(unit));
}

/// The units that are not acquired begin at another place, or are of other blocks: they are made anew, with what is still
/// needed of those there were.
void Pipeline::plan_anew(uint64_t step, uint32_t index, Position begin) {
    std::deque<std::unique_ptr<Unit>> old;
    while (ahead() != 0) {
        old.push_front(std::move(units_.back()));
        units_.pop_back();
    }
    if (!old.empty()) next_number_ = old.front()->number;
    next_step_ = step;
    next_index_ = index;
    next_begin_ = begin;
    for (auto &unit : old) {
        add_unit(unit.get());
        recycle(std::move(unit));
    }
}

std::shared_ptr<Part> Pipeline::next(bool urgent) {
    if (settling_) return nullptr;
    const size_t asked = first_ahead() + waiting_; // somebody waits for those before
    for (size_t i = 0; i < (urgent ? std::min(asked, units_.size()) : units_.size()); ++i) {
        Unit &unit = *units_[i];
        while (unit.next < unit.parts.size() && unit.parts[unit.next]->state != PartState::idle) ++unit.next;
        if (unit.next == unit.parts.size() || !loader_.may_begin(*unit.parts[unit.next])) continue;
        if (unit.begun_ns == 0) unit.begun_ns = monotonic_ns();
        return unit.parts[unit.next];
    }
    return nullptr;
}

} // namespace pkv
