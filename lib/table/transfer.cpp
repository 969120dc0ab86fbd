// SPDX-License-Identifier: Apache-2.0
// Export and import of one sequence. The buffer, in the machine's byte order:
//
//   Header
//   GroupRecord            one for each layer group
//   float scales           for each group with fixed scales: K, then V
//   int32 tokens           the committed ones
//   media                  for each: position, num_tokens, digest size (uint64), digest
//   rows                   for each group, layer, and K then V: rows of tokens [0, head_end) and [tail_begin, num_tokens), in
//                          order [token, head]; behind them, with a scale for each row, float scales [token, head]
//   uint64                 XXH3-64 of all before
//
// Between head_end and tail_begin lie the blocks that a window has passed.
#include "core/checksum.h"
#include "core/status.h"
#include "layout/strides.h"
#include "table/table.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

namespace pkv {
namespace {

constexpr char magic[8] = {'P', 'K', 'V', 'S', 'E', 'Q', '\r', '\n'};
constexpr uint32_t format_version = 1;
constexpr uint32_t byte_order = 0x01020304;

struct Header {
    char magic[8];
    uint32_t version;
    uint32_t byte_order;
    uint64_t size; // of the whole buffer
    uint64_t num_tokens;
    uint64_t num_media;
    uint32_t num_groups;
    uint32_t reserved;
    prefix::Digest ns;
};
static_assert(sizeof(Header) == 80);

struct GroupRecord {
    uint32_t num_layers, first_layer, total_layers;
    uint32_t heads, first_head, total_heads;
    int32_t dtype, attention;
    uint32_t window, sinks;
    int32_t scales;
    uint32_t reserved;
    uint64_t k_row_bytes, v_row_bytes;
    uint64_t head_end, tail_begin;

    uint64_t rows(uint64_t num_tokens) const { return head_end + (num_tokens - tail_begin); }
};
static_assert(sizeof(GroupRecord) == 80);

GroupRecord record_of(const Geometry &geometry) {
    GroupRecord record{};
    record.num_layers = geometry.num_layers;
    record.first_layer = geometry.first_layer;
    record.total_layers = geometry.total_layers;
    record.heads = geometry.heads;
    record.first_head = geometry.first_head;
    record.total_heads = geometry.total_heads;
    record.dtype = geometry.dtype;
    record.attention = geometry.attention;
    record.window = geometry.window;
    record.sinks = geometry.sinks;
    record.scales = geometry.scales;
    record.k_row_bytes = geometry.k_row_bytes;
    record.v_row_bytes = geometry.v_row_bytes;
    return record;
}

pkv_status check_same(uint32_t group, const char *field, uint64_t theirs, uint64_t ours) {
    if (theirs == ours) return PKV_OK;
    return fail(PKV_ERR_MISMATCH, "group %u: %s is %" PRIu64 " in the buffer and %" PRIu64 " in the pool", group, field,
                theirs, ours);
}

pkv_status check_record(uint32_t group, const GroupRecord &theirs, const Geometry &geometry) {
    const GroupRecord ours = record_of(geometry);
    PKV_TRY(check_same(group, "num_layers", theirs.num_layers, ours.num_layers));
    PKV_TRY(check_same(group, "first_layer", theirs.first_layer, ours.first_layer));
    PKV_TRY(check_same(group, "total_layers", theirs.total_layers, ours.total_layers));
    PKV_TRY(check_same(group, "num_kv_heads", theirs.heads, ours.heads));
    PKV_TRY(check_same(group, "first_head", theirs.first_head, ours.first_head));
    PKV_TRY(check_same(group, "total_heads", theirs.total_heads, ours.total_heads));
    PKV_TRY(check_same(group, "dtype", static_cast<uint64_t>(theirs.dtype), static_cast<uint64_t>(ours.dtype)));
    PKV_TRY(
        check_same(group, "attention", static_cast<uint64_t>(theirs.attention), static_cast<uint64_t>(ours.attention)));
    PKV_TRY(check_same(group, "window", theirs.window, ours.window));
    PKV_TRY(check_same(group, "sinks", theirs.sinks, ours.sinks));
    PKV_TRY(check_same(group, "scales", static_cast<uint64_t>(theirs.scales), static_cast<uint64_t>(ours.scales)));
    PKV_TRY(check_same(group, "k row bytes", theirs.k_row_bytes, ours.k_row_bytes));
    return check_same(group, "v row bytes", theirs.v_row_bytes, ours.v_row_bytes);
}

/// Writes pieces one after another into a buffer, or only counts them.
class Writer {
  public:
    explicit Writer(std::span<std::byte> buffer) : buffer_(buffer) {}
    std::byte *take(uint64_t bytes) {
        std::byte *at = buffer_.empty() ? nullptr : buffer_.data() + size_;
        size_ += bytes;
        return at;
    }
    void put(const void *data, uint64_t bytes) {
        std::byte *at = take(bytes);
        if (at != nullptr && bytes != 0) std::memcpy(at, data, bytes);
    }
    uint64_t size() const { return size_; }

  private:
    std::span<std::byte> buffer_;
    uint64_t size_ = 0;
};

/// Takes pieces out of a buffer; nullptr when it is too short.
class Reader {
  public:
    explicit Reader(std::span<const std::byte> buffer) : buffer_(buffer) {}
    const std::byte *take(uint64_t bytes) {
        if (bytes > buffer_.size() - at_) return nullptr;
        const std::byte *here = buffer_.data() + at_;
        at_ += bytes;
        return here;
    }
    bool get(void *out, uint64_t bytes) {
        const std::byte *here = take(bytes);
        if (here != nullptr && bytes != 0) std::memcpy(out, here, bytes);
        return here != nullptr;
    }
    uint64_t left() const { return buffer_.size() - at_; }

  private:
    std::span<const std::byte> buffer_;
    uint64_t at_ = 0;
};

pkv_status cut_short() { return fail(PKV_ERR_INVALID, "the buffer ends in the middle of its content"); }

/// A sequence on its way in.
struct Incoming {
    Header header;
    std::vector<GroupRecord> groups;
    prefix::Prompt prompt;
    std::vector<pkv_token> tokens;
};

pkv_status read_header(std::span<const std::byte> buffer, Reader &reader, Header &header) {
    if (buffer.size() < sizeof(Header) + sizeof(uint64_t) || !reader.get(&header, sizeof header))
        return fail(PKV_ERR_INVALID, "a buffer of %zu bytes holds no sequence", buffer.size());
    if (std::memcmp(header.magic, magic, sizeof magic) != 0)
        return fail(PKV_ERR_INVALID, "the buffer does not begin like an exported sequence");
    if (header.byte_order != byte_order)
        return fail(PKV_ERR_MISMATCH, "the buffer was written in another byte order (0x%08x)", header.byte_order);
    if (header.version != format_version)
        return fail(PKV_ERR_MISMATCH, "the buffer has format version %u, this library knows %u", header.version,
                    format_version);
    if (header.size != buffer.size())
        return fail(PKV_ERR_INVALID, "the buffer has %zu bytes, its header says %" PRIu64, buffer.size(), header.size);
    uint64_t stored = 0;
    std::memcpy(&stored, buffer.data() + buffer.size() - sizeof stored, sizeof stored);
    const uint64_t computed = checksum64(buffer.first(buffer.size() - sizeof stored));
    if (stored != computed)
        return fail(PKV_ERR_INVALID, "the buffer is damaged: checksum %016" PRIx64 ", not %016" PRIx64, computed,
                    stored);
    return PKV_OK;
}

pkv_status read_media(Reader &reader, const Header &header, std::vector<prefix::Media> &media) {
    uint64_t last = 0;
    for (uint64_t i = 0; i < header.num_media; ++i) {
        uint64_t fields[3];
        if (!reader.get(fields, sizeof fields)) return cut_short();
        const std::byte *digest = fields[2] <= PKV_MAX_MEDIA_DIGEST ? reader.take(fields[2]) : nullptr;
        if (digest == nullptr || fields[0] >= header.num_tokens || fields[0] < last)
            return fail(PKV_ERR_INVALID, "media %" PRIu64 " of the buffer is no media", i);
        last = fields[0];
        media.push_back({fields[0], fields[1], std::string(reinterpret_cast<const char *>(digest), fields[2])});
    }
    return PKV_OK;
}

pkv_status check_ranges(uint32_t group, const GroupRecord &record, const Header &header, uint32_t page_tokens,
                        const Group &ours) {
    const bool whole = record.head_end == header.num_tokens && record.tail_begin == header.num_tokens;
    if (record.head_end > record.tail_begin || record.tail_begin > header.num_tokens || (ours.full() && !whole))
        return fail(PKV_ERR_INVALID, "group %u: rows up to %" PRIu64 " and from %" PRIu64 " of %" PRIu64, group,
                    record.head_end, record.tail_begin, header.num_tokens);
    const uint64_t window_begin = header.num_tokens > record.window ? header.num_tokens - record.window : 0;
    if (!whole &&
        (record.tail_begin > window_begin || record.head_end < std::min<uint64_t>(record.sinks, record.tail_begin)))
        return fail(PKV_ERR_INVALID,
                    "group %u: rows up to %" PRIu64 " and from %" PRIu64 " lack some of the window or the sinks", group,
                    record.head_end, record.tail_begin);
    if (!whole && (record.head_end % page_tokens != 0 || record.tail_begin % page_tokens != 0))
        return fail(PKV_ERR_MISMATCH,
                    "group %u: its window was cut at tokens %" PRIu64 " and %" PRIu64
                    ", which pages of %u do not divide",
                    group, record.head_end, record.tail_begin, page_tokens);
    return PKV_OK;
}

pkv_status read_front(std::span<const std::byte> buffer, const Pool &pool, Reader &reader, Incoming &in) {
    PKV_TRY(read_header(buffer, reader, in.header));
    if (in.header.num_groups != pool.num_groups())
        return fail(PKV_ERR_MISMATCH, "the buffer has %u layer groups, the pool %u", in.header.num_groups,
                    pool.num_groups());
    in.groups.resize(in.header.num_groups);
    if (!reader.get(in.groups.data(), in.groups.size() * sizeof(GroupRecord))) return cut_short();
    for (uint32_t group = 0; group < in.header.num_groups; ++group) {
        PKV_TRY(check_record(group, in.groups[group], pool.geometry(group)));
        PKV_TRY(check_ranges(group, in.groups[group], in.header, pool.page_tokens(), pool.group(group)));
    }
    for (uint32_t group = 0; group < in.header.num_groups; ++group)
        for (const std::vector<float> *scales : {&pool.geometry(group).k_scales, &pool.geometry(group).v_scales}) {
            const std::byte *theirs = reader.take(scales->size() * sizeof(float));
            if (theirs == nullptr) return cut_short();
            if (!scales->empty() && std::memcmp(theirs, scales->data(), scales->size() * sizeof(float)) != 0)
                return fail(PKV_ERR_MISMATCH, "group %u: the scales in the buffer are not the pool's", group);
        }
    const std::byte *tokens = in.header.num_tokens <= reader.left() / sizeof(pkv_token)
                                  ? reader.take(in.header.num_tokens * sizeof(pkv_token))
                                  : nullptr;
    if (tokens == nullptr) return cut_short();
    in.tokens.resize(in.header.num_tokens);
    if (!in.tokens.empty()) std::memcpy(in.tokens.data(), tokens, in.tokens.size() * sizeof(pkv_token));
    PKV_TRY(read_media(reader, in.header, in.prompt.media));
    in.prompt.ns = in.header.ns;
    in.prompt.tokens = in.tokens;
    return PKV_OK;
}

/// Tokens of a group that have pages: from the first to head_end, and from tail_begin on.
void set_ranges(std::span<const pkv_page> list, uint32_t page_tokens, uint64_t num_tokens, GroupRecord &record) {
    const uint64_t blocks = blocks_for(num_tokens, page_tokens);
    uint64_t head = 0;
    while (head < blocks && list[head] != PKV_NO_PAGE) ++head;
    record.head_end = record.tail_begin = num_tokens;
    if (head == blocks) return;
    uint64_t tail = blocks;
    while (tail > head && list[tail - 1] != PKV_NO_PAGE) --tail;
    record.head_end = head * page_tokens;
    record.tail_begin = std::min(tail * page_tokens, num_tokens);
}

/// Goes over the pieces of rows in the buffer's order: piece(layer, is_k, first token, tokens, row bytes).
template <class Piece> pkv_status each_piece(const GroupRecord &record, uint64_t num_tokens, Piece &&piece) {
    for (uint32_t layer = 0; layer < record.num_layers; ++layer)
        for (const bool is_k : {true, false}) {
            const uint64_t row_bytes = is_k ? record.k_row_bytes : record.v_row_bytes;
            if (row_bytes == 0) continue;
            if (record.head_end > 0) PKV_TRY(piece(layer, is_k, uint64_t{0}, record.head_end, row_bytes));
            if (record.tail_begin < num_tokens)
                PKV_TRY(piece(layer, is_k, record.tail_begin, num_tokens - record.tail_begin, row_bytes));
        }
    return PKV_OK;
}

} // namespace

// ---- export --------------------------------------------------------------------------------------------------------

pkv_status Table::export_to(std::span<std::byte> buffer, uint64_t &size) {
    PKV_TRY(check_admitted());
    PKV_TRY(check_resident());
    if (tokens_.size() < committed_)
        return fail(PKV_ERR_STATE, "%" PRIu64 " tokens are committed, but only %zu are named", committed_,
                    tokens_.size());
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) PKV_TRY(pool_->need_memory(group));
    Header header{};
    std::memcpy(header.magic, magic, sizeof magic);
    header.version = format_version;
    header.byte_order = byte_order;
    header.size = size; // from an earlier pass
    header.num_tokens = committed_;
    header.num_groups = pool_->num_groups();
    header.ns = pool_->namespace_of(frontier_);
    for (const prefix::Media &media : media_) header.num_media += media.position < committed_;

    Writer out(buffer);
    out.put(&header, sizeof header);
    std::vector<GroupRecord> records;
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
        records.push_back(record_of(pool_->geometry(group)));
        set_ranges(lists_[group], page_tokens_, committed_, records.back());
        out.put(&records.back(), sizeof(GroupRecord));
    }
    for (uint32_t group = 0; group < pool_->num_groups(); ++group)
        for (const std::vector<float> *scales : {&pool_->geometry(group).k_scales, &pool_->geometry(group).v_scales})
            out.put(scales->data(), scales->size() * sizeof(float));
    out.put(tokens_.data(), committed_ * sizeof(pkv_token));
    for (uint64_t i = 0; i < header.num_media; ++i) {
        const uint64_t fields[3] = {media_[i].position, media_[i].num_tokens, media_[i].digest.size()};
        out.put(fields, sizeof fields);
        out.put(media_[i].digest.data(), media_[i].digest.size());
    }
    Turn turn;
    PKV_TRY(turn.begin(pool_->device(), nullptr));
    if (turn.on_device() && !buffer.empty()) PKV_TRY(turn.after(waits()));
    for (uint32_t group = 0; group < pool_->num_groups(); ++group)
        PKV_TRY(each_piece(records[group], committed_,
                           [&](uint32_t layer, bool is_k, uint64_t first, uint64_t count, uint64_t row_bytes) {
                               const Geometry &geometry = pool_->geometry(group);
                               std::byte *rows = out.take(count * geometry.heads * row_bytes);
                               const bool scaled = geometry.scales == PKV_SCALES_TOKEN_HEAD;
                               std::byte *scales = scaled ? out.take(count * geometry.heads * sizeof(float)) : nullptr;
                               if (rows == nullptr) return PKV_OK;
                               return pool_->take_out(group, layer, is_k, lists_[group].data(), first, count, rows,
                                                      scales, turn);
                           }));
    PKV_TRY(turn.end());
    const uint64_t checked = out.size();
    const uint64_t checksum = buffer.empty() ? 0 : checksum64(buffer.first(checked));
    out.put(&checksum, sizeof checksum);
    size = out.size();
    return PKV_OK;
}

// ---- import --------------------------------------------------------------------------------------------------------

pkv_status Table::import_from(std::span<const std::byte> buffer) {
    if (admitted()) return fail(PKV_ERR_STATE, "the table has a sequence of %zu tokens already", tokens_.size());
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) PKV_TRY(pool_->need_memory(group));
    Incoming in;
    Reader reader(buffer);
    PKV_TRY(read_front(buffer, *pool_, reader, in));
    uint64_t rows = sizeof(uint64_t); // the checksum
    for (const GroupRecord &record : in.groups) {
        const uint64_t sides = record.v_row_bytes != 0 ? 2 : 1;
        const uint64_t scales = record.scales == PKV_SCALES_TOKEN_HEAD ? sides * sizeof(float) : 0;
        uint64_t bytes = record.rows(in.header.num_tokens); // at most as many as tokens, which fit into the buffer
        if (__builtin_mul_overflow(bytes, uint64_t{record.num_layers} * record.heads, &bytes) ||
            __builtin_mul_overflow(bytes, record.k_row_bytes + record.v_row_bytes + scales, &bytes) ||
            __builtin_add_overflow(rows, bytes, &rows))
            return cut_short();
    }
    if (rows != reader.left())
        return fail(PKV_ERR_INVALID, "%" PRIu64 " bytes of rows in the buffer, not %" PRIu64, reader.left(), rows);

    std::vector<pkv_slot> slots(in.header.num_tokens);
    PKV_TRY(admit_handed(in.prompt, std::move(in.tokens), false, [&](uint32_t group, uint64_t block) {
        const uint64_t token = block * page_tokens_;
        return token < in.groups[group].head_end || token >= in.groups[group].tail_begin;
    }));
    pkv_status status = PKV_ERR_NO_MEMORY;
    try {
        status = take_rows(in.groups, slots, [&reader](uint64_t bytes) { return reader.take(bytes); });
    } catch (const std::bad_alloc &) {
        fail(status, "no memory to import %" PRIu64 " tokens", in.header.num_tokens);
    }
    if (status != PKV_OK) {
        clear();
        return status;
    }
    return commit(in.header.num_tokens);
}

/// Writes the rows of a buffer into the pages that there are now for them.
template <class Record, class Take>
pkv_status Table::take_rows(const std::vector<Record> &records, std::span<pkv_slot> slots, Take &&take) {
    Turn turn;
    PKV_TRY(turn.begin(pool_->device(), nullptr));
    if (turn.on_device()) PKV_TRY(turn.after(waits()));
    for (uint32_t group = 0; group < pool_->num_groups(); ++group)
        PKV_TRY(each_piece(records[group], slots.size(),
                           [&](uint32_t layer, bool is_k, uint64_t first, uint64_t count, uint64_t row_bytes) {
                               const Geometry &geometry = pool_->geometry(group);
                               const std::byte *rows = take(count * geometry.heads * row_bytes);
                               const bool scaled = geometry.scales == PKV_SCALES_TOKEN_HEAD;
                               const std::byte *scales =
                                   scaled ? take(count * geometry.heads * sizeof(float)) : nullptr;
                               return pool_->put_in(group, layer, is_k, lists_[group].data(), first, count, rows,
                                                    scales, slots, turn);
                           }));
    return turn.end();
}

} // namespace pkv
