/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.util.List;
import org.pagedkv.internal.Core;
import org.pagedkv.internal.admit_options;
import org.pagedkv.internal.match;
import org.pagedkv.internal.prompt;
import org.pagedkv.internal.retention;
import org.pagedkv.internal.spill_result;
import org.pagedkv.internal.sync;
import org.pagedkv.internal.table_info;

/** One sequence, from its prompt to its last token: table.h. One thread at a time; different tables at the same time. */
public final class Table extends ExclusiveObject {
    private final Pool pool; // keeps its memory, where it is the caller's

    Table(Pool pool) {
        this(pool, create(pool));
    }

    Table(Pool pool, long handle) {
        super(handle, table -> Core.table_destroy(table, null), null);
        this.pool = pool;
    }

    /* One that could not be made: for tests. */
    static Table none(Pool pool) {
        return new Table(pool, 0);
    }

    private static long create(Pool pool) {
        long[] handle = new long[1];
        Core.table_create(pool.handle(), handle);
        Reference.reachabilityFence(pool);
        return handle[0];
    }

    /** The pool it is of. */
    public Pool pool() {
        return pool;
    }

    /** Closes the table after work that may still use its pages. */
    public void close(Sync sync) {
        try (sync after = Sync.open(sync)) {
            close(table -> Core.table_destroy(table, after));
        } finally {
            Sync.hold(sync);
        }
    }

    /** Begins a sequence: matches the longest cached prefix of the prompt and makes room for what follows. */
    public Match admit(Prompt prompt) {
        return admit(prompt, null);
    }

    /** The same, with options. */
    public Match admit(Prompt prompt, AdmitOptions options) {
        enter();
        try (prompt of = prompt.open(); admit_options with = AdmitOptions.open(options); match match = new match()) {
            Core.table_admit(handle(), of, with, match);
            return Match.of(match);
        } finally {
            leave();
        }
    }

    /** Makes room for the first so many tokens of the sequence in all. */
    public void reserve(long numTokens) {
        enter();
        try {
            Core.table_reserve(handle(), numTokens);
        } finally {
            leave();
        }
    }

    /** Names tokens. */
    public void setTokens(long position, int... tokens) {
        enter();
        try {
            Core.table_set_tokens(handle(), position, tokens.length, tokens);
        } finally {
            leave();
        }
    }

    /** Puts rows of a layer in: row i belongs to position + i. v is null without V. */
    public void write(int group, int layer, long position, long numTokens, Rows k, Rows v) {
        write(group, layer, position, numTokens, k, v, null);
    }

    /** The same, after work elsewhere. */
    public void write(int group, int layer, long position, long numTokens, Rows k, Rows v, Sync sync) {
        Geometry.Group shape = pool.geometry().group(group);
        enter();
        try (sync after = Sync.open(sync)) {
            Core.table_write(handle(), Bytes.unsigned(group), Bytes.unsigned(layer), position, numTokens,
                    Rows.check(k, shape, true, false), Rows.check(v, shape, false, false), after);
        } finally {
            Rows.hold(k, v);
            Sync.hold(sync);
            leave();
        }
    }

    /** Takes rows of a layer out: row i is token position + i. k or v may be null. */
    public void gather(int group, int layer, long position, long numTokens, Rows k, Rows v) {
        gather(group, layer, position, numTokens, k, v, null);
    }

    /** The same, after work elsewhere. */
    public void gather(int group, int layer, long position, long numTokens, Rows k, Rows v, Sync sync) {
        Geometry.Group shape = pool.geometry().group(group);
        enter();
        try (sync after = Sync.open(sync)) {
            Core.table_gather(handle(), Bytes.unsigned(group), Bytes.unsigned(layer), position, numTokens,
                    Rows.check(k, shape, true, true), Rows.check(v, shape, false, true), after);
        } finally {
            Rows.hold(k, v);
            Sync.hold(sync);
            leave();
        }
    }

    /** Says that the KV of the first so many tokens is complete in all layers, and publishes blocks. */
    public void commit(long numTokens) {
        commit(numTokens, null);
    }

    /** The same, after work elsewhere. */
    public void commit(long numTokens, Sync sync) {
        enter();
        try (sync after = Sync.open(sync)) {
            Core.table_commit(handle(), numTokens, after);
        } finally {
            Sync.hold(sync);
            leave();
        }
    }

    /** Releases all pages and forgets the sequence. */
    public void clear() {
        clear(null);
    }

    /** The same, after work elsewhere. */
    public void clear(Sync sync) {
        enter();
        try (sync after = Sync.open(sync)) {
            Core.table_clear(handle(), after);
        } finally {
            Sync.hold(sync);
            leave();
        }
    }

    /** Makes a second table with the same committed tokens, sharing their pages. */
    public Table fork() {
        return fork(null);
    }

    /** The same, after work elsewhere. */
    public Table fork(Sync sync) {
        enter();
        try (sync after = Sync.open(sync)) {
            long[] fork = new long[1];
            Core.table_fork(handle(), after, fork);
            return new Table(pool, fork[0]);
        } finally {
            Sync.hold(sync);
            leave();
        }
    }

    /** Cuts the sequence. */
    public void truncate(long numTokens) {
        truncate(numTokens, null);
    }

    /** The same, after work elsewhere. */
    public void truncate(long numTokens, Sync sync) {
        enter();
        try (sync after = Sync.open(sync)) {
            Core.table_truncate(handle(), numTokens, after);
        } finally {
            Sync.hold(sync);
            leave();
        }
    }

    /** Keeps the accepted ones of tree-drafted tokens: strictly ascending positions after the committed ones. */
    public void accept(long[] positions) {
        accept(positions, null);
    }

    /** The same, after work elsewhere. */
    public void accept(long[] positions, Sync sync) {
        enter();
        try (sync after = Sync.open(sync)) {
            Core.table_accept(handle(), positions.length, positions, after);
        } finally {
            Sync.hold(sync);
            leave();
        }
    }

    /** Drops, in window groups, the blocks that no later token attends to. */
    public void window() {
        window(null);
    }

    /** The same, after work elsewhere. */
    public void window(Sync sync) {
        enter();
        try (sync after = Sync.open(sync)) {
            Core.table_window(handle(), after);
        } finally {
            Sync.hold(sync);
            leave();
        }
    }

    /** Sets the retention of blocks that hold tokens of a range; {@link PagedKv#ALL} = to the end, whatever it will be. */
    public void setRetention(long firstToken, long numTokens, Retention retention) {
        enter();
        try (retention to = Retention.open(retention)) {
            Core.table_set_retention(handle(), firstToken, numTokens, to);
        } finally {
            leave();
        }
    }

    /** All rows of page {@code src} are to be copied to page {@code dst}. */
    public record PageCopy(int group, int src, int dst) {}

    /** In a pool without memory: the copies on write that have to be made before the next write. */
    public List<PageCopy> takeCopies() {
        enter();
        try {
            byte[] copies = new byte[MAX_COPIES * Packed.PAGE_COPY];
            long[] count = new long[1];
            Core.table_take_copies(handle(), copies, MAX_COPIES, count);
            return Packed.copies(copies, (int) count[0]);
        } finally {
            leave();
        }
    }

    private static final int MAX_COPIES = 8; // one for each group at most

    /** Bytes that {@link #exportTo} needs. */
    public long exportSize() {
        enter();
        try {
            return export(0, 0);
        } finally {
            leave();
        }
    }

    /** Writes the committed part of the sequence at the buffer's position, which moves behind it. */
    public void exportTo(ByteBuffer buffer) {
        if (buffer.isReadOnly()) {
            throw new java.nio.ReadOnlyBufferException();
        }
        enter();
        try {
            long size = export(Bytes.address(buffer), buffer.remaining());
            buffer.position(buffer.position() + (int) size);
        } finally {
            Reference.reachabilityFence(buffer);
            leave();
        }
    }

    /** The committed part of the sequence, in a new direct buffer. */
    public ByteBuffer export() {
        ByteBuffer buffer = Bytes.direct(exportSize());
        exportTo(buffer);
        return buffer.flip();
    }

    private long export(long address, long capacity) {
        long[] size = new long[1];
        Core.table_export(handle(), address, capacity, size);
        return size[0];
    }

    /** Begins a sequence from what an export wrote: the direct buffer's bytes from position to limit. */
    public void importFrom(ByteBuffer buffer) {
        enter();
        try {
            Core.table_import(handle(), Bytes.address(buffer), buffer.remaining());
        } finally {
            Reference.reachabilityFence(buffer);
            leave();
        }
    }

    /** The block table of a group. */
    public int[] pages(int group) {
        enter();
        try {
            long[] count = new long[1];
            Core.table_pages(handle(), Bytes.unsigned(group), null, 0, count);
            int[] pages = new int[Math.toIntExact(count[0])];
            if (pages.length != 0) {
                Core.table_pages(handle(), Bytes.unsigned(group), pages, pages.length, count);
            }
            return pages;
        } finally {
            leave();
        }
    }

    /** The slots of a range of tokens. */
    public long[] slots(int group, long position, long numTokens) {
        enter();
        try {
            long[] slots = Bytes.longs(numTokens);
            Core.table_slots(handle(), Bytes.unsigned(group), position, numTokens, slots);
            return slots;
        } finally {
            leave();
        }
    }

    /** Where blocks are: -1 dropped by a window, 0 in a page, 1 + i in tier i. */
    public int[] residency(int group, long firstBlock, long numBlocks) {
        enter();
        try {
            int[] where = Bytes.ints(numBlocks);
            Core.table_residency(handle(), Bytes.unsigned(group), firstBlock, numBlocks, where);
            return where;
        } finally {
            leave();
        }
    }

    /** Moves committed blocks down into tiers and frees their pages. */
    public SpillResult spill(long firstBlock, long numBlocks) {
        return spill(firstBlock, numBlocks, null);
    }

    /** The same, after work elsewhere. */
    public SpillResult spill(long firstBlock, long numBlocks, Sync sync) {
        enter();
        try (sync after = Sync.open(sync); spill_result result = new spill_result()) {
            Core.table_spill(handle(), firstBlock, numBlocks, after, result);
            return SpillResult.of(result);
        } finally {
            Sync.hold(sync);
            leave();
        }
    }

    /** Brings absent blocks back into pages, and says how many. */
    public long restore(long firstBlock, long numBlocks, long timeoutNanos) {
        enter();
        try {
            long[] restored = new long[1];
            Core.table_restore(handle(), firstBlock, numBlocks, timeoutNanos, restored);
            return restored[0];
        } finally {
            leave();
        }
    }

    /** The table's numbers. */
    public TableInfo info() {
        enter();
        try (table_info info = new table_info()) {
            Core.table_get_info(handle(), info);
            return TableInfo.of(info);
        } finally {
            leave();
        }
    }
}
