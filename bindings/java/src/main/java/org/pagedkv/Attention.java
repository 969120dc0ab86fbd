/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

/** What the layers of a group attend to. */
public enum Attention {
    /** every token */
    FULL(0),
    /** the last tokens, and the first ones */
    WINDOW(1);

    final int code;

    Attention(int code) {
        this.code = code;
    }
}
