// SPDX-License-Identifier: Apache-2.0
// Opening, naming and closing of an endpoint, and its completions.
#include "fabric/endpoint.h"
#include "core/clock.h"

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <sys/socket.h>
#include <time.h>

using namespace pkv::fabric;

namespace {

constexpr size_t completions_at_once = 16;
constexpr int rounds = 4; ///< of completions of one endpoint, before the next has its turn

void wait_a_little() {
    const timespec pause = {0, 100'000};
    nanosleep(&pause, nullptr);
}

} // namespace

pkv_fabric_endpoint::pkv_fabric_endpoint(Provider &provider, Progress &progress)
    : provider_(provider), progress_(progress), reads_(provider.max_in_flight(), provider.max_message()),
      keys_(provider) {}

pkv_fabric_endpoint::~pkv_fabric_endpoint() {
    close();
    addresses_.reset();
    queue_.reset();
    if (domain_ != nullptr && provider_.separates()) provider_.domains().close(domain_);
}

/// 0, or a negative error and the step that gave it.
int pkv_fabric_endpoint::open_objects(const char *&step) {
    step = "fi_domain";
    domain_ = provider_.domain();
    if (provider_.separates()) {
        domain_ = nullptr;
        if (const int error = provider_.domains().open(provider_.fabric(), provider_.info(), domain_); error != 0)
            return error;
    }
    step = "fi_cq_open";
    if (const int error = provider_.open_queue(domain_, queue_, descriptor_); error != 0) return error;
    step = "fi_av_open";
    fi_av_attr attributes = {};
    const fi_av_type type = provider_.info()->domain_attr->av_type;
    attributes.type = type != FI_AV_UNSPEC ? type : FI_AV_TABLE;
    attributes.count = 1;
    fid_av *addresses = nullptr;
    if (const int error = fi_av_open(domain_, &attributes, &addresses, nullptr); error != 0) return error;
    addresses_.reset(addresses);
    step = "fi_endpoint";
    fid_ep *endpoint = nullptr;
    if (const int error = fi_endpoint(domain_, provider_.info(), &endpoint, nullptr); error != 0) return error;
    endpoint_ = endpoint;
    step = "fi_ep_bind";
    if (const int error = fi_ep_bind(endpoint_, &queue_->fid, FI_TRANSMIT | FI_RECV); error != 0) return error;
    if (const int error = fi_ep_bind(endpoint_, &addresses_->fid, 0); error != 0) return error;
    step = "fi_enable";
    return fi_enable(endpoint_);
}

pkv_status pkv_fabric_endpoint::open(void *name, size_t *name_bytes, Why why) {
    if (provider_.copies()) return open_copying(name, name_bytes, why);
    const char *step = nullptr;
    int error = open_objects(step);
    if (error == 0) {
        step = "fi_getname";
        error = fi_getname(&endpoint_->fid, name, name_bytes);
        name_bytes_ = *name_bytes;
    }
    if (error == 0) return PKV_OK;
    const pkv_status status = error == -FI_ENOMEM      ? PKV_ERR_NO_MEMORY
                              : error == -FI_ETOOSMALL ? PKV_ERR_NO_SPACE
                                                       : PKV_ERR_IO;
    return why.fail(status, "provider %s opens no endpoint: %s (%s)", provider_.name(), fi_strerror(-error), step);
}

pkv_status pkv_fabric_endpoint::open_copying(void *name, size_t *name_bytes, Why why) {
    if (*name_bytes < PeerProcess::name_bytes)
        return why.fail(PKV_ERR_NO_SPACE,
                        "the name of an endpoint of provider shm takes %zu bytes, there is room for %zu",
                        PeerProcess::name_bytes, *name_bytes);
    permit_ = Permit::make(nullptr, 0);
    if (permit_ == nullptr) return why.fail(PKV_ERR_IO, "provider shm: the system gives no randomness");
    PeerProcess::write_name(*permit_, static_cast<unsigned char *>(name));
    *name_bytes = PeerProcess::name_bytes;
    return PKV_OK;
}

pkv_status pkv_fabric_endpoint::check_name(const void *name, size_t name_bytes, Why why) const {
    // A provider believes the names that it is given. This one came from elsewhere.
    bool good = name_bytes == name_bytes_;
    switch (provider_.info()->addr_format) {
    case FI_ADDR_STR:
        good = name_bytes != 0 && name_bytes <= PKV_FABRIC_MAX_NAME &&
               static_cast<const char *>(name)[name_bytes - 1] == '\0';
        break;
    case FI_SOCKADDR:
    case FI_SOCKADDR_IN:
    case FI_SOCKADDR_IN6: {
        sa_family_t family = 0;
        const int own = provider_.info()->addr_format == FI_SOCKADDR_IN    ? AF_INET
                        : provider_.info()->addr_format == FI_SOCKADDR_IN6 ? AF_INET6
                                                                           : 0;
        if (good) std::memcpy(&family, name, sizeof family);
        good = good && (own == 0 || family == own);
        break;
    }
    default: break;
    }
    if (good) return PKV_OK;
    return why.fail(PKV_ERR_INVALID, "%zu bytes are no name of an endpoint of provider %s", name_bytes,
                    provider_.name());
}

pkv_status pkv_fabric_endpoint::connect(const void *name, size_t name_bytes, Why why) {
    if (connected_) return why.fail(PKV_ERR_STATE, "the endpoint has a peer");
    if (provider_.copies()) {
        if (const pkv_status status = process_.open(name, name_bytes, why); status != PKV_OK) return status;
        connected_.store(true, std::memory_order_release);
        return PKV_OK;
    }
    if (const pkv_status status = check_name(name, name_bytes, why); status != PKV_OK) return status;
    fi_addr_t peer = FI_ADDR_UNSPEC;
    const int inserted = fi_av_insert(addresses_.get(), name, 1, &peer, 0, nullptr);
    if (inserted != 1)
        return why.fail(PKV_ERR_INVALID, "provider %s does not take the peer's name: %s", provider_.name(),
                        fi_strerror(inserted < 0 ? -inserted : FI_EINVAL));
    peer_.store(peer, std::memory_order_relaxed);
    connected_.store(true, std::memory_order_release);
    return PKV_OK;
}

void pkv_fabric_endpoint::close() {
    // Until the provider has let go of the endpoint its peer may write into memory of reads: there is no way around waiting.
    while (endpoint_ != nullptr) {
        if (fi_close(&endpoint_->fid) != -FI_EBUSY) {
            endpoint_ = nullptr;
        } else {
            drain();
            wait_a_little();
        }
    }
    reads_.cancel_all();
}

pkv_status pkv_fabric_endpoint::make_read(const pkv_fabric_window *windows, uint32_t num_windows, uint64_t offset,
                                          Read &read) {
    if (!connected_.load(std::memory_order_acquire) || failed()) return PKV_ERR_STATE;
    uint64_t left = read.bytes;
    for (uint32_t i = 0; i < num_windows && left != 0; ++i) {
        if (offset >= windows[i].bytes) {
            offset -= windows[i].bytes;
            continue;
        }
        Span span = {windows[i].address + offset, std::min(left, windows[i].bytes - offset), 0};
        {
            const pkv::Lock lock(keys_mutex_);
            const pkv_status status =
                provider_.copies() ? process_.find(windows[i], span.key) : keys_.find(windows[i], span.key);
            if (status != PKV_OK) return status;
        }
        read.spans.push_back(span);
        left -= span.bytes;
        offset = 0;
    }
    return left == 0 ? PKV_OK : PKV_ERR_INVALID;
}

pkv_status pkv_fabric_endpoint::copy(const Read &read) {
    char *data = read.data;
    for (const pkv::fabric::Span &span : read.spans) {
        for (uint64_t at = 0; at < span.bytes;) {
            if (pkv::monotonic_ns() >= read.deadline_ns) return PKV_ERR_TIMEOUT;
            const uint64_t bytes = std::min(span.bytes - at, provider_.max_message());
            if (process_.read(data, span.address + at, bytes, span.key) != 0) return PKV_ERR_IO;
            data += bytes;
            at += bytes;
        }
    }
    return PKV_OK;
}

bool pkv_fabric_endpoint::turn(uint64_t now_ns) {
    if (provider_.copies()) {
        reads_.expire(now_ns);
        return reads_.copy(process_);
    }
    bool moved = drain();
    reads_.expire(now_ns);
    if (reads_.post(endpoint_, peer_.load(std::memory_order_relaxed))) moved = true;
    return moved;
}

pkv_fabric_endpoint::Rest pkv_fabric_endpoint::rest(bool settled) {
    if (provider_.copies()) return Rest::in_descriptor; // there is none, and nothing to wait for
    fid *waited[] = {&queue_->fid};
    if (fi_trywait(provider_.fabric(), waited, 1) != 0) return Rest::none;
    if (!signalled_) return Rest::in_descriptor;
    // The net provider (1.17) leaves its descriptor readable after a completion was taken, so that sleeping in it is no
    // sleep. Waiting through the provider clears it, but that takes a millisecond in which the thread hears of nothing else:
    // it is done when the reads are over, and until then the thread sleeps by time.
    pollfd state = {descriptor_, POLLIN, 0};
    if (poll(&state, 1, 0) == 1) {
        if (in_flight() || !settled) return Rest::by_time;
        fi_cq_entry entry;
        if (fi_cq_sread(queue_.get(), &entry, 1, nullptr, 1) == 1) reads_.complete(entry.op_context, 0, "");
        signalled_ = false;
        return Rest::none;
    }
    signalled_ = false;
    return Rest::in_descriptor;
}

bool pkv_fabric_endpoint::drain() {
    fi_cq_entry entries[completions_at_once];
    bool moved = false;
    for (int round = 0; round < rounds; ++round) {
        const ssize_t count = fi_cq_read(queue_.get(), entries, completions_at_once);
        if (count > 0) {
            signalled_ = true;
            for (ssize_t i = 0; i < count; ++i) reads_.complete(entries[i].op_context, 0, "");
            moved = true;
            if (static_cast<size_t>(count) < completions_at_once) break;
        } else if (count == -FI_EAVAIL) {
            moved = take_error() || moved;
        } else {
            if (count != 0 && count != -FI_EAGAIN && count != -FI_EINTR)
                reads_.fail_all(static_cast<int>(-count), "fi_cq_read");
            break;
        }
    }
    return moved;
}

bool pkv_fabric_endpoint::take_error() {
    // The entry's data may stand in memory of the provider's that the next look at the queue overwrites: everything is taken
    // out here, before anything else is asked of it.
    unsigned char data[128] = {};
    char text[128];
    fi_cq_err_entry entry = {};
    entry.err_data = data;
    entry.err_data_size = sizeof data;
    if (fi_cq_readerr(queue_.get(), &entry, 0) <= 0) return false;
    signalled_ = true;
    if (entry.err_data != data && entry.err_data != nullptr)
        std::memcpy(data, entry.err_data, std::min(entry.err_data_size, sizeof data));
    const char *said = fi_cq_strerror(queue_.get(), entry.prov_errno, data, text, sizeof text);
    reads_.complete(entry.op_context, entry.err != 0 ? entry.err : FI_EOTHER, said != nullptr ? said : "no text");
    return true;
}
