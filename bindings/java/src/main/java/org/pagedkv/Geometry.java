/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.Core;
import org.pagedkv.internal.layer_layout;

/* What rows of each layer group look like: to measure buffers by. */
final class Geometry {
    record Group(long heads, long kRowBytes, long vRowBytes, int dtype) {}

    private final Group[] groups;

    Geometry(long pool, int numGroups) {
        groups = new Group[numGroups];
        try (layer_layout layout = new layer_layout()) {
            for (int g = 0; g < numGroups; ++g) {
                Core.pool_layout(pool, g, 0, layout);
                groups[g] = new Group(layout.getNum_kv_heads(), layout.getK_row_bytes(), layout.getV_row_bytes(),
                        layout.getDtype());
            }
        }
    }

    int numGroups() {
        return groups.length;
    }

    /* null: the library refuses the group. */
    Group group(int group) {
        return group >= 0 && group < groups.length ? groups[group] : null;
    }
}
