/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations on a pool, its prefixes, tables and batches, compared with a model after each (support/model.h).
 *
 * A seed is all there is to a run: its low byte chooses page size and number of pages, the rest everything else.
 *   PKV_TEST_SEED=0x2a    runs this seed only
 *   PKV_TEST_STEPS=1000   steps of a run; a failure names the number that ends with it
 * Rules: counts are the holders there are (R1), free + held + cached = N (R2), what fails changes nothing (R3: the model
 * does not change either), counters only grow and hits are no more than asked for (R15).
 *
 *   shadow.h   the frame         compare.h   library against model       pages.h, prefixes.h   without tables
 *   sequences.h, branches.h, transfer.h      tables                      batch_step.h          batches */
#include "shadow/batch_step.h"

#include <signal.h>

static const uint32_t page_sizes[] = {1, 2, 3, 5, 16, 64, 100};
static const uint64_t pool_sizes[] = {4, 9, 28, 120};
enum { num_page_sizes = 7, num_pool_sizes = 4, num_configurations = num_page_sizes * num_pool_sizes };

static uint64_t number_from(const char *variable, uint64_t otherwise) {
    const char *value = getenv(variable);
    return value != NULL && *value != 0 ? strtoull(value, NULL, 0) : otherwise;
}

/* One layer group; one asked for as `full` is of full attention. */
static pkv_group_options random_group(shadow *s, uint64_t num_pages, bool full) {
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
    if (percent(s, 30)) group.max_cached_pages = 1 + below(s, num_pages);
    if (s->windows_alone || (!full && percent(s, 80))) {
        group.attention = PKV_ATTENTION_WINDOW;
        group.window = 1 + (uint32_t)below(s, 5 * s->options.page_tokens);
        if (percent(s, 50)) group.sinks = (uint32_t)below(s, 2 * s->options.page_tokens + 1);
    }
    return group;
}

static void choose_groups(shadow *s, uint64_t num_pages) {
    const uint32_t num_groups = percent(s, 40) ? 1 : 2 + (uint32_t)below(s, model_max_groups - 1);
    s->windows_alone = num_pages >= 100 && percent(s, 25);
    const uint32_t full = s->windows_alone ? UINT32_MAX : (uint32_t)below(s, num_groups);
    const uint64_t ids = below(s, 100);
    s->options.num_groups = num_groups;
    s->m = model_create(s->options.page_tokens, num_groups);
    for (uint32_t i = 0; i < num_groups; ++i) {
        const uint64_t more = num_groups > 1 ? below(s, num_pages / 4 + 1) : 0;
        pkv_group_options *group = &s->group_options[i];
        *group = random_group(s, num_pages + more, i == full);
        if (ids < 12 || (ids < 18 && percent(s, 50))) group->memory = PKV_MEMORY_NONE;
        model_group *g = &s->m->groups[i];
        g->num_pages = group->num_pages;
        g->max_cached = group->max_cached_pages;
        g->window = group->window;
        g->sinks = group->sinks;
        g->bytes = group->memory == PKV_MEMORY_POOL;
        s->groups[i].heads = group->num_kv_heads;
        s->groups[i].dtype = group->dtype;
    }
    model_begin(s->m);
    s->m->choose = chosen_by_library;
    s->m->user = s;
}

static shadow *begin_run(uint64_t seed) {
    shadow *s = calloc(1, sizeof *s);
    const uint64_t configuration = (seed & 0xFF) % num_configurations;
    const uint32_t page_tokens = page_sizes[configuration % num_page_sizes];
    s->seed = seed;
    s->random.state = seed;
    uint64_t num_pages = pool_sizes[configuration / num_page_sizes];
    num_pages += below(s, num_pages / 4 + 1);
    s->equal_keys = percent(s, 25);
    s->options = (pkv_pool_options)PKV_POOL_OPTIONS_INIT;
    s->options.page_tokens = page_tokens;
    s->options.groups = s->group_options;
    s->options.debug = PKV_DEBUG_POISON | (s->equal_keys ? PKV_DEBUG_EQUAL_KEYS : 0);
    s->options.seed = seed | 1;
    const uint32_t capacities[] = {0, 1 + (uint32_t)below(s, 30), model_max_events, model_max_events};
    s->options.event_capacity = capacities[below(s, 4)];
    choose_groups(s, num_pages);
    assert_ok(pkv_pool_create(&s->options, &s->pool));
    for (uint32_t group = 0; group < s->m->num_groups; ++group) {
        shadow_group *g = &s->groups[group];
        for (uint32_t layer = 0; layer < model_layers; ++layer) {
            g->layouts[layer] = (pkv_layer_layout)PKV_LAYER_LAYOUT_INIT;
            assert_ok(pkv_pool_layout(s->pool, group, layer, &g->layouts[layer]));
        }
        g->row_bytes[0] = g->layouts[0].k_row_bytes;
        g->row_bytes[1] = g->layouts[0].v_row_bytes;
    }
    const uint64_t max_blocks = num_pages + 2 < 11 ? num_pages + 2 : 11;
    s->max_tokens = max_blocks * page_tokens;
    s->max_tables = num_pages < 20 ? 6 : 14;
    s->max_rows = model_max_tokens * 2;
    s->row_tags = calloc(s->max_rows, sizeof *s->row_tags);
    for (int side = 0; side < 2; ++side) s->rows[side] = calloc(s->max_rows * 64, 1);
    make_batch(s);
    return s;
}

static void free_run(shadow *s) {
    assert_ok(pkv_pool_destroy(s->pool));
    current_run = NULL;
    model_destroy(s->m);
    free(s->row_tags);
    free(s->rows[0]);
    free(s->rows[1]);
    free(s);
}

static void end_run(shadow *s) {
    for (int i = 0; i < s->max_tables; ++i)
        if (s->m->tables[i].alive) destroy_table(s, i);
    end_batch(s);
    for (uint32_t group = 0; group < s->m->num_groups; ++group)
        for (pkv_page page = 0; (uint64_t)page < s->m->groups[group].num_pages; ++page)
            while (s->m->groups[group].pages[page].low > 0) {
                assert_ok(pkv_pool_release(s->pool, group, 1, &page, NULL, NULL));
                same_status(s, PKV_OK, model_release(s->m, group, 1, &page, NULL), "the model's release");
            }
    if (s->undetermined) {
        free_run(s);
        return;
    }
    check_everything(s);
    for (int ns = 0; ns < num_namespaces; ++ns)
        assert_ok(pkv_pool_set_namespace_retention(s->pool, namespace_of(ns), NULL));
    pkv_clear_result result = PKV_CLEAR_RESULT_INIT;
    uint64_t cached = 0;
    for (uint32_t group = 0; group < s->m->num_groups; ++group) cached += group_stats(s->pool, group).cached_pages;
    assert_ok(pkv_pool_clear_all(s->pool, &result));
    same_number(s, result.freed, cached, "freed in the end");
    for (uint32_t group = 0; group < s->m->num_groups; ++group) {
        const pkv_pool_stats stats = group_stats(s->pool, group);
        same_number(s, stats.free_pages, s->m->groups[group].num_pages, "pages free in the end");
        same_number(s, stats.index_blocks, 0, "blocks in the end");
        same_number(s, stats.namespaces, 0, "namespaces in the end");
    }
    free_run(s);
}

/* Whether the low-level holders have enough: they are kept from taking a whole group. */
static bool hold_enough(const shadow *s) {
    for (uint32_t group = 0; group < s->m->num_groups; ++group) {
        const model_group *g = &s->m->groups[group];
        uint64_t ours = 0;
        for (uint64_t page = 0; page < g->num_pages; ++page) ours += g->pages[page].low > 0;
        if (ours > g->num_pages / 3) return true;
    }
    return false;
}

typedef struct {
    void (*run)(shadow *);
    void (*run_on_table)(shadow *, int); /* or this, on one that has a sequence, mostly */
    uint64_t weight;
} operation;

static const operation operations[] = {
    {NULL, advance, 24},     {NULL, reserve_some, 6},    {NULL, name_tokens, 8},      {NULL, write_some, 6},
    {NULL, commit_some, 8},  {NULL, gather_some, 5},     {NULL, truncate_table, 6},   {NULL, slots_of_table, 3},
    {NULL, clear_table, 3},  {NULL, destroy_table, 3},   {NULL, fork_table, 4},       {NULL, window_table, 5},
    {NULL, accept_some, 6},  {NULL, transfer_some, 3},   {NULL, retain_table, 2},     {create_table, NULL, 4},
    {admit_table, NULL, 20}, {step_batch, NULL, 14},     {alloc_some, NULL, 6},       {retain_some, NULL, 3},
    {release_some, NULL, 6}, {lookup_some, NULL, 5},     {probe_some, NULL, 3},       {publish_some, NULL, 7},
    {evict_some, NULL, 3},   {pool_write_some, NULL, 2}, {copy_some, NULL, 2},        {pool_gather_some, NULL, 2},
    {clear_some, NULL, 1},   {retain_prompt, NULL, 2},   {retain_namespace, NULL, 1},
};
enum { num_operations = sizeof operations / sizeof *operations };

/* Without a group of full attention, blocks without pages can pile up before those that have one. The model has room for
 * as many as there are pages: they are cleared away before a step could pass that. */
static bool clear_away(shadow *s) {
    enum { most_new = (batch_rows + 2) * 11 };
    uint64_t room = 0;
    if (!s->windows_alone) return false;
    for (uint32_t group = 0; group < s->m->num_groups; ++group) room += s->m->groups[group].num_pages;
    for (int i = 0; i < s->m->num_nodes; ++i) room -= s->m->nodes[i].used;
    if (room >= most_new) return false;
    clear_namespaces(s, -1);
    return true;
}

static void step(shadow *s) {
    if (clear_away(s)) return;
    if (hold_enough(s) && percent(s, 40)) {
        release_some(s);
        return;
    }
    uint64_t sum = 0;
    for (int i = 0; i < num_operations; ++i) sum += operations[i].weight;
    uint64_t chance = below(s, sum);
    const operation *chosen = operations;
    for (; chance >= chosen->weight; ++chosen) chance -= chosen->weight;
    if (chosen->run == retain_prompt && s->seed % 3 == 0) return; /* some runs do without retention */
    if ((chosen->run == retain_namespace || chosen->run_on_table == retain_table) && s->seed % 3 == 0) return;
    if (chosen->run != NULL) {
        chosen->run(s);
        return;
    }
    const int index = pick_table(s, !percent(s, 2));
    if (index >= 0) chosen->run_on_table(s, index);
}

static void run(uint64_t seed, uint64_t steps) {
    shadow *s = begin_run(seed);
    current_run = s;
    for (s->step = 0; s->step < steps && !s->undetermined; ++s->step) {
        s->trace[s->step % trace_lines][0] = 0;
        forget_hints(s);
        step(s);
        if (!s->undetermined) check_everything(s);
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
