/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

/** Order of the layers of a pool. */
public enum Arrangement {
    /** a page is contiguous over its layers */
    PAGE_MAJOR(0),
    /** one tensor a layer */
    LAYER_MAJOR(1);

    final int code;

    Arrangement(int code) {
        this.code = code;
    }
}
