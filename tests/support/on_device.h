/* SPDX-License-Identifier: Apache-2.0 */
/* The tests of host pools again on a device (tests/device/suites.sh). With PKV_TEST_DEVICE=1 in the environment every pool is
 * made there. With PKV_TEST_DEVICE=streams, too, calls without a sync are given one: of three streams, another one whenever that
 * is the library's to put in order, so that old bytes show wherever it does not. */
#ifndef PKV_TESTS_ON_DEVICE_H
#define PKV_TESTS_ON_DEVICE_H

#include <pagedkv/pagedkv.h>

#include <stdbool.h>

/* Whether pools of host memory are made on the device. */
bool runs_on_device(void);
/* And calls without a sync are given a stream there. */
bool runs_with_streams(void);

/* All that was put into the device's streams has been done: before a test looks into pages, or writes there, in place. */
void settle_device(void);

pkv_status test_pool_create(const pkv_pool_options *options, pkv_pool **pool);
pkv_status test_pool_release(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_page *pages,
                             pkv_status *statuses, const pkv_sync *sync);
pkv_status test_pool_write(pkv_pool *pool, uint32_t group, uint32_t layer, uint64_t num_slots, const pkv_slot *slots,
                           const pkv_tensor *k, const pkv_tensor *v, const pkv_sync *sync);
pkv_status test_pool_gather(pkv_pool *pool, uint32_t group, uint32_t layer, uint64_t num_pages, const pkv_page *pages,
                            uint64_t first_token, uint64_t num_tokens, const pkv_tensor *k, const pkv_tensor *v,
                            const pkv_sync *sync);
pkv_status test_pool_copy_pages(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_page *src,
                                const pkv_page *dst, const pkv_sync *sync);
pkv_status test_table_destroy(pkv_table *table, const pkv_sync *sync);
pkv_status test_table_clear(pkv_table *table, const pkv_sync *sync);
pkv_status test_table_write(pkv_table *table, uint32_t group, uint32_t layer, uint64_t position, uint64_t num_tokens,
                            const pkv_tensor *k, const pkv_tensor *v, const pkv_sync *sync);
pkv_status test_table_commit(pkv_table *table, uint64_t num_tokens, const pkv_sync *sync);
pkv_status test_table_gather(pkv_table *table, uint32_t group, uint32_t layer, uint64_t position, uint64_t num_tokens,
                             const pkv_tensor *k, const pkv_tensor *v, const pkv_sync *sync);
pkv_status test_table_fork(pkv_table *table, const pkv_sync *sync, pkv_table **fork);
pkv_status test_table_truncate(pkv_table *table, uint64_t num_tokens, const pkv_sync *sync);
pkv_status test_table_accept(pkv_table *table, uint64_t num_positions, const uint64_t *positions, const pkv_sync *sync);
pkv_status test_table_window(pkv_table *table, const pkv_sync *sync);
pkv_status test_table_spill(pkv_table *table, uint64_t first_block, uint64_t num_blocks, const pkv_sync *sync,
                            pkv_spill_result *result);
pkv_status test_batch_reserve(pkv_batch *batch, uint32_t num_tables, pkv_table *const *tables, const uint32_t *num_new,
                              pkv_status *statuses);
pkv_status test_batch_write(pkv_batch *batch, uint32_t group, uint32_t layer, const pkv_tensor *k, const pkv_tensor *v,
                            const pkv_sync *sync);
pkv_status test_batch_gather(pkv_batch *batch, uint32_t group, uint32_t layer, const uint64_t *first, uint64_t padded,
                             const pkv_tensor *k, const pkv_tensor *v, const pkv_sync *sync);
pkv_status test_batch_commit(pkv_batch *batch, const uint32_t *num_accepted, pkv_status *statuses,
                             const pkv_sync *sync);
/* A view is what the host sees once its stream has come so far. */
pkv_status test_prefetch_layer_acquire(pkv_prefetch *session, uint32_t index, uint64_t timeout_ns, const pkv_sync *sync,
                                       pkv_layer_view *view);
pkv_status test_prefetch_layer_release(pkv_prefetch *session, uint32_t index, const pkv_sync *sync);
pkv_status test_prefetch_close(pkv_prefetch *session, const pkv_sync *sync);

#ifndef PKV_TESTS_ON_DEVICE_ITSELF
#define pkv_pool_create test_pool_create
#define pkv_pool_release test_pool_release
#define pkv_pool_write test_pool_write
#define pkv_pool_gather test_pool_gather
#define pkv_pool_copy_pages test_pool_copy_pages
#define pkv_table_destroy test_table_destroy
#define pkv_table_clear test_table_clear
#define pkv_table_write test_table_write
#define pkv_table_commit test_table_commit
#define pkv_table_gather test_table_gather
#define pkv_table_fork test_table_fork
#define pkv_table_truncate test_table_truncate
#define pkv_table_accept test_table_accept
#define pkv_table_window test_table_window
#define pkv_table_spill test_table_spill
#define pkv_batch_reserve test_batch_reserve
#define pkv_batch_write test_batch_write
#define pkv_batch_gather test_batch_gather
#define pkv_batch_commit test_batch_commit
#define pkv_prefetch_layer_acquire test_prefetch_layer_acquire
#define pkv_prefetch_layer_release test_prefetch_layer_release
#define pkv_prefetch_close test_prefetch_close
#endif

#endif
