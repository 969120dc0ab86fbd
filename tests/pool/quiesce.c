/* SPDX-License-Identifier: Apache-2.0 */
/* Pools over the caller's tensors: when the caller may take the memory away. */
#include "support/support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { page_tokens = 16, num_pages = 32, row = 8, heads = 2, layers = 2, longest = 16 };
enum { side_bytes = num_pages * page_tokens * heads * row };

typedef struct {
    pkv_pool *pool;
    unsigned char *memory; /* of whole memory pages */
    uint64_t size;
} own_pool;

/* The small geometry over memory of the test's; its pages `scale` times as long. */
static own_pool make_own(uint32_t scale, uint32_t debug) {
    own_pool own = {.size = (uint64_t)side_bytes * 2 * layers * scale};
    own.memory = mmap(NULL, own.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(own.memory != MAP_FAILED);
    pkv_group_options group = small_group(num_pages);
    group.memory = PKV_MEMORY_CALLER;
    group.k_head_dim = group.v_head_dim = 4 * scale;
    void *bases[2][layers];
    for (int i = 0; i < 2 * layers; ++i) bases[i / layers][i % layers] = own.memory + (uint64_t)i * side_bytes * scale;
    group.k_base = bases[0];
    group.v_base = bases[1];
    own.pool = make_pool_of(&group, page_tokens, debug);
    return own;
}

/* From now on a touch ends the program. */
static void take_away(own_pool *own) { assert_int_equal(mprotect(own->memory, own->size, PROT_NONE), 0); }

static void end_own(own_pool *own) { munmap(own->memory, own->size); }

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Runs a test in a process of its own, so that a touched byte is a failure like any other. */
static void in_child(void (*body)(void)) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        body();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) fail_msg("a byte was touched, or the library crashed: signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- a call that is inside until it is let go ---- */

enum { byte_calls = 7 };

typedef struct {
    int call;
    pkv_pool *pool;
    pkv_table *table; /* 8 tokens committed, 4 more in its batch's step */
    pkv_batch *batch;
    pkv_page pages[2]; /* held */
    uint16_t rows[16 * heads * 4 * longest];
    uint64_t counter;
    pkv_status status;
    pthread_t thread;
} waiter;

static pkv_status call_bytes(waiter *w, const pkv_sync *sync) {
    pkv_tensor rows = PKV_TENSOR_INIT;
    rows.data = w->rows;
    rows.dtype = PKV_DTYPE_F16;
    rows.num_tokens = 16;
    const pkv_slot slot = (pkv_slot)w->pages[0] * page_tokens;
    switch (w->call) {
    case 0: return pkv_pool_write(w->pool, 0, 0, 1, &slot, &rows, &rows, sync);
    case 1: return pkv_pool_gather(w->pool, 0, 0, 1, w->pages, 0, 1, &rows, NULL, sync);
    case 2: return pkv_pool_copy_pages(w->pool, 0, 1, &w->pages[0], &w->pages[1], sync);
    case 3: return pkv_table_write(w->table, 0, 0, 8, 1, &rows, &rows, sync);
    case 4: return pkv_table_gather(w->table, 0, 0, 0, 8, &rows, NULL, sync);
    case 5: return pkv_batch_write(w->batch, 0, 0, &rows, &rows, sync);
    default: return pkv_batch_gather(w->batch, 0, 0, (const uint64_t[]){12}, 0, &rows, NULL, sync);
    }
}

static void *call_and_wait(void *argument) {
    waiter *w = argument;
    pkv_sync sync = PKV_SYNC_INIT;
    sync.kind = PKV_SYNC_HOST_COUNTER;
    sync.handle = &w->counter;
    sync.value = 1;
    sync.timeout_ns = UINT64_C(20000000000);
    w->status = call_bytes(w, &sync);
    return NULL;
}

static waiter *make_waiter(pkv_pool *pool, int call) {
    waiter *w = calloc(1, sizeof *w);
    w->call = call;
    w->pool = pool;
    const pkv_prompt none = prompt_of(NULL, 0);
    w->table = admit(pool, &none, NULL);
    assert_ok(pkv_table_reserve(w->table, 8));
    assert_ok(pkv_table_commit(w->table, 8, NULL));
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = 1;
    options.max_tokens = 4;
    assert_ok(pkv_batch_create(pool, &options, &w->batch));
    const uint32_t num_new = 4;
    assert_ok(pkv_batch_reserve(w->batch, 1, &w->table, &num_new, NULL));
    assert_ok(pkv_pool_alloc(pool, 0, 2, w->pages));
    return w;
}

/* Returns once the thread is inside its call; false if quiesce does not see it within half a second. */
static bool start_waiter(waiter *w) {
    assert_int_equal(pthread_create(&w->thread, NULL, call_and_wait, w), 0);
    for (int i = 0; i < 500; ++i, usleep(1000))
        if (pkv_pool_quiesce(w->pool, 0) == PKV_ERR_TIMEOUT) return true;
    return false;
}

static void let_go(waiter *w) {
    __atomic_store_n(&w->counter, 1, __ATOMIC_RELEASE);
    pthread_join(w->thread, NULL);
}

static void end_waiter(waiter *w) {
    assert_ok(pkv_batch_destroy(w->batch));
    end_table(w->table);
    free(w);
}

static void destroy_is_busy_while_a_call_is_inside_and_the_pool_stays_usable(void **state) {
    (void)state;
    for (int call = 0; call < byte_calls; ++call) {
        own_pool own = make_own(1, 0);
        waiter *w = make_waiter(own.pool, call);
        assert_true(start_waiter(w));
        for (int i = 0; i < 3; ++i) assert_status(pkv_pool_destroy(own.pool), PKV_ERR_BUSY);
        pkv_page page;
        pkv_table *table;
        assert_ok(pkv_pool_alloc(own.pool, 0, 1, &page));
        assert_ok(pkv_table_create(own.pool, &table));
        end_table(table);
        release_pages(own.pool, &page, 1);
        check_rules(own.pool);
        let_go(w);
        assert_ok(w->status);
        assert_ok(pkv_pool_quiesce(own.pool, 0));
        assert_ok(pkv_pool_destroy(own.pool));
        assert_status(pkv_pool_quiesce(own.pool, 0), PKV_ERR_HANDLE);
        end_waiter(w);
        end_own(&own);
    }
}

static void quiesce_waits_as_long_as_it_is_told(void **state) {
    (void)state;
    own_pool own = make_own(1, 0);
    waiter *w = make_waiter(own.pool, 0);
    assert_ok(pkv_pool_quiesce(own.pool, 0));
    assert_ok(pkv_pool_quiesce(own.pool, UINT64_MAX));
    assert_true(start_waiter(w));
    const uint64_t begin = now_ns();
    assert_status(pkv_pool_quiesce(own.pool, 20000000), PKV_ERR_TIMEOUT);
    const uint64_t time = now_ns() - begin;
    assert_true(time >= 20000000);
    assert_true(time < 2000000000);
    let_go(w);
    assert_ok(pkv_pool_quiesce(own.pool, UINT64_MAX));
    assert_ok(pkv_pool_destroy(own.pool));
    end_waiter(w);
    end_own(&own);
}

static void *let_go_later(void *argument) {
    usleep(20000);
    __atomic_store_n(&((waiter *)argument)->counter, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void quiesce_returns_when_the_call_leaves(void **state) {
    (void)state;
    own_pool own = make_own(1, 0);
    waiter *w = make_waiter(own.pool, 2);
    pthread_t helper;
    assert_true(start_waiter(w));
    assert_int_equal(pthread_create(&helper, NULL, let_go_later, w), 0);
    assert_ok(pkv_pool_quiesce(own.pool, UINT64_C(10000000000)));
    assert_ok(pkv_pool_destroy(own.pool));
    pthread_join(helper, NULL);
    pthread_join(w->thread, NULL);
    end_waiter(w);
    end_own(&own);
}

static void a_pool_with_memory_of_its_own_is_quiet_at_once(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    waiter *w = make_waiter(pool, 0);
    assert_int_equal(pthread_create(&w->thread, NULL, call_and_wait, w), 0);
    for (int i = 0; i < 10; ++i, usleep(1000)) assert_ok(pkv_pool_quiesce(pool, 0));
    assert_ok(pkv_pool_destroy(pool)); /* the memory goes with the last call */
    let_go(w);
    assert_true(w->status == PKV_OK || w->status == PKV_ERR_HANDLE); /* inside by then, or not yet */
    end_waiter(w);
}

/* ---- calls in a loop ---- */

typedef struct {
    waiter *w;
    atomic_bool stop;
    uint64_t calls, refused_while_open;
    pthread_t thread;
} looper;

/* Calls until it is stopped, or the pool is gone for good. A call that is refused before one that succeeds was wrong. */
static void *loop_calls(void *argument) {
    looper *self = argument;
    uint64_t refused = 0;
    while (!self->stop && refused < 1000) {
        self->w->call = (int)(self->calls++ % 3);
        const pkv_status status = call_bytes(self->w, NULL);
        pkv_table_info info = PKV_TABLE_INFO_INIT;
        const pkv_status table = pkv_table_get_info(self->w->table, &info);
        refused += status != PKV_OK || table != PKV_OK;
        if (status == PKV_OK || table == PKV_OK) {
            self->refused_while_open += refused;
            refused = 0;
        }
    }
    return NULL;
}

static void destroy_until_ok(void) {
    for (int round = 0; round < 30; ++round) {
        own_pool own = make_own(longest, 0);
        looper loop = {.w = make_waiter(own.pool, 0)};
        pthread_create(&loop.thread, NULL, loop_calls, &loop);
        usleep((useconds_t)(round * 5));
        pkv_status status = PKV_ERR_BUSY;
        while (status == PKV_ERR_BUSY) status = pkv_pool_destroy(own.pool);
        if (status != PKV_OK) _exit(2);
        take_away(&own);
        usleep(200);
        loop.stop = true;
        pthread_join(loop.thread, NULL);
        end_waiter(loop.w);
        end_own(&own);
    }
}

static void after_destroy_no_byte_is_touched(void **state) {
    (void)state;
    in_child(destroy_until_ok);
}

static void a_destroy_that_is_busy_disturbs_no_other_call(void **state) {
    (void)state;
    own_pool own = make_own(1, 0);
    waiter *inside = make_waiter(own.pool, 0);
    looper loop = {.w = make_waiter(own.pool, 0)};
    assert_true(start_waiter(inside));
    assert_int_equal(pthread_create(&loop.thread, NULL, loop_calls, &loop), 0);
    for (const uint64_t end = now_ns() + 300000000; now_ns() < end;)
        assert_status(pkv_pool_destroy(own.pool), PKV_ERR_BUSY);
    loop.stop = true;
    pthread_join(loop.thread, NULL);
    let_go(inside);
    assert_ok(pkv_pool_destroy(own.pool));
    end_waiter(inside);
    end_waiter(loop.w);
    end_own(&own);
    print_message("%llu calls\n", (unsigned long long)loop.calls);
    assert_int_equal(loop.refused_while_open,
                     0); /* a call that fails changes nothing: the pool was open all the time */
}

typedef struct {
    pkv_pool *pool;
    uint64_t not_busy;
    pthread_t thread;
} destroyer;

static void *destroy_often(void *argument) {
    destroyer *self = argument;
    for (const uint64_t end = now_ns() + 200000000; now_ns() < end && self->not_busy == 0;)
        self->not_busy += pkv_pool_destroy(self->pool) != PKV_ERR_BUSY;
    return NULL;
}

static void two_destructions_at_once_are_both_busy(void **state) {
    (void)state;
    own_pool own = make_own(1, 0);
    waiter *inside = make_waiter(own.pool, 0);
    assert_true(start_waiter(inside));
    destroyer both[2] = {{.pool = own.pool}, {.pool = own.pool}};
    for (int i = 0; i < 2; ++i) assert_int_equal(pthread_create(&both[i].thread, NULL, destroy_often, &both[i]), 0);
    for (int i = 0; i < 2; ++i) pthread_join(both[i].thread, NULL);
    let_go(inside);
    pkv_pool_destroy(own.pool);
    end_waiter(inside);
    end_own(&own);
    assert_int_equal(both[0].not_busy + both[1].not_busy, 0); /* a call was inside all the time */
}

/* ---- poison is for memory of the pool's own ---- */

static void *alloc_and_release(void *argument) {
    pkv_pool *pool = argument;
    pkv_page pages[num_pages];
    while (pkv_pool_alloc(pool, 0, num_pages, pages) == PKV_OK) pkv_pool_release(pool, 0, num_pages, pages, NULL, NULL);
    return NULL;
}

static void destroy_while_pages_are_poisoned(void) {
    for (int round = 0; round < 10; ++round) {
        own_pool own = make_own(512, PKV_DEBUG_POISON);
        pthread_t thread;
        pthread_create(&thread, NULL, alloc_and_release, own.pool);
        usleep((useconds_t)(1000 + round * 500));
        pkv_status status = PKV_ERR_BUSY;
        while (status == PKV_ERR_BUSY) status = pkv_pool_destroy(own.pool);
        if (status != PKV_OK) _exit(2);
        take_away(&own);
        pthread_join(thread, NULL);
        end_own(&own);
    }
}

static void a_pool_that_poisons_leaves_the_callers_memory_alone(void **state) {
    (void)state;
    own_pool own = make_own(1, PKV_DEBUG_POISON);
    memset(own.memory, 0x5A, own.size);
    pkv_page pages[num_pages];
    assert_ok(pkv_pool_alloc(own.pool, 0, num_pages, pages));
    release_pages(own.pool, pages, num_pages);
    for (uint64_t i = 0; i < own.size; ++i) assert_int_equal(own.memory[i], 0x5A);
    end_pool(own.pool);
    end_own(&own);
    in_child(destroy_while_pages_are_poisoned);
}

static void tables_of_a_destroyed_pool_touch_nothing(void **state) {
    (void)state;
    own_pool own = make_own(1, 0);
    waiter *w = make_waiter(own.pool, 3);
    assert_ok(pkv_pool_destroy(own.pool));
    take_away(&own);
    for (w->call = 3; w->call < byte_calls; ++w->call) assert_status(call_bytes(w, NULL), PKV_ERR_CLOSED);
    end_waiter(w);
    end_own(&own);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(destroy_is_busy_while_a_call_is_inside_and_the_pool_stays_usable),
        cmocka_unit_test(quiesce_waits_as_long_as_it_is_told),
        cmocka_unit_test(quiesce_returns_when_the_call_leaves),
        cmocka_unit_test(a_pool_with_memory_of_its_own_is_quiet_at_once),
        cmocka_unit_test(after_destroy_no_byte_is_touched),
        cmocka_unit_test(a_destroy_that_is_busy_disturbs_no_other_call),
        cmocka_unit_test(two_destructions_at_once_are_both_busy),
        cmocka_unit_test(a_pool_that_poisons_leaves_the_callers_memory_alone),
        cmocka_unit_test(tables_of_a_destroyed_pool_touch_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
