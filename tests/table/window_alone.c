/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences that are longer than all pages of their pool: where only windows are kept, blocks outlive their pages. */
#include "support/support.h"

#include <unistd.h>

enum { page_tokens = 4 };

/* A sequence of so many blocks, of which only the last are kept. */
static pkv_table *slide(pkv_pool *pool, uint64_t blocks, pkv_token first) {
    const pkv_prompt nothing = prompt_of(NULL, 0);
    pkv_table *table = admit(pool, &nothing, NULL);
    for (uint64_t block = 0; block < blocks; ++block) {
        pkv_token tokens[page_tokens];
        count_up(tokens, page_tokens, first + (pkv_token)(block * page_tokens));
        assert_ok(pkv_table_set_tokens(table, block * page_tokens, page_tokens, tokens));
        put_and_commit(pool, table, (block + 1) * page_tokens, 1);
        assert_ok(pkv_table_window(table, NULL));
    }
    return table;
}

static void a_sequence_of_more_blocks_than_pages_goes_on(void **state) {
    (void)state;
    const pkv_group_options group = window_group(4, 6, 0);
    pkv_pool *pool = make_groups(&group, 1, page_tokens);
    for (pkv_token i = 0; i < 3; ++i) {
        pkv_table *table = slide(pool, 64, i * 10000);
        same_rows(pool, table, 0, 250, 6, 1, 250);
        end_table(table);
    }
    end_groups(pool);
}

static void its_end_is_found_as_long_as_its_window_is_there(void **state) {
    (void)state;
    const pkv_group_options group = window_group(4, 6, 0);
    pkv_pool *pool = make_groups(&group, 1, page_tokens);
    end_table(slide(pool, 64, 1));
    pkv_token tokens[256];
    count_up(tokens, 256, 1);
    const pkv_prompt prompt = prompt_of(tokens, 256);
    assert_int_equal(probe_tokens(pool, &prompt), 256);
    uint64_t evicted = 0;
    assert_ok(pkv_pool_evict(pool, 0, 4, &evicted));
    assert_int_equal(evicted, 4);
    assert_int_equal(stats_of(pool).index_blocks, 0);
    end_groups(pool);
}

static void blocks_published_in_a_window_group_alone_may_outnumber_the_pages(void **state) {
    (void)state;
    const pkv_group_options groups[2] = {small_group(2), window_group(4, 6, 0)};
    pkv_pool *pool = make_groups(groups, 2, page_tokens);
    enum { blocks = 64 };
    pkv_token tokens[blocks * page_tokens];
    count_up(tokens, blocks * page_tokens, 1);
    const pkv_prompt prompt = prompt_of(tokens, blocks * page_tokens);
    pkv_page last = PKV_NO_PAGE;
    for (uint64_t block = 0; block < blocks; ++block) {
        pkv_page page;
        assert_ok(pkv_pool_alloc(pool, 1, 1, &page));
        assert_ok(pkv_pool_publish(pool, 1, &prompt, block, 1, &page, NULL));
        if (last != PKV_NO_PAGE) {
            assert_ok(pkv_pool_release(pool, 1, 1, &last, NULL, NULL));
            assert_ok(pkv_pool_evict(pool, 1, 1, NULL));
        }
        last = page;
    }
    assert_ok(pkv_pool_release(pool, 1, 1, &last, NULL, NULL));
    assert_ok(pkv_pool_evict(pool, 1, 1, NULL));
    assert_int_equal(stats_of(pool).index_blocks, 0);
    end_groups(pool);
}

int main(void) {
    alarm(20); /* rather than a loop without end */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_of_more_blocks_than_pages_goes_on),
        cmocka_unit_test(its_end_is_found_as_long_as_its_window_is_there),
        cmocka_unit_test(blocks_published_in_a_window_group_alone_may_outnumber_the_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
