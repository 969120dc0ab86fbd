/* SPDX-License-Identifier: Apache-2.0 */
/* What goes with a sequence that is handed over, and what keeps two pools or nodes apart. */
#include "node/handover.h"

enum { tag = 5 };

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
        cmocka_unit_test(namespace_and_media_come_over),
        cmocka_unit_test(retention_comes_over_if_it_is_wanted),
        cmocka_unit_test(other_geometries_are_refused_with_both_values),
        cmocka_unit_test(nodes_of_different_shards_hand_over),
        cmocka_unit_test(nodes_of_another_model_do_not_hand_over),
        cmocka_unit_test(blocks_in_tiers_are_restored_before_they_are_offered),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(a_giver_that_is_not_reached_is_named),
        cmocka_unit_test(the_ticket_has_the_advertised_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
