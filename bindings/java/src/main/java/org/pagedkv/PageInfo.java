/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.page_info;

/** State of one page (0 free, 1 held, 2 cached): pkv_page_info (pool.h). */
public record PageInfo(
        long count, int state, boolean published, long block, int priority, boolean pinned) {

    static PageInfo of(page_info s) {
        return new PageInfo(
                s.getCount(), s.getState(), s.getPublished() != 0, s.getBlock(), (int) s.getPriority(),
                s.getPinned() != 0);
    }
}
