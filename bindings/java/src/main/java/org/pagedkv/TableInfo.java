/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.table_info;

/** Numbers of a table, in tokens and blocks: pkv_table_info (table.h). */
public record TableInfo(
        long named, long reserved, long committed, long published, long matched, long blocks, long committedBlocks,
        long valid, long absentBlocks) {

    static TableInfo of(table_info s) {
        return new TableInfo(
                s.getNamed(), s.getReserved(), s.getCommitted(), s.getPublished(), s.getMatched(), s.getBlocks(),
                s.getCommitted_blocks(), s.getValid(), s.getAbsent_blocks());
    }
}
