// SPDX-License-Identifier: Apache-2.0
// The page images that a session knows: one object for each, also when several sequences need it. Guarded by the session's
// lock.
#pragma once

#include "prefetch/part.h"
#include "table/table.h"

#include <cstring>
#include <memory>
#include <unordered_map>

namespace pkv {

class KnownImages {
  public:
    explicit KnownImages(const Pool &pool) : pool_(pool) {}

    /// The image of an absent block in a group, which it has one of.
    std::shared_ptr<StoredImage> get(const Table &table, uint64_t block, const AbsentBlock &absent, uint32_t group) {
        if (images_.size() > 2 * live_ + 1024) sweep();
        std::weak_ptr<StoredImage> &known = images_[Name{absent.digest, group}];
        if (auto image = known.lock()) {
            image->tier = absent.tier[group];
            return image;
        }
        auto image = std::make_shared<StoredImage>();
        image->key = pool_.image_key(group, absent.digest);
        image->group = group;
        image->block = block;
        image->is_private = absent.is_private;
        image->tier = absent.tier[group];
        const auto tokens = table.image_tokens(block, absent);
        image->tokens.assign(tokens.begin(), tokens.end());
        known = image;
        return image;
    }

  private:
    struct Name {
        prefix::Digest digest;
        uint32_t group;
        bool operator==(const Name &) const = default;
    };
    struct Hash {
        size_t operator()(const Name &name) const {
            size_t value; // any 8 bytes of a digest are a good hash
            std::memcpy(&value, name.digest.data(), sizeof value);
            return value + name.group;
        }
    };
    void sweep() {
        std::erase_if(images_, [](const auto &item) { return item.second.expired(); });
        live_ = images_.size();
    }

    const Pool &pool_;
    std::unordered_map<Name, std::weak_ptr<StoredImage>, Hash> images_;
    size_t live_ = 0; // after the last sweep
};

} // namespace pkv
