// SPDX-License-Identifier: Apache-2.0
// prefetch.h: checks of handles and structs; the work is in prefetch/.
#include "capi/boundary.h"
#include "capi/operations.h"
#include "device/turn.h"
#include "prefetch/predictor.h"
#include "prefetch/session.h"

#include <cinttypes>

using pkv::boundary;
using pkv::check_array;
using pkv::check_out_struct;
using pkv::fail;
using pkv::not_null;
using pkv::Op;
using pkv::Pin;
using pkv::Pool;
using pkv::read_struct;
using pkv::Session;
using pkv::Table;
using pkv::Turn;
using pkv::write_struct;

namespace {

/// A session for a call, whose pool is open.
class SessionCall {
  public:
    pkv_status acquire(pkv_prefetch *session) {
        PKV_TRY(pin_.acquire(session));
        return pin_->check_open();
    }
    Session *operator->() const { return &*pin_; }

  private:
    Pin<Session> pin_;
};

/// A session and one of its pool's tables.
class TableOfSession {
  public:
    pkv_status acquire(pkv_prefetch *session, pkv_table *table) {
        PKV_TRY(session_.acquire(session));
        PKV_TRY(table_.acquire(table));
        PKV_TRY(session_->check_table(*table_));
        return session_->check_open();
    }
    pkv::Blocks &blocks() const { return session_->blocks(); }
    std::shared_ptr<Table> table() const { return table_->shared(); }

  private:
    Pin<Session> session_;
    Pin<Table> table_;
};

} // namespace

extern "C" {

pkv_status pkv_prefetch_predict(const pkv_predictor *predictor, uint64_t num_tokens, uint64_t position,
                                uint64_t num_scores, const float *scores, uint64_t *blocks, uint64_t capacity,
                                uint64_t *num_blocks) {
    return boundary([&] {
        pkv_predictor how = PKV_PREDICTOR_INIT;
        PKV_TRY(read_struct(predictor, how, "predictor"));
        PKV_TRY(not_null(num_blocks, "num_blocks"));
        PKV_TRY(check_array(scores, num_scores, "scores"));
        PKV_TRY(check_array(blocks, capacity, "blocks"));
        PKV_TRY(pkv::check_predictor(how));
        PKV_TRY(pkv::check_position(num_tokens, position));
        std::span<const float> known(scores, num_scores);
        if (how.policy != PKV_PREDICT_HINTED) known = {};
        const uint64_t count = pkv::count_predicted(how, num_tokens, position, known);
        *num_blocks = count;
        if (capacity == 0) return PKV_OK;
        if (capacity < count)
            return fail(PKV_ERR_NO_SPACE, "%" PRIu64 " blocks, and room for %" PRIu64, count, capacity);
        std::vector<uint64_t> list;
        list.reserve(count);
        pkv::predict(how, num_tokens, position, known, list);
        std::copy(list.begin(), list.end(), blocks);
        return PKV_OK;
    });
}

pkv_status pkv_prefetch_open(pkv_pool *pool, const pkv_prefetch_options *options, pkv_prefetch **session) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(not_null(session, "session"));
        pkv_prefetch_options how = PKV_PREFETCH_OPTIONS_INIT;
        if (options != nullptr) PKV_TRY(read_struct(options, how, "options"));
        if ((how.flags & ~(PKV_PREFETCH_OFF | PKV_PREFETCH_WHOLE_LAYERS)) != 0 || how.reserved != 0)
            return fail(PKV_ERR_UNSUPPORTED, "options: flags 0x%x have unknown bits, or reserved is not 0", how.flags);
        if (how.num_layers > 1u << 20) return fail(PKV_ERR_LIMIT, "num_layers is %u", how.num_layers);
        PKV_TRY(check_array(how.layers, how.num_layers, "layers"));
        std::vector<pkv_layer_ref> layers(how.layers, how.layers + how.num_layers);
        std::vector<uint64_t> pages;
        if (how.staging_pages != nullptr) pages.assign(how.staging_pages, how.staging_pages + pin->num_groups());
        std::shared_ptr<Session> fresh;
        PKV_TRY(Session::create(pin->shared_from_this(), how, std::move(layers), std::move(pages), fresh));
        return pkv::hand_out(std::move(fresh), session);
    });
}

pkv_status pkv_prefetch_close(pkv_prefetch *session, const pkv_sync *sync) {
    return boundary([&] {
        Pin<Session> pin;
        PKV_TRY(pin.acquire(session));
        Turn turn;
        pkv::Fences work;
        PKV_TRY(turn.begin(pin->device(), sync));
        PKV_TRY(turn.named(work));
        PKV_TRY(pin.close());
        pin->close(work);
        return PKV_OK;
    });
}

pkv_status pkv_prefetch_cancel(pkv_prefetch *session) {
    return boundary([&] {
        SessionCall call;
        PKV_TRY(call.acquire(session));
        call->cancel();
        return PKV_OK;
    });
}

// ---- prompts and blocks

pkv_status pkv_prefetch_prompt(pkv_prefetch *session, const pkv_prompt *prompt, const pkv_op_options *options,
                               pkv_match *match, pkv_op **op) {
    return boundary([&] {
        SessionCall call;
        PKV_TRY(call.acquire(session));
        pkv::prefix::Prompt known;
        PKV_TRY(pkv::prefix::read_prompt(prompt, known));
        if (match != nullptr) PKV_TRY(check_out_struct(match, "match"));
        pkv_match found = PKV_MATCH_INIT;
        PKV_TRY(pkv::begin_op(1, options, op, [&](const std::shared_ptr<Op> &fresh, uint64_t timeout_ns) {
            return call->prompt(known, fresh, timeout_ns, found);
        }));
        if (match != nullptr) write_struct(match, found);
        return PKV_OK;
    });
}

pkv_status pkv_prefetch_hint(pkv_prefetch *session, pkv_table *table, uint64_t num_scores, const float *scores) {
    return boundary([&] {
        TableOfSession call;
        PKV_TRY(call.acquire(session, table));
        PKV_TRY(check_array(scores, num_scores, "scores"));
        call.blocks().hint(call.table(), {scores, num_scores});
        return PKV_OK;
    });
}

pkv_status pkv_prefetch_submit(pkv_prefetch *session, pkv_table *table, uint64_t position, uint64_t *submitted) {
    return boundary([&] {
        TableOfSession call;
        PKV_TRY(call.acquire(session, table));
        uint64_t count = 0;
        PKV_TRY(call.blocks().submit(call.table(), position, count));
        if (submitted != nullptr) *submitted = count;
        return PKV_OK;
    });
}

pkv_status pkv_prefetch_require(pkv_prefetch *session, pkv_table *table, uint64_t first_block, uint64_t num_blocks,
                                uint64_t timeout_ns, pkv_require_result *result) {
    return boundary([&] {
        TableOfSession call;
        PKV_TRY(call.acquire(session, table));
        if (result != nullptr) PKV_TRY(check_out_struct(result, "result"));
        pkv_require_result value = PKV_REQUIRE_RESULT_INIT;
        const pkv_status status = call.blocks().require(call.table(), first_block, num_blocks, timeout_ns, value);
        if (result != nullptr) write_struct(result, value);
        return status;
    });
}

// ---- steps

pkv_status pkv_prefetch_step_begin(pkv_prefetch *session, uint32_t num_tables, pkv_table *const *tables,
                                   const uint64_t *num_tokens, pkv_status *statuses) {
    return boundary([&] {
        SessionCall call;
        PKV_TRY(call.acquire(session));
        PKV_TRY(check_array(tables, num_tables, "tables"));
        std::vector<std::shared_ptr<Table>> list;
        list.reserve(num_tables);
        for (uint32_t i = 0; i < num_tables; ++i) {
            Pin<Table> pin;
            PKV_TRY(pin.acquire(tables[i]));
            list.push_back(pin->shared());
        }
        PKV_TRY(call->check_tables(list));
        return call->pipeline().begin_step(std::move(list), {num_tokens, num_tokens != nullptr ? num_tables : 0},
                                           {statuses, statuses != nullptr ? num_tables : 0});
    });
}

pkv_status pkv_prefetch_layer_acquire(pkv_prefetch *session, uint32_t index, uint64_t timeout_ns, const pkv_sync *sync,
                                      pkv_layer_view *view) {
    return boundary([&] {
        SessionCall call;
        PKV_TRY(call.acquire(session));
        PKV_TRY(check_out_struct(view, "view"));
        Turn turn;
        if (call->device() != nullptr)
            PKV_TRY(turn.begin(call->device(), sync));
        else if (sync != nullptr && sync->kind != PKV_SYNC_NONE)
            return fail(PKV_ERR_UNSUPPORTED, "sync: a view of a host pool is there when the call returns");
        pkv_layer_view value = PKV_LAYER_VIEW_INIT;
        PKV_TRY(call->pipeline().acquire(index, pkv::deadline_after(timeout_ns), turn, value));
        write_struct(view, value);
        return PKV_OK;
    });
}

pkv_status pkv_prefetch_layer_release(pkv_prefetch *session, uint32_t index, const pkv_sync *sync) {
    return boundary([&] {
        SessionCall call;
        PKV_TRY(call.acquire(session));
        PKV_TRY(call->pipeline().check_release(index));
        Turn turn;
        pkv::Fences work;
        PKV_TRY(turn.begin(call->device(), sync));
        PKV_TRY(turn.named(work));
        call->pipeline().release(work);
        return PKV_OK;
    });
}

pkv_status pkv_prefetch_step_end(pkv_prefetch *session, pkv_status *statuses) {
    return boundary([&] {
        Pin<Session> pin; // also after the pool was destroyed
        PKV_TRY(pin.acquire(session));
        return pin->pipeline().end_step({statuses, statuses != nullptr ? pin->pipeline().num_tables() : 0});
    });
}

pkv_status pkv_prefetch_get_stats(pkv_prefetch *session, pkv_prefetch_stats *stats) {
    return boundary([&] {
        Pin<Session> pin;
        PKV_TRY(pin.acquire(session));
        PKV_TRY(check_out_struct(stats, "stats"));
        pkv_prefetch_stats value;
        pin->stats(value);
        write_struct(stats, value);
        return PKV_OK;
    });
}

} // extern "C"
