/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of overhead.py, in C: for each its name and ns a call, lower quartile, median and upper quartile over rounds. */
#include <pagedkv/pagedkv.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CALLS = 1000, ROW = 8 * 128 };

static pkv_pool *pool;
static pkv_table *table;
static uint16_t rows[2][17 * ROW];
static pkv_slot slot;

static pkv_tensor tensor(int side) {
    pkv_tensor one = PKV_TENSOR_INIT;
    one.data = rows[side];
    one.dtype = PKV_DTYPE_F16;
    one.num_tokens = 17;
    return one;
}

static pkv_status info(void) {
    pkv_table_info numbers = PKV_TABLE_INFO_INIT;
    return pkv_table_get_info(table, &numbers);
}
static pkv_status reserve(void) { return pkv_table_reserve(table, 17); }
static pkv_status write_token(void) {
    const pkv_tensor k = tensor(0), v = tensor(1);
    return pkv_table_write(table, 0, 0, 16, 1, &k, &v, NULL);
}
static pkv_status gather_token(void) {
    const pkv_tensor k = tensor(0), v = tensor(1);
    return pkv_table_gather(table, 0, 0, 15, 1, &k, &v, NULL);
}
static pkv_status pool_write_token(void) {
    const pkv_tensor k = tensor(0), v = tensor(1);
    return pkv_pool_write(pool, 0, 0, 1, &slot, &k, &v, NULL);
}

static int ascending(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }

static void measure(const char *name, pkv_status (*call)(void), int rounds) {
    double *const times = malloc((size_t)rounds * sizeof *times);
    for (int r = 0; r < rounds; ++r) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (int i = 0; i < CALLS; ++i)
            if (call() != PKV_OK) exit(1);
        clock_gettime(CLOCK_MONOTONIC, &end);
        times[r] = ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / CALLS;
    }
    qsort(times, (size_t)rounds, sizeof *times, ascending);
    printf("%s %.1f %.1f %.1f\n", name, times[rounds / 4], times[rounds / 2], times[rounds * 3 / 4]);
    free(times);
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 250;
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    pkv_prompt prompt = PKV_PROMPT_INIT;
    pkv_token tokens[17];
    for (int i = 0; i < 17; ++i) tokens[i] = i;
    group.num_pages = 64;
    group.num_layers = 1;
    group.num_kv_heads = 8;
    group.k_head_dim = group.v_head_dim = 128;
    options.page_tokens = 16;
    options.num_groups = 1;
    options.groups = &group;
    prompt.tokens = tokens;
    prompt.num_tokens = 17;
    const pkv_tensor k = tensor(0), v = tensor(1);
    if (rounds < 1 || pkv_pool_create(&options, &pool) != PKV_OK || pkv_table_create(pool, &table) != PKV_OK ||
        pkv_table_admit(table, &prompt, NULL, NULL) != PKV_OK ||
        pkv_table_write(table, 0, 0, 0, 17, &k, &v, NULL) != PKV_OK || pkv_table_commit(table, 16, NULL) != PKV_OK ||
        pkv_table_slots(table, 0, 16, 1, &slot) != PKV_OK)
        return 1;
    measure("info", info, rounds);
    measure("reserve", reserve, rounds);
    measure("write", write_token, rounds);
    measure("gather", gather_token, rounds);
    measure("pool_write", pool_write_token, rounds);
    return 0;
}
