/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;

/* Rows of the conformance cases, filled by their pattern. */
final class Pattern {
    static final List<String> DTYPES = List.of("f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8", "opaque");

    private final ByteBuffer[] data = new ByteBuffer[2];
    private final Rows[] rows = new Rows[2];

    Pattern(Line line, Pool pool, int group, int layer, long position, long count, boolean fill) {
        LayerLayout layout = null;
        try {
            layout = pool.layout(group, 0);
        } catch (PagedKvException e) {
            // A handle or a group that is no good is for the call to refuse.
        }
        int stored = layout != null ? layout.dtype().code : DType.F32.code;
        int dtype = line.name("dtype", DTYPES, 1, stored);
        long tag = line.number("fill", 0);
        String sides = line.text("sides", "kv");
        int storedBytes = Math.max(DType.bytes(stored), 1);
        int wantedBytes = Math.max(DType.bytes(dtype), 1);
        boolean values = dtype == DType.F32.code && (stored != DType.F32.code || line.has("values"));
        if (dtype != stored && dtype != DType.F32.code) {
            throw new Line.Wrong("rows are of the group's type or of f32");
        }
        int heads = layout != null ? layout.numKvHeads() : 0;
        for (int side = 0; side < 2; ++side) {
            long row = layout == null ? 0 : (side == 0 ? layout.kRowBytes() : layout.vRowBytes());
            int bytes = (int) (row / storedBytes * wantedBytes);
            boolean given = sides.indexOf(side == 0 ? 'k' : 'v') >= 0
                    && (side == 0 || bytes != 0 || layout == null || layout.kRowBytes() == 0);
            data[side] = ByteBuffer.allocateDirect((int) (count * heads * bytes) + 1).order(ByteOrder.nativeOrder());
            if (given) {
                rows[side] = Rows.of(data[side], dtype, count, 0, 0);
            }
            for (long t = 0; fill && t < count; ++t) {
                for (int h = 0; h < heads; ++h) {
                    int at = (int) (t * heads + h) * bytes;
                    for (int i = 0; i < (values ? bytes / 4 : bytes); ++i) {
                        if (values) {
                            data[side].putFloat(at + 4 * i, value(tag, side, layer, position + t, h, i));
                        } else {
                            data[side].put(at + i, pattern(tag, side, layer, position + t, h, i));
                        }
                    }
                }
            }
        }
    }

    private static byte pattern(long tag, long side, long layer, long token, long head, long i) {
        return (byte) (tag * 7 + side * 101 + layer * 53 + token * 29 + (token >>> 8) * 11 + head * 17 + i * 3);
    }

    private static float value(long tag, long side, long layer, long token, long head, long i) {
        return (tag + side * 5 + layer * 3 + token * 7 + head * 2 + i) % 17 - 8;
    }

    Rows k() {
        return rows[0];
    }

    Rows v() {
        return rows[1];
    }

    void out(Line line) {
        for (int side = 0; side < 2; ++side) {
            if (rows[side] != null) {
                byte[] bytes = new byte[data[side].capacity() - 1];
                data[side].get(0, bytes);
                line.out(side == 0 ? "k" : "v", Line.digest(bytes, bytes.length));
            }
        }
    }
}
