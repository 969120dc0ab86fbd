// SPDX-License-Identifier: Apache-2.0
#include "handover/pulls.h"

#include <system_error>

namespace pkv::handover {

std::shared_ptr<Pulls> Pulls::of(node::Node &node) {
    return std::static_pointer_cast<Pulls>(
        node.work([&]() -> std::shared_ptr<node::NodeWork> { return std::make_shared<Pulls>(node.reader()); }));
}

pkv_status Pulls::begin(PullRequest request, const std::shared_ptr<Op> &op) {
    std::list<Running> fresh(1);
    const std::lock_guard lock(mutex_);
    if (closed_) return fail(PKV_ERR_CLOSED, "the node is being closed");
    std::erase_if(running_, [](const Running &running) { return running.over->load(std::memory_order_acquire); });
    if (running_.size() >= most_pulls) return fail(PKV_ERR_BUSY, "%zu pulls are under way", running_.size());
    if (tools_ == nullptr) {
        auto tools = std::make_shared<PullTools>(*reader_);
        PKV_TRY(tools->slots.create(reader_->fabric));
        tools_ = std::move(tools);
    }
    Running &running = fresh.front();
    auto pull = std::make_shared<Pull>(std::move(request), tools_, op);
    running.pull = pull;
    running.over = std::make_shared<std::atomic<bool>>(false);
    try {
        running.thread = std::thread([own = std::move(pull), over = running.over]() mutable {
            own->run();
            own = nullptr;
            over->store(true, std::memory_order_release);
        });
    } catch (const std::system_error &error) {
        return fail(PKV_ERR_NO_MEMORY, "a thread for a pull: %s", error.what());
    }
    op->on_cancel([weak = running.pull] {
        if (const auto going = weak.lock()) going->stop(PKV_ERR_CANCELLED);
    });
    running_.splice(running_.end(), fresh);
    return PKV_OK;
}

void Pulls::close() {
    std::list<Running> all;
    std::shared_ptr<PullTools> tools;
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        all.swap(running_);
        tools = std::move(tools_);
    }
    for (Running &running : all)
        if (const auto going = running.pull.lock()) going->stop(PKV_ERR_CLOSED);
    all.clear(); // joins them
    if (tools != nullptr) tools->links.close();
}

} // namespace pkv::handover
