// SPDX-License-Identifier: Apache-2.0
#include "node/node.h"

#include "core/clock.h"
#include "core/wait.h"
#include "layout/image.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <netdb.h>
#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

namespace pkv::node {
namespace {

constexpr size_t most_peers = 1024;
constexpr uint64_t handshake_ns = 5'000'000'000;

// The remote tier's table: its context owns the tier.
using Context = std::shared_ptr<RemoteTier>;
RemoteTier &tier_of(void *context) { return **static_cast<Context *>(context); }

pkv_tier_ops remote_ops() {
    pkv_tier_ops ops{};
    ops.struct_size = sizeof ops;
    ops.name = "remote";
    ops.submit = [](void *context, const pkv_tier_batch *batch) { return tier_of(context).submit(*batch); };
    ops.cancel = [](void *context, pkv_tier_request *request) { tier_of(context).cancel(request); };
    ops.memory = [](void *context, void *base, uint64_t bytes, int32_t add) {
        tier_of(context).memory(base, bytes, add != 0);
    };
    ops.close = [](void *context) { delete static_cast<Context *>(context); };
    return ops;
}

std::string numeric_address(int socket) {
    sockaddr_storage at{};
    socklen_t size = sizeof at;
    char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
    if (getsockname(socket, reinterpret_cast<sockaddr *>(&at), &size) != 0 ||
        getnameinfo(reinterpret_cast<sockaddr *>(&at), size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return {};
    return at.ss_family == AF_INET6 ? "[" + std::string(host) + "]:" + port : std::string(host) + ":" + port;
}

} // namespace

pkv_status Node::open(NodeOptions options, std::shared_ptr<Node> &node) {
    auto fresh = std::make_shared<Node>(std::move(options));
    NodeOptions &o = fresh->options_;
    PKV_TRY(Fabric::open(o.provider.empty() ? nullptr : o.provider.c_str(),
                         o.fabric_host.empty() ? nullptr : o.fabric_host.c_str(), fresh->fabric_));
    Hello hello;
    hello.image_format = ImageFormat::version();
    hello.lease_ns = o.lease_ns;
    randombytes_buf(hello.incarnation.data(), hello.incarnation.size());
    hello.identity = o.identity;
    hello.name = o.name;
    hello.provider = fresh->fabric_->modes().provider;
    hello.shapes = o.shapes;
    fresh->reader_ = std::make_shared<Reader>(Reader{fresh->fabric_, hello, o.key, o.timeout_ns, fresh->counters_});
    fresh->remote_ = std::make_shared<RemoteTier>(fresh->fabric_, o.timeout_ns);
    fresh->tier_ = std::make_shared<Tier>(remote_ops(), new Context(fresh->remote_));
    const auto served = o.tiers;
    if (!o.listen.empty()) {
        fresh->service_ = std::make_shared<Service>();
        Service &service = *fresh->service_;
        service.fabric = fresh->fabric_;
        service.hello = hello;
        service.lease_ns = o.lease_ns;
        service.timeout_ns = o.timeout_ns;
        service.max_leases = o.max_leases;
        service.counters = fresh->counters_;
        service.promote = (o.flags & PKV_NODE_PROMOTE) != 0;
        std::vector<Attachment> tiers;
        for (auto &tier : o.tiers) {
            Attachment at;
            at.tier = std::move(tier);
            at.policy = PKV_TIER_READ_ONLY;
            at.timeout_ns = o.timeout_ns;
            tiers.push_back(std::move(at));
        }
        o.tiers.clear();
        PKV_TRY(service.tiers.create(std::move(tiers), PKV_IMAGE_ALIGNMENT, 1));
        PKV_TRY(service.exports.create(fresh->fabric_, o.export_bytes));
        // What is to be promoted has to come by here.
        const uint32_t in_place = (o.flags & PKV_NODE_COPY) != 0 ? 0 : service.promote ? 1 : service.tiers.size();
        service.in_place.open(fresh->fabric_, service.tiers, std::min(in_place, service.tiers.size()),
                              service.exports.bytes(), most_windows - service.exports.windows().size());
        PKV_TRY(fresh->listen());
    }
    if (!o.directory.empty()) PKV_TRY(fresh->open_directory(hello, served));
    node = std::move(fresh);
    return PKV_OK;
}

Node::~Node() { close(); }

void Node::close() {
    if (stop_.exchange(true)) return;
    if (directory_ != nullptr) directory_->close(); // first: nobody is led here any more
    std::shared_ptr<NodeWork> work;
    {
        const std::lock_guard lock(work_mutex_);
        work = work_;
    }
    if (work != nullptr) work->close();
    if (listener_.joinable()) listener_.join();
    if (service_ != nullptr) service_->offers.close();
    sweep_guests(true);
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
    const auto all = remote_ != nullptr ? remote_->peers() : std::vector<std::shared_ptr<Peer>>();
    if (remote_ != nullptr) remote_->close();
    if (finder_ != nullptr) finder_->stop();
    for (const auto &peer : all) peer->stop();
}

std::string Node::reached_at() const {
    const std::string &text = options_.advertise.empty() ? address_ : options_.advertise;
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos || text.compare(colon, std::string::npos, ":0") != 0) return text;
    return text.substr(0, colon) + address_.substr(address_.rfind(':'));
}

std::shared_ptr<NodeWork> Node::work(const std::function<std::shared_ptr<NodeWork>()> &make) {
    const std::lock_guard lock(work_mutex_);
    if (work_ == nullptr) work_ = make();
    if (stop_.load()) work_->close();
    return work_;
}

// ---- serving

pkv_status Node::listen() {
    std::string host, port;
    if (!split_address(options_.listen, host, port))
        return fail(PKV_ERR_INVALID, "listen is \"%s\", not of the form host:port", options_.listen.c_str());
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo *list = nullptr;
    if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &list))
        return fail(PKV_ERR_IO, "%s: %s", options_.listen.c_str(), gai_strerror(error));
    const std::unique_ptr<addrinfo, void (*)(addrinfo *)> owner(list, freeaddrinfo);
    socket_ = ::socket(list->ai_family, list->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, list->ai_protocol);
    const int on = 1;
    if (socket_ >= 0) setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (socket_ < 0 || bind(socket_, list->ai_addr, list->ai_addrlen) != 0 || ::listen(socket_, 64) != 0)
        return fail(PKV_ERR_IO, "listening on %s: %s", options_.listen.c_str(), std::strerror(errno));
    address_ = numeric_address(socket_);
    try {
        listener_ = std::thread([this] { accept_all(); });
    } catch (const std::system_error &error) {
        return fail(PKV_ERR_NO_MEMORY, "a thread to listen: %s", error.what());
    }
    return PKV_OK;
}

pkv_status Node::open_directory(const Hello &hello, std::vector<std::shared_ptr<Tier>> tiers) {
    directory::Options how;
    how.servers = options_.directory;
    how.prefix = options_.directory_prefix;
    how.scope = {options_.key, hello.protocol, hello.image_format, hello.identity, hello.provider};
    how.self = hello.incarnation;
    how.heartbeat_ns = options_.heartbeat_ns;
    how.entry_ttl_ns = options_.entry_ttl_ns;
    how.timeout_ns = options_.timeout_ns;
    if (!address_.empty() && !tiers.empty()) {
        const std::string &wanted = options_.advertise.empty() ? address_ : options_.advertise;
        PKV_TRY(directory::make_node_address(wanted, address_, how.address));
        how.tiers = std::move(tiers);
    }
    FinderOptions finder;
    finder.reader = reader_;
    finder.address = how.address;
    finder.most_peers = options_.max_found_peers;
    finder.heartbeat_ns = how.heartbeat_ns;
    std::unique_ptr<directory::Client> client;
    PKV_TRY(directory::Client::open(std::move(how), client));
    directory_ = std::move(client);
    finder.client = directory_;
    finder_ = std::make_shared<Finder>(std::move(finder));
    PKV_TRY(finder_->start());
    remote_->find_with(finder_);
    return PKV_OK;
}

void Node::accept_all() {
    while (!stop_.load(std::memory_order_acquire)) {
        sweep_guests(false);
        service_->offers.tick(monotonic_ns());
        pollfd item{socket_, POLLIN, 0};
        if (poll(&item, 1, 100) <= 0) continue;
        const int socket = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (socket < 0) {
            if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(std::chrono::milliseconds(100));
            continue;
        }
        if (guests_.size() >= options_.max_guests) {
            ::close(socket);
            counters_->refused.fetch_add(1, std::memory_order_relaxed);
            continue;
        }
        try {
            guests_.emplace_back();
            Serving &serving = guests_.back();
            serving.over = std::make_shared<std::atomic<bool>>(false);
            // The guest is made by its own thread: a stranger who is slow to shake hands holds up nobody.
            serving.thread = std::thread([this, socket, over = serving.over] {
                std::unique_ptr<Channel> channel;
                const pkv_status status = Channel::accept(socket, options_.key, monotonic_ns() + handshake_ns, channel);
                if (status == PKV_OK) {
                    const auto guest = std::make_shared<Guest>(service_, std::move(channel));
                    guest->run(stop_);
                } else {
                    counters_->refused.fetch_add(1, std::memory_order_relaxed);
                }
                over->store(true, std::memory_order_release);
            });
        } catch (const std::exception &) { // no memory, or no thread
            if (!guests_.empty() && !guests_.back().thread.joinable()) guests_.pop_back();
            ::close(socket);
        }
    }
}

/// Joins threads of guests that are over; with `all` waits for those that are not: they see stop_ within a moment.
void Node::sweep_guests(bool all) {
    for (auto at = guests_.begin(); at != guests_.end();) {
        if (!all && !at->over->load(std::memory_order_acquire)) {
            ++at;
            continue;
        }
        at->thread.join();
        at = guests_.erase(at);
    }
}

// ---- reading

pkv_status Node::connect(const std::string &address, uint64_t timeout_ns) {
    std::string host, port;
    if (!split_address(address, host, port))
        return fail(PKV_ERR_INVALID, "\"%s\" is no address of the form host:port", address.c_str());
    std::shared_ptr<Peer> peer;
    {
        const std::lock_guard lock(connecting_);
        if (stop_.load()) return fail(PKV_ERR_CLOSED, "the node is being closed");
        const auto all = peers();
        for (const auto &known : all) {
            if (known->address() != address) continue;
            peer = finder_ != nullptr ? finder_->take(address) : nullptr; // one that was found becomes one that stays
            if (peer == nullptr) return fail(PKV_ERR_STATE, "%s is a peer already", address.c_str());
        }
        if (peer == nullptr) {
            if (all.size() >= most_peers) return fail(PKV_ERR_LIMIT, "%zu peers", all.size());
            peer = std::make_shared<Peer>(reader_, address);
            try {
                peer->start();
            } catch (const std::system_error &error) {
                return fail(PKV_ERR_NO_MEMORY, "a thread for %s: %s", address.c_str(), error.what());
            }
        }
        remote_->add(peer);
    }
    if (timeout_ns == 0) return PKV_OK;
    const pkv_status status = peer->wait_connected(deadline_after(timeout_ns));
    if (status == PKV_ERR_MISMATCH) {
        char why[512] = "";
        copy_last_error(why, sizeof why);
        remote_->remove(peer);
        peer->stop();
        return fail(status, "%s", why);
    }
    return status;
}

pkv_status Node::disconnect(const std::string &address) {
    for (const auto &peer : peers()) {
        if (peer->address() != address) continue;
        if (finder_ != nullptr) (void)finder_->take(address);
        remote_->remove(peer);
        peer->stop();
        return PKV_OK;
    }
    return fail(PKV_ERR_NOT_FOUND, "%s is no peer", address.c_str());
}

void Node::stats(pkv_node_stats &out) const {
    const auto get = [](const std::atomic<uint64_t> &counter) { return counter.load(std::memory_order_relaxed); };
    out = pkv_node_stats PKV_NODE_STATS_INIT;
    std::memcpy(out.provider, fabric_->modes().provider, sizeof out.provider - 1);
    out.guests = get(counters_->guests);
    out.accepted = get(counters_->accepted);
    out.refused = get(counters_->refused);
    out.lookups_served = get(counters_->lookups_served);
    out.fetches_served = get(counters_->fetches_served);
    out.bytes_served = get(counters_->bytes_served);
    out.leases = get(counters_->leases);
    out.expired_leases = get(counters_->expired_leases);
    out.bad_messages = get(counters_->bad_messages);
    for (const auto &peer : peers()) {
        ++out.peers;
        out.connected_peers += peer->connected();
    }
    out.reads = get(counters_->reads);
    out.failed_reads = get(counters_->failed_reads);
    out.bytes_read = get(counters_->bytes_read);
    out.late_answers = get(counters_->late_answers);
    out.reconnects = get(counters_->reconnects);
    out.promoted = get(counters_->promoted);
    out.open_offers = get(counters_->open_offers);
    out.offers = get(counters_->offers);
    out.expired_offers = get(counters_->expired_offers);
    out.pulls_served = get(counters_->pulls_served);
    out.failed_pulls_served = get(counters_->failed_pulls_served);
    out.handed_bytes = get(counters_->handed_bytes);
    out.pulls = get(counters_->pulls);
    out.failed_pulls = get(counters_->failed_pulls);
    out.pulled_bytes = get(counters_->pulled_bytes);
    if (directory_ == nullptr) return;
    const directory::Counters &directory = directory_->counters();
    out.directory_endpoints = directory_->size();
    out.directory_endpoints_up = directory_->up();
    out.directory_peers = finder_->peers().size();
    out.directory_lookups = get(directory.lookups);
    out.directory_hits = get(directory.hits);
    out.directory_failures = get(directory.failures);
    out.directory_published = get(directory.published);
    out.directory_dropped = get(directory.dropped);
    out.directory_bad_entries = get(directory.bad_entries);
}

} // namespace pkv::node
