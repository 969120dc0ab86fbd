// SPDX-License-Identifier: Apache-2.0
// Choice of a provider. fi_getinfo() lists what the machine has that meets the hints, best first; the first entry that can be
// opened, down to a completion queue, is taken.
#include "fabric/provider.h"
#include "fabric/process.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdlib>
#include <cstring>
#include <rdma/fi_errno.h>

namespace pkv::fabric {
namespace {

/// Registration modes that are served here. A region belongs to all endpoints (no FI_MR_ENDPOINT) and its pages are there
/// before it is registered (FI_MR_ALLOCATED, no FI_MR_MMU_NOTIFY).
constexpr int served_mr_modes = FI_MR_LOCAL | FI_MR_RAW | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
/// More than a link needs to be busy, and small enough to be set aside for every peer.
constexpr size_t most_in_flight = 256;
/// Receives are not used, but some providers set a buffer aside for each.
constexpr size_t receives = 16;
/// What is copied at once of a peer's memory: meanwhile the thread looks at nothing else.
constexpr size_t copied_at_once = size_t{1} << 20;
/// A raw key travels with its base address.
constexpr size_t longest_raw_key = PKV_FABRIC_MAX_KEY - sizeof(uint64_t);

/// net before tcp: where there are both (1.17), tcp is the older one, with a layer more.
const char *const preferred[] = {"verbs", "efa", "net", "tcp"};

/// In 1.17 "tcp" is a layer over a provider of connections, and that layer crashes when an endpoint is closed while reads
/// are under way: unless it passes them through, which it does when this is set at the first use of libfabric.
constexpr char pass_through[] = "FI_OFI_RXM_ENABLE_PASSTHRU";
bool has_fragile_tcp() { return fi_version() < FI_VERSION(1, 18); }

/// As domains.h says.
bool shares_badly(const char *name) { return fi_version() < FI_VERSION(1, 18) && std::strcmp(name, "net") == 0; }

bool is_address(const char *host) {
    unsigned char address[sizeof(in6_addr)];
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

/// Names its endpoints by socket addresses, so that loopback means something.
bool is_socket_provider(const char *name) {
    for (const char *prefix : {"tcp", "net", "sockets", "udp"})
        if (std::strncmp(name, prefix, std::strlen(prefix)) == 0) return true;
    return false;
}

Info make_hints(const char *name) {
    Info hints(fi_allocinfo());
    if (!hints) return hints;
    hints->caps = FI_RMA | FI_READ | FI_REMOTE_READ;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = served_mr_modes;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->fabric_attr->prov_name = strdup(name);
    return hints->fabric_attr->prov_name == nullptr ? nullptr : std::move(hints);
}

/// Why an entry cannot be used; NULL if it can.
const char *unfit(const fi_info &entry) {
    const fi_domain_attr &domain = *entry.domain_attr;
    if ((entry.caps & FI_READ) == 0 || (entry.caps & FI_REMOTE_READ) == 0) return "it has no remote reads";
    if ((domain.mr_mode & ~served_mr_modes) != 0) return "it asks for a way of registering memory that is not served";
    if ((entry.mode & ~(FI_CONTEXT | FI_CONTEXT2)) != 0) return "it asks for a mode of operation that is not served";
    if (has_fragile_tcp() && std::strcmp(entry.fabric_attr->prov_name, "tcp;ofi_rxm") == 0 &&
        entry.ep_attr->protocol != FI_PROTO_RXM_TCP)
        return "it crashes when endpoints are closed, unless FI_OFI_RXM_ENABLE_PASSTHRU=1 is set before libfabric is "
               "used";
    const bool raw = (domain.mr_mode & FI_MR_RAW) != 0;
    if (domain.mr_key_size == 0) return "it has no keys";
    if (domain.mr_key_size > (raw ? longest_raw_key : sizeof(uint64_t))) return "its keys are too long";
    return nullptr;
}

} // namespace

void Provider::prepare() {
    if (has_fragile_tcp()) setenv(pass_through, "1", 0);
}

uint64_t Provider::max_message() const {
    const uint64_t bytes = info_->ep_attr->max_msg_size;
    return bytes != 0 ? bytes : UINT64_MAX;
}

uint32_t Provider::max_in_flight() const {
    return static_cast<uint32_t>(std::clamp<size_t>(info_->tx_attr->size, 1, most_in_flight));
}

int Provider::open_queue(fid_domain *domain, Fid<fid_cq> &queue, int &descriptor) const {
    fi_cq_attr attributes = {};
    attributes.size = size_t{2} * max_in_flight();
    attributes.format = FI_CQ_FORMAT_CONTEXT;
    attributes.wait_obj = sleeps_ ? FI_WAIT_FD : FI_WAIT_NONE;
    fid_cq *opened = nullptr;
    if (const int error = fi_cq_open(domain, &attributes, &opened, nullptr); error != 0) return error;
    queue.reset(opened);
    descriptor = -1;
    if (!sleeps_) return 0;
    const int error = fi_control(&opened->fid, FI_GETWAIT, &descriptor);
    return error == 0 && descriptor < 0 ? -FI_ENOSYS : error;
}

int Provider::open_entry(const fi_info *entry, const char *&step) {
    domain_.reset();
    fabric_.reset();
    info_.reset(fi_dupinfo(entry));
    step = "fi_dupinfo";
    if (!info_) return -FI_ENOMEM;
    // Receives are not used: the fewer buffers a provider keeps for them, the better.
    info_->rx_attr->size = std::min(info_->rx_attr->size, receives);
    info_->tx_attr->size = std::min(info_->tx_attr->size, most_in_flight);

    fid_fabric *fabric = nullptr;
    step = "fi_fabric";
    if (const int error = fi_fabric(info_->fabric_attr, &fabric, nullptr); error != 0) return error;
    fabric_.reset(fabric);
    fid_domain *domain = nullptr;
    step = "fi_domain";
    if (const int error = fi_domain(fabric, info_.get(), &domain, nullptr); error != 0) return error;
    domain_.reset(domain);
    separates_ = shares_badly(name()) && !has_mode(FI_MR_PROV_KEY);

    // A provider may open a queue with a descriptor and have none all the same, so this asks for it.
    Fid<fid_cq> queue;
    int descriptor = -1;
    step = "fi_cq_open";
    sleeps_ = true;
    if (open_queue(domain, queue, descriptor) == 0) return 0;
    queue.reset();
    sleeps_ = false;
    return open_queue(domain, queue, descriptor);
}

pkv_status Provider::open_named(const char *name, const char *host, Why why) {
    const Info hints = make_hints(name);
    if (!hints) return why.fail(PKV_ERR_NO_MEMORY, "no memory for the hints of provider %s", name);

    const bool sockets = is_socket_provider(name);
    if (host == nullptr && sockets) host = "127.0.0.1";
    const bool by_address = host != nullptr && is_address(host);
    fi_info *list = nullptr;
    const int error = fi_getinfo(FI_VERSION(1, 17), by_address ? host : nullptr, nullptr,
                                 by_address ? FI_SOURCE | FI_NUMERICHOST : 0, hints.get(), &list);
    if (error != 0)
        return why.fail(PKV_ERR_UNSUPPORTED, "provider %s%s%s: %s (fi_getinfo)", name, by_address ? " at " : "",
                        by_address ? host : "", fi_strerror(-error));
    const Info owner(list);

    const char *reason = "no entry has an interface of that name";
    for (const fi_info *entry = list; entry != nullptr; entry = entry->next) {
        if (host != nullptr && !by_address) {
            const char *interface = entry->domain_attr->name;
            if (interface == nullptr || std::strcmp(interface, host) != 0) continue;
        }
        if (const char *lack = unfit(*entry); lack != nullptr) {
            reason = lack;
            continue;
        }
        const char *step = nullptr;
        if (const int failed = open_entry(entry, step); failed != 0) {
            why.fail(PKV_ERR_UNSUPPORTED, "provider %s: %s (%s)", name, fi_strerror(-failed), step);
            reason = nullptr;
            continue;
        }
        return PKV_OK;
    }
    domain_.reset();
    fabric_.reset();
    if (reason == nullptr) return PKV_ERR_UNSUPPORTED;
    return why.fail(PKV_ERR_UNSUPPORTED, "provider %s%s%s: %s", name, host != nullptr ? " at " : "",
                    host != nullptr ? host : "", reason);
}

pkv_status Provider::open_copying(Why why) {
    info_.reset(fi_allocinfo());
    if (!info_) return why.fail(PKV_ERR_NO_MEMORY, "no memory for provider shm");
    info_->fabric_attr->prov_name = strdup("shm");
    info_->fabric_attr->name = strdup("shm");
    info_->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_RAW;
    info_->domain_attr->mr_key_size = Permit::key_bytes;
    info_->domain_attr->data_progress = FI_PROGRESS_AUTO;
    info_->ep_attr->max_msg_size = copied_at_once;
    info_->tx_attr->size = 1;
    sleeps_ = true; // nothing is ever under way while it does
    const bool named = info_->fabric_attr->prov_name != nullptr && info_->fabric_attr->name != nullptr;
    return named ? PKV_OK : why.fail(PKV_ERR_NO_MEMORY, "no memory for provider shm");
}

pkv_status Provider::open(const char *name, const char *host, Why why) {
    if (name != nullptr && std::strcmp(name, "shm") == 0) return open_copying(why); // one machine has one
    if (name != nullptr && name[0] != '\0') return open_named(name, host, why);
    for (const char *candidate : preferred)
        if (open_named(candidate, host, Why(nullptr, 0)) == PKV_OK) return PKV_OK;
    return why.fail(PKV_ERR_UNSUPPORTED, "none of the providers verbs, efa, net and tcp works%s%s",
                    host != nullptr ? " at " : "", host != nullptr ? host : "");
}

pkv_fabric_modes Provider::modes() const {
    const fi_domain_attr &domain = *info_->domain_attr;
    pkv_fabric_modes modes = {};
    modes.struct_size = sizeof modes;
    std::snprintf(modes.provider, sizeof modes.provider, "%s", name());
    std::snprintf(modes.fabric, sizeof modes.fabric, "%s", info_->fabric_attr->name);
    modes.virtual_addresses = has_mode(FI_MR_VIRT_ADDR);
    modes.local_regions = has_mode(FI_MR_LOCAL);
    modes.provider_keys = has_mode(FI_MR_PROV_KEY);
    modes.raw_keys = has_mode(FI_MR_RAW);
    modes.manual_progress = domain.data_progress == FI_PROGRESS_MANUAL;
    modes.sleeps = sleeps_;
    modes.copies = copies();
    modes.key_bytes = domain.mr_key_size;
    modes.max_message = max_message();
    modes.max_region = max_region.load(std::memory_order_relaxed);
    modes.max_regions = domain.mr_cnt != 0 ? domain.mr_cnt : UINT64_MAX;
    modes.max_in_flight = max_in_flight();
    return modes;
}

} // namespace pkv::fabric
