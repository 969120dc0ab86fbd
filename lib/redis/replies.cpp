// SPDX-License-Identifier: Apache-2.0
#include "redis/replies.h"

#include <memory>

namespace pkv::redis {
namespace {

int32_t kind_of(int type) {
    switch (type) {
    case REDIS_REPLY_STATUS: return PKV_REDIS_STATUS;
    case REDIS_REPLY_ERROR: return PKV_REDIS_ERROR;
    case REDIS_REPLY_STRING: return PKV_REDIS_STRING;
    default: return PKV_REDIS_OTHER;
    }
}

} // namespace

/// A reply, or an item of the list that it belongs to; nullptr, at which the parser gives up, for an item of an item.
/// For items the parser gets their list's address: it needs to tell that one from nullptr, no more.
template <class Fill> void *Reply::make(const redisReadTask *task, Fill fill) noexcept {
    try {
        const int32_t kind = kind_of(task->type);
        if (task->parent == nullptr) {
            auto reply = std::make_unique<Reply>();
            reply->value_.kind = kind;
            fill(reply->value_);
            return reply.release();
        }
        if (task->parent->parent != nullptr) return nullptr;
        auto *const list = static_cast<Reply *>(task->parent->obj);
        Value item;
        item.kind = kind;
        fill(item);
        list->items_.push_back(std::move(item));
        return list;
    } catch (...) {
        return nullptr;
    }
}

redisReplyObjectFunctions *Reply::functions() {
    static redisReplyObjectFunctions functions = [] {
        redisReplyObjectFunctions made{};
        made.createString = [](const redisReadTask *task, char *text, size_t bytes) {
            return make(task, [&](Value &value) { value.text.assign(text, bytes); });
        };
        made.createArray = [](const redisReadTask *task, auto) -> void * { // the size's type differs between releases
            if (task->type != REDIS_REPLY_ARRAY || task->parent != nullptr) return nullptr;
            return make(task, [](Value &value) { value.kind = PKV_REDIS_LIST; });
        };
        made.createInteger = [](const redisReadTask *task, long long number) {
            return make(task, [&](Value &value) {
                value.kind = PKV_REDIS_NUMBER;
                value.number = number;
            });
        };
        made.createNil = [](const redisReadTask *task) { // announced as a text or a list
            return make(task, [](Value &value) { value.kind = PKV_REDIS_NIL; });
        };
#if HIREDIS_MAJOR >= 1
        made.createDouble = [](const redisReadTask *task, double, char *, size_t) {
            return make(task, [](Value &) {});
        };
        made.createBool = [](const redisReadTask *task, int) { return make(task, [](Value &) {}); };
#endif
        made.freeObject = [](void *reply) { delete static_cast<Reply *>(reply); };
        return made;
    }();
    return &functions;
}

pkv_redis_reply Reply::view_of(const Value &value) {
    pkv_redis_reply view{};
    view.kind = value.kind;
    view.text = value.text.data();
    view.bytes = value.text.size();
    view.number = value.number;
    return view;
}

const pkv_redis_reply &Reply::view() {
    item_views_.clear();
    item_views_.reserve(items_.size());
    for (const Value &item : items_) item_views_.push_back(view_of(item));
    view_ = view_of(value_);
    view_.items = item_views_.data();
    view_.num_items = item_views_.size();
    return view_;
}

} // namespace pkv::redis
