/* SPDX-License-Identifier: Apache-2.0 */
#include "support/support.h"

#include <sys/wait.h>
#include <unistd.h>

void check_status(pkv_status got, pkv_status expected, const char *call, const char *file, int line) {
    if (got == expected) return;
    char message[512];
    pkv_last_error(message, sizeof message);
    print_error("%s:%d: %s gave %s, not %s; last error: %s\n", file, line, call, pkv_status_string(got),
                pkv_status_string(expected), message);
    _fail(file, line);
}

void assert_message(const char *text) {
    char message[512];
    pkv_last_error(message, sizeof message);
    if (strstr(message, text) == NULL) fail_msg("\"%s\" is not in the message \"%s\"", text, message);
}

/* ---- pools ---- */

pkv_group_options small_group(uint64_t num_pages) {
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = num_pages;
    group.num_layers = 2;
    group.num_kv_heads = 2;
    group.k_head_dim = group.v_head_dim = 4;
    return group;
}

pkv_pool *make_pool_of(const pkv_group_options *group, uint32_t page_tokens, uint32_t debug) {
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = 1;
    options.groups = group;
    options.debug = debug;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    return pool;
}

pkv_pool *make_pool(uint64_t num_pages, uint32_t page_tokens) {
    const pkv_group_options group = small_group(num_pages);
    return make_pool_of(&group, page_tokens, PKV_DEBUG_POISON);
}

pkv_pool *make_id_pool(uint64_t num_pages, uint32_t page_tokens) {
    pkv_group_options group = small_group(num_pages);
    group.memory = PKV_MEMORY_NONE;
    return make_pool_of(&group, page_tokens, 0);
}

pkv_pool_stats stats_of(pkv_pool *pool) {
    pkv_pool_stats stats = PKV_POOL_STATS_INIT;
    assert_ok(pkv_pool_get_stats(pool, 0, &stats));
    return stats;
}

pkv_page_info page_of(pkv_pool *pool, pkv_page page) {
    pkv_page_info info = PKV_PAGE_INFO_INIT;
    assert_ok(pkv_pool_page_info(pool, 0, page, &info));
    return info;
}

void check_rules(pkv_pool *pool) {
    const pkv_pool_stats stats = stats_of(pool);
    assert_true(stats.free_pages + stats.held_pages + stats.cached_pages + stats.quarantined_pages == stats.num_pages);
    assert_true(stats.usage >= 0.0 && stats.usage <= 1.0);
    assert_true(stats.hit_tokens <= stats.asked_tokens);
    assert_true(stats.unpublished_blocks + stats.index_blocks == stats.published_blocks);
    assert_true(stats.index_blocks <= stats.held_pages + stats.cached_pages);
    assert_true(stats.cached_pages <= stats.index_blocks);
}

void end_pool(pkv_pool *pool) {
    check_rules(pool);
    assert_int_equal(stats_of(pool).held_pages, 0);
    assert_int_equal(stats_of(pool).tables, 0);
    assert_ok(pkv_pool_destroy(pool));
}

/* ---- prompts ---- */

pkv_prompt prompt_of(const pkv_token *tokens, uint64_t num_tokens) {
    pkv_prompt prompt = PKV_PROMPT_INIT;
    prompt.tokens = tokens;
    prompt.num_tokens = num_tokens;
    return prompt;
}

uint64_t probe_tokens(pkv_pool *pool, const pkv_prompt *prompt) {
    pkv_match match = PKV_MATCH_INIT;
    assert_ok(pkv_pool_probe(pool, prompt, PKV_MATCH_ALL, &match));
    return match.tokens;
}

static uint32_t page_tokens_of(pkv_pool *pool) {
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    assert_ok(pkv_pool_layout(pool, 0, 0, &layout));
    return layout.page_tokens;
}

void publish_held(pkv_pool *pool, const pkv_prompt *prompt, pkv_page *pages) {
    const uint64_t blocks = prompt->num_tokens / page_tokens_of(pool);
    assert_ok(pkv_pool_alloc(pool, 0, blocks, pages));
    assert_ok(pkv_pool_publish(pool, 0, prompt, 0, blocks, pages, NULL));
}

void publish_cached(pkv_pool *pool, const pkv_prompt *prompt) {
    const uint64_t blocks = prompt->num_tokens / page_tokens_of(pool);
    pkv_page *pages = calloc(blocks + 1, sizeof *pages);
    publish_held(pool, prompt, pages);
    assert_ok(pkv_pool_release(pool, 0, blocks, pages, NULL, NULL));
    free(pages);
}

void count_up(pkv_token *tokens, uint64_t num_tokens, pkv_token first) {
    for (uint64_t i = 0; i < num_tokens; ++i) tokens[i] = first + (pkv_token)i;
}

/* ---- tables ---- */

pkv_table *admit(pkv_pool *pool, const pkv_prompt *prompt, pkv_match *match) {
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    assert_ok(pkv_table_admit(table, prompt, NULL, match));
    return table;
}

pkv_table_info info_of(pkv_table *table) {
    pkv_table_info info = PKV_TABLE_INFO_INIT;
    assert_ok(pkv_table_get_info(table, &info));
    return info;
}

enum { small_layers = 2, small_row_elements = 2 * 4 };

/* The small geometry's row of all heads. Never 0xFFFF, which poison looks like. */
static uint16_t element(uint32_t tag, uint32_t layer, uint64_t position, int side, int index) {
    uint64_t mixed = ((((uint64_t)tag * 31 + layer) * 1000003 + position) * 2 + (uint64_t)side) * 64 + (uint64_t)index;
    mixed *= UINT64_C(0x9E3779B97F4A7C15);
    return (uint16_t)((mixed >> 40) % 65535);
}

void write_rows(pkv_table *table, uint64_t position, uint64_t count, uint32_t tag) {
    const size_t elements = (size_t)count * small_row_elements;
    uint16_t *rows[2] = {calloc(elements + 1, sizeof(uint16_t)), calloc(elements + 1, sizeof(uint16_t))};
    for (uint32_t layer = 0; layer < small_layers; ++layer) {
        pkv_tensor tensors[2] = {PKV_TENSOR_INIT, PKV_TENSOR_INIT};
        for (int side = 0; side < 2; ++side) {
            for (size_t i = 0; i < elements; ++i)
                rows[side][i] =
                    element(tag, layer, position + i / small_row_elements, side, (int)(i % small_row_elements));
            tensors[side].data = rows[side];
            tensors[side].dtype = PKV_DTYPE_F16;
            tensors[side].num_tokens = count;
        }
        assert_ok(pkv_table_write(table, 0, layer, position, count, &tensors[0], &tensors[1], NULL));
    }
    free(rows[0]);
    free(rows[1]);
}

void check_rows(pkv_table *table, uint64_t position, uint64_t count, uint32_t tag) {
    const size_t elements = (size_t)count * small_row_elements;
    uint16_t *rows[2] = {calloc(elements + 1, sizeof(uint16_t)), calloc(elements + 1, sizeof(uint16_t))};
    for (uint32_t layer = 0; layer < small_layers; ++layer) {
        pkv_tensor tensors[2] = {PKV_TENSOR_INIT, PKV_TENSOR_INIT};
        for (int side = 0; side < 2; ++side) {
            memset(rows[side], 0xEE, elements * sizeof(uint16_t));
            tensors[side].data = rows[side];
            tensors[side].dtype = PKV_DTYPE_F16;
            tensors[side].num_tokens = count;
        }
        assert_ok(pkv_table_gather(table, 0, layer, position, count, &tensors[0], &tensors[1], NULL));
        for (int side = 0; side < 2; ++side)
            for (size_t i = 0; i < elements; ++i) {
                const uint64_t at = position + i / small_row_elements;
                const uint16_t expected = element(tag, layer, at, side, (int)(i % small_row_elements));
                if (rows[side][i] != expected)
                    fail_msg("%s of layer %u, token %llu, element %zu is %04x, not %04x (tag %u)",
                             side == 0 ? "K" : "V", layer, (unsigned long long)at, i % small_row_elements,
                             rows[side][i], expected, tag);
            }
    }
    free(rows[0]);
    free(rows[1]);
}

void write_and_commit(pkv_table *table, uint64_t end, uint32_t tag) {
    const uint64_t begin = info_of(table).committed;
    assert_ok(pkv_table_reserve(table, end));
    write_rows(table, begin, end - begin, tag);
    assert_ok(pkv_table_commit(table, end, NULL));
}

/* ---- random numbers ---- */

uint64_t next_random(test_random *random) {
    uint64_t mixed = random->state += UINT64_C(0x9E3779B97F4A7C15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ (mixed >> 31);
}

uint64_t random_below(test_random *random, uint64_t bound) { return next_random(random) % bound; }

bool long_tests(void) {
    const char *value = getenv("PKV_TEST_LONG");
    return value != NULL && strcmp(value, "1") == 0;
}

/* ---- block tables ---- */

pkv_page page_at(pkv_table *table, uint64_t block) {
    uint64_t blocks = 0;
    assert_ok(pkv_table_pages(table, 0, NULL, 0, &blocks));
    assert_true(block < blocks);
    pkv_page *pages = calloc(blocks, sizeof *pages);
    assert_ok(pkv_table_pages(table, 0, pages, blocks, &blocks));
    const pkv_page page = pages[block];
    free(pages);
    return page;
}

pkv_table *fork_of(pkv_table *table) {
    pkv_table *fork = NULL;
    assert_ok(pkv_table_fork(table, NULL, &fork));
    return fork;
}

void end_table(pkv_table *table) { assert_ok(pkv_table_destroy(table, NULL)); }

/* ---- small words ---- */

pkv_bytes bytes_of(const char *text) {
    const pkv_bytes bytes = {text, strlen(text)};
    return bytes;
}

void release_pages(pkv_pool *pool, const pkv_page *pages, uint64_t num_pages) {
    assert_ok(pkv_pool_release(pool, 0, num_pages, pages, NULL, NULL));
}

uint64_t lookup_tokens(pkv_pool *pool, const pkv_prompt *prompt, pkv_page *pages, uint64_t capacity) {
    pkv_match match = PKV_MATCH_INIT;
    assert_ok(pkv_pool_lookup(pool, prompt, PKV_MATCH_ALL, pages, capacity, &match));
    return match.tokens;
}

uint64_t evict_pages(pkv_pool *pool, uint64_t num_pages) {
    uint64_t evicted = 0;
    assert_ok(pkv_pool_evict(pool, 0, num_pages, &evicted));
    return evicted;
}

void assert_same_stats(const pkv_pool_stats *before, const pkv_pool_stats *after) {
    pkv_pool_stats left = *before;
    pkv_pool_stats right = *after;
    left.metadata_bytes = right.metadata_bytes = 0;
    assert_memory_equal(&left, &right, sizeof left);
}

/* ---- pools of several groups ---- */

pkv_group_options id_group(uint64_t num_pages) {
    pkv_group_options group = small_group(num_pages);
    group.memory = PKV_MEMORY_NONE;
    return group;
}

pkv_group_options window_group(uint64_t num_pages, uint32_t window, uint32_t sinks) {
    pkv_group_options group = small_group(num_pages);
    group.attention = PKV_ATTENTION_WINDOW;
    group.window = window;
    group.sinks = sinks;
    return group;
}

pkv_pool *make_groups(const pkv_group_options *groups, uint32_t num_groups, uint32_t page_tokens) {
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = num_groups;
    options.groups = groups;
    options.debug = PKV_DEBUG_POISON;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    return pool;
}

void end_groups(pkv_pool *pool) {
    pkv_pool_stats stats = PKV_POOL_STATS_INIT;
    for (uint32_t group = 0; pkv_pool_get_stats(pool, group, &stats) == PKV_OK; ++group) {
        assert_int_equal(stats.held_pages, 0);
        assert_int_equal(stats.free_pages + stats.cached_pages, stats.num_pages);
        assert_true(stats.cached_pages <= stats.index_blocks);
        assert_true(stats.hit_tokens <= stats.asked_tokens);
        assert_int_equal(stats.unpublished_blocks + stats.index_blocks, stats.published_blocks);
        assert_int_equal(stats.tables, 0);
    }
    assert_ok(pkv_pool_destroy(pool));
}

pkv_pool_stats group_stats(pkv_pool *pool, uint32_t group) {
    pkv_pool_stats stats = PKV_POOL_STATS_INIT;
    assert_ok(pkv_pool_get_stats(pool, group, &stats));
    return stats;
}

pkv_page_info group_page(pkv_pool *pool, uint32_t group, pkv_page page) {
    pkv_page_info info = PKV_PAGE_INFO_INIT;
    assert_ok(pkv_pool_page_info(pool, group, page, &info));
    return info;
}

pkv_page page_in(pkv_table *table, uint32_t group, uint64_t block) {
    uint64_t blocks = 0;
    assert_ok(pkv_table_pages(table, group, NULL, 0, &blocks));
    assert_true(block < blocks);
    pkv_page *pages = calloc(blocks, sizeof *pages);
    assert_ok(pkv_table_pages(table, group, pages, blocks, &blocks));
    const pkv_page page = pages[block];
    free(pages);
    return page;
}

void known_row(unsigned char *row, uint64_t bytes, uint32_t tag, uint32_t group, uint32_t layer, uint64_t token,
               int side) {
    test_random random = {(((((uint64_t)tag * 8 + group) * 4096 + layer) << 24) + token) * 2 + (uint64_t)side};
    for (uint64_t i = 0; i < bytes; ++i) row[i] = (unsigned char)(next_random(&random) % 255);
}

static pkv_tensor rows_tensor(void *data, int32_t dtype, uint64_t num_tokens) {
    pkv_tensor tensor = PKV_TENSOR_INIT;
    tensor.data = data;
    tensor.dtype = dtype;
    tensor.num_tokens = num_tokens;
    return tensor;
}

void put_rows(pkv_pool *pool, pkv_table *table, uint32_t group, uint64_t position, uint64_t count, uint32_t tag) {
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    for (uint32_t layer = 0; pkv_pool_layout(pool, group, layer, &layout) == PKV_OK; ++layer) {
        const uint64_t bytes[2] = {layout.num_kv_heads * layout.k_row_bytes, layout.num_kv_heads * layout.v_row_bytes};
        unsigned char *rows[2];
        pkv_tensor tensors[2];
        for (int side = 0; side < 2; ++side) {
            rows[side] = malloc(count * bytes[side] + 1);
            for (uint64_t i = 0; i < count; ++i)
                known_row(rows[side] + i * bytes[side], bytes[side], tag, group, layer, position + i, side);
            tensors[side] = rows_tensor(rows[side], layout.dtype, count);
        }
        assert_ok(pkv_table_write(table, group, layer, position, count, &tensors[0], bytes[1] != 0 ? &tensors[1] : NULL,
                                  NULL));
        free(rows[0]);
        free(rows[1]);
    }
}

void same_rows(pkv_pool *pool, pkv_table *table, uint32_t group, uint64_t position, uint64_t count, uint32_t tag,
               uint64_t origin) {
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    for (uint32_t layer = 0; pkv_pool_layout(pool, group, layer, &layout) == PKV_OK; ++layer)
        for (int side = 0; side < (layout.v_row_bytes != 0 ? 2 : 1); ++side) {
            const uint64_t bytes = layout.num_kv_heads * (side == 0 ? layout.k_row_bytes : layout.v_row_bytes);
            unsigned char *rows = malloc(count * bytes + 1), *expected = malloc(bytes + 1);
            const pkv_tensor tensor = rows_tensor(rows, layout.dtype, count);
            assert_ok(pkv_table_gather(table, group, layer, position, count, side == 0 ? &tensor : NULL,
                                       side == 1 ? &tensor : NULL, NULL));
            for (uint64_t i = 0; i < count; ++i) {
                known_row(expected, bytes, tag, group, layer, origin + i, side);
                if (memcmp(rows + i * bytes, expected, bytes) != 0)
                    fail_msg("%s of group %u, layer %u, token %llu is not token %llu of tag %u", side == 0 ? "K" : "V",
                             group, layer, (unsigned long long)(position + i), (unsigned long long)(origin + i), tag);
            }
            free(rows);
            free(expected);
        }
}

void put_and_commit(pkv_pool *pool, pkv_table *table, uint64_t end, uint32_t tag) {
    const uint64_t begin = info_of(table).committed;
    assert_ok(pkv_table_reserve(table, end));
    pkv_pool_stats stats = PKV_POOL_STATS_INIT;
    for (uint32_t group = 0; pkv_pool_get_stats(pool, group, &stats) == PKV_OK; ++group)
        if (stats.memory_kind != PKV_MEMORY_KIND_NONE) put_rows(pool, table, group, begin, end - begin, tag);
    assert_ok(pkv_table_commit(table, end, NULL));
}

/* ---- kernels ---- */

static const char kernels_mark[] = "PKV_TEST_KERNELS_CHILD";
static const char *kernels_program;

/* Runs the program with one set of kernels; -1: the machine does not run them. */
static int run_kernels(const char *kernels, FILE *log) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        setenv("PKV_CPU_KERNELS", kernels, 1);
        setenv(kernels_mark, kernels, 1);
        unsetenv("CMOCKA_MESSAGE_OUTPUT");
        dup2(fileno(log), 1);
        dup2(fileno(log), 2);
        execl(kernels_program, kernels_program, (char *)NULL);
        _exit(126);
    }
    assert_true(child > 0);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void every_other_set_of_kernels_passes_the_same_tests(void **state) {
    (void)state;
    static const char *const names[] = {"portable", "avx2", "avx512", "neon"};
    print_message("unasked: %s\n", pkv_cpu_kernels());
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        if (strcmp(names[i], pkv_cpu_kernels()) == 0) continue;
        FILE *log = tmpfile();
        assert_non_null(log);
        const int status = run_kernels(names[i], log);
        print_message("%s: %s\n", names[i], status < 0 ? "not on this machine" : status == 0 ? "passed" : "FAILED");
        if (status > 0) {
            char line[512];
            rewind(log);
            while (fgets(line, sizeof line, log) != NULL) print_message("    %s", line);
        }
        fclose(log);
        assert_true(status <= 0);
    }
}

int run_with_every_kernels(const char *program, const struct CMUnitTest *tests, size_t num_tests) {
    const char *wanted = getenv(kernels_mark);
    if (wanted != NULL && strcmp(wanted, pkv_cpu_kernels()) != 0) return 77;
    kernels_program = program;
    const struct CMUnitTest others[] = {cmocka_unit_test(every_other_set_of_kernels_passes_the_same_tests)};
    const int failed = _cmocka_run_group_tests("tests", tests, num_tests, NULL, NULL);
    return wanted != NULL ? failed : failed + cmocka_run_group_tests(others, NULL, NULL);
}
