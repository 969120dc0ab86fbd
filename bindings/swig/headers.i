/* SPDX-License-Identifier: Apache-2.0 */
/* The public headers, in order: what is declared there and let in by admitted.i is wrapped. */
%include <pagedkv/types.h>
%include <pagedkv/tensor.h>
%include <pagedkv/device.h>
%include <pagedkv/pool.h>
%include <pagedkv/table.h>
%include <pagedkv/batch.h>
%include <pagedkv/stats.h>
%include <pagedkv/tier_ops.h>
%include <pagedkv/tier.h>
/* Here `blocks` is a list, elsewhere a number. */
PKV_ARRAY_OUT(uint64_t, blocks)
%include <pagedkv/prefetch.h>
%include <pagedkv/node.h>
