/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.nio.ByteBuffer;
import org.pagedkv.internal.batch_arrays;

/** The arrays of one layer group: pkv_batch_arrays (batch.h). Those that are not asked for are null. */
public final class BatchArrays {
    final int group;
    private int fill;
    private long maxBlocks;
    private long maxIndices;
    private boolean csr;
    private boolean table = true;
    private ByteBuffer blockTable;
    private ByteBuffer blockIndptr;
    private ByteBuffer blockIndices;
    private ByteBuffer slotMapping;

    /** @param group layer group that they describe */
    public BatchArrays(int group) {
        this.group = group;
    }

    /** Stands where a block has no page, and behind rows. */
    public BatchArrays fill(int fill) {
        this.fill = fill;
        return this;
    }

    /** Entries of a row of the block table. */
    public BatchArrays maxBlocks(long maxBlocks) {
        this.maxBlocks = maxBlocks;
        return this;
    }

    /** Compressed rows (indptr and indices, so many of them), in place of a block table. */
    public BatchArrays compressed(long maxIndices) {
        this.maxIndices = maxIndices;
        csr = true;
        table = false;
        return this;
    }

    /** int32 [maxTables, maxBlocks] */
    public ByteBuffer blockTable() {
        return blockTable;
    }

    /** int32 [maxTables + 1] */
    public ByteBuffer blockIndptr() {
        return blockIndptr;
    }

    /** int32 [maxIndices] */
    public ByteBuffer blockIndices() {
        return blockIndices;
    }

    /** int64 [maxTokens]: slots of this step's new tokens */
    public ByteBuffer slotMapping() {
        return slotMapping;
    }

    private static long bytes(long count, int size) {
        return count < 0 || count > Integer.MAX_VALUE ? -1 : count * size;
    }

    batch_arrays open(long maxTables, long maxTokens) {
        if (blockTable != null || blockIndptr != null) {
            throw new IllegalStateException("these arrays are a batch's already");
        }
        slotMapping = Bytes.direct(bytes(maxTokens, 8));
        if (table) {
            if (maxBlocks < 0 || maxBlocks > Integer.MAX_VALUE) {
                throw PagedKvException.of(Status.LIMIT, "max_blocks is " + Long.toUnsignedString(maxBlocks));
            }
            blockTable = Bytes.direct(bytes(maxTables * maxBlocks, 4));
        }
        if (csr) {
            blockIndptr = Bytes.direct(bytes(maxTables + 1, 4));
            blockIndices = Bytes.direct(bytes(maxIndices, 4));
        }
        batch_arrays to = new batch_arrays();
        to.setGroup(Bytes.unsigned(group));
        to.setFill(fill);
        to.setMax_blocks(maxBlocks);
        to.setMax_indices(maxIndices);
        to.setBlock_table_address(address(blockTable));
        to.setBlock_indptr_address(address(blockIndptr));
        to.setBlock_indices_address(address(blockIndices));
        to.setSlot_mapping_address(address(slotMapping));
        return to;
    }

    static long address(ByteBuffer buffer) {
        return buffer != null ? Bytes.address(buffer) : 0;
    }
}
