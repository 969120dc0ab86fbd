/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations on a pool, its prefixes, tables and batches, compared with a model after each (support/model.h).
 *
 * A seed is all there is to a run: its low byte chooses page size and number of pages, the rest everything else.
 *   PKV_TEST_SEED=0x2a    runs this seed only
 *   PKV_TEST_STEPS=1000   steps of a run; a failure names the number that ends with it
 * Rules: counts are the holders there are (R1), free + held + cached = N (R2), what fails changes nothing (R3): the model
 * does not change either. */
#include "shadow/batch_step.h"

#include <signal.h>

static const uint32_t page_sizes[] = {1, 2, 3, 5, 16, 64, 100};
static const uint64_t pool_sizes[] = {4, 9, 28, 120};
enum { num_page_sizes = 7, num_pool_sizes = 4, num_configurations = num_page_sizes * num_pool_sizes };

static uint64_t number_from(const char *variable, uint64_t otherwise) {
    const char *value = getenv(variable);
    return value != NULL && *value != 0 ? strtoull(value, NULL, 0) : otherwise;
}

static shadow *begin_run(uint64_t seed) {
    shadow *s = calloc(1, sizeof *s);
    const uint64_t configuration = (seed & 0xFF) % num_configurations;
    const uint32_t page_tokens = page_sizes[configuration % num_page_sizes];
    s->seed = seed;
    s->random.state = seed;
    uint64_t num_pages = pool_sizes[configuration / num_page_sizes];
    num_pages += below(s, num_pages / 2 + 1);

    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = num_pages;
    group.num_layers = model_layers;
    group.num_kv_heads = 1 + (uint32_t)below(s, 2);
    group.layout = percent(s, 50) ? PKV_LAYOUT_NHD : PKV_LAYOUT_HND;
    group.arrangement = percent(s, 50) ? PKV_PAGE_MAJOR : PKV_LAYER_MAJOR;
    if (percent(s, 30)) {
        group.dtype = PKV_DTYPE_OPAQUE;
        group.k_row_bytes = 9 + (uint32_t)below(s, 9);
        group.v_row_bytes = percent(s, 30) ? 0 : 9 + (uint32_t)below(s, 9);
    } else {
        group.dtype = percent(s, 50) ? PKV_DTYPE_BF16 : PKV_DTYPE_F32;
        group.k_head_dim = 4;
        group.v_head_dim = percent(s, 20) ? 0 : 5;
    }
    if (percent(s, 15)) group.memory = PKV_MEMORY_NONE;
    if (percent(s, 30)) group.max_cached_pages = 1 + below(s, num_pages);
    s->equal_keys = percent(s, 25);
    s->pool = make_pool_of(&group, page_tokens, PKV_DEBUG_POISON | (s->equal_keys ? PKV_DEBUG_EQUAL_KEYS : 0));
    s->m = model_create(num_pages, page_tokens, group.max_cached_pages, group.memory == PKV_MEMORY_POOL);
    s->heads = group.num_kv_heads;
    s->dtype = group.dtype;
    for (uint32_t layer = 0; layer < model_layers; ++layer) {
        s->layouts[layer] = (pkv_layer_layout)PKV_LAYER_LAYOUT_INIT;
        assert_ok(pkv_pool_layout(s->pool, 0, layer, &s->layouts[layer]));
    }
    s->row_bytes[0] = s->layouts[0].k_row_bytes;
    s->row_bytes[1] = s->layouts[0].v_row_bytes;
    const uint64_t max_blocks = num_pages + 2 < 11 ? num_pages + 2 : 11;
    s->max_tokens = max_blocks * page_tokens;
    s->max_tables = num_pages < 20 ? 6 : 14;
    s->max_rows = model_max_tokens * 2;
    s->row_tags = calloc(s->max_rows, sizeof *s->row_tags);
    for (int side = 0; side < 2; ++side) s->rows[side] = calloc(s->max_rows * 64, 1);
    make_batch(s);
    return s;
}

static void end_run(shadow *s) {
    for (int i = 0; i < s->max_tables; ++i)
        if (s->m->tables[i].alive) destroy_table(s, i);
    end_batch(s);
    for (pkv_page page = 0; (uint64_t)page < s->m->num_pages; ++page)
        while (s->m->pages[page].low > 0) {
            same_status(s, model_release(s->m, 1, &page, NULL), PKV_OK, "the model's release");
            assert_ok(pkv_pool_release(s->pool, 0, 1, &page, NULL, NULL));
        }
    check_everything(s);
    pkv_clear_result result = PKV_CLEAR_RESULT_INIT;
    const uint64_t cached = stats_of(s->pool).cached_pages;
    assert_ok(pkv_pool_clear_all(s->pool, &result));
    same_number(s, result.freed, cached, "freed in the end");
    same_number(s, stats_of(s->pool).free_pages, s->m->num_pages, "pages free in the end");
    same_number(s, stats_of(s->pool).namespaces, 0, "namespaces in the end");
    end_pool(s->pool);
    current_run = NULL;
    model_destroy(s->m);
    free(s->row_tags);
    free(s->rows[0]);
    free(s->rows[1]);
    free(s);
}

/* One random operation. The low-level holders are kept from taking the whole pool. */
static void step(shadow *s) {
    typedef void (*table_operation)(shadow *, int);
    static const struct {
        table_operation run;
        uint64_t weight;
    } operations[] = {
        {advance, 24},    {reserve_some, 6},   {name_tokens, 8},    {write_some, 6},  {commit_some, 8},
        {gather_some, 5}, {truncate_table, 6}, {slots_of_table, 3}, {clear_table, 3}, {destroy_table, 3},
    };
    uint64_t ours = 0;
    for (uint64_t page = 0; page < s->m->num_pages; ++page) ours += s->m->pages[page].low > 0;
    if (ours > s->m->num_pages / 3 && percent(s, 40)) {
        release_some(s);
        return;
    }
    uint64_t chance = below(s, 150);
    if (chance < 72) {
        const int index = pick_table(s, !percent(s, 2));
        for (size_t i = 0; i < sizeof operations / sizeof *operations; ++i) {
            if (chance < operations[i].weight) {
                if (index >= 0) operations[i].run(s, index);
                return;
            }
            chance -= operations[i].weight;
        }
    }
    if (chance < 76)
        create_table(s);
    else if (chance < 94)
        admit_table(s);
    else if (chance < 98 && pick_table(s, true) >= 0)
        fork_table(s, pick_table(s, true));
    else if (chance < 112)
        step_batch(s);
    else if (chance < 118)
        alloc_some(s);
    else if (chance < 121)
        retain_some(s);
    else if (chance < 127)
        release_some(s);
    else if (chance < 132)
        lookup_some(s, false);
    else if (chance < 135)
        lookup_some(s, true);
    else if (chance < 141)
        publish_some(s);
    else if (chance < 144)
        evict_some(s);
    else if (chance < 146)
        pool_write_some(s);
    else if (chance < 148)
        copy_some(s);
    else if (chance < 149)
        pool_gather_some(s);
    else if (percent(s, 40))
        clear_some(s);
}

static void run(uint64_t seed, uint64_t steps) {
    shadow *s = begin_run(seed);
    current_run = s;
    for (s->step = 0; s->step < steps; ++s->step) {
        s->trace[s->step % trace_lines][0] = 0;
        step(s);
        check_everything(s);
    }
    s->trace[s->step % trace_lines][0] = 0;
    end_run(s);
}

/* Runs after each test, failed ones too: a run that did not end is reported. */
static int report(void **state) {
    (void)state;
    report_run();
    return 0;
}

static void report_signal(int number) {
    report_run();
    signal(number, SIG_DFL);
    raise(number);
}

/* There with the sanitizers only. */
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* All pool sizes of one page size; some runs of each. */
static void run_page_size(uint64_t which) {
    const uint64_t steps = number_from("PKV_TEST_STEPS", long_tests() ? 2400 : 480);
    const uint64_t rounds = long_tests() ? 15 : 3;
    const uint64_t seed = number_from("PKV_TEST_SEED", 0);
    if (getenv("PKV_TEST_SEED") != NULL) {
        if ((seed & 0xFF) % num_configurations % num_page_sizes == which) run(seed, steps);
        return;
    }
    for (uint64_t round = 0; round < rounds; ++round)
        for (uint64_t size = 0; size < num_pool_sizes; ++size)
            run((round * 7919 + 1) << 8 | (size * num_page_sizes + which), steps);
    print_message("seeds 0x%" PRIx64 " to 0x%" PRIx64 ", %" PRIu64 " steps each\n", UINT64_C(1) << 8 | which,
                  ((rounds - 1) * 7919 + 1) << 8 | ((num_pool_sizes - 1) * num_page_sizes + which), steps);
}

#define PAGE_SIZE_TEST(index, size)                                                                                    \
    static void library_does_as_the_model_with_pages_of_##size(void **state) {                                         \
        (void)state;                                                                                                   \
        run_page_size(index);                                                                                          \
    }
PAGE_SIZE_TEST(0, 1)
PAGE_SIZE_TEST(1, 2)
PAGE_SIZE_TEST(2, 3)
PAGE_SIZE_TEST(3, 5)
PAGE_SIZE_TEST(4, 16)
PAGE_SIZE_TEST(5, 64)
PAGE_SIZE_TEST(6, 100)

int main(void) {
    if (__sanitizer_set_death_callback != NULL) __sanitizer_set_death_callback(report_run);
    signal(SIGABRT, report_signal);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(library_does_as_the_model_with_pages_of_1, report),
        cmocka_unit_test_teardown(library_does_as_the_model_with_pages_of_2, report),
        cmocka_unit_test_teardown(library_does_as_the_model_with_pages_of_3, report),
        cmocka_unit_test_teardown(library_does_as_the_model_with_pages_of_5, report),
        cmocka_unit_test_teardown(library_does_as_the_model_with_pages_of_16, report),
        cmocka_unit_test_teardown(library_does_as_the_model_with_pages_of_64, report),
        cmocka_unit_test_teardown(library_does_as_the_model_with_pages_of_100, report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
