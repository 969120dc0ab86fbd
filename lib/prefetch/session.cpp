// SPDX-License-Identifier: Apache-2.0
#include "prefetch/session.h"

#include "core/status.h"

#include <algorithm>
#include <system_error>

namespace pkv {
namespace {

constexpr uint64_t default_bytes_in_flight = uint64_t{32} << 20;
constexpr uint64_t default_timeout_ns = 30'000'000'000;
constexpr uint64_t max_entries = uint64_t{1} << 31;

template <class T> void set_default(T &value, T otherwise) {
    if (value == 0) value = otherwise;
}

pkv_prefetch_options with_defaults(const Pool &pool, pkv_prefetch_options options) {
    uint64_t most_pages = 0;
    for (uint32_t group = 0; group < pool.num_groups(); ++group)
        most_pages = std::max(most_pages, pool.geometry(group).num_pages);
    set_default<uint64_t>(options.max_lookahead, 64);
    set_default(options.num_buffers, 4u);
    set_default(options.max_tables, 256u);
    set_default(options.max_slices, std::clamp<uint64_t>(4 * most_pages, 65536, max_entries - 1));
    set_default(options.max_bytes_in_flight, default_bytes_in_flight);
    set_default(options.load_timeout_ns, default_timeout_ns);
    return options;
}

Loader::Limits limits_of(const Pool &pool, const pkv_prefetch_options &options) {
    uint64_t slice = PKV_IMAGE_ALIGNMENT;
    for (uint32_t group = 0; group < pool.num_groups(); ++group) {
        const ImageFormat &format = pool.group(group).image;
        slice = std::max(slice, format.header_bytes() + format.slice_stride());
    }
    return {options.max_bytes_in_flight, slice, options.load_timeout_ns};
}

} // namespace

Session::Session(std::shared_ptr<Pool> pool, const pkv_prefetch_options &options)
    : pool_(std::move(pool)), images_(*pool_), loader_(pool_, limits_of(*pool_, options)),
      pipeline_(pool_, loader_, images_), blocks_(pool_, loader_, images_, options) {}

Session::~Session() { close(); }

pkv_status Session::create(std::shared_ptr<Pool> pool, const pkv_prefetch_options &given,
                           std::vector<pkv_layer_ref> layers, std::vector<uint64_t> staging_pages,
                           std::shared_ptr<Session> &session) {
    if (pool->tiers() == nullptr) return fail(PKV_ERR_STATE, "the pool has no tiers: there is nothing to load from");
    const pkv_prefetch_options options = with_defaults(*pool, given);
    if (options.policy < PKV_PREDICT_SEQUENTIAL || options.policy > PKV_PREDICT_HINTED)
        return fail(PKV_ERR_INVALID, "policy is %d", options.policy);
    if (options.num_buffers < 2 || options.num_buffers > PKV_PREFETCH_MAX_BUFFERS)
        return fail(PKV_ERR_INVALID, "num_buffers is %u, not 2 .. %d", options.num_buffers, PKV_PREFETCH_MAX_BUFFERS);
    if (options.max_tables > 65536) return fail(PKV_ERR_LIMIT, "max_tables is %u, more than 65536", options.max_tables);
    if (options.max_slices >= max_entries)
        return fail(PKV_ERR_LIMIT, "max_slices is %llu, not below 2^31",
                    static_cast<unsigned long long>(options.max_slices));
    if (layers.empty())
        for (uint32_t group = 0; group < pool->num_groups(); ++group)
            for (uint32_t layer = 0; layer < pool->geometry(group).num_layers; ++layer)
                layers.push_back({group, layer});
    for (size_t i = 0; i < layers.size(); ++i) {
        PKV_TRY(pool->check_group(layers[i].group));
        PKV_TRY(pool->check_layer(layers[i].group, layers[i].layer));
        for (size_t j = 0; j < i; ++j)
            if (layers[j].group == layers[i].group && layers[j].layer == layers[i].layer)
                return fail(PKV_ERR_INVALID, "layers[%zu] and [%zu] are both layer %u of group %u", j, i,
                            layers[i].layer, layers[i].group);
    }
    staging_pages.resize(pool->num_groups());
    for (uint32_t group = 0; group < pool->num_groups(); ++group) {
        const uint64_t pages = pool->geometry(group).num_pages;
        set_default<uint64_t>(staging_pages[group],
                              std::min(pages, std::max<uint64_t>(pages / 8, options.num_buffers)));
        if (staging_pages[group] > pages)
            return fail(PKV_ERR_NO_PAGES, "staging_pages[%u] is %llu, and the group has %llu pages", group,
                        static_cast<unsigned long long>(staging_pages[group]), static_cast<unsigned long long>(pages));
    }
    auto fresh = std::make_shared<Session>(pool, options);
    PKV_TRY(fresh->pipeline_.create(options, std::move(layers), staging_pages));
    try {
        PKV_TRY(fresh->loader_.start({&fresh->pipeline_, &fresh->blocks_}));
    } catch (const std::system_error &error) {
        return fail(PKV_ERR_NO_MEMORY, "a thread for the session: %s", error.what());
    }
    session = std::move(fresh);
    return PKV_OK;
}

pkv_status Session::check_open() const {
    if (pool_->closed()) return fail(PKV_ERR_CLOSED, "the session's pool was destroyed");
    return PKV_OK;
}

pkv_status Session::check_table(const Table &table) const {
    if (&table.pool() != pool_.get()) return fail(PKV_ERR_INVALID, "the table is of another pool than the session");
    return PKV_OK;
}

pkv_status Session::check_tables(std::span<const std::shared_ptr<Table>> tables) const {
    for (const auto &table : tables) PKV_TRY(check_table(*table));
    if (tables.size() < 2) return PKV_OK;
    std::vector<const Table *> sorted;
    for (const auto &table : tables) sorted.push_back(table.get());
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
        return fail(PKV_ERR_INVALID, "a table is listed twice");
    return PKV_OK;
}

pkv_status Session::prompt(const prefix::Prompt &prompt, const std::shared_ptr<Op> &op, uint64_t timeout_ns,
                           pkv_match &match) {
    op->on_cancel([weak = weak_from_this(), weak_op = std::weak_ptr<Op>(op)] {
        const auto session = weak.lock();
        const auto cancelled = weak_op.lock();
        if (session != nullptr && cancelled != nullptr) session->blocks_.cancel_prompt(*cancelled);
    });
    const pkv_status status = blocks_.prompt(prompt, op, timeout_ns, match);
    if (status != PKV_OK) op->on_cancel({});
    return status;
}

void Session::cancel() {
    pipeline_.cancel();
    blocks_.cancel();
}

void Session::close(const Fences &work) {
    if (closed_) return;
    closed_ = true;
    blocks_.cancel();
    pipeline_.close(work);
    loader_.stop();
}

void Session::stats(pkv_prefetch_stats &out) {
    loader_.fill_stats(out);
    pipeline_.fill_stats(out);
    blocks_.fill_stats(out);
}

} // namespace pkv
