// SPDX-License-Identifier: Apache-2.0
#include "fabric/process.h"

#include <cerrno>
#include <cstring>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

namespace pkv::fabric {
namespace {

constexpr char magic[sizeof(uint64_t)] = {'p', 'k', 'v', '-', 's', 'h', 'm', '1'};

void *pointer(uint64_t address) { return reinterpret_cast<void *>(static_cast<uintptr_t>(address)); }

bool same_secret(const Permit::Text &text, const unsigned char *key) {
    return std::memcmp(text.secret, key, sizeof text.secret) == 0;
}

uint64_t place_of(const unsigned char *key) {
    uint64_t at = 0;
    std::memcpy(&at, key + sizeof Permit::Text::secret, sizeof at);
    return at;
}

} // namespace

// ---- permits

std::unique_ptr<Permit> Permit::make(const void *base, uint64_t bytes) {
    std::unique_ptr<Permit> permit(new Permit);
    if (getrandom(permit->text_.secret, sizeof text_.secret, 0) != static_cast<ssize_t>(sizeof text_.secret))
        return nullptr;
    permit->text_.base = reinterpret_cast<uintptr_t>(base);
    permit->text_.bytes = bytes;
    return permit;
}

Permit::~Permit() { explicit_bzero(text_.secret, sizeof text_.secret); }

void Permit::write_key(unsigned char *key) const {
    const uint64_t at = reinterpret_cast<uintptr_t>(&text_);
    std::memcpy(key, text_.secret, sizeof text_.secret);
    std::memcpy(key + sizeof text_.secret, &at, sizeof at);
}

// ---- peers

void PeerProcess::write_name(const Permit &permit, unsigned char *name) {
    const auto process = static_cast<uint64_t>(getpid());
    std::memcpy(name, magic, sizeof magic);
    std::memcpy(name + sizeof magic, &process, sizeof process);
    permit.write_key(name + sizeof magic + sizeof process);
}

pkv_status PeerProcess::open(const void *name, size_t bytes, Why why) {
    uint64_t process = 0;
    const auto *text = static_cast<const unsigned char *>(name);
    if (bytes == name_bytes) std::memcpy(&process, text + sizeof magic, sizeof process);
    if (bytes != name_bytes || std::memcmp(text, magic, sizeof magic) != 0 || process == 0 || process > INT32_MAX)
        return why.fail(PKV_ERR_INVALID, "%zu bytes are no name of an endpoint of provider shm", bytes);
    const unsigned char *key = text + sizeof magic + sizeof process;
    process_ = static_cast<pid_t>(process);
    Permit::Text permit = {};
    const int error = copy(&permit, place_of(key), sizeof permit, nullptr, 0, 0);
    if (error == EPERM || error == EACCES || error == ENOSYS)
        return why.fail(
            PKV_ERR_UNSUPPORTED,
            "provider shm: the system does not let this process read process %d: %s (processes of one user, and "
            "neither Yama's ptrace_scope nor a seccomp filter against it)",
            static_cast<int>(process_), std::strerror(error));
    // Another process of that number has something else there, as another process of another namespace has.
    if (error != 0 || !same_secret(permit, key) || permit.bytes != 0)
        return why.fail(PKV_ERR_NOT_FOUND, "provider shm: the endpoint of process %d is gone",
                        static_cast<int>(process_));
    return PKV_OK;
}

pkv_status PeerProcess::find(const pkv_fabric_window &window, uint64_t &key) {
    if (window.key_bytes != Permit::key_bytes) return PKV_ERR_INVALID;
    for (const auto &lent : lent_) {
        if (std::memcmp(lent->key, window.key, sizeof lent->key) != 0) continue;
        key = reinterpret_cast<uintptr_t>(lent.get());
        return PKV_OK;
    }
    auto lent = std::make_unique<Lent>();
    lent->at = place_of(window.key);
    std::memcpy(lent->key, window.key, sizeof lent->key);
    lent_.push_back(std::move(lent));
    key = reinterpret_cast<uintptr_t>(lent_.back().get());
    return PKV_OK;
}

/// Reads the permit of a key, and whether it is that key's.
int PeerProcess::look_at(Lent &lent) const {
    const Lock lock(mutex_);
    if (lent.known.load(std::memory_order_relaxed)) return 0;
    Permit::Text text = {};
    const int error = copy(&text, lent.at, sizeof text, nullptr, 0, 0);
    if (error != 0) return error == EFAULT ? EACCES : error;
    if (!same_secret(text, lent.key)) return EACCES;
    lent.text = text;
    lent.known.store(true, std::memory_order_release);
    return 0;
}

int PeerProcess::read(void *data, uint64_t address, uint64_t bytes, uint64_t key) const {
    auto *lent = static_cast<Lent *>(pointer(key));
    if (!lent->known.load(std::memory_order_acquire))
        if (const int error = look_at(*lent); error != 0) return error;
    const uint64_t at = address - lent->text.base;
    if (address < lent->text.base || at > lent->text.bytes || bytes > lent->text.bytes - at) return EACCES;
    // The permit comes with the bytes, after them: it says that they were lent to the last, and that the process is still that one.
    Permit::Text after = {};
    if (const int error = copy(data, address, bytes, &after, lent->at, sizeof after); error != 0) return error;
    return std::memcmp(&after, &lent->text, sizeof after) == 0 ? 0 : EACCES;
}

int PeerProcess::copy(void *data, uint64_t from, uint64_t bytes, void *more, uint64_t more_from,
                      uint64_t more_bytes) const {
    const iovec here[] = {{data, bytes}, {more, more_bytes}};
    const iovec there[] = {{pointer(from), bytes}, {pointer(more_from), more_bytes}};
    const unsigned long count = more == nullptr ? 1 : 2;
    const ssize_t copied = process_vm_readv(process_, here, count, there, count, 0);
    if (copied < 0) return errno;
    return static_cast<uint64_t>(copied) == bytes + more_bytes ? 0 : EFAULT;
}

} // namespace pkv::fabric
