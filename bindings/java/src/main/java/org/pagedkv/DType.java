/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

/** Types of elements; conversions between them: tensor.h. */
public enum DType {
    /** 32-bit floats */
    F32(1),
    /** 16-bit floats */
    F16(2),
    /** bfloat16 */
    BF16(3),
    /** OCP E4M3 */
    F8_E4M3(4),
    /** OCP E5M2 */
    F8_E5M2(5),
    /** 8-bit integers */
    I8(6),
    /** rows of a given number of bytes */
    OPAQUE(7);

    final int code;

    DType(int code) {
        this.code = code;
    }

    /** Bytes of one element; 0 for {@link #OPAQUE}. */
    public int bytes() {
        return bytes(code);
    }

    static int bytes(int code) {
        return switch (code) {
            case 1 -> 4;
            case 2, 3 -> 2;
            case 4, 5, 6 -> 1;
            default -> 0;
        };
    }

    static DType of(int code) {
        return code >= 1 && code <= values().length ? values()[code - 1] : OPAQUE;
    }
}
