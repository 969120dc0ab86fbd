/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.pagedkv.internal.Core;

/* Memory and texts on their way to the library. */
final class Bytes {
    static final int MAX_ARRAY = Integer.MAX_VALUE - 8;

    private Bytes() {}

    /* Of the byte at the position. */
    static long address(ByteBuffer buffer) {
        if (!buffer.isDirect()) {
            throw new IllegalArgumentException("a direct buffer is needed: ByteBuffer.allocateDirect");
        }
        // An empty buffer may have no address; the library takes none as well.
        return buffer.capacity() == 0 ? 0 : Core.memory_address(buffer) + buffer.position();
    }

    static ByteBuffer direct(long bytes) {
        if (bytes < 0 || bytes > MAX_ARRAY) {
            throw PagedKvException.of(Status.LIMIT,
                    Long.toUnsignedString(bytes) + " bytes are more than a ByteBuffer has");
        }
        return ByteBuffer.allocateDirect((int) bytes).order(ByteOrder.nativeOrder());
    }

    static ByteBuffer view(byte[] bytes) {
        return ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder());
    }

    /* Terminated, as C has it; null stays null. */
    static byte[] text(String text) {
        if (text == null) {
            return null;
        }
        if (text.indexOf('\0') >= 0) {
            throw new IllegalArgumentException("a text with a NUL in it");
        }
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        return Arrays.copyOf(bytes, bytes.length + 1);
    }

    static String text(ByteBuffer from, int at, int capacity) {
        int length = 0;
        while (length < capacity && from.get(at + length) != 0) {
            ++length;
        }
        byte[] bytes = new byte[length];
        from.get(at, bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    interface TextCall {
        void call(byte[] buffer, long capacity, long[] size);
    }

    /* Asks for the size, then for the text, again if it has grown meanwhile. */
    static String text(TextCall call) {
        long[] size = new long[1];
        call.call(null, 0, size);
        while (true) {
            byte[] buffer = new byte[Math.toIntExact(size[0])];
            try {
                call.call(buffer, buffer.length, size);
                return text(ByteBuffer.wrap(buffer), 0, buffer.length);
            } catch (PagedKvException e) {
                if (e.status() != Status.NO_SPACE || size[0] <= buffer.length) {
                    throw e;
                }
            }
        }
    }

    /* An array for a number of elements that the library has not checked yet: null, which it refuses, for impossible ones. */
    static boolean fits(long count) {
        return count >= 0 && count <= MAX_ARRAY;
    }

    static int[] ints(long count) {
        return fits(count) ? new int[(int) count] : null;
    }

    static long[] longs(long count) {
        return fits(count) ? new long[(int) count] : null;
    }

    static long unsigned(int number) {
        return Integer.toUnsignedLong(number);
    }
}
