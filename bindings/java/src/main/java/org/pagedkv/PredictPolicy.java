/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

/** Which blocks are predicted to be needed next. */
public enum PredictPolicy {
    /** those from the position on */
    SEQUENTIAL(0),
    /** all */
    FULL(1),
    /** those with the highest scores */
    HINTED(2);

    final int code;

    PredictPolicy(int code) {
        this.code = code;
    }
}
