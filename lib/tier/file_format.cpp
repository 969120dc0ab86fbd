// SPDX-License-Identifier: Apache-2.0
#include "tier/file_format.h"

#include "core/checksum.h"

#include <ctime>
#include <sodium.h>

namespace pkv {

namespace {

constexpr uint64_t payload_alignment = 65536; // of pages of any machine: none holds records and images
constexpr uint64_t max_file_bytes = uint64_t{1} << 56;

constexpr uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

/// Of all before the last field.
template <class T> uint64_t checksum_of(const T &value) {
    static_assert(offsetof(T, checksum) + sizeof(uint64_t) == sizeof(T));
    return checksum64({reinterpret_cast<const std::byte *>(&value), offsetof(T, checksum)});
}

} // namespace

pkv_status lay_out(FileHeader &header) {
    if (header.capacity_bytes > max_file_bytes || header.max_images > UINT32_MAX - 1)
        return fail(PKV_ERR_LIMIT, "a file of %llu bytes and %llu images is too large",
                    static_cast<unsigned long long>(header.capacity_bytes),
                    static_cast<unsigned long long>(header.max_images));
    header.magic = FileHeader::magic_value;
    header.byte_order = FileHeader::byte_order_value;
    header.version = FileHeader::version_value;
    header.records_offset = file_header_bytes;
    header.payload_offset = round_up(header.records_offset + header.max_images * sizeof(FileRecord), payload_alignment);
    header.file_bytes = header.payload_offset + header.capacity_bytes;
    header.checksum = checksum_of(header);
    return PKV_OK;
}

pkv_status check_header(const FileHeader &header, const char *path) {
    if (header.magic == __builtin_bswap64(FileHeader::magic_value))
        return fail(PKV_ERR_MISMATCH, "%s was made by a machine of the other byte order", path);
    if (header.magic != FileHeader::magic_value) return fail(PKV_ERR_MISMATCH, "%s is no file of a file tier", path);
    if (header.byte_order != FileHeader::byte_order_value)
        return fail(PKV_ERR_MISMATCH, "%s has byte order mark %08x, not %08x", path, header.byte_order,
                    FileHeader::byte_order_value);
    if (header.version != FileHeader::version_value)
        return fail(PKV_ERR_MISMATCH, "%s has format version %u, but this library knows only %u", path, header.version,
                    FileHeader::version_value);
    if (header.checksum != checksum_of(header))
        return fail(PKV_ERR_MISMATCH, "the header of %s is damaged: its checksum is %016llx, not %016llx", path,
                    static_cast<unsigned long long>(header.checksum),
                    static_cast<unsigned long long>(checksum_of(header)));
    FileHeader expected = header;
    if (header.capacity_bytes == 0 || header.capacity_bytes % PKV_IMAGE_ALIGNMENT != 0 || header.max_images == 0 ||
        lay_out(expected) != PKV_OK || expected.checksum != header.checksum)
        return fail(PKV_ERR_MISMATCH, "the header of %s contradicts itself", path);
    return PKV_OK;
}

void seal(FileState &state) { state.checksum = checksum_of(state); }
bool is_sound(const FileState &state) { return state.checksum == checksum_of(state); }

void seal(FileRecord &record) { record.checksum = checksum_of(record); }

bool is_sound(const FileRecord &record, uint64_t number, const FileHeader &header) {
    return record.magic == FileRecord::magic_value && record.number == number && record.life == header.life &&
           record.checksum == checksum_of(record);
}

FileIdentity identity_digest(const pkv_bytes &identity) {
    FileIdentity digest;
    crypto_generichash(digest.data(), digest.size(), static_cast<const unsigned char *>(identity.data), identity.size,
                       nullptr, 0);
    return digest;
}

uint64_t wall_ns() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

} // namespace pkv
