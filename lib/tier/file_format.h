// SPDX-License-Identifier: Apache-2.0
// The file of a file tier, as bytes:
//
//   0                 header: what never changes (FileHeader), and at 512 what does (FileState)
//   records_offset    one FileRecord for each entry of the directory, by its number; zeros where there is no image
//   payload_offset    page images, where the records say; a multiple of 65536
//
// In the byte order of the machine. A page image checks itself when it is loaded; nothing here says anything about its
// bytes.
#pragma once

#include "core/status.h"

#include <pagedkv/tier_ops.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace pkv {

using FileIdentity = std::array<uint8_t, 32>; ///< BLAKE2b-256 of pkv_file_tier_options.identity

struct FileHeader {
    static constexpr uint64_t magic_value = 0x4556'4b44'4547'4150; // "PAGEDKVE" on little-endian machines
    static constexpr uint32_t version_value = 1;
    static constexpr uint32_t byte_order_value = 0x01020304;

    uint64_t magic;
    uint32_t byte_order;
    uint32_t version;
    uint64_t capacity_bytes;
    uint64_t max_images;
    uint64_t records_offset;
    uint64_t payload_offset;
    uint64_t file_bytes;
    uint64_t life;       ///< random: records of the file's earlier lives have another one
    uint64_t created_ns; ///< CLOCK_REALTIME
    FileIdentity identity;
    uint64_t reserved[4];
    uint64_t checksum; ///< XXH3-64 of all before
};
static_assert(sizeof(FileHeader) == 144);

struct FileState {
    static constexpr uint64_t offset = 512; ///< a sector of its own: a torn write of it leaves the header alone
    static constexpr uint32_t creating = 1, open = 2, closed = 3;

    uint32_t state;
    uint32_t reserved;
    uint64_t opens; ///< times the file was opened
    uint64_t checksum;
};
static_assert(sizeof(FileState) == 24);

struct FileRecord {
    static constexpr uint32_t magic_value = 0x52564b50;

    uint32_t magic;  ///< 0: no image
    uint32_t number; ///< the entry's
    uint64_t life;
    pkv_tier_key key;
    uint64_t offset; ///< in the payload region
    uint64_t size;
    uint64_t generation;  ///< of the entry
    uint64_t last_use;    ///< orders uses of all images
    uint64_t deadline_ns; ///< CLOCK_REALTIME; 0 = none
    uint32_t priority;
    uint32_t pin; ///< by retention
    uint64_t tag; ///< the namespace
    uint64_t reserved[2];
    uint64_t checksum;
};
static_assert(sizeof(FileRecord) == 128);

inline constexpr uint64_t file_header_bytes = 4096;

/// Fills in magic, sizes, offsets and checksum; capacity_bytes, max_images, life, created_ns and identity are set.
/// PKV_ERR_LIMIT when such a file would be too large.
pkv_status lay_out(FileHeader &header);
/// PKV_ERR_MISMATCH when a file that begins with this header is none that this library can use.
pkv_status check_header(const FileHeader &header, const char *path);

void seal(FileState &state);
bool is_sound(const FileState &state);
void seal(FileRecord &record);
/// For a record that is not empty: it was written whole, for this entry of the file's present life.
bool is_sound(const FileRecord &record, uint64_t number, const FileHeader &header);

FileIdentity identity_digest(const pkv_bytes &identity);
uint64_t wall_ns(); ///< CLOCK_REALTIME

} // namespace pkv
