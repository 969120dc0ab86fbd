/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.nio.file.Path;
import java.util.Map;
import org.pagedkv.internal.Core;
import org.pagedkv.internal.prometheus_sources;

/** What belongs to no object. */
public final class PagedKv {
    /** The largest unsigned number: as a count to the end, as a timeout for ever. */
    public static final long ALL = -1;

    private PagedKv() {}

    /** Version of the library that runs, for example "0.1.0". */
    public static String version() {
        return Core.version_string();
    }

    /** The same as a number: major * 10000 + minor * 100 + patch. */
    public static int versionNumber() {
        return Core.version_number();
    }

    /** Name of the host kernels that this process runs. */
    public static String cpuKernels() {
        return Core.cpu_kernels();
    }

    /** BLAKE2b-256 of the parts, each preceded by its size. */
    public static byte[] digest(byte[]... parts) {
        byte[] digest = new byte[32];
        Core.digest(parts, digest);
        return digest;
    }

    /** Statistics in Prometheus' text format; the keys become labels. */
    public static String prometheus(Map<String, Pool> pools, Map<String, Tier> tiers, Map<String, PrefetchSession> sessions) {
        return prometheus(pools, tiers, sessions, Map.of());
    }

    /** The same, with nodes. */
    public static String prometheus(Map<String, Pool> pools, Map<String, Tier> tiers, Map<String, PrefetchSession> sessions,
            Map<String, Node> nodes) {
        try (prometheus_sources sources = new prometheus_sources()) {
            pools.forEach((name, pool) -> sources.add_pool(pool.handle(), Bytes.text(name)));
            tiers.forEach((name, tier) -> sources.add_tier(tier.handle(), Bytes.text(name)));
            sessions.forEach((name, session) -> sources.add_session(session.handle(), Bytes.text(name)));
            nodes.forEach((name, node) -> sources.add_node(node.handle(), Bytes.text(name)));
            return Bytes.text((buffer, capacity, size) -> Core.stats_prometheus(sources, buffer, capacity, size));
        } finally {
            java.lang.ref.Reference.reachabilityFence(pools);
            java.lang.ref.Reference.reachabilityFence(tiers);
            java.lang.ref.Reference.reachabilityFence(sessions);
            java.lang.ref.Reference.reachabilityFence(nodes);
        }
    }

    /** Begins to record a trace. */
    public static void traceStart(long maxEvents) {
        Core.trace_start(maxEvents);
    }

    /** Ends the recording, writes it (null: does not), and says how many events found no room. */
    public static long traceStop(Path path) {
        long[] dropped = new long[1];
        Core.trace_stop(path != null ? Bytes.text(path.toString()) : null, dropped);
        return dropped[0];
    }
}
