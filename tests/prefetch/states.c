/* SPDX-License-Identifier: Apache-2.0 */
/* What may happen to a session, in every state that it can be in: cancel, close, the end of its tables or of its pool, a tier that
 * does not answer any more, gives errors, or takes nothing. Each call that comes after has a defined status, nothing hangs,
 * nothing is left behind, and the tier can be closed. */
#include "prefetch/session.h"
#include "tier/faulty.h"

#include <signal.h>
#include <stdatomic.h>

enum { time_limit_s = 120, num_layers = 2, num_tables = 2, prompt_tokens = 16, most_held = 3 };

typedef enum {
    before_a_step,
    step_begun,
    range_acquired,
    ranges_acquired, /* every buffer */
    acquire_late,
    step_ended,
    prompt_under_way,
    blocks_submitted,
    require_late,
    num_states
} session_state;

typedef enum {
    cancelled,
    closed,
    table_destroyed,
    pool_destroyed,
    tier_blocked,
    tier_fails,
    tier_refuses,
    num_events
} session_event;

static const char *const state_names[num_states] = {
    "before a step", "step begun", "range acquired", "ranges acquired", "acquire late",
    "step ended",    "prompt",     "submitted",      "require late",
};
static const char *const event_names[num_events] = {
    "cancel", "close", "table destroyed", "pool destroyed", "tier blocked", "tier fails", "tier refuses",
};

typedef struct {
    faulty *f;
    pkv_pool *pool;
    pkv_prefetch *session;
    pkv_table *tables[num_tables];
    pkv_op *op;
    pkv_layer_view held[most_held];
    uint32_t num_held;
    uint32_t layer;            /* the next one to be acquired */
    uint64_t next[num_tables]; /* and the block that its next range begins with */
    bool in_step;
    bool slow; /* the tier was blocked on the way into the state */
} scene;

static const uint32_t tags[num_tables] = {3, 4};
static const uint64_t tokens[num_tables] = {6 * tiered_page_tokens, 3 * tiered_page_tokens};

/* ---- a time limit for each scene ---- */

static char now_at[80];

static void too_long(int signal_number) {
    (void)signal_number;
    static const char text[] = "hangs: ";
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    written = write(STDERR_FILENO, now_at, strlen(now_at));
    (void)written;
    abort();
}

static int guard(void **state) {
    (void)state;
    signal(SIGALRM, too_long);
    return 0;
}

static int unguard(void **state) {
    (void)state;
    alarm(0);
    return 0;
}

/* ---- scenes ---- */

static scene set(uint64_t load_timeout_ns) {
    scene s = {0};
    s.f = faulty_open();
    const pkv_group_options group = layers_group(32, num_layers);
    s.pool = pool_of_groups(&group, 1, s.f->tier);
    compute(s.pool, 5000, prompt_tokens, 9);
    push_down(s.pool);
    for (int i = 0; i < num_tables; ++i)
        s.tables[i] = long_sequence(s.pool, 100 + 1000 * i, tokens[i], tiered_page_tokens, tags[i]);
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    const uint64_t staging = 6; /* 4 slices for each buffer: a layer comes in two ranges */
    options.num_buffers = most_held;
    options.staging_pages = &staging;
    options.load_timeout_ns = load_timeout_ns;
    options.max_block_pages = 4;
    s.session = open_session(s.pool, &options);
    return s;
}

static void block(scene *s) {
    faulty_block(s->f, true);
    s->slow = true;
}

static void step_begin(scene *s) {
    assert_ok(pkv_prefetch_step_begin(s->session, num_tables, s->tables, NULL, NULL));
    s->in_step = true;
    s->layer = 0;
    memset(s->next, 0, sizeof s->next);
}

static pkv_status acquire(scene *s, uint64_t timeout_ns) {
    pkv_layer_view *view = &s->held[s->num_held];
    *view = (pkv_layer_view)PKV_LAYER_VIEW_INIT;
    const pkv_status status = pkv_prefetch_layer_acquire(s->session, s->layer, timeout_ns, NULL, view);
    if (status != PKV_OK) return status;
    ++s->num_held;
    if (view->last != 0) ++s->layer;
    return PKV_OK;
}

/* Compares the rows of a view that was acquired last. */
static void compare(scene *s) {
    const pkv_layer_view *view = &s->held[s->num_held - 1];
    check_view(view, tags, tokens, s->next);
    if (view->last != 0) memset(s->next, 0, sizeof s->next);
}

static void *watch_stats(void *context) {
    scene *s = ((void **)context)[0];
    atomic_int *stop = ((void **)context)[1];
    while (atomic_load(stop) == 0) {
        pkv_prefetch_stats stats = PKV_PREFETCH_STATS_INIT;
        if (pkv_prefetch_get_stats(s->session, &stats) != PKV_OK ||
            stats.needed != stats.on_time + stats.late + stats.on_demand)
            return s;
    }
    return NULL;
}

static void go_to(scene *s, session_state state) {
    switch (state) {
    case before_a_step: break;
    case step_begun: step_begin(s); break;
    case range_acquired:
        step_begin(s);
        assert_ok(acquire(s, 10ull * one_second));
        compare(s);
        break;
    case ranges_acquired:
        step_begin(s);
        for (int i = 0; i < most_held; ++i) {
            assert_ok(acquire(s, 10ull * one_second));
            compare(s);
        }
        break;
    case acquire_late: {
        block(s);
        step_begin(s);
        atomic_int stop = 0;
        void *context[2] = {s, &stop}, *failed = NULL;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, watch_stats, context), 0);
        const pkv_status status = acquire(s, 5000000); /* on a slow machine the load's own time may be over */
        atomic_store(&stop, 1);
        pthread_join(thread, &failed);
        assert_null(failed);
        if (status != PKV_OK)
            assert_int_equal(status, PKV_ERR_TIMEOUT);
        else
            compare(s);
        break;
    }
    case step_ended: check_step(s->session, num_layers, num_tables, s->tables, tags); break;
    case prompt_under_way: {
        block(s);
        pkv_token list[prompt_tokens];
        count_up(list, prompt_tokens, 5000);
        const pkv_prompt prompt = prompt_of(list, prompt_tokens);
        /* Its blocks are looked up before they are loaded. */
        faulty_block(s->f, false);
        faulty_always(s->f, PKV_TIER_LOAD, fault_hold, 0);
        pkv_match match = PKV_MATCH_INIT;
        assert_ok(pkv_prefetch_prompt(s->session, &prompt, NULL, &match, &s->op));
        assert_int_equal(match.tokens, prompt_tokens);
        break;
    }
    case blocks_submitted: {
        block(s);
        uint64_t submitted = 0;
        assert_ok(pkv_prefetch_submit(s->session, s->tables[0], 0, &submitted));
        assert_true(submitted > 0);
        break;
    }
    case require_late: {
        block(s);
        pkv_require_result result = PKV_REQUIRE_RESULT_INIT;
        assert_status(pkv_prefetch_require(s->session, s->tables[0], 0, 2, 5000000, &result), PKV_ERR_TIMEOUT);
        break;
    }
    default: fail();
    }
}

static void befall(scene *s, session_event event) {
    switch (event) {
    case cancelled:
        assert_ok(pkv_prefetch_cancel(s->session));
        assert_int_equal(session_stats(s->session).loads_in_flight, 0);
        assert_int_equal(session_stats(s->session).block_pages, 0);
        break;
    case closed: assert_ok(pkv_prefetch_close(s->session, NULL)); break;
    case table_destroyed: assert_ok(pkv_table_destroy(s->tables[1], NULL)); break;
    case pool_destroyed: assert_ok(pkv_pool_destroy(s->pool)); break;
    case tier_blocked: faulty_block(s->f, true); break;
    case tier_fails: faulty_always(s->f, PKV_TIER_LOAD, fault_status, PKV_ERR_IO); break;
    case tier_refuses: faulty_always(s->f, PKV_TIER_LOAD, fault_refuse, PKV_ERR_BUSY); break;
    default: fail();
    }
}

/* ---- what comes after ---- */

static void one_of(pkv_status status, const pkv_status *list, size_t count, const char *what) {
    for (size_t i = 0; i < count; ++i)
        if (list[i] == status) return;
    fail_msg("%s, %s: status %d", now_at, what, (int)status);
}
#define ANY_OF(status, ...)                                                                                            \
    one_of((status), (const pkv_status[]){__VA_ARGS__}, sizeof((pkv_status[]){__VA_ARGS__}) / sizeof(pkv_status),      \
           #status)

/* Every call on a session that is closed, or whose pool is. */
static void check_all_refused(scene *s, pkv_status expected) {
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    pkv_token token = 1;
    pkv_op *op = NULL;
    const float score = 1;
    const pkv_prompt prompt = prompt_of(&token, 1);
    assert_status(pkv_prefetch_cancel(s->session), expected);
    assert_status(pkv_prefetch_prompt(s->session, &prompt, NULL, NULL, &op), expected);
    assert_status(pkv_prefetch_hint(s->session, s->tables[0], 1, &score), expected);
    assert_status(pkv_prefetch_submit(s->session, s->tables[0], 0, NULL), expected);
    assert_status(pkv_prefetch_require(s->session, s->tables[0], 0, 1, 0, NULL), expected);
    assert_status(pkv_prefetch_step_begin(s->session, 1, s->tables, NULL, NULL), expected);
    assert_status(pkv_prefetch_layer_acquire(s->session, 0, 0, NULL, &view), expected);
    assert_status(pkv_prefetch_layer_release(s->session, 0, NULL), expected);
    const pkv_status end = expected == PKV_ERR_HANDLE        ? PKV_ERR_HANDLE
                           : !s->in_step || s->num_held != 0 ? PKV_ERR_STATE
                                                             : PKV_OK;
    if (end != PKV_OK) assert_status(pkv_prefetch_step_end(s->session, NULL), end);
}

/* The status that a table's blocks may have in a step after the event. */
static void check_status_of(const scene *s, session_event event, pkv_status status) {
    switch (event) {
    case cancelled:
    case table_destroyed: /* what the step has of it lives to the end of the step */
        /* A tier that was blocked before is still blocked. */
        if (s->slow)
            ANY_OF(status, PKV_ERR_TIMEOUT);
        else
            ANY_OF(status, PKV_OK);
        break;
    case tier_blocked: ANY_OF(status, PKV_OK, PKV_ERR_TIMEOUT); break;
    default: /* what was handed over to a tier before it was blocked is never answered */
        ANY_OF(status, PKV_OK, PKV_ERR_LOST, PKV_ERR_TIMEOUT);
        if (!s->slow) ANY_OF(status, PKV_OK, PKV_ERR_LOST);
    }
}

static void finish_step(scene *s, session_event event) {
    if (event == table_destroyed) s->next[1] = 0;
    const uint32_t held = s->num_held;
    if (event != table_destroyed && held != 0) { /* still what it was */
        uint64_t next[num_tables] = {0};
        const pkv_layer_view *view = &s->held[held - 1];
        for (int t = 0; t < num_tables; ++t) next[t] = view->first_block[t];
        check_view(view, tags, tokens, next);
    }
    for (uint32_t i = 0; i < held; ++i) assert_ok(pkv_prefetch_layer_release(s->session, s->held[i].index, NULL));
    s->num_held = 0;
    while (s->layer < num_layers) {
        const uint32_t layer = s->layer;
        assert_ok(acquire(s, 60ull * one_second)); /* the loads' own time ends the wait */
        if (event != table_destroyed) compare(s);
        s->num_held = 0;
        assert_ok(pkv_prefetch_layer_release(s->session, layer, NULL));
    }
    pkv_status statuses[num_tables] = {PKV_OK, PKV_OK};
    const pkv_status ended = pkv_prefetch_step_end(s->session, statuses);
    s->in_step = false;
    assert_int_equal(ended, statuses[0] != PKV_OK ? statuses[0] : statuses[1]);
    for (int t = 0; t < num_tables; ++t) {
        check_status_of(s, event, statuses[t]);
        if (event == table_destroyed && t == 1) continue;
        ANY_OF(pkv_table_reserve(s->tables[t], 0), PKV_OK, statuses[t] == PKV_ERR_LOST ? PKV_ERR_LOST : PKV_OK);
    }
}

static void finish_prompt(scene *s, session_event event) {
    pkv_op_info info = PKV_OP_INFO_INIT;
    pkv_status item = PKV_OK;
    for (int waited = 0; waited < 60000; ++waited) {
        assert_ok(pkv_op_poll(s->op, &info, &item, 1));
        if (info.state == PKV_OP_ENDED) break;
        usleep(1000);
    }
    assert_int_equal(info.state, PKV_OP_ENDED);
    assert_int_equal(info.done_items, 1);
    if (event == cancelled || event == closed)
        ANY_OF(item, PKV_ERR_CANCELLED);
    else /* its loads are held, and time out */
        ANY_OF(item, PKV_ERR_TIMEOUT);
    assert_int_equal(info.buffers_free, 1);
    assert_ok(pkv_op_close(s->op));
}

static void go_on(scene *s, session_state state, session_event event) {
    if (event == closed || event == pool_destroyed) {
        check_all_refused(s, event == closed ? PKV_ERR_HANDLE : PKV_ERR_CLOSED);
        if (s->op != NULL) finish_prompt(s, event);
        if (event == pool_destroyed && s->in_step && s->num_held == 0) {
            pkv_status statuses[num_tables];
            const pkv_status ended = pkv_prefetch_step_end(s->session, statuses);
            ANY_OF(ended, PKV_OK, PKV_ERR_TIMEOUT, PKV_ERR_LOST, PKV_ERR_CLOSED);
        }
        return;
    }
    check_session(s->session);
    if (s->op != NULL) finish_prompt(s, event);
    if (s->in_step) finish_step(s, event);
    pkv_require_result result = PKV_REQUIRE_RESULT_INIT;
    const pkv_status required = pkv_prefetch_require(
        s->session, s->tables[0], 0, 2, event == tier_blocked || s->slow ? 50000000 : 60ull * one_second, &result);
    const bool dead = event == tier_blocked || s->slow || state == prompt_under_way;
    if (dead)
        ANY_OF(required, PKV_OK, PKV_ERR_TIMEOUT, PKV_ERR_LOST);
    else if (event == tier_fails || event == tier_refuses)
        ANY_OF(required, PKV_OK, PKV_ERR_LOST);
    else
        ANY_OF(required, PKV_OK);
    /* A whole step, as far as there are tables for it. */
    const uint32_t count = event == table_destroyed ? 1 : num_tables;
    pkv_status statuses[num_tables] = {PKV_OK, PKV_OK};
    assert_ok(pkv_prefetch_step_begin(s->session, count, s->tables, NULL, statuses));
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
        uint64_t next[num_tables] = {0};
        pkv_layer_view view = PKV_LAYER_VIEW_INIT;
        do {
            assert_ok(pkv_prefetch_layer_acquire(s->session, layer, 60ull * one_second, NULL, &view));
            check_view(&view, tags, tokens, next);
            assert_ok(pkv_prefetch_layer_release(s->session, layer, NULL));
        } while (view.last == 0);
    }
    const pkv_status ended = pkv_prefetch_step_end(s->session, statuses);
    if (dead)
        ANY_OF(ended, PKV_OK, PKV_ERR_TIMEOUT, PKV_ERR_LOST);
    else if (event == tier_fails || event == tier_refuses)
        ANY_OF(ended, PKV_OK, PKV_ERR_LOST);
    else
        ANY_OF(ended, PKV_OK);
    check_session(s->session);
}

static void strike(scene *s, session_event event) {
    if (event != closed) {
        pkv_prefetch *const session = s->session;
        assert_ok(pkv_prefetch_close(session, NULL)); /* with whatever is under way, whatever the tier does */
        assert_status(pkv_prefetch_close(session, NULL), PKV_ERR_HANDLE);
    }
    for (int i = 0; i < num_tables; ++i)
        if (!(event == table_destroyed && i == 1)) end_table(s->tables[i]);
    if (event != pool_destroyed) {
        /* Also while the tier still does not answer: nothing of the pool's depends on it. */
        eventually(stats_of(s->pool).held_pages == 0);
        check_rules(s->pool);
    }
    faulty_behave(s->f);
    faulty_block(s->f, false);
    /* What was to be held may have waited for the tier's thread until now. */
    eventually((faulty_let_go(s->f), tier_stats(s->f->tier).open_requests == 0));
    assert_int_equal(faulty_pins(s->f), 0);
    if (event != pool_destroyed) assert_ok(pkv_pool_destroy(s->pool));
    faulty_end(s->f);
}

static void every_event_in(session_state state) {
    for (int event = 0; event < num_events; ++event) {
        snprintf(now_at, sizeof now_at, "%s, %s\n", state_names[state], event_names[event]);
        alarm(time_limit_s);
        /* Short where loads are to run into it, long where none may. */
        const bool slow = state == acquire_late || state >= prompt_under_way;
        scene s = set(slow                    ? 40000000
                      : event == tier_blocked ? (state == step_ended ? 300000000 : 60000000)
                                              : 60ull * one_second);
        go_to(&s, state);
        befall(&s, (session_event)event);
        go_on(&s, state, (session_event)event);
        strike(&s, (session_event)event);
    }
}

#define STATE_TEST(name)                                                                                               \
    static void every_event_##name(void **state) {                                                                     \
        (void)state;                                                                                                   \
        every_event_in(name);                                                                                          \
    }
STATE_TEST(before_a_step)
STATE_TEST(step_begun)
STATE_TEST(range_acquired)
STATE_TEST(ranges_acquired)
STATE_TEST(acquire_late)
STATE_TEST(step_ended)
STATE_TEST(prompt_under_way)
STATE_TEST(blocks_submitted)
STATE_TEST(require_late)

int main(void) {
#define GUARDED(test) cmocka_unit_test_setup_teardown(test, guard, unguard)
    const struct CMUnitTest tests[] = {
        GUARDED(every_event_before_a_step),    GUARDED(every_event_step_begun),
        GUARDED(every_event_range_acquired),   GUARDED(every_event_ranges_acquired),
        GUARDED(every_event_acquire_late),     GUARDED(every_event_step_ended),
        GUARDED(every_event_prompt_under_way), GUARDED(every_event_blocks_submitted),
        GUARDED(every_event_require_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
