// SPDX-License-Identifier: Apache-2.0
// batch.h: checks of handles and structs; the work is in table/batch.cpp.
#include "table/batch.h"

#include "capi/boundary.h"
#include "device/turn.h"

#include <optional>
#include <vector>

using pkv::Batch;
using pkv::boundary;
using pkv::check_array;
using pkv::not_null;
using pkv::Pin;
using pkv::Pool;

namespace {

/// A batch for a call: an open handle whose pool is open, and stays so, for bytes of the caller's, until the call leaves.
class BatchCall {
  public:
    pkv_status acquire(pkv_batch *batch) {
        PKV_TRY(pin_.acquire(batch));
        in_use_.emplace(pin_->pool());
        return pin_->check_open();
    }
    Batch *operator->() const { return &*pin_; }

  private:
    Pin<Batch> pin_;
    std::optional<Pool::BytesInUse> in_use_; // ends before the pin
};

pkv_status read_arrays(const pkv_batch_options &options, std::vector<pkv_batch_arrays> &arrays) {
    if (options.num_arrays > PKV_MAX_GROUPS)
        return pkv::fail(PKV_ERR_LIMIT, "num_arrays is %u, more than %d", options.num_arrays, PKV_MAX_GROUPS);
    if (options.num_arrays != 0) PKV_TRY(not_null(options.arrays, "arrays"));
    return pkv::read_struct_array(options.arrays, options.num_arrays, arrays, "arrays");
}

} // namespace

extern "C" {

pkv_status pkv_batch_create(pkv_pool *pool, const pkv_batch_options *options, pkv_batch **batch) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        pkv_batch_options known;
        PKV_TRY(pkv::read_struct(options, known, "options"));
        PKV_TRY(not_null(batch, "batch"));
        std::vector<pkv_batch_arrays> arrays;
        PKV_TRY(read_arrays(known, arrays));
        std::shared_ptr<Batch> fresh;
        PKV_TRY(Batch::create(pin->shared_from_this(), known, arrays, fresh));
        return pkv::hand_out(std::move(fresh), batch);
    });
}

pkv_status pkv_batch_destroy(pkv_batch *batch) {
    return boundary([&] {
        Pin<Batch> pin;
        PKV_TRY(pin.acquire(batch));
        return pin.close();
    });
}

pkv_status pkv_batch_reserve(pkv_batch *batch, uint32_t num_tables, pkv_table *const *tables, const uint32_t *num_new,
                             pkv_status *statuses) {
    return boundary([&] {
        BatchCall call;
        PKV_TRY(call.acquire(batch));
        PKV_TRY(check_array(tables, num_tables, "tables"));
        PKV_TRY(check_array(num_new, num_tables, "num_new"));
        return call->reserve({tables, num_tables}, num_new, statuses);
    });
}

pkv_status pkv_batch_set_tokens(pkv_batch *batch, uint64_t num_tokens, const pkv_token *tokens, pkv_status *statuses) {
    return boundary([&] {
        BatchCall call;
        PKV_TRY(call.acquire(batch));
        PKV_TRY(check_array(tokens, num_tokens, "tokens"));
        return call->set_tokens({tokens, num_tokens}, statuses);
    });
}

pkv_status pkv_batch_write(pkv_batch *batch, uint32_t group, uint32_t layer, const pkv_tensor *k, const pkv_tensor *v,
                           const pkv_sync *sync) {
    return boundary([&] {
        BatchCall call;
        PKV_TRY(call.acquire(batch));
        PKV_TRY(call->pool().check_layer(group, layer));
        pkv::Turn turn;
        PKV_TRY(turn.begin_work(call->pool().device(), sync));
        PKV_TRY(call->write(group, layer, k, v, turn));
        return turn.end();
    });
}

pkv_status pkv_batch_gather(pkv_batch *batch, uint32_t group, uint32_t layer, const uint64_t *first, uint64_t padded,
                            const pkv_tensor *k, const pkv_tensor *v, const pkv_sync *sync) {
    return boundary([&] {
        BatchCall call;
        PKV_TRY(call.acquire(batch));
        PKV_TRY(call->pool().check_layer(group, layer));
        pkv::Turn turn;
        PKV_TRY(turn.begin_work(call->pool().device(), sync));
        PKV_TRY(call->gather(group, layer, first, padded, k, v, turn));
        return turn.end();
    });
}

pkv_status pkv_batch_commit(pkv_batch *batch, const uint32_t *num_accepted, pkv_status *statuses,
                            const pkv_sync *sync) {
    return boundary([&] {
        BatchCall call;
        PKV_TRY(call.acquire(batch));
        pkv::Turn turn;
        pkv::Fences work;
        PKV_TRY(turn.begin(call->pool().device(), sync));
        PKV_TRY(turn.named(work));
        return call->commit(num_accepted, statuses, work);
    });
}

} // extern "C"
