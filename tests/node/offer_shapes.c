/* SPDX-License-Identifier: Apache-2.0 */
/* What sequences that are handed over can be: rows of every kind, scales, windows, namespaces, media; and what keeps two pools
 * or nodes apart. */
#include "node/handover.h"
#include "table/transfer.h"

enum { tag = 5 };

static pkv_pull_options pull_options(uint32_t flags) {
    pkv_pull_options options = PKV_PULL_OPTIONS_INIT;
    options.flags = flags;
    return options;
}

/* Offers, pulls, and ends the offer. */
static pkv_table *hand_over(nodes *n, pkv_table *table, pkv_pool *to, const pkv_pull_options *options) {
    pkv_offer *offer = offer_of(n->giver, table, NULL);
    const ticket t = ticket_of(offer);
    pkv_table *copy = pulled(begin_pull_of(n->puller, to, &t, 1, options, 0));
    assert_ok(pkv_offer_close(offer));
    return copy;
}
static void is_refused(nodes *n, pkv_table *table, pkv_pool *to, const pkv_pull_options *options, pkv_status status, const char *message) {
    pkv_offer *offer = offer_of(n->giver, table, NULL);
    const ticket t = ticket_of(offer);
    pull_fails(begin_pull_of(n->puller, to, &t, 1, options, 0), status, message);
    assert_ok(pkv_offer_close(offer));
    all_released(to);
}

/* ---- rows */

static void rows_of_every_kind_come_over_in_every_form(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    for (int kind = 0; kind < kinds; ++kind)
        for (int form = 0; form < forms; ++form) {
            place from = make_place(kind, form, 4), to = make_place(kind, forms - 1 - form, kind == sliding ? 2 : 5);
            pkv_table *table = admit_counted(from.pool, 1, num_tokens, 0);
            put_and_commit(from.pool, table, num_tokens, tag);
            pkv_table *copy = hand_over(&n, table, to.pool, NULL);
            same_rows(to.pool, copy, 0, 0, num_tokens, tag, 0);
            if (kind == sliding) same_rows(to.pool, copy, 1, num_tokens - 6, 6, tag, num_tokens - 6);
            end_table(copy);
            end_table(table);
            end_place(&from);
            end_place(&to);
        }
    close_nodes(&n);
}

static pkv_pool *scaled_pool(int32_t scales, const shard *s, const float *k_scales, const float *v_scales) {
    pkv_group_options group = group_of(s);
    group.dtype = PKV_DTYPE_F8_E4M3;
    group.scales = scales;
    group.k_scales = k_scales;
    group.v_scales = v_scales;
    return make_pool_of(&group, s->page_tokens, 0);
}

/* Rows of floats, of which the pages keep fp8 and scales. */
static void put_floats(pkv_table *table, const shard *s, uint64_t count) {
    float *rows = malloc(count * s->heads * row_elements * sizeof *rows);
    test_random random = {99};
    assert_ok(pkv_table_reserve(table, count));
    for (uint32_t layer = 0; layer < s->layers; ++layer) {
        for (uint64_t i = 0; i < count * s->heads * row_elements; ++i) rows[i] = (float)(next_random(&random) % 2000) / 100.0f - 10.0f;
        pkv_tensor tensor = rows_tensor(rows, count);
        tensor.dtype = PKV_DTYPE_F32;
        assert_ok(pkv_table_write(table, 0, layer, 0, count, &tensor, &tensor, NULL));
    }
    assert_ok(pkv_table_commit(table, count, NULL));
    free(rows);
}

/* The floats that one table gives are those of another, of the heads and layers that the second one has. */
static void same_floats(pkv_table *whole, const shard *all, pkv_table *part, const shard *some, uint64_t count) {
    float *a = malloc(count * all->heads * row_elements * sizeof *a), *b = malloc(count * some->heads * row_elements * sizeof *b);
    for (uint32_t layer = 0; layer < some->layers; ++layer)
        for (int side = 0; side < 2; ++side) {
            pkv_tensor at = rows_tensor(a, count), bt = rows_tensor(b, count);
            at.dtype = bt.dtype = PKV_DTYPE_F32;
            assert_ok(pkv_table_gather(whole, 0, some->first_layer - all->first_layer + layer, 0, count, side == 0 ? &at : NULL,
                                       side == 1 ? &at : NULL, NULL));
            assert_ok(pkv_table_gather(part, 0, layer, 0, count, side == 0 ? &bt : NULL, side == 1 ? &bt : NULL, NULL));
            for (uint64_t token = 0; token < count; ++token)
                assert_memory_equal(a + (token * all->heads + some->first_head - all->first_head) * row_elements,
                                    b + token * some->heads * row_elements, some->heads * row_elements * sizeof *a);
        }
    free(a);
    free(b);
}

static void a_scale_for_each_row_comes_with_it(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    const shard all = whole_model(16);
    shard half = with_layers(with_heads(whole_model(16), 1, 2), 1, 3);
    half.page_tokens = 3;
    half.layout = PKV_LAYOUT_HND;
    pkv_pool *from = scaled_pool(PKV_SCALES_TOKEN_HEAD, &all, NULL, NULL), *to = scaled_pool(PKV_SCALES_TOKEN_HEAD, &half, NULL, NULL);
    pkv_table *table = admit_counted(from, 1, 23, 0);
    put_floats(table, &all, 23);
    pkv_table *copy = hand_over(&n, table, to, NULL);
    same_floats(table, &all, copy, &half, 23);
    end_table(copy);
    end_table(table);
    end_pool(from);
    end_pool(to);
    close_nodes(&n);
}

static void fixed_scales_have_to_be_those_of_the_shard(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    const shard all = whole_model(16), half = with_layers(with_heads(whole_model(16), 2, 2), 2, 2);
    float k[16], v[16];
    for (int i = 0; i < 16; ++i) {
        k[i] = 0.5f + (float)i;
        v[i] = 0.25f + (float)i;
    }
    const float of_tensors[4] = {0.5f, 0.25f, 0.125f, 1.0f};
    pkv_pool *by_head = scaled_pool(PKV_SCALES_HEAD, &all, k, v), *by_tensor = scaled_pool(PKV_SCALES_TENSOR, &all, of_tensors, of_tensors);
    pkv_table *heads = admit_counted(by_head, 1, 10, 0), *tensors = admit_counted(by_tensor, 1, 10, 0);
    put_floats(heads, &all, 10);
    put_floats(tensors, &all, 10);

    const float k_half[4] = {k[10], k[11], k[14], k[15]}, v_half[4] = {v[10], v[11], v[14], v[15]};
    const float v_other[4] = {v[10], v[11], v[14], 7.0f};
    pkv_pool *good = scaled_pool(PKV_SCALES_HEAD, &half, k_half, v_half), *bad = scaled_pool(PKV_SCALES_HEAD, &half, k_half, v_other);
    pkv_table *copy = hand_over(&n, heads, good, NULL);
    same_floats(heads, &all, copy, &half, 10);
    end_table(copy);
    is_refused(&n, heads, bad, NULL, PKV_ERR_MISMATCH, "layer 1: the scales at the giver are not the pool's");
    is_refused(&n, tensors, good, NULL, PKV_ERR_MISMATCH, "scales is 1 at the giver and 2 in the pool");
    end_pool(good);
    end_pool(bad);
    good = scaled_pool(PKV_SCALES_TENSOR, &half, of_tensors + 2, of_tensors + 2);
    bad = scaled_pool(PKV_SCALES_TENSOR, &half, of_tensors, of_tensors);
    copy = hand_over(&n, tensors, good, NULL);
    same_floats(tensors, &all, copy, &half, 10);
    end_table(copy);
    is_refused(&n, tensors, bad, NULL, PKV_ERR_MISMATCH, "scales");
    end_pool(good);
    end_pool(bad);
    end_table(heads);
    end_table(tensors);
    end_pool(by_head);
    end_pool(by_tensor);
    close_nodes(&n);
}

/* More than passes through at once, in pieces of all sizes: 16 MiB each, and three of them at the same time. */
static void long_sequences_come_over_side_by_side(void **state) {
    (void)state;
    enum { pullers = 3, length = 1000, layers = 4, row = 8 * 128 };
    nodes n;
    if (!open_nodes(&n)) skip();
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = 70;
    group.num_layers = layers;
    group.num_kv_heads = 8;
    group.k_head_dim = group.v_head_dim = 128;
    pkv_pool *from = make_pool_of(&group, 16, 0), *to[pullers];
    pkv_table *table = admit_counted(from, 1, length, 0);
    put_and_commit(from, table, length, tag);
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.max_pulls = pullers;
    pkv_offer *offer = offer_of(n.giver, table, &options);
    const ticket t = ticket_of(offer);
    pkv_op *ops[pullers];
    for (int i = 0; i < pullers; ++i) {
        group.layout = i % 2 == 0 ? PKV_LAYOUT_NHD : PKV_LAYOUT_HND;
        to[i] = make_pool_of(&group, 16, 0);
        ops[i] = begin_pull(n.puller, to[i], &t);
    }
    for (int i = 0; i < pullers; ++i) {
        pkv_table *copy = pulled(ops[i]);
        same_rows(to[i], copy, 0, 0, length, tag, 0);
        end_table(copy);
        end_pool(to[i]);
    }
    soon(offer_info(offer).status == PKV_OK);
    assert_int_equal(node_stats(n.puller).pulled_bytes, (uint64_t)pullers * length * layers * row * 2 * 2);
    end_table(table);
    assert_ok(pkv_offer_close(offer));
    end_pool(from);
    close_nodes(&n);
}

/* ---- windows and groups */

enum { window = 6, sinks = 3, long_tokens = 41 };

static pkv_pool *hybrid_pool(uint64_t full_pages, uint64_t window_pages, uint32_t page_tokens) {
    const pkv_group_options groups[2] = {small_group(full_pages), window_group(window_pages, window, sinks)};
    return make_groups(groups, 2, page_tokens);
}

static void of_windows_comes_what_they_reach(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    for (int cut = 0; cut < 2; ++cut) { /* whether the giver has let go of what its window has passed */
        pkv_pool *from = hybrid_pool(32, 32, 4), *to = hybrid_pool(32, 4, 4);
        pkv_table *table = admit_counted(from, 1, long_tokens, 0);
        put_and_commit(from, table, long_tokens, tag);
        if (cut == 1) assert_ok(pkv_table_window(table, NULL));
        pkv_table *copy = hand_over(&n, table, to, NULL);
        same_rows(to, copy, 0, 0, long_tokens, tag, 0);
        same_rows(to, copy, 1, 32, long_tokens - 32, tag, 32);
        same_rows(to, copy, 1, 0, 4, tag, 0);
        for (uint64_t block = 1; block < 8; ++block) assert_int_equal(page_in(copy, 1, block), PKV_NO_PAGE);
        assert_int_equal(group_stats(to, 1).held_pages, 4);
        end_table(copy);
        end_table(table);
        end_groups(from);
        end_groups(to);
    }
    close_nodes(&n);
}

/* Prefill in chunks, with a window group that has room for little more than its window: what is offered does not hold up what the
 * window has passed. */
static void windows_move_on_while_they_are_offered(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    pkv_pool *from = hybrid_pool(32, 7, 4), *to = hybrid_pool(32, 4, 4);
    pkv_table *table = admit_counted(from, 1, long_tokens, 8);
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.num_tokens = long_tokens;
    pkv_offer *offer = offer_of(n.giver, table, &options);
    const ticket t = ticket_of(offer);
    pkv_op *op = begin_pull(n.puller, to, &t);
    for (uint64_t done = 0; done < long_tokens; done += 8) {
        const uint64_t chunk_end = done + 8 < long_tokens ? done + 8 : long_tokens;
        put_and_commit(from, table, chunk_end, tag);
        assert_ok(pkv_offer_ready(offer, PKV_ALL_GROUPS, PKV_ALL_LAYERS, chunk_end, NULL));
        assert_ok(pkv_table_window(table, NULL));
    }
    pkv_table *copy = pulled(op);
    same_rows(to, copy, 0, 0, long_tokens, tag, 0);
    same_rows(to, copy, 1, long_tokens - window, window, tag, long_tokens - window);
    same_rows(to, copy, 1, 0, sinks, tag, 0);
    end_table(copy);
    end_table(table);
    assert_ok(pkv_offer_close(offer));
    end_groups(from);
    end_groups(to);
    close_nodes(&n);
}

static void a_window_cut_between_the_puller_s_pages_is_a_mismatch(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    pkv_pool *from = hybrid_pool(32, 32, 4), *to = hybrid_pool(32, 32, 7), *finer = hybrid_pool(64, 32, 2);
    pkv_table *table = admit_counted(from, 1, long_tokens, 0);
    put_and_commit(from, table, long_tokens, tag);
    assert_ok(pkv_table_window(table, NULL));
    is_refused(&n, table, to, NULL, PKV_ERR_MISMATCH, "which pages of 7 do not divide");
    pkv_table *copy = hand_over(&n, table, finer, NULL);
    same_rows(finer, copy, 1, long_tokens - window, window, tag, long_tokens - window);
    end_table(copy);
    end_table(table);
    end_groups(from);
    end_groups(to);
    end_groups(finer);
    close_nodes(&n);
}

static void a_shard_may_have_some_of_the_groups(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    pkv_pool *from = hybrid_pool(32, 32, 4);
    pkv_table *table = admit_counted(from, 1, long_tokens, 0);
    put_and_commit(from, table, long_tokens, tag);
    const pkv_group_options only = window_group(8, window, sinks);
    pkv_pool *to = make_groups(&only, 1, 4);
    is_refused(&n, table, to, NULL, PKV_ERR_MISMATCH, "attention is 0 at the giver and 1 in the pool");
    pkv_pull_options options = pull_options(0);
    const uint32_t second = 1, none = 2;
    options.groups = &second;
    options.num_groups = 1;
    pkv_table *copy = hand_over(&n, table, to, &options);
    uint64_t blocks = 0;
    assert_ok(pkv_table_pages(copy, 0, NULL, 0, &blocks));
    assert_int_equal(blocks, 11);
    assert_int_equal(group_stats(to, 0).held_pages, 4);
    end_table(copy);
    options.groups = &none;
    is_refused(&n, table, to, &options, PKV_ERR_MISMATCH, "in none of the offers");
    end_table(table);
    end_groups(from);
    end_groups(to);
    close_nodes(&n);
}

/* ---- names */

static void namespace_and_media_come_over(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    pkv_namespace ns = PKV_NAMESPACE_INIT;
    ns.model = bytes_of("a model");
    ns.adapter = bytes_of("an adapter");
    ns.salt = bytes_of("a tenant");
    pkv_token ids[24];
    count_up(ids, 24, 1);
    const pkv_media media[2] = {{5, 2, bytes_of("an image")}, {17, 3, bytes_of("another image")}};
    pkv_prompt prompt = prompt_of(ids, 24);
    prompt.ns = &ns;
    prompt.media = media;
    prompt.num_media = 2;
    pkv_pool *from = make_pool(32, 4), *to = make_pool(32, 4);
    pkv_table *table = admit(from, &prompt, NULL);
    write_and_commit(table, 24, tag);

    pkv_pull_options options = pull_options(0);
    pkv_namespace other = ns;
    other.salt = bytes_of("another tenant");
    options.ns = &other;
    is_refused(&n, table, to, &options, PKV_ERR_MISMATCH, "another namespace");
    options.ns = &ns;
    pkv_table *copy = hand_over(&n, table, to, &options);
    check_rows(copy, 0, 24, tag);
    assert_int_equal(probe_tokens(to, &prompt), 24);
    prompt.ns = &other;
    assert_int_equal(probe_tokens(to, &prompt), 0);
    prompt.ns = &ns;
    prompt.num_media = 1;
    assert_int_equal(probe_tokens(to, &prompt), 16);
    prompt.num_media = 0;
    assert_int_equal(probe_tokens(to, &prompt), 4);
    end_table(copy);
    end_table(table);
    end_pool(from);
    end_pool(to);
    close_nodes(&n);
}

static void retention_comes_over_if_it_is_wanted(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    for (int without = 0; without < 2; ++without) {
        pkv_pool *from = make_pool(32, 4), *to = make_pool(32, 4);
        pkv_table *table = admit_counted(from, 1, 16, 0);
        pkv_retention retention = PKV_RETENTION_INIT;
        retention.priority = 80;
        retention.pin = 1;
        assert_ok(pkv_table_set_retention(table, 0, 8, &retention));
        write_and_commit(table, 16, tag);
        const pkv_pull_options options = pull_options(without == 1 ? PKV_PULL_NO_RETENTION : 0);
        pkv_table *copy = hand_over(&n, table, to, &options);
        for (uint64_t block = 0; block < 4; ++block) {
            const pkv_page_info info = page_of(to, page_at(copy, block));
            assert_int_equal(info.pinned, without == 0 && block < 2);
            assert_int_equal(info.priority, without == 0 && block < 2 ? 80 : PKV_PRIORITY_DEFAULT);
        }
        end_table(copy);
        end_table(table);
        end_pool(from);
        end_pool(to);
    }
    close_nodes(&n);
}

/* ---- what keeps two apart */

static void other_geometries_are_refused_with_both_values(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    const shard model = whole_model(16);
    pkv_pool *from = shard_pool(&model);
    pkv_table *table = computed(from, &model, 1, 10, tag);
    struct {
        pkv_group_options group;
        const char *message;
    } others[6];
    for (int i = 0; i < 6; ++i) others[i].group = group_of(&model);
    others[0].group.dtype = PKV_DTYPE_BF16;
    others[0].message = "dtype is 2 at the giver and 3 in the pool";
    others[1].group.k_head_dim = 8;
    others[1].message = "K row bytes is 8 at the giver and 16 in the pool";
    others[2].group.v_head_dim = 0;
    others[2].message = "V row bytes is 8 at the giver and 0 in the pool";
    others[3].group.total_heads = 8;
    others[3].message = "total_heads is 4 at the giver and 8 in the pool";
    others[4].group.total_layers = 5;
    others[4].group.first_layer = 1;
    others[4].message = "total_layers is 4 at the giver and 5 in the pool";
    others[5].group.attention = PKV_ATTENTION_WINDOW;
    others[5].group.window = 8;
    others[5].message = "attention is 0 at the giver and 1 in the pool";
    for (int i = 0; i < 6; ++i) {
        pkv_pool *to = make_pool_of(&others[i].group, 4, 0);
        is_refused(&n, table, to, NULL, PKV_ERR_MISMATCH, others[i].message);
        end_groups(to);
    }
    end_table(table);
    end_pool(from);
    close_nodes(&n);
}

/* Nodes that were told of pools take images of the same shards only; sequences go between different ones. */
static void nodes_of_different_shards_hand_over(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(20);
    const pkv_tier_attachment at = attachment(tier, PKV_TIER_READ_ONLY);
    const shard all = whole_model(16), half = with_heads(whole_model(16), 2, 2);
    pkv_pool *pools[2];
    for (int i = 0; i < 2; ++i) {
        const pkv_group_options group = group_of(i == 0 ? &all : &half);
        pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
        options.page_tokens = 4;
        options.num_groups = 1;
        options.groups = &group;
        options.tiers = &at;
        options.num_tiers = 1;
        assert_ok(pkv_pool_create(&options, &pools[i]));
    }
    nodes n = {NULL, NULL};
    pkv_node_options giver = node_options(), puller = node_options();
    giver.listen = "127.0.0.1:0";
    giver.pools = &pools[0];
    puller.pools = &pools[1];
    giver.num_pools = puller.num_pools = 1;
    n.giver = open_node(&giver);
    if (n.giver == NULL) {
        end_pool(pools[0]);
        end_pool(pools[1]);
        assert_ok(pkv_tier_close(tier));
        skip();
    }
    n.puller = open_node(&puller);
    assert_status(pkv_node_connect(n.puller, address_of(n.giver).text, 5ull * one_second), PKV_ERR_MISMATCH);
    pkv_table *table = computed(pools[0], &all, 1, 10, tag);
    pkv_table *copy = hand_over(&n, table, pools[1], NULL);
    same_tokens(copy, &half, 0, 10, tag);
    end_table(copy);
    end_table(table);
    close_nodes(&n);
    end_pool(pools[0]);
    end_pool(pools[1]);
    assert_ok(pkv_tier_close(tier));
}

static void nodes_of_another_model_do_not_hand_over(void **state) {
    (void)state;
    nodes n;
    pkv_node_options options = node_options();
    options.identity = bytes_of("one model");
    if (!open_nodes_with(&n, options)) skip();
    const shard model = whole_model(16);
    pkv_pool *from = shard_pool(&model), *to = shard_pool(&model);
    pkv_table *table = computed(from, &model, 1, 10, tag);
    is_refused(&n, table, to, NULL, PKV_ERR_MISMATCH, "another model");
    end_table(table);
    end_pool(from);
    end_pool(to);
    close_nodes(&n);
}

static void blocks_in_tiers_are_restored_before_they_are_offered(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    pkv_tier *tier = host_tier(40);
    pkv_pool *from = pool_on(32, tier, PKV_TIER_WRITE_BACK), *to = pool_on(32, tier, PKV_TIER_READ_ONLY);
    compute(from, 1, 24, tag);
    push_down(from);
    pkv_table *table = admit_again(from, 1, 24, NULL);
    pkv_offer *offer = NULL;
    assert_status(pkv_table_offer(n.giver, table, NULL, NULL, &offer, NULL), PKV_ERR_NOT_RESIDENT);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    pkv_table *copy = hand_over(&n, table, to, NULL);
    check_rows(copy, 0, 24, tag);
    assert_ok(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL)); /* nobody holds them any more */
    end_table(copy);
    end_table(table);
    end_pool(from);
    end_pool(to);
    assert_ok(pkv_tier_close(tier));
    close_nodes(&n);
}

/* ---- the giver's memory for readers */

static void little_memory_for_readers_takes_longer(void **state) {
    (void)state;
    nodes n;
    pkv_node_options options = node_options();
    options.export_bytes = 64 << 10; /* pieces of 16 KiB */
    options.max_leases = 3;
    if (!open_nodes_with(&n, options)) skip();
    pkv_group_options group = small_group(40);
    group.k_head_dim = group.v_head_dim = 256;
    pkv_pool *from = make_pool_of(&group, 16, 0), *to[2];
    pkv_table *table = admit_counted(from, 1, 600, 0);
    put_and_commit(from, table, 600, tag);
    pkv_offer_options terms = PKV_OFFER_OPTIONS_INIT;
    terms.max_pulls = 2;
    pkv_offer *offer = offer_of(n.giver, table, &terms);
    const ticket t = ticket_of(offer);
    pkv_op *ops[2];
    for (int i = 0; i < 2; ++i) {
        to[i] = make_pool_of(&group, 16, 0);
        ops[i] = begin_pull(n.puller, to[i], &t);
    }
    for (int i = 0; i < 2; ++i) {
        pkv_table *copy = pulled(ops[i]);
        same_rows(to[i], copy, 0, 0, 600, tag, 0);
        end_table(copy);
        end_pool(to[i]);
    }
    end_table(table);
    assert_ok(pkv_offer_close(offer));
    end_pool(from);
    close_nodes(&n);
}

/* Field case C05: what was asked for, and is not wanted any more, takes nobody's room. */
static void case_C05_cancelled_pulls_give_back_what_they_were_to_read(void **state) {
    (void)state;
    nodes n;
    pkv_node_options options = node_options();
    options.export_bytes = 256 << 10;
    if (!open_nodes_with(&n, options)) skip();
    pkv_group_options group = small_group(40);
    group.k_head_dim = group.v_head_dim = 256;
    pkv_pool *from = make_pool_of(&group, 16, 0), *to = make_pool_of(&group, 16, 0);
    group.num_pages = 160;
    pkv_pool *others = make_pool_of(&group, 16, 0);
    pkv_table *table = admit_counted(from, 1, 600, 0);
    put_and_commit(from, table, 600, tag);
    pkv_offer_options terms = PKV_OFFER_OPTIONS_INIT;
    terms.max_pulls = PKV_PULLS_UNLIMITED;
    pkv_offer *offer = offer_of(n.giver, table, &terms);
    const ticket t = ticket_of(offer);
    pkv_table *first = pulled(begin_pull(n.puller, to, &t));
    end_table(first);
    const pkv_pull_options all = pull_options(PKV_PULL_NO_MATCH);
    for (int round = 0; round < 60; ++round) {
        pkv_op *ops[4];
        for (int i = 0; i < 4; ++i) ops[i] = begin_pull_of(n.puller, others, &t, 1, &all, 0);
        usleep((useconds_t)(80 * round));
        for (int i = 0; i < 4; ++i) assert_ok(pkv_op_cancel(ops[i]));
        for (int i = 0; i < 4; ++i) {
            assert_true(pkv_op_wait(ops[i], 10ull * one_second) != PKV_ERR_TIMEOUT);
            assert_ok(pkv_op_close(ops[i]));
        }
    }
    all_released(others);
    end_pool(others);
    pkv_table *copy = pulled(begin_pull_of(n.puller, to, &t, 1, &all, 10ull * one_second)); /* long before any lease ends */
    same_rows(to, copy, 0, 0, 600, tag, 0);
    end_table(copy);
    end_table(table);
    assert_ok(pkv_offer_close(offer));
    end_pool(from);
    end_pool(to);
    close_nodes(&n);
}

static void rows_that_never_fit_are_a_limit(void **state) {
    (void)state;
    nodes n;
    pkv_node_options options = node_options();
    options.export_bytes = 8 << 10; /* pieces of 2 KiB */
    if (!open_nodes_with(&n, options)) skip();
    pkv_group_options group = small_group(8);
    group.k_head_dim = 1024;
    pkv_pool *from = make_pool_of(&group, 4, 0), *to = make_pool_of(&group, 4, 0);
    pkv_table *table = admit_counted(from, 1, 10, 0);
    put_and_commit(from, table, 10, tag);
    is_refused(&n, table, to, NULL, PKV_ERR_LIMIT, "the rows of one head have 2056 bytes, and at most 2048");
    end_table(table);
    end_pool(from);
    end_pool(to);
    close_nodes(&n);
}

/* Places go to others before they were read: what is read then is something else, and never taken for rows. */
static void places_that_are_taken_back_too_early_give_no_wrong_byte(void **state) {
    (void)state;
    nodes n;
    pkv_node_options options = node_options();
    options.lease_ns = 1;
    options.export_bytes = 256 << 10;
    if (!open_nodes_with(&n, options)) skip();
    pkv_group_options group = small_group(40);
    group.num_layers = 8;
    group.k_head_dim = group.v_head_dim = 256;
    pkv_pool *from = make_pool_of(&group, 16, 0);
    pkv_table *table = admit_counted(from, 1, 600, 0);
    put_and_commit(from, table, 600, tag);
    pkv_offer_options terms = PKV_OFFER_OPTIONS_INIT;
    terms.max_pulls = PKV_PULLS_UNLIMITED;
    pkv_offer *offer = offer_of(n.giver, table, &terms);
    const ticket t = ticket_of(offer);
    for (int round = 0; round < 4; ++round) {
        pkv_pool *to[2] = {make_pool_of(&group, 16, 0), make_pool_of(&group, 16, 0)};
        pkv_op *ops[2] = {begin_pull(n.puller, to[0], &t), begin_pull(n.puller, to[1], &t)};
        for (int i = 0; i < 2; ++i) {
            const pkv_status status = pkv_op_wait(ops[i], 30ull * one_second);
            assert_true(status == PKV_OK || status == PKV_ERR_IO);
            if (status == PKV_OK) {
                pkv_table *copy = pulled(ops[i]);
                same_rows(to[i], copy, 0, 0, 600, tag, 0);
                end_table(copy);
            } else {
                assert_ok(pkv_op_close(ops[i]));
            }
            all_released(to[i]);
            end_pool(to[i]);
        }
    }
    end_table(table);
    assert_ok(pkv_offer_close(offer));
    all_released(from);
    end_pool(from);
    close_nodes(&n);
}

/* ---- arguments */

static void arguments_are_checked(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    const shard model = whole_model(16);
    pkv_pool *pool = shard_pool(&model), *ids = make_id_pool(16, 4);
    pkv_table *table = computed(pool, &model, 1, 10, tag), *empty = NULL, *without = admit_counted(ids, 1, 10, 0);
    assert_ok(pkv_table_create(pool, &empty));
    pkv_offer *offer = NULL;
    pkv_op *op = NULL;
    assert_status(pkv_table_offer(NULL, table, NULL, NULL, &offer, NULL), PKV_ERR_HANDLE);
    assert_status(pkv_table_offer(n.giver, NULL, NULL, NULL, &offer, NULL), PKV_ERR_HANDLE);
    assert_status(pkv_table_offer(n.giver, table, NULL, NULL, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_table_offer(n.puller, table, NULL, NULL, &offer, NULL), PKV_ERR_STATE);
    assert_message("does not listen");
    assert_status(pkv_table_offer(n.giver, empty, NULL, NULL, &offer, NULL), PKV_ERR_STATE);
    assert_ok(pkv_table_commit(without, 10, NULL));
    assert_status(pkv_table_offer(n.giver, without, NULL, NULL, &offer, NULL), PKV_ERR_UNSUPPORTED);
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.num_tokens = 11;
    assert_status(pkv_table_offer(n.giver, table, &options, NULL, &offer, NULL), PKV_ERR_STATE);
    assert_message("only 10 are named");
    options.num_tokens = 0;
    options.reserved = 1;
    assert_status(pkv_table_offer(n.giver, table, &options, NULL, &offer, NULL), PKV_ERR_UNSUPPORTED);
    options.reserved = 0;
    options.max_pulls = 65537;
    assert_status(pkv_table_offer(n.giver, table, &options, NULL, &offer, NULL), PKV_ERR_LIMIT);
    options.max_pulls = 0;
    options.address = "nowhere";
    assert_status(pkv_table_offer(n.giver, table, &options, NULL, &offer, NULL), PKV_ERR_INVALID);
    options.address = "";
    assert_status(pkv_table_offer(n.giver, table, &options, NULL, &offer, NULL), PKV_ERR_INVALID);
    options.address = NULL;
    const pkv_op_options unseen = PKV_OP_OPTIONS_INIT;
    assert_status(pkv_table_offer(n.giver, table, &options, &unseen, &offer, NULL), PKV_ERR_INVALID);
    assert_null(offer);
    assert_int_equal(page_of(pool, page_at(table, 0)).count, 1);
    assert_int_equal(node_stats(n.giver).offers, 0);

    assert_ok(pkv_table_offer(n.giver, table, NULL, NULL, &offer, NULL));
    const ticket t = ticket_of(offer);
    unsigned char small[16];
    uint64_t size = 0;
    assert_status(pkv_offer_ticket(offer, small, sizeof small, &size), PKV_ERR_NO_SPACE);
    assert_int_equal(size, t.size);
    assert_status(pkv_offer_ticket(offer, NULL, 5, &size), PKV_ERR_INVALID);
    assert_status(pkv_offer_ticket(offer, small, sizeof small, NULL), PKV_ERR_INVALID);
    assert_status(pkv_offer_get_info(offer, NULL), PKV_ERR_INVALID);

    const pkv_bytes bytes = {t.bytes, t.size}, null = {NULL, 5};
    assert_status(pkv_table_pull(NULL, pool, 1, &bytes, NULL, NULL, &op), PKV_ERR_HANDLE);
    assert_status(pkv_table_pull(n.puller, NULL, 1, &bytes, NULL, NULL, &op), PKV_ERR_HANDLE);
    assert_status(pkv_table_pull(n.puller, pool, 0, &bytes, NULL, NULL, &op), PKV_ERR_INVALID);
    assert_status(pkv_table_pull(n.puller, pool, 65, &bytes, NULL, NULL, &op), PKV_ERR_INVALID);
    assert_status(pkv_table_pull(n.puller, pool, 1, NULL, NULL, NULL, &op), PKV_ERR_INVALID);
    assert_status(pkv_table_pull(n.puller, pool, 1, &null, NULL, NULL, &op), PKV_ERR_INVALID);
    assert_status(pkv_table_pull(n.puller, pool, 1, &bytes, NULL, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_table_pull(n.puller, ids, 1, &bytes, NULL, NULL, &op), PKV_ERR_UNSUPPORTED);
    pkv_pull_options pull = PKV_PULL_OPTIONS_INIT;
    pull.flags = 4;
    assert_status(pkv_table_pull(n.puller, pool, 1, &bytes, &pull, NULL, &op), PKV_ERR_UNSUPPORTED);
    pull.flags = 0;
    pull.num_groups = 2;
    assert_status(pkv_table_pull(n.puller, pool, 1, &bytes, &pull, NULL, &op), PKV_ERR_INVALID);
    assert_null(op);
    pkv_table *none = NULL;
    assert_status(pkv_pull_table(NULL, &none), PKV_ERR_HANDLE);
    assert_ok(pkv_offer_close(offer));
    assert_status(pkv_offer_close(offer), PKV_ERR_HANDLE);
    assert_status(pkv_offer_ticket(offer, small, sizeof small, &size), PKV_ERR_HANDLE);
    pkv_offer_info info = PKV_OFFER_INFO_INIT;
    assert_status(pkv_offer_get_info(offer, &info), PKV_ERR_HANDLE);
    end_table(without);
    end_table(empty);
    end_table(table);
    end_pool(ids);
    end_pool(pool);
    close_nodes(&n);
}

static void a_giver_that_is_not_reached_is_named(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    const shard model = whole_model(16);
    pkv_pool *from = shard_pool(&model), *to = shard_pool(&model);
    pkv_table *table = computed(from, &model, 1, 10, tag);
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.address = "127.0.0.1:1"; /* nobody listens there */
    pkv_offer *offer = offer_of(n.giver, table, &options);
    ticket t = ticket_of(offer);
    pull_fails(begin_pull(n.puller, to, &t), PKV_ERR_IO, "127.0.0.1:1");
    assert_ok(pkv_offer_close(offer));

    /* And one at whose address there is another node by now. */
    offer = offer_of(n.giver, table, NULL);
    t = ticket_of(offer);
    const address at = address_of(n.giver);
    assert_ok(pkv_node_close(n.giver));
    pkv_node_options other = node_options();
    other.listen = at.text;
    n.giver = open_node(&other);
    pull_fails(begin_pull(n.puller, to, &t), PKV_ERR_NOT_FOUND, "started again");
    assert_ok(pkv_offer_close(offer));
    all_released(to);
    end_table(table);
    end_pool(from);
    end_pool(to);
    close_nodes(&n);
}

/* A node that listens everywhere says where it is reached. */
static void the_ticket_has_the_advertised_address(void **state) {
    (void)state;
    nodes n;
    pkv_node_options options = node_options();
    options.advertise = "localhost:0"; /* its port is not known before it listens */
    if (!open_nodes_with(&n, options)) skip();
    const shard model = whole_model(16);
    pkv_pool *from = shard_pool(&model), *to = shard_pool(&model);
    pkv_table *table = computed(from, &model, 1, 10, tag);
    pkv_table *copy = hand_over(&n, table, to, NULL);
    same_tokens(copy, &model, 0, 10, tag);
    end_table(copy);
    end_table(table);
    end_pool(from);
    end_pool(to);
    close_nodes(&n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_every_kind_come_over_in_every_form),
        cmocka_unit_test(a_scale_for_each_row_comes_with_it),
        cmocka_unit_test(fixed_scales_have_to_be_those_of_the_shard),
        cmocka_unit_test(long_sequences_come_over_side_by_side),
        cmocka_unit_test(of_windows_comes_what_they_reach),
        cmocka_unit_test(windows_move_on_while_they_are_offered),
        cmocka_unit_test(a_window_cut_between_the_puller_s_pages_is_a_mismatch),
        cmocka_unit_test(a_shard_may_have_some_of_the_groups),
        cmocka_unit_test(namespace_and_media_come_over),
        cmocka_unit_test(retention_comes_over_if_it_is_wanted),
        cmocka_unit_test(other_geometries_are_refused_with_both_values),
        cmocka_unit_test(nodes_of_different_shards_hand_over),
        cmocka_unit_test(nodes_of_another_model_do_not_hand_over),
        cmocka_unit_test(blocks_in_tiers_are_restored_before_they_are_offered),
        cmocka_unit_test(little_memory_for_readers_takes_longer),
        cmocka_unit_test(case_C05_cancelled_pulls_give_back_what_they_were_to_read),
        cmocka_unit_test(rows_that_never_fit_are_a_limit),
        cmocka_unit_test(places_that_are_taken_back_too_early_give_no_wrong_byte),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(a_giver_that_is_not_reached_is_named),
        cmocka_unit_test(the_ticket_has_the_advertised_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
