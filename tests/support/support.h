/* SPDX-License-Identifier: Apache-2.0 */
/* What the test programs share: pools of small geometry, prompts, rows with known bytes, and the rules that hold at all
 * times. Include it alone: it brings cmocka and the library's headers. */
#ifndef PKV_TESTS_SUPPORT_H
#define PKV_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pagedkv/pagedkv.h>

#include "support/on_device.h"

/* Fails the test, with the library's message, when a call does not give the expected status. */
#define assert_status(call, expected) check_status((call), (expected), #call, __FILE__, __LINE__)
#define assert_ok(call) assert_status(call, PKV_OK)
void check_status(pkv_status got, pkv_status expected, const char *call, const char *file, int line);

/* The last error's message contains `text`. */
void assert_message(const char *text);

/* ---- pools ---- */

/* A small f16 geometry: 2 layers, 2 heads, K and V of 4 elements, NHD, page-major. */
pkv_group_options small_group(uint64_t num_pages);
/* A pool of one group; `debug` is PKV_DEBUG_*. */
pkv_pool *make_pool_of(const pkv_group_options *group, uint32_t page_tokens, uint32_t debug);
/* A pool of the small geometry. */
pkv_pool *make_pool(uint64_t num_pages, uint32_t page_tokens);
/* A pool of the small geometry without bytes. */
pkv_pool *make_id_pool(uint64_t num_pages, uint32_t page_tokens);
pkv_pool_stats stats_of(pkv_pool *pool);
pkv_page_info page_of(pkv_pool *pool, pkv_page page);

/* Rules R2 and R15 on a pool: free + held + cached = num_pages, gauges in range, hits <= asked. */
void check_rules(pkv_pool *pool);
/* Destroys a pool after checking the rules, and that nothing is held any more. */
void end_pool(pkv_pool *pool);

/* ---- prompts ---- */

/* A prompt in the namespace without parts. */
pkv_prompt prompt_of(const pkv_token *tokens, uint64_t num_tokens);
/* As a lookup that takes nothing: tokens found with PKV_MATCH_ALL. */
uint64_t probe_tokens(pkv_pool *pool, const pkv_prompt *prompt);
/* Allocates pages, publishes the prompt's whole blocks on them, and leaves them held in `pages`. */
void publish_held(pkv_pool *pool, const pkv_prompt *prompt, pkv_page *pages);
/* The same, released at once: cached. */
void publish_cached(pkv_pool *pool, const pkv_prompt *prompt);
/* Fills tokens with first, first + 1, ... */
void count_up(pkv_token *tokens, uint64_t num_tokens, pkv_token first);

/* ---- tables ---- */

/* A table admitted with a prompt; match may be NULL. */
pkv_table *admit(pkv_pool *pool, const pkv_prompt *prompt, pkv_match *match);
pkv_table_info info_of(pkv_table *table);
/* Rows with known bytes for (tag, layer, position, K or V): writes `count` of them in all layers of a table ... */
void write_rows(pkv_table *table, uint64_t position, uint64_t count, uint32_t tag);
/* ... and checks them with gather. */
void check_rows(pkv_table *table, uint64_t position, uint64_t count, uint32_t tag);
/* write_rows from `committed` on, then commit. */
void write_and_commit(pkv_table *table, uint64_t end, uint32_t tag);

/* ---- random numbers: splitmix64, the same on every machine ---- */
typedef struct {
    uint64_t state;
} test_random;
uint64_t next_random(test_random *random);
uint64_t random_below(test_random *random, uint64_t bound);

/* 1 under check-long (PKV_TEST_LONG=1). */
bool long_tests(void);

/* ---- block tables ---- */

/* The page of a block. */
pkv_page page_at(pkv_table *table, uint64_t block);
/* A fork that must succeed. */
pkv_table *fork_of(pkv_table *table);
/* Destroys a table that must be alive. */
void end_table(pkv_table *table);

/* ---- small words for the tests of pool/, prefix/, core/ and capi/ ---- */
pkv_bytes bytes_of(const char *text);
/* Counts of one are given back; the list is in order, so the tail is the first to be evicted. */
void release_pages(pkv_pool *pool, const pkv_page *pages, uint64_t num_pages);
/* Tokens that a lookup with PKV_MATCH_ALL finds; its pages, each with a count, are in `pages`. */
uint64_t lookup_tokens(pkv_pool *pool, const pkv_prompt *prompt, pkv_page *pages, uint64_t capacity);
/* Cached pages that pkv_pool_evict freed. */
uint64_t evict_pages(pkv_pool *pool, uint64_t num_pages);
/* Every gauge and counter is as it was, but the memory used. */
void assert_same_stats(const pkv_pool_stats *before, const pkv_pool_stats *after);

/* ---- pools of several groups ---- */

/* The small geometry without bytes, and with a sliding window. */
pkv_group_options id_group(uint64_t num_pages);
pkv_group_options window_group(uint64_t num_pages, uint32_t window, uint32_t sinks);
pkv_pool *make_groups(const pkv_group_options *groups, uint32_t num_groups, uint32_t page_tokens);
/* Destroys a pool after checking for every group that its gauges add up, and that nothing is held any more. */
void end_groups(pkv_pool *pool);
pkv_pool_stats group_stats(pkv_pool *pool, uint32_t group);
pkv_page_info group_page(pkv_pool *pool, uint32_t group, pkv_page page);
/* The page of a block in a group. */
pkv_page page_in(pkv_table *table, uint32_t group, uint64_t block);
/* Bytes of one row of all heads; never 0xFF, which poison looks like. */
void known_row(unsigned char *row, uint64_t bytes, uint32_t tag, uint32_t group, uint32_t layer, uint64_t token,
               int side);
/* Rows of any geometry, with known bytes for (tag, group, layer, token, K or V), in all layers of a group ... */
void put_rows(pkv_pool *pool, pkv_table *table, uint32_t group, uint64_t position, uint64_t count, uint32_t tag);
/* ... and what stands at `position` compared with what was put in as token `origin` and after. */
void same_rows(pkv_pool *pool, pkv_table *table, uint32_t group, uint64_t position, uint64_t count, uint32_t tag,
               uint64_t origin);
/* reserve; put_rows from `committed` on in all groups that have bytes; commit. */
void put_and_commit(pkv_pool *pool, pkv_table *table, uint64_t end, uint32_t tag);

/* ---- kernels ---- */
/* For a main: runs the tests, and then the program again with each other set of host kernels that this machine runs.
 * Returns the number of failures. */
int run_with_every_kernels(const char *program, const struct CMUnitTest *tests, size_t num_tests);

#endif
