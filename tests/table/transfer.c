/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences leave one pool and enter another, whatever its pages look like: every row, name, image and scale comes along,
 * and what a window dropped stays behind. Field cases F08, I08 and L23. */
#include "table/transfer.h"

/* ---- there and back ---- */

static void case_F08_L23_rows_come_back_byte_equal_in_pools_of_every_form(void **state) {
    (void)state;
    static const uint32_t pages[] = {1, 3, 4, 16};
    question q;
    ask(&q);
    for (int kind = 0; kind < kinds; ++kind)
        for (int form = 0; form < forms; ++form) {
            place from = make_place(kind, (form * 5 + kind) % forms, pages[(form + 1) % 4]),
                  to = make_place(kind, form, pages[form % 4]);
            pkv_table *source = answer(&from, &q), *table = empty_table(to.pool);
            const image sent = export_of(source);
            assert_ok(pkv_table_import(table, sent.data, sent.size));
            assert_int_equal(info_of(table).committed, num_tokens);
            assert_int_equal(info_of(table).named, num_tokens);
            assert_int_equal(info_of(table).published, num_tokens / pages[form % 4] * pages[form % 4]);
            for (uint32_t group = 0; group < (kind == sliding ? 2 : 1); ++group)
                same_rows(to.pool, table, group, 0, num_tokens, 7, 0);
            const image again = export_of(table);
            assert_int_equal(again.size, sent.size);
            assert_memory_equal(again.data, sent.data, sent.size);
            assert_ok(pkv_table_set_tokens(table, num_tokens, 4, q.tokens + num_tokens)); /* and it goes on */
            put_and_commit(to.pool, table, num_tokens + 4, 8);
            same_rows(to.pool, table, 0, num_tokens, 4, 8, num_tokens);
            same_rows(to.pool, table, 0, 0, num_tokens, 7, 0);
            free(sent.data);
            free(again.data);
            end_table(source);
            end_table(table);
            end_place(&from);
            end_place(&to);
        }
}

static void imported_blocks_are_found_by_their_prompt_and_by_no_other(void **state) {
    (void)state;
    question q;
    ask(&q);
    place from = make_place(plain, 0, 4), to = make_place(plain, other_layout, 3);
    pkv_table *source = answer(&from, &q), *table = empty_table(to.pool);
    const image sent = export_of(source);
    assert_ok(pkv_table_import(table, sent.data, sent.size));
    free(sent.data);
    end_table(table);
    assert_int_equal(probe_tokens(to.pool, &q.prompt), 18);
    pkv_prompt other = q.prompt;
    other.ns = NULL;
    assert_int_equal(probe_tokens(to.pool, &other), 0);
    other = q.prompt;
    other.num_media = 0;
    assert_int_equal(probe_tokens(to.pool, &other), 3);
    other.num_media = 1; /* the second image is missing, in the block from 12 on */
    assert_int_equal(probe_tokens(to.pool, &other), 12);
    pkv_match match = PKV_MATCH_INIT;
    table = admit(to.pool, &q.prompt, &match);
    assert_int_equal(match.tokens, 18);
    same_rows(to.pool, table, 0, 0, 18, 7, 0);
    end_table(table);
    end_table(source);
    end_place(&from);
    end_place(&to);
}

static void case_I08_scales_travel_with_their_rows(void **state) {
    (void)state;
    pkv_group_options group = small_group(num_pages);
    group.dtype = PKV_DTYPE_F8_E4M3;
    group.scales = PKV_SCALES_TOKEN_HEAD;
    pkv_pool *pools[2] = {make_groups(&group, 1, 4), NULL};
    group.layout = PKV_LAYOUT_HND;
    group.arrangement = PKV_LAYER_MAJOR;
    pools[1] = make_groups(&group, 1, 5);
    pkv_token tokens[7];
    count_up(tokens, 7, 1);
    const pkv_prompt prompt = prompt_of(tokens, 7);
    pkv_table *source = admit(pools[0], &prompt, NULL), *table = empty_table(pools[1]);
    float data[2][7 * 8], back[7 * 8], expected[7 * 8];
    pkv_tensor rows[2] = {PKV_TENSOR_INIT, PKV_TENSOR_INIT};
    for (int side = 0; side < 2; ++side) {
        for (int i = 0; i < 7 * 8; ++i) data[side][i] = (float)(i % 5 - 2 + side) * (float)(1 << i / 4);
        rows[side].data = data[side];
        rows[side].dtype = PKV_DTYPE_F32;
        rows[side].num_tokens = 7;
    }
    for (uint32_t layer = 0; layer < 2; ++layer)
        assert_ok(pkv_table_write(source, 0, layer, 0, 7, &rows[0], &rows[1], NULL));
    assert_ok(pkv_table_commit(source, 7, NULL));
    const image sent = export_of(source);
    assert_ok(pkv_table_import(table, sent.data, sent.size));
    const image again = export_of(table);
    assert_memory_equal(again.data, sent.data, sent.size);
    for (int side = 0; side < 2; ++side)
        for (uint32_t layer = 0; layer < 2; ++layer) {
            pkv_tensor out = rows[side];
            out.data = expected;
            assert_ok(pkv_table_gather(source, 0, layer, 0, 7, side == 0 ? &out : NULL, side == 1 ? &out : NULL, NULL));
            out.data = back;
            assert_ok(pkv_table_gather(table, 0, layer, 0, 7, side == 0 ? &out : NULL, side == 1 ? &out : NULL, NULL));
            assert_memory_equal(back, expected, sizeof back);
        }
    free(sent.data);
    free(again.data);
    end_table(source);
    end_table(table);
    for (int i = 0; i < 2; ++i) end_groups(pools[i]);
}

static void an_empty_sequence_travels_too(void **state) {
    (void)state;
    place from = make_place(sliding, 0, 4), to = make_place(sliding, other_layout, 3);
    const pkv_prompt nothing = prompt_of(NULL, 0);
    pkv_table *source = admit(from.pool, &nothing, NULL), *table = empty_table(to.pool);
    const image sent = export_of(source);
    assert_ok(pkv_table_import(table, sent.data, sent.size));
    assert_int_equal(info_of(table).blocks, 0);
    put_and_commit(to.pool, table, 5, 1); /* it has a sequence now */
    same_rows(to.pool, table, 0, 0, 5, 1, 0);
    free(sent.data);
    end_table(source);
    end_table(table);
    end_place(&from);
    end_place(&to);
}

/* ---- windows ---- */

static void blocks_that_a_window_dropped_stay_behind(void **state) {
    (void)state;
    static const struct {
        uint32_t page_tokens;
        bool fits;
    } cases[] = {{4, true}, {2, true}, {1, true}, {3, false}, {16, false}, {8, false}};
    question q;
    ask(&q);
    place from = make_place(sliding, 0, 4);
    pkv_table *source = answer(&from, &q);
    const image whole = export_of(source);
    assert_ok(pkv_table_window(source, NULL)); /* of tokens 0 to 18, 4 to 11 go */
    const image sent = export_of(source);
    assert_int_equal(whole.size - sent.size, 8 * 2 * 2 * 8); /* tokens, K and V, heads, bytes of a row */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        place to = make_place(sliding, (int)i, cases[i].page_tokens);
        pkv_table *table = empty_table(to.pool);
        if (cases[i].fits) {
            assert_ok(pkv_table_import(table, sent.data, sent.size));
            const uint64_t page = cases[i].page_tokens;
            for (uint64_t block = 0; block < info_of(table).blocks; ++block)
                assert_int_equal(page_in(table, 1, block) == PKV_NO_PAGE, block * page >= 4 && block * page < 12);
            same_rows(to.pool, table, 0, 0, num_tokens, 7, 0);
            same_rows(to.pool, table, 1, 0, 4, 7, 0);
            same_rows(to.pool, table, 1, 12, 7, 7, 12);
            assert_ok(pkv_table_window(table, NULL));
            put_and_commit(to.pool, table, num_tokens + 4, 8);
            same_rows(to.pool, table, 1, 17, 2, 7, 17);
            end_table(table);
            /* The longest prefix whose window of 6 has no token of 4 to 11. */
            assert_int_equal(probe_tokens(to.pool, &q.prompt), page == 4 ? 4 : num_tokens / page * page);
        } else {
            refused(table, sent.data, sent.size, PKV_ERR_MISMATCH);
            end_table(table);
        }
        end_place(&to);
    }
    free(whole.data);
    free(sent.data);
    end_table(source);
    end_place(&from);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_F08_L23_rows_come_back_byte_equal_in_pools_of_every_form),
        cmocka_unit_test(imported_blocks_are_found_by_their_prompt_and_by_no_other),
        cmocka_unit_test(case_I08_scales_travel_with_their_rows),
        cmocka_unit_test(an_empty_sequence_travels_too),
        cmocka_unit_test(blocks_that_a_window_dropped_stay_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
