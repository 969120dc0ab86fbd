// SPDX-License-Identifier: Apache-2.0
// The header of an image, in the machine's byte order:
//
//   Front
//   uint64 sums       XXH3-64 of each slice with its padding: one layer can be checked alone
//   float scales      for each layer of scales of token and head: K, then V, both [token, head] whatever the in-page order
//   bytes             aux bytes of the page
//   int32 tokens      page_tokens of them, zeros if they are not known
//   zeros             up to header_bytes
#include "layout/image.h"

#include "core/blake2b.h"
#include "core/checksum.h"

#include "layout/image_slices.h"

#include <cinttypes>
#include <cstring>
#include <type_traits>
#include <vector>

namespace pkv {
namespace {

constexpr char magic[8] = {'P', 'K', 'V', 'P', 'A', 'G', '\r', '\n'};
constexpr uint32_t format_version = 1;
constexpr uint32_t byte_order = 0x01020304;
constexpr uint64_t max_image_bytes = uint64_t{1} << 40;

struct Front {
    char magic[8];
    uint32_t version;
    uint32_t byte_order;
    uint64_t checksum; // XXH3-64 of the whole header, with 0 here
    uint64_t image_bytes;
    uint64_t header_bytes;
    uint64_t slice_stride;
    uint64_t slice_bytes;
    uint64_t scale_bytes;
    uint64_t block;
    uint32_t num_slices;
    uint32_t aux_bytes;
    int32_t layout;      // PKV_LAYOUT_* of the rows in the slices
    uint32_t num_tokens; // 0, or those of a page
    uint8_t shape[32];
    pkv_tier_key key;
};
static_assert(sizeof(Front) == 152 && std::is_trivially_copyable_v<Front>);
static_assert(slice_alignment == PKV_IMAGE_ALIGNMENT);

/// Where the parts of a header lie.
struct Parts {
    uint64_t sums = sizeof(Front);
    uint64_t scales;
    uint64_t aux;
    uint64_t tokens;
    uint64_t end;

    Parts(uint64_t num_layers, uint64_t scale_bytes, uint64_t aux_bytes, uint64_t page_tokens)
        : scales(sums + num_layers * sizeof(uint64_t)), aux(scales + scale_bytes), tokens(aux + aux_bytes),
          end(tokens + page_tokens * sizeof(pkv_token)) {}
};

/// Up to the next whole piece; false beyond the limit.
bool pad(uint64_t bytes, uint64_t &padded) {
    if (bytes > max_image_bytes) return false;
    padded = (bytes + slice_alignment - 1) / slice_alignment * slice_alignment;
    return true;
}

/// A hash that begins with what it is for.
Blake2b tagged(const char *tag) {
    Blake2b hash;
    hash.add(tag, std::strlen(tag) + 1);
    return hash;
}

/// All that decides whether the bytes of one pool mean the same in another: not where and in which order they lie.
std::array<uint8_t, 32> shape_of(const Geometry &geometry, uint32_t group) {
    Blake2b hash = tagged("pagedkv shape of a page image");
    const uint64_t fields[] = {format_version,
                               byte_order,
                               group,
                               geometry.page_tokens,
                               geometry.num_layers,
                               geometry.first_layer,
                               geometry.total_layers,
                               geometry.heads,
                               geometry.first_head,
                               geometry.total_heads,
                               static_cast<uint64_t>(geometry.dtype),
                               geometry.k_row_bytes,
                               geometry.v_row_bytes,
                               static_cast<uint64_t>(geometry.attention),
                               geometry.window,
                               geometry.sinks,
                               static_cast<uint64_t>(geometry.scales),
                               geometry.aux_bytes};
    hash.add(fields, sizeof fields);
    for (const std::vector<float> *scales : {&geometry.k_scales, &geometry.v_scales}) {
        hash.add(scales->size());
        hash.add(scales->data(), scales->size() * sizeof(float));
    }
    uint8_t digest[32];
    hash.finish(digest);
    return std::to_array(digest);
}

uint64_t header_checksum(Front front, const std::byte *image, uint64_t header_bytes) {
    front.checksum = 0;
    return checksum64_of_two(reinterpret_cast<const std::byte *>(&front), sizeof front, image + sizeof front,
                             header_bytes - sizeof front);
}

/// Calls part(scales of the page) for each scaled side, in the order of the header.
template <class Part> void each_scaled_side(PageMemory &memory, pkv_page page, uint32_t num_layers, Part &&part) {
    for (uint32_t layer = 0; layer < num_layers; ++layer)
        for (const RowScales *side : {&memory.scales(layer).k, &memory.scales(layer).v})
            if (side->rows != nullptr) part(side->row(static_cast<uint64_t>(page), 0, 0));
}

} // namespace

pkv_status ImageFormat::create(const Geometry &geometry, uint32_t group) {
    const uint64_t sides = geometry.v_row_bytes != 0 ? 2 : 1;
    const auto too_large = [&] {
        return fail(PKV_ERR_LIMIT,
                    "a page of %u tokens, %u layers, %u heads and rows of %" PRIu64 " + %" PRIu64
                    " bytes makes an image of more than 2^40 bytes",
                    geometry.page_tokens, geometry.num_layers, geometry.heads, geometry.k_row_bytes,
                    geometry.v_row_bytes);
    };
    // Products of two 32-bit numbers, then by more.
    const uint64_t rows = uint64_t{geometry.page_tokens} * geometry.heads;
    uint64_t row_bytes = 0, slice_bytes = 0, slice_stride = 0, slices = 0;
    if (__builtin_add_overflow(geometry.k_row_bytes, geometry.v_row_bytes, &row_bytes) ||
        __builtin_mul_overflow(rows, row_bytes, &slice_bytes) || !pad(slice_bytes, slice_stride) ||
        __builtin_mul_overflow(slice_stride, geometry.num_layers, &slices))
        return too_large();
    uint64_t side_scales = 0, scales = 0;
    if (geometry.scales == PKV_SCALES_TOKEN_HEAD &&
        (__builtin_mul_overflow(rows, sizeof(float), &side_scales) ||
         __builtin_mul_overflow(side_scales, sides * geometry.num_layers, &scales) || scales > max_image_bytes))
        return too_large();
    uint64_t header = 0, image = 0;
    if (!pad(Parts(geometry.num_layers, scales, geometry.aux_bytes, geometry.page_tokens).end, header) ||
        __builtin_add_overflow(header, slices, &image) || image > max_image_bytes)
        return too_large();

    image_bytes_ = image;
    header_bytes_ = header;
    slice_stride_ = slice_stride;
    slice_bytes_ = slice_bytes;
    side_scale_bytes_ = side_scales;
    scale_bytes_ = scales;
    shape_ = shape_of(geometry, group);
    page_tokens_ = geometry.page_tokens;
    num_layers_ = geometry.num_layers;
    layout_ = geometry.layout;
    heads_ = geometry.heads;
    k_row_bytes_ = geometry.k_row_bytes;
    v_row_bytes_ = geometry.v_row_bytes;
    aux_bytes_ = geometry.aux_bytes;
    return PKV_OK;
}

uint32_t ImageFormat::version() { return format_version; }

pkv_tier_key ImageFormat::key(const PrefixDigest &prefix) const {
    Blake2b hash = tagged("pagedkv key of a page image");
    hash.add(shape_.data(), shape_.size());
    hash.add(prefix.data(), prefix.size());
    pkv_tier_key key;
    hash.finish(key.bytes);
    return key;
}

/// Rows that were never written are what the page held before, maybe for somebody else: they do not leave the pool.
void ImageFormat::zero_rows(std::byte *image, uint32_t first) const {
    const Parts parts(num_layers_, scale_bytes_, aux_bytes_, page_tokens_);
    const uint64_t row_bytes[] = {k_row_bytes_, v_row_bytes_};
    for (uint32_t layer = 0; layer < num_layers_; ++layer) {
        std::byte *side = image + slice_offset(layer);
        for (const uint64_t bytes : row_bytes) {
            if (layout_ == PKV_LAYOUT_NHD)
                std::memset(side + first * heads_ * bytes, 0, (page_tokens_ - first) * heads_ * bytes);
            else
                for (uint64_t head = 0; head < heads_; ++head)
                    std::memset(side + (head * page_tokens_ + first) * bytes, 0, (page_tokens_ - first) * bytes);
            side += uint64_t{page_tokens_} * heads_ * bytes;
        }
        sum_slice(image, layer);
    }
    // Scales lie side by side, each in order of tokens and heads.
    for (uint64_t at = 0; side_scale_bytes_ != 0 && at < scale_bytes_; at += side_scale_bytes_)
        std::memset(image + parts.scales + at + first * heads_ * sizeof(float), 0,
                    (page_tokens_ - first) * heads_ * sizeof(float));
}

void ImageFormat::sum_slice(std::byte *image, uint32_t layer) const {
    const Parts parts(num_layers_, scale_bytes_, aux_bytes_, page_tokens_);
    const uint64_t sum = checksum64({image + slice_offset(layer), slice_stride_});
    std::memcpy(image + parts.sums + layer * sizeof sum, &sum, sizeof sum);
}

void ImageFormat::pack(PageMemory &memory, pkv_page page, const ImageName &name, std::byte *image) const {
    const Parts parts(num_layers_, scale_bytes_, aux_bytes_, page_tokens_);
    for (uint32_t layer = 0; layer < num_layers_; ++layer) {
        const uint64_t sum = pack_slice(memory.layer(layer), page, layout_, image + slice_offset(layer), slice_stride_);
        std::memcpy(image + parts.sums + layer * sizeof sum, &sum, sizeof sum);
    }
    drain_slices();
    std::byte *scales = image + parts.scales;
    if (scale_bytes_ != 0)
        each_scaled_side(memory, page, num_layers_, [&](const float *side) {
            std::memcpy(scales, side, side_scale_bytes_);
            scales += side_scale_bytes_;
        });
    if (name.rows < page_tokens_) zero_rows(image, name.rows);
    write_header(memory, page, name, image);
}

float *ImageFormat::scales(std::byte *image, uint32_t layer) const {
    if (scale_bytes_ == 0) return nullptr;
    const Parts parts(num_layers_, scale_bytes_, aux_bytes_, page_tokens_);
    return reinterpret_cast<float *>(image + parts.scales + layer * (scale_bytes_ / num_layers_));
}

void ImageFormat::finish(PageMemory &memory, pkv_page page, const ImageName &name, std::byte *image) const {
    for (uint32_t layer = 0; layer < num_layers_; ++layer)
        std::memset(slice(image, layer) + slice_bytes_, 0, slice_stride_ - slice_bytes_);
    if (name.rows < page_tokens_)
        zero_rows(image, name.rows);
    else
        for (uint32_t layer = 0; layer < num_layers_; ++layer) sum_slice(image, layer);
    write_header(memory, page, name, image);
}

/// The header but for the sums and the scales, which are there already.
void ImageFormat::write_header(PageMemory &memory, pkv_page page, const ImageName &name, std::byte *image) const {
    const Parts parts(num_layers_, scale_bytes_, aux_bytes_, page_tokens_);
    std::memset(image + parts.end, 0, header_bytes_ - parts.end);
    if (aux_bytes_ != 0) std::memcpy(image + parts.aux, memory.aux(page), aux_bytes_);
    const bool named = name.tokens.size() == page_tokens_;
    if (named)
        std::memcpy(image + parts.tokens, name.tokens.data(), name.tokens.size_bytes());
    else
        std::memset(image + parts.tokens, 0, parts.end - parts.tokens);

    Front front{};
    std::memcpy(front.magic, magic, sizeof magic);
    front.version = format_version;
    front.byte_order = byte_order;
    front.image_bytes = image_bytes_;
    front.header_bytes = header_bytes_;
    front.slice_stride = slice_stride_;
    front.slice_bytes = slice_bytes_;
    front.scale_bytes = scale_bytes_;
    front.block = name.block;
    front.num_slices = num_layers_;
    front.aux_bytes = aux_bytes_;
    front.layout = layout_;
    front.num_tokens = named ? page_tokens_ : 0;
    std::memcpy(front.shape, shape_.data(), shape_.size());
    front.key = name.key;
    front.checksum = header_checksum(front, image, header_bytes_);
    std::memcpy(image, &front, sizeof front);
}

/// What is wrong with a header; nullptr if it is the one of this name. Sizes are the format's, never the image's: nothing in
/// an image leads a read out of it.
const char *ImageFormat::check_header(const std::byte *image, const ImageName &name, int32_t &layout) const {
    Front front;
    std::memcpy(&front, image, sizeof front);
    if (std::memcmp(front.magic, magic, sizeof magic) != 0) return "no page image";
    if (front.byte_order != byte_order) return "another byte order";
    if (front.version != format_version) return "another format version";
    if (front.image_bytes != image_bytes_ || front.header_bytes != header_bytes_ ||
        front.slice_stride != slice_stride_ || front.slice_bytes != slice_bytes_ || front.scale_bytes != scale_bytes_ ||
        front.num_slices != num_layers_ || front.aux_bytes != aux_bytes_)
        return "sizes of another format";
    if (front.checksum != header_checksum(front, image, header_bytes_)) return "checksum of the header";
    if (std::memcmp(front.shape, shape_.data(), shape_.size()) != 0) return "shape of another group";
    if (std::memcmp(&front.key, &name.key, sizeof front.key) != 0) return "key of another image";
    if (front.block != name.block && front.block != any_block && name.block != any_block) return "another block";
    if (front.layout != PKV_LAYOUT_NHD && front.layout != PKV_LAYOUT_HND) return "unknown in-page order";
    if (front.num_tokens != 0 && front.num_tokens != page_tokens_) return "number of tokens";
    const Parts parts(num_layers_, scale_bytes_, aux_bytes_, page_tokens_);
    if (front.num_tokens != 0 && name.tokens.size() == page_tokens_ &&
        std::memcmp(image + parts.tokens, name.tokens.data(), name.tokens.size_bytes()) != 0)
        return "tokens of another block";
    layout = front.layout;
    return nullptr;
}

bool ImageFormat::unpack(const std::byte *image, uint64_t bytes, const ImageName &name, PageMemory &memory,
                         pkv_page page, const char **why) const {
    int32_t layout = 0;
    if (const char *const wrong = bytes != image_bytes_ ? "size of the image" : check_header(image, name, layout)) {
        *why = wrong;
        return false;
    }
    const Parts parts(num_layers_, scale_bytes_, aux_bytes_, page_tokens_);
    bool good = true;
    for (uint32_t layer = 0; layer < num_layers_ && good; ++layer) {
        uint64_t recorded;
        std::memcpy(&recorded, image + parts.sums + layer * sizeof recorded, sizeof recorded);
        good = recorded == unpack_slice(image + slice_offset(layer), slice_stride_, layout, memory.layer(layer), page);
    }
    drain_slices();
    if (!good) {
        *why = "checksum of a slice";
        return false;
    }
    const std::byte *scales = image + parts.scales;
    if (scale_bytes_ != 0)
        each_scaled_side(memory, page, num_layers_, [&](float *side) {
            std::memcpy(side, scales, side_scale_bytes_);
            scales += side_scale_bytes_;
        });
    unpack_aux(image, memory, page);
    return true;
}

bool ImageFormat::check(const std::byte *image, uint64_t bytes, const ImageName &name, int32_t &layout,
                        const char **why) const {
    if (const char *const wrong = bytes != image_bytes_ ? "size of the image" : check_header(image, name, layout)) {
        *why = wrong;
        return false;
    }
    const Parts parts(num_layers_, scale_bytes_, aux_bytes_, page_tokens_);
    for (uint32_t layer = 0; layer < num_layers_; ++layer) {
        uint64_t recorded;
        std::memcpy(&recorded, image + parts.sums + layer * sizeof recorded, sizeof recorded);
        if (recorded == checksum64({image + slice_offset(layer), slice_stride_})) continue;
        *why = "checksum of a slice";
        return false;
    }
    return true;
}

void ImageFormat::unpack_aux(const std::byte *image, PageMemory &memory, pkv_page page) const {
    const Parts parts(num_layers_, scale_bytes_, aux_bytes_, page_tokens_);
    if (aux_bytes_ != 0) std::memcpy(memory.aux(page), image + parts.aux, aux_bytes_);
}

bool ImageFormat::check_slice(const std::byte *slice, const ImageHead &head, uint32_t layer) const {
    return checksum64({slice, slice_stride_}) == head.sums[layer];
}

bool ImageFormat::read_head(const std::byte *header, const ImageName &name, ImageHead &head, const char **why) const {
    int32_t layout = 0;
    if (const char *const wrong = check_header(header, name, layout)) {
        *why = wrong;
        return false;
    }
    const Parts parts(num_layers_, scale_bytes_, aux_bytes_, page_tokens_);
    std::vector<std::byte> scales(header + parts.scales, header + parts.scales + scale_bytes_);
    std::vector<uint64_t> sums(num_layers_);
    std::memcpy(sums.data(), header + parts.sums, num_layers_ * sizeof(uint64_t));
    head.layout = layout;
    head.scales = std::move(scales);
    head.sums = std::move(sums);
    return true;
}

bool ImageFormat::unpack_layer(const std::byte *slice, const ImageHead &head, uint32_t layer, PageMemory &memory,
                               uint32_t to_layer, pkv_page page) const {
    const uint64_t sum = unpack_slice(slice, slice_stride_, head.layout, memory.layer(to_layer), page);
    drain_slices();
    if (sum != head.sums[layer]) return false;
    if (scale_bytes_ == 0) return true;
    const uint64_t sides = scale_bytes_ / side_scale_bytes_ / num_layers_;
    const std::byte *scales = head.scales.data() + layer * sides * side_scale_bytes_;
    for (const RowScales *side : {&memory.scales(to_layer).k, &memory.scales(to_layer).v}) {
        if (side->rows == nullptr) continue;
        std::memcpy(side->row(static_cast<uint64_t>(page), 0, 0), scales, side_scale_bytes_);
        scales += side_scale_bytes_;
    }
    return true;
}

} // namespace pkv
