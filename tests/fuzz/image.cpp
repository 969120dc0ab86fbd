// SPDX-License-Identifier: Apache-2.0
// Page images: what a file or a peer gives back is the image that was asked for, or none. The first byte says how much of it is
// made good before it is looked at: nobody guesses a checksum.
#include "fuzz/fuzz.h"

#include "core/checksum.h"
#include "layout/image.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

using namespace pkv;

namespace {

constexpr size_t checksum_at = 16; // behind magic, version and byte order
constexpr size_t sums_at = 152;

struct Bench {
    Geometry geometry;
    PageMemory memory;
    ImageFormat format;
    ImageName name;
    std::array<pkv_token, 4> tokens{10, 20, 30, 40};

    Bench() {
        pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
        group.num_pages = 2;
        group.num_layers = 2;
        group.num_kv_heads = 2;
        group.k_head_dim = group.v_head_dim = 4;
        group.dtype = PKV_DTYPE_F8_E4M3;
        group.scales = PKV_SCALES_TOKEN_HEAD;
        group.aux_bytes = 8;
        must(make_geometry(group, 0, 4, geometry) == PKV_OK &&
             memory.create(geometry, PKV_HUGE_PAGES_NEVER) == PKV_OK && format.create(geometry, 0) == PKV_OK);
        PrefixDigest prefix{};
        prefix.fill(5);
        name.key = format.key(prefix);
        name.block = 3;
        name.tokens = tokens;
    }
};

Bench &bench() {
    static Bench made;
    return made;
}

struct Aligned {
    void operator()(std::byte *memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<std::byte, Aligned>;

Buffer buffer_of(size_t bytes) { return Buffer(static_cast<std::byte *>(std::aligned_alloc(4096, bytes))); }

void make_good(std::byte *image, const ImageFormat &format, uint8_t how) {
    if ((how & 2) != 0)
        for (uint32_t layer = 0; layer < 2; ++layer) {
            const uint64_t sum = checksum64({image + format.slice_offset(layer), format.slice_stride()});
            std::memcpy(image + sums_at + layer * sizeof sum, &sum, sizeof sum);
        }
    if ((how & 1) == 0) return;
    std::memset(image + checksum_at, 0, sizeof(uint64_t));
    const uint64_t sum = checksum64({image, format.header_bytes()});
    std::memcpy(image + checksum_at, &sum, sizeof sum);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Bench &b = bench();
    if (size == 0) return 0;
    const uint64_t bytes = b.format.image_bytes();
    const Buffer image = buffer_of(bytes);
    std::memset(image.get(), 0, bytes);
    std::memcpy(image.get(), data + 1, std::min<uint64_t>(size - 1, bytes));
    make_good(image.get(), b.format, data[0]);
    const char *why = nullptr;
    ImageHead head;
    const bool good_head = b.format.read_head(image.get(), b.name, head, &why);
    if (!good_head) must(why != nullptr);
    const bool good = b.format.unpack(image.get(), bytes, b.name, b.memory, 0, &why);
    must(!good || good_head);
    if (good_head) { // all slices alone: the same as all at once
        bool slices = true;
        for (uint32_t layer = 0; layer < 2; ++layer)
            slices =
                b.format.unpack_layer(image.get() + b.format.slice_offset(layer), head, layer, b.memory, layer, 1) &&
                slices;
        must(slices == good);
    }
    must(!b.format.unpack(image.get(), bytes - 1, b.name, b.memory, 0, &why));
    return 0;
}

void add_seeds(const AddSeed &add) {
    Bench &b = bench();
    const uint64_t bytes = b.format.image_bytes();
    const Buffer image = buffer_of(bytes + 4096);
    b.memory.fill_page(0, 0x11);
    for (const bool named : {true, false}) {
        ImageName name = b.name;
        if (!named) name.tokens = {};
        name.rows = named ? UINT32_MAX : 3;
        b.format.pack(b.memory, 0, name, image.get());
        for (const unsigned how : {0u, 1u, 3u}) {
            // Only as much as is not zero: the target fills up.
            uint64_t used = how == 0 ? bytes : b.format.header_bytes();
            while (used != 0 && image.get()[used - 1] == std::byte{0}) --used;
            std::vector<std::byte> seed(1 + used);
            seed[0] = static_cast<std::byte>(how);
            std::copy_n(image.get(), used, seed.begin() + 1);
            add(seed.data(), seed.size());
        }
    }
}
