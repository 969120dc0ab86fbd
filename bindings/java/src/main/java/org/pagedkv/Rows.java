/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;

/**
 * Rows of K or V in memory outside the heap, to be written or gathered: element (token, head, i) lies at
 * {@code token * tokenStride + head * headStride + i * size of an element}. One object may serve any number of calls.
 *
 * <p>Each call measures the memory against the rows that it is said to have, and throws
 * {@link IndexOutOfBoundsException} where it is too small.
 */
public final class Rows {
    private final ByteBuffer buffer;
    private final long bytes;
    private final long[] fields; // address, dtype, tokens, token stride, head stride: as Core takes them

    private Rows(ByteBuffer buffer, long address, long bytes, int dtype, long numTokens, long tokenStride, long headStride) {
        if (numTokens < 0 || tokenStride < 0 || headStride < 0 || bytes < 0) {
            throw new IllegalArgumentException("tokens, strides and sizes are not below 0, nor above 2^63 - 1: " + numTokens
                    + ", " + tokenStride + ", " + headStride + ", " + bytes);
        }
        this.buffer = buffer;
        this.bytes = bytes;
        this.fields = new long[] {address, dtype, numTokens, tokenStride, headStride};
    }

    /**
     * Contiguous rows, [tokens, heads, row], from the buffer's position to its limit.
     *
     * @param buffer direct
     */
    public static Rows of(ByteBuffer buffer, DType dtype, long numTokens) {
        return of(buffer, dtype, numTokens, 0, 0);
    }

    /**
     * Rows with distances in bytes.
     *
     * @param tokenStride 0 = heads * row bytes
     * @param headStride 0 = row bytes
     */
    public static Rows of(ByteBuffer buffer, DType dtype, long numTokens, long tokenStride, long headStride) {
        return of(buffer, dtype.code, numTokens, tokenStride, headStride);
    }

    static Rows of(ByteBuffer buffer, int dtype, long numTokens, long tokenStride, long headStride) {
        return new Rows(buffer, Bytes.address(buffer), buffer.remaining(), dtype, numTokens, tokenStride, headStride);
    }

    /**
     * Rows in memory that no buffer describes: larger than 2 GiB, or another library's. The caller answers for it: {@code bytes} at
     * {@code address} have to be there as long as calls use them.
     */
    public static Rows at(long address, long bytes, DType dtype, long numTokens, long tokenStride, long headStride) {
        return new Rows(null, address, bytes, dtype.code, numTokens, tokenStride, headStride);
    }

    /* null for null */
    static long[] check(Rows rows, Geometry.Group group, boolean isK, boolean written) {
        if (rows == null) {
            return null;
        }
        if (written && rows.buffer != null && rows.buffer.isReadOnly()) {
            throw new java.nio.ReadOnlyBufferException();
        }
        if (group != null) {
            rows.measure(group.heads(), rowBytes(group, isK, (int) rows.fields[1]));
        }
        return rows.fields;
    }

    private static long rowBytes(Geometry.Group group, boolean isK, int dtype) {
        long stored = isK ? group.kRowBytes() : group.vRowBytes();
        int from = DType.bytes(group.dtype());
        int to = DType.bytes(dtype);
        return from == 0 || to == 0 ? stored : stored / from * to;
    }

    private void measure(long heads, long row) {
        long tokens = fields[2];
        if (tokens == 0 || row == 0) {
            return;
        }
        long head = fields[4] != 0 ? fields[4] : row;
        long token = fields[3] != 0 ? fields[3] : heads * row;
        long needed;
        try {
            needed = Math.addExact(Math.addExact(Math.multiplyExact(tokens - 1, token), Math.multiplyExact(heads - 1, head)), row);
        } catch (ArithmeticException e) {
            needed = Long.MAX_VALUE;
        }
        if (needed > bytes) {
            throw new IndexOutOfBoundsException("rows of " + tokens + " tokens and " + heads + " heads take " + needed + " bytes, "
                    + bytes + " are there");
        }
    }

    /* After the call. */
    static void hold(Rows k, Rows v) {
        Reference.reachabilityFence(k);
        Reference.reachabilityFence(v);
    }
}
