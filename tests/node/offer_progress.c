/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences that are handed over while they are computed: layer by layer, chunk by chunk. */
#include "node/handover.h"

enum { tokens = given_tokens, tag = given_tag };

static void layers_come_as_the_giver_says(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    const shard model = whole_model(64);
    pkv_pool *from = shard_pool(&model), *to = shard_pool(&model);
    pkv_table *table = admit_counted(from, 1, tokens, 0);
    put_tokens(table, &model, 22, tag); /* a chunk that ends inside a block */
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.num_tokens = tokens;
    pkv_offer *offer = offer_of(n.giver, table, &options);
    const ticket t = ticket_of(offer);
    assert_int_equal(offer_info(offer).ready_tokens, 22);
    pkv_op *op = begin_pull(n.puller, to, &t);
    soon(node_stats(n.puller).pulled_bytes == 22 * 4 * 4 * 2 * row_elements * 2);

    /* The second chunk, layer by layer: each ends its item as soon as it is there. */
    for (uint32_t layer = 0; layer < 4; ++layer) {
        put_layer(table, &model, layer, 22, tokens - 22, tag);
        assert_ok(pkv_offer_ready(offer, 0, layer, tokens, NULL));
        pkv_op_info info = PKV_OP_INFO_INIT;
        pkv_status statuses[4];
        do assert_ok(pkv_op_poll(op, &info, statuses, 4));
        while (info.done_items < layer + 1);
        assert_int_equal(info.num_items, 4);
        for (uint32_t l = 0; l < 4; ++l) assert_int_equal(statuses[l], l <= layer ? PKV_OK : PKV_ERR_BUSY);
    }
    assert_ok(pkv_table_commit(table, tokens, NULL));
    pkv_table *copy = pulled(op);
    same_tokens(copy, &model, 0, tokens, tag);
    same_tokens(table, &model, 0, tokens, tag);
    end_table(copy);
    end_table(table);
    assert_ok(pkv_offer_close(offer));
    all_released(from);
    end_pool(from);
    end_pool(to);
    close_nodes(&n);
}

/* Room is made for one chunk at a time, and chunks end inside blocks: the last block is shared then, and is copied
 * when the next chunk is written. */
static void chunks_come_as_room_is_made_for_them(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    const shard model = whole_model(64);
    for (uint64_t chunk = 1; chunk < 12; chunk += 2) {
        pkv_pool *from = shard_pool(&model), *to = shard_pool(&model);
        pkv_table *table = admit_counted(from, 1, tokens, 1);
        pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
        options.num_tokens = tokens;
        pkv_offer *offer = offer_of(n.giver, table, &options);
        const ticket t = ticket_of(offer);
        pkv_op *op = begin_pull(n.puller, to, &t);
        pkv_table *fork = NULL;
        for (uint64_t done = 0; done < tokens; done += chunk) {
            const uint64_t end_of_chunk = done + chunk < tokens ? done + chunk : tokens;
            if (fork != NULL) end_table(fork);
            fork = fork_of(table); /* somebody else sees the last block: it has to be copied before it is written */
            put_tokens(table, &model, end_of_chunk, tag);
            assert_ok(pkv_offer_ready(offer, PKV_ALL_GROUPS, PKV_ALL_LAYERS, end_of_chunk, NULL));
        }
        pkv_table *copy = pulled(op);
        same_tokens(copy, &model, 0, tokens, tag);
        end_table(copy);
        end_table(fork);
        end_table(table);
        assert_ok(pkv_offer_close(offer));
        all_released(from);
        end_pool(from);
        end_pool(to);
    }
    close_nodes(&n);
}

static void what_is_called_ready_is_checked(void **state) {
    (void)state;
    nodes n;
    if (!open_nodes(&n)) skip();
    const shard model = whole_model(64);
    pkv_pool *from = shard_pool(&model);
    pkv_table *table = admit_counted(from, 1, tokens, 8);
    put_tokens(table, &model, 8, tag);
    pkv_offer_options options = PKV_OFFER_OPTIONS_INIT;
    options.num_tokens = tokens;
    pkv_offer *offer = offer_of(n.giver, table, &options);
    assert_status(pkv_offer_ready(offer, 0, 0, tokens + 1, NULL), PKV_ERR_INVALID);
    assert_status(pkv_offer_ready(offer, 0, 4, 1, NULL), PKV_ERR_INVALID);
    assert_status(pkv_offer_ready(offer, 1, 0, 1, NULL), PKV_ERR_INVALID);
    assert_status(pkv_offer_ready(offer, PKV_ALL_GROUPS, 0, 1, NULL), PKV_ERR_INVALID);
    assert_status(pkv_offer_ready(offer, 0, 0, 9, NULL), PKV_ERR_NOT_RESIDENT);
    assert_ok(pkv_offer_ready(offer, 0, PKV_ALL_LAYERS, 3, NULL)); /* less than there is */
    assert_int_equal(offer_info(offer).ready_tokens, 8);
    const pkv_token other = 999;
    assert_ok(pkv_table_reserve(table, 20));
    assert_ok(pkv_table_set_tokens(table, 10, 1, &other));
    assert_ok(pkv_offer_ready(offer, 0, PKV_ALL_LAYERS, 10, NULL));
    assert_status(pkv_offer_ready(offer, 0, PKV_ALL_LAYERS, 11, NULL), PKV_ERR_STATE);
    assert_message("the tokens from 8 on are others");
    assert_ok(pkv_table_truncate(table, 4, NULL));
    assert_status(pkv_offer_ready(offer, 0, PKV_ALL_LAYERS, 10, NULL), PKV_ERR_STATE);
    assert_message("was cut");
    end_table(table);
    assert_status(pkv_offer_ready(offer, 0, PKV_ALL_LAYERS, 10, NULL), PKV_ERR_STATE);
    assert_message("gone");
    assert_ok(pkv_offer_close(offer));
    assert_status(pkv_offer_ready(offer, 0, PKV_ALL_LAYERS, 10, NULL), PKV_ERR_HANDLE);
    all_released(from);
    end_pool(from);
    close_nodes(&n);
}

/* The table is cut, written anew, and destroyed: what was offered stays what it was. */
static void the_table_may_go_while_it_is_offered(void **state) {
    (void)state;
    given g;
    if (!begin(&g)) skip();
    assert_ok(pkv_table_truncate(g.table, 10, NULL));
    pkv_token others[90];
    count_up(others, 90, 5000);
    assert_ok(pkv_table_set_tokens(g.table, 10, 90, others));
    put_tokens(g.table, &g.model, 100, tag + 1);
    pkv_pool *pool = shard_pool(&g.model);
    pkv_op *op = begin_pull(g.at.puller, pool, &g.t);
    end_table(g.table);
    g.table = NULL;
    pkv_table *busy = computed(g.pool, &g.model, 9000, 4 * 30, tag + 2); /* whatever was free is used */
    pkv_table *table = pulled(op);
    same_tokens(table, &g.model, 0, tokens, tag);
    end_table(busy);
    end_table(table);
    end_pool(pool);
    end(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_come_as_the_giver_says),
        cmocka_unit_test(chunks_come_as_room_is_made_for_them),
        cmocka_unit_test(what_is_called_ready_is_checked),
        cmocka_unit_test(the_table_may_go_while_it_is_offered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
