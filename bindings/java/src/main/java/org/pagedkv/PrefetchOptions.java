/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.pagedkv.internal.prefetch_options;

/** How a session is opened: pkv_prefetch_options (prefetch.h). */
public final class PrefetchOptions {
    /** Flag: nothing is loaded before it is needed, to compare. */
    public static final int OFF = 1;
    /** Flag: steps whose layers do not fit a buffer are refused. */
    public static final int WHOLE_LAYERS = 2;

    private final List<int[]> layers = new ArrayList<>();
    private long[] stagingPages;
    private ByteBuffer slices;
    private ByteBuffer sliceIndptr;
    private int policy;
    private int flags;
    private long sinkTokens;
    private long recentTokens;
    private long maxLookahead;
    private long maxBlockPages;
    private int numBuffers;
    private int maxTables;
    private long maxSlices;
    private long maxBytesInFlight;
    private long loadTimeoutNs;

    /** Of {@link PrefetchSession#submit}. */
    public PrefetchOptions policy(PredictPolicy policy) {
        return policy(policy.code);
    }

    PrefetchOptions policy(int policy) {
        this.policy = policy;
        return this;
    }

    /** {@link #OFF}, {@link #WHOLE_LAYERS}. */
    public PrefetchOptions flags(int flags) {
        this.flags = flags;
        return this;
    }

    /** First tokens that are always predicted. */
    public PrefetchOptions sinkTokens(long sinkTokens) {
        this.sinkTokens = sinkTokens;
        return this;
    }

    /** Last tokens before the position that are always predicted. */
    public PrefetchOptions recentTokens(long recentTokens) {
        this.recentTokens = recentTokens;
        return this;
    }

    /** Blocks ahead of the position at most; 0 = 64. */
    public PrefetchOptions maxLookahead(long maxLookahead) {
        this.maxLookahead = maxLookahead;
        return this;
    }

    /** Pages of each group that loaded blocks may take; 0 = an eighth. */
    public PrefetchOptions maxBlockPages(long maxBlockPages) {
        this.maxBlockPages = maxBlockPages;
        return this;
    }

    /** Buffers of layers: 2 .. 16; 0 = 4. */
    public PrefetchOptions numBuffers(int numBuffers) {
        this.numBuffers = numBuffers;
        return this;
    }

    /** Tables of a step; 0 = 256. */
    public PrefetchOptions maxTables(int maxTables) {
        this.maxTables = maxTables;
        return this;
    }

    /** Entries of a view at most; 0 = what the pool suggests. */
    public PrefetchOptions maxSlices(long maxSlices) {
        this.maxSlices = maxSlices;
        return this;
    }

    /** Of loads under way; 0 = 32 MiB. */
    public PrefetchOptions maxBytesInFlight(long maxBytesInFlight) {
        this.maxBytesInFlight = maxBytesInFlight;
        return this;
    }

    /** After so many nanoseconds a load has failed; 0 = 30 seconds. */
    public PrefetchOptions loadTimeoutNs(long loadTimeoutNs) {
        this.loadTimeoutNs = loadTimeoutNs;
        return this;
    }

    /** Pages of each group that the session takes as staging memory; 0 = an eighth. */
    public PrefetchOptions stagingPages(long... stagingPages) {
        this.stagingPages = stagingPages.clone();
        return this;
    }

    /** Adds a layer to the order in which a step goes through them; without any: all, in order. */
    public PrefetchOptions layer(int group, int layer) {
        layers.add(new int[] {group, layer});
        return this;
    }

    /**
     * Direct buffers, kept by the session, where views put their slice ids and row pointers, for kernels: int32 [num_buffers,
     * max_slices] and [num_buffers, max_tables + 1]. The three numbers have to be given then.
     */
    public PrefetchOptions arrays(ByteBuffer slices, ByteBuffer sliceIndptr) {
        this.slices = slices;
        this.sliceIndptr = sliceIndptr;
        return this;
    }

    Object kept() {
        return slices != null || sliceIndptr != null ? new ByteBuffer[] {slices, sliceIndptr} : null;
    }

    private static long address(ByteBuffer buffer, long rows, long entries) {
        if (buffer == null) {
            return 0;
        }
        if (rows == 0 || entries <= 0 || entries > Integer.MAX_VALUE || buffer.remaining() < rows * entries * 4) {
            throw new IndexOutOfBoundsException(rows + " x " + entries + " entries of 4 bytes: " + buffer.remaining()
                    + " bytes are there");
        }
        return Bytes.address(buffer);
    }

    /* to be closed */
    prefetch_options open() {
        prefetch_options to = new prefetch_options();
        to.setPolicy(policy);
        to.setFlags(Bytes.unsigned(flags));
        to.setSink_tokens(sinkTokens);
        to.setRecent_tokens(recentTokens);
        to.setMax_lookahead(maxLookahead);
        to.setMax_block_pages(maxBlockPages);
        to.setNum_buffers(Bytes.unsigned(numBuffers));
        to.setMax_tables(Bytes.unsigned(maxTables));
        to.setMax_slices(maxSlices);
        to.setMax_bytes_in_flight(maxBytesInFlight);
        to.setLoad_timeout_ns(loadTimeoutNs);
        try {
            if (stagingPages != null) {
                to.set_staging_pages(stagingPages, stagingPages.length);
            }
            for (int[] layer : layers) {
                to.add_layer(Bytes.unsigned(layer[0]), Bytes.unsigned(layer[1]));
            }
            to.setSlices_address(address(slices, Bytes.unsigned(numBuffers), maxSlices));
            to.setSlice_indptr_address(address(sliceIndptr, Bytes.unsigned(numBuffers), maxTables == 0 ? 0 : Bytes.unsigned(maxTables) + 1));
            return to;
        } catch (RuntimeException e) {
            to.close();
            throw e;
        }
    }
}
