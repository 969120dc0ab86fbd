/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

/** How a file tier reads and writes. */
public enum IoEngine {
    /** io_uring where the system permits it, else threads */
    AUTO(0),
    /** io_uring */
    URING(1),
    /** threads */
    THREADS(2);

    final int code;

    IoEngine(int code) {
        this.code = code;
    }
}
