/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import static org.pagedkv.Operations.add;
import static org.pagedkv.Operations.addEach;
import static org.pagedkv.Operations.first;
import static org.pagedkv.Operations.made;

import java.nio.ByteBuffer;
import java.util.List;
import org.pagedkv.internal.Core;

/* Conformance: tables and batches. */
final class TableOperations {
    private TableOperations() {}

    private static Table table(Case c, Line l) {
        return c.get(l, Table.class, "table");
    }

    private static int group(Line l) {
        return l.small("group", 0);
    }

    private static Pattern rows(Case c, Line l, long position, long count, boolean fill) {
        return new Pattern(l, c.get(l, Pool.class, "pool"), group(l), l.small("layer", 0), position, count, fill);
    }

    /* Writes all layers of every group, then commits. */
    private static void fill(Case c, Line l) {
        Pool pool = c.get(l, Pool.class, "pool");
        long from = l.number("from", 0);
        long end = l.number("num_tokens", 0);
        for (int group = 0; there(pool, group, 0); ++group) {
            for (int layer = 0; there(pool, group, layer); ++layer) {
                Pattern rows = new Pattern(l, pool, group, layer, from, end - from, true);
                table(c, l).write(group, layer, from, end - from, rows.k(), rows.v());
            }
        }
        table(c, l).commit(end);
    }

    private static boolean there(Pool pool, int group, int layer) {
        try {
            pool.layout(group, layer);
            return true;
        } catch (PagedKvException e) {
            return false;
        }
    }

    private static void export(Case c, Line l) {
        long[] size = {table(c, l).exportSize()};
        ByteBuffer buffer = ByteBuffer.allocateDirect((int) size[0] + 1);
        try {
            Core.table_export(table(c, l).handle(), Bytes.address(buffer), l.number("capacity", size[0]), size);
            if (l.has("damage")) {
                int at = l.small("damage", 0);
                buffer.put(at, (byte) (buffer.get(at) ^ 1));
            }
            if (l.has("into")) {
                c.get(l, Table.class, "into").importFrom(buffer.limit((int) size[0]));
            }
        } finally {
            l.out("size", size[0]);
            l.has("damage");
            l.has("into");
        }
    }

    private static void takeCopies(Case c, Line l) {
        long[] count = new long[1];
        int capacity = l.small("capacity", 8);
        byte[] bytes = new byte[8 * Packed.PAGE_COPY];
        try {
            Core.table_take_copies(table(c, l).handle(), bytes, capacity, count);
        } finally {
            l.out("count", count[0]);
        }
        if (capacity != 0) {
            List<Table.PageCopy> copies = Packed.copies(bytes, (int) count[0]);
            l.out("src", copies.stream().mapToInt(Table.PageCopy::src).toArray());
            l.out("dst", copies.stream().mapToInt(Table.PageCopy::dst).toArray());
        }
    }

    private static void pages(Case c, Line l) {
        long[] count = new long[1];
        int capacity = l.small("capacity", 256);
        int[] pages = new int[256];
        try {
            Core.table_pages(table(c, l).handle(), group(l), pages, capacity, count);
        } finally {
            l.out("num_blocks", count[0]);
        }
        if (capacity != 0) {
            l.out("pages", Packed.cut(pages, count[0]));
        }
    }

    private static void info(Case c, Line l) {
        TableInfo info = table(c, l).info();
        l.out("named", info.named());
        l.out("reserved", info.reserved());
        l.out("committed", info.committed());
        l.out("published", info.published());
        l.out("matched", info.matched());
        l.out("blocks", info.blocks());
        l.out("committed_blocks", info.committedBlocks());
        l.out("valid", info.valid());
        l.out("absent_blocks", info.absentBlocks());
    }

    static void addAll() {
        add("table.create", (c, l) -> {
            Pool pool = c.get(l, Pool.class, "pool");
            c.make(l, "table", made(Table.none(pool), pool::table));
        });
        add("table.destroy", (c, l) -> {
            Sync sync = c.sync(l);
            if (sync != null) {
                table(c, l).close(sync);
            } else {
                Case.destroy(table(c, l));
            }
        });
        add("table.clear", (c, l) -> table(c, l).clear(c.sync(l)));
        add("table.admit", (c, l) -> Operations.outMatch(l, table(c, l).admit(Operations.prompt(l),
                new AdmitOptions().maxMatch(l.number("max_match", 0)).reserveTokens(l.number("reserve_tokens", 0))
                        .watermark(l.number("watermark", 0)).flags(l.small("flags", 0)))));
        add("table.reserve", (c, l) -> table(c, l).reserve(l.number("num_tokens", 0)));
        add("table.set_tokens", (c, l) -> table(c, l).setTokens(l.number("position", 0), l.ints("tokens")));
        add("table.write", (c, l) -> {
            long position = l.number("position", 0);
            long count = l.number("num_tokens", 0);
            Pattern rows = rows(c, l, position, count, true);
            table(c, l).write(group(l), l.small("layer", 0), position, count, rows.k(), rows.v(), c.sync(l));
        });
        add("table.gather", (c, l) -> {
            long count = l.number("num_tokens", 0);
            Pattern rows = rows(c, l, 0, count, false);
            table(c, l).gather(group(l), l.small("layer", 0), l.number("position", 0), count, rows.k(), rows.v(), c.sync(l));
            rows.out(l);
        });
        add("table.commit", (c, l) -> table(c, l).commit(l.number("num_tokens", 0), c.sync(l)));
        add("table.fill", TableOperations::fill);
        add("table.fork", (c, l) -> {
            Table table = table(c, l);
            c.make(l, "fork", made(Table.none(table.pool()), () -> table.fork(c.sync(l))));
        });
        add("table.truncate", (c, l) -> table(c, l).truncate(l.number("num_tokens", 0), c.sync(l)));
        add("table.accept", (c, l) -> table(c, l).accept(l.longs("positions"), c.sync(l)));
        add("table.window", (c, l) -> table(c, l).window(c.sync(l)));
        add("table.set_retention", (c, l) -> table(c, l).setRetention(l.number("first_token", 0), l.number("num_tokens", -1),
                Operations.retention(l)));
        add("table.take_copies", TableOperations::takeCopies);
        add("table.export", TableOperations::export);
        add("table.pages", TableOperations::pages);
        add("table.slots", (c, l) -> l.out("slots", table(c, l).slots(group(l), l.number("position", 0), l.number("num_tokens", 0))));
        add("table.residency", (c, l) -> l.out("where",
                table(c, l).residency(group(l), l.number("first_block", 0), l.number("num_blocks", 0))));
        add("table.spill", (c, l) -> {
            SpillResult result = new SpillResult(0, 0);
            try {
                result = table(c, l).spill(l.number("first_block", 0), l.number("num_blocks", -1), c.sync(l));
            } finally {
                l.out("spilled", result.spilledBlocks());
                l.out("shared", result.sharedPages());
            }
        });
        add("table.restore", (c, l) -> l.out("restored", table(c, l).restore(l.number("first_block", 0), l.number("num_blocks", -1),
                l.number("timeout", -1))));
        add("table.info", TableOperations::info);

        add("batch.create", (c, l) -> {
            Pool pool = c.get(l, Pool.class, "pool");
            BatchOptions options = new BatchOptions().maxTables(l.small("max_tables", 1)).maxTokens(l.number("max_tokens", 0))
                    .arrays(new BatchArrays(group(l)).fill(l.small("fill", 0)).maxBlocks(l.number("max_blocks", 0)));
            c.make(l, "batch", made(Batch.none(pool, options), () -> new Batch(pool, options)));
        });
        add("batch.destroy", (c, l) -> Case.destroy(c.get(l, Batch.class, "batch")));
        add("batch.arrays", (c, l) -> {
            Batch batch = c.get(l, Batch.class, "batch");
            l.out("block_table", ints(batch.arrays(0).blockTable()));
            ByteBuffer slots = batch.arrays(0).slotMapping();
            long[] mapping = new long[slots.capacity() / 8];
            slots.duplicate().order(slots.order()).asLongBuffer().get(mapping);
            l.out("slot_mapping", mapping);
            l.out("lengths", ints(batch.lengths()));
            l.out("last_page_len", ints(batch.lastPageLen()));
        });
        addEach("batch.reserve", (c, l) -> {
            Table[] tables = c.tables(l);
            int[] numNew = l.ints("num_new");
            Status[] statuses = new Status[tables.length];
            java.util.Arrays.fill(statuses, Status.OK);
            try {
                return first(statuses = c.get(l, Batch.class, "batch").reserve(tables, numNew));
            } finally {
                l.out("statuses", statuses);
            }
        });
        addEach("batch.set_tokens", (c, l) -> {
            Status[] statuses = c.get(l, Batch.class, "batch").setTokens(l.ints("tokens"));
            l.out("statuses", statuses);
            return first(statuses);
        });
        add("batch.write", (c, l) -> {
            Pattern rows = rows(c, l, 0, l.number("num_tokens", 0), true);
            c.get(l, Batch.class, "batch").write(group(l), l.small("layer", 0), rows.k(), rows.v(), c.sync(l));
        });
        add("batch.gather", (c, l) -> {
            Pattern rows = rows(c, l, 0, l.number("num_tokens", 0), false);
            long[] from = l.longs("first");
            c.get(l, Batch.class, "batch").gather(group(l), l.small("layer", 0), from.length != 0 ? from : null,
                    l.number("padded", 0), rows.k(), rows.v(), c.sync(l));
            rows.out(l);
        });
        addEach("batch.commit", (c, l) -> {
            int[] accepted = l.ints("num_accepted");
            Status[] statuses = c.get(l, Batch.class, "batch").commit(accepted.length != 0 ? accepted : null, c.sync(l));
            l.out("statuses", statuses);
            return first(statuses);
        });
    }

    private static int[] ints(ByteBuffer buffer) {
        int[] ints = new int[buffer.capacity() / 4];
        buffer.duplicate().order(buffer.order()).asIntBuffer().get(ints);
        return ints;
    }
}
