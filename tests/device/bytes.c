/* SPDX-License-Identifier: Apache-2.0 */
/* Page bytes in the memory of a device: what is written comes back, through every call that moves rows, and no address that the
 * device cannot read gets to a kernel. That conversions and layouts are right is for the kernels' own tests, and for the tests of
 * host pools, which suites.sh runs here again. */
#include "device/device.h"

static void pools_say_where_their_memory_is(void **state) {
    (void)state;
    pkv_group_options group = small_group(6);
    group.dtype = PKV_DTYPE_F8_E4M3;
    group.scales = PKV_SCALES_HEAD;
    const float k[4] = {1, 2, 3, 4}, v[4] = {5, 6, 7, 8};
    group.k_scales = k;
    group.v_scales = v;
    pkv_pool *pool = device_pool_of(&group, NULL, 0);
    assert_int_equal(stats_of(pool).memory_kind, PKV_MEMORY_KIND_DEVICE);
    for (uint32_t layer = 0; layer < 2; ++layer) {
        pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
        assert_ok(pkv_pool_layout(pool, 0, layer, &layout));
        /* Rows are zero, and scales are those of the options, in the device's memory. */
        assert_true(are_bytes(layout.k_base, 0, 6 * 2 * 16));
        float k_scales[2], v_scales[2];
        fake()->read(k_scales, layout.k_scales, sizeof k_scales);
        fake()->read(v_scales, layout.v_scales, sizeof v_scales);
        for (uint32_t head = 0; head < 2; ++head) {
            assert_true(k_scales[head] == k[layer * 2 + head]);
            assert_true(v_scales[head] == v[layer * 2 + head]);
        }
    }
    end_device_pool(pool);
}

static void pages_are_zero_in_a_new_pool_and_poisoned_if_asked_for(void **state) {
    (void)state;
    pkv_group_options group = small_group(3);
    group.dtype = PKV_DTYPE_I8;
    group.scales = PKV_SCALES_TOKEN_HEAD;
    for (int arrangement = PKV_PAGE_MAJOR; arrangement <= PKV_LAYER_MAJOR; ++arrangement)
        for (int poisoned = 0; poisoned < 2; ++poisoned) {
            group.arrangement = arrangement;
            pkv_pool *pool = device_pool_of(&group, NULL, poisoned ? PKV_DEBUG_POISON : 0);
            for (uint32_t layer = 0; layer < 2; ++layer) {
                pkv_layer_layout at = PKV_LAYER_LAYOUT_INIT;
                assert_ok(pkv_pool_layout(pool, 0, layer, &at));
                for (uint64_t page = 0; page < 3; ++page)
                    for (uint64_t i = 0; i < page_tokens * 2; ++i) {
                        const unsigned char *row = (unsigned char *)at.v_base + page * at.v.page + i * 4;
                        const unsigned char *scale = (unsigned char *)at.v_scales + page * at.scale_page_stride + i * 4;
                        assert_true(are_bytes(row, poisoned ? 0xFF : 0, 4));
                        assert_true(are_bytes(scale, poisoned ? 0xFF : 0, 4));
                    }
            }
            end_device_pool(pool);
        }
}

static void freed_pages_are_poisoned_behind_the_work_that_used_them(void **state) {
    (void)state;
    const pkv_group_options group = small_group(1);
    pkv_pool *pool = device_pool_of(&group, NULL, PKV_DEBUG_POISON);
    void *stream = fake()->make_stream(0);
    const pkv_sync sync = on(stream);
    pkv_page page;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &page));
    device_rows rows = make_rows(4), back = make_rows(4);
    fill_rows(&rows, NULL, 1, 0, 0, 4);
    const pkv_slot slots[4] = {0, 1, 2, 3};
    fake()->hold(stream);
    assert_ok(pkv_pool_write(pool, 0, 0, 4, slots, &rows.tensor[0], &rows.tensor[1], &sync));
    assert_ok(pkv_pool_gather(pool, 0, 0, 1, &page, 0, 4, &back.tensor[0], &back.tensor[1], &sync));
    assert_ok(pkv_pool_release(pool, 0, 1, &page, NULL, &sync));
    fake()->let_go(stream);
    fake()->finish(NULL);
    assert_rows(&back, 1, 0, 0, 4); /* read before it was poisoned */
    pkv_layer_layout at = PKV_LAYER_LAYOUT_INIT;
    assert_ok(pkv_pool_layout(pool, 0, 0, &at));
    assert_true(are_bytes(at.k_base, 0xFF, at.k.page));
    end_device_pool(pool);
}

static void what_is_written_by_slots_is_gathered_by_pages(void **state) {
    (void)state;
    pkv_pool *pool = device_pool(4);
    pkv_page pages[4];
    assert_ok(pkv_pool_alloc(pool, 0, 4, pages));
    device_rows rows = make_rows(6), back = make_rows(6);
    fill_rows(&rows, NULL, 1, 1, 0, 6);
    const pkv_slot slots[6] = {13, 14, -1, 0, -9, 3};
    assert_ok(pkv_pool_write(pool, 0, 1, 6, slots, &rows.tensor[0], &rows.tensor[1], NULL));
    const pkv_page list[2] = {3, 0};
    assert_ok(
        pkv_pool_gather(pool, 0, 1, 2, list, 1, 4, &back.tensor[0], &back.tensor[1], NULL)); /* slots 13, 14, 15, 0 */
    assert_true(are_rows(&back, 1, 1, 0, 0, 2));
    assert_true(are_rows(&back, 1, 1, 3, 3, 1));
    const pkv_page last = 0;
    assert_ok(pkv_pool_gather(pool, 0, 1, 1, &last, 3, 1, NULL, &back.tensor[1], NULL));
    uint16_t first;
    fake()->read(&first, back.at[1], sizeof first);
    assert_int_equal(first, element_of(1, 1, 1, 5, 0));
    assert_ok(pkv_pool_copy_pages(pool, 0, 1, &pages[3], &pages[1], NULL));
    assert_ok(pkv_pool_gather(pool, 0, 1, 1, &pages[1], 1, 2, &back.tensor[0], &back.tensor[1], NULL));
    assert_rows(&back, 1, 1, 0, 2);
    release_pages(pool, pages, 4);
    end_device_pool(pool);
}

static void nothing_to_do_launches_nothing(void **state) {
    (void)state;
    needs_fake();
    pkv_pool *pool = device_pool(4);
    pkv_table *table = new_table(pool, 1, 4);
    void *stream = fake()->make_stream(0);
    const pkv_sync sync = on(stream);
    const uint64_t before = fake()->counts().launches;
    device_rows rows = make_rows(1);
    assert_ok(pkv_pool_write(pool, 0, 0, 0, NULL, &rows.tensor[0], &rows.tensor[1], &sync));
    assert_ok(pkv_pool_gather(pool, 0, 0, 0, NULL, 0, 0, &rows.tensor[0], &rows.tensor[1], &sync));
    assert_ok(pkv_pool_gather(pool, 0, 0, 0, NULL, 0, 0, NULL, NULL, NULL));
    assert_ok(pkv_pool_copy_pages(pool, 0, 0, NULL, NULL, &sync));
    assert_ok(pkv_table_write(table, 0, 0, 0, 0, &rows.tensor[0], &rows.tensor[1], &sync));
    assert_ok(pkv_table_gather(table, 0, 0, 0, 0, &rows.tensor[0], &rows.tensor[1], &sync));
    assert_ok(pkv_table_accept(table, 0, NULL, &sync));
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = 1;
    options.max_tokens = 1;
    pkv_batch *batch;
    assert_ok(pkv_batch_create(pool, &options, &batch));
    assert_ok(pkv_batch_reserve(batch, 0, NULL, NULL, NULL));
    assert_ok(pkv_batch_write(batch, 0, 0, &rows.tensor[0], &rows.tensor[1], &sync));
    assert_ok(pkv_batch_gather(batch, 0, 0, NULL, 0, &rows.tensor[0], &rows.tensor[1], &sync));
    assert_ok(pkv_batch_commit(batch, NULL, NULL, &sync));
    assert_ok(pkv_batch_destroy(batch));
    assert_int_equal(fake()->counts().launches, before);
    end_table(table);
    end_device_pool(pool);
}

/* ---- addresses ---- */

static void rows_in_host_memory_are_refused_unless_it_is_pinned(void **state) {
    (void)state;
    pkv_pool *pool = device_pool(2);
    pkv_page pages[2];
    assert_ok(pkv_pool_alloc(pool, 0, 2, pages));
    device_rows good = make_rows(4);
    uint16_t host[4 * row_elements] = {0};
    pkv_tensor bad = good.tensor[0];
    bad.data = host;
    const pkv_slot slots[4] = {0, 1, 2, 3};
    void *stream = fake()->make_stream(0);
    const pkv_sync sync = on(stream);
    const pkv_sync *syncs[2] = {NULL, &sync};
    for (int i = 0; i < 2; ++i) {
        const uint64_t before = counted(launches);
        assert_status(pkv_pool_write(pool, 0, 0, 4, slots, &bad, &good.tensor[1], syncs[i]), PKV_ERR_INVALID);
        assert_message("k: ");
        assert_message("host memory");
        assert_status(pkv_pool_write(pool, 0, 0, 4, slots, &good.tensor[0], &bad, syncs[i]), PKV_ERR_INVALID);
        assert_message("v: ");
        assert_status(pkv_pool_gather(pool, 0, 0, 1, pages, 0, 4, &bad, NULL, syncs[i]), PKV_ERR_INVALID);
        assert_status(pkv_pool_gather(pool, 0, 0, 1, pages, 0, 4, NULL, &bad, syncs[i]), PKV_ERR_INVALID);
        assert_int_equal(counted(launches), before);
    }
    uint16_t *pinned = fake()->alloc_pinned(4 * row_bytes);
    for (int i = 0; i < 4 * row_elements; ++i)
        pinned[i] = element_of(2, 0, 0, (uint64_t)i / row_elements, i % row_elements);
    bad.data = pinned;
    fill_rows(&good, NULL, 2, 0, 0, 4);
    assert_ok(pkv_pool_write(pool, 0, 0, 4, slots, &bad, &good.tensor[1], NULL));
    memset(pinned, 0, 4 * row_bytes);
    assert_ok(pkv_pool_gather(pool, 0, 0, 1, pages, 0, 4, &bad, &good.tensor[1], NULL));
    for (int i = 0; i < 4 * row_elements; ++i)
        assert_int_equal(pinned[i], element_of(2, 0, 0, (uint64_t)i / row_elements, i % row_elements));
    release_pages(pool, pages, 2);
    end_device_pool(pool);
}

static void memory_of_another_device_is_refused(void **state) {
    (void)state;
    needs_devices(2);
    pkv_pool *pool = device_pool(2);
    pkv_page page;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &page));
    device_rows rows = make_rows(1);
    pkv_tensor other = rows.tensor[0];
    other.data = fake()->alloc(1, row_bytes);
    const pkv_slot slot = 0;
    assert_status(pkv_pool_write(pool, 0, 0, 1, &slot, &other, &rows.tensor[1], NULL), PKV_ERR_INVALID);
    assert_message("another device");
    pkv_slot *slots = fake()->alloc(1, sizeof *slots);
    assert_status(pkv_pool_write(pool, 0, 0, 1, slots, &rows.tensor[0], &rows.tensor[1], NULL), PKV_ERR_INVALID);
    assert_message("another device");
    release_pages(pool, &page, 1);
    end_device_pool(pool);
}

/* case_Q20: what is done for device 1 is done there. */
static void case_Q20_pools_on_two_devices_at_once(void **state) {
    (void)state;
    needs_devices(2);
    const pkv_group_options group = small_group(2);
    pkv_pool_options options = device_options(&group);
    pkv_pool *pools[2];
    for (int32_t i = 0; i < 2; ++i) {
        options.device_index = device_number(i);
        assert_ok(pkv_pool_create(&options, &pools[i]));
    }
    if (is_fake) assert_int_equal(fake()->counts().contexts, 2);
    for (int32_t i = 0; i < 2; ++i) {
        pkv_page page;
        assert_ok(pkv_pool_alloc(pools[i], 0, 1, &page));
        pkv_tensor rows[2], back[2];
        for (int side = 0; side < 2; ++side) {
            rows[side] = back[side] = (pkv_tensor)PKV_TENSOR_INIT;
            rows[side].dtype = back[side].dtype = PKV_DTYPE_F16;
            rows[side].num_tokens = back[side].num_tokens = 1;
            rows[side].data = fake()->alloc(i, row_bytes);
            back[side].data = fake()->alloc(i, row_bytes);
            fill_bytes(rows[side].data, 0x40 + i, row_bytes);
        }
        const pkv_slot slot = (pkv_slot)page * page_tokens;
        const pkv_sync sync = on(fake()->make_stream(i));
        assert_ok(pkv_pool_write(pools[i], 0, 1, 1, &slot, &rows[0], &rows[1], &sync));
        assert_ok(pkv_pool_gather(pools[i], 0, 1, 1, &page, 0, 1, &back[0], &back[1], &sync));
        fake()->finish(sync.handle);
        assert_true(are_bytes(back[1].data, 0x40 + i, row_bytes));
        release_pages(pools[i], &page, 1);
    }
    check_device();
    for (int i = 0; i < 2; ++i) end_pool(pools[i]);
}

static void pools_on_one_device_share_its_context(void **state) {
    (void)state;
    needs_fake();
    pkv_pool *first = device_pool(2), *second = device_pool(2);
    assert_int_equal(fake()->counts().contexts, 1);
    end_device_pool(first);
    assert_int_equal(fake()->counts().contexts, 1);
    end_device_pool(second);
    assert_int_equal(fake()->counts().contexts, 0);
}

/* ---- the caller's tensors ---- */

static void pools_lie_over_tensors_of_the_engine(void **state) {
    (void)state;
    pkv_group_options group = small_group(3);
    group.memory = PKV_MEMORY_CALLER;
    group.k_strides = (pkv_strides){page_tokens * 24 + 8, 24, 10}; /* rows of 8 bytes, gaps everywhere */
    group.v_strides = (pkv_strides){page_tokens * 16, 16, 8};
    const uint64_t bytes = 3 * (page_tokens * 24 + 8);
    void *k[2], *v[2];
    for (int layer = 0; layer < 2; ++layer) {
        k[layer] = fake()->alloc(0, bytes);
        v[layer] = fake()->alloc(0, bytes);
        fill_bytes(k[layer], 0x77, bytes);
        fill_bytes(v[layer], 0x77, bytes);
    }
    group.k_base = k;
    group.v_base = v;
    pkv_pool *pool = device_pool_of(&group, NULL, 0);
    assert_int_equal(stats_of(pool).memory_kind, PKV_MEMORY_KIND_CALLER);
    pkv_table *table = new_table(pool, 1, 8);
    void *stream = fake()->make_stream(0);
    write_tokens(table, stream, 0, 8, 3);
    assert_tokens(table, stream, 0, 8, 3);
    fake()->finish(NULL);
    unsigned char raw[page_tokens * 24 + 8]; /* page 0 */
    fake()->read(raw, k[1], sizeof raw);
    uint16_t element;
    memcpy(&element, raw + 1 * 24 + 10, 2); /* token 1, head 1 */
    assert_int_equal(element, element_of(3, 0, 1, 1, 4));
    for (int token = 0; token < page_tokens; ++token) {
        assert_int_equal(raw[token * 24 + 8], 0x77);  /* between heads */
        assert_int_equal(raw[token * 24 + 20], 0x77); /* between tokens */
    }
    end_table(table);
    end_device_pool(pool);
}

static void tensors_of_the_engine_have_to_be_the_devices(void **state) {
    (void)state;
    pkv_group_options group = small_group(3);
    group.memory = PKV_MEMORY_CALLER;
    static unsigned char host[4096];
    void *k[2] = {host, host}, *v[2] = {host, host};
    group.k_base = k;
    group.v_base = v;
    pkv_pool_options options = device_options(&group);
    pkv_pool *pool = NULL;
    assert_status(pkv_pool_create(&options, &pool), PKV_ERR_INVALID);
    assert_message("k_base");
    for (int i = 0; i < 2; ++i) k[i] = fake()->alloc(0, 4096);
    v[0] = fake()->alloc(0, 4096);
    v[1] = num_devices() > 1 ? fake()->alloc(1, 4096) : (void *)host; /* another device's is no better */
    assert_status(pkv_pool_create(&options, &pool), PKV_ERR_INVALID);
    assert_message("v_base");
    assert_null(pool);
}

static void pools_of_ids_alone_need_no_memory(void **state) {
    (void)state;
    pkv_group_options group = id_group(4);
    pkv_pool *pool = device_pool_of(&group, NULL, 0);
    assert_int_equal(counted(allocations), 0);
    device_rows rows = make_rows(1);
    const pkv_slot slot = 0;
    assert_status(pkv_pool_write(pool, 0, 0, 1, &slot, &rows.tensor[0], &rows.tensor[1], NULL), PKV_ERR_UNSUPPORTED);
    end_device_pool(pool);
}

/* ---- options ---- */

static void options_that_contradict_the_device_are_refused(void **state) {
    (void)state;
    const pkv_group_options group = small_group(2);
    pkv_pool_options options = device_options(&group);
    pkv_pool *pool = NULL;
    options.huge_pages = PKV_HUGE_PAGES_REQUIRE;
    assert_status(pkv_pool_create(&options, &pool), PKV_ERR_INVALID);
    options = device_options(&group);
    options.reserved = 1;
    assert_status(pkv_pool_create(&options, &pool), PKV_ERR_UNSUPPORTED);
    options = device_options(&group);
    pkv_sync sync = PKV_SYNC_INIT; /* kind none */
    options.in_place = &sync;
    assert_status(pkv_pool_create(&options, &pool), PKV_ERR_INVALID);
    assert_message("in_place");
    options.device = PKV_DEVICE_HOST;
    options.device_index = 0;
    sync = on(NULL);
    assert_status(pkv_pool_create(&options, &pool), PKV_ERR_INVALID);
    assert_message("in_place");
    assert_int_equal(counted(contexts), 0);
}

static void too_little_memory_is_an_error_that_leaves_nothing(void **state) {
    (void)state;
    needs_fake();
    with_fake(f, f.memory_limit = 1 << 20);
    pkv_group_options group = small_group(100000);
    pkv_pool_options options = device_options(&group);
    pkv_pool *pool = NULL;
    assert_status(pkv_pool_create(&options, &pool), PKV_ERR_NO_MEMORY);
    assert_message("out of memory");
    const struct fake_counts counts = fake()->counts();
    assert_int_equal(counts.contexts + counts.allocations + counts.pinned + counts.streams, 0);
}

static void host_pools_refuse_streams_as_before(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(2, page_tokens);
    pkv_page page;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &page));
    const pkv_sync sync = on(fake()->make_stream(0));
    assert_status(pkv_pool_release(pool, 0, 1, &page, NULL, &sync), PKV_ERR_UNSUPPORTED);
    assert_status(pkv_pool_order(pool, &sync), PKV_ERR_UNSUPPORTED);
    release_pages(pool, &page, 1);
    end_pool(pool);
}

/* ---- sequences that leave, and come back ---- */

static void sequences_are_exported_and_imported_between_device_and_host(void **state) {
    (void)state;
    for (int scaled = 0; scaled < 2; ++scaled) {
        pkv_group_options group = small_group(8);
        if (scaled) {
            group.dtype = PKV_DTYPE_I8;
            group.scales = PKV_SCALES_TOKEN_HEAD;
        }
        pkv_pool *device = device_pool_of(&group, NULL, 0), *again = device_pool_of(&group, NULL, 0);
        pkv_pool *host = make_pool_of(&group, 2, 0);
        void *stream = fake()->make_stream(0);
        const pkv_sync sync = on(stream);
        pkv_table *table = new_table(device, 1, 13);
        device_rows rows = make_rows(13), back = make_rows(13);
        for (uint32_t layer = 0; layer < 2; ++layer) {
            fill_rows(&rows, NULL, 4, layer, 0, 13);
            for (int side = 0; side < 2; ++side) { /* halves of moderate size */
                uint16_t halves[13 * row_elements];
                fake()->read(halves, rows.at[side], sizeof halves);
                for (int i = 0; i < 13 * row_elements; ++i) halves[i] &= 0xBFFF;
                fake()->write(rows.at[side], halves, sizeof halves);
            }
            assert_ok(pkv_table_write(table, 0, layer, 0, 13, &rows.tensor[0], &rows.tensor[1], &sync));
            fake()->finish(stream);
        }
        assert_ok(pkv_table_commit(table, 13, &sync));
        uint64_t size = 0;
        assert_ok(pkv_table_export(table, NULL, 0, &size));
        unsigned char *buffer = malloc(size), *second = malloc(size);
        assert_ok(pkv_table_export(table, buffer, size, &size));
        pkv_table *on_host, *returned;
        assert_ok(pkv_table_create(host, &on_host));
        assert_ok(pkv_table_import(on_host, buffer, size));
        assert_ok(pkv_table_export(on_host, second, size, &size));
        assert_memory_equal(buffer, second, size);
        assert_ok(pkv_table_create(again, &returned));
        assert_ok(pkv_table_import(returned, second, size));
        memset(buffer, 0, size);
        assert_ok(pkv_table_export(returned, buffer, size, &size));
        assert_memory_equal(buffer, second, size);
        for (uint32_t layer = 0; layer < 2; ++layer) {
            assert_ok(pkv_table_gather(table, 0, layer, 0, 13, &rows.tensor[0], &rows.tensor[1], NULL));
            assert_ok(pkv_table_gather(returned, 0, layer, 0, 13, &back.tensor[0], &back.tensor[1], NULL));
            for (int side = 0; side < 2; ++side) {
                unsigned char first[13 * row_bytes], second_time[13 * row_bytes];
                fake()->read(first, rows.at[side], sizeof first);
                fake()->read(second_time, back.at[side], sizeof second_time);
                assert_memory_equal(first, second_time, sizeof first);
            }
        }
        free(buffer);
        free(second);
        end_table(table);
        end_table(on_host);
        end_table(returned);
        end_device_pool(device);
        end_device_pool(again);
        end_pool(host);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        device_test(pools_say_where_their_memory_is),
        device_test(pages_are_zero_in_a_new_pool_and_poisoned_if_asked_for),
        device_test(freed_pages_are_poisoned_behind_the_work_that_used_them),
        device_test(what_is_written_by_slots_is_gathered_by_pages),
        device_test(nothing_to_do_launches_nothing),
        device_test(rows_in_host_memory_are_refused_unless_it_is_pinned),
        device_test(memory_of_another_device_is_refused),
        device_test(case_Q20_pools_on_two_devices_at_once),
        device_test(pools_on_one_device_share_its_context),
        device_test(pools_lie_over_tensors_of_the_engine),
        device_test(tensors_of_the_engine_have_to_be_the_devices),
        device_test(pools_of_ids_alone_need_no_memory),
        device_test(options_that_contradict_the_device_are_refused),
        device_test(too_little_memory_is_an_error_that_leaves_nothing),
        device_test(host_pools_refuse_streams_as_before),
        device_test(sequences_are_exported_and_imported_between_device_and_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
