/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import org.pagedkv.internal.Core;
import org.pagedkv.internal.batch_options;
import org.pagedkv.internal.sync;

/**
 * The tables of one decode step together, and the arrays that attention kernels read: batch.h. One thread at a time for a batch
 * and the tables in it.
 *
 * <p>The arrays are direct buffers in native byte order, the batch's own ones or the caller's, at one address as long as the
 * batch lives.
 */
public final class Batch extends ExclusiveObject {
    private static final Table[] NO_TABLES = {};

    private final Pool pool;
    private final BatchOptions options;
    private Table[] step = NO_TABLES;

    /** Makes a batch over a pool. */
    public Batch(Pool pool, BatchOptions options) {
        this(pool, options, create(pool, options));
    }

    private Batch(Pool pool, BatchOptions options, long handle) {
        super(handle, Core::batch_destroy, options);
        this.pool = pool;
        this.options = options;
    }

    /* One that could not be made: for tests. */
    static Batch none(Pool pool, BatchOptions options) {
        return new Batch(pool, options, 0);
    }

    private static long create(Pool pool, BatchOptions options) {
        long[] handle = new long[1];
        try (batch_options to = options.open()) {
            Core.batch_create(pool.handle(), to, handle);
        } finally {
            Reference.reachabilityFence(options);
            Reference.reachabilityFence(pool);
        }
        return handle[0];
    }

    /** int32 [maxTables]: tokens of each sequence with this step's. */
    public ByteBuffer lengths() {
        return options.lengths();
    }

    /** int32 [maxTables]: tokens in each last block. */
    public ByteBuffer lastPageLen() {
        return options.lastPageLen();
    }

    /** The arrays of a group. */
    public BatchArrays arrays(int group) {
        return options.arrays(group);
    }

    private void enterStep(Table[] tables) {
        enter();
        try {
            enter(tables);
        } catch (RuntimeException e) {
            leave();
            throw e;
        }
    }

    private void leaveStep(Table[] tables) {
        leave(tables);
        leave();
    }

    /**
     * Begins a step: room for numNew[i] tokens in tables[i].
     *
     * @return why each table has no part in the step, or OK
     * @throws PagedKvException what concerns the whole batch: nothing is changed
     */
    public Status[] reserve(Table[] tables, int[] numNew) {
        if (tables.length != numNew.length) {
            throw new IllegalArgumentException(tables.length + " tables, " + numNew.length + " numbers");
        }
        Table[] next = tables.clone();
        int[] statuses = new int[next.length];
        enterStep(next);
        try {
            Core.batch_reserve(handle(), next.length, handles(next), numNew, statuses);
            step = next;
        } catch (PagedKvException e) {
            Statuses.rethrowIfGood(statuses, e);
            step = next;
        } finally {
            leaveStep(next);
        }
        return Status.of(statuses);
    }

    /** Names this step's tokens: of all tables, one after another. */
    public Status[] setTokens(int... tokens) {
        Table[] tables = step;
        int[] statuses = new int[tables.length];
        enterStep(tables);
        try {
            Core.batch_set_tokens(handle(), tokens.length, tokens, statuses);
        } catch (PagedKvException e) {
            Statuses.rethrowIfGood(statuses, e);
        } finally {
            leaveStep(tables);
        }
        return Status.of(statuses);
    }

    /** Scatters rows of a layer: row i goes to the i-th new token. v is null without V. */
    public void write(int group, int layer, Rows k, Rows v, Sync sync) {
        Table[] tables = step;
        Geometry.Group shape = pool.geometry().group(group);
        enterStep(tables);
        try (sync after = Sync.open(sync)) {
            Core.batch_write(handle(), Bytes.unsigned(group), Bytes.unsigned(layer), Rows.check(k, shape, true, false),
                    Rows.check(v, shape, false, false), after);
        } finally {
            Rows.hold(k, v);
            Sync.hold(sync);
            leaveStep(tables);
        }
    }

    /**
     * Gathers a layer of every table.
     *
     * @param first first token of each; null = 0 for all
     * @param padded 0: rows follow each other; else table r's begin at r * padded, the rest is zeroed
     */
    public void gather(int group, int layer, long[] first, long padded, Rows k, Rows v, Sync sync) {
        Table[] tables = step;
        Geometry.Group shape = pool.geometry().group(group);
        checkLength(first == null ? tables.length : first.length, tables.length);
        enterStep(tables);
        try (sync after = Sync.open(sync)) {
            Core.batch_gather(handle(), Bytes.unsigned(group), Bytes.unsigned(layer), first, padded,
                    Rows.check(k, shape, true, true), Rows.check(v, shape, false, true), after);
        } finally {
            Rows.hold(k, v);
            Sync.hold(sync);
            leaveStep(tables);
        }
    }

    /**
     * Ends the step.
     *
     * @param numAccepted of each table's new tokens, the first so many are kept; null = all
     */
    public Status[] commit(int[] numAccepted, Sync sync) {
        Table[] tables = step;
        int[] statuses = new int[tables.length];
        checkLength(numAccepted == null ? tables.length : numAccepted.length, tables.length);
        enterStep(tables);
        try (sync after = Sync.open(sync)) {
            Core.batch_commit(handle(), numAccepted, statuses, after);
            step = NO_TABLES;
        } catch (PagedKvException e) {
            Statuses.rethrowIfGood(statuses, e);
            step = NO_TABLES;
        } finally {
            Sync.hold(sync);
            leaveStep(tables);
        }
        return Status.of(statuses);
    }

    /** The same, with all tokens, at once. */
    public Status[] commit() {
        return commit(null, null);
    }

    private static void checkLength(int length, int tables) {
        if (length != tables) {
            throw new IllegalArgumentException(length + " numbers for " + tables + " tables");
        }
    }
}
