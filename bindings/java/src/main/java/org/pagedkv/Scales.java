/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

/** Factors that turn stored fp8 or int8 elements back. */
public enum Scales {
    /** none */
    NONE(0),
    /** one for K and one for V of each layer */
    TENSOR(1),
    /** one for each head of each layer */
    HEAD(2),
    /** one for each row, found while writing */
    TOKEN_HEAD(3);

    final int code;

    Scales(int code) {
        this.code = code;
    }
}
