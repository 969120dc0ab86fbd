/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import static org.pagedkv.Operations.add;
import static org.pagedkv.Operations.addEach;
import static org.pagedkv.Operations.made;

import java.util.List;
import org.pagedkv.internal.Core;
import org.pagedkv.internal.predictor;

/* Conformance: prefetch sessions. */
final class PrefetchOperations {
    private static final List<String> POLICIES = List.of("sequential", "full", "hinted");

    private PrefetchOperations() {}

    private static PrefetchSession session(Case c, Line l) {
        return c.get(l, PrefetchSession.class, "session");
    }

    private static void predict(Case c, Line l) {
        long[] count = new long[1];
        float[] scores = l.floats("scores");
        int capacity = l.small("capacity", 64);
        long[] blocks = new long[Math.max(capacity, 64)];
        try (predictor by = new predictor()) {
            by.setPolicy(l.name("policy", POLICIES, 0, 0));
            by.setPage_tokens(l.number("page_tokens", 16));
            by.setSink_tokens(l.number("sink_tokens", 0));
            by.setRecent_tokens(l.number("recent_tokens", 0));
            by.setLookahead(l.number("lookahead", 0));
            Core.prefetch_predict(by, l.number("num_tokens", 0), l.number("position", 0), scores.length, scores, blocks, capacity,
                    count);
            if (capacity != 0) {
                l.outUnsigned("blocks", java.util.Arrays.copyOf(blocks, (int) count[0]));
            }
        } finally {
            l.out("num_blocks", count[0]);
        }
    }

    private static void open(Case c, Line l) {
        Pool pool = c.get(l, Pool.class, "pool");
        PrefetchOptions options = new PrefetchOptions().policy(l.name("policy", POLICIES, 0, 0)).flags(l.small("flags", 0))
                .sinkTokens(l.number("sink_tokens", 0)).recentTokens(l.number("recent_tokens", 0))
                .maxLookahead(l.number("max_lookahead", 0)).maxBlockPages(l.number("max_block_pages", 0))
                .numBuffers(l.small("num_buffers", 0)).maxTables(l.small("max_tables", 0));
        long[] staging = l.longs("staging");
        if (staging.length != 0) {
            options.stagingPages(staging);
        }
        c.make(l, "session", made(PrefetchSession.none(pool), () -> pool.openPrefetch(options)));
    }

    static void addAll() {
        add("predict", PrefetchOperations::predict);
        add("prefetch.open", PrefetchOperations::open);
        add("prefetch.close", (c, l) -> {
            Sync sync = c.sync(l);
            if (sync != null) {
                session(c, l).close(sync);
            } else {
                Case.destroy(session(c, l));
            }
        });
        add("prefetch.cancel", (c, l) -> session(c, l).cancel());
        add("prefetch.prompt", (c, l) -> {
            Prompt prompt = Operations.prompt(l);
            OpOptions options = Operations.opOptions(c, l);
            c.make(l, "op", made(new Op(0), () -> {
                PrefetchSession.Begun begun = session(c, l).prompt(prompt, options);
                l.out("match", begun.match().tokens());
                l.out("resident", begun.match().residentTokens());
                return begun.op();
            }));
        });
        add("prefetch.hint", (c, l) -> session(c, l).hint(c.get(l, Table.class, "table"), l.floats("scores")));
        add("prefetch.submit", (c, l) -> l.out("submitted",
                session(c, l).submit(c.get(l, Table.class, "table"), l.number("position", 0))));
        add("prefetch.require", (c, l) -> {
            RequireResult result = session(c, l).require(c.get(l, Table.class, "table"), l.number("first_block", 0),
                    l.number("num_blocks", -1), l.number("timeout", -1));
            l.out("resident", result.resident());
            l.out("absent", result.onTime() + result.late() + result.onDemand());
        });
        add("prefetch.step_begin", (c, l) -> {
            long[] numTokens = l.longs("num_tokens");
            l.out("statuses", session(c, l).stepBegin(c.tables(l), numTokens.length != 0 ? numTokens : null));
        });
        add("prefetch.acquire", (c, l) -> {
            LayerView view = session(c, l).acquire(l.small("index", 0), l.number("timeout", -1));
            l.out("group", view.group());
            l.out("layer", view.layer());
            l.out("num_tables", view.firstBlock().length);
            l.out("num_slices", view.slices().length);
            l.out("missing", java.util.Arrays.stream(view.slices()).filter(slice -> slice < 0).count());
            l.out("last", view.last());
        });
        add("prefetch.release", (c, l) -> session(c, l).release(l.small("index", 0), c.sync(l)));
        addEach("prefetch.step_end", (c, l) -> {
            Status[] statuses = session(c, l).stepEnd();
            Status status = Operations.first(statuses);
            if (status == Status.OK) {
                l.out("statuses", statuses);
            }
            return status;
        });
        add("prefetch.stats", (c, l) -> {
            PrefetchStats stats = session(c, l).stats();
            l.out("needed", stats.needed());
            l.out("failed", stats.failed());
            l.out("steps", stats.steps());
            l.out("ranges", stats.ranges());
            l.out("prompts", stats.prompts());
            l.out("staging_pages", stats.stagingPages());
            l.out("checksum_failures", stats.checksumFailures());
            l.out("balance", stats.needed() - stats.onTime() - stats.late() - stats.onDemand());
        });
    }
}
