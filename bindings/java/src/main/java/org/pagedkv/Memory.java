/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

/** Whose memory the pages are in. */
public enum Memory {
    /** the pool's */
    POOL(0),
    /** the caller's: {@link GroupOptions#base} */
    CALLER(1),
    /** nobody's here: ids only */
    NONE(2);

    final int code;

    Memory(int code) {
        this.code = code;
    }
}
