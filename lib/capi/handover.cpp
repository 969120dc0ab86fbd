// SPDX-License-Identifier: Apache-2.0
// node.h, handing a sequence over: checks of handles and structs; the work is in handover/.
#include "handover/offer.h"
#include "handover/pulls.h"
#include "handover/ticket.h"
#include "node/node.h"

#include "capi/boundary.h"
#include "capi/operations.h"
#include "core/sync.h"
#include "core/wait.h"

#include <cinttypes>
#include <cstring>

using pkv::boundary;
using pkv::check_array;
using pkv::check_out_struct;
using pkv::fail;
using pkv::not_null;
using pkv::Op;
using pkv::Pin;
using pkv::Pool;
using pkv::read_struct;
using pkv::Table;
using pkv::write_struct;
using pkv::handover::Offer;
using pkv::handover::OfferTerms;
using pkv::handover::PulledTable;
using pkv::handover::PullRequest;
using pkv::handover::Pulls;
using pkv::handover::Ticket;
using pkv::node::Node;

namespace {

constexpr uint64_t default_lifetime_ns = 60'000'000'000;
constexpr uint32_t most_counted_pulls = 65536;

pkv_status read_options(const pkv_offer_options *options, OfferTerms &terms, std::string &address) {
    pkv_offer_options how = PKV_OFFER_OPTIONS_INIT;
    if (options != nullptr) PKV_TRY(read_struct(options, how, "options"));
    if (how.reserved != 0) return fail(PKV_ERR_UNSUPPORTED, "options: reserved is %u", how.reserved);
    if (how.max_pulls > most_counted_pulls && how.max_pulls != PKV_PULLS_UNLIMITED)
        return fail(PKV_ERR_LIMIT, "max_pulls is %u, more than %u", how.max_pulls, most_counted_pulls);
    terms.num_tokens = how.num_tokens;
    terms.lifetime_ns = how.lifetime_ns != 0 ? how.lifetime_ns : default_lifetime_ns;
    terms.max_pulls = how.max_pulls != 0 ? how.max_pulls : 1;
    if (how.address != nullptr) address = how.address;
    if (how.address != nullptr && address.empty()) return fail(PKV_ERR_INVALID, "address is empty");
    return PKV_OK;
}

pkv_status make_offer(Node &node, Table &table, const OfferTerms &terms, const std::string &address,
                      std::shared_ptr<Op> op, pkv_offer **out) {
    std::shared_ptr<Offer> offer;
    PKV_TRY(Offer::make(table, terms, op, node.counters(), offer));
    pkv_offer *handle = nullptr;
    PKV_TRY(pkv::hand_out(offer, &handle));
    if (const pkv_status status = offer->publish(node, address); status != PKV_OK) {
        Pin<Offer> pin;
        if (pin.acquire(handle) == PKV_OK) pin.close();
        return status;
    }
    if (op != nullptr)
        op->on_cancel([weak = std::weak_ptr(offer)] {
            if (const auto open = weak.lock()) open->end(PKV_ERR_CANCELLED);
        });
    *out = handle;
    return PKV_OK;
}

pkv_status read_tickets(Node &node, uint32_t num_tickets, const pkv_bytes *tickets, std::vector<Ticket> &out) {
    if (num_tickets == 0 || num_tickets > PKV_MAX_TICKETS)
        return fail(PKV_ERR_INVALID, "num_tickets is %u, not between 1 and %d", num_tickets, PKV_MAX_TICKETS);
    PKV_TRY(check_array(tickets, num_tickets, "tickets"));
    out.resize(num_tickets);
    for (uint32_t i = 0; i < num_tickets; ++i) {
        PKV_TRY(not_null(tickets[i].data, "a ticket"));
        PKV_TRY(pkv::handover::unseal({static_cast<const std::byte *>(tickets[i].data), tickets[i].size},
                                      node.reader()->key, out[i]));
    }
    return PKV_OK;
}

pkv_status read_options(const pkv_pull_options *options, PullRequest &request) {
    pkv_pull_options how = PKV_PULL_OPTIONS_INIT;
    if (options != nullptr) PKV_TRY(read_struct(options, how, "options"));
    if ((how.flags & ~(PKV_PULL_NO_MATCH | PKV_PULL_NO_RETENTION)) != 0)
        return fail(PKV_ERR_UNSUPPORTED, "options: flags 0x%x have unknown bits", how.flags);
    request.flags = how.flags;
    if (how.num_groups != 0 && how.num_groups != request.pool->num_groups())
        return fail(PKV_ERR_INVALID, "num_groups is %u: the pool has %u", how.num_groups, request.pool->num_groups());
    PKV_TRY(check_array(how.groups, how.num_groups, "groups"));
    request.groups.assign(how.groups, how.groups + how.num_groups);
    if (how.ns != nullptr) {
        request.ns.emplace();
        PKV_TRY(pkv::prefix::namespace_digest(how.ns, *request.ns));
    }
    return PKV_OK;
}

} // namespace

extern "C" {

pkv_status pkv_table_offer(pkv_node *node, pkv_table *table, const pkv_offer_options *options,
                           const pkv_op_options *op_options, pkv_offer **offer, pkv_op **op) {
    return boundary([&] {
        Pin<Node> at;
        Pin<Table> pin;
        PKV_TRY(at.acquire(node));
        PKV_TRY(pin.acquire(table));
        PKV_TRY(pin->check_open());
        PKV_TRY(not_null(offer, "offer"));
        OfferTerms terms;
        std::string address;
        PKV_TRY(read_options(options, terms, address));
        if (at->service() == nullptr) return fail(PKV_ERR_STATE, "the node does not listen: nobody can pull from it");
        const bool reported = op != nullptr || (op_options != nullptr);
        if (!reported) return make_offer(*at, *pin, terms, address, nullptr, offer);
        const uint64_t items = terms.max_pulls == PKV_PULLS_UNLIMITED ? 1 : terms.max_pulls;
        return pkv::begin_op(items, op_options, op, [&](const std::shared_ptr<Op> &fresh, uint64_t) {
            return make_offer(*at, *pin, terms, address, fresh, offer);
        });
    });
}

pkv_status pkv_offer_ticket(pkv_offer *offer, void *buffer, uint64_t capacity, uint64_t *size) {
    return boundary([&] {
        Pin<Offer> pin;
        PKV_TRY(pin.acquire(offer));
        PKV_TRY(not_null(size, "size"));
        PKV_TRY(check_array(buffer, capacity, "buffer"));
        const auto &ticket = pin->ticket();
        *size = ticket.size();
        if (capacity == 0) return PKV_OK;
        if (capacity < ticket.size())
            return fail(PKV_ERR_NO_SPACE, "the ticket has %zu bytes, and the buffer %" PRIu64, ticket.size(), capacity);
        std::memcpy(buffer, ticket.data(), ticket.size());
        return PKV_OK;
    });
}

pkv_status pkv_offer_ready(pkv_offer *offer, uint32_t group, uint32_t layer, uint64_t num_tokens,
                           const pkv_sync *sync) {
    return boundary([&] {
        Pin<Offer> pin;
        PKV_TRY(pin.acquire(offer));
        PKV_TRY(pin->check_layer(group, layer));
        PKV_TRY(pkv::wait_sync(sync));
        return pin->ready(group, layer, num_tokens);
    });
}

pkv_status pkv_offer_get_info(pkv_offer *offer, pkv_offer_info *info) {
    return boundary([&] {
        Pin<Offer> pin;
        PKV_TRY(pin.acquire(offer));
        PKV_TRY(check_out_struct(info, "info"));
        pkv_offer_info value = PKV_OFFER_INFO_INIT;
        pin->info(value);
        write_struct(info, value);
        return PKV_OK;
    });
}

pkv_status pkv_offer_close(pkv_offer *offer) {
    return boundary([&] {
        Pin<Offer> pin;
        PKV_TRY(pin.acquire(offer));
        PKV_TRY(pin.close());
        pin->end(PKV_ERR_CANCELLED);
        return PKV_OK;
    });
}

pkv_status pkv_table_pull(pkv_node *node, pkv_pool *pool, uint32_t num_tickets, const pkv_bytes *tickets,
                          const pkv_pull_options *options, const pkv_op_options *op_options, pkv_op **op) {
    return boundary([&] {
        Pin<Node> at;
        Pin<Pool> pin;
        PKV_TRY(at.acquire(node));
        PKV_TRY(pin.acquire(pool));
        PullRequest request;
        request.pool = pin->shared_from_this();
        PKV_TRY(read_options(options, request));
        PKV_TRY(read_tickets(*at, num_tickets, tickets, request.tickets));
        uint64_t layers = 0;
        for (uint32_t group = 0; group < pin->num_groups(); ++group) {
            PKV_TRY(pin->need_host_memory(group));
            layers += pin->geometry(group).num_layers;
        }
        const auto pulls = Pulls::of(*at);
        return pkv::begin_op(layers, op_options, op, [&](const std::shared_ptr<Op> &fresh, uint64_t timeout_ns) {
            request.timeout_ns = timeout_ns;
            return pulls->begin(std::move(request), fresh);
        });
    });
}

pkv_status pkv_pull_table(pkv_op *op, pkv_table **table) {
    return boundary([&] {
        Pin<Op> pin;
        PKV_TRY(pin.acquire(op));
        PKV_TRY(not_null(table, "table"));
        std::shared_ptr<pkv::OpResult> result;
        PKV_TRY(pin->take_result(result));
        const auto pulled = std::dynamic_pointer_cast<PulledTable>(result);
        if (pulled == nullptr) return fail(PKV_ERR_STATE, "the operation is no pull, or its table was taken already");
        const pkv_status status = pkv::hand_out(pulled->table(), table);
        if (status != PKV_OK) pin->leave(std::move(result)); // for a later try
        return status;
    });
}

} // extern "C"
