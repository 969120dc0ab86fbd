/* SPDX-License-Identifier: Apache-2.0 */
/* Structs of the API that own what they point to: what structs.i gives to languages. Compiled into each binding's wrapper,
 * so everything is static. Memory comes from malloc and goes with pkvb_free_*. */
#ifndef PKV_BINDINGS_STRUCTS_H
#define PKV_BINDINGS_STRUCTS_H

#include <pagedkv/pagedkv.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__)
#define PKVB_API static __attribute__((unused))
#else
#define PKVB_API static
#endif

/* PKV_OK or PKV_ERR_NO_MEMORY, of a function that is not the library's: pkv_last_error says nothing about it. */
typedef int32_t pkvb_status;

/* ---- memory ---- */

PKVB_API void *pkvb_copy(const void *data, uint64_t size) {
    void *const copy = malloc((size_t)size + (size == 0));
    if (copy != NULL && size != 0) memcpy(copy, data, (size_t)size);
    return copy;
}

/* Replaces *array, which is owned, by a copy of `count` elements; NULL when there are none. */
PKVB_API pkvb_status pkvb_set_array(void **array, const void *elements, uint64_t count, size_t size) {
    void *copy = NULL;
    if (elements != NULL && count != 0) {
        if (count > SIZE_MAX / size || (copy = pkvb_copy(elements, count * size)) == NULL) return PKV_ERR_NO_MEMORY;
    }
    free(*array);
    *array = copy;
    return PKV_OK;
}

/* Appends a copy of one element to *array, which is owned and has `count` of them. */
PKVB_API pkvb_status pkvb_append(void **array, uint64_t count, const void *element, size_t size) {
    void *const more = realloc(*array, (size_t)(count + 1) * size);
    if (more == NULL) return PKV_ERR_NO_MEMORY;
    *array = more;
    memcpy((char *)more + (size_t)count * size, element, size);
    return PKV_OK;
}

PKVB_API pkvb_status pkvb_set_bytes(pkv_bytes *bytes, const void *data, uint64_t size) {
    const pkvb_status status = pkvb_set_array((void **)&bytes->data, data, size, 1);
    if (status == PKV_OK) bytes->size = bytes->data != NULL ? size : 0;
    return status;
}

PKVB_API pkvb_status pkvb_set_text(const char **text, const char *value) {
    return pkvb_set_array((void **)text, value, value != NULL ? strlen(value) + 1 : 0, 1);
}

/* A list whose length stands before it, for fields whose length the struct tells only when it is used. */
PKVB_API void pkvb_free_counted(const void *list) {
    if (list != NULL) free((char *)list - sizeof(uint64_t));
}

/* `wanted` elements, of which those that `list` has are copied and the others 0, which the library refuses. NULL stays NULL. */
PKVB_API pkvb_status pkvb_copy_counted(void *copy, const void *list, uint64_t wanted, size_t size) {
    const void *fresh = NULL;
    if (list != NULL) {
        const uint64_t *const count = (const uint64_t *)(const void *)((const char *)list - sizeof(uint64_t));
        uint64_t *const whole = calloc((size_t)wanted + 1, sizeof *whole > size ? sizeof *whole : size);
        if (whole == NULL) return PKV_ERR_NO_MEMORY;
        whole[0] = wanted;
        memcpy(&whole[1], list, (size_t)(*count < wanted ? *count : wanted) * size);
        fresh = &whole[1];
    }
    memcpy(copy, &fresh, sizeof fresh);
    return PKV_OK;
}

PKVB_API pkvb_status pkvb_set_counted(void *field, const void *elements, uint64_t count, size_t size) {
    const void *old = NULL, *fresh = NULL;
    memcpy(&old, field, sizeof old);
    if (elements != NULL && count != 0) {
        uint64_t *const whole = count < (SIZE_MAX - sizeof *whole) / size ? malloc(sizeof *whole + (size_t)count * size) : NULL;
        if (whole == NULL) return PKV_ERR_NO_MEMORY;
        whole[0] = count;
        memcpy(&whole[1], elements, (size_t)count * size);
        fresh = &whole[1];
    }
    pkvb_free_counted(old);
    memcpy(field, &fresh, sizeof fresh);
    return PKV_OK;
}

/* Handles are values: a list of them is copied, nothing is kept open by it. */
PKVB_API pkvb_status pkvb_add_handle(void ***array, uint32_t *count, void *handle) {
    const pkvb_status status = pkvb_append((void **)array, *count, &handle, sizeof handle);
    if (status == PKV_OK) ++*count;
    return status;
}

PKVB_API pkvb_status pkvb_add_source(void ***handles, char ***names, uint64_t *count, void *handle, const char *name) {
    char *copy = NULL;
    if (pkvb_set_text((const char **)&copy, name != NULL ? name : "") != PKV_OK) return PKV_ERR_NO_MEMORY;
    if (pkvb_append((void **)handles, *count, &handle, sizeof handle) != PKV_OK ||
        pkvb_append((void **)names, *count, &copy, sizeof copy) != PKV_OK) {
        free(copy);
        return PKV_ERR_NO_MEMORY;
    }
    ++*count;
    return PKV_OK;
}

PKVB_API void pkvb_free_texts(const char *const *texts, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) free((void *)texts[i]);
    free((void *)texts);
}

/* ---- making and freeing ---- */

#define PKVB_NEW(name, ...)                                                                                            \
    PKVB_API pkv_##name *pkvb_new_##name(void) {                                                                       \
        const pkv_##name fresh = __VA_ARGS__;                                                                          \
        return pkvb_copy(&fresh, sizeof fresh);                                                                        \
    }
#define PKVB_PLAIN(name, ...)                                                                                          \
    PKVB_NEW(name, __VA_ARGS__)                                                                                            \
    PKVB_API void pkvb_free_##name(pkv_##name *self) { free(self); }

PKVB_PLAIN(sync, PKV_SYNC_INIT)
PKVB_PLAIN(tier_attachment, PKV_TIER_ATTACHMENT_INIT)
PKVB_PLAIN(layer_layout, PKV_LAYER_LAYOUT_INIT)
PKVB_PLAIN(page_info, PKV_PAGE_INFO_INIT)
PKVB_PLAIN(match, PKV_MATCH_INIT)
PKVB_PLAIN(retention, PKV_RETENTION_INIT)
PKVB_PLAIN(clear_result, PKV_CLEAR_RESULT_INIT)
PKVB_PLAIN(admit_options, PKV_ADMIT_OPTIONS_INIT)
PKVB_PLAIN(spill_result, PKV_SPILL_RESULT_INIT)
PKVB_PLAIN(table_info, PKV_TABLE_INFO_INIT)
PKVB_PLAIN(batch_arrays, PKV_BATCH_ARRAYS_INIT)
PKVB_PLAIN(histogram, PKV_HISTOGRAM_INIT)
PKVB_PLAIN(pool_stats, PKV_POOL_STATS_INIT)
PKVB_PLAIN(tier_usage, PKV_TIER_USAGE_INIT)
PKVB_PLAIN(host_tier_options, PKV_HOST_TIER_OPTIONS_INIT)
PKVB_PLAIN(tier_stats, PKV_TIER_STATS_INIT)
PKVB_PLAIN(op_info, PKV_OP_INFO_INIT)
PKVB_PLAIN(op_options, PKV_OP_OPTIONS_INIT)
PKVB_PLAIN(predictor, PKV_PREDICTOR_INIT)
PKVB_PLAIN(require_result, PKV_REQUIRE_RESULT_INIT)
PKVB_PLAIN(layer_view, PKV_LAYER_VIEW_INIT)
PKVB_PLAIN(prefetch_stats, PKV_PREFETCH_STATS_INIT)
PKVB_PLAIN(node_stats, PKV_NODE_STATS_INIT)
PKVB_PLAIN(offer_info, PKV_OFFER_INFO_INIT)

PKVB_NEW(group_options, PKV_GROUP_OPTIONS_INIT)
PKVB_API void pkvb_free_group_fields(pkv_group_options *self) {
    pkvb_free_counted((const void *)self->k_base);
    pkvb_free_counted((const void *)self->v_base);
    pkvb_free_counted(self->k_scales);
    pkvb_free_counted(self->v_scales);
}
PKVB_API void pkvb_free_group_options(pkv_group_options *self) {
    if (self == NULL) return;
    pkvb_free_group_fields(self);
    free(self);
}

PKVB_NEW(pool_options, PKV_POOL_OPTIONS_INIT)
PKVB_API void pkvb_free_pool_options(pkv_pool_options *self) {
    if (self == NULL) return;
    for (uint32_t i = 0; i < self->num_groups; ++i) pkvb_free_group_fields((pkv_group_options *)&self->groups[i]);
    free((void *)self->groups);
    free((void *)self->tiers);
    free((void *)self->in_place);
    free(self);
}

PKVB_NEW(namespace, PKV_NAMESPACE_INIT)
PKVB_API void pkvb_free_namespace(pkv_namespace *self) {
    if (self == NULL) return;
    free((void *)self->model.data);
    free((void *)self->adapter.data);
    free((void *)self->salt.data);
    free(self);
}

PKVB_NEW(prompt, PKV_PROMPT_INIT)
PKVB_API void pkvb_free_prompt(pkv_prompt *self) {
    if (self == NULL) return;
    for (uint64_t i = 0; i < self->num_media; ++i) free((void *)self->media[i].digest.data);
    free((void *)self->media);
    free((void *)self->tokens);
    pkvb_free_namespace((pkv_namespace *)self->ns);
    free(self);
}

PKVB_NEW(batch_options, PKV_BATCH_OPTIONS_INIT)
PKVB_API void pkvb_free_batch_options(pkv_batch_options *self) {
    if (self == NULL) return;
    free((void *)self->arrays);
    free(self);
}

PKVB_NEW(prometheus_sources, PKV_PROMETHEUS_SOURCES_INIT)
PKVB_API void pkvb_free_prometheus_sources(pkv_prometheus_sources *self) {
    if (self == NULL) return;
    pkvb_free_texts(self->pool_names, self->num_pools);
    pkvb_free_texts(self->tier_names, self->num_tiers);
    pkvb_free_texts(self->session_names, self->num_sessions);
    pkvb_free_texts(self->node_names, self->num_nodes);
    free((void *)self->pools);
    free((void *)self->tiers);
    free((void *)self->sessions);
    free((void *)self->nodes);
    free(self);
}

PKVB_NEW(file_tier_options, PKV_FILE_TIER_OPTIONS_INIT)
PKVB_API void pkvb_free_file_tier_options(pkv_file_tier_options *self) {
    if (self == NULL) return;
    free((void *)self->path);
    free((void *)self->identity.data);
    free(self);
}

PKVB_NEW(prefetch_options, PKV_PREFETCH_OPTIONS_INIT)
PKVB_API void pkvb_free_prefetch_options(pkv_prefetch_options *self) {
    if (self == NULL) return;
    free((void *)self->layers);
    free((void *)self->staging_pages);
    free(self);
}

PKVB_NEW(node_options, PKV_NODE_OPTIONS_INIT)
PKVB_API void pkvb_free_node_options(pkv_node_options *self) {
    if (self == NULL) return;
    free((void *)self->cluster_key.data);
    free((void *)self->name);
    free((void *)self->listen);
    free((void *)self->provider);
    free((void *)self->fabric_host);
    free((void *)self->directory);
    free((void *)self->advertise);
    free((void *)self->directory_prefix);
    free((void *)self->tiers);
    free((void *)self->pools);
    free((void *)self->identity.data);
    free(self);
}

PKVB_NEW(offer_options, PKV_OFFER_OPTIONS_INIT)
PKVB_API void pkvb_free_offer_options(pkv_offer_options *self) {
    if (self == NULL) return;
    free((void *)self->address);
    free(self);
}

PKVB_NEW(pull_options, PKV_PULL_OPTIONS_INIT)
PKVB_API void pkvb_free_pull_options(pkv_pull_options *self) {
    if (self == NULL) return;
    pkvb_free_namespace((pkv_namespace *)self->ns);
    free((void *)self->groups);
    free(self);
}

/* ---- lists ---- */

PKVB_API pkvb_status pkvb_add_group(pkv_pool_options *self, const pkv_group_options *group) {
    const uint64_t layers = group->num_layers < PKV_MAX_LAYERS ? group->num_layers : PKV_MAX_LAYERS;
    const uint64_t heads = group->num_kv_heads < PKV_MAX_HEADS ? group->num_kv_heads : PKV_MAX_HEADS;
    const uint64_t scales = group->scales == PKV_SCALES_HEAD ? layers * heads : layers;
    pkv_group_options copy = *group;
    copy.k_base = copy.v_base = NULL;
    copy.k_scales = copy.v_scales = NULL;
    if (pkvb_copy_counted(&copy.k_base, (const void *)group->k_base, layers, sizeof(void *)) != PKV_OK ||
        pkvb_copy_counted(&copy.v_base, (const void *)group->v_base, layers, sizeof(void *)) != PKV_OK ||
        pkvb_copy_counted(&copy.k_scales, group->k_scales, scales, sizeof(float)) != PKV_OK ||
        pkvb_copy_counted(&copy.v_scales, group->v_scales, scales, sizeof(float)) != PKV_OK ||
        pkvb_append((void **)&self->groups, self->num_groups, &copy, sizeof copy) != PKV_OK) {
        pkvb_free_group_fields(&copy);
        return PKV_ERR_NO_MEMORY;
    }
    ++self->num_groups;
    return PKV_OK;
}

PKVB_API pkvb_status pkvb_add_attachment(pkv_pool_options *self, const pkv_tier_attachment *attachment) {
    const pkvb_status status = pkvb_append((void **)&self->tiers, self->num_tiers, attachment, sizeof *attachment);
    if (status == PKV_OK) ++self->num_tiers;
    return status;
}

PKVB_API pkvb_status pkvb_add_arrays(pkv_batch_options *self, const pkv_batch_arrays *arrays) {
    const pkvb_status status = pkvb_append((void **)&self->arrays, self->num_arrays, arrays, sizeof *arrays);
    if (status == PKV_OK) ++self->num_arrays;
    return status;
}

PKVB_API pkvb_status pkvb_add_layer(pkv_prefetch_options *self, uint32_t group, uint32_t layer) {
    const pkv_layer_ref ref = {group, layer};
    const pkvb_status status = pkvb_append((void **)&self->layers, self->num_layers, &ref, sizeof ref);
    if (status == PKV_OK) ++self->num_layers;
    return status;
}

/* The library reads an entry for each group of the pool: those that are not given are 0, the default. */
PKVB_API pkvb_status pkvb_set_staging_pages(pkv_prefetch_options *self, const uint64_t *pages, uint64_t num_groups) {
    uint64_t padded[PKV_MAX_GROUPS] = {0};
    if (pages != NULL) memcpy(padded, pages, (size_t)(num_groups < PKV_MAX_GROUPS ? num_groups : PKV_MAX_GROUPS) * sizeof *pages);
    return pkvb_set_array((void **)&self->staging_pages, padded, PKV_MAX_GROUPS, sizeof *padded);
}

PKVB_API pkvb_status pkvb_replace_ns(const pkv_namespace **field, const pkv_namespace *ns) {
    pkv_namespace *copy = NULL;
    if (ns != NULL) {
        if ((copy = pkvb_new_namespace()) == NULL) return PKV_ERR_NO_MEMORY;
        copy->adapter_id = ns->adapter_id;
        copy->adapter_generation = ns->adapter_generation;
        if (pkvb_set_bytes(&copy->model, ns->model.data, ns->model.size) != PKV_OK ||
            pkvb_set_bytes(&copy->adapter, ns->adapter.data, ns->adapter.size) != PKV_OK ||
            pkvb_set_bytes(&copy->salt, ns->salt.data, ns->salt.size) != PKV_OK) {
            pkvb_free_namespace(copy);
            return PKV_ERR_NO_MEMORY;
        }
    }
    pkvb_free_namespace((pkv_namespace *)*field);
    *field = copy;
    return PKV_OK;
}

PKVB_API pkvb_status pkvb_set_ns(pkv_prompt *self, const pkv_namespace *ns) { return pkvb_replace_ns(&self->ns, ns); }
PKVB_API pkvb_status pkvb_set_pull_ns(pkv_pull_options *self, const pkv_namespace *ns) { return pkvb_replace_ns(&self->ns, ns); }

PKVB_API pkvb_status pkvb_set_pull_groups(pkv_pull_options *self, const uint32_t *groups, uint64_t num_groups) {
    if (num_groups > UINT32_MAX) return PKV_ERR_NO_MEMORY;
    const pkvb_status status = pkvb_set_array((void **)&self->groups, groups, num_groups, sizeof *groups);
    if (status == PKV_OK) self->num_groups = self->groups != NULL ? (uint32_t)num_groups : 0;
    return status;
}

PKVB_API pkvb_status pkvb_set_tokens(pkv_prompt *self, const pkv_token *tokens, uint64_t num_tokens) {
    const pkvb_status status = pkvb_set_array((void **)&self->tokens, tokens, num_tokens, sizeof *tokens);
    if (status == PKV_OK) self->num_tokens = self->tokens != NULL ? num_tokens : 0;
    return status;
}

PKVB_API pkvb_status pkvb_add_media(pkv_prompt *self, uint64_t position, uint64_t num_placeholders, const void *data,
                                   uint64_t size) {
    pkv_media media = {position, num_placeholders, {NULL, 0}};
    if (pkvb_set_bytes(&media.digest, data, size) != PKV_OK) return PKV_ERR_NO_MEMORY;
    if (pkvb_append((void **)&self->media, self->num_media, &media, sizeof media) != PKV_OK) {
        free((void *)media.digest.data);
        return PKV_ERR_NO_MEMORY;
    }
    ++self->num_media;
    return PKV_OK;
}

/* ---- attributes that are no field of their own ---- */

#define PKVB_GET(name, attribute, expression)                                                                          \
    PKVB_API uint64_t pkv_##name##_##attribute##_get(pkv_##name *self) { return (uint64_t)(uintptr_t)(self->expression); }
#define PKVB_SET(name, attribute, type, expression)                                                                    \
    PKVB_API void pkv_##name##_##attribute##_set(pkv_##name *self, uint64_t value) {                                   \
        self->expression = (type)(uintptr_t)value;                                                                     \
    }
#define PKVB_BOTH(name, attribute, type, expression)                                                                   \
    PKVB_GET(name, attribute, expression)                                                                              \
    PKVB_SET(name, attribute, type, expression)
#define PKVB_STRIDES(define, name, side, field)                                                                        \
    define(name, side##_page_stride, field.page) define(name, side##_token_stride, field.token)                        \
        define(name, side##_head_stride, field.head)
#define PKVB_STRIDE(name, attribute, expression) PKVB_BOTH(name, attribute, uint64_t, expression)

PKVB_BOTH(sync, handle_address, void *, handle)
PKVB_STRIDES(PKVB_STRIDE, group_options, k, k_strides)
PKVB_STRIDES(PKVB_STRIDE, group_options, v, v_strides)
PKVB_STRIDES(PKVB_GET, layer_layout, k, k)
PKVB_STRIDES(PKVB_GET, layer_layout, v, v)
PKVB_GET(layer_layout, k_base_address, k_base)
PKVB_GET(layer_layout, v_base_address, v_base)
PKVB_GET(layer_layout, k_scales_address, k_scales)
PKVB_GET(layer_layout, v_scales_address, v_scales)
PKVB_BOTH(batch_arrays, block_table_address, int32_t *, block_table)
PKVB_BOTH(batch_arrays, block_indptr_address, int32_t *, block_indptr)
PKVB_BOTH(batch_arrays, block_indices_address, int32_t *, block_indices)
PKVB_BOTH(batch_arrays, slot_mapping_address, int64_t *, slot_mapping)
PKVB_BOTH(batch_options, lengths_address, int32_t *, lengths)
PKVB_BOTH(batch_options, last_page_len_address, int32_t *, last_page_len)
PKVB_BOTH(prefetch_options, slices_address, int32_t *, slices)
PKVB_BOTH(prefetch_options, slice_indptr_address, int32_t *, slice_indptr)
PKVB_GET(layer_view, slices_address, slices)
PKVB_GET(layer_view, indptr_address, indptr)
PKVB_GET(layer_view, first_block_address, first_block)

#endif
