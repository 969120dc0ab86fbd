/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the built-in tiers: what is refused, and what a fresh tier says of itself. */
#include "support/support.h"

static void a_host_tier_says_what_room_it_has(void **state) {
    (void)state;
    pkv_host_tier_options options = PKV_HOST_TIER_OPTIONS_INIT;
    options.capacity_bytes = (1 << 20) + 100; /* whole images only */
    pkv_tier *tier = NULL;
    assert_ok(pkv_tier_open_host(&options, &tier));
    pkv_tier_stats stats = PKV_TIER_STATS_INIT;
    assert_ok(pkv_tier_get_stats(tier, &stats));
    assert_int_equal(stats.usage.capacity_bytes, 1 << 20);
    assert_int_equal(stats.usage.used_bytes, 0);
    assert_int_equal(stats.usage.images, 0);
    assert_ok(pkv_tier_close(tier));
    assert_status(pkv_tier_close(tier), PKV_ERR_HANDLE);
}

static void a_large_host_tier_costs_nothing_before_it_is_used(void **state) {
    (void)state;
    pkv_host_tier_options options = PKV_HOST_TIER_OPTIONS_INIT;
    options.capacity_bytes = UINT64_C(64) << 30;
    options.huge_pages = PKV_HUGE_PAGES_NEVER;
    pkv_tier *tiers[4];
    for (int i = 0; i < 4; ++i) assert_ok(pkv_tier_open_host(&options, &tiers[i]));
    for (int i = 0; i < 4; ++i) assert_ok(pkv_tier_close(tiers[i]));
}

static void bad_options_of_a_host_tier_are_refused(void **state) {
    (void)state;
    pkv_tier *tier = NULL;
    pkv_host_tier_options options = PKV_HOST_TIER_OPTIONS_INIT;
    assert_status(pkv_tier_open_host(&options, &tier), PKV_ERR_INVALID);
    assert_message("capacity_bytes is 0");
    options.capacity_bytes = PKV_IMAGE_ALIGNMENT - 1;
    assert_status(pkv_tier_open_host(&options, &tier), PKV_ERR_INVALID);
    options.capacity_bytes = UINT64_MAX;
    assert_status(pkv_tier_open_host(&options, &tier), PKV_ERR_INVALID);
    options.capacity_bytes = 1 << 20;
    options.huge_pages = 3;
    assert_status(pkv_tier_open_host(&options, &tier), PKV_ERR_INVALID);
    assert_message("huge_pages is 3");
    options.huge_pages = PKV_HUGE_PAGES_AUTO;
    options.reserved = 1;
    assert_status(pkv_tier_open_host(&options, &tier), PKV_ERR_UNSUPPORTED);
    options.reserved = 0;
    assert_status(pkv_tier_open_host(&options, NULL), PKV_ERR_INVALID);
    assert_status(pkv_tier_open_host(NULL, &tier), PKV_ERR_INVALID);
    options.struct_size = 0;
    assert_status(pkv_tier_open_host(&options, &tier), PKV_ERR_INVALID);
    assert_null(tier);
}

static void bad_options_of_a_file_tier_are_refused(void **state) {
    (void)state;
    pkv_tier *tier = NULL;
    const pkv_file_tier_options init = PKV_FILE_TIER_OPTIONS_INIT;
    pkv_file_tier_options options = init;
    options.capacity_bytes = 1 << 20;
    assert_status(pkv_tier_open_file(&options, &tier), PKV_ERR_INVALID);
    assert_message("path");
    options.path = "/tmp/pagedkv-no-such-folder/file";
    options.engine = 3;
    assert_status(pkv_tier_open_file(&options, &tier), PKV_ERR_INVALID);
    assert_message("engine is 3");
    options.engine = PKV_IO_AUTO;
    assert_status(pkv_tier_open_file(&options, &tier), PKV_ERR_IO); /* good options, but no folder */
    assert_status(pkv_tier_open_file(&options, NULL), PKV_ERR_INVALID);
    assert_status(pkv_tier_open_file(NULL, &tier), PKV_ERR_INVALID);
    options.struct_size = 0;
    assert_status(pkv_tier_open_file(&options, &tier), PKV_ERR_INVALID);
    assert_null(tier);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_tier_says_what_room_it_has),
        cmocka_unit_test(a_large_host_tier_costs_nothing_before_it_is_used),
        cmocka_unit_test(bad_options_of_a_host_tier_are_refused),
        cmocka_unit_test(bad_options_of_a_file_tier_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
