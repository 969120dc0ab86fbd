// SPDX-License-Identifier: Apache-2.0
// What hiredis' parser makes of a server's bytes: replies that grow as bytes arrive. hiredis' own replies take memory
// for all elements of a list when it is announced, which a hostile server does with a few bytes.
#pragma once

#include "directory/redis_table.h"

#include <hiredis/hiredis.h>

#include <string>
#include <vector>

namespace pkv::redis {

class Reply {
  public:
    /// For redisContext.reader->fn; replies are Reply then.
    static redisReplyObjectFunctions *functions();

    /// As the table hands it out, valid as long as this is.
    const pkv_redis_reply &view();

  private:
    struct Value {
        int32_t kind = PKV_REDIS_OTHER;
        int64_t number = 0;
        std::string text;
    };
    template <class Fill> static void *make(const redisReadTask *task, Fill fill) noexcept;
    static pkv_redis_reply view_of(const Value &value);

    Value value_;
    std::vector<Value> items_;
    std::vector<pkv_redis_reply> item_views_;
    pkv_redis_reply view_{};
};

} // namespace pkv::redis
