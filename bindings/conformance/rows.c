/* SPDX-License-Identifier: Apache-2.0 */
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- prompts ---- */

const pkv_namespace *namespace_arg(line *l, pkv_namespace *ns) {
    static const char *const keys[] = {"model", "adapter", "adapter_id", "generation", "salt"};
    bool named = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; ++i) named = has(l, keys[i]) || named;
    if (!named) return NULL;
    *ns = (pkv_namespace)PKV_NAMESPACE_INIT;
    ns->model = bytes_arg(l, "model");
    ns->adapter = bytes_arg(l, "adapter");
    ns->adapter_id = number_arg(l, "adapter_id", 0);
    ns->adapter_generation = number_arg(l, "generation", 0);
    ns->salt = bytes_arg(l, "salt");
    return ns;
}

const pkv_prompt *prompt_arg(line *l, prompt_memory *memory) {
    list tokens = list_arg(l, "tokens");
    const char *media = text_arg(l, "media", "");
    memory->prompt = (pkv_prompt)PKV_PROMPT_INIT;
    memory->prompt.ns = namespace_arg(l, &memory->ns);
    memory->tokens = narrow(&tokens);
    memory->prompt.tokens = memory->tokens;
    memory->prompt.num_tokens = tokens.count;
    free_list(&tokens);
    while (*media != '\0' && memory->prompt.num_media < 16) { /* POSITION:TOKENS:DIGEST/... */
        unsigned long long position = 0, num = 0;
        int length = 0;
        if (sscanf(media, "%llu:%llu:%n", &position, &num, &length) != 2 || length == 0) {
            complain(l, "media is POSITION:TOKENS:DIGEST/..., not %s", media);
            break;
        }
        media += length;
        const size_t size = strcspn(media, "/");
        memory->media[memory->prompt.num_media++] = (pkv_media){position, num, bytes_of(l, media, size)};
        media += size + (media[size] == '/');
    }
    memory->prompt.media = memory->media;
    return &memory->prompt;
}

void free_prompt(prompt_memory *memory) { free(memory->tokens); }

/* ---- rows ---- */

/* Byte i of a row. */
static unsigned char pattern(uint64_t tag, uint64_t side, uint64_t layer, uint64_t token, uint64_t head, uint64_t i) {
    return (unsigned char)(tag * 7 + side * 101 + layer * 53 + token * 29 + (token >> 8) * 11 + head * 17 + i * 3);
}

/* Element i of a row of f32: a small whole number. */
static float value_pattern(uint64_t tag, uint64_t side, uint64_t layer, uint64_t token, uint64_t head, uint64_t i) {
    return (float)((int64_t)((tag + side * 5 + layer * 3 + token * 7 + head * 2 + i) % 17) - 8);
}

static const char *const dtypes[] = {"f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8", "opaque", NULL};

bool make_rows(line *l, pkv_pool *pool, uint32_t group, uint32_t layer, uint64_t position, uint64_t count, bool fill,
               row_memory *rows) {
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    memset(rows, 0, sizeof *rows);
    /* A handle or a group that is no good is for the call to refuse. */
    if (pkv_pool_layout(pool, group, 0, &layout) != PKV_OK) layout.dtype = PKV_DTYPE_F32;
    const int32_t dtype = name_arg(l, "dtype", dtypes, PKV_DTYPE_F32, layout.dtype);
    const uint64_t tag = number_arg(l, "fill", 0);
    const char *const sides = text_arg(l, "sides", "kv");
    const uint64_t row_bytes[2] = {layout.k_row_bytes, layout.v_row_bytes};
    const uint64_t stored = layout.dtype != PKV_DTYPE_OPAQUE ? pkv_dtype_bytes(layout.dtype) : 1;
    const uint64_t wanted = dtype != PKV_DTYPE_OPAQUE ? pkv_dtype_bytes(dtype) : 1;
    const bool values = dtype == PKV_DTYPE_F32 && (layout.dtype != PKV_DTYPE_F32 || has(l, "values"));
    if (dtype != layout.dtype && dtype != PKV_DTYPE_F32) return complain(l, "rows are of the group's type or of f32"), false;
    for (int s = 0; s < 2; ++s) {
        const uint64_t bytes = row_bytes[s] / stored * wanted;
        rows->given[s] = strchr(sides, s == 0 ? 'k' : 'v') != NULL && (s == 0 || bytes != 0 || layout.k_row_bytes == 0);
        rows->bytes[s] = count * layout.num_kv_heads * bytes;
        rows->data[s] = malloc((size_t)rows->bytes[s] + 1);
        if (rows->data[s] == NULL) abort();
        memset(rows->data[s], 0, (size_t)rows->bytes[s] + 1);
        rows->tensor[s] = (pkv_tensor)PKV_TENSOR_INIT;
        rows->tensor[s].data = rows->data[s];
        rows->tensor[s].dtype = dtype;
        rows->tensor[s].num_tokens = count;
        for (uint64_t t = 0; fill && t < count; ++t)
            for (uint64_t h = 0; h < layout.num_kv_heads; ++h) {
                unsigned char *const row = rows->data[s] + (t * layout.num_kv_heads + h) * bytes;
                for (uint64_t i = 0; i < (values ? bytes / 4 : bytes); ++i) {
                    const float value = value_pattern(tag, (uint64_t)s, layer, position + t, h, i);
                    if (values)
                        memcpy(row + 4 * i, &value, sizeof value);
                    else
                        row[i] = pattern(tag, (uint64_t)s, layer, position + t, h, i);
                }
            }
    }
    return true;
}

const pkv_tensor *side(row_memory *rows, int which) { return rows->given[which] ? &rows->tensor[which] : NULL; }

void out_rows(line *l, row_memory *rows) {
    if (rows->given[0]) out_digest(l, "k", rows->data[0], rows->bytes[0]);
    if (rows->given[1]) out_digest(l, "v", rows->data[1], rows->bytes[1]);
}

void free_rows(row_memory *rows) {
    free(rows->data[0]);
    free(rows->data[1]);
}
