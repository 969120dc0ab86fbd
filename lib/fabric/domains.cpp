// SPDX-License-Identifier: Apache-2.0
#include "fabric/domains.h"

#include <algorithm>

namespace pkv::fabric {

int Domains::add(Domain &domain, const Lent &lent) {
    domain.registrations.reserve(domain.registrations.size() + 1);
    fid_mr *opened = nullptr;
    const int error =
        fi_mr_reg(domain.opened.get(), lent.base, lent.bytes, FI_REMOTE_READ, 0, lent.key, 0, &opened, nullptr);
    if (error == 0) domain.registrations.push_back({lent.key, Fid<fid_mr>(opened)});
    return error;
}

void Domains::remove(Domain &domain, uint64_t key) {
    std::erase_if(domain.registrations, [key](const Registration &registration) { return registration.key == key; });
}

int Domains::open(fid_fabric *fabric, fi_info *info, fid_domain *&domain) {
    auto fresh = std::make_unique<Domain>();
    fid_domain *opened = nullptr;
    if (const int error = fi_domain(fabric, info, &opened, nullptr); error != 0) return error;
    fresh->opened.reset(opened);
    const Lock lock(mutex_);
    for (const Lent &lent : lent_)
        if (const int error = add(*fresh, lent); error != 0) return error;
    domains_.push_back(std::move(fresh));
    domain = opened;
    return 0;
}

void Domains::close(fid_domain *domain) {
    const Lock lock(mutex_);
    std::erase_if(domains_, [domain](const auto &at) { return at->opened.get() == domain; });
}

int Domains::lend(const Lent &lent) {
    const Lock lock(mutex_);
    lent_.reserve(lent_.size() + 1);
    for (const auto &domain : domains_) {
        if (const int error = add(*domain, lent); error != 0) {
            for (const auto &other : domains_) remove(*other, lent.key);
            return error;
        }
    }
    lent_.push_back(lent);
    return 0;
}

void Domains::take_back(uint64_t key) {
    const Lock lock(mutex_);
    std::erase_if(lent_, [key](const Lent &lent) { return lent.key == key; });
    for (const auto &domain : domains_) remove(*domain, key);
}

} // namespace pkv::fabric
