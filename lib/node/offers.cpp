// SPDX-License-Identifier: Apache-2.0
#include "node/offers.h"

#include <new>

namespace pkv::node {

pkv_status OfferBook::add(const OfferId &id, std::shared_ptr<Offered> offered) {
    const std::lock_guard lock(mutex_);
    if (closed_) return fail(PKV_ERR_CLOSED, "the node is being closed");
    if (offers_.size() >= most_offers) return fail(PKV_ERR_LIMIT, "the node has %zu offers open", offers_.size());
    if (!offers_.emplace(id, std::move(offered)).second) return fail(PKV_ERR_STATE, "the offer's id is taken");
    return PKV_OK;
}

std::shared_ptr<Offered> OfferBook::find(const OfferId &id) const {
    const std::lock_guard lock(mutex_);
    const auto at = offers_.find(id);
    return at != offers_.end() ? at->second : nullptr;
}

void OfferBook::remove(const OfferId &id) {
    std::shared_ptr<Offered> gone; // what it holds goes after the lock
    const std::lock_guard lock(mutex_);
    const auto at = offers_.find(id);
    if (at == offers_.end()) return;
    gone = std::move(at->second);
    offers_.erase(at);
}

uint64_t OfferBook::size() const {
    const std::lock_guard lock(mutex_);
    return offers_.size();
}

std::vector<std::shared_ptr<Offered>> OfferBook::all() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Offered>> list;
    list.reserve(offers_.size());
    for (const auto &[id, offered] : offers_) list.push_back(offered);
    return list;
}

void OfferBook::tick(uint64_t now_ns) {
    try {
        for (const auto &offered : all()) offered->tick(now_ns);
    } catch (const std::bad_alloc &) {
    } // next time, then
}

void OfferBook::close() {
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
    }
    for (const auto &offered : all()) offered->end(PKV_ERR_CLOSED);
}

} // namespace pkv::node
