// SPDX-License-Identifier: Apache-2.0
// Prompts: a table of the session's own is admitted, its absent blocks are loaded like those of other tables, published, and
// let go of.
#include "core/clock.h"
#include "core/status.h"
#include "core/wait.h"
#include "prefetch/blocks.h"

#include <algorithm>

namespace pkv {
namespace {

constexpr size_t max_prompts = 1024;

} // namespace

bool Blocks::is_prompt(const Table *table) const {
    return std::any_of(prompts_.begin(), prompts_.end(),
                       [&](const auto &prompt) { return prompt->table.get() == table; });
}

pkv_status Blocks::prompt(const prefix::Prompt &prompt, const std::shared_ptr<Op> &op, uint64_t timeout_ns,
                          pkv_match &match) {
    {
        const Lock lock(loader_.mutex);
        if (prompts_.size() >= max_prompts) return fail(PKV_ERR_BUSY, "%zu prompts are under way", prompts_.size());
    }
    const auto item = std::make_shared<Prompt>();
    item->table = Table::make(pool_);
    item->op = op;
    item->deadline_ns = deadline_after(timeout_ns);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.max_match = PKV_MATCH_ALL;
    options.reserve_tokens = 1; // the least: the rest of the prompt is not this table's business
    PKV_TRY(item->table->admit(prompt, options, match, false));
    {
        const Lock lock(loader_.mutex);
        forget_gone();
        Client &client = clients_[item->table.get()];
        client.table = item->table;
        prompts_.push_back(item);
        ++loader_.counters().prompts;
        want_blocks(*item, client);
    }
    settle();
    loader_.poke();
    return PKV_OK;
}

/// Begins to load what the prompt's table lacks.
void Blocks::want_blocks(Prompt &prompt, Client &client) {
    std::vector<Lack> lacks;
    for (const auto &[block, absent] : prompt.table->absent()) list_lacks(*prompt.table, block, absent, lacks);
    prompt.next = 0;
    prompt.parts.reserve(lacks.size());
    for (const Lack &lack : lacks) {
        const auto part = want(*prompt.table, lack, false); // its pages are kept for it: it has one
        if (part == nullptr) continue;
        prompt.parts.push_back(part);
        if (part->state == PartState::idle) client.waiting.push_back(part);
    }
}

bool Blocks::has_work(uint64_t now) {
    for (const auto &prompt : prompts_) {
        if (prompt->claimed) continue;
        while (prompt->next < prompt->parts.size() &&
               (prompt->parts[prompt->next]->ended() || prompt->parts[prompt->next]->state == PartState::dropped))
            ++prompt->next;
        if (prompt->next == prompt->parts.size() || prompt->status != PKV_OK || now >= prompt->deadline_ns) return true;
    }
    return false;
}

uint64_t Blocks::work_by() {
    uint64_t first = no_deadline;
    for (const auto &prompt : prompts_)
        if (!prompt->claimed) first = std::min(first, prompt->deadline_ns);
    return first;
}

/// What a prompt's operation ends with, whose ready blocks were taken. PKV_ERR_BUSY: somebody else has taken some.
pkv_status Blocks::end_of(const Prompt &prompt) {
    if (prompt.table->absent().empty()) return PKV_OK;
    if (prompt.status != PKV_OK) return prompt.status;
    pkv_status status = PKV_ERR_BUSY;
    for (const auto &part : prompt.parts) {
        if (part->state == PartState::idle || part->state == PartState::loading) return PKV_ERR_TIMEOUT;
        if (part->state != PartState::failed) continue;
        if (part->status == PKV_ERR_TIMEOUT || part->status == PKV_ERR_NO_MEMORY || part->device_failed)
            return part->status;
        status = PKV_ERR_LOST;
    }
    return status;
}

/// Ends one prompt after the other whose loads have ended, or whose time is over.
void Blocks::work() {
    for (;;) {
        std::shared_ptr<Prompt> prompt;
        {
            const Lock lock(loader_.mutex);
            const uint64_t now = monotonic_ns();
            for (const auto &item : prompts_) {
                if (item->claimed) continue;
                const bool ended = std::all_of(item->parts.begin(), item->parts.end(), [](const auto &part) {
                    return part->ended() || part->state == PartState::dropped;
                });
                if (!ended && item->status == PKV_OK && now < item->deadline_ns) continue;
                prompt = item;
                prompt->claimed = true;
                break;
            }
        }
        if (prompt == nullptr) return;
        Table &table = *prompt->table;
        take_ready(table, 0, table.num_blocks());
        pkv_status status = PKV_OK;
        bool again = false;
        {
            const Lock lock(loader_.mutex);
            status = end_of(*prompt);
            let_go_of(prompt->parts);
            // What another call took a moment ago may not be published yet, or never be: its image is still there.
            if (status == PKV_ERR_BUSY) {
                want_blocks(*prompt, clients_[prompt->table.get()]);
                again = !prompt->parts.empty();
                status = PKV_ERR_NO_PAGES;
            }
            if (again) {
                prompt->claimed = false;
            } else {
                clients_.erase(prompt->table.get());
                std::erase(prompts_, prompt);
            }
        }
        settle();
        if (again) continue;
        table.clear();
        prompt->table = nullptr; // whoever hears of the end finds no table of ours any more
        prompt->op->free_buffers();
        prompt->op->end_item(0, status);
    }
}

void Blocks::cancel_prompt(const Op &op) {
    {
        const Lock lock(loader_.mutex);
        for (const auto &prompt : prompts_)
            if (prompt->op.get() == &op && prompt->status == PKV_OK) prompt->status = PKV_ERR_CANCELLED;
    }
    loader_.poke();
}

} // namespace pkv
