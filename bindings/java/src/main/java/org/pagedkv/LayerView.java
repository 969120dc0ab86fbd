/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.Core;
import org.pagedkv.internal.layer_layout;
import org.pagedkv.internal.layer_view;

/**
 * A layer of a step, or a range of it: pkv_layer_view (prefetch.h). The arrays are copies; the addresses, for native kernels, are
 * valid until the release, as is what {@code layout} leads to.
 *
 * @param buffer whose slices these are
 * @param last nothing of this layer comes after this range
 * @param slices slice ids; -1: dropped by a window, or not to be had
 * @param indptr table t has slices[indptr[t]] .. slices[indptr[t + 1] - 1]
 * @param firstBlock the block of each table's first entry
 * @param layout with slice ids in place of pages
 * @param slicesAddress of int32 [numSlices]
 * @param indptrAddress of int32 [numTables + 1]
 * @param firstBlockAddress of uint64 [numTables]
 */
public record LayerView(
        int index, int group, int layer, int buffer, boolean last, int[] slices, int[] indptr, long[] firstBlock,
        LayerLayout layout, long numTables, long numSlices, long slicesAddress, long indptrAddress, long firstBlockAddress,
        long waitedNs) {

    static LayerView of(layer_view s, boolean ready) {
        int tables = Math.toIntExact(s.getNum_tables());
        int[] slices = ready ? new int[Math.toIntExact(s.getNum_slices())] : null;
        int[] indptr = ready ? new int[tables + 1] : null;
        long[] firstBlock = ready ? new long[tables] : null;
        if (ready) {
            Core.memory_to_ints(s.getSlices_address(), slices.length, slices);
            Core.memory_to_ints(s.getIndptr_address(), indptr.length, indptr);
            Core.memory_to_longs(s.getFirst_block_address(), tables, firstBlock);
        }
        try (layer_layout layout = s.get_layout()) {
            return new LayerView((int) s.getIndex(), (int) s.getGroup(), (int) s.getLayer(), (int) s.getBuffer(), s.getLast() != 0,
                    slices, indptr, firstBlock, LayerLayout.of(layout), s.getNum_tables(), s.getNum_slices(), s.getSlices_address(),
                    s.getIndptr_address(), s.getFirst_block_address(), s.getWaited_ns());
        }
    }
}
