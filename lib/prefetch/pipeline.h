// SPDX-License-Identifier: Apache-2.0
// Steps over layers. A unit is what one layer_acquire gives: a layer, or a range of one. Units are made in the order in which
// they will be acquired, as far ahead as there are buffers and the look-ahead asks for, past the end of a step into the next
// one; unit n uses buffer n mod the number of buffers. Each buffer has places for a fixed number of slices, in staging pages.
//
// On a device a unit may be acquired, and released, before its loads have ended: the caller's stream waits for a word that is
// set when they have, and what the buffer is loaded with next comes after the work that its release names.
#pragma once

#include "prefetch/images.h"
#include "prefetch/loader.h"
#include "prefetch/slices.h"
#include "prefetch/views.h"

#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace pkv {

class Pipeline : public PartSource {
  public:
    Pipeline(std::shared_ptr<Pool> pool, Loader &loader, KnownImages &images);
    ~Pipeline() override;

    /// Takes the staging pages.
    pkv_status create(const pkv_prefetch_options &options, std::vector<pkv_layer_ref> layers,
                      std::span<const uint64_t> staging_pages);
    uint64_t slice_bytes() const; ///< of the largest slice with its header

    pkv_status begin_step(std::vector<std::shared_ptr<Table>> tables, std::span<const uint64_t> num_tokens,
                          std::span<pkv_status> statuses);
    /// On a device, what comes in the turn's stream from now on may read the view.
    pkv_status acquire(uint32_t index, uint64_t deadline_ns, Turn &turn, pkv_layer_view &view);
    pkv_status check_release(uint32_t index) const;
    /// On a device `work` may still read the view.
    void release(const Fences &work);
    pkv_status end_step(std::span<pkv_status> statuses);
    bool in_step() const { return in_step_; }
    uint32_t num_tables() const { return num_tables_; } ///< of the last step

    /// Drops what is loaded ahead.
    void cancel();
    /// Drops everything, views too; on a device `work` may still read them.
    void close(const Fences &work);
    void fill_stats(pkv_prefetch_stats &stats); // any thread

    std::shared_ptr<Part> next(bool urgent) override PKV_REQUIRES(loader_.mutex);

  private:
    /// A block of a table in the step, or the end: (number of tables, 0).
    struct Position {
        uint32_t table = 0;
        uint64_t block = 0;
        bool operator==(const Position &) const = default;
    };
    struct AbsentImages {
        uint64_t block = 0;
        std::array<std::shared_ptr<StoredImage>, PKV_MAX_GROUPS> images; ///< nullptr: not absent in this group
    };
    struct StepTable {
        std::shared_ptr<Table> table; ///< in a step only
        const Table *known = nullptr; ///< whose blocks these are
        Table::ResidencyMark mark;
        uint64_t num_blocks = 0;
        bool cut = false;                 ///< there are absent blocks behind num_blocks
        std::vector<AbsentImages> absent; ///< ascending
        pkv_status status = PKV_OK;
        uint64_t lost_block = UINT64_MAX;
        bool needed = false; ///< absent parts in this step
        bool waited = false; ///< and not all of them were on time
    };
    /// An absent block in a unit.
    struct Entry {
        uint32_t table;
        uint64_t block;
        uint32_t part;
        uint64_t position = 0; ///< in the view
    };
    struct Unit {
        uint64_t number = 0;
        uint64_t step = 0;
        uint32_t index = 0; ///< of the layer in order
        Position begin;
        Position end;
        bool last = true; ///< of its layer
        std::vector<Entry> entries;
        std::vector<std::shared_ptr<Part>> parts;
        size_t next = 0;   ///< parts before this one are begun
        uint64_t open = 0; ///< parts that have not ended
        uint64_t begun_ns = 0;
        bool counted = false;                        ///< asked for
        uint64_t late_parts = 0, demanded_parts = 0; ///< as they were then
        // On a device:
        Views::View *view = nullptr;
        bool on_word = false; ///< a stream waits for the view's word
        bool late = false;    ///< it was acquired before its loads had ended
        Fences waits;         ///< such a wait
    };
    struct Range {
        uint64_t from, to;
    };
    struct Arrays {
        int32_t *slices;
        int32_t *indptr;
        uint64_t *first_block;
    };
    struct GroupStaging {
        std::vector<pkv_page> pages;
        SliceMap map;
        uint64_t capacity = 0; ///< slices of a buffer
    };

    uint32_t group_of(uint32_t index) const { return layers_[index].group; }
    Position end_position() const PKV_REQUIRES(loader_.mutex) { return {static_cast<uint32_t>(tables_.size()), 0}; }
    void place(Part &part, uint32_t buffer) const;
    void look_at(StepTable &table) PKV_REQUIRES(loader_.mutex);
    static bool still_holds(const StepTable &table, const Table &now, uint64_t num_blocks);
    bool refresh() PKV_REQUIRES(loader_.mutex);
    bool at_start_of(uint64_t step) const PKV_REQUIRES(loader_.mutex);
    /// Parts that were dropped may still be put in place: nothing is begun until that is over.
    void settle() PKV_EXCLUDES(loader_.mutex);
    void plan_anew(uint64_t step, uint32_t index, Position begin) PKV_REQUIRES(loader_.mutex);
    void extend(size_t ahead) PKV_REQUIRES(loader_.mutex);
    void add_unit(Unit *old) PKV_REQUIRES(loader_.mutex);
    void fill_unit(Unit &unit, Unit *old) PKV_REQUIRES(loader_.mutex);
    std::shared_ptr<Part> make_part(const std::shared_ptr<StoredImage> &image, Unit &unit, uint32_t slot)
        PKV_REQUIRES(loader_.mutex);
    void bind(Part &part, Unit &unit) PKV_REQUIRES(loader_.mutex);
    void drop_unit(Unit &unit) PKV_REQUIRES(loader_.mutex);
    void recycle(std::unique_ptr<Unit> unit);
    size_t first_ahead() const PKV_REQUIRES(loader_.mutex) { return released_ + acquired_; }
    size_t ahead() const PKV_REQUIRES(loader_.mutex) { return units_.size() - first_ahead(); }
    uint32_t buffer_of(const Unit &unit) const { return static_cast<uint32_t>(unit.number % num_buffers_); }
    Range range_of(const Unit &unit, uint32_t table) const PKV_REQUIRES(loader_.mutex);
    Arrays arrays_of(const Unit &unit, Views::View *view);
    pkv_status check_writable(const void *array, const char *what) const;
    pkv_status find_view(uint64_t slices, const Fences &buffer, Views::View *&view);
    pkv_status wait_on_word(Unit &unit, Views::View &view, Turn &turn) PKV_REQUIRES(loader_.mutex);
    void end_word(Unit &unit) PKV_REQUIRES(loader_.mutex);
    void retire() PKV_REQUIRES(loader_.mutex);
    void take_time(Views::View &view) PKV_REQUIRES(loader_.mutex);
    void count_needs(Unit &unit) PKV_REQUIRES(loader_.mutex);
    void count_missing(uint64_t late, uint64_t demanded, bool waited) PKV_REQUIRES(loader_.mutex);
    void note_failures(const Unit &unit) PKV_REQUIRES(loader_.mutex);
    void wake() PKV_REQUIRES(loader_.mutex); ///< the loader's thread, if there is something to begin
    void adapt_depth() PKV_REQUIRES(loader_.mutex);
    void fill_view(Unit &unit, const Arrays &arrays, pkv_layer_view &view) PKV_REQUIRES(loader_.mutex);
    pkv_status check_room(std::span<const StepTable> tables) const;
    uint64_t absent_in(const StepTable &table, uint32_t group) const;

    std::shared_ptr<Pool> pool_;
    Loader &loader_;
    KnownImages &images_;
    // Fixed after create():
    std::vector<pkv_layer_ref> layers_;
    std::vector<GroupStaging> staging_;
    uint32_t num_buffers_ = 4;
    uint32_t max_tables_ = 0;
    uint64_t max_slices_ = 0;
    bool off_ = false;
    bool whole_layers_ = false;
    VirtualArray<int32_t> own_slices_;
    VirtualArray<int32_t> own_indptr_;
    VirtualArray<uint64_t> first_blocks_;
    int32_t *slices_ = nullptr; ///< on a device those of the caller, or nullptr
    int32_t *indptr_ = nullptr;
    Views views_; // on a device; which are taken is the caller's thread's to know

    // The caller's thread alone:
    bool in_step_ = false;
    uint32_t num_tables_ = 0;
    uint64_t step_ = 0;
    uint32_t layer_ = 0;        ///< index of the last range acquired in this step
    bool layer_open_ = false;   ///< it was not the last one of its layer
    bool any_acquired_ = false; ///< in this step
    uint64_t acquired_at_ns_ = 0;
    uint64_t held_since_ns_ = 0; ///< for traces: compute began

    std::vector<StepTable> tables_ PKV_GUARDED_BY(loader_.mutex);
    // Those that are released with loads under way, which there are on devices alone; those that are acquired; others.
    std::deque<std::unique_ptr<Unit>> units_ PKV_GUARDED_BY(loader_.mutex);
    size_t released_ PKV_GUARDED_BY(loader_.mutex) = 0;
    size_t acquired_ PKV_GUARDED_BY(loader_.mutex) = 0;
    std::vector<Fences> buffer_after_ PKV_GUARDED_BY(loader_.mutex); // what each buffer is loaded after
    uint64_t exposed_ns_ PKV_GUARDED_BY(loader_.mutex) = 0;          // waits of streams
    uint64_t next_number_ PKV_GUARDED_BY(loader_.mutex) = 0;
    // Where the next unit begins.
    uint64_t next_step_ PKV_GUARDED_BY(loader_.mutex) = 0;
    uint32_t next_index_ PKV_GUARDED_BY(loader_.mutex) = 0;
    Position next_begin_ PKV_GUARDED_BY(loader_.mutex);
    bool settling_ PKV_GUARDED_BY(loader_.mutex) = false;
    bool waiting_ PKV_GUARDED_BY(loader_.mutex) = false; // for the first unit that is not acquired
    uint64_t marks_ PKV_GUARDED_BY(loader_.mutex) = 0;   // of units, for StoredImage::unit
    size_t depth_ PKV_GUARDED_BY(loader_.mutex) = 2;
    double compute_ns_ PKV_GUARDED_BY(loader_.mutex) = 0; // of a unit, smoothed
    double load_ns_ PKV_GUARDED_BY(loader_.mutex) = 0;
    std::vector<std::unique_ptr<Unit>> spare_;
    std::vector<std::shared_ptr<StoredImage>> fresh_; // scratch
};

} // namespace pkv
