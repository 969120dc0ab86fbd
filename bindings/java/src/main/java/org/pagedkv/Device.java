/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.Core;

/**
 * Where the pages of a pool lie: device.h. Rows of a pool on a GPU are there, too: {@link Rows#at}.
 *
 * @param kind 0 = memory of the host, 1 = memory of a GPU, by CUDA
 * @param index of a GPU, as CUDA numbers them
 */
public record Device(int kind, int index) {
    /** Memory of the host. */
    public static final Device HOST = new Device(0, 0);

    /** Memory of a GPU. */
    public static Device cuda(int index) {
        return new Device(1, index);
    }

    /**
     * Whether pools can be made there. Does not begin to use the device.
     *
     * @throws PagedKvException {@link Status#UNSUPPORTED}, with the reason: no plug-in, no driver, no such device ...
     */
    public void require() {
        Core.device_available(kind, index);
    }
}
