// SPDX-License-Identifier: Apache-2.0
#include "directory/asker.h"

#include "core/clock.h"
#include "core/signals.h"
#include "core/wait.h"

#include <algorithm>
#include <sodium.h>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>

namespace pkv::directory {
namespace {

constexpr size_t most_questions = 1024; // that wait
constexpr size_t most_keys = 4096;      // of a round trip
constexpr char members_wanted[] = "7";  // the last index: of so many nodes and one more the entries that end last
constexpr uint64_t bytes_of_key = 1024; // of replies: eight members take about 200
constexpr uint64_t bytes_of_address = 256;
constexpr uint64_t other_bytes = 65536;
constexpr size_t most_known = 4096;
constexpr char longest_record[] = "127"; // the last byte that is read of one

std::string_view text_of(const pkv_redis_reply &reply) { return {reply.text, reply.bytes}; }

} // namespace

Asker::Asker(AskerOptions options) : options_(std::move(options)) {}

Asker::~Asker() {
    if (wake_ >= 0) close(wake_);
}

pkv_status Asker::start() {
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0) return fail(PKV_ERR_LIMIT, "no eventfd for the directory");
    try {
        const BlockedSignals blocked;
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error &error) {
        return fail(PKV_ERR_NO_MEMORY, "a thread for %s: %s", options_.server->label.c_str(), error.what());
    }
    return PKV_OK;
}

void Asker::stop() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
        open_ = false;
    }
    if (wake_ >= 0) (void)eventfd_write(wake_, 1);
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

bool Asker::ask(std::vector<pkv_tier_key> keys, Done done) {
    {
        const std::lock_guard lock(mutex_);
        if (!open_ || questions_.size() >= most_questions) return false;
        questions_.push_back({std::move(keys), std::move(done), {}});
    }
    changed_.notify_one();
    return true;
}

void Asker::give_up(std::deque<Question> &questions) {
    for (Question &question : questions) {
        question.answer = {};
        question.answer.silent = true;
        question.done(std::move(question.answer));
    }
    questions.clear();
}

/// The log hears of a trouble when it is a new one, and when it is over. False, and nothing of it, once the asker is
/// stopped.
bool Asker::note(pkv_status status) {
    {
        const std::lock_guard lock(mutex_);
        open_ = status == PKV_OK && !stop_;
        if (stop_) return false;
    }
    if (status == PKV_OK) {
        if (!trouble_.empty()) log_message(PKV_LOG_INFO, "directory %s: there again", options_.server->label.c_str());
        trouble_.clear();
        return true;
    }
    char why[256] = "";
    copy_last_error(why, sizeof why);
    if (trouble_ != why) log_message(PKV_LOG_WARNING, "directory %s; what it knows is not found until it is back", why);
    trouble_ = why;
    return true;
}

void Asker::run() {
    Pause pause;
    for (;;) {
        try {
            std::unique_ptr<Line> line;
            pkv_status status = Line::open(*options_.server, wake_, monotonic_ns() + options_.connect_ns, line);
            if (note(status) && status == PKV_OK) {
                pause.reset();
                up_.store(true, std::memory_order_release);
                note(serve(*line));
            }
        } catch (const std::bad_alloc &) { // again, a little later; what it was asked ends by its deadlines
        }
        up_.store(false, std::memory_order_release);
        std::deque<Question> left;
        {
            const std::lock_guard lock(mutex_);
            open_ = false;
            left.swap(questions_);
        }
        give_up(left);
        std::unique_lock lock(mutex_);
        wait_until(changed_, lock, monotonic_ns() + pause.next_ns(randombytes_random()), [this] { return stop_; });
        if (stop_) return;
    }
}

/// Answers questions until the connection fails, or the asker is stopped.
pkv_status Asker::serve(Line &line) {
    for (;;) {
        std::deque<Question> questions;
        bool idle = false;
        {
            std::unique_lock lock(mutex_);
            idle = !wait_until(changed_, lock, monotonic_ns() + options_.idle_ns,
                               [this] { return stop_ || !questions_.empty(); });
            if (stop_) return PKV_OK;
            size_t keys = 0;
            while (!questions_.empty() && (questions.empty() || keys + questions_.front().keys.size() <= most_keys)) {
                keys += questions_.front().keys.size();
                questions.push_back(std::move(questions_.front()));
                questions_.pop_front();
            }
        }
        pkv_status status = PKV_OK;
        if (idle) {
            line.add({"PING"});
            status =
                line.run(other_bytes, monotonic_ns() + options_.answer_ns, [](uint64_t, const pkv_redis_reply &) {});
        } else {
            status = answer(line, questions);
        }
        if (status == PKV_OK) continue;
        give_up(questions);
        return status;
    }
}

pkv_status Asker::answer(Line &line, std::deque<Question> &questions) {
    std::vector<Member> members;
    PKV_TRY(ask_members(line, questions, members));
    PKV_TRY(ask_addresses(line, members));
    for (const Member &member : members) {
        const auto at = known_.find(member.id);
        if (at != known_.end() && at->second.node != nullptr)
            member.question->answer.named.push_back({member.key, at->second.node});
    }
    for (Question &question : questions) question.done(std::move(question.answer));
    return PKV_OK;
}

pkv_status Asker::ask_members(Line &line, std::deque<Question> &questions, std::vector<Member> &members) {
    struct Asked {
        Question *question;
        uint32_t key;
    };
    std::vector<Asked> asked;
    for (Question &question : questions)
        for (uint32_t i = 0; i < question.keys.size(); ++i) asked.push_back({&question, i});
    uint64_t bad = 0;
    size_t first = 0; // of the round trip
    const auto reply = [&](uint64_t number, const pkv_redis_reply &said) {
        const Asked &at = asked[first + number];
        const bool wrong_type = said.kind == PKV_REDIS_ERROR && error_word(said) == "WRONGTYPE";
        if (said.kind != PKV_REDIS_LIST && !wrong_type) at.question->answer.unanswered.push_back(at.key);
        bad += wrong_type;
        for (uint64_t i = 0; i < said.num_items; ++i) {
            const pkv_redis_reply &item = said.items[i];
            NodeId id;
            if (item.kind != PKV_REDIS_STRING || item.bytes != id.size()) {
                ++bad;
                continue;
            }
            std::memcpy(id.data(), item.text, id.size());
            if (id != options_.self) members.push_back({at.question, at.key, id});
        }
    };
    pkv_status status = PKV_OK;
    for (; status == PKV_OK && first < asked.size(); first += most_keys) {
        const size_t end = std::min(asked.size(), first + most_keys);
        for (size_t i = first; i < end; ++i)
            line.add(
                {"ZREVRANGE", options_.names->of_image(asked[i].question->keys[asked[i].key]), "0", members_wanted});
        status = line.run(other_bytes + (end - first) * bytes_of_key, monotonic_ns() + options_.answer_ns, reply);
    }
    options_.counters->bad_entries.fetch_add(bad, std::memory_order_relaxed);
    return status;
}

/// Makes known_ know all of these nodes.
pkv_status Asker::ask_addresses(Line &line, const std::vector<Member> &members) {
    const uint64_t now = monotonic_ns();
    forget_old(now);
    std::vector<NodeId> asked;
    for (const Member &member : members) {
        if (known_.size() >= most_known) break; // more than a cluster has: the rest is not named
        if (known_.emplace(member.id, Known{nullptr, now + options_.keep_ns}).second) asked.push_back(member.id);
    }
    if (asked.empty()) return PKV_OK;
    for (const NodeId &id : asked) line.add({"GETRANGE", options_.names->of_node(id), "0", longest_record});
    uint64_t bad = 0;
    const auto reply = [&](uint64_t number, const pkv_redis_reply &said) {
        const NodeId &id = asked[number];
        if (said.kind == PKV_REDIS_STRING && said.bytes == 0) return; // it lives no more
        std::string address;
        if (said.kind == PKV_REDIS_STRING && options_.names->read_record(id, text_of(said), address))
            known_[id].node = std::make_shared<const NodeAt>(NodeAt{id, address});
        else
            ++bad;
    };
    const pkv_status status =
        line.run(other_bytes + asked.size() * bytes_of_address, monotonic_ns() + options_.answer_ns, reply);
    if (status != PKV_OK)
        for (const NodeId &id : asked) known_.erase(id);
    options_.counters->bad_entries.fetch_add(bad, std::memory_order_relaxed);
    return status;
}

void Asker::forget_old(uint64_t now) {
    std::erase_if(known_, [now](const auto &item) { return item.second.until_ns <= now; });
}

} // namespace pkv::directory
