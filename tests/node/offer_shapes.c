/* SPDX-License-Identifier: Apache-2.0 */
/* What sequences that are handed over can be made of: rows of every kind, scales, windows, several groups. */
#include "node/handover.h"
#include "table/transfer.h"

enum { tag = 5 };

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
        for (uint64_t i = 0; i < count * s->heads * row_elements; ++i)
            rows[i] = (float)(next_random(&random) % 2000) / 100.0f - 10.0f;
        pkv_tensor tensor = rows_tensor(rows, count);
        tensor.dtype = PKV_DTYPE_F32;
        assert_ok(pkv_table_write(table, 0, layer, 0, count, &tensor, &tensor, NULL));
    }
    assert_ok(pkv_table_commit(table, count, NULL));
    free(rows);
}

/* The floats that one table gives are those of another, of the heads and layers that the second one has. */
static void same_floats(pkv_table *whole, const shard *all, pkv_table *part, const shard *some, uint64_t count) {
    float *a = malloc(count * all->heads * row_elements * sizeof *a),
          *b = malloc(count * some->heads * row_elements * sizeof *b);
    for (uint32_t layer = 0; layer < some->layers; ++layer)
        for (int side = 0; side < 2; ++side) {
            pkv_tensor at = rows_tensor(a, count), bt = rows_tensor(b, count);
            at.dtype = bt.dtype = PKV_DTYPE_F32;
            assert_ok(pkv_table_gather(whole, 0, some->first_layer - all->first_layer + layer, 0, count,
                                       side == 0 ? &at : NULL, side == 1 ? &at : NULL, NULL));
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
    pkv_pool *from = scaled_pool(PKV_SCALES_TOKEN_HEAD, &all, NULL, NULL),
             *to = scaled_pool(PKV_SCALES_TOKEN_HEAD, &half, NULL, NULL);
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
    pkv_pool *by_head = scaled_pool(PKV_SCALES_HEAD, &all, k, v),
             *by_tensor = scaled_pool(PKV_SCALES_TENSOR, &all, of_tensors, of_tensors);
    pkv_table *heads = admit_counted(by_head, 1, 10, 0), *tensors = admit_counted(by_tensor, 1, 10, 0);
    put_floats(heads, &all, 10);
    put_floats(tensors, &all, 10);

    const float k_half[4] = {k[10], k[11], k[14], k[15]}, v_half[4] = {v[10], v[11], v[14], v[15]};
    const float v_other[4] = {v[10], v[11], v[14], 7.0f};
    pkv_pool *good = scaled_pool(PKV_SCALES_HEAD, &half, k_half, v_half),
             *bad = scaled_pool(PKV_SCALES_HEAD, &half, k_half, v_other);
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

/* Prefill in chunks, with a window group that has room for little more than its window: what is offered does not
 * hold up what the window has passed. */
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
