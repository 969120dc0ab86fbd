// SPDX-License-Identifier: Apache-2.0
// Numbers and bytes of messages, little-endian whatever the machine. A reader is given bytes of a stranger: it never leaves
// them, and once something is missing, everything after it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pkv::node {

class WireWriter {
  public:
    template <class T> void number(T value) {
        for (size_t i = 0; i < sizeof(T); ++i)
            bytes_.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
    }
    void bytes(const void *data, size_t size) {
        const auto *from = static_cast<const std::byte *>(data);
        bytes_.insert(bytes_.end(), from, from + size);
    }
    /// With its size before it.
    void text(std::string_view value) {
        number(static_cast<uint32_t>(value.size()));
        bytes(value.data(), value.size());
    }
    std::vector<std::byte> take() { return std::move(bytes_); }
    size_t size() const { return bytes_.size(); }

  private:
    std::vector<std::byte> bytes_;
};

class WireReader {
  public:
    explicit WireReader(std::span<const std::byte> bytes) : left_(bytes) {}

    template <class T> T number() {
        uint64_t value = 0;
        if (!has(sizeof(T))) return 0;
        for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<uint64_t>(left_[i]) << (8 * i);
        left_ = left_.subspan(sizeof(T));
        return static_cast<T>(value);
    }
    void bytes(void *out, size_t size) {
        if (!has(size)) {
            std::memset(out, 0, size);
            return;
        }
        std::memcpy(out, left_.data(), size);
        left_ = left_.subspan(size);
    }
    std::string text(size_t longest) {
        const auto size = number<uint32_t>();
        if (size > longest || !has(size)) {
            good_ = false;
            return {};
        }
        std::string value(reinterpret_cast<const char *>(left_.data()), size);
        left_ = left_.subspan(size);
        return value;
    }
    /// A number of items that follow, each of at least `item_bytes`: more than there can be is none.
    uint32_t count(uint32_t most, size_t item_bytes) {
        const auto value = number<uint32_t>();
        if (value > most || value > left_.size() / item_bytes) {
            good_ = false;
            return 0;
        }
        return value;
    }
    /// Everything was there, and nothing else.
    bool complete() const { return good_ && left_.empty(); }

  private:
    bool has(size_t size) {
        good_ = good_ && size <= left_.size();
        return good_;
    }
    std::span<const std::byte> left_;
    bool good_ = true;
};

} // namespace pkv::node
