/* SPDX-License-Identifier: Apache-2.0 */
/* Prefetch sessions on device pools: the stream waits for loads, and loads for the stream. What sessions do otherwise is tested by
 * the tests of host pools, on the device (prefetch.list). */
#include "device/device.h"

#include "tier/faulty.h"

enum { num_layers = 2, num_blocks = 6, num_tokens = num_blocks * page_tokens, block_bytes = page_tokens * row_bytes };

static void *stream;

static int begin_session_test(void **state) {
    begin_test(state);
    stream = fake()->make_stream(0);
    return 0;
}
#define session_test(function) cmocka_unit_test_setup_teardown(function, begin_session_test, end_test)

/* A sequence of which all blocks are in a tier, and a session. */
typedef struct {
    faulty *f;
    pkv_pool *pool;
    pkv_table *table;
    pkv_prefetch *session;
} world;

static world make_world(uint32_t num_buffers, uint32_t flags) {
    needs_words();
    world w = {.f = faulty_open()};
    const pkv_tier_attachment at = attachment(w.f->tier, PKV_TIER_WRITE_BACK);
    const pkv_group_options group = small_group(32);
    pkv_pool_options pool = device_options(&group);
    pool.tiers = &at;
    pool.num_tiers = 1;
    assert_ok(pkv_pool_create(&pool, &w.pool));
    w.table = new_table(w.pool, 1, num_tokens);
    const pkv_sync sync = on(stream);
    write_tokens(w.table, stream, 0, num_tokens, 1);
    assert_ok(pkv_table_commit(w.table, num_tokens, &sync));
    pkv_spill_result result = PKV_SPILL_RESULT_INIT;
    assert_ok(pkv_table_spill(w.table, 0, num_blocks, &sync, &result));
    assert_int_equal(result.spilled_blocks, num_blocks);
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    const uint64_t staging = num_buffers * num_blocks / num_layers;
    options.num_buffers = num_buffers;
    options.staging_pages = &staging;
    options.flags = flags;
    assert_ok(pkv_prefetch_open(w.pool, &options, &w.session));
    return w;
}

static void end_world(world *w) {
    const pkv_sync sync = on(stream);
    if (w->session != NULL) assert_ok(pkv_prefetch_close(w->session, &sync));
    if (w->table != NULL) assert_ok(pkv_table_destroy(w->table, &sync));
    faulty_let_go(w->f);
    eventually(stats_of(w->pool).held_pages == 0);
    end_device_pool(w->pool);
    faulty_end(w->f);
}

static pkv_prefetch_stats numbers(pkv_prefetch *session) {
    pkv_prefetch_stats stats = PKV_PREFETCH_STATS_INIT;
    assert_ok(pkv_prefetch_get_stats(session, &stats));
    assert_int_equal(stats.needed, stats.on_time + stats.late + stats.on_demand);
    assert_int_equal(stats.io_ns, stats.masked_ns + stats.exposed_ns);
    return stats;
}

/* What the engine's kernel of one layer finds when it runs: the view's entries, and the rows of those slices that the view is
 * about to have. */
typedef struct {
    int32_t slices[num_blocks];
    unsigned char rows[2][num_blocks][block_bytes];
} seen;

static pkv_layer_view acquire(pkv_prefetch *session, uint32_t index, void *in) {
    const pkv_sync sync = on(in);
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    assert_ok(
        pkv_prefetch_layer_acquire(session, index, 0, &sync, &view)); /* a call that waited would be out of time */
    assert_int_equal(view.num_slices, num_blocks);
    assert_int_equal(view.last, 1);
    return view;
}

static void release(pkv_prefetch *session, uint32_t index, void *in) {
    const pkv_sync sync = on(in);
    assert_ok(pkv_prefetch_layer_release(session, index, &sync));
}

/* Puts the kernel into a stream, behind an acquire. */
static void look(const pkv_layer_view *view, void *in, seen *out) {
    memset(out, 0xCC, sizeof *out);
    fake()->take(in, out->slices, view->slices, sizeof out->slices);
    for (int block = 0; block < num_blocks; ++block)
        for (int side = 0; side < 2; ++side) {
            const pkv_strides *strides = side == 0 ? &view->layout.k : &view->layout.v;
            const unsigned char *base = side == 0 ? view->layout.k_base : view->layout.v_base;
            assert_int_equal(strides->token, row_bytes);
            assert_true(view->slices[block] >= 0);
            fake()->take(in, out->rows[side][block], base + (uint64_t)view->slices[block] * strides->page, block_bytes);
        }
}

/* Whether a kernel has found block `block` of a layer. */
static bool found(const seen *s, uint32_t layer, uint64_t block) {
    if (s->slices[block] < 0) return false;
    for (int side = 0; side < 2; ++side)
        for (int i = 0; i < page_tokens * row_elements; ++i) {
            uint16_t element;
            memcpy(&element, s->rows[side][block] + (size_t)i * sizeof element, sizeof element);
            if (element !=
                element_of(1, side, layer, block * page_tokens + (uint64_t)(i / row_elements), i % row_elements))
                return false;
        }
    return true;
}

static bool found_all(const seen *s, uint32_t layer) {
    for (uint64_t block = 0; block < num_blocks; ++block)
        if (!found(s, layer, block)) return false;
    return true;
}

/* ---- the stream waits ---- */

/* A step whose kernels are all in the stream before a load ends. */
static void step_of_a_stream_that_waits(world *w) {
    faulty_block(w->f, true); /* loads do not end */
    assert_ok(pkv_prefetch_step_begin(w->session, 1, &w->table, NULL, NULL));
    seen layers[num_layers];
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
        const pkv_layer_view view = acquire(w->session, layer, stream);
        look(&view, stream, &layers[layer]);
        release(w->session, layer, stream);
    }
    usleep(5000);
    assert_false(fake()->idle(stream));
    for (uint32_t layer = 0; layer < num_layers; ++layer)
        assert_int_equal((uint32_t)layers[layer].slices[0], 0xCCCCCCCC);
    faulty_block(w->f, false);
    fake()->finish(stream);
    for (uint32_t layer = 0; layer < num_layers; ++layer) assert_true(found_all(&layers[layer], layer));
    assert_ok(pkv_prefetch_step_end(w->session, NULL));
}

static void case_J11_a_stream_waits_for_the_loads_of_its_layer_and_no_thread_does(void **state) {
    (void)state;
    world w = make_world(2, 0);
    uint64_t steps = 0;
    pkv_prefetch_stats stats;
    do { /* on a busy machine the device may come to the stream after the loads */
        step_of_a_stream_that_waits(&w);
        stats = numbers(w.session);
        assert_int_equal(stats.needed, ++steps * num_layers * num_blocks);
        assert_int_equal(stats.failed, 0);
    } while (stats.exposed_ns == 0 && steps < 1000);
    assert_true(stats.exposed_ns > 0 && stats.exposed.count > 0); /* the stream's time, not the calls' */
    end_world(&w);
}

/* What the call finds missing may be there by the time that the stream comes along. */
static void parts_are_on_time_when_the_stream_did_not_wait_for_them(void **state) {
    (void)state;
    needs_fake();
    with_fake(f, f.stopped_clock = 1);
    world w = make_world(2, 0);
    faulty_block(w.f, true);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &w.table, NULL, NULL));
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
        (void)acquire(w.session, layer, stream);
        release(w.session, layer, stream);
    }
    pkv_prefetch_stats stats = numbers(w.session);
    assert_int_equal(stats.needed, 0); /* nobody knows yet */
    faulty_block(w.f, false);
    fake()->finish(stream);
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    stats = numbers(w.session);
    assert_int_equal(stats.on_time, num_layers * num_blocks);
    assert_int_equal(stats.exposed_ns, 0);
    assert_int_equal(stats.exposed.count, 0);
    end_world(&w);
}

static void loads_that_are_not_begun_ahead_begin_when_a_stream_asks(void **state) {
    (void)state;
    world w = make_world(2, PKV_PREFETCH_OFF);
    for (int step = 0; step < 3; ++step) {
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &w.table, NULL, NULL));
        for (uint32_t layer = 0; layer < num_layers; ++layer) {
            seen s;
            const pkv_layer_view view = acquire(w.session, layer, stream);
            look(&view, stream, &s);
            release(w.session, layer, stream);
            fake()->finish(stream);
            assert_true(found_all(&s, layer));
        }
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
    }
    assert_int_equal(numbers(w.session).needed, 3 * num_layers * num_blocks);
    assert_int_equal(numbers(w.session).late, 0);
    end_world(&w);
}

/* The word is set by failures as well, and the entry says which they were. */
static void case_J20_a_load_that_fails_advances_the_stream_and_fails_its_table(void **state) {
    (void)state;
    world w = make_world(2, 0);
    faulty_block(w.f, true);
    faulty_script(w.f, PKV_TIER_LOAD, 2, 1, fault_status, PKV_ERR_IO);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &w.table, NULL, NULL));
    seen layers[num_layers];
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
        const pkv_layer_view view = acquire(w.session, layer, stream);
        look(&view, stream, &layers[layer]);
        release(w.session, layer, stream);
    }
    faulty_block(w.f, false);
    fake()->finish(stream);
    uint64_t lost = num_blocks,
             missing = 0; /* one block, in the layer that failed or in both: an image that failed is forgotten */
    for (uint32_t layer = 0; layer < num_layers; ++layer)
        for (uint64_t block = 0; block < num_blocks; ++block) {
            if (layers[layer].slices[block] >= 0) {
                assert_true(found(&layers[layer], layer, block));
                continue;
            }
            assert_true(lost == num_blocks || lost == block);
            lost = block;
            ++missing;
        }
    assert_true(missing > 0);
    pkv_status status = PKV_OK;
    assert_status(pkv_prefetch_step_end(w.session, &status), PKV_ERR_LOST);
    assert_int_equal(status, PKV_ERR_LOST);
    assert_int_equal(numbers(w.session).failed, missing);
    assert_int_equal(info_of(w.table).valid, lost * page_tokens);
    end_world(&w);
}

/* A device that fails is no fault of the images': the step fails, the table stays. */
static void a_device_that_fails_to_take_a_slice_fails_the_step_alone(void **state) {
    (void)state;
    needs_fake();
    world w = make_world(2, 0);
    faulty_block(w.f, true); /* what fails before anybody waits for it is tried again */
    with_fake(f, strcpy(f.fail, "unpack"); f.fail_after = 1; f.fail_status = PKV_ERR_IO; f.fail_for_good = 0);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &w.table, NULL, NULL));
    seen s;
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
        const pkv_sync sync = on(stream);
        pkv_layer_view view = PKV_LAYER_VIEW_INIT;
        assert_ok(pkv_prefetch_layer_acquire(w.session, layer, 0, &sync, &view));
        release(w.session, layer, stream);
    }
    faulty_block(w.f, false);
    fake()->finish(stream);
    pkv_status status = PKV_OK;
    assert_status(pkv_prefetch_step_end(w.session, &status), PKV_ERR_IO);
    with_fake(f, f.fail[0] = 0);
    assert_int_equal(info_of(w.table).valid, num_tokens);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &w.table, NULL, NULL));
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
        const pkv_layer_view view = acquire(w.session, layer, stream);
        look(&view, stream, &s);
        release(w.session, layer, stream);
        fake()->finish(stream);
        assert_true(found_all(&s, layer));
    }
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    end_world(&w);
}

/* ---- loads wait ---- */

/* Kernels are far behind the calls: nothing is loaded over what they are to read. */
static void case_J13_a_buffer_is_not_loaded_anew_before_the_stream_has_passed_its_release(void **state) {
    (void)state;
    enum { steps = 3 };
    world w = make_world(2, 0);
    seen layers[steps][num_layers];
    void *held = fake()->make_stream(0);
    fake()->hold(held);
    const pkv_sync sync = on(held);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &w.table, NULL, NULL));
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
        const pkv_layer_view view = acquire(w.session, layer, held);
        look(&view, held, &layers[0][layer]);
        release(w.session, layer, held);
    }
    assert_ok(pkv_prefetch_step_end(w.session, NULL)); /* its loads have ended, its kernels have not begun */
    const uint64_t loads = numbers(w.session).loads;
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &w.table, NULL, NULL));
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
        pkv_layer_view view = acquire(w.session, layer, held);
        look(&view, held, &layers[1][layer]);
        release(w.session, layer, held);
    }
    usleep(5000);
    assert_int_equal(numbers(w.session).loads, loads); /* both buffers are to be read first */
    fake()->let_go(held);
    fake()->finish(held);
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &w.table, NULL, NULL));
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
        pkv_layer_view view = PKV_LAYER_VIEW_INIT;
        assert_ok(pkv_prefetch_layer_acquire(w.session, layer, UINT64_MAX, &sync, &view));
        look(&view, held, &layers[2][layer]);
        release(w.session, layer, held);
    }
    fake()->finish(held);
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    for (int step = 0; step < steps; ++step)
        for (uint32_t layer = 0; layer < num_layers; ++layer) assert_true(found_all(&layers[step][layer], layer));
    end_world(&w);
}

static void case_J23_a_buffer_waits_for_its_own_release_only(void **state) {
    (void)state;
    world w = make_world(2, 0);
    void *held = fake()->make_stream(0);
    fake()->hold(held);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &w.table, NULL, NULL));
    (void)acquire(w.session, 0, stream);
    release(w.session, 0, held); /* somebody else reads the first buffer, and does not get on */
    (void)acquire(w.session, 1, stream);
    release(w.session, 1, stream);
    fake()->finish(stream);
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    eventually(numbers(w.session).loads == (num_layers + 1) * num_blocks); /* of the next step's second layer */
    usleep(3000);
    assert_int_equal(numbers(w.session).loads, (num_layers + 1) * num_blocks);
    fake()->let_go(held);
    eventually(numbers(w.session).loads == 2 * num_layers * num_blocks);
    end_world(&w);
}

static void calls_return_however_far_behind_the_stream_is(void **state) {
    (void)state;
    enum { steps = 6 };
    world w = make_world(4, 0);
    static seen layers[steps][num_layers];
    slow_device(2000000);
    for (int step = 0; step < steps; ++step) {
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &w.table, NULL, NULL));
        for (uint32_t layer = 0; layer < num_layers; ++layer) {
            const pkv_layer_view view = acquire(w.session, layer, stream);
            look(&view, stream, &layers[step][layer]);
            release(w.session, layer, stream);
        }
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
    }
    fake()->finish(stream);
    for (int step = 0; step < steps; ++step)
        for (uint32_t layer = 0; layer < num_layers; ++layer) assert_true(found_all(&layers[step][layer], layer));
    end_world(&w);
}

/* ---- other ways to wait ---- */

static void without_waits_on_words_the_call_waits(void **state) {
    (void)state;
    needs_fake();
    with_fake(f, f.no_words = 1);
    world w = make_world(2, 0);
    faulty_block(w.f, true);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &w.table, NULL, NULL));
    const pkv_sync sync = on(stream);
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    assert_status(pkv_prefetch_layer_acquire(w.session, 0, 5000000, &sync, &view), PKV_ERR_TIMEOUT);
    faulty_block(w.f, false);
    assert_ok(pkv_prefetch_layer_acquire(w.session, 0, 10ull * one_second, &sync, &view));
    seen s;
    look(&view, stream, &s);
    release(w.session, 0, stream);
    fake()->finish(stream);
    assert_true(found_all(&s, 0));
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    end_world(&w);
}

static void without_a_stream_a_view_is_there_for_everybody(void **state) {
    (void)state;
    world w = make_world(2, 0);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &w.table, NULL, NULL));
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
        pkv_layer_view view = PKV_LAYER_VIEW_INIT;
        assert_ok(pkv_prefetch_layer_acquire(w.session, layer, 10ull * one_second, NULL, &view));
        seen s;
        look(&view, stream, &s);
        fake()->finish(stream);
        assert_true(found_all(&s, layer));
        assert_ok(pkv_prefetch_layer_release(w.session, layer, NULL));
    }
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    end_world(&w);
}

static void a_view_comes_after_what_tables_committed_in_other_streams(void **state) {
    (void)state;
    world w = make_world(2, 0);
    void *other = fake()->make_stream(0);
    const pkv_sync sync = on(other);
    assert_ok(pkv_table_restore(w.table, num_blocks - 1, 1, 10ull * one_second, NULL));
    assert_ok(pkv_table_truncate(w.table, num_tokens - 2, &sync));
    assert_ok(pkv_table_reserve(w.table, num_tokens));
    fake()->hold(other);
    write_tokens(w.table, other, num_tokens - 2, 2, 1);
    assert_ok(pkv_table_commit(w.table, num_tokens, &sync));
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &w.table, NULL, NULL));
    seen s;
    const pkv_layer_view view = acquire(w.session, 0, stream);
    look(&view, stream, &s);
    release(w.session, 0, stream);
    usleep(3000);
    assert_false(fake()->idle(stream));
    fake()->let_go(other);
    fake()->finish(stream);
    assert_true(found_all(&s, 0));
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    end_world(&w);
}

static void arrays_of_the_callers_have_to_be_memory_of_the_host(void **state) {
    (void)state;
    world w = make_world(2, 0);
    enum { slices = 64, tables = 2 };
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    const uint64_t staging = 2 * num_blocks / num_layers;
    options.num_buffers = 2;
    options.staging_pages = &staging;
    options.max_slices = slices;
    options.max_tables = tables;
    pkv_prefetch *session = NULL;
    options.slices = fake()->alloc(0, 2 * slices * sizeof(int32_t));
    assert_status(pkv_prefetch_open(w.pool, &options, &session), PKV_ERR_INVALID);
    options.slices = NULL;
    options.slice_indptr = fake()->alloc(0, 2 * (tables + 1) * sizeof(int32_t));
    assert_status(pkv_prefetch_open(w.pool, &options, &session), PKV_ERR_INVALID);
    int32_t *pinned = fake()->alloc_pinned((2 * slices + 2 * (tables + 1)) * sizeof *pinned);
    options.slices = pinned;
    options.slice_indptr = pinned + 2 * slices;
    assert_ok(pkv_prefetch_open(w.pool, &options, &session));
    for (int step = 0; step < 2; ++step) {
        assert_ok(pkv_prefetch_step_begin(session, 1, &w.table, NULL, NULL));
        for (uint32_t layer = 0; layer < num_layers; ++layer) {
            seen s;
            const pkv_layer_view view = acquire(session, layer, stream);
            assert_ptr_equal(view.slices, pinned + view.buffer * slices);
            look(&view, stream, &s);
            release(session, layer, stream);
            fake()->finish(stream);
            assert_true(found_all(&s, layer));
        }
        assert_ok(pkv_prefetch_step_end(session, NULL));
    }
    assert_ok(pkv_prefetch_close(session, NULL));
    end_world(&w);
}

/* ---- capture, close, cancel ---- */

static void a_capturing_stream_is_refused_and_nothing_changes(void **state) {
    (void)state;
    world w = make_world(2, 0);
    const pkv_sync sync = on(stream);
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &w.table, NULL, NULL));
    fake()->finish(stream);
    fake()->begin_capture(stream);
    assert_status(pkv_prefetch_layer_acquire(w.session, 0, 0, &sync, &view), PKV_ERR_CAPTURE);
    fake()->end_graph(fake()->end_capture(stream));
    seen s;
    view = acquire(w.session, 0, stream);
    look(&view, stream, &s);
    fake()->finish(stream);
    fake()->begin_capture(stream);
    assert_status(pkv_prefetch_layer_release(w.session, 0, &sync), PKV_ERR_CAPTURE);
    assert_status(pkv_prefetch_close(w.session, &sync), PKV_ERR_CAPTURE);
    fake()->end_graph(fake()->end_capture(stream));
    assert_true(found_all(&s, 0));
    release(w.session, 0, stream);
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    end_world(&w);
}

static void a_close_lets_streams_go_that_wait(void **state) {
    (void)state;
    world w = make_world(2, 0);
    faulty_block(w.f, true);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &w.table, NULL, NULL));
    seen layers[num_layers];
    const pkv_layer_view view = acquire(w.session, 0, stream);
    look(&view, stream, &layers[0]);
    release(w.session, 0, stream);
    const pkv_layer_view next = acquire(w.session, 1, stream); /* and this one is not even released */
    look(&next, stream, &layers[1]);
    const pkv_sync sync = on(stream);
    assert_ok(pkv_prefetch_close(w.session, &sync));
    w.session = NULL;
    fake()->finish(stream);
    for (uint32_t layer = 0; layer < num_layers; ++layer)
        for (int block = 0; block < num_blocks; ++block) assert_int_equal(layers[layer].slices[block], -1);
    faulty_block(w.f, false);
    end_world(&w);
}

static void a_cancel_leaves_what_streams_wait_for(void **state) {
    (void)state;
    world w = make_world(2, 0);
    faulty_block(w.f, true);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &w.table, NULL, NULL));
    seen s;
    const pkv_layer_view view = acquire(w.session, 0, stream);
    look(&view, stream, &s);
    assert_ok(pkv_prefetch_cancel(w.session));
    release(w.session, 0, stream);
    assert_ok(pkv_prefetch_cancel(w.session));
    faulty_block(w.f, false);
    fake()->finish(stream);
    assert_true(found_all(&s, 0));
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    end_world(&w);
}

/* Sessions come and go while streams wait for others: memory of views is not given back to the device, which would wait. */
static void sessions_end_while_streams_wait_for_others(void **state) {
    (void)state;
    world w = make_world(2, 0);
    faulty_block(w.f, true);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &w.table, NULL, NULL));
    seen s;
    const pkv_layer_view view = acquire(w.session, 0, stream);
    look(&view, stream, &s);
    release(w.session, 0, stream);
    for (int i = 0; i < 3; ++i) {
        pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
        const uint64_t staging = 1;
        options.num_buffers = 2;
        options.staging_pages = &staging;
        pkv_prefetch *other = NULL;
        assert_ok(pkv_prefetch_open(w.pool, &options, &other));
        assert_ok(pkv_prefetch_step_begin(other, 0, NULL, NULL, NULL));
        pkv_layer_view empty = PKV_LAYER_VIEW_INIT;
        const pkv_sync sync = on(stream);
        assert_ok(pkv_prefetch_layer_acquire(other, 0, 0, &sync, &empty));
        assert_int_equal(empty.num_slices, 0);
        assert_ok(pkv_prefetch_close(other, &sync));
    }
    faulty_block(w.f, false);
    fake()->finish(stream);
    assert_true(found_all(&s, 0));
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    end_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        session_test(case_J11_a_stream_waits_for_the_loads_of_its_layer_and_no_thread_does),
        session_test(parts_are_on_time_when_the_stream_did_not_wait_for_them),
        session_test(loads_that_are_not_begun_ahead_begin_when_a_stream_asks),
        session_test(case_J20_a_load_that_fails_advances_the_stream_and_fails_its_table),
        session_test(a_device_that_fails_to_take_a_slice_fails_the_step_alone),
        session_test(case_J13_a_buffer_is_not_loaded_anew_before_the_stream_has_passed_its_release),
        session_test(case_J23_a_buffer_waits_for_its_own_release_only),
        session_test(calls_return_however_far_behind_the_stream_is),
        session_test(without_waits_on_words_the_call_waits),
        session_test(without_a_stream_a_view_is_there_for_everybody),
        session_test(a_view_comes_after_what_tables_committed_in_other_streams),
        session_test(arrays_of_the_callers_have_to_be_memory_of_the_host),
        session_test(a_capturing_stream_is_refused_and_nothing_changes),
        session_test(a_close_lets_streams_go_that_wait),
        session_test(a_cancel_leaves_what_streams_wait_for),
        session_test(sessions_end_while_streams_wait_for_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
