// SPDX-License-Identifier: Apache-2.0
// table.h: checks of handles and structs; the work is in table/.
#include "table/table.h"

#include "capi/boundary.h"
#include "core/sync.h"

#include <algorithm>
#include <cinttypes>

using pkv::boundary;
using pkv::check_array;
using pkv::check_out_struct;
using pkv::fail;
using pkv::not_null;
using pkv::Pin;
using pkv::Pool;
using pkv::read_struct;
using pkv::Table;
using pkv::write_struct;

namespace {

/// A table for a call: an open handle whose pool is open.
pkv_status acquire(Pin<Table> &pin, pkv_table *table) {
    PKV_TRY(pin.acquire(table));
    return pin->check_open();
}

} // namespace

extern "C" {

pkv_status pkv_table_create(pkv_pool *pool, pkv_table **table) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(not_null(table, "table"));
        return pkv::hand_out(std::make_shared<Table>(pin->shared_from_this()), table);
    });
}

pkv_status pkv_table_destroy(pkv_table *table, const pkv_sync *sync) {
    return boundary([&] {
        Pin<Table> pin;
        PKV_TRY(pin.acquire(table));
        PKV_TRY(pkv::wait_sync(sync));
        return pin.close(); // the pages go with the last pin
    });
}

pkv_status pkv_table_clear(pkv_table *table, const pkv_sync *sync) {
    return boundary([&] {
        Pin<Table> pin;
        PKV_TRY(acquire(pin, table));
        PKV_TRY(pkv::wait_sync(sync));
        pin->clear();
        return PKV_OK;
    });
}

pkv_status pkv_table_admit(pkv_table *table, const pkv_prompt *prompt, const pkv_admit_options *options,
                           pkv_match *match) {
    return boundary([&] {
        Pin<Table> pin;
        PKV_TRY(acquire(pin, table));
        pkv::prefix::Prompt known;
        PKV_TRY(pkv::prefix::read_prompt(prompt, known));
        pkv_admit_options how = PKV_ADMIT_OPTIONS_INIT;
        if (options != nullptr) PKV_TRY(read_struct(options, how, "options"));
        if ((how.flags & ~(PKV_ADMIT_NO_MATCH | PKV_ADMIT_RETRY)) != 0 || how.reserved != 0)
            return fail(PKV_ERR_UNSUPPORTED, "options: flags 0x%x have unknown bits, or reserved is not 0", how.flags);
        if (match != nullptr) PKV_TRY(check_out_struct(match, "match"));
        pkv_match found = PKV_MATCH_INIT;
        PKV_TRY(pin->admit(known, how, found));
        if (match != nullptr) write_struct(match, found);
        return PKV_OK;
    });
}

pkv_status pkv_table_reserve(pkv_table *table, uint64_t num_tokens) {
    return boundary([&] {
        Pin<Table> pin;
        PKV_TRY(acquire(pin, table));
        return pin->reserve(num_tokens);
    });
}

pkv_status pkv_table_set_tokens(pkv_table *table, uint64_t position, uint64_t num_tokens, const pkv_token *tokens) {
    return boundary([&] {
        Pin<Table> pin;
        PKV_TRY(acquire(pin, table));
        PKV_TRY(check_array(tokens, num_tokens, "tokens"));
        return pin->set_tokens(position, {tokens, num_tokens});
    });
}

pkv_status pkv_table_write(pkv_table *table, uint32_t group, uint32_t layer, uint64_t position, uint64_t num_tokens,
                           const pkv_tensor *k, const pkv_tensor *v, const pkv_sync *sync) {
    return boundary([&] {
        Pin<Table> pin;
        PKV_TRY(acquire(pin, table));
        PKV_TRY(pin->pool().check_layer(group, layer));
        PKV_TRY(pkv::wait_sync(sync));
        return pin->write(layer, position, num_tokens, k, v);
    });
}

pkv_status pkv_table_commit(pkv_table *table, uint64_t num_tokens, const pkv_sync *sync) {
    return boundary([&] {
        Pin<Table> pin;
        PKV_TRY(acquire(pin, table));
        PKV_TRY(pkv::wait_sync(sync));
        return pin->commit(num_tokens);
    });
}

pkv_status pkv_table_gather(pkv_table *table, uint32_t group, uint32_t layer, uint64_t position, uint64_t num_tokens,
                            const pkv_tensor *k, const pkv_tensor *v, const pkv_sync *sync) {
    return boundary([&] {
        Pin<Table> pin;
        PKV_TRY(acquire(pin, table));
        PKV_TRY(pin->pool().check_layer(group, layer));
        PKV_TRY(pkv::wait_sync(sync));
        return pin->gather(layer, position, num_tokens, k, v);
    });
}

pkv_status pkv_table_fork(pkv_table *table, const pkv_sync *sync, pkv_table **fork) {
    return boundary([&] {
        Pin<Table> pin;
        PKV_TRY(acquire(pin, table));
        PKV_TRY(not_null(fork, "fork"));
        PKV_TRY(pkv::wait_sync(sync));
        std::shared_ptr<Table> twin;
        PKV_TRY(pin->fork(twin));
        return pkv::hand_out(std::move(twin), fork);
    });
}

pkv_status pkv_table_truncate(pkv_table *table, uint64_t num_tokens, const pkv_sync *sync) {
    return boundary([&] {
        Pin<Table> pin;
        PKV_TRY(acquire(pin, table));
        PKV_TRY(pin->check_admitted());
        PKV_TRY(pkv::wait_sync(sync));
        pin->truncate(num_tokens);
        return PKV_OK;
    });
}

pkv_status pkv_table_pages(pkv_table *table, uint32_t group, pkv_page *pages, uint64_t capacity, uint64_t *num_blocks) {
    return boundary([&] {
        Pin<Table> pin;
        PKV_TRY(acquire(pin, table));
        PKV_TRY(pin->pool().check_group(group));
        PKV_TRY(check_array(pages, capacity, "pages"));
        PKV_TRY(not_null(num_blocks, "num_blocks"));
        const auto blocks = pin->pages();
        *num_blocks = blocks.size();
        if (capacity == 0) return PKV_OK;
        if (capacity < blocks.size())
            return fail(PKV_ERR_NO_SPACE, "the sequence has %zu blocks, capacity is %" PRIu64, blocks.size(), capacity);
        std::copy(blocks.begin(), blocks.end(), pages);
        return PKV_OK;
    });
}

pkv_status pkv_table_slots(pkv_table *table, uint32_t group, uint64_t position, uint64_t num_tokens, pkv_slot *slots) {
    return boundary([&] {
        Pin<Table> pin;
        PKV_TRY(acquire(pin, table));
        PKV_TRY(pin->pool().check_group(group));
        PKV_TRY(check_array(slots, num_tokens, "slots"));
        return pin->slots(position, num_tokens, slots);
    });
}

pkv_status pkv_table_get_info(pkv_table *table, pkv_table_info *info) {
    return boundary([&] {
        Pin<Table> pin;
        PKV_TRY(acquire(pin, table));
        PKV_TRY(check_out_struct(info, "info"));
        pkv_table_info value = PKV_TABLE_INFO_INIT;
        pin->info(value);
        write_struct(info, value);
        return PKV_OK;
    });
}

} // extern "C"
