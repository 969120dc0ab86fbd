// SPDX-License-Identifier: Apache-2.0
// Exported sequences: a buffer is taken in whole, or the table stays empty and the pool as it was. The first byte says whether its
// size and checksum are made good before.
#include "fuzz/fuzz.h"

#include "core/checksum.h"

#include <pagedkv/pagedkv.h>

#include <cstring>
#include <vector>

namespace {

constexpr size_t size_at = 16; // behind magic, version and byte order

pkv_pool *pool() {
    static pkv_pool *const made = [] {
        pkv_group_options groups[2] = {PKV_GROUP_OPTIONS_INIT, PKV_GROUP_OPTIONS_INIT};
        for (pkv_group_options &group : groups) {
            group.num_pages = 8;
            group.num_layers = 1;
            group.num_kv_heads = 1;
            group.k_head_dim = group.v_head_dim = 4;
        }
        groups[0].dtype = PKV_DTYPE_I8;
        groups[0].scales = PKV_SCALES_TOKEN_HEAD;
        groups[1].attention = PKV_ATTENTION_WINDOW;
        groups[1].window = 4;
        groups[1].sinks = 1;
        pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
        options.page_tokens = 4;
        options.num_groups = 2;
        options.groups = groups;
        pkv_pool *fresh = nullptr;
        must(pkv_pool_create(&options, &fresh) == PKV_OK);
        return fresh;
    }();
    return made;
}

uint64_t held_pages(uint32_t group) {
    pkv_pool_stats stats = PKV_POOL_STATS_INIT;
    must(pkv_pool_get_stats(pool(), group, &stats) == PKV_OK);
    return stats.held_pages;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    std::vector<uint8_t> buffer(data + 1, data + size); // exactly: one byte more is seen
    if (data[0] % 2 == 1 && buffer.size() >= size_at + 2 * sizeof(uint64_t)) {
        const uint64_t bytes = buffer.size();
        std::memcpy(buffer.data() + size_at, &bytes, sizeof bytes);
        const size_t end = buffer.size() - sizeof(uint64_t);
        const uint64_t sum = pkv::checksum64({reinterpret_cast<const std::byte *>(buffer.data()), end});
        std::memcpy(buffer.data() + end, &sum, sizeof sum);
    }
    pkv_table *table = nullptr;
    must(pkv_table_create(pool(), &table) == PKV_OK);
    const pkv_status status = pkv_table_import(table, buffer.data(), buffer.size());
    pkv_table_info info = PKV_TABLE_INFO_INIT;
    must(pkv_table_get_info(table, &info) == PKV_OK);
    if (status == PKV_OK) {
        must(info.committed == info.named);
        uint64_t bytes = 0;
        must(pkv_table_export(table, nullptr, 0, &bytes) == PKV_OK);
    } else {
        must(info.blocks == 0 && info.named == 0 && held_pages(0) == 0 && held_pages(1) == 0);
    }
    must(pkv_table_destroy(table, nullptr) == PKV_OK);
    must(held_pages(0) == 0 && held_pages(1) == 0);
    must(pkv_pool_clear_all(pool(), nullptr) == PKV_OK);
    return 0;
}

void add_seeds(const AddSeed &add) {
    for (const uint64_t num_tokens : {3u, 10u}) {
        std::vector<pkv_token> tokens;
        for (uint64_t i = 0; i < num_tokens; ++i) tokens.push_back(static_cast<pkv_token>(i));
        const pkv_media media = {1, 2, {"an image", 8}};
        pkv_prompt prompt = PKV_PROMPT_INIT;
        prompt.tokens = tokens.data();
        prompt.num_tokens = num_tokens;
        prompt.media = &media;
        prompt.num_media = num_tokens == 3 ? 0 : 1;
        pkv_table *table = nullptr;
        must(pkv_table_create(pool(), &table) == PKV_OK && pkv_table_admit(table, &prompt, nullptr, nullptr) == PKV_OK);
        std::vector<float> rows(num_tokens * 4, 1.5f);
        std::vector<uint16_t> halves(num_tokens * 4, 0x3c00);
        pkv_tensor tensor = PKV_TENSOR_INIT;
        tensor.num_tokens = num_tokens;
        tensor.data = rows.data();
        tensor.dtype = PKV_DTYPE_F32;
        must(pkv_table_write(table, 0, 0, 0, num_tokens, &tensor, &tensor, nullptr) == PKV_OK);
        tensor.data = halves.data();
        tensor.dtype = PKV_DTYPE_F16;
        must(pkv_table_write(table, 1, 0, 0, num_tokens, &tensor, &tensor, nullptr) == PKV_OK);
        must(pkv_table_commit(table, num_tokens, nullptr) == PKV_OK && pkv_table_window(table, nullptr) == PKV_OK);
        uint64_t size = 0;
        must(pkv_table_export(table, nullptr, 0, &size) == PKV_OK);
        std::vector<uint8_t> seed(1 + size);
        must(pkv_table_export(table, seed.data() + 1, size, &size) == PKV_OK);
        for (const unsigned how : {0u, 1u}) {
            seed[0] = static_cast<uint8_t>(how);
            add(seed.data(), seed.size());
        }
        must(pkv_table_destroy(table, nullptr) == PKV_OK && pkv_pool_clear_all(pool(), nullptr) == PKV_OK);
    }
}
