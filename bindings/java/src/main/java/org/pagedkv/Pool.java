/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.List;
import org.pagedkv.internal.Core;
import org.pagedkv.internal.clear_result;
import org.pagedkv.internal.layer_layout;
import org.pagedkv.internal.match;
import org.pagedkv.internal.namespace;
import org.pagedkv.internal.op_options;
import org.pagedkv.internal.page_info;
import org.pagedkv.internal.pool_options;
import org.pagedkv.internal.pool_stats;
import org.pagedkv.internal.prompt;
import org.pagedkv.internal.retention;
import org.pagedkv.internal.sync;

/**
 * Pages of one geometry, the prefix index over them, and eviction: pool.h. Any thread may call.
 *
 * <p>Counts, positions and sizes are unsigned 64-bit numbers: what is below 0 as a long is above 2^63
 * ({@link Long#compareUnsigned}), and the library says what it thinks of it. {@link PagedKv#ALL} is the largest one.
 */
public final class Pool extends NativeObject {
    private final Geometry geometry;
    private final int[] auxBytes; // of a page of each group

    /** Makes a pool. */
    public Pool(PoolOptions options) {
        this(create(options), options);
    }

    private Pool(long handle, PoolOptions options) {
        super(handle, Core::pool_destroy, kept(options));
        auxBytes = options.groups().stream().mapToInt(group -> (int) group.auxBytes()).toArray();
        geometry = new Geometry(handle, handle != 0 ? auxBytes.length : 0);
    }

    /* One that could not be made: for tests. */
    static Pool none() {
        return new Pool(0, new PoolOptions());
    }

    private static long create(PoolOptions options) {
        long[] handle = new long[1];
        try (pool_options to = options.open()) {
            Core.pool_create(to, handle);
        } finally {
            Reference.reachabilityFence(options);
        }
        return handle[0];
    }

    private static Object kept(PoolOptions options) {
        List<Object> kept = new ArrayList<>();
        options.groups().forEach(group -> group.keep(kept));
        return kept.isEmpty() ? null : kept;
    }

    Geometry geometry() {
        return geometry;
    }

    /** Makes an empty table. */
    public Table table() {
        return new Table(this);
    }

    /** Waits until no call is at work on memory of the caller's. */
    public void quiesce(long timeoutNanos) {
        Core.pool_quiesce(handle(), timeoutNanos);
        Reference.reachabilityFence(this);
    }

    /** Waits until what is to be stored in tiers by policy has been. */
    public void flush(long timeoutNanos) {
        Core.pool_flush(handle(), timeoutNanos);
        Reference.reachabilityFence(this);
    }

    /**
     * On a device: orders a stream after the work that pages which calls have handed out may still be in.
     *
     * @param sync {@link Sync#cudaStream}; null, or another kind: the call waits for it
     */
    public void order(Sync sync) {
        try (sync of = Sync.open(sync)) {
            Core.pool_order(handle(), of);
        } finally {
            Sync.hold(sync);
            Reference.reachabilityFence(this);
        }
    }

    /** Addresses and strides of a layer, valid as long as the pool or one of its tables is open. */
    public LayerLayout layout(int group, int layer) {
        try (layer_layout layout = new layer_layout()) {
            Core.pool_layout(handle(), Bytes.unsigned(group), Bytes.unsigned(layer), layout);
            return LayerLayout.of(layout);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** The aux bytes of a page, copied. */
    @SuppressWarnings("try")
    public byte[] aux(int group, int page) {
        byte[] bytes = new byte[auxBytes(group)];
        try (Table keepsMemory = table()) {
            Core.memory_to_bytes(auxAddress(group, page), bytes.length, bytes);
        }
        return bytes;
    }

    /** Replaces the aux bytes of a page. */
    @SuppressWarnings("try")
    public void setAux(int group, int page, byte[] bytes) {
        if (bytes.length != auxBytes(group)) {
            throw new IndexOutOfBoundsException(bytes.length + " bytes for " + auxBytes(group) + " aux bytes");
        }
        try (Table keepsMemory = table()) {
            Core.memory_from_bytes(auxAddress(group, page), bytes.length, bytes);
        }
    }

    private int auxBytes(int group) {
        return group >= 0 && group < auxBytes.length ? auxBytes[group] : 0;
    }

    private long auxAddress(int group, int page) {
        long[] address = new long[1];
        Core.pool_aux(handle(), Bytes.unsigned(group), page, address);
        return address[0];
    }

    // ---- pages

    /** Takes pages, each with a count of one that belongs to the caller, or none. */
    public int[] alloc(int group, long numPages) {
        int[] pages = Bytes.ints(numPages);
        Core.pool_alloc(handle(), Bytes.unsigned(group), numPages, pages);
        Reference.reachabilityFence(this);
        return pages;
    }

    /** Adds one to the count of each page. */
    public void retain(int group, int... pages) {
        Core.pool_retain(handle(), Bytes.unsigned(group), pages.length, pages);
        Reference.reachabilityFence(this);
    }

    /** Gives back one count of each page: of all of them, or of none. */
    public void release(int group, int... pages) {
        release(group, pages, null);
    }

    /** The same, after work that may still use the pages. */
    public void release(int group, int[] pages, Sync sync) {
        release(group, pages, null, sync);
    }

    /** Gives back one count of each page that has one, and says what became of each. */
    public Status[] releaseEach(int group, int[] pages, Sync sync) {
        int[] statuses = new int[pages.length];
        try {
            release(group, pages, statuses, sync);
        } catch (PagedKvException e) {
            Statuses.rethrowIfGood(statuses, e);
        }
        return Status.of(statuses);
    }

    private void release(int group, int[] pages, int[] statuses, Sync sync) {
        try (sync after = Sync.open(sync)) {
            Core.pool_release(handle(), Bytes.unsigned(group), pages.length, pages, statuses, after);
        } finally {
            Sync.hold(sync);
            Reference.reachabilityFence(this);
        }
    }

    /** State of a page. */
    public PageInfo pageInfo(int group, int page) {
        try (page_info info = new page_info()) {
            Core.pool_page_info(handle(), Bytes.unsigned(group), page, info);
            return PageInfo.of(info);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Copies whole pages, all layers, from src[i] to dst[i]. */
    public void copyPages(int group, int[] src, int[] dst, Sync sync) {
        if (src.length != dst.length) {
            throw new IllegalArgumentException(src.length + " sources, " + dst.length + " destinations");
        }
        try (sync after = Sync.open(sync)) {
            Core.pool_copy_pages(handle(), Bytes.unsigned(group), src.length, src, dst, after);
        } finally {
            Sync.hold(sync);
            Reference.reachabilityFence(this);
        }
    }

    // ---- prefixes

    /** What {@link #lookup} found: for each group its pages, each with a count that the caller releases. */
    public record Lookup(Match match, int[][] pages) {}

    /**
     * Finds the longest cached prefix of a prompt, and takes a count on its pages.
     *
     * @param maxMatch at most this many tokens may match; 0 = all but the last one, {@link Match#ALL} = no bound
     * @param capacity at most so many blocks are matched
     */
    public Lookup lookup(Prompt prompt, long maxMatch, int capacity) {
        int groupCount = Math.max(geometry.numGroups(), 1);
        int[] pages = Bytes.ints((long) groupCount * Math.max(capacity, 0));
        try (prompt of = prompt.open(); match match = new match()) {
            Core.pool_lookup(handle(), of, maxMatch, pages, Math.max(capacity, 0), match);
            Match found = Match.of(match);
            int[][] rows = new int[groupCount][];
            for (int g = 0; g < groupCount; ++g) {
                rows[g] = java.util.Arrays.copyOfRange(pages, g * capacity, g * capacity + (int) found.blocks());
            }
            return new Lookup(found, rows);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** As {@link #lookup}, but takes no page and changes no order. */
    public Match probe(Prompt prompt, long maxMatch) {
        try (prompt of = prompt.open(); match match = new match()) {
            Core.pool_probe(handle(), of, maxMatch, match);
            return Match.of(match);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Makes pages that the caller holds findable as blocks of a prompt.
     *
     * @return the page under which each block is published now
     */
    public int[] publish(int group, Prompt prompt, long firstBlock, int... pages) {
        int[] owner = new int[pages.length];
        try (prompt of = prompt.open()) {
            Core.pool_publish(handle(), Bytes.unsigned(group), of, firstBlock, pages.length, pages, owner);
        } finally {
            Reference.reachabilityFence(this);
        }
        return owner;
    }

    /** Frees cached pages, and says how many. */
    public long evict(int group, long numPages) {
        long[] evicted = new long[1];
        Core.pool_evict(handle(), Bytes.unsigned(group), numPages, evicted);
        Reference.reachabilityFence(this);
        return evicted[0];
    }

    /** Sets the retention of published blocks that hold tokens of a range, and says how many there are. */
    public long setRetention(Prompt prompt, long firstToken, long numTokens, Retention retention) {
        long[] blocks = new long[1];
        try (prompt of = prompt.open(); retention to = Retention.open(retention)) {
            Core.pool_set_retention(handle(), of, firstToken, numTokens, to, blocks);
        } finally {
            Reference.reachabilityFence(this);
        }
        return blocks[0];
    }

    /** Sets the retention that blocks of a namespace get from now on; null = the default. */
    public void setNamespaceRetention(Namespace namespace, Retention retention) {
        try (namespace ns = Namespace.open(namespace); retention to = Retention.open(retention)) {
            Core.pool_set_namespace_retention(handle(), ns, to);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Forgets all prefixes of a namespace; null = the one whose parts are empty. */
    public ClearResult clear(Namespace namespace) {
        try (namespace ns = Namespace.open(namespace); clear_result result = new clear_result()) {
            Core.pool_clear(handle(), ns, result);
            return ClearResult.of(result);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Forgets all prefixes of all namespaces. */
    public ClearResult clearAll() {
        try (clear_result result = new clear_result()) {
            Core.pool_clear_all(handle(), result);
            return ClearResult.of(result);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Keys of a prompt's whole blocks, 16 bytes each. */
    public byte[] keys(Prompt prompt) {
        return Packed.keys(prompt, Packed.KEY, this::keys);
    }

    void keys(prompt of, byte[] keys, long capacity, long[] count) {
        Core.pool_keys(handle(), of, keys, capacity, count);
        Reference.reachabilityFence(this);
    }

    /** Keys of the images of a prompt's whole blocks in a group, 32 bytes each. */
    public byte[] imageKeys(int group, Prompt prompt) {
        return Packed.keys(prompt, Packed.TIER_KEY, (of, keys, capacity, count) -> imageKeys(group, of, keys, capacity, count));
    }

    void imageKeys(int group, prompt of, byte[] keys, long capacity, long[] count) {
        Core.pool_image_keys(handle(), Bytes.unsigned(group), of, keys, capacity, count);
        Reference.reachabilityFence(this);
    }

    /** Events, and how many are gone already. */
    public record Events(List<Event> events, long missed) {}

    /** Up to {@code capacity} events that follow the one with the number {@code after}. */
    public Events events(long after, int capacity) {
        byte[] events = new byte[Math.multiplyExact(Math.max(capacity, 0), Packed.EVENT)];
        long[] count = new long[1];
        long[] missed = new long[1];
        Core.pool_events(handle(), after, events, Math.max(capacity, 0), count, missed);
        Reference.reachabilityFence(this);
        return new Events(Packed.events(events, (int) count[0]), missed[0]);
    }

    // ---- rows

    /** Scatters rows of a layer to slots (page * page_tokens + offset; below 0: skip). v is null without V. */
    public void write(int group, int layer, long[] slots, Rows k, Rows v, Sync sync) {
        Geometry.Group shape = geometry.group(group);
        try (sync after = Sync.open(sync)) {
            Core.pool_write(handle(), Bytes.unsigned(group), Bytes.unsigned(layer), slots.length, slots,
                    Rows.check(k, shape, true, false), Rows.check(v, shape, false, false), after);
        } finally {
            Rows.hold(k, v);
            Sync.hold(sync);
            Reference.reachabilityFence(this);
        }
    }

    /** Gathers rows of a layer through a block table; k or v may be null. */
    public void gather(int group, int layer, int[] pages, long firstToken, long numTokens, Rows k, Rows v, Sync sync) {
        Geometry.Group shape = geometry.group(group);
        try (sync after = Sync.open(sync)) {
            Core.pool_gather(handle(), Bytes.unsigned(group), Bytes.unsigned(layer), pages.length, pages, firstToken, numTokens,
                    Rows.check(k, shape, true, true), Rows.check(v, shape, false, true), after);
        } finally {
            Rows.hold(k, v);
            Sync.hold(sync);
            Reference.reachabilityFence(this);
        }
    }

    // ---- tiers

    /** Begins to store images of pages that the caller holds. keys: {@link #imageKeys}, 32 bytes a page. */
    public Op store(int group, byte[] keys, int[] pages, Sync sync, OpOptions options) {
        return move(Core::pool_store, group, keys, pages, sync, options);
    }

    /** Begins to load images into pages that the caller holds. */
    public Op load(int group, byte[] keys, int[] pages, Sync sync, OpOptions options) {
        return move(Core::pool_load, group, keys, pages, sync, options);
    }

    private interface Move {
        void move(long pool, long group, long count, byte[] keys, int[] pages, sync sync, op_options options, long[] op);
    }

    private Op move(Move move, int group, byte[] keys, int[] pages, Sync sync, OpOptions options) {
        if (keys.length / Packed.TIER_KEY < pages.length) {
            throw new IndexOutOfBoundsException(keys.length + " bytes of keys for " + pages.length + " pages");
        }
        long[] op = new long[1];
        try (sync after = Sync.open(sync); op_options to = OpOptions.open(options)) {
            move.move(handle(), Bytes.unsigned(group), pages.length, keys, pages, after, to, op);
        } finally {
            Sync.hold(sync);
            Reference.reachabilityFence(options);
            Reference.reachabilityFence(this);
        }
        return new Op(op[0]);
    }

    /** Opens a prefetch session; null = defaults. */
    public PrefetchSession openPrefetch(PrefetchOptions options) {
        return new PrefetchSession(this, options);
    }

    /** Statistics; those of pages are of the group. */
    public PoolStats stats(int group) {
        try (pool_stats stats = new pool_stats()) {
            Core.pool_get_stats(handle(), Bytes.unsigned(group), stats);
            return PoolStats.of(stats);
        } finally {
            Reference.reachabilityFence(this);
        }
    }
}
