/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.lang.ref.Reference;
import org.pagedkv.internal.Core;
import org.pagedkv.internal.layer_view;
import org.pagedkv.internal.match;
import org.pagedkv.internal.op_options;
import org.pagedkv.internal.predictor;
import org.pagedkv.internal.prefetch_options;
import org.pagedkv.internal.prefetch_stats;
import org.pagedkv.internal.prompt;
import org.pagedkv.internal.require_result;
import org.pagedkv.internal.sync;

/** What is in tiers is loaded before it is needed: prefetch.h. One thread at a time for a session and its tables. */
public final class PrefetchSession extends ExclusiveObject {
    private static final Table[] NO_TABLES = {};

    private final Pool pool;
    private Table[] step = NO_TABLES;

    PrefetchSession(Pool pool, PrefetchOptions options) {
        this(pool, options, open(pool, options));
    }

    private PrefetchSession(Pool pool, PrefetchOptions options, long handle) {
        super(handle, session -> Core.prefetch_close(session, null), options != null ? options.kept() : null);
        this.pool = pool;
    }

    /* One that could not be made: for tests. */
    static PrefetchSession none(Pool pool) {
        return new PrefetchSession(pool, null, 0);
    }

    private static long open(Pool pool, PrefetchOptions options) {
        long[] handle = new long[1];
        try (prefetch_options to = options != null ? options.open() : null) {
            Core.prefetch_open(pool.handle(), to, handle);
        } finally {
            Reference.reachabilityFence(options);
            Reference.reachabilityFence(pool);
        }
        return handle[0];
    }

    /** The pool it is over. */
    public Pool pool() {
        return pool;
    }

    /** Closes the session; not while a call is in it, which copies from its memory: that gives {@link Status#BUSY}. */
    @Override
    public void close() {
        enter();
        try {
            super.close();
        } finally {
            leave();
        }
    }

    /** The same, after work that still reads views. */
    public void close(Sync sync) {
        enter();
        try (sync after = Sync.open(sync)) {
            close(session -> Core.prefetch_close(session, after));
        } finally {
            Sync.hold(sync);
            leave();
        }
    }

    /** Drops everything that was loaded ahead, and cancels loads under way. */
    public void cancel() {
        enter();
        try {
            Core.prefetch_cancel(handle());
        } finally {
            leave();
        }
    }

    /** A prompt whose prefix is being loaded. */
    public record Begun(Match match, Op op) {}

    /** Finds the longest prefix of a prompt over all tiers and begins to load what is not in pages. */
    public Begun prompt(Prompt prompt, OpOptions options) {
        long[] op = new long[1];
        enter();
        try (prompt of = prompt.open(); op_options to = OpOptions.open(options); match match = new match()) {
            Core.prefetch_prompt(handle(), of, to, match, op);
            return new Begun(Match.of(match), new Op(op[0]));
        } finally {
            Reference.reachabilityFence(options);
            leave();
        }
    }

    private void enterBoth(Table table) {
        enter();
        try {
            table.enter();
        } catch (RuntimeException e) {
            leave();
            throw e;
        }
    }

    private void leaveBoth(Table table) {
        table.leave();
        leave();
    }

    /** Keeps scores of a sequence's blocks for {@link PredictPolicy#HINTED}. */
    public void hint(Table table, float... scores) {
        enterBoth(table);
        try {
            Core.prefetch_hint(handle(), table.handle(), scores.length, scores);
        } finally {
            leaveBoth(table);
        }
    }

    /** Predicts the blocks that a sequence needs at a position and begins to load those that are absent: how many. */
    public long submit(Table table, long position) {
        long[] submitted = new long[1];
        enterBoth(table);
        try {
            Core.prefetch_submit(handle(), table.handle(), position, submitted);
        } finally {
            leaveBoth(table);
        }
        return submitted[0];
    }

    /** Puts blocks into the block table: those loaded ahead at once, others when they are there. */
    public RequireResult require(Table table, long firstBlock, long numBlocks, long timeoutNanos) {
        enterBoth(table);
        try (require_result result = new require_result()) {
            Core.prefetch_require(handle(), table.handle(), firstBlock, numBlocks, timeoutNanos, result);
            return RequireResult.of(result);
        } finally {
            leaveBoth(table);
        }
    }

    /**
     * Begins a step over tables.
     *
     * @param numTokens tokens of each that the step attends to; null = the committed ones
     * @return why a table has no entries in the step, or OK
     */
    public Status[] stepBegin(Table[] tables, long[] numTokens) {
        if (numTokens != null && numTokens.length != tables.length) {
            throw new IllegalArgumentException(numTokens.length + " numbers for " + tables.length + " tables");
        }
        Table[] next = tables.clone();
        int[] statuses = new int[next.length];
        enterStep(next);
        try {
            Core.prefetch_step_begin(handle(), next.length, handles(next), numTokens, statuses);
            step = next;
        } finally {
            leaveStep(next);
        }
        return Status.of(statuses);
    }

    /** Gives the next range of a layer, and waits until its bytes are there. */
    public LayerView acquire(int index, long timeoutNanos) {
        return acquire(index, timeoutNanos, null);
    }

    /**
     * The same for a pool on a device. With {@link Sync#cudaStream} it does not wait, the stream does: the view's arrays are null, since
     * they are only to be read when the stream has come so far, and the addresses are for kernels in it. {@link #release} takes the stream,
     * too.
     */
    public LayerView acquire(int index, long timeoutNanos, Sync sync) {
        Table[] tables = step;
        enterStep(tables);
        try (sync after = Sync.open(sync); layer_view view = new layer_view()) {
            Core.prefetch_layer_acquire(handle(), Bytes.unsigned(index), timeoutNanos, after, view);
            return LayerView.of(view, sync == null || !sync.isStream());
        } finally {
            Sync.hold(sync);
            leaveStep(tables);
        }
    }

    /** Ends the use of the oldest acquired range. */
    public void release(int index, Sync sync) {
        enter();
        try (sync after = Sync.open(sync)) {
            Core.prefetch_layer_release(handle(), Bytes.unsigned(index), after);
        } finally {
            Sync.hold(sync);
            leave();
        }
    }

    /** Ends a step: what was computed for a table whose status is not OK is void. */
    public Status[] stepEnd() {
        Table[] tables = step;
        int[] statuses = new int[tables.length];
        enterStep(tables);
        try {
            Core.prefetch_step_end(handle(), statuses);
            step = NO_TABLES;
        } catch (PagedKvException e) {
            Statuses.rethrowIfGood(statuses, e);
            step = NO_TABLES;
        } finally {
            leaveStep(tables);
        }
        return Status.of(statuses);
    }

    /** The session's numbers; from any thread. */
    public PrefetchStats stats() {
        try (prefetch_stats stats = new prefetch_stats()) {
            Core.prefetch_get_stats(handle(), stats);
            return PrefetchStats.of(stats);
        } finally {
            Reference.reachabilityFence(this);
        }
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
     * Predicts which blocks of a sequence are needed next: a pure function (pkv_prefetch_predict).
     *
     * @param scores HINTED: of the blocks; else null
     */
    public static long[] predict(PredictPolicy policy, int pageTokens, long sinkTokens, long recentTokens, long lookahead,
            long numTokens, long position, float[] scores) {
        try (predictor by = new predictor()) {
            by.setPolicy(policy.code);
            by.setPage_tokens(Bytes.unsigned(pageTokens));
            by.setSink_tokens(sinkTokens);
            by.setRecent_tokens(recentTokens);
            by.setLookahead(lookahead);
            long[] count = new long[1];
            long numScores = scores != null ? scores.length : 0;
            Core.prefetch_predict(by, numTokens, position, numScores, scores, null, 0, count);
            if (!Bytes.fits(count[0])) {
                throw PagedKvException.of(Status.LIMIT, Long.toUnsignedString(count[0]) + " blocks are more than an array has");
            }
            long[] blocks = new long[(int) count[0]];
            if (blocks.length != 0) {
                Core.prefetch_predict(by, numTokens, position, numScores, scores, blocks, blocks.length, count);
            }
            return blocks;
        }
    }
}
