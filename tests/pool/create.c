/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a pool: limits and the errors that name the field and the value, struct sizes, shards, huge pages, and what
 * the statistics say about the memory. Field cases P13, Q17. */
#include "support/support.h"

static pkv_pool_options pool_options(const pkv_group_options *group) {
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = 4;
    options.num_groups = 1;
    options.groups = group;
    return options;
}

static pkv_status create_status(const pkv_pool_options *options) {
    pkv_pool *pool = NULL;
    const pkv_status status = pkv_pool_create(options, &pool);
    if (status == PKV_OK)
        end_pool(pool);
    else
        assert_null(pool);
    return status;
}

/* One field set to a value it must not have: the status, and the message holds the name and the value. */
struct field_case {
    const char *field;
    size_t offset;
    size_t size;
    uint64_t value;
    pkv_status status;
    const char *text; /* how the value reads */
};

#define FIELD(type, field, value, status, text)                                                                        \
    { #field, offsetof(type, field), sizeof(((type *)0)->field), (uint64_t)(value), status, text }
#define GROUP(field, value, status, text) FIELD(pkv_group_options, field, value, status, text)
#define POOL(field, value, status, text) FIELD(pkv_pool_options, field, value, status, text)

static void set_field(void *object, const struct field_case *field) {
    memcpy((unsigned char *)object + field->offset, &field->value, field->size); /* little-endian: the low bytes */
}

static void check_field(const struct field_case *field, const pkv_pool_options *options) {
    const pkv_status status = create_status(options);
    if (status != field->status) fail_msg("%s = %s gave %s", field->field, field->text, pkv_status_string(status));
    if (status == PKV_OK) return;
    assert_message(field->field);
    assert_message(field->text);
}

static void group_fields_out_of_range_are_named_with_their_value(void **state) {
    (void)state;
    const struct field_case cases[] = {
        GROUP(num_pages, 0, PKV_ERR_INVALID, "0"),
        GROUP(num_pages, UINT64_C(1) << 31, PKV_ERR_LIMIT, "2147483648"),
        GROUP(num_pages, UINT64_MAX, PKV_ERR_LIMIT, "18446744073709551615"),
        GROUP(num_layers, 0, PKV_ERR_INVALID, "0"),
        GROUP(num_layers, PKV_MAX_LAYERS + 1, PKV_ERR_LIMIT, "4097"),
        GROUP(num_layers, PKV_MAX_LAYERS, PKV_OK, "4096"),
        GROUP(num_kv_heads, 0, PKV_ERR_INVALID, "0"),
        GROUP(num_kv_heads, PKV_MAX_HEADS + 1, PKV_ERR_LIMIT, "65537"),
        GROUP(num_kv_heads, PKV_MAX_HEADS, PKV_OK, "65536"),
        GROUP(k_head_dim, 0, PKV_ERR_INVALID, "0"),
        GROUP(k_head_dim, PKV_MAX_ROW_BYTES / 2 + 1, PKV_ERR_LIMIT, "8388609"),
        GROUP(k_head_dim, PKV_MAX_ROW_BYTES / 2, PKV_OK, "8388608"),
        GROUP(k_head_dim, UINT32_MAX, PKV_ERR_LIMIT, "4294967295"),
        GROUP(v_head_dim, PKV_MAX_ROW_BYTES / 2 + 1, PKV_ERR_LIMIT, "8388609"),
        GROUP(v_head_dim, 0, PKV_OK, "0"),
        GROUP(dtype, 0, PKV_ERR_INVALID, "0"),
        GROUP(dtype, PKV_DTYPE_OPAQUE + 1, PKV_ERR_INVALID, "8"),
        GROUP(dtype, -1, PKV_ERR_INVALID, "-1"),
        GROUP(layout, 2, PKV_ERR_INVALID, "2"),
        GROUP(layout, -1, PKV_ERR_INVALID, "-1"),
        GROUP(arrangement, 2, PKV_ERR_INVALID, "2"),
        GROUP(arrangement, -7, PKV_ERR_INVALID, "-7"),
        GROUP(attention, 2, PKV_ERR_INVALID, "2"),
        GROUP(attention, PKV_ATTENTION_WINDOW, PKV_ERR_INVALID, "window"), /* of no token */
        GROUP(window, 5, PKV_ERR_INVALID, "5"),
        GROUP(sinks, 6, PKV_ERR_INVALID, "6"),
        GROUP(memory, 3, PKV_ERR_INVALID, "3"),
        GROUP(memory, -1, PKV_ERR_INVALID, "-1"),
        GROUP(k_row_bytes, 12, PKV_ERR_INVALID, "12"), /* these are for opaque rows */
        GROUP(v_row_bytes, 13, PKV_ERR_INVALID, "13"),
        GROUP(total_layers, 1, PKV_ERR_INVALID, "1"), /* two are held */
        GROUP(total_heads, 1, PKV_ERR_INVALID, "1"),
        GROUP(first_layer, UINT32_MAX, PKV_ERR_LIMIT, "4294967295"),
        GROUP(first_head, UINT32_MAX - 1, PKV_ERR_LIMIT, "4294967294"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        pkv_group_options group = small_group(1);
        const pkv_pool_options options = pool_options(&group);
        set_field(&group, &cases[i]);
        check_field(&cases[i], &options);
    }
}

static void pool_fields_out_of_range_are_named_with_their_value(void **state) {
    (void)state;
    const struct field_case cases[] = {
        POOL(page_tokens, 0, PKV_ERR_INVALID, "0"),
        POOL(page_tokens, PKV_MAX_PAGE_TOKENS + 1, PKV_ERR_LIMIT, "65537"),
        POOL(page_tokens, PKV_MAX_PAGE_TOKENS, PKV_OK, "65536"),
        POOL(page_tokens, 1, PKV_OK, "1"),
        POOL(num_groups, 0, PKV_ERR_INVALID, "0"),
        POOL(num_groups, PKV_MAX_GROUPS + 1, PKV_ERR_LIMIT, "9"),
        POOL(groups, 0, PKV_ERR_INVALID, "NULL"),
        POOL(huge_pages, 3, PKV_ERR_INVALID, "3"),
        POOL(huge_pages, -1, PKV_ERR_INVALID, "-1"),
        POOL(copy_threads, 100000, PKV_ERR_LIMIT, "100000"),
        POOL(copy_threads, 2, PKV_OK, "2"),
        POOL(event_capacity, (1u << 24) + 1, PKV_ERR_LIMIT, "16777217"),
        POOL(event_capacity, 3, PKV_OK, "3"),
        POOL(debug, 0x40, PKV_ERR_UNSUPPORTED, "0x40"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        const pkv_group_options group = small_group(1);
        pkv_pool_options options = pool_options(&group);
        set_field(&options, &cases[i]);
        check_field(&cases[i], &options);
    }
}

static void reserved_fields_must_be_0(void **state) {
    (void)state;
    pkv_group_options group = small_group(1);
    const pkv_pool_options options = pool_options(&group);
    group.reserved = 1;
    assert_int_equal(create_status(&options), PKV_ERR_UNSUPPORTED);
    assert_message("reserved");
}

static void null_arguments_are_invalid(void **state) {
    (void)state;
    const pkv_group_options group = small_group(1);
    const pkv_pool_options options = pool_options(&group);
    assert_status(pkv_pool_create(&options, NULL), PKV_ERR_INVALID);
    assert_int_equal(create_status(NULL), PKV_ERR_INVALID);
}

static void groups_each_have_a_geometry_of_their_own(void **state) {
    (void)state;
    pkv_group_options groups[2] = {small_group(3), small_group(5)};
    groups[1].attention = PKV_ATTENTION_WINDOW;
    groups[1].window = 8;
    groups[1].k_head_dim = 6;
    pkv_pool_options options = pool_options(groups);
    options.num_groups = 2;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    assert_ok(pkv_pool_layout(pool, 1, 1, &layout));
    assert_int_equal(layout.k_row_bytes, 12);
    assert_ok(pkv_pool_layout(pool, 0, 1, &layout));
    assert_int_equal(layout.k_row_bytes, 8);
    pkv_pool_stats stats = PKV_POOL_STATS_INIT;
    assert_ok(pkv_pool_get_stats(pool, 1, &stats));
    assert_int_equal(stats.num_pages, 5);
    assert_status(pkv_pool_get_stats(pool, 2, &stats), PKV_ERR_INVALID);
    assert_ok(pkv_pool_destroy(pool));
}

static void opaque_rows_have_bytes_and_no_dims(void **state) {
    (void)state;
    pkv_group_options group = small_group(1);
    const pkv_pool_options options = pool_options(&group);
    group.dtype = PKV_DTYPE_OPAQUE;
    assert_int_equal(create_status(&options), PKV_ERR_INVALID);
    group.k_head_dim = group.v_head_dim = 0;
    assert_int_equal(create_status(&options), PKV_ERR_INVALID);
    assert_message("k_row_bytes");
    group.k_row_bytes = 18;
    assert_int_equal(create_status(&options), PKV_OK); /* no V */
    group.v_row_bytes = 34;
    assert_int_equal(create_status(&options), PKV_OK);
    group.v_row_bytes = PKV_MAX_ROW_BYTES + 1;
    assert_int_equal(create_status(&options), PKV_ERR_LIMIT);
    assert_message("v_row_bytes is 16777217");
    group.v_row_bytes = 0;
    group.k_row_bytes = PKV_MAX_ROW_BYTES + 1;
    assert_int_equal(create_status(&options), PKV_ERR_LIMIT);
    group.k_row_bytes = PKV_MAX_ROW_BYTES;
    assert_int_equal(create_status(&options), PKV_OK);
}

static void pages_that_pass_the_address_space_are_refused(void **state) {
    (void)state;
    pkv_group_options group = small_group(INT32_MAX);
    pkv_pool_options options = pool_options(&group);
    group.num_layers = PKV_MAX_LAYERS;
    group.num_kv_heads = PKV_MAX_HEADS;
    group.k_head_dim = group.v_head_dim = PKV_MAX_ROW_BYTES / 2;
    options.page_tokens = PKV_MAX_PAGE_TOKENS;
    assert_int_equal(create_status(&options), PKV_ERR_LIMIT); /* every field is in range, the product is not */
    group.memory = PKV_MEMORY_NONE;
    const pkv_status status = create_status(&options);
    assert_true(status == PKV_ERR_LIMIT || status == PKV_ERR_NO_MEMORY);
}

static void as_many_pages_as_ids_allow_can_be_planned_for(void **state) {
    (void)state;
    pkv_group_options group = small_group(INT32_MAX);
    group.memory = PKV_MEMORY_NONE;
    const pkv_pool_options options = pool_options(&group);
    pkv_pool *pool = NULL;
    const pkv_status status = pkv_pool_create(&options, &pool);
    if (status == PKV_ERR_NO_MEMORY) skip(); /* the system promises no memory ahead of its use */
    assert_int_equal(status, PKV_OK);
    assert_int_equal(stats_of(pool).free_pages, INT32_MAX);
    pkv_page page;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &page));
    release_pages(pool, &page, 1);
    end_pool(pool);
}

static void shard_positions_must_lie_in_the_model(void **state) {
    (void)state;
    const struct {
        uint32_t first, total;
        pkv_status status;
    } cases[] = {{0, 0, PKV_OK},
                 {30, 0, PKV_OK},
                 {30, 32, PKV_OK},
                 {30, 31, PKV_ERR_INVALID},
                 {0, 2, PKV_OK},
                 {1, 2, PKV_ERR_INVALID},
                 {UINT32_MAX - 2, UINT32_MAX, PKV_OK},
                 {UINT32_MAX, UINT32_MAX, PKV_ERR_INVALID}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
        for (int heads = 0; heads < 2; ++heads) {
            pkv_group_options group = small_group(1);
            const pkv_pool_options options = pool_options(&group);
            *(heads ? &group.first_head : &group.first_layer) = cases[i].first;
            *(heads ? &group.total_heads : &group.total_layers) = cases[i].total;
            assert_int_equal(create_status(&options), cases[i].status);
        }
}

/* ---- struct sizes ---- */

struct with_tail {
    pkv_pool_options options;
    unsigned char tail[64];
};

static void case_Q17_structs_of_older_and_newer_headers(void **state) {
    (void)state;
    pkv_group_options group = small_group(4);
    struct with_tail larger = {pool_options(&group), {0}};
    larger.options.struct_size = sizeof larger;
    assert_int_equal(create_status(&larger.options), PKV_OK);
    larger.tail[63] = 1;
    assert_int_equal(create_status(&larger.options), PKV_ERR_UNSUPPORTED);
    larger.tail[63] = 0;
    larger.tail[0] = 0x80;
    assert_int_equal(create_status(&larger.options), PKV_ERR_UNSUPPORTED);
    larger.options.struct_size = sizeof larger.options; /* what lies behind is not looked at */
    assert_int_equal(create_status(&larger.options), PKV_OK);

    pkv_pool_options older = pool_options(&group); /* fields behind struct_size do not exist */
    older.struct_size = offsetof(pkv_pool_options, seed);
    older.seed = 5;
    older.debug = 0xFFFF;
    pkv_pool *pool;
    assert_ok(pkv_pool_create(&older, &pool));
    assert_int_equal(stats_of(pool).key_seed, PKV_KEY_SEED_RANDOM);
    end_pool(pool);
    group.struct_size = offsetof(pkv_group_options, max_cached_pages);
    group.max_cached_pages = 1;
    older = pool_options(&group);
    assert_ok(pkv_pool_create(&older, &pool));
    pkv_token tokens[8] = {0};
    const pkv_prompt prompt = prompt_of(tokens, 8);
    publish_cached(pool, &prompt);
    assert_int_equal(stats_of(pool).cached_pages, 2);
    end_pool(pool);
}

static void struct_sizes_that_cannot_be_are_invalid(void **state) {
    (void)state;
    const size_t sizes[] = {0, 1, 7, SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 32, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        pkv_group_options group = small_group(1);
        pkv_pool_options options = pool_options(&group);
        options.struct_size = sizes[i];
        assert_int_equal(create_status(&options), PKV_ERR_INVALID);
        assert_message("struct_size");
        options.struct_size = sizeof options;
        group.struct_size = sizes[i];
        assert_int_equal(create_status(&options), PKV_ERR_INVALID);
        pkv_pool *pool = make_pool(1, 4);
        pkv_pool_stats stats = PKV_POOL_STATS_INIT;
        stats.struct_size = sizes[i];
        assert_status(pkv_pool_get_stats(pool, 0, &stats), PKV_ERR_INVALID);
        pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
        layout.struct_size = sizes[i];
        assert_status(pkv_pool_layout(pool, 0, 0, &layout), PKV_ERR_INVALID);
        end_pool(pool);
    }
}

static void results_are_written_as_far_as_the_caller_has_room(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(3, 4);
    for (size_t size = sizeof(size_t); size <= sizeof(pkv_pool_stats) + 40; size += 8) {
        unsigned char raw[sizeof(pkv_pool_stats) + 64];
        memset(raw, 0xAB, sizeof raw);
        memcpy(raw, &size, sizeof size);
        assert_ok(pkv_pool_get_stats(pool, 0, (pkv_pool_stats *)(void *)raw));
        for (size_t i = size; i < sizeof raw; ++i) assert_int_equal(raw[i], 0xAB);
        for (size_t i = sizeof(pkv_pool_stats); i < size; ++i) assert_int_equal(raw[i], 0);
        assert_memory_equal(raw, &size, sizeof size);
        uint64_t num_pages = 3;
        if (size >= 16) assert_memory_equal(raw + offsetof(pkv_pool_stats, num_pages), &num_pages, 8);
    }
    end_pool(pool);
}

/* ---- memory ---- */

static int32_t memory_kind(const pkv_group_options *group, int32_t huge_pages) {
    pkv_pool_options options = pool_options(group);
    options.huge_pages = huge_pages;
    pkv_pool *pool;
    assert_ok(pkv_pool_create(&options, &pool));
    const int32_t kind = stats_of(pool).memory_kind;
    end_pool(pool);
    return kind;
}

static void statistics_tell_the_kind_of_memory(void **state) {
    (void)state;
    pkv_group_options group = small_group(65536); /* 16 MiB */
    assert_int_equal(memory_kind(&group, PKV_HUGE_PAGES_NEVER), PKV_MEMORY_KIND_PAGES);
    const int32_t kind = memory_kind(&group, PKV_HUGE_PAGES_AUTO);
    assert_true(kind == PKV_MEMORY_KIND_TRANSPARENT_HUGE || kind == PKV_MEMORY_KIND_PAGES);
    group.memory = PKV_MEMORY_NONE;
    assert_int_equal(memory_kind(&group, PKV_HUGE_PAGES_AUTO), PKV_MEMORY_KIND_NONE);
}

static void required_huge_pages_work_or_say_why_not(void **state) {
    (void)state;
    const pkv_group_options group = small_group(65536);
    pkv_pool_options options = pool_options(&group);
    options.huge_pages = PKV_HUGE_PAGES_REQUIRE;
    pkv_pool *pool;
    const pkv_status status = pkv_pool_create(&options, &pool);
    if (status == PKV_OK) {
        assert_int_equal(stats_of(pool).memory_kind, PKV_MEMORY_KIND_HUGETLB);
        end_pool(pool);
    } else {
        assert_int_equal(status, PKV_ERR_NO_MEMORY);
        assert_message("huge pages");
        assert_message("16777216 bytes");
    }
}

static void case_P13_page_bytes_follow_the_documented_formula(void **state) {
    (void)state;
    const struct {
        uint32_t page_tokens, layers, heads, total_heads, k_dim, v_dim;
        int32_t dtype;
        uint64_t expected;
    } cases[] = {
        {16, 32, 8, 0, 128, 128, PKV_DTYPE_F16, 2097152},
        {16, 32, 1, 8, 128, 128, PKV_DTYPE_BF16, 262144}, /* one of eight ranks */
        {64, 61, 1, 0, 576, 0, PKV_DTYPE_BF16, 4497408},  /* latent rows, no V */
        {1, 1, 1, 0, 1, 1, PKV_DTYPE_I8, 2},
        {100, 3, 5, 0, 7, 9, PKV_DTYPE_F32, 96000},
        {3, 2, 2, 0, 192, 128, PKV_DTYPE_F8_E4M3, 3840},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
        for (int layout = 0; layout < 4; ++layout) {
            pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
            group.num_pages = 2;
            group.num_layers = cases[i].layers;
            group.num_kv_heads = cases[i].heads;
            group.total_heads = cases[i].total_heads;
            group.k_head_dim = cases[i].k_dim;
            group.v_head_dim = cases[i].v_dim;
            group.dtype = cases[i].dtype;
            group.layout = layout & 1;
            group.arrangement = layout >> 1;
            pkv_pool *pool = make_pool_of(&group, cases[i].page_tokens, 0);
            assert_int_equal(stats_of(pool).page_bytes, cases[i].expected);
            end_pool(pool);
        }
}

static void bookkeeping_of_a_full_pool_is_below_128_bytes_a_page(void **state) {
    (void)state;
    enum { pages = 100000 };
    pkv_pool *pool = make_id_pool(pages, 1);
    pkv_token *tokens = calloc(pages, sizeof *tokens);
    const pkv_prompt prompt = prompt_of(tokens, pages);
    publish_cached(pool, &prompt);
    assert_int_equal(stats_of(pool).index_blocks, pages);
    assert_true(stats_of(pool).metadata_bytes < 128 * (uint64_t)pages);
    assert_true(stats_of(pool).metadata_bytes > 32 * (uint64_t)pages);
    free(tokens);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(group_fields_out_of_range_are_named_with_their_value),
        cmocka_unit_test(pool_fields_out_of_range_are_named_with_their_value),
        cmocka_unit_test(reserved_fields_must_be_0),
        cmocka_unit_test(null_arguments_are_invalid),
        cmocka_unit_test(groups_each_have_a_geometry_of_their_own),
        cmocka_unit_test(opaque_rows_have_bytes_and_no_dims),
        cmocka_unit_test(pages_that_pass_the_address_space_are_refused),
        cmocka_unit_test(as_many_pages_as_ids_allow_can_be_planned_for),
        cmocka_unit_test(shard_positions_must_lie_in_the_model),
        cmocka_unit_test(case_Q17_structs_of_older_and_newer_headers),
        cmocka_unit_test(struct_sizes_that_cannot_be_are_invalid),
        cmocka_unit_test(results_are_written_as_far_as_the_caller_has_room),
        cmocka_unit_test(statistics_tell_the_kind_of_memory),
        cmocka_unit_test(required_huge_pages_work_or_say_why_not),
        cmocka_unit_test(case_P13_page_bytes_follow_the_documented_formula),
        cmocka_unit_test(bookkeeping_of_a_full_pool_is_below_128_bytes_a_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
