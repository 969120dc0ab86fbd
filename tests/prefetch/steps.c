/* SPDX-License-Identifier: Apache-2.0 */
/* Steps over layers: every row of every view is the right one, however the pool's memory lies and whatever the tables do. */
#include "prefetch/session.h"

static void a_sequence_larger_than_the_pool_is_read_in_each_step(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(400);
    const pkv_group_options group = layers_group(16, 4);
    pkv_pool *pool = pool_of_groups(&group, 1, tier);
    const uint32_t tag = 7;
    pkv_table *table = long_sequence(pool, 100, 32 * tiered_page_tokens, 4 * tiered_page_tokens, tag);
    assert_int_equal(info_of(table).absent_blocks, 28);
    pkv_prefetch *session = open_session(pool, NULL);
    for (int step = 0; step < 5; ++step) check_step(session, 4, 1, &table, &tag);
    const pkv_prefetch_stats stats = session_stats(session);
    assert_int_equal(stats.needed, 5 * 4 * 28);
    assert_int_equal(stats.steps, 5);
    assert_ok(pkv_prefetch_close(session, NULL));
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_larger_than_the_pool_is_read_in_each_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
