/* SPDX-License-Identifier: Apache-2.0 */
/** @file pagedkv.h
 *  The whole API: a paged KV cache behind a C ABI. Read the headers in this order:
 *    types.h   conventions, statuses, handles          tensor.h  element types, layouts, views of rows
 *    pool.h    pages, prefix index, eviction, kernels  table.h   one sequence: block table, fork, gather
 *    batch.h   the decode step of many sequences       stats.h   counters
 *    tier.h    host memory and files below pools       tier_ops.h  tiers of one's own
 *    prefetch.h  loading before use                    node.h    images of other processes
 *    device.h  pools in the memory of a GPU */
#ifndef PAGEDKV_PAGEDKV_H
#define PAGEDKV_PAGEDKV_H

#include <pagedkv/batch.h>
#include <pagedkv/device.h>
#include <pagedkv/node.h>
#include <pagedkv/pool.h>
#include <pagedkv/prefetch.h>
#include <pagedkv/stats.h>
#include <pagedkv/table.h>
#include <pagedkv/tensor.h>
#include <pagedkv/tier.h>
#include <pagedkv/tier_ops.h>
#include <pagedkv/types.h>

#endif
