/* SPDX-License-Identifier: Apache-2.0 */
/* Structs as objects: each begins as its PKV_*_INIT says and owns what it points to, so that no language has to keep
 * memory for it. Fields that are numbers are attributes as they are; the rest is reached through what stands here (the
 * code is in structs.h). Byte strings and lists are parameters of the kinds in parameters.i. */

%define PKV_MAKE(name)
%extend pkv_##name {
    pkv_##name() { return pkvb_new_##name(); }
    ~pkv_##name() { pkvb_free_##name($self); }
}
%enddef

PKV_MAKE(sync)
PKV_MAKE(group_options)
PKV_MAKE(tier_attachment)
PKV_MAKE(pool_options)
PKV_MAKE(layer_layout)
PKV_MAKE(page_info)
PKV_MAKE(namespace)
PKV_MAKE(prompt)
PKV_MAKE(match)
PKV_MAKE(retention)
PKV_MAKE(clear_result)
PKV_MAKE(admit_options)
PKV_MAKE(spill_result)
PKV_MAKE(table_info)
PKV_MAKE(batch_arrays)
PKV_MAKE(batch_options)
PKV_MAKE(histogram)
PKV_MAKE(pool_stats)
PKV_MAKE(prometheus_sources)
PKV_MAKE(tier_usage)
PKV_MAKE(host_tier_options)
PKV_MAKE(file_tier_options)
PKV_MAKE(tier_stats)
PKV_MAKE(op_info)
PKV_MAKE(op_options)
PKV_MAKE(predictor)
PKV_MAKE(prefetch_options)
PKV_MAKE(require_result)
PKV_MAKE(layer_view)
PKV_MAKE(prefetch_stats)
PKV_MAKE(node_options)
PKV_MAKE(node_stats)
PKV_MAKE(offer_options)
PKV_MAKE(offer_info)
PKV_MAKE(pull_options)

/* Counts of lists that are owned follow what was added. */
%immutable pkv_pool_options::num_groups;
%immutable pkv_pool_options::num_tiers;
%immutable pkv_prompt::num_tokens;
%immutable pkv_prompt::num_media;
%immutable pkv_batch_options::num_arrays;
%immutable pkv_prefetch_options::num_layers;
%immutable pkv_prometheus_sources::num_pools;
%immutable pkv_prometheus_sources::num_tiers;
%immutable pkv_prometheus_sources::num_sessions;
%immutable pkv_prometheus_sources::num_nodes;
%immutable pkv_node_options::num_tiers;
%immutable pkv_node_options::num_pools;
%immutable pkv_pull_options::num_groups;

/* Members that are added, and the structs that are given back as copies. A method that adds or sets gives a pkvb_status:
 * PKV_OK or PKV_ERR_NO_MEMORY. Addresses are numbers, 0 = NULL: what they name is not owned, and not copied. */
%rename("%s") add_group;
%rename("%s") add_tier;
%rename("%s") add_pool;
%rename("%s") add_session;
%rename("%s") add_node;
%rename("%s") add_media;
%rename("%s") add_layer;
%rename("%s") add_arrays;
%rename("%s", regextarget=1, %$ismember) "^(set|get)_[a-z0-9_]+$";
%rename("%s", regextarget=1, %$ismember) "^[a-z0-9_]+_address$";
%rename("%s", regextarget=1, %$ismember) "^[kv]_(page|token|head)_stride$";
%newobject get_usage;
%newobject get_layout;
%newobject get_load_times;
%newobject get_queue_times;
%newobject get_exposed_times;

%extend pkv_sync {
    uint64_t handle_address; /* stream, event, or the counter's address */
}

%extend pkv_group_options {
    /* PKV_MEMORY_CALLER: one address for each layer */
    pkvb_status set_k_base(const uint64_t *addresses, uint64_t num_addresses) {
        return pkvb_set_counted(&$self->k_base, addresses, num_addresses, sizeof(void *));
    }
    pkvb_status set_v_base(const uint64_t *addresses, uint64_t num_addresses) {
        return pkvb_set_counted(&$self->v_base, addresses, num_addresses, sizeof(void *));
    }
    pkvb_status set_k_scales(const float *scales, uint64_t num_scales) {
        return pkvb_set_counted(&$self->k_scales, scales, num_scales, sizeof *scales);
    }
    pkvb_status set_v_scales(const float *scales, uint64_t num_scales) {
        return pkvb_set_counted(&$self->v_scales, scales, num_scales, sizeof *scales);
    }
    uint64_t k_page_stride;
    uint64_t k_token_stride;
    uint64_t k_head_stride;
    uint64_t v_page_stride;
    uint64_t v_token_stride;
    uint64_t v_head_stride;
}

%extend pkv_tier_attachment {
    void set_tier(pkv_tier *tier) { $self->tier = tier; }
}

%extend pkv_pool_options {
    pkvb_status add_group(const pkv_group_options *group) { return pkvb_add_group($self, group); } /* copied */
    pkvb_status add_tier(const pkv_tier_attachment *attachment) { return pkvb_add_attachment($self, attachment); }
    pkvb_status set_in_place(const pkv_sync *sync) { /* copied; NULL = none */
        return pkvb_set_array((void **)&$self->in_place, sync, 1, sizeof *sync);
    }
}

%extend pkv_layer_layout {
    const uint64_t k_base_address;
    const uint64_t v_base_address;
    const uint64_t k_page_stride;
    const uint64_t k_token_stride;
    const uint64_t k_head_stride;
    const uint64_t v_page_stride;
    const uint64_t v_token_stride;
    const uint64_t v_head_stride;
    const uint64_t k_scales_address;
    const uint64_t v_scales_address;
}

%extend pkv_namespace {
    pkvb_status set_model(const void *data, uint64_t size) { return pkvb_set_bytes(&$self->model, data, size); }
    pkvb_status set_adapter(const void *data, uint64_t size) { return pkvb_set_bytes(&$self->adapter, data, size); }
    pkvb_status set_salt(const void *data, uint64_t size) { return pkvb_set_bytes(&$self->salt, data, size); }
}

%extend pkv_prompt {
    pkvb_status set_ns(const pkv_namespace *ns) { return pkvb_set_ns($self, ns); } /* copied; NULL = none */
    pkvb_status set_tokens(const pkv_token *tokens, uint64_t num_tokens) {
        return pkvb_set_tokens($self, tokens, num_tokens);
    }
    pkvb_status add_media(uint64_t position, uint64_t num_placeholders, const void *data, uint64_t size) {
        return pkvb_add_media($self, position, num_placeholders, data, size);
    }
}

%extend pkv_match {
    uint64_t get_tier_tokens(uint32_t tier) { return tier < PKV_MAX_TIERS ? $self->tier_tokens[tier] : 0; }
}

%extend pkv_batch_arrays {
    uint64_t block_table_address;
    uint64_t block_indptr_address;
    uint64_t block_indices_address;
    uint64_t slot_mapping_address;
}

%extend pkv_batch_options {
    pkvb_status add_arrays(const pkv_batch_arrays *arrays) { return pkvb_add_arrays($self, arrays); } /* copied */
    uint64_t lengths_address;
    uint64_t last_page_len_address;
}

%extend pkv_histogram {
    uint64_t get_bucket(uint32_t bucket) { return bucket < PKV_HISTOGRAM_BUCKETS ? $self->buckets[bucket] : 0; }
}

%extend pkv_prometheus_sources {
    pkvb_status add_pool(pkv_pool *pool, const char *name) {
        return pkvb_add_source((void ***)&$self->pools, (char ***)&$self->pool_names, &$self->num_pools, pool, name);
    }
    pkvb_status add_tier(pkv_tier *tier, const char *name) {
        return pkvb_add_source((void ***)&$self->tiers, (char ***)&$self->tier_names, &$self->num_tiers, tier, name);
    }
    pkvb_status add_session(pkv_prefetch *session, const char *name) {
        return pkvb_add_source((void ***)&$self->sessions, (char ***)&$self->session_names, &$self->num_sessions, session,
                               name);
    }
    pkvb_status add_node(pkv_node *node, const char *name) {
        return pkvb_add_source((void ***)&$self->nodes, (char ***)&$self->node_names, &$self->num_nodes, node, name);
    }
}

%extend pkv_file_tier_options {
    pkvb_status set_path(const char *path) { return pkvb_set_text(&$self->path, path); }
    pkvb_status set_identity(const void *data, uint64_t size) { return pkvb_set_bytes(&$self->identity, data, size); }
}

%extend pkv_tier_stats {
    pkv_tier_usage *get_usage() { return pkvb_copy(&$self->usage, sizeof $self->usage); }
}

%extend pkv_op_options {
    void set_queue(pkv_queue *queue) { $self->queue = queue; }
}

%extend pkv_prefetch_options {
    pkvb_status add_layer(uint32_t group, uint32_t layer) { return pkvb_add_layer($self, group, layer); }
    pkvb_status set_staging_pages(const uint64_t *staging_pages, uint64_t num_groups) { /* of the pool */
        return pkvb_set_staging_pages($self, staging_pages, num_groups);
    }
    uint64_t slices_address;
    uint64_t slice_indptr_address;
}

%extend pkv_layer_view {
    const uint64_t slices_address;
    const uint64_t indptr_address;
    const uint64_t first_block_address;
    pkv_layer_layout *get_layout() { return pkvb_copy(&$self->layout, sizeof $self->layout); }
}

%extend pkv_prefetch_stats {
    pkv_histogram *get_load_times() { return pkvb_copy(&$self->load, sizeof $self->load); }
    pkv_histogram *get_queue_times() { return pkvb_copy(&$self->queue, sizeof $self->queue); }
    pkv_histogram *get_exposed_times() { return pkvb_copy(&$self->exposed, sizeof $self->exposed); }
}

%extend pkv_node_options {
    pkvb_status set_cluster_key(const void *data, uint64_t size) { return pkvb_set_bytes(&$self->cluster_key, data, size); }
    pkvb_status set_name(const char *name) { return pkvb_set_text(&$self->name, name); }
    pkvb_status set_listen(const char *listen) { return pkvb_set_text(&$self->listen, listen); }
    pkvb_status set_provider(const char *provider) { return pkvb_set_text(&$self->provider, provider); }
    pkvb_status set_fabric_host(const char *fabric_host) { return pkvb_set_text(&$self->fabric_host, fabric_host); }
    pkvb_status set_directory(const char *directory) { return pkvb_set_text(&$self->directory, directory); }
    pkvb_status set_advertise(const char *advertise) { return pkvb_set_text(&$self->advertise, advertise); }
    pkvb_status set_directory_prefix(const char *directory_prefix) {
        return pkvb_set_text(&$self->directory_prefix, directory_prefix);
    }
    pkvb_status set_identity(const void *data, uint64_t size) { return pkvb_set_bytes(&$self->identity, data, size); }
    pkvb_status add_tier(pkv_tier *tier) {
        return pkvb_add_handle((void ***)&$self->tiers, &$self->num_tiers, tier);
    }
    pkvb_status add_pool(pkv_pool *pool) {
        return pkvb_add_handle((void ***)&$self->pools, &$self->num_pools, pool);
    }
}

%extend pkv_offer_options {
    pkvb_status set_address(const char *address) { return pkvb_set_text(&$self->address, address); }
}

%extend pkv_pull_options {
    pkvb_status set_ns(const pkv_namespace *ns) { return pkvb_set_pull_ns($self, ns); } /* copied; NULL = none */
    pkvb_status set_groups(const uint32_t *groups, uint64_t num_groups) {
        return pkvb_set_pull_groups($self, groups, num_groups);
    }
}
