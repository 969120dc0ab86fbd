/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

/** Order inside one layer of one page. */
public enum Layout {
    /** [tokens, heads, elements] */
    NHD(0),
    /** [heads, tokens, elements] */
    HND(1);

    final int code;

    Layout(int code) {
        this.code = code;
    }
}
