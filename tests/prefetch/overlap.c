/* SPDX-License-Identifier: Apache-2.0 */
/* Does a session hide the loads of a sequence behind the compute of its layers? Every block but the last one lies in a tier
 * whose loads take a known time; compute is a wait of a known length.
 *
 * What is always asserted: bytes, statuses and counters. Times are printed, and asserted with PKV_TEST_TIMING=1 only, on a
 * machine that does nothing else. */
#include "prefetch/rated.h"

enum {
    layers = 32,
    heads = 8,
    dim = 128,
    page_tokens = 16,
    blocks = 12, /* absent ones */
    tail_tokens = 5,
    tokens = blocks * page_tokens + tail_tokens,
    row_bytes = dim * 2,
    side_bytes = page_tokens * heads * row_bytes,
    slice_bytes = 2 * side_bytes,
    header_bytes = 4096,
    layer_bytes = blocks * slice_bytes,
    pool_pages = 16,
};

static const uint64_t latency_ns = 100000, bytes_per_second = 256000000, for_ever = 60ull * one_second;
static const uint64_t io_ns_of_layer = layer_bytes * 1000ull / 256; /* 3.07 ms */

static struct {
    rated *tier;
    pkv_pool *pool;
    pkv_table *table;
    unsigned char *rows; /* [layer][block][K, V][token][head], as they were before they went down */
} world;

static bool timing(void) {
    const char *value = getenv("PKV_TEST_TIMING");
    return value != NULL && strcmp(value, "1") == 0;
}

static uint64_t measured_steps(void) { return timing() ? 10 : 3; }

/* ---- the sequence ---- */

static unsigned char *rows_of(uint32_t layer, uint64_t block, int side) {
    const uint64_t number = (layer * (blocks + UINT64_C(1)) + block) * 2 + (side == 0 ? 0 : 1);
    return world.rows + number * side_bytes;
}

/* Random rows, written through the library and kept. */
static void write_sequence(uint64_t seed) {
    test_random random = {seed};
    world.rows = malloc((uint64_t)layers * (blocks + 1) * slice_bytes);
    unsigned char *rows[2] = {malloc(tokens * heads * row_bytes), malloc(tokens * heads * row_bytes)};
    for (uint32_t layer = 0; layer < layers; ++layer) {
        pkv_tensor tensors[2] = {PKV_TENSOR_INIT, PKV_TENSOR_INIT};
        for (int side = 0; side < 2; ++side) {
            for (uint64_t at = 0; at < (uint64_t)tokens * heads * row_bytes; at += 8) {
                const uint64_t word = next_random(&random);
                memcpy(rows[side] + at, &word, 8);
            }
            for (uint64_t block = 0; block <= blocks; ++block)
                memcpy(rows_of(layer, block, side), rows[side] + block * side_bytes,
                       block < blocks ? side_bytes : tail_tokens * heads * row_bytes);
            tensors[side].data = rows[side];
            tensors[side].dtype = PKV_DTYPE_F16;
            tensors[side].num_tokens = tokens;
        }
        assert_ok(pkv_table_write(world.table, 0, layer, 0, tokens, &tensors[0], &tensors[1], NULL));
    }
    free(rows[0]);
    free(rows[1]);
}

static int make_world(void **state) {
    (void)state;
    const uint64_t seed = 20250612;
    print_message("seed %llu\n", (unsigned long long)seed);
    world.tier = rated_open(latency_ns, bytes_per_second);
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = pool_pages;
    group.num_layers = layers;
    group.num_kv_heads = heads;
    group.k_head_dim = group.v_head_dim = dim;
    const pkv_tier_attachment at = attachment(world.tier->tier, PKV_TIER_WRITE_BACK);
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = &at;
    options.num_tiers = 1;
    assert_ok(pkv_pool_create(&options, &world.pool));
    assert_int_equal(stats_of(world.pool).image_bytes, header_bytes + layers * slice_bytes);

    const pkv_prompt prompt = prompt_of(NULL, 0);
    world.table = admit(world.pool, &prompt, NULL);
    assert_ok(pkv_table_reserve(world.table, tokens));
    write_sequence(seed);
    assert_ok(pkv_table_commit(world.table, tokens, NULL));
    pkv_spill_result spilled = PKV_SPILL_RESULT_INIT;
    assert_ok(pkv_table_spill(world.table, 0, blocks, NULL, &spilled));
    assert_int_equal(spilled.spilled_blocks, blocks);
    assert_int_equal(rated_count(world.tier).images, blocks);
    return 0;
}

static int end_world(void **state) {
    (void)state;
    end_table(world.table);
    end_pool(world.pool);
    rated_end(world.tier);
    free(world.rows);
    return 0;
}

/* ---- steps ---- */

static const unsigned char *row_at(const void *base, pkv_strides stride, int32_t slice, uint64_t token, uint64_t head) {
    return (const unsigned char *)base + (uint64_t)slice * stride.page + token * stride.token + head * stride.head;
}

/* The entries of a view, from block `*next` on, against what was written; the blocks that it covers are counted. */
static void check_view(const pkv_layer_view *view, uint64_t *next) {
    assert_int_equal(view->num_tables, 1);
    assert_int_equal(view->indptr[0], 0);
    assert_int_equal(view->indptr[1], view->num_slices);
    assert_int_equal(view->first_block[0], *next);
    assert_int_equal(view->layout.k_row_bytes, row_bytes);
    assert_int_equal(view->layout.page_tokens, page_tokens);
    for (uint64_t i = 0; i < view->num_slices; ++i, ++*next) {
        assert_true(*next <= blocks && view->slices[i] >= 0);
        const uint64_t in_block = *next < blocks ? page_tokens : tail_tokens;
        for (uint64_t row = 0; row < in_block * heads; ++row)
            for (int side = 0; side < 2; ++side) {
                const unsigned char *got =
                    side == 0 ? row_at(view->layout.k_base, view->layout.k, view->slices[i], row / heads, row % heads)
                              : row_at(view->layout.v_base, view->layout.v, view->slices[i], row / heads, row % heads);
                if (memcmp(got, rows_of(view->layer, *next, side) + row * row_bytes, row_bytes) != 0)
                    fail_msg("%s of layer %u, block %llu, token %llu, head %llu is another", side == 0 ? "K" : "V",
                             view->layer, (unsigned long long)*next, (unsigned long long)(row / heads),
                             (unsigned long long)(row % heads));
            }
    }
}

/* How long a layer is computed. */
typedef struct {
    double of_io;  /* times the I/O time of a layer */
    double jitter; /* more or less, at most */
    test_random random;
} pace;

static uint64_t compute_ns(pace *p) {
    const double at = (double)random_below(&p->random, 1 << 20) / (1 << 19) - 1; /* -1 .. 1 */
    return (uint64_t)(p->of_io * (1 + p->jitter * at) * (double)io_ns_of_layer);
}

/* One layer: `p` NULL compares bytes in place of waiting. */
static void run_layer(pkv_prefetch *session, uint32_t index, pace *p) {
    uint64_t next = 0;
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    do {
        assert_ok(pkv_prefetch_layer_acquire(session, index, for_ever, NULL, &view));
        assert_int_equal(view.index, index);
        assert_int_equal(view.layer, index);
        assert_int_equal(view.group, 0);
        if (p != NULL)
            rated_sleep_until(rated_now() + compute_ns(p) * view.num_slices / (blocks + 1));
        else
            check_view(&view, &next);
        assert_ok(pkv_prefetch_layer_release(session, index, NULL));
    } while (!view.last);
    if (p == NULL) assert_int_equal(next, blocks + 1);
}

static void begin_step(pkv_prefetch *session) {
    pkv_status status = PKV_ERR_INTERNAL;
    assert_ok(pkv_prefetch_step_begin(session, 1, &world.table, NULL, &status));
    assert_int_equal(status, PKV_OK);
}

static void end_step(pkv_prefetch *session) {
    pkv_status status = PKV_ERR_INTERNAL;
    assert_ok(pkv_prefetch_step_end(session, &status));
    assert_int_equal(status, PKV_OK);
}

static void run_step(pkv_prefetch *session, pace *p) {
    begin_step(session);
    for (uint32_t index = 0; index < layers; ++index) run_layer(session, index, p);
    end_step(session);
}

/* ---- numbers ---- */

/* What has to hold at any time, and what is known after so many steps that went well. */
static pkv_prefetch_stats check_numbers(pkv_prefetch *session, uint64_t steps) {
    pkv_prefetch_stats s = PKV_PREFETCH_STATS_INIT;
    assert_ok(pkv_prefetch_get_stats(session, &s));
    assert_int_equal(s.needed, s.on_time + s.late + s.on_demand);
    assert_int_equal(s.io_ns, s.masked_ns + s.exposed_ns);
    assert_int_equal(s.bytes_loaded, s.bytes_used + s.wasted_bytes + s.ready_bytes);
    assert_int_equal(s.loads, s.good_loads + s.failed_loads + s.cancelled_loads + s.loads_in_flight);
    assert_int_equal(s.load.count, s.good_loads);
    assert_int_equal(s.steps, steps);
    assert_int_equal(s.needed, steps * layers * blocks);
    assert_int_equal(s.requests, steps);
    assert_true(s.ready_requests <= s.requests);
    assert_true(s.ranges >= steps * layers);
    assert_int_equal(s.failed, 0);
    assert_int_equal(s.failed_loads, 0);
    assert_int_equal(s.checksum_failures, 0);
    assert_true(s.bytes_used >= s.needed * slice_bytes);
    const double efficiency = s.io_ns == 0 ? 0 : (double)s.masked_ns / (double)s.io_ns;
    assert_true(s.masking_efficiency >= efficiency - 1e-9 && s.masking_efficiency <= efficiency + 1e-9);
    return s;
}

typedef struct {
    double io, exposed, masked; /* milliseconds, after the first layer of the first step */
    double total;               /* of all steps */
    double needed;              /* what was needed, on the wire */
    double carried;             /* what was carried meanwhile */
} outcome;

static double ms(uint64_t ns) { return (double)ns / 1e6; }

static void print_outcome(const char *name, double of_io, const outcome *o) {
    print_message(
        "%-14s compute %.2f x I/O: masking efficiency %.4f, exposed %.2f %% (%.2f of %.1f ms); steps took %.1f ms, "
        "%.4f of the time of what they need on the wire (of what was carried: %.4f)\n",
        name, of_io, o->io > 0 ? o->masked / o->io : 0, o->io > 0 ? 100 * o->exposed / o->io : 0, o->exposed, o->io,
        o->total, o->total / o->needed, o->total / o->carried);
}

/* After a step: until the first layer of the next one is there, which takes no call. */
static void wait_for_first_layer(pkv_prefetch *session) {
    pkv_prefetch_stats s = PKV_PREFETCH_STATS_INIT;
    for (int waited = 0; s.ready_bytes < layer_bytes || s.loads_in_flight != 0; ++waited) {
        if (waited == 60000) fail_msg("nothing is loaded for the next step");
        rated_sleep_until(rated_now() + 1000000);
        assert_ok(pkv_prefetch_get_stats(session, &s));
    }
}

static outcome run_session(const char *name, uint32_t flags, pace p) {
    const double of_io = p.of_io;
    const uint64_t steps = measured_steps(), free_pages = stats_of(world.pool).free_pages;
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.flags = flags;
    pkv_prefetch *session = NULL;
    assert_ok(pkv_prefetch_open(world.pool, &options, &session));

    const rated_counts wire_before = rated_count(world.tier);
    const uint64_t begin = rated_now();
    begin_step(session);
    run_layer(session, 0, &p);
    pkv_prefetch_stats before = PKV_PREFETCH_STATS_INIT;
    assert_ok(pkv_prefetch_get_stats(session, &before));
    for (uint32_t index = 1; index < layers; ++index) run_layer(session, index, &p);
    end_step(session);
    for (uint64_t step = 1; step < steps; ++step) run_step(session, &p);
    const uint64_t end = rated_now();
    const rated_counts wire_after = rated_count(world.tier);
    const pkv_prefetch_stats after = check_numbers(session, steps);

    outcome o = {0};
    o.io = ms(after.io_ns - before.io_ns);
    o.exposed = ms(after.exposed_ns - before.exposed_ns);
    o.masked = ms(after.masked_ns - before.masked_ns);
    o.total = ms(end - begin);
    o.needed = ms(steps * layers * io_ns_of_layer);
    o.carried = ms(wire_after.wire_ns - wire_before.wire_ns);
    print_outcome(name, of_io, &o);

    if ((flags & PKV_PREFETCH_OFF) == 0) wait_for_first_layer(session);
    run_step(session, NULL);
    const pkv_prefetch_stats last = check_numbers(session, steps + 1);
    if ((flags & PKV_PREFETCH_OFF) != 0) {
        assert_int_equal(last.on_demand, last.needed);
        assert_int_equal(last.ready_bytes, 0);
        assert_int_equal(last.wasted_bytes, 0);
    } else {
        assert_true(last.on_time >= after.on_time + blocks);
    }
    assert_ok(pkv_prefetch_close(session, NULL));
    assert_int_equal(stats_of(world.pool).free_pages, free_pages);
    return o;
}

/* ---- tests ---- */

static void every_view_has_the_bytes_that_went_down(void **state) {
    (void)state;
    pkv_prefetch *session = NULL;
    assert_ok(pkv_prefetch_open(world.pool, NULL, &session));
    run_step(session, NULL);
    check_numbers(session, 1);
    run_step(session, NULL);
    check_numbers(session, 2);
    assert_ok(pkv_prefetch_cancel(session)); /* what was loaded for the third is dropped, and counted as that */
    assert_int_equal(check_numbers(session, 2).ready_bytes, 0);
    run_step(session, NULL);
    check_numbers(session, 3);
    assert_ok(pkv_prefetch_close(session, NULL));
    /* The sequence has not changed. */
    assert_int_equal(info_of(world.table).absent_blocks, blocks);
    assert_int_equal(info_of(world.table).valid, tokens);
}

static void compute_that_takes_longer_than_io_hides_it(void **state) {
    (void)state;
    const outcome o = run_session("session", 0, (pace){1.25, 0, {1}});
    if (timing()) assert_true(o.exposed <= 0.02 * o.io);
}

static void io_that_takes_longer_than_compute_sets_the_pace(void **state) {
    (void)state;
    const outcome o = run_session("session", 0, (pace){0.5, 0, {1}});
    if (timing()) assert_true(o.total <= 1.05 * o.needed);
}

static void compute_times_that_vary_expose_little(void **state) {
    (void)state;
    const outcome o = run_session("session, +-50 %", 0, (pace){1.25, 0.5, {20250613}});
    if (timing()) assert_true(o.exposed <= 0.05 * o.io);
}

static void without_prefetch_every_load_is_exposed(void **state) {
    (void)state;
    const outcome o = run_session("prefetch off", PKV_PREFETCH_OFF, (pace){1.25, 0, {1}});
    if (timing()) assert_true(o.exposed >= 0.98 * o.io);
}

/* What there is to win: a loader with one buffer, which reads the same slices from the same tier and checks nothing. */
static void a_single_buffer_takes_the_sum_of_both(void **state) {
    (void)state;
    unsigned char *buffer = malloc(layer_bytes);
    for (int turn = 0; turn < 2; ++turn) {
        pace p = {turn == 0 ? 1.25 : 0.5, 0, {1}};
        const rated_counts wire_before = rated_count(world.tier);
        const uint64_t begin = rated_now();
        uint64_t waited = 0;
        for (uint32_t layer = 0; layer < layers; ++layer) {
            const uint64_t asked = rated_now();
            rated_read(world.tier, header_bytes + (uint64_t)layer * slice_bytes, slice_bytes, buffer);
            const uint64_t there = rated_now();
            waited += there - asked;
            for (uint64_t block = 0; block < blocks; ++block) /* K, then V, as they lie in the world's rows, too */
                assert_memory_equal(buffer + block * slice_bytes, rows_of(layer, block, 0), slice_bytes);
            rated_sleep_until(there + compute_ns(&p));
        }
        outcome o = {0};
        o.total = ms(rated_now() - begin);
        o.io = o.exposed = ms(waited);
        o.needed = ms(layers * io_ns_of_layer);
        o.carried = ms(rated_count(world.tier).wire_ns - wire_before.wire_ns);
        print_outcome("single buffer", p.of_io, &o);
    }
    free(buffer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_view_has_the_bytes_that_went_down),
        cmocka_unit_test(compute_that_takes_longer_than_io_hides_it),
        cmocka_unit_test(io_that_takes_longer_than_compute_sets_the_pace),
        cmocka_unit_test(compute_times_that_vary_expose_little),
        cmocka_unit_test(without_prefetch_every_load_is_exposed),
        cmocka_unit_test(a_single_buffer_takes_the_sum_of_both),
    };
    return cmocka_run_group_tests(tests, make_world, end_world);
}
