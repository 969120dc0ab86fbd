/* SPDX-License-Identifier: Apache-2.0 */
/* The memory in which pullers read: too little of it, and places that are taken back too early or not wanted any more. */
#include "node/handover.h"

enum { tag = 5 };

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
    pkv_table *copy =
        pulled(begin_pull_of(n.puller, to, &t, 1, &all, 10ull * one_second)); /* long before any lease ends */
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
        pkv_op *ops[2];
        for (int i = 0; i < 2; ++i) ops[i] = begin_pull_of(n.puller, to[i], &t, 1, NULL, 5ull * one_second);
        for (int i = 0; i < 2; ++i) {
            const pkv_status status = pkv_op_wait(ops[i], 30ull * one_second);
            assert_true(status == PKV_OK || status == PKV_ERR_IO || status == PKV_ERR_TIMEOUT /* on a slow machine */);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(little_memory_for_readers_takes_longer),
        cmocka_unit_test(case_C05_cancelled_pulls_give_back_what_they_were_to_read),
        cmocka_unit_test(rows_that_never_fit_are_a_limit),
        cmocka_unit_test(places_that_are_taken_back_too_early_give_no_wrong_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
