// SPDX-License-Identifier: Apache-2.0
#include "handover/links.h"

#include "core/clock.h"

#include <algorithm>
#include <system_error>
#include <vector>

namespace pkv::handover {
namespace {

constexpr uint64_t look_again_ns = 50'000'000;

} // namespace

Links::Links(const node::Reader &reader) : reader_(std::make_shared<node::Reader>(reader)) {
    reader_->hello.shapes.clear();
}

pkv_status Links::get(const std::string &address, uint64_t deadline_ns, const std::function<bool()> &stopped,
                      Link &link) {
    std::vector<std::shared_ptr<node::Peer>> gone;
    std::shared_ptr<node::Peer> peer;
    {
        const std::lock_guard lock(mutex_);
        if (closed_) return fail(PKV_ERR_CLOSED, "the node is being closed");
        std::erase_if(peers_, [&](auto &item) {
            if (!item.second->over()) return false;
            gone.push_back(item.second);
            return true;
        });
        auto &entry = peers_[address];
        if (entry == nullptr) {
            auto fresh = std::make_shared<node::Peer>(reader_, address, true);
            try {
                fresh->start();
            } catch (const std::system_error &error) {
                peers_.erase(address);
                return fail(PKV_ERR_NO_MEMORY, "a thread for %s: %s", address.c_str(), error.what());
            }
            entry = std::move(fresh);
        }
        peer = entry;
    }
    for (const auto &old : gone) old->stop(); // their threads have ended, or are about to
    Link used(peer);
    for (;;) {
        const pkv_status status = peer->wait_connected(std::min(deadline_ns, monotonic_ns() + look_again_ns));
        if (status == PKV_OK) break;
        if (status != PKV_ERR_TIMEOUT || monotonic_ns() >= deadline_ns || stopped() || peer->over()) return status;
    }
    link = std::move(used);
    return PKV_OK;
}

void Links::close() {
    std::map<std::string, std::shared_ptr<node::Peer>> peers;
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        peers.swap(peers_);
    }
    for (const auto &[address, peer] : peers) peer->stop();
}

} // namespace pkv::handover
