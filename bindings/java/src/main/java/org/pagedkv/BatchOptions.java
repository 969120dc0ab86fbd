/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.pagedkv.internal.batch_arrays;
import org.pagedkv.internal.batch_options;

/** How a batch is made: pkv_batch_options (batch.h). Of one batch: its arrays are made with it. */
public final class BatchOptions {
    private final List<BatchArrays> arrays = new ArrayList<>();
    private int maxTables = 1;
    private long maxTokens;
    private ByteBuffer lengths;
    private ByteBuffer lastPageLen;

    /** Tables of a step. */
    public BatchOptions maxTables(int maxTables) {
        this.maxTables = maxTables;
        return this;
    }

    /** New tokens of a step, over all tables. */
    public BatchOptions maxTokens(long maxTokens) {
        this.maxTokens = maxTokens;
        return this;
    }

    /** Adds arrays for a layer group. */
    public BatchOptions arrays(BatchArrays arrays) {
        this.arrays.add(arrays);
        return this;
    }

    BatchArrays arrays(int group) {
        for (BatchArrays each : arrays) {
            if (each.group == group) {
                return each;
            }
        }
        throw new IllegalArgumentException("the batch has no arrays for group " + group);
    }

    ByteBuffer lengths() {
        return lengths;
    }

    ByteBuffer lastPageLen() {
        return lastPageLen;
    }

    /* to be closed */
    batch_options open() {
        if (lengths != null) {
            throw new IllegalStateException("these options are a batch's already");
        }
        long tables = Bytes.unsigned(maxTables);
        lengths = Bytes.direct(tables * 4);
        lastPageLen = Bytes.direct(tables * 4);
        batch_options to = new batch_options();
        try {
            to.setMax_tables(tables);
            to.setMax_tokens(maxTokens);
            to.setLengths_address(BatchArrays.address(lengths));
            to.setLast_page_len_address(BatchArrays.address(lastPageLen));
            for (BatchArrays each : arrays) {
                try (batch_arrays array = each.open(tables, maxTokens)) {
                    to.add_arrays(array);
                }
            }
            return to;
        } catch (RuntimeException e) {
            to.close();
            throw e;
        }
    }
}
